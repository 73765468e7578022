"""The runs of tests/rocm_made.py in every form, whole and with damaged rows, as each reader reads them."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mio2trace
from mio2trace.align.clocks.axis import within_reach
from mio2trace.align.links import NONE
from mio2trace.conversion import convert
from mio2trace.model.profile import Activity, Call, Device, Profile, Range
from mio2trace.notes import Notes
from mio2trace.trace import Slice
from tests.rocm_files import read
from tests.rocm_made import FORMS, Run, rocpd, run, v3_tables

WITH_KERNELS = [name for name in FORMS if name != "ROCm v3 calls"]
MIOPENS = (
    "s_api = miopenConvolutionForward | alpha = 0x1 | xDesc = {64, 3, 32, 32}, {3072, 1024, 32, 1}, packed,  | "
    "x = 0x2 | wDesc = {16, 3, 3, 3}, {27, 9, 3, 1}, packed,  | w = 0x3 | "
    "convDesc = conv2d, {1, 1}, {1, 1}, {1, 1},  | algo = 1 | beta = 0x5 | "
    "yDesc = {64, 16, 32, 32}, {16384, 1024, 32, 1}, packed,  | y = 0x6 | workSpace = 0 | "
)
WITH_SIZES = "ROCm rocpd", "ROCm v3 object"
WITH_DEVICES = (*WITH_SIZES, "ROCm v3 kernels")
CLOCKS = dict.fromkeys(WITH_DEVICES, "boottime")
TABLES = "kernel_trace", "hip_api_trace", "marker_api_trace", "memory_copy_trace"


def profile_of(one: Run, form: str, folder: Path) -> tuple[Profile, Notes]:
    """The run as its form has it; that of v3's kernels is a set with all tables."""
    files = v3_tables(one) if form == "ROCm v3 kernels" else FORMS[form](one)
    for kind, data in zip(TABLES, files, strict=False):
        (folder / f"{kind}.csv").write_bytes(data)
    notes = Notes()
    (profile,) = read(folder / "kernel_trace.csv", None, notes, every_call=True)
    return profile, notes


@pytest.mark.parametrize("text", ["text", 'x = "y", z'])
@pytest.mark.parametrize("form", WITH_KERNELS)
def test_all_that_a_form_can_hold_is_read(form: str, text: str, tmp_path: Path) -> None:
    """Most writers escape nothing."""
    one = msgspec.structs.replace(run(text), device="AMD Instinct MI300X", private="")
    profile, notes = profile_of(one, form, tmp_path)
    kernels = [activity for activity in profile.activities if activity.kind == "kernel"]
    assert [activity.name for activity in kernels] == [f"conv_fwd {text}", f"relu {text}"]
    assert not notes.problems
    if form == "ROCm v1 table":
        return
    assert [made.text for made in profile.ranges] == [f"conv1 forward {text}", f"s_api = miopenF | p = {text} | "]
    (copy,) = (activity for activity in profile.activities if activity.kind == "copy")
    assert (copy.route, copy.size_bytes) == ("host to device", 4096 if form in WITH_SIZES else 0)
    assert (profile.process.pid, profile.clocks[0].kind) == (7, CLOCKS.get(form, "opaque"))
    assert form not in WITH_DEVICES or {device.name for device in profile.devices} == {one.device}
    launches = [f"hipLaunchKernel {text}"] * 2 + [f"hipMemcpy {text}"]
    if "events" in form:
        launches = [""] * 3 if "v1" in form else []
    else:
        assert [a.call and a.call.name for a in profile.activities] == launches
    calls = {activity.call.name for activity in profile.activities if activity.call is not None}
    calls |= {call.name for call in profile.other_calls}
    assert calls >= {f"hipMalloc {text}", *filter(None, launches)}


EMITTED = [
    # an op, with the numbers that `emit_nvtx` adds
    ("aten::addmm, seq = 3, op_id = 21, sizes = [[64], [64, 128], [128, 64], [], []], input_op_ids = [(20, 0), (0,-1)]",
     ("operator", "aten::addmm", 3, ((64,), (64, 128), (128, 64), (), ()))),
    ("aten::addmm, seq = 3, op_id = 21", ("operator", "aten::addmm", 3, None)),
    ("aten::relu, op_id = 9", ("operator", "aten::relu", None, None)),
    ("AddmmBackward0, seq = 3, op_id = 30", ("operator", "AddmmBackward0", 3, None)),
    ("autograd::engine::evaluate_function: AddmmBackward0, op_id = 29",
     ("operator", "autograd::engine::evaluate_function: AddmmBackward0", None, None)),
    ("vllm::unified_attention, op_id = 4, sizes = [[9, 8], [[2]]]",
     ("operator", "vllm::unified_attention", None, None)),
    ("CompiledFunction, seq = 7, op_id = 8", ("operator", "CompiledFunction", 7, None)),
    ("CompiledFunction, seq = 7, sizes = [[2]]", ("operator", "CompiledFunction", 7, ((2,),))),
    *((f"autograd::engine::evaluate_function: {name}, op_id = 8",
       ("operator", f"autograd::engine::evaluate_function: {name}", None, None))
      for name in ("torch::autograd::AccumulateGrad", "torch::autograd::CppNode<Mine, 2>")),
    # what the program named
    ("Optimizer.step#SGD.step, op_id = 19", ("range", "Optimizer.step#SGD.step", None, None)),
    ("FSDP::pre_forward (layers.0), op_id = 19", ("range", "FSDP::pre_forward (layers.0)", None, None)),
    ("ask, op_id = 19", ("range", "ask", None, None)),
    *((text, ("range", text, None, None)) for text in (
        "decode, seq = 128", "aten::addmm", "op_id = 4", "loss, op_id = x", "x, seq = 3, y",
        f"x, seq = {'9' * 30}", ", sizes = [[1]]")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), EMITTED)
@pytest.mark.parametrize("form", ["ROCm rocpd", "ROCm RPD", "ROCm v3 object", "ROCm v1 database"])
def test_pytorchs_ranges_are_unnumbered_ops(form: str, text: str, expected: tuple[Any, ...], tmp_path: Path) -> None:
    one = run()
    one.ranges[:] = [(text, *one.ranges[0][1:])]
    profile, notes = profile_of(one, form, tmp_path)
    (made,) = profile.ranges
    assert (made.kind, made.text, made.sequence, made.inputs and made.inputs.shapes) == expected
    assert not notes.problems


def test_steps_and_layers_of_a_training_that_pytorch_marks_with_ranges(tmp_path: Path) -> None:
    """Its numbers grow, so no range is named twice. What MIOpen says of an op is not said again."""
    one, at, number = Run(), 10**15, 0
    for step in range(4):
        begin = at
        for name, sequence, kernel, ns in (
            ("aten::miopen_convolution", 2 * step, "conv_fwd", 40_000), ("aten::relu", None, "relu", 5_000),
            ("aten::linear", 2 * step + 1, "Cijk_fwd", 30_000), ("AddmmBackward0", 2 * step + 1, "Cijk_bwd", 60_000),
            ("ConvolutionBackward0", 2 * step, "conv_bwd", 80_000), ("Optimizer.step#SGD.step", None, "foreach", 9_000),
        ):  # fmt: skip
            number += 1
            seen = "" if sequence is None else f", seq = {sequence}"
            one.ranges.append((f"{name}{seen}, op_id = {number}", at, at + 9_000, 1000 + number, 7))
            if "miopen" in name:
                one.ranges.append((MIOPENS, at + 500, at + 8_000, 2000 + number, 7))
            one.calls.append(("hipLaunchKernel", at + 1_000, at + 2_000, number, 7))
            begin = max(begin, at + 2_000)
            one.kernels.append((kernel, begin, begin + ns, number, 7))
            at, begin = at + 10_000, begin + ns
        at = begin
    path = tmp_path / "run.db"
    path.write_bytes(rocpd(one))
    (measures,) = mio2trace.analyse([path]).run.measures
    links = measures.alignment.links
    assert {made.iteration for made in links.passes} == {1, 2, 3, 4}
    named = Counter(
        (links.runs[place].layer, links.runs[place].direction) for place in links.run_of if place != NONE
    )  # fmt: skip
    assert named == dict.fromkeys(
        [("conv 1", "forward"), ("relu 1", "forward"), ("linear 1", "forward"), ("linear 1", "backward"),
         ("conv 1", "backward"), ("Optimizer.step#SGD.step", None)], 4)  # fmt: skip
    assert Counter(operation.api for operation in links.operations)["miopenConvolutionForward"] == 4
    assert "aten::miopen_convolution" not in {operation.api for operation in links.operations}


@pytest.mark.parametrize(
    ("start", "end"),
    [("soon", 5), (None, 5), (-1, 5), (30, 20), (10, (1 << 63) + 999), (5, "9" * 30), (1e300, 1e301), ("", "")],
)
@pytest.mark.parametrize("form", WITH_KERNELS)
def test_rows_that_are_no_numbers_lose_themselves_alone(form: str, start: Any, end: Any, tmp_path: Path) -> None:
    one = run()
    expected, _ = profile_of(one, form, tmp_path)
    one.kernels.insert(1, ("lost", start, end, 9, 7))
    found, notes = profile_of(one, form, tmp_path)
    assert [(a.name, a.start_ns) for a in found.activities] == [(a.name, a.start_ns) for a in expected.activities]
    assert found.ranges == expected.ranges
    assert [note.count for note in notes.problems] == [1]


@pytest.mark.parametrize("what", ["kernels", "calls", "ranges", "copies"])
def test_a_time_days_from_the_rest_is_left_out_alone(what: str, tmp_path: Path) -> None:
    """Host and device share a clock here: together they must stay within what a reader of JSON holds exactly."""
    one = run()
    rows = getattr(one, what)
    rows.append((rows[0][0], (1 << 62) - 5, 1 << 62, 90, 7))
    (tmp_path / "a.db").write_bytes(FORMS["ROCm rocpd"](one)[0])
    out = io.BytesIO()
    result = convert(tmp_path / "a.db", output=out, check=True, host_calls="all")
    events = [event for event in json.loads(out.getvalue())["traceEvents"] if event["ph"] == "X"]
    assert max(event["ts"] + event["dur"] for event in events) < 10_000
    assert [note.kind for note in result.notes.problems if "far" in note.kind]
    assert sum(event.get("cat") == "kernel" for event in events) == 2
    assert {"conv1 forward", "hipLaunchKernel"} <= {event["name"] for event in events}


def test_a_stream_without_a_number_is_beside_those_that_have_one(tmp_path: Path) -> None:
    before, relu, after = FORMS["ROCm v1 events"](run())[0].partition(b',{"ph":"X","name":"relu"')
    data = before.replace(b'"stream-id":"0"', b'"stream-id":""') + relu + after
    (tmp_path / "results.json").write_bytes(data)
    names = [track.name for track in convert(tmp_path / "results.json", check=True).trace.tracks]
    assert {"Stream 0: kernels", "Unknown stream: kernels"} <= set(names)
    assert len(set(names)) == len(names)


def test_what_is_in_a_range_that_is_left_out_is_in_none() -> None:
    """Places of ranges move up; the others keep theirs."""
    call = Call("hipLaunchKernel", 0, 100, 200)
    ranges = (Range("range", "far", 0, 0, 1 << 62), Range("range", "near", 0, 50, 300))
    made = tuple(Activity(place, "kernel", "k", start_ns=300, end_ns=400, call=call, range=place) for place in range(2))
    near = within_reach(
        Profile(source=0, records=4, activities=made, ranges=ranges, devices=(Device(index=0, clock=0),)), Notes()
    )
    assert near.ranges == ranges[1:]
    assert [activity.range for activity in near.activities] == [None, 0]
    assert near.activities[0].call == call
    assert near.activities[0].call is near.activities[1].call


def test_calls_within_calls_go_on_in_another_row(tmp_path: Path) -> None:
    """Hundreds of calls that begin at once nest no deeper than a viewer shows; none is lost."""
    one = run()
    one.calls[:] = [(f"call {number}", 10**15, 10**15 + 2000 + number, 90 + number, 7) for number in range(300)]
    (tmp_path / "a.db").write_bytes(FORMS["ROCm rocpd"](one)[0])
    events = convert(tmp_path / "a.db", check=True, host_calls="all").trace.events()
    rows = Counter(one.track for one in events if isinstance(one, Slice) and one.category == "api")
    assert sum(rows.values()) == 300
    assert max(rows.values()) == 100
