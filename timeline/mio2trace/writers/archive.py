"""A trace as an archive: each process of a job is a native trace; Perfetto opens all of them together, or each alone.

https://perfetto.dev/docs/reference/perfetto-manifest: a TAR of traces, with ``perfetto_manifest.json`` first. All
traces have the same axis of time, and their processes and tracks have distinct numbers, so nothing has to be related. A
viewer that does not know manifests shows the same. Traces are written one after the other.
"""

from __future__ import annotations

import json
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from io import BytesIO
from typing import BinaryIO

import msgspec

from mio2trace.trace import CounterValue, Event, Flow, Group, Part, Slice, Slices, Trace, each
from mio2trace.writers import native
from mio2trace.writers.ending import Packed

SUFFIX = ".tar"
MANIFEST = "perfetto_manifest.json"
_IN_MEMORY = 1 << 24
_NO_NAME = re.compile(r"[^\w.]+", re.ASCII)
"""Characters that are not allowed in a file's name."""


def write(trace: Trace, file: BinaryIO) -> list[str]:
    """Write a ``trace`` with ``groups``; return the names of the traces in it."""
    stems = [_NO_NAME.sub("-", group.name) for group in trace.groups]
    several = len(set(stems)) < len(stems)
    names = [f"{stem}{f'-{number}' if several else ''}.pftrace.gz" for number, stem in enumerate(stems)]
    manifest = {"perfetto_manifest": {"version": 1, "files": [{"path": name} for name in names]}}
    group_of = {process: group for group in trace.groups for process in group.processes}
    places: Mapping[int, Group] = {
        track.id: group_of[track.process] for track in trace.tracks if track.process in group_of
    }
    owners = [_owner(part, places) for part in trace.parts]
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        data = json.dumps(manifest, indent=1).encode() + b"\n"
        archive.addfile(_member(MANIFEST, len(data)), BytesIO(data))
        for name, group in zip(names, trace.groups, strict=True):
            with tempfile.SpooledTemporaryFile(_IN_MEMORY) as one:
                with Packed(one, native.GZIP_STRATEGY) as packed:  # type: ignore[arg-type]
                    native.write(_of(trace, group, owners, places), packed, to_pack=True)  # type: ignore[arg-type]
                size = one.tell()
                one.seek(0)
                archive.addfile(_member(name, size), one)
    return names


def _member(name: str, size: int) -> tarfile.TarInfo:
    """Leave out time and owner: equal inputs give equal bytes."""
    member = tarfile.TarInfo(name)
    member.size = size
    return member


def _owner(part: Part, places: Mapping[int, Group]) -> Group | None:
    """Return the owner of a part: a part has tracks of only one process of the job."""
    first = next((event for event in part() if not isinstance(event, CounterValue)), None)
    return (
        None if first is None else places.get(first.track if isinstance(first, (Slice, Slices)) else first.from_track)
    )


def _of(trace: Trace, group: Group, owners: list[Group | None], places: Mapping[int, Group]) -> Trace:
    """Return the part of a trace that belongs to a group."""
    at = [number for number, owner in enumerate(owners) if owner is group]
    counters = {new: trace.counters[old] for new, old in enumerate(at) if old in trace.counters}
    arrows = trace.arrows and tuple(partial(_arrows, part, group, places) for part in trace.arrows)
    return msgspec.structs.replace(
        trace,
        processes=tuple(process for process in trace.processes if process.id in group.processes),
        tracks=tuple(track for track in trace.tracks if track.process in group.processes),
        parts=tuple(trace.parts[number] for number in at),
        without_arrows=trace.without_arrows and tuple(trace.without_arrows[number] for number in at),
        counters=counters,
        arrows=arrows,
        groups=(),
    )


def _arrows(part: Part, group: Group, places: Mapping[int, Group]) -> Iterator[Event]:
    for arrow in each(part()):
        if isinstance(arrow, Flow) and places.get(arrow.from_track) is group is places.get(arrow.to_track):
            yield arrow
