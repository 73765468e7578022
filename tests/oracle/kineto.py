"""PyTorch's profiler: rows of the device have a correlation, which the call that launched them has, too."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.oracle.events import Call, Command, Mark, Recording, unpacked

DEVICE = {"kernel": "kernel", "concurrent_kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "fill"}
HOST = {"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "privateuse1_runtime", "privateuse1_driver"}


def nanoseconds(microseconds: str | int) -> int:
    """Exact: three decimals of a time since 1970 are more than a double holds."""
    return int((Decimal(microseconds) * 1000).to_integral_value())


def times(row: dict[str, Any]) -> tuple[int, int]:
    start = nanoseconds(row["ts"])
    return start, start + nanoseconds(row.get("dur", 0))


def read(path: Path) -> Recording:
    return recorded(json.loads(unpacked(path), parse_float=str))


def recorded(text: Any) -> Recording:
    rows = [row for row in text["traceEvents"] if row.get("ph") == "X" and "cat" in row]
    _give_strays(rows)
    made = Recording()
    by_correlation: dict[int, list[Call]] = defaultdict(list)
    for row in rows:
        if row["cat"] in HOST:
            made.calls.append(Call(int(row["pid"]), int(row["tid"]), row["name"], *times(row)))
            number = _correlation(row)
            if number is not None:
                by_correlation[number].append(made.calls[-1])
        elif row["cat"] == "user_annotation":
            made.marks.append(Mark(int(row["pid"]), int(row["tid"]), row["name"], *times(row)))
        if row["cat"] in ("cpu_op", "user_annotation") and "External id" in row.get("args", {}):
            made.numbers.setdefault(int(row["pid"]), set()).add(int(row["args"]["External id"]))
    ops = {
        (int(row["pid"]), int(row["args"]["External id"])): times(row)[0]
        for row in rows
        if row["cat"] == "cpu_op" and "External id" in row.get("args", {})
    }
    activities = [(row, times(row)) for row in rows if row["cat"] in DEVICE]
    if not any(row["cat"] in HOST | {"cpu_op", "user_annotation"} for row in rows):
        named = [row["args"] for row, _ in activities if "External id" in row.get("args", {})]
        lost = {args["External id"] for args in named if args["External id"] != args.get("correlation")}
        made.lost = len(lost) if len(lost) >= 10 else 0
    launched = [(row, span, _call_of(row, span[0], by_correlation)) for row, span in activities]
    owners: dict[int, Counter[int]] = defaultdict(Counter)
    for row, _, call in launched:
        if call is not None:
            owners[_device(row)][call.process] += 1
    processes = Counter(int(row["pid"]) for row in rows if row["cat"] in HOST | {"cpu_op", "user_annotation"})
    alone = next(iter(processes)) if len(processes) == 1 else -1
    for row, span, call in launched:
        owner = owners[_device(row)].most_common(1)
        process = call.process if call is not None else owner[0][0] if owner else alone
        stream = int(row.get("args", {}).get("stream", row["tid"]))
        args = row.get("args", {})
        op = args.get("External id") if "correlation" in args else None
        made.commands.append(
            Command(
                process, _device(row), stream, DEVICE[row["cat"]], row["name"], *span, call, launch=_correlation(row),
                op_start=None if op is None or op == args["correlation"] else ops.get((process, int(op))),
            )
        )  # fmt: skip
    return made


def _give_strays(rows: list[dict[str, Any]]) -> None:
    """Marks of a process of which the file has nothing else are of the only one that launched something."""
    there = {row["pid"] for row in rows if row["cat"] in HOST | {"cpu_op"}}
    launching = {row["pid"] for row in rows if row["cat"] in HOST and "correlation" in row.get("args", {})}
    for row in rows:
        if row["cat"] == "user_annotation" and row["pid"] not in there and len(launching) == 1:
            (row["pid"],) = launching


def _device(row: dict[str, Any]) -> int:
    return int(row.get("args", {}).get("device", row["pid"]))


def _correlation(row: dict[str, Any]) -> int | None:
    """Some versions for ROCm call it ``External id``, which has another meaning where there is a correlation, too."""
    args = row.get("args", {})
    number = args.get("correlation", args.get("External id"))
    return None if number is None else int(number)


def _call_of(row: dict[str, Any], start: int, by_correlation: dict[int, list[Call]]) -> Call | None:
    """The launch; of several calls with one id the last that began before the device did."""
    number = _correlation(row)
    calls = [] if number is None else by_correlation.get(number, [])
    earlier = [call for call in calls if call.start <= start]
    return max(earlier or calls, key=lambda call: call.start, default=None)
