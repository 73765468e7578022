"""Starts and Stops of Caffe's OpenCL timer (dvdt-ck.md 2.3a): six to a layer and iteration, so kept in columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple, overload


class TimerMark(NamedTuple):
    """An argument set on a kernel that never runs: call ``number``, at ``host_ns`` where that is told."""

    number: int
    line: int = 0
    host_ns: int | None = None


class TimerMarks(Sequence[TimerMark]):
    """Marks in call order; ``numbers``, ``lines`` and ``host_ns`` are their columns."""

    __slots__ = ("host_ns", "lines", "numbers")

    def __init__(self, marks: Iterable[tuple[int, int, int | None]] = ()) -> None:
        numbers, lines, host_ns = tuple(zip(*marks, strict=True)) or ((), (), ())
        self.numbers: Sequence[int] = _column(numbers)
        self.lines: Sequence[int] = _column(lines)
        self.host_ns: Sequence[int | None] = host_ns if None in host_ns else _column(host_ns)

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> TimerMark: ...
    @overload
    def __getitem__(self, place: slice) -> TimerMarks: ...
    def __getitem__(self, place: int | slice) -> TimerMark | TimerMarks:
        if isinstance(place, slice):
            return TimerMarks(zip(self.numbers[place], self.lines[place], self.host_ns[place], strict=True))
        return TimerMark(self.numbers[place], self.lines[place], self.host_ns[place])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimerMarks) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"TimerMarks({list(self)})"


def _column(values: Sequence[int]) -> Sequence[int]:
    """Eight bytes each, where these hold them."""
    try:
        return array("q", values)
    except OverflowError:
        return tuple(values)


NO_MARKS = TimerMarks()
