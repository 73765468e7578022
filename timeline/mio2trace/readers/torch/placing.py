"""Assign each row of a device to one of the processes in a file.

A row belongs to the process that launched it. Each process counts its correlation ids from 1, so in a file of several
processes one id may be two calls. Then these decide, in this order: the op that the row names; the kind of call; the
process of the device's other rows; and the time, for all such rows of a device together. A row without a recorded
launch belongs to the process of the device's other rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from mio2trace.model.profile import Call
from mio2trace.notes import Notes

MOST_ALIKE = 64
"""The most processes that are checked for one correlation id, and the most devices that are considered together."""
Launch = tuple[Call, int | None]
"""A call, and the id of the op in which it was made."""
_CALLS = {"kernel": "launch", "copy": "memcpy", "fill": "memset"}


class DeviceRow(NamedTuple):
    """A kernel, copy or fill. ``launches``: by process, the launch with its correlation id."""

    kind: str
    device: Hashable
    stream: Hashable
    start_ns: int
    correlation: int | None
    external: int | None
    launches: Mapping[int, Launch]


def processes_of(rows: Sequence[DeviceRow], notes: Notes, place: str) -> list[int]:
    """Return the process of each row."""
    found = [_by_itself(row) for row in rows]
    _by_other_rows(rows, found, launched=True)
    unclear = [number for number, process in enumerate(found) if process is None and rows[number].launches]
    if unclear:
        what = "kernel or copy whose correlation id several processes have: given to one of them by time"
        notes.remark(what, place, len(unclear))
        _by_time(rows, unclear, found)
    _by_other_rows(rows, found, launched=False)
    nobodys = found.count(None)
    if nobodys:
        what = "kernel or copy that nothing gives to one of the file's processes: put in the first"
        notes.add(what, place, nobodys)
    return [process or 0 for process in found]


def _by_itself(row: DeviceRow) -> int | None:
    """Return the only process that has such a launch."""
    left = list(row.launches)
    by_op = [one for one in left if row.external is not None and row.launches[one][1] == row.external]
    left = by_op or left
    by_kind = [one for one in left if _CALLS[row.kind] in row.launches[one][0].name.lower()]
    left = by_kind or left
    return left[0] if len(left) == 1 else None


def _by_other_rows(rows: Sequence[DeviceRow], found: list[int | None], *, launched: bool) -> None:
    """Assign rows to the process of all other rows of their stream, else of their device."""
    owners: dict[Hashable, Counter[int]] = {}
    for row, process in zip(rows, found, strict=True):
        if process is not None:
            for key in ((row.device, row.stream), (row.device,)):
                owners.setdefault(key, Counter())[process] += 1
    for number, row in enumerate(rows):
        if found[number] is not None or bool(row.launches) is not launched:
            continue
        for key in ((row.device, row.stream), (row.device,)):
            own = [one for one in owners.get(key, ()) if not launched or one in row.launches]
            if len(own) == 1:
                found[number] = own[0]
                break


def _by_time(rows: Sequence[DeviceRow], unclear: Sequence[int], found: list[int | None]) -> None:
    """Decide by time: all rows of a device together if one process used it, else row by row."""
    of_device: dict[Hashable, list[int]] = {}
    for number in unclear:
        of_device.setdefault(rows[number].device, []).append(number)
    whole = []
    for numbers in of_device.values():
        of_id: dict[int | None, list[int]] = {}
        for number in numbers:
            of_id.setdefault(rows[number].correlation, []).append(number)
        # The launch of a graph has many kernels.
        calls_of = ([call for call, _ in rows[same[0]].launches.values()] for same in of_id.values() if len(same) > 1)
        shared = any(not any("graph" in call.name.lower() for call in calls) for calls in calls_of)
        if shared or len(of_device) > MOST_ALIKE:
            for same in of_id.values():
                _in_order(rows, same, found)
        else:
            whole.append(numbers)
    for numbers, process in zip(whole, _assigned(rows, whole), strict=True):
        for number in numbers:
            launches = rows[number].launches
            found[number] = process if process in launches else min(launches)


def _in_order(rows: Sequence[DeviceRow], same: Sequence[int], found: list[int | None]) -> None:
    """Assign rows with equal ids in order: as many to each call, else each row to the last call before it."""
    launches = rows[same[0]].launches
    calls = sorted(launches, key=lambda process: launches[process][0].start_ns or 0)
    in_order = sorted(same, key=lambda number: rows[number].start_ns)
    for at, number in enumerate(in_order):
        begun = sum((launches[process][0].start_ns or 0) <= rows[number].start_ns for process in calls)
        alike = len(same) % len(calls) == 0
        found[number] = calls[at * len(calls) // len(same) if alike else max(begun, 1) - 1]


def _assigned(rows: Sequence[DeviceRow], devices: Sequence[Sequence[int]]) -> list[int]:
    """Return the process of each device's rows. A call launches on one device, and no row begins before its launch. Of
    all possible assignments the one with the fewest contradictions is chosen, then the one with the shortest waits."""
    processes = sorted({process for numbers in devices for number in numbers for process in rows[number].launches})
    ids = [{rows[number].correlation for number in numbers} for numbers in devices]
    costs = [[_cost(rows, numbers, process) for process in processes] for numbers in devices]
    twice = {(one, other): len(ids[one] & ids[other]) for one, other in combinations(range(len(devices)), 2)}

    def cost(order: Sequence[int]) -> tuple[int, int, int]:
        chosen = [costs[device][process] for device, process in enumerate(order)]
        both = sum(count for (one, other), count in twice.items() if order[one] == order[other])
        return both, sum(early for early, _ in chosen), sum(waits for _, waits in chosen)

    best = [device % len(processes) for device in range(len(devices))]
    improved = True
    while improved:
        others = [
            [*best[:device], process, *best[device + 1 :]]
            for device in range(len(devices))
            for process in range(len(processes))
        ]
        for one, other in twice:
            swapped = list(best)
            swapped[one], swapped[other] = best[other], best[one]
            others.append(swapped)
        found = min(others, key=cost, default=best)
        improved = cost(found) < cost(best)
        best = found if improved else best
    return [processes[process] for process in best]


def _cost(rows: Sequence[DeviceRow], numbers: Sequence[int], process: int) -> tuple[int, int]:
    """Return how many rows would begin before their launch or have none, and the total wait for their device."""
    early = waits = 0
    for number in numbers:
        launch = rows[number].launches.get(process)
        wait = -1 if launch is None else rows[number].start_ns - (launch[0].start_ns or 0)
        early += wait < 0
        waits += max(wait, 0)
    return early, waits
