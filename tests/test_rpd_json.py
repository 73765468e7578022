"""RPD's Chrome JSON: what its database has, in whole microseconds, with launches by arrows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.rocm import rpd
from mio2trace.source import Source
from tests.rocm_files import activities, read, samples

HEAD = '[ {}\n,{"name": "process_name", "ph": "M", "pid":"2","args":{"name":"GPU2"}}\n'


def row(pid: int, tid: int, name: str, ts: object, dur: object, desc: str = "") -> str:
    told = f'"pid":"{pid}","tid":"{tid}","name":"{name}","ts":"{ts}","dur":"{dur}","ph":"X"'
    return f',{{{told},"args":{{"desc":"{desc}"}}}}\n'


def arrow(key: int, begin: tuple[int, int, int], end: tuple[int, int, int]) -> str:
    return "".join(
        f',{{"pid":"{pid}","tid":"{tid}","cat":"api_op","name":"api_op","ts":"{ts}","id":"{key}","ph":"{ph}"}}\n'
        for ph, (pid, tid, ts) in (("s", begin), ("f", end))
    )


def written(folder: Path, text: str) -> Path:
    path = folder / "a.json"
    path.write_text(text)
    return path


@pytest.mark.shared
def test_every_operation_is_there_once_with_its_time() -> None:
    path = samples() / "rocm" / "rpd_export_matmul.json"
    (profile,) = read(path, rpd.JSON)
    expected = Counter(
        (int(event["ts"]) * 1000, (int(event["ts"]) + int(event["dur"])) * 1000)
        for event in json.loads(path.read_bytes())
        if event.get("ph") == "X" and event["pid"] == "2"
    )
    assert Counter((a.start_ns, a.end_ns) for a in profile.activities) == expected
    assert profile.clocks[0].resolution_ns == 1000


@pytest.mark.shared
def test_launches_are_those_of_the_database() -> None:
    """The call of each operation, by name and time, as ``rocpd_api_ops`` of the same run has it."""
    (exported,) = read(samples() / "rocm" / "rpd_export_matmul.json", rpd.JSON)
    (original,) = read(samples() / "rocm" / "rpd_torch_matmul.rpd.gz", rpd.DATABASE)

    def launches(profile: object) -> list[tuple[str, int, str, int]]:
        return sorted(
            (a.name, (a.start_ns or 0) // 1000, a.call.name, (a.call.start_ns or 0) // 1000)
            for a in profile.activities  # type: ignore[attr-defined]
            if a.call is not None
        )

    assert launches(exported) == launches(original)
    assert len(launches(exported)) == 85


def test_ranges_marks_and_frames(tmp_path: Path) -> None:
    """What describes itself is a range; frames on the device and graphs as a whole repeat others."""
    text = HEAD + row(7, 7, "conv1", 10, 50, "conv1") + row(7, 7, "hipLaunchKernel", 20, 5)
    text += ',{"pid":"7","tid":"7","name":"here","ts":"12","ph":"i","s":"p","args":{"desc":"here"}}\n'
    text += row(2, 0, "k.kd", 30, 4, "KernelExecution") + row(2, 0, "conv1", 29, 5, "UserMarker frame: 1 ops")
    text += ',{"pid":"2","tid":"0","name":"Graph 1","ts":"30","dur":"9","ph":"X","args":{"kernels":"3"}}\n'
    (profile,) = read(written(tmp_path, text + arrow(1, (7, 7, 23), (2, 0, 30)) + "]\n"), rpd.JSON)
    assert [(made.kind, made.text) for made in profile.ranges] == [("range", "conv1"), ("mark", "here")]
    (kernel,) = profile.activities
    assert (kernel.name, kernel.call and kernel.call.name) == ("k", "hipLaunchKernel")


@pytest.mark.parametrize("before", ["", '{"traceEvents": '])
def test_both_forms_are_read_and_what_was_cut_off_up_to_there(before: str, tmp_path: Path) -> None:
    text = before + HEAD + row(7, 7, "hipLaunchKernel", 20, 5) + row(2, 0, "k", 30, 4, "KernelExecution")
    notes = Notes()
    (profile,) = read(written(tmp_path, text + ',{"pid":"2","tid":"0","na'), rpd.JSON, notes)
    assert [activity.name for activity in profile.activities] == ["k"]
    assert [note.kind for note in notes if note.problem] == ["file cut off: read up to there"]


def test_a_name_with_quotes_is_read(tmp_path: Path) -> None:
    text = HEAD + row(7, 7, "hipInit", 1, 1) + row(2, 0, 'k<"a", 1>', 30, 4, "KernelExecution") + "]\n"
    (profile,) = read(written(tmp_path, text), rpd.JSON)
    assert [activity.name for activity in activities([profile])] == ['k<"a", 1>']


def test_each_process_is_a_profile(tmp_path: Path) -> None:
    text = HEAD + row(7, 7, "hipLaunchKernel", 20, 5) + row(8, 8, "hipLaunchKernel", 40, 5)
    text += row(2, 0, "k7", 30, 4, "KernelExecution") + row(2, 0, "k8", 50, 4, "KernelExecution")
    text += arrow(1, (7, 7, 23), (2, 0, 30)) + arrow(2, (8, 8, 43), (2, 0, 50))
    profiles = read(written(tmp_path, text + "]\n"), rpd.JSON)
    assert [(profile.processes[0].pid, profile.activities[0].name) for profile in profiles] == [(7, "k7"), (8, "k8")]


def test_rows_that_are_no_numbers_lose_themselves_alone(tmp_path: Path) -> None:
    text = HEAD + row(2, 0, "k", "soon", 4, "KernelExecution") + row(2, 0, "k", 30, "", "KernelExecution")
    notes = Notes()
    (profile,) = read(
        written(
            tmp_path,
            text + row(2, 0, "k", 30, 1 << 62, "KernelExecution") + row(2, 0, "m", 30, 4, "KernelExecution") + "]",
        ),
        rpd.JSON,
        notes,
    )
    assert [activity.name for activity in profile.activities] == ["m"]
    assert sum(note.count for note in notes if note.problem) == 3


def test_a_file_without_events_is_one_line(tmp_path: Path) -> None:
    source = Source(str(written(tmp_path, '[ {},{"name": ')), 0, Notes())
    with pytest.raises(InputError, match=r"a\.json: .*expected the trace of a profiler"):
        rpd.JSON.read(source, ReadOptions(), Notes())
    source.close()
