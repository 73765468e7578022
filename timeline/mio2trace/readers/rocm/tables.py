"""CSV tables of ROCm's profilers, which do not escape quotes (rocm-profiles.md 5, 11.5).

One column is free text; all others have neither commas nor quotes inside. If cells are quoted, the quotes show where a
cell ends. If they do not (the text contains quotes or commas), the cells are guessed: the text is the part that remains
after the other columns are taken from both ends. A guess may be wrong by a missing cell; then its times are invalid,
and the row is lost. Columns are found by name, in any order and spelling of capitals.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from mio2trace.notes import Notes
from mio2trace.patterns import late

_MOST_LINES = 64
"""The most lines of one row: a text may have line breaks in it."""
_LONGEST_HEADER = 60_000
MOST_DIGITS = 19
MOST_TIME = (1 << 63) - 1
_CELL = late(r'(?:"((?:[^"]|"")*)"|([^",]*))(,|\Z)')
_SECOND = 1_000_000_000


def header(head: bytes) -> tuple[str, ...]:
    """Return the names of the columns in lower case; empty if the first line is no header of a table.

    The first column may have no name: pandas writes its index so. A quote that does not end is a terminal's line break.
    """
    line = head.lstrip(b"\r\n").split(b"\n", 1)[0].rstrip(b"\r")
    if b"," not in line or len(line) > _LONGEST_HEADER or line.count(b'"') % 2:
        return ()
    names = tuple(name.strip().strip('"').lower() for name in line.decode(errors="replace").split(","))
    return names if all(names[1:]) else ()


def integer(text: str) -> int | None:
    """Return a number as these tables write it; None for anything else."""
    value = int(text) if text.isdigit() and text.isascii() and len(text) <= MOST_DIGITS else None
    return value if value is not None and value < 1 << 63 else None


class Table:
    """Rows of ``lines``, the header first. ``text``: the column of free text. ``numbers``: columns that show whether a
    row is complete. An incomplete row is counted in ``notes``."""

    def __init__(self, lines: Iterator[bytes], text: str, numbers: tuple[str, ...], notes: Notes, place: str) -> None:
        self._lines = lines
        first = next((line for line in lines if line.strip()), b"")
        self._header = first.strip()
        self.part = 0
        """How often the header came again: the table was appended to another one."""
        self.columns = header(first)
        self._place_of = {name: place for place, name in enumerate(self.columns)}
        self._text = self._place_of.get(text, -1)
        self._numbers = tuple(self._place_of[name] for name in numbers if name in self._place_of)
        self._notes = notes
        self._place = place
        self._is_guess = False
        """Whether the fields of the row that was taken apart last are a guess."""

    def __contains__(self, column: str) -> bool:
        return column in self._place_of

    def rows(self, *columns: str) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield (line, the fields of two or more columns without quotes); a missing column is empty. Guessed rows come
        last."""
        # a missing column is one past the end, where rows have an empty text
        chosen = itemgetter(*(self._place_of.get(column, len(self.columns)) for column in columns))
        return ((number, chosen(fields)) for number, fields in self._in_time())

    def _in_time(self) -> Iterator[tuple[int, list[str]]]:
        guessed: list[tuple[int, list[str]]] = []
        low, high = MOST_TIME, 0
        for number, fields in self._rows():
            if self._is_guess:
                guessed.append((number, fields))
                continue
            if self._numbers:
                at = integer(fields[self._numbers[0]])
                if at is not None:
                    low, high = min(low, at), max(high, at)
            yield number, fields
        if guessed:
            yield from self._possible(guessed, low, high)

    def _possible(self, guessed: list[tuple[int, list[str]]], low: int, high: int) -> Iterator[tuple[int, list[str]]]:
        """Yield guessed rows whose times are near those of the others, ``low`` to ``high``, or of most guessed rows."""
        times = [[integer(fields[place]) for place in self._numbers] for _, fields in guessed]
        if low > high:
            starts = sorted(row[0] for row in times if row and row[0] is not None) or [0]
            low, high = starts[len(starts) // 10], starts[len(starts) * 9 // 10]
        slack = 10 * (high - low) + _SECOND
        for row, found in zip(guessed, times, strict=True):
            if all(at is not None and low - slack <= at <= high + slack for at in found):
                yield row
            else:
                self._lost(1)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        pending, begun, whole = "", 0, 0
        least = len(self.columns) - 1
        is_cut = False
        number = 1
        for number, line in enumerate(self._lines, 2):
            is_cut = not line.endswith(b"\n")  # these tools end each row with one
            if line.strip() == self._header:
                if pending:
                    self._lost(whole)
                    pending = ""
                self.part += 1
                self._notes.remark("header of a table that comes again: several tables in one file", self._place)
                continue
            text = line.decode(errors="replace").rstrip("\r\n")
            # A row begins like the one before it, with a quote or without.
            fields = None if pending[:1] == '"' != text[:1] else self._fields(text)
            if fields is None and pending and number - begun < _MOST_LINES:
                pending = f"{pending}\n{text}"
                whole += text.count(",") >= least
                fields = self._fields(pending)
                if fields is not None:
                    pending = ""
                    yield begun, fields
                continue
            if pending:
                self._lost(whole)
                pending = ""
            if fields is not None:
                yield number, fields
            elif text.strip():
                pending, begun, whole = text, number, text.count(",") >= least
        if is_cut:
            self._notes.cut_off(self._place, f"line {number}")
        elif pending:
            self._lost(whole)

    def _lost(self, rows: int) -> None:
        """Count lost rows. ``rows``: the lost lines that have all columns; each is one row."""
        self._notes.unreadable(self._place, max(rows, 1))

    def _fields(self, line: str) -> list[str] | None:
        """Return the fields; None if it is no complete row."""
        count, cells = len(self.columns), line.split(",")
        fields: list[str] | None = cells
        self._is_guess = False
        if '"' in line:
            plain = _without_quotes(cells)
            is_plain = len(plain) == count and '"' not in "".join(plain)
            fields = plain if is_plain else _cells(line) or self._guessed(line)
        elif len(cells) != count or ", " in line:  # no writer puts a space before a cell
            fields = self._guessed(line)
        if fields is None or len(fields) != count or not all(fields[place].isdigit() for place in self._numbers):
            return None
        fields.append("")
        return fields

    def _guessed(self, line: str) -> list[str] | None:
        """Return a row whose quotes do not divide it: the text is the part that the other columns leave."""
        count = len(self.columns)
        if self._text < 0:
            return None
        fields = line.split(",", self._text)
        fields += fields.pop().rsplit(",", count - 1 - self._text)
        if len(fields) != count:
            return None
        text = fields[self._text]
        if '"' in line and (text[:1] == '"') != (text[-1:] == '"'):
            return None
        self._is_guess = True
        fields = _without_quotes(fields)
        fields[self._text] = _unescaped(fields[self._text])
        return fields


def _without_quotes(fields: list[str]) -> list[str]:
    return [field[1:-1] if field[:1] == '"' == field[-1:] and len(field) > 1 else field for field in fields]


def _cells(line: str) -> list[str] | None:
    """Return a row's cells as its quotes divide them; None if a text has quotes of its own."""
    cells: list[str] = []
    at = 0
    while (found := _CELL.match(line, at)) is not None:
        quoted, plain, comma = found.groups()
        cells.append(plain if quoted is None else _unescaped(quoted) if '""' in quoted else quoted)
        at = found.end()
        if not comma:
            return cells
    return None


def _unescaped(text: str) -> str:
    """Undo the doubling of quotes in a table that another program wrote again."""
    return text.replace('""', '"') if '"' not in text.replace('""', "") else text
