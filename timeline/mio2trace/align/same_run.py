"""Whether a log and a profile are of one run: buffers in common, else clocks that fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from mio2trace.align.clocks.log_runs import of_profile, operations_of
from mio2trace.align.clocks.relate import relate_clocks
from mio2trace.align.operations.queues import same_process
from mio2trace.evidence import BUFFERS
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Profile
from mio2trace.notes import InputError, Notes
from mio2trace.ops.operation import Operation

OTHER_PROCESS = (
    "the log and the profile are not of one run: none of the log's buffers is among those of MIOpen's "
    "kernels (--align order goes on by order alone)"
)


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """What a log and a profile have in common. ``away_ns``: how far their clocks' landmarks lie apart; ``why`` they
    cannot be of one run, as a line for the person."""

    by: Literal["apart", "nothing", "clocks", "buffers", "threads"]
    away_ns: int = 0
    why: str = ""


def relation(
    profile: Profile, logs: Sequence[FrameworkLog], operations: Sequence[Operation], without: frozenset[str]
) -> Relation:
    """By what a log's own records and operations go with ``profile``, without joining them."""
    notes = Notes()  # joining them will say all of it
    of_run = of_profile(profile, logs, notes).runs
    if BUFFERS not in without:
        same = same_process(profile, operations_of(operations, logs, of_run))
        if same is not None:
            return Relation(by="buffers") if same else Relation(by="apart", why=OTHER_PROCESS)
    try:
        clock = relate_clocks(profile, of_run, None, notes)
    except InputError as error:
        return Relation(by="apart", why=str(error))
    if clock is None or not any(_has_landmark(log) for log in of_run):
        return Relation(by="nothing")
    return Relation(by="clocks", away_ns=abs(clock.residual_ns))


def _has_landmark(log: FrameworkLog) -> bool:
    """Whether a log has more than its last line to tell its clock by."""
    return any(event.kind == "iteration" and event.stamp is not None for event in log.events) or any(
        layer.stamp is not None for layer in log.layers
    )
