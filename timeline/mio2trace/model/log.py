"""Records of a framework's log: layers, passes, iterations."""

from __future__ import annotations

from typing import Literal

import msgspec

from mio2trace.model.columns import LayerName, Name, Text

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
    layers: tuple[LayerTime, ...] = ()
    events: tuple[LogEvent, ...] = ()
    net: tuple[NetLayer, ...] = ()
    iterations: int | None = None
    average_forward_ns: int | None = None
    average_backward_ns: int | None = None
    device_name: Text = ""
    first_stamp: LocalTime | None = None
    last_stamp: LocalTime | None = None
    threads: tuple[int, ...] = ()
