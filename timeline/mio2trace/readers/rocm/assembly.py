"""From rows of a ROCm profiler to a `Profile`: rows are joined by their ids, numbered and sorted.

All formats have the same content: dispatches and copies with a correlation id, calls with thread and id, ranges with
thread and text. A row with invalid numbers is left out and counted (rocm-profiles.md 10).
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter, itemgetter
from typing import Any, Literal

import msgspec

from mio2trace.model.profile import (
    Activity,
    Call,
    Captured,
    Clock,
    Device,
    NumberKind,
    Process,
    Profile,
    Queue,
    Range,
    Resources,
    Size3,
    Thread,
)
from mio2trace.notes import Notes
from mio2trace.readers import base
from mio2trace.readers.rocm.counters import COUNTER_RUN, Values
from mio2trace.source import Source

Kind = Literal["kernel", "copy", "fill"]
MOST_NS = (1 << 63) - 1
_KEPT = re.compile(r"Launch|Synchronize|Malloc|Free|Memcpy|Memset|ModuleLoad|WaitEvent|Barrier|(?:Begin|End)Capture")
"""Calls that get a slice even if they launched nothing that was recorded; there are very many others."""
_MOST_DEVICES = 1 << 16
LONGEST_NAME = 1 << 14
"""The most characters of a name. A source states a name once for many rows, and each of them shows it."""
ROUTES = {
    "HOSTTODEVICE": "host to device",
    "DEVICETOHOST": "device to host",
    "DEVICETODEVICE": "device to device",
    "HOSTTOHOST": "host to host",
}


class _Row(msgspec.Struct, gc=False):
    """An activity that is being built: its call and its range are known when all rows are."""

    number: int
    kind: Kind
    name: str
    queue: int
    start_ns: int
    end_ns: int
    correlation: int | None
    grid: Size3 | None
    workgroup: Size3 | None
    resources: Resources | None
    size_bytes: int
    route: str
    line: int
    thread: int | None
    range_id: int | None
    graph_node: tuple[int, int] | None = None
    counters: tuple[float | None, ...] = ()


class Assembly:
    """One process's profile while its rows are read."""

    def __init__(
        self,
        source: int,
        clock: Clock,
        notes: Notes,
        place: str,
        pid: int | None = None,
        *,
        ids_apart: bool = False,
        numbers: NumberKind = "dispatch_id",
    ) -> None:
        """``ids_apart``: ids of ranges and correlation ids are counted separately, so that equal ids mean nothing."""
        self._numbers: NumberKind = numbers
        self._source = source
        self._ids_apart = ids_apart
        self.clock = clock
        self._notes = notes
        self._place = place
        self.process = Process(index=0, pid=_number(pid, MOST_NS))
        self._records = 0
        self._threads: dict[int | None, Thread] = {}
        self._devices: dict[Hashable, Device] = {}
        self._queues: dict[Hashable, Queue] = {}
        self._rows: list[_Row] = []
        self._calls: dict[int, Call] = {}
        self._others: list[Call] = []
        self._parent_of_call: dict[int, int] = {}
        self._ranges: list[Range] = []
        self._launched: dict[int, str] = {}
        self._shared: dict[Any, Any] = {}
        self.defects: Counter[str] = Counter()
        self.counts: Values[int] = Values(notes, place)
        """Counters of kernels, by the place that `activity` returns."""

    @property
    def empty(self) -> bool:
        return not self._rows and not self._calls and not self._ranges and not self._others

    @property
    def latest_ns(self) -> int:
        """The greatest time, 0 without any."""
        ends = [row.end_ns for row in self._rows]
        ends += [call.end_ns or 0 for call in (*self._calls.values(), *self._others)]
        return max(max(ends, default=0), max((made.end_ns for made in self._ranges), default=0))

    def later(self, by_ns: int) -> None:
        """Move all times: some sources state their zero at the end. Times that would exceed 64 bits are not moved."""
        if self.latest_ns + by_ns > MOST_NS:
            self._notes.add("base time that does not fit the times: not added", self._place)
            return
        for row in self._rows:
            row.start_ns += by_ns
            row.end_ns += by_ns
        for key, call in self._calls.items():
            self._calls[key] = _moved(call, by_ns)
        for place, call in enumerate(self._others):
            self._others[place] = _moved(call, by_ns)
        for place, one in enumerate(self._ranges):
            self._ranges[place] = Range(
                one.kind, one.text, one.thread, one.start_ns + by_ns, one.end_ns + by_ns, one.id, one.inputs,
                one.sequence,
            )  # fmt: skip

    def thread(self, tid: object, name: str = "") -> int:
        """Return the index of a thread; None is an unrecorded thread."""
        number = _number(tid, MOST_NS)
        thread = self._threads.get(number)
        if thread is None:
            thread = self._threads[number] = Thread(index=len(self._threads), tid=number, name=name)
        return thread.index

    def device(self, key: Hashable, name: str = "", number: object = None) -> int:
        """Return the index of a device. ``number``: as HIP counts them, if recorded."""
        device = self._devices.get(key)
        if device is None:
            device = self._devices[key] = Device(
                index=len(self._devices), name=name, clock=0, number=_number(number, _MOST_DEVICES)
            )
        return device.index

    def numbered_device(self, number: object) -> int:
        """Return a device of which only the number is known."""
        return self.device(number, f"device {number}" if type(number) is int else "")

    def queue(self, device: int, number: object, kind: Literal["queue", "stream"] = "stream") -> int:
        shown = _number(number, MOST_NS)
        key = device, kind, shown
        queue = self._queues.get(key)
        if queue is None:
            name = "unknown stream" if shown is None and kind == "stream" else ""
            queue = Queue(index=len(self._queues), device=device, kind=kind, number=shown, handle=str(shown), name=name)
            self._queues[key] = queue
        return queue.index

    def times(self, start: object, end: object, what: str) -> tuple[int, int] | None:
        """Return (start, end) in ns if they are numbers in order; otherwise count the row."""
        self._records += 1
        if type(start) is int and type(end) is int and 0 <= start <= end <= MOST_NS:
            return start, end
        self.defects["times-out-of-order"] += 1
        self._notes.add(f"{what} whose times are no numbers in order: not drawn", self._place)
        return None

    def activity(  # noqa: PLR0913 - keyword-only options
        self,
        kind: Kind,
        name: str,
        queue: int,
        times: tuple[int, int],
        *,
        number: object = None,
        correlation: object = None,
        grid: Size3 | None = None,
        workgroup: Size3 | None = None,
        resources: Resources | None = None,
        size_bytes: object = 0,
        route: str = "",
        line: int = 0,
        thread: int | None = None,
        range_id: int | None = None,
        graph_node: tuple[object, object] | None = None,
    ) -> int:
        """Add a command of the device and return the place for its counters. ``thread``: the launching thread.
        ``range_id``: the range that the source states."""
        same = self._shared.setdefault
        shown = _number(number, MOST_NS)
        shown = len(self._rows) if shown is None else shown
        size = _number(size_bytes, MOST_NS) or 0
        key = _number(correlation, MOST_NS)
        name = self._named(name)
        row = _Row(
            shown, kind, name, queue, *times, key, grid, workgroup, resources, size, route, line, thread, range_id
        )
        if grid is not None:
            row.grid = same(grid, grid)
        if workgroup is not None:
            row.workgroup = same(workgroup, workgroup)
        if resources is not None:
            row.resources = same(resources, resources)
        if graph_node is not None:
            graph, node = (_number(part, MOST_NS) for part in graph_node)
            if graph is not None and node is not None:
                row.graph_node = same((graph, node), (graph, node))
        self._rows.append(row)
        return len(self._rows) - 1

    def again(self, place: int, times: tuple[int, int], number: object, correlation: object) -> int:
        """Add a command that equals the one at ``place`` except for times, `activity`'s number and correlation."""
        like = self._rows[place]
        shown = _number(number, MOST_NS)
        self._rows.append(
            _Row(
                len(self._rows) if shown is None else shown, like.kind, like.name, like.queue, *times,
                _number(correlation, MOST_NS), like.grid, like.workgroup, like.resources, like.size_bytes, like.route,
                like.line, like.thread, like.range_id, like.graph_node,
            )
        )  # fmt: skip
        return len(self._rows) - 1

    def kernels_by_correlation(self) -> Counter[int | None]:
        return Counter(row.correlation for row in self._rows if row.kind == "kernel")

    def call(
        self,
        name: str,
        thread: int,
        times: tuple[int, int],
        correlation: object,
        *,
        line: int = 0,
        parent: object = None,
    ) -> None:
        """Add an API call. ``parent``: the id of the range in which it was made, if the source states it."""
        key = _number(correlation, MOST_NS)
        call = Call(self._named(name), thread, *times, line, None, key)
        if key is None or key in self._calls:
            self.defects["repeated-correlation"] += key is not None and "Launch" in name
            self._others.append(call)
        else:
            self._calls[key] = call
            if type(parent) is int and parent:
                self._parent_of_call[key] = parent

    def launches_kernel(self, correlation: int, kernel: str) -> None:
        """Note that the call of this id launches a kernel of this name, at once or into a graph."""
        self._launched[correlation] = self._named(kernel)

    def has_call(self, correlation: int | None) -> bool:
        """Return whether the call of this id was made in this process."""
        return correlation in self._calls

    def launches(self) -> Iterator[tuple[int, Call, int | None]]:
        """Yield correlation id, call, and the id of the range in which it was made, if the source states that."""
        for correlation, call in self._calls.items():
            yield correlation, call, self._parent_of_call.get(correlation)

    def range(self, made: Range) -> None:
        """Add a named range; ``parent`` and ``range_id`` refer to its id."""
        if len(made.text) > LONGEST_NAME:
            made = msgspec.structs.replace(made, text=self._named(made.text))
        self._ranges.append(made)

    def _named(self, name: str) -> str:
        """Return the same object for equal names; a name that is too long is cut."""
        shown = self._shared.get(name)
        if shown is None:
            shown = name
            if len(name) > LONGEST_NAME:
                self._notes.add(f"name of more than {LONGEST_NAME} letters cut", self._place)
                shown = self._shared.setdefault(name[:LONGEST_NAME], name[:LONGEST_NAME])
            self._shared[name] = shown
        return shown

    def finish(self, every_call: bool) -> Profile:
        """Return the profile, with activities in the order of their launches (`_as_launched`)."""
        self._ranges.sort(key=lambda made: (made.thread, made.start_ns, -made.end_ns))
        place_of = self._places_of_parents()
        for place, values in self.counts.kernels():
            self._rows[place].counters = values
        if self.counts:
            self._notes.remark(COUNTER_RUN, self._place)
        launches: set[int] = set()
        without = 0
        activities: list[Activity] = []
        threads_alone: dict[int, Call] = {}
        rows, self._rows = deque(self._rows), []
        while rows:  # each row is freed when it has become an activity
            row = rows.popleft()
            call = None if row.correlation is None else self._calls.get(row.correlation)
            parent = row.range_id
            if call is not None and row.correlation is not None:
                launches.add(row.correlation)
                parent = self._parent_of_call.get(row.correlation, parent)
            elif row.kind == "kernel":
                without += 1
                if parent is None and not self._ids_apart and row.correlation in place_of:
                    parent = row.correlation  # without API calls the id is that of the innermost range (11.2)
                if row.thread is not None:
                    call = threads_alone.setdefault(row.thread, Call("", row.thread))
            activity = Activity(
                row.number, row.kind, row.name, row.line, row.queue, None, None, row.start_ns, row.end_ns, call,
                row.grid, row.workgroup, size_bytes=row.size_bytes, route=row.route, correlation=row.correlation,
                range=None if parent is None else place_of.get(parent), resources=row.resources,
                graph_node=row.graph_node, counters=row.counters,
            )  # fmt: skip
            activities.append(activity)
        activities = _as_launched(activities)
        if without and self._calls:
            self._notes.remark("kernel whose launch was not recorded: no arrow leads to it", self._place, without)
        captured = captured_launches(self._calls, self._others, self._launched.items(), launches)
        captured_in = tuple(
            Captured(self._launched[key], capture, call.thread, call.start_ns or 0,
                     place_of.get(self._parent_of_call.get(key, -1)))
            for capture, key, call in captured
        )  # fmt: skip
        others = [call for key, call in self._calls.items() if key not in launches] + self._others
        if not every_call:
            is_kept = {name: _KEPT.search(name) is not None for name in {call.name for call in others}}
            others = [call for call in others if is_kept[call.name]]
        others.sort(key=lambda call: call.start_ns or 0)
        self._calls, self._parent_of_call, self._others, self._launched = {}, {}, [], {}
        return Profile(
            source=self._source,
            records=self._records,
            activities=tuple(activities),
            other_calls=tuple(others),
            ranges=tuple(self._ranges),
            queues=tuple(self._queues.values()),
            devices=tuple(self._devices.values()),
            threads=tuple(self._threads.values()),
            processes=(self.process,),
            clocks=(self.clock,),
            numbers=self._numbers,
            defects={name: number for name, number in sorted(self.defects.items()) if number},
            counters=self.counts.counters,
            captured=captured_in,
        )

    def _places_of_parents(self) -> dict[int, int]:
        """Return the places of ranges to which something refers, by id; there may be very many others."""
        wanted = set(self._parent_of_call.values()) | {row.range_id for row in self._rows}
        if not self._ids_apart:
            wanted |= {row.correlation for row in self._rows}
        wanted.discard(None)
        ids = map(attrgetter("id"), self._ranges)
        return {number: place for place, number in enumerate(ids) if number in wanted}


class Assemblies:
    """The profiles of all processes of a file whose clock counts ns since an unknown kind of boot time."""

    def __init__(self, source: Source, notes: Notes, *, resolution_ns: int = 1, ids_apart: bool = False) -> None:
        self._clock = Clock("opaque", resolution_ns, f"file {source.index}")
        self._source = source
        self._notes = notes
        self._ids_apart = ids_apart
        self.of: dict[object, Assembly] = {}
        """By process id, in the order of their first rows."""

    def __getitem__(self, pid: object) -> Assembly:
        assembly = self.of.get(pid)
        if assembly is None:
            assembly = self.of[pid] = Assembly(
                self._source.index, self._clock, self._notes, self._source.name, pid if type(pid) is int else None,
                ids_apart=self._ids_apart, numbers="event_index",
            )  # fmt: skip
        return assembly

    def finish(self, every_call: bool) -> list[Profile]:
        return [assembly.finish(every_call) for assembly in self.of.values() if not assembly.empty]


def _as_launched(activities: list[Activity]) -> list[Activity]:
    """Sort by launch. An activity without a recorded launch comes before the next recorded launch of its stream; if its
    stream has no later one, after the last. Without any launch, sort by time."""
    launched = sum(activity.host_start_ns is not None for activity in activities)
    if launched in (0, len(activities)):
        return sorted(activities, key=_begun)
    streams: dict[int, list[Activity]] = defaultdict(list)
    for activity in activities:
        streams[activity.queue].append(activity)
    keyed: list[tuple[int, int, int, Activity]] = []
    for stream in streams.values():
        stream.sort(key=attrgetter("start_ns"))
        last = max((one.host_start_ns for one in stream if one.host_start_ns is not None), default=None)
        until: int | None = None
        for one in reversed(stream):
            start = one.start_ns or 0
            if one.host_start_ns is not None:
                until = one.host_start_ns
                keyed.append((until, 1, start, one))
            elif until is not None:
                keyed.append((until, 0, start, one))
            else:
                keyed.append((start if last is None else last, 2, start, one))
    keyed.sort(key=itemgetter(0, 1, 2))
    return [one for *_, one in keyed]


def _begun(activity: Activity) -> tuple[int, int]:
    """Return the time of the launch if it is recorded, then the time of the execution."""
    called = activity.host_start_ns
    start = activity.start_ns or 0
    return start if called is None else called, start


def _moved(call: Call, by_ns: int) -> Call:
    start, end = call.start_ns or 0, call.end_ns or 0
    return Call(call.name, call.thread, start + by_ns, end + by_ns, call.line, call.number, call.correlation)


def _number(value: object, limit: int) -> int | None:
    """Return a number that can be written; a file may contain any number."""
    return value if type(value) is int and 0 <= value < limit else None


def kernel_name(name: object) -> str:
    """Return a kernel's name from `readers.base.kernel_name`; "" if it is no text (rocm-profiles.md 9)."""
    return base.kernel_name(name) if isinstance(name, str) else ""


def route_of(text: object) -> str:
    """Return ``MEMORY_COPY_HOST_TO_DEVICE``, ``CopyHostToDevice`` and similar words as text."""
    word = str(text).upper().replace("_", "")
    return next((route for key, route in ROUTES.items() if key in word), "")


def sizes(*dimensions: object) -> Size3 | None:
    """Return three dimensions, None if one of them is invalid."""
    if any(type(one) is not int or not 0 <= one < 1 << 32 for one in dimensions) or len(dimensions) != 3:
        return None
    x, y, z = dimensions
    assert isinstance(x, int) and isinstance(y, int) and isinstance(z, int)
    return x, max(y, 1), max(z, 1)


# -- Which launches went into a graph: those in a stream capture that ran nothing (torch-graphs.md 1) ------------------
#
# A capture is from ``hipStreamBeginCapture`` to the next ``hipStreamEndCapture`` of the process, whatever the thread.
# Without such calls, filtered out perhaps, all launches that ran nothing are one capture if the process launched a
# graph.


def captured_launches(
    calls: Mapping[int, Call], others: Sequence[Call], launched: Iterable[tuple[int, str]], ran: AbstractSet[int]
) -> list[tuple[int, int, Call]]:
    """Yield (number of the capture, id of the call, the call), in order of time. ``launched``: ids with a kernel's
    name. ``ran``: ids of calls that ran something."""
    waiting = [(call.start_ns, key) for key, _ in launched if key not in ran and (call := calls.get(key)) is not None]
    if not waiting:
        return []
    every = (*calls.values(), *others)
    begun = sorted(call.start_ns or 0 for call in every if "StreamBeginCapture" in call.name)
    ended = sorted(call.start_ns or 0 for call in every if "StreamEndCapture" in call.name)
    if not begun and not any("GraphLaunch" in call.name for call in every):
        return []
    found = []
    for start, key in sorted((start or 0, key) for start, key in waiting):
        capture = bisect_right(begun, start) - 1
        if begun:
            if capture < 0:
                continue
            end = bisect_right(ended, begun[capture])
            if end < len(ended) and ended[end] < start:
                continue
        found.append((max(capture, 0), key, calls[key]))
    return found


# -- What a profiler records of a process's place in its job: the rank, and the machine that its clock is of -----------
#
# Of an environment nothing is kept but the rank, of a machine's id nothing but a hash that is only compared.

_RANKS = (
    "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "FLUX_TASK_RANK", "SLURM_PROCID",
)  # fmt: skip
"""Set by PyTorch, Open MPI, PMIx, MPICH, MVAPICH2, Flux and Slurm; the one nearest to the program comes first."""
_Environment = msgspec.defstruct("_Environment", [(name, object, None) for name in _RANKS], gc=False)


def rank_in(environment: object) -> int | None:
    """Return the rank in an environment, which is a JSON object as text."""
    if not isinstance(environment, str):
        return None
    try:
        variables = msgspec.json.decode(environment, type=_Environment)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    values = (str(value) for name in _RANKS if (value := getattr(variables, name)) is not None)
    return next((int(text) for text in values if text.isascii() and text.isdigit() and len(text) < 8), None)


def scope_of(machine: object) -> str:
    """Return a machine's id as a hash for comparisons; empty without an id."""
    if not isinstance(machine, str) or len(machine.strip("0-")) < 8:
        return ""
    return hashlib.blake2b(machine.encode(errors="replace"), digest_size=8, person=b"mio2trace").hexdigest()
