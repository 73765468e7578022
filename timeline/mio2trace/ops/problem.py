"""What every problem offers: shapes, equivalent GEMM, work, traffic, driver command, a check of the shapes."""

from __future__ import annotations

from typing import Literal

import msgspec

from mio2trace.model.gemm import Gemm
from mio2trace.model.miopen import OperationDirection
from mio2trace.ops.values import DTYPE_BYTES, Shape, product

Form = Literal["1.2", "1.7", "2.0", "2.1", "2.3", "5.4", "6.3", "newest"]
"""Which version's command form (miopen-log.md 7): MIOpen 1.2-1.6, 1.7-1.8, 2.0, 2.1-2.2, 2.3 to ROCm 5.3, ROCm 5.4 to
6.2, 6.3 to 6.x, 2025 and later."""

FORMS: tuple[Form, ...] = ("1.2", "1.7", "2.0", "2.1", "2.3", "5.4", "6.3", "newest")


class CommandError(ValueError):
    """The problem has no driver command: the text says why."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call's problem, whichever record stated it. ``dtype`` is the input's, None when unknown."""

    direction: OperationDirection | None = None
    dtype: str | None = None

    @property
    def primitive(self) -> str:
        """``conv``, ``pool``, ``bnorm``, ..."""
        raise NotImplementedError

    @property
    def input(self) -> Shape:
        return ()

    @property
    def weights(self) -> Shape:
        return ()

    @property
    def output(self) -> Shape:
        return ()

    def gemm(self) -> Gemm | None:
        """The GEMM it amounts to; None when there is no single one."""
        return None

    def flop(self) -> int | None:
        """Floating-point operations (docs/operations.md); None when there is no agreed number."""
        return None

    def elements_moved(self) -> int | None:
        """Elements read and written when each tensor is touched once."""
        return None

    def bytes_min(self) -> int | None:
        """Least memory traffic; None when the data type is unknown."""
        moved = self.elements_moved()
        size = DTYPE_BYTES.get(self.dtype or "")
        return None if moved is None or size is None else moved * size

    def command(self, form: Form = "newest") -> str:
        """The MIOpenDriver command, from the base word on, in ``form``. Raises `CommandError`."""
        raise CommandError(f"the driver's options for {self.primitive} are not covered")

    def check(self) -> str:
        """What does not fit together in the shapes; empty when all is well or nothing can be said."""
        return ""


class SameShapeProblem(Problem, frozen=True, kw_only=True, gc=False):
    """A problem whose output has the shape of its input, ``x``."""

    x: Shape

    @property
    def input(self) -> Shape:
        return self.x

    @property
    def output(self) -> Shape:
        return self.x

    def per_element(self, forward: int, backward: int) -> int | None:
        """So much for each element, by direction; None when that or the shape is unknown."""
        elements = work(self.x)
        if elements is None or self.direction is None:
            return None
        return elements * (forward if self.direction == "forward" else backward)


def base_word(word: str, dtype: str | None, known: tuple[str, ...] = ("half",)) -> str:
    """The driver's base word: ``conv`` float, ``convfp16`` and so on. Raises `CommandError` for a type it lacks."""
    suffix = {None: "", "float": "", "half": "fp16", "bfloat16": "bfp16", "int8": "int8"}.get(dtype)
    if suffix is None or (suffix and dtype not in known):
        raise CommandError(f"the driver has no {word} for {dtype}")
    return word + suffix


def nchw(shape: Shape, word: str) -> str:
    """``-n 1 -c 3 -H 8 -W 8`` for a driver that knows four lengths only; missing trailing ones are 1."""
    if not 1 <= len(shape) <= 4 or 0 in shape:
        raise CommandError(f"the driver's {word} takes 4 lengths, not {len(shape)}")
    n, c, h, w = (*shape, 1, 1, 1)[:4]
    return f"-n {n} -c {c} -H {h} -W {w}"


def work(shape: Shape) -> int | None:
    """Elements of a shape; None when unknown."""
    return product(shape) if shape else None
