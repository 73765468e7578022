"""Files that do not belong together, in one file or beside each other; and files that swell."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.fuzz.mutations import counted, mutated

Chance = random.Random
_CLASSES = (b" ", b"\t", b"0", b"9", b"a", b"A", b".", b",", b":", b"{", b"}", b"[", b"]", b"(", b"<", b">", b"=", b"-",
            b"_", b"/", b"\\", b'"', b"'", b"x", b"0x", b", ", b"1 ", b"\r", b"\0", b"\xc3\xa9", b"\xff")  # fmt: skip


def crossed(one: Sequence[bytes], other: Sequence[bytes], chance: Chance) -> list[bytes]:
    """The files of two cases, made into one case."""
    pick = chance.randrange(6)
    if pick == 0:
        return _shuffled([*one, *other], chance)
    if pick == 1:  # a wrong companion
        return _shuffled([chance.choice(one), chance.choice(other)], chance)
    if pick == 2:  # the same, almost
        data = chance.choice(one)
        return _shuffled([*one, mutated(data, chance)], chance)
    first, second = chance.choice(one), chance.choice(other)
    whole = _joined(first, second, chance)
    rest = [data for data in one if data is not first]
    return _shuffled([whole, *rest], chance) if chance.random() < 0.5 else [whole]


def _shuffled(files: list[bytes], chance: Chance) -> list[bytes]:
    chance.shuffle(files)
    return files[:4]


def _joined(one: bytes, other: bytes, chance: Chance) -> bytes:
    """Both in one file: glued, the head of one and the tail of the other, line by line, one within the other."""
    pick = chance.randrange(5)
    if pick == 0:
        return one + chance.choice((b"", b"\n", b"\0", b"\n\n", b",")) + other
    if pick == 1:
        return one[: chance.randint(0, len(one))] + other[chance.randint(0, len(other)) :]
    lines, others = one.splitlines(keepends=True), other.splitlines(keepends=True)
    if pick == 2:
        out: list[bytes] = []
        while lines or others:
            source = lines if lines and (not others or chance.random() < 0.5) else others
            size = chance.choice((1, 1, 2, 5))
            out += source[:size]
            del source[:size]
        return b"".join(out)
    at = chance.randint(0, len(lines))
    if pick == 3:
        inner = [b"[dv/dt] <<\n", other, b"\n[dv/dt] >>\n"] if chance.random() < 0.5 else [other]
        return b"".join((*lines[:at], *inner, *lines[at:]))
    cut = chance.randint(0, len(one))
    return one[:cut] + other[: chance.choice((50, 500, len(other)))] + one[cut:]


def swollen(files: Sequence[bytes], size: int, chance: Chance) -> list[bytes]:
    """One of the files grown to about ``size`` bytes: a piece of a line, or some lines, again and again."""
    out = list(files)
    which = chance.randrange(len(out))
    data = out[which]
    lines = data.splitlines(keepends=True) or [b"\n"]
    at = chance.randrange(len(lines))
    if chance.random() < 0.55:
        lines[at] = _long(lines[at][:4000], size, chance)
    else:
        block = lines[at : at + chance.choice((1, 1, 2, 4, 12, 40))]
        length = sum(map(len, block)) or 1
        times = min(size // length, 20_000)
        if chance.random() < 0.4:
            lines[at:at] = block * times
        else:
            step = chance.choice((1, 1, 7, 1000, -1))
            lines[at:at] = [counted(line, step * number, chance) for number in range(times) for line in block]
    out[which] = b"".join(lines)
    return out


def _long(line: bytes, size: int, chance: Chance) -> bytes:
    """A line with one piece of it, or a character, repeated: what a regular expression may try in many ways."""
    at = chance.randint(0, len(line))
    end = min(len(line), at + chance.choice((1, 2, 5, 12, 30, 80)))
    piece = chance.choice((line[at:end], chance.choice(_CLASSES), chance.choice(_CLASSES))) or b" "
    head = line[: chance.choice((at, end))]
    tail = chance.choice((line[at:], line[end:], line[end:], b"\n", b"x\n", b""))
    return head + piece * (size // len(piece)) + tail
