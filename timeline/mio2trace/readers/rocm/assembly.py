"""Rows of a ROCm profiler to a `Profile`: what belongs together by id is joined, all is numbered and in order.

All its formats say the same: dispatches and copies with a correlation id, calls with thread and id, ranges with thread
and text. A row whose numbers are none is left out and counted (rocm-profiles.md 10).
"""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import compress, count, islice, repeat
from operator import attrgetter, itemgetter, le
from typing import Any, Literal

import msgspec

from mio2trace.model.profile import (
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
from mio2trace.model.recorded import NONE, CallForm, Calls, Form, Recorded
from mio2trace.notes import Notes
from mio2trace.readers import base
from mio2trace.readers.rocm.counters import COUNTER_RUN, Values

Kind = Literal["kernel", "copy", "fill"]
MOST_NS = (1 << 63) - 1
_KEPT = re.compile(r"Launch|Synchronize|Malloc|Free|Memcpy|Memset|ModuleLoad|WaitEvent|Barrier|(?:Begin|End)Capture")
"""Calls that are worth a slice though they launched nothing that was recorded; of the others there are very many."""
_MOST_DEVICES = 1 << 16
LONGEST_NAME = 1 << 14
"""Letters. A source states a name once for many rows, and each of them shows it."""
ROUTES = {
    "HOSTTODEVICE": "host to device",
    "DEVICETOHOST": "device to host",
    "DEVICETODEVICE": "device to device",
    "HOSTTOHOST": "host to host",
}


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
        """``ids_apart``: ids of ranges and correlation ids are counted apart, so that equal ones mean nothing."""
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
        self.calls = Calls()
        self.activities = Recorded(self.calls)
        self._call_at: dict[int, int] = {}
        self._seen = 0
        self._ranges: list[Range] = []
        self._launched: dict[int, str] = {}
        self._shared: dict[Any, Any] = {}
        self.defects: Counter[str] = Counter()
        self.counts: Values[int] = Values(notes, place)
        """Counters of kernels, by the place that `activity` gives."""

    @property
    def empty(self) -> bool:
        return not self.activities and not self.calls and not self._ranges

    @property
    def latest_ns(self) -> int:
        """The greatest time of all, 0 where there is none."""
        columns = (self.activities.end_ns, self.calls.end_ns, [made.end_ns for made in self._ranges])
        return max((max(column, default=0) for column in columns), default=0)

    def later(self, by_ns: int) -> None:
        """Move all times: some sources tell their zero at the end. What would leave 64 bits stays where it is."""
        if self.latest_ns + by_ns > MOST_NS:
            self._notes.add("base time that does not fit the times: not added", self._place)
            return
        for rows in (self.activities, self.calls):
            rows.start_ns = array("q", (time + by_ns for time in rows.start_ns))
            rows.end_ns = array("q", (time + by_ns for time in rows.end_ns))
        for place, one in enumerate(self._ranges):
            self._ranges[place] = Range(
                one.kind, one.text, one.thread, one.start_ns + by_ns, one.end_ns + by_ns, one.id, one.inputs,
                one.sequence,
            )  # fmt: skip

    def thread(self, tid: object, name: str = "") -> int:
        """The index of a thread; None is one that is not told."""
        number = _number(tid, MOST_NS)
        thread = self._threads.get(number)
        if thread is None:
            thread = self._threads[number] = Thread(index=len(self._threads), tid=number, name=name)
        return thread.index

    def device(self, key: Hashable, name: str = "", number: object = None) -> int:
        """The index of a device; ``number`` as HIP counts them, where that is told."""
        device = self._devices.get(key)
        if device is None:
            device = self._devices[key] = Device(
                index=len(self._devices), name=name, clock=0, number=_number(number, _MOST_DEVICES)
            )
        return device.index

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
        """(start, end) in ns where they are numbers in order; else the row is counted."""
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
        """A command of the device; ``thread`` is who launched it, ``range_id`` the range that the source states. The
        place is for its counters."""
        form = self.form(
            kind, name, queue, grid=grid, workgroup=workgroup, resources=resources, size_bytes=size_bytes, route=route,
            thread=thread, graph_node=graph_node,
        )  # fmt: skip
        return self.add(form, times, number, correlation, line, range_id)

    def form(  # noqa: PLR0913 - keyword-only options
        self,
        kind: Kind,
        name: str,
        queue: int,
        *,
        grid: Size3 | None = None,
        workgroup: Size3 | None = None,
        resources: Resources | None = None,
        size_bytes: object = 0,
        route: str = "",
        thread: int | None = None,
        graph_node: tuple[object, object] | None = None,
    ) -> int:
        """The place of what `activity`'s rows have in common."""
        graph, node = (None, None) if graph_node is None else (_number(part, MOST_NS) for part in graph_node)
        forms = self.activities.forms
        form = Form(
            kind, self._named(name), queue, grid, workgroup, resources, _number(size_bytes, MOST_NS) or 0, route,
            None if graph is None or node is None else (graph, node), thread,
        )  # fmt: skip
        return forms.setdefault(form, len(forms))

    def add(
        self,
        form: int,
        times: tuple[int, int],
        number: object,
        correlation: object,
        line: int = 0,
        range_id: int | None = None,
    ) -> int:
        """An activity of this form."""
        rows, place = self.activities, len(self.activities)
        rows.form.append(form)
        self._add(rows, times, line, correlation)
        rows.number.append(place if (shown := _number(number, MOST_NS)) is None else shown)
        rows.range.append(_or_none(range_id))
        return place

    def _add(self, rows: Calls | Recorded, times: tuple[int, int], line: int, correlation: object) -> None:
        start, end = times
        rows.start_ns.append(start)
        rows.end_ns.append(end)
        rows.line.append(line)
        rows.correlation.append(_or_none(correlation))

    def add_calls(
        self, forms: array[int], starts: array[int], ends: array[int], correlations: array[int], parents: array[int]
    ) -> None:
        """Calls in columns as `Calls` has them."""
        self._extend(self.calls, forms, starts, ends, correlations)
        self.calls.parent.extend(parents)

    def add_activities(
        self,
        forms: array[int],
        starts: array[int],
        ends: array[int],
        correlations: array[int],
        numbers: array[int],
    ) -> None:
        """Activities in columns as `Recorded` has them."""
        rows = self.activities
        self._extend(rows, forms, starts, ends, correlations)
        rows.number.extend(numbers)
        rows.range.extend(repeat(NONE, len(forms)))

    def _extend(
        self, rows: Calls | Recorded, forms: array[int], starts: array[int], ends: array[int], ids: array[int]
    ) -> None:
        self._records += len(forms)
        rows.form.extend(forms)
        rows.start_ns.extend(starts)
        rows.end_ns.extend(ends)
        rows.line.extend(repeat(0, len(forms)))
        rows.correlation.extend(ids)

    def kernels_by_correlation(self) -> Counter[int | None]:
        rows = self.activities
        return Counter(compress(rows.correlation, [kind == "kernel" for kind in rows.kinds]))

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
        """An API call; ``parent`` is the id of the range that it was made in, where the source states it."""
        rows = self.calls
        rows.form.append(self.call_form(name, thread))
        self._add(rows, times, line, correlation)
        rows.parent.append(_or_none(parent) or NONE)

    def call_form(self, name: str, thread: int) -> int:
        """The place of the form."""
        return self.calls.forms.setdefault(CallForm(self._named(name), thread), len(self.calls.forms))

    def launches_kernel(self, correlation: int, kernel: str) -> None:
        """The call of this id launches a kernel of this name, at once or into a graph."""
        self._launched[correlation] = self._named(kernel)

    def has_call(self, correlation: int | None) -> bool:
        """Whether the call of this id was made in this process."""
        return correlation in self._first_calls()

    def launches(self) -> Iterator[tuple[int, Call, int | None]]:
        """Correlation id, call, and the id of the range that it was made in, where the source states that."""
        for correlation, at in self._first_calls().items():
            parent = self.calls.parent[at]
            yield correlation, self.calls[at], None if parent == NONE else parent

    def _first_calls(self) -> dict[int, int]:
        """The place of the first call of each correlation id."""
        ids = islice(self.calls.correlation, self._seen, None)
        deque(map(self._call_at.setdefault, ids, count(self._seen)), maxlen=0)
        self._seen = len(self.calls)
        self._call_at.pop(NONE, None)
        return self._call_at

    def range(self, made: Range) -> None:
        """A named range; its id is what ``parent`` and ``range_id`` mean."""
        if len(made.text) > LONGEST_NAME:
            made = msgspec.structs.replace(made, text=self._named(made.text))
        self._ranges.append(made)

    def _named(self, name: str) -> str:
        """The same object for the same name, and of one that is too long its beginning."""
        shown = self._shared.get(name)
        if shown is None:
            shown = name
            if len(name) > LONGEST_NAME:
                self._notes.add(f"name of more than {LONGEST_NAME} letters cut", self._place)
                shown = self._shared.setdefault(name[:LONGEST_NAME], name[:LONGEST_NAME])
            self._shared[name] = shown
        return shown

    def finish(self, every_call: bool) -> Profile:
        """The profile: activities as they were launched (`_as_launched`)."""
        self._ranges.sort(key=lambda made: (made.thread, made.start_ns, -made.end_ns))
        rows, calls, call_at = self.activities, self.calls, self._first_calls()
        rows.counters = dict(self.counts.kernels())
        if self.counts:
            self._notes.remark(COUNTER_RUN, self._place)
        self._count_repeated()
        rows.call = array("i", map(call_at.get, rows.correlation, repeat(NONE)))
        launched = bytearray(len(calls))
        for at in {*rows.call} - {NONE}:
            launched[at] = 1
        without = [at for at, call in enumerate(rows.call) if call == NONE] if NONE in rows.call else []
        if without:
            kinds = rows.kinds
            without = [at for at in without if kinds[at] == "kernel"]
        place_of = self._places_of_parents(without)
        self._join_ranges(place_of, without)
        self._add_threads(without)
        if (order := _as_launched(rows)) is not None:
            rows.put_in_order(order)
        if without and call_at:
            self._notes.remark("kernel whose launch was not recorded: no arrow leads to it", self._place, len(without))
        captured = self._captured(launched, place_of)
        names = [every_call or _KEPT.search(form.name) is not None for form in calls.forms]
        others = [at for at, ran in enumerate(launched) if not ran and names[calls.form[at]]]
        others.sort(key=lambda at: (calls.start_ns[at], call_at.get(calls.correlation[at]) != at))
        self._call_at, self._launched = {}, {}
        return Profile(
            source=self._source,
            records=self._records,
            activities=rows,
            other_calls=tuple(map(calls.__getitem__, others)),
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

    def _count_repeated(self) -> None:
        calls, call_at = self.calls, self._first_calls()
        if len(call_at) + calls.correlation.count(NONE) < len(calls):
            launches = ["Launch" in form.name for form in calls.forms]
            self.defects["repeated-correlation"] += sum(
                launches[form] and call_at.get(key, at) != at
                for at, (form, key) in enumerate(zip(calls.form, calls.correlation, strict=True))
            )

    def _places_of_parents(self, without: Iterable[int]) -> dict[int, int]:
        """Places of the ranges that something names, by id; of the others there may be very many."""
        wanted = {*self.calls.parent, *self.activities.range}
        if not self._ids_apart:
            wanted.update(map(self.activities.correlation.__getitem__, without))
        wanted.discard(NONE)
        ids = map(attrgetter("id"), self._ranges)
        return {number: place for place, number in enumerate(ids) if number in wanted} if wanted else {}

    def _join_ranges(self, place_of: Mapping[int, int], without: Iterable[int]) -> None:
        """Of each activity the place of the range that launched it in place of its id. The call's own is the nearest;
        without API calls the correlation id is that of the innermost range (11.2)."""
        rows, parents = self.activities, self.calls.parent
        if not self._ids_apart:
            for at in without:
                if rows.range[at] == NONE and rows.correlation[at] in place_of:
                    rows.range[at] = rows.correlation[at]
        if place_of:
            stated = zip(rows.range, map([*parents, NONE].__getitem__, rows.call), strict=True)
            ids = (own if parent == NONE else parent for own, parent in stated)
            rows.range = array("q", map(place_of.get, ids, repeat(NONE)))
        else:
            rows.range = array("q", repeat(NONE, len(rows)))

    def _add_threads(self, without: Iterable[int]) -> None:
        """A call without a time for each thread of kernels whose launch is not recorded: it has the thread."""
        rows, calls, threads = self.activities, self.calls, list(map(attrgetter("thread"), self.activities.forms))
        alone: dict[int, int] = {}
        for at in without:
            thread = threads[rows.form[at]]
            if thread is not None and thread not in alone:
                alone[thread] = len(calls)
                calls.form.append(self.call_form("", thread))
                self._add(calls, (NONE, NONE), 0, None)
            if thread is not None:
                rows.call[at] = alone[thread]

    # Which launches went into a graph: those in a stream capture that ran nothing (torch-graphs.md 1)
    #
    # A capture is from ``hipStreamBeginCapture`` to the next ``hipStreamEndCapture`` of the process, whatever the
    # thread. Without such calls, filtered out perhaps, all launches that ran nothing are one capture if the process
    # launched a graph.

    def _captured(self, launched: Sequence[int], place_of: Mapping[int, int]) -> tuple[Captured, ...]:
        """In order of time; ``launched``: of each call whether it ran something."""
        calls, call_at = self.calls, self._first_calls()
        waiting = sorted(
            (calls.start_ns[at], key, at)
            for key in self._launched
            if (at := call_at.get(key)) is not None and not launched[at]
        )
        if not waiting:
            return ()
        begun, ended = (self._starts_of(word) for word in ("StreamBeginCapture", "StreamEndCapture"))
        if not begun and not any("GraphLaunch" in form.name for form in calls.forms):
            return ()
        found = []
        for start, key, at in waiting:
            capture = bisect_right(begun, start) - 1
            if begun:
                if capture < 0:
                    continue
                end = bisect_right(ended, begun[capture])
                if end < len(ended) and ended[end] < start:
                    continue
            thread = calls[at].thread
            place = place_of.get(calls.parent[at])
            found.append(Captured(self._launched[key], max(capture, 0), thread, start, place))
        return tuple(found)

    def _starts_of(self, word: str) -> list[int]:
        """When the calls with that word in their name began, in order of time."""
        named = [word in form.name for form in self.calls.forms]
        return sorted(start for start, form in zip(self.calls.start_ns, self.calls.form, strict=False) if named[form])


def _as_launched(rows: Recorded) -> Sequence[int] | None:
    """Places in the order of their launches; None where they are in it. An activity whose launch is not recorded was
    launched before the next recorded launch of its stream; if its stream has no later one, after the last. Without any
    launch, in the order of time."""
    begun = [NONE if start is None else start for start in rows.host_starts]
    launched = len(begun) - begun.count(NONE)
    if launched in (0, len(begun)):
        keys = list(zip(begun, rows.start_ns, strict=True))
        return None if all(map(le, keys, islice(keys, 1, None))) else sorted(range(len(keys)), key=keys.__getitem__)
    streams: dict[int, list[int]] = defaultdict(list)
    for at, queue in enumerate(rows.queues):
        streams[queue].append(at)
    keyed: list[tuple[int, int, int, int]] = []
    for stream in streams.values():
        stream.sort(key=rows.start_ns.__getitem__)
        last = max((begun[at] for at in stream), default=NONE)
        until = NONE
        for at in reversed(stream):
            start = rows.start_ns[at]
            if begun[at] != NONE:
                until = begun[at]
                keyed.append((until, 1, start, at))
            elif until != NONE:
                keyed.append((until, 0, start, at))
            else:
                keyed.append((start if last == NONE else last, 2, start, at))
    keyed.sort(key=itemgetter(0, 1, 2))
    return [at for *_, at in keyed]


def _or_none(value: object) -> int:
    """A number as a column has it."""
    return value if type(value) is int and 0 <= value < MOST_NS else NONE


def _number(value: object, limit: int) -> int | None:
    """A number as it can be written; a stranger's file may hold anything."""
    return value if type(value) is int and 0 <= value < limit else None


def kernel_name(name: object) -> str:
    """A kernel's name as `readers.base.kernel_name` leaves it; "" of what is no text (rocm-profiles.md 9)."""
    return base.kernel_name(name) if isinstance(name, str) else ""


def route_of(text: object) -> str:
    """``MEMORY_COPY_HOST_TO_DEVICE``, ``CopyHostToDevice`` and their like, in words."""
    word = str(text).upper().replace("_", "")
    return next((route for key, route in ROUTES.items() if key in word), "")


def sizes(*dimensions: object) -> Size3 | None:
    """Three dimensions, None where one of them is no size."""
    if any(type(one) is not int or not 0 <= one < 1 << 32 for one in dimensions) or len(dimensions) != 3:
        return None
    x, y, z = dimensions
    assert isinstance(x, int) and isinstance(y, int) and isinstance(z, int)
    return x, max(y, 1), max(z, 1)


# -- What a profiler records of a process's place in its job: the rank, and the machine that its clock is of -----------
#
# Of an environment nothing is kept but the rank, of a machine's id nothing but a hash that is only compared.

_RANKS = (
    "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "FLUX_TASK_RANK", "SLURM_PROCID",
)  # fmt: skip
"""What PyTorch, Open MPI, PMIx, MPICH, MVAPICH2, Flux and Slurm set; the nearest to the program first."""
_Environment = msgspec.defstruct("_Environment", [(name, object, None) for name in _RANKS], gc=False)


def rank_in(environment: object) -> int | None:
    """The rank that an environment, a JSON object as text, tells."""
    if not isinstance(environment, str):
        return None
    try:
        variables = msgspec.json.decode(environment, type=_Environment)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    values = (str(value) for name in _RANKS if (value := getattr(variables, name)) is not None)
    return next((int(text) for text in values if text.isascii() and text.isdigit() and len(text) < 8), None)


def scope_of(machine: object) -> str:
    """A machine's id as what may be compared; empty where there is none."""
    if not isinstance(machine, str) or len(machine.strip("0-")) < 8:
        return ""
    return hashlib.blake2b(machine.encode(errors="replace"), digest_size=8, person=b"mio2trace").hexdigest()
