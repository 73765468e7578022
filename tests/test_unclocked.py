"""Layers by printed times where no clock relates log and profile: by the profile's own times and how passes repeat."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest

from benchmarks.damage import measured
from benchmarks.damage_score import TENTHS, Tally, tallies
from benchmarks.damages.profiles import names_times_sizes_only, part_lost
from benchmarks.damages.run import Run as DamagedRun
from benchmarks.damages.sets import HANDLES, caffe
from mio2trace import analyse
from mio2trace.align import NONE, align
from mio2trace.notes import Notes
from tests.conftest import REQUIRED, shared_folder
from tests.records import with_opencl
from tests.synthetic_run import US, Run, make_run, places_of, random_net
from tests.test_recurrence import random_run


def without_host_times(run: Run) -> Run:
    activities = tuple(msgspec.structs.replace(one, call=None) for one in run.profile.activities)
    return replace(run, profile=with_opencl(run.profile, activities=activities))


def test_links_are_as_right_as_they_say() -> None:
    """Of 80 runs, or 200: none is sure, four fifths are found, and of those said with 0.9 and more 99 %. Tenths with
    100 links and more are no bolder than they say."""
    said: dict[int, list[bool]] = defaultdict(list)
    lost = 0
    runs = 200 if "thorough" in REQUIRED else 80
    for seed in range(runs):
        run = without_host_times(random_run(Random(seed), 3 * US))
        links = align(run.profile, [run.log], Notes()).links
        for at, (place, true) in enumerate(zip(places_of(links), run.places, strict=True)):
            if place is None:
                lost += true is not None
            else:
                said[int(10 * links.layer_confidence[at])].append(place == true)
                assert at in links.layer_unsure
    assert sum(map(sum, said.values())) >= 0.8 * (sum(map(len, said.values())) + lost)
    for tenth in (one for one in range(6, 10) if len(said[one]) >= 100):
        assert sum(said[tenth]) >= tenth / 10 * len(said[tenth])
    assert sum(said[9]) >= 0.99 * len(said[9])
    assert len(said[9]) > 50 * runs


@pytest.mark.parametrize("more", [0, 2])
def test_what_the_program_runs_after_its_last_iteration_is_in_no_layer(more: int) -> None:
    """The passes before end without it."""
    rng = Random(5)
    run = without_host_times(make_run(rng, random_net(rng, 12), iterations=3, marks=False, tail=more))
    begun = next(at for at, place in enumerate(run.places) if place and place[0] > 0)
    assert places_of(align(run.profile, [run.log], Notes()).links)[begun:] == run.places[begun:]


@pytest.mark.parametrize("warm_up", [False, True])
def test_what_runs_before_a_benchmark_without_a_warm_up_is_set_up(*, warm_up: bool) -> None:
    """As far as the log tells where the set-up ends, and of no warm-up behind it; a write just before iteration 1 may
    be either's."""
    seen = 0
    for seed in range(8):
        rng = Random(seed)
        run = without_host_times(make_run(rng, random_net(rng, 12, empty=0.2), warm_up=warm_up, marks=False, setup=6))
        links = align(run.profile, [run.log], Notes()).links
        phases = [links.passes[pass_].phase if pass_ != NONE else None for pass_ in links.pass_of]
        if not links.runs:
            continue  # times of few layers may not fit
        begun = phases.index("iteration")
        assert set(phases[:begun]) <= ({"warm-up"} if warm_up else {"setup"})
        assert set(phases[begun:]) == {"iteration"}
        seen += begun > 0
    assert seen >= 5


def test_what_a_set_up_writes_first_is_in_no_layer() -> None:
    """Where no line tells where it ends: the warm-up writes less for each of its layers."""
    seen = 0
    for seed in range(30):
        run = without_host_times(random_run(Random(seed), 3 * US))
        links = align(run.profile, [run.log], Notes()).links
        begun = next((at for at, place in enumerate(run.places) if place), 0)
        seen += begun > 0 and any(run != NONE for run in links.run_of)
        assert set(links.run_of[:begun]) <= {NONE}
    assert seen > 10


@pytest.mark.shared
@pytest.mark.parametrize("name", ["alexnet-b1-train", "squeezenet11-b1-libdnn-fwd", "lenet-b2-viennacl-fwd"])
def test_what_a_warm_up_makes_as_for_other_layers_is_its_first_layers(name: str) -> None:
    """A write and fills before the first kernel that an iteration repeats: conv2 has the same made."""
    layers = measured(shared_folder(), ("no host times", name, HANDLES, 0)).layers
    assert (layers.right, layers.wrong_and_sure) == (layers.kernels, 0)
    assert layers.bins[-2][0] == layers.links
    assert layers.bins[-2][0] > layers.bins[-1][0]


def damaged(run: DamagedRun, folder: Path) -> Tally:
    """What is true of the links to layers of a profile without host times."""
    run = names_times_sizes_only(run, Random(0))
    return tallies(run, analyse(run.write(folder)))[1]


@pytest.mark.shared
def test_another_nets_log_is_not_believed(tmp_path: Path) -> None:
    """A short time at the end of another profile has a few kernels, and these may fit."""
    runs = [caffe(path) for path in sorted((shared_folder() / "samples" / "dvdt").glob("*.run.log"))]
    for run in runs:
        for other in runs:
            if other.name.split("-")[0] != run.name.split("-")[0]:
                assert damaged(replace(run, log=other.log), tmp_path).links == 0, (run.name, other.name)


@pytest.mark.shared
def test_of_a_profile_that_was_cut_nothing_is_likely_and_wrong(tmp_path: Path) -> None:
    """What it ends with is not the iteration's end: times or names do not fit, and what fits all the same is right."""
    links = true = 0.0
    for path in sorted((shared_folder() / "samples" / "dvdt").glob("*.run.log")):
        for end in (0.6, 0.8, 0.86, 0.93):
            layers = damaged(part_lost(end, 1)(caffe(path), Random(0)), tmp_path)
            assert layers.wrong_and_sure == 0
            for count, _, right in layers.bins[6:TENTHS]:
                links, true = links + count, true + right
    assert links > 100
    assert true >= 0.98 * links
