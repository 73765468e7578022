"""A format that the program never saw: one module and one row, and all that follows is right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import mio2trace
from mio2trace import readers
from mio2trace.readers import READERS
from mio2trace.trace import Flow, Slice, Trace
from tests import made_up_format

# Asynchronous, two streams, two threads, one shared clock; kernel 4 has no launch, call 6 launched nothing, call 5 two.
TEXT = """made-up trace 1
range 7 1000 9000 net
range 7 1100 4000 net/conv1
call 7 1200 1300 launch 1
call 7 1400 1450 launch 2
range 7 4000 8900 net/fc
call 7 4100 4150 launch_graph 5
call 9 1250 1500 launch 3
call 9 1600 1700 malloc 6
kernel 0 1900 5000 1 conv
kernel 1 1800 2500 3 copy_layout
kernel 0 5000 5600 2 relu
kernel 1 2600 2700 4 of_nobody
kernel 0 5700 6000 5 gemm
kernel 1 5650 6100 5 gemm
"""


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the format, which is known while the test runs."""
    reader: Any = made_up_format
    monkeypatch.setattr(readers, "READERS", (reader, *READERS))
    path = tmp_path / "made-up.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def trace(made_up: Path, tmp_path: Path) -> Trace:
    result = mio2trace.convert(made_up, output=tmp_path / "out.json", check=True)
    assert not result.notes.problems
    assert [str(note) for note in result.notes] == []
    return result.trace


def tracks(trace: Trace) -> dict[int, str]:
    return {track.id: track.name for track in trace.tracks}


def test_one_module_and_one_row() -> None:
    """The module is the whole format."""
    assert len(Path(made_up_format.__file__).read_text("utf-8").splitlines()) <= 60


def test_kernels_lie_on_their_streams_at_their_times(trace: Trace) -> None:
    """Beside each other where streams are, none altered, none lost."""
    kernels = [event for event in trace.events() if isinstance(event, Slice) and event.category == "kernel"]
    begin = 1000
    assert Counter((kernel.name, kernel.start_ns + begin, kernel.dur_ns) for kernel in kernels) == {
        ("conv", 1900, 3100): 1, ("copy_layout", 1800, 700): 1, ("relu", 5000, 600): 1,
        ("of_nobody", 2600, 100): 1, ("gemm", 5700, 300): 1, ("gemm", 5650, 450): 1,
    }  # fmt: skip
    names = tracks(trace)
    streams = {kernel.name: names[kernel.track] for kernel in kernels if kernel.name != "gemm"}
    assert streams["conv"] == streams["relu"] != streams["copy_layout"] == streams["of_nobody"]


def test_arrows_lead_from_each_launch_forward_to_what_it_launched(trace: Trace) -> None:
    """From the call's start on its thread to each of its kernels; none for a kernel that no recorded call launched."""
    begin = 1000
    names = tracks(trace)
    arrows = {
        (names[arrow.from_track], arrow.from_ns + begin, arrow.to_ns + begin)
        for arrow in trace.events()
        if isinstance(arrow, Flow)
    }
    assert arrows == {
        ("Thread 7", 1200, 1900), ("Thread 7", 1400, 5000), ("Thread 9", 1250, 1800),
        ("Thread 7", 4100, 5700), ("Thread 7", 4100, 5650),
    }  # fmt: skip


def test_a_kernel_may_begin_while_its_launch_returns(made_up: Path, tmp_path: Path) -> None:
    """The arrow is left out only where the call had waited until its kernel ended, or where it would point back."""
    made_up.write_text(
        "made-up trace 1\n"
        "call 7 100 200 launch 1\nkernel 0 150 300 1 outlives_its_launch\n"
        "call 7 400 600 launch 2\nkernel 0 450 600 2 waited_for\n"
        "call 7 700 800 launch 3\nkernel 0 699 900 3 earlier_by_its_clock\n"
        "call 7 910 920 launch 4\nkernel 0 920 930 4 at_once\n"
    )
    result = mio2trace.convert(made_up, output=tmp_path / "out.json", check=True)
    begins = {event.to_ns + 100 for event in result.trace.events() if isinstance(event, Flow)}
    assert begins == {150, 920}


def test_calls_lie_in_the_ranges_of_their_thread(trace: Trace) -> None:
    """Each thread has its row, in which they nest."""
    names = tracks(trace)
    rows: dict[str, list[str]] = {}
    for event in trace.events():
        if isinstance(event, Slice) and event.category in ("range", "api"):
            rows.setdefault(names[event.track], []).append(event.name)
    assert rows == {
        "Thread 7": ["net", "net/conv1", "launch", "launch", "net/fc", "launch_graph"],
        "Thread 9": ["launch", "malloc"],
    }


def test_no_clock_is_made_up(trace: Trace) -> None:
    """One clock for host and device: no offset to be estimated, no step, and no date where the clock tells none."""
    one_clock = {"offset_ns": 0, "error_ns": 0, "drift_ppb": 0, "method": "one clock"}
    assert trace.metadata["clock"] == {"device": one_clock}
