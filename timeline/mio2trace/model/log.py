"""Records of a framework's log: layers, passes, iterations, and the order of a net's layers.

A log lists a net several times, and a list may miss layers that another one has (dvdt-ck.md 2.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from mio2trace.model import LayerName, Name, Text

if TYPE_CHECKING:
    from mio2trace.model.tables import LayerTimes

Direction = Literal["forward", "backward"]

LogEventKind = Literal[
    "setting up",  # text = layer
    "forward begins",  # Performing Forward
    "forward ends",  # Initial loss
    "backward begins",  # Performing Backward
    "benchmark begins",
    "testing",  # number = iterations
    "iteration",  # number = iteration from 1, duration_ns; printed when it ends
    "average begins",  # Average time per layer:
    "average forward",  # duration_ns, and so on
    "average backward",
    "average iteration",
    "total",
    "benchmark ends",
    "layer ended",  # debug_info: text = layer, direction; printed when the layer has ended
]


PROCESS = 10**10
"""A thread id that several processes share in a log becomes: number of the process (from 1) times this + the id."""


class LocalTime(msgspec.Struct, frozen=True, gc=False):
    """A wall-clock time whose zone is not recorded. ``year`` is 0 if unknown; ``ns`` counts from midnight."""

    year: int
    month: int
    day: int
    ns: int


class LayerTime(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A printed time of a layer: a mean over iterations, or one execution; only ``stamp`` can show which of the two.
    ``index``: the position in the net from 0, equal in both directions. ``stamp``: when the line was printed; None if
    there is no stamp (or CK's placeholder, dvdt-ck.md 2.2)."""

    source: int
    line: int = 0
    index: int
    layer: LayerName
    direction: Direction
    printed_ns: int
    stamp: LocalTime | None = None
    thread: int | None = None


class LogEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A log line that shows the progress of the run. ``thread``: the id at the beginning of the line."""

    source: int
    line: int
    kind: LogEventKind
    stamp: LocalTime | None = None
    text: LayerName = ""
    direction: Direction | None = None
    number: int | None = None
    duration_ns: int | None = None
    thread: int | None = None


class NetLayer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A layer as the net was built: its type if the log prints it, and the shape of each top, ``1x96x55x55``."""

    source: int
    line: int
    layer: LayerName
    type: Name = ""
    tops: tuple[LayerName, ...] = ()


class FrameworkLog(msgspec.Struct, frozen=True, kw_only=True):
    """All that a framework's log (or CK's digest of a log) states, in the order of its lines. ``average_*_ns``: from
    CK's ``time_fw_ms`` and similar fields; a log states them as events. ``iterations``: the requested number.
    ``threads``: the ids of the threads that printed the lines, in order. ``facts``: short statements about the run that
    are worth showing (device, model), never paths."""

    source: int
    layers: Sequence[LayerTime] = ()
    events: tuple[LogEvent, ...] = ()
    net: tuple[NetLayer, ...] = ()
    iterations: int | None = None
    average_forward_ns: int | None = None
    average_backward_ns: int | None = None
    device_name: Text = ""
    first_stamp: LocalTime | None = None
    last_stamp: LocalTime | None = None
    threads: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        from mio2trace.model.tables import LayerTimes  # its columns are of this module's records

        if not isinstance(self.layers, LayerTimes):
            msgspec.structs.force_setattr(self, "layers", LayerTimes(self.layers))

    @property
    def times(self) -> LayerTimes:
        """``layers`` as a table, for those who work on its columns."""
        return cast("LayerTimes", self.layers)


# -- The order of a net's layers (dvdt-ck.md 2.1) ----------------------------------------------------------------------


def merged(tellings: Iterable[Sequence[str]]) -> list[str]:
    """Merge lists that are parts of one order: the longest one, with the names that only others have. Such a name is
    inserted before the name that follows it in its own list. If lists leave out different names, a split of a layer's
    output follows that layer."""
    by_length = sorted((list(dict.fromkeys(telling)) for telling in tellings), key=len, reverse=True)
    return _as_told(_joined(by_length), by_length)


def _joined(by_length: Sequence[list[str]]) -> list[str]:
    order = by_length[0] if by_length else []
    for telling in by_length[1:]:
        place = {name: number for number, name in enumerate(order)}
        before: dict[int, list[str]] = {}
        following = len(order)
        for name in reversed(telling):
            if name in place:
                following = place[name]
            else:
                before.setdefault(following, []).append(name)
        if before:
            order = [
                name
                for number in range(len(order) + 1)
                for name in (*reversed(before.get(number, ())), *order[number : number + 1])
            ]
    return order


def _as_told(order: list[str], tellings: Sequence[Sequence[str]]) -> list[str]:
    """Change ``order`` as little as possible so that no list contradicts it; return it as it is if the lists contradict
    each other. Two names that are missing in a list between the same neighbours may be in the wrong order, which
    another list shows."""
    place = {name: number for number, name in enumerate(order)}
    told = {(place[before], place[after]) for telling in tellings for before, after in pairwise(telling)}
    if all(before < after for before, after in told):
        return order
    from graphlib import CycleError, TopologicalSorter

    sorter = TopologicalSorter[int](dict.fromkeys(range(len(order)), ()))
    for before, after in told:
        sorter.add(after, before)
    try:
        sorter.prepare()
    except CycleError:
        return order
    ready: list[int] = []
    sorted_places: list[int] = []
    while sorter.is_active():
        for number in sorter.get_ready():
            heappush(ready, number)
        sorted_places.append(heappop(ready))
        sorter.done(sorted_places[-1])
    return [order[number] for number in sorted_places]


def oriented(telling: Sequence[str], like: Sequence[str]) -> Sequence[str]:
    """Return the list, reversed if that is the order of ``like``."""
    place = {name: number for number, name in enumerate(like)}
    places = [place[name] for name in telling if name in place]
    rising = sum(1 if before < after else -1 for before, after in pairwise(places))
    return telling if rising >= 0 else telling[::-1]
