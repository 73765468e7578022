"""Layers behind the last line of a log that was cut inside the only iteration."""

from __future__ import annotations

from random import Random

import msgspec

from mio2trace.align import NONE, Links, align
from mio2trace.evidence import NAME_AND_SIZES
from mio2trace.notes import Notes
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
