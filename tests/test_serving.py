"""Steps of serving engines on made-up traces: what belongs to a step, kinds, and the time between steps."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

import mio2trace
from mio2trace.answer import of_profile, text
from mio2trace.answer.content import Section
from mio2trace.findings.subject import Subject
from mio2trace.measures.iterations import Iterations, idle_between
from tests.commands import invoked, json_of, printed
from tests.conftest import ROOT
from tests.kineto_files import FIRST_US, Row, kineto_file, launched, row

EVERY, MARKED = 1000.0, 60.0
"""us from step to step, and of a mark."""
DECODE, PREFILL = "step[DECODE bs=8]", "step[EXTEND bs=2 toks=90]"


def served(marks: list[str], after: list[float], *, us: float = 10.0, around: str = "") -> list[Row]:
    """Steps with a mark and four kernels of ``us``. ``after``: when a kernel of 3 us is launched after its begin.

    ``around``: a range around each mark, from 20 us before it to 200 us after its begin.
    """
    made = []
    for number, mark in enumerate(marks):
        begin = EVERY * number
        made.append(row("user_annotation", mark, 7, 7, FIRST_US + begin, MARKED, External_id=100 + number))
        if around:
            made.append(row("user_annotation", around, 7, 7, FIRST_US + begin - 20, 220, External_id=500 + number))
        for place in range(4):
            key = 1000 + 10 * number + place
            made += launched(key, begin + 6 * place, us, "gemm", pid=7, wait=30 + place * us - 6 * place)
        for place, at in enumerate(after):
            made += launched(5000 + 10 * number + place, begin + at, 3.0, "sample", pid=7, wait=100)
    return made


def analysed(folder: Path, events: list[Row]) -> tuple[Iterations, Section, float | None]:
    (measures,) = mio2trace.analyse([kineto_file(folder, events)]).run.measures
    return measures.steady.told, of_profile(Subject(measures), "run"), idle_between(measures)


AFTER = {
    "sampling": ([65.0], 5),
    "sampling and a copy of its result": ([65.0, 100.0], 6),
    "after a pause that is longer than the mark": ([200.0], 4),
    "sampling, and another thing after a pause": ([65.0, 300.0], 5),
    "as much as a step, which is another one without a mark": ([65.0, 70.0, 75.0], 4),
}


@pytest.mark.parametrize("what", AFTER)
@pytest.mark.parametrize("mark", ["execute_context_0(0)_generation_8(8)", DECODE, "execute_new_0_cached_8"])
def test_what_an_engine_launches_behind_its_mark_is_of_the_step(mark: str, what: str, tmp_path: Path) -> None:
    after, kernels = AFTER[what]
    told, _, _ = analysed(tmp_path, served([mark] * 4, after))
    assert [one.kernels for one in told.all] == [kernels] * 4


def test_what_follows_the_last_mark_alone_is_no_part_of_its_step(tmp_path: Path) -> None:
    """It is the end of the program. The only mark of a file has nothing to compare it with."""
    events = [*served([DECODE] * 4, []), *launched(9000, 3 * EVERY + 65, 3.0, "end", pid=7, wait=100)]
    told, _, _ = analysed(tmp_path, events)
    assert [one.kernels for one in told.all] == [4] * 4
    told, _, _ = analysed(tmp_path, served([DECODE], [65.0]))
    assert [one.kernels for one in told.all] == [4]


def test_numbered_steps_end_with_their_ranges(tmp_path: Path) -> None:
    told, _, _ = analysed(tmp_path, served([f"ProfilerStep#{number}" for number in range(3, 7)], [65.0]))
    assert [one.kernels for one in told.all] == [4] * 4


def test_a_range_around_the_marks_of_a_batch_is_the_step(tmp_path: Path) -> None:
    """Also with what it launches before and behind the mark, and with all marks in it; it is no layer."""
    events = served([DECODE, PREFILL, DECODE, DECODE], [-10.0, 65.0, 170.0], around="scheduler.run_batch")
    told, section, _ = analysed(tmp_path, events)
    assert [one.kernels for one in told.all] == [7] * 4
    assert told.kinds == ("decode bs=8", "prefill bs=2")
    assert not any("run_batch" in layer.name for layer in section.layers)


@pytest.mark.parametrize(
    ("marks", "kind"),
    [
        (("step[DECODE bs=8]", "step[TARGET_VERIFY bs=8]", "step[DRAFT_EXTEND_V2 bs=8]"), "decode bs=8"),
        (("step[TARGET_VERIFY bs=8]", "step[DRAFT_EXTEND bs=8]"), "decode bs=8"),
        (("step[EXTEND bs=2 toks=90]", "step[DRAFT_EXTEND bs=2]"), "prefill bs=2"),
        (("step[TARGET_VERIFY bs=8]",), "verify bs=8"),
    ],
)
def test_speculative_decoding_is_one_step(marks: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    """All that a batch drafts and verifies."""
    events = [one for one in served([DECODE] * 3, [], around="scheduler.run_batch") if one["name"] != DECODE]
    for step in range(3):
        for place, mark in enumerate(marks):
            begin = FIRST_US + EVERY * step + 9 * place
            events.append(row("user_annotation", mark, 7, 7, begin, 8, External_id=900 + 10 * step + place))
    told, _, _ = analysed(tmp_path, events)
    assert told.kinds == (kind,)
    assert [one.kernels for one in told.all] == [4] * 3


@pytest.mark.parametrize("decodes", [0, 3])
def test_a_prefill_is_of_its_own_kind_also_as_the_first_or_only_step(decodes: int, tmp_path: Path) -> None:
    """It runs the kernels of the later steps, and more: a first iteration with set-up work would do the same."""
    events = [*served([PREFILL, *[DECODE] * decodes], []), *launched(9000, 50, 3.0, "more", pid=7, wait=60)]
    told, section, _ = analysed(tmp_path, events)
    assert told.kinds == ("prefill bs=2", "decode bs=8")[: 1 + bool(decodes)]
    assert not told.cold
    assert told.kinds[told.kind] in section.verdict


def test_many_kinds_are_summed_by_phase_and_the_time_between_steps_is_said(tmp_path: Path) -> None:
    """A step ends with its mark or its last kernel: 70 us after its begin. So 930 of each 1000 us are idle."""
    marks = [PREFILL, *(f"step[DECODE bs={batch}]" for batch in (9, 11, 10, 8, 9))]
    _, section, between = analysed(tmp_path, served(marks, []))
    assert between == pytest.approx(5 * 930 / (5 * 1000 + 70), rel=1e-6)
    assert text._steps(section) == (
        "idle between steps 91.7 %; decode, batch 8 to 11: 0.070 ms per step, 5 steps; "
        "prefill, batch 2: 0.070 ms per step, 1 step"
    )
    assert [(kind.batch, kind.steps) for kind in section.steps if kind.phase == "decode"] == [
        (9, 2), (8, 1), (10, 1), (11, 1)
    ]  # fmt: skip
    _, section, between = analysed(tmp_path, served([f"ProfilerStep#{number}" for number in range(3, 7)], []))
    assert between is None
    assert not section.between


def test_json_has_the_kinds_of_the_text(tmp_path: Path) -> None:
    """Each kind, the sums by phase, and the idle time between steps: the numbers of the line `steps`."""
    import jsonschema

    marks = [
        "step[EXTEND bs=2 toks=90]",
        "step[EXTEND bs=3 toks=110]",
        *(f"step[DECODE bs={batch}]" for batch in (9, 8, 9)),
    ]
    path = kineto_file(tmp_path, served(marks, []))
    document = json_of("report", path, "--format", "json")
    jsonschema.validate(document, orjson.loads((ROOT / "docs" / "report.schema.json").read_bytes()))
    (run,) = document["runs"]
    mean = {"step_ns": 70_000, "kernel_ns": 40_000, "kernels": 4.0}
    decode = {"phase": "decode", "tokens": None, **mean}
    prefill = {"phase": "prefill", "is_in_means": False, **mean}
    assert run["steps_by_kind"] == [
        {**decode, "name": "decode, batch 9", "batch": 9, "most_batch": 9, "steps": 2, "is_in_means": True},
        {**decode, "name": "decode, batch 8", "batch": 8, "most_batch": 8, "steps": 1, "is_in_means": False},
        {**prefill, "name": "prefill, batch 2", "batch": 2, "most_batch": 2, "steps": 1, "tokens": 90},
        {**prefill, "name": "prefill, batch 3", "batch": 3, "most_batch": 3, "steps": 1, "tokens": 110},
    ]
    assert run["steps_by_phase"] == [
        {**decode, "name": "decode, batch 8 to 9", "batch": 8, "most_batch": 9, "steps": 3, "is_in_means": True},
        {**prefill, "name": "prefill, batch 2 to 3", "batch": 2, "most_batch": 3, "steps": 2, "tokens": 200},
    ]
    assert run["idle_between_steps_percent"] == pytest.approx(100 * 4 * 930 / (4 * 1000 + 70), abs=0.001)
    said = " ".join(printed("report", path, "-q").split())
    for kind in run["steps_by_phase"]:
        assert f"{kind['name']}: 0.070 ms per step, {kind['steps']} steps" in said
    assert f"idle between steps {run['idle_between_steps_percent']:.1f} %" in said


def test_a_run_without_an_engine_has_no_kinds_in_json(tmp_path: Path) -> None:
    path = kineto_file(tmp_path, served([f"ProfilerStep#{number}" for number in range(3, 7)], []))
    (run,) = json_of("report", path, "--format", "json")["runs"]
    assert (run["steps_by_kind"], run["steps_by_phase"], run["idle_between_steps_percent"]) == ([], [], None)


@pytest.mark.parametrize("digits", [12, 13, 18, 19, 40, 300])
@pytest.mark.parametrize(
    "mark",
    [
        "step[EXTEND bs={0} toks={0}]",
        "execute_context_{0}(sq{0}sk1)_generation_{0}(sq{0})",
        "execute_new_{0}_cached_{0}",
        "execute_{0}_context_{0}(0)_generation_{0}(0)",
        "prefill[bs={0} tok={0} d=1]",
    ],
)
def test_numbers_of_any_length_in_a_mark_are_no_fault(mark: str, digits: int, tmp_path: Path) -> None:
    """Larger than a whole number of JSON or SQL can be, by themselves or summed over the steps."""
    path = kineto_file(tmp_path, served([mark.format("9" * digits)] * 12, []))
    for command in (("report", "--format", "json"), ("report",), ("report", "--format", "html")):
        assert invoked(*command, str(path), "-q").exit_code == 0
    tokens = {kind["tokens"] for kind in json_of("report", path, "--format", "json")["runs"][0]["steps_by_kind"]}
    assert all(number is None or 100_000 * number < 1 << 63 for number in tokens)
