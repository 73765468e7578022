"""MIOpen's databases, logs of GEMM libraries, TunableOp: each line against its own text (miopen-side-files.md)."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mio2trace.analysis import analyse
from mio2trace.model.choices import GemmChoice, GemmTable, SolverTable, solver_record
from mio2trace.notes import InputError, Notes
from mio2trace.ops.choices import Choices
from mio2trace.ops.families.conv import ConvProblem
from mio2trace.ops.log.level_lines import find_db_key
from mio2trace.readers.base import Reader
from mio2trace.readers.gemms import TUNABLE
from mio2trace.readers.miopen import databases
from tests.canaries import CANARIES, SOME, leaks
from tests.commands import invoked, json_of, stderr_of
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, launched, row, trace
from tests.often import saved
from tests.rocm_files import records_of

DATABASES = (
    "gfx942130.HIP.fdb.txt", "gfx1030_36.HIP.fdb.txt", "gfx803_64.OpenCL.fdb.txt", "gfx900_56.cd.pdb.txt",
    "gfx1201_32.HIP.3_5_1_dabb6df2b9.ufdb.txt", "unknown.HIP.3_2_0.ufdb.txt",
)  # fmt: skip
MISFIT = "256-1-1-7x7-1024-1-1-32-0x0-1x1-1x1-0-NCHW-FP32-F"
"""The one key of the samples whose sizes do not follow from each other."""


def side(name: str) -> Path:
    return shared_folder() / "samples" / "miopen-side-files" / name


def table_of(path: Path, reader: Reader | None = None, notes: Notes | None = None) -> Any:
    (record,) = records_of(path, reader, notes)
    return record


# -- find-db and perf-db ---------------------------------------------------------------------------------------------


@pytest.mark.shared
@pytest.mark.parametrize("name", DATABASES)
def test_every_key_and_every_solver_of_the_samples_has_its_numbers(name: str) -> None:
    """Keys are printed back; time and workspace of both forms as a plain split has them; names only of a perf-db."""
    table = table_of(side(name), databases.TEXT)
    assert isinstance(table, SolverTable)
    assert not table.skipped
    expected = {}
    for line in side(name).read_text().splitlines():
        key, _, rest = line.partition("=")
        problem = printed_back(key)
        assert (problem.expected_output() == problem.y) == (key != MISFIT)
        if key.partition("_")[0].endswith(("-B", "-W")):  # the first field is dy's
            assert problem.y[1] == int(key.partition("-")[0])
        items: list[tuple[str, float | None, int]] = []
        for item in rest.split(";"):
            first, _, values = item.partition(":")
            parts = values.split(",")
            if table.kind == "perf-db":
                items.append((first, None, 0))
            else:
                solver, ms, size = parts[:3] if len(parts) == 5 else (first, *parts[:2])
                items.append((solver, float(ms), int(size)))
        expected[key] = items
    assert expected
    assert expected == {
        record.key: [(one.solver, one.time_ms, one.workspace_bytes) for one in record.solvers]
        for record in table.records
    }


def printed_back(key: str) -> ConvProblem:
    problem = find_db_key(key)
    assert problem is not None
    assert problem.database_key() == key
    return problem


KEYS = (
    "3-224-224-7x7-64-112-112-32-3x3-2x2-1x1-0-NCHW-FP32-F",
    "64-112-112-7x7-3-224-224-32-3x3-2x2-1x1-0-NCHW-FP32-B",
    "64-56-56-3x3-64-56-56-8-1x1-1x1-1x1-0-NHWC-NHWC-NHWC-FP16-W",
    "64-56-56-3x3-64-56-56-8-1x1-1x1-1x1-0-NCHW-BF16-F_g4",
    "96-5-48-83-3x3x3-96-3-46-81-1-0x0x0-1x1x1-1x1x1-0-NCDHW-FP32-F",
)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_printed_back(key: str) -> None:
    printed_back(key)


@pytest.mark.shared
def test_problems_of_an_sqlite_perf_db_are_its_rows() -> None:
    """Each key decodes into the columns of its row, read with sqlite3; solvers and parameters are the file's."""
    path = side("gfx942130.db")
    table = table_of(path, databases.SQLITE, notes := Notes())
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        configs = connection.execute("SELECT * FROM config").fetchall()
        tuned = connection.execute("SELECT config, solver, params FROM perf_db").fetchall()
    ours = {}
    for record in table.records:
        problem = printed_back(record.key)
        assert problem.expected_output() == problem.y
        of_input, of_output = (problem.x, problem.y) if problem.direction == "forward" else (problem.y, problem.x)
        ours[
            of_input, of_output[1], problem.w[2:], problem.pads, problem.strides, problem.dilations, problem.groups,
            record.key.partition("_")[0][-1], record.key.split("-")[-2],
        ] = {(one.solver, one.parameters) for one in record.solvers}  # fmt: skip
    expected = {}
    strided = 0
    for of in configs:
        pair = [(of[f"{name}_h"], of[f"{name}_w"]) for name in ("in", "fil", "pad", "conv_stride", "dilation")]
        solvers = {(one["solver"], one["params"][:400]) for one in tuned if one["config"] == of["id"]}
        if of["direction"] != "F" and pair[3] != (1, 1):
            strided += 1
            continue
        expected[
            (of["batchsize"], of["in_channels"], *pair[0]), of["out_channels"], pair[1], pair[2], pair[3], pair[4],
            of["group_count"], of["direction"], of["data_type"],
        ] = solvers  # fmt: skip
    assert ours == expected
    assert (len(configs), len(expected), strided) == (63, 58, 5)
    assert [note.count for note in notes] == [strided]


OF_ROWS = (
    "8-5-6-7-3x3x3-1-3-6-7-1-0x1x1-1x1x1-1x1x1-0-NCDHW-FP32-F",
    "8-6-7-3x3-1-6-7-1-1x1-1x1-1x1-0-NHWC-NHWC-NHWC-FP32-B",
)
"""Keys of the rows of `perf_db_file`."""


def perf_db_file(path: Path, *changes: str) -> Path:
    """A perf-db with a forward convolution of 3-D and a gradient, after ``changes``."""
    columns = [name for name in databases._COLUMNS if name != "id"]
    three = dict.fromkeys(columns, 1) | {"layout": "NCDHW", "data_type": "FP32", "direction": "F", "spatial_dim": 3,
                                         "in_channels": 8, "in_d": 5, "in_h": 6, "in_w": 7, "fil_d": 3, "fil_h": 3,
                                         "fil_w": 3, "pad_d": 0, "pad_h": 1, "pad_w": 1, "bias": 0}  # fmt: skip
    two = three | {"layout": "NHWC", "direction": "B", "spatial_dim": 2, "fil_d": 1, "conv_stride_d": 0}
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE config (id INTEGER PRIMARY KEY, {', '.join(columns)})")
        connection.execute("CREATE TABLE perf_db (id INTEGER PRIMARY KEY, solver, config, params)")
        for number, row in enumerate((three, two), 1):
            values = (number, *(row[name] for name in columns))
            connection.execute(f"INSERT INTO config VALUES ({', '.join('?' * len(values))})", values)
            connection.execute("INSERT INTO perf_db VALUES (?, 'ConvAsm1x1U', ?, '1,8,2')", (number, number))
        for change in changes:
            connection.execute(change)
        connection.commit()
    return path


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ("SELECT 1", [*OF_ROWS]),
        ("UPDATE config SET conv_stride_h = 2 WHERE id = 2", [OF_ROWS[0]]),
        ("UPDATE perf_db SET solver = '=;' WHERE id = 1", [OF_ROWS[1]]),
        *(
            (f"UPDATE config SET {bad} WHERE id = 1", [OF_ROWS[1]])
            for bad in ("conv_stride_h = 0", "fil_h = 99", "layout = 'a=b;'", "in_h = x'00ff'", "in_h = 9e999")
        ),
    ],
)
def test_rows_of_a_perf_db_that_say_no_problem_are_left_out(change: str, keys: list[str], tmp_path: Path) -> None:
    table = table_of(perf_db_file(tmp_path / "gfx942.db", change), databases.SQLITE, notes := Notes())
    assert [record.key for record in table.records] == keys
    assert all(printed_back(key) for key in keys)
    assert sum(note.count for note in notes) == 2 - len(keys)


@pytest.mark.parametrize("kind", SOME)
def test_no_text_of_a_perf_db_that_is_private_is_shown(kind: str, tmp_path: Path) -> None:
    canary = CANARIES[kind].replace("'", "''")
    changes = f"UPDATE perf_db SET params = '{canary}'", f"UPDATE config SET layout = '{canary}' WHERE id = 2"
    perf_db_file(tmp_path / "a.db", *changes)
    (tmp_path / "a.pdb.txt").write_text(f"{OF_ROWS[0]}=ConvAsm1x1U:{CANARIES[kind]}\n")
    for name in ("a.db", "a.pdb.txt"):
        result = invoked("messages", tmp_path / name, "--format", "json")
        assert not leaks(result.stdout + result.stderr)
        assert name == "a.pdb.txt" or len(json.loads(result.stdout)) == 1


def test_error_a_database_of_compiled_kernels_is_named(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "a.kdb")) as connection:
        connection.execute("CREATE TABLE kern_db (id INTEGER PRIMARY KEY, kernel_name, kernel_args, kernel_blob)")
    assert "compiled kernels" in stderr_of(invoked("messages", tmp_path / "a.kdb"), 1)


def test_a_transposed_convolution_has_the_key_of_the_other_gradient() -> None:
    """Its forward call is the gradient of data: dy is what it is given."""
    problem = ConvProblem(
        direction="forward", dtype="float", x=(2, 64, 28, 28), w=(64, 3, 4, 4), pads=(1, 1), strides=(2, 2),
        dilations=(1, 1), transpose=True,
    )  # fmt: skip
    assert problem.database_key() == "64-28-28-4x4-3-56-56-2-1x1-2x2-1x1-0-NCHW-FP32-B"


@pytest.mark.parametrize(
    "line",
    [
        "", "=", KEYS[0], f"{KEYS[0]}=", f"{KEYS[0]}=;;;", f"{KEYS[0]}=A",
        f"{KEYS[0]}=A:x,1,miopenConvolutionFwdAlgoGEMM", f"{KEYS[0]}=A:1",
        f"{KEYS[0][:-1]}X=A:1,0,miopenConvolutionFwdAlgoGEMM", "9" * 5000 + "=A:1,2,3",
    ],
)  # fmt: skip
def test_what_is_no_record_is_none(line: str) -> None:
    found = solver_record(line)
    assert found is None or all(one.time_ms is None for one in found.solvers)


ALGORITHM = "miopenConvolutionFwdAlgoGEMM"
CALL = "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 1 -c 3 -H 8 -W 8 -k 4 -y 3 -x 3 -F 1\n"


def test_of_a_key_twice_the_last_line_counts(tmp_path: Path) -> None:
    lines = [f"{KEYS[0]}=GemmFwdRest:{ms},8,{ALGORITHM}" for ms in (1.5, 2.5)]
    (tmp_path / "a.ufdb.txt").write_text("\n".join((*lines, "?", f"{KEYS[3]}=GemmFw")))
    table = table_of(tmp_path / "a.ufdb.txt", databases.TEXT, notes := Notes())
    assert [(one.line, one.solvers[0].time_ms) for one in table.records] == [(2, 2.5)]
    assert table.skipped == 2
    assert [note.count for note in notes] == [2]


def test_messages_show_a_database_alone(tmp_path: Path) -> None:
    """A row for each solver: problem, time, workspace, driver line; the same pasted in a log."""
    record = f"{KEYS[0]}=ConvDirectNaiveConvFwd:9.25,0,miopenConvolutionFwdAlgoDirect"
    record += ";GemmFwdRest:1.5,4096,miopenConvolutionFwdAlgoGEMM"
    (tmp_path / "a.fdb.txt").write_text(f"{record}\n")
    (tmp_path / "run.log").write_text(f"a line of a program\n$ cat db: {record}\nanother one\n")
    expected = [("ConvDirectNaiveConvFwd", 9.25, 0), ("GemmFwdRest", 1.5, 4096)]
    for name in ("a.fdb.txt", "run.log"):
        rows = json_of("messages", tmp_path / name)
        assert [(row["solver"], row["ms"], row["workspace_bytes"]) for row in rows] == expected
        assert {row["key"] for row in rows} == {KEYS[0]}
        assert {row["problem"] for row in rows} == {"Conv fwd 32x3x224x224 -> 32x64x112x112 k7x7 s2 p3"}
        assert all("-F 1" in row["command"] for row in rows)
        head, first, _ = invoked("messages", tmp_path / name, "--format", "table", COLUMNS="54").stdout.splitlines()
        assert head.split() == ["problem", "solver", "ms"]
        assert re.search(r"  \w+\.\.\.\w*Fwd  9\.25$", first) is not None  # the solver keeps its end


def test_a_database_beside_a_log_is_of_its_run(tmp_path: Path) -> None:
    """Alone it has no times of a run."""
    (tmp_path / "a.fdb.txt").write_text(f"{KEYS[0]}=GemmFwdRest:1.5,8,{ALGORITHM}\n")
    run = analyse([saved(tmp_path / "run.log", CALL), tmp_path / "a.fdb.txt"]).run
    assert [type(one) for one in run.side_files] == [SolverTable]
    assert invoked("ops", tmp_path / "run.log", tmp_path / "a.fdb.txt").exit_code == 0
    for command in ("ops", "report", "kernels", "layers"):
        assert len(stderr_of(invoked(command, tmp_path / "a.fdb.txt"), 1).splitlines()) == 1


COMMAND = "./bin/MIOpenDriver conv -n 32 -c 3 -H 224 -W 224 -k 64 -y 7 -x 7 -p 3 -q 3 -u 2 -v 2 -l 1 -j 1 -F 1 -t 1"


def record(solver: str, ms: Sequence[float], phase: str = "find", executions: int = 1, kernels: object = None) -> str:
    """A line as MIOPEN_PERFORMANCE_LOGS has it; keys that we do not know are in it."""
    configs = [
        {"config_name": solver, "exec_number": executions, "time_executions_ms": [one], "time_ms": one, "new": 1,
         "kernels": kernels}
        for one in ms
    ]  # fmt: skip
    return json.dumps({"solution": solver, "solver_id": 1, "workspace_bytes": 16, "phase": phase, "more": None,
                       "performance_configs": configs}, separators=(",", ":"))  # fmt: skip


def test_performance_records_are_of_the_command_before_them(tmp_path: Path) -> None:
    """The fastest configuration counts; what was not timed has no time; kernels are named."""
    kernels = [{"kernel_name": "transpose", "is_transformation": True}, {"kernel_name": "igemm"}]
    lines = [
        f"MIOpen(HIP): Command [LogCmdConvolution] {COMMAND}", record("GemmFwdRest", [2.5, 1.5, 3.0]),
        record("ConvAsm1x1U", [0.0], executions=(1 << 64) - 1),
        record("ConvDirectNaiveConvFwd", [9.0], "execution", 4, kernels),
        '{"solution":"ConvOclDirectFwd","performance_configs":[{"config_name":"\\uffffffe9","exec_number":1,"time_ms":4}]}',
        '{"solution":"Conv',
    ]  # fmt: skip
    (tmp_path / "run.log").write_text("\n".join(lines) + "\n")
    rows = {
        found["solver"]: found
        for found in json_of("messages", tmp_path / "run.log", "--about", "calls")
        if "solver" in found
    }
    timed = {"GemmFwdRest": 1.5, "ConvDirectNaiveConvFwd": 9.0, "ConvOclDirectFwd": 4}
    assert {name: found.get("ms") for name, found in rows.items()} == timed | {"ConvAsm1x1U": None}
    assert rows["ConvDirectNaiveConvFwd"]["kernels"] == "transpose, igemm"
    run = analyse([tmp_path / "run.log"]).run
    (of_key,) = Choices((), run.libraries).solvers.values()
    assert of_key.key == KEYS[0]
    assert {one.solver: one.time_ms for one in of_key.solvers} == timed


# -- GEMM libraries --------------------------------------------------------------------------------------------------


@pytest.mark.shared
def test_bench_lines_of_the_samples_are_their_options() -> None:
    """Each command against a plain search for its options; two on a line, one cut off."""
    text = side("hipblaslt_bench_mask32.log").read_text()
    commands = re.split(r"hipblaslt-bench ", text)[1:]
    assert len(commands) == 6

    def option(command: str, name: str) -> str:
        found = re.search(rf"--?{name} +(\S+)", command)
        return found[1] if found else ""

    whole = [one for one in commands if option(one, "a_type")]
    assert len(whole) == 5
    table = table_of(side("hipblaslt_bench_mask32.log"))
    assert table.skipped == 1
    assert sorted(
        (gemm.m, gemm.n, gemm.k, gemm.batch, gemm.trans_a, gemm.trans_b, gemm.types[:4], gemm.leading, gemm.solution)
        for gemm in table.gemms
        for _ in range(gemm.count)
    ) == sorted(
        (
            *(int(option(one, name)) for name in ("m", "n", "k", "batch_count")),
            option(one, "transA") == "T", option(one, "transB") == "T",
            tuple(option(one, f"{name}_type") for name in "abcd"),
            tuple(int(option(one, f"ld{name}")) for name in "abcd"), option(one, "solution_index"),
        )
        for one in whole
    )  # fmt: skip


@pytest.mark.shared
def test_other_logs_of_the_samples() -> None:
    """By hand, from the files: sizes before the transpose, calls that are printed twice, calls of a profile."""
    (traced,) = table_of(side("hipblaslt_trace_level5.log")).gemms
    assert (traced.m, traced.n, traced.k, traced.trans_a, traced.trans_b) == (128, 2048, 2400, True, False)
    assert (traced.types[0], traced.epilogue, traced.leading[1]) == ("R_32F", "bias", 25272)
    (profiled,) = table_of(side("hipblaslt_profile_mask64.yaml")).gemms
    assert (profiled.m, profiled.n, profiled.k, profiled.types[4]) == (128, 128, 128, "f32_r")
    both = table_of(side("rocblas_layer3.log")).gemms
    assert [(gemm.m, gemm.n, gemm.k, gemm.batch, gemm.count) for gemm in both] == [
        (256, 64, 128, 96, 1), (128, 64, 256, 96, 1),
    ]  # fmt: skip
    counted = table_of(side("rocblas_layer4.yaml")).gemms
    assert [(gemm.m, gemm.trans_b, gemm.types[0], gemm.count) for gemm in counted] == [
        (108, False, "f16_r", 1), (256, True, "f32_r", 1),
    ]  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("name", ["gfx1100_pt251", "gfx1100_pt260", "gfx950_pt290"])
def test_rows_of_tunableop_are_those_of_the_file(name: str) -> None:
    """Against the csv module: sizes, transposes, solution, time; five validators."""
    path = side(f"tunableop_results0.{name}.csv")
    with path.open(newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    table = table_of(path, TUNABLE)
    assert isinstance(table, GemmTable)
    assert table.made_for == tuple((row[1], row[2]) for row in rows if row[0] == "Validator")
    assert len(table.made_for) == 5
    expected = {}
    for op, params, solution, *took in (fields for fields in rows if fields[0] != "Validator"):
        sizes = [int(word) for word in params.split("_")[1:] if word.isdigit()]
        ms = float(took[0]) if took and took[0] != "inf" else None
        expected[op, params] = (sizes[0], sizes[1], sizes[2], params[0] == "t", params[1] == "t", solution, ms)
    ours = [(g.m, g.n, g.k, g.trans_a, g.trans_b, g.solution, g.time_ms) for g in table.gemms]
    assert sorted(map(str, ours)) == sorted(map(str, expected.values()))
    assert not table.skipped


BENCH = (
    "hipblaslt-bench -m 64 -n 32 -k 16 --lda 64 --ldb 16 --ldc 64 --ldd 64 --alpha -1 --beta 0 --transA N --transB N"
    " --batch_count 2 --a_type f16_r --b_type f16_r --c_type f16_r --d_type f16_r --compute_type f32_r"
    " --solution_index {}"
)
TRACE = "rocblas_gemm_strided_batched_ex,N,T,64,32,16,1,0x1,f16_r,64,1024,0x2,f16_r,32,512,0,0x3,f16_r,64,2048,0x3,f16_r,64,2048,2,f32_r,0,7,none,atomics_allowed"  # noqa: E501


def gemms_of(text: str, folder: Path) -> tuple[GemmChoice, ...]:
    (folder / "a.log").write_text(text)
    found: tuple[GemmChoice, ...] = table_of(folder / "a.log").gemms
    return found


def test_equal_calls_are_one_with_their_number(tmp_path: Path) -> None:
    """A negative value is no option; a number in front is how often it came."""
    text = f"{BENCH.format(5)}\n" * 3 + f"      7 ./{BENCH.format(5)}\n"
    (gemm,) = gemms_of(text, tmp_path)
    assert (gemm.m, gemm.n, gemm.k, gemm.batch, gemm.solution, gemm.count) == (64, 32, 16, 2, "5", 10)


EX = TRACE.replace("gemm_strided_batched_ex", "{}")
OF_EX = {"batch": 2, "leading": (64, 32, 64, 64), "types": (*["f16_r"] * 4, "f32_r"), "solution": "7", "count": 1}
LEADING = {"batch": 1, "leading": (64, 32, 65, 65)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # a strided line has a stride behind each leading size; sizes may be of 64 bits, types of float8
        (TRACE, OF_EX),
        (EX.format("gemm_strided_batched_ex_64"), OF_EX | {"function": "gemm_strided_batched_ex_64"}),
        (EX.format("gemm_strided_batched_ex3"), OF_EX | {"function": "gemm_strided_batched_ex3"}),
        # the name of a function may be the type; it has a stride and a batch, or none
        ("rocblas_sgemm,N,T,64,32,16,1,0x1,64,0x2,32,0,0x3,65", LEADING | {"types": ("f32_r",) * 5}),
        ("rocblas_sgemm,N,T,64,32,16,1,0x1,64,0x2,32,0,0x3,65,atomics_allowed", LEADING | {"types": ("f32_r",) * 5}),
        ("rocblas_hgemm_batched,N,T,64,32,16,1,0x1,64,0x2,32,0,0x3,65,7,atomics_allowed",
         LEADING | {"batch": 7, "types": ("f16_r",) * 5}),
        ("rocblas_dgemm_strided_batched_64,N,T,64,32,16,1,0x1,64,9,0x2,32,9,0,0x3,65,9,3",
         LEADING | {"batch": 3, "types": ("f64_r",) * 5}),
        ("rocblas_zgemm,N,T,64,32,16,(1,0),0x1,64,0x2,32,(0,0),0x3,65,atomics_allowed",
         LEADING | {"types": ("f64_c",) * 5}),
        ('- { rocblas_function: "rocblas_cgemm", transA: \'N\', transB: \'T\', M: 64, N: 32, K: 16, lda: 64, ldb: 32,'
         " ldc: 65, call_count: 1 }", {"batch": 1, "leading": (64, 32, 65, 0), "types": ("f32_c",) * 5}),
        # a command that a person typed may leave out what is the default
        ("hipblaslt-bench -m 64 -n 32 -k 16 --precision f32_r -v 1 --activation_type none",
         {"trans_b": False, "types": ("f32_r",) * 5}),
        ("./rocblas-bench --function gemm --sizem 64 --sizen 32 --sizek 16 -r f16_r --transposeA T",
         {"trans_a": True, "trans_b": False, "types": ("f16_r",) * 5}),
        ("rocblas-bench -f gemm -r z -m 64 -n 32 -k 16 --transposeA N --transposeB N",
         {"trans_b": False, "types": ("f64_c",) * 5}),
    ],
)  # fmt: skip
def test_a_line_of_a_library_is_its_gemm(line: str, expected: dict[str, Any], tmp_path: Path) -> None:
    """All are of one size. A line that asks for solutions is no call."""
    (gemm,) = gemms_of(f"{line}\n{line.replace('_ex', '_ex_get_solutions')}\n" if "_ex" in line else line, tmp_path)
    expected = {"m": 64, "n": 32, "k": 16, "trans_a": False, "trans_b": True} | expected
    assert {name: getattr(gemm, name) for name in expected} == expected


def test_a_grouped_product_has_the_sizes_of_all_its_products(tmp_path: Path) -> None:
    """As hipBLASLt logs it: equal products are a batch; of unequal ones none is the call, so it is left out."""
    group = "hipblaslt-bench --api_method cpp --grouped_gemm{} --alpha 1 --beta 0 --transA N --transB T --batch_count 2"
    group += " --a_type f16_r --b_type f16_r --c_type f16_r --d_type f16_r --compute_type f32_r --solution_index 7\n"
    one = "  -m {} -n 32 -k {} --lda 64 --ldb 32 --ldc 64 --ldd 64 --stride_a 1 --stride_b 1 --stride_c 1 --stride_d 1"
    for sizes, expected in (
        ([(64, 16)], [(64, 32, 16, 2)]),
        ([(64, 16)] * 3, [(64, 32, 16, 6)]),
        ([(64, 16)] * 40, [(64, 32, 16, 80)]),
        ([(64, 16), (65, 16)], []),
        ([(64, 16), (64, 16), (64, 17)], []),
    ):
        text = group.format("".join(one.format(m, k) for m, k in sizes))
        table = table_of(saved(tmp_path / "a.log", text))
        assert [(gemm.m, gemm.n, gemm.k, gemm.batch) for gemm in table.gemms] == expected
        assert table.skipped == (not expected)


def test_products_of_a_group_have_all_of_their_sizes(tmp_path: Path) -> None:
    """If a size is stated for some of them only, or the batches are unequal, the size of the call is not known."""
    whole = "hipblaslt-bench --grouped_gemm -m 64 -n 32 -k 16 -m 64 -n 32 -k 16 --batch_count 2 --batch_count 2"
    whole += " --transA N --transB T --a_type f16_r --b_type f16_r --c_type f16_r --d_type f16_r --compute_type f32_r\n"
    (gemm,) = gemms_of(whole, tmp_path)
    assert gemm.batch == 4
    for lost, other in ((" -k 16", ""), (" -n 32", ""), (" -m 64", ""), ("--batch_count 2", "--batch_count 3")):
        table = table_of(saved(tmp_path / "a.log", whole.replace(lost, other, 1)))
        assert (table.gemms, table.skipped) == ((), 1)


def test_a_complex_product_has_four_times_the_flops(tmp_path: Path) -> None:
    """It has a name of its own, so it is summed with no product of real numbers."""
    bench = "./rocblas-bench -f gemm -r {} --transposeA N --transposeB N -m 8 -n 4 -k 2 --lda 8 --ldb 2 --ldc 8\n"
    rows = json_of("ops", saved(tmp_path / "a.log", bench.format("f64_r") + bench.format("f64_c")))
    assert [(row["dtype"], row["flop"]) for row in rows] == [("double", 2 * 64), ("complex128", 8 * 64)]
    assert len({row["problem"] for row in rows}) == 2
    assert [row["bytes_min"] for row in rows] == [8 * 56, 16 * 56]
    assert invoked("driver", tmp_path / "a.log").stderr.endswith(
        "no command for 2 x gemm: a BLAS library computes it, not MIOpen\n"
    )


@pytest.mark.parametrize(
    ("types", "moved"),
    [(("f8_r", "bf8_r", "bf16_r", "bf16_r"), 16 + 8 + 2 * 32), (("i8_r", "i8_r", "i32_r", "i32_r"), 16 + 8 + 4 * 32),
     (("f16_r", "f16_r", "f32_r", "f16_r"), 2 * 56), (("f4_r", "f4_r", "f16_r", "f16_r"), None)],
)  # fmt: skip
def test_each_matrix_of_a_product_moves_bytes_of_its_own_type(
    types: tuple[str, ...], moved: int | None, tmp_path: Path
) -> None:
    """All three were counted in the type of the first one."""
    options = " ".join(f"--{name}_type {one}" for name, one in zip("abcd", types, strict=True))
    line = f"hipblaslt-bench -m 8 -n 4 -k 2 --transA T --transB N --batch_count 3 {options} --compute_type f32_r\n"
    (row,) = json_of("ops", saved(tmp_path / "a.log", line))
    assert row.get("bytes_min") == (None if moved is None else 3 * moved)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{BENCH.format(5)}\n" * 2, "1 GEMM of a BLAS library but no profile: `mio2trace ops` lists them"),
        (
            "[2026-01-01 10:00:00][HIPBLASLT][69][Api][rocblaslt_create] h=0x7\n",
            "0 GEMMs of a BLAS library but no profile: HIPBLASLT_LOG_MASK=32 or ROCBLAS_LAYER=2 makes it print them",
        ),
        (
            f"{KEYS[0]}=GemmFwdRest:1.5,8,{ALGORITHM}\n",
            "a find-db of MIOpen with 1 problem, which `mio2trace messages` shows",
        ),
    ],
)
def test_error_a_side_file_alone_names_the_command_that_shows_it(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    for command in ("convert", "report"):
        assert says in invoked(command, tmp_path / "a.txt").stderr


@pytest.mark.parametrize("cut", range(20, len(BENCH), 23))
def test_a_line_that_is_cut_off_is_none(cut: int, tmp_path: Path) -> None:
    """What is left of it would be another GEMM."""
    whole = BENCH.format(5)
    found = gemms_of(f"{whole}\n{whole[:cut]}\n", tmp_path)
    assert {(gemm.m, gemm.n, gemm.k, gemm.trans_a) for gemm in found} == {(64, 32, 16, False)}


def test_a_log_of_miopen_and_a_library_shows_the_operations_of_both(tmp_path: Path) -> None:
    """The products were left out without a word, and their numbers of calls were those of MIOpen's operations."""
    conv = "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 2 -c 4 -H 9 -W 8 -k 6 -y 3 -x 3 -F 1\n"
    rows = json_of("ops", saved(tmp_path / "a.log", f"{conv}{BENCH.format(5)}\n{BENCH.format(5)}\n{conv}"))
    assert [(row["operation"], row["primitive"], row.get("calls")) for row in rows] == [
        (0, "conv", None), (1, "conv", None), (2, "gemm", 2),
    ]  # fmt: skip
    said = invoked("report", tmp_path / "a.log").stdout
    assert "2 operations of 1 problem in the log; 2 calls of 1 GEMM of a BLAS library" in " ".join(said.split())


def test_a_log_alone_is_a_table_of_operations(tmp_path: Path) -> None:
    (row,) = json_of("ops", saved(tmp_path / "a.log", f"{BENCH.format(5)}\n" * 4))
    assert (row["gemm"], row["calls"], row["solver"]) == ({"M": 64, "N": 32, "K": 16, "batch": 2}, 4, "hipBLASLt 5")
    assert row["flop"] == 2 * 64 * 32 * 16 * 2


PRODUCT = [
    row("cpu_op", "aten::mm", 542, 542, FIRST_US, 100, External_id=1, Input_Dims=[[128, 256], [256, 64]],
        Input_type=["c10::Half", "c10::Half"], Input_Strides=[[256, 1], [64, 1]], Concrete_Inputs=["", ""]),
    *launched(7, 5, 30, "Cijk_Ailk_Bljk_HHS_BH_MT64x64x32", call="hipExtModuleLaunchKernel", External_id=1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "solver"),
    [
        (["GemmTunableOp_Half_NN,nn_64_128_256,Gemm_Hipblaslt_5,0.1"], "TunableOp Gemm_Hipblaslt_5"),
        (["GemmTunableOp_Half_NN,nn_64_128_256,Gemm_Hipblaslt_5,0.1",
          "GemmTunableOp_Half_TN,tn_64_128_256,Gemm_Rocblas_6,0.1"], None),
        (["GemmTunableOp_float_NN,nn_64_128_256,Gemm_Hipblaslt_5,0.1"], None),
        (["GemmTunableOp_Half_NN,nn_128_64_256,Gemm_Hipblaslt_5,0.1"], None),
    ],
)  # fmt: skip
def test_a_gemm_of_pytorch_has_the_solution_of_its_problem(rows: list[str], solver: str | None, tmp_path: Path) -> None:
    """Column-major, so PyTorch's N is m; of two solutions, of another type or of other sizes none is it."""
    (tmp_path / "a.pt.trace.json").write_bytes(trace(PRODUCT))
    (tmp_path / "tunableop_results0.csv").write_text("Validator,PT_VERSION,2.5.1\n" + "\n".join(rows) + "\n")
    (measures,) = analyse([tmp_path / "a.pt.trace.json", tmp_path / "tunableop_results0.csv"]).run.measures
    (operation,) = measures.operation_at.values()
    assert (operation.primitive, operation.solver) == ("gemm", solver)


@pytest.mark.parametrize(
    "text", ["Validator,PT_VERSION,2.5.1\n", "Validator,PT_VERSION,2.5.1\nnothing\n", "Validator,X\n\x00\n"]
)
def test_error_a_file_without_a_gemm_is_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^[^\n]*$"):
        table_of(saved(tmp_path / "a.csv", text))


@pytest.mark.parametrize("repeated", ["Gemm_", "GemmGemm_", "_", "_Float8_", "_NN,nn_1_1_1_", "1_", "c10a_"])
def test_a_row_of_tunableop_takes_the_time_of_its_bytes(repeated: str, tmp_path: Path) -> None:
    """Also one that could end in many places, and ends in none."""
    begins = ("", "Gemm_", "Gemm_float_NN,nn_1_1_1_")
    rows = ["GemmTunableOp_float_TN,tn_384_12_384,Gemm_Rocblas_114,0.01"]
    rows += [(begin + repeated * 400)[:399] for begin in begins] * 160
    (tmp_path / "results.csv").write_text("\n".join(rows))
    began = time.process_time()
    table = table_of(tmp_path / "results.csv", TUNABLE, Notes())
    assert time.process_time() - began < 1
    assert (len(table.gemms), table.skipped) == (1, 480)
