"""Graphs: replayed kernels have the op and the module of their captured launch, and no wrong link is sure."""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import orjson
import pytest

import mio2trace
from mio2trace.align import NONE, Alignment
from mio2trace.align.graphs import Matcher
from mio2trace.answer import Section, report_of
from mio2trace.conversion import convert
from mio2trace.measures import Measures
from mio2trace.ops.operation import Operation
from tests.conftest import shared_folder
from tests.headlines import measured, rows
from tests.kineto_files import FIRST_US, Row, aligned, kineto_alignment, kineto_file, row
from tests.often import present
from tests.rocm_files import plain, samples

PAIRS = {
    "vllm_decode_full": (["graphs/vllm_decode_full.replay.json.gz", "graphs/vllm_decode_full.capture.json.gz"], 421),
    "flux_graph_capture": (["kineto_mi300x_flux_graph_capture.json.gz"], 993),
}


def replayed(alignment: Alignment) -> list[int]:
    """Positions of replayed kernels by device time."""
    activities = alignment.profile.activities
    found = [at for at, one in enumerate(activities) if one.is_replayed and one.kind == "kernel"]
    return sorted(found, key=lambda at: activities[at].start_ns or 0)


def operation_at(alignment: Alignment, position: int) -> Operation | None:
    index = alignment.links.operation_of[position]
    return None if index == NONE else {one.index: one for one in alignment.links.operations}[index]


@pytest.mark.shared
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("turned", [False, True])
def test_every_kernel_of_the_truth_is_right_and_sure(name: str, turned: bool) -> None:
    """The op that an independent matcher finds, or for a modelled op one around it; its module; files in any order."""
    rocm = shared_folder() / "samples" / "rocm"
    files, count = PAIRS[name]
    truth = json.loads(gzip.decompress((rocm / "graphs" / f"{name}.truth.json.gz").read_bytes()))
    alignment = aligned(*[rocm / file for file in (files[::-1] if turned else files)])
    links, activities = alignment.links, alignment.profile.activities
    at = replayed(alignment)
    (replay,) = truth["replays"]
    assert len(at) == count == replay["matched"]
    assert replay["map"] == "identity"
    nodes = truth["captures"][replay["capture"]]["nodes"]
    operation_of = {one.index: one for one in links.operations}
    in_one: dict[int, set[int]] = {}
    for position, node in zip(at, nodes, strict=False):
        assert activities[position].name == node["kernel"].removesuffix(".kd")
        operation = operation_of[links.operation_of[position]]
        assert operation.api == node["op"] or operation.api in node["ops"]
        if operation.api == node["op"] and operation.input and node["dims"] and not operation.mode:
            assert list(operation.input) in node["dims"]
        assert links.operation_by[position] == "capture"
        assert position not in links.operation_unsure
        in_one.setdefault(node["external_id"], set()).add(operation.index)
        assert links.runs[links.run_of[position]].layer == node["modules"][-1]
    assert all(len(indexes) == 1 for indexes in in_one.values())


@pytest.mark.shared
def test_the_matcher_by_itself_agrees_with_the_independent_one() -> None:
    """On captures and replays with names changed, launches removed, captures exchanged: what is sure is the same."""
    path = shared_folder() / "tools" / "graph_truth.py"
    spec = present(importlib.util.spec_from_file_location("graph_truth", path))
    assert spec.loader is not None
    judge = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(judge)

    class Captured:
        def __init__(self, names: Sequence[str]) -> None:
            self.names, self.nodes = tuple(names), list(names)

    one = [f"k{number % 7}" for number in range(40)]
    two = [f"k{number % 5}" for number in range(40)]
    changed = [*one[:20], "other", *one[21:]]
    for captures, replays in (
        ([one, two], [one, two, one]), ([two, one], [one]), ([one, one], [one, one]), ([changed], [one]),
        ([one], [one[:10] + one[11:]]), ([one[:10] + one[11:]], [one]), ([one], [one[:-1]]), ([two], [one]),
    ):  # fmt: skip
        theirs: list[dict[str, Any]] = [{"rows": [{"name": name} for name in names]} for names in replays]
        judge.match(theirs, [Captured(names) for names in captures])
        matcher = Matcher([tuple(names) for names in captures])
        for names, stated in zip(replays, theirs, strict=True):
            fit = matcher.fit(tuple(names))
            if stated["method"] in ("sequence", "order", "rank"):
                assert fit is not None
                assert (fit.capture, list(fit.places)) == (stated["capture"], stated["map"])
            if fit is not None and fit.sure:
                assert stated["method"] == "sequence" or (stated["method"], stated["stray"]) == ("part", [39])
                assert stated["unique"]
                assert all(fit.places[at] == stated["map"][at] for at in fit.sure)


# Made-up files: a capture of ops, and replays of it

OPS = (
    ("aten::mm", [[8, 16], [16, 4]], "gemm"), ("aten::add", [[8, 4], [8, 4]], "elementwise"),
    ("aten::relu", [[8, 4]], "relu"), ("aten::mm", [[8, 4], [4, 32]], "gemm"), ("mine::act", [[8, 32]], "act"),
    ("aten::mm", [[8, 32], [32, 2]], "gemm"), ("aten::add", [[8, 2], [8, 2]], "elementwise"),
    ("aten::mul", [[8, 2], [8, 2]], "scale"), ("aten::_softmax", [[8, 2]], "softmax"),
    ("aten::copy_", [[8, 2], [8, 2]], "copy"),
)  # fmt: skip


def captured(ops: Sequence[tuple[str, Any, str]], first: float = FIRST_US, key: int = 1000) -> list[Row]:
    made = [row("cuda_runtime", "hipStreamBeginCapture", 7, 7, first, 1, correlation=key)]
    for number, (name, dims, kernel) in enumerate(ops, 1):
        at = first + 10 * number
        made += [
            row("python_function", f"nn.Module: Block_{number // 4}", 7, 7, at - 1, 9, Python_id=number),
            row("cpu_op", name, 7, 7, at, 6, External_id=key + number, Input_Dims=dims,
                Input_type=["float"] * len(dims)),
            row("cuda_runtime", "hipLaunchKernel", 7, 7, at + 1, 2, External_id=key + number, correlation=key + number,
                kernel=kernel, grid=[1, 1, 1], block=[64, 1, 1]),
        ]  # fmt: skip
    return [
        *made,
        row("cuda_runtime", "hipStreamEndCapture", 7, 7, first + 10 * len(ops) + 20, 1, correlation=key + 99),
    ]


def replay(kernels: Sequence[str], first: float, key: int, nodes: Sequence[int] | None = None) -> list[Row]:
    made = [
        row("user_annotation", f"ProfilerStep#{key}", 7, 7, first, 400, External_id=key + 500_000),
        row("cuda_runtime", "hipGraphLaunch", 7, 7, first + 1, 5, correlation=key),
    ]
    for number, name in enumerate(kernels):
        ids = {} if nodes is None else {"graph_id": 5, "graph_node_id": nodes[number]}
        made.append(
            row("kernel", name, 2, 0, first + 10 + 5 * number, 4, device=2, stream=0, correlation=key,
                kind="Dispatch Task", **ids)
        )  # fmt: skip
    return made


NAMES = [kernel for _, _, kernel in OPS]
LATER = FIRST_US + 100_000


def written(folder: Path, *files: list[Row]) -> list[Path]:
    return [kineto_file(folder, events, f"made{number}.json") for number, events in enumerate(files)]


def told(alignment: Alignment) -> list[tuple[str | None, bool]]:
    """Of each replayed kernel, in order of time: its op, and whether that is sure."""
    return [
        (None if (one := operation_at(alignment, at)) is None else one.api, at not in alignment.links.operation_unsure)
        for at in replayed(alignment)
    ]


@pytest.mark.parametrize("apart", [False, True])
def test_each_replay_executes_the_ops_of_its_capture(tmp_path: Path, apart: bool) -> None:
    """Once per replay: FLOPs, layers by module, the step of the replay; in one file or two."""
    replays = [*replay(NAMES, LATER, 1), *replay(NAMES, LATER + 1000, 2)]
    files = [replays, captured(OPS)] if apart else [[*captured(OPS), *replays]]
    alignment = aligned(*written(tmp_path, *files))
    links = alignment.links
    assert told(alignment) == [(name, True) for name, _, _ in OPS] * 2
    at = replayed(alignment)
    assert len({links.operation_of[position] for position in at}) == 20
    assert present(operation_at(alignment, at[0])).flop == 2 * 8 * 16 * 4
    assert [links.runs[links.run_of[position]].layer for position in at[:5]] == ["Block_0"] * 3 + ["Block_1"] * 2
    assert [links.iteration_of(position) for position in at] == [1] * 10 + [2] * 10
    host = mio2trace.analyse(written(tmp_path, *files)).run.measures[0].host_ns
    assert all(host(links.operation_of[position]) is None for position in at)


@pytest.mark.parametrize("other_process", [False, True])
def test_a_capture_that_is_replayed_at_once_is_that_of_later_replays(tmp_path: Path, other_process: bool) -> None:
    """The profile of the capture has a replay of its own, and is a run of its own; another process's says nothing."""
    own = [one | {"dur": one["dur"] - 1} for one in replay(NAMES, FIRST_US + 5000, 2)]  # else it is the same replay
    files = replay(NAMES, LATER, 1), [*captured(OPS), *own]
    if other_process:
        files = [one | {"pid": 8 if one["pid"] == 7 else one["pid"]} for one in files[0]], files[1]
    paths = [kineto_file(tmp_path, files[at], f"made{at}.json", distributedInfo={}) for at in (0, 1)]
    runs = {Path(run.inputs[0].path).name: run.alignment for run in mio2trace.analyse(paths).runs}
    assert len(runs) == 2
    for name, alignment in runs.items():
        is_joined = not other_process or name == "made1.json"
        assert told(present(alignment)) == [(api if is_joined else None, True) for api, _, _ in OPS]


def right(alignment: Alignment, true: Sequence[str | None]) -> None:
    """No wrong link is sure."""
    for (name, sure), expected in zip(told(alignment), true, strict=True):
        assert not sure or name in (None, expected)


@pytest.mark.parametrize("place", range(len(OPS)))
def test_one_name_changed_or_one_launch_removed(tmp_path: Path, place: int) -> None:
    """A name of the capture, so that it is another graph's: nothing is sure. A launch of the replay or of the capture:
    links are right, or not sure."""
    name, dims, _ = OPS[place]
    ops = [*OPS[:place], (name, dims, "changed"), *OPS[place + 1 :]]
    rest = [*OPS[:place], *OPS[place + 1 :]]
    other = aligned(*written(tmp_path, replay(NAMES, LATER, 1), captured(ops)))
    lost = aligned(*written(tmp_path, replay([kernel for *_, kernel in rest], LATER, 1), captured(OPS)))
    right(lost, [name for name, _, _ in rest])
    if place == len(OPS) - 1:
        assert told(lost) == [(name, True) for name, _, _ in rest]
    for found in (other, *[lost] * (place < len(OPS) - 1)):
        assert not any(sure and name for name, sure in told(found))
    unknown = aligned(*written(tmp_path, replay(NAMES, LATER, 1), captured(rest)))
    right(unknown, [name for name, _, _ in OPS])


WIDER = [(name, [[2 * one for one in shape] for shape in dims], kernel) for name, dims, kernel in OPS]
TURNED = OPS[::-1]
SURE = [(name, True) for name, _, _ in OPS]
ONCE = replay(NAMES, LATER, 1)
BOTH_WAYS = [*replay(NAMES[::-1], LATER, 1), *replay(NAMES, LATER + 1000, 2)]
COPY, FILL = "__amd_rocclr_copyBuffer", "__amd_rocclr_fillBufferAligned"


def launch(at: float, number: int) -> Row:
    return row("cuda_runtime", "hipLaunchKernel", 7, 7, FIRST_US + at, 2, correlation=number, kernel="lost")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # two captures of other sizes and equal names: which is replayed nothing tells; of other names these tell
        *(([*captured(first), *captured(second, FIRST_US + 1000, 5000), *replays], expected)
          for one, other, replays, expected in (
              (OPS, WIDER, ONCE, [(name, False) for name, _ in SURE]), (OPS, TURNED, BOTH_WAYS, [*SURE[::-1], *SURE]))
          for first, second in ((one, other), (other, one))),
        # two equal launches at the end of a capture, one kernel: which of them ran is not sure, what is before them is
        ([*captured([*OPS, OPS[-1]]), *ONCE], [*SURE[:-1], ("aten::copy_", False)]),
        # copies of the runtime run as kernels in a replay, and are in no operation
        ([*captured(OPS), *replay([COPY, *NAMES[:4], FILL, *NAMES[4:]], LATER, 1)],
         [(None, True), *SURE[:4], (None, True), *SURE[4:]]),
        # launches before a capture are not of it, nor those after it, whose kernels were lost
        ([launch(-5, 77), *captured(OPS), launch(5000, 78), *ONCE], SURE),
        # the calls that begin and end a capture may be filtered out
        ([*(one for one in captured(OPS) if "Capture" not in one["name"]), *ONCE], SURE),
        (ONCE, [(None, True)] * len(OPS)),
    ],
)  # fmt: skip
def test_which_ops_a_replay_runs(events: list[Row], expected: list[tuple[str | None, bool]], tmp_path: Path) -> None:
    alignment = kineto_alignment(tmp_path, events)
    assert told(alignment) == expected
    if expected == SURE:
        assert [one.name for one in alignment.profile.captured] == NAMES


def test_nodes_tell_the_order_that_times_do_not(tmp_path: Path) -> None:
    """Kernels of two streams, out of order by time: by the numbers of their nodes each has its op."""
    order = [1, 0, *range(2, 10)]
    events = [*captured(OPS), *replay([NAMES[at] for at in order], LATER, 1, order)]
    alignment = aligned(*written(tmp_path, events))
    assert told(alignment) == [(OPS[at][0], True) for at in order]
    assert {alignment.links.operation_by[at] for at in replayed(alignment)} == {"graph node"}
    by_time = aligned(*written(tmp_path, [*captured(OPS), *replay([NAMES[at] for at in order], LATER, 1)]))
    right(by_time, [OPS[at][0] for at in order])
    assert not any(sure for _, sure in told(by_time))


def test_without_the_evidence_there_is_no_link(tmp_path: Path) -> None:
    """``--without capture --without 'graph node'``."""
    (path,) = written(tmp_path, [*captured(OPS), *replay(NAMES, LATER, 1)])
    options = mio2trace.AnalysisOptions(without=frozenset(("capture", "graph node")))
    assert {name for name, _ in told(mio2trace.analyse([path], options).run.alignments[0])} == {None}


# -- A capture without its replay ------------------------------------------------------------------------------------


def answer(*paths: Path) -> Section:
    """What the program says of files."""
    analysis = mio2trace.analyse(paths)
    (section,) = report_of(analysis, analysis.runs, None).sections
    return section


def capture_in_a_step() -> list[Row]:
    """A step of 100 ms with a capture, and a fill before and after it."""
    made = [row("user_annotation", "capture_32_DECODE", 7, 7, FIRST_US - 100, 100_000, External_id=5)]
    for key, at in ((1, FIRST_US - 50), (2, FIRST_US + 99_000)):
        made += [
            row("cuda_runtime", "hipLaunchKernel", 7, 7, at, 2, correlation=key, grid=[1, 1, 1], block=[64, 1, 1]),
            row("kernel", "fill", 2, 0, at + 10, 5, device=2, stream=0, correlation=key),
        ]
    return made + captured(OPS)


def test_the_answer_says_that_the_file_is_a_capture(tmp_path: Path) -> None:
    """Its GPU idles by design: that is no finding. It is to be given with its replay."""
    section = answer(*written(tmp_path, capture_in_a_step()))
    assert section.verdict.startswith("Capture of 1 graph, which ran elsewhere. Here: ")
    assert [one.rule.id for one in section.findings][:1] == ["capture"]
    assert "idle" not in [one.rule.id for one in section.findings]
    assert section.findings[0].found.number.startswith("10 launches went into 1 graph and ran nothing here.")
    assert "mio2trace replay.json.gz capture.json.gz" in section.findings[0].advice
    assert all(one.hint != "mostly host-bound" for one in section.spent)


@pytest.mark.parametrize("apart", [False, True])
def test_a_capture_with_its_replay_is_none(tmp_path: Path, apart: bool) -> None:
    """In one file, or in two."""
    ran = [*replay(NAMES, LATER, 20), *replay(NAMES, LATER + 1000, 21)]
    files = [capture_in_a_step(), ran] if apart else [[*capture_in_a_step(), *ran]]
    section = answer(*written(tmp_path, *files))
    assert "Capture of" not in section.verdict
    assert "capture" not in [one.rule.id for one in section.findings]


# -- Nodes of graphs that a profile lacks: the time in which they ran is no idle time. Both counts say the same.
#
# Each step launches one graph, after a kernel; its nodes take 300 us each and follow each other after 2 us.


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
    path = kineto_file(folder, events, "rank0.pt.trace.json")
    assert [one.wrong for one in rows(path, path.name)] == [{}]
    (one,) = measured(path)
    return one


def lost(*nodes: int, steps: AbstractSet[int] = frozenset(range(STEPS))) -> Keeps:
    return lambda step, node: step not in steps or node not in nodes


@pytest.mark.parametrize(
    ("keeps", "apart", "gaps", "lacking"),
    [
        # two nodes of 300 us and three pauses; where one node alone is lost, the gap may be an ordinary one
        (lost(4, 5, steps={2}), 2.0, 1, [0, 0, 606.0, 0]),
        (lost(4, 5, 8, 9, 10, steps={2}), 2.0, 2, [0, 0, 606.0 + 908.0, 0]),
        (lost(6, steps={2}), 2.0, 0, [0] * STEPS),
        # first nodes, in a profile that lacks other nodes; nothing tells of the last ones
        (lambda step, node: node not in {5, 6} and (step > 0 or node > 3), 2.0, STEPS + 1,
         [606.0 + 2.0 + 4 * 302.0, 606.0, 606.0, 606.0]),
        # gaps that are long by themselves: a hundred times the usual one of 10 us is a millisecond
        (lost(5, 6), 10.0, 0, [0] * STEPS),
        (lost(5, 6, 7, 8), 10.0, STEPS, [4 * NODE + 5 * 10.0] * STEPS),
    ],
)  # fmt: skip
def test_a_gap_between_two_nodes(keeps: Keeps, apart: float, gaps: int, lacking: list[float], tmp_path: Path) -> None:
    """What is not recorded of each step, and how many gaps that is."""
    made = said(events(keeps, apart=apart), tmp_path)
    steps = made.steady.told.devices[0].windows
    assert [0 if one.busy is None else one.busy.unrecorded_ns / 1000 for one in steps] == lacking
    assert dict(made.completeness.counts) == ({"graph-gap": gaps} if gaps else {})


def test_a_graph_that_waits_as_a_whole_is_queued(tmp_path: Path) -> None:
    """Where no graph lacks a node, a late first node is no sign."""
    made = said(events(lambda *_: True, late=900.0), tmp_path)
    assert made.completeness.complete
    assert {one.why for one in made.steady.idle_causes} >= {"queued"}


def test_gaps_between_all_nodes_may_be_the_profilers(tmp_path: Path) -> None:
    """A quarter of the step is gaps of 150 us between nodes, which wait only for each other."""
    path = written(tmp_path, events(lambda *_: True, apart=150.0))
    (found,) = [one for one in answer(*path).findings if one.rule.id == "idle"]
    assert "between nodes of one graph launch, which wait only for each other" in found.advice
    assert found.severity == "medium"


def test_a_gap_in_which_another_stream_works(tmp_path: Path) -> None:
    """It is none: the device was busy, and the node may have waited for that."""
    rows = events(lambda _, node: node not in {5, 6})
    for step in range(STEPS):
        number = 1000 + step
        begin = 1000.0 + LENGTH * step
        rows.append(row("cuda_runtime", "cudaLaunchKernel", 7, 7, begin + 30, 5, correlation=number))
        rows.append(kernel("other", begin + 1500, 800, number, stream=9))
    assert said(rows, tmp_path).completeness.complete


# -- Replays whose kernels an RPD profile does not name: iterations where numbers leave no other reading.


UNNAMED = samples() / "rocm-twins" / "alexnet-10it-graph"
ASKED = b"Testing for 10 iterations"


def iterations(alignment: Alignment) -> Counter[int | None]:
    kernels = (at for at, one in enumerate(alignment.profile.activities) if one.kind == "kernel")
    return Counter(alignment.links.iteration_of(at) for at in kernels)


@pytest.mark.shared
def test_launches_of_a_graph_are_the_iterations_that_the_log_asked_for() -> None:
    """29 kernels in each of ten, in their true layers, which are in doubt."""
    alignment = aligned(UNNAMED / "rpd" / "trace.rpd.gz", UNNAMED / "run.log")
    assert {number: count for number, count in iterations(alignment).items() if number} == dict.fromkeys(
        range(1, 11), 29
    )
    truth = orjson.loads((UNNAMED / "truth.json").read_bytes())
    name_of = {one["rpd"]: truth["layers"][one["layer"]]["name"] for one in truth["kernels"] if "rpd" in one}
    links = alignment.links
    placed = [at for at, word in enumerate(links.layer_by) if word == "order"]
    assert len(placed) == 9 * 29
    for at in placed:
        run = links.runs[links.run_of[at]]
        said = f"iter{links.passes[run.pass_].iteration - 1} {run.direction} {run.layer}"  # type: ignore[operator]
        assert said == name_of[alignment.profile.activities[at].number]
        assert links.layer_confidence[at] <= 0.5
    answer = convert(UNNAMED / "rpd" / "trace.rpd.gz", UNNAMED / "run.log").answer
    assert "21.12 ms of kernels (9 steady of 10" in " ".join(" ".join(answer[:4]).split())


@pytest.mark.shared
@pytest.mark.parametrize(
    ("asked", "statement"),
    [
        # launches that are not as many: some may be of something else, or hold several
        *((asked, "") for asked in (b"Testing for 11 iterations", b"Testing for 9 iterations", b"Testing some")),
        # a graph with a kernel less, one with a kernel more
        (ASKED, "DELETE FROM rocpd_op WHERE id = (SELECT max(op_id) FROM rocpd_api_ops JOIN rocpd_op o ON o.id = op_id"
                " JOIN rocpd_string s ON s.id = o.opType_id WHERE s.string = 'Task')"),
        (ASKED, "UPDATE rocpd_api_ops SET api_id = (SELECT max(api_id) FROM rocpd_api_ops) WHERE op_id = 122"),
    ],
)  # fmt: skip
def test_other_launches_are_no_iterations(tmp_path: Path, asked: bytes, statement: str) -> None:
    path, log = plain(UNNAMED / "rpd" / "trace.rpd.gz", tmp_path), (UNNAMED / "run.log").read_bytes()
    assert log.count(ASKED) == 1
    (tmp_path / "run.log").write_bytes(log.replace(ASKED, asked))
    if statement:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute(statement)
            connection.commit()
    alignment = aligned(path, tmp_path / "run.log")
    assert max(filter(None, iterations(alignment))) == 1
    tasks = [at for at, one in enumerate(alignment.profile.activities) if one.name == "Task"]
    assert tasks
    if statement:
        assert all(alignment.links.pass_of[at] == NONE for at in tasks)
