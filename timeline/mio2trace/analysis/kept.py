"""Runs as a dataset stores them, and back: commands get the analysis that the runs were written from."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from mio2trace.align.processes import from_start
from mio2trace.analysis import Analysis, AnalysisOptions, Reference, Run
from mio2trace.files import FilePath
from mio2trace.measures import Measures
from mio2trace.notes import InputError, Notes
from mio2trace.outgoing import visible
from mio2trace.privacy import Cleaner
from mio2trace.runs import Share
from mio2trace.snapshot.database import run_name
from mio2trace.snapshot.files import (
    KeptNote,
    KeptReference,
    KeptRun,
    KeptShare,
    Snapshot,
    kept_alignment,
    read,
    restored_alignment,
)
from mio2trace.snapshot.places import is_dataset, snapshots_of


def snapshot_of(
    runs: Sequence[Run], notes: Notes, cleaner: Cleaner, generator: str, repetitions: Sequence[Run] = ()
) -> Snapshot:
    """Return the stored form of runs, cleaned (docs/privacy.md); ``repetitions`` replaces them if each repetition
    counts."""
    clean = cleaner.text
    return Snapshot(
        generator=generator,
        runs=tuple(_kept(run, clean) for run in runs),
        notes=tuple(
            KeptNote(
                kind=clean(note.kind),
                count=note.count,
                places=tuple(map(cleaner.quoted, note.places)),
                problem=note.problem,
            )
            for note in notes
        ),
        repetitions=tuple(_kept(run, clean) for run in repetitions),
    )


_AS_IT_IS = ("name", "profiles", "logs", "libraries", "tf_profiles", "operations_by_log", "complete")


def _kept(run: Run, clean: Callable[[str], str]) -> KeptRun:
    return KeptRun(
        **{name: getattr(run, name) for name in _AS_IT_IS},
        inputs=tuple(
            msgspec.structs.replace(file, path="", archive="", anchors=None, name=clean(visible(file.name)))
            for file in run.inputs
        ),
        alignments=tuple(map(kept_alignment, run.alignments)),
        framework=None if run.framework is None else kept_alignment(run.framework.alignment),
        shares=tuple(KeptShare(**share._asdict()) for share in run.shares),
        reference=None
        if run.reference is None
        else KeptReference(
            alignments=tuple(kept_alignment(one.alignment) for one in run.reference.measures),
            of=run.reference.of,
            logs=run.reference.logs,
        ),
    )


def _restored(kept: KeptRun, options: AnalysisOptions, name: str = "") -> Run:
    joined = options.join is True or (
        options.join == "logs" and bool(kept.logs or any(kept.operations_by_log) or kept.tf_profiles)
    )
    alignments = tuple(map(restored_alignment, kept.alignments))
    framework = None if kept.framework is None else Measures(restored_alignment(kept.framework))
    return Run(
        **{field: getattr(kept, field) for field in _AS_IT_IS} | ({"name": name} if name else {}),
        inputs=kept.inputs,
        alignments=alignments if joined else (),
        measures=tuple(map(Measures, alignments)) if joined else (),
        framework=framework if joined else None,
        shares=tuple(Share(one.logs, one.libraries, one.operations) for one in kept.shares),
        facts=tuple(alignment.facts for alignment in alignments),
        reference=None
        if kept.reference is None
        else Reference(
            measures=tuple(Measures(restored_alignment(one)) for one in kept.reference.alignments),
            of=kept.reference.of,
            logs=kept.reference.logs,
        ),
    )


def _from_start(run: Run) -> Run:
    """Return the run with clocks as if all processes had begun at the same time."""
    clocks = from_start([one.profile for one in run.alignments])
    alignments = tuple(
        msgspec.structs.replace(one, process_clock=clock) for one, clock in zip(run.alignments, clocks, strict=True)
    )
    return msgspec.structs.replace(run, alignments=alignments, measures=tuple(map(Measures, alignments)))


def of_datasets(files: Sequence[FilePath], options: AnalysisOptions, notes: Notes) -> Analysis:
    """Return the runs of datasets, as they were joined. Raises `InputError` for options that need the original
    files."""
    first = os.fspath(next(file for file in files if is_dataset(file)))
    other = next((os.fspath(file) for file in files if not is_dataset(file)), None)
    if other is not None:
        raise InputError(f"{other}: is beside the dataset {first}, whose runs are joined; expected datasets alone")
    asked = {
        options.accepted.expected: options.accepted.readers is not None,
        "the log, for every message": options.every_message,
        "the files of the run, for what is private": bool(options.keep),
        "the files of the run, to leave out evidence": bool(options.without),
    }
    for expected, wanted in asked.items():
        if wanted:
            raise InputError(f"{first}: is a dataset; expected {expected}")
    said = {
        "only the API calls of the dataset are shown (use --host-calls all when you write it)": options.host_calls,
        "only the evidence of a link is shown (--explain on the run's files shows the reasons)": options.keep_reasons,
    }
    for what, wanted in said.items():
        if wanted:
            notes.remark(f"dataset: {what}")
    kept: list[list[Run]] = []
    for file in files:
        snapshots, failed = snapshots_of(file)
        if failed:
            notes.add("run of the dataset that failed: `mio2trace query DATASET failures` shows why", count=failed)
        for path in snapshots:
            snapshot = read(path)
            chosen = _chosen(snapshot, options.repetition, os.fspath(file))
            name = run_name(path.name) if chosen is snapshot.runs and len(chosen) == 1 else ""
            restored = [_restored(run, options, name) for run in chosen]
            to_zero = options.from_start
            kept.append([_from_start(run) if to_zero and run.is_job and run.alignments else run for run in restored])
            for note in snapshot.notes:
                notes.restore(note.kind, note.count, note.places, note.problem)
    runs = [run for own in (kept if len(kept) < 2 else map(_by_themselves, kept)) for run in own]
    inputs = sorted(
        (file for run in runs for file in run.inputs), key=lambda file: (file.format, file.sha256, file.repetition or 0)
    )
    return Analysis(inputs=tuple(inputs), runs=tuple(runs), notes=notes, cleaner=Cleaner())


def _by_themselves(runs: Sequence[Run]) -> list[Run]:
    """Return the runs of several places of a dataset that can be analysed alone, also profiles without a log; at least
    one."""
    if any(run.complete for run in runs):
        return list(runs)
    return [msgspec.structs.replace(run, complete=not place) for place, run in enumerate(runs)]


def _chosen(snapshot: Snapshot, repetition: int | Literal["every"] | None, name: str) -> tuple[KeptRun, ...]:
    """Return the runs, or the requested repetitions."""
    if repetition is None or not snapshot.repetitions:
        return snapshot.runs
    if repetition == "every":
        return snapshot.repetitions
    found = tuple(run for run in snapshot.repetitions if run.inputs[0].repetition == repetition)
    if not found:
        raise InputError(f"{name}: no repetition {repetition} that is kept")
    return found
