"""What is slowest: one answer everywhere, and that of truth files and raw profiles, which this file reads by itself."""

from __future__ import annotations

import functools
import json
import re
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

from mio2trace import queries
from mio2trace.analysis import AnalysisOptions, analyse
from mio2trace.answer import report_of
from mio2trace.conversion import convert
from mio2trace.measures import Steady
from mio2trace.queries import shipped
from mio2trace.trace import Slice
from tests import made_up_costs
from tests.commands import invoked, json_of
from tests.conftest import shared_folder
from tests.made_up_costs import MS
from tests.test_one_number import RUNS

pytestmark = pytest.mark.shared

SAMPLES = shared_folder() / "samples"
WARM = {
    "m290-alexnet-infer-10it": set(range(2, 11)),
    "m121-resnet-infer-2it": {2},
    "alexnet-b3-libdnn-train-iter2": {2},
}
"""Iterations that count, where there are several; looked up in the logs: in the first one the host compiles."""


class Ran(NamedTuple):
    """A kernel of the truth: iteration from 1, layer and direction (None: the update), the library's call, name, ns."""

    iteration: int
    layer: tuple[str, str] | None
    call: int | None
    name: str
    ns: int


def of_miopen(folder: Path) -> Iterator[Ran]:
    truth: dict[str, Any] = json.loads((folder / "truth.json").read_bytes())
    calls: list[dict[str, Any]] = json.loads((folder / "prof.json").read_bytes())
    for launch in truth["enqueues"]:
        where = "" if launch["layer"] is None else truth["layers"][launch["layer"]]["name"]
        found = re.fullmatch(r"iter(\d+) (?:(forward|backward) (.*)|update)", where)
        if found is not None:
            times = calls[launch["prof_index"]]["profiling"]
            ns = times["end"] - times["start"]
            layer = (found[3], found[2]) if found[2] else None
            if layer is None and launch["api_call"] is None:
                continue  # nothing tells that the program's own last kernels are the iteration's
            yield Ran(int(found[1]) + 1, layer, launch["api_call"], launch["name"], ns)


def of_dvdt(name: str) -> Iterator[Ran]:
    truth: dict[str, Any] = json.loads((SAMPLES / "dvdt" / f"{name}.truth.json").read_bytes())
    calls: list[dict[str, Any]] = json.loads((SAMPLES / "dvdt" / f"{name}.prof.json").read_bytes())
    for launch in truth["enqueues"]:
        layer = None if launch["l"] is None else truth["layers"][launch["l"]]
        if not launch["name"].startswith("cl") and layer is not None and layer["pass"] != "init":
            times = calls[launch["call_index"]]["profiling"]
            where = layer["layer"], layer["direction"]
            yield Ran(int(layer["pass"][4:]) + 1, where, None, launch["name"], times["end"] - times["start"])


def of_twin(name: str, rank: int) -> Iterator[Ran]:
    truth: dict[str, Any] = json.loads((SAMPLES / "rocm-twins" / name / "truth.json").read_bytes())
    for kernel in truth["kernels"]:
        layer = None if kernel["layer"] is None else truth["layers"][kernel["layer"]]
        if kernel["rank"] == rank and not kernel["find"] and layer is not None and layer["phase"] in DIRECTIONS:
            where = layer["layer"], layer["phase"]
            yield Ran(layer["iteration"] + 1, where, kernel["op"], kernel["name"], kernel["end"] - kernel["start"])


DIRECTIONS = ("forward", "backward")
TWINS = {
    "alexnet-level6-none": ("rocpd/*_results.db.gz", "run.hip.log"),
    "lenet-train-own-layers": ("rocpd/*_results.db.gz", "run.hip.log"),
    "resnet-train-miopen-2threads": ("rocpd/*_results.db.gz", "run.hip.log"),
}
MIOPEN = sorted(path.parent.name for path in (SAMPLES / "miopen-opencl").glob("*/prof.json"))
DVDT = sorted(name.removesuffix(".run.log") for name in RUNS if name.endswith(".run.log"))


@functools.lru_cache(maxsize=4)
def steady(files: tuple[Path, ...]) -> Steady:
    return analyse(files).run.measures[0].steady


def is_of(found: Steady, kernels: list[Ran]) -> None:
    """Sums by layer and by name, exactly, in order; which iterations count."""
    assert kernels
    layers: Counter[tuple[str, str]] = Counter()
    names: Counter[str] = Counter()
    for kernel in kernels:
        if kernel.layer is not None:
            layers[kernel.layer] += kernel.ns
        names[kernel.name] += kernel.ns
    assert {row.key[1:]: row.total_ns for row in found.layers if row.total_ns} == dict(layers)
    assert {row.key: row.total_ns for row in found.kernels if row.total_ns} == dict(names)
    assert (found.layers[0].key[1:], found.kernels[0].key) == (layers.most_common(1)[0][0], names.most_common(1)[0][0])
    for at, number in enumerate(found.iterations):
        assert found.samples_ns[at] == sum(kernel.ns for kernel in kernels if kernel.iteration == number)
    assert found.mean_ns == pytest.approx(sum(kernel.ns for kernel in kernels) / len(found.iterations))


@pytest.mark.parametrize("name", [*MIOPEN, *DVDT])
def test_sums_are_those_of_truth_and_profile(name: str) -> None:
    """By layer, kernel name, iteration; with MIOpen the operation that costs most is the call that the truth says."""
    warm = WARM.get(name, {1})
    found = steady(RUNS[name if name in RUNS else f"{name}.run.log"])
    assert set(found.iterations) == warm
    ran = of_miopen(SAMPLES / "miopen-opencl" / name) if name in MIOPEN else of_dvdt(name)
    kernels = [kernel for kernel in ran if kernel.iteration in warm]
    is_of(found, kernels)
    calls: Counter[tuple[int, tuple[str, str]]] = Counter()
    for kernel in kernels:
        if kernel.call is not None and kernel.layer is not None:
            calls[kernel.call, kernel.layer] += kernel.ns
    if name in MIOPEN and len(warm) == 1:
        (_, (layer, _)), ns = calls.most_common(1)[0]
        assert (found.operations[0].key[0], found.operations[0].total_ns) == (layer, ns)


@pytest.mark.shared
def test_sums_are_those_of_truth_on_rocm() -> None:
    """A run under rocprofv3 with ranges of its layers."""
    name = "lenet-train-own-layers"
    folder = SAMPLES / "rocm-twins" / name
    found = steady(tuple(path for pattern in TWINS[name] for path in folder.glob(pattern)))
    layers: Counter[tuple[str, str]] = Counter()
    for kernel in of_twin(name, 0):
        assert kernel.layer is not None
        layers[kernel.layer] += kernel.ns
    ours = {row.key[1:]: row.total_ns for row in found.layers if row.key[2] is not None}
    assert ours == dict(layers)
    assert found.layers[0].key[1:] == layers.most_common(1)[0][0]


@pytest.mark.parametrize("name", RUNS)
def test_rows_and_the_rest_are_the_whole(name: str) -> None:
    """Of every ranking the rows and what they do not hold sum up to the kernel time of the steady iterations."""
    of = steady(RUNS[name])
    for ranking in (of.layers, of.operations, of.problems, of.kernels):
        rest = 0 if ranking.rest is None else ranking.rest.total_ns
        assert sum(row.total_ns for row in ranking) + rest == of.total.total_ns == sum(of.samples_ns)
        assert all(sum(row.per_iteration_ns) == row.total_ns for row in ranking)
        assert [row.total_ns for row in ranking] == sorted((row.total_ns for row in ranking), reverse=True)


def test_a_row_for_each_operation_takes_the_memory_of_the_operations() -> None:
    """Not that of all operations in all iterations: of long runs that is all memory there is."""
    peaks = []
    for count in (150, 600):
        runs = {
            number: [made_up_costs.Ran("conv", MS + number, operation=number - 1, layer="conv1")]
            for number in range(1, count + 1)
        }
        found = made_up_costs.measures(runs, [made_up_costs.operation(index) for index in range(count)]).steady
        assert len(found.iterations) == count
        tracemalloc.start()
        ranking, times = found.by_operation(lambda index: index), found.of_operations()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert {row.key: row.per_iteration_ns for row in ranking} == {
            index: tuple(MS + index + 1 if at == index else 0 for at in range(count)) for index in range(count)
        }
        assert times == {row.key: row.mean_ns for row in ranking}
        assert times[1] == (MS + 2) / count
    assert peaks[1] < 8 * peaks[0]


# -- the same everywhere: every sample ---------------------------------------------------------------------

First = tuple[tuple[str, ...], float, float]
"""Of a process's slowest layer, operation or kernel what it is called, ms an iteration, share in percent."""


PROFILES = ("kineto", "rocpd", "rpd", "rocprofv3_doc_kernel_trace.csv", "rocprofv1_hiptrace_mi300a.db")


def sample_sets() -> Iterator[tuple[str, tuple[Path, ...]]]:
    """Every form of every twin without a log; with its log those that read the quickest; profiles of others."""
    for folder in sorted(path.parent for path in SAMPLES.glob("rocm-twins/*/truth.json")):
        log = next(log for log in (folder / "run.hip.log", folder / "run.log") if log.exists())
        forms = {form.name: form for form in sorted(folder.iterdir()) if form.is_dir()}
        for name, form in forms.items():
            if name == "rocprofv3-pftrace":
                continue
            profiles = [form]
            if name == "rocprof-v1" and not (form / "rank0").exists():
                profiles = [form / "results.db.gz", form / "results.json.gz", form / "results.csv"]
            elif (form / "merged.db.gz").exists():
                profiles = [form / "merged.db.gz"]
            for profile in profiles:
                yield f"{folder.name}/{profile.relative_to(folder)}", (profile,)
            if name in ("rocpd", "kineto"):
                yield f"{folder.name}/{name} and log", (profiles[0], log)
    for name in ("m290-alexnet-infer-10it", "m121-resnet-infer-2it", "alexnet-b3-libdnn-train-iter2.run.log"):
        yield name, RUNS[name]
    for file in sorted((SAMPLES / "rocm").glob("*")):
        if file.name.startswith(PROFILES) and file.stat().st_size < 720_000:  # larger ones are alike
            yield f"rocm/{file.name}", (file,)


SETS = dict(sample_sets()) if SAMPLES.exists() else {}


def first_of(rows: Iterable[tuple[Any, tuple[Any, ...], float, float]]) -> dict[str, First]:
    """By process the first row that has any time."""
    first: dict[str, First] = {}
    for process, name, ms, share in rows:
        if ms:
            first.setdefault(str(process or ""), (tuple(part or "" for part in name), ms, share))
    return first


def asked(slices: Sequence[Slice]) -> list[dict[str, First]]:
    found = []
    for query, names in QUERIES.items():
        answer = queries.answer_in_sqlite(slices, shipped()[query].sql)
        rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        found.append(
            first_of(
                (
                    row["process"],
                    tuple(row[name] for name in names),
                    row["kernel_ms"] or 0,
                    row["percent_of_kernel_time"] or 0,
                )
                for row in rows
            )
        )
    return found


QUERIES = {
    "slowest layers": ("layer", "direction"),
    "slowest operations": ("layer", "operation"),
    "slowest kernels": ("kernel",),
}
COMMANDS = {("layers",): ("layer", "direction"), ("ops",): ("layer", "name"), ("kernels", "--by", "name"): ("name",)}


def tabled(files: Sequence[Path], labels: Mapping[str, str]) -> list[dict[str, First]]:
    """``labels``: how the answer calls a process of a number; a table has ranks and numbers."""
    found = []
    for command, names in COMMANDS.items():
        done = invoked(*command, *files, "--format", "json")
        rows: list[dict[str, Any]] = json.loads(done.stdout) if done.exit_code == 0 else []
        if done.exit_code:
            assert "names no layer" in done.stderr or "holds no line of MIOpen" in done.stderr
        found.append(
            first_of(
                (labels.get(process_of(row), process_of(row)), tuple(row.get(name) for name in names),
                 row.get("kernel_ns", 0) / 1e6, row.get("percent_of_kernel_time", 0))
                for row in rows
            )
        )  # fmt: skip
    return found


def process_of(row: dict[str, Any]) -> str:
    return next((f"{key} {row[key]}" for key in ("rank", "pid") if key in row), "")


def agree(ours: list[dict[str, First]], wanted: list[dict[str, First]]) -> None:
    for own, other in zip(ours, wanted, strict=True):
        assert {process: first[0] for process, first in own.items()} == {
            process: first[0] for process, first in other.items()
        }
        for process, (_, ms, share) in own.items():
            assert ms == pytest.approx(other[process][1], abs=6e-4)
            assert share == pytest.approx(other[process][2], abs=0.051)


@pytest.mark.parametrize("name", SETS)
def test_every_command_and_the_picture_say_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """First-named layer, operation and kernel of each process, ms an iteration, share: report, tables, queries."""
    files = SETS[name]
    found = analyse(files, AnalysisOptions(from_start=True))
    for place in ("mio2trace.analysis.analyse", "mio2trace.conversion.analyse"):  # once for all of them
        monkeypatch.setattr(place, lambda *_, **__: found)
    sections = report_of(found, [found.run]).sections
    job = len(sections) > 1
    wanted: list[dict[str, First]] = [
        first_of((of.name if job else "", (row.name, row.direction), row.ns / 1e6, 100 * row.ns / of.kernel_ns)
                 for of in sections for row in of.layers),
        first_of((of.name if job else "", (row.layer, row.name), row.ns / 1e6, 100 * row.ns / of.kernel_ns)
                 for of in sections for row in of.operations),
        first_of((of.name if job else "", (row.name,), row.ns / 1e6, 100 * row.ns / of.kernel_ns)
                 for of in sections for row in of.kernels),
    ]  # fmt: skip
    assert wanted[2]
    processes = [profile.process for profile in found.run.profiles]
    agree(tabled(files, {f"pid {one.pid}": one.label for one in processes if one.rank is None and job}), wanted)
    trace = convert(*files, from_start=True).trace
    agree(asked([event for event in trace.events() if isinstance(event, Slice)]), wanted)


@pytest.mark.shared
def test_steps_of_a_profile_and_iterations_of_its_log_are_the_same() -> None:
    """`ProfilerStep#0` is what the log calls its first iteration: one, not two of half the time."""
    of = steady(SETS["resnet-train-miopen-2threads/kineto and log"])
    assert (of.iterations, of.told.cold) == ((1,), ())
    truth = [kernel.ns for kernel in of_twin("resnet-train-miopen-2threads", 0)]
    assert of.mean_ns == pytest.approx(sum(truth), rel=5e-3)  # and a few kernels of no layer


@pytest.mark.shared
def test_repetitions_are_chosen_by_their_numbers() -> None:
    """As iterations that a log names, of the profile alone."""
    trace = convert(SETS["alexnet-10it-graph/rocpd and log"][0], iterations="3-4").trace
    slices = [event for event in trace.events() if isinstance(event, Slice)]
    assert [one.name for one in slices if one.category == "pass"] == ["repetition 3", "repetition 4"]
    assert sum(one.category == "kernel" for one in slices) == 2 * 29


@pytest.mark.shared
def test_a_trace_of_repetitions_is_a_side_of_a_comparison(tmp_path: Path) -> None:
    """It has the same iterations as the files: nothing differs."""
    files = SETS["alexnet-10it-graph/rocpd and log"][:1]
    convert(*files, output=tmp_path / "out.pftrace")
    rows = json_of("compare", ",".join(map(str, files)), tmp_path / "out.pftrace")["rows"]
    assert {row["ratio"] for row in rows} == {1.0}
    (whole,) = [row for row in rows if row["part"] == "iteration"]
    assert whole["a_ms"] == pytest.approx(median(steady(files).samples_ns) / 1e6)
