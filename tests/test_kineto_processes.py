"""A Kineto file of several processes: each kernel, copy and fill is in the process that launched it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import mio2trace
from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.readers import kineto
from tests import rocm_files
from tests.headlines import rows
from tests.kineto_files import BASE_NS, FIRST_US, Row, kineto_file, launched, row

PIDS = (542, 777)
LAUNCHES = (
    ("kernel", "hipLaunchKernel", "own"),
    ("gpu_memcpy", "hipMemcpyAsync", "Memcpy HtoD (Host -> Device)"),
    ("gpu_memset", "hipMemsetAsync", "Memset (Device)"),
    ("kernel", "hipGraphLaunch", "of_graph"),
)
KINDS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "fill"}
Truth = Counter[tuple[int, str, int]]
"""(process, kind, start in ns)."""


class Made:
    """Rows of a file, and of each row of a device the process that it is of."""

    def __init__(self) -> None:
        self.events: list[Row] = []
        self.truth: Truth = Counter()

    def launch(
        self, pid: int, number: int, correlation: int, at_us: int, device: object, wait_us: int = 5, **more: object
    ) -> None:
        category, call, name = LAUNCHES[number % len(LAUNCHES)]
        ids = {"correlation": correlation, **more}
        self.events.append(row("cuda_runtime", call, pid, pid, FIRST_US + at_us, 2, **ids))
        for part in range(3 if call == "hipGraphLaunch" else 1):
            self.command(pid, category, name, device, at_us + wait_us + 2 * part, **ids)

    def command(self, pid: int, category: str, name: str, device: object, at_us: int, **ids: object) -> None:
        start = FIRST_US + at_us
        self.events.append(row(category, name, device, 0, start, 1, device=2, stream=0, **ids))
        self.truth[pid, KINDS[category], BASE_NS + round(start * 1000)] += 1

    def read(self, folder: Path) -> tuple[Truth, Notes, list[Profile]]:
        notes = Notes()
        profiles = rocm_files.read(kineto_file(folder, self.events), kineto, notes)
        found = [(one.process.pid or 0, a.kind, a.start_ns or 0) for one in profiles for a in one.activities]
        return Counter(found), notes, profiles

    def checked(self, folder: Path) -> tuple[Notes, list[Profile]]:
        """After each command was found in its process."""
        found, notes, profiles = self.read(folder)
        assert found == self.truth
        return notes, profiles


def in_turns(count: int, device: Callable[[int], object] = lambda rank: 2, **more: int) -> Made:
    """Launches of both processes, one after another, each with an id of its own."""
    made = Made()
    for number in range(count):
        made.launch(PIDS[number % 2], number // 2, 100 + number, 20 * number + more.get("at_us", 0), device(number % 2))
    return made


def test_each_command_is_in_the_process_of_its_launch(tmp_path: Path) -> None:
    notes, profiles = in_turns(40).checked(tmp_path)
    assert not list(notes)
    assert [len(profile.devices) for profile in profiles] == [1, 1]
    assert all(activity.call is not None for profile in profiles for activity in profile.activities)


@pytest.mark.parametrize("ahead_us", [0, 1, 200])
@pytest.mark.parametrize("devices", [(2, 3), (3, 2), ("rank 0 GPU 2", "rank 1 GPU 2"), (2, 2)])
def test_equal_correlation_ids_in_both_processes(devices: tuple[object, object], ahead_us: int, tmp_path: Path) -> None:
    """Two ranks of one program run in lockstep, or one is ahead: nothing but the times tells whose a row is."""
    made = Made()
    for number in range(40):
        for rank, pid in enumerate(PIDS):
            made.launch(pid, number, 100 + number, 20 * number + (ahead_us + 1) * rank, devices[rank], 5 + rank)
    found, notes, _ = made.read(tmp_path)
    if devices != (2, 2):
        assert found == made.truth
    else:  # of one device: as many for each
        assert Counter(pid for pid, _, _ in found.elements()) == Counter(pid for pid, _, _ in made.truth.elements())
    assert [note.kind for note in notes] == [
        "kernel or copy whose correlation id several processes have: given to one of them by time"
    ]


def test_the_kind_of_call_and_the_op_tell_equal_ids_apart(tmp_path: Path) -> None:
    """The ids of one process are shifted by one: what is a launch in one is a copy in the other."""
    made = Made()
    for number in range(9):
        for rank, pid in enumerate(PIDS):
            made.launch(pid, number % 3, 100 + number + rank, 20 * number, 2)
    assert not list(made.checked(tmp_path)[0])
    made = Made()
    for number in range(9):
        for rank, pid in enumerate(PIDS):
            made.launch(pid, number, 100 + number, 20 * number, 2, External_id=1000 * rank + number + 1)
    assert not list(made.checked(tmp_path)[0])


def test_a_row_without_a_launch_is_of_the_process_of_its_device(tmp_path: Path) -> None:
    """It ran before the recording: the device's other rows are of one process."""
    made = Made()
    for rank, pid in enumerate(PIDS):
        made.command(pid, "kernel", "before", 2 + rank, -50, correlation=7)
        made.command(pid, "gpu_memcpy", "Memcpy HtoD (Host -> Device)", 2 + rank, -40, correlation=8)
        for number in range(8):
            made.launch(pid, number, 100 * (rank + 1) + number, 20 * number, 2 + rank)
    assert not made.checked(tmp_path)[0].problems


def test_a_row_that_nothing_gives_to_a_process_is_counted(tmp_path: Path) -> None:
    made = in_turns(8)
    made.command(PIDS[0], "kernel", "before", 2, -50, correlation=7)
    notes, _ = made.checked(tmp_path)
    assert [(str(note), note.problem) for note in notes if "process" in note.kind] == [
        ("kernel or copy that nothing gives to one of the file's processes: put in the first (made.json)", True)
    ]


def test_a_job_has_the_copies_of_each_process(tmp_path: Path) -> None:
    run = mio2trace.analyse(kineto_file(tmp_path, in_turns(40, lambda rank: 2 + rank).events)).run
    assert run.is_job
    copies = {
        profile.process.label: sum(activity.kind == "copy" for activity in profile.activities)
        for profile in run.profiles
    }
    assert copies == {"pid 542": 5, "pid 777": 5}


def test_equal_processes_of_two_files_have_names_of_their_own(tmp_path: Path) -> None:
    """Two recordings of processes with the same ids, side by side in one picture."""
    files = []
    for at_us in (0, 50_000_000):
        longer = 0.5 if at_us else 0  # else it would be one process that two profilers recorded
        events = [{**event, "dur": event["dur"] + longer} for event in in_turns(8, at_us=at_us).events]
        files.append(kineto_file(tmp_path, events, f"{at_us}.json"))
    names = [process.name for process in mio2trace.convert(*files).trace.processes]
    assert len(set(names)) == len(names) == 8


@pytest.mark.parametrize("others", [0, 1])
def test_annotations_of_a_process_without_anything_else(others: int, tmp_path: Path) -> None:
    """They are of the process that launched all; of none of two. A process may have two numbers, as in a container."""
    made = Made()
    for number, pid in enumerate(PIDS[: 1 + others]):
        made.launch(pid, 0, 1000 * number + 1, 100, number)
        made.events.append(row("cpu_op", "aten::add", pid, pid, FIRST_US + 90, 30, External_id=number + 1))
    step = row("user_annotation", "ProfilerStep#1", 31, 31, FIRST_US, 500, External_id=9)
    own = row("user_annotation", "forward", PIDS[0], PIDS[0], FIRST_US + 80, 100, External_id=10)
    for events in ([step, *made.events, own], [own, *made.events, step]):
        made.events = events
        _, _, profiles = made.read(tmp_path)
        found = {
            profile.process.pid: {one.text for one in profile.ranges if one.kind == "annotation"}
            for profile in profiles
        }
        if others:
            assert found == {31: {"ProfilerStep#1"}, PIDS[0]: {"forward"}, PIDS[1]: set()}
        else:
            assert found == {PIDS[0]: {"ProfilerStep#1", "forward"}}
        made.events = [event for event in events if event not in (step, own)]


def test_steps_of_a_process_without_anything_else(tmp_path: Path) -> None:
    """Both counts have the kernels in them."""
    events = []
    for at in range(3):
        begin = FIRST_US + 100 * at
        events.append(row("user_annotation", f"ProfilerStep#{at}", 31, 31, begin, 90, External_id=9 + at))
        events += launched(at + 1, 100 * at + 10, 30)
    path = kineto_file(tmp_path, events, "rank0.pt.trace.json")
    (one,) = rows(path, path.name)
    assert one.wrong == {}
    assert one.said is not None
    assert one.said.kernels == (1, 1, 1)
