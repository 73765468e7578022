"""What `compare` says first: the verdict in every form, what was seen, only what changed, one cause in one row."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.comparing import Comparison, Part, RunRecord, Side, compare
from mio2trace.comparing.comparison import change, decision, groups, has_changed, headline, interval, label, seen
from mio2trace.comparing.record import Inside
from mio2trace.comparing.text import block, comment, page
from tests.kineto_files import kineto_file, row
from tests.made_up_runs import base, noisy, recorded
from tests.made_up_runs import compare as run


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return recorded()


def of_one_kernel(record: RunRecord, factor: float) -> Callable[[Part], Part]:
    """All convolutions run one kernel, and take ``factor`` times as long."""

    def changed(part: Part) -> Part:
        if part.kind != "problem" or part.primitive != "conv":
            return part
        kernel = Inside(name="miopenSp3AsmConv_v21_1_2_gfx9_fp16_f2x3", role="main", count=part.calls, ns=part.mean_ns)
        return msgspec.structs.replace(part, mean_ns=factor * part.mean_ns, kernels=(kernel,))

    return changed


def one_sample(name: str, *runs: float) -> Side:
    return sampled(name, [[ns] for ns in runs])


def sampled(name: str, runs: list[list[float]]) -> Side:
    """Each run a kernel, with these samples."""
    made = []
    for ns in runs:
        part = Part(kind="kernel", name="k", samples_ns=tuple(ns), mean_ns=sum(ns) / len(ns), calls=1)
        record = RunRecord(name=name, iterations=1, samples_ns=part.samples_ns, mean_ns=part.mean_ns, parts=(part,))
        made.append(record)
    return Side(name=name, runs=tuple(made))


# -- one rule --------------------------------------------------------------------------------------------------------


samples = st.lists(st.lists(st.floats(1, 100), min_size=1, max_size=5), min_size=1, max_size=6)


@given(samples, samples)
def test_no_verdict_contradicts_its_interval(a: list[list[float]], b: list[list[float]]) -> None:
    """Slower and faster exclude no change; what is said beside a change is never that there is none."""
    comparison = Comparison(sampled("a", a), sampled("b", b))
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
    assert interval(row) in said


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ((100, 100, 101), (120, 121, 122), "SLOWER: +21.0 % (95 %: 19 to 22 %); "),
        ((120, 121, 122), (100, 100, 101), "FASTER: -17.4 % "),
        ((100, 100, 101), (104, 104.5, 105),
         "NOT DECIDED: +4.5 % (95 %: 3 to 5 %), below the 10 % that 3 runs can decide; "),
        ((100, 100, 101), (107, 108, 109),
         "NOT DECIDED: +8.0 % (95 %: 6 to 9 %), below the 10 % that 3 runs can decide; "),
        ((100,), (200,), "NOT DECIDED: 2.00 x, 1 run per side cannot decide, 3 can; "),
        ((100, 100, 101), (100, 100.5, 101), "NO CHANGE SHOWN: +0.5 % (95 %: -1 to 1 %); "),
        ((100, 120, 140), (110, 130, 150),
         "NOT DECIDED: +8.3 % (95 %: -21 to 50 %), the interval includes no change; "),
        ((100,), (100,), "NO CHANGE SHOWN: +0.0 %; "),
    ],
)  # fmt: skip
def test_the_headline(a: tuple[float, ...], b: tuple[float, ...], said: str) -> None:
    assert headline(Comparison(one_sample("a", *a), one_sample("b", *b))).startswith(said)


# -- forms -----------------------------------------------------------------------------------------------------------


def test_every_form_says_the_verdict_first(record: RunRecord, tmp_path: Path) -> None:
    a, b = noisy(record, 3, 1, of_one_kernel(record, 1)), noisy(record, 3, 2, of_one_kernel(record, 1.3))
    comparison = Comparison(a, b)
    said = headline(comparison)
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
    done = run(*paths, "-o", tmp_path / "page.html")
    assert done.stdout.startswith("SLOWER: +")
    text = html.unescape((tmp_path / "page.html").read_text("utf-8"))
    assert f'<p class="verdict">{said}</p>' in text
    rows = [line.split(",") for line in run(*paths, "--format", "csv").stdout.splitlines()]
    assert rows[1][:2] == ["iteration", "iteration"]


def test_one_cause_is_one_row(record: RunRecord) -> None:
    """Problems that run one kernel on both sides; the sums are the members'."""
    comparison = Comparison(
        noisy(record, 3, 1, of_one_kernel(record, 1)), noisy(record, 3, 2, of_one_kernel(record, 1.3))
    )
    (group,) = (one for one in groups(comparison.rows) if one.row.kind == "problem" and one.row.word == "slower")
    assert len(group.members) == sum(part.kind == "problem" and part.primitive == "conv" for part in record.parts) > 4
    said = f"{len(group.members)} problems, all miopenSp3AsmConv_v21_1_2_gfx9_fp16_f2x3"
    assert group.row.name == said
    assert group.row.a_ns == pytest.approx(sum(row.a_ns or 0 for row in group.members))
    assert group.row.ratio == pytest.approx(1.3, rel=0.05)
    for text in ("\n".join(block(comparison)), comment([comparison]), html.unescape(page([comparison], "m"))):
        assert said[:30] in text.replace("\\", "")


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
    b = msgspec.structs.replace(noisy(record, runs, 2, of_one_kernel(record, factor)), name=long + "b")
    comparison = Comparison(a, b)
    lines = block(comparison)
    assert len(lines) <= 20
    assert max(map(len, [*lines, *block(comparison, everything=True)])) <= 78
    names = [line[12:51] for line in lines if re.search(r"\d %( \?)?$|\d x( \?)?$|new$|gone$", line)]
    assert len(set(names)) == len(names)
    sides = [line[3:] for line in lines if line.startswith(("A  ", "B  "))]
    assert len(set(sides)) == 2
    assert sides[0].partition(": ")[2].startswith(seen(a)[:20])


def test_a_large_difference_is_shown_although_nothing_is_decided() -> None:
    comparison = Comparison(one_sample("a", 100, 130, 160), one_sample("b", 120, 150, 190))
    (row,) = comparison.rows
    assert row.word == "~"
    assert has_changed(row)
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
