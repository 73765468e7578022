"""Matrix products that a framework asks a BLAS library for, and attention, which consists of two of them
(docs/kineto.md)."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar, Literal

import msgspec

from mio2trace.model.choices import Gemm
from mio2trace.ops.problem import CommandError, Family, Form, Problem
from mio2trace.ops.values import Shape, Tensor, product

# -- A product as the command of a BLAS library's bench: hipblaslt-bench, rocblas-bench (miopen-side-files.md 8) -------
#
# BLAS is column-major: out[M, N] = X[M, K] @ Y[K, N] of row-major tensors is m = N, n = M, k = K with A = Y and B = X.
# Each word of a line is a number or a word of this module, so that a shell may run it.

Library = Literal["hipblaslt", "rocblas"]
LIBRARIES: tuple[Library, ...] = ("hipblaslt", "rocblas")
_TYPES = {
    "float": "f32_r", "half": "f16_r", "bfloat16": "bf16_r", "double": "f64_r", "float8": "f8_r", "bfloat8": "bf8_r",
    "float8_fnuz": "f8_fnuz_r", "bfloat8_fnuz": "bf8_fnuz_r", "int8": "i8_r",
}  # fmt: skip
_COMPUTE = {"f64_r": "f64_r", "i8_r": "i32_r"}
_VECTOR = 2
_ONLY_HIPBLASLT = frozenset(("f8_r", "bf8_r", "f8_fnuz_r", "bf8_fnuz_r"))


class Operand(msgspec.Struct, frozen=True, gc=False):
    """A matrix in BLAS: whether it is transposed, and the distances of its columns and of its batches, in elements."""

    transposed: bool
    leading: int
    stride: int


class Blas(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """D = alpha op(A) op(B) + beta C, column-major, with PyTorch's names of types. ``bias``: a vector for each column.
    ``activation``: the operator that follows. ``scales``: of A and B: 0 none, 1 a number, 2 one for each row of the
    result, 3 for blocks. ``copied``: a layout is assumed.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    a: Operand
    b: Operand
    a_type: str
    b_type: str
    d_type: str
    alpha: float = 1.0
    beta: float = 0.0
    bias: bool = False
    activation: str = ""
    scales: tuple[int, int] = (0, 0)
    copied: bool = False

    def command(self, library: Library) -> str:
        """Return the line. Raises `CommandError` for a type that the bench lacks."""
        try:
            a, b, d = (_TYPES[one] for one in (self.a_type, self.b_type, self.d_type))
        except KeyError as error:
            raise CommandError(f"the bench has no type for {error.args[0] or 'an unknown one'}") from None
        if max(self.scales) > _VECTOR:
            raise CommandError("the bench has no scales for blocks of these sizes")
        if a == "i8_r":
            d = "i32_r"
        compute = _COMPUTE.get(a, "f32_r")
        if library == "rocblas":
            return self._rocblas((a, b, d), compute)
        words = [
            f"hipblaslt-bench -m {self.m} -n {self.n} -k {self.k} --lda {self.a.leading} --ldb {self.b.leading}",
            f"--ldc {self.m} --ldd {self.m} --transA {_letter(self.a)} --transB {_letter(self.b)}",
            f"--batch_count {self.batch} --stride_a {self.a.stride} --stride_b {self.b.stride}",
            f"--stride_c {self.m * self.n} --stride_d {self.m * self.n} --alpha {self.alpha:g} --beta {self.beta:g}",
            f"--a_type {a} --b_type {b} --c_type {d} --d_type {d} --scale_type {compute} --compute_type {compute}",
        ]
        if self.bias:
            words.append(f"--bias_vector --bias_type {d}")
        if self.activation:
            words.append(f"--activation_type {self.activation}")
        if any(self.scales):
            words.append("--scaleA {} --scaleB {}".format(*self.scales))
        return " ".join([*words, "--iters 100 --cold_iters 20"])

    def _rocblas(self, types: tuple[str, str, str], compute: str) -> str:
        a, b, d = types
        if not _ONLY_HIPBLASLT.isdisjoint(types) or any(self.scales) or self.activation:
            raise CommandError("rocblas-bench has no such product: use hipblaslt-bench")
        batched = self.batch > 1
        # a bias is copied into the result, to which the product is then added
        beta = 1.0 if self.bias else self.beta
        strides = [f" --stride_{name} {size}" if batched else "" for name, size in (
            ("a", self.a.stride), ("b", self.b.stride), ("c", self.m * self.n), ("d", self.m * self.n)
        )]  # fmt: skip
        words = [
            f"rocblas-bench -f {'gemm_strided_batched_ex' if batched else 'gemm_ex'}",
            f"--transposeA {_letter(self.a)} --transposeB {_letter(self.b)} -m {self.m} -n {self.n} -k {self.k}",
            f"--alpha {self.alpha:g} --a_type {a} --lda {self.a.leading}{strides[0]}",
            f"--b_type {b} --ldb {self.b.leading}{strides[1]} --beta {beta:g}",
            f"--c_type {d} --ldc {self.m}{strides[2]} --d_type {d} --ldd {self.m}{strides[3]}",
            f"--batch_count {self.batch}" if batched else "",
            f"--compute_type {compute} --iters 100 --cold_iters 20",
        ]
        return " ".join(filter(None, words))


def _letter(operand: Operand) -> str:
    return "T" if operand.transposed else "N"


class View(msgspec.Struct, frozen=True):
    """An operand, and whether it is a copy: BLAS cannot read its layout, or its strides were not recorded."""

    operand: Operand
    copied: bool


def view(tensor: Tensor, batches: Shape = (), *, turned: bool = False) -> View:
    """Return the last two dimensions of a tensor as an operand, the others as its batch, for ``batches`` products.

    ``turned``: its transpose. A row-major matrix is the column-major matrix of its columns, without a copy. A copy is
    row-major, one batch after the other. Strides of dimensions of length 1 are free: the least legal ones are used.
    """
    rows, columns = tensor.lengths[-2:]
    own = tensor.lengths[:-2]
    is_shared = not batches or (product(own) == 1 < product(batches))
    stride: int | None = None
    if tensor.strides:
        row, column = tensor.strides[-2:]
        if is_shared:
            stride = 0
        elif product(own) == product(batches):
            stride = _single_step(own, tensor.strides[:-2], 0)
        if stride is not None and (columns == 1 or column == 1) and (rows == 1 or row >= columns):
            return View(Operand(turned, row if rows > 1 else columns, stride), False)
        if stride is not None and (rows == 1 or row == 1) and (columns == 1 or column >= rows):
            return View(Operand(not turned, column if columns > 1 else rows, stride), False)
    return View(Operand(turned, columns, 0 if is_shared else rows * columns), True)


def flattened(tensor: Tensor) -> Tensor:
    """Join all dimensions except the last, if they are adjacent in memory; otherwise return no strides: a copy."""
    lengths, strides = tensor.lengths, tensor.strides
    shape = product(lengths[:-1]), lengths[-1]
    step = _single_step(lengths[:-1], strides[:-1], max(1, lengths[-1])) if strides else None
    return Tensor(shape, () if step is None else (step, strides[-1]))


def _single_step(lengths: Shape, strides: Shape, usual: int) -> int | None:
    """Return the distance of elements, ``usual`` for a single element; None for several distances."""
    kept = [(length, step) for length, step in zip(lengths, strides, strict=True) if length != 1]
    is_one = all(outer == step * length for (_, outer), (length, step) in pairwise(kept))
    return [usual, *(step for _, step in kept)][-1] if is_one else None


# -- Products and attention as problems --------------------------------------------------------------------------------


class GemmProblem(Problem, frozen=True, kw_only=True, gc=False):
    """x <[batch,] m, k> times w <[batch,] k, n> is y <[batch,] m, n>. ``added``: a tensor is added to the product.
    ``blas``: the request to a BLAS library. ``traffic``: in bytes; what is added, and matrices that batches share or
    that differ in type, are counted as they are."""

    primitive: ClassVar[str] = "gemm"

    product: Gemm
    added: bool = False
    blas: Blas | None = None
    traffic: int | None = None

    def gemm(self) -> Gemm:
        return self.product

    def flop(self) -> int:
        """2 m n k, plus m n if a tensor is added. Complex: a product is 4 products and 2 sums, a sum is 2 sums."""
        size = self.product
        added = size.m * size.n * size.batch if self.added else 0
        return 4 * size.flop + 2 * added if (self.dtype or "").startswith("complex") else size.flop + added

    def elements_moved(self) -> int:
        size = self.product
        return (size.m * size.k + size.k * size.n + size.m * size.n) * size.batch

    def bytes_min(self) -> int | None:
        """Return `traffic`, also if the op is unknown."""
        return super().bytes_min() if self.traffic is None and self.blas is None else self.traffic

    def command(self, form: Form = "newest") -> str:
        """Return the line for hipBLASLt's bench."""
        if self.blas is None:
            raise CommandError("a BLAS library computes it, not MIOpen")
        return self.blas.command("hipblaslt")


class AttentionProblem(Problem, frozen=True, kw_only=True, gc=False):
    """softmax(q k^T) v: q <n, heads, s, d>, k <n, heads, t, d>, v <n, heads, t, e>. Causal: no query uses later
    keys. The first query belongs to the first key; or the last one to the last key (``aligned_last``).
    ``added_bytes``: of what is added to the scores; None if unknown."""

    primitive: ClassVar[str] = "mha"
    without_command: ClassVar[str] = "the framework computes it, not MIOpen"

    q: Shape
    k: Shape
    v: Shape
    causal: bool = False
    aligned_last: bool = False
    added_bytes: int | None = 0

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
        """Forward two products; backward five, because the first of the forward pass is computed again."""
        queries, keys = self.q[2], self.k[2]
        pairs = queries * keys
        if self.causal:
            both = min(queries, keys)
            pairs = both * (both + 1) // 2
            if self.aligned_last:
                pairs += queries * max(keys - queries, 0)
            else:
                pairs += keys * max(queries - keys, 0)
        inner, outer = self.q[3], self.v[3]
        each = inner + outer if self.direction == "forward" else 3 * inner + 2 * outer
        return 2 * self.q[0] * self.q[1] * pairs * each

    def elements_moved(self) -> int:
        forward = product(self.q) + product(self.k) + product(self.v) + product(self.output)
        return forward if self.direction == "forward" else 2 * forward

    def bytes_min(self) -> int | None:
        moved = super().bytes_min()
        return None if moved is None or self.added_bytes is None else moved + self.added_bytes


FAMILY = Family(names={"gemm": "Gemm", "mha": "MHA"})
