"""Files from which a tool has filtered or sampled rows, by the numbers of the ops that are left.

PyTorch's profiler gives each op and annotation the next number (``External id``), but for a few blocks of numbers that
a thread did not fill. So nearly every number is followed by the next one in a file as the profiler writes it: 99 % in
all that were looked at, 20 to 40 % in files of which a tool kept a part of the rows.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

from mio2trace.model.profile import Profile

FOLLOWED = 0.5
"""Part of the numbers that the next one follows; in a filtered file fewer do."""
LEAST_NUMBERS = 10
"""Fewer show nothing."""


def with_filtered(profile: Profile) -> Profile:
    """The same profile; its defect ``sampled`` counts the ops that were filtered out, if it has work of a device."""
    filtered = _filtered([one.id for one in profile.ranges if one.id is not None]) if profile.activities else 0
    return msgspec.structs.replace(profile, defects={**profile.defects, "sampled": filtered}) if filtered else profile


def _filtered(numbers: list[int]) -> int:
    """How many numbers are missing among those of a filtered file; 0 for any other file."""
    if not numbers or len(numbers) > FOLLOWED * (max(numbers) - min(numbers) + 1):
        return 0  # most are there: nothing needs to be sorted
    distinct = sorted({*numbers})
    followed = sum(other == one + 1 for one, other in pairwise(distinct))
    if len(distinct) < LEAST_NUMBERS or followed >= FOLLOWED * len(distinct):
        return 0
    return distinct[-1] - distinct[0] + 1 - len(distinct)
