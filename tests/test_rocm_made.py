"""The runs of tests/rocm_made.py in every form, whole and with damaged rows, as each reader reads them."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mio2trace.align.clocks.axis import within_reach
from mio2trace.conversion import convert
from mio2trace.model.profile import Activity, Call, Device, Profile, Range
from mio2trace.notes import Notes
from mio2trace.readers.rocm.tables import integer
from mio2trace.trace import Slice
from tests.rocm_files import read
from tests.rocm_made import FORMS, Run, run, v3_tables

WITH_KERNELS = [name for name in FORMS if name != "ROCm v3 calls"]
TABLES = "kernel_trace", "hip_api_trace", "marker_api_trace", "memory_copy_trace"


def profile_of(one: Run, form: str, folder: Path) -> tuple[Profile, Notes]:
    """The run as its form has it; that of v3's kernels is a set with all tables."""
    files = v3_tables(one) if form == "ROCm v3 kernels" else FORMS[form](one)
    for kind, data in zip(TABLES, files, strict=False):
        (folder / f"{kind}.csv").write_bytes(data)
    notes = Notes()
    (profile,) = read(folder / "kernel_trace.csv", None, notes, every_call=True)
    return profile, notes


@pytest.mark.parametrize("text", ["text", 'x = "y", z'])
@pytest.mark.parametrize("form", WITH_KERNELS)
def test_all_that_a_form_can_hold_is_read(form: str, text: str, tmp_path: Path) -> None:
    """Most writers escape nothing."""
    one = msgspec.structs.replace(run(text), device="AMD Instinct MI300X", private="")
    profile, notes = profile_of(one, form, tmp_path)
    kernels = [activity for activity in profile.activities if activity.kind == "kernel"]
    assert [activity.name for activity in kernels] == [f"conv_fwd {text}", f"relu {text}"]
    assert not notes.problems
    if form == "ROCm v1 table":
        return
    assert [made.text for made in profile.ranges] == [f"conv1 forward {text}", f"s_api = miopenF | p = {text} | "]
    assert [activity.route for activity in profile.activities if activity.kind == "copy"] == ["host to device"]
    launches = [f"hipLaunchKernel {text}"] * 2 + [f"hipMemcpy {text}"]
    if "events" in form:
        launches = [""] * 3 if "v1" in form else []
    else:
        assert [a.call and a.call.name for a in profile.activities] == launches
    calls = {activity.call.name for activity in profile.activities if activity.call is not None}
    calls |= {call.name for call in profile.other_calls}
    assert calls >= {f"hipMalloc {text}", *filter(None, launches)}


@pytest.mark.parametrize(
    ("start", "end"),
    [("soon", 5), (None, 5), (-1, 5), (30, 20), (10, 1 << 80), (5, "9" * 30), (1e300, 1e301), ("", "")],
)
@pytest.mark.parametrize("form", WITH_KERNELS)
def test_rows_that_are_no_numbers_lose_themselves_alone(form: str, start: Any, end: Any, tmp_path: Path) -> None:
    one = run()
    expected, _ = profile_of(one, form, tmp_path)
    one.kernels.insert(1, ("lost", start, end, 9, 7))
    found, notes = profile_of(one, form, tmp_path)
    assert [(a.name, a.start_ns) for a in found.activities] == [(a.name, a.start_ns) for a in expected.activities]
    assert found.ranges == expected.ranges
    assert [note.count for note in notes.problems] == [1]


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
    before, relu, after = FORMS["ROCm v1 events"](run())[0].partition(b',{"ph":"X","name":"relu"')
    data = before.replace(b'"stream-id":"0"', b'"stream-id":""') + relu + after
    (tmp_path / "results.json").write_bytes(data)
    names = [track.name for track in convert(tmp_path / "results.json", check=True).trace.tracks]
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
    events = convert(tmp_path / "a.db", check=True, host_calls="all").trace.events()
    rows = Counter(one.track for one in events if isinstance(one, Slice) and one.category == "api")
    assert sum(rows.values()) == 300
    assert max(rows.values()) == 100


def test_a_number_that_no_trace_can_hold_is_none() -> None:
    """Nineteen digits may be more than 64 bits."""
    assert integer(str((1 << 63) - 1)) == (1 << 63) - 1
    assert integer(str(1 << 63)) is None
