"""Activities that times placed and may belong elsewhere: those without times of their own, and other queues' work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from mio2trace.align.attribution import Attribution
from mio2trace.align.links import DOUBTED
from mio2trace.align.operations.rates import HARDLY_ANY, ONE_THREAD
from mio2trace.evidence import BOUNDARY_STAMPS, CORRELATION, DURATIONS, RANGE, RECURRENCE, TIMER_MARKS, Evidence

_OF_ITS_OWN = frozenset((RANGE, CORRELATION, TIMER_MARKS, ""))
"""What tells of a kernel itself, whatever its queue; or nothing."""


def doubt_between_layers(attribution: Attribution) -> None:
    """What stamps or durations put into a layer without host times of its own may be of the layer beside it."""
    _doubt_without_times(attribution, (BOUNDARY_STAMPS, DURATIONS), attribution.links.run_of)


def doubt_between_passes(attribution: Attribution) -> None:
    """What likeness labelled, bounded by stamps alone, may be of the pass beside it if it has no host times."""
    if attribution.axis is not None and not attribution.axis.by_line:
        _doubt_without_times(attribution, (RECURRENCE,), attribution.links.pass_of)


def doubt_by_clock(attribution: Attribution) -> None:
    """What times placed is in doubt where the log's clock may be off by more than a landmark is: a layer's lines hold a
    kernel at so many of the possible offsets as the layer took of them. What is less likely than not stays outside.
    """
    clock, links = attribution.clock, attribution.links
    if clock is None or not clock.is_doubtful:
        return
    for position, word in enumerate(links.layer_by):
        if word in (BOUNDARY_STAMPS, DURATIONS):
            lasted = links.runs[links.run_of[position]].printed_ns or 0
            chance = lasted / (2 * clock.error_ns)
            if chance < DOUBTED:
                links.take_layer(position)
            else:
                links.doubt_layer((position,), DOUBTED)


def _doubt_without_times(attribution: Attribution, evidence: Sequence[Evidence], groups: Sequence[int]) -> None:
    """An activity without host times may belong with either neighbour, where these are not of one group.

    Only what ``evidence`` placed is doubted; ``groups`` has a layer's run, or a pass, for each activity.
    """
    if attribution.times is None:
        return
    links, unknown = attribution.links, attribution.times.unknown
    for begin, end in _stretches(sorted(unknown)):
        before, after = begin - 1, end + 1
        between = before >= 0 and after < len(groups)
        for position in range(begin, after):
            if links.layer_by[position] in evidence and not (
                between and groups[before] == groups[after] == groups[position]
            ):
                links.doubt_layer([position])


def _stretches(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each row of positions without a gap."""
    begin = 0
    for number, position in enumerate(positions):
        if number + 1 == len(positions) or positions[number + 1] > position + 1:
            yield positions[begin], position
            begin = number + 1


def doubt_other_queues(attribution: Attribution) -> None:
    """The log's layers are one thread's: what another queue ran meanwhile may be another thread's work.

    Which queue is that of the thread that printed them nothing tells for sure: where several have kernels of layers,
    all of these are in doubt; a queue with hardly any is not it.
    """
    activities, links = attribution.profile.activities, attribution.links
    placed = [
        position
        for position, word in enumerate(links.layer_by)
        if word not in _OF_ITS_OWN and activities[position].kind == "kernel"
    ]
    queues = Counter(activities[position].queue for position in placed)
    if len(queues) < 2:
        return
    likely = [queue for queue, count in queues.items() if count > HARDLY_ANY * len(placed)]
    main = likely[0] if len(likely) == 1 else None
    for position, word in enumerate(links.layer_by):
        if activities[position].queue != main and word not in _OF_ITS_OWN:
            links.doubt_layer([position], ONE_THREAD)
