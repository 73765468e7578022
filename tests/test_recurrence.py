"""An attributed stretch labels one like it: the warm-up after iteration 1, iterations after another."""

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
from mio2trace.align import align
from mio2trace.align.attribution import Attribution
from mio2trace.align.layers import durations
from mio2trace.align.layers.net import Net, NetLayerSpec
from mio2trace.conversion import convert
from mio2trace.model.profile import Activity
from mio2trace.model.tables import Activities
from mio2trace.notes import Notes
from tests.conftest import REQUIRED
from tests.records import enqueued, opencl_profile
from tests.synthetic_run import MS, US, Kernel, Layer, Run, make_run, outcome, places_of, random_net, seeds

SEEDS = 100 if "thorough" in REQUIRED else 40


def warm_up(run: Run) -> Counter[str]:
    """Where the warm-up's enqueues were put."""
    return outcome(run, align(run.profile, [run.log], Notes()).links, warm_up=True)


def placed(run: Run) -> Counter[str]:
    return outcome(run, align(run.profile, [run.log], Notes()).links)


@given(seeds, st.integers(2, 20), st.sampled_from([2, 6, 40]), st.booleans())
def test_the_warm_up_is_labelled_after_iteration_one(rng: Random, layers: int, names: int, backward: bool) -> None:
    """Buffers that it alone fills and writes go with the kernel that follows; nothing is wrong without a doubt."""
    counts = warm_up(make_run(rng, random_net(rng, layers, names=names), backward=backward, extra_fills=True))
    assert counts["wrong, sure"] == counts["not placed"] == 0


def test_kernels_missing_from_the_warm_up_raise_doubts() -> None:
    """Of runs that lost a tenth of the warm-up: hardly anything wrong without a doubt, nearly all right."""
    total: Counter[str] = Counter()
    for seed in range(SEEDS):
        rng = Random(seed)
        net = random_net(rng, rng.randint(3, 20), empty=rng.choice([0, 0.2, 0.5]), names=rng.choice([2, 6, 40]))
        run = make_run(rng, net, backward=rng.random() < 0.5, extra_fills=True)
        kept = [at for at, place in enumerate(run.places) if place is None or place[0] > 0 or rng.random() >= 0.1]
        total += warm_up(run.of_some(kept))
    everything = sum(total.values())
    assert everything > 20 * SEEDS
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
    lost = run.places.index((0, "forward", "b"))
    run = run.of_some([at for at in range(len(run.places)) if at != lost])
    links = align(run.profile, [run.log], Notes()).links
    left = next(at for at, one in enumerate(run.profile.activities) if one.name == "relu")
    assert left in links.layer_unsure
    assert 0 not in links.layer_unsure


def test_a_doubt_is_inherited() -> None:
    """What is named after an unsure placement is not sure."""
    run = make_run(Random(1), ALIKE, marks=False)
    links = align(run.profile, [run.log], Notes()).links
    doubted, inherited = (
        {run.profile.activities[at].name for at in links.layer_unsure if links.layer_by[at] == by}
        for by in ("durations", "recurrence")
    )
    assert inherited == doubted
    assert doubted


def test_without_log_lines_the_warm_up_is_what_runs_most_of_an_iteration() -> None:
    """And nothing is called a warm-up that is not like the first iteration."""
    net = random_net(Random(3), 8, empty=0)
    for warm in (True, False):
        run = make_run(Random(3), net, warm_up=warm, setup=0 if warm else 5)
        run = run.with_log(events=tuple(e for e in run.log.events if e.kind in ("testing", "iteration")))
        links = align(run.profile, [run.log], Notes()).links
        assert any(pass_.phase == "warm-up" for pass_ in links.passes) == warm
        assert set(warm_up(run)) <= {"right, sure"}


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
    log = run.with_log(events=tuple(event for event in run.log.events if event.kind != "forward begins")).log
    links = align(run.profile, [log], Notes()).links
    for place, said, pass_ in zip(run.places, places_of(links), links.pass_of, strict=True):
        if place is not None or not warm_up:
            assert said == place
            assert place or links.passes[pass_].phase == "setup"


# -- The fit of printed layer times: mostly right, and where it is not, it says that it may not be.


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
    assert placed(random_run(rng, timer_noise))["wrong, sure"] == 0


def test_most_enqueues_are_placed_right_and_surely() -> None:
    """Of many runs: at least 95 % right, four fifths of all without a doubt, nothing wrong without one."""
    total: Counter[str] = Counter()
    for seed in range(SEEDS):
        total += placed(random_run(Random(seed), 3 * US))
    everything = sum(total.values())
    assert total["right, sure"] + total["right, unsure"] >= 0.95 * everything
    assert total["right, sure"] >= 0.8 * everything
    assert total["wrong, sure"] == 0


ALIKE = [
    Layer(name="a", forward=[Kernel(name="k1", ns=MS)]),
    Layer(name="b", forward=[Kernel(name="k2", ns=10 * US)], host_ns=0),
    Layer(name="c", forward=[Kernel(name="k3", ns=10 * US)], host_ns=0),
    Layer(name="d", forward=[Kernel(name="k4", ns=MS)]),
]
"""Times do not tell which of the two in the middle launched what."""


def test_layers_that_cannot_be_told_apart_are_doubted() -> None:
    """A layer without kernels may as well come before or after one that launches two in as much time."""
    counts = placed(make_run(Random(1), ALIKE, marks=False, warm_up=False))
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
    assert +placed(make_run(Random(2), net, marks=False, warm_up=False)) == {"right, sure": 4}


@pytest.mark.parametrize("iterations", [1, 3])
def test_what_runs_right_after_an_iteration_is_not_in_it(iterations: int) -> None:
    """Neither the next iteration's first kernel nor what the program does in the end."""
    net = [Layer(name=f"l{i}", forward=[Kernel(name=f"k{i}", ns=300 * US)], host_ns=US) for i in range(4)]
    for seed in range(20):
        run = make_run(Random(seed), net, marks=False, iterations=iterations, tail=2, gap=(US, 2 * US))
        assert set(placed(run)) <= {"right, sure", "right, unsure"}


def test_times_of_another_program_are_not_used_and_that_is_said() -> None:
    """Printed times that nothing in the calls bears out."""
    run = make_run(Random(4), random_net(Random(4), 8, empty=0), marks=False)
    other = iter(sorted((one.printed_ns for one in run.log.layers if one.direction == "forward"), reverse=True))
    layers = tuple(
        msgspec.structs.replace(layer, printed_ns=next(other) if layer.direction == "forward" else 0)
        for layer in run.log.layers
    )
    notes = Notes()
    assert "durations" not in align(run.profile, [run.with_log(layers=layers).log], notes).links.layer_by
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
    return durations._fold(Activities(enqueues), spans, [1 / len(spans)] * len(spans), on_host=True), enqueues, spans


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
    assert durations.fit(attributed(enqueues, 20 * US), [window], on_host=True) is None
    narrow = durations.Window(iteration=1, start_ns=0, end_ns=7 * MS, positions=range(700))
    assert durations.fit(attributed(enqueues, 100 * US), [narrow], on_host=True) is not None


def attributed(enqueues: list[Activity], each_ns: int) -> Attribution:
    profile = msgspec.structs.replace(opencl_profile(source=0, records=0), activities=tuple(enqueues))
    layers = tuple(NetLayerSpec(index=at, layer=f"l{at}", forward_ns=each_ns) for at in range(70))
    return Attribution(profile, Notes(), net=Net(layers=layers))
