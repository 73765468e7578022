"""Read files, sort them into runs, and join the files of each run. Every command and `convert` begin with this step.

    analysis = mio2trace.analyse(["run.log", "prof.json"])
    analysis.run.alignments[0].links.layer_by

A dataset stores its runs as they were joined (`snapshot_of`). Commands get the analysis back that they were written
from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from mio2trace.align import Alignment, ProcessClock, align
from mio2trace.align.graphs import link_gemms
from mio2trace.align.processes import anchored, from_start, relate_processes
from mio2trace.evidence import EVIDENCE, ORDER
from mio2trace.files import STANDARD_INPUT, FileOptions, FilePath, Input, read_inputs, short_names
from mio2trace.kernels import KernelFact
from mio2trace.machine import give_back_freed_memory, keep_freed_blocks, without_garbage_collection
from mio2trace.measures import Measures
from mio2trace.model.choices import GemmTable, SideFile
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import MiopenLog
from mio2trace.model.profile import Profile
from mio2trace.model.tf import TfProfile
from mio2trace.notes import NOT_JOINED, NOT_USED, InputError, Note, Notes, OptionError
from mio2trace.ops.choices import Choices
from mio2trace.ops.operation import Operation
from mio2trace.outgoing import count, visible
from mio2trace.privacy import Cleaner
from mio2trace.readers import CK
from mio2trace.runs import (
    Gathered,
    Share,
    complete,
    gather,
    has_times,
    in_order,
    is_named_for_another_rank,
    labelled,
    note_shared_devices,
    same_processes,
    shares,
)
from mio2trace.snapshot import is_dataset, snapshots_of

if TYPE_CHECKING:
    from mio2trace.snapshot.files import KeptRun, Snapshot


HOMES = ("home", "Users")
"""A folder inside one of these is named for a person."""


class AnalysisOptions(FileOptions, frozen=True, kw_only=True):
    """Options of reading (`mio2trace.files.FileOptions`; each repetition of a CK record may be a run) and of joining.

    ``join``: whether profiles are joined with logs; without it, no run has alignments; ``"logs"``: only if
    there are logs. ``without``: evidence to leave out (`mio2trace.evidence`). ``by_order_alone``: join files even if
    clocks or buffers show that they are not of one run. ``from_start``: let all processes of a job begin at the same
    time. ``near``: profiles of several processes in one folder are ranks of one job unless something contradicts.
    ``keep_reasons``: for `mio2trace.summary`. ``keep_entries``: keep the entries of MIOpen's logs when their
    operations are known; a million take 70 MB.
    """

    join: bool | Literal["logs"] = True
    without: frozenset[str] = frozenset()
    by_order_alone: bool = False
    from_start: bool = False
    near: bool = True
    keep_reasons: bool = False
    keep_entries: bool = True


DEFAULTS = AnalysisOptions()


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A program's run without MIOpen's log. ``measures``: of its profiles. ``of[i]``: the place in `Run.alignments` of
    the same process in the logged run. ``logs``: what the program printed."""

    measures: tuple[Measures, ...] = ()
    of: tuple[int, ...] = ()
    logs: tuple[FrameworkLog, ...] = ()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a program: its inputs, and their joined content.

    ``name``: distinguishes it from the others; cleaned (docs/privacy.md). ``profiles``: the fullest first, which is
    joined with the logs; processes of a job are sorted by rank, and each is joined with its own part of the logs.
    ``operations_by_log``: for each of ``libraries``. ``alignments``: one for each profile that holds anything.
    ``measures``: their costs, each computed on first use. ``shares``: the part of the logs that each is joined with.
    ``framework``: the profiles of a framework (TensorFlow's: ``tf_profiles``) as one profile, which is joined with no
    log. ``facts``: known facts about the kernels of each profile, if they cannot be found again. ``complete``: whether
    it can be analysed alone: a profile with its log, or a log with times if there is no profile. ``reference``: the
    same program without MIOpen's log, if that was recorded.
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
    reference: Reference | None = None

    @property
    def side_files(self) -> tuple[SideFile, ...]:
        """Databases of MIOpen, logs of BLAS libraries."""
        return tuple(record for file in self.inputs for record in file.records if isinstance(record, SideFile))

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations of the MIOpen log that has most of them: one process writes one log."""
        return max(self.operations_by_log, key=len, default=())

    @property
    def drawn(self) -> tuple[Measures, ...]:
        return self.measures if self.framework is None else (*self.measures, self.framework)

    @property
    def is_job(self) -> bool:
        """Whether its profiles are of the processes of one job."""
        return len(self.profiles) > 1 and bool(self.profiles[0].process.label)

    @property
    def has_times(self) -> bool:
        """Whether its logs alone have times to draw."""
        return any(map(has_times, self.logs))

    @property
    def holds_anything(self) -> bool:
        """Whether a table could show any of it."""
        of_profiles = any(profile.activities or profile.other_calls for profile in self.profiles)
        of_logs = self.logs or any(log.records for log in self.libraries)
        return bool(of_profiles or of_logs or self.side_files or self.framework is not None)

    @property
    def alignment(self) -> Alignment | None:
        return self.alignments[0] if self.alignments else None

    def __repr__(self) -> str:
        counts = (
            (self.profiles, "enqueue", sum(len(profile.activities) for profile in self.profiles)),
            (self.logs, "layer", len({layer.layer for log in self.logs for layer in log.times.key.values})),
            (self.libraries, "operation", len(self.operations)),
            (self.tf_profiles, "TensorFlow node", sum(len(profile.nodes) for profile in self.tf_profiles)),
        )
        told = ", ".join(count(number, noun) for source, noun, number in counts if source) or "nothing"
        return f"<Run {self.name!r} of {', '.join(file.name for file in self.inputs)}: {told}>"


def as_given(runs: Sequence[Run]) -> list[Run]:
    """Return runs in the order in which their files were given."""
    return sorted(runs, key=lambda run: run.inputs[0].source)


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `analyse`. ``inputs``: sorted by content, each once. ``runs``: at least one; the fullest profile's
    run first, logs without a profile last. ``references``: runs without MIOpen's log in archives (`Run.reference`)."""

    inputs: tuple[Input, ...]
    runs: tuple[Run, ...]
    notes: Notes
    cleaner: Cleaner
    references: tuple[Input, ...] = ()

    @property
    def names(self) -> str:
        """The names of the inputs, in the given order."""
        return ", ".join(file.name for file in sorted(self.inputs, key=lambda file: file.source))

    @property
    def has_repetitions(self) -> bool:
        """Whether an input may hold several repetitions, but only one was used."""
        return any(file.format == CK.NAME and file.repetition is None for file in self.inputs)

    @property
    def complete(self) -> tuple[Run, ...]:
        """The runs that can be analysed alone."""
        return tuple(run for run in self.runs if run.complete)

    @property
    def each(self) -> tuple[Run, ...]:
        """The runs that are shown one by one: those that can be analysed alone, and other profiles; all runs if there
        are none."""
        return tuple(run for run in self.runs if run.complete or run.alignments) or self.runs

    @property
    def run(self) -> Run:
        """The run. Raises `InputError` if there are several."""
        several = self.complete
        if len(several) > 1:
            rest = [run for run in self.runs if run.profiles and not run.complete]
            beside = f", and without a log of its own {_first_names(rest)}" if rest else ""
            raise InputError(
                f"files of {len(several)} runs: {_first_names(several)}{beside}; expected those of one"
                " (`mio2trace convert --several` writes each by itself, `mio2trace compare` shows how they differ,"
                " `mio2trace batch` makes a dataset)"
            )
        return several[0] if several else self.runs[0]

    def shown(self, where: str = "shown") -> Run:
        """Return the run, and note that other profiles are not shown. Raises `InputError` if there are several runs."""
        run = self.run
        profiles = sum(len(each.profiles) for each in self.runs)
        if profiles > len(run.profiles) or (profiles > 1 and not run.is_job):
            which = "fits the logs best" if run.complete else "has most kernels and copies"
            self.notes.add(f"{profiles} profiles: the profile that {which} is {where}")
        return run

    def __repr__(self) -> str:
        notes = sum(1 for _ in self.notes)
        return (
            f"<Analysis: {count(len(self.inputs), 'input')}, {count(notes, 'kind')} of notes, runs {list(self.runs)}>"
        )


def _first_names(runs: Sequence[Run]) -> str:
    given = as_given(runs)
    return ", ".join(run.name for run in given[:4]) + (", ..." if len(given) > 4 else "")


@without_garbage_collection()
def analyse(
    files: FilePath | Sequence[FilePath], options: AnalysisOptions = DEFAULTS, notes: Notes | None = None
) -> Analysis:
    """Read ``files`` (paths, ``-`` for standard input, CK directories), sort them into runs, and join the files of each
    run.

    ``notes`` gets notes on problems. Raises `InputError` for an unusable input, with a message of one line;
    `OptionError`, a ValueError, for a wrong option.
    """
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    unknown = options.without - set(EVIDENCE)
    if unknown:
        raise OptionError(f"no such evidence: {', '.join(sorted(unknown))}; expected {', '.join(EVIDENCE)}")
    notes = Notes() if notes is None else notes
    if any(is_dataset(file) for file in files if file != STANDARD_INPUT):
        return of_datasets(files, options, notes)
    cleaner = Cleaner(options.keep)
    keep_freed_blocks()
    inputs = read_inputs(files, options, notes, cleaner, references=options.join is True)
    give_back_freed_memory()
    inputs = [_with_clocks(file, notes) for file in inputs]
    references = [file for file in inputs if file.is_reference]
    inputs = [file for file in inputs if not file.is_reference]
    if any(file.repetition is not None for file in inputs):
        gathered = [one for file in inputs for one in gather([file], options.without, False, notes)]
    else:
        gathered = gather(
            inputs,
            options.without,
            options.by_order_alone,
            notes,
            strict=bool(options.join),
            copies=options.copies,
            near=options.near,
        )
    whole = complete(gathered)
    runs = tuple(
        run
        for part, name in zip(gathered, _names(gathered, cleaner), strict=True)
        for run in _runs(part, name, part in whole, options, notes, cleaner)
    )
    runs = (*(run for run in runs if run.profiles), *(run for run in runs if not run.profiles))
    if references:
        runs = tuple(_with_reference(run, references, options, cleaner) for run in runs)
    give_back_freed_memory()
    return Analysis(inputs=tuple(inputs), runs=runs, notes=notes, cleaner=cleaner, references=tuple(references))


def _runs(
    part: Gathered, name: str, whole: bool, options: AnalysisOptions, notes: Notes, cleaner: Cleaner
) -> Iterator[Run]:
    """Return the run, and as runs of their own those of its logs to which nothing was joined."""
    tf_profiles = tuple(record for file in part.inputs for record in file.records if isinstance(record, TfProfile))
    logs, calls = tuple(part.logs), part.operations
    joined = options.join is True or (options.join == "logs" and bool(logs or calls or tf_profiles))
    told = None
    if joined and tf_profiles:
        from mio2trace.readers.tf.executions import executions

        told = executions(tf_profiles, notes)
    beside = [] if told is None else cleaner.cleaned([told])  # kernel names are known only now
    profiles = part.held
    is_job = part.is_job
    strange: list[str] = []
    if is_job:
        profiles = in_order(profiles)
        own = shares(profiles, part.told(profiles), options.without, notes)
        profiles = labelled(profiles, {file.source: file.name for file in part.inputs})
        note_shared_devices(profiles, notes)
    else:
        own = [Share(logs, tuple(part.libraries), calls), *[Share()] * (len(profiles) - 1)]
        files = part.told(profiles[:1])
        strange = [
            one.name for one in files if profiles and is_named_for_another_rank(one, profiles[0], options.without)
        ]
        for log_name in strange if joined else ():
            notes.add("log that is named for another rank than the profile's: its links have low confidence", log_name)
        if len(part.libraries) > 1 and calls and part.profiles:
            notes.add(f"{len(part.libraries)} MIOpen logs: the profile is joined with the log that has most operations")
    if profiles and joined and not options.keep_entries:
        part.drop_entries()
    found = [
        join(
            profile,
            share,
            {file.source: file.name for file in part.inputs},
            notes,
            without=options.without,
            by_order_alone=options.by_order_alone,
            keep_reasons=options.keep_reasons,
            beside=beside if not number else (),
            captures=_of_process(part.captures, profile),
            named_for_another=number == 0 and bool(strange),
        )
        for number, (profile, share) in enumerate(zip(profiles, own, strict=bool(profiles)) if joined else ())
    ]
    alignments = [alignment for alignment, _ in found]
    own = [share.but(unused) for share, (_, unused) in zip(own, found, strict=True)] if found else own
    holding = {record.source for file in part.inputs for record in file.records if isinstance(record, Profile)}
    unused = frozenset[int]().union(*(unused for _, unused in found)) - holding
    unused = unused.difference(*(share.sources for share in own))
    alone = [file for file in part.inputs if file.source in unused]
    part = part.but(unused)
    choices = Choices(record for file in part.inputs for record in file.records if isinstance(record, SideFile))
    tables = [one for file in part.inputs for one in file.records if isinstance(one, GemmTable) and one.order]
    if tables and len(alignments) == 1 and ORDER not in options.without:
        link_gemms(alignments[0].links, tables, notes)
    for alignment in alignments:
        alignment.links.refine(choices.solved(alignment.links.operations))
    if is_job and alignments:
        clocks = (from_start if options.from_start else relate_processes)(profiles)
        alignments = _with_process_clocks(alignments, clocks)
    yield Run(
        name=name,
        inputs=tuple(sorted(part.inputs, key=lambda file: file.source)),
        profiles=tuple(profiles if is_job else part.profiles),
        logs=tuple(part.logs),
        libraries=tuple(part.libraries),
        tf_profiles=tf_profiles,
        operations_by_log=part.operations_by_log,
        alignments=tuple(alignments),
        measures=tuple(map(Measures, alignments)),
        framework=Measures(align(beside[0], (), notes, without=options.without)) if beside else None,
        shares=tuple(own),
        complete=whole,
    )
    for file in alone:
        yield from _runs(Gathered([file], ()), visible(cleaner.text(file.name)), False, options, notes, cleaner)


def _of_process(captures: Sequence[Profile], profile: Profile) -> list[Profile]:
    """Return the captures of the same process or rank, or all if there are none."""
    process = profile.process
    same = [one for one in captures if (one.process.pid, one.process.rank) == (process.pid, process.rank)]
    return same or [one for one in captures if one.process.rank == process.rank] or list(captures)


def _with_clocks(file: Input, notes: Notes) -> Input:
    """Return the file with clocks that are related to Unix time by the readings before and after the run."""
    if file.anchors is None:
        return file
    records = [anchored(one, file.anchors, notes) if isinstance(one, Profile) else one for one in file.records]
    return msgspec.structs.replace(file, records=tuple(records))


def _with_reference(run: Run, references: Sequence[Input], options: AnalysisOptions, cleaner: Cleaner) -> Run:
    """Add the run without MIOpen's log that its archives hold, process by process."""
    archives = {file.archive for file in run.inputs if file.archive}
    of_run = [file for file in references if file.archive in archives]
    if not of_run:
        return run
    own = Notes()  # problems with its files do not concern this run
    try:
        parts = gather(of_run, options.without, True, own, strict=False)
        made = [one for part in parts for one in _runs(part, run.name, True, options, own, cleaner)]
    except InputError:
        return run
    archive_of = {file.source: file.archive for file in (*run.inputs, *of_run)}
    measures = [one for part in made for one in part.measures]
    places = same_processes(
        [one.profile for one in run.alignments], [one.alignment.profile for one in measures], archive_of
    )
    matched = [(one, place) for one, place in zip(measures, places, strict=True) if place is not None]
    return msgspec.structs.replace(
        run,
        reference=Reference(
            measures=tuple(one for one, _ in matched),
            of=tuple(place for _, place in matched),
            logs=tuple(log for part in made for log in part.logs),
        ),
    )


def _names(runs: Sequence[Gathered], cleaner: Cleaner) -> list[str]:
    """Return the folder of the first input of each run, or the input's name if the folder is not unique."""
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


# ----------------------------------------------------------------------------------------------------------------------
# Join a profile with its logs. If that fails, or if nothing of a log fits, the profile stays without the log.

FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of the program itself. Then the two files, which can both be read, are shown side by side."""


def join(
    profile: Profile, share: Share, name_of: Mapping[int, str], notes: Notes, **options: Any
) -> tuple[Alignment, frozenset[int]]:
    """Join ``profile`` with its ``share`` of the logs; also return the sources of logs that the alignment did not use.
    ``name_of``: files by number. ``options``: of `mio2trace.align`.

    Raises `InputError` like `mio2trace.align`.
    """
    given = share.sources - {profile.source}
    before = notes.copy()
    try:
        alignment = _aligned(profile, share, notes, **options)
    except FAULTS as error:
        if not given:
            raise
        notes.go_back_to(before)
        notes.add(NOT_JOINED, f"{', '.join(name_of.get(one, '?') for one in sorted(given))}: {_place(error)}")
        return _aligned(profile, share.but(given), notes, **options), given
    if not alignment.unused:
        return alignment, frozenset()
    notes.go_back_to(before)
    for source in sorted(alignment.unused):
        notes.add(NOT_USED, name_of.get(source, ""))
    joined, unused = join(profile, share.but(alignment.unused), name_of, notes, **options)
    return joined, alignment.unused | unused


def _aligned(profile: Profile, share: Share, notes: Notes, **options: Any) -> Alignment:
    return align(profile, share.logs, notes, operations=share.operations, **options)


def _place(error: Exception) -> str:
    """Return the type of an error, and its line in the program."""
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {'/'.join(last.filename.split(os.sep)[-2:])}:{last.lineno}"


def snapshot_of(
    runs: Sequence[Run], notes: Notes, cleaner: Cleaner, generator: str, repetitions: Sequence[Run] = ()
) -> Snapshot:
    """Return the stored form of runs, cleaned (docs/privacy.md); ``repetitions`` replaces them if each repetition
    counts."""
    from mio2trace.snapshot.files import KeptNote, Snapshot

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


_AS_IT_IS = ("name", "profiles", "logs", "libraries", "tf_profiles", "operations_by_log", "shares", "complete")


def _kept(run: Run, clean: Callable[[str], str]) -> KeptRun:
    from mio2trace.snapshot.files import KeptReference, KeptRun, kept_alignment

    return KeptRun(
        **{name: getattr(run, name) for name in _AS_IT_IS},
        inputs=tuple(
            msgspec.structs.replace(file, path="", archive="", anchors=None, name=clean(visible(file.name)))
            for file in run.inputs
        ),
        alignments=tuple(map(kept_alignment, run.alignments)),
        framework=None if run.framework is None else kept_alignment(run.framework.alignment),
        reference=None
        if run.reference is None
        else KeptReference(
            alignments=tuple(kept_alignment(one.alignment) for one in run.reference.measures),
            of=run.reference.of,
            logs=run.reference.logs,
        ),
    )


def _restored(kept: KeptRun, options: AnalysisOptions, name: str = "") -> Run:
    from mio2trace.snapshot.files import restored_alignment

    joined = options.join is True or (
        options.join == "logs" and bool(kept.logs or any(kept.operations_by_log) or kept.tf_profiles)
    )
    alignments = [*map(restored_alignment, kept.alignments)]
    if options.from_start and alignments and len(kept.profiles) > 1 and kept.profiles[0].process.label:  # a job's
        alignments = _with_process_clocks(alignments, from_start([one.profile for one in alignments]))
    framework = None if kept.framework is None else Measures(restored_alignment(kept.framework))
    return Run(
        **{field: getattr(kept, field) for field in _AS_IT_IS} | ({"name": name} if name else {}),
        inputs=kept.inputs,
        alignments=tuple(alignments) if joined else (),
        measures=tuple(map(Measures, alignments)) if joined else (),
        framework=framework if joined else None,
        facts=tuple(alignment.facts for alignment in alignments),
        reference=None
        if kept.reference is None
        else Reference(
            measures=tuple(Measures(restored_alignment(one)) for one in kept.reference.alignments),
            of=kept.reference.of,
            logs=kept.reference.logs,
        ),
    )


def _with_process_clocks(alignments: Sequence[Alignment], clocks: Sequence[ProcessClock | None]) -> list[Alignment]:
    return [msgspec.structs.replace(one, process_clock=clock) for one, clock in zip(alignments, clocks, strict=True)]


def of_datasets(files: Sequence[FilePath], options: AnalysisOptions, notes: Notes) -> Analysis:
    """Return the runs of datasets, as they were joined. Raises `InputError` for options that need the original
    files."""
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
            kept.append(restored)
            for note in snapshot.notes:
                notes.include([Note(note.kind, note.count, list(note.places), note.problem)])
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
