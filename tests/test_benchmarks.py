"""The benchmarks' own arithmetic: a perfect trace scores full marks, each kind of fault costs its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.grow import parse_size
from benchmarks.score import score, sets, sizes

Change = Callable[[list[dict[str, Any]]], object]

LAYERS: dict[str, Any] = {
    "layers": [
        {"pass": "init", "direction": "forward", "layer_index": 0, "layer": "conv1"},
        {"pass": "iter0", "direction": "forward", "layer_index": 0, "layer": "conv1"},
        {"pass": "iter1", "direction": "backward", "layer_index": 0, "layer": "conv1"},
    ],
    "enqueues": [{"call_index": 10 * n, "name": "k", "l": layer} for n, layer in enumerate([0, 1, None, 2, 2])],
}
BLAS: list[dict[str, Any]] = [
    {"routine": "WriteRead", "kernels": [{"call_index": 1}]},
    {"routine": "Gemm", "M": 5, "N": 6, "K": 7, "kernels": [{"call_index": 2}, {"call_index": 3}]},
    {"routine": "Gemv", "M": 8, "N": 9, "trans_a": 1, "kernels": [{"call_index": 4}]},
]


def kernel(call_index: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "args": {"call_index": call_index, **args}}


def perfect_layers() -> list[dict[str, Any]]:
    """What a trace should hold for `LAYERS`."""
    out = []
    for enqueue in LAYERS["enqueues"]:
        layer = None if enqueue["l"] is None else LAYERS["layers"][enqueue["l"]]
        args = layer and {
            **{key: layer[key] for key in ("layer", "layer_index", "direction")},
            "iteration": {"init": 0, "iter0": 1, "iter1": 2}[layer["pass"]],
            "layer_by": "timer marks",
        }
        out.append(kernel(enqueue["call_index"], **(args or {})))
    return [*out, {"ph": "X", "cat": "api", "args": {"call_index": 0}}]


def perfect_gemms() -> list[dict[str, Any]]:
    sizes = {3: {"M": 5, "N": 6, "K": 7}, 4: {"M": 9, "N": 1, "K": 8}}
    return [kernel(i, **({"gemm": sizes[i], "gemm_by": "arguments"} if i in sizes else {})) for i in (1, 2, 3, 4)]


def test_a_perfect_trace_has_full_marks() -> None:
    assert score({"traceEvents": perfect_layers()}, LAYERS) == {
        "iterations": {"right": 3, "total": 3},
        "warmup": {"right": 1, "total": 1},
        "outside": {"right": 1, "total": 1},
        **dict.fromkeys(("missing", "extra", "unattributed", "wrong_and_sure", "warmup_by_stamps"), 0),
        "evidence": {"timer marks": 4},
    }
    assert score({"traceEvents": perfect_gemms()}, BLAS) == {
        "gemm": {"right": 2, "total": 2},
        "no_gemm": {"right": 1, "total": 1},
        "missing": 0,
        "extra": 0,
        "evidence": {"arguments": 2},
    }


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda e: e[0]["args"].update(iteration=1), {"warmup": 1, "wrong_and_sure": -1}),
        (lambda e: e[0]["args"].update(iteration=1, sure=False), {"warmup": 1}),
        (lambda e: e[1]["args"].update(direction="backward"), {"iterations": 1, "wrong_and_sure": -1}),
        (lambda e: e[1]["args"].update(layer_index=1), {"iterations": 1, "wrong_and_sure": -1}),
        (lambda e: e[1]["args"].pop("layer"), {"iterations": 1, "unattributed": -1}),
        (lambda e: e[2]["args"].update(layer="conv1"), {"outside": 1, "wrong_and_sure": -1}),
        (lambda e: e.pop(3), {"iterations": 1, "missing": -1}),
        (lambda e: e.append(copy.deepcopy(e[3])), {"extra": -1}),
        (lambda e: e.append(kernel(99)), {"extra": -1}),
        (lambda e: e[0]["args"].update(layer_by="boundary stamps"), {"warmup_by_stamps": -1}),
    ],
)
def test_each_fault_costs_its_own_marks(change: Change, lost: dict[str, int]) -> None:
    events = perfect_layers()
    whole = score({"traceEvents": events}, LAYERS)
    change(events)
    broken = score({"traceEvents": events}, LAYERS)
    for key in whole.keys() - {"evidence"}:
        before, after = (part[key]["right"] if isinstance(part[key], dict) else part[key] for part in (whole, broken))
        assert before - after == lost.get(key, 0), key


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e[2]["args"]["gemm"].update(K=8),
        lambda e: e[2]["args"]["gemm"].update(batch=2),
        lambda e: e[2]["args"].pop("gemm"),
        lambda e: e[1]["args"].update(gemm={"M": 5, "N": 6, "K": 7}),
    ],
)
def test_a_gemm_is_on_one_kernel_with_all_sizes(change: Change) -> None:
    """Wrong sizes, none, or the same on two kernels: all wrong."""
    events = perfect_gemms()
    change(events)
    assert score({"traceEvents": events}, BLAS)["gemm"] == {"right": 1, "total": 2}


def test_the_blas_calls_have_their_sizes() -> None:
    """Routines other than GEMM count as the GEMM that they amount to."""
    conv = {"out_h": 5, "out_w": 4, "num_kernels": 3, "channels": 2, "kernel": 3, "batch": 7}
    assert sizes({"routine": "Convgemm", **conv}) == {"batch": 7, "M": 20, "N": 3, "K": 18}
    assert sizes({"routine": "Syrk", "N": 40, "K": 24}) == {"batch": 1, "M": 40, "N": 40, "K": 24}
    assert sizes({"routine": "Gemv", "M": 8, "N": 9, "trans_a": 0}) == {"batch": 1, "M": 8, "N": 1, "K": 9}
    assert sizes({"routine": "Im2col"}) is None


@pytest.mark.shared
def test_every_real_set_is_scored(shared: Path) -> None:
    samples = shared / "samples" / "dvdt"
    found = list(sets(samples))
    assert {one.truth.name for one in found} == {path.name for path in samples.glob("*.truth.json")}
    assert {one.way for one in found} == {"log and profile", "profile", "interleaved", "boundary"}
    assert all(file.exists() for one in found for file in one.files)


def test_sizes_are_read() -> None:
    assert [parse_size(text) for text in ("500MB", "1.5k", "7")] == [500_000_000, 1500, 7]
