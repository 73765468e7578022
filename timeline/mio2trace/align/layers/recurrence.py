"""Label a sequence of kernels after the same sequence with known layers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from types import MappingProxyType

from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.net import LayerKey, has_nothing_written, types_of
from mio2trace.align.links import NONE
from mio2trace.align.operations.rates import LIKE, TOLERANCE_NS
from mio2trace.evidence import RECURRENCE
from mio2trace.model.profile import Activity

MAX_EDITS = 1000
"""Sequences with more edits are not matched; this bounds the cost."""


def matches(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]] | None:
    """Return as many increasing pairs (i, j) with a[i] == b[j] as possible; None beyond `MAX_EDITS` edits."""
    head = 0
    while head < len(a) and head < len(b) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < len(a) - head and tail < len(b) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    middle = _myers(a[head : len(a) - tail], b[head : len(b) - tail])
    if middle is None:
        return None
    return [
        *((i, i) for i in range(head)),
        *((head + i, head + j) for i, j in middle),
        *((len(a) - tail + i, len(b) - tail + i) for i in range(tail)),
    ]


def _myers(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]] | None:
    n, m = len(a), len(b)
    if not n or not m:
        return []
    reach: dict[int, int] = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(n + m, MAX_EDITS) + 1):
        history.append(dict(reach))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            y = x - k
            while x < n and y < m and a[x] == b[y]:
                x += 1
                y += 1
            reach[k] = x
            if x >= n and y >= m:
                return _walk_back(history, n, m)
    return None


def _walk_back(history: list[dict[int, int]], n: int, m: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    x, y = n, m
    for edits in range(len(history) - 1, -1, -1):
        before = start = (0, 0)
        if edits:
            reach, k = history[edits], x - y
            down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
            previous = k + 1 if down else k - 1
            before = (reach[previous], reach[previous] - previous)
            start = (before[0], before[1] + 1) if down else (before[0] + 1, before[1])
        while (x, y) != start:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = before
    pairs.reverse()
    return pairs


def signature(activity: Activity) -> Hashable:
    """Return what stays equal when an activity repeats: name, sizes, scalar arguments; not buffers."""
    if activity.kind != "kernel":
        return activity.kind, activity.route, activity.size_bytes
    arguments = tuple([argument for argument in activity.opencl.arguments if len(argument) <= 8])
    return activity.name, activity.grid, activity.workgroup, arguments


def is_filler(attribution: Attribution, position: int) -> bool:
    """Return whether an activity only prepares memory: a write, or a kernel that fills a buffer."""
    activity = attribution.profile.activities[position]
    if activity.kind != "kernel":
        return activity.route == "host to device"
    fact = attribution.facts.get(position)
    return fact is not None and fact.role == "fill"


def place_by_recurrence(
    attribution: Attribution,
    reference: Sequence[int],
    target: Sequence[int],
    run_for: Callable[[LayerKey], int],
    unlaunched: Mapping[LayerKey, int] = MappingProxyType({}),
) -> None:
    """Label ``target`` after ``reference``; ``run_for`` gives the target's run of a layer.

    ``unlaunched``: printed ns of layers without kernels. Writes and fills: alignment-internals.md."""
    activities = attribution.profile.activities
    ones, others = [signature(activities[i]) for i in reference], [signature(activities[i]) for i in target]
    pairs = matches(ones, others)
    if pairs is None:
        return
    keys = [attribution.layer_key(position) for position in reference]
    layer_of = {target[j]: key for i, j in pairs if (key := keys[i]) is not None}
    matched = {target[j] for _, j in pairs}
    likely = attribution.links.layer_confidence
    inherited = {target[j]: likely[reference[i]] for i, j in pairs if reference[i] in likely}
    after_missing = {
        target[j]
        for (before, _), (i, j) in pairwise([(-1, -1), *pairs])
        if any(keys[missing] != keys[i] for missing in range(before + 1, i))
    }
    unsure = {target[j] for j in _ambiguous(ones, others, pairs, keys)}
    shaky = unsure | inherited.keys() | after_missing
    prepared = prepares(attribution, target, layer_of, matched, shaky, unlaunched)
    for position in target:
        if position in prepared:
            key, from_, in_doubt = prepared[position]
            confidence = min(inherited.get(from_, 1.0), LIKE if in_doubt else 1.0)
            attribution.give_layer([position], run_for(key), RECURRENCE, confidence=confidence)
        elif position in layer_of:
            confidence = min(inherited.get(position, 1.0), LIKE if position in unsure else 1.0)
            attribution.give_layer([position], run_for(layer_of[position]), RECURRENCE, confidence=confidence)


def prepares(
    attribution: Attribution,
    target: Sequence[int],
    layer_of: Mapping[int, LayerKey],
    known: AbstractSet[int],
    shaky: AbstractSet[int],
    unlaunched: Mapping[LayerKey, int],
) -> dict[int, tuple[LayerKey, int, bool]]:
    """Return for each unknown fill or write its layer, the kernel behind it, and whether that is uncertain."""
    activities = attribution.profile.activities
    types = {layer.index: types_of(layer.layer, layer.type) for layer in attribution.net.layers}
    placed = sorted(layer_of)
    found: dict[int, tuple[LayerKey, int, bool]] = {}
    following = NONE
    next_begin: int | None = None
    host_layer: LayerKey | None = None
    for position in reversed(target):
        activity = activities[position]
        if position not in known and is_filler(attribution, position):
            key = layer_of.get(following)
            if key is not None:
                before = _layer_on_host(key, unlaunched)
                is_written = activity.kind != "kernel"
                if before is not None and host_layer is None:
                    done = activity.host_end_ns
                    if done is not None and next_begin is not None and 8 * (next_begin - done) >= unlaunched[before]:
                        host_layer = before  # the host was busy for an eighth of the layer's mean
                own = host_layer or key
                if is_written and has_nothing_written(types[own[0]]):
                    own = key
                if is_written and has_nothing_written(types[key[0]]):
                    place = bisect_left(placed, position)
                    own = _written_for(types, key, layer_of[placed[place - 1]] if place else None)
                in_doubt = before is not None or following in shaky or own != key
                found[position] = own, following, in_doubt
        else:
            # A kernel without a layer is the program's own: what prepares it is no layer's either.
            following, host_layer = position, None
        next_begin = activity.prepared_ns or activity.host_start_ns
    return found


def _written_for(types: Mapping[int, frozenset[str]], key: LayerKey, before: LayerKey | None) -> LayerKey:
    """Return the nearest layer before ``key`` that has parameters, down to the layer ``before``; else ``key``."""
    step = -1 if key[1] == "forward" else 1
    own = key
    while own[0] in types and has_nothing_written(types[own[0]]):
        if own == before:
            return key
        own = own[0] + step, key[1]
    return own if own[0] in types else key


def _ambiguous(
    ones: Sequence[Hashable],
    others: Sequence[Hashable],
    pairs: Sequence[tuple[int, int]],
    keys: Sequence[LayerKey | None],
) -> list[int]:
    """Return which of ``others`` an equally good match, found from the end, puts into another layer."""
    if len(pairs) == len(ones) == len(others):
        return []
    from_end = matches(ones[::-1], others[::-1]) or ()
    keys_from_end = {len(others) - 1 - j: keys[len(ones) - 1 - i] for i, j in from_end}
    keys_of = {j: keys[i] for i, j in pairs}
    return [j for j in keys_of.keys() | keys_from_end.keys() if keys_of.get(j) != keys_from_end.get(j)]


def _layer_on_host(following: LayerKey, unlaunched: Mapping[LayerKey, int]) -> LayerKey | None:
    """Return the nearest layer before ``following`` that computes on the host or lost its kernels."""
    index, direction = following
    step = -1 if direction == "forward" else 1
    before = (index + step, direction)
    while before in unlaunched:
        if unlaunched[before] >= TOLERANCE_NS:
            return before
        before = (before[0] + step, direction)
    return None
