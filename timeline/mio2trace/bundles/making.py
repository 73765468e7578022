"""The archive: each input is read once; the members are made from its records; a manifest describes all of them."""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from typing import Any, NamedTuple

import msgspec
import orjson

import mio2trace
from mio2trace.analysis import Analysis, AnalysisOptions, analyse
from mio2trace.answer import report_of
from mio2trace.answer.machine import versions
from mio2trace.answer.markdown import comment
from mio2trace.bundles.scrub import log_lines, scrubbed
from mio2trace.conversion import convert
from mio2trace.files import Input
from mio2trace.kernels.names import kernel_name
from mio2trace.model.miopen import Entry, LoggedCall
from mio2trace.model.profile import OpenCl, Profile, Program
from mio2trace.model.timer_marks import TimerMarks
from mio2trace.notes import InputError, Notes
from mio2trace.privacy.fields import never_shown, records, shown
from mio2trace.privacy.pseudonyms import Pseudonyms, Scrubber
from mio2trace.readers import run_log
from mio2trace.readers.base import Record
from mio2trace.readers.bundled import ROWS, SCHEMA
from mio2trace.recording.machine import variables
from mio2trace.recording.packing import pack
from mio2trace.reports.driver import lines as driver_lines
from mio2trace.source import Source
from mio2trace.source.archive import MANIFEST, is_archive, unpacked

TRACE = "trace.pftrace.gz"
TOLD = ("profiler", "exit", "seconds", "rank", "variables", "set_by_record", "machine", "boot", "clocks")
"""The keys that the manifest of a recorded run keeps."""


class Made(NamedTuple):
    """The content of an archive: its members, notes from reading, the reason if it has no trace, and the machine and
    versions that the files state."""

    members: tuple[str, ...]
    notes: Notes
    no_trace: str
    machine: Mapping[str, Sequence[str]]


def make(files: Sequence[str], output: str, options: AnalysisOptions, *, raw: bool = False) -> Made:
    """Write the bundle of ``files`` to ``output``. ``raw``: also put in the unchanged files, which may hold anything.

    Raises `InputError` if a file is unusable or the archive cannot be written.
    """
    notes = Notes()
    with tempfile.TemporaryDirectory(prefix="mio2trace-") as folder:
        laid = _Laid(files, folder, options.max_input)
        analysis = analyse(laid.files, msgspec.structs.replace(options, functions=False), notes)
        scrubber = _scrubber(analysis)
        members = _members(analysis, scrubber, folder, notes)
        no_trace = _draw(laid.files, os.path.join(folder, TRACE))
        if not no_trace:
            members.append(Member(TRACE, os.path.join(folder, TRACE)))
        for name, text in texts(analysis).items():
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8", errors="replace") as out:
                out.write(text)
            members.append(Member(name, path))
        if raw:
            members += [Member(f"raw/{name}", path) for name, path in laid.originals.items()]
        manifest = _manifest(analysis, scrubber, members, laid.told, no_trace)
        pack(output, {**manifest, "raw": raw}, {member.name: member.path for member in members})
    return Made(tuple(member.name for member in members), notes, no_trace, manifest["machine"])


class _Laid:
    """The files, with what the archive of a recorded run states besides its inputs."""

    def __init__(self, files: Sequence[str], folder: str, max_input: int | None) -> None:
        self.files: list[str] = []
        self.told: dict[str, Any] = {}
        self.originals: dict[str, str] = {}
        for number, file in enumerate(files):
            if file == "-":
                file = os.path.join(folder, "standard input")
                with open(file, "wb") as out:
                    shutil.copyfileobj(sys.stdin.buffer, out)
            if os.path.isfile(file):
                self.originals[f"{number}-{os.path.basename(file)}"] = file
            if os.path.isdir(file) or not is_archive(file):
                self._refuse_archives_in(file)
                self.files.append(file)
                continue
            place = os.path.join(folder, f"archive-{number}")
            with unpacked(file, max_input) as made:
                os.rename(made.folder, place)
            self.files.append(place)
            if made.manifest is None:
                continue
            with open(os.path.join(place, MANIFEST), "wb") as out:
                out.write(orjson.dumps(made.manifest.told))
            self.told = self.told or {name: made.manifest.told[name] for name in TOLD if name in made.manifest.told}

    def _refuse_archives_in(self, path: str) -> None:
        inside = [os.path.join(path, name) for name in sorted(os.listdir(path))] if os.path.isdir(path) else []
        found = next(filter(is_archive, inside), None)
        if found is not None:
            name = os.path.basename(found)
            raise InputError(f"{os.path.basename(path)}: holds the archive {name}; expected the archive's own path")


def _members(analysis: Analysis, scrubber: Scrubber, folder: str, notes: Notes) -> list[Member]:
    """Return the members that are made from inputs; if there are several runs, each has its own folder.

    Raises `InputError` if no input holds a record: no command would accept the archive.
    """
    if not any(file.records for file in analysis.inputs):
        raise InputError(f"{analysis.names}: no record in it; expected kernels, calls or lines of a log")
    members: list[Member] = []
    taken: list[str] = []
    inputs = [(number, file) for number, run in enumerate(analysis.runs, 1) for file in run.inputs]
    for number, file in inputs:
        if not file.records:
            notes.add("file without any record left out of the bundle", file.name)
            continue
        within = f"run{number}/" if len(analysis.runs) > 1 else ""
        members += of_input(file, scrubber, folder, taken, within)
    if len(analysis.runs) == 1:  # a bundle could not record to which of several runs it belongs
        for file in analysis.references:
            members += of_input(file, scrubber, folder, taken, "reference-")
    return members


def _scrubber(analysis: Analysis) -> Scrubber:
    scrubber = Scrubber(Pseudonyms())
    for file in (*analysis.inputs, *analysis.references):
        with closing(Source(file.path, 0, Notes())) as source:
            scrubber.learn(source.head)
    return scrubber


def _draw(files: Sequence[str], path: str) -> str:
    """Write the trace and return why there is none, or nothing. If no evidence relates the clocks of processes, each
    process begins at its own start."""
    said = ""
    for several, from_start in ((False, False), (True, False), (True, True)):
        try:
            convert(*files, output=path, several=several, from_start=from_start)
            return ""
        except InputError as error:
            said = said or str(error)
    return said


def _manifest(
    analysis: Analysis, scrubber: Scrubber, members: Sequence[Member], told: Mapping[str, Any], no_trace: str
) -> dict[str, Any]:
    """Return the manifest: the content of the bundle, and the statements of a recorded run about itself, cleaned."""
    recorded = _clean(dict(told), scrubber)
    if isinstance(told.get("variables"), dict):
        recorded["variables"] = variables({str(name): str(value) for name, value in told["variables"].items()})
    machine = versions_of(analysis)
    inputs = [(member.name, member.of) for member in members if member.of is not None]
    return {
        "made_by": f"mio2trace {mio2trace.__version__} bundle",
        "inputs": [name for name, of in inputs if not of.is_reference],
        "reference": [name for name, of in inputs if of.is_reference],
        "files": [{"member": name, "format": of.format, "size": of.size, "sha256": of.sha256} for name, of in inputs],
        "machine": {name: [scrubber.text(value) for value in values] for name, values in machine.items()},
        "recorded": recorded,
        "notes": {scrubber.text(note.kind): note.count for note in analysis.notes},
        **({"no_trace": scrubber.text(no_trace)} if no_trace else {}),
    }


def versions_of(analysis: Analysis) -> dict[str, list[str]]:
    """Return the facts that a maintainer asks for first: GPUs, architectures, versions. A list is empty if no file
    states it."""
    profiles = [one for run in analysis.runs for one in run.profiles]
    libraries = [log for run in analysis.runs for log in run.libraries]
    named = [log.device_name for run in analysis.runs for log in run.logs if log.device_name]
    return versions(profiles, libraries, named)


def _clean(value: Any, scrubber: Scrubber) -> Any:
    """Clean any value of a manifest, which may come from a stranger."""
    if isinstance(value, str):
        return scrubber.text(value)
    if isinstance(value, dict):
        return {scrubber.text(str(name)): _clean(one, scrubber) for name, one in value.items()}
    return [_clean(one, scrubber) for one in value] if isinstance(value, list) else value


# -- The members of a bundle as files in a folder: logs, records, the trace, the report, the driver's lines ------------

_RANK = re.compile(r"(?<![a-z])(?:rank|r)[ _.-]?(\d{1,9})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<!\d)\d{2,10}(?!\d)")
_LEVEL = 6


class Member(NamedTuple):
    """``name``: in the archive. ``path``: the file now. ``of``: the input that it represents, if any."""

    name: str
    path: str
    of: Input | None = None


def name_of(file: Input, stem: str, ending: str, taken: Iterable[str], folder: str = "") -> str:
    """Return ``log-rank3.gz``: of a file's name only the rank or the process number stays, which shows its process."""
    rank = _RANK.search(os.path.basename(file.name))
    number = _NUMBER.search(os.path.basename(file.name))
    told = f"-rank{int(rank[1])}" if rank else f"-{number[0]}" if number else ""
    name, count = f"{folder}{stem}{told}{ending}", 1
    while name in taken:
        count += 1
        name = f"{folder}{stem}{told}.{count}{ending}"
    return name


def of_input(file: Input, scrubber: Scrubber, folder: str, taken: list[str], within: str) -> Iterator[Member]:
    """Return the members for an input: the lines of its log, unless they hold less than its records."""
    is_log = file.format == run_log.NAME
    holds_profile = any(isinstance(record, Profile) for record in file.records)

    def written(stem: str, ending: str, lines: Iterable[bytes], of: Input | None) -> Member:
        name = name_of(file, stem, ending, taken, within)
        taken.append(name)
        path = os.path.join(folder, f"{len(taken)}")
        with gzip.GzipFile(path, "wb", _LEVEL, mtime=0) as out:
            out.writelines(lines)
        return Member(name, path, of)

    if is_log:
        with closing(Source(file.path, file.source, Notes())) as source:
            yield written("log", ".gz", log_lines(source, scrubber), None if holds_profile else file)
    if not is_log or holds_profile:
        lines = record_lines(file.format, (scrubbed(record, scrubber) for record in file.records))
        yield written("profile", ".jsonl.gz", lines, file)


def record_lines(form: str, records: Iterable[Record]) -> Iterator[bytes]:
    """Yield records as lines for `mio2trace.readers.bundled`."""
    encode = msgspec.json.Encoder().encode
    yield encode({"schema": SCHEMA, "format": form}) + b"\n"
    for record in records:
        kind = type(record)
        rows: dict[str, tuple[msgspec.Struct, ...]] = {}
        fields = _fields(record, rows)
        yield kind.__name__.encode() + b" " + encode({**fields, "source": 0}) + b"\n"
        for field, members in rows.items():
            kinds = ROWS[kind][field] if field in ROWS[kind] else next(of[field] for of in ROWS.values() if field in of)
            for one in members:
                name = f" {type(one).__name__}" if len(kinds) > 1 else ""
                if "source" in one.__struct_fields__:
                    one = msgspec.structs.replace(one, source=0)
                yield f".{field}{name} ".encode() + encode(_readable(one)) + b"\n"


def _fields(record: msgspec.Struct, rows: dict[str, tuple[msgspec.Struct, ...]]) -> dict[str, Any]:
    """Return the fields in the line of a record; ``rows`` gets the tuples whose members have lines of their own."""
    fields: dict[str, Any] = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name in ROWS.get(type(record), {}):
            rows[name] = value
        elif type(value) in ROWS:
            fields[name] = _fields(value, rows)
        else:
            fields[name] = _readable(value)
    return fields


def _readable(value: Any) -> Any:
    """Return the records with texts in place of bytes."""
    if isinstance(value, OpenCl | Entry | Program | LoggedCall):
        return {name: _readable(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, tuple) and value and isinstance(value[0], Program):
        return [_readable(one) for one in value]
    if isinstance(value, TimerMarks):
        return list(value)
    return value


def texts(analysis: Analysis) -> Mapping[str, str]:
    """Return ``report.md`` and ``driver.txt`` (its lines slowest first); an empty text is left out."""
    made = report_of(analysis, analysis.complete or analysis.runs, None)
    logs = [of_log for run in analysis.runs for of_log in run.operations_by_log]
    commands, _ = driver_lines((one for of_log in logs for one in of_log), kernel_ns=_times(analysis, len(logs)))
    found = {
        "report.md": comment(made) if made.sections else "",
        "driver.txt": "".join(f"{line}\n" for line in commands),
    }
    return {name: text for name, text in found.items() if text}


def _times(analysis: Analysis, logs: int) -> Mapping[int, float] | None:
    """Return the time of each operation per iteration, if there is one profile and one log."""
    if len(analysis.runs) != 1 or logs != 1 or analysis.runs[0].alignment is None:
        return None
    return analysis.runs[0].measures[0].steady.of_operations()


# ---------------------------------------------------------------------------------------------------------------------
# The kept words of a bundle, for a person who reads them before giving it away: every word except numbers and names of
# ROCm, MIOpen, OpenCL or this program.

_WORD = re.compile(r"(?:(?<![\\\w])|(?<=\\n)|(?<=\\t))[A-Za-z_][\w@.+/-]{2,200}")
_KNOWN = re.compile(
    r"miopen\w+|MIOpen\w*|MIOPEN\w*|MLO_\w+|(?:__)?hip[A-Z]\w+|hsa_\w+|HSA_\w+|HIP_\w+|ROCR_\w+|cl[A-Z]\w+|CL_\w+"
    r"|rocprof\w*|roctx\w*|nccl\w*|rccl\w*|cuda[A-Z]\w+|aten::\w+|gfx\w+|(?:pid|rank|handle|host|machine|queue)\d*"
    r"|workSpace\w*|[a-z_]+\.cpp|x\d[\dx]*|[\dx]+|e[+-]?\d+|0x[0-9a-f]+|[a-f0-9]{64}"
)
_OURS = frozenset(
    re.findall(
        r"\w+",
        "mio2trace path host user url pointer environment secret device telephone info debug error warning "
        "true false null const void size_t float double half int char bool enum struct alpha beta algo bias "
        "handle stream command layer forward backward iteration average setting initial performing benchmark "
        "kernel copy conv conv2d pool relu norm name size time type data input output the and for not with "
        "from dim bottom top need set does caffe net archive schema format run log programs buffers blocks "
        "monotonic realtime boottime width code made_by bundle gpu cpu opencl hip use using total memory "
        "required testing begins ends done",
    )
)


class Kept(NamedTuple):
    """A word, its number of occurrences, and the members that contain it."""

    word: str
    times: int
    members: tuple[str, ...]


def kept(path: str) -> list[Kept]:
    """Return the words of an archive's members, the most frequent first."""
    counts: Counter[str] = Counter()
    members: dict[str, set[str]] = {}
    for name, text in _texts(path):
        for word, count in Counter(_WORD.findall(text)).items():
            if not _is_known(word):
                counts[word] += count
                members.setdefault(word, set()).add(name)
    found = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Kept(word, count, tuple(sorted(members[word]))) for word, count in found]


def _texts(path: str) -> Iterator[tuple[str, str]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.filename.endswith((".gz", MANIFEST)) or info.filename.startswith(("raw/", "trace.")):
                continue  # report, commands and trace are made from the same records
            with closing(Source("-", 0, Notes(), stdin=io.BytesIO(archive.read(info)))) as source:
                for block in source.blocks():
                    yield info.filename, block.decode("utf-8", "replace")


@cache
def _vocabulary() -> frozenset[str]:
    """Return the names of fields and classes in records."""
    kinds = {*ROWS, *(kind for kind in records() if shown(kind) or never_shown(kind))}
    words = {kind.__name__ for kind in kinds} | {name for kind in kinds for name in kind.__struct_fields__}
    return frozenset(words | _OURS)


@cache
def _is_known(word: str) -> bool:
    bare = word.strip("._-/\\@+")
    return (
        len(bare) < 3
        or "Desc" in bare
        or bare.endswith(("Size", "SizeInBytes"))
        or bare.lower() in _OURS
        or bare in _vocabulary()
        or _KNOWN.fullmatch(bare) is not None
        or kernel_name(bare) is not None
    )
