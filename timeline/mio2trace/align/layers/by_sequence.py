"""Layers without recorded modules: forward ops by kind and position, and the blocks that they form (kineto.md)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import chain, pairwise
from operator import attrgetter, itemgetter
from typing import NamedTuple

import msgspec

from mio2trace.align.links import DOUBTED, NONE
from mio2trace.align.ranges import (
    Execution,
    MarkedStep,
    OpenRanges,
    Sequenced,
    optimizer_ends,
    outer_ranges,
    step_at,
)
from mio2trace.model.profile import Profile, Range
from mio2trace.ops.ranges import (
    ANCHORS,
    GRADIENT,
    NAMED,
    REGIONS,
    VIEW,
    VIEWS,
    WITH_PARAMETERS,
    is_module,
    kind_of,
    part_of_step,
)


class ForwardOp(msgspec.Struct, frozen=True):
    """An op of the forward pass. ``place``: its range. ``kind``: may be empty; `VIEW` launches nothing, but its
    gradient may. ``shapes``: of two inputs. ``signature``: equal for equal names and shapes. ``again_in``: the range of
    the backward pass that ran it again, else `NONE`."""

    place: int
    text: str
    kind: str
    shapes: tuple[object, ...] | None
    signature: int
    start_ns: int
    end_ns: int
    thread: int
    again_in: int

    @property
    def is_anchor(self) -> bool:
        return self.kind in ANCHORS

    @property
    def is_sum(self) -> bool:
        """Whether it adds two tensors of one shape."""
        shapes = self.shapes
        return self.text in _SUMS and shapes is not None and len(shapes) > 1 and () != shapes[0] == shapes[1]


def forward_ops(profile: Profile, opened: OpenRanges) -> list[ForwardOp]:
    """Return the forward ops by time, without optimisers."""
    ranges, parent_of, order = profile.ranges, opened.parent_of, opened.outermost_first
    texts = [*map(attrgetter("text"), ranges)]
    kinds = {text: kind_of(text) for text in set(texts)}
    parts = {text: part_of_step(text) for text in kinds}
    held, runs_again = _held(profile, parent_of, texts, kinds)
    is_closed = bytearray(len(ranges) + 1)
    """By place: whether it is within an op. The last one is for `NONE`."""
    again_in: dict[int, int] = {}
    signatures: dict[Hashable, int] = {}
    found: list[ForwardOp] = []
    for place in order:
        parent = parent_of[place]
        if is_closed[parent]:  # most are
            is_closed[place] = 1
            continue
        made, text = ranges[place], texts[place]
        again = again_in.get(parent, NONE) if runs_again else NONE
        if made.kind != "operator":
            is_closed[place] = parts[text] == "optimizer"
            again_in[place] = again
            continue
        if text.startswith(GRADIENT):
            if runs_again:
                again_in[place] = place
            else:
                is_closed[place] = 1
            continue
        if again != NONE and made.sequence is None:  # a gradient is computed by ops without numbers
            is_closed[place] = 1
            continue
        inner = held.get(place, "")
        is_region = inner is None or (inner and "::" not in text) or text.startswith(REGIONS)
        if is_region or (again != NONE and parts[text] == "backward"):
            again_in[place] = again
            continue
        is_closed[place] = 1
        shapes = None if made.inputs is None else made.inputs.shapes[:2]
        kind = VIEW if text in VIEWS else kinds[text] or inner or ""
        signature = signatures.setdefault((text, shapes), len(signatures))
        found.append(ForwardOp(place, text, kind, shapes, signature, made.start_ns, made.end_ns, made.thread, again))
    found.sort(key=attrgetter("start_ns"))
    return found


def _held(
    profile: Profile, parent_of: Sequence[int], texts: Sequence[str], kinds: Mapping[str, str]
) -> tuple[dict[int, str | None], bool]:
    """Return the kind of the only op with parameters in each range (None: several); whether a backward pass has any."""
    ranges = profile.ranges
    wanted = {text: kind for text, kind in kinds.items() if kind in WITH_PARAMETERS}
    held: dict[int, str | None] = {}
    is_inner: dict[int, bool] = {}
    runs_again = False
    for place in [place for place, text in enumerate(texts) if text in wanted]:
        if ranges[place].kind != "operator":
            continue
        path = []
        inner = False
        parent = parent_of[place]
        while parent != NONE:
            if parent in is_inner or (texts[parent] in wanted and ranges[parent].kind == "operator"):
                inner = is_inner.get(parent, True)
                break
            path.append(parent)
            runs_again = runs_again or texts[parent].startswith(GRADIENT)
            parent = parent_of[parent]
        for around in path:
            is_inner[around] = inner
        if inner:
            continue
        parent = parent_of[place]
        while parent != NONE and held.get(parent, "") is not None:
            held[parent] = None if parent in held else wanted[texts[place]]
            parent = parent_of[parent]
    return held, runs_again


IN_BLOCK = 0.9
"""Confidence that an op is in its block, if the blocks are equal: no block was wrong in more than 30 profiles with
modules (docs/kineto.md)."""
_MOST_PERIODS = 1 << 10
_MOST_FITS = 64
_SUMS = ("aten::add", "aten::add_")
_BATCH_NORM = "aten::batch_norm"
_COUNTER = "aten::add_", ((), ())
"""In training, batch norms first count their batches by an addition."""


def layers_by_sequence(
    profile: Profile, opened: OpenRanges, steps: Sequence[MarkedStep], annotations: Mapping[int, Range]
) -> Sequenced:
    """Return the layers of a profile without modules; none if it has modules. ``annotations``: ranges of the user."""
    found = Sequenced()
    if any(map(is_module, profile.ranges)):
        return found
    ops = forward_ops(profile, opened)
    own = [op for op in ops if op.again_in == NONE]
    number_of = _numbering(own, steps, profile)
    parts: dict[int, list[ForwardOp]] = defaultdict(list)
    for op in own:
        number = number_of(op.start_ns)
        if number is not None:
            parts[number].append(op)
    parts = {number: part for number, part in parts.items() if any(op.is_anchor for op in part)}
    if not parts:
        return found
    signatures = {number: _signatures(part) for number, part in parts.items()}
    usual: dict[str, tuple[Hashable, ...]] = {}
    for kind in ("", *NAMED):
        usual[kind], _ = Counter(of.get(kind, ()) for of in signatures.values()).most_common(1)[0]
    known: dict[Hashable, list[Block]] = {}
    for number, part in parts.items():
        sure: set[str] = set()
        if signatures[number][""] == usual[""]:
            sure.update(WITH_PARAMETERS, (kind for kind in NAMED if signatures[number].get(kind, ()) == usual[kind]))
        _name(part, sure, _annotated(part, opened.parent_of, annotations), known, found)
    again: dict[int, list[ForwardOp]] = defaultdict(list)
    for op in ops:
        if op.again_in != NONE:
            again[op.again_in].append(op)
    once: dict[int, _Once] = {}
    for group in again.values():
        if not any(op.kind in WITH_PARAMETERS for op in group):  # a gradient of gradients has numbers, too
            continue
        found.nowhere.update(op.place for op in group)
        number = number_of(group[0].start_ns)
        if number in parts:
            if number not in once:
                once[number] = _Once(parts[number])
            _name_again(group, once[number], found)
    return found


def _numbering(ops: Sequence[ForwardOp], steps: Sequence[MarkedStep], profile: Profile) -> Callable[[int], int | None]:
    """Return a function that gives the step at a time: marked steps, else what the ops repeat.

    A step begins at an op with parameters; without any, at the first product or attention of a compiled region, because
    one pass may be layers that are equal. It holds all before the next such op: other ops, a backward pass, an
    optimizer. Without shapes, a net of convolutions and norms by turns seems to begin again at each of them. If nothing
    repeats, as with sizes that vary, optimizers end steps.
    """
    if steps:
        return lambda ns: None if (step := step_at(steps, ns)) is None else step.number
    parts = {text: part for text in {made.text for made in profile.ranges} if (part := part_of_step(text))}
    began: list[tuple[int, bool, Hashable]] = [
        (made.start_ns, False, parts[made.text]) for made in profile.ranges if made.text in parts
    ]
    beginning = {op.place for op in ops if op.kind in WITH_PARAMETERS} or _first_in_regions(ops, profile)
    began += [(op.start_ns, op.place in beginning, op.signature) for op in ops if op.kind in NAMED or op.is_anchor]
    begins: list[int] = []
    signatures: list[list[Hashable]] = []
    for ns, may_begin, what in sorted(began, key=itemgetter(0)):
        if may_begin:
            begins.append(ns)
            signatures.append([what])
        elif signatures and signatures[-1][-1] != what:  # a backward pass is many ranges
            signatures[-1].append(what)
    period = max(1, _period([*map(tuple, signatures)]))
    starts = begins[period::period] or optimizer_ends(profile)
    return lambda ns: bisect_right(starts, ns)


def _first_in_regions(ops: Sequence[ForwardOp], profile: Profile) -> set[int]:
    """Return the places of the first product or attention of each call of a compiled region."""
    regions = outer_ranges(made for made in profile.ranges if made.text.startswith(REGIONS))
    starts = [made.start_ns for made in regions]
    firsts: dict[int, int] = {}
    for op in ops:
        region = bisect_right(starts, op.start_ns) - 1
        if op.is_anchor and region >= 0 and op.start_ns < regions[region].end_ns:
            firsts.setdefault(region, op.place)
    return {*firsts.values()}


def _signatures(part: Sequence[ForwardOp]) -> dict[str, tuple[Hashable, ...]]:
    """Return the signatures of a step's ops by kind; "" has all ops with parameters."""
    found: dict[str, list[Hashable]] = {"": []}
    for op in part:
        if op.kind in NAMED:
            found.setdefault(op.kind, []).append(op.signature)
            if op.kind in WITH_PARAMETERS:
                found[""].append(op.signature)
    return {kind: tuple(signatures) for kind, signatures in found.items()}


def _annotated(part: Sequence[ForwardOp], parent_of: Sequence[int], annotations: Mapping[int, Range]) -> set[int]:
    """Return places of ops in an annotation that has less than half of the step's ops with parameters."""
    starts = [op.start_ns for op in part if op.kind in WITH_PARAMETERS]
    is_part: dict[int, bool] = {NONE: False}
    found = set()
    for op in part if annotations else ():
        outer = parent_of[op.place]
        if outer not in is_part:
            path = []
            while outer not in is_part and outer not in annotations:
                path.append(outer)
                outer = parent_of[outer]
            if outer not in is_part:
                made = annotations[outer]
                held = bisect_left(starts, made.end_ns) - bisect_left(starts, made.start_ns)
                is_part[outer] = 2 * held < len(starts)
            is_part.update(dict.fromkeys(path, is_part[outer]))
        if is_part[parent_of[op.place]]:
            found.add(op.place)
    return found


def _name(
    part: Sequence[ForwardOp],
    sure: Collection[str],
    annotated: Collection[int],
    known: dict[Hashable, list[Block]],
    found: Sequenced,
) -> None:
    """Name the layers and blocks of a step. ``sure``: kinds that have the usual sequence of ops."""
    threads: dict[int, list[ForwardOp]] = defaultdict(list)
    for op in part:
        threads[op.thread].append(op)
    blocks = []
    for ops in threads.values():
        places = [at for at, op in enumerate(ops) if op.kind != VIEW]
        key = tuple(ops[at].signature for at in places)
        if key not in known:
            known[key] = find_blocks([ops[at] for at in places])
        for block in known[key]:
            first = places[block.first]
            while first and ops[first - 1].kind == VIEW:  # of what the block is given
                first -= 1
            blocks.append((ops[first : places[block.end - 1] + 1], block.is_usual))
    blocks.sort(key=lambda block: block[0][0].start_ns)
    names = {op.place: f"block {number}" for number, (ops, _) in enumerate(blocks, 1) for op in ops}
    counted: Counter[str] = Counter()
    previous: ForwardOp | None = None
    for op in part:
        if op.kind in WITH_PARAMETERS or (op.kind in NAMED and op.place not in annotated):
            counted[op.kind] += 1
            places = [op.place]
            if previous is not None and op.text == _BATCH_NORM and (previous.text, previous.shapes) == _COUNTER:
                places.append(previous.place)
            confidence = 1.0 if op.kind in sure else DOUBTED
            name = f"{op.kind} {counted[op.kind]}"
            found.add(places, Execution(name, op.start_ns, op.end_ns, confidence, names.get(op.place, "")))
        previous = op if op.kind != VIEW else previous
    for ops, is_usual in blocks:
        places = [op.place for op in ops if op.place not in found.first_of and op.place not in annotated]
        if places:
            confidence = IN_BLOCK if is_usual and sure else DOUBTED
            found.add(places, Execution(names[ops[0].place], ops[0].start_ns, ops[-1].end_ns, confidence))


class _Once:
    def __init__(self, ops: Sequence[ForwardOp]) -> None:
        self.ops = ops
        self.signatures = [op.signature for op in ops]
        self.before = len(ops)
        self._places: dict[Hashable, list[int]] = defaultdict(list)
        for at, signature in enumerate(self.signatures):
            self._places[signature].append(at)

    def find(self, wanted: Sequence[Hashable]) -> list[int]:
        """Return the places of these ops in a row, from the last place before ``before`` backwards."""
        places = self._places.get(wanted[0], [])
        middle = bisect_right(places, self.before - len(wanted))
        tried = (*reversed(places[max(0, middle - _MOST_FITS) : middle]), *places[middle : middle + _MOST_FITS])
        return [at for at in tried if self.signatures[at : at + len(wanted)] == wanted]


def _name_again(group: Sequence[ForwardOp], once: _Once, found: Sequenced) -> None:
    """Put ops that ran again into the layers of equal forward ops: the last of these ops that did not run again yet."""
    anchors = [at for at, op in enumerate(group) if op.is_anchor]
    wanted, had, part = [op.signature for op in group], once.signatures, once.ops
    first, last = anchors[0], anchors[-1]
    fits = once.find(wanted[first : last + 1])
    if not fits:
        return
    at = fits[0]
    begin, end = first, last + 1
    while begin and at + begin - first and wanted[begin - 1] == had[at + begin - first - 1]:
        begin -= 1
    while end < len(group) and at + end - first < len(part) and wanted[end] == had[at + end - first]:
        end += 1
    places: dict[int, list[ForwardOp]] = defaultdict(list)
    for number in range(begin, end):
        like = found.first_of.get(part[at + number - first].place)
        if like is not None:
            places[like].append(group[number])
    for like, ops in places.items():
        made = found.executions[like]
        confidence = made.confidence if len(fits) == 1 else min(made.confidence, DOUBTED)
        execution = Execution(made.name, ops[0].start_ns, ops[-1].end_ns, confidence, made.within, again=True)
        found.add([op.place for op in ops], execution)
        found.nowhere.difference_update(op.place for op in ops)
    once.before = at + begin - first


def _period(signatures: Sequence[tuple[Hashable, ...]]) -> int:
    """Return the smallest period of the whole sequence; its length if it has none.

    The end of the last one may lack. Two forward passes, of which the second lacks its end, may be alike layers of one.
    """
    count = len(signatures)
    is_trained = any("backward" in one for one in signatures)
    tried = 0
    for period in range(1, count // 2 + 1):
        last = signatures[-1]
        like = signatures[-1 - period]
        if count % period or like[: len(last)] != last:
            continue
        if count == 2 * period and last != like and not is_trained:
            continue
        tried += 1
        if tried > _MOST_PERIODS:
            break
        if all(one == other for one, other in zip(signatures, signatures[period:-1], strict=False)):
            return period
    return count


# -- Blocks: what a step repeats at least three times in a row, as a transformer repeats its layers (kineto.md) --------
# The anchors repeat: the ops that do most of the work. Ops between anchors may differ.


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
_MOST_BLOCK_PERIODS = 16


class Block(msgspec.Struct, frozen=True):
    """The ops from ``first`` to before ``end``. ``is_usual``: they are those of most blocks of the run."""

    first: int
    end: int
    is_usual: bool


class _Run(NamedTuple):
    first: int
    period: int
    length: int


class _Slot(msgspec.Struct, frozen=True):
    """A place between two ops: op ``at`` behind the anchor before anchor ``offset``. ``is_end``: a sum's end."""

    offset: int
    at: int
    before: ForwardOp
    op: ForwardOp
    ns: float
    is_end: bool


class _Placed(msgspec.Struct, frozen=True):
    """First anchors of a run's blocks, names of the ops between two blocks, and how many of these end a block."""

    starts: range
    between: tuple[str, ...]
    cut: int


def find_blocks(ops: Sequence[ForwardOp]) -> list[Block]:
    """Find the blocks of one thread's ops in a step; none if they have less than half of the anchors."""
    anchors = [at for at, op in enumerate(ops) if op.is_anchor]
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
    like = [op.signature if op.is_anchor else op.text for op in ops]
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
    for period, _ in distances.most_common(_MOST_BLOCK_PERIODS):
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


def _placed(ops: Sequence[ForwardOp], texts: Sequence[str], anchors: Sequence[int], run: _Run) -> _Placed:
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


def _ends_a_sum(ops: Sequence[ForwardOp], at: int) -> bool:
    """Return whether a residual sum with its activation or norm (no root mean square) ends before op ``at``."""
    if ops[at].is_sum:
        return False
    if ops[at - 1].kind == "norm" or ops[at - 1].text in _ACTIVATIONS:
        return ops[at - 2].is_sum and "rms" not in ops[at - 1].text
    return ops[at - 1].is_sum and ops[at].text not in _ACTIVATIONS


def _are_alike(one: ForwardOp, other: ForwardOp) -> bool:
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
