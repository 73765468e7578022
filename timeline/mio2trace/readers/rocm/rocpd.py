"""rocpd: the SQLite database of rocprofv3, its form by default since ROCm 7 (rocm-profiles.md 7, 11.6, 11.7).

The plain-named views are read, not the tables behind them, which carry a run's id in their names. Several processes may
share a file (``rocpd merge``): ids hold within a guid, each process becomes a profile. The clock is CLOCK_BOOTTIME in
ns. A kernel's launch is the region with its ``stack_id``; a ROCTx range's text is in its event's ``extdata``. Schema 4
is refused: it is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import cache, lru_cache
from typing import Any, TypeVar

import msgspec

from mio2trace.model.profile import Clock, Profile, Range, Resources
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.rocm.assembly import Assembly, kernel_name, route_of, sizes
from mio2trace.readers.rocm.database import MAGIC, Database, opened, tables
from mio2trace.readers.rocm.job import rank_in, scope_of
from mio2trace.source import Source

NAME = "rocpd database (rocprofv3)"
_NEEDED = {"rocpd_kernel_dispatch", "rocpd_string", "rocpd_event"}
_TABLES = _NEEDED | {
    *("rocpd_info_process", "rocpd_info_thread", "rocpd_info_node", "rocpd_info_agent", "rocpd_info_kernel_symbol"),
    *("rocpd_region", "rocpd_sample", "rocpd_track", "rocpd_memory_copy"),
}
_Key = tuple[Hashable, Hashable]
"""(guid, id)."""
_Registers = tuple[int | None, int | None, int | None]
_Value = TypeVar("_Value")
_NO_REGISTERS: _Registers = (None, None, None)


def sniff(head: bytes) -> bool:
    """The schema is spread over many pages: `rpd`, which has none of these tables, has others of that prefix."""
    return (tables(head) != b"" and b"rocpd_kernel_dispatch" in head) or (
        head.startswith(MAGIC) and b"rocpd_info_" in head
    )


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    with opened(source, _TABLES) as database:
        return list(_Reading(source, database, notes).profiles(options.host_calls))


class _Reading:
    def __init__(self, source: Source, database: Database, notes: Notes) -> None:
        self._source = source
        self._database = database
        self._notes = notes
        self._names = database.names
        missing = sorted(_NEEDED - self._names)
        if missing:
            raise InputError(f"{source.name}: no {missing[0]}; expected a rocpd database of rocprofv3")
        if "rocpd_timestamp" in self._names:
            raise InputError(f"{source.name}: rocpd schema 4; expected schema 3, as rocprofv3 of ROCm 7 writes it")
        self._strings = self._by_id("rocpd_string", "string", database.text_of)
        self._processes = self._by_id("rocpd_info_process", "pid", _id)
        self._ranks = self._by_id("rocpd_info_process", "environment", rank_in)
        self._threads = self._by_id("rocpd_info_thread", "tid", _id)
        self._machines = self._scopes()
        self._of: dict[_Key, Assembly] = {}

    def profiles(self, every_call: bool) -> Iterator[Profile]:
        self._regions()
        self._marks()
        self._kernels()
        self._copies()
        for assembly in self._of.values():
            if not assembly.empty:
                yield assembly.finish(every_call)

    def _scopes(self) -> dict[Hashable, str]:
        """Of each guid its machine, as a hash; none where a guid tells of several."""
        machines: dict[Hashable, set[str]] = {}
        if "rocpd_info_node" in self._names:
            for guid, name in self._rows("SELECT guid, machine_id FROM rocpd_info_node"):
                machines.setdefault(guid, set()).add(scope_of(name))
        return {guid: found.pop() for guid, found in machines.items() if len(found) == 1}

    def _rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        return self._database.rows(query)

    def _by_id(self, table: str, value: str, of: Callable[[object], _Value]) -> dict[_Key, _Value]:
        """What ``of`` makes of each cell: none of a stranger's is kept as it is."""
        if table not in self._names:
            return {}
        rows = self._rows(f"SELECT guid, id, {value} FROM {table}")  # noqa: S608 - names of ours
        return {(guid, key): of(cell) for guid, key, cell in rows}

    def _assembly(self, guid: Hashable, process: Hashable) -> Assembly:
        assembly = self._of.get((guid, process))
        if assembly is None:
            clock = Clock("boottime", scope=self._machines.get(guid, ""))
            assembly = self._of[guid, process] = Assembly(
                self._source.index, clock, self._notes, self._source.name, self._processes.get((guid, process))
            )
            rank = self._ranks.get((guid, process))
            assembly.process = msgspec.structs.replace(assembly.process, rank=rank)
        return assembly

    def _thread(self, assembly: Assembly, guid: Hashable, thread: Hashable) -> int:
        return assembly.thread(self._threads.get((guid, thread)))

    def _regions(self) -> None:
        if "rocpd_region" not in self._names:
            return
        assembly_of, thread_of, is_marker = cache(self._assembly), cache(self._thread), cache(self._is_marker)
        strings = self._strings
        for guid, process, thread, start, end, name, stack, parent, category, extra in self._rows(
            "SELECT r.guid, r.pid, r.tid, r.start, r.end, r.name_id, e.stack_id, e.parent_stack_id, e.category_id,"
            " e.extdata FROM rocpd_region r LEFT JOIN rocpd_event e ON e.id = r.event_id AND e.guid = r.guid"
        ):
            assembly = assembly_of(guid, process)
            times = assembly.times(start, end, "API call or range")
            if times is None:
                continue
            where = thread_of(assembly, guid, thread)
            said = strings.get((guid, name), "")
            if is_marker(guid, category):
                kind = "mark" if times[0] == times[1] else "range"
                text = _message(extra) or said
                made = Range(kind, text, where, *times, stack if type(stack) is int else None)  # type: ignore[arg-type]
                assembly.range(made)
            else:
                assembly.call(said, where, times, stack, parent=parent)

    def _marks(self) -> None:
        if not {"rocpd_sample", "rocpd_track"} <= self._names:
            return
        is_marker = cache(self._is_marker)
        for guid, process, thread, at, category, extra in self._rows(
            "SELECT s.guid, t.pid, t.tid, s.timestamp, e.category_id, e.extdata FROM rocpd_sample s"
            " JOIN rocpd_track t ON t.id = s.track_id AND t.guid = s.guid"
            " JOIN rocpd_event e ON e.id = s.event_id AND e.guid = s.guid"
        ):
            text = _message(extra)
            if text and is_marker(guid, category):
                assembly = self._assembly(guid, process)
                times = assembly.times(at, at, "mark")
                if times is not None:
                    assembly.range(Range("mark", text, self._thread(assembly, guid, thread), *times))

    def _is_marker(self, guid: Hashable, category: Hashable) -> bool:
        return "MARKER" in self._strings.get((guid, category), "")

    def _kernels(self) -> None:
        agents = self._agents()
        symbols = self._symbols()
        assembly_of, thread_of = cache(self._assembly), cache(self._thread)
        # 1 and 1.0 are equal, and only one of them is a size
        size, resources_of = lru_cache(1 << 12, typed=True)(sizes), lru_cache(1 << 12, typed=True)(_resources)

        @lru_cache(None, typed=True)
        def lane_of(assembly: Assembly, guid: Hashable, agent: Hashable, queue: object, stream: object) -> int:
            device = assembly.device(agent, agents.get((guid, agent), ""))
            return assembly.queue(device, queue, "queue") if stream is None else assembly.queue(device, stream)

        for (
            guid, process, thread, agent, kernel, dispatch, queue, stream, start, end, wx, wy, wz, gx, gy, gz, lds,
            scratch, stack,
        ) in self._rows(
            "SELECT k.guid, k.pid, k.tid, k.agent_id, k.kernel_id, k.dispatch_id, k.queue_id, k.stream_id, k.start,"
            " k.end, k.workgroup_size_x, k.workgroup_size_y, k.workgroup_size_z, k.grid_size_x, k.grid_size_y,"
            " k.grid_size_z, k.group_segment_size, k.private_segment_size, e.stack_id FROM rocpd_kernel_dispatch k"
            " LEFT JOIN rocpd_event e ON e.id = k.event_id AND e.guid = k.guid"
        ):  # fmt: skip
            assembly = assembly_of(guid, process)
            times = assembly.times(start, end, "kernel")
            if times is None:
                continue
            name, registers = symbols.get((guid, kernel), ("", _NO_REGISTERS))
            assembly.activity(
                "kernel", name, lane_of(assembly, guid, agent, queue, stream), times, number=dispatch,
                correlation=stack, grid=size(gx, gy, gz), workgroup=size(wx, wy, wz),
                resources=resources_of(registers, lds, scratch),
                thread=None if thread is None else thread_of(assembly, guid, thread),
            )  # fmt: skip

    def _symbols(self) -> dict[_Key, tuple[str, _Registers]]:
        if "rocpd_info_kernel_symbol" not in self._names:
            return {}
        return {
            (guid, key): (kernel_name(shown or mangled), (_size(vgprs), _size(accum), _size(sgprs)))
            for guid, key, shown, mangled, vgprs, accum, sgprs in self._rows(
                "SELECT guid, id, display_name, kernel_name, arch_vgpr_count, accum_vgpr_count, sgpr_count"
                " FROM rocpd_info_kernel_symbol"
            )
        }

    def _agents(self) -> dict[_Key, str]:
        if "rocpd_info_agent" not in self._names:
            return {}
        rows = self._rows("SELECT guid, id, product_name, name FROM rocpd_info_agent")
        return {(guid, key): str(product or name or "") for guid, key, product, name in rows}

    def _copies(self) -> None:
        if "rocpd_memory_copy" not in self._names:
            return
        agents = self._agents()
        route_told = cache(lambda guid, name: route_of(self._strings.get((guid, name))))
        for guid, process, thread, start, end, name, target, origin, size, stream, stack in self._rows(
            "SELECT m.guid, m.pid, m.tid, m.start, m.end, m.name_id, m.dst_agent_id, m.src_agent_id, m.size,"
            " m.stream_id, e.stack_id FROM rocpd_memory_copy m"
            " LEFT JOIN rocpd_event e ON e.id = m.event_id AND e.guid = m.guid"
        ):
            assembly = self._assembly(guid, process)
            times = assembly.times(start, end, "copy")
            if times is None:
                continue
            route = route_told(guid, name)
            agent = origin if route == "device to host" else target
            device = assembly.device(agent, agents.get((guid, agent), ""))
            assembly.activity(
                "copy", f"copy {route}".strip(), assembly.queue(device, stream), times, correlation=stack,
                size_bytes=size, route=route, thread=None if thread is None else self._thread(assembly, guid, thread),
            )  # fmt: skip


def _id(cell: object) -> int | None:
    return cell if type(cell) is int else None


def _message(extra: object) -> str:
    """The text of a ROCTx range: ``{"message": "..."}``."""
    if not isinstance(extra, str) or '"message"' not in extra:
        return ""
    try:
        return msgspec.json.decode(extra, type=_Extra).message
    except (msgspec.DecodeError, RecursionError):
        return ""


class _Extra(msgspec.Struct, gc=False):
    message: str = ""


def _resources(registers: _Registers, lds: object, scratch: object) -> Resources:
    return Resources(*registers, _size(lds), _size(scratch))


def _size(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 62 else None
