"""Which logs say nothing of a profile: no kernel is in a call or a layer of theirs, and no clock relates them."""

from __future__ import annotations

from collections.abc import Sequence

from mio2trace.align.attribution import Attribution
from mio2trace.align.links import NONE
from mio2trace.align.sequences import matches
from mio2trace.evidence import CORRELATION, RANGE
from mio2trace.model.log import FrameworkLog
from mio2trace.ops.operation import Operation

ALIKE = 0.75
"""Of the layers that a log prints, or of those that the profile's ranges name, in the same order: another net's log has
names such as ``conv1`` in common (LeNet and AlexNet: 5 of 8)."""


def unused_logs(attribution: Attribution, logged: Sequence[Operation]) -> frozenset[int]:
    """The sources of logs that have layers or operations (``logged``) of which nothing fits the profile.

    Nothing is unused if evidence was left out, or if the profile has no kernel that a log could explain.
    """
    profile = attribution.profile
    if attribution.by_order_alone or attribution.without or attribution.same_process:
        return frozenset()
    if not any(activity.kind == "kernel" for activity in profile.activities):
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
    if any(word not in ("", RANGE, CORRELATION) for word in links.layer_by):
        return True
    linked = [links.runs[run] for run in dict.fromkeys(links.run_of) if run != NONE]
    forward = [run for run in linked if run.direction == "forward"] or linked
    named = list(dict.fromkeys(run.layer for run in forward))
    return any(_are_alike(log, named) for log in logs)


def _are_alike(log: FrameworkLog, named: Sequence[str]) -> bool:
    layers = sorted(log.layers, key=lambda layer: layer.index)
    printed = list(dict.fromkeys([layer.layer for layer in layers] or [layer.layer for layer in log.net]))
    in_order = matches(printed, named) or ()
    return len(in_order) > 0 and len(in_order) >= ALIKE * min(len(printed), len(named))
