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
    """Let the shell complete names of files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


files_argument = click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_files)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only errors and problems on stderr.")
format_option = click.option(
    "--format", "form", type=click.Choice(FORMS), help="Default: table on a terminal, csv otherwise."
)
_SIZE = re.compile(r"(\d{1,15})\s*([KMGT]?)B?", re.IGNORECASE | re.ASCII)


class Size(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes such as ``500MB``, ``64G`` or ``1000``; K, M, G and T are powers of 1000."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no size such as 500MB or 64G", param, ctx)
        return int(match[1]) * int(1000 ** " KMGT".index(match[2].upper() or " "))


class Words(click.ParamType):  # type: ignore[type-arg]
    """Words from the list ``words``, with commas between them."""

    name = "words"

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        found = tuple(word for part in str(value).lower().split(",") if (word := part.strip()))
        for word in found:
            if word not in self._words:
                self.fail(f"{word!r} is none of {', '.join(self._words)}", param, ctx)
        return found


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
    def is_chosen(self) -> bool:
        """Whether an option about the table is given. Otherwise a command that has an answer prints the answer."""
        return (
            self.form not in (None, "table")
            or any((self.columns, self.sort, self.top, self.where))
            or (self.path not in (None, "-") and self.printed_as() != "table")
        )

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


damaged_option = click.option(
    "--damaged",
    is_flag=True,
    help="Read a trace that was changed or cut off since mio2trace wrote it, as far as possible.",
)
columns_option = click.option(
    "--columns", metavar="COLUMN,...", help="Print only these columns, in this order.", shell_complete=complete_columns
)
_unit_option = click.option(
    "--unit",
    type=click.Choice(["ns", "us", "ms", "s"]),
    help="Unit of the times; the names of their columns end in it. Default: ms in tables and Markdown, ns in the other"
    " forms.",
)
_PRINTING = (
    format_option,
    click.option(
        "-o",
        "--output",
        "path",
        metavar="OUT",
        help="Output file; .csv, .json, .jsonl, .md or .txt choose the form. Default: standard output.",
    ),
    columns_option,
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


def printing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `Printing` except the unit; the command gets them as ``printing``."""
    return _with_printing(command, _PRINTING)


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `Printing`; the command gets them as ``printing``."""
    return _with_printing(command, (_unit_option, *_PRINTING))


def _with_printing(command: Callable[..., Any], options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    @functools.wraps(command)
    def with_printing(*args: Any, **rest: Any) -> Any:
        printing = Printing(**{name: rest.pop(name) for name in Printing._fields if name in rest})
        refuse_to_overwrite(rest.get("files") or (), printing.path)
        return command(*args, printing=printing, **rest)

    decorated: Callable[..., Any] = with_printing
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


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
    click.option(
        "--align",
        type=click.Choice(["auto", "order", "start"]),
        default="auto",
        show_default=True,
        help="'order': join the files by order alone, also if the clocks show that they are not of one run. 'start':"
        " begin each process of a job at its own start.",
    ),
    click.option(
        "--max-input",
        type=Size(),
        metavar="SIZE",
        help="Refuse an input that is larger than this after decompression. Default: no limit for plain files; for"
        " compressed files 200 times their size, but at least 256 MB.",
    ),
)


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `Reading`, which the command gets as ``reading``, and ``--quiet``."""
    return only_reading_options(quiet_option(command))


def only_reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `Reading`, which the command gets as ``reading``."""

    @functools.wraps(command)
    def with_reading(
        *args: Any, tags: str, repetition: int | None, align: str, max_input: int | None, **rest: Any
    ) -> Any:
        chosen = tuple(tag for tag in tags.split(",") if tag)
        reading = Reading(chosen, repetition, align == "order", align == "start", max_input)
        return command(*args, reading=reading, **rest)

    decorated: Callable[..., Any] = with_reading
    for option in reversed(_READING):
        decorated = option(decorated)
    return decorated
