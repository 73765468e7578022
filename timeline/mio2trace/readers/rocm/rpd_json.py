"""The Chrome JSON that RPD's ``rpd2tracing.py`` makes from a database (rocm-profiles.md 7).

    [ {}
    ,{"name": "process_name", "ph": "M", "pid":"2","args":{"name":"GPU2"}}
    ,{"pid":"2","tid":"0","name":"k","ts":"8306020565922","dur":"26211","ph":"X","args":{"desc":"KernelExecution"}}
    ,{"pid":"70","tid":"71","name":"hipLaunchKernel","ts":"8306020565900","dur":"20","ph":"X","args":{"desc":""}}

Times are whole microseconds: the database has nanoseconds. Sizes, bytes and ids are missing; launches are found by the
ends of arrows. A range's name is also its description. Not read: counters, and the frames drawn on devices.
"""

from __future__ import annotations

import re

from mio2trace.model.profile import Range
from mio2trace.notes import Notes
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.rocm.assembly import Assemblies, Assembly
from mio2trace.readers.rocm.events import LAUNCHES, Arrows, Event, events, number
from mio2trace.readers.rocm.rpd import kind_of, named
from mio2trace.source import Source

NAME = "RPD trace (Chrome JSON of rpd2tracing.py)"
_SNIFF = late(rb'\s*(?:\{\s*"traceEvents"\s*:\s*)?\[\s*\{\s*\}\s*,\s*\{\s*"(?:name|pid)"\s*:')
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


def sniff(head: bytes) -> bool:
    """An empty object first, then the names of processes; `v1_json` has arguments first."""
    return _SNIFF.match(head) is not None


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return a profile for each process. Raises `InputError` if no event can be read."""
    reading = _Reading(source, notes)
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


class _Reading:
    def __init__(self, source: Source, notes: Notes) -> None:
        self.assemblies = Assemblies(source, notes, resolution_ns=_US)
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
        if call is None and len(self.assemblies.of) == 1:
            (pid,) = self.assemblies.of
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
