"""Many runs: stored questions over a dataset, answered as counted by hand; one page of a fleet."""

from __future__ import annotations

import json
import os
import re
import shutil
from html import unescape
from pathlib import Path
from random import Random
from typing import Any

import html5lib
import pytest

from mio2trace.dataset import TABLES, write_tables
from mio2trace.dataset.rows import failed_run, of_rows
from mio2trace.queries import DATASET, opened, shipped
from mio2trace.schema import SQL_COLUMNS
from mio2trace.snapshot.database import connection, sql_text
from tests.commands import invoked, json_of, printed, stderr_of
from tests.conftest import ROOT
from tests.oracle.dataset_queries import ANSWERS as COUNTED_AGAIN
from tests.oracle.queries import differences

MS = 1_000_000


def near(value: float, by: float) -> Any:
    return pytest.approx(value, abs=by)


CONV, POOL = "Conv fwd 1x3x8x8 -> 1x4x8x8 k3x3", "Pool fwd 1x4x8x8 -> 1x4x4x4 k2x2"
SLOWER = {"2.9.0": 1.0, "2.10.0": 1.0, "2.20.0": 1.5}
"""Of the convolution, by version; as text 2.10 would stand before 2.9."""
ODD_ONE = "2.10.0/run3"
NAMES = (
    "runs", "slowest problems", "regressions", "heat map", "outlier runs", "failures", "what is odd", "kernels of runs",
    "layers of runs", "stragglers",
)  # fmt: skip


Tables = dict[str, list[dict[str, Any]]]


def made_run(version: str, number: int) -> Tables:
    """Four iterations, the first cold, of a convolution and a pooling."""
    run = f"{version}/run{number}"
    factor = 3.0 if run == ODD_ONE else 1 + number / 1000
    conv, pool = (MS * ms * factor * slower for ms, slower in ((8, SLOWER[version]), (2, 1.0)))
    whole = conv + pool
    row = {
        "version": version, "device": "gfx90a", "iterations": 4, "steady_iterations": 3, "kernels": 8,
        "kernel_ns": whole, "whole_ns": int(8 * whole), "find_ns": 0,
    }  # fmt: skip
    finding = {"id": "naive-solver", "severity": "high", "ns": int(conv), "share": 0.8, "try": "Install a db."}
    tables: Tables = {
        "runs": [row],
        "iterations": [
            {"iteration": at, "steady": at > 1, "kernels": 2, "kernel_ns": int(whole * (4 if at == 1 else 1))}
            for at in range(1, 5)
        ],
        "problems": [
            {
                "problem": name,
                "primitive": kind,
                "kernel_ns": ns,
                "percent_of_kernel_time": 100 * ns / whole,
                "calls": 1,
            }
            for name, kind, ns in ((CONV, "conv", conv), (POOL, "pool", pool))
        ],
        "kernels": [
            {"name": name, "kernel_ns": int(ns), "iteration": at}
            for at in range(1, 5)
            for name, ns in (("conv_kernel", conv), ("pool_kernel", pool))
        ],
        "layers": [
            {"iteration": at, "layer": "conv1", "direction": "forward", "kernel_ns": int(conv)} for at in range(5)
        ],
        "findings": [finding],
        "copies": [],
        "operations": [],
    }
    return {name: [{"run": run, **row} for row in rows] for name, rows in tables.items()}


def write(tables: Tables, folder: Path, run: str) -> None:
    write_tables({name: of_rows(TABLES[name], rows) for name, rows in tables.items()}, folder, run)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "ds"
    for version in SLOWER:
        for number in range(5):
            write(made_run(version, number), folder, f"{version}/run{number}")

    def line(run: str, ended: int, seconds: float = 1, **state: str) -> str:
        return json.dumps({"run": run, **state, "seconds": seconds, "ended": ended, "version": "x"}) + "\n"

    (folder / "_runs.jsonl").write_text(
        line("2.9.0/late", 10, state="failed", error="first try")
        + line("2.9.0/late", 30, state="converted")
        + line("2.9.0/bad", 5, state="converted")
        + '{"run": "2.9.0/bad", "sta'
    )
    (folder / "_runs.1-of-2.jsonl").write_text(line("2.9.0/bad", 20, 2.5, state="failed", error="prof.db: cut off"))
    return folder


def rows_of(dataset: Path, question: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json_of("query", dataset, question)
    return rows


ANSWERS: dict[str, list[dict[str, Any]]] = {
    "slowest problems": [
        {"problem": CONV, "runs": 15, "slowest_run": ODD_ONE, "kernel_ms": near(8.032, 0.01),
         "most_ms": near(24, 0.01)},
        {"problem": POOL},
    ],
    # In the order of the versions' numbers, and only what is slower; one run does not hide what the others show.
    "regressions": [
        {
            "problem": CONV, "before": "2.10.0", "version": "2.20.0", "ratio": near(1.5, 0.005), "clear": True,
            "runs": "5 / 5",
        }
    ],
    # With the same problems, of the same version and device: one that is slower as a whole has none.
    "outlier runs": [{"run": ODD_ONE, "ratio": near(3, 0.02)}],
    # The last line of all journals counts; a line that is cut off is none.
    "failures": [{"run": "2.9.0/bad", "error": "prof.db: cut off", "seconds": 2.5}],
    # A letter an iteration: the cold one is full, steady ones that are alike are empty.
    "heat map": [{"heat": "█▁▁▁", "slowest": 1}] * 15,
    "layers of runs": [{"layer": "conv1", "runs": 15, "slowest_run": ODD_ONE}],
    "kernels of runs": [
        {"kernel": "conv_kernel", "calls": 60, "runs": 15}, {"kernel": "pool_kernel", "calls": 60, "runs": 15},
    ],
    "what is odd": [{"id": "naive-solver", "runs": 15, "severity": "high"}],
    "runs": [{}] * 15,
    "select count(*) as n from kernels": [{"n": 120}],
    # A table that an older version did not write has its columns and no rows.
    "select count(rank) as n from ranks": [{"n": 0}],
}  # fmt: skip


@pytest.mark.parametrize("question", ANSWERS)
def test_a_question_is_answered_as_counted_by_hand(dataset: Path, question: str) -> None:
    rows, expected = rows_of(dataset, question), ANSWERS[question]
    assert [{key: row[key] for key in wanted} for row, wanted in zip(rows, expected, strict=True)] == expected


def random_run(random: Random, run: str, version: str, rank: int | None, alike_ns: int | None) -> Tables:
    """Nothing in it is round, and some of it is not known. ``alike_ns``: it does what others do, in about this time."""

    def ns() -> int:
        return random.randrange(10_000, 90 * MS)

    def maybe(value: object) -> Any:
        return None if random.random() < 0.2 else value

    names = random.sample(("conv a", "conv b", "pool", "gemm"), 4 if alike_ns else 3)
    device = "gfx90a" if alike_ns else random.choice(("gfx90a", "gfx942"))
    kernel_ns = alike_ns + ns() // 100 if alike_ns else maybe(ns())
    tables: Tables = {
        "runs": [{"version": version, "device": device, "iterations": 4, "kernels": 9,
                  "steady_iterations": 3, "layers": 2, "kernel_ns": kernel_ns, "whole_ns": ns(), "find_ns": ns()}],
        "iterations": [{"iteration": at, "steady": at > 1, "kernels": random.randrange(1, 4), "kernel_ns": ns(),
                        "step_ns": maybe(ns())} for at in range(1, 5)],
        "problems": [{"problem": name, "primitive": "conv", "kernel_ns": maybe(ns()), "calls": random.choice((2, 2, 7)),
                      "percent_of_kernel_time": maybe(100 * random.random()), "gflops": maybe(900 * random.random()),
                      "solver": maybe(random.choice(("ConvAsm", "Gemm")))} for name in names],
        "kernels": [{"name": random.choice(names), "kernel_ns": ns(), "iteration": 1} for _ in range(9)],
        "layers": [{"iteration": maybe(at), "layer": layer, "direction": "forward", "kernel_ns": maybe(ns()),
                    "printed_ns": maybe(ns()), "gflops": maybe(900 * random.random())}
                   for at in range(4) for layer in ("conv1", "pool1")],
        "findings": [{"id": rule, "severity": random.choice(("high", "medium", "low")), "ns": ns(),
                      "share": random.random(), "try": f"{rule} of {run}"} for rule in ("idle", "small-gemm")],
        "ranks": [{"collectives": 9, "transfer_ns": ns(), "wait_ns": ns(), "times_arrived_last": random.randrange(9),
                   "late_ns": ns(), "made_late_by": maybe("conv2"), "made_late_ns": maybe(ns())}],
        "copies": [],
        "operations": [],
    }  # fmt: skip
    return {name: [{"run": run, "rank": rank, **row} for row in rows] for name, rows in tables.items()}


@pytest.mark.parametrize("seed", range(3))
def test_every_number_of_every_question_is_counted_again_from_the_tables(seed: int, tmp_path: Path) -> None:
    """In plain Python (`tests.oracle.dataset_queries`), of runs with one rank and with two."""
    random = Random(seed)
    for version in ("2.9.0", "2.10.0", "2.20.0"):
        made = []
        for number in range(6):
            run = f"{version}/run{number}"
            alike_ns = None if seed else 90 * MS if number == 3 else 30 * MS
            made += [random_run(random, run, version, rank, alike_ns) for rank in ((0, 1) if number == 5 else (None,))]
        write({name: [row for one in made for row in one[name]] for name in made[0]}, tmp_path / "ds", version)
    with opened(str(tmp_path / "ds"), SQL_COLUMNS) as asked:
        whole = {name: asked.ask(f"select * from {name}") for name in TABLES}
        tables = {name: [dict(zip(one.columns, row, strict=True)) for row in one.rows] for name, one in whole.items()}
        for name, count_again in COUNTED_AGAIN.items():
            answer = asked.ask(shipped(DATASET)[name].sql)
            said = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
            assert said or (name == "outlier runs" and seed)
            assert differences(count_again(tables), said) == [], name


@pytest.mark.parametrize(("last_ms", "listed"), [(109, []), (110, ["run4"])])
def test_an_outlier_of_five_runs_is_more_than_six_deviations_away(
    last_ms: int, listed: list[str], tmp_path: Path
) -> None:
    """3.5 + 14 / 5 = 6.3 deviations of 1.48 ms above 100 ms: 109.3 ms."""
    made = [random_run(Random(0), f"run{number}", "2.9.0", None, 1) for number in range(5)]
    for one, total_ms in zip(made, (98, 99, 100, 101, last_ms), strict=True):
        one["runs"][0]["kernel_ns"] = total_ms * MS
    write({name: [row for one in made for row in one[name]] for name in made[0]}, tmp_path / "ds", "2.9.0")
    assert [row["run"] for row in rows_of(tmp_path / "ds", "outlier runs")] == listed


def test_the_worst_is_first(tmp_path: Path) -> None:
    """The advice of the most severe run, not of the one with most time; the rank that the others wait for longest."""
    cells = {"run": "job", "collectives": 9, "transfer_ns": 5 * MS}
    for number, (severity, ns) in enumerate((("medium", 9 * MS), ("high", 2 * MS), ("low", MS))):
        made = made_run("2.9.0", number)
        made["findings"][0] |= {"severity": severity, "ns": ns, "try": f"do {severity}"}
        if number == 0:
            made["ranks"] = [
                {**cells, "rank": 0, "wait_ns": 7 * MS, "times_arrived_last": 1, "late_ns": MS},
                {
                    **cells,
                    "rank": 1,
                    "wait_ns": MS,
                    "times_arrived_last": 8,
                    "late_ns": 7 * MS,
                    "made_late_by": "conv2",
                },
            ]
        write(made, tmp_path / "ds", f"a/run{number}")
    (row,) = rows_of(tmp_path / "ds", "what is odd")
    assert (row["severity"], row["advice"], row["worst_ms"], row["runs"]) == ("high", "do high", 2, 3)
    rows = rows_of(tmp_path / "ds", "stragglers")
    assert [(row["rank"], row["late_ms"], row.get("made_late_by")) for row in rows] == [(1, 7, "conv2"), (0, 1, None)]


def test_the_questions_are_these() -> None:
    """Names are a public interface; each says what it answers, is documented, and listed."""
    queries = shipped(DATASET)
    assert tuple(queries) == NAMES
    assert not set(queries) & set(shipped())
    documented = (ROOT / "docs" / "queries.md").read_text("utf-8")
    listed = invoked("query", "--list", "--format", "csv").stdout
    for query in queries.values():
        assert query.about.endswith(".")
        assert f"`{query.name}`" in documented
        assert f"{query.name},dataset," in listed


def test_few_runs_decide_nothing_and_kinds_of_gpu_are_not_mixed(tmp_path: Path) -> None:
    """Two runs per version; one more of another GPU; in one run the problem has no kernels."""
    for version, number, device, factor in (
        ("1.0", 0, "A", 1), ("1.0", 1, "A", 1), ("1.0", 2, "A", 0), ("2.0", 0, "A", 2), ("2.0", 1, "A", 2),
        ("1.0", 3, "B", 9), ("2.0", 3, "B", 9),
    ):  # fmt: skip
        made = {
            name: [row | {"run": f"{version}/{number}"} for row in rows] for name, rows in made_run("2.9.0", 0).items()
        }
        made["runs"][0] |= {"version": version, "device": device}
        for row in made["problems"]:
            row["kernel_ns"] = 8 * MS * factor
        write(made, tmp_path / "ds", f"{version}/{number}")
    slower = rows_of(tmp_path / "ds", "regressions")
    assert {(row["problem"], row["ratio"], row["runs"], row["device"], row.get("clear")) for row in slower} == {
        (CONV, 2, "2 / 2", "A", None), (POOL, 2, "2 / 2", "A", None),
    }  # fmt: skip
    said = "slower than in the version before, but fewer than 3 runs of a version decide nothing"
    assert said in " ".join(invoked("report", tmp_path / "ds").stdout.split())
    html = invoked("report", tmp_path / "ds", "--format", "html").stdout
    page = html5lib.HTMLParser(namespaceHTMLElements=False).parse(html)
    table = [[" ".join("".join(cell.itertext()).split()) for cell in row] for row in page.find(".//table").iter("tr")]
    assert [row[:4] for row in table if CONV in row[0]] == [
        [f"{CONV} on B", "72.000", "72.000", "1.00"], [f"{CONV} on A", "8.000", "16.000", "2.00"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("runs", "factor", "calls", "clear"),
    [
        (3, 1.09, 1, False), (3, 1.11, 1, True), (4, 1.09, 1, False),
        (5, 1.04, 1, False), (5, 1.06, 1, True), (11, 1.04, 1, False), (12, 1.04, 1, True),
        (12, 2.0, 2, False),  # a net that computes it twice
    ],
)  # fmt: skip
def test_a_change_by_chance_is_not_clear(runs: int, factor: float, calls: int, clear: bool, tmp_path: Path) -> None:
    tables: Tables = {"runs": [], "problems": []}
    one = made_run("2.9.0", 0)
    for version, ns, count in (("1.0", 8 * MS, 1), ("2.0", 8 * MS * factor, calls)):
        for number in range(runs):
            run = {"run": f"{version}/{number}"}
            tables["runs"].append(one["runs"][0] | run | {"version": version, "device": "A"})
            changed = {"kernel_ns": ns * (1 + number / 1000), "calls": count}
            tables["problems"] += [row | run | changed for row in one["problems"]]
    write(tables, tmp_path / "ds", "all")
    assert {row["clear"] for row in rows_of(tmp_path / "ds", "regressions")} == {clear}


def test_the_ranks_of_a_job_are_one_run(tmp_path: Path) -> None:
    """Four ranks decide nothing about a version: they are no repetitions."""
    for version, ns in (("1.0", 8 * MS), ("2.0", 16 * MS)):
        ranks = [
            {name: [row | {"run": f"{version}/job", "rank": rank} for row in rows]
             for name, rows in made_run("2.9.0", 0).items()}
            for rank in range(4)
        ]  # fmt: skip
        for made in ranks:
            made["runs"][0] |= {"version": version, "device": "A"}
            for row in made["problems"]:
                row["kernel_ns"] = ns
        write(
            {name: [row for one in ranks for row in one[name]] for name in ranks[0]}, tmp_path / "ds", f"{version}/job"
        )
    slower = rows_of(tmp_path / "ds", "regressions")
    assert {(row["runs"], row.get("clear")) for row in slower} == {("1 / 1", None)}
    for question, runs in (("slowest problems", 2), ("layers of runs", 2), ("kernels of runs", 2), ("what is odd", 2)):
        assert {row["runs"] for row in rows_of(tmp_path / "ds", question)} == {runs}
    assert "2 runs of 2 versions" in invoked("report", tmp_path / "ds").stdout


def test_a_problem_has_the_command_of_its_slowest_run(tmp_path: Path) -> None:
    """It was that of any run, another one in each call. Of equally slow runs the first one is named."""
    times = {1: 8, 2: 9, 3: None, 4: 9}
    for number, ns in times.items():
        made = made_run("2.9.0", number)
        made["problems"] = [
            {**row, "kernel_ns": (ns or 10) * MS, "command": ns and f"run {number}"} for row in made["problems"]
        ]
        write(made, tmp_path / "ds", f"2.9.0/run{number}")
    assert {(row["slowest_run"], row["command"]) for row in rows_of(tmp_path / "ds", "slowest problems")} == {
        ("2.9.0/run3", "run 2")
    }


@pytest.mark.parametrize(
    ("run", "version"),
    [("runs/rocm-7.0/resnet50", "rocm-7.0"), ("2024/nightly/a", "2024"), ("nightly/run3", None), ("run3", None)],
)
def test_a_version_is_the_innermost_folder_with_a_digit(run: str, version: str | None) -> None:
    assert [*failed_run(run, "gone")["version"].words] == ([version] if version else [])


@pytest.mark.parametrize(
    "sql",
    [
        "select * from nothing",
        "with x as (select 1) select",
        "select * from read_csv('/etc/hostname')",
        "select * from '{outside}'",
        "select * from glob('/*')",
        "create table x as select 1",
        "select 1; select 2",
        "values (getenv('HOME'))",
    ],
)
def test_nothing_else_is_read_and_nothing_written(dataset: Path, tmp_path: Path, sql: str) -> None:
    (tmp_path / "outside.csv").write_text("a\n1\n")
    result = invoked("query", dataset, sql.format(outside=tmp_path / "outside.csv"))
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_question_about_datasets_is_of_no_trace(dataset: Path) -> None:
    """And what a dataset has no runs for says so; without the table of runs there is no dataset."""
    assert not (dataset / "ranks").exists()
    log = ROOT / "traces" / "squeezenet11-b1-libdnn-fwd" / "run.log"
    for command, said in (
        (("query", log, "slowest problems"), "no dataset"), (("query", dataset / "kernels", "runs"), "no dataset"),
        (("query", dataset, "slowest layers"), "tables alone"), (("layers", dataset), "tables alone"),
        (("compare", dataset, dataset), "tables alone"),
    ):  # fmt: skip
        assert said in stderr_of(invoked(*command), 1)


def test_a_fleet_is_one_page(dataset: Path, tmp_path: Path) -> None:
    """Problems over versions, what is slower, outliers, iterations, failures; without script, escaped."""
    printed("report", dataset, "-o", tmp_path / "fleet.html")
    text = (tmp_path / "fleet.html").read_text("utf-8")
    page = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)
    heads = [head.text.strip() for head in page.iter("h2")]
    assert heads == ["Problems", "Slower", "Outlier runs", "Iterations", "Failures", "Findings", "Runs"]
    assert [cell.text for cell in page.find(".//thead/tr")][1:4] == ["2.9.0, ms", "2.10.0, ms", "2.20.0, ms"]
    assert (
        f"15 runs of 3 versions; 1 problem clearly slower than in the version before, most of all {CONV}"
        in unescape(text)
    )
    assert "<script" not in text
    assert "prof.db: cut off" in text
    assert len(text) < 150_000
    with opened(str(dataset), SQL_COLUMNS) as asked:
        cells = asked.ask("select count(*) from iterations").rows[0][0]
    assert text.count('opacity="') == cells


def test_a_fleet_is_said_in_lines(dataset: Path) -> None:
    result = printed("report", dataset)
    assert result.startswith("15 runs of 3 versions; ")
    assert f"outliers    {ODD_ONE}" in result
    lines = result.splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 78
    (slow,) = [line for line in lines if line.startswith("slower")]
    assert slow.split()[-4:] == ["1.50", "2.10.0", "->", "2.20.0"]
    problems = [line[12:45].strip() for line in lines if re.search(r"\d \(?.* runs", line) and line[12:45].strip()]
    assert len(set(problems)) == len(problems)
    assert "failed      2.9.0/bad: prof.db: cut off" in result
    assert "for one run" in stderr_of(invoked("report", dataset, "--format", "json"), 2)


@pytest.mark.parametrize(("table", "column"), [("problems", "problem"), ("findings", "id"), ("runs", "run")])
def test_what_has_no_name_in_a_dataset_is_said_to_have_none(table: str, column: str, tmp_path: Path) -> None:
    """A dataset may be a stranger's: a cell without a value is no fault."""
    tables = made_run("2.9.0", 0)
    tables[table] = [row | {column: None} for row in tables[table]]
    for name in ("a", "b"):
        write(tables, tmp_path / "ds", name)
    shown, page = invoked("report", tmp_path / "ds"), invoked("report", tmp_path / "ds", "--format", "html")
    assert (shown.exit_code, page.exit_code) == (0, 0), shown.output + page.output
    assert "(no name)" in page.stdout
    assert table == "runs" or "(no name)" in shown.stdout


@pytest.mark.parametrize("name", ["version=evil", "a[b]", "a[b", "x*", "what?", "it's", "run=1/state=2", "{a,b}", "**"])
def test_the_name_of_a_datasets_folder_means_nothing(name: str, tmp_path: Path) -> None:
    """Neither a pattern nor a column; also of one file in it, and of the journal."""
    place = tmp_path / name / "ds[1]"
    run = {"run": "a[b]*", "version": "1.0", "state": "converted", "kernels": 3}
    write({"runs": [run]}, place, "a[b]*")
    write({"runs": [{**run, "run": "ab"}]}, tmp_path / name / "ds1", "ab")
    (place / "_runs.jsonl").write_text('{"run": "a[b]*", "state": "converted", "version": "1.0"}\n')
    for given in (place, next((place / "runs").iterdir())):
        with opened(str(given), SQL_COLUMNS) as dataset:
            assert dataset.ask("select run, version, state from runs").rows == [("a[b]*", "1.0", "converted")]
            assert len(dataset.ask("select * from runs").columns) == len(SQL_COLUMNS["runs"])
            assert dataset.ask("select run from journal").rows == ([("a[b]*",)] if given == place else [])


@pytest.mark.parametrize(
    ("column", "kind"),
    [("try", "DOUBLE"), ("run", "BIGINT"), ("rule", "BLOB"), ("ns", "VARCHAR"), ("share", "BLOB"), ("count", "DATE")],
)
def test_a_column_of_another_kind_than_stated_is_refused(dataset: Path, tmp_path: Path, column: str, kind: str) -> None:
    """The answer and the page trust in texts that are texts, and in numbers that are numbers."""
    copy = tmp_path / "ds"
    shutil.copytree(dataset, copy)
    file, *others = (copy / "findings").glob("*.parquet")
    for other in others:
        other.unlink()
    with connection() as database:
        cast = f'TRY_CAST("{column}" AS {kind}) AS "{column}"'
        changed = f"SELECT * REPLACE ({cast}) FROM read_parquet({sql_text(str(file))})"
        database.execute(f"COPY ({changed}) TO {sql_text(str(file) + '.new')} (FORMAT parquet)")
    os.replace(f"{file}.new", file)
    for form in ("text", "html"):
        said = stderr_of(invoked("report", copy, "--format", form), 1)
        assert f"ds: the column {column!r} of 'findings' holds {kind}; expected " in said
