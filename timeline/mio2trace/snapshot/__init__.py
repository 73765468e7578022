"""An analysed run, stored beside its tables: the data that tables cannot rebuild, so that every command accepts it.

A `files.Snapshot` holds the cleaned records of the run and the results of the alignment. Data that only served to join
records (addresses of buffers, arguments, program sources) is not stored. Reading a snapshot joins nothing again: links
are those of the version that wrote it. `objects` turns records into columns, `files` stores them as Parquet. This
module has the places of a dataset and of its runs, which are checked before anything is read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mio2trace.notes import InputError

if TYPE_CHECKING:
    from pathlib import Path

FOLDER, RUNS = "snapshot", "runs"
_JOURNALS = "_runs*.jsonl"
_OF_ALL = "kernels"
"""This table has a file for each run that did not fail."""
_MAGIC = b"PAR1"
_INSTEAD = "expected the files of a run, or a dataset that was written with its runs"


def is_dataset(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a folder of tables, or a file of a table."""
    if os.path.isdir(path):
        from pathlib import Path

        return any(_files(Path(path) / RUNS))
    try:
        if not os.path.isfile(path):
            return False  # reading from a pipe would remove the data
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except (OSError, ValueError):
        return False


class Kept(NamedTuple):
    """The snapshots of a dataset, and the number of failed runs, which have no snapshot."""

    snapshots: list[Path]
    failed: int = 0


def snapshots_of(path: str | os.PathLike[str]) -> Kept:
    """Return the snapshots of all runs of a dataset, or of the run of one file. Raises `InputError` if there is
    none."""
    from pathlib import Path

    place = Path(path)
    folder, files = (place, list(_files(place / RUNS))) if place.is_dir() else (place.resolve().parent.parent, [place])
    kept: list[Path] = []
    for file in files:
        snapshot = folder / FOLDER / file.name
        if snapshot.is_file():
            kept.append(snapshot)
        elif not any((folder / name).is_dir() for name in (RUNS, _OF_ALL)):
            raise InputError(
                f"{path}: a table of no dataset of mio2trace; {_INSTEAD}; of rocprofv3 its database, JSON or CSV"
                " (--output-format)"
            )
        elif (folder / _OF_ALL / file.name).is_file() or not (folder / RUNS / file.name).is_file():
            raise InputError(f"{path}: tables alone, no {FOLDER}/{file.name} beside them; {_INSTEAD}")
    if not kept:
        what = "a run that failed" if len(files) == 1 else "all its runs failed"
        raise InputError(f"{path}: {what}, the table {RUNS!r} has the reasons; {_INSTEAD}")
    return Kept(kept, len(files) - len(kept))


def journals_of(folder: Path) -> list[Path]:
    """Return the journals of a dataset. Only regular files count: a pipe would block, and a link may lead anywhere."""
    return [path for path in sorted(folder.glob(_JOURNALS)) if path.is_file() and not path.is_symlink()]


def _files(folder: Path) -> Iterator[Path]:
    """Return the tables in a folder, by name."""
    with contextlib.suppress(OSError):
        yield from sorted(path for path in folder.glob("*.parquet") if path.is_file() and path.name[0] != ".")
