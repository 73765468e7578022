"""Where a side comes from: files of a run, a folder of runs, CK's records with repetitions, a base, a trace of ours."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from mio2trace.analysis import AnalysisOptions, Run, analyse
from mio2trace.comparing import base
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
"""Folders in one another that are looked through for runs."""


class Source(NamedTuple):
    """A side with the runs that its records were made of; a base and a written trace have none."""

    side: Side
    runs: tuple[Run, ...] = ()


def side(files: Sequence[str], options: AnalysisOptions, notes: Notes) -> Side:
    """The runs of one side, from its files or its folder.

    Raises `InputError` where there is none, or none with a time to compare.
    """
    return source(files, options, notes, keep=False).side


def source(
    files: Sequence[str], options: AnalysisOptions, notes: Notes, *, keep: bool, damaged: bool = False
) -> Source:
    """The same, with ``keep`` beside the analysed runs, which take much more memory. ``damaged``: of a trace that was
    changed or cut, too.

    Raises as `side`.
    """
    cleaner = Cleaner(options.keep)
    name = cleaner.text(",".join(os.path.basename(os.path.normpath(file)) for file in files))
    if len(files) == 1 and os.path.isfile(files[0]) and base.is_base(Path(files[0])):
        kept = base.read(Path(files[0]))
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
            for measures in run.measures:  # they and what is steady of them know each other: nothing else frees them
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
