"""Activities that times placed and may belong elsewhere: those without times of their own, and other queues' work."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from mio2trace.align.attribution import Attribution
from mio2trace.align.clocks.relate import LANDMARK_EARLY_NS
from mio2trace.align.clocks.resolution import STAMP_NS
from mio2trace.evidence import BOUNDARY_STAMPS, DURATIONS, POSITION, RECURRENCE, Evidence

_MOST_LAGS = 1 << 20
"""Of more, every n-th tells as much."""
_BY_TIME = frozenset((BOUNDARY_STAMPS, DURATIONS, RECURRENCE, POSITION))


def doubt_between_layers(attribution: Attribution) -> None:
    """What stamps or durations put into a layer without host times of its own may be of the layer beside it."""
    _doubt_without_times(attribution, (BOUNDARY_STAMPS, DURATIONS), attribution.links.run_of)


def doubt_between_passes(attribution: Attribution) -> None:
    """What likeness labelled, bounded by stamps alone, may be of the pass beside it if it has no host times."""
    if attribution.axis is not None and not attribution.axis.by_line:
        _doubt_without_times(attribution, (RECURRENCE,), attribution.links.pass_of)


def doubt_by_clock(attribution: Attribution) -> None:
    """What times placed is in doubt where the log's clock may be off by more than a landmark is."""
    clock = attribution.clock
    if clock is not None and clock.error_ns > LANDMARK_EARLY_NS:
        words = attribution.links.layer_by
        attribution.links.doubt_layer(p for p, word in enumerate(words) if word in (BOUNDARY_STAMPS, DURATIONS))


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
    """The log's layers are one thread's: what another queue ran meanwhile may be another thread's work."""
    activities, links = attribution.profile.activities, attribution.links
    queues = Counter(activity.queue for activity in activities if activity.kind == "kernel")
    if len(queues) < 2:
        return
    # The thread that prints a layer's line has just waited for its own queue.
    lags: dict[int, list[int]] = {queue: [] for queue in queues}
    ends = sorted(run.host_end_ns for run in links.runs if run.host_end_ns is not None)
    ends = ends[:: 1 + len(ends) * len(queues) // _MOST_LAGS]
    done_of: dict[int, list[int]] = {}
    for activity in activities:
        if activity.host_end_ns is not None:
            done_of.setdefault(activity.queue, []).append(activity.host_end_ns)
    for queue, of_queue in lags.items():
        done = sorted(done_of.get(queue, ()))
        for end in ends:
            before = bisect_right(done, end + STAMP_NS) - 1
            if before >= 0:
                of_queue.append(end - done[before])
    main = min(queues, key=lambda queue: (median(lags[queue] or [1 << 62]), -queues[queue], queue))
    for position, activity in enumerate(activities):
        if activity.queue != main and links.layer_by[position] in _BY_TIME:
            links.doubt_layer([position])
