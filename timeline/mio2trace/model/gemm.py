"""The matrix product that a kernel computes, or that an operation amounts to."""

from __future__ import annotations

import msgspec


class Gemm(msgspec.Struct, frozen=True, gc=False):
    """C (m x n) = A (m x k) * B (k x n), ``batch`` times: the real sizes, without padding. GEMV is (m, 1, k). SYRK,
    HERK and SYR2K are (n, n, k). A convolution as one GEMM is (out_h * out_w, kernels, channels * kh * kw) for CLBlast,
    and (out channels, output pixels, in channels * kernel size) per group elsewhere."""

    m: int
    n: int
    k: int
    batch: int = 1

    @property
    def flop(self) -> int:
        """Floating point operations: one multiplication and one addition per (m, n, k) and batch."""
        return 2 * self.m * self.n * self.k * self.batch
