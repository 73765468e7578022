"""What is known exactly of log and profile bounds the offset of the log's clock (alignment.md).

Of an event that the host stamped and that came after one stamped line of the log and before another: the offset (log
minus host) is at least that of the line before it, at most that of the line behind. A timer mark is such an event, for
it follows the line that ends its iteration; so are the kernels of a call whose buffers no other problem's calls have.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from mio2trace.align.clocks.fit import local_ns
from mio2trace.align.layers.caffe.marks import Marked
from mio2trace.align.operations.rates import LINE_NS, MOST_STRAY
from mio2trace.align.operations.rows.kinds import FIRST_ADDRESS, buffers_among
from mio2trace.kernels.names import kernel_name
from mio2trace.model.log import FrameworkLog, LocalTime
from mio2trace.model.profile import Profile
from mio2trace.ops.operation import Operation

MOST_CALLS = 2000
FEW_CALLS = 6
"""Of more calls, so many and all that share a buffer with these bound an offset as well."""


class OffsetBound(msgspec.Struct, frozen=True, gc=False):
    """The log's clock is ahead of the host's by ``low`` to ``high`` ns, if what ran did so between two stamped lines:
    from ``after_ns`` by the log's clock to ``before_ns``.
    """

    low: int
    high: int
    after_ns: int = 0
    before_ns: int = 0

    def moved(self, ns: int) -> OffsetBound:
        """The same of a host clock that is ahead by so much less."""
        return msgspec.structs.replace(self, low=self.low + ns, high=self.high + ns)


class StampedLines:
    """A log's stamped lines, by line; ``step_ns`` is how finely they and the host's times are stamped."""

    def __init__(self, log: FrameworkLog, near_ns: int, step_ns: int, others: Sequence[tuple[int, LocalTime]]) -> None:
        stamps = {record.line: record.stamp for records in (log.events, log.layers) for record in records}
        stamps |= dict(others)
        placed = sorted(
            (line, local_ns(stamp, near_ns)) for line, stamp in stamps.items() if stamp is not None and line
        )
        self._lines = [line for line, _ in placed]
        self._times = [time for _, time in placed]
        self._step_ns = step_ns

    def bound(self, after: int, before: int, start_ns: int, end_ns: int) -> OffsetBound | None:
        """Of what ran on the host from ``start_ns`` to ``end_ns``, after line ``after`` and before what follows line
        ``before``.
        """
        between = self.between(after, before)
        return None if between is None else OffsetBound(between[0] - start_ns, between[1] - end_ns, *between)

    def between(self, after: int, before: int) -> tuple[int, int] | None:
        """From when to when it was, by the log's clock, that something was after line ``after`` and before what follows
        line ``before``; None where no stamped line is on one of both sides."""
        first, last = bisect_right(self._lines, after) - 1, bisect_right(self._lines, before)
        if first < 0 or last == len(self._lines):
            return None
        return self._times[first] - self._step_ns, self._times[last] + self._step_ns


def by_marks(log: FrameworkLog, marked: Marked, lines: StampedLines) -> Iterator[OffsetBound]:
    """An iteration's last mark is made while its line is printed: after its stamp, before the next line's."""
    line_of = {event.number: event.line for event in log.events if event.kind == "iteration"}
    for number, mark in enumerate(marked.ends, 1):
        if mark.host_ns is not None and number in line_of:
            at = mark.host_ns
            bound = lines.bound(line_of[number], line_of[number], at + LINE_NS, at - LINE_NS)
            if bound is not None:
                yield bound


def by_buffers(profile: Profile, operations: Sequence[Operation], lines: StampedLines) -> Iterator[OffsetBound]:
    """Calls that name the same buffers are, in order, the rows of kernels that have only these: if they are as many.

    Where most are not, one side has iterations that the other has not, and as many is chance. Of many calls some are
    looked at, and all that share a buffer with these.
    """
    stride = 1 if len(operations) <= MOST_CALLS else len(operations) // FEW_CALLS
    chosen = {
        address
        for operation in operations[stride // 2 :: stride]
        for address in operation.pointers
        if address >= FIRST_ADDRESS
    }
    calls: dict[frozenset[int], list[Operation]] = {}
    as_digits = {b"%x" % address for address in chosen}
    met: dict[object, frozenset[int]] = {}
    for operation in operations:
        # Most calls need not be read for that: none of the chosen is among what the log prints.
        if not operation.arguments and as_digits.isdisjoint(operation.addresses.split(b",")):
            continue
        # A program that repeats itself names the same buffers again.
        key = id(operation.parameters), operation.addresses, operation.arguments
        addresses = met.get(key)
        if addresses is None:
            addresses = met[key] = _sharing(operation, chosen)
        if addresses:
            calls.setdefault(addresses, []).append(operation)
    owners = _owners(profile, calls, chosen)
    rows: dict[frozenset[int], list[tuple[int, int]]] = {}
    for owner, members in groupby(owners, key=lambda pair: pair[0]):
        if owner is not None:
            positions = [position for _, position in members]
            rows.setdefault(owner, []).append((positions[0], positions[-1]))
    matching = [(spans, calls[owner]) for owner, spans in rows.items() if len(spans) == len(calls[owner])]
    if 2 * len(matching) < len(rows):
        return
    for spans, its in matching:
        for (first, last), operation in zip(spans, its, strict=True):
            begun, ended = profile.activities[first].call, profile.activities[last].call
            if begun is None or ended is None:
                continue
            start, end = begun.start_ns, ended.end_ns
            if start is not None and end is not None:
                bound = lines.bound(operation.line, operation.end_line, start, end)
                if bound is not None:
                    yield bound


def come_late(bounds: Iterable[OffsetBound]) -> bool:
    """Whether lines or calls came into the log late, in blocks, as of a buffered stream: most calls are between lines
    with more calls that ran for twice the time between these, and so it is in several places.

    A clock that stepped leaves too little time in one place, one that drifts too little of it.
    """
    between: dict[tuple[int, int], list[OffsetBound]] = {}
    for bound in bounds:
        between.setdefault((bound.after_ns, bound.before_ns), []).append(bound)
    several = {gap: its for gap, its in between.items() if len(its) > 1}
    full = [len(its) for (after, before), its in several.items() if _spanned_ns(its) > 2 * (before - after)]
    return len(full) > 1 and 2 * sum(full) > sum(map(len, several.values()))


def _spanned_ns(bounds: Sequence[OffsetBound]) -> int:
    """From when the first call began until the last one had ended."""
    begin = min(bound.after_ns - bound.low for bound in bounds)
    return max(bound.before_ns - bound.high for bound in bounds) - begin


def _sharing(operation: Operation, chosen: Collection[int]) -> frozenset[int]:
    """The buffers of a call that has one of the ``chosen``, else none."""
    addresses = frozenset([address for address in operation.pointers if address >= FIRST_ADDRESS])
    return frozenset() if addresses.isdisjoint(chosen) else addresses


def _owners(
    profile: Profile, calls: Iterable[frozenset[int]], chosen: Iterable[int]
) -> list[tuple[frozenset[int] | None, int]]:
    """Which of ``calls`` each kernel with one of the ``chosen`` buffers is of, by the buffers that they name; its
    position. None where several may be, and once for what lies between.
    """
    naming: dict[int, list[frozenset[int]]] = {}
    for addresses in calls:
        for address in addresses:
            naming.setdefault(address, []).append(addresses)
    as_arguments = {address.to_bytes(8, "little").hex() for address in chosen if address < 1 << 64}
    of_buffers: dict[frozenset[int], frozenset[int] | None] = {}
    # What launches share is one object: who has one of the buffers is looked up once for each.
    launches = {id(activity.opencl): activity.opencl for activity in profile.activities}
    of_launch: dict[int, frozenset[int] | None] = {}
    for key, launch in launches.items():
        if not as_arguments.isdisjoint(launch.arguments):
            used = frozenset([address for address in buffers_among(launch.arguments) if address in naming])
            if used not in of_buffers:
                of_buffers[used] = _owner(used, naming)
            of_launch[key] = of_buffers[used]
    owners: list[tuple[frozenset[int] | None, int]] = [(None, 0)]
    for position, activity in enumerate(profile.activities):
        key = id(activity.opencl)
        if key not in of_launch:
            if owners[-1][0] is not None:
                owners.append((None, position))
            continue
        name = kernel_name(activity.name) if activity.kind == "kernel" else None
        if name is not None and name.miopen:
            owners.append((of_launch[key], position))
    return owners


def _owner(used: frozenset[int], naming: Mapping[int, Sequence[frozenset[int]]]) -> frozenset[int] | None:
    """The only one of those that name buffers that names all of these."""
    # Of weights every iteration's calls have the address, of what it makes anew its own.
    fewest = min((naming[address] for address in used), key=len, default=())
    able = [addresses for addresses in fewest if used <= addresses]
    return able[0] if len(able) == 1 else None


def agreed(bounds: Sequence[OffsetBound]) -> OffsetBound | None:
    """The offsets that all bounds allow, but for `MOST_STRAY` of them; None where there are none."""
    lows, highs = sorted(bound.low for bound in bounds), sorted(bound.high for bound in bounds)
    if lows[-1] <= highs[0]:
        return OffsetBound(lows[-1], highs[0])
    # The most bounds meet at the low end of one of them.
    met, low = max((bisect_right(lows, low) - bisect_left(highs, low), -low) for low in lows)
    if len(bounds) - met > MOST_STRAY * len(bounds):
        return None
    meeting = [bound for bound in bounds if bound.low <= -low <= bound.high]
    return OffsetBound(max(bound.low for bound in meeting), min(bound.high for bound in meeting))
