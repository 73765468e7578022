"""Small runs of our own in every form that ROCm's tools write, with any values: for canaries and for fuzzing."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec


class Run(msgspec.Struct, kw_only=True):
    """One process. Rows: kernels (name, start, end, id, tid), calls (name, start, end, id, tid), ranges (text, start,
    end, id, tid), copies (word, start, end, id, tid). ``private`` stands wherever a form has host, command, paths."""

    pid: Any = 7
    device: str = "AMD Instinct MI300X"
    private: str = ""
    kernels: list[tuple[Any, ...]] = []
    calls: list[tuple[Any, ...]] = []
    ranges: list[tuple[Any, ...]] = []
    copies: list[tuple[Any, ...]] = []


def run(text: str = "", private: str = "") -> Run:
    """A range around two launches and a copy; ``text`` at the end of each name."""
    at = 10**15
    more = f" {text}" if text else ""
    return Run(
        device=f"AMD Instinct MI300X{more}",
        private=private or text,
        kernels=[(f"conv_fwd{more}", at + 300, at + 900, 3, 7), (f"relu{more}", at + 900, at + 950, 4, 7)],
        calls=[
            (f"hipLaunchKernel{more}", at + 100, at + 200, 3, 7), (f"hipLaunchKernel{more}", at + 210, at + 230, 4, 7),
            (f"hipMemcpy{more}", at + 1000, at + 2000, 5, 7), (f"hipMalloc{more}", at + 3000, at + 3100, 6, 7),
        ],
        ranges=[
            (f"conv1 forward{more}", at, at + 500, 1, 7), (f"s_api = miopenF | p = {text} | ", at + 20, at + 400, 2, 7),
        ],
        copies=[("HOST_TO_DEVICE", at + 1100, at + 1900, 5, 7)],
    )  # fmt: skip


def database(script: str, rows: Iterable[tuple[str, Sequence[Any]]], then: str = "") -> bytes:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(script)
        for table, row in rows:
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {table} VALUES ({marks})", [_stored(value) for value in row])
        connection.commit()
        connection.executescript(then)
        return connection.serialize()


def _stored(value: Any) -> Any:
    """What SQLite takes."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return str(value)
    return value if value is None or isinstance(value, (int, float, str, bytes)) else repr(value)


def rocpd(one: Run, then: str = "") -> bytes:
    """``then``: SQL that changes what was written."""
    script = (
        "CREATE TABLE rocpd_string(guid, id, string); CREATE TABLE rocpd_info_thread(guid, id, tid, name);"
        "CREATE TABLE rocpd_info_process(guid, id, pid, environment, command, hostname);"
        "CREATE TABLE rocpd_info_agent(guid, id, product_name, name);"
        "CREATE TABLE rocpd_info_kernel_symbol(guid, id, display_name, kernel_name, arch_vgpr_count, accum_vgpr_count,"
        " sgpr_count);"
        "CREATE TABLE rocpd_event(guid, id, category_id, stack_id, parent_stack_id, extdata);"
        "CREATE TABLE rocpd_region(guid, id, pid, tid, start, end, name_id, event_id);"
        "CREATE TABLE rocpd_kernel_dispatch(guid, id, pid, tid, agent_id, kernel_id, dispatch_id, queue_id, stream_id,"
        " start, end, workgroup_size_x, workgroup_size_y, workgroup_size_z, grid_size_x, grid_size_y, grid_size_z,"
        " group_segment_size, private_segment_size, event_id);"
        "CREATE TABLE rocpd_memory_copy(guid, id, pid, tid, start, end, name_id, dst_agent_id, src_agent_id, size,"
        " stream_id, event_id);"
    )
    rows: list[tuple[str, Sequence[Any]]] = [
        ("rocpd_info_process", ("g", 1, one.pid, one.private, one.private, one.private)),
        ("rocpd_info_thread", ("g", 1, 7, one.private)),
        ("rocpd_info_agent", ("g", 1, one.device, one.private)),
        ("rocpd_string", ("g", 1, "HIP_RUNTIME_API_EXT")),
        ("rocpd_string", ("g", 2, "MARKER_CORE_RANGE_API")),
        ("rocpd_string", ("g", 3, "roctxThreadRangeA")),
    ]
    number = 10

    def event(category: int, stack: Any, parent: Any = 0, extra: str = "{}") -> int:
        nonlocal number
        number += 1
        rows.append(("rocpd_event", ("g", number, category, stack, parent, extra)))
        return number

    for text, start, end, key, _ in one.ranges:
        extra = json.dumps({"message": text})
        rows.append(("rocpd_region", ("g", number, 1, 1, start, end, 3, event(2, key, 0, extra))))
    for name, start, end, key, _ in one.calls:
        made = event(1, key, 1)
        rows += [("rocpd_string", ("g", made, name)), ("rocpd_region", ("g", made, 1, 1, start, end, made, made))]
    for place, (name, start, end, key, _) in enumerate(one.kernels):
        made = event(1, key)
        rows.append(("rocpd_info_kernel_symbol", ("g", made, name, f"{name}.kd", 8, 0, 16)))
        sizes = (64, 1, 1, 128, 2, 1, 512, 0)
        rows.append(("rocpd_kernel_dispatch", ("g", made, 1, 1, 1, made, place + 1, 1, 0, start, end, *sizes, made)))
    for word, start, end, key, _ in one.copies:
        made = event(1, key)
        rows.append(("rocpd_string", ("g", made, f"MEMORY_COPY_{word}")))
        rows.append(("rocpd_memory_copy", ("g", made, 1, 1, start, end, made, 1, 1, 4096, 0, made)))
    return database(script, rows, then)


def rpd(one: Run, then: str = "") -> bytes:
    """As `rocpd`."""
    script = (
        "CREATE TABLE rocpd_string(id, string); CREATE TABLE rocpd_metadata(id, tag, value);"
        "CREATE TABLE rocpd_op(id, gpuId, queueId, sequenceId, start, end, description_id, opType_id);"
        "CREATE TABLE rocpd_api(id, pid, tid, start, end, apiName_id, args_id);"
        "CREATE TABLE rocpd_api_ops(id, api_id, op_id); CREATE TABLE rocpd_copyapi(api_ptr_id, size, src);"
        "CREATE TABLE rocpd_kernelapi(api_ptr_id, stream, gridX, gridY, gridZ, workgroupX, workgroupY, workgroupZ,"
        " groupSegmentSize, privateSegmentSize, kernelName_id);"
    )
    rows: list[tuple[str, Sequence[Any]]] = [("rocpd_metadata", (1, "host", one.private))]
    texts: dict[str, int] = {}

    def text(value: str) -> int:
        if value not in texts:
            texts[value] = len(texts) + 1
            rows.append(("rocpd_string", (texts[value], value)))
        return texts[value]

    number = 1000
    for told, start, end, _, tid in one.ranges:
        number += 1
        rows.append(("rocpd_api", (number, one.pid, tid, start, end, text("UserMarker"), text(told))))
    for name, start, end, key, tid in one.calls:
        rows.append(("rocpd_api", (key, one.pid, tid, start, end, text(name), text(one.private))))
        rows.append(("rocpd_kernelapi", (key, "0", 4, 1, 1, 64, 1, 1, 0, 0, text(name))))
    ops = [(row, text(row[0]), text("KernelExecution")) for row in one.kernels]
    ops += [(row, text(""), text("Copy" + str(row[0]).title().replace("_", ""))) for row in one.copies]
    for place, ((_, start, end, key, _), description, kind) in enumerate(ops, 1):
        rows.append(("rocpd_op", (place, 0, 0, 0, start, end, description, kind)))
        rows.append(("rocpd_api_ops", (place, key, place)))
    return database(script, rows, then)


def rpd_events(one: Run) -> bytes:
    lines = ["[ {}", ',{"name": "process_name", "ph": "M", "pid":"0","args":{"name":"GPU0"}}']

    def row(pid: Any, tid: Any, name: str, start: Any, end: Any, desc: str) -> None:
        us = start // 1000 if isinstance(start, int) else start
        dur = (end - start) // 1000 if isinstance(start, int) and isinstance(end, int) else end
        told = {"pid": str(pid), "tid": str(tid), "name": name, "ts": str(us), "dur": str(dur), "ph": "X"}
        lines.append("," + json.dumps({**told, "args": {"desc": desc}}))

    for name, start, end, _, _ in one.kernels:
        row(0, 0, name, start, end, "KernelExecution")
    for word, start, end, _, _ in one.copies:
        row(0, 0, str(word), start, end, "Copy" + str(word).title().replace("_", ""))
    for name, start, end, _, tid in one.calls:
        row(one.pid, tid, name, start, end, one.private)
    for text, start, end, _, tid in one.ranges:
        row(one.pid, tid, text, start, end, text)
    return "\n".join([*lines, "]"]).encode("utf-8", "replace")


def v3_tables(one: Run) -> list[bytes]:
    """Kernels, calls, ranges, copies: quoted as the writer does it, nothing escaped."""
    head = '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"'
    kernels = [
        '"Kind","Agent_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Name","Correlation_Id","Start_Timestamp",'
        '"End_Timestamp","VGPR_Count","Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X",'
        '"Grid_Size_Y","Grid_Size_Z"'
    ]
    for place, (name, start, end, key, tid) in enumerate(one.kernels, 1):
        kernels.append(
            f'"KERNEL_DISPATCH","{one.device}",0,{tid},{place},"{name}",{key},{start},{end},8,64,1,1,128,2,1'
        )
    tables = [kernels]
    for domain, rows in (("HIP_RUNTIME_API_EXT", one.calls), ("MARKER_CORE_RANGE_API", one.ranges)):
        tables.append(
            [head, *(f'"{domain}","{name}",{one.pid},{tid},{key},{start},{end}' for name, start, end, key, tid in rows)]
        )
    copies = ['"Kind","Direction","Stream_Id","Source_Agent_Id","Destination_Agent_Id","Correlation_Id",']
    copies[0] += '"Start_Timestamp","End_Timestamp"'
    copies += [
        f'"MEMORY_COPY","MEMORY_COPY_{word}",0,"Agent 0","{one.device}",{key},{start},{end}'
        for word, start, end, key, _ in one.copies
    ]
    tables.append(copies)
    return ["\n".join([*table, ""]).encode("utf-8", "replace") for table in tables if len(table) > 1]


def v3_calls(one: Run) -> list[bytes]:
    """Calls and ranges in one table."""
    found = v3_tables(msgspec.structs.replace(one, kernels=[("k", 1, 2, 1, 7)], copies=[]))[1:]
    return [b"".join([found[0], *(table.partition(b"\n")[2] for table in found[1:])])] if found else [b"\n"]


def v3_object(one: Run) -> bytes:
    times = "start_timestamp", "end_timestamp"

    def row(kind: int, operation: int, start: Any, end: Any, key: Any, tid: Any, ancestor: Any = 0) -> dict[str, Any]:
        told = {"kind": kind, "operation": operation, "thread_id": tid, times[0]: start, times[1]: end}
        return {**told, "correlation_id": {"internal": key, "external": 0, "ancestor": ancestor}}

    kernels, symbols = [], []
    for place, (name, start, end, key, tid) in enumerate(one.kernels, 1):
        symbol = place + 7  # a number of its own, not that of the dispatch
        symbols.append({"kernel_id": symbol, "kernel_name": f"{name}.kd", "formatted_kernel_name": name})
        info = {
            "agent_id": {"handle": 9}, "queue_id": {"handle": 16}, "kernel_id": symbol, "dispatch_id": place,
            "workgroup_size": {"x": 64, "y": 1, "z": 1}, "grid_size": {"x": 128, "y": 2, "z": 1},
            "group_segment_size": 512, "private_segment_size": 0,
        }  # fmt: skip
        kernels.append({**row(1, 0, start, end, key, tid), "dispatch_info": info, "stream_id": {"handle": 0}})
    names = [name for name, *_ in one.calls]
    copies = [f"MEMORY_COPY_{word}" for word, *_ in one.copies]
    private = {"hostname": one.private, "machine_id": one.private}
    ends = {"src_agent_id": {"handle": 1}, "dst_agent_id": {"handle": 9}, "bytes": 4096, "stream_id": {"handle": 0}}
    process = {
        "metadata": {"node": private, "pid": one.pid, "command": [one.private], "config": {"output_path": one.private}},
        "agents": [{"id": {"handle": 9}, "name": one.private, "product_name": one.device}],
        "strings": {
            "buffer_records": [
                {"kind": "NONE", "operations": []}, {"kind": "HIP_RUNTIME_API_EXT", "operations": names},
                {"kind": "MARKER_CORE_RANGE_API", "operations": ["roctxThreadRangeA"]},
                {"kind": "MEMORY_COPY", "operations": copies},
            ],
            "marker_api": [{"key": key, "value": text} for text, _, _, key, _ in one.ranges],
            "att_filenames": [one.private],
        },
        "code_objects": [{"uri": one.private}],
        "kernel_symbols": symbols,
        "buffer_records": {
            "kernel_dispatch": kernels,
            "hip_api": [
                {**row(1, place, start, end, key, tid, 1), "args": [{"name": "p", "value": one.private}]}
                for place, (_, start, end, key, tid) in enumerate(one.calls)
            ],
            "marker_api": [row(2, 0, start, end, key, tid) for _, start, end, key, tid in one.ranges],
            "memory_copy": [
                {**row(3, place, start, end, key, tid), **ends}
                for place, (_, start, end, key, tid) in enumerate(one.copies)
            ],
        },
    }  # fmt: skip
    return json.dumps({"rocprofiler-sdk-tool": [process]}, ensure_ascii=False).encode("utf-8", "replace")


def v1_table(one: Run) -> bytes:
    lines = ['"Index","KernelName","gpu-id","queue-id","pid","tid","grd","wgr","arch_vgpr","obj","BeginNs","EndNs"']
    lines += [
        f'{place},"{name} [clone .kd]",0,0,{one.pid},{tid},128,64,8,"{one.private}",{start},{end}'
        for place, (name, start, end, _, tid) in enumerate(one.kernels)
    ]
    return "\n".join([*lines, ""]).encode("utf-8", "replace")


def v1_events(one: Run) -> bytes:
    """As the writer has it: texts with quotes make it no JSON."""
    lines = ['{ "traceEvents":[{}', ',{"args":{"name":"GPU0"},"ph":"M","pid":6,"name":"process_name","sort_index":2}']

    def row(section: int, name: str, start: Any, end: Any, tid: Any) -> None:
        us = start // 1000 if isinstance(start, int) else start
        args = {"BeginNs": start, "EndNs": end, "dev-id": 0, "Name": name, "pid": one.pid, "tid": tid}
        args |= {"args": one.private, "stream-id": 0}
        told = ",\n".join(f'    "{key}":"{value}"' for key, value in args.items())
        lines.append(f',{{"ph":"X","name":"{name}","pid":{section},"tid":0,"ts":"{us}","dur":"1",\n  "args":{{')
        lines.append(f"{told}\n  }}\n}}")

    for section, rows in ((0, one.ranges), (2, one.calls), (6, one.kernels)):
        for name, start, end, _, tid in rows:
            row(section, name, start, end, tid)
    for word, start, end, _, tid in one.copies:
        row(1, "Copy" + str(word).title().replace("_", ""), start, end, tid)
    other = json.dumps({"Agent1.Name": one.private})
    return "\n".join([*lines, "],", f'"otherData": {other}', "}"]).encode("utf-8", "replace")


def v1_database(one: Run) -> bytes:
    host = "BeginNs, EndNs, pid, tid, Name, args, 'Index'".replace("'", '"')
    device = 'BeginNs, EndNs, "dev-id", "queue-id", Name, pid, tid, "roctx-range", "stream-id", "Index", Data'
    script = f"CREATE TABLE HIP({host}); CREATE TABLE OPS({device}); CREATE TABLE COPY({device});"
    script += 'CREATE TABLE rocTX(BeginNs, EndNs, pid, tid, Name, "Index");'
    rows: list[tuple[str, Sequence[Any]]] = []
    for name, start, end, key, tid in one.calls:
        rows.append(("HIP", (start, end, one.pid, tid, name, one.private, key)))
    for text, start, end, key, tid in one.ranges:
        rows.append(("rocTX", (start, end, one.pid, tid, text, key)))
    within = one.ranges[0][0] if one.ranges else ""
    for name, start, end, key, tid in one.kernels:
        rows.append(("OPS", (start, end, 0, 0, name, one.pid, tid, within, 0, key, one.private)))
    for word, start, end, key, tid in one.copies:
        name = "Copy" + str(word).title().replace("_", "")
        rows.append(("COPY", (start, end, 0, 0, name, one.pid, tid, name, 0, key, one.private)))
    return database(script, rows)


FORMS: dict[str, Callable[[Run], list[bytes]]] = {
    "ROCm rocpd": lambda one: [rocpd(one)],
    "ROCm RPD": lambda one: [rpd(one)],
    "ROCm RPD events": lambda one: [rpd_events(one)],
    "ROCm v3 kernels": lambda one: v3_tables(one)[:1],
    "ROCm v3 calls": lambda one: v3_calls(one),
    "ROCm v3 object": lambda one: [v3_object(one)],
    "ROCm v1 table": lambda one: [v1_table(one)],
    "ROCm v1 events": lambda one: [v1_events(one)],
    "ROCm v1 database": lambda one: [v1_database(one)],
}
"""The files of a run in each form. v1's table has kernels only; v3's are two forms: names alone make them one set."""
