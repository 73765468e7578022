"""Matrix products that a framework asks a BLAS library for, and attention, which is two of them (docs/kineto.md)."""

from __future__ import annotations

from typing import ClassVar

from mio2trace.model.gemm import Gemm
from mio2trace.ops.blas import Blas, Library
from mio2trace.ops.family import Family
from mio2trace.ops.problem import CommandError, Form, Problem, ShapedProblem
from mio2trace.ops.values import Shape, product


class GemmProblem(ShapedProblem, frozen=True, kw_only=True, gc=False):
    """x <[batch,] m, k> times w <[batch,] k, n> is y <[batch,] m, n>; ``added``: a tensor is added to the product.
    ``blas``: as a BLAS library is asked for it."""

    primitive: ClassVar[str] = "gemm"

    product: Gemm
    added: bool = False
    blas: Blas | None = None

    def gemm(self) -> Gemm:
        return self.product

    def flop(self) -> int:
        """2 m n k, and m n for what is added."""
        size = self.product
        return size.flop + (size.m * size.n * size.batch if self.added else 0)

    def elements_moved(self) -> int:
        size = self.product
        return (size.m * size.k + size.k * size.n + size.m * size.n) * size.batch

    def command(self, form: Form = "newest") -> str:
        """Of hipBLASLt's bench."""
        return self.bench("hipblaslt")

    @property
    def has_bench(self) -> bool:
        return self.blas is not None

    @property
    def is_copied(self) -> bool:
        return self.blas is not None and self.blas.copied

    def bench(self, library: Library) -> str:
        """The line of a library's bench. Raises `CommandError`."""
        if self.blas is None:
            raise CommandError("a BLAS library computes it, not MIOpen")
        return self.blas.command(library)


class AttentionProblem(Problem, frozen=True, kw_only=True, gc=False):
    """softmax(q k^T) v: q <n, heads, s, d>, k <n, heads, t, d>, v <n, heads, t, e>; causal: none sees later keys."""

    primitive: ClassVar[str] = "mha"

    q: Shape
    k: Shape
    v: Shape
    causal: bool = False

    @property
    def input(self) -> Shape:
        return self.q

    @property
    def output(self) -> Shape:
        return (*self.q[:3], self.v[3])

    @property
    def variant(self) -> str | None:
        return "causal" if self.causal else None

    def flop(self) -> int:
        """Two products forward; backward five, the first of them computed again."""
        queries, keys = self.q[2], self.k[2]
        pairs = queries * keys
        if self.causal and queries <= keys:
            pairs -= queries * (queries - 1) // 2
        inner, outer = self.q[3], self.v[3]
        each = inner + outer if self.direction == "forward" else 3 * inner + 2 * outer
        return 2 * self.q[0] * self.q[1] * pairs * each

    def elements_moved(self) -> int:
        forward = product(self.q) + product(self.k) + product(self.v) + product(self.output)
        return forward if self.direction == "forward" else 2 * forward

    def command(self, form: Form = "newest") -> str:
        raise CommandError("the framework computes it, not MIOpen")


FAMILY = Family(names={"gemm": "Gemm", "mha": "Attention"})
