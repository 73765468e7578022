"""Two runs side by side: matching by what is computed, verdicts by runs, causes, gates, bases."""

from __future__ import annotations

import html
import itertools
import json
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.analysis import AnalysisOptions, Run, analyse
from mio2trace.comparing import Comparison, Part, RunRecord, Side, compare
from mio2trace.comparing import sides as bases
from mio2trace.comparing.record import collect, condensed, facts
from mio2trace.comparing.statistics import _medians, verdict
from mio2trace.model.miopen import Message, MiopenLog
from mio2trace.notes import Notes
from tests.conftest import ROOT, shared_folder
from tests.made_up_runs import ALEXNET as FILES
from tests.made_up_runs import base, largest, noisy, recorded, renamed, slower
from tests.made_up_runs import compare as run

CAFFE = ROOT / "traces" / "alexnet-b1-train"
ITERATIONS = tuple(
    shared_folder() / "samples" / "miopen-opencl" / "m290-alexnet-infer-10it" / name
    for name in ("run.log", "prof.json")
)


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
    [FILES, FILES[1:], pytest.param(ITERATIONS, marks=pytest.mark.shared)],
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


@pytest.mark.parametrize("count", range(1, 7))
def test_medians_of_samples_drawn_again_are_as_likely_as_counted(count: int) -> None:
    """Of every way to draw them."""
    counted: Counter[tuple[int, int]] = Counter()
    for drawn in itertools.product(range(count), repeat=count):
        ordered = sorted(drawn)
        counted[ordered[(count - 1) // 2], ordered[count // 2]] += 1
    likely = {(low, high): weight * count**count for low, high, weight in _medians(count)}
    assert likely == pytest.approx(dict(counted))


# ---- made-up changes in a real run; test_compare_changes.py makes others in its files


def test_nothing_changed(record: RunRecord) -> None:
    comparison = Comparison(noisy(record, 3, 1), noisy(record, 3, 2))
    assert said(comparison, "problem", "kernel", "layer") == {}
    assert comparison.failures(0.05, 0.10) == ()


def test_a_layer_that_was_inserted(record: RunRecord) -> None:
    """Even where all that follow got another number in their name."""
    layers = sorted((part for part in record.parts if part.kind == "layer"), key=lambda part: part.place)
    at = layers[3].place
    new = msgspec.structs.replace(layers[3], name="extra forward", like="forward lrn Nx7x7x7", place=at)

    def shifted(part: Part) -> Part:
        if part.kind != "layer" or part.place < at:
            return part
        return msgspec.structs.replace(part, place=part.place + 1, name=f"{part.name} (moved)")

    with_new = msgspec.structs.replace(record, parts=(*map(shifted, record.parts), new))
    comparison = Comparison(noisy(record, 3, 1), noisy(with_new, 3, 2))
    words = said(comparison, "layer")
    assert words.pop("extra forward") == ("only in B", "")
    assert {word for word, _ in words.values()} <= {"~", "maybe slower", "maybe faster"}
    by_structure = {part.name: f"{part.name} (moved)" for part in layers if part.place >= at and part.like}
    assert {name: cause for name, (_, cause) in words.items() if name in by_structure} == {
        name: f"renamed: {new_name}" for name, new_name in by_structure.items()
    }


def test_kernels_of_most_of_the_time_that_were_renamed() -> None:
    """Where most of the time has no name in common nothing is guessed."""
    without_log = recorded(*FILES[1:])
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


def test_two_versions_of_miopen(shared: Path) -> None:
    """The same net by 2.9.0 and 1.2.1: each problem is matched, or what is computed in its layer instead is said."""
    sets = shared / "samples" / "miopen-opencl"
    comparison = compare(sets / "m290-alexnet-infer-10it", sets / "m121-alexnet-infer-interleaved")
    problems = [row for row in comparison.rows if row.kind == "problem"]
    assert len(problems) > 20
    alone = [row for row in problems if row.word in ("only in A", "only in B")]
    assert len(alone) == 4
    assert all(": there " in row.cause for row in alone)
    layers = [row for row in comparison.rows if row.kind == "layer"]
    assert {row.word for row in layers} <= {"~", "maybe slower", "maybe faster"}


def test_a_run_and_itself_and_its_base(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    done = run("--save", path, ",".join(map(str, FILES)))
    assert done.exit_code == 0, done.stderr
    assert path.stat().st_size <= bases.LARGEST
    assert not [word for word in ("run.log", "prof.json", "traces") if word in path.read_text()]
    for other in (FILES, [path]):
        comparison = compare(FILES, other)
        rows = (*comparison.rows, *comparison.once, comparison.iteration)
        assert {(row.word, row.cause, row.ratio) for row in rows} == {("~", "", 1.0)}
        assert all(row.a_ns == row.b_ns for row in rows)


def test_a_large_base_keeps_its_size_and_its_sum(tmp_path: Path, record: RunRecord) -> None:
    replace = msgspec.structs.replace
    many = []
    for copy, part in itertools.product(range(40), record.parts):
        ns = part.mean_ns / (copy + 1)
        many += [replace(part, name=f"{part.name} {copy}", mean_ns=ns, samples_ns=(ns,))] * (part.kind == "problem")
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
    done = run(tmp_path / "base.json", tmp_path / "base.json")
    assert done.exit_code == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


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
    done = run(good, bad, "--fail-above", "5%", "--fail-above", "problem:10%")
    assert done.exit_code == 3
    assert f"slower: {largest(record).name}: 1." in done.stderr
    assert run(bad, good, "--fail-above", "5%", "--fail-above", "problem:10%").exit_code == 0
    one = ",".join(map(str, FILES))
    done = run(one, one, "--fail-above", "problem:10%")
    assert done.exit_code == 2
    assert "1 run per side cannot decide on problems; 3 can" in done.stderr
    slow = base(good.parent, "slow", noisy(record, 1, 4, slower(largest(record).name, 3)))
    done = run(good, slow, "--fail-above", "5%")
    assert done.exit_code == 3
    assert "an alarm: fewer than 3 runs per side cannot decide" in done.stderr
    for wrong in ("5", "layer:5%", "x%", "nan%", "-1%"):
        assert run(good, same, "--fail-above", wrong).exit_code == 2


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
    assert wide[0]["verdict"] == "slower"
    assert run(good).exit_code == 2
    assert run(good, same, "--columns", "nope").exit_code == 2
    done = run(good, ROOT / "LICENSE")
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1


def test_the_times_of_both_sides_have_the_same_digits(folders: Sequence[Path]) -> None:
    """For a person, who reads them beside each other."""
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
    path = tmp_path / "run.json"
    shutil.copyfile(FILES[1], path)
    before = path.read_bytes()
    side = f"{FILES[0]},{path}"
    done = run(*([side] if option == "--save" else [side, side]), option, path)
    assert done.exit_code == 2
    assert "is also an input" in done.stderr
    assert path.read_bytes() == before


def test_a_profile_is_not_compared_with_printed_times() -> None:
    done = run(CAFFE / "run.log", f"{CAFFE / 'run.log'},{CAFFE / 'prof.json.gz'}")
    assert done.exit_code == 1
    assert "printed layer times" in done.stderr


def test_a_folder_of_runs_is_a_side_of_several(tmp_path: Path) -> None:
    for name in ("alexnet-b1-miopen29", "lenet-rocpd"):
        shutil.copytree(ROOT / "traces" / name, tmp_path / "all" / name)
    comparison = compare(tmp_path / "all", tmp_path / "all")
    assert [run.name for run in comparison.a.runs] == ["alexnet-b1-miopen29", "lenet-rocpd"]
    assert comparison.iteration.runs == (2, 2)
