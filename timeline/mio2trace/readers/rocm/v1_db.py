"""rocprof v1's database: ``results.db`` of ``--hip-trace``, ``--roctx-trace``, ``--sys-trace`` (rocm-profiles.md 3).

Operations of devices are in ``OPS`` and ``COPY``, calls in ``HIP`` and ``HSA``, ranges in ``rocTX``. An operation's
``Index`` is that of the HIP call which launched it, within a process. ``roctx-range`` is the text of the innermost
range that was open then, or the kernel's own name without a range. Without ``OPS`` the kernels of ``KERN`` are read, if
they have times. The clock counts ns since an unknown kind of boot time. Only ``KERN`` has sizes; arguments of calls and
barriers are not read.

Up to ROCm 5 ``pid`` is a section of the picture, ``tid`` of an operation the row in it, and ``proc-id`` the process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mio2trace.model.profile import Profile, Range
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.rocm.assembly import Assemblies, kernel_name
from mio2trace.readers.rocm.database import Database, opened, tables
from mio2trace.readers.rocm.rpd import kind_of, named
from mio2trace.readers.rocm.v1_csv import DISPATCH, as_dispatched
from mio2trace.readers.rocm.v1_json import Processes, copied_bytes, is_barrier, range_of, unquoted
from mio2trace.source import Source

NAME = "rocprof v1 database"
_SNIFF = re.compile(rb'CREATE TABLE "?(?:OPS|COPY|HIP|HSA|KERN|rocTX)"? ?\(')
_TABLES = ("OPS", "COPY", "HIP", "HSA", "KERN", "rocTX")
_CALLS = "BeginNs", "EndNs", "pid", "tid", "Name", "Index", "args"
_OPS = "BeginNs", "EndNs", "pid", "tid", "Name", "Index", "dev-id", "stream-id", "roctx-range", "proc-id"
_KERNELS = "BeginNs", "EndNs", "pid", "KernelName", "Index", *DISPATCH
_Key = tuple[object, object]
"""(pid, tid)."""


def sniff(head: bytes) -> bool:
    return tables(head) != b"" and _SNIFF.search(head) is not None


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return a profile for each process."""
    with opened(source, _TABLES) as database:
        return [*_Reading(source, database, notes).profiles(options.host_calls)]


class _Reading:
    def __init__(self, source: Source, database: Database, notes: Notes) -> None:
        self._source = source
        self._notes = notes
        self._database = database
        self._names = database.names
        self._assemblies = Assemblies(source, notes, ids_apart=True)
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
        if table not in self._names:
            return iter(())
        there = self._database.columns(table)
        if not {"BeginNs", "EndNs"} <= there:
            return iter(())
        chosen = ", ".join(f'"{column}"' if column in there else "NULL" for column in wanted)
        return self._database.rows(f"SELECT {chosen} FROM {table}")  # noqa: S608 - names of ours

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
                told = as_dispatched(assembly, *(value if type(value) is int else None for value in values))
                shown = kernel_name(unquoted(name) if isinstance(name, str) else name)
                assembly.activity("kernel", shown, times=times, number=index, **told)
        if not self._assemblies.of:
            raise InputError(f"{self._source.name}: neither operations nor calls; expected rocprof's results.db")


def _launch(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what a kernel and the barrier with its name share: section, name, number of the call, process."""
    return row[2], row[4], row[5], row[-1]
