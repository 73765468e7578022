"""What has no layer, between activities that have: which pass it ran in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import orjson
import pytest

from mio2trace import analyse
from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.between import place_between
from mio2trace.align.links import NONE
from mio2trace.conversion import convert
from mio2trace.model.profile import Activity, Profile
from mio2trace.notes import Notes
from tests.rocm_files import samples, truth

SET_UP, FORWARD, BACKWARD, NEXT = "s", "f", "b", "n"


def passes_of(row: str, queues: str = "") -> str:
    """Passes after the step; of each activity a letter before it, ``.`` where none is known, and its queue."""
    activities = tuple(
        Activity(number, "kernel", "k", queue=int(queue)) for number, queue in enumerate(queues or "0" * len(row))
    )
    attribution = Attribution(Profile(source=0, records=len(row), activities=activities), Notes())
    links = attribution.links
    number_of = {
        SET_UP: links.pass_id("setup"),
        FORWARD: links.pass_id("iteration", 1, "forward"),
        BACKWARD: links.pass_id("iteration", 1, "backward"),
        NEXT: links.pass_id("iteration", 2, "forward"),
    }
    for position, letter in enumerate(row):
        if letter != ".":
            links.give_pass([position], number_of[letter])
    place_between(attribution)
    letter_of = {number: letter for letter, number in number_of.items()} | {NONE: "."}
    undirected = links.pass_id("iteration", 1)
    return "".join("1" if number == undirected else letter_of[number] for number in links.pass_of)


@pytest.mark.parametrize(
    ("row", "after"),
    [
        ("f.f..f", "ffffff"),
        ("s.s", "sss"),
        ("f..b", "f11b"),  # of the iteration; of which direction nothing tells
        ("f.n", "f.n"),  # between two iterations: of neither
        ("b.n", "b.n"),
        ("s.f", "s.f"),
        (".f.", ".f."),  # what comes before the first, or after the last
        ("f.n.f", "f.n.f"),
        ("...", "..."),
    ],
)
def test_what_lies_between_two_of_one_iteration_is_in_it(row: str, after: str) -> None:
    """With its direction where both have the same; what lies between two passes stays in none."""
    assert passes_of(row) == after


def test_each_queue_tells_of_its_own() -> None:
    """What another queue ran meanwhile may be anyone's; a pass of another queue ends none."""
    assert passes_of("f.f", "010") == "f.f"
    assert passes_of("fn.f", "0100") == "fnff"
    assert passes_of("f.nf", "0010") == "ffnf"


@pytest.mark.shared
@pytest.mark.parametrize("form", ["rocprofv3-csv/*_kernel_trace.csv", "rocpd/*.db.gz"])
def test_kernels_of_no_layer_do_not_cut_an_iteration_in_pieces(tmp_path: Path, form: str) -> None:
    """Each pass is one bar of all that truly ran in it, the update too; sums are of as many kernels."""
    twin = "lenet-cmdonly-kernel-trace"
    folder = samples() / "rocm-twins" / twin
    analysis = analyse([folder / "run.log", *folder.glob(form)])
    (alignment,) = analysis.runs[0].alignments
    links = alignment.links
    layers = orjson.loads((folder / "truth.json").read_bytes())["layers"]
    phase_of = {row["dispatch_id"]: layers[row["layer"]]["phase"] for row in truth(twin)}
    found = Counter(
        (phase_of[activity.number], links.passes[number].direction or links.passes[number].phase)
        for activity, number in zip(alignment.profile.activities, links.pass_of, strict=True)
    )
    assert found == {
        ("setup", "setup"): 86, ("forward", "forward"): 12, ("backward", "backward"): 18, ("update", "iteration"): 8,
    }  # fmt: skip
    convert(folder / "run.log", *folder.glob(form), output=tmp_path / "out.json")
    events = orjson.loads((tmp_path / "out.json").read_bytes())["traceEvents"]
    bars = [(event["name"], event["args"]["kernels"]) for event in events if event.get("cat") == "pass"]
    assert bars == [("set-up", 86), ("iteration 1 · forward", 12), ("iteration 1 · backward", 18), ("iteration 1", 8)]
    (measures,) = analysis.runs[0].measures
    assert [one.kernels for one in measures.steady.told.all] == [38]
