"""Answers to the stored queries, counted again in plain Python from the slices of a trace in Chrome JSON.

A row is a dict of the query's columns. Rows come in no order; `NUMBERS` says how exactly a column is rounded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

Row = dict[str, Any]
Rows = list[Row]
NUMBERS = {
    "percent": 0.051, "cumulative": 0.051, "kernel_percent": 0.051, "find_percent": 0.051, "median_percent": 0.051,
    "deviations": 0.051, "kernels": 0.051, "calls": 0.0051,
}  # fmt: skip
"""The rounding of columns that begin so; of all others it is 0.0006."""
HELP_NOBODY = (None, "main", "bias", "collective")


class Ran:
    """A slice: its times in ns, its whole name, its arguments; `None` for those that it lacks."""

    def __init__(self, event: Row) -> None:
        self.args: Row = event.get("args", {})
        self.category: str = event["cat"]
        self.track = event["pid"], event["tid"]
        self.ts, self.dur = round(event["ts"] * 1000), round(event["dur"] * 1000)
        self.name: str = self.args.get("full_name", event["name"])
        self.process: str | None = self.args.get("process")

    def __getattr__(self, name: str) -> Any:
        return self.args.get(name)


def by(rows: Iterable[Ran], *columns: str) -> dict[tuple[Any, ...], list[Ran]]:
    found: dict[tuple[Any, ...], list[Ran]] = defaultdict(list)
    for row in rows:
        found[tuple(getattr(row, column) for column in columns)].append(row)
    return found


def time(rows: Iterable[Ran]) -> int:
    return sum(row.dur for row in rows)


def rate(flop: Sequence[float | None], ns: int) -> float | None:
    """GFLOP/s, if the work of all is known and there is some."""
    known = [one for one in flop if one is not None]
    return sum(known) / ns if len(known) == len(flop) and any(known) and ns else None


class Oracle:
    def __init__(self, events: Rows) -> None:
        self.slices = [Ran(event) for event in events if event.get("ph") == "X"]
        self.commands = self.of("kernel", "copy")
        self.operations, self.layers = self.of("operation"), self.of("layer")
        self.passes = self.of("pass")
        ran = [one for one in self.passes if one.kernel_ns is not None and one.kernels and one.iteration is not None]
        self.iterations: dict[str | None, set[int]] = defaultdict(set)
        for (process,), own in by(ran, "process").items():
            warm = [one for one in own if not one.name.startswith("warm-up")]
            left_out = {one.iteration for one in self.passes if one.process == process and one.steady is not None}
            self.iterations[process] = {one.iteration for one in warm or own} - left_out
        searches = {(one.process, one.operation) for one in self.operations if one.phase == "find"}
        self.steady_commands = [
            one
            for one in self.commands
            if one.phase is None
            and (one.operation is None or (one.process, one.operation) not in searches)
            and self.counts(one)
        ]
        self.steady = [one for one in self.steady_commands if one.category == "kernel"]
        self.total = {process: time(own) for (process,), own in by(self.steady, "process").items()}

    def of(self, *categories: str) -> list[Ran]:
        return [one for one in self.slices if one.category in categories]

    def counts(self, one: Ran) -> bool:
        return not self.iterations[one.process] or one.iteration in self.iterations[one.process]

    def each(self, process: str | None) -> int:
        return len(self.iterations[process]) or 1

    def ms(self, ns: float, process: str | None) -> float:
        return ns / 1e6 / self.each(process)

    def percent(self, ns: int, process: str | None) -> float:
        return 100 * ns / self.total[process]

    def slowest_layers(self) -> Rows:
        if not self.of("kernel"):
            printed = by((one for one in self.layers if one.iteration != 0), "layer_index", "name", "direction")
            return [
                {"layer": own[0].name, "direction": own[0].direction, "iterations": len(own),
                 "printed_ms": sum(one.printed_ns or one.dur for one in own) / len(own) / 1e6}
                for own in printed.values()
            ]  # fmt: skip
        spans = by(filter(self.counts, self.drawn_layers()), "process", "layer_index", "name", "direction")
        groups = by((one for one in self.steady if one.layer), "process", "layer_index", "layer", "direction")
        ranked = sorted(groups.items(), key=lambda item: (-time(item[1]), min(one.ts for one in item[1])))
        before: dict[str | None, int] = defaultdict(int)
        rows = []
        for key, own in ranked:
            process, ns, span = key[0], time(own), spans.get(key, [])
            before[process] += ns
            rows.append({
                "process": process, "layer": key[2], "direction": key[3],
                "iterations": self.each(process) if self.iterations[process] else None,
                "kernel_ms": self.ms(ns, process), "percent_of_kernel_time": self.percent(ns, process),
                "cumulative_percent": self.percent(before[process], process),
                "kernels": len(own) / self.each(process),
                "span_ms": self.ms(time(span), process) if span else None,
                "gflops": rate([one.flop for one in span if one.kernels], ns),
            })  # fmt: skip
        return rows

    def drawn_layers(self) -> list[Ran]:
        return [one for one in self.layers if one.kernel_ns is not None]

    def slowest_kernels(self) -> Rows:
        return [
            {"process": process, "kernel": name, "calls": len(own) / self.each(process),
             "kernel_ms": self.ms(time(own), process), "percent_of_kernel_time": self.percent(time(own), process),
             "mean_us": time(own) / len(own) / 1e3, "longest_us": max(one.dur for one in own) / 1e3,
             "layers": len({one.layer for one in own} - {None})}
            for (process, name), own in by(self.steady, "process", "name").items()
        ]  # fmt: skip

    def slowest_operations(self) -> Rows:
        ran = by((one for one in self.steady_commands if one.operation is not None), "process", "operation")
        whole = by((one for one in self.commands if one.operation is not None), "process", "operation")
        begins = {key: min(one.ts for one in own) for key, own in whole.items()}
        groups: dict[tuple[Any, ...], list[tuple[list[Ran], list[Ran], bool]]] = defaultdict(list)
        for (process, number, name), own in by(self.operations, "process", "operation", "name").items():
            commands = ran.get((process, number), [])
            if commands and any(one.phase != "find" for one in own):
                kernels = [one for one in commands if one.category == "kernel"]
                first = min(commands, key=lambda one: one.ts)
                groups[process, name, first.layer].append((own, kernels, first.ts == begins[process, number]))
        rows = []
        for (process, name, layer), calls in groups.items():
            if not any(kernels for _, kernels, _ in calls):
                continue
            ns = sum(time(kernels) for _, kernels, _ in calls)
            solvers = [",".join(dict.fromkeys(one.solver for one in own if one.solver)) for own, *_ in calls]
            begun = [own for own, _, begins_here in calls if begins_here]
            works = [own for own in begun if any(one.kernels for one in own)]
            work = [max((one.flop for one in own if one.flop is not None), default=None) for own in works]
            rows.append({
                "process": process, "operation": name, "layer": layer, "calls": len(begun) / self.each(process),
                "kernel_ms": self.ms(ns, process), "percent_of_kernel_time": self.percent(ns, process),
                "kernels": sum(len(kernels) for _, kernels, _ in calls) / self.each(process),
                "solver": max(solvers) or None, "gflops": rate(work, ns),
                "command": min((one.command for own, *_ in calls for one in own if one.command), default=None),
            })  # fmt: skip
        return rows

    def helpers_by_cost(self) -> Rows:
        helpers = [one for one in self.steady if one.role not in HELP_NOBODY]
        return [
            {"process": process, "role": role, "kernel": name, "calls": len(own) / self.each(process),
             "kernel_ms": self.ms(time(own), process), "percent_of_kernel_time": self.percent(time(own), process),
             "layers": len({one.layer for one in own} - {None})}
            for (process, role, name), own in by(helpers, "process", "role", "name").items()
        ]  # fmt: skip

    def unattributed_time(self) -> Rows:
        left = [one for one in self.commands if one.layer is None]
        return [
            {"name": name, "category": category, "phase": phase, "calls": len(own), "ms": time(own) / 1e6,
             "percent_of_command_time": 100 * time(own) / time(self.commands),
             "with_operation": sum(one.operation is not None for one in own)}
            for (name, category, phase), own in by(left, "name", "category", "phase").items()
        ]  # fmt: skip

    def iterations_in_order(self) -> Rows:
        drawn = [one for one in self.passes if one.kernel_ns is not None] or self.passes
        return [
            {"process": one.process, "pass": one.name, "iteration": one.iteration, "direction": one.direction,
             "ms": one.dur / 1e6, "kernel_ms": None if one.kernel_ns is None else one.kernel_ns / 1e6,
             "kernel_percent_of_span": 100 * one.kernel_ns / one.dur if one.kernel_ns is not None and one.dur else None,
             "kernels": one.kernels, "gflops": rate([one.flop], one.kernel_ns or 0)}
            for one in drawn
        ]  # fmt: skip

    def find_and_compile(self) -> Rows:
        parts: list[tuple[str, list[Ran]]] = [
            ("search", [one for one in self.operations if one.phase == "find"]),
            ("build", [one for one in self.of("api") if fnmatchcase(one.name, "cl*Program*")]),
            ("set-up", [one for one in self.commands if one.phase in ("setup", "find")]),
        ]
        return [
            {"what": what, "name": name, "calls": len(own), "ms": time(own) / 1e6}
            for what, rows in parts
            for (name,), own in by(rows, "name").items()
        ]

    def gemms(self) -> Rows:
        groups: dict[tuple[Any, ...], list[Ran]] = defaultdict(list)
        for one in self.steady:
            if one.gemm:
                sizes = [one.gemm.get(size, 1) for size in ("M", "N", "K", "batch")]
                groups[one.process, *sizes, one.name].append(one)
        rows = []
        for (process, m, n, k, batch, name), own in groups.items():
            ns = sum(one.gemm_ns or one.dur for one in own)
            layers = list(dict.fromkeys(one.layer for one in own if one.layer))
            rows.append({
                "process": process, "M": m, "N": n, "K": k, "batch": batch, "kernel": name,
                "calls": len(own) / self.each(process), "kernel_ms": self.ms(ns, process),
                "gflops": rate([one.flop for one in own], ns), "layers": ",".join(layers) or None,
            })  # fmt: skip
        return rows

    def copies(self) -> Rows:
        rows = []
        for (direction, layer), own in by(self.of("copy"), "copy_direction", "layer").items():
            known = [one for one in own if one.bytes is not None]
            moved = sum(one.bytes for one in known) if known else None
            rows.append({
                "direction": direction, "layer": layer, "calls": len(own), "bytes": moved, "ms": time(own) / 1e6,
                "gb_per_s": moved / time(known) if moved is not None and time(known) else None,
            })  # fmt: skip
        return rows

    def evidence(self) -> Rows:
        return [
            {"layer_by": layer_by or "no layer", "operation_by": operation_by or "no operation", "calls": len(own),
             "not_sure": sum(one.sure is not None for one in own), "ms": time(own) / 1e6}
            for (layer_by, operation_by), own in by(self.commands, "layer_by", "operation_by").items()
        ]  # fmt: skip

    def doubts(self) -> Rows:
        of = "name", "layer", "direction", "layer_by", "operation_by"
        doubted = by((one for one in self.commands if one.sure is not None), *of)
        return [
            dict(zip(("kernel", *of[1:]), key, strict=True)) | {"calls": len(own), "ms": time(own) / 1e6}
            for key, own in doubted.items()
        ]

    def longest_gaps(self) -> Rows:
        rows = []
        for own in by(self.commands, "track").values():
            done = None
            for one in sorted(own, key=lambda one: one.ts):
                if done is not None and one.ts > done:
                    rows.append({"gap_us": (one.ts - done) / 1e3, "from_ms": done / 1e6, "before_command": one.name,
                                 "layer": one.layer, "iteration": one.iteration})  # fmt: skip
                done = max(done or 0, one.ts + one.dur)
        return sorted(rows, key=lambda row: -row["gap_us"])[:30]

    def longest_waits(self) -> Rows:
        rows = [
            {"wait_us": (one.ts - one.queued_ns) / 1e3, "run_us": one.dur / 1e3, "name": one.name, "layer": one.layer,
             "iteration": one.iteration, "call_index": one.call_index}
            for one in self.commands
            if one.queued_ns is not None
        ]  # fmt: skip
        return sorted(rows, key=lambda row: -row["wait_us"])[:30]

    def launch_bound(self) -> Rows:
        groups = by(filter(self.counts, self.drawn_layers()), "process", "layer_index", "name", "direction")
        rows = []
        for (process, _, name, direction), own in groups.items():
            if process in self.total:
                ran = sum(one.kernel_ns for one in own)
                rows.append({
                    "process": process, "layer": name, "direction": direction, "span_ms": self.ms(time(own), process),
                    "kernel_ms": self.ms(ran, process), "idle_ms": self.ms(time(own) - ran, process),
                    "kernel_percent_of_span": 100 * ran / time(own) if time(own) else None,
                })  # fmt: skip
        return rows


ANSWERS: dict[str, Callable[[Oracle], Rows]] = {
    "slowest layers": Oracle.slowest_layers, "slowest kernels": Oracle.slowest_kernels,
    "slowest operations": Oracle.slowest_operations, "helpers by cost": Oracle.helpers_by_cost,
    "unattributed time": Oracle.unattributed_time, "iterations": Oracle.iterations_in_order,
    "find and compile": Oracle.find_and_compile, "gemms": Oracle.gemms, "copies": Oracle.copies,
    "evidence": Oracle.evidence, "doubts": Oracle.doubts, "longest gaps": Oracle.longest_gaps,
    "longest waits": Oracle.longest_waits, "launch bound": Oracle.launch_bound,
}  # fmt: skip


def differences(true: Rows, said: Rows) -> list[str]:
    """Rows that only one of both has, beyond rounding; a column that the truth does not name must be empty."""

    def words(row: Row) -> str:
        return repr(sorted((key, cell) for key, cell in row.items() if isinstance(cell, str)))

    def numbers(row: Row) -> list[tuple[str, float]]:
        return sorted((key, cell) for key, cell in row.items() if isinstance(cell, (int, float)))

    def exact(name: str) -> float:
        return next((by for begin, by in NUMBERS.items() if name.startswith(begin)), 0.0006)

    ordered = [sorted(rows, key=lambda row: (words(row), [cell for _, cell in numbers(row)])) for rows in (true, said)]
    found = [] if len(true) == len(said) else [f"{len(true)} rows, not {len(said)}"]
    for own, other in zip(*ordered, strict=False):
        same = words(own) == words(other) and [key for key, _ in numbers(own)] == [key for key, _ in numbers(other)]
        near = same and all(
            abs(one - two) <= exact(key) for (key, one), (_, two) in zip(numbers(own), numbers(other), strict=True)
        )
        if not near:
            found.append(f"expected {own}, found {other}")
    return found
