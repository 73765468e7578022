"""One axis of time for everything drawn: the clock of the busiest device, so that kernel times are exactly the
device's. A framework's own profile gets its place on that axis; the arguments of its ops and its allocators are drawn.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import Alignment, DeviceClock, LayerRun
from mio2trace.align.clocks.axis import FAR_NS, SAME
from mio2trace.align.exact import execution_of
from mio2trace.model.profile import Execution, Inputs, Profile
from mio2trace.model.tables import Codes, Pool, by_key, firsts, present, sorted_pool
from mio2trace.notes import Notes
from mio2trace.trace import NO, Column, Numbers, Slice, column

ROW = 16384
"""The values of a counter, or similar slices, that are drawn at once: some hundred kilobytes of text."""
_FEW_RATES = 20
_FAR_ABOVE = 4
_LATEST = (1 << 63) - 1


class TimeBase(msgspec.Struct, frozen=True, kw_only=True):
    """Converts device and host times to one axis in ns. If the axis is the host's own, ``clock`` is None.

    ``shift[device]``: is added to that device's times. ``host_shift_ns``: is added to converted host times. Raises
    nothing; a device that cannot be related keeps its zero. ``dated``: whether the host's clock has a date.
    """

    clock: DeviceClock | None
    shift: dict[int, int]
    on_host: bool
    dated: bool = True
    host_shift_ns: int = 0

    @property
    def constant_offset(self) -> int | None:
        """The number to subtract from every host time; None if it is not constant."""
        if self.on_host:
            return -self.host_shift_ns
        if self.clock is None or len(self.clock.pieces) > 1 or self.clock.drift_ppb:
            return None
        return self.clock.offset_ns - self.host_shift_ns

    def device(self, device: int, ns: int) -> int:
        return ns + self.shift.get(device, 0)

    def host(self, ns: int) -> int | None:
        """Return a host time on the axis; None if the clocks are not related."""
        if self.on_host:
            return ns + self.host_shift_ns
        return None if self.clock is None else self.clock.to_device(ns) + self.host_shift_ns

    def all_hosts(self, host_ns: Numbers) -> Numbers:
        """Return host times on the axis, for callers that know that the clocks are related."""
        offset, clock = self.constant_offset, self.clock
        if offset is not None or clock is None:
            return shifted(host_ns, -(offset or 0))
        moved = (clock.to_device(ns) + self.host_shift_ns for ns in host_ns.tolist())
        return np.array([min(max(ns, -_LATEST), _LATEST) for ns in moved], np.int64)

    def moved(self, by_ns: int) -> TimeBase:
        """Return the same axis with another zero."""
        return msgspec.structs.replace(
            self,
            shift={device: shift + by_ns for device, shift in self.shift.items()},
            host_shift_ns=self.host_shift_ns + by_ns,
        )

    def utc(self, ns: int) -> str | None:
        """Return the moment ``ns`` on the axis, as ISO 8601 in UTC with nanoseconds."""
        ns -= self.host_shift_ns
        if not self.dated:
            return None
        if self.on_host:
            host = ns
        elif self.clock is not None:
            # Inverse of to_device at this place; exact except for the rounding of a drift.
            host = ns + self.clock.offset_ns
            host += ns - self.clock.to_device(host)
        else:
            return None
        seconds, rest = divmod(host, 1_000_000_000)
        try:
            moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        except (ValueError, OverflowError):
            return None  # no calendar has this date
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"

    def describe(self, alignment: Alignment, origin: int) -> dict[str, Any]:
        """Return the metadata's ``clock``; ``origin``: the trace's zero on the axis."""
        result: dict[str, Any] = {}
        utc = self.utc(origin)
        if utc is not None:
            result["origin_utc"] = utc
        if self.clock is not None:
            shown = ("offset_ns", "error_ns", "drift_ppb", "method")
            result["device"] = {name: getattr(self.clock, name) for name in shown}
        log = alignment.log_clock
        if log is not None:
            result["log"] = {
                "offset_ns": log.offset_ns,
                "error_ns": max(1000, log.error_ns),
                "drift_ppb": 0,
                "method": f"whole quarters of an hour; {log.method} lie {log.residual_ns} ns apart",
            }
        return result


def time_base(alignment: Alignment, notes: Notes) -> TimeBase:
    is_timed = alignment.profile.commands.start_ns != NO
    devices, counts = np.unique(alignment.profile.devices_of_commands[is_timed], return_counts=True)
    timed = dict(zip(devices.tolist(), counts.tolist(), strict=True))
    dated = alignment.profile.clocks[0].kind == "unix"
    if not timed:
        return TimeBase(clock=None, shift={}, on_host=True, dated=dated)
    main = max(timed, key=lambda device: (timed[device], -device))
    clock = alignment.clocks.get(main)
    shift: dict[int, int] = {}
    begins: dict[int, int] = {}
    for device in timed:
        other = alignment.clocks.get(device)
        if device == main:
            shift[device] = 0
            continue
        if clock is None or other is None:
            notes.add("clock of a second device not related to the first: its kernels are placed by its own zero")
            begins = begins or first_starts(alignment.profile)
            ahead = begins[device] - begins[main]
            # They are in one trace anyway; a device without a shift is moved with the others.
            shift[device] = -ahead if abs(ahead) > FAR_NS else 0
        else:
            shift[device] = other.offset_ns - clock.offset_ns
    return TimeBase(clock=clock, shift=shift, on_host=clock == SAME, dated=dated)


def first_starts(profile: Profile) -> dict[int, int]:
    """Return the begin of the first command of each device, on its own clock."""
    starts, is_timed = profile.commands.start_ns, profile.commands.start_ns != NO
    return {
        device: int(times.min()) for device, times in by_key(starts[is_timed], profile.devices_of_commands[is_timed])
    }


def on_axis(profile: Profile, base: TimeBase) -> tuple[Numbers, Numbers]:
    """Return start and end of each activity on the axis, for reading; those without times stay as they are."""
    commands, devices = profile.commands, profile.devices_of_commands
    shifts = {device: base.device(device, 0) for device in present(devices).tolist()}
    if not any(shifts.values()):
        return commands.start_ns, commands.end_ns
    starts, ends = commands.start_ns.copy(), commands.end_ns.copy()
    for device, by in shifts.items():
        rows = commands.has_times & (devices == device)
        if by:
            starts[rows], ends[rows] = shifted(starts[rows], by), shifted(ends[rows], by)
    return starts, ends


def layer_args(run: LayerRun) -> dict[str, Any]:
    """Return the arguments that name a layer and the direction of its execution."""
    args: dict[str, Any] = {"layer": run.layer, "layer_index": run.layer_index}
    return args if run.direction is None else args | {"direction": run.direction}


def in_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Return the own arguments of rows as columns: None if a row has no value."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: column([row.get(key) for row in rows]) for key in keys}


def told(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Return the columns in which any row has a value."""
    return {key: column for key, column in columns.items() if _has_any(column)}


class _Side(Protocol):
    def bounds(self) -> Iterator[int]: ...


def reach_of(*sides: _Side) -> tuple[int, int] | None:
    """Return the first and the last time that these draw on the axis; None if they draw nothing."""
    times = [at for side in sides for at in side.bounds()]
    return (min(times), max(times)) if times else None


def _has_any(column: Column) -> bool:
    if not isinstance(column, np.ndarray):
        has = np.array([value is not None for value in column.values], bool)
        return bool(has.all() or has[column.codes].any())
    return bool((column != NO).any() if column.dtype.kind == "i" else not np.isnan(column).all())


def flags(has: NDArray[np.bool_]) -> Pool[bool | None]:
    """Return the column that is true where ``has`` is, and has nothing elsewhere."""
    return Pool((None, True), has.astype(np.int32))


def shared_slices(
    keys: Codes, items: Numbers | Codes, known: dict[int, Slice], make: Callable[[int], Slice]
) -> Pool[Slice]:
    """Return the column of the items' slices, one for each key; ``make`` is for keys that are not ``known``."""
    own = sorted_pool(keys[items])
    first = firsts(own.codes, len(own.values))
    for key, item in zip(own.values, items[first].tolist(), strict=True):
        if key not in known:
            known[key] = make(item)
    return Pool([known[key] for key in own.values], own.codes)


def shifted(times: Numbers, by: int) -> Numbers:
    """Return times with ``by`` added, at the end of what 63 bits hold if they lie beyond that; the same for 0."""
    if not by:
        return times
    if not len(times) or (int(times.min()) + by >= -_LATEST and int(times.max()) + by <= _LATEST):
        return times + by
    return np.array([min(max(time + by, -_LATEST), _LATEST) for time in times.tolist()], np.int64)


def merged(*places: Numbers) -> Numbers:
    """Return the numbers of items, counted through all of these, in the order of their places."""
    return np.argsort(np.concatenate(places), kind="stable")


def three_digits(rate: float) -> float:
    """Return a rate with three digits for people: each digit takes space a million times. Tables have all digits."""
    return float(f"{rate:.3g}")


def all_three_digits(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `three_digits` of each; no number stays none."""
    scale = np.select([rates < limit for limit in (0.01, 0.1, 1, 10, 100)], [1e5, 1e4, 1e3, 100.0, 10.0], 1.0)
    scaled = rates * scale
    whole = np.floor(scaled)
    rest = scaled - whole
    shown: NDArray[np.float64] = (whole + (rest > 0.5)) / scale
    is_usual = (rates >= 0.001) & (rates < 1000) & ~((rest > 0.499999) & (rest < 0.500001))
    for place in np.flatnonzero(~is_usual & ~np.isnan(rates)).tolist():
        shown[place] = three_digits(float(rates[place]))
    return shown


def highest_shown(rates: Sequence[float]) -> float:
    """Return the end of the axis for a counter of rates: outliers far above 95 % of the rates are drawn there.

    A viewer's axis ends at the highest value, so one kernel that the clock hardly measured would flatten all others.
    """
    if len(rates) < _FEW_RATES:
        return math.inf
    return _FAR_ABOVE * sorted(rates)[(len(rates) * 95 - 1) // 100]


def six_digits(value: float) -> float:
    """Return a size or a share with six digits for people; exact values are integers."""
    return float(f"{value:.6g}")


def short_name(name: str) -> str:
    """Return the name of a kernel's slice; never empty, never long."""
    return name[:100] or "unnamed kernel"


# -- Distinct numbers of processes and tracks in a trace ---------------------------------------------------------------


FIRST_DEVICE = 100
"""Viewers append the numbers of processes to names: hosts from 1, devices from 100."""


class Ids:
    """Gives out each number once.

    Callers ask for a meaningful one (tracks after their device). If many profiles are drawn and the number is taken,
    they get the next one after all others. ``host``, ``device``: the first free ones for the next profile.
    """

    def __init__(self) -> None:
        self.host, self.device = 1, FIRST_DEVICE
        self._taken: set[int] = set()
        self._last = 0

    def take(self, wanted: int) -> int:
        """Return ``wanted``, or if that is taken a number after all taken ones."""
        number = self._last + 1 if wanted in self._taken else wanted
        self._taken.add(number)
        self._last = max(self._last, number)
        return number


_FAR_RUN_NS = 60 * 10**9
"""Ops more than a minute before or after the profile are of another run."""


def framework_beside(
    alignment: Alignment, base: TimeBase, profiled: tuple[int, int] | None, notes: Notes
) -> Alignment | None:
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
    if base.on_host and not base.host_shift_ns:
        return profile
    replace, framework = msgspec.structs.replace, profile.framework

    def moved(records: Iterable[Any], *fields: str) -> tuple[Any, ...]:
        return tuple(
            replace(one, **{field: ns if (ns := getattr(one, field)) is None else base.host(ns) for field in fields})
            for one in records
        )

    return replace(
        profile,
        activities=moved(profile.activities, "start_ns", "end_ns"),
        ranges=moved(profile.ranges, "start_ns", "end_ns"),
        framework=replace(framework, allocated=moved(framework.allocated, "time_ns")),
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
    rows = []
    for execution in map(executions.get, numbers.tolist()):
        args: dict[str, Any] = {} if execution is None or execution.step is None else {"step": execution.step}
        if execution is not None and execution.memory is not None:
            args |= msgspec.structs.asdict(execution.memory)
        rows.append(args)
    return in_columns(rows)


def executions_of(profile: Profile) -> Mapping[int, Execution]:
    """Return position of an activity -> the execution; empty without a framework."""
    if not profile.framework.nodes:
        return {}
    told = ((position, execution_of(profile, position)) for position in range(len(profile.activities)))
    return {position: execution for position, execution in told if execution is not None}
