"""What devices and their rows are called: as the profiler names them, OpenCL's by their numbers.

Viewers that know no order of groups sort them by name: a device's begins with ``Device`` or ``GPU``, before ``Host``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from mio2trace.model.profile import Profile, Queue


def device_names(profile: Profile, queues: Mapping[int, Collection[int]], logged: str) -> dict[int, str]:
    """Devices, those of ``queues``, as the profiler names them; OpenCL's have no names: as the log does (``logged``),
    else by their queues.
    """
    numbered = any(device.number is not None for device in profile.devices)
    return {device: _device_name(profile, device, own, logged, numbered) for device, own in queues.items()}


def _device_name(profile: Profile, device: int, queues: Collection[int], logged: str, numbered: bool) -> str:
    if profile.calls_wait or device >= len(profile.devices):
        numbers = ", ".join(map(str, sorted(queues)))
        own = logged or f"OpenCL queue{'s' if len(queues) > 1 else ''} {numbers}"
        return f"{'GPU 0' if logged else 'Device'} ({own})"
    name = profile.devices[device].name
    number: int | str | None = profile.devices[device].number
    if number is None:  # one that the profiler does not number, among others that it does, is none of those
        number = f"without number {device}" if numbered else device
    if profile.framework.nodes and name:  # numbered as the framework does
        return name
    own = name or logged
    return f"GPU {number} ({own})" if own and own != f"GPU {number}" else f"GPU {number}"


def device_of(name: str, process: str) -> str:
    """A device in the picture of a job: ``GPU 0 of rank 1 (AMD Instinct MI300X)``."""
    if not process:
        return name
    head, bracket, rest = name.partition(" (")
    return f"{head} of {process}{bracket}{rest}"


def row_names(profile: Profile) -> dict[int, tuple[str, bool]]:
    """By queue: ``queue 0``; a stream by the profiler's number, or its name for it, which then is always told, as is
    the number of the queue where another of the device has that name, too.
    """
    own = {queue.index: _own_name(queue) for queue in profile.queues}
    several = Counter((queue.device, own[queue.index][0]) for queue in profile.queues)
    return {
        queue.index: (f"{own[queue.index][0]}, queue {queue.index}", True)
        if several[queue.device, own[queue.index][0]] > 1
        else own[queue.index]
        for queue in profile.queues
    }


def _own_name(queue: Queue) -> tuple[str, bool]:
    if queue.name:
        return queue.name, True
    if queue.kind == "stream":
        return f"stream {queue.index if queue.number is None else queue.number}", False
    return f"queue {queue.index}", False
