"""Counters among the slices of their device: in order, none lost, none that says nothing."""

from __future__ import annotations

import io
import itertools
import json
import math
from collections import Counter
from operator import itemgetter
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mio2trace
from mio2trace.conversion import HostCalls
from mio2trace.draw import extra
from mio2trace.draw.base import all_three_digits, highest_shown
from mio2trace.trace import CounterValue, Slice
from mio2trace.writers import chrome_json
from tests.conftest import REQUIRED
from tests.fuzz.law import on_disk
from tests.small_runs import Program, as_json
from tests.test_trace import picture, seeds, slices, tangled

ALEXNET = Path(__file__).parent.parent / "traces" / "alexnet-b1-train"


@given(seeds)
def test_a_counter_stands_where_its_time_is(rng: Random) -> None:
    """After the slices of its track that start no later, before those that start later; on its device's main track, or
    on that of the stream that it is of."""
    trace, _ = picture(tangled(rng), "none")
    main = {track.process: track.id for track in trace.tracks if track.main}
    apart = {(track.process, track.name.partition(":")[0] + " busy"): track.id for track in trace.tracks if track.apart}
    began: dict[int, int] = {}
    counted: dict[int, int] = {}
    for event in trace.events():
        if isinstance(event, CounterValue):
            assert event.track == apart.get((event.process, event.name), main[event.process])
            assert max(began.get(event.track, 0), counted.get(event.track, 0)) <= event.time_ns
            counted[event.track] = event.time_ns
        elif isinstance(event, Slice):
            assert counted.get(event.track, -1) < event.start_ns
            began[event.track] = event.start_ns


def test_every_gemm_has_its_rate_and_only_long_pauses_a_zero() -> None:
    """The rate is the kernel's own; a 0 stands at the end of a GEMM that no other follows within its own time.

    All rates have three digits. A buffer's handle that comes again with its old size changes nothing.
    """
    trace = mio2trace.convert(ALEXNET / "run.log", ALEXNET / "prof.json.gz", host_calls="none").trace
    events = list(trace.events())
    gemms = [one for one in slices(events, "kernel") if "gemm" in one.shared]
    changes: list[tuple[int, float]] = []
    for one, following in zip(gemms, [*gemms[1:], None], strict=True):
        changes.append((one.start_ns, one.args["gflops"]))
        end = one.start_ns + one.dur_ns
        if following is None or following.start_ns - end >= one.dur_ns:
            changes.append((end, 0))
    expected = [next(same) for _, same in itertools.groupby(changes, key=itemgetter(1))]
    counters = [one for one in events if isinstance(one, CounterValue)]
    found = [(one.time_ns, one.value) for one in counters if one.name == "GEMM"]
    assert found == expected
    zeros = Counter(value == 0 for _, value in found)
    assert 0 < zeros[True] < zeros[False]
    rates = [one.args["gflops"] for one in events if isinstance(one, Slice) and "gflops" in one.args]
    rates += [one.value for one in counters if one.unit.endswith("/s")]
    assert len(rates) > 100
    assert all(rate == float(f"{rate:.3g}") for rate in rates)
    buffers = [one.value for one in counters if one.name == "OpenCL buffers"]
    assert buffers
    assert all(one != other for one, other in itertools.pairwise(buffers))


@given(
    st.floats(0, 1e12)
    | st.floats(0, 0.2)
    | st.integers(0, 10**7).map(lambda number: number / 2000)
    | st.integers(0, 10**6).map(lambda number: number / 10**7)
)
def test_a_rate_is_shown_as_it_would_be_printed(rate: float) -> None:
    """However it is rounded, to the last digit, also between two numbers."""
    assert all_three_digits(np.array([rate])).tolist() == [float(f"{rate:.3g}")]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 4096])
def test_rows_of_values_end_anywhere(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is empty, and together they are what one row is."""
    monkeypatch.setattr(extra, "ROW", size)
    at_work = [(0, 5.0, 10), (100, 7.0, 105), (200, 5.0, 210)]
    changes = [change for start, rate, end in at_work for change in ((start, 1, rate), (end, -1, -rate))]
    rows = [*extra._in_rows(extra._steps(changes))]
    assert all(times and len(times) == len(values) <= size for times, values in rows)
    together = [pair for times, values in rows for pair in zip(times, values, strict=True)]
    assert together == [(0, 5.0), (10, 0.0), (100, 7.0), (105, 0.0), (200, 5.0), (210, 0.0)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=5), st.booleans())
def test_changes_come_in_order_of_time(made: list[tuple[int, int]], in_order: bool) -> None:
    """Whether one span follows the other or not; what ends goes before what begins at once."""
    starts = [start for start, _ in made]
    if in_order:  # each begins where the one before ends, or later
        starts = [sum(start + length for start, length in made[:at]) for at in range(len(made))]
    ends = [start + length for start, (_, length) in zip(starts, made, strict=True)]
    rates = [float(number + 1) for number in range(len(made))]
    both = [(start, 1, rate) for start, rate in zip(starts, rates, strict=True)]
    both += [(end, -1, -rate) for end, rate in zip(ends, rates, strict=True)]
    assert [*extra._changes(starts, ends, rates)] == sorted(both)


@pytest.mark.parametrize(("rates", "highest"), [
    ([1.0] * 19 + [1000.0], 4.0),
    ([1.0] * 18 + [1000.0], math.inf),
    ([float(rate) for rate in range(1, 101)], 380.0),
])  # fmt: skip
def test_one_outlier_does_not_flatten_the_axis(rates: list[float], highest: float) -> None:
    """Far above nearly all others a rate is drawn at the end of the axis; of few rates none is far from all."""
    assert highest_shown(rates) == highest


def test_what_is_asked_for_most_stands_first() -> None:
    """Of containers their share of the iteration and their rate; of kernels the operation's name; in both forms."""
    run = ALEXNET.with_name("alexnet-b1-miopen29")
    trace = mio2trace.convert(run / "run.log.gz", run / "prof.json.gz").trace
    out = io.BytesIO()
    chrome_json.write(trace, out)
    drawn = [event for event in json.loads(out.getvalue())["traceEvents"] if event.get("tid") == 101]
    (whole,) = [event["args"]["kernel_ns"] for event in drawn if event["name"] == "iteration 1 · forward"]
    layers = [event["args"] for event in drawn if event.get("cat") == "layer" and event["args"]["iteration"] == 1]
    first = ["percent_of_kernel_time", "gflops", "kernel_ns"]
    assert next(list(args)[:3] for args in layers if "gflops" in args) == first
    assert all(args["percent_of_kernel_time"] == float(f"{100 * args['kernel_ns'] / whole:.3g}") for args in layers)
    assert 90 < sum(args["percent_of_kernel_time"] for args in layers) < 101
    kernels = [event["args"] for event in drawn if event.get("cat") == "kernel" and "operation" in event["args"]]
    assert {next(iter(args)) for args in kernels} == {"operation_name"}
    names = {event["args"]["operation"]: event["name"] for event in drawn if event.get("cat") == "operation"}
    assert all(args["operation_name"] == names[args["operation"]] for args in kernels)


@pytest.mark.parametrize("host_calls", ["all", "enqueue", "none"])
@given(rng=st.randoms(use_true_random=False))
@settings(max_examples=60 if "thorough" in REQUIRED else 20, deadline=None)
def test_calls_in_any_order_begin_where_the_trace_does(host_calls: HostCalls, rng: Random) -> None:
    """The trace is zero where its first slice begins, and counters are within it: host stamps in any order, commands
    in any order on the device, calls of other kinds among them or none.
    """
    program = Program()
    builds = rng.random() < 0.7
    for number in range(rng.randint(2, 8)):
        if builds and rng.random() < 0.5:
            program.program(handle=f"0x4{number}")
        program.buffer(size=1 << number, handle=f"0x5{number}")
        program.enqueue("k", "0x60")
    calls = program.calls[1:]
    for key in ("timestamp", "profiling"):
        having = [call for call in calls if key in call]
        if rng.random() < 0.7:
            values = [call[key] for call in having]
            rng.shuffle(values)
            for call, value in zip(having, values, strict=True):
                call[key] = value
    with on_disk([as_json(program.calls)]) as paths:
        events = list(mio2trace.convert(*paths, host_calls=host_calls).trace.events())
    drawn = [one for one in events if isinstance(one, Slice)]
    assert min(one.start_ns for one in drawn) == 0
    end = max(one.start_ns + one.dur_ns for one in drawn)
    assert all(0 <= one.time_ns <= end for one in events if isinstance(one, CounterValue))
