"""dv/dt: the eleven profiled OpenCL calls as they are written (dvdt-ck.md 1.2, 1.3).

Keys may be missing in files of other programs, so every field has a default.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from mio2trace.patterns import late

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
