"""rocpd: the SQLite database of rocprofv3, its default form since ROCm 7 (rocm-profiles.md 7, 11.6, 11.7).

The views with plain names are read, not the tables behind them, whose names contain a run's id. If the views are
missing or compute (the lz4 variant), the tables themselves are read. Several processes may share a file (``rocpd
merge``): ids are unique only within a guid, and each process becomes a profile. The clock is CLOCK_BOOTTIME in ns. A
kernel's launch is the region with its ``stack_id``; the text of a ROCTx range is in the ``extdata`` of its event, or is
the region's name (rocprof-sys, whose categories are in small letters). Ids are looked up here and not joined by SQLite,
because a file may repeat an id a thousand times.

Schemas 3.0.0 to 3.0.5, 4.0.0 and 4.1.0 are read (rocpd-versions.md). The columns decide, because the tag in
``rocpd_metadata`` is wrong in some builds. In schema 4 a row refers to ``rocpd_track`` for its process, thread, agent,
queue and stream, in 4.0.0 also to ``rocpd_timestamp`` for its times.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.model.profile import Clock, Profile, Range, Resources
from mio2trace.model.tables import NO, Index, Numbers, Pool, by_code, combined, distinct, sorted_pool
from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Records, kernel_name
from mio2trace.readers.rocm.assembly import (
    LONGEST_COUNTER,
    Assemblies,
    Assembly,
    Sort,
    integer,
    rank_in,
    route_of,
    scope_of,
    sizes,
    sort_of,
    whole,
)
from mio2trace.readers.rocm.database import MAGIC, Database, opened, tables
from mio2trace.readers.rocm.pages import Unread
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
_KNOWN_SCHEMA = late(r"3(?:\.0(?:\.[0-5])?)?|4(?:\.[01](?:\.0)?)?")
_A_VERSION = late(r"[0-9]{1,4}(?:\.[0-9]{1,4}){0,2}")
_OF_RANGES = late(r"MARKER(?!_CONTROL|_NAME)|rocm_marker_api\Z|user\Z")
"""Categories of events that are ranges or marks: ROCTx's as rocprofv3 and rocprof-sys name them, rocprof-sys' own."""
_ON_THE_STACK = "MARKER_CORE_RANGE"
_PLACE = ("pid", "tid", "agent_id", "queue_id", "stream_id")
_TIMES = (("start", "end"), ("start_id", "end_id"), ("timestamp", "timestamp"), ("timestamp_id", "timestamp_id"))
_Key = tuple[Hashable, Hashable]
"""(guid, id). The guid is bytes, because it comes with numbers (`Database.numbers`)."""
_GUID = "CAST(guid AS BLOB)"
_Registers = tuple[int | None, int | None, int | None]
_Value = TypeVar("_Value")
_MOST_OF_A_GRAPH = 1 << 32
_PIECES = 64
"""Blocks of the database that are worked on together."""
_NO_REGISTERS: _Registers = (None, None, None)


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
    """One set of tables in a database. ``suffix``: the end of their names, empty for tables without one."""

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
        self._processes = processes = self._by_id("rocpd_info_process", "pid", integer)
        self._threads = self._by_id("rocpd_info_thread", "tid", integer)
        self._categories = self._by_id("rocpd_info_category", "name", database.text_of) or self._strings
        self._tracks = self._read_tracks()
        self._timestamps = self._read_timestamps()
        self._events_of: dict[Hashable, _Events] = {}
        """By guid."""
        machines, ranks = self._scopes(), self._by_id("rocpd_info_process", "environment", rank_in)

        def made(key: _Key) -> Assembly:
            clock = Clock("boottime", scope=machines.get(key[0], ""))
            assembly = Assembly(source.index, clock, notes, source.name, processes.get(key))
            assembly.process = msgspec.structs.replace(assembly.process, rank=ranks.get(key))
            return assembly

        self._of = Assemblies(made)
        """By guid and process."""

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
            for tag, value in self._select("rocpd_metadata", ("tag", "value")):
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
        if not {"guid", "id"} <= self._columns("rocpd_track"):
            return {}
        process_of = {(guid, pid): key for (guid, key), pid in self._processes.items() if pid is not None}
        thread_of = {(guid, tid): key for (guid, key), tid in self._threads.items() if tid is not None}
        found: dict[_Key, tuple[Any, ...]] = {}
        for guid, key, process, thread, *rest in self._select("rocpd_track", ("guid", "id"), _PLACE, numbers=True):
            if (guid, process) not in self._processes:
                process = process_of.get((guid, process), process)
            if (guid, thread) not in self._threads:
                thread = thread_of.get((guid, thread), thread)
            found[guid, key] = (process, thread, *rest)
        return found

    def _read_timestamps(self) -> dict[Hashable, tuple[Index, Numbers]]:
        """The times of schema 4.0.0 by guid and id."""
        if not {"guid", "id", "value"} <= self._columns("rocpd_timestamp"):
            return {}
        found: dict[Hashable, list[tuple[Numbers, ...]]] = {}
        for guid, (key, value) in self._blocks("rocpd_timestamp", "id", "value"):
            found.setdefault(guid, []).append((key, value))
        columns = {guid: [np.concatenate(parts) for parts in zip(*some, strict=True)] for guid, some in found.items()}
        return {guid: (Index(key, last=True), value) for guid, (key, value) in columns.items()}

    def _blocks(self, table: str, *listed: str) -> Iterator[tuple[Hashable, list[Numbers]]]:
        """Rows of whole numbers in columns, with their guid. ``listed``: columns of the table as SQL names them."""
        count = 0
        try:
            for guid, columns in self._database.arrays(self._names[table], "guid", listed):
                yield guid, columns
                count += len(columns[0])
            return
        except Unread:
            pass  # the rows after these are read cell by cell
        query = f"SELECT guid, {', '.join(listed)} FROM {self._quoted(table)}"  # noqa: S608 - names of ours
        pieces = ((piece[0], [*map(_numbers, piece[1:])]) for piece in self._database.blocks(query, count))
        while some := list(itertools.islice(pieces, _PIECES)):
            guids = list(itertools.chain.from_iterable(guids for guids, _ in some))
            columns = [np.concatenate(parts) for parts in zip(*(numbers for _, numbers in some), strict=True)]
            if guids.count(guids[0]) == len(guids):
                yield guids[0], columns
                continue
            several = Pool.of(guids)
            for code, rows in _split(several.codes.astype(np.int64)):
                yield several.values[code], [column[rows] for column in columns]

    def _records(self, table: str, *columns: str) -> Iterator[_Rows]:
        """The rows of a table, by guid; ``columns``: more of the table, `NO` where the schema does not have them."""
        if table not in self._names:
            return
        there = self._columns(table)
        on_a_track = "pid" not in there and "track_id" in there
        times = next((pair for pair in _TIMES if pair[0] in there), _TIMES[0])
        place = ["track_id"] if on_a_track else [name for name in _PLACE if name in there]
        more = [name for name in columns if name in there]
        listed = [f'"{name}"' if name in there else "NULL" for name in (*place, *times, *more)]
        for guid, found in self._blocks(table, *listed):
            of = dict(zip([*place, "start", "end", *more], found, strict=True))
            if on_a_track:
                of |= self._placed(guid, of["track_id"])
            if times[0].endswith("_id"):
                of |= {name: self._timed(guid, of[name]) for name in ("start", "end")}
            none = np.full(len(of["start"]), NO)
            yield _Rows(guid, {name: of.get(name, none) for name in (*_PLACE, "start", "end", *columns)})

    def _placed(self, guid: Hashable, track: Numbers) -> dict[str, Numbers]:
        """Return the places of the rows of schema 4, by their tracks."""
        distinct, code = np.unique(track, return_inverse=True)
        nowhere = (None,) * len(_PLACE)
        places = [self._tracks.get((guid, key), nowhere) for key in distinct.tolist()]
        return {name: _numbers(column)[code] for name, column in zip(_PLACE, zip(*places, strict=True), strict=True)}

    def _timed(self, guid: Hashable, ids: Numbers) -> Numbers:
        if guid not in self._timestamps:
            return np.full(len(ids), NO)
        index, values = self._timestamps[guid]
        return np.append(values, NO)[index.rows(ids)]

    def profiles(self, every_call: bool) -> list[Profile]:
        self._events()
        self._regions()
        self._marks()
        self._kernels()
        self._copies()
        self._graph_launches()
        self._events_of = {}
        return self._of.finish(every_call)

    def _scopes(self) -> dict[Hashable, str]:
        """Return the machine of each guid, as a hash; none for a guid with several machines."""
        machines: dict[Hashable, set[str]] = {}
        for guid, name, host_name in self._select("rocpd_info_node", (_GUID, "machine_id"), ("hostname",)):
            machines.setdefault(guid, set()).add(scope_of(name, host_name))
        return {guid: found.pop() for guid, found in machines.items() if len(found) == 1}

    def _select(
        self, table: str, needed: Sequence[str], other: Sequence[str] = (), *, numbers: bool = False
    ) -> Iterator[tuple[Any, ...]]:
        return self._database.select(self._names.get(table, table), needed, other, numbers=numbers)

    def _by_id(self, table: str, value: str, of: Callable[[object], _Value]) -> dict[_Key, _Value]:
        """Apply ``of`` to each cell, by id: no text of the file is kept unchanged."""
        if not {"guid", "id", value} <= self._columns(table):
            return {}
        return {(guid, key): of(cell) for guid, key, cell in self._select(table, (_GUID, "id", value))}

    def _thread(self, assembly: Assembly, guid: Hashable, thread: Hashable) -> int:
        return assembly.thread(self._threads.get((guid, thread)))

    def _events(self) -> None:
        columns = self._columns("rocpd_event")
        listed = [name if name in columns else "NULL" for name in ("parent_stack_id", "category_id")]
        markers: dict[Hashable, list[int]] = {}
        with_ids: dict[Hashable, list[int]] = {}
        for (guid, one), text in self._categories.items():
            if type(one) is int and _OF_RANGES.match(text):
                markers.setdefault(guid, []).append(one)
                if text.startswith(_ON_THE_STACK):
                    with_ids.setdefault(guid, []).append(one)
        found: dict[Hashable, list[tuple[NDArray[Any], ...]]] = {}
        for guid, (key, stack, parent, category) in self._blocks("rocpd_event", "id", "stack_id", *listed):
            is_marker, has_id = (np.isin(category, of.get(guid, [])) for of in (markers, with_ids))
            found.setdefault(guid, []).append((key, stack, parent, is_marker, has_id))
        for guid, blocks in found.items():
            parts = [*zip(*blocks, strict=True)][::-1]
            blocks.clear()  # each column of twenty million events takes 160 MB
            ids = np.concatenate(parts.pop())
            without = NO, NO, False, False
            self._events_of[guid] = _Events(ids, *(np.concatenate((*parts.pop(), [none])) for none in without))
        if "extdata" in columns and any(events.texts for events in self._events_of.values()):
            of_markers = [one for guid in found for one in markers.get(guid, [])]
            with_texts = [key for events in self._events_of.values() for key in events.texts]
            # SQLite compares numbers faster than texts, and finds rows by their ids.
            told = (
                f"id BETWEEN {min(with_texts)} AND {max(with_texts)}"
                f" AND category_id BETWEEN {min(of_markers)} AND {max(of_markers)} AND extdata <> '{{}}'"
            )
            for guid, key, extra in self._database.rows(
                f"SELECT {_GUID}, id, extdata FROM {self._quoted('rocpd_event')} WHERE {told}"  # noqa: S608
            ):
                texts = self._events_of[guid].texts if guid in self._events_of else {}
                if key in texts:
                    texts[key] = _message(extra)

    def _told(self, rows: _Rows) -> tuple[_Events, Numbers]:
        """The events of the guid, and the row in them of each row's event, -1 without."""
        events = self._events_of.get(rows.guid, _NO_EVENTS)
        return events, events.index.rows(rows["event_id"])

    def _by_thread(self, rows: _Rows) -> Iterator[tuple[Assembly, Numbers, Numbers]]:
        """Rows by their processes, each with the thread of every row."""
        for process, its in _split(rows["pid"]):
            assembly = self._of[rows.guid, _plain(process)]
            thread = np.empty(len(its), np.int64)
            for tid, at in _split(rows["tid"][its]):
                thread[at] = self._thread(assembly, rows.guid, _plain(tid))
            yield assembly, its, thread

    def _regions(self) -> None:
        """Calls, and the ranges among them."""
        for rows in self._records("rocpd_region", "name_id", "event_id"):
            events, at = self._told(rows)
            stack = events.stack[at]
            parent = events.parent[at]
            is_marker = events.is_marker[at]
            for assembly, its, thread in self._by_thread(rows):
                start, end = rows["start"][its], rows["end"][its]
                drawn = assembly.have_times(start, end, "API call or range")
                called = drawn & ~is_marker[its]
                its_calls = its[called]
                name = np.empty(len(its_calls), np.int64)
                for key, places in _split(rows["name_id"][its_calls]):
                    name[places] = assembly.name_of_calls(self._strings.get((rows.guid, _plain(key)), ""))
                assembly.calls(
                    name, thread[called], start[called], end[called], stack[its_calls], parent[its_calls]
                )  # fmt: skip
                marked = drawn & is_marker[its]
                of_marked = its[marked]
                number_of = np.where(events.has_id[at], stack, NO)[of_marked]
                cells = (rows["name_id"][of_marked], rows["event_id"][of_marked], number_of, thread[marked],
                         start[marked], end[marked])  # fmt: skip
                for said, event, number, on, begin, until in zip(*(cell.tolist() for cell in cells), strict=True):
                    text = events.texts.get(event) or self._strings.get((rows.guid, _plain(said)), "")
                    kind: Literal["mark", "range"] = "mark" if begin == until else "range"
                    assembly.range(Range(kind, text, on, begin, until, _plain(number)))

    def _marks(self) -> None:
        if not any(events.texts for events in self._events_of.values()):
            return
        for rows in self._records("rocpd_sample", "event_id"):
            texts = self._events_of.get(rows.guid, _NO_EVENTS).texts
            for process, thread, at, event in rows.each("pid", "tid", "start", "event_id"):
                text = None if event is None else texts.get(event)
                if text and process is not None:
                    assembly = self._of[rows.guid, process]
                    times = assembly.times(at, at, "mark")
                    if times is not None:
                        assembly.range(Range("mark", text, self._thread(assembly, rows.guid, thread), *times))

    def _kernels(self) -> None:
        agents, symbols = self._agents(), self._symbols()

        def form(assembly: Assembly, guid: Hashable, place: Sequence[int | None], cells: Sequence[int | None]) -> int:
            _, thread, agent, queue, stream = place
            kernel, wx, wy, wz, gx, gy, gz, lds, scratch, graph, node = cells
            device = assembly.device(agent, *agents.get((guid, agent), ()))
            lane = assembly.queue(device, queue, "queue") if stream is None else assembly.queue(device, stream)
            name, registers = symbols.get((guid, kernel), ("", _NO_REGISTERS))
            return assembly.form(
                "kernel", name, lane, grid=sizes(gx, gy, gz), workgroup=sizes(wx, wy, wz),
                resources=Resources(*registers, whole(lds), whole(scratch)),
                thread=None if thread is None else self._thread(assembly, guid, thread),
                graph_node=(graph, node) if graph else None,
            )  # fmt: skip

        kernels: dict[_Key, tuple[Assembly, int]] = {}
        is_counted = next(self._select("rocpd_pmc_event", ("1",)), None) is not None
        for guid, assembly, first, events in self._commands(
            "kernel", form, "rocpd_kernel_dispatch", "dispatch_id", "kernel_id", "workgroup_size_x", "workgroup_size_y",
            "workgroup_size_z", "grid_size_x", "grid_size_y", "grid_size_z", "group_segment_size",
            "private_segment_size", "graph_exec_id", "graph_node_id",
        ):  # fmt: skip
            if is_counted:
                kernels |= {(guid, event): (assembly, place) for place, event in enumerate(events.tolist(), first)}
        if kernels:
            self._counters(kernels)

    def _commands(
        self, kind: str, form_of: _FormOf, table: str, varying: str, *columns: str
    ) -> Iterator[tuple[Hashable, Assembly, int, Numbers]]:
        """The commands of a table into their processes: (guid, process, place of the first row, events) of each block.

        ``form_of`` makes the form of all rows that are equal in place and ``columns``. ``varying`` is the kernel's
        number or the copy's size.
        """
        known: dict[tuple[object, ...], int] = {}
        for rows in self._records(table, varying, *columns, "event_id"):
            events, at = self._told(rows)
            stack = events.stack[at]
            for process, its in _split(rows["pid"]):
                assembly = self._of[rows.guid, _plain(process)]
                its = its[assembly.have_times(rows["start"][its], rows["end"][its], kind)]
                if not len(its):
                    continue
                cells = [rows[name][its] for name in (*_PLACE, *columns)]
                form = np.empty(len(its), np.int64)
                for one, places in _split(*cells):
                    number = known.get((rows.guid, *one))
                    if number is None:
                        place, others = [*map(_plain, one[: len(_PLACE)])], [*map(_plain, one[len(_PLACE) :])]
                        number = known[rows.guid, *one] = form_of(assembly, rows.guid, place, others)
                    form[places] = number
                told = rows[varying][its]
                first = assembly.activities(
                    form, rows["start"][its], rows["end"][its], correlation=stack[its],
                    number=told if kind == "kernel" else None, size_bytes=told if kind != "kernel" else 0,
                )  # fmt: skip
                yield rows.guid, assembly, first, rows["event_id"][its]

    def _counters(self, kernels: Mapping[_Key, tuple[Assembly, int]]) -> None:
        """Read the values of counters. Other rows also have some: samples of a stream of counters, events of the
        system."""
        needed, told = {"guid", "event_id", "pmc_id", "value"}, {"guid", "id", "name"}
        if not (needed <= self._columns("rocpd_pmc_event") and told <= self._columns("rocpd_info_pmc")):
            return
        info: dict[_Key, tuple[str, str, Sort]] = {}
        for guid, key, cell, units, is_derived, is_constant in self._select(
            "rocpd_info_pmc", (_GUID, "id", "name"), ("units", "is_derived", "is_constant")
        ):
            name = self._database.text_of(cell)[:LONGEST_COUNTER]
            unit = self._database.text_of(units)[:LONGEST_COUNTER]
            info[guid, key] = name, unit, sort_of(name, is_derived, is_constant)
        unknown: tuple[str, str, Sort] = ("", "", "base")
        for guid, event, key, value, of_a_stream in self._select(
            "rocpd_pmc_event", ("guid", "event_id", "pmc_id", "value"), ("sample_id",), numbers=True
        ):
            if of_a_stream is None and (guid, event) in kernels:
                assembly, place = kernels[guid, event]
                name, unit, sort = info.get((guid, key), unknown)
                assembly.counts.add(place, name, unit, sort, value)

    def _symbols(self) -> dict[_Key, tuple[str, _Registers]]:
        columns = _GUID, "id", "display_name", "kernel_name", "arch_vgpr_count", "accum_vgpr_count", "sgpr_count"
        return {
            (guid, key): (kernel_name(shown or mangled), (whole(vgprs), whole(accum), whole(sgprs)))
            for guid, key, shown, mangled, vgprs, accum, sgprs in self._select("rocpd_info_kernel_symbol", columns)
        }

    def _agents(self) -> dict[_Key, tuple[str, int | None]]:
        """Return the name of each agent and its number in the machine."""
        rows = self._select("rocpd_info_agent", (_GUID, "id", "product_name", "name"), ("absolute_index",))
        return {(guid, key): (str(product or name or ""), whole(unit)) for guid, key, product, name, unit in rows}

    def _copies(self) -> None:
        agents = self._agents()

        def form(assembly: Assembly, guid: Hashable, place: Sequence[int | None], cells: Sequence[int | None]) -> int:
            _, thread, _, _, stream = place
            name, target, origin, graph, node = cells
            route = route_of(self._strings.get((guid, name)))
            agent = origin if route == "device to host" else target
            device = assembly.device(agent, *agents.get((guid, agent), ()))
            return assembly.form(
                "copy", f"copy {route}".strip(), assembly.queue(device, stream), route=route,
                thread=None if thread is None else self._thread(assembly, guid, thread),
                graph_node=(graph, node) if graph else None,
            )  # fmt: skip

        for _ in self._commands(
            "copy", form, "rocpd_memory_copy", "size", "name_id", "dst_agent_id", "src_agent_id", "graph_exec_id",
            "graph_node_id",
        ):  # fmt: skip
            pass

    def _graph_launches(self) -> None:
        """Kernels of graph launches that were not recorded: the launch has their number. A launch without any
        recorded kernel is counted as a launch without kernels."""
        recorded: dict[_Key, Counter[int]] = {}
        for rows in self._records("rocpd_graph_launch", "kernel_dispatch_count", "event_id"):
            events, at = self._told(rows)
            stacks = events.stack[at].tolist()
            if not recorded:
                recorded = {owner: assembly.kernels_by_correlation() for owner, assembly in self._of.items()}
            for stack, (process, count) in zip(stacks, rows.each("pid", "kernel_dispatch_count"), strict=True):
                there = recorded[rows.guid, process][stack] if stack >= 0 and (rows.guid, process) in recorded else 0
                if there and count is not None and there < count < _MOST_OF_A_GRAPH:
                    self._of[rows.guid, process].defects["lost-graph-kernels"] += count - there


class _Rows:
    """Some rows of a table, of one guid, in columns."""

    def __init__(self, guid: Hashable, columns: Mapping[str, Numbers]) -> None:
        self.guid = guid
        self._columns = columns

    def __getitem__(self, name: str) -> Numbers:
        return self._columns[name]

    def each(self, *names: str) -> Iterator[tuple[int | None, ...]]:
        return zip(*(map(_plain, self[name].tolist()) for name in names), strict=True)


_FormOf = Callable[[Assembly, Hashable, Sequence[int | None], Sequence[int | None]], int]


class _Events:
    """The events of a guid, and an empty event at the end of each column except ``ids``, for -1. ``texts``: the text of
    each ROCTx event by its id, or none."""

    def __init__(
        self, ids: Numbers, stack: Numbers, parent: Numbers, is_marker: NDArray[np.bool_], has_id: NDArray[np.bool_]
    ) -> None:
        self.index = Index(ids, last=True)
        self.stack, self.parent, self.is_marker = stack, parent, is_marker
        self.has_id = has_id
        """Whether what was called while the range was open states its id."""
        self.texts: dict[int, str] = dict.fromkeys(ids[is_marker[:-1]].tolist(), "")


_NO_EVENTS = _Events(np.empty(0, np.int64), np.array([NO]), np.array([NO]), np.array([False]), np.array([False]))


def _numbers(cells: Sequence[object]) -> Numbers:
    """A column of whole numbers; `NO` for any other cell, for a stranger may store anything."""
    column = np.array(cells)
    if column.dtype == np.int64:
        return column
    return np.fromiter((cell if type(cell) is int else NO for cell in cells), np.int64, len(cells))


def _plain(number: int) -> int | None:
    return None if number == NO else int(number)


def _split(*columns: Numbers) -> Iterator[tuple[Any, Numbers]]:
    """Rows by their values: (the value, or a tuple of them, the rows) in order of first appearance."""
    if not len(columns[0]):
        return
    varying = [column for column in columns if (column != column[0]).any()]
    first, code = distinct(combined(*(sorted_pool(column).codes for column in varying or columns[:1])))
    for group, rows in by_code(np.arange(len(code)), code):
        values = tuple(int(column[first[group]]) for column in columns)
        yield values if len(columns) > 1 else values[0], rows


@lru_cache(1 << 12)  # ranges of one layer have one text
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
