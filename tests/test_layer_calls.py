"""Layers by the order of their calls, where neither times nor lines bound them."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.damage import measured
from benchmarks.damages.sets import HANDLES, HIDDEN, TWIN
from mio2trace import analyse
from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.caffe.calls import Stretch, _Layers, chances_in_order
from mio2trace.align.layers.net import Net, NetLayerSpec
from mio2trace.align.links import NONE
from mio2trace.align.operations.rates import BROKEN, CUT, LOST
from mio2trace.model.log import FrameworkLog, LogEvent
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation
from tests.conftest import shared_folder
from tests.records import made_operation, opencl_profile

PART = st.floats(0.01, 1.0)


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[list[float]], list[float], list[float], list[float]]:
    calls, slots = draw(st.integers(0, 4)), draw(st.integers(1, 3))

    def parts(count: int) -> list[float]:
        return draw(st.lists(PART, min_size=count, max_size=count))

    return [parts(slots) for _ in range(calls)], parts(slots), parts(calls), parts(calls)


@given(rows(), st.booleans(), st.booleans())
def test_chances_are_those_of_all_ways(
    given_: tuple[list[list[float]], list[float], list[float], list[float]], begun: bool, ended: bool
) -> None:
    """Each way by itself, worth its product: of each call the ways with it in a slot, in parts of all."""
    fits, silent, entered, again = given_
    count = len(silent)
    worth = [[0.0] * count for _ in fits]
    total = 0.0
    for way in product(range(-1, count), repeat=len(fits)):  # -1: in no slot
        at, value = 0, 1.0  # slots up to there are behind
        for number, slot in enumerate(way):
            far = (LOST if number or begun else CUT) / count
            if slot < 0:
                value *= BROKEN
            elif slot < at - 1:
                value = 0.0
            else:
                entering = (prod(silent[at:slot]) + far) * entered[number] if slot >= at else 0.0
                value *= (entering if slot >= at else again[number]) * fits[number][slot]
                at = slot + 1
        value *= prod(silent[at:]) + (LOST if ended else CUT) / count
        total += value
        for number, slot in enumerate(way):
            if slot >= 0:
                worth[number][slot] += value
    found_in_order = chances_in_order(fits, silent, entered, again, begun=begun, ended=ended)
    assert found_in_order is not None
    for found, of_call in zip(found_in_order, worth, strict=True):
        assert found == pytest.approx([one / total for one in of_call], rel=1e-6, abs=1e-6)


def test_calls_that_contradict_each_other_by_the_hundred_are_no_fault() -> None:
    """Half of them are of the last slot, and then half of the first one."""
    fits = [[1e-7, 1.0]] * 200 + [[1.0, 1e-7]] * 200
    found = chances_in_order(fits, [0.02, 0.02], [1.0] * 400, [1.0] * 400)
    assert found is not None
    assert all(0.0 <= chance <= 1.0 for chances in found for chance in chances)
    assert all(sum(chances) <= 1.0 + 1e-9 for chances in found)


def test_a_long_net_is_looked_at_where_its_calls_are() -> None:
    """A thousand slots, a call of each: a hundred slots of each call tell, and a limit that is lower is said."""
    count = 1000
    fits = [[1e-5] * at + [1.0] + [1e-5] * (count - at - 1) for at in range(count)]
    ones = [1.0] * count
    found = chances_in_order(fits, [0.02] * count, ones, ones, begun=True, at_most=100 * count)
    assert found is not None
    assert min(chances[at] for at, chances in enumerate(found)) > 0.99
    assert chances_in_order(fits, [0.02] * count, ones, ones, begun=True, at_most=20 * count) is None


NET = {
    "conv1": (
        "conv -n 2 -c 1 -H 28 -W 28 -k 20 -y 5 -x 5 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1", "Conv",
    ),
    "relu1": ("activ -n 2 -c 20 -H 24 -W 24 -m 3 --forw 1 -A 1 -B 1 -G 1", "Activ"),
    "pool1": ("pool -M 0 -n 2 -c 20 -H 24 -W 24 -y 2 -x 2 -p 0 -q 0 -v 2 -u 2 -m max -F 1 -t 1", "Pooling"),
    "drop1": ("", ""),
    "conv2": (
        "conv -n 2 -c 20 -H 12 -W 12 -k 50 -y 5 -x 5 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1", "Conv",
    ),
    "prob": ("softmax -n 2 -c 50 -H 8 -W 8 -F 1 -a 1 -m 1 -A 1.000000 -B 0.000000", "Softmax"),
}  # fmt: skip
OWN = ("lrn -A 0.0001 -B 0.75 -F 1 -H 23 -K 1 -N 5 -W 23 -c 16 -m 1 -n 1", "LRN")
KERNELS = {
    "LRN": "MIOpenLRNAcrossChannels4",
    "Conv": "MIOpenConvUni", "Activ": "MIOpenActiveFwdLite", "Pooling": "mloPoolingG", "Softmax": "SoftmaxForward",
}  # fmt: skip


GRIDS = {"Activ": 2 * 20 * 24 * 24 // 4, "Pooling": 2 * 20 * 12 * 12}
"""Work-items of kernels that have them by their tensors."""


def run_of(folder: Path, iterations: int, lost: tuple[int, ...] = ()) -> list[str]:
    """A log of commands without layer times, and a profile of names and times on a clock of its own; of the iterations
    in ``lost`` the log has no line that ends them. An own call comes before the benchmark and one behind it."""
    stamp = "I1120 11:39:13.866638   742 caffe.cpp:388] "
    log = [f"{stamp}Setting up {layer}" for layer in NET]
    profile = ['"Index","KernelName","gpu-id","queue-id","pid","tid","grd","wgr","BeginNs","EndNs"']

    def call(command: str, kind: str) -> None:
        log.append(f"MIOpen(HIP): Command [LogCmd{kind}] ./bin/MIOpenDriver {command}")
        at = 1_000_000 + 1000 * len(profile)
        profile.append(f'{len(profile) - 1},"{KERNELS[kind]}.kd",0,0,742,742,{GRIDS.get(kind, 256)},64,{at},{at + 500}')

    call(*OWN)
    log += [f"{stamp}*** Benchmark begins ***", f"{stamp}Testing for {iterations} iterations."]
    for number in range(1, iterations + 1):
        for command, kind in NET.values():
            if command:
                call(command, kind)
        if number not in lost:
            log.append(f"{stamp}Iteration: {number} forward-backward time: 1.5 ms.")
    log.append(f"{stamp}Average time per layer:")
    call(*OWN)
    paths = [str(folder / name) for name in ("run.log", "prof.csv")]
    for path, lines in zip(paths, (log, profile), strict=True):
        Path(path).write_text("\n".join([*lines, ""]))
    return paths


def told_of(paths: list[str]) -> list[tuple[int | None, str]]:
    """Of each kernel in a layer the iteration and layer that it is said to be of."""
    links = analyse(paths).run.alignments[0].links
    placed = [place for place, run in enumerate(links.run_of) if run != NONE]
    assert all(links.layer_confidence[place] < 1 for place in placed)  # as their operations at most
    return [(links.iteration_of(place), links.runs[links.run_of[place]].layer) for place in placed]


def whole(iterations: int) -> list[tuple[int | None, str]]:
    layers = [layer for layer, (command, _) in NET.items() if command]
    return [(number, layer) for number in range(1, iterations + 1) for layer in layers]


@pytest.mark.parametrize("lost", [(), (2,), (3,), (1, 2)])
def test_lines_of_iterations_and_the_nets_order_tell_the_layers(tmp_path: Path, lost: tuple[int, ...]) -> None:
    """Without any layer's time; a line that was lost leaves the passes before it countable. In doubt: nothing but the
    order tells."""
    assert told_of(run_of(tmp_path, 3, lost)) == whole(3)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("row", "name", "variant", "least"),
    [
        ("no host times", "m290-alexnet-infer-10it", HIDDEN, 336),
        ("names, times, sizes only", "m121-resnet-infer-2it", HANDLES, 206),
        ("stamps step by an hour", "m121-resnet-infer-2it", HANDLES, 206),
        ("lines lost in bursts", "m290-alexnet-infer-10it", HIDDEN, 300),
        ("host times in s", "m290-resnet-infer-immediate-fused", HANDLES, 77),
        ("host times in s", "m290-resnet-train-entries-cmd", HIDDEN, 515),
        ("as recorded", "twin-alexnet-level6-none-run.hip-rocprof-v1", TWIN, 83),
        ("as recorded", "m290-resnet-train-entries-cmd", HANDLES, 541),
        ("5 % of lines lost", "m290-resnet-train-entries-cmd", HANDLES, 530),
    ],
)
def test_calls_tell_layers_that_no_time_tells(row: str, name: str, variant: str, least: int) -> None:
    """Of runs with a clock that bounds nothing, or none; what lines leave outside of layers stays there: a solver's
    calls behind the last layer."""
    layers = measured(shared_folder(), (row, name, variant, 0)).layers
    assert layers.right >= least
    assert layers.wrong_and_sure == 0


LINES_BEFORE = len(NET) + 3  # the first iteration's
LINES_EACH = 6


@pytest.mark.parametrize("lines", [5, 6, 7, 12, 13])
def test_iterations_behind_the_end_of_the_log_are_those_that_come_again(tmp_path: Path, lines: int) -> None:
    """A log that was cut in an iteration, or between two: the profile's other iterations repeat the known one."""
    paths = run_of(tmp_path, 5)
    log = Path(paths[0]).read_text().splitlines(keepends=True)
    Path(paths[0]).write_text("".join(log[: LINES_BEFORE + lines]))
    assert told_of(paths) == whole(5)


def test_iterations_before_a_log_that_begins_late_are_counted_back(tmp_path: Path) -> None:
    """It has the net and what follows iteration 2; what is before the first iteration is in none."""
    paths = run_of(tmp_path, 5)
    log = Path(paths[0]).read_text().splitlines(keepends=True)
    Path(paths[0]).write_text("".join([*log[: len(NET)], *log[LINES_BEFORE + 2 * LINES_EACH :]]))
    assert told_of(paths) == whole(5)


def test_a_kernel_that_was_lost_ends_the_count(tmp_path: Path) -> None:
    """Behind an iteration that is not as the known one, which iteration is which is not known."""
    paths = run_of(tmp_path, 5)
    log = Path(paths[0]).read_text().splitlines(keepends=True)
    Path(paths[0]).write_text("".join(log[: LINES_BEFORE + 2 * LINES_EACH]))
    profile = Path(paths[1]).read_text().splitlines(keepends=True)
    del profile[2 + 5 * 3 + 2]  # of iteration 4
    Path(paths[1]).write_text("".join(profile))
    assert told_of(paths) == whole(3)


def test_a_search_behind_the_lost_line_of_its_layer_is_not_the_layers_before_it() -> None:
    """Each convolution searches while it is set up, and then an activation is set up. Where the line of a convolution
    is lost its search stands behind that of an activation, which searches nothing."""
    names = [f"{kind}{number}" for number in range(12) for kind in ("conv", "relu")]
    shapes = {name: (1, 8 + at // 2 % 3, 4, 4) for at, name in enumerate(names)}
    events: list[LogEvent] = []
    calls: list[Operation] = []
    for line, name in enumerate(names, 1):
        if name != "conv7":
            events.append(LogEvent(source=0, line=10 * line, kind="setting up", text=name))
        if name.startswith("conv"):
            posed = {"input": (1, 3, 4, 4), "weights": (shapes[name][1], 3, 1, 1), "output": shapes[name]}
            for phase, at in (("find", 10 * line + 5), ("run", 1000 + line)):
                calls.append(
                    made_operation(
                        index=len(calls), source=0, line=at, api="miopenConvolution", primitive="conv",
                        direction="forward", phase=phase, **posed,
                    )
                )  # fmt: skip
    layers = tuple(NetLayerSpec(index=index, layer=name) for index, name in enumerate(names))
    log = FrameworkLog(source=0, events=tuple(events))
    run = Attribution(opencl_profile(source=1), Notes(), logs=[log], operations=calls, net=Net(layers=layers))
    executing = [call for call in calls if call.phase == "run"]
    found = _Layers(run, log, calls).of(executing, Stretch((1,), 1000, 2000))
    assert [one and one.slot.layer and one.slot.layer.layer for one in found] == names[::2]


@pytest.mark.shared
def test_what_a_graph_replays_is_in_the_layers_of_what_it_captured() -> None:
    """Ten iterations of which nine are replayed: the log's calls are those of the first."""
    folder = shared_folder() / "samples" / "rocm-twins" / "alexnet-10it-graph"
    truth = orjson.loads((folder / "truth.json").read_bytes())
    layer_of = {kernel["dispatch_id"]: kernel["layer"] for kernel in truth["kernels"]}
    links = analyse([folder / "run.log", *folder.glob("rocpd/*")]).run.alignments[0].links
    told = Counter(
        (truth["layers"][number]["name"], f"iter{(links.iteration_of(place) or 0) - 1} {run.direction} {run.layer}")
        for place, activity in enumerate(links.activities)
        if activity.kind == "kernel" and links.run_of[place] != NONE
        for number, run in [(layer_of[activity.number], links.runs[links.run_of[place]])]
    )
    assert sum(told.values()) == 290
    assert all(true == said for true, said in told)


@pytest.mark.shared
@pytest.mark.parametrize("variant", [HANDLES, HIDDEN])
def test_the_mode_of_a_recurrent_call_tells_its_layer(variant: str) -> None:
    """Stamps in whole seconds do not separate layers. An LSTM call still belongs to the layer with LSTM in its name."""
    layers = measured(shared_folder(), ("stamps in s", "m121-rnn-infer-first", variant, 0)).layers
    assert layers.wrong_and_sure == 0
    assert layers.right >= 0.98 * layers.kernels > 0
    assert layers.mean >= 0.95
