"""Commands of MIOpenDriver: those that ``mio2trace driver`` offers, what each option means, how people give them."""

from __future__ import annotations

import json
import re
import shlex
from functools import partial
from pathlib import Path

import pytest

from mio2trace.kernels.names import kernel_name
from mio2trace.model.miopen import Command, Message
from mio2trace.ops.command import driver_line, parse, split
from mio2trace.ops.families.conv import ConvProblem, FusionProblem
from mio2trace.ops.families.normalisation import BnormProblem
from mio2trace.ops.problem import CommandError, Problem
from mio2trace.reports.ops import Times, driver_lines
from tests.commands import invoked
from tests.miopen_blocks import decoded
from tests.often import present, saved
from tests.test_ops import conv_entry, entry, ops_of

CONV = (
    "./bin/MIOpenDriver conv -n 2 -c 6 -H 9 -W 8 -k 10 -y 3 -x 3 -p 1 -q 0 -u 2 -v 1 -l 1 -j 1 -m conv -g 2 -F 1 -t 1"
)
POOL = "pool -n 2 -c 6 -H 9 -W 8 -y 3 -x 4 -p 1 -q 0 -u 2 -v 1 -m max -t 1"


run = partial(invoked, "driver")


FIND = conv_entry().replace("miopenConvolutionForward", "miopenFindConvolutionForwardAlgorithm")


def test_commands_are_counted_most_frequent_first() -> None:
    small = conv_entry(xDesc="{1, 6, 9, 8}, {432, 72, 8, 1}, ", yDesc="{1, 10, 5, 6}, {300, 30, 6, 1}, ")
    done = run("-", stdin=FIND * 9 + small + conv_entry() * 3)
    assert done.stdout == f"{CONV} # 3 calls\n{CONV.replace('-n 2', '-n 1')} # 1 call\n"
    assert "2 commands, 4 calls" in done.stderr
    assert run("-", "-q", stdin=small).stderr == ""
    assert run("-", stdin=FIND * 2).stdout == f"{CONV} # searched 2 times, not run\n"
    assert shlex.join(shlex.split(run("-", stdin=conv_entry()).stdout, comments=True)) == CONV


def test_a_log_without_operations_says_how_to_get_them() -> None:
    done = run("-", stdin="MIOpen(HIP): Warning [ReadFile] File is unreadable: x\n")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "no operation in it: MIOpen logs them if MIOPEN_ENABLE_LOGGING or" in done.stderr
    assert "no operation in it" not in run("-", stdin=FIND).stderr


def test_a_command_without_known_kernels_has_no_time() -> None:
    """Graphs launched them, perhaps."""
    (operation,) = ops_of(conv_entry())
    for ns, said in ((0, "1 call, no kernel of it known in a steady iteration"), (2e6, "1 call, 2.000 ms in a steady")):
        (line,), _ = driver_lines([operation], times=Times({id(operation): ns}, 1))
        assert f"{CONV} # {said}" in str(line)


def test_what_has_no_command_is_listed_with_its_reason() -> None:
    bias = entry(
        "ConvolutionForwardBias", alpha="0x1", bDesc="{1, 10, 1, 1}", b="0x2", beta="0x3", yDesc="{2, 10, 5, 6}"
    )
    done = run("-", stdin=bias * 2 + conv_entry() + conv_entry(xDesc="{2, 6, 9, 8}, {500, 72, 8, 1}, "))
    assert done.stdout == f"{CONV} # 1 call\n"
    assert "no command for 2 x bias: the driver runs a bias only as part of a convolution or fusion" in done.stderr
    assert "no command for 1 x conv: strides with gaps" in done.stderr


def test_the_logs_own_form() -> None:
    conv = CONV.replace(" -F 1", "")
    text = f"miopenPoolingForward: ./bin/MIOpenDriver {POOL}\n" * 2 + f"miopenConvolutionForward: {conv}\n"
    done = run("-", "--form", "log", stdin=text)
    assert done.stdout.splitlines()[0] == f"./bin/MIOpenDriver {POOL} # 2 calls"
    assert "-F" not in done.stdout
    assert run("-", stdin=text).stdout.splitlines() == [
        "./bin/MIOpenDriver pool -M 0 --input 2x6x9x8,432x72x8x1 -y 3 -x 4 -p 1 -q 0 -v 2 -u 1 -m max -F 1 -t 1"
        " # 2 calls",
        f"{CONV} # 1 call",
    ]
    assert "written for the current driver" in run("-", "--form", "log", stdin=conv_entry()).stderr


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


# -- The driver's options by all their names: what a command means, and what is offered for it again.

SIZES = "-n 2 -c 4 -H 9 -W 8 -k 6 -y 3 -x 5"
RNN = "rnnfp16 --batchsize 4 --in_h 8 --hid_h 16 --num_layer 2 --seq_len 3 --mode gru --forw 2"


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


FULL = (
    "convfp16 -n 2 -c 4 -H 9 -W 8 -k 6 -y 3 -x 5 -p 1 -q 2 -u 2 -v 1 -l 1 -j 1 -I NHWC -f NHWC -O NHWC -m conv -g 2"
    " -F 4 -t 1"
)


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
         " --out_channels 6 --forw 4 --iter 1 --time 1 --verify 0 --in_cast_type fp8", FULL),
    ],
)  # fmt: skip
def test_a_word_has_names_of_its_own(long: str, short: str) -> None:
    """Long names are the short ones. The height of an RNN's input is -W; a batch norm's depth is -D."""
    assert short == FULL or split(long)[1] == split(short)[1]
    assert parse(long) == parse(short) is not None


@pytest.mark.parametrize(
    ("command", "tag", "expected"),
    [
        (FULL, "", {"input": (2, 4, 9, 8), "weights": (6, 2, 3, 5), "output": (2, 6, 5, 8), "memory_layout": "NHWC"}),
        # newer drivers check their buffers
        (f"conv {SIZES} --gpubuffer_check 2", "", {"input": (2, 4, 9, 8)}),
        # a padding mode decides the pads; a solution may be a name
        (f"conv {SIZES} -p 7 -q 7 -u 2 -v 3 -z same", "", {"pads": (1, 1)}),
        (f"conv {SIZES} -p 7 -q 7 --pad_mode valid", "", {"pads": (0, 0)}),
        (f"conv {SIZES} -p 1 -q 2 -l 2 --pad_mode valid", "", {"pads": (1, 2)}),  # not with a dilation
        (f"conv {SIZES} -p 1 -q 2 -m trans --pad_mode valid", "", {"pads": (1, 2)}),
        (f"conv {SIZES} -Y 1", "", {"output_pads": ()}),  # means nothing for a plain convolution
        (f"conv {SIZES} -S ConvDirectNaiveConvFwd", "", {"solver_number": None}),
        (f"conv {SIZES} --solution 85", "", {"solver_number": 85}),
        # a norm's shape is one option
        ("layernormfp16 -X 4x8x2x16 -o 1 -t 1", "", {"input": (4, 8, 2, 16), "dtype": "half"}),
        ("t5layernorm --input 4x8x16,NCHW -F 2", "", {"input": (4, 8, 16), "direction": "backward-data"}),
        ("groupnorm --batchsize 2 -c 8 --in_d 3 -H 4 -W 5 -g 4", "", {"input": (2, 8, 3, 4, 5)}),
        ("groupnormfp16 --batchsize 2 -c 8 --in_d 3 -H 4 -W 5 -g 4", "", {"input": (2, 8, 3, 4, 5), "dtype": "half"}),
        # where a person wrote 0; a pooling's 0 is its gradient, which logs print so
        ("pool -M 0 --input 2x3x8x8 -y 3 -x 3 -p 1 -q 1 -v 2 -u 2 -m max -F 0 -t 1", "LogCmdPooling",
         {"direction": "backward-data"}),
        ("pool -M 0 --input 2x3x8x8 -y 3 -x 3 -p 1 -q 1 -v 2 -u 2 -m max -F 0", "", {"direction": "backward-data"}),
        ("activ -n 2 -c 3 -H 8 -W 8 -m 3 -F 0", "", {"direction": None}),
        ("activ -n 2 -c 3 -H 8 -W 8 -m 3 --forw 1", "", {"direction": "forward"}),
        ("lrn -n 2 -c 3 -H 4 -W 4 -N 5 -m cross -A 1 -B 1 -K 1 --forw 1", "", {"mode": 1, "direction": "forward"}),
        ("ctc -a 0 -b 0 -c 9 -m 1 -n 2", "", {"input": ()}),  # classes are no shape
        (RNN, "", {"inputs": 8, "hidden": 16}),
        ("bnorm -n 1 -c 2 -H 3 -W 4 -m 1 --forw 1 -b 0 -s 1 -r 1", "",
         {"direction": "forward", "running": True, "saved": True, "training": True}),
        ("bnorm -n 1 -c 2 -H 3 -W 4 -m 1 --forw 1 -b 0 -r 1 -s 1 --layout NCHW", "",
         {"direction": "forward", "running": True, "saved": True, "training": True}),
        ("bnorm -n 1 -c 2 -H 3 -W 4 -m 1 --forw 0 -b 1 -r 1", "",
         {"direction": "backward-data", "running": None, "saved": True}),
        ("bnorm", "miopenBatchNormalizationBackward", {"direction": "backward-data", "x": ()}),
    ],
)  # fmt: skip
def test_what_a_command_says(command: str, tag: str, expected: dict[str, object]) -> None:
    problem = has(parse(command, tag), **expected)
    if command.endswith("-b 1 -r 1"):
        assert problem.command() == "bnorm -n 1 -c 2 -H 3 -W 4 -m 1 --forw 0 -b 1 -s 1 --layout NCHW"


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


LRN = "lrn -A 1 -B 2 -F 2 -H 9 -K 1 -N 5 -W 8 -c 4 -m {} -n 2"
REDUCE = "reduce{} -A 1 -B 0 -C 1 -D 2,8,9,8 -I 0 -N 0 -O 5 -R 2,3"
BNORM = "bnorm -n 2 -c 4 -H 9 -W 8 -f 3 -x 0.5 -y 1{} --forw 1 -b 0 -r 1 -s 1 --layout NHWC"
ADAM = "{} -d 2x8x9 -l 0.001 -1 0.9 -2 0.999 -e 1e-08 -W 0 -a 0 -m 0"
SEQUENCE = "rnn_seq -n 2 -W 3 -H 4 -l 1 -b 1 -m lstm -k 5 -K 5,4 -F {} -t 1"


@pytest.mark.parametrize(
    ("logged", "offered"),
    [
        (BNORM.format(" -z 2 -m 1 -I 0"), BNORM.format(" -m 1")),
        (LRN.format(1), LRN.format("cross")),
        (LRN.format(0), LRN.format("within")),
        (REDUCE.format("fp"), REDUCE.format("")),
        (REDUCE.format("fp16"), REDUCE.format("fp16")),
        (REDUCE.format("bfp16"), "the driver has no reduce for bfloat16"),
        ("reducefp -A 1 -B 0 -D 2,1 -O 3 -R 1", "no dimension is reduced"),
        (ADAM.format("adamwfp16"), ADAM.format("adamwfp16")),
        (ADAM.format("ampadam"), ADAM.format("ampadam")),
        (ADAM.format("ampadamfp16"), "the driver has no ampadam for half"),
        (RNN, "rnnfp16 -n 4 -W 8 -H 16 -l 2 -k 3 -m gru -F 2"),
        (SEQUENCE.format(1), SEQUENCE.format(1)),
        (SEQUENCE.format(2), "the driver runs a gradient of rnn_seq only with the calls before it (-F 3, -F 7)"),
    ],
)
def test_the_driver_takes_what_is_offered(logged: str, offered: str) -> None:
    """MIOpen prints options, words and directions that its own driver refuses (its drivers' sources of 2026)."""
    problem = present(parse(logged))
    try:
        line = driver_line(problem).removeprefix("./bin/MIOpenDriver ")
    except CommandError as reason:
        line = str(reason)
    assert line == offered


def test_a_step_of_adam_with_its_command_is_one_operation() -> None:
    """The entry has only the lengths; all forms of Adam are one primitive, as the names of their kernels are."""
    transformers = "transformersadamw -d 4096 -l 0.001 -1 0.9 -2 0.999 -e 1e-08 -W 0 -c 1"
    first, second = ops_of(
        "MIOpen(HIP): miopenStatus_t miopenFusedAdam(miopenHandle_t, const miopenTensorDescriptor_t, void *){\n"
        "MIOpen(HIP): \tparamDesc = {2, 8, 9}, {72, 9, 1}, \nMIOpen(HIP): }\n"
        f"MIOpen(HIP): Command [LogCmdAdam] ./bin/MIOpenDriver {ADAM.format('adamw')}\n"
        f"MIOpen(HIP): Command [LogCmdTransformersAdamW] ./bin/MIOpenDriver {transformers}\n"
    )
    assert [(row.primitive, row.input) for row in (first, second)] == [("adam", (2, 8, 9)), ("adam", (4096,))]
    assert first.command == f"./bin/MIOpenDriver {ADAM.format('adamw')}"
    assert second.command == f"./bin/MIOpenDriver {transformers}"
    assert parse(ADAM.format("adam") + " -c 1") is None  # an option of the other form only
    for kernel in ("AmpAdamPackedWithStep", "TransformersAdamWContiguous", "TransformersAmpAdamWContiguousWithStep"):
        assert present(kernel_name(kernel)).primitives == ("adam",)


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
    assert present(deep.conv).layouts == ("", "NHWC", "")
    assert (parse(written.command()), parse(deep.command())) == (written, deep)


# -- Commands as people give them: behind a prompt, between marks, with the driver's own line after them.

COMMAND = "conv -n 2 -c 4 -H 9 -W 8 -k 6 -y 3 -x 3 -p 0 -q 0 -F 1"


def commands(*lines: str) -> list[str]:
    log = decoded(["\n".join([*lines, ""]).encode()])
    return [record.text for record in log.records if isinstance(record, Command)]


@pytest.mark.parametrize(
    "line",
    [
        "./bin/MIOpenDriver {}", "$ ./bin/MIOpenDriver {}", "user@host:/opt/rocm# MIOpenDriver {}",
        "(base) [user@host dir]$ ./bin/MIOpenDriver {}", "MIOPEN_FIND_ENFORCE=3 MIOPEN_LOG_LEVEL=6 bin/MIOpenDriver {}",
        "user@host:~$ MIOPEN_FIND_MODE=1 MIOpenDriver {}", '"./bin/MIOpenDriver {}"', "`./bin/MIOpenDriver {}`",
        "**./bin/MIOpenDriver {}**", "* ./bin/MIOpenDriver {}", "- ./bin/MIOpenDriver {}", "> ./bin/MIOpenDriver {}",
        " INFO - MIOpenDriver {}", "2026-01-01 10:00:00,123 - INFO - MIOpenDriver {}",
        "./bin/MIOpenDriver {} 2>&1 | tee log", "./bin/MIOpenDriver {} > log", "./bin/MIOpenDriver {} # 3 calls",
        "./bin/MIOpenDriver {} && echo", "./bin/MIOpenDriver {};", "MIOpenDriver.exe {}\r",
        "**MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver {}**",
    ],
)  # fmt: skip
def test_a_command_is_found_between_what_surrounds_it(line: str) -> None:
    assert commands(line.format(COMMAND)) == [COMMAND]


GIVEN, OWN, WIDE = f"$ ./bin/MIOpenDriver {COMMAND}", f"MIOpenDriver {COMMAND}", COMMAND.replace("conv ", "conv   ")
BEGIN, END = COMMAND.split(" -y")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        # what runs nothing
        *(
            ([line], [])
            for line in ("./bin/MIOpenDriver conv --help", "we use MIOpenDriver conv for it", "MIOpenDriver")
        ),
        # the driver's own line after a command is the same run
        ([GIVEN, OWN, GIVEN, OWN.replace("Driver ", "Driver: ")], [COMMAND] * 2),
        ([GIVEN.replace(COMMAND, WIDE), OWN], [WIDE]),
        # also if several commands were given at once
        ([GIVEN, GIVEN, OWN, "time: 1 ms", OWN], [COMMAND] * 2),
        ([GIVEN, f"> ./bin/MIOpenDriver {COMMAND} -t 1", OWN, "stats: x", f"{OWN} -t 1"], [COMMAND, f"{COMMAND} -t 1"]),
        ([GIVEN, OWN, "time: 1 ms", OWN], [COMMAND] * 2),
        # the driver knows the values of the shell's variables, and what comes in lines that are not understood
        (
            [f"./bin/MIOpenDriver {BEGIN} \\", f"-y{END} -C ${{DIR}} -V 1", f"{OWN} -C /a -V 1"],
            [f"{COMMAND} -C /a -V 1"],
        ),
        ([GIVEN.replace("-n 2", "-n $N"), OWN], [COMMAND]),
        # a list of commands
        ([GIVEN.removeprefix("$ ")] * 2, [COMMAND] * 2),
        ([OWN, OWN], [COMMAND] * 2),
        ([GIVEN, OWN.replace("-n 2", "-n 3")], [COMMAND, COMMAND.replace("-n 2", "-n 3")]),
        # a command goes on behind a backslash
        ([f"./bin/MIOpenDriver {BEGIN} \\", f"-y{END} \\", "-t 1", f"{OWN} -t 1"], [f"{COMMAND} -t 1"]),
        ([f"> ./bin/MIOpenDriver {BEGIN} \\", f"> -y{END}"], [COMMAND]),
    ],
)
def test_which_lines_are_one_command(lines: list[str], found: list[str]) -> None:
    assert commands(*lines) == found


def test_what_the_driver_prints_is_of_its_own_line_of_the_command() -> None:
    """The commands given at once are in front of the output of all."""
    others = COMMAND.replace("-n 2", "-n 3")
    log = decoded([f"{GIVEN}\n> MIOpenDriver {others}\n{OWN}\nstats: a\nMIOpenDriver {others}\nstats: b\n".encode()])
    found = [(one.line, one.text) for one in log.records if isinstance(one, (Command, Message))]
    assert found == [(3, COMMAND), (4, "stats: a"), (5, others), (6, "stats: b")]
    assert dict(log.counts) == {"command conv": 2, "driver command repeated on standard output": 2, "line driver": 2}


@pytest.mark.parametrize(
    "line",
    [
        "     12 ./bin/MIOpenDriver {}", "     12    ./bin/MIOpenDriver {}", "   3 MIOpenDriver {}",
        "     12 MIOpen(HIP): Command [A] ./bin/MIOpenDriver {}", "  501  ./bin/MIOpenDriver {}",
    ],
)  # fmt: skip
def test_a_command_behind_a_number_is_left_out(line: str) -> None:
    """`uniq -c` counts lines, and the shell's history has numbers: one call of each would be too few or too many."""
    assert commands(line.format(COMMAND)) == []
    assert commands("     77 MIOpen(HIP): Info [Handle] stream: 0", f"     12 {OWN}", OWN) == [COMMAND]
    assert commands(f"12 MIOpen(HIP): Command [A] ./bin/MIOpenDriver {COMMAND}") == [COMMAND]  # a thread


@pytest.mark.parametrize("before", ["    12345 ", "\t12345 ", "    host 12345 ", "  4 1234567 "])
def test_the_thread_of_an_indented_log_is_no_count(before: str) -> None:
    line = f"{before}MIOpen(HIP): Command [A] ./bin/MIOpenDriver {COMMAND}"
    assert commands(line, line) == [COMMAND] * 2


ENTRY = "miopenStatus_t miopenSetStream(miopenHandle_t, hipStream_t){", "\tstreamID = 0x1", "}"


@pytest.mark.parametrize("thread", ["    742", "  12345", " 742", "  9 742"])
def test_a_number_of_whole_entries_is_a_thread(thread: str) -> None:
    """Its width may be that of `uniq -c`. A number of a line belongs to no entry with its brace."""
    own = [f"MIOpen(HIP): {text}" for text in (*ENTRY, f"Command [A] ./bin/MIOpenDriver {COMMAND}", *ENTRY)]
    assert commands(*(f"{thread} {line}" for line in own * 2)) == [COMMAND] * 2
    assert commands(*(f"{number:{len(thread)}} {line}" for number, line in enumerate(own * 2, 1))) == []


def test_a_long_line_takes_no_long_time() -> None:
    """Without a bound, each place of a run of marks would be a new begin of the search."""
    for noise in (" ", "'", "$ ", " - ", "A=1 "):
        commands(f"{noise * 200_000}MIOpenDriver {COMMAND}{noise * 200_000}x")


@pytest.mark.parametrize(
    "line",
    [
        "Forward LayerNorm rstd FAILED: 2.3e-06 > 1.5e-06", "Forward Pooling verification FAILED",
        "Backwards prop batch norm verification FAILED on dx: 0.5", "final hidden state FAILED: 0.5",
        "ReduceTensor() FAILED with error = 0.5", "RunForwardGPU() FAILED, rc = 0x7", "CTC loss Failed: 3",
        "Forward batch norm verification **FAILED on output: 0.5**", "Difference 0.5 too large (> 0.1) at 3",
        "Difference : 4593.0000 too large (eps=4.0000) at 0,0, 0,0 c_v = 0.1 vs g_v = 0.0",
        "2026-01-01 10:00:00.1: F x.cc:2659] Check failed: status == miopenStatusSuccess (7 vs. 0)No algorithm",
    ],
)  # fmt: skip
def test_what_failed_is_an_error(line: str) -> None:
    """A failed test of others is not the driver's."""
    (record,) = decoded([f"{line}\n".encode()]).records
    assert isinstance(record, Message)
    assert record.level == "Error"
    others = "tests/test_x.py::test_y FAILED", "x FAILED: y", "Forwarded: FAILED", "Too large Difference"
    assert decoded(["\n".join((*others, "")).encode()]).records == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [  # of each: running, saved, training, direction
        ("-s 1 -F 1", (False, True, True, "forward")),
        ("-r 1 -F 1", (True, False, True, "forward")),
        ("-r 1", (True, False, True, "forward")),
        ("-m 1 --forw 0 -b 1 -r 1", (None, True, False, "backward-data")),  # the text of a log
        ("-F 0 -b 1 -r 1", (True, False, False, "backward-data")),
        ("-m 1 --forw 1 -b 0 -s 0 -r 1", (True, False, True, "forward")),  # MIOpen prints no 0
        ("-m 1 --forw 1 -b 0 -r 0 -s 1", (False, True, True, "forward")),
        ("-m 1 --forw 0 -b 1 -s 0", (False, False, False, "backward-data")),
        ("-F 0 -s 0", (False, False, True, "forward")),
        ("-F 2", (False, False, False, "forward")),
        ("-F 4", (False, False, False, None)),
    ],
)
def test_a_person_means_the_drivers_flags_of_batch_norm(text: str, expected: tuple[object, ...]) -> None:
    problem = parse(f"bnorm -n 2 -c 3 -H 4 -W 5 {text}")
    assert isinstance(problem, BnormProblem)
    if problem.x:
        assert (problem.running, problem.saved, problem.training, problem.direction) == expected
        assert problem.mode == int("-m" in text)
    else:
        assert expected[0] is None


def test_commands_that_are_cut_off_stay_apart(tmp_path: Path) -> None:
    log = saved(tmp_path / "a.log", "".join(f"./bin/MIOpenDriver bnorm -n {n} -c 3 -H\n" for n in (2, 3, 3)))
    assert [line.split(",")[2] for line in invoked("messages", log).stdout.splitlines()[1:]] == ["1", "2"]


# -- Commands of MIOpen's log that a terminal wrapped.


LOGGED = "conv -n 2 -c 20 -H 12 -W 12 -k 50 -y 5 -x 5 -p 0 -m conv --forw 1 -F -4 -t 1"
HEAD = "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver "


@pytest.mark.parametrize("width", range(8, len(LOGGED)))
def test_a_command_in_two_lines_is_one(width: int) -> None:
    """Wherever it was wrapped: within a number, an option, or where the space is lost at the line's end."""
    more = LOGGED[width:]
    if " -" not in f" {more}" or more.startswith("4"):
        return  # a number's last digits tell nothing
    assert commands(HEAD + LOGGED[:width], more) == [LOGGED]


def test_a_command_in_many_lines_is_one_each_time() -> None:
    """What is read again as it was before goes on as before."""
    lines = [HEAD + LOGGED[:20], LOGGED[20:44], LOGGED[44:60], LOGGED[60:]]
    assert commands(*lines, *lines, "another program's line", *lines) == [LOGGED] * 3


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
    assert commands(HEAD + LOGGED, lines) == [LOGGED + added]
