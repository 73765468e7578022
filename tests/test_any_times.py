"""Whatever times a profile states: a valid picture, exact, and what cannot be in it is counted."""

from __future__ import annotations

import contextlib
import io
import itertools
from pathlib import Path
from random import Random
from typing import Any

import pytest
from mio2trace.conversion import Conversion, convert
from mio2trace.draw.lanes import packed, packed_spans
from mio2trace.model.profile import Enqueue
from mio2trace.notes import InputError
from mio2trace.trace import Slice
from mio2trace.writers import WRITERS

from tests.fuzz.times import altered
from tests.small_runs import Program, as_json, benchmark, stamp


def converted(calls: list[dict[str, Any]], folder: Path, log: str = "", **options: Any) -> tuple[Conversion, bytes]:
    (folder / "prof.json").write_bytes(as_json(calls))
    files = [folder / "prof.json"]
    if log:
        (folder / "run.log").write_text(log)
        files.append(folder / "run.log")
    out = io.BytesIO()
    found = convert(*files, output=out, check=True, by_order_alone=True, **options)
    WRITERS[1].write(found.trace, io.BytesIO())
    return found, out.getvalue()


def commands_at(*spans: tuple[int, int]) -> list[dict[str, Any]]:
    """Kernels of one queue that ran at these times."""
    run = Program()
    run.kernel("k", "0x60")
    for start, end in spans:
        run.enqueue("k", "0x60", profiling={"queued": start, "submit": start, "start": start, "end": end})
    return run.calls


def kernels(found: Conversion) -> list[tuple[int, int, int]]:
    return sorted(
        (event.track, event.start_ns, event.dur_ns)
        for event in found.trace.events()
        if isinstance(event, Slice) and event.category == "kernel"
    )


@pytest.mark.parametrize("seed", range(250))
def test_altered_times(seed: int, tmp_path: Path) -> None:
    """A run whose times are altered gives a valid trace in both forms, or is refused."""
    chance = Random(seed)
    calls, log = benchmark(
        iterations=chance.randint(1, 3), marks=chance.random() < 0.5, kernels=chance.randint(1, 3)
    )  # fmt: skip
    options = chance.choice(({}, {}, {"host_calls": "all"}, {"tracks": ("kernels", "operations")}, {"begin": "1us"}))
    with contextlib.suppress(InputError):
        converted(altered(calls, chance), tmp_path, chance.choice(("", log)), **options)


def test_no_length_where_another_begins(tmp_path: Path) -> None:
    """A command without length at the start of another is on a track of its own, with its own time."""
    found, _ = converted(
        commands_at((5000, 5000), (5000, 9000), (9000, 9000), (9000, 9500)), tmp_path, host_calls="none"
    )
    tracks = {track.id: track.name for track in found.trace.tracks}
    drawn = [(tracks[track], start, length) for track, start, length in kernels(found)]
    assert drawn == [
        ("Kernels", 0, 4000),
        ("Kernels", 4000, 500),
        ("Commands without length", 0, 0),
        ("Commands without length", 4000, 0),
    ]


def test_all_at_one_time_take_two_tracks(tmp_path: Path) -> None:
    """A device whose counter stands still fills two tracks, however many commands it ran."""
    found, _ = converted(commands_at(*[(7, 7)] * 50), tmp_path)
    assert len({track for track, _, _ in kernels(found)}) == 2
    assert len(kernels(found)) == 50


def test_layers_of_one_microsecond(tmp_path: Path) -> None:
    """Layers that begin and end in one microsecond of the host's are drawn beside each other."""
    calls, log = benchmark(iterations=2)
    for call in calls[len(calls) // 2 :]:
        call["timestamp"] = {"start": stamp(2000), "end": stamp(2000)}
    found, _ = converted(calls, tmp_path, log)
    assert found.metadata["attribution"]["kernels"] == sum("profiling" in call for call in calls)


@pytest.mark.parametrize("seed", range(50))
def test_lanes_can_be_enclosed(seed: int) -> None:
    """In a lane with room for layers no two commands begin at once, none before the last one ended; none is lost."""
    chance = Random(seed)
    spans = [(start, start + chance.choice((0, 0, 1, 3))) for start in (chance.randint(-3, 12) for _ in range(20))]
    enqueues = [Enqueue(at, "kernel", "k", start_ns=start, end_ns=end) for at, (start, end) in enumerate(spans)]
    lanes = list(packed(enqueues, {0: list(range(len(spans)))}))
    assert sorted(position for lane in lanes for position in lane.positions) == list(range(len(spans)))
    for lane in lanes:
        rows = [spans[position] for position in lane.positions]
        for (begin, end), (start, until) in itertools.pairwise(rows):
            assert start >= end
            assert (start == until) if lane.bare else (start > begin)


def test_lanes_are_the_first_that_is_free() -> None:
    """What overlaps goes to the first lane that is free."""
    assert packed_spans([(0, 5), (1, 2), (2, 3), (5, 6)], lambda span: span) == [[(0, 5), (5, 6)], [(1, 2), (2, 3)]]
