"""Handles that are used again: a buffer made later has the address of one that is gone."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from benchmarks.damages.run import POINTER, Call, CannotError, Run, iteration_of, pointer


def recycled(run: Run, random: Random) -> Run:
    """Buffers that are no longer used give their handles to buffers made later, in the profile and in the log.

    A buffer that the program never writes itself (what lies between layers, workspaces) lives in each pass on its own,
    from its first use to its last: it is made again then. Others live from their making to their last use.
    """
    calls, truth = run.profile, run.truth
    if not any(call.get("log_line") for call in truth["api_calls"]):
        raise CannotError("the log has no handles")
    uses, kept, entry_at = _uses(run)
    lives = sorted(_lives(run, uses, kept), key=lambda life: life[0])
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    rename: dict[int, list[tuple[int, int]]] = {}
    made: dict[int, list[tuple[int, int]]] = {}
    for first, last, handle, create in lives:
        for item in [item for item in busy if item[0] < first]:
            busy.remove(item)
            free.append(item[1])
        new = free.pop(random.randrange(len(free))) if free else handle
        taken = {value for _, value in busy}
        if new in taken:  # its own handle went to another buffer
            new = max(taken | set(uses)) + 0x10000
        busy.append((last, new))
        rename.setdefault(handle, []).append((first, new))
        made.setdefault(first, []).append((create, new))

    def renamed(handle: int, at: int) -> int:
        known = rename.get(handle, [])
        index = bisect_right(known, at, key=lambda item: item[0])
        return known[index - 1][1] if index else handle

    out: list[Call] = []
    places: dict[int, int] = {}
    for index, call in enumerate(calls):
        for create, new in made.get(index, ()):
            start = call["timestamp"]["start"]
            out.append({**calls[create], "buffer": hex(new), "timestamp": {"start": start, "end": start}})
        places[index] = len(out)
        match call["call"]:
            case "clCreateBuffer":
                if int(call["buffer"], 16) not in rename:
                    out.append(call)
            case "clEnqueueReadBuffer" | "clEnqueueWriteBuffer":
                out.append({**call, "buffer": hex(renamed(int(call["buffer"], 16), index))})
            case "clSetKernelArg" if (number := pointer(call)) in rename:
                new = renamed(number, index)
                out.append({**call, "arg_value": new.to_bytes(8, "little").hex()})
            case _:
                out.append(call)
    log = list(run.log)
    for line, at in entry_at.items():
        log[line] = POINTER.sub(lambda match, at=at: b"%#x" % renamed(int(match[0], 16), at), log[line])  # type: ignore[misc]
    changed = copy.deepcopy(truth)
    for enqueue in changed["enqueues"]:
        enqueue["prof_index"] = places[enqueue["prof_index"]]
    return replace(run, log=log, calls=out, truth=changed)


def _uses(run: Run) -> tuple[dict[int, list[int]], set[int], dict[int, int]]:
    """Call indices at which each buffer is used; the buffers that a kernel keeps as its argument from one pass to the
    next; the index at which each log line with a handle was written (lines from 0).

    An entry is written before its call's first record: that is where its handles must be good, and they are until the
    call's last enqueue.
    """
    calls = run.profile
    handles = {int(call["buffer"], 16) for call in calls if call["call"] == "clCreateBuffer"}
    uses: dict[int, list[int]] = {handle: [] for handle in handles}
    arguments: dict[str, dict[int, int]] = {}
    kept: set[int] = set()
    starts = _pass_starts(run)
    for index, call in enumerate(calls):
        match call["call"]:
            case "clCreateKernel":
                arguments[call["kernel"]] = {}
            case "clSetKernelArg":
                arguments.setdefault(call["kernel"], {})[call["arg_index"]] = index
                if (number := pointer(call)) in handles:
                    uses[number].append(index)
            case "clEnqueueReadBuffer" | "clEnqueueWriteBuffer":
                uses[int(call["buffer"], 16)].append(index)
            case "clEnqueueNDRangeKernel":
                for place in arguments.get(call["kernel"], {}).values():
                    if (number := pointer(calls[place])) in handles:
                        uses[number].append(index)
                        if bisect_right(starts, place) != bisect_right(starts, index):
                            kept.add(number)
    created: dict[int, list[int]] = {}
    for index, call in enumerate(calls):
        if call["call"] == "clCreateBuffer":
            created.setdefault(int(call["buffer"], 16), []).append(index)
    entry_at: dict[int, int] = {}
    enqueues = run.truth["enqueues"]
    seen = [enqueue["lines_before"] for enqueue in enqueues]
    ends = {enqueue["api_call"]: enqueue["prof_index"] for enqueue in enqueues}
    for call in run.truth["api_calls"]:
        if not call.get("log_line"):
            continue
        lines = range(call["log_line"] - 1, call["lines_after"])
        named = {line: {int(text, 16) for text in POINTER.findall(run.log[line])} & handles for line in lines}
        # After the enqueue before it, and after its buffers were made.
        earlier = bisect_right(seen, call["log_line"] - 1)
        until = enqueues[earlier]["prof_index"] if earlier < len(enqueues) else len(calls) - 1
        makings = [index for line in lines for handle in named[line] for index in created[handle] if index < until]
        at = max([enqueues[earlier - 1]["prof_index"] if earlier else -1, *makings]) + 1
        for line, found in named.items():
            if found:
                entry_at[line] = at
            for number in found:
                uses[number] += [at, max(at, ends.get(call["index"], at))]
    return {handle: sorted(indices) for handle, indices in uses.items()}, kept, entry_at


def _lives(run: Run, uses: dict[int, list[int]], kept: set[int]) -> Iterator[tuple[int, int, int, int]]:
    """(first index, last index, handle, index of its making) of each life of each buffer."""
    calls = run.profile
    created: dict[int, list[int]] = {}
    for index, call in enumerate(calls):
        if call["call"] == "clCreateBuffer":
            created.setdefault(int(call["buffer"], 16), []).append(index)
    written = kept | {int(call["buffer"], 16) for call in calls if call["call"] == "clEnqueueWriteBuffer"}
    starts = _pass_starts(run)
    for handle, makings in created.items():
        for number, making in enumerate(makings):
            until = makings[number + 1] if number + 1 < len(makings) else len(calls)
            used = [index for index in uses[handle] if making <= index < until]
            if handle in written or len(makings) > 1 or not used:
                yield making, max([making, *used]), handle, making
                continue
            groups: dict[int, list[int]] = {}
            for index in used:
                groups.setdefault(bisect_right(starts, index), []).append(index)
            for group in groups.values():
                yield group[0], group[-1], handle, making


def _pass_starts(run: Run) -> list[int]:
    """The call index at which each iteration begins: after the last enqueue before it."""
    starts: list[int] = []
    last, before = -1, 0
    for enqueue in run.truth["enqueues"]:
        number = iteration_of(run, enqueue)
        if number > last:
            starts.append(before)
            last = number
        before = enqueue["prof_index"] + 1
    return starts
