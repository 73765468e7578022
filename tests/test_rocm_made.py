"""The runs of tests/rocm_made.py are read whole in every form, so that canaries and fuzzing begin with something."""

from __future__ import annotations

from pathlib import Path

import pytest
from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.readers import detect
from mio2trace.readers.base import ReadOptions
from mio2trace.source import Source

from tests.rocm_made import FORMS, run


@pytest.mark.parametrize("name", FORMS)
def test_all_that_a_form_can_hold_is_read(name: str, tmp_path: Path) -> None:
    kinds = ("kernel_trace", "hip_api_trace", "marker_api_trace", "memory_copy_trace")
    files = FORMS[name](run("text"))
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
