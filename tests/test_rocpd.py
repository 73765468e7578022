"""rocpd databases: sizes and processes as SQL has them, texts of ranges, journals, damage (rocm-profiles.md 7)."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from mio2trace.conversion import convert
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.rocm import rocpd
from mio2trace.source import Source
from mio2trace.trace import Slice
from tests.rocm_files import activities, plain, read, samples, sql

pytestmark = pytest.mark.shared
SAMPLE = "rocm/rocpd_ck_batched_gemm.db.gz"
DISPATCHES = "SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_kernel_dispatch_%'"


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    return plain(samples() / SAMPLE, tmp_path)


@pytest.mark.parametrize("name", [SAMPLE, "rocm-twins/resnet-immediate-2ranks/rocpd/merged.db.gz"])
def test_every_dispatch_is_of_its_process_with_its_size(name: str, tmp_path: Path) -> None:
    """Against SQL; ends and calls are compared in test_real_profiles.py."""
    path = plain(samples() / name, tmp_path)
    profiles = read(path, rocpd)
    with sql(path) as connection:
        kernels = connection.execute("SELECT dispatch_id, start, grid_size_x FROM rocpd_kernel_dispatch").fetchall()
        copies = connection.execute("SELECT start, size FROM rocpd_memory_copy").fetchall()
        processes = connection.execute("SELECT DISTINCT pid FROM rocpd_info_process ORDER BY pid").fetchall()
    ours = activities(profiles)
    assert Counter((a.number, a.start_ns, a.grid and a.grid[0]) for a in ours) == Counter(kernels)
    assert all(a.call is not None and a.call.correlation == a.correlation for a in ours)
    assert Counter((a.start_ns, a.size_bytes) for a in activities(profiles, "copy")) == Counter(copies)
    assert [(profile.process.pid,) for profile in profiles] == processes
    assert all(profile.clocks[0].kind == "boottime" and not profile.calls_wait for profile in profiles)


def test_rows_in_a_journal_beside_the_file_are_not_lost_and_nothing_is_changed(sample: Path) -> None:
    """A database in WAL mode whose last rows are in the journal only."""

    def beside() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in sample.parent.iterdir() if not file.name.endswith("-shm")}

    with contextlib.closing(sqlite3.connect(sample)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        (table,) = writer.execute(DISPATCHES).fetchone()
        names = [row[1] for row in writer.execute(f"PRAGMA table_info(`{table}`)") if row[1] != "id"]
        listed = ", ".join(f'"{name}"' for name in names)
        writer.execute(f"INSERT INTO `{table}` ({listed}) SELECT {listed} FROM `{table}` LIMIT 1")
        writer.commit()
        before = beside()
        assert f"{sample.name}-wal" in before
        assert len(activities(read(sample, rocpd))) == 152
        assert beside() == before


def test_values_that_are_no_numbers_lose_their_row_alone(sample: Path) -> None:
    """Text in an integer column, times in wrong order: counted, and the others are read."""
    with contextlib.closing(sqlite3.connect(sample)) as connection:
        (table,) = connection.execute(DISPATCHES).fetchone()
        connection.executescript(
            f"UPDATE `{table}` SET start = 'soon' WHERE id = 3; UPDATE `{table}` SET start = end + 1 WHERE id = 4;"
            f"UPDATE `{table}` SET grid_size_x = 'wide', kernel_id = 99999 WHERE id = 5"
        )
    notes = Notes()
    kernels = activities(read(sample, rocpd, notes))
    assert (len(kernels), sum(kernel.grid is None for kernel in kernels)) == (149, 1)
    assert {note.kind: note.count for note in notes} == {"kernel whose times are no numbers in order: left out": 2}


@pytest.mark.parametrize("size", [100, 4096, 50_000, 500_000])
def test_a_truncated_database_is_one_line(size: int, sample: Path) -> None:
    sample.write_bytes(sample.read_bytes()[:size])
    with contextlib.closing(Source(str(sample), 0, Notes())) as source, pytest.raises(InputError, match=r"^[^\n]+$"):
        rocpd.read(source, ReadOptions(), Notes())


def test_queue_time_is_from_the_launchs_return_to_the_kernels_start(sample: Path) -> None:
    """Against SQL of the test's own, kernel by kernel; nothing waits for less than no time."""
    with sql(sample) as connection:
        expected = dict(
            connection.execute(
                "SELECT k.dispatch_id, max(0, k.start - r.end) FROM rocpd_kernel_dispatch k"
                " JOIN rocpd_event e ON e.id = k.event_id JOIN rocpd_event c ON c.stack_id = e.stack_id"
                " JOIN rocpd_region r ON r.event_id = c.id"
            )
        )
    waited = {
        one.args["dispatch_id"]: one.args["queue_time_ns"]
        for one in convert(sample).trace.events()
        if isinstance(one, Slice) and one.category == "kernel"
    }
    assert waited == expected
    assert max(waited.values()) > min(waited.values()) >= 0
