"""Layer lines that bound their layers, and those that only say when printing began."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace import memory
from mio2trace.align import NONE, align
from mio2trace.align.clocks.axis import stamps_bound
from mio2trace.align.operations.rates import LINE_NS
from mio2trace.conversion import convert
from mio2trace.model.log import FrameworkLog
from mio2trace.notes import InputError, Notes
from mio2trace.readers import detect
from mio2trace.readers.base import ReadOptions
from mio2trace.source import Source
from mio2trace.trace import Slice
from tests.conftest import shared_folder
from tests.synthetic_run import MS, Run, make_run, random_net

seeds = st.integers(0, 2**32 - 1).map(Random)
SAMPLES = shared_folder() / "samples"
MIOPEN = [folder.name for folder in sorted((SAMPLES / "miopen-opencl").glob("*")) if folder.is_dir()]
LINES_BOUND = [name for name in MIOPEN if name not in ("m121-resnet-infer-2it", "m290-alexnet-infer-10it")]
"""Sets whose program printed each layer's line right after the layer."""
PRINTED_AT_END = [name for name in MIOPEN if name not in LINES_BOUND]


@given(seeds, st.integers(2, 12), st.integers(1, 3), st.booleans())
def test_lines_printed_right_after_their_layers_bound_them(
    rng: Random, layers: int, iterations: int, backward: bool
) -> None:
    """By stamps, or by position where the profile's blocks lie between the lines; every iteration by itself."""
    net = random_net(rng, layers, longest_ns=8 * MS)
    for interleaved in (False, True):
        run = make_run(
            rng,
            net,
            iterations=iterations,
            backward=backward,
            marks=False,
            boundary_lines=True,
            interleaved=interleaved,
            tail=2,
            gap=(20_000, 90_000),
        )
        if sum(layer.printed_ns for layer in run.log.layers[1:]) <= LINE_NS * len(run.log.layers):
            assert not stamps_bound(run.log.layers)  # layers that took no time leave no room to see
            continue
        found = align(run.profile, [run.log], Notes(), without=frozenset({"recurrence", "name and sizes"})).links
        for position, place in enumerate(run.places):
            number = found.run_of[position]
            if place is None or place[0] == 0:
                assert number == NONE
                continue
            held = found.runs[number]
            assert (found.passes[held.pass_].iteration, held.direction, held.layer) == place
            assert found.layer_by[position] == ("position" if interleaved else "boundary stamps")


@given(seeds, st.integers(1, 12), st.integers(1, 3), st.booleans())
def test_means_printed_together_never_bound_a_layer(rng: Random, layers: int, iterations: int, backward: bool) -> None:
    """As stock ``caffe time`` prints them, whatever the net; nothing is placed by them."""
    run = make_run(rng, random_net(rng, layers, longest_ns=9 * MS), iterations=iterations, backward=backward)
    assert not stamps_bound(run.log.layers)


def read_log(path: Path) -> list[FrameworkLog]:
    notes = Notes()
    source = Source(str(path), 0, notes)
    try:
        records = detect(source).read(source, ReadOptions(), notes)
    except InputError:
        return []
    finally:
        source.close()
    return [record for record in records if isinstance(record, FrameworkLog)]


@pytest.mark.shared
def test_no_published_record_has_stamps_that_bound(shared: Path) -> None:
    """All CK records and the real logs of ``caffe time``: printed together."""
    paths = list((shared / "samples" / "ck").rglob("ckp-*.0001.json"))
    paths += (shared / "samples" / "dvdt").glob("*.run.log")
    paths += (shared / "samples" / "dvdt").glob("*.tmp-ck-timer.json")
    stamped = 0
    for path in paths:
        for log in read_log(path):
            stamped += any(layer.stamp is not None for layer in log.layers)
            assert not stamps_bound(log.layers), path
    assert stamped > 20


@pytest.mark.shared
def test_real_boundaries_are_seen(shared: Path) -> None:
    """Stamps that are layer ends, as CK's form and as lines of a log."""
    paths = list((shared / "samples" / "dvdt").glob("*.boundary.per_layer_info.json"))
    assert paths
    paths += [shared / "samples" / "miopen-opencl" / name / "run.log" for name in LINES_BOUND]
    for path in paths:
        assert any(stamps_bound(log.layers) for log in read_log(path)), path
    for name in PRINTED_AT_END:
        path = shared / "samples" / "miopen-opencl" / name / "run.log"
        assert not any(stamps_bound(log.layers) for log in read_log(path)), path


OUTSIDE: list[Any] = [None, "", ""]


def true_place(name: str) -> tuple[Any, ...]:
    """(group, iteration, direction, layer) of a layer's name in a truth file; what is in no layer has none."""
    words = name.split()
    if words[0] == "setup":
        return "setup", *OUTSIDE
    iteration = int(words[0].removeprefix("iter")) + 1
    return ("update", *OUTSIDE) if words[1] == "update" else ("layers", iteration, words[1], words[2])


@cache
def score(folder: Path) -> tuple[Counter[str], tuple[str, ...]]:
    """How many kernels of a MIOpen set are where its truth says, by group; the wrong ones that were not doubted."""
    truth = json.loads((folder / "truth.json").read_bytes())
    profile = folder / "prof.json"
    trace = convert(folder / "run.log", *([profile] if profile.exists() else []), check=True).trace
    found: dict[int, dict[str, Any]] = {}
    for event in trace.events():
        if isinstance(event, Slice) and event.category == "kernel":
            args = {**event.shared, **event.args}
            found[args["call_index"] if profile.exists() else args["line"]] = args
    counts: Counter[str] = Counter()
    wrong = []
    for enqueue in truth["enqueues"]:
        args = found.pop(enqueue["prof_index"] if profile.exists() else enqueue["log_line"])
        layer = enqueue["layer"]
        group, *place = true_place("setup" if layer is None else truth["layers"][layer]["name"])
        said: list[Any] = [args.get("iteration"), args["direction"], args["layer"]] if "layer" in args else OUTSIDE
        counts[f"{group} total"] += 1
        counts[f"{group} right"] += said == place
        if said != place and args.get("sure", True):
            wrong.append(f"{enqueue['name']}: {said} for {place}")
    assert not found
    return counts, tuple(wrong)


@pytest.mark.shared
@pytest.mark.parametrize("name", LINES_BOUND)
def test_kernels_between_layer_lines_are_in_the_true_layer(shared: Path, name: str) -> None:
    """Also of programs that this project was not made with: all of them, and nothing of set-up or update in a layer."""
    counts, wrong = score(shared / "samples" / "miopen-opencl" / name)
    assert wrong == ()
    for group in ("layers", "setup", "update"):
        assert counts[f"{group} right"] == counts[f"{group} total"]
    assert counts["layers total"] > 0


@pytest.mark.shared
@pytest.mark.parametrize("name", PRINTED_AT_END)
def test_kernels_of_layers_with_means_alone_are_never_wrong_unseen(shared: Path, name: str) -> None:
    """Fitted by durations: nearly all right, and what is wrong was doubted."""
    counts, wrong = score(shared / "samples" / "miopen-opencl" / name)
    assert wrong == ()
    assert counts["layers right"] >= 0.99 * counts["layers total"] > 0
    assert counts["setup right"] == counts["setup total"]


@pytest.mark.shared
@pytest.mark.parametrize("name", ["alexnet-b1-train", "squeezenet11-b1-fwd-tz"])
def test_ck_stamps_that_are_layer_ends_give_what_the_marks_give(shared: Path, name: str) -> None:
    """The same information in another form gives the same answer; nothing of the warm-up is in a layer by stamps."""
    folder = shared / "samples" / "dvdt"
    trace = convert(
        folder / f"{name}.boundary.per_layer_info.json", folder / f"{name}.prof.json", without=["timer marks"]
    ).trace
    by_marks = convert(folder / f"{name}.run.log", folder / f"{name}.prof.json").trace
    keys = ("layer", "layer_index", "direction", "iteration")

    def places(events: Any) -> dict[int, list[Any]]:
        args = ({**e.shared, **e.args} for e in events if isinstance(e, Slice) and e.category in ("kernel", "copy"))
        return {a["call_index"]: [a.get(key) for key in keys] for a in args}

    stamped = [e for e in trace.events() if isinstance(e, Slice) and e.shared.get("layer_by") == "boundary stamps"]
    assert stamped
    assert all(event.args["iteration"] == 1 for event in stamped)
    assert places(trace.events()) == places(by_marks.events())


def as_digest(run: Run) -> FrameworkLog:
    """The same layer lines without file positions, as CK's digest has them."""
    layers = tuple(msgspec.structs.replace(layer, line=0) for layer in run.log.layers)
    return FrameworkLog(source=0, layers=layers)


def test_a_digest_of_real_boundaries_gives_what_the_log_gives() -> None:
    """``per_layer_info`` and the log's own lines are one kind of evidence."""
    rng = Random(11)
    net = random_net(rng, 8, empty=0, longest_ns=9 * MS)
    run = make_run(rng, net, marks=False, boundary_lines=True)
    by_log = align(run.profile, [run.log], Notes()).links
    by_digest = align(run.profile, [as_digest(run)], Notes()).links
    for position, place in enumerate(run.places):
        if place is not None and place[0] == 1:
            assert by_log.layer_by[position] == by_digest.layer_by[position] == "boundary stamps"
            one, other = by_log.runs[by_log.run_of[position]], by_digest.runs[by_digest.run_of[position]]
            assert (one.layer, one.direction) == (other.layer, other.direction)


def test_little_memory_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the allocator cannot be taught to keep what is freed, it keeps nothing."""
    monkeypatch.setattr(memory, "_KEPT", 1 << 60)
    memory.keep_freed_blocks()
