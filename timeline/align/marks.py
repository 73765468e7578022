"""Caffe's OpenCL timer writes marks into the profile; cut there, every layer has its true enqueues (dvdt-ck.md 2.3a).

``total.start``; per iteration ``iter.start, forward.start, (layer.start, layer.stop) x n, forward.stop,
[backward.start, (layer.start, layer.stop) x n, backward.stop,] iter.stop``; ``total.stop``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from timeline.align.net import Net
from timeline.align.placement import LayerRun, Placement
from timeline.model.log import Direction
from timeline.model.profile import TimerMark
from timeline.notes import Notes

BY = "timer marks"


class Grammar(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How the marks of one iteration are laid out. ``layers`` is 0 where the program marks passes only."""

    layers: int
    backward: bool

    @property
    def per_iteration(self) -> int:
        return (6 if self.backward else 4) + (4 if self.backward else 2) * self.layers


class Marked(msgspec.Struct, frozen=True, kw_only=True):
    """What the marks say: how many whole iterations, and the mark that ends each (its host time precedes the log's
    ``Iteration: K`` stamp)."""

    grammar: Grammar
    iterations: int
    ends: tuple[TimerMark, ...]


def read_marks(
    marks: Sequence[TimerMark], net: Net, iterations: int | None, notes: Notes
) -> tuple[Grammar, int] | None:
    """The grammar that explains the number of marks, and the number of whole iterations; None when none does."""
    if len(marks) < 4 or not net.layers:
        return None
    found: list[tuple[Grammar, int]] = []
    for layers in (len(net.layers), 0):
        for backward in (False, True):
            if net.backward is not None and backward != net.backward:
                continue
            grammar = Grammar(layers=layers, backward=backward)
            whole, rest = divmod(len(marks) - 2, grammar.per_iteration)
            if rest == 0 and whole > 0 and iterations in (None, whole):
                return grammar, whole
            if whole > 0 and rest == 0:
                found.append((grammar, whole))
    if found:
        grammar, whole = found[0]
        notes.add(f"timer marks show {whole} iterations, the log says {iterations}")
        return grammar, whole
    if net.backward is None:
        return None
    # A run that was killed: the marks stop inside an iteration, and what stands before is whole.
    grammar = Grammar(layers=len(net.layers), backward=net.backward)
    whole = (len(marks) - 1) // grammar.per_iteration
    if whole > 0 and iterations is not None and whole < iterations:
        notes.add(f"timer marks stop after {whole} whole iterations of {iterations}")
        return grammar, whole
    notes.add(
        f"{len(marks)} timer marks do not fit {len(net.layers)} layers"
        f"{' forward and backward' if net.backward else ''}: not used"
    )
    return None


def place_by_marks(
    placement: Placement, marks: Sequence[TimerMark], net: Net, grammar: Grammar, iterations: int
) -> Marked:
    """Cut the enqueues at the marks, and give every layer its host span."""
    calls = [mark.call_index for mark in marks]
    ends = []
    at = 1  # after total.start
    for iteration in range(1, iterations + 1):
        at += 1  # iter.start
        for direction in _directions(grammar):
            order = net.layers if direction == "forward" else net.layers[::-1]
            pass_ = placement.pass_id("iteration", iteration, direction)
            pass_start = at
            at += 1
            for layer in order if grammar.layers else ():
                run = placement.add_run(
                    LayerRun(
                        layer=layer.layer,
                        layer_index=layer.index,
                        direction=direction,
                        pass_=pass_,
                        printed_ns=layer.printed_ns(direction),
                        host_start_ns=marks[at].host_ns,
                        host_end_ns=marks[at + 1].host_ns,
                    )
                )
                placement.place(_between(placement, calls[at], calls[at + 1]), run, BY)
                at += 2
            placement.place_in_pass(_between(placement, calls[pass_start], calls[at]), pass_)
            at += 1
        ends.append(marks[at])
        at += 1
    return Marked(grammar=grammar, iterations=iterations, ends=tuple(ends))


def _directions(grammar: Grammar) -> tuple[Direction, ...]:
    return ("forward", "backward") if grammar.backward else ("forward",)


def _between(placement: Placement, first_call: int, last_call: int) -> range:
    return range(bisect_left(placement.call_indexes, first_call), bisect_left(placement.call_indexes, last_call))


def check_against_printed(placement: Placement, net: Net, notes: Notes) -> None:
    """The marks' host spans must average to the printed times; if they do not, log and profile are not of one run."""
    spans: dict[tuple[int, Direction], list[int]] = {}
    for run in placement.runs:
        if run.host_start_ns is not None and run.host_end_ns is not None:
            spans.setdefault((run.layer_index, run.direction), []).append(run.host_end_ns - run.host_start_ns)
    off = total = 0
    for layer, direction in net.execution_order():
        printed, seen = layer.printed_ns(direction), spans.get((layer.index, direction))
        if printed is not None and seen:
            total += printed
            off += abs(sum(seen) // len(seen) - printed)
    if total and off > total // 4:
        notes.add(f"layer times at the timer marks differ from the printed ones by {100 * off // total} %")
