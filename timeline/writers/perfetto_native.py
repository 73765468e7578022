"""Perfetto's native form: protobuf packets, encoded here (perfetto-chrome-trace.md 3).

A track is a packet sequence of its own: it has its own table of interned texts, and its own defaults, so that a packet
carries what is new in it. A slice is two packets, its begin and its end. The first track counts time from packet to
packet, counters that come among its slices with it; a file holds one clock snapshot at most, so the others' times are
whole. Process groups are root tracks, their
tracks ordered children; slices that agree in `Trace.colour_by` share a correlation id, hence a colour.
"""

from __future__ import annotations

import datetime
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from timeline.trace import Args, CounterValue, Flow, Part, Process, Slice, Trace, Track
from timeline.writers import protobuf as pb
from timeline.writers.beside import beside
from timeline.writers.native_reader import slices
from timeline.writers.protobuf import double, varint
from timeline.writers.text import cleaned, slice_name

NAME = "Perfetto, native"
SUFFIXES = (".pftrace",)
SLICE_BYTES = 120
GZIP_STRATEGY = zlib.Z_DEFAULT_STRATEGY

# TracePacket and what it holds, by their numbers in perfetto_trace.proto.
_PACKET = 1
_CLOCK_SNAPSHOT, _TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS = 6, 8, 10, 11, 12, 13
_CLOCK_ID, _DEFAULTS, _TRACK_DESCRIPTOR, _ATTRIBUTES = 58, 59, 60, 126
_STATE_CLEARED, _NEEDS_STATE = 1, 2
_CATEGORY, _ANNOTATION, _TYPE, _NAME, _TRACK_UUID = 3, 4, 9, 10, 11
_COUNTER_INTEGER, _COUNTER_REAL, _FLOW, _FLOW_ENDS, _CORRELATION = 30, 44, 47, 48, 52
_BEGIN, _END, _COUNTER = 1, 2, 4
_KEY, _BOOL, _INT, _REAL, _ENTRIES, _ITEMS, _TEXT = 1, 2, 4, 5, 11, 12, 17
_CATEGORIES, _NAMES, _KEYS, _TEXTS = 1, 2, 3, 29
_EXPLICIT_ORDER, _NEVER_MERGED = 3, 2

_REALTIME, _BOOTTIME, _COUNTED = 1, 6, 64
"""Clocks: the two builtin ones, and the first of a sequence's own."""

_BATCH = 512
_COUNTER_RANK = 10_000
"""Counters stand below the tracks of their process."""

_HUGE = 1e308
_MOST_REALS = 1 << 14
_ENDS, _GOES_ON, _LOW_14 = pb.ENDS, pb.GOES_ON, pb.LOW_14
_14_BITS, _28_BITS, _42_BITS = 1 << 14, 1 << 28, 1 << 42
_HALF_OF_12_BITS, _HALF_OF_20_BITS = 1 + 2**-13, 1 + 2**-21
_BY_ITSELF = pb.integer(_SEQUENCE, 1) + b"\x40"
_REAL_SAMPLE = varint(_COUNTER_REAL << 3 | 1)
_END_EVENT = pb.message(_TRACK_EVENT, pb.integer(_TYPE, _END))


def write(trace: Trace, file: BinaryIO, *, to_pack: bool = False) -> None:
    """Write ``trace`` packet by packet. Memory is that of the interned texts, the arrows and what it shares.

    The same ``to_pack`` or not: packets count on those before them.
    """
    arrows = _Arrows(trace)
    parts = trace.whole_parts()
    with beside(lambda own: _Writer(trace, arrows).events(parts[-1:], own)) as rest:
        file.write(b"".join(_headings(trace)))
        _Writer(trace, arrows).events(parts[:-1], file)
        rest(file)


def _packet(*fields: bytes) -> bytes:
    return pb.message(_PACKET, b"".join(fields))


def _stateless(*fields: bytes) -> bytes:
    """A packet of the sequence that nothing is remembered of."""
    return _packet(*fields, pb.integer(_SEQUENCE, 1))


# ---- what stands at the head of the file


def _headings(trace: Trace) -> Iterator[bytes]:
    """The clocks, the metadata, the tracks. Sequence 1 is nobody's, 2 the first track's."""
    clocks = [
        pb.integer(1, _BOOTTIME) + pb.integer(2, 0),
        pb.integer(1, _COUNTED) + pb.integer(2, 0) + pb.integer(3, 1),
    ]
    origin = _origin_ns(trace.metadata)
    if origin is not None:
        clocks.append(pb.integer(1, _REALTIME) + pb.integer(2, origin))
    snapshot = b"".join(pb.message(1, clock) for clock in clocks) + pb.integer(2, _BOOTTIME)
    yield _packet(pb.message(_CLOCK_SNAPSHOT, snapshot), pb.integer(_SEQUENCE, 2))
    attributes = b"".join(pb.message(1, one) for one in _attributes(trace.metadata))
    if attributes:
        yield _stateless(pb.message(_ATTRIBUTES, attributes))
    uuids = _uuids(trace)
    for process in sorted(trace.processes, key=lambda one: (one.sort, one.id)):
        yield _stateless(pb.message(_TRACK_DESCRIPTOR, _group(process, uuids[process.id, None])))
    for track in trace.tracks:
        parent = uuids.get((track.process, None), 0)
        yield _stateless(pb.message(_TRACK_DESCRIPTOR, _row(track, uuids[track.process, track.id], parent)))


def _group(process: Process, uuid: int) -> bytes:
    fields = [pb.integer(1, uuid), pb.text(2, cleaned(process.name)), pb.integer(11, _EXPLICIT_ORDER)]
    return b"".join([*fields, *_placed(process.sort, process.description)])


def _row(track: Track, uuid: int, parent: int) -> bytes:
    fields = [pb.integer(1, uuid), pb.text(2, cleaned(track.name)), pb.integer(5, parent)]
    return b"".join([*fields, *_placed(track.sort, track.description)])


def _placed(rank: int, description: str) -> Iterator[bytes]:
    yield pb.integer(12, max(-(1 << 31), min(rank, (1 << 31) - 1)))
    if description:
        yield pb.text(14, cleaned(description))
    yield pb.integer(15, _NEVER_MERGED)


def _uuids(trace: Trace) -> dict[tuple[int, int | None], int]:
    """Of a process (p, None) and of a track (p, t): from 1, in the order of the trace."""
    keys: list[tuple[int, int | None]] = [(process.id, None) for process in trace.processes]
    keys += [(track.process, track.id) for track in trace.tracks]
    return {key: number for number, key in enumerate(keys, 1)}


def _attributes(metadata: Mapping[str, Any], path: str = "") -> Iterator[bytes]:
    """The metadata flattened: ``clock.device.offset_ns``, ``inputs[0].size``; texts and integers are what there is."""
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
        yield pb.text(1, path) + (pb.integer(2, clean) if whole else pb.text(3, _said(clean)))


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _origin_ns(metadata: Mapping[str, Any]) -> int | None:
    """The trace's zero in UTC since 1970, where the metadata tells it."""
    clock = metadata.get("clock")
    utc = clock.get("origin_utc") if isinstance(clock, Mapping) else None
    try:
        seconds, _, fraction = str(utc).removesuffix("Z").partition(".")
        moment = datetime.datetime.fromisoformat(seconds).replace(tzinfo=datetime.UTC)
        origin = int(moment.timestamp()) * 1_000_000_000 + int(fraction.ljust(9, "0")[:9])
    except ValueError:
        return None
    return origin if origin > 0 else None


# ---- arrows


class _Arrows:
    """Where arrows leave and arrive: track -> (times in order, ids). Packets name them, so they are known before."""

    def __init__(self, trace: Trace) -> None:
        self.leave: dict[int, tuple[array[int], array[int]]] = {}
        self.arrive: dict[int, tuple[array[int], array[int]]] = {}
        for part in trace.parts if trace.arrows is None else trace.arrows:
            for event in part():
                if type(event) is Flow:
                    self._add(self.leave, event.from_track, event.from_ns, event.id)
                    self._add(self.arrive, event.to_track, event.to_ns, event.id)
        for ends in (self.leave, self.arrive):
            for track, (times, ids) in ends.items():
                if any(map(int.__gt__, times, times[1:])):
                    order = sorted(range(len(times)), key=times.__getitem__)
                    ends[track] = array("q", [times[n] for n in order]), array("Q", [ids[n] for n in order])

    @staticmethod
    def _add(ends: dict[int, tuple[array[int], array[int]]], track: int, at: int, number: int) -> None:
        held = ends.get(track)
        if held is None:
            held = ends[track] = array("q"), array("Q")
        held[0].append(at)
        held[1].append(number)


class _Ends:
    """The arrows' ends on one track, taken as its slices come by in order of time."""

    __slots__ = ("_at", "_field", "_ids", "_times")

    def __init__(self, ends: tuple[array[int], array[int]], field: int) -> None:
        self._times, self._ids = ends
        self._field = field
        self._at = 0

    def take(self, start: int, following: int | None) -> bytes:
        """The fields for a slice that starts at ``start``; the innermost of those that start there gets them."""
        at, times = self._at, self._times
        while at < len(times) and times[at] < start:
            at += 1
        out = b""
        if following != start:
            while at < len(times) and times[at] == start:
                out += pb.fixed(self._field, self._ids[at])
                at += 1
        self._at = at
        return out


# ---- events


class _Writer:
    """Encodes events; each track's state is its own."""

    def __init__(self, trace: Trace, arrows: _Arrows) -> None:
        uuids = _uuids(trace)
        self._groups = {process: uuid for (process, track), uuid in uuids.items() if track is None}
        self._help = trace.counter_descriptions
        self._rows = {
            track.id: _Row(
                2 + number, uuids[track.process, track.id], number == 0, trace.colour_by, _ends_of(arrows, track.id)
            )
            for number, track in enumerate(trace.tracks)
        }
        self._counters: dict[tuple[int, str, str], bytes] = {}

    def events(self, parts: Iterable[Part], file: BinaryIO) -> None:
        out: list[bytes] = []
        track = row = None
        for part in parts:
            for event in part():
                if isinstance(event, Flow):
                    continue
                place = event.track
                if place != track:
                    # Tracks come one after another, so the same bytes come of them however parts are divided.
                    if row is not None:
                        row.finish(out)
                    track, row = place, None if place is None else self._rows[place]
                if type(event) is Slice:
                    assert row is not None
                    row.slice(event, out)
                elif type(event) is CounterValue:
                    sample = self._sample(event, out)
                    if row is None:
                        body = b"\x5a" + varint(len(sample)) + sample + _BY_ITSELF + varint(event.time_ns)
                        out.append(pb.message(_PACKET, body))
                    else:
                        row.counter(event.time_ns, sample, out)
                if len(out) >= _BATCH:
                    file.write(b"".join(out))
                    out.clear()
        if row is not None:
            row.finish(out)
        file.write(b"".join(out))

    def _sample(self, event: CounterValue, out: list[bytes]) -> bytes:
        """The event that sets a counter, whose descriptor is written before its first."""
        key = (event.process, event.name, event.unit)
        head = self._counters.get(key)
        if head is None:
            new, uuid = self._declare(event)
            out.append(new)
            head = self._counters[key] = pb.integer(_TYPE, _COUNTER) + pb.integer(_TRACK_UUID, uuid)
        value = event.value
        if isinstance(value, int):
            return head + pb.integer(_COUNTER_INTEGER, value)
        return head + _REAL_SAMPLE + _short(value)

    def _declare(self, event: CounterValue) -> tuple[bytes, int]:
        """A counter's descriptor, and its uuid: the same whoever writes it."""
        unit = cleaned(event.unit)
        name = f"{cleaned(event.name)} {unit}".strip()
        uuid = (event.process + 1) << 32 | zlib.crc32(name.encode())
        fields = [pb.integer(1, uuid), pb.text(2, name), pb.integer(5, self._groups.get(event.process, 0))]
        fields += [pb.message(8, pb.text(6, unit)), *_placed(_COUNTER_RANK, self._help.get(event.name, ""))]
        return _stateless(pb.message(_TRACK_DESCRIPTOR, b"".join(fields))), uuid


def _ends_of(arrows: _Arrows, track: int) -> tuple[_Ends, ...]:
    kinds = ((arrows.leave, _FLOW), (arrows.arrive, _FLOW_ENDS))
    return tuple(_Ends(ends[track], field) for ends, field in kinds if track in ends)


class _Row:
    """A track's packets: open slices, the time of the last packet, the interned texts."""

    def __init__(
        self, sequence: int, uuid: int, counted: bool, colour_by: tuple[str, ...], ends: tuple[_Ends, ...]
    ) -> None:
        self._counted = counted
        self._colour_by = colour_by
        self._ends = ends
        self._open: list[int] = []
        self._last = 0
        self._sequence = sequence
        self._uuid = uuid
        # Then comes the time, the last field of every packet.
        self._tail = pb.integer(_SEQUENCE, sequence) + pb.integer(_FLAGS, _NEEDS_STATE) + b"\x40"
        end = _END_EVENT + self._tail
        self._end_heads = [b"\x0a" + varint(len(end) + size) + end for size in range(11)]
        self._interned: dict[tuple[int, str], int] = {}
        self._counts: dict[int, int] = {}
        self._new: list[bytes] = []
        self._begins: dict[tuple[int, str, str], tuple[bytes, Args, bool]] = {}
        self._begin_heads: list[dict[int, bytes]] = [{} for _ in range(11)]
        self._numbers: dict[str, list[bytes]] = {}
        self._reals: dict[float, bytes] = {}
        self._held: Slice | None = None
        self._begun = False

    def slice(self, event: Slice, out: list[bytes]) -> None:
        """Add the packets for a slice, and the ends of those that are over."""
        if self._ends:
            # An arrow binds to the innermost slice: whether one more starts at this time shows with the next one.
            held, self._held = self._held, event
            if held is not None:
                self._slice(held, event.start_ns, out)
        else:
            self._slice(event, None, out)

    def counter(self, at: int, sample: bytes, out: list[bytes]) -> None:
        """Add a counter's event among the slices: its time is counted from the last of them."""
        if self._held is not None:
            self._slice(self._held, None, out)
            self._held = None
        while self._open and self._open[-1] <= at:
            self._close(out)
        if not self._begun:
            out.append(self._declare())
        self._keep_counting(at, out)
        time = varint(at - self._last if self._counted else at)
        self._last = at
        out.append(pb.message(_PACKET, b"\x5a" + varint(len(sample)) + sample + self._tail + time))

    def _keep_counting(self, at: int, out: list[bytes]) -> None:
        if self._counted and at < self._last:
            self._counted = False  # a track that is taken up again
            out.append(_packet(*self._head(_NEEDS_STATE)))

    def finish(self, out: list[bytes]) -> None:
        """The ends of what is still open."""
        if self._held is not None:
            self._slice(self._held, None, out)
            self._held = None
        while self._open:
            self._close(out)

    def _close(self, out: list[bytes]) -> None:
        end = self._open.pop()
        time = varint(end - self._last if self._counted else end)
        self._last = end
        out += (self._end_heads[len(time)], time)

    def _slice(self, event: Slice, following: int | None, out: list[bytes]) -> None:
        start = event.start_ns
        opened, counted, before = self._open, self._counted, self._last
        while opened and opened[-1] <= start:  # as `_close`, without the call
            end = opened.pop()
            at = end - before if counted else end
            time = _GOES_ON[at & _LOW_14] + _ENDS[at >> 14] if _14_BITS <= at < _28_BITS else varint(at)
            before = end
            out += (self._end_heads[len(time)], time)
        opened.append(start + event.dur_ns)
        shared = event.shared
        # The mapping is kept beside its bytes, so that no other can take its id.
        held = self._begins.get((id(shared), event.name, event.category))
        if held is None:
            # Each of many slices may name its own layer, or all of them the same.
            own_colour = self._colour(shared) is None
            held = self._begins[id(shared), event.name, event.category] = self._begin(event), shared, own_colour
        numbers, reals = self._numbers, self._reals
        pieces: list[bytes] = []
        if held[2] and event.args:
            colour = self._colour(event.args)
            if colour is not None:
                pieces.append(colour)
        for key, value in event.args.items():
            kind = type(value)
            if kind is int and value >= 0:
                heads = numbers.get(key)
                if heads is None:
                    heads = self._number_heads(key)
                # As `protobuf.varint`, without the call: most of the time goes here.
                if value < _14_BITS:
                    last = _ENDS[value]
                    pieces += (heads[len(last)], last)
                elif value < _28_BITS:
                    last = _ENDS[value >> 14]
                    pieces += (heads[2 + len(last)], _GOES_ON[value & _LOW_14], last)
                elif value < _42_BITS:
                    last = _ENDS[value >> 28]
                    pieces += (heads[4 + len(last)], _GOES_ON[value & _LOW_14], _GOES_ON[value >> 14 & _LOW_14], last)
                elif value < 1 << 63:
                    last = varint(value)
                    pieces += (heads[len(last)], last)
                else:
                    pieces.append(self._annotation(key, value))
            elif kind is float and -_HUGE < value < _HUGE:
                heads = numbers.get(key)
                if heads is None:
                    heads = self._number_heads(key)
                real = reals.get(value)
                pieces += (heads[0], self._real(value) if real is None else real)
            else:
                pieces.append(self._annotation(key, value))
        for ends in self._ends:
            pieces.append(ends.take(start, following))
        if self._new:
            out.append(self._declare())
        if start < before and counted:
            self._keep_counting(start, out)
            counted = self._counted
        at = start - before if counted else start
        time = _GOES_ON[at & _LOW_14] + _ENDS[at >> 14] if _14_BITS <= at < _28_BITS else varint(at)
        self._last = start
        common, own = held[0], b"".join(pieces)
        size = len(common) + len(own)
        heads_by_size = self._begin_heads[len(time)]
        head = heads_by_size.get(size)
        if head is None:
            length = varint(size)
            all_of_it = 1 + len(length) + size + len(self._tail) + len(time)
            head = heads_by_size[size] = b"\x0a" + varint(all_of_it) + b"\x5a" + length
        out += (head, common, own, self._tail, time)

    def _begin(self, event: Slice) -> bytes:
        """What a slice has in common with its like: name, category, colour, shared arguments."""
        fields = [
            pb.integer(_TYPE, _BEGIN),
            pb.integer(_CATEGORY, self._iid(_CATEGORIES, cleaned(event.category))),
            pb.integer(_NAME, self._iid(_NAMES, slice_name(event.name))),
        ]
        colour = self._colour(event.shared)
        if colour is not None:
            fields.append(colour)
        fields += (self._annotation(key, value) for key, value in event.shared.items())
        return b"".join(fields)

    def _colour(self, args: Args) -> bytes | None:
        """The field that gives one colour to all slices with the same value; None where the arguments have none."""
        for key in self._colour_by:
            value = args.get(key)
            if value is not None:
                return pb.integer(_CORRELATION, zlib.crc32(f"{key} {value}".encode(errors="replace")) >> 8 | 1)
        return None

    def _annotation(self, key: str, value: Any) -> bytes:
        held = self._value(value)
        if not held:
            return b""
        return pb.message(_ANNOTATION, pb.integer(_KEY, self._iid(_KEYS, cleaned(key))) + held)

    def _number_heads(self, key: str) -> list[bytes]:
        """What stands before an integer, by the number of its bytes; the first is for a double."""
        name = pb.integer(_KEY, self._iid(_KEYS, cleaned(key)))
        head = name + varint(_INT << 3)
        heads = [varint(_ANNOTATION << 3 | 2) + varint(len(head) + size) + head for size in range(11)]
        heads[0] = varint(_ANNOTATION << 3 | 2) + varint(len(name) + 9) + name + varint(_REAL << 3 | 1)
        self._numbers[key] = heads
        return heads

    def _real(self, value: float) -> bytes:
        """A rate, kept: with four digits many are the same."""
        if len(self._reals) == _MOST_REALS:
            self._reals.clear()
        packed = _short(value)
        if value:  # there are two zeros
            self._reals[value] = packed
        return packed

    def _value(self, value: Any) -> bytes:
        """The fields of an annotation but for its name; none for what no reader shows."""
        value = cleaned(value)
        if isinstance(value, bool):
            return pb.integer(_BOOL, value)
        if isinstance(value, int):
            return pb.integer(_INT, value)
        if isinstance(value, float):
            return varint(_REAL << 3 | 1) + _short(value) if abs(value) < float("inf") else b""
        if isinstance(value, str):
            return pb.integer(_TEXT, self._iid(_TEXTS, value))
        if isinstance(value, Mapping):
            entries = [(key, self._value(item)) for key, item in value.items()]
            return b"".join(
                pb.message(_ENTRIES, pb.integer(_KEY, self._iid(_KEYS, key)) + held) for key, held in entries if held
            )
        if isinstance(value, list):
            return b"".join(pb.message(_ITEMS, held) for held in map(self._value, value) if held)
        return b""

    def _iid(self, table: int, text: str) -> int:
        number = self._interned.get((table, text))
        if number is None:
            number = self._counts[table] = self._interned[table, text] = self._counts.get(table, 0) + 1
            self._new.append(pb.message(table, pb.integer(1, number) + pb.text(2, text)))
        return number

    def _declare(self) -> bytes:
        """A packet with the texts that are new; the track's first has its defaults, too."""
        texts = pb.message(_INTERNED, b"".join(self._new))
        self._new.clear()
        if self._begun:
            return _packet(texts, pb.integer(_SEQUENCE, self._sequence), pb.integer(_FLAGS, _NEEDS_STATE))
        self._begun = True
        return _packet(texts, *self._head(_STATE_CLEARED))

    def _head(self, flags: int) -> Iterator[bytes]:
        """What the packets that follow have in common."""
        defaults = pb.message(_TRACK_EVENT, pb.integer(_TRACK_UUID, self._uuid))
        defaults += pb.integer(_CLOCK_ID, _COUNTED if self._counted else _BOOTTIME)
        yield from (pb.integer(_SEQUENCE, self._sequence), pb.integer(_FLAGS, flags), pb.message(_DEFAULTS, defaults))


def _short(value: float) -> bytes:
    """A double of a rate or a share: to one part in two million, of a rate of four digits to one in eight thousand.

    The rest would be digits that nobody measured, and that do not compress.
    """
    if not 1e-300 < abs(value) < 1e300:
        return double(value)
    # Half of what is cut off is added before; what needs no more bits than are left is exact.
    if float(f"{value:.4g}") == value:
        return bytes(5) + double(value * _HALF_OF_12_BITS)[5:]
    return bytes(4) + double(value * _HALF_OF_20_BITS)[4:]


__all__ = ["GZIP_STRATEGY", "NAME", "SLICE_BYTES", "SUFFIXES", "slices", "write"]
