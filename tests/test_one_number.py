"""What something cost is one number: in slices, metadata, tables and stored queries, over real runs.

The kernels' own slices, each with the layer and the operation it is drawn for, are what the others are counted from.
"""

from __future__ import annotations

import functools
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import mio2trace
from mio2trace.align import NONE, Alignment, LayerRun
from mio2trace.analysis import Analysis, analyse
from mio2trace.cli import cli
from mio2trace.draw import BuildOptions, RunToDraw, build
from mio2trace.kernels import find_gemms
from mio2trace.kernels.facts import MAIN, KernelFact
from mio2trace.measures import Measures
from mio2trace.measures.cost import Cost, grouped, total
from mio2trace.model.choices import Gemm
from mio2trace.model.profile import NOT_OPENCL, Activity, Queue
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation, problem_name
from mio2trace.ops.problem import Phase
from mio2trace.outgoing import count
from mio2trace.reports import Row, ops
from mio2trace.reports import kernels as kernel_tables
from mio2trace.reports.layers import Repetition, class_table, execution_table, layer_table
from mio2trace.trace import Slice
from tests.commands import json_of
from tests.conftest import ROOT, shared_folder
from tests.kineto_files import FIRST_US, trace
from tests.kineto_files import row as event_of
from tests.records import made_operation
from tests.test_layers_report import executions_of, joined

SAMPLES = shared_folder() / "samples"


def of_problems(measures: Measures) -> dict[str, Cost]:
    """Costs of the operations that ran and have kernels, by problem."""
    parts: dict[str, list[Cost]] = {}
    for index, one in measures.operation_at.items():
        if one.phase == "run" and measures.first_of[index] != NONE:
            parts.setdefault(problem_name(one), []).append(measures.of_operation(index))
    return {name: total(costs) for name, costs in parts.items()}


def of_names(measures: Measures) -> dict[str, Cost]:
    """Costs by kernel name."""
    commands = measures.alignment.profile.commands
    return grouped(commands.name, commands, commands.is_kernel)


def runs() -> dict[str, tuple[Path, ...]]:
    """The files of each run that has a profile and a log."""
    found: dict[str, tuple[Path, ...]] = {}
    for folder in (*sorted((ROOT / "traces").glob("*/")), *sorted((SAMPLES / "miopen-opencl").glob("*/"))):
        files = (folder.glob(pattern) for pattern in ("run.log*", "prof.*", "results.*"))
        found[folder.name] = tuple(sorted(path for some in files for path in some))
    for log in sorted((SAMPLES / "dvdt").glob("*.run.log")):
        found[log.name] = log, log.with_name(log.name.replace(".run.log", ".prof.json"))
    for log in sorted((SAMPLES / "dvdt").glob("*.interleaved*.log")):
        found[log.name] = (log,)
    return found


RUNS = runs()
CHOSEN = ("alexnet-b1-miopen29", "alexnet-b1-train", "squeezenet11-b1-libdnn-fwd")
"""What the SQL engine is asked of: with operations, with GEMMs alone, backward, many iterations."""
LONG = "m290-alexnet-infer-10it"


class Answers(NamedTuple):
    """The slices of a run by category (arguments, with ``name`` and ``dur``), its metadata, its analysis."""

    slices: dict[str, list[dict[str, Any]]]
    counts: dict[str, Any]
    analysis: Analysis

    @property
    def measures(self) -> Measures:
        return self.analysis.run.measures[0]


@functools.lru_cache(maxsize=2)
def answers(name: str) -> Answers:
    out = io.BytesIO()
    counts = mio2trace.convert(*RUNS[name], output=out).metadata["attribution"]
    slices: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in json.loads(out.getvalue())["traceEvents"]:
        if event["ph"] == "X":
            ns = round(event["dur"] * 1000)
            slices[event["cat"]].append({**event.get("args", {}), "name": event["name"], "dur": ns})
    return Answers(slices, counts, analyse(RUNS[name]))


Key = tuple[Any, ...]


def sums(rows: Iterable[Row | dict[str, Any]], key: Sequence[str], count: str, ns: str) -> dict[Key, tuple[int, int]]:
    """(kernels, ns) by the cells ``key``; ``count`` empty: each row is one. Without what has no kernel."""
    kernels: Counter[Key] = Counter()
    time: Counter[Key] = Counter()
    for row in rows:
        of = tuple(row.get(name) for name in key)
        number, took = (row.get(count, 0) if count else 1), row.get(ns, 0)
        assert isinstance(number, int)
        assert isinstance(took, int)
        kernels[of] += number
        time[of] += took
    return {of: (kernels[of], time[of]) for of in kernels if kernels[of]}


@pytest.mark.shared
@pytest.mark.parametrize("name", RUNS)
def test_each_time_that_a_layer_ran(name: str) -> None:
    """Kernels and their time by layer, direction and iteration: kernels' and layers' slices, three tables, measures."""
    asked = answers(name)
    key = ("layer_index", "direction", "iteration")
    kernels = [kernel for kernel in asked.slices["kernel"] if "layer" in kernel]
    true = sums(kernels, key, "", "dur")
    drawn = [layer for layer in asked.slices["layer"] if "kernel_ns" in layer]
    assert sums(drawn, key, "kernels", "kernel_ns") == true
    log = max(asked.analysis.run.logs, key=lambda log: len(log.layers), default=None)
    repetitions = [Repetition(log, asked.measures)]
    assert sums(execution_table(repetitions).rows, key, "kernels", "kernel_ns") == true
    by_layer = kernel_tables.by_layer(asked.measures).rows
    assert sums([row for row in by_layer if "layer" in row], key, "count", "p3_p2_sum_ns") == true
    measured = {
        (layer[0], layer[2], ran.iteration): (ran.kernels, ran.kernel_ns)
        for layer, all_of in executions_of(asked.measures).items()
        for ran in all_of
        if ran.kernels
    }
    assert measured == true
    rows = kernel_tables.enqueue_table(asked.measures.alignment.profile, asked.measures.alignment).rows
    named = sums([row for row in rows if "layer" in row], ("layer", "direction", "iteration"), "", "p3_p2_ns")
    assert named == sums(kernels, ("layer", "direction", "iteration"), "", "dur")


@pytest.mark.shared
@pytest.mark.parametrize("name", RUNS)
def test_work_and_rate_of_layers(name: str) -> None:
    """FLOP and GFLOP/s of each execution: the slices say what the table says, and nothing where it says nothing."""
    asked = answers(name)
    drawn: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    for layer in asked.slices["layer"]:
        if "kernel_ns" in layer:
            drawn[layer["layer_index"], layer.get("direction"), layer.get("iteration")].append(layer)
    rows = execution_table([Repetition(None, asked.measures)]).rows
    table: dict[Key, Any] = {(row["layer_index"], row.get("direction"), row.get("iteration")): row for row in rows}
    for of, parts in drawn.items():
        flop = sum(part.get("flop", 0) for part in parts) or None
        assert table[of].get("flop") == flop
        for part in parts:
            assert ("gflops" in part) == bool(part.get("flop"))
            if len(parts) == 1 and "gflops" in part:
                assert part["gflops"] == pytest.approx(table[of]["gflops"], rel=6e-3)


@pytest.mark.shared
@pytest.mark.parametrize("name", RUNS)
def test_each_operation_and_problem(name: str) -> None:
    """Kernels, time, rate, name, helpers and layer by operation: kernels' and operations' slices, both tables."""
    asked = answers(name)
    kernels = [kernel for kernel in asked.slices["kernel"] if "operation" in kernel]
    true = sums(kernels, ("operation",), "", "dur")
    drawn = [made for made in asked.slices["operation"] if made.get("kernels")]
    assert sums(drawn, ("operation",), "kernels", "kernel_ns") == true
    table = ops.cost_table(asked.analysis.run.operations, asked.measures)
    assert sums(table.rows, ("operation",), "kernels", "kernel_ns") == true
    by_kernel = kernel_tables.enqueue_table(asked.measures.alignment.profile, asked.measures.alignment).rows
    assert sums([row for row in by_kernel if "operation" in row], ("operation_index",), "", "p3_p2_ns") == true
    row_of: dict[Any, Any] = {row["operation"]: row for row in table.rows}
    for made in drawn:
        row = row_of[made["operation"]]
        assert made["name"] == row["name"]
        assert made.get("gflops", 0) == pytest.approx(row.get("gflops", 0), rel=6e-3)
    for row in by_kernel:
        if "operation" in row:
            of = row_of[row["operation_index"]]
            said = (row["operation"], row["problem"], row.get("solver"))
            assert said == (of["name"], of["problem"], of.get("solver"))
    helpers: Counter[int] = Counter()
    layers: dict[int, set[str]] = defaultdict(set)
    for kernel in kernels:
        if kernel.get("role", "main") not in ("main", "bias"):
            helpers[kernel["operation"]] += kernel["dur"]
        if "layer" in kernel:
            layers[kernel["operation"]].add(kernel["layer"])
    for index, row in row_of.items():
        assert row.get("helpers_ns", 0) == helpers[index]
        if len(layers[index]) == 1:
            assert {row["layer"]} == layers[index]
    ran = [row for row in table.rows if row["phase"] == "run" and "kernel_ns" in row]
    measured = {(problem,): (cost.kernels, cost.kernel_ns) for problem, cost in of_problems(asked.measures).items()}
    assert measured == sums(ran, ("problem",), "kernels", "kernel_ns")


@pytest.mark.shared
@pytest.mark.parametrize("name", RUNS)
def test_each_kernel_name_and_the_whole(name: str) -> None:
    """Kernels and their time by name and in all: slices, tables, metadata, measures."""
    asked = answers(name)
    kernels = asked.slices["kernel"]
    whole = len(kernels), sum(kernel["dur"] for kernel in kernels)
    # a slice's name is short: the whole one is an argument
    named = [{**kernel, "name": kernel.get("full_name", kernel["name"])} for kernel in kernels]
    true = sums(named, ("name",), "", "dur")
    table = kernel_tables.by_name(asked.measures.alignment.profile).rows
    assert len({kernel["name"] for kernel in kernels}) == len(true), "two kernels look alike"
    assert sums(table, ("name",), "count", "p3_p2_sum_ns") == true
    measured = [{"name": of, "n": cost.kernels, "ns": cost.timed_ns} for of, cost in of_names(asked.measures).items()]
    assert sums(measured, ("name",), "n", "ns") == true
    assert (asked.measures.whole.kernels, asked.measures.whole.kernel_ns) == whole
    counts = asked.counts
    assert (counts["kernels"], sum(counts["kernel_ns"].values())) == whole
    assert counts["copies"] == len(asked.slices["copy"])
    if "operations" in counts:
        assert sum(counts["operation_kernel_ns"].values()) == whole[1]
        searches = {row.index for row in asked.analysis.run.operations if row.phase == "find"}
        found = [kernel["dur"] for kernel in kernels if kernel.get("operation") in searches]
        sums_of_find = {name: n for name, n in counts["find"].items() if name != "sure"}
        assert sums_of_find == {"kernels": len(found), "kernel_ns": sum(found)}


@pytest.mark.parametrize("name", CHOSEN)
def test_the_total_of_a_table_is_the_sum_of_its_rows(name: str) -> None:
    """In each column that it fills: the rows, and what is in no row."""
    run = answers(name).analysis.run
    repetitions = [Repetition(None, run.measures[0])]
    checked = set()
    for table in (
        layer_table(repetitions),
        class_table(repetitions),
        kernel_tables.kernel_table(run.measures[0]),
        ops.steady_table(run.operations, run.measures[0], ()),
    ):
        *rest, total = table.ends or ({},)
        for column, cell in total.items():
            if isinstance(cell, (int, float)) and column in table.columns and column != "iterations":
                cells = [row.get(column, 0) for row in (*table.rows, *rest)]
                assert sum(one for one in cells if isinstance(one, (int, float))) == pytest.approx(cell), column
                checked.add(column)
    assert checked >= {"kernel_ns", "kernels", "percent_of_kernel_time"}


# ---- where they differed


def drawn(alignment: Alignment, category: str) -> list[dict[str, Any]]:
    notes = Notes()
    trace = build([RunToDraw(measures=[Measures(alignment)])], BuildOptions(), {"attribution": {}}, notes)
    return [
        {**event.args, **event.shared, "name": event.name}
        for event in trace.events()
        if isinstance(event, Slice) and event.category == category
    ]


def with_activities(alignment: Alignment, change: Callable[[int, Activity], Activity], **fields: Any) -> Alignment:
    """With other activities in the profile, and other ``fields`` of it."""
    activities = tuple(change(at, activity) for at, activity in enumerate(alignment.profile.activities))
    return replace(alignment, profile=replace(alignment.profile, activities=activities, **fields))


GEMM = KernelFact(role="main", gemm=Gemm(2, 3, 4), gemm_by="arguments")


def operation(index: int, phase: Phase = "run", flop: int | None = 1000) -> Operation:
    return made_operation(index=index, source=0, line=1, end_line=1, api="", primitive="conv", phase=phase, flop=flop)


def test_part_of_the_work_is_no_work() -> None:
    """A layer with a GEMM of unknown sizes has no FLOP in the trace either, and its pass has none."""
    alignment = joined([("Xgemm", "a"), ("Xgemm", "b"), ("XgemmDirectNN", "b")], {0: GEMM, 1: GEMM, 2: MAIN})
    assert {layer["name"]: layer.get("flop") for layer in drawn(alignment, "layer")} == {"a": 48, "b": None}
    assert [made.get("flop") for made in drawn(alignment, "pass")] == [None]
    assert {of[1]: ran[0].flop for of, ran in executions_of(Measures(alignment)).items()} == {
        "a": 48, "b": None, "c": None,
    }  # fmt: skip


def test_a_search_does_no_work_of_its_layer() -> None:
    """Also where the log does not tell its work, whatever GEMM it tries."""
    alignment = joined([("Xgemm", "a"), ("Xgemm", "a")], {0: GEMM, 1: GEMM}, [operation(0, "find", None)])
    alignment.links.give_operation((0,), 0, "buffers")
    (layer,) = drawn(alignment, "layer")
    assert layer["flop"] == executions_of(Measures(alignment))[0, "a", "forward"][0].flop == 48


@pytest.mark.parametrize(("facts", "flop"), [({0: GEMM}, None), ({0: GEMM, 1: GEMM}, 96), ({}, None)])
def test_an_operation_whose_work_the_log_does_not_tell(facts: dict[int, KernelFact], flop: int | None) -> None:
    """It is that of its GEMMs where these are all that works in it."""
    alignment = joined([("gemm", "a"), ("gemm2", "a"), ("im2col", "a")], facts, [operation(0, "run", None)])
    alignment.links.give_operation((0, 1, 2), 0, "buffers")
    (layer,) = drawn(alignment, "layer")
    assert layer.get("flop") == executions_of(Measures(alignment))[0, "a", "forward"][0].flop == flop


def test_an_operation_in_two_rows_works_once() -> None:
    """Its kernels on two queues: work and rate stand in the row where it begins, the rate is that of all of it."""
    alignment = joined([("conv", "a"), ("conv", "a"), ("conv", "a")], {}, [operation(0)])
    alignment.links.give_operation((0, 1, 2), 0, "buffers")
    queues = (Queue(index=0, device=0), Queue(index=1, device=0))
    alignment = with_activities(alignment, lambda at, one: replace(one, queue=at % 2), queues=queues)
    first, second = drawn(alignment, "operation")
    cost = Measures(alignment).of_operation(0)
    assert (cost.kernels, cost.kernel_ns, cost.flop) == (3, 30, 1000)
    assert (first["kernels"], first["flop"], second["kernels"]) == (2, 1000, 1)
    assert first["gflops"] == pytest.approx(cost.gflops, rel=6e-3)
    assert second["goes_on"]
    assert not second.keys() & {"flop", "gflops", "bytes_min"}
    assert [layer["flop"] for layer in drawn(alignment, "layer")] == [1000, 0]


def test_operations_without_a_known_problem_are_not_one() -> None:
    """Their slices and their kernels in the trace have the name, sizes and work that the table has."""
    shapes = [(1, 16, 23, 23), (1, 32, 11, 11), (1, 32, 5, 5)]
    made = [
        made_operation(
            index=at, primitive="pool", direction="forward", input=shape, mode=f"m{at}", flop=at, bytes_min=at
        )
        for at, shape in enumerate(shapes)
    ]
    alignment = joined([("pool", "a"), ("pool", "a"), ("pool", "a")], {}, made)
    for at in range(len(made)):
        alignment.links.give_operation((at,), at, "buffers")
    table = {row["operation"]: row for row in ops.cost_table(made, Measures(alignment)).rows}
    for row in drawn(alignment, "operation"):
        said = table[row["operation"]]
        assert {key: row[key] for key in ("name", "input", "mode")} == {
            key: said[key] for key in ("name", "input", "mode")
        }
        assert (row["flop"], row["bytes_min"]) == (row["operation"], row["operation"])
    for kernel in drawn(alignment, "kernel"):
        assert kernel["operation_name"] == table[kernel["operation"]]["name"]
        assert (kernel["flop"], kernel["bytes_min"]) == (kernel["operation"], kernel["operation"])


def test_a_time_that_is_not_known_is_none() -> None:
    """A kernel without times is counted, and leaves the sum without a number; so do the sums that it is part of."""
    alignment = joined([("conv", "a"), ("conv", "a"), ("conv", "b")], {}, [operation(0), operation(1)])
    alignment.links.give_operation((0, 1), 0, "buffers")
    alignment.links.give_operation((2,), 1, "buffers")
    unknown = dict.fromkeys(("start_ns", "end_ns", "queued_ns", "submit_ns"))
    measures = Measures(with_activities(alignment, lambda at, one: replace(one, **unknown) if at == 1 else one))
    cost = measures.of_operation(0)
    assert (cost.kernels, cost.untimed, cost.timed_ns, cost.kernel_ns, cost.gflops) == (2, 1, 10, None, None)
    first, second = ops.cost_table([operation(0), operation(1)], measures).rows
    assert (first["kernels"], first.keys() & {"kernel_ns", "gflops", "percent_of_kernel_time"}) == (2, set())
    assert (second["kernel_ns"], second["percent_of_kernel_time"]) == (10, 50)
    times = {of[1]: [one.kernel_ns for one in ran] for of, ran in executions_of(measures).items()}
    assert times == {"a": [None], "b": [10], "c": [0]}
    assert measures.whole.kernel_ns is None
    assert of_names(measures)["conv"].kernel_ns is None


@pytest.mark.parametrize("keep", [2, 3, 5])
def test_a_run_of_which_some_arguments_are_lost(keep: int) -> None:
    """Trace and table agree on the work of every layer where the sizes of some GEMMs cannot be told any more."""
    alignment = analyse(RUNS["alexnet-b1-train"]).run.measures[0].alignment
    bare = with_activities(alignment, lambda at, one: one if at % keep else replace(one, opencl=NOT_OPENCL))
    bare = replace(bare, facts=find_gemms(bare.profile))
    slices = {
        (layer["layer_index"], layer["direction"], layer["iteration"]): layer.get("flop")
        for layer in drawn(bare, "layer")
        if "kernel_ns" in layer
    }
    table = {
        (of[0], of[2], ran.iteration): ran.flop
        for of, all_of in executions_of(Measures(bare)).items()
        for ran in all_of
        if ran.kernels
    }
    assert slices == table
    whole = executions_of(Measures(alignment))
    lost = [of for of, flop in table.items() if flop is None]
    assert len(lost) > sum(ran.flop is None for all_of in whole.values() for ran in all_of if ran.kernels)


def test_a_layer_without_direction_is_counted_once() -> None:
    """Beside the passes of its iteration: it is in the table, and the others ran no second time without kernels."""
    alignment = joined([("k", "a"), ("k", None)])
    links = alignment.links
    whole = links.pass_id("iteration", 1)
    run = LayerRun(layer="update", layer_index=3, direction=None, pass_=whole)
    links.give_layer((1,), links.runs.add(run), "range")
    ran = executions_of(Measures(alignment))
    assert {of[1:]: [execution.kernels for execution in all_of] for of, all_of in ran.items()} == {
        ("a", "forward"): [1], ("b", "forward"): [0], ("c", "forward"): [0], ("update", None): [1],
    }  # fmt: skip


def test_work_of_zero_and_time_in_no_operation_are_the_same_in_every_form(tmp_path: Path) -> None:
    """No work gives no rate. A layer that only copies in one of its stretches keeps the rate of its kernels. A call
    that fills without a kernel is a call. What is in no operation is a row of its lists."""
    us = FIRST_US
    rows = [event_of("user_annotation", "ProfilerStep#3", 542, 542, us, 400, External_id=1)]
    rows.append(event_of("python_function", "nn.Module: ReLU_0", 542, 542, us + 1, 250, Python_id=1))
    shapes = {"Input_Dims": [[8, 8]], "Input_type": ["float"], "Concrete_Inputs": [""]}
    for number, (op, at) in enumerate((("aten::relu", 10), ("aten::fill_", 300), ("", 350)), 70):
        if op:
            rows.append(event_of("cpu_op", op, 542, 542, us + at, 30, External_id=number, **shapes))
        rows.append(event_of("cuda_runtime", "hipLaunchKernel", 542, 542, us + at + 5, 5, correlation=number))
        rows.append(event_of("kernel", f"k{number}", 2, 0, us + at + 20, 9, device=2, stream=0, correlation=number))
    rows.append(event_of("cuda_runtime", "hipMemcpyAsync", 542, 542, us + 200, 5, correlation=80))
    rows.append(event_of("gpu_memcpy", "Memcpy DtoD", 2, 0, us + 210, 3, device=2, stream=0, correlation=80, bytes=64))
    rows.append(event_of("cpu_op", "aten::fill_", 542, 542, us + 380, 15, External_id=81, **shapes))
    rows.append(event_of("cuda_runtime", "hipMemsetAsync", 542, 542, us + 385, 5, correlation=81))
    rows.append(event_of("gpu_memset", "Memset (Device)", 2, 0, us + 392, 3, device=2, stream=0, correlation=81))
    path = tmp_path / "t.json"
    path.write_bytes(trace(rows))
    (run,) = json_of("report", path)["runs"]
    for part in ("layers", "operations", "problems", "kernels"):
        assert sum(one["ns"] for one in run[part]) == run["kernel_ns"] == 27_000
    assert run["operations"][-1] == run["problems"][-1]
    asked = {
        row["operation"]: (row["calls"], row.get("gflops", 0)) for row in json_of("query", path, "slowest operations")
    }
    assert asked == {row["name"]: (row["calls"], round(row.get("gflops", 0), 3)) for row in json_of("ops", path)}
    assert asked["aten::fill_ 8x8"] == (2, 0)
    layers = {row["layer"]: round(row["gflops"], 3) for row in json_of("layers", path) if "gflops" in row}
    assert layers
    assert layers == {row["layer"]: row["gflops"] for row in json_of("query", path, "slowest layers")}


def test_a_call_whose_kernel_is_not_recorded_is_in_no_rate(tmp_path: Path) -> None:
    """The work of a call that only copied is not divided by the time of another call's kernel."""
    us, shapes = FIRST_US, {"Input_Dims": [[64, 64], [64, 64]], "Input_type": ["float", "float"]}
    rows = [event_of("user_annotation", "ProfilerStep#3", 542, 542, us, 400, External_id=1)]
    rows.append(event_of("python_function", "nn.Module: Linear_0", 542, 542, us + 1, 250, Python_id=1))
    for number, at in ((70, 10), (71, 100)):
        rows.append(event_of("cpu_op", "aten::mm", 542, 542, us + at, 30, External_id=number, **shapes))
        rows.append(event_of("cuda_runtime", "hipLaunchKernel", 542, 542, us + at + 5, 5, correlation=number))
    rows.append(event_of("kernel", "gemm", 2, 0, us + 40, 9, device=2, stream=0, correlation=70))
    rows.append(event_of("gpu_memcpy", "Memcpy DtoD", 2, 0, us + 140, 3, device=2, stream=0, correlation=71, bytes=64))
    path = tmp_path / "t.json"
    path.write_bytes(trace(rows))
    (run,) = json_of("report", path)["runs"]
    (op,), (layer,) = json_of("ops", path), json_of("layers", path)
    asked = [json_of("query", path, name)[0]["gflops"] for name in ("slowest operations", "slowest layers")]
    assert (op["calls"], op["kernels"]) == (2, 1)
    rates = (run["problems"][0]["gflops"], op["gflops"], layer["gflops"], *asked)
    assert rates == pytest.approx((2 * 64**3 / 9000,) * 5, abs=6e-4)


# -- A number agrees with its noun: no output says `1 runs`, over inputs that have one of everything.


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


def test_no_output_has_a_plural_after_a_one(warm: None, tmp_path: Path) -> None:
    profile, log = str(tmp_path / "prof.json"), str(tmp_path / "run.log")
    launch = event_of("cuda_runtime", "hipLaunchKernel", 542, 542, FIRST_US + 20, 5, External_id=45, correlation=71)
    kernel = event_of("kernel", "one.kd", 2, 0, FIRST_US + 30, 20, device=2, stream=0, correlation=71)
    op = event_of("cpu_op", "aten::add", 542, 542, FIRST_US + 10, 30, External_id=45)
    step = event_of("user_annotation", "ProfilerStep#3", 542, 542, FIRST_US, 90, External_id=1)
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
