"""The second opinion's own tests: made-up traces of a few events, each with its answer written beside it.

Times are microseconds in the traces and nanoseconds in the answers, unless a test says otherwise.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.oracle import events, kineto, read
from tests.oracle.rules import Answer, Device, Step, answer, longest_repetition

US = 1000
MAIN = 7
"""The thread of the host."""


class Trace:
    """A trace of PyTorch's profiler in the making."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.ids = 0

    def row(self, cat: str, name: str, span: tuple[float, float], pid: int, tid: int, **args: Any) -> None:
        times = {"ts": span[0], "dur": span[1] - span[0]}
        self.rows.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **times, "args": args})

    def step(self, name: str, start: float, end: float, process: int = 100) -> Trace:
        self.row("user_annotation", name, (start, end), process, MAIN)
        return self

    def call(self, name: str, start: float, end: float, process: int = 100, thread: int = MAIN) -> Trace:
        self.ids += 1
        self.row("cuda_runtime", name, (start, end), process, thread, correlation=self.ids)
        return self

    def run(
        self,
        name: str,
        launch: float | None,
        start: float,
        end: float,
        *,
        stream: int = 0,
        device: int = 0,
        process: int = 100,
        thread: int = MAIN,
        cat: str = "kernel",
    ) -> Trace:
        """A command and the call that launched it, of a microsecond; None: that is not in the trace."""
        if launch is not None:
            self.call("hipMemcpyAsync" if cat != "kernel" else "hipLaunchKernel", launch, launch + 1, process, thread)
        correlation = self.ids if launch is not None else -1
        self.row(cat, name, (start, end), device, stream, device=device, stream=stream, correlation=correlation)
        return self

    @property
    def answer(self) -> Answer:
        text = json.dumps({"traceEvents": self.rows})
        return answer(kineto.recorded(json.loads(text, parse_float=str)))

    @property
    def device(self) -> Device:
        (device,) = self.answer.devices.values()
        return device


def steps(count: int, each: float = 100) -> Trace:
    trace = Trace()
    for number in range(count):
        trace.step(f"ProfilerStep#{number}", number * each, (number + 1) * each)
    return trace


def windows(device: Device) -> list[tuple[float, float | None]]:
    return [(step.begin / US, None if step.end is None else step.end / US) for step in device.steps]


def kernel_us(device: Device) -> list[float]:
    return [step.kernel_ns / US for step in device.steps]


def shares(step: Step) -> dict[str, float]:
    """Parts of a step, in microseconds; without what is nothing."""
    return {part: ns / US for part, ns in step.parts.items() if ns}


def test_device_ahead() -> None:
    """It has done everything before the host ends a step: the host's times are the boundaries."""
    device = steps(2).run("a", 10, 12, 30).run("a", 110, 112, 140).device
    assert windows(device) == [(0, 100), (100, 200)]
    assert kernel_us(device) == [18, 28]
    assert [shares(step) for step in device.steps] == [{"compute": 18, "idle": 82}, {"compute": 28, "idle": 72}]


def test_device_behind_by_two_steps() -> None:
    device = steps(3).run("a", 10, 20, 320).run("b", 110, 320, 520).run("c", 210, 520, 700).device
    assert windows(device) == [(0, 320), (320, 520), (520, 700)]
    assert kernel_us(device) == [300, 200, 180]
    assert sum(step.parts["idle"] for step in device.steps) == 20 * US


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (90, [(0, 100), (100, 110), (110, 200)]),
        (105, [(0, 105), (105, 110), (110, 200)]),
        (150, [(0, 150), (150, 150), (150, 200)]),
    ],
)
def test_a_step_without_kernels(end: float, expected: list[tuple[float, float]]) -> None:
    """It has what its time on the host leaves: all of it, half of it, nothing, as the step before it ends."""
    trace = Trace().step("ProfilerStep#0", 0, 100).step("ProfilerStep#1", 100, 110).step("ProfilerStep#2", 110, 200)
    device = trace.run("a", 10, 20, end).run("b", 115, 160, 190).device
    assert windows(device) == expected
    assert [step.kernels for step in device.steps] == [1, 0, 1]


def test_two_streams() -> None:
    """A late all-reduce does not move the boundary, and is exposed where nothing is computed meanwhile."""
    trace = steps(2).run("a", 10, 20, 80).run("b", 105, 110, 180)
    device = trace.run("ncclDevKernel_Generic(x)", 50, 60, 130, stream=4).device
    assert windows(device) == [(0, 100), (100, 200)]
    assert kernel_us(device) == [60 + 70, 70]
    assert [shares(step) for step in device.steps] == [
        {"compute": 60, "communication": 20, "idle": 20},
        {"compute": 70, "communication": 10, "idle": 20},
    ]


def test_before_the_recording() -> None:
    """Nothing on the stream was launched yet, though steps have begun: it is in none, and the first begins after it."""
    trace = steps(2).run("x", None, 5, 40).run("x", None, 40, 80).run("a", 10, 80, 120).run("a", 110, 120, 230)
    device = trace.device
    assert (device.before, device.unknown) == (2, 0)
    assert windows(device) == [(80, 120), (120, 230)]
    assert kernel_us(device) == [40, 110]


def test_launches_that_are_lost() -> None:
    """Between two commands of one step it is in that step; between two steps it is in none."""
    trace = steps(2).run("a", 10, 20, 30).run("x", None, 30, 40).run("b", 20, 40, 50)
    device = trace.run("y", None, 50, 60).run("a", 110, 120, 130).run("z", None, 130, 140).device
    assert (device.before, device.unknown, [step.kernels for step in device.steps]) == (0, 2, [3, 1])
    assert kernel_us(device) == [30, 10]


MS = 1000


def test_a_copy_that_waits_for_what_is_not_recorded() -> None:
    """The host is in the call for 8 ms before the copy begins: the device was busy all the while."""
    trace = Trace().step("ProfilerStep#0", 0, 10 * MS).run("a", 10, 100, 1 * MS)
    trace.call("hipMemcpyWithStream", 500, 9 * MS)
    trace.row("gpu_memcpy", "c", (8 * MS, 9 * MS), 0, 0, device=0, stream=0, correlation=trace.ids)
    (step,) = trace.device.steps
    assert shares(step) == {"compute": 900, "not recorded": 7 * MS, "copies": 1 * MS, "idle": 100 + 1 * MS}


@pytest.mark.parametrize("captured", [False, True])
def test_a_graph_whose_kernels_are_not_recorded(captured: bool) -> None:
    """While the host waits for it, the device is not idle; but what goes into a graph is not work."""
    trace = Trace().step("ProfilerStep#0", 0, 10 * MS).run("a", 10, 100, 1 * MS)
    if captured:
        trace.call("hipStreamBeginCapture", 1100, 1101)
    trace.call("hipLaunchKernel" if captured else "hipGraphLaunch", 1200, 1300)
    if captured:
        trace.call("hipStreamEndCapture", 1310, 1320)
    (step,) = trace.call("hipStreamSynchronize", 1400, 9400).device.steps
    lost = 0 if captured else 8 * MS
    assert step.parts["not recorded"] / US == lost
    assert step.parts["idle"] / US == 100 + 9 * MS - lost


@pytest.mark.shared
def test_a_trace_whose_numbers_are_known(shared: Path) -> None:
    """Counted by others, and by hand: 757 kernels ran before the recording, three steps follow one another closely."""
    told = answer(read(shared / "samples" / "rocm" / "kineto_mi300x_resnet_train_ddp.json.gz"))
    (device,) = told.devices.values()
    assert (device.before, [step.kernels for step in device.steps]) == (757, [746, 746, 746])
    assert [round(step.kernel_ns / 1e6, 2) for step in device.steps] == [22.30, 22.26, 21.87]
    assert [round((step.length or 0) / 1e6, 2) for step in device.steps] == [18.98, 18.98, 18.55]
    assert all(0.004 <= step.parts["idle"] / (step.length or 1) < 0.0065 for step in device.steps)


# ---- which ranges are steps


def marked(trace: Trace) -> list[str]:
    return [step.name for step in trace.device.steps]


def test_ranges_of_any_name() -> None:
    """They come again, do not overlap, and hold nearly all launches: of two levels the one with more of them."""
    trace = Trace().step("epoch 0", 0, 300)
    for at in range(3):
        trace.step(f"my batch {at}", at * 100, at * 100 + 90).step("loss", at * 100 + 50, at * 100 + 60)
        trace.run("a", at * 100 + 5, at * 100 + 10, at * 100 + 40).run("b", at * 100 + 55, at * 100 + 60, at * 100 + 65)
    assert marked(trace) == ["my batch 0", "my batch 1", "my batch 2"]


def test_steps_by_repetition() -> None:
    """``b`` to ``b``, from launch to launch; the last one has no end. What came first is in none."""
    trace = Trace().run("setup", 0, 1, 5)
    for at in range(3):
        start = 10 + 50 * at
        trace.run("a", start, start + 2, start + 20).run("b", start + 3, start + 20, start + 30)
    device = trace.device
    assert windows(device) == [(10, 60), (60, 110), (110, None)]
    assert kernel_us(device) == [28, 28, 28]
    assert (device.between, device.marked) == (1, False)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("xababab", (1, 2, 3)),
        ("aaaa", (0, 1, 4)),
        ("abbbabbb", (0, 4, 2)),
        ("abcdef", (0, 0, 0)),
        ("abcdeefghi", (0, 0, 0)),
        ("setupababab", (5, 2, 3)),
        ("setup", (0, 0, 0)),
        ("asetupofitsownabab", (0, 0, 0)),
        ("ababababwhat", (0, 0, 0)),
    ],
)
def test_longest_repetition(names: str, found: tuple[int, int, int]) -> None:
    """It holds over half, nearly all from its begin on; of those that hold as much the shortest period."""
    assert longest_repetition(names, [True] * len(names)) == found


def test_it_shares_nothing_with_the_program() -> None:
    """Neither what it counts with nor what it reads with."""
    folder = Path(events.__file__).parent
    asked = "import sys, tests.oracle; print([name for name in sys.modules if name.startswith('mio2trace')])"
    done = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True, cwd=folder.parent.parent
    )
    assert done.stdout == "[]\n"
