"""``mio2trace ops``: rows of operations, groups, the seed notebook's CSV, how much was understood."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mio2trace
from benchmarks.attribution import names, samples
from mio2trace.draw.containers import operation_args
from mio2trace.ops import operations
from mio2trace.reports.ops import COLUMNS, SEED_COLUMNS
from tests.commands import invoked, json_of, printed
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, kineto_file
from tests.kineto_files import row as event_row
from tests.kineto_files import rows as rows_of_a_step
from tests.test_ops import conv_entry, entry

SHAPES = {
    "x": ("2, 6, 9, 8", "432, 72, 8, 1"), "w": ("10, 6, 3, 5", "90, 15, 5, 1"), "y": ("2, 10, 5, 4", "200, 20, 4, 1"),
    "pooled": ("2, 6, 5, 4", "120, 20, 4, 1"), "scale": ("1, 6, 1, 1", "6, 1, 1, 1"),
}  # fmt: skip
LAYOUTS = ("1.0", "1.2", "2.0")


def shape(name: str, layout: str) -> str:
    lengths, strides = SHAPES[name]
    return f"{{{lengths}}}, {{{strides}}}, packed, " if layout == "2.0" else lengths


def conv(layout: str, api: str = "ConvolutionForward") -> str:
    new = "conv2d, miopenConvolution, miopenPaddingDefault, {1, 0}, {2, 1}, {1, 1}, "
    return entry(
        api, layout, alpha="0x7ffc0000", xDesc=shape("x", layout), x="0x7f00aa00", wDesc=shape("w", layout),
        w="0x7f00bb00", convDesc=new if layout == "2.0" else "1, 0, 2, 1, 1, 1, ", algo=1, beta="0x7ffc0008",
        yDesc=shape("y", layout), y="0x7f00cc00", workSpace="0", workSpaceSize=0,
    )  # fmt: skip


def pool(layout: str, mode: str) -> str:
    first = "2, 2, 1, 1" if layout == "1.0" else "1, 1, 2, 2"
    return entry(
        "PoolingForward", layout, poolDesc=f"{mode}, 3, 4, {first}, ", xDesc=shape("x", layout), x="0x7f00aa00",
        yDesc=shape("pooled", layout), y="0x7f00cc00", do_backward=0, workSpace="0", workSpaceSize=0,
    )  # fmt: skip


def bnorm(layout: str, api: str = "BatchNormalizationForwardTraining") -> str:
    return entry(
        api, layout, bn_mode=1, xDesc=shape("x", layout), x="0x7f00aa00", yDesc=shape("x", layout), y="0x7f00cc00",
        bnScaleBiasMeanVarDesc=shape("scale", layout), bnScale="0x7f00dd00", bnBias="0x7f00dd40",
    )  # fmt: skip


run = partial(invoked, "ops")


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "run.log"
    path.write_text(
        conv_entry() * 2 + conv("2.0", "FindConvolutionForwardAlgorithm") + conv("2.0") + bnorm("2.0")
        + "I1120 10:46:48.020552  2155 net.cpp:150] Setting up conv1\n" + conv_entry() + "hello\n"
    )  # fmt: skip
    return str(path)


def test_one_row_an_operation_with_every_column(log: str) -> None:
    done = run(log)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert tuple(rows[0]) == COLUMNS
    assert [row["operation"] for row in rows] == list("012345")
    assert rows[0]["problem"] == "Conv fwd 2x6x9x8 -> 2x10x5x6 k3x3 s2x1 g2 p1x0"
    assert [rows[at]["name"] for at in (0, 2)] == [
        "Conv fwd 2x6x9x8 -> 2x10x5x6 k3x3 s2x1 g2", "Find Conv fwd 2x6x9x8 -> 2x10x5x4 k3x5 s2x1",
    ]  # fmt: skip
    cells = [rows[0][name] for name in ("input", "dtype", "M", "N", "K", "batch")]
    assert cells == ["2x6x9x8", "", "5", "30", "27", "4"]
    assert [row["phase"] for row in rows] == ["run", "run", "find", "run", "run", "run"]
    assert rows[4]["M"] == ""
    assert "run.log: 6 operations: 5 run, 1 find" in done.stderr
    assert "line of other programs" in done.stderr
    assert run(log, "--quiet").stderr == ""
    objects = json_of("ops", log)
    assert objects[0]["gemm"] == {"M": 5, "N": 30, "K": 27, "batch": 4}
    assert objects[0]["doubts"] == ["the data type is not known: the command assumes float"]
    assert "gemm" not in objects[4]
    assert all(value not in (None, "", []) for row in objects for value in row.values())


def test_groups(log: str) -> None:
    rows = json_of("ops", log, "--phase", "run", "--group-by", "problem")
    assert [(row["count"], row["problem"]) for row in rows] == [
        (3, "Conv fwd 2x6x9x8 -> 2x10x5x6 k3x3 s2x1 g2 p1x0"),
        (1, "Conv fwd 2x6x9x8 -> 2x10x5x4 k3x5 s2x1 p1x0"),
        (1, "BatchNorm fwd 2x6x9x8 spatial training"),
    ]
    assert rows[0]["flop"] == 2 * 2 * 10 * 30 * 3 * 9
    assert "line" not in rows[0]
    both = json_of("ops", log, "--group-by", "primitive,phase")
    assert [(row["count"], row["primitive"], row["phase"]) for row in both] == [
        (4, "conv", "run"), (1, "conv", "find"), (1, "bnorm", "run"),
    ]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_seed_csv_in_each_layout(layout: str, tmp_path: Path) -> None:
    """Heights and widths in place, all of them, nothing but the three forward operations and average pooling; of a
    grouped convolution all channels."""
    path = tmp_path / "run.log"
    path.write_text(
        conv(layout, "FindConvolutionForwardAlgorithm") + conv(layout) + bnorm(layout)
        + pool(layout, "miopenPoolingMax") + pool(layout, "miopenPoolingAverage")
        + bnorm(layout, "BatchNormalizationForwardInference")
        + conv(layout) + pool(layout, "Unknown: 2") + conv_entry() * 200
    )  # fmt: skip
    header, *lines = run(str(path), "--seed-csv").stdout.splitlines()
    assert (
        header == "op,in channels,out channels,kernel h,kernel w,pad h,stride h,out h,out w" == ",".join(SEED_COLUMNS)
    )
    average = "AvgPool,6,6,3,4,1,2,5,4"
    assert lines == [
        "Conv,6,10,3,5,1,2,5,4", "BatchNorm,6,6,,,,,9,8", "MaxPool,6,6,3,4,1,2,5,4", average, "Conv,6,10,3,5,1,2,5,4",
        average, *["Conv,6,10,3,3,1,2,5,6"] * 200,
    ]  # fmt: skip


def test_the_same_content_counts_once(tmp_path: Path) -> None:
    """Each row of several files says of which it is."""
    line = (
        "miopenPoolingForward: ./bin/MIOpenDriver pool -n 2 -c 6 -H 9 -W 8 -y 3 -x 4 -p 1 -q 0 -u 2 -v 1 -m avg -t 1\n"
    )
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(line.encode() * 3))
    assert "Pool fwd 2x6x9x8 -> 2x6x5x5 k3x4 s2x1 p1x0 average" in run(str(packed)).stdout
    for times, of in ((6, ["log.gz"] * 3 + ["standard input"] * 6), (3, [None] * 3)):
        both = json.loads(run(str(packed), "-", "--format", "json", stdin=line.encode() * times).stdout)
        assert [row.get("file") for row in both] == of


def test_coverage_counts_what_was_not_understood(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(
        conv_entry() * 3 + entry("CreateTensorDescriptor", tensorDesc="0x1") + entry("FrobnicateForward", x="0x1")
        + entry("ConvolutionForward", x="0x1")
        + "MIOpen(HIP): Info [ConvolutionForward] algo = 1, workspace = 0\n"
        + "MIOpen(HIP): Info [Never] heard of\n"
        + "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 1 -c 3 -H 8 -W\n"
        + "hello\n" + conv_entry()[:200]
    )  # fmt: skip
    rows = json_of("ops", path, "--coverage")
    assert len(rows) == 1
    row = rows[0]
    kinds = row.pop("kinds")
    assert row == {
        "file": "run.log", "entries": 7, "entries_decoded": 4, "entries_cut": 1, "entries_unknown": 2, "commands": 1,
        "commands_decoded": 0, "commands_cut": 1, "commands_without_shapes": 0, "level_lines": 2,
        "level_lines_classified": 1, "level_lines_unknown": 1, "level_lines_classified_percent": 50.0,
        "other_records": 0, "stray_lines": 0, "foreign_lines": 1, "operations": row["operations"],
    }  # fmt: skip
    assert kinds["entry miopenFrobnicateForward"] == 1


def test_options_that_do_not_go_together_are_refused(tmp_path: Path, log: str) -> None:
    (tmp_path / "c.log").write_text("I1120 10:46:48.020552  2155 net.cpp:150] Setting up conv1\n")
    (tmp_path / "a.json").write_text('[{"function": "clFinish"}]')
    for name in ("a.json", "c.log", "missing.log", "."):
        done = run(str(tmp_path / name))
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1), name
    for wrong in (["--group-by", "nothing"], ["--columns", "line,nothing"], ["--format", "xml"], ["-", "-"],
                  ["--seed-csv", "--coverage"], ["--seed-csv", "--format", "json"]):  # fmt: skip
        done = run(log, *wrong)
        assert (done.exit_code, done.stdout) == (2, ""), wrong
        assert "Traceback" not in done.stderr


@pytest.mark.shared
def test_the_posted_logs_are_understood(shared: Path) -> None:
    """Every entry and command is decoded or cut off by the post itself, and 99 % of the level lines are classified."""
    files = sorted(str(path) for path in (shared / "samples" / "miopen-logs").glob("*.txt"))
    rows = json_of("ops", *files, "--coverage")
    assert len(rows) == len(files)
    for row in rows:
        assert row["entries"] == row["entries_decoded"] + row["entries_cut"]
        assert row["commands"] == row["commands_decoded"] + row["commands_cut"] + row["commands_without_shapes"]
    total = {key: sum(row[key] for row in rows) for key in rows[0] if isinstance(rows[0][key], int)}
    assert total["level_lines_classified"] >= 0.99 * total["level_lines"] > 200
    assert min(total["entries"], total["commands"]) > 20
    assert total["stray_lines"] <= 1


@pytest.mark.shared
@pytest.mark.parametrize("name", ["m121-resnet-train-entries-cmd", "m290-resnet-train-entries-cmd"])
def test_the_seed_columns_of_a_real_run(shared: Path, name: str) -> None:
    """The forward operations that the process really ran, in their order."""
    folder = shared / "samples" / "miopen-opencl" / name
    words = {"miopenConvolutionForward": "Conv", "miopenPoolingForward": "Pool"}
    words["miopenBatchNormalizationForwardTraining"] = "BatchNorm"
    calls = json.loads((folder / "truth.json").read_bytes())["api_calls"]
    wanted = [words[call["name"]] for call in calls if call["name"] in words and call["log_line"] is not None]
    rows = list(csv.DictReader(io.StringIO(run(str(folder / "run.log"), "--seed-csv").stdout)))
    assert [row["op"].removeprefix("Max").removeprefix("Avg") for row in rows] == wanted
    assert len(wanted) > 20


def test_an_argument_that_is_not_known_is_left_out_of_the_picture(tmp_path: Path) -> None:
    """A printed command need not tell of which API call it is."""
    line = "MIOpen(HIP): Command [] ./bin/MIOpenDriver bnorm -n 4 -c 3 -H 6 -W 8 -m 1 --forw 1\n"
    (tmp_path / "run.log").write_text(line)
    run_ = mio2trace.analyse([tmp_path / "run.log"]).runs[0]
    (operation,) = operations(run_.libraries[0])
    args = operation_args(operation)
    assert operation.api == ""
    assert args["primitive"] == "bnorm"
    assert all(value != "" for value in args.values())


# -- With a profile: times of operations against the truth and the profile itself.


FOLDER = samples(shared_folder())
SETS = [name for name in names(FOLDER) if (FOLDER / name / "prof.json").exists()]


def files_of(name: str) -> tuple[str, str]:
    return str(FOLDER / name / "run.log"), str(FOLDER / name / "prof.json")


def kernels(name: str) -> list[tuple[int | None, str, int]]:
    """(line of the true call, kernel's name, its time) of every kernel, from truth and profile alone."""
    truth = json.loads((FOLDER / name / "truth.json").read_bytes())
    calls = json.loads((FOLDER / name / "prof.json").read_bytes())
    found = []
    for enqueue in truth["enqueues"]:
        api = None if enqueue["api_call"] is None else truth["api_calls"][enqueue["api_call"]]
        times = calls[enqueue["prof_index"]]["profiling"]
        line = None if api is None else api.get("log_line") or api.get("cmd_line")
        found.append((line, enqueue["name"], times["end"] - times["start"]))
    return found


@pytest.mark.shared
@pytest.mark.parametrize("name", SETS)
def test_times_are_those_of_the_true_kernels(name: str) -> None:
    """Kernels, time and share of every operation; the time of transposes; nothing is counted twice."""
    true: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for line, kernel, ns in kernels(name):
        true[line or 0].append((kernel, ns))
    each = json_of("ops", *files_of(name), "--each")
    whole = sum(ns for _, _, ns in kernels(name))
    for row in each:
        ran = true[row["line"]]
        time = sum(ns for _, ns in ran)
        assert row["kernels"] == len(ran)
        assert row.get("kernel_ns", 0) == time
        assert row.get("transposes_ns", 0) == sum(ns for kernel, ns in ran if kernel.startswith("transpose_"))
        assert row.get("percent_of_kernel_time", 0) == pytest.approx(100 * time / whole)
        assert ("gflops" in row) is bool(row["phase"] == "run" and row.get("flop") and time)
        assert row.get("gflops", 0) == pytest.approx(row["flop"] / time if "gflops" in row else 0)
    assert sum(row.get("kernel_ns", 0) for row in each) == sum(ns for line in true if line for _, ns in true[line])


@pytest.mark.shared
@pytest.mark.parametrize("name", ["m290-alexnet-infer-10it", "m290-resnet-infer-immediate-fused"])
def test_groups_sum_their_operations(name: str) -> None:
    """Of steady iterations: calls, mean, rate, helpers; most time first; each search beside what it is for."""
    iterations = range(2, 11) if "10it" in name else (1,)
    each: dict[str, list[dict[str, Any]]] = defaultdict(list)
    searched: Counter[str] = Counter()
    for row in json_of("ops", *files_of(name), "--each"):
        if row["phase"] == "find":
            searched[row["problem"]] += row.get("kernel_ns", 0)
        elif row["kernels"] and row["iteration"] in iterations:
            each[row["problem"]].append(row)
    groups = json_of("ops", *files_of(name), "--group-by", "problem")
    assert {group["problem"] for group in groups} == each.keys()
    times = [group["kernel_ns"] for group in groups]
    assert times == sorted(times, reverse=True)
    whole = sum(ns for _, _, ns in kernels(name)) if len(iterations) == 1 else 190118541
    for group in groups:
        members = each[group["problem"]]
        ran, helpers = (sum(row.get(key, 0) for row in members) for key in ("kernel_ns", "helpers_ns"))
        assert group["calls"] == len(members) / len(iterations)
        assert group["kernel_ns"] == pytest.approx(ran / len(iterations))
        assert group["percent_of_kernel_time"] == pytest.approx(100 * ran / whole)
        assert "gflops" not in group or group["gflops"] == pytest.approx(sum(row["flop"] for row in members) / ran)
        assert group.get("helpers_ns", 0) == pytest.approx(helpers / len(iterations))
        assert group.get("find_ns", 0) == searched[group["problem"]]
    by_name = json_of("ops", *files_of(name), "--group-by", "name")
    assert {group["name"] for group in by_name} == {row["name"] for members in each.values() for row in members}
    assert sum(group.get("find_ns", 0) for group in by_name) == searched.total()
    assert [group["phase"] for group in json_of("ops", *files_of(name), "--group-by", "phase")] == ["run"]


@pytest.mark.shared
def test_which_files_make_a_table_with_times() -> None:
    """A log that holds its profile has times, a log alone none; the profile may come first."""
    alone = json_of("ops", str(FOLDER / "m121-alexnet-infer-interleaved" / "run.log"), "--each")
    assert sum(row["kernels"] for row in alone) == 58
    log, profile = files_of("m121-lenet-infer")
    assert printed("ops", log, profile, "--format", "csv") == printed("ops", profile, log, "--format", "csv")
    assert "kernel_ns" not in printed("ops", log, "--format", "csv").splitlines()[0]


@pytest.mark.shared
def test_driver_lines_tell_the_time_of_an_iteration() -> None:
    """Of a steady one, over the calls that a command stands for; the command that takes most first."""
    files = files_of("m290-alexnet-infer-10it")
    expected = [
        (row["command"], f"{row['kernel_ns'] / 1e6:.3f} ms in a steady iteration")
        for row in json_of("ops", *files, "--group-by", "command")
        if "command" in row
    ]
    assert len(expected) > 5
    lines = [line.partition(" # ") for line in printed("driver", *files).splitlines()]
    assert [(command, said.rpartition(", ")[2]) for command, _, said in lines if " ms " in said] == expected
    assert " ms " not in printed("driver", files[0])


@pytest.mark.shared
def test_what_only_the_profile_states_is_in_every_table(tmp_path: Path) -> None:
    """Beside MIOpen's calls PyTorch's own ops: each has its row, and time by problem is that of the kernels."""
    twin = shared_folder() / "samples" / "rocm-twins" / "lenet-train-own-layers"
    files = str(twin / "run.hip.log"), str(twin / "kineto" / "rank0.pt.trace.json.gz")
    kernel_ns = sum(row["kernel_ns"] for row in json_of("kernels", *files) if "operation" in row)
    each = json_of("ops", *files, "--each")
    assert {"aten::addmm", "miopenConvolutionForward"} <= {row["api"] for row in each}
    assert sum(row.get("kernel_ns", 0) for row in each) == kernel_ns
    assert sum(row["kernel_ns"] for row in json_of("ops", *files, "--group-by", "problem")) == kernel_ns
    printed(*files, "-o", str(tmp_path / "out.parquet"))
    assert json_of("ops", str(tmp_path / "out.parquet"), "--each") == each


def driver_times(*files: Path) -> dict[str, tuple[int, float, str]]:
    """By command: calls, time of an iteration in ms, whose iteration it is."""
    found = {}
    for line in printed("driver", *map(str, files)).splitlines():
        command, _, said = line.partition(" # ")
        calls, _, of = said.partition(", ")
        ms, _, whose = of.partition(" ms in a steady iteration")
        found[command] = int(calls.split()[0]), float(ms), whose
    return found


def test_driver_lines_of_a_job_have_the_times_of_each_rank(tmp_path: Path) -> None:
    """Ranks count their operations alike: rank 1 has an op more, before the convolution, and takes 7 times as long."""
    first = kineto_file(tmp_path, rows_of_a_step(), "rank0.json", distributedInfo={"rank": 0})
    events = rows_of_a_step()
    for event in events:
        if event["cat"] == "kernel":
            event["dur"] *= 7
    early = event_row("cpu_op", "aten::add", 542, 542, FIRST_US + 2, 3, External_id=44, Input_Dims=[[8], [8]])
    second = kineto_file(tmp_path, [events[0], early, *events[1:]], "rank1.json", distributedInfo={"rank": 1})
    alone = [driver_times(one) for one in (first, second)]
    assert len(alone[0]) == 1
    assert {whose for one in alone for _, _, whose in one.values()} == {""}
    for command, (calls, ms, whose) in driver_times(first, second).items():
        own = [one[command] for one in alone]
        assert (calls, whose) == (sum(one[0] for one in own), " of 2 ranks")
        assert ms == pytest.approx(sum(one[1] for one in own), abs=0.002)
        assert own[1][1] == pytest.approx(7 * own[0][1], abs=0.004) != 0
