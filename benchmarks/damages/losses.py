"""What logs lose: calls, lines, their beginning, middle or end, iterations."""

from __future__ import annotations

from random import Random

from benchmarks.damages.run import (
    BLOCK,
    FRAMEWORK,
    MIOPEN,
    SETTERS,
    CannotError,
    Run,
    iteration_number,
    iteration_of,
    last_iterations,
    with_calls,
    with_lines,
)

LOST = 0.05
"""The share of a log that bursts take."""
SCROLLBACK = 500
"""Lines that a terminal, or somebody who asks for the end of a log, keeps."""
BURST = (8, 60)
"""Lines lost at once."""


def lost_entries(run: Run, random: Random) -> Run:
    """5 % of the log's entries are lost: whole ones with what is nested in them, their messages and commands."""
    calls = [call for call in run.truth["api_calls"] if call.get("log_line") or call.get("cmd_line")]
    launching = {enqueue["api_call"] for enqueue in run.truth["enqueues"]}
    keep = [True] * len(run.log)
    for some in (
        [call for call in calls if call["index"] in launching],
        [call for call in calls if call["index"] not in launching],
    ):
        # Of both kinds as many, so that a short log loses one that matters, too.
        for call in random.sample(some, -(-len(some) // 20)):
            for line in range(call["lines_before"], call["lines_after"]):
                if not (run.interleaved and BLOCK.match(run.log[line])):
                    keep[line] = False
    return with_lines(run, keep)


def framework_alone(run: Run, random: Random) -> Run:
    """MIOpen printed nothing."""
    if run.interleaved or not run.has_layers:
        raise CannotError("the profile is in the log" if run.interleaved else "there is no framework's log")
    if not run.truth["api_calls"]:
        return run
    return with_lines(run, [FRAMEWORK.match(line) is not None for line in run.log])


def late_log(run: Run, random: Random) -> Run:
    """The log starts in the middle; one with the profile in it starts at an entry, so that no block is cut."""
    start = _cut(run, random, 0.35, 0.65)
    return with_lines(run, [line >= start for line in range(len(run.log))])


def cut_log(run: Run, random: Random) -> Run:
    """The last fifth of the log is missing."""
    stop = _cut(run, random, 0.78, 0.82)
    return with_lines(run, [line < stop for line in range(len(run.log))])


def _cut(run: Run, random: Random, low: float, high: float) -> int:
    wanted = round(len(run.log) * random.uniform(low, high))
    if not run.interleaved:
        return wanted
    # No block may be cut: at the nearest line of MIOpen's.
    return min((line for line, text in enumerate(run.log) if MIOPEN.match(text)), key=lambda line: abs(line - wanted))


def longer_log(run: Run, random: Random) -> Run:
    """The last two iterations are in the log and not in the profile (of a run of two, the last one)."""
    first = last_iterations(run)
    indices = [enqueue["prof_index"] for enqueue in run.truth["enqueues"] if iteration_of(run, enqueue) >= first]
    start = indices[0]
    while run.profile[start - 1]["call"] in SETTERS:
        start -= 1
    return with_calls(run, [index < start for index in range(len(run.profile))])


def longer_profile(run: Run, random: Random) -> Run:
    """The last two iterations are in the profile and not in the log (of a run of two, the last one)."""
    _ = run.profile
    if not run.truth["api_calls"]:
        raise CannotError("the truth does not say where in the log an iteration is")
    first = last_iterations(run)
    layers = [layer for layer in run.truth["layers"] if iteration_number(layer["name"]) >= first]
    start, stop = layers[0]["lines_before"], layers[-1]["lines_after"]
    while stop < len(run.log) and b"Iteration: " in run.log[stop]:
        stop += 1
    return with_lines(run, [not start <= line < stop for line in range(len(run.log))])


def lost_calls(run: Run, random: Random, share: float) -> Run:
    """``share`` of the calls lose all lines that they printed."""
    calls = [call for call in run.truth["api_calls"] if call.get("log_line") or call.get("cmd_line")]
    if not calls:
        raise CannotError("the log has no calls")
    keep = [True] * len(run.log)
    for call in random.sample(calls, max(1, round(share * len(calls)))):
        for line in range(call["lines_before"], call["lines_after"]):
            keep[line] = run.interleaved and BLOCK.match(run.log[line]) is not None
    return with_lines(run, keep)


def lost_lines(run: Run, random: Random, share: float) -> Run:
    """Each line is lost with the probability ``share``; the blocks of a profile in the log stay whole."""
    return with_lines(run, [_stays(run, line) or random.random() >= share for line in run.log])


def lost_bursts(run: Run, random: Random) -> Run:
    """Bursts of neighbouring lines are lost, a twentieth of the log."""
    keep = [True] * len(run.log)
    while keep.count(False) < LOST * len(keep):
        length = min(random.randint(*BURST), len(keep) // 8)
        start = random.randrange(len(keep) - length)
        keep[start : start + length] = [False] * length
    return with_lines(run, [kept or _stays(run, line) for kept, line in zip(keep, run.log, strict=True)])


def ring_buffers(run: Run, random: Random) -> Run:
    """Log and profile keep what came last, each in a buffer of its own size."""
    calls = run.profile
    start = round(len(calls) * random.uniform(0.2, 0.6))
    making = tuple(call for call in SETTERS if call != "clSetKernelArg")
    kept = with_calls(run, [index >= start or call["call"] in making for index, call in enumerate(calls)])
    return late_log(kept, random)


def last_lines(run: Run, random: Random) -> Run:
    """What was copied from a terminal."""
    if run.interleaved or len(run.log) <= SCROLLBACK:
        raise CannotError("the profile is in the log, or it is short")
    return with_lines(run, [line >= len(run.log) - SCROLLBACK for line in range(len(run.log))])


def head_and_tail(run: Run, random: Random) -> Run:
    """What somebody pastes of a long log: its first fifth and its last one."""
    start, stop = _cut(run, random, 0.2, 0.2), _cut(run, random, 0.8, 0.8)
    return with_lines(run, [not start <= line < stop for line in range(len(run.log))])


def lost_middle(run: Run, random: Random) -> Run:
    """The middle fifth is lost."""
    start, stop = _cut(run, random, 0.4, 0.4), _cut(run, random, 0.6, 0.6)
    return with_lines(run, [not start <= line < stop for line in range(len(run.log))])


def _stays(run: Run, line: bytes) -> bool:
    return run.interleaved and BLOCK.match(line) is not None
