"""Opening: what is a file, what may have no end, and a named pipe that waits for its writer."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import BinaryIO

from mio2trace.notes import InputError

WRITER_S = 5
"""How long a named pipe is given until somebody writes to it."""


def refuse_what_is_no_file(name: str, mode: int) -> None:
    """A pipe is fine: that is how a shell hands over the output of a command."""
    if stat.S_ISDIR(mode):
        raise InputError(f"{name}: is a directory that holds no CK experiment; expected a file")
    for is_it, what in ((stat.S_ISSOCK, "socket"), (stat.S_ISCHR, "device"), (stat.S_ISBLK, "device")):
        if is_it(mode):
            raise InputError(f"{name}: is a {what}; expected a file")


def has_end(file: BinaryIO) -> bool:
    """Whether it is a regular file, or lies in memory."""
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return True


def leads_out(path: str, folder: str) -> bool:
    """Whether a path below ``folder`` leads out of it by a link, which is the work of whoever wrote the folder."""
    real = os.path.join(os.path.realpath(folder), "")
    return not os.path.join(os.path.realpath(path), "").startswith(real)


def opened_pipe(path: str, name: str, block_size: int) -> tuple[BinaryIO, bytes]:
    """A named pipe and what its writer has written so far, at most ``block_size`` bytes.

    Raises `InputError` where there is no writer for `WRITER_S`.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    until = time.monotonic() + WRITER_S
    try:
        first = b""
        with contextlib.suppress(BlockingIOError):  # a writer that has written nothing yet
            while not (first := os.read(handle, block_size)):
                if time.monotonic() > until:
                    raise InputError(f"{name}: is a named pipe that nobody writes to; expected a file")
                time.sleep(0.01)
        os.set_blocking(handle, True)
        return open(handle, "rb"), first
    except BaseException:
        os.close(handle)
        raise
