"""dv/dt profile as text blocks among a program's output (dvdt-ck.md 1.7).

    [dv/dt] clEnqueueNDRangeKernel
    [dv/dt] clEnqueueNDRangeKernel name im2col_float
    [dv/dt] clEnqueueNDRangeKernel gws 16384 1 1
    [dv/dt] clEnqueueNDRangeKernel profiling 52910121520869 52910121595577 52910130751092 52910132647472

A block begins with a line that contains only the call's name, and ends before the next such line. The last block may be
cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.readers import opencl as cl
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.opencl import ProfileFolder

PREFIX = b"[dv/dt] cl"
_BATCH = 4096
_HANDLES = {
    "clCreateCommandQueue": "queue",
    "clCreateProgramWithSource": "program",
    "clCreateProgramWithBinary": "program",
    "clCreateKernel": "kernel",
    "clCreateBuffer": "buffer",
}
"""The last field of a call that creates an object; the last field of other calls is the errcode."""
_PROFILING_ERROR = "output profiling info error:"

Fields = dict[str, str]


class BlockDecoder:
    """Reads the lines of a log with dv/dt text, and returns the profile at the end."""

    def __init__(self, source: int, place: str, options: ReadOptions, notes: Notes) -> None:
        self._folder = ProfileFolder(source, notes, place, host_calls=options.host_calls)
        self._notes = notes
        self._place = place
        self._calls: list[cl.AnyCall] = []
        self._lines: list[int] = []
        self._name = ""
        self._line = 0
        self._fields: Fields = {}
        self._source: list[bytes] = []
        self._source_end = b""
        self._cut_line = False
        self.blocks = 0

    @property
    def in_source(self) -> bool:
        """Whether the next line belongs to a program's text, whatever it looks like."""
        return bool(self._source_end)

    def feed(self, number: int, line: bytes) -> bool:
        """Read a line if it is part of a block, including program text."""
        if self._source_end:
            at = line.find(self._source_end)
            if at < 0:
                self._source.append(line)
            else:
                self._source.append(line[:at])
                self._source_end = b""
            return True
        at = line.find(PREFIX)
        if at < 0:
            return False
        name, _, rest = line[at + 8 :].rstrip(b"\r\n").partition(b" ")
        # The last line of a file may stop inside a number.
        self._cut_line = not line.endswith(b"\n")
        if not rest and self._cut_line:
            if not self._cut():
                self._notes.cut_off(self._place, f"line {number}")
        elif not rest:
            self._close()
            self._name = name.decode(errors="replace")
            self._line = number
            self.blocks += 1
        elif name.decode(errors="replace") != self._name:
            self._notes.add("dv/dt line outside its block: skipped", f"{self._place}:{number}")
        elif name == b"clCreateProgramWithSource" and rest.startswith(b"sources[") and rest.endswith(b" <<"):
            self._source_end = line[at : at + 8] + name + b" " + rest[:-2] + b">>"
        else:
            text = rest.decode(errors="replace")
            if text.startswith(_PROFILING_ERROR):
                self._fields["profiling_error"] = text[len(_PROFILING_ERROR) :].strip()
            else:
                key, _, value = text.partition(" ")
                if not self._cut_line or (key == "errcode" and value):
                    self._fields[key] = value
        return True

    def finish(self, interleaved: bool) -> Profile | None:
        """Return the profile; None if there was no block."""
        self._close(last=True)
        if not self.blocks:
            return None
        if self._cut_line:
            self._notes.cut_off(self._place)
        self._folder.add(self._calls, self._lines)
        return self._folder.finish(interleaved=interleaved)

    def _cut(self) -> bool:
        return bool(self._name and (self._source_end or _HANDLES.get(self._name, "errcode") not in self._fields))

    def _close(self, last: bool = False) -> None:
        if not self._name:
            return
        place = f"{self._place}:{self._line}"
        cut = self._cut()
        self._source_end = b""
        call: cl.AnyCall = None
        if self._name not in _CALLS:
            self._notes.add("profiled call of an unknown kind", f"{cl.shown_call(self._name)} at {place}")
        else:
            if cut and last:
                self._notes.cut_off(self._place, f"line {self._line}")
            elif cut:
                self._notes.add("dv/dt block cut off", place)
            try:
                call = _made(self._name, self._fields)
            except (ValueError, KeyError, TypeError) as error:
                if not cut:
                    self._notes.add("profiled call that could not be read", f"{place}: {error}")
                if self._name in ("clSetKernelArg", "clCreateKernel"):
                    call = cl.LostCall(self._fields.get("kernel"))
        errcode = self._fields.get("errcode", "0")
        if self._name == "clSetKernelArg" and errcode not in ("0", "-1"):
            call = None  # it failed, so the earlier value stays set
            self._notes.remark("clSetKernelArg that failed: without effect", f"{place}: errcode {errcode}")
        if isinstance(call, cl.CreateProgramWithSource):
            call.source = msgspec.Raw(b"".join(self._source))
        self._source.clear()
        self._calls.append(call)
        self._lines.append(self._line)
        if len(self._calls) >= _BATCH:
            self._folder.add(self._calls, self._lines)
            self._calls, self._lines = [], []
        self._name = ""
        self._fields = {}


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


def _counters(text: str) -> cl.Counters:
    queued, submit, start, end = map(int, text.split())
    return cl.Counters(queued, submit, start, end)


_Forms = dict[str, Callable[[str], Any]]
_COMMAND: _Forms = {"queue": str, "profiling?": _counters, "profiling_error?": int, "errcode?": int}
_COPY: _Forms = _COMMAND | {"buffer": str, "size": int}
_CALLS: dict[str, tuple[Callable[..., cl.Call], _Forms]] = {
    "clSetKernelArg": (cl.TimedSetKernelArg, {"kernel": str, "arg_index": int, "arg_value": str}),
    "clEnqueueNDRangeKernel": (
        cl.EnqueueNDRangeKernel,
        _COMMAND | {"name": str, "kernel": str, "gwo?": _sizes, "gws?": _sizes, "lws?": _sizes},
    ),
    "clEnqueueReadBuffer": (cl.EnqueueReadBuffer, _COPY),
    "clEnqueueWriteBuffer": (cl.EnqueueWriteBuffer, _COPY),
    "clCreateBuffer": (cl.CreateBuffer, {"size": int, "errcode?": int, "buffer?": str}),
    "clCreateKernel": (cl.CreateKernel, {"program": str, "name": str, "kernel?": str}),
    "clCreateKernelsInProgram": (cl.CreateKernelsInProgram, {"program": str, "num_kernels_ret?": int}),
    "clBuildProgram": (cl.BuildProgram, {"program": str, "options?": str}),
    "clCreateProgramWithSource": (cl.CreateProgramWithSource, {"program?": str}),
    "clCreateProgramWithBinary": (cl.CreateProgramWithBinary, {"program?": str}),
    "clCreateCommandQueue": (cl.CreateCommandQueue, {"device": str, "queue": str}),
}
"""The fields of each call; those with a question mark may be missing."""


def _made(name: str, fields: Fields) -> cl.Call:
    """Raises `KeyError` or `ValueError` for a field that is missing or of another form."""
    kind, forms = _CALLS[name]
    stamps = cl.Stamps(fields.get("start", ""), fields.get("end", "")) if "start" in fields else None
    values: dict[str, Any] = {}
    for field, of in forms.items():
        key = field.rstrip("?")
        if key == field or key in fields:
            values[key] = of(fields[key])
    return kind(timestamp=stamps, **values)
