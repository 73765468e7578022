"""A log that several runs were written into one after another: which of them is the profile's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
from mio2trace.align.clocks.fit import log_clock
from mio2trace.model.log import FrameworkLog, LayerTime, LocalTime
from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation

_OPENERS = ("setting up", "forward begins", "benchmark begins")
"""What a run prints before its iterations; after them it can only be the next run's."""


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
    last_line = max([log.events[-1].line, *(layer.line for layer in log.layers)]) + 1
    return [_between(log, first, last) for first, last in pairwise([0, *cuts, last_line])]


def _between(log: FrameworkLog, first: int, last: int) -> FrameworkLog:
    events = tuple(event for event in log.events if first <= event.line < last)
    index: dict[str, int] = {}  # a log numbers its layers by name, over all its runs
    layers: list[LayerTime] = []
    for layer in log.layers:
        if first <= layer.line < last:
            number = index.setdefault(layer.layer, len(index))
            layers.append(msgspec.structs.replace(layer, index=number))
    built = {layer.layer: layer for layer in log.net}
    names = [event.text for event in events if event.kind == "setting up"]
    stamps = [event.stamp for event in events if event.stamp is not None]
    counts = {event.number for event in events if event.kind == "testing"}
    return msgspec.structs.replace(
        log,
        events=events,
        layers=tuple(layers),
        net=tuple(built[name] for name in dict.fromkeys(names) if name in built),
        iterations=counts.pop() if len(counts) == 1 else None,
        first_stamp=stamps[0] if stamps else None,
        last_stamp=stamps[-1] if stamps else None,
    )


def of_profile(profile: Profile, logs: Sequence[FrameworkLog], notes: Notes) -> list[FrameworkLog]:
    """Each log's run that the profile is of: the one whose end comes nearest to the end of the last activity."""
    return [_nearest(profile, log, notes) for log in logs]


def operations_of(
    operations: Sequence[Operation], logs: Sequence[FrameworkLog], runs: Sequence[FrameworkLog]
) -> Sequence[Operation]:
    """Of ``operations`` those that stand in the chosen one of a log's runs; ``runs[i]`` is the run of ``logs[i]``."""
    for log, run in zip(logs, runs, strict=True):
        if run is log or not operations or operations[0].source != log.source:
            continue
        begins = [one.events[0].line for one in split(log)]
        number = begins.index(run.events[0].line)
        first = begins[number] if number else 0
        last = begins[number + 1] if number + 1 < len(begins) else None
        return [one for one in operations if first <= one.line and (last is None or one.line < last)]
    return operations


def _nearest(profile: Profile, log: FrameworkLog, notes: Notes) -> FrameworkLog:
    runs = split(log)
    if len(runs) == 1:
        return log
    last = next((e.host_end_ns for e in reversed(profile.activities) if e.host_end_ns is not None), None)
    away = []
    for number, run in enumerate(runs):
        end = _end(run)
        if end is not None and last is not None:
            away.append((abs(log_clock(end, last, "").residual_ns), number))
    if away:
        number = min(away)[1]
        notes.add(f"log of {len(runs)} runs: run {number + 1} ends with the profile, the others are left out")
    else:
        number = len(runs) - 1
        notes.add(f"log of {len(runs)} runs and nothing to tell which is the profile's: the last one is taken")
    return runs[number]


def _end(run: FrameworkLog) -> LocalTime | None:
    stamps = [event.stamp for event in run.events if event.kind == "iteration" and event.stamp is not None]
    return stamps[-1] if stamps else run.last_stamp
