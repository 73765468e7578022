"""The arguments of operations, as the contract has them (trace-contract.md 2)."""

from __future__ import annotations

from typing import Any

from mio2trace.model.gemm import Gemm
from mio2trace.ops.operation import Operation
from mio2trace.ops.values import shape_text


def gemm_args(gemm: Gemm) -> dict[str, int]:
    """``{M, N, K, batch}``; ``batch`` only when there are several."""
    sizes = {"M": gemm.m, "N": gemm.n, "K": gemm.k}
    if gemm.batch > 1:
        sizes["batch"] = gemm.batch
    return sizes


def source_args(operation: Operation) -> dict[str, Any]:
    """Where an operation is told: the log's line, or a range of the profile."""
    return {"line": operation.line} if operation.line else {"range": True}


def operation_args(operation: Operation) -> dict[str, Any]:
    """What the operation itself tells, what is asked for most first; its place, kernels and rate are the slice's."""
    args: dict[str, Any] = {"solver": operation.solver} if operation.solver else {}
    if operation.algorithm:
        args["algorithm"] = operation.algorithm
    for key, shape in (
        ("input", operation.input),
        ("weights", operation.weights),
        ("output", operation.output),
        ("pad", operation.pad),
        ("stride", operation.stride),
        ("dilation", operation.dilation),
        ("window", operation.window),
    ):
        if shape:
            args[key] = shape_text(shape)
    for key, value in (
        ("groups", operation.groups),
        ("mode", operation.mode),
        ("dtype", operation.dtype),
        ("dtype_by", None if operation.dtype_by == "command" else operation.dtype_by),
        ("layout", operation.layout),
        ("workspace_bytes", operation.workspace_bytes),
        ("flop", operation.flop if operation.phase == "run" else None),
        ("bytes_min", operation.bytes_min if operation.phase == "run" else None),
        ("command", operation.command),
    ):
        if value is not None and value != "":
            args[key] = value
    message = None if operation.problem is None else operation.problem.message_bytes()
    if message is not None:
        args["message_bytes"] = message
    if operation.gemm is not None:
        args["gemm"] = gemm_args(operation.gemm)
    if operation.api:
        args["api"] = operation.api
    args["primitive"] = operation.primitive
    if operation.direction is not None:
        args["direction"] = operation.direction
    args["phase"] = operation.phase
    return args
