"""The interface of every problem: shapes, equivalent GEMM, work, traffic, driver command, a check of the shapes. The
description of a family of problems: how API calls and driver commands state them, and what people call them.

A family is one module of `mio2trace.ops.families` with its problem classes and a `Family`, and one line in that
package.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import msgspec

from mio2trace.model.choices import Gemm
from mio2trace.model.miopen import OperationDirection
from mio2trace.ops import values
from mio2trace.ops.values import DTYPE_BYTES, Shape, Tensor, product

if TYPE_CHECKING:
    from mio2trace.ops.families.gemm import Blas

Form = Literal["1.2", "1.7", "2.0", "2.1", "2.3", "5.4", "6.3", "newest"]
"""The form of a version's commands (miopen-log.md 7): MIOpen 1.2-1.6, 1.7-1.8, 2.0, 2.1-2.2, 2.3 to ROCm 5.3, ROCm 5.4
to 6.2, 6.3 to 6.x, 2025 and later."""

Phase = Literal["find", "run"]
FORMS: tuple[Form, ...] = ("1.2", "1.7", "2.0", "2.1", "2.3", "5.4", "6.3", "newest")
BEFORE_2_3 = FORMS[:4]


class CommandError(ValueError):
    """The problem has no driver command; the message gives the reason."""


class Geometry(msgspec.Struct, frozen=True, gc=False):
    """How a window moves over the input, per spatial dimension; () and None without a window."""

    pad: Shape = ()
    stride: Shape = ()
    dilation: Shape = ()
    groups: int | None = None
    window: Shape = ()
    """For a window without weights of its size."""


_NO_GEOMETRY = Geometry()


class Problem(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The problem of a call, from any record. ``dtype``: of the input, None if unknown. ``x``, ``w``, ``y``: shapes of
    input, weights and output."""

    told_by_commands: ClassVar[tuple[str, ...]] = ()
    """Fields that a call's command states and its entry does not."""
    told_where_cut_off: ClassVar[tuple[str, ...]] = ()
    """Fields that a command also states; in an entry they are None if they are after the sixteenth parameter."""

    is_shaped: ClassVar[bool] = True
    """Whether more than the direction is known."""
    without_command: ClassVar[str] = ""
    """Why no problem of this kind has a command."""

    direction: OperationDirection | None = None
    dtype: str | None = None
    x: Shape = ()
    w: Shape = ()
    y: Shape = ()

    # Its kind and its shapes

    @property
    def primitive(self) -> str:
        """``conv``, ``pool``, ``bnorm``, ..."""
        raise NotImplementedError

    @property
    def input(self) -> Shape:
        return self.x

    @property
    def weights(self) -> Shape:
        return self.w

    @property
    def output(self) -> Shape:
        return self.y

    @property
    def geometry(self) -> Geometry:
        return _NO_GEOMETRY

    @property
    def variant(self) -> str | None:
        """The mode of the primitive, in the field's usual words."""
        return None

    @property
    def memory_layout(self) -> str | None:
        """The layout of the input, such as ``NCHW``; None if unknown."""
        return None

    @property
    def keeps_statistics(self) -> bool:
        """Whether it is a batch norm in training."""
        return False

    def database_key(self) -> str | None:
        """The key of the problem in MIOpen's databases; None if it has none, or if its type is unknown."""
        return None

    def gemm_count(self, nulls: Collection[str]) -> int:
        """Return the number of GEMMs that the call launches one after another, each with its following kernels; 1 if
        unknown.

        ``nulls``: the buffers that the call's entry states to be null.
        """
        return 1

    def step_elements(self) -> Collection[int]:
        """The possible numbers of elements of an activation within one step of the call; empty if unknown."""
        return ()

    def gemm(self) -> Gemm | None:
        """The equivalent GEMM; None if there is no single one."""
        return None

    def flop(self) -> int | None:
        """Floating-point operations (docs/operations.md); None if there is no agreed number."""
        return None

    def elements_moved(self) -> int | None:
        """Elements that are read and written if each tensor is touched once."""
        return None

    def bytes_min(self) -> int | None:
        """Least memory traffic in bytes; None if the data type is unknown."""
        moved = self.elements_moved()
        size = DTYPE_BYTES.get(self.dtype or "")
        return None if moved is None or size is None else moved * size

    def command(self, form: Form = "newest") -> str:
        """Return the MIOpenDriver command in ``form``, from the base word on. Raises `CommandError`."""
        raise CommandError(self.without_command or f"the driver's options for {self.primitive} are not covered")

    @property
    def collective(self) -> str:
        """The kind of a collective (``allreduce``); empty for any other problem."""
        return ""

    def message_bytes(self) -> int | None:
        """Bytes of a collective's message; None for any other problem."""
        return None

    def members(self) -> int | None:
        """The number of ranks of a collective's group; None for any other problem."""
        return None

    def bus_factor(self) -> float | None:
        """Bus bandwidth of a collective divided by its algorithm bandwidth."""
        return None

    @property
    def blas(self) -> Blas | None:
        """The request to a BLAS library, whose bench can run it; None if no such library computes it."""
        return None

    def check(self) -> str:
        """Return a contradiction in the shapes; empty if there is none."""
        return ""

    # Joining the records of a log

    @property
    def runs_other_gradient(self) -> bool:
        """Whether its forward pass runs the kernels of the data gradient, and its data gradient those of the forward
        pass."""
        return False

    @property
    def solver_number(self) -> int | None:
        """The solver's id in a command."""
        return None

    @property
    def plan_kernel(self) -> str | None:
        """The kernel of the fusion plan that the call executes; empty if unknown; None for a problem without a plan."""
        return None

    def planned(
        self, parts: tuple[str, ...], conv: tuple[str, str], bn_mode: int | None, activation: int | None
    ) -> Problem:
        """Return the problem with the operators of its plan, in order. ``conv``: weights and descriptor of its
        convolution, as printed."""
        return self

    def typed(self, dtype: str | None) -> Self:
        """Return the problem with a data type."""
        return msgspec.structs.replace(self, dtype=dtype)

    def of_way(self, direction: OperationDirection) -> Self:
        """Return the problem of one direction, of a command that runs several."""
        return msgspec.structs.replace(self, direction=direction)

    def may_print(self, primitive: str) -> bool:
        """Return whether a call of the primitive may print the command of this problem."""
        return self.primitive == primitive

    def fits(self, entry: Problem) -> bool:
        """Return whether this problem of a command fits an entry's problem, as far as both are known."""
        return not entry.input or not self.input or four_lengths(entry.input) == four_lengths(self.input)

    def with_command(self, command: Problem) -> Problem:
        """Return this problem of an entry with the values that only the call's command has."""
        if type(command) is not type(self):
            return self
        missing = [name for name in self.told_where_cut_off if getattr(self, name) is None]
        told = {name: getattr(command, name) for name in (*self.told_by_commands, *missing)}
        return msgspec.structs.replace(self, **told)

    def immediate(self) -> Problem:
        """Return the problem as its command shows it if the call names a solution."""
        return self

    def searched(self, dtype: str | None) -> tuple[Problem, ...]:
        """Return keys for a search for its solver, the most specific first: not every record has type and layout.

        () for a problem that is never searched.
        """
        return ()


class DirectionOnly(Problem, frozen=True, kw_only=True, gc=False):
    """A convolution of which only the direction is known so far."""

    primitive: ClassVar[str] = "conv"
    is_shaped: ClassVar[bool] = False
    without_command: ClassVar[str] = "the log does not show the shapes"


class SameShapeProblem(Problem, frozen=True, kw_only=True, gc=False):
    """A problem whose output has the shape of its input."""

    @property
    def output(self) -> Shape:
        return self.x

    def per_element(self, forward: int, backward: int) -> int | None:
        """Return these FLOPs per element, by direction; None if direction or shape is unknown."""
        elements = work(self.x)
        if elements is None or self.direction is None:
            return None
        return elements * (forward if self.direction == "forward" else backward)

    def elements_moved(self) -> int | None:
        """Forward: x, y. Backward: one of x and y, dy, dx."""
        return self.per_element(2, 3)


def base_word(word: str, dtype: str | None, has: tuple[str, ...] = ("half",)) -> str:
    """Return the driver's base word: ``conv`` for float, ``convfp16`` and so on. Raises `CommandError` for a type that
    it lacks."""
    suffix = {None: "", "float": "", "half": "fp16", "bfloat16": "bfp16", "int8": "int8"}.get(dtype)
    if suffix is None or (suffix and dtype not in has):
        raise CommandError(f"the driver has no {word} for {dtype}")
    return word + suffix


def way_flag(direction: OperationDirection | None) -> int:
    """Return 1 for forward, 2 for backward. Raises `CommandError` for an unknown direction."""
    if direction is None:
        raise CommandError("the direction is unknown")
    return 1 if direction == "forward" else 2


def nchw(shape: Shape, word: str) -> str:
    """Return ``-n 1 -c 3 -H 8 -W 8`` for a driver with four lengths only; missing trailing lengths are 1."""
    if not 1 <= len(shape) <= 4 or 0 in shape:
        raise CommandError(f"the driver's {word} takes 4 lengths, not {len(shape)}")
    n, c, h, w = four_lengths(shape)
    return f"-n {n} -c {c} -H {h} -W {w}"


def four_lengths(shape: Shape) -> Shape:
    """Return four lengths as a driver prints them; missing ones are 1."""
    return (*shape, 1, 1, 1, 1)[:4] if len(shape) < 4 else shape


def work(shape: Shape) -> int | None:
    """Return the number of elements of a shape; None if unknown."""
    return product(shape) if shape else None


Params = Mapping[str, str]

FORWARD: OperationDirection = "forward"
DATA: OperationDirection = "backward-data"
WEIGHTS: OperationDirection = "backward-weights"
DIRECTIONS = FORWARD, DATA, WEIGHTS
_TWO_WAYS: dict[str, OperationDirection] = {"1": FORWARD, "2": DATA, "0": DATA}
_THREE_WAYS: dict[str, OperationDirection] = {"1": FORWARD, "2": DATA, "4": WEIGHTS}
_WITH_TWO_GRADIENTS, _WITH_ONE_GRADIENT = ("conv", "rnn", "rnn_seq"), ("pool", "activ", "softmax", "lrn")
"""Base words whose ``-F`` chooses the directions: by bits, or 1 or 2; 0, the default, is all of them."""


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
    def ways(self) -> tuple[OperationDirection, ...]:
        """The directions that the driver runs one after another with a command that a person wrote, if several."""
        given = self.flags.get("F", self.flags.get("forw", "0"))
        if self.tag or not given.isdecimal():
            return ()
        if self.name in _WITH_TWO_GRADIENTS:
            bits = int(given) or sum(map(int, _THREE_WAYS))
            found = tuple(direction for bit, direction in _THREE_WAYS.items() if bits & int(bit))
            return found if len(found) > 1 else ()
        return (FORWARD, DATA) if given == "0" and self.name in _WITH_ONE_GRADIENT else ()

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
# The possible values of a MIOpenDriver option, and the options that several base words have (miopen-log.md 7)
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
    "lengths": r"[0-9]{1,18}(?:x[0-9]{1,18}){0,15}",
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


SIZES = options(size="n c D H W", integer="t V i w F forw gpubuffer_check")
SCALING = options(decimal="A B G")
LAYOUTS = options(layout="in_layout fil_layout out_layout layout")
