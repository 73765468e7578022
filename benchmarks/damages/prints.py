"""How logs are printed and kept: lines twice, glued, cut, behind the prefixes of what collected them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

import orjson

from benchmarks.damages.run import FRAMEWORK, MIOPEN, CannotError, Mutation, Piece, Run, each_line, pieces_of, with_log

GLUED, TWICE, DOUBLED = 0.02, 0.02, 0.03
WIDTH = 160
"""Columns of a terminal that a log was copied from."""
BLOCK_SIZE = 4096
"""Bytes that a stream keeps before it writes them to a file."""
DAY = b"2026-11-20T"
PREFIXES: dict[str, Callable[[int], bytes]] = {
    "docker compose": lambda number: b"miopen-1  | ",
    "docker logs -t": lambda number: DAY + b"11:34:%02d.%09dZ " % (number // 1000 % 60, number % 1000 * 1_000_003),
    "kubernetes": lambda number: DAY + b"11:34:%02d.%09dZ stderr F " % (number // 1000 % 60, number % 1000 * 1_000_003),
    "journal": lambda number: b"Nov 20 11:34:%02d node07 train[742]: " % (number // 1000 % 60),
    "ts": lambda number: b"Nov 20 11:34:%02d " % (number // 1000 % 60),
    "Jenkins": lambda number: b"[" + DAY + b"11:34:%02d.%03dZ] " % (number // 1000 % 60, number % 1000),
    "mpirun": lambda number: b"[1,0]<stderr>:",
    "torchrun": lambda number: b"[default0]:",
}


def lines_of_own(run: Run) -> list[Piece]:
    """The lines, where none of them is a profile's."""
    if run.interleaved:
        raise CannotError("the profile is in the log")
    return pieces_of(run)


def every_line_twice(run: Run, random: Random) -> Run:
    """Two handlers of one logger."""
    return with_log(run, [piece for piece in lines_of_own(run) for _ in range(2)])


def some_lines_twice(run: Run, random: Random) -> Run:
    return with_log(run, [piece for piece in lines_of_own(run) for _ in range(1 + (random.random() < TWICE))])


LINES = {
    "layer": re.compile(rb"\t(?:forward|backward): [\d.]+ ms"),
    "iteration": re.compile(rb"Iteration: \d+ "),
    "entry": re.compile(rb"\bmiopen[A-Z]\w+\("),
}


def doubled(kind: str) -> Mutation:
    """Some lines of one kind are printed twice, one at least."""

    def change(run: Run, random: Random) -> Run:
        pieces = lines_of_own(run)
        places = [place for place, (line, _) in enumerate(pieces) if LINES[kind].search(line)]
        if not places:
            raise CannotError("the log has no such lines")
        twice = set(random.sample(places, max(1, round(DOUBLED * len(places)))))
        return with_log(run, [piece for place, piece in enumerate(pieces) for _ in range(1 + (place in twice))])

    return change


def cut_at(width: int) -> Mutation:
    """What a collector or a narrow table leaves of long lines; every line keeps its end."""

    def change(run: Run, random: Random) -> Run:
        lines_of_own(run)
        changed = each_line(run, lambda _, line: line if len(line) <= width else line[:width].rstrip() + b"\n")
        calls = [dict(call) for call in changed.truth["api_calls"]]
        for call in calls:
            for key, text in (("log_line", call["name"].encode()), ("cmd_line", b"MIOpenDriver")):
                if call.get(key) and text not in changed.log[call[key] - 1]:
                    call[key] = None  # so little is left of it
        return replace(changed, truth={**changed.truth, "api_calls": calls})

    return change


def rotated(run: Run, random: Random) -> Run:
    """The log was begun anew while the program ran: its first part is in another file."""
    return replace(run, rotated=round(len(lines_of_own(run)) * random.uniform(0.3, 0.7)))


def log_twice(run: Run, random: Random) -> Run:
    """``tee -a`` into the file that standard error goes to as well."""
    return with_log(run, lines_of_own(run) * 2)


def buffered(run: Run, random: Random, *, framework: bool) -> Run:
    """Two streams of one program go into one file, and one of them is buffered: the framework's, or MIOpen's."""
    late = _of_framework(run)
    if not framework:
        late = [not of_framework for of_framework in late]
    pieces, waiting = list[Piece](), list[Piece]()
    for piece, is_late in zip(lines_of_own(run), late, strict=True):
        (waiting if is_late else pieces).append(piece)
        if sum(len(line) for line, _ in waiting) > BLOCK_SIZE:
            pieces += waiting
            waiting.clear()
    if all(late) or not any(late):
        raise CannotError("the log has one stream")
    return with_log(run, [*pieces, *waiting], {number for number, one in enumerate(_of_framework(run), 1) if one})


def _of_framework(run: Run) -> list[bool]:
    """Of each line whether the framework printed it: a line without any beginning is whose the one before it is."""
    own: list[bool] = []
    for line in run.log:
        own.append(bool(FRAMEWORK.match(line)) or (not MIOPEN.match(line) and bool(own) and own[-1]))
    return own


def glued(run: Run, random: Random) -> Run:
    """Of some lines the end is missing: another thread's write came between."""
    pieces: list[Piece] = []
    for line, number in lines_of_own(run):
        if pieces and random.random() < GLUED:
            before, first = pieces[-1]
            pieces[-1] = (before.rstrip(b"\r\n") + line, first)
        else:
            pieces.append((line, number))
    changed = with_log(run, pieces)
    return replace(changed, truth=_on_same_line(run, changed, pieces))


def _on_same_line(run: Run, changed: Run, pieces: list[Piece]) -> object:
    """The truth, where a line that hangs at another's end is where that one is."""
    at: dict[int, int] = {}
    for number, (_, first) in enumerate(pieces, 1):
        until = pieces[number][1] if number < len(pieces) else len(run.log) + 1
        at |= dict.fromkeys(range(first or 0, until or 0), number)
    calls = [
        {**call, **{key: at[was[key]] for key in ("log_line", "cmd_line") if was.get(key)}}
        for call, was in zip(changed.truth["api_calls"], run.truth["api_calls"], strict=True)
    ]
    for call, was in zip(calls, run.truth["api_calls"], strict=True):
        call["lines_before"], call["lines_after"] = (at.get(was[key], 0) for key in ("lines_before", "lines_after"))
    return {**changed.truth, "api_calls": calls}


def wrapped(run: Run, random: Random) -> Run:
    """Copied from a terminal: long lines are several."""
    pieces: list[Piece] = []
    for line, number in lines_of_own(run):
        text = line.rstrip(b"\r\n")
        for start in range(0, max(1, len(text)), WIDTH):
            pieces.append((text[start : start + WIDTH] + b"\n", number if not start else None))
    changed = with_log(run, pieces)
    return replace(changed, foreign=frozenset())


def prefix_lost(run: Run, random: Random) -> Run:
    """Somebody filtered MIOpen's own prefix away."""
    lines_of_own(run)
    if len({match[0].partition(b"MIOpen")[0] for line in run.log if (match := MIOPEN.match(line))}) > 1:
        raise CannotError("the prefix tells processes apart")
    return each_line(run, lambda _, line: MIOPEN.sub(b"", line, count=1) if MIOPEN.match(line) else line)


def crlf(run: Run, random: Random) -> Run:
    lines_of_own(run)
    return each_line(run, lambda _, line: line.rstrip(b"\r\n") + b"\r\n")


def coloured(run: Run, random: Random) -> Run:
    """A terminal's colours around every line."""
    lines_of_own(run)
    return each_line(run, lambda _, line: b"\x1b[33m" + line.rstrip(b"\r\n") + b"\x1b[0m\n")


def json_file(run: Run, random: Random) -> Run:
    """Docker's own file of a container's output."""
    lines_of_own(run)

    def kept(number: int, line: bytes) -> bytes:
        time = (DAY + b"11:34:%02d.%09dZ" % (number // 1000 % 60, number % 1000 * 1_000_003)).decode()
        return orjson.dumps({"log": line.decode(errors="replace"), "stream": "stderr", "time": time}) + b"\n"

    return each_line(run, kept)


def prefixed(name: str) -> Mutation:
    prefix = PREFIXES[name]

    def change(run: Run, random: Random) -> Run:
        lines_of_own(run)
        return each_line(run, lambda number, line: prefix(number) + line)

    return change
