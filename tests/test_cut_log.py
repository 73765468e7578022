"""Layers behind the last line of a log that was cut inside the only iteration."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from benchmarks.damage import measured
from benchmarks.damages.sets import HANDLES, TWIN
from mio2trace.align import NONE, Links, align
from mio2trace.evidence import NAME_AND_SIZES
from mio2trace.notes import Notes
from tests.conftest import shared_folder
from tests.synthetic_run import Run, make_run
from tests.test_by_names import named_net, with_activities


def cut_inside_the_iteration(run: Run, kept: int) -> Run:
    """The log up to its ``kept``-th layer line, each of which was printed right behind its layer."""
    layers = run.log.layers[:kept]
    events = tuple(event for event in run.log.events if event.line <= layers[-1].line)
    log = msgspec.structs.replace(run.log, layers=layers, events=events)
    return Run(profile=run.profile, log=log, places=run.places, starts=run.starts)


def is_right(run: Run, links: Links, position: int) -> bool:
    held = links.runs[links.run_of[position]]
    return (links.passes[held.pass_].iteration, held.direction, held.layer) == run.places[position]


def test_layers_go_on_behind_the_last_line() -> None:
    """Of 20 runs most of what ran behind the last line is told, hardly anything wrong, nothing sure."""
    kernels = told = right = 0
    for seed in range(20):
        rng = Random(seed)
        net = named_net(rng, 20)
        run = cut_inside_the_iteration(make_run(rng, net, marks=False, boundary_lines=True, warm_up=False), 8)
        links = align(run.profile, [run.log], Notes()).links
        behind = [at for at, place in enumerate(run.places) if place and place[2] not in {one.name for one in net[:8]}]
        by_names = [at for at in behind if links.run_of[at] != NONE and links.layer_by[at] == NAME_AND_SIZES]
        kernels, told = kernels + len(behind), told + len(by_names)
        right += sum(is_right(run, links, at) for at in by_names)
        assert links.layer_unsure >= set(by_names)
    assert told >= 0.9 * kernels
    assert right >= 0.97 * told


def test_what_goes_on_backward_is_not_told() -> None:
    """Behind the forward pass are another one, and what updates the weights, of which names say less."""
    rng = Random(1)
    whole = make_run(rng, named_net(rng, 20), marks=False, boundary_lines=True, warm_up=False)
    last = whole.profile.activities[-1]
    activities = [*whole.profile.activities[:-1], msgspec.structs.replace(last, name="max_pool_backward_float")]
    run = cut_inside_the_iteration(with_activities(whole, activities), 8)
    assert NAME_AND_SIZES not in align(run.profile, [run.log], Notes()).links.layer_by


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "variant", "wrong"),
    [
        ("m121-lenet-infer", HANDLES, 0),
        ("m290-resnet-infer-immediate-fused", HANDLES, 0),
        ("twin-resnet-immediate-2ranks-run-rocpd", TWIN, 2),
        ("twin-resnet-immediate-2ranks-run.rank0-rocpd", TWIN, 7),
    ],
)
def test_of_a_log_that_ends_early_the_rest_of_the_iteration_has_its_layers(name: str, variant: str, wrong: int) -> None:
    """All but a few kernels, of which none is wrong and sure."""
    layers = measured(shared_folder(), ("log ends early", name, variant, 0)).layers
    assert layers.right >= layers.kernels - wrong
    assert layers.wrong_and_sure == 0


@pytest.mark.shared
def test_iterations_whose_lines_are_lost_in_the_middle_repeat_the_one_that_is_sure() -> None:
    """Where one line of two iterations is gone their kernels are those of the others, one by one; and of those beside
    them what coarse bounds put there goes back."""
    layers = measured(shared_folder(), ("middle fifth of the log lost", "m290-alexnet-infer-10it", HANDLES, 0)).layers
    assert layers.right == layers.kernels == 336
