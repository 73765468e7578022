"""The end of a written trace: how many slices it has, and a CRC-32 of all bytes before the CRC itself.

A CRC-32 finds every change of up to 32 bits that stand together, and every change of one or two bits anywhere. A
cryptographic hash takes two to eight times as long. Whoever changes a trace with intent can change its end, too: it is
no signature.
"""

from __future__ import annotations

import io
import zlib
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
