"""The records of a MIOpen log as they are read, and the parts that they share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import msgspec

from mio2trace.model.log import LocalTime
from mio2trace.model.miopen import Command, Entry, LoggedCall, Message, cut_addresses
from mio2trace.readers.miopen.lines import KEY, type_and_shape

INTERN = 1 << 13  # texts of each kind that are kept for sharing

_BASE_WORD = re.compile(r"[A-Za-z]{1,16}(?:64|fp16|bfp16|int8)?")
"""Base words as in MIOpenDriver: an operation and a type. Other words with digits may name a machine."""
NO_PREFIX = b"\n\n"  # no line has this number


class Unit(msgspec.Struct):
    """A text that was met before, and its effect when it comes again: a line with the same meaning, or an entry.
    ``pieces``: the texts between the addresses. ``digits``: the length of each address. ``cut``: takes a text apart
    into both (None without addresses). ``size``: in bytes. One of ``call``, ``command`` and ``message`` is the record;
    the line number of the last two does not count. ``shape`` and ``dtype``: of a Set call, which is kept if it changes
    the type of a shape. ``key``: looked up by a message. ``thread``: the thread to which a line with a prefix switches;
    a line without one belongs to the current thread. ``after``: the place in the history after its last occurrence.
    ``taken``: its number of occurrences."""

    count: str
    pieces: tuple[bytes, ...]
    digits: tuple[int, ...]
    size: int
    thread: int | None
    lines: int = 1
    cut: Callable[[bytes, int], tuple[bytes, ...]] | None = None
    call: LoggedCall | None = None
    line: Command | Message | None = None
    shape: bytes = b""
    dtype: bytes = b""
    key: str | None = None
    prefixed: bool = True
    after: int = 0
    taken: int = 0


class Header(msgspec.Struct, kw_only=True):
    """A header line, learned once per distinct line, so that its next entry can be taken as a whole. ``prefix``: the
    beginning of the line. ``units``: the entries with this header, by their text without addresses and the lengths of
    these; None for one that must be read line by line."""

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
