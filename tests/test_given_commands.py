"""Commands as people give them: behind a prompt, between marks, with the driver's own line after them."""

from __future__ import annotations

import pytest

from mio2trace.model.miopen import Command, Message
from mio2trace.ops.command import parse
from tests.miopen_blocks import decoded

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


@pytest.mark.parametrize("line", ["./bin/MIOpenDriver conv --help", "we use MIOpenDriver conv for it", "MIOpenDriver"])
def test_what_runs_nothing_is_no_command(line: str) -> None:
    assert commands(line) == []


def test_the_drivers_own_line_after_a_command_is_the_same_run() -> None:
    given, own = f"$ ./bin/MIOpenDriver {COMMAND}", f"MIOpenDriver {COMMAND}"
    assert commands(given, own, given, own.replace("Driver ", "Driver: ")) == [COMMAND] * 2
    assert commands(given.replace("conv ", "conv   "), own) == [COMMAND.replace("conv ", "conv   ")]
    # a list of commands
    assert commands(given, given, own, "time: 1 ms", own) == [COMMAND] * 3
    assert commands(own, own) == [COMMAND] * 2
    assert commands(given, own.replace("-n 2", "-n 3")) == [COMMAND, COMMAND.replace("-n 2", "-n 3")]


def test_a_command_goes_on_behind_a_backslash() -> None:
    begin, _, end = COMMAND.partition(" -y")
    end = f"-y{end}"
    assert commands(f"./bin/MIOpenDriver {begin} \\", f"{end} \\", "-t 1", f"MIOpenDriver {COMMAND} -t 1") == [
        f"{COMMAND} -t 1"
    ]
    assert commands(f"> ./bin/MIOpenDriver {begin} \\", f"> {end}") == [COMMAND]


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
        "2026-01-01 10:00:00.1: F x.cc:2659] Check failed: status == miopenStatusSuccess (7 vs. 0)No algorithm",
    ],
)  # fmt: skip
def test_what_failed_is_an_error(line: str) -> None:
    (record,) = decoded([f"{line}\n".encode()]).records
    assert isinstance(record, Message)
    assert record.level == "Error"


@pytest.mark.parametrize("line", ["tests/test_x.py::test_y FAILED", "x FAILED: y", "Forwarded: FAILED"])
def test_a_failed_test_of_others_is_not_the_drivers(line: str) -> None:
    assert decoded([f"{line}\n".encode()]).records == ()


def test_a_norms_shape_is_one_option() -> None:
    problem = parse("layernormfp16 -X 4x8x2x16 -o 1 -t 1")
    assert problem is not None
    assert (problem.input, problem.dtype) == ((4, 8, 2, 16), "half")
    given = parse("t5layernorm --input 4x8x16,NCHW -F 2")
    assert given is not None
    assert (given.input, given.direction) == ((4, 8, 16), "backward-data")
