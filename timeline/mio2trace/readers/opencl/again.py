"""dv/dt: the effect of a `Form`: how a folder takes repeated calls, given the values of the fields.

Each `fold` has the effect of `ProfileFolder.add` for the same calls, or none: it returns False if the calls need a full
check (an unknown kernel, a new second, times out of order).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mio2trace.model.profile import NOT_OPENCL, Activity, BufferCreated, OpenClLaunch
from mio2trace.model.profile import Call as HostCall
from mio2trace.readers.opencl.calls import COPIES, LAUNCH, MAX_ARGUMENTS, MAX_INTEGER, NULL, UNKNOWN_ERROR, KernelObject
from mio2trace.readers.opencl.forms import COUNTED, Form
from mio2trace.readers.opencl.records import (
    AnyCall,
    Began,
    Command,
    CreateBuffer,
    CreateKernel,
    EnqueueNDRangeKernel,
    EnqueueReadBuffer,
    EnqueueWriteBuffer,
    SetKernelArg,
)

if TYPE_CHECKING:
    from mio2trace.readers.opencl.repeats import RepeatingFolder

_Fields = Sequence[bytes]
Fold = Callable[[int, _Fields], bool]
"""Take the calls again; the first one has this number. If it returns False, nothing was changed and the usual way
applies."""
_GOOD = (0, UNKNOWN_ERROR)
_ONE = b"1"


def timed_calls(calls: Sequence[AnyCall], first: int, stop: int) -> set[int]:
    """Return the calls of a unit whose host times are used: of the arguments of a launch, the first one."""
    timed = {n for n in range(first, stop) if isinstance(calls[n], (Command, CreateBuffer))}
    prepared = _prepared_at(calls, first, stop)
    return timed if prepared is None else timed | {prepared}


def _prepared_at(calls: Sequence[AnyCall], first: int, stop: int) -> int | None:
    """Return the setting that begins a launch: of a new kernel the first one, else the first one of argument 0."""
    new = isinstance(calls[first], CreateKernel)
    settings = ((n, call) for n, call in enumerate(calls[first:stop], first) if isinstance(call, SetKernelArg))
    return next((n for n, call in settings if new or not call.arg_index), None)


def fold_of(folder: RepeatingFolder, form: Form, calls: Sequence[AnyCall], first: int, stop: int) -> Fold | None:
    """Return the function that takes calls ``first`` to ``stop`` of a form again, after they were folded once; None if
    none may."""
    last = calls[stop - 1]
    if any(isinstance(call, SetKernelArg) and not 0 <= call.arg_index < MAX_ARGUMENTS for call in calls[first:stop]):
        return None
    if isinstance(last, Command) and (last.errcode not in _GOOD or last.profiling_error is not None):
        return None
    if isinstance(last, EnqueueNDRangeKernel):
        return _Launch(folder, form, calls, first, stop).fold_of(folder, form, calls, first, stop)
    if isinstance(last, SetKernelArg):
        return _setting(folder, form, last, first)
    if isinstance(last, (EnqueueReadBuffer, EnqueueWriteBuffer)) and 0 <= last.size <= MAX_INTEGER:
        return _copy(folder, form, last, first)
    if isinstance(last, CreateBuffer) and last.errcode in _GOOD and 0 <= last.size <= MAX_INTEGER:
        return _buffer(folder, form, last, first)
    return None


class _Launch:
    """A kernel's enqueue with the settings before it, with the creation of the kernel or for a known kernel."""

    def __init__(self, folder: RepeatingFolder, form: Form, calls: Sequence[AnyCall], first: int, stop: int) -> None:
        making, enqueue = calls[first], calls[stop - 1]
        assert isinstance(enqueue, EnqueueNDRangeKernel)
        self._program = making.program if isinstance(making, CreateKernel) else None
        self._kernel = enqueue.kernel
        self._settings: dict[int, str] = {}
        self._words: dict[int, int] = {}
        for number, call in enumerate(calls[first:stop], first):
            if isinstance(call, SetKernelArg):
                self._settings[call.arg_index] = call.arg_value
                self._words.pop(call.arg_index, None)
                if (number, "word") in form.places:
                    self._words[call.arg_index] = form.places[number, "word"]
        self._all = [self._settings.get(position, "") for position in range(max(self._settings, default=-1) + 1)]
        self._sets_all = len(self._settings) == len(self._all)
        gwo = enqueue.gwo
        self._offset = folder.interned.setdefault(gwo, gwo) if len(gwo) == 3 else None
        self._launches: dict[int | None, OpenClLaunch] = {}
        """By program, if nothing else may differ."""

    def fold_of(self, folder: RepeatingFolder, form: Form, calls: Sequence[AnyCall], first: int, stop: int) -> Fold:
        """Return the function for one launch, with constant values bound: a profile has a million launches."""
        last = stop - 1
        enqueue = calls[last]
        assert isinstance(enqueue, EnqueueNDRangeKernel)
        at, until = form.places[last, "start"], form.places[last, "end"]
        prepared_at = _prepared_at(calls, first, stop)
        before = -1 if prepared_at is None else form.places[prepared_at, "start"]
        micro, until_micro, before_micro = at + 1, until + 1, before + 1
        times_of, behind, handle = _times_of(form, last), last - first, self._kernel
        is_new = self._program is not None
        same = folder.interned.setdefault
        name, queue = same(enqueue.name, enqueue.name), folder.queue(enqueue.queue)
        gws, lws = enqueue.gws, enqueue.lws
        grid = same(gws, gws) if len(gws) == 3 else None
        group = same(lws, lws) if len(lws) == 3 and any(lws) else None
        given, count, launches = self._all, len(self._all), self._launches
        is_whole = self._sets_all and not self._words
        kernels, seconds = folder.kernels, folder.seconds_of
        append, launch_of, host = folder.activities.append, self._launch, folder.host

        def fold(number: int, fields: _Fields) -> bool:
            kernel = None
            if not is_new:
                kernel = kernels.get(handle)
                if kernel is None or not kernel.enqueued or count > len(kernel.arguments):
                    return False
            times = times_of(fields)
            began, ended, prepared = seconds[fields[at]], seconds[fields[until]], None
            if times is None or began is None or ended is None:
                return False
            if kernel is not None and kernel.prepared is not None:
                prepared = host(kernel.prepared.start)
            elif before >= 0:
                prepared = seconds[fields[before]]
                if prepared is None:
                    return False
                prepared += int(fields[before_micro]) * 1000
            began += int(fields[micro]) * 1000
            ended += int(fields[until_micro]) * 1000
            number += behind
            call = HostCall(LAUNCH, 0, began, ended, 0, number, None, prepared)
            if kernel is not None and is_whole and len(kernel.arguments) == count and kernel.program in launches:
                kernel.prepared = None
                kernel.arguments = given[:]
                launch = launches[kernel.program]
            else:
                launch = launch_of(folder, kernel, fields)
            queued, submit, start, end = times
            append(Activity(number, "kernel", name, 0, queue, queued, submit, start, end, call, grid, group, launch))
            return True

        return fold

    def _launch(self, folder: RepeatingFolder, kernel: KernelObject | None, fields: _Fields) -> OpenClLaunch:
        """Return the part that all launches with these arguments share; the arguments become the current ones."""
        handle = self._kernel
        whole = True
        if kernel is None:
            kernel = folder.kernels[handle] = KernelObject(folder.program(self._program or ""))
            kernel.enqueued = True
        else:
            kernel.prepared = None
            whole = self._sets_all and len(kernel.arguments) == len(self._all)
        program, words = kernel.program, self._words
        if whole:
            kernel.arguments = arguments = self._all[:]
            launch = self._launches.get(program)
            if launch is not None:
                return launch
        else:
            arguments = kernel.arguments
            for position, value in self._settings.items():
                arguments[position] = value
        for position, place in words.items():
            value = str(fields[place], "ascii")
            arguments[position] = folder.interned.setdefault(value, value)
        key: tuple[Any, ...] = (handle, program, self._offset, *arguments)
        launch = folder.launches.get(key)
        if launch is None:
            launch = folder.launches[key] = OpenClLaunch(handle, key[3:], program, self._offset)
        if whole and not words:
            self._launches[program] = launch
        return launch


def _setting(folder: RepeatingFolder, form: Form, call: SetKernelArg, at: int) -> Fold:
    """Take an argument that is set by itself, such as a timer mark."""
    handle, position, same = call.kernel, call.arg_index, call.arg_value
    word, start = form.places.get((at, "word")), form.places.get((at, "start"), 0)
    micro = start + 1
    kernels, seconds = folder.kernels, folder.seconds_of

    def fold(number: int, fields: _Fields) -> bool:
        kernel = kernels.get(handle)
        if kernel is None or position >= len(kernel.arguments):
            return False
        value = same if word is None else str(fields[word], "ascii")
        if position == 0:
            if not kernel.enqueued and value == "00000000":
                base = seconds[fields[start]]
                if base is None:
                    return False
                kernel.zeros.append((number, 0, base + int(fields[micro]) * 1000))
            if kernel.prepared is None:
                kernel.prepared = Began(f"{fields[start].decode()}.{fields[micro].decode()}")
        kernel.arguments[position] = value
        return True

    return fold


def _copy(folder: RepeatingFolder, form: Form, call: EnqueueReadBuffer | EnqueueWriteBuffer, at: int) -> Fold:
    same, seconds, append = folder.interned.setdefault, folder.seconds_of, folder.activities.append
    copy = "read buffer" if isinstance(call, EnqueueReadBuffer) else "write buffer"
    tag = str(call.__struct_config__.tag)
    name, route, api, queue, size = (
        same(copy, copy),
        folder.interned[COPIES[copy]],
        same(tag, tag),
        folder.queue(call.queue),
        int(call.size),
    )
    start, end = form.places[at, "start"], form.places[at, "end"]
    times_of = _times_of(form, at)

    def fold(number: int, fields: _Fields) -> bool:
        times = times_of(fields)
        began, ended = seconds[fields[start]], seconds[fields[end]]
        if times is None or began is None or ended is None:
            return False
        began += int(fields[start + 1]) * 1000
        ended += int(fields[end + 1]) * 1000
        made = HostCall(api, 0, began, ended, 0, number)
        append(Activity(number, "copy", name, 0, queue, *times, made, None, None, NOT_OPENCL, size, route))
        return True

    return fold


def _buffer(folder: RepeatingFolder, form: Form, call: CreateBuffer, at: int) -> Fold:
    size, same = int(call.size), call.buffer
    word, end = form.places.get((at, "word")), form.places[at, "end"]
    seconds, interned, append = folder.seconds_of, folder.interned, folder.buffers.append

    def fold(number: int, fields: _Fields) -> bool:
        handle = same if word is None else str(fields[word], "ascii")
        base = seconds[fields[end]]
        if base is None or not handle or handle.strip("0x") in NULL:
            return False
        end_ns = base + int(fields[end + 1]) * 1000
        handle = interned.setdefault(handle, handle)
        append(BufferCreated(number=number, handle=handle, size_bytes=size, end_ns=end_ns))
        return True

    return fold


def _times_of(form: Form, call: int) -> Callable[[_Fields], tuple[int, int, int, int] | None]:
    """Return a function that reads queued, submit, start and end; it returns None if they are out of order or no JSON
    numbers."""
    a, b, c, d = (form.places[call, role] for role in COUNTED)

    def times(fields: _Fields) -> tuple[int, int, int, int] | None:
        queued, submit, start, end = fields[a], fields[b], fields[c], fields[d]
        if len(queued) == len(submit) == len(start) == len(end):
            # Texts of digits with equal lengths sort like their numbers.
            if _ONE <= queued <= submit <= start <= end:
                return int(queued), int(submit), int(start), int(end)
            return None
        numbers = int(queued), int(submit), int(start), int(end)
        first, second, third, last = numbers
        if 0 < first <= second <= third <= last and min(queued[:1], submit[:1], start[:1], end[:1]) >= _ONE:
            return numbers
        return None

    return times
