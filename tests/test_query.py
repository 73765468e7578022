"""``mio2trace query``: every query that comes with the program, any SQL, both forms; nothing fetched unasked."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import mio2trace
from mio2trace import queries, writers
from mio2trace.notes import InputError
from mio2trace.queries import Answer, prelude, shipped, text
from mio2trace.trace import Slice
from tests.commands import invoked, json_of
from tests.conftest import ROOT, Engine, engines_of, missing, shared_folder
from tests.kineto_files import kineto_file
from tests.often import saved
from tests.oracle.queries import ANSWERS, Oracle, differences
from tests.perfetto_tools.tp_query import TraceProcessor, TraceProcessorError, find_node, find_web_dist
from tests.small_runs import Program, as_json

RUN = ROOT / "traces" / "alexnet-b1-train"
QUERIES = shipped()
NAMES = (
    "slowest layers", "slowest kernels", "slowest operations", "helpers by cost", "unattributed time", "iterations",
    "find and compile", "gemms", "copies", "evidence", "doubts", "longest gaps", "longest waits", "launch bound",
)  # fmt: skip


def test_the_queries_are_these() -> None:
    """Names are a public interface; each says what it answers, and is documented."""
    assert tuple(QUERIES) == NAMES
    documented = (ROOT / "docs" / "queries.md").read_text("utf-8")
    for query in QUERIES.values():
        assert query.about.endswith(".")
        assert query.sql.lower().startswith(("select", "with"))
        assert f"`{query.name}`" in documented
    assert [word in " ".join(prelude()) for word in ("macro arg", "view kernels", "view layers")] == [True] * 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run in both forms."""
    made = tmp_path_factory.mktemp("query")
    for name in ("out.json", "out.pftrace.gz"):
        mio2trace.convert(RUN / "run.log", RUN / "prof.json.gz", output=made / name)
    return made


@pytest.fixture(scope="module")
def asked(folder: Path, idle_engines: list[TraceProcessor]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The rows of every query, by form and name."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name in ("out.json", "out.pftrace.gz"):
        with engines_of(idle_engines) as load:
            processor = load(folder / name)
            for statement in prelude():
                processor.query(statement)
            found[name] = {query.name: processor.query(query.sql) for query in QUERIES.values()}
    return found


@pytest.fixture(scope="module")
def events(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "out.json").read_bytes())["traceEvents"]
    return found


def commands(events: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("cat") in kinds]


SAMPLES = shared_folder() / "samples"
RUNS = {
    "OpenCL": [RUN / "run.log", RUN / "prof.json.gz"],
    "a log alone": [RUN / "run.log"],
    "searches": [*sorted((ROOT / "traces" / "lenet-rocpd").glob("r*.gz"))],
    "forward": [ROOT / "traces" / "squeezenet11-b1-libdnn-fwd" / name for name in ("run.log", "prof.json.gz")],
    "shared: two ranks": [*sorted((SAMPLES / "rocm-twins" / "resnet-immediate-2ranks" / "kineto").glob("*"))],
    "shared: two steps": [SAMPLES / "rocm" / "kineto_mi250_minitoy_train.json"],
    "shared: several large steps": [SAMPLES / "rocm" / "kineto_mi300_resnet50_ddp4_rank0.json.gz"],
}
MARKS = {run: [pytest.mark.shared] * ("shared" in run) + [pytest.mark.thorough] * ("large" in run) for run in RUNS}
FIRST = {
    "slowest layers": "kernel_ms", "slowest kernels": "kernel_ms", "slowest operations": "kernel_ms",
    "helpers by cost": "kernel_ms", "unattributed time": "ms", "find and compile": "ms", "gemms": "kernel_ms",
    "copies": "ms", "evidence": "ms", "doubts": "ms", "longest gaps": "gap_us", "longest waits": "wait_us",
    "launch bound": "idle_ms",
}  # fmt: skip
"""By what the rows of a query are ordered, of each process."""


@pytest.mark.parametrize("run", [pytest.param(run, marks=MARKS[run]) for run in RUNS])
def test_every_number_of_every_query_is_counted_again_from_the_file(run: str, tmp_path: Path) -> None:
    """In plain Python from the JSON (`tests.oracle.queries`); and each query begins with what costs most."""
    mio2trace.convert(*RUNS[run], output=tmp_path / "out.json")
    true = Oracle(json.loads((tmp_path / "out.json").read_bytes())["traceEvents"])
    answered = 0
    for name, query in QUERIES.items():
        rows = embedded_rows(queries.answer_in_sqlite(writers.slices(tmp_path / "out.json"), query.sql))
        assert differences(ANSWERS[name](true), rows) == [], name
        column = "printed_ms" if run == "a log alone" else FIRST.get(name, "")
        for _, own in itertools.groupby(rows, lambda row: row.get("process")):
            costs = [row[column] for row in own if column in row]
            assert costs == sorted(costs, reverse=True), name
        answered += len(rows) > 0
    assert answered >= (2 if run == "a log alone" else 9)


def made(slices: list[dict[str, Any]], path: Path) -> Path:
    """A trace of a few slices on one track."""
    common = {"pid": 1, "tid": 2}
    named = common | {"ph": "M", "ts": 0, "args": {"name": "x"}}
    names = [named | {"name": kind} for kind in ("process_name", "thread_name")]
    path.write_text(json.dumps({"traceEvents": names + [common | {"ph": "X"} | one for one in slices]}))
    return path


def kernel(ts: int, dur: int, **args: Any) -> dict[str, Any]:
    return {"ts": ts, "dur": dur, "name": args.pop("name", "k"), "cat": "kernel", "args": args}


def operation(ts: int, dur: int, **args: Any) -> dict[str, Any]:
    return {"ts": ts, "dur": dur, "name": "Conv fwd", "cat": "operation", "args": args}


@pytest.mark.engine
def test_what_the_sample_lacks(tmp_path: Path, engine: Engine) -> None:
    """Operations and searches, doubts, kernels without a layer, set-up work."""
    solved = {"kernels": 2, "kernel_ns": 40000, "flop": 80000, "solver": "ConvAsm"}
    path = made(
        [
            operation(0, 50, operation=0, phase="find", kernels=1, kernel_ns=10000),
            kernel(0, 10, phase="setup"),
            operation(100, 50, operation=1, phase="run", **solved),
            kernel(100, 20, operation=1, operation_by="launch line", sure=False, layer="conv1", layer_by="order"),
            kernel(120, 20, operation=1, operation_by="launch line", name="stray"),
            operation(200, 10, operation=2, **solved | {"kernels": 1, "kernel_ns": 6000, "flop": 20000}),
            kernel(200, 6, operation=2, operation_by="launch line", layer="conv1", layer_by="position"),
            operation(220, 10, operation=2, goes_on=True, kernels=1, kernel_ns=4000),
            kernel(220, 4, operation=2, operation_by="launch line", layer="conv1", layer_by="position"),
            operation(240, 10, operation=3, **solved | {"kernels": 0, "kernel_ns": 0, "flop": 90000}),
        ],
        tmp_path / "made.json",
    )
    processor = engine(path)
    for statement in prelude():
        processor.query(statement)
    rows = {name: processor.query(QUERIES[name].sql) for name in NAMES}
    (ran,) = rows["slowest operations"]
    # one in two rows; one without kernels costs nothing
    assert (ran["operation"], ran["calls"], ran["kernel_ms"], ran["gflops"]) == ("Conv fwd", 2, 0.05, 2.0)
    assert (ran["layer"], ran["solver"]) == ("conv1", "ConvAsm")
    assert [(row["what"], row["ms"]) for row in rows["find and compile"]] == [("search", 0.05), ("set-up", 0.01)]
    assert [(row["name"], row["phase"], row["with_operation"]) for row in rows["unattributed time"]] == [
        ("stray", None, 1), ("k", "setup", 0),
    ]  # fmt: skip
    (doubt,) = rows["doubts"]
    assert (doubt["layer"], doubt["calls"], doubt["layer_by"]) == ("conv1", 1, "order")
    assert {(row["layer_by"], row["operation_by"], row["calls"], row["not_sure"]) for row in rows["evidence"]} == {
        ("order", "launch line", 1, 1), ("position", "launch line", 2, 0), ("no layer", "launch line", 1, 0),
        ("no layer", "no operation", 1, 0),
    }  # fmt: skip


# ---- the engine that comes with Python


def embedded_rows(answer: Answer) -> list[dict[str, Any]]:
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


@pytest.mark.engine
@pytest.mark.parametrize("name", NAMES)
def test_both_forms_and_both_engines_answer_alike(asked: dict[str, Any], folder: Path, name: str) -> None:
    """Perfetto's and SQLite, row by row, from a file in either form."""
    theirs = asked["out.json"][name]
    assert asked["out.pftrace.gz"][name] == theirs
    for form in asked:
        rows = embedded_rows(queries.answer_in_sqlite(writers.slices(folder / form), QUERIES[name].sql))
        # Versions of SQLite round a half that is none in binary to either side.
        assert rows == [
            {key: pytest.approx(cell, abs=1.1e-3) if isinstance(cell, float) else cell for key, cell in row.items()}
            for row in theirs
        ]


def test_a_run_is_asked_without_a_trace(folder: Path) -> None:
    """What the files of a run answer is what its trace does, in either form."""
    files = RUN / "run.log", RUN / "prof.json.gz"
    for name in NAMES:
        from_run = query(*files, name, "--format", "json")
        assert from_run.exit_code == 0, from_run.stderr
        for form in ("out.json", "out.pftrace.gz"):
            assert query(folder / form, name, "--format", "json").stdout == from_run.stdout, (name, form)


def assert_one_line(done: Result, said: str) -> None:
    assert (done.exit_code, done.stdout) == (1, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_own_sql_and_what_it_may_not(folder: Path, tmp_path: Path) -> None:
    """Views, nested arguments; other files stay closed; what only Perfetto's engine has is said."""
    trace = folder / "out.json"
    done = query(trace, "select max(arg!('gemm.M')) as m, count(*) as n from slice where category = 'kernel'")
    assert done.exit_code == 0, done.stderr
    kernels = commands(json.loads(trace.read_bytes())["traceEvents"], "kernel")
    largest = max(one["args"].get("gemm", {}).get("M", 0) for one in kernels)
    assert list(csv.reader(io.StringIO(done.stdout))) == [["m", "n"], [str(largest), str(len(kernels))]]
    for sql, said in (
        (f"with a as (select 1) attach '{tmp_path}/new.db' as x", "SQL: "),
        (f"pragma temp_store_directory = '{tmp_path}'; select 1", "SQL: "),
        ("select * from counter", "--perfetto"),
        ("select nope from kernels", "no such column: nope"),
        ("select '", "SQL: "),
    ):
        assert_one_line(query(trace, sql), said)
    assert list(tmp_path.iterdir()) == []


def test_a_question_to_no_trace(tmp_path: Path) -> None:
    """What is neither a trace of ours nor a run is refused by the readers, in one line."""
    assert_one_line(query(saved(tmp_path / "other.json", '{"traceEvents":[]}'), "evidence"), "other.json")
    assert query(tmp_path / "none.json", "evidence").stderr == f"mio2trace: {tmp_path}/none.json: no such file\n"


# ---- the command


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for trace_processor_shell; none other is found."""
    pytest.importorskip("perfetto", reason="the package that asks: pip install perfetto")
    try:
        find_web_dist()
        find_node()
    except TraceProcessorError as error:
        missing("engine", str(error))
    path = tmp_path / "engine"
    script = ROOT / "tests" / "perfetto_tools" / "tp_shell.py"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    path.chmod(0o755)
    monkeypatch.delenv("MIO2TRACE_ENGINE", raising=False)
    return path


def query(*words: str | Path, **env: str) -> Result:
    return invoked("query", *words, **env)


@pytest.mark.engine
def test_a_query_by_name_and_by_sql(folder: Path, shell: Path, asked: dict[str, Any]) -> None:
    """Through the real package; the name need not be whole, the forms of output are those of the other commands."""
    done = query(folder / "out.pftrace.gz", "slowest l", "--engine", shell, "--format", "json")
    assert done.exit_code == 0, done.stderr
    rows = [{k: v for k, v in row.items() if v is not None} for row in asked["out.pftrace.gz"]["slowest layers"]]
    assert json.loads(done.stdout) == rows
    sql = "select count(*) as n, null as absent from steady_kernels"
    done = query(folder / "out.json", sql, "--perfetto", MIO2TRACE_ENGINE=str(shell))
    count = round(sum(row["calls"] for row in asked["out.json"]["slowest kernels"]))
    assert list(csv.reader(io.StringIO(done.stdout))) == [["n", "absent"], [str(count), ""]]


def test_a_narrow_terminal_keeps_the_name_of_a_row(folder: Path) -> None:
    sql = "select 'runs/a-long-name-of-a-run' as run, 1.5 as kernel_ms, 2.5 as percent_of_kernel_time"
    lines = query(folder / "out.json", sql, "--format", "table", COLUMNS="50").stdout.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["run", "runs/a-long-name-of-a-run"]


def test_what_the_files_lack_is_said_as_by_other_commands(tmp_path: Path) -> None:
    """Rows of a file that is cut off are not all rows."""
    path = kineto_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-700])
    said = "problem: file cut off: read up to there (made.json)\n"
    for words in (("query", path, "slowest kernels"), ("kernels", path)):
        assert said in invoked(*words).stderr


@pytest.mark.engine
def test_wrong_sql_and_wrong_files_are_one_line(folder: Path, shell: Path, tmp_path: Path) -> None:
    """What the engine says, without where it met it."""
    (tmp_path / "text.json").write_text("hello")
    for file, sql, said in (
        (folder / "out.json", "select * from nope", "no such table: nope"),
        (tmp_path / "text.json", "evidence", "text.json"),
        (tmp_path / "none.json", "evidence", "none.json: no such file"),
    ):
        assert_one_line(query(file, sql, "--engine", shell), said)


def test_an_engine_that_is_none_is_one_line(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not there, not executable, no engine at all; without the package, which extra brings it."""
    pytest.importorskip("perfetto", reason="the package that asks: pip install perfetto")
    broken = program(tmp_path / "broken", b"#!/bin/sh\necho it is broken >&2\nexit 3\n")
    closed = tmp_path / "closed"
    closed.write_text("x")
    for path, said in ((tmp_path / "none", "is no program"), (closed, "is no program"), (broken, "it is broken")):
        assert_one_line(query(folder / "out.json", "evidence", "--engine", path), said)
    monkeypatch.setitem(sys.modules, "perfetto.trace_processor", None)
    assert_one_line(query(folder / "out.json", "evidence", "--engine", broken), "mio2trace[query]")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without an engine; the folder of its programs, which comes first."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("MIO2TRACE_ENGINE", raising=False)
    return programs


def program(path: Path, text: bytes = b"\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    path.chmod(0o755)
    return path


def test_without_an_engine_nothing_is_fetched(folder: Path, bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says what to do; the package is not even asked."""

    def never(*_: object, **__: object) -> Any:
        raise AssertionError("the package was asked")

    monkeypatch.setattr("mio2trace.queries.answer_in_perfetto", never)
    done = query(folder / "out.json", "evidence", "--perfetto")
    assert_one_line(done, "--engine")
    assert "--download" in done.stderr
    # The official wrapper would fetch an engine: a script does not count.
    program(bare / "trace_processor_shell", b"#!/usr/bin/env python3\n")
    assert query(folder / "out.json", "evidence", "--perfetto").exit_code == 1


def test_the_engine_is_looked_for_in_order(folder: Path, bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option, the variable, the PATH, the package's own folder; with --download the package may fetch one."""
    taken: list[str | None] = []

    def ask(trace: str, sql: str, engine: str | None) -> Answer:
        taken.append(engine)
        return Answer(("n",), [])

    monkeypatch.setattr("mio2trace.queries.answer_in_perfetto", ask)
    words = (folder / "out.json", "evidence", "--perfetto")
    assert query(*words, "--download").exit_code == 0
    cache = bare.parent / ".local/share/perfetto/prebuilts"
    old, new = program(cache / "trace_processor_shell-1"), program(cache / "trace_processor_shell-2")
    os.utime(old, (1, 1))
    assert query(*words, "--download").exit_code == 0
    on_path = program(bare / "trace_processor_shell")
    assert query(*words).exit_code == 0
    other = program(bare / "other")
    assert query(*words, MIO2TRACE_ENGINE=str(other)).exit_code == 0
    option = program(bare / "option")
    assert query(*words, "--engine", option, MIO2TRACE_ENGINE=str(other)).exit_code == 0
    assert taken == [None, str(new), str(on_path), str(other), str(option)]


def test_the_list_and_the_sql() -> None:
    """Without a trace; the SQL is what the viewer needs, too."""
    done = query("--list", "--format", "json")
    assert [row["query"] for row in json.loads(done.stdout) if row["of"] == "run"] == list(NAMES)
    assert query("out.json", "--format", "json").stdout == done.stdout
    done = query("--sql", "helpers-by-cost")
    assert done.stdout.startswith(text().partition("-- query:")[0])
    assert QUERIES["helpers by cost"].sql in done.stdout
    assert re.findall(r"(?m)^-- query: (.*)", done.stdout) == ["helpers by cost"]
    for words in ((), ("out.json", "fastest layers"), ("--sql", "slowest")):
        assert query(*words).exit_code == 2


@pytest.mark.parametrize("output", ["out.json", "out.pftrace"])
def test_names_that_are_cut_at_a_space_are_asked_by_the_whole(tmp_path: Path, output: str) -> None:
    """Writers let no name of a slice end with one: two kernels that begin alike are two, as in a table of the files."""
    program = Program()
    program.program()
    names = [f"{'n' * 99} {end}" for end in ("first", "second")]
    for number, name in enumerate(names):
        program.kernel(name, f"0x{60 + number}")
        program.enqueue(name, f"0x{60 + number}")
    mio2trace.convert(saved(tmp_path / "prof.json", as_json(program.calls)), output=tmp_path / output)
    for asked_of in (output, "prof.json"):
        assert sorted(row["kernel"] for row in json_of("query", tmp_path / asked_of, "slowest kernels")) == names


def test_what_queries_say_of_collectives_and_of_gemms_of_several_kernels() -> None:
    """A process's part of what several do together is its own work, no help. A GEMM is told as a whole."""
    size = {"gemm": {"M": 50, "N": 64, "K": 500}, "flop": 3_200_000}
    of_several = {**size, "gemm_kernels": 2, "gemm_ns": 400_000, "gflops": 8.0}
    told: list[tuple[str, int, dict[str, Any]]] = [
        ("ncclDevKernel", 5, {"role": "collective"}), ("batched_transpose", 5, {"role": "transpose"}),
        ("_prod_TT", 100_000, of_several), ("_prod_TT", 300_000, {}), ("_prod_TT", 400_000, size),
    ]  # fmt: skip
    slices = [
        Slice(track=1, category="kernel", name=name, start_ns=at * 1_000_000, dur_ns=ns, args=args)
        for at, (name, ns, args) in enumerate(told)
    ]
    helpers, gemms = (
        embedded_rows(queries.answer_in_sqlite(slices, QUERIES[name].sql)) for name in ("helpers by cost", "gemms")
    )
    assert [row["kernel"] for row in helpers] == ["batched_transpose"]
    assert [(row["calls"], row["kernel_ms"], row["gflops"]) for row in gemms] == [(2, 0.8, 8.0)]


@pytest.mark.parametrize(("flop", "rate"), [({"flop": 30}, 6.0), ({"flop": 0}, 3.0), ({}, None)])
def test_work_of_unknown_size_has_no_rate(flop: dict[str, int], rate: float | None) -> None:
    """The rate is that of two calls of an operation in one layer, which together take 10 ns."""
    slices = []
    for number, work in enumerate(({"flop": 30}, flop)):
        place = {"layer": "conv", "layer_index": 0, "operation": number}
        for category, name, args in (
            ("kernel", "k", place),
            ("layer", "conv", {"layer_index": 0, "kernels": 1, "kernel_ns": 5, **work}),
            ("operation", "Conv", {"operation": number, "kernels": 1, "kernel_ns": 5, **work}),
        ):
            slices.append(Slice(track=1, category=category, name=name, start_ns=10 * number, dur_ns=5, args=args))
    for name in ("slowest layers", "slowest operations"):
        (row,) = embedded_rows(queries.answer_in_sqlite(slices, QUERIES[name].sql))
        assert (row["kernels"], row["gflops"]) == (2, rate), name


def test_printed_times_are_means_without_the_warm_up() -> None:
    """The files are a log alone. A layer without a printed time takes as long as it is drawn."""
    slices = [
        Slice(track=1, category="layer", name="conv", start_ns=at, dur_ns=4_000_000, args={"iteration": number, **args})
        for at, (number, args) in enumerate([(0, {"printed_ns": 90_000_000}), (1, {"printed_ns": 6_000_000}), (2, {})])
    ]
    (row,) = embedded_rows(queries.answer_in_sqlite(slices, QUERIES["slowest layers"].sql))
    assert (row["iterations"], row["printed_ms"], row["kernels"]) == (2, 5.0, None)


def test_a_statement_without_end_is_ended_by_an_interrupt() -> None:
    """One step of the engine would else keep the signal waiting."""
    endless = "with recursive a(x) as (select 1 union all select x + 1 from a) select count(*) from a"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            queries.answer_in_sqlite([], endless)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_value_is_not_longer_than_a_limit() -> None:
    with pytest.raises(InputError, match="too big"):
        queries.answer_in_sqlite([], "select length(randomblob(1000000000))")


@pytest.mark.parametrize("event", [{"dur_ns": 1 << 64}, {"args": {"kernel_id": 1 << 64}}])
def test_a_number_of_more_than_64_bits_is_one_line(event: dict[str, Any]) -> None:
    """No table keeps one; a damaged bundle may hold it anywhere."""
    fields: dict[str, Any] = {"track": 1, "start_ns": 0, "dur_ns": 1, "name": "k", "category": "kernel", "args": {}}
    made = Slice(**(fields | event))
    with pytest.raises(InputError, match="more than 64 bits"):
        queries.answer_in_sqlite([made], "select count(*) from slice")
