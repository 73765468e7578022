"""The end of a written trace: how many slices it has, and a CRC-32 of all bytes before the CRC itself.

A CRC-32 finds every change of up to 32 bits that stand together, and every change of one or two bits anywhere. A
cryptographic hash takes two to eight times as long. Whoever changes a trace with intent can change its end, too: it is
no signature.
"""

from __future__ import annotations

import io
import struct
import zlib
from types import TracebackType
from typing import BinaryIO

import msgspec

LONGEST_TAIL = 12
"""Bytes from the CRC to the end of the file, at most."""


class Summed:
    """A file that sums up what goes through it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.crc = 0

    def write(self, data: bytes) -> int:
        self.crc = zlib.crc32(data, self.crc)
        return self._file.write(data)


class End(msgspec.Struct, frozen=True):
    """What the end of a trace says. ``tail``: how many bytes of it, the CRC first, are not summed."""

    slices: int
    crc32: int
    tail: int


class Found:
    """What is met while a trace is read back, beside its slices."""

    def __init__(self) -> None:
        self.slices = 0
        self.unread = 0
        """Lines or packets that are none of ours."""
        self.unended = 0
        """Slices that begin and do not end."""
        self.end: End | None = None
        self.is_cut = False
        self.goes_on = False
        """Whether anything follows the end."""
        self.is_rewritten = False
        """Whether another program has laid it out: the CRC is of other bytes."""


class Checked(io.RawIOBase):
    """Bytes of a trace on their way to a reader, summed up but for the last `LONGEST_TAIL`.

    ``most``: of a compressed file, what it may hold; more is cut off, and `too_large` tells.
    """

    def __init__(self, file: BinaryIO, most: int | None = None) -> None:
        self._file = file
        self._most = most
        self._size = self._crc = 0
        self._tail = b""
        self.too_large = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        data = self._file.read(len(view))
        view[: len(data)] = data
        self._size += len(data)
        if self._most is not None and self._size > self._most:
            self.too_large = True
            return 0
        held = self._tail + data
        self._crc = zlib.crc32(held[:-LONGEST_TAIL], self._crc)
        self._tail = held[-LONGEST_TAIL:]
        return len(data)

    def agrees(self, end: End) -> bool:
        """Whether all bytes were read, and are those that ``end`` sums up."""
        return zlib.crc32(self._tail[: len(self._tail) - end.tail], self._crc) == end.crc32


# -- How large a written trace is, and whether a browser still takes it (perfetto-chrome-trace.md 5) -------------------


MANY_SLICES = 1_000_000
"""From here on a viewer needs gigabytes; browsers give up at three to six times as many."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What was written: ``raw_bytes`` before compression, ``slices`` as estimated from these."""

    raw_bytes: int
    slices: int

    @property
    def too_large(self) -> bool:
        """Whether a browser may give up on it."""
        return self.slices >= MANY_SLICES


class Counted:
    """A file that counts what goes through it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = 0

    def write(self, data: bytes) -> int:
        self.size += len(data)
        return self._file.write(data)


# -- A gzip file that is the same whenever and wherever it is written: no name, no time, no system in its head ---------


_HEAD = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
_LEVEL = 6
"""Level 9 makes a file smaller by a twentieth, and takes twice as long."""
_MEMORY = 9


class Packed:
    """Compresses what is written to it into ``file``; closing it leaves ``file`` open.

    ``strategy`` is zlib's: ``Z_FILTERED`` for text of many numbers, whose digits are shorter than a pointer to where
    they stood before.
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
