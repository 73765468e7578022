"""rocpd: the SQLite database of rocprofv3, its default form since ROCm 7 (rocm-profiles.md 7, 11.6, 11.7).

The views with plain names are read, not the tables behind them, whose names contain a run's id. If the views are
missing or compute (the lz4 variant), the tables themselves are read. Several processes may share a file (``rocpd
merge``): ids are unique only within a guid, and each process becomes a profile. The clock is CLOCK_BOOTTIME in ns. A
kernel's launch is the region with its ``stack_id``; the text of a ROCTx range is in the ``extdata`` of its event. Ids
are looked up here and not joined by SQLite, because a file may repeat an id a thousand times.

Schemas 3.0.0 to 3.0.5, 4.0.0 and 4.1.0 are read (rocpd-versions.md). The columns decide, because the tag in
``rocpd_metadata`` is wrong in some builds. In schema 4 a row refers to ``rocpd_track`` for its process, thread, agent,
queue and stream, in 4.0.0 also to ``rocpd_timestamp`` for its times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, TypeVar

import msgspec

from mio2trace.model.profile import Clock, Profile, Range, Resources
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.rocm.assembly import Assembly, kernel_name, rank_in, route_of, scope_of, sizes
from mio2trace.readers.rocm.counters import Sort, sort_of
from mio2trace.readers.rocm.database import MAGIC, Database, opened, tables
from mio2trace.source import Source

NAME = "rocpd database (rocprofv3)"
_NEEDED = {
    "rocpd_kernel_dispatch": {"guid", "event_id", "kernel_id"},
    "rocpd_string": {"guid", "id", "string"},
    "rocpd_event": {"guid", "id", "stack_id"},
}
"""By table, the columns without which a schema is not read; place and time of a kernel have several forms."""
_TABLES = {
    *_NEEDED,
    *("rocpd_info_process", "rocpd_info_thread", "rocpd_info_node", "rocpd_info_agent", "rocpd_info_kernel_symbol"),
    *("rocpd_region", "rocpd_sample", "rocpd_track", "rocpd_memory_copy", "rocpd_timestamp", "rocpd_info_category"),
    *("rocpd_metadata", "rocpd_graph_launch", "rocpd_info_pmc", "rocpd_pmc_event"),
}
_KNOWN_SCHEMA = re.compile(r"3(?:\.0(?:\.[0-5])?)?|4(?:\.[01](?:\.0)?)?")
_A_VERSION = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4}){0,2}")
_PLACE = ("pid", "tid", "agent_id", "queue_id", "stream_id")
_TIMES = (("start", "end"), ("start_id", "end_id"), ("timestamp", "timestamp"), ("timestamp_id", "timestamp_id"))
_Key = tuple[Hashable, Hashable]
"""(guid, id). The guid is bytes, because it comes with numbers (`Database.numbers`)."""
_Registers = tuple[int | None, int | None, int | None]
_Value = TypeVar("_Value")
_MOST_OF_A_GRAPH = 1 << 32
_AT_ONCE = 4096
"""Rows that are processed together."""
_LONGEST_NAME = 200
"""Of a counter."""
_NO_REGISTERS: _Registers = (None, None, None)
_NO_STACKS: dict[Hashable, object] = {}


def sniff(head: bytes) -> bool:
    """The schema is spread over many pages. `rpd` has none of these tables, but others with the same prefix."""
    return (tables(head) != b"" and b"rocpd_kernel_dispatch" in head) or (
        head.startswith(MAGIC) and b"rocpd_info_" in head
    )


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    with opened(source, ()) as database:
        return [
            profile
            for suffix in _suffixes(database)
            for profile in _Reading(source, database, notes, suffix).profiles(options.host_calls)
        ]


def _suffixes(database: Database) -> list[str]:
    """Return the suffixes of the tables to read: none, or that of each run if the views are missing or compute."""
    first = "rocpd_kernel_dispatch"
    suffixes = sorted(name[len(first) :] for name in database.names if name.startswith(f"{first}_"))
    plain = first in database.names and all(map(database.is_stored, _TABLES))
    return [""] if plain or not suffixes else suffixes


class _Reading:
    def __init__(self, source: Source, database: Database, notes: Notes, suffix: str) -> None:
        self._source = source
        self._database = database
        self._notes = notes
        database.require_stored(table + suffix for table in _TABLES)
        self._names = {table: f"{table}{suffix}" for table in _TABLES if f"{table}{suffix}" in database.names}
        names = self._names  # no reference to this object, so that it is freed without the garbage collector
        self._columns = cache(lambda table: database.columns(names[table]) if table in names else set())
        self._require_schema()
        self._strings = self._by_id("rocpd_string", "string", database.text_of)
        self._processes = self._by_id("rocpd_info_process", "pid", _id)
        self._ranks = self._by_id("rocpd_info_process", "environment", rank_in)
        self._threads = self._by_id("rocpd_info_thread", "tid", _id)
        self._categories = self._by_id("rocpd_info_category", "name", database.text_of) or self._strings
        self._tracks = self._read_tracks()
        self._timestamps = self._by_id("rocpd_timestamp", "value", _id)
        self._machines = self._scopes()
        self._stacks: dict[Hashable, dict[Hashable, object]] = {}
        """The ``stack_id`` of each event, by guid."""
        self._parents: dict[_Key, object] = {}
        self._messages: dict[_Key, str] = {}
        """The text (or none) of the events of ROCTx."""
        self._of: dict[_Key, Assembly] = {}

    def _require_schema(self) -> None:
        """Raises `InputError` if a needed table or column is missing; an unknown version is a note."""
        version = self._version()
        for table, needed in _NEEDED.items():
            missing = sorted(needed - self._columns(table))
            if missing:
                found = f"no {table}" if table not in self._names else f"no column {missing[0]} in {table}"
                schema = f" (schema {version})" if version else ""
                raise InputError(
                    f"{self._source.name}: {found}{schema}; expected a rocpd database of rocprofv3, schema 3.0 or 4"
                )
        if version and not _KNOWN_SCHEMA.fullmatch(version):
            self._notes.remark(
                f"rocpd schema {version}, which is not known (known: 3.0.0 to 3.0.5, 4.0.0, 4.1.0): read by the names"
                " of its columns", self._source.name,
            )  # fmt: skip
        if "compression" in self._tags:
            self._notes.add("rocpd whose texts of ranges are compressed: ranges have no text", self._source.name)

    def _version(self) -> str:
        """Return the version that the file states; empty if it does not."""
        self._tags: dict[str, str] = {}
        if {"tag", "value"} <= self._columns("rocpd_metadata"):
            for tag, value in self._rows(f"SELECT tag, value FROM {self._quoted('rocpd_metadata')}"):  # noqa: S608
                if tag == "compression" or (isinstance(tag, str) and tag.startswith("schema_version")):
                    self._tags[tag] = str(value)[:40]
        parts = [self._tags.get(f"schema_version_{part}", "") for part in ("major", "minor", "patch")]
        texts = (".".join(part for part in parts if part), self._tags.get("schema_version", ""))
        return next((text for text in texts if _A_VERSION.fullmatch(text)), "")

    def _quoted(self, table: str) -> str:
        """Return the name of one of our tables in the file; the suffix of a run is text from the file."""
        name = self._names[table].replace('"', '""')
        return f'"{name}"'

    def _read_tracks(self) -> dict[_Key, tuple[Any, ...]]:
        """Return (process, thread, agent, queue, stream) of each track, as ids of rows; some writers store the system's
        own numbers for process and thread."""
        columns = self._columns("rocpd_track")
        if not {"guid", "id"} <= columns:
            return {}
        listed = ", ".join(name if name in columns else "NULL" for name in _PLACE)
        process_of = {(guid, pid): key for (guid, key), pid in self._processes.items() if pid is not None}
        thread_of = {(guid, tid): key for (guid, key), tid in self._threads.items() if tid is not None}
        found: dict[_Key, tuple[Any, ...]] = {}
        rows = self._database.numbers(f"SELECT guid, id, {listed} FROM {self._quoted('rocpd_track')}")  # noqa: S608
        for guid, key, process, thread, *rest in rows:
            if (guid, process) not in self._processes:
                process = process_of.get((guid, process), process)
            if (guid, thread) not in self._threads:
                thread = thread_of.get((guid, thread), thread)
            found[guid, key] = (process, thread, *rest)
        return found

    def _records(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield (guid, process, thread, agent, queue, stream, start, end, ...) of each row. ``columns``: more of the
        table, None if the schema lacks them."""
        if table not in self._names:
            return iter(())
        there = self._columns(table)
        on_a_track = "pid" not in there and "track_id" in there
        times = next((pair for pair in _TIMES if pair[0] in there), _TIMES[0])
        place = ["track_id", *[""] * 4] if on_a_track else _PLACE
        listed = ", ".join(f'"{name}"' if name in there else "NULL" for name in (*place, *times, *columns))
        rows = self._database.numbers(f"SELECT guid, {listed} FROM {self._quoted(table)}")  # noqa: S608 - names of ours
        is_id = times[0].endswith("_id")
        return self._resolved(rows, on_a_track, is_id) if on_a_track or is_id else rows

    def _resolved(self, rows: Iterator[tuple[Any, ...]], on_a_track: bool, is_id: bool) -> Iterator[tuple[Any, ...]]:
        """Yield rows of schema 4 as those of schema 3: references are replaced by their values."""
        nowhere = (None,) * len(_PLACE)
        for guid, *rest in rows:
            place = self._tracks.get((guid, rest[0]), nowhere) if on_a_track else rest[:5]
            times = [self._timestamps.get((guid, key)) for key in rest[5:7]] if is_id else rest[5:7]
            yield guid, *place, *times, *rest[7:]

    def profiles(self, every_call: bool) -> Iterator[Profile]:
        self._events()
        self._regions()
        self._marks()
        self._kernels()
        self._copies()
        self._graph_launches()
        self._stacks, self._parents, self._messages = {}, {}, {}
        for assembly in self._of.values():
            if not assembly.empty:
                yield assembly.finish(every_call)

    def _scopes(self) -> dict[Hashable, str]:
        """Return the machine of each guid, as a hash; none for a guid with several machines."""
        machines: dict[Hashable, set[str]] = {}
        if "rocpd_info_node" in self._names:
            table = self._quoted("rocpd_info_node")
            for guid, name in self._rows(f"SELECT CAST(guid AS BLOB), machine_id FROM {table}"):  # noqa: S608
                machines.setdefault(guid, set()).add(scope_of(name))
        return {guid: found.pop() for guid, found in machines.items() if len(found) == 1}

    def _rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        return self._database.rows(query)

    def _has_rows(self, table: str) -> bool:
        if table not in self._names:
            return False
        return bool(list(self._rows(f"SELECT 1 FROM {self._quoted(table)} LIMIT 1")))  # noqa: S608 - names of ours

    def _by_id(self, table: str, value: str, of: Callable[[object], _Value]) -> dict[_Key, _Value]:
        """Apply ``of`` to each cell, by id: no text of the file is kept unchanged."""
        if not {"guid", "id", value} <= self._columns(table):
            return {}
        rows = self._rows(f"SELECT CAST(guid AS BLOB), id, {value} FROM {self._quoted(table)}")  # noqa: S608
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

    def _events(self) -> None:
        markers: dict[Hashable, set[Hashable]] = {}
        for (guid, key), text in self._categories.items():
            if "MARKER" in text:
                markers.setdefault(guid, set()).add(key)
        columns, table = self._columns("rocpd_event"), self._quoted("rocpd_event")
        listed = ", ".join(name if name in columns else "NULL" for name in ("parent_stack_id", "category_id"))
        parents, messages = self._parents, self._messages
        any_marker = set().union(*markers.values())
        rows = self._database.numbers(f"SELECT guid, id, stack_id, {listed} FROM {table}")  # noqa: S608 - names of ours
        while some := list(islice(rows, _AT_ONCE)):
            # Most rows have one guid, no parent, and are no marks, so nothing is done row by row then.
            guids, keys, their_stacks, their_parents, their_categories = zip(*some, strict=True)
            for guid in {*guids}:
                own = self._stacks.setdefault(guid, {})
                if guids.count(guid) == len(guids):
                    own.update(zip(keys, their_stacks, strict=True))
                else:
                    own.update((key, stack) for of, key, stack, *_ in some if of == guid)
            if any(their_parents):
                parents |= {(guid, key): parent for guid, key, _, parent, _ in some if parent}
            if not any_marker.isdisjoint(their_categories):
                messages |= {(guid, key): "" for guid, key, *_, told in some if told in markers.get(guid, ())}
        if messages and "extdata" in columns:
            for guid, key, extra in self._rows(
                f"SELECT CAST(guid AS BLOB), id, extdata FROM {table} WHERE extdata <> '{{}}'"  # noqa: S608
            ):
                if (guid, key) in messages:
                    messages[guid, key] = _message(extra)

    def _stack(self, guid: Hashable, event: Hashable) -> object:
        return self._stacks.get(guid, _NO_STACKS).get(event)

    def _regions(self) -> None:
        strings, parents, messages = self._strings, self._parents, self._messages

        @cache
        def place_of(guid: Hashable, process: Hashable, thread: Hashable) -> tuple[Assembly, int]:
            assembly = self._assembly(guid, process)
            return assembly, self._thread(assembly, guid, thread)

        of: Hashable = self  # no guid
        stacks: Mapping[Hashable, object] = {}
        for guid, process, thread, _, _, _, start, end, name, event in self._records(
            "rocpd_region", "name_id", "event_id"
        ):
            if guid != of:
                of, stacks = guid, self._stacks.get(guid, _NO_STACKS)
            assembly, where = place_of(guid, process, thread)
            times = assembly.times(start, end, "API call or range")
            if times is None:
                continue
            said = strings.get((guid, name), "")
            stack = stacks.get(event)
            message = messages.get((guid, event)) if messages else None
            if message is not None:
                kind = "mark" if times[0] == times[1] else "range"
                made = Range(kind, message or said, where, *times, stack if type(stack) is int else None)  # type: ignore[arg-type]
                assembly.range(made)
            else:
                assembly.call(said, where, times, stack, parent=parents.get((guid, event)) if parents else None)

    def _marks(self) -> None:
        if not self._messages:
            return
        for guid, process, thread, _, _, _, at, _, event in self._records("rocpd_sample", "event_id"):
            text = self._messages.get((guid, event))
            if text and process is not None:
                assembly = self._assembly(guid, process)
                times = assembly.times(at, at, "mark")
                if times is not None:
                    assembly.range(Range("mark", text, self._thread(assembly, guid, thread), *times))

    def _kernels(self) -> None:
        agents = self._agents()
        symbols = self._symbols()
        kernels: dict[_Key, tuple[Assembly, int]] = {}
        is_counted = self._has_rows("rocpd_pmc_event")
        firsts: dict[tuple[object, ...], tuple[Assembly, Mapping[Hashable, object], int]] = {}
        for row in self._records(
            "rocpd_kernel_dispatch", "kernel_id", "workgroup_size_x", "workgroup_size_y", "workgroup_size_z",
            "grid_size_x", "grid_size_y", "grid_size_z", "group_segment_size", "private_segment_size", "graph_exec_id",
            "graph_node_id", "dispatch_id", "event_id",
        ):  # fmt: skip
            start, end, dispatch, event = row[6], row[7], row[-2], row[-1]
            cells = row[:6] + row[8:-2]
            first = firsts.get(cells)
            if first is not None:
                assembly, stacks, place = first
                times = assembly.times(start, end, "kernel")
                if times is not None:
                    place = assembly.again(place, times, dispatch, stacks.get(event))
            else:
                guid, process, thread, agent, queue, stream, kernel, wx, wy, wz, gx, gy, gz, lds, scratch, *graph = (
                    cells
                )
                assembly, stacks = self._assembly(guid, process), self._stacks.get(guid, _NO_STACKS)
                times = assembly.times(start, end, "kernel")
                if times is not None:
                    device = assembly.device(agent, agents.get((guid, agent), ""))
                    lane = assembly.queue(device, queue, "queue") if stream is None else assembly.queue(device, stream)
                    name, registers = symbols.get((guid, kernel), ("", _NO_REGISTERS))
                    place = assembly.activity(
                        "kernel", name, lane, times, number=dispatch, correlation=stacks.get(event),
                        grid=sizes(gx, gy, gz), workgroup=sizes(wx, wy, wz),
                        resources=_resources(registers, lds, scratch),
                        thread=None if thread is None else self._thread(assembly, guid, thread),
                        graph_node=(graph[0], graph[1]) if graph[0] else None,
                    )  # fmt: skip
                    if float not in map(type, cells):  # 1 and 1.0 are equal, but only one of them is a size
                        firsts[cells] = assembly, stacks, place
            if times is not None and is_counted and type(event) is int:
                kernels[row[0], event] = assembly, place
        if kernels:
            self._counters(kernels)

    def _counters(self, kernels: Mapping[_Key, tuple[Assembly, int]]) -> None:
        """Read the values of counters. Other rows also have some: samples of a stream of counters, events of the
        system."""
        needed, told = {"guid", "event_id", "pmc_id", "value"}, {"guid", "id", "name"}
        columns, of_info = self._columns("rocpd_pmc_event"), self._columns("rocpd_info_pmc")
        if not (needed <= columns and told <= of_info):
            return
        listed = ", ".join(name if name in of_info else "NULL" for name in ("units", "is_derived", "is_constant"))
        info: dict[_Key, tuple[str, str, Sort]] = {}
        for guid, key, cell, units, is_derived, is_constant in self._rows(
            f"SELECT CAST(guid AS BLOB), id, name, {listed} FROM {self._quoted('rocpd_info_pmc')}"  # noqa: S608 - names of ours
        ):
            name = self._database.text_of(cell)[:_LONGEST_NAME]
            unit = self._database.text_of(units)[:_LONGEST_NAME]
            info[guid, key] = name, unit, sort_of(name, is_derived, is_constant)
        unknown: tuple[str, str, Sort] = ("", "", "base")
        sample = "sample_id" if "sample_id" in columns else "NULL"
        for guid, event, key, value, of_a_stream in self._database.numbers(
            f"SELECT guid, event_id, pmc_id, value, {sample} FROM {self._quoted('rocpd_pmc_event')}"  # noqa: S608
        ):
            if of_a_stream is None and (guid, event) in kernels:
                assembly, place = kernels[guid, event]
                name, unit, sort = info.get((guid, key), unknown)
                assembly.counts.add(place, name, unit, sort, value)

    def _symbols(self) -> dict[_Key, tuple[str, _Registers]]:
        if "rocpd_info_kernel_symbol" not in self._names:
            return {}
        columns = "CAST(guid AS BLOB), id, display_name, kernel_name, arch_vgpr_count, accum_vgpr_count, sgpr_count"
        rows = self._rows(f"SELECT {columns} FROM {self._quoted('rocpd_info_kernel_symbol')}")  # noqa: S608
        return {
            (guid, key): (kernel_name(shown or mangled), (_size(vgprs), _size(accum), _size(sgprs)))
            for guid, key, shown, mangled, vgprs, accum, sgprs in rows
        }

    def _agents(self) -> dict[_Key, str]:
        if "rocpd_info_agent" not in self._names:
            return {}
        listed = "CAST(guid AS BLOB), id, product_name, name"
        rows = self._rows(f"SELECT {listed} FROM {self._quoted('rocpd_info_agent')}")  # noqa: S608 - names of ours
        return {(guid, key): str(product or name or "") for guid, key, product, name in rows}

    def _copies(self) -> None:
        agents = self._agents()
        route_told = cache(lambda guid, name: route_of(self._strings.get((guid, name))))
        for (
            guid, process, thread, _, _, stream, start, end, name, target, origin, size, graph, node, event,
        ) in self._records(
            "rocpd_memory_copy", "name_id", "dst_agent_id", "src_agent_id", "size", "graph_exec_id", "graph_node_id",
            "event_id",
        ):  # fmt: skip
            assembly = self._assembly(guid, process)
            times = assembly.times(start, end, "copy")
            if times is None:
                continue
            route = route_told(guid, name)
            agent = origin if route == "device to host" else target
            device = assembly.device(agent, agents.get((guid, agent), ""))
            assembly.activity(
                "copy", f"copy {route}".strip(), assembly.queue(device, stream), times,
                correlation=self._stack(guid, event), size_bytes=size, route=route,
                thread=None if thread is None else self._thread(assembly, guid, thread),
                graph_node=(graph, node) if graph else None,
            )  # fmt: skip

    def _graph_launches(self) -> None:
        """Return kernels of graph launches that were not recorded, as the launch states their number. A launch without
        a number is counted as a launch without kernels."""
        recorded: dict[_Key, Counter[int | None]] = {}
        for guid, process, *_, count, event in self._records("rocpd_graph_launch", "kernel_dispatch_count", "event_id"):
            stack = self._stack(guid, event)
            if not recorded:
                recorded = {owner: assembly.kernels_by_correlation() for owner, assembly in self._of.items()}
            there = recorded.get((guid, process), Counter[int | None]())[stack] if type(stack) is int else 0
            if there and type(count) is int and there < count < _MOST_OF_A_GRAPH:
                self._of[guid, process].defects["lost-graph-kernels"] += count - there


def _id(cell: object) -> int | None:
    return cell if type(cell) is int else None


def _message(extra: object) -> str:
    """Return the text of a ROCTx range: ``{"message": "..."}``."""
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
