"""Databases and tables of any size that have many of what a run has few: processes, devices."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tests import rocm_made
from tests.fuzz.slow_inputs import Files, Slow

_AT = 10**15
_PIDS = "INSERT INTO rocpd_info_process SELECT DISTINCT 'g', pid, pid, '', '', '' FROM rocpd_kernel_dispatch"
_ROW = 200
"""Bytes that a kernel takes, with its name, event and dispatch."""


def _run(count: int) -> rocm_made.Run:
    """Kernels one after the other."""
    kernels = [("ncclDevKernel_AllReduce_Sum_f32", _AT + 9 * at, _AT + 9 * at + 5, at, 7) for at in range(count)]
    return msgspec.structs.replace(rocm_made.run(), ranges=[], copies=[], calls=[], kernels=kernels)


def processes_of_a_database(size: int) -> Files:
    """One half ran at once, the others alone: nothing relates these to the first, nor to any other."""
    script = (
        f"UPDATE rocpd_kernel_dispatch SET pid = id, end = {_AT + 10**9};"
        "UPDATE rocpd_kernel_dispatch SET start = end + 9 * id, end = end + 9 * id + 5 WHERE id % 2 = 0;"
    )
    return [rocm_made.rocpd(_run(size // _ROW), script + _PIDS)]


def processes_with_collectives(size: int) -> Files:
    """Two each; of one half they fit, for the others no offset of two clocks makes them overlap."""
    script = (
        f"UPDATE rocpd_kernel_dispatch SET pid = id / 2, start = {_AT} + id % 2 * 1000;"
        "UPDATE rocpd_kernel_dispatch SET start = start + id % 2 * id * 3000 + id * 100000000 WHERE pid % 2 = 0;"
        "UPDATE rocpd_kernel_dispatch SET end = start + 5;"
    )
    return [rocm_made.rocpd(_run(size // _ROW), script + _PIDS)]


def _table(size: int, apart_ns: int) -> Files:
    """Processes of one kernel each, on one clock."""
    head = '"Index","KernelName","gpu-id","queue-id","pid","tid","grd","wgr","BeginNs","EndNs"\n'
    begins = ((at, _AT + apart_ns * at) for at in range(size // 70))
    rows = (f'{at},"k",0,0,{at},7,128,64,{begin},{begin + 5}\n' for at, begin in begins)
    return [(head + "".join(rows)).encode()]


def processes_of_a_table(size: int) -> Files:
    return _table(size, 9)


ROWS: Mapping[str, Slow] = {
    "processes of a database": Slow(processes_of_a_database),
    "processes with collectives": Slow(processes_with_collectives),
    "devices of a database": Slow(
        lambda size: [rocm_made.rocpd(_run(size // _ROW), "UPDATE rocpd_kernel_dispatch SET agent_id = id")]
    ),
    "processes that look alike": Slow(lambda size: _table(size, 0), "kernels"),
    "processes of a table, their kernels": Slow(processes_of_a_table, "kernels"),
}
