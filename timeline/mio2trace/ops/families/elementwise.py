"""Activation, softmax, tensor arithmetic, bias, reduction and the rest without a family (miopen-log.md 5.3, 5.4)."""

from __future__ import annotations

from mio2trace.model.miopen import OperationDirection
from mio2trace.ops.problem import CommandError, Form, Problem, SameShapeProblem, base_word, nchw, work
from mio2trace.ops.values import TENSOR_OPS, Shape, product


class ActivProblem(SameShapeProblem, frozen=True, kw_only=True, gc=False):
    """``mode`` is the activation's number; the values keep their text."""

    mode: int = 0
    alpha: str = ""
    beta: str = ""
    gamma: str = ""

    @property
    def primitive(self) -> str:
        return "activ"

    def flop(self) -> int | None:
        """1 per element, whatever the function; its gradient multiplies by dy: 2."""
        return self.per_element(1, 2)

    def elements_moved(self) -> int | None:
        """x, y; backward: one of x and y, dy, dx."""
        return self.per_element(2, 3)

    def command(self, form: Form = "newest") -> str:
        if form in ("1.2", "1.7", "2.0", "2.1"):
            raise CommandError("activations printed nothing before 2.3")
        if self.direction is None or not self.alpha:
            raise CommandError("the log does not tell the descriptor")
        word = base_word("activ", self.dtype)
        return (
            f"{word} {nchw(self.x, 'activ')} -m {self.mode} --forw {1 if self.direction == 'forward' else 2}"
            f" -A {self.alpha} -B {self.beta} -G {self.gamma}"
        )


class SoftmaxProblem(SameShapeProblem, frozen=True, kw_only=True, gc=False):
    """``algorithm`` 0 fast, 1 accurate, 2 log; ``mode`` 0 instance, 1 channel. alpha, beta: where a command told."""

    algorithm: int = 1
    mode: int = 1
    alpha: str = ""
    beta: str = ""

    @property
    def primitive(self) -> str:
        return "softmax"

    def flop(self) -> int | None:
        """Per element: maximum, subtract, exponential, add, divide; the gradient: multiply, add, subtract, multiply."""
        return self.per_element(5, 4)

    def elements_moved(self) -> int | None:
        return self.per_element(2, 3)

    def command(self, form: Form = "newest") -> str:
        if form in ("1.2", "1.7", "2.0", "2.1"):
            raise CommandError("softmax printed nothing before 2.3")
        if self.direction is None:
            raise CommandError("the direction is unknown")
        word = base_word("softmax", self.dtype)
        # The entry has pointers for alpha and beta: left to the driver's defaults, 1 and 0.
        scaling = f" -A {self.alpha} -B {self.beta}" if self.alpha and self.beta else ""
        return (
            f"{word} {nchw(self.x, 'softmax')} -F {1 if self.direction == 'forward' else 2} -a {self.algorithm}"
            f" -m {self.mode}{scaling}"
        )


class OpTensorProblem(Problem, frozen=True, kw_only=True, gc=False):
    """``op``: ``set``, ``scale``, ``copy`` on a and c, or ``add``, ``mul``, ``min``, ``max``: c = op(a, b) + beta c.

    ``scaling`` is -A, -B, -G (or -v) where a command told; entries have pointers.
    """

    op: str
    a: Shape
    b: Shape = ()
    c: Shape = ()
    scaling: tuple[tuple[str, str], ...] = ()

    @property
    def primitive(self) -> str:
        return {"set": "settensor", "scale": "scaletensor", "copy": "transformtensor"}.get(self.op, "optensor")

    @property
    def input(self) -> Shape:
        return self.a

    @property
    def weights(self) -> Shape:
        """The second operand."""
        return self.b

    @property
    def output(self) -> Shape:
        return self.c or self.a

    def check(self) -> str:
        if (
            self.b
            and self.c
            and len(self.b) == len(self.c)
            and any(n not in (1, m) for n, m in zip(self.b, self.c, strict=True))
        ):
            return "the second operand does not broadcast to the result"
        return ""

    def flop(self) -> int | None:
        """1 per element of the result; none to set or copy."""
        elements = work(self.output)
        return None if elements is None else elements * (0 if self.op in ("set", "copy") else 1)

    def elements_moved(self) -> int | None:
        elements = work(self.output)
        if elements is None:
            return None
        if self.op == "set":
            return elements
        return elements + product(self.a) + (product(self.b) if self.b else 0)

    def command(self, form: Form = "newest") -> str:
        if form in ("1.2", "1.7", "2.0", "2.1"):
            raise CommandError("tensor operations printed nothing before 2.3")
        if form == "newest":
            if self.op == "copy":
                raise CommandError("the driver has no tensor copy")
            if self.dtype not in (None, "float"):
                raise CommandError(f"the driver's tensorop is for float, not {self.dtype}")
            if self.b and not self.a == self.b == self.c:
                raise CommandError("the driver's tensorop takes three tensors of one shape")
        word = base_word("tensorop", self.dtype)
        code = {"set": 0, "scale": 1, "copy": 2}.get(self.op)  # the log shows a copy as an addition
        if code is None:
            if self.op not in TENSOR_OPS:
                raise CommandError(f"tensor operation {self.op}")
            code = 2 + TENSOR_OPS.index(self.op)
        before = "".join(f" -{name} {value}" for name, value in self.scaling if name != "v")
        after = "".join(f" -{name} {value}" for name, value in self.scaling if name == "v")
        return f"{word}{before} {nchw(self.a, 'tensorop')} -o {code}{after}"


class BiasProblem(Problem, frozen=True, kw_only=True, gc=False):
    """y += b, or db = sum of dy: b <1, k, 1, 1>."""

    y: Shape
    b: Shape = ()

    @property
    def primitive(self) -> str:
        return "bias"

    @property
    def input(self) -> Shape:
        return self.y

    @property
    def weights(self) -> Shape:
        return self.b

    @property
    def output(self) -> Shape:
        return self.y

    def check(self) -> str:
        if self.b and len(self.y) > 1 and product(self.b) != self.y[1]:
            return "the bias does not have one value per channel"
        return ""

    def flop(self) -> int | None:
        return work(self.y)

    def elements_moved(self) -> int | None:
        elements = work(self.y)
        if elements is None:
            return None
        return elements * (2 if self.direction == "forward" else 1) + product(self.b)

    def command(self, form: Form = "newest") -> str:
        raise CommandError("the driver runs a bias only as part of a convolution or fusion")


class ReduceProblem(Problem, frozen=True, kw_only=True, gc=False):
    """a reduced to c: the reduced dimensions are those where c is 1 and a is not. ``flags`` as a command told."""

    kind: str = "reduce"
    a: Shape
    c: Shape = ()
    op: int | None = None
    comp: int | None = None
    nan: int | None = None
    indices: int | None = None

    @property
    def primitive(self) -> str:
        return self.kind

    @property
    def input(self) -> Shape:
        return self.a

    @property
    def output(self) -> Shape:
        return self.c

    def check(self) -> str:
        if self.c and len(self.c) == len(self.a) and any(n not in (1, m) for n, m in zip(self.c, self.a, strict=True)):
            return "the result is no reduction of the input"
        return ""

    def flop(self) -> int | None:
        """1 per element of the input."""
        return work(self.a)

    def elements_moved(self) -> int | None:
        elements = work(self.a)
        return None if elements is None else elements + (product(self.c) if self.c else 0)

    def command(self, form: Form = "newest") -> str:
        if self.kind != "reduce":
            raise CommandError(f"the driver's options for {self.kind} are not covered")
        raise CommandError("the entry has no values for alpha and beta, and the driver needs them")


class GenericProblem(Problem, frozen=True, kw_only=True, gc=False):
    """What has shapes but no agreed work: losses, optimisers, indexing, dropout, CTC, GLU, RoPE, PReLU."""

    kind: str
    x: Shape = ()
    y: Shape = ()
    w: Shape = ()
    flags: tuple[tuple[str, str], ...] = ()

    @property
    def primitive(self) -> str:
        return self.kind

    @property
    def input(self) -> Shape:
        return self.x

    @property
    def weights(self) -> Shape:
        return self.w

    @property
    def output(self) -> Shape:
        return self.y

    def elements_moved(self) -> int | None:
        if self.kind != "dropout" or not self.x:
            return None
        return 2 * product(self.x)


def four(flags: dict[str, str]) -> Shape:
    """-n -c -H -W. Raises KeyError or ValueError."""
    return tuple(int(flags[name]) for name in ("n", "c", "H", "W"))


def activ_from_flags(
    flags: dict[str, str], direction: OperationDirection | None, dtype: str | None
) -> ActivProblem | None:
    """``-m mode --forw 1|2 -A -B -G``."""
    try:
        return ActivProblem(
            direction=direction,
            dtype=dtype,
            x=four(flags),
            mode=int(flags["m"]),
            alpha=flags.get("A", ""),
            beta=flags.get("B", ""),
            gamma=flags.get("G", ""),
        )
    except (KeyError, ValueError):
        return None


def softmax_from_flags(
    flags: dict[str, str], direction: OperationDirection | None, dtype: str | None
) -> SoftmaxProblem | None:
    """``-F 1|2 -a algorithm -m mode [-A alpha -B beta]``."""
    try:
        return SoftmaxProblem(
            direction=direction,
            dtype=dtype,
            x=four(flags),
            algorithm=int(flags.get("a", "1")),
            mode=int(flags.get("m", "1")),
            alpha=flags.get("A", ""),
            beta=flags.get("B", ""),
        )
    except (KeyError, ValueError):
        return None


def tensorop_from_flags(flags: dict[str, str], dtype: str | None) -> OpTensorProblem | None:
    """``[-A a1 -B a2 -G beta] -n -c -H -W -o code [-v value]``: one shape for all (the first operand's)."""
    try:
        x, code = four(flags), int(flags["o"])
    except (KeyError, ValueError):
        return None
    names = ("set", "scale", *TENSOR_OPS)
    if not 0 <= code < len(names):
        return None
    scaling = tuple((name, flags[name]) for name in ("A", "B", "G", "v") if name in flags)
    return OpTensorProblem(dtype=dtype, op=names[code], a=x, scaling=scaling)
