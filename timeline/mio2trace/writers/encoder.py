"""Encode a trace as packets (perfetto-chrome-trace.md 3).

Each track is a packet sequence with its own table of interned texts and its own defaults, so that a packet contains
only new values. A slice is two packets, its begin and its end. The first track counts time from packet to packet, and
so do counters among its slices. A file has at most one clock snapshot, so the times of the other tracks are absolute.
Groups of processes are root tracks, and their tracks are ordered children. Slices with equal values in
`Trace.colour_by` share a correlation id, and therefore a colour.
"""

from __future__ import annotations

import datetime
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.trace import (
    NO,
    OWN_FIRST,
    Args,
    Column,
    Columns,
    CounterValue,
    CounterValues,
    Flow,
    Flows,
    Part,
    Pool,
    Process,
    Slice,
    Slices,
    Trace,
    Track,
    in_columns,
    plain,
)
from mio2trace.writers import packets as tp
from mio2trace.writers.ending import Summed, cleaned, slice_name
from mio2trace.writers.packets import Fields, Ints, Texts, joined, short, sizes_of, varint

_END_EVENT = tp.message(tp.TRACK_EVENT, tp.integer(tp.TYPE, tp.END))


FIRST = {
    key: place
    for place, key in enumerate(("layer", "direction", "operation_name", "solver", "algorithm", "role", "command"))
}
"""The arguments that a reader looks for first among those that slices share, in this order; viewers keep it."""
LAST = ("layer_by", "operation_by", "sure", "doubt", "layer_index", "full_name")
"""The evidence of a kernel's links, and a long name: after all other arguments, in this order."""


_MOST_BEGINS = 1 << 14


class _Begin(msgspec.Struct, frozen=True):
    """The bytes that similar slices share: ``before`` their own arguments and ``behind`` them.

    ``shared`` is kept beside its bytes, so that no other can take its id; ``own_colour``: it has no colour.
    """

    before: bytes
    shared: Args
    own_colour: bool
    behind: bytes


class Samples(msgspec.Struct, frozen=True):
    """Values of counters among the slices of a track: when, and the event that sets the counter, of each."""

    times: Ints
    events: Sequence[bytes]


NO_SAMPLES = Samples(np.zeros(0, np.int64), ())


class Row:
    """A track's packets: open slices, the time of the last packet, the interned texts."""

    def __init__(
        self, sequence: int, uuid: int, counted: bool, colour_by: tuple[str, ...], ends: tuple[Ends, ...]
    ) -> None:
        self._counted = counted
        self._colour_by = colour_by
        self._ends = ends
        self._open: list[int] = []
        """When the slices end that have begun, the outermost first."""
        self._last = 0
        self._sequence = sequence
        self._uuid = uuid
        # Then comes the time, the last field of every packet.
        self._tail = tp.integer(tp.SEQUENCE, sequence) + tp.integer(tp.FLAGS, tp.NEEDS_STATE) + b"\x40"
        self._end = _END_EVENT + self._tail
        self._interned: dict[tuple[int, str], int] = {}
        self._of_texts: dict[tuple[str, str], bytes] = {}
        self._counts: dict[int, int] = {}
        self._new: list[bytes] = []
        self._begins: dict[tuple[int, str, str], _Begin] = {}
        self._held: list[Columns] = []
        """An arrow binds to the innermost slice: whether one more starts at this time shows with the next one. Until
        then the last slice is kept back.
        """
        self._begun = False

    def add(self, slices: Slices, samples: Samples, out: list[bytes]) -> None:
        """Add the packets of slices, those of samples among them, and the ends of what is over."""
        columns, order = [*self._held, *slices.columns], slices.order
        if order is None:
            order = np.arange(len(slices))
        if self._held:
            order = np.append(0, order + 1)
        if self._ends:
            last = int(order[-1])
            order = order[:-1]
            self._held = [_only(columns, last)]
            self._add(columns, order, samples, int(self._held[0].starts[0]), out)
        else:
            self._add(columns, order, samples, 0, out)

    def add_samples(self, samples: Samples, out: list[bytes]) -> None:
        """Add samples behind all slices so far, and what is kept back."""
        columns, self._held = self._held, []
        until = int(columns[0].starts[0]) + 1 if columns else 0
        self._add(columns, np.arange(len(columns)), samples, until, out)

    def finish(self, out: list[bytes]) -> None:
        """Add what is kept back, and the ends of what is still open."""
        self.add_samples(NO_SAMPLES, out)
        while self._open:
            end = self._open.pop()
            time = varint(end - self._last if self._counted else end)
            self._last = end
            out.append(tp.message(tp.PACKET, self._end + time))

    def _add(self, columns: Sequence[Columns], order: Ints, samples: Samples, until: int, out: list[bytes]) -> None:
        """``order``: the numbers of the slices to add; arrows that leave or arrive before ``until`` are theirs."""
        starts, durations = (
            np.concatenate([getattr(one, name) for one in columns] or [order])[order]
            for name in ("starts", "durations")
        )
        # A number for each: of a slice of a column its place, then those among them, then the samples. -1 is an end.
        first_sample = sum(len(one.starts) for one in columns)
        numbers, times = order, starts
        if samples.events:
            places = np.append(2 * np.arange(len(order)), 2 * np.searchsorted(starts, samples.times, "right") - 1)
            items = np.argsort(places, kind="stable")
            numbers = np.append(order, first_sample + np.arange(len(samples.times)))[items]
            times = np.append(starts, samples.times)[items]
        moments, numbers, self._open = _with_ends(
            times, numbers, starts + durations, numbers < first_sample, self._open
        )
        if not len(moments):
            return
        passed = np.diff(moments, prepend=self._last)
        goes_back = self._counted and bool((passed < 0).any())  # a track that is taken up again
        self._counted &= not goes_back
        shown = passed if self._counted else moments
        self._last = int(moments[-1])
        # An end has no row of its own if it comes right behind another packet.
        is_end = numbers < 0
        in_row = is_end & ~np.append(True, is_end[:-1])
        row_of = np.cumsum(~in_row) - 1
        whose = numbers[~in_row]
        count = len(whose)

        begins = np.flatnonzero((whose >= 0) & (whose < first_sample))
        bodies = [*self._bodies(columns, begins, whose[begins])]
        if samples.events:
            sampled = Fields(len(samples.events), np.flatnonzero(whose >= first_sample))
            sampled.texts(Texts(samples.events), np.arange(len(samples.events)))
            bodies.append(sampled)
        arrows = [ends.fields(starts, begins, until) for ends in self._ends]
        size = np.zeros(count, np.int64)
        for part in (bodies, *arrows):
            for fields in part:
                size[fields.rows] += fields.sizes

        packets = np.flatnonzero(whose >= 0)
        size = size[packets]
        head, tail = Fields(len(packets), packets), Fields(len(packets), packets)
        time = shown[~is_end]
        tail.constant(self._tail)
        tail.varint(time, sizes_of(time))
        length = 1 + sizes_of(size) + size + tail.sizes
        head.constant(b"\x0a")
        head.varint(length, sizes_of(length))
        head.constant(b"\x5a")
        head.varint(size, sizes_of(size))
        time, rows = shown[is_end], row_of[is_end]
        of_time = sizes_of(time)
        ends = Fields(len(rows), rows)
        ends.constant(b"\x0a")
        ends.word(len(self._end) + of_time, 1)  # one byte: it is less than 128
        ends.constant(self._end)
        ends.varint(time, of_time)

        if goes_back and self._begun:
            out.append(tp.packet(*self._state(tp.NEEDS_STATE)))
        if self._new or not self._begun:
            out.append(self._declare())
        out.append(joined([[head], bodies, *arrows, [tail], [ends]], count, packets[length > tp.LONG]))

    def _bodies(self, columns: Sequence[Columns], rows: Ints, numbers: Ints) -> Iterator[Fields]:
        """Yield the events of slices but for their arrows. ``numbers`` of the slices, whose packets are ``rows``."""
        first = 0
        for one in columns:
            here = np.flatnonzero((numbers >= first) & (numbers < first + len(one.starts)))
            places = numbers[here] - first
            first += len(one.starts)
            if not len(here):
                continue
            fields = Fields(len(here), rows[here])
            codes = one.likes.codes[places]
            begins = [
                self._begun_as(like) if is_used else _NOTHING
                for like, is_used in zip(one.likes.values, _used(codes, one.likes.values), strict=True)
            ]
            fields.texts(Texts([begin.before for begin in begins]), codes)
            own_colours = np.array([begin.own_colour for begin in begins])
            own_colour = own_colours[codes] if own_colours.any() else own_colours
            for key in self._colour_by:
                if key in one.args and own_colour.any():
                    colours = plain(one.args[key])
                    texts = [self._colour({key: value}) for value in colours] + [b""]
                    fields.texts(Texts(texts), np.where(own_colour, places, len(colours)))
                    own_colour &= np.array([value is None for value in colours])[places]
            for key, values in one.args.items():
                self._argument(fields, key, values, places)
            if any(begin.behind for begin in begins):
                fields.texts(Texts([begin.behind for begin in begins]), codes)
            yield fields

    def _argument(self, fields: Fields, key: str, column: Column, places: Ints) -> None:
        """Add an argument of those of its slices that stand at ``places``."""
        if not isinstance(column, np.ndarray):
            codes = column.codes[places]
            texts = [
                b"" if value is None or not is_used else self._annotation(key, value)
                for value, is_used in zip(column.values, _used(codes, column.values), strict=True)
            ]
            fields.texts(Texts(texts), codes)
            return
        values: NDArray[Any] = column[places]
        name = tp.integer(tp.KEY, self._iid(tp.KEYS, cleaned(key)))
        begin = varint(tp.ANNOTATION << 3 | 2)
        if values.dtype.kind == "f":
            head = name + varint(tp.REAL << 3 | 1)
            has = _where(np.isfinite(values))
            each, numbers = np.unique(np.where(has, values, 0.0).view(np.uint64), return_inverse=True)
            words = [int.from_bytes(short(value), "little") for value in each.view(np.float64).tolist()]
            fields.constant(begin + varint(len(head) + 8) + head, has)
            fields.word(np.array(words, np.uint64)[numbers], 8 * has)
            return
        head = name + varint(tp.INT << 3)
        has = _where(values != NO)
        values = np.where(has, values, 0) if np.ndim(has) else values
        sizes = sizes_of(values) * has
        fields.constant(begin, has)
        fields.word((len(head) + sizes) * has, has)
        fields.constant(head, has)
        fields.varint(values, sizes)

    def _begun_as(self, event: Slice) -> _Begin:
        shared = event.shared
        held = self._begins.get((id(shared), event.name, event.category))
        if held is None:
            # Each of many slices may name its own layer, or all of them the same.
            before, behind = self._begin(event)
            held = _Begin(before, shared, not self._colour(shared), behind)
            if len(self._begins) > _MOST_BEGINS:  # of slices of which none is like another
                self._begins.clear()
            self._begins[id(shared), event.name, event.category] = held
        if not event.args:
            return held
        colour = self._colour(event.args) if held.own_colour else b""
        own = b"".join(self._annotation(key, value) for key, value in event.args.items())
        return msgspec.structs.replace(held, before=held.before + colour + own)

    def _begin(self, event: Slice) -> tuple[bytes, bytes]:
        """Return the shared part of a slice: name, category, colour, and the shared arguments before and after its own
        ones."""
        fields = [
            tp.integer(tp.TYPE, tp.BEGIN),
            tp.integer(tp.CATEGORY, self._iid(tp.CATEGORIES, cleaned(event.category))),
            tp.integer(tp.NAME, self._iid(tp.NAMES, slice_name(event.name))),
        ]
        begin = b"".join([*fields, self._colour(event.shared)])
        items = sorted(event.shared.items(), key=lambda item: FIRST.get(item[0], len(FIRST)))
        shared = b"".join(self._annotation(key, value) for key, value in items if key not in LAST)
        last = b"".join(self._annotation(key, event.shared[key]) for key in LAST if key in event.shared)
        return (begin, shared + last) if event.category in OWN_FIRST else (begin + shared, last)

    def _colour(self, args: Args) -> bytes:
        """Return the field that gives one colour to all slices with equal values; empty without these arguments."""
        for key in self._colour_by:
            value = args.get(key)
            if value is not None:
                return tp.integer(tp.CORRELATION, zlib.crc32(f"{key} {value}".encode(errors="replace")) >> 8 | 1)
        return b""

    def _annotation(self, key: str, value: Any) -> bytes:
        is_text = type(value) is str
        held = self._of_texts.get((key, value)) if is_text else None
        if held is None:
            held = self._value(value)
            if held:
                held = tp.message(tp.ANNOTATION, tp.integer(tp.KEY, self._iid(tp.KEYS, cleaned(key))) + held)
            if is_text:
                self._of_texts[key, value] = held
        return held

    def _value(self, value: Any) -> bytes:
        """Return the fields of an annotation without its name; none for a value that readers do not show."""
        value = cleaned(value)
        if isinstance(value, bool):
            return tp.integer(tp.BOOL, value)
        if isinstance(value, int):
            return tp.integer(tp.INT, value)
        if isinstance(value, float):
            return varint(tp.REAL << 3 | 1) + short(value) if abs(value) < float("inf") else b""
        if isinstance(value, str):
            return tp.integer(tp.TEXT, self._iid(tp.TEXTS, value))
        if isinstance(value, Mapping):
            entries = [(key, self._value(item)) for key, item in value.items()]
            return b"".join(
                tp.message(tp.ENTRIES, tp.integer(tp.KEY, self._iid(tp.KEYS, key)) + held)
                for key, held in entries
                if held
            )
        if isinstance(value, list):
            return b"".join(tp.message(tp.ITEMS, held) for held in map(self._value, value) if held)
        return b""

    def _iid(self, table: int, text: str) -> int:
        number = self._interned.get((table, text))
        if number is None:
            number = self._counts[table] = self._interned[table, text] = self._counts.get(table, 0) + 1
            self._new.append(tp.message(table, tp.integer(1, number) + tp.text(2, text)))
        return number

    def _declare(self) -> bytes:
        """Return a packet with the new texts; the track's first one also has its defaults."""
        texts = tp.message(tp.INTERNED, b"".join(self._new))
        self._new.clear()
        if self._begun:
            return tp.packet(texts, tp.integer(tp.SEQUENCE, self._sequence), tp.integer(tp.FLAGS, tp.NEEDS_STATE))
        self._begun = True
        return tp.packet(texts, *self._state(tp.STATE_CLEARED))

    def _state(self, flags: int) -> tuple[bytes, ...]:
        """Return the fields that the following packets share."""
        defaults = tp.message(tp.TRACK_EVENT, tp.integer(tp.TRACK_UUID, self._uuid))
        defaults += tp.integer(tp.CLOCK_ID, tp.COUNTED if self._counted else tp.BOOTTIME)
        sequence = tp.integer(tp.SEQUENCE, self._sequence)
        return sequence, tp.integer(tp.FLAGS, flags), tp.message(tp.DEFAULTS, defaults)


# -- Slices in order of time, and what ends between them ---------------------------------------------------------------


_NOTHING = _Begin(b"", {}, False, b"")


def _where(has: NDArray[np.bool_]) -> Any:
    """Return 1 for each that has a value and 0 for the others; a single 1 if all have one, as usual."""
    return 1 if has.all() else has.astype(np.int64)


def _used(codes: NDArray[np.int32], values: Sequence[Any]) -> list[bool]:
    """Return of each of the values whether a code stands for it."""
    used: list[bool] = (np.bincount(codes, minlength=len(values)) > 0).tolist()
    return used


def _only(columns: Sequence[Columns], number: int) -> Columns:
    """Return one slice, counted through all columns."""
    for one in columns:
        if number < len(one.starts):
            here = slice(number, number + 1)
            args: dict[str, Column] = {
                key: column[here] if isinstance(column, np.ndarray) else Pool(column.values, column.codes[here])
                for key, column in one.args.items()
            }
            return Columns(Pool(one.likes.values, one.likes.codes[here]), one.starts[here], one.durations[here], args)
        number -= len(one.starts)
    raise IndexError(number)


def _with_ends(
    times: Ints, numbers: Ints, ends: Ints, is_slice: NDArray[np.bool_], before: Sequence[int]
) -> tuple[Ints, Ints, list[int]]:
    """Items with the ends of slices between them: times, numbers, and what is still open behind them.

    ``ends``: of those of the items that are slices; ``before``: of slices that were open before. A slice ends before
    the first item behind its own that begins no earlier than its end. If several slices end there, the innermost ends
    first.
    """
    count, others = len(times), len(before)
    closing = np.append(np.array(before, np.int64), ends)
    until = np.searchsorted(times, closing, "left")
    until[others:] = np.maximum(until[others:], np.flatnonzero(is_slice) + 1)
    closed = np.flatnonzero(until < count)
    order = np.lexsort((
        np.append(-closed, np.zeros(count, np.int64)),
        np.append(2 * until[closed], 2 * np.arange(count) + 1),
    ))  # fmt: skip
    return (
        np.append(closing[closed], times)[order],
        np.append(np.full(len(closed), -1), numbers)[order],
        closing[until >= count].tolist(),
    )


# -- Arrows: packets name those that leave and arrive, so they are known before the slices -----------------------------


_Ids = NDArray[np.integer[Any]]
"""32 bits if that is enough."""


class Arrows:
    """By track where arrows ``leave`` and ``arrive``. Packets name them, so they are known before the slices."""

    def __init__(self, trace: Trace) -> None:
        leave, arrive = _ByTrack(), _ByTrack()
        for part in trace.parts if trace.arrows is None else trace.arrows:
            alone: list[tuple[int, ...]] = []
            for event in part():
                if isinstance(event, Flows):
                    leave.add(event.from_track, event.from_ns, event.ids)
                    arrive.add_to_each(event.to_tracks, event.to_ns, event.ids)
                elif isinstance(event, Flow):
                    alone.append((event.id, event.from_track, event.from_ns, event.to_track, event.to_ns))
            if alone:
                ids, from_tracks, from_ns, to_tracks, to_ns = np.array(alone, np.int64).T
                leave.add_to_each(from_tracks, from_ns, ids)
                arrive.add_to_each(to_tracks, to_ns, ids)
        self.leave, self.arrive = leave.in_order(tp.FLOW), arrive.in_order(tp.FLOW_ENDS)


class _ByTrack:
    """Gathers ends of arrows. A large trace has a million, so none is held twice."""

    def __init__(self) -> None:
        self._pieces: dict[int, tuple[list[Ints], list[_Ids]]] = {}

    def add(self, track: int, times: Ints, ids: Ints) -> None:
        if len(ids):
            of_times, of_ids = self._pieces.setdefault(track, ([], []))
            of_times.append(times)
            of_ids.append(ids.astype(np.uint32) if 0 <= ids.min() <= ids.max() < 1 << 32 else ids)

    def add_to_each(self, tracks: NDArray[np.int32] | Ints, times: Ints, ids: Ints) -> None:
        order = np.argsort(tracks, kind="stable")
        for here in np.split(order, np.flatnonzero(np.diff(tracks[order])) + 1) if len(order) else ():
            self.add(int(tracks[here[0]]), times[here], ids[here])

    def in_order(self, field: int) -> dict[int, Ends]:
        found: dict[int, Ends] = {}
        while self._pieces:
            track, (of_times, of_ids) = self._pieces.popitem()
            times = np.concatenate(of_times)
            of_times.clear()
            ids = np.concatenate(of_ids)
            of_ids.clear()
            if (times[1:] < times[:-1]).any():
                order = np.argsort(times, kind="stable")
                times, ids = times[order], ids[order]
            found[track] = Ends(times, ids, field)
        return found


class Ends:
    """The arrows' ends on one track, taken as its slices come by in order of time."""

    def __init__(self, times: Ints, ids: _Ids, field: int) -> None:
        self._times, self._ids = times, ids
        self._head = tp.varint(field << 3 | 1)
        self._at = 0

    def fields(self, starts: Ints, rows: Ints, until: int) -> list[Fields]:
        """Return the fields of arrows before ``until``. If several slices have one start, the last one has them.

        ``starts``: of slices in order, whose packets are ``rows``.
        """
        begin, self._at = self._at, int(np.searchsorted(self._times, until))
        times, ids = self._times[begin : self._at], self._ids[begin : self._at]
        at = np.searchsorted(starts, times, "right") - 1
        here = (at >= 0) & (starts[at] == times) if len(starts) else np.zeros(len(times), np.bool_)
        at, ids = at[here], ids[here]
        first = np.flatnonzero(np.append(True, at[1:] != at[:-1])[: len(at)])
        slices, counts = at[first], np.diff(first, append=len(at))
        one, several = counts == 1, np.flatnonzero(counts > 1)
        single = Fields(int(one.sum()), rows[slices[one]])
        single.constant(self._head)
        single.word(ids[first[one]].astype(np.uint64), 8)
        many = Fields(len(several), rows[slices[several]])
        if len(several):
            texts = [
                b"".join(self._head + tp.fixed64(number) for number in ids[begin : begin + count].tolist())
                for begin, count in zip(first[several].tolist(), counts[several].tolist(), strict=True)
            ]
            many.texts(Texts(texts), np.arange(len(texts)))
        return [single, many]


# -- A trace as packets ------------------------------------------------------------------------------------------------

_COUNTER_RANK = 10_000
"""Counters come below the tracks of their process."""
_BY_ITSELF = tp.integer(tp.SEQUENCE, tp.NOBODYS) + b"\x40"
_REAL_SAMPLE = varint(tp.COUNTER_REAL << 3 | 1)


def write(trace: Trace, file: BinaryIO, *, to_pack: bool = False) -> int:
    """Write ``trace`` packet by packet; return the number of bytes. Memory holds the interned texts, the arrows and
    shared objects.

    ``to_pack`` changes nothing: packets depend on those before them.
    """
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
    return summed.size + tp.CRC_TAIL


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
                tuple(ends[track.id] for ends in (arrows.leave, arrows.arrive) if track.id in ends),
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
        for slices in in_columns(part()):
            if isinstance(slices, (Flow, Flows, CounterValues)):  # arrows are known already
                continue
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
        rows: dict[int | None, tuple[array[int], list[bytes]]] = {}
        for value in values:
            times, events = rows.setdefault(value.track, (array("q"), []))
            if isinstance(value, CounterValue):
                times.append(value.time_ns)
                events += self._samples(value, [value.value], out)
            else:
                times.extend(value.times)
                events += self._samples(value, value.values, out)
        found: dict[int | None, Samples] = {}
        for track, (unsorted, events) in rows.items():
            order = np.argsort(unsorted, kind="stable")
            found[track] = Samples(np.asarray(unsorted)[order], [events[place] for place in order.tolist()])
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
        return [_sample(head, value) for value in values]

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


@lru_cache(maxsize=1 << 14, typed=True)
def _sample(head: bytes, value: float) -> bytes:
    """Cached, because a counter of three digits has few values, and a run may have millions of them."""
    return head + (tp.integer(tp.COUNTER_INTEGER, value) if isinstance(value, int) else _REAL_SAMPLE + short(value))


# -- The head of a trace: its clocks, its metadata, its tracks (perfetto-chrome-trace.md 3) ----------------------------


BESIDE = " · "
"""Between the names of a process and of its track that is shown at the top level."""
_IN_SIGHT = 20
"""Characters that viewers show of a longer name before they cut it."""


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
    attributes = b"".join(tp.message(1, one) for one in _attributes("", trace.metadata))
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
            fields = [tp.integer(1, uuids[track.process, track.id]), tp.text(2, cleaned(track.name))]
            fields += [tp.integer(5, parent), *placed(track.sort, track.description)]
            yield tp.stateless(tp.message(tp.TRACK_DESCRIPTOR, b"".join(fields)))


def _group(process: Process, main: Track | None, uuid: int) -> bytes:
    """Return a process; if its main track has slices, it has the names of both."""
    name, help_ = process.name, process.description
    if main is not None:
        # Viewers cut names in the middle, so the part that differs comes first, the model of the device last.
        head, bracket, rest = name.partition(" (")
        name, help_ = f"{head}{BESIDE}{main.name}{bracket}{rest}", f"{help_} {main.description}".strip()
        brief = f"{head}{BESIDE}{main.brief}"
        if main.brief and len(brief) > _IN_SIGHT and (not rest or rest.endswith(")")):
            name, help_ = brief, f"{name}. {help_}"
    fields = [tp.integer(1, uuid), tp.text(2, cleaned(name)), tp.integer(11, tp.EXPLICIT_ORDER)]
    return b"".join([*fields, *placed(process.sort, help_)])


def placed(rank: int, description: str) -> Iterator[bytes]:
    yield tp.integer(12, max(-(1 << 31), min(rank, (1 << 31) - 1)))
    if description:
        yield tp.text(14, cleaned(description))
    yield tp.integer(15, tp.NEVER_MERGED)


def _attributes(path: str, value: Any) -> Iterator[bytes]:
    """Return metadata with flat keys: ``clock.device.offset_ns``, ``inputs[0].size``; values are texts and integers."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _attributes(f"{path}.{cleaned(key)}" if path else cleaned(key), item)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _attributes(f"{path}[{number}]", item)
    elif isinstance(value, bool):
        yield tp.text(1, path) + tp.text(3, str(value).lower())
    elif value is not None:
        clean = cleaned(value)
        yield tp.text(1, path) + (tp.integer(2, clean) if isinstance(clean, int) else tp.text(3, str(clean)))


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
