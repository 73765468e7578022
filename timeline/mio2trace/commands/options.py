"""Options and arguments that several commands share."""

from __future__ import annotations

import click

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
tags_option = click.option("--tags", default="", metavar="A,B", help="Tags that choose an entry in a CK directory.")
repetition_option = click.option(
    "--repetition", type=click.IntRange(min=0), metavar="N", help="Repetition of a CK record, from 0."
)
align_option = click.option(
    "--align",
    type=click.Choice(["auto", "order"]),
    default="auto",
    show_default=True,
    help="'order' goes on by order alone where the clocks say that the files are not of one run.",
)


def words(given: str) -> tuple[str, ...]:
    """Of ``a,b`` the parts that are not empty."""
    return tuple(word for word in given.split(",") if word)
