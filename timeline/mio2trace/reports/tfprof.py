"""TensorFlow's profiles as tables: the scope view of its own profiler (tfprof.md 4, 5), and memory and times of the
shown ops over the steps, as the notebook "Parsing TFProf Files" computes them (tfprof.md 6).

Units are decimal (KB = 1000 B), numbers are the unrounded integers of the profile; ``Factors("notebook")`` has the
notebook's factors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from mio2trace.model.tf import TITLES, NodeStep, Printed, TfNode, TfProfile, TfView, ViewRow
from mio2trace.notes import Notes
from mio2trace.outgoing import visible
from mio2trace.reports import Cell, Table

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
    """The names of a profile as a tree: every node, and a scope for every prefix that is not a node. ``children``: the
    names directly below a name ("" for the root), in order of their bytes."""

    def __init__(self, profile: TfProfile) -> None:
        self.nodes = {node.name: node for node in profile.nodes}
        children: dict[str, dict[str, None]] = {"": {}}
        for name in self.nodes:
            while name and name not in (siblings := children.setdefault(name.rpartition("/")[0], {})):
                siblings[name] = None
                name = name.rpartition("/")[0]
        self.children = {parent: sorted(names, key=_bytes) for parent, names in children.items()}

    def rows(self, options: ScopeOptions) -> Shown:
        """Return the view's root with the shown rows below it. Raises `re.error` for an invalid regular expression."""
        return _View(self, options).root()


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


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
        options = self._options
        roots = [name for name in self._tree.children[""] if self._keep(name)]
        total = self._sum(_ZERO, roots)
        if not _all(options.start_name_regexes):
            roots = list(self._started(roots))
        children = self._shown(roots, 2, 1) if options.max_depth >= 1 else []
        if options.account_displayed_op_only:
            total = _added(_ZERO, (child.total for child in children))
        return Shown(name=ROOT, ancestors=0, node=None, own=None, total=total, children=self._sorted(children))

    def _keep(self, name: str) -> bool:
        """Sum up ``name`` and everything below it; return whether it is kept."""
        node = self._tree.nodes.get(name)
        own = (*_ZERO[:-1], 1) if node is None else numbers(node, self._options.step)  # a scope has no other numbers
        below = [child for child in self._tree.children.get(name, ()) if self._keep(child)]
        self._own[name], self._kept[name] = own, below
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
                    node=self._tree.nodes.get(name),
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
        return sorted(rows, key=lambda row: _bytes(row.name))


def _added(own: _Numbers, others: Iterator[_Numbers]) -> _Numbers:
    columns = [own, *others]
    return own if len(columns) == 1 else tuple(map(sum, zip(*columns, strict=True)))


def flat(root: Shown) -> Iterator[Shown]:
    """Return the rows below the root, in printed order."""
    for row in root.children:
        yield row
        yield from flat(row)


# -- The notebook "Parsing TFProf Files" (tfprof.md 6) -----------------------------------------------------------------

COLUMNS = (
    "name", "op", "memory_mean_kb", "memory_cv_percent", "total_mean_us", "total_cv_percent", "accelerator_mean_us",
    "accelerator_cv_percent", "cpu_mean_us", "cpu_cv_percent",
)  # fmt: skip
"""The first columns of every row, in the notebook's order. ``cpu``: the host's time; for an op on a GPU mostly its
launch."""
_QUANTITIES = ("bytes", "micros", "accelerator_micros", "cpu_micros")
_MEANS, _CVS = (dict(zip(_QUANTITIES, names, strict=True)) for names in (COLUMNS[2::2], COLUMNS[3::2]))

Units = Literal["exact", "notebook"]

_EXACT = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "us": 1, "ms": 10**3, "sec": 10**6, "min": 60 * 10**6}
_NOTEBOOK = {"B": 1 / 1024, "KB": 1.0, "MB": 1024.0, "GB": 1024.0 * 1024, "us": 1.0, "ms": 1000.0, "sec": 1e6,
             "min": 60e6}  # fmt: skip
"""Factors to KB and us. The notebook counted "1 sec" as 0 (tfprof.md 6, 3); this error is not kept."""

_TOWER = r"(?:v/tower_(?P<{0}a>\d+)|tower_(?P<{0}b>\d+)/v|v/(?P<{0}c>task_\d+_tower_\d+))"
_PARTS = tuple(re.compile(_TOWER.format("t") + f"/{part}/") for part in ("cg", "gradients", "xentropy"))
_DROPPED = (
    "conv2d/", "Conv2D_grad/", "Relu_grad/", "FusedBatchNorm_grad/", "FusedBatchNormV2_grad/", "FusedBatchNormV3_grad/",
)  # fmt: skip
_BATCH_NORM = re.compile(r"/batchnorm\d+/")
_TWICE = re.compile(r"^((?:task_\d+_)?tower_\d+/)\1")
"""The name of a gradient has its tower twice."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a row over the steps, in step order, in KB and us; absent if the source does not have them.

    ``ran``: the number of steps in which the node has executions (for a scope: its nodes). ``average``: the one value
    is already a mean, whose variation is unknown.
    """

    name: str
    values: Mapping[str, Sequence[float]]
    ran: int
    steps: int
    inside: str = ""
    average: bool = False


def short_name(name: str) -> tuple[str, str]:
    """Return the notebook's name and op of a node: without uninformative scopes, split at the last slash (tfprof.md 6).

    Towers other than the first keep their number.
    """
    for part in _PARTS:
        name = part.sub(_other_tower, name)
    name = _TWICE.sub(r"\1", name)
    for text in _DROPPED:
        name = name.replace(text, "")
    name = _BATCH_NORM.sub("/", name)
    scope, slash, op = name.rpartition("/")
    if slash:
        return scope, op
    return name, "Relu" if name.startswith("Relu_") else ""


def _other_tower(found: re.Match[str]) -> str:
    if found["tc"]:
        return f"{found['tc']}/"
    number = (found["ta"] or found["tb"]).lstrip("0")
    return f"tower_{number}/" if number else ""


def profile_series(profile: TfProfile, steps: Sequence[int], show: Sequence[str], units: Units) -> list[Series]:
    """Return the shown rows of a profile over ``steps``, in the order of the scope view.

    Raises `re.error` for an invalid regular expression.
    """
    tree = ScopeTree(profile)
    if not steps:
        return []
    views = [
        list(flat(tree.rows(ScopeOptions(step=step, show_name_regexes=tuple(show or NOTEBOOK_SHOW))))) for step in steps
    ]
    inside = {child.name: row.name for row in views[0] for child in row.children}
    known = _QUANTITIES if profile.memory_known else _QUANTITIES[1:]
    found = []
    # Without minima every step shows the same rows.
    for rows in zip(*views, strict=True):
        values = {quantity: [_value(row.number(quantity), quantity, units) for row in rows] for quantity in known}
        name, node = rows[0].name, rows[0].node
        ran = len(steps) if node is None else len({one.step for one in node.steps} & set(steps))
        found.append(Series(name=name, values=values, ran=ran, steps=len(steps), inside=inside.get(name, "")))
    return found


def _value(total: int, quantity: str, units: Units) -> float:
    if units == "notebook":
        return in_notebook_units(printed(memory_text(total) if quantity == "bytes" else time_text(total)))
    return total / 1000 if quantity == "bytes" else float(total)


def printed(text: str) -> Printed:
    """Read a number as TensorFlow prints it: ``51.38MB``."""
    digits = text.rstrip("BKMGusmecin")
    whole, _, rest = digits.partition(".")
    sign = -1 if whole.startswith("-") else 1
    return Printed(int(whole) * 100 + sign * int((rest + "00")[:2]), text[len(digits) :])


def in_notebook_units(number: Printed) -> float:
    """Convert to KB or us by the notebook's factors, 1024 for memory."""
    return number.hundredths / 100 * _NOTEBOOK[number.unit]


def in_exact_units(number: Printed) -> float:
    """Convert to KB or us by the factors that TensorFlow uses for printing."""
    base = number.hundredths * _EXACT[number.unit]
    return base / 100_000 if number.unit.endswith("B") else base / 100


def steps_of(views: Sequence[TfView], notes: Notes) -> list[TfView]:
    """Return the views of single steps, in step order. If there are several kinds of views, the scope views are
    used, without averages if there are single steps. Two views of one step count once."""
    scopes = [view for view in views if view.view == "scope"]
    if scopes and len(scopes) < len(views):
        notes.remark("op view beside scope views left out", count=len(views) - len(scopes))
    taken = scopes or list(views)
    single = [view for view in taken if view.step != -1]
    if single and len(single) < len(taken):
        notes.remark("view of an average beside those of steps left out", count=len(taken) - len(single))
    taken = single or taken
    by_step: dict[object, TfView] = {}
    for number, view in enumerate(taken):
        key = ("unknown", number) if view.step is None else view.step
        if key in by_step:
            notes.add("second view of a step left out", f"step {view.step}")
        else:
            by_step[key] = view
    found = list(by_step.values())
    if all(view.step is not None for view in found):
        found.sort(key=lambda view: view.step or 0)
    return found


def view_series(views: Sequence[TfView], show: Sequence[str], units: Units) -> list[Series]:
    """Return the rows of printed views, each view a step, in the order of the first view that has them.

    A row that is missing in a view counts as 0 there, like a row that did not run. ``show`` defaults to the notebook's
    expressions for scope views, to all rows for op views.
    """
    rows: list[dict[str, ViewRow]] = []
    expressions = [re.compile(one, re.ASCII) for one in show or (() if views[0].view == "op" else NOTEBOOK_SHOW)]
    for view in views:
        by_name: dict[str, ViewRow] = {}
        for row in view.rows:
            if not expressions or any(one.fullmatch(row.name) for one in expressions):
                by_name.setdefault(row.name, row)
        rows.append(by_name)
    names = dict.fromkeys(name for by_name in rows for name in by_name)
    take = in_notebook_units if units == "notebook" else in_exact_units
    known = {quantity for view in views for row in view.rows for quantity in row.total}
    average = len(views) == 1 and (views[0].step == -1 or views[0].view == "op")
    found = []
    for name in names:
        here = [by_name.get(name) for by_name in rows]
        values = {
            quantity: [0.0 if row is None or quantity not in row.total else take(row.total[quantity]) for row in here]
            for quantity in _QUANTITIES
            if quantity in known
        }
        inside = next((parent for parent in _scopes(name) if parent in names), "")
        ran = sum(row is not None for row in here)
        found.append(Series(name=name, values=values, ran=ran, steps=len(views), inside=inside, average=average))
    return found


def _scopes(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def statistics(values: Sequence[float]) -> tuple[float, float]:
    """(mean, coefficient of variation in percent); the deviation is that of the population, 0 / 0 is 0."""
    total = 0.0
    for value in values:
        total += value
    mean = total / len(values)
    squares = 0.0
    for value in values:
        squares += (value - mean) ** 2
    deviation = math.sqrt(squares / len(values))
    return mean, (deviation / mean * 100 if mean else 0.0)


def table(series: Sequence[Series], *, op_view: bool = False) -> Table:
    """Return one row per series. In an op view the name is the op itself."""
    rows = []
    for one in series:
        name, op = (one.name, one.name) if op_view else short_name(one.name)
        cells: dict[str, Cell] = {"name": name, "op": op}
        for quantity, values in one.values.items():
            mean, cv = statistics(values)
            cells[_MEANS[quantity]] = mean
            if not one.average:
                cells[_CVS[quantity]] = cv
        rows.append(cells)
    return Table(columns=COLUMNS, rows=rows)


def doubts(series: Sequence[Series]) -> Iterator[tuple[str, str]]:
    """Yield (kind, place) of the doubts about the rows."""
    for one in series:
        if one.ran < one.steps:
            yield "row that did not run in every step: it counts as 0 there", f"{one.name}: {one.ran} of {one.steps}"
        if one.inside:
            yield "row inside another shown row: a sum over all rows counts it twice", one.name


# -- TensorFlow's scope view as its own profiler writes it: lines, numbers, help (tfprof.md 4.6, 5) --------------------

_HELP = {
    "accelerator_micros": "accelerator execution time: Time spent executing on the accelerator. This is normally "
    "measured by the actual hardware library.",
    "bytes": "requested bytes: The memory requested by the operation, accumulatively.",
    "cpu_micros": "cpu execution time: The time from the start to the end of the operation. It's the sum of actual "
    "cpu run time plus the time that it spends waiting if part of computation is launched asynchronously.",
    "device": "device: which device is placed on.",
    "float_ops": "flops: Number of float operations. Note: Please read the implementation for the math behind it.",
    "input_shapes": "input shape: The shape of input tensors",
    "micros": "total execution time: Sum of accelerator execution time and cpu execution time.",
    "occurrence": "occurrence: The number of times it occurs",
    "op_types": "op_types: The attributes of the operation, includes the Kernel name device placed on and "
    "user-defined strings.",
    "output_bytes": "output bytes: The memory that is output from the operation (not necessarily allocated by the "
    "operation)",
    "params": "param: Number of parameters (in the Variable).",
    "peak_bytes": "peak bytes: The peak amount of memory that the operation is holding at some point.",
    "residual_bytes": "residual bytes: The memory not de-allocated after the operation finishes.",
}
_SCOPE_HELP = "scope: The nodes in the model graph are organized by their names, which is hierarchical like filesystem."
_TITLES = TITLES | {
    "device": "assigned devices",
    "op_types": "op types",
    "occurrence": "op count (run|defined)",
    "input_shapes": "input shapes",
}


def text(root: Shown, options: ScopeOptions, *, banner: bool = False) -> Iterator[str]:
    """Return the lines of the view as TensorFlow writes it to a file; with ``banner`` as it prints it to a console."""
    if banner:
        yield from _banner(options)
    yield f"\nDoc:\n{_SCOPE_HELP}\n"
    for name in sorted(options.select):
        for line in ("micros", "cpu_micros", "accelerator_micros") if name == "micros" else (name,):
            yield f"{_HELP[line]}\n"
    yield "\nProfile:\nnode name | " + " | ".join(_TITLES[name] for name in _printed(options.select)) + "\n"
    for row in (root, *flat(root)):
        yield _line(row, options)
    if banner:
        yield "\n======================End of Report==========================\n"


def _banner(options: ScopeOptions) -> Iterator[str]:
    minima: dict[str, int] = dict(options.minima)
    values: list[tuple[str, object]] = [
        ("max_depth", options.max_depth),
        *((f"min_{name}", minima.get(name, 0)) for name in (*MINIMA[2:-1], *MINIMA[:2], MINIMA[-1])),
        ("step", -1 if options.step is None else options.step),
        ("order_by", options.order_by),
        *((name, ",".join(getattr(options, name))) for name in options.__struct_fields__ if name.endswith("_regexes")),
        ("account_displayed_op_only", "true" if options.account_displayed_op_only else "false"),
        ("select", ",".join(sorted(options.select))),
        ("output", "stdout:"),
    ]
    yield "\n=========================Options=============================\n"
    for name, value in values:
        yield f"-{name:<27}{value}\n"
    yield "\n==================Model Analysis Report======================\n"


def _printed(select: Sequence[str]) -> list[str]:
    """Return the columns in the order in which TensorFlow prints them, whatever the order of ``select``."""
    shown = {*select} | ({"accelerator_micros", "cpu_micros"} if "micros" in select else set())
    return [name for name in _TITLES if name in shown]


def _line(row: Shown, options: ScopeOptions) -> str:
    fields: list[str] = []
    node = row.node
    for name in _printed(options.select):
        if name == "device":
            fields += [node.device] if node is not None and node.device else []
        elif name == "op_types":
            fields.append("|".join(sorted(set(node.op_types))) if node is not None else PARENT)
        elif name == "input_shapes":
            shapes = node.input_shapes if node is not None else ()
            fields.append("|".join(f"{slot}:{'x'.join(map(str, shape)) or 'unknown'}" for slot, shape in shapes))
        elif name == "occurrence":
            fields.append("|".join(_pair(row, quantity, count_text) for quantity in ("occurrence", "definitions")))
        elif name == "float_ops":
            fields.append(f"{_pair(row, name, count_text)} flops")
        elif name == "params":
            fields += ["x".join(map(str, node.shape))] if node is not None and node.shape else []
            fields.append(f"{_pair(row, name, count_text)} params")
        else:
            fields.append(_pair(row, name, memory_text if name.endswith("bytes") else time_text))
    return f"{'  ' * row.ancestors}{visible(row.name)} ({visible(', '.join(fields))})\n"


def _pair(row: Shown, quantity: str, form: Callable[[int], str]) -> str:
    at = PLACES[quantity]
    return f"{'--' if row.own is None else form(row.own[at])}/{form(row.total[at])}"


def _scaled(number: int, *units: str) -> str:
    """Format a number in the largest of ``units`` that it reaches; each unit is 1000 times the unit before."""
    power = sum(number >= 1000**power for power in range(1, len(units)))
    return f"{number / 1000**power:.2f}{units[power]}" if power else f"{number}{units[0]}"


def time_text(us: int) -> str:
    """Format a time as TensorFlow prints it (tfprof.md 4.6)."""
    return _scaled(us, "us", "ms", "sec")


def memory_text(size: int) -> str:
    """Format bytes as TensorFlow prints them, in decimal units."""
    return _scaled(size, "B", "KB", "MB")


def count_text(number: int) -> str:
    """Format a count as TensorFlow prints it: thousands k, millions m, billions b."""
    return _scaled(number, "", "k", "m", "b")
