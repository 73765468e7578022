"""A side in a file: what comparisons need of its runs, in JSON of at most 50 KB. It holds nothing private."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mio2trace.comparing.comparison import Side
from mio2trace.comparing.record import RunRecord
from mio2trace.notes import InputError

VERSION = 1
LARGEST = 50_000
"""Bytes; of larger ones ranks are left out, then the smallest parts are one number, ``others_ns``."""
_MARK = b'{"mio2trace_base":'


class _Base(msgspec.Struct, frozen=True, kw_only=True):
    mio2trace_base: int
    generator: str
    runs: tuple[RunRecord, ...]


def is_base(path: Path) -> bool:
    """Whether a file is one of these, by how it begins. Raises OSError where it cannot be read."""
    with path.open("rb") as file:
        return file.read(len(_MARK)) == _MARK


def text(side: Side, generator: str) -> bytes:
    """The file's bytes: the same for the same side."""
    runs = side.runs
    data = _encoded(runs, generator)
    if len(data) > LARGEST:
        runs = tuple(msgspec.structs.replace(run, ranks=()) for run in runs)
        data = _encoded(runs, generator)
    whole = runs
    keep = max(len(run.parts) for run in runs)
    while len(data) > LARGEST and keep > 1:
        keep = keep * 3 // 4
        runs = tuple(_without_smallest(run, keep) for run in whole)
        data = _encoded(runs, generator)
    return data


def _encoded(runs: tuple[RunRecord, ...], generator: str) -> bytes:
    base = _Base(mio2trace_base=VERSION, generator=generator, runs=runs)
    return msgspec.json.encode(base) + b"\n"


def _without_smallest(run: RunRecord, keep: int) -> RunRecord:
    kept = sorted(run.parts, key=lambda part: -part.mean_ns)[:keep]
    names = {(part.kind, part.name) for part in kept}
    parts = tuple(part for part in run.parts if (part.kind, part.name) in names)
    # Layers hold the same time as problems and kernels once more.
    left = sum(part.mean_ns for part in run.parts if part.kind != "layer" and (part.kind, part.name) not in names)
    return msgspec.structs.replace(run, parts=parts, others_ns=left)


def read(path: Path) -> Side:
    """The side that a file holds. Raises `InputError` where it is damaged, or of a version to come."""
    try:
        base = msgspec.json.decode(path.read_bytes(), type=_Base)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path.name}: no base of mio2trace: {error}") from None
    if base.mio2trace_base != VERSION:
        raise InputError(f"{path.name}: base of version {base.mio2trace_base}; expected {VERSION}")
    if not base.runs or any(not run.samples_ns or not all(part.samples_ns for part in run.parts) for run in base.runs):
        raise InputError(f"{path.name}: a base without runs, or a run without times")
    return Side(name=path.name.removesuffix(".json"), runs=base.runs)
