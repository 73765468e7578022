"""Decoding: gzip, UTF-16, the marks at the start of a file, and what ends a line; block by block."""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from mio2trace.notes import InputError, Notes

GZIP_MAGIC = b"\x1f\x8b"
MARK_BYTES = len(codecs.BOM_UTF8)


class Decompressor(Protocol):
    """A zlib decompression object: its type has no name."""

    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


def gunzip(
    blocks: Iterator[bytes], block_size: int, name: str, bytes_read: Callable[[], int], notes: Notes
) -> Iterator[bytes]:
    """Members one after another, as ``gzip -d`` does; a cut or damaged end gives what is there.

    Blocks of at most ``block_size`` bytes. ``bytes_read``: of the file so far, for what is said.
    Raises `InputError` when nothing is there.
    """
    decoder = zlib.decompressobj(31)
    fresh, members, empty = True, 0, True
    for block in blocks:
        while block:
            if fresh and members:
                block = block.lstrip(b"\0")  # padding of a tape or a disk
                if block and not block.startswith(GZIP_MAGIC[: len(block)]):
                    notes.add("bytes after the end of the gzip data ignored", name)
                    return
                if not block:
                    break
            fresh = False
            while block:
                before = decoder.copy()
                try:
                    out = decoder.decompress(block, block_size)
                except zlib.error as error:
                    out = _up_to_the_damage(before, block)
                    if not out and empty:
                        raise InputError(f"{name}: damaged gzip data, nothing can be read: {error}") from None
                    notes.add("gzip data damaged: read up to there", f"{name}: {error}")
                    yield out
                    return
                empty = empty and not out
                yield out
                block = decoder.unconsumed_tail
            if decoder.eof:
                block = decoder.unused_data
                decoder, fresh, members = zlib.decompressobj(31), True, members + 1
    if not fresh:
        if empty and not members:
            raise InputError(f"{name}: gzip data cut off after {bytes_read()} bytes, before any content")
        notes.add("gzip data cut off: read up to there", name)


def _up_to_the_damage(decoder: Decompressor, block: bytes) -> bytes:
    """What zlib, which gives a block or nothing, can decode of a damaged ``block``."""
    out: list[bytes] = []
    try:
        for position in range(len(block)):
            out.append(decoder.decompress(block[position : position + 1]))
    except zlib.error:
        pass
    return b"".join(out)


def peek(blocks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first bytes, at least as many as a mark at the start needs, and all blocks; however small these are."""
    first = b""
    for block in blocks:
        first += block
        if len(first) >= MARK_BYTES:
            break
    return first, joined(first, blocks)


def joined(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    """One block, unless it is empty, before the others."""
    if first:
        yield first
    yield from rest


def split_keeping_cr(block: bytes) -> list[bytes]:
    """Split at line feeds only: a lone carriage return (a progress bar) does not end a line of the file."""
    lines = [line + b"\n" for line in block.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def transcode(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """UTF-16 with its mark, as UTF-8; what is damaged becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for block in blocks:
        yield decoder.decode(block).encode()
    yield decoder.decode(b"", final=True).encode()
