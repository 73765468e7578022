"""Starts and Stops of Caffe's OpenCL timer (dvdt-ck.md 2.3a), in columns because there are two per layer and
iteration."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, overload

from mio2trace.model.profile import TimerMark


class TimerMarks(Sequence[TimerMark]):
    """Marks in call order; ``numbers``, ``lines`` and ``host_ns`` are their columns, of equal length."""

    __slots__ = ("host_ns", "lines", "numbers")

    def __init__(self, numbers: Sequence[int], lines: Sequence[int], host_ns: Sequence[int | None]) -> None:
        self.numbers: Sequence[int] = _column(numbers)
        self.lines: Sequence[int] = _column(lines)
        self.host_ns: Sequence[int | None] = _column(host_ns)

    @classmethod
    def of(cls, marks: Iterable[TimerMark]) -> TimerMarks:
        """Return the same marks in columns."""
        marks = list(marks)
        return cls([mark.number for mark in marks], [mark.line for mark in marks], [mark.host_ns for mark in marks])

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> TimerMark: ...
    @overload
    def __getitem__(self, place: slice) -> TimerMarks: ...
    def __getitem__(self, place: int | slice) -> TimerMark | TimerMarks:
        if isinstance(place, slice):
            return TimerMarks(self.numbers[place], self.lines[place], self.host_ns[place])
        return TimerMark(self.numbers[place], self.lines[place], self.host_ns[place])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<TimerMarks: {len(self)}>"


def _column(values: Sequence[Any]) -> Sequence[Any]:
    """Store values in eight bytes each, if they fit."""
    try:
        return array("q", values)
    except (OverflowError, TypeError):
        return tuple(values)
