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
"""A thread's id that several processes have in one log: behind the number of its process, from 1, times this."""


class LocalTime(msgspec.Struct, frozen=True, gc=False):
    """A wall-clock time whose zone is not recorded. ``year`` is 0 when unknown; ``ns`` counts from midnight."""

    year: int
    month: int
    day: int
    ns: int


class LayerTime(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A layer's printed time: a mean over iterations, or one execution; only its ``stamp`` can show which.

    ``index`` is the position in the net from 0, shared by both directions. ``stamp`` is when the line was printed, None
    when there is none (or CK's placeholder, dvdt-ck.md 2.2).
    """

    source: int
    line: int = 0
    index: int
    layer: LayerName
    direction: Direction
    printed_ns: int
    stamp: LocalTime | None = None
    thread: int | None = None


class LogEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A log line that says where the run is. ``thread`` is the id that the line begins with."""

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
    """A layer as the net was built: its type where the log prints the net, each top's shape as ``"1x96x55x55"``."""

    source: int
    line: int
    layer: LayerName
    type: Name = ""
    tops: tuple[LayerName, ...] = ()


class FrameworkLog(msgspec.Struct, frozen=True, kw_only=True):
    """All that a framework's log (or CK's digest of one) states, in the order of its lines.

    ``average_*_ns`` come from CK's ``time_fw_ms`` and relatives; a log states them as events. ``iterations`` is the
    number asked for. ``threads`` are the ids of those that printed its lines, in
    order. ``facts`` are short statements about the run worth showing (device, model), never paths.
    """

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
