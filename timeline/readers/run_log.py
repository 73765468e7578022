"""What a run printed: Caffe's log, MIOpen's log, dv/dt blocks as text or JSON, in any mixture (dvdt-ck.md 1.1, 2.1).

One pass over the lines; each goes to the decoder that knows it. Lines of other programs are passed over and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from timeline.model.profile import Profile
from timeline.notes import InputError, Notes
from timeline.readers.base import ReadOptions, Records
from timeline.readers.caffe_log import CaffeDecoder
from timeline.readers.dvdt_json import read_array
from timeline.readers.dvdt_text import BlockDecoder
from timeline.readers.miopen_log import MiopenDecoder
from timeline.source import Source

NAME = "run log (Caffe, MIOpen, dv/dt blocks)"

_JSON = re.compile(rb"\s*(?:\{\s*\"|\[\s*[\[{\]\"\d])")
_ARRAY_OPENS = re.compile(rb"\[dv/dt\]\s*<<\s*")
_ARRAY_CLOSES = re.compile(rb"\[dv/dt\]\s*>>")
_ARRAY_BLOCK = 1 << 20


def sniff(head: bytes) -> bool:
    """Text that is not JSON; whether it holds a line that we know shows only in reading."""
    return b"\0" not in head and _JSON.match(head) is None


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """All that the log states. Raises `InputError` when no line of it is known."""
    caffe = CaffeDecoder(source.index)
    miopen = MiopenDecoder(source.index, notes)
    blocks = BlockDecoder(source.index, source.name, options, notes)
    profiles: list[Profile] = []
    empty_arrays = foreign = miopen_lines = 0
    number = 0
    numbered = _Numbered(source.lines())
    for line in numbered:
        number = numbered.number
        if b"[dv/dt]" in line or blocks.in_source:
            if blocks.feed(number, line):
                continue
            opens = _ARRAY_OPENS.search(line)
            if opens:
                array = _array(line[opens.end() :], numbered)
                profile = read_array(array, source.index, f"{source.name}:{number}", options, notes)
                if profile.calls:
                    profiles.append(profile)
                else:
                    empty_arrays += 1
                continue
        if caffe.feed(number, line):
            continue
        if miopen.feed(number, line):
            miopen_lines += 1
        elif line.strip():
            foreign += 1
    text = blocks.finish(interleaved=bool(caffe.lines or miopen_lines))
    if text is not None:
        profiles.append(text)
    if empty_arrays:
        notes.remark("empty dv/dt block of a child process passed over", source.name, empty_arrays)
    if not profiles and not caffe.lines and not miopen_lines:
        raise InputError(
            f"{source.name}: none of its {number} lines is known; expected Caffe's `time` log, MIOpen's log, "
            "or [dv/dt] blocks"
        )
    if foreign:
        notes.remark("line of other programs passed over", source.name, foreign)
    records: Records = [*profiles]
    if caffe.lines:
        records.append(caffe.finish())
    if miopen_lines:
        records.append(miopen.finish())
    return records


class _Numbered:
    """Lines with the number of the one that was taken last, shared by all who take lines from it."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self.number = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        line = next(self._lines)
        self.number += 1
        return line


def _array(first: bytes, lines: _Numbered) -> Iterator[bytes]:
    """The JSON array between the markers, in blocks; the closing marker may be glued to its last line."""
    held: list[bytes] = []
    size = 0
    line = first
    while True:
        if b"[dv/dt]" in line:
            closes = _ARRAY_CLOSES.search(line)
            if closes:
                held.append(line[: closes.start()])
                break
        held.append(line)
        size += len(line)
        if size > _ARRAY_BLOCK:
            yield b"".join(held)
            held.clear()
            size = 0
        following = next(lines, None)
        if following is None:
            break
        line = following
    yield b"".join(held)
