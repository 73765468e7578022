"""Traces of PyTorch's profiler made for tests: two ops, their calls and what these launched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mio2trace
from mio2trace.align import Alignment
from mio2trace.ops.operation import Operation

BASE_NS = 1_767_189_312_000_000_000
FIRST_US = 3_743_411_230_047.485
Row = dict[str, Any]


def row(cat: str, name: str, pid: Any, tid: Any, ts: Any, dur: Any, **args: Any) -> Row:
    """An event with duration; ``_`` in the names of arguments stands for a blank."""
    made = {key.replace("_", " "): value for key, value in args.items()}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": made}


def launched(
    number: int,
    at: float,
    us: float,
    name: str = "gemm",
    *,
    pid: int = 542,
    stream: int = 0,
    wait: float = 10,
    **more: Any,
) -> list[Row]:
    """A call of 5 us, so long after `FIRST_US`, and what it launched ``wait`` us later; ``more`` ids of the call."""
    cat, call = more.pop("cat", "kernel"), more.pop("call", "hipLaunchKernel")
    return [
        row("cuda_runtime", call, pid, pid, FIRST_US + at, 5, correlation=number, **more),
        row(cat, name, 2, stream, FIRST_US + at + wait, us, device=2, stream=stream, correlation=number),
    ]


def rows(first: Any = FIRST_US) -> list[Row]:
    """A step: a convolution of three kernels, of which one has no launch, a copy, a fill, a module, two functions."""
    return [
        row("user_annotation", "ProfilerStep#3", 542, 542, first, 900.001, External_id=1),
        row("python_function", "train.py(184): <module>", 542, 542, first, 900, Python_id=1),
        row("python_function", "nn.Module: Conv2d_0", 542, 542, first + 1, 200, Python_id=2),
        row(
            "cpu_op", "aten::miopen_convolution", 542, 542, first + 10, 100.5, External_id=45, Record_function_id=0,
            Sequence_number=7, Fwd_thread_id=0,
            Input_Dims=[[10, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], []],
            Input_type=["c10::BFloat16", "c10::BFloat16", "", *["ScalarList"] * 3, *["Scalar"] * 3],
            Input_Strides=[[200704, 3136, 56, 1], [576, 9, 3, 1], [], [], [], [], [], [], []],
            Concrete_Inputs=["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False"],
        ),
        row("cuda_runtime", "hipExtModuleLaunchKernel", 542, 542, first + 20, 5.25, External_id=45, correlation=71,
            grid=[65536, 1, 1], block=[256, 1, 1]),
        row("cuda_runtime", "hipLaunchKernel", 542, 542, first + 40, 5, External_id=45, correlation=72,
            grid=[245, 2, 1], block=[256, 1, 1]),
        row("cuda_runtime", "hipMemcpyAsync", 542, 542, first + 130, 5, correlation=73),
        row("kernel", "SubTensorOpWithScalar1d.kd", 2, 0, first + 30.25, 6.239, device=2, stream=0, correlation=71,
            kind="Dispatch Kernel", grid=[65536, 1, 1], block=[256, 1, 1]),
        row("kernel", "igemm_fwd_gtcx3_nhwc_bf16", 2, 0, first + 60, 20.001, device=2, stream=0, correlation=72),
        row("kernel", "before_the_trace", 2, 4, first + 5, 1, device=2, stream=4, correlation=45),
        row("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 2, 0, first + 140, 3, device=2, stream=0, correlation=73,
            kind="HtoD", bytes=616),
        row("gpu_memset", "Memset (Device)", 2, 0, first + 150, 3, device=2, stream=0, correlation=74, kind="Device"),
    ]  # fmt: skip


def trace(events: list[Row] | None = None, *, base: int | None = BASE_NS, late: bool = False, **more: Any) -> bytes:
    """The file; ``late``: the base stands behind the events. ``more`` stands around them, too."""
    head: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 2, "name": "AMD Instinct MI300X"}],
        "distributedInfo": {"backend": "nccl", "rank": 3},
    }
    tail: dict[str, Any] = {"traceName": "rank3.json"}
    if base is not None:
        (tail if late else head)["baseTimeNanoseconds"] = base
    return json.dumps(head | more | {"traceEvents": rows() if events is None else events} | tail, indent=1).encode()


def kineto_file(folder: Path, events: list[Row] | None = None, name: str = "made.json", **more: Any) -> Path:
    """Write `trace` of the events, and return where."""
    path = folder / name
    path.write_bytes(trace(events, **more))
    return path


def aligned(*paths: Path) -> Alignment:
    """The alignment of the only process in these files."""
    (alignment,) = mio2trace.analyse(paths).run.alignments
    return alignment


def kineto_alignment(folder: Path, events: list[Row]) -> Alignment:
    return aligned(kineto_file(folder, events))


def operations_by_kernel(alignment: Alignment) -> dict[str, Operation | None]:
    """Of each command, by its name, the operation that it is in."""
    operations = {one.index: one for one in alignment.links.operations}
    found = zip(alignment.profile.activities, alignment.links.operation_of, strict=True)
    return {activity.name: operations.get(index) for activity, index in found}
