"""A run as files with its truth, and what every damage is made of: lines, calls, and pointers that go.

Line numbers and call indices of the truth follow: a call whose lines are gone has neither ``log_line`` nor
``cmd_line``, an enqueue whose record is gone is no longer there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import orjson

Call = dict[str, Any]

ENQUEUE = "clEnqueueNDRangeKernel"
HANDLES = ("queue", "kernel", "program", "buffer")
MIOPEN = re.compile(rb"(?:[\w.-]+ )?(?:\d+ )?MIOpen(?:\(\w+\))?(?: +\d+\.\d+)?(?: \([\dTZ:.-]+\))?: ?")
FRAMEWORK = re.compile(rb"[IWEF]\d{4,8} +\d\d:\d\d:\d\d\.\d{6} ")
BLOCK = re.compile(rb"\[dv/dt\]|//|\s*$")
"""Lines of a log that belong to the profile in it: fields, source lines (replaced by ``//``), empty lines."""
POINTER = re.compile(rb"\b0x[0-9a-f]{6,16}\b")
MASK = b"0x7f0000000000"
ITERATION = re.compile(r"iter(\d+) ")
SETTERS = ("clSetKernelArg", "clCreateKernel", "clBuildProgram", "clCreateProgramWithSource", "clCreateBuffer")


class CannotError(Exception):
    """The mutation makes no sense for this run."""


@dataclass(frozen=True)
class Run:
    """A run as files: ``log`` in lines with their ends, ``calls`` of prof.json (None: the blocks are in the log).

    ``rotated``: of a log that is in two files, how many lines the first has. ``files``: of a profile that is no
    prof.json, by name. ``foreign``: numbers of lines that another run wrote;
    ``copies``: of lines printed more than once, the number of a later copy -> that of the first. ``wrong``: log and
    profile are of two runs, so that no link is right. ``has_layers``: whether the log could tell of any.
    """

    name: str
    log: list[bytes]
    calls: list[Call] | None
    truth: Any
    files: Mapping[str, bytes] = field(default_factory=dict)
    foreign: frozenset[int] = frozenset()
    copies: Mapping[int, int] = field(default_factory=dict)
    wrong: bool = False
    has_layers: bool = True
    rotated: int = 0

    @classmethod
    def load(cls, folder: Path) -> Run:
        profile = folder / "prof.json"
        return cls(
            folder.name,
            (folder / "run.log").read_bytes().splitlines(keepends=True),
            orjson.loads(profile.read_bytes()) if profile.exists() else None,
            orjson.loads((folder / "truth.json").read_bytes()),
        )

    def write(self, folder: Path) -> list[Path]:
        """The files to convert."""
        log = folder / "run.log"
        log.write_bytes(b"".join(self.log[self.rotated :]))
        paths = [log]
        if self.rotated:
            paths.insert(0, folder / "run.log.1")
            paths[0].write_bytes(b"".join(self.log[: self.rotated]))
        for name, data in self.files.items():
            paths.append(folder / name)
            paths[-1].write_bytes(data)
        if self.calls is not None:
            paths.append(folder / "prof.json")
            paths[-1].write_bytes(orjson.dumps(self.calls, option=orjson.OPT_INDENT_2))
        return paths

    @property
    def profile(self) -> list[Call]:
        if self.calls is None:
            raise CannotError("the profile is in the log" if self.interleaved else "there is no prof.json")
        return self.calls

    @property
    def interleaved(self) -> bool:
        """Whether the profile is in the log."""
        return self.calls is None and not self.files


Mutation = Callable[[Run, Random], Run]
Piece = tuple[bytes, int | None]
"""A line of a damaged log, and which line it was (from 1); None: another run wrote it."""


def with_log(run: Run, pieces: Sequence[Piece], displaced: Collection[int] = ()) -> Run:
    """The run with another log. ``displaced``: lines that are no longer where they were among the others."""
    first: dict[int, int] = {}
    copies: dict[int, int] = {}
    foreign: set[int] = set()
    for number, (_, old) in enumerate(pieces, 1):
        if old is None or old in run.foreign:
            foreign.add(number)
            continue
        was = run.copies.get(old, old)
        if first.setdefault(was, number) != number:
            copies[number] = first[was]
    until = [0]
    for line in range(1, len(run.log) + 1):
        until.append(max(until[-1], 0 if line in displaced else first.get(line, 0)))

    def moved(record: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
        out = dict(record)
        out |= {key: first.get(out[key]) for key in keys if out.get(key) is not None}
        out |= {key: until[out[key]] for key in ("lines_before", "lines_after") if key in out}
        return out

    truth = dict(run.truth)
    truth["api_calls"] = [moved(call, ("log_line", "cmd_line")) for call in truth["api_calls"]]
    own = ("log_line",) if run.interleaved else ()
    truth["enqueues"] = [moved(enqueue, own) for enqueue in truth["enqueues"]]
    if run.interleaved:
        truth["enqueues"] = [enqueue for enqueue in truth["enqueues"] if enqueue["log_line"] is not None]
    for name in ("layers", "other_commands"):
        truth[name] = [moved(record, ()) for record in truth.get(name, ())]
    return replace(run, log=[line for line, _ in pieces], truth=truth, foreign=frozenset(foreign), copies=copies)


def pieces_of(run: Run) -> list[Piece]:
    return [(line, number) for number, line in enumerate(run.log, 1)]


def with_lines(run: Run, keep: Sequence[bool]) -> Run:
    """The run with only some lines of its log."""
    return with_log(run, [piece for piece, kept in zip(pieces_of(run), keep, strict=True) if kept])


def each_line(run: Run, change: Callable[[int, bytes], bytes]) -> Run:
    """The run with each line changed by ``change(number from 0, line)``."""
    return replace(run, log=[change(number, line) for number, line in enumerate(run.log)])


def with_calls(run: Run, keep: Sequence[bool]) -> Run:
    """The run with only some calls of its profile."""
    before = [0]
    for kept in keep:
        before.append(before[-1] + kept)
    truth = dict(run.truth)
    truth["enqueues"] = [
        {**enqueue, "prof_index": before[enqueue["prof_index"]]}
        for enqueue in truth["enqueues"]
        if keep[enqueue["prof_index"]]
    ]
    calls = [call for call, kept in zip(run.profile, keep, strict=True) if kept]
    return replace(run, calls=calls, truth=truth)


def masked(run: Run, value: bytes = MASK) -> Run:
    """Every pointer of the log replaced: all by one value, or by nothing. The blocks of a profile in it stay."""
    return replace(run, log=[line if BLOCK.match(line) else POINTER.sub(value, line) for line in run.log])


def pointer(call: Call) -> int:
    """The value of an argument that may be a buffer, else 0."""
    if call["call"] != "clSetKernelArg" or call["arg_size"] != 8:
        return 0
    return int.from_bytes(bytes.fromhex(call["arg_value"]), "little")


def iteration_number(name: str) -> int:
    """Of a layer's name in the truth; -1 for what is of no iteration."""
    match = ITERATION.match(name)
    return int(match[1]) if match else -1


def iteration_of(run: Run, enqueue: Any) -> int:
    return -1 if enqueue["layer"] is None else iteration_number(run.truth["layers"][enqueue["layer"]]["name"])


def last_iterations(run: Run) -> int:
    """The first of the last two iterations; one always stays."""
    count = 1 + max(iteration_number(layer["name"]) for layer in run.truth["layers"])
    if count < 2:
        raise CannotError("the run has one iteration")
    return max(1, count - 2)
