"""One answer in every form: block, page, Markdown, JSON, tables, SQL and trace metadata agree on names and numbers."""

from __future__ import annotations

import html
import itertools
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import html5lib
import pytest
from click.testing import CliRunner

import mio2trace
from mio2trace.cli import cli
from tests.conftest import ROOT, shared_folder

TRACES = ROOT / "traces"
SAMPLES = shared_folder() / "samples"
RUNS = {
    "rocpd with a log": [TRACES / "lenet-rocpd" / name for name in ("run.log.gz", "results.db.gz")],
    "dv/dt with a log": [TRACES / "alexnet-b1-miopen29" / name for name in ("run.log.gz", "prof.json.gz")],
    "profile alone": [TRACES / "lenet-rocpd" / "results.db.gz"],
}
SHARED = {
    "PyTorch": [SAMPLES / "rocm" / "kineto_mi300_resnet50_ddp4_rank1.json.gz"],
    "PyTorch, streams": [SAMPLES / "rocm" / "kineto_mi300x_resnet_train_ddp.json.gz"],
    "RPD": [SAMPLES / "rocm" / "rpd_torch_matmul.rpd.gz"],
}
ALL = [*RUNS, *(pytest.param(name, marks=pytest.mark.shared) for name in SHARED)]
LISTS = ("layers", "operations", "kernels")


@cache
def said(name: str, *words: str) -> str:
    files = [str(path) for path in {**RUNS, **SHARED}[name]]
    at = words.index("FILES") if "FILES" in words else len(words)
    done = CliRunner().invoke(cli, [*words[:at], *files, *words[at + 1 :]])
    assert done.exit_code == 0, done.output
    return done.stdout


def document(name: str) -> dict[str, Any]:
    run: dict[str, Any] = json.loads(said(name, "report", "FILES", "--format", "json", "-q"))["runs"][0]
    return run


def first(run: dict[str, Any], what: str) -> dict[str, Any] | None:
    return next((row for row in run[what] if row["name"] is not None), None)


def rows_of_page(name: str, part: str) -> list[list[str]]:
    """The texts of the cells of a part's table."""
    text = said(name, "report", "FILES", "--format", "html", "-q")
    section = re.search(rf'<h2 id="{part}">.*?</section>', text, re.S)
    assert section is not None, part
    rows = re.findall(r"<tr>(.*?)</tr>", section[0], re.S)[1:]
    plain = [re.sub(r"<details>.*?</details>", "", row, flags=re.S) for row in rows]
    return [
        [html.unescape(re.sub(r"<.*?>", "", cell)) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.S)]
        for row in plain
    ]


def rows_of_comment(name: str, head: str) -> list[list[str]]:
    text = html.unescape(said(name, "report", "FILES", "--format", "markdown", "-q")).replace("<!-- -->", "")
    lines = itertools.takewhile(lambda line: line.startswith("|"), text.partition(f"#### {head}")[2].splitlines()[4:])
    return [line.replace("\\", "").strip("| ").split(" | ") for line in lines]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("what", LISTS)
def test_first_names_and_numbers_are_the_same_in_every_form(name: str, what: str) -> None:
    run = document(name)
    row = first(run, what)
    if row is None:
        pytest.skip(f"no {what}")
    whole = "step" if run["step"] else "kernel_time"
    ms, share = f"{row['ns'] / 1e6:,.3f}", f"{row[f'percent_of_{whole}']:.1f}"
    block = said(name, "report", "FILES", "-q").splitlines()
    if what == "operations" and (problems := [line for line in block if line.startswith("problems")]):
        what, row = "problems", run["problems"][0]
        ms, share, block = f"{row['ns'] / 1e6:,.3f}", f"{row[f'percent_of_{whole}']:.1f}", problems
    line = next(line for line in block if line.startswith(what))
    shown = re.sub(r" x [\d,]+$", "", line[12:].partition("  ")[0].strip())
    assert re.search(rf"\s{re.escape(ms if row['ns'] < 1e8 else ms[:-2])} ms", line)
    assert line.endswith(f"{share} %")
    page = rows_of_page(name, what)[0]
    comment = rows_of_comment(name, what.capitalize())[0]
    for cells in (page, comment):
        assert ms in cells
        assert share in cells
        assert cells[0].startswith(shown.partition("...")[0][:30])
        assert what == "kernels" or row["name"] in cells[0]
    assert page[0] == comment[0] or "..." in page[0] + comment[0]


@pytest.mark.parametrize("name", ALL)
def test_tables_and_sql_have_the_first_rows_of_the_answer(name: str) -> None:
    run = document(name)
    for what, command, column in (
        ("layers", ("layers", "FILES"), "layer"),
        ("operations", ("ops", "FILES"), "operation"),
        ("kernels", ("kernels", "FILES", "--by", "name"), "kernel"),
    ):
        row = first(run, what)
        if row is None:
            continue
        (cells,) = json.loads(said(name, *command, "--top", "1", "--format", "json", "-q"))
        assert cells["layer" if what == "layers" else "name"] == row["name"]
        assert cells["kernel_ns"] == pytest.approx(row["ns"], abs=1), what
        assert cells["percent_of_kernel_time"] == pytest.approx(row["percent_of_kernel_time"], abs=0.001)
        (cells,) = json.loads(said(name, "query", "FILES", f"slowest {what}", "--top", "1", "--format", "json"))
        assert (cells[column], cells["kernel_ms"]) == (row["name"], pytest.approx(row["ns"] / 1e6, abs=0.002)), what


@pytest.mark.parametrize("name", ALL)
def test_the_step_is_the_same_in_every_form(name: str, tmp_path: Path) -> None:
    """Parts add up to 100 % in block, page and Markdown; the trace's metadata have the JSON's numbers."""
    run = document(name)
    metadata = mio2trace.convert(*{**RUNS, **SHARED}[name]).metadata
    step = run["step"]
    if step is not None:
        (made,) = [one for one in metadata["steps"] if one["device"] == step["device"]]
        assert len(made) > 10
        assert made == {key: step[key] for key in made}
    of = step or run["recording"]
    lines = [line for line in said(name, "report", "FILES", "-q").splitlines() if "█" in line or "▏" in line]
    if of is None:
        assert not lines
        return
    block = [float(found[1]) for line in lines if (found := re.search(r"([\d.]+) %", line))]
    page = [float(cells[2]) for cells in rows_of_page(name, "where")]
    comment = [float(cells[2]) for cells in rows_of_comment(name, f"Where the {'step' if step else 'recording'} goes")]
    for shares in (block, page, comment):
        assert shares == block
        assert sum(shares) == pytest.approx(100, abs=0.4)
    for part, cells in zip(("compute", "idle"), (rows_of_page(name, "where")[at] for at in (0, -1)), strict=True):
        assert cells[1] == f"{of[f'{part}_ns'] / 1e6:,.3f}"


@pytest.mark.parametrize("name", ALL)
def test_findings_are_the_same_in_every_form(name: str) -> None:
    page, comment = (said(name, "report", "FILES", "--format", form, "-q") for form in ("html", "markdown"))
    findings = [finding["id"] for finding in document(name)["findings"]]
    assert [id_ for id_ in findings if f"docs/findings.md#{id_}" not in page or f"(`{id_}`)" not in comment] == []


@pytest.mark.parametrize("name", ALL)
def test_names_of_a_list_differ(name: str) -> None:
    """On the page and in Markdown, as far as the full names do."""
    run = document(name)
    for what in LISTS:
        if first(run, what) is None:
            continue
        for rows in (rows_of_page(name, what), rows_of_comment(name, what.capitalize())):
            names = [cells[0] for cells in rows]
            full = {(row["name"], row.get("layer"), row.get("direction")) for row in run[what][: len(names)]}
            assert len(set(names)) >= len(full) - (what == "operations") * (len(full) - len({one[0] for one in full}))


@pytest.mark.parametrize("name", [*RUNS])
def test_the_tree_of_the_page_holds_the_kernel_time(name: str) -> None:
    """Each level adds up to what is above it, as far as three digits show it."""
    page = html5lib.parse(said(name, "report", "FILES", "--format", "html", "-q"), namespaceHTMLElements=False)
    (part,) = [one for one in page.iter("section") if one.find("h2").attrib["id"] == "tree"]

    def time(item: Any) -> float:
        text = next(one for one in item.iter("span") if one.attrib["class"] == "time").text
        return float(text.partition(" ms")[0].replace(",", ""))

    assert sum(map(time, part.find("ul"))) == pytest.approx(document(name)["kernel_ns"] / 1e6, rel=0.001)
    opened = [item for item in part.iter("li") if item.find("details") is not None]
    assert opened
    for item in opened:
        assert sum(map(time, item.find("details").find("ul"))) <= time(item) + 0.01
