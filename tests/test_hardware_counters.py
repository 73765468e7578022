"""Hardware counters: the values of each kernel are those of the file, read by other means (rocpd-versions.md 6)."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import mio2trace
from mio2trace.analysis import analyse
from mio2trace.cli import cli
from mio2trace.conversion import convert
from mio2trace.measures.cost import measured
from mio2trace.measures.device_time import queue_ns
from mio2trace.model.profile import Activity, Call, Counter, Profile
from mio2trace.notes import Notes
from mio2trace.readers.rocm import rocpd, v3_csv
from mio2trace.reports import Unit
from mio2trace.reports.kernels import enqueue_table
from tests.conftest import ROOT, shared_folder
from tests.rocm_files import read, samples
from tests.rocpd_made import KERNELS, VERSIONS, Counted, database, tables

KERNEL_COUNT = len(KERNELS)
COUNTED = (
    Counted("SQ_WAVES", tuple(tuple(1000.0 * kernel + instance for instance in range(4)) for kernel in range(7))),
    Counted("FETCH_SIZE", tuple((10.625 + kernel,) for kernel in range(7)), "KB", 1, "reduce(TCC_EA_RDREQ,sum)/16"),
    Counted("WRITE_SIZE", tuple((2.5,) for _ in range(7)), "KB", 1),
    Counted("VALUUtilization", tuple((50.0, 100.0) if kernel == 2 else (75.0,) for kernel in range(7)), "%", 1),
)


def values(profile: Profile) -> list[dict[str, float]]:
    return [
        {
            counter.name: value
            for counter, value in zip(profile.counters, activity.counters, strict=bool(activity.counters))
            if value is not None
        }
        for activity in profile.activities
        if activity.kind == "kernel"
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_values_of_a_database_are_those_of_its_rows(version: str, tmp_path: Path) -> None:
    """Instances of a base counter are added up; a percentage with two rows has no value, and that is said."""
    path = tmp_path / "run.db"
    path.write_bytes(database(tables(version, COUNTED)))
    notes = Notes()
    (profile,) = read(path, rocpd, notes)
    rows: dict[tuple[int, str], list[float]] = defaultdict(list)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        events = [event for (event,) in connection.execute("SELECT event_id FROM rocpd_kernel_dispatch ORDER BY id")]
        names = dict(connection.execute("SELECT id, name FROM rocpd_info_pmc").fetchall())
        for event, counter, value in connection.execute("SELECT event_id, pmc_id, value FROM rocpd_pmc_event"):
            rows[events.index(event), names[counter]].append(value)
    expected: list[dict[str, float]] = [{} for _ in KERNELS]
    for (kernel, name), of_kernel in rows.items():
        if name != "VALUUtilization" or len(of_kernel) == 1:
            expected[kernel][name] = sum(of_kernel)
    assert values(profile) == expected
    assert sum(map(len, expected)) == 4 * KERNEL_COUNT - 1
    assert [(counter.name, counter.unit) for counter in profile.counters] == [(one.name, one.unit) for one in COUNTED]
    kinds = {note.kind: note.count for note in notes}
    assert {kind.partition(":")[0] for kind in kinds} == {
        "run that collected hardware counters",
        "counter with several values per kernel that cannot be added up (a percentage, a mean)",
    }
    assert list(kinds.values()) == [1, 1]


@pytest.mark.parametrize("version", ["3.0.3", "3.0.4", "3.0.5"])
def test_samples_of_a_stream_of_counters_are_in_no_sum(version: str, tmp_path: Path) -> None:
    """They have the event of a kernel, too, and the id of a sample."""
    made = tables(version, COUNTED)
    made.rows["rocpd_pmc_event"].append({**made.rows["rocpd_pmc_event"][0], "id": 999_999, "sample_id": 5})
    (tmp_path / "with.db").write_bytes(database(made))
    (tmp_path / "without.db").write_bytes(database(tables(version, COUNTED)))
    (with_sample,), (without,) = (read(tmp_path / name, rocpd) for name in ("with.db", "without.db"))
    assert values(with_sample) == values(without)


@pytest.mark.parametrize("change", ["value = 'many'", "value = 1e300", "value = NULL", "pmc_id = 5", "event_id = NULL"])
def test_a_row_that_says_nothing_is_left_out(change: str, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    made = tables("3.0.5", COUNTED)
    name, _, text = change.partition(" = ")
    for row in made.rows["rocpd_pmc_event"]:
        row[name] = {"'many'": "many", "1e300": 1e300, "NULL": None, "5": 5}[text]
    path.write_bytes(database(made))
    (profile,) = read(path, rocpd)
    assert all(not of_kernel for of_kernel in values(profile))
    convert(path, output=io.BytesIO(), check=True)


def table(rows: list[dict[str, str]]) -> dict[tuple[int, int], dict[str, float]]:
    """By dispatch and start, of a table as the csv module reads it."""
    found: dict[tuple[int, int], dict[str, float]] = {}
    for row in rows:
        key = int(row["Dispatch_Id"]), int(row["Start_Timestamp"])
        found.setdefault(key, {})[row["Counter_Name"]] = float(row["Counter_Value"])
    return found


@pytest.mark.shared
def test_values_of_a_table_are_those_of_its_rows() -> None:
    """A real one of rocprofv3, without a table of kernels: each dispatch once, with its times."""
    path = samples() / "rocm" / "rocprofv3_csv_decode_fetch_counter_collection.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    (profile,) = read(path, v3_csv)
    ours = {
        (activity.number, activity.start_ns): of_kernel
        for activity, of_kernel in zip(profile.activities, values(profile), strict=True)
    }
    assert ours == table(rows)
    assert len(ours) == len(rows) == 34
    assert profile.process.pid == int(rows[0]["Process_Id"])
    assert {(a.name, a.end_ns) for a in profile.activities} == {
        (row["Kernel_Name"], int(row["End_Timestamp"])) for row in rows
    }


HEAD = "Correlation_Id,Dispatch_Id,Agent_Id,Queue_Id,Process_Id,Thread_Id,Kernel_Name,VGPR_Count,Counter_Name,"
HEAD += "Counter_Value,Start_Timestamp,End_Timestamp\n"
TRACE = "Kind,Agent_Id,Queue_Id,Thread_Id,Dispatch_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp\n"


def row(dispatch: int, counter: str, value: str, start: int) -> str:
    return f"{dispatch},{dispatch},4,1,7,8,k{dispatch},16,{counter},{value},{start},{start + 50}\n"


def test_values_join_the_kernels_of_their_set(tmp_path: Path) -> None:
    """By dispatch and time; a row of a kernel that is not there is counted."""
    kernels = "".join(f"KERNEL_DISPATCH,4,1,8,{n},k{n},{n},{1000 * n},{1000 * n + 50}\n" for n in (1, 2, 3))
    (tmp_path / "x_kernel_trace.csv").write_text(TRACE + kernels)
    rows = row(1, "SQ_WAVES", "10", 1000) + row(1, "SQ_BUSY_CYCLES", "20.5", 1000) + row(3, "SQ_WAVES", "30", 3000)
    (tmp_path / "x_counter_collection.csv").write_text(HEAD + rows + row(2, "SQ_WAVES", "99", 777))
    for name in ("x_kernel_trace.csv", "x_counter_collection.csv"):
        notes = Notes()
        (profile,) = read(tmp_path / name, v3_csv, notes)
        assert values(profile) == [{"SQ_WAVES": 10, "SQ_BUSY_CYCLES": 20.5}, {}, {"SQ_WAVES": 30}]
        assert [note.count for note in notes if "not in the table of kernels" in note.kind] == [1]


def test_another_pass_is_other_kernels(tmp_path: Path) -> None:
    """Ids of dispatches begin again: what was counted twice is not added up, nor is its time."""
    rows = row(1, "SQ_WAVES", "10", 1000) + row(1, "SQ_WAVES", "10", 500_000)
    (tmp_path / "a.csv").write_text(HEAD + rows)
    (profile,) = read(tmp_path / "a.csv", v3_csv)
    assert values(profile) == [{"SQ_WAVES": 10}] * 2


@pytest.mark.parametrize(
    ("name", "expected"), [("SQ_WAVES", {"SQ_WAVES": 3.0}), ("MemUnitBusy", {}), ("TCC_HIT_sum", {"TCC_HIT_sum": 3.0})]
)
def test_several_rows_of_a_dispatch_are_added_up_if_they_count(name: str, expected: object, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEAD + row(1, name, "1", 1000) + row(1, name, "2.000000", 1000))
    (profile,) = read(tmp_path / "a.csv", v3_csv)
    assert values(profile) == [expected]


def counted(**named: float) -> tuple[Activity, tuple[Counter, ...]]:
    activity = Activity(0, "kernel", "k", start_ns=0, end_ns=1000, counters=tuple(named.values()))
    return activity, tuple(map(Counter, named))


def test_what_counters_measured_is_as_amd_defines_it() -> None:
    """Kilobytes of 1024; 64 lanes, an FMA is two operations, 512 per MFMA count; by hand."""
    prefix = "SQ_INSTS_VALU_"
    found = measured(*counted(FETCH_SIZE=3.0, WRITE_SIZE=1.0, **{
        f"{prefix}ADD_F32": 1, f"{prefix}MUL_F32": 2, f"{prefix}TRANS_F32": 4, f"{prefix}FMA_F32": 8,
        f"{prefix}MFMA_MOPS_F32": 16, f"{prefix}ADD_F16": 1000, f"{prefix}MFMA_MOPS_BF16": 3,
    }))  # fmt: skip
    assert (found.read_bytes, found.write_bytes, found.bytes) == (3072, 1024, 4096)
    assert found.flop == 64 * (1 + 2 + 4 + 16) + 512 * 16 + 512 * 3
    assert found.gb_per_s == 4.096
    assert found.gflops == found.flop / 1000
    assert found.flop_per_byte == found.flop / 4096


@pytest.mark.parametrize(
    "named", [{"FETCH_SIZE": -1.0}, {"FETCH_SIZE": 1e18}, {"SQ_WAVES": 3.0}, {"SQ_INSTS_VALU_ADD_F32": 1.0}]
)
def test_what_is_not_known_is_not_shown(named: dict[str, float]) -> None:
    assert measured(*counted(**named)).shown == {}


def test_counters_are_columns_and_arguments(tmp_path: Path) -> None:
    """With their unit if the file states it; a counter called as a column has a name of its own."""
    (tmp_path / "a.db").write_bytes(database(tables("3.0.5", (*COUNTED, Counted("name", (((7.0,),) * 7))))))
    result = CliRunner().invoke(cli, ["kernels", str(tmp_path / "a.db"), "--format", "json"])
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    assert [one["SQ_WAVES"] for one in rows] == [4000 * kernel + 6 for kernel in range(7)]
    assert [one["FETCH_SIZE (KB)"] for one in rows] == [10.625 + kernel for kernel in range(7)]
    assert [(one["name"], one["name'"]) for one in rows] == [(kernel.name, 7) for kernel in KERNELS]
    assert rows[0]["measured_read_bytes"] == 10880
    assert rows[0]["measured_gb_per_s"] == (10880 + 2560) / 600
    run = analyse([str(tmp_path / "a.db")]).run
    joined = enqueue_table(run.profiles[0], Unit("ns"), run.alignment)  # the table of a profile with its log
    assert {*joined.brief, "layer"} <= {*joined.columns}
    assert [{name: row[name] for name in rows[0] if "SIZE" in name} for row in joined.rows] == [
        {name: row[name] for name in rows[0] if "SIZE" in name} for row in rows
    ]
    out = io.BytesIO()
    convert(tmp_path / "a.db", output=out, check=True)
    slices = [event for event in json.loads(out.getvalue())["traceEvents"] if event.get("cat") == "kernel"]
    assert slices[0]["args"]["counters"]["FETCH_SIZE"] == 10.625
    assert slices[0]["args"]["measured"]["read_bytes"] == 10880


def test_sums_by_name_and_tables_of_a_dataset_have_what_was_measured(tmp_path: Path) -> None:
    """Against sums over the database's rows: bytes per name, bandwidth over the time of its kernels."""
    path = tmp_path / "a.db"
    path.write_bytes(database(tables("3.0.5", COUNTED)))
    kilobytes: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        names = dict(connection.execute(
            "SELECT d.event_id, s.display_name FROM rocpd_kernel_dispatch d JOIN rocpd_info_kernel_symbol s"
            " ON s.id = d.kernel_id"
        ).fetchall())  # fmt: skip
        counters = dict(connection.execute("SELECT id, name FROM rocpd_info_pmc").fetchall())
        for event, counter, value in connection.execute("SELECT event_id, pmc_id, value FROM rocpd_pmc_event"):
            if counters[counter] in ("FETCH_SIZE", "WRITE_SIZE"):
                kilobytes[names[event]][counters[counter] == "WRITE_SIZE"] += value
    time: dict[str, int] = defaultdict(int)
    for kernel in KERNELS:
        time[kernel.name] += kernel.end - kernel.start
    result = CliRunner().invoke(cli, ["kernels", str(path), "--by", "name", "--format", "json"])
    rows = {one["name"]: one for one in json.loads(result.stdout)}
    assert rows.keys() >= {"conv_fwd"}  # the steady iteration, which has kernels without counters, too
    for name in rows.keys() & kilobytes:
        read_kb, written_kb = kilobytes[name]
        iterations = rows[name]["iterations"]
        assert rows[name]["measured_read_bytes"] * iterations == pytest.approx(read_kb * 1024)
        assert rows[name]["measured_write_bytes"] * iterations == pytest.approx(written_kb * 1024)
        assert rows[name]["measured_gb_per_s"] == pytest.approx((read_kb + written_kb) * 1024 / time[name])
        assert "measured_flop" not in rows[name]
    kernels = mio2trace.load(path).kernels
    read_bytes = kernels.column("measured_read_bytes")
    assert read_bytes == [round(1024 * (10.625 + number)) for number in range(KERNEL_COUNT)]
    assert kernels.column("measured_flop") == [None] * KERNEL_COUNT


@pytest.mark.shared
def test_sums_by_name_of_a_table_are_those_of_its_rows() -> None:
    path = samples() / "rocm" / "rocprofv3_csv_decode_fetch_counter_collection.csv"
    expected: dict[str, float] = defaultdict(float)
    with path.open(newline="") as file:
        for one in csv.DictReader(file):
            assert one["Counter_Name"] == "FETCH_SIZE"
            expected[one["Kernel_Name"]] += 1024 * float(one["Counter_Value"])
    result = CliRunner().invoke(cli, ["kernels", str(path), "--by", "name", "--format", "json"])
    found = {one["name"]: one["measured_read_bytes"] * one["iterations"] for one in json.loads(result.stdout)}
    assert len(found) > 3
    assert found == pytest.approx(dict(expected), abs=34)


def test_the_times_of_a_counter_run_are_marked(tmp_path: Path) -> None:
    """On standard error, and as a finding of the report."""
    (tmp_path / "a.db").write_bytes(database(tables("3.0.5", COUNTED)))
    result = CliRunner().invoke(cli, ["report", str(tmp_path / "a.db"), "--format", "json"])
    assert result.exit_code == 0
    assert "times and gaps are not those of a plain run" in result.stderr
    assert "counter-run" in result.stdout


# -- Host time in launching calls and time in the queue: equal to plain sums over the raw file.


SAMPLES = shared_folder() / "samples" / "rocm"


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, [*map(str, arguments), "--format", "json"])
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def raw(path: Path) -> list[tuple[str, int, int | None, int | None, bool]]:
    """Of each kernel of a Kineto file: name, correlation, time in the launching call, time in the queue (ns), and
    whether a graph launched it."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    calls = {}
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and event.get("ph") == "X":
            start = round(event["ts"] * 1000)
            calls[event["args"].get("correlation")] = start, start + round(event["dur"] * 1000), event["name"]
    found = []
    for event in events:
        if event.get("cat") == "kernel":
            correlation = event["args"]["correlation"]
            start, end, name = calls.get(correlation, (None, None, ""))
            is_graph = "GraphLaunch" in name
            known = start is not None and end is not None and not is_graph
            queue = max(0, round(event["ts"] * 1000) - end) if known and end is not None else None
            api = end - start if known and start is not None and end is not None else None
            found.append((event["name"], correlation, api, queue, is_graph))
    return found


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["kineto_mi300x_vit_infer", "kineto_mi300_bert_small", "graphs/vllm_decode_full.replay"]
)
def test_times_in_the_queue_are_those_of_the_file(name: str) -> None:
    """By kernel name, to 2 ns per kernel; a kernel that a graph launched has none."""
    path = SAMPLES / f"{name}.json.gz"
    ours: dict[str, list[int | None]] = defaultdict(list)
    for row in rows("kernels", path):
        ours[row["name"]].append(row.get("in_queue_ns"))
    expected: dict[str, list[int | None]] = defaultdict(list)
    for kernel, _, _, queue, _ in raw(path):
        expected[kernel].append(queue)
    assert ours.keys() == expected.keys()
    for kernel, of_kernel in expected.items():
        assert ours[kernel].count(None) == of_kernel.count(None)
        known = [ns for ns in of_kernel if ns is not None]
        total = sum(ns for ns in ours[kernel] if ns is not None)
        assert total == pytest.approx(sum(known), abs=2 * len(known))
    data = mio2trace.load(path).kernels.column("in_queue_ns")
    assert sorted(ns or 0 for ns in data) == sorted(ns or 0 for of in ours.values() for ns in of)


@pytest.mark.shared
def test_times_of_operations_are_the_sums_of_their_kernels() -> None:
    """All 155 kernels of the sample are in operations: the tables' sums are those of the file."""
    path = SAMPLES / "kineto_mi300x_vit_infer.json.gz"
    of_file = raw(path)
    calls = {correlation: api or 0 for _, correlation, api, _, _ in of_file}
    expected = sum(calls.values()), sum(queue or 0 for _, _, _, queue, _ in of_file)
    assert len(of_file) == 155
    for arguments in (("--each",), (), ("--group-by", "primitive")):
        made = rows("ops", path, *arguments)
        found = tuple(sum(row.get(name, 0) for row in made) for name in ("api_ns", "in_queue_ns"))
        assert found == pytest.approx(expected, abs=2 * 155)
    operations = mio2trace.load(path).operations
    assert sum(ns or 0 for ns in operations.column("api_ns")) == pytest.approx(expected[0], abs=2 * 155)


@pytest.mark.shared
def test_a_graphs_call_is_not_counted_for_each_of_its_kernels() -> None:
    """421 kernels have one call in common: none of them has a host time, and no sum holds that time 421 times."""
    replay = SAMPLES / "graphs" / "vllm_decode_full.replay.json.gz"
    graph_names = {kernel for kernel, _, _, _, is_graph in raw(replay) if is_graph}
    made = {row["name"]: row for row in rows("kernels", replay, "--by", "name")}
    assert len(graph_names & made.keys()) > 10
    assert not [name for name in graph_names & made.keys() if {"host_ns", "in_queue_ns"} & made[name].keys()]


def test_a_queue_time_needs_one_clock_and_a_call_before_the_kernel() -> None:
    call = Call("hipLaunchKernel", start_ns=100, end_ns=150)
    kernel = Activity(0, "kernel", "k", start_ns=170, end_ns=200, call=call)
    late_call = Activity(0, "kernel", "k", start_ns=120, end_ns=200, call=call)
    too_early = Activity(0, "kernel", "k", start_ns=99, end_ns=200, call=call)
    queued = Activity(0, "kernel", "k", queued_ns=5, submit_ns=7, start_ns=12, end_ns=20)
    assert queue_ns(kernel, on_one_clock=True) == 20
    assert queue_ns(kernel, on_one_clock=False) is None
    assert queue_ns(late_call, on_one_clock=True) == 0
    assert queue_ns(too_early, on_one_clock=True) is None
    assert queue_ns(queued, on_one_clock=False) == 7


def test_a_device_that_records_the_queue_states_it_itself() -> None:
    """dv/dt: from queued to started, both on the device's clock."""
    made = rows("kernels", ROOT / "traces" / "alexnet-b1-train" / "prof.json.gz")
    assert len(made) > 100
    assert all(row["in_queue_ns"] == row["start_ns"] - row["queued_ns"] for row in made)


# -- Lanes of spans that nest or are disjoint.
