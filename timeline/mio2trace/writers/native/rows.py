"""The packets of one track: its slices, its counters, and the texts and times that they use."""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mio2trace.trace import OWN_FIRST, Args, Flow, Slice, Slices, Trace
from mio2trace.writers.native import packets as tp
from mio2trace.writers.native.packets import short, varint
from mio2trace.writers.text import cleaned, slice_name

FEWEST_IN_COLUMNS = 1000
_MOST_REALS = _MOST_WORDS = 1 << 14
_END_EVENT = tp.message(tp.TRACK_EVENT, tp.integer(tp.TYPE, tp.END))


FIRST = {
    key: place
    for place, key in enumerate(("layer", "direction", "operation_name", "solver", "algorithm", "role", "command"))
}
"""The arguments that a reader looks for first among those that slices share, in this order; viewers keep it."""
LAST = ("layer_by", "operation_by", "sure", "doubt", "layer_index", "full_name")
"""The evidence of a kernel's links, and a long name: after all other arguments, in this order."""


class _Begin(NamedTuple):
    """The part that a slice shares with similar ones: ``before`` and ``behind`` its own arguments.

    ``shared`` is kept with its bytes, so that no other mapping can get its id. ``own_colour``: it has no colour.
    ``headed``: ``before`` with the beginning of its packet, by the size of the event and of the time.
    """

    before: bytes
    shared: Args
    own_colour: bool
    behind: bytes
    headed: dict[int, bytes]


class Row:
    """A track's packets: open slices, the time of the last packet, the interned texts."""

    def __init__(
        self, sequence: int, uuid: int, counted: bool, colour_by: tuple[str, ...], ends: tuple[Ends, ...]
    ) -> None:
        self.counted = counted
        self.colour_by = colour_by
        self.ends = ends
        self.open: list[int] = []
        self.last = 0
        self._sequence = sequence
        self._uuid = uuid
        # The time follows, as the last field of every packet.
        self.tail = tp.integer(tp.SEQUENCE, sequence) + tp.integer(tp.FLAGS, tp.NEEDS_STATE) + b"\x40"
        end = _END_EVENT + self.tail
        self._end_heads = [b"\x0a" + varint(len(end) + size) + end for size in range(11)]
        self.end = self._end_heads[0]
        """The size of the time is added to its second byte."""
        self._interned: dict[tuple[int, str], int] = {}
        self._counts: dict[int, int] = {}
        self.new: list[bytes] = []
        self._likes: dict[int, tuple[Slice, _Begin]] = {}
        """The slice is kept, so that no other object can get its id."""
        self._begins: dict[tuple[int, str, str], _Begin] = {}
        self._begin_heads: list[dict[int, bytes]] = [{} for _ in range(11)]
        self._numbers: dict[str, list[bytes]] = {}
        """By argument: the bytes before an integer, by the number of its bytes; the first is for a double."""
        self._reals: dict[float, bytes] = {}
        self._words: dict[tuple[str, str | bool], bytes] = {}
        self.held: Slice | None = None
        self._begun = False

    def slice(self, event: Slice, out: list[bytes]) -> None:
        """Add the packets of a slice, and the ends of earlier slices."""
        if self.ends:
            # An arrow binds to the innermost slice: only the next slice shows whether one more starts at this time.
            held, self.held = self.held, event
            if held is not None:
                self._slice(held, event.start_ns, out)
        else:
            self._slice(event, None, out)

    def rows(self, rows: Slices, samples: Sequence[tuple[int, bytes]], out: list[bytes]) -> None:
        """Add slices in columns. ``samples``: the counters' events among them, each with its time, before the
        last one."""
        if len(rows) >= FEWEST_IN_COLUMNS:
            from mio2trace.writers.native.columns import add_columns  # numpy is loaded only for many slices

            if add_columns(self, rows, samples, out):
                return
        at = 0
        for event in rows.slices():
            while at < len(samples) and samples[at][0] < event.start_ns:
                self.counter(*samples[at], out)
                at += 1
            self.slice(event, out)

    def let_go(self, following: int | None, out: list[bytes]) -> None:
        """Add the packets that were kept back. ``following``: the start of the next slice."""
        if self.held is not None:
            self._slice(self.held, following, out)
            self.held = None

    def counter(self, at: int, sample: bytes, out: list[bytes]) -> None:
        """Add a counter's event among the slices; its time counts from the last of them."""
        self.let_go(None, out)
        while self.open and self.open[-1] <= at:
            self._close(out)
        if not self._begun:
            out.append(self.declare())
        self._keep_counting(at, out)
        time = varint(at - self.last if self.counted else at)
        self.last = at
        out.append(tp.message(tp.PACKET, b"\x5a" + varint(len(sample)) + sample + self.tail + time))

    def _keep_counting(self, at: int, out: list[bytes]) -> None:
        if self.counted and at < self.last:
            self.counted = False  # a track that is continued
            out.append(tp.packet(*self._state(tp.NEEDS_STATE)))

    def finish(self, out: list[bytes]) -> None:
        """Add the ends of slices that are still open."""
        self.let_go(None, out)
        while self.open:
            self._close(out)

    def _close(self, out: list[bytes]) -> None:
        end = self.open.pop()
        time = varint(end - self.last if self.counted else end)
        self.last = end
        out += (self._end_heads[len(time)], time)

    def _slice(self, event: Slice, following: int | None, out: list[bytes]) -> None:
        start = event.start_ns
        while self.open and self.open[-1] <= start:
            self._close(out)
        self.open.append(start + event.dur_ns)
        common, pieces = self.body(event)
        for ends in self.ends:
            pieces.append(ends.take(start, following))
        if self.new:
            out.append(self.declare())
        self._keep_counting(start, out)
        time = varint(start - self.last if self.counted else start)
        self.last = start
        own = b"".join(pieces)
        size = len(common) + len(own)
        head = self._begin_heads[len(time)].get(size) or self.head(size, len(time))
        out += (head, common, own, self.tail, time)

    def head(self, size: int, of_time: int) -> bytes:
        """Return the bytes before an event of ``size`` bytes whose time has ``of_time``."""
        length = varint(size)
        all_of_it = 1 + len(length) + size + len(self.tail) + of_time
        head = self._begin_heads[of_time][size] = b"\x0a" + varint(all_of_it) + b"\x5a" + length
        return head

    def headed(self, begin: _Begin, size: int, of_time: int) -> bytes:
        """Return the bytes before ``size`` own bytes of a slice, with a time of this many bytes."""
        headed = begin.headed[size << 4 | of_time] = (
            self.head(len(begin.before) + size + len(begin.behind), of_time) + begin.before
        )
        return headed

    def key(self, key: str) -> int:
        """Return the number of an argument's name."""
        return self._iid(tp.KEYS, cleaned(key))

    def text(self, text: str) -> int:
        """Return the number of an argument's value."""
        return self._iid(tp.TEXTS, cleaned(text))

    def begins(self, likes: Sequence[Slice]) -> list[_Begin]:
        """Return `begun_as` of each; many slices share one object."""
        known = self._likes
        for like in {id(like): like for like in likes}.values():
            if id(like) not in known:
                known[id(like)] = like, self.begun_as(like)
        return [known[id(like)][1] for like in likes]

    def begun_as(self, event: Slice) -> _Begin:
        shared = event.shared
        held = self._begins.get((id(shared), event.name, event.category))
        if held is None:
            # Each of many slices may have its own layer, or all of them the same one.
            before, behind = self._begin(event)
            held = _Begin(before, shared, not self._colour(shared), behind, {})
            self._begins[id(shared), event.name, event.category] = held
        return held

    def body(self, event: Slice) -> tuple[bytes, list[bytes]]:
        """Return the event of a slice without its arrows: the shared part and its own arguments."""
        held = self.begun_as(event)
        numbers, reals, words = self._numbers, self._reals, self._words
        pieces: list[bytes] = []
        if held.own_colour and event.args:
            pieces.append(self._colour(event.args))
        for key, value in event.args.items():
            kind = type(value)
            if kind is int and 0 <= value < 1 << 63:
                heads = numbers.get(key) or self._number_heads(key)
                last = varint(value)
                pieces += (heads[len(last)], last)
            elif kind is float and -tp.HUGE < value < tp.HUGE:
                heads = numbers.get(key) or self._number_heads(key)
                real = reals.get(value)
                pieces += (heads[0], self._real(value) if real is None else real)
            elif kind is str or kind is bool:
                word = words.get((key, value))
                pieces.append(self._word(key, value) if word is None else word)
            else:
                pieces.append(self._annotation(key, value))
        pieces.append(held.behind)
        return held.before, pieces

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
        for key in self.colour_by:
            value = args.get(key)
            if value is not None:
                return tp.integer(tp.CORRELATION, zlib.crc32(f"{key} {value}".encode(errors="replace")) >> 8 | 1)
        return b""

    def _annotation(self, key: str, value: Any) -> bytes:
        held = self._value(value)
        if not held:
            return b""
        return tp.message(tp.ANNOTATION, tp.integer(tp.KEY, self._iid(tp.KEYS, cleaned(key))) + held)

    def _word(self, key: str, value: str | bool) -> bytes:
        """Return an annotation that is text or a truth value; kept, because kernels have few names."""
        if len(self._words) == _MOST_WORDS:
            self._words.clear()
        packed = self._words[key, value] = self._annotation(key, value)
        return packed

    def _number_heads(self, key: str) -> list[bytes]:
        name = tp.integer(tp.KEY, self._iid(tp.KEYS, cleaned(key)))
        head = name + varint(tp.INT << 3)
        heads = [varint(tp.ANNOTATION << 3 | 2) + varint(len(head) + size) + head for size in range(11)]
        heads[0] = varint(tp.ANNOTATION << 3 | 2) + varint(len(name) + 9) + name + varint(tp.REAL << 3 | 1)
        self._numbers[key] = heads
        return heads

    def _real(self, value: float) -> bytes:
        """Return a rate; kept, because many are equal with three digits."""
        if len(self._reals) == _MOST_REALS:
            self._reals.clear()
        packed = short(value)
        if value:  # there are two zeros
            self._reals[value] = packed
        return packed

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
            self.new.append(tp.message(table, tp.integer(1, number) + tp.text(2, text)))
        return number

    def declare(self) -> bytes:
        """Return a packet with the new texts; the track's first one also has its defaults."""
        texts = tp.message(tp.INTERNED, b"".join(self.new))
        self.new.clear()
        if self._begun:
            return tp.packet(texts, tp.integer(tp.SEQUENCE, self._sequence), tp.integer(tp.FLAGS, tp.NEEDS_STATE))
        self._begun = True
        return tp.packet(texts, *self._state(tp.STATE_CLEARED))

    def _state(self, flags: int) -> Iterator[bytes]:
        """Return the fields that the following packets share."""
        defaults = tp.message(tp.TRACK_EVENT, tp.integer(tp.TRACK_UUID, self._uuid))
        defaults += tp.integer(tp.CLOCK_ID, tp.COUNTED if self.counted else tp.BOOTTIME)
        yield from (
            tp.integer(tp.SEQUENCE, self._sequence),
            tp.integer(tp.FLAGS, flags),
            tp.message(tp.DEFAULTS, defaults),
        )


# -- Arrows: packets name those that leave and arrive, so arrows must be known before the slices -----------------------


class Arrows:
    """The places where arrows leave and arrive: track -> (times in order, ids)."""

    def __init__(self, trace: Trace) -> None:
        self.leave: dict[int, tuple[array[int], array[int]]] = {}
        self.arrive: dict[int, tuple[array[int], array[int]]] = {}
        leave, arrive = self.leave, self.arrive
        for part in trace.parts if trace.arrows is None else trace.arrows:
            for event in part():
                if type(event) is Flow:
                    number = event.id
                    try:
                        times, ids = leave[event.from_track]
                    except KeyError:
                        times, ids = leave[event.from_track] = array("q"), array("Q")
                    times.append(event.from_ns)
                    ids.append(number)
                    try:
                        times, ids = arrive[event.to_track]
                    except KeyError:
                        times, ids = arrive[event.to_track] = array("q"), array("Q")
                    times.append(event.to_ns)
                    ids.append(number)
        for ends in (self.leave, self.arrive):
            for track, (times, ids) in ends.items():
                if any(map(int.__gt__, times, times[1:])):
                    order = sorted(range(len(times)), key=times.__getitem__)
                    ends[track] = array("q", [times[n] for n in order]), array("Q", [ids[n] for n in order])


class Ends:
    """The arrows' ends on one track, used up while its slices come in order of time."""

    __slots__ = ("_at", "_ids", "_last", "_times", "head")

    def __init__(self, ends: tuple[array[int], array[int]], field: int) -> None:
        self._times, self._ids = ends
        self.head = tp.varint(field << 3 | 1)
        self._at = 0
        self._last = len(self._times)

    def take(self, start: int, following: int | None) -> bytes:
        """Return the fields for a slice that starts at ``start``; the innermost of the slices that start there gets
        them."""
        at, times, last = self._at, self._times, self._last
        while at < last and times[at] < start:
            at += 1
        out = b""
        if following != start:
            while at < last and times[at] == start:
                out += self.head + tp.fixed64(self._ids[at])
                at += 1
        self._at = at
        return out

    def passed(self, until: int) -> tuple[array[int], array[int]]:
        """Return times and ids of the ends before a time, and remove them."""
        begin, self._at = self._at, bisect_left(self._times, until, self._at)
        return self._times[begin : self._at], self._ids[begin : self._at]


def ends_of(arrows: Arrows, track: int) -> tuple[Ends, ...]:
    kinds = ((arrows.leave, tp.FLOW), (arrows.arrive, tp.FLOW_ENDS))
    return tuple(Ends(ends[track], field) for ends, field in kinds if track in ends)
