"""rocprof v1: its table, JSON and database tell the same kernels with exact times, launches and ranges."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mio2trace import analyse
from mio2trace.model.profile import Profile, Resources
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import Reader
from mio2trace.readers.rocm import v1
from mio2trace.readers.rocm.assembly import TWICE
from tests import rocm_made
from tests.commands import invoked, json_of
from tests.rocm_files import activities, plain, read, read_made, samples, sql
from tests.rocm_made import run, v1_events

THREADS = "rocm-twins/resnet-train-miopen-2threads/rocprof-v1"
TWINS = sorted(str(path.parent.relative_to(samples())) for path in samples().glob("rocm-twins/*/**/results.json.gz"))
BARRIER = {"barrier of a queue: not drawn": 1}
HEAD = '{ "traceEvents":[{}\n,{"args":{"name":"GPU0"},"ph":"M","pid":6,"name":"process_name","sort_index":2}\n'
COPIED = "( dst(0x7fc7) src(0x7fe2) sizeBytes(4000000000) kind(1))"


def database(path: Path, tables: Mapping[str, str], rows: Iterable[tuple[str, Sequence[object]]] = ()) -> Path:
    """Tables by name with their columns, and the rows of each."""
    script = "".join(f"CREATE TABLE {name} ({columns});" for name, columns in tables.items())
    path.write_bytes(rocm_made.database(script, rows))
    return path


def event(section: object, row: object, name: str, begin: int, end: int, **args: object) -> str:
    """``ago``: how many nanoseconds earlier its ``ts`` begins to count."""
    ago = args.pop("ago", 0)
    assert isinstance(ago, int)
    told = {"BeginNs": begin, "EndNs": end, "pid": 70, "tid": 70, "Name": name} | args
    times = {"ts": str((begin - ago) // 1000), "dur": str(max((end - begin) // 1000, 1))}
    head = {"ph": "X", "name": name, "pid": str(section), "tid": str(row), **times}
    return f",{json.dumps(head | {'args': {key: str(value) for key, value in told.items()}})}"


def arrow(key: int, begin: tuple[int, int, int], end: tuple[int, int, int]) -> str:
    """From a section's row at a time in us to another."""
    return "\n".join(
        f',{{"ts":{ts},"ph":"{ph}","cat":"DataFlow","id":{key},"pid":{pid},"tid":{tid},"name":"dep"}}'
        for ph, (pid, tid, ts) in (("s", begin), ("t", end))
    )


def trace(events: Iterable[str]) -> str:
    return HEAD + "\n".join(events) + "\n]}"


# -- samples


@pytest.mark.shared
@pytest.mark.parametrize("name", ["rocm/rocprofv1_hiptrace_mi300a.db", f"{THREADS}/results.db.gz"])
def test_the_database_is_read_as_sql_has_it(name: str, tmp_path: Path) -> None:
    """Operations, the call that each has by its index, the text of its range."""
    path = plain(samples() / name, tmp_path)
    expected: Counter[tuple[Any, ...]] = Counter()
    with sql(path) as connection:
        for table in ("OPS", "COPY"):
            expected.update(
                connection.execute(
                    f'SELECT o.BeginNs, o.EndNs, h.Name, h.BeginNs, CASE o."roctx-range" WHEN o.Name THEN NULL ELSE'
                    f' o."roctx-range" END FROM {table} o LEFT JOIN HIP h ON h."Index" = o."Index" AND h.pid = o.pid'
                )
            )
    assert expected == Counter(
        (a.start_ns, a.end_ns, a.call and a.call.name, a.call and a.call.start_ns,
         None if a.range is None else profile.ranges[a.range].text)
        for profile in read(path, v1.DATABASE)
        for a in profile.activities
    )  # fmt: skip


def commands(profiles: Iterable[Profile]) -> Counter[Any]:
    """With the call of each, and all ranges."""
    found: Counter[Any] = Counter()
    for profile in profiles:
        found.update((one.kind, one.text, one.start_ns, one.end_ns) for one in profile.ranges)
        found.update(
            (a.kind, a.name, a.start_ns, a.end_ns, a.call and (a.call.name, a.call.start_ns, a.call.end_ns))
            for a in profile.activities
        )
    return found


@pytest.mark.shared
@pytest.mark.parametrize(
    ("events", "base"),
    [
        *((f"{twin}/results.json.gz", f"{twin}/results.db.gz") for twin in TWINS),
        ("rocm/rocprofv1_hiptrace_mi300a.json", "rocm/rocprofv1_hiptrace_mi300a.db"),
    ],
)
def test_arrows_lead_to_the_calls_that_the_database_names(events: str, base: str) -> None:
    """Every launch of the JSON is that of ``results.db``, exact to the nanosecond, also where the file is no JSON."""
    assert commands(read(samples() / events, v1.JSON)) == commands(read(samples() / base, v1.DATABASE))


# -- made by hand


def test_a_run_that_was_killed_is_read_up_to_there(tmp_path: Path) -> None:
    text = v1_events(run()).decode()
    first = text.index(',{"ph":"X","name":"conv_fwd"')
    for cut in range(text.index("\n}", first) + 2, text.index("],\n"), 7):
        (profile,), noted = read_made(tmp_path, text[:cut], v1.JSON)
        assert len(profile.activities) == text[first:cut].count("\n}")
        assert noted["file cut off: read up to there"] == 1


def test_a_mark_is_an_instant(tmp_path: Path) -> None:
    (profile,), _ = read_made(tmp_path, trace([event(0, 7, "here", 1000, 1001), event(6, 0, "k", 2, 3)]), v1.JSON)
    assert [(made.kind, made.start_ns, made.end_ns) for made in profile.ranges] == [("mark", 1000, 1000)]


def test_a_table_of_two_processes_may_lack_sizes(tmp_path: Path) -> None:
    head = '"Index","KernelName","gpu-id","queue-id","pid","tid","grd","wgr","arch_vgpr","BeginNs","EndNs"\n'
    rows = '0,"a, b.kd",0,0,7,9,64,64,8,10,20\n2,"k",0,0,8,8,None,64,8,10,20\n'
    profiles, _ = read_made(tmp_path, head + rows, v1.TABLE)
    found = {
        profile.process.pid: [(a.name, a.grid, profile.threads[a.thread].tid) for a in profile.activities]
        for profile in profiles
    }
    assert found == {7: [("a, b", (64, 1, 1), 9)], 8: [("k", None, 8)]}


def test_a_table_that_was_appended_to_itself_counts_once(tmp_path: Path) -> None:
    """By number and times; its counters, too."""
    head = "Index,KernelName,gpu-id,queue-id,pid,tid,grd,wgr,lds,scr,arch_vgpr,obj,SQ_WAVES,BeginNs,EndNs\n"
    rows = "".join(f'{at},"k",1,0,7,7,64,64,0,0,8,0x0,4,{10 * at},{10 * at + 5}\n' for at in (0, 1, 2))
    for text, twice in ((head + rows, 0), (head + rows + head + rows, 3), (head + rows + rows, 3)):
        (profile,), said = read_made(tmp_path, text, v1.TABLE)
        assert [(one.number, one.start_ns, one.counters) for one in profile.activities] == [
            (0, 0, (4.0,)), (1, 10, (4.0,)), (2, 20, (4.0,)),
        ]  # fmt: skip
        assert said.get(TWICE, 0) == twice
        assert not profile.defects


def test_a_database_of_kernels_alone(tmp_path: Path) -> None:
    tables = {"KERN": '"Index" INTEGER, "KernelName" TEXT, "pid", "tid", "BeginNs", "EndNs"'}
    path = database(tmp_path / "results.db", tables, [("KERN", (3, "k.kd", 7, 7, 10, 20))])
    (kernel,) = activities(read(path, v1.DATABASE))
    assert (kernel.name, kernel.number, kernel.start_ns, kernel.end_ns) == ("k", 3, 10, 20)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"OPS": '"BeginNs", "EndNs", "Nxme"'}, "SQLite: "),  # x becomes no Unicode
        ({"KERN": '"Index" INTEGER, "KernelName" TEXT'}, "neither operations nor calls"),
    ],
)
def test_a_database_that_cannot_be_read_is_one_line(tables: dict[str, str], said: str, tmp_path: Path) -> None:
    path = database(tmp_path / "results.db", tables)
    path.write_bytes(path.read_bytes().replace(b"Nxme", b"N\xa9me"))
    with pytest.raises(InputError, match=f"db: {said}"):
        read(path, v1.DATABASE)


OF_5 = '"BeginNs", "EndNs", "pid", "tid", "Name", "Index"'
TABLES_OF_5 = {"rocTX": OF_5, "HIP": OF_5} | dict.fromkeys(("OPS", "COPY"), f'{OF_5}, "proc-id", "dev-id"')


def rows_of_rocm_5(process: int = 70) -> list[tuple[str, tuple[object, ...]]]:
    """Where ``pid`` is a section, and the process is known of the operations alone."""
    return [
        ("rocTX", (1900, 2800, 0, process, '"layer a"', 0)),
        ("HIP", (1000, 1100, 2, process, "hipMemcpy", 1)),
        ("HIP", (2000, 2100, 2, process, "hipLaunchKernel", 2)),
        ("HIP", (2100, 2600, 2, process, "hipDeviceSynchronize", 3)),
        ("OPS", (2150, 2500, 6, 1, "k", 2, process, 0)),
        ("OPS", (2510, 2510, 6, 0, "Unknown command type", 3, process, 0)),
        ("COPY", (1050, 1090, 1, 0, "CopyHostToDevice", 1, process, 0)),
    ]


def check_rocm_5(profile: Profile) -> None:
    assert profile.process.pid == 70
    assert [(a.kind, a.name, a.call and a.call.name, profile.queues[a.queue].number) for a in profile.activities] == [
        ("copy", "copy host to device", "hipMemcpy", 0), ("kernel", "k", "hipLaunchKernel", 1),
    ]  # fmt: skip
    assert [(made.text, profile.threads[made.thread].tid) for made in profile.ranges] == [("layer a", 70)]


def test_a_section_is_no_process(tmp_path: Path) -> None:
    """In files of ROCm 5 the calls, copies and kernels of a process have different numbers as ``pid``."""
    (profile,) = read(database(tmp_path / "results.db", TABLES_OF_5, rows_of_rocm_5()), v1.DATABASE)
    check_rocm_5(profile)


def test_a_call_of_rocm_5_is_of_the_process_whose_main_thread_it_is(tmp_path: Path) -> None:
    rows = rows_of_rocm_5()
    rows.append(("HIP", (3000, 3100, 2, 80, "hipLaunchKernel", 1)))
    rows.append(("OPS", (3150, 3200, 6, 1, "m", 1, 80, 0)))
    profiles = read(database(tmp_path / "results.db", TABLES_OF_5, rows), v1.DATABASE)
    found = {one.process.pid: [(a.name, a.call and a.call.start_ns) for a in one.activities] for one in profiles}
    assert found == {70: [("copy host to device", 1000), ("k", 2000)], 80: [("m", 3000)]}


def test_the_json_of_rocm_5_has_the_same_launches(tmp_path: Path) -> None:
    """An arrow begins at the end of its call, in us since another time than that of the arguments."""
    events = []
    for section, row, name, begin, end in (
        (0, 70, "layer a", 1, 90), (2, 70, "hipMemcpy", 2, 12), (2, 70, "hipLaunchKernel", 20, 30),
        (2, 70, "hipDeviceSynchronize", 31, 70), (1, 0, "CopyHostToDevice", 8, 11), (6, 1, "k", 33, 60),
        (6, 0, "Unknown command type", 65, 65),
    ):  # fmt: skip
        more = {} if row == 70 else {"dev-id": 0, "proc-id": 70}
        times = 5_000_000 + 1000 * begin, 5_000_000 + 1000 * end
        events.append(event(section, row, name, *times, ago=5_000_000, pid=section, tid=row, **more))
    for key, (at, to) in enumerate(((8, (1, 0, 8)), (30, (6, 1, 33)), (65, (6, 0, 65)))):
        events.append(arrow(key, (2, 70, at), to))
    (profile,), _ = read_made(tmp_path, trace(events), v1.JSON)
    check_rocm_5(profile)


ROCM_4 = (  # section, row, name, begin, end, thread, number
    (2, 70, "hipMemcpy", 2_000, 12_000, 70, 1), (2, 70, "hipLaunchKernel", 20_000, 30_000, 70, 2),
    (2, 71, "hipLaunchKernel", 20_000, 50_000, 71, 3), (2, 70, "hipStreamSynchronize", 52_000, 80_000, 70, 4),
    (1, 0, "CopyHostToDevice", 8_000, 11_000, 70, 1),
    (6, 1, "k", 33_000, 33_000, 70, 2), (6, 1, "k", 33_000, 40_000, 70, 2),
    (6, 2, "k", 45_000, 45_000, 71, 3), (6, 2, "k", 47_000, 60_000, 71, 3),
    (6, 0, "<barrier packet>", 70_000, 75_000, 70, 4), (6, 1, "of no time", 90_000, 90_000, 70, 9),
)  # fmt: skip
"""Each kernel has a barrier with its name; there is one more; the last kernel has no time."""
TABLES_OF_4 = dict.fromkeys(
    ("HIP", "OPS", "COPY"), '"BeginNs", "EndNs", "pid", "tid", "Name", "Index", "dev-id", "stream-id", "args"'
)
SECTIONS = {1: "COPY", 2: "HIP", 6: "OPS"}


@pytest.mark.parametrize("reader", [v1.DATABASE, v1.JSON], ids=["database", "JSON"])
def test_a_barrier_is_no_kernel_whatever_its_name(reader: Reader, tmp_path: Path) -> None:
    """ROCm 4 gives the barrier of a launch the name of its kernel. The call tells the size of a copy. In JSON an arrow
    leads to the barrier of a launch; it begins at the end of the call, or with the barrier if that is earlier. Another
    arrow leads from a kernel to the end of a wait, none to a copy."""
    path, rows, events = tmp_path / "results", [], []
    for section, row, name, begin, end, thread, number in ROCM_4:
        text = f'"{name}"' if name.startswith("<") else name
        rows.append((SECTIONS[section], (begin, end, 70, thread, text, number, 0, row, COPIED)))
        device = {} if section == 2 else {"dev-id": 0, "stream-id": row}
        events.append(event(section, row, name, begin, end, tid=thread, args=COPIED, **device))
    for key, (start, to) in enumerate((
        ((2, 70, 8), (1, 0, 8)), ((2, 70, 30), (6, 1, 33)), ((2, 71, 45), (6, 2, 45)), ((6, 70, 40), (2, 1, 80)),
        ((2, 70, 70), (6, 0, 70)),
    )):  # fmt: skip
        events.append(arrow(key, start, to))
    if reader is v1.JSON:
        path.write_text(trace(events))
    else:
        database(path, TABLES_OF_4, rows)
    (profile,) = read(path, reader)
    assert [
        (a.name, a.start_ns, a.end_ns, a.size_bytes, a.call and a.call.name and (a.call.name, a.call.thread))
        for a in sorted(profile.activities, key=lambda a: a.start_ns or 0)
    ] == [
        ("copy host to device", 8_000, 11_000, 4_000_000_000, ("hipMemcpy", 0)),
        ("k", 33_000, 40_000, 0, ("hipLaunchKernel", 0)), ("k", 47_000, 60_000, 0, ("hipLaunchKernel", 1)),
        ("of no time", 90_000, 90_000, 0, ""),
    ]  # fmt: skip


@pytest.mark.parametrize("reader", [v1.DATABASE, v1.JSON], ids=["database", "JSON"])
def test_what_takes_no_time_is_no_barrier_but_with_its_kernels_name(reader: Reader, tmp_path: Path) -> None:
    """The law of all readers: every command is kept, or noted."""
    rows = [(6, "k", 5, 5), (6, "k", 5, 9), (6, "other", 5, 5), (1, "CopyHostToDevice", 5, 5)]
    rows += [(1, "CopyHostToDevice", 6, 9)]
    tables = dict.fromkeys(("OPS", "COPY"), 'BeginNs, EndNs, pid, Name, "Index"')
    path = database(
        tmp_path / "run.db", tables, [(SECTIONS[of], (begin, end, 7, name, 1)) for of, name, begin, end in rows]
    )
    if reader is v1.JSON:
        path.write_text(trace(event(of, 0, name, begin, end) for of, name, begin, end in rows))
    notes = Notes()
    (profile,) = read(path, reader, notes)
    assert sorted((a.kind, a.name, a.end_ns) for a in profile.activities) == [
        ("copy", "copy host to device", 5), ("copy", "copy host to device", 9), ("kernel", "k", 9),
        ("kernel", "other", 5),
    ]  # fmt: skip
    assert {note.kind: note.count for note in notes} == BARRIER


@pytest.mark.parametrize("value", [[], {"a": [1]}, None, True, 1e300, "x"])
def test_any_value_may_be_in_any_field_of_an_event(value: Any, tmp_path: Path) -> None:
    whole = json.loads(event(6, 1, "k", 5, 5, **{"dev-id": 0, "stream-id": 1})[1:])
    args = whole["args"]
    events = [
        whole | {"pid": pid} | ({"args": args | {key: value}} if key in args else {key: value})
        for pid in ("1", "2", "6")
        for key in (*whole, *args)
    ]
    assert read_made(tmp_path, trace(f",{json.dumps(one)}" for one in events), v1.JSON)[0]


KERN = "Index KernelName gpu-id queue-id pid tid grd wgr lds scr arch_vgpr sgpr BeginNs EndNs"


def test_dispatches_are_the_same_in_all_forms(tmp_path: Path) -> None:
    """``--stats`` alone: names without the database's quotes, one device for each ``gpu-id``, queues, sizes."""
    rows = [(0, "f(int) [clone .kd]", 2, 0, 7, 7, 640, 64, 512, 0, 16, 32, 1000, 2000),
            (1, "__amd_rocclr_copyBuffer.kd", 3, 1, 7, 7, 64, 64, 0, 0, 8, 16, 1500, 2500)]  # fmt: skip
    names = KERN.split()
    table, json_file = tmp_path / "results.csv", tmp_path / "results.json"
    table.write_text("".join(",".join(map(str, row)) + "\n" for row in (names, *rows)))
    json_file.write_text(
        trace(event(6 + row[2], 7, row[1], 1000, 2000, **dict(zip(names, row, strict=True))) for row in rows).replace(
            '"Name"', '"None"'
        )
    )
    quoted = [("KERN", (row[0], f'"{row[1]}"', *row[2:])) for row in rows]
    base = database(tmp_path / "run.db", {"KERN": ", ".join(f'"{name}"' for name in names)}, quoted)

    def told(path: Path, reader: Reader) -> list[Any]:
        (profile,) = read(path, reader)
        queues, devices = profile.queues, profile.devices
        return [
            (a.name, a.grid, queues[a.queue].number, queues[a.queue].kind, devices[queues[a.queue].device].name,
             a.start_ns, a.end_ns, a.workgroup, a.resources)
            for a in profile.activities
        ]  # fmt: skip

    expected = told(table, v1.TABLE)
    assert [row[:5] for row in expected] == [
        ("f(int)", (640, 1, 1), 0, "queue", "device 2"),
        ("__amd_rocclr_copyBuffer", (64, 1, 1), 1, "queue", "device 3"),
    ]
    assert told(json_file, v1.JSON) == expected
    assert told(base, v1.DATABASE) == expected


V2 = (
    "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,"
    "Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID"
)
V2_ROW = '1,60633,1,7,8,640,64,512,0,16,4,32,64,"f(int, int) (.kd)",1000,2000,0'
COMPUTE = (
    "Dispatch_ID,Kernel_Name,GPU_ID,queue-id,queue-index,pid,tid,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,"
    "Scratch_Per_Workitem,Arch_VGPR,Accum_VGPR,SGPR,wave_size,sig,obj,DispatchNs,Start_Timestamp,End_Timestamp,CompleteNs"
)
COMPUTE_ROW = '1,"f(int, int) [clone .kd]",60633,1,0,7,8,640,64,512,0,16,4,32,64,0x0,0x7f,900,1000,2000,2100'


@pytest.mark.parametrize(
    ("head", "row", "counters"),
    [
        (V2, V2_ROW, {}),
        (f"{V2},SQ_WAVES,GRBM_COUNT,VALUUtilization", f"{V2_ROW},4,7.5,99", {"SQ_WAVES": 4.0, "GRBM_COUNT": 7.5}),
        (COMPUTE, COMPUTE_ROW, {}),
    ],
)
def test_rocprofv2_and_rocprofiler_compute(head: str, row: str, counters: dict[str, float], tmp_path: Path) -> None:
    """The same columns by other names; counters make it a run that collected them."""
    (profile,), _ = read_made(tmp_path, f"{head}\n{row}\n", v1.TABLE)
    (kernel,) = profile.activities
    assert (kernel.name, kernel.start_ns, kernel.end_ns, kernel.number) == ("f(int, int)", 1000, 2000, 1)
    assert (kernel.grid, kernel.workgroup) == ((640, 1, 1), (64, 1, 1))
    assert kernel.resources == Resources(16, 4, 32, 512, 0)
    assert (profile.process.pid, profile.queues[0].number, profile.devices[0].name) == (7, 1, "device 60633")
    assert dict(zip([one.name for one in profile.counters], kernel.counters, strict=True)) == counters


@pytest.mark.parametrize(("arguments", "blocked"), [("", 0), (COPIED, 0), ("( sizeBytes(4) )", 1)])
def test_only_a_small_copys_delay_shows_that_work_is_missing(tmp_path: Path, arguments: str, blocked: int) -> None:
    """The pages of others are pinned first; a copy of unknown size shows nothing."""
    rows = (  # table, name, begin, end, number
        ("HIP", "hipLaunchKernel", 1_000, 2_000, 1), ("OPS", "k", 3_000, 3_000_000, 1),
        ("HIP", "hipMemcpy", 3_010_000, 30_000_000, 2), ("COPY", "CopyDeviceToHost", 20_000_000, 29_000_000, 2),
    )  # fmt: skip
    values = [(of, (begin, end, 70, 70, name, number, 0, 1, arguments)) for of, name, begin, end, number in rows]
    said = invoked(database(tmp_path / "results.db", TABLES_OF_4, values), "-o", tmp_path / "out.json").output
    assert ("1 wait for work that is not recorded" in said) == bool(blocked)


def test_passes_with_the_times_of_one_run_are_no_processes_of_a_job(tmp_path: Path) -> None:
    """As rocprofiler-compute writes them: each pass counts in a process of its own, and numbers kernels in its own way.

    Their times are those of one run: the table without counters is used. Passes with times of their own stay apart.
    """
    head = "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,Kernel_Name,Start_Timestamp,End_Timestamp"
    for pid, name, first, counter, after in (
        (7, "SQ_A.csv", 0, "SQ_WAVES", 0), (8, "SQ_B.csv", 0, "SQ_CYCLES", 0), (9, "timestamps.csv", 1, "", 0),
        (6, "other.csv", 0, "SQ_WAVES", 999),
    ):  # fmt: skip
        rows = [
            f'{first + number},2,1,{pid},{pid},64,64,"f",{1000 * number + after},{1000 * number + 700 + after}'
            for number in range(3)
        ]
        text = (
            [f"{head},{counter}", *(f"{row},{pid + at}" for at, row in enumerate(rows))] if counter else [head, *rows]
        )
        (tmp_path / name).write_text("\n".join(text) + "\n")
    one = analyse([tmp_path / name for name in ("SQ_A.csv", "SQ_B.csv", "timestamps.csv")])
    assert [profile.process.pid for profile in one.run.profiles] == [9]
    (left,) = (note for note in one.notes if "its counters are left out" in note.kind)
    assert (left.count, sorted(left.places), left.problem) == (2, ["SQ_A.csv", "SQ_B.csv"], False)
    two = analyse([tmp_path / "SQ_A.csv", tmp_path / "other.csv"])
    assert sorted(profile.process.pid or 0 for run in two.runs for profile in run.profiles) == [6, 7]


def test_of_a_folder_of_rocprof_the_form_with_calls_and_copies_is_used(tmp_path: Path) -> None:
    """The table has a kernel more, because the runtime's copy kernels are copies in the database, and no call."""
    rows = [
        ("HIP", (5_000, 6_000, 70, 70, "hipMemcpy", 1, 0, 0, COPIED)),
        ("COPY", (8_000, 9_000, 70, 70, "CopyHostToDevice", 1, 0, 0, COPIED)),
        ("HIP", (20_000, 21_000, 70, 70, "hipLaunchKernel", 2, 0, 0, "")),
        ("OPS", (30_000, 40_000, 70, 70, "k", 2, 0, 0, "")),
    ]
    database(tmp_path / "results.db", TABLES_OF_4, rows)
    kernels = ('0,"__amd_rocclr_copyBuffer.kd",0,0,70,8000,9000', '1,"k.kd",0,0,70,30000,40000')
    for more in ((), ('2,"k.kd",0,0,70,50000,50500',)):  # the database of a killed run may lack the last kernel
        text = "\n".join(("Index,KernelName,gpu-id,queue-id,pid,BeginNs,EndNs", *kernels, *more, ""))
        (tmp_path / "results.csv").write_text(text)
        (profile, *others) = analyse([tmp_path]).run.profiles
        assert not others
        launched = [activity.call is not None and activity.call.start_ns for activity in profile.activities]
        assert (launched == [5_000, 20_000]) is not bool(more)


def test_a_copy_of_unknown_size_has_no_bytes(tmp_path: Path) -> None:
    """Neither in the trace nor in a dataset, so no rate of copies counts its time."""
    rows = [
        (table, (start, start + 1000, 70, 70, name, number, 0, 0, args))
        for number, args in ((1, COPIED), (2, ""))
        for table, name, start in (
            ("HIP", "hipMemcpy", 10_000 * number), ("COPY", "CopyHostToDevice", 10_000 * number + 2000)
        )
    ]  # fmt: skip
    rows.append(("OPS", (90_000, 95_000, 70, 70, "k", 3, 0, 0, "")))
    path = str(database(tmp_path / "results.db", TABLES_OF_4, rows))
    (row,) = json_of("query", path, "copies")
    assert (row["calls"], row["bytes"], row["ms"], row["gb_per_s"]) == (2, 4_000_000_000, 0.002, 4_000_000.0)
    pytest.importorskip("duckdb")
    dataset = str(tmp_path / "ds.parquet")
    assert invoked("convert", path, "-o", dataset).exit_code == 0
    assert [row.get("bytes") for row in json_of("query", dataset, "select bytes from copies order by start_ns")] == [
        4_000_000_000,
        None,
    ]
