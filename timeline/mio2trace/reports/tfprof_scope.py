"""TensorFlow's scope view, as its own profiler prints it: shown rows and sums (tfprof.md 4, 5)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, get_args

import msgspec

from mio2trace.model.tf import NodeStep, TfNode, TfProfile

AVERAGE = None
"""In place of a step: the mean over the steps in which a node ran. TensorFlow uses any negative step for it; here a
step may have a negative number."""
ROOT = "_TFProfRoot"
PARENT = "_kTFScopeParent"

Quantity = Literal[
    "params", "float_ops", "bytes", "peak_bytes", "residual_bytes", "output_bytes", "micros", "accelerator_micros",
    "cpu_micros", "occurrence", "definitions",
]  # fmt: skip
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
"""Quantities that are summed over a scope. ``occurrence`` counts executions, ``definitions`` counts nodes."""
MINIMA: tuple[Quantity, ...] = QUANTITIES[:-1]
ORDERS = ("name", *MINIMA)
SELECTABLE = (
    "accelerator_micros", "bytes", "cpu_micros", "device", "float_ops", "input_shapes", "micros", "occurrence",
    "op_types", "output_bytes", "params", "peak_bytes", "residual_bytes",
)  # fmt: skip
NOTEBOOK_SELECT = ("bytes", "micros", "accelerator_micros", "cpu_micros")
TOWER = r"(?:v/tower_\d+|tower_\d+/v|v/task_\d+_tower_\d+)"
"""The scope of one device's copy of the network, in all versions of tf_cnn_benchmarks (tfprof.md 1)."""
NOTEBOOK_SHOW = (
    rf"{TOWER}/cg/(?:strided_slice|spatial_mean|Relu).+",
    rf"{TOWER}/cg/.*(?:FusedBatchNorm(?:V\d+)?|Conv2D|MaxPool(?:V\d+)?|MatMul|Relu|add(?:V\d+)?)",
    rf"{TOWER}/xentropy/sparse_softmax_cross_entropy_loss",
    rf"{TOWER}/gradients/.*(?:StridedSliceGrad|FusedBatchNormGrad(?:V\d+)?|spatial_mean\d+_grad"
    r"|Conv2DBackprop(?:Filter|Input)(?:V\d+)?|MaxPoolGrad(?:V\d+)?|ReluGrad|BiasAddGrad)",
)
"""The four expressions of the notebook "Parsing TFProf Files", for every tower, naming and version of an op."""

_Numbers = tuple[int, ...]
_ZERO: _Numbers = (0,) * len(QUANTITIES)
_HELD = ("requested_bytes", "peak_bytes", "residual_bytes", "output_bytes")
PLACES: dict[str, int] = {name: at for at, name in enumerate(QUANTITIES)}
"""The place of each quantity in `QUANTITIES`."""


class ScopeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of TensorFlow's profiler, with its names and meanings (tfprof.md 4).

    Regular expressions match whole names. ``minima``: rows with smaller numbers are left out.
    """

    step: int | None = AVERAGE
    max_depth: int = 50
    minima: tuple[tuple[Quantity, int], ...] = ()
    order_by: str = "name"
    account_type_regexes: tuple[str, ...] = (".*",)
    start_name_regexes: tuple[str, ...] = (".*",)
    trim_name_regexes: tuple[str, ...] = ()
    show_name_regexes: tuple[str, ...] = NOTEBOOK_SHOW
    hide_name_regexes: tuple[str, ...] = ()
    account_displayed_op_only: bool = False
    select: tuple[str, ...] = NOTEBOOK_SELECT


class Shown(msgspec.Struct, kw_only=True):
    """A row of the view. ``own`` and ``total`` follow `QUANTITIES`; ``own`` is None if TensorFlow prints ``--``.

    ``ancestors``: the shown rows above it, with the root. ``node``: None for a scope.
    """

    name: str
    ancestors: int
    node: TfNode | None
    own: _Numbers | None
    total: _Numbers
    children: list[Shown]

    def number(self, quantity: Quantity) -> int:
        """Return the total, which is the number that the notebook uses."""
        return self.total[PLACES[quantity]]


class ScopeTree:
    """The names of a profile as a tree: every node, and a scope for every prefix that is not a node."""

    def __init__(self, profile: TfProfile) -> None:
        nodes = {node.name: node for node in profile.nodes}
        children: dict[str, dict[str, None]] = {"": {}}
        for name in nodes:
            while name and name not in (siblings := children.setdefault(name.rpartition("/")[0], {})):
                siblings[name] = None
                name = name.rpartition("/")[0]
        self._children = {
            parent: sorted(names, key=lambda name: name.encode("utf-8", "surrogatepass"))
            for parent, names in children.items()
        }
        self._nodes = nodes
        self._own: dict[tuple[str, int], _Numbers] = {}

    def rows(self, options: ScopeOptions) -> Shown:
        """Return the view's root with the shown rows below it. Raises `re.error` for an invalid regular expression."""
        return _View(self, options).root()

    def children(self, name: str) -> list[str]:
        """Return the names directly below ``name`` ("" for the root), in order of their bytes."""
        return self._children.get(name, [])

    def node(self, name: str) -> TfNode | None:
        return self._nodes.get(name)

    def own(self, name: str, step: int | None) -> _Numbers:
        """Return the numbers of a node in a step; a scope has no numbers of its own."""
        node = self._nodes.get(name)
        return (*_ZERO[:-1], 1) if node is None else numbers(node, step)


def numbers(node: TfNode, step: int | None) -> _Numbers:
    """Return the values of a node as tfprof computes them, in a step or as the mean over its steps (tfprof.md 3.2)."""
    ran = node.steps if step is None else [one for one in node.steps if one.step == step]
    sums = [_step_numbers(one) for one in ran]
    found = [_quotient(sum(column), len(sums)) for column in zip(*sums, strict=True)] or [0] * 8
    *quantities, count = found
    params = math.prod(max(dim, 0) for dim in node.shape) if node.shape else 0
    float_ops = node.float_ops if not node.steps else node.float_ops * count
    return (params, float_ops, *quantities, count, 1)


def _step_numbers(one: NodeStep) -> tuple[int, ...]:
    accelerator, cpu = (
        sum(execution.dur_ns for execution in one.executions if execution.kind == kind) // 1000
        for kind in ("accelerator", "cpu")
    )
    held = (sum(getattr(memory, name) for memory in one.memory) for name in _HELD)
    return (*held, accelerator + cpu, accelerator, cpu, one.run_count)


def _quotient(total: int, count: int) -> int:
    """Divide integers as C++ does."""
    return total // count if total >= 0 else -(-total // count)


def _matcher(expressions: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that tests whether one of the expressions matches a whole text."""
    compiled = [re.compile(expression, re.ASCII) for expression in expressions]
    return lambda text: any(one.fullmatch(text) for one in compiled)


def _all(expressions: Sequence[str]) -> bool:
    return tuple(expressions) == (".*",)


class _View:
    """One view of a tree: it sums bottom-up, then selects rows top-down."""

    def __init__(self, tree: ScopeTree, options: ScopeOptions) -> None:
        self._tree = tree
        self._options = options
        self._accounts = _all(options.account_type_regexes)
        self._account = _matcher(options.account_type_regexes)
        self._start = _matcher(options.start_name_regexes)
        self._trim = _matcher(options.trim_name_regexes)
        self._shows_all = _all(options.show_name_regexes)
        self._show = _matcher(options.show_name_regexes)
        self._hide = _matcher(options.hide_name_regexes)
        self._total: dict[str, _Numbers] = {}
        self._own: dict[str, _Numbers] = {}
        self._accounted: set[str] = set()
        self._kept: dict[str, list[str]] = {}
        self._minima = [(PLACES[name], least) for name, least in options.minima]

    def root(self) -> Shown:
        tree, options = self._tree, self._options
        roots = [name for name in tree.children("") if self._keep(name)]
        total = self._sum(_ZERO, roots)
        if not _all(options.start_name_regexes):
            roots = list(self._started(roots))
        children = self._shown(roots, 2, 1) if options.max_depth >= 1 else []
        if options.account_displayed_op_only:
            total = _added(_ZERO, (child.total for child in children))
        return Shown(name=ROOT, ancestors=0, node=None, own=None, total=total, children=self._sorted(children))

    def _keep(self, name: str) -> bool:
        """Sum up ``name`` and everything below it; return whether it is kept."""
        tree = self._tree
        own = self._own[name] = tree.own(name, self._options.step)
        below = [child for child in tree.children(name) if self._keep(child)]
        self._kept[name] = below
        node = tree.node(name)
        types = node.op_types if node is not None else (PARENT,)
        if self._accounts or any(map(self._account, types)):
            self._accounted.add(name)
        elif not below:
            return False
        self._total[name] = self._sum(own, below) if below else own
        return True

    def _sum(self, own: _Numbers, names: Sequence[str]) -> _Numbers:
        return _added(own, (self._total[name] for name in names))

    def _started(self, names: Sequence[str]) -> Iterator[str]:
        for name in names:
            if self._start(name):
                yield name
            else:
                yield from self._started(self._kept[name])

    def _shown(self, names: Sequence[str], depth: int, ancestors: int) -> list[Shown]:
        options = self._options
        found: list[Shown] = []
        for name in names:
            shows = self._shows(name, depth)
            below: list[Shown] = []
            if depth <= options.max_depth and not (options.trim_name_regexes and self._trim(name)):
                below = self._shown(self._kept[name], depth + 1, ancestors + shows)
            if not shows:
                found += below
                continue
            own, total = self._own[name], self._total[name]
            if options.account_displayed_op_only:
                total = _added(own, (child.total for child in below))
            found.append(
                Shown(
                    name=name,
                    ancestors=ancestors,
                    node=self._tree.node(name),
                    own=own if name in self._accounted else None,
                    total=total,
                    children=self._sorted(below),
                )
            )
        return found

    def _shows(self, name: str, depth: int) -> bool:
        options = self._options
        if depth > options.max_depth:
            return False
        own, total = self._own[name], self._total[name]
        for at, least in self._minima:
            value = own[at] if QUANTITIES[at] in ("params", "float_ops", "occurrence") else total[at]
            if value < least:
                return False
        if not self._shows_all and not self._show(name):
            return False
        return not (options.hide_name_regexes and self._hide(name))

    def _sorted(self, rows: list[Shown]) -> list[Shown]:
        by = self._options.order_by
        if by in PLACES and by not in ("occurrence", "definitions"):
            at = PLACES[by]
            return sorted(rows, key=lambda row: -row.total[at])
        return sorted(rows, key=lambda row: row.name.encode("utf-8", "surrogatepass"))


def _added(own: _Numbers, others: Iterator[_Numbers]) -> _Numbers:
    columns = [own, *others]
    return own if len(columns) == 1 else tuple(map(sum, zip(*columns, strict=True)))


def flat(root: Shown) -> Iterator[Shown]:
    """Return the rows below the root, in printed order."""
    for row in root.children:
        yield row
        yield from flat(row)
