"""Draw aligned records: tracks, nested slices, arrows, counters, metadata (trace-contract.md)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Literal

import msgspec
import numpy as np

from mio2trace.align import Alignment
from mio2trace.align.clocks.axis import FAR_NS
from mio2trace.draw import device, extra, host
from mio2trace.draw.base import FIRST_DEVICE, Ids, TimeBase, first_starts, framework_beside, reach_of, time_base
from mio2trace.draw.device import Fold
from mio2trace.draw.extra import Tracks
from mio2trace.draw.selection import Chosen, Selection, choose, steady_iteration, steady_iterations
from mio2trace.machine import give_back_freed_memory
from mio2trace.measures import Measures
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import MiopenLog
from mio2trace.notes import Notes, OptionError
from mio2trace.trace import (
    NO,
    NO_ARGS,
    CounterValue,
    CounterValues,
    Event,
    Group,
    Part,
    Slice,
    Trace,
    each,
)

HostCalls = Literal["all", "enqueue", "none"]

_FAR_NS = 3600 * 10**9
"""Times count from the zero of the whole trace. A part that begins later than this gets its own zero, so that numbers
stay readable."""


class BuildOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the trace. ``host_calls``, ``tracks`` and ``fold``: the command's options. ``selection``: the part
    to draw.

    ``with_args``: False leaves out the arguments of all slices.
    """

    host_calls: HostCalls = "enqueue"
    tracks: tuple[Tracks, ...] = ()
    fold: tuple[Fold, ...] = ()
    selection: Selection = Selection()
    with_args: bool = True


class RunToDraw(msgspec.Struct, frozen=True, kw_only=True):
    """A run with the costs of its profiles, or only its logs. ``name``: distinguishes it from the others in the trace.

    ``measures``: that of a framework's own profile comes last. ``libraries``: the MIOpen logs of each profile, or of
    none.
    """

    name: str = ""
    measures: Sequence[Measures] = ()
    logs: Sequence[FrameworkLog] = ()
    libraries: Sequence[Sequence[MiopenLog]] = ()


class _Profile(msgspec.Struct):
    """The drawn parts of one profile. ``chosen``: the part to draw, None for all of it."""

    alignment: Alignment
    base: TimeBase
    device: device.DeviceSide
    host: host.HostSide
    rows: extra.ByNameSide | None
    chosen: Chosen | None = None


class _Run:
    """One run on its own axis, with the selected part. ``left_out``: profiles of a framework whose clock cannot be
    related to that of the first profile."""

    def __init__(self, run: RunToDraw, options: BuildOptions, ids: Ids, notes: Notes, several: bool) -> None:
        of = f" of {run.name}" if several else ""
        self.profiles: list[_Profile] = []
        self._notes = notes
        self.left_out: list[Alignment] = []
        device_name = next((log.device_name for log in run.logs if log.device_name), "")
        reach: tuple[int, int] | None = None
        labels: set[str] = set()
        for number, measures in enumerate(run.measures):
            alignment = measures.alignment
            process = alignment.profile.process.label
            of_framework = bool(alignment.profile.framework.nodes)
            named = process and process not in labels
            labels.add(process)
            other = f"profile {number + 1}" if number and not named else ""
            suffix = (f" of {other}" if other and not of_framework else "") + of
            if number and of_framework:
                beside = framework_beside(alignment, self.profiles[0].base, reach, notes)
                if beside is None:
                    self.left_out.append(alignment)
                    continue
                alignment, measures = beside, Measures(beside)
                base = time_base(alignment, notes)
            else:
                base = _beside(reach, alignment, time_base(alignment, notes), notes)
            whose = " of ".join(filter(None, (process, other)))
            side = device.DeviceSide(
                measures, base, device_name, suffix, ids, frozenset[Fold](options.fold),
                process=", ".join(filter(None, (run.name if several else "", whose))),
            )  # fmt: skip
            seen = host.HostSide(
                alignment, base, side, options.host_calls, suffix, notes, ids,
                libraries=run.libraries[number] if number < len(run.libraries) else (),
            )  # fmt: skip
            reach = reach or reach_of(side, seen)
            rows = None
            if options.tracks:
                name = f" of {process}{of}" if process else suffix
                rows = extra.ByNameSide(alignment, base, side, options.tracks, name, ids)
            self.profiles.append(_Profile(alignment, base, side, seen, rows))
        self.parts: list[_Part] = [side for one in self.profiles for side in (one.device, one.host)]
        if not run.measures:
            self.parts.append(extra.PrintedSide(run.logs, notes, ids, of))
        elif run.measures[0].alignment.profile.framework.nodes and any(log.layers for log in run.logs):
            notes.add(
                "layers of a log left out: without a GPU profile their clock is not related to the framework's ops"
            )
        self.origin, self.last = reach_of(*self.parts) or (0, 0)

    def choose(self, selection: Selection) -> None:
        if not any(_has_device(one.alignment) for one in self.profiles):
            raise OptionError(f"{selection.options()}: there is no GPU profile to choose from")
        for one in self.profiles:
            if not _has_device(one.alignment):
                self._notes.remark("ops on the host are complete: --from, --top and the like select kernels only")
                continue
            found = one.chosen = choose(selection, one.alignment, one.base, self.origin, self._notes)
            one.device.show_only(found)
            one.host.show_only(found)
        first, _ = reach_of(*self.parts) or (self.origin, 0)
        if first - self.origin > _FAR_NS:
            # Containers of the drawn kernels and layers begin before them: their part in the window is drawn.
            starts = (start for one in self.profiles for side in (one.device, one.host) for start in side.begins())
            self.origin = min(first, min(starts, default=first))

    def fill_rows(self) -> None:
        for one in self.profiles:
            if one.rows is not None:
                one.rows.fill()
                self.parts.append(one.rows)

    def clock(self) -> dict[str, object]:
        if self.profiles:
            first = self.profiles[0]
            return first.base.describe(first.alignment, self.origin) | _process_clocks(self.profiles)
        return {}


def build(runs: Sequence[RunToDraw], options: BuildOptions, metadata: dict[str, object], notes: Notes) -> Trace:
    """Draw each profile of each run, or only its logs if it has none. Each of several runs begins at zero.

    ``metadata`` gets the time base. Raises `OptionError` for a selection that is not in the run.
    """
    ids = Ids()
    drawn = [_Run(run, options, ids, notes, len(runs) > 1) for run in runs]
    for of, run in zip(runs, drawn, strict=True):
        if not options.selection.everything:
            give_back_freed_memory()  # the window needs much less than the whole run did
            try:
                run.choose(options.selection)
            except OptionError as error:
                raise OptionError(f"{error}; in {of.name}" if len(drawn) > 1 else str(error)) from None
        run.fill_rows()
    metadata["clock"] = drawn[0].clock()
    if len(drawn) > 1:
        metadata["runs"] = [{"name": of.name, "clock": run.clock()} for of, run in zip(runs, drawn, strict=True)]
    profiles = [(run, one) for run in drawn for one in run.profiles]
    parts = [(run, part) for run in drawn for part in run.parts]
    before_hosts: tuple[Part, ...] = (
        *(partial(one.device.events, run.origin) for run, one in profiles),
        *(partial(part.events, run.origin) for run, part in parts if not isinstance(part, _ByProfile)),
    )
    hosts = [(run, part) for run, part in parts if isinstance(part, host.HostSide)]
    trace = Trace(
        processes=tuple(process for _, part in parts for process in part.processes()),
        tracks=tuple(track for _, part in parts for track in part.tracks()),
        metadata=metadata,
        parts=(*before_hosts, *(partial(part.events, run.origin) for run, part in hosts)),
        without_arrows=(*before_hosts, *(partial(part.events, run.origin, arrows=False) for run, part in hosts)),
        counters={number: partial(_counters, one, run.origin, run.last) for number, (run, one) in enumerate(profiles)},
        arrows=tuple(partial(one.host.arrows, run.origin) for run, one in profiles if options.host_calls != "none"),
        counter_descriptions=extra.DESCRIPTIONS,
        in_view=partial(_in_view, profiles),
        steady=partial(_steady, profiles),
        groups=tuple(_group(one, number) for number, (_, one) in enumerate(profiles)),
        left_out=sum(one.chosen.left_out for _, one in profiles if one.chosen is not None)
        + sum(len(alignment.profile.activities) for run in drawn for alignment in run.left_out),
        left_out_ns=sum(one.chosen.left_out_ns for _, one in profiles if one.chosen is not None)
        + sum(sum(one.profile.commands.time_ns.tolist()) for run in drawn for one in run.left_out),
    )
    if options.with_args:
        return trace
    return msgspec.structs.replace(
        trace,
        parts=tuple(partial(_without_args, part) for part in trace.parts),
        without_arrows=tuple(partial(_without_args, part) for part in trace.without_arrows or ()),
    )


def _group(one: _Profile, number: int) -> Group:
    sides: list[_Part] = [one.device, one.host, *([] if one.rows is None else [one.rows])]
    return Group(
        name=one.alignment.profile.process.label or f"profile {number + 1}",
        processes=frozenset(process.id for side in sides for process in side.processes()),
    )


def _in_view(profiles: Sequence[tuple[_Run, _Profile]]) -> tuple[int, int] | None:
    """Return the times of the first profile with a steady iteration, on the trace's axis."""
    for run, one in profiles:
        span = steady_iteration(one.device.measures, one.base, one.chosen)
        if span is not None:
            return max(0, span[0] - run.origin), max(0, min(span[1], run.last) - run.origin)
    return None


def _steady(profiles: Sequence[tuple[_Run, _Profile]]) -> dict[int, tuple[int, int]]:
    """Return the steady iterations of the first profile that has them, on the trace's axis."""
    for run, one in profiles:
        spans = steady_iterations(one.device.measures, one.base, one.chosen)
        if spans:
            return {number: (start - run.origin, end - run.origin) for number, (start, end) in spans.items()}
    return {}


def _counters(one: _Profile, origin: int, last: int) -> Iterator[CounterValue | CounterValues]:
    """Return the device's counters; if only a part is drawn, from its beginning to its end."""
    alignment, chosen = one.alignment, one.chosen
    if chosen is None:
        yield from extra.events(alignment, one.base, one.device, origin, last)
        yield from extra.rate_events(alignment, one.base, one.device, origin, None)
        return
    facts = {position: fact for position, fact in alignment.facts.items() if chosen.drawn[position]}
    part = msgspec.structs.replace(alignment, facts=facts)
    reach = reach_of(one.device)
    if reach is None:
        return
    first, end = reach
    both: tuple[Iterator[CounterValue | CounterValues], ...] = (
        extra.events(part, one.base, one.device, origin, end),
        extra.rate_events(alignment, one.base, one.device, origin, chosen),
    )
    for events in both:
        yield from _within(events, first - origin, end - origin)


def _within(
    values: Iterable[CounterValue | CounterValues], first: int, last: int
) -> Iterator[CounterValue | CounterValues]:
    """Yield the values of each counter from ``first`` to ``last``, without devices that are not drawn."""
    held: dict[tuple[int, str], CounterValue] = {}
    for row in values:
        if row.track is None:
            continue
        key = row.process, row.name
        times, its = ([row.time_ns], [row.value]) if isinstance(row, CounterValue) else (row.times, row.values)
        begin, end = bisect_right(times, first), bisect_right(times, last)
        if begin:
            held[key] = CounterValue(*key, row.unit, first, its[begin - 1], row.track)
        if begin < len(times) and (before := held.pop(key, None)) is not None:
            yield before
        if begin < end:
            yield CounterValues(*key, row.unit, times[begin:end], its[begin:end], row.track)
    yield from held.values()


def _without_args(part: Part) -> Iterator[Event]:
    for event in each(part()):
        if type(event) is Slice:
            yield Slice(event.track, event.start_ns, event.dur_ns, event.name, event.category, NO_ARGS)
        else:
            yield event


def _process_clocks(profiles: Sequence[_Profile]) -> dict[str, object]:
    """Return how the clocks of a job's processes relate: ``offset_ns`` is added to a process's times."""
    processes = []
    for one in profiles:
        process, clock = one.alignment.profile.process, one.alignment.process_clock
        if clock is not None:
            of_file = process.label if process.label.startswith("file ") else None
            ids = {"rank": process.rank, "pid": process.pid, "name": of_file}
            known = {name: value for name, value in ids.items() if value is not None}
            shift = {"offset_ns": clock.shift_ns, "error_ns": clock.error_ns, "method": clock.method}
            processes.append({**known, **shift})
    return {"processes": processes} if processes else {}


_ByProfile = device.DeviceSide | host.HostSide
_Part = device.DeviceSide | host.HostSide | extra.ByNameSide | extra.PrintedSide


def _beside(reach: tuple[int, int] | None, alignment: Alignment, base: TimeBase, notes: Notes) -> TimeBase:
    """Return ``base``, moved as the clocks of a job's processes relate. If the clock is so far from the first profile's
    that no trace can hold both, it is moved to the place of that profile."""
    if alignment.process_clock is not None and base.on_host:
        base = base.moved(alignment.process_clock.shift_ns)
    if reach is None:
        return base
    profile = alignment.profile
    starts = [base.device(device, first) for device, first in first_starts(profile).items()]
    if not starts:  # only calls and ranges are drawn
        hosts_of = profile.commands.host_start_ns, profile.lone_calls.start_ns
        made = np.concatenate((*hosts_of, [one.start_ns for one in profile.ranges]))
        hosts = made[made != NO].astype(np.int64)
        starts = [at if (placed := base.host(at)) is None else placed for at in hosts.tolist()]
    if not starts or abs(min(starts) - reach[0]) < FAR_NS:
        return base
    notes.add("profiles whose clocks are far apart: each begins at zero")
    return base.moved(reach[0] - min(starts))


def _has_device(alignment: Alignment) -> bool:
    """Return whether it has more than ops on the host."""
    return bool(alignment.profile.activities or not alignment.profile.framework.nodes)


__all__ = ["FIRST_DEVICE", "BuildOptions", "Fold", "HostCalls", "RunToDraw", "Selection", "TimeBase", "Tracks", "build"]
