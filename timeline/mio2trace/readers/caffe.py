"""Caffe's log: glog lines of ``caffe time`` and of the net's construction (dvdt-ck.md 2.1).

    I1120 10:46:48.020552  2155 caffe.cpp:465]      conv1<TAB>forward: 30.968 ms.
    I20261120 05:46:51.769948  2308 caffe.cpp:473] Average Forward pass: 535.215 ms.

Stamps are local time; the four-digit form has no year. The reader does not decide which stamps bound the run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date
from functools import lru_cache
from typing import Any

import numpy as np

from mio2trace.model.log import (
    Direction,
    FrameworkLog,
    LocalTime,
    LogEvent,
    LogEventKind,
    NetLayer,
    merged,
    oriented,
)
from mio2trace.model.tables import Day, Growing, LayerTimes, Pool
from mio2trace.notes import Notes
from mio2trace.patterns import late

GLOG = late(
    rb"[IWEF](\d{4})?(\d\d)(\d\d)\s+(\d\d):(\d\d):(\d\d)\.(\d{6})\s+(\d+)\s+[^\s\]]+:\d+\]\s?(.*)",
    re.DOTALL,
)
HEAD_ENDS = late(rb":\d+\]")
"""This text is in every line of glog, and a search for it excludes most other lines fast."""
GLOG_HEAD = late(rb"[IWEF](?:\d{4})?\d{4}\s+\d\d:\d\d:\d\d\.\d{6}\s+\d+\s+[^\s\]]+:\d+\]")
_LAYER = late(
    r"\s*+(\S.*?)(?<!\s)\s++(forward|backward):\s+(\S+)\s*(ms|milli ?seconds|seconds)\b", re.IGNORECASE | re.ASCII
)
_UNIT_NS = {"ms": 1_000_000, "milliseconds": 1_000_000, "milli seconds": 1_000_000, "seconds": 1_000_000_000}
_MS = " ms."
_LINE_ENDS = b" ms.\n"
_MICROSECONDS = 6
_PLAIN_DIGITS = 9
"""A time with more digits is too long to be one."""
_LAYER_ENDED = late(r"\s*\[(Forward|Backward)\] Layer (.+?), (?:top blob|bottom blob|param blob) ")
_ITERATION = late(r"Iteration: ([0-9]{1,9}) forward(?:-backward)? time: ([-+.0-9eE]+) ms")
_TESTING = late(r"Testing for ([0-9]{1,9}) iterations")
_AVERAGE = late(r"(Average Forward pass|Average Backward pass|Average Forward-Backward|Total Time): ([-+.\deE]+) ms")
_AVERAGES: dict[str, LogEventKind] = {
    "Average Forward pass": "average forward",
    "Average Backward pass": "average backward",
    "Average Forward-Backward": "average iteration",
    "Total Time": "total",
}
_PHRASES: tuple[tuple[str, LogEventKind], ...] = (
    ("Performing Forward", "forward begins"),
    ("Initial loss:", "forward ends"),
    ("Performing Backward", "backward begins"),
    ("*** Benchmark begins ***", "benchmark begins"),
    ("Average time per layer:", "average begins"),
    ("*** Benchmark ends ***", "benchmark ends"),
)
_OF_BENCHMARK = ("benchmark begins", "benchmark ends")
_SETTING_UP = late(r"Setting up (.+)")
_CREATING = late(r"Creating [Ll]ayer (.+)")
_BACKWARD = late(r"(.+) (?:needs|does not need) backward computation\.")
_TOP_SHAPE = late(r"Top shape: ((?:[0-9]{1,18} ){1,32})\(")
_NET_TEXT = "Initializing net from parameters:"
_NET_FIELD = late(rb'(?:^|(?<="))  (name|type): "([^"]*)"(?=\s*$|  )')  # two in a line that lost its end
_NET_LINE = late(rb"\s*(?:\w+\s*[:{]|\}|$)")


LEAP_YEAR = 2000
"""Replaces an unknown year: its February has 29 days."""
LONGEST_PRINTED_NS = 10**16
"""115 days: a longer time comes from a broken timer (1.8e13 ms occurs in published records)."""


def nanoseconds(text: str, unit_ns: int = 1_000_000) -> int | None:
    """Return the ns of a printed ``%g`` number, of milliseconds by default; None if it is no number or negative."""
    if not text.isascii() or "_" in text:  # characters that Python accepts as digits, and that no program prints
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return round(value * unit_ns) if 0 <= value * unit_ns < LONGEST_PRINTED_NS else None


Digits = str | bytes | None


def local_time(*digits: Digits) -> LocalTime | None:
    """Return a stamp from the digits of year (or None), month, day, hour, minute, second and its fraction (at most
    nine, or None); None if there is no such moment."""
    begins, fraction = _second(digits[:6]), digits[6]
    if begins is None:
        return None
    years, months, days, clock = begins
    part = int(fraction) * 10 ** (9 - len(fraction)) if fraction else 0
    return LocalTime(years, months, days, clock + part)


@lru_cache(maxsize=1 << 8)
def _second(digits: tuple[Digits, ...]) -> tuple[int, int, int, int] | None:
    """Return the date and the ns from midnight; cached, because a log has thousands of lines per second."""
    year, month, day, hour, minute, second = (int(part or 0) for part in digits)
    try:
        date(year or LEAP_YEAR, month, day)
    except ValueError:
        return None
    if (digits[0] and not year) or hour > 23 or second > 60:
        return None
    return year, month, day, ((hour * 60 + minute) * 60 + second) * 1_000_000_000


class CaffeDecoder:
    """Reads the glog lines of a log and the net text among them, and returns the `FrameworkLog` at the end."""

    def __init__(self, source: int, place: str, notes: Notes) -> None:
        self._source = source
        self._place = place
        self._notes = notes
        self._layers = Growing(("line", "printed_ns", "clock_ns", "day", "head"))
        self._days: dict[Day, int] = {}
        self._heads: dict[tuple[str, Direction, int | None], int] = {}
        self._events: list[LogEvent] = []
        # To read again what equals an earlier line: the text up to the fraction of a second of the last layer's line,
        # its day and ns from midnight, and heads by the text between that fraction and the printed time.
        self._second: tuple[bytes, int, int] = b"", 0, 0
        self._head_of: dict[bytes, int] = {}
        self._ends_with_time = False
        """Whether the last layer's line does."""
        self._net: dict[str, NetLayer] = {}
        self._tops: dict[str, list[str]] = {}
        self._types: dict[str, str] = {}
        self._position: dict[str, int] = {}
        self._printed: dict[str, dict[str, None]] = {"forward": {}, "backward": {}}
        self._created: dict[str, None] = {}
        self._asked: dict[str, None] = {}  # whether layers need a backward pass, from the last layer to the first
        self.in_net_text = False
        """Whether the next line may belong to a printed net."""
        self._net_name = ""
        self._setting_up = ""
        self._iterations: int | None = None
        self._first: LocalTime | None = None
        self._last: LocalTime | None = None
        self._threads: dict[bytes, int] = {}
        self._thread: int | None = None
        self.lines = 0

    def feed(self, number: int, line: bytes) -> bool:
        """Take a line if it is a glog line or part of a printed net."""
        if self.again(number, line):
            return True
        match = None
        if b"]" in line:
            match = GLOG.match(line) or (GLOG.search(line) if HEAD_ENDS.search(line) else None)
        *digits, thread, text = match.groups() if match is not None else (b"", b"")
        stamp = local_time(*digits) if digits else None
        if stamp is None:
            return self.in_net_text and self.takes_of_net(line)
        self.in_net_text = False
        self.lines += 1
        self._first = self._first or stamp
        self._last = stamp
        self._thread = self._threads.get(thread)
        if self._thread is None and len(thread) < 20:
            self._thread = self._threads[thread] = int(thread)
        text = text.rstrip()
        shown, known = text.decode(errors="replace"), len(self._layers)
        any(decode(self, number, stamp, shown) for decode in _DECODERS)
        if len(self._layers) > known and match is not None and not match.start():
            self._remember(line, match)
        return True

    def takes_of_net(self, line: bytes) -> bool:
        """Take a line of a printed net, while `in_net_text`; also an empty one."""
        if _NET_LINE.match(line) is None:
            return False  # another program's line in between
        for field, text in _NET_FIELD.findall(line):
            value = text.decode(errors="replace")
            if field == b"name":
                self._net_name = value
            else:
                self._types.setdefault(self._net_name, value)
        return True

    @property
    def in_benchmark(self) -> bool:
        """Whether a benchmark has begun and not ended."""
        last = next((event.kind for event in reversed(self._events) if event.kind in _OF_BENCHMARK), None)
        return last == "benchmark begins"

    def finish(self) -> FrameworkLog:
        kinds = Counter(event.kind for event in self._events)
        writers = {thread for _, _, thread in self._heads}
        runs = max(kinds["benchmark begins"], kinds["average begins"], kinds["average iteration"], len(writers))
        if runs > 1:
            self._notes.remark("log of several benchmarks: times are means over them", f"{self._place}: {runs}")
        built = [list(self._tops), list(self._created), list(self._types), list(self._asked)[::-1]]
        tellings = [*built, list(self._printed["forward"])]
        backward = list(self._printed["backward"])
        order = merged([*tellings, oriented(backward, merged(tellings))])
        index = {name: place for place, name in enumerate(order)}
        net = []
        for name in order if any(built) else ():
            line, tops = self._position.get(name, 0), tuple(self._tops.get(name, ()))
            of = self._types.get(name, "")
            net.append(NetLayer(source=self._source, line=line, layer=name, type=of, tops=tops))
        layers = self._table(index)
        return FrameworkLog(
            source=self._source,
            layers=layers,
            events=tuple(self._events),
            net=tuple(net),
            iterations=self._iterations,
            first_stamp=self._first,
            last_stamp=self._last or (layers.stamp(-1) if layers else None),
            threads=tuple(dict.fromkeys(self._threads.values())),
        )

    def _table(self, index: Mapping[str, int]) -> LayerTimes:
        """Return the layers' lines; ``index``: the place of each layer in the net."""
        rows, days = self._layers, [*self._days]
        heads, head = [*self._heads], rows["head"]
        made: LayerTimes = LayerTimes.of_columns(
            len(rows),
            source=np.full(len(rows), self._source),
            place=np.array([index[name] for name, _, _ in heads], np.int64)[head],
            layer=Pool.of(name for name, _, _ in heads).take(head),
            direction=Pool.of(direction for _, direction, _ in heads).take(head),
            thread=Pool.of(thread for _, _, thread in heads).take(head),
            day=Pool(days, rows["day"].astype(np.int32)),
            **{name: rows[name] for name in ("line", "printed_ns", "clock_ns")},
        )
        return made

    def _event(self, kind: LogEventKind, line: int, stamp: LocalTime, **more: Any) -> None:
        event = LogEvent(source=self._source, line=line, kind=kind, stamp=stamp, thread=self._thread, **more)
        self._events.append(event)

    def _layer(self, line: int, stamp: LocalTime, text: str) -> bool:
        match = _LAYER.match(text) if "ward:" in text.lower() else None
        if match is None:
            return False
        printed, name = nanoseconds(match[3], _UNIT_NS[match[4].lower()]), match[1]
        direction: Direction = "forward" if match[2].lower() == "forward" else "backward"
        self._printed[direction][name] = None
        if printed is None:
            self._notes.add("printed layer time that cannot be", f"{self._place}:{line}: {match[3]} {match[4]}"[:80])
            return True
        self._ends_with_time = text[match.end(3) :] == _MS
        day = self._days.setdefault(Day(stamp.year, stamp.month, stamp.day), len(self._days))
        head = self._heads.setdefault((name, direction, self._thread), len(self._heads))
        self._layers.add((line, printed, stamp.ns, day, head))
        return True

    def _remember(self, line: bytes, match: re.Match[bytes]) -> None:
        """Remember the line of a layer, which was the last one taken."""
        *_, clock_ns, day, head = self._layers.last
        self._second = line[: match.end(6)], day, clock_ns - int(match[7]) * 1000
        if self._ends_with_time and line.endswith(_LINE_ENDS):
            self._head_of[line[match.end(7) : line.rfind(b" ", 0, -len(_LINE_ENDS)) + 1]] = head

    def again(self, number: int, line: bytes) -> bool:
        """Take the line of a layer that equals an earlier one except for the fraction of the second and the time."""
        second, day, clock_ns = self._second
        if not (line.endswith(_LINE_ENDS) and line.startswith(second)):
            return False
        begin = len(second) + 1
        end = begin + _MICROSECONDS
        at = line.rfind(b" ", 0, -len(_LINE_ENDS)) + 1
        head = self._head_of.get(line[end:at])
        fraction, digits = line[begin:end], line[at : -len(_LINE_ENDS)]
        if head is None or len(digits) > _PLAIN_DIGITS or not digits.replace(b".", b"", 1).isdigit():
            return False
        if line[begin - 1 : begin] != b"." or not fraction.isdigit():
            return False
        self._layers.add((number, round(float(digits) * _UNIT_NS["ms"]), clock_ns + int(fraction) * 1000, day, head))
        self._last = None
        self.in_net_text = False
        self.lines += 1
        return True

    def _phrase(self, line: int, stamp: LocalTime, text: str) -> bool:
        kind = next((kind for phrase, kind in _PHRASES if text.startswith(phrase)), None)
        if kind is not None:
            self._event(kind, line, stamp)
        return kind is not None

    def _number(self, line: int, stamp: LocalTime, text: str) -> bool:
        if text[:1] not in "ITA":
            return False
        if match := _ITERATION.match(text):
            self._event("iteration", line, stamp, number=int(match[1]), duration_ns=nanoseconds(match[2]))
        elif match := _TESTING.match(text):
            self._iterations = int(match[1])
            self._event("testing", line, stamp, number=int(match[1]))
        elif match := _AVERAGE.match(text):
            self._event(_AVERAGES[match[1]], line, stamp, duration_ns=nanoseconds(match[2]))
        else:
            return False
        return True

    def _ended(self, line: int, stamp: LocalTime, text: str) -> bool:
        match = _LAYER_ENDED.match(text) if "] Layer " in text else None
        if match is None:
            return False
        self._event("layer ended", line, stamp, text=match[2], direction=match[1].lower())
        return True

    def _construction(self, line: int, stamp: LocalTime, text: str) -> bool:
        if text.startswith(_NET_TEXT):
            self.in_net_text = True
            self._net_name = ""
        elif match := _SETTING_UP.match(text):
            self._setting_up = match[1]
            self._tops[self._setting_up] = []
            self._position[self._setting_up] = line
            self._event("setting up", line, stamp, text=self._setting_up)
        elif match := _CREATING.match(text):
            self._created[match[1]] = None
        elif match := _BACKWARD.match(text):
            self._asked[match[1]] = None
        elif (match := _TOP_SHAPE.match(text)) and self._setting_up:
            self._tops[self._setting_up].append("x".join(match[1].split()))
        else:
            return False
        return True


_DECODERS: tuple[Callable[[CaffeDecoder, int, LocalTime, str], bool], ...] = (
    CaffeDecoder._layer,
    CaffeDecoder._phrase,
    CaffeDecoder._number,
    CaffeDecoder._ended,
    CaffeDecoder._construction,
)
