"""A number above zero never reads as zero in a table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.measures.statistics import fixed


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0, 1, "0.0"),
        (0.04, 1, "<0.1"),
        (0.06, 1, "0.1"),
        (1234.56, 1, "1,234.6"),
        (0.0004, 3, "<0.001"),
        (12.3, 0, "12"),
    ],
)
def test_small_numbers(value: float, digits: int, text: str) -> None:
    assert fixed(value, digits) == text


@given(st.floats(0, 1e9), st.integers(1, 3))
def test_only_zero_reads_as_zero(value: float, digits: int) -> None:
    text = fixed(value, digits)
    assert (float(text.replace(",", "")) == 0) == (value == 0) if "<" not in text else value < 10**-digits
