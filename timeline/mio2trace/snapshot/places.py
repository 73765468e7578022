"""Where a dataset is, and its runs in it: looked at before anything of it is read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from mio2trace.notes import InputError

FOLDER, RUNS = "snapshot", "runs"
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


def snapshots_of(path: str | os.PathLike[str]) -> list[Path]:
    """The snapshots of all runs of a dataset, or of the one that a file is of. Raises `InputError` without any."""
    place = Path(path)
    if place.is_dir():
        files = [place / FOLDER / file.name for file in _files(place / RUNS)]
    else:
        files = [place.resolve().parent.parent / FOLDER / place.name]
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None:
        raise InputError(f"{path}: tables alone, no {missing.parent.name}/{missing.name} beside them; {_INSTEAD}")
    return files


def _files(folder: Path) -> Iterator[Path]:
    """The tables in a folder, by name."""
    with contextlib.suppress(OSError):
        yield from sorted(path for path in folder.glob("*.parquet") if path.is_file() and path.name[0] != ".")
