"""One archive of what a run left behind, written beside its place and moved there whole."""

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
"""Of deflate: a log shrinks to a twelfth of its size at the speed of a disk."""
_COPIED_AT_ONCE = 1 << 20


def pack(path: str, manifest: Mapping[str, Any], members: Mapping[str, str]) -> None:
    """Write an archive to ``path``: ``manifest`` and the files ``members``, by name in it.

    Raises `InputError` where it cannot be written; then what was there before is unchanged.
    """
    with replacing(path) as target, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as made:
        made.writestr(_new(MANIFEST), orjson.dumps({"schema": SCHEMA, **manifest}, option=orjson.OPT_INDENT_2) + b"\n")
        for name, file in members.items():
            with open(file, "rb") as source, made.open(_entry(name, source), "w", force_zip64=True) as packed:
                shutil.copyfileobj(source, packed, _COPIED_AT_ONCE)


def _entry(name: str, source: BinaryIO) -> zipfile.ZipInfo:
    """No time and no owner: what is packed twice is the same bytes. Data that shrinks so much that it looks like a zip
    bomb is stored as it is."""
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
    """``name``, or with a number before it where another file has it: folders, named for machines, are left away.

    What no member of an archive may be called by (line ends, backslashes, bytes that are no UTF-8) is ``_``.
    """
    name = "".join(char if char.isprintable() and char not in "\\:" else "_" for char in name)
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{number}-{name}"
    return free
