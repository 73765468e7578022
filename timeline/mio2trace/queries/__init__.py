"""The queries that come with the program: one file of SQL, in blocks that say their names."""

from __future__ import annotations

import re
from importlib import resources
from typing import NamedTuple

_QUERY = re.compile(r"(?m)^-- query: *")
_COMMENT = re.compile(r"(?m)^--.*\n")


class Query(NamedTuple):
    """A query: what it is called, what it answers in one line, and its SQL, which needs the prelude."""

    name: str
    about: str
    sql: str


def text() -> str:
    """The file as it is: for the viewer's query page, too."""
    return (resources.files(__name__) / "queries.sql").read_text("utf-8")


def prelude() -> list[str]:
    """Statements that every query needs before it: they make the views that the file documents."""
    head = _QUERY.split(text())[0]
    statements = _COMMENT.sub("", head).split(";")
    return [statement.strip() for statement in statements if statement.strip()]


def shipped() -> dict[str, Query]:
    """The queries by name, in the file's order."""
    found = {}
    for block in _QUERY.split(text())[1:]:
        name, _, rest = block.partition("\n")
        about = " ".join(line[2:].strip() for line in rest.splitlines() if line.startswith("--"))
        sql = _COMMENT.sub("", rest).strip().removesuffix(";")
        found[name.strip()] = Query(name.strip(), about, sql)
    return found
