"""Layers without recorded modules: forward ops by kind and position, and the blocks that they form.

``conv 3`` is the third convolution of a step. ``block 2`` is the second block; it has ops without a kind (additions,
copies), its other ops are layers within it. If the ops of a step differ from those of most steps, positions are
guesses. Without marked steps, a step is what the ops repeat."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import NamedTuple

from mio2trace.align.layers.blocks import Block, Op, find_blocks
from mio2trace.align.layers.forward_ops import ANCHORS, NAMED, VIEW, WITH_PARAMETERS, ForwardOp, forward_ops
from mio2trace.align.layers.marked_steps import MarkedStep
from mio2trace.align.links import DOUBTED, NONE
from mio2trace.align.open_ranges import OpenRanges
from mio2trace.model.profile import Profile, Range

IN_BLOCK = 0.9
"""Confidence that an op is in its block, if the blocks are equal: no block was wrong in more than 30 profiles with
modules (docs/kineto.md)."""
_MOST_PERIODS = 1 << 10
_MOST_FITS = 64
_MODULE = "nn.Module: "
_SUMS = ("aten::add", "aten::add_")
_BATCH_NORM = "aten::batch_norm"
_COUNTER = "aten::add_", ((), ())
"""In training, batch norms first count their batches by an addition."""


class Execution(NamedTuple):
    """``within``: the block around the layer. ``again``: the backward pass ran it again."""

    name: str
    start_ns: int
    end_ns: int
    confidence: float = 1.0
    within: str = ""
    again: bool = False


class Sequenced:
    """``executions`` by their first range; ``first_of``: this range for all ranges in it. ``nowhere``: ranges that ran
    again without a known layer."""

    def __init__(self) -> None:
        self.executions: dict[int, Execution] = {}
        self.first_of: dict[int, int] = {}
        self.nowhere: set[int] = set()

    def add(self, places: Sequence[int], execution: Execution) -> None:
        self.executions[places[0]] = execution
        self.first_of.update(dict.fromkeys(places, places[0]))


def layers_by_sequence(
    profile: Profile, opened: OpenRanges, steps: Sequence[MarkedStep], annotations: Mapping[int, Range]
) -> Sequenced:
    """Return the layers of a profile without modules; none if it has modules.

    ``annotations``: ranges of the user. Ops without parameters stay in annotations that have less than half of a step.
    """
    found = Sequenced()
    if any(made.kind == "frame" and made.text.startswith(_MODULE) for made in profile.ranges):
        return found
    ops = forward_ops(profile, opened)
    own = [op for op in ops if op.again_in == NONE]
    number_of = _numbering(own, steps)
    parts: dict[int, list[ForwardOp]] = defaultdict(list)
    for op in own:
        number = number_of(op.start_ns)
        if number is not None:
            parts[number].append(op)
    parts = {number: part for number, part in parts.items() if any(op.kind in ANCHORS for op in part)}
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


def _numbering(ops: Sequence[ForwardOp], steps: Sequence[MarkedStep]) -> Callable[[int], int | None]:
    """Return a function that gives the step at a time: marked steps, else what the ops with parameters repeat."""
    if steps:
        marked = [step.start_ns for step in steps]

        def number_of(ns: int) -> int | None:
            at = bisect_right(marked, ns) - 1
            return steps[at].number if at >= 0 and ns < steps[at].end_ns else None

        return number_of
    with_parameters = [op for op in ops if op.kind in WITH_PARAMETERS]
    period = max(1, _period([op.signature for op in with_parameters]))
    starts = [op.start_ns for op in with_parameters[period::period]]
    return lambda ns: bisect_right(starts, ns)


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
    """By the range around an op."""
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
            known[key] = find_blocks([_op(ops[at]) for at in places])
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


def _op(op: ForwardOp) -> Op:
    shapes = op.shapes
    is_sum = op.text in _SUMS and shapes is not None and len(shapes) > 1 and () != shapes[0] == shapes[1]
    return Op(op.text, op.signature, op.kind if op.kind in ANCHORS else "", op.start_ns, op.end_ns, is_sum)


class _Once:
    """A step's forward ops, to find them again. ``before``: the begin of the ops that last ran again."""

    def __init__(self, ops: Sequence[ForwardOp]) -> None:
        self.ops = ops
        self.signatures = [op.signature for op in ops]
        self.before = len(ops)
        self._places: dict[Hashable, list[int]] = defaultdict(list)
        for at, signature in enumerate(self.signatures):
            self._places[signature].append(at)

    def find(self, wanted: Sequence[Hashable]) -> list[int]:
        """Return the places of these ops in a row, the last one before ``before`` first."""
        places = self._places.get(wanted[0], [])
        middle = bisect_right(places, self.before - len(wanted))
        tried = (*reversed(places[max(0, middle - _MOST_FITS) : middle]), *places[middle : middle + _MOST_FITS])
        return [at for at in tried if self.signatures[at : at + len(wanted)] == wanted]


def _name_again(group: Sequence[ForwardOp], once: _Once, found: Sequenced) -> None:
    """Put ops that ran again into the layers of the same forward ops, the last ones that did not run again yet."""
    anchors = [at for at, op in enumerate(group) if op.kind in ANCHORS]
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


def _period(signatures: Sequence[Hashable]) -> int:
    """Return the smallest period of the whole sequence; its length if it has none."""
    count = len(signatures)
    tried = 0
    for period in range(1, count // 2 + 1):
        if count % period or signatures[period] != signatures[0]:
            continue
        tried += 1
        if tried > _MOST_PERIODS:
            break
        if all(one == other for one, other in zip(signatures, signatures[period:], strict=False)):
            return period
    return count
