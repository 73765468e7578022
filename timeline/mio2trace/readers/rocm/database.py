"""SQLite databases, read as they lie there: never changed, and trusted with nothing (rocm-profiles.md 7, 11)."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from mio2trace.notes import InputError
from mio2trace.source import Source

if TYPE_CHECKING:
    import sqlite3

MAGIC = b"SQLite format 3\0"
_JOURNALS = ("-wal", "-journal")
"""Beside a database whose writer goes on or was killed: rows not yet moved into it; pages that must be moved back."""
STEPS_AT_ONCE = 100_000
LEAST_STEPS, STEPS_PER_BYTE = 400_000_000, 500
"""A view may be an endless recursion: so many steps of SQLite's machine are allowed, by the size of the file."""


def tables(head: bytes) -> bytes:
    """What the first pages hold: a schema begins there; empty where this is no database."""
    return head if head.startswith(MAGIC) else b""


@contextlib.contextmanager
def opened(source: Source) -> Iterator[sqlite3.Connection]:
    """The database, read-only. A plain file is read in place; what is compressed, piped or has a journal, from a copy.

    Raises `InputError` with one line for whatever SQLite says of the file.
    """
    import sqlite3  # SQLite is loaded where there is a database

    with contextlib.ExitStack() as stack:
        path = source.plain_path
        journals = [end for end in _JOURNALS if path and _holds_anything(f"{path}{end}")]
        if path and not journals:
            uri = f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1"
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mio2trace-"))
            copy = os.path.join(folder, "copy.db")
            with open(copy, "wb") as file:
                for block in source.blocks():
                    file.write(block)
            for end in journals:
                with contextlib.suppress(OSError):
                    shutil.copyfile(f"{path}{end}", f"{copy}{end}")
            uri = f"file:{quote(copy)}"
        try:
            connection = stack.enter_context(contextlib.closing(sqlite3.connect(uri, uri=True)))
            _distrust(connection, source)
            yield connection
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                raise InputError(f"{source.name}: a query on it never ends; expected a profiler's tables") from None
            raise InputError(f"{source.name}: SQLite: {error}; expected a whole database that nothing locks") from None
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:  # the last of a column's name
            raise InputError(f"{source.name}: SQLite: {error}; expected a whole database") from None


def _holds_anything(path: str) -> bool:
    return os.path.isfile(path) and os.path.getsize(path) > 0


def _distrust(connection: sqlite3.Connection, source: Source) -> None:
    """Views of a stranger's file run no functions of ours and end; text need not be UTF-8."""
    connection.text_factory = lambda data: data.decode(errors="replace")
    connection.execute("PRAGMA query_only = 1")
    connection.execute("PRAGMA trusted_schema = 0")
    left = max(LEAST_STEPS, STEPS_PER_BYTE * source.total_bytes) // STEPS_AT_ONCE

    def count() -> int:
        nonlocal left
        left -= 1
        return int(left < 0)

    connection.set_progress_handler(count, STEPS_AT_ONCE)


def names(connection: sqlite3.Connection) -> set[str]:
    """Of its tables and views."""
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Of a table or view that `names` gave."""
    quoted = table.replace('"', '""')
    return {column[0] for column in connection.execute(f'SELECT * FROM "{quoted}" LIMIT 0').description}  # noqa: S608
