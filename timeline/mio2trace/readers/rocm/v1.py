"""rocprof v1: a table of kernels, a database and Chrome JSON (rocm-profiles.md 2, 3), and rocprofv2's table of kernels.

The clock counts ns since an unknown kind of boot time. The main format is the database, which has the ids of calls. Up
to ROCm 5 its ``pid`` is a section of a viewer, the ``tid`` of an operation the row in it, and ``proc-id`` the process.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from mio2trace.model.profile import Profile, Range, Resources
from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late
from mio2trace.readers.base import Format, ReadOptions, Records, kernel_name
from mio2trace.readers.rocm.assembly import VALUE, Assembly, by_pid, sizes, sort_by_name
from mio2trace.readers.rocm.assembly import integer as as_integer
from mio2trace.readers.rocm.database import Database, opened, tables
from mio2trace.readers.rocm.events import LAUNCHES, Arrows, Event, events, number
from mio2trace.readers.rocm.rpd import kind_of, named
from mio2trace.readers.rocm.tables import Table, header, integer
from mio2trace.source import Source

_SIZE = late(r"\bsizeBytes\((\d{1,18})\)")
DISPATCH = "gpu-id", "queue-id", "tid", "grd", "wgr", "arch_vgpr", "accum_vgpr", "sgpr", "lds", "scr"
"""The columns of a dispatch, in the order of `as_dispatched`."""


class Processes:
    """The processes of a file of ROCm 5 or before, by the ``proc-id`` of its operations; none in a later file."""

    def __init__(self, of_operations: Iterable[object]) -> None:
        self.known = sorted({pid for pid in of_operations if type(pid) is int})

    def of(self, pid: object, tid: object) -> object:
        """Return the process of a call: its ``pid``, if that is none. With several processes, the one whose main thread
        called, else the first."""
        if not self.known:
            return pid
        return tid if tid in self.known else self.known[0]


def is_barrier(name: object) -> bool:
    """Return whether an operation is the barrier of a synchronization, for which rocprof has no name."""
    return name in ("Unknown command type", "<barrier packet>", '"<barrier packet>"')


def copied_bytes(arguments: object) -> int:
    """Return the size in the arguments of a call; 0 if there is none."""
    found = _SIZE.search(arguments) if isinstance(arguments, str) else None
    return 0 if found is None else int(found[1])


def unquoted(text: str) -> str:
    """Return a range's text without the quotes that the database of ROCm 5 adds."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def range_of(text: str, thread: int, times: tuple[int, int], key: int | None = None) -> Range:
    """Return a range, or a mark: marks are 1 ns long (rocm-profiles.md 11.5)."""
    if times[1] - times[0] <= 1:
        return Range("mark", text, thread, times[0], times[0], key)
    return Range("range", text, thread, *times, key)


def as_dispatched(assembly: Assembly, *values: int | None) -> dict[str, Any]:
    """Return the arguments of `Assembly.activity` for the values of `DISPATCH`."""
    gpu, queue, tid, grid, group, *resources = values
    return {
        "queue": assembly.queue(assembly.numbered_device(gpu), queue, "queue"),
        "thread": None if tid is None else assembly.thread(tid),
        "grid": sizes(grid, 1, 1),
        "workgroup": sizes(group, 1, 1),
        "resources": Resources(*resources),
    }


# -- Table of kernels --------------------------------------------------------------------------------------------------
#
# ``results.csv`` of ``--stats`` or ``--timestamp on``.
#
#     "Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","lds","scr","arch_vgpr",...,
#     0,"void f<double>(double*, int) [clone .kd]",8,0,0,2046349,2046349,134217728,256,0,0,16,...,"BeginNs","EndNs",...
#
# Columns by name; the sizes of all dimensions are multiplied there, and stand as x. Kernels have a thread and no call.
# A column in capitals is a counter of hardware (``SQ_WAVES``). Not read: derived counters, times of dispatch and
# completion.
#
# rocprofv2's table of kernels has the same columns under other names, as has ``timestamps.csv`` of rocprofiler-compute:
#
#     Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,...,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID
#     1,60633,1,967084,967084,1048576,256,...,"f(double*, int) (.kd)",716380685145736,716380685161855,0

_NEEDED = {"kernelname", "beginns", "endns"}
_OTHER = {
    "kernelname": "kernel_name", "beginns": "start_timestamp", "endns": "end_timestamp", "index": "dispatch_id",
    "gpu-id": "gpu_id", "queue-id": "queue_id", "grd": "grid_size", "wgr": "workgroup_size",
    "lds": "lds_per_workgroup", "scr": "scratch_per_workitem",
}  # fmt: skip
"""The names of columns in other tables. A table without queues is one of counters, merged from several runs."""


def _is_table(head: bytes) -> bool:
    there = set(header(head))
    of_others = {_OTHER[name] for name in _NEEDED} | {"gpu_id"}
    return there >= _NEEDED or (there >= of_others and not there.isdisjoint(("queue-id", "queue_id")))


def _read_table(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return a profile for each process."""
    there = set(header(source.head))

    def named(*columns: str) -> tuple[str, ...]:
        return tuple(one if one in there else _OTHER.get(one, one) for one in columns)

    text, *times = named("kernelname", "beginns", "endns")
    table = Table(source.lines(), text, tuple(times), notes, source.name)
    assemblies, pid_of = by_pid(source, notes), cache(integer)
    vgprs = "arch_vgpr" if "arch_vgpr" in table else "vgpr"
    dispatch = (vgprs if one == "arch_vgpr" else one for one in DISPATCH)
    counters = [name for name in table.columns if sort_by_name(name.upper()) == "base"]
    known: dict[tuple[str, ...], dict[str, Any]] = {}
    for line, row in table.rows(*named("index", "kernelname", "beginns", "endns", "pid", *dispatch), *counters):
        index, name, begin, end, pid = row[:5]
        assembly = assemblies[pid_of(pid)]
        assembly.is_of_table = True
        span = assembly.times(integer(begin), integer(end), "kernel")
        if span is None:
            continue
        alike = row[4 : len(row) - len(counters)]
        told = known.get(alike)
        if told is None:
            told = known[alike] = as_dispatched(assembly, *map(integer, alike[1:]))
        place = assembly.activity("kernel", kernel_name(name), times=span, number=integer(index), line=line, **told)
        for counter, value in zip(counters, row[len(row) - len(counters) :], strict=True):
            if VALUE.fullmatch(value):
                assembly.counts.add(place, counter.upper(), "", "base", float(value))
    return [*assemblies.finish(options.host_calls)]


TABLE = Format("rocprof kernels (CSV)", _is_table, _read_table)


# -- Database ----------------------------------------------------------------------------------------------------------
#
# ``results.db`` of ``--hip-trace``, ``--roctx-trace``, ``--sys-trace``.
#
# Operations of devices are in ``OPS`` and ``COPY``, calls in ``HIP`` and ``HSA``, ranges in ``rocTX``. An operation's
# ``Index`` is that of the HIP call which launched it, within a process. ``roctx-range`` is the text of the innermost
# range that was open then, or the kernel's own name without a range. Without ``OPS`` the kernels of ``KERN`` are read,
# if they have times. Only ``KERN`` has sizes; arguments of calls and barriers are not read.

_CREATES = re.compile(rb'CREATE TABLE "?(?:OPS|COPY|HIP|HSA|KERN|rocTX)"? ?\(')
_TABLES = ("OPS", "COPY", "HIP", "HSA", "KERN", "rocTX")
_CALLS = "BeginNs", "EndNs", "pid", "tid", "Name", "Index", "args"
_OPS = "BeginNs", "EndNs", "pid", "tid", "Name", "Index", "dev-id", "stream-id", "roctx-range", "proc-id"
_KERNELS = "BeginNs", "EndNs", "pid", "KernelName", "Index", *DISPATCH
_Key = tuple[object, object]
"""(pid, tid)."""


def _read_database(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return a profile for each process."""
    with opened(source, _TABLES) as database:
        return [*_Database(source, database, notes).profiles(options.host_calls)]


class _Database:
    def __init__(self, source: Source, database: Database, notes: Notes) -> None:
        self._source = source
        self._notes = notes
        self._database = database
        self._assemblies = by_pid(source, notes, ids_apart=True)
        self._ranges: dict[_Key, list[Range]] = {}
        self._begins: dict[tuple[object, object], int] = {}
        """The begin of a call, by process and index."""
        self._sizes: dict[tuple[object, object], int] = {}
        """The bytes that a call copies."""
        self._processes = Processes(())

    def profiles(self, every_call: bool) -> list[Profile]:
        ops = [(table, row) for table in ("OPS", "COPY") for row in self._rows(table, _OPS) if not is_barrier(row[4])]
        # a barrier may have the name of its call's kernel
        timed = {_launch(row) for table, row in ops if table == "OPS" and row[0] != row[1]}
        kept = [(table, row) for table, row in ops if table != "OPS" or row[0] != row[1] or _launch(row) not in timed]
        if len(kept) < len(ops):
            self._notes.remark("barrier of a queue: not drawn", self._source.name, len(ops) - len(kept))
        ops = kept
        self._processes = Processes(row[-1] for _, row in ops)
        if self._processes.known:
            ops = [(table, (*row[:2], row[-1], None, *row[4:7], row[3], *row[8:])) for table, row in ops]
        self._host()
        if not ops:
            self._kernels()
        for place, (table, row) in zip(self._ranges_of([row for _, row in ops]), ops, strict=True):
            self._op(table, row, place)
        return self._assemblies.finish(every_call)

    def _rows(self, table: str, wanted: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield rows of a table that may be missing, with None for missing columns."""
        if table not in self._database.names or not {"BeginNs", "EndNs"} <= self._database.columns(table):
            return iter(())
        return self._database.select(table, (), wanted)

    def _host(self) -> None:
        count = 0
        for begin, end, section, tid, name, _, _ in self._rows("rocTX", _CALLS):
            pid = self._processes.of(section, tid)
            assembly = self._assemblies[pid]
            times = assembly.times(begin, end, "API call or range")
            if times is not None:
                made = range_of(unquoted(str(name or "")), assembly.thread(tid), times, count)
                self._ranges.setdefault((pid, tid), []).append(made)
                assembly.range(made)
                count += 1
        for table in ("HIP", "HSA"):
            for begin, end, section, tid, name, index, arguments in self._rows(table, _CALLS):
                pid = self._processes.of(section, tid)
                assembly = self._assemblies[pid]
                times = assembly.times(begin, end, "API call or range")
                if times is not None:
                    key = index if table == "HIP" else None
                    assembly.call(str(name or ""), assembly.thread(tid), times, key)
                    if key is not None:
                        self._begins.setdefault((pid, key), times[0])
                        self._sizes[pid, key] = copied_bytes(arguments)

    def _ranges_of(self, rows: list[tuple[Any, ...]]) -> list[int | None]:
        """Return the id of each operation's range: the latest of its thread with this text before the launch."""
        found: list[int | None] = [None] * len(rows)
        asked: dict[_Key, list[tuple[int, int, str]]] = {}
        for place, (begin, _, pid, tid, name, index, _, _, text, _) in enumerate(rows):
            at = self._begins.get((pid, index), begin)
            if isinstance(text, str) and text and text != name and type(at) is int:
                asked.setdefault((pid, tid), []).append((at, place, text))
        for key, questions in asked.items():
            ranges = sorted(self._ranges.get(key, []), key=lambda one: one.start_ns)
            latest: dict[str, int | None] = {}
            next_one = 0
            for at, place, text in sorted(questions):
                while next_one < len(ranges) and ranges[next_one].start_ns <= at:
                    if ranges[next_one].kind == "range":
                        latest[ranges[next_one].text] = ranges[next_one].id
                    next_one += 1
                found[place] = latest.get(text)
        return found

    def _op(self, table: str, row: tuple[Any, ...], range_id: int | None) -> None:
        begin, end, pid, tid, name, index, gpu, stream, *_ = row
        assembly = self._assemblies[pid]
        kind = kind_of(str(name)) if table == "COPY" else "kernel"
        times = assembly.times(begin, end, "kernel" if kind == "kernel" else "copy")
        if times is None:
            return
        lane = assembly.queue(assembly.numbered_device(gpu), stream)
        shown, route = named(kind, name, name)
        assembly.activity(
            kind, shown, lane, times, number=index, correlation=index, route=route, range_id=range_id,
            size_bytes=self._sizes.get((pid, index), 0) if kind == "copy" else 0,
            thread=None if tid is None else assembly.thread(tid),
        )  # fmt: skip

    def _kernels(self) -> None:
        for begin, end, pid, name, index, *values in self._rows("KERN", _KERNELS):
            assembly = self._assemblies[pid]
            times = assembly.times(begin, end, "kernel")
            if times is not None:
                told = as_dispatched(assembly, *map(as_integer, values))
                shown = kernel_name(unquoted(name) if isinstance(name, str) else name)
                assembly.activity("kernel", shown, times=times, number=index, **told)
        if not self._assemblies:
            raise InputError(f"{self._source.name}: neither operations nor calls; expected rocprof's results.db")


def _launch(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what a kernel and the barrier with its name share: section, name, number of the call, process."""
    return row[2], row[4], row[5], row[-1]


DATABASE = Format(
    "rocprof v1 database", lambda head: tables(head) != b"" and _CREATES.search(head) is not None, _read_database
)


# -- Chrome JSON -------------------------------------------------------------------------------------------------------
#
# ``results.json`` of ``--hip-trace`` and its like.
#
#     { "traceEvents":[{}
#     ,{"args":{"name":"GPU2"},"ph":"M","pid":8,"name":"process_name","sort_index":2}
#     ,{"ph":"X","name":"k","pid":8,"tid":1,"ts":"1983817119544","dur":"737",
#       "args":{
#         "BeginNs":"1983817119544578",
#         "EndNs":"1983817120281985",
#         "dev-id":"2", "queue-id":"0", "Name":"k", "pid":"45919", "tid":"45919", "stream-id":"1", ...
#
# ``ts`` is truncated to us, ``args`` have ns. ``pid`` is a section of the picture, the process stands in ``args``: up
# to ROCm 5 as ``proc-id`` of the operations alone. Launches are found by the ends of arrows, which begin at the middle
# of a call, in old files at its end: ids are in ``results.db`` alone, as is the range of a kernel. Texts of ranges may
# make the file no JSON. Not read: ``otherData`` (the machine), barriers, arguments of calls but a copy's size. A
# barrier of ROCm 4 may have its kernel's name: it takes no time.

_BEGIN = late(rb'\s*\{\s*"traceEvents"\s*:\s*\[\s*\{\s*\}\s*,\s*\{\s*"(?:args|ph)"\s*:')
"""An empty object first, then a section that begins with its arguments."""
_RANGES, _COPIES, _HIP, _HSA, _FIRST_GPU, _BARRIERS = 0, 1, 2, 3, 6, 518
"""Sections."""
_HEAD = late(
    r'\{"ph":"X","name":"(.*?)","pid":"?(\d+)"?,"tid":"?(\d+)"?,"ts":"?(\d+)"?,"dur":"?(\d+)"?,\s*"args":\{\s*?\n(.*)',
    re.DOTALL,
)
_ARGUMENT = late(r'\s*"([\w-]+)":"(.*)",?\s*')


def _read_json(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return a profile for each process. Raises `InputError` if no event can be read."""
    reading = _Json(source, notes)
    reading.read(events(source.read(), _rescued, source.name, notes))
    return [*reading.assemblies.finish(options.host_calls)]


def _rescued(text: str) -> Event | None:
    match = _HEAD.fullmatch(text)
    if match is None:
        return None
    name, pid, tid, ts, dur, rest = match.groups()
    arguments = (_ARGUMENT.fullmatch(line) for line in rest.split("\n"))
    return Event("X", name, pid, tid, ts, dur, args={one[1]: one[2] for one in arguments if one is not None})


class _Json:
    def __init__(self, source: Source, notes: Notes) -> None:
        self._notes = notes
        self._place = source.name
        self.assemblies = by_pid(source, notes)
        self._arrows = Arrows(slack_us=1)
        self._processes = Processes(())
        self._sizes: dict[int, int] = {}
        """The bytes that a call copies."""
        self._copying: dict[object, list[tuple[int, int, int]]] = {}
        """Begin, end, negative, and key of the calls that may copy, by thread."""
        self._from_ends = False
        self._kernels: dict[int, Event] = {}
        """The kernel of a barrier with its name, by ``id``."""
        self._calls: dict[int, int | None] = {}
        """The call of a kernel, which the arrow of its barrier told; by ``id``."""

    def read(self, found: list[Event]) -> None:
        rows = [event for event in found if event.ph == "X" and isinstance(event.args, dict)]
        self._processes = Processes(number(event.args.get("proc-id")) for event in rows)
        for event in found:
            if event.ph in ("s", "t"):
                self._arrows.arrow(event)
        launches = [event for event in rows if number(event.pid) == _HIP and LAUNCHES.search(str(event.name))]
        begins = {(event.tid, event.ts) for event in found if event.ph == "s"}
        begins = {(number(tid), number(ts)) for tid, ts in begins}
        ends, middles = (sum((number(event.tid), point(event)) in begins for event in launches) for point in _POINTS)
        self._from_ends = ends > middles or bool(self._processes.known)
        for key, event in enumerate(rows):
            if number(event.pid) in (_RANGES, _HIP, _HSA):
                self._host(event, key)
        self._arrows.finish()
        for calls in self._copying.values():
            calls.sort()
        operations = [
            (event, section)
            for event in rows
            if (section := number(event.pid)) is not None and (section == _COPIES or _FIRST_GPU <= section < _BARRIERS)
        ]
        self._kernels = _kernels_of_barriers([one for one in operations if one[1] != _COPIES])
        if self._kernels:
            self._notes.remark("barrier of a queue: not drawn", self._place, len(self._kernels))
        for event, section in operations:
            self._device(event, section)

    def _host(self, event: Event, key: int) -> None:
        pid = self._processes.of(number(event.args.get("pid")), number(event.args.get("tid")))
        assembly = self.assemblies[pid]
        begin, end = number(event.args.get("BeginNs")), number(event.args.get("EndNs"))
        times = assembly.times(begin, end, "API call or range")
        if times is None:
            return
        thread = assembly.thread(number(event.args.get("tid")))
        if number(event.pid) == _RANGES:
            assembly.range(range_of(str(event.name), thread, times))
            return
        name = str(event.name)
        assembly.call(name, thread, times, key)
        if number(event.pid) == _HIP and LAUNCHES.search(name):
            self._arrows.call((_HIP, number(event.tid)), _POINTS[not self._from_ends](event), key)
            if (size := copied_bytes(event.args.get("args"))) > 0:
                self._sizes[key] = size
                self._copying.setdefault((pid, number(event.args.get("tid"))), []).append((times[0], -times[1], key))

    def _device(self, event: Event, section: int) -> None:
        args, begin = event.args, number(event.ts)
        if is_barrier(args.get("Name")):
            return
        pid, tid, stream = (number(args.get(key)) for key in ("pid", "tid", "stream-id"))
        if self._processes.known:
            pid, tid, stream = number(args.get("proc-id")), None, tid
        assembly = self.assemblies[pid]
        call = None if begin is None else self._arrows.call_of((section, number(event.tid)), begin)
        call = self._calls.get(id(event)) if call is None else call
        if id(event) in self._kernels:
            self._calls[id(self._kernels[id(event)])] = call
            return
        kind = kind_of(str(event.name)) if section == _COPIES else "kernel"
        times = assembly.times(
            number(args.get("BeginNs")), number(args.get("EndNs")), "kernel" if kind == "kernel" else "copy"
        )
        if times is None:
            return
        if "KernelName" in args:  # of ``--stats`` alone: the columns of the table
            told = as_dispatched(assembly, *(number(args.get(key)) for key in DISPATCH))
            assembly.activity("kernel", named(kind, event.name, str(args["KernelName"]))[0], times=times, **told)
            return
        if call is None and section == _COPIES:
            call = self._copied_by((pid, tid), times[0])
        lane = assembly.queue(assembly.numbered_device(number(args.get("dev-id"))), stream)
        name, route = named(kind, event.name, str(args.get("Name") or event.name))
        assembly.activity(
            kind, name, lane, times, correlation=call, route=route,
            thread=None if tid is None else assembly.thread(tid),
            size_bytes=self._sizes.get(call, 0) if kind == "copy" and call is not None else 0,
        )  # fmt: skip

    def _copied_by(self, thread: object, begin: int) -> int | None:
        """Return the innermost call of the thread that copied then. Copies of ROCm 4 have no arrows, but a thread."""
        calls = self._copying.get(thread, [])
        at = bisect_right(calls, (begin, 0, 0)) - 1
        return calls[at][2] if at >= 0 and begin <= -calls[at][1] else None


def _end_us(event: Event) -> int:
    """Return a call's end, in the file's us: they may count from another time than those of ``args``."""
    return (number(event.ts) or 0) + (number(event.dur) or 0)


def _middle_us(event: Event) -> int:
    begin, end = ((number(event.args.get(key)) or 0) // 1000 for key in ("BeginNs", "EndNs"))
    return begin + (end - begin) // 2


_POINTS = _end_us, _middle_us
"""The possible begins of an arrow."""


def _kernels_of_barriers(operations: list[tuple[Event, int]]) -> dict[int, Event]:
    """Return the kernel of each barrier that has its name: the next one there. By ``id``."""
    found: dict[int, Event] = {}
    before: dict[tuple[object, ...], list[Event]] = {}
    for event, section in operations:
        begin, end = (number(event.args.get(key)) for key in ("BeginNs", "EndNs"))
        place = section, number(event.tid), number(event.args.get("tid")), str(event.name)
        waiting = before.setdefault(place, [])
        if begin is not None and begin == end:
            waiting.append(event)
        else:
            found |= dict.fromkeys(map(id, waiting), event)
            waiting.clear()
    return found


JSON = Format("rocprof v1 trace (Chrome JSON)", lambda head: _BEGIN.match(head) is not None, _read_json)
