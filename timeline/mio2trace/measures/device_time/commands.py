"""What the measures ask of every command of a profile, as lists: a loop over a list costs a tenth of one over objects.

Made where it is needed and let go behind it: on a large profile each list is as long as the profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from mio2trace.model.profile import Profile

Times = list[int | None]


class Commands:
    """Of each activity: ``starts`` and ``ends`` on its device; ``called`` and ``returned``: of its launch, if recorded;
    ``devices``: the number of its device. Times in ns."""

    def __init__(self, profile: Profile) -> None:
        self.starts: Times = [one.start_ns for one in profile.activities]
        self.ends: Times = [one.end_ns for one in profile.activities]
        calls = [one.call for one in profile.activities]
        self.called: Times = [None if call is None else call.start_ns for call in calls]
        self.returned: Times = [None if call is None else call.end_ns for call in calls]
        device_of = {queue.index: queue.device for queue in profile.queues}
        self.devices = [device_of.get(one.queue, 0) for one in profile.activities]


class Stretch(NamedTuple):
    """Neighbours in a list, from ``first`` to before ``end``, that are in the same iteration."""

    place: int
    first: int
    end: int


def stretches(place_of: Sequence[int]) -> Iterator[Stretch]:
    """A list of the places of iterations, taken apart where the place changes."""
    first = 0
    for place, members in groupby(place_of):
        end = first + len(list(members))
        yield Stretch(place, first, end)
        first = end


def known(column: Sequence[int | None]) -> list[int]:
    """The times that are known."""
    return [one for one in column if one is not None]
