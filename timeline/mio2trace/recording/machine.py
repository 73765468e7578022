"""The facts about the machine and its clocks: versions, kinds of GPUs, variables of an allow-list; no names of
persons."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PREFIXES = ("MIOPEN_", "HIP_", "HSA_", "ROCR_", "ROCBLAS_", "HIPBLASLT_", "ROCPROF", "AMD_", "GPU_")
_VALUES = frozenset(
    re.findall(
        r"\w+",
        "MIOPEN_ENABLE_LOGGING MIOPEN_ENABLE_LOGGING_CMD MIOPEN_ENABLE_LOGGING_MPMT MIOPEN_ENABLE_LOGGING_ELAPSED_TIME "
        "MIOPEN_ENABLE_LOGGING_ROCTX MIOPEN_LOG_LEVEL MIOPEN_LOG_BUFFER_SIZE MIOPEN_PERFORMANCE_LOGS MIOPEN_FIND_MODE "
        "MIOPEN_FIND_ENFORCE MIOPEN_DISABLE_CACHE MIOPEN_COMPILE_PARALLEL_LEVEL MIOPEN_DEBUG_DISABLE_FIND_DB "
        "MIOPEN_DEBUG_CONV_DIRECT MIOPEN_DEBUG_CONV_GEMM MIOPEN_DEBUG_CONV_WINOGRAD MIOPEN_DEBUG_CONV_FFT "
        "MIOPEN_DEBUG_CONV_IMPLICIT_GEMM MIOPEN_CHECK_NUMERICS HIP_VISIBLE_DEVICES HIP_LAUNCH_BLOCKING "
        "HSA_OVERRIDE_GFX_VERSION HSA_ENABLE_SDMA HSA_XNACK HSA_NO_SCRATCH_RECLAIM ROCR_VISIBLE_DEVICES "
        "AMD_SERIALIZE_KERNEL AMD_SERIALIZE_COPY AMD_LOG_LEVEL GPU_MAX_HW_QUEUES",
    )
)
_NAME = re.compile(r"[A-Z][A-Z0-9_]{1,60}")
_PLAIN = re.compile(r"[A-Za-z]{0,16}[0-9.,:+-]{0,24}")
"""Accepted values: numbers, lists of numbers, single words; no path and no name."""
_RELEASE = re.compile(r"[\w.+-]+")
_GFX = re.compile(r"^gfx_target_version (\d+)$", re.MULTILINE)
_WORD = re.compile(r"[\w.+-]{1,40}")
_MIOPEN = re.compile(r"#define MIOPEN_VERSION_(MAJOR|MINOR|PATCH)[ \t]+(\d+)")
_KFD = "/sys/class/kfd/kfd/topology/nodes"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


_UNSYNCHRONISED, _STA_UNSYNC = 5, 0x40
"""``TIME_ERROR``, and the bit of the status, of `adjtimex(2)`."""


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ROCm and MIOpen that are set. Only known variables have their values."""
    found = {}
    for name in sorted(environment):
        if name.startswith(_PREFIXES) and _NAME.fullmatch(name):
            value = environment[name]
            found[name] = value if name in _VALUES and _PLAIN.fullmatch(value) else "(set)"
    return found


def machine(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return system, kernel, processor, GPUs, versions of ROCm and MIOpen, as far as files record them."""
    root = Path(environment.get("ROCM_PATH") or "/opt/rocm")
    release = _RELEASE.match(platform.release())
    rocm = next(iter(_text(root / ".info" / "version").split()), "")
    miopen = dict(_MIOPEN.findall(_text(root / "include" / "miopen" / "version.h")))
    told = {
        "system": _distribution(),
        "kernel": release[0] if release else "",
        "processor": platform.machine(),
        "processors": os.cpu_count(),
        "gpus": _gpus(Path(_KFD)),
        "rocm": rocm if _WORD.fullmatch(rocm) else "",
        "miopen": ".".join(miopen.values()),
    }
    return {name: value for name, value in told.items() if value}


def _distribution() -> str:
    try:
        told = platform.freedesktop_os_release()
    except OSError:
        return platform.system()
    return f"{told.get('ID', '')} {told.get('VERSION_ID', '')}".strip()


def _gpus(nodes: Path) -> list[str]:
    """``gfx942`` for each GPU that the driver lists."""
    found = []
    for properties in sorted(nodes.glob("*/properties")):
        match = _GFX.search(_text(properties))
        if match is not None and int(match[1]):
            number = int(match[1])
            found.append(f"gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def boot() -> str:
    """Return a hash of this machine and its boot, for comparisons only; empty if the system does not have it."""
    text = _text(Path(_BOOT_ID)).strip()
    return hashlib.blake2b(text.encode(), digest_size=8, person=b"mio2trace").hexdigest() if text else ""


def anchor(tries: int = 9) -> dict[str, int]:
    """Read the system's clocks at one moment, in nanoseconds. ``width_ns``: the time between the first and the last
    reading (best of ``tries``). ``realtime_error_ns``: the possible error of the Unix clock that the system states, if
    it keeps this clock synchronised."""
    best: dict[str, int] = {}
    for _ in range(tries):
        before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        read = {
            "realtime_ns": time.clock_gettime_ns(time.CLOCK_REALTIME),
            "monotonic_ns": time.clock_gettime_ns(time.CLOCK_MONOTONIC),
            "monotonic_raw_ns": time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW),
        }
        width = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - before
        if not best or width < best["width_ns"]:
            best = {"boottime_ns": before + width // 2, **read, "width_ns": width}
    error = _unix_clock_error_ns()
    return best if error is None else best | {"realtime_error_ns": error}


def _unix_clock_error_ns() -> int | None:
    """Return the kernel's bound, which the program that synchronises the clock has set; None without one
    (`adjtimex(2)`)."""
    told = (ctypes.c_long * 64)()  # larger than a `struct timex`: modes, offset, freq, maxerror, esterror, status
    try:
        state = ctypes.CDLL(None).adjtimex(told)
    except (OSError, AttributeError):
        return None
    if ctypes.sizeof(ctypes.c_long) != 8 or not 0 <= state < _UNSYNCHRONISED or told[5] & _STA_UNSYNC:
        return None
    return told[3] * 1000
