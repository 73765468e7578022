"""An attributed stretch labels one like it: the warm-up after iteration 1, iterations after another."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.score import load, score
from mio2trace.align import NONE, Links, align
from mio2trace.conversion import convert
from mio2trace.notes import Notes
from tests.records import with_opencl
from tests.synthetic_run import MS, US, Kernel, Layer, Run, make_run, random_net

seeds = st.integers(0, 2**32 - 1).map(Random)


def warm_up(run: Run, links: Links) -> Counter[str]:
    """Where the warm-up's enqueues were put."""
    counts: Counter[str] = Counter()
    for position, place in enumerate(run.places):
        if place is None or place[0] > 0:
            continue
        number = links.run_of[position]
        if number == NONE:
            counts["not placed"] += 1
            continue
        held = links.runs[number]
        right = (links.passes[held.pass_].iteration, held.direction, held.layer) == place
        counts[f"{'right' if right else 'wrong'}, {'unsure' if position in links.layer_unsure else 'sure'}"] += 1
    return counts


def without_some(rng: Random, run: Run, share: float) -> Run:
    """Some of the warm-up's enqueues were not recorded."""
    kept = [i for i, place in enumerate(run.places) if place is None or place[0] > 0 or rng.random() >= share]
    enqueues = tuple(run.profile.activities[i] for i in kept)
    return Run(
        profile=with_opencl(run.profile, activities=enqueues),
        log=run.log,
        places=[run.places[i] for i in kept],
        starts=[run.starts[i] for i in kept],
    )


@given(seeds, st.integers(2, 20), st.sampled_from([2, 6, 40]), st.booleans())
def test_the_warm_up_is_labelled_after_iteration_one(rng: Random, layers: int, names: int, backward: bool) -> None:
    """Buffers that it alone fills and writes go with the kernel that follows; nothing is wrong without a doubt."""
    run = make_run(rng, random_net(rng, layers, names=names), backward=backward, extra_fills=True)
    counts = warm_up(run, align(run.profile, [run.log], Notes()).links)
    assert counts["wrong, sure"] == counts["not placed"] == 0


def test_kernels_missing_from_the_warm_up_raise_doubts() -> None:
    """Of 100 runs that lost a tenth of the warm-up: hardly anything wrong without a doubt, nearly all right."""
    total: Counter[str] = Counter()
    for seed in range(100):
        rng = Random(seed)
        net = random_net(rng, rng.randint(3, 20), empty=rng.choice([0, 0.2, 0.5]), names=rng.choice([2, 6, 40]))
        run = without_some(rng, make_run(rng, net, backward=rng.random() < 0.5, extra_fills=True), 0.1)
        total += warm_up(run, align(run.profile, [run.log], Notes()).links)
    everything = sum(total.values())
    assert everything > 2000
    assert total["wrong, sure"] <= 0.001 * everything
    assert total["wrong, sure"] + total["wrong, unsure"] <= 0.03 * everything
    assert total["right, sure"] >= 0.94 * everything


def test_of_equal_kernels_in_two_layers_the_one_that_is_left_is_doubted() -> None:
    """Which of two like kernels is missing cannot be told."""
    same = Kernel(name="relu", ns=50 * US)
    net = [
        Layer(name="a", forward=[Kernel(name="first", ns=US), same]),
        Layer(name="b", forward=[same]),
        Layer(name="c", forward=[Kernel(name="last", ns=US)]),
    ]
    run = make_run(Random(1), net, setup=0)
    lost = next(i for i, place in enumerate(run.places) if place == (0, "forward", "b"))
    kept = [i for i in range(len(run.places)) if i != lost]
    profile = with_opencl(run.profile, activities=tuple(run.profile.activities[i] for i in kept))
    links = align(profile, [run.log], Notes()).links
    left = next(i for i, e in enumerate(profile.activities) if e.name == "relu")
    assert left in links.layer_unsure
    assert kept[0] not in links.layer_unsure


def test_a_doubt_is_inherited() -> None:
    """What is named after an unsure placement is not sure."""
    net = [
        Layer(name="a", forward=[Kernel(name="k1", ns=MS)]),
        Layer(name="b", forward=[Kernel(name="k2", ns=10 * US)], host_ns=0),
        Layer(name="c", forward=[Kernel(name="k3", ns=10 * US)], host_ns=0),
        Layer(name="d", forward=[Kernel(name="k4", ns=MS)]),
    ]
    run = make_run(Random(1), net, marks=False)
    links = align(run.profile, [run.log], Notes()).links
    doubted = {run.profile.activities[i].name for i in links.layer_unsure if links.layer_by[i] == "durations"}
    assert doubted
    inherited = {run.profile.activities[i].name for i in links.layer_unsure if links.layer_by[i] == "recurrence"}
    assert inherited == doubted


def test_without_log_lines_the_warm_up_is_what_runs_most_of_an_iteration() -> None:
    """And nothing is called a warm-up that is not like the first iteration."""
    net = random_net(Random(3), 8, empty=0)
    for warm in (True, False):
        run = make_run(Random(3), net, warm_up=warm, setup=0 if warm else 5)
        kept = ("testing", "iteration")
        log = msgspec.structs.replace(run.log, events=tuple(e for e in run.log.events if e.kind in kept))
        links = align(run.profile, [log], Notes()).links
        assert any(pass_.phase == "warm-up" for pass_ in links.passes) == warm
        if warm:
            assert warm_up(run, links)["right, sure"] == sum(p is not None and p[0] == 0 for p in run.places)


@pytest.mark.shared
def test_real_warm_ups_are_right(shared: Path, tmp_path: Path) -> None:
    """At least 98 % of the kernels and copies of all sets, and nothing wrong without a doubt."""
    folder = shared / "samples" / "dvdt"
    right = total = 0
    for truth in sorted(folder.glob("*.truth.json")):
        name = truth.name.removesuffix(".truth.json")
        log = folder / f"{name}.run.log"
        if not log.exists():
            continue
        convert(log, folder / f"{name}.prof.json", output=tmp_path / "out.json", check=True)
        found = score(load(tmp_path / "out.json"), load(truth))
        assert found["wrong_and_sure"] == 0
        right, total = right + found["warmup"]["right"], total + found["warmup"]["total"]
    assert right >= 0.98 * total > 700


@pytest.mark.parametrize("warm_up", [True, False])
def test_a_warm_up_whose_line_is_lost_is_told_by_its_kernels(warm_up: bool) -> None:
    """They are those of iteration 1, nearly all; what is not like it before the benchmark is set-up."""
    rng = Random(8)
    run = make_run(rng, random_net(rng, 12, empty=0.2, names=40), warm_up=warm_up, setup=3)
    events = tuple(event for event in run.log.events if event.kind != "forward begins")
    links = align(run.profile, [msgspec.structs.replace(run.log, events=events)], Notes()).links
    for place, number, pass_ in zip(run.places, links.run_of, links.pass_of, strict=True):
        if place is not None:
            held = links.runs[number]
            assert (links.passes[held.pass_].iteration, held.direction, held.layer) == place
        elif not warm_up:
            assert number == NONE
            assert links.passes[pass_].phase == "setup"
