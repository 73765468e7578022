"""One archive of all files of a run. It is written under another name and renamed when it is complete."""

from __future__ import annotations

import shutil
import zipfile
import zlib
from collections.abc import Container, Mapping
from typing import Any, BinaryIO

import orjson

from mio2trace.files import replacing
from mio2trace.source import MAX_EXPANSION
from mio2trace.source.archive import MANIFEST, SCHEMA

_LEVEL = 1
"""The level of deflate: a log shrinks to a twelfth of its size at the speed of a disk."""
_COPIED_AT_ONCE = 1 << 20


def pack(path: str, manifest: Mapping[str, Any], members: Mapping[str, str]) -> None:
    """Write an archive to ``path``: ``manifest`` and the files ``members``, by their name in it.

    Raises `InputError` if it cannot be written; an older file then stays unchanged.
    """
    with replacing(path) as target, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as made:
        made.writestr(_new(MANIFEST), orjson.dumps({"schema": SCHEMA, **manifest}, option=orjson.OPT_INDENT_2) + b"\n")
        for name, file in members.items():
            with open(file, "rb") as source, made.open(_entry(name, source), "w", force_zip64=True) as packed:
                shutil.copyfileobj(source, packed, _COPIED_AT_ONCE)


def _entry(name: str, source: BinaryIO) -> zipfile.ZipInfo:
    """Leave out time and owner: packing twice gives equal bytes. Data that shrinks so much that it looks like a zip
    bomb is stored uncompressed."""
    entry = _new(name)
    beginning = source.read(_COPIED_AT_ONCE)
    source.seek(0)
    small = len(beginning) < _COPIED_AT_ONCE
    shrinks = small or len(zlib.compress(beginning, _LEVEL)) * MAX_EXPANSION // 2 > len(beginning)
    entry.compress_type = zipfile.ZIP_DEFLATED if shrinks else zipfile.ZIP_STORED
    return entry


def _new(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o100644 << 16
    return entry


def name_for(name: str, taken: Container[str]) -> str:
    """Return ``name``, with a number before it if another file has this name. Folders are left out: their names may be
    machines.

    Characters that a member's name must not have (line ends, backslashes, bytes that are not UTF-8) become ``_``.
    """
    name = "".join(char if char.isprintable() and char not in "\\:" else "_" for char in name)
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{number}-{name}"
    return free
