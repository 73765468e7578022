"""Traces of ours, read again: their slices, whatever the form and whether compressed."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from mio2trace.trace import Slice
from mio2trace.writers import WRITERS

_GZIP = b"\x1f\x8b"
_HEAD = 4096
"""Bytes within which each form says who wrote it."""
_GENERATOR = b"mio2trace "


def is_ours(path: Path) -> bool:
    """Whether the file is a trace that this program wrote. Raises OSError where it cannot be read."""
    try:
        with opened(path) as file:
            head = file.read(_HEAD)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return False
    return any(head.startswith(writer.BEGINS) for writer in WRITERS) and _GENERATOR in head


def slices(path: Path, category: str | None = None) -> Iterator[Slice]:
    """The slices of a category, all without one; none of a file that is not ours.

    What is damaged ends the reading. Raises OSError where the file cannot be read.
    """
    with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):
        with opened(path) as file:
            head = file.read(_HEAD)
        for writer in WRITERS:
            if head.startswith(writer.BEGINS):
                with opened(path) as file:
                    yield from writer.slices(file, category)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The trace's bytes, decompressed."""
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        yield gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[misc]
