"""Files from which a tool filtered or sampled rows, recognised by the numbers of the remaining ops.

PyTorch's profiler gives each op and annotation the next number (``External id``), except for a few blocks of numbers
that a thread did not fill. So in an original file nearly every number is followed by the next one: 99 % in all measured
files, but 20 to 40 % in files of which a tool kept a part of the rows.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

from mio2trace.model.profile import Profile

FOLLOWED = 0.5
"""In a file with a smaller part of numbers followed by the next one, rows were filtered out."""
LEAST_NUMBERS = 10
"""Fewer show nothing."""


def with_filtered(profile: Profile) -> Profile:
    """Return the profile with the defect ``sampled``, the number of ops that were filtered out, if it has work of a
    device."""
    filtered = _filtered([one.id for one in profile.ranges if one.id is not None]) if profile.activities else 0
    return msgspec.structs.replace(profile, defects={**profile.defects, "sampled": filtered}) if filtered else profile


def _filtered(numbers: list[int]) -> int:
    """Return how many numbers are missing in a filtered file; 0 for any other file."""
    if not numbers or len(numbers) > FOLLOWED * (max(numbers) - min(numbers) + 1):
        return 0  # most are present: nothing needs to be sorted
    distinct = sorted({*numbers})
    followed = sum(other == one + 1 for one, other in pairwise(distinct))
    if len(distinct) < LEAST_NUMBERS or followed >= FOLLOWED * len(distinct):
        return 0
    return distinct[-1] - distinct[0] + 1 - len(distinct)
