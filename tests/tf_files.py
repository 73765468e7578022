"""TensorFlow's files, made up: a writer of protocol buffers, and profiles as the readers would make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from mio2trace.model.tf import Execution, NodeStep, OpMemory, TfNode, TfProfile

CPU = "/job:localhost/replica:0/task:0/device:cpu:0"
GPU = "/job:localhost/replica:0/task:0/device:gpu:0"
KERNELS = f"{GPU}/stream:all"
START_US = 1_795_170_000_123_456
"""20 November 2026, 11:00 UTC and a bit."""


def varint(value: int) -> bytes:
    """A number; negative ones take ten bytes."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    """A field that is left out when it is 0, as proto3 does."""
    return varint(field << 3) + varint(value) if value else b""


def sized(field: int, content: bytes | str) -> bytes:
    """Bytes, text, a message, packed numbers."""
    data = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(data)) + data


def packed(values: Iterable[int]) -> bytes:
    return b"".join(map(varint, values))


def pairs(values: Sequence[int], *, pack: bool = True) -> bytes:
    """A Tuple: one field 1, packed or value by value."""
    return sized(1, packed(values)) if pack else b"".join(varint(8) + varint(value) for value in values)


def exec_profile(step: NodeStep, *, pack: bool = True) -> bytes:
    """ExecProfile of a node's step."""
    out = number(1, step.run_count) + number(2, step.start_ns // 1000) + number(3, step.end_ns // 1000)
    for kind, field in (("accelerator", 4), ("cpu", 5)):
        devices: dict[str, list[Execution]] = {}
        for one in step.executions:
            if one.kind == kind:
                devices.setdefault(one.device, []).append(one)
        for device, found in devices.items():
            times = b"".join(sized(1, pairs([one.start_ns // 1000, one.dur_ns // 1000], pack=pack)) for one in found)
            out += sized(field, sized(1, device) + sized(2, times))
    for held in step.memory:
        values = (held.read_ns // 1000, 0, 0, 0, 0, held.requested_bytes, held.peak_bytes, held.residual_bytes,
                  held.output_bytes, held.in_use_bytes)  # fmt: skip
        out += sized(7, b"".join(number(field, value) for field, value in enumerate(values, 1)))
    return out


def profile_node(
    node: TfNode, number_: int, inputs: Mapping[int, tuple[int, int]] | None = None, *, pack: bool = True
) -> bytes:
    """ProfileNode. ``inputs``: slot -> (producer, which of its outputs)."""
    out = sized(1, node.name) + sized(9, node.op) + number(13, number_)
    for slot, (producer, output) in (inputs or {}).items():
        out += sized(2, number(1, slot) + number(2, producer))
        out += sized(14, number(1, producer) + number(2, output))
    if node.shape:
        out += sized(4, packed(node.shape))
    for word in node.op_types:
        out += sized(5, word)
    if node.device:
        out += sized(6, node.device)
    out += number(8, node.float_ops)
    for name, value in node.attributes.items():
        out += sized(11, sized(1, name) + sized(2, sized(2, value)))
    for slot, shape in node.output_shapes:
        out += sized(15, number(1, slot) + sized(2, pairs(shape, pack=pack)))
    for step in node.steps:
        out += sized(12, number(1, step.step) + sized(2, exec_profile(step, pack=pack)))
    return out


def profile_proto(profile: TfProfile, *, pack: bool = True, steps: bool = True) -> bytes:
    """A ProfileProto with the nodes of ``profile``, which have no inputs."""
    out = b"".join(
        sized(1, varint(8) + varint(at) + sized(2, profile_node(node, at, pack=pack)))
        for at, node in enumerate(profile.nodes)
    )
    out += number(2, 1)
    if steps:
        out += (
            sized(3, packed(profile.steps)) if pack else b"".join(varint(24) + varint(step) for step in profile.steps)
        )
    return out


def run_metadata(devices: Mapping[str, Sequence[tuple[str, int, int, str]]]) -> bytes:
    """RunMetadata: device -> records of (name, start in us, end in us after that, label)."""
    stats = b""
    for device, records in devices.items():
        ops = b"".join(
            sized(2, sized(1, name) + number(2, start) + number(4, end) + sized(8, label))
            for name, start, end, label in records
        )
        stats += sized(1, sized(1, device) + ops)
    return sized(1, stats)


def node(name: str, *times: tuple[int, int, str], step: int = 0, op: str = "", memory: int | None = None) -> TfNode:
    """A node with one step: (start in us after `START_US`, duration in us, device) each."""
    executions = tuple(
        Execution(device, "accelerator" if "stream:all" in device else "cpu", (START_US + at) * 1000, dur * 1000)
        for at, dur, device in times
    )
    steps: tuple[NodeStep, ...] = ()
    if executions:
        held = () if memory is None else (OpMemory(memory, memory, memory, memory),)
        steps = (
            NodeStep(
                step,
                sum(one.kind == "cpu" for one in executions),
                min(one.start_ns for one in executions),
                max(one.start_ns + one.dur_ns for one in executions),
                executions,
                held,
            ),
        )
    return TfNode(name=name, op=op or name.rpartition("/")[2], device=CPU if steps else "", steps=steps)


def random_profile(rng: Random) -> TfProfile:
    """Nodes in scopes, on two devices, that overlap, run several times, in some of the steps, take up to 2 s."""
    words = ("v", "tower_0", "cg", "conv1", "conv10", "conv-1", "conv2d", "Conv2D", "Relu", "gradients", "a b", "é")
    names = {"/".join(rng.choice(words) for _ in range(rng.randint(1, 6))) for _ in range(rng.randint(1, 30))}
    steps = sorted(rng.sample(range(-3, 40), rng.randint(1, 4)))
    nodes = []
    for name in sorted(names):
        ran = []
        device = rng.choice([CPU, GPU])
        for step in steps:
            if rng.random() < 0.3:
                continue
            kinds = rng.choices([device, KERNELS], k=rng.randint(0, 4))
            executions = sorted(
                (
                    Execution(
                        place,
                        "accelerator" if place == KERNELS else "cpu",
                        (START_US + step * 5_000_000 + rng.randrange(1000)) * 1000,
                        rng.choice([0, 1, 20, rng.randrange(2_000_000)]) * 1000,
                    )
                    for place in kinds
                ),
                key=lambda one: one.kind,
            )
            memory = tuple(
                OpMemory(*(rng.choice([0, 999, 1000, rng.randrange(10**10)]) for _ in range(4)))
                for _ in range(sum(one.kind == "cpu" for one in executions))
            )
            start = min((one.start_ns for one in executions), default=0)
            end = max((one.start_ns + one.dur_ns for one in executions), default=0)
            ran.append(NodeStep(step, len(memory), start, end, tuple(executions), memory))
        nodes.append(
            TfNode(
                name=name,
                op=rng.choice(words[5:10]),
                op_types=(rng.choice(words[5:10]), device),
                device=device if ran else "",
                shape=tuple(rng.choice([-1, 3, 64]) for _ in range(rng.randint(0, 3))),
                float_ops=rng.choice([0, 7, 10**6]),
                output_shapes=tuple((slot, tuple(rng.choice([-1, 1, 8]) for _ in range(2))) for slot in range(2)),
                attributes=rng.choice([{}, {"padding": "SAME"}]),
                steps=tuple(ran),
            )
        )
    nodes.sort(key=lambda one: one.name)
    return TfProfile(source=0, steps=tuple(steps), nodes=tuple(nodes))
