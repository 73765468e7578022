"""Queries in Perfetto's trace processor, through the perfetto package: for any trace and all of Perfetto's tables."""

from __future__ import annotations

import contextlib
import os
import sys

from mio2trace.notes import InputError
from mio2trace.queries import Answer, prelude

CACHE = "~/.local/share/perfetto/prebuilts"
"""The folder in which the perfetto package keeps downloaded engines."""


def engine(chosen: str | None, download: bool) -> str | None:
    """Return the path of the engine; None lets the package download one, if that is allowed. Raises `InputError`
    without one."""
    chosen = chosen or os.environ.get("MIO2TRACE_ENGINE")
    if chosen:
        if not os.access(chosen, os.X_OK) or not os.path.isfile(chosen):
            raise InputError(f"{chosen}: is no program; expected a trace_processor_shell")
        return os.path.abspath(chosen)
    path = _installed()
    if path is None and not download:
        raise InputError(
            "no trace processor here: name one with --engine PATH, or fetch the perfetto package's own with --download;"
            " without --perfetto, a trace of mio2trace needs none"
        )
    return path


def _installed() -> str | None:
    """Return an installed engine. A script of that name would download one, so it does not count."""
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


def answer(trace: str, sql: str, engine: str | None) -> Answer:
    """Return the answer of ``sql`` over the file ``trace``, with the views of `prelude`. Raises `InputError`."""
    try:
        from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
    except ImportError as error:
        raise InputError(f"the perfetto package cannot be used ({error}): pip install 'mio2trace[query]'") from None
    processor = None
    try:
        # Output of the package is for the person, not for the table. The path gets a prefix: the package would
        # interpret a part before a colon as a kind of place.
        with open(trace, "rb") as file, contextlib.redirect_stdout(sys.stderr):
            processor = TraceProcessor(trace=file, config=TraceProcessorConfig(bin_path=engine))
            for statement in prelude():
                processor.query(statement)
            result = processor.query(sql)
        columns = tuple(result.column_names)
        return Answer(columns, [tuple(getattr(row, name) for name in columns) for row in result])
    except Exception as error:
        raise InputError(_what_went_wrong(error, trace, engine)) from None
    finally:
        if processor is not None:
            processor.close()


def _what_went_wrong(error: Exception, trace: str, engine: str | None) -> str:
    """Return one line: the last line of the error has the reason, the lines before it the place."""
    text = str(error)
    if text.startswith("Trace processor failed to start"):
        said = text.partition("stderr:")[2].partition("If this is a slow")[0].strip().splitlines()
        return f"{engine}: does not start as a trace processor" + (f": {said[-1].strip()}" if said else "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{trace}: {lines[-1] if lines else type(error).__name__}"
