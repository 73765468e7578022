"""A gzip file that is the same whenever and wherever it is written: no name, no time, no system in its head."""

from __future__ import annotations

import struct
import zlib
from types import TracebackType
from typing import BinaryIO

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
