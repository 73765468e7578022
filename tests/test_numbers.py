"""Numbers of a file: ASCII's digits, and no more of them than a number has."""

from __future__ import annotations

from pathlib import Path

import pytest

from mio2trace.notes import Notes
from mio2trace.ops.command import parse
from mio2trace.readers.caffe import nanoseconds
from mio2trace.readers.tf.executions import layer_of
from mio2trace.reports.tfprof import short_name
from tests.commands import invoked, printed
from tests.planted.tensorflow import view
from tests.test_gemm import CLBLAS, gemms, kernel, miog_source, profile, program
from tests.test_ops import entry, ops_of

LONG = "9" * 4301
"""More digits than Python makes a number of."""


@pytest.mark.parametrize("digits", [LONG, "²", "٣", "9" * 19])
def test_build_options_and_sources_with_no_numbers_tell_no_gemm(digits: str) -> None:
    """A kernel is what it is without them."""
    options = f"-DM={digits} -DN=50 -DK=147 -DM0=4 -DN0=4 -DK0=4"
    main = kernel("gemm_mm_reshaped_lhs_nt_rhs_t", 1, 2, grid=(13, 13, 1), program=0)
    assert gemms(profile([main], [program(0, options=options)])) == {}
    main = kernel("miog_alphaab", grid=(4096, 1, 1), program=0)
    source = miog_source(512, 288, 512, "miog_alphaab")
    assert gemms(profile([main], [program(0, source)])) != {}
    assert gemms(profile([main], [program(0, source.replace("512", digits))])) == {}


@pytest.mark.parametrize("digits", ["0", "000", LONG, "٣"])
def test_a_tile_of_no_size_tells_no_gemm(digits: str) -> None:
    """Nothing is divided by the nought of a kernel's name."""
    arguments = (*CLBLAS[:5], 130, 100, *CLBLAS[7:])
    assert gemms(profile([kernel("sgemm_Col_NN_B0_MX064_NX064_KX08", *arguments)])) != {}
    assert gemms(profile([kernel(f"sgemm_Col_NN_B0_MX{digits}_NX064_KX08", *arguments)])) == {}
    assert gemms(profile([kernel(f"sgemm_Col_NN_B0_MX064_NX{digits}_KX08", *arguments)])) == {}


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("both", [0, 1])
def test_the_work_of_any_number_of_layers_is_a_product(skip: int, both: int) -> None:
    """As many layers as a number has room for take no time, and three are counted as before."""

    def flop(layers: int) -> int | None:
        problem = parse(f"rnn -n 4,4 -W 30 -H 256 -l {layers} -b 1 -m lstm -p {skip} -r {both} -q 0 -k 2 -F 1 -t 1")
        return problem.flop() if problem is not None else None

    each = [256 + (0 if skip else 30), *[256 + 256 * (1 + both)] * 2]
    assert flop(3) == sum(2 * 8 * 4 * 256 * one * (1 + both) for one in each)
    many = 10**18 - 1
    assert skip or both or flop(many) == 2 * 8 * 4 * 256 * (30 + (many - 1) * 256 + many * 256)
    assert flop(-3) is None


def test_a_tensor_of_thousands_of_dimensions_is_none() -> None:
    """Its elements would be a number that nobody can print."""
    for lengths in ("{" + ", ".join(["9" * 18] * 5000) + "}, ", ", ".join(["9" * 18] * 5000)):
        log = entry("ActivationForward", activDesc="miopenActivationRELU, 1, 1, 1,", xDesc=lengths)
        for command in ("ops", "driver"):
            assert invoked(command, "-", stdin=log).exit_code == 0
        assert [one.input for one in ops_of(log)] == [()]


@pytest.mark.parametrize(("tower", "prefix"), [("0", ""), ("00", ""), ("1", "tower_1/"), ("07", "tower_7/"),
                                               (LONG, f"tower_{LONG}/")])  # fmt: skip
def test_a_tower_of_any_number_is_named_by_it(tower: str, prefix: str) -> None:
    """The first one is left out."""
    assert layer_of(f"v/tower_{tower}/cg/conv0/conv2d/Conv2D") == (f"{prefix}conv0", "forward")
    assert short_name(f"v/tower_{tower}/cg/conv0/conv2d/Conv2D") == (f"{prefix}conv0", "Conv2D")


@pytest.mark.parametrize("text", ["٣", "1_0", "²", "１", LONG, "-1", "nan", "inf", ""])
def test_what_is_no_printed_time_is_none(text: str) -> None:
    assert (nanoseconds("1.5e+01"), nanoseconds(text)) == (15_000_000, None)


@pytest.mark.parametrize("digits", [LONG, "²", "٣"])
def test_a_view_with_a_step_that_is_none_is_read(digits: str, tmp_path: Path) -> None:
    path = tmp_path / "view.txt"
    path.write_bytes(f"-step {digits}\n".encode() + view("x"))
    assert "conv0" in printed("tfprof", path, "--show", ".*")


def test_a_note_that_counts_thousands_says_so() -> None:
    notes = Notes()
    notes.add("row that is cut", "a.log", count=12_345)
    assert [str(note) for note in notes] == ["12,345 x row that is cut (a.log)"]
