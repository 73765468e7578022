"""Layers of a warm-up whose iteration the profile cuts: by the names of its kernels, in the net's order."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest

from benchmarks.damage import loaded
from benchmarks.damage_score import SURE, tallies
from benchmarks.damages.profiles import part_lost, renamed
from benchmarks.damages.sets import HIDDEN, caffe
from mio2trace import analyse
from mio2trace.align import Links, align
from mio2trace.align.layers import unlogged
from mio2trace.evidence import NAME_AND_SIZES
from mio2trace.kernels.names import beginnings, cut_at, cut_name, in_full
from mio2trace.model.profile import Activity
from mio2trace.notes import Notes
from tests.conftest import shared_folder
from tests.records import changed, with_opencl
from tests.synthetic_run import MS, US, Kernel, Layer, Run, make_run, places_of

KERNELS = {
    "conv": ("im2col_float", "XgemmDirectTN", "XgemmDirectTN"),
    "relu": ("relu_forward_float",),
    "norm": ("lrn_full_float",),
    "pool": ("max_pool_forward_float",),
    "ip": ("XgemvFast", "XaxpyFast"),
    "drop": (),
    "prob": ("kernel_channel_max_float", "kernel_exp_float"),
}
"""What layers launch whose names begin so."""


def named_net(rng: Random, count: int) -> list[Layer]:
    """A net as people name its layers: none comes twice in a row."""
    net: list[Layer] = []
    kinds = [""]
    for number in range(count):
        kinds.append(rng.choice([kind for kind in KERNELS if kind != kinds[-1]]))
        forward = [Kernel(name=name, ns=rng.randint(20 * US, 3 * MS)) for name in KERNELS[kinds[-1]]]
        net.append(Layer(name=f"{kinds[-1]}{number}", forward=forward, written=kinds[-1] in ("conv", "ip")))
    return net


def cut(run: Run, kept: list[int]) -> Run:
    """The profile with some of its enqueues, and the timer marks up to the last of them."""
    last = run.profile.activities[kept[-1]].number
    return run.of_some(kept, marks=tuple(mark for mark in run.profile.opencl.marks if mark.number < last))


def with_activities(run: Run, activities: list[Activity]) -> Run:
    """The run with other activities in the same places."""
    return replace(run, profile=with_opencl(run.profile, activities=tuple(activities)))


def begun(seed: int, net: list[Layer] | int) -> Run:
    """The profile of a whole run up to the iteration's first two kernels."""
    run = make_run(Random(seed), named_net(Random(seed), net) if isinstance(net, int) else net)
    return cut(run, list(range(2 + len(run.places) - run.in_iterations())))


def said(run: Run, links: Links) -> list[tuple[float, bool]]:
    """Of each link to a layer of the warm-up how sure it is, and whether it is right."""
    return [
        (links.layer_confidence.get(at, 1.0), found == true)
        for at, (found, true) in enumerate(zip(places_of(links), run.places, strict=True))
        if found is not None and true is not None and not true[0]
    ]


@pytest.mark.parametrize("hole", [False, True])
def test_the_rest_of_a_warm_up_is_told_by_names(hole: bool) -> None:
    """Of 60 runs that end inside the iteration, or also lost a stretch of the warm-up: links are as right as they say,
    to a tenth, and most are found."""
    tenths: dict[int, list[bool]] = defaultdict(list)
    counts: Counter[str] = Counter()
    for seed in range(60):
        rng = Random(seed)
        whole = make_run(rng, named_net(rng, rng.randint(6, 30)), extra_fills=True)
        warm = [at for at, place in enumerate(whole.places) if place and not place[0]]
        stop = rng.randint(warm[-1] + 3, len(whole.places))
        start = rng.choice(warm[: len(warm) - len(warm) // 5])
        gone = range(start, start + len(warm) // 5) if hole else range(0)
        run = cut(whole, [at for at in range(stop) if at not in gone])
        counts["kernels"] += len(set(warm) - set(gone))
        for confidence, is_right in said(run, align(run.profile, [run.log], Notes()).links):
            counts["right"] += is_right
            counts["wrong and sure"] += not is_right and confidence >= 0.995
            tenths[int(10 * confidence)].append(is_right)
    assert counts["right"] >= (0.9 if hole else 0.95) * counts["kernels"]
    assert counts["wrong and sure"] <= 0.001 * counts["kernels"]
    assert all(sum(each) >= (tenth / 10 - 0.1) * len(each) for tenth, each in tenths.items() if len(each) >= 20)


def test_more_kernels_and_layers_than_are_looked_at_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is bounded: nothing is said of such a pass."""
    run = begun(3, 20)
    monkeypatch.setattr(unlogged, "MOST_CELLS", 10)
    assert NAME_AND_SIZES not in align(run.profile, [run.log], Notes()).links.layer_by


def test_of_kernels_that_nothing_puts_into_layers_nothing_is_said() -> None:
    """A program may run what it likes in its warm-up; a net with layers is not all that it needs."""
    run = begun(5, 12)
    activities = [
        msgspec.structs.replace(one, name=f"other_{at % 3}") if place and not place[0] else one
        for at, (one, place) in enumerate(zip(run.profile.activities, run.places, strict=True))
    ]
    run = with_activities(run, activities)
    assert NAME_AND_SIZES not in align(run.profile, [run.log], Notes()).links.layer_by


def test_sizes_tell_where_names_do_not() -> None:
    """An argument that is how many outputs a layer has, as elements or as bytes, speaks for that layer."""
    run = begun(4, [Layer(name=f"part{number}", forward=[Kernel(name="XgemmAny", ns=50 * US)]) for number in range(6)])
    run = cut(run, [at for at in range(len(run.places)) if at != len(run.places) - 6])
    size_of = {f"part{number}": (number + 3) * 16 for number in range(6)}
    activities = [
        one if place is None else changed(one, arguments=(size_of[place[2]].to_bytes(4, "little").hex(),))
        for one, place in zip(run.profile.activities, run.places, strict=True)
    ]
    net = tuple(msgspec.structs.replace(one, tops=(f"1x{size_of[one.layer] // 16}x16",)) for one in run.log.net)
    run = with_activities(run.with_log(net=net), activities)
    assert [is_right for _, is_right in said(run, align(run.profile, [run.log], Notes()).links)] == [True] * 5


@pytest.mark.shared
@pytest.mark.parametrize("name", ["alexnet-b1-train", "squeezenet11-b1-libdnn-fwd"])
def test_a_profile_that_ends_inside_the_warm_up_is_as_right_as_it_says(name: str, tmp_path: Path) -> None:
    """It ran between the lines that begin and end the warm-up, so no other run is meant; but it lacks most of it."""
    whole = caffe(shared_folder() / "samples" / "dvdt" / f"{name}.run.log")
    run = part_lost(0.3, 1)(whole, Random(0))
    layers = tallies(run, analyse(run.write(tmp_path)))[1]
    assert layers.right >= 0.94 * layers.kernels
    assert layers.right == layers.links
    assert 0.9 <= layers.said / layers.links < SURE
    assert layers.bins[-1][0] == 0


# -- Kernel names that a narrow table cut off: what is left of them is read as the beginning of names.


@pytest.mark.parametrize(
    ("pattern", "begin"),
    [
        ("MIOpen(?:Group)?ConvUni", {"MIOpenConvUni", "MIOpenGroupConvUni"}),
        ("M[IL]OpenCvBwdWrW\\w*_rdc", {"MIOpenCvBwdWrW", "MLOpenCvBwdWrW"}),
        ("(?:a|b(?:c)?)_|x+y", {"a_", "bc_", "b_", ""}),
        ("hip\\[|to(?!p)", {"hip[", "to"}),
    ],
)
def test_a_pattern_begins_with_each_of_its_choices(pattern: str, begin: set[str]) -> None:
    """Optional parts, alternatives and classes are spelt out up to what may be anything."""
    assert set(beginnings(pattern)) == begin


@pytest.mark.parametrize(
    ("names", "at"),
    [
        ("MIOpenConvUn MIOpenNeuron mloPoolingMa Col2Im", 12),
        ("MIOpenConvUni MIOpenConv1x1 MIOpenConv3x3 Col2Im", 0),
        ("my_kernel_one my_kernel_two my_kernel_six", 0),
        ("MIOpenConvUn MIOpenNeuron", 0),
        ("kernel_18fd4828a218 kernel_2072f3f1b34d kernel_4cd6cd31025b Im2Col", 0),
        (".kd a_b xyz", 0),
        ("", 0),
    ],
)
def test_names_are_cut_where_several_are_as_long_as_the_longest_and_one_is_no_name(names: str, at: int) -> None:
    """Whole names of one length are not cut, nor are those of another library's."""
    assert cut_at(set(names.split())) == at


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("SoftmaxForwa", (("softmax",), ("forward",), "main")),
        ("MIOpenCvBwdW", (("conv",), ("backward-weights",), "")),
        ("mloPoolingMa", (("pool",), ("backward-data", "forward"), "main")),
        ("my_own_kern", None),
    ],
)
def test_a_cut_name_means_what_all_have_in_common_that_begin_so(name: str, meaning: object) -> None:
    """One row's meaning stays; of several, what differs is left open."""
    found = cut_name(name)
    assert (found and (found.primitives, found.directions, found.role)) == meaning


def test_a_name_goes_on_where_one_alone_begins_so() -> None:
    """Of two that begin alike none is taken."""
    among = ("miog_betac", "miog_betac_alphaab")
    assert in_full("miog_betac_a", among) == "miog_betac_alphaab"
    assert in_full("miog_bet", among) is None
    assert in_full("Col2Im", among) == "Col2Im"


@pytest.mark.shared
def test_names_cut_so_short_that_nothing_tells_work_from_helpers_are_not_sure(tmp_path: Path) -> None:
    """Of `miog_betac` and what scales its result the same is left: no link is wrong and sure."""
    run = loaded(shared_folder())[HIDDEN]["m290-resnet-train-entries-cmd"]
    damaged = renamed(lambda name, _: name[:10])(run, Random(0))
    operations, _ = tallies(damaged, analyse(damaged.write(tmp_path)))
    assert operations.wrong_and_sure == 0
    assert operations.right > 0.7 * operations.kernels
