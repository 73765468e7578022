"""``mio2trace ops``: rows of operations, groups, the seed notebook's CSV, how much was understood."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import mio2trace
from mio2trace.cli import cli
from mio2trace.draw.containers import operation_args
from mio2trace.ops import operations
from mio2trace.reports.ops import COLUMNS, SEED_COLUMNS
from tests.test_ops import conv_entry, entry

X = {"1.0": "2, 6, 9, 8", "1.2": "2, 6, 9, 8", "2.0": "{2, 6, 9, 8}, {432, 72, 8, 1}, packed, "}
W = {"1.0": "10, 6, 3, 5", "1.2": "10, 6, 3, 5", "2.0": "{10, 6, 3, 5}, {90, 15, 5, 1}, packed, "}
Y = {"1.0": "2, 10, 5, 4", "1.2": "2, 10, 5, 4", "2.0": "{2, 10, 5, 4}, {200, 20, 4, 1}, packed, "}
CONV = {
    "1.0": "1, 0, 2, 1, 1, 1, ",
    "1.2": "1, 0, 2, 1, 1, 1, ",
    "2.0": "conv2d, miopenConvolution, miopenPaddingDefault, {1, 0}, {2, 1}, {1, 1}, ",
}
POOLED = {"1.0": "2, 6, 5, 4", "1.2": "2, 6, 5, 4", "2.0": "{2, 6, 5, 4}, {120, 20, 4, 1}, packed, "}
LAYOUTS = ("1.0", "1.2", "2.0")


def conv(layout: str, api: str = "ConvolutionForward") -> str:
    return entry(
        api, layout, alpha="0x7ffc0000", xDesc=X[layout], x="0x7f00aa00", wDesc=W[layout], w="0x7f00bb00",
        convDesc=CONV[layout], algo=1, beta="0x7ffc0008", yDesc=Y[layout], y="0x7f00cc00", workSpace="0",
        workSpaceSize=0,
    )  # fmt: skip


def pool(layout: str, mode: str, api: str = "PoolingForward") -> str:
    first = "2, 2, 1, 1" if layout == "1.0" else "1, 1, 2, 2"
    return entry(
        api, layout, poolDesc=f"{mode}, 3, 4, {first}, ", alpha="0x7ffc0000", xDesc=X[layout], x="0x7f00aa00",
        beta="0x7ffc0008", yDesc=POOLED[layout], y="0x7f00cc00", do_backward=0, workSpace="0", workSpaceSize=0,
    )  # fmt: skip


def bnorm(layout: str, api: str = "BatchNormalizationForwardTraining") -> str:
    scale = "{1, 6, 1, 1}, {6, 1, 1, 1}, packed, " if layout == "2.0" else "1, 6, 1, 1"
    return entry(
        api, layout, bn_mode=1, xDesc=X[layout], x="0x7f00aa00", yDesc=X[layout], y="0x7f00cc00",
        bnScaleBiasMeanVarDesc=scale, bnScale="0x7f00dd00", bnBias="0x7f00dd40",
    )  # fmt: skip


def run(*args: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(cli, ["ops", *args], input=stdin, catch_exceptions=False)


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
    assert done.exit_code == 0
    assert tuple(rows[0]) == COLUMNS
    assert done.stdout.count("operation,line,api") == 1
    assert [row["operation"] for row in rows] == list("012345")
    assert rows[0]["input"] == "2x6x9x8"
    assert rows[0]["problem"] == "Conv fwd 2x6x9x8 -> 2x10x5x6 k3x3 s2x1 g2 p1x0"
    assert [rows[at]["name"] for at in (0, 2)] == [
        "Conv fwd 2x6x9x8 -> 2x10x5x6 k3x3 s2x1 g2", "Find Conv fwd 2x6x9x8 -> 2x10x5x4 k3x5 s2x1",
    ]  # fmt: skip
    assert [rows[0][name] for name in ("M", "N", "K", "batch")] == ["5", "30", "27", "4"]
    assert rows[0]["dtype"] == ""
    assert [row["phase"] for row in rows] == ["run", "run", "find", "run", "run", "run"]
    assert rows[4]["M"] == ""
    assert "run.log: 6 operations: 5 run, 1 find" in done.stderr
    assert "line of other programs" in done.stderr
    assert run(log, "--quiet").stderr == ""


def test_json_has_the_gemm_as_an_object_and_no_empty_keys(log: str) -> None:
    rows = json.loads(run(log, "--format", "json").stdout)
    assert rows == [json.loads(line) for line in run(log, "--format", "jsonl").stdout.splitlines()]
    assert rows[0]["gemm"] == {"M": 5, "N": 30, "K": 27, "batch": 4}
    assert rows[0]["doubts"] == ["the data type is not known: the command assumes float"]
    assert "gemm" not in rows[4]
    assert all(value not in (None, "", []) for row in rows for value in row.values())


def test_groups(log: str) -> None:
    rows = json.loads(run(log, "--format", "json", "--phase", "run", "--group-by", "problem").stdout)
    assert [(row["count"], row["problem"]) for row in rows] == [
        (3, "Conv fwd 2x6x9x8 -> 2x10x5x6 k3x3 s2x1 g2 p1x0"),
        (1, "Conv fwd 2x6x9x8 -> 2x10x5x4 k3x5 s2x1 p1x0"),
        (1, "BatchNorm fwd 2x6x9x8 spatial training"),
    ]
    assert rows[0]["flop"] == 2 * 2 * 10 * 30 * 3 * 9
    assert "line" not in rows[0]
    both = json.loads(run(log, "--format", "json", "--group-by", "primitive,phase").stdout)
    assert [(row["count"], row["primitive"], row["phase"]) for row in both] == [
        (4, "conv", "run"), (1, "conv", "find"), (1, "bnorm", "run"),
    ]  # fmt: skip


def test_every_form_prints_every_operation(log: str) -> None:
    assert run(log, "--format", "table").stdout.count("\n") == 7
    assert run(log, "--format", "markdown").stdout.count("\n") == 8
    assert run(log, "--columns", "line,problem").stdout.splitlines()[0] == "line,problem"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_seed_csv_in_each_layout(layout: str, tmp_path: Path) -> None:
    """Heights and widths in place, all of them, nothing but the three forward operations and average pooling."""
    path = tmp_path / "run.log"
    path.write_text(
        conv(layout, "FindConvolutionForwardAlgorithm") + conv(layout) + bnorm(layout)
        + pool(layout, "miopenPoolingMax") + pool(layout, "miopenPoolingAverage")
        + bnorm(layout, "BatchNormalizationForwardInference")
        + conv(layout) + pool(layout, "Unknown: 2")
    )  # fmt: skip
    done = run(str(path), "--seed-csv")
    assert done.stdout == (
        "op,in channels,out channels,kernel h,kernel w,pad h,stride h,out h,out w\n"
        "Conv,6,10,3,5,1,2,5,4\n"
        "BatchNorm,6,6,,,,,9,8\n"
        "MaxPool,6,6,3,4,1,2,5,4\n"
        "AvgPool,6,6,3,4,1,2,5,4\n"
        "Conv,6,10,3,5,1,2,5,4\n"
        "AvgPool,6,6,3,4,1,2,5,4\n"
    )
    assert tuple(done.stdout.splitlines()[0].split(",")) == SEED_COLUMNS


def test_seed_csv_has_all_groups_channels(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(conv_entry() * 200)
    lines = run(str(path), "--seed-csv").stdout.splitlines()
    assert len(lines) == 201
    assert set(lines[1:]) == {"Conv,6,10,3,3,1,2,5,6"}


def test_commands_and_gzip_and_standard_input(tmp_path: Path) -> None:
    text = (
        "miopenPoolingForward: ./bin/MIOpenDriver pool -n 2 -c 6 -H 9 -W 8 -y 3 -x 4 -p 1 -q 0 -u 2 -v 1 -m avg -t 1\n"
        * 3
    )
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    plain = run("-", stdin=text.encode()).stdout
    assert plain == run(str(packed)).stdout
    assert "Pool fwd 2x6x9x8 -> 2x6x5x5 k3x4 s2x1 p1x0 average" in plain
    both = json.loads(run(str(packed), "-", "--format", "json", stdin=2 * text.encode()).stdout)
    assert [row["file"] for row in both] == ["log.gz"] * 3 + ["standard input"] * 6
    once = json.loads(run(str(packed), "-", "--format", "json", stdin=text.encode()).stdout)
    assert [row.get("file") for row in once] == [None] * 3, "the same content counts once"


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
    rows = json.loads(run(str(path), "--coverage", "--format", "json").stdout)
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


def test_bad_input_is_one_line(tmp_path: Path, log: str) -> None:
    (tmp_path / "a.json").write_text('[{"function": "clFinish"}]')
    (tmp_path / "b.log").write_text("nothing here\n")
    (tmp_path / "c.log").write_text("I1120 10:46:48.020552  2155 net.cpp:150] Setting up conv1\n")
    for name in ("a.json", "b.log", "c.log", "missing.log", "."):
        done = run(str(tmp_path / name))
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1), name
        assert done.stderr.startswith("mio2trace: ")
    for wrong in (["--group-by", "nothing"], ["--columns", "line,nothing"], ["--format", "xml"], ["-", "-"],
                  ["--seed-csv", "--coverage"], ["--seed-csv", "--format", "json"]):  # fmt: skip
        done = run(log, *wrong)
        assert (done.exit_code, done.stdout) == (2, ""), wrong
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["ops", "driver"])
def test_a_reader_that_goes_away_is_no_traceback(command: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("".join(conv_entry(x=f"0x7f00{n:06x}", algo=1 + n % 3) for n in range(3000)))
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-m", "mio2trace", command, str(path), "-q"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (process.returncode, process.stderr) == (1, b"")


@pytest.mark.shared
def test_the_posted_logs_are_understood(shared: Path) -> None:
    """Every entry and command is decoded or cut off by the post itself, and 99 % of the level lines are classified."""
    files = sorted(str(path) for path in (shared / "samples" / "miopen-logs").glob("*.txt"))
    done = run(*files, "--coverage", "--format", "json")
    rows = json.loads(done.stdout)
    assert done.exit_code == 0
    assert len(rows) == len(files)
    assert all(row["entries"] == row["entries_decoded"] + row["entries_cut"] for row in rows)
    assert all(
        row["commands"] == row["commands_decoded"] + row["commands_cut"] + row["commands_without_shapes"]
        for row in rows
    )
    total = {key: sum(row[key] for row in rows) for key in rows[0] if isinstance(rows[0][key], int)}
    assert total["level_lines_classified"] >= 0.99 * total["level_lines"] > 200
    assert total["entries"] > 20
    assert total["commands"] > 20
    assert total["stray_lines"] <= 1


@pytest.mark.shared
def test_the_seed_columns_of_a_real_run(shared: Path) -> None:
    """The forward operations that the process really ran, in their order."""
    for name in ("m121-resnet-train-entries-cmd", "m290-resnet-train-entries-cmd"):
        folder = shared / "samples" / "miopen-opencl" / name
        truth = json.loads((folder / "truth.json").read_bytes())
        wanted = [
            {"miopenConvolutionForward": "Conv", "miopenPoolingForward": "Pool"}.get(call["name"], "BatchNorm")
            for call in truth["api_calls"]
            if call["name"]
            in ("miopenConvolutionForward", "miopenPoolingForward", "miopenBatchNormalizationForwardTraining")
            and call["log_line"] is not None
        ]
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
