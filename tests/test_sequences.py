"""The shortest edit script between two sequences."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mio2trace.align.layers.repetitions import MAX_EDITS, matches

letters = st.lists(st.sampled_from("abc"), max_size=24)


def longest_common(a: list[str], b: list[str]) -> int:
    """By the plain table."""
    row = [0] * (len(b) + 1)
    for x in a:
        above, row = row, [0]
        for j, y in enumerate(b):
            row.append(above[j] + 1 if x == y else max(above[j + 1], row[j]))
    return row[-1]


@given(letters, letters)
def test_as_many_pairs_as_possible_and_all_in_order(a: list[str], b: list[str]) -> None:
    """Equal elements only, increasing in both, as long as the longest common subsequence."""
    pairs = matches(a, b)
    assert pairs is not None
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(pairs))
    assert len(pairs) == longest_common(a, b)


def test_sequences_without_likeness_have_nothing_to_say() -> None:
    """Beyond the limit there is no answer, and it does not take forever to find out."""
    assert matches(list(range(MAX_EDITS)), list(range(-MAX_EDITS, 0))) is None
    some = matches(["x", *range(MAX_EDITS - 1)], ["y", *range(MAX_EDITS - 1)])
    assert some == [(i, i) for i in range(1, MAX_EDITS)]
