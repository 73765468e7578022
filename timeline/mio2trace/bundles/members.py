"""What lies in a bundle, as files in a folder: logs, records, the trace, the report, the driver's lines."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from mio2trace.analysis import Analysis
from mio2trace.answer import report_of
from mio2trace.answer.markdown import comment
from mio2trace.bundles.scrub import log_lines, scrubbed
from mio2trace.files import Input
from mio2trace.model.miopen import Entry, LoggedCall
from mio2trace.model.profile import OpenCl, Profile, Program
from mio2trace.model.timer_marks import TimerMarks
from mio2trace.notes import Notes
from mio2trace.privacy.pseudonyms import Scrubber
from mio2trace.readers import run_log
from mio2trace.readers.base import Record
from mio2trace.readers.bundled import ROWS, SCHEMA
from mio2trace.reports.driver import lines as driver_lines
from mio2trace.source import Source

_RANK = re.compile(r"(?<![a-z])(?:rank|r)[ _.-]?(\d{1,9})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<!\d)\d{2,10}(?!\d)")
_LEVEL = 6


class Member(NamedTuple):
    """``name``: in the archive; ``path``: where it lies now; ``of``: the input that it stands for, if any."""

    name: str
    path: str
    of: Input | None = None


def name_of(file: Input, stem: str, ending: str, taken: Iterable[str], folder: str = "") -> str:
    """``log-rank3.gz``: of a file's name only the rank or the number of its process stays, which tells whose it is."""
    rank = _RANK.search(os.path.basename(file.name))
    number = _NUMBER.search(os.path.basename(file.name))
    told = f"-rank{int(rank[1])}" if rank else f"-{number[0]}" if number else ""
    name, count = f"{folder}{stem}{told}{ending}", 1
    while name in taken:
        count += 1
        name = f"{folder}{stem}{told}.{count}{ending}"
    return name


def of_input(file: Input, scrubber: Scrubber, folder: str, taken: list[str], within: str) -> Iterator[Member]:
    """What stands for an input: its log as lines, unless they tell less than its records."""
    is_log = file.format == run_log.NAME
    holds_profile = any(isinstance(record, Profile) for record in file.records)
    if is_log:
        name = name_of(file, "log", ".gz", taken, within)
        taken.append(name)
        path = os.path.join(folder, f"{len(taken)}")
        notes = Notes()
        source = Source(file.path, file.source, notes)
        try:
            with gzip.GzipFile(path, "wb", _LEVEL, mtime=0) as out:
                for line in log_lines(source, scrubber):
                    out.write(line)
        finally:
            source.close()
        yield Member(name, path, None if holds_profile else file)
    if not is_log or holds_profile:
        name = name_of(file, "profile", ".jsonl.gz", taken, within)
        taken.append(name)
        path = os.path.join(folder, f"{len(taken)}")
        with gzip.GzipFile(path, "wb", _LEVEL, mtime=0) as out:
            for line in record_lines(file.format, (scrubbed(record, scrubber) for record in file.records)):
                out.write(line)
        yield Member(name, path, file)


def record_lines(form: str, records: Iterable[Record]) -> Iterator[bytes]:
    """Records as `mio2trace.readers.bundled` reads them."""
    encode = msgspec.json.Encoder().encode
    yield encode({"schema": SCHEMA, "format": form}) + b"\n"
    for record in records:
        kind = type(record)
        rows: dict[str, tuple[msgspec.Struct, ...]] = {}
        fields = _fields(record, rows)
        yield kind.__name__.encode() + b" " + encode({**fields, "source": 0}) + b"\n"
        for field, members in rows.items():
            several = len(_kinds(kind, field)) > 1
            for one in members:
                name = f" {type(one).__name__}" if several else ""
                if "source" in one.__struct_fields__:
                    one = msgspec.structs.replace(one, source=0)
                yield f".{field}{name} ".encode() + encode(_readable(one)) + b"\n"


def _kinds(kind: type[msgspec.Struct], field: str) -> tuple[type[msgspec.Struct], ...]:
    return ROWS[kind][field] if field in ROWS[kind] else next(of[field] for of in ROWS.values() if field in of)


def _fields(record: msgspec.Struct, rows: dict[str, tuple[msgspec.Struct, ...]]) -> dict[str, Any]:
    """What stands in the line of a record; ``rows`` gains the tuples whose members have their own."""
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
    """The records that hold bytes with text in their place."""
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
    """``report.md`` and ``driver.txt``, its lines slowest first; what is empty is left out."""
    made = report_of(analysis, analysis.complete or analysis.runs, None)
    logs = [of_log for run in analysis.runs for of_log in run.operations_by_log]
    commands, _ = driver_lines((one for of_log in logs for one in of_log), kernel_ns=_times(analysis, len(logs)))
    found = {
        "report.md": comment(made) if made.sections else "",
        "driver.txt": "".join(f"{line}\n" for line in commands),
    }
    return {name: text for name, text in found.items() if text}


def _times(analysis: Analysis, logs: int) -> Mapping[int, float] | None:
    """What each operation takes per iteration, if one profile and one log tell."""
    if len(analysis.runs) != 1 or logs != 1 or analysis.runs[0].alignment is None:
        return None
    return analysis.runs[0].measures[0].steady.of_operations()
