"""Blocks: what a step repeats three times and more, one after another, as a transformer repeats its layers.

The repeats are those of the anchors, the ops that do most of the work; what is between two anchors may differ. Where a
block begins, the order alone does not show: the host takes longest between two modules, so a block begins where the
gaps between its ops are longest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

LEAST_BLOCKS = 3
"""Fewer repeats may be chance."""
LEAST_ANCHORS = 2
"""In a block; of one anchor a block is no more than its layer."""
_LEAST_SHARE = 0.5
"""Share of the anchors that blocks must hold: networks whose stages differ (ResNet) repeat in parts only."""
_LOOK_BACK = 8
_MOST_PERIODS = 16


class Op(NamedTuple):
    """``signature``: what is equal in each repeat; ``kind``: of an anchor, empty for any other op."""

    text: str
    signature: Hashable
    kind: str
    start_ns: int
    end_ns: int


class Block(NamedTuple):
    """The ops from ``first`` to before ``end``. ``is_usual``: they are those of most blocks of their run."""

    first: int
    end: int
    is_usual: bool


class _Span(NamedTuple):
    """The anchors of a block, by their numbers."""

    first: int
    end: int


class _Run(NamedTuple):
    """Anchors from ``first`` on, ``length`` of them, that repeat after ``period``."""

    first: int
    period: int
    length: int


def find_blocks(ops: Sequence[Op]) -> list[Block]:
    """The blocks of one thread's ops in a step, in order; none if they hold less than half of the anchors."""
    anchors = [at for at, op in enumerate(ops) if op.kind]
    numbers: dict[Hashable, int] = {}
    signatures = [numbers.setdefault(ops[at].signature, len(numbers)) for at in anchors]
    runs = [_starts(ops, anchors, run) for run in sorted(_runs(signatures))]
    chains: list[list[_Span]] = []
    for number, starts in enumerate(runs):
        spans = [_Span(start, start + starts.step) for start in starts]
        free = chains[-1][-1].end if chains else 0
        end = runs[number + 1].start if number + 1 < len(runs) else len(signatures)
        before = _differing(signatures, spans[0], free, -1)
        behind = _differing(signatures, spans[-1], end, 1)
        spans = [*([before] if before else []), *spans, *([behind] if behind else [])]
        if chains and _are_one(signatures, chains[-1][-2], spans[1], free, spans[0].first):
            # between two runs of the same blocks one that differs
            chains[-1] += [_Span(free, spans[0].first)] if free < spans[0].first else []
            chains[-1] += spans
        else:
            chains.append(spans)
    if sum(span.end - span.first for spans in chains for span in spans) < _LEAST_SHARE * len(anchors):
        return []
    texts = [op.text for op in ops]
    like = [op.signature if op.kind else op.text for op in ops]
    found: list[Block] = []
    for spans in chains:
        bounds = _bounds(ops, texts, anchors, spans, found[-1].end if found else 0)
        held = [tuple(like[first:end]) for first, end in bounds]
        usual, _ = Counter(held).most_common(1)[0]
        found += [Block(first, end, of == usual) for (first, end), of in zip(bounds, held, strict=True)]
    return found


def _differing(signatures: Sequence[int], like: _Span, limit: int, way: int) -> _Span | None:
    """A block beside the run with all anchors of the run's and some more between them; from ``limit`` on or up to it.

    ``way``: 1 behind the run's last block, -1 before its first one.
    """
    wanted = signatures[like.first : like.end][::way]
    at = like.end if way > 0 else like.first - 1
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
    return _Span(like.end, at) if way > 0 else _Span(at + 1, like.first)


def _are_one(signatures: Sequence[int], one: _Span, other: _Span, free: int, begin: int) -> bool:
    """Whether two runs have the same blocks, with at most one block between."""
    period = one.end - one.first
    if signatures[one.first : one.end] != signatures[other.first : other.end]:
        return False
    return free == begin or period <= 2 * (begin - free) <= 3 * period


def _runs(signatures: Sequence[int]) -> list[_Run]:
    """Runs that do not overlap, the longest first; of equal ones that with the shortest period."""
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


def _starts(ops: Sequence[Op], anchors: Sequence[int], run: _Run) -> range:
    """The first anchor of each block: of the places that give as many blocks that after the longest gaps.

    A norm before the run may be the first block's, whose input is not the sum that other blocks' norms add up.
    """
    first, end, period = run.first, run.first + run.length, run.period
    while first and (end - first) % period < period - 1 and ops[anchors[first - 1]].kind == "norm":
        if ops[anchors[first - 1 + period]].kind != "norm":
            break
        first -= 1
    count = (end - first) // period

    def weight(offset: int) -> float:
        """Of the gaps before an anchor, those of all blocks but the first; long ones weigh more."""
        inner = range(first + offset + period, first + offset + period * count, period)
        return median(sum(gap * gap for gap in _gaps(ops, anchors[at - 1], anchors[at])) for at in inner)

    offset = max(range((end - first) % period + 1), key=lambda offset: (weight(offset), -offset))
    return range(first + offset, first + offset + period * count, period)


def _gaps(ops: Sequence[Op], first: int, last: int) -> Iterator[int]:
    """The time between each two ops, from the end of op ``first`` to the start of op ``last``."""
    return (max(0, ops[at].start_ns - ops[at - 1].end_ns) for at in range(first + 1, last + 1))


def _bounds(
    ops: Sequence[Op], texts: Sequence[str], anchors: Sequence[int], spans: Sequence[_Span], free: int
) -> list[tuple[int, int]]:
    """The first op of each block and the first one behind it: of what is between the anchors of two blocks, the ops
    before the longest gap are the first one's. Ops before ``free`` are of an earlier run."""
    between = [(anchors[before.end - 1] + 1, anchors[span.first]) for before, span in pairwise(spans)]
    usual, _ = Counter(tuple(texts[first:end]) for first, end in between).most_common(1)[0]
    gaps = [[*_gaps(ops, first - 1, end)] for first, end in between if tuple(texts[first:end]) == usual]
    longest = [median(slot) for slot in zip(*gaps, strict=True)]
    cut = longest.index(max(longest))

    def tail(first: int, end: int) -> int:
        """The end of the block before: how far the ops are the usual ones up to the cut."""
        at = 0
        while at < cut and first + at < end and texts[first + at] == usual[at]:
            at += 1
        return first + at

    begin = anchors[spans[0].first]
    for text in reversed(usual[cut:]):
        if begin <= free or texts[begin - 1] != text:
            break
        begin -= 1
    last = spans[-1].end
    ends = [tail(first, end) for first, end in between]
    ends.append(tail(anchors[last - 1] + 1, anchors[last] if last < len(anchors) else len(ops)))
    begins = [begin, *ends[:-1]]
    return [*zip(begins, ends, strict=True)]
