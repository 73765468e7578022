"""How much of a MIOpen log was decoded: its records by kind, and the decoded part."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from mio2trace.model.miopen import Command, MiopenLog
from mio2trace.ops.command import CutError, NotPlainError, parse, split
from mio2trace.ops.families import launches
from mio2trace.ops.operation import Operation
from mio2trace.reports.tables import Cell, Table, known

COLUMNS = (
    "file", "entries", "entries_decoded", "entries_cut", "entries_unknown", "commands", "commands_decoded",
    "commands_cut", "commands_without_shapes", "level_lines", "level_lines_classified", "level_lines_unknown",
    "level_lines_classified_percent", "other_records", "stray_lines", "foreign_lines", "operations", "kinds",
)  # fmt: skip

_NO_OPERATION = re.compile(
    r"miopen(?=\w*+\Z)"  # the rest is one word, so the search for these parts of it never goes on behind it
    r"(?:(?:Create|Destroy|Set|Get|Query|Compile|Init|Enable|Load|Save|Derive|Backend|Fusion)\w*"
    r"|\w*(?:WorkSpace|Workspace|Solution)\w*)"
)
"""Calls that neither compute nor search (miopen-log.md 5.7): they are known as soon as their parameters are known."""


def table(rows: Sequence[dict[str, Cell]]) -> Table:
    return Table(columns=COLUMNS, rows=rows, brief=tuple(name for name in COLUMNS if name != "kinds"))


def row(file: str, log: MiopenLog, operations: Sequence[Operation], foreign: int) -> dict[str, Cell]:
    """Count the records of each kind in a log, and the understood ones.

    An entry is decoded if it is complete, its function is known, and its problem (if the function computes) is known. A
    command is decoded if its problem is known; otherwise it is cut, or it leaves shapes to the driver's defaults. A
    level line is classified if its meaning is known. ``entries_cut`` begin or end outside the log, or stop in the
    middle. ``foreign_lines`` belong to no known program. ``kinds`` counts every kind of record.
    """
    counts = Counter(dict(log.counts))
    entries = log.count("entry ")
    cut = counts["cut entry"] + counts["entry "]
    unknown = sum(number for kind, number in log.counts if kind.startswith("entry ") and not _known(kind[6:]))
    unknown += sum(operation.unread for operation in operations)
    commands = [record for record in log.records if isinstance(record, Command)]
    unread = Counter((one.text, one.tag) for one in commands if parse(one.text, one.tag) is None)
    stopped = sum(number for (text, tag), number in unread.items() if _stops(text, tag))
    levels, other = log.count("level "), counts["level other"]
    return known(
        {
            "file": file,
            "entries": entries,
            "entries_decoded": max(entries - cut - unknown, 0),
            "entries_cut": cut,
            "entries_unknown": unknown,
            "commands": len(commands),
            "commands_decoded": len(commands) - unread.total(),
            "commands_cut": stopped,
            "commands_without_shapes": unread.total() - stopped,
            "level_lines": levels,
            "level_lines_classified": levels - other,
            "level_lines_unknown": other,
            "other_records": log.count("line "),
            "stray_lines": counts["stray"] + counts["brace alone"],
            "foreign_lines": foreign,
            "operations": len(operations),
            "kinds": dict(log.counts),
            "level_lines_classified_percent": round(100 * (levels - other) / levels, 2) if levels else None,
        }
    )


def _known(api: str) -> bool:
    """Return whether the function is known. Internal entries (miopen-log.md 3.4) have no ``miopen`` name; an entry
    without any name is cut."""
    return not api.startswith("miopen") or launches(api) or _NO_OPERATION.fullmatch(api) is not None


def _stops(text: str, tag: str) -> bool:
    """Return whether a command's line ends too early. In a complete line every flag has a value, and the lines of conv
    and pool end with ``-t 1`` in all versions of the library."""
    try:
        word, flags = split(text)
    except NotPlainError as reason:
        return isinstance(reason, CutError)
    return not flags or bool(tag and word.startswith(("conv", "pool")) and "t" not in flags)
