"""Files for tests: read as the program reads them; those of ROCm's profilers unpacked for a second reading, too."""

from __future__ import annotations

import contextlib
import gzip
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mio2trace.model.profile import Activity, Profile
from mio2trace.notes import Notes
from mio2trace.readers import detect
from mio2trace.readers.base import Reader, ReadOptions
from mio2trace.source import Source
from tests.conftest import shared_folder


def samples() -> Path:
    return shared_folder() / "samples"


def records_of(path: Path, reader: Reader | None = None, notes: Notes | None = None, **options: Any) -> list[Any]:
    """What is in a file that ``reader`` alone recognises."""
    notes = Notes() if notes is None else notes
    with contextlib.closing(Source(str(path), 0, notes)) as source:
        found = detect(source)
        assert reader is None or found.NAME == reader.NAME
        return [*found.read(source, ReadOptions(**options), notes)]


def read(
    path: Path, reader: Reader | None = None, notes: Notes | None = None, *, every_call: bool = False
) -> list[Profile]:
    """The profiles of a file that ``reader`` alone recognises."""
    records = records_of(path, reader, notes, host_calls=every_call)
    profiles = [record for record in records if isinstance(record, Profile)]
    assert len(profiles) == len(records)
    return profiles


def read_made(
    folder: Path, data: bytes | str, reader: Reader | None = None, *, every_call: bool = False
) -> tuple[list[Profile], dict[str, int]]:
    """The profiles of a file ``made`` that holds ``data``, and how often each kind of note was made."""
    path, notes = folder / "made", Notes()
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read(path, reader, notes, every_call=every_call), {note.kind: note.count for note in notes}


def plain(path: Path, folder: Path) -> Path:
    """The file itself, or its content unpacked into ``folder``."""
    if path.suffix != ".gz":
        return path
    unpacked = folder / path.stem
    unpacked.write_bytes(gzip.decompress(path.read_bytes()))
    return unpacked


@contextlib.contextmanager
def sql(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        yield connection


def activities(profiles: list[Profile], kind: str = "kernel") -> list[Activity]:
    return [activity for profile in profiles for activity in profile.activities if activity.kind == kind]


def spans(profiles: list[Profile], kind: str = "kernel") -> Counter[tuple[int | None, int | None]]:
    return Counter((activity.start_ns, activity.end_ns) for activity in activities(profiles, kind))


def truth(twin: str) -> list[dict[str, Any]]:
    """The kernels of a twin."""
    kernels: list[dict[str, Any]] = json.loads((samples() / "rocm-twins" / twin / "truth.json").read_bytes())["kernels"]
    return kernels
