"""Nodes of graphs that a profile lacks: the time in which they ran is no idle time. Both counts say the same.

Each step launches one graph, after a kernel; its nodes take 300 us each and follow each other after 2 us.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from pathlib import Path

import pytest

from mio2trace.measures import Measures
from tests.headlines import measured, rows
from tests.kineto_files import Row, row, trace

STEPS, NODES, NODE = 4, 12, 300.0
LENGTH = 6000.0
Keeps = Callable[[int, int], bool]
"""Whether a node (step, place) is recorded."""


def events(keeps: Keeps, *, apart: float = 2.0, late: float = 0.0) -> list[Row]:
    """``apart``: from node to node; ``late``: how long the graph waits, though it is launched and nothing runs."""
    found: list[Row] = []
    number = 0
    for step in range(STEPS):
        begin = 1000.0 + LENGTH * step
        found.append(row("user_annotation", f"ProfilerStep#{step + 5}", 7, 7, begin, LENGTH, External_id=step + 1))
        for call, at in (("cudaLaunchKernel", 10), ("cudaGraphLaunch", 20)):
            number += 1
            found.append(row("cuda_runtime", call, 7, 7, begin + at, 8, correlation=number))
            if call == "cudaLaunchKernel":
                found.append(kernel("first", begin + 30, 20, number))
            for node in range(NODES if call == "cudaGraphLaunch" else 0):
                if keeps(step, node):
                    found.append(kernel(f"node_{node % 5}", begin + 52 + late + node * (NODE + apart), NODE, number))
    return found


def kernel(name: str, start: float, length: float, number: int, *, stream: int = 7) -> Row:
    return row("kernel", name, 0, stream, start, length, device=0, stream=stream, correlation=number)


def said(events: list[Row], folder: Path) -> Measures:
    path = folder / "rank0.pt.trace.json"
    path.write_bytes(trace(events))
    assert [one.wrong for one in rows(path, path.name)] == [{}]
    (one,) = measured(path)
    return one


def unrecorded(made: Measures) -> list[float]:
    """Of each step, in us."""
    return [0 if one.busy is None else one.busy.unrecorded_ns / 1000 for one in made.steady.told.devices[0].windows]


def test_a_whole_profile_lacks_nothing(tmp_path: Path) -> None:
    made = said(events(lambda *_: True), tmp_path)
    assert made.completeness.complete
    assert unrecorded(made) == [0] * STEPS


@pytest.mark.parametrize("lost", [{4, 5}, {4, 5, 8, 9, 10}])
def test_a_gap_between_two_nodes(lost: AbstractSet[int], tmp_path: Path) -> None:
    """Two nodes of 300 us and three pauses: 606 us. Where one node alone is lost, the gap may be an ordinary one."""
    made = said(events(lambda step, node: step != 2 or node not in lost), tmp_path)
    gaps = [606.0] if 8 not in lost else [606.0, 908.0]
    assert unrecorded(made) == [0, 0, sum(gaps), 0]
    assert dict(made.completeness.counts) == {"graph-gap": len(gaps)}
    assert said(events(lambda step, node: step != 2 or node != 6), tmp_path).completeness.complete


def test_first_nodes_of_a_graph(tmp_path: Path) -> None:
    """In a profile that lacks other nodes; nothing tells of the last ones."""
    made = said(events(lambda step, node: node not in {5, 6} and (step > 0 or node > 3)), tmp_path)
    assert unrecorded(made) == [606.0 + 2.0 + 4 * 302.0, 606.0, 606.0, 606.0]
    assert dict(made.completeness.counts) == {"graph-gap": STEPS + 1}


def test_a_graph_that_waits_as_a_whole_is_queued(tmp_path: Path) -> None:
    """Where no graph lacks a node, a late first node is no sign."""
    made = said(events(lambda *_: True, late=900.0), tmp_path)
    assert made.completeness.complete
    assert {one.why for one in made.steady.idle_causes} >= {"queued"}


def test_a_graph_whose_gaps_are_long_by_themselves(tmp_path: Path) -> None:
    """A hundred times the usual gap of 10 us is a millisecond."""
    assert said(events(lambda step, node: node not in {5, 6}, apart=10.0), tmp_path).completeness.complete
    made = said(events(lambda step, node: node not in {5, 6, 7, 8}, apart=10.0), tmp_path)
    assert dict(made.completeness.counts) == {"graph-gap": STEPS}


def test_a_gap_in_which_another_stream_works(tmp_path: Path) -> None:
    """It is none: the device was busy, and the node may have waited for that."""
    rows = events(lambda _, node: node not in {5, 6})
    for step in range(STEPS):
        number = 1000 + step
        begin = 1000.0 + LENGTH * step
        rows.append(row("cuda_runtime", "cudaLaunchKernel", 7, 7, begin + 30, 5, correlation=number))
        rows.append(kernel("other", begin + 1500, 800, number, stream=9))
    made = said(rows, tmp_path)
    assert made.completeness.complete
