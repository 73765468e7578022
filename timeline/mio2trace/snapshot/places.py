"""Where a dataset is, and its runs in it: looked at before anything of it is read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mio2trace.notes import InputError

FOLDER, RUNS = "snapshot", "runs"
_JOURNALS = "_runs*.jsonl"
_OF_ALL = "kernels"
"""Of each run that did not fail this table has a file."""
_MAGIC = b"PAR1"
_INSTEAD = "expected the files of a run, or a dataset that was written with its runs"


def is_dataset(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder of tables, or one of their files."""
    if os.path.isdir(path):
        return any(_files(Path(path) / RUNS))
    try:
        if not os.path.isfile(path):
            return False  # what is read of a pipe is gone
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except (OSError, ValueError):
        return False


class Kept(NamedTuple):
    """The snapshots of a dataset, and how many of its runs failed: of these nothing is kept."""

    snapshots: list[Path]
    failed: int = 0


def snapshots_of(path: str | os.PathLike[str]) -> Kept:
    """The snapshots of all runs of a dataset, or of the one that a file is of. Raises `InputError` without any."""
    place = Path(path)
    folder, files = (place, list(_files(place / RUNS))) if place.is_dir() else (place.resolve().parent.parent, [place])
    kept: list[Path] = []
    for file in files:
        snapshot = folder / FOLDER / file.name
        if snapshot.is_file():
            kept.append(snapshot)
        elif (folder / _OF_ALL / file.name).is_file() or not (folder / RUNS / file.name).is_file():
            raise InputError(f"{path}: tables alone, no {FOLDER}/{file.name} beside them; {_INSTEAD}")
    if not kept:
        what = "a run that failed" if len(files) == 1 else "all its runs failed"
        raise InputError(f"{path}: {what}, the table {RUNS!r} has the reasons; {_INSTEAD}")
    return Kept(kept, len(files) - len(kept))


def journals_of(folder: Path) -> list[Path]:
    """The journals of a dataset: files in it. A pipe would be waited for, and a link may lead anywhere."""
    return [path for path in sorted(folder.glob(_JOURNALS)) if path.is_file() and not path.is_symlink()]


def _files(folder: Path) -> Iterator[Path]:
    """The tables in a folder, by name."""
    with contextlib.suppress(OSError):
        yield from sorted(path for path in folder.glob("*.parquet") if path.is_file() and path.name[0] != ".")
