"""The whole run: bytes -> records -> alignment -> picture -> output. What the command line, tests and scripts call."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, get_args

import msgspec
import orjson

import mio2trace
from mio2trace import summary
from mio2trace.align import EVIDENCE, Alignment, align
from mio2trace.draw import BuildOptions, Fold, HostCalls, Selection, Tracks, build
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import MiopenLog
from mio2trace.model.profile import Profile
from mio2trace.model.tf import TfProfile
from mio2trace.notes import InputError, Notes, OptionError
from mio2trace.ops import operations
from mio2trace.ops.operation import Operation
from mio2trace.privacy import Cleaner
from mio2trace.readers import detect
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.ck import record as ck
from mio2trace.source import Source
from mio2trace.summary.explain import explain as explained
from mio2trace.trace import Trace, checked
from mio2trace.writers import Writer, Written, by_suffix, suffixes, write

Progress = Callable[[str, int, int], None]


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversion made: the trace, its metadata, the notes, the lines of the report, the size of the output."""

    trace: Trace
    metadata: dict[str, Any]
    notes: Notes
    report: list[str]
    written: Written | None = None


def convert(
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
    with_args: bool = True,
    without: Sequence[str] = (),
    repetition: int | None = None,
    tags: Sequence[str] = (),
    by_order_alone: bool = False,
    explain: Sequence[str] = (),
    check: bool = False,
    strict: bool = False,
    summary_file: str | os.PathLike[str] | None = None,
    keep: Sequence[str] = (),
    max_input: int | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Join the files of one run into a trace, and write it to ``output`` unless that is None.

    ``files``: logs and profiles in any order, ``-`` for standard input, a CK directory (``tags`` chooses in it).
    ``host_calls``: which API calls to draw. ``tracks``: more of them (`kernels`, `operations`) beside the nested one;
    ``fold``: what to put on a track of its own (`find`, `set-up`, `warm-up`). ``begin``, ``end`` (``1.2s``, ``iteration
    3``, ``layer conv1``), ``iterations`` (``2-4``), ``top``, ``min_duration`` (``10us``): which part to draw; links and
    summary are of the whole run. ``with_args``: whether slices have arguments. ``without``: kinds of evidence to leave
    out (`mio2trace.align.EVIDENCE`). ``repetition``: of a CK record, from 0. ``by_order_alone``: go on where the clocks
    say that the files are not of one run. ``explain``: what the report gives the reasons for
    (`mio2trace.summary.explain`). ``keep``: private things to leave in (`mio2trace.privacy.KINDS`). ``max_input``:
    bytes that an input may hold, decompressed (default: `mio2trace.source.Source`). ``check``: verify the invariants of
    what is written. ``strict``: a problem is an error. A path as ``output`` is replaced as a whole or not at all; its
    suffix decides the form.

    Raises `InputError` with one line that says what is wrong with an input; `OptionError`, a ValueError, for an option
    that is none.
    """
    unknown = set(without) - set(EVIDENCE)
    if unknown:
        raise OptionError(f"no such evidence: {', '.join(sorted(unknown))}; expected {', '.join(EVIDENCE)}")
    options = BuildOptions(
        host_calls=host_calls,
        tracks=_words("tracks", tracks, get_args(Tracks)),
        fold=_words("fold", fold, get_args(Fold)),
        selection=Selection(begin=begin, end=end, iterations=iterations, top=top, min_duration=min_duration),
        with_args=with_args,
    )
    cleaner = Cleaner(keep)
    if not files:
        raise OptionError("no input; expected the files of a run")
    target = None if output is None else _target(output)
    notes = Notes()
    # Millions of small records and no cycles: the collector would only walk them again and again.
    with _without_garbage_collection():
        records, inputs = _read(
            files,
            ReadOptions(host_calls=host_calls == "all", repetition=repetition),
            tags,
            notes,
            cleaner,
            partial(Source, notes=notes, progress=progress, max_input=max_input),
        )
        profiles = _one_run([record for record in records if isinstance(record, Profile)], notes)
        logs = [record for record in records if isinstance(record, FrameworkLog)]
        libraries = [record for record in records if isinstance(record, MiopenLog)]
        tf_profiles = [record for record in records if isinstance(record, TfProfile)]
        if not any(step.executions for profile in tf_profiles for node in profile.nodes for step in node.steps):
            _require_something_to_draw(", ".join(fact.name for fact in inputs), profiles, logs, libraries, notes)
            profiles = _with_something_to_draw(profiles, notes)
        calls = _calls(libraries, notes)
        alignments = [
            align(
                profile,
                logs if not number else (),
                notes,
                operations=calls if not number else (),
                without=frozenset(without),
                by_order_alone=by_order_alone,
                keep_reasons=bool(explain),
                tf_profiles=tf_profiles if not number else (),
            )
            for number, profile in enumerate(profiles)
        ]
        facts = summary.metadata(f"mio2trace {mio2trace.__version__}", inputs, alignments)
        trace = build(alignments, logs, options, facts, notes, tf_profiles, libraries)
        facts["notes"] = dict(sorted(summary.notes_object(notes).items()))
        if strict and notes.problems:
            raise InputError("--strict: " + "; ".join(map(str, notes.problems)))
        if check:
            _check(trace, alignments)
        written = None
        if target is not None:
            written = _write(trace, *target)
        if summary_file is not None:
            with replacing(os.fspath(summary_file)) as file:
                file.write(orjson.dumps(facts, option=orjson.OPT_INDENT_2) + b"\n")
    return Conversion(
        trace=trace,
        metadata=facts,
        notes=notes,
        report=[
            cleaner.text(line)
            for line in [*summary.report(inputs, alignments, facts, notes), *_reasons(alignments, explain)]
        ],
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
        try:
            yield from explained(alignments[0], what)
        except ValueError as error:
            raise OptionError(f"--explain {error}") from None


def _read(
    files: Sequence[str | os.PathLike[str]],
    options: ReadOptions,
    tags: Sequence[str],
    notes: Notes,
    cleaner: Cleaner,
    opened: Callable[[str, int], Source],
) -> tuple[Records, list[summary.InputFact]]:
    read: list[tuple[summary.InputFact, Records]] = []
    for index, file in enumerate(files):
        path = os.fspath(file)
        if path != "-" and os.path.isdir(path):
            path = ck.locate(path, tuple(tags), notes)
        source = opened(path, index)
        try:
            cleaner.learn(source.head)
            reader = detect(source)
            found = reader.read(source, options, notes)
            source.drain()
        finally:
            source.close()
        fact = summary.InputFact(
            name=source.name,
            format=reader.NAME,
            size=source.size,
            sha256=source.sha256,
            holds=summary.describe(found),
        )
        if any(fact.sha256 == other.sha256 for other, _ in read):
            notes.remark("input given twice taken once", source.name)
        else:
            read.append((fact, found))
    # The order in which they were given means nothing, so it changes nothing either.
    read.sort(key=lambda pair: (pair[0].format, pair[0].sha256))
    return cleaner.cleaned([record for _, found in read for record in found]), [fact for fact, _ in read]


def _one_run(profiles: Sequence[Profile], notes: Notes) -> list[Profile]:
    """Profiles with the fullest first; the same profile given twice (in a log and as a file) counts once.

    Of such two the one whose places in the log tell something stays.
    """
    kept: list[Profile] = []
    for profile in sorted(profiles, key=lambda p: (-len(p.enqueues), not p.interleaved)):
        if any(_same(profile, other) for other in kept):
            notes.remark("profile that is in two inputs taken once")
        else:
            kept.append(profile)
    if len(kept) > 1:
        notes.add(f"{len(kept)} different profiles: the logs are joined with the one that has most kernels")
    return kept


def _same(one: Profile, other: Profile) -> bool:
    def key(profile: Profile) -> object:
        return profile.calls, [(e.call_index, e.name, e.start_ns, e.host_start_ns) for e in profile.enqueues]

    return one.calls == other.calls and len(one.enqueues) == len(other.enqueues) and key(one) == key(other)


def _calls(logs: Sequence[MiopenLog], notes: Notes) -> tuple[Operation, ...]:
    """The operations of the log that has most of them: one process writes one log."""
    found = sorted((operations(log) for log in logs), key=len, reverse=True)
    if len(found) > 1 and found[1]:
        notes.add(f"{len(found)} MIOpen logs: the profile is joined with the one that has most operations")
    return found[0] if found else ()


def _require_something_to_draw(
    place: str,
    profiles: Sequence[Profile],
    logs: Sequence[FrameworkLog],
    libraries: Sequence[MiopenLog],
    notes: Notes,
) -> None:
    if any(profile.enqueues or profile.host_calls for profile in profiles):
        return
    if any(log.layers or any(e.kind == "iteration" for e in log.events) for log in logs):
        return
    if profiles:
        lost = "; ".join(map(str, notes.problems))
        why = lost or "the program ran nothing on the device"
        raise InputError(f"{place}: no kernel, copy or build in the profile: {why}")
    if libraries:
        raise InputError(
            f"{place}: {sum(len(log.records) for log in libraries)} records of MIOpen's log but no time; "
            "expected the profile of the same run, too"
        )
    raise InputError(f"{place}: nothing that has a time; expected kernels, layer times or iterations")


def _with_something_to_draw(profiles: Sequence[Profile], notes: Notes) -> list[Profile]:
    """Without those that hold nothing: beside such a one a log would lose the picture that it has alone."""
    found = [profile for profile in profiles if profile.enqueues or profile.host_calls]
    if len(found) < len(profiles):
        notes.add("no kernel, copy or build in the profile: drawn without it", count=len(profiles) - len(found))
    return found


def _check(trace: Trace, alignments: Sequence[Alignment]) -> None:
    """Verify the invariants of what is drawn (alignment.md, Invariants)."""
    drawn = [e for a in alignments for e in a.profile.enqueues if e.start_ns is not None and e.end_ns is not None]
    expected = {"count": len(drawn), "ns": sum((e.end_ns or 0) - (e.start_ns or 0) for e in drawn)}
    found = trace.metadata["attribution"]
    if sum(found["layer_by"].values()) + found["unattributed"] != found["kernels"] + found["copies"]:
        raise AssertionError("the attribution does not add up to the kernels and copies read")
    for _ in checked(trace, expected["count"], expected["ns"]):
        pass


def _target(output: str | os.PathLike[str] | BinaryIO) -> tuple[Writer, bool, str | BinaryIO]:
    if not isinstance(output, (str, os.PathLike)):
        form = by_suffix("-")
        assert form is not None
        return *form, output
    path = os.fspath(output)
    form = by_suffix(path)
    if form is None:
        raise OptionError(f"{path}: expected a name that ends in {', '.join(suffixes())}, or -")
    return *form, path


def _write(trace: Trace, writer: Writer, compress: bool, target: str | BinaryIO) -> Written:
    if target == "-":
        with _to_standard_output() as stdout:
            written = write(writer, trace, stdout)
            stdout.flush()
            return written
    if not isinstance(target, str):
        return write(writer, trace, target)
    with replacing(target) as file:
        return write(writer, trace, file, compress=compress)


@contextlib.contextmanager
def _to_standard_output() -> Iterator[BinaryIO]:
    stdout = getattr(sys.stdout, "buffer", None)
    if stdout is None:
        raise InputError("standard output: closed")
    try:
        yield stdout
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # the reader has seen enough
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer goes nowhere, without a word
        raise InputError(f"standard output: {error.strerror or error}") from None


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` when all of it is written, and leaves no trace when it is not.

    Raises `InputError` when the place cannot be written.
    """
    try:
        real = Path(os.path.realpath(path))
    except OSError as error:  # the current folder is gone
        raise InputError(f"{path}: cannot write there: {error.strerror or error}") from None
    if real.exists() and not real.is_file():
        try:
            with open(real, "wb") as device:  # /dev/null, a pipe: nothing to keep whole
                yield device
            return
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
    try:
        handle, temporary = tempfile.mkstemp(prefix=".mio2trace-", suffix=".tmp", dir=real.parent)
    except OSError as error:
        raise InputError(f"{path}: cannot write there: {error.strerror or error}") from None
    try:
        with open(handle, "wb") as file:
            yield file
            file.flush()
        mode = real.stat().st_mode & 0o7777 if real.exists() else 0o666 & ~_umask()
        os.chmod(temporary, mode)
        os.replace(temporary, real)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise InputError(f"{path}: {error.strerror or error}; what was there before is unchanged") from None
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # What was made goes straight to the oldest generation; else the collector would walk it all at once now.
        gc.freeze()
        gc.unfreeze()
        if enabled:
            gc.enable()


__all__ = ["Conversion", "HostCalls", "convert"]
