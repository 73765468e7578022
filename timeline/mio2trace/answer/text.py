"""The answer block: how the time of a run was spent, in at most `MOST_LINES` lines of `WIDTH` columns. The answer of
`mio2trace ranks` has as many lines: the last rank, the cause of its delay, the cost by message size.

Lines are plain text; the command line colours those that begin with a severity.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from mio2trace.align import NONE
from mio2trace.answer.content import (
    ListRow,
    Report,
    Rest,
    Section,
    distinct,
    shown_names,
)
from mio2trace.findings import Finding
from mio2trace.findings.rule import ms, percent
from mio2trace.kernels.purposes import PURPOSES
from mio2trace.measures.statistics import fixed
from mio2trace.outgoing import count, shortened, visible, without_middle
from mio2trace.patterns import late

if TYPE_CHECKING:
    from mio2trace.ranks import Meeting, RankTotal

WIDTH = 78
MOST_LINES = 20
FULL = 1
"""The number of sections (processes, runs) that are shown in full; of each other section only the first line is shown.
"""
SHOWN = 3
MOSTLY = 0.5
"""If more of the kernel time is in no operation, the names of kernels say what they compute."""
LEAST_FOR_FINDING = 4
"""Lines reserved for the worst finding and its advice; lists become shorter to make room."""
SENTENCE, LONGEST_SENTENCE = 2, 3
"""The least and the most lines of a finding's number and of its advice."""
LEAST_NAME = 16
"""The characters that stay of a long name in a sentence."""
_CLAUSE = late(r"(?<=[.;]) (?=[\w`(])")
"""The end of a sentence, or of a part of one."""
LABEL = 12
TIME, SHARE = 11, 9
NAME = WIDTH - LABEL - TIME - SHARE
BAR = 16
TOGETHER = 1.5
"""Sums are listed instead of single rows if the first sum takes this many times as long as the first single row. Sums
are problems (instead of operations in layers) and classes of layers (instead of layers). Rows that begin both lists,
such as a class of one huge layer, do not count."""
LEAST_REST = 0.2
"""Time in no layer, or in no operation, replaces the third row if it has at least this share of the kernel time."""


def lines(report: Report) -> Iterator[str]:
    """Return the block of the first section and the first line of others."""
    for number, section in enumerate(report.sections):
        if number < FULL:
            yield from block(section, report.several)
        else:
            lacks = section.completeness is not None and not section.completeness.complete
            yield from wrapped("", f"{section.name}{' (PROFILE INCOMPLETE)' * lacks}: {section.verdict}")
    if report.left_out:
        yield f"and {report.left_out} more"


def block(section: Section, several: bool = False) -> list[str]:
    """The lines of one section."""
    found = [*_head(section, several), *_spent(section)]
    real = [one for one in section.findings if one.severity != "info"]
    needs = (
        max(LEAST_FOR_FINDING, len(_lines_of(real[0], LONGEST_SENTENCE)) + (len(section.findings) > 1)) if real else 1
    )
    rows = SHOWN
    while rows > 1 and MOST_LINES - len(found) - len([*_lists(section, rows)]) < needs:
        rows -= 1
    found += _lists(section, rows)
    found += _beside(section, MOST_LINES - len(found) - needs)
    return found + _findings(section.findings, MOST_LINES - len(found))


# -- the heading


def _head(section: Section, several: bool) -> Iterator[str]:
    machine = visible(" · ".join(filter(None, (section.name if several else "", section.machine))))
    if section.completeness is None:
        if machine:
            yield machine[:WIDTH]
    elif section.completeness.complete or len(machine) + len(section.complete) + 2 <= WIDTH:
        yield _ends(machine, section.complete)
    else:
        if machine:
            yield machine[:WIDTH]
        yield from wrapped("", section.complete, most=2)
    yield from wrapped("", section.verdict, most=3)


def _ends(left: str, right: str) -> str:
    """Put two texts at the two ends of a line; the right one is never cut, and begins the line if it is alone."""
    if not left:
        return right
    room = WIDTH - len(right) - 2
    return f"{left if len(left) <= room else left[: room - 3] + '...':<{room}}  {right}"


def wrapped(label: str, text: str, *, most: int = 2, at: int = LABEL) -> Iterator[str]:
    """Return a label and, in column ``at``, a text of at most ``most`` lines. Without a label the text begins the
    line."""
    indent = " " * (at if label else 2)
    first = f"{label:<{at}}" if label else ""
    yield from textwrap.wrap(
        visible(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        max_lines=most,
        placeholder=" ...",
        break_on_hyphens=False,
    )


# -- the step and its parts --------------------------------------------------------------------------------------------


def _spent(section: Section) -> Iterator[str]:
    """A line for each part of the step that is not 0, with a bar; their percentages add up to 100."""
    for one in section.spent:
        bar = "█" * round(BAR * one.share) or "▏" * (one.ns > 0)
        line = f"  {one.label:<{LABEL + 1}}{ms(one.ns):>{TIME}}{percent(one.share):>{SHARE + 3}}  {bar:<{BAR}}"
        room = WIDTH - len(line) - 2
        hint = one.hint if len(one.hint) <= room else one.hint.partition(" (")[0]
        yield f"{line}  {shortened(hint, room)}".rstrip()


# -- layers, operations, kernels ---------------------------------------------------------------------------------------


def _lists(section: Section, most: int) -> Iterator[str]:
    layers: Sequence[ListRow] = section.layers
    operations: tuple[str, Sequence[ListRow]] = "operations", section.operations or section.problems
    if _is_more(section.classes, layers):
        layers = section.classes
    if _is_more(section.problems, section.operations):
        operations = "problems", section.problems
    listed: list[tuple[str, Sequence[ListRow], Rest | None]] = [
        ("layers", layers, section.no_layer),
        (*operations, section.no_operation),
        ("kernels", section.kernels, None),
    ]
    if not any(rows for _, rows, _ in listed):
        return
    if section.steps_ns or (section.step is None and section.kernel_ns):
        yield f"{'% ' + section.of_whole:>{WIDTH}}"
    if beyond := section.beyond(in_parts=False):
        yield f"{beyond:>{WIDTH}}"
    for label, rows, rest in listed:
        timed = [*islice((row for row in rows if row.ns != 0), most)]  # an op that only copies runs no kernel
        yield from _rows(section, label, timed, rest, most)


def _is_more(sums: Sequence[ListRow], single: Sequence[ListRow]) -> bool:
    pairs = islice(zip(sums, single, strict=False), SHOWN)
    differs = next(((of.ns or 0, one.ns or 0) for of, one in pairs if of.ns != one.ns), None)
    return differs is not None and differs[0] >= TOGETHER * differs[1]


def _rows(section: Section, label: str, rows: Sequence[ListRow], rest: Rest | None, most: int) -> Iterator[str]:
    """The first rows of a list; the rest that is in none of them takes the last place if it is large."""
    with_rest = rest is not None and rest.share >= LEAST_REST and bool(rows) and most > 1
    shown = rows[: most - with_rest]
    has_times = any(row.ns is not None for row in shown)
    texts = shown_names(shown, NAME - 1 if has_times else WIDTH - LABEL, count_calls=True)
    entries: list[tuple[str, int | None]] = [(text, row.ns) for text, row in zip(texts, shown, strict=True)]
    if rest is not None and with_rest:
        entries.append((f"({rest.name})", rest.ns))
    for at, (text, ns) in enumerate(entries):
        head = f"{label if not at else '':<{LABEL}}{visible(text):<{NAME}}"
        yield (head if ns is None else f"{head}{_ms(ns):>{TIME}}{_share(section, ns):>{SHARE}}").rstrip()


def _ms(ns: int) -> str:
    """Format a time in ms, the unit of all rows."""
    return f"{_number_of_ms(ns)} ms"


def _number_of_ms(ns: float) -> str:
    return fixed(ns / 1e6, 3 if ns < 1e8 else 1)


def _share(section: Section, ns: int) -> str:
    share = section.share(ns)
    return "" if share is None else f"{fixed(100 * share, 1)} %"


# -- further lines


def _beside(section: Section, room: int) -> list[str]:
    """Return the lines that fit: devices, kinds of steps, the first iteration, searches, ranks, errors of the log."""
    unnamed = section.no_operation.share if section.no_operation is not None else 0.0
    told_ns = sum(part.ns for part in section.parts if part.primitive in PURPOSES)
    says_parts = unnamed >= MOSTLY and told_ns >= LEAST_REST * section.kernel_ns > 0
    says_steps = len(section.steps) > 1 or section.between  # else the first line says the kind
    said = (
        ("device", section.device and f"step of {section.device}"),
        ("steps", _steps(section) if says_steps else ""),
        ("parts", section.makeup().replace(" %", f" % {section.of_whole}", 1) if says_parts else ""),
        ("ranks", section.waiting.removeprefix("ranks ")),
        ("reference", section.reference and f"without MIOpen's log {section.reference}"),
        ("first", section.first.removeprefix("first ")),
        ("MIOpen Find", section.searches),
        ("log", _complaints(section.log)),
    )
    longer = {"steps": 2, "parts": 2, "ranks": 3, "reference": 2}
    lines: list[str] = []
    room = max(2 * bool(section.reference), room)
    for label, text in (row for row in said if row[1]):
        most = min(longer.get(label, 1), room - len(lines))
        lines += _whole_items(label, text, most) if label in longer and most > 0 else wrapped(label, text, most=1)
    return lines[:room]


_ITEM = late(r"[,;:] | \(")
"""The end of an item of a list, or of a clause."""


def _whole_items(label: str, text: str, most: int) -> list[str]:
    """Leave out the last items of a text until it fits into ``most`` lines. Nothing is cut within an item: a number
    without its unit is of no use."""
    whole = [*wrapped(label, text, most=most + 1)]
    if len(whole) <= most:
        return whole
    ends = [one.start() for one in _ITEM.finditer(text)]
    for end in reversed([end for end in ends if text.count("(", 0, end) == text.count(")", 0, end)]):
        lines = [*wrapped(label, f"{text[:end]} ...", most=most + 1)]
        if len(lines) <= most:
            return lines
    return whole[:most]


def _findings(findings: Sequence[Finding], room: int) -> list[str]:
    """Return the findings that fit, worst first, each with its number and its advice."""
    found: list[str] = []
    shown = 0
    for one in findings:
        left = len(findings) - shown - 1
        own = _lines_of(one, LONGEST_SENTENCE)
        if len(found) + len(own) + bool(left) > room:
            own = _lines_of(one, SENTENCE)
        if len(found) + len(own) + bool(left) > room and found:
            break
        found += own
        shown += 1
    rest = list(dict.fromkeys(one.rule.id for one in findings[shown:]))
    if rest:
        found += list(wrapped("also", ", ".join(rest), most=1, at=8))
    return found[: max(room, 0)]


def _lines_of(one: Finding, most: int) -> list[str]:
    """Return a finding: its number and its advice, each in at most ``most`` lines."""
    label = one.severity.upper() if one.severity != "info" else "info"
    found = _sentence(label, f"{one.rule.title.rstrip('.')}: {one.found.number}", one.found.names, most)
    if one.severity != "info" and one.advice:
        found += _sentence("     ->", one.advice, one.found.names, most)
    return found


def _sentence(label: str, text: str, names: Sequence[str], most: int) -> list[str]:
    """Shorten names as far as necessary if the text is longer than ``most`` lines. Then leave out its last sentences or
    clauses, if these take a line; else cut its end."""
    longest = max((len(name) for name in names if name in text), default=LEAST_NAME)
    for room in range(max(longest, LEAST_NAME), LEAST_NAME - 1, -1):
        shorter = text
        for name in names:
            shorter = shorter.replace(name, without_middle(name, room))
        whole = [*wrapped(label, shorter, most=most + 1, at=8)]
        if len(whole) <= most:
            return whole
    clauses = _CLAUSE.split(shorter)
    while len(clauses) > 1:
        clauses.pop()
        whole = [*wrapped(label, f"{' '.join(clauses).rstrip('.;')}.", most=most + 1, at=8)]
        if len(whole) <= most:
            return whole if len(whole) >= most - 1 else _cut(label, shorter, most)
    return _cut(label, shorter, most)


def _cut(label: str, text: str, most: int) -> list[str]:
    """Cut the end of a sentence, and with it all of a remark in parentheses: `(56.6 % of the iterations ...` has no
    meaning."""
    lines = [*wrapped(label, text, most=most, at=8)]
    kept = " ".join(line.strip() for line in lines).removeprefix(label.strip()).strip()
    if kept.count("(") > kept.count(")") and (open_ := kept.rfind(" (")) > 0:
        return [*wrapped(label, f"{kept[:open_].rstrip()} ...", most=most, at=8)]
    return lines


def _steps(section: Section) -> str:
    """``decode, batch 32: 5.7 ms per step, 20 steps; prefill, batch 4: ...``. Many kinds are summed by phase."""
    said = []
    kinds = section.steps if len(section.steps) <= SHOWN else section.phases
    for kind in kinds[:SHOWN]:
        length = ms(kind.step_ns if kind.step_ns is not None else kind.kernel_ns)
        said.append(f"{kind.name}: {length} per step, {count(kind.steps, 'step')}")
    if len(kinds) > SHOWN:
        said.append(count(len(kinds) - SHOWN, "more kind"))
    return "; ".join(filter(None, (section.between, *said)))


_OF_COMPILER = late(r"(?<!\d)\d{1,9}:\d{1,9}: (?:fatal )?error: ", re.ASCII)
"""A compiler's own error, which is the cause of the errors that a library prints before it."""


def _complaints(log: Sequence[tuple[str, int, str]]) -> str:
    """Return the number of errors and of warnings, each with the first of them; the first of a compiler's errors."""
    parts = []
    for level in ("error", "warning"):
        of = [(number, text) for word, number, text in log if word == level]
        if of:
            text = next((text for _, text in of if _OF_COMPILER.search(text)), of[0][1])
            parts.append(f"{count(sum(number for number, _ in of), level)}: {text[:100]}")
    return "; ".join(parts)


MOST_RANKS, MOST_SIZES, MOST_CAUSES = 5, 5, 2
RANK_LABEL, RANK_NAME, NUMBERS = 8, 20, (8, 7, 9, 8)
_LAST = WIDTH - RANK_LABEL - RANK_NAME - sum(NUMBERS)


def rank_lines(
    met: Sequence[Meeting],
    of: Sequence[RankTotal],
    labels: Sequence[str],
    machines: Sequence[str],
    incomplete: Sequence[str] = (),
) -> list[str]:
    """Yield the lines. ``machines``: a name for the machine of each rank; empty if its profile does not record the
    machine. ``incomplete``: the labels of ranks whose profiles are incomplete."""
    from mio2trace.ranks import EMPTY, absent, delaying, uncounted

    if not of:
        return [EMPTY]
    said = []
    if few := absent(of):
        is_group = all(one.ranks == len(of) for one in met)
        said.append(f"{few}{', the whole group' if is_group else ': another may be last, transfers may be shorter'}")
    if by_duration := sum(one.by == "duration" for one in met):
        said.append(
            f"{by_duration:,} of {count(len(met), 'collective')}: the clocks of the ranks are not known well enough;"
            " the shortest kernel is taken as the last rank's"
        )
    if incomplete:
        ranks = ", ".join(incomplete[:3]) + ", ..." * (len(incomplete) > 3)
        said.append(f"incomplete profiles ({ranks}): their missing work is in no cause")
    if of_others := uncounted(of):
        said.append(f"{of_others}: they need some ranks only (a broadcast, a group), or a rank lacks them")
    notes = [line for text in said for line in wrapped("note", text, at=RANK_LABEL)]
    found = [*_straggler(met, of, delaying(of), labels, machines), *_ranks(of, labels)]
    return [*found, *_sizes(met, labels, MOST_LINES - len(found) - len(notes)), *notes]


def _straggler(
    met: Sequence[Meeting], of: Sequence[RankTotal], latest: int, labels: Sequence[str], machines: Sequence[str]
) -> Iterator[str]:
    where = ""
    if all(machines):
        where = ", one machine" if len(set(machines)) == 1 else f", between {len(set(machines))} machines"
    waited, spent = sum(one.wait_ns for one in of), sum(one.collective_ns for one in of) or 1
    if latest == NONE:
        yield "No rank keeps the others waiting."
    else:
        own = of[latest]
        others = sum(one.lead_ns for one in met if one.last == latest)
        yield from wrapped(
            "",
            f"{labels[latest]} is last in {own.times_arrived_last} of {count(len(met), 'collective')}; "
            f"the other ranks wait {ms(others)} for it.",
        )
    yield from wrapped(
        "",
        f"{count(len(of), 'rank')}{where}; they wait {ms(waited)}, {percent(waited / spent)} of their time in"
        f" collectives ({ms(spent)} of all ranks).",
    )
    if latest != NONE:
        yield from _causes([one for one in met if one.last == latest])


def _causes(late: Sequence[Meeting]) -> Iterator[str]:
    from mio2trace.ranks import causes

    found = causes(late)
    unknown = sum(not one.made_late_by for one in late)
    label = "cause"
    for name, (ns, times) in [*found.items()][:MOST_CAUSES]:
        cost = f": {ms(ns)} in {count(times, 'collective')}"
        end = f" takes longer{cost}"
        what = without_middle(name, WIDTH - RANK_LABEL - len(end))
        yield from wrapped(
            label, f"the host launches later{cost}" if name == "the host" else f"{what}{end}", most=1, at=RANK_LABEL
        )
        label = " "
    if unknown:
        yield from wrapped(label, f"not shown by the files: {count(unknown, 'collective')}", most=1, at=RANK_LABEL)


def _ranks(of: Sequence[RankTotal], labels: Sequence[str]) -> Iterator[str]:
    """One line per rank, latest first."""
    yield _rank_row("", "", ("wait ms", "wait %", "last", "late ms"), "  made late by")
    shown = sorted(of, key=lambda one: (-one.late_ns, one.place))
    names = [labels[one.place] for one in shown[:MOST_RANKS]]
    for at, (one, name) in enumerate(zip(shown, distinct(names, names, RANK_NAME - 1), strict=False)):
        share = fixed(100 * one.wait_ns / one.collective_ns, 1) if one.collective_ns else ""
        cells = (_number_of_ms(one.wait_ns), share, f"{one.times_arrived_last}", _number_of_ms(one.late_ns))
        yield _rank_row("ranks" if not at else "", name, cells, f"  {one.made_late_by}")
    if len(of) > MOST_RANKS:
        yield f"{'':<{RANK_LABEL}}{count(len(of) - MOST_RANKS, 'more rank')}"


def _sizes(met: Sequence[Meeting], labels: Sequence[str], most: int) -> Iterator[str]:
    """Sum up collectives of one kind and size, most time first, in ``most`` lines; times are means per collective."""
    groups: dict[tuple[str, int | None], list[Meeting]] = defaultdict(list)
    for one in met:
        groups[one.which, one.message_bytes].append(one)
    shown = sorted(groups.items(), key=lambda item: -sum(max(one.durations_ns) for one in item[1]))
    rows = min(len(shown), MOST_SIZES)
    while rows > 1 and 1 + rows + (len(shown) > rows) > most:
        rows -= 1
    yield _rank_row("", "", ("ms", "calls", "GB/s bus", "wait ms"), "  last")
    for at, ((which, size), own) in enumerate(shown[:rows]):
        transfer = sum(one.transfer_ns for one in own) / len(own)
        wait = sum(sum(one.waits_ns) / len(one.waits_ns) for one in own) / len(own)
        # Of all calls together: the message divided by the mean time. The mean of their rates would be more.
        slowness = [1 / one.bus for one in own if one.bus]
        bus = fixed(len(slowness) / sum(slowness), 1) if slowness else ""
        (last, times), *_ = Counter(one.last for one in own).most_common(1)
        who = "" if last == NONE else f"  {labels[last]} {times}/{len(own)}"
        name = which if size is None else f"{which} {_size(size)}"
        yield _rank_row(
            "sizes" if not at else "", name, (_number_of_ms(transfer), f"{len(own)}", bus, _number_of_ms(wait)), who
        )
    if len(shown) > rows:
        yield f"{'':<{RANK_LABEL}}{count(len(shown) - rows, 'more size')}"


def _rank_row(label: str, name: str, cells: Sequence[str], last: str) -> str:
    numbers = "".join(f"{cell:>{width}}" for cell, width in zip(cells, NUMBERS, strict=True))
    (name,) = distinct([name], [name], RANK_NAME - 1)
    (shown,) = distinct([last], [last], _LAST)
    return visible(f"{label:<{RANK_LABEL}}{name:<{RANK_NAME}}{numbers}{shown}".rstrip())


def _size(size: int) -> str:
    for least, unit in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size} B"
