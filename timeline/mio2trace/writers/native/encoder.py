"""Encodes a trace as packets (perfetto-chrome-trace.md 3).

A track is a packet sequence of its own: it has its own table of interned texts, and its own defaults, so that a packet
carries what is new in it. A slice is two packets, its begin and its end. The first track counts time from packet to
packet, counters that come among its slices with it; a file holds one clock snapshot at most, so the others' times are
whole. Process groups are root tracks, their tracks ordered children; slices that agree in `Trace.colour_by` share a
correlation id, hence a colour.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from operator import attrgetter
from typing import BinaryIO

import msgspec

from mio2trace.trace import CounterValue, Flow, Part, Slices, Trace, by_track
from mio2trace.writers.ending import Summed
from mio2trace.writers.native import packets as tp
from mio2trace.writers.native import protobuf as pb
from mio2trace.writers.native.arrows import Arrows, ends_of
from mio2trace.writers.native.headings import headings, placed
from mio2trace.writers.native.protobuf import short, varint
from mio2trace.writers.native.rows import Row
from mio2trace.writers.text import cleaned

_BATCH = 512
_COUNTER_RANK = 10_000
"""Counters stand below the tracks of their process."""
_BY_ITSELF = pb.integer(tp.SEQUENCE, tp.NOBODYS) + b"\x40"
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
    """Encodes events; each track's state is its own."""

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
        out: list[bytes] = []
        for number, part in enumerate(self._trace.parts):
            values = self._trace.counters.get(number)
            count += self._part(part, {} if values is None else by_track(values()), out, file)
        file.write(b"".join(out))
        return count

    def _part(self, part: Part, values: dict[int | None, list[CounterValue]], out: list[bytes], file: BinaryIO) -> int:
        """``values`` of counters come among the slices of their tracks, which come one after another."""
        count = 0
        track: int | None = None
        row: Row | None = None
        coming: list[CounterValue] = []
        for event in part():
            kind = type(event)
            if kind is Flow:
                continue
            place = event.track  # type: ignore[union-attr]
            if place != track:
                self._finish(row, coming, out)
                track, row = place, None if place is None else self._rows[place]
                coming = values.pop(place, [])
            if kind is CounterValue:
                self._value(event, row, out)  # type: ignore[arg-type]
            else:
                assert row is not None
                if kind is Slices:
                    count += len(event)  # type: ignore[arg-type]
                    row.rows(event, self._samples_before(event.latest_ns, coming, out), out)  # type: ignore[union-attr, arg-type]
                else:
                    count += 1
                    for at, sample in self._samples_before(event.start_ns, coming, out):  # type: ignore[union-attr]
                        row.counter(at, sample, out)
                    row.slice(event, out)  # type: ignore[arg-type]
            if kind is Slices or len(out) >= _BATCH:
                file.write(b"".join(out))
                out.clear()
        self._finish(row, coming, out)
        for track, held in values.items():
            self._finish(None if track is None else self._rows[track], held, out)
        return count

    def _samples_before(self, ns: int, coming: list[CounterValue], out: list[bytes]) -> list[tuple[int, bytes]]:
        """Of the values that come those before a time, with it; they are taken away."""
        if not coming or coming[0].time_ns >= ns:
            return []
        count = bisect_left(coming, ns, key=attrgetter("time_ns"))
        samples = [(value.time_ns, self._sample(value, out)) for value in coming[:count]]
        del coming[:count]
        return samples

    def _finish(self, row: Row | None, coming: list[CounterValue], out: list[bytes]) -> None:
        for value in coming:
            self._value(value, row, out)
        if row is not None:
            row.finish(out)

    def _value(self, value: CounterValue, row: Row | None, out: list[bytes]) -> None:
        sample = self._sample(value, out)
        if row is None:
            body = b"\x5a" + varint(len(sample)) + sample + _BY_ITSELF + varint(value.time_ns)
            out.append(pb.message(tp.PACKET, body))
        else:
            row.counter(value.time_ns, sample, out)

    def _sample(self, event: CounterValue, out: list[bytes]) -> bytes:
        """The event that sets a counter, whose descriptor is written before its first."""
        key = (event.process, event.name, event.unit)
        head = self._counters.get(key)
        if head is None:
            new, uuid = self._declare(event)
            out.append(new)
            head = self._counters[key] = pb.integer(tp.TYPE, tp.COUNTER) + pb.integer(tp.TRACK_UUID, uuid)
        value = event.value
        if isinstance(value, int):
            return head + pb.integer(tp.COUNTER_INTEGER, value)
        return head + _REAL_SAMPLE + short(value)

    def _declare(self, event: CounterValue) -> tuple[bytes, int]:
        """A counter's descriptor, and its uuid: the same whoever writes it."""
        unit = cleaned(event.unit)
        name = f"{cleaned(event.name)} {unit}".strip()
        uuid = (event.process + 1) << 32 | zlib.crc32(name.encode())
        # A track at the top level needs a row of its own below it: viewers put others into a group that is closed.
        parent = self._apart.get(event.track or 0) or self._groups.get(event.process, 0)
        fields = [pb.integer(1, uuid), pb.text(2, name), pb.integer(5, parent)]
        fields += [pb.message(8, pb.text(6, unit)), *placed(_COUNTER_RANK, self._help.get(event.name, ""))]
        return tp.stateless(pb.message(tp.TRACK_DESCRIPTOR, b"".join(fields))), uuid
