"""rocprof v1's table of kernels: ``results.csv`` of ``--stats`` or ``--timestamp on`` (rocm-profiles.md 2).

    "Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","lds","scr","arch_vgpr",...,
    0,"void f<double>(double*, int) [clone .kd]",8,0,0,2046349,2046349,134217728,256,0,0,16,...,"BeginNs","EndNs",...

Columns by name; the sizes of all dimensions are multiplied there, and stand as x. Kernels have a thread and no call.
The clock counts ns since an unknown kind of boot time. A column in capitals is a counter of hardware (``SQ_WAVES``).
Not read: derived counters, times of dispatch and completion.

rocprofv2's table of kernels has the same columns under other names, as has ``timestamps.csv`` of rocprofiler-compute:

    Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,...,Wave_Size,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID
    1,60633,1,967084,967084,1048576,256,...,64,"f(double*, int) (.kd)",716380685145736,716380685161855,0
"""

from __future__ import annotations

from functools import cache
from operator import itemgetter
from typing import Any

from mio2trace.model.profile import Resources
from mio2trace.notes import Notes
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.rocm import tables
from mio2trace.readers.rocm.assembly import VALUE, Assemblies, Assembly, kernel_name, sizes, sort_by_name
from mio2trace.readers.rocm.tables import Table, integer
from mio2trace.source import Source

NAME = "rocprof kernels (CSV)"
_NEEDED = {"kernelname", "beginns", "endns"}
_OTHER = {
    "kernelname": "kernel_name", "beginns": "start_timestamp", "endns": "end_timestamp", "index": "dispatch_id",
    "gpu-id": "gpu_id", "queue-id": "queue_id", "grd": "grid_size", "wgr": "workgroup_size",
    "lds": "lds_per_workgroup", "scr": "scratch_per_workitem",
}  # fmt: skip
"""The names of columns in other tables. A table without queues is one of counters, merged from several runs."""
DISPATCH = "gpu-id", "queue-id", "tid", "grd", "wgr", "arch_vgpr", "accum_vgpr", "sgpr", "lds", "scr"
"""The columns of a dispatch, in the order of `as_dispatched`."""


def sniff(head: bytes) -> bool:
    there = set(tables.header(head))
    of_others = {_OTHER[name] for name in _NEEDED} | {"gpu_id"}
    return there >= _NEEDED or (there >= of_others and not there.isdisjoint(("queue-id", "queue_id")))


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return a profile for each process."""
    there = set(tables.header(source.head))

    def named(*columns: str) -> tuple[str, ...]:
        return tuple(one if one in there else _OTHER.get(one, one) for one in columns)

    text, *times = named("kernelname", "beginns", "endns")
    table = Table(source.lines(), text, tuple(times), notes, source.name)
    assemblies, pid_of = Assemblies(source, notes), cache(integer)
    index_at, name_at, pid_at, begin_at, end_at = table.places(*named("index", "kernelname", "pid", "beginns", "endns"))
    usual = itemgetter(
        *table.places("pid", *named(*DISPATCH[:5])),
        *table.places("arch_vgpr" if "arch_vgpr" in table else "vgpr", *named(*DISPATCH[6:])),
    )
    counters = [(name.upper(), at) for at, name in enumerate(table.columns) if sort_by_name(name.upper()) == "base"]
    known: dict[tuple[str, ...], dict[str, Any]] = {}
    for line, row in table.rows():
        assembly = assemblies[pid_of(row[pid_at])]
        span = assembly.times(integer(row[begin_at]), integer(row[end_at]), "kernel")
        if span is None:
            continue
        alike = usual(row)
        told = known.get(alike)
        if told is None:
            told = known[alike] = as_dispatched(assembly, *map(integer, alike[1:]))
        number, name = integer(row[index_at]), kernel_name(row[name_at])
        place = assembly.activity("kernel", name, times=span, number=number, line=line, **told)
        for counter, at in counters:
            if VALUE.fullmatch(row[at]):
                assembly.counts.add(place, counter, "", "base", float(row[at]))
    return [*assemblies.finish(options.host_calls)]


def as_dispatched(assembly: Assembly, *values: int | None) -> dict[str, Any]:
    """Return the arguments of `Assembly.activity` for the values of `DISPATCH`."""
    gpu, queue, tid, grid, group, *resources = values
    return {
        "queue": assembly.queue(assembly.numbered_device(gpu), queue, "queue"),
        "thread": None if tid is None else assembly.thread(tid),
        "grid": sizes(grid, 1, 1),
        "workgroup": sizes(group, 1, 1),
        "resources": Resources(*resources),
    }
