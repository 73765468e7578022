"""Three streams that were never meant to meet become one: clocks, layers, links (alignment.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from timeline.align.clocks import DeviceClock, LogClock, device_clocks
from timeline.align.layers import place_layers
from timeline.align.net import Net, by_place, read_net
from timeline.align.placement import EVIDENCE, NONE, LayerRun, Pass, Placement
from timeline.align.runs import of_profile
from timeline.gemm import KernelFact, find_gemms
from timeline.model.log import FrameworkLog
from timeline.model.profile import Profile
from timeline.notes import Notes

__all__ = ["EVIDENCE", "NONE", "Alignment", "DeviceClock", "LayerRun", "LogClock", "Net", "Pass", "Placement", "align"]


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """A profile with what is known of each of its enqueues.

    ``clocks`` has a clock per device number, none where host or device times are missing; ``log_clock`` is None when
    the log has no stamps, nothing in common with the profile, or was joined by order alone. ``logs`` holds of each log
    the run that the profile is of.
    """

    profile: Profile
    net: Net
    placement: Placement
    clocks: Mapping[int, DeviceClock]
    log_clock: LogClock | None
    facts: Mapping[int, KernelFact]
    logs: tuple[FrameworkLog, ...] = ()


def align(
    profile: Profile,
    logs: Sequence[FrameworkLog],
    notes: Notes,
    *,
    without: frozenset[str] = frozenset(),
    by_order_alone: bool = False,
) -> Alignment:
    """Relate ``profile`` to the logs of its run, leaving out the kinds of evidence in ``without``.

    Raises `InputError` when they cannot be of one run, unless ``by_order_alone``.
    """
    facts = find_gemms(profile)
    logs = [by_place(log) for log in of_profile(profile, logs, notes)]
    net = read_net(logs, notes)
    placement, log_clock = place_layers(profile, logs, net, facts, without, notes, by_order_alone=by_order_alone)
    for contradiction, count in sorted(placement.contradictions.items()):
        notes.add(f"link contradicted: {contradiction}", count=count)
    return Alignment(
        profile=profile,
        net=net,
        placement=placement,
        clocks=device_clocks(profile, notes),
        log_clock=log_clock,
        facts=facts,
        logs=tuple(logs),
    )
