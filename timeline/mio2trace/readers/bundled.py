"""Records of a bundle (`mio2trace bundle`): the cleaned records of a reader, one JSON object per line.

    {"schema": "mio2trace records 1", "format": "rocprofv3 database (rocpd)"}
    Profile {"source": 0, "records": 120, "queues": [...], ...}
    .activities {"number": 1, "kind": "kernel", "name": "MIOpenConvUni", ...}
    .ranges {"kind": "range", "text": "s_api = miopenConvolutionForward", ...}

Lines that begin with a dot are members of a tuple of the record before them (``.records Entry {...}`` if members have
several types). Bytes are written as text, one character per byte, so that a person can read a bundle. Types are checked
while reading, and so are the places in other tuples to which a record refers. A file that is cut off is read up to its
last whole line.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any

import msgspec

from mio2trace.model.choices import GemmChoice, GemmTable, SolverRecord, SolverTable
from mio2trace.model.log import FrameworkLog, LayerTime, LogEvent, NetLayer
from mio2trace.model.miopen import Command, Entry, Message, MiopenLog
from mio2trace.model.profile import Activity, Call, Clock, Framework, Node, Profile, Range, misplaced
from mio2trace.model.tf import TfNode, TfProfile, TfView, ViewRow
from mio2trace.notes import InputError, Notes
from mio2trace.outgoing import shortened, visible
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Record, Records
from mio2trace.source import Source

NAME = "records of a bundle"
SCHEMA = "mio2trace records 1"
_BEGINS = b'{"schema":"mio2trace records '
ROWS: Mapping[type[msgspec.Struct], Mapping[str, tuple[type[msgspec.Struct], ...]]] = {
    Profile: {"activities": (Activity,), "other_calls": (Call,), "ranges": (Range,)},
    Framework: {"nodes": (Node,)},
    FrameworkLog: {"layers": (LayerTime,), "events": (LogEvent,), "net": (NetLayer,)},
    MiopenLog: {"records": (Entry, Command, Message)},
    TfProfile: {"nodes": (TfNode,)},
    TfView: {"rows": (ViewRow,)},
    SolverTable: {"records": (SolverRecord,)},
    GemmTable: {"gemms": (GemmChoice,)},
}
"""Tuples whose members have lines of their own."""
_KINDS = {kind.__name__: kind for kind in ROWS if kind is not Framework}


_MOST_PROBLEMS, _LONGEST_PROBLEM = 50, 300
_NEARLY_64_BITS = late(rb"9\d{18}")
_TOO_MANY, _ALL_ZERO = b"0" * 20, bytes.maketrans(b"123456789", b"0" * 9)


class Head(msgspec.Struct, frozen=True):
    """The first line. ``format``: of the file from which the records were read. ``problems``: kinds and counts of what
    its reader noted."""

    schema: str
    format: str = ""
    problems: dict[str, Annotated[int, msgspec.Meta(ge=1, le=1 << 62)]] = {}


class _LogHead(msgspec.Struct):
    """The line of a `MiopenLog`, whose members msgspec cannot distinguish."""

    source: int
    counts: tuple[tuple[str, int], ...] = ()
    foreign: int = 0
    freed: int = 0


class _Damaged(Exception):
    """A line is damaged; the message names the error."""


def sniff(head: bytes) -> bool:
    return head.startswith(_BEGINS)


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return the records. Raises `InputError` for another version, and if nothing can be read."""
    lines = enumerate(source.lines(), 1)
    _, first = next(lines)
    try:
        head = msgspec.json.decode(first, type=Head)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InputError(f"{source.name}: line 1: {error}") from None
    if head.schema != SCHEMA:
        raise InputError(f"{source.name}: is of {head.schema!r}; expected {SCHEMA!r}")
    for kind, count in islice(head.problems.items(), _MOST_PROBLEMS):
        notes.add(visible(shortened(kind, _LONGEST_PROBLEM)), source.name, count)
    drafts: list[_Draft] = []
    for number, line in lines:
        if not line.endswith(b"\n"):
            notes.cut_off(source.name, f"line {number}")
            break
        try:
            if not line.startswith(b"."):
                drafts.append(_Draft(line))
            elif drafts:
                drafts[-1].add(line)
            else:
                raise _Damaged("a member of no record")
        except (_Damaged, msgspec.DecodeError, UnicodeError, RecursionError) as error:
            notes.add("records of a bundle damaged: read up to there", f"{source.name}, line {number}: {error}")
            break
    records: Records = []
    for draft in drafts:
        try:
            records.append(draft.made(source.index))
        except _Damaged as error:
            raise InputError(f"{source.name}: {error}") from None
    if not records:
        raise InputError(f"{source.name}: no record; expected a line such as 'Profile {{...}}'")
    return records


class _Draft:
    """A record that is being read: its line, and the members of its tuples."""

    def __init__(self, line: bytes) -> None:
        name, _, text = line.partition(b" ")
        kind = _KINDS.get(name.decode("ascii", "replace"))
        if kind is None:
            raise _Damaged(f"a record of {name[:40]!r}; expected one of {', '.join(_KINDS)}")
        self._kind = kind
        self._record = _restored(kind, text)
        self._rows: dict[str, list[Any]] = {}
        self._same: dict[Any, Any] = {}

    def add(self, line: bytes) -> None:
        words, brace, text = line[1:].partition(b"{")
        field, _, name = words.decode("ascii", "replace").strip().partition(" ")
        # The members of a profile's framework also have lines.
        kinds = {**ROWS[self._kind], **(ROWS[Framework] if self._kind is Profile else {})}.get(field, ())
        kind = next((one for one in kinds if one.__name__ == name or (not name and len(kinds) == 1)), None)
        if kind is None:
            raise _Damaged(f"a member of {words[:40]!r}")
        row = _restored(kind, brace + text)
        if isinstance(row, Activity):
            row = self._with_shared(row)
        elif isinstance(row, Entry):
            row = msgspec.structs.replace(row, call=self._shared(row.call))
        self._rows.setdefault(field, []).append(row)

    def _with_shared(self, activity: Activity) -> Activity:
        """Share equal parts between activities. An activity that ends before it begins gets no time."""
        start, end = activity.start_ns, activity.end_ns
        told = start is not None and end is not None and start <= end
        return msgspec.structs.replace(
            activity,
            start_ns=start if told else None,
            end_ns=end if told else None,
            call=None if activity.call is None else self._shared(activity.call),
            opencl=self._shared(activity.opencl),
            resources=None if activity.resources is None else self._shared(activity.resources),
        )

    def _shared(self, value: Any) -> Any:
        return self._same.setdefault((type(value), value), value)

    def made(self, source: int) -> Record:
        record, rows = self._record, {name: tuple(rows) for name, rows in self._rows.items()}
        if isinstance(record, Profile):
            marks = tuple(record.opencl.marks)
            record = msgspec.structs.replace(record, opencl=msgspec.structs.replace(record.opencl, marks=marks))
            if "nodes" in rows:
                nodes = msgspec.structs.replace(record.framework, nodes=rows.pop("nodes"))
                record = msgspec.structs.replace(record, framework=nodes)
        fields = {name: getattr(record, name) for name in record.__struct_fields__}
        record = self._kind(**fields | rows)
        if isinstance(record, Profile) and (wrong := misplaced(record)):
            raise _Damaged(wrong)
        return _of_source(record, source)  # type: ignore[return-value]


def _restored(kind: type[msgspec.Struct], text: bytes) -> Any:
    """Return the record that a line holds, without the tuples whose members have lines. Bytes are text in the file."""
    if _NEARLY_64_BITS.search(text) is not None or _TOO_MANY in text.translate(_ALL_ZERO):
        _refuse_long(msgspec.json.decode(text))
    if kind not in ROWS and kind is not Entry:
        return msgspec.json.decode(text, type=kind)  # a fourth of the time
    fields = msgspec.json.decode(text, type=dict[str, Any]) | dict.fromkeys(ROWS.get(kind, ()), ())
    opencl = fields.get("opencl")
    programs = opencl.get("programs") if kind is Profile and isinstance(opencl, dict) else None
    for holder in [fields, fields.get("call")] if kind is Entry else programs if isinstance(programs, list) else ():
        if isinstance(holder, dict):
            for name in ("source", "template", "addresses"):
                if isinstance(cell := holder.get(name), str):
                    holder[name] = cell.encode("latin-1")
    return msgspec.convert(fields, _LogHead if kind is MiopenLog else kind, builtin_types=(bytes,), str_keys=True)


def _refuse_long(value: Any) -> None:
    """Raise `_Damaged` for a whole number of more than 63 bits: readers leave these out, and no column holds them."""
    if isinstance(value, int) and not -(1 << 63) < value < 1 << 63:
        raise _Damaged("a number of more than 63 bits")
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _refuse_long(one)


def _of_source(record: msgspec.Struct, source: int) -> msgspec.Struct:
    """Return the record with the number of the input from which it was read."""
    changes: dict[str, Any] = {"source": source}
    for field, kinds in ROWS[type(record)].items():
        if any("source" in kind.__struct_fields__ for kind in kinds):
            changes[field] = tuple(
                msgspec.structs.replace(one, source=source) if "source" in one.__struct_fields__ else one
                for one in getattr(record, field)
            )
    if isinstance(record, Profile):
        changes["clocks"] = tuple(_clock_of(clock, source) for clock in record.clocks)
    return msgspec.structs.replace(record, **changes)


def _clock_of(clock: Clock, source: int) -> Clock:
    """Return the clock of this file; a bundle before 0.3 calls the place of any clock a machine."""
    own = clock.is_of_a_file or (clock.kind == "opaque" and clock.scope)
    return msgspec.structs.replace(clock, scope=f"file {source}") if own else clock
