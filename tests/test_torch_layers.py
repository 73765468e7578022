"""Layers of PyTorch's traces: modules and annotations, the innermost wins; the backward pass by sequence numbers."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import mio2trace
from mio2trace.align import Alignment
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, Row, row, rows, trace


def aligned(path: Path) -> Alignment:
    alignment = mio2trace.analyse([path]).run.alignment
    assert alignment is not None
    return alignment


def backward(at: float, sequence: int, number: int, **more: Any) -> list[Row]:
    """An op of the backward pass on a second thread, with one kernel."""
    name = "autograd::engine::evaluate_function: ConvolutionBackward0"
    return [
        row("cpu_op", name, 542, 639, at, 90, External_id=number, Sequence_number=sequence, Fwd_thread_id=1),
        row("cpu_op", "aten::mul", 542, 639, at + 5, 50, External_id=number + 1),
        row("cuda_runtime", "hipLaunchKernel", 542, 639, at + 10, 5, External_id=number + 1, correlation=number),
        row("kernel", f"gradient_{number}", 2, 0, at + 40, 5, correlation=number, **more),
    ]


def placed(folder: Path, events: list[Row]) -> dict[str, tuple[str, str | None, int | None, bool]]:
    """Of each kernel: layer, direction, iteration, whether that is sure."""
    path = folder / "made.json"
    path.write_bytes(trace(events))
    alignment = aligned(path)
    links = alignment.links
    found: dict[str, tuple[str, str | None, int | None, bool]] = {}
    for position, activity in enumerate(alignment.profile.activities):
        if activity.kind == "kernel" and links.run_of[position] >= 0:
            run = links.runs[links.run_of[position]]
            iteration = links.passes[run.pass_].iteration
            found[activity.name] = run.layer, run.direction, iteration, position not in links.layer_unsure
    return found


def test_a_gradient_is_in_the_layer_of_its_forward_op(tmp_path: Path) -> None:
    """Also on another thread, and in the iteration of the forward op."""
    found = placed(tmp_path, [*rows(), *backward(FIRST_US + 300, 7, 900)])
    assert found["igemm_fwd_gtcx3_nhwc_bf16"] == ("Conv2d_0", "forward", 3, True)
    assert found["gradient_900"] == ("Conv2d_0", "backward", 3, True)


def test_a_number_that_nobody_had_is_of_no_layer(tmp_path: Path) -> None:
    """So is one whose forward op comes later."""
    early = [*backward(FIRST_US - 300, 7, 900), *backward(FIRST_US + 300, 8, 910)]
    found = placed(tmp_path, [*rows(), *early])
    assert not {"gradient_900", "gradient_910"} & set(found)


def test_numbers_of_two_threads_make_it_unsure(tmp_path: Path) -> None:
    """Each thread counts its own ops."""
    other = row("cpu_op", "aten::mul", 542, 700, FIRST_US + 250, 9, External_id=70, Sequence_number=7)
    module = row("python_function", "nn.Module: ReLU_0", 542, 700, FIRST_US + 245, 20)
    found = placed(tmp_path, [*rows(), module, other, *backward(FIRST_US + 300, 7, 900)])
    assert found["gradient_900"] == ("ReLU_0", "backward", 3, False)


def test_the_innermost_of_annotations_and_modules_wins(tmp_path: Path) -> None:
    """An annotation around all modules names no kernel of theirs; one within a module does."""
    whole = row("user_annotation", "DistributedDataParallel.forward", 542, 542, FIRST_US + 0.5, 300)
    found = placed(tmp_path, [*rows(), whole])
    assert found["igemm_fwd_gtcx3_nhwc_bf16"][0] == "Conv2d_0"
    within = row("user_annotation", "my block", 542, 542, FIRST_US + 5, 150)
    assert placed(tmp_path, [*rows(), within])["igemm_fwd_gtcx3_nhwc_bf16"][0] == "my block"


@pytest.mark.shared
def test_gradients_of_a_real_network_have_the_weights_of_their_layer() -> None:
    """Both directions of a module's convolution have one shape of weights; recomputed forward passes, too."""
    alignment = aligned(shared_folder() / "samples" / "rocm" / "kineto_mi300x_resnet_train_ddp.json.gz")
    links = alignment.links
    weights: dict[tuple[str, bool], set[tuple[int, ...]]] = defaultdict(set)
    for position in range(len(alignment.profile.activities)):
        if links.operation_of[position] >= 0 and links.run_of[position] >= 0:
            operation, run = links.operations[links.operation_of[position]], links.runs[links.run_of[position]]
            if operation.primitive == "conv":
                assert (run.direction == "forward") == (operation.direction == "forward")
                weights[run.layer, operation.direction == "forward"].add(operation.weights)
    layers = {layer for layer, forward in weights if not forward}
    assert len(layers) == 20
    assert not links.layer_unsure
    for layer in layers:
        assert len(weights[layer, True]) == 1
        assert weights[layer, False] == weights[layer, True]
