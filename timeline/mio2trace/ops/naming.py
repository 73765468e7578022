"""What a person calls an operation."""

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
    """A log has a million operations of a few names: each is made once, in a long one perhaps again."""
    name = names.get(key)
    if name is None:
        if len(names) >= _REMEMBERED:
            names.clear()
        name = names[key] = make(facts)
    return name


def operation_name(operation: Operation) -> str:
    """``Conv fwd 64x64x56x56 -> 64x256x56x56 k1x1``; searches begin with ``Find``.

    The same in every trace, table and query. k is the window, s stride, d dilation, g groups, each left out where it is
    the usual one.
    """
    return name_of(operation.facts)


def name_of(facts: OperationFacts) -> str:
    return _once(_operation_names, _OF_NAME(facts), _operation_name, facts)


def _operation_name(facts: OperationFacts) -> str:
    return " ".join([_type(facts), *_shapes(facts)])


def problem_name(operation: Operation) -> str:
    """Return its name, and the other properties that distinguish its problem, searched or run.

    p is the pad; then the mode, the data type unless it is float or unknown, the layout unless it is the usual one.
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
    """``BatchNorm`` for ``bnorm``."""
    return _NAMES.get(primitive, primitive)


def operation_type(operation: Operation) -> str:
    """``Conv fwd``, ``Find Conv bwd weights``: what the names of like operations begin with."""
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
    window = operation.weights[2:] if operation.primitive in _TWO_GRADIENTS else operation.window
    if window:
        yield f"k{shape_text(window)}"
    for letter, sizes in (("s", operation.stride), ("d", operation.dilation)):
        if any(size != 1 for size in sizes):
            yield letter + _short(sizes)
    if operation.groups is not None and operation.groups > 1:
        yield f"g{operation.groups}"


def _short(sizes: Shape) -> str:
    """Equal sizes as one."""
    return str(sizes[0]) if len(set(sizes)) == 1 else shape_text(sizes)
