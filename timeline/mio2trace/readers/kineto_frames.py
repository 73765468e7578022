"""The Python line of each launch: the innermost frame outside of the framework (torch-graphs.md 6).

Rows of ``python_function`` are most of a file with stacks. A few numbers of each are kept, and chains are followed for
launches only. A chain begins at the innermost row of the thread around the launch. It follows ``Python parent id`` to
the first row outside of the framework. This row may be on another thread: the backward pass begins in the call of
``backward``. The line is that of the function's ``def``, which is all that the profiler records.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, compress, count, islice
from math import inf, isfinite
from operator import gt
from typing import Any

from mio2trace.model.profile import SourceLine
from mio2trace.patterns import late
from mio2trace.readers.pieces import Event

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
"""A longer chain is damaged."""
MOST_OF = 0.1
"""A function that takes at least this part of a gap may be a reason for it."""
_ROUNDED_US = 0.0006
"""Less than a nanosecond: the possible error of adding two times."""
_SPARSE = 16
"""A table by id is used if at least one of this many ids belongs to a kept row."""
_SHORTEST_US = 0.5
"""A shorter function contains no launch, which takes 2 us and more. Most functions are shorter; they are skipped."""
_Thread = tuple[Any, Any]


def function_of(name: str) -> str:
    """Return the name of a Python function. If its path has blanks or other signs, in which no rule would find private
    text, only the base name stays: ``/srv/my --password x/a b.py(12): f`` becomes ``b.py(12): f``."""
    path, opened, rest = name.partition("(")
    is_odd = path.startswith("//") or _ODD.search(path) is not None
    if not is_odd or not opened or path.startswith("<") or _AT_LINE.match(rest) is None:
        return name
    return f"{_SEPARATOR.split(path)[-1]}({rest}"


class Frames:
    """The Python functions of one file."""

    def __init__(self) -> None:
        self._starts, self._lengths = array("d"), array("d")
        self._ids, self._parents = array("q"), array("q")
        self._name_of, self._thread_of = array("i"), array("i")
        self._names: defaultdict[str, int] = defaultdict(count().__next__)
        self._threads: defaultdict[_Thread, int] = defaultdict(count().__next__)
        self.named: dict[SourceLine, int] = {}
        """Lines by number; complete after `lines` was called."""
        self._told: dict[int, Lines] = {-1: (-1, -1)}

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def span(self) -> tuple[float, float]:
        """The start of the first function and of the last one, in us."""
        return min(self._starts), max(self._starts)

    def take(self, events: Sequence[Event]) -> None:
        """Take rows of Python functions; rows without times or an id are skipped."""
        try:
            self._add(events)
        except (TypeError, ValueError, ArithmeticError):
            self._add([one for one in events if _is_whole(one)])

    def _add(self, events: Sequence[Event]) -> None:
        # in one loop: there may be more of these rows than of all others together
        columns: list[list[Any]] = [[] for _ in range(6)]
        starts, lengths, ids, parents, name_of, thread_of = columns
        names, threads = self._names, self._threads
        pid: Any = None
        tid: Any = None
        thread = -1
        for event in events:
            if event.dur >= _SHORTEST_US:  # type: ignore[operator]
                if thread < 0 or event.tid != tid or event.pid != pid:
                    pid, tid = event.pid, event.tid
                    thread = threads[pid, tid]
                args = event.args
                starts.append(event.ts)
                lengths.append(event.dur)
                ids.append(args.python)
                parents.append(-1 if args.parent is None else args.parent)
                name_of.append(names[event.name])
                thread_of.append(thread)
        kept: tuple[array[Any], ...] = (
            self._starts, self._lengths, self._ids, self._parents, self._name_of, self._thread_of
        )  # fmt: skip
        made = [array(of.typecode, column) for of, column in zip(kept, columns, strict=True)]
        if not isfinite(sum(made[0])):
            raise OverflowError
        for of, column in zip(kept, made, strict=True):
            of.extend(column)

    def lines(self, launches: Mapping[_Thread, Sequence[tuple[float, float]]]) -> dict[_Thread, list[Lines]]:
        """Return the lines of each launch, by thread; launches have begin and end in us."""
        if not self._ids:
            return {}
        told = self._told
        return {
            thread: [told[row] if row in told else self._lines_of(row) for row in self._holding(thread, spans)]
            for thread, spans in launches.items()
        }

    def during(self, gaps: Sequence[tuple[float, float]]) -> Iterator[tuple[_Thread, str, float, float]]:
        """Return the functions outside of the framework that ran for at least a tenth of one of these gaps: thread,
        name, start and end. Gaps are in order and do not overlap. Times are in us."""
        if not gaps or not self._ids:
            return
        least = MOST_OF * min(end - start for start, end in gaps)
        begins = [start for start, _ in gaps]
        threads, names = [*self._threads], [*self._names]
        for row in compress(range(len(self)), map(least.__le__, self._lengths)):
            if self._frames[self._name_of[row]] is None:
                continue
            start = self._starts[row]
            end = start + self._lengths[row]
            for at in range(max(0, bisect_right(begins, start) - 1), bisect_left(begins, end)):
                begin, until = gaps[at]
                if min(end, until) - max(start, begin) >= MOST_OF * (until - begin):
                    name = names[self._name_of[row]]
                    found = _FRAME.match(name)  # ``data.py:12 load`` for ``lib/data.py(12): load``
                    shown = name if found is None else f"{found[1]}:{found[2]} {name[found.end() :]}"
                    yield threads[self._thread_of[row]], shown, start, end
                    break

    def _holding(self, thread: _Thread, spans: Sequence[tuple[float, float]]) -> list[int]:
        """Return the innermost row around each launch on a thread, -1 if there is none."""
        number = self._threads.get(thread, -1)
        rows = array("i", compress(range(len(self)), map(number.__eq__, self._thread_of)))
        starts = array("d", map(self._starts.__getitem__, rows))
        lengths = self._lengths
        if any(map(gt, starts, islice(starts, 1, None))):
            rows = array("i", sorted(rows, key=lambda row: (self._starts[row], -lengths[row])))
            starts = array("d", map(self._starts.__getitem__, rows))
        found = [-1] * len(spans)
        order = sorted(range(len(spans)), key=spans.__getitem__, reverse=True)
        begin = spans[order[-1]][0] if order else inf
        # The open rows so far, nested, and their ends.
        is_open: list[int] = []
        ends: list[float] = []
        for row, start in chain(zip(rows, starts, strict=True), [(-1, inf)]):
            while begin < start:
                at = order.pop()
                while ends and ends[-1] < begin:
                    ends.pop()
                    is_open.pop()
                until = spans[at][1] - _ROUNDED_US
                for place in range(len(ends) - 1, max(-1, len(ends) - 1 - _MOST_STEPS), -1):
                    if ends[place] >= until:
                        found[at] = is_open[place]
                        break
                begin = spans[order[-1]][0] if order else inf
            while ends and ends[-1] <= start:
                ends.pop()
                is_open.pop()
            end = start + lengths[row]
            # A row that ends after the row around it has lost its own end, and contains nothing.
            if not ends or end <= ends[-1] + _ROUNDED_US or start == self._starts[is_open[-1]]:
                ends.append(end)
                is_open.append(row)
        return found

    @cached_property
    def _frames(self) -> list[tuple[int, bool] | None]:
        """For each name, by its place in `named`: its line, and whether it is a library's; None for the framework's."""
        found = map(_frame_of, self._names)
        return [one and (self.named.setdefault(one[0], len(self.named)), one[1]) for one in found]

    @cached_property
    def _row_of(self) -> Mapping[int, int] | array[int]:
        """The row of each id: an array if ids are dense, as the profiler's are."""
        ids = self._ids
        if min(ids) >= 0 and max(ids) <= _SPARSE * len(ids) + 1024:
            rows = array("i", [-1]) * (max(ids) + 1)
            for row, number in enumerate(ids):
                rows[number] = row
            return rows
        return dict(zip(ids, range(len(ids)), strict=True))

    def _lines_of(self, row: int) -> Lines:
        """Return the row's own frame, or the nearest one around it."""
        told, row_of = self._told, self._row_of
        climbed: list[int] = []
        while row not in told and len(climbed) < _MOST_STEPS:
            climbed.append(row)
            parent = self._parents[row]
            if isinstance(row_of, array):
                row = row_of[parent] if 0 <= parent < len(row_of) else -1
            else:
                row = row_of.get(parent, -1) if parent >= 0 else -1
        known = told.get(row, told[-1])
        for row in reversed(climbed):
            frame = self._frames[self._name_of[row]]
            if frame is not None:
                line, is_library = frame
                known = line, known[1] if is_library else line
            told[row] = known
        return known


Lines = tuple[int, int]
"""Places in `Frames.named`, -1 for none: outside of the framework; and outside of the libraries that build on it."""


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
