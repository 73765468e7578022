"""rocprof v1's table of kernels: ``results.csv`` of ``--stats`` or ``--timestamp on`` (rocm-profiles.md 2).

    "Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","lds","scr","arch_vgpr",...,
    0,"void f<double>(double*, int) [clone .kd]",8,0,0,2046349,2046349,134217728,256,0,0,16,...,"BeginNs","EndNs",...

Columns by name; the sizes of all dimensions are multiplied there, and stand as x. Kernels have a thread and no call.
The clock counts ns since boot, of which kind nothing tells. Not read: counters, times of dispatch and completion.
"""

from __future__ import annotations

from mio2trace.model.profile import Clock, Resources
from mio2trace.notes import Notes
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.rocm import tables
from mio2trace.readers.rocm.assembly import Assembly, kernel_name, sizes
from mio2trace.readers.rocm.tables import Table, integer
from mio2trace.source import Source

NAME = "rocprof v1 kernels (CSV)"
_NEEDED = {"kernelname", "beginns", "endns"}


def sniff(head: bytes) -> bool:
    return set(tables.header(head)) >= _NEEDED


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """A profile for each process."""
    table = Table(source.lines(), "kernelname", ("beginns", "endns"), notes, source.name)
    of: dict[str, Assembly] = {}
    (
        index_at, name_at, gpu_at, queue_at, pid_at, tid_at, grid_at, group_at, lds_at, scratch_at, accum_at, sgpr_at,
        begin_at, end_at,
    ) = table.places(
        "index", "kernelname", "gpu-id", "queue-id", "pid", "tid", "grd", "wgr", "lds", "scr", "accum_vgpr", "sgpr",
        "beginns", "endns",
    )  # fmt: skip
    (vgpr_at,) = table.places("arch_vgpr" if "arch_vgpr" in table else "vgpr")
    for line, row in table.rows():
        assembly = of.get(row[pid_at])
        if assembly is None:
            assembly = of[row[pid_at]] = Assembly(
                source.index,
                Clock("opaque", scope=f"file {source.index}"),
                notes,
                source.name,
                integer(row[pid_at]),
                numbers="event_index",
            )
        times = assembly.times(integer(row[begin_at]), integer(row[end_at]), "kernel")
        if times is None:
            continue
        gpu, tid = integer(row[gpu_at]), integer(row[tid_at])
        device = assembly.device(gpu, "" if gpu is None else f"device {gpu}")
        taken = (integer(row[at]) for at in (vgpr_at, accum_at, sgpr_at, lds_at, scratch_at))
        assembly.activity(
            "kernel", kernel_name(row[name_at]), assembly.queue(device, integer(row[queue_at]), "queue"), times,
            number=integer(row[index_at]), grid=sizes(integer(row[grid_at]), 1, 1),
            workgroup=sizes(integer(row[group_at]), 1, 1), resources=Resources(*taken), line=line,
            thread=None if tid is None else assembly.thread(tid),
        )  # fmt: skip
    return [assembly.finish(options.host_calls) for assembly in of.values() if not assembly.empty]
