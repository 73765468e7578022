"""Two halves of an output written at the same time, by a process beside this one where the system has one to spare."""

from __future__ import annotations

import contextlib
import io
import shutil
import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO

from mio2trace import forked as process

Write = Callable[[BinaryIO], int]
"""Writes to a file; how many slices."""
_COUNT = struct.Struct("<Q")


@contextlib.contextmanager
def beside(write: Write) -> Iterator[Write]:
    """Run ``write`` in a process of its own while the body runs; yields what appends its output to a file.

    Where there is no such process, or it fails, the yielded function writes itself: the output is the same, only later.
    It is written to memory: to a disk once, not twice.
    """

    def counted(own: BinaryIO) -> None:
        own.write(bytes(_COUNT.size))
        count = write(own)
        own.seek(0)
        own.write(_COUNT.pack(count))
        own.seek(0, io.SEEK_END)

    with process.beside(counted) as result:

        def append(target: BinaryIO) -> int:
            written = result()
            if written is None:
                return write(target)
            count: int = _COUNT.unpack(written.read(_COUNT.size))[0]
            shutil.copyfileobj(written, target, 1 << 18)
            return count

        yield append
