"""Cut at the marks that Caffe's OpenCL timer writes into the profile (dvdt-ck.md 2.3a).

``total.start``; per iteration ``iter.start, forward.start, (layer.start, layer.stop) x n, forward.stop,
[backward.start, (layer.start, layer.stop) x n, backward.stop,] iter.stop``; ``total.stop``. Nothing is enqueued between
two layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import log

import msgspec
import numpy as np

from mio2trace.align.layers.net import Net, NetLayerSpec, contradicts, tells_type, types_of
from mio2trace.align.links import LayerRun, Links
from mio2trace.align.rates import FAR, LINE_NS, MISFIT, MOST_STRAY, NATS_NEVER
from mio2trace.evidence import TIMER_MARKS
from mio2trace.model.log import Direction
from mio2trace.model.profile import TimerMark
from mio2trace.model.tables import Activities, TimerMarks, plain
from mio2trace.notes import Notes


class Reading(msgspec.Struct, eq=False, dict=True):
    """The marks as ``iterations`` complete iterations with the marks of ``layers`` layers (0: of passes only).

    ``names``: of all activities. ``counts``: the number of activities before each mark."""

    marks: TimerMarks
    names: Sequence[str]
    counts: Sequence[int]
    net: Net
    layers: int
    backward: bool
    iterations: int = 0

    def __post_init__(self) -> None:
        net, at = self.net, 1
        self.passes: list[tuple[Direction, int, int]] = []
        """Direction, first and last mark, counted from the iteration's ``iter.start``."""
        self.executions: list[tuple[NetLayerSpec, Direction, int]] = []
        """The mark that starts each layer; the next mark stops it."""
        directions: tuple[Direction, ...] = ("forward", "backward") if self.backward else ("forward",)
        for direction in directions:
            first, at = at, at + 1
            for layer in (net.layers if direction == "forward" else net.layers[::-1]) if self.layers else ():
                self.executions.append((layer, direction, at))
                at += 2
            self.passes.append((direction, first, at))
            at += 1
        self.size = at + 1

    @property
    def starts(self) -> range:
        """The ``iter.start`` of each iteration, also of the last, incomplete one."""
        begun = self.iterations + (1 + self.iterations * self.size < len(self.marks) - 1)
        return range(1, 1 + begun * self.size, self.size)

    @property
    def before(self) -> list[int]:
        """``counts``, as if the marks that a killed run lacks were at its end."""
        return [*self.counts, *[len(self.names)] * self.size]

    @property
    def ends(self) -> list[TimerMark]:
        """The mark that ends each complete iteration."""
        return [self.marks[number * self.size] for number in range(1, self.iterations + 1)]

    @property
    def begins(self) -> list[TimerMark]:
        """The mark that begins each iteration, also the incomplete one."""
        return [self.marks[start] for start in self.starts if start < len(self.marks)]

    @cached_property
    def between(self) -> int:
        """The number of activities outside of layers (or passes, if layers have no marks)."""
        spans = [(at, at + 1) for *_, at in self.executions] or [(at, stop) for _, at, stop in self.passes]
        before = self.before
        count = 0
        for start in self.starts:
            inside = sum([before[start + stop] - before[start + at] for at, stop in spans])
            count += before[start + self.size - 1] - before[start] - inside
        return count

    def is_sound(self, asked_for: int, *, timed: bool) -> bool:
        """Return whether nothing was enqueued between layers and times match. ``timed``: times are needed."""
        if self.between:
            return False
        off, total, odd = self._off_printed(asked_for)
        return not odd and FAR * off <= total and (total > 0 or not timed)

    def _named(self) -> tuple[int, int]:
        """Return how many kernels have a type of layer in their name, and how many of these another layer's."""
        telling = odd = 0
        before = self.before
        layers = [(types_of(layer.layer, layer.type), direction, at) for layer, direction, at in self.executions]
        for start in self.starts:
            for types, direction, at in layers:
                for name in self.names[before[start + at] : before[start + at + 1]] if types else ():
                    if tells_type(name):
                        telling += 1
                        odd += contradicts(name, types, direction)
        return telling, odd

    def _off_printed(self, asked_for: int, step_ns: int = 0) -> tuple[int, int, int]:
        """Return the deviation of mean times at the marks from the printed ones, the sum of printed times, and how
        many kernels have another layer's name, if marks are missing.

        The printed means are over ``asked_for`` iterations. If names match, the others may have taken any time."""
        telling, odd = self._named() if self.iterations < asked_for else (0, 0)
        in_part = asked_for if telling and not odd else 0
        off = total = 0
        for spans, printed in self._times():
            by = sum(spans) // in_part - printed if len(spans) < in_part else abs(sum(spans) // len(spans) - printed)
            off += max(0, by - LINE_NS - step_ns)
            total += printed
        return off, total, odd

    @cached_property
    def same_run(self) -> bool:
        """Whether printed times equal those at the marks within LINE_NS; other runs differ by 1 in MISFIT."""
        nats = 0.0
        for spans, printed in self._times():
            if printed > MISFIT * LINE_NS:
                agrees = abs(sum(spans) // len(spans) - printed) <= LINE_NS
                nats += log(printed / (MISFIT * LINE_NS)) if agrees else log(MOST_STRAY)
        return nats + NATS_NEVER >= 0

    def _times(self) -> Iterator[tuple[list[int], int]]:
        """Yield the times at the marks per iteration and the printed time of each layer, in ns."""
        starts, begun = plain(self.marks.host_ns), self.starts
        stops = starts[1:]
        for layer, direction, at in self.executions:
            every = slice(begun.start + at, begun.stop, begun.step)
            both = zip(starts[every], stops[every], strict=False)  # the last layer begun may lack its stop
            spans = [stop - start for start, stop in both if start is not None and stop is not None]
            printed = layer.printed_ns(direction)
            if printed is not None and spans:
                yield spans, printed

    def place(self, links: Links) -> None:
        """Give the activities between marks to layers. The last layer of a killed run has what follows its mark."""
        marks, host_ns = self.marks, plain(self.marks.host_ns)
        layers = [(layer, direction, at, layer.printed_ns(direction)) for layer, direction, at in self.executions]
        count, before = len(marks), self.before
        for iteration, start in enumerate(self.starts, 1):
            passes = {
                direction: links.pass_id("iteration", iteration, direction)
                for direction, first, _ in self.passes
                if start + first < count
            }
            for layer, direction, at, printed_ns in layers:
                if start + at >= count:
                    break
                run = LayerRun(
                    layer=layer.layer, layer_index=layer.index, direction=direction, pass_=passes[direction],
                    printed_ns=printed_ns, host_start_ns=host_ns[start + at],
                    host_end_ns=host_ns[start + at + 1] if start + at + 1 < count else None,
                )  # fmt: skip
                positions = range(before[start + at], before[start + at + 1])
                links.give_layer(positions, links.runs.add(run), TIMER_MARKS)
            for direction, first, last in self.passes:
                if direction in passes:
                    links.give_pass(range(before[start + first], before[start + last]), passes[direction])

    def check(self, notes: Notes, asked_for: int, host_step_ns: int) -> bool:
        """Return whether the marks match the printed times, else add a note.

        ``asked_for``: the number of iterations. ``host_step_ns``: the resolution of host times."""
        off, total, _ = self._off_printed(asked_for, host_step_ns)
        if FAR * off > total:
            far = f" by {100 * off // total} %" if total else ", which are all 0"
            notes.add(f"layer times at the timer marks differ from the printed ones{far}")
        if self.between:
            notes.add("kernel or copy between the timer marks of two layers", count=self.between)
        return FAR * off <= total


def read_marks(
    commands: Activities, timer_marks: Sequence[TimerMark], net: Net, iterations: int | None, printed: int, notes: Notes
) -> Reading | None:
    """Return the reading that explains the marks; None if none or several do.

    ``iterations``: asked for by the log. ``printed``: ended by lines of the log."""
    marks = len(timer_marks)
    if marks < 4 or not net.layers:
        return None
    columns = timer_marks if isinstance(timer_marks, TimerMarks) else TimerMarks(timer_marks)
    # Marks and activities are in call order.
    counts = np.searchsorted(np.maximum.accumulate(commands.number), np.maximum.accumulate(columns.number)).tolist()
    names = [*commands.name.each()]
    whole, killed, ended = list[Reading](), list[Reading](), list[Reading]()
    for layers in (len(net.layers), 0):
        for backward in (False, True) if net.backward is None else (net.backward,):
            reading = Reading(columns, names, counts, net, layers, backward)
            count, rest = divmod(marks - 2, reading.size)
            if not rest and count:
                whole.append(msgspec.structs.replace(reading, iterations=count))
            # A run that was killed: the marks stop inside an iteration, after the last one that the log has.
            begun = (marks - 1) // reading.size
            if layers and iterations is not None and begun < iterations:
                # If the log has more iterations, the profile ended before them.
                some = killed if begun in (printed, printed + 1) else ended
                some.append(msgspec.structs.replace(reading, iterations=begun))
    exact = [reading for reading in whole if reading.iterations == iterations]
    for readings in (exact, whole, killed, ended):
        sound = [reading for reading in readings if reading.is_sound(iterations or 0, timed=readings is ended)]
        if readings is exact and not sound:
            # As many marks as the log's own layers and iterations leave are theirs; `check` says what is odd.
            sound = [reading for reading in exact if reading.layers]
        if len(sound) == 1:
            count = sound[0].iterations
            if readings is killed or readings is ended:
                notes.add(f"timer marks stop after {count} whole iterations of {iterations}")
            elif iterations not in (None, count):
                notes.add(f"timer marks show {count} iterations, the log says {iterations}")
            return sound[0]
        if sound:
            break
    notes.add(
        f"{marks} timer marks do not fit {len(net.layers)} layers"
        f"{' forward and backward' if net.backward else ''}: not used"
    )
    return None
