"""``mio2trace driver``: commands that run a log's operations again."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mio2trace.cli import cli
from tests.test_ops import conv_entry, entry, ops_of

CONV = (
    "./bin/MIOpenDriver conv -n 2 -c 6 -H 9 -W 8 -k 10 -y 3 -x 3 -p 1 -q 0 -u 2 -v 1 -l 1 -j 1 -m conv -g 2 -F 1 -t 1"
)
POOL = "pool -n 2 -c 6 -H 9 -W 8 -y 3 -x 4 -p 1 -q 0 -u 2 -v 1 -m max -t 1"


def run(*args: str, text: str = "") -> Result:
    return CliRunner().invoke(cli, ["driver", *args], input=text, catch_exceptions=False)


FIND = conv_entry().replace("miopenConvolutionForward", "miopenFindConvolutionForwardAlgorithm")


def test_commands_are_counted_most_frequent_first() -> None:
    small = conv_entry(xDesc="{1, 6, 9, 8}, {432, 72, 8, 1}, ", yDesc="{1, 10, 5, 6}, {300, 30, 6, 1}, ")
    done = run("-", text=FIND * 9 + small + conv_entry() * 3)
    assert done.stdout == f"{CONV} # 3 calls\n{CONV.replace('-n 2', '-n 1')} # 1 call\n"
    assert "2 commands, 4 calls" in done.stderr
    assert run("-", "-q", text=small).stderr == ""
    assert run("-", text=FIND * 2).stdout == f"{CONV} # searched 2 times, not run\n"
    assert shlex.join(shlex.split(run("-", text=conv_entry()).stdout, comments=True)) == CONV


def test_what_has_no_command_is_listed_with_its_reason() -> None:
    bias = entry(
        "ConvolutionForwardBias", alpha="0x1", bDesc="{1, 10, 1, 1}", b="0x2", beta="0x3", yDesc="{2, 10, 5, 6}"
    )
    done = run("-", text=bias * 2 + conv_entry() + conv_entry(xDesc="{2, 6, 9, 8}, {500, 72, 8, 1}, "))
    assert done.stdout == f"{CONV} # 1 call\n"
    assert "no command for 2 x bias: the driver runs a bias only as part of a convolution or fusion" in done.stderr
    assert "no command for 1 x conv: strides with gaps" in done.stderr


def test_the_logs_own_form() -> None:
    conv = CONV.replace(" -F 1", "")
    text = f"miopenPoolingForward: ./bin/MIOpenDriver {POOL}\n" * 2 + f"miopenConvolutionForward: {conv}\n"
    done = run("-", "--form", "log", text=text)
    assert done.stdout.splitlines()[0] == f"./bin/MIOpenDriver {POOL} # 2 calls"
    assert "-F" not in done.stdout
    assert run("-", text=text).stdout.splitlines() == [
        "./bin/MIOpenDriver pool -M 0 --input 2x6x9x8,432x72x8x1 -y 3 -x 4 -p 1 -q 0 -v 2 -u 1 -m max -F 1 -t 1"
        " # 2 calls",
        f"{CONV} # 1 call",
    ]
    assert "written for the current driver" in run("-", "--form", "log", text=conv_entry()).stderr


def test_bad_input_is_one_line() -> None:
    done = run("-", text="nothing\n")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert run("-", "--form", "2.0", text=conv_entry()).exit_code == 2


@pytest.mark.shared
@pytest.mark.parametrize("name", ["m290-resnet-train-entries-cmd", "m121-resnet-train-entries-cmd"])
def test_each_call_of_a_real_run_is_counted_once(shared: Path, name: str) -> None:
    folder = shared / "samples" / "miopen-opencl" / name
    lines = [line.split(" # ") for line in run(str(folder / "run.log")).stdout.splitlines()]
    counts = [(command, int(said.split()[0])) for command, said in lines if "searched" not in said]
    assert len({command for command, _ in lines}) == len(lines)
    assert [count for _, count in counts] == sorted((count for _, count in counts), reverse=True)
    operations = [one for one in ops_of((folder / "run.log").read_bytes()) if one.phase == "run" and one.command]
    assert sum(count for _, count in counts) == len(operations)
    convolution = re.compile("miopenConvolution(Forward|BackwardData|BackwardWeights)")
    calls = json.loads((folder / "truth.json").read_bytes())["api_calls"]
    true = sum(call["log_line"] is not None and bool(convolution.fullmatch(call["name"])) for call in calls)
    assert sum(count for command, count in counts if "MIOpenDriver conv " in command) == true
