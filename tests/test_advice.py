"""Each advice has a precondition: the run that has it gets the advice, the run that has not gets another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mio2trace
from mio2trace.findings import Finding, Gpu, Subject, findings
from mio2trace.model.choices import Gemm
from mio2trace.model.profile import Call, Range
from mio2trace.ops.families.collective import CollectiveProblem
from mio2trace.ops.operation import Operation
from tests.made_up_costs import MS, SETUP, US, Ran, operation, subject

TORCH = (Range("operator", "aten::conv2d", 0, 0, 1),)
SUM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def fired(run: Subject, rule: str) -> Finding:
    (one,) = [one for one in findings(run) if one.rule.id == rule]
    return one


# -- a step that earlier ones warmed up ------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "cold"), [(0, True), (1, True), (2, False), (6, False)])
def test_a_step_that_pytorch_numbers_2_or_more_is_warm(number: int, cold: bool) -> None:
    """Its profiler counts steps that it did not record."""
    mark = Range("annotation", f"ProfilerStep#{number}", 0, 0, 10_000 * MS)
    run = subject({number: [Ran("a", MS)]}, ranges=[mark])
    assert run.steady.told.may_be_cold is (cold and number > 0) or number == 0
    assert subject({number: [Ran("a", MS)]}).steady.told.may_be_cold


# -- communication ---------------------------------------------------------------------------------------------------


def reducing(ns: int, *, elements: int, ranks: int = 2, beside_ns: int = 0) -> Subject:
    """Two iterations of an all-reduce of ``ns``, of which a kernel hides ``beside_ns``, and 10 ms of another kernel."""
    problem = CollectiveProblem(
        direction=None, kind="allreduce", sent=elements, received=elements, ranks=ranks, dtype="float"
    )
    own = [
        operation(at, problem=problem, primitive="allreduce", api="nccl", direction=None, command=None) for at in (0, 1)
    ]
    each = [[Ran("work", 10 * MS), Ran(SUM, ns, at), Ran("work", beside_ns + MS, after_ns=-beside_ns)] for at in (0, 1)]
    return subject({1: each[0], 2: each[1]}, own)


@pytest.mark.parametrize(
    ("ns", "elements", "beside_ns", "said"),
    [
        # 2 ranks: 4 MiB in 4 ms is 1.05 GB/s on the bus
        (4 * MS, 1 << 20, 0, "Record all ranks"),
        # 1 MiB less an element is a small message, whatever its rate
        (4 * MS, (1 << 18) - 1, 0, "Overlap collectives with computation"),
        # 40 MB in 4 ms is 10 GB/s
        (4 * MS, 10_000_000, 0, "Overlap collectives with computation"),
        (4 * MS + 1, 10_000_000, 0, "Record all ranks"),
        # a tenth of the time is hidden
        (4 * MS, 10_000_000, 401 * US, "10.0 % of the collectives' time is overlapped already: send less"),
        (4 * MS, 10_000_000, 399 * US, "Overlap collectives with computation"),
    ],
)
def test_advice_on_communication(ns: int, elements: int, beside_ns: int, said: str) -> None:
    assert said in fired(reducing(ns, elements=elements, beside_ns=beside_ns), "communication").advice


def test_collectives_beside_each_other_are_not_overlapped_with_computation() -> None:
    """Those of two groups on two streams: none of their time is hidden."""
    each = [Ran("work", 10 * MS), Ran(SUM, 4 * MS), Ran(SUM, 4 * MS, after_ns=-4 * MS), Ran("work", MS)]
    found = fired(subject({1: each, 2: each}), "communication")
    assert found.found.ns == 4 * MS
    assert "Overlap collectives with computation" in found.advice


# -- short kernels ---------------------------------------------------------------------------------------------------


def short(idle_us: int = 100, *, graph: bool = False, api: str = "miopenX", **more: Any) -> Subject:
    """Two iterations of 40 kernels of 9 us each, a gap before each."""
    each = [Ran("short", 9 * US, 0, after_ns=idle_us * US, graph=graph)] * 40
    return subject({1: each, 2: each}, [operation(0, api=api)], **more)


@pytest.mark.parametrize(
    ("run", "severity", "said"),
    [
        (short(), "high", "Fuse kernels (MIOpen's fusion plans), capture the iteration in a graph"),
        (short(api="gemm"), "high", "Fuse kernels, capture the iteration in a graph"),
        (short(ranges=TORCH), "high", "Fuse kernels (torch.compile), capture the iteration in a graph"),
        (short(ranges=TORCH, graph=True), "high", "or use larger batches: graphs launch them already"),
        (short(1), "info", "Launching less will not help"),
        (short(calls_wait=True), "info", "Fuse operations (MIOpen's fusion plans), or use larger batches"),
        (short(calls=False), "info", "Fuse kernels (MIOpen's fusion plans)"),
    ],
)
def test_advice_on_short_kernels(run: Subject, severity: str, said: str) -> None:
    """Launching less helps only where the host is the limit, by means that the program has."""
    one = fired(run, "short-kernels")
    assert (one.severity, said in one.advice) == (severity, True), one.advice


@pytest.mark.parametrize(
    ("numbers", "tool"),
    [("dispatch_id", "rocprofv3 --hip-trace"), ("event_index", "the PyTorch profiler's CPU activity")],
)
def test_the_calls_are_asked_of_the_profiler_that_recorded_the_kernels(numbers: str, tool: str) -> None:
    """rocprofv3 also records PyTorch's programs."""
    name = "void at::native::vectorized_elementwise_kernel<4>()"
    steps = {number: [Ran(name, 10_000_000), Ran(name, 10_000_000, after_ns=30_000_000)] for number in (1, 2, 3)}
    advice = fired(subject(steps, calls=False, numbers=numbers), "idle").advice
    assert advice == f"Record the host's calls to see the cause: {tool}."


def test_short_kernels_of_a_run_with_counters_say_nothing() -> None:
    """Counters run kernels one at a time."""
    each = [Ran("short", 9 * US, counters=(1.0,))] * 40
    assert [one.rule.id for one in findings(subject({1: each, 2: each}))] == ["counter-run"]


# -- graphs ----------------------------------------------------------------------------------------------------------


def replayed(operations: Sequence[Operation] = (), **more: Any) -> Subject:
    each = [Ran("a", 10 * MS, 0 if operations else None), Ran("b", 90 * MS, graph=True)]
    return subject({1: each, 2: each}, operations, **more)


def test_the_capture_is_asked_of_pytorch_alone() -> None:
    assert fired(replayed(ranges=TORCH), "graph").advice.startswith("Record the capture as well")
    assert fired(replayed([operation(0)]), "graph").advice.startswith("Profile one run without graph capture")


def test_graphs_of_a_run_without_operations_are_no_finding() -> None:
    """No capture would show any."""
    assert "graph" not in [one.rule.id for one in findings(replayed())]


@pytest.mark.parametrize(("graph", "said"), [(True, "profile one run without graph capture"), (False, "ROCTX=1")])
def test_uncertain_links_of_replayed_kernels_need_a_run_without_graphs(graph: bool, said: str) -> None:
    each = [Ran("a", 40 * MS, 0), Ran("b", 60 * MS, 0, graph=graph, unsure=True)]
    assert said in fired(subject({1: each, 2: each}, [operation(0)]), "doubt").advice


# -- the first iteration ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "call", "said"),
    [
        ("miopenX", "hiprtcCompileProgram", "Keep MIOpen's kernel cache between runs"),
        ("gemm", "hiprtcCompileProgram", "It built or loaded programs."),
        ("miopenX", "hipGetDevice", "It is in no number per iteration: run a warm-up before you measure."),
    ],
)
def test_advice_on_the_first_iteration(api: str, call: str, said: str) -> None:
    """MIOpen's cache only if it computes, builds only if there were any."""
    slow = [Ran("a", 10 * MS, 0), Ran("a", 10 * MS, 0, after_ns=100 * MS)]
    fast = [Ran("a", 10 * MS, 0), Ran("a", 10 * MS, 0)]
    calls = [Call(call, 0, 1020 * MS, 1100 * MS)]
    run = subject({1: slow, 2: fast, 3: fast}, [operation(0, api=api)], other_calls=calls)
    one = fired(run, "first-iteration")
    assert one.severity == "medium"  # it happens once
    assert said in one.advice
    assert ("built or loaded" in one.advice) is (call != "hipGetDevice")
    assert ("kernel cache" in one.advice) is (said.startswith("Keep"))


@pytest.mark.parametrize(("excess_ms", "severity"), [(11, ""), (12, "low"), (80, "medium")])
def test_first_calls_are_measured_against_the_iterations(excess_ms: int, severity: str) -> None:
    """An iteration of 2,400 ms, of which the calls are 40 ms: what they cost once is no large part of it."""
    operations = [operation(at, input=(1, 1, 1, 1)) for at in range(4)]
    ran = [Ran("work", (10 + excess_ms * (not at)) * MS, at) for at in range(4)]
    run = subject({1: [*ran, Ran("rest", (2360 - excess_ms) * MS)]}, operations, calls=False)
    of = [one for one in findings(run) if one.rule.id == "first-iteration"]
    assert [one.severity for one in of] == [severity] * bool(severity)
    for one in of:
        assert f"once ({100 * excess_ms / 2400:.1f} % of the iterations recorded)" in one.found.number


@pytest.mark.parametrize(("call", "is_cold"), [("hipModuleLoadData", True), ("hipGetDevice", False)])
def test_a_first_iteration_with_a_few_other_kernels_is_cold_if_it_alone_builds(call: str, is_cold: bool) -> None:
    """The optimiser has no state yet, so that the first step has fewer kernels and is of another kind."""
    usual = [Ran("a", 10 * MS)] * 10
    slow = [*[Ran("a", 10 * MS)] * 7, Ran("b", 10 * MS, after_ns=900 * MS)]
    calls = [Call(call, 0, 1080 * MS, 1900 * MS)]
    run = subject({1: slow, 2: usual, 3: usual}, other_calls=calls)
    assert run.steady.told.kind != run.steady.told.all[0].kind
    assert run.first_iteration == ((980 * MS, 100 * MS, 1180 * MS) if is_cold else None)
    assert ("first-iteration" in [one.rule.id for one in findings(run)]) is is_cold
    if is_cold:
        assert fired(run, "first-iteration").advice.startswith("It built or loaded programs.")


@pytest.mark.parametrize(("call", "is_found"), [("clBuildProgram", True), ("clFinish", False)])
def test_one_steady_iteration_is_enough_if_only_the_first_one_builds(call: str, is_found: bool) -> None:
    slow = [Ran("a", 50 * MS), Ran("a", 50 * MS, after_ns=900 * MS)]
    run = subject({1: slow, 2: [Ran("a", 50 * MS)] * 2}, other_calls=[Call(call, 0, 1060 * MS, 1900 * MS)])
    assert ("first-iteration" in [one.rule.id for one in findings(run)]) is is_found


@pytest.mark.parametrize(("ms", "is_cold"), [(400, True), (401, False)])
def test_a_first_iteration_of_other_work_is_not_the_steady_one_made_slow(ms: int, is_cold: bool) -> None:
    """More than twice the kernel time is other work (a prefill), whatever it loads."""
    usual = [Ran("a", 100 * MS), Ran("a", 100 * MS)]
    other = [Ran("b", ms * MS), Ran("b", 0, after_ns=100 * MS)]
    load = Call("hipModuleLoadData", 0, 1401 * MS, 1450 * MS)
    run = subject({1: other, 2: usual, 3: usual, 4: usual}, other_calls=[load])
    assert (run.first_iteration is not None) is is_cold


def test_find_in_the_first_iteration_is_named() -> None:
    fast = [Ran("a", 10 * MS, 0)]
    searched = [Ran("try", 50 * MS, 1), *fast, Ran("a", 10 * MS, 0, after_ns=100 * MS)]
    run = subject({1: searched, 2: fast, 3: fast}, [operation(0), operation(1, phase="find")])
    assert fired(run, "first-iteration").advice.startswith("MIOpen Find ran in it.")


def test_a_first_call_in_the_only_iteration_asks_for_more_iterations() -> None:
    operations = [operation(index, input=(1, 1, 1, 1)) for index in range(6)]
    ran = [Ran("work", 10 * MS if index else 22 * MS, index) for index in range(6)]
    one = subject({1: ran}, operations, calls=False)
    two = subject({1: ran[:3], 2: ran[3:]}, operations, calls=False)
    assert fired(one, "first-iteration").advice.startswith("Record several iterations")
    assert fired(two, "first-iteration").advice == "Run a warm-up before you measure."


def test_the_length_of_a_step_without_an_end_is_in_no_median() -> None:
    """Repetitions last until the next one begins: the last one's length is not known."""
    fast = [Ran("a", 10 * MS)]
    run = subject({1: [Ran("a", 40 * MS)], 2: fast, 3: fast, 4: fast})
    told = run.steady.told
    steps = [one if one.number < 4 else type(one)(number=4, kernels=1, kernel_ns=10 * MS) for one in told.all]
    run.steady.__dict__["told"] = type(told)(
        **{name: getattr(told, name) for name in told.__struct_fields__ if name != "all"}, all=tuple(steps)
    )
    assert run.first_iteration == (40 * MS, 10 * MS, 60 * MS)


# -- similar problems ------------------------------------------------------------------------------------------------

GEMM, WINOGRAD = "Cijk_Ailk_Bljk_SB_MT64x64x8", "miopenSp3AsmConv_v21_1_2_gfx9_fp32_stride1"


def similar(
    own: str,
    others: str,
    *,
    primitive: str = "conv",
    find: bool = False,
    filters: tuple[int, int] = (1, 1),
    **more: Any,
) -> Subject:
    """A problem of 30 ms with a kernel, and four of 10 ms with another one; each has the same work."""
    made = [
        operation(
            at,
            flop=1000 * MS,
            primitive=primitive,
            weights=(8, 8, *(filters if at == 4 else (1, 1))),
            input=(1, 8, 9 + at, 9),
        )
        for at in range(5)
    ]
    ran = [Ran(own if at == 4 else others, (30 if at == 4 else 10) * MS, at) for at in range(5)]
    found = [Ran("try", MS, 5)] if find else []
    searched = [operation(5, phase="find", primitive=primitive, weights=(8, 8, *filters), input=(1, 8, 13, 9))]
    return subject({SETUP: found, 1: ran, 2: ran} if find else {1: ran, 2: ran}, [*made, *searched], **more)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (similar(WINOGRAD, GEMM), "MIOPEN_DEBUG_CONV_WINOGRAD=0, which excludes Winograd"),
        (similar(WINOGRAD, GEMM, find=True), "MIOPEN_DEBUG_CONV_WINOGRAD=0, which excludes Winograd"),
        (similar(GEMM, WINOGRAD), "MIOPEN_DEBUG_CONV_GEMM=0, which excludes Gemm"),
        (similar(GEMM, GEMM, find=True), "MIOpen Find compared the solvers in this run"),
        (similar(GEMM, GEMM), "MIOPEN_FIND_ENFORCE=SEARCH"),
        (similar("mystery", GEMM), "MIOPEN_FIND_ENFORCE=SEARCH"),
        (similar(GEMM, GEMM, primitive="gemm", ranges=TORCH), "PYTORCH_TUNABLEOP_ENABLED=1"),
        (similar(GEMM, GEMM, primitive="gemm"), "hipblaslt-bench"),
        (similar(GEMM, GEMM, primitive="gemm", ranges=TORCH, device="NVIDIA A100"), "Compare its layout with that"),
        (similar(GEMM, WINOGRAD, device="NVIDIA A100"), "Compare its layout, padding and sizes"),
    ],
)
def test_advice_on_slow_problems(run: Subject, said: str) -> None:
    """By the algorithms of both sides, and by what Find did in this run."""
    one = fired(run, "slow-for-its-kind")
    assert said in one.advice
    assert "GFLOP/s); 4 similar problems have" in one.found.number


@pytest.mark.parametrize(("mb", "is_slow"), [(None, True), (20, True), (19, False), (80, True), (81, False)])
def test_a_problem_that_moves_more_bytes_for_its_work_is_not_similar(mb: int | None, is_slow: bool) -> None:
    """The others move 40 MB each for the same work. A product that memory limits has no faster solver."""
    sizes = [None if mb is None else 40_000_000] * 4 + [None if mb is None else mb * 1_000_000]
    problems = [
        operation(at, flop=1000 * MS, primitive="gemm", input=(9 + at, 9), bytes_min=sizes[at]) for at in range(5)
    ]
    ran = [Ran("work", (30 if at == 4 else 10) * MS, at) for at in range(5)]
    fired_ = [one.rule.id for one in findings(subject({1: ran, 2: ran}, problems))]
    assert ("slow-for-its-kind" in fired_) is is_slow


# -- time that changes -----------------------------------------------------------------------------------------------


def changing(*, sizes: tuple[int, ...] = (1, 1, 1, 1), **more: Any) -> Subject:
    """Ten calls of a convolution, of which two take twice as long."""
    ran = [Ran("work", (20 if at > 7 else 10) * MS, at) for at in range(10)]
    return subject({1: ran}, [operation(at, input=sizes) for at in range(10)], **more)


def test_calls_without_sizes_are_not_one_problem() -> None:
    """Without `record_shapes` all convolutions of a net have one name. Neither their spread nor their first call says
    anything."""
    assert "unsteady" in [one.rule.id for one in findings(changing())]
    assert "unsteady" not in [one.rule.id for one in findings(changing(sizes=()))]
    for sizes, is_found in (((1, 1, 1, 1), True), ((), False)):
        calls = [operation(at, input=sizes) for at in range(3)]
        run = subject({1: [Ran("work", (30 - 10 * min(at, 1)) * MS + at, at) for at in range(3)]}, calls, calls=False)
        slow = subject({1: [Ran("work", (50 if not at else 10) * MS, at) for at in range(3)]}, calls, calls=False)
        assert "first-iteration" not in [one.rule.id for one in findings(run)]
        assert ("first-iteration" in [one.rule.id for one in findings(slow)]) is is_found


@pytest.mark.parametrize(
    ("more", "tool"),
    [
        ({}, "rocm-smi"),
        ({"device": "AMD Instinct MI300X"}, "rocm-smi"),
        ({"device": "NVIDIA H100"}, "nvidia-smi"),
        ({"api": "cuda"}, "nvidia-smi"),
        ({"calls": False}, "rocm-smi"),
    ],
)
def test_the_tool_for_clocks_is_that_of_the_maker(more: dict[str, Any], tool: str) -> None:
    assert f"power ({tool})" in fired(changing(**more), "unsteady").advice


def test_a_convolution_of_another_filter_size_is_not_similar() -> None:
    assert "slow-for-its-kind" not in [one.rule.id for one in findings(similar(GEMM, WINOGRAD, filters=(3, 3)))]


# -- kernels that could be one -----------------------------------------------------------------------------------------


def attention(*between: str, ranges: Sequence[Range] = TORCH, backward: bool = False) -> Subject:
    """Two iterations with an attention in several kernels of 10 ms, and 10 ms of another kernel."""
    own = [
        operation(0, primitive="gemm", gemm=Gemm(9, 9, 64, 8), input=(8, 9, 64)),
        *(operation(1 + at, primitive=name, api=name, input=(2, 4, 9, 9)) for at, name in enumerate(between)),
        operation(90, primitive="softmax", input=(2, 4, 9, 9), direction="backward-data" if backward else "forward"),
        operation(91, primitive="aten::copy_", api="aten::copy_", input=(8, 9, 64)),
        operation(92, primitive="gemm", gemm=Gemm(9, 64, 9, 8), input=(8, 9, 9)),
    ]
    each = [*[Ran("work", 10 * MS, one.index) for one in own], Ran("other", 10 * MS)]
    return subject({1: each, 2: each}, own, ranges=ranges)


def test_attention_in_several_kernels_should_be_one() -> None:
    """The copy of the values is not counted, the scale and the mask are: they have the size of the matrix."""
    one = fired(attention("aten::mul", "aten::add"), "unfused-attention")
    assert one.found.ns == 50 * MS
    assert one.found.number == (
        "50.00 ms per iteration, 71.4 % of the kernel time, in 1 group of product, softmax and product; most with"
        " Softmax fwd 2x4x9x9."
    )
    assert "scaled_dot_product_attention" in one.advice
    assert 'attn_implementation="sdpa"' in one.advice
    assert fired(attention(backward=True), "unfused-attention").found.ns == 30 * MS


@pytest.mark.parametrize(
    ("between", "ranges", "is_found"),
    [
        (8, TORCH, True),
        # too far apart to be one attention
        (9, TORCH, False),
        # PyTorch chose to compute it in several kernels, or another library computes it in one
        (1, (*TORCH, Range("operator", "aten::_scaled_dot_product_attention_math", 0, 0, 1)), False),
        (1, (*TORCH, Range("operator", "flash_attn::_flash_attn_forward", 0, 0, 1)), False),
        # not PyTorch
        (1, (), False),
    ],
)
def test_a_fused_attention_is_advised_only_if_none_runs(between: int, ranges: Sequence[Range], is_found: bool) -> None:
    run = attention(*["aten::mul"] * between, ranges=ranges)
    assert ("unfused-attention" in [one.rule.id for one in findings(run)]) is is_found


ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
NAMES = (
    "void at::native::elementwise_kernel<4, at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda>>()",
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>()",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>>()",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>()",
)
OTHERS = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>()", "Cijk_Alik_Bljk_SB_MT64x64x8",
    "elementwise_kernel", "void at::native::(anonymous namespace)::indexSelectLargeIndex<float>()",
)  # fmt: skip


@pytest.mark.parametrize(("name", "is_found"), [*((name, True) for name in NAMES), *((name, False) for name in OTHERS)])
def test_which_kernels_are_element_wise(name: str, is_found: bool) -> None:
    """PyTorch's own that torch.compile fuses."""
    each = [Ran(name, 60 * MS), Ran("other", 40 * MS)]
    run = subject({1: each, 2: each}, ranges=TORCH)
    assert ("element-wise" in [one.rule.id for one in findings(run)]) is is_found


COMPILED = (
    Range("annotation", "## Call CompiledFxGraph f7 ##", 0, 0, 1),
    Range("annotation", "Torch-Compiled Region: 0/0", 0, 0, 1),
    Range("operator", "CompiledFunctionBackward", 0, 0, 1),
)


def test_what_is_compiled_is_not_to_be_compiled() -> None:
    """By kernels of Triton or regions in the profile; also in the advice against short kernels and slow launches."""
    each = [Ran(ADD, 60 * MS), Ran("other", 40 * MS)]
    assert fired(subject({1: each, 2: each}, ranges=TORCH), "element-wise").advice.startswith(
        "Fuse them: torch.compile"
    )
    by_triton = [*each, Ran("triton_poi_fused_add_0", MS)]
    runs = [subject({1: by_triton, 2: by_triton}, ranges=TORCH)]
    runs += [subject({1: each, 2: each}, ranges=(*TORCH, made)) for made in COMPILED]
    assert [one for run in runs for one in findings(run) if one.rule.id == "element-wise"] == []
    for made in COMPILED:
        for rule in ("short-kernels", "idle"):
            assert "torch.compile" in fired(short(ranges=TORCH), rule).advice
            assert "torch.compile" not in fired(short(ranges=(*TORCH, made)), rule).advice


def test_the_kernels_of_an_attention_are_counted_once() -> None:
    """Its scale is element-wise, too."""
    own = [
        operation(0, primitive="gemm", gemm=Gemm(9, 9, 64, 8), input=(8, 9, 64)),
        operation(1, primitive="aten::mul", api="aten::mul", input=(8, 9, 9)),
        operation(2, primitive="softmax", input=(8, 9, 9)),
        operation(3, primitive="gemm", gemm=Gemm(9, 64, 9, 8), input=(8, 9, 9)),
    ]
    each = [Ran("a", 10 * MS, 0), Ran(ADD, 60 * MS, 1), Ran("b", 10 * MS, 2), Ran("c", 10 * MS, 3), Ran(ADD, 10 * MS)]
    of = {one.rule.id: one.found.ns for one in findings(subject({1: each, 2: each}, own, ranges=TORCH))}
    assert of["unfused-attention"] == 90 * MS
    assert "element-wise" not in of


# -- layouts, auxiliary kernels, peaks -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "ranges", "said"),
    [
        ("NCHW", (), "Keep tensors in the layout of the kernels, NHWC."),
        ("NCHW", TORCH, "NHWC (memory_format=torch.channels_last"),
        ("NHWC", TORCH, "Tensors are NHWC already"),
    ],
)
def test_nhwc_is_advised_only_if_tensors_are_not(layout: str, ranges: Sequence[Range], said: str) -> None:
    each = [Ran("batched_transpose_16x32", 20 * MS, 0), Ran("work", 80 * MS, 0)]
    assert (
        said
        in fired(subject({1: each, 2: each}, [operation(0, layout=layout)], ranges=ranges), "layout-transposes").advice
    )


@pytest.mark.parametrize("kernel", ["nchwToNhwcKernel", "nhwcToNchwKernel"])
def test_the_transposes_of_cudnn_are_known(kernel: str) -> None:
    """The variable of MIOpen is no advice for it."""
    name = f"void cudnn::ops::{kernel}<float, float, float, false, true, (cudnnKernelDataType_t)2>(x)"
    each = [Ran(name, 20 * MS, 0), Ran("work", 80 * MS, 0)]
    one = fired(subject({1: each, 2: each}, [operation(0)], ranges=TORCH, api="cuda"), "layout-transposes")
    assert one.found.ns == 20 * MS
    assert one.advice == "Keep tensors in the layout of the kernels, NHWC (memory_format=torch.channels_last)."


@pytest.mark.parametrize(
    ("kernel", "said"), [("Im2Col", "other than Gemm"), ("SubTensorOpWithScalar1d", "set tensors to zero")]
)
def test_advice_on_auxiliary_kernels_is_by_role(kernel: str, said: str) -> None:
    each = [Ran(kernel, 20 * MS, 0), Ran("work", 80 * MS, 0)]
    assert said in fired(subject({1: each, 2: each}, [operation(0)]), "helpers").advice


@pytest.mark.parametrize(
    ("kernel", "said"),
    [("SubTensorOpWithCastTensor4d", "MIOpen's solver works in another type"), ("CastTensor", "Keep one type")],
)
def test_advice_on_casts_is_by_who_casts(kernel: str, said: str) -> None:
    each = [Ran(kernel, 20 * MS, 0), Ran("work", 80 * MS, 0)]
    assert said in fired(subject({1: each, 2: each}, [operation(0)]), "casts").advice


@pytest.mark.parametrize(("bytes_min", "said"), [(20 * MS, "memory limits it"), (1, "MIOPEN_FIND_ENFORCE=SEARCH")])
def test_advice_below_the_peak_is_by_what_limits(bytes_min: int, said: str) -> None:
    gpu = Gpu(name="made up", tflops={"float": 1.0}, bandwidth=100.0, units=8)
    run = subject({1: [Ran("work", MS, 0)]}, [operation(0, flop=100 * MS, bytes_min=bytes_min)], gpu=gpu)
    assert said in fired(run, "roofline-gap").advice


def test_a_run_without_known_iterations_has_no_severe_finding() -> None:
    """Set-up and warm-up may be in it."""
    ran = [Ran("batched_transpose_16x32", 20 * MS, 0), Ran("work", 80 * MS, 0)]
    run = subject({SETUP + 0: ran}, [operation(0)])
    assert {one.severity for one in findings(run)} <= {"medium", "low", "info"}


# -- What is advised against idle time fits its largest cause in the run.


def idle(*calls: Call, queued: bool = False, graph: bool = False) -> Finding:
    """Of two iterations of 110 ms, each with a gap of 40 ms in which the host is in one of ``calls``."""
    each = [Ran("a", 30 * MS), Ran("b", 40 * MS, after_ns=40 * MS, queued=queued, graph=graph)]
    (found,) = [one for one in findings(subject({1: each, 2: each}, other_calls=calls)) if one.rule.id == "idle"]
    return found


def during(name: str, ns: int = 38 * MS) -> list[Call]:
    """A call in the gap of each iteration."""
    return [Call(name, 0, begin + 31 * MS, begin + 31 * MS + ns) for begin in (1000 * MS, 2110 * MS)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hipStreamSynchronize", "remove this synchronisation"),
        ("hipMemcpyWithStream", "The copy blocks the host"),
        ("hipMalloc", "allocate before the step"),
        ("hiprtcCompileProgram", "Programs are built or loaded"),
        ("hipGetDevice", "look at why the host is in hipGetDevice for so long"),
    ],
)
def test_the_call_that_the_host_is_in_decides(name: str, said: str) -> None:
    assert said in idle(*during(name)).advice


@pytest.mark.parametrize(("ns", "is_named"), [(24 * MS, True), (19 * MS, False)])
def test_a_call_during_less_than_half_of_a_gap_decides_nothing(ns: int, is_named: bool) -> None:
    """It is then neither named nor advised about."""
    found = idle(*during("hipStreamSynchronize", ns))
    assert ("in hipStreamSynchronize" in found.found.number) is is_named
    assert ("remove this synchronisation" in found.advice) is is_named


def short_gaps(us: int, *, synchronised: int) -> Finding:
    """Of two iterations of ten gaps of ``us`` each, in ``synchronised`` of which the host synchronises."""
    each = [Ran("a", 100 * US), *[Ran("a", 100 * US, after_ns=us * US)] * 10]
    calls, start = [], 0
    for begin in (1000 * MS, 2000 * MS + 1100 * US + 10 * us * US):
        for gap in range(synchronised):
            start = begin + 100 * US + gap * (us + 100) * US
            calls.append(Call("hipStreamSynchronize", 0, start + US, start + us * US - US))
    (found,) = [one for one in findings(subject({1: each, 2: each}, other_calls=calls)) if one.rule.id == "idle"]
    return found


@pytest.mark.parametrize(("synchronised", "said"), [(4, "remove this synchronisation"), (3, "launches too slowly")])
def test_calls_of_one_kind_decide_from_a_third_of_the_time_on(synchronised: int, said: str) -> None:
    assert said in short_gaps(100, synchronised=synchronised).advice


@pytest.mark.parametrize(("us", "said"), [(200, "launches too slowly"), (201, "look at what the program does")])
def test_only_short_gaps_are_slow_launches(us: int, said: str) -> None:
    """In a long gap the host does something else than launching."""
    assert said in short_gaps(us, synchronised=0).advice


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("aten::view", "aten::mm", "hipLaunchKernel", "aten::empty"), "look at the host's processor"),
        (("aten::view", "aten::mm", "loss", "optimizer"), "look at the host's processor"),
        (("aten::view", "batch", "loss", "optimizer"), "look at what the program does"),
        (("aten::view", "aten::view", "loss", "optimizer"), "look at why the host is in aten::view"),
    ],
)
def test_long_gaps_in_many_ops_are_the_processors(names: tuple[str, ...], said: str) -> None:
    """Four gaps of a millisecond, each with another op, call or range of the program."""
    each = [Ran("a", 100 * US), *[Ran("a", 100 * US, after_ns=MS)] * 4]
    begins = [begin + 100 * US + gap * 1100 * US for begin in (1000 * MS, 2000 * MS + 4500 * US) for gap in range(4)]
    ranges = [
        Range("operator" if "::" in name else "range", name, 0, begin + US, begin + MS - US)
        for begin, name in zip(begins, 2 * names, strict=True)
    ]
    (found,) = [one for one in findings(subject({1: each, 2: each}, ranges=ranges)) if one.rule.id == "idle"]
    assert said in found.advice


def test_a_name_is_in_the_sentence_from_a_tenth_of_the_time_on() -> None:
    assert "of it in hipStreamSynchronize" in short_gaps(100, synchronised=2).found.number
    assert "hipStreamSynchronize" not in short_gaps(100, synchronised=0).found.number


def test_work_that_was_launched_in_time_is_not_the_hosts() -> None:
    assert "look for what it waits for" in idle(queued=True).advice


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([Ran("a", 30 * MS), Ran("b", 40 * MS, after_ns=40 * MS, queued=True, graph=True)], "nodes start late"),
        ([Ran("a", 70 * MS, graph=True), Ran("b", 40 * MS, after_ns=40 * MS, queued=True)], "look for what it waits"),
    ],
)
def test_a_late_graph_may_have_lost_nodes(nodes: list[Ran], said: str) -> None:
    """The gap is queued: the profiler is doubted only if a node of a graph ends it."""
    found = fired(subject({1: nodes, 2: nodes}), "idle")
    assert said in found.advice
    assert found.severity == ("medium" if "nodes" in said else "high")


def test_graphs_are_not_advised_to_a_run_of_graphs() -> None:
    assert idle(graph=True).advice.startswith("Graphs already launch the step")


@pytest.mark.parametrize(("idle_steps", "severity"), [(2, "low"), (3, "high")])
def test_idle_time_of_few_steps_is_low_and_names_the_longest(idle_steps: int, severity: str) -> None:
    """Five steps of 10 ms, of which some wait for 50 ms or more."""
    busy = [Ran("a", 5 * MS), Ran("a", 5 * MS)]
    steps = {
        number: [Ran("a", 5 * MS), Ran("a", 5 * MS, after_ns=(50 + number) * MS)] if number > 5 - idle_steps else busy
        for number in range(1, 6)
    }
    (found,) = [one for one in findings(subject(steps)) if one.rule.id == "idle"]
    assert found.severity == severity
    assert found.advice.startswith("Look at iteration 5 alone") is (severity == "low")


def test_launches_without_kernels_leave_open_whether_the_gaps_are_idle() -> None:
    """One lost of seven launches is more than a tenth; one of eleven is less."""
    for steps, severity in ((1, "low"), (5, "high")):
        each = [Ran("a", 30 * MS), Ran("b", 30 * MS, after_ns=40 * MS), Ran("b", MS)]
        run = subject(
            dict.fromkeys(range(1, 2 + steps), each), other_calls=[Call("hipLaunchKernel", 0, 1035 * MS, 1036 * MS)]
        )
        (found,) = [one for one in findings(run) if one.rule.id == "idle"]
        assert found.severity == severity
        assert found.advice.startswith("Record the run again, completely") is (severity == "low")


def test_one_iteration_alone_asks_for_more() -> None:
    """It may be cold: nothing else can be advised."""
    ran = [Ran("a", 30 * MS), Ran("b", 30 * MS, after_ns=40 * MS)]
    (found,) = [one for one in findings(subject({1: ran})) if one.rule.id == "idle"]
    assert found.severity == "medium"
    assert found.advice.startswith("Record several steps")
    assert msgspec.to_builtins(found.record())["try"] == found.advice


def test_the_cache_is_advised_only_if_miopen_computes() -> None:
    """A program without MIOpen has no cache of MIOpen."""
    each = [Ran("a", 30 * MS, 0), Ran("b", 40 * MS, after_ns=40 * MS)]
    calls = during("hiprtcCompileProgram")
    for operations, has in (([operation(0)], True), ([operation(0, api="gemm")], False)):
        run = subject({1: each, 2: each}, operations, other_calls=calls)
        (found,) = [one for one in findings(run) if one.rule.id == "idle"]
        assert ("MIOPEN_CUSTOM_CACHE_DIR" in found.advice) is has


@pytest.mark.parametrize(("count", "is_found"), [(60, True), (45, False)])
def test_some_kernels_that_repeat_show_little(count: int, is_found: bool, tmp_path: Path) -> None:
    """Less than a millisecond idle in all: no mark says that the kernels are steps of a program."""
    rows = [f"{number},f,0,0,7,7,64,64,{40 * US * number},{40 * US * number + 20 * US}" for number in range(1, count)]
    path = tmp_path / "results.csv"
    path.write_text("\n".join(["Index,KernelName,gpu-id,queue-id,pid,tid,grd,wgr,BeginNs,EndNs", *rows, ""]))
    (measures,) = mio2trace.analyse(path).run.measures
    assert measures.steady.told.told_by == "repetition"
    assert ("idle" in [one.rule.id for one in findings(Subject(measures))]) is is_found
