"""Links: ranked by evidence, written in one place; the ladder whose steps give them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mio2trace
from mio2trace import align as ladder_module
from mio2trace.align import NONE, STEPS, LayerRun, Links, Step, climb, rates
from mio2trace.align.attribution import Attribution
from mio2trace.align.exact import calls_of
from mio2trace.align.links import DOUBTED, LayerRuns
from mio2trace.align.ranges import OpenRanges
from mio2trace.evidence import (
    BUFFERS,
    DURATIONS,
    EVIDENCE,
    EXACT,
    NAME_AND_SIZES,
    ORDER,
    POSITION,
    RECURRENCE,
    STRENGTH,
    TIMER_MARKS,
    Evidence,
)
from mio2trace.model.profile import Clock, Process, Range
from mio2trace.notes import Notes
from mio2trace.readers import kineto
from tests.conftest import ROOT
from tests.kineto_files import kineto_file, row
from tests.records import enqueued, made_operation, opencl_profile, process_of_a_job
from tests.rocm_files import read

PACKAGE = Path(mio2trace.__file__).parent


def of_four() -> Links:
    activities = [enqueued(number=at, kind="kernel", name=f"k{at}") for at in range(4)]
    return Links(activities, [made_operation(index=index, primitive="conv") for index in range(3)])


def runs_of(links: Links, *iterations: int) -> list[int]:
    """Runs of one layer in these iterations."""
    passes = [links.pass_id("iteration", number, "forward") for number in iterations]
    return [
        links.runs.add(LayerRun(layer="a", layer_index=at, direction="forward", pass_=pass_))
        for at, pass_ in enumerate(passes)
    ]


@pytest.mark.parametrize(("first", "second"), [(ORDER, BUFFERS), (BUFFERS, ORDER)])
def test_stronger_evidence_takes_a_link_over_and_a_contradiction_is_counted(first: Evidence, second: Evidence) -> None:
    """In whatever order they are given; the weaker one's word and doubt go with it."""
    links = of_four()
    for positions, by in (([0, 1], first), ([1, 2], second)):
        is_right = by == BUFFERS
        links.give_operation(positions, int(is_right), by, confidence=1.0 if is_right else DOUBTED)
    assert (links.operation_of[1], links.operation_by[1]) == (1, BUFFERS)
    assert 1 not in links.operation_unsure
    assert links.contradictions == {"order against buffers": 1}
    assert links.operation_of[3] == NONE


def test_a_layer_that_stronger_evidence_takes_over_brings_its_pass() -> None:
    """An activity's pass is that of its layer's run."""
    links = of_four()
    runs = runs_of(links, 1, 2)
    links.give_layer([0], runs[0], RECURRENCE)
    links.give_layer([0], runs[1], POSITION)
    assert (links.run_of[0], links.iteration_of(0), links.layer_by[0]) == (runs[1], 2, POSITION)


PLACES = st.one_of(st.none(), st.integers(-(1 << 40), 1 << 40))
RUNS = st.builds(
    LayerRun,
    layer=st.sampled_from("ab"),
    layer_index=st.integers(0, 2),
    direction=st.sampled_from((None, "forward", "backward")),
    pass_=st.integers(0, 5),
    printed_ns=PLACES,
    host_start_ns=PLACES,
    host_end_ns=PLACES,
)


@given(st.lists(st.one_of(RUNS, st.lists(RUNS, min_size=1), st.just("read"))))
def test_executions_of_layers_are_what_was_added(steps: list[Any]) -> None:
    """Singly or as columns, however often it is read between."""
    runs, expected = LayerRuns(), list[LayerRun]()
    for step in steps:
        if step == "read":
            runs.column("pass_")
        elif isinstance(step, LayerRun):
            assert runs.add(step) == len(expected)
            expected.append(step)
        else:
            columns = LayerRuns(step)
            numbers = {name: columns.column(name) for name in ("pass_", "printed_ns", "host_start_ns", "host_end_ns")}
            added = runs.add_columns(columns.layers(), **numbers)
            assert added.tolist() == [*range(len(expected), len(expected) + len(step))]
            expected += step
        at = range(len(expected))
        assert [runs[number] for number in at] == expected
        assert [runs.pass_of(number) for number in at] == [one.pass_ for one in expected]
    assert [*runs] == expected
    assert [*runs.layers().each()] == [(one.layer_index, one.layer, one.direction) for one in expected]


def test_the_same_link_again_gains_the_stronger_word_and_no_contradiction() -> None:
    """What already said more is left as it is."""
    links = of_four()
    links.give_operation([0, 1], 2, NAME_AND_SIZES, confidence=DOUBTED)
    links.give_operation([0], 2, RECURRENCE)
    links.give_operation([1], 2, ORDER)
    assert [*links.operation_by][:2] == [RECURRENCE, NAME_AND_SIZES]
    assert links.operation_unsure == {1}
    assert not links.contradictions


def test_what_has_no_link_has_nothing_to_doubt() -> None:
    """Only links are sure or not."""
    links = of_four()
    links.give_operation([1], 0, BUFFERS)
    links.doubt_operation(range(4))
    links.doubt_layer(range(4))
    assert (links.operation_unsure, links.layer_unsure) == ({1}, set())


def test_the_order_of_evidence() -> None:
    """Strongest first, and what is exact is stronger than all that is inferred."""
    assert sorted(EVIDENCE, key=lambda word: -STRENGTH[word]) == list(EVIDENCE)
    assert min(STRENGTH[word] for word in EXACT) > max(STRENGTH[word] for word in EVIDENCE if word not in EXACT)


def test_evidence_words_are_written_in_one_module() -> None:
    """Everything else refers to them by name; short words that mean other things, too, are let through."""
    words = set(EVIDENCE) - {"range", "correlation", "buffers", "order", "position", "capture", "durations"}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text("utf-8")
        if not any(f'"{word}"' in text for word in words):
            continue
        constants = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
        assert path.name == "evidence.py" or not words & constants, path


def test_what_is_said_of_an_operation_steers_no_link() -> None:
    """Doubts are sentences for people: what the steps decide on is a value beside them."""
    for path in sorted((PACKAGE / "align").rglob("*.py")):
        assert not re.search(r"\.\s*doubts\b", path.read_text("utf-8")), path


def test_every_rate_of_the_alignment_has_its_measurement() -> None:
    """The manual has each number with its value, what is set equal to it, and what that was measured on."""
    text = (PACKAGE.parent.parent / "docs" / "alignment-internals.md").read_text("utf-8")
    rows = re.findall(r"^\| `([A-Z_]+)` \| (\S+) \| (.+) \|$", text, re.MULTILINE)
    assigned = [node for node in ast.parse(Path(rates.__file__).read_bytes()).body if isinstance(node, ast.AnnAssign)]
    set_by_hand = {
        node.target.id: node.value.value
        for node in assigned
        if isinstance(node.target, ast.Name) and isinstance(node.value, ast.Constant)
    }
    derived = {node.target.id for node in assigned if isinstance(node.target, ast.Name)} - set_by_hand.keys()
    assert {name: float(value) for name, value, _ in rows} == set_by_hand
    assert len(set_by_hand) <= 15
    said = " ".join(text for _, _, text in rows)
    assert {name for name in derived if f"`{name}`" not in said} == set()


def test_every_evidence_of_the_ladder_is_a_known_word() -> None:
    """And a step that goes by several is listed strongest first."""
    for step in STEPS:
        assert list(step.evidence) == sorted(step.evidence, key=lambda word: -STRENGTH[word])


def test_a_step_is_left_out_with_the_last_of_its_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that goes by what is given is always taken."""
    taken: list[str] = []
    steps = (
        Step((POSITION, BUFFERS), lambda _: taken.append("both")),
        Step((ORDER,), lambda _: taken.append("order")),
        Step((), lambda _: taken.append("none")),
    )
    monkeypatch.setattr(ladder_module, "STEPS", steps)
    for without, expected in (
        ((), ["both", "order", "none"]),
        ((POSITION,), ["both", "order", "none"]),
        ((POSITION, BUFFERS, ORDER), ["none"]),
    ):
        taken.clear()
        climb(Attribution(opencl_profile(source=0, records=0), Notes(), without=frozenset(without)))
        assert taken == expected


def test_a_link_is_as_probable_as_its_least_probable_reason_says() -> None:
    """Doubts take the least figure, below 0.995 a link is not sure, and a stronger link forgets the weaker one's."""
    links = of_four()
    runs = runs_of(links, 1, 1)
    links.give_layer([0, 1, 2], runs[0], DURATIONS, confidence=0.9)
    links.doubt_layer([1], 0.7)
    links.doubt_layer([1], 0.8)
    links.give_layer([2], runs[1], TIMER_MARKS, confidence=0.999)
    assert dict(links.layer_confidence) == {0: 0.9, 1: 0.7, 2: 0.999}
    assert links.layer_unsure == {0, 1}
    assert not links.operation_confidence


def test_what_only_ranges_state_has_no_index_of_the_logs() -> None:
    """Of another run's or thread's calls in the same log neither: tables find operations by it."""
    profile = mio2trace.analyse(ROOT / "traces" / "lenet-rocpd" / "results.db.gz").run.profiles[0]
    stated = calls_of(profile, (), 7, Notes()).operations
    assert [operation.index for operation in stated] == list(range(7, 7 + len(stated)))
    assert stated


def _opened(ranges: list[tuple[str, int, int]], launched_us: list[int]) -> list[list[str]]:
    """Return the ranges around each launch, the innermost first. ``ranges``: text, begin and end in us."""
    made = [Range("annotation", text, 0, 1000 * begun, 1000 * end) for text, begun, end in ranges]
    launches = [("k", 1000 * at + 1, 1000 * at + 2, 1000 * at, 1000 * at + 1) for at in launched_us]
    profile = process_of_a_job(launches, Process(index=0, pid=1), Clock("boottime"), ranges=made)
    opened = OpenRanges(profile)
    return [[made[at].text for at in (place, *opened.around(place))] for place in opened.range_of]


def test_a_range_that_ended_is_not_around_a_later_launch() -> None:
    """Ranges of a thread may overlap (`roctxRangeStart`): the first one is around launches before its end alone."""
    assert _opened([("a", 0, 10), ("b", 5, 20)], [2, 7, 12]) == [["a"], ["a"], ["b"]]


def test_a_range_of_whole_microseconds_may_end_after_the_one_around_it() -> None:
    """Older PyTorch cut the fractions of times: 5.0 + 6.0 is after 0 + 10, but 5.9 + 6.0 is not after 0.9 + 11.9."""
    ranges = [("module", 0, 10), ("op", 5, 11), ("call", 6, 11)]
    assert _opened(ranges, [2, 7]) == [["module"], ["call", "op", "module"]]


def test_many_ranges_that_overlap_are_nested_quickly() -> None:
    """Comparing each range with all open ones took 15 s for 20,000, and 100 times as long for 200,000."""
    number = 20_000
    begun = process_time()
    assert len(_opened([(f"r{at}", at, at + 2 * number) for at in range(number)], [number])) == 1
    assert process_time() - begun < 4


def test_a_range_that_ends_later_by_rounding_is_within_the_other(tmp_path: Path) -> None:
    """Begin and length in whole us: the inner op may end up to 1 us behind the outer one."""
    ops = [row("cpu_op", text, 7, 7, begun, us) for text, begun, us in (("outer", 10, 9), ("inner", 15, 5))]
    call = row("cuda_runtime", "hipLaunchKernel", 7, 7, 16, 1, correlation=1)
    kernel = row("kernel", "k", 2, 0, 18, 1, device=2, stream=0, correlation=1)
    (profile,) = read(kineto_file(tmp_path, [*ops, call, kernel]), kineto)
    opened = OpenRanges(profile)
    (place,) = opened.range_of
    assert [profile.ranges[at].text for at in (place, *opened.around(place))] == ["inner", "outer"]
