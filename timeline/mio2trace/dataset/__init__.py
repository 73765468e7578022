"""A run as tables: in memory (`tables_of`, `Table`), in a folder of Parquet files (`write_run`).

    from mio2trace.dataset import write_run
    rows = write_run(run, folder, name, notes)     # {"runs": 1, "kernels": 18300, ...}

`write_run` takes one `mio2trace.Run` of an analysis and writes ``folder/<table>/<name>.parquet`` for each of
`schema.TABLES`, zstd, each beside and renamed, ``runs`` last: a run that has a file there is whole. The column ``run``
holds ``name`` (the run's own when empty) as it is; in the files' names `file_name` quotes what is none in a file's name
(``a/b`` is ``a%2Fb.parquet``). ``notes`` are those of the analysis. The same run gives the same bytes. It needs the
extra ``batch``; without it, and where nothing can be written, it raises `mio2trace.InputError`.
"""

from __future__ import annotations

import os

from mio2trace.analysis import Run
from mio2trace.dataset.parquet import file_name, write
from mio2trace.dataset.rows import tables_of
from mio2trace.dataset.schema import TABLES, VERSION
from mio2trace.memory import without_garbage_collection
from mio2trace.notes import Notes

__all__ = ["TABLES", "VERSION", "file_name", "tables_of", "write_run"]


def write_run(run: Run, folder: str | os.PathLike[str], name: str = "", notes: Notes | None = None) -> dict[str, int]:
    """Write the tables of a run, and return how many rows each has."""
    with without_garbage_collection():
        return write(tables_of(run, name, notes), folder, name or run.name)
