"""One file, several processes: another program's log before, after and between, and earlier runs of the same one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from benchmarks.damages.clocks import DAY_US, STAMP
from benchmarks.damages.prints import lines_of_own
from benchmarks.damages.run import FRAMEWORK, ITERATION, MIOPEN, CannotError, Piece, Run, iteration_number, with_log
from benchmarks.damages.threads import apart, moved_in_time, other_pointers
from benchmarks.grow import microseconds

GAP_US = 60 * 1_000_000
APART = (0.93, 1.07)
"""What a run's times are of those of another run of the program."""
PRINTED = re.compile(rb"\d+(?:\.\d+)?(?= ms\b)")
IMAGES = re.compile(rb"( -n |Desc = )(\d+)(?= -c |(?:, \d+){3})")
"""How many images a command, and a tensor of four dimensions, have."""
IDS = re.compile(rb"^([IWEF]\d{4,8} +[\d:.]+ +|(?:[\w.-]+ )?(?=\d+ MIOpen))(\d+ )")
"""Of a line up to the id that it is printed with, and that."""
UTC = re.compile(rb"(?<=\(\d{4}-\d\d-\d\dT)(\d\d):(\d\d):(\d\d)\.(\d{3})(?=Z\))")
MOST = 40
"""Lines that a process writes before the other one does."""


def _strange(log: Sequence[bytes]) -> list[Piece]:
    return [(line, None) for line in log]


def log_before(run: Run, other: Run, random: Random) -> Run:
    lines_of_own(other)
    return with_log(run, [*_strange(other_pointers(other.log)), *lines_of_own(run)])


def log_after(run: Run, other: Run, random: Random) -> Run:
    lines_of_own(other)
    return with_log(run, [*lines_of_own(run), *_strange(other_pointers(other.log))])


def log_mixed(run: Run, other: Run, random: Random, *, ids: bool) -> Run:
    """Two processes write into one file; a line is written whole. ``ids``: the lines say whose they are."""
    lines_of_own(other)
    own, strange = lines_of_own(run), _strange(other_pointers(other.log))
    if ids:
        own = [(_of_process(line, 4711), number) for line, number in own]
        strange = [(_of_process(line, 4712), None) for line, _ in strange]
    return with_log(run, _shuffled(own, strange, random))


def _shuffled(own: Sequence[Piece], strange: Sequence[Piece], random: Random) -> list[Piece]:
    """Both, each in its order, a few lines at once."""
    pieces: list[Piece] = []
    sides = [[*own][::-1], [*strange][::-1]]
    while sides[0] and sides[1]:
        side = sides[random.random() < len(sides[1]) / (len(sides[0]) + len(sides[1]))]
        pieces += [side.pop() for _ in range(min(len(side), random.randint(1, MOST)))]
    return [*pieces, *sides[0][::-1], *sides[1][::-1]]


def ranks_mixed(run: Run, random: Random) -> Run:
    """Two ranks of one program write into one file; a launcher puts the rank before each line, and behind it both have
    the same ids, as each is in a container of its own."""
    own = [(b"[rank0]: " + line, number) for line, number in lines_of_own(run)]
    other = [(b"[rank1]: " + line, None) for line in rerun(run.log, random, way=0)]
    return with_log(run, _shuffled(own, other, random))


def two_loops(run: Run, random: Random) -> Run:
    """One process runs its net twice, as after a training an evaluation: set up anew, iterations counted from 1."""
    calls = run.profile
    count = 1 + max(iteration_number(layer["name"]) for layer in run.truth["layers"])
    if count < 1 or not run.truth["api_calls"] or any("warm-up" in layer["name"] for layer in run.truth["layers"]):
        raise CannotError("there are no iterations, or no calls")
    again = apart(run)
    if again.log == run.log and not any(STAMP.search(line) for line in run.log):
        raise CannotError("to the letter it is a log that was written twice")
    shift = microseconds(calls[-1]["timestamp"]["end"]) - microseconds(calls[0]["timestamp"]["start"]) + 2_000_000
    first = len(run.log)
    log = [_later(line, shift) if STAMP.search(line) else line for line in again.log]
    truth: dict[str, list[dict[str, Any]]] = {}
    offsets = {name: len(run.truth[name]) for name in ("layers", "api_calls")}
    for name in ("layers", "api_calls", "enqueues", "other_commands"):
        late = []
        for one in run.truth.get(name, ()):
            moved = dict(one)
            for key in ("log_line", "cmd_line", "lines_before", "lines_after"):
                if moved.get(key) is not None:
                    moved[key] += first
            if name == "layers" and (number := iteration_number(one["name"])) >= 0:
                moved["name"] = ITERATION.sub(f"iter{number + count} ", one["name"])
            if name == "enqueues":
                moved["prof_index"] += len(calls)
                moved["api_call"] = None if one["api_call"] is None else one["api_call"] + offsets["api_calls"]
                moved["layer"] = None if one["layer"] is None else one["layer"] + offsets["layers"]
            late.append(moved)
        truth[name] = [*run.truth.get(name, ()), *late]
    return replace(
        run, log=[*run.log, *log], calls=[*calls, *moved_in_time(again, shift)], truth={**run.truth, **truth}
    )


def _of_process(line: bytes, process: int) -> bytes:
    if MIOPEN.match(line):
        return b"%d %b" % (process, line)
    if FRAMEWORK.match(line):
        head, _, rest = line.partition(b"]")
        return re.sub(rb"(\.\d{6}) +\d+", rb"\g<1> %d" % process, head) + b"]" + rest
    return line


def earlier_run(run: Run, random: Random) -> Run:
    """The same program ran before, into the same file: other pointers, other times, and stamps of a while ago."""
    return with_log(run, [*_strange(rerun(run.log, random, way=-1)), *lines_of_own(run)])


def killed_run(run: Run, random: Random) -> Run:
    """The same program was killed before, after some part of the same."""
    killed = rerun(run.log, random, way=-1)
    return with_log(run, [*_strange(killed[: round(len(killed) * random.uniform(0.3, 0.9))]), *lines_of_own(run)])


def later_run(run: Run, random: Random) -> Run:
    """The same program ran once more afterwards."""
    return with_log(run, [*lines_of_own(run), *_strange(rerun(run.log, random, way=1))])


def another_day(run: Run, random: Random) -> Run:
    """The log is of the same program's run at another time of the day: nothing of it is this profile's."""
    if run.files or not any(STAMP.search(line) for line in run.log):
        raise CannotError("nothing tells the runs apart: no stamps, or no date in the profile")
    return replace(wrong(run), log=rerun(run.log, random, way=1, gap_us=2 * 3600 * 1_000_000 + 1_234_567))


def another_time(run: Run, random: Random, *, ids: bool) -> Run:
    """The same of a profile whose clock knows no date. ``ids``: the log's lines begin with others than the profile's
    threads have; in a container all runs have the same."""
    telling = IDS if ids else STAMP
    if not run.files or not any(telling.search(line) for line in run.log):
        raise CannotError("the profile has a date, or nothing in the log tells runs apart")
    log = rerun(run.log, random, way=1)
    if ids:
        log = [IDS.sub(rb"\g<1>3\g<2>", line) for line in log]
    return replace(wrong(run), log=log)


def another_batch(run: Run) -> Run:
    """The log is of the same program's run with twice the images, at the same moments: kernels are named alike."""
    log = [
        IMAGES.sub(lambda one: b"%s%d" % (one[1], 2 * int(one[2])), line) if MIOPEN.match(line) else line
        for line in run.log
    ]
    if log == list(run.log):
        raise CannotError("no line has the number of images")
    return replace(wrong(run), log=other_pointers(log))


def rerun(log: Sequence[bytes], random: Random, *, way: int, gap_us: int = GAP_US) -> list[bytes]:
    """What the same program prints another time, before or after: buffers lie elsewhere, everything takes a little
    more or less time."""
    times = [_us(match) for line in log if (match := STAMP.search(line))]
    shift = way * (max(times) - min(times) + gap_us) if times else 0
    lines: list[bytes] = []
    before, now = times[0] if times else 0, (times[0] if times else 0) + shift
    for line in log:
        if match := STAMP.search(line):
            now += round((_us(match) - before) * random.uniform(*APART))
            before = _us(match)
            line = _later(line, now - before)
        elif UTC.search(line):  # MIOpen's own go with the framework's
            line = UTC.sub(partial(_shifted, shift_us=now - before), line)
        lines.append(PRINTED.sub(lambda one: b"%g" % (float(one[0]) * random.uniform(*APART)), line))
    return other_pointers(lines)


def wrong(run: Run) -> Run:
    """The run's profile with a log that is none of its: every link is wrong."""
    enqueues = [{**enqueue, "api_call": None, "layer": None} for enqueue in run.truth["enqueues"]]
    return replace(run, truth={**run.truth, "enqueues": enqueues}, wrong=True)


def another_log(run: Run, other: Run, random: Random) -> Run:
    """The log of one run beside the profile of another."""
    lines_of_own(run)
    lines_of_own(other)
    return replace(wrong(run), name=f"{run.name} + {other.name}", log=other.log)


def _us(match: re.Match[bytes]) -> int:
    hours, minutes, seconds, us = map(int, match.groups()[1:])
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + us


def _ms(match: re.Match[bytes]) -> int:
    hours, minutes, seconds, ms = map(int, match.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000 + ms


def _shifted(match: re.Match[bytes], shift_us: int) -> bytes:
    rest, ms = divmod((_ms(match) + shift_us // 1000) % (DAY_US // 1000), 1_000)
    return b"%02d:%02d:%02d.%03d" % (rest // 3600, rest // 60 % 60, rest % 60, ms)


def _later(line: bytes, shift: int) -> bytes:
    def stamp(match: re.Match[bytes]) -> bytes:
        rest, us = divmod((_us(match) + shift) % DAY_US, 1_000_000)
        return b"%b %02d:%02d:%02d.%06d" % (match[1], rest // 3600, rest // 60 % 60, rest % 60, us)

    return STAMP.sub(stamp, line)
