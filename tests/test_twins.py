"""Runs played as ROCm's tools would have recorded them, with truth: links by what the profile itself states."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from mio2trace.align import NONE, Alignment, Links
from mio2trace.analysis import AnalysisOptions, analyse
from tests.conftest import shared_folder

pytestmark = pytest.mark.shared


class Twin(NamedTuple):
    alignments: list[Alignment]
    truth: dict[str, Any]

    def kernels(self) -> list[tuple[Links, int, Any, dict[str, Any]]]:
        """(links, position, operation, truth) of each kernel; all are there."""
        by_key = {(kernel["start"], kernel["dispatch_id"]): kernel for kernel in self.truth["kernels"]}
        found = []
        for links in (alignment.links for alignment in self.alignments):
            calls: dict[int, Any] = {one.index: one for one in links.operations}
            found += [
                (links, position, calls.get(links.operation_of[position]), by_key[activity.start_ns, activity.number])
                for position, activity in enumerate(links.activities)
                if activity.kind == "kernel"
            ]
        assert found
        return found


def twin(name: str, *files: str) -> Twin:
    folder = shared_folder() / "samples" / "rocm-twins" / name
    paths = [path for pattern in files for path in sorted(folder.glob(pattern))]
    analysis = analyse(paths)
    alignments = [alignment for run in analysis.runs for alignment in run.alignments]
    return Twin(alignments, json.loads((folder / "truth.json").read_bytes()))


@pytest.mark.parametrize("log", ["", "run.log", "run.hip.log"])
@pytest.mark.parametrize("name", ["lenet-train-own-layers", "resnet-train-miopen-2threads", "alexnet-10it-graph"])
def test_with_the_librarys_ranges_every_kernel_is_in_its_true_call(name: str, log: str) -> None:
    """By `range`, and sure; the application's own kernels and those that a graph replays are in none."""
    found = twin(name, "rocpd/*_results.db.gz", *([log] if log else []))
    by = set()
    for links, position, operation, true in found.kernels():
        if true["op"] is None or true["graph"]:
            assert operation is None
            continue
        assert operation.api == found.truth["operations"][true["op"]]["name"]
        if log and operation.line:
            assert operation.line == (true["log_line"] or {})[log]
        assert position not in links.operation_unsure
        by.add(links.operation_by[position])
    assert by == {"range"}


def test_ranges_of_the_framework_are_layers() -> None:
    """Every kernel in its true layer, direction and iteration; none of them in two, set-up in none."""
    found = twin("lenet-train-own-layers", "rocpd/*.db.gz")
    for links, position, _, true in found.kernels():
        layer = None if true["layer"] is None else found.truth["layers"][true["layer"]]
        if layer is None or layer["phase"] == "setup":
            assert links.run_of[position] == NONE
            continue
        made = links.runs[links.run_of[position]]
        assert (made.layer, made.direction or "update") == (layer["layer"], layer["phase"])
        assert links.passes[made.pass_].iteration == layer["iteration"] + 1
        assert (links.layer_by[position], position in links.layer_unsure) == ("range", False)


SETS = {
    "resnet-train-miopen-2threads": ("run.hip.log",),
    "alexnet-level6-none": ("run.log", "run.hip.log"),
    "lenet-cmdonly-kernel-trace": ("run.log", "run.hip.log"),
    "lenet-train-own-layers": ("run.log", "run.hip.log"),
    "resnet-immediate-2ranks": ("run.log",),
}
FORMS = ("rocpd/*_results.db.gz", "rocprof-v1/results.csv", "rocprof-v1/results.db.gz")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "log"), [(name, log) for name, logs in SETS.items() for log in logs])
def test_without_ranges_kernels_are_in_their_true_calls_or_in_doubt(name: str, log: str, form: str) -> None:
    """By the log and the profile's order, names and sizes: at least 97 % right, one in a thousand wrong and sure."""
    folder = shared_folder() / "samples" / "rocm-twins" / name
    profiles = sorted(folder.glob(form))
    if not profiles:
        pytest.skip("the set has no such file")
    analysis = analyse([*profiles, folder / log], AnalysisOptions(without=frozenset(("range", "correlation"))))
    told = json.loads((folder / "truth.json").read_bytes())
    by_start = {kernel["start"]: kernel for kernel in told["kernels"]}
    kernels = right = wrong_and_sure = 0
    for links in (alignment.links for run in analysis.runs for alignment in run.alignments):
        calls: dict[int, Any] = {one.index: one for one in links.operations}
        for position, activity in enumerate(links.activities):
            if activity.kind != "kernel":
                continue
            true = by_start[activity.start_ns]
            call = told["operations"][true["op"]] if true["op"] is not None else {}
            lines = {(line or {}).get(log) for line in (true["log_line"], call.get("cmd_line"))} - {None}
            operation = calls.get(links.operation_of[position])
            kernels += 1
            if operation is None or operation.line in lines:
                right += operation is not None or not lines
            else:
                wrong_and_sure += position not in links.operation_unsure
    assert right >= 0.97 * kernels > 0
    assert wrong_and_sure <= 0.001 * kernels
