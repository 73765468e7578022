"""DuckDB, which reads and writes Parquet: a database in memory, and files that get their name when they are
complete."""

from __future__ import annotations

import contextlib
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from mio2trace.files import replaced
from mio2trace.notes import InputError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

INSTALL = "pip install 'mio2trace[batch]'"
_OFFLINE = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
_ALONE = {"threads": 1, "async_threads": 0}
_TASKS = "/proc/self/task"
_PLAIN = " +=,@()"
_SUFFIX = ".parquet"


class NotInstalled(InputError, ImportError):
    """A library of an extra is missing; the message says how to install it."""


def connection(threads: int | None = 1) -> DuckDBPyConnection:
    """Open a database in memory without network access. With one thread, equal rows give equal bytes.

    Raises `NotInstalled` without DuckDB.
    """
    try:
        import duckdb
    except ImportError:
        raise NotInstalled(f"this needs DuckDB, which is not installed: {INSTALL}") from None
    settings: dict[str, str | bool | int | float | list[str]] = {**_OFFLINE}
    if threads is None:
        return duckdb.connect(":memory:", config=settings)
    if threads == 1:
        with contextlib.suppress(duckdb.Error):  # versions before 2.0 have neither this setting nor such threads
            return duckdb.connect(":memory:", config={**settings, **_ALONE})
    return duckdb.connect(":memory:", config={**settings, "threads": threads})


def nanoarrow() -> Any:
    """Return the library that hands over columns as Arrow. Raises `NotInstalled`."""
    try:
        import nanoarrow
    except ImportError:
        raise NotInstalled(f"this needs nanoarrow, which is not installed: {INSTALL}") from None
    return nanoarrow


class Stream:
    """An object that offers batches of columns of Arrow, by name, as a stream. ``count``: the rows of each batch."""

    def __init__(self, batches: Sequence[Mapping[str, Any]], count: int) -> None:
        arrow = nanoarrow()
        self._schema = arrow.struct({name: column.schema for name, column in batches[0].items()})
        self._batches = [
            arrow.c_array_from_buffers(self._schema, count, [None], children=list(columns.values()))
            for columns in batches
        ]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        from nanoarrow.c_array_stream import CArrayStream

        stream = CArrayStream.from_c_arrays(self._batches, nanoarrow().c_schema(self._schema))
        return stream.__arrow_c_stream__(requested_schema)


def pieces(values: Sequence[bytes | bytearray | memoryview], kind: str) -> Any:
    """Return a column of Arrow of texts or bytes; ``kind``: its type, ``large_string`` or ``large_binary``."""
    ends = array("q", accumulate(map(len, values), initial=0))
    data = values[0] if len(values) == 1 else b"".join(values)
    return nanoarrow().c_array_from_buffers(getattr(nanoarrow(), kind)(), len(values), [None, ends, data])


_kept: DuckDBPyConnection | None = None


def keep_one_open() -> None:
    """Open a database that all writing of this process and of its forks shares: opening one takes as long as writing a
    small run. It is not kept if it has threads, because a fork has none."""
    global _kept
    if _kept is None:
        opened = connection()
        try:
            has_threads = len(os.listdir(_TASKS)) > 1
        except OSError:
            has_threads = True
        if has_threads:
            opened.close()
        else:
            _kept = opened


@contextlib.contextmanager
def for_writing() -> Iterator[DuckDBPyConnection]:
    """Return a connection to the shared database, else to a new one."""
    with contextlib.closing(connection() if _kept is None else _kept.cursor()) as database:
        yield database


@contextlib.contextmanager
def asked(what: str) -> Iterator[None]:
    """Raises `InputError` with ``what`` and DuckDB's message if a statement fails; also if names in a file are not
    UTF-8."""
    import duckdb

    try:
        yield
    except (duckdb.Error, RuntimeError, UnicodeDecodeError) as error:
        raise InputError(f"{what}: {str(error).strip().splitlines()[0]}") from None


def file_name(name: str) -> str:
    """Return the file name for the run of this name: unique, and never in another folder."""
    quoted = quote(name, safe=_PLAIN)
    return f"%2E{quoted[1:]}{_SUFFIX}" if quoted.startswith(".") else quoted + _SUFFIX


def run_name(file: str) -> str:
    return unquote(file.removesuffix(_SUFFIX))


def sql_text(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def literal(path: object) -> str:
    """Return a path in which wildcards have no meaning."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(path))


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Yield a place to write to, as `files.replaced`; its folder is made if it is not there."""
    import duckdb

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot write there: {error.strerror or error}") from None
    with replaced(path, str(path)) as temporary:
        try:
            yield Path(temporary)
        except duckdb.IOException as error:
            raise OSError(str(error).splitlines()[0]) from None
