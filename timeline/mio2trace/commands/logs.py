"""What the commands on MIOpen logs share: reading the files, saying what was met, telling a bad input in one line."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from mio2trace.outgoing import visible

if TYPE_CHECKING:
    from mio2trace.model.miopen import MiopenLog
    from mio2trace.notes import Notes
    from mio2trace.ops.operation import Operation

files_argument = click.argument("files", nargs=-1, required=True, metavar="FILE...")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")


@contextmanager
def one_line_errors() -> Iterator[None]:
    """An input that cannot be used is one line on stderr and exit code 1."""
    from mio2trace.notes import InputError

    try:
        yield
    except InputError as error:
        tell(f"mio2trace: {error}")
        sys.exit(1)


def read(files: Sequence[str], notes: Notes) -> Iterator[tuple[str, MiopenLog, tuple[Operation, ...]]]:
    """Name, log and operations of each file in turn. Raises `InputError` for one without a MIOpen line."""
    if files.count("-") > 1:
        raise click.UsageError("standard input (-) can be given once")
    # Many small records and no cycles: the collector would only walk them again and again.
    gc.disable()
    try:
        yield from _each(files, notes)
    finally:
        gc.enable()


def _each(files: Sequence[str], notes: Notes) -> Iterator[tuple[str, MiopenLog, tuple[Operation, ...]]]:
    from mio2trace.model.miopen import MiopenLog
    from mio2trace.notes import InputError
    from mio2trace.ops import operations
    from mio2trace.privacy import Cleaner
    from mio2trace.readers import READERS, run_log
    from mio2trace.readers.base import ReadOptions
    from mio2trace.source import Source

    for index, path in enumerate(files):
        source = Source(path, index, notes)
        cleaner = Cleaner()
        cleaner.learn(source.head)
        try:
            # Lines of JSON are a log, too (miopen-log.md 9.3): what is nothing else is read as one.
            other = next((reader for reader in READERS if reader is not run_log and reader.sniff(source.head)), None)
            if other is not None:
                raise InputError(f"{source.name}: is a {other.NAME}; expected MIOpen's log")
            if not source.head.strip():
                raise InputError(f"{source.name}: empty; expected MIOpen's log")
            records = cleaner.cleaned(run_log.read(source, ReadOptions(), notes))
        finally:
            source.close()
        log = next((record for record in records if isinstance(record, MiopenLog)), None)
        if log is None:
            raise InputError(f"{source.name}: holds no line of MIOpen; expected MIOpen's log")
        # the bytes of a name need not be UTF-8
        yield os.fsencode(source.name).decode(errors="replace"), log, operations(log)


def write(pieces: Iterable[str]) -> None:
    """Standard output, in UTF-8 whatever the locale."""
    out = sys.stdout.buffer
    for piece in pieces:
        out.write(piece.encode())
    out.flush()


def say(notes: Notes, lines: Sequence[str], quiet: bool) -> None:
    """Counts and what was met, on stderr."""
    if quiet:
        return
    for line in lines:
        tell(line)
    for note in notes:
        tell(f"{'problem' if note.problem else 'note'}: {note}")


def tell(line: str) -> None:
    """One line on stderr."""
    click.echo(visible(line), err=True)
