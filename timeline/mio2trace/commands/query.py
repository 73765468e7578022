"""``mio2trace query``: SQL on a trace, in Perfetto's own engine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from mio2trace.commands.options import format_option
from mio2trace.commands.printing import write
from mio2trace.notes import InputError

if TYPE_CHECKING:
    from mio2trace.reports.tables import Table

CACHE = "~/.local/share/perfetto/prebuilts"
"""Where the perfetto package keeps the engines that it fetched."""


@click.command(no_args_is_help=True)
@click.argument("trace", required=False, metavar="TRACE")
@click.argument("question", required=False, metavar="[NAME|SQL]")
@click.option("--list", "list_", is_flag=True, help="The queries that come with the program.")
@click.option("--sql", "show", metavar="NAME", help="Print the SQL of a query, with what it needs, for the viewer.")
@format_option
@click.option("--engine", metavar="PATH", help="The trace_processor_shell to use.")
@click.option("--download", is_flag=True, help="Let the perfetto package fetch its engine, where none is here.")
def query(
    trace: str | None,
    question: str | None,
    list_: bool,
    show: str | None,
    form: Any,
    engine: str | None,
    download: bool,
) -> None:
    """Ask a trace: a query by its name, or any SQL.

    Runs in Perfetto's trace processor, through the perfetto package (pip install 'mio2trace[query]'). The engine is
    the one named by --engine or MIO2TRACE_ENGINE, else a trace_processor_shell on the PATH, else one that the package
    has fetched before. Nothing is fetched unless --download says so. SQL may use the views commands, kernels, layers,
    passes and operations.

    \b
    Examples:
      mio2trace query out.json "slowest layers"
      mio2trace query out.pftrace.gz "select name, sum(dur) from kernels group by name" --format json
      mio2trace query --list
    """
    from mio2trace.queries import shipped
    from mio2trace.reports.tables import Table

    queries = shipped()
    form = form or ("table" if sys.stdout.isatty() else "csv")
    if show is not None:
        from mio2trace.queries import text

        chosen = _named(show, queries)
        write(
            [
                text().partition("-- query:")[0],
                f"-- query: {chosen}\n-- {queries[chosen].about}\n{queries[chosen].sql};\n",
            ]
        )
        return
    if list_ or (trace is not None and question is None):
        rows = [{"query": one.name, "answers": one.about} for one in queries.values()]
        _print(Table(columns=("query", "answers"), rows=rows), form)
        return
    if trace is None or question is None:
        raise click.UsageError("expected a trace and a query; --list shows the queries")
    sql = question if _is_sql(question) else queries[_named(question, queries)].sql
    if not os.path.isfile(trace):
        raise InputError(f"{trace}: no such file")
    _print(ask(trace, sql, _engine(engine, download)), form)


def _is_sql(question: str) -> bool:
    words = question.split(None, 1)
    return len(words) > 1 and words[0].lower() in ("select", "with", "include", "create", "values", "pragma")


def _named(name: str, queries: Iterable[str]) -> str:
    wanted = " ".join(name.lower().replace("-", " ").replace("_", " ").split())
    found = [one for one in queries if one == wanted] or [one for one in queries if one.startswith(wanted)]
    if len(found) != 1:
        raise click.UsageError(f"{name!r} is no query, and no SQL; there are: {', '.join(queries)}")
    return found[0]


def _engine(chosen: str | None, download: bool) -> str | None:
    """The engine's path; None lets the package fetch one, which was asked for."""
    chosen = chosen or os.environ.get("MIO2TRACE_ENGINE")
    if chosen:
        if not os.access(chosen, os.X_OK) or not os.path.isfile(chosen):
            raise InputError(f"{chosen}: is no program; expected a trace_processor_shell")
        return os.path.abspath(chosen)
    found = _installed()
    if found is None and not download:
        raise InputError(
            "no trace processor here: name one with --engine PATH, or fetch the perfetto package's own with --download;"
            " without one, --sql prints a query for the viewer's own page"
        )
    return found


def _installed() -> str | None:
    """An engine that is here already. A script of that name would fetch one: it does not count."""
    import shutil
    from pathlib import Path

    on_path = shutil.which("trace_processor_shell")
    cache = Path(CACHE).expanduser()
    cached = sorted(cache.glob("trace_processor_shell-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in (*([Path(on_path)] if on_path else []), *cached):
        try:
            with path.open("rb") as file:
                if os.access(path, os.X_OK) and file.read(2) != b"#!" and path.suffix != ".tmp":
                    return str(path)
        except OSError:
            continue
    return None


def ask(trace: str, sql: str, engine: str | None) -> Table:
    from mio2trace.queries import prelude
    from mio2trace.reports.tables import Table

    try:
        from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
    except ImportError as error:
        raise InputError(f"the perfetto package cannot be used ({error}): pip install 'mio2trace[query]'") from None
    processor = None
    try:
        # What the package says on its way belongs to the person, not to the table.
        # A name is none of the package's, which would take what is before a colon for the kind of a place.
        with open(trace, "rb") as file, _standard_output_to_error():
            processor = TraceProcessor(trace=file, config=TraceProcessorConfig(bin_path=engine))
            for statement in prelude():
                processor.query(statement)
            found = processor.query(sql)
        columns = tuple(found.column_names)
        rows = [
            {name: _cell(getattr(row, name)) for name in columns if getattr(row, name) is not None} for row in found
        ]
    except Exception as error:
        raise InputError(_what_went_wrong(error, trace, engine)) from None
    finally:
        if processor is not None:
            processor.close()
    return Table(columns=columns, rows=rows)


def _what_went_wrong(error: Exception, trace: str, engine: str | None) -> str:
    """One line: the last one says what, those before it where the engine met it."""
    text = str(error)
    if text.startswith("Trace processor failed to start"):
        said = text.partition("stderr:")[2].partition("If this is a slow")[0].strip().splitlines()
        return f"{engine}: does not start as a trace processor" + (f": {said[-1].strip()}" if said else "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{trace}: {lines[-1] if lines else type(error).__name__}"


def _standard_output_to_error() -> Any:
    import contextlib

    return contextlib.redirect_stdout(sys.stderr)


def _cell(value: Any) -> str | int | float:
    return value.hex() if isinstance(value, bytes) else value


def _print(table: Table, form: Any) -> None:
    from mio2trace.reports.tables import print_table

    write(print_table(table, form))
