"""Entries, one open per thread: header, parameters, brace (miopen-log.md 3); also headers that a terminal wrapped, and
entries that repeat.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from mio2trace.model.log import LocalTime
from mio2trace.model.miopen import Command, Entry, LoggedCall, Message, cut_addresses
from mio2trace.notes import Notes
from mio2trace.patterns import late
from mio2trace.readers.miopen.lines import (
    KEY,
    MAX_PARAMS,
    NOT_KEPT,
    PARAM,
    PREFIX,
    REDUCE_PART,
    api_name,
    type_and_shape,
)

INTERN = 1 << 13  # texts of each kind that are kept for sharing

_BASE_WORD = late(r"[A-Za-z]{1,16}(?:64|fp16|bfp16|int8)?")
"""Base words as in MIOpenDriver: an operation and a type. Other words with digits may name a machine."""
NO_PREFIX = b"\n\n"  # no line has this number


class Unit(msgspec.Struct):
    """A text that was met before, and its effect when it comes again: a line with the same meaning, or an entry.
    ``pieces``: the texts between the addresses. ``cut``: takes a text apart into these and the addresses (None without
    addresses). ``size``: in bytes. One of ``call`` and ``line`` is the record; the number of its line does not count.
    ``digits`` and ``addresses``: those of its last entry, which the next one often has again. ``shape`` and ``dtype``:
    of a Set call, which is kept if it changes the type of a shape. ``key``: looked up by a message. ``thread``: the
    thread to which a line with a prefix switches; a line without one belongs to the current thread. ``after``: the
    place in the history after its last occurrence."""

    count: str
    pieces: tuple[bytes, ...]
    size: int
    thread: int | None
    lines: int = 1
    cut: Callable[[bytes, int], tuple[bytes, ...]] | None = None
    call: LoggedCall | None = None
    line: Command | Message | None = None
    digits: Sequence[bytes] = ()
    addresses: bytes = b""
    shape: bytes = b""
    dtype: bytes = b""
    key: str | None = None
    prefixed: bool = True
    after: int = 0


class Header(msgspec.Struct, kw_only=True):
    """A header line, learned once per distinct line, so that its next entry can be taken as a whole. ``prefix``: the
    beginning of the line. ``units``: the entries with this header, by their text without addresses and the lengths of
    these; None for an entry that must be read line by line."""

    api: str
    nested: bool = False
    keep: bool = True
    sets_type: bool = False
    prefix: bytes = NO_PREFIX
    thread: int | None = None
    units: dict[bytes, Unit | None] = {}


Clock = Callable[[int], tuple[LocalTime | None, int | None]]


class Collected:
    """Records and counts so far. ``stamp`` and ``elapsed``: of the current line. ``everything``: also keep records that
    show nothing about an operation."""

    def __init__(self, source: int, *, everything: bool = False) -> None:
        self.source = source
        self.everything = everything
        self.records: list[Entry | Command | Message] = []
        self.counts: Counter[str] = Counter()
        self.stamp: LocalTime | None = None
        self.elapsed: int | None = None
        self.clock: Clock | None = None
        """Returns stamp and elapsed time by line while many lines are taken at once."""
        self.last_key = ""
        self.types: dict[bytes, bytes] = {}
        """The last type of a shape, both as logged."""
        self._calls: dict[LoggedCall, LoggedCall] = {}

    def call(self, header: Header, template: bytes, lines: int, complete: bool) -> LoggedCall:
        """Return the object that equal calls share."""
        nested = header.nested or template.startswith((b'"', b"name + "))
        call = LoggedCall(
            source=self.source, api=header.api, template=template, lines=lines, thread=header.thread, nested=nested,
            complete=complete,
        )  # fmt: skip
        if len(self._calls) > INTERN:
            self._calls.clear()
        return self._calls.setdefault(call, call)

    def add_entry(
        self,
        header: Header,
        line: int,
        end: int,
        body: bytes,
        stamp: LocalTime | None = None,
        elapsed_ns: int | None = None,
        complete: bool = True,
    ) -> None:
        """Add an entry from ``line`` to ``end``, if entries of its kind are kept."""
        self.counts["entry " + header.api] += 1
        known = header.sets_type and complete and self._type_is_known(body)
        if not self.everything and (not header.keep or known):
            return
        template, addresses = cut_addresses(body)
        call = self.call(header, template, end - line + 1, complete and bool(header.api))
        self.records.append(Entry(line, call, addresses, stamp, elapsed_ns))

    def _type_is_known(self, body: bytes) -> bool:
        """Return whether a Set call repeats the last type of its shape: then it shows nothing new."""
        dtype, shape = type_and_shape(body)
        if not shape or self.types.get(shape) == dtype:
            return bool(shape)
        if len(self.types) > INTERN:
            self.types.clear()
        self.types[shape] = dtype
        return False

    def add_command(self, line: int, tag: str, text: str, thread: int | None) -> None:
        self.counts[command_kind(text)] += 1
        self.records.append(Command(self.source, line, tag, text, thread, self.stamp, self.elapsed))

    def is_new_key(self, key: str | None) -> bool:
        """Return whether a line looks up another key than the line before: every database is asked for the same one."""
        if self.everything:
            return True
        if key is None or key == self.last_key:
            return False
        self.last_key = key
        return True


def command_kind(text: str) -> str:
    """Return the kind under which a command is counted: its base word, if it begins with one."""
    word = text.partition(" ")[0]
    return f"command {word}" if _BASE_WORD.fullmatch(word) else "command of another form"


def key_of(message: Message) -> str | None:
    """Return the key that a message of the kind ``key`` looks up."""
    found = KEY.search(message.text) if message.kind == "key" else None
    return found[1] if found is not None else None


# -- Replay: repeated records as whole pieces of bytes -----------------------------------------------------------------
#
# Iterations repeat, and so do their lines in the log. An entry is identified by its text without the addresses: fixed
# pieces with digits in between, which one `struct.Struct` takes apart. The record that followed last time is tried
# first. The result is that of reading line by line (`benchmarks/fuzz_logs.py` compares).

_HEX = b"0123456789abcdef"
_NOT_PLAIN = (b"\r", b"\x1b", b"\0")
_LONGEST = 1 << 14  # bytes of an entry to wait for
_HISTORY = 1 << 20
_GLOG = frozenset((b"I", b"W", b"E", b"F"))


Other = Callable[[int, bytes], bool]


def nothing(number: int, line: bytes) -> bool:
    return False


class Replay:
    """Knows the headers and lines that were met. ``names``: of parameters that were met without a prefix."""

    def __init__(self, out: Collected, names: set[bytes]) -> None:
        self._out = out
        self._names = names
        self._known: dict[bytes, Header | Unit] = {}
        self._history: list[Unit] = []
        self._place = 0  # in the history: the next record if everything repeats

    def header(self, line: bytes) -> Header | None:
        """Return the header of a line, if it was met."""
        found = self._known.get(line)
        return found if isinstance(found, Header) else None

    def learn_header(self, line: bytes, header: Header) -> None:
        """Learn a header whose entry was read to its end."""
        if b"\r" not in line and len(self._known) < INTERN:
            self._known.setdefault(line, header)

    def learn_line(
        self,
        line: bytes,
        count: str,
        thread: int | None,
        record: Command | Message | None = None,
        prefixed: bool = True,
    ) -> None:
        """Learn a line with its count and its record, if one is kept. A text with carriage returns is several lines."""
        if len(self._known) < INTERN and b"\r" not in line and line not in self._known:
            key = key_of(record) if isinstance(record, Message) else None
            unit = Unit(count, (line,), len(line), thread, line=record, key=key, prefixed=prefixed)
            self._known[line] = unit

    def take(
        self, data: bytes, at: int, number: int, thread: int | None, other: Other
    ) -> tuple[int, int, int | None, bool]:
        """Read the records from ``data[at:]``, line ``number``, as long as they equal earlier ones. ``other`` gets the
        lines that begin like glog's, and returns whether it took them. Return the place and the line of the first new
        record, the thread of the last one taken, and whether the new one is an entry whose end may be in the following
        bytes."""
        history, place = self._history, self._place
        if len(history) >= _HISTORY:
            self.settle()
        while True:
            unit = foreseen = history[place] if place < len(history) else None
            digits = _cut(unit, data, at, thread) if unit is not None else None
            place += 1
            if unit is None or digits is None:
                if data[at : at + 1] in _GLOG and (end := data.find(b"\n", at) + 1) and other(number, data[at:end]):
                    at, number, place = end, number + 1, place - 1
                    continue
                unit, digits, more = self._seen(data, at, thread)
                if unit is None:
                    self._place = place - 1
                    return at, number, thread, more
                # the same call, but an address is longer or shorter: the prediction goes on
                if foreseen is unit or foreseen is None or unit.call is None or foreseen.call is not unit.call:
                    place = unit.after
            history.append(unit)
            unit.after = len(history)
            if unit.prefixed:
                thread = unit.thread
            if unit.call is not None:
                self._entry(unit, digits, number)
            elif unit.line is not None:
                self._again(unit.line, unit.key, number)
            at += unit.size
            number += unit.lines

    def _entry(self, unit: Unit, digits: Sequence[bytes], number: int) -> None:
        """Add an entry that repeats, with its own addresses; a Set call that repeats a type is not added."""
        out = self._out
        if unit.shape and not out.everything:
            if out.types.get(unit.shape) == unit.dtype:
                return
            out.types[unit.shape] = unit.dtype
        if out.clock is not None:
            out.stamp, out.elapsed = out.clock(number)
        assert unit.call is not None
        if digits != unit.digits:
            unit.digits, unit.addresses = digits, b",".join(digits)
        out.records.append(Entry(number, unit.call, unit.addresses, out.stamp, out.elapsed))

    def _again(self, record: Command | Message, key: str | None, number: int) -> None:
        out = self._out
        if out.clock is not None:
            out.stamp, out.elapsed = out.clock(number)
        if not isinstance(record, Message) or record.kind != "key" or out.is_new_key(key):
            out.records.append(replace(record, line=number, stamp=out.stamp, elapsed_ns=out.elapsed))

    def _seen(self, data: bytes, at: int, thread: int | None) -> tuple[Unit | None, Sequence[bytes], bool]:
        """Return the known unit at ``data[at]``, its addresses, and whether more bytes may make it one."""
        end = data.find(b"\n", at) + 1
        known = self._known.get(data[at:end]) if end else None
        if not isinstance(known, Header):
            return known, (), not end
        if known.prefix == NO_PREFIX and (thread is not None or known.thread is not None):
            return None, (), False  # its thread is that of the line before
        # the same header has parameters with and without prefix, as the version is (1.2-1.8, 2.0)
        prefixed = data.startswith(known.prefix, end)
        close = known.prefix + b"}\n" if prefixed else b"}\n"
        mark = close[-4:] if prefixed else b"\n}\n"
        stop = data.find(mark, end - 1, at + _LONGEST)
        if stop < 0:
            return None, (), len(data) - at < _LONGEST
        stop += len(mark)
        first, *rest = data[at:stop].split(b"0x")
        key, digits = first, []
        for part in rest:
            tail = part.lstrip(_HEX)
            length = len(part) - len(tail)
            if part[:1] == b"0" or not length:
                return None, (), False  # null is no address
            digits.append(part[:length])
            key += b"0x%d " % length + tail
        if key not in known.units:
            if len(known.units) > INTERN:
                return None, (), False
            unit = self._unit(known, data[at:stop], end - at, close, digits)
            if unit is None and not prefixed:
                return None, (), False  # the names of its parameters may be known next time
            known.units[key] = unit
        return known.units[key], digits, False

    def _unit(self, header: Header, raw: bytes, end: int, close: bytes, digits: list[bytes]) -> Unit | None:
        """Return the entry ``raw``, whose header has ``end`` bytes; None if its lines need the slow way."""
        text = raw[end:].removesuffix(close)
        inner = text.splitlines(keepends=True)
        if len(text) == len(raw) - end or len(inner) > MAX_PARAMS or any(sign in text for sign in _NOT_PLAIN):
            return None
        if text and not text.endswith(b"\n"):
            return None  # the closing line is directly followed by another one
        if close == b"}\n":
            if not {line.partition(b" = ")[0] for line in inner} <= self._names or PREFIX.search(text):
                return None
            if text.count(b" = ") > len(inner) or b"}" in text:  # several on one line
                return None
            body = text
        else:
            # every line begins with the prefix, and has no second one
            parts = (b"\n" + text).split(b"\n" + header.prefix + b"\t")
            body = b"\n".join(parts[1:])
            if len(parts) != len(inner) + 1 or parts[0] or len(PREFIX.findall(text)) != len(inner):
                return None
        template, addresses = cut_addresses(body)
        if addresses != b",".join(digits):
            return None
        pieces, rest = [], raw
        for one in digits:
            before, _, rest = rest.partition(b"0x" + one)
            pieces.append(before + b"0x")
        unit = Unit("entry " + header.api, (*pieces, rest), len(raw), header.thread, len(inner) + 2)
        if digits:
            lengths = [f"{len(piece)}s{len(one)}s" for piece, one in zip(pieces, digits, strict=True)]
            unit.cut = struct.Struct("".join([*lengths, f"{len(rest)}s"])).unpack_from
        unit.prefixed = header.prefix != NO_PREFIX
        if header.keep or self._out.everything:
            unit.call = self._out.call(header, template, len(inner) + 2, True)
        if header.keep and header.sets_type:
            unit.dtype, unit.shape = type_and_shape(body)
        return unit

    def settle(self) -> None:
        """Count the records that were taken so far, and forget their order."""
        self._out.counts.update(map(attrgetter("count"), self._history))
        self._history.clear()


def _cut(unit: Unit, data: bytes, at: int, thread: int | None) -> Sequence[bytes] | None:
    """Return the digits of a unit's addresses if it is at ``at``; None if it is not."""
    digits: Sequence[bytes] = ()
    if unit.cut is None:
        if not data.startswith(unit.pieces[0], at):
            return None
    elif at + unit.size > len(data):
        return None
    else:
        fields = unit.cut(data, at)
        digits = fields[1::2]
        if fields[::2] != unit.pieces or b"".join(digits).translate(None, _HEX):
            return None
    return None if thread is not None and unit.call is not None and not unit.prefixed else digits


# -- Open entries ------------------------------------------------------------------------------------------------------


class Open(msgspec.Struct):
    """An open entry. ``raw``: the line of the header. ``lines``: the parameter lines without prefix, with their ends.
    ``bare``: whether parameters have no prefix; None until the first parameter shows it."""

    header: Header
    raw: bytes
    bare: bool | None
    line: int
    last: int
    stamp: LocalTime | None
    elapsed_ns: int | None
    lines: list[bytes]


class Entries:
    """Gathers the lines of entries, several threads at once. ``opens``: by thread. ``current``: that of ``thread``.
    ``wrapped``: a header whose brace has not come yet."""

    def __init__(self, out: Collected, replay: Replay, notes: Notes) -> None:
        self._out = out
        self._replay = replay
        self._notes = notes
        self.thread: int | None = None
        self.current: Open | None = None
        self.opens: dict[int | None, Open] = {}
        self.wrapped: list[bytes] = []
        self._line = 0
        self._bare: bool | None = None

    def turn_to(self, thread: int | None) -> None:
        """The next lines belong to another thread."""
        self.thread = thread
        self.current = self.opens.get(thread)

    def ends_at(self, number: int) -> bool:
        """Return whether line ``number`` belongs to an entry that is still open."""
        return bool(self.wrapped) or any(entry.last == number for entry in self.opens.values())

    def finish(self) -> None:
        """No line follows: open entries are kept, marked incomplete."""
        if self.wrapped:
            self.give_up_header()
        for entry in list(self.opens.values()):
            self.cut(entry)

    def header(self, number: int, text: bytes, raw: bytes, bare: bool | None, plain: bytes) -> None:
        """Read a header. ``raw``: the line, if it holds nothing else. ``plain``: its prefix without times."""
        end = text.rfind(b"{")
        if end < 0:
            self.wrapped = [text]
            self._line = number
            self._bare = bare
            return
        if text[end + 1 :].strip():
            raw = b""
        words = text.partition(b"(")[0].split()
        if not words:
            self._out.counts["stray"] += 1
            return
        name = words[-1].lstrip(b"*&")
        scope, _, last = name.rpartition(b"::")
        api = api_name(last)
        nested = bool(scope) and not api.startswith("miopen")
        keep = nested or not NOT_KEPT.fullmatch(api)
        sets_type = api.startswith("miopenSet") and "TensorDescriptor" in api and "Problem" not in api
        prefix = plain if raw and bare is None else NO_PREFIX
        header = Header(api=api, nested=nested, keep=keep, sets_type=sets_type, prefix=prefix, thread=self.thread)
        entry = self.begin(header, raw, bare, number)
        if PARAM.match(text, end + 1):  # directly after it
            entry.bare = True
            self.append(entry, number, text[end + 1 :].strip())

    def begin(self, header: Header, raw: bytes, bare: bool | None, number: int) -> Open:
        """Begin an entry; an open entry of the same thread ends without its brace."""
        if self.current is not None:
            self.cut(self.current)
        entry = Open(header, raw, bare, number, number, self._out.stamp, self._out.elapsed, [])
        self.current = self.opens[self.thread] = entry
        return entry

    def append(self, entry: Open, number: int, line: bytes) -> None:
        """Add the line of a parameter, without its end."""
        entry.lines.append(line + b"\n")
        entry.last = number

    def continues(self, number: int, text: bytes) -> bool:
        """Take a line without a prefix that continues a header or a value."""
        if self.wrapped:
            self.wrapped.append(text)
            if self.unwrap():
                return True
        entry = self.current
        if entry is None or not entry.lines or b"ReduceTensor Descriptor" not in entry.lines[-1]:
            return False
        # the only value with several lines (miopen-log.md 4.6); it ends with an empty line
        if REDUCE_PART.match(text):
            entry.lines[-1] = entry.lines[-1].rstrip(b"\n") + b"; " + text.strip() + b"\n"
        elif text.strip():
            return False
        entry.last = number
        return True

    def takes_bare(self, number: int, text: bytes, names: set[bytes]) -> bool:
        """Take a line of an entry without prefixes. ``names``: those of its parameters so far."""
        entry = self.current
        if entry is None or entry.bare is False or (entry.lines and not entry.bare):
            return False
        if text.strip() == b"}":
            entry.bare = True
            self.close(entry, number)
            return True
        if PARAM.match(text) and len(entry.lines) < MAX_PARAMS:
            entry.bare = True
            closes = text.rstrip().endswith(b"}") and b"{" not in text  # directly after it
            if closes:
                text = text.strip()[:-1]
            for param in _params(text, names):
                names.add(param.strip().partition(b" =")[0])
                self.append(entry, number, param.lstrip())
            if closes:
                self.close(entry, number)
            return True
        return False

    def unwrap(self) -> bool:
        """Join the parts of a wrapped header after its brace has come."""
        text = b"".join(self.wrapped)
        if b"{" in self.wrapped[-1]:
            self.wrapped = []
            self.header(self._line, text, b"", self._bare, NO_PREFIX)
            return True
        if len(self.wrapped) > 6 or len(text) > 4000:
            self.give_up_header()
            return False
        return True

    def give_up_header(self, *, goes_on: bool = False) -> None:
        """Keep the part of a header whose brace never came. ``goes_on``: the line was cut, and parameters follow."""
        text = b"".join(self.wrapped)
        self.wrapped = []
        self.header(self._line, text + b"{", b"", None if goes_on else False, NO_PREFIX)
        if self.current is not None and not goes_on:
            self.cut(self.current)

    def close(self, entry: Open, number: int) -> None:
        self.opens.pop(self.thread, None)
        self.current = None
        header = entry.header
        if entry.raw:
            self._replay.learn_header(entry.raw, header)
        self._finish(entry, number, True)

    def cut(self, entry: Open) -> None:
        """End an entry whose closing brace never came."""
        self.opens.pop(entry.header.thread, None)
        if entry is self.current:
            self.current = None
        self._out.counts["cut entry"] += 1
        self._notes.add("MIOpen entry cut off", f"line {entry.line}")
        self._finish(entry, entry.last, False)

    def _finish(self, entry: Open, end: int, complete: bool) -> None:
        body = b"".join(entry.lines)
        self._out.add_entry(entry.header, entry.line, end, body, entry.stamp, entry.elapsed_ns, complete)


def _params(text: bytes, names: set[bytes]) -> list[bytes]:
    """Return the parameters of a line: several if line ends are lost and ``names`` has the following name."""
    params: list[bytes] = []
    while len(params) < MAX_PARAMS and (cut := _end(text, names)) is not None:
        params.append(text[:cut])
        text = text[cut:]
    return [*params, text]


def _end(text: bytes, names: set[bytes]) -> int | None:
    """Return where the next parameter begins; None if no other one begins in this line."""
    second = text.find(b" = ", text.find(b" = ") + 3)
    if second < 0:
        return None
    known = [name for name in names if text.endswith(name, 0, second) and text.find(b" = ") + 3 < second - len(name)]
    if not known or (b"," in text[second:] and b"->" in text):
        return None
    return second - len(max(known, key=len))
