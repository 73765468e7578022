"""A whole recording: run the program, run it again for reference, inspect the result, and pack it, also after
Ctrl-C.

The result is inspected for its contents: counts, and missing parts with their known causes. The manifest has the facts
about the machine and its clocks: versions, kinds of GPUs, variables of an allow-list; no names of persons. All files
of a run are packed into one archive, which is written under another name and renamed when it is complete.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import re
import shlex
import shutil
import stat
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

import orjson

import mio2trace
from mio2trace.files import replacing
from mio2trace.machine import given_environment
from mio2trace.model.miopen import Command, Entry, MiopenLog
from mio2trace.model.profile import Profile
from mio2trace.notes import InputError, Notes
from mio2trace.outgoing import count
from mio2trace.readers import PROFILES, run_log
from mio2trace.readers.base import Reader, ReadOptions, Records
from mio2trace.recording import NONE, Asked, Outcome, Plan, Profiler, plan, rank_of, run
from mio2trace.source import ARCHIVE_SCHEMA, MANIFEST, MAX_EXPANSION, Source

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


class Log(NamedTuple):
    """Counts in a log, by its reader. ``kernels``: of dv/dt profiles inside it. ``blocks``: the number of such profiles
    with kernels. ``known``: whether any line is of a kind that the reader knows."""

    size: int = 0
    calls: int = 0
    threads: frozenset[int] = frozenset()
    kernels: int = 0
    known: bool = False
    blocks: int = 0


class Part(NamedTuple):
    """A file of a profiler. ``beside``: it is read together with another file."""

    path: str
    kernels: int = 0
    ranges: int = 0
    pids: frozenset[int] = frozenset()
    tids: frozenset[int] = frozenset()
    processes: int = 0
    beside: bool = False


class Contents(NamedTuple):
    """The files that a run left behind."""

    log: Log
    parts: tuple[Part, ...]

    @property
    def kernels(self) -> int:
        return self.log.kernels + sum(part.kernels for part in self.parts)

    @property
    def processes(self) -> int:
        return sum(part.processes for part in self.parts) + (max(1, self.log.blocks) if self.log.kernels else 0)


def look(log: str, folder: str) -> Contents:
    """Count the records in a log and in the files of a profiler; the records are not kept.

    Raises `InputError` if the program removed the files.
    """
    try:
        return Contents(_log(log), tuple(_parts(folder)))
    except OSError as error:
        raise InputError(f"{os.path.basename(error.filename or log)}: {error.strerror or error}") from None


def _log(path: str) -> Log:
    size = os.path.getsize(path)
    records, _ = _read(path, run_log)
    libraries = [record for record in records if isinstance(record, MiopenLog)]
    own = [record for log in libraries for record in log.records if isinstance(record, Entry | Command)]
    kernels = [_kernels(record) for record in records if isinstance(record, Profile)]
    return Log(
        size=size,
        calls=sum(log.count("entry ") for log in libraries) or sum(log.count("command ") for log in libraries),
        threads=frozenset(record.thread for record in own if record.thread is not None),
        kernels=sum(kernels),
        known=bool(records),
        blocks=sum(map(bool, kernels)),
    )


def _kernels(profile: Profile) -> int:
    return int(profile.commands.is_kernel.sum())


def _read(path: str, reader: Reader) -> tuple[Records, set[str]]:
    """Return the records of a file, and the files that were read with it. A file that cannot be read counts as
    empty."""
    records: Records = []
    together: set[str] = set()
    with contextlib.suppress(InputError), contextlib.closing(Source(path, 0, Notes())) as source:
        try:
            records = reader.read(source, ReadOptions(), Notes())
        finally:
            together = {other.path for other in source.companions}
    return records, together


def _parts(folder: str) -> Iterator[Part]:
    """Return the profiles; only the most complete one if rocprof wrote one run in several forms. Other files are read
    together with a profile."""
    named = sorted(os.path.join(place, name) for place, _, names in os.walk(folder) for name in names)
    files = [path for path in named if stat.S_ISREG(os.lstat(path).st_mode)]  # reading from a pipe would block
    profiles = {path: reader for path in files if (reader := _reader(path)) is not None}
    forms = [path for path in profiles if os.path.basename(path) in _FORMS]
    for path in sorted(forms, key=lambda one: _FORMS.index(os.path.basename(one)))[1:]:
        del profiles[path]
    counted: set[str] = set()
    for path, reader in profiles.items():
        if path not in counted:
            part, together = _part(path, reader)
            counted.update(together)
            yield part
    for path in files:
        if path in counted or (path not in profiles and _is_beside(path, profiles)):
            yield Part(path, beside=True)


_NO_LINES = (
    "hipBLASLt and MIGraphX have kernels of their own, PyTorch computes matrix products without MIOpen, and a"
    " MIOpen that is linked statically may have no log"
)
_SWITCHES = ("MIOPEN_ENABLE_LOGGING", "MIOPEN_ENABLE_LOGGING_CMD")
"""Settings that make MIOpen print the lines that are counted."""
_FORMS = ("results.db", "results.json", "results.csv")
"""The forms that rocprof writes together, the fullest first."""


def _is_beside(path: str, profiles: Sequence[str] | dict[str, Reader]) -> bool:
    """Return whether the file belongs to a profile: a database's journal, a table of a set."""
    folder = os.path.dirname(path)
    if path.endswith("-wal"):
        return path.removesuffix("-wal") in profiles
    return path.endswith("_trace.csv") and any(os.path.dirname(one) == folder for one in profiles)


def _reader(path: str) -> Reader | None:
    with contextlib.suppress(InputError), contextlib.closing(Source(path, 0, Notes())) as source:
        return next((reader for reader in PROFILES if reader.sniff(source.head)), None)
    return None


def _part(path: str, reader: Reader) -> tuple[Part, set[str]]:
    """Return the contents of a profile, and the files that were read with it."""
    records, together = _read(path, reader)
    profiles = [record for record in records if isinstance(record, Profile)]
    part = Part(
        path=path,
        kernels=sum(map(_kernels, profiles)),
        ranges=sum(one.text.startswith("s_api = miopen") for profile in profiles for one in profile.ranges),
        pids=frozenset(profile.process.pid for profile in profiles if profile.process.pid is not None),
        tids=frozenset(one.tid for profile in profiles for one in profile.threads if one.tid is not None),
        processes=len(profiles),
    )
    return part, together


def summary(contents: Contents, outcome: Outcome) -> str:
    """``exit 0 after 61 s; log 31 MB (52,180 MIOpen calls, 2 threads), profile 88,214 kernels, 1 process``"""
    log = contents.log
    inside = [count(log.calls, "MIOpen call")] if log.calls else []
    inside += [count(len(log.threads), "thread")] if log.threads else []
    size = f"{log.size / 1e6:.3g} MB" if log.size >= 1_000_000 else f"{log.size / 1000:.3g} kB"
    text = f"{outcome} after {outcome.seconds:.3g} s; log {size}"
    text += f" ({', '.join(inside)})" if inside else ""
    if contents.parts or log.kernels:
        text += f", profile {count(contents.kernels, 'kernel')}, {count(contents.processes, 'process')}"
    return text


def problems(
    contents: Contents, outcome: Outcome, profiler: Profiler, kept: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """Yield the missing parts, each with its known cause. ``kept``: variables that the person has set."""
    log, parts = contents.log, [part for part in contents.parts if not part.beside]
    if outcome.lost:
        yield f"the log is not whole: {outcome.lost}; TMPDIR names another place"
    if profiler.name == "none":
        yield (
            "no profiler found, so only the log was recorded; rocprofv3 comes with ROCm (PATH, /opt/rocm/bin), --dvdt"
            " LIB is for OpenCL"
        )
    elif not contents.kernels:
        yield _no_kernels(profiler, outcome, bool(parts))
    elif not log.calls and not any(part.ranges for part in parts):
        own = " ".join(f"{name}={kept[name]}" for name in _SWITCHES if name in kept)
        yield f"kernels but no line of MIOpen's: {f'{own} is yours, and stayed' if own else _NO_LINES}"
    if log.kernels and contents.processes - len(parts) > 1:
        yield (
            f"{count(contents.processes, 'process')} wrote their profiles into one log: its calls are joined with one"
            " of them; record each by itself"
        )
    tids = {tid for part in parts for tid in part.tids | part.pids}
    if tids and log.threads and log.threads - tids:
        yield (
            f"MIOpen calls of {count(len(log.threads - tids), 'thread')} that the profile does not have: several"
            " processes, not all of them profiled; run record inside of mpirun or srun: srun -n 8 mio2trace record"
        )


def _no_kernels(profiler: Profiler, outcome: Outcome, has_profile: bool) -> str:
    if profiler.name == "dv/dt":
        why = "killed programs print no JSON" if outcome.signal else "the program made no OpenCL call through the ICD"
        return f"no profile of dv/dt in the output: {why}, or the library is not for this machine"
    if not has_profile:
        killed = "a killed program leaves none; " if outcome.signal else ""
        return f"{profiler.name} wrote no profile: {killed}its own messages are above"
    return (
        "a profile without kernels: torch.profiler was active (only one tool can record a process), the program sets"
        " ROCPROFILER_REGISTER_LIBRARY itself, or nothing ran on a GPU"
    )


_LEVEL = 1
"""The level of deflate: a log shrinks to a twelfth of its size at the speed of a disk."""
_COPIED_AT_ONCE = 1 << 20


def pack(path: str, manifest: Mapping[str, Any], members: Mapping[str, str]) -> None:
    """Write an archive to ``path``: ``manifest`` and the files ``members``, by their name in it.

    Raises `InputError` if it cannot be written; an older file then stays unchanged.
    """
    with replacing(path) as target, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as made:
        made.writestr(
            _new(MANIFEST), orjson.dumps({"schema": ARCHIVE_SCHEMA, **manifest}, option=orjson.OPT_INDENT_2) + b"\n"
        )
        for name, file in members.items():
            with open(file, "rb") as source, made.open(_entry(name, source), "w", force_zip64=True) as packed:
                shutil.copyfileobj(source, packed, _COPIED_AT_ONCE)


def _entry(name: str, source: BinaryIO) -> zipfile.ZipInfo:
    """Leave out time and owner: packing twice gives equal bytes. Data that shrinks so much that it looks like a zip
    bomb is stored uncompressed."""
    entry = _new(name)
    beginning = source.read(_COPIED_AT_ONCE)
    source.seek(0)
    small = len(beginning) < _COPIED_AT_ONCE
    shrinks = small or len(zlib.compress(beginning, _LEVEL)) * MAX_EXPANSION // 2 > len(beginning)
    entry.compress_type = zipfile.ZIP_DEFLATED if shrinks else zipfile.ZIP_STORED
    return entry


def _new(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o100644 << 16
    return entry


def name_for(name: str, taken: Container[str]) -> str:
    """Return ``name``, with a number before it if another file has this name. Folders are left out: their names may be
    machines.

    Characters that a member's name must not have (line ends, backslashes, bytes that are not UTF-8) become ``_``.
    """
    name = "".join(char if char.isprintable() and char not in "\\:" else "_" for char in name)
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{number}-{name}"
    return free


LOG = "run.log"
REFERENCE = "reference-"
Say = Callable[[str], None]


class Recorded(NamedTuple):
    """A recorded run in a temporary folder."""

    plan: Plan
    outcome: Outcome
    log: str
    clocks: list[dict[str, int]]
    contents: Contents = Contents(Log(), ())


def record(asked: Asked, profiler: Profiler, output: str, *, reference: bool, say: Say) -> int:
    """Run the program and write the archive ``output``; return the program's exit code.

    If the archive cannot be written, the recording stays in the temporary folder, and a line names this folder. Raises
    `InputError` then, and if the program cannot be run.
    """
    environment = given_environment()
    _require_writable(output)
    try:
        folder = tempfile.mkdtemp(prefix="mio2trace-record-")
    except OSError as error:
        raise InputError(f"no place for temporary files: {error.strerror or error}; TMPDIR names another") from None
    keep = False
    try:
        ran = [_run(asked, profiler, os.path.join(folder, "run"), environment, say)]
        keep = True
        if reference and ran[0].outcome.signal is None:
            say("running once more without MIOpen's log, for reference")
            # dv/dt waits for each command, so its times are no reference
            under = profiler if profiler.of_rocm else NONE
            plain = asked._replace(logging=False, library="")
            ran.append(_run(plain, under, os.path.join(folder, "reference"), environment, say))
        runs = [one._replace(contents=look(one.log, one.plan.folder)) for one in ran]
        pack(output, *_packed(runs, environment))
        keep = False
    except InputError as error:
        if not keep:
            raise
        raise InputError(f"{error}; what was recorded is in {folder}") from None
    except BaseException:
        if keep:
            say(f"what was recorded is in {folder}")
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    for line in told(runs, output):
        say(line)
    return runs[0].outcome.code


def _require_writable(output: str) -> None:
    """Check before a run of an hour, not after it. Raises `InputError`."""
    folder = os.path.dirname(os.path.abspath(output))
    try:
        os.makedirs(folder, exist_ok=True)
        if os.path.isdir(output):
            raise InputError(f"{output}: is a folder; expected a name for the archive")
        with tempfile.NamedTemporaryFile(prefix=".mio2trace-", dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{output}: cannot write there: {error.strerror or error}") from None


def _run(asked: Asked, profiler: Profiler, folder: str, environment: Mapping[str, str], say: Say) -> Recorded:
    profile = os.path.join(folder, "profile")
    os.makedirs(profile)
    made = plan(asked, profiler, profile, environment)
    log = os.path.join(folder, LOG)
    clocks = [anchor()]
    outcome = run(made.command, made.environment, log, say, through_script=profiler.name == "rocprof")
    clocks.append(anchor())
    return Recorded(made, outcome, log, clocks)


def _packed(runs: list[Recorded], environment: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    done = runs[0]
    members: dict[str, str] = {}
    inputs: list[list[str]] = []
    beside: list[str] = []
    for number, one in enumerate(runs):
        prefix = REFERENCE if number else ""
        members[prefix + LOG] = one.log
        own = [prefix + LOG] if one.contents.log.known else []
        for part in one.contents.parts:
            name = name_for(prefix + os.path.basename(part.path), members)
            members[name] = part.path
            (beside if part.beside else own).append(name)
        inputs.append(own)
    started = done.plan
    manifest: dict[str, Any] = {
        "made_by": f"mio2trace {mio2trace.__version__} record",
        "inputs": inputs[0],
        "beside": beside,
        "reference": inputs[1] if len(inputs) > 1 else [],
        "profiler": {
            name: value for name in ("name", "version", "rocm") if (value := getattr(started.profiler, name))
        },
        "exit": {"code": done.outcome.code, "signal": done.outcome.signal},
        "seconds": round(done.outcome.seconds, 3),
        "reference_seconds": round(runs[1].outcome.seconds, 3) if len(runs) > 1 else None,
        "rank": rank_of(environment),
        "variables": variables(started.environment),
        "set_by_record": sorted(name for name in started.added if name != "LD_PRELOAD"),
        "machine": machine(environment),
        "boot": boot(),
        "clocks": {"start": done.clocks[0], "end": done.clocks[1]},
        "problems": list(problems(done.contents, done.outcome, started.profiler, started.kept)),
    }  # fmt: skip
    return manifest, members


def begun(made: Plan, detail: bool) -> Iterator[str]:
    """Yield the lines to print before the program runs."""
    log = "MIOpen log with entries and commands" + (", level 6" if detail else "")
    yield f"recording with {made.profiler}; {log}{', ROCTx ranges on' if made.profiler.of_rocm else ''}"
    for name, value in made.kept.items():
        yield f"{name}={value} is yours and stays"
    for name in made.removed:
        yield f"{name} is left out: with it the profiler gets no kernels"


def told(runs: list[Recorded], output: str) -> Iterator[str]:
    """Yield the lines to print after the program ran."""
    done = runs[0]
    yield summary(done.contents, done.outcome)
    if len(runs) > 1:
        yield f"reference: {summary(runs[1].contents, runs[1].outcome)}"
    for line in problems(done.contents, done.outcome, done.plan.profiler, done.plan.kept):
        yield f"problem: {line}"
    command = next_command(done.contents, output)
    yield f"next: {command}" if command else f"nothing to read in {output}: neither kernels nor a line that is known"


def next_command(came: Contents, output: str) -> str:
    """Return the command that a person would run next; empty if there is nothing to read."""
    name = shlex.quote(output)
    if came.kernels:
        stem = shlex.quote(os.path.splitext(output)[0] + ".html")
        return f"mio2trace report {name} -o {stem}"
    if came.log.calls:
        return f"mio2trace ops {name}"
    return f"mio2trace report {name}" if came.log.known else ""


def next_command_of_folder(folder: str) -> str:
    """Return the same as `next_command` for the files that the lines of a shell leave in a folder."""
    return f"mio2trace report {shlex.quote(folder)} -o {shlex.quote(folder)}.html"
