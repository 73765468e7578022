"""Files that were cut, mixed up and scribbled over: a valid trace or one line of refusal, never anything else."""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mio2trace.conversion import HostCalls, convert
from mio2trace.notes import InputError
from tests.small_runs import as_json, as_text, benchmark, small

CALLS, LOG = benchmark(kernels=1)
RECORD = {"characteristics_list": [{"run": {"per_layer_info": [], "dvdt_prof": small(), "run_success": "yes"}}]}
TIMER = {
    "per_layer_info": [
        {"direction": way, "index": n, "label": f"{n:02}: l{n}", "time_ms": 0.1, "timestamp": "1120 11:00:00.002000"}
        for n in range(2)
        for way in ("forward", "backward")
    ]
}
LINES = LOG.encode().splitlines(keepends=True)
RUNS: dict[str, list[bytes]] = {
    "profile": [as_json(small())],
    "profile of one line": [as_json(small(), indent=None)],
    "log and profile": [LOG.encode(), as_json(CALLS)],
    "log with text blocks": [LINES[0] + as_text(CALLS) + b"".join(LINES[1:])],
    "log with an array": [LOG.encode() + b"[dv/dt] <<\n" + as_json(CALLS) + b"\n[dv/dt] >>\n"],
    "record": [json.dumps(RECORD).encode()],
    "timer and profile": [json.dumps(TIMER).encode(), as_json(CALLS)],
    "log": [LOG.encode()],
}
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
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
STRING = re.compile(rb'"[^"\\\n]*"')

Damage = Callable[[bytes, random.Random], bytes]


def cut_out(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + data[at + chance.choice([1, 2, 5, 50, 500, 5000]) :]


def repeat(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[: at + chance.choice([1, 5, 100, 2000])] + data[at:]


def flip(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def truncate(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def insert(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + chance.choice(TOKENS) + data[at:]


def move_lines(data: bytes, chance: random.Random) -> bytes:
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
    def put(data: bytes, chance: random.Random) -> bytes:
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


def no_number(found: str) -> None:
    raise ValueError(found)


@pytest.mark.parametrize("name", RUNS)
def test_error_damaged_files_give_a_valid_trace_or_one_line(tmp_path: Path, name: str) -> None:
    """Whatever is cut out, doubled, swapped or overwritten in them."""
    chance = random.Random(f"damage of {name}")
    calls: list[HostCalls] = ["all", "enqueue", "none"]
    drawn = 0
    for case in range(110):
        files = list(RUNS[name])
        for _ in range(chance.choice([1, 1, 2, 5, 20])):
            which = chance.randrange(len(files))
            if files[which]:
                files[which] = chance.choice(DAMAGES)(files[which], chance)
        paths = []
        for number, data in enumerate(files):
            paths.append(tmp_path / f"{number}")
            paths[-1].write_bytes(data)
        out, refused = io.BytesIO(), None
        try:
            convert(*paths, output=out, check=True, host_calls=chance.choice(calls))
        except InputError as error:
            refused = str(error)
        if refused is not None:
            assert "\n" not in refused, case
            continue
        drawn += 1
        text = out.getvalue()
        assert re.search(rb"[\x00-\x09\x0b-\x1f\x7f\\]", text) is None, case
        for event in json.loads(text, parse_constant=no_number)["traceEvents"]:
            assert event["name"], case
            assert None not in event.get("args", {}).values(), case
    assert 0 < drawn < 110, "some damage must be harmless, and some must not be"
