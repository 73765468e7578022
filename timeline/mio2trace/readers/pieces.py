"""A long JSON array of objects, cut between two of them: only one piece of it is in memory."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding of a piece from a stranger raises."""


def pieces(
    first: bytes, blocks: Iterable[bytes], between: re.Pattern[bytes], border: int, most: int
) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield (whole objects as an array, bytes between them and the next one, what was read of that); the last piece has
    all that follows, and -1 bytes.

    ``between``: from the end of an object to the begin of the next one, in at most ``border`` bytes. In a JSON string
    every quote is escaped, so it is found only there. Raises `OverflowError` for an object of more than ``most`` bytes.
    """
    # An object may be longer than a block, and the border of two objects may be in two blocks.
    held: list[bytes] = []
    size, tail = 0, first
    for block in blocks:
        cut = _last(between, block)
        if cut is None:
            tail, block = b"", tail + block
            cut = _last(between, block)
        if cut is None:
            held.append(block[:-border])
            tail = block[-border:]
            size += len(held[-1])
            if size > most:
                raise OverflowError
            continue
        end = cut.start() + 1
        text = b"".join((b"[", *held, tail, memoryview(block)[:end], b"]"))
        held.clear()
        size, tail = 0, block[cut.end() :]
        yield text, cut.end() - end, tail
    yield b"".join((b"[", *held, tail, b"]")), -1, b""


def _last(between: re.Pattern[bytes], block: bytes) -> re.Match[bytes] | None:
    for back in (1 << 11, 1 << 14, 1 << 20, len(block)):
        found = deque(between.finditer(block, max(0, len(block) - back)), maxlen=1)
        if found:
            return found[0]
    return None
