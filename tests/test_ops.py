"""Operations from MIOpen's records: shapes, GEMM, work, commands, and what the truth recorded beside the log says."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mio2trace.kernels.names import kernel_name, normalise
from mio2trace.model.choices import Gemm
from mio2trace.model.miopen import Command, MiopenLog, OperationDirection
from mio2trace.notes import Notes
from mio2trace.ops import driver_command, log_form, operations
from mio2trace.ops.command import form_of, parse, split
from mio2trace.ops.families import OPS, launches
from mio2trace.ops.families.conv import ConvProblem
from mio2trace.ops.families.elementwise import ActivProblem, OpTensorProblem, SoftmaxProblem
from mio2trace.ops.families.normalisation import BnormProblem, LrnProblem
from mio2trace.ops.families.pool import PoolProblem
from mio2trace.ops.log.level_lines import find_db_key, network_config
from mio2trace.ops.operation import Operation, problem_name
from mio2trace.ops.problem import CommandError, Form, Problem
from mio2trace.ops.values import SOLVERS, Tensor, common_layout, family, integers, layouts, packed_strides, solver_name
from mio2trace.readers.miopen import MiopenDecoder

FOREIGN = re.compile(rb"[IWEF]\d{4} |\[dv/dt\]")
SETS = (
    "m121-alexnet-infer-interleaved", "m121-lenet-infer", "m121-lenet-train-debugbuild", "m121-lenet-train-ownkernels",
    "m121-resnet-infer-2it", "m121-resnet-train-entries-cmd", "m290-alexnet-infer-10it",
    "m290-alexnet-infer-level6-cmd", "m290-lenet-train-cmdonly", "m290-resnet-infer-immediate-fused",
    "m290-resnet-train-entries-cmd",
)  # fmt: skip


def decode(data: bytes | str) -> MiopenLog:
    decoder = MiopenDecoder(0, Notes())
    raw = data.encode() if isinstance(data, str) else data
    for number, line in enumerate(raw.splitlines(keepends=True), 1):
        if not FOREIGN.match(line):
            decoder.feed(number, line)
    return decoder.finish()


def ops_of(text: bytes | str) -> tuple[Operation, ...]:
    return operations(decode(text))


def entry(api: str, layout: object = "2.0", **params: object) -> str:
    """An entry's text in the layout of 1.0, 1.2 or 2.0."""
    prefix = "MIOpen(HIP): "
    head, body = ("" if layout == "1.0" else prefix), (f"{prefix}\t" if layout == "2.0" else "")
    lines = [f"{head}miopenStatus_t miopen{api}(miopenHandle_t, const void *){{"]
    lines += [f"{body}{name} = {value}" for name, value in params.items()]
    return "\n".join([*lines, f"{prefix if layout == '2.0' else ''}}}"]) + "\n"


def levels(*lines: str) -> str:
    return "".join(f"MIOpen(HIP): {line}\n" for line in lines)


def logged(command: str) -> str:
    return levels(f"Command [LogCmdConvolution] ./bin/MIOpenDriver {command}")


def one(text: str) -> Operation:
    found = ops_of(text)
    assert len(found) == 1
    return found[0]


def read_set(shared: Path, name: str) -> tuple[MiopenLog, Any]:
    """The log and the truth of a recorded run."""
    folder = shared / "samples" / "miopen-opencl" / name
    return decode((folder / "run.log").read_bytes()), json.loads((folder / "truth.json").read_bytes())


def posted(shared: Path, name: str) -> tuple[Operation, ...]:
    return ops_of((shared / "samples" / "miopen-logs" / f"{name}.txt").read_bytes())


# Against the truth


@pytest.mark.shared
@pytest.mark.parametrize("name", SETS)
def test_every_call_that_computes_is_an_operation(shared: Path, name: str) -> None:
    log, truth = read_set(shared, name)
    found = operations(log)
    logged = [c for c in truth["api_calls"] if c["log_line"] is not None or c.get("cmd_line") is not None]
    wanted = [c for c in logged if launches(c["name"])]
    assert [o.index for o in found] == list(range(len(wanted)))
    assert [o.line for o in found] == [c["log_line"] or c["cmd_line"] for c in wanted]
    assert [o.command_line for o in found] == [c.get("cmd_line") or 0 for c in wanted]
    assert [o.phase for o in found] == ["find" if "Find" in c["name"] else "run" for c in wanted]
    if any(c["log_line"] is not None for c in wanted):
        assert [o.api for o in found] == [c["name"] for c in wanted]
    # what launched nothing in the process is no operation, and each that launched something is one
    busy = {e["api_call"] for e in truth["enqueues"]} - {None}
    assert {c["index"] for c in logged if c["index"] in busy} <= {c["index"] for c in wanted}
    assert all(o.input and o.problem is not None for o in found if o.primitive != "bnorm")
    assert not [o for o in found if o.doubts]
    assert {o.dtype for o in found} == {"float"}
    assert all(o.flop is not None and o.bytes_min for o in found)


@pytest.mark.shared
@pytest.mark.parametrize("name", SETS)
def test_directions_and_primitives_are_those_of_the_kernels(shared: Path, name: str) -> None:
    """Names of the kernels that really ran in each call agree with the call's primitive and direction."""
    _, truth = read_set(shared, name)
    checked = 0
    for enqueue in truth["enqueues"]:
        if enqueue["api_call"] is None:
            foreign = kernel_name(enqueue["name"])
            assert foreign is None or not foreign.miopen
            continue
        op = OPS[truth["api_calls"][enqueue["api_call"]]["name"]]
        meaning = kernel_name(enqueue["name"])
        assert meaning is not None, enqueue["name"]
        assert not meaning.primitives or op.primitive in meaning.primitives, enqueue["name"]
        assert not meaning.directions or op.direction in meaning.directions, enqueue["name"]
        checked += 1
    assert checked > 20


# What only a command states: an entry has pointers for the numbers behind alpha and beta, and no index mode
ONLY_IN_COMMANDS = {"tensorop": ("A", "B", "G"), "softmax": ("A", "B")}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "form", "counts"),
    [
        ("m290-resnet-train-entries-cmd", "2.3",
         {"conv": 91, "bnorm": 44, "pool": 4, "activ": 38, "tensorop": 86, "softmax": 2}),
        ("m121-resnet-train-entries-cmd", "1.2", {"conv": 68, "bnorm": 44}),
        ("m290-alexnet-infer-level6-cmd", "2.3", {"conv": 8, "pool": 3, "activ": 7, "lrn": 2, "softmax": 1}),
    ],
)  # fmt: skip
def test_rebuilt_commands_are_the_logged_ones(shared: Path, name: str, form: Form, counts: dict[str, int]) -> None:
    """Entries alone, and entries with commands, give the commands that the library printed, in its version's form."""
    log, _ = read_set(shared, name)
    assert log_form(log) == form
    alone = msgspec.structs.replace(log, records=tuple(r for r in log.records if not isinstance(r, Command)))
    rebuilt = {o.line: o for o in operations(alone)}
    seen: Counter[str] = Counter()
    for o in operations(log):
        if not (text := o.logged_command):
            continue
        assert driver_command(o, form) == "./bin/MIOpenDriver " + text
        word, flags = split(text)
        known = {key: value for key, value in flags.items() if key not in ONLY_IN_COMMANDS.get(word, ())}
        mine = driver_command(rebuilt[o.line], form).removeprefix("./bin/MIOpenDriver ")
        assert mine == text or known != flags
        assert split(mine) == (word, known)
        assert list(split(mine)[1]) == list(known)
        seen[word] += 1
    assert dict(seen) == counts


@pytest.mark.shared
def test_the_gemm_of_a_convolution_is_the_one_that_miopen_calls(shared: Path) -> None:
    """m, n, k of the logged gemm_desc; MIOpen's batch is a loop or a batched call. No OpenCL log has launch lines."""
    found = operations(read_set(shared, "m290-alexnet-infer-level6-cmd")[0])
    called = [(call, o.gemm) for o in found for call in o.gemms]
    assert len(called) == 16
    for call, gemm in called:
        assert gemm is not None
        assert (call.m, call.n, call.k, call.library) == (gemm.m, gemm.n, gemm.k, "MIOpenGEMM")
    assert not [o for o in found if o.launches]
    find, run, bnorm = posted(shared, "43-windows-gemm-forward-level6-v341")
    assert (find.phase, run.phase, bnorm.primitive, bnorm.direction) == ("find", "run", "bnorm", "forward")
    assert (run.input, run.weights, run.output) == ((16, 3, 224, 224), (64, 3, 7, 7), (16, 64, 112, 112))
    assert run.gemm == Gemm(m=64, n=12544, k=147, batch=16)
    assert [(call.m, call.n, call.k, call.library) for call in run.gemms] == [(64, 12544, 147, "rocBLAS")] * 16
    assert len(run.launches) == 16
    assert (run.algorithm, run.solver, run.workspace_bytes, run.dtype, run.dtype_by, run.layout) == (
        "Gemm", "GemmFwdRest", 7375872, "float", "key", "NCHW",
    )  # fmt: skip


@pytest.mark.shared
def test_the_wiki_page(shared: Path) -> None:
    """n, c, H, W, k, y, x, p, q, u, v, l, j of the page's three examples, with the right direction."""
    found = posted(shared, "01-wiki-conv-api-noprefix-v1")
    flags = "-n 100 -c 3 -H 32 -W 32 -k 32 -y 3 -x 3 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1"
    assert [o.command for o in found] == [
        f"./bin/MIOpenDriver conv {flags} -m conv -g 1 -F {direction} -t 1" for direction in (1, 2, 4)
    ]
    assert {o.flop for o in found} == {2 * 100 * 32 * 30 * 30 * 3 * 3 * 3}
    assert [o.gemm for o in found] == [Gemm(32, 900, 27, 100), Gemm(27, 900, 32, 100), Gemm(32, 27, 90000, 1)]


@pytest.mark.shared
def test_the_posted_logs_give_operations(shared: Path) -> None:
    """(line, primitive, direction, phase, input) of logs of each kind: entries, commands, level lines, cut ones."""
    way = {"F": "forward", "D": "backward-data", "W": "backward-weights"}
    wanted = {
        "02": ["1 pool D run 1x512x1x2"], "03": ["11 conv D run 1x48x1x1"], "06": ["1 conv F run 64x512x28x28"],
        "07": ["2 conv W find 64x128x112x112", "4 conv F run 64x128x112x112", "8 conv D run 64x128x112x112",
               "8 conv W run 64x128x112x112"],
        "12": ["5 conv F find 64x1024x14x14", "13 conv F find "],
        "13": ["1 conv F find 64x64x56x56"], "14": ["1 conv F find 16x192x28x28"],
        "20": ["1 conv W find ", "2 conv W run 16x64x32x32"], "27": ["6 fusion F run 32x3x224x7"],
        "32": ["1 conv W run 400x1024x1x1"], "38": ["8 conv F find 1x640x100x320x320"],
        "48": ["14 conv F find 32x64x256x256"], "50": ["11 conv F find ", "17 conv F run "],
        "52": ["1 conv F run 100x3x32x32", "2 conv W run 100x32x30x30"],
    }  # fmt: skip
    wanted["02"] = ["1 pool F run 1x512x1x2", "13 pool D run 1x512x1x2"]
    letter = {direction: key for key, direction in way.items()}
    for path in (shared / "samples" / "miopen-logs").glob("*.txt"):
        if path.name[:2] in wanted:
            assert [
                f"{o.line} {o.primitive} {letter.get(o.direction or '', '-')} {o.phase} {'x'.join(map(str, o.input))}"
                for o in ops_of(path.read_bytes())
            ] == wanted.pop(path.name[:2]), path.name
    assert not wanted


def test_the_two_gradients_of_a_recurrent_network_are_two_problems() -> None:
    line = "./bin/MIOpenDriver rnn -n 64 -W 1024 -H 1024 -l 1 -b 0 -m lstm -p 0 -r 0 -k 75 -F {} -t 1\n"
    names = [problem_name(one) for one in ops_of("".join(line.format(way) for way in (1, 2, 4)))]
    assert names == [f"RNN {way} 75x64x1024 lstm" for way in ("fwd", "bwd data", "bwd weights")]


def test_a_command_of_the_driver_is_a_run_of_its_own_if_the_log_says_no_more_about_it() -> None:
    """People paste the log of their program and a run of the driver into one issue. The latter was dropped."""
    plain = "conv -n 2 -c 4 -H 9 -W 8 -k 6 -y 3 -x 3 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F {} -t 1"
    logged = "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver " + plain
    own = "MIOpenDriver " + plain
    for lines, found in (
        ([logged.format(2), own.format(1)], ["backward-data", "forward"]),
        ([own.format(1), "GPU Kernel Time", own.format(2), logged.format(2)], ["forward", "backward-data"]),
        ([own.format(1), logged.format(1), logged.format(1)], ["forward", "forward"]),
    ):
        assert [o.direction for o in ops_of("\n".join([*lines, ""]))] == found


@pytest.mark.parametrize(
    ("command", "ways"),
    [
        ("conv -n 2 -c 4 -H 9 -W 8 -k 6 -y 3 -x 3", "F D W"),
        ("convfp16 -n 2 -c 4 -H 9 -W 8 -k 6 -y 3 -x 3 --forw 0", "F D W"),
        ("conv -n 2 -c 4 -H 9 -W 8 -k 6 -y 3 -x 3 -F 5", "F W"),
        ("conv -n 2 -c 4 -H 9 -W 8 -k 6 -y 3 -x 3 -F 4", "W"),
        ("rnn -n 2 -W 8 -H 8 -l 1 -m lstm -k 3 -F 6", "D W"),
        ("pool --input 2x4x9x8 -y 3 -x 3 -p 0 -q 0 -u 1 -v 1 -m max", "F D"),
        ("softmax -n 2 -c 4 -H 9 -W 8", "F D"),
        ("lrn -n 2 -c 4 -H 9 -W 8 -N 5 -A 1 -B 1 -K 1 -m cross", "F D"),
        ("bnorm -n 2 -c 4 -H 9 -W 8 -m 1", "F"),
        ("bnorm -n 2 -c 4 -H 9 -W 8 -m 1 --forw 1 -b 1", "F"),
    ],
)
def test_a_command_of_several_directions_is_an_operation_per_direction(command: str, ways: str) -> None:
    """The driver runs all directions that -F allows, by default each one. FLOPs were those of one of them."""
    letters = dict(zip(DIRECTIONS, "FDW", strict=True))
    made = ops_of(f"./bin/MIOpenDriver {command}\n")
    assert [letters[one.direction] for one in made if one.direction is not None] == ways.split()
    for one in made:
        assert one.command is not None
        again = ops_of(one.command + "\n")
        assert [(o.flop, o.bytes_min, o.gemm) for o in again if o.direction == one.direction] == [
            (one.flop, one.bytes_min, one.gemm)
        ]


def test_calls_that_a_run_of_the_driver_logs_have_the_problem_of_its_command() -> None:
    """Each iteration of the driver is a call. The command counted as one more, and the calls had no shapes."""
    line = "Info2 [GetInvoker] Returning an invoker for problem m1_k2x2 and algorithm miopenPooling2d{}"
    run = "Info2 [run] kernel_name = {}, global_work_dim = {{ 64, 1, 6 }}, local_work_dim = {{ 64, 1, 1 }}"
    calls = levels(*[line.format("Forward"), run.format("mloPoolingG")] * 2)
    calls += levels(line.format("Backward"), run.format("mloPoolingMaxBwd"))
    for way, stated in (("", "FD"), (" -F 1", "F"), (" -F 2", "D")):
        command = f"MIOpenDriver poolfp16 --input 2x3x8x8 -y 2 -x 2 -p 0 -q 0 -v 2 -u 2 -m max{way}\n"
        made = ops_of(command + calls)
        assert [(DIRECTIONS.index(o.direction or "forward"), len(o.launches)) for o in made] == [(0, 1), (0, 1), (1, 1)]
        assert [o.input == (2, 3, 8, 8) and o.dtype == "half" for o in made] == [one in stated for one in "FFD"]


def test_torn_is_what_lost_a_part_and_unread_what_nothing_was_found_in() -> None:
    """An entry without its end or a command without its own; a whole entry that does not hold its problem, or has a
    parameter twice."""

    def states(text: str) -> list[tuple[bool, bool]]:
        return [(o.torn, o.unread) for o in ops_of(text)]

    whole = conv_entry()
    head, first, *rest = whole.splitlines(keepends=True)
    twice = "".join([head, first, first, *rest])
    assert states("".join([head, first, *rest[:-2]]) + whole) == [(True, False), (False, False)]
    cut = one(logged("conv -n 1 -c"))
    assert (cut.torn, cut.unread, cut.command, bool(cut.doubts)) == (True, False, None, True)
    assert states(twice) == states("miopenStatus_t miopenConvolutionForward(miopenHandle_t){\n}\n") == [(False, True)]
    assert any("twice" in doubt for doubt in one(twice).doubts)


# Hand-written logs

DIRECTIONS: tuple[OperationDirection, ...] = ("forward", "backward-data", "backward-weights")

X, W_, Y = "{2, 6, 9, 8}", "{10, 3, 3, 3}", "{2, 10, 5, 6}"
CONV = "conv2d, miopenConvolution, miopenPaddingDefault, {1, 0}, {2, 1}, {1, 1}, 2, "


def conv_entry(**more: object) -> str:
    params: dict[str, object] = {
        "handle": "stream: 0, device_id: 0", "alpha": "0x7ffc0000", "xDesc": f"{X}, {{432, 72, 8, 1}}, packed, ",
        "x": "0x7f00aa00", "wDesc": f"{W_}, {{27, 9, 3, 1}}, packed, ", "w": "0x7f00bb00", "convDesc": CONV, "algo": 5,
        "beta": "0x7ffc0008", "yDesc": f"{Y}, {{300, 30, 6, 1}}, packed, ", "y": "0x7f00cc00", "workSpace": "nullptr",
        "workSpaceSize": 0,
    }  # fmt: skip
    return entry("ConvolutionForward", **(params | more))


IN_FULL = "./bin/MIOpenDriver conv -n 2 -c 6 -H 9 -W 8 -k 10 -y 3 -x 3 -p 1 -q 0 -u 2 -v 1 -l 1 -j 1"
NHWC = "--in_layout NHWC --fil_layout NHWC --out_layout NHWC"
RECORD = '{"solution":"ConvDirectNaiveConvFwd","solver_id":85,"workspace_bytes":0,"phase":"%s"}\n'
PRINTED = '{"performance":{"algorithm":1,"solution":"85/ConvDirectNaiveConvFwd","direction":"%s"}}\n'
HUGE = {"yDesc": "{10000000000000000, 10, 5, 6}, ", "wDesc": "{10, 3, 3, 31000000000000000}, {27, 9, 3, 1}, "}
NOT_FOLLOWING = "output shape does not follow from input, weights and descriptor"
LAST = {
    "xDesc": f"{X}, {{432, 1, 48, 6}}, ",
    "wDesc": f"{W_}, {{27, 1, 9, 3}}, ",
    "yDesc": f"{Y}, {{300, 1, 60, 10}}, ",
}
CUT = {"xDesc": "1, 3, 8, 8,", "wDesc": "8, 4, 3, 3,", "yDesc": "1, 8, 6, 6,"}
RNN = "MIOpenDriver rnn_seq -n 4 -W 32 -H 64 -l 1 -m gru -p 0 -r 0 {}-k 10 -F 1 -t 1\n"


def pooled(descriptor: str, y: str) -> str:
    return entry("PoolingForward", "1.0", poolDesc=descriptor, xDesc="1, 4, 12, 12", yDesc=y)


def launch(name: str) -> str:
    return levels(
        f"Info2 [run] kernel_name = {name}, global_work_dim = {{ 64, 2, 1 }}, local_work_dim = {{ 64, 1, 1 }}"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # of 10^16 lengths, or of two to the 63rd images in one group each, the sum would be no number of a trace
        (conv_entry(**HUGE), {"gemm": None, "flop": None, "bytes_min": None}),
        (conv_entry(xDesc="{9223372036854775807, 6, 9, 8}, {432, 72, 8, 1}, "), {"gemm": None}),
        # a brace of a torn line is gone: what stands in the next ones is not the shape
        (conv_entry(xDesc="2, 6, 9, 8}, {432, 72, 8, 1}, "), {"input": ()}),
        (conv_entry(xDesc="2, 6, 9, 8, {432, 72, 8, 1}, "), {"input": ()}),
        (conv_entry(xDesc="{2, 6, 9, 8, {432, 72, 8, 1}, "), {"input": ()}),
        (conv_entry(yDesc="{2, 10, 6, 5}, {300, 30, 5, 1}, "),
         {"doubts": (NOT_FOLLOWING,), "command": None, "command_reason": NOT_FOLLOWING}),
        # layouts come from the strides
        (conv_entry(**LAST), {"layout": "NHWC", "command": f"{IN_FULL} {NHWC} -m conv -g 2 -F 1 -t 1"}),
        (conv_entry(xDesc=f"{X}, {{500, 72, 8, 1}}, "), {"command": None, "command_reason": "strides with gaps"}),
        # before 1.2 strides came first; an output that is rounded up has no command
        (pooled("miopenPoolingMax, 2, 2, 2, 2, 0, 0, ", "1, 4, 6, 6"), {"pad": (0, 0), "stride": (2, 2)}),
        (pooled("Unknown: 2, 3, 3, 1, 1, 2, 2, ", "1, 4, 6, 6"),
         {"pad": (1, 1), "stride": (2, 2), "mode": "average-inclusive"}),
        (pooled("miopenPoolingMax, 3, 3, 1, 1, 2, 2, ", "1, 4, 7, 7"), {"command": None}),
        # an RNN with a length for each sequence works on their sum, not on the longest for all
        (RNN.format(""), {"flop": 2 * 40 * 3 * 64 * (32 + 64)}),
        (RNN.format("-K 10,5,3,2 "), {"flop": 2 * 20 * 3 * 64 * (32 + 64)}),
        # ``..._half`` moves any type of two bytes: the convolution's own kernel tells which
        (conv_entry() + launch("batched_transpose_32x32_half"), {"dtype": None}),
        (conv_entry() + launch("batched_transpose_32x32_half") + launch("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x256"),
         {"dtype": "bfloat16"}),
        # fewer channels than its weights: its groups would be 0
        (entry("ConvolutionForward", **CUT, convDesc="conv2d, miopenGroupConv, {1, 1}, {1,"),
         {"gemm": None, "flop": None, "command": None}),
        (conv_entry() + RECORD % "tuning", {"solver": None}),
        (conv_entry() + PRINTED % "forward", {"algorithm": "Naive"}),
        (conv_entry() + PRINTED % "backward data", {"solver": None}),
    ],
)  # fmt: skip
def test_what_a_log_tells(text: str, expected: dict[str, object]) -> None:
    o = one(text)
    assert {name: getattr(o, name) for name in expected} == expected


def test_a_performance_record_names_the_solver_of_the_call_before() -> None:
    found = ops_of(conv_entry() + RECORD % "execution" + conv_entry())
    assert [o.solver for o in found] == ["ConvDirectNaiveConvFwd", None]


def test_a_grouped_convolution_in_full() -> None:
    o = one(conv_entry())
    assert (o.input, o.weights, o.output) == ((2, 6, 9, 8), (10, 3, 3, 3), (2, 10, 5, 6))
    assert (o.pad, o.stride, o.dilation, o.groups) == ((1, 0), (2, 1), (1, 1), 2)
    assert (o.mode, o.layout, o.algorithm, o.workspace_bytes) == ("convolution", "NCHW", "ImplicitGemm", 0)
    assert o.tensors == (("x", 0x7F00AA00), ("w", 0x7F00BB00), ("y", 0x7F00CC00))
    assert (o.gemm, o.flop) == (Gemm(m=5, n=30, k=27, batch=4), 2 * 2 * 10 * 30 * 3 * 9)
    assert (o.dtype, o.bytes_min) == (None, None)
    assert o.doubts == ("the data type is not known: the command assumes float",)
    assert o.command == f"{IN_FULL} -m conv -g 2 -F 1 -t 1"


def test_a_length_of_one_lets_another_tensor_decide() -> None:
    flat, deep = Tensor((2, 5, 1, 1), (5, 1, 1, 1)), Tensor((2, 5, 4, 4), (80, 1, 20, 5))
    assert set(layouts(flat)) >= {"NCHW", "NHWC"}
    assert common_layout((flat, deep)) == ("NHWC", "NHWC")
    assert common_layout((flat, flat)) == ("NCHW", "NCHW")


def test_the_data_type_comes_from_the_last_set_call_of_that_shape() -> None:
    def set_call(number: int) -> str:
        sizes = {"nbDims": 4, "dim.values": "{ 2 6 9 8 }", "stride.values": "{ 432 72 8 1 }"}
        return entry("SetTensorDescriptor", tensorDesc="{}, {}, packed, ", dataType=number, **sizes)

    o = one(set_call(0) + conv_entry())
    assert (o.dtype, o.dtype_by, o.doubts) == ("half", "descriptor", ())
    half = str(o.command).removeprefix("./bin/MIOpenDriver ")
    assert half.startswith("convfp16 ")
    o = one(set_call(1) + set_call(5) + conv_entry())
    assert (o.dtype, len(o.doubts)) == ("bfloat16", 1)
    # a command is the better source; one of another shape is another operation
    o, other = ops_of(set_call(5) + conv_entry() + logged(half) + logged(half.replace("-n 2", "-n 9")))
    assert (o.dtype, o.dtype_by, o.command_line) == ("half", "command", 23)
    assert (other.api, other.command_line) == ("LogCmdConvolution", 24)


def test_transpose_mode() -> None:
    text = entry(
        "ConvolutionForward", xDesc="{2, 8, 5, 5}, {200, 25, 5, 1}, ", wDesc="{8, 3, 4, 4}, {48, 16, 4, 1}, ", algo=0,
        convDesc="conv2d, miopenTranspose, miopenPaddingDefault, {1, 1}, {2, 2}, {1, 1}, {0, 0}, ",
        yDesc="{2, 3, 10, 10}, {300, 100, 10, 1}, ",
    )  # fmt: skip
    o = one(text + levels("Info [ConvolutionBackwardData] algo = 0, workspace = 64"))
    assert (o.mode, o.output, o.gemm, o.flop) == ("transpose", (2, 3, 10, 10), Gemm(48, 25, 8, 2), 2 * 2 * 8 * 25 * 48)
    assert re.search(" -k 3 .* -m trans ", str(o.command))
    assert o.workspace_bytes == 64  # its level line names the direction whose code runs


SAME = "conv2d, miopenConvolution, miopenPaddingDefault, {1, 1}, {1, 1}, {1, 1}, "
CONV_FORWARD = entry("CreateOpConvForward", convOp="0x1", wDesc="4, 16, 3, 3", convDesc=SAME)
ACTIVATION = entry("CreateOpActivationForward", activOp="0x1", mode=3)


def fused(operators: str, x: str = "1, 16, 8, 8", y: str = "1, 4, 8, 8", times: int = 1) -> tuple[Operation, ...]:
    return ops_of(
        entry("CreateFusionPlan", fusePlanDesc="0x1", fuseDirection=0, inputDesc=x)
        + operators
        + entry("CompileFusionPlan", fusePlanDesc="")
        + entry("ExecuteFusionPlan", inputDesc=x, input="0x7f0010", outputDesc=y, output="0x7f0020") * times
    )


def test_fusion_plans() -> None:
    bias = entry("CreateOpBiasForward", biasOp="0x1", bDesc="1, 4, 1, 1")
    first, second = fused(CONV_FORWARD + bias + ACTIVATION, times=2)
    assert (first.primitive, first.mode, first.weights) == ("fusion", "conv+bias+activ", (4, 16, 3, 3))
    assert first.flop == 2 * 4 * 64 * 144 + 2 * 256
    assert first.command == second.command == (
        "./bin/MIOpenDriver CBAInfer --fusion_mode 4 -n 1 -c 16 -H 8 -W 8 -k 4 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1"
        " -g 1 -m 3"
    )  # fmt: skip
    assert "the fusion plan was not logged" in one(entry("ExecuteFusionPlan", inputDesc="1, 16, 8, 8")).doubts


def test_a_fused_plan_keeps_the_layout_of_its_tensors() -> None:
    """The command of channels last says so; a batch norm's, which cannot, is refused."""
    x = "{2, 16, 8, 8}, {1024, 1, 128, 16}, packed, "
    conv = CONV_FORWARD.replace("4, 16, 3, 3", "{4, 16, 3, 3}, {144, 1, 48, 16}, packed, ")
    (o,) = fused(conv + ACTIVATION, x, "{2, 4, 8, 8}, {256, 1, 32, 4}, packed, ")
    assert o.layout == "NHWC"
    assert " --in_layout NHWC --fil_layout NHWC --out_layout NHWC -g 1" in str(o.command)
    bnorm = entry("CreateOpBatchNormInference", bnOp="0x1", bn_mode=1, bnScaleBiasMeanVarDesc="{1, 16, 1, 1}, ")
    (o,) = fused(bnorm + ACTIVATION, x, x)
    assert (o.layout, o.command) == ("NHWC", None)


def test_a_search_of_another_layout_or_type_does_not_tell_the_solver() -> None:
    """Of searches that differ in nothing else, each call has its own one's."""
    before, rest = "16x8x8x3x3x4x8x8x2xNCHWx", "x1x1x1x1x1x1x1xF"
    forward = "miopenConvolutionFwdAlgoImplicitGEMM"

    def call(api: str, layout: str) -> str:
        shapes = {"xDesc": (2, 16, 8, 8), "wDesc": (4, 16, 3, 3), "yDesc": (2, 4, 8, 8)}
        tensors = {name: f"{braces(of)}, {braces(packed_strides(of, layout))}, " for name, of in shapes.items()}
        return entry(api, **tensors, convDesc=SAME, algo=5)

    def find(layout: str, dtype: str, solver: str) -> str:
        return call("FindConvolutionForwardAlgorithm", layout) + levels(
            f"Info2 [SetAsFound1_0] Solver {solver} registered as find 1.0 best for {forward} in {before}{dtype}{rest}",
            f"Info [FillFindReturnParameters] FW Chosen Algorithm: {solver} , 0, 0.1",
        )

    def run(layout: str, dtype: str = "") -> str:
        problem = f"{before}{dtype}{rest} and algorithm {forward}"
        invoker = f"Info2 [GetInvoker] Returning an invoker for problem {problem}"
        ran = "Info [ConvolutionForward] algo = 5, workspace = 0"
        return call("ConvolutionForward", layout) + levels(ran, *[invoker] * bool(dtype))

    first, second = "ConvHipImplicitGemmV4R4Fwd", "ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC"
    searches = find("NCHW", "FP32", first) + find("NHWC", "FP32", second)
    assert [o.solver for o in ops_of(searches + run("NCHW") + run("NHWC") + run("NCHW"))[2:]] == [first, second, first]
    searches = find("NCHW", "FP32", first) + find("NCHW", "FP16", second)
    runs = run("NCHW", "FP32") + run("NCHW", "FP16")
    assert [(o.solver, o.dtype) for o in ops_of(searches + runs)[2:]] == [(first, "float"), (second, "half")]


def test_statistics_that_an_entry_does_not_show_are_the_commands() -> None:
    """Sixteen parameters do not reach the saved ones: without a command that is in doubt."""
    call = entry(
        "BatchNormalizationForwardTraining_V2", handle="stream: 0, device_id: 0", bn_mode=1, x="0x7f10",
        xDesc="{2, 16, 8, 8}, {1024, 64, 8, 1}, packed, ", scaleDesc="{1, 16, 1, 1}, {16, 1, 1, 1}, packed, ",
        resultRunningMean="0x7f50", epsilon="1e-05",
    )  # fmt: skip
    command = logged("bnorm -n 2 -c 16 -H 8 -W 8 -m 1 --forw 1 -b 0 -s 1 -r 1 --layout NCHW")
    told, alone = one(call + command.replace("Convolution", "BNorm")), one(call)
    assert " -r 1 -s 1 " in str(told.command)
    assert not told.doubts
    assert " -s 1" not in str(alone.command or "-s 1")
    assert any("statistics" in doubt for doubt in alone.doubts)


PACKED = {1: "{1, 4, 8, 8}, {256, 64, 8, 1}, packed, ", 2: "{4, 4, 3, 3}, {36, 9, 3, 1}, packed, "}
PACKED[3] = PACKED[1]


def search(direction: int) -> str:
    """By the API of Find 2."""
    problem = f"0x55{direction}0"
    return (
        entry("CreateConvProblem", problem="0x1", operatorDesc=SAME, direction=direction)
        + "".join(
            entry("SetProblemTensorDescriptor", problem=problem, id=at, descriptor=text) for at, text in PACKED.items()
        )
        + entry("FindSolutions", problem=problem, solutions="0x1", numSolutions=0, maxSolutions=4)
    )


def solved(solution: str) -> str:
    tensors = ", ".join(f"Conv{name}: {PACKED[at]} -> 0x{at}" for at, name in enumerate("XWY", 1))
    return entry("RunSolution", solution=solution, nInputs=3, tensors=f"{{ {tensors}, }}")


def test_find_2_keeps_apart_what_has_the_same_shapes() -> None:
    """A solution belongs to the problem that was searched before its first run. Without that search it is in doubt."""
    find, run = ops_of(search(0) + solved("0x9"))
    assert (find.phase, run.phase) == ("find", "run")
    assert (find.input, find.weights) == (run.input, run.weights) == ((1, 4, 8, 8), (4, 4, 3, 3))
    assert find.command == run.command is not None

    def ran(text: str) -> list[tuple[str | None, bool]]:
        return [(o.direction, "the call does not show" in "".join(o.doubts)) for o in ops_of(text) if o.phase == "run"]

    each = [solved(f"0x9{direction}") for direction in range(3)]
    lazily = "".join(search(direction) + each[direction] for direction in range(3))
    known = [(way, False) for way in DIRECTIONS]
    assert ran(lazily + each[2] + each[0] + each[1]) == [*known, known[2], known[0], known[1]]
    at_once = "".join(map(search, range(3)))
    assert ran(at_once + "".join(each)) == [(DIRECTIONS[0], True), (DIRECTIONS[1], True), known[2]]
    assert ran(lazily + solved("nullptr")) == [*known, (DIRECTIONS[2], True)]


def test_level_lines_alone() -> None:
    config = "3x8x8x3x3x4x6x6x2xNCHWxFP16x0x0x1x1x1x1x1xFxDefault"
    back = "4x6x6x3x3x3x8x8x2xNCHWxFP16x0x0x1x1x1x1x1xBxDefault"
    direct, invoker = "miopenConvolutionFwdAlgoDirect", "Info2 [GetInvoker] Returning an invoker for problem"
    text = (
        levels(
            "Info [FindConvFwdAlgorithm] requestAlgoCount = 1, workspace = 99",
            f"Info2 [SetAsFound1_0] Solver ConvAsm3x3U registered as find 1.0 best for {direct} in {config}",
            "Info [FillFindReturnParameters] FW Chosen Algorithm: ConvAsm3x3U , 0, 0.1",
            "Info [ConvolutionForward] algo = 1, workspace = 0",
            f"{invoker} {config} and algorithm {direct}",
        )
        + launch("miopenGcnAsmConv3x3U")
        + levels(
            "Info [ConvolutionBackwardData] algo = 5, workspace = 7",
            f"{invoker} {back} and algorithm miopenConvolutionBwdDataAlgoImplicitGEMM",
            "Info [ConvolutionForwardImmediate] solver_id = GemmFwdRest, workspace = 8",
        )
    )
    find, run, data, immediate = ops_of(text)
    assert (find.phase, find.solver, find.input, find.workspace_bytes) == ("find", "ConvAsm3x3U", (2, 3, 8, 8), 0)
    assert (run.phase, run.solver, run.algorithm, run.dtype) == ("run", "ConvAsm3x3U", "Direct", "half")
    (ran,) = run.launches
    assert (ran.name, ran.gws, ran.lws) == ("miopenGcnAsmConv3x3U", (64, 2, 1), (64, 1, 1))
    assert (data.input, data.weights, data.output) == ((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6))
    assert data.direction == "backward-data"
    assert (immediate.solver, immediate.algorithm, immediate.input) == ("GemmFwdRest", "Gemm", ())
    assert (find.line, run.line, run.end_line, data.line) == (1, 4, 6, 7)


def test_commands_alone_before_rocm_5_4() -> None:
    """The first backward-weights line of a shape is its search; set-up has nothing but searches."""

    def line(direction: int, k: int) -> str:
        return logged(
            f"conv -n 1 -c 2 -H 5 -W 5 -k {k} -y 3 -x 3 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F {direction} -t 1"
        )

    text = line(4, 3) + line(4, 3) + line(1, 3) + line(4, 3) + line(4, 8) + line(2, 3)
    assert [o.phase for o in ops_of(text)] == ["find", "find", "run", "run", "find", "run"]
    newer = line(4, 9).replace("LogCmdConvolution", "LogCmdFindConvolution")
    assert [o.phase for o in ops_of(newer + line(4, 9))] == ["find", "run"]


def test_a_bare_command_is_an_operation_only_when_nothing_else_tells() -> None:
    bare = "MIOpenDriver conv -n 1 -c 2 -H 5 -W 5 -k 3 -y 3 -x 3 -F 1\n"
    assert (one(bare).api, one(bare).input) == ("", (1, 2, 5, 5))
    o = one(bare + levels("Info [ConvolutionForward] algo = 0, workspace = 0"))
    assert (o.line, o.input, o.dtype_by) == (2, (1, 2, 5, 5), "command")


def test_what_the_driver_cannot_be_told_has_a_reason() -> None:
    problems: tuple[Problem, ...] = (
        OpTensorProblem(op="add", x=(2, 3, 4, 4), w=(1, 3, 1, 1), y=(2, 3, 4, 4)),
        OpTensorProblem(op="copy", x=(2, 3, 4, 4), y=(2, 3, 4, 4)),
        ActivProblem(direction="forward", dtype="bfloat16", x=(1, 2, 3, 4), mode=3, alpha="1", beta="1", gamma="1"),
        SoftmaxProblem(direction="forward", x=(1, 2, 3, 4, 5)),
        PoolProblem(direction="forward", x=(1, 2, 5, 5), window=(9, 9), pads=(0, 0), strides=(1, 1)),
        ConvProblem(direction="forward", dtype="float8", x=(1, 2, 5, 5), w=(1, 2, 3, 3), pads=(0, 0), strides=(1, 1),
                    dilations=(1, 1)),
    )  # fmt: skip
    for problem in problems:
        with pytest.raises(CommandError, match=r"\w{3}"):
            problem.command()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("miopenSp3AsmConv_v21_1_3_gfx10_fp32_stride1.kd", ("conv", None, "Winograd", "main")),
        ("igemm_wrw_gtcx_nhwc_fp16_bx0_ex1 [clone .kd]", ("conv", "backward-weights", "ImplicitGemm", "main")),
        ("void ck::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle<ck::A<1>, 2>(int)",
         ("conv", "forward", "ImplicitGemm", "main")),
        ("naive_conv_bwd_nchw_float_double_float", ("conv", "backward-data", "Naive", "main")),
        ("Im2d2Col_v2", ("conv", None, "Gemm", "im2col")),
        ("_ZN2ck15kernel_gemm_fooE", (None, None, None, None)),
        ("SubTensorOpWithScalar1d", (None, None, None, "fill")),
        ("MIOpenBatchNormBwdSpatialDX", ("bnorm", "backward-data", None, "main")),
        ("MIOpenBatchNormBwdSpatialFinalDScaleDBias", ("bnorm", "backward-data", None, "statistics")),
        ("mloPoolingNDMaxBwd", ("pool", "backward-data", None, "main")),
        ("Cijk_Ailk_Bljk_SB_MT64x64x8_SE", (None, None, "Gemm", "main")),
        ("miog_copya", (None, None, "Gemm", "copy")),
        ("im2col_float", (None, None, None, "im2col")),
        ("gemm_accumulate_biases", (None, None, None, "bias")),
        ("my_kernel", (None, None, None, None)),
        ("rocblas_gemvt_warp_reduce_kernel", (None, None, "Gemm", "main")),
        ("_ZL20rocblas_gemvt_kernelILb0ELi256EPKfS1_KPfEviiT2_", (None, None, "Gemm", "main")),
        ("void rocblas_gemm_scale_kernel<32, 32>(int)", (None, None, "Gemm", "scale")),
        ("rocblas_gemvt_sn_reduce", (None, None, "Gemm", "reduce")),
        ("Custom_Cijk_Alik_Bljk_BBS_BH_UserArgs_MT256x256x64_MI16x16x1", (None, None, "Gemm", "main")),
    ],
)  # fmt: skip
def test_kernel_names(name: str, expected: tuple[object, ...]) -> None:
    found = kernel_name(name)
    got = (found.primitive, found.direction, found.algorithm, found.role) if found else (None,) * 4
    assert got == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_ZN2ck15kernel_gemm_fooILi1EEvv", "kernel_gemm_foo"),
        ("void at::native::f<int>(int)", "f"),
        ("plain.kd", "plain"),
        ("std::enable_if<(((8)>(0)))&&_typeConvert<c10::BFloat16>::exists, void>::type"
         " vllm::rms_norm<c10::BFloat16, 8>(c10::BFloat16*, float)", "rms_norm"),
        ("std::enable_if<f<std::enable_if<true>::type>::value, void>::type g<int>(int)", "g"),
        ("_ZN12_GLOBAL__N_1L6kernelIfEEvPT_", "kernel"),
    ],
)  # fmt: skip
def test_names_are_normalised(name: str, expected: str) -> None:
    assert normalise(name) == expected


def test_solver_ids() -> None:
    assert (solver_name(91), solver_name(33)) == ("GemmFwdRest", None)
    assert len(set(SOLVERS.values())) == len(SOLVERS)
    assert all(map(family, (name for name in SOLVERS.values() if name.startswith(("Conv", "Gemm", "fft")))))
    names = ("ConvDirectNaiveConvFwd", "GemmFwdRest", "fft", "ConvAsm3x3U", "Softmax")
    assert [*map(family, names)] == ["Naive", "Gemm", "FFT", "Direct", None]


def test_keys_and_configs_agree() -> None:
    """In two and three dimensions; of mixed types the first counts."""
    text = "3-224-224-7x7-64-112-112-16-3x3-2x2-1x1-0-NCHW-{}-F"
    config = network_config("3x224x224x7x7x64x112x112x16xNCHWxFP32x3x3x2x2x1x1x1xFxDefault")
    deep = find_db_key("16-4-275-602-3x11x11-16-2-265-592-1-0x0x0-1x1x1-1x1x1-0-NCDHW-FP32-F")
    assert config == find_db_key(text.format("FP32"))
    assert config is not None
    assert (config.x, config.w, config.y) == ((16, 3, 224, 224), (64, 3, 7, 7), (16, 64, 112, 112))
    grouped = find_db_key("8-5-5-3x3-6-5-5-2-1x1-1x1-1x1-0-NCHW-FP32-F_g2")
    assert grouped is not None
    assert (grouped.x, grouped.w, grouped.y) == ((2, 8, 5, 5), (6, 4, 3, 3), (2, 6, 5, 5))
    assert find_db_key(text.format("INT8INT8INT32")) == msgspec.structs.replace(config, dtype="int8")
    assert network_config("16x4x275x602x3x11x11x16x2x265x592x1xNCDHWxFP32x0x0x0x1x1x1x1x1x1x1xF") == deep is not None
    assert network_config("1x2x3") is None


@pytest.mark.parametrize(
    ("lines", "form"),
    [
        ([], None),
        ([("miopenConvolutionForward", "conv -n 1 -t 1")], "1.2"),
        ([("miopenConvolutionForward", "conv -n 1 -m conv -g 1 -t 1")], "1.7"),
        ([("LogCmdConvolution", "conv -F 2 -t 1"), ("Pooling_logging_cmd", "pool -M 0")], "2.3"),
        ([("LogCmdFindConvolution", "conv -F 2 -t 1")], "5.4"),
    ],
)
def test_forms_are_told_by_what_they_print(lines: list[tuple[str, str]], form: Form | None) -> None:
    assert form_of(lines) == form


# Problems to text and back


small = st.integers(1, 9)


@st.composite
def conv_problems(draw: st.DrawFn, rank: int | None = None) -> ConvProblem:
    spatial = rank or draw(st.sampled_from((2, 3)))

    def each(strategy: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(strategy) for _ in range(spatial))

    g, transpose = draw(st.integers(1, 3)), draw(st.booleans())
    c, k = g * draw(small), g * draw(small)
    window = each(st.integers(1, 5))
    made = ConvProblem(
        direction=draw(st.sampled_from(DIRECTIONS)),
        dtype=draw(st.sampled_from(("float", "half", "bfloat16", "int8"))),
        x=(draw(small), c, *each(st.integers(1, 40))),
        w=(c, k // g, *window) if transpose else (k, c // g, *window),
        pads=each(st.integers(0, 3)),
        strides=each(st.integers(1, 3)),
        dilations=each(st.integers(1, 3)),
        groups=g,
        transpose=transpose,
    )
    y = made.expected_output()
    assume(y)
    return msgspec.structs.replace(made, y=y)


@given(conv_problems())
def test_a_convolution_survives_its_command(problem: ConvProblem) -> None:
    forms: tuple[Form, ...] = ("newest",) if problem.transpose else ("2.1", "2.3", "5.4", "newest")
    for form in forms:
        again = parse(problem.command(form))
        assert again == msgspec.structs.replace(problem, y=())
        assert again is not None
        assert (again.output, again.gemm(), again.flop(), again.bytes_min()) == (
            problem.y, problem.gemm(), problem.flop(), problem.bytes_min(),
        )  # fmt: skip


@pytest.mark.parametrize("text", ["0049 30 5557734", "1, 007, 2", "00, 1", "9" * 20])
def test_numbers_that_the_library_never_prints_are_no_lengths(text: str) -> None:
    """With zeros before them, or longer than any."""
    assert integers(text) == ()


def braces(values: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def shape_text(shape: tuple[int, ...], layout: str) -> str:
    """A tensor in the layout's usual form: lengths alone before ROCm 5.5."""
    if layout != "2.0":
        return ", ".join(map(str, shape))
    return f"{braces(shape)}, {braces(packed_strides(shape, 'NCHW' if len(shape) == 4 else 'NCDHW'))}, packed, "


NAMES: dict[str | None, tuple[str, ...]] = {
    "forward": ("ConvolutionForward", "xDesc", "wDesc", "yDesc"),
    "backward-data": ("ConvolutionBackwardData", "dxDesc", "wDesc", "dyDesc"),
    "backward-weights": ("ConvolutionBackwardWeights", "xDesc", "dwDesc", "dyDesc"),
}


@given(conv_problems(), st.sampled_from(("1.0", "1.2", "2.0")))
def test_a_convolution_survives_its_entry(problem: ConvProblem, layout: str) -> None:
    if layout == "2.0":
        mode = "miopenTranspose" if problem.transpose else "miopenConvolution"
        groups = f"{problem.groups}, " if problem.groups > 1 else ""
        extra = f"{braces((0,) * problem.spatial)}, " if problem.transpose else ""
        lists = ", ".join(map(braces, (problem.pads, problem.strides, problem.dilations)))
        text = f"conv{problem.spatial}d, {mode}, miopenPaddingDefault, {lists}, {groups}{extra}"
    else:
        assume(problem.spatial == 2)
        numbers = ", ".join(str(v) for pair in (problem.pads, problem.strides, problem.dilations) for v in pair)
        mode = (
            "miopenTranspose" if problem.transpose else "miopenGroupConv" if problem.groups > 1 else "miopenConvolution"
        )
        assume(not (problem.transpose and problem.groups > 1))
        if layout == "1.0":
            assume(problem.groups == 1 and not problem.transpose)
            text = f"{numbers}, "
        else:
            text = f"{mode}, {numbers}, " + (f"{problem.groups}, " if problem.groups > 1 else "")
    api, *names = NAMES[problem.direction]
    shapes = dict(zip(names, (problem.x, problem.w, problem.y), strict=True))
    order = [names[2], names[1]] if problem.direction == "backward-data" else [names[0], names[1]]
    params: dict[str, object] = {"alpha": "0x7ffc0000"}
    params |= {name: shape_text(shapes[name], layout) for name in order}
    params |= {"convDesc": text, "algo": 1}
    params |= {name: shape_text(shapes[name], layout) for name in names if name not in order}
    o = one(entry(api, layout, **params))
    assert o.problem == msgspec.structs.replace(
        problem,
        dtype=None,
        layouts=(("NCHW" if problem.spatial == 2 else "NCDHW",) * 3) if layout == "2.0" else ("", "", ""),
        output_pads=(0,) * problem.spatial if problem.transpose and layout == "2.0" else (),
    ), text  # fmt: skip
    assert not [doubt for doubt in o.doubts if "type" not in doubt]


both_ways, floats = st.sampled_from(("forward", "backward-data")), st.sampled_from(("float", "half"))
POOLS = st.builds(
    PoolProblem, direction=both_ways, dtype=floats, x=st.tuples(small, small, st.integers(4, 40), st.integers(4, 40)),
    window=st.tuples(st.integers(1, 4), st.integers(1, 4)), pads=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)), index_mode=st.just(0),
    mode=st.sampled_from(("max", "average", "average-inclusive")),
)  # fmt: skip


@given(POOLS)
def test_pooling_survives_command_and_entry(problem: PoolProblem) -> None:
    assume(problem.expected_output())
    is_forward, x_strides = problem.direction == "forward", packed_strides(problem.x, "NCHW")
    assert parse(problem.command("2.3")) == problem
    assert parse(problem.command("newest")) == msgspec.structs.replace(problem, x_strides=x_strides)
    api = "PoolingForward" if is_forward else "PoolingBackward"
    if problem.dtype == "float":
        assert parse(problem.command("1.7"), f"miopen{api}") == msgspec.structs.replace(problem, index_mode=None)
    names = {"max": "miopenPoolingMax", "average": "miopenPoolingAverage", "average-inclusive": "Unknown: 2"}
    numbers = ", ".join(map(str, (*problem.window, *problem.pads, *problem.strides)))
    for layout in ("1.2", "2.0"):
        x, y = (shape_text(of, layout) for of in (problem.x, problem.output))
        tensors = {"xDesc": x, "yDesc": y} if is_forward else {"yDesc": y, "dyDesc": y, "xDesc": x, "dxDesc": x}
        o = one(entry(api, layout, poolDesc=f"{names[problem.mode]}, {numbers}, ", **tensors))
        assert o.problem == msgspec.structs.replace(
            problem, dtype=None, y=problem.output, index_mode=None, x_strides=x_strides if layout == "2.0" else ()
        )


SHAPES = st.tuples(small, small, small, small)
COMMON: dict[str, Any] = {"direction": both_ways, "dtype": floats, "x": SHAPES}
NORM = st.builds(
    BnormProblem, direction=both_ways, dtype=st.sampled_from(("float", "half", "bfloat16")), x=SHAPES,
    mode=st.integers(0, 1), training=st.booleans(), layout=st.just("NHWC"), running=st.booleans(), saved=st.booleans(),
).map(
    lambda one: msgspec.structs.replace(
        one, training=one.training and one.direction == "forward",
        running=one.running if one.direction == "forward" else None,
        saved=one.saved if one.direction != "forward" or one.training else None,
    )
)  # fmt: skip


@given(
    NORM
    | st.builds(ActivProblem, **COMMON, mode=st.integers(0, 9), alpha=st.just("0.5"), beta=st.just("-1"),
                gamma=st.just("1e-05"))
    | st.builds(SoftmaxProblem, **COMMON, algorithm=st.integers(0, 2), mode=st.integers(0, 1))
    | st.builds(LrnProblem, **COMMON, mode=st.integers(0, 1), window=st.just(5), alpha=st.just("0.0001"),
                beta=st.just("0.75"), k=st.just("1"))
    | st.builds(OpTensorProblem, dtype=st.just("float"), x=SHAPES,
                op=st.sampled_from(("set", "scale", "add", "mul", "max")))
)  # fmt: skip
def test_the_other_problems_survive_their_commands(problem: Problem) -> None:
    assert parse(problem.command()) == problem


@given(st.text(alphabet="{}, 0123456789-xconvmiopTrPdgDf\n", max_size=80))
def test_values_of_any_text_never_raise(text: str) -> None:
    parse(text)
    parse("conv " + text)
    parse("pool -M 0 --input " + text)
    find_db_key(text)
    network_config(text, "forward")
    ops_of(conv_entry(xDesc=text.replace("\n", ""), convDesc=text.replace("\n", "")))


def test_the_summary_of_an_execution_is_of_the_call_before_it() -> None:
    """It names the solver. A build of 2026 wrote dy's sizes for x's in gradients: such a line is no other call."""
    line = (
        'MIOpen(HIP): Info [LogConvolutionExecution] Problem="conv -n {} -H {} -W {} -k 10 -y 3 -x 3 -p 1 -q 0 -u 2'
        ' -v 1 -l 1 -j 1 -m conv -g 2 -F 1 -t 1" Solver="ConvX" Config(from_perf_db)="N/A" Time(from_find_db)=0.5\n'
    )
    (right,) = ops_of(conv_entry() + line.format("2 -c 6", 9, 8))
    (exchanged,) = ops_of(conv_entry() + line.format("2 -c 10", 5, 6))
    for one in (right, exchanged):
        assert (one.solver, one.dtype, one.input) == ("ConvX", "float", (2, 6, 9, 8))
    assert (right.doubts, exchanged.doubts) == ((), ("the log's summary of this execution has other sizes",))
    assert [one.input for one in ops_of(line.format("2 -c 6", 9, 8) * 2)] == [(2, 6, 9, 8)] * 2
