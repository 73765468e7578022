"""What a command prints: tables and lines on standard output; on standard error what was met, errors and progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

import click

from mio2trace.outgoing import visible

if TYPE_CHECKING:
    from mio2trace.analysis import Run
    from mio2trace.commands.options import Printing
    from mio2trace.model.profile import Profile
    from mio2trace.notes import Note, Notes
    from mio2trace.reports.tables import Row, Table

INCOMPLETE = 4
"""Exit code of ``--strict`` if a profile does not hold all work."""


_COLOURS = {
    "problem": "yellow", "HIGH": "red", "MEDIUM": "yellow", "LOW": "cyan", "PROFILE INCOMPLETE": "yellow",
    "SLOWER": "red", "FASTER": "green", "NOT DECIDED": "yellow",
}  # fmt: skip


class Refused(click.ClickException):
    """An input that cannot be used: one line on stderr, exit code 1."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        tell(f"mio2trace: {self.message}")


def tell(line: str, *, coloured: bool = False) -> None:
    from mio2trace.notes import said

    click.echo(styled(visible(line)) if coloured else visible(line), err=True)
    said(line)


def write(pieces: Iterable[str]) -> None:
    """Standard output, in UTF-8 whatever the locale. Raises `InputError` where it cannot be written."""
    from mio2trace.files import standard_output

    with standard_output() as out:
        for piece in pieces:
            out.write(piece.encode(errors="replace"))


def say(notes: Iterable[Note], lines: Sequence[str], quiet: bool) -> None:
    """Counts and what was met, on stderr, without what is private: a note may quote a name.

    ``quiet``: problems alone, what could not be read among them; what the library complains of is none of reading.
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
    """Print what is asked for of the table that ``make`` makes; on standard error ``said``, the notes, and why there is
    no row where there is none. Without ``header`` the first line is left out."""
    from mio2trace.memory import without_garbage_collection
    from mio2trace.reports.tables import SelectionError, print_table, select
    from mio2trace.reports.tables.person import left_out

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
            said = [*said, f"{len(table.rows)} of {len(whole.rows)} rows"]
        missing = left_out(table, width) if form == "table" and width is not None else []
    if missing:
        said = [*said, f"no room for {', '.join(missing)} (--columns chooses, --format csv has all)"]
    say(notes, said, quiet)


def put(pieces: Iterable[str], path: str | None) -> None:
    """Standard output, or a file that is replaced as a whole. Raises `InputError` where it cannot be written."""
    from mio2trace.files import replacing

    if path in (None, "-"):
        write(pieces)
        return
    with replacing(path) as out:
        for piece in pieces:
            out.write(piece.encode(errors="replace"))


def line_width() -> int | None:
    """Characters of a line on standard output: the terminal's, or what ``COLUMNS`` says; None: as long as it gets."""
    if not is_for_a_person() and not os.environ.get("COLUMNS", "").isdigit():
        return None
    import shutil  # it loads all compressions

    return shutil.get_terminal_size().columns


def is_for_a_person() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def is_terminal() -> bool:
    """Whether standard error is one."""
    return sys.stderr is not None and sys.stderr.isatty()


def styled(line: str) -> str:
    """A line for standard error, coloured if that is a terminal."""
    return _in_colour(line) if is_terminal() else line


def coloured(text: str) -> str:
    """Lines for standard output, coloured if that is a terminal."""
    return "".join(map(_in_colour, text.splitlines(keepends=True))) if is_for_a_person() else text


def _in_colour(line: str) -> str:
    """Problems, verdicts and severities in colour, if colour is wanted."""
    colour = next((colour for begin, colour in _COLOURS.items() if line.startswith(begin)), None)
    return line if colour is None or os.environ.get("NO_COLOR") else click.style(line, fg=colour)


class Progress:
    """How much of a large input is read, on one line of the terminal."""

    def __init__(self) -> None:
        self._shown = ""

    def __call__(self, name: str, done: int, total: int) -> None:
        if max(done, total) < 20_000_000:
            return
        text = f"reading {name}: {100 * done // total} %" if total else f"reading {name}: {done >> 20} MB"
        if text != self._shown:
            self._shown = text
            click.echo(f"\r\x1b[2K{visible(text)}", nl=False, err=True)

    def done(self) -> None:
        """Leave no half line behind."""
        if self._shown:
            click.echo("\r\x1b[2K", nl=False, err=True)
            self._shown = ""


# -- The column that tells the processes of a job apart ----------------------------------------------------------------


def process_cells(profile: Profile) -> Row:
    """``rank``, else ``pid``; nothing where there is one process."""
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
