"""Additional tracks: a row for each kernel name, a row for each type of operation, and counters.

The nested track has the same kernels and operations. The slices here have categories of their own (``kernel by name``,
``operation by type``), so that no query and no check counts a kernel twice, and no arrow ends at them. Their few
arguments lead to the slice on the nested track.

Counters are the rates of GEMMs, and the memory that the program has created.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise, repeat
from operator import attrgetter, neg
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, Alignment
from mio2trace.align.clocks.axis import LONGEST_NS, MIDDLE_OF_2000_NS, bounded, local_ns
from mio2trace.align.layers.net import NetLayerSpec, read_net
from mio2trace.draw.base import ROW, Ids, TimeBase, all_three_digits, highest_shown, shifted, six_digits, three_digits
from mio2trace.draw.containers import in_lanes
from mio2trace.draw.device import DeviceSide
from mio2trace.draw.selection import Chosen
from mio2trace.model.log import Direction, FrameworkLog
from mio2trace.model.tables import NEVER, by_key
from mio2trace.notes import Notes
from mio2trace.ops.operation import operation_type
from mio2trace.trace import CounterValue, CounterValues, Event, Numbers, Process, Slice, Track

Tracks = Literal["kernels", "operations"]

_TITLES: dict[Tracks, str] = {"kernels": "Kernels by name", "operations": "Operations by type"}
_CATEGORIES: dict[Tracks, str] = {"kernels": "kernel by name", "operations": "operation by type"}
_HELP: dict[Tracks, str] = {
    "kernels": "One row per kernel name, most time first. Each slice has the name of the kernel's layer, if it has a"
    " layer; the kernel itself, with its arguments, is on the nested track.",
    "operations": "One row per type of operation, most time first. The operations themselves, with their arguments, are"
    " on the nested track.",
}
_NO_LAYER = "(no layer)"
_UNUSUAL = re.compile(r"[^\w .,:;<>()*&~+=-]+")


class _Shown(NamedTuple):
    start: int
    end: int
    name: str
    args: dict[str, Any]


class ByNameSide:
    """The rows of one profile, with a process for each device and kind."""

    def __init__(
        self,
        alignment: Alignment,
        base: TimeBase,
        device: DeviceSide,
        kinds: Sequence[Tracks],
        suffix: str,
        ids: Ids,
    ) -> None:
        self._ids = ids
        self._alignment = alignment
        self._base = base
        self._device = device
        self._kinds = [kind for kind in _TITLES if kind in kinds]
        self._suffix = suffix
        self._processes: list[Process] = []
        self._tracks: list[tuple[Track, str, list[_Shown]]] = []
        self._next_process = ids.device
        ids.device += 100_000  # its rows are numbered when they are filled

    def fill(self) -> None:
        several = len(self._device.process_of) > 1
        for kind in self._kinds:
            for device, rows in sorted(self._found(kind).items()):
                title = f"{_TITLES[kind]}{f', device {device}' if several else ''}{self._suffix}"
                process = track = self._ids.take(self._next_process)
                self._processes.append(
                    Process(id=process, name=title, sort=-5 + len(self._processes), description=_HELP[kind])
                )
                order = sorted(rows, key=lambda name: (-sum(one.end - one.start for one in rows[name]), name))
                for name in order:
                    spans = np.array([(bounded(one.start), bounded(one.end)) for one in rows[name]], np.int64)
                    for lane, own in enumerate(in_lanes(*spans.T)):
                        track = self._ids.take(track + 1)
                        label = f"{name} ({lane + 1})" if lane else name
                        row = Track(id=track, process=process, name=label, sort=track)
                        self._tracks.append((row, _CATEGORIES[kind], [rows[name][place] for place in own.tolist()]))
                self._next_process = track - track % 100 + 100

    def _found(self, kind: Tracks) -> dict[int, dict[str, list[_Shown]]]:
        """Return device -> row -> its content."""
        commands = self._alignment.profile.commands
        links = self._alignment.links
        operations = {operation.index: operation for operation in self._alignment.links.operations}
        found: dict[int, dict[str, list[_Shown]]] = {}
        for device, index, row, drawn in self._device.rows():
            rows = found.setdefault(device, {})
            if kind == "operations":
                if index != NONE:
                    operation = operations[index]
                    name, _ = self._device.containers.shown(operation)
                    span = [self._base.device(device, int(at))
                            for at in (commands.start_ns[row[0]], commands.end_ns[row[-1]])]  # fmt: skip
                    shown = _Shown(span[0], span[1], name, {"operation": index, **self._layer(row[0])})
                    rows.setdefault(f"{operation_type(operation)} calls", []).append(shown)
                continue
            for position in drawn[commands.is_kernel[drawn]].tolist():
                start, end = (
                    self._base.device(device, int(at[position])) for at in (commands.start_ns, commands.end_ns)
                )
                name = self._device.commands.slice_names[commands.name.values[commands.name.codes[position]]]
                layer = self._layer(position)
                args = {"call_index": int(commands.number[position]), **layer}
                if index != NONE:
                    args["operation"] = index
                label = layer.get("layer", _NO_LAYER if links.runs else name)
                rows.setdefault(_UNUSUAL.sub("_", name), []).append(_Shown(start, end, label, args))
        return {device: rows for device, rows in found.items() if rows}

    def _layer(self, position: int) -> dict[str, Any]:
        run = self._alignment.links.run_of[position]
        return {} if run == NONE else {"layer": self._alignment.links.runs[run].layer}

    def bounds(self) -> Iterator[int]:
        return iter(())  # the time is the device's

    def processes(self) -> list[Process]:
        return self._processes

    def tracks(self) -> list[Track]:
        return [track for track, _, _ in self._tracks]

    def events(self, origin: int) -> Iterator[Event]:
        for track, category, shown in self._tracks:
            for one in shown:
                yield Slice(track.id, one.start - origin, one.end - one.start, one.name, category, one.args)


# -- A log without a profile: its printed layer times, end to end; no kernel is made up --------------------------------


class PrintedSide:
    """One iteration of printed means in execution order; and the iterations themselves if the log has their stamps."""

    def __init__(self, logs: Sequence[FrameworkLog], notes: Notes, ids: Ids, suffix: str = "") -> None:
        process = ids.host
        ids.host += 1
        self._process = ids.take(process)
        self._suffix = suffix
        self._layers, self._log = ids.take(process * 10 + 1), ids.take(process * 10 + 2)
        self._iterations: list[tuple[int, int, str, dict[str, Any]]] = []
        found = []
        for log in logs:
            for event in log.events:
                if event.kind == "iteration" and event.stamp is not None and event.duration_ns:
                    found.append((local_ns(event.stamp, MIDDLE_OF_2000_NS), event.duration_ns, event))
        around = sorted(end for end, _, _ in found)[len(found) // 2] if found else 0
        for end, duration, event in found:
            start = end - duration
            if max(end - around, around - start) > LONGEST_NS // 2:
                notes.add("iteration far in time from all others: left out")
                continue
            args: dict[str, Any] = {"line": event.line, "printed_ns": duration}
            if event.number is not None:
                args["iteration"] = event.number
            if self._iterations:
                start = max(start, self._iterations[-1][1])
            if end > start:
                self._iterations.append((start, end, f"iteration {event.number}", args))
        room = LONGEST_NS
        self._directions: dict[Direction, list[tuple[NetLayerSpec, int]]] = {"forward": [], "backward": []}
        """The layers with their printed times, as long as there is room for them."""
        for layer, direction in read_net(logs, Notes()).execution_order():
            printed = layer.printed_ns(direction) or 0
            if printed > room:
                notes.add("layer's printed time longer than a trace: left out")
            elif printed:
                room -= printed
                self._directions[direction].append((layer, printed))

    def bounds(self) -> Iterator[int]:
        yield self._iterations[0][0] if self._iterations else 0
        yield self._iterations[-1][1] if self._iterations else self._length()

    def _length(self) -> int:
        return sum(printed for layers in self._directions.values() for _, printed in layers)

    def processes(self) -> list[Process]:
        return [Process(id=self._process, name=f"Host (printed times only){self._suffix}")]

    def tracks(self) -> list[Track]:
        tracks = []
        if self._length():
            tracks.append(Track(id=self._layers, process=self._process, name="Printed layer times, laid end to end"))
        if self._iterations:
            tracks.append(Track(id=self._log, process=self._process, name="Log", sort=1))
        return tracks

    def events(self, origin: int) -> Iterator[Event]:
        for start, end, name, args in self._iterations:
            yield Slice(self._log, start - origin, end - start, name, "log", args)
        at = 0
        track = self._layers
        for direction, layers in self._directions.items():
            total = sum(printed for _, printed in layers)
            if not total:
                continue
            yield Slice(track, at, total, f"mean iteration · {direction}", "pass", {"direction": direction})
            for layer, printed in layers:
                shown = {
                    "layer": layer.layer,
                    "layer_index": layer.index,
                    "direction": direction,
                    "printed_ns": printed,
                }
                if layer.output:
                    shown["output"] = layer.output
                yield Slice(track, at, printed, layer.layer, "layer", shown)
                at += printed


def events(
    alignment: Alignment, base: TimeBase, side: DeviceSide, origin: int, last: int
) -> Iterator[CounterValue | CounterValues]:
    """Return ``GEMM GFLOP/s`` per device and ``OpenCL buffers MB``."""
    yield from _rates("GEMM", "GFLOP/s", _gemms(alignment, base, side, origin), side)
    yield from _buffers(alignment, base, side, origin, last)


def _gemms(alignment: Alignment, base: TimeBase, side: DeviceSide, origin: int) -> _Spans:
    """Return the FLOPs of each GEMM divided by the time of its kernels."""
    commands, devices = alignment.profile.commands, alignment.profile.devices_of_commands
    gemms = {position: fact.gemm for position, fact in alignment.facts.items() if fact.gemm is not None}
    rows, flop = np.fromiter(gemms, np.int64, len(gemms)), np.array([gemm.flop for gemm in gemms.values()], float)
    starts, ends, took = commands.start_ns[rows], commands.end_ns[rows], commands.time_ns[rows]
    is_timed = took > 0
    for at, position in enumerate(gemms):
        if position in side.commands.several:  # the rate is that of the whole GEMM
            _, took[at], ends[at] = side.commands.several[position]
    found: _Spans = {}
    for device, own in by_key(np.flatnonzero(is_timed), devices[rows[is_timed]]):
        shift = base.device(device, -origin)
        found[device] = [(shifted(starts[own], shift), shifted(ends[own], shift), flop[own] / took[own])]
    return found


def _in_rows(values: Iterator[tuple[int, float]]) -> Iterator[tuple[list[int], list[float]]]:
    """Yield times and values, a limited number at once."""
    while row := [*islice(values, ROW)]:
        yield [at for at, _ in row], [value for _, value in row]


def _buffers(alignment: Alignment, base: TimeBase, side: DeviceSide, origin: int, last: int) -> Iterator[CounterValue]:
    """Return the bytes of buffers. Releases are not profiled: a handle that occurs again was released."""
    live: dict[str, int] = {}
    total = 0
    # Beside the first device with drawn slices: without a device there would be nothing else.
    tracks = [(process, side.counter_tracks.get(process)) for process in sorted(side.process_of.values())]
    process, track = next(((process, track) for process, track in tracks if track is not None), (0, None))
    if track is None:
        return
    pending: CounterValue | None = None
    shown: float | None = None
    for buffer in alignment.profile.opencl.buffers:
        if live.get(buffer.handle) == buffer.size_bytes:
            continue  # no change
        total += buffer.size_bytes - live.get(buffer.handle, 0)
        live[buffer.handle] = buffer.size_bytes
        at = None if buffer.end_ns is None else base.host(buffer.end_ns)
        if at is None or at > last:
            continue
        at = max(at, origin) - origin
        if pending is not None:
            if pending.time_ns > at:
                at = pending.time_ns
            if pending.time_ns != at and pending.value != shown:
                yield pending
                shown = pending.value
        pending = CounterValue(process, "OpenCL buffers", "MB", at, six_digits(total / 1e6), track)
    if pending is not None and pending.value != shown:
        yield pending


# -- Rates of operations and traffic, and how busy the device is -------------------------------------------------------


RATE = "Operations"
TRAFFIC = "Memory traffic"
BUSY = "Device busy"
_PAUSES = "; pauses shorter than what came before are not drawn."
_OUTLIERS = " What is far above 95 % of the rates is drawn at four times these: its slice has the rate."
DESCRIPTIONS = {
    RATE: "Floating-point operations of a library operation over the time of its kernels" + _PAUSES + _OUTLIERS,
    TRAFFIC: "Bytes that an operation must at least read and write (each tensor once) or a copy moves, over the time of"
    " its kernels. What runs outside operations is not in it" + _PAUSES + _OUTLIERS,
    BUSY: "Share of the time in which the device ran any command, over stretches of equally many commands of one pass.",
    "GEMM": "What the matrix products achieve: 2 M N K batch over the time of their kernels" + _PAUSES + _OUTLIERS,
    "OpenCL buffers": "Bytes of buffers created. Releases are not profiled: a handle that comes again was released.",
}

_STRETCHES = 500
_SHORTEST = 8
"""The most spans for which the share is computed, and the fewest commands of each."""
_NEVER = (1 << 63, 0, 0.0)
"""The values after the last change."""


def rate_events(
    alignment: Alignment, base: TimeBase, side: DeviceSide, origin: int, chosen: Chosen | None
) -> Iterator[CounterValue | CounterValues]:
    """Return per device ``Operations GFLOP/s``, ``Memory traffic GB/s`` if known, and ``Device busy %``."""
    achieved, traffic = _achieved(alignment, base, side, origin)
    yield from _rates(RATE, "GFLOP/s", achieved, side)
    yield from _rates(TRAFFIC, "GB/s", traffic, side)
    yield from _busy(alignment, base, side, origin, chosen)


_Spans = dict[int, list[tuple[Numbers, Numbers, NDArray[np.float64]]]]
"""The work on each device in columns: begin, end and rate."""


def _rates(name: str, unit: str, spans: _Spans, side: DeviceSide) -> Iterator[CounterValues]:
    """Return the counter of each device. Empties ``spans`` meanwhile, because a run may have a million."""
    for device in sorted(spans):
        starts, ends, rates = map(np.concatenate, zip(*spans.pop(device), strict=True))
        rates = np.minimum(rates, highest_shown(rates.tolist()))
        order = np.argsort(starts, kind="stable")
        starts, ends, rates = starts[order], ends[order], rates[order]
        process = side.process_of[device]
        track = side.counter_tracks.get(process)
        if (starts < ends).all() and (ends[:-1] <= starts[1:]).all():
            rows = _one_after_another(starts, ends, rates)
        else:
            rows = _in_rows(_steps(_changes(starts.tolist(), ends.tolist(), rates.tolist())))
        for times, values in rows:
            yield CounterValues(process, name, unit, times, values, track)


def _one_after_another(
    starts: Numbers, ends: Numbers, rates: NDArray[np.float64]
) -> Iterator[tuple[list[int], list[float]]]:
    """Yield the same rows as `_steps` of operations that do not overlap, as on most queues."""
    pauses = np.append(starts[1:] - ends[:-1], NEVER)
    times, values = np.stack((starts, ends), 1).ravel(), np.zeros(2 * len(starts))
    values[::2] = all_three_digits(np.maximum(rates, 0.0))
    is_shown = np.ones(len(times), bool)
    is_shown[1::2] = (pauses != 0) & (pauses >= ends - starts)
    times, values = times[is_shown], values[is_shown]
    changes = np.append(True, values[1:] != values[:-1])[: len(values)]
    times, values = times[changes], values[changes]
    for first in range(0, len(times), ROW):
        yield times[first : first + ROW].tolist(), values[first : first + ROW].tolist()


def _achieved(alignment: Alignment, base: TimeBase, side: DeviceSide, origin: int) -> tuple[_Spans, _Spans]:
    """Return the FLOPs and the bytes of each operation divided by the time of its kernels; copies also have bytes."""
    commands, operation_at = alignment.profile.commands, side.measures.operation_at
    achieved: _Spans = defaultdict(list)
    traffic: _Spans = defaultdict(list)
    ran = [operation for operation in operation_at.values() if operation.phase == "run"]
    has_sizes = any(operation.bytes_min for operation in ran)
    if not has_sizes and not any(operation.flop for operation in ran):
        return achieved, traffic
    timed_ns = side.measures.operations.timed_ns
    own = np.array([operation.index for operation in ran], np.int64)
    durations = np.asarray(timed_ns)[own]
    rates_of = []
    for amount_of in (attrgetter("flop"), attrgetter("bytes_min")):
        rates = np.zeros(len(timed_ns))
        amounts = np.array([amount_of(operation) or 0 for operation in ran], float)
        rates[own] = np.divide(amounts, durations, out=np.zeros(len(own)), where=durations != 0)
        rates_of.append(rates)
    moves = (commands.size_bytes != 0) & (commands.time_ns != 0) & has_sizes
    for device, index, firsts, lasts, copies in side.unbroken_rows():
        shift = base.device(device, 0) - origin
        starts, ends = commands.start_ns[firsts], commands.end_ns[lasts]
        # If an operation is in several rows, each has the rate of the whole operation.
        for spans, rates in zip((achieved, traffic), rates_of, strict=True):
            known = rates[index] > 0
            spans[device].append((shifted(starts[known], shift), shifted(ends[known], shift), rates[index[known]]))
        copies = copies[moves[copies]]
        sizes = zip(commands.size_bytes[copies].tolist(), commands.time_ns[copies].tolist(), strict=True)
        moved = np.array([moved / took for moved, took in sizes])
        traffic[device].append(
            (shifted(commands.start_ns[copies], shift), shifted(commands.end_ns[copies], shift), moved)
        )
    return achieved, traffic


_Change = tuple[int, int, float]
"""The time, whether one more is at work (1) or one less (-1), and the change of the sum of rates."""


def _changes(starts: Sequence[int], ends: Sequence[int], rates: Sequence[float]) -> Iterable[_Change]:
    """Return the changes in order of time; at equal times ends come first."""
    begun, ended = zip(starts, repeat(1), rates, strict=False), zip(ends, repeat(-1), map(neg, rates), strict=False)
    return sorted(chain(begun, ended))


def _steps(changes: Iterable[_Change]) -> Iterator[tuple[int, float]]:
    """Yield times and rates: the sum of the current rates at each begin and end, without short gaps."""
    rate, working, since, shown = 0.0, 0, 0, -1.0
    for (at, count, change), (following, _, _) in pairwise(chain(changes, (_NEVER,))):
        working += count
        rate = rate + change if working else 0.0
        if following == at:
            continue
        if working:
            since = at
            value = three_digits(max(rate, 0.0))
        elif following - at < at - since:
            continue
        else:
            value = 0.0
        if value != shown:
            yield at, value
            shown = value


def _busy(
    alignment: Alignment, base: TimeBase, side: DeviceSide, origin: int, chosen: Chosen | None
) -> Iterator[CounterValue]:
    """Return the share of each device, and of each stream that is shown apart."""
    starts, ends = alignment.profile.commands.start_ns, alignment.profile.commands.end_ns
    pass_of = np.asarray(alignment.links.pass_of)
    rows = [
        (device, BUSY, side.counter_tracks.get(side.process_of[device]), positions)
        for device, positions in side.positions().items()
    ]
    rows += [(device, f"{name[0].upper()}{name[1:]} busy", track, own) for device, name, track, own in side.apart()]
    for device, busy_name, track, positions in rows:
        if chosen is not None:
            positions = positions[chosen.inside[positions]]
        shift = base.device(device, 0) - origin
        process = side.process_of[device]
        spans = list(_stretches(pass_of, positions))
        for number, stretch in enumerate(spans):
            start = int(starts[stretch[0]])
            covered_before = np.maximum.accumulate(np.append(start, ends[stretch]))
            covered = int(covered_before[-1])
            worked = ends[stretch] - np.maximum(starts[stretch], covered_before[:-1])
            busy = int(np.maximum(worked, 0).sum())
            following = int(starts[spans[number + 1][0]]) if number + 1 < len(spans) else None
            goes_on = following is not None and _pass(pass_of, spans[number + 1]) == _pass(pass_of, stretch)
            until = following if following is not None and (goes_on or following < covered) else covered
            if until > start:
                share = round(100 * min(1.0, busy / (until - start)), 1)
                yield CounterValue(process, busy_name, "%", start + shift, share, track)
            if until == covered and following != covered:
                yield CounterValue(process, busy_name, "%", covered + shift, 0.0, track)


def _stretches(pass_of: Numbers, positions: Numbers) -> Iterator[Numbers]:
    """Return rows of commands in order of start, cut where another pass begins."""
    most = max(_SHORTEST, -(-len(positions) // _STRETCHES))
    in_pass = np.flatnonzero(pass_of[positions] != NONE)
    passes = pass_of[positions[in_pass]]
    cuts = in_pass[1:][passes[1:] != passes[:-1]].tolist()
    for first, last in pairwise([0, *cuts, len(positions)]):
        for begin in range(first, last, most):
            yield positions[begin : min(begin + most, last)]


def _pass(pass_of: Numbers, positions: Numbers) -> int:
    """Return the pass of a stretch: that of its first command in a pass."""
    passes = pass_of[positions]
    known = passes[passes != NONE]
    return int(known[0]) if len(known) else NONE
