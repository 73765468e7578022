"""What is said of links in doubt is what was measured of such links."""

from __future__ import annotations

from typing import Literal
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.calibration import fitted
from mio2trace.align.links import NONE
from mio2trace.align.operations import chances as of_operations
from mio2trace.align.operations.chances import Posterior
from mio2trace.align.operations.rates import CALIBRATED, KNOTS, WHOLE, calibrated

CHANCES = st.floats(0, 1)


@given(kind=st.sampled_from(sorted(CALIBRATED)), one=CHANCES, other=CHANCES)
def test_what_is_likelier_stays_likelier_and_nothing_becomes_sure(
    kind: Literal["operation", "layer"], one: float, other: float
) -> None:
    """Each map rises and ends where it meets what is not changed."""
    low, high = sorted((one, other))
    assert 0 <= calibrated(kind, low) <= calibrated(kind, high) <= 1
    assert calibrated(kind, high) <= max(high, WHOLE)
    assert high < WHOLE or calibrated(kind, high) == high


def test_the_others_share_what_the_likeliest_leaves() -> None:
    """A lost call is likelier or less likely as no call of the log is; all ways are one together."""
    posterior = Posterior.of_none(1)
    posterior.operation[0], posterior.confidence[0] = 0, 0.6
    posterior.others[0], posterior.gone[0] = ((1, 0.3), (NONE, 0.1)), 0.05
    with patch.object(of_operations, "calibrated", lambda kind, chance: 0.8):
        posterior.calibrate(0)
    assert posterior.confidence[0] == 0.8
    assert sum(chance for _, chance in posterior.chances(0)) == pytest.approx(1)
    assert posterior.gone[0] == pytest.approx(posterior.others[0][1][1] / 2)


def test_knots_are_what_is_true_of_links_and_never_fall() -> None:
    """Links that are right more often than the model says get more confidence; values without links stay the same."""
    links = [(0.4, at % 10 < 9, 1.0) for at in range(1000)] + [(0.6, at % 10 < 7, 1.0) for at in range(1000)]
    values = fitted(links)
    assert len(values) == len(KNOTS)
    assert list(values) == sorted(values)
    assert values[2] == values[3] == pytest.approx(0.8, abs=0.02)
    assert values[0] == 0
    assert values[-1] == WHOLE
