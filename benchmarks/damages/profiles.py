"""What profiles lose: their beginning, end or middle, kernels, arguments, times; and how names come out of tools."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from benchmarks.damages.clocks import without_host_times
from benchmarks.damages.run import ENQUEUE, SETTERS, Call, CannotError, Mutation, Run, with_calls
from benchmarks.grow import microseconds

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


def middle_of_the_time(run: Run, random: Random) -> Run:
    """A profiler was on for three tenths of the time, in its middle."""
    times = [microseconds(call["timestamp"]["start"]) for call in run.profile]
    start, stop = (times[0] + share * (times[-1] - times[0]) for share in (0.35, 0.65))
    making = tuple(call for call in SETTERS if call != "clSetKernelArg")
    kept = [start <= at < stop or call["call"] in making for at, call in zip(times, run.profile, strict=True)]
    if not any(kept[enqueue["prof_index"]] for enqueue in run.truth["enqueues"]):
        raise CannotError("no kernel ran there")
    return with_calls(run, kept)


def sorted_by_name(run: Run, random: Random) -> Run:
    """A table of kernels that somebody sorted."""
    tables = {name: data for name, data in run.files.items() if name.endswith(".csv")}
    if run.files and not tables:
        raise CannotError("a database has no order")
    if run.files:
        changed = {}
        for name, data in tables.items():
            head, *rows = data.decode().splitlines(keepends=True)
            rows.sort(key=lambda row: row.split(",", 1)[1])
            changed[name] = "".join([head, *rows]).encode()
        return replace(run, files={**run.files, **changed})
    bare = names_times_sizes_only(run, random)
    order = sorted(range(len(bare.profile)), key=lambda place: str(bare.profile[place].get("name", "")))
    new = {old: place for place, old in enumerate(order)}
    enqueues = [{**one, "prof_index": new[one["prof_index"]]} for one in bare.truth["enqueues"]]
    calls = [bare.profile[place] for place in order]
    return replace(bare, calls=calls, truth={**bare.truth, "enqueues": enqueues})


def transposed(run: Run, random: Random) -> Run:
    """Executions of convolutions on tensors whose channels come last: a transpose before the first kernel, another
    behind the last one."""
    calls, truth = run.profile, run.truth
    convolves = {
        call["index"]
        for call in truth["api_calls"]
        if call["name"].startswith("miopenConvolution") and "Bias" not in call["name"]
    }
    own: dict[int, list[int]] = {}
    for enqueue in truth["enqueues"]:
        if enqueue["api_call"] in convolves:
            own.setdefault(enqueue["api_call"], []).append(enqueue["prof_index"])
    if not own:
        raise CannotError("nothing convolves")
    before, behind = {its[0]: of for of, its in own.items()}, {its[-1]: of for of, its in own.items()}
    told = {enqueue["prof_index"]: enqueue for enqueue in truth["enqueues"]}
    out: list[Call] = []
    enqueues: list[Any] = []

    def add(index: int, late: bool) -> None:
        call = calls[index]
        at = (call.get("profiling") or {}).get("end" if late else "start")
        host = call["timestamp"]["end" if late else "start"]
        made = {key: value for key, value in call.items() if key != "kernel"} | {
            "name": "batched_transpose_16x32_dword",
            "gws": [4096, 1, 1],
            "timestamp": {"start": host, "end": host},
        }
        if at is not None:
            made["profiling"] = dict.fromkeys(call["profiling"], at)
        enqueues.append({**told[index], "name": made["name"], "prof_index": len(out)})
        out.append(made)

    for index, call in enumerate(calls):
        if index in before:
            add(index, late=False)
        if index in told:
            enqueues.append({**told[index], "prof_index": len(out)})
        out.append(call)
        if index in behind:
            add(index, late=True)
    return replace(run, calls=out, truth={**truth, "enqueues": enqueues})


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
names_lower = renamed(lambda name, _: name.lower())
names_versioned = renamed(lambda name, _: name + "_gfx942_v3_8_0")
