"""Runs made up kernel by kernel, already joined: what they cost can be counted by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from mio2trace.align import Alignment, LayerRun, Links, Net
from mio2trace.align.clocks.axis import SAME, DeviceClock, Piece
from mio2trace.align.links import DOUBTED
from mio2trace.evidence import ORDER, Evidence
from mio2trace.findings import Finding, Gpu, Subject, findings
from mio2trace.measures import Measures
from mio2trace.model.miopen import Message
from mio2trace.model.profile import (
    Activity,
    Call,
    Captured,
    Clock,
    Counter,
    Device,
    Framework,
    NumberKind,
    Profile,
    Queue,
    Range,
    SourceLine,
)
from mio2trace.ops.choices import Choices
from mio2trace.ops.operation import Operation
from tests.records import made_operation

US = 1000
MS = 1_000_000
SETUP = -1
OWN_CLOCK = DeviceClock(pieces=(Piece(0, 0),), error_ns=1, method="made up")


class Ran(msgspec.Struct, frozen=True):
    """A command: how long it runs, how long after the one before, whether the call was before that one's end."""

    name: str
    ns: int
    operation: int | None = None
    layer: str = ""
    layer_by: Evidence = ORDER
    after_ns: int = 0
    queued: bool = False
    graph: bool = False
    unsure: bool = False
    confidence: float = 1.0
    copy: bool = False
    route: str = ""
    size_bytes: int = 0
    called: str = ""
    """The name of the call; empty: that of a launch."""
    counters: tuple[float | None, ...] = ()
    grid: tuple[int, int, int] | None = None


def operation(index: int, **fields: Any) -> Operation:
    """A forward convolution of its own shape, unless ``fields`` say otherwise."""
    plain = {
        "index": index,
        "source": 0,
        "line": 10 * index + 1,
        "end_line": 10 * index + 9,
        "dtype": "float",
        "api": "miopenConvolutionForward",
        "primitive": "conv",
        "direction": "forward",
        "input": (1, 8 + index, 9, 9),
        "command": f"./bin/MIOpenDriver conv -c {8 + index}",
    }
    return made_operation(**(plain | fields))


def measures(
    iterations: Mapping[int, Sequence[Ran]],
    operations: Sequence[Operation] = (),
    *,
    calls: bool = True,
    calls_wait: bool = False,
    device: str = "",
    api: str = "hip",
    host_ns: Mapping[int, int] | None = None,
    other_calls: Sequence[Call] = (),
    ranges: Sequence[Range] = (),
    captured: int = 0,
    numbers: NumberKind = "dispatch_id",
    queue: Literal["queue", "stream"] = "queue",
    framework: str = "",
    stacks: bool = False,
) -> Measures:
    """``iterations``: by number, `SETUP` what is before them. ``host_ns``: how long before an iteration's first command
    the host is in it already. Each begins a second after the one before. ``captured``: launches into one graph.
    ``stacks``: the launches have lines of the program, ``train.py:8``.
    """
    activities: list[Activity] = []
    where: list[tuple[int, Ran]] = []
    now = 0
    for number, commands in iterations.items():
        now += 1000 * MS
        for place, one in enumerate(commands):
            start = now + one.after_ns
            launched = now - 1 if one.queued else start
            if not place:
                launched = start - (host_ns or {}).get(number, 0)
            name = one.called or (f"{api}GraphLaunch" if one.graph else f"{api}LaunchKernel")
            call = Call(name, 0, launched, launched if one.queued else max(launched, start)) if calls else None
            now = start + one.ns
            kind: Any = "copy" if one.copy else "kernel"
            more: Any = {"counters": one.counters, "route": one.route, "size_bytes": one.size_bytes, "grid": one.grid}
            activities.append(Activity(len(activities), kind, one.name, start_ns=start, end_ns=now, call=call, **more))
            where.append((number, one))
    profile = Profile(
        source=0,
        records=len(activities),
        activities=tuple(activities),
        queues=(Queue(index=0, device=0, kind=queue),),
        devices=(Device(index=0, name=device, clock=0),),
        clocks=(Clock("boottime"), Clock("device")),
        other_calls=tuple(other_calls),
        ranges=tuple(ranges),
        calls_wait=calls_wait,
        captured=tuple(Captured("a", 0, 0, number, None) for number in range(captured)),
        numbers=numbers,
        framework=Framework(name=framework),
        lines=(SourceLine("train.py", 8),),
        line_of={one.number: (0, 0) for one in activities} if stacks else {},
        counters=tuple(Counter(f"C{number}") for number in range(max(len(one.counters) for _, one in where))),
    )
    links = Links(profile.activities, operations)
    runs: dict[tuple[int, str], int] = {}
    for position, (number, one) in enumerate(where):
        phase: Any = "setup" if number == SETUP else "warm-up" if number == 0 else "iteration"
        pass_ = links.pass_id(phase, None if number == SETUP else number)
        if one.layer:
            if (number, one.layer) not in runs:
                run = LayerRun(layer=one.layer, layer_index=len(runs), direction=None, pass_=pass_)
                runs[number, one.layer] = links.runs.add(run)
            sure = DOUBTED if one.unsure else 1.0
            links.give_layer([position], runs[number, one.layer], one.layer_by, confidence=sure)
        links.give_pass([position], pass_)
        if one.operation is not None:
            sure = min(one.confidence, DOUBTED) if one.unsure else one.confidence
            links.give_operation([position], one.operation, ORDER, confidence=sure)
    clocks = {0: OWN_CLOCK if calls_wait else SAME}
    return Measures(Alignment(profile=profile, net=Net(), links=links, clocks=clocks, log_clock=None, facts={}))


def subject(
    iterations: Mapping[int, Sequence[Ran]],
    operations: Sequence[Operation] = (),
    *,
    gpu: Gpu | None = None,
    messages: Sequence[Message] = (),
    choices: Choices | None = None,
    processes: int = 1,
    **more: Any,
) -> Subject:
    return Subject(measures(iterations, operations, **more), gpu, messages, choices=choices, processes=processes)


def twice(each: Sequence[Ran], operations: Sequence[Operation] = (), **more: Any) -> Subject:
    """A run of two equal iterations."""
    return subject({1: each, 2: each}, operations, **more)


def rules(run: Subject) -> list[str]:
    """What is found in it."""
    return [one.rule.id for one in findings(run)]


def fired(run: Subject, rule: str) -> Finding:
    """The one finding of this rule."""
    (found,) = (one for one in findings(run) if one.rule.id == rule)
    return found
