"""The system's clocks as `mio2trace record` read them before and after a run; from the manifest of an archive."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

_HASH = re.compile(r"[0-9a-f]{8,64}")
_MOST_NS = 1 << 62
_WIDEST_NS = 1_000_000_000
"""Clocks that were read more than a second apart are no more exact than a log."""


class Reading(msgspec.Struct, frozen=True):
    """Clocks at one moment, in ns. ``width_ns``: the time between the first and the last reading. ``wrong_ns``: the
    possible error of the Unix clock, as the system states it; None if the system does not synchronise this clock."""

    unix_ns: int
    boottime_ns: int
    monotonic_ns: int
    width_ns: int
    wrong_ns: int | None = None


class Anchors(msgspec.Struct, frozen=True):
    """The readings of a run. ``boot``: a hash of the machine and its boot; empty if it is not recorded."""

    boot: str
    start: Reading
    end: Reading


def anchors_of(told: Mapping[str, object]) -> Anchors | None:
    """Return the clocks of a manifest, which may come from a stranger; None if it has no clocks, or impossible ones."""
    clocks, boot = told.get("clocks"), told.get("boot")
    if not isinstance(clocks, dict):
        return None
    start, end = _reading(clocks.get("start")), _reading(clocks.get("end"))
    if start is None or end is None or end.boottime_ns < start.boottime_ns or end.monotonic_ns < start.monotonic_ns:
        return None
    return Anchors(boot if isinstance(boot, str) and _HASH.fullmatch(boot) else "", start, end)


def _reading(told: object) -> Reading | None:
    if not isinstance(told, dict):
        return None
    numbers = [told.get(name) for name in ("realtime_ns", "boottime_ns", "monotonic_ns", "width_ns")]
    unix, boottime, monotonic, width = (_number(one) for one in numbers)
    if unix is None or boottime is None or monotonic is None or width is None or width > _WIDEST_NS:
        return None
    return Reading(unix, boottime, monotonic, width, _number(told.get("realtime_error_ns")))


def _number(told: object) -> int | None:
    return told if isinstance(told, int) and type(told) is int and 0 <= told < _MOST_NS else None
