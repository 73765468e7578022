"""CSV tables of ROCm's profilers, whose writers escape no quotes (rocm-profiles.md 5, 11.5).

One column is free text, all others hold neither commas nor quotes of their own: what is left when the others have been
taken from both ends is the text, whatever stands in it. Columns are found by name, in any order and capitals.
"""

from __future__ import annotations

from collections.abc import Iterator

from mio2trace.notes import Notes

_MOST_LINES = 64
"""Of one row: a text may have line breaks in it."""
_LONGEST_HEADER = 60_000
MOST_DIGITS = 19


def header(head: bytes) -> tuple[str, ...]:
    """The names of the columns in lower case; empty where the first line is none of a table."""
    line = head.lstrip(b"\r\n").split(b"\n", 1)[0].rstrip(b"\r")
    if b"," not in line or len(line) > _LONGEST_HEADER:
        return ()
    names = tuple(name.strip().strip('"').lower() for name in line.decode(errors="replace").split(","))
    return names if all(names) else ()


def integer(text: str) -> int | None:
    """A number as these tables write it; None for anything else."""
    value = int(text) if text.isdigit() and text.isascii() and len(text) <= MOST_DIGITS else None
    return value if value is not None and value < 1 << 63 else None


class Table:
    """Rows of ``lines``, the header first. ``text``: the column of free text; ``numbers``: columns that say of a row
    whether it is whole. A row that is not is counted in ``notes``."""

    def __init__(self, lines: Iterator[bytes], text: str, numbers: tuple[str, ...], notes: Notes, place: str) -> None:
        self._lines = lines
        first = next((line for line in lines if line.strip()), b"")
        self.columns = header(first)
        self._place_of = {name: place for place, name in enumerate(self.columns)}
        self._text = self._place_of.get(text, -1)
        self._numbers = tuple(self._place_of[name] for name in numbers if name in self._place_of)
        self._notes = notes
        self._place = place

    def __contains__(self, column: str) -> bool:
        return column in self._place_of

    def places(self, *columns: str) -> tuple[int, ...]:
        """Where in a row columns stand; one past the end, where rows have an empty text, if the table has them not."""
        return tuple(self._place_of.get(column, len(self.columns)) for column in columns)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """(line, fields without their quotes and one empty text more)."""
        pending, begun, whole = "", 0, 0
        least = len(self.columns) - 1
        for number, line in enumerate(self._lines, 2):
            text = line.decode(errors="replace").rstrip("\r\n")
            # A row begins as the one before it did, with a quote or without.
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
        if pending:
            self._lost(whole)

    def _lost(self, rows: int) -> None:
        """``rows``: lines among what is lost that have all columns; each is a row that is lost."""
        self._notes.add("row of a table that cannot be read passed over", self._place, max(rows, 1))

    def _fields(self, line: str) -> list[str] | None:
        """None where it is no whole row."""
        count = len(self.columns)
        fields = line.split(",")
        if len(fields) != count:
            if len(fields) < count or self._text < 0:
                return None
            fields = line.split(",", self._text)
            fields += fields.pop().rsplit(",", count - 1 - self._text)
        if '"' in line:
            fields = [field[1:-1] if field[:1] == '"' == field[-1:] and len(field) > 1 else field for field in fields]
            if self._text >= 0 and '""' in fields[self._text]:
                fields[self._text] = _unescaped(fields[self._text])
        for place in self._numbers:
            if not fields[place].isdigit():
                return None
        fields.append("")
        return fields


def _unescaped(text: str) -> str:
    """A table that another program wrote again has its quotes doubled."""
    return text.replace('""', '"') if '"' not in text.replace('""', "") else text
