"""XSpaces of our own, written field by field after the specification (xspace.md 2, 6)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tests.tf_files import number, packed, sized, varint

BEGUN_NS = 1_795_170_000_000_000_000
Stats = Mapping[str, "int | float | str | bytes"]
NONE: Stats = MappingProxyType({})
NO_TYPES: Mapping[str, Stats] = MappingProxyType({})


class Event(NamedTuple):
    """Times in ps from the line's begin."""

    name: str
    offset: int
    duration: int
    stats: Stats = NONE


class Line(NamedTuple):
    name: str
    events: Sequence[Event]
    id: int = 1
    timestamp_ns: int = 0


def _map(field: int, key: int, value: bytes) -> bytes:
    return sized(field, number(1, key) + sized(2, value))


def plane(
    name: str,
    lines: Sequence[Line] = (),
    stats: Stats = NONE,
    types: Mapping[str, Stats] = NO_TYPES,
    events_first: bool = True,
) -> bytes:
    """Texts are references, as the profiler writes them; ``types``: stats that all events of a type have."""
    names: dict[str, int] = {}
    kinds: dict[str, int] = {}

    def numbered(table: dict[str, int], text: str) -> int:
        return table.setdefault(text, len(table) + 1)

    def written(told: Stats) -> bytes:
        out = b""
        for key, value in told.items():
            head = number(1, numbered(names, key))
            if isinstance(value, bytes):
                content = sized(6, value)
            elif isinstance(value, float):
                content = varint(2 << 3 | 1) + struct.pack("<d", value)
            elif isinstance(value, int):
                content = varint(4 << 3) + varint(value)
            else:
                content = varint(7 << 3) + varint(numbered(names, value))
            out += sized(stat_field, head + content)
        return out

    body = b""
    for line in lines:
        stat_field = 4
        events = b"".join(
            sized(4, number(1, numbered(kinds, one.name)) + varint(16) + varint(one.offset) + number(3, one.duration)
                  + written(one.stats))
            for one in line.events
        )  # fmt: skip
        head = number(1, line.id) + sized(2, line.name) + number(3, line.timestamp_ns)
        body += sized(3, head + events)
    stat_field = 6
    own = written(stats)
    for kind in types:
        numbered(kinds, kind)
    stat_field = 5
    tables = b"".join(
        _map(4, key, number(1, key) + sized(2, kind) + written(types.get(kind, {}))) for kind, key in kinds.items()
    )
    tables += b"".join(_map(5, key, number(1, key) + sized(2, text)) for text, key in names.items())
    parts = body + tables if events_first else tables + body
    return sized(1, sized(2, name) + parts + own)


# -- programs --------------------------------------------------------------------------------------------------------


def shape(lengths: Sequence[int], kind: int = 11) -> bytes:
    return number(2, kind) + sized(3, packed(lengths))


def instruction(
    name: str, opcode: str, id: int, of: bytes, *, path: str = "", operands: Sequence[int] = (), more: bytes = b""
) -> bytes:
    metadata = sized(7, sized(2, path) + sized(3, "/home/somebody/private_model.py")) if path else b""
    return sized(2, sized(1, name) + sized(2, opcode) + sized(3, of) + metadata + more + number(35, id)
                 + (sized(36, packed(operands)) if operands else b""))  # fmt: skip


def program(name: str, instructions: Sequence[bytes]) -> bytes:
    return sized(1, sized(1, name) + sized(3, sized(1, "main") + b"".join(instructions)))


def window(size: int, stride: int, pad: int, dilation: int = 1) -> bytes:
    return sized(1, number(1, size) + number(2, stride) + number(3, pad) + number(4, pad) + number(5, dilation)
                 + number(6, 1))  # fmt: skip


def nhwc() -> bytes:
    """Dimension numbers of x <N, H, W, C>, w <K, y, x, C>, y <N, H, W, K>."""
    return (number(7, 0) + number(8, 3) + sized(11, packed([1, 2])) + number(3, 3) + number(4, 0)
            + sized(6, packed([1, 2])) + number(9, 0) + number(10, 3) + sized(12, packed([1, 2])))  # fmt: skip


CONV = "cudnn-conv.1"
GEMM = '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}'  # noqa: E501
OPS = (
    ("loop_fusion", "jit(train)/jvp(Net)/Conv_0/add", 1_000),
    (CONV, "jit(train)/jvp(Net)/Conv_0/conv_general_dilated", 50_000),
    ("cublas-gemm.2", "jit(train)/jvp(Net)/Dense_0/dot_general", 20_000),
    ("cudnn-conv-bw.3", "jit(train)/transpose(jvp(Net))/Conv_0/conv_general_dilated", 70_000),
    ("copy.4", "", 500),
)
"""Ops of the program in order: name, path, ns."""
MODULE, PROGRAM = "jit_train", 15


def hlo() -> bytes:
    """x 8x16x16x4, w 32x3x3x4 with stride 2 and pad 1, so y 8x8x8x32; a product of 8x128 and 128x10."""
    conv = sized(15, window(3, 2, 1) + window(3, 2, 1)) + sized(16, nhwc()) + number(50, 1)
    return program(MODULE, [
        instruction("x", "parameter", 1, shape([8, 16, 16, 4], 10)),
        instruction("w", "parameter", 2, shape([32, 3, 3, 4], 10)),
        instruction("a", "parameter", 3, shape([8, 128])),
        instruction("b", "parameter", 4, shape([128, 10])),
        instruction("loop_fusion", "fusion", 5, shape([8, 16, 16, 4]), path=OPS[0][1], operands=[1]),
        instruction(CONV, "custom-call", 6, number(2, 13) + sized(4, shape([8, 8, 8, 32], 10)) + sized(4, shape([9])),
                    path=OPS[1][1], operands=[1, 2], more=conv + sized(28, "__cudnn$convForward")),
        instruction("cublas-gemm.2", "custom-call", 7, number(2, 13) + sized(4, shape([8, 10])), path=OPS[2][1],
                    operands=[3, 4], more=sized(28, "__cublas$gemm") + sized(43, GEMM)),
        instruction("cudnn-conv-bw.3", "custom-call", 8, number(2, 13) + sized(4, shape([8, 16, 16, 4], 10)),
                    path=OPS[3][1], operands=[6, 2], more=conv + sized(28, "__cudnn$convBackwardInput")),
        instruction("copy.4", "copy", 9, shape([8, 10]), operands=[7]),
    ])  # fmt: skip


def jax_run(devices: int = 2, steps: int = 3, *, events_first: bool = True, private: str = "", paths: bool = True,
            calls: bool = True, marked: bool = False, environment: bool = True,
            waits: bool = False, loads: bool = False) -> bytes:  # fmt: skip
    """Steps of 1 ms on each device, launched by a thread of its own. ``paths``: as stats of the kernels. ``waits``: the
    program waits for each step's result until the next one. ``loads``: kernels of no program load the next one's input.
    """
    out = plane("/host:metadata", types={f"{MODULE}({PROGRAM})": {"Hlo Proto": hlo()}}, events_first=events_first)
    host: list[Line] = []
    correlation = 0
    for device in range(devices):
        kernels: list[Event] = []
        launches: list[Event] = []
        for step in range(steps):
            at = 1_000_000 * step + 1000 * device
            for name, path, ns in OPS:
                correlation += 1
                of: dict[str, int | str] = {
                    "correlation_id": correlation, "hlo_op": name, "hlo_module": MODULE, "program_id": PROGRAM,
                }  # fmt: skip
                if paths and path:
                    of["name"] = path
                kernel = {**of, "kernel_details": " grid:4,2,1 block:64,1,1 private_mem:8 group_mem:512 occ_pct:0"}
                kernels.append(Event(f"{name}.kd", (at + 50_000) * 1000, ns * 1000, kernel))
                launches.append(Event("hipModuleLaunchKernel", at * 1000, 9_000_000, {**of, "device_id": 47_645}))
                at += 100_000
            for place in range(len(OPS) if loads and step < steps - 1 else 0):
                correlation += 1
                at = 1_000_000 * step + 1000 * device + 100_000 * place + 20_000
                key: dict[str, int | str] = {"correlation_id": correlation}
                kernels.append(Event("copyBuffer.kd", (at + 10_000) * 1000, 5_000_000, key))
                launches.append(Event("hipModuleLaunchKernel", at * 1000, 4_000_000, key))
        out += plane(f"/device:GPU:{device}", [Line(f"Stream #{17 + device}(Kernel)", kernels, 17 + device, 5)],
                     {"device_vendor": "AMD", "core_count": 304}, events_first=events_first)  # fmt: skip
        host.append(Line(f"Host Threads/{580 + device}", launches, 580 + device, 5))
    if not calls:
        host = []
    marks = [
        Event("train", 1_000_000_000 * step, 999_000_000, {"step_num": 7 + step, "_r": 1}) for step in range(steps)
    ]
    python = [Event("$model.py:12 train", 5, 10**9), Event(f"TfrtCpuExecutable {private}".strip(), 7, 3_000_000)]
    if waits:
        python += [
            Event("$api.py:3154 block_until_ready", 10**9 * step + 555_000_000, 440_000_000) for step in range(steps)
        ]
        python += [Event("$api.py:3165 try_to_block", one.offset + 1, one.duration - 2) for one in python[2:]]
    host.append(Line(f"python {private}".strip(), [*(marks if marked else ()), *python], 1 << 63 | 5, 5))
    out += plane("/host:CPU", host, events_first=events_first)
    out += plane("/device:GPU:9")
    if environment:
        out += plane("Task Environment", stats={"profile_start_time": BEGUN_NS, "profile_stop_time": BEGUN_NS + 10**10})
    return out + sized(4, private or "host")


def tf_run() -> bytes:
    """TensorFlow without XLA: ops by ``tf_op``."""
    ops = (
        ("conv1", "model/conv1/Conv2D:Conv2D", 30_000),
        ("bias", "model/conv1/BiasAdd:BiasAdd", 1_000),
        ("wgrad", "gradient_tape/model/conv1/Conv2D/Conv2DBackpropFilter:Conv2DBackpropFilter", 40_000),
    )
    kernels, launches = [], []
    for step in range(3):
        for place, (name, path, ns) in enumerate(ops):
            at, key = 1_000_000 * step + 100_000 * place, 10 * step + place
            kernels.append(Event(name, (at + 20_000) * 1000, ns * 1000, {"correlation_id": key, "tf_op": path}))
            launches.append(Event("hipLaunchKernel", at * 1000, 5_000_000, {"correlation_id": key}))
    copies = [Event("MemcpyH2D", 0, 7_000_000,
                    {"correlation_id": 99, "memcpy_details": "kind:Pageable size:4096 dest:0 async:1"})]  # fmt: skip
    device = plane("/device:GPU:0", [Line("Stream #3(Kernel)", kernels, 3), Line("Stream #4(MemcpyH2D)", copies, 4)])
    steps = [Event("train", 1_000_000_000 * step, 900_000_000, {"step_num": step}) for step in range(3)]
    return device + plane("/host:CPU", [Line("Host Threads/7", launches, 7), Line("main/7", steps, 8)])
