"""What the report says is what `measures` counts: one sum, whatever it is divided by."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mio2trace.analysis import Analysis, analyse
from mio2trace.answer import Section, report_of
from mio2trace.findings import Subject
from mio2trace.measures import steady
from mio2trace.measures.gaps import causes
from mio2trace.measures.iterations import Iterations, iterations_of
from tests.test_one_number import RUNS

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module", params=RUNS)
def analysis(request: pytest.FixtureRequest) -> Analysis:
    return analyse(RUNS[request.param])


@pytest.fixture(scope="module")
def subject(analysis: Analysis) -> Subject:
    return Subject(analysis.run.measures[0])


@pytest.fixture(scope="module")
def section(analysis: Analysis) -> Section:
    """The report's part on the first profile of a run."""
    return report_of(analysis, [analysis.run]).sections[0]


def test_parts_durations_and_layers_are_the_whole(subject: Subject) -> None:
    """The makeup of steady iterations sums up to their kernel time, in each way of cutting it."""
    makeup, total = subject.makeup, subject.steady.total
    assert makeup.all == (total.cost.kernels - total.cost.untimed, total.total_ns)
    assert makeup.parts.total() == total.total_ns
    assert sum(ns for _, ns in makeup.by_log2.values()) == total.total_ns
    assert sum(count for count, _ in makeup.by_log2.values()) == makeup.all[0]
    assert makeup.layers.total() == sum(row.total_ns for row in subject.steady.layers)


def test_gaps_are_the_idle_time(subject: Subject) -> None:
    """By cause they sum up to the time in which no command ran; the parts of the device's time are its length."""
    step, device = subject.step_time, subject.steady.device
    if step is None or device is None:
        return
    busy = [window.busy for window in step.windows if window.busy is not None]
    assert sum(one.ns for one in subject.causes) == sum(one.idle_ns for one in busy)
    assert sum(step.parts.values()) == step.step_ns == pytest.approx(sum(step.steps_ns) / len(step.steps_ns), abs=5)
    for one in busy:
        parts = (one.compute_ns, one.communication_ns, one.copy_ns, one.unrecorded_ns, one.idle_ns)
        assert sum(parts) == one.length_ns
    assert causes(subject.alignment, device, []) == ()


def test_problems_are_those_of_the_ranking(subject: Subject) -> None:
    """Each with the times of its calls; those of all problems and what is in no operation are the whole."""
    rest = subject.steady.problems.rest
    whole = sum(problem.ns for problem in subject.problems) + (rest.total_ns if rest is not None else 0)
    assert whole == subject.total_ns
    assert all(len(problem.samples) == problem.row.calls for problem in subject.problems)


def test_the_report_names_what_is_slowest(subject: Subject, section: Section) -> None:
    """Layer, operation, kernel: the first rows are the first of the rankings that tables and queries have."""
    steady = subject.steady
    for rows, keys in (
        ([(row.name, row.direction) for row in section.layers], [(k[1], k[2] or "") for k in _ran(steady.layers)]),
        ([(row.layer, row.name) for row in section.operations], _ran(steady.operations)),
        ([row.name for row in section.problems], _ran(steady.problems)),
        ([row.name for row in section.kernels], _ran(steady.kernels)),
    ):
        assert rows[:3] == keys[:3]
    assert section.kernel_ns == round(steady.total.total_ns / max(1, len(steady.iterations)))


def _ran(ranking: Any) -> list[Any]:
    return [row.key for row in ranking if row.calls]


class _Numbers(tuple[int, ...]):
    """Of iterations; looking one up goes over all of them."""

    def __contains__(self, _: object) -> bool:
        raise AssertionError("a number is looked for among those of all steady iterations")


def test_no_iteration_is_looked_for_among_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may have a hundred thousand iterations: the whole report goes over them, for none of them over all."""

    def hidden(*of: Any) -> Iterations:
        told = iterations_of(*of)
        return msgspec.structs.replace(told, steady=_Numbers(told.steady))

    monkeypatch.setattr(steady, "iterations_of", hidden)
    analysis = analyse(RUNS["m290-alexnet-infer-10it"])
    report = report_of(analysis, [analysis.run])
    assert report.sections[0].iterations == len(analysis.run.measures[0].steady.iterations) > 1
