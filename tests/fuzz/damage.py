"""Bytes cut, doubled, swapped, overwritten, wrapped; and pieces of real files to begin with."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

Chance = random.Random
TOKENS = [
    *(b"0", b"-1", b"1e400", b"1.5", b"9" * 30, b"null", b"true", b"NaN", b'""', b"{}", b"[]", b"}, {", b'"', b"\\"),
    *(
        b"18446744073709551615",
        b"9223372036854775807",
        b"00000000",
        b"\\u0000",
        b"\\ud800",
        b"\xff",
        b"\0",
        b"\x1f\x8b",
    ),
    *(b"1970-01-01 00:00:00.000", b"9999-12-31T23:59:59", b"0001-01-01T00:00:00", b"\n", b"\r\n", b"\x1b[31m"),
    *(b"[dv/dt] <<\n", b"\n[dv/dt] >>\n", b"[dv/dt] clEnqueueNDRangeKernel\n"),
]
_BETWEEN_CALLS = b"\n\t}, {\n"
_LARGEST_PIECE = 24_000
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
STRING = re.compile(rb'"[^"\\\n]*"')
Damage = Callable[[bytes, Chance], bytes]


def cut_out(data: bytes, chance: Chance) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + data[at + chance.choice([1, 2, 5, 50, 500, 5000]) :]


def repeat(data: bytes, chance: Chance) -> bytes:
    at = chance.randrange(len(data))
    return data[: at + chance.choice([1, 5, 100, 2000])] + data[at:]


def flip(data: bytes, chance: Chance) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def truncate(data: bytes, chance: Chance) -> bytes:
    return data[: chance.randrange(len(data))]


def insert(data: bytes, chance: Chance) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + chance.choice(TOKENS) + data[at:]


def move_lines(data: bytes, chance: Chance) -> bytes:
    lines = data.split(b"\n")
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    how = chance.randrange(3)
    if how == 0:
        del lines[one]
    elif how == 1:
        lines.insert(one, lines[other])
    else:
        lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def change(pattern: re.Pattern[bytes]) -> Damage:
    def put(data: bytes, chance: Chance) -> bytes:
        found = list(pattern.finditer(data))
        if not found:
            return data
        place = chance.choice(found)
        return data[: place.start()] + chance.choice(TOKENS) + data[place.end() :]

    return put


DAMAGES: list[Damage] = [
    *(cut_out, repeat, flip, truncate, insert, insert, move_lines, move_lines),
    *(change(NUMBER), change(NUMBER), change(STRING)),
]


def damaged(files: Sequence[bytes], chance: Chance) -> list[bytes]:
    """The files after some accidents; now and then none, or in other clothes."""
    out = list(files)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 5, 20))):
        which = chance.randrange(len(out))
        if out[which]:
            out[which] = chance.choice(DAMAGES)(out[which], chance)
    return out


def dressed(files: Sequence[bytes], chance: Chance) -> list[bytes]:
    """The same contents, perhaps compressed, marked, in UTF-16 or with other line ends."""
    return [_dressed(data, chance) for data in files]


def _dressed(data: bytes, chance: Chance) -> bytes:
    pick = chance.randrange(24)
    if pick == 0:
        return gzip.compress(data, 1, mtime=0)
    if pick == 1:
        return b"\xef\xbb\xbf" + data
    if pick == 2:
        return data.decode("utf-8", "replace").encode("utf-16")
    if pick == 3:
        return data.replace(b"\n", b"\r\n")
    if pick == 4:
        packed = gzip.compress(gzip.compress(data, 1, mtime=0), 1, mtime=0)
        return packed[: chance.randint(20, len(packed))]
    return data


def piece(data: bytes, chance: Chance) -> bytes:
    """Some KB of a real file that are still of its format: whole calls of a profile, whole lines of a log."""
    size = chance.choice((600, 2000, 2000, 8000, _LARGEST_PIECE))
    if len(data) <= size:
        return data
    at = chance.randrange(len(data) - size)
    if data[:64].lstrip().startswith(b"[") and _BETWEEN_CALLS in data:
        begin = data.find(_BETWEEN_CALLS, at)
        end = data.rfind(_BETWEEN_CALLS, 0, begin + size)
        if begin < 0 or end <= begin:
            return data[:size]
        return b"[{\n" + data[begin + len(_BETWEEN_CALLS) : end] + b"\n\t}]"
    begin = data.find(b"\n", at) + 1
    end = data.find(b"\n", begin + size) + 1 or len(data)
    return data[begin : min(end, begin + 3 * _LARGEST_PIECE)]


def real_files(shared: Path | None, root: Path) -> list[bytes]:
    """Real inputs: those committed here, and the samples beside the repository if they are there."""
    found = [path.read_bytes() for path in sorted(root.glob("traces/*/run.log"))]
    found += [gzip.decompress(path.read_bytes()) for path in sorted(root.glob("traces/*/prof.json.gz"))]
    if shared is not None and (shared / "samples").is_dir():
        for path in sorted((shared / "samples").rglob("*")):
            if path.is_file() and path.suffix != ".csv" and not re.search(r"INDEX|truth|expected", path.name):
                data = path.read_bytes()
                found.append(gzip.decompress(data) if path.suffix == ".gz" else data)
    return [data for data in found if data]
