"""What is asked of a dataset: its tables, in DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mio2trace.notes import InputError

if TYPE_CHECKING:
    from mio2trace.queries.answer import Answer


def is_asked_of_dataset(files: Sequence[str], name: str, *, of_run: bool) -> bool:
    """Whether the tables of a dataset are asked, not the picture of a run, which ``of_run`` is about.

    Raises `InputError` where the query ``name`` is about datasets, and the files are none.
    """
    from mio2trace.snapshot.places import is_dataset

    if of_run:
        return False
    is_one = any(file != "-" and is_dataset(file) for file in files)
    if name and not is_one:
        raise InputError(
            f"{files[0]}: no dataset, which {name!r} is about; `-o out.parquet` or `mio2trace batch` makes one"
        )
    return is_one


def ask_dataset(files: Sequence[str], sql: str) -> Answer:
    """The answer to one SELECT. Raises `InputError`."""
    from mio2trace.queries.dataset import opened
    from mio2trace.schema import SQL_COLUMNS

    if len(files) > 1:
        raise InputError(f"{', '.join(files)}: expected one dataset, which holds many runs")
    with opened(files[0], SQL_COLUMNS) as dataset:
        return dataset.ask(sql)
