"""Numbers of any length and bytes of any encoding, where a text has numbers and words: one place after the other."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

DIGITS = (19, 20, 310, 400, 5000)
"""What a 64-bit number, a float and Python's own conversion hold, and one more."""
_NUMBER = re.compile(rb"\d+")
_WORD = re.compile(rb"[A-Za-z]{3,}")
_ROUND = 24
"""Bytes on either side that make a place one of its kind."""
_MOST = 1 << 16


def changed(data: bytes, chance: random.Random, most: int = 40) -> Iterator[bytes]:
    """``data`` with one number longer, or one letter of Latin-1 in a word; of places that look alike one is taken."""
    data = data[:_MOST]
    numbers, words = _places(data, _NUMBER), _places(data, _WORD)
    chosen = [(at, True) for at in chance.sample(numbers, min(len(numbers), most))]
    chosen += [(at, False) for at in chance.sample(words, min(len(words), most // 2))]
    for (begin, end), is_number in chosen:
        put = b"9" * chance.choice(DIGITS) if is_number else data[begin : end - 1] + b"\xe9"
        yield data[:begin] + put + data[end:]


def _places(data: bytes, pattern: re.Pattern[bytes]) -> list[tuple[int, int]]:
    seen: dict[bytes, tuple[int, int]] = {}
    for match in pattern.finditer(data):
        around = data[max(0, match.start() - _ROUND) : match.start()] + b"|" + data[match.end() : match.end() + _ROUND]
        seen.setdefault(_NUMBER.sub(b"0", around), match.span())
    return list(seen.values())
