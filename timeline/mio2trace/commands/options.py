"""Options and arguments that several commands share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from mio2trace.analysis import AnalysisOptions

FORMS = ("table", "csv", "json", "jsonl", "markdown")

files_argument = click.argument("files", nargs=-1, required=True, metavar="FILE...")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
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
_SIZE = re.compile(r"(\d{1,15})\s*([KMGT]?)B?", re.IGNORECASE | re.ASCII)


class Size(click.ParamType):  # type: ignore[type-arg]
    """``500MB``, ``64G``, ``1000``: bytes; K, M, G and T are powers of 1000."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no size such as 500MB or 64G", param, ctx)
        return int(match[1]) * int(1000 ** " KMGT".index(match[2].upper() or " "))


class Words(click.ParamType):  # type: ignore[type-arg]
    """Words with commas between them, each one of ``words``."""

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


class Reading(NamedTuple):
    """How inputs are read and sorted into runs: what the messages of all readers advise."""

    tags: tuple[str, ...] = ()
    repetition: int | None = None
    by_order_alone: bool = False
    from_start: bool = False
    max_input: int | None = None

    def analysis(self, **more: Any) -> AnalysisOptions:
        """For `analyse`, with ``more`` of its options."""
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
        help="'order' goes on by order alone where the clocks say that the files are not of one run, 'start' draws each"
        " process of a job from its own start.",
    ),
    click.option(
        "--max-input",
        type=Size(),
        metavar="SIZE",
        help="Refuse an input that holds more, decompressed. Default: none for plain files; for compressed ones 200"
        " times their size, but at least 256 MB.",
    ),
)


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `Reading`, which the command gets as ``reading``."""

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
