"""The queries that come with the program: files of SQL for traces and for datasets, in blocks with names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

DATASET = "dataset.sql"
"""The queries of datasets."""
_QUERY = re.compile(r"(?m)^-- query: *")
_COMMENT = re.compile(r"(?m)^--.*\n")


class Query(NamedTuple):
    """A query: its name, its answer in one line, and its SQL, which needs the prelude."""

    name: str
    about: str
    sql: str


def text(file: str = "queries.sql") -> str:
    """Return the text of the file, also for the viewer's query page."""
    return (resources.files(__name__) / file).read_text("utf-8")


def prelude() -> list[str]:
    """Return the statements that every query needs before it: they make the views that the file documents."""
    head = _QUERY.split(text())[0]
    statements = _COMMENT.sub("", head).split(";")
    return [statement.strip() for statement in statements if statement.strip()]


def shipped(file: str = "queries.sql") -> dict[str, Query]:
    """Return the queries by name, in the file's order: for a trace, or (``dataset.sql``) for a dataset."""
    found = {}
    for block in _QUERY.split(text(file))[1:]:
        name, _, rest = block.partition("\n")
        about = " ".join(line[2:].strip() for line in rest.splitlines() if line.startswith("--"))
        sql = _COMMENT.sub("", rest).strip().removesuffix(";")
        found[name.strip()] = Query(name.strip(), about, sql)
    return found


# -- The answer of a query, in any engine ------------------------------------------------------------------------------


class Answer(NamedTuple):
    """Named columns, and rows with one value for each: text, number, bytes or None."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


MOST_NAMES = 40


def what_there_is(sql: str, tables: Mapping[str, Sequence[str]]) -> str:
    """Return ``; columns of kernels: name, ts, ...`` for the tables that the SQL names, or for all tables if it names
    none."""
    named = {table: columns for table, columns in tables.items() if re.search(rf"\b{re.escape(table)}\b", sql, re.I)}
    found = [f"; columns of {table}: {_listed(columns)}" for table, columns in named.items()]
    return "".join(found) or f"; tables: {_listed([*tables])}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
