"""Kernel names that a narrow table cut off: what is left of them is read as the beginning of names."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from benchmarks.damage import loaded, measured
from benchmarks.damage_score import tallies
from benchmarks.damages.profiles import renamed
from benchmarks.damages.sets import HANDLES, HIDDEN, NO_FRAMEWORK
from mio2trace import analyse
from mio2trace.kernels.names import beginnings, cut_at, cut_name, in_full
from tests.conftest import shared_folder


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


def test_names_are_cut_where_several_are_as_long_as_the_longest_and_one_is_no_name() -> None:
    """Whole names of one length are not cut, nor are those of another library's."""
    assert cut_at({"MIOpenConvUn", "MIOpenNeuron", "mloPoolingMa", "Col2Im"}) == 12
    assert cut_at({"MIOpenConvUni", "MIOpenConv1x1", "MIOpenConv3x3", "Col2Im"}) == 0
    assert cut_at({"my_kernel_one", "my_kernel_two", "my_kernel_six"}) == 0
    assert cut_at({"MIOpenConvUn", "MIOpenNeuron"}) == 0
    assert cut_at({"kernel_18fd4828a218", "kernel_2072f3f1b34d", "kernel_4cd6cd31025b", "Im2Col"}) == 0
    assert cut_at({".kd", "a_b", "xyz"}) == 0
    assert cut_at(set()) == 0


def test_a_cut_name_means_what_all_have_in_common_that_begin_so() -> None:
    """One row's meaning stays; of several, what differs is left open."""
    softmax, gradient = cut_name("SoftmaxForwa"), cut_name("MIOpenCvBwdW")
    assert softmax is not None
    assert (softmax.primitives, softmax.directions, softmax.role) == (("softmax",), ("forward",), "main")
    assert gradient is not None
    assert (gradient.directions, gradient.role) == (("backward-weights",), "")
    pooling = cut_name("mloPoolingMa")
    assert pooling is not None
    assert pooling.directions == ("backward-data", "forward")
    assert cut_name("my_own_kern") is None


def test_a_name_goes_on_where_one_alone_begins_so() -> None:
    """Of two that begin alike none is taken."""
    among = ("miog_betac", "miog_betac_alphaab")
    assert in_full("miog_betac_a", among) == "miog_betac_alphaab"
    assert in_full("miog_bet", among) is None
    assert in_full("Col2Im", among) == "Col2Im"


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("m121-lenet-train-debugbuild", HIDDEN),
        ("m290-alexnet-infer-level6-cmd", NO_FRAMEWORK),
        ("m290-lenet-train-cmdonly", HANDLES),
    ],
)
def test_links_stay_right_where_names_are_cut(name: str, variant: str) -> None:
    """Without buffers and lines of a framework, too."""
    operations = measured(shared_folder(), ("names cut", name, variant, 0)).operations
    assert operations.right == operations.kernels > 0
    assert operations.wrong_and_sure == 0


@pytest.mark.shared
def test_names_cut_so_short_that_nothing_tells_work_from_helpers_are_not_sure(tmp_path: Path) -> None:
    """Of `miog_betac` and what scales its result the same is left: no link is wrong and sure."""
    run = loaded(shared_folder())[HIDDEN]["m290-resnet-train-entries-cmd"]
    damaged = renamed(lambda name, _: name[:10])(run, Random(0))
    operations, _ = tallies(damaged, analyse(damaged.write(tmp_path)))
    assert operations.wrong_and_sure == 0
    assert operations.right > 0.7 * operations.kernels
