"""A run as tables: the numbers are those of the tables that people print, and of the Parquet that holds them."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

import mio2trace
from mio2trace import dataset
from mio2trace.dataset import FOLDERS, TABLES, VERSION, file_name, tables_of, write_run
from mio2trace.dataset.rows import Data, numbers, of_pool, texts
from mio2trace.dataset.rows import of_rows as columns_of
from mio2trace.model import Column
from mio2trace.model.tables import Pool
from mio2trace.queries import opened
from mio2trace.reports import cell_text, in_unit, layers, ops
from mio2trace.reports.kernels import enqueue_table, spoken
from mio2trace.snapshot.database import connection, sql_text
from tests.commands import invoked, json_of, printed, stderr_of
from tests.conftest import ROOT, Golden
from tests.small_runs import as_json, benchmark

TRACES = {
    "alexnet": ("alexnet-b1-miopen29/run.log.gz", "alexnet-b1-miopen29/prof.json.gz"),
    "lenet": ("lenet-rocpd/run.log.gz", "lenet-rocpd/results.db.gz"),
    "squeezenet": ("squeezenet11-b1-libdnn-fwd/run.log", "squeezenet11-b1-libdnn-fwd/prof.json.gz"),
    "log alone": ("squeezenet11-b1-libdnn-fwd/run.log",),
    "profile alone": ("squeezenet11-b1-libdnn-fwd/prof.json.gz",),
}


def files_of(name: str) -> list[str]:
    return [str(ROOT / "traces" / path) for path in TRACES[name]]


@pytest.fixture(scope="module", params=["alexnet", "lenet", pytest.param("squeezenet", marks=pytest.mark.thorough)])
def analysis(request: pytest.FixtureRequest) -> mio2trace.Analysis:
    return mio2trace.analyse(files_of(request.param))


def rows_of(columns: Mapping[str, Data]) -> list[dict[str, Any]]:
    rows = zip(*(data.to_list() for data in columns.values()), strict=True)
    return [{name: cell for name, cell in zip(columns, row, strict=True) if cell is not None} for row in rows]


def test_kernels_are_those_of_the_printed_table(analysis: mio2trace.Analysis) -> None:
    """Row by row, column by column: `mio2trace kernels` and the table of the dataset say the same."""
    run = analysis.run
    assert run.alignment is not None
    printed = in_unit(enqueue_table(run.alignment.profile, run.alignment), "ns", spoken)
    rows = rows_of(tables_of(run)["kernels"])
    assert len(rows) == len(printed.rows) > 20
    names = set(printed.columns) & set(TABLES["kernels"].names)
    assert {"kernel_ns", "host_ns", "layer", "operation", "problem", "solver", "gws", "queue_wait_ns"} <= names
    for told, row in zip(printed.rows, rows, strict=True):
        assert {name: told[name] for name in names if name in told} == {
            name: row[name] for name in names if name in row
        }


def test_other_tables_are_those_that_are_printed(analysis: mio2trace.Analysis) -> None:
    """`mio2trace ops --each` and `--group-by problem`, `layers --each`, and the dataset, say the same."""
    run = analysis.run
    tables = tables_of(run)
    measures = run.measures[0]
    best = max(measures.alignment.logs, key=lambda log: len(log.layers), default=None)
    for name, shown in {
        "operations": ops.cost_table(run.operations, measures),
        "problems": ops.steady_table(run.operations, measures, ("problem",)),
        "layers": layers.execution_table([layers.Repetition(best, measures)]),
    }.items():
        for told, row in zip(shown.rows, rows_of(tables[name]), strict=True):
            cells = {
                key: cell if isinstance(cell, (str, int, float)) else cell_text(cell)
                for key, cell in told.items()
                if key in row and key != "sure"
            }
            ours = {key: row[key] for key in cells}
            assert ours == pytest.approx(cells) if name == "problems" else ours == cells


def test_parquet_holds_the_tables_as_they_are(analysis: mio2trace.Analysis, tmp_path: Path) -> None:
    """Every cell of every table, with types, names and version of the schema."""
    tables = tables_of(analysis.run, "a/b")
    counts = write_run(analysis.run, tmp_path, "a/b")
    for name, schema in TABLES.items():
        path = tmp_path / name / file_name("a/b")
        with duckdb.connect() as database:
            read = database.execute(f"select * from '{path}'")
            assert [column[0] for column in read.description or ()] == list(schema.names)
            cells = [*zip(*(data.to_list() for data in tables[name].values()), strict=True)]
            assert read.fetchall() == cells
            told = dict(database.execute(f"select key, value from parquet_kv_metadata('{path}')").fetchall())
        assert told[b"schema"] == str(VERSION).encode()
    assert counts["runs"] == 1


def test_the_same_run_gives_the_same_bytes(analysis: mio2trace.Analysis, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_run(analysis.run, tmp_path / folder, "run")
    of_a, of_b = (sorted((tmp_path / folder).rglob("*.parquet")) for folder in ("a", "b"))
    assert [path.read_bytes() for path in of_a] == [path.read_bytes() for path in of_b]
    assert [path.parent.name for path in of_a] == sorted(FOLDERS)


def test_a_table_without_rows_is_the_same_bytes_where_it_was_made_before(
    analysis: mio2trace.Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As each worker of a batch makes them; one that has no place for it writes each as it comes."""
    monkeypatch.setattr(dataset, "_empty", {})
    counts = write_run(analysis.run, tmp_path / "a", "run")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    dataset.keep_empty_tables()
    assert not dataset._empty
    monkeypatch.undo()
    monkeypatch.setattr(dataset, "_empty", {})
    dataset.keep_empty_tables()
    assert sorted(dataset._empty) == sorted(TABLES)
    assert 0 in counts.values()
    assert write_run(analysis.run, tmp_path / "b", "run") == counts
    of_a, of_b = (sorted((tmp_path / folder).rglob("*.parquet")) for folder in ("a", "b"))
    assert [path.read_bytes() for path in of_a] == [path.read_bytes() for path in of_b]


def test_a_failed_write_leaves_what_was_there(analysis: mio2trace.Analysis, tmp_path: Path) -> None:
    """A folder that is a file: one line that names it, and nothing half written."""
    (tmp_path / "kernels").write_bytes(b"mine")
    with pytest.raises(mio2trace.InputError, match="kernels"):
        write_run(analysis.run, tmp_path, "run")
    assert (tmp_path / "kernels").read_bytes() == b"mine"
    assert not list(tmp_path.rglob("*.tmp"))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["a/b", "../up", ".hidden", "a%2Fb", "", "ö ä", "a'b"])
def test_a_name_is_one_file_of_its_own(name: str) -> None:
    """No name of a run leads out of the folder, hides, or is another's."""
    file = file_name(name)
    assert "/" not in file
    assert file.endswith(".parquet")
    assert file == ".parquet" or not file.startswith(".")
    assert file not in {file_name(other) for other in ("a", "b", "a-b", "%2e%2e") if other != name}


def test_what_is_unknown_is_null() -> None:
    """None, and numbers that no 64 bits hold."""
    assert numbers(Column("flop", "int", ""), [1, None, 1 << 70, -3]).to_list() == [1, None, None, -3]
    words = texts(Column("name", "text", ""), ["a", None, "b", "a"])
    assert words.to_list() == ["a", None, "b", "a"]
    assert numbers(Column("sure", "flag", ""), [True, None, False]).to_list() == [True, None, False]
    assert list(words.words) == ["a", "b"]


@pytest.mark.parametrize("rows", [100, 1 << 14])
@pytest.mark.parametrize(
    "words",
    [
        ["a"],
        ["", "a'b", '"', "\n", "\\", "$w1", "é", "\U0001f600", "x" * 5000],
        ["a\0b", "\0"],
        [*map(str, range(1001))],
    ],
    ids=["one", "odd", "zero bytes", "many"],
)
def test_texts_of_few_and_of_many_rows_come_back(words: Sequence[str], rows: int, tmp_path: Path) -> None:
    """Those of a large table are written as numbers. A file says the same of them as of others."""
    cells = [None if row % 7 == 3 else words[row % len(words)] for row in range(rows)]
    row_of = ({"name": cell, "run": words[0], "line": row} for row, cell in enumerate(cells))
    table = columns_of(TABLES["kernels"], [*row_of])
    table["run"] = of_pool(table["run"].column, Pool.same(words[0], rows))
    dataset.write_tables({"kernels": table}, tmp_path, "a")
    with contextlib.closing(connection()) as database:
        kernels = sql_text(tmp_path / "kernels" / "a.parquet")
        found = database.execute(f"SELECT name, run, layer FROM {kernels} ORDER BY line").fetchall()
        assert found == [(cell, words[0], None) for cell in cells]
        types = database.execute(
            f"SELECT DISTINCT type, converted_type, logical_type FROM parquet_schema({kernels})"
            " WHERE name IN ('name', 'run', 'layer')"
        ).fetchall()
        assert types == [("BYTE_ARRAY", "UTF8", None)]


def test_the_page_is_the_schema(golden: Golden) -> None:
    """docs/schema.md names the version, every table and column with its type, unit and meaning."""
    path = ROOT / "docs" / "schema.md"
    head, *_, tail = re.split(r"(?m)^(?=## )", path.read_text("utf-8"))
    page = re.sub(r"(?<=The version of this schema is )\d+", str(VERSION), head)
    for schema in TABLES.values():
        page += f"## {schema.name}\n\nA row is {schema.row}.\n\n| column | type | unit | |\n|---|---|---|---|\n"
        for column in schema.columns:
            page += f"| `{column.name}` | {column.kind} | {column.unit} | {column.meaning} |\n"
        page += "\n"
    assert tail.startswith("## snapshot\n")
    golden(path, (page + tail).encode())


# -- A run that is kept as tables is an input like its files: every table, report and comparison is the same.


TWINS = {
    "two ranks": ("resnet-immediate-2ranks/rocpd/merged.db.gz", "resnet-immediate-2ranks/run.log"),
    "kineto": ("resnet-train-miopen-2threads/kineto/rank0.pt.trace.json.gz",),
    "graph": ("alexnet-10it-graph/rpd/trace.rpd.gz", "alexnet-10it-graph/run.hip.log"),
}
QUESTIONS = (
    ("report", "--format", "html"),
    ("report", "--format", "markdown", "--gpu", "MI300X"),
    ("report", "--format", "json"),
    ("layers",),
    ("layers", "--each", "--format", "csv"),
    ("layers", "--times"),
    ("kernels",),
    ("kernels", "--raw"),
    ("kernels", "--by", "name"),
    ("kernels", "--by", "layer", "--format", "json"),
    ("kernels", "--by", "bucket"),
    ("kernels", "--by", "repetition"),
    ("kernels", "--gemm"),
    ("ops",),
    ("ops", "--each", "--format", "jsonl"),
    ("ops", "--group-by", "problem"),
    ("driver",),
)


ALEXNET = files_of("alexnet")


@pytest.fixture(scope="module")
def alexnet(tmp_path_factory: pytest.TempPathFactory) -> str:
    return kept(ALEXNET, tmp_path_factory.mktemp("alexnet") / "run.parquet")


SOME = QUESTIONS[::3]
"""Where others ask all of them."""


def kept(files: list[str], folder: Path, *options: str) -> str:
    """The dataset of the files."""
    written = invoked(*files, "-o", str(folder), "-q", *options)
    assert (written.exit_code, written.stdout) == (0, ""), written.output
    return str(folder)


def assert_equal_answers(files: list[str], folder: Path, questions: Sequence[tuple[str, ...]] = SOME) -> None:
    """Of every command on the files and on their dataset: what is printed, and whether it is refused."""
    dataset = kept(files, folder / "run.parquet")
    answered = 0
    for command, *options in questions:
        of_files, of_dataset = invoked(command, *files, *options), invoked(command, dataset, *options)
        assert of_dataset.stdout == of_files.stdout, (command, options)
        assert of_dataset.exit_code == of_files.exit_code, (command, options, of_dataset.output)
        answered += not of_files.exit_code
    assert answered > len(questions) // 5


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough) if name == "squeezenet" else name for name in TRACES]
)
def test_every_table_and_report_is_that_of_the_sources(name: str, tmp_path: Path) -> None:
    questions = QUESTIONS if name == "alexnet" else QUESTIONS[::2] if name == "squeezenet" else SOME
    assert_equal_answers(files_of(name), tmp_path, questions)


@pytest.mark.shared
@pytest.mark.parametrize("name", TWINS)
def test_so_it_is_of_jobs_graphs_and_frameworks(name: str, tmp_path: Path, shared: Path) -> None:
    assert_equal_answers([str(shared / "samples" / "rocm-twins" / path) for path in TWINS[name]], tmp_path)


@pytest.mark.shared
def test_so_it_is_of_all_repetitions_of_a_record(tmp_path: Path, shared: Path) -> None:
    """Commands that take all of them do, those that take one take the same one."""
    folder = shared / "samples" / "ck" / "ck-caffe-firefly-rk3399" / "experiment" / "bvlc-alexnet-opencl-clblast"
    record = str(folder / "ckp-041dbee61c949c9a.0001.json")
    assert_equal_answers([record], tmp_path, QUESTIONS)
    for number in ("0", "2", "7"):
        of_record = invoked("layers", record, "--repetition", number)
        of_dataset = invoked("layers", str(tmp_path / "run.parquet"), "--repetition", number)
        assert (of_dataset.stdout, of_dataset.exit_code) == (of_record.stdout, of_record.exit_code)


def test_a_comparison_and_a_query_are_those_of_the_sources(alexnet: str, tmp_path: Path) -> None:
    """Part by part: matches, times, verdicts, causes. This includes queries about the picture of a run."""
    other = files_of("squeezenet")
    sides = (",".join(ALEXNET), ",".join(other)), (alexnet, kept(other, tmp_path / "other.parquet"))
    expected, told = (json_of("compare", *pair) for pair in sides)
    for side in ("a", "b"):
        assert told[side].pop("name") != expected[side].pop("name")
    assert told == expected
    assert json.dumps(told).count('"part"') > 20
    for question in ("slowest layers", "slowest operations", "iterations", "evidence", "doubts"):
        of_files, of_dataset = (invoked("query", *given, question) for given in (ALEXNET, [alexnet]))
        assert (of_dataset.exit_code, of_dataset.stdout) == (0, of_files.stdout), question


def test_a_dataset_is_not_replaced_by_what_is_read_of_it(tmp_path: Path) -> None:
    """Neither by itself nor by one of its runs."""
    files = files_of("log alone")
    folder = kept(files, tmp_path / "run.parquet")
    (one,) = Path(folder, "runs").iterdir()
    for given in (folder, str(one)):
        assert "is also an input" in stderr_of(invoked(given, "-o", folder), 2)
    assert [path.name for path in tmp_path.iterdir()] == ["run.parquet"]


def test_a_trace_tables_and_a_page_of_one_reading_are_those_of_three(tmp_path: Path) -> None:
    """Byte by byte. Two outputs of one kind are refused."""
    names = ["out.pftrace", "out.parquet", "out.html"]
    contents = []
    for folder in (tmp_path / "together", tmp_path / "alone"):
        folder.mkdir()
        given = [word for name in names for word in ("-o", str(folder / name))]
        if folder.name == "together":
            said = stderr_of(invoked(*ALEXNET, *given), 0)
            wrote = [line for line in said.splitlines() if line.startswith("wrote ")]
            assert [sum(name in line for line in wrote) for name in names] == [1, 1, 1]
        else:
            assert [invoked(*ALEXNET, "-q", *given[at : at + 2]).exit_code for at in (0, 2, 4)] == [0, 0, 0]
        files = [path for path in folder.rglob("*") if path.is_file()]
        contents.append({path.relative_to(folder): path.read_bytes() for path in files})
    assert contents[0] == contents[1]
    assert "expected one output of each kind" in stderr_of(invoked(*ALEXNET, *given, "-o", str(tmp_path / "b.html")), 2)
    assert not (tmp_path / "b.html").exists()


@pytest.mark.parametrize("given", ["convert", "report", "convert -o t.parquet"])
def test_no_report_is_written_over_an_input(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may have the name of a page."""
    monkeypatch.chdir(tmp_path)
    log = (ROOT / "traces" / TRACES["log alone"][0]).read_bytes()
    Path("run.html").write_bytes(log)
    assert "run.html is also an input" in stderr_of(invoked(*given.split(), "run.html", "-o", "run.html"), 2)
    assert [path.name for path in tmp_path.iterdir()] == ["run.html"]
    assert Path("run.html").read_bytes() == log


def test_with_strict_nothing_is_written_beside_a_refused_trace(tmp_path: Path) -> None:
    """A problem of the inputs is found before the first output."""
    cut = tmp_path / "run.log.gz"
    cut.write_bytes(Path(ALEXNET[0]).read_bytes()[:-400])
    done = invoked(str(cut), "--strict", "-o", str(tmp_path / "a.json"), "-o", str(tmp_path / "a.parquet"))
    assert (done.exit_code, "--strict" in done.stderr) == (1, True), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run.log.gz"]


def test_several_runs_are_a_dataset_of_several(tmp_path: Path) -> None:
    """Each by its name; one of them is asked for by its file."""
    other = files_of("squeezenet")
    folder = tmp_path / "runs.parquet"
    assert "files of 2 runs" in stderr_of(invoked(*ALEXNET, *other, "-o", str(folder), "-q"), 1)
    kept([*ALEXNET, *other], folder, "--several")
    written = [str(path) for path in (folder / "runs").iterdir()]
    assert len(written) == 2
    assert invoked("kernels", *other).stdout in [invoked("kernels", path).stdout for path in written]


def test_a_conversion_says_the_same_and_a_bundle_is_refused(alexnet: str, tmp_path: Path) -> None:
    """In the same order, whichever file was given first; a bundle holds the log, which no dataset has."""
    said = [invoked(*given, "-o", str(tmp_path / "out.json")).stderr for given in (ALEXNET, [alexnet])]
    assert said[0] == said[1] != ""
    refused = invoked("bundle", alexnet, "-o", str(tmp_path / "b.zip"))
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "is a dataset; expected the files" in refused.stderr


@pytest.mark.shared
def test_of_a_job_whose_clocks_nothing_relates_the_advice_holds(tmp_path: Path, shared: Path) -> None:
    """`--align start` draws it as it does the files; a query needs no option."""
    files = str(shared / "samples" / "rocm-twins" / "resnet-immediate-2ranks" / "rocprofv3-csv")
    folder = kept([files], tmp_path / "run.parquet")
    output = tmp_path / "out.json"
    assert "--align start" in stderr_of(invoked(folder, "-o", str(output), "-q"), 1)
    drawn = []
    for given in (files, folder):
        assert invoked(given, "-o", str(output), "-q", "--align", "start").exit_code == 0
        drawn.append((output.read_bytes(), invoked("query", given, "iterations").stdout))
    assert drawn[0] == drawn[1]
    assert drawn[0][1] != ""


def test_what_a_dataset_does_not_keep_is_said(alexnet: str, tmp_path: Path) -> None:
    """Calls that it was not written with, and reasons."""
    kernel = json_of("kernels", *ALEXNET)[0]["call_index"]
    for options in (["--host-calls", "all"], ["--explain", f"kernel {kernel}"]):
        said = [invoked(*given, "-o", str(tmp_path / "o.json"), *options) for given in (ALEXNET, [alexnet])]
        assert ["note: dataset: only" in result.stderr for result in said] == [False, True], said[1].output


def test_of_profiles_without_logs_none_stands_for_all(warm: None, tmp_path: Path) -> None:
    """As of complete runs: a dataset of several is refused where one is expected."""
    for name, path in (("a", "lenet-rocpd/results.db.gz"), ("b", "squeezenet11-b1-libdnn-fwd/prof.json.gz")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        shutil.copy(ROOT / "traces" / path, tmp_path / "runs" / name)
    folder = str(tmp_path / "ds")
    assert invoked("batch", tmp_path / "runs", "-o", folder).exit_code == 0
    for command in (["kernels"], ["layers"], ["convert", "-o", str(tmp_path / "out.json")]):
        assert "files of 2 runs: runs/a, runs/b" in stderr_of(invoked(*command, folder), 1)
    assert invoked("kernels", str(tmp_path / "ds" / "runs" / "runs%2Fb.parquet")).exit_code == 0
    printed(folder, "-o", tmp_path / "out.json", "--several")


# -- Tables of a dataset that claim more than their files hold: equal values take no space in Parquet.


MOST_SECONDS = 5
MOST_MEMORY = 1600 << 10
"""KiB."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("written")
    calls, log = benchmark()
    (top / "prof.json").write_bytes(as_json(calls))
    (top / "run.log").write_text(log)
    words = [*map(str, (top / "prof.json", top / "run.log")), "-o", str(top / "ds.parquet")]
    assert invoked(*words).exit_code == 0
    return top / "ds.parquet"


def with_table(written: Path, place: Path, table: str, rows: str) -> int:
    """The dataset with other rows in a table; bytes of that."""
    shutil.copytree(written, place)
    (path,) = (place / table).iterdir()
    path.write_bytes(of_rows(path.relative_to(place), written, rows))
    return path.stat().st_size


@functools.cache
def of_rows(name: Path, written: Path, rows: str) -> bytes:
    with contextlib.closing(connection()) as database, tempfile.NamedTemporaryFile() as file:
        selected = rows.format(of=f"read_parquet({sql_text(written / name)})")
        options = "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 10000000"
        database.execute(f"COPY ({selected}) TO {sql_text(Path(file.name))} ({options})")
        return Path(file.name).read_bytes()


@pytest.mark.parametrize(
    ("table", "rows", "sql", "said"),
    [
        ("runs", "SELECT t.* FROM {of} t, range(200000)", "failures", "200000 rows of 'runs' in "),
        pytest.param("runs", "SELECT t.* FROM {of} t, range(200000)", "select RUN from Runs",
                     "200000 rows of 'runs' in ", marks=pytest.mark.thorough),
        ("kernels", "SELECT t.* FROM {of} t, range(60000)", "select * from kernels limit 1", " rows of 'kernels' in "),
        ("kernels", "SELECT t.* FROM {of} t, range(20000)", "select * from kernels", "ask for fewer rows"),
        ("runs", "SELECT *, list_resize([1], 1000000, 1) AS more FROM {of}", "select * from runs", "holds lists"),
        ("runs", "SELECT *, {{'a': range(3)}} AS more FROM {of}", "select 1", "holds lists"),
        ("runs", "SELECT t.* REPLACE (repeat('x', 100000) AS device) FROM {of} t, range(3000)",
         "select device from runs", "1000 times what the dataset does"),
    ],
)  # fmt: skip
def test_a_table_that_claims_more_than_it_can_hold_is_refused(
    table: str, rows: str, sql: str, said: str, written: Path, tmp_path: Path
) -> None:
    """In time and memory of its bytes."""
    assert with_table(written, tmp_path / "ds", table, rows) < 60_000
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    found = invoked("query", tmp_path / "ds", sql)
    assert (found.exit_code, found.stderr.count("\n")) == (1, 1), found.output[:500]
    assert said in found.stderr
    assert time.process_time() - began < MOST_SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MEMORY


def test_the_page_of_such_a_dataset_is_refused_too(written: Path, tmp_path: Path) -> None:
    with_table(written, tmp_path / "ds", "runs", "SELECT t.* FROM {of} t, range(200000)")
    shutil.copy(next((written / "runs").iterdir()), tmp_path / "ds" / "runs" / "b.parquet")
    assert "200001 rows of 'runs' in " in stderr_of(invoked("report", str(tmp_path / "ds"), "--format", "text"), 1)


def test_equal_rows_that_a_run_may_have_are_read(written: Path, tmp_path: Path) -> None:
    """Some hundred equal rows, and text of a name a thousand times; more are counted, which a byte for 20 may be."""
    size = with_table(written, tmp_path / "many", "kernels", "SELECT t.* FROM {of} t, range(20000)")
    with_table(written, tmp_path / "ds", "kernels", "SELECT t.* FROM {of} t, range(500)")
    for name, most in (("ds", 1000), ("many", 20 * size)):
        with opened(str(tmp_path / name), {"runs": {}, "kernels": {}}) as dataset:
            ((count,),) = dataset.ask("select count(kernel_ns) from kernels").rows
            assert count > most
            assert name == "many" or len(dataset.ask("select * from kernels").rows) == count
