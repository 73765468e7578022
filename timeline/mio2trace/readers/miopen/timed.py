"""Lines whose prefix holds a time are all different: here without it, so that repetitions show (miopen-log.md 2.1).

MIOpen(HIP)   0.559: Info [Handle] ...            elapsed time since the line before
MIOpen(HIP) (2026-11-20T11:39:11.363Z): ...       date and time
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, repeat
from operator import add

from mio2trace.model.log import LocalTime
from mio2trace.readers.miopen.lines import stamp_of

_TIMES = rb"([ \t]+\d{1,12}\.\d{3})?( \(\d{4}-[^()\n]*+\))?: "
_MAX_HEADS = 64


def nanoseconds(elapsed: bytes) -> int:
    """Of milliseconds with three decimals."""
    return int(elapsed.replace(b".", b"")) * 1000


class TimedPrefixes:
    """The prefixes met so far that held a time, each up to it: ``MIOpen(HIP)``, with a thread each another."""

    def __init__(self) -> None:
        self._heads: dict[bytes, re.Pattern[bytes]] = {}
        self.pattern: re.Pattern[bytes] | None = None
        """Finds a line's end and the prefix that follows: groups head, elapsed time, date."""

    def add(self, head: bytes) -> None:
        """Know one more."""
        if head not in self._heads and len(self._heads) < _MAX_HEADS:
            self._heads[head] = re.compile(re.escape(head) + _TIMES)
            self.pattern = re.compile(rb"\n(" + b"|".join(map(re.escape, self._heads)) + rb")" + _TIMES)

    def match(self, head: bytes, line: bytes) -> re.Match[bytes] | None:
        """The prefix ``head`` at the beginning of a line: groups elapsed time, date."""
        pattern = self._heads.get(head)
        return pattern.match(line) if pattern is not None else None


class Untimed:
    """``data`` from the byte ``at`` on, the beginning of the line ``number``, as ``plain`` without the times."""

    def __init__(self, prefixes: re.Pattern[bytes], data: bytes, at: int, number: int) -> None:
        self.data = data
        self.at = at
        parts = prefixes.split(b"\n" + data[at:])
        first, heads, elapsed, dates, texts = parts[0], parts[1::4], parts[2::4], parts[3::4], parts[4::4]
        count = len(texts)
        lines = zip(repeat(b"\n"), heads, repeat(b": "), texts, strict=False)
        self.plain = (first + b"".join(chain.from_iterable(lines)))[1:]
        sizes = map(add, map(len, heads), map(len, texts))
        self._starts = list(accumulate(map(add, sizes, repeat(3)), initial=len(first)))  # of prefixed lines in `plain`
        taken = map(add, map(len, _filled(elapsed)), map(len, _filled(dates)))
        self._removed = list(accumulate(taken, initial=0))  # before each
        self._original = list(map(add, self._starts, self._removed))
        number += first.count(b"\n")
        self._numbers: Sequence[int] = range(number, number + count)
        if texts and self.plain.count(b"\n", len(first)) != count - 1 + texts[-1].count(b"\n"):
            # others stand between
            self._numbers = list(accumulate((text.count(b"\n") + 1 for text in texts[:-1]), initial=number))
        self._dates = dates
        # what is not there counts nothing, and `_told` tells it from a zero
        self._told = list(accumulate((one is not None for one in elapsed), initial=0)) if None in elapsed else None
        digits = b" ".join(_filled(elapsed, b"0")).replace(b".", b"").split()
        self._elapsed = list(accumulate(map(int, digits), initial=0))
        self._begin = 0
        self._before: tuple[LocalTime | None, int | None] = None, None

    def holds(self, data: bytes, at: int) -> bool:
        """Whether the byte ``at`` of ``data`` is within."""
        return data is self.data and at >= self.at

    def inside(self, at: int) -> int:
        """The place in `plain` of the byte ``at``, the beginning of a line."""
        at -= self.at
        return int(at - self._removed[bisect_left(self._original, at)])

    def outside(self, at: int) -> int:
        """The byte that is at the place ``at`` in `plain`, the beginning of a line."""
        return int(self.at + at + self._removed[bisect_left(self._starts, at)])

    def begin(self, number: int, stamp: LocalTime | None, elapsed: int | None) -> None:
        """Count from before line ``number``, when the last prefix had said ``stamp`` and ``elapsed``."""
        self._begin = bisect_right(self._numbers, number - 1)
        self._before = stamp, elapsed

    def clock(self, number: int) -> tuple[LocalTime | None, int | None]:
        """What the last prefix up to line ``number`` said: its stamp, and elapsed nanoseconds in all."""
        at, begin = bisect_right(self._numbers, number), self._begin
        stamp, elapsed = self._before
        if at <= begin:
            return stamp, elapsed
        if self._told is None or self._told[at] > self._told[begin]:
            elapsed = (elapsed or 0) + (self._elapsed[at] - self._elapsed[begin]) * 1000
        date = self._dates[at - 1]
        return stamp_of(date) if date else None, elapsed


def _filled(found: list[bytes | None], nothing: bytes = b"") -> Iterable[bytes]:
    """With ``nothing`` for None."""
    return [one if one is not None else nothing for one in found]
