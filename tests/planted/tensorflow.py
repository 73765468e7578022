"""TensorFlow's files with a canary in every field that a file of each form can have.

Fields that no reader takes (labels of the graph, texts of source lines, allocators, thread names) hold them, too.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any

from tests.canaries import PROMPT
from tests.small_runs import SECOND, as_json, benchmark
from tests.tf_files import CPU, GPU, KERNELS, number, packed, pairs, sized, varint

LAYERS = ("v/tower_0/cg/conv0/conv2d/Conv2D", "v/tower_0/cg/affine1/xw_plus_b", "global_step")
START_US = int(SECOND.replace(tzinfo=datetime.UTC).timestamp()) * 1_000_000 + 100
"""When the small profiles begin, too: files of one time are drawn together."""
TIMES = ((0, 40), (50, 7), (90, 1))


def scoped(name: str, canary: str) -> str:
    """A canary inside of a name; a slash or a colon of its own begins another scope or output, as in TensorFlow."""
    scope, slash, op = name.rpartition("/")
    return f"{scope}{slash}{op} {canary}"


# ---- ProfileProto


def traceback(canary: str) -> bytes:
    """CodeDef: frames with file, line, function and text, as texts and as numbers of the file's table of texts."""
    frames = [
        sized(1, f"{canary}/train.py") + number(2, 12) + sized(3, canary) + sized(4, canary) + number(5, 7),
        number(2, 13) + number(6, 1) + number(7, 2) + number(8, 3),
        sized(1, "/opt/canary/tensorflow/python/framework/ops.py") + number(2, 1) + sized(3, canary),
    ]
    return b"".join(sized(1, frame) for frame in frames)


def attribute(name: str, value: bytes) -> bytes:
    return sized(11, sized(1, name) + sized(2, value))


def profile_proto(canary: str) -> list[bytes]:
    nodes = b""
    for at, (layer, (start, dur)) in enumerate(zip(LAYERS, TIMES, strict=True)):
        times = sized(1, pairs([START_US + start, dur]))
        step = number(1, 1) + number(2, START_US + start) + number(3, START_US + start + dur)
        for field, device in ((4, KERNELS), (4, f"{GPU} {canary}/stream:all"), (5, CPU), (5, f"{CPU} {canary}")):
            step += sized(field, sized(1, device) + sized(2, times))
        step += sized(7, number(6, 4096) + sized(11, number(1, 1) + sized(2, sized(3, canary))))
        step += sized(6, sized(1, canary) + sized(2, number(1, 5)))  # allocations by allocator
        node = sized(1, scoped(layer, canary)) + sized(9, f"Conv2D {canary}") + number(13, at)
        node += sized(5, canary) + sized(5, "Conv2D") + sized(6, f"{CPU} {canary}") + number(8, 100)
        node += sized(3, canary) + sized(7, canary) + sized(10, traceback(canary)) + sized(4, packed((3, 3)))
        node += attribute("padding", sized(2, canary)) + attribute("data_format", sized(2, f"NHWC {canary}"))
        node += attribute("T", sized(2, canary)) + attribute("strides", sized(1, sized(2, canary) + sized(3, b"\1\2")))
        node += attribute(f"_class {canary}", sized(2, canary)) + attribute("shared_name", sized(2, canary))
        node += sized(15, number(1, 0) + sized(2, pairs([1, 8])))
        node += sized(12, varint(8) + varint(0) + sized(2, step))
        nodes += sized(1, varint(8) + varint(at) + sized(2, node))
    texts = b"".join(
        sized(4, number(1, key) + sized(2, text))
        for key, text in ((1, f"{canary}/other.py"), (2, f"f_{canary}"), (3, f"x = '{canary}'"))
    )
    return [nodes + number(2, 1) + sized(3, packed([0])) + texts]


# ---- StepStats, in its three forms


def records(canary: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """(device, its records)."""
    host = [
        {"name": scoped(name, canary), "start": START_US + start, "dur": dur,
         "label": f"{scoped(name, canary)} = Conv2D({canary}, {canary})"}
        for name, (start, dur) in zip(LAYERS, TIMES, strict=True)
    ]  # fmt: skip
    kernels = [
        {"name": f"{name}:Conv2D", "start": START_US + start + 3, "dur": dur,
         "label": f"void {canary} kernel<float>({canary})@@{scoped(name, canary)}:Conv2D {canary}#id=1,{canary}#"}
        for name, (start, dur) in zip(LAYERS, TIMES, strict=True)
    ]  # fmt: skip
    plain = [{"name": f"{name}", "start": START_US + start + 5, "dur": dur, "label": f"kernel {canary}"}
             for name, (start, dur) in zip(LAYERS, TIMES, strict=True)]  # fmt: skip
    named = [{"name": canary, "start": START_US + 60, "dur": 4, "label": canary}]
    return [
        (GPU, host), (KERNELS, kernels), (f"{GPU}/stream:14", plain), (f"{GPU}/memcpy", named), (CPU, named),
        (f"/job:canary {canary}/replica:0/task:0/device:gpu:1", host),
        (f"/job:worker/task:0/device:gpu:0/stream:{canary}", kernels), (canary, plain),
    ]  # fmt: skip


def run_metadata(canary: str) -> list[bytes]:
    stats = b""
    for device, found in records(canary):
        ops = b""
        for one in found:
            memory = sized(6, sized(1, canary) + number(2, 4096) + number(3, 4096) + number(5, 8192))
            tensor = sized(2, sized(2, number(1, 8))) + sized(4, number(1, 64) + sized(3, canary))
            ops += sized(
                2,
                sized(1, one["name"]) + number(2, one["start"]) + number(4, one["dur"]) + sized(8, one["label"])
                + memory + sized(7, sized(3, tensor)) + sized(11, canary) + number(10, 5),
            )  # fmt: skip
        threads = sized(3, number(1, 1) + sized(2, canary))
        stats += sized(1, sized(1, device) + ops + threads)
    graph = sized(1, sized(1, canary) + sized(2, canary) + sized(3, canary) + sized(4, canary))
    return [sized(1, stats) + sized(3, graph) + sized(2, sized(1, canary))]


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def step_stats_text(canary: str) -> list[bytes]:
    out = []
    for device, found in records(canary):
        out.append(f"dev_stats {{\n  device: {quoted(device)}")
        for one in found:
            out.append(
                f"  node_stats {{\n    node_name: {quoted(one['name'])}\n    all_start_micros: {one['start']}\n"
                f"    op_end_rel_micros: {one['dur']}\n    timeline_label: {quoted(one['label'])}\n"
                f"    memory {{ allocator_name: {quoted(canary)} total_bytes: 4096 allocator_bytes_in_use: 9 }}\n"
                f"    output {{ tensor_description {{ shape {{ dim {{ size: 8 name: {quoted(canary)} }} }}\n"
                f"      allocation_description {{ requested_bytes: 64 allocator_name: {quoted(canary)} }} }} }}\n"
                f"    referenced_tensor {{ allocator_name: {quoted(canary)} }} unknown: {quoted(canary)}\n  }}"
            )
        out.append(f"  thread_names {{ key: 1 value: {quoted(canary)} }}\n}}")
    return [f"# {canary}\n".encode() + "\n".join(out).encode() + b"\n"]


def timeline_json(canary: str) -> list[bytes]:
    events: list[dict[str, Any]] = []
    for pid, (device, found) in enumerate(records(canary), 1):
        events.append({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": f"{device} Compute"}})
        events.append({"name": "process_name", "ph": "M", "pid": pid + 100, "args": {"name": f"{device} Tensors"}})
        for one in found:
            args = {"name": one["name"], "op": canary, "input0": canary, "kernel": one["label"], canary: canary}
            events.append(
                {"ph": "X", "cat": "Op", "name": f"Conv2D {canary}", "pid": pid, "tid": canary, "ts": one["start"],
                 "dur": one["dur"], "args": args, "id": canary}
            )  # fmt: skip
            events.append({"ph": "O", "cat": "Tensor", "name": canary, "pid": pid + 100, "ts": one["start"],
                           "args": {"snapshot": {"tensor_description": canary}}})  # fmt: skip
        events.append({"ph": "C", "name": canary, "pid": pid, "ts": START_US, "args": {canary: 5}})
    return [json.dumps({"traceEvents": events, "metadata": {"host": canary}}).encode()]


FORMATS: dict[str, Callable[[str], list[bytes]]] = {
    "ProfileProto": profile_proto,
    "RunMetadata": run_metadata,
    "StepStats": lambda canary: [
        data[1 + _varint_size(data, 1) :][: _first_size(data)] for data in run_metadata(canary)
    ],
    "StepStats text": step_stats_text,
    "timeline JSON": timeline_json,
    "two profiles": lambda canary: profile_proto(canary) + run_metadata(canary),
    "dv/dt and RunMetadata": lambda canary: [as_json(benchmark()[0]), *run_metadata(canary)],
}


def _varint_size(data: bytes, at: int) -> int:
    return next(size for size in range(1, 11) if data[at + size - 1] < 0x80)


def _first_size(data: bytes) -> int:
    size = _varint_size(data, 1)
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[1 : 1 + size]))


def view(canary: str) -> bytes:
    """Printed scope and op views; a name has no blank there."""
    name = canary.replace("--password ", "--password=").replace(" ", "_")
    return (
        f"{PROMPT}-max_depth 10\n-start_name_regexes {canary}\n-output file:outfile={canary}\n\n"
        "node name | requested bytes | total execution time | accelerator execution time | cpu execution time\n"
        "_TFProfRoot (--/4.10KB, --/48us, --/0us, --/48us)\n"
        f"  v/tower_0/cg/conv0/conv2d={name} (4.10KB/4.10KB, 40us/40us, 0us/0us, 40us/40us)\n"
        f"  {name} (0B/0B, 8us/8us, 0us/0us, 8us/8us)\n"
        f"  {canary} (0B/0B, 8us/8us, 0us/0us, 8us/8us)\n======End of Report======\n"
        "node name | requested bytes | total execution time | accelerator execution time | cpu execution time\n"
        f"{name}   4.10KB (100.00%, 100.00%), 48us (100.00%, 100.00%), 0us (0.00%, 0.00%), 48us (100.00%, 100.00%)\n"
    ).encode()
