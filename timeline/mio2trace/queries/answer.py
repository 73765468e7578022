"""What a query answers, in whatever engine."""

from __future__ import annotations

from typing import Any, NamedTuple


class Answer(NamedTuple):
    """Named columns, and rows of as many values each: text, number, bytes or None."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
