"""What is said of links in doubt is what was measured of such links."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.align.links import NONE
from mio2trace.align.operations.posterior import Posterior
from mio2trace.align.operations.rates import CALIBRATED, WHOLE, calibrated
from mio2trace.evidence import NAME_AND_SIZES

CHANCES = st.floats(0, 1)


@given(key=st.sampled_from(sorted(CALIBRATED)), one=CHANCES, other=CHANCES)
def test_what_is_likelier_stays_likelier_and_nothing_becomes_sure(
    key: tuple[str, str], one: float, other: float
) -> None:
    """Each map rises and ends where it meets what is not changed."""
    low, high = sorted((one, other))
    assert 0 <= calibrated(*key, low) <= calibrated(*key, high) <= 1
    assert calibrated(*key, high) <= max(high, WHOLE)
    assert high < WHOLE or calibrated(*key, high) == high


def test_what_was_never_measured_is_said_as_the_model_has_it() -> None:
    assert calibrated("operation", "no such evidence", 0.3) == 0.3


def test_the_others_share_what_the_likeliest_leaves() -> None:
    """A lost call is likelier or less likely as no call of the log is; all ways are one together."""
    posterior = Posterior.of_none(1)
    posterior.operation[0], posterior.confidence[0] = 0, 0.6
    posterior.others[0], posterior.gone[0] = ((1, 0.3), (NONE, 0.1)), 0.05
    posterior.calibrate(0, NAME_AND_SIZES)
    assert posterior.confidence[0] == calibrated("operation", NAME_AND_SIZES, 0.6) > 0.6
    assert sum(chance for _, chance in posterior.chances(0)) == pytest.approx(1)
    assert posterior.gone[0] == pytest.approx(posterior.others[0][1][1] / 2)
