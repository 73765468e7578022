"""What types do not say of a profile that comes from a file of ours: places in its tuples that its records name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mio2trace.model.profile import Call, Execution, Profile


def misplaced(profile: Profile) -> str:
    """The first place in a tuple where nothing is, in words; empty without one."""
    places: list[tuple[str, Iterable[int | None], int]] = [
        ("queue", (one.queue for one in profile.activities), len(profile.queues)),
        ("thread", (one.thread for one in _calls(profile)), len(profile.threads)),
        ("thread", (one.thread for one in profile.ranges), len(profile.threads)),
        ("device", (one.device for one in profile.queues), len(profile.devices)),
        ("clock", (one.clock for one in profile.devices), len(profile.clocks)),
        ("program", (one.opencl.program for one in profile.activities), len(profile.opencl.programs)),
        ("range", (one.range for one in profile.activities), len(profile.ranges)),
        ("range", profile.framework.ranges, len(profile.ranges)),
        ("activity", profile.framework.activities, len(profile.activities)),
        ("node", (one.node for one in _executions(profile)), len(profile.framework.nodes)),
    ]
    for what, numbers, count in places:
        wrong = next((one for one in numbers if one is not None and not 0 <= one < max(count, 1)), None)
        if wrong is not None:
            return f"{what} {wrong} of {count}"
    return ""


def _calls(profile: Profile) -> Iterator[Call]:
    yield from profile.other_calls
    yield from (one.call for one in profile.activities if one.call is not None)


def _executions(profile: Profile) -> Iterator[Execution]:
    yield from profile.framework.ranges.values()
    yield from profile.framework.activities.values()
