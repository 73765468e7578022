"""The contract of a reader: a module with ``NAME``, ``sniff(head)`` and ``read(source, options, notes)``. A
module with several formats has a `Format` for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from mio2trace.model.choices import GemmTable, SolverTable
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import MiopenLog
from mio2trace.model.profile import Profile
from mio2trace.model.tf import TfProfile, TfView
from mio2trace.notes import Notes
from mio2trace.patterns import late
from mio2trace.source import Source

_CLONE = late(
    r"(?:\.(?:kd|cold|(?:isra|constprop|part|clone|lto_priv|llvm)\.[0-9]+)| \[clone [^\]\[]{1,40}\]| \(\.kd\))\Z"
)
_LONGEST_CLONE, _CLONES = 60, 6
Record = Profile | FrameworkLog | MiopenLog | TfProfile | TfView | SolverTable | GemmTable
Records = list[Record]


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Records to keep. ``host_calls``: every API call. ``functions``: the Python functions of long gaps.
    ``every_message``: also messages of a library's log that show nothing about an operation."""

    host_calls: bool = False
    functions: bool = True
    every_message: bool = False


class Reader(Protocol):
    """The interface of a format."""

    @property
    def NAME(self) -> str:
        """The name of the format for users."""

    def sniff(self, head: bytes, /) -> bool:
        """Return whether the first 64 KiB are of this format; fast, and true for one format only."""

    def read(self, source: Source, options: ReadOptions, notes: Notes, /) -> Records:
        """Return the records of ``source``. Raises `InputError` if it is unusable."""


class Format(msgspec.Struct, frozen=True):
    """One of several formats of a module, as a `Reader`."""

    NAME: str
    sniff: Callable[[bytes], bool]
    read: Callable[[Source, ReadOptions, Notes], Records]


def of_json(error: Exception) -> str:
    """Describe an error in JSON; if the end is missing, in the words that all readers use for cut files."""
    return "file cut off" if "truncated" in str(error) else str(error)


def json_object(*fields: str, **kinds: Any) -> Any:
    """Return a class for objects of JSON from a stranger: ``fields`` may hold anything, or be missing. ``kinds``: other
    fields, by class; a list of objects as ``[class]``; anything else as (type, default)."""
    made: list[Any] = [(name, Any, None) for name in fields]
    for name, kind in kinds.items():
        if isinstance(kind, tuple):
            made.append((name, kind[0]) if kind[1] is msgspec.NODEFAULT else (name, *kind))
        elif isinstance(kind, list):
            made.append((name, list[kind[0]], msgspec.field(default_factory=list)))  # type: ignore[valid-type]
        else:
            made.append((name, kind, msgspec.field(default_factory=kind)))
    return msgspec.defstruct("Object", made, kw_only=True, gc=False)


def utf8(data: bytes, place: str, notes: Notes) -> bytes:
    """Return ``data`` with replacement characters for what is no UTF-8, with a note."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        notes.add("text that is no UTF-8 replaced", f"{place}: byte {error.start}")
        return data.decode(errors="replace").encode()
    return data


def kernel_name(name: object) -> str:
    """Return a kernel's name without suffixes of compilers and loaders: ``.kd``, ``.isra.0``, `` [clone .kd]``; empty
    if it is no text (rocm-profiles.md 9)."""
    if not isinstance(name, str):
        return ""
    if "." not in name:
        return name
    for _ in range(_CLONES):
        found = _CLONE.search(name, max(0, len(name) - _LONGEST_CLONE))
        if not found or not found.start():
            break
        name = name[: found.start()]
    return name
