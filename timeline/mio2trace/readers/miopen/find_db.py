"""MIOpen's find-db and perf-db as text: the solvers of a problem, and their times (miopen-side-files.md 2 to 4).

    96-5-482-834-3x3x3-96-3-480-832-1-0x0x0-1x1x1-1x1x1-0-NCDHW-FP32-F=GemmFwdRest:219.499,12421693440,miopen...;...

Files are ``*.fdb.txt``, ``*.ufdb.txt``, ``*.cd.pdb.txt``. Both forms of a find-db are read: up to 2020, and since 2021.
If a key occurs twice, the last line counts. Lines that are no records, and a cut last line, are counted.
"""

from __future__ import annotations

from typing import Literal

from mio2trace.model.choices import SolverRecord, SolverTable, solver_record
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.source import Source

NAME = "MIOpen find-db or perf-db (text)"
_LONGEST = 1 << 16
_LOOKED_AT = 4


def sniff(head: bytes) -> bool:
    """Return whether the first line and most of the next ones are records; otherwise it is a log."""
    lines = [line for line in head[:_LONGEST].split(b"\n")[:_LOOKED_AT] if line.strip()]
    return bool(lines) and _is_record(lines[0]) and 2 * sum(map(_is_record, lines)) >= len(lines)


def _is_record(line: bytes) -> bool:
    if not line[:1].isdigit() or b"=" not in line[:400]:
        return False
    text = line.decode(errors="replace")
    record = solver_record(text)
    return record is not None and text.startswith(record.key)


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    records: dict[str, SolverRecord] = {}
    skipped = 0
    for number, line in enumerate(source.lines(), 1):
        record = solver_record(line[:_LONGEST].decode(errors="replace"), number)
        if record is not None:
            records.pop(record.key, None)
            records[record.key] = record
        elif line.strip():
            skipped += 1
            notes.add("line of a MIOpen database that is no record: skipped", f"{source.name}:{number}")
    if not records:
        raise InputError(f"{source.name}: no record of a problem; expected MIOpen's find-db")
    has_times = any(solver.time_ms is not None for record in records.values() for solver in record.solvers)
    kind: Literal["find-db", "perf-db"] = "find-db" if has_times else "perf-db"
    return [SolverTable(source=source.index, kind=kind, records=tuple(records.values()), skipped=skipped)]
