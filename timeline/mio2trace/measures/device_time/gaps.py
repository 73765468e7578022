"""The causes of a device's idle time: each gap between its commands, and what the host did meanwhile.

A gap ends with a command. The causes of gaps longer than a microsecond are:

* ``host``: the host had not launched that command yet. The host's work during most of the gap is named: the call, else
  the innermost op or range of the launching thread, else the function in which another thread waited for a result,
  else the innermost Python function;
* ``builds``: the same, and that call builds or loads programs;
* ``queued``: the launch had returned, and the command waited for another one. A gap is divided at that return;
* ``unknown``: no calls are recorded on a common clock.

Gaps up to a microsecond are ``short``. Gaps in which unrecorded work ran are not idle time
(`mio2trace.measures.device_time.launches`).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from mio2trace.align import NONE, Alignment
from mio2trace.align.layers.marked_steps import is_step
from mio2trace.measures.device_time import DeviceTime, has_common_clock
from mio2trace.measures.device_time.busy import Commands, Covered, Span
from mio2trace.model.profile import Activity, Call, Range
from mio2trace.ops.ranges import shown_text

Why = Literal["host", "builds", "queued", "unknown", "short"]
WHY: tuple[Why, ...] = ("host", "builds", "queued", "unknown", "short")
SHORT_NS = 1_000
MOST_NAMES = 10
WAITS = re.compile(r"block_until_ready|device_get", re.ASCII)
"""Functions of JAX that wait for results. XLA's launching threads are idle meanwhile."""
NAMED = 5_000
"""The most gaps (the longest) for which the host's call is searched; the others are too short to matter one by one."""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """The gaps with one cause. ``during``: the host's work (a call, an op, a range, a Python function) during most of a
    gap, with the time of these gaps (for a function its part of them), longest first, as far as known. ``line``: the
    source line of the launch that ended most gaps of the first work; empty if it is not recorded. ``longest_ns``: the
    longest gap; ``longest_during``: the host's work in it."""

    why: Why
    count: int
    ns: int
    during: tuple[tuple[str, int], ...] = ()
    line: str = ""
    longest_ns: int = 0
    longest_during: str = ""


def causes(alignment: Alignment, device: DeviceTime, windows: Sequence[Span]) -> tuple[Cause, ...]:
    """Return the causes of the idle time in some windows of a device, longest first."""
    return tuple(_Gaps(alignment, device).causes(windows))


class _OnHost(NamedTuple):
    """A gap that ended when the host launched ``position``; `NONE`: when a step or other work ended. Times are
    in ns."""

    length: int
    start: int
    end: int
    position: int


class _Gaps:
    def __init__(self, alignment: Alignment, device: DeviceTime) -> None:
        self._profile = alignment.profile
        self._device = device
        self._common = has_common_clock(alignment)

    def causes(self, windows: Sequence[Span]) -> Iterator[Cause]:
        count: Counter[Why] = Counter()
        took: Counter[Why] = Counter()
        during: dict[Why, Counter[str]] = defaultdict(Counter)
        lines: dict[tuple[Why, str], Counter[str]] = defaultdict(Counter)
        longest: dict[Why, tuple[int, str]] = {}
        on_host: list[_OnHost] = []
        for why, lengths in self._sort_out(windows, on_host).items():
            count[why], took[why], longest[why] = len(lengths), sum(lengths), (max(lengths), "")
        on_host.sort()
        named = on_host[-NAMED:]
        if len(on_host) > NAMED:
            count["host"] = len(on_host) - NAMED
            took["host"] = sum(one.length for one in on_host[:-NAMED])
        self._longer_than = named[0].length // 2 if named else 0
        for length, start, end, position in named:
            next_ = None if position == NONE else self._profile.activities[position]
            why, name = self._on_host(start, end, next_)
            if not name and self._functions:
                name, of_gap = self._in_function(start, end, next_)
                during[why][name] += of_gap
            elif name:
                during[why][name] += length
                if next_ is not None:
                    lines[why, name][self._profile.launched_by(next_)] += length
            count[why] += 1
            took[why] += length
            longest[why] = length, name  # they are in order of length
        for why in sorted(took, key=lambda why: (-took[why], why)):
            del during[why][""]
            most = sorted(during[why].items(), key=lambda item: (-item[1], item[0]))
            of_first = lines[why, most[0][0]] if most else Counter[str]()
            line = min(of_first, key=lambda line: (-of_first[line], line), default="")
            length, name = longest[why]
            yield Cause(
                why=why, count=count[why], ns=took[why], during=tuple(most[:MOST_NAMES]), line=line,
                longest_ns=length, longest_during=name,
            )  # fmt: skip

    def _sort_out(self, windows: Sequence[Span], on_host: list[_OnHost]) -> dict[Why, list[int]]:
        """Collect the gaps in which the device waited for the host in ``on_host``; return the lengths of the others."""
        commands = Commands(self._profile)
        device, called_at, returned_at = self._device.device, commands.called, commands.returned
        first_at: dict[int | None, int] = {}
        for position, (of, start) in enumerate(zip(commands.devices, commands.starts, strict=True)):
            if of == device:
                first_at.setdefault(start, position)
        kinds: dict[Why, list[int]] = {why: [] for why in WHY}
        short, queued, unknown = (kinds[why].append for why in ("short", "queued", "unknown"))
        for window in windows:
            for start, end in self._device.occupation.held.gaps(*window):
                length = end - start
                if length <= SHORT_NS:
                    short(length)
                    continue
                position = first_at.get(end, NONE)  # `NONE`: the end of the step, or other work, ends the gap
                if not self._common:
                    unknown(length)
                elif position == NONE:
                    on_host.append(_OnHost(length, start, end, NONE))
                elif (called := called_at[position]) is None or (returned := returned_at[position]) is None:
                    unknown(length)
                elif returned <= start or (called <= start and self._profile.activities[position].is_replayed):
                    queued(length)
                elif returned >= end:
                    on_host.append(_OnHost(length, start, end, position))
                else:
                    on_host.append(_OnHost(returned - start, start, returned, position))
                    queued(end - returned)
        return {why: lengths for why, lengths in kinds.items() if lengths}

    # -- what the host did -------------------------------------------------------------------------------------------

    def _on_host(self, start: int, end: int, next_: Activity | None) -> tuple[Why, str]:
        threads = [next_.thread] if next_ is not None else sorted(self._calls)
        for thread in threads:
            call = self._call(thread, start, end)
            if call is not None:
                builds = PREPARING.get(call.name, "") in ("building kernels", "loading kernels")
                return ("builds" if builds else "host"), call.name
        for thread in threads:
            name = self._range(thread, start, end)
            if name:
                return "host", name
        for thread in sorted(self._ranges.keys() - {*threads}):
            name = self._range(thread, start, end, WAITS)
            if name:
                return "host", name
        return "host", ""

    def _call(self, thread: int, start: int, end: int) -> Call | None:
        """Return the call during most of a gap."""
        starts, calls = self._calls.get(thread, ([], []))
        at = max(0, bisect_right(starts, start) - 1)
        best, most = None, (end - start) // 2
        for call in calls[at : bisect_left(starts, end)][:64]:
            overlap = min(call.end_ns or 0, end) - max(call.start_ns or 0, start)
            if overlap > most:
                best, most = call, overlap
        return best

    @cached_property
    def _calls(self) -> dict[int, tuple[list[int], list[Call]]]:
        """Return the calls by thread, in order of time, if they are long enough for the named gaps."""
        by_thread: dict[int, list[Call]] = defaultdict(list)
        least, last = self._longer_than, None
        for call in (*(one.call for one in self._profile.activities), *self._profile.other_calls):
            if call is None or call is last or call.start_ns is None or call.end_ns is None:
                continue
            last = call
            if call.end_ns - call.start_ns > least:
                by_thread[call.thread].append(call)
        for calls in by_thread.values():
            calls.sort(key=_begun)
        return {thread: ([call.start_ns or 0 for call in calls], calls) for thread, calls in by_thread.items()}

    def _range(self, thread: int, start: int, end: int, form: re.Pattern[str] | None = None) -> str:
        """Return the innermost op or range during most of a gap. With ``form``: only spans with this text in their
        name."""
        for made in _during(self._ranges.get(thread), start, end):
            name = shown_text(made)
            if form is None:
                return name
            if (found := form.search(name)) is not None:
                return found[0]
        return ""

    def _in_function(self, start: int, end: int, next_: Activity | None) -> tuple[str, int]:
        """Return the innermost Python function during most of a gap, and its time."""
        for thread in [next_.thread] if next_ is not None else sorted(self._functions):
            for made in _during(self._functions.get(thread), start, end):
                return made.text, min(made.end_ns, end) - max(made.start_ns, start)
        return "", 0

    @cached_property
    def _functions(self) -> dict[int, _Nested]:
        return _nested(self._profile.functions)

    @cached_property
    def _ranges(self) -> dict[int, _Nested]:
        return _nested([made for made in self._profile.ranges if made.kind != "mark" and not is_step(made)])


class _Nested(NamedTuple):
    """Ranges of a thread in order of time, and the place of the range around each, -1: none."""

    starts: list[int]
    ranges: list[Range]
    parents: list[int]


def _nested(made: Sequence[Range]) -> dict[int, _Nested]:
    by_thread: dict[int, list[Range]] = defaultdict(list)
    for one in made:
        by_thread[one.thread].append(one)
    found = {}
    for thread, ranges in by_thread.items():
        ranges.sort(key=lambda one: (one.start_ns, -one.end_ns))
        parents: list[int] = []
        is_open: list[int] = []
        for at, one in enumerate(ranges):
            while is_open and ranges[is_open[-1]].end_ns <= one.start_ns:
                is_open.pop()
            parents.append(is_open[-1] if is_open else -1)
            is_open.append(at)
        found[thread] = _Nested([one.start_ns for one in ranges], ranges, parents)
    return found


def _during(nested: _Nested | None, start: int, end: int) -> Iterator[Range]:
    """The ranges around the middle of a gap that last for most of it, innermost first."""
    if nested is None:
        return
    middle = (start + end) // 2
    at = bisect_right(nested.starts, middle) - 1
    while at >= 0:
        one = nested.ranges[at]
        if one.end_ns > middle and 2 * (min(one.end_ns, end) - max(one.start_ns, start)) > end - start:
            yield one
        at = nested.parents[at]


def _begun(call: Call) -> int:
    return call.start_ns or 0


PREPARING: Mapping[str, str] = MappingProxyType({
    "clBuildProgram": "building kernels",
    "clCompileProgram": "building kernels",
    "clLinkProgram": "building kernels",
    "hiprtcCompileProgram": "building kernels",
    "hiprtcLinkComplete": "building kernels",
    "hipModuleLoad": "loading kernels",
    "hipModuleLoadData": "loading kernels",
    "hipModuleLoadDataEx": "loading kernels",
    "hipLibraryLoadData": "loading kernels",
    "clCreateBuffer": "allocating",
    "hipMalloc": "allocating",
    "hipMallocAsync": "allocating",
    "hipMallocManaged": "allocating",
    "hipExtMallocWithFlags": "allocating",
    "hipHostMalloc": "allocating",
    "hipHostAlloc": "allocating",
    "hipFree": "allocating",
})  # fmt: skip
"""One-time work (building, loading, allocating), by the name of the call."""


def prepared(alignment: Alignment, positions: Sequence[int]) -> dict[str, int]:
    """Return the ns that the calls of `PREPARING` took from the first to the last launch of these activities, most
    first.

    Nested calls, and calls of several threads at the same time, count once.
    """
    launches = [
        (start, end)
        for position in positions
        if (start := alignment.profile.activities[position].host_start_ns) is not None
        and (end := alignment.profile.activities[position].host_end_ns) is not None
    ]
    if not launches:
        return {}
    begin, until = min(start for start, _ in launches), max(end for _, end in launches)
    spans: dict[str, list[Span]] = {}
    for call in alignment.profile.other_calls:
        what = PREPARING.get(call.name)
        if what and call.start_ns is not None and call.end_ns is not None and begin <= call.start_ns < until:
            spans.setdefault(what, []).append((call.start_ns, min(call.end_ns, until)))
    took = {what: Covered.of(of_one).within(begin, until) for what, of_one in spans.items()}
    return dict(sorted(took.items(), key=lambda item: (-item[1], item[0])))
