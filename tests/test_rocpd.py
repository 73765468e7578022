"""rocpd databases: every dispatch as SQL has it, launches by stack id, ranges with their text (rocm-profiles.md 7)."""

from __future__ import annotations

import contextlib
import gzip
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from mio2trace.conversion import convert
from mio2trace.model.profile import Profile
from mio2trace.notes import InputError, Notes
from mio2trace.readers import detect
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.rocm import rocpd
from mio2trace.source import Source
from mio2trace.trace import Slice
from tests.conftest import shared_folder

pytestmark = pytest.mark.shared
FILES = (
    "rocm/rocpd_ck_batched_gemm.db.gz",
    "rocm-twins/resnet-train-miopen-2threads/rocpd/45362_results.db.gz",
    "rocm-twins/resnet-immediate-2ranks/rocpd/merged.db.gz",
    "rocm-twins/lenet-train-own-layers/rocpd/43457_results.db.gz",
)


def read(path: Path, *, every_call: bool = False) -> list[Profile]:
    source = Source(str(path), 0, Notes())
    try:
        assert detect(source) is rocpd
        records = rocpd.read(source, ReadOptions(host_calls=every_call), Notes())
    finally:
        source.close()
    profiles = [record for record in records if isinstance(record, Profile)]
    assert len(profiles) == len(records)
    return profiles


def unpacked(path: Path, folder: Path) -> Path:
    plain = folder / path.stem
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    return plain


@pytest.mark.parametrize("name", FILES)
def test_every_dispatch_is_there_once_with_its_exact_times(name: str, tmp_path: Path) -> None:
    """Kernels and copies against SQL of the test's own, over all processes of the file."""
    path = unpacked(shared_folder() / "samples" / name, tmp_path)
    profiles = read(path)
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        kernels = connection.execute(
            "SELECT dispatch_id, start, end, grid_size_x FROM rocpd_kernel_dispatch"
        ).fetchall()
        copies = connection.execute("SELECT start, end, size FROM rocpd_memory_copy").fetchall()
        processes = connection.execute("SELECT DISTINCT guid, pid FROM rocpd_region").fetchall()
    activities = [activity for profile in profiles for activity in profile.activities]
    ours = Counter((a.number, a.start_ns, a.end_ns, a.grid and a.grid[0]) for a in activities if a.kind == "kernel")
    assert ours == Counter(kernels)
    assert Counter((a.start_ns, a.end_ns, a.size_bytes) for a in activities if a.kind == "copy") == Counter(copies)
    assert len(profiles) == len(processes)
    assert all(profile.clocks[0].kind == "boottime" and not profile.calls_wait for profile in profiles)


@pytest.mark.parametrize("name", FILES)
def test_a_kernel_begins_after_the_call_that_launched_it(name: str, tmp_path: Path) -> None:
    """The region with the same stack id is the launch: on every dispatch of these files."""
    for profile in read(shared_folder() / "samples" / name):
        for activity in profile.activities:
            if activity.kind == "kernel":
                assert activity.call is not None
                assert activity.call.start_ns is not None
                assert activity.start_ns is not None
                assert activity.call.start_ns <= activity.start_ns
                assert activity.call.correlation == activity.correlation


def test_ranges_have_the_text_of_their_event() -> None:
    """MIOpen's own ranges hold the whole call; the function's name is not shown in its place."""
    (profile,) = read(shared_folder() / "samples" / FILES[1])
    texts = [made.text for made in profile.ranges]
    assert any(text.startswith("s_api = miopenConvolutionForward | ") for text in texts)
    assert not any(text.startswith("roctx") for text in texts)
    assert len({made.thread for made in profile.ranges}) == 2


def test_rows_in_a_journal_beside_the_file_are_not_lost_and_nothing_is_changed(tmp_path: Path) -> None:
    """A database in WAL mode whose last rows are in the journal only."""
    path = unpacked(shared_folder() / "samples" / FILES[0], tmp_path)
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    (table,) = writer.execute("SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_kernel_dispatch_%'").fetchone()
    names = [row[1] for row in writer.execute(f"PRAGMA table_info(`{table}`)") if row[1] != "id"]
    listed = ", ".join(f'"{name}"' for name in names)
    writer.execute(f"INSERT INTO `{table}` ({listed}) SELECT {listed} FROM `{table}` LIMIT 1")
    writer.commit()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("-shm")}
    assert any(name.endswith("-wal") for name in before)
    (profile,) = read(path)
    assert sum(activity.kind == "kernel" for activity in profile.activities) == 152
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("-shm")} == before
    writer.close()


def test_a_view_that_never_ends_is_refused(tmp_path: Path) -> None:
    """A stranger's view is a program; it gets as many steps as the file's size explains."""
    path = tmp_path / "endless.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE rocpd_info_process(guid, id, pid); CREATE TABLE rocpd_string(guid, id, string);"
            "CREATE TABLE rocpd_event(guid, id, stack_id);"
            "CREATE VIEW rocpd_kernel_dispatch AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
            " SELECT x AS id, 'g' AS guid, count(*) OVER () AS pid FROM n;"
        )
    source = Source(str(path), 0, Notes())
    with pytest.raises(InputError, match=r"endless\.db: "):
        rocpd.read(source, ReadOptions(), Notes())
    source.close()


def test_values_that_are_no_numbers_lose_their_row_alone(tmp_path: Path) -> None:
    """Text in an integer column, times in wrong order: counted, and the others are read."""
    path = unpacked(shared_folder() / "samples" / FILES[0], tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (table,) = connection.execute(
            "SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_kernel_dispatch_%'"
        ).fetchone()
        connection.execute(f"UPDATE `{table}` SET start = 'soon' WHERE id = 3")
        connection.execute(f"UPDATE `{table}` SET start = end + 1 WHERE id = 4")
        connection.execute(f"UPDATE `{table}` SET grid_size_x = 'wide', kernel_id = 99999 WHERE id = 5")
        connection.commit()
    notes = Notes()
    source = Source(str(path), 0, notes)
    (profile,) = rocpd.read(source, ReadOptions(), notes)
    source.close()
    assert isinstance(profile, Profile)
    assert sum(activity.kind == "kernel" for activity in profile.activities) == 149
    assert sum(activity.kind == "kernel" and activity.grid is None for activity in profile.activities) == 1
    assert {note.kind: note.count for note in notes} == {"kernel whose times are no numbers in order: not drawn": 2}


@pytest.mark.parametrize("size", [100, 4096, 50_000, 500_000])
def test_a_truncated_database_is_one_line(size: int, tmp_path: Path) -> None:
    path = unpacked(shared_folder() / "samples" / FILES[0], tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    source = Source(str(path), 0, Notes())
    with pytest.raises(InputError) as error:
        rocpd.read(source, ReadOptions(), Notes())
    source.close()
    assert len(str(error.value).splitlines()) == 1


def test_queue_time_is_from_the_launchs_return_to_the_kernels_start(tmp_path: Path) -> None:
    """Against SQL of the test's own, kernel by kernel; nothing waits for less than no time."""
    path = unpacked(shared_folder() / "samples" / FILES[0], tmp_path)
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        expected = dict(
            connection.execute(
                "SELECT k.dispatch_id, max(0, k.start - r.end) FROM rocpd_kernel_dispatch k"
                " JOIN rocpd_event e ON e.id = k.event_id JOIN rocpd_event c ON c.stack_id = e.stack_id"
                " JOIN rocpd_region r ON r.event_id = c.id"
            )
        )
    trace = convert(path).trace
    waited = {
        one.args["dispatch_id"]: one.args["queue_time_ns"]
        for one in trace.events()
        if isinstance(one, Slice) and one.category == "kernel"
    }
    assert waited == expected
    assert max(waited.values()) > min(waited.values()) >= 0
