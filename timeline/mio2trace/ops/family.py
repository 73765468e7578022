"""The description of a family of problems: how API calls and driver commands state them, and what people call them.

A family is one module of `mio2trace.ops.families` with its problem classes and a `Family`, and one line in that
package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from mio2trace.model.miopen import OperationDirection
from mio2trace.ops import values
from mio2trace.ops.operation import Phase
from mio2trace.ops.problem import Problem
from mio2trace.ops.values import Shape, Tensor

Params = Mapping[str, str]

FORWARD: OperationDirection = "forward"
DATA: OperationDirection = "backward-data"
WEIGHTS: OperationDirection = "backward-weights"
DIRECTIONS = FORWARD, DATA, WEIGHTS
_TWO_WAYS: dict[str, OperationDirection] = {"1": FORWARD, "2": DATA, "0": DATA}
_THREE_WAYS: dict[str, OperationDirection] = {"1": FORWARD, "2": DATA, "4": WEIGHTS}


# API calls


Read = Callable[[Params, "Op"], Problem | None]


class Op(msgspec.Struct, frozen=True):
    """An API call. ``read`` makes the problem from its parameters; None if they do not contain it. ``names``: parameter
    names in the order that ``read`` needs."""

    api: str
    primitive: str
    direction: OperationDirection | None
    phase: Phase
    read: Read
    names: tuple[str, ...]


def ops(
    apis: str, primitive: str, read: Read, names: str = "", direction: OperationDirection | None = None
) -> tuple[Op, ...]:
    """Return the rows of these API names, which are without ``miopen``. ``direction``: None if the names show it."""
    return tuple(
        Op(f"miopen{api}", primitive, direction or direction_in(api), "find" if api.startswith("Find") else "run", read,
           tuple(names.split()))
        for api in apis.split()
    )  # fmt: skip


_DIRECTIONS: tuple[tuple[str, OperationDirection], ...] = (
    ("BackwardWeights", WEIGHTS), ("BackwardBias", WEIGHTS), ("Backward", DATA), ("Forward", FORWARD),
)  # fmt: skip


def direction_in(function: str) -> OperationDirection | None:
    """Return the direction in the name of a function."""
    return next((direction for part, direction in _DIRECTIONS if part in function), None)


def tensor(params: Params, *names: str) -> Tensor | None:
    """Return the first of the parameters that is a tensor."""
    for name in names:
        stated = values.tensor(params.get(name, ""))
        if stated is not None:
            return stated
    return None


def lengths(params: Params, *names: str) -> Shape:
    """Return the lengths of the first of the parameters that is a tensor; () if none is."""
    stated = tensor(params, *names)
    return stated.lengths if stated is not None else ()


def is_given(params: Params, *names: str) -> bool | None:
    """Return whether the first existing one of the parameters is a buffer; None if none exists (cut off)."""
    for name in names:
        text = params.get(name)
        if text is not None:
            return values.pointer(text) != 0
    return None


# Driver commands


class Line(msgspec.Struct, frozen=True):
    """A command: its word as printed, without the type; its flags in order; the type; the function that printed it.

    ``by_tag``: the direction in the name of that function.
    """

    word: str
    name: str
    flags: dict[str, str]
    dtype: str | None
    tag: str
    by_tag: OperationDirection | None

    @property
    def stated_way(self) -> OperationDirection | None:
        """Forward or backward, as the text states it. In a command that a person wrote, 0 means both."""
        return self._way(self.flags.get("F", ""))

    def two_ways(self, flag: str = "F") -> OperationDirection | None:
        """Return the direction for a primitive with one backward pass: before 2.3 that of the function."""
        return self._way(self.flags.get(flag, self.flags.get("F", ""))) or self.by_tag

    def _way(self, text: str) -> OperationDirection | None:
        return None if text == "0" and not self.tag else _TWO_WAYS.get(text)

    def three_ways(self) -> OperationDirection | None:
        """Return the direction for a primitive with gradients of data and of weights."""
        return _THREE_WAYS.get(self.flags.get("F", ""))

    @property
    def ends(self) -> bool:
        """Whether the end of the command is present, for words that end with ``-t 1`` in all versions."""
        return not self.tag or "t" in self.flags

    @property
    def shape(self) -> Shape:
        """The shape that the common flags state."""
        whole = self.flags.get("input", self.flags.get("X", "")).partition(",")[0].split("x")
        if len(whole) > 1 and all(map(str.isdecimal, whole)):
            return tuple(map(int, whole))
        return tuple(int(text) for name in "ncDHW" if (text := self.flags.get(name, "")).isdecimal())

    def integers(self, names: str) -> Shape:
        """Return the values of flags. Raises KeyError or ValueError."""
        return tuple(int(self.flags[name]) for name in names.split())


class Word(msgspec.Struct, frozen=True):
    """A driver's base word. ``read`` makes the problem; it returns None, or raises KeyError or ValueError, if the flags
    do not contain it.

    ``options``: None for a word whose options are not known one by one; no command with it is offered. ``names``: the
    other names of options that this word alone gives another meaning.
    """

    read: Callable[[Line], Problem | None]
    primitive: str
    options: Options | None = None
    names: Mapping[str, str] = {}


# Families


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A family. ``ops``: its API calls. ``words``: the driver's base words. ``names``: what people call its primitives.

    ``invoked``: the beginnings of the names of its algorithms in level lines, with the primitive. ``find_2``: parts
    of the names of its tensors in Find 2.0, with the primitive.
    """

    ops: tuple[Op, ...] = ()
    words: Mapping[str, Word] = {}
    names: Mapping[str, str] = {}
    two_gradients: frozenset[str] = frozenset()
    """Primitives whose backward pass has two calls, one for the data and one for the weights."""
    invoked: tuple[tuple[str, str], ...] = ()
    find_2: tuple[tuple[str, str], ...] = ()


# ----------------------------------------------------------------------------------------------------------------------
# What the value of a MIOpenDriver option can be, and the options that several base words have (miopen-log.md 7)
#
# Digits are ASCII's: the driver's atoi and atof take no others.

INTEGER = r"-?[0-9]{1,18}"
PATH = r"[A-Za-z0-9_./~:-]{1,255}|\((?:path|user|host)\)"  # in brackets: a replaced private text
ANY = r"[A-Za-z0-9_.,:+-]{1,255}"
_KINDS = {
    "integer": INTEGER,
    "size": r"[0-9]{1,18}",
    "decimal": r"[-+]?(?:(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,4})?|nan|inf)",
    "list": r"[0-9]{1,18}(?:,[0-9]{1,18}){0,1023}",
    "dimensions": r"[0-9]{1,18}(?:,[0-9]{1,18}){0,15}",
    "shape": r"[0-9]{1,18}(?:x[0-9]{1,18}){0,7}(?:,(?:[0-9]{1,18}(?:x[0-9]{1,18}){0,7}|[NCDHW]{3,5}))?",
    "layout": r"N(?:CHW|HWC|CDHW|DHWC|CW|WC)|NCHWc[48]|CHWNc?[48]?",
    "type": r"fp(?:8|16|32|64)|bfp(?:8|16)|int8",
    "path": PATH,
}

Options = Mapping[str, str]
"""Short names, and a regular expression for the whole value of each."""


def options(**names: str) -> dict[str, str]:
    """Return options, by the kind of their values."""
    return {name: _KINDS[kind] for kind, of_kind in names.items() for name in of_kind.split()}


SIZES = options(size="n c D H W", integer="t V i w F forw")
SCALING = options(decimal="A B G")
LAYOUTS = options(layout="in_layout fil_layout out_layout layout")
