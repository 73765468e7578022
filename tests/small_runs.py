"""Small made-up dv/dt profiles, in each of their forms, and the log of the same run."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.opencl.dvdt import read_array
from mio2trace.source import BLOCK

Call = dict[str, Any]

SECOND = datetime.datetime(2026, 11, 20, 10, 0, 0)


@functools.lru_cache(1 << 12)
def stamp(us: int) -> str:
    """As Boost prints it: no fraction where it is zero."""
    return (SECOND + datetime.timedelta(microseconds=us)).isoformat()


class Program:
    """Makes the calls of a program, one after another, on one clock."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.us = 100
        self.event("clCreateCommandQueue", context="0x10", device="0x20", properties=0, errcode_ret="0", queue="0x30")

    def event(self, call: str, *, us: int = 5, errcode: int = 0, **fields: Any) -> Call:
        """A call that takes ``us``."""
        start, self.us = self.us, self.us + us + 10
        timestamp = {"start": stamp(start), "end": stamp(start + us)}
        self.calls.append({"call": call, **fields, "timestamp": timestamp, "errcode": errcode})
        return self.calls[-1]

    def program(self, source: str = "__kernel void k() {}\n", handle: str = "0x40", options: str = "-DX=1") -> None:
        text = {"0": source}
        common: dict[str, Any] = {"context": "0x10", "count": 1, "strings": "0x1", "lengths": "0"}
        self.event("clCreateProgramWithSource", **common, source=text, errcode_ret="0x2", program=handle)
        self.event(
            "clBuildProgram", program=handle, device_list=["0x20"], options=options, pfn_notify="0", user_data="0"
        )

    def kernel(self, name: str, handle: str, program: str = "0x40") -> None:
        self.event("clCreateKernel", program=program, name=name, errcode_ret="0x2", kernel=handle)

    def argument(self, kernel: str, index: int, value: str, errcode: int = 0) -> Call:
        return self.event(
            "clSetKernelArg",
            us=0,
            errcode=errcode,
            kernel=kernel,
            arg_index=index,
            arg_size=len(value) // 2,
            arg_value_ptr="0x3",
            arg_value=value,
        )

    def enqueue(self, name: str, kernel: str, us: int = 50, **fields: Any) -> Call:
        start = 1000 * self.us + 7_000_000_000
        profiling = {"queued": start + 1000, "submit": start + 2000, "start": start + 3000, "end": start + 1000 * us}
        sizes: Call = {"gwo": [0, 0, 0], "gws": [64, 2, 1], "lws": [8, 1, 1], "event_wait_list": [], "event": "0x4"}
        call: Call = {"name": name, "queue": "0x30", "kernel": kernel, **sizes, "profiling": profiling, **fields}
        return self.event("clEnqueueNDRangeKernel", us=us, **call)

    def copy(self, call: str, size: int = 4096, us: int = 20) -> Call:
        start = 1000 * self.us + 7_000_000_000
        profiling = {"queued": start + 1000, "submit": start + 2000, "start": start + 3000, "end": start + 1000 * us}
        common: Call = {"queue": "0x30", "buffer": "0x50", "blocking": 1, "offset": 0, "size": size, "ptr": "0x5"}
        return self.event(call, us=us, **common, event_wait_list=[], event="0", profiling=profiling)

    def buffer(self, size: int = 4096, handle: str = "0x50", errcode: int = 0) -> Call:
        common: Call = {"context": "0x10", "flags": 1, "size": size, "host_ptr": "0", "errcode_ret": "0x2"}
        return self.event("clCreateBuffer", errcode=errcode, **common, buffer=handle)

    def mark(self) -> None:
        """Caffe's timer."""
        self.argument("0x66", 0, "00000000")


def small() -> list[Call]:
    """A bit of everything."""
    run = Program()
    run.program('// "quoted", }, {"call": "clX"}\n[dv/dt] clSetKernelArg\n')
    run.buffer()
    run.kernel("k", "0x60")
    run.argument("0x60", 0, "5000000000000000")
    run.argument("0x60", 1, "2c010000")
    run.enqueue("k", "0x60")
    run.argument("0x60", 1, "2d010000")
    run.enqueue("k", "0x60", lws=[0, 0, 0])
    run.copy("clEnqueueWriteBuffer")
    run.copy("clEnqueueReadBuffer")
    return run.calls


HANDLES = {
    "clCreateCommandQueue": "queue",
    "clCreateProgramWithSource": "program",
    "clCreateKernel": "kernel",
    "clCreateBuffer": "buffer",
}
"""What a call returns: the last line of its block."""


def as_json(calls: Sequence[Mapping[str, Any]], indent: str | int | None = "\t") -> bytes:
    if indent is None:
        return json.dumps(calls, separators=(",", ":")).encode()
    return _laid_out(calls, "\n", " " * indent if isinstance(indent, int) else indent).encode()


def _laid_out(value: Any, line: str, indent: str) -> str:
    """What `json.dumps` makes with an indent and the separators ``", "`` and ``":\\t"``, in a third of the time."""
    if isinstance(value, dict) and value:
        inner = line + indent
        items = [f"{json.dumps(key)}:\t{_laid_out(item, inner, indent)}" for key, item in value.items()]
        return f"{{{inner}{f', {inner}'.join(items)}{line}}}"
    if isinstance(value, (list, tuple)) and value:
        inner = line + indent
        return f"[{inner}{f', {inner}'.join([_laid_out(item, inner, indent) for item in value])}{line}]"
    return json.dumps(value)


def as_text(calls: Sequence[Mapping[str, Any]]) -> bytes:
    """The text form, with the fields in the order of the call."""
    out: list[str] = []

    def lines(name: str, key: str, value: Any) -> None:
        if isinstance(value, list):
            value = " ".join(map(str, value))
        out.append(f"[dv/dt] {name} {key} {value}".rstrip())

    for call in calls:
        name = call["call"]
        out.append(f"[dv/dt] {name}")
        for key, value in call.items():
            if key == "source":
                for number, text in value.items():
                    out.append(f"[dv/dt] {name} sources[{number}] <<\n{text}\n[dv/dt] {name} sources[{number}] >>")
            elif key == "timestamp":
                lines(name, "start", value["start"])
            elif key not in ("call", "profiling", "errcode", HANDLES.get(name)):
                lines(name, key, value)
        if "profiling" in call:
            lines(name, "profiling", list(call["profiling"].values()))
        lines(name, "end", call["timestamp"]["end"])
        lines(name, "errcode", call["errcode"])
        if name in HANDLES:
            lines(name, HANDLES[name], call[HANDLES[name]])
        out.append("")
    return ("\n".join(out) + "\n").encode()


def read(
    data: bytes, notes: Notes | None = None, *, block: int = BLOCK, host_calls: bool = False, place: str = "prof"
) -> Profile:
    """The profile of an array that comes in blocks of ``block`` bytes."""
    blocks = [data[at : at + block] for at in range(0, len(data), block)]
    return read_array(blocks, 0, place, ReadOptions(host_calls=host_calls), Notes() if notes is None else notes)


def kinds(notes: Notes) -> dict[str, int]:
    return {note.kind: note.count for note in notes}


def benchmark(*, iterations: int = 1, marks: bool = True, kernels: int = 2) -> tuple[list[Call], str]:
    """A run of ``caffe time`` with the layers conv1 and ip1, forward only: its calls and its log (UTC + 1 h)."""
    run = Program()
    run.program()
    run.buffer()
    for layer in ("conv1", "ip1"):
        run.kernel(f"{layer}_k", f"0x7{layer[-3]}")
    handles = {"conv1": "0x71", "ip1": "0x72"}
    log: list[str] = []

    def say(text: str) -> None:
        at = SECOND + datetime.timedelta(hours=1, microseconds=run.us)
        log.append(f"I{at:%m%d %H:%M:%S.%f}  2155 caffe.cpp:465] {text}")
        run.us += 10

    def mark() -> None:
        if marks:
            run.mark()

    def forward() -> None:
        for layer, kernel in handles.items():
            mark()
            for number in range(kernels):
                run.argument(kernel, 0, f"{number:02x}000000")
                run.enqueue(f"{layer}_k{number}", kernel)
            mark()

    def warm_up() -> None:
        nonlocal marks
        kept, marks = marks, False
        forward()
        marks = kept

    say("Performing Forward")
    warm_up()
    say("Initial loss: 0")
    say("*** Benchmark begins ***")
    say(f"Testing for {iterations} iterations.")
    mark()
    for number in range(iterations):
        begin = run.us
        mark()
        mark()
        forward()
        mark()
        mark()
        say(f"Iteration: {number + 1} forward-backward time: {(run.us - begin) / 1000:g} ms.")
    say("Average time per layer: ")
    for layer in handles:
        say(f"{layer:>10}\tforward: 0.12 ms.")
        say(f"{layer:>10}\tbackward: 0 ms.")
    mark()
    say("Average Forward pass: 0.24 ms.")
    say("*** Benchmark ends ***")
    return run.calls, "\n".join(log) + "\n"


def plain(profile: Profile) -> Any:
    """What two forms of one profile must have in common: all but lines and the program's text."""
    value = msgspec.to_builtins(profile, enc_hook=list)

    def strip(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: strip(part) for key, part in item.items() if key not in ("line", "source", "interleaved")}
        return [strip(part) for part in item] if isinstance(item, (list, tuple)) else item

    return strip(value)
