"""Cut at the marks that Caffe's OpenCL timer writes into the profile (dvdt-ck.md 2.3a).

``total.start``; per iteration ``iter.start, forward.start, (layer.start, layer.stop) x n, forward.stop,
[backward.start, (layer.start, layer.stop) x n, backward.stop,] iter.stop``; ``total.stop``. Nothing is enqueued between
two layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log

import msgspec

from mio2trace.align.layers.caffe.names import contradicts, tells_type, types_of
from mio2trace.align.layers.net import Net, NetLayerSpec
from mio2trace.align.links import LayerRun, Links
from mio2trace.align.operations.rates import FAR, LINE_NS, MISFIT, MOST_STRAY, NATS_NEVER
from mio2trace.evidence import TIMER_MARKS
from mio2trace.model.log import Direction
from mio2trace.model.profile import TimerMark
from mio2trace.model.tables import Activities
from mio2trace.model.timer_marks import TimerMarks
from mio2trace.notes import Notes


class Grammar(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The layout of one iteration's marks; ``layers`` is 0 if only passes have marks."""

    layers: int
    backward: bool

    @property
    def per_iteration(self) -> int:
        return (6 if self.backward else 4) + (4 if self.backward else 2) * self.layers


class Marked(msgspec.Struct, frozen=True, kw_only=True):
    """What the marks show: the number of complete iterations, and the mark that ends each.

    ``begins``: also of incomplete iterations. ``same_run``: the printed times match the marks by more than chance.
    ``between``: the number of activities between two layers."""

    grammar: Grammar
    iterations: int
    ends: tuple[TimerMark, ...]
    begins: tuple[TimerMark, ...] = ()
    same_run: bool = False
    between: int = 0


class Cuts(msgspec.Struct, frozen=True, kw_only=True):
    """The marks, the number of activities before each, and the names of all activities."""

    marks: TimerMarks
    before: list[int]
    names: list[str]

    @property
    def activities(self) -> int:
        return len(self.names)

    def before_each(self, more: int) -> list[int]:
        """Return `before` with ``more`` marks at the end, for a run that was killed."""
        return [*self.before, *[self.activities] * more]


def cut(commands: Activities, marks: Sequence[TimerMark]) -> Cuts:
    """Count the activities before each mark; both are in call order."""
    count, numbers = len(commands), commands.number.tolist() if len(marks) else []
    columns = marks if isinstance(marks, TimerMarks) else TimerMarks.of(marks)
    before = []
    position = 0
    for call in columns.numbers:
        while position < count and numbers[position] < call:
            position += 1
        before.append(position)
    return Cuts(marks=columns, before=before, names=[*commands.name.each()])


class _Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Passes and layers of an iteration, as numbers of marks after its ``iter.start``."""

    passes: list[tuple[Direction, int, int]]
    layers: list[tuple[NetLayerSpec, Direction, int]]
    """A layer's stop is the mark after its start."""


def _layout(net: Net, grammar: Grammar) -> _Layout:
    layout = _Layout(passes=[], layers=[])
    at = 1
    directions: tuple[Direction, ...] = ("forward", "backward") if grammar.backward else ("forward",)
    for direction in directions:
        start = at
        at += 1
        for layer in (net.layers if direction == "forward" else net.layers[::-1]) if grammar.layers else ():
            layout.layers.append((layer, direction, at))
            at += 2
        layout.passes.append((direction, start, at))
        at += 1
    return layout


def read_marks(cuts: Cuts, net: Net, iterations: int | None, printed: int, notes: Notes) -> tuple[Grammar, int] | None:
    """Return the grammar that explains the marks and the number of complete iterations; None if none or several do.

    ``iterations``: asked for by the log. ``printed``: ended by lines of the log."""
    marks = cuts.marks
    if len(marks) < 4 or not net.layers:
        return None
    whole: list[tuple[Grammar, int]] = []
    killed: list[tuple[Grammar, int]] = []
    ended: list[tuple[Grammar, int]] = []
    for layers in (len(net.layers), 0):
        for backward in (False, True) if net.backward is None else (net.backward,):
            grammar = Grammar(layers=layers, backward=backward)
            count, rest = divmod(len(marks) - 2, grammar.per_iteration)
            if not rest and count:
                whole.append((grammar, count))
            # A run that was killed: the marks stop inside an iteration, after the last one that the log has.
            begun = (len(marks) - 1) // grammar.per_iteration
            if layers and iterations is not None and begun < iterations:
                # Where the log goes on, the profile ended.
                (killed if begun in (printed, printed + 1) else ended).append((grammar, begun))
    exact = [reading for reading in whole if reading[1] == iterations]
    for readings in (exact, whole, killed, ended):
        timed = readings is ended
        sound = [one for one in readings if _is_sound(cuts, net, *one, asked_for=iterations or 0, timed=timed)]
        if readings is exact and not sound:
            # As many marks as the log's own layers and iterations leave are theirs; `check` says what is odd.
            sound = [reading for reading in exact if reading[0].layers]
        if len(sound) == 1:
            grammar, count = sound[0]
            if readings is killed or readings is ended:
                notes.add(f"timer marks stop after {count} whole iterations of {iterations}")
            elif iterations not in (None, count):
                notes.add(f"timer marks show {count} iterations, the log says {iterations}")
            return grammar, count
        if sound:
            break
    notes.add(
        f"{len(marks)} timer marks do not fit {len(net.layers)} layers"
        f"{' forward and backward' if net.backward else ''}: not used"
    )
    return None


def _is_sound(cuts: Cuts, net: Net, grammar: Grammar, iterations: int, *, asked_for: int, timed: bool) -> bool:
    """Return whether nothing was enqueued between layers and times match. ``timed``: times are needed."""
    if enqueued_between(cuts, net, grammar, iterations):
        return False
    telling, odd = _named(cuts, net, grammar, iterations) if iterations < asked_for else (0, 0)
    if odd:
        return False
    off, total = _off_printed(cuts.marks, net, grammar, iterations, in_part=asked_for if telling else 0)
    return FAR * off <= total and (total > 0 or not timed)


def _named(cuts: Cuts, net: Net, grammar: Grammar, iterations: int) -> tuple[int, int]:
    """Return how many kernels have a type of layer in their name, and how many of these another layer's."""
    telling = odd = 0
    before = cuts.before_each(grammar.per_iteration)
    layers = [(types_of(one.layer, one.type), way, at) for one, way, at in _layout(net, grammar).layers]
    for start in _starts(len(cuts.marks), grammar, iterations):
        for types, direction, at in layers:
            for name in cuts.names[before[start + at] : before[start + at + 1]] if types else ():
                if tells_type(name):
                    telling += 1
                    odd += contradicts(name, types, direction)
    return telling, odd


def enqueued_between(cuts: Cuts, net: Net, grammar: Grammar, iterations: int) -> int:
    """Return the number of activities outside of layers (or passes, if layers have no marks)."""
    layout = _layout(net, grammar)
    spans = [(at, at + 1) for _, _, at in layout.layers] or [(at, stop) for _, at, stop in layout.passes]
    before = cuts.before_each(grammar.per_iteration)
    between = 0
    for start in _starts(len(cuts.marks), grammar, iterations):
        inside = sum([before[start + stop] - before[start + at] for at, stop in spans])
        between += before[start + grammar.per_iteration - 1] - before[start] - inside
    return between


def _starts(marks: int, grammar: Grammar, iterations: int) -> range:
    """The ``iter.start`` of each iteration, also of the last, incomplete one."""
    begun = iterations + (1 + iterations * grammar.per_iteration < marks - 1)
    return range(1, 1 + begun * grammar.per_iteration, grammar.per_iteration)


def _off_printed(
    marks: TimerMarks, net: Net, grammar: Grammar, iterations: int, step_ns: int = 0, *, in_part: int = 0
) -> tuple[int, int]:
    """Return the deviation of mean times at the marks from the printed ones, and the sum of printed times.

    ``in_part``: the number of iterations in printed means, if not all have marks."""
    off = total = 0
    for spans, printed in _marked_and_printed(marks, net, grammar, iterations):
        by = sum(spans) // in_part - printed if len(spans) < in_part else abs(_mean(spans) - printed)
        off += max(0, by - LINE_NS - step_ns)
        total += printed
    return off, total


def _is_of_one_run(marks: TimerMarks, net: Net, grammar: Grammar, iterations: int) -> bool:
    """Return whether printed times equal those at the marks within the time of a line. Other runs differ by one part in
    MISFIT."""
    nats = 0.0
    for spans, printed in _marked_and_printed(marks, net, grammar, iterations):
        if printed > MISFIT * LINE_NS:
            agrees = abs(_mean(spans) - printed) <= LINE_NS
            nats += log(printed / (MISFIT * LINE_NS)) if agrees else log(MOST_STRAY)
    return nats + NATS_NEVER >= 0


def _mean(spans: Sequence[int]) -> int:
    return sum(spans) // len(spans)


def _marked_and_printed(
    marks: TimerMarks, net: Net, grammar: Grammar, iterations: int
) -> Iterator[tuple[list[int], int]]:
    """Yield the times at the marks per iteration and the printed time of each layer, in ns."""
    starts = marks.host_ns
    stops = starts[1:]
    begun = _starts(len(marks), grammar, iterations)
    for layer, direction, at in _layout(net, grammar).layers:
        every = slice(begun.start + at, begun.stop, begun.step)
        both = zip(starts[every], stops[every], strict=False)  # the last layer begun may lack its stop
        spans = [stop - start for start, stop in both if start is not None and stop is not None]
        printed = layer.printed_ns(direction)
        if printed is not None and spans:
            yield spans, printed


def place_by_marks(links: Links, cuts: Cuts, net: Net, grammar: Grammar, iterations: int) -> Marked:
    """Give the activities between marks to layers. The last layer of a killed run has what follows its mark."""
    layout, marks, host_ns = _layout(net, grammar), cuts.marks, cuts.marks.host_ns
    layers = [(layer, direction, at, layer.printed_ns(direction)) for layer, direction, at in layout.layers]
    count = len(marks)
    before = cuts.before_each(grammar.per_iteration)
    for iteration, start in enumerate(_starts(len(cuts.marks), grammar, iterations), 1):
        passes = {
            direction: links.pass_id("iteration", iteration, direction)
            for direction, first, _ in layout.passes
            if start + first < count
        }
        for layer, direction, at, printed_ns in layers:
            if start + at >= count:
                break
            run = links.add_run(
                LayerRun(
                    layer=layer.layer,
                    layer_index=layer.index,
                    direction=direction,
                    pass_=passes[direction],
                    printed_ns=printed_ns,
                    host_start_ns=host_ns[start + at],
                    host_end_ns=host_ns[start + at + 1] if start + at + 1 < count else None,
                )
            )
            links.give_layer(range(before[start + at], before[start + at + 1]), run, TIMER_MARKS)
        for direction, first, last in layout.passes:
            if direction in passes:
                links.give_pass(range(before[start + first], before[start + last]), passes[direction])
    ends = tuple(marks[k * grammar.per_iteration] for k in range(1, iterations + 1))
    same_run = _is_of_one_run(marks, net, grammar, iterations)
    begins = tuple(marks[start] for start in _starts(len(marks), grammar, iterations) if start < len(marks))
    return Marked(
        grammar=grammar,
        iterations=iterations,
        ends=ends,
        begins=begins,
        same_run=same_run,
        between=enqueued_between(cuts, net, grammar, iterations) if grammar.layers else 0,
    )


def check(
    cuts: Cuts, net: Net, marked: Marked, notes: Notes, asked_for: int | None = None, host_step_ns: int = 0
) -> bool:
    """Return whether the marks match the printed times, else add a note.

    ``asked_for``: the number of iterations. ``host_step_ns``: the resolution of host times."""
    reading = marked.grammar, marked.iterations
    in_part = 0
    if marked.iterations < (asked_for or 0):
        telling, odd = _named(cuts, net, *reading)
        in_part = asked_for or 0 if telling and not odd else 0
    off, total = _off_printed(cuts.marks, net, *reading, host_step_ns, in_part=in_part)
    if FAR * off > total:
        far = f" by {100 * off // total} %" if total else ", which are all 0"
        notes.add(f"layer times at the timer marks differ from the printed ones{far}")
    if marked.between:
        notes.add("kernel or copy between the timer marks of two layers", count=marked.between)
    return FAR * off <= total
