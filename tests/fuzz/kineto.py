"""Traces of PyTorch's profiler: rows of every category with times, ids and arguments that no profiler writes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.kineto_files import FIRST_US, Row, row, trace

Chance = random.Random
_ODD: tuple[Any, ...] = (
    None, "", "soon", "12", -1, 1.5, 1 << 63, (1 << 63) - 1, -(1 << 63), 1 << 70, 0, True, [], [1], {}, 1e300,
)  # fmt: skip
_OPS = (
    "aten::miopen_convolution", "aten::convolution_backward", "aten::miopen_batch_norm", "aten::addmm", "aten::relu_",
    "aten::max_pool2d_with_indices", "aten::scaled_dot_product_attention", "aten::miopen_rnn", "aten::item",
    "autograd::engine::evaluate_function: ConvolutionBackward0", "ConvolutionBackward0",
)  # fmt: skip
_CALLS = (
    "hipLaunchKernel", "hipExtModuleLaunchKernel", "hipGraphLaunch", "hipMemcpyAsync", "hipDeviceSynchronize",
    "hipLaunchKernel", "hipStreamBeginCapture", "hipStreamEndCapture",
)  # fmt: skip
_KERNELS = ("igemm_bwd_gtcx3_nhwc_bf16", "igemm_wrw_gtcx3_nhwc_bf16", "Cijk_Ailk_Bljk_MT64x64x8.kd", "ncclDevKernel")
_STEPS = (
    "ProfilerStep#3", "ProfilerStep#", "conv1 forward", "step 4", "", "step[DECODE bs=32]", "step[EXTEND bs=2 toks=9]",
    "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk9sqsq32sqsk9)", "execute_context_1(x)_generation_0()",
    "execute_new_1_cached_31", "scheduler.run_batch", "## forward 12 ##", "forward_eager",
)  # fmt: skip
_MODULES = ("nn.Module: Conv2d_0", "nn.Module: ", "train.py(184): <module>")
_SHAPES: tuple[Any, ...] = ([10, 64, 56, 56], [64, 64, 3, 3], [], [[2, 3], [4]], [0, 1], [1 << 50], [-1], None, "x")


def files(chance: Chance, names: Sequence[str]) -> tuple[list[bytes], int]:
    """(the file, the kernels and copies in it that must be drawn or noted)."""
    odd = chance.random() < 0.5
    first = chance.choice((FIRST_US, FIRST_US, 0, 1_767_189_312_000_047, 1.5, -5))
    count = chance.choice((1, 5, 30, 30))
    pids = chance.choice(((542,), (542,), (542, 777)))
    events = [_row(chance, names, first, odd, pids) for _ in range(count)]
    more: dict[str, Any] = {}
    if odd and chance.random() < 0.3:
        key = chance.choice(("deviceProperties", "distributedInfo", "schemaVersion", "baseTimeNanoseconds"))
        more[key] = chance.choice(_ODD)
    base = chance.choice((1_767_189_312_000_000_000, 1_767_189_312_000_000_000, None, 0, 1 << 62))
    data = trace(events, base=None if "baseTimeNanoseconds" in more else base, late=chance.random() < 0.3, **more)
    return [data], sum(event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") for event in events)


def _row(chance: Chance, names: Sequence[str], first: float, odd: bool, pids: Sequence[int]) -> Row:
    at = first + chance.choice((0, 1, 1, 7.25, 40.001)) * chance.randint(0, 30)
    dur: Any = chance.choice((0, 0.001, 1, 5.25, 900, 40_000))
    key, op = chance.randint(0, 9), chance.randint(0, 6)
    host = chance.choice(pids), chance.choice((542, 542, 543))
    device = chance.choice((2, 2, 3, "GPU 2 of rank 1")) if len(pids) > 1 else 2
    made: list[Callable[[], Row]] = [
        lambda: _compiled(row("cpu_op", chance.choice((*_OPS, *_OPS, *names)), *host, at, dur, External_id=op,
                              Sequence_number=chance.randint(0, 3), **_inputs(chance)), chance, names),
        lambda: row("cuda_runtime", chance.choice(_CALLS), *host, at, dur, External_id=op, correlation=key,
                    grid=[4, 1, 1], block=[64, 1, 1], kernel=chance.choice((*_KERNELS, *names))),
        lambda: row("kernel", chance.choice((*_KERNELS, *names)), device, chance.choice((0, 1)), at, dur,
                    correlation=key, External_id=op, grid=[4, 1, 1], block=[64, 1, 1], graph_id=1,
                    graph_node_id=chance.randint(0, 9)),
        lambda: row("gpu_memcpy", "Memcpy", device, 0, at, dur, correlation=key, bytes=616, kind="HtoD"),
        lambda: row("gpu_memset", "Memset", device, 0, at, dur, correlation=key),
        lambda: row("user_annotation", chance.choice((*_STEPS, *names)), *host, at, dur, External_id=op),
        lambda: row("python_function", chance.choice((*_MODULES, *names)), *host, at, dur, Python_id=op,
                    Python_parent_id=chance.choice((None, op - 1, op, chance.randint(-2, 9), 1 << 40))),
        lambda: {"ph": chance.choice("sf"), "cat": "ac2g", "name": "ac2g", "id": key, "pid": 2, "tid": 0, "ts": at},
        lambda: row("cpu_op", "record_param_comms", *host, at, dur, External_id=op,
                    dtype=chance.choice(("Float", "", 7)),
                    Collective_name=chance.choice(("allreduce", "_allgather_base", "", *names)),
                    In_msg_nelems=chance.choice((0, 1, 1 << 60, -1, None)), Group_size=chance.choice((0, 1, 8, "x"))),
        lambda: row("overhead", "Activity Buffer Request", *host, at, dur),
    ]  # fmt: skip
    event = chance.choice((*made[:3], *made))()
    if odd and chance.random() < 0.2:
        inner = event.get("args") or event
        holder = chance.choice((event, inner))
        spared = ("cat", "ph", "name")
        keys = [key for key in holder if key not in spared] or ["ts"]
        holder[chance.choice(keys)] = chance.choice(_ODD)
    return event


def _compiled(made: Row, chance: Chance, names: Sequence[str]) -> Row:
    """With the file that Triton compiled its kernel from, or anything in its place."""
    if chance.random() < 0.2:
        made["args"]["kernel_file"] = chance.choice(("/tmp/u7/rope.py", "/" * 300, 5, None, [], *names))
    return made


def _inputs(chance: Chance) -> dict[str, Any]:
    if chance.random() < 0.2:
        return {}
    count = chance.choice((1, 2, 5, 9, 12))
    pick = chance.random()
    return {
        "Input_Dims": [chance.choice(_SHAPES[:3] if pick < 0.7 else _SHAPES) for _ in range(count)],
        "Input_type": [chance.choice(("float", "c10::Half", "", "Scalar")) for _ in range(count)],
        "Input_Strides": [chance.choice(([200704, 3136, 56, 1], [576, 9, 3, 1], [])) for _ in range(count)],
        "Concrete_Inputs": [
            chance.choice(("", "[1, 1]", "1", "False", "[True, True, False]", "[]", "9" * 40)) for _ in range(count)
        ],
    }
