"""How large a written trace is, and whether a browser still takes it (perfetto-chrome-trace.md 5)."""

from __future__ import annotations

from typing import BinaryIO

import msgspec

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
