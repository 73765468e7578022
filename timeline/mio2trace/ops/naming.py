"""The names of operations for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter

from mio2trace.ops.families import FAMILIES
from mio2trace.ops.families.conv import DEFAULT_LAYOUT
from mio2trace.ops.operation import Operation, OperationFacts
from mio2trace.ops.values import Shape, shape_text

_NAMES = {primitive: name for family in FAMILIES for primitive, name in family.names.items()}
_DIRECTIONS = {"forward": "fwd", "backward-data": "bwd data", "backward-weights": "bwd weights"}
_TWO_GRADIENTS = frozenset().union(*(family.two_gradients for family in FAMILIES))

_OF_NAME = attrgetter(
    "phase", "primitive", "direction", "input", "output", "weights", "window", "stride", "dilation", "groups"
)
_OF_PROBLEM = attrgetter(
    "primitive", "direction", "input", "output", "weights", "window", "stride", "dilation", "groups",
    "pad", "mode", "dtype", "layout",
)  # fmt: skip
_REMEMBERED = 1 << 12
_operation_names: dict[object, str] = {}
_problem_names: dict[object, str] = {}


def _once(names: dict[object, str], key: object, make: Callable[[OperationFacts], str], facts: OperationFacts) -> str:
    """Return a name, made once: a log may have a million operations of a few names. The memory for names is limited."""
    name = names.get(key)
    if name is None:
        if len(names) >= _REMEMBERED:
            names.clear()
        name = names[key] = make(facts)
    return name


def operation_name(operation: Operation) -> str:
    """Return ``Conv fwd 64x64x56x56 -> 64x256x56x56 k1x1``; the name of a search begins with ``Find``.

    The name is the same in every trace, table and query. k is the window, s the stride, d the dilation, g the groups;
    each is left out if it has its usual value. If the output is unknown, w is all of the weights.
    """
    return name_of(operation.facts)


def name_of(facts: OperationFacts) -> str:
    return _once(_operation_names, _OF_NAME(facts), _operation_name, facts)


def _operation_name(facts: OperationFacts) -> str:
    return " ".join([_type(facts), *_shapes(facts)])


def problem_name(operation: Operation) -> str:
    """Return its name, and the other properties that distinguish its problem, searched or run.

    p is the pad. The mode follows, then the data type unless it is float or unknown, then the layout unless it is the
    usual one.
    """
    return _once(_problem_names, _OF_PROBLEM(operation.facts), _problem_name, operation.facts)


def _problem_name(operation: OperationFacts) -> str:
    words = [_kind(operation), *_shapes(operation)]
    if any(operation.pad):
        words.append(f"p{_short(operation.pad)}")
    if operation.mode and operation.mode != "convolution":
        words.append(operation.mode)
    if operation.dtype not in (None, "float"):
        words.append(str(operation.dtype))
    if operation.layout and operation.layout != DEFAULT_LAYOUT.get(len(operation.input) - 2):
        words.append(operation.layout)
    return " ".join(words)


def primitive_name(primitive: str) -> str:
    """Return ``BatchNorm`` for ``bnorm``."""
    return _NAMES.get(primitive, primitive)


def operation_type(operation: Operation) -> str:
    """Return ``Conv fwd`` or ``Find Conv bwd weights``: the beginning of the names of similar operations."""
    return _type(operation.facts)


def _type(facts: OperationFacts) -> str:
    return f"Find {_kind(facts)}" if facts.phase == "find" else _kind(facts)


def _kind(operation: OperationFacts) -> str:
    kind = primitive_name(operation.primitive)
    if operation.direction is None:
        return kind
    direction = _DIRECTIONS[operation.direction]
    return f"{kind} {direction if operation.primitive in _TWO_GRADIENTS else direction.partition(' ')[0]}"


def _shapes(operation: OperationFacts) -> Iterator[str]:
    if operation.input:
        yield shape_text(operation.input)
        if operation.output and operation.output != operation.input:
            yield from ("->", shape_text(operation.output))
    is_conv = operation.primitive in _TWO_GRADIENTS
    window = operation.weights[2:] if is_conv else operation.window
    if is_conv and operation.weights and not operation.output:
        yield f"w{shape_text(operation.weights)}"
    elif window:
        yield f"k{shape_text(window)}"
    for letter, sizes in (("s", operation.stride), ("d", operation.dilation)):
        if any(size != 1 for size in sizes):
            yield letter + _short(sizes)
    if operation.groups is not None and operation.groups > 1:
        yield f"g{operation.groups}"


def _short(sizes: Shape) -> str:
    """Return one number for equal sizes."""
    return str(sizes[0]) if len(set(sizes)) == 1 else shape_text(sizes)
