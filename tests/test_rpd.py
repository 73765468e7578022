"""RPD: operations, launches, grids, ranges and processes of its database, and of the Chrome JSON that it exports."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from mio2trace.analysis import analyse
from mio2trace.answer import report_of
from mio2trace.model.profile import Profile
from mio2trace.notes import InputError
from mio2trace.readers.rocm import rpd
from tests import rocm_made
from tests.rocm_files import activities, plain, read, read_made, samples, sql

AGAIN = """
INSERT INTO rocpd_api SELECT id + (1 << 32), pid + 1, tid + 1, start + 9000, end + 9000, apiName_id, args_id
 FROM rocpd_api;
INSERT INTO rocpd_op SELECT id + (1 << 32), 1, queueId, 0, start + 9000, end + 9000, description_id, opType_id
 FROM rocpd_op;
INSERT INTO rocpd_api_ops SELECT 0, api_id + (1 << 32), op_id + (1 << 32) FROM rocpd_api_ops;
INSERT INTO rocpd_string VALUES (99, 'Barrier');
INSERT INTO rocpd_op SELECT id + 500, gpuId, 0, 0, end + 1, end + 2, 0, 99 FROM rocpd_op WHERE id % (1 << 32) = 1;
"""
"""A second process on a device of its own, with ids beyond 32 bits; a barrier of each."""
VERSION_3 = """
ALTER TABLE rocpd_api ADD domain_id; ALTER TABLE rocpd_api ADD category_id;
INSERT INTO rocpd_string VALUES (98, 'roctx'); CREATE TABLE rocpd_ustring(id, string);
UPDATE rocpd_api SET domain_id = 98, apiName_id = 98
 WHERE apiName_id = (SELECT id FROM rocpd_string WHERE string = 'UserMarker');
INSERT INTO rocpd_ustring SELECT id, string || ', in full' FROM rocpd_string WHERE string LIKE 'conv1%';
"""


@pytest.mark.shared
@pytest.mark.parametrize("name", ["rocm/rpd_torch_matmul.rpd.gz", "rocm-twins/alexnet-10it-graph/rpd/trace.rpd.gz"])
def test_every_operation_is_there_once_with_its_exact_times(name: str, tmp_path: Path) -> None:
    """By its kind, against SQL of the test's own, over all processes of the file."""
    path = plain(samples() / name, tmp_path)
    profiles = read(path, rpd.DATABASE)
    with sql(path) as connection:
        rows = connection.execute(
            "SELECT o.id, o.start, o.end, x.api_id, t.string FROM rocpd_op o JOIN rocpd_string t ON t.id = o.opType_id"
            " LEFT JOIN rocpd_api_ops x ON x.op_id = o.id ORDER BY o.id"
        ).fetchall()
        sizes = dict(
            connection.execute(
                "SELECT x.op_id, c.size FROM rocpd_copyapi c JOIN rocpd_api_ops x ON x.api_id = c.api_ptr_id"
            ).fetchall()
        )
        pids = {pid for (pid,) in connection.execute("SELECT DISTINCT pid FROM rocpd_api")}
    for kind, words in {"kernel": ("KernelExecution", "Task"), "copy": ("Copy",), "fill": ("Fill",)}.items():
        found = sorted((a.number, a.start_ns or 0, a.end_ns, a.correlation) for a in activities(profiles, kind))
        assert found == [row[:4] for row in rows if row[4].startswith(words)]
    assert {a.number: a.size_bytes for a in activities(profiles, "copy") if a.size_bytes} == {
        row[0]: sizes[row[0]] for row in rows if row[4].startswith("Copy") and sizes.get(row[0])
    }
    assert {profile.process.pid for profile in profiles} == pids


@pytest.mark.parametrize(
    ("api", "grid"), [("hipLaunchKernel", (256, 2, 1)), ("hipExtModuleLaunchKernel", (4, 2, 1)), ("hipNewLaunch", None)]
)
def test_the_grid_is_in_work_items_of_known_calls(api: str, grid: tuple[int, int, int] | None, tmp_path: Path) -> None:
    one = rocm_made.run()
    one.calls = [(api, *call[1:]) for call in one.calls]
    (profile,), _ = read_made(tmp_path, rocm_made.rpd(one, "UPDATE rocpd_kernelapi SET gridY = 2"), rpd.DATABASE)
    assert {(kernel.grid, kernel.workgroup) for kernel in activities([profile])} == {(grid, (64, 1, 1))}
    (profile,), _ = read_made(tmp_path, rocm_made.rpd(one, "UPDATE rocpd_kernelapi SET gridX = 'x'"), rpd.DATABASE)
    assert activities([profile])[0].grid is None


@pytest.mark.parametrize("then", [AGAIN, AGAIN + VERSION_3], ids=["2", "3"])
def test_each_process_is_a_profile(then: str, tmp_path: Path) -> None:
    """Ids beyond 32 bits, a barrier that is counted, ranges by name and by domain."""
    profiles, noted = read_made(tmp_path, rocm_made.rpd(rocm_made.run(), then), rpd.DATABASE)
    assert [profile.process.pid for profile in profiles] == [7, 8]
    for profile in profiles:
        assert [(activity.kind, activity.call and activity.call.name) for activity in profile.activities] == [
            ("kernel", "hipLaunchKernel"), ("kernel", "hipLaunchKernel"), ("copy", "hipMemcpy"),
        ]  # fmt: skip
        text = "conv1 forward, in full" if then != AGAIN else "conv1 forward"
        assert [one.text for one in profile.ranges] == [text, "s_api = miopenF | p =  | "]
    assert noted == {"barrier of a queue: not drawn": 2}


def test_ops_of_pytorch_are_operations_and_no_layers(tmp_path: Path) -> None:
    """RPD marks them as ranges like the user's, and has a row of its own for each."""
    path = tmp_path / "made.rpd"
    more = "CREATE TABLE ext_autogradapi(api_ptr_id INTEGER, seq TEXT, op_id INTEGER, sizes TEXT);"
    more += "INSERT INTO ext_autogradapi VALUES (1001, '', 1, ''), ('x', NULL, 'y', 3)"
    path.write_bytes(rocm_made.rpd(rocm_made.run(), AGAIN + more))
    one, other = analyse([path]).run.alignments
    kinds = [[made.kind for made in alignment.profile.ranges] for alignment in (one, other)]
    assert kinds == [["operator", "range"], ["range", "range"]]
    assert [operation.api for operation in one.links.operations][:1] == ["conv1 forward"]
    assert "conv1 forward" not in [operation.api for operation in other.links.operations]
    assert ([run.layer for run in one.links.runs], [run.layer for run in other.links.runs]) == ([], ["conv1"])


def test_a_database_without_its_tables_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.rpd"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE rocpd_api_ops(id, api_id, op_id)")
    with pytest.raises(InputError, match=r"a\.rpd: no rocpd_api; expected an RPD database"):
        read(path, rpd.DATABASE)


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


# -- Chrome JSON: whole microseconds, launches by arrows

HEAD = '[ {}\n,{"name": "process_name", "ph": "M", "pid":"2","args":{"name":"GPU2"}}\n'


def row(pid: int, tid: int, name: str, ts: object, dur: object, desc: str = "") -> str:
    told = f'"pid":"{pid}","tid":"{tid}","name":"{name}","ts":"{ts}","dur":"{dur}","ph":"X"'
    return f',{{{told},"args":{{"desc":"{desc}"}}}}\n'


def arrow(key: int, begin: tuple[int, int, int], end: tuple[int, int, int]) -> str:
    return "".join(
        f',{{"pid":"{pid}","tid":"{tid}","cat":"api_op","name":"api_op","ts":"{ts}","id":"{key}","ph":"{ph}"}}\n'
        for ph, (pid, tid, ts) in (("s", begin), ("f", end))
    )


def kernel(name: str, ts: int) -> str:
    return row(2, 0, name, ts, 4, "KernelExecution")


@pytest.mark.shared
def test_launches_are_those_of_the_database() -> None:
    """The call of each operation, by name and time, as ``rocpd_api_ops`` of the same run has it."""
    (exported,) = read(samples() / "rocm" / "rpd_export_matmul.json", rpd.JSON)
    (original,) = read(samples() / "rocm" / "rpd_torch_matmul.rpd.gz", rpd.DATABASE)

    def launches(profile: Profile) -> list[tuple[str, int, str, int]]:
        return sorted(
            (a.name, (a.start_ns or 0) // 1000, a.call.name, (a.call.start_ns or 0) // 1000)
            for a in profile.activities
            if a.call is not None
        )

    assert launches(exported) == launches(original)
    assert len(launches(exported)) == 85
    assert exported.clocks[0].resolution_ns == 1000


def test_ranges_marks_and_frames(tmp_path: Path) -> None:
    """What describes itself is a range; frames on the device and graphs as a whole repeat others."""
    text = HEAD + row(7, 7, "conv1", 10, 50, "conv1") + row(7, 7, "hipLaunchKernel", 20, 5)
    text += ',{"pid":"7","tid":"7","name":"here","ts":"12","ph":"i","s":"p","args":{"desc":"here"}}\n'
    text += kernel('k<"a", 1>.kd', 30) + row(2, 0, "conv1", 29, 5, "UserMarker frame: 1 ops")
    text += ',{"pid":"2","tid":"0","name":"Graph 1","ts":"30","dur":"9","ph":"X","args":{"kernels":"3"}}\n'
    (profile,), _ = read_made(tmp_path, text + arrow(1, (7, 7, 23), (2, 0, 30)) + "]\n", rpd.JSON)
    assert [(made.kind, made.text) for made in profile.ranges] == [("range", "conv1"), ("mark", "here")]
    assert [(one.name, one.call and one.call.name) for one in profile.activities] == [('k<"a", 1>', "hipLaunchKernel")]


@pytest.mark.parametrize("before", ["", '{"traceEvents": '])
def test_both_forms_are_read_and_what_was_cut_off_up_to_there(before: str, tmp_path: Path) -> None:
    text = before + HEAD + row(7, 7, "hipLaunchKernel", 20, 5) + kernel("k", 30)
    (profile,), noted = read_made(tmp_path, text + ',{"pid":"2","tid":"0","na', rpd.JSON)
    assert [activity.name for activity in profile.activities] == ["k"]
    assert "file cut off: read up to there" in noted


def test_each_process_of_the_json_is_a_profile(tmp_path: Path) -> None:
    text = HEAD + row(7, 7, "hipLaunchKernel", 20, 5) + row(8, 8, "hipLaunchKernel", 40, 5)
    text += kernel("k7", 30) + kernel("k8", 50) + arrow(1, (7, 7, 23), (2, 0, 30)) + arrow(2, (8, 8, 43), (2, 0, 50))
    profiles, _ = read_made(tmp_path, text + "]\n", rpd.JSON)
    assert [(profile.process.pid, profile.activities[0].name) for profile in profiles] == [(7, "k7"), (8, "k8")]


def test_a_file_without_events_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[ {},{"name": ')
    with pytest.raises(InputError, match=r"a\.json: .*expected the trace of a profiler"):
        read(path, rpd.JSON)
