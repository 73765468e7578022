"""A long JSON array of objects, cut between two of them: only one piece of it is in memory. Also the array
``traceEvents`` of a Chrome JSON object, or such an array alone, read so.

A piece of that is decoded at once. A piece that does not decode is read event by event. An array that stops (a killed
run) is read up to its last whole event.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Annotated, Any

import msgspec

from mio2trace.machine import ensure_free
from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors when a piece of untrusted input is decoded."""


def pieces(
    first: bytes, blocks: Iterable[bytes], between: re.Pattern[bytes], border: int, most: int
) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield (whole objects as an array, bytes between them and the next one, what was read of that); the last piece has
    all that follows, and -1 bytes.

    ``between``: from the end of an object to the begin of the next one, in at most ``border`` bytes. In a JSON string
    every quote is escaped, so it is found only there. Raises `OverflowError` for an object of more than ``most`` bytes.
    """
    # An object may be longer than a block, and the border of two objects may be in two blocks.
    held: list[bytes] = []
    size, tail = 0, first
    for block in blocks:
        cut = _last(between, block)
        if cut is None:
            tail, block = b"", tail + block
            cut = _last(between, block)
        if cut is None:
            held.append(block[:-border])
            tail = block[-border:]
            size += len(held[-1])
            if size > most:
                raise OverflowError
            continue
        end = cut.start() + 1
        text = b"".join((b"[", *held, tail, memoryview(block)[:end], b"]"))
        held.clear()
        size, tail = 0, block[cut.end() :]
        ensure_free(min(16 * len(text), 2 * len(text) + _ROOM))
        yield text, cut.end() - end, tail
    yield b"".join((b"[", *held, tail, b"]")), -1, b""


def _last(between: re.Pattern[bytes], block: bytes) -> re.Match[bytes] | None:
    for back in (1 << 11, 1 << 14, 1 << 20, len(block)):
        found = deque(between.finditer(block, max(0, len(block) - back)), maxlen=1)
        if found:
            return found[0]
    return None


_ROOM = 8 << 20
"""Bytes for the objects of a piece. They take two or three bytes for each byte of text, at most 16 if they are tiny. A
piece that is larger than its block has one long text, which takes two bytes per byte at most."""
LONGEST_EVENT = 64 << 20
"""Bytes; also of the text around the array. Reading stops at a longer text: without an end it would fill the memory."""
EXACT_BELOW = 1 << 43
"""Microseconds: a smaller double distinguishes any three decimals; rounding the fraction restores them."""
ROUNDED_BELOW = 1 << 42
"""Microseconds: rounding a thousand times a smaller double restores ns: its error is below half a nanosecond."""
_FIRST_KEYS = r'"(?:ph|name|cat|args|bp|dur)"\s*:'
_BETWEEN = late(rb"\}\s*,\s*(?=\{\s*" + _FIRST_KEYS.encode() + b")")
_NEXT = late(r"\{\s*" + _FIRST_KEYS)
_OPENING = late(rb'"traceEvents"\s*:\s*\[')
_ALONE = late(rb"\s*\[")
_EVENT_BEHIND = late(rb"\s*+\}?[\s,]*+\{")
"""Another event or another trace behind the closing bracket, which damage can put between two events."""
_SPACE = late(r"[\s,]*")
_LONE_SURROGATE = late("[\ud800-\udfff]")
_NO_VALUE = late(rb'(?<![\\\s:,\[{])(?<!"name)(?<!"cat)(?<!"ph)("\s*:\s*)(?:-?(?:inf|nan|NaN|Infinity)\s*)?(?=[,}])')
"""A value as C++ prints it, which JSON does not have: ``"blocks per SM": inf`` (of a device without properties),
``"memory bandwidth (GB/s)": inf`` (a copy of no duration), ``"Process Group Description": ,`` (an empty
text without quotes). A row without a name or kind stays unreadable, and a text may begin so: ``"name": ": ,"``."""
_PADDING = b" \t\r\n\0,]"
"""Bytes behind an array alone that hold no event: what a program that joins arrays, or a file system, left there."""
_MOST_FAILED = 16
"""Events of a piece that may be searched up to its end. Later events end at the latest where another may begin: a text
without an end would be read again for every event after it."""
_LONGEST_BORDER = 1 << 10
_NO_ARGS, _UNREADABLE_ARGS = msgspec.Raw(b"{}"), msgspec.Raw(b"null")
NOTHING = msgspec.Raw(b"")
Number = int | float | Decimal
Id = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Args(msgspec.Struct, frozen=True, gc=False):
    """The arguments of an event that are read, for any category; inputs of an op as their JSON text."""

    external: Id | None = msgspec.field(name="External id", default=None)
    sequence: Id | None = msgspec.field(name="Sequence number", default=None)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NOTHING)
    dims_before: msgspec.Raw = msgspec.field(name="Input dims", default=NOTHING)
    """The name in PyTorch 1.8."""
    types: msgspec.Raw = msgspec.field(name="Input type", default=NOTHING)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=NOTHING)
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=NOTHING)
    correlation: Id | None = None
    grid: tuple[int, int, int] | str | None = None
    """Text if it is an op of Triton: ``grid(100,)``; some tools write this and ``block`` as text: ``[64, 1, 1]``."""
    block: tuple[int, int, int] | str | None = None
    registers: Any = msgspec.field(name="registers per thread", default=None)
    shared: Any = msgspec.field(name="shared memory", default=None)
    size: Id | str | None = msgspec.field(name="bytes", default=None)
    kind: Any = None
    device: Any = None
    stream: Any = None
    collective: msgspec.Raw = msgspec.field(name="Collective name", default=NOTHING)
    sent: Any = msgspec.field(name="In msg nelems", default=None)
    received: Any = msgspec.field(name="Out msg nelems", default=None)
    ranks: Any = msgspec.field(name="Group size", default=None)
    group: msgspec.Raw = msgspec.field(name="Process Group Name", default=NOTHING)
    members: msgspec.Raw = msgspec.field(name="Process Group Ranks", default=NOTHING)
    dtype: msgspec.Raw = msgspec.field(default=NOTHING)
    python: Any = msgspec.field(name="Python id", default=None)
    parent: Any = msgspec.field(name="Python parent id", default=None)
    name: msgspec.Raw = msgspec.field(default=NOTHING)
    """The name of a process, or of the node of an op in TensorFlow's timeline."""
    kernel: Any = None
    graph: Any = msgspec.field(name="graph id", default=None)
    node: Any = msgspec.field(name="graph node id", default=None)
    kernel_file: Any = None
    rank: Any = None
    """In a file that TraceLens fused of those of all ranks."""


class Event(msgspec.Struct, gc=False):
    """One event. Times are microseconds."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str | float | None = None
    tid: int | str | float | None = None
    ts: int | float | Decimal | None = None
    dur: int | float | Decimal | None = None
    id: int | str | float | None = None
    args: Args = Args()


class _QuickEvent(Event, gc=False):
    """Times as doubles, which are exact for any file with a base time."""

    ts: int | float | None = None
    dur: int | float | None = None


class _ExactEvent(Event, gc=False):
    """Times as decimal numbers: slower, and exact for any size."""

    ts: int | Decimal | None = None
    dur: int | Decimal | None = None


class _LooseEvent(_ExactEvent, gc=False):
    """Arguments as their JSON text: those of some event may have other types."""

    args: msgspec.Raw = _NO_ARGS  # type: ignore[assignment]


_EVENTS = msgspec.json.Decoder(list[_QuickEvent])
_EXACT_EVENTS = msgspec.json.Decoder(list[_ExactEvent])
_LOOSE_EVENTS = msgspec.json.Decoder(list[_LooseEvent])
_ARGS = msgspec.json.Decoder(Args, strict=False)


class EventArray:
    """The array of events in a Chrome trace, read piece by piece. ``pieces`` yields the events; afterwards ``around``
    is the object's text without them.

    ``is_alone``: there is no object. Chrome's format allows that, also without the closing bracket.
    """

    def __init__(self, blocks: Iterator[bytes], place: str, notes: Notes) -> None:
        """Raises `InputError` if there is no such array."""
        self._blocks = blocks
        self._place = place
        self._notes = notes
        self._decoder: msgspec.json.Decoder[Any] = _EVENTS
        self._closed = False
        self._after = b""
        before, opening = b"", None
        while opening is None and len(before) <= LONGEST_EVENT and (block := next(blocks, b"")):
            at = max(0, len(before) - _LONGEST_BORDER)
            before += block
            opening = _ALONE.match(before) or _OPENING.search(before, at)
        if opening is None:
            if not before.rstrip().endswith(b"}"):
                notes.cut_off(place)
            raise InputError(f"{place}: no traceEvents; expected a trace of PyTorch's profiler")
        self.before = before[: opening.end()]
        """The text before the array, with its bracket."""
        self.is_alone = before.lstrip()[:1] == b"["
        self._rest = before[opening.end() :]

    @property
    def around(self) -> bytes:
        """The object with an empty array."""
        if self.is_alone:
            return b"{}"
        return self.before + b"]" + (self._after or b"}")

    def pieces(self) -> Iterator[Sequence[Event]]:
        """Yield all events, piece by piece; times that a double cannot hold are `Decimal`."""
        for text, is_last in self._texts():
            yield self._events(text, is_last)
            if self._closed:
                break
        self._after += self._rest
        for block in self._blocks:  # only if the array is closed before the last piece
            if len(self._after) < LONGEST_EVENT:
                self._after += block
        after = self._after
        if after.strip(_PADDING) if self.is_alone else _OPENING.search(after) or _EVENT_BEHIND.match(after):
            self._notes.unreadable(f"{self._place}: behind the array of events")

    def _texts(self) -> Iterator[tuple[bytes, bool]]:
        """Yield whole events as an array (the last one with all text after it), and whether it is the last."""
        first, self._rest = self._rest, b""
        try:
            for text, gap, rest in pieces(first, self._blocks, _BETWEEN, _LONGEST_BORDER, LONGEST_EVENT):
                self._rest = b"" if gap < 0 else b"," + rest
                yield text, gap < 0
        except OverflowError:
            self._notes.add(f"event longer than {LONGEST_EVENT >> 20} MiB: read up to there", self._place)

    def _events(self, text: bytes, is_last: bool) -> Sequence[Event]:
        if is_last:
            return self._one_by_one(_NO_VALUE.sub(rb"\1null", text[1:-1]), is_last)
        try:
            events: Sequence[Event] = self._decoder.decode(text)
            times = [event.ts for event in events if type(event.ts) is float]
            if self._decoder is _EVENTS and times and not -EXACT_BELOW < min(times) <= max(times) < EXACT_BELOW:
                self._decoder = _EXACT_EVENTS
                events = self._decoder.decode(text)
            return events
        except UNREADABLE:
            text = _NO_VALUE.sub(rb"\1null", text)
        try:
            return [self._read_args(event) for event in _LOOSE_EVENTS.decode(text)]
        except UNREADABLE:
            return self._one_by_one(text[1:-1], is_last)

    def _read_args(self, event: _LooseEvent) -> Event:
        """Return ``event`` with decoded arguments, in which numbers may be text; without those that do not decode."""
        args = Args()
        try:
            args = _ARGS.decode(event.args)
        except UNREADABLE:
            self._notes.add("arguments of a row that could not be read", self._place)
        return Event(event.ph, event.cat, event.name, event.pid, event.tid, event.ts, event.dur, event.id, args)

    def _one_by_one(self, text: bytes, is_last: bool) -> list[Event]:
        """Yield the events of a piece with the end of the array or with unexpected content."""
        import json

        try:
            plain = text.decode()
        except UnicodeDecodeError:
            plain = text.decode("utf-8", "replace")
            self._notes.add("text in the trace that is not UTF-8", self._place)
        decoder = json.JSONDecoder(strict=False, parse_float=_number)
        events: list[Event] = []
        failed = 0
        is_whole = True
        at = _end_of_space(plain, 0)
        while at < len(plain):
            if plain[at] == "]":
                self._closed = True
                self._after = plain[at + 1 :].encode()
                return events
            following = _NEXT.search(plain, at + 1) if failed > _MOST_FAILED else None
            try:
                if following is None:
                    made, at = decoder.raw_decode(plain, at)
                else:
                    made, end = decoder.raw_decode(plain[at : following.start()])
                    at += end
            except (ValueError, RecursionError):
                failed += 1
                is_whole = False
                following = following or _NEXT.search(plain, at + 1)
                if following is not None or not is_last:
                    self._notes.unreadable(self._place)
                at = len(plain) if following is None else following.start()
                continue
            is_whole = True
            at = _end_of_space(plain, at)
            if isinstance(made, dict):
                events.append(self._read_args(_event(made)))
            else:
                self._notes.unreadable(self._place)
        if is_last and self.is_alone and is_whole:
            self._notes.remark(
                "array of events without its closing bracket: more events may have been in it", self._place
            )
        elif is_last:
            self._notes.cut_off(self._place)
        return events


def nanoseconds(value: object) -> int | None:
    """Convert microseconds to ns, exactly; None if it is no time."""
    if type(value) is float and -EXACT_BELOW < value < EXACT_BELOW:
        whole = int(value)
        return whole * 1000 + round((value - whole) * 1000)
    if type(value) is int:
        return value * 1000
    if isinstance(value, Decimal) and value.is_finite() and -(1 << 60) < value < 1 << 60:
        return int((value * 1000).to_integral_value())
    return None


def _number(text: str) -> Number:
    return Decimal(text) if len(text) < 40 and text.replace(".", "").lstrip("-").isdecimal() else float(text)


def _time(value: Any) -> Any:
    """Return a time, also of text, as the decoders above read it."""
    try:
        return _number(value) if isinstance(value, str) else value
    except (ValueError, ArithmeticError):
        return None


def _event(made: dict[str, Any]) -> _LooseEvent:
    raw = _NO_ARGS
    if "args" in made:
        try:
            raw = msgspec.Raw(msgspec.json.encode(made["args"]))
        except (ValueError, TypeError, RecursionError, OverflowError):
            raw = _UNREADABLE_ARGS
    words = (word if isinstance(word := made.get(key), str) else "" for key in ("ph", "cat", "name"))
    ph, cat, name = (_LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", word) for word in words)
    plain = [made.get(key) for key in ("pid", "tid", "ts", "dur", "id")]  # no lists, objects and the like
    pid, tid, ts, dur, number = (one if isinstance(one, (int, float, str, Decimal)) else None for one in plain)
    return _LooseEvent(ph, cat, name, pid, tid, _time(ts), _time(dur), number, raw)  # type: ignore[arg-type]


def _end_of_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space is not None else at
