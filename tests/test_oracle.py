"""The second opinion's own tests: made-up traces of a few events, each with its answer written beside it.

Times are microseconds in the traces and nanoseconds in the answers, unless a test says otherwise.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.oracle import events, kineto, read
from tests.oracle.rules import Answer, Device, Step, answer, longest_repetition, union, without

US = MS = 1000
"""Nanoseconds, and microseconds."""
MAIN, AUTOGRAD = 7, 8
"""Threads of the host."""


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


def shares(step: Step) -> dict[str, float]:
    """Parts of a step, in microseconds; without what is nothing."""
    return {part: ns / US for part, ns in step.parts.items() if ns}


class Case(NamedTuple):
    """A trace of one device, and of each of its steps the window, the kernel time and the parts, in microseconds."""

    trace: Trace
    windows: list[tuple[float, float]]
    kernel_us: list[float]
    parts: list[dict[str, float]]
    kernels: list[int]
    left_out: dict[str, int] = {"before": 0, "between": 0, "unknown": 0}  # noqa: RUF012
    """Commands in no step."""


def empty_step(end: float) -> Trace:
    """Of 10 us on the host, behind one whose work ends then."""
    trace = Trace().step("ProfilerStep#0", 0, 100).step("ProfilerStep#1", 100, 110).step("ProfilerStep#2", 110, 200)
    return trace.run("a", 10, 20, end).run("b", 115, 160, 190)


def long_step() -> Trace:
    """Of 10 ms, with a kernel in the first one."""
    return Trace().step("ProfilerStep#0", 0, 10 * MS).run("a", 10, 100, 1 * MS)


def waiting_copy() -> Trace:
    trace = long_step().call("hipMemcpyWithStream", 500, 9 * MS)
    trace.row("gpu_memcpy", "c", (8 * MS, 9 * MS), 0, 0, device=0, stream=0, correlation=trace.ids)
    return trace


def overlapping() -> Trace:
    trace = steps(1).run("a", 10, 20, 60).run("b", 11, 40, 80, stream=1)
    trace.run("Memcpy DtoD (Device -> Device)", 12, 70, 95, stream=2, cat="gpu_memcpy")
    return trace.run("__amd_rocclr_fillBufferAligned", 13, 95, 97)


IN_STEPS = [(0, 100), (100, 200)]
CASES = {
    "the device has done everything before the host ends a step: the host's times are the boundaries": Case(
        steps(2).run("a", 10, 12, 30).run("a", 110, 112, 140), [*IN_STEPS], [18, 28],
        [{"compute": 18, "idle": 82}, {"compute": 28, "idle": 72}], [1, 1],
    ),
    "half a step behind it is never idle after its first command: a step begins where the work before it ends": Case(
        steps(2).run("a", 10, 20, 150).run("b", 110, 150, 260), [(0, 150), (150, 260)], [130, 110],
        [{"compute": 130, "idle": 20}, {"compute": 110}], [1, 1],
    ),
    "two steps behind": Case(
        steps(3).run("a", 10, 20, 320).run("b", 110, 320, 520).run("c", 210, 520, 700),
        [(0, 320), (320, 520), (520, 700)], [300, 200, 180],
        [{"compute": 300, "idle": 20}, {"compute": 200}, {"compute": 180}], [1, 1, 1],
    ),
    "more than half of each step passes before its first kernel: that is idle, in each of them": Case(
        steps(2).run("a", 60, 62, 99).run("a", 160, 162, 199), [*IN_STEPS], [37, 37], [{"compute": 37, "idle": 63}] * 2,
        [1, 1],
    ),
    "one step": Case(
        Trace().step("ProfilerStep#4", 10, 60).run("a", 15, 20, 50), [(10, 60)], [30], [{"compute": 30, "idle": 20}],
        [1],
    ),
    "one step that the device ends later": Case(
        Trace().step("ProfilerStep#4", 10, 60).run("a", 15, 20, 90), [(10, 90)], [70], [{"compute": 70, "idle": 10}],
        [1],
    ),
    # a step without kernels has what its time on the host leaves: all of it, half of it, nothing
    **{
        f"a step without kernels, behind {end} us": Case(
            empty_step(end), [(0, first), (first, second), (second, 200)], [end - 20, 0, 30],
            [{"compute": end - 20, "idle": first - end + 20}, {"idle": second - first} if second > first else {},
             {"compute": 30, "idle": 170 - second}], [1, 0, 1],
        )
        for end, first, second in ((90, 100, 110), (105, 105, 110), (150, 150, 150))
    },
    "a late all-reduce does not move the boundary, and is exposed where nothing is computed meanwhile": Case(
        steps(2).run("a", 10, 20, 80).run("b", 105, 110, 180).run("ncclDevKernel_Generic(x)", 50, 60, 130, stream=4),
        [*IN_STEPS], [60 + 70, 70],
        [{"compute": 60, "communication": 20, "idle": 20}, {"compute": 70, "communication": 10, "idle": 20}], [2, 1],
    ),
    "what the stream ran before anything on it was launched is in no step, and the first begins after it": Case(
        steps(2).run("x", None, 5, 40).run("x", None, 40, 80).run("a", 10, 80, 120).run("a", 110, 120, 230),
        [(80, 120), (120, 230)], [40, 110], [{"compute": 40}, {"compute": 110}], [1, 1],
        {"before": 2, "between": 0, "unknown": 0},
    ),
    "the first command waits for what nothing recorded: the step begins where the command does": Case(
        Trace().step("ProfilerStep#0", 0, 2000).run("a", 100, 5000, 5200).run("b", 200, 5250, 5500), [(5000, 5500)],
        [450], [{"compute": 450, "idle": 50}], [2],
    ),
    "a command whose launch is lost is in a step if it is between two commands of it": Case(
        steps(2).run("a", 10, 20, 30).run("x", None, 30, 40).run("b", 20, 40, 50).run("y", None, 50, 60)
        .run("a", 110, 120, 130).run("z", None, 130, 140),
        [*IN_STEPS], [30, 10], [{"compute": 40, "idle": 60}, {"compute": 20, "idle": 80}], [3, 1],
        {"before": 0, "between": 0, "unknown": 2},
    ),
    "a checkpoint between two steps is in no window, though the device runs it late": Case(
        Trace().step("ProfilerStep#0", 0, 100).step("ProfilerStep#1", 150, 250).run("a", 10, 20, 90)
        .run("save", 110, 120, 140).run("a", 160, 170, 240),
        [(0, 100), (150, 250)], [70, 70], [{"compute": 70, "idle": 30}] * 2, [1, 1],
        {"before": 0, "between": 1, "unknown": 0},
    ),
    "the backward pass is launched by another thread, while the step is open on the first": Case(
        steps(2).run("a", 10, 20, 90).run("b", 90, 105, 150, thread=AUTOGRAD).run("a", 110, 150, 160),
        [(0, 150), (150, 200)], [70 + 45, 10], [{"compute": 115, "idle": 35}, {"compute": 10, "idle": 40}], [2, 1],
    ),
    "commands that overlap count once": Case(
        overlapping(), [(0, 100)], [82], [{"compute": 60, "copies": 17, "idle": 23}], [3]
    ),
    "the host is in the call for 8 ms before the copy begins: the device was busy all the while": Case(
        waiting_copy(), [(0, 10 * MS)], [900],
        [{"compute": 900, "not recorded": 7 * MS, "copies": 1 * MS, "idle": 1100}], [1],
    ),
    "while the host waits for a graph whose kernels are not recorded, the device is not idle": Case(
        long_step().call("hipGraphLaunch", 1200, 1300).call("hipStreamSynchronize", 1400, 9400), [(0, 10 * MS)], [900],
        [{"compute": 900, "not recorded": 8 * MS, "idle": 1100}], [1],
    ),
    "what goes into a graph is not work": Case(
        long_step().call("hipStreamBeginCapture", 1100, 1101).call("hipLaunchKernel", 1200, 1300)
        .call("hipStreamEndCapture", 1310, 1320).call("hipStreamSynchronize", 1400, 9400),
        [(0, 10 * MS)], [900], [{"compute": 900, "idle": 9100}], [1],
    ),
    "a host that waits for nothing sleeps: all that was launched is recorded": Case(
        long_step().call("hipStreamSynchronize", 1400, 9400), [(0, 10 * MS)], [900], [{"compute": 900, "idle": 9100}],
        [1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_steps_of_a_device(case: Case) -> None:
    device = case.trace.device
    assert windows(device) == case.windows
    assert [step.kernel_ns / US for step in device.steps] == case.kernel_us
    assert [shares(step) for step in device.steps] == case.parts
    assert [step.kernels for step in device.steps] == case.kernels
    assert {name: getattr(device, name) for name in case.left_out} == case.left_out


def test_two_devices() -> None:
    """Each has its own boundaries, here of one process: the second one is behind."""
    trace = steps(2).run("a", 10, 12, 30).run("a", 110, 112, 140)
    told = trace.run("b", 11, 40, 140, device=1).run("b", 111, 140, 250, device=1).answer
    assert {place: windows(device) for place, device in told.devices.items()} == {
        (100, 0): [(0, 100), (100, 200)],
        (100, 1): [(0, 140), (140, 250)],
    }


def test_two_processes() -> None:
    """Each has its own steps and copies; what has no launch goes to the process whose device it ran on."""
    trace = steps(1).run("a", 10, 12, 30).run("c", 20, 31, 33, cat="gpu_memcpy")
    trace.step("ProfilerStep#0", 50, 90, process=200).run("b", 60, 70, 85, device=1, process=200)
    for start in (86, 88):
        trace.run("c", None, start, start + 1, device=1, cat="gpu_memcpy")
    told = trace.answer
    assert {place: windows(device) for place, device in told.devices.items()} == {
        (100, 0): [(0, 100)],
        (200, 1): [(50, 90)],
    }
    assert told.copies == {100: 1, 200: 2}


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


def batches() -> Trace:
    trace = Trace().step("epoch 0", 0, 300)
    for at in range(3):
        trace.step(f"my batch {at}", at * 100, at * 100 + 90).step("loss", at * 100 + 50, at * 100 + 60)
        trace.run("a", at * 100 + 5, at * 100 + 10, at * 100 + 40).run("b", at * 100 + 55, at * 100 + 60, at * 100 + 65)
    return trace


def two_parts() -> Trace:
    trace = Trace()
    for at in range(2):
        trace.step(f"part {at}", at * 100, at * 100 + 90).run(f"k{at}", at * 100 + 5, at * 100 + 10, at * 100 + 40)
    return trace


ENGINES = "execute_32_context_0(sq0)_generation_32(sq32)"


@pytest.mark.parametrize(
    ("trace", "names"),
    [
        # steps of a serving engine lie in those of the profiler
        (Trace().step("ProfilerStep#0", 0, 300).step(ENGINES, 10, 140).step("step[DECODE bs=32]", 20, 130)
         .step(ENGINES, 150, 290).run("a", 30, 40, 50).run("a", 160, 170, 180), [ENGINES] * 2),
        # ops are no steps, however often they come, and layers do not hold the launches
        (Trace().step("aten::linear", 0, 20).step("aten::linear", 20, 40).run("a", 5, 10, 15).run("b", 25, 30, 35), []),
        # ranges of any name come again, do not overlap, and hold nearly all launches: of two levels that with more
        (batches(), ["my batch 0", "my batch 1", "my batch 2"]),
        # a point in time is no step
        (Trace().step("iteration 1", 5, 5).run("a", 10, 20, 30).run("b", 20, 30, 40), []),
        (two_parts(), ["part 0", "part 1"]),
        (two_parts().run("c", 205, 210, 240), []),  # they hold too little
    ],
)  # fmt: skip
def test_which_ranges_are_steps(trace: Trace, names: list[str]) -> None:
    assert [step.name for step in trace.device.steps] == names


def test_steps_by_repetition() -> None:
    """``b`` to ``b``, from launch to launch; the last one has no end. What came first is in none."""
    trace = Trace().run("setup", 0, 1, 5)
    for at in range(3):
        start = 10 + 50 * at
        trace.run("a", start, start + 2, start + 20).run("b", start + 3, start + 20, start + 30)
    device = trace.device
    assert windows(device) == [(10, 60), (60, 110), (110, None)]
    assert [step.kernel_ns / US for step in device.steps] == [28, 28, 28]
    assert (device.between, device.marked) == (1, False)


def test_steps_by_repetition_where_no_call_is_recorded() -> None:
    trace = Trace()
    for at in range(2):
        start = 10 + 50 * at
        trace.run("a", None, start, start + 20).run("b", None, start + 20, start + 30)
    assert windows(trace.device) == [(10, 60), (60, None)]


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


def test_no_repetition_begins_within_a_graph() -> None:
    """Kernels without names in two graphs of three are two steps of three; behind the rest of another one, too."""
    assert longest_repetition("tttttt", [True, False, False] * 2) == (0, 3, 2)
    assert longest_repetition("bc" + "abc" * 7, [True, True, *[True, False, False] * 7]) == (2, 3, 7)


def test_union_and_what_is_left() -> None:
    assert union([(5, 7), (0, 2), (1, 3), (7, 8), (9, 9)]) == [(0, 3), (5, 8)]
    assert without([(0, 10), (20, 30)], [(2, 3), (8, 22), (29, 40)]) == [(0, 2), (3, 8), (22, 29)]


def test_it_shares_nothing_with_the_program() -> None:
    """Neither what it counts with nor what it reads with."""
    folder = Path(events.__file__).parent
    asked = "import sys, tests.oracle; print([name for name in sys.modules if name.startswith('mio2trace')])"
    done = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True, cwd=folder.parent.parent
    )
    assert done.stdout == "[]\n"


def test_kineto() -> None:
    """Times keep their nanoseconds, though a double would not; the process is that of the launch."""
    big = 1767189312000000
    trace = Trace()
    trace.row("cuda_runtime", "hipLaunchKernel", (0, 0), 9, 55, correlation=4)
    trace.row("kernel", "k", (0, 0), 2, 3, device=2, stream=3, correlation=4)
    text = (
        json.dumps({"traceEvents": trace.rows})
        .replace('"ts": 0', f'"ts": {big}.007')
        .replace('"dur": 0', '"dur": 1.001')
    )
    (command,) = kineto.recorded(json.loads(text, parse_float=str)).commands
    assert (command.start, command.end) == (big * 1000 + 7, big * 1000 + 1008)
    assert (command.process, command.device, command.stream) == (9, 2, 3)
