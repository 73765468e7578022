"""How probable links to layers are said to be where times are coarse or nothing but calls tells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.damage import loaded, measured
from benchmarks.damage_score import tallies
from benchmarks.damages.run import ENQUEUE, with_calls
from benchmarks.damages.sets import HANDLES, HIDDEN, TWIN
from mio2trace import analyse
from mio2trace.align.clocks.axis import chances_between
from mio2trace.align.links import NONE, SURE, Links
from mio2trace.align.operations.rates import WHOLE
from mio2trace.evidence import BUFFERS
from mio2trace.model.profile import Activity
from tests.conftest import shared_folder


@dataclass
class Call:
    """Of an operation, what places it in the log."""

    index: int
    line: int


def linked(calls: list[int], queues: list[int] | None = None) -> Links:
    """Links of kernels to the calls of these numbers, each call on the line of ten times its number; -1: to none."""
    queues = queues or [0] * len(calls)
    activities = [Activity(number=place, kind="kernel", name="k", queue=queue) for place, queue in enumerate(queues)]
    links = Links(activities, [Call(number, 10 * number) for number in range(1 + max(calls))])  # type: ignore[misc]
    for position, number in enumerate(calls):
        if number != NONE:
            links.give_operation([position], number, BUFFERS)
    return links


def test_between_two_calls_each_layer_is_as_likely() -> None:
    """Three layers printed a line between the calls: the kernel is of one of four; where none did, of theirs."""
    chances = chances_between(linked([1, NONE, 5, NONE, NONE, 5]), [11, 22, 33, 77])
    assert chances == {1: WHOLE / 4, 3: WHOLE, 4: WHOLE}
    assert max(chances.values()) < SURE


def test_what_no_call_bounds_is_in_no_layer() -> None:
    """Before a queue's first call, and behind its last one; another queue's calls bound nothing."""
    assert chances_between(linked([NONE, 1, 2, NONE]), [11]) == {0: 0.0, 3: 0.0}
    assert chances_between(linked([1, NONE, 2], [0, 1, 0]), [11]) == {1: 0.0}


@pytest.mark.shared
def test_kernels_before_a_log_that_begins_late_are_in_no_layer() -> None:
    """The first layer that the log still has does not take all that ran before it."""
    layers = measured(
        shared_folder(), ("log begins late", "twin-lenet-cmdonly-kernel-trace-run.hip-rocpd", TWIN, 0)
    ).layers
    assert layers.links > 0
    assert sum(count - true for count, _, true in layers.bins[5:10]) <= 5


@pytest.mark.shared
def test_marks_need_no_fine_host_times() -> None:
    """Times that are whole seconds cannot differ from printed ones by less: cuts at the marks stay sure."""
    layers = measured(shared_folder(), ("host times in s", "lenet-b2-viennacl-fwd", HANDLES, 0)).layers
    assert layers.right == layers.links > 0
    assert layers.mean > 0.99


@pytest.mark.shared
@pytest.mark.parametrize(
    ("row", "variant", "least"), [("host times in s", HANDLES, 437), ("stamps run 2 % fast", HIDDEN, 430)]
)
def test_where_the_clock_may_be_off_by_more_than_a_layer_takes_calls_tell_it(
    row: str, variant: str, least: int
) -> None:
    """Lines and calls keep their order whatever the clock does: stamps that may be off by more are not asked."""
    layers = measured(shared_folder(), (row, "m121-resnet-train-entries-cmd", variant, 0)).layers
    assert layers.right >= least
    assert layers.wrong_and_sure == 0


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("m290-alexnet-infer-10it", 336),
        ("m121-lenet-infer", 26),
        ("m290-resnet-train-entries-cmd", 535),
        ("m121-resnet-infer-2it", 200),
    ],
)
def test_a_clock_that_was_set_while_the_program_ran_bounds_nothing(name: str, least: int) -> None:
    """More kernels than the calls between two lines launch ran while an hour passed there: the order of calls tells."""
    operations = measured(shared_folder(), ("stamps step by an hour", name, HIDDEN, 0)).operations
    assert operations.right >= least
    assert operations.wrong_and_sure == 0


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("m290-resnet-infer-immediate-fused", 77),
        ("m121-lenet-train-ownkernels", 44),
        ("m290-resnet-train-entries-cmd", 541),
    ],
)
def test_a_clock_that_was_set_by_milliseconds_bounds_no_layers(name: str, least: int) -> None:
    """As it comes to lie, lines were printed within calls of the thread that prints: the order of calls tells."""
    layers = measured(shared_folder(), ("stamps step by 5 ms", name, HIDDEN, 0)).layers
    assert layers.right >= least
    assert layers.wrong_and_sure == 0


@pytest.mark.shared
@pytest.mark.parametrize("name", ["alexnet-b1-fwd-nomarks", "alexnet-b1-train", "alexnet-b3-libdnn-train-iter2"])
def test_a_log_that_was_cut_off_while_the_net_was_set_up_names_the_layers_that_the_marks_cut(name: str) -> None:
    """It is not refused for ending before the profile begins; what may have run on the host is in doubt."""
    case = measured(shared_folder(), ("log ends early", name, HANDLES, 0))
    assert not case.refused
    assert case.layers.right > 0.95 * case.layers.kernels
    assert case.layers.wrong_and_sure == 0
    assert case.layers.mean > 0.95


@pytest.mark.shared
def test_times_of_a_clock_that_may_be_off_by_more_than_layers_take_name_none() -> None:
    """Printed times fitted to iterations that lie elsewhere: what is less likely than not is taken back, and the order
    of calls tells."""
    layers = measured(shared_folder(), ("stamps run 2 % fast", "m121-resnet-infer-2it", HIDDEN, 0)).layers
    assert layers.right == layers.kernels > 200
    assert layers.wrong_and_sure == 0


@pytest.mark.shared
@pytest.mark.parametrize("row", ["the program's earlier run before", "whole log twice"])
def test_runs_that_are_alike_have_the_same_layers(row: str) -> None:
    """Nothing tells which of two runs of one net was profiled: calls are in doubt, what layer they are of is not."""
    case = measured(shared_folder(), (row, "twin-resnet-immediate-2ranks-run-rocpd", TWIN, 0))
    assert case.layers.right == case.layers.kernels > 90
    assert case.layers.mean > 0.98


@pytest.mark.shared
@pytest.mark.parametrize(
    ("row", "name", "variant", "least", "likely"),
    [
        ("two threads with ids", "m290-resnet-infer-immediate-fused", HANDLES, 413, 0.99),
        ("two threads with ids", "m290-alexnet-infer-10it", HIDDEN, 413, 0.99),
        # Stamped lines are one thread's: the other's calls do not end before them.
        ("two threads with ids", "m290-alexnet-infer-10it", HANDLES, 413, 0.99),
        ("two threads without ids", "m121-lenet-train-debugbuild", HIDDEN, 125, 0.99),
        # The same net in step: buffers tell whose calls each queue has.
        ("two threads without ids", "m121-resnet-train-entries-cmd", HANDLES, 886, 0.99),
    ],
)
def test_names_tell_which_queue_is_the_thread_s_that_printed_the_layers(
    row: str, name: str, variant: str, least: int, likely: float
) -> None:
    """Another thread's kernels lie in any layers; they are in none then, and those of the other queue likely right."""
    layers = measured(shared_folder(), (row, name, variant, 0)).layers
    assert layers.right >= least
    assert layers.wrong_and_sure == 0
    assert layers.mean == pytest.approx(likely, abs=0.1)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("row", "name", "variant", "least"),
    [
        ("middle fifth of the log lost", "m290-resnet-train-entries-cmd", HIDDEN, 440),
        ("log ends early", "m290-alexnet-infer-level6-cmd", HIDDEN, 44),
        ("log ends early", "twin-alexnet-level6-none-run.hip-rocpd", TWIN, 50),
    ],
)
def test_before_the_last_search_the_net_is_set_up(row: str, name: str, variant: str, least: int) -> None:
    """Of a log that lost the line which begins the benchmark, or was cut off before it."""
    layers = measured(shared_folder(), (row, name, variant, 0)).layers
    assert layers.right >= least
    assert layers.wrong_and_sure == 0


@pytest.mark.shared
def test_searches_are_no_warm_up() -> None:
    """They run the kernels of an iteration, and others between them; a warm-up prepares memory at most."""
    layers = measured(shared_folder(), ("log begins late", "m290-lenet-train-cmdonly", HANDLES, 0)).layers
    assert layers.links > 20
    assert sum(count - true for count, _, true in layers.bins[:10]) == 0


@pytest.mark.shared
@pytest.mark.parametrize("name", ["alexnet-b1-fwd-nomarks", "squeezenet11-b1-fwd-tz"])
def test_what_was_written_for_kernels_that_a_tool_left_out_is_not_surely_the_next_layers(
    name: str, tmp_path: Path
) -> None:
    """Without GEMMs what a convolution wrote for them lies before the next layer's kernel."""
    run = loaded(shared_folder())[HANDLES][name]
    changed = with_calls(run, [call["call"] != ENQUEUE or "gemm" not in call["name"] for call in run.profile])
    _, layers = tallies(changed, analyse(changed.write(tmp_path)))
    assert layers.links > 0.8 * layers.kernels
    assert layers.wrong_and_sure == 0


@pytest.mark.shared
@pytest.mark.parametrize("name", ["alexnet-b1-fwd-nomarks", "alexnet-b1-train", "squeezenet11-b1-fwd-tz"])
def test_what_was_written_before_a_kernel_of_a_layer_without_parameters_is_an_earlier_layer_s(
    name: str, tmp_path: Path
) -> None:
    """Of a profile without what takes less than 0.5 ms: before a ReLU's kernel lie the weights of the layer before."""
    run = loaded(shared_folder())[HANDLES][name]

    def is_long(call: dict[str, Any]) -> bool:
        return bool(call["profiling"]["end"] - call["profiling"]["start"] >= 500_000)

    changed = with_calls(run, [call["call"] != ENQUEUE or is_long(call) for call in run.profile])
    _, layers = tallies(changed, analyse(changed.write(tmp_path)))
    assert layers.right > 0.98 * layers.kernels
    assert layers.wrong_and_sure == 0


@pytest.mark.shared
def test_bias_that_was_written_behind_a_layer_s_last_kernel_is_that_layer_s() -> None:
    """Dropout, which launches nothing where the net is tested, and a ReLU that does, have nothing to be written."""
    layers = measured(shared_folder(), ("as recorded", "alexnet-b3-libdnn-train-iter2", HANDLES, 0)).layers
    assert layers.right == layers.kernels
