"""What the commands on profiles and layer times share: reading the files, options, printing the table."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mio2trace.commands.logs import say, write

if TYPE_CHECKING:
    from mio2trace.align import Alignment
    from mio2trace.model.profile import Profile
    from mio2trace.notes import Notes
    from mio2trace.readers.base import ReadOptions, Records
    from mio2trace.reports.tables import Table

FORMS = ("table", "csv", "json", "jsonl", "markdown")

format_option = click.option(
    "--format", "form", type=click.Choice(FORMS), help="Default: table on a terminal, csv otherwise."
)
columns_option = click.option("--columns", metavar="COLUMN,...", help="Only these columns, in this order.")
unit_option = click.option(
    "--unit",
    type=click.Choice(["ns", "us", "ms", "s"]),
    default="ns",
    show_default=True,
    help="Unit of the times; the names of their columns end in it.",
)
tags_option = click.option("--tags", default="", metavar="A,B", help="Tags that choose an entry in a CK directory.")
repetition_option = click.option(
    "--repetition", type=click.IntRange(min=0), metavar="N", help="Repetition of a CK record, from 0."
)


class Input(NamedTuple):
    """A file as it was read; ``source`` is what its records have in the field of that name."""

    source: int
    name: str
    format: str
    size: int
    sha256: str
    records: Records


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Many small records and no cycles: the collector would only walk them again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def read_inputs(
    files: Sequence[str], options: ReadOptions, tags: str, notes: Notes, *, as_read: bool = False
) -> list[Input]:
    """The records of all files, without what is private unless ``as_read``; a file given twice counts once.

    Raises `InputError`.
    """
    from mio2trace.privacy import Cleaner
    from mio2trace.readers import detect
    from mio2trace.source import Source

    if files.count("-") > 1:
        raise click.UsageError("standard input (-) can be given once")
    found: list[Input] = []
    cleaner = Cleaner()
    with _without_garbage_collection():
        for index, file in enumerate(files):
            source = Source(_located(file, tags, notes), index, notes)
            try:
                cleaner.learn(source.head)
                reader = detect(source)
                records = reader.read(source, options, notes)
                source.drain()
            finally:
                source.close()
            if any(other.sha256 == source.sha256 for other in found):
                notes.remark("input given twice taken once", source.name)
            else:
                found.append(Input(index, _name(source.name), reader.NAME, source.size, source.sha256, records))
        if as_read:
            return found
        return [one._replace(records=cleaner.cleaned(one.records)) for one in found]


def read_repetitions(
    file: str, repetition: int | None, tags: str, notes: Notes
) -> tuple[list[Records], list[dict[str, int]]]:
    """What a file holds, repetition by repetition, and the times that CK states of each (`ck_times`).

    One that is no CK record, or a single run, is one repetition. Where some repetitions of a record say that they
    succeeded, the others are left out; with ``repetition`` it is that one alone. Raises `InputError`.
    """
    from mio2trace.notes import InputError
    from mio2trace.privacy import Cleaner
    from mio2trace.readers import detect
    from mio2trace.readers.base import ReadOptions
    from mio2trace.readers.ck import record as ck
    from mio2trace.readers.ck import times as ck_times
    from mio2trace.source import Source

    cleaner = Cleaner()
    with _without_garbage_collection():
        source = Source(_located(file, tags, notes), 0, notes)
        try:
            cleaner.learn(source.head)
            reader = detect(source)
            if reader is not ck:
                return [cleaner.cleaned(reader.read(source, ReadOptions(), notes))], []
            text = source.read()
        finally:
            source.close()
        runs: Sequence[ck_times.RunTimes] = ck_times.runs(text, source.name, notes)
        if repetition is None or runs[0].repetition is None:
            runs = ck_times.kept_runs(runs, source.name, notes)
        elif repetition < len(runs):
            runs = [runs[repetition]]
        else:
            raise InputError(f"{source.name}: no repetition {repetition}; it has {len(runs)}, counted from 0")
        records = []
        for run in runs:
            again = Source("-", 0, notes, stdin=io.BytesIO(text))
            again.name = source.name
            try:
                records.append(cleaner.cleaned(ck.read(again, ReadOptions(repetition=run.repetition), notes)))
            finally:
                again.close()
    return records, [run.times_ns for run in runs]


def _located(file: str, tags: str, notes: Notes) -> str:
    """The file itself, or the point that a CK directory holds."""
    if file != "-" and os.path.isdir(file):
        from mio2trace.readers.ck import record as ck

        return ck.locate(file, tuple(tag for tag in tags.split(",") if tag), notes)
    return file


def _name(name: str) -> str:
    """The bytes of a name need not be UTF-8."""
    return os.fsencode(name).decode(errors="replace")


def fullest_profile(records: Records, notes: Notes) -> Profile | None:
    """The profile with most activities; what else there is, is said."""
    from mio2trace.model.profile import Profile

    profiles = sorted(
        (record for record in records if isinstance(record, Profile)),
        key=lambda profile: (-len(profile.activities), not profile.interleaved),
    )
    if len(profiles) > 1:
        notes.add(f"{len(profiles)} profiles: the one that has most kernels and copies is taken")
    return profiles[0] if profiles else None


def aligned(profile: Profile, records: Records, notes: Notes) -> Alignment:
    """The profile joined with the logs of its run, and with the operations of MIOpen's. Raises `InputError`."""
    from mio2trace.align import align
    from mio2trace.model.log import FrameworkLog
    from mio2trace.model.miopen import MiopenLog
    from mio2trace.model.tf import TfProfile
    from mio2trace.ops import operations

    calls = [operations(record) for record in records if isinstance(record, MiopenLog)]
    if sum(map(bool, calls)) > 1:
        notes.add(f"{len(calls)} MIOpen logs: the profile is joined with the one that has most operations")
    return align(
        profile,
        [record for record in records if isinstance(record, FrameworkLog)],
        notes,
        operations=max(calls, key=len, default=()),
        tf_profiles=[record for record in records if isinstance(record, TfProfile)],
    )


def read_run(files: Sequence[str], notes: Notes) -> tuple[list[Input], Alignment | None] | None:
    """The files of a run and, where a profile is among them, MIOpen's operations joined with it.

    None when no file holds a profile, as far as that can be seen without reading standard input. Raises `InputError`.
    """
    from mio2trace.model.miopen import MiopenLog
    from mio2trace.notes import InputError
    from mio2trace.readers.base import ReadOptions

    if not _may_hold_a_profile(files):
        return None
    inputs = read_inputs(files, ReadOptions(), "", notes)
    records = [record for one in inputs for record in one.records]
    if not any(isinstance(record, MiopenLog) for record in records):
        raise InputError(f"{', '.join(one.name for one in inputs)}: holds no line of MIOpen; expected its log")
    profile = fullest_profile(records, notes)
    if profile is None or not profile.activities:
        return inputs, None
    return inputs, aligned(profile, records, notes)


def _may_hold_a_profile(files: Sequence[str]) -> bool:
    """Whether one of the files is a profile, or a log that holds dv/dt's blocks; standard input cannot be asked."""
    from mio2trace.notes import Notes
    from mio2trace.readers import detect, run_log
    from mio2trace.source import Source

    for index, file in enumerate(files):
        if file == "-":
            if len(files) > 1:
                return True
            continue
        source = Source(file, index, Notes())
        try:
            if detect(source) is not run_log or any(b"[dv/dt]" in block for block in source.blocks()):
                return True
        finally:
            source.close()
    return False


def show(make: Callable[[], Table], form: Any, columns: str | None, notes: Notes, said: list[str], quiet: bool) -> None:
    """Print the table that ``make`` makes on standard output, ``said`` and the notes on standard error."""
    from mio2trace.reports.tables import print_table

    with _without_garbage_collection():
        table = make()
        if columns:
            try:
                table = table.chosen(columns.split(","))
            except KeyError as error:
                raise click.UsageError(f"no column {error}; there are {', '.join(table.columns)}") from None
        write(print_table(table, form or ("table" if sys.stdout.isatty() else "csv")))
    say(notes, said, quiet)
