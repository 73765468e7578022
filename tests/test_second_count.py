"""Small recordings of PyTorch's profiler, each with one trap: the program and the oracle both say what is true."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import mio2trace
from mio2trace.align import Alignment
from mio2trace.answer import report_of
from mio2trace.measures import Measures
from tests import oracle
from tests import test_rocprofv3 as v3
from tests.commands import invoked
from tests.headlines import devices, differences, measured, rows, second_opinion
from tests.kineto_files import FIRST_US, Row, kineto_file, row, trace
from tests.oracle import rules

MAIN, SIDE = 3, 2
DECODE = "step[DECODE bs=32]"


def ran(
    at: float, launched: float, us: float, number: int, *, stream: int = MAIN, name: str = "gemm",
    call: str = "hipLaunchKernel", gpu: int = 0,
) -> list[Row]:  # fmt: skip
    """A kernel and its launch of 5 us; times in us."""
    return [
        row("cuda_runtime", call, 7, 7, 1000 + launched, 5, correlation=number),
        row("kernel", name, gpu, stream, 1000 + at, us, device=gpu, stream=stream, correlation=number, grid=[1, 1, 1]),
    ]


def step(name: str, length: float, at: float = 0) -> Row:
    return row("user_annotation", name, 7, 7, 1000 + at, length)


def both(folder: Path, events: Iterable[Row]) -> Measures:
    """What the program measured, after the oracle said the same."""
    path = kineto_file(folder, [*events])
    (measures,) = measured(path)
    true = second_opinion(path)
    assert [differences(one, other) for one, other in zip(true, devices(measures), strict=True)] == [{}] * len(true)
    return measures


def step_us(measures: Measures) -> float:
    assert measures.steady.step_time is not None
    return measures.steady.step_time.step_ns / 1000


@pytest.mark.parametrize("side", [False, True])
def test_a_step_begins_when_the_device_has_done_what_it_had_to_do(side: bool, tmp_path: Path) -> None:
    """Its first kernel of the main stream waited 463 ms for the step before, which is not recorded. A kernel of another
    stream ran meanwhile."""
    events = [step(DECODE, 1000), *ran(463_380, 100, 6_000, 1), *ran(469_400, 200, 4_000, 2)]
    if side:
        events += ran(60, 50, 4, 3, stream=SIDE)
    measures = both(tmp_path, events)
    assert step_us(measures) == 10_020
    assert measures.completeness.counts == {"blocked": 1}


def test_a_main_stream_that_waits_for_recorded_work_is_no_earlier_step(tmp_path: Path) -> None:
    events = [
        step("ProfilerStep#5", 1000), *ran(60, 50, 28_000, 1, stream=SIDE, name="ncclDevKernel_AllReduce"),
        *ran(30_000, 100, 40_000, 2),
    ]  # fmt: skip
    measures = both(tmp_path, events)
    assert step_us(measures) == 70_000
    assert measures.completeness.complete


def test_a_small_copy_that_waits_on_another_gpu_is_no_work_of_this_one(tmp_path: Path) -> None:
    """The host waits for the first GPU, which copies after a kernel of 3 ms. The second GPU is idle."""
    events = [
        step("ProfilerStep#5", 4100), *ran(60, 50, 3000, 1), *ran(70, 60, 50, 2, gpu=1), *ran(4000, 3990, 50, 4, gpu=1),
        row("cuda_runtime", "hipMemcpyAsync", 7, 7, 1070, 5, correlation=3),
        row("gpu_memcpy", "Memcpy HtoD", 0, MAIN, 4100, 2, device=0, stream=MAIN, correlation=3, bytes=4),
        row("cuda_runtime", "hipDeviceSynchronize", 7, 7, 1100, 3010, correlation=5),
    ]  # fmt: skip
    (measures,) = measured(kineto_file(tmp_path, events))
    assert len(measures.steady.told.devices) == 2
    assert measures.completeness.complete


@pytest.mark.parametrize(
    ("call", "counts"),
    [
        ("hipLaunchKernel", {"overlap-on-stream": 1}),
        ("cudaLaunchKernel", {"overlap-on-stream": 1}),
        ("cudaGraphLaunch", {}),
        ("hipGraphLaunch", {}),
        ("cuLaunchKernelEx", {}),
        ("cudaLaunchKernelExC", {}),
    ],
)
def test_kernels_that_may_overlap_are_no_fault_of_the_recording(
    call: str, counts: dict[str, int], tmp_path: Path
) -> None:
    """Branches of a graph share a stream; NVIDIA's dependent launches begin before the kernel before them ends."""
    events = [step("ProfilerStep#5", 1000), *ran(200, 100, 50, 1), *ran(240, 110, 50, 2, call=call)]
    assert both(tmp_path, events).completeness.counts == counts


@pytest.mark.parametrize(
    ("until", "stream", "call", "counts"),
    [
        (400, MAIN, "hipLaunchKernel", {"late-end": 1}),  # three later kernels ended before
        (282, MAIN, "hipLaunchKernel", {"late-end": 1}),
        (281, MAIN, "hipLaunchKernel", {"overlap-on-stream": 1}),
        (400, SIDE, "hipLaunchKernel", {}),
        (400, MAIN, "hipGraphLaunch", {}),
    ],
)
def test_a_kernel_that_outlasts_a_later_one_of_its_stream_has_a_wrong_end(
    until: int, stream: int, call: str, counts: dict[str, int], tmp_path: Path
) -> None:
    """The others did not overlap it: it ended before the first of them started."""
    events = [step("ProfilerStep#5", 1000), *ran(200, 100, until - 200, 1, call=call, stream=stream)]
    for number, at in ((2, 250), (3, 290), (4, 330)):
        events += ran(at, 110 + number, 30, number)
    assert both(tmp_path, events).completeness.counts == counts


@pytest.mark.parametrize(("at", "counts"), [(100, {}), (99, {}), (70, {"start-before-launch": 1})])
def test_a_kernel_before_its_launch_shows_clocks_that_differ(at: float, counts: dict[str, int], tmp_path: Path) -> None:
    assert both(tmp_path, [step("ProfilerStep#5", 1000), *ran(at, 100, 50, 1)]).completeness.counts == counts


def communication_ns(name: str, tmp_path: Path) -> int:
    """Return the communication of a step with a kernel of this name, of 30 us, behind another kernel."""
    measures = both(tmp_path, [step("ProfilerStep#5", 1000), *ran(200, 100, 50, 1), *ran(260, 110, 30, 2, name=name)])
    assert measures.steady.step_time is not None
    return measures.steady.step_time.communication_ns


@pytest.mark.parametrize(
    "name",
    [
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
        "void (anonymous namespace)::two_shot_all_reduce_kernel<float>(float**)",
        "one_shot_all_reduce_kernel",
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void vllm::cross_device_reduce_1stage<float, 8>(vllm::RankData*)",
        "void deep_ep::internode_ll::combine<true, 7168, 11>(void*, void*, int*, void*)",
        "void deep_ep::legacy::intranode::dispatch<8, 768, 8192>(int4*, float*)",
        "void hybrid_ep::combine_kernel<8, 4>(hybrid_ep::combine_kernel_param_t)",
        "EpDispatchIntraNodeKernel_bf16",
        "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8, __nv_bfloat16>(__nv_bfloat16*)",
        "void tensorrt_llm::kernels::ar_fusion::moe::moefinalize_allreduce_fusion_kernel_oneshot_lamport<float>(int)",
        "void tensorrt_llm::kernels::moe_comm::moeA2ACombineKernel<8>(int)",
        "void mscclpp::collective::allreducePacket<__half>(__half*)",
        "mscclpp::collective::allgatherFullmesh2(void*)",
        "void c10d::symmetric_memory::(anonymous namespace)::wait_signal_kernel(unsigned int**, int)",
        "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)",
        "nvshmemi_barrier_on_stream_kernel_threadgroup(int)",
        "allreduce_large_read_write_ipc<float, 2, 2>(void const*, ccl_comm*)::{lambda(sycl::_V1::handler&)#1}",
        "invoke_barrier(std::shared_ptr<ccl_comm>, sycl::_V1::queue, bool)::{lambda(sycl::_V1::handler&)#2}",
        "AllreduceLargeKernel_GlobalSync<float>",
        "AllgatherMediumKernel_read_write<float, 4>",
        "Reduce_scatter_small_kernel_esimd<float, 1, 4>",
    ],
)
def test_whoever_reduces_it_is_communication(name: str, tmp_path: Path) -> None:
    assert communication_ns(name, tmp_path) == 30_000


@pytest.mark.parametrize(
    "name",
    [
        "triton_poi_fused_add_all_gather_into_tensor_wait_tensor_3",
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)",
        "void hybrid_ep::permute_kernel<8>(int)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(at::native::ReduceOp<float>)",
    ],
)
def test_a_kernel_beside_a_collective_is_none(name: str, tmp_path: Path) -> None:
    """It copies, sorts or adds on the rank alone."""
    assert communication_ns(name, tmp_path) == 0


def test_a_host_that_waits_for_earlier_work_makes_no_step_cold(tmp_path: Path) -> None:
    """The first step was launched while the device ran 80 ms of set-up, for which the host waited in the step."""
    events = [*ran(60, 50, 80_000, 1), step("ProfilerStep#2", 75_000, 100), *ran(80_070, 110, 9_000, 2)]
    events += ran(89_070, 74_000, 1_000, 3)
    for number, at in ((3, 90_100), (4, 101_000)):
        events += [step(f"ProfilerStep#{number}", 10_100, at), *ran(at + 20, at + 10, 9_000, 2 * number)]
        events += ran(at + 9_020, at + 9_010, 1_000, 2 * number + 1)
    (measures,) = measured(kineto_file(tmp_path, events))
    told = measures.steady.told
    assert (told.all[0].host_ns, told.all[0].step_ns) == (73_895_000, 10_010_000)
    assert (told.cold, told.steady) == ((), (2, 3, 4))


@pytest.mark.parametrize(("number", "cold"), [(0, True), (1, True), (2, False), (3, False)])
def test_steps_of_an_engine_are_warm_if_pytorch_counted_steps_before(number: int, cold: bool, tmp_path: Path) -> None:
    """Its own number is not that of PyTorch, whose mark is around it."""
    events = [step(f"ProfilerStep#{number}", 1000), step(DECODE, 800, 10), *ran(200, 100, 50, 1)]
    assert both(tmp_path, events).steady.told.may_be_cold is cold


def aligned(folder: Path, data: bytes) -> Alignment:
    path = folder / "made.json"
    path.write_bytes(data)
    alignment = mio2trace.analyse([path]).run.alignment
    assert alignment is not None
    return alignment


@pytest.mark.parametrize(
    ("listed", "name"),
    [
        ([(0, "AMD Instinct MI300X")], "AMD Instinct MI300X"),
        ([(0, "AMD Instinct MI300X"), (1, "AMD Instinct MI300X")], "AMD Instinct MI300X"),
        ([(0, "AMD Instinct MI300X"), (1, "AMD Radeon")], ""),
        ([(9, "AMD Radeon"), (1, "AMD Instinct MI300X")], "AMD Radeon"),
        ([], ""),
    ],
)
def test_a_device_that_is_not_listed_has_the_name_of_all(
    listed: list[tuple[int, str]], name: str, tmp_path: Path
) -> None:
    """ROCm counts processors as devices in the rows."""
    (launch, kernel) = ran(200, 100, 50, 1)
    kernel["args"]["device"] = kernel["pid"] = 9
    properties = [{"id": number, "name": text} for number, text in listed]
    profile = aligned(tmp_path, trace([launch, kernel], deviceProperties=properties)).profile
    assert [device.name for device in profile.devices] == [name]


def test_a_table_of_embeddings_is_no_linear_layer(tmp_path: Path) -> None:
    """Nor is any other op of a library that has GEMM in its name."""
    ops = (
        "fbgemm::permute_sparse_features",
        "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function",
        "fbgemm::asynchronous_complete_cumsum",
        "aten::linear",
    )
    events = []
    for number, name in enumerate(ops, 1):
        at = 100 * number
        events += [
            row("cpu_op", name, 7, 7, 1000 + at, 50, External_id=number),
            *ran(at + 20, at + 10, 5, number, name=f"kernel_{number}"),
        ]
    links = aligned(tmp_path, trace(events)).links
    layers = {
        one.name: links.runs[run].layer for one, run in zip(links.activities, links.run_of, strict=True) if run >= 0
    }
    assert (layers["kernel_2"], layers["kernel_4"]) == ("embedding 1", "linear 1")


@pytest.mark.parametrize("layers", [1, 3])
def test_calls_of_one_problem_in_many_layers_are_listed_together(layers: int, tmp_path: Path) -> None:
    """Each alone would be hidden behind an operation that runs once."""
    events = [step("ProfilerStep#5", 5000)]
    for number in range(layers + 1):
        at = 100 + 300 * number
        shapes = [[64, 32], [32, 16]] if number else [[128, 8], [8, 4]]
        events += [
            row("python_function", f"nn.Module: Linear_{number}", 7, 7, 1000 + at, 250),
            row("cpu_op", "aten::mm", 7, 7, 1010 + at, 200, External_id=number + 1, Input_Dims=shapes,
                Input_type=["float"] * 2, Input_Strides=[[shape[1], 1] for shape in shapes]),
            *ran(at + 60, at + 20, 100 if number else 120, number + 1),
        ]  # fmt: skip
    block = invoked("report", kineto_file(tmp_path, events), "-q").stdout.splitlines()
    listed = [line[:12].strip() for line in block]
    assert ("problems" in listed, "operations" in listed) == (layers > 1, layers == 1)
    if layers > 1:
        assert block[listed.index("problems")].split()[1:-4] == ["Gemm", "64x32", "->", "64x16", "x", "3"]


def first_line(folder: Path, steps: Iterable[tuple[int, float, int]]) -> str:
    """Of steps of 1.02 ms: number, begin in us, number of kernels of 100 us."""
    events: list[Row] = []
    for number, at, kernels in steps:
        events += [step(f"ProfilerStep#{number}", 1020, at)]
        for place in range(kernels):
            events += ran(at + 20 + 100 * place, at + 1 + place, 100, len(events), name=f"gemm_{place}")
    block = invoked(kineto_file(folder, events), "-q").stdout
    return " ".join(block.partition(" % of the step")[0].split())


@pytest.mark.parametrize(
    ("begins", "said"),
    [
        ((0, 1020, 2040, 3060, 4080), "kernels (5 iterations). compute"),
        ((0, 4000, 8000, 12000, 16000), "(5 iterations), but an iteration begins only every 4.000 ms. compute"),
        ((0, 1020, 2040, 9060, 10080), "(5 iterations), but 6.000 ms pass between iterations 7 and 48. compute"),
    ],
)
def test_one_pause_is_not_the_distance_of_all_steps(begins: tuple[int, ...], said: str, tmp_path: Path) -> None:
    numbers = (5, 6, 7, 48, 49) if "48" in said else (5, 6, 7, 8, 9)
    assert said in first_line(tmp_path, [(number, at, 10) for number, at in zip(numbers, begins, strict=True)])


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        ((5, 5, 5, 5, 10), "5 kernels each; 1 of another kind runs 1.000 ms)"),
        ((5, 5, 5, 10, 10), "10 kernels each; 3 of another kind run 0.500 ms each)"),
        ((10, 10, 10, 10, 1), "10 kernels each)"),
        ((10, 10, 10, 6), "10 kernels each)"),  # cut off by the end of the profile
    ],
)
def test_iterations_that_are_in_no_mean_are_mentioned(kernels: tuple[int, ...], said: str, tmp_path: Path) -> None:
    steps = [(5 + place, 1020.0 * place, number) for place, number in enumerate(kernels)]
    assert said in first_line(tmp_path, steps)


@pytest.mark.parametrize("output", ["-", "report", "out.json", "out.pftrace", "out.parquet"])
def test_strict_is_one_rule_for_every_output(output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 4 if the profile lacks work, 0 if not; the output is written."""
    monkeypatch.chdir(tmp_path)
    whole = [step("ProfilerStep#5", 1000), *ran(200, 100, 50, 1)]
    lacks = [*whole, row("cuda_runtime", "hipLaunchKernel", 7, 7, 1300, 5, correlation=2)]
    for events, code in ((whole, 0), (lacks, 4)):
        Path("made.json").write_bytes(trace(events))
        words = {"-": [], "report": ["report"]}.get(output, ["convert", "-o", output])
        done = invoked(*words, "made.json", "--strict", "-q")
        assert done.exit_code == code, done.output
        assert output in ("-", "report") or Path(output).exists()


def test_reasons_that_were_asked_for_are_told_quietly_too(tmp_path: Path) -> None:
    path = kineto_file(tmp_path, [step("ProfilerStep#5", 1000), *ran(200, 100, 50, 1)])
    loud, quiet = (invoked(path, "--explain", "kernel 0", *option).stderr for option in ([], ["-q"]))
    assert quiet.strip()
    assert quiet.strip() in loud


# -- Steps that only kernels show, in runs whose streams mix in another way in each step: both counts say the same.


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
    return v3.json_file(folder, process)


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
    found = rows(path, path.name)
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


@pytest.mark.parametrize(("long", "said"), [(10, ""), (2000, "; 55.6 % of the kernel time is in no iteration")])
def test_kernel_time_in_no_step_is_mentioned(long: int, said: str, tmp_path: Path) -> None:
    """A kernel of ``long`` us before eight steps of 200 us each: 2,000 of 3,600 us."""
    kernels = [kernel(6, 1, 10**15 - (long + 9) * US, 10**15 - 9 * US, 90)]
    for step in range(STEPS):
        for at in range(5):
            start = 10**15 + step * LENGTH + at * 50 * US
            kernels.append(kernel(at, 1, start, start + 40 * US, 100 + 5 * step + at))
    analysis = mio2trace.analyse([profile(tmp_path, kernels)])
    verdict = report_of(analysis, analysis.runs).sections[0].verdict
    assert verdict.endswith(f"(7 steady of 8, found by repetition{said}).")  # nothing shows where the last one ends


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
