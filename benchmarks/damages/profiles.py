"""What profiles lose: their beginning, end or middle, kernels, arguments, times; and how names come out of tools."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from benchmarks.damages.clocks import without_host_times
from benchmarks.damages.run import ENQUEUE, SETTERS, CannotError, Mutation, Run, with_calls

CUT_AT = 12
"""Characters that a narrow table leaves of a name."""
SUFFIXES = (".kd", ".isra.0", ".constprop.0", ".part.0", ".clone.1", " [clone .kd]")


def part_lost(first: float, last: float) -> Mutation:
    """The calls between two shares of the profile are lost; what makes kernels and programs stays known."""

    def change(run: Run, random: Random) -> Run:
        start, stop = round(first * len(run.profile)), round(last * len(run.profile))
        making = tuple(call for call in SETTERS if call != "clSetKernelArg")
        return with_calls(
            run, [not start <= index < stop or call["call"] in making for index, call in enumerate(run.profile)]
        )

    return change


def kernels_lost(share: float) -> Mutation:
    def change(run: Run, random: Random) -> Run:
        return with_calls(run, [call["call"] != ENQUEUE or random.random() >= share for call in run.profile])

    return change


def shorter_lost(least_ns: int) -> Mutation:
    """What a tool's filter leaves of a profile: kernels that ran for so long at least."""

    def change(run: Run, random: Random) -> Run:
        kept = [call["call"] != ENQUEUE or _lasted_ns(call) >= least_ns for call in run.profile]
        if all(kept):
            raise CannotError("no kernel is shorter")
        return with_calls(run, kept)

    return change


def _lasted_ns(call: Mapping[str, Any]) -> int:
    times = call.get("profiling") or {"start": 0, "end": 0}
    return int(times["end"]) - int(times["start"])


def without_arguments(run: Run, random: Random) -> Run:
    return with_calls(run, [call["call"] != "clSetKernelArg" for call in run.profile])


def names_times_sizes_only(run: Run, random: Random) -> Run:
    """As a rocprof profile without host times."""
    bare = with_calls(run, [call["call"].startswith("clEnqueue") for call in run.profile])
    calls = [{key: value for key, value in call.items() if key != "kernel"} for call in bare.profile]
    return without_host_times(replace(bare, calls=calls), random)


def renamed(change_name: Callable[[str, Random], str], share: float = 1.0) -> Mutation:
    """Of this share of the kernels, each under its new name wherever it is named."""

    def change(run: Run, random: Random) -> Run:
        names = sorted({call["name"] for call in run.profile if "name" in call})
        new = {name: change_name(name, random) for name in names if random.random() < share}
        calls = [
            {**call, "name": new.get(call["name"], call["name"])} if "name" in call else call for call in run.profile
        ]
        return replace(run, calls=calls)

    return change


names_cut = renamed(lambda name, _: name[:CUT_AT])
names_hashed = renamed(lambda name, _: "kernel_" + hashlib.sha1(name.encode()).hexdigest()[:12], 0.3)
names_suffixed = renamed(lambda name, random: name + random.choice(SUFFIXES))
names_all_kd = renamed(lambda name, _: name + ".kd")
