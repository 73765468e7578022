"""Commands as people give them: behind a prompt, between marks, with the driver's own line after them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from mio2trace.cli import cli
from mio2trace.model.miopen import Command, Message
from mio2trace.ops.command import parse
from mio2trace.ops.families.normalisation import BnormProblem
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


GIVEN, OWN, WIDE = f"$ ./bin/MIOpenDriver {COMMAND}", f"MIOpenDriver {COMMAND}", COMMAND.replace("conv ", "conv   ")
BEGIN, END = COMMAND.split(" -y")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        # the driver's own line after a command is the same run
        ([GIVEN, OWN, GIVEN, OWN.replace("Driver ", "Driver: ")], [COMMAND] * 2),
        ([GIVEN.replace(COMMAND, WIDE), OWN], [WIDE]),
        # a list of commands
        ([GIVEN, GIVEN, OWN, "time: 1 ms", OWN], [COMMAND] * 3),
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
    [
        ("layernormfp16 -X 4x8x2x16 -o 1 -t 1", {"input": (4, 8, 2, 16), "dtype": "half"}),
        ("t5layernorm --input 4x8x16,NCHW -F 2", {"input": (4, 8, 16), "direction": "backward-data"}),
        ("groupnorm --batchsize 2 -c 8 --in_d 3 -H 4 -W 5 -g 4", {"input": (2, 8, 3, 4, 5)}),
    ],
)
def test_a_norms_shape_is_one_option(text: str, expected: dict[str, object]) -> None:
    problem = parse(text)
    assert {name: getattr(problem, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [  # of each: running, saved, training, direction
        ("-s 1 -F 1", (False, True, True, "forward")),
        ("-r 1 -F 1", (True, False, True, "forward")),
        ("-r 1", (None, None, None, None)),
        ("-m 1 --forw 0 -b 1 -r 1", (None, True, False, "backward-data")),  # the text of a log
        ("-F 0 -b 1 -r 1", (True, False, False, "backward-data")),
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
    log = tmp_path / "a.log"
    log.write_text("".join(f"./bin/MIOpenDriver bnorm -n {n} -c 3 -H\n" for n in (2, 3, 3)))
    found = CliRunner().invoke(cli, ["messages", str(log)]).stdout
    assert [line.split(",")[2] for line in found.splitlines()[1:]] == ["1", "2"]
