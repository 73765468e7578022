"""From rows of a ROCm profiler to a `Profile`: rows are joined by their ids, numbered and sorted.

All formats have the same content: dispatches and copies with a correlation id, calls with thread and id, ranges with
thread and text. A row with invalid numbers is left out and counted (rocm-profiles.md 10).
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.model import tables
from mio2trace.model.profile import (
    Call,
    Captured,
    Clock,
    Device,
    Inputs,
    NumberKind,
    Process,
    Profile,
    Queue,
    Range,
    Resources,
    Size3,
    Thread,
)
from mio2trace.model.profile import (
    Counter as HardwareCounter,
)
from mio2trace.model.tables import KERNEL, KINDS, NO, Activities, Calls, Codes, Growing, Index, Numbers, Pool
from mio2trace.notes import Notes
from mio2trace.patterns import late
from mio2trace.source import Source

Kind = Literal["kernel", "copy", "fill"]
MOST_NS = (1 << 63) - 1
_KEPT = late(r"Launch|Synchronize|Malloc|Free|Memcpy|Memset|ModuleLoad|WaitEvent|Barrier|(?:Begin|End)Capture")
"""Calls that get a slice even if they launched nothing that was recorded; there are very many others."""
_MOST_DEVICES = 1 << 16
_EMITTED = late(
    r", (?:seq = (\d{1,18})(, op_id = \d{1,18})?|op_id = \d{1,18})(?:, sizes = (\[[\[\], \d]*\]))?"
    r"(?:, input_op_ids = \[[\[\](), \d-]*\])?$",
    re.ASCII,
)
"""What PyTorch's `emit_nvtx` (ROCTx on AMD GPUs) adds to the name of a range: numbers that never repeat, sizes."""
_OP = late(r"autograd::engine::evaluate_function: .*|[a-z_]\w*(?:::\w+)+|\w+Backward\d*", re.ASCII | re.DOTALL)
LONGEST_NAME = 1 << 14
"""The most characters of a name. A source states a name once for many rows, and each of them shows it."""
ROUTES = {
    "HOSTTODEVICE": "host to device",
    "DEVICETOHOST": "device to host",
    "DEVICETODEVICE": "device to device",
    "HOSTTOHOST": "host to host",
}


_ROWS = ("number", "start_ns", "end_ns", "correlation", "form", "line", "size_bytes", "range_id")
_CALLS = ("name", "thread", "start_ns", "end_ns", "correlation", "line", "parent")
"""Columns of what is under way. The call and the range of a command are known when all rows are."""


TWICE = "row that is there twice, with one id and equal times: counted once"


class _Form(msgspec.Struct, frozen=True):
    """Common fields of many commands."""

    kind: Kind
    name: str
    queue: int
    grid: Size3 | None
    workgroup: Size3 | None
    resources: Resources | None
    route: str
    thread: int | None
    graph_node: tuple[int, int] | None


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
        self.process = Process(index=0, pid=whole(pid, MOST_NS))
        self._records = 0
        self._is_numbered = False
        """Whether rows that were added one by one state the number of their kernel."""
        self.is_of_table = False
        """Whether the rows are of a CSV table, which may have been appended to itself."""
        self._threads: dict[int | None, Thread] = {}
        self._devices: dict[Hashable, Device] = {}
        self._queues: dict[Hashable, Queue] = {}
        self._rows = Growing(_ROWS)
        self._forms: dict[_Form, int] = {}
        self._calls = Growing(_CALLS)
        self._call_names: dict[str, int] = {}
        self._ranges: list[Range] = []
        self._launched: dict[int, str] = {}
        self._known_calls: tuple[int, frozenset[int]] = 0, frozenset()
        self._shared: dict[Any, Any] = {}
        self.defects: Counter[str] = Counter()
        self.counts = Values(notes, place)
        """Counters of kernels, by the place that `activity` returns."""

    @property
    def empty(self) -> bool:
        return not (len(self._rows) or len(self._calls) or self._ranges)

    @property
    def latest_ns(self) -> int:
        """The greatest time of all, 0 where there is none."""
        ends = [max((made.end_ns for made in self._ranges), default=0)]
        return max(ends + [int(part["end_ns"].max()) for part in (self._rows, self._calls) if len(part)])

    def later(self, by_ns: int) -> None:
        """Move all times, for sources that state their zero at the end. If the last time would need more than 64 bits,
        no time is moved."""
        if self.latest_ns + by_ns > MOST_NS:
            self._notes.add("base time that does not fit the times: not added", self._place)
            return
        for part in (self._rows, self._calls):
            part.shift(by_ns, "start_ns", "end_ns")
        for place, one in enumerate(self._ranges):
            self._ranges[place] = Range(
                one.kind, one.text, one.thread, one.start_ns + by_ns, one.end_ns + by_ns, one.id, one.inputs,
                one.sequence,
            )  # fmt: skip

    def thread(self, tid: object, name: str = "") -> int:
        """Return the index of a thread; None is an unrecorded thread."""
        number = whole(tid, MOST_NS)
        thread = self._threads.get(number)
        if thread is None:
            thread = self._threads[number] = Thread(index=len(self._threads), tid=number, name=name)
        return thread.index

    def device(self, key: Hashable, name: str = "", unit: int | None = None, number: object = None) -> int:
        """Return the index of a device. ``unit``: its number in the machine, ``number``: as HIP counts, if recorded."""
        device = self._devices.get(key)
        if device is None:
            device = self._devices[key] = Device(
                index=len(self._devices), name=name, clock=0, number=whole(number, _MOST_DEVICES), unit=unit
            )
        return device.index

    def numbered_device(self, number: object) -> int:
        """Return a device of which only the number is known."""
        return self.device(number, f"device {number}" if type(number) is int else "")

    def queue(self, device: int, number: object, kind: Literal["queue", "stream"] = "stream") -> int:
        shown = whole(number, MOST_NS)
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
        self._notes.add(f"{what} whose times are no numbers in order: left out", self._place)
        return None

    def have_times(self, start_ns: Numbers, end_ns: Numbers, what: str) -> NDArray[np.bool_]:
        """As `times` for many rows: which of them have numbers in order; the others are counted."""
        self._records += len(start_ns)
        are_times = (start_ns >= 0) & (start_ns <= end_ns)
        wrong = len(start_ns) - int(are_times.sum())
        if wrong:
            self.defects["times-out-of-order"] += wrong
            self._notes.add(f"{what} whose times are no numbers in order: left out", self._place, wrong)
        return are_times

    def form(  # noqa: PLR0913 - keyword-only options
        self,
        kind: Kind,
        name: str,
        queue: int,
        *,
        grid: Size3 | None = None,
        workgroup: Size3 | None = None,
        resources: Resources | None = None,
        route: str = "",
        thread: int | None = None,
        graph_node: tuple[object, object] | None = None,
    ) -> int:
        """The number of what many commands have in common. ``thread`` is who launched them; ``graph_node`` the graph
        that replayed them and its node."""
        node = None
        if graph_node is not None:
            numbers = [whole(part, MOST_NS) for part in graph_node]
            node = None if None in numbers else (numbers[0], numbers[1])
        form = _Form(kind, self._named(name), queue, grid, workgroup, resources, route, thread, node)  # type: ignore[arg-type]
        return self._forms.setdefault(form, len(self._forms))

    def activity(  # noqa: PLR0913 - keyword-only options
        self,
        kind: Kind,
        name: str,
        queue: int,
        times: tuple[int, int],
        *,
        number: object = None,
        correlation: object = None,
        size_bytes: object = 0,
        line: int = 0,
        range_id: int | None = None,
        **common: Any,
    ) -> int:
        """A command of the device; ``range_id`` is the id of the range that launched it, if the source states that;
        ``common`` are more arguments of `form`. The place is for its counters."""
        shown, key = whole(number, MOST_NS), whole(correlation, MOST_NS)
        place = len(self._rows)
        self._is_numbered |= shown is not None
        self._rows.add((
            place if shown is None else shown, *times, NO if key is None else key,
            self.form(kind, name, queue, **common), line, whole(size_bytes, MOST_NS) or 0, _id(range_id),
        ))  # fmt: skip
        return place

    def activities(
        self, form: Numbers, start_ns: Numbers, end_ns: Numbers, *, number: Numbers | None, correlation: Numbers,
        size_bytes: Numbers | int = 0,
    ) -> int:  # fmt: skip
        """As `activity` for many rows: the place of the first."""
        first, count = len(self._rows), len(form)
        place = np.arange(first, first + count)
        shown = place if number is None else np.where(number >= 0, number, place)
        self._rows.extend(
            count, number=shown, start_ns=start_ns, end_ns=end_ns, correlation=_keys(correlation), form=form, line=0,
            size_bytes=np.maximum(size_bytes, 0), range_id=NO,
        )  # fmt: skip
        return first

    def kernels_by_correlation(self) -> Counter[int]:
        """How many kernels have each correlation id."""
        kinds = np.array([form.kind == "kernel" for form in self._forms], bool)
        return Counter(self._rows["correlation"][kinds[self._rows["form"]]].tolist())

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
        key = whole(correlation, MOST_NS)
        named = self.name_of_calls(name)
        self._calls.add((named, thread, *times, NO if key is None else key, line, _id(parent or None)))

    def name_of_calls(self, name: str) -> int:
        """The number of a name that calls have."""
        return self._call_names.setdefault(self._named(name), len(self._call_names))

    def calls(
        self, name: Numbers, thread: Numbers, start_ns: Numbers, end_ns: Numbers, correlation: Numbers, parent: Numbers
    ) -> None:
        """As `call` for many rows. ``name``: numbers from `name_of_calls`."""
        self._calls.extend(
            len(name), name=name, thread=thread, start_ns=start_ns, end_ns=end_ns, correlation=_keys(correlation),
            line=0, parent=np.where(parent == 0, NO, parent),
        )  # fmt: skip

    def launches_kernel(self, correlation: int, kernel: str) -> None:
        """Note that the call of this id launches a kernel of this name, at once or into a graph."""
        self._launched[correlation] = self._named(kernel)

    def has_call(self, correlation: int | None) -> bool:
        """Whether the call of this id was made in this process."""
        if self._known_calls[0] != len(self._calls):
            self._known_calls = len(self._calls), frozenset(self._calls["correlation"].tolist())
        return correlation in self._known_calls[1]

    def launches(self) -> Iterator[tuple[int, Call, int | None]]:
        """Correlation id, call, and the id of the range that it was made in, where the source states that."""
        names, seen = [*self._call_names], {NO}
        for name, thread, start, end, key, line, parent in zip(
            *(self._calls[field].tolist() for field in _CALLS), strict=True
        ):
            if key not in seen:
                seen.add(key)
                yield key, Call(names[name], thread, start, end, line, None, key), None if parent == NO else parent

    def range(self, made: Range) -> None:
        """Add a named range; ``parent`` and ``range_id`` refer to its id."""
        if made.kind == "range" and (emitted := _EMITTED.search(made.text)) is not None:
            made = _op(made, self._named(made.text[: emitted.start()]), *emitted.groups())
        if len(made.text) > LONGEST_NAME:
            made = msgspec.structs.replace(made, text=self._named(made.text))
        if abs(made.id or 0) > MOST_NS or abs(made.sequence or 0) > MOST_NS:
            made = msgspec.structs.replace(made, id=_known(made.id), sequence=_known(made.sequence))
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
        ranges = len(self._ranges)
        if self.is_of_table:
            self._ranges = [*_once(self._ranges)]
        if self.counts:
            self._notes.remark(COUNTER_RUN, self._place)
        rows, calls = self._rows, self._calls
        keys = calls["correlation"]
        by_key = Index(keys)
        repeated = np.flatnonzero(keys != NO)
        repeated = repeated[by_key.rows(keys[repeated]) != repeated]
        firsts = by_key.rows(keys[repeated])
        is_same = np.full(len(repeated), self.is_of_table)
        for field in ("name", "thread", "start_ns", "end_ns"):
            is_same &= calls[field][repeated] == calls[field][firsts]
        same_calls, repeated = repeated[is_same], repeated[~is_same]
        launching_names = np.array(["Launch" in name for name in self._call_names], bool)
        self.defects["repeated-correlation"] += int(launching_names[calls["name"][repeated]].sum())

        form, correlation, start = rows["form"], rows["correlation"], rows["start_ns"]
        forms = [*self._forms]
        kind = np.array([KINDS.index(one.kind) for one in forms], np.int8)[form]
        twice = self._twice(kind)
        if again := len(same_calls) + int(twice.sum()) + ranges - len(self._ranges):
            self._notes.remark(TWICE, self._place, again)
        call = by_key.rows(correlation)
        alone = (kind == KERNEL) & (call < 0) & ~twice
        if alone.any() and len(by_key):
            what = "kernel whose launch was not recorded: no arrow leads to it"
            self._notes.remark(what, self._place, int(alone.sum()))
        parent = np.append(calls["parent"], NO)[call]
        parent = np.where(parent == NO, rows["range_id"], parent)
        if not self._ids_apart:  # without API calls the id is that of the innermost range (11.2)
            parent = np.where(alone & (parent == NO), correlation, parent)

        launched = tables.present(call[call >= 0])
        thread = np.array([-1 if one.thread is None else one.thread for one in forms], np.int64)[form]
        alone &= thread >= 0  # of kernels without a call the thread may be known
        threads = tables.present(thread[alone])
        call = np.where(call >= 0, np.searchsorted(launched, call), -1)
        call[alone] = len(launched) + np.searchsorted(threads, thread[alone])
        del thread, alone  # each column of ten million commands takes 80 MB
        every = self._all_calls(threads)
        with_activities = every.take(np.append(launched, np.arange(len(keys), len(every))))

        queue = np.array([one.queue for one in forms], np.int32)[form]
        order: Any = _as_launched(np.append(with_activities.start_ns, NO)[call], start, queue)
        places = len(order)
        if twice.any():
            order = order[~twice[order]]
        count = len(order)
        if np.array_equal(correlation, with_activities.correlation):
            correlation = with_activities.correlation  # nearly always; then the same column serves both
        del start
        if count == places and np.array_equal(order, np.arange(count)):
            order = slice(None)  # nearly always; then no column is copied
        form = form[order]
        pools = {
            field: Pool.of(map(attrgetter(field), forms)).take(form)
            for field in ("name", "grid", "workgroup", "resources", "route", "graph_node")
        }
        captured = self._captured(by_key, every, correlation)
        columns = {field: rows.pop(field)[order] for field in ("number", "line", "start_ns", "end_ns", "size_bytes")}
        activities: Activities = Activities.of_columns(
            count, **columns, **pools, kind=kind[order], queue=queue[order], correlation=correlation[order],
            call=call[order].astype(np.int32), calls=with_activities, range=self._places(parent[order]),
            counters=self._counters(places, order),
        )  # fmt: skip
        others = np.ones(len(keys), bool)
        others[launched] = False
        others[same_calls] = False
        if not every_call:
            others &= every.name.where(lambda name: _KEPT.search(name) is not None)[: len(keys)]
        first = by_key.rows(keys) == np.arange(len(keys))
        in_order = np.concatenate([np.flatnonzero(others & first), np.flatnonzero(others & ~first)])
        in_order = in_order[np.argsort(every.start_ns[in_order], kind="stable")]
        return Profile(
            source=self._source,
            records=self._records,
            activities=activities,
            other_calls=every.take(in_order),
            ranges=tuple(self._ranges),
            queues=tuple(self._queues.values()),
            devices=tuple(self._devices.values()),
            threads=tuple(self._threads.values()),
            processes=(self.process,),
            clocks=(self.clock,),
            numbers=self._numbers,
            defects={name: number for name, number in sorted(self.defects.items()) if number},
            counters=self.counts.counters,
            captured=captured,
        )

    def _twice(self, kind: NDArray[np.int8]) -> NDArray[np.bool_]:
        """Which rows of a table repeat an earlier one of the same id: kernels by their number, others by their
        correlation id, with equal times and all else equal."""
        rows = self._rows
        twice = np.zeros(len(kind), bool)
        if not self.is_of_table:
            return twice
        has_number = (kind == KERNEL) & self._is_numbered
        for which, field in ((has_number, "number"), (~has_number & (rows["correlation"] != NO), "correlation")):
            places = np.flatnonzero(which)
            if (np.diff(rows[field][places]) > 0).all():
                continue  # nearly always: a profiler counts them
            fields = field, "start_ns", "end_ns", "size_bytes", "form", "correlation"
            first, code = tables.distinct(
                tables.combined(*(tables.sorted_pool(rows[name][places]).codes for name in fields))
            )
            twice[places] = first[code] != np.arange(len(places))
        return twice

    def _all_calls(self, threads: Numbers) -> Calls:
        """All calls, then one without name and times for each of ``threads``."""
        calls, more = self._calls, len(threads)
        unnamed = self.name_of_calls("") if more else 0
        calls.extend(more, name=unnamed, thread=threads, start_ns=NO, end_ns=NO, correlation=NO, line=0, parent=NO)
        names = calls.pop("name").astype(np.int32)
        every: Calls = Calls.of_columns(
            len(names),
            name=Pool([*self._call_names], names),
            **{field: calls.pop(field) for field in ("thread", "line", "start_ns", "end_ns", "correlation")},
        )
        return every

    def _places(self, ids: Numbers) -> Codes:
        """The places of the ranges with these ids; -1 where there is none."""
        if (ids == NO).all():
            return np.full(len(ids), -1, np.int32)
        of_ranges = tables.numbers(map(attrgetter("id"), self._ranges), len(self._ranges))
        return Index(of_ranges, last=True).rows(ids).astype(np.int32)

    def _counters(self, count: int, order: Any) -> Pool[tuple[float | None, ...]]:
        values: list[tuple[float | None, ...]] = [()]
        codes = np.zeros(count, np.int32)
        for place, told in self.counts.kernels():
            codes[place] = len(values)
            values.append(told)
        return Pool(values, codes[order])

    # -- Which launches went into a graph: those in a stream capture that ran nothing (torch-graphs.md 1) --------------
    #
    # A capture is from ``hipStreamBeginCapture`` to the next ``hipStreamEndCapture`` of the process, whatever the
    # thread. Without such calls, filtered out perhaps, all launches that ran nothing are one capture if the process
    # launched a graph.

    def _captured(self, by_key: Index, every: Calls, ran: Numbers) -> tuple[Captured, ...]:
        """In order of time; ``ran``: ids of calls that ran something."""
        kernel_of = self._launched
        if not kernel_of:
            return ()
        keys = np.setdiff1d(np.fromiter(kernel_of, np.int64, len(kernel_of)), ran)
        row = by_key.rows(keys)
        keys, row = keys[row >= 0], row[row >= 0]
        begun, ended, launched = (
            _starts(every, word) for word in ("StreamBeginCapture", "StreamEndCapture", "GraphLaunch")
        )
        if not len(row) or not (begun or ended or launched):
            return ()
        order = np.lexsort((keys, every.start_ns[row]))
        place = self._places(self._calls["parent"][row])
        found = []
        for at in order.tolist():
            call, key = every[int(row[at])], int(keys[at])
            start = call.start_ns or 0
            capture = bisect_right(begun, start) - 1
            if begun:
                if capture < 0:
                    continue
                end = bisect_right(ended, begun[capture])
                if end < len(ended) and ended[end] < start:
                    continue
            within = int(place[at])
            found.append(Captured(kernel_of[key], max(capture, 0), call.thread, start, None if within < 0 else within))
        return tuple(found)


def _starts(calls: Calls, word: str) -> list[int]:
    """When the calls whose names have the word began, in order."""
    starts: list[int] = np.sort(calls.start_ns[calls.name.where(lambda name: word in name)]).tolist()
    return starts


class Assemblies(dict[Any, Assembly]):
    """The profiles of the processes of a file, in the order of their first rows. ``make``: makes that of a key."""

    def __init__(self, make: Callable[[Any], Assembly]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Any) -> Assembly:
        assembly = self[key] = self._make(key)
        return assembly

    def finish(self, every_call: bool) -> list[Profile]:
        return [assembly.finish(every_call) for assembly in self.values() if not assembly.empty]


def by_pid(source: Source, notes: Notes, *, resolution_ns: int = 1, ids_apart: bool = False) -> Assemblies:
    """Return profiles by process id, of a file whose clock counts ns since an unknown kind of boot time."""
    clock = Clock("opaque", resolution_ns, f"file {source.index}")
    return Assemblies(
        lambda pid: Assembly(
            source.index, clock, notes, source.name, integer(pid), ids_apart=ids_apart, numbers="event_index"
        )
    )


def _as_launched(host_ns: Numbers, start_ns: Numbers, queue: NDArray[Any]) -> Numbers:
    """The order of the launches. An activity whose launch is not recorded was launched before the next recorded launch
    of its stream; if its stream has no later one, after the last. Without any launch, in the order of time."""
    has_launch = host_ns != NO
    if has_launch.all() or not has_launch.any():
        return np.lexsort((start_ns, np.where(has_launch, host_ns, start_ns)))
    begun, rank = host_ns.copy(), np.ones(len(host_ns), np.int8)
    order = []
    for _, rows in tables.by_key(np.arange(len(queue)), queue):
        rows = rows[np.argsort(start_ns[rows], kind="stable")][::-1]
        order.append(rows)
        known = has_launch[rows]
        after = np.maximum.accumulate(np.where(known, np.arange(len(rows)), -1))  # rows go back in time
        until = host_ns[rows][after]
        last = host_ns[rows].max()
        begun[rows] = np.where(after >= 0, until, start_ns[rows] if last == NO else last)
        rank[rows] = np.where(known, 1, np.where(after >= 0, 0, 2))
    turned = np.concatenate(order)
    found: Numbers = turned[np.lexsort((start_ns[turned], rank[turned], begun[turned]))]
    return found


def _keys(values: Numbers) -> Numbers:
    """Correlation ids: what is negative is none."""
    return np.where(values >= 0, values, NO)


def _id(value: object) -> int:
    return value if type(value) is int and abs(value) <= MOST_NS else NO


def _op(made: Range, name: str, sequence: str | None, op_id: str | None, sizes: str | None) -> Range:
    """Return a range that PyTorch's `emit_nvtx` pushed: an op, unless the program named it. A program may also write a
    length of its own: ``decode, seq = 128``."""
    if (sequence is None or not (op_id or sizes)) and _OP.fullmatch(name) is None:
        return made if sequence else msgspec.structs.replace(made, text=name)
    shapes: tuple[tuple[int, ...], ...] = ()
    try:
        shapes = msgspec.json.decode(sizes or "[]", type=tuple[tuple[int, ...], ...])
    except msgspec.DecodeError:
        pass
    number = None if sequence is None else int(sequence)
    return msgspec.structs.replace(
        made, kind="operator", text=name, sequence=number, inputs=Inputs(shapes=shapes) if shapes else None
    )


def _known(value: int | None) -> int | None:
    return value if value is None or abs(value) <= MOST_NS else None


def _once(ranges: Sequence[Range]) -> Iterator[Range]:
    """Yield the ranges of a table without those that repeat an earlier one of the same id. In their order equal ranges
    need not be neighbours: another one may have their times."""
    same: set[Range] = set()
    times: tuple[int, int, int] | None = None
    for one in ranges:
        if times != (one.thread, one.start_ns, one.end_ns):
            times = one.thread, one.start_ns, one.end_ns
            same.clear()
        if one.id is None or one not in same:
            same.add(one)
            yield one


def whole(value: object, limit: int = 1 << 62) -> int | None:
    """Return a number of bytes, registers and similar, or an id; a file may contain any value."""
    return value if type(value) is int and 0 <= value < limit else None


def integer(value: object) -> int | None:
    return value if type(value) is int else None


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


_IN_ITEMS = frozenset(("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel"))
_IN_BLOCKS = frozenset((
    *(f"{api}{call}" for api in ("hip", "cuda") for call in (
        "LaunchKernel", "LaunchKernelExC", "ExtLaunchKernel", "LaunchCooperativeKernel",
    )),
    *("hipModuleLaunchKernel", "hipModuleLaunchCooperativeKernel", "hipDrvLaunchKernelEx", "hipLaunchByPtr"),
    *("hipLaunchCooperativeKernelMultiDevice", "hipExtLaunchMultiKernelMultiDevice", "cuLaunchKernel"),
    "cuLaunchKernelEx",
))  # fmt: skip
COUNTED = _IN_ITEMS | _IN_BLOCKS
"""Launching calls of which it is known whether their grid counts work-items or blocks (rocm-profiles.md 9)."""


def work_items(call: str, grid: Size3 | None, block: Size3 | None) -> Size3 | None:
    """Return a launch's grid in work-items; None if it is not known what the call counts."""
    if grid is None or call in _IN_ITEMS:
        return grid and sizes(*grid)
    if call in _IN_BLOCKS and block is not None:
        return sizes(*(blocks * items for blocks, items in zip(grid, block, strict=True)))
    return None


# -- What a profiler records of a process's place in its job: the rank, and the machine that its clock is of -----------
#
# Only the rank is kept of an environment, and only a hash of a machine's id, which is only compared.

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


def scope_of(machine: object, host: object = None) -> str:
    """Return a machine's id as a hash for comparisons; empty without an id. ``host``: the machine's name, if recorded.
    Nodes that start from one image may have one id, but not one name."""
    if not isinstance(machine, str) or len(machine.strip("0-")) < 8:
        return ""
    told = f"{machine}\0{host}" if isinstance(host, str) and host else machine
    return hashlib.blake2b(told.encode(errors="replace"), digest_size=8, person=b"mio2trace").hexdigest()


# -- Hardware counters of kernels: one value per kernel and counter, from one row per hardware instance ----------------
#
# A base counter counts events on each instance (XCC, shader engine, channel). The values of a dispatch are added up, as
# AMD's view ``counters_collection`` does (rocpd-versions.md 6). A derived counter may be a percentage, a mean or a
# maximum, so it has a value only if the dispatch has one row. A constant has the value that all its rows agree on.

Sort = Literal["base", "derived", "constant"]
_SUMMED = ("_sum", "FETCH_SIZE", "WRITE_SIZE")
"""Endings of the names of derived counters that count: sums over instances, kilobytes."""
MOST = 1 << 10
"""The most counters of one process; a run collects some dozens."""
LONGEST_COUNTER = 200
"""The most letters of a counter's name."""
_MOST_VALUE = 1e18
COUNTER_RUN = (
    "run that collected hardware counters: its kernels ran one at a time and slower, so its times and gaps are not"
    " those of a plain run"
)
NOT_ADDED = "counter with several values per kernel that cannot be added up (a percentage, a mean): left out"
NO_NUMBER = "value of a counter that is no number: left out"
VALUE = late(r"[+-]?[0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][+-]?[0-9]{1,3})?")
"""A value in a table."""
_BASE = late(r"(?:SQC?|TA|TD|TC[APC]|GRBM|SPI|CP[CFG]|GL[12][AC]|G?CEA|SX|GDS|CHC)_[A-Z0-9_\[\]]+")
"""The names of counters of a hardware block."""


def sort_by_name(name: str) -> Sort:
    """Return `sort_of` for a source that states only the name."""
    return "base" if _BASE.fullmatch(name) else sort_of(name, True, False)


def sort_of(name: str, is_derived: object, is_constant: object) -> Sort:
    """Return whether values of a counter can be added up."""
    if is_constant:
        return "constant"
    return "derived" if is_derived and not name.endswith(_SUMMED) else "base"


class Values:
    """The rows of counters of one process, by kernel."""

    def __init__(self, notes: Notes, place: str) -> None:
        self._notes = notes
        self._place = place
        self._number: dict[tuple[str, str, Sort], int] = {}
        self._values: dict[int, dict[int, float | None]] = {}

    def add(self, key: int, name: str, unit: str, sort: Sort, value: object) -> None:
        """Add one row: the value of a counter on one instance."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST_VALUE:
            self._notes.add(NO_NUMBER, self._place)
            return
        if not name:
            self._notes.add("counter without a name: left out", self._place)
            return
        identity = name, unit, sort
        number = self._number.get(identity)
        if number is None:
            if len(self._number) >= MOST:
                self._notes.add(f"counter beyond the first {MOST}: left out", self._place)
                return
            number = self._number[identity] = len(self._number)
        of_kernel = self._values.setdefault(key, {})
        if number not in of_kernel:
            of_kernel[number] = float(value)
            return
        before = of_kernel[number]
        if sort == "base" and before is not None:
            of_kernel[number] = before + value
        elif sort == "derived" or before != value:
            of_kernel[number] = None
            self._notes.add(NOT_ADDED, self._place, before is not None)

    def __bool__(self) -> bool:
        return bool(self._values)

    def known(self) -> Iterator[tuple[int, str]]:
        """The kernels and the names of their counters."""
        names = [name for name, _, _ in self._number]
        return ((key, names[number]) for key, of_kernel in self._values.items() for number in of_kernel)

    @property
    def counters(self) -> tuple[HardwareCounter, ...]:
        """The counters in the order in which they appear."""
        return tuple(HardwareCounter(name, unit) for name, unit, _ in self._number)

    def kernels(self) -> Iterator[tuple[int, tuple[float | None, ...]]]:
        """The values of each kernel, in the order of `counters`."""
        numbers = range(len(self._number))
        for key, of_kernel in self._values.items():
            yield key, tuple(map(of_kernel.get, numbers))
