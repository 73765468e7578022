"""Numbers of a file: ASCII's digits, and no more of them than a number has."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from mio2trace.align.layers.scopes import layer_of
from mio2trace.cli import cli
from mio2trace.readers.caffe.log import milliseconds
from mio2trace.reports.tfprof import short_name

from tests.test_gemm import CLBLAS, gemms, kernel, miog_source, profile, program
from tests.test_privacy_tf import view

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


@pytest.mark.parametrize(("tower", "prefix"), [("0", ""), ("00", ""), ("1", "tower_1/"), ("07", "tower_7/"),
                                               (LONG, f"tower_{LONG}/")])  # fmt: skip
def test_a_tower_of_any_number_is_named_by_it(tower: str, prefix: str) -> None:
    """The first one is left out."""
    assert layer_of(f"v/tower_{tower}/cg/conv0/conv2d/Conv2D") == (f"{prefix}conv0", "forward")
    assert short_name(f"v/tower_{tower}/cg/conv0/conv2d/Conv2D") == (f"{prefix}conv0", "Conv2D")


@pytest.mark.parametrize("text", ["٣", "1_0", "²", "１", LONG, "-1", "nan", "inf", ""])
def test_what_is_no_printed_time_is_none(text: str) -> None:
    assert milliseconds("1.5e+01") == 15_000_000
    assert milliseconds(text) is None


@pytest.mark.parametrize("digits", [LONG, "²", "٣"])
def test_a_view_with_a_step_that_is_none_is_read(digits: str, tmp_path: Path) -> None:
    path = tmp_path / "view.txt"
    path.write_bytes(f"-step {digits}\n".encode() + view("x"))
    done = CliRunner().invoke(cli, ["tfprof", str(path), "--show", ".*"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "conv0" in done.stdout
