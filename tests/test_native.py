"""The native form holds what the Chrome JSON holds: read back by Perfetto's own classes, engine and UI."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import mio2trace
from mio2trace.trace import CounterValue, Event, Flow, Slice, Trace
from mio2trace.writers import chrome_json
from mio2trace.writers import native as native_form
from tests.conftest import UI, Engine, missing
from tests.drawn_sets import COMMITTED, SAMPLES, SETS, TRAIN, traced
from tests.native_packets import Native, classes, differences, read_json, read_native

pytest.importorskip("perfetto", reason="no classes to read the native form with: pip install perfetto")


def native(trace: Trace) -> bytes:
    file = io.BytesIO()
    native_form.write(trace, file)
    return file.getvalue()


def both(trace: Trace) -> tuple[Native, list[str]]:
    """The native form, decoded, and where it differs from the JSON."""
    file = io.BytesIO()
    chrome_json.write(trace, file)
    found = read_native(native(trace))
    return found, differences(found.picture, read_json(file.getvalue()))


# ---- the same picture

TEXT = st.text(st.characters(), max_size=8)
VALUES = st.one_of(
    TEXT,
    st.integers(-(1 << 70), 1 << 70),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.dictionaries(st.sampled_from("MNK"), st.integers(0, 9), min_size=1),
    st.lists(st.integers(), min_size=1, max_size=3),
)
ARGS = st.dictionaries(st.sampled_from(["layer", "a", "b c", "gflops"]), VALUES, max_size=3)
OWN = st.dictionaries(st.sampled_from(["call_index", "queued_ns", "rate"]), VALUES, max_size=3)


@st.composite
def slices(draw: st.DrawFn) -> list[Event]:
    """Nested and disjoint slices of a few tracks, each track in order; arrows between them."""
    shared = draw(st.lists(ARGS, min_size=1, max_size=3))
    found: list[Event] = []
    for track in draw(st.permutations([101, 102, 11])):
        at = draw(st.integers(0, 1 << 50))

        def level(start: int, end: int, depth: int, track: int = track) -> None:
            while start <= end and draw(st.booleans()):
                start = draw(st.integers(start, end))
                until = draw(st.integers(start, end))
                found.append(
                    Slice(track, start, until - start, draw(TEXT), "kernel", draw(OWN), draw(st.sampled_from(shared)))
                )
                if depth and until > start:
                    level(start, until, depth - 1)
                # What follows begins later than what is over, else a second of no length would be older than the first.
                start = until + (until == start)

        level(at, at + draw(st.integers(0, 1000)), 2)
    drawn = [event for event in found if isinstance(event, Slice)]
    for number in range(draw(st.integers(0, 4)) if drawn else 0):
        one, other = draw(st.sampled_from(drawn)), draw(st.sampled_from(drawn))
        if one.start_ns <= other.start_ns:
            found.append(Flow(number + 1, "enqueue", one.track, one.start_ns, other.track, other.start_ns))
    return found


SAMPLES_OF = st.builds(
    CounterValue,
    st.sampled_from([1, 100]),
    TEXT,
    st.sampled_from(["", "MB"]),
    st.integers(0, 1 << 50),
    st.one_of(st.integers(0, 1 << 60), st.floats(0, 1e12)),
)


@given(slices(), st.lists(SAMPLES_OF, max_size=5))
def test_any_trace_is_the_same_in_both_forms(events: list[Event], counters: list[CounterValue]) -> None:
    _, found = both(traced(events, list(counters)))
    assert found == []


@given(slices(), st.lists(SAMPLES_OF, max_size=5), st.integers(0, 30))
def test_the_bytes_do_not_depend_on_the_parts(events: list[Event], counters: list[CounterValue], cut: int) -> None:
    """However a trace is divided, by the writer or by who checks it, a run gives the same file."""
    tracks = [event.track if isinstance(event, Slice) else None for event in events]
    while 0 < cut < len(events) and tracks[cut] == tracks[cut - 1]:
        cut -= 1  # no track is in two parts
    whole = native(traced([*events, *counters]))
    assert native(traced(events[:cut], events[cut:], list(counters))) == whole
    assert native(traced(events, list(counters))) == whole


def sample(at: int, value: float, track: int | None = 101) -> CounterValue:
    return CounterValue(100, "GEMM", "GFLOP/s", at, value, track)


@given(st.floats(1e-200, 1e200), st.booleans())
def test_rates_keep_what_is_in_them(value: float, four: bool) -> None:
    """One part in two million, of four digits one in eight thousand; what needs few bits is exact."""
    value = float(f"{value:.4g}") if four else value
    event = sample(5, value)
    (found,) = read_native(native(traced([Slice(101, 0, 9, "k", "kernel", {"gflops": value}), event]))).picture.samples
    few = value == float(f"{value:.4g}")
    assert abs(found[3] - value) <= value * 2 ** (-13 if few else -21) * (1 + 1e-9)
    small = sample(5, float(int(f"{value:e}"[0])) + 0.25)
    assert read_native(native(traced([small]))).picture.samples[0][3] == small.value


def test_what_no_reader_shows_is_left_out() -> None:
    """No empty value and no fraction that is none."""
    args: dict[str, Any] = {"none": None, "nan": float("nan"), "inf": float("inf"), "empty": {}, "list": [], "kept": 1}
    found = read_native(native(traced([Slice(101, 0, 1, "k", "kernel", args)])))
    assert found.picture.slices[0].args == {"kept": 1}


def test_what_is_asked_first_of_a_kernel_comes_first() -> None:
    """What it is of, its sizes, its rate and numbers; the evidence and the whole name last."""
    shared = {"full_name": "k<1>", "layer_by": "order", "gws": "64x1x1", "operation_by": "order", "layer_index": 3}
    shared |= {"role": "main", "solver": "S", "operation_name": "Conv", "direction": "forward", "layer": "conv1"}
    found = read_native(native(traced([Slice(101, 0, 1, "k", "kernel", {"gflops": 1.5, "call_index": 7}, shared)])))
    first = ["layer", "direction", "operation_name", "solver", "role", "gws", "gflops", "call_index"]
    assert [*found.picture.slices[0].args] == [*first, "layer_by", "operation_by", "layer_index", "full_name"]


def layers() -> Trace:
    shared = {"layer": "conv1", "layer_by": "order"}
    events: list[Event] = [
        Slice(101, 0, 100, "iteration 1", "pass", {"iteration": 1}),
        Slice(101, 0, 60, "conv1", "layer", {"kernels": 2}, {"layer": "conv1"}),
        Slice(101, 0, 20, "im2col", "kernel", {"call_index": 1}, shared),
        Slice(101, 30, 30, "gemm", "kernel", {"call_index": 2, "gflops": 1 / 3}, shared),
        Slice(101, 60, 40, "relu1", "layer", {}, {"layer": "relu1"}),
    ]
    host: list[Event] = [Slice(11, 0, 2, "clEnqueue", "api", {}), Flow(7, "enqueue", 11, 0, 101, 0)]
    counters: list[Event] = [
        CounterValue(100, "GEMM", "GFLOP/s", 30, 1 / 3),
        CounterValue(100, "GEMM", "GFLOP/s", 60, 0),
    ]
    return traced(
        events,
        counters,
        host,
        counter_descriptions={"GEMM": "Achieved."},
        metadata={
            "generator": "test",
            "clock": {"origin_utc": "2026-11-20T10:46:39.901658007Z"},
            "inputs": [{"size": 5}],
            "notes": {"a.b": 2},
            "rate": 0.5,
            "yes": True,
            "nothing": None,
        },
    )


def test_what_only_the_native_form_has() -> None:
    """A root track a device, ordered children, units, help texts, one colour for a layer and its kernels, metadata."""
    found = read_native(native(layers()))
    by_name = {d.name: d for d in found.descriptors.values()}
    gpu, host = by_name["GPU 0 (Mali)"], by_name["Host"]
    for root in (gpu, host):
        assert not root.HasField("parent_uuid")
        assert root.child_ordering == root.EXPLICIT
    assert gpu.description == "Times of the device's clock."
    children = [by_name[name] for name in ("Layers > kernels", "Layers > kernels (2)", "GEMM GFLOP/s")]
    assert {child.parent_uuid for child in children} == {gpu.uuid}
    assert [c.sibling_order_rank for c in children] == sorted(c.sibling_order_rank for c in children)
    assert {c.sibling_merge_behavior for c in children} == {gpu.SIBLING_MERGE_BEHAVIOR_NONE}
    assert [c.description for c in children] == ["What ran.", "", "Achieved."]
    assert children[2].counter.unit_name == "GFLOP/s"
    colours = found.correlations
    assert colours["layer", "conv1"] == colours["kernel", "im2col"] == colours["kernel", "gemm"]
    assert colours["layer", "relu1"] != colours["layer", "conv1"]
    assert ("pass", "iteration 1") not in colours
    assert found.picture.arrows == [
        (7, ("Host", "OpenCL API", 0, "clEnqueue"), ("GPU 0 (Mali)", "Layers > kernels", 0, "im2col"))
    ]
    assert found.attributes == {
        "generator": "test",
        "clock.origin_utc": "2026-11-20T10:46:39.901658007Z",
        "inputs[0].size": 5,
        "notes.a.b": 2,
        "rate": "0.5",
        "yes": "true",
    }


def test_a_colour_is_the_layers_wherever_it_is_named() -> None:
    """Among the shared arguments or the slice's own; slices of one name in two layers have two."""
    events: list[Event] = [
        Slice(101, 0, 1, "k", "kernel", {"layer": "a"}),
        Slice(101, 1, 1, "k", "kernel", {"layer": "b"}),
        Slice(101, 2, 1, "k", "kernel", {}),
        Slice(101, 3, 1, "of a", "kernel", {}, {"layer": "a"}),
        Slice(101, 4, 1, "of b", "kernel", {}, {"layer": "b"}),
    ]
    colours = read_native(native(traced(events))).correlations
    assert len(colours["kernel", "k"]) == 2
    assert colours["kernel", "k"] == colours["kernel", "of a"] | colours["kernel", "of b"]
    assert read_native(native(traced(events, colour_by=()))).correlations == {}


@pytest.mark.parametrize(
    ("utc", "origin"),
    [
        ("2026-11-20T10:46:39.901658007Z", 1795171599901658007),
        ("1970-01-01T00:00:01.000000001Z", 1_000_000_001),
        ("1969-12-31T23:59:59.000000000Z", None),
        ("soon", None),
        (None, None),
    ],
)
def test_the_wall_clock_is_known_where_the_metadata_tells_it(utc: str | None, origin: int | None) -> None:
    """One snapshot: what pairs the trace's time with UTC, to the nanosecond."""
    proto = classes()
    trace = proto.Trace.FromString(native(traced([], metadata={"clock": {"origin_utc": utc} if utc else {}})))
    (snapshot,) = [packet.clock_snapshot for packet in trace.packet if packet.HasField("clock_snapshot")]
    clocks = {clock.clock_id: clock.timestamp for clock in snapshot.clocks}
    assert clocks == {6: 0, 64: 0} | ({} if origin is None else {1: origin})


def test_arrows_may_be_told_in_advance() -> None:
    """A trace that says which parts have arrows is not walked for them; the file is the same."""
    trace, walked = layers(), Mock(wraps=layers().parts[0])
    assert native(replace(trace, parts=(walked, *trace.parts[1:]), arrows=(trace.parts[2],))) == native(trace)
    assert walked.call_count == 1


# ---- every sample set


@pytest.mark.engine
@pytest.mark.parametrize("name", SETS)
def test_every_set_is_the_same_in_both_forms(tmp_path: Path, engine: Engine, name: str) -> None:
    """By Perfetto's classes no slice, argument, arrow or sample differs; its engine finds no fault in either form."""
    files, named = SETS[name]
    if not all(path.exists() for path in files):
        missing("shared", f"no real samples in {SAMPLES}")
    done = mio2trace.convert(*files, output=tmp_path / "out.json", check=True, **named)
    with open(tmp_path / "out.pftrace.gz", "wb") as file:
        file.write(gzip.compress(native(done.trace), 1))
    written = gzip.decompress((tmp_path / "out.pftrace.gz").read_bytes())
    found, expected = read_native(written), read_json((tmp_path / "out.json").read_bytes())
    assert differences(found.picture, expected) == []
    assert len(expected.slices) > 0
    assert found.attributes == dict(flat(json.loads((tmp_path / "out.json").read_bytes())["metadata"]))
    if name in COMMITTED:
        mio2trace.convert(*files, output=tmp_path / "out.json.gz")
    forms = [path for form in (".pftrace.gz", ".json", ".json.gz") if (path := tmp_path / f"out{form}").exists()]
    asked, answers = engine(forms[0]), []
    for number, form in enumerate(forms[:1] if name.startswith("ck ") else forms):
        if number:
            asked.reload(form)
        assert asked.errors() == []
        assert asked.failed_checks() == {}
        counts = len(expected.slices), len(expected.arrows), len(expected.samples)
        assert (*asked.query(COUNTS)[0].values(),) == counts
        answers.append([asked.query(question) for question in QUESTIONS])
    assert all(differences(answers[0], other, share=2**-12) == [] for other in answers[1:])
    assert all(other == answers[1] for other in answers[2:]), "other lines stand together where it is packed"


COUNTS = (
    "select (select count(*) from slice) as s, (select count(*) from flow) as f, (select count(*) from counter) as c"
)
# What of a slice both importers tell alike; one of no length at the end of another may lie under it or beside it.
QUESTIONS = (
    "select s.ts, s.dur, s.name, s.category, count(a.id) as args from slice s left join args a on a.arg_set_id ="
    " s.arg_set_id and (a.key glob 'args.*' or a.key glob 'debug.*') group by s.id order by 1, 2 desc, 3, 4, 5",
    "select category, count(*) as n, sum(dur) as ns, max(depth) as depth from slice where dur > 0"
    " group by 1 order by 1",
    "select s.ts, s.name, p.name as parent from slice s left join slice p on s.parent_id = p.id where s.dur > 0"
    " order by 1, 2, 3",
    "select o.name as one, i.name as other, o.ts as leaves, i.ts as arrives from flow f join slice o on o.id ="
    " f.slice_out join slice i on i.id = f.slice_in order by 3, 4, 1, 2",
    "select t.name, count(*) as n, sum(c.value) as total from counter c join counter_track t on t.id = c.track_id"
    " group by 1 order by 1",
)


def flat(value: Any, path: str = "") -> Iterator[tuple[str, int | str]]:
    """Metadata as trace attributes hold it."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from flat(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from flat(item, f"{path}[{number}]")
    elif value is not None:
        yield path, str(value).lower() if isinstance(value, bool) else value if isinstance(value, int) else str(value)


@pytest.mark.browser
def test_the_ui_opens_it(tmp_path: Path, ui: UI) -> None:
    """No error shown; devices come first; details are there."""
    (name, files) = next(iter(COMMITTED.items()))
    mio2trace.convert(*files, output=tmp_path / f"{name}.pftrace.gz")
    page = ui(tmp_path / f"{name}.pftrace.gz")
    groups = [text for depth, text in page.tracks() if depth == 0 and not text.startswith("System")]
    assert groups[0].partition(" · ")[0] in ("Device", "GPU 0")
    assert "ayers > " in groups[0]
    assert groups[-1].startswith("Host")
    page.expand()
    page.select(page.query("select name from slice where category = 'kernel' order by dur desc limit 1")[0]["name"])
    assert "layer_by" in page.details() or "operation_by" in page.details()
    page.check()


def recorded(trace: Trace) -> tuple[int, int] | None:
    """The time that a viewer takes for that of the recording, which it opens with."""
    events = [one for one in classes().Trace.FromString(native(trace)).packet if one.HasField("service_event")]
    if not events:
        return None
    begins, ends = events
    assert begins.service_event.tracing_started
    assert ends.service_event.tracing_disabled
    return begins.timestamp, ends.timestamp


def test_a_trace_opens_at_a_steady_iteration() -> None:
    """It opens at the first steady iteration, even if set-up and searches are most of the run. Without iterations it
    shows the whole run."""
    trace = mio2trace.convert(*TRAIN).trace
    passes = [event for event in trace.events() if isinstance(event, Slice) and event.category == "pass"]
    counted = [one for one in passes if one.args.get("iteration") == 1 and "kernel_ns" in one.args]
    assert len(counted) >= 2
    start, end = min(one.start_ns for one in counted), max(one.start_ns + one.dur_ns for one in counted)
    shown = recorded(trace)
    assert shown is not None
    margin = (end - start) // 40 + 1
    assert 0 < start - shown[0] <= margin
    assert 0 <= shown[1] - end <= margin
    assert recorded(mio2trace.convert(*TRAIN, iterations="0").trace) is None
    assert recorded(mio2trace.convert(TRAIN[1]).trace) is None


def test_a_device_shows_what_it_ran_before_its_group_is_opened() -> None:
    """The row on which most ran is the group itself; of the host the layers' row, else its calls."""
    trace = mio2trace.convert(*TRAIN).trace
    found = read_native(native(trace))
    roots = [one.name for one in found.descriptors.values() if not one.HasField("parent_uuid")]
    assert roots == ["Device · Layers > kernels (OpenCL queue 0)", "Host · Layers on the host"]
    names = {process.id: process.name for process in trace.processes}
    assert set(found.picture.tracks) == {(names[track.process], track.name) for track in trace.tracks}
    assert len([track for track in trace.tracks if track.main]) == 2
