"""What the process of one call does before its command begins: from then on it opens only what it may.

An audit hook of Python looks at each file that is opened, each folder that is listed and each database that is
connected to, with links resolved. DuckDB opens files past Python, so datasets are looked at as a whole beforehand.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from mio2trace.notes import InputError
from mio2trace.serving.calls import is_below

_SYSTEM = ("/dev/null", "/dev/urandom", "/proc/self")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NEVER = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "socket.connect", "socket.bind")
_OUTSIDE = "outside of the folders of this server"


def confine(folders: Sequence[str], room: str, seconds: float, memory: int) -> None:
    """From now on: read below ``folders``, write below ``room``, no longer than ``seconds``, with ``memory`` bytes."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends also what never comes back to Python
    signal.setitimer(signal.ITIMER_REAL, seconds)
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE):
        _, most = resource.getrlimit(kind)
        least = memory if most == resource.RLIM_INFINITY else min(memory, most)
        resource.setrlimit(kind, (least, most))
    program = [
        os.path.realpath(path) for path in (*sys.path, sys.prefix, sys.base_prefix, os.path.dirname(os.__file__))
    ]
    writable = [os.path.realpath(room), os.devnull]
    readable = [*folders, *writable, *program, *_SYSTEM, os.path.realpath("/proc/self")]
    refused: set[str] = set()

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _NEVER:
            raise PermissionError(errno.EACCES, f"{event} is not allowed in this server")
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, int):
                return
            is_written = bool((flags or 0) & _WRITES) or bool(set(mode or "") & set("wax+"))
        elif event in ("os.listdir", "os.scandir", "sqlite3.connect"):
            path, is_written = arguments[0], False
            if event == "sqlite3.connect":
                path = _database(path)
            if not path or isinstance(path, int):
                return
        else:
            return
        name = os.fsdecode(path)
        if not is_below(os.path.realpath(name), writable if is_written else readable):
            if name not in refused:
                refused.add(name)
                sys.stderr.write(f"note: {os.path.basename(name)!r} is not read: {_OUTSIDE}\n")
            raise PermissionError(errno.EACCES, _OUTSIDE, os.path.basename(name))

    sys.addaudithook(look)


def _database(name: str | bytes) -> str:
    """The path of what SQLite connects to; empty for one in memory."""
    text = os.fsdecode(name)
    if text.startswith("file:"):
        text = unquote(text.removeprefix("file:").partition("?")[0])
    return "" if text == ":memory:" else text


def require_own_datasets(paths: Sequence[str], folders: Sequence[str]) -> None:
    """Raises `InputError` if a dataset among ``paths`` holds a link that leads out, or begins above the folders."""
    from pathlib import Path

    from mio2trace.snapshot.places import is_dataset

    for path in paths:
        if not is_dataset(path):
            continue
        top = path if os.path.isdir(path) else str(Path(path).resolve().parent.parent)
        if not is_below(os.path.realpath(top), folders):
            raise InputError(f"{os.path.basename(path)}: its dataset begins {_OUTSIDE}")
        for folder, below, files in os.walk(top):
            for name in (*below, *files):
                if not is_below(os.path.realpath(os.path.join(folder, name)), folders):
                    raise InputError(f"{os.path.basename(path)}: {name} leads {_OUTSIDE}")
