"""A number agrees with its noun: no output says `1 runs`, over inputs that have one of everything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from mio2trace.analysis import analyse
from mio2trace.cli import cli
from mio2trace.outgoing import count
from tests.kineto_files import FIRST_US, row, trace

SINGULAR = {"as", "is", "gas", "bus", "ms", "us", "ns", "s", "this", "plus", "less", "has", "was", "takes", "across"}
"""Words in s that may follow a 1 and are no plural."""
_ONE = re.compile(r"(?<![\w.,:/-])1 ((?:[a-z]+ )?[a-z]+s)\b")
LOG = (
    "MIOpen(HIP): miopenStatus_t miopenConvolutionForward(miopenHandle_t, const void *){\n"
    "MIOpen(HIP): handle = 0x1000\nMIOpen(HIP): }\n"
    "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 1 -c 1 -H 8 -W 8 -k 4 -y 3 -x 3 -F 1 -t 1\n"
)


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (0, "run", "0 runs"),
        (1, "run", "1 run"),
        (2351, "kernel", "2,351 kernels"),
        (3, "search", "3 searches"),
        (2, "process", "2 processes"),
        (4, "copy", "4 copies"),
        (2, "array", "2 arrays"),
    ],
)
def test_a_noun_has_the_form_of_its_number(number: int, noun: str, words: str) -> None:
    assert count(number, noun) == words


def test_no_output_has_a_plural_after_a_one(tmp_path: Path) -> None:
    profile, log = str(tmp_path / "prof.json"), str(tmp_path / "run.log")
    launch = row("cuda_runtime", "hipLaunchKernel", 542, 542, FIRST_US + 20, 5, External_id=45, correlation=71)
    kernel = row("kernel", "one.kd", 2, 0, FIRST_US + 30, 20, device=2, stream=0, correlation=71)
    op = row("cpu_op", "aten::add", 542, 542, FIRST_US + 10, 30, External_id=45)
    step = row("user_annotation", "ProfilerStep#3", 542, 542, FIRST_US, 90, External_id=1)
    Path(profile).write_bytes(trace([step, op, launch, kernel]))
    Path(log).write_text(LOG)
    tables, page = str(tmp_path / "t.parquet"), str(tmp_path / "page.html")
    runner, said = CliRunner(), []
    for words in (
        ["convert", profile],
        ["convert", profile, "-o", str(tmp_path / "out.pftrace"), "-v"],
        ["convert", profile, "-o", tables],
        ["report", profile, "-o", page],
        ["report", profile, "--format", "markdown"],
        ["report", tables],
        ["kernels", profile],
        ["layers", profile],
        ["ops", log],
        ["ops", profile],
        ["driver", log],
        ["messages", log],
        ["inspect", log],
        ["compare", profile, "--save", str(tmp_path / "base.json")],
        ["compare", profile, profile],
        ["batch", str(tmp_path), "-o", str(tmp_path / "ds")],
        ["kernels", profile, "--by", "repetition", "--per", "1"],
        ["kernels", profile, "--by", "repetition"],
        ["kernels", profile, "--where", "kernel_ms>1000"],
    ):
        done = runner.invoke(cli, words)
        assert done.exit_code in (0, 1, 3), (words, done.output, done.exception)
        said.append((words, done.output + done.stderr))
    said.append((["page"], re.sub(r"<[^>]*>", " | ", Path(page).read_text())))
    said.append((["repr"], repr(analyse([profile])) + repr(analyse([profile]).inputs)))
    wrong = [
        (words[0], found[0]) for words, text in said for found in _ONE.finditer(text) if not _is_no_plural(found[1])
    ]
    assert not wrong


def _is_no_plural(words: str) -> bool:
    return words.split()[-1] in SINGULAR or words.split()[0] in SINGULAR
