"""Two rows in one order, calls and the slots that make them: of each call how probable it is in each slot.

A call is of the slot of the call before it, of a later one, or of none. Sums over all ways, forward and backward.
"""

from __future__ import annotations

from collections.abc import Sequence

from mio2trace.align.operations.rates import BROKEN, CUT, LOST


def chances_in_order(
    fits: Sequence[Sequence[float]],
    silent: Sequence[float],
    entered: Sequence[float],
    again: Sequence[float],
    *,
    begun: bool = False,
    ended: bool = False,
) -> list[list[float]]:
    """Of each call its probability in each slot; what is left of them is that it is in none.

    ``fits``: of each call how well it fits each slot; ``silent``: of each slot how probable it is that it makes no
    call; ``entered`` and ``again``: of each call how well it is a slot's first, and one more. `BROKEN` of the calls are
    in no slot; `LOST` of the steps pass over slots together, `CUT` of the rows begin or end in between: each slot as
    likely.
    """
    count = len(silent)
    lost, cut = LOST / max(1, count), CUT / max(1, count)
    before_first, behind_last = lost if begun else cut, lost if ended else cut
    ahead = [[1.0] + [0.0] * count]  # of all ways up to a call: before the first slot, then in each
    for number, fit in enumerate(fits):
        now, far = ahead[-1], lost if number else before_first
        enters, stays = entered[number], again[number]
        following = [now[0] * BROKEN]
        reach = passed = now[0]
        for place in range(count):
            held = now[place + 1]
            following.append(((reach + passed * far) * enters + held * stays) * fit[place] + held * BROKEN)
            reach = reach * silent[place] + held
            passed += held
        total = sum(following)
        ahead.append([one / total for one in following])
    behind = [0.0] * (count + 1)  # of all ways from there on
    reach = 1.0
    for place in range(count, -1, -1):
        behind[place] = reach + behind_last
        if place:
            reach *= silent[place - 1]
    answers: list[list[float]] = []
    for number in range(len(fits) - 1, -1, -1):
        fit, now, far = fits[number], ahead[number], lost if number else before_first
        enters, stays = entered[number], again[number]
        in_slot = [0.0] * count
        none = now[0] * BROKEN * behind[0]
        reach = passed = now[0]
        for place in range(count):
            held, later = now[place + 1], behind[place + 1]
            in_slot[place] = ((reach + passed * far) * enters + held * stays) * fit[place] * later
            none += held * BROKEN * later
            reach = reach * silent[place] + held
            passed += held
        total = sum(in_slot) + none
        # Of calls that contradict each other by the hundred no way is left that a float can hold.
        answers.append([one / total for one in in_slot] if total else in_slot)
        earlier = [0.0] * (count + 1)
        reach = passed = 0.0
        for place in range(count, -1, -1):
            own = fit[place - 1] * behind[place] if place else 0.0
            earlier[place] = (reach + passed * far) * enters + own * stays + BROKEN * behind[place]
            if place:
                reach = reach * silent[place - 1] + own
                passed += own
        most = max(earlier)
        behind = [one / most for one in earlier]
    return answers[::-1]
