"""dv/dt: from profiled OpenCL calls to a `Profile` (dvdt-ck.md 1.2 .. 1.5, 2.3a).

Both containers, the JSON array and the text blocks, give the calls of `records` in call order. `ProfileFolder` follows
handles and arguments, which stay set until they change.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import msgspec

from mio2trace.model.profile import (
    NOT_OPENCL,
    Activity,
    BufferCreated,
    Device,
    OpenCl,
    OpenClLaunch,
    Process,
    Profile,
    Program,
    Queue,
    Thread,
    TimerMark,
)
from mio2trace.model.profile import Call as HostCall
from mio2trace.model.timer_marks import TimerMarks
from mio2trace.notes import Notes
from mio2trace.patterns import late
from mio2trace.readers.base import kernel_name
from mio2trace.readers.opencl.records import (
    NO_STAMPS,
    AnyCall,
    Began,
    BuildProgram,
    Call,
    Command,
    CreateBuffer,
    CreateCommandQueue,
    CreateKernel,
    CreateKernelsInProgram,
    CreateProgramWithBinary,
    CreateProgramWithSource,
    EnqueueNDRangeKernel,
    EnqueueReadBuffer,
    EnqueueWriteBuffer,
    LostCall,
    SetKernelArg,
    Stamps,
    TimedSetKernelArg,
)

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


class ProfileFolder:
    """Turns calls, in call order, into a `Profile`.

    ``host_calls``: keep every call as a `HostCall`; otherwise only program builds are kept.
    """

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
        self._activities: list[Activity] = []
        self._other_calls: list[HostCall] = []
        self._buffers: list[BufferCreated] = []
        self._interned: dict[Any, Any] = {word: word for word in (_LAUNCH, *_COPIES, *_COPIES.values())}
        self._launches: dict[tuple[Any, ...], OpenClLaunch] = {}
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
        return len(self._activities), len(self._programs)

    def _set_first(self, kernel: _KernelObject, call: SetKernelArg, index: int, line: int) -> None:
        """Take the first argument, or one that was not set before."""
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
            activities=tuple(self._activities),
            other_calls=tuple(self._other_calls),
            queues=tuple(self._queues.values()),
            devices=tuple(Device(index=number) for number in range(len(self._devices))),
            threads=(Thread(index=0),),
            processes=(Process(index=0),),
            calls_wait=True,
            opencl=OpenCl(programs=tuple(self._programs), buffers=tuple(self._buffers), marks=self._marks()),
            interleaved=interleaved,
        )

    def _marks(self) -> Sequence[TimerMark]:
        """Return the most used kernel that only ever got the argument 0 = 00000000 and never ran (dvdt-ck.md 2.3a)."""
        for handle, kernel in self._forgotten.items():
            self._kernels.setdefault(handle, kernel)
        best = max(
            (kernel.zeros for kernel in self._kernels.values() if not kernel.enqueued and len(kernel.arguments) == 1),
            key=len,
            default=[],
        )
        return TimerMarks(*zip(*best, strict=True)) if len(best) >= 2 else ()

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
            self._buffers.append(
                BufferCreated(
                    number=index,
                    line=line,
                    handle=self._interned.setdefault(handle, handle),
                    size_bytes=self._bytes(call.size, index),
                    end_ns=self._host((call.timestamp or NO_STAMPS).end),
                )
            )
        elif isinstance(call, CreateCommandQueue):
            self._queue(call.queue, call.device)
        elif isinstance(call, (CreateProgramWithSource, CreateProgramWithBinary)):
            source = bytes(call.source) if isinstance(call, CreateProgramWithSource) else b""
            self._program_of[call.program] = len(self._programs)
            self._programs.append(
                Program(
                    index=len(self._programs),
                    number=index,
                    handle=call.program,
                    source=self._interned.setdefault(source, source),
                )
            )
        elif isinstance(call, BuildProgram):
            self._change_program(call.program, {"options": call.options})
        elif isinstance(call, CreateKernelsInProgram):
            self._change_program(call.program, {"kernels": _count(call.num_kernels_ret)})
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
        same = self._interned.setdefault  # equal values are kept once
        stamps = call.timestamp or NO_STAMPS
        prepared = kernel.prepared
        host = self._host
        gwo, gws, lws = call.gwo, call.gws, call.lws
        # one flat tuple, because a million of them are hashed and compared
        offset = same(gwo, gwo) if len(gwo) == 3 else None
        key: tuple[Any, ...] = (call.kernel, kernel.program, offset, *kernel.arguments)
        launch = self._launches.get(key)
        if launch is None:
            launch = self._launches[key] = OpenClLaunch(key[0], key[3:], key[1], key[2])
        queue = self._queues.get(call.queue)
        queued, submit, start, end = self._device_times(call, index)
        self._activities.append(
            Activity(
                index,
                "kernel",
                same(call.name, kernel_name(call.name)),
                line,
                self._queue(call.queue) if queue is None else queue.index,
                queued,
                submit,
                start,
                end,
                HostCall(
                    _LAUNCH,
                    0,
                    host(stamps.start),
                    host(stamps.end),
                    line,
                    index,
                    None,
                    None if prepared is None else host(prepared.start),
                ),
                same(gws, gws) if len(gws) == 3 else None,
                same(lws, lws) if len(lws) == 3 and any(lws) else None,
                launch,
            )
        )
        kernel.prepared = None
        if self._cut_pointers:
            # Several kernels share one cut handle: only arguments that were set since the last enqueue are certain.
            kernel.arguments = []

    def _enqueue_copy(self, call: EnqueueReadBuffer | EnqueueWriteBuffer, index: int, line: int) -> None:
        name = "read buffer" if isinstance(call, EnqueueReadBuffer) else "write buffer"
        stamps = call.timestamp or NO_STAMPS
        queued, submit, start, end = self._device_times(call, index)
        api = str(call.__struct_config__.tag)
        self._activities.append(
            Activity(
                index,
                "copy",
                self._interned[name],
                line,
                self._queue(call.queue),
                queued,
                submit,
                start,
                end,
                HostCall(
                    self._interned.setdefault(api, api),
                    0,
                    self._host(stamps.start),
                    self._host(stamps.end),
                    line,
                    index,
                ),
                None,
                None,
                NOT_OPENCL,
                self._bytes(call.size, index),
                self._interned[_COPIES[name]],
            )
        )

    def _device_times(self, call: Command, index: int) -> tuple[int, int, int, int] | tuple[None, None, None, None]:
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
        return None, None, None, None

    def _bytes(self, size: int | float, index: int) -> int:
        if 0 <= size <= _MAX_INTEGER:
            return int(size)
        self._notes.add("size in bytes that cannot be", f"call {index}: {size}"[:60])
        return 0

    def _host(self, text: str) -> int | None:
        """Return Unix time in ns of a stamp such as ``2018-02-09T10:36:48.553314`` (dvdt-ck.md 1.4); None without a
        stamp."""
        if len(text) == 26:
            try:
                return self._seconds[text[:19]] + int(text[20:]) * 1000
            except (KeyError, ValueError):
                pass  # a new second, or another text: the slow way
        if not text or text.startswith(_TEST_BUILD_EPOCH):
            return None  # built for timeofday: a constant, not a time
        second, fraction = text[:19], text[20:]
        base = _time_of(second)
        if base is not None:
            self._seconds[second] = base
            try:
                return base + (int(fraction.ljust(9, "0")[:9]) if fraction else 0)
            except ValueError:
                pass
        self._notes.add("host time that is not of the form 2018-02-09T10:36:48.553314", repr(text)[:40])
        return None


def _count(number: int | float) -> int | None:
    return int(number) if 0 <= number < _NO_COUNT else None


# -- dv/dt: the host's stamps (dvdt-ck.md 1.4) -------------------------------------------------------------------------

_SECOND = late(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
_LATEST = (1 << 63) - 1_000_000_001
"""In ns; no trace has a later time."""


def _time_of(second: str) -> int | None:
    """Return Unix time in ns of a second such as ``2018-02-09T10:36:48``; None if it is invalid, or too far
    from today."""
    try:
        # Much faster than `strptime`; but it also accepts weeks, and times without colons.
        if _SECOND.fullmatch(second) is None:
            return None
        moment = datetime.datetime.fromisoformat(second).replace(tzinfo=datetime.UTC)
    except ValueError:
        return None
    base = int(moment.timestamp()) * 1_000_000_000
    return base if 0 <= base < _LATEST else None
