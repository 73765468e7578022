"""Layer lines that came into the log late: the stream that they were printed to was buffered, and they bound nothing.

What they say of a pass is compared with what its kernels do: kernels are named after types of layers, and a layer's
convolutions have one problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, log

from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.caffe.names import contradicts, tells_type, types_of
from mio2trace.align.layers.outside_times import OF_ITS_OWN
from mio2trace.align.links import DOUBTED, NONE
from mio2trace.align.operations.rates import MISSTATED
from mio2trace.model.log import Direction
from mio2trace.ops.operation import Operation

_Posed = tuple[str, object]


def doubt_by_kernels(attribution: Attribution) -> None:
    """Doubt the layers of a pass as its kernels do not go with them; such a kernel is in doubt by itself."""
    activities, links = attribution.profile.activities, attribution.links
    placed = [
        position
        for position, (word, activity) in enumerate(zip(links.layer_by, activities, strict=True))
        if word not in OF_ITS_OWN and activity.kind == "kernel"
    ]
    if len({activities[position].queue for position in placed}) > 1:
        return  # another thread's kernels go with no layers, either (`doubt_other_queues`)
    telling = _Telling(attribution, placed)
    if not telling.is_anything_odd():
        return
    of_pass: dict[int, list[int]] = {}
    for position in placed:
        of_pass.setdefault(links.pass_of[position], []).append(position)
    for positions in of_pass.values():
        statements = telling.of(positions)
        nats = sum(
            log(by_chance / MISSTATED if is_odd else (1 - by_chance) / (1 - MISSTATED))
            for _, is_odd, by_chance in statements
        )
        odd = {position for position, is_odd, _ in statements if is_odd}
        chance = 1 / (1 + exp(min(nats, 700.0)))
        for position in positions if odd else ():
            if chance < DOUBTED:
                links.take_layer(position)
            else:
                links.doubt_layer((position,), DOUBTED if position in odd else chance)


class _Telling:
    """What the names of kernels and the problems of their calls say of the layers that they are in."""

    def __init__(self, attribution: Attribution, positions: Sequence[int]) -> None:
        self._links = links = attribution.links
        self._activities = activities = attribution.profile.activities
        self._types = {layer.index: types_of(layer.layer, layer.type) for layer in attribution.net.layers}
        self._run_of = [links.run_of[position] for position in positions]
        self._name_of = [activities[position].name for position in positions]
        names = Counter(self._name_of)
        self._names = Counter({name: count for name, count in names.items() if tells_type(name)})
        of_facts: dict[int, _Posed | None] = {}
        of_operation: dict[int, _Posed | None] = {NONE: None}
        for operation in links.operations:
            key = id(operation.facts)
            if key not in of_facts:
                of_facts[key] = _posed(operation)
            of_operation[operation.index] = of_facts[key]
        self._posed = [of_operation[links.operation_of[position]] for position in positions]
        self._posed_of = dict(zip(positions, self._posed, strict=True))
        self._problems = Counter(posed for posed in self._posed if posed is not None)
        self._shares: dict[object, float] = {}

    def is_anything_odd(self) -> bool:
        """Whether any kernel does not go with its layer, by its name or beside the layer's other calls."""
        layers = [(run.layer_index, run.direction) for run in self._links.runs]
        for name, (index, direction) in set(zip(self._name_of, map(layers.__getitem__, self._run_of), strict=True)):
            types = self._types[index]
            if direction is not None and types and name in self._names and contradicts(name, types, direction):
                return True
        posed = {pair for pair in zip(self._run_of, self._posed, strict=True) if pair[1] is not None}
        return len(posed) > len({(run, one and one[0]) for run, one in posed})

    def of(self, positions: Sequence[int]) -> list[tuple[int, bool, float]]:
        """Of each that says anything: whether it does not go with its layer, and how often that is by chance."""
        statements: list[tuple[int, bool, float]] = []
        of_run: dict[tuple[int, str], list[tuple[int, _Posed]]] = {}
        for position in positions:
            run = self._links.runs[self._links.run_of[position]]
            types, name = self._types[run.layer_index], self._activities[position].name
            if run.direction is not None and types and name in self._names:
                share = self._of_another(types, run.direction)
                statements.append((position, contradicts(name, types, run.direction), share))
            posed = self._posed_of[position]
            if posed is not None:
                of_run.setdefault((self._links.run_of[position], posed[0]), []).append((position, posed))
        for its in of_run.values():
            own, _ = Counter(posed for _, posed in its).most_common(1)[0]
            first = next(self._links.operation_of[position] for position, posed in its if posed == own)
            alike = sum(count for posed, count in self._problems.items() if posed[0] == own[0])
            share = _likely(1 - self._problems[own] / alike)
            # Of a call that is alone nothing tells.
            others = [(position, posed) for position, posed in its if self._links.operation_of[position] != first]
            statements += [(position, posed != own, share) for position, posed in others]
        return statements

    def _of_another(self, types: frozenset[str], direction: Direction) -> float:
        """The part of the kernels that do not go with a layer of this type."""
        key = types, direction
        if key not in self._shares:
            odd = sum(count for name, count in self._names.items() if contradicts(name, types, direction))
            self._shares[key] = _likely(odd / self._names.total())
        return self._shares[key]


def _likely(share: float) -> float:
    return min(1 - MISSTATED, max(MISSTATED, share))


def _posed(operation: Operation | None) -> _Posed | None:
    """Direction of a convolution, with its problem: a layer has one."""
    if operation is None or operation.primitive != "conv" or not operation.weights:
        return None
    return f"{operation.direction}", (operation.input, operation.weights, operation.output)
