"""A decoder of XSpaces of the tests' own: bytes to lists of (field, value), nothing shared with the program."""

from __future__ import annotations

from typing import Any


def decoded(data: bytes) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = []
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            found.append((tag >> 3, number()))
        else:
            size = {1: 8, 5: 4}.get(tag & 7) or number()
            found.append((tag >> 3, data[at : at + size]))
            at += size
    return found


def first(message: list[tuple[int, Any]], field: int, default: Any = 0) -> Any:
    return next((value for number, value in message if number == field), default)


def kernels_by_hand(data: bytes) -> list[tuple[str, str, int, int, dict[str, Any]]]:
    """(plane, event, start, duration in ps, stats) of the device planes' streams."""
    found = []
    for field, content in decoded(data):
        if field != 1:
            continue
        message = decoded(content)
        name = first(message, 2, b"").decode()
        if not name.startswith("/device:GPU"):
            continue
        tables: dict[int, dict[int, str]] = {4: {}, 5: {}}
        for number, entry in message:
            if number in tables:
                pair = decoded(entry)
                tables[number][first(pair, 1)] = first(decoded(first(pair, 2, b"")), 2, b"").decode()
        for number, line in message:
            if number != 3:
                continue
            of_line = decoded(line)
            for inner, event in of_line:
                if inner != 4:
                    continue
                of_event = decoded(event)
                stats: dict[str, Any] = {}
                for deep, stat in of_event:
                    if deep == 4:
                        pair = decoded(stat)
                        (kind, value), = [one for one in pair if one[0] != 1]  # fmt: skip
                        stats[tables[5][first(pair, 1)]] = tables[5].get(value) if kind == 7 else value
                start = first(of_line, 3) * 1000 + first(of_event, 2)
                found.append((name, tables[4][first(of_event, 1)], start, first(of_event, 3), stats))
    return found


def python_calls(data: bytes, ending: str) -> list[tuple[int, int]]:
    """Begin and end in ps of what the host's line of Python has, of names with this ending."""
    found = []
    for field, content in decoded(data):
        message = decoded(content) if field == 1 else []
        if first(message, 2, b"") != b"/host:CPU":
            continue
        pairs = [decoded(entry) for number, entry in message if number == 4]
        names = {first(pair, 1): first(decoded(first(pair, 2, b"")), 2, b"").decode() for pair in pairs}
        for line in (decoded(line) for number, line in message if number == 3):
            for event in (decoded(event) for number, event in line if number == 4):
                if first(line, 2, b"") == b"python" and names[first(event, 1)].endswith(ending):
                    begin = first(line, 3) * 1000 + first(event, 2)
                    found.append((begin, begin + first(event, 3)))
    return found
