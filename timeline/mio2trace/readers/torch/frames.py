"""The line of Python that made each launch: the innermost frame outside of the framework (torch-graphs.md 6).

Rows of ``python_function`` are most of a file with stacks. Of each a few numbers are kept; chains are followed for
launches alone: from the last row that began before the launch on its thread, up by ``Python parent id`` to one of that
thread that holds the launch, and on to one that is no framework's. That may be another thread's: the backward pass
begins in the call of ``backward``. The line is that of the function's ``def``, which is all that the profiler records.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import compress, count, islice
from operator import attrgetter
from typing import Any

from mio2trace.model.profile import SourceLine
from mio2trace.patterns import late
from mio2trace.readers.torch.event_array import Event

_FRAMEWORK = late(
    r"<|nn\.Module: |(?:.*/)?(?:torch|triton|importlib)/|(?:.*/)?torch_guard\.py\(|(?:.*/)?torchinductor_[^/]*/"
)
_LIBRARY = late(
    r"(?:.*/)?(?:transformers|diffusers|vllm|sglang|aiter|flash_attn|torchvision|accelerate|deepspeed|xformers)/"
)
_FRAME = late(r"(?:.*/)?([^/()]{1,200})\((\d{1,9})\): ")
_AT_LINE = late(r"\d{1,9}\): ")
_ODD = late(r"[\s@:\\]")
_SEPARATOR = late(r"[\s@:\\/]")
_MOST_STEPS = 1000
"""A longer chain is a damaged one."""
_NEAR = 8
"""Of so many last rows the innermost is found by time, which counts where rows overlap by a rounded nanosecond."""
_ROUNDED_US = 0.0006
"""Less than a nanosecond: what adding two times may be off."""
_SPARSE = 16
"""Of up to so many ids one may be a row's that is kept, for a table by id."""
_SHORTEST_US = 0.5
"""A shorter function holds no launch: a launch takes 2 us and more. Most functions are shorter, and are passed over."""
_Thread = tuple[Any, Any]
_START, _LENGTH, _NAME, _THREAD = attrgetter("ts"), attrgetter("dur"), attrgetter("name"), attrgetter("pid", "tid")
_ID, _PARENT = attrgetter("args.python"), attrgetter("args.parent")


def function_of(name: str) -> str:
    """The name of a Python function; of a path with blanks and other signs, in which no rule sees what is private, the
    base name is left: ``/srv/my --password x/a b.py(12): f`` is ``b.py(12): f``."""
    path, opened, rest = name.partition("(")
    is_odd = path.startswith("//") or _ODD.search(path) is not None
    if not is_odd or not opened or path.startswith("<") or _AT_LINE.match(rest) is None:
        return name
    return f"{_SEPARATOR.split(path)[-1]}({rest}"


class Frames:
    """The Python functions of one file."""

    def __init__(self) -> None:
        self._starts, self._ends = array("d"), array("d")
        self._ids, self._parents = array("q"), array("q")
        self._name_of, self._thread_of = array("i"), array("i")
        self._names: defaultdict[str, int] = defaultdict(count().__next__)
        self._threads: defaultdict[_Thread, int] = defaultdict(count().__next__)

    def __len__(self) -> int:
        return len(self._ids)

    def take(self, events: Sequence[Event]) -> None:
        """Rows of Python functions; what is no row with times and an id is passed over."""
        try:
            self._add(events)
        except (TypeError, OverflowError):
            self._add([one for one in events if _is_whole(one)])

    def _add(self, events: Sequence[Event]) -> None:
        events = [event for event in events if event.dur >= _SHORTEST_US]  # type: ignore[operator]
        # no step of Python's own for each row: there may be as many as all other rows together
        starts = array("d", map(_START, events))
        lengths = array("d", map(_LENGTH, events))
        ids = array("q", map(_ID, events))
        around = [*map(_PARENT, events)]
        parents = array("q", [-1 if one is None else one for one in around] if None in around else around)
        name_of = array("i", map(self._names.__getitem__, map(_NAME, events)))
        self._thread_of.extend(map(self._threads.__getitem__, map(_THREAD, events)))
        self._starts.extend(starts)
        self._ends.extend(map(float.__add__, starts, lengths))
        self._ids.extend(ids)
        self._parents.extend(parents)
        self._name_of.extend(name_of)

    def lines(self, launches: Mapping[_Thread, Sequence[tuple[float, float]]]) -> dict[_Thread, list[Lines]]:
        """Of launches from and to a time in us, by thread: the lines of each."""
        if not self._ids:
            return {}
        row_of = self._rows_by_id()
        told: dict[int, Lines] = {}
        found = {}
        for thread, spans in launches.items():
            rows: Sequence[int] = range(len(self))
            starts = self._starts
            number = self._threads.get(thread, -1)
            if len(self._threads) > 1 or number < 0:
                rows = array("i", compress(rows, map(number.__eq__, self._thread_of)))
                starts = array("d", compress(self._starts, map(number.__eq__, self._thread_of)))
            if any(map(float.__gt__, starts, islice(starts, 1, None))):
                rows = array("i", sorted(rows, key=lambda row: (self._starts[row], -self._ends[row])))
                starts = array("d", map(self._starts.__getitem__, rows))
            found[thread] = [self._lines_at(rows, starts, span, row_of, told) for span in spans]
        return found

    def _rows_by_id(self) -> Mapping[int, int] | array[int]:
        """The row of each id: an array where ids are dense, as the profiler's are."""
        ids = self._ids
        if min(ids) >= 0 and max(ids) <= _SPARSE * len(ids) + 1024:
            rows = array("i", [-1]) * (max(ids) + 1)
            for row, number in enumerate(ids):
                rows[number] = row
            return rows
        return dict(zip(ids, range(len(ids)), strict=True))

    def _lines_at(
        self,
        rows: Sequence[int],
        starts: Sequence[float],
        span: tuple[float, float],
        row_of: Mapping[int, int] | array[int],
        told: dict[int, Lines],
    ) -> Lines:
        at = bisect_right(starts, span[0]) - 1
        holds = self._holding(rows, at, span, _NEAR)
        if holds >= 0:
            return self._lines_of(holds, row_of, told)
        row = rows[at] if at >= 0 else -1
        thread = self._thread_of[row] if row >= 0 else -1
        steps, is_lost = 0, False
        while row >= 0 and self._ends[row] < span[1] - _ROUNDED_US and steps < _MOST_STEPS:
            has_parent = self._parents[row] >= 0
            row, steps = self._parent(row, row_of), steps + 1
            is_lost = has_parent and row < 0
            if row >= 0 and self._thread_of[row] != thread:
                row = -1
        if is_lost:  # a row between is not in the file
            row = self._holding(rows, at, span, _MOST_STEPS)
        return self._lines_of(row, row_of, told)

    def _holding(self, rows: Sequence[int], at: int, span: tuple[float, float], most: int) -> int:
        """The last of so many rows up to the place ``at`` that holds a launch, -1 where none does."""
        for place in range(at, max(-1, at - most), -1):
            if self._ends[rows[place]] >= span[1] - _ROUNDED_US:
                return rows[place]
        return -1

    def _parent(self, row: int, row_of: Mapping[int, int] | array[int]) -> int:
        parent = self._parents[row]
        if parent < 0:
            return -1
        if isinstance(row_of, array):
            return row_of[parent] if parent < len(row_of) else -1
        return row_of.get(parent, -1)

    def _lines_of(self, row: int, row_of: Mapping[int, int] | array[int], told: dict[int, Lines]) -> Lines:
        """Of a row: its own frame or the nearest around it."""
        climbed: list[int] = []
        known: Lines = (None, None)
        while row >= 0 and len(climbed) < _MOST_STEPS:
            if row in told:
                known = told[row]
                break
            climbed.append(row)
            row = self._parent(row, row_of)
        for row in reversed(climbed):
            frame = self._frame(self._name_of[row])
            if frame is not None:
                line, is_library = frame
                known = line, known[1] if is_library else line
            told[row] = known
        return known

    def _frame(self, number: int) -> tuple[SourceLine, bool] | None:
        """The line of a name, and whether it is a library's; None of a framework's."""
        if not hasattr(self, "_frames"):
            self._frames: list[tuple[SourceLine, bool] | None] = [_frame_of(name) for name in self._names]
        return self._frames[number]


Lines = tuple[SourceLine | None, SourceLine | None]
"""Outside of the framework; and outside of the libraries that build on it, too."""


def _frame_of(name: str) -> tuple[SourceLine, bool] | None:
    if _FRAMEWORK.match(name):
        return None
    found = _FRAME.match(name)
    if found is None:
        return None
    return SourceLine(found[1], int(found[2])), _LIBRARY.match(name) is not None


def _is_whole(event: Event) -> bool:
    numbers = (event.args.python, -1 if event.args.parent is None else event.args.parent)
    return all(type(one) is int and -(1 << 63) <= one < 1 << 63 for one in numbers) and all(
        isinstance(one, (int, float)) and abs(one) < 1e300 for one in (event.ts, event.dur)
    )
