"""A native trace read back with the classes of the ``perfetto`` package, none of our own code: what tests compare."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

CLEARED, NEEDS = 1, 2


class Drawn(NamedTuple):
    """A slice: the names of its process and track, times in ns, name, category, arguments."""

    process: str
    track: str
    start: int
    duration: int
    name: str
    category: str
    args: dict[str, Any]


class Picture(NamedTuple):
    """Everything that both forms carry. Arrows and samples are sorted."""

    slices: list[Drawn]
    arrows: list[tuple[int, tuple[str, str, int, str], tuple[str, str, int, str]]]
    samples: list[tuple[str, str, int, float]]
    tracks: list[tuple[str, str]]


class Native(NamedTuple):
    """A decoded native trace; what only this form has comes beside the picture."""

    picture: Picture
    attributes: dict[str, int | str]
    descriptors: dict[int, Any]
    correlations: dict[tuple[str, str], set[int]]
    packets: int


class _State:
    """What a packet sequence remembers."""

    def __init__(self) -> None:
        names = "event_categories", "event_names", "debug_annotation_names", "debug_annotation_string_values"
        self.tables: dict[str, dict[int, str]] = {name: {} for name in names}
        self.track = 0
        self.clock = 0
        self.valid = False
        self.counted: dict[int, int] = {}

    def text(self, table: str, iid: int) -> str:
        assert iid, "an iid of 0 is none"
        return self.tables[table][iid]


def classes() -> Any:
    """The module of the generated classes; it has no types."""
    return importlib.import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


def read_native(data: bytes, groups: Collection[str] = ()) -> Native:
    """Decode every packet; raises AssertionError where one breaks a rule of the format.

    ``groups``: their names, where these may have anything in them, as a device's that a stranger named.
    """
    trace = classes().Trace()
    assert trace.ParseFromString(data) == len(data)
    # A field that the classes do not know, or that is written twice, changes the size.
    assert trace.ByteSize() == len(data)
    states: dict[int, _State] = {}
    descriptors: dict[int, Any] = {}
    attributes: dict[str, int | str] = {}
    events: list[tuple[int, int, Any, _State]] = []
    snapshots = 0
    for number, packet in enumerate(trace.packet):
        assert packet.trusted_packet_sequence_id
        state = states.setdefault(packet.trusted_packet_sequence_id, _State())
        for clock in packet.clock_snapshot.clocks:
            if clock.is_incremental:
                assert 64 <= clock.clock_id < 128
                state.counted[clock.clock_id] = clock.timestamp
        snapshots += packet.HasField("clock_snapshot")
        if packet.sequence_flags & CLEARED:
            counted = state.counted
            state = states[packet.trusted_packet_sequence_id] = _State()
            state.counted, state.valid = counted, True
        if packet.sequence_flags & NEEDS:
            assert state.valid, "a packet needs a state that is not there"
        if packet.HasField("trace_packet_defaults"):
            state.track = packet.trace_packet_defaults.track_event_defaults.track_uuid
            state.clock = packet.trace_packet_defaults.timestamp_clock_id
        for table, held in state.tables.items():
            for entry in getattr(packet.interned_data, table):
                assert entry.iid not in held
                text = entry.str if table.endswith("string_values") else entry.name
                held[entry.iid] = text.decode() if isinstance(text, bytes) else text
        for attribute in packet.trace_attributes.attribute:
            assert attribute.key not in attributes
            value = attribute.long_value if attribute.HasField("long_value") else attribute.string_value
            attributes[attribute.key] = value
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            assert descriptors.setdefault(descriptor.uuid, descriptor) == descriptor
        if packet.HasField("track_event"):
            assert packet.HasField("timestamp")
            at = packet.timestamp
            if state.clock in state.counted:
                at = state.counted[state.clock] = state.counted[state.clock] + at
            assert 0 <= at < 1 << 63
            events.append((at, number, packet, state))
    assert snapshots <= 1
    events.sort(key=lambda event: event[:2])
    slices, samples, correlations, leave, arrive = _walk(events, descriptors, groups)
    assert set(arrive) <= set(leave), "an arrow without a tail"
    arrows = sorted((number, leave[number], arrive[number]) for number in arrive)
    rows = sorted(
        _place(descriptors, d, groups)
        for d in descriptors.values()
        if (d.HasField("parent_uuid") or len(_parts(d.name, groups)) > 1) and not d.HasField("counter")
    )
    return Native(
        Picture(sorted(slices, key=order), arrows, sorted(samples), rows),
        attributes,
        descriptors,
        correlations,
        len(trace.packet),
    )


GROUP_AND_ROW = re.compile(r"(?P<head>.*?) · (?P<row>.*?)(?P<rest> \(.*\))?")
"""The names of a process and of its main track, which are one: the row is before what is in brackets."""


def _place(descriptors: Mapping[int, Any], descriptor: Any, groups: Collection[str]) -> tuple[str, str]:
    """(process, track): of a group with slices of its own as if it were two."""
    if not descriptor.HasField("parent_uuid"):
        process, *row = _parts(_whole_name(descriptor, groups), groups)
        return process, "".join(row)
    return _parts(_whole_name(descriptors[descriptor.parent_uuid], groups), groups)[0], str(descriptor.name)


def _whole_name(descriptor: Any, groups: Collection[str]) -> str:
    """The name, or that of which it is the part in sight: the description begins with it."""
    name, told = str(descriptor.name), str(descriptor.description)
    if not told.startswith(f"{name}:"):
        return name
    rests = sorted({"".join(group.partition(" (")[1:]) for group in groups}, key=len, reverse=True)
    found = next((rest for rest in rests if rest and f"{rest}. " in told), "")
    return f"{told.partition(f'{found}. ')[0]}{found}"


def _parts(name: str, groups: Collection[str]) -> Sequence[str]:
    """A group and its row, or the group alone."""
    for group in sorted(groups, key=len, reverse=True):
        head, bracket, rest = group.partition(" (")
        if name == group:
            return [group]
        if name.startswith(f"{head} · ") and name.endswith(f"{bracket}{rest}"):
            return [group, name[len(head) + 3 : len(name) - len(bracket + rest)]]
    found = GROUP_AND_ROW.fullmatch(name)
    return [name] if found is None else [found["head"] + (found["rest"] or ""), found["row"]]


def _walk(
    events: list[tuple[int, int, Any, _State]], descriptors: Mapping[int, Any], groups: Collection[str]
) -> tuple[Any, ...]:
    slices: list[Drawn] = []
    samples: list[tuple[str, str, int, float]] = []
    correlations: dict[tuple[str, str], set[int]] = {}
    leave: dict[int, tuple[str, str, int, str]] = {}
    arrive: dict[int, tuple[str, str, int, str]] = {}
    open_: dict[int, list[tuple[int, Any, _State]]] = {}
    for at, _, packet, state in events:
        event = packet.track_event
        needs = bool(event.name_iid or not event.HasField("track_uuid"))
        assert not needs or packet.sequence_flags & NEEDS
        uuid = event.track_uuid if event.HasField("track_uuid") else state.track
        descriptor = descriptors[uuid]
        place = _place(descriptors, descriptor, groups)
        if event.type == event.TYPE_COUNTER:
            value = event.double_counter_value if event.HasField("double_counter_value") else event.counter_value
            samples.append((*place, at, float(value)))
        elif event.type == event.TYPE_SLICE_BEGIN:
            open_.setdefault(uuid, []).append((at, event, state))
            here = (*place, at, state.text("event_names", event.name_iid))
            for ids, ends in ((event.flow_ids, leave), (event.terminating_flow_ids, arrive)):
                for number in ids:
                    assert number not in ends
                    ends[number] = here
        else:
            assert event.type == event.TYPE_SLICE_END
            start, begin, then = open_[uuid].pop()
            (category,) = begin.category_iids
            name = then.text("event_names", begin.name_iid)
            if begin.HasField("correlation_id"):
                correlations.setdefault((then.text("event_categories", category), name), set()).add(
                    begin.correlation_id
                )
            args: dict[str, Any] = {}
            for annotation in begin.debug_annotations:
                key = then.text("debug_annotation_names", annotation.name_iid)
                assert key not in args
                args[key] = _value(annotation, then)
            slices.append(Drawn(*place, start, at - start, name, then.text("event_categories", category), args))
    assert not any(open_.values()), "a slice without an end"
    return slices, samples, correlations, leave, arrive


def _value(annotation: Any, state: _State) -> Any:
    if annotation.dict_entries:
        return {
            state.text("debug_annotation_names", entry.name_iid): _value(entry, state)
            for entry in annotation.dict_entries
        }
    if annotation.array_values:
        return [_value(item, state) for item in annotation.array_values]
    kind = annotation.WhichOneof("value") or annotation.WhichOneof("value_field")
    if kind == "string_value_iid":
        return state.text("debug_annotation_string_values", annotation.string_value_iid)
    return getattr(annotation, kind)


def read_json(data: bytes) -> Picture:
    """The same of Chrome JSON, by its own rules."""
    events = json.loads(data)["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if (e["ph"], e["name"]) == ("M", "process_name")}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if (e["ph"], e["name"]) == ("M", "thread_name")}
    slices, samples = [], []
    starts: dict[tuple[int, int, int], Drawn] = {}
    leave: dict[int, tuple[str, str, int, str]] = {}
    arrive: dict[int, tuple[str, str, int, str]] = {}
    for event in events:
        at = _ns(event["ts"])
        if event["ph"] == "X":
            place = processes[event["pid"]], threads[event["pid"], event["tid"]]
            drawn = Drawn(*place, at, _ns(event["dur"]), event["name"], event["cat"], event["args"])
            slices.append(drawn)
            # The innermost of those that start here is the last one.
            starts[event["pid"], event["tid"], at] = drawn
        elif event["ph"] == "C":
            ((unit, value),) = event["args"].items()
            name = f"{event['name']} {unit}".strip()
            samples.append((processes[event["pid"]], name, at, float(value)))
    for event in events:
        if event["ph"] in "sf":
            drawn = starts[event["pid"], event["tid"], _ns(event["ts"])]
            ends = leave if event["ph"] == "s" else arrive
            assert event["id"] not in ends
            ends[event["id"]] = drawn.process, drawn.track, drawn.start, drawn.name
    arrows = sorted((number, leave[number], arrive[number]) for number in leave)
    rows = sorted((processes[process], name) for (process, _), name in threads.items())
    return Picture(sorted(slices, key=order), arrows, sorted(samples), rows)


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def order(drawn: Drawn) -> tuple[Any, ...]:
    """A slice's place among all: equal spans by what they are."""
    return (*drawn[:3], -drawn.duration, drawn.category, drawn.name)


def differences(one: Any, other: Any, place: str = "", share: float = 6e-6) -> list[str]:
    """Where two pictures differ, but for what the forms differ in: a fraction's last digits, ``share`` of it at most.

    Chrome JSON has six digits, the native form one part in two million; three digits are exact in both.
    """
    if isinstance(one, float) and isinstance(other, float):
        if any(value == float(f"{value:.3g}") for value in (one, other)):
            return [] if one == other else [f"{place}: {one} {other}"]
        return [] if abs(one - other) <= share * max(abs(one), abs(other)) else [f"{place}: {one} {other}"]
    if type(one) is not type(other):
        return [f"{place}: {one!r} {other!r}"]
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return [f"{place}: {sorted(one)} {sorted(other)}"]
        return [found for key in one for found in differences(one[key], other[key], f"{place}.{key}", share)]
    if isinstance(one, (list, tuple)):
        if len(one) != len(other):
            return [f"{place}: {len(one)} {len(other)} of them"]
        return [
            found
            for at, pair in enumerate(zip(one, other, strict=True))
            for found in differences(*pair, f"{place}[{at}]", share)
        ]
    return [] if one == other else [f"{place}: {one!r} {other!r}"]
