"""Encode a trace as packets (perfetto-chrome-trace.md 3).

Each track is a packet sequence with its own table of interned texts and its own defaults, so that a packet contains
only new values. A slice is two packets, its begin and its end. The first track counts time from packet to packet, and
so do counters among its slices; a file has at most one clock snapshot, so the times of the other tracks are absolute.
Groups of processes are root tracks, and their tracks are ordered children. Slices with equal values in
`Trace.colour_by` share a correlation id, and therefore a colour.
"""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import msgspec
import numpy as np

from mio2trace.trace import (
    CounterValue,
    CounterValues,
    Event,
    Flow,
    Flows,
    Part,
    Process,
    Slice,
    Slices,
    Trace,
    Track,
    whole,
)
from mio2trace.writers.ending import Summed
from mio2trace.writers.native import packets as tp
from mio2trace.writers.native.packets import short, varint
from mio2trace.writers.native.rows import NO_SAMPLES, Arrows, Row, Samples, ends_of
from mio2trace.writers.text import cleaned

_TOGETHER = 4096
"""Slices that come one by one are written so many at once."""
_COUNTER_RANK = 10_000
"""Counters come below the tracks of their process."""
_BY_ITSELF = tp.integer(tp.SEQUENCE, tp.NOBODYS) + b"\x40"
_REAL_SAMPLE = varint(tp.COUNTER_REAL << 3 | 1)


def write(trace: Trace, file: BinaryIO) -> None:
    """Write ``trace`` packet by packet."""
    arrows = Arrows(trace)
    if trace.without_arrows is not None:
        trace = msgspec.structs.replace(trace, parts=trace.without_arrows)
    summed = Summed(file)
    out: BinaryIO = summed  # type: ignore[assignment]
    out.write(b"".join(headings(trace)))
    count = _Writer(trace, arrows).write(out)
    end = tp.marked(f"{tp.END_MARK} slices={count} crc32={0:08x}")[: -tp.CRC_TAIL]
    out.write(end)
    file.write(f"{summed.crc:08x}".encode())


class _Writer:
    """Encodes events; each track has its own state."""

    def __init__(self, trace: Trace, arrows: Arrows) -> None:
        self._trace = trace
        uuids = tp.uuids(trace)
        self._groups = {process: uuid for (process, track), uuid in uuids.items() if track is None}
        self._apart = {one.id: uuids[one.process, one.id] for one in trace.tracks if one.apart and not one.main}
        self._help = trace.counter_descriptions
        self._rows = {
            track.id: Row(
                tp.NOBODYS + 1 + number,
                uuids[track.process, track.id],
                number == 0,
                trace.colour_by,
                ends_of(arrows, track.id),
            )
            for number, track in enumerate(trace.tracks)
        }
        self._counters: dict[tuple[int, str, str], bytes] = {}

    def write(self, file: BinaryIO) -> int:
        """Write all events; returns how many slices there were."""
        count = 0
        for number, part in enumerate(self._trace.parts):
            values = self._trace.counters.get(number)
            count += self._part(part, iter(()) if values is None else values(), file)
        return count

    def _part(self, part: Part, values: Iterator[CounterValue | CounterValues], file: BinaryIO) -> int:
        """``values`` of counters come among the slices of their tracks, which come one after another."""
        count = 0
        track: int | None = None
        out: list[bytes] = []
        by_track = self._by_track(values, out)
        coming = NO_SAMPLES
        for slices in _in_columns(part()):
            if slices.track != track:
                self._finish(track, coming, out)
                track = slices.track
                coming = by_track.pop(track, NO_SAMPLES)
            if isinstance(slices, CounterValue):
                self._add_values(track, self._by_track([slices], out)[track], out)
                continue
            assert track is not None
            before = int(np.searchsorted(coming.times, slices.latest_ns))
            samples = Samples(coming.times[:before], coming.events[:before])
            coming = Samples(coming.times[before:], coming.events[before:])
            self._rows[track].add(slices, samples, out)
            count += len(slices)
            file.write(b"".join(out))
            out.clear()
        self._finish(track, coming, out)
        for of_track, samples in by_track.items():
            self._finish(of_track, samples, out)
        file.write(b"".join(out))
        return count

    def _by_track(self, values: Iterable[CounterValue | CounterValues], out: list[bytes]) -> dict[int | None, Samples]:
        """Return the values of counters by track, in order of time."""
        rows: dict[int | None, tuple[list[int], list[bytes]]] = {}
        for value in values:
            times, events = rows.setdefault(value.track, ([], []))
            if isinstance(value, CounterValue):
                times.append(value.time_ns)
                events += self._samples(value, [value.value], out)
            else:
                times += value.times
                events += self._samples(value, value.values, out)
        found: dict[int | None, Samples] = {}
        for track, (times, events) in rows.items():
            order = np.argsort(np.array(times, np.int64), kind="stable")
            found[track] = Samples(np.array(times, np.int64)[order], [events[place] for place in order.tolist()])
        return found

    def _add_values(self, track: int | None, samples: Samples, out: list[bytes]) -> None:
        if track is not None:
            self._rows[track].add_samples(samples, out)
            return
        for at, sample in zip(samples.times.tolist(), samples.events, strict=True):
            body = b"\x5a" + varint(len(sample)) + sample + _BY_ITSELF + varint(at)
            out.append(tp.message(tp.PACKET, body))

    def _finish(self, track: int | None, coming: Samples, out: list[bytes]) -> None:
        self._add_values(track, coming, out)
        if track is not None:
            self._rows[track].finish(out)

    def _samples(self, of: CounterValue | CounterValues, values: Sequence[float], out: list[bytes]) -> list[bytes]:
        """Return the events that set a counter to values. Its descriptor is written before its first."""
        key = (of.process, of.name, of.unit)
        head = self._counters.get(key)
        if head is None:
            new, uuid = self._declare(of)
            out.append(new)
            head = self._counters[key] = tp.integer(tp.TYPE, tp.COUNTER) + tp.integer(tp.TRACK_UUID, uuid)
        return [
            head + (tp.integer(tp.COUNTER_INTEGER, value) if isinstance(value, int) else _REAL_SAMPLE + short(value))
            for value in values
        ]

    def _declare(self, event: CounterValue | CounterValues) -> tuple[bytes, int]:
        """Return a counter's descriptor and its uuid, which is always the same."""
        unit = cleaned(event.unit)
        name = f"{cleaned(event.name)} {unit}".strip()
        uuid = (event.process + 1) << 32 | zlib.crc32(name.encode())
        # A track at the top level needs a row of its own below it: viewers would put others into a closed group.
        parent = self._apart.get(event.track or 0) or self._groups.get(event.process, 0)
        fields = [tp.integer(1, uuid), tp.text(2, name), tp.integer(5, parent)]
        fields += [tp.message(8, tp.text(6, unit)), *placed(_COUNTER_RANK, self._help.get(event.name, ""))]
        return tp.stateless(tp.message(tp.TRACK_DESCRIPTOR, b"".join(fields))), uuid


def _in_columns(events: Iterator[Event | Slices | Flows]) -> Iterator[Slices | CounterValue]:
    """Yield slices together, without the arrows."""
    alone: list[Slice] = []
    for event in events:
        if isinstance(event, (Flow, Flows)):
            continue
        if alone and (not isinstance(event, Slice) or event.track != alone[0].track or len(alone) == _TOGETHER):
            yield Slices(alone[0].track, (whole(alone),))
            alone = []
        if isinstance(event, Slice):
            alone.append(event)
        else:
            yield event
    if alone:
        yield Slices(alone[0].track, (whole(alone),))


# -- The head of a trace: its clocks, its metadata, its tracks (perfetto-chrome-trace.md 3) ----------------------------


BESIDE = " · "
"""Between the names of a process and of its track that is shown at the top level."""


def headings(trace: Trace) -> Iterator[bytes]:
    """Yield the clocks, the metadata, the tracks. Sequence 1 has no state, 2 is that of the first track."""
    clocks = [
        tp.integer(1, tp.BOOTTIME) + tp.integer(2, 0),
        tp.integer(1, tp.COUNTED) + tp.integer(2, 0) + tp.integer(3, 1),
    ]
    origin = _origin_ns(trace.metadata)
    if origin is not None:
        clocks.append(tp.integer(1, tp.REALTIME) + tp.integer(2, origin))
    snapshot = b"".join(tp.message(1, clock) for clock in clocks) + tp.integer(2, tp.BOOTTIME)
    yield tp.packet(tp.message(tp.CLOCK_SNAPSHOT, snapshot), tp.integer(tp.SEQUENCE, tp.NOBODYS + 1))
    yield tp.marked(tp.BEGIN_MARK)
    attributes = b"".join(tp.message(1, one) for one in _attributes(trace.metadata))
    if attributes:
        yield tp.stateless(tp.message(tp.ATTRIBUTES, attributes))
    in_view = trace.in_view()
    if in_view is not None:
        # A viewer begins with the time of the recording, if it is known.
        for event, at in zip((tp.TRACING_STARTED, tp.TRACING_DISABLED), in_view, strict=True):
            yield tp.stateless(tp.message(tp.SERVICE_EVENT, tp.integer(event, 1)), tp.integer(tp.TIMESTAMP, at))
    uuids = tp.uuids(trace)
    main = {track.process: track for track in trace.tracks if track.main}
    for process in sorted(trace.processes, key=lambda one: (one.sort, one.id)):
        group = _group(process, main.get(process.id), uuids[process.id, None])
        yield tp.stateless(tp.message(tp.TRACK_DESCRIPTOR, group))
    names = {process.id: process.name for process in trace.processes}
    for track in trace.tracks:
        if track.apart and not track.main:
            own = Process(id=track.process, name=names[track.process], sort=track.sort)
            body = _group(own, track, uuids[track.process, track.id])
            yield tp.stateless(tp.message(tp.TRACK_DESCRIPTOR, body))
        elif not track.main:
            parent = uuids.get((track.process, None), 0)
            yield tp.stateless(tp.message(tp.TRACK_DESCRIPTOR, _row(track, uuids[track.process, track.id], parent)))


def _group(process: Process, main: Track | None, uuid: int) -> bytes:
    """Return a process; if its main track has slices, it has the names of both."""
    name, help_ = process.name, process.description
    if main is not None:
        # Viewers cut names in the middle, so the part that differs comes first, the model of the device last.
        head, bracket, rest = name.partition(" (")
        name, help_ = f"{head}{BESIDE}{main.name}{bracket}{rest}", f"{help_} {main.description}".strip()
    fields = [tp.integer(1, uuid), tp.text(2, cleaned(name)), tp.integer(11, tp.EXPLICIT_ORDER)]
    return b"".join([*fields, *placed(process.sort, help_)])


def _row(track: Track, uuid: int, parent: int) -> bytes:
    fields = [tp.integer(1, uuid), tp.text(2, cleaned(track.name)), tp.integer(5, parent)]
    return b"".join([*fields, *placed(track.sort, track.description)])


def placed(rank: int, description: str) -> Iterator[bytes]:
    yield tp.integer(12, max(-(1 << 31), min(rank, (1 << 31) - 1)))
    if description:
        yield tp.text(14, cleaned(description))
    yield tp.integer(15, tp.NEVER_MERGED)


def _attributes(metadata: Mapping[str, Any], path: str = "") -> Iterator[bytes]:
    """Return the metadata with flat keys: ``clock.device.offset_ns``, ``inputs[0].size``; values are texts and
    integers."""
    for key, value in metadata.items():
        yield from _attribute(f"{path}{cleaned(key)}", value)


def _attribute(path: str, value: Any) -> Iterator[bytes]:
    if isinstance(value, Mapping):
        yield from _attributes(value, f"{path}.")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _attribute(f"{path}[{number}]", item)
    elif value is not None:
        clean = cleaned(value)
        whole = isinstance(clean, int) and not isinstance(clean, bool)
        yield tp.text(1, path) + (tp.integer(2, clean) if whole else tp.text(3, _said(clean)))


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _origin_ns(metadata: Mapping[str, Any]) -> int | None:
    """Return the trace's zero in UTC since 1970, if the metadata has it."""
    clock = metadata.get("clock")
    utc = clock.get("origin_utc") if isinstance(clock, Mapping) else None
    try:
        seconds, _, fraction = str(utc).removesuffix("Z").partition(".")
        moment = datetime.datetime.fromisoformat(seconds).replace(tzinfo=datetime.UTC)
        origin = int(moment.timestamp()) * 1_000_000_000 + int(fraction.ljust(9, "0")[:9])
    except ValueError:
        return None
    return origin if origin > 0 else None
