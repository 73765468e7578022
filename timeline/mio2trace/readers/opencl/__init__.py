"""OpenCL: the calls that AMD's dv/dt profiled, and from them a `Profile` (dvdt-ck.md 1.2 .. 1.5, 2.3a).

Both containers, the JSON array and the text blocks, give the calls in call order. `ProfileFolder` follows handles and
arguments, which stay set until they change.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Literal

import msgspec
import numpy as np

from mio2trace.model.profile import (
    NOT_OPENCL,
    BufferCreated,
    Device,
    OpenCl,
    OpenClLaunch,
    Process,
    Profile,
    Program,
    Queue,
    Size3,
    Thread,
    TimerMark,
)
from mio2trace.model.profile import Call as HostCall
from mio2trace.model.tables import KINDS, NO, Activities, Calls, Growing, Numbers, Pool, TimerMarks, numbers
from mio2trace.notes import Notes
from mio2trace.patterns import late
from mio2trace.readers.base import kernel_name

# -- The eleven profiled calls as they are written (dvdt-ck.md 1.2, 1.3) -----------------------------------------------
#
# Keys may be missing in files of other programs, so every field has a default.

_NAME = late(r"[A-Za-z_][A-Za-z0-9_]{0,80}")


class Began(msgspec.Struct, gc=False):
    """The start of a call: for most calls nothing else is read."""

    start: str = ""


class Stamps(Began, gc=False):
    end: str = ""


NO_STAMPS = Stamps()


class Counters(msgspec.Struct, gc=False):
    queued: int | float | None = None
    submit: int | float | None = None
    start: int | float | None = None
    end: int | float | None = None


class _AnyCall(msgspec.Struct, tag_field="call", gc=False):
    pass


class _Call(_AnyCall, gc=False):
    timestamp: Stamps | None = None


class CreateCommandQueue(_Call, tag="clCreateCommandQueue", gc=False):
    device: str = ""
    queue: str = ""


class CreateProgramWithSource(_Call, tag="clCreateProgramWithSource", gc=False):
    program: str = ""
    source: msgspec.Raw = msgspec.Raw(b"")


class CreateProgramWithBinary(_Call, tag="clCreateProgramWithBinary", gc=False):
    program: str = ""


class BuildProgram(_Call, tag="clBuildProgram", gc=False):
    program: str = ""
    options: str = ""


class CreateKernel(_Call, tag="clCreateKernel", gc=False):
    program: str = ""
    name: str = ""
    kernel: str = ""


class CreateKernelsInProgram(_Call, tag="clCreateKernelsInProgram", gc=False):
    program: str = ""
    num_kernels_ret: int | float = 0


class CreateBuffer(_Call, tag="clCreateBuffer", gc=False):
    size: int | float = 0
    errcode: int = 0
    buffer: str = ""
    queue: str = ""  # the place where the offline parser puts the handle


class SetKernelArg(_AnyCall, tag="clSetKernelArg", gc=False):
    kernel: str = ""
    arg_index: int = -1
    arg_value: str = ""
    errcode: Literal[0, -1] = 0  # a call that failed does not decode: the caller makes it a `LostCall`
    timestamp: Began | None = None


class TimedSetKernelArg(SetKernelArg, tag="clSetKernelArg", gc=False):
    """The same call with its times, for traces that draw every call."""

    timestamp: Stamps | None = None


class Command(_Call, gc=False):
    queue: str = ""
    errcode: int = 0
    profiling: Counters | None = None
    profiling_error: int | None = msgspec.field(default=None, name="output profiling_error")


class EnqueueNDRangeKernel(Command, tag="clEnqueueNDRangeKernel", gc=False):
    name: str = ""
    kernel: str = ""
    gwo: tuple[int, ...] = ()
    gws: tuple[int, ...] = ()
    lws: tuple[int, ...] = ()


class EnqueueReadBuffer(Command, tag="clEnqueueReadBuffer", gc=False):
    buffer: str = ""
    size: int | float = 0


class EnqueueWriteBuffer(Command, tag="clEnqueueWriteBuffer", gc=False):
    buffer: str = ""
    size: int | float = 0


class LostCall(msgspec.Struct, gc=False):
    """A call that cannot be read. ``kernel``: if it is known to concern only this kernel. It may have set an argument,
    so the earlier values are unknown from here on."""

    kernel: str | None = None


OtherCall = (
    EnqueueNDRangeKernel
    | CreateBuffer
    | CreateKernel
    | EnqueueWriteBuffer
    | EnqueueReadBuffer
    | BuildProgram
    | CreateProgramWithSource
    | CreateProgramWithBinary
    | CreateKernelsInProgram
    | CreateCommandQueue
)
Call = SetKernelArg | OtherCall
TimedCall = TimedSetKernelArg | OtherCall
AnyCall = Call | TimedCall | LostCall | None


def shown_call(name: str) -> str:
    """Return the name of an unknown call for a note, unabbreviated: a cut name might look like private text."""
    return name if _NAME.fullmatch(name) else "a name that is no function's"


# -- From calls to a profile -------------------------------------------------------------------------------------------

_MAX_ARGUMENTS = 1024
_MAX_INTEGER = (1 << 63) - 1
"""The largest possible values in traces; larger ones are damage."""
_UNKNOWN_ERROR = -1
"""The values that create calls log if the program did not ask for the error (dvdt-ck.md 1.2)."""
_NO_COUNT = 0xFFFFFFFF
_NULL = ("", "(nil)")
_LAUNCH = "clEnqueueNDRangeKernel"
_COPIES = {"read buffer": "device to host", "write buffer": "host to device"}
_TEST_BUILD_EPOCH = "1970-01-01 "


class _KernelObject:
    """The state of a kernel handle: the current arguments, and what a timer mark would leave on it."""

    __slots__ = ("arguments", "enqueued", "prepared", "program", "zeros")

    def __init__(self, program: int | None = None) -> None:
        self.arguments: list[str] = []
        self.prepared: Began | None = None
        self.program = program
        self.enqueued = False
        self.zeros: list[tuple[int, int, int | None]] = []  # (call index, line, host time)


_Times = tuple[int, int, int, int]
"""When a command was queued and submitted, when it began and ended."""
_NO_TIMES: _Times = (NO, NO, NO, NO)
_ROWS = ("number", "line", "queued_ns", "submit_ns", "start_ns", "end_ns", "size_bytes", "form")
_STAMPS = ("host_start_ns", "host_end_ns", "prepared_ns")
_TOGETHER = 1 << 12
"""Stamps that are read at once."""


class _Form(msgspec.Struct, frozen=True):
    """Common fields of many commands."""

    kind: Literal["kernel", "copy"]
    name: str
    api: str
    queue: int
    grid: Size3 | None = None
    workgroup: Size3 | None = None
    opencl: OpenClLaunch = NOT_OPENCL
    route: str = ""


class ProfileFolder:
    """Turns calls, in call order, into a `Profile`. ``host_calls``: keep every call as a `HostCall`; otherwise only
    program builds are kept."""

    def __init__(self, source: int, notes: Notes, place: str, host_calls: bool = False) -> None:
        self._source = source
        self._notes = notes
        self._place = place
        self._all_calls = host_calls
        self.calls = 0
        self._kernels: dict[str, _KernelObject] = {}
        self._forgotten: dict[str, _KernelObject] = {}
        """Kernels whose arguments a lost call may have changed, until they occur again."""
        self._queues: dict[str, Queue] = {}
        self._devices: dict[str, int] = {}
        self._programs: list[Program] = []
        self._program_of: dict[str, int] = {}
        self._rows = Growing(_ROWS)
        self._stamps = Growing(_STAMPS)
        self._texts: list[str] = []
        """Stamps of rows, in their order, that are not in ``_stamps`` yet."""
        self._forms: list[_Form] = []
        self._form_of: dict[tuple[Any, ...], int] = {}
        """By what a call states of its command, but for times and sizes, and by its arguments."""
        self._other_calls: list[HostCall] = []
        self._buffers: list[BufferCreated] = []
        self._interned: dict[Any, Any] = {}
        self._kernel_name = cache(kernel_name)
        self._seconds: dict[str, int] = {}
        self._cut_pointers = False

    def add(self, calls: Sequence[AnyCall], lines: Sequence[int] | None = None) -> None:
        """Take the next calls; ``None`` is an irrelevant call. ``lines``: their first lines."""
        first = self.calls
        kernels = self._kernels
        for index, call in enumerate(calls, first):
            if type(call) is SetKernelArg or type(call) is TimedSetKernelArg:
                # Nine of ten calls are of this kind: they create no object.
                try:
                    kernel = kernels[call.kernel]
                except KeyError:
                    kernel = kernels[call.kernel] = self._unseen(call.kernel)
                position, arguments = call.arg_index, kernel.arguments
                if 0 < position < len(arguments):
                    arguments[position] = call.arg_value
                elif 0 < position == len(arguments) < _MAX_ARGUMENTS and kernel.prepared is not None:
                    arguments.append(call.arg_value)
                else:
                    self._set_first(kernel, call, index, lines[index - first] if lines else 0)
                if self._all_calls:
                    self._keep_call("clSetKernelArg", call.timestamp, index, lines[index - first] if lines else 0)
            elif type(call) is EnqueueNDRangeKernel:
                self._enqueue_kernel(call, index, lines[index - first] if lines else 0)
            elif call is not None:
                self._other(call, index, lines[index - first] if lines else 0)
        self.calls = first + len(calls)

    def known(self) -> object:
        """A value that changes with each command and each program."""
        return len(self._rows), len(self._programs)

    def _set_first(self, kernel: _KernelObject, call: SetKernelArg, index: int, line: int) -> None:
        """Take an argument if it is the first, or if it was not set before."""
        arguments, position = kernel.arguments, call.arg_index
        if kernel.prepared is None:
            kernel.prepared = call.timestamp
        if position == 0 and call.arg_value == "00000000" and not kernel.enqueued:
            stamp = call.timestamp
            kernel.zeros.append((index, line, self._host(stamp.start) if stamp else None))
        if 0 <= position < _MAX_ARGUMENTS:
            if position >= len(arguments):
                arguments.extend([""] * (position + 1 - len(arguments)))
            arguments[position] = call.arg_value

    def _unseen(self, handle: str) -> _KernelObject:
        """Return a kernel whose creation was not recorded, or whose arguments are not known any more."""
        kernel = self._forgotten.pop(handle, None)
        if kernel is None:
            return _KernelObject()
        kernel.arguments = [""] * len(kernel.arguments)
        return kernel

    def finish(self, interleaved: bool = False) -> Profile:
        """Return the profile; call this once, after the last call."""
        if self._cut_pointers:
            self._notes.remark("profile made by dv/dt's offline parser: pointers are cut, joined by order", self._place)
        return Profile(
            source=self._source,
            records=self.calls,
            activities=self._activities(),
            other_calls=tuple(self._other_calls),
            queues=tuple(self._queues.values()),
            devices=tuple(Device(index=number) for number in range(len(self._devices))),
            threads=(Thread(index=0),),
            processes=(Process(index=0),),
            calls_wait=True,
            opencl=OpenCl(programs=tuple(self._programs), buffers=tuple(self._buffers), marks=self._marks()),
            interleaved=interleaved,
        )

    def _activities(self) -> Activities:
        self._read_stamps()
        rows, stamps, forms = self._rows, self._stamps, self._forms
        form, count = rows["form"], len(rows)
        calls = Calls.of_columns(
            count,
            name=Pool.of(one.api for one in forms).take(form),
            start_ns=stamps["host_start_ns"],
            end_ns=stamps["host_end_ns"],
            prepared_ns=stamps["prepared_ns"],
            line=rows["line"],
            number=rows["number"],
        )
        made: Activities = Activities.of_columns(
            count,
            kind=np.array([KINDS.index(one.kind) for one in forms], np.int8)[form],
            queue=np.array([one.queue for one in forms], np.int64)[form],
            **{
                field: Pool.of(map(attrgetter(field), forms)).take(form)
                for field in ("opencl", "name", "grid", "workgroup", "route")
            },
            call=np.arange(count, dtype=np.int32),
            calls=calls,
            **{field: rows[field] for field in (*_ROWS[:6], "size_bytes")},
        )
        return made

    def _add(self, form: int, index: int, line: int, times: _Times, stamps: Stamps, prepared: str, size: int) -> None:
        """Add a command; its call has its number."""
        self._rows.add((index, line, *times, size, form))
        self._texts += (stamps.start, stamps.end, prepared)
        if len(self._texts) > _TOGETHER:
            self._read_stamps()

    def _read_stamps(self) -> None:
        times = self._unix_ns(self._texts).reshape(-1, len(_STAMPS))
        self._stamps.extend(len(times), **dict(zip(_STAMPS, times.T, strict=True)))
        self._texts.clear()

    def _unix_ns(self, texts: Sequence[str]) -> Numbers:
        """Return what `_host` returns for each text, as a column."""
        stated = [*filter(None, texts)]
        chars = np.frombuffer("".join(stated).encode(), np.uint8)
        if {*map(len, stated)} == {_STAMP} and len(chars) == _STAMP * len(stated):
            chars = chars.reshape(-1, _STAMP)
            seconds = np.ascontiguousarray(chars[:, :_SECONDS]).view(f"S{_SECONDS}").ravel()
            begins = np.flatnonzero(np.append(True, seconds[1:] != seconds[:-1]))
            bases = [self._second(stated[begin][:_SECONDS]) for begin in begins.tolist()]
            digits = chars[:, _SECONDS + 1 :] - ord("0")
            if None not in bases and int(digits.max()) < 10:
                made = np.full(len(texts), NO)
                times = np.repeat(np.array(bases), np.diff(begins, append=len(stated)))
                made[[*map(bool, texts)]] = times + digits @ _MICROSECONDS
                return made
        return numbers(map(self._host, texts), len(texts))

    def _second(self, text: str) -> int | None:
        """Return Unix time in ns of ``2018-02-09T10:36:48``; None if it is no time."""
        base = self._seconds.get(text)
        if base is None and (base := _time_of(text)) is not None:
            self._seconds[text] = base
        return base

    def _marks(self) -> Sequence[TimerMark]:
        """Return the most used kernel that only ever got the argument 0 = 00000000 and never ran (dvdt-ck.md 2.3a)."""
        for handle, kernel in self._forgotten.items():
            self._kernels.setdefault(handle, kernel)
        best = max(
            (kernel.zeros for kernel in self._kernels.values() if not kernel.enqueued and len(kernel.arguments) == 1),
            key=len,
            default=[],
        )
        if len(best) < 2:
            return ()
        columns = (numbers(column, len(best)) for column in zip(*best, strict=True))
        return TimerMarks.of_columns(len(best), **dict(zip(TimerMarks.fields, columns, strict=True)))

    def _other(self, call: Call | LostCall, index: int, line: int) -> None:
        if isinstance(call, LostCall):
            if call.kernel is None:  # there may be a great many; none is checked before it occurs again
                self._forgotten.update(self._kernels)
                self._kernels.clear()
            elif (kernel := self._kernels.get(call.kernel)) is not None:
                kernel.arguments = [""] * len(kernel.arguments)
            return
        if isinstance(call, (EnqueueReadBuffer, EnqueueWriteBuffer)):
            self._enqueue_copy(call, index, line)
            return
        if isinstance(call, CreateKernel):
            # Handles are reused and releases are not recorded: a new kernel starts without arguments.
            self._kernels[call.kernel] = _KernelObject(self._program_of.get(call.program))
        elif isinstance(call, CreateBuffer):
            handle = call.buffer
            if not handle and call.queue:
                handle, self._cut_pointers = call.queue, True
            if call.errcode not in (0, _UNKNOWN_ERROR) or (handle and handle.strip("0x") in _NULL):
                self._notes.remark("buffer that could not be created", f"call {index}")
                return
            shown, size = self._interned.setdefault(handle, handle), self._bytes(call.size, index)
            end = self._host((call.timestamp or NO_STAMPS).end)
            self._buffers.append(BufferCreated(number=index, line=line, handle=shown, size_bytes=size, end_ns=end))
        elif isinstance(call, CreateCommandQueue):
            self._queue(call.queue, call.device)
        elif isinstance(call, (CreateProgramWithSource, CreateProgramWithBinary)):
            source = bytes(call.source) if isinstance(call, CreateProgramWithSource) else b""
            source = self._interned.setdefault(source, source)
            place = self._program_of[call.program] = len(self._programs)
            self._programs.append(Program(index=place, number=index, handle=call.program, source=source))
        elif isinstance(call, BuildProgram):
            self._change_program(call.program, {"options": call.options})
        elif isinstance(call, CreateKernelsInProgram):
            count = int(call.num_kernels_ret) if 0 <= call.num_kernels_ret < _NO_COUNT else None
            self._change_program(call.program, {"kernels": count})
        if self._all_calls or isinstance(call, BuildProgram):
            self._keep_call(str(call.__struct_config__.tag), call.timestamp, index, line)

    def _change_program(self, handle: str, changes: dict[str, Any]) -> None:
        position = self._program_of.get(handle)
        if position is not None:
            self._programs[position] = msgspec.structs.replace(self._programs[position], **changes)

    def _keep_call(self, name: str, stamps: Began | None, index: int, line: int) -> None:
        start = self._host(stamps.start) if stamps else None
        end = self._host(stamps.end) if isinstance(stamps, Stamps) else None
        self._other_calls.append(HostCall(name, 0, start, end, line, index))

    def _queue(self, handle: str, device: str = "") -> int:
        queue = self._queues.get(handle)
        if queue is None:
            # The device of a queue from an unprofiled call is unknown: it may be a device of its own.
            number = self._devices.setdefault(device or f"of queue {handle}", len(self._devices))
            queue = self._queues[handle] = Queue(index=len(self._queues), device=number, handle=handle)
        return queue.index

    def _enqueue_kernel(self, call: EnqueueNDRangeKernel, index: int, line: int) -> None:
        kernel = self._kernels.get(call.kernel)
        if kernel is None:
            kernel = self._kernels[call.kernel] = self._unseen(call.kernel)
        if not kernel.enqueued:
            kernel.enqueued = True
            kernel.zeros = []
        prepared = kernel.prepared
        gwo, gws, lws = call.gwo, call.gws, call.lws
        # one flat tuple, because a million of them are hashed and compared
        key = (call.kernel, kernel.program, gwo, gws, lws, call.name, call.queue, *kernel.arguments)
        form = self._form_of.get(key)
        if form is None:
            offset = self._interned.setdefault(gwo, gwo) if len(gwo) == 3 else None
            grid, group = gws if len(gws) == 3 else None, lws if len(lws) == 3 and any(lws) else None
            handle, *arguments = (self._interned.setdefault(one, one) for one in (call.kernel, *kernel.arguments))
            form = self._form_of[handle, *key[1:7], *arguments] = len(self._forms)
            launch = OpenClLaunch(handle, tuple(arguments), kernel.program, offset)
            name, queue = self._kernel_name(call.name), self._queue(call.queue)
            self._forms.append(_Form("kernel", name, _LAUNCH, queue, grid, group, launch))
        times = self._device_times(call, index)
        self._add(form, index, line, times, call.timestamp or NO_STAMPS, prepared.start if prepared else "", 0)
        kernel.prepared = None
        if self._cut_pointers:
            # Several kernels share one cut handle: only arguments that were set since the last enqueue are certain.
            kernel.arguments = []

    def _enqueue_copy(self, call: EnqueueReadBuffer | EnqueueWriteBuffer, index: int, line: int) -> None:
        name = "read buffer" if isinstance(call, EnqueueReadBuffer) else "write buffer"
        form = self._form_of.get((name, call.queue))
        if form is None:
            form = self._form_of[name, call.queue] = len(self._forms)
            api, queue = str(call.__struct_config__.tag), self._queue(call.queue)
            self._forms.append(_Form("copy", name, api, queue, route=_COPIES[name]))
        times, size = self._device_times(call, index), self._bytes(call.size, index)
        self._add(form, index, line, times, call.timestamp or NO_STAMPS, "", size)

    def _device_times(self, call: Command, index: int) -> _Times:
        times = call.profiling
        if call.errcode not in (0, _UNKNOWN_ERROR):
            self._notes.add("enqueue that failed: not drawn", f"call {index}: errcode {call.errcode}")
        elif call.profiling_error is not None:
            self._notes.add("enqueue whose device times the profiler could not read", f"call {index}")
        elif times is None:
            self._notes.add("enqueue without device times", f"call {index}")
        elif times.queued is None or times.submit is None or times.start is None or times.end is None:
            self._notes.add("enqueue with incomplete device times", f"call {index}")
        else:
            queued, submit, start, end = times.queued, times.submit, times.start, times.end
            if 0 <= queued <= submit <= start <= end <= _MAX_INTEGER:  # a text that is no number
                if not type(queued) is type(submit) is type(start) is type(end) is int:
                    return int(queued), int(submit), int(start), int(end)
                return queued, submit, start, end
            self._notes.add("enqueue whose device times are out of order", f"call {index}")
        return _NO_TIMES

    def _bytes(self, size: int | float, index: int) -> int:
        if 0 <= size <= _MAX_INTEGER:
            return int(size)
        self._notes.add("size in bytes that cannot be", f"call {index}: {size}"[:60])
        return 0

    def _host(self, text: str) -> int | None:
        """Return Unix time in ns of ``2018-02-09T10:36:48.553314`` (dvdt-ck.md 1.4); None without a stamp."""
        if len(text) == _STAMP:
            try:
                return self._seconds[text[:_SECONDS]] + int(text[_SECONDS + 1 :]) * 1000
            except (KeyError, ValueError):
                pass  # a new second, or another text: the slow way
        if not text or text.startswith(_TEST_BUILD_EPOCH):
            return None  # built for timeofday: a constant, not a time
        base, fraction = self._second(text[:_SECONDS]), text[_SECONDS + 1 :]
        if base is not None:
            try:
                return base + (int(fraction.ljust(9, "0")[:9]) if fraction else 0)
            except ValueError:
                pass
        self._notes.add("host time that is not of the form 2018-02-09T10:36:48.553314", repr(text)[:40])
        return None


# -- dv/dt: the host's stamps (dvdt-ck.md 1.4) -------------------------------------------------------------------------

_SECOND = late(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
_SECONDS, _STAMP = len("2018-02-09T10:36:48"), len("2018-02-09T10:36:48.553314")
_MICROSECONDS = 1000 * 10 ** np.arange(_STAMP - _SECONDS - 1)[::-1]
_LATEST = (1 << 63) - 1_000_000_001
"""In ns; no trace has a later time."""


def _time_of(second: str) -> int | None:
    """Return Unix time in ns of ``2018-02-09T10:36:48``; None if it is invalid, or too far from today."""
    try:
        # Much faster than `strptime`; but it also accepts weeks, and times without colons.
        if _SECOND.fullmatch(second) is None:
            return None
        moment = datetime.datetime.fromisoformat(second).replace(tzinfo=datetime.UTC)
    except ValueError:
        return None
    base = int(moment.timestamp()) * 1_000_000_000
    return base if 0 <= base < _LATEST else None
