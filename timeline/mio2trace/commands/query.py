"""``mio2trace query``: run SQL on a trace, or on a run that has not been converted."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mio2trace import commands as console
from mio2trace.commands import write
from mio2trace.notes import InputError, Notes

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mio2trace.queries import Answer
    from mio2trace.trace import Slice


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete files first, because bash drops words before them; then queries, with their words joined by dashes."""
    from click.shell_completion import CompletionItem

    from mio2trace.queries import DATASET, shipped

    names = [name.replace(" ", "-") for name in (*shipped(), *shipped(DATASET))]
    found = [CompletionItem(name) for name in names if ctx.params.get("words") and name.startswith(incomplete)]
    return [*console.complete_files(ctx, param, incomplete), *found]


@click.command(cls=console.Command, no_args_is_help=True)
@click.argument("words", nargs=-1, metavar="FILE... [NAME|SQL]", shell_complete=_complete)
@console.flag("--list", "list_", help="List the stored queries.")
@click.option(
    "--sql",
    "show",
    metavar="NAME",
    help="Print the SQL of a stored query, with the views that it needs, to paste into the viewer.",
)
@console.printing_options
@console.damaged_option
@console.flag("--perfetto", help="Use Perfetto's own engine, for any trace and all of its tables.")
@click.option("--engine", metavar="PATH", help="The trace_processor_shell to use. Implies --perfetto.")
@console.flag("--download", help="As --perfetto. If no engine is installed, the perfetto package fetches one.")
def query(
    words: tuple[str, ...],
    list_: bool,
    show: str | None,
    printing: console.Printing,
    damaged: bool,
    perfetto: bool,
    engine: str | None,
    download: bool,
) -> None:
    """Ask a trace or a run: a stored query by its name, or any SQL.

    FILE is a trace that mio2trace wrote, or the files of a run, as for "convert". SQL may use the table slice and the
    views commands, kernels, layers, passes and operations. Nothing else needs to be installed.

    FILE may also be a dataset ("mio2trace batch", "-o out.parquet"). Then the queries for datasets and any SELECT run
    in DuckDB, over the tables of all runs: runs, kernels, operations, layers, problems, ... (docs/schema.md).

    With --perfetto, SQL runs in Perfetto's trace processor, through the perfetto package (pip install
    'mio2trace[query]'), over any trace. --engine or MIO2TRACE_ENGINE names its engine. The default is a
    trace_processor_shell on the PATH, else the engine that the package has fetched before. Nothing is fetched unless
    --download says so.

    \b
    Examples:
      mio2trace query out.pftrace "slowest layers"
      mio2trace query run.log prof.json "slowest operations"
      mio2trace query out.pftrace "select name, dur from kernels limit 5"
      mio2trace query ds/ "slowest problems"
      mio2trace query --list
    """
    from mio2trace import writers
    from mio2trace.queries import DATASET, shipped

    of_traces = shipped()
    queries = {**of_traces, **shipped(DATASET)}
    if show is not None:
        from mio2trace.queries import text

        chosen = _named(show, queries)
        about, sql = queries[chosen].about, queries[chosen].sql
        head = text() if chosen in of_traces else text(DATASET)
        write([head.partition("-- query:")[0], f"-- query: {chosen}\n-- {about}\n{sql};\n"])
        return
    asked = words[:1] and (_is_sql(words[0]) or (not os.path.exists(words[0]) and _meant(words[0], queries)))
    if list_ or (len(words) == 1 and not asked):
        rows = ((name, "run" if name in of_traces else "dataset", query.about) for name, query in queries.items())
        _print(("query", "of", "answers"), rows, printing)
        return
    if len(words) < 2:
        raise click.UsageError("expected a trace, or the files of a run, and a query; --list shows the queries")
    *files, question = words
    name = "" if _is_sql(question) else _named(question, queries)
    sql = queries[name].sql if name else question
    for file in files:
        if not os.path.exists(file) and file != "-":
            raise InputError(f"{file}: no such file")
    notes = Notes()
    if name not in of_traces and _is_asked_of_dataset(files, name):
        _print(*_ask_dataset(files, sql), printing)
        return
    if perfetto or engine or download:
        if len(files) > 1:
            raise click.UsageError("--perfetto needs one trace; leave it out to query the files of a run")
        if _is_trace(files):
            writers.check(Path(files[0]), notes, damaged=damaged)
        from mio2trace import queries as engines

        answer = engines.answer_in_perfetto(files[0], sql, engines.engine(engine, download))
    else:
        answer = _ask(files, sql, notes, damaged=damaged)
    _print(*answer, printing, notes)


def _is_sql(question: str) -> bool:
    words = question.split(None, 1)
    return len(words) > 1 and words[0].lower() in ("select", "with", "include", "create", "values", "pragma")


def _meant(name: str, queries: Iterable[str]) -> list[str]:
    wanted = " ".join(name.lower().replace("-", " ").replace("_", " ").split())
    return [one for one in queries if one == wanted] or [one for one in queries if one.startswith(wanted)]


def _named(name: str, queries: Iterable[str]) -> str:
    meant = _meant(name, queries)
    if len(meant) != 1:
        near = difflib.get_close_matches(name, list(queries), 1)
        hint = f"; did you mean {near[0]!r}?" if near and not meant else ""
        raise click.UsageError(f"{name!r} is neither a stored query nor SQL{hint}; there are: {', '.join(queries)}")
    return meant[0]


def _is_trace(files: Sequence[str]) -> bool:
    from mio2trace import writers

    return len(files) == 1 and files[0] != "-" and os.path.isfile(files[0]) and writers.is_ours(Path(files[0]))


def _ask(files: Sequence[str], sql: str, notes: Notes, *, damaged: bool) -> Answer:
    """Run the query in SQLite, over a trace of ours or the trace of a run."""
    from mio2trace import writers
    from mio2trace.machine import without_garbage_collection
    from mio2trace.queries import answer_in_sqlite

    with without_garbage_collection():
        if _is_trace(files):
            return answer_in_sqlite(writers.slices(Path(files[0]), notes=notes, damaged=damaged), sql)
        return answer_in_sqlite(_drawn(files, notes), sql)


def _drawn(files: Sequence[str], notes: Notes) -> Iterator[Slice]:
    """Return the slices of a run. If nothing relates the clocks of a job, each process begins at 0. ``notes`` gets what
    the other commands say about the files."""
    from mio2trace.conversion import UnrelatedClocks, convert
    from mio2trace.trace import Slice

    try:
        drawn = convert(*files)
    except UnrelatedClocks:
        drawn = convert(*files, from_start=True)
        notes.remark("clocks of the processes are not related: each begins at its own start")
    notes.include(drawn.notes)
    return (event for event in drawn.trace.events() if isinstance(event, Slice))


def _print(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], printing: console.Printing, notes: Notes | None = None
) -> None:
    from mio2trace.reports import Table

    cells = [
        {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in zip(columns, row, strict=True)
            if value is not None
        }
        for row in rows
    ]
    # The first column names the row, so a narrow terminal keeps it.
    table = Table(columns=tuple(columns), rows=cells, keys=tuple(columns[:1]))
    console.show(lambda: table, printing, notes or Notes(), [])


# -- Queries on a dataset: its tables, in DuckDB -----------------------------------------------------------------------


def _is_asked_of_dataset(files: Sequence[str], name: str) -> bool:
    """Return whether the files have a dataset.

    Raises `InputError` if they do not, but the query ``name`` is about datasets.
    """
    from mio2trace.snapshot import is_dataset

    is_one = any(file != "-" and is_dataset(file) for file in files)
    if name and not is_one:
        raise InputError(
            f"{files[0]}: no dataset, which {name!r} is about; `-o out.parquet` or `mio2trace batch` makes one"
        )
    return is_one


def _ask_dataset(files: Sequence[str], sql: str) -> Answer:
    from mio2trace.queries import opened
    from mio2trace.schema import SQL_COLUMNS

    if len(files) > 1:
        raise InputError(f"{', '.join(files)}: expected one dataset, which holds many runs")
    with opened(files[0], SQL_COLUMNS) as dataset:
        return dataset.ask(sql)
