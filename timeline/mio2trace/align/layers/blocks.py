"""Blocks: what a step repeats at least three times in a row, as a transformer repeats its layers (kineto.md).

The anchors repeat: the ops that do most of the work. Ops between anchors may differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

LEAST_BLOCKS = 3
"""Fewer repeats may be chance."""
LEAST_ANCHORS = 2
"""A block with one anchor is the anchor's layer."""
CLEAR = 0.1
"""How much longer a gap is than other gaps of these ops, in parts of the longest one. In 11 profiles with modules: 12 %
or more at the begin of a block, up to 3.4 % elsewhere."""
_LEAST_SHARE = 0.5
"""Share of the anchors that blocks must have: networks with different stages (ResNet) repeat in parts only."""
_ACTIVATIONS = frozenset(("aten::relu", "aten::relu_"))
_LOOK_BACK = 8
_MOST_PERIODS = 16


class Op(NamedTuple):
    """``signature``: equal in each repeat. ``kind``: empty if no anchor. ``is_sum``: adds two tensors of one shape."""

    text: str
    signature: Hashable
    kind: str
    start_ns: int
    end_ns: int
    is_sum: bool = False


class Block(NamedTuple):
    """The ops from ``first`` to before ``end``. ``is_usual``: they are those of most blocks of the run."""

    first: int
    end: int
    is_usual: bool


class _Run(NamedTuple):
    first: int
    period: int
    length: int


class _Slot(NamedTuple):
    """A place between two ops: op ``at`` behind the anchor before anchor ``offset``. ``is_end``: a sum's end."""

    offset: int
    at: int
    before: Op
    op: Op
    ns: float
    is_end: bool


class _Placed(NamedTuple):
    """First anchors of a run's blocks, names of the ops between two blocks, and how many of these end a block."""

    starts: range
    between: tuple[str, ...]
    cut: int


def find_blocks(ops: Sequence[Op]) -> list[Block]:
    """Find the blocks of one thread's ops in a step; none if they have less than half of the anchors."""
    anchors = [at for at, op in enumerate(ops) if op.kind]
    numbers: dict[Hashable, int] = {}
    signatures = [numbers.setdefault(ops[at].signature, len(numbers)) for at in anchors]
    texts = [op.text for op in ops]
    runs = [_placed(ops, texts, anchors, run) for run in sorted(_runs(signatures))]
    chains: list[list[range]] = []
    of_chain: list[_Placed] = []
    for number, placed in enumerate(runs):
        spans = [range(start, start + placed.starts.step) for start in placed.starts]
        free = chains[-1][-1].stop if chains else 0
        end = runs[number + 1].starts.start if number + 1 < len(runs) else len(signatures)
        before = _differing(signatures, spans[0], free, -1)
        behind = _differing(signatures, spans[-1], end, 1)
        spans = [*([before] if before else []), *spans, *([behind] if behind else [])]
        if chains and _are_one(signatures, chains[-1][-2], spans[1], free, spans[0].start):
            # between two runs of the same blocks one that differs
            chains[-1] += [range(free, spans[0].start)] if free < spans[0].start else []
            chains[-1] += spans
        else:
            chains.append(spans)
            of_chain.append(placed)
    if sum(map(len, chain.from_iterable(chains))) < _LEAST_SHARE * len(anchors):
        return []
    like = [op.signature if op.kind else op.text for op in ops]
    found: list[Block] = []
    for spans, placed in zip(chains, of_chain, strict=True):
        bounds = _bounds(texts, anchors, spans, placed, found[-1].end if found else 0)
        held = [tuple(like[first:end]) for first, end in bounds]
        usual, _ = Counter(held).most_common(1)[0]
        found += [Block(first, end, of == usual) for (first, end), of in zip(bounds, held, strict=True)]
    return found


def _differing(signatures: Sequence[int], like: range, limit: int, way: int) -> range | None:
    """Find a block beside the run with additional anchors, up to ``limit``. ``way``: 1 after the run, -1 before it."""
    wanted = signatures[like.start : like.stop][::way]
    at = like.stop if way > 0 else like.start - 1
    met = more = 0
    while met < len(wanted) and (at < limit if way > 0 else at >= limit):
        if signatures[at] == wanted[met]:
            met += 1
        else:
            more += 1
            if not met or 2 * more > len(wanted):
                return None
        at += way
    if met < len(wanted):
        return None
    return range(like.stop, at) if way > 0 else range(at + 1, like.start)


def _are_one(signatures: Sequence[int], one: range, other: range, free: int, begin: int) -> bool:
    """Return whether two runs have the same blocks, with at most one other block between."""
    period = len(one)
    if signatures[one.start : one.stop] != signatures[other.start : other.stop]:
        return False
    return free == begin or period <= 2 * (begin - free) <= 3 * period


def _runs(signatures: Sequence[int]) -> list[_Run]:
    """Return runs that do not overlap, the longest first, then the shortest period."""
    distances: Counter[int] = Counter()
    last: dict[int, list[int]] = {}
    for at, signature in enumerate(signatures):
        places = last.setdefault(signature, [])
        for place in places:
            distances[at - place] += 1
        places.append(at)
        del places[:-_LOOK_BACK]
    candidates: list[_Run] = []
    for period, _ in distances.most_common(_MOST_PERIODS):
        begin = None
        for at in range(len(signatures) - period + 1):
            if at + period < len(signatures) and signatures[at] == signatures[at + period]:
                begin = at if begin is None else begin
            elif begin is not None:
                candidates.append(_Run(begin, period, at - begin + period))
                begin = None
    taken = bytearray(len(signatures))
    runs = []
    for run in sorted(candidates, key=lambda run: (-run.length, run.period, run.first)):
        first, end = run.first, run.first + run.length
        while first < end and taken[first]:
            first += 1
        while first < end and taken[end - 1]:
            end -= 1
        if any(taken[first:end]) or end - first < LEAST_BLOCKS * run.period:
            continue
        taken[first:end] = b"\1" * (end - first)
        if run.period >= LEAST_ANCHORS:
            runs.append(_Run(first, run.period, end - first))
    return runs


def _placed(ops: Sequence[Op], texts: Sequence[str], anchors: Sequence[int], run: _Run) -> _Placed:
    """Find where the blocks of a run begin: at the possible place with the longest gap on the host."""
    from statistics import median  # it loads much, and few runs come here

    first, end, period = run.first, run.first + run.length, run.period
    while first and (end - first) % period < period - 1 and ops[anchors[first - 1]].kind == "norm":
        if ops[anchors[first - 1 + period]].kind != "norm":
            break
        first -= 1
    stretches: list[dict[tuple[str, ...], list[int]]] = [{} for _ in range(period)]
    for at in range(first + 1, end):
        names = tuple(texts[anchors[at - 1] + 1 : anchors[at] + 1])
        stretches[(at - first) % period].setdefault(names, []).append(anchors[at - 1] + 1)
    usual = [max(of.items(), key=lambda item: len(item[1])) for of in stretches]
    places = [(offset, at, begins) for offset, (names, begins) in enumerate(usual) for at in range(len(names))]
    gaps = [median(max(0, ops[one + at].start_ns - ops[one + at - 1].end_ns) for one in of) for _, at, of in places]
    of_block = [ops[begins[0] + at] for _, at, begins in places]
    slots = [
        _Slot(offset, at, of_block[number - 1], of_block[number], ns, _ends_a_sum(of_block, number))
        for number, ((offset, at, _), ns) in enumerate(zip(places, gaps, strict=True))
    ]
    offsets = [
        offset
        for offset in range((end - first) % period + 1)
        if not _are_alike(ops[anchors[first + offset + period - 1]], ops[anchors[first + offset]])
    ]
    longest = _longest(slots, [slot for slot in slots if slot.offset in offsets] or slots[: len(usual[0][0])])
    starts = range(first + longest.offset, first + longest.offset + period * ((end - first) // period), period)
    return _Placed(starts, usual[longest.offset][0][:-1], longest.at)


def _ends_a_sum(ops: Sequence[Op], at: int) -> bool:
    """Return whether a residual sum with its activation or norm (no root mean square) ends before op ``at``."""
    if ops[at].is_sum:
        return False
    if ops[at - 1].kind == "norm" or ops[at - 1].text in _ACTIVATIONS:
        return ops[at - 2].is_sum and "rms" not in ops[at - 1].text
    return ops[at - 1].is_sum and ops[at].text not in _ACTIVATIONS


def _are_alike(one: Op, other: Op) -> bool:
    """Return whether both are linear layers of one size, as of a query and a key: no block begins between these."""
    return one.kind == "linear" and one.signature == other.signature


def _longest(slots: Sequence[_Slot], candidates: Sequence[_Slot]) -> _Slot:
    """Return the slot with the longest gap, behind residual sums if there are any.

    Gaps are compared with those between the same ops, if this is clear, else with those before ops of the same name."""
    from statistics import median

    ends = [slot for slot in candidates if slot.is_end]
    if ends and not any(slot.before.kind == "norm" for slot in ends):
        return max(ends, key=lambda slot: slot.ns)
    candidates = ends or candidates
    by_pair: dict[tuple[str, str], list[float]] = defaultdict(list)
    by_name: dict[str, list[float]] = defaultdict(list)
    for slot in slots:
        by_pair[slot.before.text, slot.op.text].append(slot.ns)
        by_name[slot.op.text].append(slot.ns)
    of_any = median(slot.ns for slot in slots)

    def of_names(slot: _Slot) -> float:
        others = list(by_name[slot.op.text])
        others.remove(slot.ns)
        return slot.ns - (median(others) if others else of_any)

    def of_pairs(slot: _Slot) -> float:
        others = list(by_pair[slot.before.text, slot.op.text])
        others.remove(slot.ns)
        return slot.ns - max(others) if others else of_names(slot)

    best = max(candidates, key=of_pairs)
    is_clear = of_pairs(best) >= CLEAR * max(slot.ns for slot in candidates)
    return best if is_clear else max(candidates, key=of_names)


def _bounds(
    texts: Sequence[str], anchors: Sequence[int], spans: Sequence[range], placed: _Placed, free: int
) -> list[tuple[int, int]]:
    usual, cut = placed.between, placed.cut
    between = [(anchors[before.stop - 1] + 1, anchors[span.start]) for before, span in pairwise(spans)]

    def tail(first: int, end: int) -> int:
        """Return the end of the block before: as far as the ops are the usual ones up to the cut."""
        at = 0
        while at < cut and first + at < end and texts[first + at] == usual[at]:
            at += 1
        return first + at

    begin = anchors[spans[0].start]
    for text in reversed(usual[cut:]):
        if begin <= free or texts[begin - 1] != text:
            break
        begin -= 1
    last = spans[-1].stop
    ends = [tail(first, end) for first, end in between]
    ends.append(tail(anchors[last - 1] + 1, anchors[last] if last < len(anchors) else len(texts)))
    begins = [begin, *ends[:-1]]
    return [*zip(begins, ends, strict=True)]
