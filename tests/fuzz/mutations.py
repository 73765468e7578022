"""Structure broken instead of bytes: JSON's tree, words and lines of a log, fields of a protocol buffer, tables."""

from __future__ import annotations

import contextlib
import json
import random
import re
import sqlite3
from typing import Any

from tests.fuzz import hostile
from tests.tf_files import varint

Chance = random.Random
_LARGEST = 60_000
"""Bytes; what is larger is damaged as text, so that a case stays cheap."""
_RAW, _DOUBLED = "\ue001", "\ue002"
_RAW_TOKEN = re.compile(f'"{_RAW}(.*?){_RAW}"', re.DOTALL)
_WORD = re.compile(rb"-?\d+(?:\.\d+)?|[A-Za-z_]\w*|\s+|[^\w\s]")
_NUMBER = re.compile(rb"\d+(?:\.\d+)?")
_DATABASE = b"SQLite format 3\0"
_CELLS: tuple[Any, ...] = (
    None, "", "soon", "12", -1, 0, 1.5, (1 << 63) - 1, -(1 << 63), 1 << 62, 1e300, float("inf"), b"\xff\0", "x" * 300,
)  # fmt: skip


def mutated(data: bytes, chance: Chance) -> bytes:
    """``data`` with a few parts of its structure changed; by what it is: JSON, text, or fields."""
    if len(data) <= _LARGEST:
        if data.startswith(_DATABASE):
            with contextlib.suppress(sqlite3.Error, OverflowError, UnicodeDecodeError):
                return _tables(data, chance)
        if data.lstrip()[:1] in (b"[", b"{"):
            try:
                return _json(json.loads(data), chance)
            except (ValueError, RecursionError, MemoryError):  # what doubles again and again is not written out
                pass
        elif b"\n" not in data[:4000] or b"\0" in data[:400]:
            message = fields(data)
            if message:
                return _protobuf(message, chance)
    return _text(data, chance)


# ---- tables of a database


def _tables(data: bytes, chance: Chance) -> bytes:
    """Raises `sqlite3.Error` for what is no whole database."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data)
        for _ in range(chance.choice((1, 1, 2, 3, 6))):
            _change_table(connection, chance)
        connection.commit()
        return connection.serialize()


def _change_table(connection: sqlite3.Connection, chance: Chance) -> None:
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    if not tables:
        return  # all were dropped
    table = chance.choice(sorted(tables))
    columns = [column[1] for column in connection.execute(f'PRAGMA table_info("{table}")')]
    column, cell = chance.choice(columns), chance.choice(_CELLS)
    pick = chance.randrange(12)
    if pick < 5:
        (count,) = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
        where = f'(SELECT rowid FROM "{table}" ORDER BY rowid LIMIT 1 OFFSET {chance.randrange(count or 1)})'
        connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = {where}', (cell,))
    elif pick == 5:
        connection.execute(f'UPDATE "{table}" SET "{column}" = ?', (cell,))
    elif pick == 6:
        connection.execute(f'DELETE FROM "{table}" WHERE rowid % {chance.choice((1, 2, 3))} = 0')
    elif pick == 7:
        connection.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}"')
    elif pick == 8:
        connection.execute(f'DROP TABLE "{table}"')
    elif pick == 9:
        connection.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO other')
    elif pick == 10:
        other = chance.choice(columns)
        connection.execute(f'UPDATE "{table}" SET "{column}" = "{other}"')
    else:
        connection.execute(f'ALTER TABLE "{table}" RENAME TO behind_{table}')
        connection.execute(f'CREATE VIEW "{table}" AS SELECT * FROM behind_{table}')


# ---- JSON


def _json(tree: Any, chance: Chance) -> bytes:
    holder = [tree]
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 5, 9))):
        _change_node(holder, chance)
    try:
        out = json.dumps(holder[0], indent=chance.choice((None, None, "\t")), ensure_ascii=chance.random() < 0.5)
    except (ValueError, RecursionError):  # a node that came to hold itself
        return b"[]"
    if _RAW in out or "\\ue001" in out:
        out = _RAW_TOKEN.sub(lambda match: match[1], out.replace("\\ue001", _RAW))
    return out.replace(_DOUBLED, "").replace("\\ue002", "").encode("utf-8", "surrogatepass")


def _change_node(holder: list[Any], chance: Chance) -> None:
    node: Any = holder
    while True:
        inner = [child for child in _children(node) if child]
        if not inner or (node is not holder and chance.random() < 0.3):
            break
        node = chance.choice(inner)
    if isinstance(node, dict):
        _change_object(node, chance)
    else:
        _change_array(node, chance)


def _children(node: Any) -> list[Any]:
    values = node.values() if isinstance(node, dict) else node[:60]
    return [value for value in values if isinstance(value, (dict, list))]


def _change_object(node: dict[str, Any], chance: Chance) -> None:
    key = chance.choice(tuple(node))
    pick = chance.randrange(9)
    if pick <= 2:
        node[key] = _value(node[key], chance)
    elif pick == 3:
        del node[key]
    elif pick == 4:  # twice, with another value
        node[key + _DOUBLED] = chance.choice((node[key], _value(node[key], chance)))
    elif pick == 5:
        other = chance.choice((*hostile.KEYS, key.upper(), key + " ", *node))
        node[other] = node.pop(key)
    elif pick == 6:
        other = chance.choice(tuple(node))
        node[key], node[other] = node[other], node[key]
    elif pick == 7:
        items = list(node.items())
        chance.shuffle(items)
        node.clear()
        node.update(items)
    else:
        node[chance.choice(hostile.KEYS)] = _value(None, chance)


def _change_array(node: list[Any], chance: Chance) -> None:
    at = chance.randrange(len(node))
    other = chance.randrange(len(node))
    pick = chance.randrange(8)
    if pick == 0:
        del node[at]
        if not node:
            node.append({})
    elif pick == 1:
        node.insert(other, _copied(node[at]))
    elif pick == 2:
        node[at], node[other] = node[other], node[at]
    elif pick == 3:
        chance.shuffle(node)
    elif pick == 4:
        node[at:at] = [_copied(node[at]) for _ in range(chance.choice((1, 2, 8, 30)))]
    elif pick == 5:
        del node[min(at, other) : max(at, other)]
    else:
        node[at] = _value(node[at], chance)


def _copied(value: Any) -> Any:
    return json.loads(json.dumps(value)) if isinstance(value, (dict, list)) else value


def _value(value: Any, chance: Chance) -> Any:
    """Another one: of another type, at an edge, or moved a little."""
    pick = chance.randrange(12)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and pick < 6:
        try:
            return chance.choice(
                (-value, value + 1, value - 1, value * 1000, value // 1000, value + 0.5, str(value), value * 2**40)
            )
        except OverflowError:
            return 0
    if isinstance(value, str) and pick < 5:
        return chance.choice((hostile.text(chance), value[1:], value * 2, value.upper(), _digits(value, chance)))
    if isinstance(value, dict) and value and pick < 4:
        return chance.choice(([value], list(value.values()), list(value), {"0": value}))
    if isinstance(value, list) and value and pick < 4:
        return chance.choice(
            (value[0], [value], value[::-1], value * 2, {str(at): one for at, one in enumerate(value)})
        )
    if pick == 6:
        deep = chance.choice((3, 40, 1200, 3000))
        return f"{_RAW}{'[' * deep}{']' * deep}{_RAW}"
    if pick in (7, 8):
        return hostile.text(chance)
    if pick == 9:
        return chance.choice((None, True, False, [], {}, "", 0))
    return f"{_RAW}{hostile.number(chance)}{_RAW}"


def _digits(text: str, chance: Chance) -> str:
    """One of the numbers in a text changed: a time stamp, a handle, a shape."""
    places = list(re.finditer(r"\d+", text))
    if not places:
        return text + hostile.number(chance)
    place = chance.choice(places)
    new = chance.choice((hostile.number(chance), str(chance.randrange(10 ** min(len(place[0]), 18)))))
    return text[: place.start()] + new + text[place.end() :]


# ---- lines and words


def _text(data: bytes, chance: Chance) -> bytes:
    lines = data.splitlines(keepends=True) or [b"\n"]
    for _ in range(chance.choice((1, 1, 2, 3, 5, 12))):
        at = chance.randrange(len(lines))
        if chance.random() < 0.65:
            lines[at] = _words(lines[at], chance)
        else:
            _move_lines(lines, at, chance)
        if not lines:
            return b"\n"
    return b"".join(lines)


def _words(line: bytes, chance: Chance) -> bytes:
    if len(line) > 4000:
        at = chance.randrange(len(line))
        return line[:at] + hostile.number(chance).encode() + line[at + 1 :]
    words = _WORD.findall(line)
    if not words:
        return hostile.text(chance).encode("utf-8", "replace")
    numbers = [at for at, word in enumerate(words) if word[-1:].isdigit()]
    at = chance.choice(numbers) if numbers and chance.random() < 0.5 else chance.randrange(len(words))
    pick = chance.randrange(9)
    if pick <= 2 or (words[at].isdigit() and pick < 6):
        words[at] = hostile.number(chance).encode()
    elif pick == 3:
        words[at] = hostile.text(chance).encode("utf-8", "replace")
    elif pick == 4:
        del words[at]
    elif pick == 5:
        words[at] *= chance.choice((2, 3, 100))
    elif pick == 6:
        other = chance.randrange(len(words))
        words[at], words[other] = words[other], words[at]
    elif pick == 7:
        words[at:at] = words[chance.randrange(len(words)) :][: chance.choice((1, 3, 9))]
    else:
        words[at] = chance.choice((b" ", b"\t", b",", b"=", b":", b"{", b"}", b"[", b"]", b"\xff", b"\0", b"\r"))
    return b"".join(words)


def _move_lines(lines: list[bytes], at: int, chance: Chance) -> None:
    other = chance.randrange(len(lines))
    pick = chance.randrange(8)
    if pick == 0:
        del lines[at]
    elif pick == 1:
        lines.insert(other, lines[at])
    elif pick == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif pick == 3:  # one line of two
        lines[at] = lines[at].rstrip(b"\r\n")
    elif pick == 4:  # two lines of one, as when two processes print
        cut = chance.randrange(len(lines[at]) or 1)
        lines[at : at + 1] = [lines[at][:cut] + b"\n", lines[at][cut:]]
    elif pick == 5:
        block = lines[at : at + chance.choice((1, 2, 5, 20))]
        lines[other:other] = block * chance.choice((1, 2, 5))
    elif pick == 6:
        part = lines[min(at, other) : max(at, other)]
        chance.shuffle(part)
        lines[min(at, other) : max(at, other)] = part
    else:
        lines[at] = lines[at].lstrip() if chance.random() < 0.5 else chance.choice((b" ", b"\t", b"> ")) + lines[at]


def counted(line: bytes, number: int, chance: Chance) -> bytes:
    """A line with one of its numbers, or none, moved on by ``number``."""
    places = list(_NUMBER.finditer(line))
    if not places or chance.random() < 0.2:
        return line
    place = chance.choice(places)
    digits = place[0][:18].partition(b".")[0]
    return line[: place.start()] + b"%d" % (int(digits) + number) + line[place.end() :]


# ---- protocol buffers


Field = tuple[int, int, Any]
"""Number, wire type, value: an int, bytes, or the fields of a message."""


def fields(data: bytes, depth: int = 0) -> list[Field] | None:
    """The fields of a message, nested ones as far as they look like messages; None when it is none."""
    found: list[Field] = []
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        value: Any = None
        if not key >> 3:
            return None
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
            inner = fields(value, depth + 1) if value and depth < 8 and not value.isascii() else None
            value = inner or value
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, at = data[at : at + size], at + size
        if value is None or at > len(data):
            return None
        found.append((key >> 3, wire, value))
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return 0, len(data) + 1


def _protobuf(message: list[Field], chance: Chance) -> bytes:
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        inner = message
        while nested := [value for _, _, value in inner if isinstance(value, list)]:
            if chance.random() < 0.25:
                break
            inner = chance.choice(nested)
        _change_fields(inner, chance)
    return packed(message)


def _change_fields(inner: list[Field], chance: Chance) -> None:
    if not inner:
        return
    at, other = chance.randrange(len(inner)), chance.randrange(len(inner))
    number, wire, value = inner[at]
    pick = chance.randrange(8)
    if pick == 0:
        del inner[at]
    elif pick == 1:
        inner.insert(other, inner[at])
    elif pick == 2:
        inner[at], inner[other] = inner[other], inner[at]
    elif pick == 3:
        inner[at] = chance.choice((1, 2, 3, 9, 13, number + 1, 100_000)), wire, value
    elif pick == 4:
        inner[at] = number, chance.choice((0, 1, 2, 5)), value
    elif pick == 5:
        inner[at:at] = [inner[at]] * chance.choice((2, 10, 60))
    elif wire == 0:
        edge = chance.choice((0, 1, -1, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, chance.randrange(1 << 50)))
        inner[at] = number, 0, edge
    else:
        inner[at] = number, 2, hostile.text(chance).encode("utf-8", "replace")


def packed(message: list[Field]) -> bytes:
    """The bytes of fields, whatever they hold."""
    out = []
    for number, wire, value in message:
        out.append(varint(number << 3 | wire))
        data = packed(value) if isinstance(value, list) else value
        if wire == 0:
            out.append(varint(data if isinstance(data, int) else len(data)))
        elif wire == 2:
            content = data if isinstance(data, bytes) else varint(data)
            out += [varint(len(content)), content]
        else:
            size = 8 if wire == 1 else 4
            content = data if isinstance(data, bytes) else (data % (1 << 64)).to_bytes(8, "little")
            out.append(content[:size].ljust(size, b"\0"))
    return b"".join(out)
