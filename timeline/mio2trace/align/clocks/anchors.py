"""Convert a profile's host times to Unix time by the clocks that `mio2trace record` read before and after the run.

A profile whose times are between the two readings of a clock uses this clock. The offset to Unix time is known at both
ends."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mio2trace.align.processes import begin_ns, end_ns
from mio2trace.model.anchors import Anchors, Reading
from mio2trace.model.profile import Profile, UnixTime
from mio2trace.notes import Notes

STEPPED_NS = 1_000_000
"""A synchronised Unix clock is slewed by less during a run; a larger change means that somebody set it."""


def anchored(profile: Profile, anchors: Anchors, notes: Notes) -> Profile:
    """Return ``profile`` with Unix time, or unchanged if its times are outside the readings."""
    clock = profile.clocks[0]
    begin, end = begin_ns(profile), end_ns(profile)
    if begin is None or end is None:
        return profile
    both = (anchors.start, anchors.end)
    sides = [side for side in _sides(clock.kind, both) if side[0] <= begin and end <= side[1] + clock.resolution_ns]
    if not sides:
        notes.remark("times outside of the recording: the clocks that were read during it are not used")
        return profile
    # Of a profile that may count on several of them, all offsets that these allow are.
    low = min(offset for _, _, *offsets in sides for offset in offsets)
    high = max(offset for _, _, *offsets in sides for offset in offsets)
    width = 0 if clock.kind == "unix" else (max(one.width_ns for one in both) + 1) // 2
    wrong = [one.wrong_ns for one in both if one.wrong_ns is not None]
    changed = abs(_offset(anchors.end) - _offset(anchors.start))
    if changed > STEPPED_NS:
        notes.add(f"the system's Unix clock was set while the program ran, by {changed / 1e9:.6f} s")
    unix = UnixTime(
        offset_ns=(low + high) // 2,
        error_ns=(high - low + 1) // 2 + width,
        wrong_ns=max(wrong) if len(wrong) == len(both) and changed <= STEPPED_NS else None,
    )
    of_machine = clock.kind in ("unix", "boottime") and anchors.boot
    scope = f"boot {anchors.boot}" if of_machine else clock.scope
    new = msgspec.structs.replace(clock, scope=scope, unix=unix)
    return msgspec.structs.replace(profile, clocks=(new, *profile.clocks[1:]))


def _sides(kind: str, both: Sequence[Reading]) -> list[tuple[int, int, int, int]]:
    """For each clock that the profile may use: first and last reading, and the offset to Unix time at each."""
    clocks = {
        "unix": [(one.unix_ns, one.unix_ns) for one in both],
        "boottime": [(one.boottime_ns, one.unix_ns) for one in both],
        "monotonic": [(one.monotonic_ns, one.unix_ns) for one in both],
    }
    of = [clocks[kind]] if kind in clocks else list(clocks.values())
    return [(start, end, at_start - start, at_end - end) for (start, at_start), (end, at_end) in of]


def _offset(one: Reading) -> int:
    return one.unix_ns - one.boottime_ns
