"""What all commands that print tables have in common: standard input, gzip, one header, every form."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import re
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner, Result

from mio2trace.cli import cli
from mio2trace.reports import Table, print_table
from tests.conftest import ROOT
from tests.small_runs import as_json, as_text, benchmark
from tests.test_ops import conv_entry

MIOPEN = ROOT / "traces" / "alexnet-b1-miopen29"


class Case(NamedTuple):
    """A command with its options, the file it may read from standard input, and those beside it."""

    args: tuple[str, ...]
    piped: str
    beside: tuple[str, ...] = ()


CASES = [
    Case(("ops",), "miopen.log"),
    Case(("ops", "--group-by", "problem"), "miopen.log"),
    Case(("ops", "--coverage"), "miopen.log"),
    Case(("kernels",), "prof.json"),
    Case(("kernels",), "blocks.log"),
    Case(("kernels", "--by", "name"), "prof.json"),
    Case(("kernels", "--by", "repetition"), "prof.json"),
    Case(("kernels", "--by", "repetition", "--per", "2"), "prof.json"),
    Case(("kernels", "--gemm"), "prof.json"),
    Case(("kernels", "--by", "bucket"), "prof.json"),
    Case(("kernels", "--by", "layer"), "prof.json", ("run.log",)),
    Case(("kernels", "--by", "layer"), "run.log", ("prof.json",)),
    Case(("layers",), "run.log"),
    Case(("layers",), "prof.json", ("run.log",)),
    Case(("layers", "--each"), "run.log", ("prof.json",)),
    Case(("layers", "--times"), "run.log"),
    Case(("layers",), "tmp-ck-timer.json"),
    Case(("layers", "--times"), "tmp-ck-timer.json"),
]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    calls, text = benchmark(iterations=3)
    (tmp_path / "prof.json").write_bytes(as_json(calls))
    (tmp_path / "blocks.log").write_bytes(as_text(calls))
    (tmp_path / "run.log").write_text(text)
    (tmp_path / "miopen.log").write_text(conv_entry() * 3)
    entry = {"direction": "forward", "index": 0, "label": "00: conv1", "time_ms": 0.12, "timestamp": ""}
    digest = {"per_layer_info": [entry], "time_fw_ms": 0.24, "time_bw_ms": 0.0}
    (tmp_path / "tmp-ck-timer.json").write_text(json.dumps(digest))
    return tmp_path


def run(files: Path, case: Case, *args: str, packed: bool = False, piped: bool = False) -> Result:
    data = (files / case.piped).read_bytes()
    if packed:
        data = gzip.compress(data)
        (files / f"{case.piped}.gz").write_bytes(data)
    first = "-" if piped else str(files / (f"{case.piped}.gz" if packed else case.piped))
    beside = [str(files / name) for name in case.beside]
    done = CliRunner().invoke(
        cli, [*case.args, first, *beside, *args], input=data if piped else b"", catch_exceptions=False
    )
    assert done.exit_code == 0, done.stderr
    return done


def anonymous(text: str) -> str:
    """Without the name of the file, which some rows have."""
    for name in ("standard input", "miopen.log.gz"):
        text = text.replace(name, "miopen.log")
    return text


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join((*case.args, case.piped)))
def test_standard_input_and_gzip_give_the_same_table(files: Path, case: Case) -> None:
    plain = run(files, case).stdout
    assert plain.count("\n") >= 1
    for packed, piped in ((True, False), (False, True), (True, True)):
        assert anonymous(run(files, case, packed=packed, piped=piped).stdout) == plain


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join((*case.args, case.piped)))
def test_every_form_has_one_header_and_the_same_rows(files: Path, case: Case) -> None:
    """The same bytes again, and nothing else on standard output."""
    one, quiet = run(files, case), run(files, case, "--quiet")
    text = one.stdout
    assert text == quiet.stdout == run(files, case, "--format", "csv").stdout  # no terminal here
    assert quiet.stderr.splitlines() == [line for line in one.stderr.splitlines() if line.startswith("problem: ")]
    header, *rows = list(csv.reader(io.StringIO(text)))
    assert len(header) == len(set(header)) > 1
    assert all(len(row) == len(header) and row != header for row in rows)
    assert rows or "--gemm" in case.args or "bucket" in case.args
    objects = json.loads(run(files, case, "--format", "json").stdout)
    lines = [json.loads(line) for line in run(files, case, "--format", "jsonl").stdout.splitlines()]
    assert objects == lines
    for row, cells in zip(objects, rows, strict=True):
        flat = row | {k: v for held in row.values() if isinstance(held, dict) for k, v in held.items()}
        for name, cell in zip(header, cells, strict=True):
            if cell:
                assert name in flat
            elif name in flat:
                assert flat[name] in ("", None)
            if isinstance(flat.get(name), (int, float, str)):
                assert str(flat[name]) == cell
    table, markdown = (run(files, case, "--format", form).stdout.splitlines() for form in ("table", "markdown"))
    ends = [line for line in table[len(rows) + 1 :] if line.startswith(("total", "in no layer"))]
    assert len(table) == len(markdown) - 1 == len(rows) + 1 + len(ends)
    assert all(line.startswith("| ") and line.endswith(" |") for line in (markdown[0], *markdown[2:]))
    assert set(markdown[1]) <= set("|-:")


@pytest.mark.parametrize("command", ["ops", "kernels", "layers"])
def test_chosen_columns(files: Path, command: str) -> None:
    case = next(case for case in CASES if case.args == (command,))
    header = run(files, case).stdout.splitlines()[0].split(",")
    chosen = [header[1], header[0]]
    assert run(files, case, "--columns", ",".join(chosen)).stdout.splitlines()[0] == ",".join(chosen)


@pytest.mark.parametrize("command", ["ops", "driver", "kernels", "layers", "inspect"])
@pytest.mark.parametrize("data", [b"", b"hello\n", b"{}", b"\x1f\x8b\x08", b"\0\1\2", b"[1, 2]", b"[]"])
def test_what_is_no_input_is_one_line(tmp_path: Path, command: str, data: bytes) -> None:
    path = tmp_path / "what"
    path.write_bytes(data)
    for args, stdin in (([str(path)], b""), (["-"], data)):
        done = CliRunner().invoke(cli, [command, *args], input=stdin, catch_exceptions=False)
        if command in ("inspect", "kernels") and data == b"[]":
            assert (done.exit_code, done.stdout.count("\n")) == (0, 6 if command == "inspect" else 1)
            continue  # a profile without calls; `inspect` names its process, thread and two clocks
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith("mio2trace: ")
        assert len(done.stderr.splitlines()) == 1


def test_driver_lines_from_standard_input_and_gzip(files: Path) -> None:
    """Its lines are for a shell: no header at all."""
    data = (files / "miopen.log").read_bytes()
    (files / "miopen.log.gz").write_bytes(gzip.compress(data))
    plain, packed = str(files / "miopen.log"), str(files / "miopen.log.gz")
    outputs = [
        CliRunner().invoke(cli, ["driver", name], input=given, catch_exceptions=False).stdout
        for name, given in ((plain, b""), (packed, b""), ("-", data), ("-", gzip.compress(data)))
    ]
    assert len(set(outputs)) == 1
    assert outputs[0].count("MIOpenDriver conv") == outputs[0].count("\n") == 1


def test_fractions_for_a_person_stand_in_line_and_a_program_has_all_digits() -> None:
    """As many decimals as five digits of the column's largest number leave; shares have one; no more than are there."""
    values = [0.0, 1.0, 1 / 3, 123.45678901, -0.000123456789, 1e-7]
    shown = ["0.00", "1.00", "0.33", "123.46", "-0.00", "<0.01"]
    rows = [{"v": value, "few": 2.5, "large": 2.5e20, "a_percent": 12.345} for value in values]
    table = Table(columns=("v", "few", "large", "a_percent"), rows=rows)
    lines = "".join(print_table(table, "table")).splitlines()
    assert [line.split() for line in lines[1:]] == [[text, "2.5", "250000000000000000000", "12.3"] for text in shown]
    exact = list(csv.DictReader(io.StringIO("".join(print_table(table, "csv")))))
    assert [float(row["v"]) for row in exact] == values
    assert json.loads("".join(print_table(table, "json")))[2]["v"] == 1 / 3


READING = ("convert", "ops", "driver", "kernels", "layers", "inspect")


def test_every_option_that_a_reader_advises_is_one_of_the_command() -> None:
    """What any of these may say: the rooms that read, sort and join know no command."""
    package = ROOT / "timeline" / "mio2trace"
    rooms = ("readers", "align", "ops", "kernels", "privacy", "source.py", "files.py", "runs.py", "analysis.py")
    modules = [file for room in rooms for file in sorted((package / room).rglob("*.py")) or [package / room]]
    advised = set()
    for module in modules:
        text = module.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if re.search("--[a-z]", text) else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                advised |= set(re.findall(r"(--[a-z][a-z-]+)(?: order)? (?:chooses|goes|sets)\b", node.value))
    assert advised == {"--align", "--max-input", "--repetition", "--tags"}
    for name in READING:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert advised <= {option for parameter in command.params for option in parameter.opts}, name


@pytest.mark.parametrize("command", ["ops", "driver", "layers", "kernels"])
def test_an_option_that_a_message_advises_is_one_of_the_command(command: str) -> None:
    """Files of two runs are refused with `--align order`, which then goes on."""
    log = str(MIOPEN / "run.log.gz")
    profile = str(ROOT / "traces" / "alexnet-b1-train" / "prof.json.gz")
    by = ("--by", "layer") if command == "kernels" else ()
    refused = CliRunner().invoke(cli, [command, log, profile, *by])
    assert refused.exit_code == 1
    assert "--align order" in refused.stderr
    assert CliRunner().invoke(cli, [command, log, profile, *by, "--align", "order"]).exit_code == 0


@pytest.mark.parametrize("command", ["ops", "driver", "kernels", "layers"])
def test_a_log_of_another_run_spoils_no_table(command: str, tmp_path: Path) -> None:
    """The rows are those without it; what is left out is said."""
    files = [str(MIOPEN / "run.log.gz"), str(MIOPEN / "prof.json.gz")]
    stranger = str(ROOT / "traces" / "alexnet-b1-train" / "run.log")
    by = ("--by", "layer") if command == "kernels" else ()
    alone, beside = (CliRunner().invoke(cli, [command, *chosen, *by]) for chosen in (files, [*files, stranger]))
    assert (alone.exit_code, beside.exit_code) == (0, 0)
    assert beside.stdout == alone.stdout
    assert "log that fits no profile here: not joined" in beside.stderr
