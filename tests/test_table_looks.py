"""How tables and help look in a terminal: a snapshot of each table at three widths; selecting, sorting, writing."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from mio2trace import analysis, queries
from mio2trace.cli import TASKS, cli
from mio2trace.commands import RARE
from mio2trace.notes import InputError
from mio2trace.trace import Slice
from tests.conftest import ROOT, Golden

RUN = ROOT / "traces" / "alexnet-b1-miopen29"
FILES = (str(RUN / "run.log.gz"), str(RUN / "prof.json.gz"))
TRAIN = tuple(str(path) for path in sorted((ROOT / "traces" / "alexnet-b1-train").glob("[pr][ru][on]*")))
TABLES = {
    "layers": ("layers", *FILES),
    "layers-each": ("layers", "--each", *FILES),
    "layers-log": ("layers", FILES[0]),
    "layers-times": ("layers", "--times", FILES[0]),
    "kernels": ("kernels", *FILES),
    "kernels-raw": ("kernels", "--raw", *FILES),
    "kernels-name": ("kernels", "--by", "name", *FILES),
    "kernels-layer": ("kernels", "--by", "layer", *FILES),
    "kernels-repetition": ("kernels", "--by", "repetition", "--per", "29", *FILES),
    "ops": ("ops", *FILES),
    "ops-problem": ("ops", "--group-by", "problem", *FILES),
    "ops-each": ("ops", "--each", *FILES),
    "ops-find": ("ops", "--phase", "find", *FILES),
    "ops-log": ("ops", FILES[0]),
    "ops-coverage": ("ops", "--coverage", FILES[0]),
    "query-layers": ("query", *FILES, "slowest layers"),
    "query-operations": ("query", *FILES, "slowest operations"),
    "query-kernels": ("query", *FILES, "slowest kernels"),
    "messages": ("messages", FILES[0]),
    "train-layers": ("layers", *TRAIN),
    "train-kernels-gemm": ("kernels", "--gemm", *TRAIN),
    "train-kernels-bucket": ("kernels", "--by", "bucket", *TRAIN),
}
SHOWN = 8
"""Rows of each snapshot."""


def run(*args: str, width: int | None = None) -> Result:
    done = CliRunner(env={"COLUMNS": "" if width is None else str(width)}).invoke(cli, args, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done


analysed = functools.cache(analysis.analyse)


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are analysed once for tables of all widths."""
    monkeypatch.setattr(analysis, "analyse", lambda files, options, notes=None: analysed(tuple(files), options))


@pytest.mark.parametrize("width", [80, *(pytest.param(width, marks=pytest.mark.thorough) for width in (120, 200))])
@pytest.mark.parametrize("name", TABLES)
def test_no_line_is_longer_than_the_terminal(name: str, width: int, golden: Golden, once: None) -> None:
    """Of the whole table; its first rows look as they did."""
    whole = run(*TABLES[name], "--format", "table", width=width).stdout
    assert max(map(len, whole.splitlines())) <= width
    first = run(*TABLES[name], "--format", "table", "--top", str(SHOWN), width=width).stdout
    assert max(map(len, first.splitlines())) <= width
    golden(ROOT / "tests" / "looks" / f"{name}.{width}.txt", first.encode())


@pytest.mark.parametrize("width", [80, 120])
def test_a_comparison_keeps_its_verdict(width: int) -> None:
    """Where other columns go; the answer's own is before the table."""
    sides = ",".join(FILES), ",".join(FILES)
    lines = run("compare", *sides, "--all", "--sort", "name", "--format", "table", width=width).stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("NO CHANGE SHOWN: +0.0 %")
    heads = next(line for line in lines[1:] if "verdict" in line).split()
    assert {"ratio", "verdict"} <= set(heads)


@pytest.mark.parametrize(("name", "width"), [("layers", 1), ("kernels", 10), ("ops", 40)])
def test_a_terminal_that_is_too_narrow_gets_what_fits(name: str, width: int) -> None:
    """At least three characters of one column."""
    lines = run(*TABLES[name], "--format", "table", width=width).stdout.splitlines()
    assert max(map(len, lines)) <= max(width, 3)


def test_what_rows_are_grouped_by_stays() -> None:
    """However little a column would be missed else."""
    lines = run("ops", "--group-by", "primitive,direction", *FILES, "--format", "table", width=60).stdout.splitlines()
    assert lines[0].split()[:3] == ["primitive", "direction", "kernel_ms"]
    assert lines[-1].startswith("total")


def cells(*args: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(run(*args, "--format", "csv").stdout)))


def test_rows_that_meet_conditions() -> None:
    """Numbers in any unit of time, texts whole or in part; all conditions hold; why there is none is said."""
    whole = cells("layers", *FILES)
    pools = ("pool1", "pool2", "pool5")
    for conditions, wanted in (
        (["kernel_ms>1"], [row for row in whole if float(row["kernel_ns"] or 0) > 1_000_000]),
        (["layer=conv2"], [row for row in whole if row["layer"] == "conv2"]),
        (["layer!=conv2"], [row for row in whole if row["layer"] != "conv2"]),
        (["kernel_us<1000", "layer~pool", "kernels>=1"], [row for row in whole if row["layer"] in pools]),
    ):
        options = [word for condition in conditions for word in ("--where", condition)]
        assert [row["layer"] for row in cells("layers", *FILES, *options)] == [row["layer"] for row in wanted] != []
    done = run("layers", *FILES, "--where", "layer=nothing")
    assert "no row: none of" in done.stderr
    assert "has layer=nothing" in done.stderr
    done = run("kernels", "--gemm", *FILES, "--format", "csv")
    assert done.stdout.count("\n") == 1
    assert "no row: of no kernel the sizes of a GEMM are known" in done.stderr


def test_order_and_number_of_rows() -> None:
    """Most first, texts from a to z, or as said; cells that are not known last."""
    by_host = [float(row["host_ns"]) for row in cells("layers", *FILES, "--sort", "host", "--top", "5")]
    assert len(by_host) == 5
    assert by_host == sorted(by_host, reverse=True)
    names = [row["layer"] for row in cells("layers", *FILES, "--sort", "layer")]
    assert names == sorted(names)
    assert [row["layer"] for row in cells("layers", *FILES, "--sort", "layer:down")] == names[::-1]
    rates = [row["gflops"] for row in cells("layers", *FILES, "--sort", "gflops:up")]
    known = [float(rate) for rate in rates if rate]
    assert known == sorted(known)
    assert rates[len(known) :] == [""] * (len(rates) - len(known))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("layers", *FILES, "--where", "kernel"), "expected a column, one of"),
        (("layers", *FILES, "--where", "kernel>fast"), "'fast' is no number"),
        (("layers", *FILES, "--where", "kernal>1"), "did you mean kernel?"),
        (("layers", *FILES, "--sort", "layer:sideways"), "expected layer:up or layer:down"),
        (("layers", *FILES, "--columns", "nothing"), "no column 'nothing'; there are layer_index"),
    ],
)
def test_what_cannot_be_selected_is_one_line(words: tuple[str, ...], said: str) -> None:
    """With exit code 2."""
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_file_in_the_form_that_its_name_says(tmp_path: Path) -> None:
    """CSV, JSON, Markdown, text; never over an input."""
    for name, begins in (("a.csv", "layer_index,"), ("a.json", "["), ("a.md", "| layer"), ("a.txt", "layer")):
        run("layers", *FILES, "-o", str(tmp_path / name))
        assert (tmp_path / name).read_text().startswith(begins)
    assert run("layers", *FILES, "--format", "csv").stdout == (tmp_path / "a.csv").read_text()
    log = tmp_path / "run.log.gz"
    log.write_bytes(Path(FILES[0]).read_bytes())
    done = CliRunner().invoke(cli, ["layers", str(log), "-o", str(log)])
    assert (done.exit_code, "is also an input" in done.stderr) == (2, True)


def test_a_person_gets_milliseconds_and_a_total_a_program_neither() -> None:
    """The unit is in the names of both."""
    table = run("layers", *FILES, "--format", "table").stdout
    assert "kernel_ms" in table.splitlines()[0]
    assert table.splitlines()[-1].startswith("total")
    rows = json.loads(run("layers", *FILES, "--format", "json").stdout)
    assert all("kernel_ns" in row and row["layer"] != "total" for row in rows if row.get("kernels"))
    shares = [row["percent_of_kernel_time"] for row in rows if "percent_of_kernel_time" in row]
    assert sum(shares) == pytest.approx(100)
    assert rows[len(shares) - 1]["cumulative_percent"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("layers --sort kernel_m", "plain,kernel_median"),
        ("ops --group-by layer,prob", "plain,layer,problem"),
        ("query out.json slowest-l", "plain,slowest-layers"),
        ("lay", "plain,layers"),
        ("run.log pro", "file,pro"),
        ("kernels pro", "file,pro"),
    ],
)
def test_completion_of_columns_queries_commands_files(words: str, expected: str) -> None:
    """What the shell is told for the last word."""
    count = len(words.split())
    asked = {"COMP_WORDS": f"mio2trace {words}", "COMP_CWORD": str(count), "_MIO2TRACE_COMPLETE": "bash_complete"}
    code = "from mio2trace.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True)
    assert expected in done.stdout.splitlines()


def test_files_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    """By as much of their folders as that needs."""
    for folder in ("A", "B"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.log.gz").write_bytes(Path(FILES[0]).read_bytes())
    logs = [str(tmp_path / folder / "run.log.gz") for folder in ("A", "B")]
    assert [row["file"] for row in cells("ops", "--coverage", *logs)] == ["A/run.log.gz", "B/run.log.gz"]


# -- Help: by task, options that few people need apart, lines that fit; words that are no command; names in SQL.


CONTEXT = click.Context(cli, info_name="mio2trace")
COMMANDS = {name: command for name in cli.list_commands(CONTEXT) if (command := cli.get_command(CONTEXT, name))}


def told(*arguments: str, folder: Path | None = None) -> Result:
    with contextlib.chdir(folder or "."):
        return CliRunner().invoke(cli, arguments, prog_name="mio2trace", terminal_width=78)


def test_help_begins_with_pytorch_and_groups_by_task() -> None:
    said = told().stdout
    head = said.splitlines()[:10]
    assert any("PyTorch profiler (Kineto)" in line for line in head)
    assert any("rocprofv3 / rocpd" in line for line in head)
    assert said.index("trace.json.gz ") < said.index("run_results.db ") < said.index("messages run.log ")
    tasks = [line.removesuffix(":") for line in said.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert tasks == ["Options", *(task for task, _ in TASKS), "Other"]
    assert max(map(len, said.splitlines())) <= 78
    assert sum(any(one.name in RARE for one in command.params) for command in COMMANDS.values()) > 10


@pytest.mark.parametrize("name", COMMANDS)
def test_options_that_few_people_need_are_shown_by_help_all_alone(name: str) -> None:
    options = [one for one in COMMANDS[name].params if isinstance(one, click.Option)]
    short, whole = told(name, "--help"), told(name, "--help-all")
    assert short.exit_code == 0
    of_all = name in ("compare", "doctor", "ranks")
    assert ("--help-all" in short.stdout) is any(one.name in RARE for one in options) or of_all
    for option in options:
        if option.name in RARE:
            assert f"{option.opts[-1]} " not in short.stdout.partition("Options:")[2]
            assert option.opts[-1] in whole.stdout
        else:
            assert option.opts[-1] in short.stdout or of_all


@pytest.mark.parametrize(
    ("word", "said"),
    [("kernel", "did you mean 'kernels'?"), ("lay", "did you mean 'layers'?"), ("xyzzy", "no command 'xyzzy'")],
)
def test_a_word_that_is_no_command_is_named_with_the_nearest(word: str, said: str, tmp_path: Path) -> None:
    """A file without a suffix is no mistyped command."""
    done = told(word, folder=tmp_path)
    assert done.exit_code == 2
    assert said in done.stderr
    (tmp_path / word).write_text("nothing that is known\n")
    done = told(word, folder=tmp_path)
    assert done.exit_code == 1
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
        queries.answer_in_sqlite([one], sql)
