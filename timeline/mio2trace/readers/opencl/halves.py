"""A profile folded in two halves by two processes: what the second half leaves open, and how the first closes it.

The second half begins with handles that only the first has seen made. What it cannot know it leaves open, and no more:
arguments in force, programs, which setting was the first before an enqueue. Joined, the two give the profile that one
folder makes of all the calls. A half with anything odd in it is not joined: what there is to say about that has its
order, so the calls are folded in one go.
"""

from __future__ import annotations

import marshal
from array import array
from collections.abc import Container, Hashable, Iterable
from itertools import repeat
from operator import attrgetter
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec

from mio2trace.model.profile import NOT_OPENCL, Activity, BufferCreated, OpenClLaunch, Program
from mio2trace.model.profile import Call as HostCall
from mio2trace.notes import Notes
from mio2trace.readers.opencl.calls import KernelObject
from mio2trace.readers.opencl.records import (
    Call,
    EnqueueNDRangeKernel,
    LostCall,
    SetKernelArg,
)
from mio2trace.readers.opencl.repeats import RepeatingFolder

_MARSHAL = 2
"""The last form that does not look for objects that come again: tables do that here, and faster."""

_Maybe = list[tuple[int, int | None]]
"""Settings of which one may have been the first before an enqueue: (argument, host time) in order."""
_State = tuple[str, int | None, tuple[Any, ...], Any]
"""A kernel's handle, program, arguments and offset at a launch; None for an argument that was not set in this half."""
_H = TypeVar("_H", bound=Hashable)


class _Packed(NamedTuple):
    """What a second half found, of plain types; calls and enqueues are counted from its first.

    A program that it did not see made is a negative number: for -1 - n, ``outside[n]`` is (is a kernel, handle), and
    the program is the one from which that kernel was made, or which had that handle, when the first half ended.
    """

    calls: int
    queues: list[tuple[str, str]]  # handle, what its device is known by
    programs: list[tuple[int, str, bytes, str, int | None]]  # call, handle, source, options, kernels
    changes: list[tuple[str, dict[str, Any]]]  # handle of a program made before, changed fields
    kernels: list[tuple[str, bool, int, bool, list[tuple[int, int, int | None]]]]
    """At the end: handle, made before, number of arguments, enqueued, zeros."""
    buffers: list[tuple[int, str, int, int | None]]  # call, handle, bytes, end
    other_calls: list[tuple[int, str, int | None, int | None]]  # call, name, start, end
    outside: list[tuple[bool, str]]
    firsts: list[tuple[int, str]]  # the first enqueue of a kernel made before, its handle
    maybe: list[tuple[int, str, _Maybe]]  # enqueue, handle of a kernel made before
    columns: list[bytes | list[int | None]]  # the numbers of enqueues, see `_NUMBERS`
    shared: list[tuple[list[Any], bytes]]  # what they share, see `_SHARED`, as a table and places in it
    states: tuple[list[_State], bytes]


_NUMBERS = (
    "number",
    "queued_ns",
    "submit_ns",
    "start_ns",
    "end_ns",
    "size_bytes",
    "call.start_ns",
    "call.end_ns",
    "call.prepared_ns",
)
_SHARED = ("kind", "name", "queue", "grid", "workgroup", "route", "call.name")


class SecondHalf(RepeatingFolder):
    """Folds the calls that follow a first half."""

    def __init__(self, source: int, place: str) -> None:
        self.notes = Notes()
        super().__init__(source, self.notes, place)
        self._lost = False
        self._outside: dict[tuple[bool, str], int] = {}
        self._changes: list[tuple[str, dict[str, Any]]] = []
        self._firsts: dict[str, int] = {}
        self._settings: dict[str, _Maybe] = {}
        self._maybe: list[tuple[int, str, _Maybe]] = []

    def packed(self) -> bytes:
        """What `FirstHalf.join` takes: nothing where there is anything odd."""
        if self._lost or self._cut_pointers or any(self.notes):
            return marshal.dumps(None, _MARSHAL)
        column = {name: list(map(attrgetter(name), self.activities)) for name in (*_NUMBERS, *_SHARED)}
        devices = list(self._devices)
        packed = _Packed(
            calls=self.calls,
            queues=[(queue.handle, devices[queue.device]) for queue in self._queues.values()],
            programs=[(p.number, p.handle, p.source, p.options, p.kernels) for p in self._programs],
            changes=self._changes,
            kernels=[
                (handle, kernel.blank is None, len(kernel.arguments), kernel.enqueued, kernel.zeros)
                for handle, kernel in self.kernels.items()
            ],
            buffers=[(b.number, b.handle, b.size_bytes, b.end_ns) for b in self.buffers],
            other_calls=[(c.number or 0, c.name, c.start_ns, c.end_ns) for c in self._other_calls],
            outside=list(self._outside),
            firsts=[(number, handle) for handle, number in self._firsts.items()],
            maybe=self._maybe,
            columns=[_numbers(column[name]) for name in _NUMBERS],
            shared=[_table(column[name]) for name in _SHARED],
            states=_states([activity.opencl for activity in self.activities]),
        )
        return marshal.dumps(tuple(packed), _MARSHAL)

    def _from_outside(self, kernel: bool, handle: str) -> int:
        return -1 - self._outside.setdefault((kernel, handle), len(self._outside))

    def _unseen(self, handle: str) -> KernelObject:
        return self._recalled(handle) or KernelObject(self._from_outside(True, handle), blank=None)

    def program(self, handle: str) -> int | None:
        program = super().program(handle)
        return self._from_outside(False, handle) if program is None else program

    @property
    def unsettled(self) -> Container[str]:
        return self._settings

    def _change_program(self, handle: str, changes: dict[str, Any]) -> None:
        if handle in self._program_of:
            super()._change_program(handle, changes)
        else:
            self._changes.append((handle, changes))

    def _set_first(self, kernel: KernelObject, call: SetKernelArg, index: int, line: int) -> None:
        known = kernel.blank is not None or call.arg_index <= 0 or kernel.prepared is not None
        super()._set_first(kernel, call, index, line)
        if not known and call.timestamp is not None:
            # The first half may have set this argument: then it was set again, which does not count as a first.
            kernel.prepared = None
            self._settings.setdefault(call.kernel, []).append((call.arg_index, self.host(call.timestamp.start)))

    def _enqueue_kernel(self, call: EnqueueNDRangeKernel, index: int, line: int) -> None:
        number = len(self.activities)
        super()._enqueue_kernel(call, index, line)
        if self.kernels[call.kernel].blank is None:
            self._firsts.setdefault(call.kernel, number)
            maybe = self._settings.pop(call.kernel, None)
            if maybe is not None:
                self._maybe.append((number, call.kernel, maybe))

    def _other(self, call: Call | LostCall, index: int, line: int) -> None:
        self._lost = self._lost or isinstance(call, LostCall)
        super()._other(call, index, line)


class FirstHalf(RepeatingFolder):
    """Folds the first calls; then either `join` takes the second half, or `add` its calls."""

    def join(self, half: BinaryIO) -> bool:
        """Whether the second half could be taken; then it ends the profile. Nothing is changed where it could not."""
        if self._cut_pointers:
            return False
        found = marshal.loads(half.read())  # noqa: S302 - written by our own child; `load` asks the file for each value
        if found is None:
            return False
        packed = _Packed(*found)
        self.forget_forms()
        self.recall()
        programs_before = len(self._programs)
        programs: dict[int | None, int | None] = {None: None}
        for number, (is_kernel, handle) in enumerate(packed.outside):
            kernel = self.kernels.get(handle) if is_kernel else None
            made_from = kernel.program if kernel is not None else None
            programs[-1 - number] = made_from if is_kernel else self._program_of.get(handle)
        programs |= {number: programs_before + number for number in range(len(packed.programs))}
        self._join_enqueues(packed, programs)
        for handle, changes in packed.changes:
            self._change_program(handle, changes)
        for call, handle, source, options, kernels in packed.programs:
            self._programs.append(
                Program(
                    index=len(self._programs),
                    number=self.calls + call,
                    handle=handle,
                    source=self.interned.setdefault(source, source),
                    options=options,
                    kernels=kernels,
                )
            )
        for call, handle, size, end in packed.buffers:
            handle = self.interned.setdefault(handle, handle)
            call += self.calls
            self.buffers.append(BufferCreated(number=call, handle=handle, size_bytes=size, end_ns=end))
        for place, name, begin, end in packed.other_calls:
            self._other_calls.append(HostCall(name, 0, begin, end, 0, self.calls + place))
        self._join_kernels(packed)
        self.calls += packed.calls
        return True

    def _join_enqueues(self, packed: _Packed, programs: dict[int | None, int | None]) -> None:
        column: dict[str, Iterable[Any]] = {
            name: array("q", numbers) if isinstance(numbers, bytes) else numbers
            for name, numbers in zip(_NUMBERS, packed.columns, strict=True)
        }
        before = self.calls
        # A call's number is its activity's: the same object for both.
        column["number"] = [before + number for number in column["number"]]
        prepared = column["call.prepared_ns"] = list(column["call.prepared_ns"])
        for number, handle, settings in packed.maybe:
            held = len(self.kernels[handle].arguments) if handle in self.kernels else 0
            prepared[number] = next((at for argument, at in settings if argument >= held), prepared[number])
        for number, handle in packed.firsts:
            kernel = self.kernels.get(handle)
            if kernel is not None and kernel.prepared is not None:
                prepared[number] = self.host(kernel.prepared.start)
        queues = [self.queue(handle, device) for handle, device in packed.queues]
        same = self.interned.setdefault
        for name, (table, packed_places) in zip(_SHARED, packed.shared, strict=True):
            if name == "queue":
                table = [queues[queue] for queue in table]
            else:
                table = [None if value is None else same(value, value) for value in table]
            column[name] = map(table.__getitem__, array("I", packed_places))
        states, packed_places = packed.states
        launches = [self._launch(packed, state, programs) for state in states]
        column["opencl"] = map(launches.__getitem__, array("I", packed_places))
        column["call"] = map(HostCall, *_columns(HostCall, column, "call."))
        self.activities.extend(map(Activity, *_columns(Activity, column)))

    def _launch(self, packed: _Packed, state: _State, programs: dict[int | None, int | None]) -> OpenClLaunch:
        handle, program, _, offset = state
        if not handle and program is None and not state[2]:
            return NOT_OPENCL
        same = self.interned.setdefault
        offset, arguments = same(offset, offset), self._arguments(packed, state)
        key: tuple[Any, ...] = (same(handle, handle), programs[program], offset, *map(same, arguments, arguments))
        launch = self.launches.get(key)
        if launch is None:
            launch = self.launches[key] = OpenClLaunch(key[0], key[3:], key[1], offset)
        return launch

    def _arguments(self, packed: _Packed, state: _State) -> tuple[str, ...]:
        """Those in force, with the ones that the first half set."""
        handle, program, arguments, _ = state
        if program is None or program >= 0 or not packed.outside[-1 - program][0]:
            return arguments
        kernel = self.kernels.get(handle)
        held = kernel.arguments if kernel is not None else []
        full = [value if value is not None else "" for value in arguments]
        for number, value in enumerate(held):
            if number >= len(full):
                full.append(value)
            elif arguments[number] is None:
                full[number] = value
        return tuple(full)

    def _join_kernels(self, packed: _Packed) -> None:
        """As far as timer marks need them: which were enqueued, and the zeros of the others."""
        before = self.calls
        for handle, made_before, arguments, enqueued, zeros in packed.kernels:
            kernel = self.kernels.get(handle) if made_before else None
            if kernel is None:
                kernel = self.kernels[handle] = KernelObject()
            kernel.arguments += [""] * (arguments - len(kernel.arguments))
            kernel.enqueued = kernel.enqueued or enqueued
            if kernel.enqueued:
                kernel.zeros = []
            else:
                kernel.zeros += [(before + call, line, at) for call, line, at in zeros]


def _numbers(values: list[int | None]) -> bytes | list[int | None]:
    """64-bit integers in the machine's own form; as they are where one is missing."""
    return values if None in values else array("q", values).tobytes()  # type: ignore[type-var]


def _table(values: list[_H]) -> tuple[list[_H], bytes]:
    table = list(dict.fromkeys(values))
    return table, _places(table, values)


def _states(launches: list[OpenClLaunch]) -> tuple[list[_State], bytes]:
    # Equal launches are one object, so their identity tells them apart, and is quick to compare.
    keys = list(map(id, launches))
    states = dict(zip(keys, launches, strict=True))
    return [(x.kernel, x.program, x.arguments, x.offset) for x in states.values()], _places(states, keys)


def _columns(record: type[Activity] | type[HostCall], column: dict[str, Iterable[Any]], prefix: str = "") -> list[Any]:
    """The columns of a record's fields in their order; what has none is as it is by default."""
    columns = []
    for field in msgspec.structs.fields(record):
        default = None if field.default is msgspec.NODEFAULT else field.default
        # a call's number is its activity's
        name = prefix + field.name if field.name != "number" else field.name
        columns.append(column[name] if name in column else repeat(default))
    return columns


def _places(table: Iterable[_H], values: list[_H]) -> bytes:
    place_of = {value: place for place, value in enumerate(table)}
    return array("I", map(place_of.__getitem__, values)).tobytes()
