"""``mio2trace messages``: what MIOpen's logs say, and the errors and warnings that other outputs are given."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mio2trace.analysis import AnalysisOptions, analyse
from mio2trace.commands.tables import SUBJECT_WORDS
from mio2trace.model.miopen import Message, MiopenLog
from mio2trace.ops.log import statements
from mio2trace.ops.log.level_lines import find_db_key, perf_db_values
from mio2trace.ops.log.statements import Alarm, Statement, alarms, state
from mio2trace.privacy import Cleaner
from mio2trace.readers.miopen.lines import ERRORS, KINDS, SUBJECTS, WARNINGS, classify
from tests.commands import invoked, json_of
from tests.often import present, saved

CONFIG = "3x224x224x7x7x64x112x112x16xNCHWxFP32x3x3x2x2x1x1x1xF"
KEY = "3-224-224-7x7-64-112-112-16-3x3-2x2-1x1-0-NCHW-FP32-F"
PROBLEM = find_db_key(KEY)
SEARCH = f"""\
MIOpen(HIP): Info [FindConvFwdAlgorithm] requestAlgoCount = 1, workspace = 7375872
MIOpen(HIP): Info2 [FindRecordUnsafe] Looking for key {KEY} in file x
MIOpen(HIP): Info2 [SearchForAllSolutions] ConvBinWinograd3x3U: Not applicable
MIOpen(HIP): Info2 [SearchForAllSolutions] ConvAsm1x1U: Not applicable
MIOpen(HIP): Info [EvaluateInvokers] GemmFwdRest: : 3.13128 < 3.40282e+38
MIOpen(HIP): Info [EvaluateInvokers] ConvDirectNaiveConvFwd: naive_conv_fwd_nchw_float_double_float: 34.9 >= 3.13128
MIOpen: Warning [IsEnoughWorkspace] [EvaluateInvokers] Solver <C<3-4>>, workspace required: 90, provided ptr: 0 size: 8
MIOpen(HIP): Info [FillFindReturnParameters] FW Chosen Algorithm: GemmFwdRest , 7375872, 3.13128
MIOpen(HIP): Info2 [Unheard] of
[rank0]: MIOpen Error: gpu-box:/src/ocl_kernel.cpp:81: Running kernel failed: 7
[rank1]: MIOpen Error: gpu-box:/src/ocl_kernel.cpp:81: Running kernel failed: 8
"""


@pytest.fixture
def log(tmp_path: Path) -> str:
    return str(saved(tmp_path / "run.log", SEARCH))


def read(*files: str | Path, everything: bool = False) -> tuple[list[MiopenLog], list[str]]:
    """The logs of ``files`` and the notes on them."""
    analysis = analyse(list(map(str, files)), AnalysisOptions(join=False, every_message=everything))
    logs = [one for file in analysis.inputs for one in file.records if isinstance(one, MiopenLog)]
    return logs, list(map(str, analysis.notes))


shown = partial(json_of, "messages", "-q")


def parts(rows: Sequence[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row.get(name) for name in names) for row in rows]


def test_a_search_is_shown_with_its_candidates_times_and_workspaces(log: str) -> None:
    rows = shown(log, "--about", "search,warnings")
    assert parts(rows, "kind", "count", "line", "solver", "outcome", "ms", "workspace_bytes", "given_bytes") == [
        ("workspace warning", 1, 7, "C<3-4>", "too little", None, 90, 8),
        ("search", 1, 1, None, "begins", None, None, 7375872),
        ("candidate", 2, 3, ["ConvBinWinograd3x3U", "ConvAsm1x1U"], "not applicable", None, None, None),
        ("benchmark", 1, 5, "GemmFwdRest", "best so far", 3.13128, None, None),
        ("benchmark", 1, 6, "ConvDirectNaiveConvFwd", "slower", 34.9, None, None),
        ("chosen", 1, 8, "GemmFwdRest", "chosen", 3.13128, 7375872, None),
    ]
    assert {row["problem"] for row in rows} == {"Conv fwd 16x3x224x224 -> 16x64x112x112 k7x7 s2 p3"}


def test_a_key_is_shown_as_a_problem_with_its_driver_line(log: str) -> None:
    (row,) = shown(log, "--about", "problems")
    assert (row["key"], row["problem"]) == (KEY, "Conv fwd 16x3x224x224 -> 16x64x112x112 k7x7 s2 p3")
    assert row["command"].startswith("./bin/MIOpenDriver conv -n 16 -c 3 -H 224 -W 224 -k 64 -y 7 -x 7 -p 3 -q 3 -u 2")


def test_a_time_that_the_driver_prints_belongs_to_its_command_and_direction(tmp_path: Path) -> None:
    """Times of different problems were one message, with the least of them, and under no problem."""
    conv, time = "MIOpenDriver conv -n 2 -c 4 -H {} -W 8 -k 6 -y 3 -x 3 -F {} -t 1", "GPU Kernel Time{} Elapsed: {} ms"
    lines = [conv.format(9, 1), time.format(" Forward Conv.", 5), conv.format(7, 0)]
    for ms, way in enumerate(("Forward", "Backward Data", "Backward Weights"), 1):
        lines += [f"MIOpen {way} Conv. Algorithm: 1, Solution: 9/Solver{ms}", time.format(f" {way} Conv.", ms)]
    lines.append("MIOpenDriver rnn -n 2 -W 8 -H 8 -l 1 -m lstm -k 3 -F 0 -t 1")
    lines += ["Forward RNN time results:", time.format("", 7), "Backward Data RNN time results:", time.format("", 8)]
    path = saved(tmp_path / "driver.log", "\n".join([*lines, ""]))
    rows = shown(path, "--about", "calls")
    assert parts([row for row in rows if "ms" in row], "problem", "ms", "count") == [
        ("Conv fwd 2x4x9x8 -> 2x6x7x6 k3x3", 5, 1), ("Conv fwd 2x4x7x8 -> 2x6x5x6 k3x3", 1, 1),
        ("Conv bwd data 2x4x7x8 -> 2x6x5x6 k3x3", 2, 1), ("Conv bwd weights 2x4x7x8 -> 2x6x5x6 k3x3", 3, 1),
        ("RNN fwd 3x2x8 lstm", 7, 1), ("RNN bwd data 3x2x8 lstm", 8, 1),
    ]  # fmt: skip
    solvers = [row.get("solver") for row in json_of("ops", "-q", path)]
    assert solvers == [None, "Solver1", "Solver2", "Solver3", None, None, None]


def test_a_narrow_terminal_shows_the_kind_and_the_words_of_each_message(log: str) -> None:
    """Beside a wide problem."""
    heading, *lines = invoked("messages", log, "--format", "table", "-q", COLUMNS="80").stdout.splitlines()
    assert (heading.split()[0], heading.split()[-1]) == ("kind", "text")
    assert "gpu-box:" in lines[0]


def test_errors_come_first_and_what_is_of_no_known_kind_last(log: str) -> None:
    rows = shown(log)
    assert parts(rows[:1], "subject", "count", "line", "text") == [
        ("errors", 2, 10, "gpu-box:(path):81: Running kernel failed: 7")
    ]
    assert parts(rows[-1:], "subject", "kind", "text") == [("others", "other", "of")]
    assert sum(row["count"] for row in rows) == len(SEARCH.splitlines())


def test_an_error_of_the_library_behind_the_text_of_others_is_its_own(log: str) -> None:
    texts = (
        "[rank0]: MIOpen Error: a", "  MIOpen Error: b", "terminate called: what():  MIOpen Error: c",
        "\x1b[31mMIOpen Error: d", "2026-01-01 10:00:00,123 - ERROR - MIOpen Error: e",
    )  # fmt: skip
    Path(log).write_text(SEARCH.splitlines(True)[0] + "".join(f"{text}\nepoch 1\n" for text in texts))
    (found,), notes = read(log)
    assert [one.text for one in found.records if isinstance(one, Message) and one.level == "Error"] == list("abcde")
    assert found.foreign == len(texts)
    assert "5 x error in MIOpen's log (run.log:2, run.log:4, run.log:6, ...)" in notes


@pytest.mark.parametrize(
    ("line", "kind", "text"),
    [
        ("Backward Convolution Weights Failed: 0.9 > 2e-05", "verification failed", ""),
        ("Memory access fault by GPU node-1 (Agent handle: 1). Reason: Page", "crash", ""),
        ("/bin/sh: line 1: 77 Aborted (core dumped)", "crash", "Aborted (core dumped)"),
        ("free(): invalid pointer", "crash", ""),
        ("RuntimeError: miopenStatusUnknownError", "crash", "miopenStatusUnknownError"),
        ("RuntimeError: HIP error: out of memory", "crash", "HIP error: out of memory"),
        ("/tmp/x/y.hpp:151:10: fatal error: 'type_traits' file not found", "compiler error", None),
        ("1 error generated when compiling for gfx1151.", "compiler error", ""),
        *((line, "", "") for line in ("epoch 1: error: 0.5", "12 files generated", "no MIOpenError: x", "x")),
        *((line, "", "") for line in ("miopenStatusSuccess", "It Failed: x")),
    ],
)
def test_what_went_wrong_without_a_level_is_an_error(log: str, line: str, kind: str, text: str | None) -> None:
    """And what only sounds like one is none."""
    Path(log).write_text(SEARCH.splitlines(True)[0] + f"{line}\n")
    (found,), _ = read(log)
    assert bool(alarms(found)) == bool(kind)
    if kind:
        last = found.records[-1]
        assert isinstance(last, Message)
        assert (last.level, last.kind, last.line, found.foreign) == ("Error", kind, 2, 0)
        assert text is None or last.text == (text or line)


def test_alarms_are_counted_with_the_first_line_of_each(log: str) -> None:
    (found,), _ = read(log)
    workspace = "[EvaluateInvokers] Solver <C<3-4>>, workspace required: 90, provided ptr: 0 size: 8"
    assert [tuple(getattr(one, name) for name in Alarm.__struct_fields__) for one in alarms(found)] == [
        ("error", "error", 2, 10, "gpu-box:(path):81: Running kernel failed: 7", ""),
        ("warning", "workspace warning", 1, 7, workspace, "IsEnoughWorkspace"),
    ]


def test_the_progress_of_tuning_is_no_warning(log: str) -> None:
    Path(log).write_text(
        "MIOpen(HIP): Warning [Monitor] 102/0/390 0.0129282, best within recent 103: 0.0129282 #92 1,8, ETA:8 sec.\n"
        "MIOpen(HIP): Error [FindSolutionImpl] Search failed for: ConvAsm1x1U: x.hpp:555: Search failed\n"
    )
    (found,), notes = read(log)
    assert [(one.kind, one.line) for one in alarms(found)] == [("search failed", 2)]
    assert notes == ["error in MIOpen's log (run.log:2)"]


@pytest.mark.parametrize(
    ("kind", "function", "text", "stated"),
    [
        ("result", "FindConvolution", "miopenConvolutionFwdAlgoGEMM\t3.13\t7375872",
         Statement(algorithm="miopenConvolutionFwdAlgoGEMM", outcome="best of its algorithm", time_ms=3.13,
                   workspace_bytes=7375872)),
        ("selected", "EvaluateInvokers", "Selected: GemmFwdRest: : 6.8, workspce_sz = 10",
         Statement(solvers=("GemmFwdRest",), outcome="selected", time_ms=6.8, workspace_bytes=10)),
        ("selected", "EvaluateInvokers", "Selected: ConvDirectNaiveConvFwd: naive_conv_fwd_nchw_flo",
         Statement(solvers=("ConvDirectNaiveConvFwd",), outcome="selected", kernels="naive_conv_fwd_nchw_flo")),
        # of 2025 and 2026
        ("benchmark", "EvaluateInvokers", "solution(current vs best):ConvX: kernel1/kernel2: 0.5 >= 0.25",
         Statement(solvers=("ConvX",), outcome="slower", kernels="kernel1/kernel2", time_ms=0.5)),
        ("benchmark", "EvaluateInvokers", "Evaluating Solver: miopenConvolutionFwdAlgoGEMM:GemmFwdRest",
         Statement(solvers=("GemmFwdRest",), algorithm="miopenConvolutionFwdAlgoGEMM", outcome="tried")),
        ("benchmark", "EvaluateInvokers", "Skipping (Slow) Solver: miopenConvolutionFwdAlgoDirect:ConvX 2.5 > 1.5",
         Statement(solvers=("ConvX",), algorithm="miopenConvolutionFwdAlgoDirect", outcome="skipped", time_ms=2.5)),
        ("benchmark", "EvaluateInvokers", "Skipping Naive Solver: miopenConvolutionFwdAlgoDirect:ConvX",
         Statement(solvers=("ConvX",), algorithm="miopenConvolutionFwdAlgoDirect", outcome="skipped")),
        ("benchmark", "EvaluateInvokers", "Skipping last-resort (slow) Solver: miopenConvolutionFwdAlgoDirect:ConvX",
         Statement(solvers=("ConvX",), algorithm="miopenConvolutionFwdAlgoDirect", outcome="skipped")),
        ("benchmark", "FindConvolution", f"Find Start: {KEY}, findMode: NORMAL(1)",
         Statement(outcome="begins", problem=PROBLEM, key=KEY)),
        ("benchmark", "FindConvolution", f"Find Ended: {KEY}", Statement(outcome="ends", problem=PROBLEM, key=KEY)),
        ("candidate", "FindSolutionImpl", "Perf Db: record not found for: ConvAsm3x3U",
         Statement(solvers=("ConvAsm3x3U",), outcome="perf-db record not found")),
        ("candidate", "FindSolutionImpl", "ConvOclBwdWrW2 (not searchable)",
         Statement(solvers=("ConvOclBwdWrW2",), outcome="not searchable")),
        ("candidate", "FindSolutionImpl", "Not searchable: ConvOclBwdWrW2",
         Statement(solvers=("ConvOclBwdWrW2",), outcome="not searchable")),
        ("tuning", "GetAllConfigs", "ConvAsm1x1U: Searching the best solution among 390...",
         Statement(solvers=("ConvAsm1x1U",), outcome="tuning begins, 390 configurations")),
        ("tuning", "GenericSearch", "Done: 390/2/390, best #92 0.0129282 1,8",
         Statement(outcome="tuning ends, 390 configurations, 2 failed", time_ms=0.0129282)),
        ("tuning", "GenericSearch", "Done: 0/0/0, best #0 3.40282e+38 4,4",
         Statement(outcome="tuning ends, 0 configurations, 0 failed")),
        ("search failed", "FindSolutionImpl", "Search failed for: ConvAsm1x1U: x.hpp:5: Search failed",
         Statement(solvers=("ConvAsm1x1U",), outcome="search failed")),
        ("registered", "SetAsFound1_0", f"Solver GemmFwdRest registered as find 1.0 best for A in {CONFIG}",
         Statement(solvers=("GemmFwdRest",), algorithm="A", outcome="best, kept for later calls", problem=PROBLEM,
                   key=CONFIG)),
        ("invoker registered", "Register", f"Invoker registered for algorithm {CONFIG} and solver GemmFwdRest",
         Statement(solvers=("GemmFwdRest",), outcome="compiled", problem=PROBLEM, key=CONFIG)),
        ("invoker", "GetInvoker", f"Returning an invoker for problem {CONFIG[:-2]} and algorithm miopenConvFwd",
         Statement(algorithm="miopenConvFwd", problem=PROBLEM, key=CONFIG[:-2])),
        ("key found", "GetValues", f"Read record {KEY}=ConvAsmBwdWrW3x3:3,0",
         Statement(outcome="found", problem=PROBLEM, key=KEY)),
        ("key found", "FindRecordUnsafe", "Contents found: ConvAsmBwdWrW3x3:3,0,8",
         Statement(solvers=("ConvAsmBwdWrW3x3",), outcome="found")),
        ("find-db insert", "SetValues", f"{KEY}, content inserted: miopenAlgo:ConvX,0.05,12,miopenAlgo,<unused>",
         Statement(solvers=("ConvX",), algorithm="miopenAlgo", outcome="written", time_ms=0.05, workspace_bytes=12,
                   problem=PROBLEM, key=KEY)),
        ("find-db insert", "SetValues", ", content inserted: ConvBinWinogradRxSf2x3:66",
         Statement(solvers=("ConvBinWinogradRxSf2x3",), outcome="written")),
        ("solutions", "GetSolutions", "id: 91, algo: 0, time: 3.13128, ws: 7375872, name: GemmFwdRest",
         Statement(solvers=("GemmFwdRest",), outcome="known", time_ms=3.13128, workspace_bytes=7375872)),
        ("solutions", "GetSolutionsFallback", "GemmFwdRest Estimated WTI = 0.36",
         Statement(solvers=("GemmFwdRest",), outcome="estimated, 0.36 of the best possible")),
        ("workspace", "IsApplicable", "Workspace required: 20480, limit: 2000000000",
         Statement(workspace_bytes=20480, given_bytes=2000000000)),
        ("workspace", "GetWorkSpaceSize", "2709504", Statement(outcome="answered", workspace_bytes=2709504)),
        ("execution", "ConvolutionForward", "algo = 1, workspace = 5", Statement(outcome="executed", given_bytes=5)),
        ("immediate", "ConvolutionForwardImmediate", "solver_id = GemmFwdRest, workspace = 5",
         Statement(solvers=("GemmFwdRest",), outcome="executed", given_bytes=5)),
        ("driver", "MIOpenDriver", "MIOpen Backward Weights Conv. Algorithm: 5, Solution: 31/ConvX",
         Statement(solvers=("ConvX",))),
        ("driver", "MIOpenDriver", "GPU Kernel Time Forward Conv. Elapsed: 18.4 ms (average)", Statement(time_ms=18.4)),
        ("performance", "", '{"solution":"ConvX","solver_id":137,"workspace_bytes":0,"x":[{"time_ms":0.14}]}',
         Statement(solvers=("ConvX",), time_ms=0.14, workspace_bytes=0)),
    ],
)  # fmt: skip
def test_what_a_message_states(kind: str, function: str, text: str, stated: Statement) -> None:
    assert kind in {kind.name for kind in KINDS}
    if function and kind != "driver":
        level = (
            "Error" if kind == "search failed" else "Warning" if kind == "tuning" or "Find Start" in text else "Info"
        )
        assert classify(level, function, text) == kind
    assert state(Message(0, 1, "Info", function, text, kind)) == stated


def test_the_fields_of_a_perf_db_look_up_are_those_of_the_key() -> None:
    fields = "NCHW,FP32,F,2,3,224,224,1,7,7,1,64,16,3,3,0,2,2,0,1,1,0,0,1"
    assert perf_db_values(fields.replace(",2,2,0,1,1,0,0,1", ",2,2,1,1,1,1,0,1")) == present(PROBLEM)
    gradient = "12-84-116-1x1-256-84-116-2-0x0-1x1-1x1-0-NCHW-FP32-B"
    assert perf_db_values("NCHW,FP32,B,2,12,84,116,1,1,1,1,256,2,0,0,0,1,1,1,1,1,1,0,1") == find_db_key(gradient)
    assert perf_db_values("NCHW,FP32,B,2,12,84,116,1,1,1,1,256,2,0,0,0,2,2,1,1,1,1,0,1") is None


def test_the_table_of_kinds_is_whole() -> None:
    """Each kind has a subject and a source; none is told that no row is of."""
    names = {kind.name for kind in KINDS}
    assert SUBJECT_WORDS == SUBJECTS
    assert {kind.subject for kind in KINDS} == set(SUBJECTS)
    assert all(kind.documented for kind in KINDS)
    assert {*statements._FORMS, *statements._WHOLE} <= names
    assert len({(kind.name, kind.subject) for kind in KINDS}) == len(names)
    assert all(kind.kept for kind in KINDS if kind.name in ERRORS | WARNINGS)


def test_the_name_of_a_problem_is_no_secret() -> None:
    """A library writes a problem as a long word of digits, letters in capitals and ``x``."""
    trained = "64x1x112x112x16xNCHWxNCHWxFP32xFP32xFP32xFP32xFP32xFP32x0xTrnx1x1x1x0"
    for text in (CONFIG, trained, f"{CONFIG}xDefault"):
        assert Cleaner().text(f"problem {text} and") == f"problem {text} and"


LAYER_TIMES = """\
I1120 10:46:48.000001 1 caffe.cpp:1] Average time per layer:
I1120 10:46:48.000002 1 caffe.cpp:1] conv1\tforward: 1.5 ms.
"""
LOADS = "MIOpen(HIP): Warning [ParseAndLoadDb] "


@pytest.mark.parametrize(
    ("text", "strict", "code", "said"),
    [
        (SEARCH, False, 0, "2 errors: line 12: "),
        (SEARCH, True, 1, "2 x error in MIOpen's log (run.log:12, run.log:13)"),
        (SEARCH, True, 1, "warning in MIOpen's log (run.log:9)"),
        (f"{LOADS}File is unreadable: (path) gfx942.HIP.fdb.txt\n", True, 0, "1 warning"),
        (f"{LOADS}Out of room\n", True, 1, "warning in MIOpen's log (run.log:3)"),
    ],
)
def test_strict_fails_on_miopen_alarms(log: str, tmp_path: Path, text: str, strict: bool, code: int, said: str) -> None:
    """But for a database that is not there, which is said once."""
    Path(log).write_text(LAYER_TIMES + text)
    args = [log, "-o", str(tmp_path / "out.json"), *(["--strict"] if strict else [])]
    done = invoked(*args)
    assert (done.exit_code, done.stderr.count(said)) == (code, 1), done.stderr
    assert strict or " in MIOpen's log" not in done.stderr
    assert text == SEARCH or done.stderr.count("warning") == 1


@pytest.mark.shared
def test_every_record_of_the_posted_logs_is_shown(shared: Path) -> None:
    files = sorted((shared / "samples" / "miopen-logs").glob("*.txt"))
    assert len(files) > 40
    for path in files:
        (found,), _ = read(path, everything=True)
        rows = shown(str(path))
        assert rows, path.name
        assert sum(row["count"] for row in rows) == len(found.records), path.name
        told = sum(number for kind, number in found.counts if kind not in ("cut entry", "stray", "brace alone"))
        assert len(found.records) == told, path.name


@pytest.mark.shared
def test_keys_tell_the_problems_of_the_entries_beside_them(shared: Path) -> None:
    """In real logs that hold both: the problem of each key is that of the search whose entry stands before it."""
    compared = 0
    for path in sorted((shared / "samples" / "miopen-opencl").glob("*/run.log")):
        analysis = analyse([str(path)], AnalysisOptions(every_message=True, join=False))
        operations = [one for run in analysis.runs for one in run.operations]
        lines = [one.line for one in operations]
        for log in (one for file in analysis.inputs for one in file.records if isinstance(one, MiopenLog)):
            for record in log.records:
                if not isinstance(record, Message) or record.kind not in ("key", "find-db insert", "registered"):
                    continue
                problem = state(record).problem
                before = [one for one, line in zip(operations, lines, strict=True) if line <= record.line][-1:]
                if problem is None or not before or record.line > before[0].end_line or before[0].phase != "find":
                    continue
                stated, geometry = before[0], problem.geometry
                assert (stated.input, stated.weights, stated.output) == (problem.input, problem.weights, problem.output)
                assert (stated.pad, stated.stride) == (geometry.pad, geometry.stride)
                assert stated.direction == problem.direction
                compared += 1
    assert compared > 60


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (("MIOpen Error: a", "MIOpen Error: b"), "line 2: a"),
        (
            ("MIOpen Error: a", "x.cpp:1:2: warning: w", "x.hpp:7:9: fatal error: 'y' file not found"),
            "fatal error: 'y'",
        ),
        (("MIOpen Error: a", "x.cpp:8:3: error: no member named 'z'"), "8:3: error: no member"),
        (("MIOpen Error: a", "1 error generated when compiling for gfx90a."), "line 2: a"),
    ],
)
def test_the_answer_shows_the_compilers_own_error(log: str, lines: tuple[str, ...], shown: str) -> None:
    """It is the cause; the library's errors before it are its consequences."""
    Path(log).write_text(SEARCH.splitlines(True)[0] + "".join(f"{line}\n" for line in lines))
    done = invoked("report", log, "-q")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("log ")]
    assert shown in line
