"""rocprofv3's JSON: each dispatch once with its exact times, launches by id, ranges with their text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mio2trace.model.profile import Profile
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.rocm import v3_json
from mio2trace.source import Source
from tests.commands import invoked
from tests.rocm_files import activities, read


def made(**changes: Any) -> dict[str, Any]:
    """One process of our own: a range, a call in it, the kernel that it launched, a copy."""
    times = {"start_timestamp": 10**15 + 100, "end_timestamp": 10**15 + 200}
    kernel = {
        "thread_id": 7, "correlation_id": {"internal": 5, "external": 0}, **times, "stream_id": {"handle": 1},
        "dispatch_info": {
            "agent_id": {"handle": 9}, "queue_id": {"handle": 16}, "kernel_id": 3, "dispatch_id": 1,
            "private_segment_size": 0, "group_segment_size": 64,
            "workgroup_size": {"x": 64, "y": 1, "z": 1}, "grid_size": {"x": 128, "y": 2, "z": 1},
        },
    }  # fmt: skip
    call = {"kind": 1, "operation": 1, "thread_id": 7, "start_timestamp": 10**15 + 10, "end_timestamp": 10**15 + 20}
    process = {
        "metadata": {"node": {"hostname": "h"}, "pid": 7, "command": ["./a"]},
        "agents": [{"id": {"handle": 9}, "name": "gfx942", "product_name": "AMD Instinct MI300X"}],
        "strings": {
            "buffer_records": [
                {"kind": "NONE", "operations": []},
                {"kind": "HIP_RUNTIME_API_EXT", "operations": ["hipInit", "hipLaunchKernel"]},
                {"kind": "MARKER_CORE_RANGE_API", "operations": ["roctxThreadRangeA"]},
                {"kind": "MEMORY_COPY", "operations": ["NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
                {"kind": "MARKER_CONTROL_API", "operations": ["roctxProfilerPause"]},
            ],
            "marker_api": [{"key": 4, "value": "conv1 forward"}],
        },
        "kernel_symbols": [
            {"kernel_id": 0, "kernel_name": "", "formatted_kernel_name": 0},
            {"kernel_id": 3, "kernel_name": "_Zk.kd", "formatted_kernel_name": "k(int) [clone .kd]",
             "arch_vgpr_count": 8, "accum_vgpr_count": 4, "sgpr_count": 16},
        ],
        "buffer_records": {
            "kernel_dispatch": [kernel],
            "hip_api": [{**call, "correlation_id": {"internal": 5, "ancestor": 4}}],
            "marker_api": [
                {**call, "kind": 2, "operation": 0, "correlation_id": {"internal": 4, "ancestor": 0},
                 "start_timestamp": 10**15, "end_timestamp": 10**15 + 300},
            ],
            "memory_copy": [
                {**times, "kind": 3, "operation": 1, "thread_id": 7, "correlation_id": {"internal": 6}, "bytes": 4096,
                 "src_agent_id": {"handle": 1}, "dst_agent_id": {"handle": 9}, "stream_id": {"handle": 0}},
            ],
        },
    }  # fmt: skip
    process["buffer_records"].update(changes)  # type: ignore[attr-defined]
    return process


def written(folder: Path, *processes: dict[str, Any]) -> Path:
    path = folder / "7_results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": processes}))
    return path


def of(path: Path, notes: Notes | None = None) -> Profile:
    (profile,) = read(path, v3_json, notes)
    return profile


def test_all_of_a_process_is_read(tmp_path: Path) -> None:
    profile = of(written(tmp_path, made()))
    kernel, copy = profile.activities
    assert (kernel.name, kernel.grid, kernel.workgroup) == ("k(int)", (128, 2, 1), (64, 1, 1))
    assert kernel.call is not None
    assert (kernel.call.name, kernel.range, profile.ranges[0].text) == ("hipLaunchKernel", 0, "conv1 forward")
    assert (copy.route, copy.size_bytes) == ("host to device", 4096)
    assert {device.name for device in profile.devices} == {"AMD Instinct MI300X"}
    assert profile.clocks[0].kind == "boottime"


def test_each_element_is_a_profile(tmp_path: Path) -> None:
    other = made()
    other["metadata"]["pid"] = 8
    profiles = read(written(tmp_path, made(), other), v3_json)
    assert [profile.processes[0].pid for profile in profiles] == [7, 8]


TIMES: list[Any] = ["10", 1.5, [], True]
BROKEN: list[Any] = ["x", {"start_timestamp": 1}, {"dispatch_info": 5}, None, {"correlation_id": "c"}]


@pytest.mark.parametrize("broken", [*BROKEN, *({"start_timestamp": time, "end_timestamp": 10**16} for time in TIMES)])
def test_a_row_of_another_form_is_lost_alone(broken: Any, tmp_path: Path) -> None:
    rows = made()["buffer_records"]["kernel_dispatch"]
    if isinstance(broken, dict) and len(broken) + ("correlation_id" in broken) == 2:
        broken = {**rows[0], **broken}
    notes = Notes()
    profile = of(written(tmp_path, made(kernel_dispatch=[broken, *rows])), notes)
    assert [activity.name for activity in activities([profile])] == ["k(int)"]
    assert sum(note.count for note in notes.problems) == 1


def test_calls_that_control_the_profiler_are_no_ranges(tmp_path: Path) -> None:
    row = {**made()["buffer_records"]["marker_api"][0], "kind": 4, "operation": 0}
    (profile,) = read(written(tmp_path, made(marker_api=[row])), v3_json, every_call=True)
    assert not profile.ranges
    assert [call.name for call in profile.other_calls] == ["roctxProfilerPause"]


def test_a_name_that_is_no_unicode_costs_nothing_else(tmp_path: Path) -> None:
    path = written(tmp_path, made())
    path.write_bytes(path.read_bytes().replace(b"k(int)", b"k(\xff)"))
    assert activities([of(path)])[0].name == "k(\ufffd)"


@pytest.mark.parametrize("data", [b"", b'{"rocprofiler-sdk-tool": [{', b'{"rocprofiler-sdk-tool": 7}', b"[" * 100_000])
def test_what_is_no_whole_file_is_one_line(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"rocprofiler-sdk-tool": [' + data if data.startswith(b"[[") else data)
    source = Source(str(path), 0, Notes())
    with pytest.raises(InputError, match=r"^a\.json: .*expected rocprofv3's JSON"):
        v3_json.read(source, ReadOptions(), Notes())
    source.close()


@pytest.mark.parametrize("number", [1 << 63, (1 << 64) - 1, -(1 << 63), 1 << 70])
def test_an_id_of_a_range_that_no_table_holds_is_none(number: int, tmp_path: Path) -> None:
    """A dataset is written all the same."""
    process = made()
    process["buffer_records"]["marker_api"][0]["correlation_id"]["internal"] = number
    path = written(tmp_path, process)
    (one,) = of(path).ranges
    assert one.id is None
    assert invoked("convert", path, "-o", tmp_path / "a.parquet").exit_code == 0
