"""What a GPU profile states: queues, programs, buffers, enqueues and host calls."""

from __future__ import annotations

from typing import Literal

import msgspec

Size3 = tuple[int, int, int]


class Queue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A command queue. ``index`` counts from 0 in order of first appearance; ``device`` numbers devices likewise."""

    index: int
    device: int
    handle: str


class Program(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A program object and the build it last got.

    ``source`` is the program text as the file has it: the JSON object of its strings, or the text of its block;
    ``b""`` when made from a binary. It is evidence only and never written to any output. ``kernels`` is the number that
    clCreateKernelsInProgram returned, None when that call was not made.
    """

    index: int
    call_index: int
    handle: str
    source: bytes = b""
    options: str = ""
    kernels: int | None = None


class Enqueue(msgspec.Struct, frozen=True, gc=False):
    """One command that ran on the device: a kernel, or a read or write of a buffer.

    Device times (``queued_ns`` .. ``end_ns``) are None together when the source has none; so are the host times around
    the call. ``prepared_ns`` is the host time at which the program set the first of this kernel's arguments for this
    enqueue, None when it set none. ``gwo``, ``gws``, ``lws`` as logged: missing dimensions are 0, 1, 1, and ``lws`` is
    None when the runtime chose. ``arguments[i]`` is argument i in force at the enqueue as lower-case hex in memory
    order, ``""`` when unknown. ``program`` indexes the profile's programs, None when the source does not link them.
    ``queue`` indexes the queues. A reader makes equal sizes and arguments one object.
    """

    call_index: int
    kind: Literal["kernel", "read", "write"]
    name: str
    line: int = 0
    queue: int = 0
    thread: int = 0
    queued_ns: int | None = None
    submit_ns: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    host_start_ns: int | None = None
    host_end_ns: int | None = None
    prepared_ns: int | None = None
    gwo: Size3 | None = None
    gws: Size3 | None = None
    lws: Size3 | None = None
    kernel: str = ""
    arguments: tuple[str, ...] = ()
    program: int | None = None
    buffer: str = ""
    size_bytes: int = 0


class HostCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A profiled API call that is not an enqueue. Host times are None when the source has none."""

    call_index: int
    line: int = 0
    name: str
    thread: int = 0
    start_ns: int | None = None
    end_ns: int | None = None


class BufferCreated(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A buffer of ``size_bytes`` came into being. Releases are not profiled; a handle may come again."""

    call_index: int
    line: int = 0
    handle: str
    size_bytes: int
    end_ns: int | None = None


class TimerMark(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A Start or Stop of Caffe's OpenCL timer: an argument set on a kernel that never runs (dvdt-ck.md 2.3a)."""

    call_index: int
    line: int = 0
    host_ns: int | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """All that one profile states, in call order. ``calls`` is how many calls the source holds."""

    source: int
    calls: int
    queues: tuple[Queue, ...] = ()
    programs: tuple[Program, ...] = ()
    enqueues: tuple[Enqueue, ...] = ()
    host_calls: tuple[HostCall, ...] = ()
    buffers: tuple[BufferCreated, ...] = ()
    marks: tuple[TimerMark, ...] = ()
    interleaved: bool = False
    """True when ``line`` places enqueues and log lines in one order of execution."""
