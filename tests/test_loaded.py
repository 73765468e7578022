"""A run in Python: tables that every data frame takes, a report in the cell, tables and traces written."""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import html5lib
import polars
import pyarrow
import pytest

import mio2trace
from mio2trace.schema import TABLES
from tests.conftest import ROOT

FILES = [ROOT / "traces" / "alexnet-b1-miopen29" / name for name in ("run.log.gz", "prof.json.gz")]


@pytest.fixture(scope="module")
def run() -> mio2trace.LoadedRun:
    return mio2trace.load(*FILES)


def tables_of(run: mio2trace.LoadedRun) -> dict[str, mio2trace.Table]:
    return {name: run.problems() if name == "problems" else getattr(run, name) for name in TABLES}


def test_every_table_of_the_schema_is_there(run: mio2trace.LoadedRun) -> None:
    """With its columns, its length, its rows as dicts of all columns."""
    for name, table in tables_of(run).items():
        rows = table.to_dicts()
        assert len(table) == len(rows)
        assert bool(rows) == (name != "ranks"), "the run is of one process"
        assert table.columns == TABLES[name].names
        assert all(tuple(row) == table.columns for row in rows)
        assert table.head(1).to_dicts() == rows[:1]
        assert table.column("run") == [row["run"] for row in rows]
        assert f"{len(rows)} row{'s' * (len(rows) != 1)} of" in repr(table)


def test_pandas_has_the_same_cells(run: mio2trace.LoadedRun, pandas: Any) -> None:
    """With types that know what is unknown; numbers stay whole."""
    frame = run.kernels.to_pandas()
    assert list(frame.columns) == list(run.kernels.columns)
    assert str(frame["iteration"].dtype) == "Int64"
    rows = [
        {name: None if pandas.isna(cell) else cell for name, cell in row.items()} for row in frame.to_dict("records")
    ]
    assert rows == run.kernels.to_dicts()


def test_what_takes_arrow_takes_a_table(run: mio2trace.LoadedRun) -> None:
    """Polars, PyArrow and DuckDB see the same cells, with types, nulls, texts and flags."""
    for table in tables_of(run).values():
        rows = table.to_dicts()
        assert table.to_polars().rows(named=True) == rows
        assert pyarrow.table(table).to_pylist() == rows
    assert polars.DataFrame(run.kernels).schema["sure"] == polars.Boolean
    operations = run.operations
    with duckdb.connect() as database:
        database.register("operations", operations)
        answer = database.execute("select count(*), count(solver) from operations").fetchone()
    assert answer == (len(operations), sum(solver is not None for solver in operations.column("solver")))


def test_a_notebook_shows_a_table(run: mio2trace.LoadedRun) -> None:
    """Its first rows, numbers to the right, without columns in which nothing is known; markup is no markup."""
    html = run.operations._repr_html_()
    html5lib.HTMLParser(strict=True).parse(f"<!DOCTYPE html><title>x</title>{html.partition('</style>')[2]}")
    assert html.count("<tr>") == 1 + min(20, len(run.operations))
    assert 'class="number" title="Conv' not in html
    assert "<th>problem</th>" not in html, "a head says what its column means"
    assert re.search(r'<th title="[^"]+">problem</th>', html)
    assert "-&gt;" in html
    assert ">groups<" not in html or any(run.operations.column("groups"))


def test_a_notebook_shows_the_report(run: mio2trace.LoadedRun) -> None:
    """In a frame without script, whole."""
    html = run._repr_html_()
    frame = html5lib.parse(html, namespaceHTMLElements=False).find(".//iframe")
    assert frame.attrib["sandbox"] == ""
    assert frame.attrib["srcdoc"].startswith("<!DOCTYPE html>")
    assert "of kernels" in frame.attrib["srcdoc"]
    assert repr(run).startswith("<LoadedRun 'prof' of ")


def test_a_run_is_written_and_loaded_again(run: mio2trace.LoadedRun, tmp_path: Path) -> None:
    """As tables, twice in the same place, and as a trace; from tables a trace is the same."""
    for _ in range(2):
        run.write(tmp_path / "out.parquet")
    again = mio2trace.load(tmp_path / "out.parquet")
    assert {name: table.to_dicts() for name, table in tables_of(again).items()} == {
        name: table.to_dicts() for name, table in tables_of(run).items()
    }
    run.write(tmp_path / "a.json", tracks=["kernels"])
    again.write(tmp_path / "b.json", tracks=["kernels"])
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json", "out.parquet"]


def test_tables_are_not_written_over_anything_else(run: mio2trace.LoadedRun, tmp_path: Path) -> None:
    """A file or a folder of something else stays."""
    (tmp_path / "a.parquet").write_text("mine")
    (tmp_path / "b.parquet").mkdir()
    (tmp_path / "b.parquet" / "mine").write_text("mine")
    for name in ("a.parquet", "b.parquet"):
        with pytest.raises(mio2trace.InputError, match="no dataset"):
            run.write(tmp_path / name)
    assert (tmp_path / "a.parquet").read_text() == (tmp_path / "b.parquet" / "mine").read_text() == "mine"


@pytest.mark.parametrize(("library", "use"), [("nanoarrow", "to_polars"), ("duckdb", "write")])
def test_a_missing_library_is_asked_for_by_its_install_line(
    library: str, use: str, run: mio2trace.LoadedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An InputError for the command line, an ImportError for a program."""
    load = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.partition(".")[0] == library:
            raise ImportError(name)
        return load(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    for kind in (mio2trace.InputError, ImportError):
        with pytest.raises(kind, match=r"pip install 'mio2trace\[batch\]'"):
            run.kernels.to_polars() if use == "to_polars" else run.write(tmp_path / "out.parquet")
    assert not list(tmp_path.iterdir())
    assert len(run.kernels.to_dicts()) == len(run.kernels), "rows need no library"


def test_the_heavy_libraries_are_loaded_only_where_they_are_used() -> None:
    """An analysed run, its tables as rows and its report need none of what the extras install."""
    program = (
        "import sys, mio2trace; run = mio2trace.load(*sys.argv[1:]); len(run.kernels.to_dicts()); run._repr_html_();"
        "print(sorted(set(sys.modules) & {'duckdb', 'nanoarrow', 'dask', 'pandas', 'polars', 'pyarrow'}))"
    )
    command = [sys.executable, "-c", program, *map(str, FILES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    """Whether it is a dataset is not asked of what cannot be read again."""
    log = str(ROOT / "traces" / "squeezenet11-b1-libdnn-fwd" / "run.log")
    command = f'"{sys.executable}" -m mio2trace layers <(cat "{log}") --format csv -q'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    alone = [sys.executable, "-m", "mio2trace", "layers", log, "--format", "csv", "-q"]
    plain = subprocess.run(alone, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout != ""
