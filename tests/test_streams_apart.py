"""Streams that take much of a device's time are in sight before any group is opened: the collectives' is one."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import mio2trace
from mio2trace.trace import CounterValue, Trace
from mio2trace.writers.native import write
from tests.native_packets import read_native


def traced(tmp_path: Path, collectives_us: int) -> Trace:
    """Nine kernels of 100 us on stream 7, a collective on stream 9."""
    rows = []
    for number, (stream, name, us) in enumerate(
        [*[(7, "work", 100)] * 9, (9, "ncclDevKernel_AllReduce", collectives_us)]
    ):
        launch = {"name": "hipLaunchKernel", "cat": "cuda_runtime", "pid": 1, "tid": 1, "dur": 1}
        kernel = {"name": name, "cat": "kernel", "pid": 0, "tid": stream, "dur": us}
        rows += [
            {"ph": "X", "ts": 1000 + 200 * number, "args": {"correlation": number}, **launch},
            {"ph": "X", "ts": 1010 + 200 * number, **kernel,
             "args": {"device": 0, "stream": stream, "correlation": number}},
        ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "G"}], "traceEvents": rows}))
    return mio2trace.convert(path).trace


@pytest.mark.parametrize(("us", "names"), [(100, []), (101, ["GPU 0 · Stream 9: kernels (G)"])])
def test_a_stream_with_more_than_a_tenth_of_the_kernel_time_is_at_the_top(
    tmp_path: Path, us: int, names: list[str]
) -> None:
    trace = traced(tmp_path, us)
    packed = io.BytesIO()
    write(trace, packed)
    found = read_native(packed.getvalue())
    roots = {one.uuid: one.name for one in found.descriptors.values() if not one.HasField("parent_uuid")}
    assert [name for name in roots.values() if name.startswith("GPU")] == ["GPU 0 · Stream 7: kernels (G)", *names]
    # A viewer puts a track at the top only if it has another one below it.
    parents = {one.parent_uuid for one in found.descriptors.values() if one.HasField("parent_uuid")}
    assert {uuid for uuid, name in roots.items() if name.startswith("GPU")} <= parents
    busy = {one.name for one in trace.events() if isinstance(one, CounterValue)}
    assert ("Stream 9 busy" in busy) is bool(names)
    assert "Device busy" in busy
