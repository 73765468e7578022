"""Families of problems: each module holds what one family computes, and how its calls and commands state it."""

from __future__ import annotations

from mio2trace.ops.families import (
    activation,
    batch_norm,
    collective,
    conv,
    fusion,
    gemm,
    layer_norm,
    lrn,
    other,
    pool,
    reduction,
    rnn,
    softmax,
    tensor,
)
from mio2trace.ops.family import Family

FAMILIES: tuple[Family, ...] = (
    conv.FAMILY,
    fusion.FAMILY,
    pool.FAMILY,
    batch_norm.FAMILY,
    lrn.FAMILY,
    layer_norm.FAMILY,
    activation.FAMILY,
    softmax.FAMILY,
    tensor.FAMILY,
    reduction.FAMILY,
    rnn.FAMILY,
    gemm.FAMILY,
    collective.FAMILY,
    other.FAMILY,
)
