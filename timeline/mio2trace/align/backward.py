"""The forward op of each op of an automatic backward pass: both carry one sequence number (rocm-profiles.md 8)."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from mio2trace.align.links import NONE
from mio2trace.model.profile import Profile
from mio2trace.patterns import late

_BACKWARD = late(r"autograd::engine::evaluate_function: |\w+Backward\d*$")


class ForwardOps:
    """``of[r]`` is the range of the forward op of range r, `NONE` for what is no op of a backward pass; ``unsure``
    holds ranges for which several threads counted up to that number, so that another op may be meant."""

    def __init__(self, profile: Profile) -> None:
        self.of = [NONE] * len(profile.ranges)
        self.unsure: set[int] = set()
        backward: list[int] = []
        forward: dict[int, list[tuple[int, int]]] = defaultdict(list)
        is_backward: dict[str, bool] = {}
        for place, made in enumerate(profile.ranges):
            if made.sequence is None or made.kind != "operator":
                continue
            text = made.text
            if text not in is_backward:
                is_backward[text] = _BACKWARD.match(text) is not None
            if is_backward[text]:
                backward.append(place)
            else:
                forward[made.sequence].append((made.start_ns, place))
        others_from: dict[int, int] = {}
        for number, candidates in forward.items():
            candidates.sort()
            first = profile.ranges[candidates[0][1]].thread
            for count, (_, place) in enumerate(candidates):
                if profile.ranges[place].thread != first:
                    others_from[number] = count
                    break
        for place in backward:
            made = profile.ranges[place]
            number = made.sequence or 0
            candidates = forward.get(number, [])
            before = bisect_left(candidates, (made.start_ns, NONE))
            if before:
                self.of[place] = candidates[before - 1][1]
                if before > others_from.get(number, before):
                    self.unsure.add(place)
