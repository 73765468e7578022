"""The measuring of attribution measures: a trace made of the truth has every point, each flaw costs what it should."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mio2trace
from benchmarks.attribution import AS_RECORDED, MASKED, Way, samples, shortfalls, total_shortfalls
from benchmarks.attribution_score import consistency, join_key, key_of, line_of, place_of, score, shape_faults
from benchmarks.calibration import fitted
from benchmarks.damages.run import Run
from benchmarks.operations_load import grow
from benchmarks.score import load
from mio2trace.align.links import NONE
from mio2trace.align.operations import chances as of_operations
from mio2trace.align.operations.chances import Posterior
from mio2trace.align.operations.likelihood import Fit, Likelihood
from mio2trace.align.rates import CALIBRATED, KNOTS, WHOLE, calibrated

Change = Callable[[list[dict[str, Any]]], object]


def call(index: int, name: str, line: int | None, **more: Any) -> dict[str, Any]:
    return {"index": index, "name": f"miopen{name}", "log_line": line, "lines_before": 0, "lines_after": 0, **more}


TRUTH: dict[str, Any] = {
    "layers": [
        {"name": "setup conv1"},
        {"name": "iter0 forward conv1"},
        {"name": "iter0 backward conv1"},
        {"name": "iter0 update"},
    ],
    "api_calls": [
        call(0, "FindConvolutionForwardAlgorithm", 10),
        call(1, "ConvolutionForward", 20),
        call(2, "ConvolutionForwardBias", None),
        call(3, "ConvolutionBackwardData", None, cmd_line=40),
        call(4, "OpTensor", 50, cmd_line=52),
    ],
    "enqueues": [
        {"name": "Im2Col", "prof_index": 3, "api_call": 0, "layer": 0},
        {"name": "miog_alphaab", "prof_index": 5, "api_call": 0, "layer": 0},
        {"name": "MIOpenConvUni", "prof_index": 7, "api_call": 1, "layer": 1},
        {"name": "OpTensorFwdBias", "prof_index": 9, "api_call": 2, "layer": 1},
        {"name": "MIOpenConvUni", "prof_index": 11, "api_call": 3, "layer": 2},
        {"name": "sgd", "prof_index": 13, "api_call": None, "layer": 3},
        {"name": "OpTensor", "prof_index": 15, "api_call": 4, "layer": None},
    ],
}


def faked(truth: Any) -> dict[str, Any]:
    """The trace that a perfect program would write."""
    by = join_key(truth)
    numbers: dict[int, int] = {}
    kernels: list[dict[str, Any]] = []
    operations: dict[int, dict[str, Any]] = {}
    for enqueue in truth["enqueues"]:
        args: dict[str, Any] = {by: key_of(enqueue)}
        true = None if enqueue["api_call"] is None else truth["api_calls"][enqueue["api_call"]]
        if true and (line := line_of(true)) is not None:
            number = numbers.setdefault(line, len(numbers))
            phase = "find" if true["name"].startswith("miopenFind") else "run"
            slot = operations.setdefault(number, {"operation": number, "line": line, "phase": phase, "kernels": 0})
            slot["kernels"] += 1
            args |= {"operation": number, "operation_by": "buffers"}
        place = place_of(None if enqueue["layer"] is None else truth["layers"][enqueue["layer"]]["name"])
        if place.kind == "setup":
            args["phase"] = "setup"
        elif place.kind == "pass":
            said = {"layer": place.layer, "direction": place.direction, "iteration": place.iteration}
            args |= {**said, "layer_by": "boundary stamps"}
        kernels.append({"ph": "X", "cat": "kernel", "name": enqueue["name"], "args": args})
    events = [{"ph": "X", "cat": "operation", "name": "", "args": args} for args in operations.values()]
    return {"traceEvents": [*kernels, *events, {"ph": "M", "name": "process_name", "args": {}}]}


def said(place: int, **args: Any) -> Change:
    """Other arguments for an event."""
    return lambda events: events[place]["args"].update(args)


def again(place: int) -> Change:
    return lambda events: events.append(copy.deepcopy(events[place]))


def both(one: Change, other: Change) -> Change:
    return lambda events: (one(events), other(events))


def flat(one: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in one.items():
        out |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return out


def test_the_perfect_trace_has_every_point() -> None:
    result = score(faked(TRUTH), TRUTH)
    assert (result["kernels"], result["right"], result["wrong"]) == (7, 7, 0)
    assert (result["unattributed"], result["unattributed_with_true_operation"]) == (2, 0)
    assert result["printed"] == {"right": 5, "total": 5}
    assert result["find"] == {"right": 2, "total": 2, "run_as_find": 0}
    assert result["evidence"] == {"buffers": 5}
    assert result["layers"]["right"] == result["layers"]["total"] == 7
    assert result["operations"] == {"count": 4, "without_kernels": 0, "at_no_call": 0}
    assert not result["faults"]


OTHER_CALL = {"right": 6, "wrong": 1, "wrong_by.buffers": 1, "printed.right": 4}
AS_SEARCH = OTHER_CALL | {"find.run_as_find": 1, "fault_count": 2}
OTHER_LAYER = {"layers.right": 6, "layers.wrong": 1, "layers.wrong_and_sure": 1}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # in another call, surely or not; in none; in one that printed no lines, surely or not; where none is true
        (said(2, operation=0), AS_SEARCH | {"wrong_and_sure": 1}),
        (said(2, operation=0, sure=False), AS_SEARCH | {"unsure": 1}),
        (
            lambda e: [e[4]["args"].pop(key) for key in ("operation", "operation_by")],
            {"right": 6, "wrong": 1, "unattributed": 3, "unattributed_with_true_operation": 1, "printed.right": 4}
            | {"wrong_by.unattributed": 1, "evidence.buffers": 4, "fault_count": 1},
        ),
        (
            said(3, operation=1, operation_by="order"),
            {"right": 6, "wrong": 1, "wrong_and_sure": 1, "unattributed": 1, "wrong_by.order": 1, "evidence.order": 1}
            | {"fault_count": 1},
        ),
        (
            both(said(3, operation=1, operation_by="order", sure=False), said(8, kernels=2)),
            {"unattributed": 1, "unsure": 1, "evidence.order": 1},
        ),
        (
            both(said(5, operation=1, operation_by="order", sure=False), said(8, kernels=2)),
            {"right": 6, "wrong": 1, "unattributed": 1, "unsure": 1, "wrong_by.order": 1, "evidence.order": 1},
        ),
        # the command's line where there is an entry; a search as a run; a kernel lost; one twice
        (said(10, line=52), OTHER_CALL | {"wrong_and_sure": 1, "operations.at_no_call": 1}),
        (said(7, phase="run"), {"find.right": 0}),
        (lambda e: e.pop(5), {"right": 6, "missing": 1, "unattributed": 1, "layers.right": 6, "layers.total": 6}),
        (both(again(0), said(7, kernels=3)), {"extra": 1}),
        # kernels miscounted; an operation in two pieces, with all kernels or its own in each; no slice; two lines
        (said(8, kernels=2), {"fault_count": 1}),
        (said(7, kernels=1), {"fault_count": 1}),
        (again(7), {}),
        (both(said(7, kernels=1), again(7)), {}),
        (lambda e: e.pop(9), OTHER_CALL | {"wrong_and_sure": 1, "fault_count": 1, "operations.count": 3}),
        (
            lambda e: e.append({"ph": "X", "cat": "operation", "args": {"operation": 0, "line": 11, "kernels": 2}}),
            {"fault_count": 1},
        ),
        # in another layer, iteration, direction; set-up not told, of another layer, of its own; an update, or none
        (said(2, layer="conv2"), OTHER_LAYER),
        (said(2, iteration=2, sure=False), {"layers.right": 6, "layers.wrong": 1, "unsure": 1}),
        (said(4, direction="forward"), OTHER_LAYER),
        (lambda e: e[0]["args"].pop("phase"), {"layers.right": 6, "layers.wrong": 1, "layers.wrong_phase": 1}),
        (said(0, layer="conv2", layer_by="order"), OTHER_LAYER | {"layers.evidence.order": 1}),
        (said(0, layer="conv1", layer_by="order"), {"layers.evidence.order": 1}),
        (
            said(5, layer="conv1", direction="backward", iteration=1, layer_by="order"),
            OTHER_LAYER | {"layers.evidence.order": 1},
        ),
        (said(6, layer="conv1", layer_by="order"), OTHER_LAYER | {"layers.evidence.order": 1}),
    ],
)
def test_each_flaw_costs_what_it_should(change: Change, expected: dict[str, int]) -> None:
    trace = faked(TRUTH)
    change(trace["traceEvents"])
    before, after = flat(score(faked(TRUTH), TRUTH)), flat(score(trace, TRUTH))
    found = {key: value for key, value in after.items() if value != before.get(key) and isinstance(value, int)}
    assert found == expected


def test_a_call_may_be_known_by_its_messages() -> None:
    """Where its entry is lost and lines that it printed later are not."""
    truth = copy.deepcopy(TRUTH)
    truth["api_calls"][2] |= {"lines_before": 30, "lines_after": 33}
    trace = faked(truth)
    trace["traceEvents"][3]["args"] |= {"operation": 9, "operation_by": "buffers"}
    for line, right in ((30, False), (31, True), (33, True), (34, False)):
        slot = {"operation": 9, "line": line, "kernels": 1}
        events = [*trace["traceEvents"], {"ph": "X", "cat": "operation", "args": slot}]
        result = score({"traceEvents": events}, truth)
        assert (result["right"], result["wrong_and_sure"]) == ((7, 0) if right else (6, 1))


def test_what_is_wrong_is_listed() -> None:
    trace = faked(TRUTH)
    for kernel, change in ((0, {"operation": 1, "sure": False}), (4, {"operation": 1}), (2, {"layer": "conv2"})):
        trace["traceEvents"][kernel]["args"].update(change)
    result = score(trace, TRUTH)
    assert result["wrong_kernels"] == [
        "MIOpenConvUni (call 11) of miopenConvolutionBackwardData at line 40: operation 1 at line 20",
        "Im2Col (call 3) of miopenFindConvolutionForwardAlgorithm at line 10: operation 1 at line 20, unsure",
    ]
    assert result["wrong_layers"] == ["MIOpenConvUni (call 7) of iter0 forward conv1: 1 forward conv2 boundary stamps"]


CONV = {
    "operation": 0, "primitive": "conv", "direction": "forward", "input": "2x3x9x9", "weights": "4x3x3x3",
    "output": "2x4x5x5", "pad": "1x1", "stride": "2x2", "dilation": "1x1", "groups": 1,
    "gemm": {"M": 4, "N": 25, "K": 27, "batch": 2},
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "right"),
    [
        ({}, True),
        ({"output": "2x4x4x4"}, False),
        ({"weights": "4x2x3x3"}, False),
        ({"stride": "1x1"}, False),
        ({"gemm": {"M": 4, "N": 27, "K": 25, "batch": 2}}, False),
        ({"gemm": {"M": 4, "N": 25, "K": 27}}, False),
        ({"direction": "backward-data", "gemm": {"M": 27, "N": 25, "K": 4, "batch": 2}}, True),
        ({"direction": "backward-weights", "gemm": {"M": 4, "N": 27, "K": 50}}, True),
        ({"direction": "backward-weights"}, False),
        ({"groups": 3, "weights": "6x1x3x3", "output": "2x6x5x5", "gemm": {"M": 2, "N": 25, "K": 9, "batch": 6}}, True),
        ({"mode": "transpose", "input": "2x4x5x5", "output": "2x3x9x9", "gemm": {"M": 27, "N": 25, "K": 4}}, True),
        ({"mode": "transpose", "output": "2x3x9x9"}, False),
        ({"output": ""}, False),
        ({"primitive": "pool", "window": "3x3"}, False),
        ({"primitive": "pool", "window": "3x3", "output": "2x3x5x5"}, True),
        ({"primitive": "pool", "window": "3x3", "output": "2x3x7x5"}, False),
        ({"primitive": "bnorm", "output": "2x3x9x9", "weights": "1x3x1x1"}, True),
        ({"primitive": "bnorm", "output": "2x3x9x9", "weights": "1x4x1x1"}, False),
        ({"primitive": "bnorm"}, False),
    ],
)
def test_shapes_are_checked(change: dict[str, Any], right: bool) -> None:
    assert bool(list(shape_faults({**CONV, **change}))) != right


def test_gemms_of_kernels_and_of_the_log_are_held_against_the_operation() -> None:
    """What a kernel has from its operation says nothing."""
    trace = faked(TRUTH)
    events = trace["traceEvents"]
    events[7]["args"] |= {**CONV, "line": 10, "phase": "find"}
    log = [b"Info2 [CallGemm] gemm_desc: {isColMajor 0, transA 0, transB 0, m 4, n 25, k 27, lda 27, batch_count 1,\n"]
    truth = copy.deepcopy(TRUTH)
    truth["api_calls"][0]["lines_after"] = 1
    result = consistency(trace, truth, log)
    assert (result["shapes"], result["gemm"], result["gemm_in_log"], result["disagreements"]) == (1, 0, 1, 0)
    events[1]["args"] |= {"gemm": {"M": 4, "N": 25, "K": 3}, "gemm_by": "operation"}
    result = consistency(trace, truth, log)
    assert (result["gemm_of_operation"], result["gemm"], result["disagreements"]) == (1, 0, 0)
    events[1]["args"] |= {"gemm": {"M": 4, "N": 24, "K": 27}, "gemm_by": "source"}
    result = consistency(trace, truth, [log[0].replace(b"m 4", b"m 5")])
    assert (result["gemm"], result["disagreements"]) == (1, 2)
    assert len(result["listed"]) == 2


def result_of(change: Change = lambda events: None) -> dict[str, Any]:
    trace = faked(TRUTH)
    change(trace["traceEvents"])
    result = score(trace, TRUTH)
    return {**result, "consistency": {"disagreements": 0, "listed": []}, "entries": 3}


def test_what_is_promised() -> None:
    """As recorded everything; masked 99 %; damaged one in a thousand of all, held together."""
    recorded, mask, lost = Way(AS_RECORDED), Way(MASKED, ("buffers",)), Way("5 % of entries lost", (), 1)
    assert not [text for way in (recorded, mask, lost) for text in shortfalls("x", way, result_of())]
    wrong = result_of(both(said(2, operation=3), both(said(8, kernels=0), said(10, kernels=2))))
    assert list(shortfalls("x", recorded, wrong)) == ["operations: 6 of 7 right, promised 100%"]
    assert list(shortfalls("x", mask, wrong)) == ["operations: 6 of 7 right, promised 99%"]
    assert not list(shortfalls("x", lost, wrong))
    assert not list(shortfalls("x", Way(AS_RECORDED, ("order",)), wrong))
    assert list(total_shortfalls("5 % of entries lost", wrong))
    assert not list(total_shortfalls("5 % of entries lost", {**wrong, "kernels": 1000}))
    layers = result_of(said(2, layer="conv2"))
    assert list(shortfalls("x", recorded, layers)) == ["layers: 6 of 7 right"]
    assert list(total_shortfalls("5 % of entries lost", layers))
    for gone in ({"error": "it fell"}, {**result_of(), "refused": "no"}, {**result_of(), "missing": 1}):
        assert list(shortfalls("x", lost, gone))


def test_commands_alone_are_held_to_what_they_print() -> None:
    """95 % of the kernels whose call printed a command."""
    truth = copy.deepcopy(TRUTH)
    for one in truth["api_calls"]:
        one["log_line"] = None
    result = {**score(faked(truth), truth), "consistency": {"disagreements": 0, "listed": []}, "entries": 0}
    assert result["printed"] == {"right": 2, "total": 2}
    assert not list(shortfalls("x", Way(AS_RECORDED), result))
    short = {**result, "printed": {"right": 18, "total": 20}, "kernels": 30}
    assert list(shortfalls("x", Way(AS_RECORDED), short)) == ["operations: 18 of 20 right, promised 95%"]
    assert not list(shortfalls("x", Way(AS_RECORDED), {**short, "printed": {"right": 19, "total": 20}}))


@pytest.mark.shared
def test_of_a_run_whose_iterations_differ_every_link_is_right_and_work_grows_as_the_run(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profile lost another kernel of each: what is not repeated is not compared kernel by kernel."""
    fit = Likelihood.fit
    asked = 0

    def counted(likelihood: Likelihood, at: int, place: int) -> Fit:
        nonlocal asked
        asked += 1
        return fit(likelihood, at, place)

    monkeypatch.setattr(Likelihood, "fit", counted)
    for_each = []
    for size in (1000, 2000):
        made = grow(Run.load(samples(shared) / "m121-lenet-train-ownkernels"), size, tmp_path, unlike=True)
        run = Run.load(tmp_path)
        asked = 0
        mio2trace.convert(tmp_path / "run.log", tmp_path / "prof.json", output=tmp_path / "out.json")
        for_each.append(asked / made["kernels"])
        result = score(load(tmp_path / "out.json"), run.truth)
        assert (result["right"], result["wrong_and_sure"]) == (made["kernels"], 0)
    assert for_each[1] < 1.2 * for_each[0], for_each


# -- What is said of links in doubt is what was measured of such links.


CHANCES = st.floats(0, 1)


@given(kind=st.sampled_from(sorted(CALIBRATED)), one=CHANCES, other=CHANCES)
def test_what_is_likelier_stays_likelier_and_nothing_becomes_sure(
    kind: Literal["operation", "layer"], one: float, other: float
) -> None:
    """Each map rises and ends where it meets what is not changed."""
    low, high = sorted((one, other))
    assert 0 <= calibrated(kind, low) <= calibrated(kind, high) <= 1
    assert calibrated(kind, high) <= max(high, WHOLE)
    assert high < WHOLE or calibrated(kind, high) == high


def test_the_others_share_what_the_likeliest_leaves() -> None:
    """A lost call is likelier or less likely as no call of the log is; all ways are one together."""
    posterior = Posterior.of_none(1)
    posterior.operation[0], posterior.confidence[0] = 0, 0.6
    posterior.others[0], posterior.gone[0] = ((1, 0.3), (NONE, 0.1)), 0.05
    with patch.object(of_operations, "calibrated", lambda kind, chance: 0.8):
        posterior.calibrate(0)
    assert posterior.confidence[0] == 0.8
    assert sum(chance for _, chance in posterior.chances(0)) == pytest.approx(1)
    assert posterior.gone[0] == pytest.approx(posterior.others[0][1][1] / 2)


def test_knots_are_what_is_true_of_links_and_never_fall() -> None:
    """Links that are right more often than the model says get more confidence; values without links stay the same."""
    links = [(0.4, at % 10 < 9, 1.0) for at in range(1000)] + [(0.6, at % 10 < 7, 1.0) for at in range(1000)]
    values = fitted(links)
    assert len(values) == len(KNOTS)
    assert list(values) == sorted(values)
    assert values[2] == values[3] == pytest.approx(0.8, abs=0.02)
    assert values[0] == 0
    assert values[-1] == WHOLE
