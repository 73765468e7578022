"""rocprof v1's Chrome JSON: ``results.json`` of ``--hip-trace`` and its like (rocm-profiles.md 3).

    { "traceEvents":[{}
    ,{"args":{"name":"GPU2"},"ph":"M","pid":8,"name":"process_name","sort_index":2}
    ,{"ph":"X","name":"k","pid":8,"tid":1,"ts":"1983817119544","dur":"737",
      "args":{
        "BeginNs":"1983817119544578",
        "EndNs":"1983817120281985",
        "dev-id":"2", "queue-id":"0", "Name":"k", "pid":"45919", "tid":"45919", "stream-id":"1", ...

``ts`` is truncated to us, ``args`` have ns. ``pid`` is a section of the picture, the process stands in ``args``: up to
ROCm 5 as ``proc-id`` of the operations alone, and their ``tid`` is a row of the section.
Launches are found by the ends of arrows, which begin at the middle of a call, in old files at its end: ids stand in
``results.db`` alone, as does the range of a kernel. Texts of ranges may make the file no JSON. The clock counts ns
since an unknown kind of boot time. Not read: ``otherData`` (the machine), barriers, arguments of calls but a copy's
size. A barrier of ROCm 4 may have its kernel's name: it takes no time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

from mio2trace.model.profile import Range
from mio2trace.notes import Notes
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.rocm.assembly import Assemblies
from mio2trace.readers.rocm.events import LAUNCHES, Arrows, Event, events, number
from mio2trace.readers.rocm.rpd import kind_of, named
from mio2trace.readers.rocm.v1_csv import DISPATCH, as_dispatched
from mio2trace.source import Source

NAME = "rocprof v1 trace (Chrome JSON)"
_SNIFF = late(rb'\s*\{\s*"traceEvents"\s*:\s*\[\s*\{\s*\}\s*,\s*\{\s*"(?:args|ph)"\s*:')
_RANGES, _COPIES, _HIP, _HSA, _FIRST_GPU, _BARRIERS = 0, 1, 2, 3, 6, 518
"""Sections."""
_HEAD = late(
    r'\{"ph":"X","name":"(.*?)","pid":"?(\d+)"?,"tid":"?(\d+)"?,"ts":"?(\d+)"?,"dur":"?(\d+)"?,\s*"args":\{\s*?\n(.*)',
    re.DOTALL,
)
_SIZE = late(r"\bsizeBytes\((\d{1,18})\)")
_ARGUMENT = late(r'\s*"([\w-]+)":"(.*)",?\s*')


def sniff(head: bytes) -> bool:
    """An empty object first, then a section that begins with its arguments."""
    return _SNIFF.match(head) is not None


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return a profile for each process. Raises `InputError` if no event can be read."""
    reading = _Reading(source, notes)
    reading.read(events(source.read(), _rescued, source.name, notes))
    return [*reading.assemblies.finish(options.host_calls)]


def _rescued(text: str) -> Event | None:
    match = _HEAD.fullmatch(text)
    if match is None:
        return None
    name, pid, tid, ts, dur, rest = match.groups()
    arguments = (_ARGUMENT.fullmatch(line) for line in rest.split("\n"))
    return Event("X", name, pid, tid, ts, dur, args={one[1]: one[2] for one in arguments if one is not None})


class _Reading:
    def __init__(self, source: Source, notes: Notes) -> None:
        self.assemblies = Assemblies(source, notes)
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
        self._kernels = _kernels_of_barriers(operations)
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
"""Where an arrow begins."""


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
