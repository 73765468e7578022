"""Options and arguments that several commands share."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mio2trace.commands.printing import is_for_a_person

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mio2trace.analysis import AnalysisOptions
    from mio2trace.reports.tables import Form, TableSelection, Unit

_Command = Callable[..., Any]
RARE = frozenset({
    "repetition", "tags", "align", "max_input", "damaged", "tracks", "fold", "min_duration", "with_args", "without",
    "several", "explain", "summary_file", "keep", "seed_csv", "coverage", "engine", "download", "header",
})  # fmt: skip
"""Parameters whose options are shown by ``--help-all`` only."""


class Command(click.Command):
    """A command whose help leaves out rarely used options. ``--help-all`` shows them."""

    rare = RARE

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
_SIZE = re.compile(r"(\d{1,15})\s*([KMGT]?)B?", re.IGNORECASE | re.ASCII)


def size(text: str) -> int:
    """Convert a number of bytes such as ``500MB``, ``64G`` or ``1000``; K, M, G and T are powers of 1000."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is no size such as 500MB or 64G")
    return int(match[1]) * int(1000 ** " KMGT".index(match[2].upper() or " "))


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
    columns: str | None = None
    sort: str | None = None
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

    def unit_of_time(self) -> Unit:
        """Return the unit that the option names. The default is milliseconds for a person, whole nanoseconds for a
        program."""
        from mio2trace.reports.tables import Unit

        return Unit(self.unit or ("ms" if self.printed_as() in ("table", "markdown") else "ns"))

    def selection(self) -> TableSelection:
        from mio2trace.reports.tables import TableSelection

        return TableSelection(columns=_names(self.columns), sort=_names(self.sort), top=self.top, where=self.where)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()


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
    click.option("--format", "form", type=click.Choice(FORMS), help="Default: table on a terminal, csv otherwise."),
    click.option(
        "-o",
        "--output",
        "path",
        metavar="OUT",
        help="Output file; .csv, .json, .jsonl, .md or .txt choose the form. Default: standard output.",
    ),
    click.option(
        "--columns",
        metavar="COLUMN,...",
        help="Print only these columns, in this order.",
        shell_complete=complete_columns,
    ),
    click.option(
        "--sort",
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


printing_options = _collected(_PRINTING, "printing", _printing)
"""Adds the options of `Printing` except the unit; the command gets them as ``printing``."""
table_options = _collected((_unit_option, *_PRINTING), "printing", _printing)
"""Adds the options of `Printing`; the command gets them as ``printing``."""


def refuse_to_overwrite(files: Sequence[str], path: str | None) -> None:
    """Raises `click.UsageError` if the output is one of the inputs."""
    if path in (None, "-"):
        return
    for file in files:
        try:
            same = os.path.samefile(file, path)
        except (OSError, ValueError):
            continue  # a missing file cannot be overwritten
        if same:
            raise click.UsageError(f"{path} is also an input")


class Reading(NamedTuple):
    """How inputs are read and sorted into runs: the options that messages of all readers recommend."""

    tags: tuple[str, ...] = ()
    repetition: int | None = None
    by_order_alone: bool = False
    from_start: bool = False
    max_input: int | None = None

    def analysis(self, **more: Any) -> AnalysisOptions:
        from mio2trace.analysis import AnalysisOptions

        return AnalysisOptions(**{**self._asdict(), **more})


_READING = (
    click.option("--repetition", type=click.IntRange(min=0), metavar="N", help="Repetition of a CK record, from 0."),
    click.option("--tags", default="", metavar="A,B", help="Tags that choose an entry in a CK directory."),
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


def _reading(given: dict[str, Any]) -> Reading:
    tags, align = tuple(tag for tag in given.pop("tags").split(",") if tag), given.pop("align")
    return Reading(tags, given.pop("repetition"), align == "order", align == "start", given.pop("max_input"))


only_reading_options = _collected(_READING, "reading", _reading)
"""Adds the options of `Reading`, which the command gets as ``reading``."""


def reading_options(command: _Command) -> _Command:
    """Add the options of `Reading`, which the command gets as ``reading``, and ``--quiet``."""
    return only_reading_options(quiet_option(command))
