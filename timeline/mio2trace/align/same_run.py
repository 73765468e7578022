"""Whether a log and a profile are of one run: by common buffers, else by clocks; and which logs are unused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from mio2trace.align.attribution import Attribution
from mio2trace.align.clocks.log_runs import of_profile
from mio2trace.align.clocks.relate import comes_in_blocks, ends_at_set_up, ran_at_once, relate_clocks
from mio2trace.align.layers.repetitions import matches
from mio2trace.align.links import NONE, Links
from mio2trace.align.operations.likelihood import tensor_fits
from mio2trace.align.operations.rates import EXPLAINED, UNEVEN
from mio2trace.align.operations.rows import FIRST_ADDRESS
from mio2trace.align.operations.windows import ENOUGH_BUFFERS, same_process
from mio2trace.evidence import BUFFERS, CORRELATION, LAUNCH_LINE, POSITION, RANGE
from mio2trace.kernels.names import kernel_name
from mio2trace.model.log import PROCESS, FrameworkLog
from mio2trace.model.profile import Profile
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


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """``away_ns``: the distance of the clocks' landmarks. ``why``: a line for the user if they are of two runs."""

    by: Literal["apart", "nothing", "clocks", "buffers", "threads"]
    away_ns: int = 0
    why: str = ""


def relation(
    profile: Profile, logs: Sequence[FrameworkLog], operations: Sequence[Operation], without: frozenset[str]
) -> Relation:
    """Return what relates log and profile, without joining them."""
    notes = Notes()  # joining them will say all of it
    of_run, own, *_ = of_profile(profile, logs, operations, notes, without)
    if BUFFERS not in without:
        same = same_process(profile, own)
        if same:
            return Relation(by="buffers")
        if same is False and not without_buffers(own):
            return Relation(by="apart", why=OTHER_PROCESS)
    try:
        clock = relate_clocks(profile, of_run, None, notes)
    except InputError as error:
        return Relation(by="apart", why=str(error))
    if clock is None or not any(_has_landmark(log) for log in of_run):
        return Relation(by="nothing")
    if clock.is_apart:
        return Relation(by="apart", why=_APART)
    return Relation(by="clocks", away_ns=abs(clock.residual_ns))


def without_buffers(operations: Sequence[Operation]) -> Sequence[Operation]:
    """Return the operations without buffers, if they are enough to be a run's own."""
    bare = [operation for operation in operations if not any(at >= FIRST_ADDRESS for at in operation.pointers)]
    return bare if len(bare) >= ENOUGH_BUFFERS else ()


def _has_landmark(log: FrameworkLog) -> bool:
    iterations = (event.stamp for event in log.events if event.kind == "iteration")
    return any(stamp is not None for stamp in iterations) or bool(log.times.has_stamp.any())


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
    if by_rhythm is False and is_like and comes_in_blocks(profile, attribution.logs, attribution.operations, links):
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


ALIKE = 0.75
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
    return len(in_order) > 0 and len(in_order) >= ALIKE * min(len(printed), len(named))
