"""What commands that print tables have in common: input, header, forms; how tables and help look in a terminal."""

from __future__ import annotations

import ast
import contextlib
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

from mio2trace import queries
from mio2trace.cli import TASKS, cli
from mio2trace.commands import RARE, process_cells
from mio2trace.model.profile import Process, Profile
from mio2trace.notes import InputError
from mio2trace.reports import Cell, Table, left_out, print_table
from mio2trace.trace import Slice
from tests.commands import csv_of, invoked, json_of, stderr_of
from tests.conftest import ROOT, Golden
from tests.kineto_files import kineto_file
from tests.often import present, saved
from tests.small_runs import as_json, as_text, benchmark
from tests.test_ops import conv_entry
from tests.test_tfprof import profile

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
    Case(("tfprof",), "profile.tfprof"),
]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    calls, text = benchmark(iterations=3)
    (tmp_path / "prof.json").write_bytes(as_json(calls))
    (tmp_path / "blocks.log").write_bytes(as_text(calls))
    (tmp_path / "run.log").write_text(text)
    (tmp_path / "miopen.log").write_text(conv_entry() * 3)
    (tmp_path / "profile.tfprof").write_bytes(profile())
    entry = {"direction": "forward", "index": 0, "label": "00: conv1", "time_ms": 0.12, "timestamp": ""}
    digest = {"per_layer_info": [entry], "time_fw_ms": 0.24, "time_bw_ms": 0.0}
    (tmp_path / "tmp-ck-timer.json").write_text(json.dumps(digest))
    return tmp_path


def made(files: Path, case: Case, *args: str, packed: bool = False, piped: bool = False) -> Result:
    data = (files / case.piped).read_bytes()
    if packed:
        data = gzip.compress(data)
        (files / f"{case.piped}.gz").write_bytes(data)
    first = "-" if piped else str(files / (f"{case.piped}.gz" if packed else case.piped))
    beside = [str(files / name) for name in case.beside]
    done = invoked(*case.args, first, *beside, *args, stdin=data if piped else b"")
    assert done.exit_code == 0, done.stderr
    return done


def anonymous(text: str) -> str:
    """Without the name of the file, which some rows have."""
    for name in ("standard input", "miopen.log.gz"):
        text = text.replace(name, "miopen.log")
    return text


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join((*case.args, case.piped)))
def test_standard_input_and_gzip_give_the_same_table(files: Path, case: Case) -> None:
    plain = made(files, case).stdout
    assert plain.count("\n") >= 1
    for packed, piped in ((True, False), (False, True), (True, True)):
        assert anonymous(made(files, case, packed=packed, piped=piped).stdout) == plain


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join((*case.args, case.piped)))
def test_every_form_has_one_header_and_the_same_rows(files: Path, case: Case) -> None:
    """The same bytes again, and nothing else on standard output."""
    one, quiet = made(files, case), made(files, case, "--quiet")
    text = one.stdout
    assert text == quiet.stdout == made(files, case, "--format", "csv").stdout  # no terminal here
    assert quiet.stderr.splitlines() == [line for line in one.stderr.splitlines() if line.startswith("problem: ")]
    header, *rows = list(csv.reader(io.StringIO(text)))
    assert len(header) == len(set(header)) > 1
    assert all(len(row) == len(header) and row != header for row in rows)
    assert rows or "--gemm" in case.args or "bucket" in case.args
    objects = json.loads(made(files, case, "--format", "json").stdout)
    lines = [json.loads(line) for line in made(files, case, "--format", "jsonl").stdout.splitlines()]
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
    table, markdown = (made(files, case, "--format", form).stdout.splitlines() for form in ("table", "markdown"))
    ends = [line for line in table[len(rows) + 1 :] if line.startswith(("total", "in no layer"))]
    assert len(table) == len(markdown) - 1 == len(rows) + 1 + len(ends)
    assert all(line.startswith("| ") and line.endswith(" |") for line in (markdown[0], *markdown[2:]))
    assert set(markdown[1]) <= set("|-:")


@pytest.mark.parametrize("command", ["ops", "kernels", "layers"])
def test_chosen_columns(files: Path, command: str) -> None:
    case = next(case for case in CASES if case.args == (command,))
    header = made(files, case).stdout.splitlines()[0].split(",")
    chosen = [header[1], header[0]]
    assert made(files, case, "--columns", ",".join(chosen)).stdout.splitlines()[0] == ",".join(chosen)


@pytest.mark.parametrize("command", ["ops", "driver", "kernels", "layers", "inspect"])
@pytest.mark.parametrize("data", [b"", b"hello\n", b"{}", b"\x1f\x8b\x08", b"\0\1\2", b"[1, 2]", b"[]"])
def test_what_is_no_input_is_one_line(tmp_path: Path, command: str, data: bytes) -> None:
    path = saved(tmp_path / "what", data)
    for args, stdin in (([str(path)], b""), (["-"], data)):
        done = invoked(command, *args, stdin=stdin)
        if command in ("inspect", "kernels") and data == b"[]":
            assert (done.exit_code, done.stdout.count("\n")) == (0, 6 if command == "inspect" else 1)
            continue  # a profile without calls; `inspect` names its process, thread and two clocks
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith("mio2trace: ")
        assert len(done.stderr.splitlines()) == 1


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
        command = present(cli.get_command(click.Context(cli), name))
        assert advised <= {option for parameter in command.params for option in parameter.opts}, name


@pytest.mark.parametrize("command", ["ops", "driver", "layers", "kernels"])
def test_an_option_that_a_message_advises_is_one_of_the_command(command: str) -> None:
    """Files of two runs are refused with `--align order`, which then goes on."""
    log = str(MIOPEN / "run.log.gz")
    profile = str(ROOT / "traces" / "alexnet-b1-train" / "prof.json.gz")
    by = ("--by", "layer") if command == "kernels" else ()
    assert "--align order" in stderr_of(invoked(command, log, profile, *by), 1)
    assert invoked(command, log, profile, *by, "--align", "order").exit_code == 0


@pytest.mark.parametrize("command", ["ops", "driver", "kernels", "layers"])
def test_a_log_of_another_run_spoils_no_table(command: str, tmp_path: Path) -> None:
    """The rows are those without it; what is left out is said."""
    files = [str(MIOPEN / "run.log.gz"), str(MIOPEN / "prof.json.gz")]
    stranger = str(ROOT / "traces" / "alexnet-b1-train" / "run.log")
    by = ("--by", "layer") if command == "kernels" else ()
    alone, beside = (invoked(command, *chosen, *by) for chosen in (files, [*files, stranger]))
    assert (alone.exit_code, beside.exit_code) == (0, 0)
    assert beside.stdout == alone.stdout
    assert "log that fits no profile here: not joined" in beside.stderr


# -- How tables and help look in a terminal: a snapshot of each at three widths; selecting, sorting, writing.


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
    done = invoked(*args, **{"COLUMNS": "" if width is None else str(width)})
    assert done.exit_code == 0, done.stderr
    return done


@pytest.mark.parametrize("width", [80, *(pytest.param(width, marks=pytest.mark.thorough) for width in (120, 200))])
@pytest.mark.parametrize("name", TABLES)
def test_no_line_is_longer_than_the_terminal(name: str, width: int, golden: Golden, analysed_once: None) -> None:
    """Of the whole table; its first rows look as they did."""
    assert max(map(len, run(*TABLES[name], "--format", "table", width=width).stdout.splitlines())) <= width
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


def test_files_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    """By as much of their folders as that needs."""
    for folder in ("A", "B"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.log.gz").write_bytes(Path(FILES[0]).read_bytes())
    logs = [str(tmp_path / folder / "run.log.gz") for folder in ("A", "B")]
    assert [row["file"] for row in csv_of("ops", "--coverage", *logs)] == ["A/run.log.gz", "B/run.log.gz"]


def test_rows_that_meet_conditions() -> None:
    """Numbers in any unit of time, texts whole or in part. A row meets all conditions; if none does, this is said."""
    whole = csv_of("layers", *FILES)
    pools = ("pool1", "pool2", "pool5")
    for conditions, wanted in (
        (["kernel_ms>1"], [row for row in whole if float(row["kernel_ns"] or 0) > 1_000_000]),
        (["layer=conv2"], [row for row in whole if row["layer"] == "conv2"]),
        (["layer!=conv2"], [row for row in whole if row["layer"] != "conv2"]),
        (["kernel_us<1000", "layer~pool", "kernels>=1"], [row for row in whole if row["layer"] in pools]),
    ):
        options = [word for condition in conditions for word in ("--where", condition)]
        assert [row["layer"] for row in csv_of("layers", *FILES, *options)] == [row["layer"] for row in wanted] != []
    done = run("layers", *FILES, "--where", "layer=nothing")
    assert "no row: none of" in done.stderr
    assert "has layer=nothing" in done.stderr
    done = run("kernels", "--gemm", *FILES, "--format", "csv")
    assert done.stdout.count("\n") == 1
    assert "no row: no kernel of the profile shows the sizes of a GEMM; `mio2trace ops` has those of" in done.stderr


def test_order_and_number_of_rows() -> None:
    """Most first, texts from a to z, or as said; cells that are not known last."""
    by_host = [float(row["host_ns"]) for row in csv_of("layers", *FILES, "--sort", "host", "--top", "5")]
    assert len(by_host) == 5
    assert by_host == sorted(by_host, reverse=True)
    names = [row["layer"] for row in csv_of("layers", *FILES, "--sort", "layer")]
    assert names == sorted(names)
    assert [row["layer"] for row in csv_of("layers", *FILES, "--sort", "layer:down")] == names[::-1]
    rates = [row["gflops"] for row in csv_of("layers", *FILES, "--sort", "gflops:up")]
    known = [float(rate) for rate in rates if rate]
    assert known == sorted(known)
    assert rates[len(known) :] == [""] * (len(rates) - len(known))
    heads = run("layers", *FILES, "--sort", "copies,kernel", "--format", "table", width=40).stdout.splitlines()[0]
    assert {"copies", "kernel_ms"} <= {*heads.split()}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("layers", *FILES, "--where", "kernel"), "expected a column, one of"),
        (("layers", *FILES, "--where", "kernel>fast"), "'fast' is no number"),
        (("layers", *FILES, "--where", "kernal>1"), "did you mean kernel?"),
        (("layers", *FILES, "--sort", "layer:sideways"), "expected layer:up or layer:down"),
        (("layers", *FILES, "--columns", "nothing"), "no column 'nothing'; there are layer_index"),
        (("lyers", FILES[1]), "did you mean 'layers'?"),  # a mistyped command is no file that is not there
    ],
)
def test_what_cannot_be_selected_is_one_line(words: tuple[str, ...], said: str) -> None:
    """With exit code 2."""
    assert said in stderr_of(invoked(*words), 2)


def test_a_file_in_the_form_that_its_name_says(tmp_path: Path) -> None:
    """CSV, JSON, Markdown, text; never over an input."""
    for name, begins in (("a.csv", "layer_index,"), ("a.json", "["), ("a.md", "| layer"), ("a.txt", "layer")):
        run("layers", *FILES, "-o", str(tmp_path / name))
        assert (tmp_path / name).read_text().startswith(begins)
    assert run("layers", *FILES, "--format", "csv").stdout == (tmp_path / "a.csv").read_text()
    log = saved(tmp_path / "run.log.gz", Path(FILES[0]).read_bytes())
    assert "is also an input" in stderr_of(invoked("layers", log, "-o", log), 2)


def test_a_person_gets_milliseconds_and_a_total_a_program_neither() -> None:
    """The unit is in the names of both."""
    table = run("layers", *FILES, "--format", "table").stdout
    assert "kernel_ms" in table.splitlines()[0]
    assert table.splitlines()[-1].startswith("total")
    unnamed = run("layers", *FILES, "--format", "table", "--top", "2", "--columns", "kernel").stdout
    assert len(unnamed.splitlines()) == 3  # a total without its name would look like a row
    rows = json_of("layers", *FILES)
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
    count = str(len(words.split()))
    asked = {"COMP_WORDS": f"mio2trace {words}", "COMP_CWORD": count, "_MIO2TRACE_COMPLETE": "bash_complete"}
    assert expected in CliRunner().invoke(cli, [], prog_name="mio2trace", env=asked).stdout.splitlines()


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
    assert said in stderr_of(told(word, folder=tmp_path), 2)
    (tmp_path / word).write_text("nothing that is known\n")
    assert "did you mean" not in stderr_of(told(word, folder=tmp_path), 1)


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


def test_a_column_that_is_alone_is_not_cut() -> None:
    """A command is there to be copied."""
    files = [str(MIOPEN / name) for name in ("run.log.gz", "prof.json.gz")]
    lines = run("ops", *files, "--columns", "command", "--format", "table", width=60).stdout.splitlines()
    commands = [line for line in lines if line.startswith("./bin/MIOpenDriver conv")]
    assert commands
    assert all(line.endswith(" -t 1") and len(line) > 60 for line in commands)


def test_names_of_kernels_that_are_cut_stay_distinct() -> None:
    """They are those of the answer: `Cijk_Alik_Bljk_B_BS...WS64_WG16_4_4` was the name of many."""
    names = [f"Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_MT16x16x{k}_{'MI16x16x1_' * 9}WG16_4_4" for k in (128, 256)]
    table = Table(columns=("name", "ms"), rows=[{"name": name, "ms": 1.0} for name in names])
    lines = "".join(print_table(table, "table", 50)).splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == [f"Cijk Alik_Bljk B_BS_BH MT16x16x{k}" for k in (128, 256)]


@pytest.mark.parametrize("with_log", [True, False])
def test_a_profile_that_a_command_does_not_show_is_mentioned(with_log: bool, tmp_path: Path) -> None:
    """The report has a line for it; each table names the profile that it shows."""
    other = kineto_file(tmp_path, distributedInfo={})
    files = [MIOPEN / "prof.json.gz", other, *([MIOPEN / "run.log.gz"] if with_log else [])]
    which = "fits the logs best" if with_log else "has most kernels and copies"
    for command in ("layers", "ops", "kernels", "driver") if with_log else ("kernels",):
        assert f"problem: 2 profiles: the profile that {which} is shown" in stderr_of(invoked(command, *files), 0)
    for more in ((), ("-o", tmp_path / "x.pftrace")):
        done = invoked(*files, "-o", tmp_path / "x.parquet", *more)
        assert f"problem: 2 profiles: the profile that {which} is in the tables" in done.stderr
        assert "2 runs" in invoked(*files, "-o", tmp_path / "x.parquet", "--several").stderr
    answer = invoked(*files)
    assert ": 0.900 ms per iteration, 0.026 ms of kernels (1 iteration)." in " ".join(answer.stdout.split())


def test_a_share_is_not_shown_without_the_problem_that_it_is_of() -> None:
    """The query ``runs`` of a dataset, in 80 columns."""
    row: dict[str, Cell] = {
        "run": "job/worker0.1623143089861.pt.trace.json.gz", "version": "rocm-7.0.2-release", "kernel_ms": 98.589,
        "device": "AMD Instinct MI300X", "iterations": 6, "kernels": 8772, "find_percent": 1.5,
        "slowest_problem": "Conv fwd 32x256x14x14", "percent_of_kernel_time": 4.4,
    }  # fmt: skip
    order = ("run", "version", "device", "iterations", "kernel_ms", "kernels", "find_percent", "slowest_problem",
             "percent_of_kernel_time")  # fmt: skip
    table = Table(columns=order, rows=[row])
    for width in (60, 80, 100, 140):
        lost = left_out(table, width)
        assert "percent_of_kernel_time" in lost or "slowest_problem" not in lost
        assert width < 80 or "slowest_problem" not in lost


@pytest.mark.parametrize(
    ("process", "cells"),
    [
        (Process(index=0, pid=7), {}),
        (Process(index=0, pid=7, rank=1, label="rank 1"), {"rank": 1}),
        (Process(index=0, pid=7, label="pid 7"), {"pid": 7}),
        (Process(index=0, pid=7, label="file rank0"), {"process": "file rank0", "pid": 7}),
        (Process(index=0, label="process 1"), {"process": "process 1"}),
    ],
)
def test_tables_call_a_process_as_the_answer_does(process: Process, cells: dict[str, object]) -> None:
    assert process_cells(Profile(source=0, records=0, processes=(process,))) == cells
