"""Files are read, sorted into runs, and each run is joined, once; every command and `convert` begin with this.

analysis = mio2trace.analyse(["run.log", "prof.json"])
analysis.run.alignments[0].links.layer_by
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from mio2trace.align import Alignment, align
from mio2trace.align.processes import from_start, relate_processes
from mio2trace.evidence import EVIDENCE
from mio2trace.files import STANDARD_INPUT, FileOptions, FilePath, Input, Progress, read_inputs, short_names
from mio2trace.jobs import Share, in_order, labelled, shares
from mio2trace.kernels import KernelFact
from mio2trace.measures import Measures
from mio2trace.memory import keep_freed_blocks, without_garbage_collection
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import MiopenLog
from mio2trace.model.profile import Profile
from mio2trace.model.tf import TfProfile
from mio2trace.notes import InputError, Notes, OptionError
from mio2trace.ops.operation import Operation
from mio2trace.outgoing import visible
from mio2trace.privacy import Cleaner
from mio2trace.readers import ANY, Accepted
from mio2trace.readers.ck import record as ck
from mio2trace.readers.tf.executions import executions
from mio2trace.runs import Gathered, complete, gather, has_times
from mio2trace.snapshot.places import is_dataset, snapshots_of

if TYPE_CHECKING:
    from mio2trace.snapshot.records import KeptRun, Snapshot

HOMES = ("home", "Users")
"""A folder in one of these is named for a person."""


class AnalysisOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to read and how to join.

    ``host_calls``: keep every API call. ``every_message``: keep all that a library's log says. ``tags``: choose in a CK
    directory. ``repetition``: of a CK record, from 0; ``"every"``: each is a run. ``keep``: private things to leave in
    (`mio2trace.privacy.KINDS`). ``max_input``: bytes that an input may hold, decompressed. ``accepted``: formats.
    ``copies``: files that hold the same count each. ``join``: whether profiles are joined with logs; without it, no run
    has alignments; ``"logs"``: where there are any. ``without``: evidence to leave out (`mio2trace.evidence`).
    ``by_order_alone``: go on where clocks or buffers say that files are not of one run. ``from_start``: take a job's
    processes as begun at once.
    ``keep_reasons``: for `mio2trace.summary.explain`. ``progress``: is told what was read.
    """

    host_calls: bool = False
    every_message: bool = False
    tags: tuple[str, ...] = ()
    repetition: int | Literal["every"] | None = None
    keep: tuple[str, ...] = ()
    max_input: int | None = None
    accepted: Accepted = ANY
    copies: bool = False
    join: bool | Literal["logs"] = True
    without: frozenset[str] = frozenset()
    by_order_alone: bool = False
    from_start: bool = False
    keep_reasons: bool = False
    progress: Progress | None = None


DEFAULTS = AnalysisOptions()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a program: the inputs that tell of it, and what they tell together.

    ``name`` tells it from the others and holds nothing private. ``profiles``: the fullest first, it is the one that
    the logs are joined with; those of a job's processes by rank, each joined with its own part of the logs.
    ``operations_by_log``: of each of ``libraries``. ``alignments``: one for each of ``profiles`` that holds anything;
    ``measures``: their costs, each summed when it is asked for; ``shares``: what of the logs each is joined with.
    ``framework``: what a framework's own profiles tell of the run (TensorFlow's: ``tf_profiles``), as one profile that
    is joined with no log. ``facts``: of each profile what is known of its kernels, where that is not found again.
    ``complete``: whether it is a run by itself: a profile with its log or, where there is no
    profile at all, a log with times.
    """

    name: str
    inputs: tuple[Input, ...]
    profiles: tuple[Profile, ...] = ()
    logs: tuple[FrameworkLog, ...] = ()
    libraries: tuple[MiopenLog, ...] = ()
    tf_profiles: tuple[TfProfile, ...] = ()
    operations_by_log: tuple[tuple[Operation, ...], ...] = ()
    alignments: tuple[Alignment, ...] = ()
    measures: tuple[Measures, ...] = ()
    framework: Measures | None = None
    shares: tuple[Share, ...] = ()
    complete: bool = False
    facts: tuple[Mapping[int, KernelFact], ...] = ()

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Those of the MIOpen log that has most of them: one process writes one log."""
        return max(self.operations_by_log, key=len, default=())

    @property
    def drawn(self) -> tuple[Measures, ...]:
        """What all that is drawn of it cost."""
        return self.measures if self.framework is None else (*self.measures, self.framework)

    @property
    def is_job(self) -> bool:
        """Whether its profiles are of the processes of one job."""
        return len(self.profiles) > 1 and bool(self.profiles[0].process.label)

    @property
    def has_times(self) -> bool:
        """Whether its logs alone make a picture."""
        return any(map(has_times, self.logs))

    @property
    def alignment(self) -> Alignment | None:
        """The profile joined with its logs."""
        return self.alignments[0] if self.alignments else None

    def __repr__(self) -> str:
        parts = [
            f"{sum(len(profile.activities) for profile in self.profiles)} enqueues" if self.profiles else "",
            f"{len({layer.layer for log in self.logs for layer in log.layers})} layers" if self.logs else "",
            f"{len(self.operations)} operations" if self.libraries else "",
            f"{sum(len(profile.nodes) for profile in self.tf_profiles)} TensorFlow nodes" if self.tf_profiles else "",
        ]
        told = ", ".join(filter(None, parts)) or "nothing"
        return f"<Run {self.name!r} of {', '.join(file.name for file in self.inputs)}: {told}>"


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """What `analyse` found. ``inputs``: sorted by what they hold, each once. ``runs``: at least one, the fullest
    profile's first, logs that are of no profile's run last."""

    inputs: tuple[Input, ...]
    runs: tuple[Run, ...]
    notes: Notes
    cleaner: Cleaner

    @property
    def names(self) -> str:
        """The inputs, in the order given."""
        return ", ".join(file.name for file in sorted(self.inputs, key=lambda file: file.source))

    @property
    def has_repetitions(self) -> bool:
        """Whether an input may hold several, of which one was taken."""
        return any(file.format == ck.NAME and file.repetition is None for file in self.inputs)

    @property
    def complete(self) -> tuple[Run, ...]:
        """The runs that are one for themselves."""
        return tuple(run for run in self.runs if run.complete)

    @property
    def run(self) -> Run:
        """The run. Raises `InputError` where there are several."""
        several = self.complete
        if len(several) > 1:
            in_order = sorted(several, key=lambda run: run.inputs[0].source)
            names = ", ".join(run.name for run in in_order[:4]) + (", ..." if len(in_order) > 4 else "")
            raise InputError(
                f"files of {len(in_order)} runs: {names}; expected those of one (`mio2trace convert --several` "
                "draws each by itself, `mio2trace compare` tells how they differ, `mio2trace batch` makes a dataset)"
            )
        return several[0] if several else self.runs[0]

    def __repr__(self) -> str:
        notes = sum(1 for _ in self.notes)
        return f"<Analysis: {len(self.inputs)} inputs, {notes} kinds of notes, runs {list(self.runs)}>"


def analyse(
    files: FilePath | Sequence[FilePath], options: AnalysisOptions = DEFAULTS, notes: Notes | None = None
) -> Analysis:
    """Read ``files`` (paths, ``-`` for standard input, CK directories), sort them into runs, join what is of one.

    ``notes`` gains what is met on the way. Raises `InputError` with one line that says what is wrong with an input;
    `OptionError`, a ValueError, for an option that is none.
    """
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    unknown = options.without - set(EVIDENCE)
    if unknown:
        raise OptionError(f"no such evidence: {', '.join(sorted(unknown))}; expected {', '.join(EVIDENCE)}")
    notes = Notes() if notes is None else notes
    if any(is_dataset(file) for file in files if file != STANDARD_INPUT):
        with without_garbage_collection():
            return _of_datasets(files, options, notes)
    cleaner = Cleaner(options.keep)
    keep_freed_blocks()
    with without_garbage_collection():
        inputs = read_inputs(
            files,
            FileOptions(
                host_calls=options.host_calls,
                every_message=options.every_message,
                tags=options.tags,
                repetition=options.repetition,
                max_input=options.max_input,
                accepted=options.accepted,
                copies=options.copies,
            ),
            notes,
            cleaner,
            options.progress,
        )
        if any(file.repetition is not None for file in inputs):
            gathered = [one for file in inputs for one in gather([file], options.without, False, notes)]
        else:
            gathered = gather(inputs, options.without, options.by_order_alone, notes, strict=bool(options.join))
        whole = complete(gathered)
        runs = tuple(
            _run(part, name, part in whole, options, notes, cleaner)
            for part, name in zip(gathered, _names(gathered, cleaner), strict=True)
        )
    return Analysis(inputs=tuple(inputs), runs=runs, notes=notes, cleaner=cleaner)


def _run(part: Gathered, name: str, whole: bool, options: AnalysisOptions, notes: Notes, cleaner: Cleaner) -> Run:
    tf_profiles = tuple(record for file in part.inputs for record in file.records if isinstance(record, TfProfile))
    logs, calls = tuple(part.logs), part.operations
    joined = options.join is True or (options.join == "logs" and bool(logs or calls or tf_profiles))
    told = executions(tf_profiles, notes) if joined else None
    beside = [] if told is None else cleaner.cleaned([told])  # kernels are named by what was no name before
    profiles = part.held
    is_job = part.is_job
    if is_job:
        profiles = in_order(profiles)
        own = shares(profiles, part.told(profiles), options.without, notes)
        profiles = labelled(profiles)
    else:
        own = [Share(logs, tuple(part.libraries), calls), *[Share()] * (len(profiles) - 1)]
        if len(part.libraries) > 1 and calls and part.profiles:
            notes.add(f"{len(part.libraries)} MIOpen logs: the profile is joined with the one that has most operations")
    alignments = [
        align(
            profile,
            share.logs,
            notes,
            operations=share.operations,
            without=options.without,
            by_order_alone=options.by_order_alone,
            keep_reasons=options.keep_reasons,
            beside=beside if not number else (),
        )
        for number, (profile, share) in enumerate(zip(profiles, own, strict=bool(profiles)) if joined else ())
    ]
    if is_job and alignments:
        clocks = (from_start if options.from_start else relate_processes)(profiles)
        alignments = [
            msgspec.structs.replace(alignment, process_clock=clock)
            for alignment, clock in zip(alignments, clocks, strict=True)
        ]
    return Run(
        name=name,
        inputs=tuple(sorted(part.inputs, key=lambda file: file.source)),
        profiles=tuple(profiles if is_job else part.profiles),
        logs=logs,
        libraries=tuple(part.libraries),
        tf_profiles=tf_profiles,
        operations_by_log=part.operations_by_log,
        alignments=tuple(alignments),
        measures=tuple(map(Measures, alignments)),
        framework=Measures(align(beside[0], (), notes, without=options.without)) if beside else None,
        shares=tuple(own),
        complete=whole,
    )


# -- runs that were analysed before ----------------------------------------------------------------------------------


def snapshot_of(
    runs: Sequence[Run], notes: Notes, cleaner: Cleaner, generator: str, repetitions: Sequence[Run] = ()
) -> Snapshot:
    """What is kept of runs in a dataset; ``repetitions`` in place of them where each counts. Nothing private is."""
    from mio2trace.snapshot.records import KeptNote, Snapshot

    clean = cleaner.text
    return Snapshot(
        generator=generator,
        runs=tuple(_kept(run, clean) for run in runs),
        notes=tuple(
            KeptNote(
                kind=clean(note.kind), count=note.count, places=tuple(map(clean, note.places)), problem=note.problem
            )
            for note in notes
        ),
        repetitions=tuple(_kept(run, clean) for run in repetitions),
    )


_AS_IT_IS = ("name", "profiles", "logs", "libraries", "tf_profiles", "operations_by_log", "complete")


def _kept(run: Run, clean: Callable[[str], str]) -> KeptRun:
    from mio2trace.snapshot.records import KeptRun, KeptShare, kept_alignment

    return KeptRun(
        **{name: getattr(run, name) for name in _AS_IT_IS},
        inputs=tuple(msgspec.structs.replace(file, path="", name=clean(visible(file.name))) for file in run.inputs),
        alignments=tuple(map(kept_alignment, run.alignments)),
        framework=None if run.framework is None else kept_alignment(run.framework.alignment),
        shares=tuple(KeptShare(**share._asdict()) for share in run.shares),
    )


def _restored(kept: KeptRun, options: AnalysisOptions, name: str = "") -> Run:
    from mio2trace.snapshot.records import restored_alignment

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
    )


def _of_datasets(files: Sequence[FilePath], options: AnalysisOptions, notes: Notes) -> Analysis:
    """The runs of datasets, as they were joined. Raises `InputError` for what only their sources tell."""
    from mio2trace.snapshot.database import run_name
    from mio2trace.snapshot.files import read

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
    runs: list[Run] = []
    for file in files:
        snapshots, failed = snapshots_of(file)
        if failed:
            notes.add("run of the dataset that failed: `mio2trace query DATASET failures` tells why", count=failed)
        for path in snapshots:
            snapshot = read(path)
            chosen = _chosen(snapshot, options.repetition, os.fspath(file))
            name = run_name(path.name) if chosen is snapshot.runs and len(chosen) == 1 else ""
            runs += [_restored(run, options, name) for run in chosen]
            for note in snapshot.notes:
                notes.restore(note.kind, note.count, note.places, note.problem)
    inputs = tuple(file for run in runs for file in run.inputs)
    return Analysis(inputs=inputs, runs=tuple(runs), notes=notes, cleaner=Cleaner())


def _chosen(snapshot: Snapshot, repetition: int | Literal["every"] | None, name: str) -> tuple[KeptRun, ...]:
    """The runs, or the repetitions that are asked for."""
    if repetition is None or not snapshot.repetitions:
        return snapshot.runs
    if repetition == "every":
        return snapshot.repetitions
    found = tuple(run for run in snapshot.repetitions if run.inputs[0].repetition == repetition)
    if not found:
        raise InputError(f"{name}: no repetition {repetition} that is kept")
    return found


def _names(runs: Sequence[Gathered], cleaner: Cleaner) -> list[str]:
    """Of each run the folder of its first input where that tells it from the others, else that input's name."""
    firsts = [run.inputs[0] for run in runs]
    paths = [first.path for first in firsts]
    folders = [path.rpartition("/")[0] for path in paths]
    names = [first.name.rpartition("/")[2].partition(".")[0] or first.name for first in firsts]
    if len(runs) > 1 and len(set(folders)) == len(folders) and all(folders):
        names = short_names(folders)
        for number, (name, folder) in enumerate(zip(names, folders, strict=True)):
            if folder[: -len(name)].rstrip("/").rpartition("/")[2] in HOMES:
                names[number] = f"run {number + 1}"
    elif len(set(names)) < len(names):
        names = [first.name if first.repetition is None else f"repetition {first.repetition}" for first in firsts]
    return [visible(cleaner.text(name)) for name in names]
