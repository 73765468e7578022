"""Runs in each other's way: two threads of one process, and the profile of another run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from benchmarks.damages.run import FRAMEWORK, HANDLES, MASK, MIOPEN, POINTER, Call, Run, pointer
from benchmarks.grow import iso_formatter, microseconds


def two_threads(run: Run, other: Run, random: Random, *, framework: bool = True) -> Run:
    """``run`` and ``other`` as two host threads of one process, each with its queue; both clocks go on together.

    Each line of MIOpen's carries the thread's id where every line carries a prefix (2.0 and later); before, entries
    stay whole. ``framework``: the first thread's other lines stay; the second one's never do.
    """
    one, two = _Stream(run, 4711), _Stream(apart(other), 4712)
    # A little of the first one is over when the second one begins.
    start = one.first_us + random.randint(10, 400)
    two.move(start - two.first_us)
    pieces = [*one.pieces(framework), *two.pieces(False)]
    pieces.sort(key=lambda piece: piece[0])
    log: list[bytes] = []
    new: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for _, thread, number, lines in pieces:
        for offset, line in enumerate(lines):
            log.append(line)
            new[thread][number + offset] = len(log)
    calls = [(us, 0, index, call) for index, (us, call) in enumerate(one.calls)]
    calls += [(us, 1, index, call) for index, (us, call) in enumerate(two.calls)]
    calls.sort(key=lambda item: item[:3])
    places = {(thread, index): place for place, (_, thread, index, _) in enumerate(calls)}
    truth: Any = {"layers": [], "api_calls": [], "enqueues": [], "other_commands": []}
    for thread, stream in enumerate((one, two)):
        old = stream.run.truth
        at, layers, first = new[thread], len(truth["layers"]), len(truth["api_calls"])
        prefix = " of the other thread" if thread else ""
        told = framework and not thread
        truth["layers"] += [{**layer, "name": layer["name"] + prefix, "told": told} for layer in old["layers"]]
        for call in old["api_calls"]:
            known = {key: at.get(call[key] or 0) for key in ("log_line", "cmd_line") if key in call}
            last = at.get(call["lines_after"], 0)
            truth["api_calls"].append({**call, **known, "lines_before": last, "lines_after": last})
        for enqueue in old["enqueues"]:
            call, layer = enqueue["api_call"], enqueue["layer"]
            truth["enqueues"].append(
                {
                    **enqueue,
                    "prof_index": places[thread, enqueue["prof_index"]],
                    "api_call": None if call is None else call + first,
                    "layer": None if layer is None else layer + layers,
                    "lines_before": 0,
                }
            )
    truth["enqueues"].sort(key=lambda enqueue: enqueue["prof_index"])
    return replace(run, name=f"{run.name} + {other.name}", log=log, calls=[call for *_, call in calls], truth=truth)


def apart(run: Run) -> Run:
    """The run with other handles: no object of it is one of another run's."""

    def moved(value: str) -> str:
        number = int(value, 16) if value not in ("(nil)", "0") else 0
        return hex(number + (1 << 42)) if number else value

    buffers = {call["buffer"] for call in run.profile if call["call"] == "clCreateBuffer"}
    values = {int(value, 16) for value in buffers}
    calls: list[Call] = []
    for call in run.profile:
        changed = {**call, **{key: moved(call[key]) for key in HANDLES if key in call}}
        number = pointer(call)
        if number in values:
            changed["arg_value"] = (number + (1 << 42)).to_bytes(8, "little").hex()
        calls.append(changed)
    return replace(run, log=other_pointers(run.log), calls=calls)


def other_pointers(log: list[bytes]) -> list[bytes]:
    """The lines of a process whose buffers lie elsewhere; masked ones stay so."""

    def moved(match: re.Match[bytes]) -> bytes:
        return match[0] if match[0] == MASK else b"%#x" % (int(match[0], 16) + (1 << 42))

    return [POINTER.sub(moved, line) for line in log]


def moved_in_time(run: Run, shift_us: int) -> list[Call]:
    """The calls so much later, on both clocks."""
    iso = iso_formatter()

    def moved(call: Call) -> Call:
        stamps = {key: iso(microseconds(value) + shift_us).decode() for key, value in call["timestamp"].items()}
        out = {**call, "timestamp": stamps}
        if "profiling" in call:
            out["profiling"] = {key: value + 1000 * shift_us for key, value in call["profiling"].items()}
        return out

    return [moved(call) for call in run.profile]


class _Stream:
    """A run in time: its calls with their start, its log's lines with the moment at which they may have been written.

    A line comes after the enqueues that the truth saw before it and before the next one: blocking calls leave no doubt.
    """

    def __init__(self, run: Run, thread: int) -> None:
        self.run = run
        self.thread = thread
        self.shift = 0
        self.calls = [(microseconds(call["timestamp"]["start"]), call) for call in run.profile]
        self.first_us = self.calls[0][0]

    def move(self, shift_us: int) -> None:
        """Move it in time, on both clocks."""
        self.shift = shift_us
        calls = moved_in_time(self.run, shift_us)
        self.calls = [(us + shift_us, call) for (us, _), call in zip(self.calls, calls, strict=True)]

    def pieces(self, framework: bool) -> Iterator[tuple[float, int, int, list[bytes]]]:
        """(time, 0 or 1, number of the first line, lines) in order; what is written at once is one piece."""
        times = self._times()
        log, second = self.run.log, self.thread % 2 == 0
        prefixed = any(re.match(rb"MIOpen\(\w+\): \t", line) for line in log)
        number = 0
        while number < len(log):
            stop = number + 1
            line = log[number]
            if prefixed:
                lines = [b"%d %b" % (self.thread, line) if MIOPEN.match(line) else line]
            else:
                if MIOPEN.match(line) and line.rstrip().endswith(b"{"):
                    while stop < len(log) and log[stop - 1].rstrip() != b"}":
                        stop += 1
                lines = log[number:stop]
            if framework or not FRAMEWORK.match(line):
                yield times[number] + self.shift, int(second), number + 1, lines
            number = stop

    def _times(self) -> list[float]:
        run = self.run
        times: list[float] = []
        last = float(self.first_us)
        for enqueue in run.truth["enqueues"]:
            stamp = run.profile[enqueue["prof_index"]]["timestamp"]
            until = float(microseconds(stamp["start"]))
            count = enqueue["lines_before"] - len(times)
            times += [last + (until - last) * (number + 0.5) / count for number in range(count)]
            last = float(microseconds(stamp["end"]))
        times += [last + 1 + number for number in range(len(run.log) - len(times))]
        return times


def another_profile(run: Run, other: Run) -> Run:
    """The log of one run, the profile of another: no kernel of it is any call's of this log, or any layer's."""
    _ = run.profile
    enqueues = [{**enqueue, "api_call": None, "layer": None} for enqueue in other.truth["enqueues"]]
    return Run(f"{run.name} + {other.name}", run.log, other.profile, {**run.truth, "enqueues": enqueues})
