"""What is advised against idle time fits its largest cause in the run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import mio2trace
from mio2trace.findings import Finding, Subject, findings
from mio2trace.model.profile import Call, Range
from tests.made_up_costs import MS, US, Ran, operation, subject


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
