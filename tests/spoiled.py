"""Changes to a profile whose effect is known: what the program must say of each, and how far its times may move.

Each takes a profile (`tests.raw_profiles`) and returns what is to be expected, or None where it does not allow it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median_low

from tests.oracle.events import COMMUNICATION, COPY_KERNEL
from tests.raw_profiles import Raw, Row

Window = tuple[int, int]


@dataclass(frozen=True)
class Expected:
    """``verdict``: how many more of each class of what is missing there are; of others there are as many.

    ``beside``: classes of which there may be more, ``hidden``: those whose signs may be lost. ``moves_ns``: no step's
    kernel time or length moves by more. ``doubled``: the place of the step that is twice as long, where one is.
    ``loses_last``: step, not the first ones.
    """

    verdict: dict[str, int] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    moves_ns: int = 0
    doubled: int | None = None
    loses_last: bool = False


def commands(raw: Raw) -> list[Row]:
    return sorted((row for row in raw.rows if row.kind in ("kernel", "copy")), key=lambda row: (row.start, row.end))


def without_first_launches(raw: Raw, windows: Sequence[Window]) -> Expected | None:
    """The launches of the first fifth of the kernels are lost: these count as launched before the recording.

    No launch is lost in part. On a stream on which nothing else has a launch, they are kernels without launches.
    """
    calls = raw.call_of()
    launched = [row for row in commands(raw) if row.link in calls]
    kernels = [row for row in launched if row.kind == "kernel"]
    if len(kernels) < 10:
        return None
    until = kernels[len(kernels) // 5].start
    lost = {row.link for row in launched if row.start < until}
    while (further := max(row.start + 1 for row in launched if row.link in lost)) > until:
        until = further
        lost = {row.link for row in launched if row.start < until}
    for link in lost:
        calls[link].gone = True
    left = {row.stream for row in launched if row.link not in lost}
    gone = [row for row in kernels if row.link in lost]
    if not left:
        return None
    early = sum(row.stream in left for row in gone)
    verdict = {"before-recording": early, "kernel-without-launch": len(gone) - early}
    begun = min(row.start for row in raw.rows)
    moves = max(until - begun, sum(row.end - row.start for row in gone))
    return Expected(verdict, hidden=("blocked",), moves_ns=moves)


def stretched(raw: Raw, windows: Sequence[Window]) -> Expected | None:
    """One kernel takes more than 100 times as long as any of its name and size; it may outlast what follows it.

    Some profiles do not record the size of a graph's kernels.
    """
    groups: dict[tuple[str, object], list[Row]] = defaultdict(list)
    for row in commands(raw):
        if (
            row.kind == "kernel"
            and row.size
            and row.name
            and not COMMUNICATION.match(row.name)
            and not COPY_KERNEL.match(row.name)
        ):
            groups[row.name, repr(row.size)].append(row)
    group = max(groups.values(), key=len, default=[])
    durations = [row.end - row.start for row in group]
    if len(group) < 5 or not median_low(durations):
        return None
    row = group[len(group) // 2]
    added = 100 * max(durations) + 1 - (row.end - row.start)
    row.end += added
    return Expected({"outlier": 1}, ("late-end", "overlap-on-stream"), moves_ns=added)


def without_kernels_of_a_graph(raw: Raw, windows: Sequence[Window]) -> Expected | None:
    """The last graph that ran left no record: it is counted, and if the host waits for it, that is no idle time."""
    calls = raw.call_of()
    ran = [row for row in commands(raw) if row.link in calls and "GraphLaunch" in calls[row.link].name]
    if not ran:
        return None
    of = [row for row in ran if row.link == ran[-1].link]
    for row in of:
        row.gone = True
    span = max(row.end for row in of) - min(row.start for row in of)
    moves = max(span, sum(row.end - row.start for row in of))
    return Expected({"graph-without-kernels": 1}, ("blocked",), moves_ns=moves, loses_last=True)


BLOCKED_NS = 300_000_000


def with_a_blocking_copy(raw: Raw, windows: Sequence[Window]) -> Expected | None:
    """The host is in a copy of 4 bytes for 300 ms, of which the copy itself takes 5 us: the device was not idle.

    All that came later comes so much later; what was launched before runs as it did.
    """
    calls = raw.call_of()
    launched = sorted((row for row in commands(raw) if row.link in calls), key=lambda row: calls[row.link].start)
    kernels = [row for row in launched if row.kind == "kernel"]
    if not kernels:
        return None
    launch = calls[kernels[len(kernels) // 2].link]
    at = launch.start
    earlier = [row for row in launched if calls[row.link].start < at]
    if max((row.end for row in earlier), default=0) > at + BLOCKED_NS / 2:
        return None  # the device is too far behind
    copy = at + BLOCKED_NS - 15_000, at + BLOCKED_NS - 10_000
    rows = list(raw.rows)
    if not raw.add_copy(launch, (at, at + BLOCKED_NS), copy):
        return None
    later: dict[object, int] = {}
    for row in launched:
        if calls[row.link].start >= at:
            later[row.stream] = min(row.start, later.get(row.stream, row.start))
    starts = {row.link: row.start for row in calls.values()}
    for row in rows:
        if row.kind in ("kernel", "copy"):
            is_later = row.start >= later.get(row.stream, at) if row.link not in starts else starts[row.link] >= at
        else:
            is_later = row.start >= at
            row.end += BLOCKED_NS if row.start < at < row.end else 0
        if is_later:
            row.start += BLOCKED_NS
            row.end += BLOCKED_NS
    return Expected({"blocked": 1}, ("blocked",), moves_ns=BLOCKED_NS)


def doubled(raw: Raw, windows: Sequence[Window]) -> Expected | None:
    """Everything in the window of the middle step takes twice as long, and what follows comes later.

    Of n steady steps the mean grows by an n-th of that step; it stays one of them, and widens the spread.
    """
    if len(windows) < 3:
        return None
    begin, end = windows[len(windows) // 2]

    def moved(time: int) -> int:
        return time + min(max(time - begin, 0), end - begin)

    for row in raw.rows:
        row.start, row.end = moved(row.start), moved(row.end)
    return Expected(doubled=len(windows) // 2)


CHANGES: tuple[Callable[[Raw, Sequence[Window]], Expected | None], ...] = (
    without_first_launches,
    stretched,
    without_kernels_of_a_graph,
    with_a_blocking_copy,
    doubled,
)
