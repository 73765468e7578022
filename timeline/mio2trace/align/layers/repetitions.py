"""Layers and iterations by repetition.

Kernels get the layers of the same kernels before them. Iterations that nothing names are found. Replays of graphs whose
kernels have no names (RPD) are numbered.

A command between two commands of one iteration, on one queue, is in that iteration. Between two directions it has no
direction. Between two iterations it is in neither.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, chain, groupby, pairwise
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np

from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.net import LayerKey, has_nothing_written, types_of
from mio2trace.align.links import DOUBTED, NONE, Links, neighbours
from mio2trace.align.processes import is_collective
from mio2trace.align.rates import LIKE, TOLERANCE_NS
from mio2trace.evidence import ORDER, RECURRENCE
from mio2trace.model.log import Direction
from mio2trace.model.profile import NAMELESS, Activity, Profile
from mio2trace.model.tables import NEVER, NO, Activities, Numbers, by_key, in_order_of, present

# -- A sequence of kernels gets the layers of the same sequence with known layers --------------------------------------

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
    # By diagonal k = i - j: how far the edits so far reach in ``a``, and the equal stretches (before, from, to, k).
    reach: dict[int, tuple[int, Any]] = {1: (0, None)}
    for edits in range(min(n + m, MAX_EDITS) + 1):
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reach[k - 1][0] < reach[k + 1][0])
            begin, stretches = reach[k + 1] if down else (reach[k - 1][0] + 1, reach[k - 1][1])
            x = begin
            while x < n and x - k < m and a[x] == b[x - k]:
                x += 1
            reach[k] = x, (stretches, begin, x, k) if begin < x else stretches
            if x >= n and x - k >= m:
                return _pairs(reach[k][1])
    return None


def _pairs(stretches: Any) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    while stretches is not None:
        stretches, begin, end, k = stretches
        pairs += [(x, x - k) for x in range(end - 1, begin - 1, -1)]
    return pairs[::-1]


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
    attribution: Attribution, reference: Sequence[int], target: Sequence[int], passes: Mapping[Direction | None, int]
) -> None:
    """Label ``target`` after ``reference``. ``passes``: of ``target``, by direction.

    Writes and fills: alignment-internals.md."""
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
    prepared = prepares(attribution, target, layer_of, matched, shaky, attribution.unlaunched())
    placed = {position: (key, position, position in unsure) for position, key in layer_of.items()} | prepared
    for position in target:
        if position in placed:
            key, from_, in_doubt = placed[position]
            confidence = min(inherited.get(from_, 1.0), LIKE if in_doubt else 1.0)
            run = attribution.run_for(passes[key[1]], key)
            attribution.give_layer([position], run, RECURRENCE, confidence=confidence)


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


# -- Iterations without names ------------------------------------------------------------------------------------------

ANCHORS = 256
"""Places from which repetitions are searched; a stretch longer than two gaps between them is found."""
MOST_CANDIDATES = 4096
"""Candidates per anchor; a long row of one kernel has more."""
CANDIDATES_EACH, COMPARED_EACH = 32, 1000
"""Candidates and compared elements per element of the sequence. Runs need a half and a fifth; rows of one kernel with
few others would need millions."""
_FREE_CANDIDATES, _FREE_COMPARED = 1 << 15, 1 << 20
"""Additional budget, so that short sequences are searched completely."""
_FIRST_COMPARED = 32


class Repetition(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence that repeats. ``starts``: where each complete unit of ``period`` elements begins, without overlaps; at
    least two."""

    period: int
    starts: tuple[int, ...]

    @property
    def covered(self) -> int:
        return self.period * len(self.starts)


def find_repetition(sequence: Sequence[Hashable], sizes: Sequence[int] = ()) -> Repetition | None:
    """Return the repetition that covers most of the sequence, then the shortest; None if nothing repeats.
    ``sizes``: how much each element counts, if not all count the same.

    The longest unbroken stretch gives the unit, which is then searched everywhere. The cost is linear."""
    symbols: dict[Hashable, int] = {}
    items = [symbols.setdefault(item, len(symbols)) for item in sequence]
    count = len(items)
    upto = [*accumulate(sizes or [1] * count, initial=0)]
    places: dict[int, list[int]] = {}
    for position, item in enumerate(items):
        places.setdefault(item, []).append(position)
    stretches: list[tuple[int, int, int]] = []  # start, end, period
    looked_at = _Compared(items)
    for anchor in range(0, count, max(1, count // ANCHORS)):
        around = [one for one in stretches if one[0] <= anchor < one[1] - one[2]]
        if any(2 * (end - start) > count for start, end, _ in around):
            continue  # that one is known
        found = _longest_stretch(looked_at, anchor, places[items[anchor]], around[0] if around else None)
        if found is not None and found not in around:
            stretches.append(found)
    if not stretches:
        return None
    start, _, period = max(stretches, key=lambda one: (upto[one[1]] - upto[one[0]], -one[2], -one[0]))
    return Repetition(period=period, starts=tuple(occurrences(items, items[start : start + period])))


class _Compared:
    """A sequence whose parts are compared with each other. ``candidates``, ``elements``: how many more may be tried."""

    def __init__(self, items: Sequence[int]) -> None:
        self.count = len(items)
        self.candidates = CANDIDATES_EACH * self.count + _FREE_CANDIDATES
        self.elements = COMPARED_EACH * self.count + _FREE_COMPARED
        self._items, self._column = items, np.array(items, np.int64)

    def may_be(self, place: int, other: int, least: int) -> bool:
        """Return whether ``least`` equal elements around both places are possible: half of them are on one side."""
        half, items = (least - 1) // 2, self._items
        return (
            other + half < self.count
            and items[place + half] == items[other + half]
            and self.after(place, other, half) == half
        ) or (
            place >= half
            and items[place - half] == items[other - half]
            and self.after(place - half, other - half, half) == half
        )

    def after(self, place: int, other: int, most: int) -> int:
        """Return how many elements from both places on are equal, up to ``most``."""
        return self._alike(self._column[place : place + most], self._column[other : other + most])

    def before(self, place: int, other: int) -> int:
        """Return how many elements before both places are equal."""
        return self._alike(self._column[:place][::-1], self._column[other - place : other][::-1])

    def _alike(self, one: Numbers, other: Numbers) -> int:
        at, step = 0, _FIRST_COMPARED
        while at < len(one):
            is_same = one[at : at + step] == other[at : at + step]
            self.elements -= len(is_same)
            if not is_same[different := int(is_same.argmin())]:
                return at + different
            at, step = at + step, 2 * step
        return len(one)


def _longest_stretch(
    items: _Compared, anchor: int, places: Sequence[int], best: tuple[int, int, int] | None
) -> tuple[int, int, int] | None:
    """Return (start, end, period) of the longest periodic stretch around ``anchor``. ``best``: the longest stretch
    found so far."""
    tried = 0
    for place in places[bisect_right(places, anchor) :]:
        period = place - anchor
        if best is not None and place < best[1] and period % best[2] == 0:
            continue  # the same stretch, with several of its periods as one
        tried += 1
        items.candidates -= 1
        if tried > MOST_CANDIDATES or items.candidates <= 0 or items.elements <= 0:
            break
        longest = 0 if best is None else best[1] - best[0]
        if not items.may_be(anchor, place, max(period, longest - period + 1)):
            continue
        last = anchor + items.after(anchor, place, items.count - place)
        first = anchor - items.before(anchor, place)
        if last - first >= period and last + period - first > longest:
            best = first, last + period, period
    return best


def occurrences(items: Sequence[Hashable], unit: Sequence[Hashable]) -> list[int]:
    """Find the unit from the left, without overlaps."""
    numbers: dict[Hashable, int] = {}
    text, wanted = (
        np.array([numbers.setdefault(item, len(numbers)) for item in row], np.int32).tobytes() for row in (items, unit)
    )
    found = []
    at = text.find(wanted)
    while at >= 0:
        place, is_between = divmod(at, 4)
        if not is_between:
            found.append(place)
        at = text.find(wanted, at + (1 if is_between else len(wanted)))
    return found


REPEATED = 0.9
"""Share of the kernel time from the first repetition on that repetitions must cover."""
MOST_SET_UP = 0.5
"""Share of the kernels that may come before the first repetition."""


def number_repetitions(profile: Profile, links: Links) -> None:
    """Number repetitions of kernels as passes, if no pass has a kernel. Set-up and searches are not compared.

    What is left of a file from which rows were filtered repeats otherwise than the run did."""
    commands = profile.commands
    if profile.defects.get("sampled"):
        return
    set_up = {number for number, pass_ in enumerate(links.passes) if pass_.phase in ("before", "setup")}
    passes = np.asarray(links.pass_of)[commands.is_kernel]
    if not np.isin(passes, [NONE, *set_up]).all():
        return
    searches = {operation.index for operation in links.operations if operation.phase == "find"}
    is_other = np.isin(np.asarray(links.pass_of), [*set_up]) | np.isin(np.asarray(links.operation_of), [*searches])
    for chosen, order in _orders(commands, np.flatnonzero(commands.is_kernel & ~is_other)):
        items = _items(commands, chosen)
        repetition = _accepted(commands, items)
        if repetition is None:
            continue
        place = {position: at for at, position in enumerate(order)}
        last = repetition.starts[-1] + repetition.period
        begins = [place[items[start][0]] for start in repetition.starts]
        ends = [*begins[1:], place[items[last][0]] if last < len(items) else len(order)]
        for number, (begin, end) in enumerate(zip(begins, ends, strict=True), 1):
            links.give_pass(order[begin:end], links.pass_id("iteration", number, repeated=True))
        return


def _orders(commands: Activities, kernels: Numbers) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Yield the kernels in which a repetition is searched, and the order of commands that is cut into steps.

    First the profile's order; then the main stream if it has most kernels, else launch order. Without recorded
    launches, streams mix differently in each step."""
    yield kernels.tolist(), range(len(commands))
    launched, queues = _launched(commands), commands.queue[kernels]
    took = np.where(commands.name.where(is_collective), 0, commands.time_ns)[kernels]
    computing = {queue: int(took[queues == queue].sum()) for queue in present(queues).tolist()}
    main = kernels[queues == max(computing, key=computing.__getitem__, default=NONE)].tolist()
    if len(main) < len(kernels) < 2 * len(main):
        order, wanted = launched or main, {*main}
    elif launched and launched != range(len(commands)):
        order, wanted = launched, {*kernels.tolist()}
    else:
        return
    yield [position for position in order if position in wanted], order


def _launched(commands: Activities) -> Sequence[int]:
    """Return positions by launch, else by correlation id; empty if these contradict a stream."""
    if (commands.host_start_ns != NO).any():
        return range(len(commands))
    rows = np.flatnonzero((commands.correlation != NO) & (commands.start_ns != NO))
    rows = rows[np.lexsort((commands.start_ns[rows], commands.correlation[rows]))]
    if any((np.diff(starts) < 0).any() for _, starts in by_key(commands.start_ns[rows], commands.queue[rows])):
        return ()
    launched: list[int] = rows.tolist()
    return launched


def _items(commands: Activities, kernels: Sequence[int]) -> list[list[int]]:
    """Return each kernel, but nameless kernels of one graph launch together."""
    is_nameless = (commands.is_replayed & commands.grid.where(lambda grid: grid is None)).tolist()
    calls = commands.call.tolist()  # records of one call are not the same each time
    items: list[list[int]] = []
    call = NONE
    for position in kernels:
        if is_nameless[position] and calls[position] == call:
            items[-1].append(position)
        else:
            items.append([position])
        call = calls[position]
    return items


def _accepted(activities: Activities, items: Sequence[Sequence[int]]) -> Repetition | None:
    """Return the repetition by name and size, or by name alone if it covers more; None if it covers too little."""
    best: Repetition | None = None
    time_ns = activities.time_ns.tolist()
    took = [sum(time_ns[at] for at in item) for item in items]
    distinct = 0
    for with_grid in (True, False):
        keys = [tuple((activities[at].name, with_grid and activities[at].grid) for at in item) for item in items]
        known, distinct = distinct, len({*keys})
        if known == distinct:
            continue  # names tell all apart that sizes do
        found = find_repetition(keys, [*map(len, items)])
        if found is None:
            continue
        found = _begun_at_launches(activities, items, keys, found)
        first = found.starts[0]
        before = sum(map(len, items[:first]))
        repeated = sum(sum(took[start : start + found.period]) for start in found.starts)
        if before <= MOST_SET_UP * sum(map(len, items)) and repeated >= REPEATED * sum(took[first:]):
            best = max(best or found, found, key=lambda one: one.covered)
    return best


def _begun_at_launches(
    commands: Activities, items: Sequence[Sequence[int]], keys: Sequence[Hashable], found: Repetition
) -> Repetition:
    """Move the repetition so that no step begins within a graph launch, if possible."""
    firsts = [item[0] for item in items]
    calls = np.where(commands.is_replayed, commands.call, NONE)[firsts]
    fresh = [True, *((calls[1:] == NONE) | (calls[1:] != calls[:-1])).tolist()]
    for offset in range(found.period):
        if all(at + offset < len(fresh) and fresh[at + offset] for at in found.starts):
            begin = found.starts[0] + offset
            starts = tuple(occurrences(keys, keys[begin : begin + found.period])) if offset else found.starts
            return Repetition(period=found.period, starts=starts) if len(starts) > 1 else found
    return found


def place_nameless_replays(attribution: Attribution) -> None:
    """Number nameless replays as iterations, with the layers of the last known one."""
    links, commands, asked_for = attribution.links, attribution.profile.commands, attribution.iterations()
    known = [one.iteration for one in links.passes if one.phase == "iteration" and one.iteration is not None]
    rows = np.flatnonzero(commands.is_replayed & commands.name.where(NAMELESS.__contains__))
    if asked_for is None or not links.runs or not known or not len(rows):
        return
    replays = [its.tolist() for _, its in by_key(rows, commands.call[rows].astype(np.int64))]
    number, pass_of = max(known), np.asarray(links.pass_of)
    is_last = np.array([*((one.phase, one.iteration) == ("iteration", number) for one in links.passes), False])
    like = np.flatnonzero(is_last[pass_of] & commands.is_kernel).tolist()
    if (
        len(replays) != asked_for - number
        or any(len(positions) != len(like) for positions in replays)
        or (pass_of[rows] != NONE).any()
        or [*chain(*replays)] != [*range(like[-1] + 1, like[-1] + 1 + len(rows))]
    ):
        return
    for following, positions in enumerate(replays, number + 1):
        for of, position in zip(like, positions, strict=True):
            pass_ = links.pass_id("iteration", following, links.passes[links.pass_of[of]].direction)
            key = attribution.layer_key(of)
            if key is None:
                links.give_pass([position], pass_)
            else:
                links.give_layer([position], attribution.run_for(pass_, key), ORDER, confidence=DOUBTED)


def place_between(attribution: Attribution) -> None:
    """Set passes by the neighbours on the queue."""
    links, commands = attribution.links, attribution.profile.commands
    if not links.passes or NONE not in links.pass_of:
        return
    order = _in_order(commands)
    order = order[in_order_of(commands.queue[order])]
    passes, queues, rows = np.asarray(links.pass_of)[order], commands.queue[order], np.arange(len(order))
    last, next_ = neighbours(passes != NONE)
    waiting = np.flatnonzero((passes == NONE) & (next_ < len(rows)))
    waiting = waiting[queues[next_[waiting]] == queues[waiting]]
    last, next_ = last[waiting], next_[waiting]
    before = np.where((last != NONE) & (queues[last] == queues[waiting]), passes[last], NONE)
    count = len(links.passes)
    keys = (before.astype(np.int64) + 1) * count + passes[next_]
    # as they ran, for passes are numbered in that order
    rank = np.empty_like(order)
    rank[_in_order(commands)] = rows
    ran = np.argsort(rank[order[next_]], kind="stable")
    for key, positions in by_key(order[waiting][ran], keys[ran]):
        one, other = divmod(key, count)
        if (around := _around(links, one - 1, other)) != NONE:
            links.give_pass(positions, around)


def _in_order(commands: Activities) -> Numbers:
    """Return positions by start; by launch if some times are unknown."""
    starts = commands.start_ns
    return np.arange(len(starts)) if (starts == NO).any() else np.argsort(starts, kind="stable")


def _around(links: Links, before: int, after: int) -> int:
    """Return the pass of both, or their iteration; else `NONE`, also next to commands from before the recording."""
    if before != NONE and links.passes[before].phase == "before":
        return NONE
    if before in (after, NONE):
        return before
    one, other = links.passes[before], links.passes[after]
    if (one.phase, one.iteration, one.repeated) != (other.phase, other.iteration, other.repeated):
        return NONE
    return links.pass_id(one.phase, one.iteration, repeated=one.repeated)


def place_updates(attribution: Attribution) -> None:
    """Set passes of kernels of calls between the last layer line of an iteration and its own line."""
    links = attribution.links
    ended = sorted(
        (event.source, event.line, event.number)
        for event in attribution.events
        if event.kind == "iteration" and event.number
    )
    ran: dict[int, list[tuple[int, int]]] = {}
    for one in links.operations if ended else ():
        if one.phase == "run":
            ran.setdefault(one.source, []).append((one.line, one.index))
    ended_by: dict[int, int] = {}
    for source, its in groupby(ended, itemgetter(0)):
        _, ends, numbers = zip(*its, strict=True)
        printed = np.sort(np.concatenate([log.times.line[log.times.source == source] for log in attribution.logs]))
        lines, indices = np.array(ran.get(source, []), np.int64).reshape(-1, 2).T
        at = np.searchsorted(ends, lines)
        until = np.append(ends, NEVER)[at]  # the line that ends the iteration of each call
        is_last = np.searchsorted(printed, lines, "right") == np.searchsorted(printed, until, "right")
        for row in np.flatnonzero(is_last & (at < len(ends))).tolist():
            ended_by[int(indices[row])] = numbers[at[row]]
    if not ended_by:
        return
    updates: dict[int, list[int]] = {}
    for positions in attribution.of_queues().values():
        before = None
        for position in positions:
            iteration = ended_by.get(links.operation_of[position])
            if links.pass_of[position] != NONE:
                before = links.iteration_of(position)
            elif iteration is not None and iteration == before:
                updates.setdefault(iteration, []).append(position)
    for iteration, positions in sorted(updates.items(), key=lambda item: min(item[1])):
        links.give_pass(positions, links.pass_id("iteration", iteration))
