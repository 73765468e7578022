"""Steps, times and shares of a recording, by the definitions of the numbers alone."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from tests.oracle.events import Call, Command, Mark, Recording

Span = tuple[int, int]

# ---- which ranges are steps

ENGINE = re.compile(
    r"execute_model\b|execute_(\d+_)?context_\d+\(|execute_new_\d+_cached_|execute_diffusion_|step\[\w+"
    r"|(prefill|decode|extend|mixed)\[\w+|\[Executor\] _forward_step|forward_(eager|cudagraph)$",
    re.IGNORECASE,
)
NUMBERED = re.compile(r"(ProfilerStep|iteration|iter|step|batch)[ _#:=-]{0,3}\d+$", re.IGNORECASE)
NO_STEP = re.compile(r"s_api = |aten::|[\w:]+::\w+$|## Call |nn\.Module")
ENOUGH = 0.9


def outermost(marks: Iterable[Mark]) -> list[Mark]:
    """Those that lie in no other of them on their thread, in order of time."""
    kept: list[Mark] = []
    for mark in sorted(marks, key=lambda mark: (mark.thread, mark.start, -mark.end)):
        if not kept or kept[-1].thread != mark.thread or mark.start >= kept[-1].end:
            kept.append(mark)
    return sorted(kept, key=lambda mark: (mark.start, mark.end))


def marked_steps(marks: Sequence[Mark], launches: Sequence[int]) -> list[Mark]:
    """The steps of one process that somebody marked; none where nobody did. ``launches``: when, in any order."""
    marks = [mark for mark in marks if mark.end > mark.start]  # a point in time is no range
    for known in (ENGINE, NUMBERED):
        found = outermost(mark for mark in marks if known.match(mark.name))
        threads = Counter(mark.thread for mark in found)
        if found:
            return [mark for mark in found if mark.thread == threads.most_common(1)[0][0]]
    groups: dict[tuple[int, str], list[Mark]] = defaultdict(list)
    for mark in marks:
        if not NO_STEP.match(mark.name):
            groups[mark.thread, re.sub(r"\d+", "#", mark.name)].append(mark)
    best: list[Mark] = []
    for group in groups.values():
        group.sort(key=lambda mark: mark.start)
        apart = all(one.end <= other.start for one, other in itertools.pairwise(group))
        inside = sum(_within(group, launch) is not None for launch in launches)
        if len(group) > max(1, len(best)) and apart and launches and inside >= ENOUGH * len(launches):
            best = group
    return best


def _within(marks: Sequence[Mark], time: int) -> int | None:
    """Which of them, in order of time, holds an instant."""
    at = bisect_right(marks, time, key=lambda mark: mark.start) - 1
    return at if at >= 0 and time < marks[at].end else None


# ---- which command is in which step


def before(commands: Sequence[Command]) -> set[int]:
    """Numbers of the commands that were launched before the recording. ``commands``: of a device, by start."""
    first: dict[int, int] = {}
    for command in commands:
        if command.call is not None:
            first.setdefault(command.stream, command.start)
    return {
        at
        for at, command in enumerate(commands)
        if command.call is None and command.start < first.get(command.stream, 0)
    }


BETWEEN = -1


def membership(commands: Sequence[Command], steps: Sequence[Mark], early: set[int]) -> list[int | None]:
    """Step of each command; ``BETWEEN`` for what was launched in none, None where it is not known or was early."""
    own: list[int | None] = []
    for number, command in enumerate(commands):
        begun = None if number in early else command.begun
        at = None if begun is None else _within(steps, begun)
        own.append(None if begun is None else BETWEEN if at is None else at)
    streams: dict[int, list[int]] = defaultdict(list)
    for at, command in enumerate(commands):
        streams[command.stream].append(at)
    told = list(own)
    for on_stream in streams.values():
        launched = [place for place, at in enumerate(on_stream) if own[at] is not None]
        for place, at in enumerate(on_stream):
            if own[at] is None and at not in early:
                after = bisect_left(launched, place)
                around = {own[on_stream[launched[near]]] for near in (after - 1, after) if 0 <= near < len(launched)}
                if 0 < after < len(launched) and len(around) == 1 and BETWEEN not in around:
                    told[at] = around.pop()
    return told


# ---- times


def union(spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def without(spans: Sequence[Span], taken: Sequence[Span]) -> list[Span]:
    """What is left of ``spans``; both are unions."""
    left: list[Span] = []
    for start, end in spans:
        for gone_start, gone_end in taken:
            if gone_end > start and gone_start < end:
                if gone_start > start:
                    left.append((start, gone_start))
                start = gone_end
        if start < end:
            left.append((start, end))
    return left


def within(spans: Iterable[Span], window: Span) -> list[Span]:
    return union((max(start, window[0]), min(end, window[1])) for start, end in spans)


def length(spans: Iterable[Span]) -> int:
    return sum(end - start for start, end in spans)


WAITS = re.compile(r"(hip|cuda)(\w*Synchronize\w*|Memcpy(WithStream|2D|3D|DtoH|HtoD|DtoD|ToSymbol|FromSymbol)?)$")
LAUNCHES = re.compile(r"(hip|cuda)\w*Launch\w*")
MICROSECOND = 1_000
MILLISECOND = 1_000_000


def lost_launches(commands: Sequence[Command], calls: Sequence[Call]) -> list[Call]:
    """Of a process: launches of which the device has no record, but for those into a graph: these make a node."""
    recorded = {command.call for command in commands}
    opened = sorted(call.start for call in calls if "BeginCapture" in call.name)
    closed = sorted(call.start for call in calls if "EndCapture" in call.name)
    return [
        call
        for call in calls
        if LAUNCHES.match(call.name)
        and call not in recorded
        and bisect_right(opened, call.start) <= bisect_right(closed, call.start)
    ]


def not_recorded(gap: Span, commands: Sequence[Command], calls: Sequence[Call], lost: Sequence[Call]) -> list[Span]:
    """The part of a gap in which the device did what the profile does not hold. All of one process.

    The host waits for the device, and something is pending: a launch that has no record, or a copy.
    """
    launchers = {command.call.thread for command in commands if command.call is not None}
    launchers |= {call.thread for call in lost}
    waits = [call for call in calls if WAITS.match(call.name)]
    late = union(
        (command.call.start, command.start)
        for command in commands
        if command.kind == "copy" and command.sized and command.call
        if command.start - command.call.start >= MILLISECOND
    )
    found: list[Span] = []
    for call in waits:
        span = max(gap[0], call.start), min(gap[1], call.end)
        if call.thread not in launchers or span[1] - span[0] < MILLISECOND:
            continue
        waited = max((other.end for other in waits if other.end <= span[0]), default=0)
        if any(waited <= launch.start < span[1] for launch in lost) or 2 * length(within(late, span)) > length([span]):
            found.append(span)
    return union(found)


def graph_gaps(commands: Sequence[Command]) -> list[Span]:
    """When a device ran nodes of graphs that are not recorded. ``commands``: its own, by start.

    Recorded nodes of one launch follow each other at once. A gap between two in which nothing runs, of over half a
    millisecond and over 100 times the lower quartile of such gaps, holds others. If there is one in a recording, a
    graph that was launched and whose first recorded node comes as late lacks those before it.
    """
    nodes: dict[Call, list[int]] = defaultdict(list)
    for command in commands:
        if command.call is not None and "GraphLaunch" in command.call.name:
            nodes[command.call].append(command.start)
    busy = union((command.start, command.end) for command in commands)
    gaps = {other[0]: (one[1], other[0]) for one, other in itertools.pairwise(busy)}
    inside = {gaps[start] for starts in nodes.values() for start in starts if start in gaps and start > min(starts)}
    lengths = [0] * (sum(len(starts) - 1 for starts in nodes.values()) - len(inside))
    lengths += sorted(end - start for start, end in inside)
    usual = lengths[len(lengths) // 4] if lengths else 0

    def is_long(span: Span) -> bool:
        return span[1] - span[0] > max(MILLISECOND // 2, 100 * usual)

    if not any(map(is_long, inside)):
        return []
    late = [(max(gaps[min(starts)][0], call.end), min(starts)) for call, starts in nodes.items() if min(starts) in gaps]
    outside = [span for span in late if span[1] not in {end for _, end in inside}]
    return [span for span in (*inside, *outside) if is_long(span)]


# ---- the answer


@dataclass(frozen=True)
class Step:
    """Of one device. ``begin`` to ``end`` is its window; None where its end is not known."""

    name: str
    commands: int
    kernels: int
    kernel_ns: int
    begin: int
    end: int | None
    parts: dict[str, int]

    @property
    def length(self) -> int | None:
        return None if self.end is None else self.end - self.begin


@dataclass
class Device:
    """What is true of a (process, device)."""

    steps: list[Step]
    before: int
    between: int
    unknown: int
    marked: bool


@dataclass
class Answer:
    devices: dict[tuple[int, int], Device] = field(default_factory=dict)
    copies: Counter[int] = field(default_factory=Counter)
    """Copies and fills of each process."""
    missing: dict[int, dict[str, int]] = field(default_factory=dict)
    """What the recording lacks of each process, by class; without what it does not lack."""


PARTS = ("compute", "communication", "copies", "not recorded", "idle")


def parts(
    window: Span, commands: Sequence[Command], calls: Sequence[Call], lost: Sequence[Call], graphs: Sequence[Span] = ()
) -> dict[str, int]:
    taken: list[Span] = []
    told: dict[str, int] = {}
    for family in PARTS[:3]:
        busy = within(((c.start, c.end) for c in commands if c.family == family), window)
        told[family] = length(without(busy, taken))
        taken = union([*taken, *busy])
    gaps = without([window], taken) if window[0] < window[1] else []
    blocked = [
        span for gap in gaps if length([gap]) >= MILLISECOND for span in not_recorded(gap, commands, calls, lost)
    ]
    blocked = union([*blocked, *within(graphs, window)])
    told["not recorded"] = length(blocked)
    told["idle"] = length(gaps) - length(blocked)
    return told


def main_stream(commands: Sequence[Command]) -> int:
    busy: Counter[int] = Counter()
    for command in commands:
        busy[command.stream] += command.end - command.start if command.family == "compute" else 0
    return min(busy, key=lambda stream: (-busy[stream], stream))


def lag(commands: Sequence[Command]) -> int:
    """When the device ended work that was launched before the recording, and is in it no more; 0: there is none.

    Its main stream's first command had been launched, and for a long time did not begin, though little else ran.
    """
    main = main_stream(commands)
    first = next(command for command in commands if command.stream == main)
    if first.call is None or first.start - first.call.end < MILLISECOND:
        return 0
    waited = first.call.end, first.start
    ran = length(within(union((command.start, command.end) for command in commands), waited))
    return first.start if 2 * ran < length([waited]) else 0


def windows(
    commands: Sequence[Command], steps: Sequence[Mark], own: Sequence[int | None], early: set[int]
) -> list[Span]:
    """Where each step begins and ends on a device."""
    main = main_stream(commands)
    ends = {-1: lag(commands)}
    for at, command in enumerate(commands):
        launched_in = -1 if at in early else own[at]
        bounds = command.stream == main or (len(steps) == 1 and launched_in == 0)
        if bounds and launched_in is not None and (launched_in != BETWEEN or at in early):
            ends[launched_in] = max(ends.get(launched_in, 0), command.end)
    begins: list[int] = []
    earlier = ends[-1]
    for at, step in enumerate(steps):
        begins.append(max(step.start, earlier, begins[-1] if begins else 0))
        earlier = max(earlier, ends.get(at, 0))
    closed = [max(step.end, ends.get(at, 0), begins[at]) for at, step in enumerate(steps)]
    return [
        (begin, min(end, begins[at + 1]) if at + 1 < len(begins) else end)
        for at, (begin, end) in enumerate(zip(begins, closed, strict=True))
    ]


def device(commands: Sequence[Command], steps: Sequence[Mark], calls: Sequence[Call], *, is_part: bool) -> Device:
    """``steps``: those that are marked in the process; ``calls`` those of the process. ``is_part``: rows were filtered
    out, so what comes again shows no steps."""
    early = before(commands)
    marked = bool(steps)
    sequence: dict[int, int] = {}
    if not marked and not is_part:
        steps, sequence = repeated(commands, early)
    own = [sequence.get(at, step) for at, step in enumerate(membership(commands, steps, early))]
    lost = lost_launches(commands, calls)
    graphs = graph_gaps(commands)
    found: list[Step] = []
    for at, window in enumerate(windows(commands, steps, own, early)):
        launched = [command for command, step in zip(commands, own, strict=True) if step == at]
        kernels = [command for command in launched if command.kind == "kernel"]
        last = not marked and at + 1 == len(steps)
        found.append(
            Step(
                steps[at].name,
                len(launched),
                len(kernels),
                sum(kernel.end - kernel.start for kernel in kernels),
                window[0],
                None if last else window[1],
                {} if last else parts(window, commands, calls, lost, graphs),
            )
        )
    unknown = sum(of is None and at not in early for at, of in enumerate(own))
    return Device(found, sum(commands[at].kind == "kernel" for at in early), own.count(BETWEEN), unknown, marked)


def answer(recording: Recording) -> Answer:
    told = Answer()
    told.copies.update(command.process for command in recording.commands if command.kind != "kernel")
    devices: dict[tuple[int, int], list[Command]] = defaultdict(list)
    for command in sorted(recording.commands, key=lambda command: (command.start, command.end)):
        devices[command.process, command.device].append(command)
    for (process, number), commands in sorted(devices.items()):
        launches = [
            command.call.start
            for (of, _), some in devices.items()
            for command in some
            if of == process and command.call is not None
        ]
        steps = marked_steps([mark for mark in recording.marks if mark.process == process], launches)
        calls = [call for call in recording.calls if call.process == process]
        taken = recording.lost or filtered_out(recording.numbers.get(process, set()))
        told.devices[process, number] = device(commands, steps, calls, is_part=taken > 0)
    for process in {process for process, _ in devices}:
        own = [commands for (of, _), commands in devices.items() if of == process]
        told.missing[process] = missing(own, [call for call in recording.calls if call.process == process])
        if taken := recording.lost or filtered_out(recording.numbers.get(process, set())):
            told.missing[process]["sampled"] = taken
    return told


def filtered_out(numbers: Collection[int]) -> int:
    """How many of the numbers between the first and the last are not there, in a file of which few follow each other.

    Of ten at least; where half are followed by the next, the profiler itself left the others out.
    """
    alone = sum(number + 1 not in numbers for number in numbers)
    if len(numbers) < 10 or 2 * (len(numbers) - alone) >= len(numbers):
        return 0
    return len(range(min(numbers), max(numbers) + 1)) - len(numbers)


def missing(devices: Sequence[Sequence[Command]], calls: Sequence[Call]) -> dict[str, int]:
    """Of a process, by class; ``devices``: the commands of each, by start."""
    everything = [command for commands in devices for command in commands]
    lost = lost_launches(everything, calls)
    graphs = sum("GraphLaunch" in call.name for call in lost)
    found = {"graph-without-kernels": graphs, "launch-without-kernel": len(lost) - graphs}
    found |= dict.fromkeys(
        (
            "before-recording",
            "kernel-without-launch",
            "start-before-launch",
            "late-end",
            "overlap-on-stream",
            "blocked",
            "graph-gap",
        ),
        0,
    )
    for commands in devices:
        early = before(commands)
        found["before-recording"] += sum(commands[at].kind == "kernel" for at in early)
        if any(command.call is not None for command in everything):
            found["kernel-without-launch"] += sum(
                command.kind == "kernel" and command.call is None and at not in early
                for at, command in enumerate(commands)
            )
        busy = union((command.start, command.end) for command in commands)
        gaps = [(one[1], other[0]) for one, other in itertools.pairwise(busy) if other[0] - one[1] >= MILLISECOND]
        found["graph-gap"] += len(graph_gaps(commands))
        begun = lag(commands)
        found["blocked"] += bool(begun)
        found["blocked"] += sum(bool(not_recorded(gap, commands, calls, lost)) for gap in gaps if gap[1] > begun)
        until: dict[int, int] = {}
        ends = true_ends(commands)
        found["late-end"] += len(ends)
        for at, command in enumerate(commands):
            ordered = command.call is None or not re.search("GraphLaunch|LaunchKernelEx", command.call.name)
            if command.kind == "kernel" and command.call is not None:
                found["start-before-launch"] += command.call.start - command.start > MICROSECOND
            if command.kind == "kernel" and not command.on_queue and ordered:
                last = until.get(command.stream, 0)
                found["overlap-on-stream"] += last - command.start > MICROSECOND
                until[command.stream] = max(last, ends.get(at, command.end))
    return {of: count for of, count in found.items() if count}


def true_ends(commands: Sequence[Command]) -> dict[int, int]:
    """Of kernels that end after a later one of their stream: the place, and the latest end that is possible."""
    streams: dict[int, list[int]] = {}
    for at, command in enumerate(commands):
        alone = command.call is None or not re.search("GraphLaunch|LaunchKernelEx", command.call.name)
        if command.kind == "kernel" and not command.on_queue and alone:
            streams.setdefault(command.stream, []).append(at)
    found: dict[int, int] = {}
    for own in streams.values():
        least = math.inf
        for at, later in reversed([*itertools.pairwise(own)]):
            least = min(least, commands[later].end)
            if commands[at].end - MICROSECOND > least:
                found[at] = commands[later].start
    return found


# ---- steps that nobody marked


def repeated(commands: Sequence[Command], early: Collection[int] = ()) -> tuple[list[Mark], dict[int, int]]:
    """Steps of a device by the kernels that come again, and the step of each number of a command that is known.

    A step lasts until the next: from its first launch, or from its first kernel where that has none. Kernels of one
    graph are launched at once: no step begins within. Where nothing comes again as streams mix, the main stream alone
    may, if it has most kernels, else the order of launches: what others ran is in the step that launched it.
    """
    order = [at for at, command in enumerate(commands) if command.kind == "kernel" and at not in early]
    called = all(commands[at].call is not None for at in order)
    if called:
        order.sort(key=lambda at: (begun(commands[at]), commands[at].start))
    main = main_stream(commands)
    on_main = [at for at in order if commands[at].stream == main]
    numbers = launched(commands) if all(command.call is None for command in commands) else []
    begin, period, times = _repeated_in(order, commands)
    beside = not times
    if beside and len(on_main) < len(order) < 2 * len(on_main):
        begin, period, times = _repeated_in(on_main, commands)
        order = on_main
    elif beside and numbers:
        order = [at for at in numbers if at in order]
        begin, period, times = _repeated_in(order, commands)
    inside = order[begin : begin + period * times]
    own = {at: place // period for place, at in enumerate(inside)}
    if beside and times and numbers:
        after = order[begin + period * times :][:1]
        end = numbers.index(after[0]) if after else len(numbers)
        step = -1
        for at in numbers[numbers.index(inside[0]) : end]:
            step = own.setdefault(at, step)
    starts = [begun(commands[inside[period * step]]) for step in range(times)]
    if beside and numbers:
        starts = [min(commands[at].start for at, of in own.items() if of == step) for step in range(times)]
    stops = [*starts[1:], max(commands[at].end for at in inside)] if starts else []
    return [Mark(0, 0, f"#{at}", *span) for at, span in enumerate(zip(starts, stops, strict=True))], own


def _repeated_in(order: Sequence[int], commands: Sequence[Command]) -> tuple[int, int, int]:
    calls = [commands[at].call for at in order]
    fresh = [call is None or call != before for call, before in zip(calls, [None, *calls], strict=False)]
    return longest_repetition([commands[at].name for at in order], fresh)


def launched(commands: Sequence[Command]) -> list[int]:
    """Numbers of commands in the order of their launches; none where these contradict the order on a stream."""
    order = sorted(
        (at for at, command in enumerate(commands) if command.launch is not None),
        key=lambda at: (commands[at].launch, commands[at].start),
    )
    streams: dict[int, list[int]] = defaultdict(list)
    for at in order:
        streams[commands[at].stream].append(commands[at].start)
    return order if all(starts == sorted(starts) for starts in streams.values()) else []


def begun(command: Command) -> int:
    return command.start if command.call is None else command.call.start


def longest_repetition(names: Sequence[str], fresh: Sequence[bool]) -> tuple[int, int, int]:
    """(begin, period, times) of the repetition that holds most, of equal ones the shortest; ``fresh``: may begin one.

    It holds more than half of all, and nearly all of what comes from its begin on: before it there may be a set-up.
    """
    best, most = (0, 0, 0), len(names) // 2
    for period in range(1, len(names) // 2 + 1):
        # A stretch that holds more than is known has so many places that equal the one a period later, in a row.
        needed = max(1, most + 1 - period)
        if not any(names[at] == names[at + period] for at in range(needed - 1, len(names) - period, needed)):
            continue
        run = 0
        for at in range(len(names) - period + 1):
            if at < len(names) - period and names[at] == names[at + period]:
                run += 1
                continue
            first, after = at - run, at + period
            run = 0
            for begin in range(first, min(first + period, after - 2 * period + 1)):
                times = (after - begin) // period
                held = times * period
                if held <= most or held < ENOUGH * (len(names) - first):
                    continue
                if all(fresh[begin + step * period] for step in range(times)):
                    best, most = (begin, period, times), held
                    break
    return best
