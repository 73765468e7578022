"""dv/dt profile as a JSON array of calls (dvdt-ck.md 1.1, 1.2).

    [{"call": "clSetKernelArg", "kernel": "0x5d3240", "arg_index": 0, "arg_size": 4, "arg_value": "2c010000",
      "timestamp": {"start": "2018-02-09T10:36:48.553314", "end": "2018-02-09T10:36:48.553428"}, "errcode": 0}, ...]

Read block by block: a block is cut between two calls and decoded directly into the few fields that are needed. A call
that does not decode is counted and skipped. An array that stops (a killed run) is read up to its last whole call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.opencl import AnyCall, Call, LostCall, ProfileFolder, TimedCall, shown_call
from mio2trace.readers.pieces import UNREADABLE, pieces
from mio2trace.source import Source

NAME = "dv/dt profile (JSON)"

_OPENING = late(rb"\s*\[\s*")
# A program's source may be longer than the part that is searched.
_SNIFF = late(
    rb"\s*\[\s*(?>(?:[-+.\w]{1,40}+\s*,\s*){0,20})"  # numbers between the calls
    rb'(?:\]|\{(?:.{0,60000}?)"call"\s*:\s*"cl[A-Z]|\{[^{}]*"source"\s*:\s*\{\s*"0"\s*:)',
    re.DOTALL,
)
_BETWEEN = late(rb'\}\s*,\s*(?=\{\s*"[\w ]+"\s*:)')
_CALLS = msgspec.json.Decoder(list[Call])
_TIMED_CALLS = msgspec.json.Decoder(list[TimedCall])
_RAW_CALLS = msgspec.json.Decoder(list[msgspec.Raw])
# A single call need not be fast: numbers may have any form (1.0, 1e+15).
_ONE_CALL = msgspec.json.Decoder(Call, strict=False)
_ONE_TIMED_CALL = msgspec.json.Decoder(TimedCall, strict=False)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SET_NO_ARGUMENT = ("clEnqueueNDRangeKernel", "clEnqueueReadBuffer", "clEnqueueWriteBuffer", "clCreateBuffer")
_LONGEST_BORDER = 1 << 14
LONGEST_CALL = 256 << 20
"""Bytes; the longest known calls have a few million. A text without an end would fill the memory."""


def sniff(head: bytes) -> bool:
    return _SNIFF.match(head) is not None


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return the profile in ``source``; an empty array gives a profile without calls."""
    folder = ProfileFolder(source.index, notes, source.name, host_calls=options.host_calls)
    return [_folded(source.blocks_while(folder.known), folder, source.name, options, notes)]


def read_array(blocks: Iterable[bytes], source: int, place: str, options: ReadOptions, notes: Notes) -> Profile:
    """Read an array of calls in blocks of any size. ``place`` names it in notes."""
    folder = ProfileFolder(source, notes, place, host_calls=options.host_calls)
    return _folded(blocks, folder, place, options, notes)


def _folded(blocks: Iterable[bytes], folder: ProfileFolder, place: str, options: ReadOptions, notes: Notes) -> Profile:
    decoder = _Decoder(place, options.host_calls, notes)
    for part in _parts(blocks):
        # Nothing holds the calls of a part longer, so that those of the next one take the same memory: 15 % faster.
        folder.add(decoder.calls(part, folder.calls))
    return folder.finish()


class _Part(NamedTuple):
    """Whole calls as an array, with the place in bytes of the first call. ``ending``: after it another call follows,
    the array is closed, the input ends (``cut``), or a call does not end."""

    text: bytes
    offset: int
    ending: Literal["next", "closed", "cut", "endless"]


def _parts(blocks: Iterable[bytes]) -> Iterator[_Part]:
    iterator = iter(blocks)
    rest = next(iterator, b"")
    opening = _OPENING.match(rest)
    while opening is None or opening.end() == len(rest):
        block = next(iterator, b"")
        if not block:
            break
        rest += block
        opening = _OPENING.match(rest)
    offset = opening.end() if opening else 0
    try:
        for text, gap, _ in pieces(rest[offset:], iterator, _BETWEEN, _LONGEST_BORDER, LONGEST_CALL):
            if gap < 0:
                end = text.rfind(b"]", 0, -1)
                is_closed = end >= 0 and not text[end + 1 : -1].strip()
                yield _Part(text[: end + 1] if is_closed else text, offset, "closed" if is_closed else "cut")
            else:
                yield _Part(text, offset, "next")
                offset += len(text) - 2 + gap
    except OverflowError:
        yield _Part(b"[]", offset, "endless")


class _Decoder:
    """Reads parts with unexpected content: it keeps every call that can be read, and counts the others."""

    def __init__(self, place: str, timed: bool, notes: Notes) -> None:
        self._decode = (_TIMED_CALLS if timed else _CALLS).decode
        self._decode_one = (_ONE_TIMED_CALL if timed else _ONE_CALL).decode
        self._place = place
        self._notes = notes

    def calls(self, part: _Part, index: int) -> Sequence[AnyCall]:
        """Return the calls of ``part``, which begins at byte ``offset`` with call ``index``."""
        if part.ending == "endless":
            limit = LONGEST_CALL >> 20
            self._notes.add(f"call longer than {limit} MiB: read up to there", f"{self._place}: byte {part.offset}")
            return ()
        try:
            calls = self._decode(part.text)
        except UNREADABLE:
            return self._one_by_one(part, index)
        if part.ending == "cut":
            self._cut(part)
        return calls

    def _one_by_one(self, part: _Part, index: int) -> list[AnyCall]:
        try:
            raws: list[msgspec.Raw | None] = list(_RAW_CALLS.decode(part.text))
        except UNREADABLE as error:
            raws = self._split(part, error)
        else:
            if part.ending == "cut":
                self._cut(part)
        return [LostCall() if raw is None else self._call(raw, index + number) for number, raw in enumerate(raws)]

    def _cut(self, part: _Part) -> None:
        self._notes.cut_off(self._place, f"byte {part.offset + len(part.text) - 2}")

    def _split(self, part: _Part, error: Exception) -> list[msgspec.Raw | None]:
        """Return the calls of a text that is not valid JSON, each decoded by itself; None for a damaged one."""
        raws: list[msgspec.Raw | None] = []
        is_whole = part.ending != "cut"
        texts = _BETWEEN.split(part.text[1:-1])
        for number, piece in enumerate(texts, 1):
            last = number == len(texts)
            text = piece if last else piece + b"}"
            end = _whole(text)
            if end is None:
                if last:
                    is_whole = False  # even if a bracket ends the text: it may be inside a string
                else:
                    raws.append(None)
                continue
            raws.append(msgspec.Raw(text[:end]))
            rest = text[end:].strip()
            if last and not is_whole and rest[:1] == b"]":
                self._notes.add("bytes after the end of the profile ignored", self._place)
                is_whole = True
            elif rest and not (last and not is_whole and rest[:1] == b","):
                raws.append(None)
        if not is_whole:
            self._cut(part)
        if damaged := raws.count(None):
            what = "damaged JSON in the profile: a call is lost, calls after it may be miscounted"
            self._notes.add(what, f"{self._place}: near byte {part.offset}: {error}", damaged)
        return raws

    def _call(self, raw: msgspec.Raw, index: int) -> AnyCall:
        call: AnyCall
        try:
            try:
                call = self._decode_one(raw)
            except UnicodeDecodeError:
                call = self._decode_one(bytes(raw).decode("utf-8", "replace").encode())
                self._notes.add("text in the profile that is not UTF-8", f"[{index}]")
            return call
        except UNREADABLE as error:
            reason = str(error)
        where = f"[{index}]"
        name, kernel, errcode = (_field(raw, key) for key in ("call", "kernel", "errcode"))
        if "$.call" in reason and isinstance(name, str) and name:
            self._notes.add("profiled call of an unknown kind", f"{shown_call(name)} at {where}")
            return None
        if name == "clSetKernelArg" and "$.errcode" in reason and isinstance(errcode, int):
            # It failed, so the earlier value stays set.
            self._notes.remark("clSetKernelArg that failed: without effect", f"{where}: errcode {errcode}"[:40])
            return None
        self._notes.add("profiled call that could not be read", f"{where}: {reason}")
        if name in _SET_NO_ARGUMENT:
            return None
        return LostCall(kernel if isinstance(kernel, str) else None)


def _whole(text: bytes) -> int | None:
    """Return where the JSON object at the beginning of ``text`` ends; None if it is damaged."""
    try:
        decoded = text.decode("utf-8", "surrogateescape")
        _, end = json.JSONDecoder(strict=False, parse_constant=_refuse).raw_decode(decoded)
    except (ValueError, RecursionError):
        return None
    return len(decoded[:end].encode("utf-8", "surrogateescape"))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _field(raw: msgspec.Raw, key: str) -> object:
    """Return a field of a call that does not decode as a whole; None if the field cannot be read."""
    try:
        value: object = msgspec.json.decode(_FIELDS.decode(raw)[key])
    except (*UNREADABLE, KeyError):
        return None
    return value
