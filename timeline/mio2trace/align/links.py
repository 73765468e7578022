"""The links of each activity to its pass, its layer and its operation, with their evidence. Only this module writes
them."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align.rates import calibrated
from mio2trace.evidence import EVIDENCE, STRENGTH, Evidence
from mio2trace.model.log import Direction
from mio2trace.model.profile import Activity
from mio2trace.model.tables import NO, Activities, LayerKey, Numbers, Pool, present
from mio2trace.ops.operation import Operation

Phase = Literal["before", "setup", "warm-up", "iteration", "between"]
"""``before``: launched before the recording began; ``between``: launched behind a marked step and before the next."""

_NAMES = {"before": "before the recording", "setup": "set-up", "between": "outside of steps"}

NONE = -1
"""No layer, no pass, no operation."""

SURE = 0.995
"""A link is sure from this confidence on: shown with two digits, it is 1.00."""
DOUBTED = 0.5
"""Confidence of an uncertain link if nothing measures how uncertain it is: half of such links are right."""


class Pass(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stretch of the run: set-up, or one direction of the warm-up (iteration 0) or of a benchmark iteration.

    ``repeated``: an iteration that nothing names but that its kernels repeat."""

    phase: Phase
    iteration: int | None = None
    direction: Direction | None = None
    repeated: bool = False

    @property
    def number(self) -> int | None:
        """Return the number of the iteration; 1 for the only iteration of a run if it has none. None: set-up."""
        return 1 if self.iteration is None and self.phase == "iteration" else self.iteration

    @property
    def name(self) -> str:
        """As shown: ``iteration 1 · forward``."""
        if self.phase in _NAMES:
            return _NAMES[self.phase]
        name = "warm-up" if self.phase == "warm-up" else f"iteration {self.iteration}"
        if self.repeated:
            name = f"repetition {self.iteration}"
        if self.phase == "iteration" and self.iteration is None:
            name = "iteration"
        return f"{name} · {self.direction}" if self.direction else name


class LayerRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One execution of a layer. Host times bound it where something on the host does."""

    layer: str
    layer_index: int
    direction: Direction | None
    pass_: int
    printed_ns: int | None = None
    host_start_ns: int | None = None
    host_end_ns: int | None = None


class LayerRuns:
    """All executions of layers: the numbers of `LayerRun` as columns, with `NO` for None, and a record that is made if
    one is asked for. A table of columns takes a fifth of the memory of its records."""

    def __init__(self, runs: Iterable[LayerRun] = ()) -> None:
        self._codes: dict[LayerKey, int] = {}
        self._layers: list[LayerKey] = []
        self._cells = {name: array("q") for name in ("layer", "pass_", "printed_ns", "host_start_ns", "host_end_ns")}
        self._columns = {name: np.zeros(0, np.int64) for name in self._cells}
        self.extend(runs)

    def add(self, run: LayerRun) -> int:
        """Add a run and return its number."""
        layer = self._code(LayerKey(run.layer_index, run.layer, run.direction))
        row = layer, run.pass_, run.printed_ns, run.host_start_ns, run.host_end_ns
        for cells, value in zip(self._cells.values(), row, strict=True):
            cells.append(NO if value is None else value)
        return len(self) - 1

    def extend(self, runs: Iterable[LayerRun]) -> None:
        for run in runs:
            self.add(run)

    def add_columns(self, layers: Pool[LayerKey], **columns: Numbers) -> Numbers:
        """Add a run for each row and return their numbers. ``columns``: the numbers of `LayerRun`."""
        first = len(self)
        columns["layer"] = np.array([*map(self._code, layers.values)], np.int64)[layers.codes]
        for name, cells in self._cells.items():
            cells.frombytes(columns[name].tobytes())
        return np.arange(first, len(self))

    def column(self, name: str) -> Numbers:
        """A number of all runs, with `NO` for None."""
        if len(self._columns[name]) < len(self):
            self._columns[name] = np.array(self._cells[name], np.int64)
        return self._columns[name]

    def pass_of(self, number: int) -> int:
        return self._cells["pass_"][number]

    def layers(self) -> Pool[LayerKey]:
        """The layer of each run, in order of first appearance."""
        return Pool([*self._layers], self.column("layer").astype(np.int32))

    def _code(self, layer: LayerKey) -> int:
        if layer not in self._codes:
            self._layers.append(layer)
        return self._codes.setdefault(layer, len(self._codes))

    def __len__(self) -> int:
        return len(self._cells["layer"])

    def __getitem__(self, at: int) -> LayerRun:
        return self._made(*(cells[at] for cells in self._cells.values()))

    def __iter__(self) -> Iterator[LayerRun]:
        return map(self._made, *self._cells.values())

    def _made(self, layer: int, pass_: int, *times: int) -> LayerRun:
        place, name, direction = self._layers[layer]
        printed_ns, start_ns, end_ns = (None if time == NO else time for time in times)
        return LayerRun(
            layer=name,
            layer_index=place,
            direction=direction,
            pass_=pass_,
            printed_ns=printed_ns,
            host_start_ns=start_ns,
            host_end_ns=end_ns,
        )


WORDS: tuple[Evidence | Literal[""], ...] = ("", *EVIDENCE)


class Words:
    """By what evidence each activity is linked. ``codes``: its place in `WORDS`."""

    def __init__(self, count: int) -> None:
        self.codes = bytearray(count)

    @property
    def column(self) -> NDArray[np.uint8]:
        """The codes themselves, for numpy."""
        return np.frombuffer(self.codes, np.uint8) if self.codes else np.zeros(0, np.uint8)

    @property
    def pool(self) -> Pool[str]:
        return Pool[str](WORDS, self.column.astype(np.int32))

    @property
    def used(self) -> frozenset[str]:
        """The words of all activities; "" if one has no link."""
        return frozenset(WORDS[code] for code in present(self.column))

    def rows(self, words: Container[str]) -> list[int]:
        """The activities that are linked by one of ``words``, in order."""
        found: list[int] = np.flatnonzero(np.array([word in words for word in WORDS])[self.column]).tolist()
        return found

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, at: int) -> Evidence | Literal[""]:
        return WORDS[self.codes[at]]

    def __setitem__(self, at: int, word: Evidence | Literal[""]) -> None:
        self.codes[at] = WORDS.index(word)

    def __iter__(self) -> Iterator[Evidence | Literal[""]]:
        return map(WORDS.__getitem__, self.codes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Words | Sequence) and [*self] == [*other]


class Links:
    """The links found so far. Activity i has the layer execution ``run_of[i]``, the pass ``pass_of[i]`` and the
    operation ``operation_of[i]`` (`NONE` if unknown).

    These are places in ``runs``, ``passes`` and ``operations``. ``layer_by[i]`` and ``operation_by[i]`` are the
    evidence, ``""`` if there is no link. `np.asarray` returns the first three as columns without a copy, `Words.column`
    these two. ``layer_confidence`` and ``operation_confidence`` have the probability that a link is right, if it is
    below 1. ``layer_unsure`` and ``operation_unsure`` hold the activities whose confidence is below `SURE`.
    ``next_layer`` has the second-best layer of uncertain activities with its probability, if known. Only the methods of
    this class write these."""

    run_of: array[int]
    pass_of: array[int]
    layer_by: Words
    layer_unsure: AbstractSet[int]
    layer_confidence: Mapping[int, float]
    operation_of: array[int]
    operation_by: Words
    operation_unsure: AbstractSet[int]
    operation_confidence: Mapping[int, float]
    next_layer: Mapping[int, tuple[str, float]]
    runs: LayerRuns
    passes: Sequence[Pass]

    def __init__(self, activities: Sequence[Activity], operations: Sequence[Operation] = ()) -> None:
        self.activities = activities
        self.commands = activities if isinstance(activities, Activities) else Activities(activities)
        self.operations = tuple(operations)
        self.contradictions: Counter[str] = Counter()
        self.runs = LayerRuns()
        self._passes: list[Pass] = []
        self.passes = self._passes
        self._pass_numbers: dict[Pass, int] = {}
        self._next_layer: dict[int, tuple[str, float]] = {}
        self.next_layer = self._next_layer
        count = len(activities)
        self._layer, self._operation = _Column(count), _Column(count)
        self.pass_of = self._pass_of = array("i", [NONE]) * count
        column = self._layer
        self.run_of, self.layer_by, self.layer_unsure = column.target, column.by, column.unsure
        self.layer_confidence = column.confidence
        column = self._operation
        self.operation_of, self.operation_by, self.operation_unsure = column.target, column.by, column.unsure
        self.operation_confidence = column.confidence

    @classmethod
    def restored(
        cls,
        activities: Sequence[Activity],
        operations: Sequence[Operation],
        *,
        runs: Sequence[LayerRun],
        passes: Sequence[Pass],
        contradictions: Mapping[str, int],
        **columns: Any,
    ) -> Links:
        """Links as they were, from all their columns."""
        links = cls(activities, operations)
        links.runs.extend(runs)
        links._passes += passes
        links._pass_of[:] = array("i", columns["pass_of"].tobytes())
        links.contradictions.update(contradictions)
        for column, target, kind in (
            (links._layer, "run_of", "layer"),
            (links._operation, "operation_of", "operation"),
        ):
            column.target[:] = array("i", columns[target].tobytes())
            column.by.codes[:] = bytes(map(WORDS.index, columns[f"{kind}_by"].each()))
            column.confidence.update(columns[f"{kind}_confidence"])
            column.unsure.update(columns[f"{kind}_unsure"])
        return links

    def pass_id(
        self,
        phase: Phase,
        iteration: int | None = None,
        direction: Direction | None = None,
        *,
        repeated: bool = False,
    ) -> int:
        """The number of this pass, made when new."""
        key = Pass(phase=phase, iteration=iteration, direction=direction, repeated=repeated)
        number = self._pass_numbers.get(key)
        if number is None:
            number = self._pass_numbers[key] = len(self._passes)
            self._passes.append(key)
        return number

    def refine(self, operations: Sequence[Operation]) -> None:
        """The same operations with more known of them, in the same order."""
        assert len(operations) == len(self.operations)
        self.operations = tuple(operations)

    def extend(self, operations: Iterable[Operation]) -> None:
        """Operations that are found behind the others; nothing is linked to them yet."""
        self.operations = (*self.operations, *operations)

    def give_layer(self, positions: Iterable[int], run: int, by: Evidence, *, confidence: float = 1.0) -> None:
        """Link activities to a layer's run, and to its pass. Stronger evidence wins; a contradiction is counted."""
        self._give(self._layer, positions, run, by, confidence)

    def give_layers(self, positions: Numbers, runs: Numbers, by: Evidence) -> None:
        """Link each of some activities to its run of a layer: `give_layer` of many runs at once."""
        self._give_each(self._layer, positions, runs, by)

    def give_operations(self, positions: Numbers, indices: Numbers, by: Evidence) -> None:
        """Link each of some activities to its operation: `give_operation` of many operations at once."""
        self._give_each(self._operation, positions, indices, by)

    def give_next_layer(self, position: int, layer: str, probability: float) -> None:
        """Record the second-best layer of an activity, and its probability."""
        self._next_layer[position] = layer, probability

    def give_operation(self, positions: Iterable[int], index: int, by: Evidence, *, confidence: float = 1.0) -> None:
        """Link activities to the operation ``index``. Stronger evidence wins; a contradiction is counted."""
        self._give(self._operation, positions, index, by, confidence)

    def give_pass(self, positions: Iterable[int], pass_: int) -> None:
        """Put activities that are in no pass yet into one."""
        rows, passes = _rows(positions), np.asarray(self._pass_of)
        passes[rows[passes[rows] == NONE]] = pass_

    def move_pass(self, positions: Iterable[int], pass_: int) -> None:
        """Put activities that are in no layer into another pass, on second thoughts."""
        rows = _rows(positions)
        assert (np.asarray(self._layer.target)[rows] == NONE).all()
        np.asarray(self._pass_of)[rows] = pass_

    def _give_each(self, column: _Column, positions: Numbers, targets: Numbers, by: Evidence) -> None:
        free = np.asarray(column.target)[positions] == NONE
        rows, given = positions[free], targets[free]
        np.asarray(column.target)[rows] = given
        column.by.column[rows] = WORDS.index(by)
        if column is self._layer:
            np.asarray(self._pass_of)[rows] = self.runs.column("pass_")[given]
        for position, target in zip(positions[~free].tolist(), targets[~free].tolist(), strict=True):
            self._give(column, (position,), target, by, 1.0)

    def _give(self, column: _Column, positions: Iterable[int], target: int, by: Evidence, confidence: float) -> None:
        targets, words = column.target, column.by
        layer = column is self._layer
        pass_ = self.runs.pass_of(target) if layer else NONE
        for position in positions:
            given = targets[position]
            if given != NONE:
                word = words[position]
                assert word
                stronger = STRENGTH[by] > STRENGTH[word]
                if given != target and not (layer and self._is_same_layer(given, target)):
                    self.contradictions[f"{word} against {by}" if stronger else f"{by} against {word}"] += 1
                if not stronger:
                    continue
                column.settle(position)
            targets[position], words[position] = target, by
            if layer:
                self._pass_of[position] = pass_
            column.doubt((position,), confidence)

    def _is_same_layer(self, run: int, other: int) -> bool:
        a, b = self.runs[run], self.runs[other]
        return a.layer_index == b.layer_index and a.pass_ == b.pass_

    def doubt_layer(self, positions: Iterable[int], confidence: float = DOUBTED) -> None:
        """Limit the confidence of the layers of these activities. Activities without a layer are skipped."""
        self._layer.doubt(positions, confidence)

    def weigh_layer(self, position: int, chance: float, at_most: float = 1.0) -> None:
        """Remove the layer if another is more probable. Else its confidence is the smaller of ``chance`` and
        ``at_most``."""
        if chance < DOUBTED:
            self.take_layer(position)
        else:
            self._layer.doubt((position,), min(chance, at_most))

    def doubt_operation(self, positions: Iterable[int], confidence: float = DOUBTED) -> None:
        """Limit the confidence of the operations of these activities. Activities without an operation are skipped."""
        self._operation.doubt(positions, confidence)

    def calibrate_layers(self) -> None:
        """Replace the confidence of uncertain layers by the measured one (`rates.CALIBRATED`), except `DOUBTED`."""
        known = self._layer.confidence
        for position, before in known.items():
            after = known[position] = before if before == DOUBTED else calibrated("layer", before)
            if after != before and position in self._next_layer:
                name, chance = self._next_layer[position]
                self._next_layer[position] = name, chance * (1 - after) / (1 - before)

    def take_layer(self, position: int) -> None:
        """Nothing is known of its layer and pass, on second thoughts."""
        layer = self._layer
        layer.target[position], layer.by[position] = NONE, ""
        layer.settle(position)
        self._next_layer.pop(position, None)
        self._pass_of[position] = NONE

    def refine_layer(self, positions: Sequence[int], run: int, by: Evidence, *, confidence: float = 1.0) -> None:
        """Move activities to a layer inside their layer; activities in no layer to that layer."""
        layer, pass_ = self._layer, self.runs.pass_of(run)
        for position in positions:
            layer.target[position], layer.by[position] = run, by
            layer.settle(position)
            self._pass_of[position] = pass_
        layer.doubt(positions, confidence)

    def iteration_of(self, position: int) -> int | None:
        """The iteration that an activity ran in, 0 for the warm-up; None where no pass is known."""
        pass_ = self._pass_of[position]
        return None if pass_ == NONE else self._passes[pass_].iteration

    @property
    def has_operations(self) -> bool:
        """Whether any activity has an operation."""
        operation_of = self._operation.target
        return operation_of.count(NONE) < len(operation_of)


class _Column:
    """One kind of link: of each activity its target, by what, its confidence below 1, and which are not sure."""

    __slots__ = ("by", "confidence", "target", "unsure")

    def __init__(self, count: int) -> None:
        self.target = array("i", [NONE]) * count
        self.by = Words(count)
        self.confidence: dict[int, float] = {}
        self.unsure: set[int] = set()

    def doubt(self, positions: Iterable[int], confidence: float = DOUBTED) -> None:
        target, known = self.target, self.confidence
        for position in positions if confidence < 1.0 else ():
            if target[position] != NONE:
                known[position] = min(known.get(position, 1.0), confidence)
                if confidence < SURE:
                    self.unsure.add(position)

    def settle(self, position: int) -> None:
        """Stronger evidence takes the doubts of weaker away."""
        self.confidence.pop(position, None)
        self.unsure.discard(position)


def _rows(positions: Iterable[int]) -> Numbers:
    return np.asarray(positions if isinstance(positions, Sequence | np.ndarray) else [*positions], np.int64)


def neighbours(is_known: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """Return the last known row up to each row (`NONE`: none), and the next one (the number of rows: none)."""
    rows = np.arange(len(is_known))
    last = np.maximum.accumulate(np.where(is_known, rows, NONE))
    return last, np.minimum.accumulate(np.where(is_known, rows, len(rows))[::-1])[::-1]
