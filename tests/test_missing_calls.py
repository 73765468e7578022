"""Calls whose kernels the profile does not have: it ended early, or has a hole."""

from __future__ import annotations

from math import exp

import pytest

from benchmarks.damage import measured
from benchmarks.damages.sets import BARE_TWIN, HANDLES, NO_FRAMEWORK
from mio2trace.align.links import NONE
from mio2trace.align.operations import stream as stream_module
from mio2trace.align.operations.chances import Habits, Posterior, cut_nats, following, hole_nats, kinds_of
from mio2trace.align.operations.rates import CUT, HOLE
from tests.conftest import shared_folder
from tests.records import made_operation

REPEATING = "m290-alexnet-infer-10it"


@pytest.mark.parametrize("calls", [1, 2, 30, 1000])
def test_holes_are_as_likely_as_holes_are(calls: int) -> None:
    """All places where a hole may begin and end have the probability of one; so have all ends."""
    assert calls * (calls + 1) / 2 * exp(hole_nats(calls, HOLE)) == pytest.approx(HOLE)
    assert calls * exp(cut_nats(calls)) == pytest.approx(CUT)


def test_what_was_searched_before_is_what_the_thread_did_since_it_executed() -> None:
    """Two ranks that search for the same problems repeat nothing; nor does a program that begins again."""
    calls = [(1, "find"), (2, "find"), (2, "find"), (1, "run"), (1, "find"), (2, "find")]
    operations = [made_operation(index=at, thread=thread, phase=phase) for at, (thread, phase) in enumerate(calls)]
    told = ["search", "search", "search again", "run", "search", "search again"]
    assert kinds_of(operations, [0] * len(calls)) == told


def test_the_call_after_a_kernels_own_is_the_next_that_launched() -> None:
    posterior = Posterior.of_none(6)
    posterior.operation[:] = [NONE, 3, 3, NONE, 7, 7]
    assert following(posterior, 9) == [3, 7, 7, 7, 9, 9]


@pytest.mark.shared
@pytest.mark.parametrize(
    ("row", "name", "variant", "seed"),
    [
        ("log begins late", "m290-resnet-train-entries-cmd", NO_FRAMEWORK, 1),
        ("2 % of lines lost", "m121-lenet-train-debugbuild", NO_FRAMEWORK, 1),
        ("another program's log before", "m121-resnet-train-entries-cmd", NO_FRAMEWORK, 1),
        ("another program's log before", "m290-lenet-train-cmdonly", NO_FRAMEWORK, 2),
        ("ranks of a launcher with equal ids", "m121-lenet-infer", NO_FRAMEWORK, 1),
        ("5 % of lines lost", "twin-alexnet-level6-none-run.hip-rocpd", BARE_TWIN, 1),
    ],
)
def test_what_a_damage_took_is_not_found_elsewhere_for_sure(row: str, name: str, variant: str, seed: int) -> None:
    """Each has kernels of calls that left no line, and calls that fit them as well."""
    assert measured(shared_folder(), (row, name, variant, seed)).operations.wrong_and_sure == 0


@pytest.mark.shared
def test_a_call_beside_a_hole_is_no_likelier_than_the_one_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of calls of one problem the one that launched the kernel is told by as many others as one that launched none."""
    told: list[tuple[float, float]] = []

    class Watched(Habits):
        def __init__(self, likelihood, posterior, *, rows) -> None:  # type: ignore[no-untyped-def]
            super().__init__(likelihood, posterior, rows=rows)
            launching = {place for place in posterior.operation if place != NONE}
            of_class = {
                number: place
                for place, number in enumerate(likelihood.class_of)
                if place not in launching and likelihood.operations[place].phase == "run"
            }
            for kind, place, confidence in zip(
                likelihood.kernels.of, posterior.operation, posterior.confidence, strict=True
            ):
                other = None if place == NONE or confidence < 0.9999 else of_class.get(likelihood.class_of[place])
                if rows and other is not None:
                    told.append((self.nats(kind, place), self.nats(kind, other)))

    monkeypatch.setattr(stream_module, "Habits", Watched)
    measured(shared_folder(), ("profile ends early", REPEATING, NO_FRAMEWORK, 0))
    assert len(told) > 100
    assert max(abs(own - other) for own, other in told) < 0.01


@pytest.mark.shared
@pytest.mark.parametrize("row", ["profile ends early", "profile begins late", "iterations only in the log"])
@pytest.mark.parametrize("variant", [HANDLES, NO_FRAMEWORK])
def test_a_profile_of_some_iterations_has_them_where_they_are(row: str, variant: str) -> None:
    """Ten iterations alike, of which the profile has the first or the last ones: nothing is in the others."""
    operations = measured(shared_folder(), (row, REPEATING, variant, 0)).operations
    assert operations.right >= 0.98 * operations.kernels
    assert operations.mean > 0.97
