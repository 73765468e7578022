"""The host's side: its API calls with arrows to the commands that they launched; layers, library calls, lines of the
log."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np

from mio2trace.align import Alignment, LayerRun, Links
from mio2trace.align.clocks.reach import LONGEST_NS
from mio2trace.draw.base import ROW, Axis, Ids, TimeBase, alike, layer_args, merged, on_axis, shifted, told
from mio2trace.draw.device import DeviceSide
from mio2trace.draw.framework import allocators
from mio2trace.draw.host.calls import HostSpan, call_spans
from mio2trace.draw.host.threads import ApiCalls, Arrows, Threads
from mio2trace.draw.lanes import distinct, packed_spans
from mio2trace.draw.selection import Chosen
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import MiopenLog
from mio2trace.model.tables import NO, Activities, Numbers
from mio2trace.notes import Notes
from mio2trace.ops.aten import ROWS
from mio2trace.trace import NO_ARGS, Columns, Event, Flows, Process, Slice, Slices, Track, column, whole

_API = 1
_LAYERS = 2
_LOG = 3
_CALLS = 4
_MESSAGES = 5
_MORE = 6
_THREADS = 300
"""Track numbers within the process: additional lanes begin here, threads at 300."""
DISORDER_NS = 1_000_000
"""The clock counts as set back only if host times of successive calls are out of order by more than this."""

_HELP = "The program on the host, on the device's clock: host times are moved by the profile's offset."
_HELP_LAYERS = (
    "From a layer's start to its end as the host saw it: beside its kernels, a layer that waits for the host."
)
_HELP_LOG = "Warm-up and iterations as the framework's log bounds them."
_CALLED = {(True, False): "MIOpen calls", (False, True): "PyTorch ops", (True, True): "MIOpen calls and PyTorch ops"}
"""By whether there is a call of MIOpen, and whether there is an op."""
_HELP_CALLS = (
    "Operations. With kernels: from its first enqueue to the end of its last. Without: it began and ended in this "
    "time, which the log's lines and calls around it bound."
)
_HELP_MESSAGES = (
    "Warnings and errors of MIOpen. One without a stamp came at this time or up to within_ns later: what is around it "
    "bounds it."
)

_Span = tuple[int, int, str, dict[str, Any]]
"""(start, end, name, arguments), on the axis of the trace."""


class HostSide:
    """Draws the host of one profile; nothing if host times are missing or not related to the device's."""

    def __init__(  # noqa: PLR0913 - the last is keyword-only
        self,
        alignment: Alignment,
        base: TimeBase,
        device: DeviceSide,
        process: int,
        host_calls: str,
        suffix: str,
        notes: Notes,
        ids: Ids,
        *,
        libraries: Sequence[MiopenLog] = (),
    ) -> None:
        self._alignment = alignment
        self._chosen: Chosen | None = None
        self._base = base
        self._to_axis = Axis(base)
        self._axis = self._to_axis.at
        self._device = device
        self._wanted = process
        self._process = ids.take(process)
        self._number = functools.cache(ids.take)  # the lane of a track, by its number in a small trace
        self._suffix = suffix
        related = base.host(0) is not None
        profile = alignment.profile
        if related and not base.on_host and _was_set_back(profile.commands):
            notes.add("host clock was set back during the run: the host's side is left out")
            related = False
        self._api: ApiCalls | Threads | None = None
        calls_drawn = related and host_calls != "none"
        if calls_drawn and (profile.calls_wait and not profile.ranges and len(profile.threads) < 2):
            self._api = ApiCalls(profile, self._to_axis, self._process, self._track(_API))
        elif calls_drawn or (related and profile.ranges):
            self._api = Threads(profile, self._to_axis, self._process, self._thread_track, with_calls=calls_drawn)
        self._middle = self._somewhere()
        self._far = 0
        self._runs: list[LayerRun] = []
        begins: dict[int, int] = {}
        ends: dict[int, int] = {}
        for run in alignment.links.runs if related else ():
            start, end, pass_ = run.host_start_ns, run.host_end_ns, run.pass_
            if start is None or end is None or end < start or not self._is_near((start, end)):
                continue
            self._runs.append(run)
            begins[pass_] = min(start, begins.get(pass_, start))
            ends[pass_] = max(end, ends.get(pass_, end))
        self._passes = {pass_: (self._axis(start), self._axis(ends[pass_])) for pass_, start in begins.items()}
        self._log = self._log_spans(alignment.logs) if related else []
        self._calls: list[list[HostSpan]] = []
        self._messages: list[list[HostSpan]] = []
        apis = [operation.api for operation in alignment.links.operations]
        self._called = _CALLED.get((any(api not in ROWS for api in apis), any(api in ROWS for api in apis)), "Calls")
        if related:
            calls, messages = call_spans(device.measures, libraries, with_kernels=calls_drawn)
            self._calls, self._messages = self._rows(calls), self._rows(messages)
        if self._far:
            notes.add("time of the log far from the profile: left out", count=self._far)

    def _somewhere(self) -> int:
        """Return any host time within the profile."""
        commands, calls = self._alignment.profile.commands, self._alignment.profile.lone_calls
        starts = np.append(commands.host_start_ns[:1000], calls.start_ns[:1000])
        ends = np.append(commands.host_end_ns[:1000], calls.end_ns[:1000])
        known = starts[(starts != NO) & (ends != NO)]
        return int(known[0]) if len(known) else 0

    def _is_near(self, span: tuple[int, int]) -> bool:
        """Return whether a span of host times can be drawn with the profile."""
        if span[1] - LONGEST_NS // 3 < self._middle < span[0] + LONGEST_NS // 3:
            return True
        self._far += 1
        return False

    def _rows(self, spans: list[HostSpan]) -> list[list[HostSpan]]:
        """Return lanes of spans on the axis. ``spans`` is emptied, because a run may have a million."""
        axis = self._axis
        spans[:] = [one for one in spans if self._is_near((one.start, one.end))]
        for place, one in enumerate(spans):
            start = axis(one.start)
            end = max(start, axis(one.end))  # a clock that was set back meanwhile would end it before its start
            spans[place] = HostSpan(start, end, one.name, one.category, one.args, one.operation)
        return packed_spans(spans, lambda one: (one.start, max(one.end, one.start + 1)))

    def show_only(self, chosen: Chosen) -> None:
        self._chosen = chosen
        if self._api is not None:
            self._api.show_only(chosen)
        number_of = {id(run): number for number, run in enumerate(self._alignment.links.runs)}
        passes = self._alignment.links.passes
        runs = []
        for run in self._runs:
            start, end = self._placed(run)
            if not chosen.has_iteration(passes[run.pass_].iteration) or chosen.clip(start, end) is None:
                continue
            if end - start >= chosen.min_ns if not chosen.longest_only else number_of[id(run)] in chosen.runs:
                runs.append(run)
        self._runs = runs
        log = []
        for start, end, name, args in self._log:
            clipped = chosen.clip(start, end) if chosen.has_iteration(args.get("iteration")) else None
            if clipped is not None and clipped[1] - clipped[0] >= chosen.min_ns:
                log.append((*clipped, name, args if clipped == (start, end) else {**args, "cut": True}))
        self._log = log
        self._calls = [kept for row in self._calls if (kept := list(self._kept(row)))]
        self._messages = [kept for row in self._messages if (kept := list(self._kept(row)))]

    def _kept(self, row: Sequence[HostSpan]) -> Iterator[HostSpan]:
        """Return the library calls and lines of the log that belong to drawn kernels or to the drawn time."""
        chosen = self._chosen
        assert chosen is not None
        for one in row:
            if one.start == one.end:
                if not chosen.longest_only and chosen.has_time(one.start, one.end + 1):
                    yield one
                continue
            holds = one.operation is not None and one.operation.index in chosen.operations
            is_long = not chosen.longest_only and one.end - one.start >= chosen.min_ns
            clipped = chosen.clip(one.start, one.end)
            if clipped is None or not (holds or (is_long and chosen.has_time(one.start, one.end))):
                continue
            if clipped != (one.start, one.end):
                args = {**one.shown_args(), "cut": True}
                yield msgspec.structs.replace(one, start=clipped[0], end=clipped[1], args=args)
            else:
                yield one

    def _log_spans(self, logs: Sequence[FrameworkLog]) -> list[_Span]:
        """Return the spans that the log itself bounds: warm-up and iterations, as printed."""
        clock = self._alignment.log_clock
        if clock is None:
            return []
        spans: list[_Span] = []
        for log in logs:
            opened: tuple[int, str] | None = None
            for event in log.events:
                if event.stamp is None:
                    continue
                host = clock.to_host(event.stamp)
                if not self._is_near((host - (event.duration_ns or 0), host)):
                    continue
                at = self._axis(host)
                if event.kind in ("forward begins", "backward begins"):
                    opened = at, f"warm-up · {'forward' if event.kind == 'forward begins' else 'backward'}"
                elif event.kind in ("forward ends", "benchmark begins") and opened is not None:
                    spans.append((opened[0], at, opened[1], {"iteration": 0, "line": event.line}))
                    opened = None
                elif event.kind == "iteration" and event.duration_ns is not None:
                    args: dict[str, Any] = {"line": event.line, "printed_ns": event.duration_ns}
                    if event.number is not None:
                        args["iteration"] = event.number
                    spans.append((at - event.duration_ns, at, f"iteration {event.number}", args))
        spans.sort(key=lambda span: span[0])
        kept: list[_Span] = []
        for start, end, name, args in spans:
            start = max(start, kept[-1][1]) if kept else start
            if end > start:
                kept.append((start, end, name, args))
        return kept

    def _bounds(self) -> Iterator[int]:
        """Times that bound the whole host's side, among others."""
        if self._api is not None:
            yield from self._api.bounds()
        if self._chosen is None:
            for span in self._passes.values():
                yield from span
        else:  # cut to the window, as they are drawn
            for run in self._runs:
                yield from self._clipped(*self._placed(run))
        for start, end, _, _ in (*self._log[:1], *self._log[-1:]):
            yield start
            yield end
        for row in (*self._calls, *self._messages):
            yield row[0].start
            yield max(one.end for one in row)

    def first_ns(self) -> int | None:
        return min(self._bounds(), default=None)

    def last_ns(self) -> int | None:
        return max(self._bounds(), default=None)

    def processes(self) -> list[Process]:
        if not self.tracks():
            return []
        process, of = self._alignment.profile.process, self._alignment.profile.framework.name
        name = f"Host {process.label}".rstrip() + (f" ({of})" if of else "")
        if process.label and process.rank is not None and process.pid is not None:
            name += f" (pid {process.pid})"
        return [Process(id=self._process, name=f"{name}{self._suffix}", sort=0, description=_HELP)]

    def _thread_track(self, row: int) -> int:
        return self._number(self._wanted * 1000 + _THREADS + row)

    def _track(self, which: int) -> int:
        return self._number(self._wanted * 10 + which)

    def tracks(self) -> list[Track]:
        present = (
            (_LAYERS, "Layers on the host", _HELP_LAYERS, bool(self._runs)),
            (_LOG, "Log", _HELP_LOG, bool(self._log)),
        )
        tracks = [] if self._api is None else self._api.tracks()
        tracks += [
            Track(id=self._track(which), process=self._process, name=name, sort=which, description=help_)
            for which, name, help_, drawn in present
            if drawn
        ]
        for number, (name, lane, help_, _) in self._lanes():
            label = f"{name} ({lane + 1})" if lane else name
            tracks.append(
                Track(id=self._number(number), process=self._process, name=label, sort=number % 10, description=help_)
            )
        if len(tracks) > 1:
            # If the program waits, its calls are not beside its layers.
            main = next((n for n, one in enumerate(tracks) if one.id == self._track(_LAYERS) and self._runs), 0)
            tracks[main] = msgspec.structs.replace(tracks[main], main=True)
        return distinct(tracks)

    def _lanes(self) -> Iterator[tuple[int, tuple[str, int, str, Sequence[HostSpan]]]]:
        """The lanes of library calls and of the log's messages, by the number of their track in a small trace."""
        more = self._wanted * 1000 + _MORE
        for which, name, help_, rows in (
            (_CALLS, self._called, _HELP_CALLS, self._calls),
            (_MESSAGES, "MIOpen log", _HELP_MESSAGES, self._messages),
        ):
            for lane, row in enumerate(rows):
                if lane:
                    more += 1
                yield (more if lane else self._wanted * 10 + which), (name, lane, help_, row)

    def events(self, origin: int, *, arrows: bool = True) -> Iterator[Event | Slices | Flows]:
        """Yield everything; without ``arrows`` everything else."""
        for start, end, name, printed in self._log:
            yield Slice(self._track(_LOG), start - origin, end - start, name, "log", printed)
        spans = [(*self._placed(run), run) for run in self._runs]
        clip = None if self._chosen is None else self._clipped
        yield from host_layers(self._alignment.links, spans, self._passes, clip, self._track(_LAYERS), origin)
        for number, (_, _, _, row) in self._lanes():
            track = self._number(number)
            for one in row:
                yield Slice(track, one.start - origin, one.end - one.start, one.name, one.category, one.shown_args())
        if isinstance(self._api, ApiCalls):
            yield from self._api.events(origin)
        elif self._api is not None:
            yield from self._api.events(origin, self._arrows(origin) if arrows else None)
        yield from self._allocators(origin)

    def _allocators(self, origin: int) -> Iterator[Event]:
        profile = self._alignment.profile
        if profile.framework.allocated:
            starts = [at for at in (self.first_ns(), self._device.first_ns()) if at is not None]
            ends = [at for at in (self.last_ns(), self._device.last_ns()) if at is not None]
            first, last = min(starts, default=None), max(ends, default=None)
            yield from allocators(profile, self._base, self._process, first, last, origin)

    def _placed(self, run: LayerRun) -> tuple[int, int]:
        return self._axis(run.host_start_ns or 0), self._axis(run.host_end_ns or 0)

    def _clipped(self, start: int, end: int) -> tuple[int, int]:
        """Return the part of a span in the drawn window."""
        return (self._chosen and self._chosen.clip(start, end)) or (start, end)

    def arrows(self, origin: int) -> Iterator[Flows]:
        """Yield only the arrows of `events`."""
        arrows = self._arrows(origin)
        if isinstance(self._api, Threads) and arrows is not None:
            yield from self._api.arrows(arrows)

    def _arrows(self, origin: int) -> Arrows | None:
        """Return a maker of the arrows from a track to what its calls launched.

        There is none from a call that waited: it ended after its activity, and viewers draw an arrow from the end of a
        slice. An arrow never points back in time, even if the stamps of two clocks do.
        """
        profile, commands, device = self._alignment.profile, self._alignment.profile.commands, self._device
        if profile.calls_wait:
            return None
        begins, ends = on_axis(profile, self._base)
        can_be_shown = commands.has_times & ~device.indistinct
        number = (self._process - 1) << 32  # unique over the profiles of a trace

        def arrows(positions: Numbers, track: int, starts: Numbers, stops: Numbers) -> Flows:
            nonlocal number
            begin, end = begins[positions], ends[positions]
            is_shown = can_be_shown[positions] & (begin >= starts) & ~((end <= stops) & (stops > begin))
            shown = positions[is_shown]
            ids = number + 1 + np.arange(len(shown))
            number += len(shown)
            from_ns, to_ns = shifted(starts[is_shown], -origin), shifted(begin[is_shown], -origin)
            return Flows("enqueue", track, ids, from_ns, device.track_of[shown], to_ns)

        return arrows


def _was_set_back(commands: Activities) -> bool:
    """Return whether a later call began clearly earlier: then one host time stands for two moments."""
    starts = commands.host_start_ns[commands.host_start_ns != NO]
    return bool((starts < np.maximum.accumulate(np.maximum(starts, 0)) - DISORDER_NS).any())


# -- Layers with known times on the host, inside their passes, on one track
# ----------------------------------------------


_Clip = Callable[[int, int], tuple[int, int]]
_Key = tuple[int, str | None, int | None]
_SPAN = itemgetter(0, 1)


def host_layers(
    links: Links,
    spans: Iterable[tuple[int, int, LayerRun]],
    passes: Mapping[int, tuple[int, int]],
    clip: _Clip | None,
    track: int,
    origin: int,
) -> Iterator[Slices]:
    """Return the slices in order, passes among their layers.

    Times are on the axis: layers as (start, end, run), passes by number. Overlaps are clipped, because containers may
    be. A span without duration occupies one nanosecond of the track, so that nothing else begins there. ``clip``: the
    drawn part of a span, if it may be less than all.
    """
    by_pass: dict[int, list[tuple[int, int, LayerRun]]] = {}
    for span in spans:
        by_pass.setdefault(span[2].pass_, []).append(span)
    likes: dict[_Key, Slice] = {}
    row: list[tuple[Slice, int, int, int | None, bool | None]] = []
    drawn: list[Slice] = []
    places: list[int] = []
    done: int | None = None
    for number, layers in sorted(by_pass.items(), key=lambda item: passes[item[0]]):
        pass_ = links.passes[number]
        begin, until = whole = passes[number]
        if clip is not None:
            begin, until = clip(*whole)
        cut = {} if whole == (begin, until) else {"cut": True}
        begin = done = begin if done is None else max(done, begin)
        before = len(row)
        for first, last, run in sorted(layers, key=_SPAN):
            start, end = (first, last) if clip is None else clip(first, last)
            is_cut = True if start != first or end != last else None
            start = max(start, done)
            end = max(start, end)
            key = (run.layer_index, run.direction, run.printed_ns)
            if key not in likes:
                printed = {} if run.printed_ns is None else {"printed_ns": run.printed_ns}
                likes[key] = Slice(track, 0, 0, run.layer, "layer", NO_ARGS, layer_args(run) | printed)
            row.append((likes[key], start - origin, end - start, pass_.iteration, is_cut))
            done = max(end, start + 1)
            until = max(until, end)
        until = max(begin, until)
        iteration = {} if pass_.iteration is None else {"iteration": pass_.iteration}
        args = iteration if pass_.direction is None else {"direction": pass_.direction, **iteration}
        drawn.append(Slice(track, begin - origin, until - begin, pass_.name, "pass", {**args, **cut}))
        places.append(2 * before)
        done = max(until, done, begin + 1)
        if len(row) >= ROW:
            yield _drawn(track, row, drawn, places)
            row, drawn, places = [], [], []
    if drawn:
        yield _drawn(track, row, drawn, places)


def _drawn(
    track: int, layers: list[tuple[Slice, int, int, int | None, bool | None]], passes: list[Slice], places: list[int]
) -> Slices:
    """Return layers (like, start, duration, iteration, cut) with passes, each before the layer at half its place."""
    likes, starts, durations, iterations, cut = zip(*layers, strict=True)
    args = told({"iteration": column([*iterations]), "cut": column([*cut])})
    columns = Columns(alike(likes), np.array(starts, np.int64), np.array(durations, np.int64), args)
    order = merged(np.array(places, np.int64), np.arange(1, 2 * len(layers), 2))
    return Slices(track, (whole(passes), columns), order)
