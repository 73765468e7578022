"""Operations on the elements of tensors: activation and softmax (miopen-log.md 4.6, 5.3); arithmetic, bias, reductions
(5.1, 5.4). Also all operations that have shapes, but neither an agreed number of FLOPs nor a family of their own."""

from __future__ import annotations

from typing import Any, ClassVar

from mio2trace.ops import values
from mio2trace.ops.problem import (
    BEFORE_2_3,
    FORWARD,
    SCALING,
    SIZES,
    CommandError,
    Family,
    Form,
    Line,
    Op,
    Params,
    Problem,
    SameShapeProblem,
    Word,
    base_word,
    four_lengths,
    lengths,
    nchw,
    ops,
    options,
    way_flag,
    work,
)
from mio2trace.ops.values import DTYPE_BYTES, TENSOR_OPS, Shape, product

# -- Activation, y = f(x), and softmax over channels or the whole instance ---------------------------------------------


class ActivProblem(SameShapeProblem, frozen=True, kw_only=True, gc=False):
    """``mode``: the number of the activation. Values keep their text."""

    primitive: ClassVar[str] = "activ"

    mode: int = 0
    alpha: str = ""
    beta: str = ""
    gamma: str = ""

    @property
    def variant(self) -> str | None:
        return values.ACTIVATIONS[self.mode].lower() if 0 <= self.mode < len(values.ACTIVATIONS) else None

    def flop(self) -> int | None:
        """1 per element for any function; 2 for the gradient, which also multiplies by dy."""
        return self.per_element(1, 2)

    def command(self, form: Form = "newest") -> str:
        if form in BEFORE_2_3:
            raise CommandError("activations printed nothing before 2.3")
        if self.direction is None or not self.alpha:
            raise CommandError("the log does not show the descriptor")
        way, word, sizes = way_flag(self.direction), base_word("activ", self.dtype), nchw(self.x, "activ")
        return f"{word} {sizes} -m {self.mode} --forw {way} -A {self.alpha} -B {self.beta} -G {self.gamma}"


def _activ_from_entry(params: Params, op: Op) -> Problem | None:
    x, stated = lengths(params, "xDesc", "yDesc", "dyDesc"), values.activ_descriptor(params.get("activDesc", ""))
    return ActivProblem(direction=op.direction, x=x, **stated) if x else None


def _activ_from_command(line: Line) -> ActivProblem:
    """``-m mode --forw 1|2 -A -B -G``."""
    alpha, beta, gamma = (line.flags.get(name, "") for name in "ABG")
    return ActivProblem(
        direction=line.two_ways("forw"), dtype=line.dtype, x=line.integers("n c H W"), mode=int(line.flags["m"]),
        alpha=alpha, beta=beta, gamma=gamma,
    )  # fmt: skip


class SoftmaxProblem(SameShapeProblem, frozen=True, kw_only=True, gc=False):
    """``algorithm``: 0 fast, 1 accurate, 2 log. ``mode``: 0 instance, 1 channel. alpha, beta: only of commands.
    ``types``: of the tensors that are read, then of the result, if they differ."""

    primitive: ClassVar[str] = "softmax"
    told_by_commands: ClassVar[tuple[str, ...]] = ("alpha", "beta")

    algorithm: int = 1
    mode: int = 1
    alpha: str = ""
    beta: str = ""
    types: tuple[str, ...] = ()

    @property
    def variant(self) -> str | None:
        return ("fast", "accurate", "log")[self.algorithm] if 0 <= self.algorithm < 3 else None

    def flop(self) -> int | None:
        """Per element: maximum, subtract, exponential, add, divide; the gradient: multiply, add, subtract, multiply."""
        return self.per_element(5, 4)

    def bytes_min(self) -> int | None:
        sizes = [DTYPE_BYTES[one] for one in self.types if one in DTYPE_BYTES]
        if len(sizes) < len(self.types):
            return None
        return product(self.x) * sum(sizes) if sizes else super().bytes_min()

    def command(self, form: Form = "newest") -> str:
        if form in BEFORE_2_3:
            raise CommandError("softmax printed nothing before 2.3")
        way, word, sizes = way_flag(self.direction), base_word("softmax", self.dtype), nchw(self.x, "softmax")
        # The entry has pointers for alpha and beta, so the driver uses its defaults 1 and 0.
        scaling = f" -A {self.alpha} -B {self.beta}" if self.alpha and self.beta else ""
        return f"{word} {sizes} -F {way} -a {self.algorithm} -m {self.mode}{scaling}"


def _softmax_from_entry(params: Params, op: Op) -> Problem | None:
    x = lengths(params, "xDesc", "yDesc", "dxDesc")
    numbers = ((name, values.number(params.get(name))) for name in ("algorithm", "mode"))
    stated: dict[str, Any] = {name: number for name, number in numbers if number is not None}
    return SoftmaxProblem(direction=op.direction, x=x, **stated) if x else None


def _softmax_from_command(line: Line) -> SoftmaxProblem:
    """``-F 1|2 -a algorithm -m mode [-A alpha -B beta]``."""
    algorithm, mode = (int(line.flags.get(name, "1")) for name in "am")
    return SoftmaxProblem(
        direction=line.two_ways(), dtype=line.dtype, x=line.integers("n c H W"), algorithm=algorithm, mode=mode,
        alpha=line.flags.get("A", ""), beta=line.flags.get("B", ""),
    )  # fmt: skip


# -- Tensor arithmetic (set, scale, copy, c = op(a, b) + beta c), a bias as a call of its own, reductions --------------


_OF_ONE = {"set": "settensor", "scale": "scaletensor", "copy": "transformtensor"}
_PRIMITIVES = frozenset((*_OF_ONE.values(), "optensor"))
_CODES = ("set", "scale", *TENSOR_OPS)
"""In the order of the driver's numbers."""


def _broadcasts(shape: Shape, to: Shape) -> bool:
    """Return whether each length is 1 or that of ``to``; True if that is not known."""
    return not shape or len(shape) != len(to) or all(n in (1, m) for n, m in zip(shape, to, strict=True))


class OpTensorProblem(Problem, frozen=True, kw_only=True, gc=False):
    """``op``: ``set``, ``scale`` or ``copy`` on x and y, or ``add``, ``mul``, ``min``, ``max``: y = op(x, w) + beta y.

    ``scaling``: -A, -B, -G (or -v) if a command states them; entries have only pointers.
    """

    told_by_commands: ClassVar[tuple[str, ...]] = ("scaling",)

    op: str
    scaling: tuple[tuple[str, str], ...] = ()

    @property
    def primitive(self) -> str:
        return _OF_ONE.get(self.op, "optensor")

    @property
    def output(self) -> Shape:
        return self.y or self.x

    @property
    def variant(self) -> str:
        return self.op

    def check(self) -> str:
        return "" if _broadcasts(self.w, self.y) else "the second operand does not broadcast to the result"

    def flop(self) -> int | None:
        """1 per element of the result; none for set and copy."""
        elements = work(self.output)
        return 0 if elements is not None and self.op in ("set", "copy") else elements

    def elements_moved(self) -> int | None:
        elements = work(self.output)
        if elements is None:
            return None
        if self.op == "set":
            return elements
        return elements + product(self.x) + (work(self.w) or 0)

    def command(self, form: Form = "newest") -> str:
        if form in BEFORE_2_3:
            raise CommandError("tensor operations printed nothing before 2.3")
        if form == "newest":
            if self.op == "copy":
                raise CommandError("the driver has no tensor copy")
            if self.dtype not in (None, "float"):
                raise CommandError(f"the driver's tensorop is for float, not {self.dtype}")
            if self.w and not self.x == self.w == self.y:
                raise CommandError("the driver's tensorop takes three tensors of one shape")
        word = base_word("tensorop", self.dtype)
        if self.op not in (*_CODES, "copy"):
            raise CommandError(f"tensor operation {self.op}")
        code = _CODES.index("add" if self.op == "copy" else self.op)  # the log shows a copy as an addition
        before = "".join(f" -{name} {value}" for name, value in self.scaling if name != "v")
        after = "".join(f" -{name} {value}" for name, value in self.scaling if name == "v")
        return f"{word}{before} {nchw(self.x, 'tensorop')} -o {code}{after}"

    def may_print(self, primitive: str) -> bool:
        """The driver has one word for all of these primitives."""
        return primitive in _PRIMITIVES

    def fits(self, entry: Problem) -> bool:
        """Compare the input or the result."""
        return not entry.input or self.x in (four_lengths(entry.input), four_lengths(entry.output))


class BiasProblem(Problem, frozen=True, kw_only=True, gc=False):
    """The bias of a convolution: y += w, or dw = sum of dy; w is <1, k, 1, 1>, x is y."""

    primitive: ClassVar[str] = "bias"
    without_command: ClassVar[str] = "the driver runs a bias only as part of a convolution or fusion"

    def check(self) -> str:
        if self.w and len(self.y) > 1 and product(self.w) != self.y[1]:
            return "the bias does not have one value per channel"
        return ""

    def flop(self) -> int | None:
        return work(self.y)

    def elements_moved(self) -> int | None:
        elements = work(self.y)
        return None if elements is None else elements * (2 if self.direction == "forward" else 1) + product(self.w)


def _of_two(params: Params, op: Op) -> Problem | None:
    x, w, y = (lengths(params, name) for name in ("aDesc", "bDesc", "cDesc"))
    number = values.number(params.get("tensorOp"))
    if not x or number is None or not 0 <= number < len(TENSOR_OPS):
        return None
    return OpTensorProblem(op=TENSOR_OPS[number], x=x, w=w, y=y)


def _of_one(params: Params, op: Op) -> Problem | None:
    """``names``: the operation, then the input and the result."""
    x, y = lengths(params, op.names[1]), lengths(params, op.names[-1])
    return OpTensorProblem(op=op.names[0], x=x, y=y) if x else None


def _of_bias(params: Params, op: Op) -> Problem | None:
    y = lengths(params, op.names[0])
    return BiasProblem(direction=op.direction, x=y, w=lengths(params, op.names[1]), y=y) if y else None


def _tensor_from_command(line: Line) -> OpTensorProblem | None:
    """``[-A a1 -B a2 -G beta] -n -c -H -W -o code [-v value]``: one shape for all (the first operand's)."""
    x, code = line.integers("n c H W"), int(line.flags["o"])
    if not 0 <= code < len(_CODES):
        return None
    scaling = tuple((name, line.flags[name]) for name in ("A", "B", "G", "v") if name in line.flags)
    return OpTensorProblem(dtype=line.dtype, op=_CODES[code], x=x, scaling=scaling)


class ReduceProblem(Problem, frozen=True, kw_only=True, gc=False):
    """x reduced to y: dimensions that are 1 in y but not in x are reduced. ``flags``: the options of a command beside
    the shapes; entries have only pointers for alpha and beta."""

    told_by_commands: ClassVar[tuple[str, ...]] = ("flags",)

    primitive: str = "reduce"
    flags: tuple[tuple[str, str], ...] = ()

    def check(self) -> str:
        return "" if _broadcasts(self.y, self.x) else "the result is no reduction of the input"

    def flop(self) -> int | None:
        """1 per element of the input."""
        return work(self.x)

    def elements_moved(self) -> int | None:
        elements = work(self.x)
        return None if elements is None else elements + (work(self.y) or 0)

    def command(self, form: Form = "newest") -> str:
        if self.primitive != "reduce":
            return super().command(form)
        if not self.flags:
            raise CommandError("the entry has no values for alpha and beta, and the driver needs them")
        reduced = [str(at) for at, (length, left) in enumerate(zip(self.x, self.y, strict=True)) if length != left]
        if not reduced:
            raise CommandError("no dimension is reduced")
        word = (_DRIVER_WORDS if form == "newest" else _LOG_WORDS).get(self.dtype or "float")
        if word is None:
            raise CommandError(f"the driver has no reduce for {self.dtype}")
        options = {**dict(self.flags), "D": ",".join(map(str, self.x)), "R": ",".join(reduced)}
        return " ".join([word, *(f"-{name} {value}" for name, value in sorted(options.items()))])


def _reduce_from_entry(params: Params, op: Op) -> Problem | None:
    x, y = lengths(params, *op.names[:2]), lengths(params, *op.names[2:])
    return ReduceProblem(primitive=op.primitive, x=x, y=y) if x else None


def _reduce_from_command(line: Line) -> Problem | None:
    """``-D lengths -R dimensions [-O operation]``; without these flags, the shape that the common flags state."""
    flags = line.flags
    if "D" not in flags or "R" not in flags:
        return _any_from_command(line) if line.name not in _TYPES else None
    shape, dimensions = values.integers(flags["D"]), values.integers(flags["R"])
    return ReduceProblem(
        flags=tuple((name, flags[name]) for name in "ABCINO" if name in flags),
        dtype=_TYPES.get(line.word, line.dtype),
        x=shape,
        y=tuple(1 if at in dimensions else length for at, length in enumerate(shape)),
    )


_TYPES = {"reduceint": "int32", "reducefp": "float"}
"""Types of the base words that have a suffix of their own."""
_DRIVER_WORDS = {"float": "reduce", "half": "reducefp16", "double": "reducefp64"}
_LOG_WORDS = _DRIVER_WORDS | {
    "float": "reducefp", "bfloat16": "reducebfp16", "int32": "reduceint", "int8": "reduceint8",
}  # fmt: skip


# -- All others: losses, optimisers, indexing, dropout, CTC, GLU, RoPE, PReLU ------------------------------------------


class GenericProblem(Problem, frozen=True, kw_only=True, gc=False):
    """A problem with shapes but without agreed FLOPs: losses, optimisers, indexing, dropout, CTC, GLU, RoPE, PReLU."""

    primitive: str
    flags: tuple[tuple[str, str], ...] = ()

    def elements_moved(self) -> int | None:
        return 2 * product(self.x) if self.primitive == "dropout" and self.x else None


def _any_from_entry(params: Params, op: Op) -> Problem | None:
    """Make the problem of an entry. ``names``: input and output."""
    return GenericProblem(
        direction=op.direction, primitive=op.primitive, x=lengths(params, *op.names[:1]),
        y=lengths(params, *op.names[1:]),
    )  # fmt: skip


def _any_from_command(line: Line) -> GenericProblem:
    """Read the shape if the common flags state it; the rest stays as printed."""
    x = line.shape
    return GenericProblem(
        direction=line.stated_way,
        dtype=line.dtype if line.name != "ctc" else None,
        primitive=line.name,
        x=x if len(x) > 1 and line.name != "ctc" else (),  # their -c is the number of classes minus 1
        flags=tuple(line.flags.items()),
    )


class OptimiserProblem(GenericProblem, frozen=True, kw_only=True, gc=False):
    """A step of an optimiser. ``word``: the base word without a type, such as ampadamw; only a command states it."""

    told_by_commands: ClassVar[tuple[str, ...]] = ("word", "flags")
    word: str = ""

    def command(self, form: Form = "newest") -> str:
        if not self.word:
            raise CommandError("the entry does not show the kind of optimiser and its values")
        if self.dtype == "half" and "amp" in self.word:
            raise CommandError(f"the driver has no {self.word} for half")
        word = self.word + ("fp16" if self.dtype == "half" else "")
        return " ".join([word, *(f"-{name} {value}" for name, value in self.flags)])


def _optimiser_from_entry(params: Params, op: Op) -> Problem | None:
    x = lengths(params, *op.names)
    return OptimiserProblem(primitive=op.primitive, x=x, y=x)


def _optimiser_from_command(line: Line) -> Problem:
    """``-d 64x32x128``: the lengths of the parameters, which are input and output."""
    x = tuple(map(int, line.flags["d"].split("x"))) if "d" in line.flags else ()
    flags = tuple(line.flags.items())
    return OptimiserProblem(primitive="adam", word=line.name, dtype=line.dtype, x=x, y=x, flags=flags)


_WORDS = (
    "ctc", "dropout", "cat", "getitem", "kthvalue", "prelu", "rope", "glu", "softmarginloss", "multimarginloss", "sum",
    "argmax", "gemm",
)  # fmt: skip
_ADAM = options(lengths="d", decimal="l 1 2 e W", integer="F s f i V t w")
_OPTIMISERS = {
    **dict.fromkeys(("adam", "adamw", "ampadam", "ampadamw"), _ADAM | options(integer="a m")),
    **dict.fromkeys(("transformersadamw", "transformersampadamw"), _ADAM | options(integer="c")),
}
_OPTIMISER_NAMES = {
    "dims": "d", "lr": "l", "beta1": "1", "beta2": "2", "eps": "e", "weight_decay": "W", "amsgrad": "a",
    "maximize": "m", "correct_bias": "c", "scale": "s", "found_inf": "f", "forw": "F",
}  # fmt: skip


_REDUCE_OPTIONS = SIZES | SCALING | options(dimensions="D R", integer="C I N O o", path="d")
_REDUCE_NAMES = {
    "DimLengths": "D", "DimsToReduce": "R", "ReduceOp": "O", "CompType": "C", "NanPropagation": "N", "IndicesUsed": "I",
    "in_data": "d",
}  # fmt: skip
FAMILY = Family(
    ops=(
        *ops("ActivationForward ActivationBackward", "activ", _activ_from_entry),
        *ops("SoftmaxForward SoftmaxBackward SoftmaxForward_V2 SoftmaxBackward_V2", "softmax", _softmax_from_entry),
        *ops("OpTensor", "optensor", _of_two),
        *ops("SetTensor", "settensor", _of_one, "set yDesc"),
        *ops("ScaleTensor", "scaletensor", _of_one, "scale yDesc"),
        *ops("TransformTensor", "transformtensor", _of_one, "copy xDesc yDesc"),
        *ops("ConvolutionForwardBias", "bias", _of_bias, "yDesc bDesc"),
        *ops("ConvolutionBackwardBias", "bias", _of_bias, "dyDesc dbDesc"),
        *ops("ReduceTensor", "reduce", _reduce_from_entry, "aDesc xDesc cDesc"),
        *ops("SumForward", "sum", _reduce_from_entry, "xDesc xDesc yDesc"),
        *ops("ReduceCalculationForward", "reducecalculation", _reduce_from_entry, "xDesc xDesc reduceDesc"),
        *ops("ArgmaxForward", "argmax", _reduce_from_entry, "xDesc xDesc yDesc"),
        *ops("ReduceExtremeForward", "reduceextreme", _reduce_from_entry, "xDesc xDesc yDesc indiceDesc"),
        # it fills the states of the random numbers, by a kernel without a shape
        *ops("SetDropoutDescriptor", "dropoutstates", _any_from_entry),
        *ops("DropoutForward", "dropout", _any_from_entry, "xDesc yDesc"),
        *ops("DropoutBackward", "dropout", _any_from_entry, "dxDesc dyDesc"),
        *ops("GLUForward", "glu", _any_from_entry, "inputDesc outputDesc"),
        *ops("GLUBackward", "glu", _any_from_entry, "inputDesc outputGradDesc"),
        *ops("PReLUBackward", "prelu", _any_from_entry, "inputDesc doutputDesc"),
        *ops("RoPEForward", "rope", _any_from_entry, "xDesc yDesc"),
        *ops("RoPEBackward", "rope", _any_from_entry, "dxDesc dyDesc"),
        *ops("CatForward", "cat", _any_from_entry, "xDescs yDesc"),
        *ops("GetitemBackward", "getitem", _any_from_entry, "dxDesc dyDesc"),
        *ops("KthvalueForward", "kthvalue", _any_from_entry, "inputDesc outputDesc"),
        *ops("MultiMarginLossForward", "multimarginloss", _any_from_entry, "inputDesc outputDesc"),
        *ops("SoftMarginLossForward", "softmarginloss", _any_from_entry, "inputDesc outputDesc"),
        *ops("SoftMarginLossBackward", "softmarginloss", _any_from_entry, "inputDesc doutputDesc"),
        *ops("CTCLoss", "ctc", _any_from_entry, "probsDesc gradientsDesc", FORWARD),
        *ops("FusedAdam TransformersAdamW", "adam", _optimiser_from_entry, "paramDesc"),
        *ops("FusedAdamWithOutput TransformersAdamWWithOutput", "adam", _optimiser_from_entry, "paramInDesc"),
    ),
    words={
        "activ": Word(_activ_from_command, "activ", SIZES | SCALING | options(integer="m")),
        "softmax": Word(_softmax_from_command, "softmax", SIZES | SCALING | options(integer="m a")),
        "tensorop": Word(
            _tensor_from_command,
            "optensor",
            SIZES | SCALING | options(integer="o", decimal="v"),
            {"alpha1": "A", "alpha2": "B", "beta": "G", "tensor_op": "o", "tensor_val": "v"},
        ),
        **{word: Word(_reduce_from_command, "reduce", _REDUCE_OPTIONS, _REDUCE_NAMES) for word in ("reduce", *_TYPES)},
        **{word: Word(_reduce_from_command, "reduce") for word in ("reduceextreme", "reducecalculation")},
        **{word: Word(_any_from_command, word) for word in _WORDS},
        **{word: Word(_optimiser_from_command, "adam", of, _OPTIMISER_NAMES) for word, of in _OPTIMISERS.items()},
    },
    names={
        "activ": "Activation", "softmax": "Softmax", "optensor": "TensorOp", "settensor": "SetTensor",
        "scaletensor": "ScaleTensor", "transformtensor": "TransformTensor", "bias": "Bias", "reduce": "Reduce",
        "dropout": "Dropout", "dropoutstates": "Dropout states",
    },
    invoked=(("miopenActivationForward", "activ"), ("miopenActivationBackward", "activ")),
    find_2=(("Activ", "activ"), ("Softmax", "softmax"), ("Mha", "mha")),
)  # fmt: skip
