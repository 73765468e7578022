"""Made-up runs of ``caffe time`` with their truth: the profile and the log that one process would have left.

Time runs on in whole nanoseconds; host stamps are what a wall clock shows, truncated to microseconds, log stamps the
same in a local zone, device times what a counter of its own shows.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal

import msgspec
from hypothesis import strategies as st

from mio2trace.align import NONE, Links
from mio2trace.model.log import Direction, FrameworkLog, LayerTime, LocalTime, LogEvent, LogEventKind, NetLayer
from mio2trace.model.profile import Activity, Profile, Queue, TimerMark
from tests.records import enqueued, opencl_profile, with_opencl

US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000
HOUR = 3600 * SECOND
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

START = 1_795_170_000 * SECOND + 123_456_789
"""20 November 2026, 11:00 UTC and a bit."""

Place = tuple[int, Direction, str]
"""(iteration, direction, layer), the warm-up being iteration 0."""

seeds = st.integers(0, 2**32 - 1).map(Random)
"""So that times stay as spread as they are meant to be while the rest of an example shrinks."""


def unix_ns(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: float = 0.0) -> int:
    """The moment in UTC."""
    moment = datetime.datetime(year, month, day, hour, minute, tzinfo=datetime.UTC)
    return (moment - EPOCH) // datetime.timedelta(microseconds=1) * US + round(second * SECOND)


def local(host_ns: int, zone_ns: int, *, year: bool = True) -> LocalTime:
    """What a log prints at a moment, truncated to microseconds."""
    shown = host_ns + zone_ns
    days, ns = divmod(shown, 24 * HOUR)
    day = EPOCH + datetime.timedelta(days=days)
    return LocalTime(day.year if year else 0, day.month, day.day, ns // US * US)


@dataclass(kw_only=True)
class Kernel:
    """What a layer enqueues each time it runs."""

    name: str
    ns: int
    gws: tuple[int, int, int] = (64, 1, 1)
    kind: Literal["kernel", "read", "write"] = "kernel"


@dataclass(kw_only=True)
class Layer:
    """A layer with what it does in each direction; ``host_ns`` is its work on the host after its kernels; ``written``:
    whether it has what the host writes, as parameters are.
    """

    name: str
    forward: list[Kernel] = field(default_factory=list)
    backward: list[Kernel] = field(default_factory=list)
    host_ns: int = 20 * US
    written: bool = True

    def kernels(self, direction: Direction) -> list[Kernel]:
        return self.forward if direction == "forward" else self.backward


@dataclass(kw_only=True)
class Clocks:
    """``wall`` turns true time into the host's wall clock, ``device`` into the device's counter."""

    start_ns: int = START
    zone_ns: int = 0
    year: bool = True
    offset_ns: int = 1_700_000_000 * SECOND
    drift: float = 0.0
    wall: Callable[[int], int] = int

    def device(self, ns: int) -> int:
        """The counter: true time is host time where nothing steps; ``drift`` is how much faster the host runs."""
        since = ns - self.start_ns
        return ns - self.offset_ns - round(since * self.drift / (1 + self.drift))


@dataclass(kw_only=True)
class Run:
    """A run: what a reader would have made of its files, and what is true of each enqueue."""

    profile: Profile
    log: FrameworkLog
    places: list[Place | None]
    starts: list[int]
    """The true time at which each enqueue was queued."""

    def with_log(self, **changes: Any) -> Run:
        """The run with other fields of its log."""
        return replace(self, log=msgspec.structs.replace(self.log, **changes))

    def of_some(self, kept: Sequence[int], **changes: Any) -> Run:
        """The run of which only these enqueues were recorded, in a profile with other fields."""
        return replace(
            self,
            profile=with_opencl(self.profile, activities=tuple(self.profile.activities[at] for at in kept), **changes),
            places=[self.places[at] for at in kept],
            starts=[self.starts[at] for at in kept],
        )

    def in_iterations(self) -> int:
        """How many enqueues are of iterations."""
        return sum(place is not None and place[0] > 0 for place in self.places)


def places_of(links: Links) -> list[Place | None]:
    """Where each enqueue was put."""
    of_run: list[Any] = [(links.passes[run.pass_].iteration, run.direction, run.layer) for run in links.runs]
    return [None if number == NONE else of_run[number] for number in links.run_of]


def wrong_and_sure(run: Run, links: Links) -> list[int]:
    """Positions whose layer, direction or iteration is not the true one and was not doubted."""
    return [
        at
        for at, (said, true) in enumerate(zip(places_of(links), run.places, strict=True))
        if said not in (None, true) and at not in links.layer_unsure
    ]


def outcome(run: Run, links: Links, *, warm_up: bool = False) -> Counter[str]:
    """How many enqueues are right, wrong or, of iterations, not placed, and whether that was said to be sure; or how
    many of the warm-up's."""
    counts: Counter[str] = Counter()
    for at, (said, true) in enumerate(zip(places_of(links), run.places, strict=True)):
        if warm_up and (true is None or true[0]):
            continue
        if said is not None:
            sure = "unsure" if at in links.layer_unsure else "sure"
            counts[f"{'right' if said == true else 'wrong'}, {sure}"] += 1
        elif true is not None and (warm_up or true[0]):
            counts["not placed"] += 1
    return counts


class Maker:
    """Lets time pass and writes down what the profiler and the log would."""

    def __init__(self, rng: Random, clocks: Clocks | None = None) -> None:
        self.rng = rng
        self.clocks = clocks or Clocks()
        self.now = self.clocks.start_ns
        self.call = 0
        self.line = 0
        self.activities: list[Activity] = []
        self.marks: list[TimerMark] = []
        self.events: list[LogEvent] = []
        self.printed: list[LayerTime] = []
        self.net: list[NetLayer] = []
        self.places: list[Place | None] = []
        self.starts: list[int] = []

    def host(self) -> int:
        return self.clocks.wall(self.now) // US * US

    def stamp(self) -> LocalTime:
        return local(self.clocks.wall(self.now), self.clocks.zone_ns, year=self.clocks.year)

    def some(self, low: int, high: int) -> None:
        self.now += self.rng.randint(low, high)

    def mark(self) -> None:
        self.marks.append(TimerMark(number=self.call, line=self.line, host_ns=self.host()))
        self.call += 1
        self.line += 1
        self.some(500, 3 * US)

    def log(self, kind: LogEventKind, *, number: int | None = None, ns: int | None = None, text: str = "") -> None:
        self.line += 1
        self.events.append(
            LogEvent(source=0, line=self.line, kind=kind, stamp=self.stamp(), text=text, number=number, duration_ns=ns)
        )
        self.some(2 * US, 8 * US)

    def print_layer(self, index: int, name: str, direction: Direction, ns: int) -> None:
        self.line += 1
        self.printed.append(
            LayerTime(
                source=0,
                line=self.line,
                index=index,
                layer=name,
                direction=direction,
                printed_ns=as_printed(ns),
                stamp=self.stamp(),
            )
        )
        self.some(2 * US, 4 * US)

    def enqueue(self, kernel: Kernel, place: Place | None, *, longer: int = 0) -> None:
        prepared = self.host()
        self.call += self.rng.randint(1, 4)
        self.some(2 * US, 12 * US)
        host_start = self.host()
        self.some(300, 2 * US)
        queued = self.now
        self.some(200, 3 * US)
        submit = self.now
        self.some(500, 9 * US)
        start = self.now
        self.now += kernel.ns + longer
        end = self.now
        self.some(500, 4 * US)
        device = self.clocks.device
        self.line += 10
        self.activities.append(
            enqueued(
                number=self.call,
                kind=kernel.kind,
                name=kernel.name,
                line=self.line,
                queued_ns=device(queued),
                submit_ns=device(submit),
                start_ns=device(start),
                end_ns=device(end),
                host_start_ns=host_start,
                host_end_ns=self.host(),
                prepared_ns=prepared,
                grid=kernel.gws if kernel.kind == "kernel" else None,
                size_bytes=0 if kernel.kind == "kernel" else kernel.gws[0],
            )
        )
        self.places.append(place)
        self.starts.append(queued)
        self.call += 1

    def finish(self, *, marks: bool = True, interleaved: bool = False, iterations: int | None = None) -> Run:
        profile = opencl_profile(
            source=0 if interleaved else 1,
            records=self.call + 1,
            queues=(Queue(index=0, device=0, handle="0x1"),),
            activities=tuple(self.activities),
            marks=tuple(self.marks) if marks else (),
            interleaved=interleaved,
        )
        log = FrameworkLog(
            source=0, layers=tuple(self.printed), events=tuple(self.events), net=tuple(self.net), iterations=iterations
        )
        return Run(profile=profile, log=log, places=self.places, starts=self.starts)


def as_printed(ns: int) -> int:
    """Through Caffe's ``%g`` in milliseconds, six digits."""
    return round(float(f"{ns / MS:g}") * MS)


def make_run(
    rng: Random,
    net: list[Layer],
    *,
    iterations: int = 1,
    backward: bool = False,
    warm_up: bool = True,
    marks: bool = True,
    interleaved: bool = False,
    boundary_lines: bool = False,
    jitter: float = 0.0,
    setup: int = 3,
    tail: int = 0,
    extra_fills: bool = False,
    clocks: Clocks | None = None,
    gap: tuple[int, int] = (5 * US, 80 * US),
    timer_noise: int = 0,
) -> Run:
    """A whole run of ``net``.

    ``jitter`` is how much a kernel's time varies between iterations, ``gap`` the time outside the timers between two
    layers, ``timer_noise`` how far a layer's timer may be off; ``boundary_lines`` prints each layer's line right after
    it ran instead of means at the end; ``extra_fills`` has the warm-up write and fill buffers that later iterations
    find made; ``setup`` and ``tail`` are the numbers of writes before the warm-up and of kernels after the benchmark.
    """
    make = Maker(rng, clocks)
    for layer in net:
        make.log("setting up", text=layer.name)
        make.net.append(NetLayer(source=0, line=make.line, layer=layer.name, tops=("1x8x4x4",)))
    for number in range(setup):
        make.enqueue(Kernel(name="clEnqueueWriteBuffer", ns=3 * US, gws=(number + 1, 1, 1), kind="write"), None)
    directions: tuple[Direction, ...] = ("forward", "backward") if backward else ("forward",)
    if warm_up:
        for direction in directions:
            make.log("forward begins" if direction == "forward" else "backward begins")
            make.some(*gap)
            for layer in net if direction == "forward" else net[::-1]:
                for kernel in layer.kernels(direction):
                    if extra_fills and rng.random() < 0.3 and layer.written:
                        make.enqueue(
                            Kernel(name="clEnqueueWriteBuffer", ns=2 * US, gws=(77, 1, 1), kind="write"),
                            (0, direction, layer.name),
                        )
                    make.enqueue(kernel, (0, direction, layer.name), longer=rng.randint(0, 5 * MS))
                make.now += layer.host_ns
            if direction == "forward":
                make.log("forward ends")
    make.log("benchmark begins")
    make.log("testing", number=iterations)
    spans: dict[tuple[int, Direction], list[int]] = {}
    make.mark()
    for iteration in range(1, iterations + 1):
        make.mark()
        begun = make.now
        for direction in directions:
            make.mark()
            order = list(enumerate(net))
            for index, layer in order if direction == "forward" else order[::-1]:
                make.some(*gap)
                make.mark()
                start = make.now
                for kernel in layer.kernels(direction):
                    make.enqueue(
                        kernel, (iteration, direction, layer.name), longer=round(kernel.ns * jitter * rng.random())
                    )
                make.now += layer.host_ns
                spans.setdefault((index, direction), []).append(
                    max(0, make.now - start + rng.randint(-timer_noise, timer_noise))
                )
                make.mark()
                if boundary_lines:
                    make.print_layer(index, layer.name, direction, spans[index, direction][-1])
            make.mark()
        took = make.now - begun
        make.mark()
        make.log("iteration", number=iteration, ns=as_printed(took))
    make.log("average begins")
    if not boundary_lines:
        for index, layer in enumerate(net):
            for direction in ("forward", "backward"):
                seen = spans.get((index, direction), [0])
                make.print_layer(index, layer.name, direction, sum(seen) // len(seen))
    for direction in directions:
        total = sum(sum(times) for (_, way), times in spans.items() if way == direction)
        make.log("average forward" if direction == "forward" else "average backward", ns=total // iterations)
    if not backward:
        make.log("average backward", ns=0)
    make.mark()
    make.log("benchmark ends")
    for _ in range(tail):
        make.enqueue(Kernel(name="after_all", ns=9 * US), None)
    return make.finish(marks=marks, interleaved=interleaved, iterations=iterations)


def random_net(
    rng: Random, layers: int, *, empty: float = 0.2, most_kernels: int = 4, names: int = 6, longest_ns: int = 3 * MS
) -> list[Layer]:
    """Layers that launch up to ``most_kernels`` kernels each way; a share of ``empty`` launches none."""

    def kernels() -> list[Kernel]:
        if rng.random() < empty:
            return []
        return [
            Kernel(
                name=f"kernel_{rng.randrange(names)}",
                ns=rng.choice([rng.randint(2 * US, 40 * US), rng.randint(40 * US, longest_ns)]),
                gws=(rng.choice([32, 64, 128]), rng.choice([1, 8]), 1),
            )
            for _ in range(rng.randint(1, most_kernels))
        ]

    return [
        Layer(
            name=f"layer{number}",
            forward=kernels(),
            backward=kernels(),
            host_ns=rng.choice([rng.randint(200, 2 * US), rng.randint(2 * US, 60 * US), rng.randint(0, 2 * MS)]),
        )
        for number in range(layers)
    ]
