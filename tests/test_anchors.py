"""Clocks that `record` read before and after a run: profiles that know no date get Unix time, to a stated error."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mio2trace
from mio2trace.align.processes import ProcessClock, anchored
from mio2trace.analysis import Run
from mio2trace.model.profile import Anchors, Clock, Profile, Reading, UnixTime, anchors_of
from mio2trace.notes import Notes
from mio2trace.recording.session import pack
from mio2trace.runs import same_job
from tests.commands import invoked
from tests.conftest import shared_folder
from tests.often import present
from tests.test_processes import SECOND, all_reduces, profile, related, second

MS = 1_000_000
UNIX = 1_793_000_000 * SECOND
"""Of the boot, in truth."""
KERNELS = [("gemm", 100 * SECOND, 100 * SECOND + 5)]


def reading(at_ns: int, unix_ns: int, **more: int) -> dict[str, int]:
    """A manifest's, ``at_ns`` after the boot; the machine slept for a minute."""
    clocks = {"boottime_ns": at_ns, "realtime_ns": at_ns + unix_ns, "monotonic_ns": at_ns - 60 * SECOND, "width_ns": 0}
    return clocks | more


def read(start: dict[str, int], end: dict[str, int], boot: str = "ab" * 8) -> Anchors:
    return present(anchors_of({"clocks": {"start": start, "end": end}, "boot": boot}))


def unix_of(made: Profile) -> UnixTime:
    return present(made.clocks[0].unix)


# -- one profile -------------------------------------------------------------------------------------------------------


@given(st.integers(0, 900_000), st.sampled_from([-1, 1]), st.integers(0, 5000), st.floats(0, 1), st.floats(0, 1))
def test_the_true_offset_lies_within_the_error(slewed: int, way: int, width: int, early: float, late: float) -> None:
    """Wherever in their width the clocks were read, however the Unix clock was slewed in between."""

    def at_one_moment(ns: int, unix: int, part: float) -> dict[str, int]:
        return reading(ns, unix + round((part - 0.5) * width), width_ns=width)

    start, end = at_one_moment(99 * SECOND, UNIX, early), at_one_moment(102 * SECOND, UNIX + way * slewed, late)
    unix = unix_of(anchored(profile(1, KERNELS, Clock("boottime")), read(start, end), Notes()))
    for part in (0, 0.4, 1):
        assert abs(unix.offset_ns - (UNIX + way * round(part * slewed))) <= unix.error_ns
    assert unix.error_ns <= slewed + 2 * width + 2


def test_a_clock_that_is_not_named_is_the_one_that_its_times_lie_in() -> None:
    """After a minute of sleep no other holds them; without it, both give the same to their error."""
    anchors = read(reading(99 * SECOND, UNIX), reading(102 * SECOND, UNIX))
    assert unix_of(anchored(profile(1, KERNELS, Clock("opaque")), anchors, Notes())).offset_ns == UNIX
    slept = profile(1, KERNELS, Clock("opaque"), ahead=-60 * SECOND)
    assert unix_of(anchored(slept, anchors, Notes())).offset_ns == UNIX + 60 * SECOND
    awake = [reading(at * SECOND, UNIX, monotonic_ns=at * SECOND - 2 * MS) for at in (99, 102)]
    either = unix_of(anchored(profile(1, KERNELS, Clock("opaque")), read(awake[0], awake[1]), Notes()))
    assert {abs(either.offset_ns - UNIX), abs(either.offset_ns - UNIX - 2 * MS)} <= {either.error_ns}
    assert either.error_ns == MS


def test_times_outside_of_the_recording_are_related_to_nothing() -> None:
    notes = Notes()
    other = profile(1, KERNELS, Clock("boottime"))
    assert anchored(other, read(reading(101 * SECOND, UNIX), reading(102 * SECOND, UNIX)), notes) is other
    assert [note.kind for note in notes] == [
        "times outside of the recording: the clocks that were read during it are not used"
    ]


def test_a_unix_clock_that_was_set_is_said_and_its_error_is_large() -> None:
    notes = Notes()
    anchors = read(reading(99 * SECOND, UNIX, realtime_error_ns=1), reading(102 * SECOND, UNIX + SECOND))
    unix = unix_of(anchored(profile(1, KERNELS, Clock("boottime")), anchors, notes))
    assert (unix.error_ns, unix.wrong_ns) == (SECOND // 2, None)
    assert [note.kind for note in notes.problems] == [
        "the system's Unix clock was set while the program ran, by 1.000000 s"
    ]


RIGHT = reading(99 * SECOND, UNIX)


@pytest.mark.parametrize(
    "end",
    [
        None, {**RIGHT, "boottime_ns": "1"}, {**RIGHT, "realtime_ns": -1}, {**RIGHT, "boottime_ns": True},
        {**RIGHT, "boottime_ns": 1 << 70}, {**RIGHT, "width_ns": 2 * SECOND}, reading(98 * SECOND, UNIX),
    ],
)  # fmt: skip
def test_impossible_clocks_of_a_manifest_are_none(end: object) -> None:
    for told in ({}, {"clocks": 7}, {"clocks": {"start": RIGHT} | ({} if end is None else {"end": end})}):
        assert anchors_of(told) is None


def test_a_boot_that_is_no_hash_is_not_told() -> None:
    at = Reading(99 * SECOND + UNIX, 99 * SECOND, 39 * SECOND, 0)
    assert anchors_of({"clocks": {"start": RIGHT, "end": RIGHT}, "boot": "../x"}) == Anchors("", at, at)


# -- processes of a job ------------------------------------------------------------------------------------------------


def on_machine(pid: int, kernels: list[tuple[str, int, int]], *, later: int, boot: str, **more: int) -> Profile:
    """A process whose machine was booted ``later`` than the first one's, and says so exactly."""
    start, end = (reading(at * SECOND - later, UNIX + later, **more) for at in (90, 110))
    clocks = read(start, end, boot)
    return anchored(profile(pid, kernels, Clock("boottime", scope=f"{pid}"), ahead=-later), clocks, Notes())


def test_machines_are_related_by_unix_time_to_what_their_systems_say_that_it_is_wrong() -> None:
    """The error is what both bound, and what the readings leave; without a bound it is not known."""
    here = on_machine(1, KERNELS, later=0, boot="aa" * 8, realtime_error_ns=30_000, width_ns=200)
    for bound, error in (({"realtime_error_ns": 50_000, "width_ns": 400}, 80_300), ({}, None)):
        there = on_machine(2, KERNELS, later=20 * SECOND, boot="bb" * 8, **bound)
        method = "Unix time, read before and after the runs"
        assert second(here, there) == ProcessClock(shift_ns=20 * SECOND, error_ns=error, method=method)
    assert second(here, profile(2, KERNELS, Clock("boottime", scope="b"))) is None


def test_one_boot_is_one_clock_whatever_the_profiles_say_of_machines() -> None:
    """And cloned machines, which share an id, are two."""
    here = on_machine(1, KERNELS, later=0, boot="aa" * 8)
    beside = on_machine(2, KERNELS, later=0, boot="aa" * 8)
    assert second(here, beside) == ProcessClock(method="time since the boot of one machine")
    cloned = present(second(here, on_machine(2, KERNELS, later=5 * SECOND, boot="bb" * 8)))
    assert cloned.shift_ns == 5 * SECOND


def test_collectives_bound_what_the_unix_clocks_are_wrong() -> None:
    """Where they contradict these by less than a second they are right, by more they are others."""

    def wrong_by(ns: int, **where: Any) -> Profile:
        moved = [(name, start + 99 * SECOND - ns, end + 99 * SECOND - ns) for name, start, end in all_reduces()]
        return on_machine(kernels=moved, **where)

    here = wrong_by(0, pid=1, later=0, boot="aa" * 8)
    there = {"pid": 2, "later": 7 * SECOND, "boot": "bb" * 8}
    for wrong, method in ((0, "Unix time, read before and after the runs, 10 collectives overlap"),
                          (300 * MS, "10 collectives overlap")):  # fmt: skip
        clock, error = related(here, wrong_by(wrong, **there))
        assert clock.method == method
        assert abs(clock.shift_ns - 7 * SECOND - wrong) <= error <= MS
    apart = present(second(here, wrong_by(2 * SECOND, **there)))
    assert (apart.shift_ns, apart.error_ns) == (7 * SECOND, None)


def test_runs_an_hour_apart_on_two_machines_are_of_no_job() -> None:
    here = on_machine(1, KERNELS, later=0, boot="aa" * 8)
    there = on_machine(2, KERNELS, later=9 * SECOND, boot="bb" * 8)
    assert same_job([here], [there], near=True, spans={})
    hour = msgspec.structs.replace(there.clocks[0], unix=UnixTime(unix_of(there).offset_ns + 3600 * SECOND, 1))
    assert not same_job([here], [msgspec.structs.replace(there, clocks=(hour,))], near=True, spans={})


# -- a log's stamps ----------------------------------------------------------------------------------------------------


def recorded(folder: Path, twin: str, log: str, unix_ns: int) -> Path:
    """A twin's database and log as `record` packs them, on a machine whose clocks tell ``unix_ns`` at its boot."""
    base = shared_folder() / "samples" / "rocm-twins" / twin
    database = sorted(path for path in (base / "rocpd").iterdir() if "merged" not in path.name)[0]
    (folder / "run.db").write_bytes(gzip.decompress(database.read_bytes()))
    of = mio2trace.analyse(folder / "run.db").run.profiles[0].activities
    begin, end = min(one.start_ns or 0 for one in of), max(one.end_ns or 0 for one in of)
    clocks = {"start": reading(begin - SECOND, unix_ns + 900), "end": reading(end + SECOND, unix_ns - 900)}
    pack(
        str(folder / "run.zip"),
        {"inputs": ["run.log", "run.db"], "clocks": clocks, "boot": "ab" * 8},
        {"run.log": str(base / log), "run.db": str(folder / "run.db")},
    )
    return folder / "run.zip"


def truth(twin: str) -> dict[str, Any]:
    path = shared_folder() / "samples" / "rocm-twins" / twin / "truth.json"
    return dict(json.loads(path.read_text()))


def layers(run: Run, told: dict[str, Any]) -> tuple[int, int, int]:
    """Kernels whose layer is the true one, those of another, and those in doubt."""
    true = {
        (one["start"], one["end"]): told["layers"][one["layer"]]["layer"]
        for one in told["kernels"]
        if one["layer"] is not None
    }
    links = run.alignments[0].links
    said = [
        (links.runs[at].layer, true.get((one.start_ns, one.end_ns)))
        for one, at in zip(run.profiles[0].activities, links.run_of, strict=True)
        if at >= 0
    ]
    right = sum(layer == of for layer, of in said)
    return right, sum(of not in (None, layer) for layer, of in said), len(links.layer_unsure)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("twin", "log", "kernels"),
    [("resnet-immediate-2ranks", "run.rank0.log", 94), ("resnet-train-miopen-2threads", "run.hip.log", 203)],
)
def test_stamps_of_a_recorded_run_tell_its_layers(twin: str, log: str, kernels: int, tmp_path: Path) -> None:
    """All as they are in truth, none in doubt; without the clocks some are. The zone is found, the error said."""
    told = truth(twin)
    archive = recorded(tmp_path, twin, log, told["clock"]["unix_minus_profile_ns"])
    run = mio2trace.analyse(archive).run
    clock = present(run.alignments[0].log_clock)
    assert clock.offset_ns == told["clock"]["log_utc_offset_hours"] * 3600 * SECOND
    assert abs(clock.host_ns - told["clock"]["unix_minus_profile_ns"]) <= clock.error_ns == 900
    assert "boundary stamps" in run.alignments[0].links.layer_by
    assert layers(run, told) == (kernels, 0, 0)
    base = shared_folder() / "samples" / "rocm-twins" / twin
    plain = mio2trace.analyse([base / log, tmp_path / "run.db"]).run
    assert plain.alignments[0].log_clock is None
    assert layers(plain, told)[2] > 0
    report = invoked("report", archive, "--format", "markdown").stdout
    hours = told["clock"]["log_utc_offset_hours"]
    assert f"Clock of the log: UTC{hours:+d} h, as read beside the run, to 0.9 us" in report
    bundle = str(tmp_path / "bug.zip")
    assert invoked("bundle", archive, "-o", bundle, "-q").exit_code == 0
    assert layers(mio2trace.analyse(bundle).run, told) == (kernels, 0, 0)


@pytest.mark.shared
def test_clocks_that_contradict_the_stamps_are_not_used_and_it_is_said(tmp_path: Path) -> None:
    """The run is joined as one without them."""
    twin = "resnet-immediate-2ranks"
    told = truth(twin)
    archive = recorded(tmp_path, twin, "run.rank0.log", told["clock"]["unix_minus_profile_ns"] + 333 * SECOND)
    notes = Notes()
    run = mio2trace.analyse(archive, notes=notes).run
    assert run.alignments[0].log_clock is None
    assert any("stamps contradict the clocks" in note.kind for note in notes)
    assert layers(run, told)[0] == 94
