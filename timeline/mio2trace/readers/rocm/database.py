"""SQLite databases, read in place: never changed, and not trusted (rocm-profiles.md 7, 11).

Only stored data is read: views only if they show tables unchanged, and no table with computed columns. Queries join
nothing: readers look up ids themselves. So there are no more rows, and no longer values, than the file has room for;
this also ends reading of pages that form a circle. All limits follow from the bytes of the database and of the journals
beside it, before SQLite uses them.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from mio2trace.model.tables import NO, Numbers
from mio2trace.notes import InputError
from mio2trace.patterns import late
from mio2trace.readers.rocm.pages import FIRST_PAGE, INNER, LEAF, SMALLEST, Unread, cells_of, children, rows_of
from mio2trace.source import BLOCK, Source

if TYPE_CHECKING:
    import sqlite3

MAGIC = b"SQLite format 3\0"
_JOURNALS = ("-wal", "-journal")
"""Files beside a database whose writer is running or was killed: rows that are not in it yet; pages that must be
restored."""
_ENDS_A_NAME = bytes.fromhex("d9d505f920a163d7")
"""At the end of a journal: the name of a file (after it), which SQLite deletes when the pages are restored."""
STEPS_AT_ONCE = 10_000
LEAST_STEPS, STEPS_PER_BYTE = 5_000_000, 100
"""Steps of SQLite's machine, by the size of the file. Profilers' files take 0.01 to 0.3 per byte."""
FEWEST_ROWS, BYTES_OF_A_ROW = 1000, 8
LONG_TEXT, TEXT_PER_BYTE = 1000, 64
"""Longer values are counted: in total at most this many times the file, each as often as it is read."""
_WHOLE = "expected a whole database"
_STORED = "expected a profiler's tables, or views that show them as they are"
_LONGEST_VALUE = 1 << 20
_AT_ONCE = 1 << 9
"""Rows of a block. Their cells fit into the cache of a processor, so that columns are made of them quickly."""
LARGE = 1 << 20
"""Bytes of the smallest database for which `Database.arrays` saves time."""
_COMPARED = 100
"""Rows of a table that are read by SQLite too."""
_NAME = r"""(?:"[^"]++"|`[^`]++`|\[[^\]]++\]|\w++)"""
_VIEW = late(rf"CREATE (?:TEMP(?:ORARY)? )?VIEW (?:IF NOT EXISTS )?{_NAME} AS (.*+)", re.IGNORECASE)
_SHOWN = late(rf"SELECT (?:\*|{_NAME}(?>(?: ?, ?{_NAME})*)) FROM ({_NAME})", re.IGNORECASE)  # noqa: S608
_UNION = late(r" UNION(?: ALL)? ", re.IGNORECASE)
_REAL = late("REAL|FLOA|DOUB", re.IGNORECASE)
"""In the type of a column whose whole numbers are not whole when they are read."""
_COMPUTES = late(r"\bAS ?\(|^CREATE VIRTUAL ", re.IGNORECASE)


def tables(head: bytes) -> bytes:
    """Return the first pages, in which a schema begins; empty if this is no database."""
    return head if head.startswith(MAGIC) else b""


class _Letters:
    """The bytes of long values that may still be read from a file. A separate object: a connection that held its
    database would be a circle of references."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._left = TEXT_PER_BYTE * max(LONG_TEXT, size)

    def take(self, count: int) -> None:
        """Raises `InputError` for more bytes than the file can hold."""
        self._left -= count
        if self._left < 0:
            raise InputError(f"{self._name}: more text than a file of its size can hold; {_WHOLE}")

    def text(self, data: bytes) -> str:
        """Return SQLite's bytes as text; they may not be UTF-8."""
        if len(data) > LONG_TEXT:
            self.take(len(data))
        return data.decode(errors="replace")


class Database:
    """An open database. ``names``: of its tables and views. ``reads``: the tables that will be read, if they exist;
    raises `InputError` for one with computed content."""

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], path: str, source: Source, steps: _Steps, reads: Iterable[str]
    ) -> None:
        """``path``: of what ``connect`` opens."""
        size = steps.of_bytes
        self._source = source
        self._path = path
        self._is_large = size >= LARGE
        self._pages_read = bytearray(size // SMALLEST + 1)
        self._most_rows = max(FEWEST_ROWS, size // BYTES_OF_A_ROW)
        self._letters = _Letters(source.name, size)
        connection = self._connection = connect()
        _limit(connection, steps, min(_LONGEST_VALUE, max(1 << 16, size)), self._letters.text)
        listed = "SELECT type, name, sql, rootpage FROM sqlite_master WHERE type IN ('table', 'view')"
        schema = connection.execute(listed).fetchall()
        self._texts = {name: (kind, " ".join(str(sql).split())) for kind, name, sql, _ in schema}
        self._roots = {name.lower(): root for kind, name, _, root in schema if kind == "table" and type(root) is int}
        indexed = connection.execute("SELECT tbl_name FROM sqlite_master WHERE type = 'index'")
        self._indexed = {str(name).lower() for (name,) in indexed}
        self.names = frozenset(self._texts)
        self._stored = {
            name.lower() for name, (kind, sql) in self._texts.items() if kind == "table" and not _COMPUTES.search(sql)
        }
        self.require_stored(reads)
        connection.set_authorizer(_authorize)
        self._of_numbers = connect()
        self._of_numbers.execute("SELECT 1 FROM sqlite_master").fetchall()  # the schema has longer texts
        _limit(self._of_numbers, steps, LONG_TEXT, bytes)
        self._of_numbers.set_authorizer(_authorize)

    def is_stored(self, name: str) -> bool:
        """Return whether a table shows stored data, or a view shows such tables one after the other, unchanged, none of
        them twice; true for a name that does not exist."""
        if name.lower() in self._stored or name not in self._texts:
            return True
        shown = _shown_tables(self._texts[name][1])
        return bool(shown) and len(shown) == len(set(shown)) and self._stored.issuperset(shown)

    def require_stored(self, reads: Iterable[str]) -> None:
        """Raises `InputError` if one of ``reads`` has computed content, in any spelling of its name."""
        asked = {name.lower() for name in reads}
        for name in self._texts:
            if name.lower() in asked and not self.is_stored(name):
                raise InputError(f"{self._source.name}: {name} is computed; {_STORED}")

    def rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a query. Raises `InputError` if that is more than the file can hold."""
        take = self._letters.take
        for row in self._within(self._connection.execute(query)):
            for cell in row:
                if type(cell) is bytes:
                    take(len(cell))
            yield row

    def select(
        self, table: str, needed: Iterable[str], other: Iterable[str] = (), *, numbers: bool = False
    ) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a table that may be missing: ``needed``, which are expressions of SQL, then the ``other``
        columns, with None for those that the table does not have. ``numbers``: as `numbers`, else as `rows`."""
        if table not in self.names:
            return iter(())
        there = self.columns(table) if other else set()
        listed = (*needed, *(_quoted(name) if name in there else "NULL" for name in other))
        query = f"SELECT {', '.join(listed)} FROM {_quoted(table)}"  # noqa: S608 - the rest are names of ours
        return self.numbers(query) if numbers else self.rows(query)

    def numbers(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Return the same as `rows`, faster, for columns of numbers: a value longer than `LONG_TEXT` is an error of
        SQLite, and texts are returned as bytes."""
        return self._within(self._of_numbers.execute(query))

    def blocks(self, query: str, after: int = 0) -> Iterator[list[tuple[Any, ...]]]:
        """As `numbers`, column by column, of some hundred rows each time. The first ``after`` rows are left out."""
        rows = islice(self.numbers(query), after, None)
        while some := list(islice(rows, _AT_ONCE)):
            yield list(zip(*some, strict=True))

    def arrays(self, table: str, key: str, columns: Sequence[str]) -> Iterator[tuple[Any, list[Numbers]]]:
        """Columns of a table in ``names`` as arrays, some ten thousand rows each time, with the value that the column
        ``key`` has in all of them. They are the rows of `blocks`, in their order.

        Raises `Unread`, perhaps after some rows, if a cell is no whole number, if ``key`` has another value, or if the
        database is small. Raises `InputError` if there are more rows than the file can hold.
        """
        behind = self._one_tree(table)
        if not self._is_large or behind is None:
            raise Unread
        names = self._columns(behind)
        # SQLite itself says what the first rows hold: which column is the rows' id, and which is stored otherwise.
        query = f"SELECT {key}, {', '.join(columns)} FROM {_quoted(table)} LIMIT {_COMPARED}"  # noqa: S608
        first = self._of_numbers.execute(query).fetchall()
        value = first[0][0] if first else None
        wanted = [name.strip('"') for name in (key, *columns)]
        if type(value) is not bytes or not value or not {*names, "NULL"}.issuperset(wanted):
            raise Unread
        of_key, *places = (names.index(name) if name != "NULL" else None for name in wanted)
        assert of_key is not None
        left = self._most_rows
        are_ids: list[bool] = []
        for found in rows_of(self._path, self._roots[behind], value, of_key, places, self._pages_read):
            if not are_ids:
                told = [[cell if type(cell) is int else NO for cell in cells] for cells in zip(*first, strict=True)][1:]
                are_ids = [_are_ids(*cells, found.ids) for cells in zip(told, found.columns, strict=True)]
            left -= len(found.ids)
            if left < 0:
                raise self._too_many_rows()
            yield value, [found.ids if is_id else column for is_id, column in zip(are_ids, found.columns, strict=True)]

    def _one_tree(self, table: str) -> str | None:
        """Return the table in whose one tree are the rows that a table or view shows, as they are stored and in the
        order in which SQLite, whichever version, reads them; None if there is no such table."""
        kind, sql = self._texts[table]
        behind = [table.lower()] if kind == "table" else _shown_tables(sql)
        if len(behind) != 1 or behind[0] in self._indexed:
            return None
        types = [sql for name, (_, sql) in self._texts.items() if name.lower() == behind[0]]
        return None if any(map(_REAL.search, types)) or behind[0] not in self._roots else behind[0]

    def _within(self, cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
        return chain(islice(cursor, self._most_rows), self._too_many(cursor))

    def columns(self, table: str) -> set[str]:
        """Return the columns of a table or view in ``names``."""
        return {*self._columns(table)}

    def _columns(self, table: str) -> list[str]:
        description = self._connection.execute(f"SELECT * FROM {_quoted(table)} LIMIT 0").description  # noqa: S608
        return [column[0] for column in description]

    def text_of(self, cell: object) -> str:
        """Return the content of a text column, whatever is stored there; called once per row, not at each use."""
        return cell if isinstance(cell, str) else "" if cell is None else str(cell)

    def _too_many(self, cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
        if cursor.fetchone() is not None:
            raise self._too_many_rows()
        yield from ()

    def _too_many_rows(self) -> InputError:
        return InputError(f"{self._source.name}: more rows than a file of its size can hold; {_WHOLE}")


class _Steps:
    """The steps that SQLite may still take, over all connections. Their number depends on the size of the files."""

    def __init__(self, size: int) -> None:
        self.of_bytes = size
        self._left = max(LEAST_STEPS, STEPS_PER_BYTE * size) // STEPS_AT_ONCE

    @property
    def all_taken(self) -> bool:
        return self._left < 0

    def take(self) -> int:
        self._left -= 1
        return int(self.all_taken)


def _limit(connection: sqlite3.Connection, steps: _Steps, longest: int, text: Callable[[bytes], str | bytes]) -> None:
    """Limit steps and bytes of a value, and set how texts are decoded."""
    import sqlite3

    connection.text_factory = text
    connection.execute("PRAGMA query_only = 1")
    connection.execute("PRAGMA trusted_schema = 0")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
    connection.set_progress_handler(steps.take, STEPS_AT_ONCE)


_OK, _DENY, _READ, _SELECT = 0, 1, 20, 21
"""SQLite's own numbers (sqlite3.h), because sqlite3 is not imported here."""


def _authorize(action: int, *_: str | None) -> int:
    """Allow only reading queries: no function, no recursion, no other database."""
    return _OK if action in (_SELECT, _READ) else _DENY


def _quoted(name: str) -> str:
    """Return a name in the file, which may be any text, as SQL has it."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _shown_tables(sql: str) -> list[str]:
    """Return the tables that a view shows one after the other, unchanged; none of a view that does more."""
    match = _VIEW.fullmatch(sql.rstrip("; "))
    if match is None:
        return []
    shown = [_SHOWN.fullmatch(part) for part in _UNION.split(match[1])]
    tables = [one[1].strip('"`[]').lower() for one in shown if one is not None]
    return tables if len(tables) == len(shown) else []


@contextlib.contextmanager
def opened(source: Source, reads: Iterable[str]) -> Iterator[Database]:
    """Open the database, read-only, for the tables ``reads``. A plain file is read in place; a compressed one, a pipe,
    or one with a journal is copied.

    Raises `InputError` with one line for any error of SQLite.
    """
    import sqlite3  # SQLite is loaded only if there is a database

    with contextlib.ExitStack() as stack:
        path = source.plain_path
        beside = {end: size for end in _JOURNALS if path and (size := _size(f"{path}{end}"))}
        source.require_room(sum(beside.values()))
        lies = path if path and not beside else _copied(source, beside, stack)
        signs = (
            f"%{byte:02x}" if byte in b"%?#" or byte > 127 else chr(byte) for byte in os.fsencode(os.path.abspath(lies))
        )
        uri = f"file:{''.join(signs)}"
        given = sum(os.path.getsize(f"{lies}{end}") for end in ("", *beside))
        try:
            if beside:
                with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
                    connection.execute("BEGIN IMMEDIATE")  # closing it moves the content of the journals into it
            size = os.path.getsize(lies)
            if size > given or _size(f"{lies}-wal"):  # a journal stays if SQLite cannot move all of it
                raise InputError(f"{source.name}: its journal claims more than both hold; {_WHOLE}")
            if size < _stated_size(lies):
                source.notes.cut_off(source.name, f"byte {size}")
            _require_a_tree(lies, size, source.name)

            in_place = f"{uri}?mode=ro&immutable=1"

            def connect() -> sqlite3.Connection:
                return stack.enter_context(contextlib.closing(sqlite3.connect(in_place, uri=True)))

            steps = _Steps(size)
            yield Database(connect, lies, source, steps, reads)
        except sqlite3.OperationalError as error:
            if (
                "interrupted" in str(error) and not steps.all_taken
            ):  # sqlite3 drops what a signal raises while it counts
                raise KeyboardInterrupt from None
            if "interrupted" in str(error):
                raise InputError(f"{source.name}: a query on it never ends; expected a profiler's tables") from None
            expected = _STORED if "no such column" in str(error) else f"{_WHOLE} that nothing locks"
            raise InputError(f"{source.name}: SQLite: {error}; {expected}") from None
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:  # the last column's name
            raise InputError(f"{source.name}: SQLite: {error}; {_WHOLE}") from None


def _stated_size(path: str) -> int:
    """Return the bytes that the database's own header states; 0 if it does not state the number of pages."""
    with open(path, "rb") as file:
        head = file.read(FIRST_PAGE)
    pages, changed, written = (int.from_bytes(head[at : at + 4], "big") for at in (28, 24, 92))
    page_size = int.from_bytes(head[16:18], "big")
    return pages * (1 << 16 if page_size == 1 else page_size) if changed == written else 0


def _copied(source: Source, beside: dict[str, int], stack: contextlib.ExitStack) -> str:
    """Return the path of a copy of the database until ``stack`` is closed; the journals ``beside`` it are copied up to
    their size. Raises `InputError` if there is no room, or if a journal cannot be read."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="mio2trace-", ignore_cleanup_errors=True)
        copy = os.path.join(stack.enter_context(folder), "copy.db")
        with open(copy, "wb") as file:
            for block in source.blocks():
                file.write(block)
        for end, size in beside.items():
            _copy(f"{source.plain_path}{end}", f"{copy}{end}", size, f"{source.name}{end}")
            _refuse_a_name(f"{copy}{end}", f"{source.name}{end}")
    except OSError as error:
        where = "the folder for temporary files"
        raise InputError(f"{source.name}: cannot be copied into {where}: {error.strerror or error}") from None
    return copy


def _copy(path: str, copy: str, size: int, name: str) -> None:
    """Raises `InputError` for a journal that cannot be read: without it the copy would be incomplete."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - what cannot be read is another fault than what cannot be written
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}; expected to read it with its database") from None
    with file, open(copy, "wb") as target:
        while size and (block := file.read(min(BLOCK, size))):
            target.write(block)
            size -= len(block)


def _refuse_a_name(journal: str, name: str) -> None:
    """Raises `InputError` for a transaction of several databases: its journal names the file that ends it."""
    with open(journal, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - len(_ENDS_A_NAME)))
        if file.read() == _ENDS_A_NAME:
            raise InputError(f"{name}: names another file; expected the journal of this database alone")


def _require_a_tree(path: str, size: int, name: str) -> None:
    """Raises `InputError` if pages of the schema lead to a page twice, or if its texts, which SQLite always reads, have
    more bytes than the file. SQLite itself refuses a page that is not in a tree."""
    with open(path, "rb") as file:
        page_size = int.from_bytes(file.read(18)[16:], "big")
        page_size = 1 << 16 if page_size == 1 else page_size
        seen: set[int] = set()
        pending, left = [1], size
        while pending and left >= 0:
            number = pending.pop()
            if number in seen:
                left = -1
            seen.add(number)
            file.seek(max(0, number - 1) * page_size)
            children, texts = _page(file.read(page_size), FIRST_PAGE if number == 1 else 0)
            pending += children
            left -= texts
    if left < 0:
        raise InputError(f"{name}: a schema that leads in circles; {_WHOLE}")


def _page(page: bytes, begin: int) -> tuple[list[int], int]:
    """Return (the pages below it, the bytes of its rows) of a page of a table whose header begins there."""
    kind = page[begin : begin + 1]
    if kind == bytes((INNER,)):
        return children(page, begin), 0
    return [], sum(_varint(page, at) for at in cells_of(page, begin, 8)) if kind == bytes((LEAF,)) else 0


def _varint(page: bytes, at: int) -> int:
    """Read SQLite's varint: seven bits per byte, the highest first; the ninth byte has eight."""
    value = 0
    for place, byte in enumerate(page[at : at + 9]):
        value = value << 8 | byte if place == 8 else value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return value


def _size(path: str) -> int:
    """Return the bytes of a file; 0 if it is none. A journal is there for a moment only, asked for once."""
    try:
        told = os.stat(path)
    except OSError:
        return 0
    return told.st_size if stat.S_ISREG(told.st_mode) else 0


def _are_ids(told: list[int], column: Numbers, ids: Numbers) -> bool:
    """Return whether a column is the rows' id, which is not stored twice. Raises `Unread` unless the first rows are as
    SQLite ``told``."""
    count = min(len(told), len(ids))
    if column[:count].tolist() == told[:count]:
        return False
    if (column[:count] != NO).any() or ids[:count].tolist() != told[:count]:
        raise Unread
    return True
