"""Two halves of an output written at the same time, by a process beside this one where the system has one to spare."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import BinaryIO

from mio2trace import forked as process

Write = Callable[[BinaryIO], None]


@contextlib.contextmanager
def beside(write: Write) -> Iterator[Write]:
    """Run ``write`` in a process of its own while the body runs; yields what appends its output to a file.

    Where there is no such process, or it fails, the yielded function writes itself: the output is the same, only later.
    It is written to memory: to a disk once, not twice.
    """
    with process.beside(write) as result:

        def append(target: BinaryIO) -> None:
            written = result()
            if written is None:
                write(target)
            else:
                shutil.copyfileobj(written, target, 1 << 18)

        yield append
