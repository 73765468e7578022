"""Commands of MIOpen's log that a terminal wrapped."""

from __future__ import annotations

import pytest

from benchmarks.damage import measured
from benchmarks.damages.sets import TWIN
from mio2trace.model.miopen import Command
from tests.conftest import shared_folder
from tests.miopen_blocks import decoded

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
    "line", ["-n 4 of 5 are done", "Iteration 5", "- a list", "1.5 2.5", "-n 64", "-g 1 -F 2", "-z 1 -z 2"]
)
def test_what_is_no_options_or_repeats_one_is_another_programs(line: str) -> None:
    """Only a line of options that the command does not have yet goes on with it."""
    assert commands(HEAD + COMMAND, line) == [COMMAND]


def test_only_the_line_right_behind_a_command_goes_on_with_it() -> None:
    """What comes later is another program's."""
    assert commands(HEAD + COMMAND, "-g 1") == [COMMAND + " -g 1"]
    assert commands(HEAD + COMMAND, "I am another line", "-g 1") == [COMMAND]


@pytest.mark.shared
def test_a_log_of_wrapped_commands_tells_as_much_as_before() -> None:
    """Directions stand at the end of commands."""
    case = ("long lines wrapped", "twin-lenet-cmdonly-kernel-trace-run.hip-rocpd", TWIN, 0)
    operations = measured(shared_folder(), case).operations
    assert operations.right == operations.kernels > 0
