"""dv/dt's profile: the calls as a JSON array, or as blocks of text in a program's output (dvdt-ck.md 1.1, 1.2, 1.7)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.patterns import late
from mio2trace.readers import opencl as cl
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.opencl import AnyCall, Call, LostCall, ProfileFolder, TimedCall, shown_call
from mio2trace.readers.pieces import UNREADABLE, pieces
from mio2trace.source import Source

# -- JSON --------------------------------------------------------------------------------------------------------------
#
#     [{"call": "clSetKernelArg", "kernel": "0x5d3240", "arg_index": 0, "arg_size": 4, "arg_value": "2c010000",
#       "timestamp": {"start": "2018-02-09T10:36:48.553314", "end": "2018-02-09T10:36:48.553428"}, "errcode": 0}, ...]
#
# Read block by block: a block is cut between two calls and decoded directly into the few fields that are needed. A call
# that does not decode is counted and skipped. An array that stops (a killed run) is read up to its last whole call.

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
        # No variable keeps the calls of a part, so the next part uses the same memory: 15 % faster.
        folder.add(decoder.calls(part, folder.calls))
    return folder.finish()


class _Part(msgspec.Struct, frozen=True):
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
            except UNREADABLE:  # msgspec raises a UnicodeDecodeError up to 0.22, and its own error from 0.23 on
                text = bytes(raw).decode("utf-8", "replace").encode()
                if text == bytes(raw):
                    raise
                call = self._decode_one(text)
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
        self._notes.unreadable(f"{where}: {reason}")
        if name in _SET_NO_ARGUMENT:
            return None
        return LostCall(kernel if isinstance(kernel, str) else None)


def _whole(text: bytes) -> int | None:
    """Return where the JSON object at the beginning of ``text`` ends; None if it is damaged."""
    import json

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


# -- Blocks of text ----------------------------------------------------------------------------------------------------
#
#     [dv/dt] clEnqueueNDRangeKernel
#     [dv/dt] clEnqueueNDRangeKernel name im2col_float
#     [dv/dt] clEnqueueNDRangeKernel gws 16384 1 1
#     [dv/dt] clEnqueueNDRangeKernel profiling 52910121520869 52910121595577 52910130751092 52910132647472
#
# A block begins with a line that contains only the call's name, and ends before the next such line. The last block may
# be cut.

_PREFIX = b"[dv/dt] cl"
_BATCH = 4096
_HANDLES = {
    "clCreateCommandQueue": "queue",
    "clCreateProgramWithSource": "program",
    "clCreateProgramWithBinary": "program",
    "clCreateKernel": "kernel",
    "clCreateBuffer": "buffer",
}
"""The last field of a call that creates an object; the last field of other calls is the errcode."""
_PROFILING_ERROR = "output profiling info error:"

_Fields = dict[str, str]


class BlockDecoder:
    """Reads the lines of a log with dv/dt text, and returns the profile at the end."""

    def __init__(self, source: int, place: str, options: ReadOptions, notes: Notes) -> None:
        self._folder = ProfileFolder(source, notes, place, host_calls=options.host_calls)
        self._notes = notes
        self._place = place
        self._calls: list[cl.AnyCall] = []
        self._lines: list[int] = []
        self._name = ""
        self._line = 0
        self._fields: _Fields = {}
        self._source: list[bytes] = []
        self._source_end = b""
        self._cut_line = False
        self.blocks = 0

    @property
    def in_source(self) -> bool:
        """Whether the next line belongs to a program's text, whatever it looks like."""
        return bool(self._source_end)

    def feed(self, number: int, line: bytes) -> bool:
        """Read a line if it is part of a block, including program text."""
        if self._source_end:
            at = line.find(self._source_end)
            if at < 0:
                self._source.append(line)
            else:
                self._source.append(line[:at])
                self._source_end = b""
            return True
        at = line.find(_PREFIX)
        if at < 0:
            return False
        name, _, rest = line[at + 8 :].rstrip(b"\r\n").partition(b" ")
        # The last line of a file may stop inside a number.
        self._cut_line = not line.endswith(b"\n")
        if not rest and self._cut_line:
            if not self._cut():
                self._notes.cut_off(self._place, f"line {number}")
        elif not rest:
            self._close()
            self._name = name.decode(errors="replace")
            self._line = number
            self.blocks += 1
        elif name.decode(errors="replace") != self._name:
            self._notes.add("dv/dt line outside its block: skipped", f"{self._place}:{number}")
        elif name == b"clCreateProgramWithSource" and rest.startswith(b"sources[") and rest.endswith(b" <<"):
            self._source_end = line[at : at + 8] + name + b" " + rest[:-2] + b">>"
        else:
            text = rest.decode(errors="replace")
            if text.startswith(_PROFILING_ERROR):
                self._fields["profiling_error"] = text[len(_PROFILING_ERROR) :].strip()
            else:
                key, _, value = text.partition(" ")
                if not self._cut_line or (key == "errcode" and value):
                    self._fields[key] = value
        return True

    def finish(self, interleaved: bool) -> Profile | None:
        """Return the profile; None if there was no block."""
        self._close(last=True)
        if not self.blocks:
            return None
        if self._cut_line:
            self._notes.cut_off(self._place)
        self._folder.add(self._calls, self._lines)
        return self._folder.finish(interleaved=interleaved)

    def _cut(self) -> bool:
        return bool(self._name and (self._source_end or _HANDLES.get(self._name, "errcode") not in self._fields))

    def _close(self, last: bool = False) -> None:
        if not self._name:
            return
        place = f"{self._place}:{self._line}"
        cut = self._cut()
        self._source_end = b""
        call: cl.AnyCall = None
        if self._name not in _TEXT_CALLS:
            self._notes.add("profiled call of an unknown kind", f"{cl.shown_call(self._name)} at {place}")
        else:
            if cut and last:
                self._notes.cut_off(self._place, f"line {self._line}")
            elif cut:
                self._notes.add("dv/dt block cut off", place)
            try:
                call = _made(self._name, self._fields)
            except (ValueError, KeyError, TypeError) as error:
                if not cut:
                    self._notes.unreadable(f"{place}: {error}")
                if self._name in ("clSetKernelArg", "clCreateKernel"):
                    call = cl.LostCall(self._fields.get("kernel"))
        errcode = self._fields.get("errcode", "0")
        if self._name == "clSetKernelArg" and errcode not in ("0", "-1"):
            call = None  # it failed, so the earlier value stays set
            self._notes.remark("clSetKernelArg that failed: without effect", f"{place}: errcode {errcode}")
        if isinstance(call, cl.CreateProgramWithSource):
            call.source = msgspec.Raw(b"".join(self._source))
        self._source.clear()
        self._calls.append(call)
        self._lines.append(self._line)
        if len(self._calls) >= _BATCH:
            self._folder.add(self._calls, self._lines)
            self._calls, self._lines = [], []
        self._name = ""
        self._fields = {}


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


def _counters(text: str) -> cl.Counters:
    queued, submit, start, end = map(int, text.split())
    return cl.Counters(queued, submit, start, end)


_Forms = dict[str, Callable[[str], Any]]
_COMMAND: _Forms = {"queue": str, "profiling?": _counters, "profiling_error?": int, "errcode?": int}
_COPY: _Forms = _COMMAND | {"buffer": str, "size": int}
_TEXT_CALLS: dict[str, tuple[Callable[..., cl.Call], _Forms]] = {
    "clSetKernelArg": (cl.TimedSetKernelArg, {"kernel": str, "arg_index": int, "arg_value": str}),
    "clEnqueueNDRangeKernel": (
        cl.EnqueueNDRangeKernel,
        _COMMAND | {"name": str, "kernel": str, "gwo?": _sizes, "gws?": _sizes, "lws?": _sizes},
    ),
    "clEnqueueReadBuffer": (cl.EnqueueReadBuffer, _COPY),
    "clEnqueueWriteBuffer": (cl.EnqueueWriteBuffer, _COPY),
    "clCreateBuffer": (cl.CreateBuffer, {"size": int, "errcode?": int, "buffer?": str}),
    "clCreateKernel": (cl.CreateKernel, {"program": str, "name": str, "kernel?": str}),
    "clCreateKernelsInProgram": (cl.CreateKernelsInProgram, {"program": str, "num_kernels_ret?": int}),
    "clBuildProgram": (cl.BuildProgram, {"program": str, "options?": str}),
    "clCreateProgramWithSource": (cl.CreateProgramWithSource, {"program?": str}),
    "clCreateProgramWithBinary": (cl.CreateProgramWithBinary, {"program?": str}),
    "clCreateCommandQueue": (cl.CreateCommandQueue, {"device": str, "queue": str}),
}
"""The fields of each call; those with a question mark may be missing."""


def _made(name: str, fields: _Fields) -> cl.Call:
    """Raises `KeyError` or `ValueError` for a field that is missing or of another form."""
    kind, forms = _TEXT_CALLS[name]
    stamps = cl.Stamps(fields.get("start", ""), fields.get("end", "")) if "start" in fields else None
    values: dict[str, Any] = {}
    for field, of in forms.items():
        key = field.rstrip("?")
        if key == field or key in fields:
            values[key] = of(fields[key])
    return kind(timestamp=stamps, **values)
