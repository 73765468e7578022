"""Steps that only kernels show, in runs whose streams mix in another way in each step: both counts say the same.

The main stream runs ``a b c d e`` in each step. A second one runs two collectives, launched beside ``b`` and ``d``,
which begin whenever other processes are ready.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import mio2trace
from mio2trace.answer import report_of
from mio2trace.measures import Measures
from tests import oracle
from tests import test_v3_json as v3
from tests.headlines import Row, measured, rows
from tests.kineto_files import FIRST_US, kineto_file, row
from tests.oracle import rules

US = 1000
STEPS = 8
LENGTH = 500 * US


def kernel(name: int, stream: int, start: int, end: int, launch: int) -> dict[str, Any]:
    row = v3.made()["buffer_records"]["kernel_dispatch"][0]
    info = {**row["dispatch_info"], "kernel_id": name, "dispatch_id": launch}
    times = {"start_timestamp": start, "end_timestamp": end}
    return {
        **row, **times, "dispatch_info": info, "stream_id": {"handle": stream},
        "correlation_id": {"internal": launch, "external": 0},
    }  # fmt: skip


def profile(folder: Path, kernels: list[dict[str, Any]], **more: Any) -> Path:
    """A profile of kernels alone: no calls, no ranges."""
    process = v3.made(kernel_dispatch=kernels, hip_api=[], marker_api=[], memory_copy=[], **more)
    process["agents"][0]["type"] = 2  # a GPU
    names = "abcdefgh"
    process["kernel_symbols"] = [{"kernel_id": at, "formatted_kernel_name": name} for at, name in enumerate(names)]
    process["kernel_symbols"].append({"kernel_id": 9, "formatted_kernel_name": "ncclDevKernel_Generic_1"})
    return v3.written(folder, process)


def mixed(rng: random.Random, *, late: int = 200 * US) -> list[dict[str, Any]]:
    """The collectives begin up to ``late`` after their launch, in order."""
    found, launch, until = [], 100, 0
    for step in range(STEPS):
        begin = 10**15 + step * LENGTH
        for at in range(5):
            launch += 1
            start = begin + at * 50 * US
            found.append(kernel(at, 1, start, start + 40 * US, launch))
            if at in (1, 3):
                launch += 1
                start = max(start + rng.randrange(late), until)
                until = start + rng.randrange(20 * US, 60 * US)
                found.append(kernel(9, 2, start, until, launch))
    return found


def agreed(path: Path) -> Measures:
    """The program's measures, of which the second opinion says the same."""
    found: list[Row] = rows(path, path.name)
    assert [row.wrong for row in found] == [{}] * len(found)
    (one,) = measured(path)
    return one


@pytest.mark.parametrize("seed", range(5))
def test_the_main_stream_repeats(seed: int, tmp_path: Path) -> None:
    """Collectives are in the step that launched them, though some begin in the next one."""
    told = agreed(profile(tmp_path, mixed(random.Random(seed), late=450 * US))).steady.told
    assert (told.told_by, [one.kernels for one in told.all]) == ("repetition", [7] * STEPS)
    assert [one.step_ns for one in told.all] == [LENGTH] * (STEPS - 1) + [None]


def test_set_up_before_and_other_work_behind(tmp_path: Path) -> None:
    """Neither is in a step; what the second stream launches behind the last kernel of a step is in that step."""
    kernels = mixed(random.Random(1))
    begin = 10**15 - 300 * US
    kernels += [kernel(5 + at, 1, begin + at * 50 * US, begin + at * 50 * US + US, 10 + at) for at in range(3)]
    kernels.append(kernel(9, 2, begin, begin + US, 5))
    begin = 10**15 + STEPS * LENGTH
    kernels += [kernel(9, 2, begin, begin + US, 900), kernel(7, 1, begin + US, begin + 2 * US, 901)]
    kernels.append(kernel(9, 2, begin + 3 * US, begin + 4 * US, 902))
    told = agreed(profile(tmp_path, kernels)).steady.told
    assert [one.kernels for one in told.all] == [7] * (STEPS - 1) + [8]


@pytest.mark.parametrize("given", ["none", "of another order"])
def test_what_other_streams_ran_is_in_no_step_if_nothing_tells_its_launch(given: str, tmp_path: Path) -> None:
    """Ids that contradict the order on a stream tell nothing."""
    kernels = mixed(random.Random(2))
    for at, one in enumerate(kernels):
        if given == "none":
            del one["correlation_id"]["internal"]
        else:
            one["correlation_id"]["internal"] = 10_000 - at
    path = profile(tmp_path, kernels)
    (made,) = measured(path)
    assert [iteration.kernels for iteration in made.steady.told.all] == [5] * STEPS
    if given != "none":
        (device,) = rules.answer(oracle.read(path)).devices.values()
        assert [step.kernels for step in device.steps] == [5] * STEPS


def test_two_streams_of_equal_work(tmp_path: Path) -> None:
    """Neither has most kernels: the order of the launches shows the steps."""
    rng = random.Random(4)
    kernels, launch = [], 0
    for step in range(STEPS):
        for at in range(4):
            for stream in (1, 2):
                launch += 1
                start = 10**15 + step * LENGTH + at * 100 * US + rng.randrange(60 * US)
                kernels.append(kernel(at + 4 * (stream - 1), stream, start, start + 30 * US, launch))
    told = agreed(profile(tmp_path, kernels)).steady.told
    assert (told.told_by, [one.kernels for one in told.all]) == ("repetition", [8] * STEPS)


def test_threads_that_launch_at_once(tmp_path: Path) -> None:
    """Where launches are recorded, their order may mix, too: two threads launch on two streams."""
    rng = random.Random(3)
    events: list[dict[str, Any]] = []
    number = 0

    def run(name: str, stream: int, thread: int, launch: float, start: float, end: float) -> None:
        nonlocal number
        number += 1
        for cat, called, place, span, args in (
            ("cuda_runtime", "hipLaunchKernel", (7, thread), (launch, launch + 1), {}),
            ("kernel", name, (0, stream), (start, end), {"device": 0, "stream": stream}),
        ):
            times = {"ts": span[0], "dur": span[1] - span[0]}
            args = {**args, "correlation": number}
            events.append(
                {"ph": "X", "cat": cat, "name": called, "pid": place[0], "tid": place[1], **times, "args": args}
            )

    for step in range(STEPS):
        begin = 1000.0 + 500 * step
        for at, name in enumerate("abcde"):
            run(name, 1, 7, begin + 50 * at, begin + 50 * at + 5, begin + 50 * at + 45)
        for at in range(2):
            launch = begin + 100 * at + rng.randrange(5, 95)
            run("ncclDevKernel_Generic_1", 2, 8, launch, launch + 3, launch + 4)
    path = tmp_path / "rank0.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))
    told = agreed(path).steady.told
    assert (told.told_by, [one.kernels for one in told.all]) == ("repetition", [7] * STEPS)


def test_a_run_without_steps_has_none(tmp_path: Path) -> None:
    """What repeats on a stream that is not most of the run is no step."""
    rng = random.Random(5)
    kernels = [kernel(rng.randrange(8), 1, 10**15 + at * US, 10**15 + at * US + 900, at + 1) for at in range(60)]
    kernels += [kernel(at % 3, 2, 10**15 + at * US + 100, 10**15 + at * US + 950, 100 + at) for at in range(30)]
    assert agreed(profile(tmp_path, kernels)).steady.told.told_by == "whole"


def test_kernels_that_took_no_time_repeat(tmp_path: Path) -> None:
    """A clock of whole microseconds has many."""
    starts = [10**15 + step * LENGTH + at * 50 * US for step in range(STEPS) for at in range(5)]
    kernels = [kernel(place % 5, 1, start, start, 100 + place) for place, start in enumerate(starts)]
    analysis = mio2trace.analyse([profile(tmp_path, kernels)])
    assert (
        report_of(analysis, analysis.runs).sections[0].verdict.startswith("0.500 ms per iteration, 0 ns of kernels (")
    )


@pytest.mark.parametrize(
    ("long", "said"), [(10, ""), (2000, ", found by repetition; 55.6 % of the kernel time is in no iteration")]
)
def test_kernel_time_in_no_step_is_mentioned(long: int, said: str, tmp_path: Path) -> None:
    """A kernel of ``long`` us before eight steps of 200 us each: 2,000 of 3,600 us."""
    kernels = [kernel(6, 1, 10**15 - (long + 9) * US, 10**15 - 9 * US, 90)]
    for step in range(STEPS):
        for at in range(5):
            start = 10**15 + step * LENGTH + at * 50 * US
            kernels.append(kernel(at, 1, start, start + 40 * US, 100 + 5 * step + at))
    analysis = mio2trace.analyse([profile(tmp_path, kernels)])
    verdict = report_of(analysis, analysis.runs).sections[0].verdict
    assert verdict.endswith(f"(7 steady of 8{said}).")  # nothing shows where the last one ends


@pytest.mark.parametrize(("launches", "told_by"), [(1, "whole"), (4, "repetition")])
def test_kernels_without_sizes_of_one_graph_launch_are_no_steps(launches: int, told_by: str, tmp_path: Path) -> None:
    """They may repeat within the launch. A file with many commands has no record of each."""
    events = []
    for number in range(launches):
        first = FIRST_US + 1000 * number
        events.append(row("cuda_runtime", "hipGraphLaunch", 7, 7, first, 5, correlation=number + 1))
        events += [
            row("kernel", f"k{place % 2}", 2, 0, first + 10 * place + 10, 5, device=2, stream=0, correlation=number + 1)
            for place in range(60)
        ]
    (measures,) = mio2trace.analyse(kineto_file(tmp_path, events)).run.measures
    assert measures.steady.told.told_by == told_by
    assert len(measures.steady.told.all) == launches
