"""XSpace of JAX and TensorFlow: each kernel with its times, op, program, layer and step, against other decoders."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mio2trace.analysis import AnalysisOptions, analyse
from mio2trace.answer import report_of
from mio2trace.cli import cli
from mio2trace.conversion import convert
from mio2trace.model.profile import Profile
from mio2trace.notes import InputError, Notes
from mio2trace.readers import xla
from mio2trace.readers.xla import layer_of
from tests.rocm_files import read, samples
from tests.xspace_made import BEGUN_NS, CONV, MODULE, OPS, Event, Line, jax_run, plane, tf_run
from tests.xspace_read import kernels_by_hand

SAMPLE = "xplane_jax08_mi300x_conv3d"


def profile_of(data: bytes, folder: Path, notes: Notes | None = None, *, every_call: bool = False) -> Profile:
    path = folder / "a.xplane.pb"
    path.write_bytes(data)
    (profile,) = read(path, xla, notes, every_call=every_call)
    return profile


@pytest.mark.shared
def test_kernels_of_the_sample_are_those_of_another_decoder() -> None:
    """Each once, with its own times to the nanosecond, stream, op and program."""
    path = samples() / "rocm" / f"{SAMPLE}.xplane.pb.gz"
    expected: Counter[tuple[Any, ...]] = Counter()
    for device, name, start, duration, stats in kernels_by_hand(gzip.decompress(path.read_bytes())):
        expected[device[-1], name.removesuffix(".kd"), round(start / 1000), duration, stats["correlation_id"]] += 1
    (profile,) = read(path, xla)
    assert profile.clocks[0].kind == "unix"
    ours: Counter[tuple[Any, ...]] = Counter()
    begun = min(a.start_ns or 0 for a in profile.activities)
    first_start = min(key[2] for key in expected)
    for a in profile.activities:
        assert a.start_ns is not None
        assert a.end_ns is not None
        device = str(profile.devices[profile.queues[a.queue].device].number)
        ours[device, a.name, a.start_ns - begun + first_start, 1000 * (a.end_ns - a.start_ns), a.correlation] += 1
    assert ours == expected
    assert expected.total() == 235
    assert all(a.call is not None for a in profile.activities)


@pytest.mark.shared
def test_counts_and_times_of_the_sample_are_those_of_the_truth() -> None:
    """By device, stream, kernel, op and program; and the peer's sums by name."""
    path = samples() / "rocm" / f"{SAMPLE}.xplane.pb.gz"
    with (samples() / "rocm/peer-tables" / f"{SAMPLE}.truth.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["plane"].startswith("/device:GPU")]
    expected = {
        (row["plane"][12:], row["line"], row["event"].removesuffix(".kd"), row["hlo_op"], row["hlo_module"]):
        (int(row["count"]), int(row["total_ps"]) // 1000)
        for row in rows
    }  # fmt: skip
    (profile,) = read(path, xla)
    counts: dict[tuple[str, ...], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for activity in profile.activities:
        queue = profile.queues[activity.queue]
        module, _, op = "", "", ""
        if activity.range is not None:
            module, _, op = profile.ranges[activity.range].text.partition("/")
        key = str(profile.devices[queue.device].number), f"Stream #{queue.number}(Kernel)", activity.name, op, module
        before = counts[key]
        counts[key] = before[0] + 1, before[1] + (activity.end_ns or 0) - (activity.start_ns or 0)
    assert dict(counts) == expected
    assert sum(ns for _, ns in expected.values()) == 28_137_077


@pytest.mark.shared
def test_steps_of_the_sample_are_the_executions_of_its_program() -> None:
    """Five on each of eight devices; the convolution's problem is the program's."""
    (measures,) = analyse([samples() / "rocm" / f"{SAMPLE}.xplane.pb.gz"]).run.measures
    assert [one.number for one in measures.steady.told.all] == [1, 2, 3, 4, 5]
    convolutions = [one for one in measures.operation_at.values() if one.primitive == "conv"]
    assert len(convolutions) == 40
    (one,) = {operation.facts for operation in convolutions}
    assert (one.direction, one.groups, one.dtype) == ("forward", 1, "bfloat16")
    # by hand: 2 x N x K x C x outputs x window
    assert one.flop == 2 * one.output[0] * one.output[1] * one.input[1] * _product(one.output[2:]) * _product(
        one.weights[2:]
    )


def _product(sizes: tuple[int, ...]) -> int:
    size = 1
    for one in sizes:
        size *= one
    return size


# -- runs of our own -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paths", [True, False])
@pytest.mark.parametrize("events_first", [True, False])
def test_ops_layers_and_steps_are_those_of_the_run(paths: bool, events_first: bool, tmp_path: Path) -> None:
    """Whether kernels or the program alone tell the path, whether tables come before events or behind them."""
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(jax_run(paths=paths, events_first=events_first))
    (measures,) = analyse([path]).run.measures
    links, profile = measures.alignment.links, measures.alignment.profile
    expected = {
        "loop_fusion": ("Net/Conv_0", "forward"), CONV: ("Net/Conv_0", "forward"),
        "cublas-gemm.2": ("Net/Dense_0", "forward"), "cudnn-conv-bw.3": ("Net/Conv_0", "backward"),
        "copy.4": ("", None),
    }  # fmt: skip
    assert len(profile.activities) == 2 * 3 * len(OPS)
    for position, activity in enumerate(profile.activities):
        run = links.run_of[position]
        layer = ("", None) if run < 0 else (links.runs[run].layer, links.runs[run].direction)
        assert layer == expected[activity.name]
        assert measures.operation_at[links.operation_of[position]].api == f"{MODULE}/{activity.name}"
    assert [one.number for one in measures.steady.told.all] == [1, 2, 3]
    assert Counter(links.iteration_of(position) for position in range(30)) == {1: 10, 2: 10, 3: 10}


def test_problems_are_those_of_the_program(tmp_path: Path) -> None:
    """Forward terms for the gradient, too; FLOPs by hand."""
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(jax_run())
    (measures,) = analyse([path]).run.measures
    of = {one.api.partition("/")[2]: one for one in measures.operation_at.values()}
    for name, direction in ((CONV, "forward"), ("cudnn-conv-bw.3", "backward-data")):
        conv = of[name]
        assert (conv.primitive, conv.direction, conv.dtype) == ("conv", direction, "half")
        assert (conv.input, conv.weights, conv.output) == ((8, 4, 16, 16), (32, 4, 3, 3), (8, 32, 8, 8))
        assert (conv.pad, conv.stride, conv.dilation, conv.groups) == ((1, 1), (2, 2), (1, 1), 1)
        assert conv.flop == 2 * 8 * 32 * 4 * 8 * 8 * 9
    gemm = of["cublas-gemm.2"].gemm
    assert gemm is not None
    assert (gemm.m, gemm.n, gemm.k, gemm.batch) == (8, 10, 128, 1)
    assert of["loop_fusion"].flop is None


def test_sizes_are_work_items(tmp_path: Path) -> None:
    """The file states blocks."""
    activity = profile_of(jax_run(), tmp_path).activities[0]
    assert (activity.grid, activity.workgroup) == ((256, 2, 1), (64, 1, 1))
    assert activity.resources is not None
    assert (activity.resources.lds_bytes, activity.resources.scratch_bytes) == (512, 8)
    assert activity.call is not None
    assert activity.call.name == "hipModuleLaunchKernel"


@pytest.mark.parametrize(("environment", "kind", "zero"), [(True, "unix", BEGUN_NS), (False, "opaque", 0)])
def test_times_count_from_the_start_of_the_profile(environment: bool, kind: str, zero: int, tmp_path: Path) -> None:
    profile = profile_of(jax_run(environment=environment), tmp_path)
    assert profile.clocks[0].kind == kind
    assert profile.activities[0].start_ns == zero + 5 + 50_000
    assert profile.activities[0].end_ns == zero + 5 + 51_000


def test_marked_steps_have_their_own_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(jax_run(marked=True))
    (measures,) = analyse([path]).run.measures
    assert [one.number for one in measures.steady.told.all] == [7, 8, 9]


def test_kernels_without_calls_have_ops_and_layers_still(tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(jax_run(calls=False))
    (measures,) = analyse([path]).run.measures
    assert all(index >= 0 for index in measures.alignment.links.operation_of)
    assert {run.layer for run in measures.alignment.links.runs} == {"Net/Conv_0", "Net/Dense_0"}


def test_tensorflows_ops_are_operations_and_layers(tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(tf_run())
    (measures,) = analyse([path]).run.measures
    links, profile = measures.alignment.links, measures.alignment.profile
    found = {
        activity.name: (links.runs[links.run_of[at]].layer, links.runs[links.run_of[at]].direction)
        for at, activity in enumerate(profile.activities)
        if activity.kind == "kernel"
    }
    assert found == {
        "conv1": ("model/conv1", None), "bias": ("model/conv1", None), "wgrad": ("model/conv1/Conv2D", "backward"),
    }  # fmt: skip
    (copy,) = (activity for activity in profile.activities if activity.kind == "copy")
    assert (copy.route, copy.size_bytes, copy.name) == ("host to device", 4096, "copy host to device")
    assert [one.number for one in measures.steady.told.all] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "details", "kind", "route"),
    [
        ("CopyDeviceToDevice", "memcpy_details", "copy", "device to device"),
        ("CopyHostToDevice", "memcpy_details", "copy", "host to device"),
        ("MemcpyD2H", "memcpy_details", "copy", "device to host"),
        ("FillBuffer", "memset_details", "fill", ""),
        ("CopyOfRows", "kernel_details", "kernel", ""),
    ],
)
def test_copies_are_known_by_their_details(name: str, details: str, kind: str, route: str, tmp_path: Path) -> None:
    """Older builds name a copy after the call, on a line ``MemcpyOther``."""
    ran = Event(name, 0, 7_000_000, {"correlation_id": 61, details: "kind:Unknown size:655360 dest:2 async:1"})
    data = plane("/device:GPU:0", [Line("Stream #8(MemcpyOther)", [ran], 8)])
    (activity,) = profile_of(data, tmp_path).activities
    assert (activity.kind, activity.route, activity.size_bytes) == (kind, route, 655360)


def test_python_calls_come_on_demand(tmp_path: Path) -> None:
    def texts(every_call: bool) -> set[str]:
        profile = profile_of(jax_run(), tmp_path, every_call=every_call)
        return {made.text for made in profile.ranges if made.kind == "frame"} - {MODULE}

    assert texts(every_call=False) == {"TfrtCpuExecutable"}
    assert texts(every_call=True) == {"TfrtCpuExecutable", "model.py:12 train"}


@pytest.mark.parametrize("every_call", [False, True])
def test_a_program_that_waits_for_each_step_is_told_so(tmp_path: Path, every_call: bool) -> None:
    """The threads that launch do nothing meanwhile: the wait is on the program's own."""
    found = {}
    for waits in (True, False):
        path = tmp_path / f"{waits}.xplane.pb"
        path.write_bytes(jax_run(steps=5, waits=waits))
        analysis = analyse([path], AnalysisOptions(host_calls=every_call))
        (section, *_) = report_of(analysis, analysis.complete or analysis.runs, None).sections
        found[waits] = next(one for one in section.findings if one.rule.id == "idle")
    assert "block_until_ready)" in found[True].found.number
    assert "call block_until_ready once after several steps" in found[True].advice
    assert "block_until_ready" not in found[False].found.number + found[False].advice


def test_derived_lines_are_no_kernels(tmp_path: Path) -> None:
    derived = [Line("XLA Ops", [Event("conv", 0, 5)], 0xDEADBEEF + 1), Line("Steps", [Event("1", 0, 5)], 5)]
    data = plane("/device:GPU:0", [*derived, Line("Stream #1(Kernel)", [Event("k", 0, 5000)], 1)])
    assert [activity.name for activity in profile_of(data, tmp_path).activities] == ["k"]


@pytest.mark.parametrize(
    ("path", "layer", "direction"),
    [
        ("jit(f)/conv_general_dilated", "", None),
        ("jit(f)/jit(main)/Net/Dense_0/dot_general", "Net/Dense_0", None),
        ("jit(train_step)/jvp(ResNet)/Block_3/Conv_0/conv", "ResNet/Block_3/Conv_0", "forward"),
        ("jit(train_step)/transpose(jvp(ResNet))/Block_3/Conv_0/conv", "ResNet/Block_3/Conv_0", "backward"),
        ("jit(f)/transpose(jvp(Net/block_1))/while/body/add", "Net/block_1", "backward"),
        ("jit(f)/vmap(jvp(A))/checkpoint/rematted_computation/B/cond/branch_0_fun/mul", "A/B", "forward"),
        ("pjit(f)/jvp()/mul", "", None),
        ("jit(f)/jvp(A https://user:word@host/x)/op", "A https://user:word@host/x", "forward"),
        ("kernel", "", None),
        ("", "", None),
        ("a/" * 3000 + "b", "", None),
        ("(" * 500 + "/x/y", "", None),
        ("jvp(" * 60 + "A" + ")" * 60 + "/op", "jvp(" * 20 + "A" + ")" * 20, "forward"),
    ],
)
def test_layers_are_what_is_left_of_a_path(path: str, layer: str, direction: str | None) -> None:
    assert layer_of(path) == (layer, direction)


# -- files that end, lie, or are none ----------------------------------------------------------------------------------


def test_a_file_that_is_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    """At any byte: what is whole, and it is said; never more than was there."""
    data = jax_run(devices=1, steps=1)
    whole = {(a.name, a.start_ns) for a in profile_of(data, tmp_path).activities}
    seen = set()
    for size in range(3, len(data), 7):
        notes = Notes()
        (tmp_path / "a.xplane.pb").write_bytes(data[:size])
        if not xla.sniff(data[:size]):
            continue
        try:
            (profile,) = read(tmp_path / "a.xplane.pb", xla, notes)
        except InputError:  # nothing of a GPU yet
            continue
        seen.add(len(profile.activities))
        assert len(profile.activities) <= len(whole)
        assert profile.defects == {"cut-off": 1} or not any("cut off" in note.kind for note in notes)
    assert max(seen) == len(OPS)
    assert len(seen) > 2


@pytest.mark.parametrize(
    "data",
    [
        plane("/device:TPU:0", [Line("XLA Ops", [Event("x", 0, 1)])]),
        plane("/host:metadata"),
        plane("/host:CPU") + b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        plane("/device:GPU:0", [Line("Stream #1(Kernel)", [Event("k", 1 << 62, 1 << 62), Event("l", 0, -5)])])[:-1],
        b"\x0a\x0c\x12\x0a/host:CPU\x0a\xff",
    ],
)
def test_error_what_has_nothing_of_a_gpu_is_one_line(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(data)
    result = CliRunner().invoke(cli, ["kernels", str(path)])
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("mio2trace: ")


@pytest.mark.parametrize(
    ("device", "said"),
    [
        (plane("/device:TPU:0", [Line("XLA Ops", [Event("x", 0, 1)])]), "the profile of a TPU; expected an XSpace"),
        (b"", "it holds 1 ops and ranges of the host and no work of a device\n"),
    ],
)
def test_error_work_of_a_host_alone_is_not_called_pytorchs(device: bytes, said: str, tmp_path: Path) -> None:
    """A TPU's profile has ranges of the host, as has that of a program without a GPU."""
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(device + plane("/host:CPU", [Line("main/1", [Event("PjitFunction(f)", 0, 5_000_000)])]))
    result = CliRunner().invoke(cli, [str(path), "-q", "-o", str(tmp_path / "a.json")])
    assert result.exit_code == 1
    assert said in result.stderr


def test_hosts_of_a_run_are_not_added_up(tmp_path: Path) -> None:
    """Nothing in the files says how they belong together: each host is shown, no table mixes them, that is said."""
    for name, steps in (("hostA", 3), ("hostB", 4)):
        (tmp_path / f"{name}.xplane.pb").write_bytes(jax_run(2, steps))
    answer = CliRunner().invoke(cli, [str(tmp_path)])
    assert answer.exit_code == 0
    assert [line.split(",")[0] for line in answer.stdout.splitlines() if line.startswith("host")] == ["hostA", "hostB"]
    assert "(3 iterations)" in " ".join(answer.stdout.split())
    assert "(4 iterations)" in answer.stdout
    kernels = CliRunner().invoke(cli, ["kernels", str(tmp_path), "--format", "json"])
    assert len(json.loads(kernels.stdout)) == 40
    assert "problem: 2 profiles: the profile that has most kernels and copies is shown" in kernels.stderr
    assert CliRunner().invoke(cli, ["ranks", str(tmp_path)]).exit_code == 1


def test_a_folder_of_tensorboard_is_an_input(tmp_path: Path) -> None:
    """With the Chrome trace that was made of the same file beside it."""
    folder = tmp_path / "logs" / "plugins" / "profile" / "2026_11_24_10_00_00"
    folder.mkdir(parents=True)
    (folder / "host.xplane.pb").write_bytes(gzip.compress(jax_run()))
    (folder / "host.trace.json.gz").write_bytes(gzip.compress(b'{"displayTimeUnit":"ns","traceEvents":[{}]}'))
    out = io.BytesIO()
    convert(tmp_path / "logs", output=out, check=True)
    kernels = [event for event in json.loads(out.getvalue())["traceEvents"] if event.get("cat") == "kernel"]
    assert len(kernels) == 30
    shutil.rmtree(tmp_path / "logs")
