"""What stands at the head of a native trace: its clocks, its metadata, its tracks (perfetto-chrome-trace.md 3)."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from mio2trace.trace import Process, Trace, Track
from mio2trace.writers.native import packets as tp
from mio2trace.writers.native import protobuf as pb
from mio2trace.writers.text import cleaned

BESIDE = " · "
"""Between the names of a process and of a track of it that is shown at the top level."""


def headings(trace: Trace) -> Iterator[bytes]:
    """The clocks, the metadata, the tracks. Sequence 1 is nobody's, 2 the first track's."""
    clocks = [
        pb.integer(1, tp.BOOTTIME) + pb.integer(2, 0),
        pb.integer(1, tp.COUNTED) + pb.integer(2, 0) + pb.integer(3, 1),
    ]
    origin = _origin_ns(trace.metadata)
    if origin is not None:
        clocks.append(pb.integer(1, tp.REALTIME) + pb.integer(2, origin))
    snapshot = b"".join(pb.message(1, clock) for clock in clocks) + pb.integer(2, tp.BOOTTIME)
    yield tp.packet(pb.message(tp.CLOCK_SNAPSHOT, snapshot), pb.integer(tp.SEQUENCE, tp.NOBODYS + 1))
    yield tp.marked(tp.BEGIN_MARK)
    attributes = b"".join(pb.message(1, one) for one in _attributes(trace.metadata))
    if attributes:
        yield tp.stateless(pb.message(tp.ATTRIBUTES, attributes))
    in_view = trace.in_view()
    if in_view is not None:
        # A viewer opens with the time in which the trace was recorded, as far as it is told.
        for event, at in zip((tp.TRACING_STARTED, tp.TRACING_DISABLED), in_view, strict=True):
            yield tp.stateless(pb.message(tp.SERVICE_EVENT, pb.integer(event, 1)), pb.integer(tp.TIMESTAMP, at))
    uuids = tp.uuids(trace)
    main = {track.process: track for track in trace.tracks if track.main}
    for process in sorted(trace.processes, key=lambda one: (one.sort, one.id)):
        group = _group(process, main.get(process.id), uuids[process.id, None])
        yield tp.stateless(pb.message(tp.TRACK_DESCRIPTOR, group))
    names = {process.id: process.name for process in trace.processes}
    for track in trace.tracks:
        if track.apart and not track.main:
            own = Process(id=track.process, name=names[track.process], sort=track.sort)
            body = _group(own, track, uuids[track.process, track.id])
            yield tp.stateless(pb.message(tp.TRACK_DESCRIPTOR, body))
        elif not track.main:
            parent = uuids.get((track.process, None), 0)
            yield tp.stateless(pb.message(tp.TRACK_DESCRIPTOR, _row(track, uuids[track.process, track.id], parent)))


def _group(process: Process, main: Track | None, uuid: int) -> bytes:
    """A process; with the slices of its main track it has the names of both."""
    name, help_ = process.name, process.description
    if main is not None:
        # Viewers cut names in the middle: what differs comes first, the device's model last.
        head, bracket, rest = name.partition(" (")
        name, help_ = f"{head}{BESIDE}{main.name}{bracket}{rest}", f"{help_} {main.description}".strip()
    fields = [pb.integer(1, uuid), pb.text(2, cleaned(name)), pb.integer(11, tp.EXPLICIT_ORDER)]
    return b"".join([*fields, *placed(process.sort, help_)])


def _row(track: Track, uuid: int, parent: int) -> bytes:
    fields = [pb.integer(1, uuid), pb.text(2, cleaned(track.name)), pb.integer(5, parent)]
    return b"".join([*fields, *placed(track.sort, track.description)])


def placed(rank: int, description: str) -> Iterator[bytes]:
    yield pb.integer(12, max(-(1 << 31), min(rank, (1 << 31) - 1)))
    if description:
        yield pb.text(14, cleaned(description))
    yield pb.integer(15, tp.NEVER_MERGED)


def _attributes(metadata: Mapping[str, Any], path: str = "") -> Iterator[bytes]:
    """The metadata flattened: ``clock.device.offset_ns``, ``inputs[0].size``; texts and integers are what there is."""
    for key, value in metadata.items():
        yield from _attribute(f"{path}{cleaned(key)}", value)


def _attribute(path: str, value: Any) -> Iterator[bytes]:
    if isinstance(value, Mapping):
        yield from _attributes(value, f"{path}.")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _attribute(f"{path}[{number}]", item)
    elif value is not None:
        clean = cleaned(value)
        whole = isinstance(clean, int) and not isinstance(clean, bool)
        yield pb.text(1, path) + (pb.integer(2, clean) if whole else pb.text(3, _said(clean)))


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _origin_ns(metadata: Mapping[str, Any]) -> int | None:
    """The trace's zero in UTC since 1970, where the metadata tells it."""
    clock = metadata.get("clock")
    utc = clock.get("origin_utc") if isinstance(clock, Mapping) else None
    try:
        seconds, _, fraction = str(utc).removesuffix("Z").partition(".")
        moment = datetime.datetime.fromisoformat(seconds).replace(tzinfo=datetime.UTC)
        origin = int(moment.timestamp()) * 1_000_000_000 + int(fraction.ljust(9, "0")[:9])
    except ValueError:
        return None
    return origin if origin > 0 else None
