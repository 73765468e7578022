"""The log of a real run with MIOpen, with a canary in messages, parameters or headers, and its profile."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

RUN = Path(__file__).resolve().parent.parent.parent / "traces" / "alexnet-b1-miopen29"
LOG = gzip.decompress((RUN / "run.log.gz").read_bytes()).decode()
PROFILE = (RUN / "prof.json.gz").read_bytes()
PREFIX = "MIOpen(OpenCL): "
COMMAND = "./bin/MIOpenDriver conv -n 1 -c 3 -H 99 -W 99 -k 16 -y 11 -x 11 -p 0 -q 0 -u 4 -v 4 -m conv -g 1 -F 1 -t 1"
_WORD_AT_END = re.compile(r"(?:^|\s)\w+$")


def messages(canary: str) -> str:
    """Every message, and warnings, errors, solvers, launches, GEMMs and commands of its own after each call's end."""
    told = [
        f"Warning [ParseAndLoadDb] File is unreadable: {canary}",
        f"Warning [{canary}] {canary}",
        f"Error [{canary}] {canary}",
        f"Fatal [x] {canary}",
        f"Info [EvaluateInvokers] Selected: {canary}: 0.5, workspce = 0",
        f"Info [FindConvFwdAlgorithm] FW Chosen Algorithm: {canary}, 0, 0.1",
        f"Info [GetInvoker] Returning an invoker for problem {canary} and solver {canary}",
        f"Info [GetInvoker] Returning an invoker for problem 3-99-99-11x11-16-23-23-1-0x0-4x4-1x1-0-NCHW-FP32-F and "
        f"solver {canary}",
        f"Info2 [SetAsFound1_0] Solver <{canary}> registered as find 1.0 best for {canary} in 3-99-99-11x11-16-23-23-1",
        f"Info [CompileForwardSolution] solver_id = {canary}, workspace = {canary}",
        f"Info [ConvolutionForwardImmediate] solver_id = {canary}, workspace = {canary}",
        f"Info [ConvolutionForward] algo = {canary}, workspace = {canary}",
        f"Info2 [run] kernel_name = {canary}, global_work_dim = {{ 1, 1, 1 }}, local_work_dim = {{ 1, 1, 1 }}",
        f"Info2 [CallGemm] gemm_desc: {{isColMajor 0, transA 0, m 16, n 529, k 363, a_type {canary}}}",
        f"Info [CallGemm] {canary}",
        f"Info2 [get_device_name] Raw device name: {canary}",
        f"Command [LogCmdConvolution] {COMMAND} {canary}",
        f"Command [LogCmdConvolution] {canary} {COMMAND}",
        f"Command [{canary}] {COMMAND} -i {canary}",
        f"Command [LogCmdConvolution] {COMMAND.replace('-m conv', f'-m {canary}')}",
        f"Command [LogCmdConvolution] {COMMAND.replace('conv', canary, 1)}",
    ]
    out = []
    for number, line in enumerate(LOG.splitlines()):
        level = line.startswith((PREFIX + "Info", PREFIX + "Warning"))
        out.append(f"{line} {canary}" if level and number % 2 else line)
        if line == PREFIX + "}":
            out += [f"{PREFIX}{told[number % len(told)]}", canary, f"MIOpen Error: {canary}"]
    return "\n".join(out) + "\n"


def parameters(canary: str) -> str:
    """Every parameter that is no number, and parameters of its own."""
    out = []
    for number, line in enumerate(LOG.splitlines()):
        name, equals, value = line.partition(" = ")
        plain = not equals or value.strip().isdigit() or value.startswith("0x")
        out.append(line if plain or number % 3 else f"{name} = {value}{canary}")
        if equals and number % 7 == 0:
            out.append(f"{PREFIX}\tname = {canary}")
    return "\n".join(out) + "\n"


def headers(canary: str) -> str:
    """Arguments of headers; every third parameter, numbers as well; the stamped lines of Caffe."""
    out = []
    for number, line in enumerate(LOG.splitlines()):
        if line.endswith("){") and number % 2:
            line = line.replace("){", f", {canary}){{")
            if not _WORD_AT_END.search(canary):  # a name that says nothing by its form is a function's
                out += [f"{PREFIX}miopenStatus_t {canary}(miopenHandle_t){{", PREFIX + "}"]
        elif (" = " in line and number % 3 == 0) or ("] " in line and line.startswith("I") and number % 2):
            line += f" {canary}"
        out.append(line)
    return "\n".join(out) + "\n"


FORMATS: dict[str, Callable[[str], list[bytes]]] = {
    "MIOpen messages": lambda canary: [messages(canary).encode(), PROFILE],
    "MIOpen parameters": lambda canary: [parameters(canary).encode(), PROFILE],
    "MIOpen headers": lambda canary: [headers(canary).encode(), PROFILE],
}
