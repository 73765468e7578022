"""The first lines of a comparison: the verdict, and the parts that changed, grouped by cause.

Every form (text, Markdown, page, JSON) shows these lines. Verdict and interval follow the rule of
`mio2trace.comparing.statistics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mio2trace.answer.names import short_kernel
from mio2trace.comparing.record import KINDS
from mio2trace.comparing.statistics import FEWEST, FLOOR, floor_of
from mio2trace.findings.rule import ms
from mio2trace.outgoing import count

if TYPE_CHECKING:
    from mio2trace.comparing.comparison import Compared, Comparison, Side

_PERCENT = (0.5, 2.0)
"""Ratios between these two are printed in percent, others as a factor."""
_DECIDED = ("slower", "faster")
_GROUPED = ("slower", "faster", "maybe slower", "maybe faster", "~")


class Group(NamedTuple):
    """Parts that changed in the same way for the same reason. ``row``: their sum, or the part itself if it is alone."""

    row: Compared
    members: tuple[Compared, ...]


def change(ratio: float) -> str:
    """Format a ratio: ``+14.9 %``, or ``2.15 x`` if a side takes at least twice as long."""
    least, most = _PERCENT
    return f"{100 * (ratio - 1):+.1f} %" if least < ratio < most else f"{ratio:.2f} x"


def interval(row: Compared) -> str:
    """Format the interval in the unit of `change`: ``12 to 17 %``; empty without an interval."""
    if row.ratio is None or row.low is None or row.high is None:
        return ""
    least, most = _PERCENT
    if not least < row.ratio < most:
        return f"{row.low:.2f} to {row.high:.2f} x"
    low, high = 100 * (row.low - 1), 100 * (row.high - 1)
    digits = 0 if high - low >= 1 else 1
    return f"{low + 0:.{digits}f} to {high + 0:.{digits}f} %"


def decision(row: Compared) -> str:
    """Return the meaning of change and interval: ``slower``, or the reason why nothing is decided."""
    fewest = min(row.runs)
    runs = count(fewest, "run")
    if row.word in ("slower", "faster") or row.ratio is None:
        return row.word
    if row.ratio == 1 or _is_unchanged(row):
        return "no change is shown"
    if row.word.startswith("maybe") and fewest < FEWEST:
        return f"{runs} per side cannot decide, {row.runs_needed} can"
    if row.low is None or row.high is None:
        return "one iteration shows no scatter"
    if row.low <= 1 <= row.high:
        return "the interval includes no change"
    if row.word.startswith("maybe") or 1 / (1 + FLOOR) <= row.ratio <= 1 + FLOOR:
        return f"below the {100 * floor_of(fewest):.0f} % that {runs if fewest >= FEWEST else 'more runs'} can decide"
    return "the runs of both sides overlap"


def _is_unchanged(row: Compared) -> bool:
    """Return whether the interval contains "no change" and no change that is large enough to report."""
    return row.low is not None and row.high is not None and 1 / (1 + FLOOR) <= row.low <= 1 <= row.high <= 1 + FLOOR


def label(row: Compared) -> str:
    """Return the verdict in one or two words."""
    if row.word in ("slower", "faster"):
        return row.word.upper()
    return "NO CHANGE SHOWN" if row.ratio == 1 or _is_unchanged(row) else "NOT DECIDED"


def headline(comparison: Comparison) -> str:
    """``SLOWER: +14.9 % (95 %: 12 to 17 %); 21.60 -> 24.81 ms of kernels per iteration``"""
    row = comparison.iteration
    if row.ratio is None or row.a_ns is None or row.b_ns is None:
        return "NOT DECIDED: one side has no time per iteration"
    of = "kernels" if comparison.a.runs[0].told_by == "kernels" else "printed layer times"
    within = f" (95 %: {interval(row)})" if interval(row) else ""
    why = f", {decision(row)}" if label(row) == "NOT DECIDED" else ""
    return f"{label(row)}: {change(row.ratio)}{within}{why}; {ms(row.a_ns)} -> {ms(row.b_ns)} of {of} per iteration"


def seen(side: Side) -> str:
    """Return what was compared of a side: ``3 runs of 9 iterations, 4 ranks each``."""
    iterations = [run.iterations for run in side.runs]
    least, most = min(iterations), max(iterations)
    each = count(least, "iteration") if least == most else f"{least} to {most} iterations"
    ranks = {len(run.ranks) or 1 for run in side.runs}
    processes = count(max(ranks), "rank") if len(ranks) == 1 else f"{min(ranks)} to {max(ranks)} ranks"
    return f"{count(len(side.runs), 'run')} of {each}, {processes}{' each' if len(side.runs) > 1 else ''}"


def has_changed(row: Compared) -> bool:
    """Return whether a row is shown by default: its time or its cause changed, it is on one side only, or the
    difference is worth knowing although nothing is decided."""
    return row.word != "~" or bool(row.cause) or is_large(row)


def is_large(row: Compared) -> bool:
    """Whether the difference is at least `FLOOR` of the iteration."""
    if row.ratio is None or row.kind not in KINDS:
        return False
    nearest = min(row.ratio, 1 / row.ratio) if row.ratio else 0.0  # the part does not exist any more
    return row.share * (1 - nearest) >= FLOOR


def groups(rows: Sequence[Compared]) -> tuple[Group, ...]:
    """Return the rows that changed. Rows with equal verdict and cause are grouped; decided ones come first, then by
    time."""
    by_cause: dict[tuple[str, str, str], list[Compared]] = {}
    for row in rows:
        if has_changed(row):
            cause = common_cause(row) if row.word in _GROUPED else ""
            by_cause.setdefault((row.kind, row.word, cause or f"={row.name}"), []).append(row)
    made = [_group(key[2], members) for key, members in by_cause.items()]
    return tuple(sorted(made, key=lambda group: (group.row.word not in _DECIDED, -abs(group.row.more_ns))))


def common_cause(row: Compared) -> str:
    """Return the cause that groups a row: its stated cause, else the main kernel if it is the same on both sides."""
    if row.cause:
        return row.cause
    if row.kind != "problem" or row.pair is None or row.pair.a is None or row.pair.b is None:
        return ""
    longest = [
        max((one for one in side.part.kernels if one.role in ("main", "")), key=lambda one: one.ns, default=None)
        for side in (row.pair.a, row.pair.b)
    ]
    a, b = longest
    return f"all {short_kernel(a.name)}" if a is not None and b is not None and a.name == b.name else ""


def _group(cause: str, members: Sequence[Compared]) -> Group:
    first = members[0]
    if len(members) == 1:
        return Group(first, (first,))
    total = summed(members)._replace(
        name=f"{count(len(members), first.kind)}, {cause}", low=None, high=None,
        share=sum(row.share for row in members), command="", pair=None, how="",
        runs_needed=max(row.runs_needed for row in members),
    )  # fmt: skip
    return Group(total, tuple(members))


def summed(rows: Sequence[Compared]) -> Compared:
    """Return the first row with the times of all rows."""
    a_ns, b_ns = (sum(getattr(row, side) or 0 for row in rows) for side in ("a_ns", "b_ns"))
    return rows[0]._replace(a_ns=a_ns, b_ns=b_ns, ratio=b_ns / a_ns if a_ns else None)


def tally(comparison: Comparison) -> Iterator[str]:
    """Yield the number of parts that changed, that are not decided, and that were left out."""
    rows = comparison.rows
    judged = [row for row in rows if row.word not in ("only in A", "only in B", "other size")]
    slower, faster = (sum(row.word == word for row in judged) for word in _DECIDED)
    maybe = [row for row in judged if row.runs_needed]
    same = sum(not has_changed(row) for row in rows)
    needed = f" ({count(max(row.runs_needed for row in maybe), 'run')} per side can)" if maybe else ""
    yield f"{count(len(judged), 'part')}: {slower} slower, {faster} faster, {len(maybe)} not decided{needed}"
    if len(rows) > len(judged):
        yield f"{len(rows) - len(judged)} only on one side, or of another size"
    yield f"{same} unchanged (--all)"
