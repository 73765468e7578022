"""rocpd of every schema: the same run gives the same answer, and what a schema has more is read (rocpd-versions.md)."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import msgspec
import pytest

from mio2trace.measures.completeness import CLASSES
from mio2trace.model.profile import Profile
from mio2trace.notes import InputError, Notes
from mio2trace.readers.rocm import rocpd
from tests import rocpd_made
from tests.commands import invoked
from tests.rocm_files import activities, plain, read, read_made, samples
from tests.rocpd_made import GRAPH, KERNELS, MARK, NODES, PID, RANGES, TID, VERSIONS, Tables, database, merged, tables

GRAPHS = [version for version in VERSIONS if "3.0.2" <= version < "4"]


def profiles(data: bytes, folder: Path) -> list[Profile]:
    return noted(data, folder)[0]


def noted(data: bytes, folder: Path) -> tuple[list[Profile], dict[str, int]]:
    return read_made(folder, data, rocpd, every_call=True)


def without_graphs(profile: Profile) -> Profile:
    plain = tuple(msgspec.structs.replace(one, graph_node=None) for one in profile.activities)
    return msgspec.structs.replace(profile, activities=plain)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_schema_gives_the_same_profile(version: str, tmp_path: Path) -> None:
    """All of the run, against the rows that it was made of; nothing is noted of a schema that is known."""
    (profile,), notes = noted(database(tables(version)), tmp_path)
    assert not notes
    (first,) = profiles(database(tables("3.0.0")), tmp_path)
    assert without_graphs(profile) == without_graphs(first)
    kernels = [one for one in profile.activities if one.kind == "kernel"]
    assert [(one.name, one.start_ns, one.end_ns, one.correlation) for one in kernels] == [row[:4] for row in KERNELS]
    assert {(one.grid, one.workgroup) for one in kernels} == {((128, 2, 1), (64, 1, 1))}
    assert [one.call and one.call.name for one in kernels] == ["hipLaunchKernel"] + ["hipGraphLaunch"] * 6
    (copy,) = (one for one in profile.activities if one.kind == "copy")
    assert (copy.route, copy.size_bytes) == ("host to device", 4096)
    assert [made.text for made in profile.ranges] == [*(row[0] for row in RANGES), MARK[0]]
    assert (profile.process.pid, profile.process.rank, [one.tid for one in profile.threads]) == (PID, 1, [TID])
    assert [one.name for one in profile.devices] == ["AMD Instinct MI300X"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_ids_of_a_graph_are_read_where_a_schema_has_them(version: str, tmp_path: Path) -> None:
    """The same in each replay, none outside of graphs. The tables may be there without their views."""
    (profile,) = profiles(database(tables(version), views=False), tmp_path)
    assert [profile] == profiles(database(tables(version)), tmp_path)
    found = [one.graph_node for one in profile.activities if one.kind == "kernel"]
    nodes = [(GRAPH, node) for node in NODES]
    assert found == ([None, *nodes, *nodes] if version in GRAPHS else [None] * 7)
    assert [one.graph_node for one in profile.activities if one.kind == "copy"] == [None]


@pytest.mark.parametrize("version", GRAPHS)
@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_kernels_that_a_graph_launch_lost_are_counted(version: str, lost: int, tmp_path: Path) -> None:
    """The launch has the number of its kernels; one without any is counted as such by the measures."""
    (profile,) = profiles(database(tables(version, lost=lost)), tmp_path)
    assert profile.defects.get("lost-graph-kernels", 0) == (lost if lost < 3 else 0)
    assert set(profile.defects) <= set(CLASSES)


@pytest.mark.parametrize("version", VERSIONS)
def test_runs_that_were_merged_are_apart(version: str, tmp_path: Path) -> None:
    """Ids hold within a run: those of the other are the same, and its process is another."""
    other = rocpd_made.GUID.replace("abcd", "ef01")
    found = profiles(merged([(tables(version), rocpd_made.GUID), (tables(version, pid=99), other)]), tmp_path)
    assert [one.process.pid for one in found] == [PID, 99]
    assert [len(one.activities) for one in found] == [8, 8]
    assert [one.devices[0].unit for one in found] == [1, 1]


@pytest.mark.parametrize("version", ["4.0.0", "4.1.0"])
def test_a_track_with_the_systems_numbers_is_of_the_same_thread(version: str, tmp_path: Path) -> None:
    """The schema says ids of rows, the views of 4.1 join by the system's numbers: both are found."""
    plain = profiles(database(tables(version)), tmp_path)
    change = f"UPDATE rocpd_track{rocpd_made.SUFFIX} SET pid = {PID}, tid = {TID}"
    assert profiles(database(tables(version), then=change), tmp_path) == plain


def retagged(made: Tables, version: str) -> Tables:
    made.rows["rocpd_metadata"] = [
        {**row, "value": version if row["tag"] == "schema_version" else row["value"]}
        for row in made.rows["rocpd_metadata"]
        if not row["tag"].startswith("schema_version_")
    ]
    return made


UNKNOWN = ("3.0.6", "3.1", "4.2.0", "5", "17.3.2")


@pytest.mark.parametrize("version", ["3.0.0", "3.0.3"])
@pytest.mark.parametrize("tag", [*UNKNOWN, "3", "{{schema_version_major}}", "", "of\nmany lines", "9" * 500])
def test_columns_decide_and_not_the_tag(tag: str, version: str, tmp_path: Path) -> None:
    """Builds leave the tag at 3, or unreplaced; a note names an unknown version, and repeats nothing that is none."""
    found, notes = noted(database(retagged(tables(version), tag)), tmp_path)
    assert found == profiles(database(tables(version)), tmp_path)
    assert [f"rocpd schema {tag}," in note for note in notes] == [True] * (tag in UNKNOWN)


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ("ALTER TABLE rocpd_kernel_dispatch{} RENAME kernel_id TO kernel", "no column kernel_id"),
        ("ALTER TABLE rocpd_string{} RENAME string TO text", "no column string"),
        ("DROP TABLE rocpd_event{}", "no rocpd_event"),
    ],
)
def test_a_schema_that_lacks_a_column_is_refused_with_its_version(change: str, missing: str, tmp_path: Path) -> None:
    data = database(retagged(tables("4.1.0"), "4.2.0"), views=False, then=change.format(rocpd_made.SUFFIX))
    with pytest.raises(InputError, match=rf"^(?!.*lock)(?=.*schema 4\.2\.0).*{missing}"):
        profiles(data, tmp_path)


def test_compressed_texts_of_ranges_are_said_to_be_missing(tmp_path: Path) -> None:
    """The lz4 variant: its views call a function that a file cannot bring; its tables hold all but the texts."""
    made = tables("3.0.0")
    made.add("rocpd_metadata", tag="compression", value="lz4-frame-v1")
    for row in made.rows["rocpd_event"]:
        row["extdata"] = b"\x04\x22\x4d\x18" + bytes(8)
    view = "DROP VIEW rocpd_event; CREATE VIEW rocpd_event AS SELECT id, lz4_decompress(extdata) FROM rocpd_event{}"
    (profile,), (note,) = noted(database(made, then=view.format(rocpd_made.SUFFIX)), tmp_path)
    assert len(profile.activities) == 8
    assert {made.text for made in profile.ranges} == {"roctxThreadRangeA"}
    assert "compressed" in note


def test_a_view_that_computes_is_refused_still(tmp_path: Path) -> None:
    """Neither under the plain name without tables behind it, nor under a name with a run's id."""
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS id FROM n"
    change = (
        "DROP VIEW rocpd_kernel_dispatch; ALTER TABLE rocpd_kernel_dispatch_x RENAME TO hidden;"
        f" CREATE VIEW rocpd_kernel_dispatch_x AS {endless};"
    )
    with pytest.raises(InputError, match="is computed"):
        profiles(database(tables("3.0.0"), suffix="_x", then=change), tmp_path)


def of_rocprof_sys(version: str) -> Tables:
    """The run as rocprof-sys writes it: categories in small letters, texts as names, no ids of ranges in calls."""
    made = tables(version)
    words = {
        "MARKER_CORE_RANGE_API": "rocm_marker_api", "MARKER_CORE_API": "rocm_marker_api",
        "HIP_RUNTIME_API_EXT": "rocm_hip_api", "KERNEL_DISPATCH": "rocm_kernel_dispatch",
        "MEMORY_COPY": "rocm_memory_copy",
    }  # fmt: skip
    for table, column in (("rocpd_string", "string"), ("rocpd_info_category", "name")):
        for row in made.rows.get(table, ()):
            row[column] = words.get(row[column], row[column])
    for row, (text, *_) in zip(made.rows["rocpd_region"], RANGES, strict=False):
        row["name_id"] = made.string(text)
    for row in made.rows["rocpd_event"]:
        row |= {"extdata": "{}", "parent_stack_id": 0}
    return made


@pytest.mark.parametrize("version", ["3.0.0", "4.0.0"])
def test_ranges_of_rocprof_sys_are_ranges(version: str, tmp_path: Path) -> None:
    """And its users' own; functions of the host and ROCTx's control of the profiler are calls."""
    made = of_rocprof_sys(version)
    first = rocpd_made.AT - 1000
    for name, category in (("epoch", "user"), ("main", "host"), ("roctxProfilerPause", "MARKER_CONTROL_API")):
        event = made.event(category, 0, 0)
        host = {"pid": rocpd_made.ROW_OF_PID, "tid": rocpd_made.ROW_OF_TID}
        made.placed("rocpd_region", first, first + 10**7, host, name_id=made.string(name), event_id=event)
    (profile,) = profiles(database(made), tmp_path)
    assert [(one.text, one.kind, one.id) for one in profile.ranges] == [
        ("epoch", "range", None), *((row[0], "range", None) for row in RANGES)
    ]  # fmt: skip
    assert {"main", "roctxProfilerPause"} <= {one.name for one in profile.other_calls}
    (tmp_path / "run.db").write_bytes(database(made))
    assert "conv1,600" in invoked("layers", tmp_path / "run.db", "--columns", "layer,kernel_ns").stdout


# -- Sizes and processes as SQL has them, journals, damage (rocm-profiles.md 7).


SAMPLE = "rocm/rocpd_ck_batched_gemm.db.gz"
DISPATCHES = "SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_kernel_dispatch_%'"


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    return plain(samples() / SAMPLE, tmp_path)


@pytest.mark.shared
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


@pytest.mark.shared
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
