"""Files that are known and not read: refused in one line that names them and what to give instead."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from mio2trace.conversion import convert
from mio2trace.notes import InputError, Notes
from mio2trace.readers import READERS, detect, refusal, run_log
from mio2trace.source import Source
from tests.commands import invoked, printed
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, kineto_file, launched, row, rows
from tests.oracle.events import unpacked
from tests.rocm_files import samples
from tests.xspace_read import kernels_by_hand

SUMMARY, COUNTERS = "is a summary of calls or kernels", "is a table of counters"
NOT_PROFILES = {
    "INDEX.md": "none of its",
    "miopen_hip_video_vae_conv3d_part1.log.gz": "records of MIOpen's log but no time",
    "rocprofcompute_vcopy_MI100_pmc_perf.csv": COUNTERS,
    "rocprofv1_hiptrace_mi300a.copy_stats.csv": SUMMARY,
    "rocprofv1_hiptrace_mi300a.hip_stats.csv": SUMMARY,
    "rocprofv1_hiptrace_mi300a.output_vec_add_gpu.csv": COUNTERS,
    "rocprofv1_hiptrace_mi300a.stats.csv": SUMMARY,
    "rocprofv1_stats_results.stats.csv": SUMMARY,
    "rocprofv3_doc_hip_api_stats.csv": SUMMARY,
    "rocprofv3_doc_memory_allocation_trace.csv": "is a table of memory allocations",
    "rocprofv3_doc_scratch_memory_trace.csv": "is a table of scratch memory",
    "rocprofv3_output_json_schema.json.gz": "is a JSON schema",
}


def _columns(data: bytes, start: str, end: str) -> list[tuple[str, str]]:
    return [(row[start], row[end]) for row in csv.DictReader(io.StringIO(data.decode()))]


def _chrome(data: bytes) -> list[dict[str, Any]]:
    events = json.loads(data)
    found: list[dict[str, Any]] = events if isinstance(events, list) else events["traceEvents"]
    return [event for event in found if event.get("ph") == "X"]


def _sql(data: bytes, query: str) -> list[tuple[int, int]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data)
        return connection.execute(query).fetchall()


DISPATCHES = "SELECT start, end FROM rocpd_kernel_dispatch"
TIMES: dict[str, Callable[[bytes], Iterable[tuple[Any, Any]]]] = {
    r"rocprofv3_.*kernel_trace.*\.csv": lambda data: _columns(data, "Start_Timestamp", "End_Timestamp"),
    r"rocprofv1_stats_results\.csv": lambda data: _columns(data, "BeginNs", "EndNs"),
    r"rocprofv3_.*counter_collection.*\.csv": lambda data: {*_columns(data, "Start_Timestamp", "End_Timestamp")},
    r"rocprofv3_json_.*": lambda data: [
        (row["start_timestamp"], row["end_timestamp"])
        for row in json.loads(data)["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"]
    ],
    r"rocpd_.*": lambda data: _sql(data, DISPATCHES),
    r".*\.rpd\.gz": lambda data: _sql(data, "SELECT start, end FROM op WHERE opType = 'KernelExecution'"),
    r"rocprofv1_.*\.db": lambda data: _sql(data, "SELECT BeginNs, EndNs FROM OPS"),
    r"rocprofv1_.*\.json": lambda data: [
        (event["args"]["BeginNs"], event["args"]["EndNs"]) for event in _chrome(data) if int(event["pid"]) >= 6
    ],
    r"xplane_.*": lambda data: [
        (round(start / 1000), round((start + duration) / 1000))
        for _, _, start, duration, _ in kernels_by_hand(data)
    ],
    r"rpd_export_.*": lambda data: [
        (int(event["ts"]) * 1000, (int(event["ts"]) + int(event["dur"])) * 1000)
        for event in _chrome(data)
        if event["args"]["desc"] == "KernelExecution"
    ],
}  # fmt: skip
"""Start and end of each kernel of a file, by other means; PyTorch's are in test_kineto.py."""


def names() -> list[str]:
    folder = shared_folder() / "samples" / "rocm"
    return sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("kineto_"))


@pytest.mark.shared
def test_every_sample_is_converted_whole_or_refused_by_name() -> None:
    """Each kernel once, drawn at its own exact time: those of the picture are those of another reading of the file."""
    assert set(NOT_PROFILES) < set(names())
    assert len(names()) - len(NOT_PROFILES) >= 11
    for name in names():
        path, out = samples() / "rocm" / name, io.BytesIO()
        if name in NOT_PROFILES:
            refused(path, f"^{re.escape(name)}: .*{NOT_PROFILES[name]}.*; expected ")
            continue
        convert(path, output=out, check=True)
        reading = next((one for pattern, one in TIMES.items() if re.fullmatch(pattern, name)), None)
        if reading is None:
            assert "api_trace" in name, "a table that is a set with one of kernels"
            continue
        expected = Counter((int(start), int(end)) for start, end in reading(unpacked(path)))
        events = json.loads(out.getvalue())["traceEvents"]
        drawn = [event for event in events if event.get("cat") == "kernel" and event["ph"] == "X"]
        assert len(drawn) == sum(expected.values()) > 0, name
        first, begin = min(start for start, _ in expected), min(event["ts"] for event in drawn)
        spans = [(event["ts"] - begin, event["ts"] + event["dur"] - begin) for event in drawn]
        assert Counter((first + round(a * 1000), first + round(b * 1000)) for a, b in spans) == expected, name


@pytest.mark.shared
@pytest.mark.parametrize("name", ["renamed.log", "renamed"])
def test_a_file_is_claimed_by_one_reader_at_most_whatever_its_name(name: str, tmp_path: Path) -> None:
    for original in names():
        (tmp_path / name).write_bytes((samples() / "rocm" / original).read_bytes())
        with contextlib.closing(Source(str(tmp_path / name), 0, Notes())) as source:
            claims = [reader for reader in READERS if reader is not run_log and reader.sniff(source.head)]
        assert len(claims) == (original not in NOT_PROFILES), original


def refused(path: Path, said: str) -> None:
    """In one line."""
    with pytest.raises(InputError, match=said) as error:
        convert(path, output=io.BytesIO())
    assert len(str(error.value).splitlines()) == 1


def _one_table(columns: str) -> bytes:
    return f"{columns}\n".encode()


def _database(*tables: str) -> bytes:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for table in tables:
            connection.execute(f"CREATE TABLE {table} (id)")
        return connection.serialize()


KNOWN = [
    (_one_table("Name,Calls,TotalDurationNs,AverageNs,Percentage"), "is a summary"),
    (_one_table("Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Kernel_Name,Start_Timestamp"), "rocprofv2"),
    (_one_table("Domain,Operation,Kernel_Name,Start_Timestamp,Stop_Timestamp"), "rocprofv2"),
    (_one_table("Domain,Function,Start_Timestamp,End_Timestamp,Correlation_ID"), "rocprofv2"),
    (_one_table("Domain,ROCTX_ID,Message,Timestamp"), "rocprofv2"),
    (_one_table("Node_Id,Logical_Node_Id,Agent_Type"), "processors"),
    (_one_table('"Sample_Timestamp","Exec_Mask","Dispatch_Id","Instruction","Correlation_Id"'), "program counter"),
    (b"ARROW1\0\0\xff\xff\xff\xff", "is a table of Arrow"),
    (_database("CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"), "is a database of NVIDIA's Nsight Systems"),
    (_database("songs"), "SQLite database of an unknown program"),
    (b"\x18\0\0\0\0\0\0\0abcd\x09\0\0\0\0\0\0\0\0\x1a\x0dbrain.Event:2", "is an events file of TensorBoard"),
    (b'{"$schema": "http://json-schema.org/draft-07/schema#"}', "JSON schema"),
    (b'{"$schema":"https://www.speedscope.app/file-format-schema.json","profiles":[]}', "speedscope"),
    (b'{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":[{"ph":"M","pid":1,'
     b'"name":"process_name","args":{"name":"/device:GPU:0"}}]}', "Chrome trace that JAX's or TensorFlow's profiler"),
    (b'{"displayTimeUnit": "ns", "traceEvents": [{"ph": "M", "args": {"name": "/host:CPU"}}]}', "Chrome trace"),
    (b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04\x12\x02\x0a\x00", "pprof profile"),
    (b'{"schema": "1.0.1", "pid": 9, "time": "2023-07-14", "start_ts": 62, "nodes": []}', "execution trace"),
    (b'[{"name": "aten::mul", "ph": "X", "ts": 1.5, "dur": 2, "tid": 1, "pid": "CPU functions", "args": {}}]',
     "torch.autograd.profiler"),
    (b'[{"ph": "M", "name": "process_name", "args": {"name": "Ascend Hardware"}}, {"cat": "cpu_op", "ph": "X"}]',
     "is a trace of Ascend's profiler"),
    (b'{"otherData": {"generator": "mio2trace 0.3.0"}, "traceEvents": []}', "is a trace that mio2trace wrote"),
    (b"\x0a\x04\x42\x02\x08\x01\x0a\x04\x42\x02\x08\x01", "is a Perfetto trace"),
    (b"BZh91AY&SY" + bytes(9), "is a file packed by bzip2, xz or zstd"),
    *((bytes.fromhex(magic) + bytes(504), "journal of an SQLite database")
      for magic in ("d9d505f920a163d7", "377f0682002de218", "377f0683002de218")),
]  # fmt: skip


@pytest.mark.parametrize(("data", "what"), KNOWN, ids=[what for _, what in KNOWN])
def test_what_is_known_is_named(data: bytes, what: str, tmp_path: Path) -> None:
    """A folder or an archive without profile and log names the file in it as that file itself is named."""
    (tmp_path / "file").write_bytes(data)
    refused(tmp_path / "file", f"^file: is an? .*{what.removeprefix('is a').lstrip('n ')}.*; expected ")
    if what.startswith("is a"):
        folder = tmp_path / "job"
        (folder / "out").mkdir(parents=True)
        (folder / "out" / "a.bin").write_bytes(data)
        (folder / "photo.jpg").write_bytes(b"\xff\xd8\0\0")
        for place in (folder, shutil.make_archive(str(folder), "zip", folder)):
            refused(Path(place), rf"^job[.zip]*: no profile and no log in it: out/a\.bin {what}.*; expected ")


@pytest.mark.parametrize("name", ["a.nsys-rep", "a.qdrep", "a.otf2", "a.evt.gz", "a.overview_page.pb"])
def test_a_binary_without_a_sign_is_named_by_its_ending(name: str) -> None:
    assert refusal(b"\x01\0\x02", name) is not None
    assert refusal(b"text", name) is None
    assert refusal(b"\x01\0\x02", "a.log") is None


@pytest.mark.parametrize("ending", ["json", "json.gz", "pftrace", "pftrace.gz"])
def test_a_trace_of_our_own_is_named(ending: str, tmp_path: Path) -> None:
    table = tmp_path / "k.csv"
    table.write_bytes(_one_table('Kind,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp\n"K","k",1,10,20'))
    convert(table, output=tmp_path / f"out.{ending}")
    refused(tmp_path / f"out.{ending}", "is a trace that mio2trace wrote; expected the files that it was made from")


@pytest.mark.parametrize("ending", ["html", "md"])
def test_a_report_in_the_folder_of_its_run_is_no_log(ending: str, tmp_path: Path) -> None:
    """Its driver lines would be calls of the run."""
    sizes = {"Input_Dims": [[64, 32], [32, 16]], "Input_type": ["float"] * 2, "Input_Strides": [[32, 1], [16, 1]]}
    product = row("cpu_op", "aten::mm", 542, 542, FIRST_US + 400, 50, External_id=99, **sizes)
    kineto_file(tmp_path, [*rows(), product, *launched(99, 410, 10, "Cijk_Ailk", External_id=99)])
    before = printed("ops", tmp_path)
    assert invoked("report", tmp_path, "-o", tmp_path / f"report.{ending}").exit_code == 0
    assert "hipblaslt-bench" in (tmp_path / f"report.{ending}").read_text()
    refused(tmp_path / f"report.{ending}", "is a report that mio2trace wrote; expected the files that it was made from")
    assert printed("ops", tmp_path) == before


@pytest.mark.shared
def test_a_perfetto_trace_is_named() -> None:
    paths = sorted((samples() / "rocm-twins").glob("*/rocprofv3-pftrace/*"))
    assert len(paths) >= 7
    for path in paths:
        refused(path, "is a Perfetto trace")


@pytest.mark.parametrize(
    "data", [b"\x0a", b"\x0a\xff", b"\x0a\x00", b"\x0a\x05\x08", b"a,b\n", b"\xff" * 40, b"{", b"[1"]
)
def test_what_nobody_knows_stays_unknown(data: bytes, tmp_path: Path) -> None:
    assert refusal(data, "file") is None
    path = tmp_path / "file"
    path.write_bytes(data)
    source = Source(str(path), 0, Notes())
    with contextlib.suppress(InputError):
        assert detect(source) is run_log
    source.close()
