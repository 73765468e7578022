"""A whole conversion: bytes -> records -> alignment -> drawing -> output, for the command line, tests and scripts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, get_args

import msgspec

import mio2trace
from mio2trace import summary
from mio2trace.align import Alignment
from mio2trace.analysis import Analysis, AnalysisOptions, Run, analyse, as_given
from mio2trace.draw import BuildOptions, Fold, HostCalls, RunToDraw, Selection, Tracks, build
from mio2trace.draw.selection import window
from mio2trace.files import TABLES_SUFFIX, Progress, replacing, standard_output
from mio2trace.machine import give_back_freed_memory, without_garbage_collection
from mio2trace.measures.device_time import Launches
from mio2trace.notes import LOGGED, InputError, Notes, OptionError
from mio2trace.outgoing import count
from mio2trace.summary import explain as explained
from mio2trace.trace import Trace, checked
from mio2trace.writers import WRITERS, Writer, by_suffix, suffixes, write
from mio2trace.writers.ending import Written

LARGE = "a run that is too large for a viewer"


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a conversion: the trace, its metadata, the notes, lines about it, and the size of the output.

    ``analysis``: its source; without ``beside``, joined logs have operations but no entries any more. ``runs``: those
    in the trace. ``account``: the format of each input, the evidence of the links, notes. ``reasons``: the lines for
    ``explain``.
    """

    trace: Trace
    metadata: dict[str, Any]
    notes: Notes
    analysis: Analysis
    runs: tuple[Run, ...]
    account: summary.Account
    reasons: list[str]
    written: Written | None = None

    def without_parts(self) -> Conversion:
        """Return the same after writing: its trace has no parts, which need as much memory as the answer."""
        kept = {
            name: getattr(self.trace, name) for name in ("processes", "tracks", "metadata", "left_out", "left_out_ns")
        }
        return msgspec.structs.replace(self, trace=Trace(parts=(), **kept))

    @property
    def report(self) -> list[str]:
        """All lines except the answer."""
        return [*self.account.inputs, *self.account.evidence, *self.account.notes, *self.reasons]

    @property
    def answer(self) -> list[str]:
        """The answer block of `mio2trace report`; made on first use."""
        from mio2trace.answer import report_of
        from mio2trace.answer.text import lines

        with without_garbage_collection():
            return list(lines(report_of(self.analysis, as_given(self.runs), depth="lines")))

    @property
    def problems(self) -> list[str]:
        """Problems of the inputs, except errors and warnings that the library logged."""
        return [note for note in self._own_notes if note.startswith("problem: ")]

    @property
    def _own_notes(self) -> list[str]:
        return [note for note in self.account.notes if not any(word in note for word in LOGGED)]

    def said(self, verbose: bool = False) -> list[str]:
        """Return the lines for the command line: the answer between inputs and notes; with ``verbose`` also its
        evidence."""
        account = self.account
        evidence = account.evidence if verbose else []
        notes = account.notes if verbose else self._own_notes  # the answer already shows the library's complaints
        return [*account.inputs, *evidence, *self.answer, *notes, *self.reasons]

    def __repr__(self) -> str:
        counts = self.metadata["attribution"]
        size = "not written" if self.written is None else f"{count(self.written.slices, 'slice')} written"
        return f"<Conversion: {count(counts['kernels'], 'kernel')}, {count(counts['copies'], 'copy')}, {size}>"


class UnrelatedClocks(InputError):
    """No evidence relates the clocks of a job's processes. ``from_start`` draws each process from its own start."""


@without_garbage_collection()
def convert(  # noqa: PLR0913 - keyword-only options
    *files: str | os.PathLike[str],
    output: str | os.PathLike[str] | BinaryIO | None = None,
    host_calls: HostCalls = "enqueue",
    tracks: Sequence[str] = (),
    fold: Sequence[str] = (),
    begin: str = "",
    end: str = "",
    iterations: str = "",
    top: int | None = None,
    min_duration: str = "",
    everything: bool = False,
    with_args: bool = True,
    without: Sequence[str] = (),
    repetition: int | None = None,
    tags: Sequence[str] = (),
    by_order_alone: bool = False,
    from_start: bool = False,
    several: bool = False,
    of_a_job: bool = False,
    explain: Sequence[str] = (),
    check: bool = False,
    strict: bool = False,
    summary_file: str | os.PathLike[str] | None = None,
    keep: Sequence[str] = (),
    max_input: int | None = None,
    progress: Progress | None = None,
    beside: Callable[[Analysis], object] | None = None,
) -> Conversion:
    """Join the files of one run into a trace, and write it to ``output`` unless that is None.

    ``files``: logs and profiles in any order, ``-`` for standard input, a CK directory (``tags`` chooses in it).
    ``host_calls``: the API calls to draw. ``tracks``: additional tracks (`kernels`, `operations`). ``fold``: the parts
    that get a track of their own (`find`, `set-up`, `warm-up`). ``begin``, ``end`` (``1.2s``, ``iteration 3``, ``layer
    conv1``), ``iterations`` (``2-4``), ``top``, ``min_duration`` (``10us``): the part to draw; links and summary are
    always of the whole run. ``everything``: draw the whole run; without it, a run that is too large for viewers has
    only the steady iterations in its middle. ``with_args``: whether slices have arguments. ``without``: kinds of
    evidence to ignore (`mio2trace.evidence`). ``repetition``: of a CK record, from 0. ``by_order_alone``: join files
    even if the clocks show that they are not of one run. ``from_start``: draw each process of a job from its own start;
    without it, processes are refused if nothing relates their clocks. ``several``: draw files of several runs, each run
    from time zero; without it they are refused. ``of_a_job``: refuse files that are not of several processes of one
    job. ``explain``: links for which the report gives the reasons (`mio2trace.summary`). ``keep``: kinds of
    private text to leave in (`mio2trace.privacy.KINDS`). ``max_input``: the most decompressed bytes of an input
    (default: `mio2trace.source.Source`). ``check``: verify the invariants of the trace. ``strict``: a problem is an
    error. ``beside`` gets the analysis before the trace is drawn. If ``output`` is a path, the file is replaced as a
    whole or not at all, and its suffix chooses the form.

    Raises `InputError` for an unusable input, with a message of one line; `OptionError`, a ValueError, for a wrong
    option.
    """
    options = BuildOptions(
        host_calls=host_calls,
        tracks=_words("tracks", tracks, get_args(Tracks)),
        fold=_words("fold", fold, get_args(Fold)),
        selection=Selection(begin=begin, end=end, iterations=iterations, top=top, min_duration=min_duration),
        with_args=with_args,
    )
    target = None if output is None else _target(output)
    analysis = analyse(
        files,
        AnalysisOptions(
            host_calls=host_calls == "all",
            repetition=repetition,
            tags=tuple(tags),
            keep=tuple(keep),
            max_input=max_input,
            without=frozenset(without),
            by_order_alone=by_order_alone,
            from_start=from_start,
            keep_reasons=bool(explain),
            keep_entries=beside is not None,
            progress=progress,
        ),
    )
    if beside is not None:
        beside(analysis)
        give_back_freed_memory()
    notes = analysis.notes
    runs = list(analysis.runs) if several else _of_one_run(analysis)
    if of_a_job and not (len(runs) == 1 and runs[0].is_job):
        raise InputError(f"{analysis.names}: {_why_no_job(analysis)}")
    _require_something_to_draw(analysis, runs)
    _require_related_clocks(runs)
    alignments = [measures.alignment for run in runs for measures in run.drawn]
    inputs = sorted(analysis.inputs, key=lambda file: file.source)
    measured = [measures for run in runs for measures in run.drawn]
    if options.selection.everything and not everything and target is not None and len(runs) == 1:
        selection = window(measured, host_calls != "none")
        options = msgspec.structs.replace(options, selection=selection)
        if not selection.everything:
            notes.remark(f"{LARGE}: only its iterations {selection.iterations} are written; --all writes the whole run")
    facts = summary.metadata(f"mio2trace {mio2trace.__version__}", inputs, measured)
    trace = build(_to_draw(runs, several), options, facts, notes)
    if not trace.tracks and not trace.left_out:
        raise InputError(f"{analysis.names}: nothing to draw: no kernel or copy, and no call or layer time above zero")
    facts["notes"] = dict(sorted((note.kind, note.count) for note in notes))
    if strict and notes.problems:
        raise InputError("--strict: " + "; ".join(map(str, notes.problems)))
    if check:
        _check(trace, alignments)
    written = None
    if target is not None:
        give_back_freed_memory()
        written = _write(trace, *target)
    if summary_file is not None:
        import orjson

        with replacing(os.fspath(summary_file)) as file:
            file.write(orjson.dumps(facts, option=orjson.OPT_INDENT_2) + b"\n")
    return Conversion(
        trace=trace,
        metadata=facts,
        notes=notes,
        analysis=analysis,
        runs=tuple(runs),
        account=summary.Account(
            **{
                part: [*map(analysis.cleaner.text, lines)]
                for part, lines in msgspec.structs.asdict(summary.account(inputs, measured, facts, notes)).items()
            }
        ),
        reasons=[analysis.cleaner.text(line) for line in _reasons(alignments, explain)],
        written=written,
    )


def _words(name: str, words: Sequence[str], known: Sequence[str]) -> tuple[Any, ...]:
    unknown = set(words) - set(known)
    if unknown:
        raise OptionError(f"no such {name}: {', '.join(sorted(unknown))}; expected {', '.join(known)}")
    return tuple(words)


def _reasons(alignments: Sequence[Alignment], wanted: Sequence[str]) -> Iterator[str]:
    for what in wanted:
        if not alignments:
            raise OptionError("--explain: there is no profile to explain")
        error: ValueError | None = None
        told = False
        for alignment in alignments:  # each process has its own numbers
            try:
                lines = list(explained(alignment, what))
            except ValueError as refused:
                error = refused
                continue
            process = alignment.profile.process.label
            yield from (f"{process}: {line}" if process and len(alignments) > 1 else line for line in lines)
            told = True
        if not told:
            raise OptionError(f"--explain {error}")


def _of_one_run(analysis: Analysis) -> list[Run]:
    """Return the run, and profiles that belong to no run. Raises `InputError` if there are several runs."""
    run = analysis.run
    chosen = [run, *(other for other in analysis.runs if other is not run and other.alignments)]
    count = sum(len(each.alignments) for each in chosen)
    if count > 1 and (len(chosen) > 1 or not run.is_job):
        has_logs = any(each.logs or each.libraries for each in chosen)
        what = "the logs are joined with the profile that they fit best" if has_logs else "their clocks are not related"
        analysis.notes.add(f"{count} different profiles: {what}")
    return chosen


def _why_no_job(analysis: Analysis) -> str:
    profiles = [profile for run in analysis.runs for profile in run.profiles]
    if len(profiles) < 2:
        return "one profile; expected those of several processes of a job"
    if any(profile.process.pid is None and profile.process.rank is None for profile in profiles):
        return "a profile states neither process nor rank; expected the profiles of several processes of a job"
    return "not of one job: their clocks, folders and ranks show several runs"


def _require_something_to_draw(analysis: Analysis, runs: Sequence[Run]) -> None:
    """Raises `InputError` if nothing has a time."""
    notes = analysis.notes
    profiles = [profile for run in runs for profile in run.profiles]
    if any(run.framework is not None for run in runs):
        return
    empty = sum(not (profile.activities or profile.other_calls) for profile in profiles)
    if empty == len(profiles) and not any(run.has_times for run in runs):
        raise InputError(f"{analysis.names}: {what_is_missing(runs[0], notes)}")
    if empty:
        notes.add("no kernel, copy or build in the profile: it is not used", count=empty)


def _require_related_clocks(runs: Sequence[Run]) -> None:
    """Raises `UnrelatedClocks` if the clocks of a job's processes cannot be related."""
    for run in runs:
        apart = [one.profile.process.label for one in run.alignments if run.is_job and one.process_clock is None]
        if apart:
            first, names = run.alignments[0].profile.process.label, ", ".join(apart[:3])
            more = f" and {len(apart) - 3} more" if len(apart) > 3 else ""
            raise UnrelatedClocks(
                f"{run.name}: nothing relates the clock of {names}{more} to that of {first} (a machine's name, Unix"
                " time, or collective kernels that must overlap); --align start begins each process at its own start"
            )


def _to_draw(runs: Sequence[Run], several: bool) -> list[RunToDraw]:
    """Return each run by itself, or the first run and the profiles of the others."""
    drawn = [
        RunToDraw(
            name=run.name,
            measures=run.drawn,
            logs=run.logs,
            libraries=[share.libraries for share in run.shares],
        )
        for run in runs
    ]
    if several:
        return drawn
    measures = [measures for run in runs for measures in run.drawn]
    return [msgspec.structs.replace(drawn[0], measures=measures)]


def what_is_missing(run: Run, notes: Notes) -> str:
    """The reason why a run cannot be drawn."""
    if run.profiles:
        lost = "; ".join(map(str, notes.problems))
        host = sum(len(profile.ranges) for profile in run.profiles)
        launched = sum(Launches(profile, has_common_clock=False).without_kernels for profile in run.profiles)
        by_rocprofv3 = all(profile.clocks[0].kind == "boottime" for profile in run.profiles)
        if launched and lost:
            lost = f"it holds {count(launched, 'kernel launch')} and no kernel that could be read: {lost}"
        elif launched:
            why = "no permission, or another profiler uses the GPU"
            if by_rocprofv3:
                why = f"rocprofv3 records kernels with --kernel-trace or --sys-trace; else {why}"
            lost = f"it holds {count(launched, 'kernel launch')}, so the profiler got no records of the GPU ({why})"
        elif host and not lost:
            many = f"{host:,} ops and ranges" if host > 1 else "1 op or range"
            lost = f"it holds {many} of the host and no work of a device"
            if any(made.text.startswith("aten::") for profile in run.profiles for made in profile.ranges):
                lost += " (torch.profiler records that with ProfilerActivity.CUDA, on AMD GPUs too)"
            elif by_rocprofv3:
                lost += " (rocprofv3 records that with --kernel-trace or --sys-trace)"
        elif by_rocprofv3 and not lost and (calls := sum(profile.records for profile in run.profiles)):
            lost = (
                f"it holds {count(calls, 'call')} of the host and no work of a device (rocprofv3 records that with "
                "--kernel-trace or --sys-trace)"
            )
        return f"no kernel, copy or build in the profile: {lost or 'the program ran nothing on the device'}"
    if run.libraries:
        size = sum(log.size for log in run.libraries)
        held = (
            f"{count(size, 'record')} of MIOpen's log but no time"
            if size
            else "neither an operation (MIOPEN_ENABLE_LOGGING=1 makes MIOpen print them) nor a time in MIOpen's log"
        )
        return f"{held}; expected the profile of the same run, too"
    if run.framework is not None:
        return (
            "ops on the host, and no kernel or copy to report on; `mio2trace tfprof` lists the ops, `-o out.pftrace` "
            "draws them"
        )
    for one in run.side_files:
        if one.kind == "find-db" or one.kind == "perf-db":
            return (
                f"a {one.kind} of MIOpen with {count(len(one.records), 'problem')}, which `mio2trace messages` shows; "
                "expected a profile or a log, too"
            )
        lists = "`mio2trace ops` lists them"
        if not one.gemms:
            lists = "HIPBLASLT_LOG_MASK=32 or ROCBLAS_LAYER=2 makes it print them"
        return (
            f"{count(len(one.gemms), 'GEMM')} of a BLAS library but no profile: {lists}; expected the profile of the "
            "same run, too"
        )
    lost = "".join(f"; {note}" for note in notes.problems if not note.is_lost)
    if any(log.first_stamp is not None for log in run.logs):
        return (
            "log lines without times of layers, as `caffe time` prints them; expected those, or the profile of the "
            f"same run, too{lost}"
        )
    return f"nothing that has a time; expected kernels, layer times or iterations{lost}"


def _check(trace: Trace, alignments: Sequence[Alignment]) -> None:
    """Verify the invariants of the trace (alignment.md, Invariants)."""
    commands = [alignment.profile.commands for alignment in alignments]
    count, ns = sum(int(one.has_times.sum()) for one in commands), sum(sum(one.time_ns.tolist()) for one in commands)
    found = trace.metadata["attribution"]
    if sum(found["layer_by"].values()) + found["unattributed"] != found["kernels"] + found["copies"]:
        raise AssertionError("the attribution does not add up to the kernels and copies read")
    for _ in checked(trace, count, ns):
        pass


def _target(output: str | os.PathLike[str] | BinaryIO) -> tuple[Writer, bool, str | BinaryIO]:
    if not isinstance(output, (str, os.PathLike)):
        return WRITERS[0], False, output
    path = os.fspath(output)
    form = by_suffix(path)
    if form is None and path.lower().endswith(TABLES_SUFFIX):
        raise OptionError(f"{path}: tables are no trace; `mio2trace.load(...).write` writes them")
    if form is None:
        raise OptionError(f"{path}: expected a name that ends in {', '.join(suffixes())}, or -")
    return *form, path


def _write(trace: Trace, writer: Writer, compress: bool, target: str | BinaryIO) -> Written:
    if target == "-":
        with standard_output() as stdout:
            return write(writer, trace, stdout)
    if not isinstance(target, str):
        return write(writer, trace, target)
    with replacing(target) as file:
        return write(writer, trace, file, compress=compress)


__all__ = ["Conversion", "HostCalls", "Progress", "convert"]
