"""Chrome's trace-event JSON in a form that all viewers read alike (perfetto-chrome-trace.md 1, 2).

Times are microseconds with three decimals, printed from integer nanoseconds. Text has no escapes, because importers
differ in how they read them. Only X events nest; arrows end with ``bp: e`` at the kernel's own start. Values that
change from event to event are at the end of the line: resuming after a changed number takes half of a compressed file.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice, repeat
from operator import itemgetter
from typing import Annotated, Any, BinaryIO, Literal

import msgspec
import numpy as np
import orjson

from mio2trace.patterns import late
from mio2trace.trace import (
    OWN_FIRST,
    Args,
    Column,
    Columns,
    CountersPart,
    CounterValue,
    CounterValues,
    Event,
    Flow,
    Flows,
    Part,
    Slice,
    Slices,
    Trace,
    each,
    in_columns,
    plain,
    whole,
)
from mio2trace.writers.ending import End, Found, Summed, cleaned, slice_name

_BEGINS = b'{"displayTimeUnit":"ns","metadata":'
_EVENTS = b'"traceEvents":[\n'
_END = late(rb'\],"mio2trace_end":\{"slices":(\d{1,18}),"crc32":"([0-9a-f]{8})"\}\}\n')
_CRC_TAIL = 12
_SLICE = b'{"ph":"X",'
_KINDS = tuple(f'{{"ph":"{kind}"'.encode() for kind in "XsfCM")
_LINE_ENDS = b"}\n", b"},\n"
_LATEST = 2.0**63 / 1000
_Whole = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Scalar = bool | _Whole | float | str | None
_OLD_END = b"]}\n"
"""Versions that wrote neither counts nor a CRC."""

_STRETCH = 8192
"""Events that are sorted at once: a few megabytes of text."""
_LONGEST_LINE = 1 << 26
_Part = Part | CountersPart
_FEWEST_IN_COLUMNS = 64
"""Fewer events are faster to print one by one."""
_UNCLEAN = "\\"
"""Replaces a text that must be cleaned."""
_LARGE = late(r"[0-9]{19}")
"""A number of as many digits as the largest integer of 64 bits."""
_DECIMALS = tuple(f".{rest:03d}" for rest in range(1000))


def write(trace: Trace, file: BinaryIO, *, to_pack: bool = False) -> int:
    """Write ``trace`` as one JSON object, one event per line: each part in its order, then the counters. Return the
    number of bytes.

    ``to_pack``: the output will be compressed, so similar lines are written together. Readers sort all events by time.
    """
    parts: Sequence[_Part] = (*trace.parts, *trace.counters.values())
    write_events: Callable[[Trace, Sequence[Any], BinaryIO], int] = _write_in_order
    if to_pack:
        write_events, parts = _write_alike_together, trace.whole_parts()
    headings = ",\n".join(_headings(trace))
    summed = Summed(file)
    summed.write(_BEGINS + f'{_json(trace.metadata)},"traceEvents":[\n{headings}'.encode())
    count = write_events(trace, parts, summed)  # type: ignore[arg-type]
    summed.write(f'\n],"mio2trace_end":{{"slices":{count},"crc32":"'.encode())
    tail = f'{summed.crc:08x}"}}}}\n'.encode()
    file.write(tail)
    return summed.size + len(tail)


class _Line(msgspec.Struct):
    """A slice as far as it is read back."""

    ph: Literal["X"]
    tid: _Whole
    ts: Annotated[float, msgspec.Meta(ge=-_LATEST, le=_LATEST)]
    dur: Annotated[float, msgspec.Meta(ge=0, le=_LATEST)]
    name: str
    cat: str
    args: dict[str, _Scalar | dict[str, _Scalar]]

    def slice(self) -> Slice:
        return Slice(self.tid, round(self.ts * 1000), round(self.dur * 1000), self.name, self.cat, self.args)


class _Kind(msgspec.Struct):
    ph: str = ""


class _Counted(msgspec.Struct):
    slices: int


class _File(msgspec.Struct):
    """A trace of ours that another program has formatted again."""

    traceEvents: list[msgspec.Raw]
    mio2trace_end: _Counted | None = None


_FAULTS = msgspec.MsgspecError, UnicodeDecodeError, RecursionError
_line = msgspec.json.Decoder(_Line).decode
_ENCODER = msgspec.json.Encoder()
_kind = msgspec.json.Decoder(_Kind).decode
_file = msgspec.json.Decoder(_File).decode


def slices(file: BinaryIO, category: str | None, found: Found) -> Iterator[Slice]:
    """Yield the slices of a category, or all, of a trace that `write` wrote; other findings go into ``found``."""
    first = file.readline(_LONGEST_LINE)
    if not (first.startswith(_BEGINS) and first.endswith(_EVENTS)):
        yield from _laid_out_otherwise(first + file.read(), category, found)
        return
    wanted = None if category is None else f'"cat":{_json(category)}'.encode()
    while line := file.readline(_LONGEST_LINE):
        if line.startswith(b"]"):
            if (end := _END.fullmatch(line)) is not None:
                found.end = End(int(end[1]), int(end[2], 16), _CRC_TAIL)
            elif line != _OLD_END:
                break
            found.goes_on = bool(file.read(1))
            return
        if not line.startswith(_KINDS) or not line.endswith(_LINE_ENDS):
            found.unread += 1
        elif line.startswith(_SLICE):
            found.slices += 1
            if wanted is None or wanted in line:
                try:
                    yield _line(line.rstrip(b",\n")).slice()
                except _FAULTS:
                    found.unread += 1
    found.is_cut = True


def _laid_out_otherwise(data: bytes, category: str | None, found: Found) -> Iterator[Slice]:
    """Read JSON that another program has formatted again."""
    found.is_rewritten = True
    try:
        whole = _file(data)
    except _FAULTS:
        found.unread += 1
        return
    if whole.mio2trace_end is not None:
        found.end = End(whole.mio2trace_end.slices, 0, _CRC_TAIL)
    for event in whole.traceEvents:
        try:
            if _kind(event).ph == "X":
                found.slices += 1
                one = _line(event)
                if category in (None, one.cat):
                    yield one.slice()
        except _FAULTS:
            found.unread += 1


def _write_in_order(trace: Trace, parts: Iterable[_Part], file: BinaryIO) -> int:
    """Write in order; return the number of slices."""
    printed = _Events(trace)
    count = 0
    for part in parts:
        for event in in_columns(part()):
            if isinstance(event, Slices):
                count += len(event)
                text = printed.slices(event)
            elif isinstance(event, CounterValues):
                text = printed.counter_values(event)
            elif isinstance(event, Flows):
                text = printed.flows(event)
            else:
                (text,) = printed.texts([event])
            file.write(text.encode())
    return count


def _write_alike_together(trace: Trace, parts: Iterable[Part], file: BinaryIO) -> int:
    """Sort each batch of events by their common values.

    A compressor looks back 32 KiB, often less than an iteration. In order of time, all names and shapes would be new to
    it every time.
    """
    texts = _Events(trace).texts
    count = 0
    for part in parts:
        events = each(part())
        while stretch := list(islice(events, _STRETCH)):
            count += list(map(type, stretch)).count(Slice)
            rows: dict[tuple[Any, ...], list[str]] = {}
            key: tuple[Any, ...] = (0,)
            span = None
            values: dict[tuple[int, str, str], tuple[int, list[str]]] = {}
            for event, text in zip(stretch, texts(stretch), strict=True):
                if type(event) is Slice:
                    # If slices have equal spans, the outer slice comes first: readers nest them by their order.
                    own = event.track, event.start_ns, event.dur_ns
                    key = key[0] + 1 if own == span else 0, event.category, event.name, id(event.shared), event.track
                    span = own
                # A counter is next to the slice that it describes, and so is an arrow: they have equal times.
                row = rows.setdefault(key, [])
                if type(event) is CounterValue:
                    # If a counter has two values at one time, the last one counts.
                    counter = event.process, event.name, event.unit
                    at, before = values.get(counter, (-1, row))
                    row = before if at == event.time_ns else row
                    values[counter] = event.time_ns, row
                row.append(text)
            for key in sorted(rows, key=itemgetter(0)):
                file.write("".join(rows[key]).encode())
    return count


class _Events:
    """Prints events, each with the comma before it; shared parts are printed once and kept."""

    def __init__(self, trace: Trace) -> None:
        self._places = {track.id: f'"pid":{track.process},"tid":{track.id}' for track in trace.tracks}
        self._flows: dict[str, str] = {}
        self._counters: dict[tuple[int, str, str], str] = {}
        self._shared: dict[int, tuple[Args, str]] = {}
        self._heads: dict[tuple[int, str, str, int], tuple[str, str, str]] = {}

    def _head(self, event: Slice) -> tuple[str, str, str]:
        """Return the printed parts of slices with this name, track and shared arguments: the whole without own
        arguments; the text before own arguments; the text after them."""
        same = event.shared
        held = self._shared.get(id(same))
        if held is None:
            # The mapping is kept with its text, so that no other mapping can get its id.
            held = self._shared[id(same)] = (same, _json(same)[1:-1] if same else "")
        label = f'"name":{_json(slice_name(event.name))},"cat":{_json(event.category)},"args":'
        label = f',\n{{"ph":"X",{self._places[event.track]},{label}{{'
        text = held[1]
        if text and event.category in OWN_FIRST:
            return f"{label}{text}}}", label, f",{text}}}"
        return f"{label}{text}}}", f"{label}{text}," if text else label, "}"

    def texts(self, events: Sequence[Event]) -> list[str]:
        """Return the lines of each event."""
        lines = self._lines(whole([event for event in events if type(event) is Slice]))
        if len(lines) == len(events):
            return lines
        slices, values = iter(lines), iter(_values([one.value for one in events if type(one) is CounterValue]))
        return [
            next(slices)
            if type(event) is Slice
            else self._counter(event, next(values))
            if type(event) is CounterValue
            else self._flow(event)
            for event in events
        ]

    def _heads_of(self, event: Slice) -> tuple[str, str, str]:
        place = (id(event.shared), event.name, event.category, event.track)
        heads = self._heads.get(place)
        if heads is None:
            heads = self._heads[place] = self._head(event)
        return heads

    def slices(self, row: Slices) -> str:
        lines = list(chain.from_iterable(map(self._lines, row.columns)))
        return "".join(lines if row.order is None else map(lines.__getitem__, row.order.tolist()))

    def _lines(self, columns: Columns) -> list[str]:
        codes, likes = columns.likes.codes.tolist(), columns.likes.values
        heads = {code: self._heads_of(likes[code]) for code in dict.fromkeys(codes)}
        own = _own_columns(columns)
        if any(like.args for like in likes):
            firsts = map(_own_args(likes).__getitem__, codes)
            own = [f"{first}{',' if first and text else ''}{text}" for first, text in zip(firsts, own, strict=True)]
        rows = zip(codes, own, columns.starts.tolist(), columns.durations.tolist(), strict=True)
        lines = []
        for code, text, start, duration in rows:
            alone, before, behind = heads[code]
            if not text:
                before, behind = alone, ""
            lines.append(
                f'{before}{text}{behind},"ts":{start // 1000}{_DECIMALS[start % 1000]},'
                f'"dur":{duration // 1000}{_DECIMALS[duration % 1000]}}}'
            )
        return lines

    def flows(self, row: Flows) -> str:
        columns = (one.tolist() for one in (row.ids, row.from_ns, row.to_tracks, row.to_ns))
        return "".join(map(self._arrow, repeat(row.name), repeat(row.from_track), *columns))

    def _flow(self, event: Event) -> str:
        assert type(event) is Flow
        return self._arrow(event.name, event.from_track, event.id, event.from_ns, event.to_track, event.to_ns)

    def _arrow(self, what: str, from_track: int, number: int, start: int, to_track: int, end: int) -> str:
        name = self._flows.get(what)
        if name is None:
            name = self._flows[what] = _json(what)
        tail = f',"name":{name},"cat":"flow","id":{number}}}'
        return (
            f',\n{{"ph":"s",{self._places[from_track]},"ts":{start // 1000}{_DECIMALS[start % 1000]}{tail}'
            f',\n{{"ph":"f","bp":"e",{self._places[to_track]},"ts":{end // 1000}{_DECIMALS[end % 1000]}{tail}'
        )

    def counter_values(self, row: CounterValues) -> str:
        head = self._counter_head(row.process, row.name, row.unit)
        places = zip(_values(row.values), row.times, strict=True)
        return "".join([f'{head}{value}}},"ts":{at // 1000}{_DECIMALS[at % 1000]}}}' for value, at in places])

    def _counter_head(self, process: int, name: str, unit: str) -> str:
        """Return the printed beginning of each value of a counter."""
        head = self._counters.get((process, name, unit))
        if head is None:
            head = f',\n{{"ph":"C","pid":{process},"name":{_json(name)},"cat":"counter","args":{{{_json(unit)}:'
            self._counters[process, name, unit] = head
        return head

    def _counter(self, event: CounterValue, value: str) -> str:
        head = self._counter_head(event.process, event.name, event.unit)
        at = event.time_ns
        return f'{head}{value}}},"ts":{at // 1000}{_DECIMALS[at % 1000]}}}'


def _headings(trace: Trace) -> list[str]:
    """Return names and order. Speedscope needs a ``ts`` on every event."""
    lines = []
    for process in trace.processes:
        lines.append(_heading("process_name", process.id, None, {"name": process.name}))
        lines.append(_heading("process_sort_index", process.id, None, {"sort_index": process.sort}))
    for track in trace.tracks:
        lines.append(_heading("thread_name", track.process, track.id, {"name": track.name}))
        lines.append(_heading("thread_sort_index", track.process, track.id, {"sort_index": track.sort}))
    return lines


def _heading(name: str, process: int, track: int | None, args: dict[str, str | int]) -> str:
    event: dict[str, Any] = {"ph": "M", "pid": process}
    if track is not None:
        event["tid"] = track
    return _json(event | {"ts": 0, "name": name, "args": args})


def _own_args(slices: Sequence[Slice]) -> list[str]:
    """Return the members of each slice's own arguments, printed together if they are equal: three times as fast."""
    try:
        text = orjson.dumps([event.args for event in slices], default=dict).decode()
    except orjson.JSONEncodeError:
        text = _UNCLEAN
    return _members(_UNCLEAN if _LARGE.search(text) else text, len(slices)) or [
        _json(event.args)[1:-1] for event in slices
    ]


def _own_columns(columns: Columns) -> list[str]:
    count, text = len(columns.starts), _UNCLEAN
    if not columns.args:
        return [""] * count
    if count >= _FEWEST_IN_COLUMNS:
        with contextlib.suppress(OverflowError, TypeError, ValueError):
            made, printed = list(map(_record(tuple(columns.args)), *map(_printed, columns.args.values()))), bytearray()
            _ENCODER.encode_into(made, printed)  # `encode` crashes if its buffer cannot grow
            text = printed.decode()
    return _members(text, count) or [
        _json({key: value for key, value in zip(columns.args, values, strict=True) if value is not None})[1:-1]
        for values in zip(*map(plain, columns.args.values()), strict=True)
    ]


@lru_cache
def _record(keys: tuple[str, ...]) -> type[msgspec.Struct]:
    """Return a class of objects with these members in this order. JSON leaves out members that are None. Raises
    ValueError for keys that are no text of ours.
    """
    names = {f"a{number}": key for number, key in enumerate(keys)}
    fields = [(name, Any, None) for name in names]
    return msgspec.defstruct("_Record", fields, rename=names, omit_defaults=True, gc=False)


def _printed(column: Column) -> Sequence[Any]:
    """The values of a column. Raises OverflowError where an integer has more than 63 bits."""
    if not isinstance(column, np.ndarray):
        array("q", [value for value in column.values if type(value) is int])
    return plain(column)


def _members(text: str, count: int) -> list[str]:
    """Return the members of each of the objects in a list; none if `_json` would print one of them differently."""
    if _is_clean(text):
        members = text[2:-2].split("},{")
        if len(members) == count:  # else one of them contains the text that only comes between two
            return members
    return []


def _values(of_counters: Sequence[float]) -> list[str]:
    """Return values of counters, printed together."""
    try:
        return orjson.dumps(of_counters).decode()[1:-1].split(",")
    except orjson.JSONEncodeError:  # an integer of more than 64 bits
        return [*map(_json, of_counters)]


def _json(value: Any) -> str:
    """Return JSON without any escape or control character: text is cleaned if necessary."""
    try:
        text = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # a lone surrogate, an integer of more than 64 bits
        return orjson.dumps(cleaned(value)).decode()
    return text if _is_clean(text) and not _LARGE.search(text) else orjson.dumps(cleaned(value)).decode()


def _is_clean(text: str) -> bool:
    """Return whether no text in it had to be cleaned; this is three times as fast for str as for bytes."""
    return "\\" not in text and "\x7f" not in text and text.isascii()
