"""The tools that ask Perfetto about a trace, on a small one written by hand, whole and broken in many ways.

A check that cannot fail proves nothing. test_native.py asks about traces of samples with them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import UI, Engine
from tests.perfetto_tools.perfetto_ui import PerfettoUIError
from tests.perfetto_tools.tp_query import read_checks

Event = dict[str, Any]
Break = Callable[[list[Event]], object]


def small_trace() -> list[Event]:
    """A host that enqueues one kernel, the kernel in its layer, and a counter."""
    names = [("process_name", 1, 9, "Host"), ("thread_name", 1, 2, "OpenCL API")]
    names += [("process_name", 100, 9, "GPU 0 (hand-made)"), ("thread_name", 100, 3, "Layers > kernels")]
    gemm = {"M": 20, "N": 576, "K": 25}
    layer = {"layer": "conv1", "layer_index": 1, "direction": "forward", "iteration": 1}
    return [
        *({"ph": "M", "ts": 0, "pid": p, "tid": t, "name": kind, "args": {"name": n}} for kind, p, t, n in names),
        {"ph": "X", "ts": 1.0, "dur": 9.0, "pid": 1, "tid": 2, "name": "clEnqueueNDRangeKernel", "cat": "api"},
        {"ph": "s", "ts": 1.0, "pid": 1, "tid": 2, "id": 1, "name": "launch", "cat": "flow"},
        {"ph": "X", "ts": 3.0, "dur": 7.0, "pid": 100, "tid": 3, "name": "conv1", "cat": "layer", "args": {**layer}},
        {"ph": "X", "ts": 4.0, "dur": 5.0, "pid": 100, "tid": 3, "name": "Xgemm", "cat": "kernel",
         "args": {**layer, "layer_by": "timer marks", "call_index": 7, "gemm": gemm, "gws": "64x8x1"}},
        {"ph": "f", "bp": "e", "ts": 4.0, "pid": 100, "tid": 3, "id": 1, "name": "launch", "cat": "flow"},
        {"ph": "C", "ts": 4.0, "pid": 100, "name": "GEMM", "args": {"GFLOP/s": 115.2}},
        {"ph": "C", "ts": 9.0, "pid": 100, "name": "GEMM", "args": {"GFLOP/s": 0}},
    ]  # fmt: skip


def write(path: Path, events: list[Event]) -> Path:
    path.write_text(json.dumps({"traceEvents": events}, ensure_ascii=False), "utf-8")
    return path


def named(events: list[Event], name: str) -> Event:
    return next(event for event in events if event["name"] == name)


def change(name: str, /, **values: Any) -> Break:
    """Other values for an event; a dict is merged into its arguments."""

    def apply(events: list[Event]) -> None:
        event = named(events, name)
        for key, value in values.items():
            event[key] = {**event.get(key, {}), **value} if isinstance(value, dict) else value

    return apply


def another(name: str, /, **values: Any) -> Break:
    """One more event like an existing one."""

    def apply(events: list[Event]) -> None:
        events.append(copy.deepcopy(named(events, name)) | values)

    return apply


def without(name: str, key: str) -> Break:
    """An event without one of its keys, or its arguments without one of theirs."""

    def apply(events: list[Event]) -> None:
        event = named(events, name)
        (event if key in event else event["args"]).pop(key)

    return apply


def rename(kind: str, old: str, new: str) -> Break:
    """Another name for a process or a thread."""

    def apply(events: list[Event]) -> None:
        next(e for e in events if e["name"] == kind and e["args"]["name"] == old)["args"]["name"] = new

    return apply


def remove(kind: str, pid: int) -> Break:
    def apply(events: list[Event]) -> None:
        events[:] = [event for event in events if (event["name"], event["pid"]) != (kind, pid)]

    return apply


def second_thread(events: list[Event]) -> None:
    """Two rows of one device that nobody can tell apart."""
    change_of_row = {"pid": 100, "tid": 4}
    events += [named(events, "thread_name") | change_of_row | {"args": {"name": "Layers > kernels"}}]
    events += [named(events, "Xgemm") | change_of_row]


def late(events: list[Event]) -> None:
    """A trace that begins 3 hours after its zero."""
    for event in events:
        if event["ph"] != "M":
            event["ts"] += 3 * 3600e6


BROKEN: list[tuple[str, Break]] = [
    ("importer-errors", without("Xgemm", "dur")),
    ("importer-errors", change("Xgemm", dur=7.0)),  # reaches over the end of its layer
    ("importer-errors", change("GEMM", args={"GFLOP/s": "much"})),
    ("not-empty", lambda events: events.clear()),
    ("no-unfinished-slices", lambda events: events.append(named(events, "Xgemm") | {"ph": "B", "ts": 20.0})),
    ("time-is-exact", change("conv1", dur=1e13)),
    ("starts-near-zero", late),
    ("threads-are-named", remove("thread_name", 100)),
    ("processes-are-named", remove("process_name", 100)),
    ("thread-names-are-unique", second_thread),
    ("process-names-are-unique", rename("process_name", "Host", "GPU 0 (hand-made)")),
    ("slices-are-named", change("conv1", name="")),
    ("names-are-short", change("Xgemm", name="x" * 251)),
    ("slices-have-a-category", without("Xgemm", "cat")),
    ("no-raw-escapes", change("Xgemm", name="a\\nb")),
    ("no-control-characters", change("Xgemm", name='a "b"\tc')),
    ("no-python-or-float-leftovers", change("Xgemm", args={"gws": "None"})),
    ("no-overflowed-ids", change("Xgemm", args={"queue_id": 2**64 - 1})),
    ("argument-types-are-stable", change("conv1", args={"iteration": "1"})),
    ("no-empty-arguments", change("Xgemm", args={"gws": ""})),
    ("kernels-lie-in-their-layer", change("Xgemm", args={"layer": "conv2"})),
    ("kernels-lie-in-their-layer", another("Xgemm", ts=30.0)),
    ("links-name-their-evidence", without("Xgemm", "layer_by")),
    ("links-name-their-evidence", change("Xgemm", args={"operation": 3})),
    ("gemm-sizes-are-positive-integers", change("Xgemm", args={"gemm": {"M": 20, "N": 576, "K": 0}})),
    ("gemm-sizes-are-positive-integers", change("Xgemm", args={"gemm": {"M": 20, "N": 576, "K": 2.5}})),
    ("gemm-sizes-are-complete", change("Xgemm", args={"gemm": {"M": 20, "N": 576}})),
    ("shapes-are-well-formed", change("Xgemm", args={"input_shape": "1x3xNone"})),
    ("no-lost-flows", lambda events: events.append(next(e for e in events if e["ph"] == "f") | {"id": 2})),
    ("one-launch-per-kernel", lambda events: events.extend(
        [{**event, "id": 3, **({"ts": 2.0} if event["ph"] == "s" else {})} for event in events if event["ph"] in "sf"]
    )),
    ("counters-end-inside-the-trace", another("GEMM", ts=50.0)),
]  # fmt: skip


@pytest.mark.engine
def test_the_engine_answers(tmp_path: Path, engine: Engine) -> None:
    """A correct trace passes every check; SQL gives back what was written, exactly."""
    trace = engine(write(tmp_path / "small.json", small_trace()))
    assert trace.errors() == []
    assert trace.failed_checks() == {}
    rows = trace.query("select name, ts, dur, extract_arg(arg_set_id, 'args.gemm.M') as m from slice order by ts")
    assert rows == [
        {"name": "clEnqueueNDRangeKernel", "ts": 1000, "dur": 9000, "m": None},
        {"name": "conv1", "ts": 3000, "dur": 7000, "m": None},
        {"name": "Xgemm", "ts": 4000, "dur": 5000, "m": 20},
    ]
    assert trace.query("select count(*) as n from flow") == [{"n": 1}]
    assert [row["value"] for row in trace.query("select value from counter order by ts")] == [115.2, 0.0]


@pytest.mark.engine
@pytest.mark.thorough
@pytest.mark.parametrize(("check", "damage"), BROKEN, ids=[f"{i}-{name}" for i, (name, _) in enumerate(BROKEN)])
def test_a_broken_trace_fails_its_check(tmp_path: Path, engine: Engine, check: str, damage: Break) -> None:
    """Each check finds the fault that it is for."""
    events = small_trace()
    damage(events)
    assert check in engine(write(tmp_path / "broken.json", events)).failed_checks()


def test_the_checks_are_read() -> None:
    """Every check has a name of its own, and those tried above exist."""
    names = [name for name, _ in read_checks()]
    assert len(names) == len(set(names)) == 36
    assert {name for name, _ in BROKEN} <= set(names)


@pytest.mark.browser
@pytest.mark.thorough
@pytest.mark.parametrize("damage", [change("Xgemm", dur=7.0), without("Xgemm", "dur")])
def test_the_ui_reports_import_errors(tmp_path: Path, ui: UI, damage: Break) -> None:
    """What the UI shows as an error fails a test."""
    events = small_trace()
    damage(events)
    with pytest.raises(PerfettoUIError, match="import errors"):
        ui(write(tmp_path / "broken.json", events))
