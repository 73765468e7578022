"""rocprofv3's CSV tables: one set of files per process, one file per kind of record (rocm-profiles.md 5, 11.5).

    "Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",...
    "KERNEL_DISPATCH","Agent 4",1,1,834304,1,10,"void f<float>(float*, int)",1,1550151853029637,1550151853042437,...

Any file of a set represents all of it: the files beside it whose names differ only in the table
(``7_kernel_trace.csv``, ``7_hip_api_trace.csv``) are also read. A kernel's launch is the call with its
``Correlation_Id``; the text of a range is in ``Function``. Read are files of 2024 and later, files of ``rocpd convert``
(``Guid``, several processes in a table, other capitals), and files that another program quoted again. The clock is
CLOCK_BOOTTIME in ns; sizes are work-items. The bytes of a copy are missing. ``*_counter_collection.csv`` has a row per
kernel and counter (rocpd-versions.md 6): its values join the kernels of the set by dispatch and time. A set without a
table of kernels takes them from there; their sizes are products, and are left out. ``*_agent_info.csv`` names the
devices. Not read: allocations, scratch memory, statistics.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal

from mio2trace.model.profile import Clock, Profile, Range, Resources
from mio2trace.notes import Notes
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Records, kernel_name
from mio2trace.readers.rocm import tables
from mio2trace.readers.rocm.assembly import TWICE, VALUE, Assemblies, Assembly, route_of, sizes, sort_by_name
from mio2trace.readers.rocm.tables import Table, integer
from mio2trace.source import Source

NAME = "rocprofv3 tables (CSV)"
_TIMES = ("start_timestamp", "end_timestamp")
_KERNELS, _COPIES, _CALLS, _COUNTERS = "kernel_trace", "memory_copy_trace", "api_trace", "counter_collection"
_KEYS = {
    _KERNELS: ({"kernel_name", "correlation_id", *_TIMES}, {"counter_name", "gpu_id", "kind_id"}),
    _COPIES: ({"direction", "correlation_id", *_TIMES}, set[str]()),
    _CALLS: ({"domain", "function", "thread_id", "correlation_id", *_TIMES}, set[str]()),
    _COUNTERS: ({"dispatch_id", "kernel_name", "counter_name", "counter_value", *_TIMES}, {"gpu_id", "kind_id"}),
}
"""By kind of table, the columns that it has, and columns that belong to another kind."""
_TEXT = {_KERNELS: "kernel_name", _COPIES: "", _CALLS: "function", _COUNTERS: "kernel_name"}
_SET = (
    "kernel_trace", "hip_api_trace", "hsa_api_trace", "marker_api_trace", "memory_copy_trace", "rccl_api_trace",
    "rocdecode_api_trace", "rocjpeg_api_trace", "rocshmem_api_trace", "hipfile_api_trace", "ompt_trace", _COUNTERS,
)  # fmt: skip
_FILE = late(rf"(.*?)({'|'.join(_SET)})\.csv(?:\.gz)?", re.DOTALL)
_AGENT = late(r"(?:Agent )?(\d{1,4})")
AGENTS = "agent_info.csv"
"""The end of the name of the table of processors beside the other tables."""
_MOST_AGENTS = 1000
_Process = tuple[str, int | None]
"""(guid, pid)."""
_Dispatch = tuple[str, int | None, int]
"""(guid, dispatch, start): ids repeat in another pass, which counted the same kernels again."""


def sniff(head: bytes) -> bool:
    return _kind(tables.header(head)) is not None


def _kind(columns: tuple[str, ...]) -> str | None:
    there = set(columns)
    return next((kind for kind, (needed, other) in _KEYS.items() if needed <= there and not other & there), None)


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return a profile for each process of the set to which ``source`` belongs."""
    parts: dict[str, list[Source]] = {kind: [] for kind in _KEYS}
    for part in [source, *_siblings(source)]:
        kind = _kind(tables.header(part.head))
        if kind is not None:
            parts[kind].append(part)
    if parts[_KERNELS] and parts[_KERNELS][0] is not source:
        source.named_by = parts[_KERNELS][0]
    reading = _Reading(source, notes, bool(parts[_COUNTERS]), _gpus(source))
    for part in parts[_CALLS]:
        reading.calls(part)
    for part in parts[_KERNELS]:
        reading.kernels(part)
    for part in parts[_COUNTERS]:
        reading.counters(part, is_kernels=not parts[_KERNELS])
    for part in parts[_COPIES]:
        reading.copies(part)
    return list(reading.profiles(options.host_calls))


def _siblings(source: Source) -> Iterator[Source]:
    folder, name = os.path.split(source.path)
    match = _FILE.fullmatch(name)
    if match is None:
        return
    for kind in _SET:
        for ending in (".csv", ".csv.gz"):
            other = f"{match[1]}{kind}{ending}"
            part = None if kind == match[2] else source.companion(os.path.join(folder, other))
            if part is not None:
                yield part
                break


def _gpus(source: Source) -> Mapping[str, str]:
    """Return the names of the machine's GPUs by number. An option decides whether tables count all processors or GPUs
    alone: if both numbers of a GPU differ, its name is only known where all GPUs are of one name (number ``""``)."""
    folder, name = os.path.split(source.path)
    match = _FILE.fullmatch(name)
    part = source.companion(os.path.join(folder, match[1] + AGENTS)) if match is not None else None
    if part is None:
        return {}
    import csv

    lines = (line.decode(errors="replace").replace("\0", "") for line in islice(part.lines(), _MOST_AGENTS))
    named: dict[str, str] = {}
    is_told = True
    try:
        rows = [*csv.DictReader(lines, strict=True)]
    except csv.Error:
        return {}  # devices keep their numbers
    for row in rows:
        cells = {str(key).lower(): str(value or "") for key, value in row.items()}
        if cells.get("agent_type") == "GPU":
            number = cells.get("node_id", "")
            named[number] = cells.get("product_name") or cells.get("name", "")
            is_told &= number == cells.get("logical_node_id")
    if len({*named.values()}) == 1:
        return {"": next(iter(named.values()))}
    return named if is_told else {}


class _Reading:
    """One set of tables: rows of all processes, divided among their assemblies."""

    def __init__(self, source: Source, notes: Notes, is_counted: bool, gpus: Mapping[str, str]) -> None:
        self._is_counted = is_counted
        self._gpus = gpus
        self._dispatches: dict[_Dispatch, tuple[Assembly, int]] = {}
        self._notes = notes

        def made(process: _Process) -> Assembly:
            # No machine is named; a set without guids is of one, but rocpd may have converted several.
            clock = Clock("boottime", scope="" if process[0] else f"file {source.index}")
            assembly = Assembly(source.index, clock, notes, source.lead.name, process[1])
            assembly.is_of_table = True
            return assembly

        self._of = Assemblies(made)
        self._process_of: dict[tuple[str, int | None], _Process] = {}
        """By thread that made calls."""
        self._guids: dict[str, _Process] = {}
        """The process of each guid, as long as it has only one."""

    def profiles(self, every_call: bool) -> Iterator[Profile]:
        for process in sorted(self._of, key=lambda process: (process[0], process[1] or 0)):
            assembly = self._of[process]
            if not assembly.empty:
                yield assembly.finish(every_call)

    def _table(self, part: Source, kind: str) -> Table:
        return Table(part.lines(), _TEXT[kind], _TIMES, self._notes, part.name)

    def _owner(self, guid: str, tid: str, correlation: int | None) -> _Process:
        """Return the process of a kernel or copy, which does not state it: that of its call, thread or guid."""
        if len(self._of) > 1:
            process = self._process_of.get((guid, integer(tid)))
            made = (one for one, assembly in self._of.items() if one[0] == guid and assembly.has_call(correlation))
            process = process or next(made, None)
            if process is not None:
                return process
        return self._guids.setdefault(guid, (guid, None))

    def calls(self, part: Source) -> None:
        """Read API calls and ranges."""
        threads: dict[tuple[str, str, str], tuple[Assembly, int]] = {}
        for line, (guid, domain, name, pid, tid, correlation, start, end) in self._table(part, _CALLS).rows(
            "guid", "domain", "function", "process_id", "thread_id", "correlation_id", *_TIMES
        ):
            known = threads.get((guid, pid, tid))
            if known is None:
                process, number = (guid, integer(pid)), integer(tid)
                self._process_of.setdefault((guid, number), process)
                self._guids.setdefault(guid, process)
                assembly = self._of[process]
                known = threads[guid, pid, tid] = assembly, assembly.thread(number)
            assembly, thread = known
            times = assembly.times(integer(start), integer(end), "API call or range")
            if times is None:
                continue
            key = integer(correlation)
            if domain.startswith("MARKER_CORE"):
                # Only newer ones are on the stack of calls, so that their ids are those of kernels (11.2).
                number = key if domain.startswith("MARKER_CORE_RANGE") and times[0] < times[1] else None
                kind = "mark" if times[0] == times[1] else "range"
                assembly.range(Range(kind, name, thread, *times, number))  # type: ignore[arg-type]
            else:
                assembly.call(name, thread, times, key, line=line)

    def kernels(self, part: Source) -> None:
        table = self._table(part, _KERNELS)
        lane: Literal["queue", "stream"] = "stream" if "stream_id" in table else "queue"
        known: dict[tuple[Assembly, tuple[str, ...]], dict[str, Any]] = {}
        for line, row in table.rows(
            *("guid", "dispatch_id", "kernel_name", "correlation_id", *_TIMES, "agent_id", f"{lane}_id", "thread_id"),
            *("grid_size_x", "grid_size_y", "grid_size_z", "workgroup_size_x", "workgroup_size_y", "workgroup_size_z"),
            *("vgpr_count", "accum_vgpr_count", "sgpr_count"),
            "lds_block_size" if "lds_block_size" in table else "group_segment_size",
            "scratch_size" if "scratch_size" in table else "private_segment_size",
        ):
            (guid, dispatch, name, correlation, start, end), alike = row[:6], row[6:]
            key = integer(correlation)
            assembly = self._of[self._owner(guid, alike[2], key)]
            times = assembly.times(integer(start), integer(end), "kernel")
            if times is None:
                continue
            told = known.get((assembly, alike))
            if told is None:
                told = known[assembly, alike] = self._usual(assembly, alike, lane)
            number = integer(dispatch)
            place = assembly.activity(
                "kernel", kernel_name(name), times=times, number=number, correlation=key, line=line, **told
            )
            if self._is_counted:
                self._dispatches.setdefault((guid, number, times[0]), (assembly, place))

    def counters(self, part: Source, is_kernels: bool) -> None:
        """Read values of counters. ``is_kernels``: the table is also that of the kernels. Equal rows are of several
        instances, so only a value from before the header came again shows that the table is there twice."""
        table = self._table(part, _COUNTERS)
        before: set[tuple[int, int, str]] = set()
        own: list[tuple[int, int, str]] = []
        parts = 0
        for line, (guid, number, counter, text, start, *kernel) in table.rows(
            *("guid", "dispatch_id", "counter_name", "counter_value", *_TIMES, "kernel_name", "process_id"),
            *("thread_id", "agent_id", "queue_id", "correlation_id"),
            *("vgpr_count", "accum_vgpr_count", "sgpr_count", "lds_block_size", "scratch_size"),
        ):
            begin = integer(start)
            dispatch = guid, integer(number), -1 if begin is None else begin
            if is_kernels and dispatch not in self._dispatches:
                self._counted_kernel(dispatch, line, *kernel)
            found = self._dispatches.get(dispatch)
            if found is None:
                if not is_kernels:
                    self._notes.add("counter of a kernel that is not in the table of kernels: left out", part.name)
                continue
            assembly, place = found
            if table.part > parts:
                if not parts:
                    before.update((id(one), *known) for one in self._of.values() for known in one.counts.known())
                before.update(own)
                own.clear()
                parts = table.part
            if parts:
                key = id(assembly), place, counter
                if key in before:
                    self._notes.remark(TWICE, part.name)
                    continue
                own.append(key)
            value = float(text) if VALUE.fullmatch(text) else None
            assembly.counts.add(place, counter, "", sort_by_name(counter), value)

    def _counted_kernel(self, dispatch: _Dispatch, line: int, end: str, name: str, pid: str, *cells: str) -> None:
        """Add the kernel of a row of counters. Its sizes are products over the dimensions, so they are left out."""
        guid, number, start = dispatch
        assembly = self._of[guid, integer(pid)]
        times = assembly.times(start if start >= 0 else None, integer(end), "kernel")
        if times is None:
            return
        tid, _, queue, correlation, *taken = map(integer, cells)
        place = assembly.activity(
            "kernel", kernel_name(name), assembly.queue(self._device(assembly, cells[1]), queue, "queue"), times,
            number=number, correlation=correlation, resources=Resources(*taken), line=line,
            thread=None if tid is None else assembly.thread(tid),
        )  # fmt: skip
        self._dispatches[dispatch] = assembly, place

    def _usual(self, assembly: Assembly, texts: tuple[str, ...], kind: Literal["queue", "stream"]) -> dict[str, Any]:
        """Return the arguments of `Assembly.activity` that many rows of kernels share."""
        _, lane, tid, *numbers = map(integer, texts)
        return {
            "queue": assembly.queue(self._device(assembly, texts[0]), lane, kind),
            "thread": None if tid is None else assembly.thread(tid),
            "grid": sizes(*numbers[:3]),
            "workgroup": sizes(*numbers[3:6]),
            "resources": Resources(*numbers[6:]),
        }

    def _device(self, assembly: Assembly, agent: str) -> int:
        """Return the device of an agent, ``4`` or ``Agent 4``; the profiler's options decide what is counted."""
        number = _AGENT.fullmatch(agent)
        name = agent if number is None else f"Agent {number[1]}"
        known = self._gpus.get("" if "" in self._gpus else name.removeprefix("Agent "))
        return assembly.device(name, known or name)

    def copies(self, part: Source) -> None:
        for line, (guid, direction, stream, origin, target, thread, correlation, start, end) in self._table(
            part, _COPIES
        ).rows(
            *("guid", "direction", "stream_id", "source_agent_id", "destination_agent_id", "thread_id"),
            *("correlation_id", *_TIMES),
        ):
            tid, key = integer(thread), integer(correlation)
            assembly = self._of[self._owner(guid, thread, key)]
            times = assembly.times(integer(start), integer(end), "copy")
            if times is None:
                continue
            route = route_of(direction)
            device = self._device(assembly, origin if route == "device to host" else target)
            assembly.activity(
                "copy", f"copy {route}".strip(), assembly.queue(device, integer(stream)), times,
                correlation=key, route=route, line=line, thread=None if tid is None else assembly.thread(tid),
            )  # fmt: skip
