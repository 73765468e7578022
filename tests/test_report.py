"""`mio2trace report`: lines, Markdown, records, a page that is valid, accessible, alone and small, of any run."""

from __future__ import annotations

import contextlib
import functools
import gzip
import html
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import html5lib
import msgspec
import orjson
import pytest

import mio2trace
from mio2trace import answer
from mio2trace.analysis import analyse
from mio2trace.answer import of_profile, report_of
from mio2trace.answer.content import (
    VERSION,
    Duration,
    KernelRow,
    LayerRow,
    OperationRow,
    Part,
    ProblemRow,
    Report,
    Rest,
    Section,
    Thumbnail,
    machine,
)
from mio2trace.answer.html import LIMIT, colour, page
from mio2trace.answer.markdown import LIMIT as MARKDOWN_LIMIT
from mio2trace.answer.markdown import comment
from mio2trace.answer.text import MOST_LINES, WIDTH
from mio2trace.comparing import Comparison, Side
from mio2trace.comparing import side as compared_side
from mio2trace.comparing.record import Inside
from mio2trace.comparing.record import Part as RunPart
from mio2trace.comparing.sides import OPTIONS
from mio2trace.comparing.text import page as comparison_page
from mio2trace.findings import GPUS, RULES, Finding, Found, Subject
from mio2trace.fleet import Fleet
from mio2trace.fleet import page as fleet_page
from mio2trace.kernels.purposes import PURPOSES
from mio2trace.measures import steady
from mio2trace.measures.completeness import CLASSES
from mio2trace.measures.gaps import causes
from mio2trace.measures.iterations import PARTS, Iterations, StepTime, iterations_of
from mio2trace.measures.steady import Node
from mio2trace.notes import Notes
from mio2trace.ranks import RankTotal
from tests.commands import invoked, printed
from tests.conftest import ROOT, shared_folder
from tests.fuzz.many_rows import processes_of_a_table
from tests.kineto_files import FIRST_US, kineto_file, launched, row, rows, trace
from tests.made_up_costs import MS, Ran, measures
from tests.made_up_runs import largest, noisy, recorded
from tests.often import saved
from tests.perfetto_tools.perfetto_ui import PerfettoUI
from tests.test_iterations import in_no_pass
from tests.test_one_number import RUNS as NUMBERED

TRACES = ROOT / "traces"
ALEXNET = [str(TRACES / "alexnet-b1-miopen29" / name) for name in ("run.log.gz", "prof.json.gz")]
LENET = [str(TRACES / "lenet-rocpd" / name) for name in ("run.log.gz", "results.db.gz")]


run = partial(printed, "report")


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
def test_every_block_fits(name: str, analysed_once: None) -> None:
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


@pytest.mark.parametrize(("convolution_us", "first"), [(19.0, "Linear forward x 3"), (21.0, "Conv2d_0 forward")])
def test_layers_of_a_class_are_together_if_they_take_longer(convolution_us: float, first: str, tmp_path: Path) -> None:
    """Three linear modules of 10 us each: 1.5 times a convolution of 20 us. JSON has the classes in any case."""
    events = [row("user_annotation", "ProfilerStep#3", 542, 542, FIRST_US, 900)]
    for at, (module, us) in enumerate([*((f"Linear_{at}", 10.0) for at in range(3)), ("Conv2d_0", convolution_us)]):
        events += launched(70 + at, 20 + 100 * at, us)
        events.append(row("python_function", f"nn.Module: {module}", 542, 542, FIRST_US + 10 + 100 * at, 50))
    path = str(kineto_file(tmp_path, events))
    document = orjson.loads(run(path, "--format", "json", "-q"))["runs"][0]
    line = next(line for line in run(path, "-q").splitlines() if line.startswith("layers"))
    assert line[12:].partition("  ")[0] == first
    assert [(one["name"], one["direction"], one["layers"], one["ns"]) for one in document["layer_classes"]] == [
        ("Linear", "forward", 3, 30_000),
        ("Conv2d", "forward", 1, 1000 * convolution_us),
    ]


@pytest.mark.parametrize("linears", [1, 2])
def test_one_huge_layer_does_not_hide_the_classes(linears: int, tmp_path: Path) -> None:
    """A graph is one layer; the layers beside it are many and small."""
    events = [row("user_annotation", "ProfilerStep#3", 542, 542, FIRST_US, 900)]
    for at, module in enumerate(["Graph_0", *(f"Linear_{at}" for at in range(linears))]):
        events += launched(70 + at, 20 + 100 * at, 3.0 if at else 80.0)
        events.append(row("python_function", f"nn.Module: {module}", 542, 542, FIRST_US + 10 + 100 * at, 50))
    lines = run(str(kineto_file(tmp_path, events)), "-q").splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("layers"))
    assert lines[at + 1].split()[0] == ("Linear" if linears > 1 else "Linear_0")


def test_layers_that_a_log_names_have_no_classes(tmp_path: Path) -> None:
    """``conv_1`` and ``conv_2`` are two layers of a net, not two modules of a class."""
    log = saved(tmp_path / "run.log", re.sub(rb"conv(?=[12])", b"conv_", gzip.decompress(Path(LENET[0]).read_bytes())))
    found = orjson.loads(run(str(log), LENET[1], "--format", "json", "-q"))["runs"][0]
    assert {"conv_1", "conv_2"} < {row["name"] for row in found["layers"]}
    assert found["layer_classes"] == []


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


def test_the_form_is_as_the_name_ends(tmp_path: Path) -> None:
    """A page for .html, Markdown for .md; another ending is refused, and the program says what was written."""
    page, comment = tmp_path / "report.html", tmp_path / "report.md"
    assert run(*LENET, "-o", page) == ""
    assert run(*LENET, "-o", comment) == ""
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert comment.read_text("utf-8").startswith("## ")
    done = invoked("report", *LENET, "-o", tmp_path / "report.pdf")
    assert done.exit_code == 2
    assert ".html, .htm, .md, .txt, .json" in done.output
    done = invoked("report", saved(tmp_path / "run.log", "hello\n"))
    assert (done.exit_code, done.output.count("\n")) == (1, 1)


def test_sections_that_are_not_shown_are_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may hold thousands of processes."""
    path = saved(tmp_path / "run.csv", processes_of_a_table(70 * 30)[0])
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
    return printed(*words[:at], *FILES[name], *words[at + 1 :])


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
def test_first_names_and_numbers_are_the_same_in_every_form(name: str, what: str, analysed_once: None) -> None:
    run = document(name)
    row = first(run, what)
    if row is None:
        pytest.skip(f"no {what}")
    whole = "step" if run["step"] else "kernel_time"
    block = said(name, "report", "FILES", "-q").splitlines()
    head = what
    if what == "operations" and any(line.startswith("problems") for line in block):
        head = what = "problems"
    line = next(line for line in block if line.startswith(head))
    shown, *many = re.split(r" x ([\d,]+)$", line[12:].partition("  ")[0].strip())
    if head == "layers" and many:
        what = "layer_classes"
    row = run[what][0]
    ms, share = f"{row['ns'] / 1e6:,.3f}", f"{row[f'percent_of_{whole}']:.1f}"
    assert re.search(rf"\s{re.escape(ms if row['ns'] < 1e8 else ms[:-2])} ms", line)
    assert line.endswith(f"{share} %")
    page = rows_of_page(name, what.replace("_", "-"))[0]
    comment = rows_of_comment(name, what.capitalize().replace("_", " "))[0]
    for cells in (page, comment):
        assert ms in cells
        assert share in cells
        assert cells[0].startswith(shown.partition("...")[0][:30])
        assert what == "kernels" or row["name"] in cells[0]
    assert page[0] == comment[0] or "..." in page[0] + comment[0]


@pytest.mark.parametrize("name", ALL)
def test_tables_and_sql_have_the_first_rows_of_the_answer(name: str, analysed_once: None) -> None:
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
        if name in SHARED:  # test_steady.py asks them, and many others, in SQL
            continue
        (cells,) = json.loads(said(name, "query", "FILES", f"slowest {what}", "--top", "1", "--format", "json"))
        assert (cells[column], cells["kernel_ms"]) == (row["name"], pytest.approx(row["ns"] / 1e6, abs=0.002)), what


@pytest.mark.parametrize("name", ALL)
def test_the_step_is_the_same_in_every_form(name: str, analysed_once: None) -> None:
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
def test_findings_are_the_same_in_every_form(name: str, analysed_once: None) -> None:
    page, comment = (said(name, "report", "FILES", "--format", form, "-q") for form in ("html", "markdown"))
    findings = [finding["id"] for finding in document(name)["findings"]]
    assert [id_ for id_ in findings if f"docs/findings.md#{id_}" not in page or f"(`{id_}`)" not in comment] == []


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


# -- The pages of report and compare: valid, accessible, alone, small; whatever the run holds.


PRINTED = str(ROOT / "traces" / "alexnet-b1-train" / "run.log")
ANSWER = ROOT / "timeline" / "mio2trace" / "answer"


made = partial(printed, "report", "--format", "html", "-q")


def hostile(length: int = 4000) -> str:
    """A name that is markup, steers, is in many scripts and long."""
    return "</title><script>alert(1)</script>\"'&<b>\x1b[31m\u202e漢字" * (length // 40)


RANK = RankTotal(
    place=0, collectives=9, collective_ns=10**7, transfer_ns=5, wait_ns=10**6, skew_ns=1.0, times_arrived_last=3,
    late_ns=10**5, made_late_by="conv", made_late_ns=0,
)  # fmt: skip


def node(kind: Any, name: str, *parts: Node) -> Node:
    inside = {(part.kind, f"{at}"): part for at, part in enumerate(parts)}
    return Node(kind=kind, name=name, total_ns=9 * 10**8, parts=inside)


def large(sections: int = 1, *, name: str = "", log: int = 200) -> Report:
    """A report with far more of everything than is shown."""
    parts = tuple(
        Part(primitive=word, helps=helps, ns=10**6) for word in ("conv", "bnorm", "") for helps in (True, False)
    )
    found = Found(
        ns=10**6, share=0.2, count=5, number=f"5 {name}.", scope=(name,) * 500, drivers=(f"driver {name}",) * 99
    )
    section = Section(
        name=f"run {name}",
        verdict=f"1 ms {name[:400]}",
        iterations=9,
        kernel_ns=10**9,
        step=StepTime(
            device=0, step_ns=2 * 10**9, compute_ns=10**9, communication_ns=0, copy_ns=0, unrecorded_ns=0,
            idle_ns=10**9, steps_ns=(2 * 10**9,), windows=(),
        ),
        copy_ns=10**6,
        first="first iteration 6,734 ms, then 55 ms",
        searches="5 searches ran 3 ms of kernels",
        parts=parts,
        findings=tuple(Finding(rule=rule, severity="high", found=found) for rule in RULES * 3),
        thumbnail=Thumbnail(
            span_ns=10**10,
            busy={kind: [0.123456] * 240 for kind in ("search", "setup", "first", "steady", "copies")},
            iterations=tuple((n, n / 50, (n + 0.9) / 50, n > 0) for n in range(50)),
        ),
        layers=tuple(
            LayerRow(name=f"{name}{n}", direction="forward", ns=10**6, host_ns=5, parts=parts)
            for n in range(250)
        ),
        tree=tuple(
            node("layer", f"{name}{n}", *[node("operation", name, node("kernel", name)) for _ in range(20)])
            for n in range(60)
        ),
        no_layer=Rest(name="in no layer", ns=10**6, share=0.3),
        operations=tuple(OperationRow(name=name, layer="", calls=1, ns=10) for _ in range(250)),
        problems=tuple(
            ProblemRow(
                name=f"{name}{n}", primitive="conv", calls=2.5, ns=10**6, share=0.001, gflops=123.456, solver=name,
                driver=f"driver {name}", of_peak=0.5, bound="memory", saved_ns=5, intensity=10.0**n if n < 9 else 1.0,
            )
            for n in range(250)
        ),
        kernels=tuple(KernelRow(name=f"{name}{n}", calls=100, ns=10**6) for n in range(250)),
        durations=tuple(Duration(below_ns=1 << bits, count=10, ns=10**5) for bits in range(1, 36)),
        gpu=GPUS["MI300X"],
        dtypes=("float", "half"),
        log=tuple(("error", 5, f"{name}{n}") for n in range(log)),
        waiting=f"ranks wait {name}",
        ranks=((name, msgspec.structs.replace(RANK, made_late_by=name)),) * 250,
        trust=(("Iterations", name),),
    )  # fmt: skip
    several = [msgspec.structs.replace(section, name=f"rank {number} {name}") for number in range(sections)]
    return Report(title=name or "run", generator="mio2trace 0", sections=tuple(several), inputs=("log",) * 99)


def side(*, slower: float = 1.0, name: str = "", times: int = 1) -> Side:
    """Three runs, the largest problem ``slower``, what is named in it with ``name`` before it, ``times`` as much."""
    record, replace = recorded(), msgspec.structs.replace
    first = largest(record).name

    def change(part: RunPart) -> RunPart:
        part = replace(part, name=f"{name}{part.name}", command=f"driver {name}")
        if slower == 1 or part.name != f"{name}{first}":
            return part
        naive = (Inside(name=f"naive {name}", count=1, ns=5, naive=True),)
        return replace(part, mean_ns=part.mean_ns * slower, solvers=(f"solver {name}",), kernels=naive)

    many = [replace(part, name=f"{part.name}{copy or ''}") for copy in range(times) for part in record.parts]
    made = noisy(replace(record, parts=tuple(many)), 3, round(10 * slower), change)
    return Side(name=f"side {name}", runs=made.runs)


def compared(first: Side, *others: Side) -> str:
    return comparison_page([Comparison(first, other) for other in others], "mio2trace 0")


def fleet(name: str, times: int = 4) -> str:
    """``times`` runs in each of three versions; everything that can have a name has it."""
    versions = tuple(f"{number} {name}" for number in range(3))
    row = {
        "device": name, "iterations": 5, "kernel_ms": 1.5, "kernels": 9, "find_percent": 2.5, "slowest_problem": name,
        "problem": name, "primitive": "conv", "command": name, "before": versions[0], "version": versions[1],
        "before_ms": 1.0, "ratio": 2.0, "costs_ms": 1.0, "clear": True, "solvers": name, "usual_ms": 1.0,
        "deviations": 9.0, "error": name, "seconds": 2.5, "id": "idle", "severity": "high", "ms": 1.0,
        "worst_run": name, "worst_ms": 2.0, "advice": name,
    }  # fmt: skip
    each = range(times)
    runs = [
        {**row, "run": f"{version}/run {number}", "rank": number % 2, "version": version}
        for version in versions
        for number in each
    ]
    problems = [
        {**row, "problem": f"{at} {name}", "version": version, "ns": 1e6 * (at + 1)}
        for at in each
        for version in versions
    ]
    iterations = [
        {**run, "iteration": at, "steady": at > 0, "ns": 1000 * (9 - at)} for run in runs for at in range(5 * times)
    ]
    made = Fleet(
        name=name,
        versions=versions,
        runs=runs,
        by_version=problems,
        problems=problems,
        regressions=[{**row, "clear": at % 2 == 0, "runs": "5 / 5"} for at in each],
        outliers=[{**run, "runs": 5} for run in runs],
        iterations=iterations,
        failures=[{**row, "run": name}] * times,
        odd=[{**row, "runs": 3}] * times,
    )
    return fleet_page(made, "mio2trace 0")


PAGES: dict[str, Callable[[], str]] = {
    "rocpd": lambda: made(*LENET, "--gpu", "MI300X"),
    "dv/dt": lambda: made(*ALEXNET),
    "log alone": lambda: made(ALEXNET[0]),
    "hostile": lambda: page(large(name=hostile())),
    "several": lambda: page(large(4, name="conv")),
    "compare": lambda: compared(side(), side(slower=1.6)),
    "compare printed times": lambda: compared(*2 * [compared_side([PRINTED], OPTIONS, Notes())]),
    "compare long names": lambda: compared(*(Side(name=name * 20, runs=side().runs) for name in ("run.log,", "a.db,"))),
    "fleet": lambda: fleet("conv"),
    "fleet hostile": lambda: fleet(hostile()),
    "compare hostile": lambda: compared(side(name=hostile()), side(name=hostile(4100)), side(slower=2)),
}


OTHERS = [kind for kind in PAGES if kind != "rocpd"]


@functools.cache
def written(kind: str) -> str:
    return PAGES[kind]()


@pytest.fixture(scope="module", params=PAGES)
def text(request: pytest.FixtureRequest) -> str:
    """A page of each kind."""
    return written(str(request.param))


@pytest.fixture(scope="module")
def tree(text: str) -> Any:
    """The page as a strict parser of HTML 5 reads it, which finds nothing wrong."""
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)


# -- what is written -------------------------------------------------------------------------------------------------


def test_the_page_is_valid_html(tree: Any) -> None:
    """A strict parser of HTML 5 finds nothing wrong; it can."""
    assert [str(part.tag).rpartition("}")[2] for part in tree] == ["head", "body"]
    with pytest.raises(html5lib.html5parser.ParseError):
        html5lib.HTMLParser(strict=True).parse(written("rocpd").replace("</table>", "</tabel>", 1))


def test_what_a_mark_is_coloured_by_has_a_colour(text: str) -> None:
    style = (ANSWER / "page.css").read_text("utf-8")
    classes = set(re.findall(r'<(?:rect|path|circle) class="(\w+)"', text))
    assert {name for name in classes if f".{name}{{" not in style and f".{name}," not in style} <= {"band"}
    assert "other" not in map(colour, PURPOSES)  # grey parts beside each other look like one part


def test_the_page_asks_for_nothing_and_runs_nothing(text: str, tree: Any) -> None:
    """No script, no handler, no address but places in it; the policy forbids the rest."""
    tags = {str(element.tag).rpartition("}")[2] for element in tree.iter()}
    assert not tags & {"script", "img", "iframe", "object", "embed", "video", "audio", "form", "foreignObject", "base"}
    for element in tree.iter():
        for key, value in element.attrib.items():
            assert not str(key).lower().startswith("on"), (element.tag, key)
            if str(key).rpartition("}")[2] in ("href", "src", "action", "data"):
                assert value.startswith("#") or value == "data:,", value
    style = "".join(tree.find(".//style").itertext())
    assert re.findall(r"url\(([^)]*)\)", style) == ["#hatch"]
    assert "@import" not in style
    assert "default-src 'none'" in text


def test_the_page_can_be_read_by_all(tree: Any) -> None:
    """Language, one first heading, no level left out, heads of tables with scope, pictures with a name, ids once."""
    assert tree.attrib["lang"] == "en"
    levels = [int(element.tag[1]) for element in tree.iter() if re.fullmatch(r"h[1-6]", str(element.tag))]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert all(element.attrib.get("scope") for element in tree.iter("th"))
    assert all(element.find("caption") is not None for element in tree.iter("table"))
    pictures = [one for one in tree.iter() if str(one.tag).endswith("svg") and one.attrib.get("aria-hidden") != "true"]
    assert all(one.attrib["role"] == "img" and one.attrib["aria-label"] for one in pictures)
    ids = [element.attrib["id"] for element in tree.iter() if "id" in element.attrib]
    assert len(set(ids)) == len(ids)
    links = [element.attrib["href"][1:] for element in tree.iter("a")]
    assert links
    assert set(links) <= set(ids)


@pytest.mark.parametrize(
    ("name", "sections"), [("conv", 1), (hostile(), 4), pytest.param("&" * 2000, 4, marks=pytest.mark.thorough)]
)
def test_the_page_is_small_for_any_run(name: str, sections: int) -> None:
    """At most 150 KB, whatever is in it, of a run, of many runs or of a comparison; something of each table is shown,
    and of a comparison the slower problem first."""
    assert LIMIT == 150_000
    assert len(fleet(name, 40).encode()) <= LIMIT
    text = page(large(sections, name=name))
    assert len(text.encode()) <= LIMIT
    shown = text.count("<article") or 1
    assert text.count("<table>") >= 3 * shown
    assert shown == sections or f"{sections - shown} run" in text

    text = compared(side(name=name, times=8), *[side(slower=1.8, name=name, times=8)] * sections)
    assert len(text.encode()) <= LIMIT
    shown = text.count("<article") or 1
    assert shown == sections or f"{sections - shown} side" in text
    assert text.count("What changed</h") == shown
    first = text.partition('id="' + ("run-1-" if sections > 1 else "") + 'what-changed"')[2].partition("</tr>")[2]
    assert '<b class="severity">slower</b>' in first.partition("</tr>")[0]


@pytest.mark.parametrize("sections", [1, 4])
@pytest.mark.parametrize("name", ["conv", hostile(), "x" * 5000, "|`*" * 2000])
def test_markdown_fits_into_a_comment(name: str, sections: int) -> None:
    """Fewer than 60,000 characters, with the first run's tables whole."""
    text = comment(large(sections, name=name))
    assert len(text) < MARKDOWN_LIMIT == 60_000
    assert text.count("| --- |") >= 3


def test_markdown_has_no_markup_of_others() -> None:
    """A name cannot open an element, a link or a table's cell."""
    text, blocks = re.subn(
        r"^```sh\n.*?^```$", "", comment(large(name="<img src=x> [a](http://b) | `c` ```")), flags=re.M | re.S
    )
    assert blocks == 1
    assert "<img" not in text
    assert re.search(r"(?<!\\)\]\(", text) is None
    for line in text.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (4, 5, 6, 7, 8), line


def _colours(block: str) -> dict[str, list[int]]:
    found = {}
    for name, value in re.findall(r"--(\w+):#([0-9a-f]{3,6})\b", block):
        digits = "".join(2 * digit for digit in value) if len(value) == 3 else value
        found[name] = [int(digits[at : at + 2], 16) for at in (0, 2, 4)]
    return found


def _contrast(one: list[int], other: list[int]) -> float:
    """As WCAG 2 computes it."""

    def luminance(colour: list[int]) -> float:
        linear = [part / 3294.6 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_can_be_told_from_the_paper(dark: bool) -> None:
    """4.5 for text, also on shade; 3 for what is drawn; in light and dark."""
    light, _, rest = (ANSWER / "page.css").read_text("utf-8").partition("@media(prefers-color-scheme:dark)")
    colours = _colours(light) | (_colours(rest.partition("}}")[0]) if dark else {})
    drawn = "conv gemm bnorm pool activ rnn softmax tensor other collective copies search"
    for names, papers, least in (
        ("ink faint link high medium low info", ("paper", "shade"), 4.5), (drawn, ("paper",), 3),
    ):  # fmt: skip
        for name, paper in itertools.product(names.split(), papers):
            assert _contrast(colours[name], colours[paper]) >= least, name


def with_changes(**changes: Any) -> str:
    """The page of a report whose run has other fields."""
    report = large()
    return page(msgspec.structs.replace(report, sections=(msgspec.structs.replace(report.sections[0], **changes),)))


def test_commands_in_advice_are_code() -> None:
    """The page does not show the backticks of a terminal."""
    rule = next(rule for rule in RULES if rule.advice.startswith("Look at `mio2trace "))
    found = large().sections[0].findings[0].found
    text = with_changes(findings=(Finding(rule=rule, severity="low", found=found),))
    assert "<code>mio2trace " in text
    assert "`" not in text


@pytest.mark.parametrize(("iterations", "label"), [(9, "steady iterations"), (0, "kernels")])
def test_the_picture_of_a_run_without_iterations_has_kernels(iterations: int, label: str) -> None:
    assert re.search(rf"</svg>{label} [\d,.]+ ms", with_changes(iterations=iterations))


# -- in a browser ----------------------------------------------------------------------------------------------------


def axe() -> Any:
    """The accessibility checker."""
    from axe_playwright_python.sync_playwright import Axe

    return Axe()


@contextlib.contextmanager
def opened(browser: Any, text: str, folder: Path, scheme: str = "light") -> Iterator[Any]:
    """A page in the session's browser, of which a process has no second, without a network."""
    path = folder / "report.html"
    path.write_text(text, "utf-8")
    size = {"width": 1000, "height": 800}
    context = browser.chromium.new_context(color_scheme=scheme, offline=True, bypass_csp=True, viewport=size)
    tab = context.new_page()
    asked: list[str] = []
    said: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.goto(path.as_uri())
    yield tab
    context.close()
    assert (asked, said) == ([path.as_uri()], [])


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind", ["rocpd", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in OTHERS)])
def test_the_page_is_accessible_and_alone(browser: PerfettoUI, kind: str, tmp_path: Path, scheme: str) -> None:
    """Nothing is asked for, nothing complained of, axe finds no violation, nothing sticks out."""
    with opened(browser, written(kind), tmp_path, scheme) as tab:
        for width in (1000, 400):
            tab.set_viewport_size({"width": width, "height": 800})
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
        found = axe().run(tab).response["violations"]
    assert [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found] == []


@pytest.mark.browser
@pytest.mark.thorough
def test_axe_can_find_something(browser: PerfettoUI, tmp_path: Path) -> None:
    text = written("dv/dt").replace('lang="en"', "").replace("--faint:#57606a", "--faint:#c0c0c0")
    with opened(browser, text, tmp_path) as tab:
        found = {one["id"] for one in axe().run(tab).response["violations"]}
    assert found >= {"html-has-lang", "color-contrast"}


@pytest.mark.shared
def test_processes_of_a_job_have_a_section_each() -> None:
    job = shared_folder() / "samples" / "rocm-twins" / "resnet-immediate-2ranks"
    text = made(*sorted(job.glob("run.rank*.log")), *sorted((job / "rocpd").glob("4*.db.gz")))
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", text) == ["rank 0", "rank 1"]
    assert len(text.encode()) <= LIMIT


@pytest.mark.parametrize(
    ("files", "title"),
    [
        (("step_0.json", "step_1.json"), "step: 2 processes"),
        (("folder/step_0.json", "other/step_1.json"), "step: 2 processes"),
        (("a.json", "b.json"), "2 processes"),
    ],
)
def test_the_title_of_a_job_is_that_of_all_its_files(files: tuple[str, ...], title: str, tmp_path: Path) -> None:
    for rank, name in enumerate(files):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        data = trace(rows(FIRST_US + 7 * rank), distributedInfo={"backend": "nccl", "rank": rank, "world_size": 2})
        path.write_bytes(data.replace(b"542", b"%d" % (542 + rank)))
    assert re.search(f"<h1>{title}</h1>", made(*(tmp_path / name for name in files))) is not None


def test_a_histogram_of_few_columns_is_not_enlarged() -> None:
    """A column is as wide as in a histogram of many, and its label as wide as the column."""
    for bits, columns in ((13, 4), (30, 21)):
        text = with_changes(
            durations=tuple(
                Duration(below_ns=1 << one, count=1, ns=1 if one < bits else 10**9) for one in range(11, bits + 1)
            )
        )
        width = str(56 * columns)
        assert re.findall(r'<svg class="columns" width="(\d+)" viewBox="0 0 (\d+) \d+"', text) == [(width, width)]
        assert ">&lt; 0.1 %<" in text
        assert ">under 0.1 %<" not in text


# -- Percentages of a step whose length is not known for all steps: what is in one mean is in the other.


@pytest.mark.parametrize("last_ms", [10, 11, 14])
def test_a_percentage_is_the_time_beside_it_over_the_step(last_ms: int) -> None:
    """Each step takes 20 ms and is idle for 5 of them; the end of the last one is not known, so it does not count."""

    def each(ms: int) -> list[Ran]:
        return [Ran("a", ms * MS), Ran("b", 5 * MS, after_ns=5 * MS)]

    made = in_no_pass(measures({1: [*each(10), *each(10), *each(10), *each(last_ms)]}))
    section = of_profile(Subject(made), "run")
    assert (made.steady.told.told_by, section.iterations, section.step_ns) == ("repetition", 3, 20 * MS)
    shares = {row.name: (row.ns, section.share(row.ns)) for row in section.kernels}
    assert shares == {"a": (10 * MS, 0.5), "b": (5 * MS, 0.25)}


def test_a_log_of_searches_alone_names_what_they_are_for(tmp_path: Path) -> None:
    """`1 search in the log` tells nothing."""
    log = tmp_path / "run.log"
    sought = [
        f"MIOpen(HIP): Command [LogCmdFindConvolution] ./bin/MIOpenDriver conv -n {batch} -c 64 -H 56 -W 56 -k 64 -y 3"
        " -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1\n"
        for batch in (32, 8)
    ]
    log.write_text(sought[0])
    assert "1 search in the log for 1 problem, Conv fwd 32x64x56x56 k3x3 p1; no profile" in run(str(log), "-q")
    log.write_text("".join(sought))
    assert "2 searches in the log for 2 problems, first Conv fwd 32x64x56x56 k3x3 p1; no profile" in " ".join(
        run(str(log), "-q").split()
    )


def test_names_without_a_time_beside_them_have_the_whole_line(tmp_path: Path) -> None:
    """The place of the times was empty, and the end of the names cut off."""
    log = tmp_path / "run.log"
    sizes = "-n 256 -c 1024 -H 14 -W 14 -k 2048 -y 1 -x 1 -p 0 -q 0 -u 2 -v 2 -l 1 -j 1 -m conv -g 1 -F 2 -t 1"
    log.write_text(f"MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 {sizes}\n")
    name = "Conv bwd data 256x1024x14x14 -> 256x2048x7x7 k1x1 s2 half x 1"
    assert f"operations  {name}\n" in run(str(log), "-q")


def test_a_log_alone_names_its_machine(tmp_path: Path) -> None:
    """The device, HIP and MIOpen are in lines of its first calls; a profile names its device better."""
    log = tmp_path / "miopen.log"
    log.write_text(
        "MIOpen(HIP): Info [get_device_name] Raw device name: gfx942:sramecc+:xnack-\n"
        "MIOpen(HIP): Info [AmdRocmMetadataVersionDetect] ROCm MD version AMDHSA_COv3, HIP version 7.2.26015, MIOpen"
        " version 3.5.1.5b515cf1bc\n"
        "MIOpen(HIP): Command [LogCmdFindConvolution] ./bin/MIOpenDriver conv -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3"
        " -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1\n"
    )
    assert run(str(log), "-q").startswith("gfx942 · HIP 7.2.26015 · MIOpen 3.5.1.5b515cf1bc\n")
    document = json.loads(run(str(log), "-q", "--format", "json"))
    assert document["runs"][0]["machine"] == "gfx942 · HIP 7.2.26015 · MIOpen 3.5.1.5b515cf1bc"
    libraries = analyse([log]).run.libraries
    profile = Mock(devices=[Mock()])
    for name, shown in (("AMD Instinct MI300X", "AMD Instinct MI300X"), ("GPU 0 (TensorFlow)", "gfx942")):
        profile.devices[0].name = name
        assert machine(profile, libraries).startswith(f"{shown} · HIP 7.2")


def test_a_log_with_a_profile_that_lost_its_kernels_says_what_is_missing(tmp_path: Path) -> None:
    """In every form, as the tables do."""
    path = kineto_file(tmp_path, [launched(1, 10, 5)[0], row("user_annotation", "x", 542, 542, FIRST_US, 900)])
    path.write_bytes(path.read_bytes()[:-40])
    files = [str(path), ALEXNET[0]]
    missing = "PROFILE INCOMPLETE: 1 file cut off, 1 launch without its kernel"
    for form in ("text", "markdown", "html"):
        assert missing in run(*files, "--format", form, "-q")
    (section,) = json.loads(run(*files, "--format", "json", "-q"))["runs"]
    assert section["completeness"] == {"complete": False, "counts": {"cut-off": 1, "launch-without-kernel": 1}}
    assert section["verdict"].endswith("; no kernel in the profile, so no times of kernels.")


@pytest.mark.parametrize(("us", "streams", "said"), [(400, 2, False), (700, 2, False), (600, 8, True)])
def test_shares_above_100_percent_are_explained(us: int, streams: int, said: bool, tmp_path: Path) -> None:
    """Kernels of one name on several streams take more time than the step."""
    events = [row("user_annotation", f"ProfilerStep#{at}", 542, 542, FIRST_US + 1000 * at, 999) for at in range(4)]
    for step, stream in itertools.product(range(4), range(streams)):
        events += launched(10 * step + stream, 1000 * step + 10, us, "k" if said else f"k{stream}", stream=stream)
    path = kineto_file(tmp_path, events)
    assert (" of overlapping kernels (" in " ".join(run(path, "-q").split())) is (streams * us > 1000)
    why = "ernels overlap, so a share may exceed 100 %"
    assert (why in run(path, "-q")) is said
    for form in ("markdown", "html"):  # they show what all kernels of one kind take
        assert (why in run(path, "--format", form, "-q")) is (streams * us > 1000)


@pytest.mark.parametrize(("start", "shown"), [(20, "overlapping kernels"), (600, "kernels")])
def test_kernels_that_overlap_without_steps_are_called_so(start: int, shown: str, tmp_path: Path) -> None:
    """Their sum is more than the recording: `0.795 ms of kernels` was above `compute 0.299 ms 99.2 %`."""
    path = kineto_file(tmp_path, [*launched(1, 10, 500, "a"), *launched(2, start, 500, "b", stream=8)])
    assert f"1.000 ms of {shown}; no iterations are known." in run(path, "-q")


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_a_log_alone_has_printed_times_and_no_shares(form: str) -> None:
    """Every form shows the times of its layers; no kernel is known, so no percentage of kernel time either."""
    shown = run(LENET[0], "--format", form, "-q")
    slowest = json.loads(run(LENET[0], "--format", "json", "-q"))["runs"][0]["layers"][0]
    assert f"{slowest['ns'] / 1e6:.3f}" in shown
    assert not [words for words in ("kernels overlap", "of the kernel time", "in all; %", "cumul. %") if words in shown]


def test_kernels_of_searches_are_counted_beside_those_with_a_layer() -> None:
    folder = ROOT / "traces" / "lenet-rocpd"
    said = printed("report", folder / "run.log.gz", folder / "results.db.gz", "--format", "markdown", "-q")
    assert "35 of 59 kernels have a layer (range); 24 ran in searches." in said
