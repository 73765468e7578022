"""Parts that both forms of a trace share: text, numbers, and the end. The end has the number of slices and a CRC-32 of
all bytes before the CRC.

A CRC-32 finds every change of up to 32 adjacent bits, and every change of one or two bits anywhere. A cryptographic
hash takes two to eight times as long. The CRC is no signature: whoever changes a trace with intent can change its end
as well.

Text and numbers before it are the same in both forms of a trace. Text has no escapes, because importers differ in how
they read them (perfetto-chrome-trace.md 2): no quote, no backslash, no control character, no lone surrogate.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, BinaryIO

import msgspec

LONGEST_TAIL = 12
"""The most bytes from the CRC to the end of the file."""


class Summed:
    """A file that computes the CRC of everything that is written to it, and counts the bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.crc = self.size = 0

    def write(self, data: bytes) -> int:
        self.crc = zlib.crc32(data, self.crc)
        self.size += len(data)
        return self._file.write(data)


class End(msgspec.Struct, frozen=True):
    """The content of a trace's end. ``tail``: the number of bytes, CRC first, that the CRC does not cover."""

    slices: int
    crc32: int
    tail: int


class Found:
    """Findings from reading a trace back, other than its slices."""

    def __init__(self) -> None:
        self.slices = 0
        self.unread = 0
        """Lines or packets that this program does not write."""
        self.unended = 0
        """Slices that begin but do not end."""
        self.end: End | None = None
        self.is_cut = False
        self.goes_on = False
        """Whether anything follows the end."""
        self.is_rewritten = False
        """Whether another program has formatted it again: the CRC is then of other bytes."""


class Checked(io.RawIOBase):
    """The bytes of a trace for a reader, with the CRC of all except the last `LONGEST_TAIL`."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._held = memoryview(b"")
        self._crc = 0
        self._tail = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        if not self._held:
            block = next(self._blocks, b"")
            held = self._tail + block
            self._crc = zlib.crc32(held[:-LONGEST_TAIL], self._crc)
            self._held, self._tail = memoryview(block), held[-LONGEST_TAIL:]
        view = memoryview(buffer)  # type: ignore[arg-type]
        size = min(len(view), len(self._held))
        view[:size], self._held = self._held[:size], self._held[size:]
        return size

    def agrees(self, end: End) -> bool:
        """Return whether all bytes were read and match the CRC of ``end``."""
        return zlib.crc32(self._tail[: len(self._tail) - end.tail], self._crc) == end.crc32


# -- The size of a written trace, and whether a browser can open it (perfetto-chrome-trace.md 5) -----------------------


MANY_SLICES = 1_000_000
"""From this size on a viewer needs gigabytes; browsers give up at three to six times as many."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The result of writing: ``raw_bytes`` before compression; ``slices``: estimated from these."""

    raw_bytes: int
    slices: int

    @property
    def too_large(self) -> bool:
        """Whether a browser may give up on it."""
        return self.slices >= MANY_SLICES


# -- A gzip file that is the same whenever and wherever it is written: no name, time or system in its header -----------


_HEAD = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
_LEVEL = 6
"""Level 9 makes a file 5 % smaller, and takes twice as long."""
_MEMORY = 9


class Packed:
    """Compresses what is written to it into ``file``; closing it leaves ``file`` open.

    ``strategy``: zlib's. ``Z_FILTERED`` is for text with many numbers, whose digits are shorter than a reference to an
    earlier occurrence.
    """

    def __init__(self, file: BinaryIO, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> None:
        self._file = file
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, _MEMORY, strategy)
        self._sum = self._size = 0
        file.write(_HEAD)

    def write(self, data: bytes) -> int:
        self._sum = zlib.crc32(data, self._sum)
        self._size += len(data)
        self._file.write(self._packer.compress(data))
        return len(data)

    def close(self) -> None:
        self._file.write(self._packer.flush() + struct.pack("<II", self._sum, self._size & 0xFFFFFFFF))

    def __enter__(self) -> Packed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()


LONGEST_NAME = 200
_CLEAN = dict.fromkeys((*range(32), *range(127, 160)), " ") | {ord('"'): "'", ord("\\"): "/"}
_NO_NAME = "(no name)"
_LARGEST = 1 << 63


def cleaned(value: Any) -> Any:
    """Return ``value`` with clean text. An integer that readers cannot hold becomes hexadecimal, like handles."""
    if isinstance(value, str):
        if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
            return value  # true of nearly all; cleaning takes ten times as long
        return value.translate(_CLEAN).encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        return hex(value)
    if isinstance(value, Mapping):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    return value


def slice_name(text: str) -> str:
    """Return a slice's name: never empty, because viewers need one, and short."""
    name: str = cleaned(text).strip() or _NO_NAME
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
