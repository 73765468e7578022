"""The order of a net's layers. A log lists it several times, and a list may miss layers that another one has
(dvdt-ck.md 2.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise


def merged(tellings: Iterable[Sequence[str]]) -> list[str]:
    """Merge lists that are parts of one order: the longest one, with the names that only others have. Such a name is
    inserted before the name that follows it in its own list. If lists leave out different names, a split of a layer's
    output follows that layer."""
    by_length = sorted((list(dict.fromkeys(telling)) for telling in tellings), key=len, reverse=True)
    return _as_told(_joined(by_length), by_length)


def _joined(by_length: Sequence[list[str]]) -> list[str]:
    order = by_length[0] if by_length else []
    for telling in by_length[1:]:
        place = {name: number for number, name in enumerate(order)}
        before: dict[int, list[str]] = {}
        following = len(order)
        for name in reversed(telling):
            if name in place:
                following = place[name]
            else:
                before.setdefault(following, []).append(name)
        if before:
            order = [
                name
                for number in range(len(order) + 1)
                for name in (*reversed(before.get(number, ())), *order[number : number + 1])
            ]
    return order


def _as_told(order: list[str], tellings: Sequence[Sequence[str]]) -> list[str]:
    """Change ``order`` as little as possible so that no list contradicts it; return it as it is if the lists contradict
    each other. Two names that are missing in a list between the same neighbours may be in the wrong order, which
    another list shows."""
    place = {name: number for number, name in enumerate(order)}
    told = {(place[before], place[after]) for telling in tellings for before, after in pairwise(telling)}
    if all(before < after for before, after in told):
        return order
    waits_for = [0] * len(order)
    followers: list[list[int]] = [[] for _ in order]
    for before, after in told:
        waits_for[after] += 1
        followers[before].append(after)
    ready = [number for number, count in enumerate(waits_for) if not count]
    heapify(ready)
    sorted_places: list[int] = []
    while ready:
        number = heappop(ready)
        sorted_places.append(number)
        for after in followers[number]:
            waits_for[after] -= 1
            if not waits_for[after]:
                heappush(ready, after)
    return [order[number] for number in sorted_places] if len(sorted_places) == len(order) else order


def oriented(telling: Sequence[str], like: Sequence[str]) -> Sequence[str]:
    """Return the list, reversed if that is the order of ``like``."""
    place = {name: number for number, name in enumerate(like)}
    places = [place[name] for name in telling if name in place]
    rising = sum(1 if before < after else -1 for before, after in pairwise(places))
    return telling if rising >= 0 else telling[::-1]
