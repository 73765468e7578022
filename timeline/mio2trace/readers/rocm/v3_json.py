"""rocprofv3's JSON: one line, one element for each process (rocm-profiles.md 6, 11.8).

    {"rocprofiler-sdk-tool": [{"metadata": {...}, "agents": [...], "strings": {"buffer_records": [{"kind": "HIP_API",
     "operations": ["hipInit", ...]}], "marker_api": [{"key": 5, "value": "text"}]}, "kernel_symbols": [...],
     "buffer_records": {"kernel_dispatch": [{"thread_id": 7, "correlation_id": {"internal": 81}, "start_timestamp": 1,
     "end_timestamp": 2, "dispatch_info": {...}, "stream_id": {"handle": 1}}], "hip_api": [...], ...}}]}

A kernel's launch is the call with its internal id; an ancestor is the id of the innermost range that was open. Names of
calls are found in the file's own table by kind and operation. The clock is CLOCK_BOOTTIME in ns, sizes are work-items.
Counters (``--pmc``) are in ``callback_records``, one record per kernel with a value for each counter and hardware
instance; without ``--kernel-trace`` the kernels are only there. Not read: metadata (host, command, configuration),
allocations, samples, the texts of ``--kernel-rename``, which are also ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from mio2trace.machine import ensure_free
from mio2trace.model.profile import Clock, Profile, Range, Resources
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import ReadOptions, Records, json_object, kernel_name, of_json, utf8
from mio2trace.readers.rocm.assembly import (
    LONGEST_COUNTER,
    Assembly,
    Sort,
    integer,
    route_of,
    scope_of,
    sizes,
    sort_of,
    whole,
)
from mio2trace.source import Source

NAME = "rocprofv3 profile (JSON)"
_KEY = b'"rocprofiler-sdk-tool"'
_CALLS = ("hip_api", "hsa_api", "rccl_api", "rocdecode_api", "rocjpeg_api", "rocshmem_api", "hipfile_api", "ompt")


_Handle = json_object("handle")
_MAY_BE_A_HANDLE = (_Handle | None, None)
_Correlation = json_object("internal", "ancestor")
_Dims = json_object("x", "y", "z")
_Dispatch = json_object(
    *("kernel_id", "dispatch_id", "private_segment_size", "group_segment_size"),
    agent_id=_Handle, queue_id=_Handle, workgroup_size=_Dims, grid_size=_Dims,
)  # fmt: skip
_TIMED = "kind", "operation", "thread_id", "start_timestamp", "end_timestamp"
_Call = json_object(*_TIMED, correlation_id=_Correlation)
_Kernel = json_object(
    *_TIMED, correlation_id=_Correlation, dispatch_info=(_Dispatch, msgspec.NODEFAULT), stream_id=_MAY_BE_A_HANDLE
)
_Copy = json_object(
    *_TIMED, "bytes", correlation_id=_Correlation, src_agent_id=_Handle, dst_agent_id=_Handle,
    stream_id=_MAY_BE_A_HANDLE,
)  # fmt: skip
_Counted = json_object(
    "thread_id",
    dispatch_data=json_object(
        "start_timestamp", "end_timestamp", correlation_id=_Correlation, dispatch_info=(_Dispatch, msgspec.NODEFAULT)
    ),
    records=[json_object("value", counter_id=_Handle)], stream_id=_MAY_BE_A_HANDLE,
)  # fmt: skip
_Counter = json_object("name", "is_derived", "is_constant", id=_Handle)
_Agent = json_object("name", "product_name", id=_Handle)
_Symbol = json_object(
    *("kernel_id", "formatted_kernel_name", "demangled_kernel_name", "kernel_name"),
    *("arch_vgpr_count", "accum_vgpr_count", "sgpr_count"),
)
_UNKNOWN = _Symbol()
_Kind = json_object("kind", "operations")
_Text = json_object("key", "value")
_Node = json_object("machine_id", "hostname")
_NO_LIST, _NO_OBJECT = msgspec.Raw(b"[]"), msgspec.Raw(b"{}")
_Callbacks = json_object(counter_collection=(msgspec.Raw, _NO_LIST))
_Process = json_object(
    metadata=json_object("pid", node=(msgspec.Raw, _NO_OBJECT)),
    strings=json_object(buffer_records=[_Kind], marker_api=[_Text]),
    agents=(msgspec.Raw, _NO_LIST), kernel_symbols=(msgspec.Raw, _NO_LIST), buffer_records=(dict[str, msgspec.Raw], {}),
    counters=(msgspec.Raw, _NO_LIST), callback_records=(_Callbacks | None, None),
)  # fmt: skip
"""``buffer_records``: each list undecoded, so that only one of the largest lists is in memory at a time."""
_File = json_object(processes=(list[_Process], msgspec.field(name="rocprofiler-sdk-tool")))  # type: ignore[valid-type]
_DECODER = msgspec.json.Decoder(_File)
_DECODED = 2
"""Bytes of a decoded row for each byte of its text, at most."""
D = TypeVar("D")


def sniff(head: bytes) -> bool:
    """Its only key; JSON schemas have another one first."""
    start = head.lstrip()
    return start[:1] == b"{" and start[1:].lstrip().startswith(_KEY)


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return a profile for each process. Raises `InputError` if the file is no complete JSON of this form."""
    try:
        file = _DECODER.decode(utf8(source.read(), source.name, notes))
    except msgspec.DecodeError as error:
        raise InputError(f"{source.name}: {of_json(error)}; expected rocprofv3's JSON as a whole") from None
    except RecursionError:
        raise InputError(f"{source.name}: nested too deeply; expected rocprofv3's JSON") from None
    found = (_Reading(process, source, notes).profile(options.host_calls) for process in file.processes)
    return [profile for profile in found if profile is not None]


class _Reading:
    """One process of the file."""

    def __init__(self, process: Any, source: Source, notes: Notes) -> None:
        self._process = process
        self._notes = notes
        self._place = source.name
        clock = Clock("boottime", scope=_scope(process.metadata.node))
        self._assembly = Assembly(source.index, clock, notes, source.name, integer(process.metadata.pid))
        self._symbols: dict[int | None, tuple[str, Any]] = {}
        self._dispatches: dict[int | None, int] = {}
        """The places of kernels by the numbers of their dispatches."""
        self._agents = {
            integer(agent.id.handle): str(agent.product_name or agent.name or "")
            for agent in self._listed(process.agents, _Agent)
        }

    def profile(self, every_call: bool) -> Profile | None:
        self._ranges()
        self._calls()
        self._kernels()
        self._counters()
        self._copies()
        return None if self._assembly.empty else self._assembly.finish(every_call)

    def _listed(self, raw: msgspec.Raw, kind: Any) -> Sequence[Any]:
        """Return the rows of a list; a row that is not of ``kind`` is lost alone."""
        found = self._decoded(raw, list[kind], is_whole=True)
        if found is not None:
            return found
        rows = (self._decoded(row, kind) for row in self._decoded(raw, list[msgspec.Raw]) or ())
        return [row for row in rows if row is not None]

    def _decoded(self, raw: msgspec.Raw, kind: type[D], *, is_whole: bool = False) -> D | None:
        ensure_free(_DECODED * memoryview(raw).nbytes)
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.DecodeError, RecursionError):
            if not is_whole:
                self._notes.unreadable(self._place)
            return None

    def _rows(self, name: str, kind: Any) -> Sequence[Any]:
        raw = self._process.buffer_records.pop(name, None)
        return () if raw is None else self._listed(raw, kind)

    def _ranges(self) -> None:
        texts = {integer(text.key): text.value for text in self._process.strings.marker_api}
        for row in self._rows("marker_api", _Call):
            times = self._assembly.times(row.start_timestamp, row.end_timestamp, "API call or range")
            if times is None:
                continue
            key = integer(row.correlation_id.internal)
            kind, name = self._named(row.kind, row.operation)
            thread = self._assembly.thread(row.thread_id)
            if kind.startswith("MARKER_") and not kind.startswith("MARKER_CORE"):
                self._assembly.call(name, thread, times, key)
                continue
            text = texts.get(key)
            said = text if isinstance(text, str) else name
            number = key if kind.startswith("MARKER_CORE_RANGE") and times[0] < times[1] else None
            self._assembly.range(Range("mark" if times[0] == times[1] else "range", said, thread, *times, number))

    def _calls(self) -> None:
        for name in _CALLS:
            for row in self._rows(name, _Call):
                times = self._assembly.times(row.start_timestamp, row.end_timestamp, "API call or range")
                if times is not None:
                    self._assembly.call(
                        self._named(row.kind, row.operation)[1], self._assembly.thread(row.thread_id), times,
                        row.correlation_id.internal, parent=row.correlation_id.ancestor,
                    )  # fmt: skip

    def _named(self, kind: object, operation: object) -> tuple[str, str]:
        """Return the names of a kind and of its operation from the file's table."""
        kinds = self._process.strings.buffer_records
        if type(kind) is not int or not 0 <= kind < len(kinds):
            return "", ""
        operations = kinds[kind].operations
        word = str(kinds[kind].kind)
        if type(operation) is int and isinstance(operations, list) and 0 <= operation < len(operations):
            return word, str(operations[operation])
        return word, word

    def _kernels(self) -> None:
        for symbol in self._listed(self._process.kernel_symbols, _Symbol):
            name = symbol.formatted_kernel_name or symbol.demangled_kernel_name or symbol.kernel_name
            self._symbols[integer(symbol.kernel_id)] = kernel_name(name), symbol
        for row in self._rows("kernel_dispatch", _Kernel):
            place = self._kernel(row, row.dispatch_info, row.thread_id, row.stream_id)
            number = integer(row.dispatch_info.dispatch_id)
            if place is not None:
                self._dispatches[number] = place

    def _kernel(self, of: Any, info: Any, thread: object, stream: Any) -> int | None:
        """Add a kernel and return its place. ``of``: has its times and its id."""
        assembly = self._assembly
        times = assembly.times(of.start_timestamp, of.end_timestamp, "kernel")
        if times is None:
            return None
        grid, group = info.grid_size, info.workgroup_size
        name, symbol = self._symbols.get(integer(info.kernel_id), ("", _UNKNOWN))
        registers = symbol.arch_vgpr_count, symbol.accum_vgpr_count, symbol.sgpr_count
        taken = *registers, info.group_segment_size, info.private_segment_size
        return assembly.activity(
            "kernel", name, self._lane(info.agent_id, stream, info.queue_id), times, number=info.dispatch_id,
            correlation=of.correlation_id.internal, grid=sizes(grid.x, grid.y, grid.z),
            workgroup=sizes(group.x, group.y, group.z), resources=Resources(*map(whole, taken)),
            thread=None if thread is None else assembly.thread(thread),
        )  # fmt: skip

    def _counters(self) -> None:
        callbacks = self._process.callback_records
        rows = () if callbacks is None else self._listed(callbacks.counter_collection, _Counted)
        if not rows:
            return
        told = {integer(one.id.handle): one for one in self._listed(self._process.counters, _Counter)}
        sorts: dict[int | None, tuple[str, Sort]] = {
            key: (name, sort_of(name, one.is_derived, one.is_constant))
            for key, one in told.items() if isinstance(name := one.name, str)
        }  # fmt: skip
        are_kernels = not self._dispatches
        places: dict[tuple[int | None, ...], int | None] = {}
        for row in rows:
            of, info = row.dispatch_data, row.dispatch_data.dispatch_info
            number = integer(info.dispatch_id)
            if are_kernels:
                # A file may lack the numbers of dispatches, or repeat them.
                key = number, integer(of.start_timestamp), integer(of.end_timestamp)
                if (place := places.get(key)) is None:
                    place = places[key] = self._kernel(of, info, row.thread_id, row.stream_id)
            elif (place := None if number is None else self._dispatches.get(number)) is None:
                self._notes.add("counter of a kernel that was not recorded: left out", self._place)
            if place is None:
                continue
            for one in row.records:
                name, sort = sorts.get(integer(one.counter_id.handle), ("", "base"))
                self._assembly.counts.add(place, name[:LONGEST_COUNTER], "", sort, one.value)

    def _lane(self, agent: Any, stream: Any, queue: Any = None) -> int:
        handle = integer(agent.handle)
        device = self._assembly.device(handle, self._agents.get(handle, ""))
        if stream is None and queue is not None:
            return self._assembly.queue(device, integer(queue.handle), "queue")
        return self._assembly.queue(device, None if stream is None else integer(stream.handle))

    def _copies(self) -> None:
        assembly = self._assembly
        for row in self._rows("memory_copy", _Copy):
            times = assembly.times(row.start_timestamp, row.end_timestamp, "copy")
            if times is None:
                continue
            route = route_of(self._named(row.kind, row.operation)[1])
            agent = row.src_agent_id if route == "device to host" else row.dst_agent_id
            assembly.activity(
                "copy", f"copy {route}".strip(), self._lane(agent, row.stream_id), times,
                correlation=row.correlation_id.internal, size_bytes=row.bytes, route=route,
                thread=None if row.thread_id is None else assembly.thread(row.thread_id),
            )  # fmt: skip


def _scope(node: msgspec.Raw) -> str:
    try:
        stated = msgspec.json.decode(node, type=_Node)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return scope_of(stated.machine_id, stated.hostname)
