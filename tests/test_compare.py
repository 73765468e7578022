"""Two runs side by side: matching by what is computed, verdicts by runs, causes, gates, bases, what a side may be."""

from __future__ import annotations

import copy
import gzip
import html
import itertools
import json
import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace import convert
from mio2trace.analysis import AnalysisOptions, Run, analyse
from mio2trace.answer.content import is_product
from mio2trace.comparing import Compared, Comparison, Part, RunRecord, Side, compare
from mio2trace.comparing import sides as bases
from mio2trace.comparing import text as texts
from mio2trace.comparing.record import CUT, Facts, Inside, Rank, StepDoubt, collect, condensed, cut, facts, mean_of
from mio2trace.comparing.statistics import _apart, _medians, separated, verdict
from mio2trace.comparing.text import block, change, decision, document, headline, label, page, seen
from mio2trace.model.miopen import Message, MiopenLog
from mio2trace.notes import InputError, Notes
from mio2trace.outgoing import markdown_text
from tests.commands import invoked, stderr_of
from tests.conftest import ROOT, shared_folder
from tests.kineto_files import kineto_file, row
from tests.made_up_runs import ALEXNET, base, largest, noisy, recorded, renamed, slower
from tests.made_up_runs import compare as run
from tests.own_traces import resealed
from tests.synthetic_run import MS, Kernel, Layer
from tests.test_compare_picture import made

CAFFE = ROOT / "traces" / "alexnet-b1-train"
TWINS = shared_folder() / "samples" / "rocm-twins"
SETS = shared_folder() / "samples" / "miopen-opencl"
ITERATIONS = [SETS / "m290-alexnet-infer-10it" / name for name in ("run.log", "prof.json")]


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return recorded()


def said(comparison: Comparison, *kinds: str) -> dict[str, tuple[str, str]]:
    """Name, verdict and cause of all that is said to have changed."""
    return {
        row.name: (row.word, row.cause)
        for row in comparison.rows
        if row.kind in kinds and (row.word not in ("~", "maybe slower", "maybe faster") or row.cause)
    }


# ---- records


@pytest.mark.parametrize(
    "files",
    [ALEXNET, ALEXNET[1:], pytest.param(ITERATIONS, marks=pytest.mark.shared)],
    ids=["with a log", "alone", "nine iterations, with searches before them"],
)
def test_the_numbers_are_those_of_the_report(files: Sequence[Path]) -> None:
    """Of problems, layers, searches and iterations; the parts hold every nanosecond of a steady iteration."""
    made, steady = recorded(*files), analyse(files).run.measures[0].steady
    assert sum(part.mean_ns for part in made.parts if part.kind != "layer") == pytest.approx(made.mean_ns, abs=1)
    assert made.samples_ns == condensed(steady.samples_ns)
    assert (made.mean_ns, made.find_ns) == (steady.mean_ns, steady.total.find_ns)
    assert made.first_ns == (steady.first_ns if files is ITERATIONS else None)
    problems = {part.name: (part.samples_ns, part.mean_ns, part.calls) for part in made.parts if part.kind == "problem"}
    assert problems == {
        row.key: (condensed(row.per_iteration_ns), row.mean_ns, row.calls_per_iteration)
        for row in steady.problems
        if row.cost.kernels
    }
    layers = {part.name: part.mean_ns for part in made.parts if part.kind == "layer"}
    assert layers == {f"{row.key[1]} {row.key[2]}": row.mean_ns for row in steady.layers if row.cost.kernels}


def test_many_samples_are_quantiles_with_the_exact_median() -> None:
    assert condensed([3, 1, 2]) == (1, 2, 3)
    assert condensed(range(101)) == (0, 12.5, 25, 37.5, 50, 62.5, 75, 87.5, 100)


def test_versions_and_variables_of_the_log_are_differences() -> None:
    """MIOpen's version is not HIP's, which stands before it; what only one side tells is no difference."""

    def side(**texts: str) -> Side:
        messages = tuple(Message(0, 1, "Info", "", text, kind) for kind, text in texts.items())
        told = facts(Run(name="run", inputs=(), libraries=(MiopenLog(source=0, records=messages),)))
        run = RunRecord(name="a", iterations=1, samples_ns=(1,), mean_ns=1, facts=told)
        return Side(name="a", runs=(run,))

    version = "ROCm MD version AMDHSA_COv3, HIP version {}, MIOpen version {}"
    mode = "MIOPEN_FIND_MODE = {}"
    old = side(version=version.format("6.4.50101", "3.4.1.76e3"), environment=mode.format("DYNAMIC_HYBRID(5)"))
    new = side(version=version.format("7.2.26015", "3.5.1.5b51"), environment=mode.format("NORMAL(1)"))
    assert Comparison(old, new).differs == (
        "MIOpen 3.4.1.76e3 -> 3.5.1.5b51",
        "HIP 6.4.50101 -> 7.2.26015",
        "MIOPEN_FIND_MODE DYNAMIC_HYBRID(5) -> NORMAL(1)",
    )
    assert Comparison(old, side()).differs == ()


def test_the_number_of_an_agent_is_no_device() -> None:
    """That is what rocprofv3's tables name it by."""
    assert [is_product(name) for name in ("AMD Instinct MI300X", "Agent 2", "GPU 0", "")] == [True, False, False, False]


def test_kinds_of_files_are_a_difference() -> None:
    """Each kind records other things; a log on one side only shows in the layers."""

    def side(*formats: str) -> Side:
        told = Facts(inputs=tuple((form, f"hash of {form}") for form in formats))
        return Side(name="a", runs=(RunRecord(name="a", iterations=1, samples_ns=(1,), mean_ns=1, facts=told),))

    same = "1 input file is the same on both sides"
    assert Comparison(side("Kineto", "log"), side("rocpd", "log")).differs == ("files Kineto -> rocpd", same)
    assert Comparison(side("Kineto", "log"), side("Kineto")).differs == (same,)


# ---- verdicts


@given(
    st.lists(st.lists(st.integers(1, 10**9), min_size=1, max_size=9), min_size=1, max_size=6),
    st.lists(st.lists(st.integers(1, 10**9), min_size=1, max_size=9), min_size=1, max_size=6),
)
def test_the_other_way_round_the_other_verdict(a: list[list[int]], b: list[list[int]]) -> None:
    """Slower one way is faster the other way; the same side twice has not changed; few runs decide nothing."""
    opposite = {"slower": "faster", "faster": "slower", "maybe slower": "maybe faster", "maybe faster": "maybe slower"}
    there, back = verdict(a, b), verdict(b, a)
    if not {there.word, back.word} & {"~"}:
        assert there.word == opposite[back.word]
    assert verdict(a, a).word == "~"
    if min(len(a), len(b)) < 3:
        assert there.word not in ("slower", "faster")


def test_three_runs_decide_ten_percent_and_five_runs_five() -> None:
    def runs(*medians: int) -> list[list[int]]:
        return [[median] for median in medians]

    assert verdict(runs(100, 101, 102), runs(112, 113, 114)).word == "slower"
    assert verdict(runs(112, 113, 114), runs(100, 101, 102)).word == "faster"
    few = verdict(runs(100, 101, 102), runs(108, 108, 109))
    assert (few.word, few.runs_needed) == ("maybe slower", 5)
    assert verdict(runs(*[100] * 5), runs(*[107] * 5)).word == "slower"
    assert verdict(runs(*[100] * 5), runs(*[104] * 5)).word == "~"
    assert verdict(runs(100, 101, 102), runs(102, 130, 140)).word == "~"  # they touch
    one = verdict(runs(100), runs(200))
    assert (one.word, one.ratio, one.low, one.high, one.runs_needed) == ("maybe slower", 2, None, None, 3)
    assert verdict([[0]], [[5]]).ratio is None


@pytest.mark.parametrize("count", range(3, 9))
def test_equal_sides_are_apart_by_chance_as_often_as_the_rule_says(count: int) -> None:
    """Of all ways to deal ranks to two sides: one of 20 with 3 runs, of 252 with 5; at most one of 200 with 8."""
    dealt = [*itertools.combinations(range(2 * count), count)]
    apart = sum(_apart([*set(range(2 * count)) - {*slow}], slow)[0] > 0 for slow in dealt)
    assert apart == 1 if count < 8 else 1 < apart <= len(dealt) / 190


def test_one_slow_run_of_many_hides_no_change() -> None:
    """Throttled runs of A: 1 of 8, 2 of 12. With 7 runs or fewer all must be slower."""
    for slow, count in ((1, 8), (2, 12), (24, 100)):
        a, b = [[130]] * slow + [[100]] * (count - slow), [[115]] * count
        assert (verdict(a, b).word, verdict(b, a).word) == ("slower", "faster")
        assert separated(a, b)
        assert verdict([[130], *a], b).word == "~"
    assert verdict([[130]] + [[100]] * 6, [[115]] * 7).word == "~"


def test_a_part_is_decided_only_beyond_the_scatter_of_its_runs() -> None:
    """There are many parts, so some are separated by chance."""
    a, b = [[90], [100], [110]], [[120], [125], [130]]
    assert verdict(a, b).word == "slower"
    part = verdict(a, b, is_part=True)
    assert (part.word, part.runs_needed) == ("maybe slower", 5)
    assert verdict(a, [[131], [132], [133]], is_part=True).word == "slower"
    four = [*a, [100]], [[121], [125], [125], [130]]
    assert verdict(*four, is_part=True).word == "slower"
    five = verdict([*a, [95], [105]], [[114], [115], [116], [117], [118]], is_part=True)
    assert (five.word, five.runs_needed) == ("maybe slower", 10)
    assert verdict([*a, [95], [105]], [[116], [117], [118], [119], [120]], is_part=True).word == "slower"


@pytest.mark.parametrize("count", range(1, 7))
def test_medians_of_samples_drawn_again_are_as_likely_as_counted_of_every_way_to_draw_them(count: int) -> None:
    ways = map(sorted, itertools.product(range(count), repeat=count))
    counted = Counter((ordered[(count - 1) // 2], ordered[count // 2]) for ordered in ways)
    likely = {(low, high): weight * count**count for low, high, weight in _medians(count)}
    assert likely == pytest.approx(dict(counted))


# ---- made-up changes in a real run


def test_a_layer_that_was_inserted(record: RunRecord) -> None:
    """Even where all that follow got another number in their name."""
    replace = msgspec.structs.replace
    layers = sorted((part for part in record.parts if part.kind == "layer"), key=lambda part: part.place)
    at = layers[3].place
    new = replace(layers[3], name="extra forward", like="forward lrn Nx7x7x7", place=at)
    moved = {part: f"{part.name} (moved)" for part in layers if part.place >= at}
    parts = [replace(part, place=part.place + 1, name=moved[part]) if part in moved else part for part in record.parts]
    comparison = Comparison(noisy(record, 3, 1), noisy(replace(record, parts=(*parts, new)), 3, 2))
    words = said(comparison, "layer")
    assert words.pop("extra forward") == ("only in B", "")
    assert {word for word, _ in words.values()} <= {"~", "maybe slower", "maybe faster"}
    renamed = {part.name: f"renamed: {name}" for part, name in moved.items() if part.like}
    assert {name: cause for name, (_, cause) in words.items() if name in renamed} == renamed


def test_kernels_of_most_of_the_time_that_were_renamed() -> None:
    """Where most of the time has no name in common nothing is guessed."""
    without_log = recorded(*ALEXNET[1:])
    first = largest(without_log, "kernel")
    assert first.mean_ns > without_log.mean_ns / 2
    comparison = Comparison(noisy(without_log, 3, 1), noisy(without_log, 3, 2, renamed(first.name)))
    assert said(comparison, "kernel") == {first.name: ("only in A", ""), "new_name": ("only in B", "")}


# ---- real pairs


def test_no_false_alarm_on_unchanged_gpus(shared: Path) -> None:
    """Every ordered pair of repetitions of records of a Mali T860 and a Tegra X1 passes the gate of 5 %, parts need
    more runs; three runs a side, drawn from the repetitions, pass both. What CPUs measured flips by half."""
    folders = ("ck-caffe-firefly-rk3399", "ck-caffe-nvidia-tx1")
    paths = sorted(path for name in folders for path in (shared / "samples" / "ck" / name).rglob("ckp-*.0001.json"))
    random, pairs = Random(17), 0
    for path in paths:
        runs = analyse([path], AnalysisOptions(repetition="every")).runs
        records = [made for run in runs if (made := collect(run, Notes())) is not None]
        assert len(records) == 3
        for first, second in itertools.permutations(records, 2):
            pairs += 1
            comparison = Comparison(Side(name="a", runs=(first,)), Side(name="b", runs=(second,)))
            assert comparison.failures(0.05, None) == (), path
            with pytest.raises(ValueError, match="1 run per side cannot decide on problems"):
                comparison.failures(None, 0.10)
            assert not {row.word for row in comparison.rows} & {"slower", "faster"}
        a, b = (Side(name=name, runs=tuple(random.choices(records, k=3))) for name in "ab")
        assert Comparison(a, b).failures(0.05, 0.10) == (), path
    assert pairs == 42


@pytest.mark.shared
def test_two_versions_of_miopen() -> None:
    """The same net by 2.9.0 and 1.2.1: each problem is matched, or what is computed in its layer instead is said."""
    comparison = compare(SETS / "m290-alexnet-infer-10it", SETS / "m121-alexnet-infer-interleaved")
    problems = [row for row in comparison.rows if row.kind == "problem"]
    assert len(problems) > 20
    alone = [row for row in problems if row.word in ("only in A", "only in B")]
    assert len(alone) == 4
    assert all(": there " in row.cause for row in alone)
    layers = [row for row in comparison.rows if row.kind == "layer"]
    assert {row.word for row in layers} <= {"~", "maybe slower", "maybe faster"}


def test_a_run_and_itself_and_its_base(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    assert stderr_of(run("--save", path, ",".join(map(str, ALEXNET))), 0).endswith(f"\nwrote {path}\n")
    assert path.stat().st_size <= bases.LARGEST
    assert not [word for word in ("run.log", "prof.json", "traces") if word in path.read_text()]
    for other in (ALEXNET, [path]):
        comparison = compare(ALEXNET, other)
        rows = (*comparison.rows, *comparison.once, comparison.iteration)
        assert {(row.word, row.cause, row.ratio) for row in rows} == {("~", "", 1.0)}
        assert all(row.a_ns == row.b_ns for row in rows)


def test_a_large_base_keeps_its_size_and_its_sum(tmp_path: Path, record: RunRecord) -> None:
    replace = msgspec.structs.replace
    many = []
    for number, part in itertools.product(range(40), record.parts):
        ns = part.mean_ns / (number + 1)
        many += [replace(part, name=f"{part.name} {number}", mean_ns=ns, samples_ns=(ns,))] * (part.kind == "problem")
    whole = sum(part.mean_ns for part in many)
    big = Side(name="big", runs=(replace(record, parts=tuple(many), mean_ns=whole, samples_ns=(whole,)),))
    path = base(tmp_path, "big", big)
    assert path.stat().st_size <= bases.LARGEST
    kept = bases.read_base(path)
    assert sum(part.mean_ns for part in kept.runs[0].parts) + kept.runs[0].others_ns == pytest.approx(whole)
    comparison = Comparison(big, kept)
    assert {row.word for row in comparison.rows} == {"~"}
    (others,) = (row for row in comparison.rows if row.name == "(smaller parts together)")
    assert others.ratio == pytest.approx(1, rel=0.01)


def test_a_large_base_keeps_equal_parts_of_each_run_and_says_what_it_lacks(tmp_path: Path, record: RunRecord) -> None:
    """Three runs with a part that grows from the smallest to the largest: judged by all runs or by none."""
    replace = msgspec.structs.replace
    model = next(part for part in record.parts if part.kind == "problem")

    def made(run: int, factor: float) -> RunRecord:
        times = {f"part {number}": 1_000_000 / (1 + number) ** 0.3 for number in range(200)}
        times |= {"grows": 5_000 * 100.0**run, "slow": 900_000 * factor}
        parts = [replace(model, name=name, mean_ns=ns, samples_ns=(ns,)) for name, ns in times.items()]
        whole = sum(times.values())
        return replace(record, parts=tuple(parts), mean_ns=whole, samples_ns=(whole,))

    sides = [
        Side(name=name, runs=tuple(made(run, factor) for run in range(3))) for name, factor in (("a", 1), ("b", 9))
    ]
    path = base(tmp_path, "a", sides[0])
    kept = bases.read_base(path)
    names = [{part.name for part in run.parts} for run in kept.runs]
    assert names[0] == names[1] == names[2] > {"grows", "slow"}
    assert len(names[0]) < 202
    comparison = Comparison(kept, sides[1])
    slow = next(row for row in comparison.rows if row.name == "slow")
    assert (slow.word, slow.runs, slow.cause) == ("slower", (3, 3), "")
    assert comparison.uncompared is not None
    most, together = comparison.uncompared
    left = [run.mean_ns - sum(part.mean_ns for part in run.parts) for run in kept.runs]
    assert together == pytest.approx(sum(left) / sum(run.mean_ns for run in kept.runs))
    smallest = min(part.mean_ns for run in kept.runs for part in run.parts if part.name != "grows")
    assert 0 < most <= 3 * smallest / sum(run.mean_ns for run in kept.runs)
    assert any(line.startswith("a base keeps no parts below ") for line in texts.tally(comparison))
    assert Comparison(sides[0], sides[1]).uncompared is None
    told = stderr_of(run(path, base(tmp_path, "b", sides[1]), "--fail-above", "problem:10%"), 3)
    assert ("--fail-above problem does not see them" in told) == (most > 0.01)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"mio2trace_base":1', "no base of mio2trace"),
        ('{"mio2trace_base":2,"generator":"x","runs":[]}', "base of version 2; expected 1"),
        ('{"mio2trace_base":1,"generator":"x","runs":[]}', "a base without runs"),
    ],
)
def test_a_base_that_is_none_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "base.json").write_text(text)
    told = stderr_of(run(tmp_path / "base.json", tmp_path / "base.json"), 1)
    assert message in told
    assert len(told.splitlines()) == 1


# ---- the command


@pytest.fixture
def folders(tmp_path: Path, record: RunRecord) -> Sequence[Path]:
    """Bases of three sides: as it is, the same again, 60 % slower in its largest problem."""
    slow = slower(largest(record).name, 1.6)
    sides = {"good": noisy(record, 3, 1), "same": noisy(record, 3, 2), "bad": noisy(record, 3, 3, slow)}
    return [base(tmp_path, name, side) for name, side in sides.items()]


def test_gates(folders: Sequence[Path], record: RunRecord) -> None:
    """0, 3 for a regression, 2 where it cannot be decided."""
    good, same, bad = folders
    assert run(good, same, "--fail-above", "5%", "--fail-above", "problem:10%").exit_code == 0
    said = stderr_of(run(good, bad, "--fail-above", "5%", "--fail-above", "problem:10%"), 3)
    assert f"slower: {largest(record).name}: 1." in said
    assert run(bad, good, "--fail-above", "5%", "--fail-above", "problem:10%").exit_code == 0
    one = ",".join(map(str, ALEXNET))
    said = stderr_of(run(one, one, "--fail-above", "problem:10%"), 2)
    assert "1 run per side cannot decide on problems; 3 can" in said
    slow = base(good.parent, "slow", noisy(record, 1, 4, slower(largest(record).name, 3)))
    done = run(good, slow, "--fail-above", "5%")
    assert done.exit_code == 3
    assert "an alarm: fewer than 3 runs per side cannot decide" in done.stderr
    for wrong in ("5", "layer:5%", "x%", "nan%", "-1%"):
        assert run(good, same, "--fail-above", wrong).exit_code == 2
    for first, second in (("5%", "90%"), ("90%", "total:5%"), ("step:5%", "step:90%"), ("problem:5%", "problem:5%")):
        assert "two limits of one kind" in stderr_of(run(good, slow, "--fail-above", first, "--fail-above", second), 2)
    assert run(good, "--save", good.parent / "again.json", "--fail-above", "5%").exit_code == 2


def test_a_part_that_is_hardly_any_fails_no_gate(record: RunRecord) -> None:
    """A hundredth of an iteration does, once it takes as much; the verdict is said of both."""
    parts = [part for part in record.parts if part.kind == "problem"]
    small = max((part for part in parts if part.mean_ns < 0.004 * record.mean_ns), key=lambda part: part.mean_ns)
    for factor, fails in ((1.5, False), (6.0, True)):
        comparison = Comparison(noisy(record, 3, 1), noisy(record, 3, 2, slower(small.name, factor)))
        assert said(comparison, "problem") == {small.name: ("slower", "")}
        assert bool(comparison.failures(None, 0.10)) == fails


def test_forms_and_many_sides(folders: Sequence[Path]) -> None:
    """Two sides are rows with verdicts, more are a column each."""
    good, same, bad = folders
    document = json.loads(run(good, bad, "--all", "--format", "json").stdout)
    rows = document["rows"]
    assert {row["part"] for row in rows} >= {"problem", "layer", "iteration"}
    assert rows[0]["name"] == "iteration"
    assert sum(row["a_ms"] for row in rows if row["part"] in ("problem", "kernel")) == pytest.approx(
        rows[0]["a_ms"], rel=0.02
    )
    verdicts = [one["verdict"] for one in json.loads(run(good, same, bad, "--format", "json").stdout)]
    assert verdicts == ["no change shown", "slower"]
    wide = [json.loads(line) for line in run(good, same, bad, "--format", "jsonl").stdout.splitlines()]
    assert {"good_ms", "same_ms", "bad_ms", "ratio"} <= wide[0].keys()
    assert (wide[0]["same_verdict"], wide[0]["verdict"]) == ("~", "slower")
    turned = json.loads(run(good, bad, same, "--format", "jsonl").stdout.splitlines()[0])
    assert (turned["bad_verdict"], turned["verdict"]) == ("slower", "~")
    assert (turned["bad_ratio"], turned["ratio"]) == (wide[0]["ratio"], wide[0]["same_ratio"])
    assert run(good).exit_code == 2
    assert run(good, same, "--columns", "nope").exit_code == 2
    assert len(stderr_of(run(good, ROOT / "LICENSE"), 1).splitlines()) == 1


def test_the_times_of_both_sides_have_the_same_digits(folders: Sequence[Path]) -> None:
    for sides, more in ((folders[::2], ()), (folders[:2], ("--all",)), (folders, ("--all", "--format", "table"))):
        lines = run(*sides, *more).stdout.splitlines()
        conv = next(line for line in lines if "Conv fwd 1x3x99x99" in line)
        digits = {len(number) for number in re.findall(r"(?<= )\d+\.(\d{2,})(?= |$)", conv)}
        assert len(digits) == 1, conv


def test_a_page_by_the_suffix(folders: Sequence[Path], tmp_path: Path, record: RunRecord) -> None:
    """``-o out.html`` is one, of two sides or more; the gate and the lines are those of the table."""
    good, same, bad = folders
    page = tmp_path / "page.html"
    done = run(good, same, bad, "-o", page, "--fail-above", "5%")
    assert done.exit_code == 3
    assert "bad: SLOWER: +" in done.stdout
    assert f"wrote {page}" in done.stderr.splitlines()
    text = page.read_text("utf-8")
    assert re.findall(r"<h2 id[^>]*>(.*?)</h2>", text) == ["good -&gt; same", "good -&gt; bad"]
    assert html.escape(largest(record).name) in text
    for form, begins in (("md", "**SLOWER**: +"), ("csv", "part,"), ("json", "{")):
        path = tmp_path / f"table.{form}"
        assert run(good, bad, "-o", path).exit_code == 0
        assert path.read_text("utf-8").startswith(begins)


@pytest.mark.parametrize("option", ["-o", "--picture", "--save"])
def test_error_an_input_is_not_overwritten(option: str, tmp_path: Path) -> None:
    """Not by any output, wherever in a side it is named."""
    path = Path(shutil.copyfile(ALEXNET[1], tmp_path / "run.json"))
    side = f"{ALEXNET[0]},{path}"
    assert "is also an input" in stderr_of(run(*[side] * (1 if option == "--save" else 2), option, path), 2)
    assert path.read_bytes() == ALEXNET[1].read_bytes()


def test_a_profile_is_not_compared_with_printed_times() -> None:
    said = stderr_of(run(CAFFE / "run.log", f"{CAFFE / 'run.log'},{CAFFE / 'prof.json.gz'}"), 1)
    assert "printed layer times" in said


# -- What it says first: the verdict in every form, what was seen, only what changed -----------------------------------


WINOGRAD = "miopenSp3AsmConv_v21_1_2_gfx9_fp16_f2x3"
TENSILE = "Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT{}_MI32x32x1"


def of_one_kernel(factor: float, name: str = WINOGRAD) -> Callable[[Part], Part]:
    """All convolutions run one kernel, and take ``factor`` times as long."""

    def changed(part: Part) -> Part:
        if part.kind != "problem" or part.primitive != "conv":
            return part
        kernel = Inside(name=name, role="main", count=part.calls, ns=part.mean_ns)
        return msgspec.structs.replace(part, solvers=(), mean_ns=factor * part.mean_ns, kernels=(kernel,))

    return changed


def sampled(*runs: Sequence[float]) -> Side:
    """Of each run a kernel, with these samples."""
    made = []
    for ns in runs:
        part = Part(kind="kernel", name="k", samples_ns=tuple(ns), mean_ns=sum(ns) / len(ns), calls=1)
        record = RunRecord(name="r", iterations=1, samples_ns=part.samples_ns, mean_ns=part.mean_ns, parts=(part,))
        made.append(record)
    return Side(name="s", runs=tuple(made))


samples = st.lists(st.lists(st.floats(1, 100), min_size=1, max_size=5), min_size=1, max_size=6)


@given(samples, samples)
def test_no_verdict_contradicts_its_interval(a: list[list[float]], b: list[list[float]]) -> None:
    """Slower and faster exclude no change; what is said beside a change is never that there is none."""
    comparison = Comparison(sampled(*a), sampled(*b))
    row, said = comparison.iteration, headline(comparison)
    assert row.ratio is not None
    if row.word == "slower":
        assert row.low is None or row.low > 1
    if row.word == "faster":
        assert row.high is None or row.high < 1
    if label(row) == "NO CHANGE SHOWN":
        assert row.ratio == 1 or (
            row.low is not None and row.high is not None and 0.95 < row.low <= 1 <= row.high < 1.06
        )
    assert said.startswith(label(row))
    assert change(row.ratio) in said
    assert texts.interval(row) in said


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ((100, 100, 101), (120, 121, 122), "SLOWER: +21.0 % (90 %: 19 to 22 %); "),
        ((120, 121, 122), (100, 100, 101), "FASTER: -17.4 % "),
        ((100, 100, 101), (104, 104.5, 105),
         "NOT DECIDED: +4.5 % (90 %: 3 to 5 %), below the 10 % that 3 runs can decide; "),
        ((100, 100, 101), (107, 108, 109),
         "NOT DECIDED: +8.0 % (90 %: 6 to 9 %), below the 10 % that 3 runs can decide; "),
        ((100,), (200,), "NOT DECIDED: 2.00 x, 1 run per side cannot decide, 3 can; "),
        ((100, 100, 101), (100, 100.5, 101), "NO CHANGE SHOWN: +0.5 % (90 %: -1 to 1 %); "),
        ((100, 120, 140), (110, 130, 150),
         "NOT DECIDED: +8.3 % (90 %: -21 to 50 %), the interval includes no change; "),
        ((100,), (100,), "NO CHANGE SHOWN: +0.0 %; "),
        ((100,) * 5, (110,) * 5, "SLOWER: +10.0 % (95 %: 10.0 to 10.0 %); "),
    ],
)  # fmt: skip
def test_the_headline(a: tuple[float, ...], b: tuple[float, ...], said: str) -> None:
    assert headline(Comparison(sampled(*zip(a)), sampled(*zip(b)))).startswith(said)


def test_the_interval_of_one_run_says_that_it_is_of_that_run() -> None:
    said = headline(Comparison(sampled((100, 101, 102)), sampled((120, 121, 122))))
    assert said.startswith("NOT DECIDED: +19.8 % (within the runs: 18 to 22 %), 1 run per side cannot decide")


# -- the step beside the kernels ---------------------------------------------------------------------------------------


def stepped(name: str, *steps: Sequence[float], doubts: tuple[StepDoubt, ...] = ()) -> Side:
    """A run of equal kernels for each sequence of lengths of steps in ms, the rest of which is idle time."""
    runs = []
    for lengths in steps:
        run = sampled([50 * MS] * len(lengths)).runs[0]
        ns = tuple(length * MS for length in lengths)
        idle = tuple(length - 50 * MS for length in ns)
        steps_ns = (("step", ns), ("compute", (50.0 * MS,) * len(ns)), ("idle", idle))
        runs.append(msgspec.structs.replace(run, iterations=len(ns), steps=steps_ns, step_doubts=doubts))
    return Side(name=name, runs=tuple(runs))


BEFORE = ((100, 101, 102), (100, 102, 103), (101, 101, 102))
AFTER = ((80, 81, 82), (80, 82, 83), (81, 81, 82))
COLD = "both: the only step may be cold"
STACKS = "stacks were recorded, which slows the host"


@pytest.mark.parametrize(
    ("a", "b", "word", "said"),
    [
        (stepped("a", *BEFORE), stepped("b", *AFTER), "faster", "step FASTER: -19.8 % (90 %: -21 to -19 %), 101.0"),
        (stepped("a", *AFTER), stepped("b", *BEFORE), "slower", "step SLOWER: +24.7 % (90 %: 23 to 26 %), 81.00"),
        (stepped("a", BEFORE[0]), stepped("b", AFTER[0]), "not decided", ", 1 run per side cannot decide, 3 can, "),
        (stepped("a", *BEFORE), stepped("b", *BEFORE), "no change shown", "step NO CHANGE SHOWN: +0.0 % "),
        (stepped("a", *BEFORE, doubts=("stacks",)), stepped("b", *AFTER), "not decided", f", A: {STACKS}, 101.0"),
        (stepped("a", *BEFORE), stepped("b", *AFTER, doubts=("counters",)), "not decided",
         ", B: hardware counters were recorded, which makes gaps, 101.0"),
        (stepped("a", *BEFORE, doubts=("stacks",)), stepped("b", *AFTER, doubts=("stacks",)), "faster",
         f"; both: {STACKS}"),
        (stepped("a", (100,), doubts=("cold",)), stepped("b", (80,), doubts=("cold",)), "not decided", f"; {COLD}"),
        (stepped("a", *BEFORE, doubts=("repetition",)), stepped("b", *AFTER), "not decided",
         ", A: no mark says where a step ends, only the repetition of kernels, 101.0"),
        (stepped("a", *BEFORE, doubts=("repetition",)), stepped("b", *AFTER, doubts=("repetition",)), "faster",
         "step FASTER: -19.8 % (90 %: -21 to -19 %), 101.0 ms -> 81.00 ms"),
    ],
)  # fmt: skip
def test_the_step_has_a_verdict_beside_that_of_the_kernels(a: Side, b: Side, word: str, said: str) -> None:
    """Equal kernels are no change of them, however long the step is; every form shows both verdicts."""
    comparison = Comparison(a, b)
    written = document(comparison)
    assert written["verdict"] == "no change shown"
    assert written["step_verdict"] == word
    assert said in written["step_headline"]
    assert written["headline"].endswith(f"; {written['step_headline']}")
    assert written["step_doubts"] == [said for _, said in comparison.doubts_of_step]
    lines = block(comparison)
    assert lines[0].startswith("NO CHANGE SHOWN")
    assert written["step_headline"] in re.sub(r"\s+", " ", " ".join(lines))
    assert not any(line.startswith("step        step") for line in lines)  # its time stands in the headline
    assert markdown_text(written["step_headline"]) in texts.comment([comparison])
    rows = {row["name"]: row["verdict"] for row in written["rows"] if row["part"] == "step"}
    assert rows["step"] == (word if word in ("faster", "slower") else rows["step"])
    assert word == "not decided" or rows["step"] in (word, "~")


def test_a_side_without_steps_has_no_verdict_on_them() -> None:
    comparison = Comparison(stepped("a", *BEFORE), sampled(*BEFORE))
    assert document(comparison)["step_verdict"] is None
    assert "step" not in headline(comparison)


def test_a_gate_for_the_step(tmp_path: Path) -> None:
    """It judges the step by the rule for the iteration; a doubt of one side makes it an alarm."""
    old, new = (base(tmp_path, name, stepped(name, *steps)) for name, steps in (("old", BEFORE), ("new", AFTER)))
    assert run(new, old, "--fail-above", "5%").exit_code == 0
    assert run(old, new, "--fail-above", "step:5%").exit_code == 0
    assert run(new, old, "--fail-above", "step:30%").exit_code == 0
    said = stderr_of(run(new, old, "--fail-above", "5%", "--fail-above", "step:5%"), 3)
    assert "slower: step: 1.247 of the first side, more than 1.050\n" in said
    doubtful = base(tmp_path, "doubtful", stepped("doubtful", *BEFORE, doubts=("stacks",)))
    assert f"(an alarm: B: {STACKS})" in stderr_of(run(new, doubtful, "--fail-above", "step:5%"), 3)
    said = stderr_of(run(new, base(tmp_path, "without", sampled(*BEFORE)), "--fail-above", "step:5%"), 2)
    assert "--fail-above step: a run does not show the length of its steps" in said


def test_doubts_of_steps_in_files(tmp_path: Path) -> None:
    """One step may be cold; Python functions are stacks; without marks kernels repeat."""
    kineto(tmp_path / "plain.json", pid=100, rank=None)
    events = json.loads((tmp_path / "plain.json").read_text())["traceEvents"]
    events.append(row("python_function", "train.py(3): step", 100, 100, 1000.0, 900, Python_id=1))
    kineto_file(tmp_path, events, "stacks.json")
    one = [event for event in events if event["ts"] < 1000 and event["cat"] != "python_function"]
    kineto_file(tmp_path, one, "one.json")
    unmarked = [event for event in events if not str(event.get("name")).startswith("ProfilerStep")]
    kineto_file(tmp_path, [event for event in unmarked if event.get("cat") != "python_function"], "unmarked.json")
    doubts = {
        name: bases.side([str(tmp_path / f"{name}.json")], bases.OPTIONS, Notes()).runs[0].step_doubts
        for name in ("plain", "stacks", "one", "unmarked")
    }
    assert doubts == {"plain": (), "stacks": ("stacks",), "one": ("cold",), "unmarked": ("repetition",)}


# -- forms -----------------------------------------------------------------------------------------------------------


def test_every_form_says_the_verdict_first(record: RunRecord, tmp_path: Path) -> None:
    a, b = noisy(record, 3, 1, of_one_kernel(1)), noisy(record, 3, 2, of_one_kernel(1.3))
    said = headline(Comparison(a, b))
    assert said.startswith("SLOWER: +")
    paths = [base(tmp_path, name, side) for name, side in (("a", a), ("b", b))]
    verdict = said.partition(";")[0]
    assert run(*paths).stdout.replace("\n", " ").startswith(verdict)
    markdown = run(*paths, "--format", "markdown").stdout
    assert markdown.replace("\\", "").startswith(verdict.replace("SLOWER", "**SLOWER**", 1))
    document = json.loads(run(*paths, "--format", "json").stdout)
    assert (document["verdict"], document["headline"]) == ("slower", said)
    assert next(iter(document)) == "schema_version"
    assert (document["a"]["runs"], document["a"]["ranks"]) == (3, [1, 1, 1])
    assert run(*paths, "-o", tmp_path / "page.html").stdout.startswith("SLOWER: +")
    assert f'<p class="verdict">{said}</p>' in html.unescape((tmp_path / "page.html").read_text("utf-8"))
    assert run(*paths, "--format", "csv").stdout.splitlines()[1].startswith("iteration,iteration,")


def test_one_cause_is_one_row(record: RunRecord) -> None:
    """Problems that run one kernel on both sides; the sums are the members'."""
    comparison = Comparison(noisy(record, 3, 1, of_one_kernel(1)), noisy(record, 3, 2, of_one_kernel(1.3)))
    (group,) = (one for one in texts.groups(comparison.rows) if one.row.kind == "problem" and one.row.word == "slower")
    assert len(group.members) == sum(part.kind == "problem" and part.primitive == "conv" for part in record.parts) > 4
    said = f"{len(group.members)} problems, all {WINOGRAD}"
    assert group.row.name == said
    assert group.row.a_ns == pytest.approx(sum(row.a_ns or 0 for row in group.members))
    assert group.row.ratio == pytest.approx(1.3, rel=0.05)
    for text in ("\n".join(block(comparison)), texts.comment([comparison]), html.unescape(page([comparison], "m"))):
        assert said[:30] in text.replace("\\", "")


def test_a_cause_shows_what_differs_between_long_names_of_kernels(record: RunRecord) -> None:
    """Tensile's names differ behind the first 40 characters. A cause without room is on lines of its own."""
    a, b = (of_one_kernel(factor, TENSILE.format(tile)) for tile, factor in (("128x256x32", 1), ("64x64x32", 1.5)))
    comparison = Comparison(noisy(record, 3, 1, a), noisy(record, 3, 2, b))
    (group,) = (one for one in texts.groups(comparison.rows) if one.row.kind == "problem" and one.row.word == "slower")
    cause = "kernels Cijk Ailk_Bljk BBS_BH MT128x256x32 -> Cijk Ailk_Bljk BBS_BH MT64x64x32"
    assert group.row.cause == cause
    lines = block(comparison)
    assert cause in " ".join(" ".join(lines).split())
    assert any(line.split()[:3] == ["slower", str(len(group.members)), "problems"] for line in lines)


@pytest.mark.parametrize(
    ("a", "b", "cause"), [("Gemm", "", ""), ("", "Gemm", ""), ("Gemm", "Direct", "solver Gemm -> Direct")]
)
def test_a_side_without_solvers_shows_no_change_of_them(record: RunRecord, a: str, b: str, cause: str) -> None:
    def solved(solver: str) -> Callable[[Part], Part]:
        return lambda part: msgspec.structs.replace(
            part, solvers=(solver,) if solver and part.kind == "problem" else ()
        )

    comparison = Comparison(noisy(record, 3, 1, solved(a)), noisy(record, 3, 2, solved(b)))
    assert {row.cause for row in comparison.rows if row.kind == "problem"} == {cause}


def test_only_what_changed_is_shown_unless_all_is_asked_for(record: RunRecord, tmp_path: Path) -> None:
    path = base(tmp_path, "a", noisy(record, 3, 1))
    short, whole = (json.loads(run(path, path, *more, "--format", "json").stdout) for more in ((), ("--all",)))
    parts = ("problem", "kernel", "layer")
    assert not [row for row in short["rows"] if row["part"] in parts]
    assert len([row for row in whole["rows"] if row["part"] in parts]) == short["unchanged_rows"] > 20
    assert len(run(path, path).stdout.splitlines()) < 10
    assert len(run(path, path, "--all").stdout.splitlines()) > short["unchanged_rows"]


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.15, 40])
@pytest.mark.parametrize("runs", [1, 3])
def test_the_answer_fits(record: RunRecord, factor: float, runs: int) -> None:
    """At most 20 lines of 78 columns, no two names alike, every change a sum of what is left out and what is shown."""
    long = "a" * 200
    a = msgspec.structs.replace(noisy(record, runs, 1), name=long + "a")
    b = msgspec.structs.replace(noisy(record, runs, 2, of_one_kernel(factor)), name=long + "b")
    comparison = Comparison(a, b)
    lines = block(comparison)
    assert len(lines) <= 20
    assert max(map(len, [*lines, *block(comparison, everything=True)])) <= 78
    names = [line[:51] for line in lines if re.search(r"\d %( \?)?$|\d x( \?)?$|new$|gone$", line)]
    assert len(set(names)) == len(names)
    sides = [line[3:] for line in lines if line.startswith(("A  ", "B  "))]
    assert len(set(sides)) == 2
    assert sides[0].partition(": ")[2].startswith(seen(a)[:20])


def test_the_name_of_a_side_gives_way_to_its_gpu(record: RunRecord) -> None:
    """`Tesla V...` tells nothing; of two long names their difference is enough."""
    device = msgspec.structs.replace(record.facts, device="AMD Instinct MI300X VF")
    sides = [
        Side(name=f"worker0.{'1' * 20}{at}.pt.trace.json.gz", runs=(msgspec.structs.replace(record, facts=device),))
        for at in "ab"
    ]
    lines = [line for line in block(Comparison(*sides)) if line.startswith(("A  ", "B  "))]
    assert [line[line.find(": 1 run") :] for line in lines] == [f": {seen(sides[0])}, AMD Instinct MI300X VF"] * 2
    assert max(map(len, lines)) <= 78
    assert len({line[3:] for line in lines}) == 2


def test_a_large_change_is_apart_from_the_time_before_it(record: RunRecord) -> None:
    """Not `56.293408.62 x ?`."""
    slow = [msgspec.structs.replace(one, samples_ns=tuple(3409 * ns for ns in one.samples_ns)) for one in record.parts]
    slower = msgspec.structs.replace(record, parts=tuple(slow))
    lines = block(Comparison(Side(name="a", runs=(record,)), Side(name="b", runs=(slower,))))
    assert any(" 3409 x" in line for line in lines)
    assert (change(3408.62), change(0.99999), change(1.00001)) == ("3409 x", "+0.0 %", "+0.0 %")


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        ((False, False), " of kernels per iteration (medians)"),
        ((True, True), " of kernels in the whole run; no iterations are known"),
        ((True, False), " of kernels per iteration; no iterations are known on side A, whose whole run counts as one"),
        ((False, True), " of kernels per iteration; no iterations are known on side B, whose whole run counts as one"),
    ],
)
def test_a_run_without_iterations_is_said_to_have_none(whole: tuple[bool, bool], said: str, record: RunRecord) -> None:
    sides = [
        Side(name=name, runs=(msgspec.structs.replace(record, whole=one),) * (1 + (whole == (False, False))))
        for name, one in zip("ab", whole, strict=True)
    ]
    assert headline(Comparison(*sides)).split(" ms", 2)[2].partition("; step")[0] == said
    assert [" of 1 iteration" in seen(side) for side in sides] == [not one for one in whole]
    made = document(Comparison(*sides))
    assert [made[name]["whole"] for name in "ab"] == [*whole]


def test_several_repetitions_are_no_iteration(record: RunRecord) -> None:
    """A marked step of two micro-batches repeats its kernels: without a mark each repetition is an iteration. If the
    marks say so, or other kernels repeat as often, the change is real."""

    def twice(part: Part) -> Part:
        return msgspec.structs.replace(part, mean_ns=2 * part.mean_ns, calls=2 * part.calls)

    again = msgspec.structs.replace(record, step_doubts=("repetition",))
    marked, single = noisy(record, 3, 1, twice), noisy(again, 3, 2)
    for sides in ((marked, single), (single, marked), (noisy(again, 3, 3, twice), single)):
        comparison = Comparison(*sides)
        assert label(comparison.iteration) == "NOT DECIDED"
        assert decision(comparison.iteration).startswith("an iteration of one side seems to be several of the other")
        assert {row.word for row in comparison.rows} == {"~"}
    assert label(Comparison(marked, noisy(record, 3, 2)).iteration) == "FASTER"
    assert label(Comparison(noisy(record, 3, 1, slower(largest(record).name, 9)), single).iteration) == "FASTER"


def test_a_whole_run_is_no_iteration(record: RunRecord, tmp_path: Path) -> None:
    """Of three iterations against one it takes three times as long, and nothing is slower."""
    a = noisy(record, 3, 1)
    whole = [
        msgspec.structs.replace(run, whole=True)
        for run in noisy(record, 3, 2, lambda part: msgspec.structs.replace(part, mean_ns=3 * part.mean_ns)).runs
    ]
    for runs in (whole, [*a.runs[:2], whole[0]]):
        comparison = Comparison(a, Side(name="b", runs=tuple(runs)))
        assert label(comparison.iteration) == "NOT DECIDED"
        assert decision(comparison.iteration) == "an iteration is compared with a whole run"
        assert {row.word for row in comparison.rows} == {"~"}
        with pytest.raises(ValueError, match="problem: an iteration is compared with a whole run"):
            comparison.failures(None, 0.10)
    old, new = base(tmp_path, "old", a), base(tmp_path, "new", Side(name="b", runs=tuple(whole)))
    assert "(an alarm: an iteration is compared with a whole run)" in stderr_of(run(old, new, "--fail-above", "5%"), 3)


def test_a_large_difference_is_shown_although_nothing_is_decided() -> None:
    comparison = Comparison(sampled([100], [130], [160]), sampled([120], [150], [190]))
    (row,) = comparison.rows
    assert row.word == "~"
    assert texts.has_changed(row)
    assert decision(row) == "the interval includes no change"
    assert any(line.startswith("not decided k") and line.endswith("?") for line in block(comparison))


# -- runs and ranks --------------------------------------------------------------------------------------------------


def kineto(path: Path, *, pid: int, rank: int | None) -> None:
    """Three steps of one kernel."""
    events = []
    for step in range(3):
        at = 1000.0 * step + pid
        events += [
            row("user_annotation", f"ProfilerStep#{step}", pid, pid, at, 900),
            row("cuda_runtime", "hipLaunchKernel", pid, pid, at + 10, 5, correlation=step + 1),
            row("kernel", "gemm", 0, 7, at + 20, 400 + pid, correlation=step + 1, device=0, stream=7),
        ]
    ranks = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 3, "backend": "nccl"}}
    kineto_file(path.parent, events, path.name, **ranks)


@pytest.mark.parametrize("ranks", [None, (0, 0, 0), (0, 1, 2)])
def test_profiles_in_a_folder_are_runs_unless_they_state_ranks(ranks: tuple[int, ...] | None, tmp_path: Path) -> None:
    folder = tmp_path / "side"
    folder.mkdir()
    for number in range(3):
        kineto(folder / f"t{number}.json", pid=100 + number, rank=None if ranks is None else ranks[number])
    shutil.copytree(folder, tmp_path / "other")
    comparison = compare(folder, tmp_path / "other")
    expected = "1 run of 3 iterations, 3 ranks" if ranks == (0, 1, 2) else "3 runs of 3 iterations, 1 rank each"
    assert seen(comparison.a) == expected
    assert expected in "\n".join(block(comparison))


# -- Changes made in a real run's files: each is found, named with its cause, and nothing else is said -----------------

LOG, PROFILE = ALEXNET

CONV1 = "Conv fwd 1x3x99x99 -> 1x16x23x23 k11x11 s4"

Calls = list[dict[str, Any]]
Edit = Callable[[Calls], None]


def written(folder: Path, edit: Edit = lambda calls: None, log: Callable[[bytes], bytes] = bytes) -> list[Path]:
    """The run's files with a change in them."""
    folder.mkdir(parents=True)
    edited = json.loads(gzip.decompress(PROFILE.read_bytes()))
    edit(edited)
    (folder / "prof.json").write_text(json.dumps(edited))
    (folder / "run.log").write_bytes(log(gzip.decompress(LOG.read_bytes())))
    return [folder / "run.log", folder / "prof.json"]


def kernels(calls: Calls, name: str = "") -> Calls:
    """The enqueues of the iteration, which are the last 29 of kernels; those of a name."""
    enqueues = [call for call in calls if call["call"] == "clEnqueueNDRangeKernel"][-29:]
    return [call for call in enqueues if call["name"] == name] if name else enqueues


def shorter(calls: Calls, part: float) -> None:
    """Each takes so much of its time."""
    for call in calls:
        times = call["profiling"]
        times["end"] = times["start"] + round((times["end"] - times["start"]) * part)


def changes(comparison: Comparison) -> dict[str, tuple[str, str]]:
    """The verdict on each kind of part, and its reason."""
    return {f"{row.kind} {row.name}": (row.word, row.cause) for row in comparison.rows if row.word != "~" or row.cause}


def test_a_kernel_that_is_slower_in_files(tmp_path: Path) -> None:
    """By 15 %, in three runs of each side: its problem and its layer, and the gate of problems."""

    def side(name: str, part: float) -> Side:
        def made(number: int) -> RunRecord:
            def edit(calls: Calls) -> None:
                shorter(kernels(calls), 0.99 + number / 200)
                shorter(kernels(calls, "MIOpenCDFGen"), part)

            return recorded(*written(tmp_path / name / str(number), edit))

        return Side(name=name, runs=tuple(map(made, range(3))))

    comparison = Comparison(side("a", 0.87), side("b", 1.0))
    assert changes(comparison) == {f"problem {CONV1}": ("slower", ""), "layer conv1 forward": ("slower", "")}
    assert [failure.name for failure in comparison.failures(None, 0.10)] == [CONV1, "conv1 forward"]


def test_a_solver_that_is_replaced_in_files(tmp_path: Path) -> None:

    def edit(calls: Calls) -> None:
        for call in kernels(calls, "MIOpenCDFGen"):
            call["name"] = "naive_conv_fwd_nchw"

    files = written(tmp_path / "b", edit, lambda log: log.replace(b"ConvOclDirectFwdGen", b"ConvDirectNaiveConvFwd"))
    assert changes(compare([LOG, PROFILE], files)) == {
        f"problem {CONV1}": ("~", "solver ConvOclDirectFwdGen -> ConvDirectNaiveConvFwd; naive now")
    }


def test_transposes_that_are_added_in_files(tmp_path: Path) -> None:
    """Two kernels with the buffers of the convolution, before it."""

    def edit(calls: Calls) -> None:
        conv = kernels(calls, "MIOpenCDFGen")[-1]
        at = calls.index(conv)
        first = at
        while calls[first - 1]["call"] == "clSetKernelArg":
            first -= 1
        times = conv["profiling"]
        step = (times["start"] - times["queued"]) // 8
        own = calls[first : at + 1]
        for number in range(2):
            more = copy.deepcopy(own)
            enqueue = more[-1]
            enqueue["name"] = "batched_transpose_32x32_dword"
            begin = times["queued"] + (3 * number + 1) * step
            enqueue["profiling"] = {
                "queued": begin - 2, "submit": begin - 1, "start": begin, "end": begin + step
            }  # fmt: skip
            calls[first:first] = more
            first += len(more)
        times["queued"] = times["submit"] = times["start"] - 1

    comparison = compare([LOG, PROFILE], written(tmp_path / "b", edit))
    assert {name: cause for name, (_, cause) in changes(comparison).items() if cause} == {
        f"problem {CONV1}": "+2 transposes"
    }


@pytest.mark.parametrize("with_log", [True, False])
def test_kernels_that_are_renamed_in_files(tmp_path: Path, with_log: bool) -> None:
    """Inside of its problem a kernel's name is a remark, without a log it is the part that was renamed."""

    def edit(calls: Calls) -> None:
        for call in calls:
            if call.get("name") == "SoftmaxForward":
                call["name"] = "SoftmaxForwardV2"

    files = written(tmp_path / "b", edit)
    ((name, what),) = changes(compare(ALEXNET, files) if with_log else compare(PROFILE, files[1])).items()
    if with_log:
        assert name.startswith("problem Softmax fwd")
        assert what == ("~", "kernels SoftmaxForward -> SoftmaxForwardV2")
    else:
        assert (name, what) == ("kernel SoftmaxForward", ("~", "renamed: SoftmaxForwardV2"))


def test_a_layer_that_is_inserted_into_the_net() -> None:
    """It and its kernel are on one side only; what follows is matched as before. Everything is of an iteration,
    however many there are."""
    net = [Layer(name=f"conv{number}", forward=[Kernel(name=f"k{number}", ns=number * MS)]) for number in range(1, 5)]
    new = Layer(name="new", forward=[Kernel(name="k_new", ns=MS)])
    comparison = Comparison(made(net, 1).side, made([*net[:2], new, *net[2:]], 1, 5).side)
    assert changes(comparison) == {"kernel k_new": ("only in B", ""), "layer new forward": ("only in B", "")}
    assert {row.ratio for row in comparison.rows if row.b_ns and row.a_ns} == {1.0}


def test_searches_of_one_side_only(tmp_path: Path) -> None:
    """The kernels that MIOpen's Find launched are gone, and no problem has changed."""

    def edit(calls: Calls) -> None:
        keep = {id(call) for call in kernels(calls)}
        calls[:] = [call for call in calls if call["call"] != "clEnqueueNDRangeKernel" or id(call) in keep]

    files = written(tmp_path / "a", edit)
    comparison = Comparison(Side(name="a", runs=(recorded(*files),)), Side(name="b", runs=(recorded(),)))
    assert [(row.name, row.word) for row in comparison.once if row.word != "~"] == [("searches", "only in B")]
    assert changes(comparison) == {}


def test_another_batch_of_the_same_net() -> None:
    """Problems that differ in it alone are matched, and not judged; layers keep their place."""
    one = recorded()
    parts = tuple(
        msgspec.structs.replace(part, name=part.name.replace(" 1x", " 32x")) if part.kind == "problem" else part
        for part in one.parts
    )
    other = Side(name="32", runs=(msgspec.structs.replace(one, parts=parts),))
    comparison = Comparison(Side(name="1", runs=(one,)), other)
    assert {row.word for row in comparison.rows if row.kind == "problem"} == {"other size"}
    assert {row.word for row in comparison.rows if row.kind == "layer"} == {"~"}


# -- What a side may be: a trace of ours, an archive, a dataset, a job of several ranks --------------------------------

LENET = [ROOT / "traces" / "lenet-rocpd" / name for name in ("run.log.gz", "results.db.gz")]


def assert_nothing_differs(comparison: Comparison) -> None:
    rows: tuple[Compared, ...] = (*comparison.rows, *comparison.ranks, *comparison.once, comparison.iteration)
    assert [row for row in rows if row.word != "~" or row.cause or row.ratio != 1 or row.a_ns != row.b_ns] == []
    assert len(rows) > 5


# -- a trace of ours -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["json", "json.gz", "pftrace"])
@pytest.mark.parametrize("files", [ALEXNET, LENET], ids=["OpenCL", "ROCm"])
def test_nothing_differs_from_the_own_trace(files: Sequence[Path], suffix: str, tmp_path: Path) -> None:
    """Both forms hold every problem, layer, kernel, search and build of the run, and also the solvers and kernels that
    show the cause of a change."""
    out = tmp_path / f"out.{suffix}"
    convert(*files, output=out)
    record = recorded(*files)
    comparison = compare(Side(name="run", runs=(record,)), out)
    assert_nothing_differs(comparison)
    assert {row.kind for row in comparison.rows} == {"problem", "layer"} | ({"kernel"} if files is LENET else set())
    assert comparison.differs == ()

    def told(run: RunRecord) -> list[Any]:
        parts = [part for part in cut(run).parts if part.kind == "problem"]
        return [(part.name, part.solvers, {(one.name, one.role, one.naive) for one in part.kernels}) for part in parts]

    assert told(comparison.b.runs[0]) == told(record)
    assert any(solvers and kernels for _, solvers, kernels in told(record))


@pytest.mark.shared
@pytest.mark.parametrize(
    "files",
    [
        ITERATIONS,
        [SETS / "m290-resnet-train-entries-cmd" / name for name in ("run.log", "prof.json")],
        [TWINS / "alexnet-10it-graph" / "kineto" / "rank0.pt.trace.json.gz"],
        [TWINS / "lenet-train-own-layers" / name for name in ("run.hip.log", "rpd/trace.rpd.gz")],
    ],
    ids=["iterations", "both directions", "ProfilerStep#0 is cold", "own layers"],
)
def test_nothing_differs_from_the_traces_of_real_runs(files: Sequence[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.pftrace"
    convert(*files, output=out)
    assert_nothing_differs(compare(files, out))


@pytest.mark.parametrize("suffix", ["json", "pftrace"])
@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        (ALEXNET, {"top": 5}, "a trace without known iterations"),
        (ALEXNET, {"min_duration": "1ms"}, "a trace of a part of a run"),
        (ALEXNET, {"begin": "layer conv2"}, "a trace of a part of a run"),
        (ALEXNET, {"with_args": False}, "a trace without known iterations"),
        (ALEXNET[1:], {}, "a trace without known iterations"),
        ([*ALEXNET, *LENET], {"several": True}, "a trace of several processes or runs"),
    ],
)
def test_error_a_trace_that_is_not_of_one_whole_run(
    files: Sequence[Path], options: dict[str, Any], message: str, suffix: str, tmp_path: Path
) -> None:
    out = tmp_path / f"out.{suffix}"
    convert(*files, output=out, **options)
    with pytest.raises(InputError, match=rf"^out\.{suffix}: {message}"):
        compare(out, out)


@pytest.mark.parametrize("suffix", ["json", "json.gz", "pftrace"])
def test_a_damaged_trace_is_one_line(suffix: str, tmp_path: Path) -> None:
    """Cut, or with other bytes in it: refused with a line, or read; never a fault."""
    out = tmp_path / f"out.{suffix}"
    convert(*ALEXNET, output=out)
    whole, random, refused = out.read_bytes(), Random(5), 0
    for number in range(12):
        damaged = bytearray(whole[: random.randrange(len(whole))] if number % 3 == 0 else whole)
        for _ in range(number):
            damaged[random.randrange(len(damaged) // 2, len(damaged))] = random.randrange(256)
        out.write_bytes(damaged)
        done = run(out, out, "-q")
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert done.exit_code == 0 or (done.exit_code, len(done.stderr.splitlines())) == (1, 1), done.output
        refused += done.exit_code
    assert refused


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"input":"1x3x99x99"', b'"input":"1xtwox9"'),
        (b'"operation":3', b'"operation":"x"'),
        (b'"iteration":1', b'"iteration":{}'),
        (b'"kernel_ns":', b'"kernel_ns":"y","z":'),
        (b'"layer_index":', b'"layer_index":[],"z":'),
        (b'"direction":"forward"', b'"direction":7'),
    ],
)
def test_error_a_trace_that_was_changed(before: bytes, after: bytes, tmp_path: Path) -> None:
    """A value that is not a shape, number or direction is refused in one line."""
    out = tmp_path / "out.json"
    convert(*ALEXNET, output=out)
    text = out.read_bytes()
    assert before in text
    out.write_bytes(text.replace(before, after))
    with pytest.raises(InputError, match="its checksum differs; --damaged"):
        compare(out, out)
    out.write_bytes(resealed(out.read_bytes()))
    with pytest.raises(InputError, match=r"out\.json: (a trace|not as)"):
        compare(out, out)


def test_a_picture_of_a_comparison_is_no_side(tmp_path: Path) -> None:
    """Its iterations are those of two runs."""
    out, side = tmp_path / "both.pftrace", ",".join(map(str, ALEXNET))
    assert run(side, side, "--picture", out, "-q").exit_code == 0
    assert "both.pftrace: a trace of several processes or runs" in stderr_of(run(side, out), 1)


def test_long_names_are_compared_as_far_as_a_trace_shows_them() -> None:
    """Kernels whose names begin alike are one part then; the time stays the same."""
    parts = tuple(
        Part(kind="kernel", name="k" * CUT + end, samples_ns=(10, 20), mean_ns=15, calls=2, place=place)
        for place, end in enumerate("ab")
    )
    record = RunRecord(name="r", iterations=2, samples_ns=(20, 40), mean_ns=30, parts=parts)
    (part,) = cut(record).parts
    assert (part.name, part.samples_ns, part.mean_ns, part.calls) == ("k" * CUT, (20, 40), 30, 4)
    assert cut(cut(record)) == cut(record)


# -- archives and datasets -------------------------------------------------------------------------------------------


def test_an_archive_of_a_run_is_a_side(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "run.zip", "w") as file:
        for path in ALEXNET:
            file.write(path, path.name)
    assert_nothing_differs(compare(ALEXNET, tmp_path / "run.zip"))


def test_a_dataset_is_a_side_of_its_runs(warm: None, tmp_path: Path) -> None:
    """All of them, or one by its file."""
    pytest.importorskip("pyarrow")
    shutil.copytree(ROOT / "traces" / "alexnet-b1-miopen29", tmp_path / "runs" / "a")
    shutil.copytree(ROOT / "traces" / "lenet-rocpd", tmp_path / "runs" / "b")
    dataset = tmp_path / "ds"
    done = invoked("batch", tmp_path / "runs", "-o", dataset, "--shard", "1/1")
    assert done.exit_code == 0, done.output
    assert compare(dataset, dataset).iteration.runs == (2, 2)
    (kept,) = (path for path in (dataset / "snapshot").iterdir() if path.stem.endswith("a"))
    assert_nothing_differs(compare(ALEXNET, kept))


# -- jobs ------------------------------------------------------------------------------------------------------------


def rank(factor: float, iterations: int = 3, *, extra: bool = False) -> RunRecord:
    """A rank, ``factor`` as slow."""
    samples = tuple(100 * factor * (1 + at) for at in range(iterations))
    kernel = Inside(name="k", role="main", count=2, ns=10 * factor)
    mean = sum(samples) / iterations
    part = Part(kind="problem", name="Conv fwd", samples_ns=samples, mean_ns=mean, calls=2, kernels=(kernel,))
    more = Part(kind="kernel", name="more", samples_ns=(30,) * iterations, mean_ns=30, calls=1)
    return RunRecord(
        name="job",
        iterations=iterations,
        samples_ns=tuple(one + 30 * extra for one in samples),
        mean_ns=mean + 30 * extra,
        find_ns=100 * factor,
        parts=(part, more) if extra else (part,),
    )


def test_a_job_is_the_mean_over_its_ranks() -> None:
    """Iteration by iteration, of as many as all have; what one rank lacks takes no time in it; the sum adds up."""
    job = mean_of(["rank 0", "rank 1"], [rank(1), rank(3, 2, extra=True)])
    assert job.iterations == 2
    assert list(job.samples_ns) == [215, 415]
    assert {part.name: part.samples_ns for part in job.parts} == {"Conv fwd": (200, 400), "more": (15, 15)}
    assert job.mean_ns == sum(part.mean_ns for part in job.parts) == 315
    assert {part.name: part.calls for part in job.parts} == {"Conv fwd": 2, "more": 0.5}
    assert job.parts[0].kernels[0] == Inside(name="k", role="main", count=2, ns=20)
    assert job.find_ns == 200
    assert job.ranks == (Rank(name="rank 0", samples_ns=(100, 200)), Rank(name="rank 1", samples_ns=(330, 630)))


def test_a_slow_rank_has_a_row_of_its_own() -> None:
    """Beside the mean, which it moves by its share."""
    names = [f"rank {number}" for number in range(4)]

    def side(*runs: Sequence[float]) -> Side:
        return Side(name="s", runs=tuple(mean_of(names[: len(of)], list(map(rank, of))) for of in runs))

    a = side(*([1 + run / 1000] * 4 for run in range(3)))
    comparison = Comparison(a, side(*[[1, 1, 1.5, 1]] * 3))
    rows = [(row.name, row.word) for row in comparison.ranks]
    assert rows == [("rank 2", "slower"), ("rank 0", "~"), ("rank 1", "~"), ("rank 3", "~")]
    assert comparison.iteration.ratio == pytest.approx(1.125, rel=0.01)
    assert seen(comparison.a) == "3 runs of 3 iterations, 4 ranks each"
    assert " of kernels per iteration (medians; means over the ranks)" in headline(comparison)
    fewer = side([1, 1])
    rows = [(row.name, row.word) for row in Comparison(a, fewer).ranks]
    assert rows[:2] == [("rank 2", "only in A"), ("rank 3", "only in A")]
    assert seen(fewer) == "1 run of 3 iterations, 2 ranks"


@pytest.mark.shared
def test_all_ranks_of_a_real_job_are_compared() -> None:
    """Two processes of one log each: the mean of both, a row for each, nothing differs from itself."""
    folder = TWINS / "resnet-immediate-2ranks"
    files = [*sorted(folder.glob("run.rank*.log")), *sorted((folder / "rocpd").glob("4*.db.gz"))]
    record, measures = recorded(*files), analyse(files).run.measures
    assert [one.name for one in record.ranks] == ["rank 0", "rank 1"]
    assert record.mean_ns == pytest.approx(sum(one.steady.mean_ns for one in measures) / 2)
    assert sum(part.mean_ns for part in record.parts if part.kind != "layer") == pytest.approx(record.mean_ns)
    side = Side(name="job", runs=(record,))
    assert_nothing_differs(Comparison(side, side))


def test_a_base_of_a_large_job_keeps_its_size() -> None:
    """Ranks go before parts do."""
    names = [f"rank {number}" for number in range(2000)]
    side = Side(name="job", runs=(mean_of(names, [rank(1, 9)] * len(names)),))
    text = bases.base_text(side, "mio2trace")
    assert len(text) <= bases.LARGEST
    (run,) = json.loads(text)["runs"]
    assert "ranks" not in run
    assert [part["name"] for part in run["parts"]] == ["Conv fwd"]
