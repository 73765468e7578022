"""The ranks of a job at its collectives: who waits, who comes last, and what made it late.

The definitions are TraceLens's. The *transfer* of a collective is its shortest kernel on any rank. The *wait* of a rank
is the time that its own kernel takes longer. The *skew* is the distance between the starts. The *straggler* is the rank
that arrives last most often (of equals the rank that waits least). The work between two collectives shows the cause of
the delay, because the ranks run one program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from mio2trace.align import NONE, Alignment
from mio2trace.align.processes import (
    EXCHANGE,
    Collective,
    ProcessClock,
    collectives_of,
    communicates,
    of_common_groups,
    paired,
)
from mio2trace.findings.rule import ms, part_of
from mio2trace.kernels.names import normalise
from mio2trace.measures import duration
from mio2trace.measures.cost import bandwidth
from mio2trace.measures.statistics import mean, median
from mio2trace.ops.operation import operation_name
from mio2trace.outgoing import count
from mio2trace.reports import Cell, Row, Table, known

WORK = "all work"
"""The cause if only the sum of the work explains the delay, as on a device with a lower clock."""
HOST = "the host"
"""The cause for a rank that launched its collective later although its kernels took no longer."""
COMMUNICATION = "other communication"
"""The cause if communication kernels that do not count took longer: the rank may have waited in them for others."""
LITTLE = 0.01
"""Ranks that wait for less than this part of their time in collectives arrive together."""
DRIFT = 1e-4
"""Two clocks drift apart by less than this share of the time."""
EXPLAINS = 0.5
"""A cause is named only if it accounts for at least this part of the delay."""
EXPLAINS_OF_ALL = 0.1
"""The same for the sum of a rank's delays, which may have several causes."""


class Meeting(msgspec.Struct, frozen=True, kw_only=True):
    """A collective that all ranks ran; times and ranks in the order of the job's processes.

    ``starts_ns``: on the clock of the first process. ``last``: the place of the last rank, `NONE` if all came at once.
    ``lead_ns``: its delay after the previous rank. ``by``: the source of the order. This is the clock; if the
    clocks are not known well enough, the durations: a collective ends everywhere at once, so the last rank has the
    shortest kernel. ``made_late_by``: the layer in its direction, else the operation, else the kernel that took
    ``made_late_ns`` longer than on the other ranks; or `WORK` or `HOST`; empty if unknown.
    """

    number: int
    which: str
    iteration: int | None
    starts_ns: tuple[int, ...]
    durations_ns: tuple[int, ...]
    transfer_ns: int
    skew_ns: int
    by: Literal["clock", "duration"]
    last: int
    lead_ns: int
    made_late_by: str = ""
    made_late_ns: int = 0
    ranks: int = 0
    """How many ranks took part, also those without a profile; 0 if the profile does not record it."""
    message_bytes: int | None = None
    """Bytes of the message, if the profile records them."""
    bus: float | None = None
    """Bytes per ns on a rank's link during the transfer."""

    @property
    def waits_ns(self) -> tuple[int, ...]:
        return tuple(one - self.transfer_ns for one in self.durations_ns)


def meetings(alignments: Sequence[Alignment]) -> list[Meeting]:
    """Return the collectives of a job; none if fewer than two processes ran the same ones."""
    if len(alignments) < 2:
        return []
    matched = [one for one in _agreeing(_matched(alignments), alignments) if _is_of_all(one, alignments)]
    works = [_works(alignment, [one[place] for one in matched]) for place, alignment in enumerate(alignments)]
    launches = [_launches(alignment, [one[place] for one in matched]) for place, alignment in enumerate(alignments)]
    found = []
    operation_of = {one.index: one for one in alignments[0].links.operations}
    for number, collectives in enumerate(matched):
        meeting = _met(number, collectives, alignments)
        operation = operation_of.get(alignments[0].links.operation_of[collectives[0].position])
        size = None if operation is None else bandwidth(operation, 1, meeting.transfer_ns)
        if size is not None:
            meeting = msgspec.structs.replace(meeting, message_bytes=size.message_bytes, bus=size.bus)
        if meeting.last != NONE:
            cause, ns = _cause(meeting, [work[number] for work in works], [launch[number] for launch in launches])
            meeting = msgspec.structs.replace(meeting, made_late_by=cause, made_late_ns=ns)
        found.append(meeting)
    return found


def _matched(alignments: Sequence[Alignment]) -> list[tuple[Collective, ...]]:
    """Match the n-th collectives of the groups that all ranks have. If the ranks' lists differ, only iterations with
    equal lists are used. If all-to-alls make the difference, they are left out."""
    lists = of_common_groups([list(collectives_of(alignment.profile, exchanges=True)) for alignment in alignments])
    for some in (lists, _without_exchanges(lists)):
        if pairs := paired(some):
            return pairs
    by_iteration = []
    for alignment, ran in zip(alignments, lists, strict=True):
        parts: dict[int, list[Collective]] = {}
        for one in ran:
            iteration = _iteration(alignment, one.position)
            if iteration is not None:
                parts.setdefault(iteration, []).append(one)
        by_iteration.append(parts)
    found: list[tuple[Collective, ...]] = []
    for iteration in sorted(set(by_iteration[0]).intersection(*by_iteration[1:])):
        of_ranks = [parts[iteration] for parts in by_iteration]
        found += paired(of_ranks) or paired(_without_exchanges(of_ranks))
    return found


def _without_exchanges(lists: Sequence[Sequence[Collective]]) -> list[list[Collective]]:
    return [[one for one in ran if one.which != EXCHANGE] for ran in lists]


_Shifts = tuple[int, int]
"""The least and the most that may be added to a rank's times."""


def _agreeing(matched: list[tuple[Collective, ...]], alignments: Sequence[Alignment]) -> list[tuple[Collective, ...]]:
    """Return those that no rank ended before another had begun. The shift of a rank's clock is the one with which most
    of them agree. Return none if these are no majority: then other collectives were matched than those that met."""
    of_all = [collectives for collectives in matched if collectives[0].which != EXCHANGE]
    if not of_all:
        return matched
    first = of_all[0][0], of_all[-1][0]
    room = round(DRIFT * (first[1].end_ns - first[0].start_ns))
    kept = [True] * len(of_all)
    for place, alignment in enumerate(alignments[1:], 1):
        allowed = [
            (ran[0].start_ns - ran[place].end_ns - room, ran[0].end_ns - ran[place].start_ns + room) for ran in of_all
        ]
        least, most = _allowed_most(allowed, alignment.process_clock)
        kept = [one and low <= most and least <= high for one, (low, high) in zip(kept, allowed, strict=True)]
    if 2 * sum(kept) <= len(kept):
        return [collectives for collectives in matched if collectives[0].which == EXCHANGE]
    met = {id(collectives) for collectives, one in zip(of_all, kept, strict=True) if one}
    return [collectives for collectives in matched if collectives[0].which == EXCHANGE or id(collectives) in met]


def _allowed_most(allowed: Sequence[_Shifts], clock: ProcessClock | None) -> _Shifts:
    """Return the shifts of a clock that is known, else those that most collectives allow."""
    if clock is not None and clock.error_ns is not None:
        return clock.shift_ns - clock.error_ns, clock.shift_ns + clock.error_ns
    edges = sorted([(low, -1) for low, _ in allowed] + [(high, 1) for _, high in allowed])
    count = best = 0
    found = edges[0][0], edges[-1][0]
    for at, (shift, edge) in enumerate(edges):
        count -= edge
        if count > best:
            best, found = count, (shift, edges[at + 1][0])
    return found


def _is_of_all(collectives: Sequence[Collective], alignments: Sequence[Alignment]) -> bool:
    """Return whether the collective needed all ranks. An all-to-all did if it ended nowhere before it had begun
    everywhere, by clocks that something else relates."""
    if collectives[0].which != EXCHANGE:
        return True
    shifts = [clock.shift_ns for one in alignments if (clock := one.process_clock) is not None]
    if len(shifts) < len(alignments):
        return False
    return max(one.start_ns + shift for one, shift in zip(collectives, shifts, strict=True)) <= min(
        one.end_ns + shift for one, shift in zip(collectives, shifts, strict=True)
    )


def _iteration(alignment: Alignment, position: int) -> int | None:
    place = alignment.links.pass_of[position]
    return None if place == NONE else alignment.links.passes[place].iteration


def _met(number: int, collectives: Sequence[Collective], alignments: Sequence[Alignment]) -> Meeting:
    clocks = [alignment.process_clock for alignment in alignments]
    starts = [
        one.start_ns + (0 if clock is None else clock.shift_ns) for one, clock in zip(collectives, clocks, strict=True)
    ]
    durations = [one.end_ns - one.start_ns for one in collectives]
    errors = [None if clock is None else clock.error_ns for clock in clocks]
    last, lead = _last(starts)
    by_clock = all(error is not None and 2 * error < lead for error in errors)
    if not by_clock:
        last, lead = _last([-one for one in durations])
    order = starts if by_clock else durations
    return Meeting(
        number=number,
        which=collectives[0].which,
        iteration=_iteration(alignments[0], collectives[0].position),
        starts_ns=tuple(starts),
        durations_ns=tuple(durations),
        transfer_ns=min(durations),
        skew_ns=max(order) - min(order),
        by="clock" if by_clock else "duration",
        last=last,
        lead_ns=lead,
        ranks=max(one.ranks for one in collectives),
    )


def _last(moments: Sequence[int]) -> tuple[int, int]:
    """Return the place of the latest moment and its distance to the moment before; `NONE` if two are equal."""
    before, latest = sorted(moments)[-2:]
    return (moments.index(latest), latest - before) if latest > before else (NONE, 0)


_Work = Mapping[str, int]


def _works(alignment: Alignment, collectives: Sequence[Collective]) -> list[_Work]:
    """Return, per collective, the kernel time of the commands since the previous collective, by layer and operation."""
    activities = alignment.profile.activities
    ends = [one.position for one in collectives]
    counted = {*ends}
    is_communication = communicates(alignment.profile.commands)
    links = alignment.links
    operations = {one.index: operation_name(one) for one in links.operations}
    layers = [f"{run.layer} {run.direction}" if run.direction else run.layer for run in links.runs]

    def name(position: int) -> str:
        """Return the layer in its direction, else the operation, else the name of the activity."""
        if is_communication[position]:
            return COMMUNICATION
        if (run := links.run_of[position]) != NONE:
            return layers[run]
        operation = links.operation_of[position]
        return normalise(activities[position].name) if operation == NONE else operations[operation]

    works: list[_Work] = []
    begin = 0
    for end in ends:
        spent: Counter[str] = Counter()
        for position in range(begin, end):
            if position not in counted:
                spent[name(position)] += duration(activities[position]) or 0
        works.append(spent)
        begin = max(begin, end + 1)  # two streams may run collectives in another order than on the first rank
    return works


def _launches(alignment: Alignment, collectives: Sequence[Collective]) -> list[int | None]:
    """Return, per collective, how long after the end of the previous collective the host launched it; 0 if before.

    A host that is ahead delays nothing. The previous launch is no measure: a host that comes late there waits less for
    that collective than the hosts of the other ranks do."""
    activities = alignment.profile.activities
    times = [activities[one.position].host_start_ns for one in collectives]
    ends = [None, *(one.end_ns for one in collectives)]  # the first one has no collective before it
    return [None if time is None or end is None else max(0, time - end) for time, end in zip(times, ends, strict=False)]


def _computing(work: _Work) -> int:
    return sum(ns for name, ns in work.items() if name != COMMUNICATION)


def _cause(meeting: Meeting, works: Sequence[_Work], launches: Sequence[int | None]) -> tuple[str, int]:
    """Return the work that took enough time more on the last rank than on the others to explain its delay."""
    others = [place for place in range(len(works)) if place != meeting.last]
    late = works[meeting.last]
    all_longer = _computing(late) - round(median([_computing(works[place]) for place in others]))
    longer = {name: ns - round(median([works[place].get(name, 0) for place in others])) for name, ns in late.items()}
    name = max(longer, key=lambda one: (longer[one], one), default="")
    if name and longer[name] >= EXPLAINS * meeting.lead_ns:
        return name, longer[name]
    if _computing(late) and all_longer >= EXPLAINS * meeting.lead_ns:
        return WORK, all_longer
    host = launches[meeting.last]
    of_others = [launch for place in others if (launch := launches[place]) is not None]
    if host is not None and len(of_others) == len(others):
        later = host - round(median(of_others))
        if later >= EXPLAINS * meeting.lead_ns:
            return HOST, later
    return "", 0


# -- The cost of a job's collectives for each rank ---------------------------------------------------------------------


class RankTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the collectives of a job, for one rank. ``skew_ns``: the mean over all collectives, equal for all
    ranks.

    ``late_ns``: the sum of its delays when it arrived last. ``made_late_by``: the cause of the largest part of them,
    with ``made_late_ns``. ``uncounted_kernels``: its other communication kernels, which do not show which
    rank waits for another, with their time ``uncounted_ns``. ``ranks``: how many the job has, as far as is recorded.
    """

    place: int
    collectives: int
    collective_ns: int
    transfer_ns: int
    wait_ns: int
    skew_ns: float
    times_arrived_last: int
    late_ns: int
    made_late_by: str
    made_late_ns: int
    uncounted_kernels: int = 0
    uncounted_ns: int = 0
    ranks: int = 0


def totals(meetings: Sequence[Meeting], alignments: Sequence[Alignment]) -> list[RankTotal]:
    """Return the sums of each rank; none without collectives."""
    return [_total(meetings, *rank) for rank in enumerate(alignments)] if meetings else []


def _total(meetings: Sequence[Meeting], place: int, alignment: Alignment) -> RankTotal:
    late = [one for one in meetings if one.last == place]
    cause, (made_late_ns, _) = next(iter(causes(late).items()), ("", (0, 0)))
    commands = alignment.profile.commands
    communicating = (commands.end_ns - commands.start_ns)[communicates(commands)]
    collective_ns = sum(one.durations_ns[place] for one in meetings)
    return RankTotal(
        place=place,
        collectives=len(meetings),
        collective_ns=collective_ns,
        transfer_ns=sum(one.transfer_ns for one in meetings),
        wait_ns=sum(one.waits_ns[place] for one in meetings),
        skew_ns=mean([one.skew_ns for one in meetings]),
        times_arrived_last=len(late),
        late_ns=sum(one.lead_ns for one in late),
        made_late_by=cause,
        made_late_ns=made_late_ns,
        uncounted_kernels=len(communicating) - len(meetings),
        uncounted_ns=int(communicating.sum()) - collective_ns,
        ranks=max(alignment.profile.process.ranks or 0, *(one.ranks for one in meetings)),
    )


def causes(late: Sequence[Meeting]) -> dict[str, tuple[int, int]]:
    """Return the causes of a rank's delays, largest first: the extra time (ns) and the number of collectives of each.
    A cause that explains less than `EXPLAINS_OF_ALL` of all delays is left out. If no other is left, parts of the work
    that explain most of them together are `WORK`: with a collective per bucket of gradients, each has its own layer."""
    took: dict[str, tuple[int, int]] = {}
    for one in late:
        if one.made_late_by:
            ns, times = took.get(one.made_late_by, (0, 0))
            took[one.made_late_by] = (ns + one.made_late_ns, times + 1)
    delay = sum(one.lead_ns for one in late)
    names = sorted(took, key=lambda name: (-took[name][0], name))
    found = {name: took[name] for name in names if took[name][0] >= EXPLAINS_OF_ALL * delay}
    parts = [took[name] for name in names if name not in (HOST, COMMUNICATION)]
    if found or sum(ns for ns, _ in parts) < EXPLAINS * delay:
        return found
    return {WORK: (sum(ns for ns, _ in parts), sum(times for _, times in parts))} if parts else {}


def straggler(of: Sequence[RankTotal]) -> int:
    """Return the place of the rank that arrived last most often, `NONE` if there is no such rank. If several ranks did,
    return the rank that waited least."""
    latest = min(of, key=lambda one: (-one.times_arrived_last, one.wait_ns, one.place), default=None)
    return latest.place if latest is not None and latest.times_arrived_last else NONE


def delaying(of: Sequence[RankTotal]) -> int:
    """Return the straggler, `NONE` if the ranks hardly wait: who comes last by chance is no advice."""
    waited, spent = sum(one.wait_ns for one in of), sum(one.collective_ns for one in of)
    return NONE if waited < LITTLE * spent else straggler(of)


# -- A table of the ranks, a table of the collectives, and one sentence about them -------------------------------------


EMPTY = "no collective kernel that all ranks ran (all-reduce, all-gather, reduce-scatter, all-to-all)"
MOST_GROUPS = 4
"""The most groups that are named."""
_TIMES = ("collective_ns", "transfer_ns", "wait_ns", "skew_ns")
_BRIEF = ("collectives", "transfer_ns", "wait_ns", "skew_ns", "times_arrived_last", "late_ns", "made_late_by")


def table(of: Sequence[RankTotal], cells: Sequence[Mapping[str, int | str]]) -> Table:
    """Return one row per rank. ``cells``: those that name the rank: ``{"rank": 0}``."""
    latest = straggler(of)
    rows: list[Row] = [
        {
            **cells[one.place],
            "collectives": one.collectives,
            "times_arrived_last": one.times_arrived_last,
            "straggler": "true" if one.place == latest else "false",
            "uncounted_kernels": one.uncounted_kernels,
            **{name: getattr(one, name) for name in (*_TIMES, "late_ns", "uncounted_ns")},
            **_cause_cells(one),
        }
        for one in of
    ]
    keys = tuple(dict.fromkeys(name for cell in cells for name in cell)) or ("rank",)
    last = ("times_arrived_last", "straggler", "late_ns", "made_late_by", "made_late_ns")
    columns = (*keys, "collectives", *_TIMES, *last, "uncounted_kernels", "uncounted_ns")
    return Table(columns=columns, rows=rows, brief=(*keys, *_BRIEF), empty=EMPTY, keys=keys)


def each_table(meetings: Sequence[Meeting], labels: Sequence[str]) -> Table:
    """Return one row per collective, in order. ``start``: on the clock of the job's first process."""
    columns = (
        "collective_index", "collective", "message_bytes", "iteration", "start_ns", "transfer_ns", "bus_gb_per_s",
        "skew_ns", "last", "lead_ns", "arrival_by", "made_late_by", "made_late_ns",
    )  # fmt: skip
    rows = [
        known(
            {
                "collective_index": one.number,
                "collective": one.which,
                "message_bytes": one.message_bytes,
                "iteration": one.iteration,
                "start_ns": min(one.starts_ns),
                "bus_gb_per_s": one.bus,
                "last": None if one.last == NONE else labels[one.last],
                "arrival_by": one.by,
                "transfer_ns": one.transfer_ns,
                "skew_ns": one.skew_ns,
                "lead_ns": one.lead_ns,
                **_cause_cells(one),
            }
        )
        for one in meetings
    ]
    keys = ("collective_index", "collective")
    return Table(columns=columns, rows=rows, empty=EMPTY, keys=keys, fixed=("start_ns",))


def _cause_cells(one: RankTotal | Meeting) -> dict[str, Cell]:
    return {"made_late_by": one.made_late_by, "made_late_ns": one.made_late_ns} if one.made_late_by else {}


def said(of: Sequence[RankTotal], labels: Sequence[str]) -> str:
    """Return one sentence: the last rank, the waiting time of the others, and the cause."""
    latest = delaying(of)
    if not of:
        return EMPTY
    waited = sum(one.wait_ns for one in of)
    spent = sum(one.collective_ns for one in of) or 1
    ranks = max(one.ranks for one in of)
    summed = f"sum of {len(of)} of {ranks:,} ranks" if ranks > len(of) else f"sum of {len(of)} ranks"
    collectives = count(of[0].collectives, "collective")
    waiting = f"ranks wait {part_of(waited, spent)}"
    beside = f"; {of_others}" if (of_others := uncounted(of)) else ""
    if latest == NONE:
        return f"{waiting} in {collectives} ({summed}); none keeps the others waiting{beside}"
    one = of[latest]
    longer = ms(one.made_late_ns)
    by_host = one.made_late_by == HOST
    took = f": the host launches {longer} later" if by_host else f": {one.made_late_by} takes {longer} longer"
    cause = took if one.made_late_by else ""
    last = f"{labels[latest]} is last in {one.times_arrived_last:,} of {collectives}{cause}"
    return f"{last}; {waiting} ({summed}){beside}"


def groups(alignments: Sequence[Alignment]) -> str:
    """Return what to give instead if the ranks have no collective of all of them; empty if no group of some is here."""
    ran = [alignment.profile.process.rank for alignment in alignments]
    met = Counter(one.members for alignment in alignments for one in collectives_of(alignment.profile))
    found = [members for members in met if 1 < len(members) < len(ran) and {*members} <= {*ran}]
    named = [", ".join(map(str, members)) for members in sorted(found)[:MOST_GROUPS]]
    return f"give the ranks of one group: {' or '.join(named)}{' or ...' * (len(found) > MOST_GROUPS)}" if named else ""


def absent(of: Sequence[RankTotal]) -> str:
    """Return how many ranks of the job have a profile here; empty if all have, or if nothing records it."""
    ranks = max(one.ranks for one in of)
    return f"{len(of)} of {ranks:,} ranks are here" if ranks > len(of) else ""


def uncounted(of: Sequence[RankTotal]) -> str:
    """Return what of the ranks' communication is in no sum; empty if all of it is."""
    kernels = sum(one.uncounted_kernels for one in of)
    if not kernels:
        return ""
    verb = "is" if kernels == 1 else "are"
    return (
        f"{count(kernels, 'other communication kernel')} ({ms(sum(one.uncounted_ns for one in of))}) {verb} not counted"
    )
