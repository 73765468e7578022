"""Subcommands: each reads options, prints a table or lines on standard output and notes on stderr, and sets the exit
code. Options, arguments and output that several commands share are here.

The module of a command is loaded when the command is called.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from mio2trace.outgoing import count, visible
from mio2trace.patterns import late

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mio2trace.analysis import Analysis, AnalysisOptions, Run
    from mio2trace.model.profile import Profile
    from mio2trace.notes import Note, Notes
    from mio2trace.reports import Form, Row, Table


_Command = Callable[..., Any]
RARE = frozenset({
    "repetition", "tags", "align", "max_input", "damaged", "tracks", "fold", "min_duration", "with_args", "without",
    "several", "explain", "summary_file", "keep", "seed_csv", "coverage", "engine", "download", "header",
})  # fmt: skip
"""Parameters whose options are shown by ``--help-all`` only."""


class Command(click.Command):
    """A command whose help leaves out rarely used options. ``--help-all`` shows them. A second output is refused where
    only one is written."""

    rare = RARE

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True, color=ctx.color)
            ctx.exit(2)
        may_be_several = not ctx.resilient_parsing and sum(word[:1] == "-" and "o" in word for word in args) > 1
        given = self.make_parser(ctx).parse_args([*args])[2] if may_be_several else []
        outputs = [one for one in given if "-o" in one.opts and not getattr(one, "multiple", False)]
        if len(outputs) > 1:
            raise click.UsageError(f"-o is given {len(outputs)} times: {self.name} writes one output", ctx)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        everything = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_help_all,
            help="Show this message with the options that few people need.",
        )
        has_rare = any(parameter.name in self.rare for parameter in self.params)
        return [*super().get_params(ctx), *([everything] if has_rare else [])]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in order; rarely used ones only if all are wanted."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        shown = [one for one in options if ctx.meta.get(_ALL) or one.name not in self.rare]
        with formatter.section("Options"):
            formatter.write_dl([record for one in shown if (record := one.get_help_record(ctx)) is not None])


_ALL = "mio2trace.help_all"


def _help_all(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


class TableCommand(Command):
    """A command whose tables are so short that the choice of columns and rows counts as rarely used."""

    rare = RARE | {"columns", "sort", "top", "where"}


FORMS = ("table", "csv", "json", "jsonl", "markdown")


def complete_files(ctx: click.Context, param: click.Parameter | None, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


files_argument = click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_files)
flag = functools.partial(click.option, is_flag=True)
"""An option without a value."""
quiet_option = flag("-q", "--quiet", help="Print only errors and problems on stderr.")
check_option = flag("--check", help="Verify the invariants of the trace while writing it.")
_SIZE = late(r"(\d{1,15})\s*([KMGT]?)B?", re.IGNORECASE | re.ASCII)


def size(text: str) -> int:
    """Convert a number of bytes such as ``500MB``, ``64G`` or ``1000``; K, M, G and T are powers of 1000."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size such as 500MB or 64G")
    return int(match[1]) * int(1000 ** " KMGT".index(match[2].upper() or " "))


def megabytes(number: int) -> str:
    """Return a number of bytes as ``1.2 MB``, or ``31 kB`` below 0.1 MB."""
    return f"{number / 1e6:.1f} MB" if number >= 1e5 else f"{number / 1e3:.0f} kB"


def choice_option(name: str, known: Sequence[str], help: str) -> Callable[[_Command], _Command]:
    """Return an option with one of the values ``known``; the first one is the default."""
    return click.option(name, type=click.Choice(known), default=known[0], show_default=True, help=help)


def words_option(name: str, known: Sequence[str], help: str) -> Callable[[_Command], _Command]:
    """Return an option for words from the list ``known``, with commas between them."""

    def words(text: str) -> tuple[str, ...]:
        found = tuple(word for part in text.lower().split(",") if (word := part.strip()))
        for word in found:
            if word not in known:
                raise click.BadParameter(f"{word!r} is none of {', '.join(known)}")
        return found

    return click.option(name, type=words, default="", metavar="WORD,...", help=help)


class Printing(NamedTuple):
    """How a table is printed: rows, columns, form, unit of time, and output."""

    form: str | None = None
    columns: tuple[str, ...] = ()
    sort: tuple[str, ...] = ()
    top: int | None = None
    where: tuple[str, ...] = ()
    unit: str | None = None
    path: str | None = None

    @property
    def selects(self) -> bool:
        """Whether rows or columns are chosen."""
        return any((self.columns, self.sort, self.top, self.where))

    @property
    def is_chosen(self) -> bool:
        """Whether an option about the table is given. Otherwise a command that has an answer prints the answer."""
        return self.selects or self.of_answer() != "table"

    def of_answer(self) -> Form:
        """Return the form as `printed_as` does; without an option it is a table on every output."""
        return "table" if self.form is None and self.path in (None, "-") else self.printed_as()

    def printed_as(self) -> Form:
        """Return the form that the option or the suffix of the file names, else the default form of the output."""
        if self.form is not None:
            return self.form  # type: ignore[return-value]
        if self.path is not None and self.path != "-":
            return _SUFFIXES.get(os.path.splitext(self.path)[1].lower(), "csv")
        return "table" if is_for_a_person() else "csv"

    def in_unit(self, table: Table, name_of: Callable[[str], str] = str) -> Table:
        """Return the table with its times in the unit that the option names. The default is milliseconds for a person,
        whole nanoseconds for a program."""
        from mio2trace.reports import in_unit

        return in_unit(table, self.unit or ("ms" if self.printed_as() in ("table", "markdown") else "ns"), name_of)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()


_OF_TABLES = "table on a terminal, csv otherwise"
_SUFFIXES: dict[str, Form] = {
    ".csv": "csv", ".json": "json", ".jsonl": "jsonl", ".md": "markdown", ".txt": "table",
}  # fmt: skip


def complete_columns(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a column, without its unit, after the last comma."""
    from mio2trace.schema import COLUMNS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in COLUMNS if name.startswith(last)]


damaged_option = flag(
    "--damaged", help="Read a trace that was changed or cut off since mio2trace wrote it, as far as possible."
)
_unit_option = click.option(
    "--unit",
    type=click.Choice(["ns", "us", "ms", "s"]),
    help="Unit of the times; the names of their columns end in it. Default: ms in tables and Markdown, ns in the other"
    " forms.",
)
_PRINTING = (
    click.option(
        "-o",
        "--output",
        "path",
        metavar="OUT",
        help="Output file; .csv, .json, .jsonl, .md or .txt choose the format. Default: standard output.",
    ),
    click.option(
        "--columns",
        type=_names,
        default="",
        metavar="COLUMN,...",
        help="Print only these columns, in this order.",
        shell_complete=complete_columns,
    ),
    click.option(
        "--sort",
        type=_names,
        default="",
        metavar="COLUMN,...",
        help="Order of the rows. Default: largest numbers first, texts from a to z. COLUMN:up and COLUMN:down choose"
        " the direction.",
        shell_complete=complete_columns,
    ),
    click.option("--top", type=click.IntRange(min=1), metavar="N", help="Print only the first N rows."),
    click.option(
        "--where",
        multiple=True,
        metavar="CONDITION",
        help="Print only rows that meet this condition, such as 'kernel_ms>1', 'layer=conv1', 'name~gemm'. Repeatable:"
        " all conditions must hold.",
        shell_complete=complete_columns,
    ),
)


def _collected(
    options: Sequence[Callable[[_Command], _Command]], keyword: str, make: Callable[[dict[str, Any]], Any]
) -> Callable[[_Command], _Command]:
    """Return a decorator that adds ``options``. The command gets as ``keyword`` what ``make`` takes out of them."""

    def decorate(command: _Command) -> _Command:
        @functools.wraps(command)
        def collected(**given: Any) -> Any:
            made = make(given)
            return command(**{keyword: made}, **given)

        decorated: _Command = collected
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def _printing(given: dict[str, Any]) -> Printing:
    printing = Printing(**{name: given.pop(name) for name in Printing._fields if name in given})
    refuse_to_overwrite(given.get("files") or (), printing.path)
    return printing


def printing_options(command: _Command, *, unit: bool = False, default: str = _OF_TABLES) -> _Command:
    """Add the options of `Printing`; the command gets them as ``printing``. ``unit``: also that of times. ``default``:
    what the command prints without ``--format``."""
    form = click.option("--format", "form", type=click.Choice(FORMS), help=f"Default: {default}.")
    return _collected((*[_unit_option] * unit, form, *_PRINTING), "printing", _printing)(command)


table_options = functools.partial(printing_options, unit=True)
"""Adds the options of `Printing` and the unit of times."""


def refuse_to_overwrite(files: Sequence[str], path: str | None) -> None:
    """Raises `click.UsageError` if the output is one of the inputs, and `InputError` if its folder is not there:
    a large input would be read in vain."""
    from mio2trace.notes import InputError

    if path is None or path == "-":
        return
    with contextlib.suppress(OSError, ValueError):  # an impossible name is an error when the file is opened
        if not os.path.exists(os.path.dirname(os.path.realpath(path))):
            raise InputError(f"{path}: cannot write there: {os.strerror(errno.ENOENT)}")
        if os.path.isfile(path) and any(_is_in(path, file) for file in files):
            raise click.UsageError(f"{path} is also an input")


def _is_in(target: str, file: str) -> bool:
    """Return whether the existing file ``target`` is the input ``file``, or one of the files in the CK directory
    ``file``."""
    if file == "-":
        stdin = getattr(sys.stdin, "buffer", None)
        try:
            return stdin is not None and os.path.samestat(os.stat(target), os.fstat(stdin.fileno()))
        except OSError:
            return False  # not a real file: a test's, or closed
    if os.path.isdir(file):
        real = os.path.realpath(target)
        inside = real.startswith(os.path.join(os.path.realpath(file), ""))
        return inside and os.path.basename(real).startswith("ckp-") and real.endswith(".json")
    return os.path.exists(file) and os.path.samefile(target, file)


class Inputs(NamedTuple):
    """The files of a command, and how they are read and sorted into runs: the options that messages of all readers
    recommend. ``quiet``: print only errors and problems."""

    files: tuple[str, ...] = ()
    quiet: bool = False
    tags: tuple[str, ...] = ()
    repetition: int | None = None
    by_order_alone: bool = False
    from_start: bool = False
    max_input: int | None = None

    @property
    def reading(self) -> dict[str, Any]:
        """The options of reading, by their names in `mio2trace.AnalysisOptions`."""
        return {name: getattr(self, name) for name in self._fields[2:]}

    def options(self, **more: Any) -> AnalysisOptions:
        from mio2trace.analysis import AnalysisOptions

        return AnalysisOptions(**{**self.reading, **more})

    def analyse(self, notes: Notes | None = None, **more: Any) -> Analysis:
        """Return the analysis of the files. ``more``: other options, which replace those of reading."""
        from mio2trace.analysis import analyse

        return analyse(self.files, self.options(**more), notes)


_READING = (
    click.option("--repetition", type=click.IntRange(min=0), metavar="N", help="Repetition of a CK record, from 0."),
    click.option("--tags", default="", metavar="A,B", help="Tags that choose an entry in a folder of CK."),
    choice_option(
        "--align",
        ("auto", "order", "start"),
        "'order': join the files by order alone, also if the clocks show that they are not of one run. 'start':"
        " begin each process of a job at its own start.",
    ),
    click.option(
        "--max-input",
        type=size,
        metavar="SIZE",
        help="Refuse an input that is larger than this after decompression. Default: no limit for plain files; for"
        " compressed files 200 times their size, but at least 256 MB.",
    ),
)


def _inputs(given: dict[str, Any]) -> Inputs:
    tags, align = tuple(tag for tag in given.pop("tags").split(",") if tag), given.pop("align")
    own = {name: given.pop(name) for name in ("files", "quiet", "repetition", "max_input") if name in given}
    return Inputs(**own, tags=tags, by_order_alone=align == "order", from_start=align == "start")


only_reading_options = _collected(_READING, "inputs", _inputs)
"""Adds the options of reading. The command gets them as ``inputs``, with ``files`` and ``quiet`` if it has these."""


def reading_options(command: _Command) -> _Command:
    """Add the options of reading and ``--quiet``; the command gets them as ``inputs``."""
    return only_reading_options(quiet_option(command))


def input_options(command: _Command) -> _Command:
    """Add the argument ``FILE...``, the options of reading and ``--quiet``; the command gets them as ``inputs``."""
    return files_argument(reading_options(command))


INCOMPLETE = 4
"""Exit code of ``--strict`` if a profile is incomplete."""


_COLOURS = {
    "problem": "yellow", "HIGH": "red", "MEDIUM": "yellow", "LOW": "cyan", "PROFILE INCOMPLETE": "yellow",
    "SLOWER": "red", "FASTER": "green", "NOT DECIDED": "yellow",
    "  step SLOWER": "red", "  step FASTER": "green", "  step NOT DECIDED": "yellow",
}  # fmt: skip


class Refused(click.ClickException):
    """An unusable input: one line on stderr, exit code 1."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        tell(f"mio2trace: {self.message}")


def tell(line: str, *, coloured: bool = False) -> None:
    """Print a line on stderr. A terminal gets it in lines of its own width that end between words."""
    from mio2trace.notes import said

    shown = visible(line)
    if is_terminal():
        if len(shown) > (width := terminal_width()):
            import textwrap

            shown = textwrap.fill(shown, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        shown = _in_colour(shown) if coloured else shown
    click.echo(shown, err=True)
    said(line)


def write(pieces: Iterable[str]) -> None:
    """Write to standard output in UTF-8, whatever the locale. Raises `InputError` if that fails."""
    from mio2trace.files import standard_output

    with standard_output() as out:
        for piece in pieces:
            out.write(piece.encode(errors="replace"))


def say(notes: Iterable[Note], lines: Sequence[str], quiet: bool) -> None:
    """Print lines and notes on stderr without private data: a note may quote a name. Remarks on a written trace are
    left out.

    ``quiet``: only problems, including those with reading. Complaints of the library in its log are no problems with
    reading.
    """
    from mio2trace.notes import LOGGED

    notes = [note for note in notes if not note.is_of_trace]
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
    quiet: bool = False,
    *,
    header: bool = True,
) -> None:
    """Print the selected rows and columns of the table that ``make`` makes. Standard error gets ``said``, the notes,
    and the reason if there is no row. Without ``header`` the first line is left out."""
    from mio2trace.machine import without_garbage_collection
    from mio2trace.reports import SelectionError, left_out, print_table, select

    form = printing.printed_as()
    with without_garbage_collection():
        whole = make()
        try:
            table = select(whole, printing.columns, printing.sort, printing.top, printing.where)
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
    """Return the length of a line on standard output: the terminal's or that in ``COLUMNS``. None: no limit."""
    if not is_for_a_person() and not os.environ.get("COLUMNS", "").isdigit():
        return None
    return terminal_width()


def terminal_width() -> int:
    """Return the columns in ``COLUMNS``, else those of the terminal, else 80."""
    import shutil  # imported here because it loads all compressions

    return shutil.get_terminal_size().columns


def is_for_a_person() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def is_terminal() -> bool:
    """Return whether standard error is a terminal that can colour lines and write over them."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def coloured(text: str) -> str:
    """Colour lines for standard output if that is a terminal."""
    return "".join(map(_in_colour, text.splitlines(keepends=True))) if is_for_a_person() else text


def _in_colour(line: str) -> str:
    colour = next((colour for begin, colour in _COLOURS.items() if line.startswith(begin)), None)
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return line if colour is None or is_plain else click.style(line, fg=colour)


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
    """Return the cell ``rank``, else ``pid``, and ``process`` if the answer calls the process by another name, that of
    its file; no cell if there is only one process."""
    process = profile.process
    if not process.label:
        return {}
    if process.rank is not None:
        return {"rank": process.rank}
    cells: Row = {} if process.label == f"pid {process.pid}" else {"process": process.label}
    return cells if process.pid is None else {**cells, "pid": process.pid}


def places(run: Run) -> range:
    """Return the profiles that a table shows: all profiles of a job, else the first."""
    return range(len(run.profiles) if run.is_job else 1)


class Later(click.Command):
    """A command whose module is loaded when it is called. The help that lists all commands needs only their
    descriptions."""

    def __init__(self, name: str, about: str, module: str = "") -> None:
        super().__init__(name, help=about)
        self._module = f"mio2trace.commands.{module or name}"

    def loaded(self) -> click.Command:
        command: click.Command = getattr(importlib.import_module(self._module), str(self.name))
        if command.callback is not None:
            command.callback = _without_frames(command.callback)
        return command


def _without_frames(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let an error of memory go on without the frames of ``command``, which hold all that was read."""

    @functools.wraps(command)
    def called(*words: Any, **options: Any) -> Any:
        try:
            return command(*words, **options)
        except MemoryError:
            pass
        raise MemoryError

    return called


LATER = (
    Later("convert", "Write a trace for the Perfetto UI, or print the answer (without -o)."),
    Later("record", "Run a program under a profiler, with MIOpen's log on, and write one archive.", "share"),
    Later("bundle", "Write an archive of a run to give away. Text with the form of private data is cut.", "share"),
    Later("report", "Show where the time of a run went and what to do about it."),
    Later(
        "ops",
        "List the operations of MIOpen logs or PyTorch traces; with the profile of the run slowest first, by layer.",
        "tables",
    ),
    Later(
        "driver",
        "Print commands that run operations again: for MIOpenDriver, and for a BLAS bench (PyTorch's GEMMs).",
        "tables",
    ),
    Later("kernels", "List the kernels of a profile, one row each, or summed.", "tables"),
    Later(
        "layers",
        "List the layers of a run, slowest first: kernel time per steady iteration, host time, printed time, FLOPs.",
        "tables",
    ),
    Later("messages", "Show errors, warnings, searches, workspaces and problems in MIOpen's logs.", "tables"),
    Later("compare", "Show what became slower between runs, whether that is real, and why."),
    Later("inspect", "Print the records of FILEs as JSON lines, as the readers understood them.", "tables"),
    Later("tfprof", "Print memory and times of TensorFlow 1's ops, as mean and variation over the steps."),
    Later("view", "Open a trace in the Perfetto UI, at its slowest layer.", "serve"),
    Later("batch", "Convert all runs in folders to one dataset of Parquet files, with any number of workers."),
    Later("merge", "Write one trace for all ranks of a job.", "report"),
    Later("ranks", "Show which ranks of a job wait at collectives, which rank comes last, and why.", "report"),
    Later("query", "Ask a trace or a run: a stored query by its name, or any SQL."),
    Later("mcp", "Serve agents by the Model Context Protocol (MCP) on standard input and output.", "serve"),
    Later("doctor", "Show what is installed on this machine, and what is missing."),
    Later("completion", "Print shell code that completes commands, options, columns and queries.", "doctor"),
)
