"""Passes that repeat others: drawn in stretches, they are what they are in slices."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mio2trace.conversion import convert
from mio2trace.draw.device import repeated
from mio2trace.trace import Form, Process, Slice, Slices, Stretch, Trace, Track, each
from mio2trace.writers import chrome_json
from tests.conftest import shared_folder
from tests.small_runs import benchmark

SAMPLES = shared_folder() / "samples"


def drawn(trace: Trace) -> list[Slice | Stretch]:
    events = (event for piece in trace.in_stretches[0] for event in piece())
    return [event for event in events if isinstance(event, (Slice, Stretch))]


def in_slices(events: list[Slice | Stretch]) -> Iterator[Slice]:
    for event in events:
        yield from event.slices() if isinstance(event, Stretch) else (event,)


def stretches(events: list[Slice | Stretch]) -> list[Stretch]:
    return [event for event in events if isinstance(event, Stretch)]


@pytest.fixture
def ten_iterations(tmp_path: Path) -> list[Path]:
    calls, log = benchmark(iterations=10)
    (tmp_path / "prof.json").write_text(json.dumps(calls))
    (tmp_path / "run.log").write_text(log)
    return [tmp_path / "prof.json", tmp_path / "run.log"]


def test_iterations_that_repeat_are_stretches(ten_iterations: list[Path]) -> None:
    """The first makes no form, the second does, the third is what it is tried on."""
    trace = convert(*ten_iterations).trace
    events = drawn(trace)
    assert len(stretches(events)) == 7
    assert len({id(stretch.form) for stretch in stretches(events)}) == 1
    assert list(in_slices(events)) == list(trace.parts[0]())


def test_what_only_looks_the_same_is_drawn_in_slices(
    ten_iterations: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A form that is not that of the pass on which it is tried is not used."""
    renamed = json.loads(ten_iterations[0].read_bytes())
    enqueues = [call for call in renamed if call["call"] == "clEnqueueNDRangeKernel"]
    for number, call in enumerate(enqueues):
        call["name"] += str(number)
    ten_iterations[0].write_text(json.dumps(renamed))
    trace = convert(*ten_iterations).trace
    assert not stretches(drawn(trace))
    monkeypatch.setattr(repeated.Repeated, "_look", lambda self, inside: len(inside.commands))
    events = drawn(convert(*ten_iterations).trace)
    assert not stretches(events)
    assert events == list(trace.parts[0]())


def test_passes_that_take_turns_are_stretches_each(ten_iterations: list[Path]) -> None:
    """Of two forms, every other iteration of one; the looks of no more than eight kinds of passes are kept."""

    def renamed(kinds: int) -> list[Stretch]:
        calls = json.loads(ten_iterations[0].read_bytes())
        enqueues = [call for call in calls if call["call"] == "clEnqueueNDRangeKernel"]
        for number, call in enumerate(enqueues):
            call["name"] = call["name"].split("%")[0] + f"%{number // 4 % kinds}"
        ten_iterations[0].write_text(json.dumps(calls))
        trace = convert(*ten_iterations).trace
        assert list(in_slices(drawn(trace))) == list(trace.parts[0]())
        return stretches(drawn(trace))

    assert len({id(one.form) for one in renamed(2)}) == 2
    assert len({id(one.form) for one in renamed(9)}) == 0


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "least"),
    [("m290-alexnet-infer-10it", 5), ("m121-lenet-train-ownkernels", 0), ("m121-resnet-infer-2it", 0)],
)
def test_stretches_of_real_runs_are_their_slices(name: str, least: int) -> None:
    """With operations, layers and what is in doubt."""
    folder = SAMPLES / "miopen-opencl" / name
    trace = convert(folder / "run.log", folder / "prof.json").trace
    events = drawn(trace)
    assert len(stretches(events)) >= least
    alone = list(in_slices(events))
    whole = [event for event in trace.parts[0]() if isinstance(event, Slice)]
    assert alone == whole
    assert [list(one.args) for one in alone] == [list(one.args) for one in whole]


def printed(events: Sequence[Slice | Stretch | Slices]) -> str:
    file = io.BytesIO()
    trace = Trace(
        processes=(Process(id=1, name="GPU"),),
        tracks=(Track(id=2, process=1, name="Kernels"),),
        metadata={},
        parts=(lambda: each(events),),
        in_stretches={0: [lambda: iter(events)]},
    )
    chrome_json.write(trace, file)
    return file.getvalue().decode()


@pytest.mark.parametrize("large", [7, 1 << 70])
def test_a_stretch_is_printed_as_its_slices(large: int) -> None:
    """Whatever is in the text that stays, whatever the numbers: also those that no 64 bits hold."""
    like = [
        Slice(2, 0, 9, 'a "layer"\n', "layer", {"kernel_ns": 1, "cut": True}, {"layer": "caf\u00e9"}),
        Slice(2, 0, 4, "k<int, 3>", "kernel", {"gflops": 0.5, "call_index": 1, "note": "a, b: \\"}, {"lws": "1x1"}),
        Slice(2, 5, 4, "bare", "copy", {}, {}),
        Slice(2, 5, 4, "shared alone", "copy", {}, {"bytes": 1}),
    ]
    numbers = [{"kernel_ns": 0}, {"gflops": 1, "call_index": 2}, {}, {}]
    form = Form(like, [(0, 3), (0, 2), (1, 2), (0, 1)], numbers)
    both: list[Slice | Stretch] = [
        Stretch(form, [1_000_000_001, 1_000_000_999, 12, 999_999], [large, 12.5, 0]),
        Stretch(form, [2_000_000_010, 2_000_000_100, 0, 1], [1, 1e-07, 2]),
    ]
    alone: list[Slice | Stretch] = [*in_slices(both)]
    assert printed(both) == printed(alone)
    assert len([event for event in json.loads(printed(both))["traceEvents"] if event["ph"] == "X"]) == 8


@pytest.mark.parametrize("number", [7, None, 1 << 70])
def test_slices_that_are_alike_are_printed_as_each_alone(number: int | None) -> None:
    """Their own argument stands where it stands in each alone, last of its own."""
    likes = [
        Slice(2, 0, 0, 'a "call"\n', "api", {"call_index": 0}, {"kernel": "k<int, 3>"}),
        Slice(2, 0, 0, "bare", "api", {"call_index": 0}),
        Slice(2, 0, 0, "conv1", "layer", {"note": "caf\u00e9", "call_index": 0}, {"layer": "conv1"}),
    ]
    row = Slices("call_index", [*likes, likes[0]], [0, 1_000, 2_500, 3_000_001], [1, 999, 0, 10**9], [1, 2, number, 4])
    assert [one.args["call_index"] for one in row.slices()] == [1, 2, number, 4]
    assert printed([row, row]) == printed([*row.slices()] * 2)
