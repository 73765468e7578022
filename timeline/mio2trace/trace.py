"""The trace, independent of file formats: processes, tracks, slices, counters, flows.

Times are integer nanoseconds on one clock that starts near zero. Slices of one track nest or are disjoint. A trace is
produced track by track, and the slices of a track by (start, -duration), so writers and checks need not hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

Args = Mapping[str, Any]
Numbers = NDArray[np.int64]
Codes = NDArray[np.int32]
Value = TypeVar("Value", covariant=True)

NO = -(1 << 63)
"""No number, in a column of integers."""


class Process(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A group of tracks. ``id`` is small and meaningful: viewers append it to the name. ``description``: help text."""

    id: int
    name: str
    sort: int = 0
    description: str = ""


class Track(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A row of nested slices. ``id`` is unique in the trace and differs from the id of its process.

    ``main``: a viewer that shows one track of the process should show this one. ``apart``: shown beside the main track,
    even if the group of its process is closed. ``brief``: the part of the name that distinguishes it from the other
    tracks of its process, if that is not all.
    """

    id: int
    process: int
    name: str
    sort: int = 0
    description: str = ""
    main: bool = False
    apart: bool = False
    brief: str = ""


OWN_FIRST = frozenset(("pass", "layer", "operation"))
"""Categories of slices whose own arguments (share, rate, time) interest a reader first."""
NO_ARGS: Args = MappingProxyType({})


class Slice(msgspec.Struct, frozen=True, gc=False):
    """The arguments of a slice are ``shared`` and ``args`` together; many slices may use one object ``shared``.

    Values are str, int, float, bool, or one nested mapping of them; a key has one type in the whole trace. Writers
    print a float unchanged, so it must have only the digits to be shown.
    """

    track: int
    start_ns: int
    dur_ns: int
    name: str
    category: str
    args: Args
    shared: Args = NO_ARGS


class CounterValue(msgspec.Struct, frozen=True, gc=False):
    """A value that holds from ``time_ns`` on. ``name``: of the counter; ``unit``: of its values.

    ``track``: the track whose slices it belongs to, None if there is none.
    """

    process: int
    name: str
    unit: str
    time_ns: int
    value: int | float
    track: int | None = None


class CounterValues(msgspec.Struct, frozen=True, gc=False):
    """Successive values of one counter: ``values[i]`` holds from ``times[i]`` on (`CounterValue`)."""

    process: int
    name: str
    unit: str
    times: Sequence[int]
    values: Sequence[float]
    track: int | None = None

    def each(self) -> Iterator[CounterValue]:
        """Yield each value."""
        for at, value in zip(self.times, self.values, strict=True):
            yield CounterValue(self.process, self.name, self.unit, at, value, self.track)


class Flow(msgspec.Struct, frozen=True, gc=False):
    """An arrow from the innermost slice of ``from_track`` at ``from_ns`` to the slice that starts at ``to_ns``."""

    id: int
    name: str
    from_track: int
    from_ns: int
    to_track: int
    to_ns: int


Event = Slice | CounterValue | Flow


class Coded(Protocol[Value]):
    """A column of few distinct values, of any kind: ``values[codes[i]]`` is the value of row i, None: it has none."""

    @property
    def values(self) -> Sequence[Value]: ...
    @property
    def codes(self) -> Codes: ...


class Pool(NamedTuple, Generic[Value]):
    """The plain form of `Coded`."""

    values: Sequence[Value]
    codes: Codes


Column = NDArray[np.int64] | NDArray[np.float64] | Coded[Any]
"""An argument of many slices. A slice has it unless its value is `NO`, not a number, or None."""


def column(values: Sequence[Any]) -> Column:
    """Return a column of values as Python has them."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return np.full(len(values), NO)
    try:
        if kinds == {int}:
            whole = np.fromiter((NO if value is None else value for value in values), np.int64, len(values))
            if np.count_nonzero(whole == NO) == sum(value is None for value in values):
                return whole
        elif kinds == {float}:
            return np.array(values, np.float64)
    except OverflowError:
        pass
    numbers: dict[object, int] = {}
    # True equals 1; what is no text and no number has an identity only.
    keys = ((type(one), one if isinstance(one, (str, int, float)) else id(one)) for one in values)
    codes = [numbers.setdefault(key, number) for number, key in enumerate(keys)]
    return Pool(values, np.array(codes, np.int32))


def plain(column: Column) -> Sequence[Any]:
    """Return the values of a column as Python has them, None where there is none."""
    if not isinstance(column, np.ndarray):
        return [column.values[code] for code in column.codes.tolist()]
    values: list[Any] = column.tolist()
    if column.dtype.kind == "f":
        return [None if value != value else value for value in values] if np.isnan(column).any() else values
    return [None if value == NO else value for value in values] if NO in column else values


class Columns(msgspec.Struct, frozen=True, gc=False):
    """Slices with the same kinds of arguments, in order of time.

    Slice i equals its value in ``likes`` except for its start, its duration, and its own arguments, which are added:
    the i-th value of each of ``args``.
    """

    likes: Coded[Slice]
    starts: Numbers
    durations: Numbers
    args: Mapping[str, Column] = MappingProxyType({})

    def slices(self) -> Iterator[Slice]:
        """Yield each slice."""
        keys = tuple(self.args)
        args_of = map(plain, self.args.values())
        rows = zip(plain(self.likes), self.starts.tolist(), self.durations.tolist(), *args_of, strict=True)
        for like, start, duration, *values in rows:
            args = {key: value for key, value in zip(keys, values, strict=True) if value is not None}
            args = {**like.args, **args} if like.args else args
            yield Slice(like.track, start, duration, like.name, like.category, args or NO_ARGS, like.shared)


class Slices(msgspec.Struct, frozen=True, gc=False):
    """Successive slices of a track. ``order``: the numbers of the slices of all ``columns``, counted through, by time.

    None: there is only one of ``columns``, which is in order.
    """

    track: int
    columns: Sequence[Columns]
    order: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return sum(len(one.starts) for one in self.columns)

    @property
    def start_ns(self) -> int:
        """The start of the first slice."""
        return min(int(one.starts[0]) for one in self.columns if len(one.starts))

    @property
    def latest_ns(self) -> int:
        """The start of the last slice."""
        return max(int(one.starts[-1]) for one in self.columns if len(one.starts))

    def slices(self) -> Iterator[Slice]:
        """Yield each slice."""
        if self.order is None:
            return self.columns[0].slices()
        found = [one for columns in self.columns for one in columns.slices()]
        return map(found.__getitem__, self.order.tolist())


def whole(slices: Sequence[Slice]) -> Columns:
    """Return slices that have nothing in common as columns."""
    starts, durations = [one.start_ns for one in slices], [one.dur_ns for one in slices]
    likes = Pool(slices, np.arange(len(slices), dtype=np.int32))
    return Columns(likes, np.array(starts, np.int64), np.array(durations, np.int64))


class Flows(msgspec.Struct, frozen=True, gc=False):
    """Arrows that leave one track, as columns: those of `Flow`."""

    name: str
    from_track: int
    ids: Numbers
    from_ns: Numbers
    to_tracks: Codes
    to_ns: Numbers

    def each(self) -> Iterator[Flow]:
        """Yield each arrow."""
        rows = zip(*(one.tolist() for one in (self.ids, self.from_ns, self.to_tracks, self.to_ns)), strict=True)
        for number, from_ns, to_track, to_ns in rows:
            yield Flow(number, self.name, self.from_track, from_ns, to_track, to_ns)


Part = Callable[[], Iterator[Event | Slices | Flows]]
CountersPart = Callable[[], Iterator[CounterValue | CounterValues]]


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The processes in the trace that belong to one process of a job. ``name``: distinguishes it from the others."""

    name: str
    processes: frozenset[int]


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A trace to write.

    ``parts``: each yields a part of the events, equal on every call and independent of other parts; no track is in two
    parts. ``counters``: by the position of a part, yields the counter values beside its slices, singly or in rows, each
    counter in order of time; a writer may write them anywhere. ``arrows``: yields all flows, for a writer that needs
    them before the slices; None: any part may have flows. ``without_arrows``: the parts without flows, if ``arrows`` is
    given. ``colour_by``: slices with equal values in the first of these arguments that they have get the same colour,
    if the form allows it. ``counter_descriptions``: help texts by the counter's name. ``in_view``: the times that a
    viewer should show first, if the form allows it. ``steady``: begin and end of each steady iteration by its number.
    ``groups``: the processes of each process of a job. ``left_out``: the number of kernels and copies that were not
    wanted, with ``left_out_ns`` in all.
    """

    processes: tuple[Process, ...]
    tracks: tuple[Track, ...]
    metadata: Mapping[str, Any]
    parts: tuple[Part, ...]
    counters: Mapping[int, CountersPart] = MappingProxyType({})
    arrows: tuple[Part, ...] | None = None
    without_arrows: tuple[Part, ...] | None = None
    colour_by: tuple[str, ...] = ("layer",)
    counter_descriptions: Mapping[str, str] = MappingProxyType({})
    in_view: Callable[[], tuple[int, int] | None] = lambda: None
    steady: Callable[[], Mapping[int, tuple[int, int]]] = dict
    groups: tuple[Group, ...] = ()
    left_out: int = 0
    left_out_ns: int = 0

    def events(self) -> Iterator[Event]:
        """Yield all events, part by part, with the counters among the slices."""
        for part in self.whole_parts():
            yield from part()

    def whole_parts(self) -> tuple[Callable[[], Iterator[Event]], ...]:
        """Yield the parts, event by event, with their counters among the slices of their tracks.

        A value comes after the slices that start no later and before those that start later, so that simultaneous
        events are together.
        """
        return tuple(
            partial(_among, part, self.counters[number]) if number in self.counters else partial(_each, part)
            for number, part in enumerate(self.parts)
        )


def each(events: Iterable[Event | Slices | Flows]) -> Iterator[Event]:
    """Yield events singly."""
    for event in events:
        if isinstance(event, Slices):
            yield from event.slices()
        elif isinstance(event, Flows):
            yield from event.each()
        else:
            yield event


_TOGETHER = 4096
"""The number of slices that are written at once if they come one by one."""


def in_columns(
    events: Iterable[Event | Slices | Flows | CounterValues],
) -> Iterator[Slices | Flows | CounterValues | Flow | CounterValue]:
    """Yield successive slices of one track together."""
    alone: list[Slice] = []
    for event in events:
        if alone and (not isinstance(event, Slice) or event.track != alone[0].track or len(alone) == _TOGETHER):
            yield Slices(alone[0].track, (whole(alone),))
            alone = []
        if isinstance(event, Slice):
            alone.append(event)
        else:
            yield event
    if alone:
        yield Slices(alone[0].track, (whole(alone),))


def _each(part: Part) -> Iterator[Event]:
    return each(part())


def single(values: Iterable[CounterValue | CounterValues]) -> Iterator[CounterValue]:
    """Yield values singly."""
    for value in values:
        if isinstance(value, CounterValues):
            yield from value.each()
        else:
            yield value


def by_track(values: Iterable[CounterValue | CounterValues]) -> dict[int | None, list[CounterValue]]:
    """Return the values of each track, in order of time."""
    rows: dict[int | None, list[CounterValue]] = {}
    for value in single(values):
        rows.setdefault(value.track, []).append(value)
    for held in rows.values():
        held.sort(key=lambda value: value.time_ns)
    return rows


def _among(part: Part, values: CountersPart) -> Iterator[Event]:
    rows = by_track(values())
    here: int | None = None
    coming: Iterator[CounterValue] = iter(())
    following: CounterValue | None = None
    for event in each(part()):
        if type(event) is not Slice:
            yield event
            continue
        if event.track != here:
            if following is not None:
                yield following
                yield from coming
            here = event.track
            coming = iter(rows.pop(here, ()))
            following = next(coming, None)
        while following is not None and following.time_ns < event.start_ns:
            yield following
            following = next(coming, None)
        yield event
    if following is not None:
        yield following
    yield from coming
    for held in rows.values():
        yield from held


def _has(event: Slice, key: str) -> bool:
    return key in event.args or key in event.shared


class InvariantError(AssertionError):
    """The trace breaks one of its rules: an error of the program, never of an input."""


def checked(trace: Trace, kernels: int, kernel_ns: int) -> Iterator[Event]:
    """Yield the events of ``trace`` and verify its invariants.

    Slices of a track are ordered by (start, -duration), and nest or are disjoint. No slice begins before zero. Arrows
    do not point back. A link names its evidence. There are ``kernels`` slices of category kernel or copy, including
    those left out, with ``kernel_ns`` in all. Raises `InvariantError`.
    """
    known = {track.id for track in trace.tracks}
    last: dict[int, tuple[int, int]] = {}
    open_ends: dict[int, list[int]] = {}
    count = total = 0
    for event in trace.events():
        yield event
        if isinstance(event, Slice):
            end = event.start_ns + event.dur_ns
            key = (event.start_ns, -event.dur_ns)
            if event.track not in known or event.start_ns < 0 or event.dur_ns < 0:
                raise InvariantError(f"{event.name} at {event.start_ns}: no such track, or time below zero")
            if key < last.get(event.track, (-1, 0)):
                raise InvariantError(f"{event.name} at {event.start_ns}: out of order on its track")
            last[event.track] = key
            stack = open_ends.setdefault(event.track, [])
            while stack and stack[-1] <= event.start_ns:
                stack.pop()
            if stack and stack[-1] < end:
                raise InvariantError(f"{event.name} at {event.start_ns}: overlaps its neighbour")
            stack.append(end)
            if event.category in ("kernel", "copy"):
                count += 1
                total += event.dur_ns
                for link in ("layer", "operation"):
                    if _has(event, link) != _has(event, f"{link}_by"):
                        raise InvariantError(f"{event.name} at {event.start_ns}: a {link} without its evidence")
        elif isinstance(event, Flow) and event.to_ns < event.from_ns:
            raise InvariantError(f"arrow {event.id} points back in time")
    if (count + trace.left_out, total + trace.left_out_ns) != (kernels, kernel_ns):
        out = f" and {trace.left_out} of {trace.left_out_ns} ns left out" if trace.left_out else ""
        raise InvariantError(f"{count} kernels and copies of {total} ns drawn{out}, {kernels} of {kernel_ns} ns read")
