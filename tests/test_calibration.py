"""What is said of links in doubt is what was measured of such links."""

from __future__ import annotations

import pytest

from mio2trace.align.links import NONE, SURE
from mio2trace.align.operations.posterior import Posterior
from mio2trace.align.operations.rates import WHOLE


def of_one(*chances: float) -> Posterior:
    """One kernel, with the chances of calls 0, 1, ..."""
    posterior = Posterior.of_none(1)
    posterior.operation[0], posterior.confidence[0] = 0, chances[0]
    posterior.others[0] = tuple(enumerate(chances[1:], 1))
    return posterior


@pytest.mark.parametrize(("said", "least", "most"), [(0.66, 0.7, 0.73), (0.87, 0.91, 0.93), (0.5, 0.499, 0.501)])
def test_of_two_the_likelier_is_likelier_than_the_model_says(said: float, least: float, most: float) -> None:
    """As far as was measured; and both stay all that there is."""
    posterior = of_one(said, 1 - said)
    posterior.calibrate()
    assert least < posterior.confidence[0] < most
    assert posterior.confidence[0] + posterior.others[0][0][1] == pytest.approx(1)


@pytest.mark.parametrize("said", [0.98, 0.985, 0.99, 0.9999])
def test_nothing_in_doubt_becomes_sure_and_nothing_sure_is_doubted(said: float) -> None:
    """What was sure before is as sure."""
    posterior = of_one(said, 1 - said)
    posterior.calibrate()
    assert said <= posterior.confidence[0] <= max(said, WHOLE)
    assert (posterior.confidence[0] >= SURE) is (said >= SURE)


def test_what_the_log_lost_is_part_of_what_is_outside() -> None:
    """A lost call is likelier or less likely as no call of the log is."""
    posterior = of_one(0.8)
    posterior.others[0], posterior.gone[0] = ((NONE, 0.2),), 0.1
    posterior.calibrate()
    assert posterior.gone[0] == pytest.approx(posterior.others[0][0][1] / 2)
