"""rocprof v1's table of kernels: ``results.csv`` of ``--stats`` or ``--timestamp on`` (rocm-profiles.md 2).

    "Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","lds","scr","arch_vgpr",...,
    0,"void f<double>(double*, int) [clone .kd]",8,0,0,2046349,2046349,134217728,256,0,0,16,...,"BeginNs","EndNs",...

Columns by name; the sizes of all dimensions are multiplied there, and stand as x. Kernels have a thread and no call.
The clock counts ns since an unknown kind of boot time. Not read: counters, times of dispatch and completion.
"""

from __future__ import annotations

from functools import cache
from operator import itemgetter
from typing import Any

from mio2trace.model.profile import Resources
from mio2trace.notes import Notes
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.rocm import tables
from mio2trace.readers.rocm.assembly import Assemblies, Assembly, kernel_name, sizes
from mio2trace.readers.rocm.tables import Table, integer
from mio2trace.source import Source

NAME = "rocprof v1 kernels (CSV)"
_NEEDED = {"kernelname", "beginns", "endns"}
DISPATCH = "gpu-id", "queue-id", "tid", "grd", "wgr", "arch_vgpr", "accum_vgpr", "sgpr", "lds", "scr"
"""The columns of a dispatch, in the order of `as_dispatched`."""


def sniff(head: bytes) -> bool:
    return set(tables.header(head)) >= _NEEDED


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return a profile for each process."""
    table = Table(source.lines(), "kernelname", ("beginns", "endns"), notes, source.name)
    assemblies, pid_of = Assemblies(source, notes), cache(integer)
    index_at, name_at, pid_at, begin_at, end_at = table.places("index", "kernelname", "pid", "beginns", "endns")
    usual = itemgetter(
        *table.places("pid", *DISPATCH[:5]),
        *table.places("arch_vgpr" if "arch_vgpr" in table else "vgpr", *DISPATCH[6:]),
    )
    known: dict[tuple[str, ...], dict[str, Any]] = {}
    for line, row in table.rows():
        assembly = assemblies[pid_of(row[pid_at])]
        times = assembly.times(integer(row[begin_at]), integer(row[end_at]), "kernel")
        if times is None:
            continue
        alike = usual(row)
        told = known.get(alike)
        if told is None:
            told = known[alike] = as_dispatched(assembly, *map(integer, alike[1:]))
        number, name = integer(row[index_at]), kernel_name(row[name_at])
        assembly.activity("kernel", name, times=times, number=number, line=line, **told)
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
