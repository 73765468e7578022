"""Help: by task, options that few people need apart, lines that fit; words that are no command; names in SQL."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mio2trace.cli import TASKS, cli
from mio2trace.commands.options import RARE
from mio2trace.notes import InputError
from mio2trace.queries import engines
from mio2trace.trace import Slice

CONTEXT = click.Context(cli, info_name="mio2trace")
COMMANDS = {name: command for name in cli.list_commands(CONTEXT) if (command := cli.get_command(CONTEXT, name))}


def run(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    with contextlib.chdir(folder or "."):
        done = CliRunner().invoke(cli, arguments, prog_name="mio2trace", terminal_width=78)
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def test_help_begins_with_pytorch_and_groups_by_task() -> None:
    said = run().stdout
    head = said.splitlines()[:10]
    assert any("PyTorch profiler (Kineto)" in line for line in head)
    assert any("rocprofv3 / rocpd" in line for line in head)
    assert said.index("trace.json.gz ") < said.index("run_results.db ") < said.index("messages run.log ")
    tasks = [line.removesuffix(":") for line in said.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert tasks == ["Options", *(task for task, _ in TASKS), "Other"]
    assert max(map(len, said.splitlines())) <= 78


@pytest.mark.parametrize("name", COMMANDS)
def test_options_that_few_people_need_are_shown_by_help_all_alone(name: str) -> None:
    command = COMMANDS[name]
    rare = [one for one in command.params if isinstance(one, click.Option) and one.name in RARE]
    common = [one for one in command.params if isinstance(one, click.Option) and one.name not in RARE]
    short, whole = run(name, "--help"), run(name, "--help-all")
    assert short.returncode == 0
    assert ("--help-all" in short.stdout) is bool(rare) or name in ("compare", "doctor", "ranks")
    for option in rare:
        assert f"{option.opts[-1]} " not in short.stdout.partition("Options:")[2]
        assert option.opts[-1] in whole.stdout
    if name not in ("compare", "doctor", "ranks"):
        assert all(option.opts[-1] in short.stdout for option in common)


def test_most_commands_have_rare_options() -> None:
    assert sum(any(one.name in RARE for one in command.params) for command in COMMANDS.values()) > 10


@pytest.mark.parametrize(
    ("word", "said"),
    [("kernel", "did you mean 'kernels'?"), ("lay", "did you mean 'layers'?"), ("xyzzy", "no command 'xyzzy'")],
)
def test_a_word_that_is_no_command_is_named_with_the_nearest(word: str, said: str, tmp_path: Path) -> None:
    done = run(word, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_file_without_a_suffix_is_no_mistyped_command(tmp_path: Path) -> None:
    (tmp_path / "kernel").write_text("nothing that is known\n")
    done = run("kernel", folder=tmp_path)
    assert done.returncode == 1
    assert "did you mean" not in done.stderr


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select nam from slice", "columns of slice: id, track_id, ts, dur"),
        ("select name from slices", "tables: slice, commands, kernels, layers"),
        ("select layr from kernels", "columns of kernels: id, track_id"),
    ],
)
def test_an_sql_error_lists_the_names_that_there_are(sql: str, said: str) -> None:
    one = Slice(1, 0, 1, "k", "kernel", {})
    with pytest.raises(InputError, match=said):
        engines.answer_in_sqlite([one], sql)
