"""Records of a MIOpen log (miopen-log.md 2, 3, 7, 8)."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import msgspec

from mio2trace.model import HiddenBytes, Name, Text, Word
from mio2trace.model.log import LocalTime
from mio2trace.patterns import late

OperationDirection = Literal["forward", "backward-data", "backward-weights"]
"""The direction of a call: the two gradients of a convolution are separate calls."""

Params = tuple[tuple[str, str], ...]


@lru_cache(maxsize=1 << 14)
def parse_params(body: bytes) -> Params:
    """Return (name, value) of each line ``name = value``; the blank before an empty value may be missing."""
    out = []
    for line in body.decode(errors="replace").split("\n"):
        name, sep, value = line.partition(" = ")
        if sep:
            out.append((name.strip(), value.strip()))
        elif line.rstrip().endswith(" ="):
            out.append((line.rstrip()[:-2].strip(), ""))
    return tuple(out)


# A value that is an address, in the form of either system, and not null (miopen-log.md 4.1).
_ADDRESS = late(
    rb"(?<=[=:] )(0x)?((?<=x)(?!0+\s*\n)[0-9a-fA-F]{1,16}|(?<!x)0(?!0{15})[0-9A-F]{15})(?=\s*\n|, device_id)"
)
_MARK = b"\0"


def cut_addresses(body: bytes) -> tuple[bytes, bytes]:
    """Return (template, addresses) of parameter lines: the template has a NUL in place of the digits of each address.
    Calls that differ only in their buffers have equal templates."""
    if _MARK in body:
        body = body.replace(_MARK, b"?")
    found = _ADDRESS.findall(body)
    if not found:
        return body, b""
    return _ADDRESS.sub(rb"\1" + _MARK, body), b",".join([digits for _, digits in found])


class LoggedCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The common content of entries that differ only in their addresses. ``api``: the function name as logged, without
    ``_impl`` and namespace; empty if the log starts inside the entry. ``template``: the parameter lines without prefix,
    from `cut_addresses`. ``lines``: their number from the header to the closing brace or to the last line seen.
    ``nested``: an internal entry (miopen-log.md 3.4). ``complete``: False if header or closing brace is missing."""

    source: int
    api: Word
    template: HiddenBytes = b""
    lines: int = 1
    thread: int | None = None
    nested: bool = False
    complete: bool = True


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An API entry: printed when the call begins (miopen-log.md 3). ``line``: of the header. ``addresses``: the digits
    that were cut out of ``call.template``, with commas between them; entries of equal calls share the object.
    ``elapsed_ns``: since the log's first stamped line (sum of the elapsed-time prefixes)."""

    line: int
    call: LoggedCall
    addresses: HiddenBytes = b""
    stamp: LocalTime | None = None
    elapsed_ns: int | None = None

    @property
    def source(self) -> int:
        return self.call.source

    @property
    def api(self) -> str:
        return self.call.api

    @property
    def end_line(self) -> int:
        """The line of the closing brace, or the last line seen."""
        return self.line + self.call.lines - 1

    @property
    def thread(self) -> int | None:
        return self.call.thread

    @property
    def nested(self) -> bool:
        return self.call.nested

    @property
    def complete(self) -> bool:
        return self.call.complete

    @property
    def body(self) -> bytes:
        """The parameter lines without prefix, as logged."""
        parts = self.call.template.split(_MARK)
        addresses = self.addresses.split(b",") if self.addresses else []
        return b"".join(piece for pair in zip(parts, [*addresses, b""], strict=True) for piece in pair)

    @property
    def params(self) -> Params:
        """(name, value) pairs in log order, as text."""
        return parse_params(self.body)


class Command(msgspec.Struct, frozen=True, gc=False):
    """A MIOpenDriver command line. ``text``: from the base word on. ``tag``: the function that printed it; empty for a
    bare line (a script, or the driver's own first line)."""

    source: int
    line: int
    tag: Name
    text: Text
    thread: int | None = None
    stamp: LocalTime | None = None
    elapsed_ns: int | None = None


class Message(msgspec.Struct, frozen=True, gc=False):
    """A line with a level. ``level``: Error .. Trace. ``function``: the tag in brackets. ``kind``: the kind of message.
    Lines without a level are messages as well. Their ``level`` is ``Driver`` (MIOpenDriver's standard output),
    ``Performance`` (JSON records, miopen-log.md 9.3) or ``Debug`` (launch lines of debug builds)."""

    source: int
    line: int
    level: Word
    function: Name
    text: Text
    kind: Word = "other"
    thread: int | None = None
    stamp: LocalTime | None = None
    elapsed_ns: int | None = None


class MiopenLog(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a MIOpen log in the order of their lines. ``counts``: the number of records of each kind: ``entry
    <api>``, ``command <base word>``, ``level <kind>``, ``cut entry`` (without its end), ``brace alone`` (without its
    beginning), ``stray`` (another line with MIOpen's prefix). Records without information about an operation are only
    counted: Create, Destroy and Get calls; a Set call that repeats a type; lines about candidates and databases.
    ``foreign``: the number of lines that no decoder recognised. ``freed``: the number of entries that were among the
    records until their operations were known."""

    source: int
    records: tuple[Entry | Command | Message, ...] = ()
    counts: tuple[tuple[Word, int], ...] = ()
    foreign: int = 0
    freed: int = 0

    @property
    def size(self) -> int:
        """The number of records, also of those that were freed."""
        return len(self.records) + self.freed

    def count(self, prefix: str) -> int:
        """Return the number of records whose kind starts with ``prefix``."""
        return sum(number for kind, number in self.counts if kind.startswith(prefix))
