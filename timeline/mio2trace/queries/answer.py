"""What a query answers, in whatever engine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """Named columns, and rows of as many values each: text, number, bytes or None."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


MOST_NAMES = 40


def what_there_is(sql: str, tables: Mapping[str, Sequence[str]]) -> str:
    """``; columns of kernels: name, ts, ...``: of the tables that the SQL names. If it names none, all tables."""
    named = {table: columns for table, columns in tables.items() if re.search(rf"\b{re.escape(table)}\b", sql, re.I)}
    found = [f"; columns of {table}: {_listed(columns)}" for table, columns in named.items()]
    return "".join(found) or f"; tables: {_listed([*tables])}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
