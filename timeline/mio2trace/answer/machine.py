"""What a run was made on and with, as far as its files say: GPU, MIOpen, HIP."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from mio2trace.model.miopen import Message, MiopenLog
from mio2trace.model.profile import Profile

_VALUE = re.compile(
    r"(?P<name>\bHIP|\bMIOpen|\bMIOPEN_[A-Z0-9_]{1,60})(?: version | ?= ?)(?P<value>[\w.()+-]{1,60})", re.ASCII
)
"""``MIOpen version 3.5.1.5b515cf1bc``, ``MIOPEN_FIND_MODE = DYNAMIC_HYBRID(5)``."""


_NUMBERED = re.compile(r"(?i)(?:device|gpu) ?\d+")
"""A name that a reader gives for want of one."""


def stated_values(libraries: Iterable[MiopenLog]) -> Iterator[tuple[str, str]]:
    """Names and values of versions and variables that MIOpen's logs state."""
    for log in libraries:
        for record in log.records:
            if isinstance(record, Message) and record.kind in ("version", "environment"):
                for one in _VALUE.finditer(record.text):
                    yield one["name"], one["value"]


def machine(profile: Profile | None, libraries: Sequence[MiopenLog], device_name: str = "") -> str:
    """``MI300X x4 · MIOpen 3.5.1``; empty if the files name nothing."""
    devices: dict[str, int] = {}
    for device in profile.devices if profile is not None else ():
        if device.name and not _NUMBERED.fullmatch(device.name):
            devices[device.name] = devices.get(device.name, 0) + 1
    if not devices and device_name:
        devices[device_name] = 1
    parts = [f"{name} x{number}" if number > 1 else name for name, number in devices.items()][:3]
    values = dict(stated_values(libraries))
    parts += [f"{name} {values[name]}" for name in ("HIP", "MIOpen") if name in values]
    return " · ".join(parts)
