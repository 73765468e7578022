"""The Chrome JSON of TensorFlow 1's ``timeline.Timeline``: one step with times (tfprof.md 8).

    {"traceEvents": [
      {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "/job:localhost/.../device:CPU:0 Compute"}},
      {"ph": "X", "cat": "Op", "name": "Relu", "pid": 1, "tid": 0, "ts": 1795171473772168, "dur": 10,
       "args": {"name": "v/tower_0/cg/Relu", "op": "Relu", "input0": "..."}}, ...]}

Read: the ops. ``tid`` is a lane that the writer chose; it is not used. ``dur`` includes the op's clean-up and may be 0,
so it differs from tfprof's time by design. Not read: tensors, arrows, the memory of allocators over time; the memory of
an op is not recorded. tfprof's own ``-output timeline`` is refused: most of its views have no real times.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mio2trace.model.tf import Execution
from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Records, of_json, utf8
from mio2trace.readers.tf.step_stats import NOT_NODES, Collector, kind_of, possible
from mio2trace.source import Source

NAME = "TensorFlow timeline (Chrome JSON)"

_SNIFF = late(rb'\s*\{\s*"traceEvents"\s*:\s*\[')
_PROCESS = late(
    rb'"name"\s*:\s*"(?:Allocators|(?>[^"]*?/device:)[^"]* (?:Compute|Tensors)'
    rb'|Op (?:execution|scheduling) threads: [^"]*)"'
)
_OWN = late(r"Op (?:execution|scheduling) threads: |mem usage on:")
_UNKNOWN = ("", "unknown")
_TRIES = 4
"""Closing braces to try as an event's end: the last one may belong to its arguments."""


class _Event(msgspec.Struct, gc=False):
    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    ts: Any = None
    dur: Any = None
    args: Any = None


class _File(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents", default_factory=list)


_DECODER = msgspec.json.Decoder(_File)


def sniff(head: bytes) -> bool:
    """Return whether it is a list of events with a process name in TensorFlow's form."""
    return _SNIFF.match(head) is not None and _PROCESS.search(head) is not None


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return the step. Raises `InputError` if none of its ops can be read."""
    place = source.name
    events = _events(utf8(source.read(), place, notes), place, notes)
    devices: dict[object, str] = {}
    for event in events:
        if event.ph == "M" and event.name == "process_name" and isinstance(event.args, dict):
            name = event.args.get("name")
            if isinstance(name, str) and isinstance(event.pid, (int, str)):
                if _OWN.match(name):
                    raise InputError(f"{place}: the timeline that tfprof itself writes; expected timeline.Timeline's")
                if name.endswith(" Compute"):
                    devices[event.pid] = name.removesuffix(" Compute").lower()
    collector = Collector(place, notes)
    for event in events:
        if event.ph != "X" or event.cat != "Op":
            continue
        device = devices.get(event.pid) if isinstance(event.pid, (int, str)) else None
        args = event.args if isinstance(event.args, dict) else {}
        name = args.get("name")
        kind = kind_of(device or "")
        if not isinstance(name, str) or not kind or device is None:
            notes.add("event of an op that names no node or no device: skipped", place)
            continue
        if not isinstance(event.ts, int) or not isinstance(event.dur, int) or not possible(event.ts, event.dur):
            notes.add("execution without a possible time: skipped", f"{place}: {name}")
            continue
        if name.split(":", 1)[0] in NOT_NODES:
            continue
        op = event.name if isinstance(event.name, str) and event.name not in _UNKNOWN else ""
        kernel = args.get("kernel")
        label = kernel if isinstance(kernel, str) else ""
        execution = Execution(device, kind, event.ts * 1000, event.dur * 1000, label)  # type: ignore[arg-type]
        collector.add(name, op, execution)
    return [collector.finish(source.index, memory_known=False)]


def _events(data: bytes, place: str, notes: Notes) -> list[_Event]:
    try:
        return _DECODER.decode(data).events
    except RecursionError:
        raise InputError(f"{place}: JSON that is nested too deeply; expected TensorFlow's timeline") from None
    except msgspec.DecodeError as error:
        # A cut file: its complete events are a valid list.
        last = len(data)
        for _ in range(_TRIES):
            last = data.rfind(b"}", 0, max(last, 0))
            try:
                events = _DECODER.decode(data[: last + 1] + b"]}").events
            except (msgspec.DecodeError, RecursionError):
                continue
            notes.cut_off(place, str(error))
            return events
        raise InputError(f"{place}: {of_json(error)}; expected the JSON of TensorFlow's timeline") from None
