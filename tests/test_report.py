"""`mio2trace report`: ten lines, Markdown, a page, records; over all kinds of runs."""

from __future__ import annotations

import gzip
import html
import itertools
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import html5lib
import msgspec
import orjson
import pytest
from click.testing import CliRunner

import mio2trace
from mio2trace import answer
from mio2trace.analysis import analyse
from mio2trace.answer import report_of
from mio2trace.answer.content import VERSION
from mio2trace.answer.text import MOST_LINES, WIDTH
from mio2trace.cli import cli
from mio2trace.findings import Subject
from mio2trace.measures import steady
from mio2trace.measures.completeness import CLASSES
from mio2trace.measures.gaps import causes
from mio2trace.measures.iterations import PARTS, Iterations, iterations_of
from tests.conftest import ROOT, shared_folder
from tests.fuzz.many_rows import processes_of_a_table
from tests.test_one_number import RUNS as NUMBERED

TRACES = ROOT / "traces"
ALEXNET = [str(TRACES / "alexnet-b1-miopen29" / name) for name in ("run.log.gz", "prof.json.gz")]
LENET = [str(TRACES / "lenet-rocpd" / name) for name in ("run.log.gz", "results.db.gz")]


def run(*words: str | Path) -> str:
    """What is printed; nothing else may go wrong."""
    done = CliRunner().invoke(cli, ["report", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_block_says_what_is_slowest() -> None:
    """Verdict, MIOpen Find, the three slowest of each with time and share, in order of time."""
    lines = run(*ALEXNET, "-q").splitlines()
    assert lines[0].endswith("profile complete")
    assert lines[1].startswith("18.02 ms of kernels per iteration (1 iteration")
    assert any(line.startswith("MIOpen Find") for line in lines)
    for name in ("layers", "operations", "kernels"):
        at = next(at for at, line in enumerate(lines) if line.startswith(name))
        times = [float(re.findall(r"([\d.]+) ms", line)[0]) for line in lines[at : at + 3]]
        assert times == sorted(times, reverse=True)


@pytest.mark.shared
@pytest.mark.parametrize(
    "name",
    [
        "rocm/kineto_mi300x_resnet_train_ddp.json.gz", "rocm/kineto_mi300_resnet50_ddp4_rank1.json.gz",
        "rocm/kineto_mi300_bert_small.json.gz", "rocm/graphs/vllm_decode_full.replay.json.gz",
        "rocm/graphs/sglang_prefilldecode.json.gz", "rocm/rocpd_ck_batched_gemm.db.gz", "rocm/rpd_torch_matmul.rpd.gz",
        "rocm/rocprofv3_csv_decode_kernel_trace.csv", "rocm/kineto_mi210_gpu_only.json.gz",
        "miopen-opencl/m121-rnn-infer-first", "dvdt/alexnet-b1-train.prof.json", "dvdt/two-queues.prof.json",
        "miopen-opencl/m290-alexnet-infer-10it/run.log", "miopen-opencl/m290-alexnet-infer-10it/prof.json",
        "miopen-logs/67-legacy6150-plain-prefix-errors-2026.txt", "tfprof/gpu_streams_resnet_v2/profile.tfprof",
    ],
)  # fmt: skip
def test_every_block_fits(name: str) -> None:
    """At most so many lines of so many columns; the names of a list differ; the parts of the step add up to 100 %."""
    path = shared_folder() / "samples" / name
    for form in ("markdown", "html"):
        assert re.search(r"\d.* ms|operation|record", run(path, "--format", form, "-q"))
    lines = run(path, "-q").splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH
    shares = [share for line in lines if "█" in line or "▏" in line for share in re.findall(r"([\d.]+) %", line)[:1]]
    assert not shares or sum(map(float, shares)) == pytest.approx(100, abs=0.4)
    kernels = [at for at, line in enumerate(lines) if line.startswith("kernels")]
    if kernels:
        rows = [
            line[12:56].strip() for line in lines[kernels[0] : kernels[0] + 3] if re.match(r"kernels| {12}\S", line)
        ]
        assert len(set(rows)) == len(rows)
    if name == "rocm/rpd_torch_matmul.rpd.gz":  # without iterations and without MIOpen; no hint is cut
        assert "26.40 ms of kernels; no iterations are known." in lines
        assert any(line.endswith("% of the recording") for line in lines)
        assert "..." not in "".join(lines)


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json"])
def test_the_same_files_give_the_same_bytes(form: str) -> None:
    assert run(*LENET, "--format", form, "-q") == run(*reversed(LENET), "--format", form, "-q")


@pytest.mark.parametrize("files", [LENET, ALEXNET, LENET[:1], ALEXNET[1:]])
def test_json_is_as_its_schema_says(files: list[str]) -> None:
    """One document; the page has the schema, with every part of a step and every class of what is incomplete."""
    import jsonschema

    schema = orjson.loads((ROOT / "docs" / "report.schema.json").read_bytes())
    document = orjson.loads(run(*files, "--format", "json", "-q"))
    jsonschema.validate(document, schema)
    assert document["schema"] == VERSION
    of_run = schema["properties"]["runs"]["items"]["properties"]
    step, recording, completeness = (of_run[name]["anyOf"][0] for name in ("step", "recording", "completeness"))
    assert {f"{part}_ns" for part in PARTS} <= step["properties"].keys()
    assert {"length_ns", *(f"{part}_ns" for part in PARTS)} == recording["properties"].keys()
    assert set(CLASSES) == completeness["properties"]["counts"]["properties"].keys()


@pytest.mark.parametrize(("strict", "code"), [(False, 0), (True, 4)])
def test_strict_tells_an_incomplete_profile(strict: bool, code: int, tmp_path: Path) -> None:
    """A profile that is cut off: exit code 4 in every command that answers, the counts in the first lines."""
    path = tmp_path / "prof.json"
    content = gzip.decompress(Path(ALEXNET[1]).read_bytes())
    path.write_bytes(content[: len(content) // 2])
    options = ["--strict"] if strict else []
    done = CliRunner().invoke(cli, ["report", str(path), *options])
    assert done.exit_code == code
    assert "PROFILE INCOMPLETE: 1 file cut off" in done.stdout.splitlines()[0]


def test_the_form_is_as_the_name_ends(tmp_path: Path) -> None:
    """A page for .html, Markdown for .md; another ending is refused, and the program says what was written."""
    page, comment = tmp_path / "report.html", tmp_path / "report.md"
    assert run(*LENET, "-o", page) == ""
    assert run(*LENET, "-o", comment) == ""
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert comment.read_text("utf-8").startswith("## ")
    done = CliRunner().invoke(cli, ["report", *LENET, "-o", str(tmp_path / "report.pdf")])
    assert done.exit_code == 2
    assert ".html, .htm, .md, .txt, .json" in done.output
    (tmp_path / "run.log").write_text("hello\n")
    done = CliRunner().invoke(cli, ["report", str(tmp_path / "run.log")])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)


def test_sections_that_are_not_shown_are_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may hold thousands of processes."""
    path = tmp_path / "run.csv"
    path.write_bytes(processes_of_a_table(70 * 30)[0])
    of_profile = Mock(wraps=answer.of_profile)
    monkeypatch.setattr("mio2trace.answer.of_profile", of_profile)
    analysis = analyse([str(path)])
    told = answer.report_of(analysis, analysis.runs)
    assert of_profile.call_count == len(told.sections) == answer.MOST_SECTIONS
    assert told.left_out == 30 - answer.MOST_SECTIONS


# -- What the report says is what `measures` counts: one sum, whatever it is divided by --------------------------------


@pytest.fixture(scope="module", params=NUMBERED)
def subject(request: pytest.FixtureRequest) -> Subject:
    return Subject(analyse(NUMBERED[request.param]).run.measures[0])


@pytest.mark.shared
def test_parts_durations_and_layers_are_the_whole(subject: Subject) -> None:
    """The makeup of steady iterations sums up to their kernel time, in each way of cutting it."""
    makeup, total = subject.makeup, subject.steady.total
    assert makeup.all == (total.cost.kernels - total.cost.untimed, total.total_ns)
    assert makeup.parts.total() == total.total_ns
    assert sum(ns for _, ns in makeup.by_log2.values()) == total.total_ns
    assert sum(count for count, _ in makeup.by_log2.values()) == makeup.all[0]
    assert makeup.layers.total() == sum(row.total_ns for row in subject.steady.layers)


@pytest.mark.shared
def test_gaps_are_the_idle_time(subject: Subject) -> None:
    """By cause they sum up to the time in which no command ran; the parts of the device's time are its length."""
    step, device = subject.step_time, subject.steady.device
    if step is None or device is None:
        return
    busy = [window.busy for window in step.windows if window.busy is not None]
    assert sum(one.ns for one in subject.causes) == sum(one.idle_ns for one in busy)
    assert sum(step.parts.values()) == step.step_ns == pytest.approx(sum(step.steps_ns) / len(step.steps_ns), abs=5)
    for one in busy:
        parts = (one.compute_ns, one.communication_ns, one.copy_ns, one.unrecorded_ns, one.idle_ns)
        assert sum(parts) == one.length_ns
    assert causes(subject.alignment, device, []) == ()


@pytest.mark.shared
def test_problems_are_those_of_the_ranking(subject: Subject) -> None:
    """Each with the times of its calls; those of all problems and what is in no operation are the whole."""
    rest = subject.steady.problems.rest
    whole = sum(problem.ns for problem in subject.problems) + (rest.total_ns if rest is not None else 0)
    assert whole == subject.total_ns
    assert all(len(problem.samples) == problem.row.calls for problem in subject.problems)


class _Numbers(tuple[int, ...]):
    """Of iterations; looking one up goes over all of them."""

    def __contains__(self, _: object) -> bool:
        raise AssertionError("a number is looked for among those of all steady iterations")


@pytest.mark.shared
def test_no_iteration_is_looked_for_among_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may have a hundred thousand iterations: the whole report goes over them, for none of them over all."""

    def hidden(*of: Any) -> Iterations:
        told = iterations_of(*of)
        return msgspec.structs.replace(told, steady=_Numbers(told.steady))

    monkeypatch.setattr(steady, "iterations_of", hidden)
    analysis = analyse(NUMBERED["m290-alexnet-infer-10it"])
    report = report_of(analysis, [analysis.run])
    assert report.sections[0].iterations == len(analysis.run.measures[0].steady.iterations) > 1


# -- One answer in every form: names and numbers -----------------------------------------------------------------------

SAMPLES = shared_folder() / "samples"
RUNS: dict[str, Sequence[str | Path]] = {
    "rocpd with a log": LENET,
    "dv/dt with a log": ALEXNET,
    "profile alone": LENET[1:],
}
SHARED: dict[str, Sequence[str | Path]] = {
    "PyTorch": [SAMPLES / "rocm" / "kineto_mi300_resnet50_ddp4_rank1.json.gz"],
    "PyTorch, streams": [SAMPLES / "rocm" / "kineto_mi300x_resnet_train_ddp.json.gz"],
    "RPD": [SAMPLES / "rocm" / "rpd_torch_matmul.rpd.gz"],
}
FILES = RUNS | SHARED
ALL = [*RUNS, *(pytest.param(name, marks=pytest.mark.shared) for name in SHARED)]
LISTS = ("layers", "operations", "kernels")


@cache
def said(name: str, *words: str) -> str:
    at = words.index("FILES")
    done = CliRunner().invoke(cli, [*words[:at], *map(str, FILES[name]), *words[at + 1 :]])
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
    metadata = mio2trace.convert(*FILES[name]).metadata
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
