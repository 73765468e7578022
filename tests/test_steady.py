"""What a steady iteration cost, and which iterations are: laws over runs that are made up for them."""

from __future__ import annotations

import pytest

from mio2trace.analysis import analyse
from mio2trace.measures import Steady
from tests.test_one_number import RUNS


def steady(name: str) -> Steady:
    return analyse(RUNS[name]).run.measures[0].steady


@pytest.mark.shared
@pytest.mark.parametrize("name", RUNS)
def test_rows_and_the_rest_are_the_whole(name: str) -> None:
    """Of every ranking the rows and what they do not hold sum up to the kernel time of the steady iterations."""
    of = steady(name)
    for ranking in (of.layers, of.operations, of.problems, of.kernels):
        rest = 0 if ranking.rest is None else ranking.rest.total_ns
        assert sum(row.total_ns for row in ranking) + rest == of.total.total_ns == sum(of.samples_ns)
        assert all(sum(row.per_iteration_ns) == row.total_ns for row in ranking)
        assert [row.total_ns for row in ranking] == sorted((row.total_ns for row in ranking), reverse=True)


@pytest.mark.shared
def test_the_first_iteration_is_cold_where_the_host_compiles_in_it() -> None:
    """Ten iterations of which the first took the host a hundred times as long: nine count."""
    of = steady("m290-alexnet-infer-10it")
    assert of.cold == (1,)
    assert of.iterations == tuple(range(2, 11))
    assert of.rule.startswith("iterations 2-10, of 10 recorded; 1 is cold: the host was in it")
