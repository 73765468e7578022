"""A log that several runs were written into one after another: which of them is the profile's."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from mio2trace.align.clocks.fit import log_clock
from mio2trace.align.operations.rates import LAST
from mio2trace.model.log import FrameworkLog, LayerTime, LocalTime, LogEvent, NetLayer
from mio2trace.model.net_order import merged, oriented
from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation

_OPENERS = ("setting up", "forward begins", "benchmark begins")
"""What a run prints before its iterations; after them it can only be the next run's."""
_OWN = ("iteration", "benchmark begins", "average begins")
"""What one thread of a process prints, and no other one."""
MOST_SHARING = 64
"""Of so many processes each is given the lines of threads that may be anybody's."""


def split(log: FrameworkLog) -> list[FrameworkLog]:
    """The runs of a log in order, each with its own events, layers and net; the log itself when it holds one."""
    cuts: list[int] = []
    benchmark = False
    for event in log.events:
        if benchmark and event.kind in _OPENERS:
            cuts.append(event.line)
            benchmark = False
        benchmark = benchmark or event.kind == "benchmark begins"
    if not cuts:
        return [log]
    events: list[list[LogEvent]] = [[] for _ in range(len(cuts) + 1)]
    layers: list[list[LayerTime]] = [[] for _ in range(len(cuts) + 1)]
    for event in log.events:
        events[bisect_right(cuts, event.line)].append(event)
    for layer in log.layers:
        layers[bisect_right(cuts, layer.line)].append(layer)
    built = {layer.layer: layer for layer in log.net}
    return [_run(log, *parts, built) for parts in zip(events, layers, strict=True)]


def _run(
    log: FrameworkLog, events: Sequence[LogEvent], printed: Sequence[LayerTime], built: Mapping[str, NetLayer]
) -> FrameworkLog:
    """One run of ``log``, with what was printed in it; ``built`` are the log's layers by name."""
    index: dict[str, int] = {}  # a log numbers its layers by name, over all its runs
    layers = [msgspec.structs.replace(layer, index=index.setdefault(layer.layer, len(index))) for layer in printed]
    setup = [event.text for event in events if event.kind == "setting up"]
    names = {*setup, *index}
    order = _order(setup, printed)
    place = {name: number for number, name in enumerate(order)}
    stamps = [event.stamp for event in events if event.stamp is not None]
    counts = {event.number for event in events if event.kind == "testing"}
    return msgspec.structs.replace(
        log,
        events=tuple(events),
        layers=tuple(layers),
        net=tuple(sorted((built[name] for name in names & built.keys()), key=lambda layer: place[layer.layer])),
        iterations=counts.pop() if len(counts) == 1 else None,
        first_stamp=stamps[0] if stamps else None,
        last_stamp=stamps[-1] if stamps else None,
    )


def _order(setup: Sequence[str], printed: Sequence[LayerTime]) -> list[str]:
    """The order of a run's layers as its own lines tell it; another net may have layers of the same names."""
    forward = [layer.layer for layer in printed if layer.direction == "forward"]
    backward = [layer.layer for layer in printed if layer.direction == "backward"]
    return merged([setup, forward, oriented(list(dict.fromkeys(backward)), merged([setup, forward]))])


def of_threads(log: FrameworkLog, threads: Collection[int]) -> FrameworkLog:
    """What these threads printed, of a log that several processes wrote into."""
    return _parts(log, [set(threads)])[0]


def by_process(log: FrameworkLog) -> list[FrameworkLog]:
    """What each process printed, of those that wrote into one file at once: each has its own iterations or layers.

    Lines of threads that print neither are everybody's; nobody's where there are more than MOST_SHARING processes.
    """
    owners = {event.thread for event in log.events if event.kind in _OWN} | {layer.thread for layer in log.layers}
    if len(owners) < 2 or None in owners:
        return [log]
    shared = {one for one in log.threads if one not in owners} if len(owners) <= MOST_SHARING else set()
    return _parts(log, [{owner, *shared} for owner in log.threads if owner in owners])


def _parts(log: FrameworkLog, groups: Sequence[set[int]]) -> list[FrameworkLog]:
    """What each group of threads printed; the log is gone through once, however many there are."""
    groups_of: dict[int | None, list[int]] = {}
    for number, threads in enumerate(groups):
        for thread in threads:
            groups_of.setdefault(thread, []).append(number)
    events: list[list[LogEvent]] = [[] for _ in groups]
    layers: list[list[LayerTime]] = [[] for _ in groups]
    ids: list[list[int]] = [[] for _ in groups]
    for event in log.events:
        for number in groups_of.get(event.thread, ()):
            events[number].append(event)
    for layer in log.layers:
        for number in groups_of.get(layer.thread, ()):
            layers[number].append(layer)
    for thread in log.threads:
        for number in groups_of.get(thread, ()):
            ids[number].append(thread)
    built = {layer.layer: layer for layer in log.net}
    return [
        msgspec.structs.replace(_run(log, *printed, built), threads=tuple(threads))
        for printed, threads in zip(zip(events, layers, strict=True), ids, strict=True)
    ]


class Chosen(NamedTuple):
    """Of each log the run that a profile is of, and how probable that is where nothing tells. ``are_alike``: that all
    runs that it may be have the same layers and as many iterations.
    """

    runs: list[FrameworkLog]
    chance: float = 1.0
    are_alike: bool = False


def of_profile(profile: Profile, logs: Sequence[FrameworkLog], notes: Notes) -> Chosen:
    """Each log's run that the profile is of: of its process, where that is told, and of several the one whose end comes
    nearest to the end of the last activity."""
    chosen = [_nearest(profile, log, notes) for log in logs]
    return Chosen(
        [one.runs[0] for one in chosen],
        min((one.chance for one in chosen), default=1.0),
        all(one.are_alike for one in chosen if one.chance < 1),
    )


def operations_of(
    operations: Sequence[Operation], logs: Sequence[FrameworkLog], runs: Sequence[FrameworkLog]
) -> Sequence[Operation]:
    """Of ``operations`` those that stand in the chosen one of a log's runs; ``runs[i]`` is the run of ``logs[i]``."""
    for log, run in zip(logs, runs, strict=True):
        if run is log or not operations or operations[0].source != log.source:
            continue
        others = {one for one in log.threads if one not in run.threads}
        own = [one for one in operations if one.thread not in others]
        if not run.events:
            return own
        of_process = of_threads(log, run.threads) if others else log
        begins = [one.events[0].line for one in split(of_process)]
        number = begins.index(run.events[0].line)
        first = begins[number] if number else 0
        last = begins[number + 1] if number + 1 < len(begins) else None
        return [one for one in own if first <= one.line and (last is None or one.line < last)]
    return operations


def _nearest(profile: Profile, log: FrameworkLog, notes: Notes) -> Chosen:
    processes = by_process(log)
    if len(processes) > 1:
        tids = {thread.tid for thread in profile.threads} | {profile.process.pid}
        own = [one for one in processes if not tids.isdisjoint(one.threads)]
        processes = own or processes
    runs = [run for process in processes for run in _once(split(process))]
    if len(runs) == 1:
        return Chosen(runs)
    last = next((e.host_end_ns for e in reversed(profile.activities) if e.host_end_ns is not None), None)
    away = []
    unix = profile.clocks[0].as_unix
    if unix is not None and last is not None:
        last += unix.offset_ns
        ends = ((number, _end(run)) for number, run in enumerate(runs))
        away = [(abs(log_clock(end, last, "").residual_ns), number) for number, end in ends if end is not None]
    if away:
        number = min(away)[1]
        notes.add(f"log of {len(runs)} runs: run {number + 1} ends with the profile, the others are left out")
        return Chosen([runs[number]])
    notes.add(f"log of {len(runs)} runs and nothing to tell which is the profile's: the last one is taken, in doubt")
    return Chosen(runs[-1:], LAST, len(set(map(_layers, runs))) == 1)


def _layers(run: FrameworkLog) -> object:
    printed = dict.fromkeys((layer.layer, layer.direction) for layer in run.layers)
    return tuple(layer.layer for layer in run.net), tuple(printed), run.iterations


def _once(runs: Sequence[FrameworkLog]) -> list[FrameworkLog]:
    """Without those that were written twice: the same stamps, line by line."""
    told: list[FrameworkLog] = []
    prints: set[object] = set()
    for run in runs:
        events = tuple((event.kind, event.text, event.stamp) for event in run.events)
        if events not in prints:
            told.append(run)
        if any(stamp is not None for *_, stamp in events):
            prints.add(events)
    return told


def _end(run: FrameworkLog) -> LocalTime | None:
    stamps = [event.stamp for event in run.events if event.kind == "iteration" and event.stamp is not None]
    if not stamps and run.layers and run.layers[-1].line > (run.events[-1].line if run.events else 0):
        stamps = [layer.stamp for layer in run.layers if layer.stamp is not None]
    return stamps[-1] if stamps else run.last_stamp
