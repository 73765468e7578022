"""A made-up profile format, as docs and tests show how one is added: a line a record, times in ns on one clock.

made-up trace 1
range 7 100 900 net/conv1
call 7 150 180 launch 1
kernel 0 400 700 1 gemm
"""

from __future__ import annotations

from mio2trace.model.profile import Activity, Call, Clock, Device, Process, Profile, Queue, Range, Thread
from mio2trace.notes import Notes
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.source import Source

NAME = "made-up trace"


def sniff(head: bytes) -> bool:
    return head.startswith(b"made-up trace 1\n")


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    threads: dict[str, Thread] = {}
    queues: dict[str, Queue] = {}
    calls: dict[int, Call] = {}
    ranges: list[Range] = []
    kernels: list[tuple[str, int, int, int, str, int]] = []
    for number, line in enumerate(source.lines(), 1):
        kind, *words = line.decode().split()
        if kind in ("range", "call"):
            tid, begin, end, text = words[:4]
            thread = threads.setdefault(tid, Thread(index=len(threads), tid=int(tid))).index
            if kind == "range":
                ranges.append(Range("range", text, thread, int(begin), int(end)))
            else:
                calls[int(words[4])] = Call(text, thread, int(begin), int(end), number, correlation=int(words[4]))
        elif kind == "kernel":
            queues.setdefault(words[0], Queue(index=len(queues), device=0, kind="stream", number=int(words[0])))
            kernels.append((words[0], int(words[1]), int(words[2]), int(words[3]), words[4], number))
    activities = [
        Activity(
            at, "kernel", name, line, queues[queue].index, start_ns=begin, end_ns=end, call=calls.get(correlation),
            correlation=correlation,
        )
        for at, (queue, begin, end, correlation, name, line) in enumerate(kernels)
    ]  # fmt: skip
    launched = {kernel[3] for kernel in kernels}
    profile = Profile(
        source=source.index, records=len(kernels) + len(calls) + len(ranges), activities=tuple(activities),
        other_calls=tuple(call for key, call in calls.items() if key not in launched), ranges=tuple(ranges),
        queues=tuple(queues.values()), devices=(Device(index=0, clock=0),), threads=tuple(threads.values()),
        processes=(Process(index=0),), clocks=(Clock("boottime"),),
    )  # fmt: skip
    return [profile]
