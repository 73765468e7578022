"""Many runs: stored questions over a dataset, answered as counted by hand; one page of a fleet."""

from __future__ import annotations

import json
import os
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import html5lib
import pytest
from click.testing import CliRunner, Result

from mio2trace import fleet
from mio2trace import fleet as fleet_page
from mio2trace.cli import cli
from mio2trace.dataset import TABLES, write_tables
from mio2trace.dataset.rows import failed_run, of_rows
from mio2trace.queries import DATASET, opened, shipped
from mio2trace.schema import SQL_COLUMNS
from mio2trace.snapshot.database import connection, sql_text
from tests.conftest import ROOT

MS = 1_000_000
CONV, POOL = "Conv fwd 1x3x8x8 -> 1x4x8x8 k3x3", "Pool fwd 1x4x8x8 -> 1x4x4x4 k2x2"
SLOWER = {"2.9.0": 1.0, "2.10.0": 1.0, "2.20.0": 1.5}
"""Of the convolution, by version; as text 2.10 would stand before 2.9."""
ODD_ONE = "2.10.0/run3"
NAMES = (
    "runs", "slowest problems", "regressions", "heat map", "outlier runs", "failures", "what is odd", "kernels of runs",
    "layers of runs", "stragglers",
)  # fmt: skip


def made_run(version: str, number: int) -> dict[str, list[dict[str, Any]]]:
    """Four iterations, the first cold, of a convolution and a pooling."""
    run = f"{version}/run{number}"
    of = {"run": run}
    factor = 3.0 if run == ODD_ONE else 1 + number / 1000
    conv, pool = (MS * ms * factor * slower for ms, slower in ((8, SLOWER[version]), (2, 1.0)))
    iterations = [
        {**of, "iteration": at, "steady": at > 1, "kernels": 2, "kernel_ns": int((conv + pool) * (4 if at == 1 else 1))}
        for at in range(1, 5)
    ]
    problems = [
        {
            **of,
            "problem": problem,
            "primitive": kind,
            "kernel_ns": ns,
            "percent_of_kernel_time": 100 * ns / (conv + pool),
            "calls": 1,
        }
        for problem, kind, ns in ((CONV, "conv", conv), (POOL, "pool", pool))
    ]
    kernels = [
        {**of, "name": name, "kernel_ns": int(ns), "iteration": at}
        for at in range(1, 5)
        for name, ns in (("conv_kernel", conv), ("pool_kernel", pool))
    ]
    layers = [
        {**of, "iteration": at, "layer": "conv1", "direction": "forward", "kernel_ns": int(conv)} for at in range(5)
    ]
    row = {
        **of, "version": version, "device": "gfx90a", "iterations": 4, "steady_iterations": 3, "kernels": 8,
        "kernel_ns": conv + pool, "whole_ns": int(8 * (conv + pool)), "find_ns": 0,
    }  # fmt: skip
    findings = [{**of, "id": "naive-solver", "severity": "high", "ns": int(conv), "share": 0.8, "try": "Install a db."}]
    return {
        "runs": [row], "iterations": iterations, "problems": problems, "kernels": kernels, "layers": layers,
        "findings": findings, "copies": [], "operations": [],
    }  # fmt: skip


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "ds"
    for version in SLOWER:
        for number in range(5):
            tables = made_run(version, number)
            columns = {name: of_rows(TABLES[name], rows) for name, rows in tables.items()}
            write_tables(columns, folder, f"{version}/run{number}")
    journal = [
        {"run": "2.9.0/late", "state": "failed", "error": "first try", "seconds": 1, "ended": 10, "version": "x"},
        {"run": "2.9.0/late", "state": "converted", "seconds": 1, "ended": 30, "version": "x"},
        {"run": "2.9.0/bad", "state": "converted", "seconds": 1, "ended": 5, "version": "x"},
        {
            "run": "2.9.0/bad",
            "state": "failed",
            "error": "prof.db: cut off",
            "seconds": 2.5,
            "ended": 20,
            "version": "x",
        },
    ]
    lines = [json.dumps(entry) for entry in journal]
    (folder / "_runs.jsonl").write_text("\n".join([*lines[:3], '{"run": "2.9.0/bad", "sta', ""]))
    (folder / "_runs.1-of-2.jsonl").write_text(lines[3] + "\n")
    return folder


def call(*args: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, args)))


def rows_of(dataset: Path, question: str) -> list[dict[str, Any]]:
    result = call("query", dataset, question, "--format", "json")
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


def test_the_questions_are_these() -> None:
    """Names are a public interface; each says what it answers, is documented, and listed."""
    queries = shipped(DATASET)
    assert tuple(queries) == NAMES
    assert not set(queries) & set(shipped())
    documented = (ROOT / "docs" / "queries.md").read_text("utf-8")
    listed = call("query", "--list", "--format", "csv").stdout
    for query in queries.values():
        assert query.about.endswith(".")
        assert f"`{query.name}`" in documented
        assert f"{query.name},dataset," in listed


@pytest.mark.parametrize("name", [name for name in NAMES if name != "stragglers"])
def test_every_question_has_an_answer(dataset: Path, name: str) -> None:
    assert rows_of(dataset, name)


def test_the_slowest_problem_is_that_of_all_runs(dataset: Path) -> None:
    first, second = rows_of(dataset, "slowest problems")
    assert (first["problem"], second["problem"]) == (CONV, POOL)
    assert (first["runs"], first["slowest_run"]) == (15, ODD_ONE)
    assert first["kernel_ms"] == pytest.approx(8 * 1.004, abs=0.01)
    assert first["most_ms"] == pytest.approx(24)


def test_a_version_is_compared_with_the_one_before_it(dataset: Path) -> None:
    """In the order of their numbers; and only what is slower."""
    (row,) = rows_of(dataset, "regressions")
    assert (row["problem"], row["before"], row["version"]) == (CONV, "2.10.0", "2.20.0")
    assert row["ratio"] == pytest.approx(1.5, abs=0.005)
    assert row["clear"] is True, "one run does not hide what the others show"
    assert row["runs"] == "5 / 5"


def test_few_runs_decide_nothing_and_kinds_of_gpu_are_not_mixed(tmp_path: Path) -> None:
    """Two runs per version; one more of another GPU; in one run the problem has no kernels."""
    for version, number, device, factor in (
        ("1.0", 0, "A", 1), ("1.0", 1, "A", 1), ("1.0", 2, "A", 0), ("2.0", 0, "A", 2), ("2.0", 1, "A", 2),
        ("1.0", 3, "B", 9), ("2.0", 3, "B", 9),
    ):  # fmt: skip
        made = made_run("2.9.0", number)
        run = f"{version}/run{number}"
        for rows in made.values():
            for row in rows:
                row |= {"run": run} | ({"version": version, "device": device} if rows is made["runs"] else {})
        for row in made["problems"]:
            row["kernel_ns"] = 8 * MS * factor
        write_tables({name: of_rows(TABLES[name], rows) for name, rows in made.items()}, tmp_path / "ds", run)
    slower = rows_of(tmp_path / "ds", "regressions")
    assert {(row["problem"], row["ratio"], row["runs"], row["device"]) for row in slower} == {
        (CONV, 2, "2 / 2", "A"), (POOL, 2, "2 / 2", "A"),
    }  # fmt: skip
    assert not any("clear" in row for row in slower), "null"
    assert "slower than in the version before, but fewer than 3 runs of a version decide nothing" in " ".join(
        call("report", tmp_path / "ds").stdout.split()
    )
    call("report", tmp_path / "ds", "-o", tmp_path / "fleet.html")
    page = html5lib.HTMLParser(namespaceHTMLElements=False).parse((tmp_path / "fleet.html").read_text("utf-8"))
    table = [[" ".join("".join(cell.itertext()).split()) for cell in row] for row in page.find(".//table").iter("tr")]
    assert [row[:4] for row in table if CONV in row[0]] == [
        [f"{CONV} on B", "72.000", "72.000", "1.00"], [f"{CONV} on A", "8.000", "16.000", "2.00"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("run", "version"),
    [("runs/rocm-7.0/resnet50", "rocm-7.0"), ("2024/nightly/a", "2024"), ("nightly/run3", None), ("run3", None)],
)
def test_a_version_is_the_innermost_folder_with_a_digit(run: str, version: str | None) -> None:
    assert [*failed_run(run, "gone")["version"].words] == ([version] if version else [])


def test_the_advice_is_that_of_the_worst_run(tmp_path: Path) -> None:
    """The most severe one, not the one with most time."""
    for number, (severity, ns) in enumerate((("medium", 9 * MS), ("high", 2 * MS), ("low", MS))):
        made = made_run("2.9.0", number)
        made["findings"][0] |= {"severity": severity, "ns": ns, "try": f"do {severity}"}
        write_tables(
            {name: of_rows(TABLES[name], rows) for name, rows in made.items()}, tmp_path / "ds", f"a/run{number}"
        )
    (row,) = rows_of(tmp_path / "ds", "what is odd")
    assert (row["severity"], row["advice"], row["worst_ms"], row["runs"]) == ("high", "do high", 2, 3)


def test_a_name_that_is_missing_is_said() -> None:
    """Somebody else may have written a table with none: what the page prints as a name has a word for it."""
    printed = set(re.findall(r"shortened\(row\['(\w+)'\],", Path(fleet_page.__file__).read_text("utf-8")))
    assert printed
    assert all(isinstance(fleet._named(column, None), str) for column in printed)


def test_an_outlier_is_a_run_unlike_its_like(dataset: Path) -> None:
    """With the same problems, of the same version and device: one that is slower as a whole has none."""
    (row,) = rows_of(dataset, "outlier runs")
    assert row["run"] == ODD_ONE
    assert row["ratio"] == pytest.approx(3, abs=0.02)


def test_a_table_that_an_older_version_did_not_write_has_no_rows(dataset: Path) -> None:
    """It has its columns; without the table of runs there is no dataset."""
    assert not (dataset / "ranks").exists()
    assert rows_of(dataset, "select count(rank) as n from ranks") == [{"n": 0}]
    result = call("query", dataset / "kernels", "runs")
    assert (result.exit_code, "no dataset" in result.stderr) == (1, True)


def test_the_rank_that_the_others_wait_for_longest_is_first(tmp_path: Path) -> None:
    made = made_run("2.9.0", 0)
    cells = {"run": "job", "collectives": 9, "transfer_ns": 5 * MS}
    made["ranks"] = [
        {**cells, "rank": 0, "wait_ns": 7 * MS, "times_arrived_last": 1, "late_ns": MS},
        {**cells, "rank": 1, "wait_ns": MS, "times_arrived_last": 8, "late_ns": 7 * MS, "made_late_by": "conv2"},
    ]
    write_tables({name: of_rows(TABLES[name], rows) for name, rows in made.items()}, tmp_path / "ds", "job")
    rows = rows_of(tmp_path / "ds", "stragglers")
    assert [(row["rank"], row["late_ms"], row.get("made_late_by")) for row in rows] == [(1, 7, "conv2"), (0, 1, None)]


def test_the_last_line_of_a_journal_counts(dataset: Path) -> None:
    """Of all journals; a line that is cut off is none."""
    assert rows_of(dataset, "failures") == [{"run": "2.9.0/bad", "error": "prof.db: cut off", "seconds": 2.5}]


def test_the_heat_map_has_a_letter_an_iteration(dataset: Path) -> None:
    """The cold one is full, steady ones that are alike are empty."""
    rows = rows_of(dataset, "heat map")
    assert len(rows) == 15
    assert {row["heat"] for row in rows} == {"█▁▁▁"}
    assert all(row["slowest"] == 1 for row in rows)


def test_layers_and_kernels_are_counted_over_all_runs(dataset: Path) -> None:
    (layer,) = rows_of(dataset, "layers of runs")
    assert (layer["layer"], layer["runs"], layer["slowest_run"]) == ("conv1", 15, ODD_ONE)
    kernels = rows_of(dataset, "kernels of runs")
    assert [(row["kernel"], row["calls"], row["runs"]) for row in kernels] == [
        ("conv_kernel", 60, 15), ("pool_kernel", 60, 15),
    ]  # fmt: skip
    (odd,) = rows_of(dataset, "what is odd")
    assert (odd["id"], odd["runs"], odd["severity"]) == ("naive-solver", 15, "high")


def test_any_select_is_answered(dataset: Path) -> None:
    """Over all runs, or the one that a file is of."""
    assert rows_of(dataset, "select count(*) as n from kernels") == [{"n": 120}]
    one = next((dataset / "runs").iterdir())
    assert rows_of(one, "select count(*) as n from kernels") == [{"n": 8}]


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
    """One line, exit code 1."""
    (tmp_path / "outside.csv").write_text("a\n1\n")
    result = call("query", dataset, sql.format(outside=tmp_path / "outside.csv"))
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_question_about_datasets_is_of_no_trace(dataset: Path) -> None:
    """And what a dataset has no runs for says so."""
    result = call("query", ROOT / "traces" / "squeezenet11-b1-libdnn-fwd" / "run.log", "slowest problems")
    assert (result.exit_code, "no dataset" in result.stderr) == (1, True)
    for command in (("query", dataset, "slowest layers"), ("layers", dataset), ("compare", dataset, dataset)):
        result = call(*command)
        assert (result.exit_code, "tables alone" in result.stderr) == (1, True), result.output


def test_a_fleet_is_one_page(dataset: Path, tmp_path: Path) -> None:
    """Problems over versions, what is slower, outliers, iterations, failures; without script, escaped."""
    result = call("report", dataset, "-o", tmp_path / "fleet.html")
    assert result.exit_code == 0, result.output
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
    result = call("report", dataset)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("15 runs of 3 versions; ")
    assert f"outliers    {ODD_ONE}" in result.stdout
    lines = result.stdout.splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 78
    (slow,) = [line for line in lines if line.startswith("slower")]
    assert slow.split()[-4:] == ["1.50", "2.10.0", "->", "2.20.0"]
    problems = [line[12:45].strip() for line in lines if re.search(r"\d \(?.* runs", line) and line[12:45].strip()]
    assert len(set(problems)) == len(problems)
    assert "failed      2.9.0/bad: prof.db: cut off" in result.stdout
    refused = call("report", dataset, "--format", "json")
    assert (refused.exit_code, "for one run" in refused.stderr) == (2, True)


@pytest.mark.parametrize("absent", [("problems", "problem"), ("findings", "id"), ("runs", "run")])
def test_what_has_no_name_in_a_dataset_is_said_to_have_none(absent: tuple[str, str], tmp_path: Path) -> None:
    """A dataset may be a stranger's: a cell without a value is no fault."""
    table, column = absent
    tables = made_run("2.9.0", 0)
    tables[table] = [row | {column: None} for row in tables[table]]
    for name in ("a", "b"):
        write_tables({one: of_rows(TABLES[one], rows) for one, rows in tables.items()}, tmp_path / "ds", name)
    shown, page = call("report", tmp_path / "ds"), call("report", tmp_path / "ds", "--format", "html")
    assert (shown.exit_code, page.exit_code) == (0, 0), shown.output + page.output
    assert "(no name)" in page.stdout
    assert table == "runs" or "(no name)" in shown.stdout


@pytest.mark.parametrize("name", ["version=evil", "a[b]", "a[b", "x*", "what?", "it's", "run=1/state=2", "{a,b}", "**"])
def test_the_name_of_a_datasets_folder_means_nothing(name: str, tmp_path: Path) -> None:
    """Neither a pattern nor a column; also of one file in it, and of the journal."""
    place = tmp_path / name / "ds[1]"
    run = {"run": "a[b]*", "version": "1.0", "state": "converted", "kernels": 3}
    write_tables({"runs": of_rows(TABLES["runs"], [run])}, place, "a[b]*")
    write_tables({"runs": of_rows(TABLES["runs"], [{**run, "run": "ab"}])}, tmp_path / name / "ds1", "ab")
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
def test_a_column_of_another_kind_than_the_schema_says_is_refused(
    dataset: Path, tmp_path: Path, column: str, kind: str
) -> None:
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
        result = CliRunner().invoke(cli, ["report", str(copy), "--format", form])
        assert result.exit_code == 1, result.output
        assert f"ds: the column {column!r} of 'findings' holds {kind}; expected " in result.stderr
