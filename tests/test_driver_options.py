"""The options of MIOpenDriver by all their names: what a command means, and what is offered for it again."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mio2trace import queries
from mio2trace.cli import TASKS, cli
from mio2trace.commands import RARE
from mio2trace.model.miopen import Command
from mio2trace.notes import InputError
from mio2trace.ops.command import driver_line, parse, split
from mio2trace.ops.families.conv import ConvProblem, FusionProblem
from mio2trace.ops.problem import Problem
from mio2trace.trace import Slice
from tests.miopen_blocks import decoded

SIZES = "-n 2 -c 4 -H 9 -W 8 -k 6 -y 3 -x 5"


def has(problem: Problem | None, **expected: object) -> Problem:
    """It has these fields."""
    assert problem is not None
    assert {name: getattr(problem, name) for name in expected} == expected
    return problem


def again(problem: Problem) -> Problem | None:
    """What its command for today's driver means."""
    return parse(driver_line(problem).removeprefix("./bin/MIOpenDriver "))


def conv(text: str, tag: str = "") -> ConvProblem:
    problem = parse(f"conv {text}", tag)
    assert isinstance(problem, ConvProblem)
    return problem


CONV = (
    "convfp16 -n 2 -c 4 -H 9 -W 8 -k 6 -y 3 -x 5 -p 1 -q 2 -u 2 -v 1 -l 1 -j 1 -I NHWC -f NHWC -O NHWC -m conv -g 2"
    " -F 4 -t 1"
)


def test_the_shapes_of_a_convolution() -> None:
    has(parse(CONV), input=(2, 4, 9, 8), weights=(6, 2, 3, 5), output=(2, 6, 5, 8), memory_layout="NHWC")


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ("rnn --batchsize 4 --in_h 8 --hid_h 16 --num_layer 2 --seq_len 3 --mode lstm --bidirection 1 --forw 1",
         "rnn -n 4 -W 8 -H 16 -l 2 -k 3 -m lstm -r 1 -F 1"),
        ("pool --in_channels 4 --batchsize 2 --in_d 5 --in_h 9 --in_w 8 --spatial_dim 3 --win_d 2 --win_h 3 --win_w 3"
         " --pad_d 1 --pad_h 0 --pad_w 1 --pool_stride_d 2 --pool_stride_h 1 --pool_stride_w 3 --index_position 1"
         " --mode avg --forw 1 --time 1",
         "pool -c 4 -n 2 -D 5 -H 9 -W 8 -d 3 -Z 2 -y 3 -x 3 -o 1 -p 0 -q 1 -s 2 -v 1 -u 3 -M 1 -m avg -F 1 -t 1"),
        ("bnorm --batchsize 2 --in_channels 4 --in_d 3 --in_h 9 --in_w 8 --mode 1 --forw 1 --back 0 --run 1 --save 1"
         " --layout NDHWC", "bnorm -n 2 -c 4 -D 3 -H 9 -W 8 -m 1 --forw 1 -b 0 -r 1 -s 1 -L NDHWC"),
        ("tensorop --alpha1 2 --beta 1 --batchsize 1 --in_channels 4 --in_h 9 --in_w 8 --tensor_op 2",
         "tensorop -A 2 -G 1 -n 1 -c 4 -H 9 -W 8 -o 2"),
        ("reduce --DimLengths 4,5 --DimsToReduce 1 --ReduceOp 0", "reduce -D 4,5 -R 1 -O 0"),
        ("lrn --batchsize 1 --in_channels 4 --in_h 9 --in_w 8 --lrnN 5 --lrnK 1.0 --alpha 1 --beta 2 --mode cross -F 1",
         "lrn -n 1 -c 4 -H 9 -W 8 -N 5 -K 1.0 -A 1 -B 2 -m cross -F 1"),
        ("softmax --batchsize 1 --in_channels 4 --in_h 1 --in_w 1 --algorithm 2 --mode 0 --forw 2",
         "softmax -n 1 -c 4 -H 1 -W 1 -a 2 -m 0 -F 2"),
        ("convfp16 --batchsize 2 --spatial_dim 2 --pad_h 1 --pad_w 2 --pad_d 0 --conv_stride_h 2 --conv_stride_w 1"
         " --conv_stride_d 1 --dilation_h 1 --dilation_w 1 --dilation_d 1 --group_count 2 --mode conv"
         " --pad_mode default --trans_output_pad_h 0 --trans_output_pad_w 0 --trans_output_pad_d 0 --out_layout NHWC"
         " --in_layout NHWC --fil_layout NHWC --in_d 1 --in_h 9 --in_w 8 --fil_d 1 --fil_h 3 --fil_w 5 --in_channels 4"
         " --out_channels 6 --forw 4 --iter 1 --time 1 --verify 0 --in_cast_type fp8", CONV),
    ],
)  # fmt: skip
def test_a_word_has_names_of_its_own(long: str, short: str) -> None:
    """Long names are the short ones. The height of an RNN's input is -W; a batch norm's depth is -D."""
    assert short == CONV or split(long)[1] == split(short)[1]
    assert parse(long) == parse(short) is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-p 7 -q 7 -u 2 -v 3 -z same", {"pads": (1, 1)}),
        ("-p 7 -q 7 --pad_mode valid", {"pads": (0, 0)}),
        ("-p 1 -q 2 -l 2 --pad_mode valid", {"pads": (1, 2)}),  # not with a dilation
        ("-p 1 -q 2 -m trans --pad_mode valid", {"pads": (1, 2)}),
        ("-Y 1", {"output_pads": ()}),  # means nothing for a plain convolution
        ("-S ConvDirectNaiveConvFwd", {"solver_id": None}),
        ("--solution 85", {"solver_id": 85}),
    ],
)
def test_what_an_option_means(text: str, expected: dict[str, object]) -> None:
    """A padding mode decides the pads; a solution may be a name."""
    has(conv(f"{SIZES} {text}"), **expected)


def test_the_output_pad_of_a_transposed_convolution_is_offered_again() -> None:
    problem = conv(f"{SIZES} -u 2 -v 2 -m trans --trans_output_pad_h 1 -F 1")
    assert problem.output == (2, 6, 2 * 8 + 2 + 1 + 1, 2 * 7 + 4 + 1)
    assert " -Y 1 -m trans" in driver_line(problem)
    assert again(problem) == problem
    deep = conv(f"{SIZES} --spatial_dim 3 --in_d 4 --fil_d 2 -m trans --trans_output_pad_d 1 -F 1")
    assert deep.output[2] == 4 + 1 + 1
    assert " --trans_output_pad_d 1 " in driver_line(deep)


def test_the_output_channels_of_a_logged_transposed_convolution() -> None:
    """MIOpen prints a length of w: before ROCm 6.0 the first one, which is the input's channels, then k/g."""
    text = "-n 1 -c 8 -H 4 -W 4 -k {} -y 2 -x 2 -p 0 -q 0 -u 2 -v 2 -l 1 -j 1 -m trans -g 2 -F 1 -t 1"
    assert conv(text.format(6), "LogCmdConvolution").output == (1, 12, 8, 8)
    assert conv(text.format(6)).output == (1, 6, 8, 8)  # a person's
    unsure = conv(text.format(8), "LogCmdConvolution")
    assert "before ROCm 6.0" in unsure.check()
    assert driver_line(unsure)
    assert conv(text.format(8)).check() == ""
    told = conv(text.format(6), "LogCmdConvolution")
    assert [told.command(form).split(" -k ")[1].split()[0] for form in ("2.3", "6.3", "newest")] == ["8", "6", "12"]


def test_a_batch_norm_of_2026_says_whether_the_variance_is_inverse() -> None:
    """``-I`` is a layout in other words."""
    text = "bnormfp16 -n 2 -c 4 -H 9 -W 8 -m 1 -I {} --forw {} --layout NHWC"
    training = parse(text.format(0, "1 -b 0 -r 1 -s 1"), "LogCmdBNorm")
    said = {"direction": "forward", "training": True, "running": True, "saved": True, "layout": "NHWC"}
    assert " -I " not in has(training, **said, inverse=False).command()
    inverse = has(parse(text.format(1, "2 -b 0 -r 1"), "LogCmdBNorm"), inverse=True)
    assert again(inverse) == inverse


def test_a_pools_input_may_end_in_a_layout() -> None:
    text = "pool --input 1x4x9x8,{} -y 3 -x 3 -p 0 -q 0 -v 1 -u 1 -m max -F 1 -t 1 -I miopenIndexUint32"
    has(parse(text.format("NHWC")), x_strides=(288, 1, 32, 4), memory_layout="NHWC")
    assert parse(text.format("NHH")) is None


def test_the_modes_of_a_fusion() -> None:
    """-m is the activation's mode, but MIOpen prints batch norm's there."""
    sizes = "-n 2 -c 4 -H 9 -W 8"
    logged = has(parse(f"CBAInfer -F 2 {sizes} -m 1 -I 0", "LogCmdFusion"), bn_mode=1, activation=None)
    assert driver_line(logged) == f"./bin/MIOpenDriver CBAInfer --fusion_mode 2 {sizes} -M 1"
    assert logged.command("6.3") == f"CBAInfer -F 2 {sizes} -m 1"
    written = has(parse(f"CBAInfer -J 2 {sizes} -m 3 --bnMode 1"), bn_mode=1, activation=3)
    deep = has(parse(f"CBAInfer --fusion_mode 5 {SIZES} --activMode 8 -f NHWC"), activation=8)
    assert isinstance(deep, FusionProblem)
    assert deep.conv is not None
    assert deep.conv.layouts == ("", "NHWC", "")
    assert (parse(written.command()), parse(deep.command())) == (written, deep)


def test_an_rnn_is_offered_by_the_names_of_logs() -> None:
    text = "rnnfp16 --batchsize 4 --in_h 8 --hid_h 16 --num_layer 2 --seq_len 3 --mode gru --forw 2"
    problem = has(parse(text), inputs=8, hidden=16)
    assert driver_line(problem) == "./bin/MIOpenDriver rnnfp16 -n 4 -W 8 -H 16 -l 2 -k 3 -m gru -F 2"


# -- Help: by task, options that few people need apart, lines that fit; words that are no command; names in SQL.


CONTEXT = click.Context(cli, info_name="mio2trace")
COMMANDS = {name: command for name in cli.list_commands(CONTEXT) if (command := cli.get_command(CONTEXT, name))}


def run(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    with contextlib.chdir(folder or "."):
        done = CliRunner().invoke(cli, arguments, prog_name="mio2trace", terminal_width=78)
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def test_help_begins_with_pytorch_and_groups_by_task() -> None:
    said = run().stdout
    head = said.splitlines()[:10]
    assert any("PyTorch profiler (Kineto)" in line for line in head)
    assert any("rocprofv3 / rocpd" in line for line in head)
    assert said.index("trace.json.gz ") < said.index("run_results.db ") < said.index("messages run.log ")
    tasks = [line.removesuffix(":") for line in said.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert tasks == ["Options", *(task for task, _ in TASKS), "Other"]
    assert max(map(len, said.splitlines())) <= 78
    assert sum(any(one.name in RARE for one in command.params) for command in COMMANDS.values()) > 10


@pytest.mark.parametrize("name", COMMANDS)
def test_options_that_few_people_need_are_shown_by_help_all_alone(name: str) -> None:
    options = [one for one in COMMANDS[name].params if isinstance(one, click.Option)]
    short, whole = run(name, "--help"), run(name, "--help-all")
    assert short.returncode == 0
    of_all = name in ("compare", "doctor", "ranks")
    assert ("--help-all" in short.stdout) is any(one.name in RARE for one in options) or of_all
    for option in options:
        if option.name in RARE:
            assert f"{option.opts[-1]} " not in short.stdout.partition("Options:")[2]
            assert option.opts[-1] in whole.stdout
        else:
            assert option.opts[-1] in short.stdout or of_all


@pytest.mark.parametrize(
    ("word", "said"),
    [("kernel", "did you mean 'kernels'?"), ("lay", "did you mean 'layers'?"), ("xyzzy", "no command 'xyzzy'")],
)
def test_a_word_that_is_no_command_is_named_with_the_nearest(word: str, said: str, tmp_path: Path) -> None:
    """A file without a suffix is no mistyped command."""
    done = run(word, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    (tmp_path / word).write_text("nothing that is known\n")
    done = run(word, folder=tmp_path)
    assert done.returncode == 1
    assert "did you mean" not in done.stderr


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select nam from slice", "columns of slice: id, track_id, ts, dur"),
        ("select name from slices", "tables: slice, commands, kernels, layers"),
        ("select layr from kernels", "columns of kernels: id, track_id"),
    ],
)
def test_an_sql_error_lists_the_names_that_there_are(sql: str, said: str) -> None:
    one = Slice(1, 0, 1, "k", "kernel", {})
    with pytest.raises(InputError, match=said):
        queries.answer_in_sqlite([one], sql)


# -- Commands of MIOpen's log that a terminal wrapped.


COMMAND = "conv -n 2 -c 20 -H 12 -W 12 -k 50 -y 5 -x 5 -p 0 -m conv --forw 1 -F -4 -t 1"
HEAD = "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver "


def commands(*lines: str) -> list[str]:
    log = decoded(["\n".join([*lines, ""]).encode()])
    return [record.text for record in log.records if isinstance(record, Command)]


@pytest.mark.parametrize("width", range(8, len(COMMAND)))
def test_a_command_in_two_lines_is_one(width: int) -> None:
    """Wherever it was wrapped: within a number, an option, or where the space is lost at the line's end."""
    more = COMMAND[width:]
    if " -" not in f" {more}" or more.startswith("4"):
        return  # a number's last digits tell nothing
    assert commands(HEAD + COMMAND[:width], more) == [COMMAND]


def test_a_command_in_many_lines_is_one_each_time() -> None:
    """What is read again as it was before goes on as before."""
    lines = [HEAD + COMMAND[:20], COMMAND[20:44], COMMAND[44:60], COMMAND[60:]]
    assert commands(*lines, *lines, "another program's line", *lines) == [COMMAND] * 3


@pytest.mark.parametrize(
    ("lines", "added"),
    [
        *((line, "") for line in ("-n 4 of 5 are done", "Iteration 5", "- a list", "1.5 2.5", "-n 64", "-g 1 -F 2")),
        ("-z 1 -z 2", ""),
        ("-g 1", " -g 1"),
        ("I am another line\n-g 1", ""),
    ],
)
def test_what_is_no_options_or_repeats_one_is_another_programs(lines: str, added: str) -> None:
    """Only a line of options that the command does not have yet goes on with it, right behind it."""
    assert commands(HEAD + COMMAND, lines) == [COMMAND + added]
