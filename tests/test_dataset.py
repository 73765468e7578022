"""A run as tables: the numbers are those of the tables that people print, and of the Parquet that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import mio2trace
from mio2trace import dataset
from mio2trace.dataset import FOLDERS, TABLES, VERSION, file_name, tables_of, write_run
from mio2trace.dataset.rows import Data, bits, numbers, texts
from mio2trace.model.columns import Column
from mio2trace.reports import layers, ops
from mio2trace.reports.kernels import enqueue_table, spoken
from mio2trace.reports.tables import Unit, cell_text, renamed
from mio2trace.schema import COLUMNS, base_of
from tests.conftest import ROOT, Golden

NS = Unit("ns")
SAMPLES = {
    "alexnet": ("alexnet-b1-miopen29/run.log.gz", "alexnet-b1-miopen29/prof.json.gz"),
    "lenet": ("lenet-rocpd/run.log.gz", "lenet-rocpd/results.db.gz"),
    "squeezenet": ("squeezenet11-b1-libdnn-fwd/run.log", "squeezenet11-b1-libdnn-fwd/prof.json.gz"),
}


@pytest.fixture(scope="module", params=list(SAMPLES))
def analysis(request: pytest.FixtureRequest) -> mio2trace.Analysis:
    return mio2trace.analyse([ROOT / "traces" / name for name in SAMPLES[request.param]])


def rows_of(columns: Mapping[str, Data]) -> list[dict[str, Any]]:
    count = len(next(iter(columns.values())))
    return [{name: cell for name, data in columns.items() if (cell := data[row]) is not None} for row in range(count)]


def shared_cells(printed: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a printed row and one of ours have both columns for, as texts where the printed cell holds several."""
    cells = {
        name: cell if isinstance(cell, (str, int, float)) else cell_text(cell)
        for name, cell in printed.items()
        if name in row
    }
    return cells, {name: row[name] for name in cells}


def test_kernels_are_those_of_the_printed_table(analysis: mio2trace.Analysis) -> None:
    """Row by row, column by column: `mio2trace kernels` and the table of the dataset say the same."""
    run = analysis.run
    assert run.alignment is not None
    printed = renamed(enqueue_table(run.alignment.profile, NS, run.alignment), spoken)
    rows = rows_of(tables_of(run)["kernels"])
    assert len(rows) == len(printed.rows) > 20
    names = set(printed.columns) & set(TABLES["kernels"].names)
    assert {"kernel_ns", "host_ns", "layer", "operation", "problem", "solver", "gws", "queue_wait_ns"} <= names
    for told, row in zip(printed.rows, rows, strict=True):
        assert {name: told[name] for name in names if name in told} == {
            name: row[name] for name in names if name in row
        }


def test_operations_and_problems_are_those_of_the_printed_tables(analysis: mio2trace.Analysis) -> None:
    """`mio2trace ops --each` and `--group-by problem`, and the dataset, say the same."""
    run = analysis.run
    tables = tables_of(run)
    each = ops.cost_table(run.operations, run.measures[0], NS).rows
    summed = ops.steady_table(run.operations, run.measures[0], ("problem",), NS).rows
    for printed, name in ((each, "operations"), (summed, "problems")):
        rows = rows_of(tables[name])
        assert len(rows) == len(printed)
        for told, row in zip(printed, rows, strict=True):
            wanted, ours = shared_cells({key: cell for key, cell in told.items() if key != "sure"}, row)
            assert ours == pytest.approx(wanted) if name == "problems" else ours == wanted


def test_layers_are_those_of_the_printed_table(analysis: mio2trace.Analysis) -> None:
    """`mio2trace layers --each` and the dataset say the same."""
    measures = analysis.run.measures[0]
    best = max(measures.alignment.logs, key=lambda log: len(log.layers), default=None)
    printed = layers.execution_table([layers.Repetition(best, measures)], NS).rows
    rows = rows_of(tables_of(analysis.run)["layers"])
    assert len(rows) == len(printed)
    for told, row in zip(printed, rows, strict=True):
        wanted, ours = shared_cells(told, row)
        assert ours == wanted


def test_parquet_holds_the_tables_as_they_are(analysis: mio2trace.Analysis, tmp_path: Path) -> None:
    """Every cell of every table, with types, names and version of the schema."""
    tables = tables_of(analysis.run, "a/b")
    counts = write_run(analysis.run, tmp_path, "a/b")
    for name, schema in TABLES.items():
        path = tmp_path / name / file_name("a/b")
        with duckdb.connect() as database:
            read = database.execute(f"select * from '{path}'")
            assert [column[0] for column in read.description or ()] == list(schema.names)
            cells = [tuple(data[row] for data in tables[name].values()) for row in range(counts[name])]
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
    data = numbers(Column("flop", "int", ""), [1, None, 1 << 70, -3])
    assert [data[row] for row in range(4)] == [1, None, None, -3]
    words = texts(Column("name", "text", ""), ["a", None, "b", "a"])
    assert [words[row] for row in range(4)] == words.to_list() == ["a", None, "b", "a"]
    assert data.to_list() == [1, None, None, -3]
    assert numbers(Column("sure", "flag", ""), [True, None, False]).to_list() == [True, None, False]
    assert list(words.words) == ["a", "b"]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_bits_are_arrows_bitmap(count: int) -> None:
    """Bit by bit, the first lowest."""
    flags = np.arange(count) % 3 == 0
    packed = bits(flags)
    assert len(packed) == (count + 7) // 8
    assert [packed[place // 8] >> place % 8 & 1 for place in range(count)] == flags.tolist()


def page() -> str:
    """docs/schema.md, from the schema."""
    lines = [
        "# Tables as data",
        "",
        "One schema for Parquet ([many-runs.md](many-runs.md)), SQL ([queries.md](queries.md)) and Python",
        "([python.md](python.md)). A column has the same name here and in the printed tables ([reports.md](reports.md)). Some columns",  # noqa: E501
        "are only printed, such as `overhead`, and some are only here, such as `layer_by`. Times are in ns: means are fractions, all",  # noqa: E501
        f"others are whole numbers. Unknown values are null. The version of this schema is {VERSION}; a file has it in its metadata,",  # noqa: E501
        "under `schema`. (The JSON of `report` has a version of its own.)",
        "",
        "These names differ between tables and traces, or have two meanings:",
        "",
        "* `operation` is a name in the table `kernels`, and a number in the table `operations` and in the arguments of a",  # noqa: E501
        "  [trace](trace.md#arguments), where the name is `operation_name`. Join `kernels.operation_index` with",
        "  `operations.operation`, and also `run` and `rank`.",
        "* `in_queue_ns` here is `queue_time_ns` in a trace. dv/dt's traces have `queued_ns` instead, the moment of queueing.",  # noqa: E501
        "* `phase` means three things: see the tables `iterations`, `kernels` and `operations`.",
    ]
    for schema in TABLES.values():
        lines += [
            "",
            f"## {schema.name}",
            "",
            f"A row is {schema.row}.",
            "",
            "| column | type | unit | |",
            "|---|---|---|---|",
        ]
        for column in schema.columns:
            lines.append(f"| `{column.name}` | {column.kind} | {column.unit} | {column.meaning} |")
    lines += [
        "",
        "## snapshot",
        "",
        "This table is not for queries. It holds what the other tables cannot rebuild, so that a dataset is an",
        "input of every command but those that show or pack the files themselves (`messages`, `inspect`,",
        "`tfprof`, `bundle`). It has the records of the program in columns, in the form of the version that wrote",
        "them. Calls that were not kept, the reasons of links and private text are in the files alone.",
    ]
    return "\n".join(lines) + "\n"


def test_the_page_is_the_schema(golden: Golden) -> None:
    """docs/schema.md names every table and column with its type, unit and meaning."""
    golden(ROOT / "docs" / "schema.md", page().encode())


def test_columns_are_called_as_in_the_printed_tables() -> None:
    """What a column counts as a printed one it is called as that, with its unit of time."""
    columns = {column.name for schema in TABLES.values() for column in schema.columns}
    printed = {*COLUMNS, *ops.COLUMNS, *ops.PLACE, *ops.EACH}
    named = {name for name in columns if name in printed or base_of(name)[0] in printed}
    own = {
        "run", "state", "error", "version", "device", "framework", "miopen", "steady_iterations", "steady", "told_by",
        "whole_ns", "layers", "operations", "clock_method", "clock_error_ns", "problems", "inputs", "generator",
        "role", "copy_direction", "bytes", "type", "flop_by", "host_by", "operation_by", "start_ns", "id",
        "severity", "ns", "share", "scope", "rule", "try", "number", "find_kernels", "step_ns", "compute_ns",
        "communication_ns", "copy_ns", "unrecorded_ns", "idle_ns", "complete", "incomplete", "kind", "phase", "batch",
        "tokens",
    }  # fmt: skip
    assert columns - named <= own
