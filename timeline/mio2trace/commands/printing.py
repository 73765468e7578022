"""The output of a command: tables and lines on standard output; notes, errors and progress on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

import click

from mio2trace.outgoing import count, visible

if TYPE_CHECKING:
    from mio2trace.analysis import Run
    from mio2trace.commands.options import Printing
    from mio2trace.model.profile import Profile
    from mio2trace.notes import Note, Notes
    from mio2trace.reports.tables import Row, Table

INCOMPLETE = 4
"""Exit code of ``--strict`` if a profile is incomplete."""


_COLOURS = {
    "problem": "yellow", "HIGH": "red", "MEDIUM": "yellow", "LOW": "cyan", "PROFILE INCOMPLETE": "yellow",
    "SLOWER": "red", "FASTER": "green", "NOT DECIDED": "yellow",
}  # fmt: skip


class Refused(click.ClickException):
    """An unusable input: one line on stderr, exit code 1."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        tell(f"mio2trace: {self.message}")


def tell(line: str, *, coloured: bool = False) -> None:
    from mio2trace.notes import said

    click.echo(styled(visible(line)) if coloured else visible(line), err=True)
    said(line)


def write(pieces: Iterable[str]) -> None:
    """Write to standard output in UTF-8, whatever the locale. Raises `InputError` if that fails."""
    from mio2trace.files import standard_output

    with standard_output() as out:
        for piece in pieces:
            out.write(piece.encode(errors="replace"))


def say(notes: Iterable[Note], lines: Sequence[str], quiet: bool) -> None:
    """Print lines and notes on stderr without private data: a note may quote a name.

    ``quiet``: only problems, including those with reading. Complaints of the library in its log are no problems with
    reading.
    """
    from mio2trace.notes import LOGGED

    if quiet:
        lines, notes = [], [note for note in notes if note.problem and note.kind not in LOGGED]
        if not notes:
            return
    from mio2trace.privacy import Cleaner

    cleaner = Cleaner()
    for line in [*lines, *(f"{'problem' if note.problem else 'note'}: {note}" for note in notes)]:
        tell(cleaner.quoted(line))


def show(
    make: Callable[[], Table],
    printing: Printing,
    notes: Notes,
    said: list[str],
    quiet: bool,
    *,
    header: bool = True,
) -> None:
    """Print the selected rows and columns of the table that ``make`` makes. Standard error gets ``said``, the notes,
    and the reason if there is no row. Without ``header`` the first line is left out."""
    from mio2trace.memory import without_garbage_collection
    from mio2trace.reports.tables import SelectionError, left_out, print_table, select

    form = printing.printed_as()
    with without_garbage_collection():
        whole = make()
        try:
            table = select(whole, printing.selection())
        except SelectionError as error:
            raise click.UsageError(str(error)) from None
        width = line_width() if printing.path in (None, "-") else None
        pieces = print_table(table, form, width)
        put(pieces if header else "".join(pieces).splitlines(keepends=True)[1:], printing.path)
        if not len(table.rows):
            said = [*said, f"no row: {table.empty}" if table.empty else "no row"]
        elif len(table.rows) < len(whole.rows):
            said = [*said, f"{len(table.rows):,} of {count(len(whole.rows), 'row')}"]
        missing = left_out(table, width) if form == "table" and width is not None else []
    if missing:
        said = [*said, f"no room for {', '.join(missing)} (--columns chooses, --format csv has all)"]
    say(notes, said, quiet)


def put(pieces: Iterable[str], path: str | None) -> None:
    """Write to standard output, or replace a file as a whole. Raises `InputError` if that fails."""
    from mio2trace.files import replacing

    if path in (None, "-"):
        write(pieces)
        return
    with replacing(path) as out:
        for piece in pieces:
            out.write(piece.encode(errors="replace"))


def line_width() -> int | None:
    """Return the length of a line on standard output: of the terminal, or the value of ``COLUMNS``; None: no limit."""
    if not is_for_a_person() and not os.environ.get("COLUMNS", "").isdigit():
        return None
    import shutil  # imported here because it loads all compressions

    return shutil.get_terminal_size().columns


def is_for_a_person() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def is_terminal() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def styled(line: str) -> str:
    """Colour a line for standard error if that is a terminal."""
    return _in_colour(line) if is_terminal() else line


def coloured(text: str) -> str:
    """Colour lines for standard output if that is a terminal."""
    return "".join(map(_in_colour, text.splitlines(keepends=True))) if is_for_a_person() else text


def _in_colour(line: str) -> str:
    colour = next((colour for begin, colour in _COLOURS.items() if line.startswith(begin)), None)
    return line if colour is None or os.environ.get("NO_COLOR") else click.style(line, fg=colour)


class ProgressLine:
    """One line of the terminal that is rewritten."""

    def __init__(self) -> None:
        self._shown = ""

    def show(self, text: str) -> None:
        if text != self._shown:
            self._shown = text
            click.echo(f"\r\x1b[2K{visible(text)}", nl=False, err=True)

    def done(self) -> None:
        """Clear the line."""
        if self._shown:
            click.echo("\r\x1b[2K", nl=False, err=True)
            self._shown = ""


class Progress(ProgressLine):
    """Show how much of a large input has been read."""

    def __call__(self, name: str, done: int, total: int) -> None:
        if max(done, total) >= 20_000_000:
            self.show(f"reading {name}: {100 * done // total} %" if total else f"reading {name}: {done >> 20} MB")


# -- The column that distinguishes the processes of a job --------------------------------------------------------------


def process_cells(profile: Profile) -> Row:
    """Return the cell ``rank``, else ``pid``; no cell if there is only one process."""
    process = profile.process
    if not process.label:
        return {}
    for name, number in (("rank", process.rank), ("pid", process.pid)):
        if number is not None:
            return {name: number}
    return {"process": process.label}


def places(run: Run) -> range:
    """Return the profiles that a table shows: all profiles of a job, else the first."""
    return range(len(run.profiles) if run.is_job else 1)
