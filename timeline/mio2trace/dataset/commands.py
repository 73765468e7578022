"""The columns of the tables kernels and copies, from an aligned profile; a few microseconds a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import sub
from typing import Any

from mio2trace.align import NONE, Alignment
from mio2trace.dataset.columns import Data, constant, named, numbers
from mio2trace.kernels import role
from mio2trace.measures import Measures
from mio2trace.measures.counters import measured
from mio2trace.measures.device_time import has_common_clock
from mio2trace.measures.launch_times import queue_ns
from mio2trace.model.columns import Column
from mio2trace.model.gemm import Gemm
from mio2trace.model.profile import Activity, Size3
from mio2trace.ops.naming import operation_name, problem_name
from mio2trace.ops.operation import Operation
from mio2trace.schema import COPIES, KERNELS, TableSchema, recorded, shown_in


def kernels_of(measures: Measures, run: str, rank: int | None) -> dict[str, Data]:
    """A row a kernel; equal to what `mio2trace kernels` prints of it (`mio2trace.reports.kernels`)."""
    positions = _positions(measures, kernels=True)
    made = _Commands(measures, positions, KERNELS, run, rank)
    made.common("kernel_ns")
    made.of_kernels()
    return made.in_order()


def copies_of(measures: Measures, run: str, rank: int | None) -> dict[str, Data]:
    """A row a copy or fill."""
    positions = _positions(measures, kernels=False)
    made = _Commands(measures, positions, COPIES, run, rank)
    made.common("copy_ns")
    made.texts("copy_direction", [activity.route or None for activity in made.activities])
    made.numbers("bytes", [activity.size_bytes for activity in made.activities])
    return made.in_order()


class _Commands:
    """Fills one column after the other: columns of a million cells are quick, rows of thirty are not."""

    def __init__(
        self, measures: Measures, positions: Sequence[int], schema: TableSchema, run: str, rank: int | None
    ) -> None:
        self._measures = measures
        self._positions = positions
        self._schema: Mapping[str, Column] = {column.name: column for column in schema.columns}
        activities = measures.alignment.profile.activities
        self.activities: list[Activity] = [activities[at] for at in positions]
        self.columns: dict[str, Data] = {}
        self.columns["run"] = constant(self._schema["run"], run, len(positions))
        self.columns["rank"] = constant(self._schema["rank"], rank, len(positions))

    def in_order(self) -> dict[str, Data]:
        return {name: self.columns[name] for name in self._schema}

    @property
    def _alignment(self) -> Alignment:
        return self._measures.alignment

    def numbers(self, name: str, values: Sequence[Any]) -> None:
        self.columns[name] = numbers(self._schema[name], values)

    def texts(self, name: str, values: Sequence[str | None]) -> None:
        self.columns[name] = named(self._schema[name], values, {text: text for text in dict.fromkeys(values)})

    def common(self, duration: str) -> None:
        """What kernels and copies have in common; ``duration`` is the column of their own time."""
        activities = self.activities
        self.numbers("call_index", [activity.number for activity in activities])
        self.texts("name", [activity.name for activity in activities])
        self.numbers("queue", [activity.queue for activity in activities])
        self.numbers("line", [activity.line or None for activity in activities])
        starts, ends = [activity.start_ns for activity in activities], [activity.end_ns for activity in activities]
        queued = [activity.queued_ns for activity in activities]
        submitted = [activity.submit_ns for activity in activities]
        self.numbers("start_ns", starts)
        self.numbers("queue_wait_ns", _spans(queued, submitted))
        self.numbers("submit_wait_ns", _spans(submitted, starts))
        self.numbers(duration, _spans(starts, ends))
        self.numbers("host_ns", [_host_ns(activity) for activity in activities])
        self._layers()

    def _layers(self) -> None:
        links, positions = self._alignment.links, self._positions
        run_of = [links.run_of[at] for at in positions]
        runs = links.runs
        self._of("layer", run_of, [run.layer for run in runs])
        self._of("layer_index", run_of, [run.layer_index for run in runs])
        self._of("direction", run_of, [run.direction for run in runs])
        pass_of = [links.pass_of[at] for at in positions]
        self._of("iteration", pass_of, [pass_.iteration for pass_ in links.passes])
        phases: list[str | None] = [*(pass_.phase for pass_ in links.passes), None]
        searches = {operation.index for operation in links.operations if operation.phase == "find"}
        self.texts(
            "phase",
            [
                "find" if links.operation_of[at] in searches else phases[pass_]
                for at, pass_ in zip(positions, pass_of, strict=True)
            ],
        )
        self.texts("layer_by", [links.layer_by[at] or None for at in positions])
        unsure = links.layer_unsure | links.operation_unsure
        self.numbers("sure", [at not in unsure for at in positions] if unsure else b"\1" * len(positions))

    def _of(self, name: str, places: Sequence[int], values: Sequence[Any]) -> None:
        """By a place in ``values``; `NONE` is none of them, and stands last."""
        values = [*values, None]
        column = self._schema[name]
        if column.kind == "text":
            self.columns[name] = named(column, places, {NONE: None} | dict(enumerate(values)))
        else:
            self.columns[name] = numbers(column, [values[place] for place in places])

    def of_kernels(self) -> None:
        """What kernels alone have: sizes, operation, role, GEMM."""
        activities, positions, facts = self.activities, self._positions, self._alignment.facts
        links = self._alignment.links
        counters = self._alignment.profile.counters
        counted = [measured(activity, counters) for activity in activities] if counters else []
        for name in ("measured_read_bytes", "measured_write_bytes", "measured_flop"):
            self.columns[name] = constant(self._schema[name], None, len(activities))
            if counted:
                self.numbers(name, [getattr(one, name.removeprefix("measured_")) for one in counted])
        for column in shown_in("data"):
            values = [recorded(activity.resources, "data").get(column.name) for activity in activities]
            (self.texts if column.kind == "text" else self.numbers)(column.name, values)
        on_one_clock = has_common_clock(self._alignment)
        self.numbers("in_queue_ns", [queue_ns(activity, on_one_clock=on_one_clock) for activity in activities])
        self._sizes("gws", [activity.grid for activity in activities])
        self._sizes("lws", [activity.workgroup for activity in activities])
        self._sizes("gwo", [activity.opencl.offset for activity in activities])
        indices = [links.operation_of[at] for at in positions]
        self.numbers("operation_index", [None if index == NONE else index for index in indices])
        operations = {index: self._measures.operation_at[index] for index in dict.fromkeys(indices) if index != NONE}
        text_of: dict[str, Callable[[Operation], str | None]] = {
            "operation": operation_name, "problem": problem_name, "solver": lambda operation: operation.solver,
        }  # fmt: skip
        for name, of in text_of.items():
            names = {index: of(operation) for index, operation in operations.items()}
            self.columns[name] = named(self._schema[name], indices, {NONE: None} | names)
        self.texts("operation_by", [links.operation_by[at] or None for at in positions])
        roles: dict[tuple[str, str], str | None] = {}
        keys = [
            (activity.name, "" if at not in facts else facts[at].role)
            for activity, at in zip(activities, positions, strict=True)
        ]
        for key, at in dict(zip(keys, positions, strict=True)).items():
            roles[key] = role(key[0], facts.get(at)) or None
        self.columns["role"] = named(self._schema["role"], keys, roles)
        gemms = [None if (fact := facts.get(at)) is None else fact.gemm for at in positions]
        number_of: dict[str, Callable[[Gemm], int | None]] = {
            "M": lambda gemm: gemm.m, "N": lambda gemm: gemm.n, "K": lambda gemm: gemm.k,
            "batch": lambda gemm: gemm.batch if gemm.batch > 1 else None, "flop": lambda gemm: gemm.flop,
        }  # fmt: skip
        for name, number in number_of.items():
            self.numbers(name, [None if gemm is None else number(gemm) for gemm in gemms])

    def _sizes(self, name: str, sizes: Sequence[Size3 | None]) -> None:
        text_of = {size: None if size is None else "x".join(map(str, size)) for size in dict.fromkeys(sizes)}
        self.columns[name] = named(self._schema[name], sizes, text_of)


def _positions(measures: Measures, *, kernels: bool) -> list[int]:
    activities = measures.alignment.profile.activities
    return [at for at, activity in enumerate(activities) if (activity.kind == "kernel") is kernels]


def _spans(starts: Sequence[int | None], ends: Sequence[int | None]) -> list[int | None]:
    """From each start to its end; None where one of them is not known."""
    try:
        return list(map(sub, ends, starts))
    except TypeError:
        pairs = zip(starts, ends, strict=True)
        return [None if start is None or end is None else end - start for start, end in pairs]


def _host_ns(activity: Activity) -> int | None:
    call = activity.call
    if call is None or call.start_ns is None or call.end_ns is None:
        return None
    return call.end_ns - call.start_ns
