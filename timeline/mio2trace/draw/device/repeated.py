"""Passes that repeat another one: what is in them is drawn in columns, in the form of the one before (`trace.Stretch`).

An iteration runs the kernels of the one before it, in the same layers and operations: what its slices show differs in
times, rates and running numbers alone. All else depends on the pass's look; a form is made where a look comes for the
second time, and tried on the third before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter, eq, sub
from typing import NamedTuple

from mio2trace.align import NONE
from mio2trace.draw.base import three_digits
from mio2trace.draw.device.commands import Commands
from mio2trace.draw.device.containers import Containers
from mio2trace.draw.lanes import borders
from mio2trace.measures import Measures
from mio2trace.model.profile import Activity
from mio2trace.trace import Form, Slice, Stretch

_MOST_ALIKE = 8
"""Looks of passes with equally many commands that are kept."""
_COLUMNS: Callable[[Activity], tuple[int, ...]] = attrgetter("number", "queued_ns", "submit_ns", "start_ns", "end_ns")

_Row = tuple[int, int, int]
"""Number of a layer's run or index of an operation; where its commands begin and end in the pass."""
_Place = tuple[int, int, dict[str, int]]
"""Of a slice: which times are its start and duration, which numbers may be which of its own arguments."""


class _Inside(NamedTuple):
    """What is in a pass: its commands, from position ``first`` on, and columns of what `_COLUMNS` names; its layers'
    runs; its operations, `NONE` between them.
    """

    pass_: int
    first: int
    commands: Sequence[Activity]
    columns: Sequence[Sequence[int]]
    runs: Sequence[_Row]
    operations: Sequence[_Row]


class _Repeated(NamedTuple):
    """A form, and the work of each command, run and operation that shows a rate; else 0."""

    form: Form
    of_commands: Sequence[int]
    of_runs: Sequence[int]
    of_operations: Sequence[int]


class _Seen:
    """A look that some pass had, and what was made of it when it came again; ``holds``: whether that was right."""

    __slots__ = ("holds", "look", "repeated")

    def __init__(self, look: object) -> None:
        self.look = look
        self.repeated: _Repeated | None = None
        self.holds: bool | None = None


class Repeated:
    """Draws what is in passes: in slices, and in stretches where it repeats."""

    def __init__(self, measures: Measures, commands: Commands, containers: Containers) -> None:
        self._measures = measures
        self._links = measures.alignment.links
        self._activities = measures.alignment.profile.activities
        self._commands, self._containers = commands, containers
        self._seen: dict[tuple[int, int], list[_Seen]] = {}
        """By track and number of commands, the latest last."""

    def drawn(
        self, track: int, shift: int, pass_: int, positions: Sequence[int], slices: Callable[[], Iterable[Slice]]
    ) -> Iterable[Slice | Stretch]:
        """What is in an unbroken row of a pass; ``slices`` gives all of it as such."""
        inside = self._inside(pass_, positions)
        look = None if inside is None else self._look(inside)
        if inside is None or look is None:
            return slices()
        alike = self._seen.setdefault((track, len(positions)), [])
        seen = next((one for one in alike if one.look == look), None)
        if seen is None:
            alike.append(_Seen(look))
            del alike[:-_MOST_ALIKE]
            return slices()
        if seen.holds is False:
            return slices()
        if seen.repeated is None:
            made = list(slices())
            seen.repeated = self._repeated(made, inside)
            return made
        stretch = self._stretch(seen.repeated, shift, inside)
        if seen.holds:
            return (stretch,)
        made = list(slices())
        seen.holds = _are_same(made, list(stretch.slices()))
        return made

    def _inside(self, pass_: int, positions: Sequence[int]) -> _Inside | None:
        """None where commands do not follow each other in the profile, or lack what others have."""
        first, stop = positions[0], positions[-1] + 1
        if stop - first != len(positions):
            return None
        links = self._links
        commands = self._activities[first:stop]
        columns = list(zip(*map(_COLUMNS, commands), strict=True))
        _, queued_ns, submit_ns, start_ns, end_ns = columns
        if None in queued_ns or None in submit_ns:
            return None
        if any(map(eq, start_ns, end_ns)):
            return None  # what takes no time has no rate
        run_of, operation_of = links.run_of[first:stop], links.operation_of[first:stop]
        of_runs = borders(run_of)
        runs = [row for row in _rows(run_of, of_runs) if row[0] != NONE]
        operations = _rows(operation_of, sorted({*of_runs, *borders(operation_of)}))
        return _Inside(pass_, first, commands, columns, runs, operations)

    def _look(self, inside: _Inside) -> object:
        """What is shown depends on nothing else, but for times and numbers; None: on more than is looked at here.

        Mostly the same objects as of the pass before: two looks are compared quickly.
        """
        sums, links = self._measures.runs, self._links
        if any(sums.activities(number) != end - begin for number, begin, end in inside.runs):
            return None  # the layer goes on elsewhere
        runs = []
        for number, begin, end in inside.runs:
            run = links.runs[number]
            runs.append((run.layer, run.layer_index, run.direction, run.printed_ns, begin, end, sums.flop(number)))
        sums, operation_at = self._measures.operations, self._measures.operation_at
        operations: list[tuple[object, ...]] = []
        for index, begin, end in inside.operations:
            if index == NONE:
                operations.append((begin, end))
                continue
            operation = operation_at[index]
            if sums.activities(index) != end - begin or not operation.line:
                return None
            # What is shown of it is kept: its identity stands for it.
            operations.append((begin, end, id(self._containers.shown(operation)[1]), operation.flop))
        pass_ = links.passes[inside.pass_]
        has_shares = self._containers.has_shares(inside.pass_)
        commands = self._commands.look(inside.first, inside.commands)
        if commands is None:
            return None
        return pass_.phase, pass_.number is None, has_shares, runs, operations, commands

    def _repeated(self, slices: Sequence[Slice], inside: _Inside) -> _Repeated:
        """The form of a pass, by how it was drawn."""
        times: list[tuple[int, int]] = []
        numbers: list[Mapping[str, int]] = []
        for like, (start, duration, own) in zip(slices, _places(inside), strict=True):
            times.append((start, duration))
            numbers.append({key: own[key] for key in like.args if key in own})
        at_work = [row for row in inside.operations if row[0] != NONE]
        return _Repeated(
            Form(slices, times, numbers),
            [self._commands.work(inside.first + number) for number in range(len(inside.commands))],
            [self._measures.runs.flop(number) or 0 for number, _, _ in inside.runs],
            [self._measures.operation_at[index].flop or 0 for index, _, _ in at_work],
        )

    def _stretch(self, repeated: _Repeated, shift: int, inside: _Inside) -> Stretch:
        """Times and numbers as `_places` counts them."""
        call_index, *columns = inside.columns
        queued, submit, starts, ends = ([ns + shift for ns in column] for column in columns)
        durations = list(map(sub, ends, starts))
        operations = [row for row in inside.operations if row[0] != NONE]
        numbers: list[int | float | None] = [self._links.passes[inside.pass_].number]
        numbers += call_index
        numbers += queued
        numbers += submit
        numbers += _rates(repeated.of_commands, durations)
        for rows, sums, work in (
            (inside.runs, self._measures.runs, repeated.of_runs),
            (operations, self._measures.operations, repeated.of_operations),
        ):
            durations += [ends[end - 1] - starts[begin] for _, begin, end in rows]
            kernel_ns = [sums.timed_ns[number] for number, _, _ in rows]
            numbers += kernel_ns
            numbers += self._containers.shares(inside.pass_, kernel_ns)
            numbers += _rates(work, kernel_ns)
        operation_at = self._measures.operation_at
        numbers += [index for index, _, _ in operations]
        numbers += [operation_at[index].line for index, _, _ in operations]
        return Stretch(repeated.form, starts + durations, numbers)


def _rows(column: Sequence[int], begins: Sequence[int]) -> list[_Row]:
    return [(column[begin], begin, end) for begin, end in pairwise([*begins, len(column)])]


def _places(inside: _Inside) -> Iterator[_Place]:
    """Of each slice in the order in which they are drawn: layers, operations in them, commands in these."""
    size, runs = len(inside.commands), len(inside.runs)
    operations = sum(index != NONE for index, _, _ in inside.operations)
    of_runs = 1 + 4 * size
    of_operations = of_runs + 3 * runs
    run_at = {begin: number for number, (_, begin, _) in enumerate(inside.runs)}
    operation = -1
    for index, begin, end in inside.operations:
        run = run_at.get(begin)
        if run is not None:
            yield begin, 2 * size + run, {**_of_container(of_runs + run, runs), "iteration": 0}
        of_operation: dict[str, int] = {}
        if index != NONE:
            operation += 1
            first = of_operations + operation
            of_operation = {"operation": first + 3 * operations}
            own = _of_container(first, operations) | of_operation | {"line": first + 4 * operations}
            yield begin, 2 * size + runs + operation, own
        for number in range(begin, end):
            own = {"call_index": 1 + number, "queued_ns": 1 + size + number, "submit_ns": 1 + 2 * size + number}
            yield number, size + number, own | {"gflops": 1 + 3 * size + number, "iteration": 0} | of_operation


def _of_container(first: int, count: int) -> dict[str, int]:
    return {"kernel_ns": first, "percent_of_kernel_time": first + count, "gflops": first + 2 * count}


def _rates(work: Sequence[int], times: Sequence[int]) -> list[float]:
    """GFLOP/s; 0 of what has no work that counts."""
    return [three_digits(flop / ns) if flop and ns else 0 for flop, ns in zip(work, times, strict=True)]


def _are_same(slices: Sequence[Slice], others: Sequence[Slice]) -> bool:
    """Also in the order of their arguments."""
    return slices == others and all(list(a.args) == list(b.args) for a, b in zip(slices, others, strict=True))
