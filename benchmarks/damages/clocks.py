"""Clocks that are off, step, are coarse, or are not there: the log's stamps and the profile's host times."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

from benchmarks.damages.run import Call, CannotError, Mutation, Run, each_line
from benchmarks.grow import iso_formatter, microseconds

STAMP = re.compile(rb"(?<=^[IWEF])(\d{4}(?:\d{4})?) +(\d\d):(\d\d):(\d\d)\.(\d{6})")
DAY_US = 24 * 3600 * 1_000_000
HOUR_US = 3600 * 1_000_000


def _stamps(run: Run, change: Callable[[int, int], int]) -> Run:
    """The run with each stamp of the log as ``change(number of the line, µs of its day)`` says; a day stays a day."""
    if not any(STAMP.search(line) for line in run.log):
        raise CannotError("the log has no stamps")

    def line_changed(number: int, line: bytes) -> bytes:
        def stamp(match: re.Match[bytes]) -> bytes:
            hours, minutes, seconds, us = map(int, match.groups()[1:])
            moved = change(number, ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + us) % DAY_US
            rest, us = divmod(moved, 1_000_000)
            return b"%b %02d:%02d:%02d.%06d" % (match[1], rest // 3600, rest // 60 % 60, rest % 60, us)

        return STAMP.sub(stamp, line)

    return each_line(run, line_changed)


def stamps_off(us: int) -> Mutation:
    return lambda run, random: _stamps(run, lambda _, at: at + us)


def stamps_stepped(us: int) -> Mutation:
    """From somewhere in the middle on."""

    def change(run: Run, random: Random) -> Run:
        first = round(len(run.log) * random.uniform(0.3, 0.8))
        return _stamps(run, lambda number, at: at + us * (number >= first))

    return change


def stamps_coarse(us: int) -> Mutation:
    return lambda run, random: _stamps(run, lambda _, at: at // us * us)


def stamps_drift(share: float) -> Mutation:
    """The log's clock runs faster than the profile's."""

    def change(run: Run, random: Random) -> Run:
        first: list[int] = []

        def drifted(_: int, at: int) -> int:
            first.append(at)
            return at + round((at - first[0]) * share)

        return _stamps(run, drifted)

    return change


def _host_times(run: Run, change: Callable[[int], int]) -> Run:
    iso = iso_formatter()

    def changed(call: Call) -> Call:
        stamps = {key: iso(change(microseconds(value))).decode() for key, value in call["timestamp"].items()}
        return {**call, "timestamp": stamps}

    return replace(run, calls=[changed(call) for call in run.profile])


def host_times_coarse(us: int) -> Mutation:
    return lambda run, random: _host_times(run, lambda at: at // us * us)


def without_host_times(run: Run, random: Random) -> Run:
    return replace(run, calls=[{k: v for k, v in call.items() if k != "timestamp"} for call in run.profile])


def constant_host_times(run: Run, random: Random) -> Run:
    """As a profiler built with ``WALLCLOCK=timeofday`` writes them."""
    same = {"start": "1970-01-01 00:00:00.000", "end": "1970-01-01 00:00:00.000"}
    return replace(run, calls=[{**call, "timestamp": same} for call in run.profile])


def without_device_times(run: Run, random: Random) -> Run:
    return replace(run, calls=[{k: v for k, v in call.items() if k != "profiling"} for call in run.profile])
