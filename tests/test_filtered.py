"""Files of PyTorch's profiler from which rows were filtered: what numbers of ops tell, what gaps are called."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mio2trace.findings import Finding, Subject, findings
from mio2trace.measures import Measures
from tests.commands import invoked
from tests.conftest import shared_folder
from tests.headlines import measured, rows, samples
from tests.kineto_files import Row, kineto_file, row

STEPS, EACH = 4, 100
"""Steps, and launches in each."""


def events() -> list[Row]:
    """Steps of ops that launch a kernel each, which runs a little later: the device waits for the host in none."""
    found: list[Row] = []
    number = 0
    for step in range(STEPS):
        begin = 1000.0 + 10_000 * step
        number += 1
        found.append(row("user_annotation", f"ProfilerStep#{step + 5}", 7, 7, begin, 10_000, External_id=number))
        for at in range(EACH):
            number += 1
            launch, start = begin + 10 * at, begin + 50 + 98 * at
            found += [
                row("cpu_op", "aten::add", 7, 7, launch, 9, External_id=number),
                row("cuda_runtime", "cudaLaunchKernel", 7, 7, launch + 1, 5, External_id=number, correlation=number),
                row("kernel", "add_kernel", 0, 7, start, 96, device=0, stream=7, correlation=number),
            ]
    return found


def number_of(event: Row) -> int:
    args = event["args"]
    found: int = args.get("External id", args.get("correlation"))
    return found


def kept(events: Sequence[Row], keeps: Callable[[int], bool]) -> list[Row]:
    """Steps, and of each op its rows if its number is kept."""
    return [event for event in events if event["cat"] == "user_annotation" or keeps(number_of(event))]


def sampled(part: float, seed: int = 1) -> list[Row]:
    rng = random.Random(seed)
    chosen = {2} | {number for number in range(1, 2 * STEPS * EACH) if rng.random() < part}
    return kept(events(), chosen.__contains__)


def said(events: list[Row], folder: Path) -> tuple[Measures, list[Finding]]:
    """The program's measures and findings; both counts agree on what is missing."""
    path = kineto_file(folder, events, "rank0.pt.trace.json")
    assert [one.wrong for one in rows(path, path.name)] == [{}]
    (one,) = measured(path)
    return one, findings(Subject(one))


def test_a_whole_file_has_all_numbers(tmp_path: Path) -> None:
    """Also if a thread left a block of numbers out, and if the first rows have lost theirs."""
    assert said(events(), tmp_path)[0].completeness.complete
    assert said(kept(events(), lambda number: not 150 < number < 380), tmp_path)[0].completeness.complete
    apart = events()
    for event in apart:
        for key in event["args"].keys() & {"External id", "correlation"}:
            event["args"][key] += 100_000 * (event["args"][key] > 10)
    assert said(apart, tmp_path)[0].completeness.complete


@pytest.mark.parametrize("seed", range(3))
def test_a_sampled_file_is_incomplete_and_its_gaps_may_be_work(seed: int, tmp_path: Path) -> None:
    """The launches of the kernels left returned in time: nothing in the file tells that the device was busy."""
    some = sampled(0.2, seed)
    made, found = said(some, tmp_path)
    numbers = {number_of(event) for event in some if event["cat"] in ("cpu_op", "user_annotation")}
    missing = max(numbers) - min(numbers) + 1 - len(numbers)
    assert dict(made.completeness.counts) == {"sampled": missing}
    assert made.completeness.said == f"{missing} ops filtered out of the file"
    (idle,) = [one for one in found if one.rule.id == "idle"]
    assert (idle.severity, "rows were filtered out" in idle.advice) == ("low", True)
    assert "high" not in {one.severity for one in found}


def test_the_answer_says_so(tmp_path: Path) -> None:
    path = kineto_file(tmp_path, sampled(0.1), "rank0.pt.trace.json")
    shown = invoked("report", path).stdout
    assert "PROFILE INCOMPLETE" in shown
    assert "or missing work" in shown
    assert "queued, or work that was filtered out," in " ".join(shown.split())
    assert invoked("report", path, "--strict").exit_code == 4


@pytest.mark.parametrize("count", [9, 10])
def test_kernels_without_their_ops_were_taken_out_of_a_larger_file(count: int, tmp_path: Path) -> None:
    """The file has collectives alone. Nobody knows what else the device did, so no finding says that they run alone."""
    some = [
        row("kernel", "ncclDevKernel_Generic", 0, 7, 1000.0 * at, 300, device=0, stream=7, correlation=500 + 7 * at,
            External_id=20 + 3 * at)
        for at in range(1, 1 + count)
    ]  # fmt: skip
    made, found = said(some, tmp_path)
    assert dict(made.completeness.counts) == ({"sampled": count} if count >= 10 else {})
    assert ("communication" in {one.rule.id for one in found}) is (count < 10)
    assert {one.severity for one in found if one.rule.id == "idle"} == {"low"} or count < 10
    assert (made.steady.told.told_by == "repetition") is (count < 10)


def test_few_numbers_tell_nothing(tmp_path: Path) -> None:
    """Below ten."""
    some = sampled(0.2)
    ops = [event for event in some if event["cat"] == "cpu_op"][:5]
    few = kept(events(), {number_of(event) for event in ops}.__contains__)
    assert said(few, tmp_path)[0].completeness.complete


@pytest.mark.shared
def test_no_real_sample_is_taken_for_a_filtered_one() -> None:
    paths = [path for path in samples(shared_folder()) if "kineto" in path.as_posix() or "graphs" in path.as_posix()]
    assert len(paths) > 10
    for path in paths:
        assert all("sampled" not in one.completeness.counts for one in measured(path)), path
