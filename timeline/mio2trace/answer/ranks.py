"""The answer of `mio2trace ranks` in a few lines: the last rank, the cause of its delay, the cost by message size."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from mio2trace.align import NONE
from mio2trace.answer.names import distinct
from mio2trace.answer.text import MOST_LINES, WIDTH
from mio2trace.findings.rule import ms, percent
from mio2trace.measures.statistics import fixed
from mio2trace.outgoing import count, visible
from mio2trace.ranks import EMPTY, Meeting, RankTotal, straggler

MOST_RANKS, MOST_SIZES, MOST_CAUSES = 5, 5, 2
LABEL, NAME, NUMBERS = 8, 20, (8, 7, 9, 8)
_LAST = WIDTH - LABEL - NAME - sum(NUMBERS)


def lines(met: Sequence[Meeting], of: Sequence[RankTotal], labels: Sequence[str], machines: Sequence[str]) -> list[str]:
    """Yield the lines. ``machines``: a name for the machine of each rank; empty if its profile does not record the
    machine."""
    if not of:
        return [EMPTY]
    found = [*_head(met, of, labels, machines), *_ranks(of, labels), *_sizes(met, labels)]
    by_duration = sum(one.by == "duration" for one in met)
    if by_duration:
        found += _wrapped(
            "note",
            f"{by_duration:,} of {count(len(met), 'collective')}: the clocks of the ranks are not known well enough;"
            " the shortest kernel is taken as the last rank's",
        )
    return found[:MOST_LINES]


def _head(
    met: Sequence[Meeting], of: Sequence[RankTotal], labels: Sequence[str], machines: Sequence[str]
) -> Iterator[str]:
    where = ""
    if all(machines):
        where = ", one machine" if len(set(machines)) == 1 else f", between {len(set(machines))} machines"
    latest = straggler(of)
    waited, spent = sum(one.wait_ns for one in of), sum(one.collective_ns for one in of) or 1
    if latest == NONE:
        yield "No rank arrives last more often than others."
    else:
        own = of[latest]
        others = sum(one.lead_ns for one in met if one.last == latest)
        yield from _wrapped(
            "",
            f"{labels[latest]} is last in {own.times_arrived_last} of {count(len(met), 'collective')}; "
            f"the other ranks wait {ms(others)} for it.",
        )
    yield from _wrapped(
        "",
        f"{count(len(of), 'rank')}{where}; they wait {ms(waited)}, {percent(waited / spent)} of their time in"
        f" collectives ({ms(spent)} of all ranks).",
    )
    if latest != NONE:
        yield from _causes([one for one in met if one.last == latest])


def _causes(late: Sequence[Meeting]) -> Iterator[str]:
    took: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for one in late:
        took[one.made_late_by] += one.made_late_ns
        times[one.made_late_by] += 1
    unknown = times.pop("", 0)
    del took[""]
    label = "cause"
    for name, ns in sorted(took.items(), key=lambda item: (-item[1], item[0]))[:MOST_CAUSES]:
        what = "the host launches later" if name == "the host" else f"{name} takes longer"
        yield from _wrapped(label, f"{what}: {ms(ns)} in {count(times[name], 'collective')}", most=1)
        label = " "
    if unknown:
        yield from _wrapped(label, f"not shown by the files: {count(unknown, 'collective')}", most=1)


def _ranks(of: Sequence[RankTotal], labels: Sequence[str]) -> Iterator[str]:
    """One line per rank, latest first."""
    yield _row("", "", ("wait ms", "wait %", "last", "late ms"), "  made late by")
    shown = sorted(of, key=lambda one: (-one.late_ns, one.place))
    names = [labels[one.place] for one in shown[:MOST_RANKS]]
    for at, (one, name) in enumerate(zip(shown, distinct(names, names, NAME - 1), strict=False)):
        share = fixed(100 * one.wait_ns / one.collective_ns, 1) if one.collective_ns else ""
        cells = (_ms(one.wait_ns), share, f"{one.times_arrived_last}", _ms(one.late_ns))
        yield _row("ranks" if not at else "", name, cells, f"  {one.made_late_by}")
    if len(of) > MOST_RANKS:
        yield f"{'':<{LABEL}}{count(len(of) - MOST_RANKS, 'more rank')}"


def _sizes(met: Sequence[Meeting], labels: Sequence[str]) -> Iterator[str]:
    """Sum up collectives of one kind and size, most time first; times are means per collective."""
    groups: dict[tuple[str, int | None], list[Meeting]] = defaultdict(list)
    for one in met:
        groups[one.which, one.message_bytes].append(one)
    shown = sorted(groups.items(), key=lambda item: -sum(max(one.durations_ns) for one in item[1]))
    yield _row("", "", ("ms", "calls", "GB/s bus", "wait ms"), "  last")
    for at, ((which, size), own) in enumerate(shown[:MOST_SIZES]):
        transfer = sum(one.transfer_ns for one in own) / len(own)
        wait = sum(sum(one.waits_ns) / len(one.waits_ns) for one in own) / len(own)
        buses = [one.bus for one in own if one.bus is not None]
        bus = fixed(sum(buses) / len(buses), 1) if buses else ""
        (last, times), *_ = Counter(one.last for one in own).most_common(1)
        who = "" if last == NONE else f"  {labels[last]} {times}/{len(own)}"
        name = which if size is None else f"{which} {_size(size)}"
        yield _row("sizes" if not at else "", name, (_ms(transfer), f"{len(own)}", bus, _ms(wait)), who)
    if len(shown) > MOST_SIZES:
        yield f"{'':<{LABEL}}{count(len(shown) - MOST_SIZES, 'more size')}"


def _row(label: str, name: str, cells: Sequence[str], last: str) -> str:
    numbers = "".join(f"{cell:>{width}}" for cell, width in zip(cells, NUMBERS, strict=True))
    (name,) = distinct([name], [name], NAME - 1)
    (shown,) = distinct([last], [last], _LAST)
    return visible(f"{label:<{LABEL}}{name:<{NAME}}{numbers}{shown}".rstrip())


def _ms(ns: float) -> str:
    return fixed(ns / 1e6, 3 if ns < 1e8 else 1)


def _size(size: int) -> str:
    for least, unit in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size} B"


def _wrapped(label: str, text: str, most: int = 2) -> list[str]:
    first = f"{label:<{LABEL}}" if label else ""
    indent = " " * (LABEL if label else 2)
    return textwrap.wrap(
        visible(text), WIDTH, initial_indent=first, subsequent_indent=indent, max_lines=most, placeholder=" ..."
    )
