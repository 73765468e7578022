"""Hardware counters of kernels: one value per kernel and counter, from one row per hardware instance.

A base counter counts events on each instance (XCC, shader engine, channel). The values of a dispatch are added up, as
AMD's view ``counters_collection`` does (rocpd-versions.md 6). A derived counter may be a percentage, a mean or a
maximum, so it has a value only if the dispatch has one row. A constant has the value that all its rows agree on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, Literal, TypeVar

from mio2trace.model.profile import Counter
from mio2trace.notes import Notes
from mio2trace.patterns import late

Sort = Literal["base", "derived", "constant"]
_SUMMED = ("_sum", "FETCH_SIZE", "WRITE_SIZE")
"""Endings of the names of derived counters that count: sums over instances, kilobytes."""
MOST = 1 << 10
"""The most counters of one process; a run collects some dozens."""
_MOST_VALUE = 1e18
COUNTER_RUN = (
    "run that collected hardware counters: its kernels ran one at a time and slower, so its times and gaps are not"
    " those of a plain run"
)
NOT_ADDED = "counter with several values per kernel that cannot be added up (a percentage, a mean): left out"
NO_NUMBER = "value of a counter that is no number: left out"
VALUE = late(r"[+-]?[0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][+-]?[0-9]{1,3})?")
"""A value in a table."""
Key = TypeVar("Key", bound=Hashable)


_BASE = late(r"(?:SQC?|TA|TD|TC[APC]|GRBM|SPI|CP[CFG]|GL[12][AC]|G?CEA|SX|GDS|CHC)_[A-Z0-9_\[\]]+")
"""The names of counters of a hardware block."""


def sort_by_name(name: str) -> Sort:
    """Return `sort_of` for a source that states only the name."""
    return "base" if _BASE.fullmatch(name) else sort_of(name, True, False)


def sort_of(name: str, is_derived: object, is_constant: object) -> Sort:
    """Return whether values of a counter can be added up."""
    if is_constant:
        return "constant"
    return "derived" if is_derived and not name.endswith(_SUMMED) else "base"


class Values(Generic[Key]):
    """The rows of counters of one process, by kernel."""

    def __init__(self, notes: Notes, place: str) -> None:
        self._notes = notes
        self._place = place
        self._number: dict[tuple[str, str, Sort], int] = {}
        self._values: dict[Key, dict[int, float | None]] = {}

    def add(self, key: Key, name: str, unit: str, sort: Sort, value: object) -> None:
        """Add one row: the value of a counter on one instance."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST_VALUE:
            self._notes.add(NO_NUMBER, self._place)
            return
        if not name:
            self._notes.add("counter without a name: left out", self._place)
            return
        identity = name, unit, sort
        number = self._number.get(identity)
        if number is None:
            if len(self._number) >= MOST:
                self._notes.add(f"counter beyond the first {MOST}: left out", self._place)
                return
            number = self._number[identity] = len(self._number)
        of_kernel = self._values.setdefault(key, {})
        if number not in of_kernel:
            of_kernel[number] = float(value)
            return
        before = of_kernel[number]
        if sort == "base" and before is not None:
            of_kernel[number] = before + value
        elif sort == "derived" or before != value:
            of_kernel[number] = None
            self._notes.add(NOT_ADDED, self._place, before is not None)

    def __bool__(self) -> bool:
        return bool(self._values)

    @property
    def counters(self) -> tuple[Counter, ...]:
        """The counters in the order in which they appear."""
        return tuple(Counter(name, unit) for name, unit, _ in self._number)

    def kernels(self) -> Iterator[tuple[Key, tuple[float | None, ...]]]:
        """The values of each kernel, in the order of `counters`."""
        numbers = range(len(self._number))
        for key, of_kernel in self._values.items():
            yield key, tuple(map(of_kernel.get, numbers))
