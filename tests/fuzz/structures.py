"""Files of every format that a reader knows, well formed and with everything in them that the formats allow.

Each generator takes a `random.Random`. Hypothesis has one, too (``st.randoms(use_true_random=False)``), whose choices
it shrinks: the same generators serve a search with a seed and a property test.
"""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.fuzz import kineto, rocm, side_files, tensorflow
from tests.small_runs import SECOND, Program, as_json, as_text

Chance = random.Random


class Case(NamedTuple):
    """The files of a run. ``enqueues``: kernels, reads and writes that stand in them, each in one file only."""

    kind: str
    files: list[bytes]
    enqueues: int


NAMES = (
    "im2col_float", "Xgemm", "XgemmDirectTN", "conv1", "ip1", "a", "", "x" * 300, "naïve_核", "k\0x", 'q"\\uote',
    "<b>&amp;", "void k<float, 3>(float const*, int)", "../../etc", "/home/somebody/k.cl", "tab\tname", "  ",
    "\x1b[31mred", "NaN", "null", "\ud7ff\ue000", "conv2/3x3_reduce", "-1", "0x7ffc12345678", "}, {",
    "[dv/dt] clSetKernelArg", "miopenConvolutionForward",
)  # fmt: skip
LAYERS = ("data", "conv1", "conv1/relu", "pool1", "norm1", "ip1", "loss", "a b", "ip-2.x", "(x)", "forward:", "0", "é")


def number(chance: Chance) -> int:
    """Sizes: mostly small ones, sometimes at the edges of the types that hold them."""
    if chance.random() < 0.9:
        return chance.choice((0, 1, 2, 3, 7, 8, 64, 227, 4096))
    return chance.choice((1 << 31, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, 1 << 62, 10**12))


def calls(chance: Chance) -> list[dict[str, Any]]:
    """A program's calls: kernels, copies, several queues, marks, rebuilt programs, recycled handles."""
    run = Program()
    run.us = chance.choice((100, 100, 86_399_999_000, 0))
    handles = [f"0x{60 + number:x}" for number in range(chance.randint(1, 5))]
    names: dict[str, str] = {}
    for _ in range(chance.randint(0, 40)):
        pick = chance.randrange(14)
        if pick == 0:
            run.program(chance.choice(SOURCES), options=chance.choice(("", "-DX=1", "-I/home/somebody/cl")))
        elif pick == 1:
            handle = chance.choice(handles)
            names[handle] = chance.choice(NAMES)
            run.kernel(names[handle], handle)
        elif pick in (2, 3, 4):
            value = chance.choice(("00000000", "2c010000", "5000000000000000", "", "zz", "01"))
            run.argument(
                chance.choice(handles), chance.choice((0, 1, 2, 3, 40, 100_000)), value, chance.choice((0, 0, 0, -50))
            )
        elif pick in (5, 6, 7, 8):
            handle = chance.choice(handles)
            call = run.enqueue(names.get(handle, chance.choice(NAMES)), handle, chance.choice((1, 50, 1000)))
            _vary_enqueue(call, chance)
        elif pick == 9:
            _vary_enqueue(
                run.copy(chance.choice(("clEnqueueReadBuffer", "clEnqueueWriteBuffer")), number(chance)), chance
            )
        elif pick == 10:
            run.buffer(number(chance), chance.choice(("0x50", "0x51", "0", "")), chance.choice((0, 0, -61)))
        elif pick == 11:
            run.mark()
        elif pick == 12:
            run.event("clCreateCommandQueue", context="0x10", device=chance.choice(("0x20", "0x21")), properties=0,
                      errcode_ret="0", queue=chance.choice(("0x30", "0x31")))  # fmt: skip
        else:
            run.us += chance.choice((0, 10, 1_000_000, -500))
    if chance.random() < 0.1:
        _crowd_times(run.calls, chance)
    return run.calls


SOURCES = (
    "__kernel void k() {}\n",
    "",
    '// "quoted", }, {"call": "clX"}\n[dv/dt] clSetKernelArg\n',
    "é\n" * 50,
    "a\r\nb",
)


def _vary_enqueue(call: dict[str, Any], chance: Chance) -> None:
    if chance.random() < 0.7:
        return
    call["queue"] = chance.choice(("0x30", "0x31", "", "0"))
    times = call["profiling"]
    pick = chance.randrange(8)
    if pick == 0:
        del call["profiling"]
    elif pick == 1:
        times["end"] = times["start"]
    elif pick == 2:
        times["start"], times["end"] = times["end"], times["start"]
    elif pick == 3:
        for key in times:
            times[key] += chance.choice((1000, -(10**9), 10**15))
    elif pick == 4:
        call["errcode"] = -54
    elif pick == 5 and "gws" in call:
        call["gws"] = chance.choice(([], [1], [1, 2, 3, 4], [0, 0, 0], [number(chance)] * 3))
    elif pick == 6:
        call["timestamp"] = chance.choice(({"start": "", "end": ""}, {"start": "1970-01-01T00:00:00", "end": "x"}))
    else:
        call[chance.choice(("errcode", "kernel", "name"))] = chance.choice((None, "", 0, [], "x"))


def _crowd_times(found: list[dict[str, Any]], chance: Chance) -> None:
    """Device times that coincide, overlap and run backwards, near zero or at the end of what 64 bits hold."""
    base = chance.choice((0, 0, -3, 7_000_000_000, 1 << 62, (1 << 63) - 5, 1 << 63))
    step = chance.choice((1, 1, 1000, 10**9))
    for call in found:
        times = call.get("profiling")
        if times and chance.random() < 0.8:
            for key in times:
                times[key] = base + step * chance.randint(-3, 6)


def enqueues(found: list[dict[str, Any]]) -> int:
    return sum(str(call["call"]).startswith("clEnqueue") for call in found)


def profile_json(found: list[dict[str, Any]], chance: Chance) -> bytes:
    data = as_json(found, indent=chance.choice(("\t", None, 1, " ")))
    return chance.choice((b"", b" ", b"\r\n\t")) + data + chance.choice((b"", b"\n", b" \n\n"))


def caffe_log(chance: Chance) -> list[str]:
    """What ``caffe time`` prints, with old and new stamps, over midnight and the year's end."""
    at = chance.choice((SECOND + datetime.timedelta(hours=1), datetime.datetime(2019, 12, 31, 23, 59, 59, 900_000)))
    style = chance.choice(("%m%d %H:%M:%S.%f", "%Y%m%d %H:%M:%S.%f"))
    layers = [chance.choice(LAYERS) for _ in range(chance.randint(0, 8))]
    out: list[str] = []

    def say(text: str) -> None:
        nonlocal at
        at += datetime.timedelta(microseconds=chance.choice((0, 10, 900, 20_000)))
        out.append(f"{chance.choice('IIIIWE')}{at.strftime(style)} {chance.choice((1, 2155))} caffe.cpp:465] {text}")

    def time() -> str:
        return chance.choice(("0", "0.12", "30.968", "1.2e-05", "1e+06", "-1", "nan", "1e300"))

    for layer in layers:
        say(f"Setting up {layer}")
        say(f"Top shape: {chance.choice(('1 96 55 55 (290400)', '(1)', '', '-1 0 (0)', '9' * 30))}")
    unit = chance.choice(("ms.", "milli seconds.", "seconds."))
    for line in ("Performing Forward", "Initial loss: 0", "*** Benchmark begins ***", "Testing for 3 iterations."):
        if chance.random() < 0.9:
            say(line)
    for layer in layers if chance.random() < 0.3 else ():
        say(f"    [Forward] Layer {layer}, top blob {layer} data: 0.1")
    for iteration in range(chance.choice((0, 1, 1, 3))):
        say(f"Iteration: {iteration + 1} forward-backward time: {time()} {unit}")
    say("Average time per layer: ")
    for layer in layers:
        for direction in ("forward", "backward"):
            if chance.random() < 0.95:
                say(f"{layer:>10}\t{direction}: {time()} {unit}")
    for line in (f"Average Forward pass: {time()} ms.", f"Total Time: {time()} ms.", "*** Benchmark ends ***"):
        say(line)
    return [line + "\n" for line in out]


_CONV = "conv -n {n} -c 3 -H {h} -W 8 -k 4 -y 3 -x 3 -p {p} -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F {f} -t 1"
_COMMANDS = (
    _CONV, "pool -n {n} -c 3 -H {h} -W 8 -y 3 -x 3 -p 0 -q 0 -v 2 -u 2 -m max -F {f} -t 1",
    "bnorm -n {n} -c 3 -H {h} -W 8 -m 1 -F {f}",
    "activ -n {n} -c 3 -H {h} -W 8 -m 3 -A 1 -B 0 -G 1 -F {f}", "softmax -n {n} -c {h}",
    "rnn -n 4,4 -W 8 -H {h} -l 1", "conv", "x -n {n}",
    "convfp16 --input {n}x3x{h}x8 --filter 4x3x3x3 -F {f}", "lrn -n {n} -c 3 -H {h} -W 8",
    "CBAInfer -n {n} -c 3 -H {h} -W 8 -k 4 -y 3 -x 3",
)  # fmt: skip
_APIS = (
    "ConvolutionForward", "FindConvolutionForwardAlgorithm", "ConvolutionBackwardData", "PoolingForward", "OpTensor",
    "BatchNormalizationForwardTraining", "ActivationForward", "SoftmaxForward", "CreateTensorDescriptor", "RunSolution",
    "Set4dTensorDescriptor", "RNNForwardInference", "SetTensor", "LRNForward", "Unheard_of", "ExecuteFusionPlan",
)  # fmt: skip
_LEVELS = (
    "Info [FindConvFwdAlgorithm] FW Chosen Algorithm: ConvDirectNaiveConvFwd , {n}, 0.{h}",
    "Info2 [GetInvoker] Returning an invoker for problem 3-8-8-3x3-4-6-6-{n}-0x0-1x1-1x1-1-NCHW-FP32-F and solver {h}",
    "Info [run] kernel_name = k, global_work_dim = {{ {n}, {h}, 1 }}, local_work_dim = {{ 8, 1, 1 }}",
    "Warning [ParseAndLoadDb] File is unreadable: /home/somebody/.config/miopen/x.udb.txt",
    "Info2 [CallGemm] gemm_desc: {{isColMajor 0, transA 0, transB 0, m {n}, n {h}, k 3, lda 3}}",
    "Error [Compile] '{h}' at /opt/rocm/x.cpp:{n}: 0x7ffd12345678",
    "Trace [x] {{{n}", "Info [", "",
)  # fmt: skip


def miopen_log(chance: Chance) -> list[str]:
    """Entries in the layouts of all versions, commands, level lines."""
    style = chance.choice(("2.0", "1.2", "1.0"))
    prefix = chance.choice(
        ("MIOpen(HIP): ", "MIOpen: ", "MIOpen(OpenCL): ", "12 MIOpen(HIP)   0.559: ", "PRNT 3 MIOpen(HIP): ")
    )
    out: list[str] = []
    for _ in range(chance.randint(0, 12)):
        values = {
            "n": number(chance),
            "h": number(chance),
            "p": chance.choice((0, 1, -1)),
            "f": chance.choice((0, 1, 2, 4)),
        }
        pick = chance.randrange(3)
        if pick == 0:
            out.append(f"{prefix}{chance.choice(('Command ', ''))}[{chance.choice(('LogCmdConvolution', 'x', ''))}] "
                       f"./bin/MIOpenDriver {chance.choice(_COMMANDS).format(**values)}")  # fmt: skip
        elif pick == 1:
            out.append(prefix + chance.choice(_LEVELS).format(**values))
        else:
            head, body = "" if style == "1.0" else prefix, f"{prefix}\t" if style == "2.0" else ""
            out.append(f"{head}miopenStatus_t miopen{chance.choice(_APIS)}(miopenHandle_t, const void *){{")
            for name in chance.sample(tuple(_PARAMETERS), chance.randint(0, len(_PARAMETERS))):
                out.append(f"{body}{name} = {chance.choice(_PARAMETERS[name]).format(**values)}")
            out.append(f"{prefix if style == '2.0' else ''}}}")
    return [line + "\n" for line in out]


_PARAMETERS = {
    "handle": ("stream: 0, device_id: 0", "0x1"), "alpha": ("0x7ffd8b2cdd84", "nullptr", "1"),
    "x": ("0x7f8e22e5b410", "0"),
    "xDesc": ("{{{n}, 3, {h}, 8}}, {{192, 64, 8, 1}}, packed, ", "", "{n}", "{{{n}}}", "{n}, 3, {h}, 8"),
    "wDesc": ("4, 3, 3, 3", "0x5", "-1, 0"),
    "convDesc": ("conv2d, miopenConvolution, miopenPaddingDefault, {{0, {p}}}, {{1, 1}}, {{1, 1}}, ", "0x1"),
    "yDesc": ("{n}, 4, 6, 6, ", "4"), "poolDesc": ("{p}, {n}, 3", ""), "algo": ("{n}",), "workSpaceSize": ("{n}", "x"),
    "solutionCount": ("{n}",), "mode": ("{f}",), "dataType": ("1", "9"), "n": ("{n}",),
    "c": ("3",), "h": ("{h}",), "w": ("8",),
}  # fmt: skip


def layer_info(chance: Chance) -> list[dict[str, Any]]:
    return [
        {
            "direction": chance.choice(("forward", "backward", "sideways")),
            "index": chance.choice((position, position, position, number(chance), -1)),
            "label": chance.choice((f"{position:02}: {chance.choice(LAYERS)}", chance.choice(NAMES))),
            "time_ms": chance.choice((0.12, 30, 0, -1, 1e300, "1")),
            "timestamp": chance.choice(("1103 15:39:29.318205", "0101 00:00:00.000000", "", "x", "1301 25:61:61.9")),
        }
        for position in range(chance.randint(0, 9))
    ]


def ck_record(chance: Chance) -> tuple[object, int]:
    """A record in one of its forms, and the enqueues of the repetition that is taken."""
    form = chance.randrange(3)
    if form == 0:
        return layer_info(chance), 0
    found = calls(chance)
    run: dict[str, Any] = {
        "per_layer_info": layer_info(chance),
        "dvdt_prof": found,
        "time_fw_ms": chance.choice((6.5, "x", None)),
    }
    if form == 1:
        return run, enqueues(found)
    run["run_success"] = "yes"
    other: list[dict[str, Any]] = [{"run": {}}, {"run": {"run_success": "no", "per_layer_info": []}}]
    features = {"platform": {"gpu": {"name": chance.choice(("Mali-T860\0", "", 3, None))}}}
    return {"features": features, "characteristics_list": [*other[: chance.randrange(3)], {"run": run}]}, enqueues(
        found
    )


# ---- whole runs


def _profile(chance: Chance) -> Case:
    found = calls(chance)
    return Case("dv/dt JSON", [profile_json(found, chance)], enqueues(found))


def _log_and_profile(chance: Chance) -> Case:
    found = calls(chance)
    log = "".join((*caffe_log(chance), *(miopen_log(chance) if chance.random() < 0.5 else ())))
    files = [log.encode(), profile_json(found, chance)]
    chance.shuffle(files)
    return Case("log and dv/dt JSON", files, enqueues(found))


def _text_blocks(chance: Chance) -> Case:
    """Blocks among log lines. A name or a source that breaks the lines of the form is not of the form."""
    found = [call for call in calls(chance) if not any(_breaks_lines(value) for value in call.values())]
    for call in found:
        for key in ("queue", "kernel", "name"):
            if call.get(key, "x") in ("", None, [], "  "):
                call[key] = "0x30"
    blocks = [block.encode() + b"\n\n" for block in as_text(found).decode().split("\n\n") if block]
    lines = [line.encode() for line in (*caffe_log(chance), *miopen_log(chance), "another program\n")]
    out: list[bytes] = []
    while blocks or lines:
        out.append((blocks if blocks and (not lines or chance.random() < 0.6) else lines).pop(0))
    return Case("log with dv/dt text", [b"".join(out)], enqueues(found))


def _breaks_lines(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_breaks_lines, value.values()))
    return isinstance(value, str) and (
        any(ord(char) < 32 for char in value.strip()) or "[dv/dt]" in value or "\n\n" in value
    )


def _array_in_log(chance: Chance) -> Case:
    found = calls(chance)
    log = [line.encode() for line in (*caffe_log(chance), *miopen_log(chance))]
    at = chance.randint(0, len(log))
    data = profile_json(found, chance)
    array = [b"[dv/dt] <<\n", data, chance.choice((b"\n", b"")), b"[dv/dt] >>\n"]
    if b"[dv/dt] >>" in data:
        return Case("log with a dv/dt array", [data], enqueues(found))
    return Case("log with a dv/dt array", [b"".join((*log[:at], *array, *log[at:]))], enqueues(found))


def _log(kind: str, lines: Callable[[Chance], list[str]]) -> Callable[[Chance], Case]:
    return lambda chance: Case(kind, ["".join(lines(chance)).encode("utf-8", "replace")], 0)


def _ck(chance: Chance) -> Case:
    record, count = ck_record(chance)
    return Case("CK record", [json.dumps(record, indent=chance.choice((None, 4))).encode()], count)


def _with_side_lines(chance: Chance) -> list[str]:
    """MIOpen's log with records of its databases and calls of GEMM libraries between its lines."""
    lines = [*miopen_log(chance), *side_files.database_lines(chance), *side_files.blas_lines(chance)]
    if chance.random() < 0.5:
        chance.shuffle(lines)
    return lines


KINDS: dict[str, Callable[[Chance], Case]] = {
    "rocm": lambda chance: Case("ROCm", *rocm.files(chance, NAMES)[1:]),
    "kineto": lambda chance: Case("Kineto", *kineto.files(chance, NAMES)),
    "tensorflow": lambda chance: Case("TensorFlow", tensorflow.files(chance, NAMES), 0),
    "ck": _ck,
    "side": lambda chance: Case("XSpace and side files", *side_files.files(chance, NAMES)),
    "side-log": _log("log with records of libraries", _with_side_lines),
}
"""Of `benchmarks/fuzz.py --kinds`."""
GENERATORS: tuple[Callable[[Chance], Case], ...] = (
    _profile, _log_and_profile, _text_blocks, _array_in_log, _log("MIOpen log", miopen_log),
    _log("Caffe log", caffe_log), _ck, KINDS["tensorflow"], KINDS["rocm"], KINDS["kineto"], KINDS["side"],
    KINDS["side-log"],
)  # fmt: skip
