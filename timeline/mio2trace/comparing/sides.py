"""Sources of a side: files of a run, a folder of runs, a CK record with repetitions, a base, or a written trace."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from mio2trace.analysis import AnalysisOptions, Run, analyse
from mio2trace.comparing.collect import collect
from mio2trace.comparing.comparison import Side
from mio2trace.comparing.record import RunRecord
from mio2trace.comparing.written import of_trace
from mio2trace.notes import InputError, Notes
from mio2trace.privacy import Cleaner
from mio2trace.snapshot.places import is_dataset
from mio2trace.writers.read_back import is_ours

OPTIONS = AnalysisOptions(repetition="every", near=False)
_DEEPEST = 6
"""The depth of folders that are searched for runs."""


class Source(NamedTuple):
    """A side with the runs behind its records. A base and a written trace have no runs."""

    side: Side
    runs: tuple[Run, ...] = ()


def side(files: Sequence[str], options: AnalysisOptions, notes: Notes) -> Side:
    """Return the runs of one side, from its files or its folder.

    Raises `InputError` if there is no run, or no time to compare.
    """
    return source(files, options, notes, keep=False).side


def source(
    files: Sequence[str], options: AnalysisOptions, notes: Notes, *, keep: bool, damaged: bool = False
) -> Source:
    """Return the side; with ``keep`` also the analysed runs, which need much more memory. ``damaged``: also read a
    trace that was changed or cut.

    Raises as `side`.
    """
    cleaner = Cleaner(options.keep)
    name = cleaner.text(",".join(os.path.basename(os.path.normpath(file)) for file in files))
    if len(files) == 1 and os.path.isfile(files[0]) and is_base(Path(files[0])):
        kept = read_base(Path(files[0]))
        return Source(msgspec.structs.replace(kept, name=cleaner.text(kept.name)))
    if len(files) == 1 and os.path.isfile(files[0]) and is_ours(Path(files[0])):
        return Source(Side(name=name, runs=(of_trace(Path(files[0]), notes, damaged=damaged),)))
    records: list[RunRecord] = []
    runs: list[Run] = []
    for record, run in _runs(files, options, notes, _DEEPEST):
        records.append(record)
        if keep:
            runs.append(run)
        else:
            # The objects of a run refer to each other in cycles; nothing else frees them.
            for measures in run.measures:
                vars(measures).pop("steady", None)
    if not records:
        raise InputError(f"{name}: nothing to compare; expected kernels of a GPU profile, or printed layer times")
    return Source(Side(name=name, runs=tuple(records)), tuple(runs))


def _runs(
    files: Sequence[str], options: AnalysisOptions, notes: Notes, deepest: int
) -> Iterator[tuple[RunRecord, Run]]:
    is_folder = len(files) == 1 and os.path.isdir(files[0]) and not is_dataset(files[0])
    inside = _folders(files[0]) if is_folder else []
    try:
        analysis = analyse(files, options, notes)
    except InputError:
        if not inside or not deepest:
            raise
    else:
        chosen = analysis.complete or analysis.runs
        for run in analysis.runs:
            if run.profiles and run not in chosen:
                notes.add(f"{run.name}: left out, a profile without the log of its run beside others that have theirs")
        made = [(collect(run, notes), run) for run in chosen]
        found = [(record, run) for record, run in made if record is not None]
        yield from found
        if found:
            return
    for folder in inside:
        try:
            yield from _runs([folder], options, notes, deepest - 1)
        except InputError as error:
            notes.add("folder left out: it holds no run", str(error), problem=False)


def _folders(path: str) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(entry.path for entry in entries if os.path.isdir(entry.path) and not entry.name.startswith("."))


# -- A side in a file: the values that comparisons need, in JSON of at most 50 KB, cleaned (docs/privacy.md) -----------

VERSION = 1
LARGEST = 50_000
"""Bytes. If the file is larger, ranks are left out; then the smallest parts are summed to one number, ``others_ns``."""
_MARK = b'{"mio2trace_base":'


class _Base(msgspec.Struct, frozen=True, kw_only=True):
    mio2trace_base: int
    generator: str
    runs: tuple[RunRecord, ...]


def is_base(path: Path) -> bool:
    """Return whether a file is such a base, by its beginning. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return file.read(len(_MARK)) == _MARK


def base_text(side: Side, generator: str) -> bytes:
    """Return the bytes of the file; equal sides give equal bytes."""
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
    return msgspec.json.encode(_Base(mio2trace_base=VERSION, generator=generator, runs=runs)) + b"\n"


def _without_smallest(run: RunRecord, keep: int) -> RunRecord:
    kept = sorted(run.parts, key=lambda part: -part.mean_ns)[:keep]
    names = {(part.kind, part.name) for part in kept}
    parts = tuple(part for part in run.parts if (part.kind, part.name) in names)
    # Layers contain the same kernel time as problems and kernels.
    left = sum(part.mean_ns for part in run.parts if part.kind != "layer" and (part.kind, part.name) not in names)
    return msgspec.structs.replace(run, parts=parts, others_ns=left)


def read_base(path: Path) -> Side:
    """Read a side from a file. Raises `InputError` if the file is damaged, or of a newer version."""
    try:
        base = msgspec.json.decode(path.read_bytes(), type=_Base)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path.name}: no base of mio2trace: {error}") from None
    if base.mio2trace_base != VERSION:
        raise InputError(f"{path.name}: base of version {base.mio2trace_base}; expected {VERSION}")
    if not base.runs or any(not run.samples_ns or not all(part.samples_ns for part in run.parts) for run in base.runs):
        raise InputError(f"{path.name}: a base without runs, or a run without times")
    return Side(name=path.name.removesuffix(".json"), runs=base.runs)
