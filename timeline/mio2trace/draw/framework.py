"""Draw a framework's own profile: the arguments of its ops, its allocators, its place on the axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mio2trace.align import Alignment
from mio2trace.align.exact import execution_of
from mio2trace.draw.base import TimeBase, in_columns, six_digits
from mio2trace.model.profile import Execution, Inputs, Profile
from mio2trace.notes import Notes
from mio2trace.trace import Codes, Column, CounterValue, Numbers

_FAR_RUN_NS = 60 * 10**9
"""Ops more than a minute before or after the profile are of another run."""


def beside(alignment: Alignment, base: TimeBase, profiled: tuple[int, int] | None, notes: Notes) -> Alignment | None:
    """Return a framework's profile with its times on the axis of ``base``, which is that of another profile of the run.

    ``profiled``: begin and end of the other profile on the axis. None, with a note, if the clocks are not related or
    the profiles are of different runs: the place of the ops would be a guess.
    """
    profile = alignment.profile
    starts = [range_.start_ns for range_ in profile.ranges]
    starts += [activity.start_ns for activity in profile.activities if activity.start_ns is not None]
    first = base.host(min(starts)) if starts else 0
    last = base.host(max(starts)) if starts else 0
    if first is None or last is None:
        notes.add("the profile's clock is not related to the host's: the framework's ops are left out")
        return None
    if profiled is not None and (first > profiled[1] + _FAR_RUN_NS or last < profiled[0] - _FAR_RUN_NS):
        notes.add("the framework's profile is of another time: its ops are left out")
        return None
    return msgspec.structs.replace(alignment, profile=_moved(profile, base))


def _moved(profile: Profile, base: TimeBase) -> Profile:
    """Convert all times of a profile that has only the host's clock to the axis."""

    def at(ns: int) -> int:
        moved = base.host(ns)
        assert moved is not None
        return moved

    def device_time(ns: int | None) -> int | None:
        return None if ns is None else at(ns)

    if base.on_host and not base.host_shift_ns:
        return profile
    replace = msgspec.structs.replace
    framework = profile.framework
    return replace(
        profile,
        activities=tuple(
            replace(activity, start_ns=device_time(activity.start_ns), end_ns=device_time(activity.end_ns))
            for activity in profile.activities
        ),
        ranges=tuple(
            replace(range_, start_ns=at(range_.start_ns), end_ns=at(range_.end_ns)) for range_ in profile.ranges
        ),
        framework=replace(
            framework, allocated=tuple(replace(held, time_ns=at(held.time_ns)) for held in framework.allocated)
        ),
    )


class Nodes:
    """The arguments of a framework's ops: those that all executions of a node share, one object per node."""

    def __init__(self, profile: Profile, *, with_layers: bool) -> None:
        self._nodes = profile.framework.nodes
        self._with_layers = with_layers
        self._args: dict[int, dict[str, Any]] = {}

    def args(self, execution: Execution) -> dict[str, Any]:
        if execution.node in self._args:
            return self._args[execution.node]
        node = self._nodes[execution.node]
        args = self._args[execution.node] = {"node": node.name, "op": node.op}
        if node.layer and self._with_layers:
            args["layer"] = node.layer
            args["direction"] = node.direction or "forward"
        if node.output:
            args["output_shape"] = "x".join(map(str, node.output))
        args |= inputs_args(node.inputs)
        args |= node.attributes
        if node.flop is not None:
            args["flop"] = node.flop
        if node.place:
            args["place"] = node.place
        return args


def inputs_args(inputs: Inputs) -> dict[str, Any]:
    """Return shapes and types of an operator's inputs as text: only tensors, ``?`` for other inputs between them."""
    args: dict[str, Any] = {}
    shapes = [str(shape).replace(" ", "") if shape else "?" for shape in inputs.shapes]
    while shapes and shapes[-1] == "?":
        shapes.pop()
    if shapes:
        args["inputs"] = " ".join(shapes)
    types = list(dict.fromkeys(filter(None, inputs.dtypes)))
    if types:
        args["dtypes"] = " ".join(types)
    return args


def execution_columns(executions: Mapping[int, Execution], numbers: Numbers | Codes) -> dict[str, Column]:
    """Return the own arguments of the executions with these numbers, many of which may have none."""
    if not executions:
        return {}
    return in_columns([_execution_args(executions.get(number)) for number in numbers.tolist()])


def _execution_args(execution: Execution | None) -> dict[str, Any]:
    args: dict[str, Any] = {} if execution is None or execution.step is None else {"step": execution.step}
    memory = None if execution is None else execution.memory
    if memory is not None:
        args["requested_bytes"] = memory.requested_bytes
        args["peak_bytes"] = memory.peak_bytes
        args["output_bytes"] = memory.output_bytes
    return args


def executions_of(profile: Profile) -> Mapping[int, Execution]:
    """Return position of an activity -> the execution; empty without a framework."""
    if not profile.framework.nodes:
        return {}
    told = ((position, execution_of(profile, position)) for position in range(len(profile.activities)))
    return {position: execution for position, execution in told if execution is not None}


def allocators(
    profile: Profile, base: TimeBase, process: int, first: int | None, last: int | None, origin: int
) -> Iterator[CounterValue]:
    """Return the bytes that the framework's allocator of each device has handed out, within the drawn time."""
    names = {device.index: device.name for device in profile.devices}
    for held in profile.framework.allocated:
        at = base.host(held.time_ns)
        if at is not None and first is not None and last is not None and first <= at <= last:
            name = f"{names[held.device]} allocator"
            yield CounterValue(process, name, "MB", at - origin, six_digits(held.size_bytes / 1e6))
