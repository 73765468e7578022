"""XSpace of JAX and TensorFlow: each kernel with its times, op, program, layer and step, against other decoders."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections import Counter
from pathlib import Path

import pytest

from mio2trace.analysis import AnalysisOptions, analyse
from mio2trace.answer import report_of
from mio2trace.conversion import convert
from mio2trace.measures import Measures
from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.readers import xla
from mio2trace.readers.xla import layer_of
from tests import xspace_made
from tests.commands import invoked, printed
from tests.often import present, saved
from tests.rocm_files import read, samples
from tests.tf_files import number
from tests.xspace_made import BEGUN_NS, CONV, MODULE, OPS, Event, Line, jax_run, plane, tf_run
from tests.xspace_read import kernels_by_hand

SAMPLE = "xplane_jax08_mi300x_conv3d"


def profile_of(data: bytes, folder: Path, notes: Notes | None = None, *, every_call: bool = False) -> Profile:
    (profile,) = read(saved(folder / "a.xplane.pb", data), xla, notes, every_call=every_call)
    return profile


@pytest.mark.shared
def test_kernels_of_the_sample_are_those_of_another_decoder() -> None:
    """Each once, with its own times to the nanosecond and its stream; by kernel, op and program those of the truth."""
    path = samples() / "rocm" / f"{SAMPLE}.xplane.pb.gz"
    (profile,) = read(path, xla)
    queues, devices = profile.queues, profile.devices
    number = [str(devices[queues[a.queue].device].number) for a in profile.activities]
    spans = [(a.start_ns or 0, a.end_ns or 0) for a in profile.activities]
    by_hand = list(kernels_by_hand(gzip.decompress(path.read_bytes())))
    first, begun = min(round(start / 1000) for _, _, start, _, _ in by_hand), min(spans)[0]
    expected = Counter(
        (device[-1], name.removesuffix(".kd"), round(start / 1000) - first, duration, stats["correlation_id"])
        for device, name, start, duration, stats in by_hand
    )
    assert expected == Counter(
        (device, a.name, start - begun, 1000 * (end - start), a.correlation)
        for device, a, (start, end) in zip(number, profile.activities, spans, strict=True)
    )
    assert (expected.total(), profile.clocks[0].kind) == (235, "unix")
    assert all(a.call is not None for a in profile.activities)
    ns: Counter[tuple[str, ...]] = Counter()
    for device, a, (start, end) in zip(number, profile.activities, spans, strict=True):
        module, _, op = ("", "", "") if a.range is None else profile.ranges[a.range].text.partition("/")
        ns[device, f"Stream #{queues[a.queue].number}(Kernel)", a.name, op, module] += end - start
    with (samples() / "rocm/peer-tables" / f"{SAMPLE}.truth.csv").open(newline="") as file:
        assert ns == {
            (row["plane"][12:], row["line"], row["event"].removesuffix(".kd"), row["hlo_op"], row["hlo_module"]):
            int(row["total_ps"]) // 1000
            for row in csv.DictReader(file) if row["plane"].startswith("/device:GPU")
        }  # fmt: skip
    assert ns.total() == 28_137_077


@pytest.mark.shared
def test_steps_of_the_sample_are_the_executions_of_its_program() -> None:
    """Five on each of eight devices; the convolution's problem is the program's."""
    (measures,) = analyse([samples() / "rocm" / f"{SAMPLE}.xplane.pb.gz"]).run.measures
    assert [one.number for one in measures.steady.told.all] == [1, 2, 3, 4, 5]
    convolutions = [one for one in measures.operation_at.values() if one.primitive == "conv"]
    assert len(convolutions) == 40
    (one,) = {operation.facts for operation in convolutions}
    assert (one.direction, one.groups, one.dtype) == ("forward", 1, "bfloat16")
    # by hand: 2 x N x K x outputs x C x window
    assert one.flop == 2 * math.prod(one.output) * one.input[1] * math.prod(one.weights[2:])


# -- runs of our own -------------------------------------------------------------------------------------------------


def measured(folder: Path, data: bytes) -> Measures:
    (measures,) = analyse([saved(folder / "a.xplane.pb", data)]).run.measures
    return measures


def steps(measures: Measures) -> list[int]:
    return [one.number for one in measures.steady.told.all]


@pytest.mark.parametrize("paths", [True, False])
@pytest.mark.parametrize("events_first", [True, False])
def test_ops_layers_and_steps_are_those_of_the_run(paths: bool, events_first: bool, tmp_path: Path) -> None:
    """Whether kernels or the program alone tell the path, whether tables come before events or behind them."""
    measures = measured(tmp_path, jax_run(paths=paths, events_first=events_first))
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
    assert steps(measures) == [1, 2, 3]
    assert Counter(links.iteration_of(position) for position in range(30)) == {1: 10, 2: 10, 3: 10}


def test_problems_are_those_of_the_program(tmp_path: Path) -> None:
    """Forward terms for the gradient, too; FLOPs by hand."""
    measures = measured(tmp_path, jax_run())
    of = {one.api.partition("/")[2]: one for one in measures.operation_at.values()}
    for name, direction in ((CONV, "forward"), ("cudnn-conv-bw.3", "backward-data")):
        conv = of[name]
        assert (conv.primitive, conv.direction, conv.dtype) == ("conv", direction, "half")
        assert (conv.input, conv.weights, conv.output) == ((8, 4, 16, 16), (32, 4, 3, 3), (8, 32, 8, 8))
        assert (conv.pad, conv.stride, conv.dilation, conv.groups) == ((1, 1), (2, 2), (1, 1), 1)
        assert conv.flop == 2 * 8 * 32 * 4 * 8 * 8 * 9
    gemm = present(of["cublas-gemm.2"].gemm)
    assert (gemm.m, gemm.n, gemm.k, gemm.batch) == (8, 10, 128, 1)
    assert of["loop_fusion"].flop is None


@pytest.mark.parametrize("target", [number(28, 1), b"\xe2\x01\x7f", b"\x0b"])
def test_a_damaged_instruction_is_lost_alone(target: bytes) -> None:
    """Its target is a number, longer than the instruction, of a wire type that no field has."""
    other = xspace_made.instruction("dot.9", "dot", 10, xspace_made.shape([2]), more=target)
    wanted = frozenset(name for name, _, _ in OPS)
    found = xla.instructions(xspace_made.program(MODULE, [other]) + xspace_made.hlo(), wanted | {"dot.9"})
    assert found == xla.instructions(xspace_made.hlo(), wanted)
    assert found.keys() == wanted


def test_a_bundle_keeps_the_problems_of_the_program(tmp_path: Path) -> None:
    own = measured(tmp_path, jax_run()).operation_at
    assert invoked("bundle", tmp_path / "a.xplane.pb", "-o", tmp_path / "bug.zip").exit_code == 0
    (measures,) = analyse([tmp_path / "bug.zip"]).run.measures
    problems = [[(one.primitive, one.direction, one.gemm, one.flop) for one in of.values()]
                for of in (own, measures.operation_at)]  # fmt: skip
    assert problems[0] == problems[1]
    assert {"conv", "gemm"} <= {primitive for primitive, *_ in problems[1]}


def test_the_ops_of_xla_are_called_so(tmp_path: Path) -> None:
    """They are no calls of MIOpen."""
    (tmp_path / "host.xplane.pb").write_bytes(jax_run())
    names = {track.name for track in convert(tmp_path / "host.xplane.pb").trace.tracks}
    assert "XLA ops" in names
    assert not [name for name in names if "MIOpen" in name]


@pytest.mark.parametrize(("environment", "kind", "zero"), [(True, "unix", BEGUN_NS), (False, "opaque", 0)])
def test_times_and_sizes_of_a_kernel(environment: bool, kind: str, zero: int, tmp_path: Path) -> None:
    """Times count from the start of the profile; sizes are work-items, where the file states blocks."""
    profile = profile_of(jax_run(environment=environment), tmp_path)
    activity = profile.activities[0]
    assert profile.clocks[0].kind == kind
    assert (activity.start_ns, activity.end_ns) == (zero + 5 + 50_000, zero + 5 + 51_000)
    assert (activity.grid, activity.workgroup) == ((256, 2, 1), (64, 1, 1))
    assert activity.resources is not None
    assert (activity.resources.lds_bytes, activity.resources.scratch_bytes) == (512, 8)
    assert present(activity.call).name == "hipModuleLaunchKernel"


def test_marked_steps_and_kernels_without_calls(tmp_path: Path) -> None:
    """Steps have their own numbers, kernels ops and layers still."""
    assert steps(measured(tmp_path, jax_run(marked=True))) == [7, 8, 9]
    links = measured(tmp_path, jax_run(calls=False)).alignment.links
    assert all(index >= 0 for index in links.operation_of)
    assert {run.layer for run in links.runs} == {"Net/Conv_0", "Net/Dense_0"}


def test_ops_of_one_name_in_several_programs_are_different_ops(tmp_path: Path) -> None:
    """Programs of one function each, as without `jit`: XLA calls the only op of each ``loop_convert_fusion``."""
    ops = [("jit_add", "loop_convert_fusion"), ("jit_sin", "loop_convert_fusion"), ("jit_sin", "reduce")]
    kernels = [
        Event(op, at * 10**9, 10**6, {"hlo_op": op, "hlo_module": program, "program_id": at})
        for at, (program, op) in enumerate(ops)
    ]
    measures = measured(tmp_path, plane("/device:GPU:0", [Line("Stream #1(Kernel)", kernels)]))
    assert {one.primitive for one in measures.operation_at.values()} == {
        "hlo jit_add/loop_convert_fusion", "hlo jit_sin/loop_convert_fusion", "hlo reduce",
    }  # fmt: skip


def test_tensorflows_ops_are_operations_and_layers(tmp_path: Path) -> None:
    measures = measured(tmp_path, tf_run())
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
    assert steps(measures) == [0, 1, 2]


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


@pytest.mark.parametrize(("told", "registers"), [("96", 96), ("2191500840", None)])
def test_a_part_of_an_address_is_no_number_of_registers(told: str, registers: int | None, tmp_path: Path) -> None:
    """Older builds for ROCm leave the memory of these fields as it was."""
    details = f"regs:{told} static_shared:32462 dynamic_shared:0 grid:1280,1,1 block:256,1,1 occ_pct:0"
    ran = Event("k", 0, 7_000_000, {"correlation_id": 61, "kernel_details": details})
    (activity,) = profile_of(plane("/device:GPU:0", [Line("Stream #1(Kernel)", [ran])]), tmp_path).activities
    assert (activity.resources and activity.resources.vgprs) == registers
    assert activity.grid == (1280 * 256, 1, 1)


@pytest.mark.parametrize(
    ("own_lines", "programs", "lost"),
    [
        (True, "ff", 3),  # the second thread's, and the last of the first one
        (True, "fg", 1),  # kernels of no execution of the other program are recorded: it may have none
        (False, "ff", 1),  # calls on a line of their own: those of the second thread may be any thread's
    ],
)
def test_executions_without_kernels_are_counted(own_lines: bool, programs: str, lost: int, tmp_path: Path) -> None:
    """Of eight GPUs one may have kernels, without a sign of it on the others."""
    stats: dict[str, int | str] = {"hlo_op": "k", "hlo_module": "jit_f", "program_id": 3}
    kernels = [Event("k", (at + 60) * 10**6, 10**6, {**stats, "correlation_id": at + 1}) for at in (0, 1000)]
    calls = [Event("hipLaunchKernel", (at + 50) * 10**6, 10**6, {"correlation_id": at + 1}) for at in (0, 1000)]
    threads = [
        [Event(f"jit_{program}:XLA GPU module", at * 10**6, 90 * 10**6) for at in ats]
        for program, ats in zip(programs, ((0, 1000, 2000), (10, 1010)), strict=True)
    ]
    threads[0].insert(1, threads[0][0])  # a range in an equal one is one execution
    lines = [Line(f"py_xla_execute/{at}", made, at + 5) for at, made in enumerate(threads)]
    if own_lines:
        lines[0] = lines[0]._replace(events=[*lines[0].events, *calls])
    else:
        lines.append(Line("Host Threads/77", calls, 77))
    data = plane("/device:GPU:0", [Line("Stream #1(Kernel)", kernels)]) + plane("/host:CPU", lines)
    assert profile_of(data, tmp_path).defects["program-without-kernels"] == lost
    assert measured(tmp_path, data).completeness.counts == {"program-without-kernels": lost}


@pytest.mark.parametrize(("every_call", "more"), [(False, set()), (True, {"model.py:12 train"})])
def test_python_calls_come_on_demand(every_call: bool, more: set[str], tmp_path: Path) -> None:
    profile = profile_of(jax_run(), tmp_path, every_call=every_call)
    assert {made.text for made in profile.ranges if made.kind == "frame"} == {MODULE, "TfrtCpuExecutable"} | more


@pytest.mark.parametrize("every_call", [False, True])
def test_a_program_that_waits_for_each_step_is_told_so(tmp_path: Path, every_call: bool) -> None:
    """The threads that launch do nothing meanwhile: the wait is on the program's own."""
    found = {}
    for waits in (True, False):
        path = saved(tmp_path / f"{waits}.xplane.pb", jax_run(steps=5, waits=waits))
        analysis = analyse([path], AnalysisOptions(host_calls=every_call))
        (section, *_) = report_of(analysis, analysis.complete or analysis.runs, None).sections
        found[waits] = next(one for one in section.findings if one.rule.id == "idle")
    assert "block_until_ready)" in found[True].found.number
    assert "call block_until_ready once after several steps" in found[True].advice
    assert "block_until_ready" not in found[False].found.number + found[False].advice


@pytest.mark.parametrize("marked", [True, False])
def test_the_last_execution_is_in_no_mean(tmp_path: Path, marked: bool) -> None:
    """It ends with its last kernel, the others where the next one begins. Marked steps state their ends."""
    told = measured(tmp_path, jax_run(marked=marked)).steady.told
    assert told.steady == ((7, 8, 9) if marked else (1, 2))
    assert len({told.all[at].step_ns for at in told.places}) == 1


def test_a_last_execution_that_loads_nothing_for_the_next_is_no_other_kind(tmp_path: Path) -> None:
    told = measured(tmp_path, jax_run(steps=5, loads=True)).steady.told
    assert {one.kind == told.kind for one in told.all[:-1]} == {told.all[-1].kind != told.kind}
    assert (told.steady, told.endless) == ((1, 2, 3, 4), (5,))
    assert "the end of 5 is not known" in told.rule
    assert "another kind" not in told.rule + printed(tmp_path)


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
        ("jit(f)/jvp(Net)/Dense_0/bsd,de->bse/dot_general", "Net/Dense_0", "forward"),
        ("jit(f)/transpose(jvp(...ij,jk->...ik))/dot_general", "", None),
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


HOST = plane("/host:CPU", [Line("main/1", [Event("PjitFunction(f)", 0, 5_000_000)])])
IMPOSSIBLE = [Event("k", 1 << 62, 1 << 62), Event("l", 0, -5)]
TPU = plane("/device:TPU:0", [Line("XLA Ops", [Event("x", 0, 1)])])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (TPU, ""),
        (plane("/host:metadata"), ""),
        (plane("/host:CPU") + b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", ""),
        (plane("/device:GPU:0", [Line("Stream #1(Kernel)", IMPOSSIBLE)])[:-1], ""),
        (b"\x0a\x0c\x12\x0a/host:CPU\x0a\xff", ""),
        # a TPU's profile has ranges of the host, as has that of a program without a GPU: they are not called PyTorch's
        (TPU + HOST, "the profile of a TPU; expected an XSpace"),
        (HOST, "it holds 1 op or range of the host and no work of a device\n"),
    ],
)
def test_error_what_has_nothing_of_a_gpu_is_one_line(data: bytes, said: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "a.xplane.pb", data)
    words = ["convert", "-q", "-o", str(tmp_path / "a.json")] if said else ["kernels"]
    result = invoked(*words, path)
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert result.stderr.startswith("mio2trace: ")
    assert said in result.stderr


def test_the_slowest_device_has_the_profilers_number(tmp_path: Path) -> None:
    """In the answer as in the JSON report; it was its place among the devices of the process there."""
    (tmp_path / "a.xplane.pb").write_bytes(jax_run().replace(b"GPU:0", b"GPU:5").replace(b"GPU:1", b"GPU:7"))
    report = json.loads(invoked("report", tmp_path / "a.xplane.pb", "--format", "json").stdout)
    assert report["runs"][0]["step"]["device"] == 7
    assert "device 7, " in invoked("report", tmp_path / "a.xplane.pb").stdout


def test_hosts_of_a_run_are_not_added_up(tmp_path: Path) -> None:
    """Nothing in the files says how they belong together: each host is shown, no table mixes them, that is said."""
    for name, steps in (("hostA", 3), ("hostB", 4)):
        (tmp_path / f"{name}.xplane.pb").write_bytes(jax_run(2, steps))
    answer = printed(tmp_path)
    assert [line.split(",")[0] for line in answer.splitlines() if line.startswith("host")] == ["hostA", "hostB"]
    assert "(2 steady of 3)" in " ".join(answer.split())
    assert "(3 steady of 4)" in " ".join(answer.split())
    kernels = invoked("kernels", tmp_path, "--format", "json")
    assert len(json.loads(kernels.stdout)) == 40
    assert "problem: 2 profiles: the profile that has most kernels and copies is shown" in kernels.stderr
    assert invoked("ranks", tmp_path).exit_code == 1


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
