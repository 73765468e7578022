"""The runs of tests/rocm_made.py are read whole in every form, so that canaries and fuzzing begin with something."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import pytest

from mio2trace.align.clocks.axis import within_reach
from mio2trace.conversion import convert
from mio2trace.model.profile import Activity, Call, Device, Profile, Range
from mio2trace.notes import Notes
from mio2trace.readers import detect
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.rocm.tables import integer
from mio2trace.source import Source
from mio2trace.trace import Slice
from tests.rocm_made import FORMS, run, v3_tables


@pytest.mark.parametrize("name", [*(name for name in FORMS if "v3 " not in name or "object" in name), "ROCm v3 tables"])
def test_all_that_a_form_can_hold_is_read(name: str, tmp_path: Path) -> None:
    kinds = ("kernel_trace", "hip_api_trace", "marker_api_trace", "memory_copy_trace")
    files = v3_tables(run("text")) if name == "ROCm v3 tables" else FORMS[name](run("text"))
    for kind, data in zip(kinds, files, strict=False):
        (tmp_path / f"{kind}.csv").write_bytes(data)
    notes = Notes()
    source = Source(str(tmp_path / f"{kinds[0]}.csv"), 0, notes)
    (profile,) = detect(source).read(source, ReadOptions(host_calls=True), notes)
    source.close()
    assert isinstance(profile, Profile)
    assert [activity.name for activity in profile.activities if activity.kind == "kernel"] == [
        "conv_fwd text",
        "relu text",
    ]
    assert not notes.problems
    if name == "ROCm v1 table":
        return
    assert [made.text for made in profile.ranges] == ["conv1 forward text", "s_api = miopenF | p = text | "]
    assert [activity.route for activity in profile.activities if activity.kind == "copy"] == ["host to device"]
    calls = [activity.call.name for activity in profile.activities if activity.call is not None]
    calls += [call.name for call in profile.other_calls]
    launches = [] if "events" in name else ["hipLaunchKernel text", "hipLaunchKernel text", "hipMemcpy text"]
    assert set(calls) >= {*launches, "hipMalloc text"}
    if launches:
        assert [a.call and a.call.name for a in profile.activities] == launches


@pytest.mark.parametrize("what", ["kernels", "calls", "ranges", "copies"])
def test_a_time_days_from_the_rest_is_left_out_alone(what: str, tmp_path: Path) -> None:
    """Host and device share a clock here: together they must stay within what a reader of JSON holds exactly."""
    one = run()
    rows = getattr(one, what)
    rows.append((rows[0][0], (1 << 62) - 5, 1 << 62, 90, 7))
    (tmp_path / "a.db").write_bytes(FORMS["ROCm rocpd"](one)[0])
    out = io.BytesIO()
    result = convert(tmp_path / "a.db", output=out, check=True, host_calls="all")
    events = [event for event in json.loads(out.getvalue())["traceEvents"] if event["ph"] == "X"]
    assert max(event["ts"] + event["dur"] for event in events) < 10_000
    assert [note.kind for note in result.notes.problems if "far" in note.kind]
    assert sum(event.get("cat") == "kernel" for event in events) == 2
    assert {"conv1 forward", "hipLaunchKernel"} <= {event["name"] for event in events}


def test_a_stream_without_a_number_is_beside_those_that_have_one(tmp_path: Path) -> None:
    """Each lane has a name of its own."""
    before, relu, after = FORMS["ROCm v1 events"](run())[0].partition(b',{"ph":"X","name":"relu"')
    data = before.replace(b'"stream-id":"0"', b'"stream-id":""') + relu + after
    (tmp_path / "results.json").write_bytes(data)
    trace = convert(tmp_path / "results.json", output=io.BytesIO(), check=True).trace
    names = [track.name for track in trace.tracks]
    assert {"Stream 0: kernels", "Unknown stream: kernels"} <= set(names)
    assert len(set(names)) == len(names)


def test_what_is_in_a_range_that_is_left_out_is_in_none() -> None:
    """Places of ranges move up; the others keep theirs."""
    call = Call("hipLaunchKernel", 0, 100, 200)
    ranges = (Range("range", "far", 0, 0, 1 << 62), Range("range", "near", 0, 50, 300))
    made = tuple(Activity(place, "kernel", "k", start_ns=300, end_ns=400, call=call, range=place) for place in range(2))
    near = within_reach(
        Profile(source=0, records=4, activities=made, ranges=ranges, devices=(Device(index=0, clock=0),)), Notes()
    )
    assert near.ranges == ranges[1:]
    assert [activity.range for activity in near.activities] == [None, 0]
    assert near.activities[0].call == call
    assert near.activities[0].call is near.activities[1].call


def test_calls_within_calls_go_on_in_another_row(tmp_path: Path) -> None:
    """Hundreds of calls that begin at once nest no deeper than a viewer shows; none is lost."""
    one = run()
    one.calls[:] = [(f"call {number}", 10**15, 10**15 + 2000 + number, 90 + number, 7) for number in range(300)]
    (tmp_path / "a.db").write_bytes(FORMS["ROCm rocpd"](one)[0])
    result = convert(tmp_path / "a.db", check=True, host_calls="all")
    rows = Counter(
        event.track for event in result.trace.events() if isinstance(event, Slice) and event.category == "api"
    )
    assert sum(rows.values()) == 300
    assert max(rows.values()) == 100


def test_a_number_that_no_trace_can_hold_is_none() -> None:
    """Nineteen digits may be more than 64 bits."""
    assert integer(str((1 << 63) - 1)) == (1 << 63) - 1
    assert integer(str(1 << 63)) is None
