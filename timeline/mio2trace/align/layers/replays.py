"""Replays of a graph whose kernels the profile does not name (RPD): which iteration each is, by its number alone.

Each is one where the log asked for as many iterations more than are known as there are launches behind these, and each
launch ran as many kernels as the last known iteration. Of which layer a kernel is only its place among them tells: in
doubt.
"""

from __future__ import annotations

from operator import attrgetter

from mio2trace.align.attribution import Attribution
from mio2trace.align.links import DOUBTED, NONE, Links
from mio2trace.evidence import ORDER
from mio2trace.model.profile import NAMELESS, Activity


def place_nameless_replays(attribution: Attribution) -> None:
    """Label them in the order of their launches."""
    links, activities = attribution.links, attribution.profile.activities
    asked_for = attribution.iterations()
    if asked_for is None or not links.runs or NAMELESS.isdisjoint(map(attrgetter("name"), activities)):
        return
    replays: dict[int, list[int]] = {}
    for position, activity in enumerate(activities):
        if activity.name in NAMELESS and activity.is_replayed:
            replays.setdefault(id(activity.call), []).append(position)
    if not replays:
        return
    number, like = _last_known(links, activities)
    replayed = [position for positions in replays.values() for position in positions]
    if (
        number is None
        or len(replays) != asked_for - number
        or any(len(positions) != len(like) for positions in replays.values())
        or any(links.pass_of[position] != NONE for position in replayed)
        or replayed != [*range(like[-1] + 1, like[-1] + 1 + len(replayed))]
    ):
        return
    for following, positions in enumerate(replays.values(), number + 1):
        runs: dict[int, int] = {}
        for of, position in zip(like, positions, strict=True):
            made = links.runs[links.run_of[of]] if links.run_of[of] != NONE else None
            direction = links.passes[links.pass_of[of]].direction
            pass_ = links.pass_id("iteration", following, direction)
            if made is None:
                links.give_pass([position], pass_)
                continue
            run = runs.get(links.run_of[of])
            if run is None:
                run = runs[links.run_of[of]] = attribution.add_run(made.layer_index, made.direction, pass_)
            links.give_layer([position], run, ORDER, confidence=DOUBTED)


def _last_known(links: Links, activities: tuple[Activity, ...]) -> tuple[int | None, list[int]]:
    """The number of the last iteration that is known, and the positions of its kernels."""
    numbers = [one.iteration for one in links.passes if one.phase == "iteration" and one.iteration is not None]
    if not numbers:
        return None, []
    number = max(numbers)
    passes = {at for at, one in enumerate(links.passes) if (one.phase, one.iteration) == ("iteration", number)}
    return number, [at for at, pass_ in enumerate(links.pass_of) if pass_ in passes and activities[at].kind == "kernel"]
