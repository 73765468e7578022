"""The folders that may be read: a path that a client names becomes a path below one of them, or is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from mio2trace.notes import InputError, OptionError

MOST_NAMES = 100_000
"""Files and folders that one listing looks at."""


class Folders:
    """Resolves paths of a client. Everything outside of ``folders`` is refused, links that lead out included."""

    def __init__(self, folders: Sequence[str]) -> None:
        for folder in folders:
            if not os.path.isdir(folder):
                raise OptionError(f"{folder}: no folder; expected folders that hold profiles and logs")
        self._given = [os.path.abspath(folder) for folder in folders]
        self.real = [os.path.realpath(folder) for folder in folders]

    def resolve(self, path: str) -> str:
        """The absolute path of an existing file or folder. A relative ``path`` begins in one of the folders.

        Raises `InputError`: outside, ambiguous, not there.
        """
        if not path or "\0" in path:
            raise InputError(f"{path!r}: no path")
        if ".." in path.split(os.sep):
            raise InputError(f"{path}: '..' is not allowed in a path")
        found = [place for place in self._candidates(path) if os.path.lexists(place)]
        if not found:
            raise InputError(f"{path}: not below the folders of this server; the tool 'files' lists what is")
        if len({os.path.realpath(place) for place in found}) > 1:
            raise InputError(f"{path}: is in several folders of this server; expected the absolute path")
        if not self.holds(found[0]):
            raise InputError(f"{path}: a link that leads out of the folders of this server")
        return found[0]

    def holds(self, path: str) -> bool:
        """Whether a path, links resolved, is in one of the folders."""
        return is_below(os.path.realpath(path), self.real)

    def folder_of(self, path: str) -> str:
        """The one of the folders that a resolved path is in."""
        return next(real for real in self.real if is_below(path, [real]))

    def listing(self) -> Iterator[str]:
        """Files and folders below, relative to their folder, those that links lead out to left out."""
        looked_at = 0
        for real in self.real:
            for folder, folders, files in os.walk(real):
                folders[:] = sorted(name for name in folders if name[0] != ".")
                for name in [*(f"{name}/" for name in folders), *sorted(files)]:
                    looked_at += 1
                    if looked_at > MOST_NAMES:
                        return
                    path = os.path.join(folder, name)
                    if name[0] != "." and self.holds(path):
                        yield os.path.relpath(path, real) + ("/" if name.endswith("/") else "")

    def _candidates(self, path: str) -> Iterator[str]:
        for given, real in zip(self._given, self.real, strict=True):
            if not os.path.isabs(path):
                yield os.path.join(real, os.path.normpath(path))
                continue
            for folder in (given, real):
                if is_below(os.path.normpath(path), [folder]):
                    yield os.path.join(real, os.path.relpath(os.path.normpath(path), folder))
                    break


def is_below(path: str, folders: Sequence[str]) -> bool:
    """Whether an absolute path is one of the folders or in one of them; no link is resolved."""
    return any(path == folder or path.startswith(os.path.join(folder, "")) for folder in folders)
