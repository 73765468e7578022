"""PyTorch profiler traces: every row with its exact times, each launch found, in its process; damage is counted."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mio2trace
from mio2trace.model.profile import Activity, Profile, Range
from mio2trace.notes import UNREADABLE, InputError, Notes
from mio2trace.readers import kineto, pieces
from mio2trace.trace import Flow, Slice
from tests import headlines
from tests.commands import invoked
from tests.kineto_files import (
    BASE_NS,
    FIRST_US,
    Row,
    aligned,
    kineto_alignment,
    kineto_file,
    launched,
    operations_by_kernel,
    row,
    rows,
    trace,
)
from tests.often import present, saved
from tests.raw_profiles import Kineto
from tests.rocm_files import read, read_made, samples

SAMPLES = (
    "kineto_mi210_gpu_only.json.gz", "kineto_mi250_minitoy_train.json", "kineto_mi300_resnet50_ddp4_rank0.json.gz",
    "kineto_mi300x_flux_graph_capture.json.gz", "kineto_mi300x_resnet_train_ddp.json.gz",
    "kineto_mi300x_vit_infer.json.gz",
)  # fmt: skip
WITHOUT_LAUNCH = "kernel whose launch was not recorded: no arrow leads to it"
FIRST_NS = BASE_NS + 3_743_411_230_047_485


CUT = "file cut off: read up to there"
UNREAD = "arguments of a row that could not be read"
MAIN = "igemm_fwd_gtcx3_nhwc_bf16"


def of(folder: Path, made: bytes | list[Row], *, everything: bool = False) -> tuple[Profile, dict[str, int]]:
    """The profile of a file, or of one with these rows, and what was noted."""
    data = made if isinstance(made, bytes) else trace(made)
    (profile,), noted = read_made(folder, data, kineto, every_call=everything)
    return profile, noted


def kernels(profile: Profile) -> list[str]:
    return [activity.name for activity in profile.activities if activity.kind == "kernel"]


@pytest.mark.shared
@pytest.mark.parametrize("name", SAMPLES)
def test_every_kernel_of_a_sample_is_drawn_once_with_the_op_that_launched_it(name: str) -> None:
    """Lanes or not, with its exact length and distance from the first; ops by correlation and External id."""
    path = samples() / "rocm" / name
    raw = Kineto(path)
    events = [row.source for row in raw.rows]
    result = mio2trace.convert(path, check=True)
    drawn = [event for event in result.trace.events() if isinstance(event, Slice) and event.category == "kernel"]
    begin = min(event.start_ns for event in drawn)
    first = min(row.start for row in raw.rows if row.kind == "kernel")
    assert Counter((event.start_ns - begin, event.dur_ns) for event in drawn) == Counter(
        (row.start - first, row.end - row.start) for row in raw.rows if row.kind == "kernel"
    )
    launches = {e["args"]["correlation"]: e["args"] for e in events if e.get("cat") == "cuda_runtime"}
    ops = {e["args"]["External id"]: e["name"] for e in events if e.get("cat") in ("cpu_op", "user_annotation")}
    (profile,) = read(path, kineto)
    assert Counter(
        (a.correlation, None if a.range is None else profile.ranges[a.range].text)
        for a in profile.activities
        if a.kind == "kernel"
    ) == Counter(
        (e["args"]["correlation"], ops.get(launches.get(e["args"]["correlation"], e["args"]).get("External id")))
        for e in events
        if e.get("cat") == "kernel"
    )
    zero = raw.text.get("baseTimeNanoseconds", 0)
    assert Counter(
        (one.start_ns - zero, one.end_ns - zero) for one in profile.ranges if one.kind == "operator"
    ) == Counter((row.start, row.end) for row in raw.rows if row.source.get("cat") == "cpu_op")


def test_the_rows_of_a_step(tmp_path: Path) -> None:
    """Ops with what they were given, calls on threads, kernels on streams, sizes in work-items, routes, rank."""
    profile, notes = of(tmp_path, trace())
    assert notes == {
        "Python function not drawn: --host-calls all draws all of them, modules are drawn anyway": 1,
        WITHOUT_LAUNCH: 1,
    }
    by_name = {activity.name: activity for activity in profile.activities}
    assert list(by_name) == ["before_the_trace", "SubTensorOpWithScalar1d", MAIN, "copy host to device", "fill"]
    helper, main = by_name["SubTensorOpWithScalar1d"], by_name[MAIN]
    assert (helper.start_ns, helper.end_ns) == (FIRST_NS + 30_250, FIRST_NS + 36_489)
    assert (helper.grid, helper.workgroup) == ((65536, 1, 1), (256, 1, 1))
    assert (main.grid, main.workgroup) == ((245 * 256, 2, 1), (256, 1, 1)), "blocks of the launch row"
    assert present(main.call).name == "hipLaunchKernel"
    alone = by_name["before_the_trace"]
    assert (alone.call, alone.range, alone.grid) == (None, None, None), "its correlation is no id of an op"
    copied = by_name["copy host to device"]
    assert (copied.route, copied.size_bytes) == ("host to device", 616)
    (op,) = (made for made in profile.ranges if made.kind == "operator")
    assert profile.ranges[present(main.range)] is op
    assert (op.id, op.sequence, op.start_ns, op.end_ns) == (45, 7, FIRST_NS + 10_000, FIRST_NS + 110_500)
    assert op.inputs is not None
    assert op.inputs.shapes[:2] == ((10, 64, 56, 56), (64, 64, 3, 3))
    assert op.inputs.dtypes[:4] == ("bfloat16", "bfloat16", "", "")
    assert op.inputs.strides[1] == (576, 9, 3, 1)
    assert op.inputs.values[3] == "[1, 1]"
    assert [made.text for made in profile.ranges if made.kind == "frame"] == ["nn.Module: Conv2d_0"]
    (process,) = profile.processes
    assert (process.pid, process.rank) == (542, 3)
    assert [(queue.kind, queue.number) for queue in profile.queues] == [("stream", 0), ("stream", 4)]
    assert [device.name for device in profile.devices] == ["AMD Instinct MI300X"]
    everything, notes = of(tmp_path, trace(), everything=True)
    assert sum(made.kind == "frame" for made in everything.ranges) == 2
    assert notes == {WITHOUT_LAUNCH: 1}


def comparable(profile: Profile) -> list[tuple[Any, ...]]:
    """Names and times of all activities and ranges."""
    made: list[Activity | Range] = [*profile.activities, *profile.ranges]
    return [(one.kind, one.name if isinstance(one, Activity) else one.text, one.start_ns, one.end_ns) for one in made]


def text_ids() -> list[Row]:
    """Some tools write every number so."""
    return [
        {**event, "pid": str(event["pid"]), "tid": str(event["tid"])}
        | {"args": {key: str(one) if isinstance(one, int) else one for key, one in event["args"].items()}}
        for event in rows()
    ]


def flows() -> list[Row]:
    """Traces of 2024 on AMD have no correlation on kernels; the flow that ends on one carries the launch's."""
    events = rows()
    for event in [one for one in events if one["cat"] == "kernel"]:
        number = event["args"].pop("correlation")
        events.append(event | {"ph": "f", "id": number, "cat": "ac2g", "name": "ac2g", "bp": "e"})
    return events


OLDER = {
    "cpu_op": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel", "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset", "ac2g": "async_gpu",
}  # fmt: skip
"""Before PyTorch 1.13."""
RENAMED = [OLDER, {"kernel": "concurrent_kernel"}]
RENAMED += [{"cuda_runtime": f"{on}_{of}"} for on in ("hip", "xpu", "privateuse1") for of in ("runtime", "driver")]
BLOCKS = [{"name": "a", "ph": "no"}, {"name": "b", "args": [{"name": 1}, {"ph": "]"}]}]
SAME: dict[str, bytes | list[Row]] = {
    "late base": trace(late=True),
    "gzip": gzip.compress(trace()),
    "keys in order": json.dumps(json.loads(trace()), sort_keys=True).encode(),
    "one line": json.dumps(json.loads(trace()), separators=(",", ":")).encode(),
    "lists before and behind": trace(late=True, metadata=BLOCKS)[:-2] + b', "z": %b}' % json.dumps(BLOCKS).encode(),
    "ids as text": text_ids(),
    "flows": flows(),
    # PyTorch 1.12 calls ``ac2g`` otherwise, and its rows state the launches, too
    "older flows": [*rows(), row("async_cpu_to_gpu", "async_gpu", 542, 542, FIRST_US, 0) | {"ph": "s", "id": 71}],
    **{str(named): [one | {"cat": named.get(one["cat"], one["cat"])} for one in rows()] for named in RENAMED},
}


@pytest.mark.parametrize("form", SAME)
def test_forms_of_the_same_trace(form: str, tmp_path: Path) -> None:
    """Whatever stands where and has which name, and however it is packed."""
    expected, expected_notes = of(tmp_path, rows())
    profile, notes = of(tmp_path, SAME[form])
    assert comparable(profile) == comparable(expected)
    assert [one.call and one.call.name for one in profile.activities] == [
        one.call and one.call.name for one in expected.activities
    ]
    assert profile.threads[0].tid == 542
    assert notes == expected_notes


def test_the_form_of_pytorch_1_8(tmp_path: Path) -> None:
    """Steps are among the ops, streams have words, shapes another name, and flows no use."""
    events = [event for event in rows() if event["cat"] != "python_function" and event["args"].get("correlation") != 45]
    expected, _ = of(tmp_path, events)
    oldest = OLDER | {"user_annotation": "Operator"}
    changed = []
    for event in events:
        args = {"Input dims" if key == "Input Dims" else key: value for key, value in event["args"].items()}
        on_device = "stream" in args
        tid = f"stream {event['tid']}" if on_device else str(event["tid"])
        changed.append(event | {"cat": oldest[event["cat"]], "args": args, "tid": tid})
        changed.append({"ph": "f" if on_device else "s", "id": 71, "pid": 542, "tid": 542, "ts": event["ts"],
                        "cat": "async", "name": "launch"})  # fmt: skip
    profile, notes = of(tmp_path, changed)
    assert comparable(profile) == comparable(expected)
    assert [one.number for one in profile.queues] == [one.number for one in expected.queues]
    (op,) = (one for one in profile.ranges if one.text == "aten::miopen_convolution")
    assert present(op.inputs).shapes[:2] == ((10, 64, 56, 56), (64, 64, 3, 3))
    assert not [note for note in notes if "async" in note]


def test_an_external_id_that_repeats_the_correlation_names_no_op(tmp_path: Path) -> None:
    """As PyTorch 2.0 writes it. The op with that number launched something else, or nothing."""

    def launched_by(events: list[Row]) -> dict[str, str]:
        found = operations_by_kernel(kineto_alignment(tmp_path, events))
        return {name: one.primitive if one else "" for name, one in found.items()}

    events = [event for event in rows() if event["args"].get("correlation") != 45]
    expected = launched_by(events)
    changed = []
    for event in events:
        args = dict(event["args"])
        if event["cat"] == "cpu_op":
            args["External id"] = 73  # the correlation of the copy, which no op launched
        elif "correlation" in args:
            args["External id"] = args["correlation"]
        changed.append(event | {"args": args})
    assert launched_by(changed) == expected
    assert len(set(expected.values())) == 2


def test_sizes_may_be_text_and_calls_may_have_the_version_of_their_interface(tmp_path: Path) -> None:
    """A tool that records with CUPTI writes them so, as PyTorch the grid of an op of Triton, which keeps its inputs."""
    events = [
        row("cuda_runtime", "cudaLaunchKernel_v7000", 542, 542, FIRST_US, 5, correlation=71),
        row("kernel", "gemm", 0, 7, FIRST_US + 10, 20, correlation=71, grid="[4, 2, 1]", block="[64, 1, 1]"),
        row("cpu_op", "triton_poi_fused_add_0", 542, 542, FIRST_US + 300, 50, External_id=46, grid="grid(100,)",
            Input_Dims=[[10, 10]], Input_type=["float"]),
    ]  # fmt: skip
    profile, notes = of(tmp_path, events)
    (kernel,) = profile.activities
    assert (kernel.grid, kernel.workgroup) == ((256, 2, 1), (64, 1, 1))
    assert present(kernel.call).name == "cudaLaunchKernel"
    assert [one.inputs and one.inputs.shapes for one in profile.ranges] == [((10, 10),)]
    assert UNREAD not in notes


@pytest.mark.parametrize("strange", ["many", -1, 1 << 62, 40.5, True, None])
@pytest.mark.parametrize("call", ["cudaLaunchKernel", "cudaGraphLaunch", ""])
def test_the_slice_of_a_kernel_of_cuda_has_its_registers_and_work(call: str, strange: object, tmp_path: Path) -> None:
    """PyTorch's profiler writes registers only for CUDA, whose launches all count blocks: also those of a graph, and
    those that are not recorded. A value that is no number of registers is not known."""
    of_cuda = {"grid": [4, 2, 1], "block": [64, 1, 1], "shared_memory": 2064}
    events = [
        *([row("cuda_runtime", call, 542, 542, FIRST_US, 5, correlation=71)] if call else []),
        row("kernel", "first", 0, 7, FIRST_US + 10, 20, correlation=71, registers_per_thread=40, **of_cuda),
        row("kernel", "second", 0, 7, FIRST_US + 40, 20, correlation=71, registers_per_thread=strange, **of_cuda),
    ]
    drawn = {
        one.name: {**one.shared, **one.args}
        for one in mio2trace.convert(kineto_file(tmp_path, events)).trace.events()
        if isinstance(one, Slice) and one.category == "kernel"
    }
    wanted = "registers", "shared_bytes", "gws", "lws"
    assert [drawn["first"].get(key) for key in wanted] == [40, 2064, "256x2x1", "64x1x1"]
    known = "256x2x1" if call == "cudaLaunchKernel" else None
    assert [drawn["second"].get(key) for key in wanted] == [None, None, known, "64x1x1"]


def test_a_call_names_the_slice_that_it_launched(tmp_path: Path) -> None:
    """Also of kernels whose names differ only far behind, and of copies."""
    names = [f"void at::native::vectorized_kernel<{'int, ' * 40}{functor}>(int)" for functor in ("add", "mul")]
    events = [event for number, name in enumerate(names) for event in launched(number, 100 * number, 20, name)]
    events += launched(9, 300, 20, "Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy", call="hipMemcpyAsync")
    slices = [one for one in mio2trace.convert(kineto_file(tmp_path, events)).trace.events() if isinstance(one, Slice)]
    drawn = {one.args["correlation_id"]: one.name for one in slices if one.category in ("kernel", "copy")}
    named = {one.args["correlation_id"]: one.shared["kernel"] for one in slices if one.category == "api"}
    assert named == drawn
    assert len({*named.values()}) == 3


@pytest.mark.parametrize(("wait", "arrows"), [(-1, 0), (0, 0), (0.001, 1), (10, 1)])
def test_an_arrow_goes_forward_in_time(wait: float, arrows: int, tmp_path: Path) -> None:
    """Of ends at one time Perfetto takes the first of the file, in the native form that of the device: it finds no
    begin of the arrow, so none is drawn."""
    trace = mio2trace.convert(kineto_file(tmp_path, launched(71, 0, 20, wait=wait))).trace
    assert sum(isinstance(event, Flow) for event in trace.events()) == arrows


def test_work_of_a_device_that_is_not_read_is_a_problem(tmp_path: Path) -> None:
    """Where a profile has no other: it was not the program that ran nothing."""
    host = [event for event in rows() if event["cat"] in ("cpu_op", "user_annotation")]
    path = kineto_file(tmp_path, [*host, row("mtia_ccp_events", "fill", 0, 1, FIRST_US, 5)])
    with pytest.raises(InputError, match=r"no kernel, copy or build in the profile: row of category mtia_ccp_events"):
        mio2trace.convert(path)
    path.write_bytes(trace(host))
    with pytest.raises(InputError, match=r"it holds 2 ops and ranges of the host and no work of a device"):
        mio2trace.convert(path)
    for command in ("layers", "ops", "driver"):
        assert "it holds 2 ops and ranges of the host" in invoked(command, path).output
    launch = row("cuda_runtime", "cudaLaunchKernel", 542, 542, FIRST_US + 20, 5, External_id=45, correlation=71)
    path.write_bytes(trace([*host, launch, row("overhead", "Buffer Flush", 542, 542, FIRST_US + 700, 50)]))
    assert "it holds 1 kernel launch, so the profiler got no records of the GPU" in invoked("report", path).output
    for call in ("urEnqueueKernelLaunch", "zeCommandListAppendLaunchKernel"):
        path.write_bytes(trace([*host, launch | {"cat": "xpu_runtime", "name": call}]))
        result = invoked("report", path)
        assert "it holds 1 kernel launch, so the profiler got no records of the GPU" in result.output
    counters = row("cuda_profiler_range", "gemm", 0, 0, FIRST_US, 5)  # CUPTI's counters, without times of kernels
    whole = trace([*host, launch, counters])
    for data, found in (
        (whole, "row of category cuda_profiler_range not drawn"),
        (whole[: whole.index(b"cuda_profiler")], CUT),
    ):
        path.write_bytes(data)
        result = invoked("report", path)
        assert f"it holds 1 kernel launch and no kernel that could be read: {found}" in result.output


def test_a_recording_begins_with_what_it_launched(tmp_path: Path) -> None:
    """A kernel of an earlier time, which the profiler's buffers still held, is not followed by a pause."""
    events = [row("kernel", "early", 2, 0, FIRST_US - 3_000_000, 50, device=2, stream=0, correlation=5)]
    for number in range(2):
        events += launched(71 + number, 100 * number, 80, f"work{number}")
    path = kineto_file(tmp_path, events)
    (measures,) = mio2trace.analyse([path]).run.measures
    assert measures.steady.device is not None
    assert measures.steady.device.recording.length_ns == 180_000
    assert measures.steady.device.recording.compute_ns == 160_000
    answer = " ".join(invoked(path).output.split())
    assert "0.160 ms of kernels, without 0.050 ms of earlier work; no iterations are known." in answer


def test_the_answer_lists_no_op_without_kernel_time(tmp_path: Path) -> None:
    """A copy's time is in the line of the copies."""
    events = [
        row("cpu_op", "aten::fill_", 542, 542, FIRST_US, 20, External_id=1, Input_Dims=[[8, 8], []]),
        *launched(71, 5, 900, External_id=1),
        row("cpu_op", "aten::copy_", 542, 542, FIRST_US + 30, 20, External_id=2, Input_Dims=[[8, 8], [8, 8]]),
        *launched(72, 35, 100, "Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy", call="hipMemcpyAsync",
                  wait=900, External_id=2),
    ]  # fmt: skip
    text = invoked(kineto_file(tmp_path, events)).output
    assert "aten::fill_ 8x8" in text
    assert "aten::copy_" not in text


def in_blocks(data: bytes, size: int, notes: Notes | None = None) -> pieces.EventArray:
    return pieces.EventArray((data[at : at + size] for at in range(0, len(data), size)), "x", notes or Notes())


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_pieces_may_be_cut_anywhere(size: int) -> None:
    array = in_blocks(trace(late=True), size)
    events = [event for piece in array.pieces() for event in piece]
    assert [event.name for event in events] == [made["name"] for made in rows()]
    assert json.loads(array.around)["baseTimeNanoseconds"] == BASE_NS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1767189312000047.485", 1_767_189_312_000_047_485),
        ("1767189312000047", 1_767_189_312_000_047_000),
        ("7889238999999.999", 7_889_238_999_999_999),
        ("7889238999999.001", 7_889_238_999_999_001),
    ],
)
def test_times_are_exact_to_the_nanosecond(text: str, expected: int, tmp_path: Path) -> None:
    """Also Unix microseconds with decimals, which no double holds, in every piece of a longer file."""
    many = json.dumps(rows() * 3).replace(str(FIRST_US), text)
    made = b'{"traceEvents": ' + many.encode() + b"}"
    profile, _ = of(tmp_path, made)
    steps = [one for one in profile.ranges if one.text == "ProfilerStep#3"]
    assert [one.start_ns for one in steps] == [expected] * 3
    assert profile.clocks[0].kind == ("unix" if expected > 10**18 else "opaque")
    named = [event for piece in in_blocks(made, 500).pieces() for event in piece if event.name == "ProfilerStep#3"]
    assert [pieces.nanoseconds(event.ts) for event in named] == [expected] * 3


@given(st.integers(0, pieces.EXACT_BELOW * 1000 - 2))
def test_doubles_below_the_limit_come_back_exactly(ns: int) -> None:
    """Three decimals of any time that a file with a base can have."""
    assert pieces.nanoseconds(float(f"{ns // 1000}.{ns % 1000:03}")) == ns


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.99])
def test_a_trace_that_was_cut_off_is_read_up_to_its_last_whole_event(share: float, tmp_path: Path) -> None:
    events = rows() * 40
    data = trace(events)
    profile, notes = of(tmp_path, data[: int(len(data) * share)])
    assert notes[CUT] == 1
    assert 0 < profile.records < len(events)


def damaged(change: dict[str, Any], place: int = 8) -> list[Row]:
    events = rows()
    events[place] = events[place] | change
    return events


@pytest.mark.parametrize(
    ("key", "values", "note"),
    [
        ("dur", [-1, 1e300, float("nan")], "kernel whose times are no numbers in order: left out"),
        ("ts", ["soon", None, 1 << 70, []], "kernel whose times are no numbers in order: left out"),
        ("ph", [1, "B", "i", "", None], "kernel that is not an event with a start and a duration: left out"),
    ],
)
def test_a_kernel_without_possible_times_is_counted(key: str, values: list[Any], note: str, tmp_path: Path) -> None:
    for value in values:
        profile, notes = of(tmp_path, damaged({key: value}))
        assert notes[note] == 1
        assert profile.defects == {"times-out-of-order": 1}
        assert kernels(profile) == ["before_the_trace", "SubTensorOpWithScalar1d"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Memcpy H2D (HOST -> DEVICE)", "copy host to device"),
        ("Memcpy D2H (DEVICE -> HOST)", "copy device to host"),
        ("Memcpy D2D (DEVICE -> DEVICE)", "copy device to device"),
        ("Memcpy M2D (MEMORY(Unknown) -> DEVICE)", "copy"),
    ],
)
def test_a_copy_of_intels_gpus_has_its_direction(name: str, shown: str, tmp_path: Path) -> None:
    copy = [
        row("xpu_runtime", "urEnqueueUSMMemcpy", 1, 1, FIRST_US, 5, External_id=3, correlation=9),
        row("gpu_memcpy", name, 0, 64, FIRST_US + 9, 5, External_id=3, correlation=9, bytes=4096, sycl_queue=64),
    ]
    profile, _ = of(tmp_path, copy)
    assert [(one.name, one.size_bytes) for one in profile.activities] == [(shown, 4096)]


def test_a_trace_of_ascends_profiler_is_named(tmp_path: Path) -> None:
    """Its own rows come behind those of PyTorch's ops."""
    events = [row("cpu_op", "aten::add", 1, 1, "1704161511421931.457", 2.5)] * 900
    events.append({"ph": "s", "cat": "async_npu", "name": "async_npu", "pid": 1, "tid": 1, "ts": "1.0", "id": 1})
    with pytest.raises(InputError, match="is a trace of Ascend's profiler; expected "):
        of(tmp_path, json.dumps(events).encode())


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_times_that_are_text_are_read(size: int) -> None:
    events = [made | {"ts": str(made["ts"]), "dur": str(made["dur"])} for made in rows()]
    read = [event for piece in in_blocks(trace(events), size).pieces() for event in piece]
    times = [(pieces.nanoseconds(event.ts), pieces.nanoseconds(event.dur)) for event in read]
    assert times == [(pieces.nanoseconds(made["ts"]), pieces.nanoseconds(made["dur"])) for made in rows()]


@pytest.mark.parametrize("key", ["ts", "dur"])
@pytest.mark.parametrize("value", ['"NaN"', '"sNaN"', '"Infinity"', '"soon"', '"1e9999999"', "1e9999999", "-1e9999999"])
@pytest.mark.parametrize("correlation", [{}, {"correlation": 7}])
def test_no_time_is_a_fault_of_the_program(key: str, value: str, correlation: dict[str, Any], tmp_path: Path) -> None:
    """Also not in the pieces before the last one, which other decoders read."""
    flow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1, "ts": FIRST_US, "dur": 0, "id": 7}
    bad = [
        row("python_function", "train.py(184): step", 1, 1, FIRST_US, 9, Python_id=1),
        row("cpu_op", "aten::add", 1, 1, FIRST_US, 9, External_id=1),
        row("cuda_runtime", "cudaLaunchKernel", 1, 1, FIRST_US, 9, **correlation),
        row("kernel", "add_kernel", 0, 7, FIRST_US, 9, **correlation),
        flow,
    ]
    data = trace([made | {key: "@"} for made in bad] + rows() * 150).replace(b'"@"', value.encode())
    profile, notes = of(tmp_path, data)
    assert kernels(profile).count(MAIN) == 150
    assert notes["kernel whose times are no numbers in order: left out"] == 1


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "-nan", "NaN", "Infinity", "-Infinity", ""])
@pytest.mark.parametrize("size", [100, 1 << 20])
def test_a_value_that_is_no_number_of_json_takes_no_row_away(value: str, size: int, tmp_path: Path) -> None:
    """Kineto prints `inf` for a device whose properties it does not know, and for a copy of no duration. Some versions
    print nothing for a process group without a description."""
    written = [made | {"args": made["args"] | {"blocks per SM": 47.5, "per": "text: inf, nan"}} for made in rows()]
    data = trace(written)
    spoiled = data.replace(b"47.5", value.encode())
    assert spoiled.count(value.encode()) >= len(written)
    array = in_blocks(spoiled, size, notes := Notes())
    events = [event for piece in array.pieces() for event in piece]
    assert not [*notes]
    assert [(event.name, event.args.correlation) for event in events] == [
        (made["name"], made["args"].get("correlation")) for made in rows()
    ]
    assert kernels(of(tmp_path, spoiled)[0]) == kernels(of(tmp_path, data)[0])


@pytest.mark.parametrize("text", [": ,", ":}", " : inf, x", 'a": ,', "[: ,"])
def test_a_text_is_not_taken_for_a_missing_value(text: str, tmp_path: Path) -> None:
    data = trace([*rows(), row("kernel", text, 2, 7, FIRST_US + 500, 5, device=2, stream=7, per="@")])
    assert text in kernels(of(tmp_path, data.replace(b'"@"', b""))[0])


@pytest.mark.parametrize("behind", ["", " \n", ",\n", "]", "\0" * 4096])
def test_padding_behind_an_array_alone_is_no_lost_row(behind: str, tmp_path: Path) -> None:
    _, notes = of(tmp_path, json.dumps(rows()).encode() + behind.encode())
    assert "record of a profile that could not be read: skipped" not in notes


@pytest.mark.parametrize(("parts", "lost"), [(1, 0), (2, 1), (3, 1)])
def test_a_trace_behind_another_in_one_file_is_missed(parts: int, lost: int, tmp_path: Path) -> None:
    path = saved(tmp_path / "made.json", b"\n".join([trace(rows())] * parts) + b"\n")
    (measures,) = mio2trace.analyse([path]).run.measures
    assert measures.completeness.counts.get("unreadable", 0) == lost


@pytest.mark.parametrize("end", [b"],", b"]", b"]}", b"] } ,\n"])
def test_events_behind_the_end_of_their_array_are_missed(end: bytes, tmp_path: Path) -> None:
    """Damage made an end between two events; what follows is no other content of the file."""
    data = trace(rows())
    at = data.rindex(b',\n  {\n   "ph"')
    path = saved(tmp_path / "made.json", data[:at] + end + data[at + 1 :])
    (measures,) = mio2trace.analyse([path]).run.measures
    assert measures.completeness.counts["unreadable"] == 1


@pytest.mark.parametrize("written", [b'"C:\\prog"', b""])
def test_a_profile_without_a_kernel_of_its_file_is_incomplete(written: bytes, tmp_path: Path) -> None:
    """Its name is written as no JSON is."""
    path = saved(tmp_path / "made.json", trace().replace(b'"%b"' % MAIN.encode(), written))
    (measures,) = mio2trace.analyse([path]).run.measures
    assert measures.completeness.counts["unreadable"] == 1
    assert not measures.completeness.complete


def test_every_command_mentions_a_kernel_that_is_left_out(tmp_path: Path) -> None:
    """Also those that write no trace. They leave out only remarks on a trace."""
    path = saved(tmp_path / "rank0.pt.trace.json", trace(damaged({"dur": -1})))
    problem = "problem: kernel whose times are no numbers in order: left out (rank0.pt.trace.json)\n"
    for command, stream in (((), "stdout"), (("report", "--format", "markdown"), "stdout"), (("layers",), None)):
        done = invoked(*command, path)
        assert problem in done.stderr
        assert " not drawn" not in done.stderr
        assert stream is None or "1 row whose times are not in order" in getattr(done, stream)


@pytest.mark.parametrize(
    "args", [{"correlation": [1]}, {"correlation": 1 << 80}, {"correlation": 1.5}, [], "x", {"grid": [1, 2]}]
)
def test_arguments_of_other_types_are_counted(args: Any, tmp_path: Path) -> None:
    profile, notes = of(tmp_path, (damaged({"args": args})))
    assert notes[UNREAD] == 1
    assert len(kernels(profile)) == 3


@pytest.mark.parametrize("value", [[1], {"a": 1}, True, None, 1 << 80, 1.5, "x"])
def test_processes_and_threads_of_other_types_are_none(value: Any, tmp_path: Path) -> None:
    for place in (3, 4, 8):
        profile, _ = of(tmp_path, (damaged({"pid": value, "tid": value, "id": value}, place)))
        assert len(profile.activities) == 5
        assert sum(made.kind == "operator" for made in profile.ranges) == 1


@pytest.mark.parametrize("depth", [100, 100_000])
def test_nesting_without_end_loses_its_event_alone(depth: int, tmp_path: Path) -> None:
    deep = b'"args": {"grid": ' + b"[" * depth + b"]" * depth + b"}"
    data = trace().replace(b'"args": {\n    "device": 2,\n    "stream": 4,\n    "correlation": 45\n   }', deep)
    assert deep in data
    profile, notes = of(tmp_path, data)
    assert MAIN in kernels(profile)
    assert notes.get(UNREADABLE, 0) + notes.get(UNREAD, 0) == 1


def test_damage_between_events_loses_what_it_touches(tmp_path: Path) -> None:
    data = trace().replace(b'"name": "hipMemcpyAsync"', b'"name": hip?').replace(b"igemm_fwd", b"igemm_\xff\xfe")
    profile, notes = of(tmp_path, data)
    assert notes[UNREADABLE] == 1
    assert notes["text in the trace that is not UTF-8"] == 1
    assert len(kernels(profile)) == 3


def test_half_a_character_is_shown_as_unknown_in_every_form(tmp_path: Path) -> None:
    """A JSON escape may state half of a surrogate pair, which no file of UTF-8 can hold."""
    path = saved(tmp_path / "t.json", trace().replace(b"igemm_fwd", rb"\ud83digemm_fwd"))
    for args in (
        ["report", str(path), "--format", "json"],
        ["convert", str(path), "-o", str(tmp_path / "t.parquet")],
        ["bundle", str(path), "-o", str(tmp_path / "t.zip")],
        ["compare", str(path), "--save", str(tmp_path / "base.json")],
        ["query", str(path), "select name from kernels"],
    ):
        result = invoked(*args)
        assert result.exit_code == 0, result.output
    assert "\N{REPLACEMENT CHARACTER}igemm_fwd" in result.output


def test_a_correlation_may_be_called_external_id(tmp_path: Path) -> None:
    """As some versions for ROCm write it. Ops have external ids of their own, which may be the same numbers."""
    events = rows()
    for event in events:
        if event["cat"] in ("cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset"):
            event["args"]["External id"] = event["args"].pop("correlation")
    op = row("cpu_op", "aten::other", 542, 542, FIRST_US + 300, 5, External_id=71)
    path = kineto_file(tmp_path, [*events, op])
    (profile,) = read(path, kineto)
    expected, _ = of(tmp_path, [*rows(), op])
    assert comparable(profile) == comparable(expected)
    assert [one.call for one in profile.activities] == [one.call for one in expected.activities]
    found = operations_by_kernel(aligned(path))
    assert {one and one.api for one in (found["SubTensorOpWithScalar1d"], found[MAIN])} == {"aten::miopen_convolution"}


ALONE = "array of events alone: GPU names, the base of the times and the rank are not in it"
UNCLOSED = "array of events without its closing bracket: more events may have been in it"


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    ("end", "noted"),
    [
        ("]", {ALONE: 1}),
        ("]\n", {ALONE: 1}),
        ("", {ALONE: 1, UNCLOSED: 1}),
        (",\n", {ALONE: 1, UNCLOSED: 1}),
        (', {"ph": "X", "cat": "kern', {ALONE: 1, CUT: 1}),
        ('][{"ph": "X"}]', {ALONE: 1, UNREADABLE: 1}),
    ],
)
def test_an_array_of_events_alone_is_read(indent: int | None, end: str, noted: dict[str, int], tmp_path: Path) -> None:
    """As `jq .traceEvents` writes it, and without its end; only what stands around the array is missing."""
    whole, before = of(tmp_path, json.dumps({"traceEvents": rows() * 3}).encode())
    data = json.dumps(rows() * 3, indent=indent).removesuffix("]").rstrip().encode() + end.encode()
    assert kineto.sniff(data)
    profile, said = of(tmp_path, data)
    assert said == before | noted
    assert kernels(profile) == kernels(whole)
    assert [(one.start_ns, one.end_ns) for one in profile.activities] == [
        (one.start_ns, one.end_ns) for one in whole.activities
    ]
    assert profile.process.rank is None
    assert profile.clocks[0].kind == "opaque"
    (tmp_path / "alone.json").write_bytes(data)
    assert aligned(tmp_path / "alone.json").profile.activities


def test_kernels_alone_are_known_by_their_correlation(tmp_path: Path) -> None:
    """As filtered out of a trace. Other tools also have a category of this name."""
    alone = [row for row in rows() if row.get("cat") == "kernel"]
    data = json.dumps({"traceEvents": alone}).encode()
    assert kineto.sniff(data)
    assert not kineto.sniff(data.replace(b"correlation", b"irq"))
    assert len(kernels(of(tmp_path, data)[0])) == len(alone)


@pytest.mark.parametrize("data", [b"}", b', "traceEvents": []}'])
def test_nothing_in_it_is_one_line(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^made: no .*; expected a trace of PyTorch's profiler$"):
        of(tmp_path, b'{"schemaVersion": 1, "deviceProperties": []' + data)


def test_the_latest_time_of_all_is_drawn(tmp_path: Path) -> None:
    """What takes no time at the end of 64 bits has no nanosecond behind it."""
    last = json.dumps([row("cpu_op", "last", 542, 542, 0, 0), row("kernel", "k", 0, 0, 0, 0, correlation=1)])
    path = tmp_path / "late.json"
    path.write_text('{"traceEvents": ' + last.replace('"ts": 0', '"ts": 9223372036854775.807') + "}")
    result = mio2trace.convert(path, output=tmp_path / "out.pftrace", check=True)
    assert "last" in {event.name for event in result.trace.events() if isinstance(event, Slice)}


def test_a_kernel_without_a_name_has_no_empty_argument(tmp_path: Path) -> None:
    """Its slice is called what it is; a name that a slice does not show stands in its arguments."""
    made = [row("kernel", name, 0, 7, 10 * at, 5, stream=7) for at, name in enumerate(("", "void k<1>(int)"), 1)]
    mio2trace.convert(kineto_file(tmp_path, made), output=tmp_path / "out.json")
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    shown = [(one["name"], one["args"].get("full_name")) for one in events if one.get("cat") == "kernel"]
    assert shown == [("unnamed kernel", None), ("k", "void k<1>(int)")]


# -- A file of several processes: each kernel, copy and fill is in the process that launched it.


PIDS = (542, 777)
LAUNCHES = (
    ("kernel", "hipLaunchKernel", "own"),
    ("gpu_memcpy", "hipMemcpyAsync", "Memcpy HtoD (Host -> Device)"),
    ("gpu_memset", "hipMemsetAsync", "Memset (Device)"),
    ("kernel", "hipGraphLaunch", "of_graph"),
)
KINDS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "fill"}
Truth = Counter[tuple[int, str, int]]
"""(process, kind, start in ns)."""


class Made:
    """Rows of a file, and of each row of a device the process that it is of."""

    def __init__(self) -> None:
        self.events: list[Row] = []
        self.truth: Truth = Counter()

    def launch(
        self, pid: int, number: int, correlation: int, at_us: int, device: object, wait_us: int = 5, **more: object
    ) -> None:
        category, call, name = LAUNCHES[number % len(LAUNCHES)]
        ids = {"correlation": correlation, **more}
        self.events.append(row("cuda_runtime", call, pid, pid, FIRST_US + at_us, 2, **ids))
        for part in range(3 if call == "hipGraphLaunch" else 1):
            self.command(pid, category, name, device, at_us + wait_us + 2 * part, **ids)

    def command(self, pid: int, category: str, name: str, device: object, at_us: int, **ids: object) -> None:
        start = FIRST_US + at_us
        self.events.append(row(category, name, device, 0, start, 1, device=2, stream=0, **ids))
        self.truth[pid, KINDS[category], BASE_NS + round(start * 1000)] += 1

    def read(self, folder: Path) -> tuple[Truth, Notes, list[Profile]]:
        notes = Notes()
        profiles = read(kineto_file(folder, self.events), kineto, notes)
        found = [(one.process.pid or 0, a.kind, a.start_ns or 0) for one in profiles for a in one.activities]
        return Counter(found), notes, profiles

    def checked(self, folder: Path) -> tuple[Notes, list[Profile]]:
        """After each command was found in its process."""
        found, notes, profiles = self.read(folder)
        assert found == self.truth
        return notes, profiles


def in_turns(count: int, device: Callable[[int], object] = lambda rank: 2, **more: int) -> Made:
    """Launches of both processes, one after another, each with an id of its own."""
    made = Made()
    for number in range(count):
        made.launch(PIDS[number % 2], number // 2, 100 + number, 20 * number + more.get("at_us", 0), device(number % 2))
    return made


@pytest.mark.parametrize("ahead_us", [0, 1, 200])
@pytest.mark.parametrize("devices", [(2, 3), (3, 2), ("rank 0 GPU 2", "rank 1 GPU 2"), (2, 2)])
def test_equal_correlation_ids_in_both_processes(devices: tuple[object, object], ahead_us: int, tmp_path: Path) -> None:
    """Two ranks of one program run in lockstep, or one is ahead: nothing but the times tells whose a row is."""
    made = Made()
    for number in range(40):
        for rank, pid in enumerate(PIDS):
            made.launch(pid, number, 100 + number, 20 * number + (ahead_us + 1) * rank, devices[rank], 5 + rank)
    found, notes, _ = made.read(tmp_path)
    if devices != (2, 2):
        assert found == made.truth
    else:  # of one device: as many for each
        assert Counter(pid for pid, _, _ in found.elements()) == Counter(pid for pid, _, _ in made.truth.elements())
    assert [note.kind for note in notes] == [
        "kernel or copy whose correlation id several processes have: given to one of them by time"
    ]


def test_ranks_that_sglang_merged_are_processes_of_their_own(tmp_path: Path) -> None:
    """Process, device and correlation ids are equal. The text before the numbers shows the rank."""
    made = [Made(), Made()]
    for rank, of in enumerate(made):
        for number in range(12):
            of.launch(PIDS[0], number, 100 + number, 20 * number + rank, 0, 5 - rank)
        for one in of.events:
            one["pid"] = f"[TP0{rank}] {one['pid']}"
    made[0].events += made[1].events
    _, notes, profiles = made[0].read(tmp_path)
    assert not list(notes)
    assert [one.process.rank for one in profiles] == [0, 1]
    starts = [Counter(activity.start_ns for activity in one.activities) for one in profiles]
    assert starts == [Counter(start for _, _, start in of.truth.elements()) for of in made]


def test_rows_of_a_file_that_tracelens_fused_state_their_rank(tmp_path: Path) -> None:
    made = Made()
    for rank, pid in enumerate(PIDS):
        made.launch(pid, 0, 1000 * rank, 20, 2 + rank, rank=rank + 4)
    profiles = read(kineto_file(tmp_path, made.events, distributedInfo=None), kineto, Notes())
    assert [one.process.rank for one in profiles] == [4, 5]


def test_the_kind_of_call_and_the_op_tell_equal_ids_apart(tmp_path: Path) -> None:
    """The ids of one process are shifted by one: what is a launch in one is a copy in the other."""
    made = Made()
    for number in range(9):
        for rank, pid in enumerate(PIDS):
            made.launch(pid, number % 3, 100 + number + rank, 20 * number, 2)
    assert not list(made.checked(tmp_path)[0])
    made = Made()
    for number in range(9):
        for rank, pid in enumerate(PIDS):
            made.launch(pid, number, 100 + number, 20 * number, 2, External_id=1000 * rank + number + 1)
    assert not list(made.checked(tmp_path)[0])


@pytest.mark.parametrize("of_the_other", [False, True])
def test_a_row_without_a_launch_is_of_the_process_of_its_device(of_the_other: bool, tmp_path: Path) -> None:
    """It ran before the recording: the device's other rows are of one process. The other process may use its id
    later."""
    made = Made()
    for rank, pid in enumerate(PIDS):
        made.command(pid, "kernel", "before", 2 + rank, -50, correlation=100 * (2 - rank) + 5 if of_the_other else 7)
        made.command(pid, "gpu_memcpy", "Memcpy HtoD (Host -> Device)", 2 + rank, -40, correlation=8)
        for number in range(8):
            made.launch(pid, number, 100 * (rank + 1) + number, 20 * number, 2 + rank)
    assert not made.checked(tmp_path)[0].problems


def test_a_row_that_nothing_gives_to_a_process_is_counted(tmp_path: Path) -> None:
    made = in_turns(8)
    made.command(PIDS[0], "kernel", "before", 2, -50, correlation=7)
    notes, _ = made.checked(tmp_path)
    assert [(str(note), note.problem) for note in notes if "process" in note.kind] == [
        ("kernel or copy of no known process of the file: assigned to the first process (made.json)", True)
    ]


def test_equal_processes_of_two_files_have_names_of_their_own(tmp_path: Path) -> None:
    """Two recordings of processes with the same ids, side by side in one picture."""
    files = []
    for at_us in (0, 50_000_000):
        longer = 0.5 if at_us else 0  # else it would be one process that two profilers recorded
        events = [{**event, "dur": event["dur"] + longer} for event in in_turns(8, at_us=at_us).events]
        files.append(kineto_file(tmp_path, events, f"{at_us}.json"))
    names = [process.name for process in mio2trace.convert(*files).trace.processes]
    assert len(set(names)) == len(names) == 8


@pytest.mark.parametrize("others", [0, 1])
def test_annotations_of_a_process_without_anything_else(others: int, tmp_path: Path) -> None:
    """They are of the process that launched all; of none of two. A process may have two numbers, as in a container."""
    made = Made()
    for number, pid in enumerate(PIDS[: 1 + others]):
        made.launch(pid, 0, 1000 * number + 1, 100, number)
        made.events.append(row("cpu_op", "aten::add", pid, pid, FIRST_US + 90, 30, External_id=number + 1))
    step = row("user_annotation", "ProfilerStep#1", 31, 31, FIRST_US, 500, External_id=9)
    own = row("user_annotation", "forward", PIDS[0], PIDS[0], FIRST_US + 80, 100, External_id=10)
    for events in ([step, *made.events, own], [own, *made.events, step]):
        made.events = events
        _, _, profiles = made.read(tmp_path)
        found = {
            profile.process.pid: {one.text for one in profile.ranges if one.kind == "annotation"}
            for profile in profiles
        }
        if others:
            assert found == {31: {"ProfilerStep#1"}, PIDS[0]: {"forward"}, PIDS[1]: set()}
        else:
            assert found == {PIDS[0]: {"ProfilerStep#1", "forward"}}
        made.events = [event for event in events if event not in (step, own)]


def test_steps_of_a_process_without_anything_else(tmp_path: Path) -> None:
    """Both counts have the kernels in them."""
    events = []
    for at in range(3):
        begin = FIRST_US + 100 * at
        events.append(row("user_annotation", f"ProfilerStep#{at}", 31, 31, begin, 90, External_id=9 + at))
        events += launched(at + 1, 100 * at + 10, 30)
    path = kineto_file(tmp_path, events, "rank0.pt.trace.json")
    (one,) = headlines.rows(path, path.name)
    assert one.wrong == {}
    assert present(one.said).kernels == (1, 1, 1)
