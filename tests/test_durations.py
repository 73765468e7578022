"""The fit of printed layer times: mostly right, and where it is not, it says that it may not be."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.score import load, score
from mio2trace.align import NONE, align
from mio2trace.align.layers.caffe import durations
from mio2trace.align.layers.net import NetLayerSpec
from mio2trace.conversion import convert
from mio2trace.model.log import Direction
from mio2trace.model.profile import Activity
from mio2trace.notes import Notes
from tests.records import enqueued
from tests.synthetic_run import MS, US, Kernel, Layer, Run, make_run, random_net

seeds = st.integers(0, 2**32 - 1).map(Random)


def outcome(run: Run, notes: Notes | None = None) -> Counter[str]:
    """How many enqueues of the iterations are right, wrong or not placed, and whether that was said to be sure."""
    links = align(run.profile, [run.log], notes or Notes()).links
    counts: Counter[str] = Counter()
    for position, place in enumerate(run.places):
        number = links.run_of[position]
        sure = "sure" if position not in links.layer_unsure else "unsure"
        if number == NONE:
            counts["not placed"] += place is not None and place[0] > 0
            continue
        held = links.runs[number]
        right = (links.passes[held.pass_].iteration, held.direction, held.layer) == place
        counts[f"{'right' if right else 'wrong'}, {sure}"] += 1
    return counts


def random_run(rng: Random, timer_noise: int) -> Run:
    """Any net, some layers of which launch nothing, in one to three iterations that differ."""
    return make_run(
        rng,
        random_net(rng, rng.randint(3, 25), empty=rng.choice([0, 0.2, 0.5])),
        iterations=rng.choice([1, 1, 2, 3]),
        backward=rng.random() < 0.5,
        marks=False,
        jitter=rng.choice([0, 0.1, 0.5]),
        warm_up=rng.random() < 0.8,
        extra_fills=True,
        tail=rng.choice([0, 2]),
        timer_noise=timer_noise,
    )


@given(seeds, st.sampled_from([0, 5 * US, 10 * US]))
def test_a_wrong_layer_is_never_said_to_be_sure(rng: Random, timer_noise: int) -> None:
    """Nor is anything outside the iterations drawn into them, whatever the layers launch."""
    assert outcome(random_run(rng, timer_noise))["wrong, sure"] == 0


def test_most_enqueues_are_placed_right_and_surely() -> None:
    """Of 100 runs: at least 95 % right, four fifths of all without a doubt, nothing wrong without one."""
    total: Counter[str] = Counter()
    for seed in range(100):
        total += outcome(random_run(Random(seed), 3 * US))
    right, everything = total["right, sure"] + total["right, unsure"], sum(total.values())
    assert right >= 0.95 * everything
    assert total["right, sure"] >= 0.8 * everything
    assert total["wrong, sure"] == 0


def test_layers_that_cannot_be_told_apart_are_doubted() -> None:
    """A layer without kernels may as well come before or after one that launches two in as much time."""
    net = [
        Layer(name="a", forward=[Kernel(name="k", ns=MS)]),
        Layer(name="b", forward=[Kernel(name="k", ns=10 * US)], host_ns=0),
        Layer(name="c", forward=[Kernel(name="k", ns=10 * US)], host_ns=0),
        Layer(name="d", forward=[Kernel(name="k", ns=MS)]),
    ]
    counts = outcome(make_run(Random(1), net, marks=False, warm_up=False))
    assert counts["right, unsure"] + counts["wrong, unsure"] >= 2
    assert counts["right, sure"] >= 2
    assert counts["wrong, sure"] == 0


def test_layers_without_kernels_share_the_room_between_their_neighbours() -> None:
    """Each would fit there alone, both do not: then the one before launched what lies there."""
    net = [
        Layer(name="a", forward=[Kernel(name="k", ns=MS)], host_ns=0),
        Layer(name="host", host_ns=6 * MS),
        Layer(name="b", forward=[Kernel(name="k", ns=600 * US)], host_ns=0),
        Layer(name="c", forward=[Kernel(name="k", ns=200 * US)], host_ns=0),
        Layer(name="host too", host_ns=5 * MS),
        Layer(name="d", forward=[Kernel(name="k", ns=MS)], host_ns=0),
    ]
    counts = outcome(make_run(Random(2), net, marks=False, warm_up=False))
    assert +counts == {"right, sure": 4}


@pytest.mark.parametrize("iterations", [1, 3])
def test_what_runs_right_after_an_iteration_is_not_in_it(iterations: int) -> None:
    """Neither the next iteration's first kernel nor what the program does in the end."""
    net = [Layer(name=f"l{i}", forward=[Kernel(name=f"k{i}", ns=300 * US)], host_ns=US) for i in range(4)]
    for seed in range(20):
        run = make_run(Random(seed), net, marks=False, iterations=iterations, tail=2, gap=(US, 2 * US))
        counts = outcome(run)
        assert counts["wrong, sure"] == counts["wrong, unsure"] == counts["not placed"] == 0


def test_times_of_another_program_are_not_used_and_that_is_said() -> None:
    """Printed times that nothing in the calls bears out."""
    run = make_run(Random(4), random_net(Random(4), 8, empty=0), marks=False)
    ns = [layer.printed_ns for layer in run.log.layers if layer.direction == "forward"]
    other = iter(sorted(ns, reverse=True))
    layers = tuple(
        msgspec.structs.replace(layer, printed_ns=next(other) if layer.direction == "forward" else 0)
        for layer in run.log.layers
    )
    log = msgspec.structs.replace(run.log, layers=layers)
    notes = Notes()
    links = align(run.profile, [log], notes).links
    assert "durations" not in links.layer_by
    assert any("do not fit the enqueues" in note.kind for note in notes.problems)


REAL = {"alexnet-b3-libdnn-train-iter2": 123}
"""Of sets with several iterations so many enqueues are right by durations alone; of all others every one."""


@pytest.mark.shared
def test_real_sets_are_right_without_their_marks_or_doubted(shared: Path, tmp_path: Path) -> None:
    """Nothing wrong without a doubt, neither in iterations nor in the warm-up that is named after them."""
    folder = shared / "samples" / "dvdt"
    profiles = [path for path in sorted(folder.glob("*.prof.json")) if Path(str(path)[:-9] + "run.log").exists()]
    assert len(profiles) >= 7
    for profile in profiles:
        name = profile.name.removesuffix(".prof.json")
        out = tmp_path / "out.json"
        convert(folder / f"{name}.run.log", profile, without=["timer marks"], output=out, check=True)
        found = score(load(out), load(folder / f"{name}.truth.json"))
        assert found["evidence"]["durations"] == found["iterations"]["total"]
        assert found["wrong_and_sure"] == 0
        assert found["iterations"]["right"] >= REAL.get(name, found["iterations"]["total"])


def folded(windows: list[list[str]]) -> tuple[durations._Columns | None, list[Activity], list[durations.Window]]:
    """Iterations of 1 ms, each with a kernel of such a name every 10 us."""
    enqueues: list[Activity] = []
    spans: list[durations.Window] = []
    for number, names in enumerate(windows):
        start, first = number * MS, len(enqueues)
        for place, name in enumerate(names):
            at = start + (1 + place) * 10 * US + number
            call = len(enqueues)
            enqueues.append(
                enqueued(call, "kernel", name, host_start_ns=at, host_end_ns=at + 5 * US, prepared_ns=at - US)
            )
        spans.append(
            durations.Window(
                iteration=number + 1, start_ns=start, end_ns=start + MS, positions=range(first, len(enqueues))
            )
        )
    return durations._fold(enqueues, spans, [1 / len(spans)] * len(spans), durations.on_host), enqueues, spans


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=6), min_size=1, max_size=6))
def test_iterations_are_folded_enqueue_by_enqueue(windows: list[list[str]]) -> None:
    """Every enqueue is in one column, in order; its times are the means over the iterations, as the words say."""
    columns, enqueues, spans = folded(windows)
    assert columns is not None
    assert sorted(position for members in columns.members for position in members) == list(range(len(enqueues)))
    for span in spans:
        mine = [[p for p in members if p in span.positions] for members in columns.members]
        assert [p for found in mine for p in found] == list(span.positions)
        assert all(len(found) <= 1 for found in mine)
    for number in range(len(columns.members) + 1):
        starts = ends = 0
        for span in spans:
            after = [p for members in columns.members[number:] for p in members if p in span.positions]
            before = [p for members in columns.members[:number] for p in members if p in span.positions]
            starts += ((enqueues[min(after)].prepared_ns or 0) if after else span.end_ns) - span.start_ns
            ends += (enqueues[max(before)].host_end_ns or 0) - span.start_ns if before else 0
        assert abs(columns.starts[number] - starts / len(spans)) <= 0.5
        assert abs(columns.ends[number] - ends / len(spans)) <= 0.5


def test_many_iterations_are_folded_in_linear_time() -> None:
    """Twenty times as long when each looks at all the others."""
    began = time.process_time()
    columns, enqueues, _ = folded([list("abcdefghijklmnopqrst")] * 4000)
    assert columns is not None
    assert len(columns.members) == 20
    assert len(enqueues) == 80_000
    assert time.process_time() - began < 8


def test_bounds_that_leave_everything_open_are_not_searched() -> None:
    """Stamps in seconds around layers of milliseconds: each cut may be anywhere, which takes minutes to find out."""
    enqueues = [
        enqueued(at, "kernel", "k", host_start_ns=at * 10 * US, host_end_ns=at * 10 * US + US, prepared_ns=at * 10 * US)
        for at in range(700)
    ]
    window = durations.Window(iteration=1, start_ns=-1000 * MS, end_ns=1000 * MS, positions=range(700))
    assert durations.fit(enqueues, [window], layers_of(20 * US)) is None
    narrow = durations.Window(iteration=1, start_ns=0, end_ns=7 * MS, positions=range(700))
    assert durations.fit(enqueues, [narrow], layers_of(100 * US)) is not None


def layers_of(each_ns: int) -> list[tuple[NetLayerSpec, Direction]]:
    return [(NetLayerSpec(index=at, layer=f"l{at}", forward_ns=each_ns), "forward") for at in range(70)]
