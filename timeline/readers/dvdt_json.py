"""dv/dt profile as a JSON array of calls (dvdt-ck.md 1.1, 1.2).

    [{"call": "clSetKernelArg", "kernel": "0x5d3240", "arg_index": 0, "arg_size": 4, "arg_value": "2c010000",
      "timestamp": {"start": "2018-02-09T10:36:48.553314", "end": "2018-02-09T10:36:48.553428"}, "errcode": 0}, ...]

Read block by block: a block is cut where one call ends and the next begins, and decoded straight into the few fields
that are needed. A call that does not decode is counted and skipped; an array that stops (a killed run) is read up to
its last whole call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from timeline.model.profile import Profile
from timeline.notes import Notes
from timeline.readers.base import ReadOptions, Records
from timeline.readers.dvdt_calls import Call, ProfileFolder, TimedCall
from timeline.source import Source

NAME = "dv/dt profile (JSON)"

# Inside a JSON string every quote is escaped, so this can only be the end of one object and the start of the next.
_BETWEEN = re.compile(rb'\}\s*,\s*(?=\{\s*"[\w ]+"\s*:)')
_OPENING = re.compile(rb"\s*\[\s*")
_SNIFF = re.compile(rb'\s*\[\s*(?:\]|\{(?:.{0,60000}?)"call"\s*:\s*"cl[A-Z])', re.DOTALL)
_CALLS = msgspec.json.Decoder(list[Call])
_TIMED_CALLS = msgspec.json.Decoder(list[TimedCall])
_RAW_CALLS = msgspec.json.Decoder(list[msgspec.Raw])
_ONE_CALL = msgspec.json.Decoder(Call)
_ONE_TIMED_CALL = msgspec.json.Decoder(TimedCall)
_CALL_NAME = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SEARCH_BACK = 1 << 20


def sniff(head: bytes) -> bool:
    return _SNIFF.match(head) is not None


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """The profile in ``source``; an empty array gives one without calls."""
    return [read_array(source.blocks(), source.index, source.name, options, notes)]


def read_array(blocks: Iterable[bytes], source: int, place: str, options: ReadOptions, notes: Notes) -> Profile:
    """Fold an array of calls that comes in blocks of any size. ``place`` names it in notes."""
    folder = ProfileFolder(source, notes, place, host_calls=options.host_calls)
    decode = (_TIMED_CALLS if options.host_calls else _CALLS).decode
    read_calls = 0
    for part, offset, last in _parts(blocks):
        calls: Sequence[Call | TimedCall | None]
        try:
            calls = decode(b"[" + part + b"]")
        except msgspec.DecodeError:
            calls = _decode_one_by_one(part, offset, last, read_calls, options.host_calls, place, notes)
        folder.add(calls)
        read_calls += len(calls)
    return folder.finish()


def _parts(blocks: Iterable[bytes]) -> Iterator[tuple[bytes, int, bool]]:
    """Whole calls without the enclosing brackets: (text, byte offset, is the last)."""
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
    rest = rest[offset:]
    for block in iterator:
        cut = _last_cut(block)
        if cut is None:
            rest += block
            if len(block) > _SEARCH_BACK:
                continue
            cut_rest = _last_cut(rest)
            if cut_rest is None:
                continue
            end, start = cut_rest
            yield rest[:end], offset, False
            offset += start
            rest = rest[start:]
            continue
        end, start = cut
        part = rest + block[:end]
        yield part, offset, False
        offset += len(rest) + start
        rest = block[start:]
    end = rest.rfind(b"]")
    if end >= 0 and not rest[end + 1 :].strip():
        yield rest[:end], offset, True
    else:
        yield rest, offset, True


def _last_cut(block: bytes) -> tuple[int, int] | None:
    """Where the last call that ends in ``block`` ends, and where the next begins."""
    for back in (1 << 14, _SEARCH_BACK, len(block)):
        last = None
        for found in _BETWEEN.finditer(block, max(0, len(block) - back)):
            last = found
        if last:
            return last.start() + 1, last.end()
    return None


def _decode_one_by_one(
    part: bytes, offset: int, last: bool, index: int, timed: bool, place: str, notes: Notes
) -> list[Call | TimedCall | None]:
    """A part with something unexpected in it: keep every call that can be read, count the others."""
    try:
        raws: list[msgspec.Raw] = _RAW_CALLS.decode(b"[" + part + b"]")
    except msgspec.DecodeError as error:
        whole, bad = _split_damaged(part)
        if last and not bad:
            notes.add("profile cut off: read up to the last whole call", f"{place}: byte {offset + len(part)}")
        else:
            notes.add(
                "damaged JSON in the profile: the calls around it are lost", f"{place}: near byte {offset}: {error}"
            )
        raws = whole
    decode = (_ONE_TIMED_CALL if timed else _ONE_CALL).decode
    calls: list[Call | TimedCall | None] = []
    for position, raw in enumerate(raws):
        try:
            calls.append(decode(raw))
        except msgspec.DecodeError as error:
            calls.append(None)
            where = f"[{index + position}]"
            try:
                name = msgspec.json.decode(_CALL_NAME.decode(raw).get("call", msgspec.Raw(b'""')))
            except msgspec.DecodeError:
                name = ""
            if isinstance(name, str) and "$.call" in str(error) and name:
                notes.add("profiled call of an unknown kind", f"{name[:40]} at {where}")
            else:
                notes.add("profiled call that could not be read", f"{where}: {error}")
    return calls


def _split_damaged(part: bytes) -> tuple[list[msgspec.Raw], int]:
    """Calls of a damaged part, each tried by itself: the readable ones, and how many before the last are not."""
    whole: list[msgspec.Raw] = []
    bad = 0
    pieces = _BETWEEN.split(part)
    for number, piece in enumerate(pieces):
        text = piece if number == len(pieces) - 1 else piece + b"}"
        try:
            msgspec.json.decode(text, type=msgspec.Raw)
            msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            bad += number < len(pieces) - 1
            continue
        whole.append(msgspec.Raw(text))
    return whole, bad
