"""The contents of a recorded run: counts, and missing parts with their known causes."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from mio2trace.model.profile import Profile
from mio2trace.notes import InputError, Notes
from mio2trace.outgoing import count
from mio2trace.readers import PROFILES
from mio2trace.readers.base import Reader, ReadOptions
from mio2trace.recording.plan import Profiler
from mio2trace.recording.running import Outcome
from mio2trace.source import Source

_PREFIX = re.compile(rb"(?:(?:^|\s)(\d{1,10}) )?MIOpen(?:\((?:HIP|OpenCL)\))?[^:]{0,60}(?::\d\d){0,2}[^:]{0,9}: *$")
_CAFFE = re.compile(rb"^[IWEF]\d{4,8} [^\n]{10,40} (?:caffe|net|solver|layer_factory)\.cpp:\d+\]")
_DVDT = re.compile(rb'"call"\s*:\s*"$|^\[dv/dt\] $')
_BEGINS = b"[dv/dt] <<"
_BLOCK = 4 << 20
_LONGEST_LINE = 1 << 20
_LONGEST = 400
"""The most bytes of a line before the text that is searched for."""


class Log(NamedTuple):
    """Counts in a log. ``kernels``: of dv/dt profiles inside it. ``blocks``: the number of such profiles with kernels.
    ``known``: whether any line is of a kind that a reader knows."""

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
    threads: set[int] = set()
    calls = commands = kernels = blocks = 0
    known = begun = False
    for text in _pieces(path):
        if b"miopen" in text or b"MIOpen" in text:
            for before in _before(text, b"miopenStatus_t miopen"):
                match = _PREFIX.search(before)
                calls += match is not None or not before
                if match is not None and match[1]:
                    threads.add(int(match[1]))
            commands += sum(1 for before in _before(text, b"Command [") if _PREFIX.search(before))
            known = known or b"MIOpen(" in text or b"MIOpen: " in text
        kernels += sum(1 for before in _before(text, b"clEnqueueNDRangeKernel") if _DVDT.search(before))
        for number, part in enumerate(text.split(_BEGINS)):
            begun = begun or number > 0
            if begun and b"clEnqueueNDRangeKernel" in part:
                blocks += 1
                begun = False
        known = known or any(_CAFFE.match(before + b".cpp:1]") for before in _before(text, b".cpp:"))
    return Log(
        size=os.path.getsize(path),
        calls=calls or commands,
        threads=frozenset(threads),
        kernels=kernels,
        known=known or bool(calls or kernels),
        blocks=blocks,
    )


def _pieces(path: str) -> Iterator[bytes]:
    """Yield whole lines, some megabytes at a time: a log may have gigabytes."""
    rest = b""
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            text = rest + block
            cut = text.rfind(b"\n", max(0, len(text) - _LONGEST_LINE)) + 1 or len(text)
            yield text[:cut]
            rest = text[cut:]
    yield rest


def _before(text: bytes, word: bytes) -> Iterator[bytes]:
    """Yield the text before each ``word`` in its line, without splitting the text into lines."""
    at = text.find(word)
    while at >= 0:
        begin = text.rfind(b"\n", max(0, at - _LONGEST), at) + 1
        yield text[begin or max(0, at - _LONGEST) : at]
        at = text.find(word, at + len(word))


def _parts(folder: str) -> Iterator[Part]:
    """Return the profiles: of several forms of one rocprof run only the fullest. Other files are read together with a
    profile."""
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
    """Return the contents of a profile, and the files that were read with it. A profile that cannot be read counts as
    empty."""
    with contextlib.closing(Source(path, 0, Notes())) as source:
        try:
            records = reader.read(source, ReadOptions(), Notes())
        except InputError:
            records = []
        together = {other.path for other in source.companions}
    profiles = [record for record in records if isinstance(record, Profile)]
    part = Part(
        path=path,
        kernels=sum(one.kind == "kernel" for profile in profiles for one in profile.activities),
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
    text = f"{outcome} after {outcome.seconds:.3g} s; log {_size(log.size)}"
    text += f" ({', '.join(inside)})" if inside else ""
    if contents.parts or log.kernels:
        text += f", profile {count(contents.kernels, 'kernel')}, {count(contents.processes, 'process')}"
    return text


def _size(size: int) -> str:
    return f"{size / 1e6:.3g} MB" if size >= 1_000_000 else f"{size / 1000:.3g} kB"


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
