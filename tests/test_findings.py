"""Each finding: a run that has it, those that just have not, and its number counted by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from mio2trace.evidence import SEQUENCE
from mio2trace.findings import GPUS, RULES, Gpu, Subject, findings, gpu_of
from mio2trace.findings.kernels import bound
from mio2trace.findings.rule import Rule
from mio2trace.model.choices import Gemm, SolverRecord, SolverTable, SolverTime
from mio2trace.model.miopen import Message
from mio2trace.model.profile import Call, Range
from mio2trace.notes import InputError, OptionError
from mio2trace.ops.choices import Choices
from mio2trace.ops.families.collective import CollectiveProblem
from mio2trace.ops.families.conv import ConvProblem
from tests.commands import printed
from tests.conftest import ROOT
from tests.made_up_costs import MS, SETUP, US, Ran, fired, operation, rules, subject, twice
from tests.often import saved

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
DOC = (ROOT / "docs" / "findings.md").read_text("utf-8")


class Case(msgspec.Struct, frozen=True):
    """A rule, a run that has it, what is found, and the runs that just have not."""

    rule: str
    has: Subject
    ns: int | None
    share: float | None
    severity: str
    lacks: Sequence[Subject]
    scope: tuple[str, ...] = ()
    count: int = 1


def beside(name: str, ns: int, *, own: bool = True, steps: int = 1, **of: Any) -> Subject:
    """Iterations of 100 ms, of which this command takes ``ns`` and an operation the rest."""
    each = [Ran("work", 100 * MS - ns, 0 if own else None), Ran(name, ns, **of)]
    return subject(dict.fromkeys(range(1, 1 + steps), each), [operation(0)] if own else [])


COPY: dict[str, Any] = {"steps": 2, "copy": True, "route": "host to device"}
DOUBT: dict[str, Any] = {"steps": 2, "operation": 0}
MODULE: dict[str, Any] = {"layer": "linear 1", "layer_by": SEQUENCE}


def searching(ns: int) -> Subject:
    """Two iterations of 100 ms, the second with a search."""
    work = [Ran("work", 100 * MS, 0)]
    return subject({1: work, 2: [*work, Ran("try", ns, 1)]}, [operation(0), operation(1, phase="find")])


def set_up(ns: int, work_ns: int) -> Subject:
    """One search in the set-up."""
    return subject({SETUP: [Ran("try", ns, 0)], 1: [Ran("work", work_ns)]}, [operation(0, phase="find")])


def naive(ns: int) -> Subject:
    """Two iterations of 200 ms, of each ``ns`` by a solver that the log calls naive."""
    each = [Ran("mystery", ns, 0), Ran("naive_conv_fwd_nchw", 2 * ns), Ran("work", 200 * MS - 3 * ns)]
    return twice(each, [operation(0, algorithm="Naive")])


def with_role(name: str, ns: int, primitive: str = "conv", *, of: int = 10 * MS, whole: int = 100 * MS) -> Subject:
    """An iteration of ``whole``, of which the operation takes ``of`` and in it the kernel ``name`` ``ns``."""
    ran = [Ran(name, ns, 0), Ran("work", of - ns, 0), Ran("rest", whole - of)]
    return subject({1: ran}, [operation(0, primitive=primitive)])


def short(count: int, us: int, others: int, captured: int = 0) -> Subject:
    """So many kernels of ``us`` and others of 100 us in each of two iterations."""
    each = [Ran("short", us * US, after_ns=40 * US)] * count + [Ran("long", 100 * US)] * others
    return twice(each, captured=captured)


def kinds(ns: int, *, others: int = 4, flop: int = 1000 * MS) -> Subject:
    """Problems of 10 ms each with 1000 MFLOP, one of ``flop`` that takes ``ns``; one of another type."""
    operations = [operation(index, flop=1000 * MS) for index in range(others)]
    operations += [operation(others, flop=flop), operation(others + 1, flop=1000 * MS, dtype="half")]
    ran = [Ran("work", ns if index == others else 10 * MS, index) for index in range(others + 2)]
    return subject({1: ran}, operations)


PEAKS = Gpu(name="made up", tflops={"float": 1.0}, bandwidth=100.0, units=8)
"""1000 FLOP and 100 bytes a ns."""


def under_a_roof(ns: int, *, whole: int = 1000 * US, gpu: Gpu | None = PEAKS) -> Subject:
    """A problem of 100 us at least by its work (100 MFLOP) and 200 us by its traffic (20 MB) that takes ``ns``."""
    own = operation(0, flop=100 * MS, bytes_min=20 * MS)
    return subject({1: [Ran("work", ns, 0), Ran("rest", whole - ns)]}, [own], gpu=gpu)


def small(m: int, ns: int) -> Subject:
    """A GEMM of m x 100, which is two tiles wide, for 8 units; one that is large enough beside it."""
    operations = [operation(0, gemm=Gemm(m, 100, 1)), operation(1, gemm=Gemm(640, 640, 1))]
    return subject({1: [Ran("a", ns, 0), Ran("b", 100 * MS - ns, 1)]}, operations, gpu=PEAKS)


def pausing(host: int, queue: int, **more: Any) -> Subject:
    """Two iterations of 100 ms with pauses in ns: the host launches late, or the queue does not begin."""
    each = [
        Ran("a", 50 * MS - host),
        Ran("b", 25 * MS, after_ns=host),
        Ran("copy", 25 * MS - queue, after_ns=queue, queued=True, copy=True),
    ]
    return twice(each, **more)


def cold(first_ms: int, later: int = 2, other_calls: Sequence[Call] = (), slow: int = 0) -> Subject:
    """Iterations of 10 ms; the first takes ``first_ms``: its host begins before anything runs, at 1000 ms. So do the
    last ``slow`` ones."""
    steps = {number: [Ran("work", 10 * MS, 0)] for number in range(1, later + 2)}
    before = dict.fromkeys((1, *range(later + 2 - slow, later + 2)), (first_ms - 10) * MS)
    return subject(steps, [operation(0)], host_ns=before, other_calls=other_calls)


def changing(fast: int, slow: int, count: int = 10, rest: int = 0, first: int = 0, **more: Any) -> Subject:
    """A problem in one iteration: most calls ``fast``, the last two ``slow``, in ns; the first one may have its own."""
    operations = [operation(index, input=(1, 1, 1, 1)) for index in range(count)]
    ran = [Ran("work", slow if index >= count - 2 else fast, index) for index in range(count)]
    if first:
        ran[0] = Ran("work", first, 0)
    return subject({1: [*ran, Ran("rest", rest)]}, operations, **more)


def calls_of_one(first: int, runs: int = 3) -> Subject:
    """One iteration that poses a problem several times, the first time for ``first`` ns."""
    return changing(10 * MS, 10 * MS, runs, first=first, calls=False)


def warned(kind: str) -> Subject:
    """The log warns in the first operation's call, which takes 40 of 100 ms, and between two others."""
    message = Message(0, 5, "Warning", "IsEnoughWorkspace", "too small", kind)
    ran = [Ran("a", 40 * MS, 0), Ran("b", 60 * MS, 1)]
    return subject({1: ran}, [operation(0), operation(1)], messages=[message])


def nameless(ns: int, name: str = "Task") -> Subject:
    """Outside of the only iteration."""
    return subject({0: [Ran(name, ns, graph=True)], 1: [Ran("work", 100 * MS - ns)]})


TORCH = (Range("operator", "aten::bmm", 0, 0, 1),)


def attention(ns: int, *, batch: int = 4, rows: int = 9, ranges: Sequence[Range] = TORCH) -> Subject:
    """Two iterations of 100 ms, of which a product, a softmax of 4 x 9 x 9 and another product take ``ns``."""
    own = [
        operation(0, primitive="gemm", gemm=Gemm(9, rows, 64, batch), input=(4, 9, 64)),
        operation(1, primitive="softmax", input=(4, 9, 9)),
        operation(2, primitive="gemm", gemm=Gemm(9, 64, 9, batch), input=(4, 9, 9)),
    ]
    each = [Ran("qk", MS, 0), Ran("softmax", ns - 2 * MS, 1), Ran("pv", MS, 2), Ran("rest", 100 * MS - ns)]
    return twice(each, own, ranges=ranges)


ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


def of_elements(ns: int, *, idle: int = 0, other: str = "gemm", ranges: Sequence[Range] = TORCH) -> Subject:
    """Two iterations with 100 ms of kernels, of which an element-wise one takes ``ns``."""
    each = [Ran(ADD, ns), Ran(other, 100 * MS - ns, after_ns=idle)]
    return twice(each, ranges=ranges)


def in_caffe(name: str, ns: int, **more: Any) -> Subject:
    """Two iterations with 100 ms of kernels under a profiler that waits for each command, of which ``name`` takes
    ``ns``."""
    return twice([Ran(name, ns), Ran("conv_weights", 100 * MS - ns)], calls_wait=True, **more)


def unlike_others(
    ms: int, others: int = 4, name: str = "work", grid: tuple[int, int, int] | None = (1, 1, 1)
) -> Subject:
    """Two iterations, in each of which a kernel takes 1 ms some times, and once ``ms``."""
    return twice([*[Ran(name, MS, grid=grid)] * others, Ran(name, ms * MS, grid=grid)])


def overrun(ns: int, ms: int = 60) -> Subject:
    """Two iterations with 100 ms of kernels in one stream. The second kernel starts after 10 ms and takes ``ns``; the
    first ends after ``ms``."""
    each = [
        Ran("late", ms * MS),
        Ran("work", ns, after_ns=(10 - ms) * MS),
        Ran("rest", (100 - ms) * MS - ns, after_ns=ms * MS),
    ]
    return twice(each, queue="stream")


def captured(launches: int, *, graph: bool = False) -> Subject:
    return subject({1: [Ran("a", MS), Ran("a", MS, graph=graph)]}, captured=launches)


KEY = "3-8-8-3x3-4-8-8-2-1x1-1x1-1x1-0-NCHW-FP32-F"


def by_a_find_db(chosen_ms: float, best_ms: float, solver: str = "GemmFwdRest") -> Subject:
    """Two iterations of 100 ms, in each two calls of a problem, of which a find-db has two solvers."""
    problem = ConvProblem(
        direction="forward", dtype="float", x=(2, 3, 8, 8), w=(4, 3, 3, 3), y=(2, 4, 8, 8), pads=(1, 1), strides=(1, 1),
        dilations=(1, 1),
    )  # fmt: skip
    calls = [
        operation(index, problem=problem, solver=solver, input=problem.x, weights=problem.w, output=problem.y,
                  pad=(1, 1))
        for index in range(4)
    ]  # fmt: skip
    each = [[Ran("work", 40 * MS, first), Ran("work", 40 * MS, first + 1), Ran("rest", 20 * MS)] for first in (0, 2)]
    times = (SolverTime("GemmFwdRest", chosen_ms, 8), SolverTime("ConvAsm1x1U", best_ms, 0))
    table = SolverTable(source=1, kind="find-db", records=(SolverRecord(1, KEY, times),))
    return subject({1: each[0], 2: each[1]}, calls, choices=Choices([table]))


FIRST, LAST = ("Conv fwd 1x8x9x9",), ("Conv fwd 1x12x9x9",)
ONES = ("Conv fwd 1x1x1x1",)
SOFTMAX, PADDED = ("Softmax fwd 4x9x9",), ("Conv fwd 2x3x8x8 -> 2x4x8x8 k3x3 p1",)
TURN, CAST = "batched_transpose_16x32", "SubTensorOpWithCastTensor4d"
PART = 100 * MS
CASES = [
    # 4 ms of searches in the second of two iterations
    Case("find-in-steady-state", searching(4 * MS), 2 * MS, 0.02, "low", [searching(0)], ("Conv fwd 1x9x9x9",)),
    Case("find-cost", set_up(110 * MS, 400 * MS), 110 * MS, 110 / 510, "info", [set_up(100 * MS, 100 * MS)]),
    Case("find-cost", set_up(101 * MS, 303 * MS), 101 * MS, 0.25, "info", [set_up(101 * MS, 404 * MS)]),
    Case("naive", naive(MS), 3 * MS, 0.015, "low", [naive(300 * US)], FIRST),
    Case("layout-transposes", with_role(TURN, MS), MS, 0.01, "low", [with_role(TURN, MS - 1)]),
    Case("layout-transposes", with_role(TURN, 19 * MS, of=PART), 19 * MS, 0.19, "medium",
         [with_role(TURN, 19 * MS, "pool", of=PART)]),
    Case("layout-transposes", with_role(TURN, 20 * MS, of=PART), 20 * MS, 0.2, "medium",
         [with_role(TURN, 4 * MS, of=20 * MS, whole=801 * MS)]),
    Case("casts", with_role(CAST, 2 * MS), 2 * MS, 0.02, "low", [with_role(CAST, 2 * MS - 1)]),
    Case("helpers", with_role("Im2Col", MS), MS, 0.01, "low", [with_role("Im2Col", MS - 1)], ("conv",)),
    Case("helpers", with_role("Im2Col", 5 * MS), 5 * MS, 0.05, "medium",
         [with_role("MIOpenBatchNormFwdTrainSpatialMean", 5 * MS, "bnorm")], ("conv",)),
    # 40 x 9 us of 40 x 9 + 40 x 100 us
    Case("short-kernels", short(40, 9, 40), 360 * US, 360 / 4360, "low", [short(40, 9, 41)], count=40),
    Case("short-kernels", short(20, 9, 1), 180 * US, 180 / 280, "low", [short(19, 9, 1)], count=20),
    Case("short-kernels", short(40, 9, 1), 360 * US, 360 / 460, "low",
         [short(40, 10, 1), short(40, 9, 1, captured=99)], count=40),
    # 20 ms and 1 ns where its like take 10 ms; of 70 ms
    Case("slow-for-its-kind", kinds(20 * MS + 1), 10 * MS + 1, 10 / 70, "medium", [kinds(20 * MS)], LAST),
    # half the work in 20 ms: 5 ms would do
    Case("slow-for-its-kind", kinds(20 * MS, flop=500 * MS), 15 * MS, 15 / 70, "medium",
         [kinds(20 * MS, flop=500 * MS - 1)], LAST),
    Case("slow-for-its-kind", kinds(30 * MS), 20 * MS, 20 / 80, "medium", [kinds(30 * MS, others=3)], LAST),
    Case("roofline-gap", under_a_roof(230 * US), 30 * US, 0.03, "medium", [under_a_roof(230 * US - 1)], FIRST),
    Case("roofline-gap", under_a_roof(300 * US), 100 * US, 0.1, "medium", [under_a_roof(300 * US, gpu=None)], FIRST),
    # 3 x 2 tiles for 8 units, 4 x 2 fill them
    Case("small-gemm", small(192, 2 * MS), 2 * MS, 0.02, "low", [small(193, 2 * MS)], FIRST),
    Case("small-gemm", small(1, MS), MS, 0.01, "low", [small(1, MS - 1)], FIRST),
    Case("unfused-attention", attention(30 * MS), 30 * MS, 0.3, "high",
         [attention(30 * MS - 1), attention(30 * MS, batch=1), attention(30 * MS, rows=8)], SOFTMAX),
    Case("element-wise", of_elements(50 * MS + 1), 50 * MS + 1, 0.5, "high", [of_elements(25 * MS)], (ADD,)),
    Case("element-wise", of_elements(50 * MS), 50 * MS, 0.5, "medium", [of_elements(25 * MS)], (ADD,)),
    Case("element-wise", of_elements(26 * MS), 26 * MS, 0.26, "medium", [of_elements(25 * MS)], (ADD,)),
    Case("element-wise", in_caffe("relu_forward_float", 26 * MS), 26 * MS, 0.26, "medium",
         [in_caffe("relu_forward_float", 25 * MS), in_caffe("conv_forward", 60 * MS),
          in_caffe("relu_forward_float", 60 * MS, ranges=TORCH)], ("relu_forward_float",)),
    Case("element-wise", in_caffe("fillbuffer_float", 26 * MS), 26 * MS, 0.26, "medium",
         [in_caffe("__amd_rocclr_fillBufferAligned", 60 * MS), in_caffe("Cijk_SB_GB", 60 * MS)],
         ("fillbuffer_float",)),
    Case("element-wise", in_caffe("MIOpenActiveFwdLite", 51 * MS), 51 * MS, 0.51, "high",
         [in_caffe("SoftmaxForward", 51 * MS)], ("MIOpenActiveFwdLite",)),
    # of 100 ms and a gap
    Case("element-wise", of_elements(60 * MS, idle=17 * MS), 60 * MS, 0.6, "high",
         [of_elements(60 * MS, idle=18 * MS)], (ADD,)),
    Case("idle", pausing(10 * MS, 5 * MS + 1), 15 * MS + 1, 0.15 + 1e-8, "high", [pausing(10 * MS, 5 * MS)], count=2),
    Case("idle", pausing(20 * MS, 0), 20 * MS, 0.2, "high", [pausing(20 * MS, 0, calls_wait=True)]),
    Case("communication", beside(ALL_REDUCE, 10 * MS + 1), 10 * MS + 1, 0.1 + 1e-8, "medium",
         [beside(ALL_REDUCE, 10 * MS)]),
    # 30 ms where 10 are usual: 20 of 30 + 2 x 10
    Case("first-iteration", cold(30), 20 * MS, 0.4, "medium", [cold(20), cold(30, later=1), cold(30, later=5, slow=1)]),
    Case("first-iteration", cold(30, later=20, slow=1), 20 * MS, 20 / (2 * 30 + 19 * 10), "medium",
         [cold(30, later=20, slow=2)]),
    Case("first-iteration", calls_of_one(20 * MS + 2), 10 * MS + 2, 10 / 40, "medium", [calls_of_one(20 * MS)], ONES),
    Case("first-iteration", calls_of_one(50 * MS), 40 * MS, 40 / 70, "medium", [calls_of_one(50 * MS, 2)], ONES),
    # 8 x 10 and 2 x 20 ms: mean 12, deviation 4.2 (35 %); 20 of 120 ms are above the median
    Case("unsteady", changing(10 * MS, 20 * MS), 20 * MS, 20 / 120, "medium",
         [changing(10 * MS, 18 * MS), changing(10 * MS, 30 * MS, 9)], ONES),
    Case("unsteady", changing(10 * MS, 20 * MS, rest=2280 * MS), 20 * MS, 20 / 2400, "low",
         [changing(10 * MS, 20 * MS, rest=2281 * MS)], ONES),
    Case("capture", captured(3), None, None, "low", [captured(2), captured(3, graph=True)]),
    Case("workspace", warned("workspace warning"), 40 * MS, 0.4, "medium", [warned("warning")], FIRST),
    Case("unattributed", beside("mine", 5 * MS), 5 * MS, 0.05, "info", [beside("mine", 5 * MS - 1)], ("mine",)),
    Case("unattributed", beside("Im2Col", 50 * MS), 50 * MS, 0.5, "medium",
         [beside("Im2Col", 50 * MS, own=False)], ("Im2Col",)),
    Case("doubt", beside("work", MS, unsure=True, **DOUBT), MS, 0.01, "low",
         [beside("work", MS - 1, unsure=True, **DOUBT)]),
    Case("doubt", beside("work", 50 * MS, confidence=0.9, **DOUBT), 50 * MS, 0.5, "medium",
         [beside("work", 50 * MS, confidence=0.996, **DOUBT)]),
    Case("doubt", beside("work", 50 * MS, confidence=0.994, **DOUBT), 50 * MS, 0.5, "info",
         [beside("work", 50 * MS, confidence=1.0, **DOUBT)]),
    Case("nameless", nameless(5 * MS), 5 * MS, 0.05, "medium", [nameless(5 * MS - 1)]),
    Case("nameless", nameless(40 * MS), 40 * MS, 0.4, "medium", [nameless(40 * MS, "conv")]),
    Case("modules", beside("gemm", 5 * MS, **MODULE), 5 * MS, 0.05, "info", [beside("gemm", 5 * MS - 1, **MODULE)]),
    Case("graph", beside("work", 5 * MS, graph=True), 5 * MS, 0.05, "medium", [beside("work", 5 * MS - 1, graph=True)]),
    Case("not-the-best-solver", by_a_find_db(1.0, 0.25), 1_500_000, 0.015, "low",
         [by_a_find_db(1.0, 0.96), by_a_find_db(1.0, 0.25, "X")], PADDED),
    Case("copies", beside("copy", 6 * MS, **COPY), 6 * MS, 0.06, "medium",
         [beside("copy", 5 * MS, **COPY)], ("host to device",)),
    Case("late-end", overrun(40 * MS - 1001), 50 * MS, 0.5, "high", [overrun(50 * MS - 1000)], ("late",), count=2),
    Case("outlier", unlike_others(101), 101 * MS, 101 / 105, "low",
         [unlike_others(100), unlike_others(101, others=1), unlike_others(101, name=ALL_REDUCE),
          unlike_others(101, grid=None)], ("work",), count=2),
    Case("counter-run", subject({1: [Ran("a", MS, counters=(3.0,)), Ran("b", MS)]}), None, None, "low",
         [subject({1: [Ran("a", MS), Ran("b", MS)]})], ("C0",)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_a_finding_fires_with_its_number(case: Case) -> None:
    """In the run that has it, and not in those that just have not. A percentage says of what it is."""
    one = fired(case.has, case.rule)
    assert one.found.ns == case.ns
    assert one.found.share == (None if case.share is None else pytest.approx(case.share, rel=1e-6))
    assert (one.found.count, one.severity, one.found.scope) == (case.count, case.severity, case.scope)
    for text in (text for of in findings(case.has) for text in (of.found.number, of.advice)):
        assert re.findall(r"[\d.]+ %(?! of )", text) == [], text
    for lacking in case.lacks:
        assert case.rule not in rules(lacking)


def test_a_kernel_unlike_others_is_counted_and_named() -> None:
    """A kernel over 100 times its median is in the numbers: the verdict counts it, and the finding names it."""
    run = unlike_others(101)
    assert fired(run, "outlier").found.number == (
        "2 kernels, 96.2 % of the kernel time, and in all its numbers. Longest: work, 101.0 ms (median 1.000 ms)."
    )
    assert run.measures.completeness.counts == {"outlier": 2}


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("fillbuffer_float", "Fill only memory to which kernels add: "),
        ("relu_forward_float", "Fuse them with the kernels that write their inputs, or let them work in place."),
        (ADD, "Fuse them: torch.compile(model)"),
    ],
)
def test_the_advice_on_element_wise_kernels_is_for_their_program(name: str, advice: str) -> None:
    one = fired(in_caffe(name, 40 * MS), "element-wise")
    assert one.advice.startswith(advice)
    assert "the most in " in one.found.number


@pytest.mark.parametrize("iteration", [None, 1])
def test_naive_kernels_without_a_log_may_be_those_that_find_tried(iteration: int | None, tmp_path: Path) -> None:
    """Only a steady iteration shows which kernels are of no search. The answer said `in 0 problems`."""
    columns = "Kind,Queue_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp\n"
    names = ("naive_conv_ab_packed_fwd_nchw_float_double_float", "a", "b")
    rows = [
        f'"KERNEL_DISPATCH",1,"{name}",{at},{1000 * at},{1000 * at + 900}\n'
        for at, name in enumerate(names * (4 if iteration else 1), 1)
    ]
    said = " ".join(printed("report", saved(tmp_path / "7_kernel_trace.csv", columns + "".join(rows)), "-q").split())
    assert ("of the kernel time, in unknown problems. Without MIOpen's log, kernels that Find only" in said) == (
        iteration is None
    )
    assert "in unknown problems." in said


def test_every_rule_has_a_case() -> None:
    """No row of the table is untried, and each name is one row's."""
    assert sorted({case.rule for case in CASES}) == sorted(rule.id for rule in RULES)


@pytest.mark.parametrize(
    ("steps", "idle_ms", "severity"),
    [
        ((1,), 0, "medium"),
        ((1, 2), 0, "high"),
        ((0, 1), 0, "high"),
        ((1, 2), 290, "high"),
        ((1, 2), 310, "medium"),
        ((1, 2), 1220, "medium"),
        ((1, 2), 1250, "low"),
        ((1, 2), 9900, "low"),
    ],
)
def test_what_may_be_cold_or_is_a_small_part_is_not_high(steps: tuple[int, ...], idle_ms: int, severity: str) -> None:
    """One iteration alone may be cold. The second of two is not, nor is one behind a warm-up (0) of the same kernels.
    40 ms are 40 % of the kernel time, but 10.3 % of 390 ms, 9.8 % of 410 ms, 3.03 % of 1,320 ms, 2.96 % of 1,350 ms,
    0.4 % of 10 s: a finding on the kernel time is as severe as its part of the step."""
    each = [Ran(TURN, 40 * MS, 0), Ran("work", 60 * MS, 0, after_ns=idle_ms * MS)]
    one = fired(subject(dict.fromkeys(steps, each), [operation(0)]), "layout-transposes")
    assert (one.found.share, one.severity) == (0.4, severity)


def test_a_sentence_names_a_kernel_as_the_list_of_kernels_does() -> None:
    """An entry point of many kernels by what it runs, an element-wise kernel by its functor."""
    entry = "void cutlass::device_kernel<mine::gemm::Fp8Gemm>(mine::gemm::Fp8Gemm::Params)"
    adds = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, char*>(int)"
    for name, shown in ((entry, "Fp8Gemm"), (adds, "add (vectorized_elementwise_kernel)")):
        assert fired(beside(name, 9 * MS), "unattributed").found.number.endswith(f"is in no operation: {shown}.")


def test_the_worst_stands_first() -> None:
    """By severity, then by the time at stake."""
    both = findings(pausing(20 * MS, 0, calls=False))
    assert [(one.rule.id, one.severity) for one in both] == [("copies", "high"), ("idle", "high")]
    mixed = findings(short(40, 9, 40))
    assert [(one.rule.id, one.severity) for one in mixed] == [("idle", "high"), ("short-kernels", "low")]


def test_what_is_not_recorded_stands_behind_what_costs_time() -> None:
    """Names that are not known cost no time: they are medium at most. Kernels of graphs are most of the time here."""
    each = [Ran("a", 10 * MS, 0), Ran("b", 60 * MS, graph=True), Ran("c", 30 * MS, after_ns=40 * MS)]
    found = findings(twice(each, [operation(0)]))
    assert [(one.rule.id, one.severity) for one in found[:2]] == [("idle", "high"), ("graph", "medium")]
    assert (found[0].found.ns or 0) < (found[1].found.ns or 0)


def test_a_pause_says_what_it_waits_for() -> None:
    """Late launches are the host's, launched ones the queue's, without calls nothing tells."""
    told = fired(pausing(10 * MS, 6 * MS), "idle").found.number
    assert "10.00 ms host-bound in 1 gap;" in told
    assert "6.000 ms queued in 1 gap" in told
    untold = fired(pausing(10 * MS, 6 * MS, calls=False), "idle").found.number
    assert "16.00 ms of unknown cause (no calls recorded) in 2 gaps" in untold


def test_a_cold_iteration_says_what_the_host_did_in_it() -> None:
    """Each moment once, of calls in it alone; what is under 1 % of the excess is not named."""
    calls = [
        Call("clBuildProgram", 0, 900 * MS, 960 * MS),  # before the first launch begins at 980 ms
        Call("clBuildProgram", 0, 982 * MS, 992 * MS),
        Call("clCompileProgram", 1, 987 * MS, 997 * MS),
        Call("hipMalloc", 0, 997 * MS, 999 * MS),
        Call("hipModuleLoad", 0, 995 * MS, 995 * MS + 199 * US),
        Call("clFinish", 0, 981 * MS, 982 * MS),
        Call("clBuildProgram", 0, 1999 * MS, 2000 * MS),
    ]
    assert fired(cold(30, other_calls=calls), "first-iteration").found.number.endswith(
        " more, once (40.0 % of the time of these 3 iterations): 15.00 ms building kernels, 2.000 ms allocating."
    )


def test_a_problem_above_the_roof_is_no_finding() -> None:
    """More than 110 % of the peak says that the peaks or the model are wrong."""
    of = under_a_roof(180 * US)
    limit = bound(of.problems[0], PEAKS)
    assert limit is not None
    assert limit.by == "memory"
    assert limit.part == pytest.approx(200 / 180)
    assert not limit.is_plausible
    assert "roofline-gap" not in rules(of)


def test_units_are_those_of_the_device_that_the_profile_names() -> None:
    """Without --gpu the device's name is looked up; with two kinds of devices nothing is known."""
    assert subject({1: [Ran("a", 1)]}, device="AMD Instinct MI300X").units == 304
    assert subject({1: [Ran("a", 1)]}, device="gfx942").units is None


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        ((20, 1, 2), "; most in ncclDevKernel_AllReduce_Sum_f32_RING_LL (total 20.00 ms per iteration)."),
        ((9, 8, 2), "; the longest: ncclDevKernel_AllReduce_Sum_f32_RING_LL (total 9.000 ms per iteration)."),
        ((1, 20, 2), "; most in AllReduce 1000000 (total 20.00 ms per iteration, 0.3 GB/s on the bus)."),
        ((1, 2, 20), "runs only collectives."),
    ],
)
def test_the_collective_that_is_named_is_the_longest(ms: tuple[int, int, int], said: str) -> None:
    """A graph launched the first of three collectives, in no operation; the others have a known and an unknown size."""
    problem = CollectiveProblem(primitive="allreduce", sent=1_000_000, received=1_000_000, ranks=4, dtype="float")
    known = operation(0, primitive="allreduce", problem=problem, direction=None, input=(1_000_000,))
    ran = [Ran(ALL_REDUCE, ns * MS, of) for ns, of in zip(ms, (None, 0, 1), strict=True)]
    run = subject({1: [Ran("work", 50 * MS), *ran]}, [known, operation(1, primitive="allreduce", input=())])
    assert fired(run, "communication").found.number.endswith(said)


@pytest.mark.parametrize("ops", [("aten::mm",), ("aten::mm", "MmBackward0"), ("aten::mm", "Optimizer.step#SGD"), ()])
def test_collectives_of_an_inference_are_not_those_of_a_backward_pass(ops: tuple[str, ...]) -> None:
    ranges = [Range("operator", text, 0, 0, 1) for text in ops]
    advice = fired(
        subject({1: [Ran("work", 50 * MS), Ran(ALL_REDUCE, 20 * MS)]}, ranges=ranges), "communication"
    ).advice
    alone = "No backward pass is recorded:" if len(ops) == 1 else "Overlap collectives with computation"
    assert advice.startswith(alone)


# -- records, documents ----------------------------------------------------------------------------------------------


def test_a_record_has_the_keys_of_the_documents() -> None:
    """As `report --format json` writes it."""
    record = orjson.loads(orjson.dumps(fired(beside("mine", 5 * MS), "unattributed").record()))
    assert list(record) == ["id", "severity", "ns", "share", "count", "scope", "rule", "try", "number"]
    assert (record["id"], record["ns"], record["share"], record["scope"]) == ("unattributed", 5 * MS, 0.05, ["mine"])
    assert all(f"`{key}`" in DOC for key in record)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_document_says_what_the_table_says(rule: Rule) -> None:
    """Heading, threshold and advice of each row, word for word; what its number is only the document says."""
    _, _, rest = DOC.partition(f"\n## {rule.id}\n")
    said = " ".join(rest.partition("\n## ")[0].split())
    before, after = f"*{rule.title}* Fires when: {rule.fires}. Number: ", f". Try: {rule.advice}"
    assert said.startswith(before)
    assert said.endswith(after) if rule.advice else after in said  # without it the document lists the cases
    assert len(said) > len(before + after)


def test_the_document_has_no_other_finding() -> None:
    assert re.findall(r"^## ([a-z-]+)$", DOC, re.MULTILINE) == [rule.id for rule in RULES]


def test_the_document_has_the_table_of_peaks() -> None:
    rows = {cells[0]: cells for cells in re.findall(r"^\| (\S.*?) \| (\d+) \|(.*)\|$", DOC, re.MULTILINE)}
    assert set(rows) == set(GPUS)
    for gpu in GPUS.values():
        numbers = [cell.strip() for cell in rows[gpu.name][2].split("|")]
        types = ("double", "float", "half", "bfloat16", "int8", "float8")
        peaks = [f"{gpu.tflops[name]:.1f}" if name in gpu.tflops else "" for name in types]
        assert [rows[gpu.name][1], *numbers] == [str(gpu.units), *peaks, f"{gpu.bandwidth:g}", gpu.source]


# -- peaks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("MI300X", "half", 1307.4), ("MI300X", "float", 163.4), ("MI250X", "half", 191.5), ("MI210", "float", 45.3),
        ("MI300X", "float8", 2614.9), ("MI100", "bfloat16", 92.3), ("MI60", "float", 14.75), ("MI355X", "half", 2516.6),
        ("RX 7900 XTX", "float", 61.4),
    ],
)  # fmt: skip
def test_peaks_are_those_of_the_data_sheets(name: str, dtype: str, tflops: float) -> None:
    """Units x clock x operations a clock gives what is printed; of the MI250X one die."""
    assert GPUS[name].tflops[dtype] == pytest.approx(tflops, rel=1e-3)


def test_a_gpu_is_found_by_its_name() -> None:
    assert all(gpu_of(text) is GPUS["MI300X"] for text in ("MI300X", "mi300x", "AMD Instinct MI300X"))
    with pytest.raises(OptionError, match="MI300X"):
        gpu_of("GeForce")


def test_a_gpu_is_read_from_a_file(tmp_path: Path) -> None:
    """The greater of matrix and vector unit counts."""
    path = tmp_path / "mine.json"
    path.write_text(
        '{"name": "mine", "mem_bw_gbps": 100, "compute_units": 7, "_note": 1,'
        ' "max_achievable_tflops": {"matrix_fp16": 8, "vector_fp16": 2, "vector_fp32": 1.5,'
        ' "matrix_fp8": 16, "sparse_x": 9}}'
    )
    gpu = gpu_of(str(path))
    assert (gpu.name, gpu.bandwidth, gpu.units) == ("mine", 100.0, 7)
    assert gpu.tflops == {"half": 8.0, "float": 1.5, "float8": 16.0}
    assert gpu.flop_per_ns("float8") == gpu.flop_per_ns("bfloat8") == 16000
    assert gpu.flop_per_ns("half") == 8000
    assert gpu.flop_per_ns(None) == 1500
    assert gpu.flop_per_ns("int8") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "as JSON"),
        ("[]", "a JSON object"),
        ("[" * 100_000, "as JSON"),
        ('{"max_achievable_tflops": {"matrix_fp16": 1}}', "mem_bw_gbps"),
        ('{"mem_bw_gbps": -1, "max_achievable_tflops": {"matrix_fp16": 1}}', "mem_bw_gbps"),
        ('{"mem_bw_gbps": 1, "max_achievable_tflops": {"matrix_fp16": true}}', "max_achievable_tflops"),
        ('{"mem_bw_gbps": 1, "max_achievable_tflops": 5}', "max_achievable_tflops"),
    ],
)
def test_error_a_file_of_peaks_that_is_none(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "mine.json").write_text(text)
    with pytest.raises(InputError, match=says) as caught:
        gpu_of(str(tmp_path / "mine.json"))
    assert "\n" not in str(caught.value)
