"""Aligned records become a picture: tracks, nested slices, arrows, counters, metadata (trace-contract.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

import msgspec

from mio2trace.align import Alignment
from mio2trace.align.clocks.reach import FAR_NS
from mio2trace.draw import by_name, counters, device, executions, host, printed, rates
from mio2trace.draw.base import TimeBase, time_base
from mio2trace.draw.by_name import Tracks
from mio2trace.draw.device import Fold
from mio2trace.draw.selection import Chosen, Selection, choose
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import MiopenLog
from mio2trace.model.tf import TfProfile
from mio2trace.notes import Notes, OptionError
from mio2trace.trace import NO_ARGS, CounterValue, Event, Slice, Trace

HostCalls = Literal["all", "enqueue", "none"]

HOST = 1
FIRST_DEVICE = 100
"""Process numbers, which viewers append to the names: hosts from 1, devices from 100."""
_FAR_NS = 3600 * 10**9
"""Times keep the zero of the whole picture; what begins later than this, a zero of its own: numbers stay readable."""


class BuildOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to draw: ``host_calls``, ``tracks`` and ``fold`` as the command's options; ``selection``: of which part.

    ``with_args`` False leaves out the arguments of all slices.
    """

    host_calls: HostCalls = "enqueue"
    tracks: tuple[Tracks, ...] = ()
    fold: tuple[Fold, ...] = ()
    selection: Selection = Selection()
    with_args: bool = True


class _Profile(NamedTuple):
    """What is drawn of one profile."""

    alignment: Alignment
    base: TimeBase
    device: device.DeviceSide
    host: host.HostSide
    rows: by_name.ByNameSide | None


def build(
    alignments: Sequence[Alignment],
    logs: Sequence[FrameworkLog],
    options: BuildOptions,
    metadata: dict[str, object],
    notes: Notes,
    tf_profiles: Sequence[TfProfile] = (),
    libraries: Sequence[MiopenLog] = (),
) -> Trace:
    """Draw every profile (usually one), or the logs alone when there is none. ``metadata`` gains the time base.

    Raises `OptionError` for a selection of what is not there.
    """
    drawn: list[_Profile] = []
    next_process = FIRST_DEVICE
    reach: tuple[int, int] | None = None
    for number, alignment in enumerate(alignments):
        suffix = f" of profile {number + 1}" if number else ""
        base = _beside(reach, alignment, time_base(alignment, notes), notes)
        side = device.DeviceSide(
            alignment, base, next_process, _device_name(logs), suffix, frozenset[Fold](options.fold)
        )
        seen = host.HostSide(
            alignment, base, side, HOST + number, options.host_calls, suffix, notes, () if number else libraries
        )
        reach = reach or _reach((side, seen))
        next_process = side.next_process
        rows = None
        if options.tracks:
            rows = by_name.ByNameSide(alignment, base, side, options.tracks, next_process, suffix)
            next_process += 100_000  # they are numbered when they are filled
        drawn.append(_Profile(alignment, base, side, seen, rows))
    parts: list[_Part] = [side for one in drawn for side in (one.device, one.host)]
    tf = None
    if tf_profiles:
        base_of_first = drawn[0].base if drawn else None
        tf = executions.execution_side(tf_profiles, base_of_first, reach, HOST + len(drawn), next_process, notes)
        parts += [tf] if tf is not None else []
    if tf_profiles and not alignments and any(log.layers for log in logs):
        notes.add("a log's layers are not drawn beside TensorFlow's ops: no GPU profile relates their clocks")
    if not alignments and not tf_profiles:
        parts.append(printed.PrintedSide(logs, HOST, notes))
    origin = min((start for part in parts if (start := part.first_ns()) is not None), default=0)
    last = max((end for part in parts if (end := part.last_ns()) is not None), default=0)
    chosen: list[Chosen | None] = [None] * len(drawn)
    if not options.selection.everything:
        if not drawn:
            raise OptionError(f"{options.selection.options()}: there is no GPU profile to choose from")
        for number, one in enumerate(drawn):
            found = chosen[number] = choose(options.selection, one.alignment, one.base, origin, notes)
            one.device.show_only(found)
            one.host.show_only(found)
        if tf is not None:
            notes.remark("TensorFlow's ops are drawn whole: --from, --top and the like choose among kernels")
        first = min((start for part in parts if (start := part.first_ns()) is not None), default=origin)
        if first - origin > _FAR_NS:
            origin = first
    for one in drawn:
        if one.rows is not None:
            one.rows.fill()
            parts.append(one.rows)
    if drawn:
        metadata["clock"] = drawn[0].base.describe(drawn[0].alignment, origin)
    elif tf_profiles:
        metadata["clock"] = {"origin_utc": TimeBase(clock=None, shift={}, on_host=True).utc(origin)}

    trace = Trace(
        processes=tuple(process for part in parts for process in part.processes()),
        tracks=tuple(track for part in parts for track in part.tracks()),
        metadata=metadata,
        # The host's side is half of the work of writing: a writer may do the last part beside the others.
        parts=(
            *(partial(one.device.events, origin) for one in drawn),
            *(partial(part.events, origin) for part in parts if not isinstance(part, _ByProfile)),
            *(partial(part.events, origin) for part in parts if isinstance(part, host.HostSide)),
        ),
        counters={
            number: partial(_counters, one, origin, last, which)
            for number, (one, which) in enumerate(zip(drawn, chosen, strict=True))
        },
        arrows=tuple(partial(one.host.arrows, origin) for one in drawn if options.host_calls != "none"),
        counter_descriptions=rates.DESCRIPTIONS,
        left_out=sum(which.left_out for which in chosen if which is not None),
        left_out_ns=sum(which.left_out_ns for which in chosen if which is not None),
    )
    if options.with_args:
        return trace
    return msgspec.structs.replace(trace, parts=tuple(partial(_without_args, part) for part in trace.parts))


def _counters(one: _Profile, origin: int, last: int, chosen: Chosen | None) -> Iterator[CounterValue]:
    """The device's counters: where only a part is drawn those of the part, from its beginning to its end."""
    alignment = one.alignment
    if chosen is None:
        yield from counters.events(alignment, one.base, one.device, origin, last)
        yield from rates.events(alignment, one.base, one.device, origin, None)
        return
    facts = {position: fact for position, fact in alignment.facts.items() if chosen.drawn[position]}
    part = msgspec.structs.replace(alignment, facts=facts)
    first, end = one.device.first_ns(), one.device.last_ns()
    if first is None or end is None:
        return
    for events in (
        counters.events(part, one.base, one.device, origin, end),
        rates.events(alignment, one.base, one.device, origin, chosen),
    ):
        yield from _within(events, first - origin, end - origin)


def _within(values: Iterator[CounterValue], first: int, last: int) -> Iterator[CounterValue]:
    """Of each counter what it is from ``first`` to ``last``; without those of a device that is not drawn."""
    held: dict[tuple[int, str], CounterValue] = {}
    for value in values:
        if value.track is None:
            continue
        key = value.process, value.name
        if value.time_ns <= first:
            held[key] = msgspec.structs.replace(value, time_ns=first)
            continue
        before = held.pop(key, None)
        if before is not None:
            yield before
        if value.time_ns <= last:
            yield value
    yield from held.values()


def _without_args(part: Callable[[], Iterator[Event]]) -> Iterator[Event]:
    for event in part():
        if type(event) is Slice:
            yield Slice(event.track, event.start_ns, event.dur_ns, event.name, event.category, NO_ARGS)
        else:
            yield event


_ByProfile = device.DeviceSide | host.HostSide
_Part = device.DeviceSide | host.HostSide | by_name.ByNameSide | printed.PrintedSide | executions.ExecutionSide


def _beside(reach: tuple[int, int] | None, alignment: Alignment, base: TimeBase, notes: Notes) -> TimeBase:
    """``base``, moved to where the first profile is drawn if its clock is so far from that one's that no trace can hold
    both.
    """
    device_of = {queue.index: queue.device for queue in alignment.profile.queues}
    enqueues = alignment.profile.activities
    starts = [base.device(device_of.get(e.queue, 0), e.start_ns) for e in enqueues if e.start_ns is not None]
    if not starts:  # all that is drawn are calls
        calls = (*(e.host_start_ns for e in enqueues), *(call.start_ns for call in alignment.profile.other_calls))
        starts = [at for at in calls if at is not None]
    if reach is None or not starts or abs(min(starts) - reach[0]) < FAR_NS:
        return base
    notes.add("profiles of clocks that are far from each other: drawn from one zero")
    return base.moved(reach[0] - min(starts))


def _reach(parts: Sequence[_Part]) -> tuple[int, int] | None:
    """From when to when what is drawn so far reaches."""
    starts = [start for part in parts if (start := part.first_ns()) is not None]
    ends = [end for part in parts if (end := part.last_ns()) is not None]
    return (min(starts), max(ends)) if starts and ends else None


def _device_name(logs: Sequence[FrameworkLog]) -> str:
    return next((log.device_name for log in logs if log.device_name), "")


__all__ = ["BuildOptions", "Fold", "HostCalls", "Selection", "TimeBase", "Tracks", "build"]
