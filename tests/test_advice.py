"""Each advice has a precondition: the run that has it gets the advice, the run that has not gets another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mio2trace
from mio2trace.findings import Gpu, Subject, findings
from mio2trace.model.choices import Gemm
from mio2trace.model.profile import Call, Range
from mio2trace.ops.families.collective import CollectiveProblem
from tests.made_up_costs import MS, SETUP, US, Ran, fired, operation, rules, subject, twice
from tests.test_findings import ADD, ALL_REDUCE, TORCH, TURN, beside, changing

# -- a step that earlier ones warmed up ------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "cold"), [(0, True), (1, True), (2, False), (6, False)])
def test_a_step_that_pytorch_numbers_2_or_more_is_warm(number: int, cold: bool) -> None:
    """Its profiler counts steps that it did not record."""
    mark = Range("annotation", f"ProfilerStep#{number}", 0, 0, 10_000 * MS)
    assert subject({number: [Ran("a", MS)]}, ranges=[mark]).steady.told.may_be_cold is cold
    assert subject({number: [Ran("a", MS)]}).steady.told.may_be_cold


# -- what is said of a run, by its rule ------------------------------------------------------------------------------


def reducing(ns: int, elements: int, beside_ns: int = 0, kind: str = "allreduce", **more: Any) -> Subject:
    """Two iterations of a collective of ``ns``, of which a kernel hides ``beside_ns``, and 10 ms of another kernel."""
    problem = CollectiveProblem(primitive=kind, sent=elements, received=elements, ranks=2, dtype="float")
    own = [operation(at, problem=problem, primitive=kind, api="nccl", direction=None, command=None) for at in (0, 1)]
    hiding = Ran("work", beside_ns + MS, after_ns=-beside_ns)
    return subject({1 + at: [Ran("work", 10 * MS), Ran(ALL_REDUCE, ns, at), hiding] for at in (0, 1)}, own, **more)


def short(idle_us: int = 100, *, graph: bool = False, api: str = "miopenX", **more: Any) -> Subject:
    """Two iterations of 40 kernels of 9 us each, a gap before each."""
    each = [Ran("short", 9 * US, 0, after_ns=idle_us * US, graph=graph)] * 40
    return twice(each, [operation(0, api=api)], **more)


def replayed(*operations: int, **more: Any) -> Subject:
    each = [Ran("a", 10 * MS, 0 if operations else None), Ran("b", 90 * MS, graph=True)]
    return twice(each, [*map(operation, operations)], **more)


def uncertain(*, graph: bool) -> Subject:
    return twice([Ran("a", 40 * MS, 0), Ran("b", 60 * MS, 0, graph=graph, unsure=True)], [operation(0)])


def helped(kernel: str, layout: str = "", **more: Any) -> Subject:
    """A fifth of the time in a kernel that helps."""
    return twice([Ran(kernel, 20 * MS, 0), Ran("work", 80 * MS, 0)], [operation(0, layout=layout)], **more)


def below_the_peak(bytes_min: int) -> Subject:
    gpu = Gpu(name="made up", tflops={"float": 1.0}, bandwidth=100.0, units=8)
    return subject({1: [Ran("work", MS, 0)]}, [operation(0, flop=100 * MS, bytes_min=bytes_min)], gpu=gpu)


GEMM, WINOGRAD = "Cijk_Ailk_Bljk_SB_MT64x64x8", "miopenSp3AsmConv_v21_1_2_gfx9_fp32_stride1"


def similar(
    own: str,
    others: str,
    primitive: str = "conv",
    *,
    find: bool = False,
    filters: tuple[int, int] = (1, 1),
    **more: Any,
) -> Subject:
    """A problem of 30 ms with a kernel, and four of 10 ms with another one; each has the same work."""
    common = {"flop": 1000 * MS, "primitive": primitive}
    made = [operation(at, weights=(8, 8, 1, 1), input=(1, 8, 9 + at, 9), **common) for at in range(4)]
    made += [
        operation(4 + at, weights=(8, 8, *filters), input=(1, 8, 13, 9), phase=phase, **common)
        for at, phase in enumerate(("run", "find"))
    ]
    ran = [Ran(own if at == 4 else others, (30 if at == 4 else 10) * MS, at) for at in range(5)]
    return subject({SETUP: [Ran("try", MS, 5)] * find, 1: ran, 2: ran}, made, **more)


def no_calls(numbers: str, name: str = "void at::native::vectorized_elementwise_kernel<4>()") -> Subject:
    each = [Ran(name, 10 * MS), Ran(name, 10 * MS, after_ns=30 * MS)]
    return subject({1: each, 2: each, 3: each}, calls=False, numbers=numbers)


def searched() -> Subject:
    """MIOpen Find runs in the first iteration."""
    fast = [Ran("a", 10 * MS, 0)]
    first = [Ran("try", 50 * MS, 1), *fast, Ran("a", 10 * MS, 0, after_ns=100 * MS)]
    return subject({1: first, 2: fast, 3: fast}, [operation(0), operation(1, phase="find")])


def slow_first(api: str, call: str) -> Subject:
    """The host is in a call for most of the first iteration."""
    slow, fast = ([Ran("a", 10 * MS, 0), Ran("a", 10 * MS, 0, after_ns=ns)] for ns in (100 * MS, 0))
    calls = [Call(call, 0, 1020 * MS, 1100 * MS)]
    return subject({1: slow, 2: fast, 3: fast}, [operation(0, api=api)], other_calls=calls)


def called_first(*iterations: range) -> Subject:
    """A problem posed in these iterations, the first time for more than twice as long."""
    ran = {number: [Ran("work", (10 if at else 22) * MS, at) for at in of] for number, of in enumerate(iterations, 1)}
    return subject(ran, [operation(index, input=(1, 1, 1, 1)) for index in range(6)], calls=False)


def waiting(
    name: str = "", ns: int = 38 * MS, api: str = "", of: Sequence[Range] = (), stacks: bool = False, **more: Any
) -> Subject:
    """Two iterations of 110 ms, each with a gap of 40 ms in which the host is in a call."""
    each = [Ran("a", 30 * MS, 0 if api else None), Ran("b", 40 * MS, after_ns=40 * MS, **more)]
    calls = [Call(name, 0, begin + 31 * MS, begin + 31 * MS + ns) for begin in (1000 * MS, 2110 * MS)]
    own = [operation(0, api=api)] if api else []
    return twice(each, own, other_calls=calls if name else [], ranges=of, stacks=stacks)


def loading(by: str) -> Subject:
    """The same with a range of PyTorch's DataLoader."""
    spans = ((begin + 31 * MS, begin + 69 * MS) for begin in (1000 * MS, 2110 * MS))
    ranges = [Range("annotation", f"enumerate(DataLoader)#{by}.__next__", 0, *span) for span in spans]
    return waiting(of=[*TORCH, *ranges])


def jitted(*names: str) -> list[Range]:
    """Ops of the programs that XLA compiled."""
    return [Range("operator", name, 0, 0, 1) for name in names]


def unmarked(**more: Any) -> Subject:
    """A run without iterations, half of it idle."""
    return subject({SETUP: [Ran("a", 40 * MS), Ran("b", 40 * MS, after_ns=80 * MS)]}, **more)


def moving(mb: int | None) -> Subject:
    """A product that moves so much, and four like it that move 40 MB each for the same work in a third of the time."""
    sizes = [None if mb is None else 40_000_000] * 4 + [None if mb is None else mb * 1_000_000]
    problems = [
        operation(at, flop=1000 * MS, primitive="gemm", input=(9 + at, 9), bytes_min=sizes[at]) for at in range(5)
    ]
    return twice([Ran("work", (30 if at == 4 else 10) * MS, at) for at in range(5)], problems)


def attention(*between: str, ranges: Sequence[Range] = TORCH, backward: bool = False, scale: str = "work") -> Subject:
    """Two iterations with an attention in several kernels of 10 ms, and 10 ms of another kernel."""
    own = [
        operation(0, primitive="gemm", gemm=Gemm(9, 9, 64, 8), input=(8, 9, 64)),
        *(operation(1 + at, primitive=name, api=name, input=(2, 4, 9, 9)) for at, name in enumerate(between)),
        operation(90, primitive="softmax", input=(2, 4, 9, 9), direction="backward-data" if backward else "forward"),
        operation(91, primitive="aten::copy_", api="aten::copy_", input=(8, 9, 64)),
        operation(92, primitive="gemm", gemm=Gemm(9, 64, 9, 8), input=(8, 9, 9)),
    ]
    each = [Ran(scale if one.api == "aten::mul" else "work", 10 * MS, one.index) for one in own]
    return twice([*each, Ran("other", 10 * MS)], own, ranges=ranges)


A100 = "NVIDIA A100"
NHWC = "void cudnn::ops::{}<float, float, float, false, true, (cudnnKernelDataType_t)2>(x)"
SAID = [
    # 2 ranks: 4 MiB in 4 ms is 1.05 GB/s on the bus
    ("communication", reducing(4 * MS, 1 << 20), "Record all ranks"),
    # 1 MiB less an element is a small message, whatever its rate
    ("communication", reducing(4 * MS, (1 << 18) - 1), "Overlap collectives with computation"),
    # 40 MB in 4 ms is 10 GB/s
    ("communication", reducing(4 * MS, 10_000_000), "Overlap collectives with computation"),
    ("communication", reducing(4 * MS + 1, 10_000_000), "Record all ranks"),
    # both are here
    ("communication", reducing(4 * MS, 1 << 20, processes=2),
     "1.05 GB/s is slow for a GPU link: ranks wait for each other, or the network is slow. `mio2trace ranks"),
    # a tenth of the time is hidden
    ("communication", reducing(4 * MS, 10_000_000, 401 * US),
     "10.0 % of the collectives' time is overlapped already: send less"),
    ("communication", reducing(4 * MS, 10_000_000, 399 * US), "Overlap collectives with computation"),
    # no buckets of gradients in an all-to-all; no gradient accumulation, and it is no layer of tensor parallelism
    *(("communication", reducing(4 * MS, elements, beside_ns, "alltoall", ranges=TORCH), said)
      for elements, beside_ns, said in (
          (0, 0, "Overlap it with another part of the batch, balance what ranks hold (shards, experts)"),
          (0, 401 * US, "10.0 % of the collectives' time is overlapped already: balance what ranks hold"),
          (1 << 20, 0, "Record all ranks"))),
    # one neighbour: `ranks` compares no sends, and nothing is reduced
    *(("communication", reducing(4 * MS, elements, beside_ns, kind, ranges=TORCH), "A rank waits for its neighbour.")
      for elements, beside_ns, kind in ((0, 0, "send"), (1 << 20, 0, "recv"), (1 << 20, 401 * US, "recv"))),
    # launching less helps only where the host is the limit, by means that the program has
    ("low short-kernels", short(), "Fuse kernels (MIOpen's fusion plans), capture the iteration in a graph"),
    ("low short-kernels", short(api="gemm"), "Fuse kernels, capture the iteration in a graph"),
    ("low short-kernels", short(ranges=TORCH), "Fuse kernels (torch.compile), capture the iteration in a graph"),
    ("low short-kernels", short(ranges=TORCH, graph=True), "or use larger batches: graphs launch them already"),
    ("info short-kernels", short(1), "Launching less will not help"),
    ("info short-kernels", short(calls_wait=True), "Fuse operations (MIOpen's fusion plans), or use larger batches"),
    ("info short-kernels", short(calls=False), "Fuse kernels (MIOpen's fusion plans)"),
    # the profiler that recorded the kernels records the calls; rocprofv3 also records PyTorch's programs
    ("idle", no_calls("dispatch_id"), "Record the host's calls to see the cause: rocprofv3 --hip-trace."),
    ("idle", no_calls("event_index"), "Record the host's calls to see the cause: the PyTorch profiler's CPU activity."),
    ("idle", no_calls("event_index", "ncclDevKernel_Generic"), "Record the host's calls to see the cause."),
    # PyTorch alone can record the capture
    ("graph", replayed(ranges=TORCH), "Record the capture as well"),
    ("graph", replayed(0), "Profile one run without graph capture"),
    ("doubt", uncertain(graph=True), "profile one run without graph capture"),
    ("doubt", uncertain(graph=False), "ROCTX=1"),
    # by the algorithms of both sides, and by what Find did in this run
    ("slow-for-its-kind", similar(WINOGRAD, GEMM), "MIOPEN_DEBUG_CONV_WINOGRAD=0, which excludes Winograd"),
    ("slow-for-its-kind", similar(WINOGRAD, GEMM, find=True), "MIOPEN_DEBUG_CONV_WINOGRAD=0, which excludes Winograd"),
    ("slow-for-its-kind", similar(GEMM, WINOGRAD), "MIOPEN_DEBUG_CONV_GEMM=0, which excludes Gemm"),
    ("slow-for-its-kind", similar(GEMM, GEMM, find=True), "MIOpen Find compared the solvers in this run"),
    ("slow-for-its-kind", similar(GEMM, GEMM), "MIOPEN_FIND_ENFORCE=SEARCH"),
    ("slow-for-its-kind", similar("mystery", GEMM), "MIOPEN_FIND_ENFORCE=SEARCH"),
    ("slow-for-its-kind", similar(GEMM, GEMM, "gemm", ranges=TORCH), "PYTORCH_TUNABLEOP_ENABLED=1"),
    ("slow-for-its-kind", similar(GEMM, GEMM, "gemm"), "hipblaslt-bench"),
    ("slow-for-its-kind", similar(GEMM, GEMM, "gemm", ranges=TORCH, device=A100), "Compare its layout with that"),
    ("slow-for-its-kind", similar(GEMM, WINOGRAD, device=A100), "Compare its layout, padding and sizes"),
    # the tool for clocks is that of the device's maker
    *(("unsteady", changing(10 * MS, 20 * MS, **more), f"power ({tool})") for more, tool in (
        ({}, "rocm-smi"), ({"device": "AMD Instinct MI300X"}, "rocm-smi"), ({"device": "NVIDIA H100"}, "nvidia-smi"),
        ({"api": "cuda"}, "nvidia-smi"), ({"calls": False}, "rocm-smi"))),
    # only tensors that have another layout can be changed to it
    ("layout-transposes", helped(TURN, "NCHW"), "Keep tensors in the layout of the kernels, NHWC."),
    ("layout-transposes", helped(TURN, "NCHW", ranges=TORCH), "NHWC (memory_format=torch.channels_last"),
    ("layout-transposes", helped(TURN, "NHWC", ranges=TORCH), "Tensors are NHWC already"),
    # those of cuDNN: no variable of MIOpen
    *(("layout-transposes", helped(NHWC.format(name), ranges=TORCH, api="cuda"),
       "Keep tensors in the layout of the kernels, NHWC (memory_format=torch.channels_last).")
      for name in ("nchwToNhwcKernel", "nhwcToNchwKernel")),
    # no word of MIOpen if nothing in the run is MIOpen's
    ("unattributed", beside("mine", 9 * MS), "the program's own or another library's."),
    ("unattributed", beside("gcnAsmWinogradXformData", 9 * MS), "record its ranges (MIOPEN_ENABLE_LOGGING_ROCTX=1)"),
    ("helpers", helped("Im2Col"), "other than Gemm"),
    ("helpers", helped("SubTensorOpWithScalar1d"), "set tensors to zero"),
    ("casts", helped("SubTensorOpWithCastTensor4d"), "MIOpen's solver works in another type"),
    ("casts", helped("CastTensor"), "Keep one type"),
    ("roofline-gap", below_the_peak(20 * MS), "memory limits it"),
    ("roofline-gap", below_the_peak(1), "MIOPEN_FIND_ENFORCE=SEARCH"),
    ("first-iteration", searched(), "MIOpen Find ran in it."),
    # it happens once; MIOpen's cache only if it computes, builds only if there were any
    *(("medium first-iteration", slow_first(api, call), said) for api, call, said in (
        ("miopenX", "hiprtcCompileProgram", "Keep MIOpen's kernel cache between runs"),
        ("miopenX", "hiprtcCompileProgram", "built or loaded"), ("gemm", "hiprtcCompileProgram", "!kernel cache"),
        ("gemm", "hiprtcCompileProgram", "It built or loaded programs."), ("miopenX", "hipGetDevice", "!kernel cache"),
        ("miopenX", "hipGetDevice", "!built or loaded"),
        ("miopenX", "hipGetDevice", "No number per iteration includes it: run a warm-up before you measure."))),
    ("first-iteration", called_first(range(6)), "Record several iterations"),
    ("first-iteration", called_first(range(3), range(3, 6)), "Run a warm-up before you measure."),
    # the call that the host is in decides; MIOpen's cache only if it computes
    ("idle", waiting("hipStreamSynchronize"), "remove this synchronisation"),
    ("idle", waiting("hipMemcpyWithStream"), "The copy blocks the host"),
    ("idle", waiting("hipMalloc"), "allocate before the step"),
    # PyTorch has a caching allocator, and a loader without workers cannot have more of them
    ("idle", waiting("hipMalloc", of=TORCH), "memory cache still grows in this step: record after more warm-up"),
    ("idle", loading("_SingleProcessDataLoaderIter"), "let workers do it during the step (DataLoader(num_workers=4))."),
    ("idle", loading("_MultiProcessingDataLoaderIter"), "use more of them, or do less work"),
    # what launches less in this framework; no API's name where the maker of the GPU is not known
    ("idle", short(), "(fusion, graphs) or use larger batches."),
    *(("idle", short(api="gemm", framework="XLA", ranges=jitted(*names)), said) for names, said in (
        (("jit_matmul/dot.1", "jit_add/fusion"), "(one jax.jit for the whole step) or use larger"),
        (("jit_step/dot.1", "jit_step/fusion"), "(several steps in a jax.lax.scan) or use larger"),
        (("cluster_7/dot.1",), "(tf.function(jit_compile=True)) or use larger batches."))),
    ("idle", short(ranges=TORCH), "(torch.compile, graphs) or use larger batches."),
    ("idle", unmarked(), 'with a range such as "step 1" around each step (ROCTx, rocprofv3 --marker'),
    ("idle", unmarked(framework="XLA", ranges=jitted("jit_add/fusion")),
     'with jax.profiler.StepTraceAnnotation("step", step_num=1) around'),
    ("idle", unmarked(framework="XLA"), 'with tf.profiler.experimental.Trace("step", step_num=1) around each step.'),
    # stacks take the host's time, which does not matter to a call that waits
    ("idle", short(ranges=TORCH, stacks=True), "compare without with_stack."),
    ("idle", short(ranges=TORCH), "!with_stack"),
    ("idle", short(api="gemm", framework="XLA", stacks=True), "!with_stack"),
    ("idle", waiting("hipStreamSynchronize", of=TORCH, stacks=True), "!with_stack"),
    ("idle", waiting("hiprtcCompileProgram"), "Programs are built or loaded"),
    ("idle", waiting("hipGetDevice"), "look at why the host is in hipGetDevice for so long"),
    ("idle", waiting("hiprtcCompileProgram", api="miopenX"), "MIOPEN_CUSTOM_CACHE_DIR"),
    ("idle", waiting("hiprtcCompileProgram", api="gemm"), "!MIOPEN_CUSTOM_CACHE_DIR"),
    # what was launched in time is not the host's; the profiler is doubted only if a node of a graph ends the gap
    ("idle", waiting(graph=True), "Graphs already launch the step"),
    ("high idle", waiting(queued=True), "look for what it waits for"),
    ("medium idle", waiting(queued=True, graph=True), "nodes start late"),
    ("high idle", twice([Ran("a", 70 * MS, graph=True), Ran("b", 40 * MS, after_ns=40 * MS, queued=True)]),
     "look for what it waits"),
    # one iteration may be cold: nothing else can be advised
    ("medium idle", subject({1: [Ran("a", 30 * MS), Ran("b", 30 * MS, after_ns=40 * MS)]}), "Record several steps"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "run", "said"), SAID, ids=[f"{rule}: {said}" for rule, _, said in SAID])
def test_what_is_advised(rule: str, run: Subject, said: str) -> None:
    """A long sentence is the whole advice; with ``!`` it is not advised."""
    severity, _, rule = rule.rpartition(" ")
    one = fired(run, rule)
    if said.endswith(".") and said.count(" ") > 8:
        assert one.advice == said
    assert (said.removeprefix("!") in one.advice) is not said.startswith("!")
    assert not severity or one.severity == severity
    if rule == "slow-for-its-kind":
        assert "GFLOP/s); 4 similar problems have" in one.found.number


NATIVE = "void at::native::"
FOUND = [
    # no capture would show any operation
    ("graph", replayed(), False),
    ("slow-for-its-kind", similar(GEMM, WINOGRAD, filters=(3, 3)), False),
    # a product that memory limits has no faster solver
    *(("slow-for-its-kind", moving(mb), is_slow)
      for mb, is_slow in ((None, True), (20, True), (19, False), (80, True), (81, False))),
    # not too far apart to be one attention
    *(("unfused-attention", attention(*["aten::mul"] * between), between < 9) for between in (8, 9)),
    # PyTorch chose to compute it in several kernels, or another library computes it in one; no PyTorch
    *(("unfused-attention", attention("aten::mul", ranges=(*TORCH, Range("operator", name, 0, 0, 1))), False)
      for name in ("aten::_scaled_dot_product_attention_math", "flash_attn::_flash_attn_forward")),
    ("unfused-attention", attention("aten::mul", ranges=()), False),
    # PyTorch's own kernels that torch.compile fuses
    *(("element-wise", twice([Ran(name, 60 * MS), Ran("other", 40 * MS)], ranges=TORCH), is_found)
      for name, is_found in (
          (f"{NATIVE}elementwise_kernel<4, at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda>>()", True),
          (f"{NATIVE}unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::Base&)>()", True),
          (f"{NATIVE}(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u>>()", True),
          (f"{NATIVE}(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)", True),
          (f"{NATIVE}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>()", True),
          (f"{NATIVE}(anonymous namespace)::cunn_SoftMaxForward<8, float>()", False),
          (f"{NATIVE}(anonymous namespace)::indexSelectLargeIndex<float>()", False),
          ("Cijk_Alik_Bljk_SB_MT64x64x8", False), ("elementwise_kernel", False))),
    # nothing to fuse it with
    ("element-wise", twice([Ran(f"{NATIVE}vectorized_elementwise_kernel<4>()", 60 * MS)], ranges=TORCH), False),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "run", "is_found"), FOUND)
def test_what_is_found(rule: str, run: Subject, is_found: bool) -> None:
    assert (rule in rules(run)) is is_found


def test_collectives_beside_each_other_are_not_overlapped_with_computation() -> None:
    """Those of two groups on two streams: none of their time is hidden."""
    each = [Ran("work", 10 * MS), Ran(ALL_REDUCE, 4 * MS), Ran(ALL_REDUCE, 4 * MS, after_ns=-4 * MS), Ran("work", MS)]
    found = fired(twice(each), "communication")
    assert found.found.ns == 4 * MS
    assert "Overlap collectives with computation" in found.advice


@pytest.mark.parametrize(("lost_ms", "severity"), [(20, "high"), (21, "medium")])
@pytest.mark.parametrize("rule", ["communication", "copies"])
def test_what_runs_beside_unrecorded_work_may_not_run_alone(rule: str, lost_ms: int, severity: str) -> None:
    """Where more time was not recorded than the commands run alone, no kernel is known to be beside them."""
    alone = Ran(ALL_REDUCE, 20 * MS) if rule == "communication" else Ran("copy", 20 * MS, copy=True)
    run = twice([Ran("work", 50 * MS), alone, Ran("work", 30 * MS)])
    step = run.steady.step_time
    assert step is not None
    run.steady.__dict__["step_time"] = msgspec.structs.replace(step, unrecorded_ns=lost_ms * MS)
    one = fired(run, rule)
    assert one.severity == severity
    said = "21.0 % of the iteration was not recorded: kernels may run beside them."
    assert one.found.number.endswith(said) is (severity == "medium")


def test_a_collective_without_sizes_is_named() -> None:
    """As in older profiles of PyTorch; its rate is not known."""
    said = "; the longest: AllReduce 1x8x9x9 (total 2.000 ms per iteration)."
    assert fired(reducing(4 * MS, 0), "communication").found.number.endswith(said)


def test_short_kernels_of_a_run_with_counters_say_nothing() -> None:
    """Counters run kernels one at a time."""
    assert rules(twice([Ran("short", 9 * US, counters=(1.0,))] * 40)) == ["counter-run"]


# -- the first iteration ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("excess_ms", "severity"), [(11, ""), (12, "low"), (80, "medium")])
def test_first_calls_are_measured_against_the_iterations(excess_ms: int, severity: str) -> None:
    """An iteration of 2,400 ms, of which the calls are 40 ms: what they cost once is no large part of it."""
    operations = [operation(at, input=(1, 1, 1, 1)) for at in range(4)]
    ran = [Ran("work", (10 + excess_ms * (not at)) * MS, at) for at in range(4)]
    run = subject({1: [*ran, Ran("rest", (2360 - excess_ms) * MS)]}, operations, calls=False)
    assert ("first-iteration" in rules(run)) is bool(severity)
    if severity:
        one = fired(run, "first-iteration")
        assert one.severity == severity
        assert f"once ({100 * excess_ms / 2400:.1f} % of the time of all iterations)" in one.found.number


USUAL, SLOW = [Ran("a", 10 * MS)] * 10, [*[Ran("a", 10 * MS)] * 7, Ran("b", 10 * MS, after_ns=900 * MS)]
HALVES = [Ran("a", 50 * MS)] * 2


@pytest.mark.parametrize(
    ("steps", "call", "first"),
    [
        # the optimiser has no state yet, so that the first step has fewer kernels and is of another kind
        ((SLOW, USUAL, USUAL), Call("hipModuleLoadData", 0, 1080 * MS, 1900 * MS), (980 * MS, 100 * MS, 1180 * MS, 2)),
        ((SLOW, USUAL, USUAL), Call("hipGetDevice", 0, 1080 * MS, 1900 * MS), None),
        # one steady iteration is enough if only the first one builds
        (([HALVES[0], Ran("a", 50 * MS, after_ns=900 * MS)], HALVES), Call("clBuildProgram", 0, 1060 * MS, 1900 * MS),
         (1000 * MS, 100 * MS, 1100 * MS, 1)),
        (([HALVES[0], Ran("a", 50 * MS, after_ns=900 * MS)], HALVES), Call("clFinish", 0, 1060 * MS, 1900 * MS), None),
        # more than twice the kernel time is other work (a prefill), whatever it loads
        *((([Ran("b", ms * MS), Ran("b", 0, after_ns=100 * MS)], *[[Ran("a", 100 * MS)] * 2] * 3),
           Call("hipModuleLoadData", 0, 1401 * MS, 1450 * MS), first)
          for ms, first in ((400, (500 * MS, 200 * MS, 1100 * MS, 3)), (401, None))),
    ],
)  # fmt: skip
def test_a_first_iteration_that_builds_is_cold(
    steps: Sequence[Sequence[Ran]], call: Call, first: tuple[int, int, int, int] | None
) -> None:
    """Its length, that of the usual one, of it and the steady ones, and how many these are."""
    run = subject(dict(enumerate(steps, 1)), other_calls=[call])
    assert ("first-iteration" in rules(run)) is (first is not None)
    assert run.first_iteration == first or call.name == "clFinish"
    if first is not None:
        assert fired(run, "first-iteration").advice.startswith("It built or loaded programs.")


def test_the_length_of_a_step_without_an_end_is_in_no_median() -> None:
    """Repetitions last until the next one begins: the last one's length is not known."""
    fast = [Ran("a", 10 * MS)]
    run = subject({1: [Ran("a", 40 * MS)], 2: fast, 3: fast, 4: fast})
    told = run.steady.told
    steps = [one if one.number < 4 else type(one)(number=4, kernels=1, kernel_ns=10 * MS) for one in told.all]
    run.steady.__dict__["told"] = msgspec.structs.replace(told, all=tuple(steps))
    assert run.first_iteration == (40 * MS, 10 * MS, 60 * MS, 2), "not the last one"
    said = "40.00 ms, a steady one 10.00 ms (median): 30.00 ms more, once (50.0 % of the time of these 3 iterations)"
    assert said in fired(run, "first-iteration").found.number


# -- problems that are not alike -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), ()])
def test_calls_without_sizes_are_not_one_problem(sizes: tuple[int, ...]) -> None:
    """Without `record_shapes` all convolutions of a net have one name. Neither their spread nor their first call says
    anything."""
    calls = [operation(at, input=sizes) for at in range(10)]
    spread = subject({1: [Ran("work", (20 if at > 7 else 10) * MS, at) for at in range(10)]}, calls)
    assert ("unsteady" in rules(spread)) is bool(sizes)
    for first, is_slow in ((30, False), (50, True)):
        ran = [Ran("work", (first if not at else 20 - 10 * is_slow) * MS + (at and not is_slow), at) for at in range(3)]
        assert ("first-iteration" in rules(subject({1: ran}, calls[:3], calls=False))) is (is_slow and bool(sizes))


# -- kernels that could be one -----------------------------------------------------------------------------------------


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


def test_the_kernels_of_an_attention_are_counted_once() -> None:
    """Its scales are also element-wise, and take more than half of the time."""
    run = attention(*["aten::mul"] * 6, scale=ADD)
    assert fired(run, "unfused-attention").found.ns == 90 * MS
    assert "element-wise" not in rules(run)


COMPILED = (
    Range("annotation", "## Call CompiledFxGraph f7 ##", 0, 0, 1),
    Range("annotation", "Torch-Compiled Region: 0/0", 0, 0, 1),
    Range("operator", "CompiledFunctionBackward", 0, 0, 1),
)


def test_what_is_compiled_is_not_to_be_compiled() -> None:
    """By kernels of Triton or regions in the profile; also in the advice against short kernels and slow launches."""
    each = [Ran(ADD, 60 * MS), Ran("other", 40 * MS)]
    assert fired(twice(each, ranges=TORCH), "element-wise").advice.startswith("Fuse them: torch.compile")
    assert "element-wise" not in rules(twice([*each, Ran("triton_poi_fused_add_0", MS)], ranges=TORCH))
    for rule in ("short-kernels", "idle"):
        assert "torch.compile" in fired(short(ranges=TORCH), rule).advice
        for made in COMPILED:
            assert "element-wise" not in rules(twice(each, ranges=(*TORCH, made)))
            assert "torch.compile" not in fired(short(ranges=(*TORCH, made)), rule).advice


def test_a_run_without_known_iterations_has_no_severe_finding() -> None:
    """Set-up and warm-up may be in it."""
    run = subject({SETUP: [Ran(TURN, 20 * MS, 0), Ran("work", 80 * MS, 0)]}, [operation(0)])
    assert {one.severity for one in findings(run)} <= {"medium", "low", "info"}


# -- What is advised against idle time fits its largest cause in the run.


@pytest.mark.parametrize(("ns", "is_named"), [(24 * MS, True), (19 * MS, False)])
def test_a_call_during_less_than_half_of_a_gap_decides_nothing(ns: int, is_named: bool) -> None:
    """It is then neither named nor advised about."""
    found = fired(waiting("hipStreamSynchronize", ns), "idle")
    assert ("in hipStreamSynchronize" in found.found.number) is is_named
    assert ("remove this synchronisation" in found.advice) is is_named


@pytest.mark.parametrize(
    ("us", "synchronised", "said"),
    [
        # calls of one kind decide from a third of the time on
        (100, 4, "remove this synchronisation"),
        (100, 3, "launches too slowly"),
        (100, 2, "launches too slowly"),
        # in a long gap the host does something else than launching
        (200, 0, "launches too slowly"),
        (201, 0, "look at what the program does"),
    ],
)
def test_only_short_gaps_are_slow_launches(us: int, synchronised: int, said: str) -> None:
    """Two iterations of ten gaps of ``us`` each, in ``synchronised`` of which the host synchronises; the call is named
    from a tenth of the time on."""
    each = [Ran("a", 100 * US), *[Ran("a", 100 * US, after_ns=us * US)] * 10]
    calls = [
        Call(
            "hipStreamSynchronize", 0, begin + gap * (us + 100) * US + US, begin + gap * (us + 100) * US + (us - 1) * US
        )
        for begin in (1000 * MS + 100 * US, 2000 * MS + 1200 * US + 10 * us * US)
        for gap in range(synchronised)
    ]
    found = fired(twice(each, other_calls=calls), "idle")
    assert said in found.advice
    assert ("of it in hipStreamSynchronize" in found.found.number) is bool(synchronised)


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
    assert said in fired(twice(each, ranges=ranges), "idle").advice


@pytest.mark.parametrize(("idle_steps", "severity"), [(2, "low"), (3, "high")])
def test_idle_time_of_few_steps_is_low_and_names_the_longest(idle_steps: int, severity: str) -> None:
    """Five steps of 10 ms, of which some wait for 50 ms or more."""
    wait = {number: (50 + number) * MS if number > 5 - idle_steps else 0 for number in range(1, 6)}
    steps = {number: [Ran("a", 5 * MS), Ran("a", 5 * MS, after_ns=ns)] for number, ns in wait.items()}
    found = fired(subject(steps), "idle")
    assert found.severity == severity
    assert found.advice.startswith("Look at iteration 5, which is idle for longest") is (severity == "low")


@pytest.mark.parametrize(("steps", "severity"), [(2, "low"), (6, "high")])
def test_launches_without_kernels_leave_open_whether_the_gaps_are_idle(steps: int, severity: str) -> None:
    """One lost of seven launches is more than a tenth; one of nineteen is less."""
    each = [Ran("a", 30 * MS), Ran("b", 30 * MS, after_ns=40 * MS), Ran("b", MS)]
    lost = Call("hipLaunchKernel", 0, 1035 * MS, 1036 * MS)
    found = fired(subject(dict.fromkeys(range(1, 1 + steps), each), other_calls=[lost]), "idle")
    assert found.severity == severity
    assert found.advice.startswith("Record the run again, completely") is (severity == "low")


@pytest.mark.parametrize(("count", "is_found"), [(60, True), (45, False)])
def test_some_kernels_that_repeat_show_little(count: int, is_found: bool, tmp_path: Path) -> None:
    """Less than a millisecond idle in all: no mark says that the kernels are steps of a program."""
    rows = [f"{number},f,0,0,7,7,64,64,{40 * US * number},{40 * US * number + 20 * US}" for number in range(1, count)]
    path = tmp_path / "results.csv"
    path.write_text("\n".join(["Index,KernelName,gpu-id,queue-id,pid,tid,grd,wgr,BeginNs,EndNs", *rows, ""]))
    (measures,) = mio2trace.analyse(path).run.measures
    assert measures.steady.told.told_by == "repetition"
    assert ("idle" in rules(Subject(measures))) is is_found
