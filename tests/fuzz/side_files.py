"""XSpaces, rocpd of every schema, tables of counters, MIOpen's databases, logs of GEMM libraries, TunableOp."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
from collections.abc import Callable, Sequence

from tests import rocpd_made, xspace_made
from tests.rocpd_made import Counted
from tests.xspace_made import Event, Line, plane

Chance = random.Random
_TYPES = ("f16_r", "f32_r", "i8_r", "", "x" * 40, "R_16F")
_SIZES = (1, 7, 64, 4096, 0, 1 << 40, 10**13, -1)
_KEYS = (
    "3-224-224-7x7-64-112-112-32-3x3-2x2-1x1-0-NCHW-FP32-F", "64-112-112-7x7-3-224-224-32-3x3-2x2-1x1-0-NCHW-FP16-B",
    "96-5-48-83-3x3x3-96-3-46-81-1-0x0x0-1x1x1-1x1x1-0-NCDHW-BF16-W",
    "64-8-8-3x3-64-8-8-8-1x1-1x1-1x1-0-NHWC-FP32-F_g4",
    "0-0-0-0x0-0-0-0-0-0x0-0x0-0x0-0-NCHW-FP32-F", "9-9-9-9x9-9-9-9-9-9x9-9x9-9x9-9-NCHW-XX-W_ciFP8",
)  # fmt: skip
_SOLVERS = ("GemmFwdRest", "ConvDirectNaiveConvFwd", "ConvWinograd3x3MultipassWrW<7-2-1-1>", "ConvAsm1x1U", "x", "")


def xspace(chance: Chance, names: Sequence[str]) -> tuple[list[bytes], int]:
    """A run of JAX or TensorFlow, or planes with any names and times; and the kernels that must be drawn or noted."""
    pick = chance.randrange(4)
    if pick == 0:
        devices, steps = chance.randint(1, 3), chance.randint(1, 3)
        data = xspace_made.jax_run(
            devices, steps, events_first=chance.random() < 0.5, paths=chance.random() < 0.5,
            calls=chance.random() < 0.7, marked=chance.random() < 0.5, environment=chance.random() < 0.7,
        )  # fmt: skip
        return [data], devices * steps * len(xspace_made.OPS)
    if pick == 1:
        return [xspace_made.tf_run()], 10
    kernels: list[Event] = []
    for _ in range(chance.randint(1, 12)):
        stats: dict[str, int | float | str | bytes] = {"correlation_id": chance.choice((0, 1, 2, -1, 1 << 62))}
        if chance.random() < 0.6:
            stats |= {
                "hlo_op": chance.choice((*names, "a", "b", "c.1")), "hlo_module": chance.choice(("jit_f", "", "m/n")),
                "program_id": chance.choice((1, 2, -5)), "name": chance.choice((*names, "jit(f)/jvp(A)/B/op", "((((")),
            }  # fmt: skip
        if chance.random() < 0.5:
            stats["kernel_details"] = chance.choice(
                (" grid:4,2,1 block:64,1,1", "grid:0,0,0", "grid:9999999999,1,1", ":")
            )
        if chance.random() < 0.2:
            stats["step_num"] = chance.choice((0, 3, -1, 1.5, "x"))
        offset = chance.choice((0, 5, 10**6, 10**12, 1 << 60))
        kernels.append(Event(chance.choice((*names, "MemcpyH2D", "Memset")), offset + chance.randint(0, 9) * 10**6,
                             chance.choice((0, 1, 10**6, 10**12, 1 << 60)), stats))  # fmt: skip
    base = chance.choice((0, 1, 10**15, 10**18, (1 << 62) // 1000))
    lines = [Line("Stream #1(Kernel)", kernels, 1, base)]
    host = [Line(chance.choice(("Host Threads/7", "python", "x/-123456")), kernels, chance.choice((2, 1 << 63)), base)]
    data = plane("/device:GPU:0", lines) + plane("/host:CPU", host)
    return [data], len(kernels)


def rocpd(chance: Chance) -> tuple[list[bytes], int]:
    """A database of any schema, with counters or without, of one run or two, with views or without."""
    version = chance.choice(rocpd_made.VERSIONS)
    counted = [
        Counted(
            chance.choice(("SQ_WAVES", "FETCH_SIZE", "VALUUtilization", "", "é" * 300)),
            tuple(
                tuple(chance.choice((0.0, 1.5, 1e17, -3.0, float("inf"))) for _ in range(chance.randint(0, 3)))
                for _ in rocpd_made.KERNELS
            ),
            chance.choice(("", "KB")), chance.choice((0, 1)),
        )
        for _ in range(chance.choice((0, 0, 1, 3)))
    ]  # fmt: skip
    lost = chance.choice((0, 0, 2))
    made = rocpd_made.tables(version, counted, lost)
    count = len(rocpd_made.KERNELS) - lost + 1
    if chance.random() < 0.2:
        # two runs with equal rows are one run that is told twice
        other = rocpd_made.GUID.replace("abcd", "0123")
        return [rocpd_made.merged([(made, rocpd_made.GUID), (rocpd_made.tables(version, pid=99), other)])], count
    return [rocpd_made.database(made, views=chance.random() < 0.8)], count


def counters(chance: Chance, names: Sequence[str]) -> tuple[list[bytes], int]:
    """rocprofv3's table of counters, without one of kernels."""
    head = ("Correlation_Id", "Dispatch_Id", "Agent_Id", "Queue_Id", "Process_Id", "Thread_Id", "Kernel_Name",
            "Counter_Name", "Counter_Value", "Start_Timestamp", "End_Timestamp")  # fmt: skip
    plain = [name for name in names if not set(name) & set('",\n\r\0') and name.strip()]
    rows = []
    kernels = chance.randint(1, 6)
    for kernel in range(1, kernels + 1):
        name, start = chance.choice(plain), 10**15 + 1000 * kernel
        for counter in chance.sample(("SQ_WAVES", "FETCH_SIZE", "MemUnitBusy", "WRITE_SIZE"), chance.randint(1, 3)):
            value = chance.choice(("1", "2.500000", "-1", "nan", "1e400", "", "9" * 40))
            rows.append(f'{kernel},{kernel},4,1,7,8,"{name}",{counter},{value},{start},{start + 500}')
    return ["\n".join([",".join(head), *rows, ""]).encode("utf-8", "replace")], kernels


def database_lines(chance: Chance) -> list[str]:
    """Records of a find-db or perf-db."""
    lines = []
    for _ in range(chance.randint(1, 9)):
        items = []
        for _ in range(chance.randint(0, 5)):
            solver, time = chance.choice(_SOLVERS), chance.choice(("0.12116", "0", "1e-05", "nan", "-1", "9" * 30))
            algorithm = chance.choice(("miopenConvolutionFwdAlgoGEMM", "miopenConvolutionBwdDataAlgoDirect", "x"))
            old = f"{algorithm}:{solver},{time},8,{algorithm},<unused>"
            new = f"{solver}:{time},4096,{algorithm}"
            items.append(chance.choice((new, old, f"{solver}:1,8,2,64", solver, ":::")))
        lines.append(f"{chance.choice(_KEYS)}={';'.join(items)}\n")
    return lines


def blas_lines(chance: Chance) -> list[str]:
    """What hipBLASLt and rocBLAS print, and MIOpen's performance records."""
    lines = []
    for _ in range(chance.randint(1, 9)):
        m, n, k = (chance.choice(_SIZES) for _ in range(3))
        kind, trans = chance.choice(_TYPES), chance.choice("NTCx")
        index = chance.choice((0, 56073, -2, "x"))
        lines.append(chance.choice((
            f"hipblaslt-bench --api_method c -m {m} -n {n} -k {k} --lda {m} --alpha -1 --transA {trans} --transB N"
            f" --batch_count 1 --a_type {kind} --any_stride --solution_index {index} hipblaslt-bench -m\n",
            f"12 ./rocblas-bench -f gemm_ex --transposeA {trans} --transposeB T -m {m} -n {n} -k {k} --a_type {kind}\n",
            f"rocblas_gemm_ex,N,{trans},{m},{n},{k},1,0x1,{kind},1,0x2,{kind},1,0,0x3,{kind},1,0x3,{kind},1,f,0,7\n",
            f"[2026-01-01 00:00:00][HIPBLASLT][1][Trace][rocblaslt_matmul] A=0x1 Adesc=[type={kind} rows={m} cols={k}"
            f" ld=1] B=0x2 Bdesc=[type={kind} rows={k} cols={n} ld=1] computeDesc=[transA=OP_{trans} transB=OP_N]\n",
            f"- {{ function: matmul, M: {m}, N: {n}, K: {k}, transA: {trans}, transB: N, a_type: {kind}, iters: 2\n",
            f'- {{ rocblas_function: "rocblas_gemm_ex", a_type: "{kind}", transA: \'{trans}\', transB: \'N\', M: {m},'
            f" N: {n}, K: {k}, call_count: {index} }}\n",
            json.dumps({"solution": chance.choice(_SOLVERS), "workspace_bytes": m, "phase": "execution",
                        "performance_configs": [{"exec_number": chance.choice((1, (1 << 64) - 1)), "time_ms": 0.5}]},
                       separators=(",", ":")) + "\n",
        )))  # fmt: skip
    return lines


def tunable(chance: Chance) -> bytes:
    rows = ["Validator,PT_VERSION,2.9.0\n", "Validator,GCN_ARCH_NAME,gfx950:sramecc+:xnack-\n"]
    for _ in range(chance.randint(1, 9)):
        m, n, k = (chance.choice(_SIZES) for _ in range(3))
        more = chance.choice(("", "_B_4", "_ld_1_2_3", "_x"))
        solution = chance.choice(("Default", "Gemm_Rocblas_-5", "Gemm_Hipblaslt_TN_6139", "5", "a,b"))
        time = chance.choice((",0.5", ",inf", ",nan", "", ",x"))
        rows.append(
            f"GemmTunableOp_{chance.choice(('Half', 'float', 'c10'))}_TN,tn_{m}_{n}_{k}{more},{solution}{time}\n"
        )
    return "".join(rows).encode()


def perf_db(chance: Chance, names: Sequence[str]) -> list[bytes]:
    """MIOpen's perf-db in SQLite, with sizes that fit and with any."""
    axes = [f"{name}_{axis}" for name in ("in", "fil", "pad", "conv_stride", "dilation") for axis in "dhw"]
    columns = ["layout", "data_type", "direction", "spatial_dim", "in_channels", "out_channels", "batchsize", "bias",
               "group_count", *axes]  # fmt: skip
    numbers = (1, 1, 1, 3, 7, 0, -1, 1 << 40, None, 2.5, "x", b"\xff")
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE config (id INTEGER PRIMARY KEY, {', '.join(columns)})")
    connection.execute("CREATE TABLE perf_db (id INTEGER PRIMARY KEY, solver, config, params)")
    for number in range(chance.randint(1, 6)):
        fits = chance.random() < 0.6
        words = () if fits else names
        row = [chance.choice(("NCHW", "NHWC", *words)), chance.choice(("FP32", "FP16", *words)),
               chance.choice(("F", "B", "W", *words)), chance.choice((2, 2, 3) if fits else (2, None)),
               *(chance.choice((1, 1, 3) if fits else numbers) for _ in columns[4:])]  # fmt: skip
        connection.execute(f"INSERT INTO config VALUES ({', '.join('?' * (len(row) + 1))})", (number, *row))
        values = (
            number,
            chance.choice((*_SOLVERS, *names, None)),
            chance.randint(0, 6),
            chance.choice((*names, "1,8", 5)),
        )
        connection.execute("INSERT INTO perf_db VALUES (?, ?, ?, ?)", values)
    with contextlib.closing(connection):
        connection.commit()
        return [connection.serialize()]


def files(chance: Chance, names: Sequence[str]) -> tuple[list[bytes], int]:
    """One of these forms, and the kernels in it."""
    lines: Callable[[Chance], list[str]] = chance.choice((database_lines, blas_lines))
    makers: tuple[Callable[[], tuple[list[bytes], int]], ...] = (
        lambda: xspace(chance, names),
        lambda: xspace(chance, names),
        lambda: rocpd(chance),
        lambda: counters(chance, names),
        lambda: (["".join(lines(chance)).encode("utf-8", "replace")], 0),
        lambda: ([tunable(chance)], 0),
        lambda: (perf_db(chance, names), 0),
    )
    return chance.choice(makers)()
