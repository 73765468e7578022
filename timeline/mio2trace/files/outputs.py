"""Outputs replaced as a whole, and standard output with its errors in one line."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from mio2trace.notes import InputError


@contextlib.contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Raises `InputError` when it is closed or cannot be written; that its reader has gone stays `BrokenPipeError`."""
    stdout = getattr(sys.stdout, "buffer", None)
    if stdout is None:
        raise InputError("standard output: closed")
    try:
        yield stdout
        stdout.flush()
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # the reader has seen enough
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer goes nowhere, without a word
        raise InputError(f"standard output: {error.strerror or error}") from None


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` when all of it is written, and leaves no trace when it is not.

    Raises `InputError` when the place cannot be written.
    """
    try:
        real = Path(os.path.realpath(path))
    except OSError as error:  # the current folder is gone
        raise InputError(f"{path}: cannot write there: {error.strerror or error}") from None
    try:
        exists = real.exists()
    except OSError as error:  # a name that is too long
        raise InputError(f"{path}: cannot write there: {error.strerror or error}") from None
    if exists and not real.is_file():
        try:
            with open(real, "wb") as device:  # /dev/null, a pipe: nothing to keep whole
                yield device
            return
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
    try:
        handle, temporary = tempfile.mkstemp(prefix=".mio2trace-", suffix=".tmp", dir=real.parent)
    except OSError as error:
        raise InputError(f"{path}: cannot write there: {error.strerror or error}") from None
    try:
        with open(handle, "wb") as file:
            yield file
            file.flush()
        mode = real.stat().st_mode & 0o7777 if exists and real.exists() else 0o666 & ~_umask()
        os.chmod(temporary, mode)
        os.replace(temporary, real)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise InputError(f"{path}: {error.strerror or error}; what was there before is unchanged") from None
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
