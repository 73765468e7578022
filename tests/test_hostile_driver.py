"""What `mio2trace driver` offers to a shell, of logs that try to run something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.hostile_driver import COMMANDS, ENTRIES, batches, judged, offered, run_by_shell
from mio2trace.ops.command import CutError, NotPlainError, driver_line, parse, refusal, split
from mio2trace.ops.families.conv import ConvProblem
from mio2trace.ops.families.elementwise import ActivProblem
from mio2trace.ops.problem import CommandError
from tests.commands import invoked
from tests.conftest import REQUIRED
from tests.test_ops import entry, ops_of

CONV = COMMANDS[0]


def command(text: str) -> str:
    return f"MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver {text}\n"


@pytest.mark.parametrize("options", [(), ("--form", "log")])
def test_a_shell_runs_nothing_but_the_driver(options: tuple[str, ...]) -> None:
    """Of hostile logs every line that is offered runs, and nothing else does."""
    for logs in batches(300 if "thorough" in REQUIRED else 100, seed=12):
        verdict = judged(logs, options)
        assert verdict.faults == ()
        assert verdict.recorded > 50
        assert verdict.refused > 10


def test_the_shell_test_sees_what_runs() -> None:
    """The judge itself finds a file, an unknown program and a line that does not run."""
    runs, faults = run_by_shell("./bin/MIOpenDriver conv -n 1; :>PWNED # 1 call\ntouch x\n")
    assert runs == [["conv", "-n", "1"]]
    assert any("PWNED" in fault for fault in faults)
    assert any("touch" in fault for fault in faults)


def activation(value: str = "1", lengths: str = "2, 6, 9, 8") -> str:
    return entry("ActivationForward", activDesc=f"miopenActivationRELU, {value}, 1, 1,", xDesc=lengths)


@pytest.mark.parametrize("value", [
    "1; touch X; :", "1;touch${IFS}X;x", "`touch X`", "$(touch X)", "1|touch X", "1 & touch X", "1>X", "²", "٣", "0x1",
    "9" * 4301, "", "1,", "'1'", '"1"', "\\1", "1#", "~", "*", "-", "--", "1e", "e1", "1e99999", "1_0", "\u202e1",
])  # fmt: skip
def test_an_entry_whose_value_is_none_has_no_command(value: str) -> None:
    """A descriptor's text reaches a command as a number or not at all."""
    out, err = offered(activation(value).encode())
    assert out == ""
    assert "no command for 1 x activ" in err


@pytest.mark.parametrize("value", ["1", "-1.5", "0.0001", "1e-05", "+2", ".5", "1.", "nan", "inf", "-inf"])
def test_a_number_of_an_entry_stands_in_its_command(value: str) -> None:
    assert f" -A {value} -B 1 -G 1" in offered(activation(value).encode())[0]


@pytest.mark.parametrize("text", [
    CONV.replace("-m conv", "-m conv;touch"), CONV.replace("-n 2", "-n 2;touch${IFS}X;x"),
    CONV.replace("-n 2", "-n ²"), CONV.replace("-n 2", "-n ٣"), CONV.replace("-n 2", "-n " + "9" * 4301),
    CONV.replace("-n 2", "-n -F"), CONV + " --exec 1", CONV + " -- 1", CONV + " 1", CONV + " -m $(x)", "`x` -n 1",
    CONV.replace("conv ", "conv;x "), CONV + " --in_layout ../../x", "sh -c x", CONV + " -t 1" * 2000,
])  # fmt: skip
def test_a_logged_command_that_is_not_plain_is_shown_and_counted(text: str) -> None:
    """It is no problem and no command; what the log has is on standard error, on one line."""
    assert refusal(text)
    assert parse(text, "LogCmdConvolution") is None
    out, err = offered(command(text).encode())
    assert out == ""
    assert "problem: logged command with unknown options or values: shown as text, not as a command" in err
    assert text[:40] in err
    assert len(max(err.splitlines(), key=len)) < 300


@pytest.mark.parametrize("added", [" > X", " 2>&1 | tee X", " # X", " ; touch X", " && touch X", " & X", " >> X"])
def test_what_a_shell_adds_is_not_in_a_command(added: str) -> None:
    """People paste commands with what they did with the output; only the driver and its options are offered."""
    assert offered(command(CONV + added).encode())[0] == offered(command(CONV).encode())[0] != ""


@pytest.mark.parametrize("text", COMMANDS)
def test_commands_as_the_library_prints_them_are_plain(text: str) -> None:
    assert refusal(text) == ""
    assert refusal(text.rpartition(" ")[0]) == ""


def test_a_cut_command_is_told_from_one_that_is_not_plain() -> None:
    assert not issubclass(NotPlainError, CutError)
    for text, error in (("conv -n 1 -c", CutError), ("conv -n 1 -c $(x)", NotPlainError)):
        with pytest.raises(error):
            split(text)


def test_an_entry_keeps_its_command_when_the_logged_one_is_not_plain() -> None:
    """The typed numbers of the entry are offered, the text beside them is not."""
    api, values = ENTRIES[0]
    log = entry(api, **values) + command(CONV + ";touch X")
    out, err = offered(log.encode())
    assert out.count("\n") == 1
    assert "touch" not in out
    assert "shown as text, not as a command" in err


@pytest.mark.parametrize("lengths", ["{2, " + "1" * 4301 + ", 9, 8}, ", "{2, ٣, 9, 8}, ", "{2, 6; x, 9, 8}, "])
def test_an_integer_beyond_the_librarys_makes_no_shape(lengths: str) -> None:
    """A number that is too long is none, rather than its first digits."""
    (operation,) = ops_of(activation(lengths=lengths))
    assert (operation.input, operation.command) == ((), None)


def test_what_no_family_should_say_is_refused_at_the_door() -> None:
    """Whatever a problem's own text is, a line for a shell is looked at word by word."""
    lines: dict[str, Any] = {"pads": (0, 0), "strides": (1, 1), "dilations": (1, 1), "layouts": ("$(x)", "", "")}
    x = (1, 1, 1, 1)
    for problem, said in (
        (ActivProblem(x=x, direction="forward", alpha="1 -A 1; x", beta="1", gamma="1"), "no plain driver command"),
        (ConvProblem(x=x, w=x, direction="forward", **lines), "in_layout"),
    ):
        with pytest.raises(CommandError, match=said):
            driver_line(problem)


@pytest.mark.parametrize("name", ["-o", "$(x).log", "a\nb.log", "\x1b[31mred.log", "; touch X", "--form", "\u202eabc"])
def test_a_file_of_any_name_is_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is a name, and comes out without what steers a terminal."""
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(command(CONV) + command(CONV + ";x"))
    done = invoked("driver", "--", name)
    assert done.stdout.startswith("./bin/MIOpenDriver conv ")
    assert all(line.isprintable() for line in done.stderr.splitlines())
    assert [path.name for path in tmp_path.iterdir()] == [name]
