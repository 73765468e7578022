"""TensorFlow's files: ProfileProto, RunMetadata, StepStats as text, Chrome JSON, printed views."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence

from tests.tf_files import CPU, GPU, KERNELS, START_US, profile_proto, random_profile, run_metadata

Chance = random.Random
Record = tuple[str, int, int, str]
"""Name, start and end in us, label."""
SCOPES = (
    "a/x", "tower_0/v/cg/conv1/Conv2D", "tower_0/v/cg/conv1/Relu", "v/tower_1/cg/mpool0/MaxPool", "gradients/a/x_grad",
    "v", "a//b", "/", "a b/c", "é/x", "tower_0/v/gradients/tower_0/v/cg/affine0/xw_plus_b/MatMul_grad/MatMul",
)  # fmt: skip


def files(chance: Chance, names: Sequence[str]) -> list[bytes]:
    """One file, or two of the same step; ``names``: more of them than `SCOPES`."""
    if chance.random() < 0.25:
        return [profile_proto(random_profile(chance), pack=chance.random() < 0.5)]
    if chance.random() < 0.15:
        return [view(chance)]
    step = _step(chance, names)
    forms: tuple[Callable[[Mapping[str, list[Record]]], bytes], ...] = (run_metadata, text, timeline)
    return [form(step) for form in chance.sample(forms, chance.choice((1, 1, 1, 2)))]


def _step(chance: Chance, names: Sequence[str]) -> dict[str, list[Record]]:
    step: dict[str, list[Record]] = {}
    for device in chance.sample((CPU, GPU, KERNELS, f"{GPU}/stream:1", f"{GPU}/memcpy"), chance.randint(1, 4)):
        step[device] = []
        for _ in range(chance.randint(0, 5)):
            name = chance.choice((*SCOPES, *SCOPES, chance.choice(names)))
            start = max(0, START_US + chance.choice((0, 5, 5, 20, 700, -(10**15), 10**9)))
            length = chance.choice((0, 3, 3, 20, 2_000_000, 1 << 40))
            label = chance.choice(
                (f"{name} = Conv2D(b)", f"{name}:Relu", "", f"{name} = Relu(a) @@ x", "[CPU] a = X(b)")
            )
            step[device].append((name, start, length, label))
    return step


def text(step: Mapping[str, list[Record]]) -> bytes:
    """StepStats in the text form of protocol buffers."""
    out = []
    for device, records in step.items():
        ops = "".join(
            f"  node_stats {{ node_name: {_quoted(name)} all_start_micros: {start} op_end_rel_micros: {length}"
            f" timeline_label: {_quoted(label)} }}\n"
            for name, start, length, label in records
        )
        out.append(f"dev_stats {{\n  device: {_quoted(device)}\n{ops}}}\n")
    return "".join(out).encode("utf-8", "replace")


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def timeline(step: Mapping[str, list[Record]]) -> bytes:
    """What ``timeline.Timeline`` writes."""
    events: list[dict[str, object]] = []
    for process, (device, records) in enumerate(step.items(), 1):
        events.append({"name": "process_name", "ph": "M", "pid": process, "args": {"name": f"{device} Compute"}})
        for name, start, length, _ in records:
            args = {"name": name, "op": "Conv2D"}
            events.append({"name": "Conv2D", "ph": "X", "cat": "Op", "pid": process, "tid": 0, "ts": start,
                           "dur": length, "args": args})  # fmt: skip
    return json.dumps({"traceEvents": events}, indent=4).encode()


def view(chance: Chance) -> bytes:
    """A printed scope view."""
    lines = ["node name | requested bytes | total execution time | accelerator execution time | cpu execution time"]
    lines.append("_TFProfRoot (--/772.49MB, --/20.26ms, --/0us, --/20.26ms)")
    for _ in range(chance.randint(0, 6)):
        size = chance.choice(("0B", "1.50KB", "772.49MB", "3us", "-1B", "999999999999.99GB"))
        time = chance.choice(("0us", "2us", "20.26ms", "1.5sec", "3min", "1e9us"))
        indent = "  " * chance.randint(1, 4)
        lines.append(f"{indent}{chance.choice(SCOPES)} ({size}/{size}, {time}/{time}, 0us/0us, {time}/{time})")
    return "\n".join([*lines, ""]).encode()
