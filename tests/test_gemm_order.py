"""Calls of a BLAS library's log joined with GEMM kernels by order: a made-up run with its truth."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from mio2trace.align import NONE, Alignment
from mio2trace.analysis import analyse
from mio2trace.ops import operations
from mio2trace.ops.families import launches
from mio2trace.ops.log import Assembly
from mio2trace.ops.operation import Operation
from tests.kineto_files import FIRST_US, trace
from tests.kineto_files import row as event_of
from tests.test_ops import SETS, conv_entry, decode, entry, ops_of, read_set


class Gemm(NamedTuple):
    m: int
    n: int
    k: int
    trans: str = "NN"

    @property
    def kernel(self) -> str:
        a, b = ("il", "li")[self.trans[0] == "T"], ("lj", "jl")[self.trans[1] == "T"]
        return f"Cijk_A{a}k_B{b}k_HHS_BH_MT{self.m}x{self.n}x{self.k}_SN"

    @property
    def bench(self) -> str:
        return (
            f"hipblaslt-bench --api_method c -m {self.m} -n {self.n} -k {self.k} --lda {self.m}"
            f" --transA {self.trans[0]} --transB {self.trans[1]} --batch_count 1 --a_type f16_r"
            " --b_type f16_r --c_type f16_r --d_type f16_r"
            " --compute_type f32_r --solution_index 7"
        )

    @property
    def rocblas(self) -> str:
        return (
            f"./rocblas-bench -f gemm_ex -m {self.m} -n {self.n} -k {self.k} --transposeA {self.trans[0]}"
            f" --transposeB {self.trans[1]} --a_type f16_r --compute_type f32_r"
        )


A, B, C, D = Gemm(64, 32, 128), Gemm(256, 64, 16, "TN"), Gemm(8, 1024, 64, "NT"), Gemm(512, 32, 128)
STEP = (A, B, B, C, D, A)


def aligned(folder: Path, kernels: Sequence[str], lines: Sequence[str], *, ops: bool = False) -> Alignment:
    """A profile of PyTorch's profiler that holds kernels and their launches alone, beside a log."""
    events = []
    for number, name in enumerate(kernels):
        at, key = FIRST_US + 100 * number, 1000 + number
        if ops:
            events.append(event_of("cpu_op", "aten::mm", 1, 1, at - 1, 20, External_id=1 + number,
                              Input_Dims=[[4, 4], [4, 4]], Input_type=["float", "float"]))  # fmt: skip
        events.append(
            event_of("cuda_runtime", "hipExtModuleLaunchKernel", 1, 1, at, 5, correlation=key, External_id=1 + number)
        )
        events.append(event_of("kernel", name, 0, 0, at + 20, 50, correlation=key, device=0, stream=0))
    (folder / "trace.json").write_bytes(trace(events))
    (folder / "blas.log").write_text("\n".join(["a line of the program", *lines, ""]))
    analysis = analyse([folder / "trace.json", folder / "blas.log"])
    (alignment,) = analysis.run.alignments
    return alignment


def found(alignment: Alignment) -> list[tuple[int, int, int] | None]:
    """Of each kernel the sizes of the call that it is given to; every such link is in doubt and by order."""
    links = alignment.links
    of_index = {operation.index: operation for operation in links.operations}
    sizes: list[tuple[int, int, int] | None] = []
    for position, index in enumerate(links.operation_of):
        if index == NONE:
            sizes.append(None)
            continue
        assert links.operation_by[position] == "order"
        assert position in links.operation_unsure
        gemm = of_index[index].gemm
        assert gemm is not None
        sizes.append((gemm.m, gemm.n, gemm.k))
    return sizes


@pytest.mark.parametrize("before", [(), (D, A), STEP, (A, C)])
@pytest.mark.parametrize("after", [(), STEP[:3]])
def test_every_kernel_has_the_call_that_ran_it(before: Sequence[Gemm], after: Sequence[Gemm], tmp_path: Path) -> None:
    """The log also has calls from before the profile began and after it ended; each call is an operation of its own."""
    ran = STEP * 3
    lines = [gemm.bench for gemm in (*before, *ran, *after)]
    alignment = aligned(tmp_path, ["fill", *(gemm.kernel for gemm in ran), "other"], lines)
    assert found(alignment) == [None, *(gemm[:3] for gemm in ran), None]
    assert len(set(alignment.links.operation_of) - {NONE}) == len(ran)
    assert {one.solver for one in alignment.links.operations} == {"hipBLASLt 7"}


def test_kernels_that_finish_a_gemm_are_of_its_call(tmp_path: Path) -> None:
    """Split along K: the sum of the parts is a kernel of its own. rocBLAS hands calls on to hipBLASLt, and each prints
    them: the log of one library fits."""
    kernels = [name for gemm in STEP for name in (gemm.kernel, "Cijk_HHS_BH_PostGSU4_VW4")]
    lines = [line for gemm in STEP for line in (gemm.rocblas, gemm.bench)]
    assert found(aligned(tmp_path, kernels, lines)) == [gemm[:3] for gemm in STEP for _ in range(2)]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(STEP[:-1], id="a call is missing"),
        pytest.param((*STEP[:3], *STEP[4:], A, B), id="a call in the middle is missing"),
        pytest.param(STEP[::-1], id="another order"),
        pytest.param((A, B, C, C, D, A), id="equal kernels of unlike calls"),
        pytest.param([Gemm(9, 9, 9, gemm.trans) for gemm in STEP], id="unlike kernels of equal calls"),
        pytest.param([f"4 {gemm.bench}" for gemm in STEP], id="counted lines"),
        pytest.param((*STEP, A, *(gemm._replace(k=gemm.k + gemm.m) for gemm in STEP)), id="two places that fit"),
    ],
)
def test_what_does_not_fit_is_not_joined(lines: Sequence[Gemm | str], tmp_path: Path) -> None:
    printed = [line if isinstance(line, str) else line.bench for line in lines]
    assert found(aligned(tmp_path, [gemm.kernel for gemm in STEP], printed)) == [None] * len(STEP)


def test_a_kernel_that_an_op_launched_stays_there(tmp_path: Path) -> None:
    alignment = aligned(tmp_path, [gemm.kernel for gemm in STEP], [gemm.bench for gemm in STEP], ops=True)
    assert set(alignment.links.operation_by) == {"correlation"}


@pytest.mark.parametrize("seed", range(20))
def test_damaged_logs_give_no_sure_link(seed: int, tmp_path: Path) -> None:
    """Lines lost, doubled, exchanged: what is joined has the transposes of its kernel, and is in doubt (`found`)."""
    chance = random.Random(seed)
    ran = [chance.choice((A, B, C, D)) for _ in range(30)]
    lines = [gemm.bench for gemm in ran]
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(lines))
        if chance.random() < 0.5:
            del lines[at]
        else:
            lines.insert(chance.randrange(len(lines)), lines[at])
    assert len(found(aligned(tmp_path, [gemm.kernel for gemm in ran], lines))) == len(ran)


# -- Buffers, launches and fused arguments of operations, against the kernels that really ran with them.


WITH_PROFILE = tuple(
    name for name in SETS if name not in ("m121-alexnet-infer-interleaved", "m290-lenet-train-cmdonly")
)
NO_BUFFER = re.compile(r"handle|args|alpha\d?|beta|\w+Desc")
PARAMETER = re.compile(r"(?:MIOpen\(OpenCL\): \t)?(\w+) = (?:0x)([0-9a-f]+)$")


def launched(shared: Path, name: str) -> Iterator[tuple[Operation, dict[str, Any], set[int]]]:
    """Operation, profile row and buffer arguments of each kernel launched in a call."""
    log, truth = read_set(shared, name)
    found = {operation.line: operation for operation in operations(log)}
    rows = json.loads((shared / "samples" / "miopen-opencl" / name / "prof.json").read_bytes())
    calls = {one["prof_index"]: truth["api_calls"][one["api_call"]] for one in truth["enqueues"] if one["api_call"]}
    buffers: set[int] = set()
    arguments: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for at, row in enumerate(rows):
        if row["call"] == "clCreateBuffer":
            buffers.add(int(row["buffer"], 16))
        elif row["call"] == "clSetKernelArg" and row["arg_size"] == 8:
            value = int.from_bytes(bytes.fromhex(row["arg_value"]), "little")
            arguments[row["kernel"]][row["arg_index"]] = value
        elif at in calls:
            yield found[calls[at]["log_line"]], row, set(arguments[row["kernel"]].values()) & buffers


@pytest.mark.shared
@pytest.mark.parametrize("name", WITH_PROFILE)
def test_kernels_work_on_the_buffers_of_their_operation(shared: Path, name: str) -> None:
    """Every buffer that a kernel was given is one of its operation's, but for those that a search of 1.x makes."""
    checked = fused = 0
    for operation, _, given in launched(shared, name):
        known = {address for _, address in operation.tensors}
        if operation.phase == "find" and name.startswith("m121"):
            continue
        assert given, (operation.api, operation.line)
        assert given <= known, (operation.api, operation.line)
        checked += len(given)
        if operation.api == "miopenExecuteFusionPlan":
            fused += 1
            assert given == known
    assert checked > 25
    assert fused == (13 if "fused" in name else 0)


@pytest.mark.shared
@pytest.mark.parametrize("name", SETS)
def test_every_address_of_an_entry_is_a_buffer(shared: Path, name: str) -> None:
    """What the text shows behind a parameter that is no handle, descriptor or factor, in order."""
    log, truth = read_set(shared, name)
    lines = (shared / "samples" / "miopen-opencl" / name / "run.log").read_text(errors="replace").split("\n")
    found = {operation.line: operation for operation in operations(log)}
    checked = 0
    for call in truth["api_calls"]:
        if call["log_line"] is None or not launches(call["name"]):
            continue
        inside = itertools.takewhile(
            lambda line: line.removeprefix("MIOpen(OpenCL): ") != "}", lines[call["log_line"] :]
        )
        matches = [match for line in inside if (match := PARAMETER.match(line)) and not NO_BUFFER.fullmatch(match[1])]
        mine = found[call["log_line"]].tensors
        assert list(mine[: len(matches)]) == [(match[1], int(match[2], 16)) for match in matches]
        assert len(mine) == len(matches) or call["name"] == "miopenExecuteFusionPlan"
        checked += len(matches)
    assert checked > 35 or name == "m290-lenet-train-cmdonly"


@pytest.mark.shared
def test_every_launch_line_has_the_sizes_of_its_launch(shared: Path) -> None:
    """Also in lines that were glued together: names, global and local sizes in order are those of the profile.

    The runtime was made to take a smaller local size where the library's does not divide the global one.
    """
    ran: defaultdict[int, list[tuple[Any, Any]]] = defaultdict(list)
    for operation, row, _ in launched(shared, "m121-lenet-train-debugbuild"):
        ran[operation.line].append((operation.launches, row))
    exact = 0
    for pairs in ran.values():
        for launch, (_, row) in zip(pairs[0][0], pairs, strict=True):
            assert (launch.name, launch.gws) == (row["name"], tuple(row["gws"]))
            fits = all(size % local == 0 for size, local in zip(launch.gws, launch.lws, strict=True))
            assert not fits or launch.lws == tuple(row["lws"])
            exact += fits
    assert sum(map(len, ran.values())) == 73
    assert exact > 60


@pytest.mark.shared
@pytest.mark.parametrize("name", SETS)
def test_repeated_calls_are_what_they_would_be_alone(shared: Path, name: str) -> None:
    data = (shared / "samples" / "miopen-opencl" / name / "run.log").read_bytes()
    moved = re.sub(rb"0x5([0-9a-f]{11})\b", rb"0x6\1", data)
    log = decode(data + moved + data)
    found = operations(log)
    assert found == Assembly(log, repeats=False).result()
    third = len(found) // 3
    assert [one.index for one in found] == list(range(3 * third))
    again = [
        msgspec.structs.replace(one, index=0, line=0, end_line=0, command_line=0, launches=(), gemms=())
        for one in (*found[:third], *found[2 * third :])
    ]
    assert [one.tensors for one in again[:third]] == [one.tensors for one in again[third:]]
    assert len(again) == 2 * third


def test_a_repeated_call_takes_the_type_that_its_shape_has_by_then() -> None:
    def described(dtype: int) -> str:
        return entry("Set4dTensorDescriptor", tensorDesc="", dataType=dtype, n=1, c=4, h=8, w=8)

    bias = entry("ConvolutionForwardBias", bDesc="1, 4, 1, 1", b="0x7f0010", yDesc="1, 4, 8, 8", y="0x7f0020")
    log = decode(described(1) + bias * 4 + described(0) + bias * 3)
    found = operations(log)
    assert [one.dtype for one in found] == ["float"] * 4 + ["half"] * 3
    assert found == Assembly(log, repeats=False).result()


def test_a_repeated_call_keeps_its_own_command_and_lines() -> None:
    command = "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 2 -c 6 -H 9 -W 8 -k 10 -y 3 -x 3"
    command += " -p 1 -q 0 -u 2 -v 1 -l 1 -j 1 -m conv -g 2 -F 1 -t 1\n"
    run = "MIOpen(HIP): Info2 [run] kernel_name = K, global_work_dim = { 64, 1, 1 }, local_work_dim = { 64, 1, 1 }\n"
    call = conv_entry()
    log = decode((call + command + run) * 3 + call + run * 2 + (call + command) * 2)
    found = operations(log)
    assert [bool(one.command_line) for one in found] == [True] * 3 + [False] + [True] * 2
    assert [len(one.launches) for one in found] == [1, 1, 1, 2, 0, 0]
    assert [one.launches[0].line - one.line for one in found[:3]] == [found[0].end_line - found[0].line] * 3
    assert found == Assembly(log, repeats=False).result()


# Fused operators

IN_OUT = {"inputDesc": "1, 4, 8, 8", "input": "0x7f0010", "outputDesc": "1, 4, 8, 8", "output": "0x7f0020"}


def plan(layout: str, *operators: str) -> str:
    created = {
        "conv": entry("CreateOpConvForward", layout, fusePlanDesc="", convOp="0x31766e6f635f756c", wDesc="4, 4, 3, 3",
                      convDesc="miopenConvolution, 1, 1, 1, 1, 1, 1, "),
        "bias": entry("CreateOpBiasForward", layout, fusePlanDesc="", biasOp="0x1", bDesc="1, 4, 1, 1"),
        "bnorm": entry("CreateOpBatchNormInference", layout, fusePlanDesc="", bnOp="0x1", bn_mode=1,
                       bnScaleBiasMeanVarDesc="1, 4, 1, 1"),
        "activ": entry("CreateOpActivationForward", layout, fusePlanDesc="", activOp="0x1", mode=3),
    }  # fmt: skip
    return (
        entry("CreateFusionPlan", layout, fusePlanDesc="0x1", fuseDirection=0, inputDesc=IN_OUT["inputDesc"])
        + "".join(created[name] for name in operators)
        + entry("CompileFusionPlan", layout, fusePlanDesc="kernel_name: ")
    )


def arguments(layout: str, at: int, *operators: str, args: str = "") -> str:
    given: dict[str, dict[str, object]] = {
        "conv": {"convOp": "", "alpha": "0x7ffc10", "beta": "0x7ffc18", "w": hex(at)},
        "bias": {"biasOp": "", "alpha": "0x7ffc10", "beta": "0x7ffc18", "bias": hex(at + 1)},
        "bnorm": {
            "bnOp": "miopenFusionOpBatchNormInference", "alpha": "0x7ffc10", "beta": "0x7ffc18",
            "bnScale": hex(at + 2), "bnBias": hex(at + 3), "estimatedMean": hex(at + 4),
            "estimatedVariance": hex(at + 5), "epsilon": "1e-05",
        },
        "activ": {"activFwdOp": "0x55aa00", "alpha": "0x7ffc10", "beta": "0x7ffc18", "activAlpha": 1},
    }  # fmt: skip
    names = {"conv": "ConvForward", "bias": "BiasForward", "bnorm": "BatchNormInference", "activ": "ActivForward"}
    return "".join(entry("SetOpArgs" + names[one], layout, args=args, **given[one]) for one in operators)


def execute(layout: str, kernel: str = "", args: str = "") -> str:
    return entry("ExecuteFusionPlan", layout, fusePlanDesc=f"kernel_name: {kernel}", **IN_OUT, args=args)


BNORM = (("bnScale", 2), ("bnBias", 3), ("estimatedMean", 4), ("estimatedVariance", 5))


@pytest.mark.parametrize("layout", ["1.2", "2.0"])
def test_an_execution_has_the_buffers_of_its_arguments(layout: str) -> None:
    kinds = ("conv", "bias", "activ")
    for one in ops_of(plan(layout, *kinds) + arguments(layout, 0x7F1000, *kinds) + execute(layout) * 2):
        shapes = (1, 4, 8, 8), (4, 4, 3, 3), (1, 4, 8, 8)
        assert (one.mode, one.input, one.weights, one.output) == ("conv+bias+activ", *shapes)
        assert one.tensors == (("input", 0x7F0010), ("output", 0x7F0020), ("w", 0x7F1000), ("bias", 0x7F1001))
        assert not [doubt for doubt in one.doubts if "fus" in doubt or "argument" in doubt]


@pytest.mark.parametrize("layout", ["1.2", "2.0"])
def test_arguments_are_of_their_execution_or_plan(layout: str) -> None:
    """Plans first, then in each iteration arguments and execution, as the real log does; or set with each plan."""
    kinds, places = ("bnorm", "activ"), (0x7F1000, 0x7F2000, 0x7F3000)
    made, given = plan(layout, *kinds), [arguments(layout, at, *kinds) for at in places]
    expected = [tuple((name, at + more) for name, more in BNORM) for at in places]
    each = ops_of(made * 2 + "".join(one + execute(layout) for one in given))
    assert [one.tensors[2:] for one in each] == expected
    assert {one.mode for one in each} == {"bnorm+activ"}
    with_plans = ops_of("".join(made + one for one in given) + execute(layout) * 6)
    assert [one.tensors[2:] for one in with_plans] == expected * 2


def test_arguments_tell_plans_of_one_input_apart() -> None:
    """Executed in another order than made: the operators that arguments were set for say which plan it is."""
    kinds = ("bnorm", "activ"), ("conv", "bias", "activ")
    text = "".join(plan("2.0", *one) for one in kinds)
    text += arguments("2.0", 0x7F1000, *kinds[1]) + execute("2.0") + arguments("2.0", 0x7F2000, *kinds[0])
    first, second = ops_of(text + execute("2.0"))
    assert (first.mode, second.mode) == ("conv+bias+activ", "bnorm+activ")
    assert first.tensors[2:] == (("w", 0x7F1000), ("bias", 0x7F1001))
    assert not [doubt for doubt in (*first.doubts, *second.doubts) if "several" in doubt]


def test_arguments_known_by_their_pointer() -> None:
    text = plan("2.0", "bnorm", "activ")
    text += "".join(arguments("2.0", at, "bnorm", args=args) for at, args in ((0x7F1000, "0x1"), (0x7F2000, "0x2")))
    text += "".join(execute("2.0", args=args) for args in ("0x1", "0x2", "0x1"))
    assert [one.tensors[2][1] for one in ops_of(text)] == [0x7F1002, 0x7F2002, 0x7F1002]


def test_missing_arguments_are_a_doubt() -> None:
    (one,) = ops_of(plan("2.0", "bnorm", "activ") + execute("2.0"))
    assert "the arguments of the fused operators were not logged" in one.doubts
    assert len(one.tensors) == 2


CONV_TENSORS = (
    "{ ConvX: {1, 3, 8, 8}, {192, 64, 8, 1}, packed,  -> 0x7f10, ConvW: {4, 3, 3, 3}, {27, 9, 3, 1}, packed, "
    " -> 0x7f20, ConvY: NULL -> 0x7f30, }"
)


@pytest.mark.parametrize(
    ("api", "params", "tensors"),
    [
        ("ConvolutionForwardBias", {"b": "0x7f00aa01aa00", "y": "0x7f00aa01bb00"}, "b 7f00aa01aa00 y 7f00aa01bb00"),
        ("ConvolutionForwardBias", {"b": "0x7f00aa01aa0", "y": "0x7f00aa01bb000"}, "b 7f00aa01aa0 y 7f00aa01bb000"),
        ("ConvolutionForwardBias", {"b": "0x1234", "y": "0xabcdef"}, "b 1234 y abcdef"),
        ("ConvolutionForwardBias", {"b": "nullptr", "y": "0x7f0020", "x": "0"}, "y 7f0020"),
        ("RunSolution", {"solution": "0x5", "nInputs": 3, "tensors": CONV_TENSORS, "workspace": "0x7f40"},
         "workspace 7f40 ConvX 7f10 ConvW 7f20 ConvY 7f30"),
    ],
)  # fmt: skip
def test_addresses_of_any_length(api: str, params: dict[str, Any], tensors: str) -> None:
    """Null is none."""
    shapes = {"alpha": "0x7ffc00000010", "bDesc": "1, 4, 1, 1", "yDesc": "1, 4, 8, 8"}
    (one,) = ops_of(entry(api, **(shapes if "Bias" in api else {}), **params))
    assert " ".join(f"{name} {address:x}" for name, address in one.tensors) == tensors
