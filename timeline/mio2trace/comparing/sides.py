"""Where a side comes from: files of a run, a folder of runs, CK's records with their repetitions, a saved base."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from mio2trace.analysis import AnalysisOptions, analyse
from mio2trace.comparing import base
from mio2trace.comparing.collect import collect
from mio2trace.comparing.comparison import Side
from mio2trace.comparing.record import RunRecord
from mio2trace.notes import InputError, Notes

OPTIONS = AnalysisOptions(repetition="every")
_DEEPEST = 6
"""Folders in one another that are looked through for runs."""


def side(files: Sequence[str], options: AnalysisOptions, notes: Notes) -> Side:
    """The runs of one side, from its files or its folder.

    Raises `InputError` where there is none, or none with a time to compare.
    """
    name = ",".join(os.path.basename(os.path.normpath(file)) for file in files)
    if len(files) == 1 and os.path.isfile(files[0]) and base.is_base(Path(files[0])):
        return base.read(Path(files[0]))
    runs = list(_runs(files, options, notes, _DEEPEST))
    if not runs:
        raise InputError(f"{name}: nothing to compare; expected kernels of a GPU profile, or printed layer times")
    return Side(name=name, runs=tuple(runs))


def _runs(files: Sequence[str], options: AnalysisOptions, notes: Notes, deepest: int) -> Iterator[RunRecord]:
    inside = _folders(files[0]) if len(files) == 1 and os.path.isdir(files[0]) else []
    try:
        analysis = analyse(files, options, notes)
    except InputError:
        if not inside or not deepest:
            raise
    else:
        records = [collect(run, notes) for run in analysis.complete or analysis.runs]
        found = [record for record in records if record is not None]
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
        return sorted(entry.path for entry in entries if entry.is_dir() and not entry.name.startswith("."))
