"""What a MIOpen log states, record by record (miopen-log.md 2, 3, 7, 8)."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from timeline.model.log import LocalTime

Params = tuple[tuple[str, str], ...]


@lru_cache(maxsize=1 << 14)
def parse_params(body: bytes) -> Params:
    """(name, value) of each ``name = value`` line, split at the first `` = ``; an empty value may lack its blank."""
    out = []
    for line in body.decode(errors="replace").split("\n"):
        name, sep, value = line.partition(" = ")
        if sep:
            out.append((name.strip(), value.strip()))
        elif line.rstrip().endswith(" ="):
            out.append((line.rstrip()[:-2].strip(), ""))
    return tuple(out)


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An API entry: printed when the call begins (miopen-log.md 3).

    ``api`` is the function name as logged without ``_impl`` and without namespace, empty when the log starts inside the
    entry. ``body`` holds the parameter lines without prefix, as logged: equal bodies share one object. ``line`` is the
    header's, ``end_line`` the closing brace's or the last line seen. ``nested`` marks the internal entries of
    miopen-log.md 3.4, ``complete`` is False when header or closing brace is missing. ``elapsed_ns`` counts from the
    log's first stamped line (the elapsed-time prefix, summed).
    """

    source: int
    line: int
    end_line: int = 0
    api: str
    body: bytes = b""
    thread: int | None = None
    stamp: LocalTime | None = None
    elapsed_ns: int | None = None
    nested: bool = False
    complete: bool = True

    @property
    def params(self) -> Params:
        """(name, value) pairs in log order, as text."""
        return parse_params(self.body)


class Command(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A MIOpenDriver command line: ``text`` from the base word on.

    ``tag`` is the function that printed it, empty for a bare line (a script, or the driver's own first line).
    """

    source: int
    line: int
    tag: str
    text: str
    thread: int | None = None
    stamp: LocalTime | None = None
    elapsed_ns: int | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A level line: ``level`` is Error .. Trace, ``function`` the tag in brackets, ``kind`` what it tells.

    Lines without a level are kept as messages too: ``level`` is then ``Driver`` (MIOpenDriver's standard output),
    ``Performance`` (JSON records, miopen-log.md 9.3) or ``Debug`` (launch lines of debug builds).
    """

    source: int
    line: int
    level: str
    function: str
    text: str
    kind: str = "other"
    thread: int | None = None
    stamp: LocalTime | None = None
    elapsed_ns: int | None = None


class MiopenLog(msgspec.Struct, frozen=True, kw_only=True):
    """A MIOpen log's records in the order of their lines.

    ``counts`` tells how many of each kind were met: ``entry <api>``, ``command <base word>``, ``level <kind>``,
    ``cut entry``, ``stray`` (a line with MIOpen's prefix that is none of these). Records that tell nothing about an
    operation (Create, Destroy, Get calls; a Set call that gives a shape its type once more; candidate and database
    chatter) are counted and not kept.
    """

    source: int
    records: tuple[Entry | Command | Message, ...] = ()
    counts: tuple[tuple[str, int], ...] = ()

    def count(self, prefix: str) -> int:
        """How many records are of kinds that start with ``prefix``."""
        return sum(number for kind, number in self.counts if kind.startswith(prefix))
