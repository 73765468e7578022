"""Tables of a dataset that claim more than their files hold: equal values take no space in Parquet."""

from __future__ import annotations

import contextlib
import functools
import resource
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from mio2trace.cli import cli
from mio2trace.queries.dataset import opened
from mio2trace.snapshot.database import connection, sql_text
from tests.small_runs import as_json, benchmark

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
    assert CliRunner().invoke(cli, words).exit_code == 0
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
        ("runs", "SELECT t.* FROM {of} t, range(2000000)", "failures", "2000000 rows of 'runs' in "),
        pytest.param("runs", "SELECT t.* FROM {of} t, range(2000000)", "select RUN from Runs",
                     "2000000 rows of 'runs' in ", marks=pytest.mark.thorough),
        ("kernels", "SELECT t.* FROM {of} t, range(100000)", "select * from kernels limit 1", " rows of 'kernels' in "),
        ("runs", "SELECT *, list_resize([1], 1000000, 1) AS more FROM {of}", "select * from runs", "holds lists"),
        ("runs", "SELECT *, {{'a': range(3)}} AS more FROM {of}", "select 1", "holds lists"),
        ("runs", "SELECT t.* REPLACE (repeat('x', 100000) AS device) FROM {of} t, range(10000)",
         "select device from runs", "1000 times what the dataset does"),
    ],
)  # fmt: skip
def test_a_table_that_claims_more_than_it_can_hold_is_refused(
    table: str, rows: str, sql: str, said: str, written: Path, tmp_path: Path
) -> None:
    """In time and memory of its bytes."""
    size = with_table(written, tmp_path / "ds", table, rows)
    assert size < 60_000
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    found = CliRunner().invoke(cli, ["query", str(tmp_path / "ds"), sql])
    assert (found.exit_code, found.stderr.count("\n")) == (1, 1), found.output[:500]
    assert said in found.stderr
    assert time.process_time() - began < MOST_SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MEMORY


def test_the_page_of_such_a_dataset_is_refused_too(written: Path, tmp_path: Path) -> None:
    with_table(written, tmp_path / "ds", "runs", "SELECT t.* FROM {of} t, range(2000000)")
    shutil.copy(next((written / "runs").iterdir()), tmp_path / "ds" / "runs" / "b.parquet")
    found = CliRunner().invoke(cli, ["report", str(tmp_path / "ds"), "--format", "text"])
    assert (found.exit_code, "2000001 rows of 'runs' in " in found.stderr) == (1, True)


def test_equal_rows_that_a_run_may_have_are_read(written: Path, tmp_path: Path) -> None:
    """Some hundred equal rows, and text of a name a thousand times."""
    with_table(written, tmp_path / "ds", "kernels", "SELECT t.* FROM {of} t, range(500)")
    with opened(str(tmp_path / "ds"), {"runs": {}, "kernels": {}}) as dataset:
        ((count,),) = dataset.ask("select count(*) from kernels").rows
        assert count > 1000
        assert len(dataset.ask("select * from kernels").rows) == count
