"""The program's first line is what a second count without it says: of all real samples, and of changed ones.

``python benchmarks/headline.py`` prints it as a table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import oracle, spoiled
from tests.conftest import shared_folder
from tests.headlines import Device, devices, differences, inputs, measured, samples, second_opinion
from tests.oracle import rules
from tests.raw_profiles import load

pytestmark = pytest.mark.shared

SAMPLES = {path.relative_to(shared_folder() / "samples").as_posix(): path for path in samples(shared_folder())}
DOCUMENTED = "_doc_"
"""Samples of a few rows, of a documentation."""


@functools.lru_cache(maxsize=1)
def said(*paths: Path) -> tuple[list[Device], list[dict[str, int]]]:
    """What the program says of each device, and of each process what is missing."""
    measures = measured(*paths)
    return [device for one in measures for device in devices(one)], [dict(one.completeness.counts) for one in measures]


@pytest.mark.parametrize("name", SAMPLES)
def test_samples(name: str) -> None:
    """Number of steps, time and length of each, shares, copies, kernels before the recording."""
    true, (found, _) = second_opinion(SAMPLES[name]), said(*inputs(SAMPLES[name]))
    assert [differences(one, other) for one, other in zip(true, found, strict=True)] == [{}] * len(true)


@pytest.mark.parametrize("change", spoiled.CHANGES)
@pytest.mark.parametrize("name", [name for name in SAMPLES if DOCUMENTED not in name])
def test_changed_samples(name: str, change: Callable[..., spoiled.Expected | None], tmp_path: Path) -> None:
    """The verdict names what was done, both counts agree, and no step moves by more than what was done to it."""
    before, missing_before = said(*inputs(SAMPLES[name]))
    raw = load(SAMPLES[name])
    first = next(iter(rules.answer(oracle.read(SAMPLES[name])).devices.values()))
    expected = change(raw, [(step.begin, step.end) for step in first.steps if step.end is not None])
    if expected is None:
        pytest.skip("this sample does not allow it")
    paths = raw.save(tmp_path)
    measures = measured(*paths)
    after = [device for one in measures for device in devices(one)]
    true = second_opinion(next((path for path in paths if "kernel_trace" in path.name), paths[0]))
    assert [differences(one, other) for one, other in zip(true, after, strict=True)] == [{}] * len(true)
    missing = [dict(one.completeness.counts) for one in measures]
    check_verdict(expected, missing_before, missing)
    for one, other in zip(before, after, strict=True):
        check_times(expected, one, other)


def check_verdict(expected: spoiled.Expected, before: list[dict[str, int]], after: list[dict[str, int]]) -> None:
    def total(counts: list[dict[str, int]]) -> dict[str, int]:
        return {of: sum(one.get(of, 0) for one in counts) for one in counts for of in one}

    for of in total(before) | total(after) | expected.verdict:
        more = total(after).get(of, 0) - total(before).get(of, 0)
        least = expected.verdict.get(of, 0)
        assert more == least or (of in expected.beside and more > least), of


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
