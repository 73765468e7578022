"""XSpaces, counters and schema 4.1 with a canary in every text, those included that no reader takes."""

from __future__ import annotations

from collections.abc import Callable

from tests import rocpd_made, xspace_made
from tests.rocpd_made import Counted
from tests.tf_files import sized
from tests.xspace_made import Event, Line, plane


def _xspace(canary: str) -> list[bytes]:
    """Names of hosts, threads, kernels, ops, paths and files; errors and warnings of the profiler."""
    run = xspace_made.jax_run(private=canary)
    of: dict[str, int | float | str | bytes] = {
        "correlation_id": 900, "hlo_op": f"op {canary}", "hlo_module": f"jit {canary}", "program_id": 3,
        "name": f"jit(f)/jvp(A {canary})/op", "source": canary, "kernel_details": canary, "tf_op": f"{canary}:X",
    }  # fmt: skip
    kernels = [Event(f"k {canary}", 10**12, 10**9, of)]
    host = [
        Line(f"Host {canary}", [Event(f"hipLaunchKernel {canary}", 10**12, 10**6, of), Event(canary, 5, 10**9)], 77)
    ]
    more = plane("/device:GPU:1", [Line("Stream #90(Kernel)", kernels, 90)]) + plane("/host:CPU", host)
    text = canary.encode("utf-8", "replace")
    errors = b"".join(sized(field, text) for field in (2, 3))
    return [run + more + plane(f"/host:{canary}") + errors]


def _counted(canary: str) -> list[bytes]:
    """The names, units and formulas of counters, and what else the tables of a schema hold."""
    made = rocpd_made.tables(
        "3.0.5", [Counted(f"SQ {canary}", ((1.0,),) * len(rocpd_made.KERNELS), canary, 0, canary)], private=canary
    )
    return [rocpd_made.database(made)]


def _schema_4(canary: str) -> list[bytes]:
    return [rocpd_made.database(rocpd_made.tables("4.1.0", private=canary))]


FORMATS: dict[str, Callable[[str], list[bytes]]] = {
    "XSpace": _xspace, "ROCm rocpd with counters": _counted, "ROCm rocpd 4.1": _schema_4,
}  # fmt: skip
