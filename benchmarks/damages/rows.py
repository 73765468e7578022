"""The rows of `benchmarks/damage.py`: each a damage, and what must stay right under it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from benchmarks.damages import clocks, losses, prints, processes, profiles
from benchmarks.damages.handles import recycled
from benchmarks.damages.run import MIOPEN, CannotError, Mutation, Run
from benchmarks.damages.sets import BARE_TWIN, HANDLES, HIDDEN, NO_FRAMEWORK, TWIN, VARIANTS
from benchmarks.damages.threads import two_threads

Change = Callable[[Run, Random, Sequence[Run]], Run]
"""A run, what to draw from, other runs in the same variant."""
MOST_RIGHT = {HANDLES: 0.999, HIDDEN: 0.995, NO_FRAMEWORK: 0.99, TWIN: 0.995, BARE_TWIN: 0.99}
WHOLE = dict.fromkeys(VARIANTS, 0.95)
"""Where all that tells is still there."""
GONE: Mapping[str, float] = {}
"""Where it is not: what is not right must not be sure."""


class Row(NamedTuple):
    """``least``: share of kernels whose operation must be right, by variant. ``draws``: another seed, another run."""

    name: str
    change: Change
    least: Mapping[str, float] = GONE
    draws: bool = True
    wrong: bool = False


def _row(name: str, mutation: Mutation, least: Mapping[str, float] = GONE, *, draws: bool = True) -> Row:
    return Row(name, lambda run, random, _: mutation(run, random), least, draws)


def _partner(run: Run, others: Sequence[Run], random: Random) -> Run:
    """A run with a profile and calls of its own."""
    fit = [one for one in others if one.calls is not None and one.truth["api_calls"] and one.name != run.name]
    if not run.truth["api_calls"] or not fit:
        raise CannotError("there is no other run like it")
    return random.choice(fit)


def _with_partner(change: Callable[[Run, Run, Random], Run]) -> Change:
    return lambda run, random, others: change(run, _partner(run, others, random), random)


def _threads(run: Run, random: Random, others: Sequence[Run], *, ids: bool) -> Run:
    """Two threads of one MIOpen: only later versions print their ids."""
    if not run.truth["api_calls"] or run.calls is None:
        raise CannotError("there are no calls")
    has_ids = any(line.startswith(b"MIOpen(OpenCL): \t") for line in run.log)
    if ids != has_ids:
        raise CannotError("its version prints lines otherwise")
    fit = [one for one in others if one.calls is not None and _dress(one) == _dress(run)]
    return two_threads(run, random.choice(fit), random)


def _dress(run: Run) -> tuple[str, bool, bool]:
    calls = run.truth["api_calls"]
    printed = (any(call.get(key) for call in calls) for key in ("log_line", "cmd_line"))
    return (str(run.truth.get("miopen", "")), *printed)  # type: ignore[return-value]


def _another(run: Run, random: Random, others: Sequence[Run]) -> Run:
    """A log of another network or version; of Caffe's, another network."""
    fit = [
        one
        for one in others
        if not one.interleaved
        and one.name.partition("-")[2].split("-")[0] != run.name.partition("-")[2].split("-")[0]
        and bool(one.truth["api_calls"]) == bool(run.truth["api_calls"])
        and any(MIOPEN.match(line) for line in one.log) == any(MIOPEN.match(line) for line in run.log)
    ]
    if not fit:
        raise CannotError("there is no other run like it")
    return processes.another_log(run, random.choice(fit), random)


def _framework_times_only(run: Run, random: Random) -> Run:
    """As `caffe time` beside a profile of rocprof's."""
    run = losses.framework_alone(run, random)
    return run if run.files else profiles.names_times_sizes_only(run, random)


def _another_time(run: Run, random: Random, others: Sequence[Run], *, ids: bool) -> Run:
    return processes.another_time(run, random, ids=ids)


MIXED = (("with", True), ("without", False))
ROWS: tuple[Row, ...] = (
    _row("as recorded", lambda run, _: run, MOST_RIGHT, draws=False),
    # lost
    _row("2 % of calls lost", partial(losses.lost_calls, share=0.02), WHOLE),
    _row("5 % of calls lost", partial(losses.lost_calls, share=0.05), WHOLE | {HIDDEN: 0.991, NO_FRAMEWORK: 0.954}),
    _row("2 % of lines lost", partial(losses.lost_lines, share=0.02), WHOLE | {HIDDEN: 0.991, NO_FRAMEWORK: 0.99}),
    _row("5 % of lines lost", partial(losses.lost_lines, share=0.05), WHOLE),
    _row("lines lost in bursts", losses.lost_bursts, WHOLE | {HIDDEN: 0.972, NO_FRAMEWORK: 0.968}),
    _row("log begins late", losses.late_log, WHOLE | {HIDDEN: 0.998, NO_FRAMEWORK: 0.983}),
    _row("log ends early", losses.cut_log, WHOLE),
    _row("middle fifth of the log lost", losses.lost_middle, WHOLE),
    _row("last 500 lines of the log", losses.last_lines, draws=False),
    _row("first and last fifth of the log", losses.head_and_tail, draws=False),
    _row("ring buffers of log and profile", losses.ring_buffers),
    _row("iterations only in the log", losses.longer_log, WHOLE, draws=False),
    _row("iterations only in the profile", losses.longer_profile, WHOLE, draws=False),
    # printed
    _row("every line twice", prints.every_line_twice, MOST_RIGHT, draws=False),
    _row("2 % of lines twice", prints.some_lines_twice, MOST_RIGHT),
    *(_row(f"3 % of {kind} lines twice", prints.doubled(kind), MOST_RIGHT) for kind in prints.LINES),
    _row("lines cut at 200", prints.cut_at(200), draws=False),
    _row("lines cut at 80", prints.cut_at(80), draws=False),
    _row("log in two files", prints.rotated, WHOLE),
    _row("whole log twice", prints.log_twice, WHOLE, draws=False),
    _row("2 % of lines glued", prints.glued, WHOLE),
    _row("long lines wrapped", prints.wrapped, WHOLE, draws=False),
    _row("MIOpen's prefix lost", prints.prefix_lost, MOST_RIGHT, draws=False),
    _row("CRLF", prints.crlf, MOST_RIGHT, draws=False),
    _row("colours", prints.coloured, MOST_RIGHT, draws=False),
    *(_row(f"prefix of {name}", prints.prefixed(name), MOST_RIGHT, draws=False) for name in prints.PREFIXES),
    _row("Docker's JSON file", prints.json_file, MOST_RIGHT, draws=False),
    _row(
        "framework's lines in blocks",
        partial(prints.buffered, framework=True),
        {HANDLES: 0.99, HIDDEN: 0.95},
        draws=False,
    ),
    _row(
        "MIOpen's lines in blocks",
        partial(prints.buffered, framework=False),
        {HANDLES: 0.99, HIDDEN: 0.95},
        draws=False,
    ),
    # processes
    Row("another program's log before", _with_partner(processes.log_before), WHOLE),
    Row("another program's log after", _with_partner(processes.log_after), WHOLE),
    *(
        Row(f"another's lines between, {word} ids", _with_partner(partial(processes.log_mixed, ids=ids)), WHOLE)
        for word, ids in MIXED
    ),
    _row("the program's earlier run before", processes.earlier_run, {HANDLES: 0.95, HIDDEN: 0.95}, draws=False),
    _row("the program's killed run before", processes.killed_run),
    _row("the program's later run after", processes.later_run, {HANDLES: 0.95, HIDDEN: 0.95}, draws=False),
    _row("ranks of a launcher with equal ids", processes.ranks_mixed, {HANDLES: 0.95}),
    _row("two loops in one process", processes.two_loops, WHOLE, draws=False),
    Row("two threads with ids", partial(_threads, ids=True), WHOLE | {HIDDEN: 0.983}),
    Row("two threads without ids", partial(_threads, ids=False)),
    # clocks
    _row("stamps 0.8 s late", clocks.stamps_off(800_000), MOST_RIGHT, draws=False),
    _row("stamps 0.8 s early", clocks.stamps_off(-800_000), MOST_RIGHT, draws=False),
    _row("stamps of Nepal's zone", clocks.stamps_off(20_700_000_000), MOST_RIGHT, draws=False),
    _row("stamps step by an hour", clocks.stamps_stepped(3_600_000_000), WHOLE),
    _row("stamps step by 5 ms", clocks.stamps_stepped(5_000), WHOLE),
    _row("stamps run 2 % fast", clocks.stamps_drift(0.02), WHOLE, draws=False),
    _row("stamps slewed by 500 ppm", clocks.stamps_drift(0.0005), MOST_RIGHT, draws=False),
    _row("stamps in ms", clocks.stamps_coarse(1_000), WHOLE, draws=False),
    _row("stamps in s", clocks.stamps_coarse(1_000_000), WHOLE, draws=False),
    _row("host times in ms", clocks.host_times_coarse(1_000), WHOLE, draws=False),
    _row("host times in s", clocks.host_times_coarse(1_000_000), WHOLE, draws=False),
    _row("no host times", clocks.without_host_times, WHOLE, draws=False),
    _row("host times all the same", clocks.constant_host_times, WHOLE, draws=False),
    _row("no device times", clocks.without_device_times, WHOLE, draws=False),
    # profiles
    _row("profile begins late", profiles.part_lost(0, 0.3), WHOLE, draws=False),
    _row("profile ends early", profiles.part_lost(0.7, 1), WHOLE, draws=False),
    _row("middle fifth of the profile lost", profiles.part_lost(0.4, 0.6), WHOLE, draws=False),
    _row("middle of the time in the profile", profiles.middle_of_the_time, draws=False),
    _row("sorted by name", profiles.sorted_by_name, dict.fromkeys(WHOLE, 0.853), draws=False),
    _row("transposes around convolutions", profiles.transposed, WHOLE, draws=False),
    _row("2 % of kernels lost", profiles.kernels_lost(0.02), WHOLE),
    _row("kernels under 0.5 ms lost", profiles.shorter_lost(500_000), draws=False),
    _row("no arguments", profiles.without_arguments, WHOLE, draws=False),
    _row("names, times, sizes only", profiles.names_times_sizes_only, dict.fromkeys(WHOLE, 0.853), draws=False),
    _row("framework's log, names, times, sizes only", _framework_times_only, draws=False),
    _row("handles recycled", recycled, WHOLE),
    # names
    _row("names cut", profiles.names_cut, WHOLE, draws=False),
    _row("3 of 10 names hashed", profiles.names_hashed, WHOLE),
    _row("names in lower case", profiles.names_lower, WHOLE, draws=False),
    _row("names end in a version", profiles.names_versioned, MOST_RIGHT, draws=False),
    _row("names end in .kd", profiles.names_all_kd, MOST_RIGHT, draws=False),
    _row("names of clones", profiles.names_suffixed, MOST_RIGHT),
    # wrong runs
    Row("another run's log", _another, wrong=True),
    Row("the program's log of another batch", lambda run, *_: processes.another_batch(run), wrong=True),
    Row("the program's log of another day", lambda run, random, _: processes.another_day(run, random), wrong=True),
    *(
        Row(f"the program's log of another time, {word} ids", partial(_another_time, ids=ids), wrong=True)
        for word, ids in (("other", True), ("the same", False))
    ),
)
