"""The program's first line is what a second count without it says: of all real samples, and of changed ones.

``python benchmarks/headline.py`` prints it as a table.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mio2trace.analysis import analyse
from mio2trace.measures.iterations import PARTS, StepTime
from tests import oracle, spoiled
from tests.conftest import shared_folder
from tests.headlines import (
    Device,
    by_hand,
    devices,
    differences,
    inputs,
    measured,
    of_processes,
    program,
    samples,
    second_opinion,
)  # fmt: skip
from tests.oracle import rules
from tests.oracle.events import unpacked
from tests.oracle.truth import iterations
from tests.raw_profiles import load

pytestmark = pytest.mark.shared

SAMPLES = {path.relative_to(shared_folder() / "samples").as_posix(): path for path in samples(shared_folder())}
DOCUMENTED = "_doc_"
"""Samples of a few rows, of a documentation."""


@functools.lru_cache(maxsize=2)
def said(*paths: Path) -> tuple[list[Device], list[dict[str, int]], list[StepTime | None]]:
    """Return what the program says: the numbers of each device; what each process lacks, and its steady step."""
    analysis = analyse(paths)
    assert by_hand(analysis) == []
    measures = of_processes(analysis)
    return (
        [device for one in measures for device in devices(one)],
        [dict(one.completeness.counts) for one in measures],
        [one.steady.step_time for one in measures],
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_samples(name: str) -> None:
    """Number of steps, time and length of each, shares, copies, kernels before the recording; percentages by hand."""
    true, (found, *_) = second_opinion(SAMPLES[name]), said(*inputs(SAMPLES[name]))
    assert [differences(one, other) for one, other in zip(true, found, strict=True)] == [{}] * len(true)


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.startswith("rocm-twins/")])
def test_iterations_of_the_log(name: str) -> None:
    """What truth says of each: the log's lines tell iterations, and what is set up or searched is in none."""
    path = SAMPLES[name]
    folder = path.parent.parent
    true = iterations(folder, oracle.read(path))
    logs = sorted(folder.glob("run.rank*.log")) or [folder / "run.hip.log"]
    for one in measured(*inputs(path), *logs):
        process = one.alignment.profile.process.pid
        of = true[next(iter(true)) if process is None else process]
        told = one.steady.told
        assert (told.told_by, len(told.all)) == ("named", len(of.kernels))
        assert tuple(iteration.kernels for iteration in told.all) == of.kernels
        assert tuple(iteration.kernel_ns for iteration in told.all) == of.kernel_ns


# ---- made from samples


def agree(*paths: Path) -> list[Device]:
    """What both say of a profile; the second opinion reads the first file, or the one of the kernels."""
    true = second_opinion(next((path for path in paths if "kernel_trace" in path.name), paths[0]))
    found = program(*paths)
    assert [differences(one, other) for one, other in zip(true, found, strict=True)] == [{}] * len(true)
    return true


GRAPH = "rocm-twins/alexnet-10it-graph/"


@pytest.mark.parametrize("text", ["iteration {}", "Step_{}"])
@pytest.mark.parametrize("name", [name for name in SAMPLES if name.startswith(GRAPH) and "kineto" not in name])
def test_steps_that_the_user_marks(name: str, text: str, tmp_path: Path) -> None:
    """With ROCTx ranges around the launches of ten iterations."""
    raw = load(SAMPLES[name])
    calls = raw.call_of()
    launches = [call.start for call in calls.values() if "GraphLaunch" in call.name]
    first = sorted(calls[row.link].start for row in raw.rows if row.kind == "kernel" and row.link in calls)[-290]
    starts = [start - 3000 for start in [first, *sorted(launches)]]
    like = next(row for row in raw.rows if row.kind == "range")
    ends = [start - 1000 for start in starts[1:]]
    for number, (start, end) in enumerate(zip(starts, [*ends, ends[-1] + 50_000_000], strict=True)):
        raw.add_range(like, text.format(number), start, end)
    (device,) = agree(*raw.save(tmp_path))
    assert device.kernels == (29,) * 10


TWO_THREADS = "rocm-twins/resnet-train-miopen-2threads/"


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.startswith(TWO_THREADS) and "kineto" not in name])
def test_parts_that_the_user_marks(name: str, tmp_path: Path) -> None:
    """Ranges of one text that hold a sixth of the launches are no steps, however often they come."""
    raw = load(SAMPLES[name])
    calls = raw.call_of()
    launches = sorted({calls[row.link].start for row in raw.rows if row.kind == "kernel" and row.link in calls})
    like = next(row for row in raw.rows if row.kind == "range")
    for first in range(0, 400, 20):
        raw.add_range(like, "block", launches[first] - 1000, launches[first + 4] + 1000)
    (device,) = agree(*raw.save(tmp_path))
    assert device.steps == 0


@pytest.mark.parametrize(
    "text",
    [
        "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk99sqsq32sqsk99)",
        "step[DECODE bs=32]",
        "decode[bs=117/128 tok=117 d=117]",
        "execute_model",
        "execute_new_0_cached_32",
        "[Executor] _forward_step 32: 0 ctx reqs, 4 gen reqs",
        "forward_cudagraph",
    ],
)
def test_steps_of_a_serving_engine(text: str, tmp_path: Path) -> None:
    """In the place of the profiler's, each within one of these; the first is a prefill of another batch."""
    raw = load(SAMPLES[f"{GRAPH}kineto/rank0.pt.trace.json.gz"])
    marks = [row for row in raw.rows if row.kind == "range"]
    for number, mark in enumerate(marks):
        other = text.replace("DECODE", "EXTEND").replace("decode", "prefill").replace("32", "3")
        raw.add_range(mark, text if number else other, mark.start + 100, mark.end - 100)
    (device,) = agree(*raw.save(tmp_path))
    assert device.kernels == (29,) * 10


FUSED = [
    ("rocm/kineto_mi300_resnet50_ddp4_rank0.json.gz", "rocm/kineto_mi300_resnet50_ddp4_rank1.json.gz"),
    tuple(f"rocm-twins/resnet-immediate-2ranks/kineto/rank{rank}.pt.trace.json.gz" for rank in range(2)),
]


@pytest.mark.parametrize("ranks", FUSED)
def test_two_processes_in_one_file(ranks: Sequence[str], tmp_path: Path) -> None:
    """Each command, copy and fill is its own process's. Ids of the second are made others, as fused files have them."""
    texts = [json.loads(unpacked(SAMPLES[name])) for name in ranks]
    for event in texts[1]["traceEvents"]:
        for key in event.get("args", {}).keys() & {"correlation", "External id"}:
            event["args"][key] += 10_000_000
        if event.get("cat") == "ac2g":
            event["id"] += 10_000_000
    path = tmp_path / "fused.pt.trace.json"
    path.write_text(json.dumps(texts[0] | {"traceEvents": texts[0]["traceEvents"] + texts[1]["traceEvents"]}))
    alone = [second_opinion(SAMPLES[name]) for name in ranks]
    assert agree(path) == [device for devices in alone for device in devices]


@functools.lru_cache(maxsize=1)
def steps_of(name: str) -> list[tuple[int, int]]:
    """Begin and end of the steps of the sample's first device, without one whose end is not known."""
    first = next(iter(rules.answer(oracle.read(SAMPLES[name])).devices.values()))
    return [(step.begin, step.end) for step in first.steps if step.end is not None]


@pytest.mark.parametrize("change", spoiled.CHANGES)
@pytest.mark.parametrize("name", [name for name in SAMPLES if DOCUMENTED not in name])
def test_changed_samples(name: str, change: Callable[..., spoiled.Expected | None], tmp_path: Path) -> None:
    """The verdict names what was done, both counts agree, and no step moves by more than what was done to it."""
    before, missing_before, steady_before = said(*inputs(SAMPLES[name]))
    raw = load(SAMPLES[name])
    expected = change(raw, steps_of(name))
    if expected is None:
        pytest.skip("this sample does not allow it")
    paths = raw.save(tmp_path)
    after, missing, steady = said(*paths)
    true = second_opinion(next((path for path in paths if "kernel_trace" in path.name), paths[0]))
    assert [differences(one, other) for one, other in zip(true, after, strict=True)] == [{}] * len(true)
    check_verdict(expected, missing_before, missing)
    for one, other in zip(before, after, strict=True):
        check_times(expected, one, other)
    for own, others in zip(steady_before, steady, strict=True):
        if own is not None and others is not None and own.device == others.device:
            check_mean(expected, own, others, [ns for device in before for ns in device.lengths if ns is not None])


def check_verdict(expected: spoiled.Expected, before: list[dict[str, int]], after: list[dict[str, int]]) -> None:
    def total(counts: list[dict[str, int]]) -> dict[str, int]:
        return {of: sum(one.get(of, 0) for one in counts) for one in counts for of in one}

    for of in total(before) | total(after) | expected.verdict:
        more = total(after).get(of, 0) - total(before).get(of, 0)
        least = expected.verdict.get(of, 0)
        allowed = (of in expected.beside and more > least) or (of in expected.hidden and more < least)
        assert more == least or allowed, of


def check_times(expected: spoiled.Expected, before: Device, after: Device) -> None:
    """Step by step, from the last one, or from the first: others may be lost."""
    if expected.doubled is not None:
        at = expected.doubled
        assert [one.steps for one in (before, after)] == [before.steps] * 2
        assert after.lengths == (*before.lengths[:at], 2 * (before.lengths[at] or 0), *before.lengths[at + 1 :])
        return
    way = slice(None) if expected.loses_last else slice(None, None, -1)
    for one, other in zip(before.kernel_ns[way], after.kernel_ns[way], strict=False):
        assert abs(one - other) <= expected.moves_ns
    for own, others in zip(before.lengths[way], after.lengths[way], strict=False):
        assert own is None or others is None or abs(own - others) <= expected.moves_ns


def check_mean(expected: spoiled.Expected, before: StepTime, after: StepTime, lengths: Sequence[int]) -> None:
    """The mean of the steady steps moves by no more than they do. One that takes twice as long stays among them. Where
    others count than before (one is lost, or no longer cold beside the others), the mean lies among the ``lengths`` of
    all steps before."""
    same = len(before.steps_ns) == len(after.steps_ns)
    grown = sum(after.steps_ns) - sum(before.steps_ns)
    assert abs(after.step_ns - sum(after.steps_ns) / len(after.steps_ns)) <= len(PARTS)
    if expected.doubled is not None:
        assert not same or any(abs(grown - own) <= 1 for own in before.steps_ns)
    elif same:
        assert abs(after.step_ns - before.step_ns) <= expected.moves_ns + len(PARTS)
    else:
        may_be_off = expected.moves_ns + len(PARTS)
        assert min(lengths) - may_be_off <= after.step_ns <= max(lengths) + may_be_off
