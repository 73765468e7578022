"""Layers by the order of their calls, where neither times nor lines bound them."""

from __future__ import annotations

from itertools import product
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.damage import measured
from benchmarks.damages.sets import HANDLES, HIDDEN, TWIN
from mio2trace import analyse
from mio2trace.align.layers.caffe.in_order import chances_in_order
from mio2trace.align.links import SURE
from mio2trace.align.operations.rates import BROKEN, CUT, LOST
from tests.conftest import shared_folder

PART = st.floats(0.01, 1.0)


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[list[float]], list[float], list[float], list[float]]:
    calls, slots = draw(st.integers(0, 4)), draw(st.integers(1, 3))

    def parts(count: int) -> list[float]:
        return draw(st.lists(PART, min_size=count, max_size=count))

    return [parts(slots) for _ in range(calls)], parts(slots), parts(calls), parts(calls)


@given(rows())
def test_chances_are_those_of_all_ways(given_: tuple[list[list[float]], list[float], list[float], list[float]]) -> None:
    """Each way by itself, worth its product: of each call the ways with it in a slot, in parts of all."""
    fits, silent, entered, again = given_
    count = len(silent)
    worth = [[0.0] * count for _ in fits]
    total = 0.0
    for way in product(range(-1, count), repeat=len(fits)):  # -1: in no slot
        at, value = 0, 1.0  # slots up to there are behind
        for number, slot in enumerate(way):
            far = (LOST if number else CUT) / count
            if slot < 0:
                value *= BROKEN
            elif slot < at - 1:
                value = 0.0
            else:
                entering = (prod(silent[at:slot]) + far) * entered[number] if slot >= at else 0.0
                value *= (entering if slot >= at else again[number]) * fits[number][slot]
                at = slot + 1
        value *= prod(silent[at:]) + CUT / count
        total += value
        for number, slot in enumerate(way):
            if slot >= 0:
                worth[number][slot] += value
    for found, of_call in zip(chances_in_order(fits, silent, entered, again), worth, strict=True):
        assert found == pytest.approx([one / total for one in of_call], rel=1e-6, abs=1e-12)


def test_calls_that_contradict_each_other_by_the_hundred_are_no_fault() -> None:
    """Half of them are of the last slot, and then half of the first one."""
    fits = [[1e-7, 1.0]] * 200 + [[1.0, 1e-7]] * 200
    found = chances_in_order(fits, [0.02, 0.02], [1.0] * 400, [1.0] * 400)
    assert all(0.0 <= chance <= 1.0 for chances in found for chance in chances)
    assert all(sum(chances) <= 1.0 + 1e-9 for chances in found)


NET = {
    "conv1": (
        "conv -n 2 -c 1 -H 28 -W 28 -k 20 -y 5 -x 5 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1", "Conv",
    ),
    "relu1": ("activ -n 2 -c 20 -H 24 -W 24 -m 3 --forw 1 -A 1 -B 1 -G 1", "Activ"),
    "pool1": ("pool -M 0 -n 2 -c 20 -H 24 -W 24 -y 2 -x 2 -p 0 -q 0 -v 2 -u 2 -m max -F 1 -t 1", "Pooling"),
    "drop1": ("", ""),
    "conv2": (
        "conv -n 2 -c 20 -H 12 -W 12 -k 50 -y 5 -x 5 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1", "Conv",
    ),
    "prob": ("softmax -n 2 -c 50 -H 8 -W 8 -F 1 -a 1 -m 1 -A 1.000000 -B 0.000000", "Softmax"),
}  # fmt: skip
KERNELS = {
    "Conv": "MIOpenConvUni", "Activ": "MIOpenActiveFwdLite", "Pooling": "mloPoolingG", "Softmax": "SoftmaxForward",
}  # fmt: skip


def run_of(folder: Path, iterations: int, lost: tuple[int, ...] = ()) -> list[str]:
    """A log of commands without layer times, and a profile of names and times on a clock of its own; of the iterations
    in ``lost`` the log has no line that ends them."""
    stamp = "I1120 11:39:13.866638   742 caffe.cpp:388] "
    log = [f"{stamp}Setting up {layer}" for layer in NET]
    log += [f"{stamp}*** Benchmark begins ***", f"{stamp}Testing for {iterations} iterations."]
    profile = ['"Index","KernelName","gpu-id","queue-id","pid","tid","grd","wgr","BeginNs","EndNs"']
    for number in range(1, iterations + 1):
        for command, kind in NET.values():
            if command:
                log.append(f"MIOpen(HIP): Command [LogCmd{kind}] ./bin/MIOpenDriver {command}")
                at = 1_000_000 + 1000 * len(profile)
                profile.append(f'{len(profile) - 1},"{KERNELS[kind]}.kd",0,0,742,742,256,64,{at},{at + 500}')
        if number not in lost:
            log.append(f"{stamp}Iteration: {number} forward-backward time: 1.5 ms.")
    paths = [str(folder / name) for name in ("run.log", "prof.csv")]
    for path, lines in zip(paths, (log, profile), strict=True):
        Path(path).write_text("\n".join([*lines, ""]))
    return paths


@pytest.mark.parametrize("lost", [(), (2,), (3,), (1, 2)])
def test_lines_of_iterations_and_the_nets_order_tell_the_layers(tmp_path: Path, lost: tuple[int, ...]) -> None:
    """Without any layer's time; a line that was lost leaves the passes before it countable. In doubt: nothing but the
    order tells."""
    links = analyse(run_of(tmp_path, 3, lost)).run.alignments[0].links
    told = [(links.iteration_of(place), links.runs[run].layer) for place, run in enumerate(links.run_of)]
    assert told == [(number, layer) for number in (1, 2, 3) for layer, (command, _) in NET.items() if command]
    assert max(links.layer_confidence.values()) < SURE
    assert len(links.layer_confidence) == len(told)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("row", "name", "variant", "least"),
    [
        ("no host times", "m290-alexnet-infer-10it", HIDDEN, 336),
        ("names, times, sizes only", "m121-resnet-infer-2it", HANDLES, 206),
        ("stamps step by an hour", "m121-resnet-infer-2it", HANDLES, 206),
        ("lines lost in bursts", "m290-alexnet-infer-10it", HIDDEN, 300),
        ("as recorded", "twin-alexnet-level6-none-run.hip-rocprof-v1", TWIN, 83),
        ("as recorded", "m290-resnet-train-entries-cmd", HANDLES, 541),
        ("5 % of lines lost", "m290-resnet-train-entries-cmd", HANDLES, 530),
    ],
)
def test_calls_tell_layers_that_no_time_tells(row: str, name: str, variant: str, least: int) -> None:
    """Of runs with a clock that bounds nothing, or none; what lines leave outside of layers stays there: a solver's
    calls behind the last layer."""
    layers = measured(shared_folder(), (row, name, variant, 0)).layers
    assert layers.right >= least
    assert layers.wrong_and_sure == 0
