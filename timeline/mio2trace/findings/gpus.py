"""Peak performance of GPUs, by name or from a file.

A row is one device as profilers list it. An MI250 or MI250X is two devices, one per die. A peak is compute units x
clock x operations per clock and unit (dense; vector or matrix unit, whichever is faster). Bandwidth is that of the
memory. These are the numbers of AMD's data sheets (`SOURCES`). No program reaches them: use the share of the peak to
compare runs, not as a verdict.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from mio2trace.notes import InputError, OptionError

SOURCES: Final[Mapping[str, str]] = MappingProxyType({
    "CDNA 4": "AMD CDNA 4 white paper; AMD Instinct MI350X and MI355X data sheets",
    "CDNA 3": "AMD CDNA 3 white paper; AMD Instinct MI300A, MI300X and MI325X data sheets",
    "CDNA 2": "AMD CDNA 2 white paper; AMD Instinct MI210, MI250 and MI250X data sheets (halves of the latter two)",
    "CDNA": "AMD CDNA white paper; AMD Instinct MI100 data sheet",
    "GCN 5.1": "AMD Vega 20 product pages: Radeon Instinct MI50, MI60",
    "GCN 5": "AMD Vega 10 product page: Radeon Instinct MI25",
    "GCN 4": "AMD Polaris product pages: Radeon Instinct MI6, Radeon RX 580",
    "GCN 3": "AMD Fiji product page: Radeon Instinct MI8",
    "RDNA 3": "AMD Radeon RX 7900 XTX product page",
    "RDNA 2": "AMD Radeon RX 6900 XT product page",
})  # fmt: skip
"""Sources for the numbers of each architecture; compute units of newer ones also at
https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html"""

_PER_CLOCK: Mapping[str, Mapping[str, int]] = MappingProxyType({
    "CDNA 4": {"double": 128, "float": 256, "half": 4096, "bfloat16": 4096, "int8": 8192, "float8": 8192},
    "CDNA 3": {"double": 256, "float": 256, "half": 2048, "bfloat16": 2048, "int8": 4096, "float8": 4096},
    "CDNA 2": {"double": 256, "float": 256, "half": 1024, "bfloat16": 1024, "int8": 1024},
    "CDNA": {"double": 64, "float": 256, "half": 1024, "bfloat16": 512, "int8": 1024},
    "GCN 5.1": {"double": 64, "float": 128, "half": 256, "int8": 512},
    "GCN 5": {"double": 8, "float": 128, "half": 256},
    "GCN 4": {"double": 8, "float": 128, "half": 128},
    "GCN 3": {"double": 8, "float": 128, "half": 128},
    "RDNA 3": {"double": 8, "float": 256, "half": 512, "bfloat16": 512},
    "RDNA 2": {"double": 8, "float": 128, "half": 256},
})  # fmt: skip
"""Floating point (int8: integer) operations per clock and compute unit, by the name of the data type in an operation.
"""

_ROWS: tuple[tuple[str, str, int, int, float], ...] = (
    # name, architecture, compute units, peak clock in MHz, memory in GB/s
    ("MI355X", "CDNA 4", 256, 2400, 8000),
    ("MI350X", "CDNA 4", 256, 2200, 8000),
    ("MI325X", "CDNA 3", 304, 2100, 6000),
    ("MI300X", "CDNA 3", 304, 2100, 5300),
    ("MI300A", "CDNA 3", 228, 2100, 5300),
    ("MI250X", "CDNA 2", 110, 1700, 1638.4),
    ("MI250", "CDNA 2", 104, 1700, 1638.4),
    ("MI210", "CDNA 2", 104, 1700, 1638.4),
    ("MI100", "CDNA", 120, 1502, 1228.8),
    ("MI60", "GCN 5.1", 64, 1800, 1024),
    ("MI50", "GCN 5.1", 60, 1725, 1024),
    ("MI25", "GCN 5", 64, 1500, 484),
    ("MI8", "GCN 3", 64, 1000, 512),
    ("MI6", "GCN 4", 36, 1237, 224),
    ("RX 580", "GCN 4", 36, 1340, 256),
    ("RX 7900 XTX", "RDNA 3", 96, 2500, 960),
    ("RX 6900 XT", "RDNA 2", 80, 2250, 512),
)


_SAME_RATE = {"bfloat8": "float8"}


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """The peaks of a device. ``tflops``: by the data type of an operation; ``bandwidth``: GB/s; ``units``: compute
    units."""

    name: str
    tflops: Mapping[str, float]
    bandwidth: float
    units: int | None = None
    source: str = ""

    def flop_per_ns(self, dtype: str | None) -> float | None:
        """Return the peak for a data type in operations per nanosecond; an unknown type has the peak of ``float``."""
        peak = self.tflops.get(_SAME_RATE.get(dtype or "float", dtype or "float"))
        return None if peak is None else peak * 1000


def _gpu(name: str, architecture: str, units: int, clock_mhz: int, bandwidth: float) -> Gpu:
    peaks = {dtype: units * clock_mhz * each / 1e6 for dtype, each in _PER_CLOCK[architecture].items()}
    return Gpu(name=name, tflops=peaks, bandwidth=bandwidth, units=units, source=SOURCES[architecture])


GPUS: Mapping[str, Gpu] = MappingProxyType({row[0]: _gpu(*row) for row in _ROWS})
"""By name."""


def known(name: str) -> Gpu | None:
    """Return the device whose name occurs in ``name`` as whole words, in any case; None if there is none."""
    lower = name.lower()  # the expression is slow, and few rows need it
    return next((gpu for own, gpu in GPUS.items() if own.lower() in lower and _as_words(own).search(name)), None)


@functools.cache
def _as_words(name: str) -> re.Pattern[str]:
    """Return a pattern that matches a row's name as whole words."""
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE | re.ASCII)


def gpu_of(text: str) -> Gpu:
    """Return a device of the table, or the one of the file that ``text`` names.

    A file is a JSON object: ``name``, ``mem_bw_gbps``, ``compute_units``, and ``max_achievable_tflops`` by ``matrix_``
    or ``vector_`` and type (``matrix_fp16``, ``vector_fp32``, ...); the greater of both counts. Raises `OptionError`.
    """
    gpu = known(text)
    if gpu is not None and text.strip().lower().endswith(gpu.name.lower()):
        return gpu
    try:
        with open(text, "rb") as file:
            data = file.read(1 << 20)
    except (OSError, ValueError):
        raise OptionError(f"--gpu {text}: neither a file nor one of {', '.join(GPUS)}") from None
    return _from_json(data, text)


_TYPES = {"fp64": "double", "fp32": "float", "fp16": "half", "bf16": "bfloat16", "int8": "int8", "fp8": "float8"}


def _from_json(data: bytes, path: str) -> Gpu:
    """Raises `InputError`, which names what is missing."""
    try:
        found: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{path}: expected the peaks of a GPU as JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: expected a JSON object with mem_bw_gbps and max_achievable_tflops")
    bandwidth, stated = found.get("mem_bw_gbps"), found.get("max_achievable_tflops")
    if bandwidth is None or not _is_amount(bandwidth):
        raise InputError(f"{path}: mem_bw_gbps: expected the memory's GB/s, found {bandwidth!r}")
    tflops: dict[str, float] = {}
    for name, value in stated.items() if isinstance(stated, dict) else ():
        dtype = _TYPES.get(str(name).rpartition("_")[2])
        if dtype is not None and _is_amount(value):
            tflops[dtype] = max(tflops.get(dtype, 0.0), float(value))
    if not tflops:
        raise InputError(f"{path}: max_achievable_tflops: expected TFLOPS by type, such as matrix_fp16")
    units = found.get("compute_units")
    return Gpu(
        name=str(found.get("name") or "the file's GPU")[:80],
        tflops=tflops,
        bandwidth=float(bandwidth),
        units=units if isinstance(units, int) and _is_amount(units) else None,
        source="the file given",
    )


def _is_amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0
