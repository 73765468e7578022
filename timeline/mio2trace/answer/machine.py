"""The machine and versions of a run, as far as its files record them: GPU, MIOpen, HIP."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from mio2trace.model.miopen import Message, MiopenLog
from mio2trace.model.profile import Profile

_VALUE = re.compile(
    r"(?P<name>\bHIP|\bMIOpen|\bMIOPEN_[A-Z0-9_]{1,60})(?: version | ?= ?)(?P<value>[\w.()+-]{1,60})", re.ASCII
)
"""Such as ``MIOpen version 3.5.1.5b515cf1bc`` or ``MIOPEN_FIND_MODE = DYNAMIC_HYBRID(5)``."""


_GFX = re.compile(r"\bgfx(?:9[0-9a-f]{2}|1[0-9a-f]{3}|[78][0-9]{2})(?=\b|_|[0-9]{2,3}\b)", re.ASCII)
"""Such as ``gfx942``, even if the number of compute units follows: ``gfx942304``."""
_ISA = re.compile(r"_ISA([0-9a-fA-F]{3,4})(?=_|$)", re.ASCII)
"""Of a Tensile kernel."""
_NUMBERED = re.compile(r"(?i)(?:device|gpu) ?\d+")
"""A name that a reader makes up if the profile has none."""


def is_product(name: str) -> bool:
    """Return whether a device's name is a product name and not only a number."""
    return bool(name) and not _NUMBERED.fullmatch(name)


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
        if is_product(device.name):
            devices[device.name] = devices.get(device.name, 0) + 1
    if not devices and device_name:
        devices[device_name] = 1
    parts = [f"{name} x{number}" if number > 1 else name for name, number in devices.items()][:3]
    values = dict(stated_values(libraries))
    parts += [f"{name} {values[name]}" for name in ("HIP", "MIOpen") if name in values]
    return " · ".join(parts)


def versions(profiles: Sequence[Profile], libraries: Sequence[MiopenLog], names: Iterable[str]) -> dict[str, list[str]]:
    """Collect GPUs, their architectures, HIP and MIOpen from names of devices, from logs and from names of kernels.

    ``names``: of devices that logs name. A list is empty if the files do not state it.
    """
    values: dict[str, set[str]] = {"HIP": set(), "MIOpen": set()}
    for name, value in stated_values(libraries):
        if name in values:
            values[name].add(value)
    devices = {device.name for profile in profiles for device in profile.devices} | set(names)
    texts = [record.text for log in libraries for record in log.records if isinstance(record, Message)]
    found = {match[0] for text in (*texts, *devices) for match in _GFX.finditer(text)}
    kernels = {name for profile in profiles for name in profile.commands.name.used}
    found |= {f"gfx{match[1].lower()}" for name in kernels if (match := _ISA.search(name)) is not None}
    named = set(filter(is_product, devices))
    return {"gpu": sorted(named), "gfx": sorted(found), **{name: sorted(of) for name, of in values.items()}}
