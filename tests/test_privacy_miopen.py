"""Nothing private of MIOpen's log reaches a trace of its operations: canaries in a real run's log."""

from __future__ import annotations

import functools
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mio2trace.cli import cli
from mio2trace.conversion import HostCalls, convert
from mio2trace.writers import WRITERS

from tests.canaries import CANARIES, leaks

RUN = Path(__file__).resolve().parent.parent / "traces" / "alexnet-b1-miopen29"
LOG = gzip.decompress((RUN / "run.log.gz").read_bytes()).decode()
PREFIX = "MIOpen(OpenCL): "
COMMAND = "./bin/MIOpenDriver conv -n 1 -c 3 -H 99 -W 99 -k 16 -y 11 -x 11 -p 0 -q 0 -u 4 -v 4 -m conv -g 1 -F 1 -t 1"


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
            if not canary.isidentifier():  # a name that says nothing by its form is a function's
                out += [f"{PREFIX}miopenStatus_t {canary}(miopenHandle_t){{", PREFIX + "}"]
        elif (" = " in line and number % 3 == 0) or ("] " in line and line.startswith("I") and number % 2):
            line += f" {canary}"
        out.append(line)
    return "\n".join(out) + "\n"


PLANTED: dict[str, Callable[[str], str]] = {"messages": messages, "parameters": parameters, "headers": headers}


def named(args: Any) -> list[str]:
    """All texts in a slice's arguments."""
    if isinstance(args, dict):
        return [text for key, value in args.items() for text in (key, *named(value))]
    return [text for value in args for text in named(value)] if isinstance(args, list) else [str(args)]


@pytest.mark.parametrize("what", CANARIES)
@pytest.mark.parametrize("where", PLANTED)
def test_no_canary_of_miopen_reaches_a_trace(tmp_path: Path, where: str, what: str) -> None:
    """In every form, with the host's calls and without."""
    path = tmp_path / "run.log"
    path.write_text(PLANTED[where](CANARIES[what]))
    assert leaks(path.read_bytes())
    calls: tuple[HostCalls, ...] = ("all", "none") if what == "a home folder" else ("all",)
    for host_calls in calls:
        out, summary = io.BytesIO(), tmp_path / "summary"
        result = convert(
            path, RUN / "prof.json.gz", output=out, summary_file=summary, check=True, host_calls=host_calls,
            by_order_alone=True,
        )  # fmt: skip
        found = json.loads(out.getvalue())["traceEvents"]
        drawn = [event for event in found if event.get("cat") == "operation"]
        assert len(drawn) > of_the_run() // 2, "its operations are drawn"
        assert {"api", "primitive"} <= {text for event in drawn for text in named(event["args"])}
        if where != "headers":
            assert any("command" in event["args"] for event in drawn)
        if where == "messages":
            assert any(
                event["name"].startswith(("Warning: ", "Error: ")) for event in found if event.get("cat") == "log"
            )
        assert not leaks(out.getvalue())
        assert not leaks(summary.read_bytes())
        assert not leaks("\n".join(result.report))
        for writer in WRITERS:
            other = io.BytesIO()
            writer.write(result.trace, other)
            assert not leaks(other.getvalue()), writer.NAME


@functools.cache
def of_the_run() -> int:
    """Operations that are drawn without any canary."""
    out = io.BytesIO()
    convert(RUN / "run.log.gz", RUN / "prof.json.gz", output=out)
    drawn = [event for event in json.loads(out.getvalue())["traceEvents"] if event.get("cat") == "operation"]
    assert len(drawn) > 30
    return len(drawn)


TABLES = (
    ("ops", "--format", "json"),
    ("ops", "--format", "csv", "--group-by", "problem"),
    ("ops", "--coverage", "--format", "json"),
    ("driver",),
    ("driver", "--form", "log"),
    ("kernels", "--format", "json"),
)


SOME = ("a home folder", "a Windows path", "user and host", "the environment", "a key")


@pytest.mark.parametrize("options", TABLES, ids=" ".join)
@pytest.mark.parametrize("where", PLANTED)
def test_no_canary_of_miopen_reaches_a_table(tmp_path: Path, where: str, options: tuple[str, ...]) -> None:
    path = tmp_path / "run.log"
    for what in SOME:
        path.write_text(PLANTED[where](CANARIES[what]))
        files = [str(path), str(RUN / "prof.json.gz")] if options[0] in ("ops", "kernels") else [str(path)]
        if "--coverage" in options:
            del files[1:]
        result = CliRunner().invoke(cli, [*options, *files], catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
        assert len(result.stdout.splitlines()) > 1
        assert not leaks(result.stdout), what
        assert not leaks(result.stderr.replace(str(tmp_path), "")), what
