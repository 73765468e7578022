"""Records made by hand, as a dv/dt profile has them: each command with its call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from mio2trace.model.profile import (
    Activity,
    BufferCreated,
    Call,
    Clock,
    Device,
    OpenCl,
    OpenClLaunch,
    Process,
    Profile,
    Program,
    Queue,
    Range,
    Size3,
    Thread,
    TimerMark,
)
from mio2trace.ops.operation import Operation, OperationFacts


def made_operation(**fields: Any) -> Operation:
    """One with these fields, its own and those of its facts."""
    own, of_facts = _parted(fields)
    return Operation(**own, facts=OperationFacts(**of_facts))


def other_operation(of: Operation, **fields: Any) -> Operation:
    """The same with other fields."""
    own, of_facts = _parted(fields)
    return msgspec.structs.replace(of, **own, facts=msgspec.structs.replace(of.facts, **of_facts))


def _parted(fields: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    own = {name: value for name, value in fields.items() if name in Operation.__struct_fields__}
    return own, {name: value for name, value in fields.items() if name not in own}


CALLS = {"kernel": "clEnqueueNDRangeKernel", "read": "clEnqueueReadBuffer", "write": "clEnqueueWriteBuffer"}
ROUTES = {"read": "device to host", "write": "host to device"}


def enqueued(
    number: int,
    kind: Literal["kernel", "read", "write"],
    name: str,
    line: int = 0,
    queue: int = 0,
    *,
    thread: int = 0,
    queued_ns: int | None = None,
    submit_ns: int | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    host_start_ns: int | None = None,
    host_end_ns: int | None = None,
    prepared_ns: int | None = None,
    grid: Size3 | None = None,
    workgroup: Size3 | None = None,
    kernel: str = "",
    arguments: tuple[str, ...] = (),
    program: int | None = None,
    size_bytes: int = 0,
) -> Activity:
    """A command and its enqueue."""
    call = Call(CALLS[kind], thread, host_start_ns, host_end_ns, line, number, None, prepared_ns)
    return Activity(
        number,
        "kernel" if kind == "kernel" else "copy",
        name,
        line,
        queue,
        queued_ns,
        submit_ns,
        start_ns,
        end_ns,
        call,
        grid,
        workgroup,
        OpenClLaunch(kernel, arguments, program),
        size_bytes,
        ROUTES.get(kind, ""),
    )


_OF_CALL = {"host_start_ns": "start_ns", "host_end_ns": "end_ns", "prepared_ns": "prepared_ns", "thread": "thread"}
_OF_LAUNCH = ("kernel", "arguments", "program")


def changed(activity: Activity, **changes: Any) -> Activity:
    """The activity with other fields, those of its call and its launch among them."""
    assert activity.call is not None
    of_call = {_OF_CALL[name]: changes.pop(name) for name in _OF_CALL if name in changes}
    of_launch = {name: changes.pop(name) for name in _OF_LAUNCH if name in changes}
    if "number" in changes:
        of_call["number"] = changes["number"]
    call = msgspec.structs.replace(activity.call, **of_call)
    launch = msgspec.structs.replace(activity.opencl, **of_launch)
    return msgspec.structs.replace(activity, call=call, opencl=launch, **changes)


def with_opencl(profile: Profile, **changes: Any) -> Profile:
    """The profile with other programs, buffers or marks, and other fields of its own."""
    of_opencl = {name: changes.pop(name) for name in ("programs", "buffers", "marks") if name in changes}
    return msgspec.structs.replace(profile, opencl=msgspec.structs.replace(profile.opencl, **of_opencl), **changes)


def opencl_profile(
    *,
    activities: Sequence[Activity] = (),
    source: int = 0,
    records: int = 0,
    queues: Sequence[Queue] = (),
    programs: Sequence[Program] = (),
    buffers: Sequence[BufferCreated] = (),
    marks: Sequence[TimerMark] = (),
    other_calls: Sequence[Call] = (),
    interleaved: bool = False,
) -> Profile:
    """A profile of a profiler that waits for each command."""
    return Profile(
        source=source,
        records=records,
        activities=tuple(activities),
        other_calls=tuple(other_calls),
        queues=tuple(queues),
        calls_wait=True,
        opencl=OpenCl(programs=tuple(programs), buffers=tuple(buffers), marks=tuple(marks)),
        interleaved=interleaved,
    )


def process_of_a_job(
    launches: Sequence[tuple[str, int, int, int, int]],
    process: Process,
    clock: Clock,
    *,
    ranges: Sequence[Range] = (),
    ahead: int = 0,
) -> Profile:
    """Kernels of one stream: name, begin and end, then those of the call that launched each. The process's clock shows
    ``ahead`` ns more than the job's, to which ``ranges`` belong, too."""
    activities = [
        Activity(
            number, "kernel", name, start_ns=start + ahead, end_ns=end + ahead, correlation=number,
            call=Call("hipLaunchKernel", 0, called + ahead, returned + ahead, correlation=number),
        )
        for number, (name, start, end, called, returned) in enumerate(launches)
    ]  # fmt: skip
    moved = [msgspec.structs.replace(one, start_ns=one.start_ns + ahead, end_ns=one.end_ns + ahead) for one in ranges]
    return Profile(
        source=process.pid or 0, records=len(activities), activities=tuple(activities), ranges=tuple(moved),
        queues=(Queue(index=0, device=0, kind="stream"),), devices=(Device(index=0, clock=0),),
        threads=(Thread(index=0, tid=process.pid),), processes=(process,), clocks=(clock,),
    )  # fmt: skip
