"""Decide whether a log and a profile are of one run, and which run of a log it is: by buffers, else by clocks."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Literal

import msgspec
import numpy as np

from mio2trace.align.attribution import Attribution
from mio2trace.align.clocks.axis import MIDDLE_OF_2000_NS, LogClock, host_span, local_ns, log_clock
from mio2trace.align.layers.repetitions import matches
from mio2trace.align.links import NONE, Links
from mio2trace.align.rates import EXPLAINED, LANDMARK_EARLY_NS, LAST, UNEVEN
from mio2trace.evidence import BUFFERS, CORRELATION, LAUNCH_LINE, NAME_AND_SIZES, ORDER, POSITION, RANGE
from mio2trace.kernels.facts import FIRST_ADDRESS, buffers_among
from mio2trace.kernels.names import kernel_name
from mio2trace.model.log import PROCESS, FrameworkLog, LayerTime, LocalTime, LogEvent, NetLayer, merged, oriented
from mio2trace.model.profile import Profile
from mio2trace.model.tables import distinct
from mio2trace.notes import InputError, Notes
from mio2trace.ops.operation import Operation

OTHER_PROCESS = (
    "the log and the profile are not of one run: none of the log's buffers is among those of MIOpen's "
    "kernels (--align order goes on by order alone)"
)


UNLIKELY = 0.49
"""Confidence of a link if the log is more likely another run's."""
_APART = "the log was not written while the profile went on"
OTHER_SIZES = "its tensors are of other sizes than the kernels work on"
OTHER_TIMES = "its stamps do not keep time with the profile"
OTHER_TIMES_AND_THREADS = f"{OTHER_TIMES}, and its lines are of threads that the profile does not have"
RESERVED = 300
"""Linux gives smaller ids to no user process once all were given; collectors number ranks from 0."""


ENOUGH_BUFFERS, MOST_BUFFERS = 6, 10_000
"""This number of common addresses is no coincidence, nor is this number without a common one."""


def same_process(profile: Profile, operations: Sequence[Operation]) -> bool | None:
    """Return whether the log's buffers are the profile's; None if too few are named."""
    if not operations:
        return None
    in_profile = buffers_of(profile)
    named: set[int] = set()
    common = 0
    for operation in operations:
        addresses = {address for address in operation.pointers if address >= FIRST_ADDRESS} - named
        named |= addresses
        common += len(addresses & in_profile)
        if common >= ENOUGH_BUFFERS:
            return True
    return False if min(len(named), len(in_profile)) >= ENOUGH_BUFFERS and not common else None


def buffers_of(profile: Profile) -> set[int]:
    """Return buffers among the arguments of the library's kernels, up to about `MOST_BUFFERS`."""
    in_profile: set[int] = set()
    commands = profile.commands
    of_library = commands.name.where(lambda name: (meaning := kernel_name(name)) is not None and meaning.miopen)
    launches = commands.opencl.codes[commands.is_kernel & of_library]
    for code in launches[distinct(launches)[0]].tolist():
        in_profile.update(buffers_among(commands.opencl.values[code].arguments))
        if len(in_profile) >= MOST_BUFFERS:
            break
    return in_profile


def of_its_threads(profile: Profile, operations: Sequence[Operation]) -> Sequence[Operation]:
    """Remove operations of threads that another process has, unless no id of the log is the profile's."""
    tids = {thread.tid for thread in profile.threads if thread.tid is not None}
    if tids.isdisjoint(operation.thread for operation in operations):
        return operations
    return [operation for operation in operations if operation.thread is None or operation.thread in tids]


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a log and a profile are of one run, and by which evidence. ``away_ns``: the distance of the clocks'
    landmarks. ``why``: a line for the user if they are of two runs."""

    by: Literal["apart", "nothing", "clocks", "buffers", "threads"]
    away_ns: int = 0
    why: str = ""


def relation(
    profile: Profile, logs: Sequence[FrameworkLog], operations: Sequence[Operation], without: frozenset[str]
) -> Relation:
    """Return what relates log and profile, without joining them."""
    notes = Notes()  # joining them will say all of it
    chosen = of_profile(profile, logs, operations, notes, without)
    of_run, own = chosen.runs, chosen.operations
    if BUFFERS not in without:
        same = same_process(profile, own)
        if same:
            return Relation(by="buffers")
        if same is False and not without_buffers(own):
            return Relation(by="apart", why=OTHER_PROCESS)
    from mio2trace.align.clocks.relate import relate_clocks

    try:
        clock = relate_clocks(profile, of_run, None, notes)
    except InputError as error:
        return Relation(by="apart", why=str(error))
    landmarks = (event.stamp for log in of_run for event in log.events if event.kind == "iteration")
    has_landmark = any(stamp is not None for stamp in landmarks) or any(log.times.has_stamp.any() for log in of_run)
    if clock is None or not has_landmark:
        return Relation(by="nothing")
    if clock.is_apart:
        return Relation(by="apart", why=_APART)
    return Relation(by="clocks", away_ns=abs(clock.residual_ns))


def without_buffers(operations: Sequence[Operation]) -> Sequence[Operation]:
    """Return the operations without buffers, if they are enough to be a run's own."""
    bare = [operation for operation in operations if not any(at >= FIRST_ADDRESS for at in operation.pointers)]
    return bare if len(bare) >= ENOUGH_BUFFERS else ()


def is_explained(profile: Profile, links: Links) -> bool:
    """Return whether the calls explain enough kernels, if no buffer or range shows one run."""
    told = not {BUFFERS, RANGE, CORRELATION, LAUNCH_LINE}.isdisjoint(links.operation_by.used)
    return told or _explains(profile, links, EXPLAINED)


def _explains(profile: Profile, links: Links, least: float) -> bool:
    """Return whether the expected share of the library's kernels with calls is at least ``least``."""
    library = Counter(profile.commands.name.take(profile.commands.is_kernel).each())
    count = sum(number for name, number in library.items() if (told := kernel_name(name)) is not None and told.miopen)
    linked = int(np.count_nonzero(np.asarray(links.operation_of) != NONE))
    expected = linked - sum(1 - likely for at, likely in links.operation_confidence.items() if links.operation_by[at])
    return not linked or expected >= least * count


def doubt_of_run(attribution: Attribution) -> str | None:
    """Return why the log is probably another run's; "" if nothing shows it; None if it is the profile's.

    Checked in order: common buffers, sizes, dates, rhythm of stamps, thread ids (which repeat in containers)."""
    profile, clock = attribution.profile, attribution.clock
    if attribution.same_process or attribution.by_order_alone or not (attribution.logs or attribution.operations):
        return None
    if are_sizes_others(attribution.links):
        return OTHER_SIZES
    from mio2trace.align.clocks.relate import comes_in_blocks, ends_at_set_up, ran_at_once

    if attribution.marked is not None and (attribution.marked.same_run or ends_at_set_up(attribution.logs)):
        return None
    if POSITION in attribution.links.operation_by or POSITION in attribution.links.layer_by:
        return None  # one file
    if clock is not None and not clock.is_doubtful:
        return None  # stamps with a date
    if ran_at_once(profile, attribution.logs):
        return None  # stamps with a date, of a clock that was set or goes wrong
    by_rhythm = attribution.rhythm
    by_threads = _threads_in_common(profile, attribution.logs, attribution.operations)
    links = attribution.links
    # Calls of another program do not explain the kernels; those of another run of this one do.
    is_like = links.has_operations and _explains(profile, links, UNEVEN)
    if clock is not None and clock.is_apart and not by_rhythm and not is_like:
        raise InputError(f"the log and the profile are not of one run: {_APART} (--align order joins them by order)")
    if by_rhythm is False and is_like and comes_in_blocks(profile, attribution.logs, links):
        by_rhythm = None
    if by_rhythm is not None:
        if by_rhythm:
            return None
        return OTHER_TIMES_AND_THREADS if by_threads is False else OTHER_TIMES
    if by_threads is not None:
        return None if by_threads else "its lines are of threads that the profile does not have"
    return "" if clock is None else "the clock may be wrong, or the log is of another run"


def _threads_in_common(profile: Profile, logs: Sequence[FrameworkLog], operations: Sequence[Operation]) -> bool | None:
    """Return whether the log has threads of the profile's process; None if unknown."""
    own = {thread.tid for thread in profile.threads if thread.tid is not None}
    printed = {operation.thread for operation in operations} | {thread for log in logs for thread in log.threads}
    if profile.process.pid is None:
        return None
    printed = {None if one is None else one % PROCESS for one in printed}
    if not printed.isdisjoint(own | {profile.process.pid}):
        return True
    return False if any(thread is not None and thread >= RESERVED for thread in printed) else None


_WHOLE_TENSORS = frozenset(("activ", "pool"))


def are_sizes_others(links: Links) -> bool:
    """Return whether most linked kernels of `_WHOLE_TENSORS` work on other sizes than their operations."""
    operations = {one.index: one for one in links.operations if one.primitive in _WHOLE_TENSORS}
    from mio2trace.align.operations.likelihood import tensor_fits

    commands, indices = links.commands, np.asarray(links.operation_of)
    fitting = others = 0
    for position in np.flatnonzero(np.isin(indices, [*operations])).tolist():
        operation, of_kernel = operations[indices[position]], commands.name.at(position)
        grid = commands.grid.at(position)
        name = kernel_name(of_kernel)
        if name is None or name.primitives != (operation.primitive,) or not grid:
            continue
        fits = tensor_fits(of_kernel, grid, commands.workgroup.at(position), operation)
        if fits is not None:
            fitting, others = fitting + fits, others + (not fits)
    return others > fitting


LAYERS_ALIKE = 0.75
"""Share of a log's layers that ranges must name in the same order; other nets have some names in common (LeNet and
AlexNet: 5 of 8)."""


def unused_logs(attribution: Attribution, logged: Sequence[Operation]) -> frozenset[int]:
    """Return the sources of logs of which nothing fits the profile; none without kernels or with evidence left out."""
    profile = attribution.profile
    if attribution.by_order_alone or attribution.without or attribution.same_process:
        return frozenset()
    if not profile.commands.is_kernel.any():
        return frozenset()
    clock = attribution.clock
    if clock is not None and not clock.is_doubtful:
        return frozenset()
    logs = [log for log in attribution.logs if log.layers or log.net]
    of_logs = {log.source for log in logs}
    source_of = {one.index: one.source for one in logged}
    used = {source_of[index] for index in set(attribution.links.operation_of) if index in source_of}
    if of_logs and _are_layers_used(attribution, logs):
        used |= of_logs
    return frozenset((of_logs | set(source_of.values())) - used - {profile.source})


def _are_layers_used(attribution: Attribution, logs: Sequence[FrameworkLog]) -> bool:
    links = attribution.links
    if links.layer_by.used.difference(("", RANGE, CORRELATION)):
        return True
    linked = [links.runs[run] for run in dict.fromkeys(links.run_of) if run != NONE]
    forward = [run for run in linked if run.direction == "forward"] or linked
    named = list(dict.fromkeys(run.layer for run in forward))
    return any(_are_alike(log, named) for log in logs)


def _are_alike(log: FrameworkLog, named: Sequence[str]) -> bool:
    layers = sorted(log.times.key.values, key=lambda layer: layer.place)
    printed = list(dict.fromkeys([layer.layer for layer in layers] or [layer.layer for layer in log.net]))
    in_order = matches(printed, named) or ()
    return len(in_order) > 0 and len(in_order) >= LAYERS_ALIKE * min(len(printed), len(named))


# -- Find the parts of a log that are the profile's, if several runs or processes wrote it -----------------------------


BEGINNING = 8
"""Calls or kernels that show the begin of a run; one may be lost."""
SET_UP = 2
"""Searches for different problems whose order no other layers of a net have."""
MORE = 1.5
"""Iterations of one run, relative to another run, that show more than one run."""
ALIKE = 0.9
"""Share of a run's calls that another run of the program also has."""


def run_of_profile(
    profile: Profile, operations: Sequence[Operation], notes: Notes
) -> tuple[Sequence[Operation], float]:
    """Return the operations of the profile's run, and the probability of this choice."""
    problems = [(operation.api, operation.phase, operation.problem) for operation in operations]
    bounds = [*pairwise([*_places(problems), len(problems)])]
    posed = [problems[begin:end] for begin, end in bounds]
    whole = max(posed, key=len)
    if len(posed) < 2 or any((Counter(whole[: len(of)]) & Counter(of)).total() < ALIKE * len(of) for of in posed):
        return operations, 1.0
    runs = [operations[begin:end] for begin, end in bounds]
    commands = profile.commands
    named, sized = (column.take(commands.is_kernel).each() for column in (commands.name, commands.grid))
    if len(_places([*zip(named, sized, strict=True)][::-1])) >= MORE * len(_places(whole[::-1])):
        return operations, 1.0  # more comes again in the profile than in one of them: they are its iterations
    same = [same_process(profile, run) for run in runs]
    left = [run for run, told in zip(runs, same, strict=True) if told is not False]
    if same.count(True) == 1:
        left = [runs[same.index(True)]]
    if not left:
        return operations, 1.0
    if len(left) > 1:
        notes.add(
            f"log of {len(runs)} runs without evidence which one is the profile's: the last one is used, with low"
            " confidence"
        )
    return left[-1], LAST if len(left) > 1 else 1.0


def begun_again(operations: Sequence[Operation]) -> frozenset[int]:
    """Return indexes of calls with which a log begins twice: the program was killed and ran again, or has two nets."""
    if not operations or operations[0].phase != "find":
        return frozenset()
    # Which commands are searches is guessed: those that a program begins with.
    problems = [(operation.api, operation.problem) for operation in operations]
    first = problems[:SET_UP]
    if len(set(first)) < SET_UP:
        return frozenset()
    for place in range(SET_UP, len(problems) - SET_UP + 1):
        if problems[place : place + SET_UP] == first:
            return frozenset(operation.index for operation in operations[: 2 * place])
    return frozenset()


def _places(items: Sequence[Hashable]) -> list[int]:
    """Return where the begin of a row comes, first of all 0."""
    first, places = items[:BEGINNING], [0]
    for place in range(BEGINNING, len(items) - BEGINNING + 1):
        if items[place] != first[0] and items[place + 1] != first[1]:
            continue
        here = items[place : place + BEGINNING]
        if sum(a == b for a, b in zip(first, here, strict=True)) >= BEGINNING - 1:
            places.append(place)
    return places


_OPENERS = ("setting up", "forward begins", "benchmark begins")
"""Events that come before the iterations of a run; after iterations they begin the next run."""
_OWN = ("iteration", "benchmark begins", "average begins")
"""Events that only one thread of a process prints."""
MOST_SHARING = 64
"""Up to this number of processes each gets the lines of threads that may belong to any."""


def split(log: FrameworkLog) -> list[FrameworkLog]:
    """Return the runs of a log in order; the log itself if it has only one."""
    cuts: list[int] = []
    benchmark = False
    for event in log.events:
        if benchmark and event.kind in _OPENERS:
            cuts.append(event.line)
            benchmark = False
        benchmark = benchmark or event.kind == "benchmark begins"
    if not cuts:
        return [log]
    return _divided(log, len(cuts) + 1, lambda line, _: (bisect_right(cuts, line),))


def _divided(log: FrameworkLog, count: int, parts_of: Callable[[int, int | None], Iterable[int]]) -> list[FrameworkLog]:
    """Divide a log into ``count`` runs; ``parts_of`` gives those that have a line of a thread."""
    events: list[list[LogEvent]] = [[] for _ in range(count)]
    layers: list[list[LayerTime]] = [[] for _ in range(count)]
    for event in log.events:
        for number in parts_of(event.line, event.thread):
            events[number].append(event)
    for layer in log.layers:
        for number in parts_of(layer.line, layer.thread):
            layers[number].append(layer)
    built = {layer.layer: layer for layer in log.net}
    return [_run(log, *printed, built) for printed in zip(events, layers, strict=True)]


def _run(
    log: FrameworkLog, events: Sequence[LogEvent], printed: Sequence[LayerTime], built: Mapping[str, NetLayer]
) -> FrameworkLog:
    index: dict[str, int] = {}  # a log numbers its layers by name, over all its runs
    layers = [msgspec.structs.replace(layer, index=index.setdefault(layer.layer, len(index))) for layer in printed]
    setup = [event.text for event in events if event.kind == "setting up"]
    names = {*setup, *index}
    order = _order(setup, printed)
    place = {name: number for number, name in enumerate(order)}
    stamps = [event.stamp for event in events if event.stamp is not None]
    counts = {event.number for event in events if event.kind == "testing"}
    return msgspec.structs.replace(
        log,
        events=tuple(events),
        layers=tuple(layers),
        net=tuple(sorted((built[name] for name in names & built.keys()), key=lambda layer: place[layer.layer])),
        iterations=counts.pop() if len(counts) == 1 else None,
        first_stamp=stamps[0] if stamps else None,
        last_stamp=stamps[-1] if stamps else None,
    )


def _order(setup: Sequence[str], printed: Sequence[LayerTime]) -> list[str]:
    """Return the order of layers by this run's lines alone; another net may have layers of the same names."""
    forward = [layer.layer for layer in printed if layer.direction == "forward"]
    backward = [layer.layer for layer in printed if layer.direction == "backward"]
    return merged([setup, forward, oriented(list(dict.fromkeys(backward)), merged([setup, forward]))])


def of_threads(log: FrameworkLog, threads: Collection[int]) -> FrameworkLog:
    """Return what these threads printed."""
    return _parts(log, [set(threads)])[0]


def by_process(log: FrameworkLog) -> list[FrameworkLog]:
    """Return the part of each process that wrote into the file; each has iterations or layer lines of its own.

    Other threads' lines belong to all processes, or to none if there are more than MOST_SHARING."""
    owners = {event.thread for event in log.events if event.kind in _OWN} | {*log.times.thread.used}
    if len(owners) < 2 or None in owners:
        return [log]
    shared = {one for one in log.threads if one not in owners} if len(owners) <= MOST_SHARING else set()
    return _parts(log, [{owner, *shared} for owner in log.threads if owner in owners])


def _parts(log: FrameworkLog, groups: Sequence[set[int]]) -> list[FrameworkLog]:
    """Return what each group of threads printed, in one pass over the log."""
    groups_of: dict[int | None, list[int]] = {}
    for number, threads in enumerate(groups):
        for thread in threads:
            groups_of.setdefault(thread, []).append(number)
    runs = _divided(log, len(groups), lambda _, thread: groups_of.get(thread, ()))
    ids: list[list[int]] = [[] for _ in groups]
    for thread in log.threads:
        for number in groups_of.get(thread, ()):
            ids[number].append(thread)
    return [msgspec.structs.replace(run, threads=tuple(own)) for run, own in zip(runs, ids, strict=True)]


class Part(msgspec.Struct, frozen=True):
    """A run of one process: its ``threads`` (None: all) and lines ``first`` to ``stop``."""

    run: FrameworkLog
    threads: frozenset[int] | None = None
    first: int = 0
    stop: float = inf


def _holders(parts: Sequence[Part]) -> Callable[[int, int | None], list[int]]:
    """Return a function that gives the parts that have a line, by thread: a log may have thousands of parts."""
    of_thread: dict[int | None, list[int]] = defaultdict(list)
    for number, part in enumerate(parts):
        for thread in (None,) if part.threads is None else part.threads:
            of_thread[thread].append(number)

    def holding(line: int, thread: int | None) -> list[int]:
        among = range(len(parts)) if thread is None else [*of_thread[None], *of_thread.get(thread, ())]
        return [number for number in among if parts[number].first <= line < parts[number].stop]

    return holding


class Chosen(msgspec.Struct, frozen=True):
    """The profile's run of each log, the operations there, and the probability of this choice.

    ``are_alike``: whether all possible runs have the same layers and iterations. ``among``: the number of possible runs
    if nothing decides, else 1."""

    runs: list[FrameworkLog]
    operations: Sequence[Operation]
    chance: float = 1.0
    are_alike: bool = False
    among: int = 1


def of_profile(
    profile: Profile,
    logs: Sequence[FrameworkLog],
    operations: Sequence[Operation],
    notes: Notes,
    without: frozenset[str] = frozenset(),
    before: int = 0,
) -> Chosen:
    """Find the profile's parts of each log: by thread ids, by buffers, by times; else the last, or ``before`` it."""
    runs: list[FrameworkLog] = []
    chance, alike, among = 1.0, [], 1
    for log in logs:
        of_log = operations if operations and operations[0].source == log.source else ()
        parts, likely, are_alike = _own(profile, log, of_log, notes, with_buffers=BUFFERS not in without)
        if likely == LAST:
            among = max(among, len(parts))
            parts = parts[: len(parts) - before][-1:] or parts[:1]
        runs.append(_joined(log, parts))
        if of_log and not (len(parts) == 1 and parts[0].run is log):
            holding = _holders(parts)
            operations = [one for one in of_log if holding(one.line, one.thread)]
        if likely < 1:
            alike.append(are_alike)
        chance = min(chance, likely)
    return Chosen(runs, operations, chance, all(alike), among)


def _parts_of(log: FrameworkLog) -> Iterator[list[Part]]:
    """Return the runs of each process."""
    processes = by_process(log)
    everything = frozenset(log.threads)
    for process in processes:
        own = frozenset(process.threads)
        threads = None if everything <= own else own
        runs = split(process)
        begins = [0]
        for run in runs[1:]:  # one without any event has no lines of its own
            begins.append(run.events[0].line if run.events else begins[-1])
        yield [
            Part(run, threads, first, stop) for run, first, stop in zip(runs, begins, [*begins[1:], inf], strict=True)
        ]


def _own(
    profile: Profile, log: FrameworkLog, operations: Sequence[Operation], notes: Notes, *, with_buffers: bool
) -> tuple[list[Part], float, bool]:
    """Return the parts, the probability, and whether all possible parts are alike. With `LAST`: all possible parts."""
    processes, own = [*_parts_of(log)], list[list[Part]]()
    if len(processes) > 1:
        tids = {thread.tid for thread in profile.threads} | {profile.process.pid}
        own = [one for one in processes if not tids.isdisjoint(one[0].run.threads)]
        processes = own or processes
    runs = [part for process in processes for part in _once(process)]
    if len(runs) == 1:
        return runs, 1.0, True
    if with_buffers and operations:
        calls: list[list[Operation]] = [[] for _ in runs]
        holding = _holders(runs)
        for one in operations:
            for number in holding(one.line, one.thread):
                calls[number].append(one)
        same = [same_process(profile, its) for its in calls]
        # Calls without thread ids may be of any process, so they do not show which process is the profile's.
        if True in same and any(its != calls[0] for its in calls):
            # Entries that two processes printed between each other's lines have buffers of both.
            known = buffers_of(profile)
            shares = [sum(not known.isdisjoint(one.pointers) for one in its) / max(1, len(its)) for its in calls]
            best = runs[shares.index(max(shares))]
            likely = [
                part for part, told, share in zip(runs, same, shares, strict=True) if told and 2 * share > max(shares)
            ]
            # Another process, which ran at another time, may have been given the same addresses.
            return [one for one in likely if one.threads == best.threads or _at_once(one.run, best.run)], 1.0, True
        runs = [part for part, told in zip(runs, same, strict=True) if told is None] or runs
    of_processes = len(processes) > 1 and not own
    first, last = host_span(profile)
    ends = [(number, end) for number, part in enumerate(runs) if (end := _end(part.run)) is not None]
    if ends and last is not None:
        away = [(abs(log_clock(end, last, "").residual_ns), number, end) for number, end in ends]
        nearest_ns, nearest, end = min(away)
        clock, begin = log_clock(end, last, ""), last if first is None else first
        within = [
            number == nearest or (not of_processes and _is_within(part.run, clock, begin, last))
            for number, part in enumerate(runs)
        ]
        as_near = [number for ns, number, _ in away if ns <= nearest_ns + LANDMARK_EARLY_NS]
        if of_processes and len(as_near) > 1:
            count = len(as_near)
            notes.add(f"log of {len(runs)} processes, {count} of which end with the profile: links have low confidence")
            return [runs[nearest]], 1 / count, len({_layers(runs[number].run) for number in as_near}) == 1
        if sum(within) < len(runs):
            notes.add(f"log of {len(runs)} runs: run {nearest + 1} ends with the profile, the others are left out")
        return [part for part, is_in in zip(runs, within, strict=True) if is_in], 1.0, True
    if own and len(runs) == len(processes):
        return runs, 1.0, True
    return runs, LAST, len({_layers(part.run) for part in runs}) == 1


def _at_once(run: FrameworkLog, other: FrameworkLog) -> bool:
    stamps = [run.first_stamp, other.first_stamp, run.last_stamp, other.last_stamp]
    times = [local_ns(stamp, MIDDLE_OF_2000_NS) for stamp in stamps if stamp is not None]
    return len(times) < len(stamps) or max(times[:2]) <= min(times[2:])


def _is_within(run: FrameworkLog, clock: LogClock, first: int, last: int) -> bool:
    """Return whether more than half of the run's time is between ``first`` and ``last``."""
    if run.first_stamp is None or run.last_stamp is None:
        return False
    begin, end = clock.to_host(run.first_stamp), clock.to_host(run.last_stamp)
    return 2 * (min(end, last) - max(begin, first)) > end - begin


def _joined(log: FrameworkLog, parts: Sequence[Part]) -> FrameworkLog:
    """Merge parts into one log; iterations that a process counts from 1 again continue the count."""
    if len(parts) == 1:
        return parts[0].run
    events: list[LogEvent] = []
    counts: dict[frozenset[int] | None, int] = {}
    for part in parts:
        before = counts.get(part.threads, 0)
        for event in part.run.events:
            if event.kind == "iteration" and event.number is not None:
                event = msgspec.structs.replace(event, number=event.number + before)
                counts[part.threads] = max(counts.get(part.threads, 0), event.number or 0)
            events.append(event)
    total = max(counts.values(), default=0)
    holding = _holders(parts)
    return msgspec.structs.replace(
        log,
        events=tuple(
            msgspec.structs.replace(event, number=total) if event.kind == "testing" and total else event
            for event in sorted(events, key=lambda event: event.line)
        ),
        layers=tuple(layer for layer in log.layers if holding(layer.line, layer.thread)),
        iterations=total or log.iterations,
        threads=tuple(dict.fromkeys(thread for part in parts for thread in part.run.threads)),
        first_stamp=parts[0].run.first_stamp,
        last_stamp=parts[-1].run.last_stamp,
    )


def _layers(run: FrameworkLog) -> object:
    printed = dict.fromkeys((layer.layer, layer.direction) for layer in run.times.key.values)
    return tuple(layer.layer for layer in run.net), tuple(printed), run.iterations


def _once(parts: Sequence[Part]) -> list[Part]:
    """Remove parts that occur twice with the same stamps."""
    told: list[Part] = []
    prints: set[object] = set()
    for part in parts:
        events = tuple((event.kind, event.text, event.stamp) for event in part.run.events)
        if events not in prints:
            told.append(part)
        if any(stamp is not None for *_, stamp in events):
            prints.add(events)
    return told


def _end(run: FrameworkLog) -> LocalTime | None:
    stamps = [event.stamp for event in run.events if event.kind == "iteration" and event.stamp is not None]
    if not stamps and run.layers and run.layers[-1].line > (run.events[-1].line if run.events else 0):
        stamps = [layer.stamp for layer in run.layers if layer.stamp is not None]
    return stamps[-1] if stamps else run.last_stamp


def doubt_begun_again(attribution: Attribution) -> None:
    """Doubt links to calls with which the log begins twice: nothing shows which were this run's."""
    if attribution.clock is not None:
        return
    again, links = begun_again(attribution.operations), attribution.links
    if again:
        links.doubt_operation(
            position
            for position, (index, word) in enumerate(zip(links.operation_of, links.operation_by, strict=True))
            if index in again and word in (NAME_AND_SIZES, ORDER, LAUNCH_LINE)
        )
