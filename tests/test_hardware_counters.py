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

import mio2trace
from mio2trace.analysis import analyse
from mio2trace.conversion import convert
from mio2trace.measures.cost import measured
from mio2trace.measures.device_time import queued_ns
from mio2trace.model.profile import Activity, Call, Counter, Profile
from mio2trace.model.tables import NO, Activities
from mio2trace.notes import Notes
from mio2trace.readers.rocm import rocpd, v3_csv, v3_json
from mio2trace.reports import in_unit, stacked
from mio2trace.reports.kernels import enqueue_table
from tests.commands import invoked, json_of
from tests.conftest import ROOT, shared_folder
from tests.often import saved
from tests.rocm_files import read
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


def read_database(folder: Path, made: Any = None, notes: Notes | None = None) -> tuple[Path, Profile]:
    path = saved(folder / "run.db", database(made or tables("3.0.5", COUNTED)))
    (profile,) = read(path, rocpd, notes or Notes())
    return path, profile


def raw_values(path: Path) -> list[tuple[int, str, float]]:
    """(kernel's place, counter, value) of each row of a database."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        events = [event for (event,) in connection.execute("SELECT event_id FROM rocpd_kernel_dispatch ORDER BY id")]
        names = dict(connection.execute("SELECT id, name FROM rocpd_info_pmc").fetchall())
        rows = connection.execute("SELECT event_id, pmc_id, value FROM rocpd_pmc_event")
        return [(events.index(event), names[counter], value) for event, counter, value in rows]


@pytest.mark.parametrize("version", VERSIONS)
def test_values_of_a_database_are_those_of_its_rows(version: str, tmp_path: Path) -> None:
    """Instances of a base counter are added up; a percentage with two rows has no value, and that is said."""
    notes = Notes()
    path, profile = read_database(tmp_path, tables(version, COUNTED), notes)
    rows: dict[tuple[int, str], list[float]] = defaultdict(list)
    for kernel, name, value in raw_values(path):
        rows[kernel, name].append(value)
    expected: list[dict[str, float]] = [{} for _ in KERNELS]
    for (kernel, name), of_kernel in rows.items():
        if name != "VALUUtilization" or len(of_kernel) == 1:
            expected[kernel][name] = sum(of_kernel)
    assert values(profile) == expected
    assert sum(map(len, expected)) == 4 * KERNEL_COUNT - 1
    assert [(counter.name, counter.unit) for counter in profile.counters] == [(one.name, one.unit) for one in COUNTED]
    assert {note.kind.partition(":")[0]: note.count for note in notes} == {
        "run that collected hardware counters": 1,
        "counter with several values per kernel that cannot be added up (a percentage, a mean)": 1,
    }


@pytest.mark.parametrize("version", ["3.0.3", "3.0.4", "3.0.5"])
def test_samples_of_a_stream_of_counters_are_in_no_sum(version: str, tmp_path: Path) -> None:
    """They have the event of a kernel, too, and the id of a sample."""
    made = tables(version, COUNTED)
    without = values(read_database(tmp_path, made)[1])
    made.rows["rocpd_pmc_event"].append({**made.rows["rocpd_pmc_event"][0], "id": 999_999, "sample_id": 5})
    assert values(read_database(tmp_path, made)[1]) == without


@pytest.mark.parametrize(
    ("name", "value"), [("value", "many"), ("value", 1e300), ("value", None), ("pmc_id", 5), ("event_id", None)]
)
def test_a_row_that_says_nothing_is_left_out(name: str, value: object, tmp_path: Path) -> None:
    made = tables("3.0.5", COUNTED)
    for row in made.rows["rocpd_pmc_event"]:
        row[name] = value
    path, profile = read_database(tmp_path, made)
    assert not any(values(profile))
    convert(path, output=io.BytesIO(), check=True)


@pytest.mark.shared
def test_values_of_a_table_are_those_of_its_rows() -> None:
    """A real one of rocprofv3, without a table of kernels: each dispatch once, with its times; bytes by name."""
    path = SAMPLES / "rocprofv3_csv_decode_fetch_counter_collection.csv"
    with path.open(newline="") as file:
        raw_rows = list(csv.DictReader(file))
    (profile,) = read(path, v3_csv)
    ours = {
        (one.number, one.start_ns, one.end_ns, one.name): of_kernel
        for one, of_kernel in zip(profile.activities, values(profile), strict=True)
    }
    assert ours == {
        (int(row["Dispatch_Id"]), int(row["Start_Timestamp"]), int(row["End_Timestamp"]), row["Kernel_Name"]): {
            row["Counter_Name"]: float(row["Counter_Value"])
        }
        for row in raw_rows
    }
    assert len(ours) == len(raw_rows) == 34
    assert profile.process.pid == int(raw_rows[0]["Process_Id"])
    kilobytes: dict[str, float] = defaultdict(float)
    for row in raw_rows:
        assert row["Counter_Name"] == "FETCH_SIZE"
        kilobytes[row["Kernel_Name"]] += float(row["Counter_Value"])
    found = {
        one["name"]: one["measured_read_bytes"] * one["iterations"] for one in json_of("kernels", path, "--by", "name")
    }
    assert len(found) > 3
    assert found == pytest.approx({name: 1024 * kb for name, kb in kilobytes.items()}, abs=34)


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


@pytest.mark.parametrize(
    ("rows_", "expected"),
    [
        # ids of dispatches begin again in another pass: what was counted twice is not added up, nor is its time
        ([("SQ_WAVES", "10", 1000), ("SQ_WAVES", "10", 500_000)], [{"SQ_WAVES": 10}] * 2),
        # several rows of one dispatch are added up if they count
        ([("SQ_WAVES", "1", 1000), ("SQ_WAVES", "2.000000", 1000)], [{"SQ_WAVES": 3.0}]),
        ([("MemUnitBusy", "1", 1000), ("MemUnitBusy", "2.000000", 1000)], [{}]),
        ([("TCC_HIT_sum", "1", 1000), ("TCC_HIT_sum", "2.000000", 1000)], [{"TCC_HIT_sum": 3.0}]),
    ],
)
def test_rows_of_one_dispatch(rows_: list[tuple[str, str, int]], expected: object, tmp_path: Path) -> None:
    (profile,) = read(saved(tmp_path / "a.csv", HEAD + "".join(row(1, *one) for one in rows_)), v3_csv)
    assert values(profile) == expected


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
    path, _ = read_database(tmp_path, tables("3.0.5", (*COUNTED, Counted("name", (((7.0,),) * 7)))))
    made = json_of("kernels", path)
    assert [one["SQ_WAVES"] for one in made] == [4000 * kernel + 6 for kernel in range(7)]
    assert [one["FETCH_SIZE (KB)"] for one in made] == [10.625 + kernel for kernel in range(7)]
    assert [(one["name"], one["name'"]) for one in made] == [(kernel.name, 7) for kernel in KERNELS]
    assert made[0]["measured_read_bytes"] == 10880
    assert made[0]["measured_gb_per_s"] == (10880 + 2560) / 600
    run = analyse([str(path)]).run
    joined = enqueue_table(run.profiles[0], run.alignment)  # the table of a profile with its log
    assert {*joined.brief, "layer"} <= {*joined.columns}
    sizes = [name for name in made[0] if "SIZE" in name]
    assert [[of[name] for name in sizes] for of in joined.rows] == [[of[name] for name in sizes] for of in made]
    out = io.BytesIO()
    convert(path, output=out, check=True)
    args = next(one["args"] for one in json.loads(out.getvalue())["traceEvents"] if one.get("cat") == "kernel")
    assert (args["counters"]["FETCH_SIZE"], args["measured"]["read_bytes"]) == (10.625, 10880)


@pytest.mark.parametrize("options", [(), ("--raw",), ("--unit", "us"), ("--raw", "--unit", "us")])
@pytest.mark.parametrize("name", ["kernel_ns", "p3_p2_us", "overhead_us", "in_queue", "queued_ns"])
def test_a_counter_called_as_a_time_changes_none(name: str, options: tuple[str, ...], tmp_path: Path) -> None:
    """In no unit, and by neither of its names."""
    found = []
    for counter in (name, "other"):
        path = saved(tmp_path / "a.csv", HEAD + row(1, counter, "7003", 1000))
        (made,) = json_of("kernels", path, *options)
        assert made.pop(f"{counter}'" if counter == name else counter) == 7003
        found.append(made)
    assert found[0] == found[1]


def test_moments_and_counters_are_in_no_other_unit(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.csv", HEAD + row(1, "stall_ns", "7003", 1000))
    (made,) = json_of("kernels", path, "--unit", "us")
    assert [made[name] for name in ("kernel_us", "start_ns", "end_ns", "stall_ns")] == [0.05, 1000, 1050, 7003]
    beside = stacked([({"rank": 0}, enqueue_table(analyse([path]).run.profiles[0]))])
    assert {"p3_p2_us", "p2_ns", "p3_ns", "stall_ns"} < {*in_unit(beside, "us").columns}


def test_sums_by_name_and_tables_of_a_dataset_have_what_was_measured(tmp_path: Path) -> None:
    """Against sums over the database's rows: bytes per name, bandwidth over the time of its kernels."""
    path, _ = read_database(tmp_path)
    kilobytes: dict[tuple[str, str], float] = defaultdict(float)
    for kernel, counter, value in raw_values(path):
        kilobytes[KERNELS[kernel].name, counter] += value
    time: dict[str, int] = defaultdict(int)
    for one in KERNELS:
        time[one.name] += one.end - one.start
    made = {one["name"]: one for one in json_of("kernels", path, "--by", "name")}
    assert made.keys() >= {"conv_fwd"}  # the steady iteration, which has kernels without counters, too
    for name in made.keys() & {name for name, _ in kilobytes}:
        read_kb, written_kb = kilobytes[name, "FETCH_SIZE"], kilobytes[name, "WRITE_SIZE"]
        assert made[name]["measured_read_bytes"] * made[name]["iterations"] == pytest.approx(read_kb * 1024)
        assert made[name]["measured_write_bytes"] * made[name]["iterations"] == pytest.approx(written_kb * 1024)
        assert made[name]["measured_gb_per_s"] == pytest.approx((read_kb + written_kb) * 1024 / time[name])
        assert "measured_flop" not in made[name]
    kernels = mio2trace.load(path).kernels
    read_bytes = [round(1024 * (10.625 + number)) for number in range(KERNEL_COUNT)]
    assert kernels.column("measured_read_bytes") == read_bytes
    assert kernels.column("measured_flop") == [None] * KERNEL_COUNT


def test_the_times_of_a_counter_run_are_marked(tmp_path: Path) -> None:
    """On standard error, and as a finding of the report."""
    path, _ = read_database(tmp_path)
    result = invoked("report", path, "--format", "json")
    assert result.exit_code == 0
    assert "times and gaps are not those of a plain run" in result.stderr
    assert "counter-run" in result.stdout


# -- Host time in launching calls and time in the queue: equal to plain sums over the raw file.


SAMPLES = shared_folder() / "samples" / "rocm"


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
            start, end, name = calls.get(event["args"]["correlation"], (0, 0, ""))
            known = bool(name) and "GraphLaunch" not in name
            queue = max(0, round(event["ts"] * 1000) - end) if known else None
            of_call = event["args"]["correlation"], end - start if known else None, queue
            found.append((event["name"], *of_call, "GraphLaunch" in name))
    return found


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["kineto_mi300x_vit_infer", "kineto_mi300_bert_small", "graphs/vllm_decode_full.replay"]
)
def test_times_in_the_queue_are_those_of_the_file(name: str) -> None:
    """By kernel name, to 2 ns per kernel; a kernel that a graph launched has none, and no host time: 421 kernels have
    one call in common, and no sum holds its time 421 times."""
    path = SAMPLES / f"{name}.json.gz"
    ours: dict[str, list[int | None]] = defaultdict(list)
    expected: dict[str, list[int | None]] = defaultdict(list)
    for one in json_of("kernels", path):
        ours[one["name"]].append(one.get("in_queue_ns"))
    for kernel, _, _, queue, _ in raw(path):
        expected[kernel].append(queue)
    assert ours.keys() == expected.keys()
    for kernel, of_kernel in expected.items():
        assert ours[kernel].count(None) == of_kernel.count(None)
        assert sum(ns or 0 for ns in ours[kernel]) == pytest.approx(
            sum(ns or 0 for ns in of_kernel), abs=2 * len(of_kernel)
        )
    data = mio2trace.load(path).kernels.column("in_queue_ns")
    assert sorted(ns or 0 for ns in data) == sorted(ns or 0 for of in ours.values() for ns in of)
    graph_names = {kernel for kernel, _, _, _, is_graph in raw(path) if is_graph}
    of_graphs = [one for one in json_of("kernels", path, "--by", "name") if one["name"] in graph_names]
    assert len(of_graphs) > 10 or "graphs" not in name
    assert not [one for one in of_graphs if {"host_ns", "in_queue_ns"} & one.keys()]


@pytest.mark.shared
def test_times_of_operations_are_the_sums_of_their_kernels() -> None:
    """All 155 kernels of the sample are in operations: the tables' sums are those of the file."""
    path = SAMPLES / "kineto_mi300x_vit_infer.json.gz"
    of_file = raw(path)
    calls = {correlation: api or 0 for _, correlation, api, _, _ in of_file}
    expected = sum(calls.values()), sum(queue or 0 for _, _, _, queue, _ in of_file)
    assert len(of_file) == 155
    for arguments in (("--each",), (), ("--group-by", "primitive")):
        made = json_of("ops", path, *arguments)
        found = tuple(sum(row.get(name, 0) for row in made) for name in ("api_ns", "in_queue_ns"))
        assert found == pytest.approx(expected, abs=2 * 155)
    operations = mio2trace.load(path).operations
    assert sum(ns or 0 for ns in operations.column("api_ns")) == pytest.approx(expected[0], abs=2 * 155)


@pytest.mark.parametrize(
    ("times", "on_one_clock", "expected"),
    [({"start_ns": 170}, True, 20), ({"start_ns": 170}, False, None), ({"start_ns": 120}, True, 0),
     ({"start_ns": 99}, True, None), ({"queued_ns": 5, "submit_ns": 7, "start_ns": 12, "call": None}, False, 7)],
)  # fmt: skip
def test_a_queue_time_needs_a_clock_and_a_call(times: dict[str, Any], on_one_clock: bool, expected: int | None) -> None:
    call = Call("hipLaunchKernel", start_ns=100, end_ns=150)
    made = Activity(0, "kernel", "k", end_ns=200, **{"call": call, **times})
    (found,) = queued_ns(Activities([made]), on_one_clock=on_one_clock).tolist()
    assert found == (NO if expected is None else expected)


def test_a_device_that_records_the_queue_states_it_itself() -> None:
    """dv/dt: from queued to started, both on the device's clock."""
    made = json_of("kernels", ROOT / "traces" / "alexnet-b1-train" / "prof.json.gz")
    assert len(made) > 100
    assert all(row["in_queue_ns"] == row["start_ns"] - row["queued_ns"] for row in made)


def as_json(*, kernels: bool, counted: int = 3, **changes: Any) -> str:
    """Three dispatches, the first ``counted`` with counters. ``kernels``: they are also in the list of kernels."""
    handle = {"handle": 9}
    size = {"x": 64, "y": 2, "z": 1}
    rows = [
        {
            "start_timestamp": 1000 * place, "end_timestamp": 1000 * place + 10 + place,
            "correlation_id": {"internal": place + 1, "external": 0},
            "dispatch_info": {
                "agent_id": handle, "queue_id": {"handle": 1}, "kernel_id": 3, "dispatch_id": place + 1,
                "group_segment_size": 0, "private_segment_size": 0, "workgroup_size": size, "grid_size": size,
            },
        }
        for place in range(3)
    ]  # fmt: skip
    told = [(1 << 60, 4.0), (1 << 60, 6.0), (7, 50.0), (7, 70.0), (8, 12.5), (5, 304.0), (5, 304.0)]
    process = {
        "metadata": {"pid": 7}, "agents": [{"id": handle, "name": "gfx942"}], "strings": {},
        "counters": [
            {"id": {"handle": 1 << 60}, "name": "SQ_WAVES", "is_constant": 0, "is_derived": 0},
            {"id": {"handle": 7}, "name": "VALUUtilization", "is_constant": 0, "is_derived": 1},
            {"id": {"handle": 8}, "name": "FETCH_SIZE", "is_constant": 0, "is_derived": 1},
            {"id": {"handle": 5}, "name": "CU_NUM", "is_constant": 1, "is_derived": 0},
        ],
        "kernel_symbols": [{"kernel_id": 3, "formatted_kernel_name": "k", "arch_vgpr_count": 8}],
        "callback_records": {
            "counter_collection": [
                {"thread_id": 5, "dispatch_data": row, "stream_id": {"handle": 2},
                 "records": [{"counter_id": {"handle": key}, "value": value} for key, value in told]}
                for row in rows[:counted]
            ]
        },
        "buffer_records": {
            "kernel_dispatch": [{**row, "thread_id": 5, "stream_id": {"handle": 2}} for row in rows] if kernels else []
        },
    }  # fmt: skip
    return json.dumps({"rocprofiler-sdk-tool": [{**process, **changes}]})


@pytest.mark.parametrize("kernels", [False, True])
def test_counters_of_a_json_are_those_of_its_kernels(kernels: bool, tmp_path: Path) -> None:
    """Rows of a base counter are added up; the kernels may be only in the list of counters."""
    notes = Notes()
    (profile,) = read(saved(tmp_path / "7_results.json", as_json(kernels=kernels)), v3_json, notes)
    assert [(one.name, one.start_ns, one.end_ns, one.correlation, one.number) for one in profile.activities] == [
        ("k", 1000 * place, 1000 * place + 10 + place, place + 1, place + 1) for place in range(3)
    ]
    assert {(one.grid, one.workgroup) for one in profile.activities} == {((64, 2, 1), (64, 2, 1))}
    assert values(profile) == [{"SQ_WAVES": 10.0, "FETCH_SIZE": 12.5, "CU_NUM": 304.0}] * 3
    assert sorted(str(note.kind) for note in notes)[0].startswith("counter with several values per kernel")
    assert any("run that collected hardware counters" in note.kind for note in notes)


@pytest.mark.parametrize("number", [None, 7])
def test_each_kernel_of_a_json_counts_if_their_numbers_tell_none_apart(number: int | None, tmp_path: Path) -> None:
    """Without a number no counter is given to another kernel."""
    path = tmp_path / "7_results.json"
    processes = json.loads(as_json(kernels=False))
    (process,) = processes["rocprofiler-sdk-tool"]
    for row in process["callback_records"]["counter_collection"]:
        row["dispatch_data"]["dispatch_info"]["dispatch_id"] = number
    path.write_text(json.dumps(processes))
    (profile,) = read(path, v3_json)
    assert [one.start_ns for one in profile.activities] == [0, 1000, 2000]
    assert [one["SQ_WAVES"] for one in values(profile)] == [10.0] * 3
    if number is None:
        rows = process["callback_records"]["counter_collection"]
        process["buffer_records"]["kernel_dispatch"] = [row["dispatch_data"] for row in rows]
        path.write_text(json.dumps(processes))
        notes = Notes()
        (profile,) = read(path, v3_json, notes)
        assert [len(one) for one in values(profile)] == [0, 0, 0]
        assert any(note.kind.startswith("counter of a kernel that was not recorded") for note in notes)


def test_kernels_of_a_json_without_counters_are_kept(tmp_path: Path) -> None:
    """And a file whose records are null has none."""
    path = saved(tmp_path / "7_results.json", as_json(kernels=True, counted=1))
    (profile,) = read(path, v3_json)
    assert [len(one) for one in values(profile)] == [3, 0, 0]
    path.write_text(as_json(kernels=True, callback_records=None))
    (profile,) = read(path, v3_json)
    assert [len(one) for one in values(profile)] == [0, 0, 0]
