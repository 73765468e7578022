"""RPD databases: every operation as SQL has it, its launch by `rocpd_api_ops`, its grid in work-items."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from mio2trace.analysis import analyse
from mio2trace.answer import report_of
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.rocm import rpd
from mio2trace.source import Source
from tests.rocm_files import activities, plain, read, samples, spans, sql, truth

SAMPLE = "rocm/rpd_torch_matmul.rpd.gz"
TWINS = ("alexnet-10it-graph", "resnet-immediate-2ranks", "resnet-train-miopen-2threads", "lenet-train-own-layers")


def made(path: Path, api: str = "hipLaunchKernel", *, version: int = 2) -> Path:
    """A small database of our own: two processes on two devices, a kernel, a copy and a range each."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        more = ", domain_id INTEGER, category_id INTEGER" if version == 3 else ""
        connection.executescript(
            "CREATE TABLE rocpd_string(id INTEGER, string TEXT);"
            "CREATE TABLE rocpd_op(id INTEGER, gpuId INTEGER, queueId INTEGER, sequenceId INTEGER, start INTEGER,"
            ' "end" INTEGER, description_id INTEGER, opType_id INTEGER);'
            f"CREATE TABLE rocpd_api(id INTEGER, pid INTEGER, tid INTEGER, start INTEGER, end INTEGER,"
            f" apiName_id INTEGER, args_id INTEGER{more});"
            "CREATE TABLE rocpd_api_ops(id INTEGER, api_id INTEGER, op_id INTEGER);"
            "CREATE TABLE rocpd_kernelapi(api_ptr_id INTEGER, stream TEXT, gridX INTEGER, gridY INTEGER, gridZ INTEGER,"
            " workgroupX INTEGER, workgroupY INTEGER, workgroupZ INTEGER, groupSegmentSize INTEGER,"
            " privateSegmentSize INTEGER, kernelName_id INTEGER);"
        )
        texts = ["", api, "UserMarker", "conv1 forward", "k.kd", "KernelExecution", "CopyHostToDevice", "hipMemcpy"]
        texts += ["hip", "roctx", "Barrier"]
        connection.executemany("INSERT INTO rocpd_string VALUES (?, ?)", enumerate(texts))
        if version == 3:
            connection.execute("CREATE TABLE rocpd_ustring(id INTEGER, string TEXT)")
            connection.execute("INSERT INTO rocpd_ustring VALUES (3, 'conv1 forward, in full')")
        first = (1 << 32) + 1
        for number in range(2):
            pid, at, base = 70 + number, 10**15 + 10_000 * number, first + 10 * number
            calls = [
                (base, pid, pid, at, at + 900, 2 if version == 2 else 1, 3, 9, 0),
                (base + 1, pid, pid, at + 10, at + 50, 1, 0, 8, 0),
                (base + 2, pid, pid, at + 60, at + 400, 7, 0, 8, 0),
            ]
            for call in calls:
                row = call if version == 3 else call[:7]
                connection.execute(f"INSERT INTO rocpd_api VALUES ({','.join('?' * len(row))})", row)
            connection.execute("INSERT INTO rocpd_op VALUES (?, ?, 0, 0, ?, ?, 4, 5)", (base, number, at + 60, at + 99))
            connection.execute(
                "INSERT INTO rocpd_op VALUES (?, ?, 0, 0, ?, ?, 0, 6)", (base + 1, number, at + 110, at + 200)
            )
            connection.execute(
                "INSERT INTO rocpd_op VALUES (?, ?, 0, 0, ?, ?, 0, 10)", (base + 2, number, at + 210, at + 211)
            )
            connection.execute("INSERT INTO rocpd_api_ops VALUES (1, ?, ?)", (base + 1, base))
            connection.execute("INSERT INTO rocpd_api_ops VALUES (1, ?, ?)", (base + 2, base + 1))
            connection.execute("INSERT INTO rocpd_kernelapi VALUES (?, '0', 8, 2, 1, 64, 1, 1, 512, 0, 4)", (base + 1,))
        connection.commit()
    return path


@pytest.mark.shared
@pytest.mark.parametrize("name", [SAMPLE, *(f"rocm-twins/{twin}/rpd/trace.rpd.gz" for twin in TWINS)])
def test_every_operation_is_there_once_with_its_exact_times(name: str, tmp_path: Path) -> None:
    """Kernels and copies against SQL of the test's own, launches by its own join, over all processes of the file."""
    path = plain(samples() / name, tmp_path)
    profiles = read(path, rpd.DATABASE)
    with sql(path) as connection:
        rows = connection.execute(
            "SELECT o.id, o.start, o.end, x.api_id, t.string FROM rocpd_op o JOIN rocpd_string t ON t.id = o.opType_id"
            " LEFT JOIN rocpd_api_ops x ON x.op_id = o.id"
        ).fetchall()
        pids = {pid for (pid,) in connection.execute("SELECT DISTINCT pid FROM rocpd_api")}
    for kind, words in {"kernel": ("KernelExecution", "Task"), "copy": ("Copy",), "fill": ("Fill",)}.items():
        ours = Counter((a.number, a.start_ns, a.end_ns, a.correlation) for a in activities(profiles, kind))
        assert ours == Counter(row[:4] for row in rows if row[4].startswith(words))
    assert {profile.processes[0].pid for profile in profiles} == pids
    assert all(activity.call is not None and activity.call.start_ns for activity in activities(profiles))


@pytest.mark.shared
@pytest.mark.parametrize("twin", TWINS)
def test_kernels_of_a_twin_are_those_of_its_truth(twin: str) -> None:
    profiles = read(samples() / "rocm-twins" / twin / "rpd" / "trace.rpd.gz", rpd.DATABASE)
    threads = {thread.tid for profile in profiles for thread in profile.threads}
    assert threads
    rows = [row for row in truth(twin) if "rpd" in row and row["tid"] in threads]  # of two ranks the file holds one
    expected = {(row["rpd"], row["start"], row["end"]) for row in rows}
    ours = {
        (activity.number, activity.start_ns, activity.end_ns)
        for profile in profiles
        for activity in profile.activities
        if activity.kind == "kernel" or (activity.number, activity.start_ns, activity.end_ns) in expected
    }
    assert ours == expected
    named = {row["rpd"]: row["name"] for row in rows if not row["graph"]}
    assert all(named[a.number] == a.name for a in activities(profiles) if a.number in named)


@pytest.mark.shared
def test_ranges_have_the_text_of_the_marker() -> None:
    (profile,) = read(samples() / "rocm-twins" / TWINS[2] / "rpd" / "trace.rpd.gz", rpd.DATABASE)
    assert any(made.text.startswith("s_api = miopenConvolutionForward | ") for made in profile.ranges)
    assert len({made.thread for made in profile.ranges}) == 2


@pytest.mark.parametrize(
    ("api", "grid"),
    [("hipLaunchKernel", (512, 2, 1)), ("hipExtModuleLaunchKernel", (8, 2, 1)), ("hipNewLaunch", None)],
)
def test_the_grid_is_in_work_items_where_the_call_is_known(
    api: str, grid: tuple[int, int, int] | None, tmp_path: Path
) -> None:
    for profile in read(made(tmp_path / "a.rpd", api), rpd.DATABASE):
        (kernel,) = activities([profile])
        assert (kernel.grid, kernel.workgroup, kernel.name) == (grid, (64, 1, 1), "k")


@pytest.mark.parametrize("version", [2, 3])
def test_each_process_is_a_profile(version: int, tmp_path: Path) -> None:
    """Ids beyond 32 bits, a barrier that is counted, ranges by name and by domain."""
    notes = Notes()
    profiles = read(made(tmp_path / "a.rpd", version=version), rpd.DATABASE, notes)
    assert [profile.processes[0].pid for profile in profiles] == [70, 71]
    for profile in profiles:
        assert [activity.kind for activity in profile.activities] == ["kernel", "copy"]
        assert [activity.call and activity.call.name for activity in profile.activities] == [
            "hipLaunchKernel", "hipMemcpy",
        ]  # fmt: skip
        text = "conv1 forward" if version == 2 else "conv1 forward, in full"
        assert [one.text for one in profile.ranges] == [text]
    assert {note.kind: note.count for note in notes} == {"barrier of a queue: not drawn": 2}


def test_ops_of_pytorch_are_operations_and_no_layers(tmp_path: Path) -> None:
    """RPD marks them as ranges like the user's, and has a row of its own for each."""
    path = made(tmp_path / "made.rpd")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE ext_autogradapi(api_ptr_id INTEGER, seq TEXT, op_id INTEGER, sizes TEXT)")
        connection.execute("INSERT INTO ext_autogradapi VALUES (?, '', 1, '')", ((1 << 32) + 1,))
        connection.execute("INSERT INTO ext_autogradapi VALUES ('x', NULL, 'y', 3)")
        connection.commit()
    one, other = (alignment for alignment in analyse([path]).run.alignments)
    assert [made.kind for made in (*one.profile.ranges, *other.profile.ranges)] == ["operator", "range"]
    assert [operation.api for operation in one.links.operations] == ["conv1 forward"]
    assert not other.links.operations
    assert ([*one.links.runs], [run.layer for run in other.links.runs]) == ([], ["conv1"])


def test_rows_that_are_no_numbers_lose_themselves_alone(tmp_path: Path) -> None:
    path = made(tmp_path / "a.rpd")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE rocpd_op SET start = 'soon' WHERE id = (SELECT min(id) FROM rocpd_op)")
        connection.execute("UPDATE rocpd_api SET end = -1 WHERE id = (SELECT max(id) FROM rocpd_api)")
        connection.execute("UPDATE rocpd_kernelapi SET gridX = 'wide'")
        connection.commit()
    notes = Notes()
    profiles = read(path, rpd.DATABASE, notes)
    assert spans(profiles) == Counter({(10**15 + 10_060, 10**15 + 10_099): 1})
    assert activities(profiles)[0].grid is None
    assert sum(note.count for note in notes if note.problem) == 2


def test_a_database_without_its_tables_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.rpd"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE rocpd_api_ops(id, api_id, op_id)")
    source = Source(str(path), 0, Notes())
    with pytest.raises(InputError, match=r"a\.rpd: no rocpd_api; expected an RPD database"):
        rpd.DATABASE.read(source, ReadOptions(), Notes())
    source.close()


@pytest.mark.shared
def test_replays_without_names_are_said() -> None:
    """In the ten lines, with and without the run's log: 29 tasks of each of nine launches."""
    folder = samples() / "rocm-twins" / "alexnet-10it-graph"
    for logs in ((), (folder / "run.log",)):
        analysis = analyse([folder / "rpd" / "trace.rpd.gz", *logs])
        (section,) = report_of(analysis, analysis.runs[:1]).sections
        (nameless,) = [one for one in section.findings if one.rule.id == "nameless"]
        said = nameless.found.number
        assert "9 graph launches ran 190.1 ms of kernels without names, 41.5 % of all kernel time" in said
