"""Kernels under names that are in no table: build options, sizes of launch lines, their like elsewhere tell of them."""

from __future__ import annotations

import pytest

from benchmarks.damage import measured
from benchmarks.damages.sets import HANDLES, HIDDEN, NO_FRAMEWORK
from mio2trace.align.links import NONE
from mio2trace.kernels.names import directions_of, read_options
from mio2trace.ops.operation import Launch
from tests.conftest import shared_folder
from tests.test_operation_links import Maker


@pytest.mark.parametrize(
    ("options", "primitives", "directions"),
    [
        ("-DMLO_POOLING_OP_ID=1 -DMLO_POOLING_STRIDE1=2", ("pool",), ()),
        (" -D MIO_BN_N=2 -D MIO_BN_C=16", ("bnorm", "fusion"), ()),
        (" -DMLO_DIR_FORWARD=1 -DMLO_FILTER_SIZE0=5", ("conv", "fusion"), ("forward",)),
        (" -DMLO_DIR_FORWARD=0 -DMLO_FILTER_SIZE0=5", ("conv", "fusion"), ("backward-data", "backward-weights")),
        (" -DNUM_CH_PER_WG=1 -DNUM_IM_BLKS=3", ("conv",), ("forward", "backward-weights")),
    ],
)
def test_a_programs_macros_say_what_its_kernels_compute(
    options: str, primitives: tuple[str, ...], directions: tuple[str, ...]
) -> None:
    """Whatever the kernels are called."""
    stated = read_options(options)
    assert stated.meaning is not None
    assert stated.meaning.primitives == primitives
    assert directions_of(stated.meaning, stated) == directions


@pytest.mark.parametrize(
    ("options", "library"),
    [("-DMLO_GRP_SZ=64", True), ("-D MIOPEN_USE_FP16=0", True), ("-DBIG_MLO=1", False), ("-cl-std=CL1.2", False)],
)
def test_mios_macros_are_known_with_and_without_a_space(options: str, library: bool) -> None:
    """MIOpen writes ``-DMLO_X=1``."""
    assert read_options(options).library is library
    assert read_options("-cl-std=CL1.2").meaning is None


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "variant", "least"),
    [
        ("m121-lenet-train-debugbuild", HIDDEN, 0.95),
        ("m290-resnet-train-entries-cmd", HIDDEN, 0.9),
        ("m121-resnet-train-entries-cmd", NO_FRAMEWORK, 0.95),
        ("m290-lenet-train-cmdonly", HANDLES, 0.88),
    ],
)
def test_links_stay_right_where_some_names_are_hashed(name: str, variant: str, least: float) -> None:
    """A name is one event for all of its kernels: linked somewhere, it counts elsewhere."""
    operations = measured(shared_folder(), ("3 of 10 names hashed", name, variant, 0)).operations
    assert operations.wrong_and_sure == 0
    assert operations.right >= least * operations.kernels > 0


def test_a_kernel_of_an_unknown_name_has_the_size_of_a_launch_that_no_other_has() -> None:
    """The log printed another name for it; another size is another kernel."""
    maker = Maker()
    for number in range(3):
        size = (512 << number, 1, 1)
        of = maker.call("conv", launches=(Launch(line=3, name="MIOpenConvUni", gws=size),))
        maker.kernel("kernel_4cd6cd31025b", of=of, grid=size)
        maker.kernel("relu_float", of=None, grid=(64, 1, 1))
    links = maker.links()
    assert list(links.operation_of) == [0, NONE, 1, NONE, 2, NONE]
