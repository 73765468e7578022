"""Percentages of a step whose length is not known for all steps: kernels one after another are at most 100 % of it."""

from __future__ import annotations

import pytest

from mio2trace.answer.gather import of_profile
from mio2trace.findings import Subject
from tests.made_up_costs import MS, Ran, measures
from tests.test_iterations import in_no_pass


@pytest.mark.parametrize("last_ms", [10, 11, 14])
def test_the_last_repetition_counts_in_the_denominator_too(last_ms: int) -> None:
    """Its kernels are known, its end is not. Each of the others takes 20 ms and is idle for 5 of them."""

    def each(ms: int) -> list[Ran]:
        return [Ran("a", ms * MS), Ran("b", 5 * MS, after_ns=5 * MS)]

    made = in_no_pass(measures({1: [*each(10), *each(10), *each(10), *each(last_ms)]}))
    section = of_profile(Subject(made), "run")
    assert (made.steady.told.told_by, section.iterations, section.step_ns) == ("repetition", 4, 20 * MS)
    shares = {row.name: section.share(row.ns) or 0.0 for row in section.kernels}
    assert shares["a"] + shares["b"] == pytest.approx(0.75)
    assert shares["a"] == pytest.approx(0.75 * (30 + last_ms) / (50 + last_ms))
