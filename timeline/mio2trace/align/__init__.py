"""Join a profile with its logs: clocks, then links of activities to layers and operations (alignment.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from mio2trace import evidence as by
from mio2trace.align.attribution import Attribution
from mio2trace.align.clocks.axis import DeviceClock, LogClock, device_clocks, in_time_order, sharpened, within_reach
from mio2trace.align.exact import (
    Calls,
    calls_of,
    link_by_ranges,
    number_steps_as_the_log,
    place_by_host_ops,
    place_by_ops,
)
from mio2trace.align.graphs import Replay, join_replays, link_replays
from mio2trace.align.layers.calls import place_by_calls
from mio2trace.align.layers.layer_lines import place_by_layer_lines
from mio2trace.align.layers.marks import read_marks
from mio2trace.align.layers.net import Net, by_place, read_net
from mio2trace.align.layers.outside_times import (
    STATED,
    doubt_between_layers,
    doubt_by_clock,
    doubt_by_kernels,
    doubt_other_queues,
)
from mio2trace.align.layers.repetitions import number_repetitions, place_between, place_nameless_replays, place_updates
from mio2trace.align.layers.unlogged import (
    place_before_iterations,
    place_behind_the_log,
    place_unlogged_iterations,
)
from mio2trace.align.links import DOUBTED, NONE, LayerRun, Links, Pass
from mio2trace.align.processes import ProcessClock
from mio2trace.align.ranges import MarkedStep, place_marked_steps, step_at
from mio2trace.align.rates import CONTRARY, MISSTATED
from mio2trace.align.same_run import (
    OTHER_PROCESS,
    OTHER_SIZES,
    OTHER_TIMES_AND_THREADS,
    UNLIKELY,
    Chosen,
    Relation,
    doubt_begun_again,
    doubt_of_run,
    is_explained,
    of_its_threads,
    of_profile,
    relation,
    run_of_profile,
    same_process,
    unused_logs,
    without_buffers,
)
from mio2trace.kernels import KernelFact, find_gemms
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Profile
from mio2trace.notes import InputError, Notes
from mio2trace.ops.operation import Operation

if TYPE_CHECKING:
    from mio2trace.align.operations.stream import Stream

__all__ = [
    "NONE",
    "Alignment",
    "DeviceClock",
    "LayerRun",
    "Links",
    "LogClock",
    "MarkedStep",
    "Net",
    "Pass",
    "ProcessClock",
    "Relation",
    "align",
    "relation",
]


class Step(msgspec.Struct, frozen=True):
    """A step of the alignment. ``take`` gives links by ``evidence`` and is left out with all of it."""

    evidence: tuple[by.Evidence, ...]
    take: Callable[[Attribution], None]


def place_by_marks(attribution: Attribution) -> None:
    """Cut at the timer marks, if a grammar explains them."""
    notes, links = attribution.notes, attribution.links
    printed = sum(event.kind == "iteration" for event in attribution.events)
    profile, asked_for = attribution.profile, attribution.iterations()
    reading = read_marks(profile.commands, profile.opencl.marks, attribution.net, asked_for, printed, notes)
    if reading is not None:
        attribution.marked = reading
        reading.place(links)
        if not reading.check(notes, asked_for or 0, attribution.host_step_ns):
            links.doubt_layer(links.layer_by.rows((by.TIMER_MARKS,)))


def link_operations(attribution: Attribution) -> None:
    """Align the calls of a log with the kernels.

    If the profile has ranges of the library's calls, all other kernels have no operation.

    Only here the matcher is imported: a profile alone does not need it."""
    if attribution.operations and all(index == NONE for index in attribution.operation_of_range):
        from mio2trace.align.operations.stream import link_operations as link

        link(attribution)


def place_by_durations(attribution: Attribution) -> None:
    """Fit printed layer times to host times. Few logs print them, so only here the module is imported."""
    if attribution.net.is_timed and attribution.clock is not None:
        from mio2trace.align.layers.durations import place_by_host_times

        place_by_host_times(attribution)


def place_by_device_times(attribution: Attribution) -> None:
    """Fit printed layer times to the device's times if there is no clock."""
    if attribution.net.is_timed and attribution.times is None:
        from mio2trace.align.layers.durations import place_by_device_times as place

        place(attribution)


STEPS: tuple[Step, ...] = (
    # If launches are recorded, they alone decide in which marked step a command is.
    Step((), place_marked_steps),
    Step((by.RANGE, by.CORRELATION), link_by_ranges),
    # The capture shows the operations inside the range around a graph's launch.
    Step((by.GRAPH_NODE, by.CAPTURE), link_replays),
    # Marks bound layers without any clock, and relate the log's clock to the host's best: everything else asks it.
    Step((by.TIMER_MARKS,), place_by_marks),
    Step(
        (by.POSITION, by.BUFFERS, by.LAUNCH_LINE, by.BOUNDARY_STAMPS, by.RECURRENCE, by.NAME_AND_SIZES, by.ORDER),
        link_operations,
    ),
    Step((), doubt_begun_again),
    Step((), place_by_layer_lines),
    Step((by.DURATIONS,), place_by_durations),
    Step((), doubt_between_layers),
    Step((), doubt_by_clock),
    Step((), doubt_by_kernels),
    Step((), place_by_calls),
    Step((by.DURATIONS,), place_by_device_times),
    # Likeness goes on from what is placed, doubts included.
    Step((), place_before_iterations),
    Step((by.RECURRENCE,), place_unlogged_iterations),
    Step((by.NAME_AND_SIZES,), place_behind_the_log),
    Step((), doubt_other_queues),
    # These steps are for runs without a log that names layers: the steps above find none.
    Step((by.RANGE,), place_by_ops),
    Step((by.BOUNDARY_STAMPS,), place_by_host_ops),
    Step((by.RANGE,), number_steps_as_the_log),
    Step((), place_updates),
    Step((), place_between),
    Step((by.ORDER,), place_nameless_replays),
    Step((), lambda attribution: number_repetitions(attribution.profile, attribution.links)),
)
"""Strongest first. `Links` never overrides stronger links, so a step only adds what is missing."""


def climb(attribution: Attribution) -> None:
    """Run all steps whose evidence is not left out. Raises `InputError` for two runs."""
    for step in STEPS:
        if not step.evidence or not attribution.without.issuperset(step.evidence):
            step.take(attribution)


MOST_RUNS = 4
"""The number of runs in one log that are tried, from the last one back, until the stamps of one match the profile."""


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """A profile with what is known about each activity.

    ``clocks``: by device number, if device and host times are known. ``log_clock``: None without usable stamps.
    ``logs``: the profile's run of each log. ``streams``: how links to operations came about, if asked for.
    ``process_clock``: relation to the job's first process. ``unused``: logs that fit nothing."""

    profile: Profile
    net: Net
    links: Links
    clocks: Mapping[int, DeviceClock]
    log_clock: LogClock | None
    facts: Mapping[int, KernelFact]
    logs: tuple[FrameworkLog, ...] = ()
    streams: tuple[Stream, ...] = ()
    steps: tuple[MarkedStep, ...] = ()
    process_clock: ProcessClock | None = None
    unused: frozenset[int] = frozenset()

    def step_at(self, host_ns: int) -> MarkedStep | None:
        return step_at(self.steps, host_ns)

    def with_stated(self, logged: Sequence[Operation]) -> tuple[Operation, ...]:
        """Return ``logged`` (operations of the log), then the operations that only ranges of the profile state."""
        indexes = {operation.index for operation in logged}
        return (*logged, *(one for one in self.links.operations if one.index not in indexes))

    def __repr__(self) -> str:
        in_layers, in_operations = sum(map(bool, self.links.layer_by)), sum(map(bool, self.links.operation_by))
        count = len(self.links.layer_by)
        return f"<Alignment of {count} enqueues: {in_layers} in layers, {in_operations} in operations>"


def align(  # noqa: PLR0913 - keyword-only options
    profile: Profile,
    logs: Sequence[FrameworkLog],
    notes: Notes,
    *,
    operations: Sequence[Operation] = (),
    without: frozenset[str] = frozenset(),
    by_order_alone: bool = False,
    keep_reasons: bool = False,
    beside: Sequence[Profile] = (),
    captures: Sequence[Profile] = (),
    named_for_another: bool = False,
) -> Alignment:
    """Relate ``profile`` to the logs of its run and to the ``operations`` of one of them.

    ``without``: kinds of evidence to leave out. ``keep_reasons``: fill `Alignment.streams`. ``beside``: profiles that a
    framework made of the same run; their ops are layers if no log names any. ``captures``: profiles of the process
    while it captured graphs. ``named_for_another``: the log's name names another process, so all links have low
    confidence. Raises `InputError` if the files cannot be of one run, unless ``by_order_alone``."""
    logged = operations
    profile = in_time_order(within_reach(profile, notes))
    facts = find_gemms(profile)
    behind = max((operation.index for operation in operations), default=NONE) + 1
    sharp, error_ns, step_ns = sharpened(profile, notes)

    def joined(before: int) -> tuple[Attribution, Chosen, float]:
        """Join with the run ``before`` places before the log's last run; and say how likely its calls are."""
        chosen = of_profile(profile, logs, logged, notes, without, before)
        operations, chance = of_its_threads(profile, chosen.operations), 1.0
        if profile.clocks[0].as_unix is None or not any(log.events or log.layers for log in chosen.runs):
            operations, chance = run_of_profile(profile, operations, notes)
        leaving = without
        same = None if by.BUFFERS in without else same_process(profile, operations)
        left_out = 0
        if same is False and by_order_alone:
            notes.add("log and profile have no buffer in common: every link to an operation has low confidence")
            leaving |= {by.BUFFERS}
            chance = min(chance, DOUBTED)
        elif same is False:
            bare = without_buffers(operations)
            if not bare:
                raise InputError(OTHER_PROCESS)
            left_out, operations, same = len(operations) - len(bare), bare, None
        runs = [by_place(log) for log in chosen.runs]
        by_ranges = not leaving >= {by.RANGE, by.CORRELATION}
        calls = calls_of(profile, operations, behind, notes) if by_ranges else Calls(tuple(operations), ())
        replays, replayed = list[Replay](), list[Operation]()
        if not leaving >= {by.CAPTURE, by.GRAPH_NODE}:
            of_calls = max((one.index for one in calls.operations), default=NONE) + 1
            replays, replayed = join_replays(profile, captures, of_calls, notes)
        attribution = Attribution(
            sharp,
            notes,
            host_error_ns=error_ns,
            host_step_ns=step_ns,
            logs=runs,
            operations=(*calls.operations, *replayed),
            operation_of_range=calls.of_range,
            opened=calls.opened if sharp is profile else None,
            replays=replays,
            beside=beside,
            weights_of=calls.weights_of,
            net=read_net(runs, notes),
            facts=facts,
            without=leaving,
            same_process=same,
            by_order_alone=by_order_alone,
            keep_reasons=keep_reasons,
        )
        climb(attribution)
        attribution.links.calibrate_layers()
        if operations:
            chance = min(chance, _chance_of_operations(attribution, left_out))
        return attribution, chosen, chance

    known = notes.copy()
    attribution, chosen, chance = joined(0)
    of_last = notes.copy()
    left = chosen.among
    for before in range(1, min(MOST_RUNS, left) if left > 1 and attribution.rhythm is False else 1):
        notes.go_back_to(known)
        with suppress(InputError):
            other = joined(before)
            # A run whose stamps are the profile's; or may be, where those of all later ones like it are not.
            if other[0].rhythm or (chosen.are_alike and other[0].rhythm is None):
                (attribution, chosen, chance), left = other, left - before
                break
        notes.go_back_to(of_last)
    chance_of_log = chosen.chance
    if chance_of_log < 1 and attribution.rhythm:
        chance_of_log = 1.0
    elif chosen.among > 1:
        chance_of_log = 1 - CONTRARY if left == 1 else chosen.chance
        notes.add(
            f"log of {chosen.among} runs without evidence which one is the profile's: the last one"
            f"{'' if left == chosen.among else ' whose stamps may be its'} is used, with low confidence"
        )
    if any(log.layers for log in attribution.logs) and profile.activities and not attribution.links.runs:
        notes.add("log whose layers cannot be related to the profile: no kernel is in a layer")
    if named_for_another:
        chance = min(chance, UNLIKELY)
    _doubt_choice(attribution.links, chance, chance_of_log, are_alike=chosen.are_alike)
    _doubt_run(attribution, notes)
    for contradiction, count in sorted(attribution.links.contradictions.items()):
        notes.add(f"link contradicted: {contradiction}", count=count)
    return Alignment(
        profile=profile,
        net=attribution.net,
        links=attribution.links,
        clocks=device_clocks(profile, notes),
        log_clock=attribution.clock,
        facts=facts,
        logs=tuple(attribution.logs),
        streams=tuple(attribution.streams),
        steps=attribution.steps,
        unused=unused_logs(attribution, logged),
    )


def _chance_of_operations(attribution: Attribution, left_out: int) -> float:
    """Return how likely the operations are this run's. Raises `InputError` if only ``left_out`` ones have kernels."""
    explained = is_explained(attribution.profile, attribution.links)
    if left_out:
        if not explained or max(attribution.links.operation_of, default=NONE) == NONE:
            raise InputError(OTHER_PROCESS)
        what = "operations whose buffers are none of the profile's: another run wrote into this log"
        attribution.notes.add(what, count=left_out)
        return UNLIKELY
    if not explained:
        attribution.notes.add(
            "log that explains hardly any kernel of the library: it is probably of another run, links have low"
            " confidence"
        )
        return UNLIKELY
    return 1.0


def _doubt_choice(links: Links, chance: float, chance_of_log: float, *, are_alike: bool) -> None:
    """Lower the confidence of all links if another run of the log may be the profile's."""
    everything = range(len(links.layer_by))
    timed = (by.DURATIONS, by.BOUNDARY_STAMPS)
    if chance < 1:
        links.doubt_layer(everything, chance)
        links.doubt_operation(everything, chance)
    if chance_of_log < 1:
        # If the call shows the layer, both links have the same word.
        words = enumerate(zip(links.layer_by, links.operation_by, strict=True))
        by_its_times = (at for at, (word, of_call) in words if word in timed and word != of_call)
        links.doubt_layer(by_its_times if are_alike else everything, chance_of_log)
        links.doubt_operation(everything, chance_of_log)


def _doubt_run(attribution: Attribution, notes: Notes) -> None:
    """Lower the confidence of links if the log may be another run's. Links by the profile's own ranges stay."""
    links = attribution.links
    named = any(log.layers or log.events for log in attribution.logs)
    is_apart = attribution.clock is not None and attribution.clock.is_apart
    words = links.operation_by.used.union(links.layer_by.used if named else ()).difference(("", *STATED))
    if not words and not is_apart:
        return
    doubt = doubt_of_run(attribution)
    if doubt:
        notes.add(f"log that is probably of another run, links have low confidence: {doubt}")
        likely = {OTHER_SIZES: MISSTATED, OTHER_TIMES_AND_THREADS: CONTRARY}.get(doubt, UNLIKELY)
        links.doubt_operation(links.operation_by.rows(words), likely)
        links.doubt_layer(links.layer_by.rows(words if named else ()), likely)
    elif doubt == "":
        notes.remark(
            "nothing in these files shows that log and profile are of one run: the links are right only if they are"
        )
