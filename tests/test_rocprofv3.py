"""rocprofv3's tables: each row once with its exact times, sets joined whichever file is given, texts with quotes."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mio2trace import analyse
from mio2trace.answer.content import machine
from mio2trace.conversion import convert
from mio2trace.model.profile import Profile, Resources
from mio2trace.notes import UNREADABLE, InputError, Notes
from mio2trace.readers import detect
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.rocm import tables, v3_csv, v3_json
from mio2trace.readers.rocm.assembly import TWICE
from mio2trace.source import Source
from tests.commands import invoked
from tests.often import saved
from tests.rocm_files import activities, read, samples
from tests.rocm_made import run, v3_object

KERNELS = [
    f"rocprofv3_{of}.csv"
    for of in ("csv_decode_kernel_trace", "doc_kernel_trace", "doc_kernel_trace_truncated", "doc_2024_kernel_trace")
]
MARKERS = '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
KERNEL = '"Kind","Agent_Id","Thread_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'


@pytest.mark.shared
@pytest.mark.parametrize("name", KERNELS)
def test_every_row_is_a_kernel_with_its_exact_times(name: str) -> None:
    """Against the csv module: name, times, id, dispatch, sizes and registers of 2024 and of 2025."""
    with (samples() / "rocm" / name).open(newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = ["Start_Timestamp", "End_Timestamp", "Correlation_Id", "Dispatch_Id", "Grid_Size_X", "VGPR_Count",
               "SGPR_Count"]  # fmt: skip
    lds = "LDS_Block_Size" if "VGPR_Count" in rows[0] else "Group_Segment_Size"
    expected = Counter(
        (row["Kernel_Name"], *(int(row[n]) if n in row else None for n in [*numbers, lds])) for row in rows
    )
    assert expected == Counter(
        (a.name, a.start_ns, a.end_ns, a.correlation, a.number, a.grid and a.grid[0], *_taken(a.resources))
        for a in activities(read(samples() / "rocm" / name, v3_csv))
    )


def _taken(resources: Resources | None) -> tuple[int | None, ...]:
    return () if resources is None else (resources.vgprs, resources.sgprs, resources.lds_bytes)


TIMED = '"Kind","Agent_Id","Queue_Id","Dispatch_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"'
TABLES = {
    "kernel_trace": [
        TIMED, *(f'"KERNEL_DISPATCH","Agent 1",{1 + at % 2},{at},"k{at % 3}",{40 - at},{100 * at},{100 * at + 50}'
                 for at in (1, 3, 2, 4, 5)),
        '"KERNEL_DISPATCH","Agent 1",1,6,"k1",35,500,550',  # as kernel 5, but for its number
    ],
    "hip_api_trace": [
        MARKERS.strip(), *(f'"HIP_RUNTIME_API","hipLaunchKernel",7,7,{40 - at},{100 * at - 50},{100 * at - 40}'
                           for at in (1, 2, 3, 4, 5)),
        '"HIP_RUNTIME_API","hipDeviceSynchronize",7,7,60,900,950',
    ],
    "marker_api_trace": [
        MARKERS.strip(), '"MARKER_CORE_RANGE_API","step 1",7,7,70,0,400',
        '"MARKER_CORE_RANGE_API","of the same times",7,7,71,0,400', '"MARKER_CORE_RANGE_API","step 1",7,7,72,0,400',
    ],
    "memory_copy_trace": [
        '"Kind","Direction","Source_Agent_Id","Destination_Agent_Id","Correlation_Id","Start_Timestamp","End_Timestamp"',
        *(f'"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE","Agent 0","Agent 1",50,{at},{at + 9}' for at in (600, 610)),
    ],
    "counter_collection": [
        '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Kernel_Name","Counter_Name",'
        '"Counter_Value","Start_Timestamp","End_Timestamp"',
        *(f'{40 - at},{at},"Agent 1",1,7,7,"k","SQ_WAVES",8,{100 * at},{100 * at + 50}' for at in (1, 1, 2, 2)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("again", [1, 2])
@pytest.mark.parametrize("kinds", [[kind] for kind in TABLES] + [[*TABLES]])
def test_a_table_that_was_appended_to_itself_counts_once(kinds: list[str], again: int, tmp_path: Path) -> None:
    """By id and times: equal times alone, or an equal id with other times, prove nothing."""
    found = []
    for folder, times in (("once", 0), ("twice", again)):
        (tmp_path / folder).mkdir()
        for kind in kinds:
            text = "".join(f"{line}\n" for line in TABLES[kind])
            saved(tmp_path / folder / f"a_{kind}.csv", text * (1 + times))
        notes = Notes()
        profiles = read(tmp_path / folder / f"a_{kinds[0]}.csv", v3_csv, notes, every_call=True)
        found.append([
            (
                [(a.name, a.kind == "kernel" and a.number, a.start_ns, a.call and a.call.name, a.range, a.counters)
                 for a in one.activities],
                [(call.name, call.start_ns) for call in one.other_calls], one.ranges, one.defects,
            )
            for one in profiles
        ])  # fmt: skip
        said = {note.kind: note.count for note in notes}
        assert said.get(TWICE, 0) == times * sum(len(TABLES[kind]) - 1 for kind in kinds)
        assert not any(note.kind == UNREADABLE for note in notes)
    assert found[0] == found[1]


def test_a_second_table_of_other_times_is_all_counted(tmp_path: Path) -> None:
    other = [line.replace("00,", "07,").replace("50,", "57,") for line in TABLES["kernel_trace"]]
    text = "".join(f"{line}\n" for line in (*TABLES["kernel_trace"], TABLES["kernel_trace"][0], *other[1:]))
    assert len(of(saved(tmp_path / "a_kernel_trace.csv", text)).activities) == 12


@pytest.mark.shared
def test_any_file_of_a_set_stands_for_it_and_nothing_counts_twice(tmp_path: Path) -> None:
    """One table, another, all of them, the folder: the same bytes; every table's hash stands in the metadata."""
    source = samples() / "rocm-twins" / "lenet-train-own-layers" / "rocprofv3-csv"
    folder = tmp_path / "host"
    shutil.copytree(source, folder)
    files = sorted(folder.glob("*_trace.csv"))
    outputs = []
    for paths in ([files[0]], [files[1]], files, files[::-1], [folder], [tmp_path], [*files, folder]):
        convert(*paths, output=(out := io.BytesIO()))
        outputs.append(out.getvalue())
    traces = [json.loads(output) for output in outputs]
    assert traces[0]["metadata"]["attribution"]["kernels"] == 59
    assert len(traces[0]["metadata"]["inputs"]) == 1 + len(files) == 5  # with the names of devices
    for trace in traces:
        notes = trace["metadata"].pop("notes")
        trace.pop("mio2trace_end")  # its checksum is also of the notes
        assert set(notes) <= {
            "file of a folder that is neither profile nor log: skipped",
            "input given twice: used once",
        }
    assert all(trace == traces[0] for trace in traces)
    assert len(set(outputs[:4])) == 1


def test_all_tables_of_a_folder_may_be_given(tmp_path: Path) -> None:
    """As `*.csv` does: tables that say nothing of the trace are passed over and counted, and no trace by themselves."""
    agents, stats = tmp_path / "7_agent_info.csv", tmp_path / "7_kernel_stats.csv"
    agents.write_text('"Node_Id","Logical_Node_Id","Agent_Type"\n0,0,"CPU"\n')
    stats.write_text('"Name","Calls","TotalDurationNs"\n"k",1,10\n')
    trace = saved(tmp_path / "7_kernel_trace.csv", KERNEL + '"KERNEL_DISPATCH",1,1,"k",1,100,110\n')
    found = convert(agents, stats, trace)
    assert found.metadata["attribution"]["kernels"] == 1
    assert [(note.kind, note.count) for note in found.notes] == [
        ("table that the profiler wrote beside the trace: skipped", 1)
    ]
    (tmp_path / "elsewhere").mkdir()
    for files in ([agents, stats], [shutil.copy(agents, tmp_path / "elsewhere"), trace]):
        with pytest.raises(InputError, match="is a table of a machine's processors; expected the trace"):
            convert(*files)


AGENTS = '"Node_Id","Logical_Node_Id","Agent_Type","Name","Product_Name"\n0,0,"CPU","x","EPYC"\n'


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ('4,4,"GPU","gfx942","MI300X"\n5,5,"GPU","gfx90a","MI210"\n', "MI300X"),
        ('4,4,"GPU","gfx942",""\n', "gfx942"),
        # an option counts GPUs alone: the table does not say which of two kinds is meant, of one kind it is
        ('4,1,"GPU","gfx942","MI300X"\n5,2,"GPU","gfx90a","MI210"\n', "Agent 4"),
        ('7,1,"GPU","gfx942","MI300X"\n8,2,"GPU","gfx942","MI300X"\n', "MI300X"),
        ("", "Agent 4"),
        ('\0,"', "Agent 4"),
        ('4,4,"GPU","gfx942"\n', "gfx942"),  # a cell is missing
    ],
)
def test_the_table_of_processors_names_the_device(rows: str, name: str, tmp_path: Path) -> None:
    """The answer shows the name, but no number of a device as a name."""
    agents = saved(tmp_path / "7_agent_info.csv", AGENTS + rows)
    row = '"KERNEL_DISPATCH","Agent 4",1,"k",1,100,110\n'
    trace = saved(tmp_path / "7_kernel_trace.csv", KERNEL + row)
    (profile,) = read(trace, v3_csv)
    assert [device.name for device in profile.devices] == [name]
    assert machine(profile, []) == ("" if name.startswith("Agent") else name)
    for paths in ([trace, agents], [agents, trace], [tmp_path]):
        assert not list(convert(*paths).notes)


@pytest.mark.parametrize("text", ["a\rb", "x" * 200_000, '"' + "y\n" * 100_000])
def test_a_damaged_table_of_processors_ends_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "7_agent_info.csv").write_bytes(f'{AGENTS}4,4,"GPU",{text}\n'.encode())
    trace = saved(tmp_path / "7_kernel_trace.csv", KERNEL + '"KERNEL_DISPATCH","Agent 4",1,"k",1,100,110\n')
    before = csv.field_size_limit(128 << 10)  # that of Python, which other tests raise
    try:
        assert [device.name for device in of(trace).devices] == ["Agent 4"]
    finally:
        csv.field_size_limit(before)


@pytest.mark.shared
def test_a_packed_sibling_is_found(tmp_path: Path) -> None:
    source = samples() / "rocm-twins" / "lenet-train-own-layers" / "rocprofv3-csv"
    shutil.copy(source / "43457_kernel_trace.csv", tmp_path / "kernel_trace.csv")
    (tmp_path / "hip_api_trace.csv.gz").write_bytes(gzip.compress((source / "43457_hip_api_trace.csv").read_bytes()))
    profiles = read(tmp_path / "kernel_trace.csv", v3_csv)
    assert all(a.call is not None and a.call.start_ns for a in activities(profiles))


def of(path: Path, notes: Notes | None = None) -> Profile:
    (profile,) = read(path, v3_csv, notes)
    return profile


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ('"a"', "a"),
        ("a", "a"),
        ('"a, b, c"', "a, b, c"),
        ('"x = "y", z"', 'x = "y", z'),
        ('"x = ""y"", z"', 'x = "y", z'),
        ('"first\nsecond, ""', 'first\nsecond, "'),
        ('""', ""),
        ('"a"b""', 'a"b"'),
    ],
)
def test_a_text_may_hold_anything(field: str, text: str, tmp_path: Path) -> None:
    """The writer escapes nothing; others escape quotes. The row after it is whole in any case."""
    rows = f'"MARKER_CORE_RANGE_API",{field},7,7,1,100,200\n"MARKER_CORE_RANGE_API","next",7,7,2,300,400\n'
    profile = of(saved(tmp_path / "marker.csv", MARKERS + rows))
    assert [(made.text, made.start_ns) for made in profile.ranges] == [(text, 100), ("next", 300)]


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    """Another order, other capitals, a Guid first, all quoted: what ``rocpd convert`` and other programs write."""
    head = "Guid,end_timestamp,CORRELATION_ID,Kernel_name,start_timestamp,Vgpr_Count,Agent_ID,Thread_id\n"
    rows = '"g1","20","5","f(int, int) [clone .kd]","10","8","Agent 2","7"\n"g2","40","5","g","30","8","Agent 2","9"\n'
    profiles = read(saved(tmp_path / "k.csv", head + rows), v3_csv)
    assert [[(a.name, a.start_ns, a.end_ns) for a in profile.activities] for profile in profiles] == [
        [("f(int, int)", 10, 20)],
        [("g", 30, 40)],
    ]
    assert activities(profiles)[0].resources == profiles[0].activities[0].resources
    assert profiles[0].devices[0].name == "Agent 2"


def test_the_index_of_pandas_is_a_column_without_a_name(tmp_path: Path) -> None:
    head = ",Kind,Agent_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp\n"
    rows = '0,K,Agent 1,"f<int, int>(int*)",1,10,20\n7,K,Agent 1,g,2,30,45\n'
    found = [(a.name, a.start_ns, a.end_ns) for a in of(saved(tmp_path / "k.csv", head + rows)).activities]
    assert found == [("f<int, int>(int*)", 10, 20), ("g", 30, 45)]


def test_error_a_table_of_which_every_row_is_lost_shows_why(tmp_path: Path) -> None:
    """A spreadsheet rounds times, another program writes them as floating-point numbers."""
    path = saved(tmp_path / "k.csv", KERNEL + '"K","Agent 1",7,"a",1,9.0755E+13,9.0755E+13\n')
    with pytest.raises(
        InputError, match=r"nothing that has a time.*record of a profile that could not be read: skipped"
    ):
        convert(path)


def test_a_set_of_several_processes_is_several_profiles(tmp_path: Path) -> None:
    """Kernels have no process of their own: it is that of their thread, else of their call."""
    calls = MARKERS.replace("Domain", 'Guid","Domain')
    calls += "".join(f'"g","HIP_RUNTIME_API","launch",{pid},{pid},{pid + 100},{pid},{pid + 5}\n' for pid in (7, 8))
    saved(tmp_path / "a_hip_api_trace.csv", calls)
    text = KERNEL.replace('"Kind"', '"Guid","Kind"')
    text += "".join(
        f'"g","K","Agent 1",{row}\n' for row in ('8,"k8",108,50,60', '7,"k7",107,20,30', '9,"k9",108,70,80')
    )
    profiles = read(saved(tmp_path / "a_kernel_trace.csv", text), v3_csv)
    found = {profile.process.pid: [a.name for a in profile.activities] for profile in profiles}
    assert found == {7: ["k7"], 8: ["k8", "k9"]}


@pytest.mark.parametrize(
    ("rows", "left", "lost"),
    [
        (['7,"a",1,10,20', '7,"huge",4,10,99999999999999999999', '7,"cut', 'wide,"b",x,30,40', '7,"c",7,50'], "ab", 3),
        (['7,"a",1,soon,20', '7,"b",1,-1,20', '7,"c",1,10,20'], "c", 2),  # which might be lines of one text
    ],
)
def test_each_row_that_is_lost_is_counted(rows: list[str], left: str, lost: int, tmp_path: Path) -> None:
    text = KERNEL + "".join(f'"K","Agent 1",{row}\n' for row in rows)
    profile = of(saved(tmp_path / "k.csv", text), notes := Notes())
    assert [activity.name for activity in profile.activities] == list(left)
    assert sum(note.count for note in notes.problems) == lost
    (measures,) = analyse([tmp_path / "k.csv"]).run.measures
    assert sum(measures.completeness.counts.get(name, 0) for name in ("unreadable", "times-out-of-order")) == lost


@pytest.mark.parametrize("name", ["f", "f(int)", "f(int, int)", "f<a, b>(int, int, c)", 'f<"x", "y">(int, int)'])
@pytest.mark.parametrize("style", ["the writer's", "all quoted", "no quotes"])
def test_a_row_that_lacks_a_cell_is_lost_and_counted(style: str, name: str, tmp_path: Path) -> None:
    """Whichever cell it is, however many commas the name has: never a kernel of another time, nor another name."""
    columns = ["Kind", "Agent_Id", "Queue_Id", "Kernel_Name", "Correlation_Id", "Start_Timestamp", "End_Timestamp"]
    times = [1_271_000_000_000_000 + at * 100 for at in range(5)]
    rows = [
        ["K", "Agent 1", "7", name if at == 2 else "other", str(at), str(start), str(start + 50)]
        for at, start in enumerate(times)
    ]

    def line(row: list[str], header: list[str]) -> str:
        texts = {"Kind", "Agent_Id", "Kernel_Name"} if style == "the writer's" else set(columns)
        texts = set() if style == "no quotes" else texts
        return ",".join(f'"{cell}"' if of in texts else cell for cell, of in zip(row, header, strict=True))

    whole = [line(row, columns) for row in rows]
    head = line(columns, columns if style != "the writer's" else ["Kind"] * len(columns))
    sound = of(saved(tmp_path / "k.csv", "\n".join((head, *whole))))
    expected = [(row[3], int(row[5]), int(row[6])) for row in rows]
    assert [(one.name, one.start_ns, one.end_ns) for one in sound.activities] == expected
    for gone in range(len(columns)):
        cut = line([cell for at, cell in enumerate(rows[2]) if at != gone], columns[:gone] + columns[gone + 1 :])
        notes = Notes()
        text = "\n".join((head, *whole[:2], cut, *whole[3:], ""))
        drawn = [(one.name, one.start_ns, one.end_ns) for one in of(saved(tmp_path / "k.csv", text), notes).activities]
        if style == "no quotes" and name.count(",") and gone < 5:
            drawn = [one for one in drawn if one[1:] != expected[2][1:]]  # nobody can tell; its times are its own
        else:
            assert sum(note.count for note in notes.problems) == 1, (gone, cut)
        assert drawn == expected[:2] + expected[3:], (gone, cut)


def test_marks_are_instants_and_control_calls_are_calls(tmp_path: Path) -> None:
    rows = '"MARKER_CORE_API","here",7,7,1,10,10\n"MARKER_CONTROL_API","roctxProfilerPause",7,7,2,20,30\n'
    (profile,) = read(saved(tmp_path / "m.csv", MARKERS + rows), v3_csv, every_call=True)
    assert [(made.kind, made.text) for made in profile.ranges] == [("mark", "here")]
    assert [call.name for call in profile.other_calls] == ["roctxProfilerPause"]


def test_kernels_without_traced_calls_are_in_the_range_whose_id_they_have(tmp_path: Path) -> None:
    """SDK 1.0 and later; the ids of older ranges are of another kind."""
    for domain, expected in (("MARKER_CORE_RANGE_API", 0), ("MARKER_CORE_API", None)):
        saved(tmp_path / "a_marker_api_trace.csv", f'{MARKERS}"{domain}","conv1",7,7,5,0,100\n')
        profile = of(saved(tmp_path / "a_kernel_trace.csv", f'{KERNEL}"K","Agent 1",7,"k",5,10,20\n'))
        assert profile.activities[0].range == expected


@pytest.mark.parametrize("table", ["rccl_api", "rocdecode_api", "rocjpeg_api", "rocshmem_api", "hipfile_api", "ompt"])
def test_the_calls_of_every_library_are_of_the_set(table: str, tmp_path: Path) -> None:
    """Whichever table is given."""
    other = saved(tmp_path / f"a_{table}_trace.csv", f'{MARKERS}"{table.upper()}","{table}Call",7,7,3,0,5\n')
    kernels = saved(tmp_path / "a_kernel_trace.csv", f'{KERNEL}"K","Agent 1",7,"k",1,10,20\n')
    for path in (other, kernels):
        (profile,) = read(path, v3_csv, every_call=True)
        assert [one.name for one in profile.other_calls] == [f"{table}Call"]
        assert len(profile.activities) == 1


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        ('"HIP_RUNTIME_API","hipLaunchKernel",7,7,1,0,5', "1 kernel launch, so .*"),
        ('"HIP_RUNTIME_API","hipMalloc",7,7,1,0,5', "1 call of the host and no work of a device"),
        ('"MARKER_CORE_API","conv1",7,7,1,0,5', "1 op or range of the host and no work of a device"),
    ],
)
def test_error_calls_without_kernels_name_the_option_that_records_kernels(row: str, holds: str, tmp_path: Path) -> None:
    told = invoked(saved(tmp_path / "a_hip_api_trace.csv", f"{MARKERS}{row}\n")).stderr
    assert re.search(rf"it holds {holds} \(rocprofv3 records .* --kernel-trace or --sys-trace", told)


def test_a_renamed_table_is_read_alone(tmp_path: Path) -> None:
    saved(tmp_path / "a_hip_api_trace.csv", f'{MARKERS}"HIP_RUNTIME_API","hipLaunchKernel",7,7,1,0,5\n')
    path = saved(tmp_path / "renamed.txt", f'{KERNEL}"K","Agent 1",7,"k",1,10,20\n')
    assert of(path).activities[0].call is not None
    assert of(path).activities[0].host_start_ns is None


def test_standard_input_has_no_siblings(tmp_path: Path) -> None:
    stream = io.BytesIO(f'{KERNEL}"K","Agent 1",7,"k",1,10,20\n'.encode())
    source = Source("-", 0, Notes(), stdin=stream)
    assert detect(source).NAME == v3_csv.NAME
    assert source.companion(str(tmp_path)) is None


WRAPPED = KERNEL.replace("End_Timestamp", "End_Time\nstamp")
"""As a terminal breaks a long line."""


@pytest.mark.parametrize("first", ["", "a", "1,,2", "a,b\n", WRAPPED.replace("End_Time\n", 'End_Timestamp","LDS\n')])
def test_a_first_line_that_is_no_header(first: str) -> None:
    assert not v3_csv.sniff(first.encode())
    assert tables.header(b"") == ()


# -- rocprofv3's JSON: launches by id, ranges with their text.


def made(**changes: Any) -> dict[str, Any]:
    """One process of our own: ranges, calls in them, kernels that they launched, a copy."""
    process: dict[str, Any] = json.loads(v3_object(run()))["rocprofiler-sdk-tool"][0]
    process["kernel_symbols"] += [{"kernel_id": 0, "kernel_name": "", "formatted_kernel_name": 0}]
    process["buffer_records"].update(changes)
    return process


def json_file(folder: Path, *processes: dict[str, Any]) -> Path:
    return saved(folder / "7_results.json", json.dumps({"rocprofiler-sdk-tool": processes}))


def of_json(path: Path, notes: Notes | None = None) -> Profile:
    (profile,) = read(path, v3_json, notes)
    return profile


def test_all_of_each_process_is_read(tmp_path: Path) -> None:
    mine, other = made(), made()
    other["metadata"]["pid"] = 8
    for process in (other, mine):
        process["kernel_symbols"][0] |= {
            "formatted_kernel_name": "k(int) [clone .kd]", "arch_vgpr_count": 8, "accum_vgpr_count": 4,
            "sgpr_count": 16,
        }  # fmt: skip
    profiles = read(json_file(tmp_path, mine, other), v3_json)
    assert [profile.processes[0].pid for profile in profiles] == [7, 8]
    for profile in profiles:
        kernel, _, copy = profile.activities
        assert (kernel.name, kernel.grid, kernel.workgroup) == ("k(int)", (128, 2, 1), (64, 1, 1))
        assert kernel.resources == Resources(8, 4, 16, 512, 0)
        assert kernel.call is not None
        assert (kernel.call.name, kernel.range, profile.ranges[0].text) == ("hipLaunchKernel", 0, "conv1 forward")
        assert (copy.route, copy.size_bytes) == ("host to device", 4096)


TIMES: list[Any] = ["10", 1.5, [], True]
BROKEN: list[Any] = ["x", {"start_timestamp": 1}, {"dispatch_info": 5}, None, {"correlation_id": "c"}]


@pytest.mark.parametrize("broken", [*BROKEN, *({"start_timestamp": time, "end_timestamp": 10**16} for time in TIMES)])
def test_a_row_of_another_form_is_lost_alone(broken: Any, tmp_path: Path) -> None:
    rows = made()["buffer_records"]["kernel_dispatch"]
    if isinstance(broken, dict) and len(broken) + ("correlation_id" in broken) == 2:
        broken = {**rows[0], **broken}
    notes = Notes()
    profile = of_json(json_file(tmp_path, made(kernel_dispatch=[broken, *rows])), notes)
    assert [activity.name for activity in activities([profile])] == ["conv_fwd", "relu"]
    assert sum(note.count for note in notes.problems) == 1


def test_calls_that_control_the_profiler_are_no_ranges(tmp_path: Path) -> None:
    process = made(hip_api=[])
    process["strings"]["buffer_records"][2] = {"kind": "MARKER_CONTROL_API", "operations": ["roctxProfilerPause"]}
    (profile,) = read(json_file(tmp_path, process), v3_json, every_call=True)
    assert not profile.ranges
    assert {call.name for call in profile.other_calls} == {"roctxProfilerPause"}


def test_a_name_that_is_no_unicode_costs_nothing_else(tmp_path: Path) -> None:
    path = json_file(tmp_path, made())
    path.write_bytes(path.read_bytes().replace(b"conv_fwd", b"k(\xff)"))
    assert activities([of_json(path)])[0].name == "k(\ufffd)"


@pytest.mark.parametrize("data", [b"", b'{"rocprofiler-sdk-tool": [{', b'{"rocprofiler-sdk-tool": 7}', b"[" * 100_000])
def test_what_is_no_whole_file_is_one_line(data: bytes, tmp_path: Path) -> None:
    path = saved(tmp_path / "a.json", b'{"rocprofiler-sdk-tool": [' + data if data.startswith(b"[[") else data)
    source = Source(str(path), 0, Notes())
    with pytest.raises(InputError, match=r"^a\.json: .*expected rocprofv3's JSON"):
        v3_json.read(source, ReadOptions(), Notes())
    source.close()


@pytest.mark.parametrize("number", [1 << 63, (1 << 64) - 1, -(1 << 63), 1 << 70])
def test_an_id_of_a_range_that_no_table_holds_is_none(number: int, tmp_path: Path) -> None:
    """A dataset is written all the same."""
    process = made()
    process["buffer_records"]["marker_api"][0]["correlation_id"]["internal"] = number
    path = json_file(tmp_path, process)
    assert {one.text: one.id for one in of_json(path).ranges}["roctxThreadRangeA"] is None
    assert invoked("convert", path, "-o", tmp_path / "a.parquet").exit_code == 0
