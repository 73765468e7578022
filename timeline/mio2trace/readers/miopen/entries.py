"""Open entries, one per thread: header, parameters, brace (miopen-log.md 3); also headers that a terminal wrapped."""

from __future__ import annotations

import msgspec

from mio2trace.model.log import LocalTime
from mio2trace.notes import Notes
from mio2trace.readers.miopen.lines import MAX_PARAMS, NOT_KEPT, PARAM, REDUCE_PART, api_name
from mio2trace.readers.miopen.records import NO_PREFIX, Collected, Header
from mio2trace.readers.miopen.replay import Replay


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
    """``opens``: by thread. ``current``: that of ``thread``. ``wrapped``: a header whose brace has not come yet."""

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
