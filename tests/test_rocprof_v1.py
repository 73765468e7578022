"""rocprof v1: its table, JSON and database tell the same kernels with exact times, launches and ranges."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import re
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mio2trace.cli import cli
from mio2trace.model.profile import Profile, Resources
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.rocm import v1
from mio2trace.source import Source
from tests.rocm_files import activities, plain, read, samples, spans, sql, truth

TWINS = (
    "alexnet-level6-none/rocprof-v1", "lenet-train-own-layers/rocprof-v1", "resnet-train-miopen-2threads/rocprof-v1",
    "resnet-immediate-2ranks/rocprof-v1/rank0", "resnet-immediate-2ranks/rocprof-v1/rank1",
)  # fmt: skip
HEADER = '"Index","KernelName","gpu-id","queue-id","pid","tid","grd","wgr","arch_vgpr","BeginNs","EndNs"\n'
JSON_HEAD = '{ "traceEvents":[{}\n,{"args":{"name":"GPU0"},"ph":"M","pid":6,"name":"process_name","sort_index":2}\n'


def folder(twin: str) -> Path:
    return samples() / "rocm-twins" / twin


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["rocm/rocprofv1_stats_results.csv", *(f"rocm-twins/{twin}/results.csv" for twin in TWINS)]
)
def test_every_row_of_the_table_is_a_kernel_with_its_exact_times(name: str) -> None:
    """Against the csv module: times, number, size, registers, name."""
    path = samples() / name
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = Counter(
        (
            int(row["BeginNs"]), int(row["EndNs"]), int(row["Index"]), int(row["grd"]), int(row["arch_vgpr"]),
            row["KernelName"].removesuffix(" [clone .kd]").removesuffix(".kd"), int(row["tid"]),
        )
        for row in rows
    )  # fmt: skip
    profiles = read(path, v1.TABLE)
    assert expected == Counter(
        (
            a.start_ns, a.end_ns, a.number, a.grid and a.grid[0], a.resources and a.resources.vgprs, a.name,
            profile.threads[a.thread].tid,
        )
        for profile in profiles
        for a in profile.activities
    )  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("twin", TWINS)
def test_kernels_of_a_twin_are_those_of_its_truth(twin: str) -> None:
    """The table has all; JSON and database have those of the runtime as copies."""
    tids = {thread.tid for profile in read(folder(twin) / "results.csv", v1.TABLE) for thread in profile.threads}
    rows = [row for row in truth(twin.partition("/")[0]) if row["tid"] in tids]
    by_index = {(row["v1"], row["start"], row["end"]) for row in rows}
    assert {
        (a.number, a.start_ns, a.end_ns) for a in activities(read(folder(twin) / "results.csv", v1.TABLE))
    } == by_index
    times = {(row["start"], row["end"]) for row in rows}
    for reader, name in ((v1.JSON, "results.json.gz"), (v1.DATABASE, "results.db.gz")):
        profiles = read(folder(twin) / name, reader)
        assert (
            set(spans(profiles))
            <= times
            <= set(spans(profiles)) | set(spans(profiles, "copy")) | set(spans(profiles, "fill"))
        )
        assert all(activity.call is not None for activity in activities(profiles))


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["rocm/rocprofv1_hiptrace_mi300a.db", *(f"rocm-twins/{twin}/results.db.gz" for twin in TWINS)]
)
def test_the_database_is_read_as_sql_has_it(name: str, tmp_path: Path) -> None:
    """Operations, the call that each has by its index, the text of its range."""
    path = plain(samples() / name, tmp_path)
    profiles = read(path, v1.DATABASE)
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
        (
            a.start_ns, a.end_ns, a.call and a.call.name, a.call and a.call.start_ns,
            None if a.range is None else profile.ranges[a.range].text,
        )
        for profile in profiles
        for a in profile.activities
    )  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("twin", [*TWINS, ""])
def test_arrows_lead_to_the_calls_that_the_database_names(twin: str) -> None:
    """Every launch of the JSON is that of ``results.db``, exact to the nanosecond, also where the file is no JSON."""
    if twin:
        paths = folder(twin) / "results.json.gz", folder(twin) / "results.db.gz"
    else:
        paths = tuple(samples() / "rocm" / f"rocprofv1_hiptrace_mi300a.{end}" for end in ("json", "db"))  # type: ignore[assignment]
    drawn, stated = read(paths[0], v1.JSON), read(paths[1], v1.DATABASE)

    def launches(profiles: list[Profile]) -> Counter[Any]:
        return Counter(
            (a.kind, a.name, a.start_ns, a.end_ns, a.call and (a.call.name, a.call.start_ns, a.call.end_ns))
            for profile in profiles
            for a in profile.activities
        )

    def ranges(profiles: list[Profile]) -> Counter[Any]:
        return Counter((one.kind, one.text, one.start_ns, one.end_ns) for profile in profiles for one in profile.ranges)

    assert launches(drawn) == launches(stated)
    assert ranges(drawn) == ranges(stated)


@pytest.mark.shared
def test_the_json_is_read_as_its_own_nanoseconds_say() -> None:
    path = samples() / "rocm" / "rocprofv1_hiptrace_mi300a.json"
    rows = [event["args"] for event in json.loads(path.read_bytes())["traceEvents"] if event.get("ph") == "X"]
    expected = Counter((int(row["BeginNs"]), int(row["EndNs"])) for row in rows if "dev-id" in row)
    assert Counter((a.start_ns, a.end_ns) for profile in read(path, v1.JSON) for a in profile.activities) == expected


@pytest.mark.shared
def test_a_run_that_was_killed_is_read_up_to_there(tmp_path: Path) -> None:
    """Cut inside of an event: the whole events are there, and that one is lost is said."""
    text = gzip.decompress((folder(TWINS[2]) / "results.json.gz").read_bytes())
    cut = text[: text.rindex(b'"ph":"X"') + 40]
    path = tmp_path / "results.json"
    path.write_bytes(cut)
    notes = Notes()
    (profile,) = read(path, v1.JSON, notes)
    whole = len(re.findall(rb"\n,\{\"ph\":\"X\",\"name\":\"[^\n]*\",\"pid\":8,[^\n]*\n  \"args\":\{[^}]*\}\n\}", cut))
    assert len(activities([profile])) == whole > 0
    assert sum(note.count for note in notes if note.problem) == 1


def event(pid: int, name: str, begin: object, end: object, **more: object) -> str:
    args = {"BeginNs": str(begin), "EndNs": str(end), "dev-id": "0", "Name": name, "pid": "7", "tid": "7", **more}
    lines = ",\n".join(f'    "{key}":"{value}"' for key, value in args.items())
    return f',{{"ph":"X","name":"{name}","pid":{pid},"tid":7,"ts":"1","dur":"1",\n  "args":{{\n{lines}\n  }}\n}}\n'


def test_quotes_in_texts_cost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    text = 's_api = F | "a, b" = c, "pid":3 | '
    path.write_text(JSON_HEAD + event(0, text, 1000, 9000) + event(6, "k.kd", 2000, 3000) + '],\n"otherData": {\n}\n}')
    (profile,) = read(path, v1.JSON)
    assert [(made.text, made.start_ns, made.end_ns) for made in profile.ranges] == [(text, 1000, 9000)]
    assert [activity.name for activity in profile.activities] == ["k"]


def test_a_mark_is_an_instant(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(JSON_HEAD + event(0, "here", 1000, 1001) + event(6, "k", 2000, 3000) + "]}")
    (profile,) = read(path, v1.JSON)
    assert [(made.kind, made.start_ns, made.end_ns) for made in profile.ranges] == [("mark", 1000, 1000)]


def test_rows_that_are_no_numbers_lose_themselves_alone(tmp_path: Path) -> None:
    table, trace = tmp_path / "results.csv", tmp_path / "results.json"
    table.write_text(
        HEADER + '0,"a, b.kd",0,0,7,7,64,64,8,10,20\n1,"k",0,0,7,7,64,64,8,None,None\n2,"k",0,0,8,8,None,64,8,10,20\n'
    )
    trace.write_text(JSON_HEAD + event(6, "k", "soon", 3000) + event(6, "k", 3000, 2000) + event(6, "m", 2, 3) + "]}")
    notes = Notes()
    profiles = read(table, v1.TABLE, notes)
    assert [(p.processes[0].pid, [(a.name, a.grid) for a in p.activities]) for p in profiles] == [
        (7, [("a, b", (64, 1, 1))]),
        (8, [("k", None)]),
    ]
    assert [activity.name for activity in activities(read(trace, v1.JSON, notes))] == ["m"]
    assert sum(note.count for note in notes if note.problem) == 3


def test_a_database_of_kernels_alone(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE KERN ("Index" INTEGER, "KernelName" TEXT, "pid", "tid", "BeginNs", "EndNs")')
        connection.execute("INSERT INTO KERN VALUES (3, 'k.kd', 7, 7, 10, 20)")
        connection.commit()
    ((kernel,),) = (profile.activities for profile in read(path, v1.DATABASE))
    assert (kernel.name, kernel.number, kernel.start_ns, kernel.end_ns) == ("k", 3, 10, 20)


def test_a_column_whose_name_is_no_unicode_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE OPS ("BeginNs", "EndNs", "Nxme")')
    path.write_bytes(path.read_bytes().replace(b"Nxme", b"N\xa9me"))
    source = Source(str(path), 0, Notes())
    with pytest.raises(InputError, match=r"results\.db: SQLite: "):
        v1.DATABASE.read(source, ReadOptions(), Notes())
    source.close()


def test_a_database_with_nothing_in_it_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE KERN ("Index" INTEGER, "KernelName" TEXT)')
    source = Source(str(path), 0, Notes())
    with pytest.raises(InputError, match=r"results\.db: neither operations nor calls"):
        v1.DATABASE.read(source, ReadOptions(), Notes())
    source.close()


def rows_of_rocm_5(path: Path, process: int = 70, other: int | None = None) -> None:
    """Write a database of ROCm 5, where ``pid`` is a section, and the process is known of the operations alone."""
    calls = [  # begin, end, section, thread, name, index
        (1000, 1100, 2, process, "hipMemcpy", 1), (2000, 2100, 2, process, "hipLaunchKernel", 2),
        (2100, 2600, 2, process, "hipDeviceSynchronize", 3),
    ]  # fmt: skip
    ops = [("OPS", 2150, 2500, 6, 1, "k", 2, process), ("OPS", 2510, 2510, 6, 0, "Unknown command type", 3, process),
           ("COPY", 1050, 1090, 1, 0, "CopyHostToDevice", 1, process)]  # fmt: skip
    if other is not None:
        calls.append((3000, 3100, 2, other, "hipLaunchKernel", 1))
        ops.append(("OPS", 3150, 3200, 6, 1, "m", 1, other))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE rocTX ("BeginNs", "EndNs", "pid", "tid", "Name", "Index")')
        connection.execute("INSERT INTO rocTX VALUES (1900, 2800, 0, ?, ?, 0)", (process, '"layer a"'))
        connection.execute('CREATE TABLE HIP ("BeginNs", "EndNs", "pid", "tid", "Name", "Index")')
        connection.executemany("INSERT INTO HIP VALUES (?, ?, ?, ?, ?, ?)", calls)
        for table in ("OPS", "COPY"):
            connection.execute(
                f'CREATE TABLE {table} ("BeginNs", "EndNs", "dev-id", "Name", "pid", "tid", "Index", "proc-id")'
            )
        for table, begin, end, section, row, name, index, pid in ops:
            connection.execute(
                f"INSERT INTO {table} VALUES (?, ?, 0, ?, ?, ?, ?, ?)", (begin, end, name, section, row, index, pid)
            )
        connection.commit()


def test_a_section_is_no_process(tmp_path: Path) -> None:
    """In files of ROCm 5 the calls, copies and kernels of a process have different numbers as ``pid``."""
    path = tmp_path / "results.db"
    rows_of_rocm_5(path)
    (profile,) = read(path, v1.DATABASE)
    assert profile.processes[0].pid == 70
    assert [(a.kind, a.name, a.call and a.call.name, profile.queues[a.queue].number) for a in profile.activities] == [
        ("copy", "copy host to device", "hipMemcpy", 0), ("kernel", "k", "hipLaunchKernel", 1),
    ]  # fmt: skip
    assert [made.text for made in profile.ranges] == ["layer a"]


def test_a_call_of_rocm_5_is_of_the_process_whose_main_thread_it_is(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    rows_of_rocm_5(path, other=80)
    profiles = read(path, v1.DATABASE)
    assert {
        profile.processes[0].pid: [(a.name, a.call and a.call.start_ns) for a in profile.activities]
        for profile in profiles
    } == {70: [("copy host to device", 1000), ("k", 2000)], 80: [("m", 3000)]}


def test_the_json_of_rocm_5_has_the_same_launches(tmp_path: Path) -> None:
    """An arrow begins at the end of its call, in us since another time than that of the arguments."""
    path = tmp_path / "results.json"

    def made(section: int, row: int, name: str, begin: int, end: int, **more: int) -> str:
        args = {"BeginNs": begin + 5_000_000, "EndNs": end + 5_000_000, "pid": section, "tid": row, "Name": name} | more
        times = {"ts": str(begin // 1000), "dur": str(end // 1000 - begin // 1000)}
        head = {"ph": "X", "name": name, "pid": str(section), "tid": str(row), **times}
        return ",".join(["", json.dumps(head | {"args": {key.replace("_", "-"): str(v) for key, v in args.items()}})])

    device = {"dev_id": 0, "proc_id": 70}
    events = [
        made(0, 70, "layer a", 1_000, 90_000),
        made(2, 70, "hipMemcpy", 2_000, 12_000), made(2, 70, "hipLaunchKernel", 20_000, 30_000),
        made(2, 70, "hipDeviceSynchronize", 31_000, 70_000),
        made(1, 0, "CopyHostToDevice", 8_000, 11_000, **device), made(6, 1, "k", 33_000, 60_000, **device),
        made(6, 0, "Unknown command type", 65_000, 65_000, **device),
    ]  # fmt: skip
    for key, (at, section, row, begin) in enumerate(((8, 1, 0, 8), (30, 6, 1, 33), (65, 6, 0, 65))):
        events.append(f',{{"ts":{at},"ph":"s","cat":"DataFlow","id":{key},"pid":2,"tid":70,"name":"dep"}}')
        events.append(
            f',{{"ts":{begin},"ph":"t","cat":"DataFlow","id":{key},"pid":{section},"tid":{row},"name":"dep"}}'
        )
    path.write_text(JSON_HEAD + "\n".join(events) + "\n]}")
    (profile,) = read(path, v1.JSON)
    assert profile.processes[0].pid == 70
    assert [(a.kind, a.name, a.call and a.call.name, profile.queues[a.queue].number) for a in profile.activities] == [
        ("copy", "copy host to device", "hipMemcpy", 0), ("kernel", "k", "hipLaunchKernel", 1),
    ]  # fmt: skip
    assert profile.threads[profile.ranges[0].thread].tid == 70


ROCM_4 = (  # section, row, name, begin, end, thread, number
    (2, 70, "hipMemcpy", 2_000, 12_000, 70, 1), (2, 70, "hipLaunchKernel", 20_000, 30_000, 70, 2),
    (2, 71, "hipLaunchKernel", 20_000, 50_000, 71, 3), (2, 70, "hipStreamSynchronize", 52_000, 80_000, 70, 4),
    (1, 0, "CopyHostToDevice", 8_000, 11_000, 70, 1),
    (6, 1, "k", 33_000, 33_000, 70, 2), (6, 1, "k", 33_000, 40_000, 70, 2),
    (6, 2, "k", 45_000, 45_000, 71, 3), (6, 2, "k", 47_000, 60_000, 71, 3),
    (6, 0, "<barrier packet>", 70_000, 75_000, 70, 4), (6, 1, "of no time", 90_000, 90_000, 70, 9),
)  # fmt: skip
"""Each kernel has a barrier with its name; there is one more; the last kernel has no time."""
COPIED = "( dst(0x7fc7) src(0x7fe2) sizeBytes(4000000000) kind(1))"


def found_of_rocm_4(path: Path, reader: Any) -> None:
    (profile,) = read(path, reader)
    assert [
        (a.name, a.start_ns, a.end_ns, a.size_bytes, a.call and a.call.name and (a.call.name, a.call.thread))
        for a in sorted(profile.activities, key=lambda a: a.start_ns or 0)
    ] == [
        ("copy host to device", 8_000, 11_000, 4_000_000_000, ("hipMemcpy", 0)),
        ("k", 33_000, 40_000, 0, ("hipLaunchKernel", 0)), ("k", 47_000, 60_000, 0, ("hipLaunchKernel", 1)),
        ("of no time", 90_000, 90_000, 0, ""),
    ]  # fmt: skip


def test_a_barrier_is_no_kernel_whatever_its_name(tmp_path: Path) -> None:
    """ROCm 4 gives the barrier of a launch the name of its kernel. The call tells the size of a copy."""
    path = tmp_path / "results.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for table, sections in (("HIP", (2,)), ("OPS", (6,)), ("COPY", (1,))):
            columns = '"BeginNs", "EndNs", "pid", "tid", "Name", "Index", "dev-id", "stream-id", "args"'
            connection.execute(f"CREATE TABLE {table} ({columns})")
            for section, row, name, begin, end, thread, number in ROCM_4:
                if section in sections:
                    text = f'"{name}"' if name.startswith("<") else name
                    values = (begin, end, 70, thread, text, number, 0, row, COPIED)
                    connection.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        connection.commit()
    found_of_rocm_4(path, v1.DATABASE)


def test_what_takes_no_time_is_no_barrier_but_with_its_kernels_name(tmp_path: Path) -> None:
    """The law of all readers: every command is kept, or noted."""
    path = tmp_path / "results.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for table in ("OPS", "COPY"):
            connection.execute(f'CREATE TABLE {table} (BeginNs, EndNs, pid, Name, "Index")')
        for name, begin, end in (("k", 5, 5), ("k", 5, 9), ("other", 5, 5)):
            connection.execute("INSERT INTO OPS VALUES (?, ?, 7, ?, 1)", (begin, end, name))
        connection.execute("INSERT INTO COPY VALUES (5, 5, 7, 'CopyHostToDevice', 1)")
        connection.commit()
    notes = Notes()
    (profile,) = read(path, v1.DATABASE, notes)
    assert sorted((a.kind, a.name, a.end_ns) for a in profile.activities) == [
        ("copy", "copy host to device", 5), ("kernel", "k", 9), ("kernel", "other", 5),
    ]  # fmt: skip
    assert [(note.kind, note.count) for note in notes] == [("barrier of a queue: not drawn", 1)]


def test_the_json_of_rocm_4_has_the_same_kernels(tmp_path: Path) -> None:
    """An arrow leads to the barrier of a launch; it begins at the end of the call, or with the barrier if that is
    earlier. Another arrow leads from a kernel to the end of a wait, none to a copy."""
    path = tmp_path / "results.json"
    events = []
    for section, row, name, begin, end, thread, _ in ROCM_4:
        args = {"BeginNs": begin, "EndNs": end, "pid": 70, "tid": thread, "Name": name, "args": COPIED}
        args |= {} if section == 2 else {"dev-id": 0, "stream-id": row}
        times = {"ts": str(begin // 1000), "dur": str(max((end - begin) // 1000, 1))}
        head = {"ph": "X", "name": name, "pid": str(section), "tid": str(row), **times}
        events.append("," + json.dumps(head | {"args": {key: str(value) for key, value in args.items()}}))
    arrows = (
        (2, 70, 8, 1, 0, 8),
        (2, 70, 30, 6, 1, 33),
        (2, 71, 45, 6, 2, 45),
        (6, 70, 40, 2, 1, 80),
        (2, 70, 70, 6, 0, 70),
    )
    for key, arrow in enumerate(arrows):
        for ph, (pid, tid, ts) in (("s", arrow[:3]), ("t", arrow[3:])):
            events.append(
                f',{{"ts":{ts},"ph":"{ph}","cat":"DataFlow","id":{key},"pid":{pid},"tid":{tid},"name":"dep"}}'
            )
    path.write_text(JSON_HEAD + "\n".join(events) + "\n]}")
    found_of_rocm_4(path, v1.JSON)


def test_of_the_json_only_barriers_with_a_kernels_name_are_left_out(tmp_path: Path) -> None:
    """As in the database: they are noted, and a copy that took no time is a copy."""
    path, events = tmp_path / "results.json", []
    for section, name, begin, end in (
        (6, "k", 5, 5), (6, "k", 5, 9), (6, "other", 5, 5),
        (1, "CopyHostToDevice", 5, 5), (1, "CopyHostToDevice", 6, 9),
    ):  # fmt: skip
        args = {"BeginNs": str(begin), "EndNs": str(end), "pid": "7", "tid": "7", "Name": name}
        event = {"ph": "X", "name": name, "pid": section, "tid": 0, "ts": "0", "dur": "1", "args": args}
        events.append("," + json.dumps(event))
    path.write_text(JSON_HEAD + "\n".join(events) + "\n]}")
    notes = Notes()
    (profile,) = read(path, v1.JSON, notes)
    assert sorted((a.kind, a.name, a.end_ns) for a in profile.activities) == [
        ("copy", "copy host to device", 5), ("copy", "copy host to device", 9), ("kernel", "k", 9),
        ("kernel", "other", 5),
    ]  # fmt: skip
    assert [(note.kind, note.count) for note in notes] == [("barrier of a queue: not drawn", 1)]


@pytest.mark.parametrize("value", [[], {"a": [1]}, None, True, 1e300, "x"])
def test_any_value_may_be_in_any_field_of_an_event(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    args = {"BeginNs": "5", "EndNs": "5", "pid": "7", "tid": "7", "dev-id": "0", "stream-id": "1", "Name": "k"}
    event = {"ph": "X", "name": "k", "pid": "6", "tid": "1", "ts": "0", "dur": "1", "args": args}
    lines = [
        "," + json.dumps(event | {"pid": pid} | ({"args": args | {key: value}} if key in args else {key: value}))
        for pid in ("1", "2", "6")
        for key in (*event, *args)
    ]
    path.write_text(JSON_HEAD + "\n".join(lines) + "\n]}")
    assert read(path, v1.JSON)


KERN = '"Index", "KernelName", "gpu-id", "queue-id", "pid", "tid", "grd", "wgr", "lds", "scr", "arch_vgpr", "sgpr"'


def test_dispatches_are_the_same_in_all_forms(tmp_path: Path) -> None:
    """``--stats`` alone: names without the database's quotes, one device for each ``gpu-id``, queues, sizes."""
    rows = [(0, "f(int) [clone .kd]", 2, 0, 7, 7, 640, 64, 512, 0, 16, 32, 1000, 2000),
            (1, "__amd_rocclr_copyBuffer.kd", 3, 1, 7, 7, 64, 64, 0, 0, 8, 16, 1500, 2500)]  # fmt: skip
    names = [*KERN.replace('"', "").split(", "), "BeginNs", "EndNs"]
    table, trace, database = (tmp_path / f"results.{end}" for end in ("csv", "json", "db"))
    table.write_text(",".join(names) + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    events = [
        {"ph": "X", "name": row[1], "pid": 6 + row[2], "tid": 7, "ts": "1", "dur": "1",
         "args": {name: str(value) for name, value in zip(names, row, strict=True)}}
        for row in rows
    ]  # fmt: skip
    trace.write_text(JSON_HEAD + "".join(f",{json.dumps(one)}\n" for one in events) + "]}")
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute(f'CREATE TABLE KERN ({KERN}, "BeginNs", "EndNs")')
        marks = ", ".join("?" * len(names))
        connection.executemany(
            f"INSERT INTO KERN VALUES ({marks})", [(row[0], f'"{row[1]}"', *row[2:]) for row in rows]
        )
        connection.commit()

    def told(path: Path, reader: Any) -> list[Any]:
        (profile,) = read(path, reader)
        queues, devices = profile.queues, profile.devices
        return [
            (a.name, a.start_ns, a.end_ns, a.grid, a.workgroup, a.resources, queues[a.queue].number,
             queues[a.queue].kind, devices[queues[a.queue].device].name)
            for a in profile.activities
        ]  # fmt: skip

    expected = told(table, v1.TABLE)
    assert [(row[0], row[3], row[6:]) for row in expected] == [
        ("f(int)", (640, 1, 1), (0, "queue", "device 2")),
        ("__amd_rocclr_copyBuffer", (64, 1, 1), (1, "queue", "device 3")),
    ]
    assert told(trace, v1.JSON) == expected
    assert told(database, v1.DATABASE) == expected


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
def test_kernels_of_rocprofv2_and_rocprofiler_compute(
    head: str, row: str, counters: dict[str, float], tmp_path: Path
) -> None:
    """The same columns by other names; counters make it a run that collected them."""
    path = tmp_path / "results.csv"
    path.write_text(f"{head}\n{row}\n")
    (profile,) = read(path, v1.TABLE)
    (kernel,) = profile.activities
    assert (kernel.name, kernel.start_ns, kernel.end_ns, kernel.number) == ("f(int, int)", 1000, 2000, 1)
    assert (kernel.grid, kernel.workgroup) == ((640, 1, 1), (64, 1, 1))
    assert kernel.resources == Resources(16, 4, 32, 512, 0)
    assert (profile.process.pid, profile.queues[0].number, profile.devices[0].name) == (7, 1, "device 60633")
    assert dict(zip([one.name for one in profile.counters], kernel.counters, strict=True)) == counters


@pytest.mark.parametrize(("arguments", "blocked"), [("", 0), ("( sizeBytes(4000000000) )", 0), ("( sizeBytes(4) )", 1)])
def test_only_a_small_copy_shows_by_its_delay_that_work_is_missing(
    tmp_path: Path, arguments: str, blocked: int
) -> None:
    """The pages of others are pinned first; a copy of unknown size shows nothing."""
    path = tmp_path / "results.db"
    rows = (  # table, name, begin, end, number
        ("HIP", "hipLaunchKernel", 1_000, 2_000, 1), ("OPS", "k", 3_000, 3_000_000, 1),
        ("HIP", "hipMemcpy", 3_010_000, 30_000_000, 2), ("COPY", "CopyDeviceToHost", 20_000_000, 29_000_000, 2),
    )  # fmt: skip
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for table in ("HIP", "OPS", "COPY"):
            columns = '"BeginNs", "EndNs", "pid", "tid", "Name", "Index", "dev-id", "stream-id", "args"'
            connection.execute(f"CREATE TABLE {table} ({columns})")
        for table, name, begin, end, number in rows:
            values = (begin, end, 70, 70, name, number, 0, 1, arguments)
            connection.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        connection.commit()
    said = CliRunner().invoke(cli, [str(path), "-o", str(tmp_path / "out.json")]).output
    assert ("1 wait for work that is not recorded" in said) == bool(blocked)
