"""RPD, of rocmProfileData (``runTracer.sh``): its database, and Chrome JSON made from it (rocm-profiles.md 7).

A file holds the processes of a run, and each becomes a profile. The clock counts ns since an unknown kind of boot time.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Literal

from mio2trace.model.profile import Profile, Range, Resources
from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late
from mio2trace.readers.base import Format, ReadOptions, Records, kernel_name
from mio2trace.readers.rocm.assembly import Assembly, Kind, by_pid, route_of, sizes, whole, work_items
from mio2trace.readers.rocm.database import Database, opened, tables
from mio2trace.readers.rocm.events import LAUNCHES, Arrows, Event, events, number
from mio2trace.source import Source


def kind_of(word: str) -> Kind:
    """Return the kind by the runtime's word: ``CopyHostToDevice``, ``FillBuffer``, ``KernelExecution``, ``Task``."""
    if word.startswith(("Copy", "Memcpy")):
        return "copy"
    return "fill" if word.startswith(("Fill", "Memset")) else "kernel"


def named(kind: Kind, word: object, kernel: object) -> tuple[str, str]:
    """Return name and route of a command: ``kernel`` is the name of a kernel, ``word`` has the route of a copy."""
    if kind == "kernel":
        return kernel_name(kernel), ""
    route = route_of(word)
    return f"{kind} {route}".strip(), route


# -- Database, of the schemas 2 and 3 ----------------------------------------------------------------------------------
#
# Its tables are also called ``rocpd_*`` but differ from rocprofv3's: operations of the device in ``rocpd_op``, API
# calls in ``rocpd_api``, and the call of each operation in ``rocpd_api_ops``. Ranges are calls named ``UserMarker`` or,
# in schema 3, of a domain other than HIP's; their text is in ``args``. Those in ``ext_autogradapi`` are PyTorch's ops.
# The sizes of a launch are those given to its call: blocks or work-items (rocm-profiles.md 9), so without a known call
# there is no grid. Barriers are not drawn.

_NEEDED = {"rocpd_op", "rocpd_api", "rocpd_api_ops", "rocpd_string"}
_TABLES = _NEEDED | {"rocpd_ustring", "rocpd_kernelapi", "rocpd_copyapi", "ext_autogradapi"}
MARKER = "UserMarker"
_OF_HIP = ("", "hip", "hsa")
"""Domains of calls; the others (``roctx``, ``miopen``, ``python``) hold ranges."""
_Launch = tuple[str, dict[str, Any]]
"""The kernel's name in ``rocpd_kernelapi``, and the arguments of `Assembly.activity` that are there."""
_UNKNOWN: _Launch = ("", {})


def _read_database(source: Source, options: ReadOptions, notes: Notes) -> Records:
    with opened(source, _TABLES) as database:
        return [*_Database(source, database, notes).profiles(options.host_calls)]


class _Database:
    def __init__(self, source: Source, database: Database, notes: Notes) -> None:
        self._source = source
        self._database = database
        self._notes = notes
        missing = sorted(_NEEDED - database.names)
        if missing:
            raise InputError(f"{source.name}: no {missing[0]}; expected an RPD database")
        self._strings, self._texts = map(self._texts_by_id, ("rocpd_string", "rocpd_ustring"))
        self._assemblies = by_pid(source, notes)  # one recorder, one machine
        self._process_of_call: dict[object, object] = {}
        self._processes_on: dict[object, set[object]] = {}
        """By device."""

    def profiles(self, every_call: bool) -> list[Profile]:
        names = self._calls()
        self._ops(names)
        return self._assemblies.finish(every_call)

    def _texts_by_id(self, table: str) -> dict[object, str]:
        return {key: self._database.text_of(text) for key, text in self._database.select(table, ("id", "string"))}

    def _calls(self) -> dict[object, str]:
        select = self._database.select
        names: dict[object, str] = {}
        ops = {key for key, _ in select("ext_autogradapi", ("api_ptr_id", "seq"), numbers=True)}
        is_of_hip = cache(lambda where: self._strings.get(where, "").lower() in _OF_HIP)
        columns = "id", "pid", "tid", "start", "end", "apiName_id", "args_id"
        for key, pid, tid, start, end, name, args, where in select("rocpd_api", columns, ("domain_id",), numbers=True):
            assembly = self._assemblies[pid]
            self._process_of_call[key] = pid
            called = names[key] = self._strings.get(name, "")
            times = assembly.times(start, end, "API call or range")
            if times is None:
                continue
            thread = assembly.thread(tid)
            if called == MARKER or not is_of_hip(where):
                text = self._texts.get(args) or self._strings.get(args) or ""
                text = called if called != MARKER and not text else text
                kind: Literal["operator", "range"] = "operator" if key in ops else "range"
                assembly.range(Range("mark" if times[0] == times[1] else kind, text, thread, *times))
            else:
                assembly.call(called, thread, times, key)
        return names

    def _ops(self, names: dict[object, str]) -> None:
        launches = self._launches(names)
        copies: dict[object, object] = dict(
            self._database.select("rocpd_copyapi", ("api_ptr_id", "size"), numbers=True)
        )
        call_of = dict(self._database.select("rocpd_api_ops", ("op_id", "api_id"), numbers=True))
        columns = 'id, gpuId, queueId, start, "end", description_id, opType_id'
        ops = list(self._database.numbers(f"SELECT {columns} FROM rocpd_op ORDER BY id"))  # noqa: S608 - names of ours
        for key, gpu, *_ in ops:
            pid = self._process_of_call.get(call_of.get(key))
            if pid is not None:
                self._processes_on.setdefault(gpu, set()).add(pid)

        @cache
        def shown(word: str, kernel: str) -> tuple[Kind | None, str, str]:
            if "barrier" in word.lower() or "marker" in word.lower():  # of a queue
                return None, "", ""
            return (kind := kind_of(word)), *named(kind, word, kernel)

        for key, gpu, queue, start, end, description, what in ops:
            call, word = call_of.get(key), self._strings.get(what, "")
            name, more = launches.get(call, _UNKNOWN)
            kind, name, route = shown(word, self._strings.get(description) or name or word)
            if kind is None:
                self._notes.remark("barrier of a queue: not drawn", self._source.name)
                continue
            assembly = self._assemblies[self._process(call, gpu)]
            times = assembly.times(start, end, "kernel" if kind == "kernel" else "copy")
            if times is None:
                continue
            lane = assembly.queue(assembly.numbered_device(gpu), queue, "queue")
            if kind != "kernel":
                more = {"size_bytes": copies.get(call, 0), "route": route}
            assembly.activity(kind, name, lane, times, number=key, correlation=call, **more)

    def _process(self, call: object, gpu: object) -> object:
        """Return the process of an operation: that of its call, else the only process that used its device, else the
        only process."""
        pid = self._process_of_call.get(call)
        if pid is None:
            on = self._processes_on.get(gpu) or self._assemblies
            pid = next(iter(on)) if len(on) == 1 else None
        return pid

    def _launches(self, names: dict[object, str]) -> dict[object, _Launch]:
        launches: dict[object, _Launch] = {}
        columns = (
            *("api_ptr_id", "gridX", "gridY", "gridZ", "workgroupX", "workgroupY", "workgroupZ", "groupSegmentSize"),
            *("privateSegmentSize", "kernelName_id"),
        )
        for key, gx, gy, gz, wx, wy, wz, lds, scratch, name in self._database.select(
            "rocpd_kernelapi", columns, numbers=True
        ):
            group = sizes(wx, wy, wz)
            grid = work_items(names.get(key, ""), sizes(gx, gy, gz), group)
            resources = Resources(lds_bytes=whole(lds), scratch_bytes=whole(scratch))
            more = {"grid": grid, "workgroup": group, "resources": resources}
            launches[key] = self._strings.get(name, ""), more
        return launches


# The schema is spread over many pages; a `rocpd` database has no such tables.
DATABASE = Format(
    "RPD database (rocmProfileData)",
    lambda head: tables(head) != b"" and (b"rocpd_api_ops" in head or b"rocpd_kernelapi" in head),
    _read_database,
)


# -- Chrome JSON that ``rpd2tracing.py`` makes from a database ---------------------------------------------------------
#
#     [ {}
#     ,{"name": "process_name", "ph": "M", "pid":"2","args":{"name":"GPU2"}}
#     ,{"pid":"2","tid":"0","name":"k","ts":"8306020565922","dur":"26211","ph":"X","args":{"desc":"KernelExecution"}}
#     ,{"pid":"70","tid":"71","name":"hipLaunchKernel","ts":"8306020565900","dur":"20","ph":"X","args":{"desc":""}}
#
# Times are whole microseconds: the database has nanoseconds. Sizes, bytes and ids are missing; launches are found by
# the ends of arrows. A range's name is also its description. Not read: counters, and the frames drawn on devices.

_BEGIN = late(rb'\s*(?:\{\s*"traceEvents"\s*:\s*)?\[\s*\{\s*\}\s*,\s*\{\s*"(?:name|pid)"\s*:')
"""An empty object first, then the names of processes; rocprof v1 has arguments first."""
_GPU = late(r"GPU(\d+)")
_US = 1000
_FRAMES = 2
"""The end of an arrow is this many us before that of its call."""
_FRAME = "UserMarker frame"
"""A range drawn over the operations that it launched; a graph as a whole has no description."""
_LAST = '"}}'
_EVENT = late(
    r'\{"pid":"(\d+)","tid":"(\d+)","name":"((?>(?:(?!","ts":").)*))","ts":"(\d+)","dur":"(\d+)","ph":"X","args":\{"desc":"(.*)',
    re.DOTALL,
)


def _read_json(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return a profile for each process. Raises `InputError` if no event can be read."""
    reading = _Json(source, notes)
    reading.read(events(source.read(), _rescued, source.name, notes))
    notes.remark("times of whole microseconds: the .rpd file has nanoseconds", source.name)
    return [*reading.assemblies.finish(options.host_calls)]


def _rescued(text: str) -> Event | None:
    text = text.rstrip()
    match = _EVENT.match(text.removesuffix(_LAST)) if text.endswith(_LAST) else None
    if match is None:
        return None
    pid, tid, name, ts, dur, description = match.groups()
    return Event("X", name, pid, tid, ts, dur, args={"desc": description})


class _Json:
    def __init__(self, source: Source, notes: Notes) -> None:
        self.assemblies = by_pid(source, notes, resolution_ns=_US)
        self._arrows = Arrows(slack_us=1)
        self._process_of: dict[int, int | None] = {}

    def read(self, found: list[Event]) -> None:
        gpus = {
            number(event.pid)
            for event in found
            if event.ph == "M" and event.name == "process_name" and isinstance(event.args, dict)
            and _GPU.fullmatch(str(event.args.get("name")))
        }  # fmt: skip
        rows = [event for event in found if event.ph in ("X", "i")]
        for event in found:
            if event.ph in ("s", "f"):
                self._arrows.arrow(event)
        for key, event in enumerate(rows):
            if number(event.pid) not in gpus:
                self._host(event, key)
        self._arrows.finish()
        for event in rows:
            if event.ph == "X" and number(event.pid) in gpus:
                self._device(event)

    def _host(self, event: Event, key: int) -> None:
        pid, tid = number(event.pid), number(event.tid)
        assembly = self.assemblies[pid]
        times = self._times(assembly, event, "API call or range")
        if times is None:
            return
        name = str(event.name)
        if event.ph == "i" or (name and _description(event) == name):
            assembly.range(Range("mark" if event.ph == "i" else "range", name, assembly.thread(tid), *times))
            return
        assembly.call(name, assembly.thread(tid), times, key)
        self._process_of[key] = pid
        if LAUNCHES.search(name):
            self._arrows.call((pid, tid), times[1] // _US - _FRAMES, key)

    def _device(self, event: Event) -> None:
        word = _description(event)
        if word is None or word.startswith(_FRAME) or "barrier" in word.lower():
            return
        gpu, queue = number(event.pid), number(event.tid)
        begin = number(event.ts)
        call = None if begin is None else self._arrows.call_of((gpu, queue), begin)
        pid: object = self._process_of.get(-1 if call is None else call)
        if call is None and len(self.assemblies) == 1:
            (pid,) = self.assemblies
        assembly = self.assemblies[pid]
        kind = kind_of(word)
        times = self._times(assembly, event, "kernel" if kind == "kernel" else "copy")
        if times is None:
            return
        lane = assembly.queue(assembly.numbered_device(gpu), queue, "queue")
        name, route = named(kind, word, event.name)
        assembly.activity(kind, name, lane, times, correlation=call, route=route)

    def _times(self, assembly: Assembly, event: Event, what: str) -> tuple[int, int] | None:
        start, length = number(event.ts), 0 if event.ph == "i" else number(event.dur)
        if start is None or length is None:
            return assembly.times(None, None, what)
        return assembly.times(start * _US, (start + length) * _US, what)


def _description(event: Event) -> str | None:
    said = event.args.get("desc") if isinstance(event.args, dict) else None
    return said if isinstance(said, str) else None


JSON = Format("RPD trace (Chrome JSON of rpd2tracing.py)", lambda head: _BEGIN.match(head) is not None, _read_json)
