"""XSpaces, counters and schema 4.1 with a canary in every text, those included that no reader takes."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable

from tests import rocpd_made, xspace_made
from tests.planted import miopen
from tests.rocpd_made import Counted
from tests.tf_files import sized
from tests.xspace_made import Event, Line, plane

_KEY = "3-99-99-11x11-16-23-23-1-0x0-4x4-1x1-0-NCHW-FP32-F"
"""Of a convolution of the log."""


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


def _find_db(canary: str) -> list[bytes]:
    """Solvers and parameters of a find-db beside the log whose convolution they are of; its lines of no form."""
    lines = (
        f"{_KEY}=GemmFwdRest:0.12,0,miopenConvolutionFwdAlgoGEMM;ConvAsm1x1U:0.1,0,{canary};{canary}:0.1,0,x",
        f"{_KEY}={canary}:0.05,0,miopenConvolutionFwdAlgoDirect;ConvWinograd:{canary}",
        f"{_KEY}{canary}=GemmFwdRest:0.12,0,miopenConvolutionFwdAlgoGEMM", canary,
    )  # fmt: skip
    return [miopen.LOG.encode(), miopen.PROFILE, "\n".join([*lines, ""]).encode("utf-8", "replace")]


def _perf_db(canary: str) -> list[bytes]:
    """The same of a perf-db in SQLite, and the texts of its problems."""
    columns = (
        "solver", "params", "layout", "data_type", "direction", "bias", "in_d", "fil_d", "pad_d", "conv_stride_d",
        "dilation_d", "spatial_dim", "in_channels", "out_channels", "batchsize", "group_count",
    )  # fmt: skip
    sizes = {"in": 99, "fil": 11, "pad": 0, "conv_stride": 4, "dilation": 1}
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        of_axis = [f"{name}_{axis}" for name in sizes for axis in "hw"]
        database.execute(f"CREATE TABLE config (id, {', '.join((*columns[2:], *of_axis))})")
        database.execute("CREATE TABLE perf_db (id, solver, config, params)")
        for number, (layout, kind) in enumerate((("NCHW", "FP32"), (canary, "FP32"), ("NCHW", canary))):
            values: tuple[int | str, ...] = (number, layout, kind, "F", 0, 1, 1, 0, 1, 1, 2, 3, 16, 1, 1)
            values += tuple(size for size in sizes.values() for _ in "hw")
            database.execute(f"INSERT INTO config VALUES ({', '.join('?' * len(values))})", values)
            for solver in ("ConvAsm1x1U", canary):
                database.execute("INSERT INTO perf_db VALUES (?, ?, ?, ?)", (number, solver, number, canary))
        database.commit()
        return [miopen.LOG.encode(), miopen.PROFILE, database.serialize()]


def _tunable(canary: str) -> list[bytes]:
    rows = (
        "Validator,PT_VERSION,2.9.0", f"Validator,GCN_ARCH_NAME,{canary}", f"Validator,{canary},gfx906",
        f"GemmTunableOp_float_TN,tn_384_12_384,{canary},0.01", f"GemmTunableOp_{canary}_TN,tn_384_12_384,Default,0.01",
        "GemmTunableOp_float_TN,tn_16_529_363,Gemm_Rocblas_114,0.0118", canary,
    )  # fmt: skip
    return [miopen.LOG.encode(), miopen.PROFILE, "\n".join([*rows, ""]).encode("utf-8", "replace")]


def _blas(canary: str) -> list[bytes]:
    """Lines of hipBLASLt and rocBLAS in a log, and MIOpen's performance records."""
    lines = (
        f"hipblaslt-bench --api_method c -m 16 -n 529 -k 363 --a_type {canary} --{canary} --solution_index {canary}",
        f"./{canary}/rocblas-bench -f gemm_ex --transposeA N -m 16 -n 529 -k 363 --a_type f32_r {canary}",
        f"rocblas_gemm_ex,N,N,16,529,363,1,0x1,{canary},1,0x2,f32_r,1,0,0x3,f32_r,1,0x3,f32_r,1,f,0,7",
        f"[2026-01-01 00:00:00][HIPBLASLT][1][Trace][{canary}] A=0x1 Adesc=[type={canary} rows=16 cols=363 ld=1]",
        f"- {{ function: matmul, M: 16, N: 529, K: 363, transA: N, transB: N, a_type: {canary}, {canary}: 2 }}",
        f'- {{ rocblas_function: "{canary}", a_type: "f32_r", transA: \'N\', transB: \'N\', M: 16, N: 529, K: 363 }}',
        json.dumps({"solution": canary, "workspace_bytes": 0, "phase": canary, canary: 1,
                    "performance_configs": [{"exec_number": 1, "time_ms": 0.5, "config": canary}]}),
    )  # fmt: skip
    own = miopen.LOG.splitlines()
    return ["\n".join([*own[:40], *lines, *own[40:], *lines, ""]).encode("utf-8", "replace"), miopen.PROFILE]


FORMATS: dict[str, Callable[[str], list[bytes]]] = {
    "XSpace": _xspace, "ROCm rocpd with counters": _counted, "ROCm rocpd 4.1": _schema_4,
    "MIOpen log and find-db": _find_db, "MIOpen log and perf-db": _perf_db, "MIOpen log and TunableOp": _tunable,
    "MIOpen log and lines of BLAS libraries": _blas,
}  # fmt: skip
