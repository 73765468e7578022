"""rocprof v1's Chrome JSON: ``results.json`` of ``--hip-trace`` and its like (rocm-profiles.md 3).

    { "traceEvents":[{}
    ,{"args":{"name":"GPU2"},"ph":"M","pid":8,"name":"process_name","sort_index":2}
    ,{"ph":"X","name":"k","pid":8,"tid":1,"ts":"1983817119544","dur":"737",
      "args":{
        "BeginNs":"1983817119544578",
        "EndNs":"1983817120281985",
        "dev-id":"2", "queue-id":"0", "Name":"k", "pid":"45919", "tid":"45919", "stream-id":"1", ...

``ts`` is truncated to us, ``args`` have ns. ``pid`` is a section of the picture, the process stands in ``args``.
Launches are found by the ends of arrows: ids stand in ``results.db`` alone, as does the range of a kernel. Texts of
ranges may make the file no JSON. The clock counts ns since an unknown kind of boot time. Not read: ``otherData``
(the machine), barriers, arguments of calls.
"""

from __future__ import annotations

import re

from mio2trace.model.profile import Range
from mio2trace.notes import Notes
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.rocm.assembly import Assemblies
from mio2trace.readers.rocm.events import LAUNCHES, Arrows, Event, events, number
from mio2trace.readers.rocm.rpd import kind_of, named
from mio2trace.source import Source

NAME = "rocprof v1 trace (Chrome JSON)"
_SNIFF = late(rb'\s*\{\s*"traceEvents"\s*:\s*\[\s*\{\s*\}\s*,\s*\{\s*"(?:args|ph)"\s*:')
_RANGES, _COPIES, _HIP, _HSA, _FIRST_GPU, _BARRIERS = 0, 1, 2, 3, 6, 518
"""Sections."""
_HEAD = late(
    r'\{"ph":"X","name":"(.*?)","pid":"?(\d+)"?,"tid":"?(\d+)"?,"ts":"?(\d+)"?,"dur":"?(\d+)"?,\s*"args":\{\s*?\n(.*)',
    re.DOTALL,
)
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

    def read(self, found: list[Event]) -> None:
        rows = [event for event in found if event.ph == "X" and isinstance(event.args, dict)]
        for event in found:
            if event.ph in ("s", "t"):
                self._arrows.arrow(event)
        for key, event in enumerate(rows):
            if number(event.pid) in (_RANGES, _HIP, _HSA):
                self._host(event, key)
        self._arrows.finish()
        for event in rows:
            section = number(event.pid)
            if section == _COPIES or (section is not None and _FIRST_GPU <= section < _BARRIERS):
                self._device(event, section)

    def _host(self, event: Event, key: int) -> None:
        assembly = self.assemblies[number(event.args.get("pid"))]
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
            middle = times[0] // 1000 + (times[1] // 1000 - times[0] // 1000) // 2
            self._arrows.call((_HIP, number(event.tid)), middle, key)

    def _device(self, event: Event, section: int) -> None:
        args, begin = event.args, number(event.ts)
        assembly = self.assemblies[number(event.args.get("pid"))]
        call = None if begin is None else self._arrows.call_of((section, number(event.tid)), begin)
        kind = kind_of(str(event.name)) if section == _COPIES else "kernel"
        times = assembly.times(
            number(args.get("BeginNs")), number(args.get("EndNs")), "kernel" if kind == "kernel" else "copy"
        )
        if times is None:
            return
        gpu, tid = number(args.get("dev-id")), number(args.get("tid"))
        lane = assembly.queue(assembly.numbered_device(gpu), number(args.get("stream-id")))
        name, route = named(kind, event.name, str(args.get("Name") or event.name))
        assembly.activity(
            kind, name, lane, times, correlation=call, route=route, thread=None if tid is None else assembly.thread(tid)
        )


def range_of(text: str, thread: int, times: tuple[int, int], key: int | None = None) -> Range:
    """Return a range, or a mark: marks are 1 ns long (rocm-profiles.md 11.5)."""
    if times[1] - times[0] <= 1:
        return Range("mark", text, thread, times[0], times[0], key)
    return Range("range", text, thread, *times, key)
