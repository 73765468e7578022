"""The ranks of a job as a table, its collectives as another, and the sentence that says both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mio2trace.align import NONE
from mio2trace.ranks.meetings import Meeting
from mio2trace.ranks.totals import RankTotal, straggler
from mio2trace.reports.tables import Cell, Row, Table, Unit

EMPTY = "no collective kernel that all ranks ran (all-reduce, all-gather, reduce-scatter)"
_BRIEF = ("collectives", "transfer", "wait", "skew", "times_arrived_last", "late", "made_late_by")


def table(of: Sequence[RankTotal], cells: Sequence[Mapping[str, int | str]], unit: Unit) -> Table:
    """A row a rank. ``cells`` say which: ``{"rank": 0}``."""
    latest = straggler(of)
    rows: list[Row] = [
        {
            **cells[one.place],
            "collectives": one.collectives,
            unit.column("collective"): unit.of(one.collective_ns),
            unit.column("transfer"): unit.of(one.transfer_ns),
            unit.column("wait"): unit.of(one.wait_ns),
            unit.column("skew"): unit.of(one.skew_ns),
            "times_arrived_last": one.times_arrived_last,
            "straggler": "true" if one.place == latest else "false",
            unit.column("late"): unit.of(one.late_ns),
            **_cause(one, unit),
        }
        for one in of
    ]
    times = [unit.column(name) for name in ("collective", "transfer", "wait", "skew")]
    keys = tuple(dict.fromkeys(name for cell in cells for name in cell)) or ("rank",)
    last = ("times_arrived_last", "straggler", unit.column("late"), "made_late_by", unit.column("made_late"))
    columns = (*keys, "collectives", *times, *last)
    brief = (*keys, *(name if name in columns else unit.column(name) for name in _BRIEF))
    return Table(columns=columns, rows=rows, brief=brief, empty=EMPTY, keys=keys)


def each_table(meetings: Sequence[Meeting], labels: Sequence[str], unit: Unit) -> Table:
    """A row a collective, in order; ``start`` is on the clock of the job's first process."""
    columns = (
        "collective_index", "collective", "message_bytes", "iteration", "start_ns", unit.column("transfer"),
        "bus_gb_per_s", unit.column("skew"),
        "last", unit.column("lead"), "arrival_by", "made_late_by", unit.column("made_late"),
    )  # fmt: skip
    rows = []
    for one in meetings:
        row: dict[str, Cell] = {
            "collective_index": one.number,
            "collective": one.which,
            "start_ns": min(one.starts_ns),
            unit.column("transfer"): unit.of(one.transfer_ns),
            unit.column("skew"): unit.of(one.skew_ns),
            unit.column("lead"): unit.of(one.lead_ns),
            "arrival_by": one.by,
            **_cause(one, unit),
        }
        if one.message_bytes is not None:
            row["message_bytes"] = one.message_bytes
        if one.bus is not None:
            row["bus_gb_per_s"] = one.bus
        if one.iteration is not None:
            row["iteration"] = one.iteration
        if one.last != NONE:
            row["last"] = labels[one.last]
        rows.append(row)
    return Table(columns=columns, rows=rows, empty=EMPTY, keys=("collective_index", "collective"))


def _cause(one: RankTotal | Meeting, unit: Unit) -> dict[str, Cell]:
    if not one.made_late_by:
        return {}
    return {"made_late_by": one.made_late_by, unit.column("made_late"): unit.of(one.made_late_ns)}


def said(of: Sequence[RankTotal], labels: Sequence[str]) -> str:
    """One sentence: who is last, what the others wait, by what."""
    latest = straggler(of)
    if not of:
        return EMPTY
    waited = sum(one.wait_ns for one in of)
    spent = sum(one.collective_ns for one in of) or 1
    waiting = f"ranks wait {waited / 1e6:.3g} ms of {spent / 1e6:.3g} ms in {of[0].collectives} collectives"
    if latest == NONE:
        return f"{waiting}; none arrives last"
    one = of[latest]
    cause = f": {one.made_late_by} takes {one.made_late_ns / 1e6:.3g} ms longer there" if one.made_late_by else ""
    return f"{waiting}; {labels[latest]} arrives last {one.times_arrived_last} times{cause}"
