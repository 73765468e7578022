"""Probabilities of calls in slots, both in one order: forward and backward sums over all ways.

A call is in the slot of the call before it, in a later one, or in none."""

from __future__ import annotations

from collections.abc import Sequence

from mio2trace.align.operations.rates import BROKEN, CUT, LOST

MOST_PASSED = 64
"""Slots that are passed over together; more before the first call."""
NEGLIGIBLE = 1e-9
"""Ways with a smaller share are dropped."""


def chances_in_order(
    fits: Sequence[Sequence[float]],
    silent: Sequence[float],
    entered: Sequence[float],
    again: Sequence[float],
    *,
    begun: bool = False,
    ended: bool = False,
    at_most: int = 1 << 62,
) -> list[list[float]] | None:
    """Return the probability of each call in each slot; the rest is "in none".

    ``fits``: per call and slot. ``silent``: probability per slot of no call. ``entered``, ``again``: how well a call is
    the first or a further call of a slot. ``begun``, ``ended``: the row of slots is complete there. None beyond
    ``at_most`` cells."""
    count = len(silent)
    lost, cut = LOST / max(1, count), CUT / max(1, count)
    before_first, behind_last = lost if begun else cut, lost if ended else cut
    first, last = 0, 0  # states that any way is in: before the first slot, then in each
    ahead = [([1.0] + [0.0] * count, first, last)]  # what all ways up to a call are worth
    for number, fit in enumerate(fits):
        now, _, _ = ahead[-1]
        if at_most < 0:
            return None
        far = lost if number else before_first
        enters, stays = entered[number], again[number]
        following = [0.0] * (count + 1)
        following[0] = now[0] * BROKEN
        reach = passed = 0.0 if first else now[0]
        places = _within(first, last, count, everywhere=not (number or begun))
        at_most -= len(places)
        for place in places:
            held = now[place + 1]
            following[place + 1] = ((reach + passed * far) * enters + held * stays) * fit[place] + held * BROKEN
            reach = reach * silent[place] + held
            passed += held
        first, last = _narrow(following, 0 if not first else places.start + 1, places.stop + 1)
        ahead.append((following, first, last))
    behind = [0.0] * (count + 1)  # what all ways from there on are worth
    reach = 1.0
    for place in range(count, -1, -1):
        behind[place] = reach + behind_last
        if place:
            reach *= silent[place - 1]
    answers: list[list[float]] = []
    for number in range(len(fits) - 1, -1, -1):
        fit, (now, first, last) = fits[number], ahead[number]
        far = lost if number else before_first
        enters, stays = entered[number], again[number]
        in_slot = [0.0] * count
        none = now[0] * BROKEN * behind[0]
        reach = passed = 0.0 if first else now[0]
        places = _within(first, last, count, everywhere=not (number or begun))
        for place in places:
            held, later = now[place + 1], behind[place + 1]
            in_slot[place] = ((reach + passed * far) * enters + held * stays) * fit[place] * later
            none += held * BROKEN * later
            reach = reach * silent[place] + held
            passed += held
        total = sum(in_slot) + none
        # Of calls that contradict each other by the hundred no way is left that a float can hold.
        if total:
            in_slot[places.start : places.stop] = [one / total for one in in_slot[places.start : places.stop]]
        answers.append(in_slot)
        earlier = [0.0] * (count + 1)
        reach = passed = 0.0
        for place in range(places.stop, first - 1, -1):
            own = fit[place - 1] * behind[place] if place else 0.0
            earlier[place] = (reach + passed * far) * enters + own * stays + BROKEN * behind[place]
            if place:
                reach = reach * silent[place - 1] + own
                passed += own
        end = places.stop + 1
        most = max(earlier)
        if most:
            earlier[first:end] = [one / most for one in earlier[first:end]]
        behind = earlier
    return answers[::-1]


def _within(first: int, last: int, count: int, *, everywhere: bool) -> range:
    """Slots that are reachable from states ``first`` to ``last``."""
    return range(max(0, first - 1), count if everywhere else min(count, last + MOST_PASSED))


def _narrow(worth: list[float], begin: int, end: int) -> tuple[int, int]:
    """Normalise ``worth`` and drop negligible states. Returns the first and last state."""
    own = worth[begin:end]
    total = sum(own)
    least = NEGLIGIBLE * total
    worth[begin:end] = [one / total if one > least else 0.0 for one in own]
    kept = [begin + at for at, one in enumerate(own) if one > least]
    return kept[0], kept[-1]
