"""Changes made in a real run's files: each is found, named with its cause, and nothing else is said to have changed."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mio2trace.comparing import Comparison, RunRecord, Side, compare
from tests.made_up_runs import ALEXNET, recorded
from tests.synthetic_run import MS, Kernel, Layer
from tests.test_compare_picture import made

LOG, PROFILE = ALEXNET

CONV1 = "Conv fwd 1x3x99x99 -> 1x16x23x23 k11x11 s4"

Calls = list[dict[str, Any]]
Edit = Callable[[Calls], None]


def written(folder: Path, edit: Edit = lambda calls: None, log: Callable[[bytes], bytes] = bytes) -> list[Path]:
    """The run's files with a change in them."""
    folder.mkdir(parents=True)
    edited = json.loads(gzip.decompress(PROFILE.read_bytes()))
    edit(edited)
    (folder / "prof.json").write_text(json.dumps(edited))
    (folder / "run.log").write_bytes(log(gzip.decompress(LOG.read_bytes())))
    return [folder / "run.log", folder / "prof.json"]


def kernels(calls: Calls, name: str = "") -> Calls:
    """The enqueues of the iteration, which are the last 29 of kernels; those of a name."""
    enqueues = [call for call in calls if call["call"] == "clEnqueueNDRangeKernel"][-29:]
    return [call for call in enqueues if call["name"] == name] if name else enqueues


def shorter(calls: Calls, part: float) -> None:
    """Each takes so much of its time."""
    for call in calls:
        times = call["profiling"]
        times["end"] = times["start"] + round((times["end"] - times["start"]) * part)


def changes(comparison: Comparison) -> dict[str, tuple[str, str]]:
    """Of every part of either kind: what is said, and why."""
    return {f"{row.kind} {row.name}": (row.word, row.cause) for row in comparison.rows if row.word != "~" or row.cause}


def test_a_kernel_that_is_slower_in_files(tmp_path: Path) -> None:
    """By 15 %, in three runs of each side: its problem and its layer, and the gate of problems."""

    def side(name: str, part: float) -> Side:
        def made(number: int) -> RunRecord:
            def edit(calls: Calls) -> None:
                shorter(kernels(calls), 0.99 + number / 200)
                shorter(kernels(calls, "MIOpenCDFGen"), part)

            return recorded(*written(tmp_path / name / str(number), edit))

        return Side(name=name, runs=tuple(map(made, range(3))))

    comparison = Comparison(side("a", 0.87), side("b", 1.0))
    assert changes(comparison) == {f"problem {CONV1}": ("slower", ""), "layer conv1 forward": ("slower", "")}
    assert [failure.name for failure in comparison.failures(None, 0.10)] == [CONV1, "conv1 forward"]


def test_a_solver_that_is_replaced_in_files(tmp_path: Path) -> None:
    """The log names another, the profile runs another kernel."""

    def edit(calls: Calls) -> None:
        for call in kernels(calls, "MIOpenCDFGen"):
            call["name"] = "naive_conv_fwd_nchw"

    files = written(tmp_path / "b", edit, lambda log: log.replace(b"ConvOclDirectFwdGen", b"ConvDirectNaiveConvFwd"))
    assert changes(compare([LOG, PROFILE], files)) == {
        f"problem {CONV1}": ("~", "solver ConvOclDirectFwdGen -> ConvDirectNaiveConvFwd; naive now")
    }


def test_transposes_that_are_added_in_files(tmp_path: Path) -> None:
    """Two kernels with the buffers of the convolution, before it."""

    def edit(calls: Calls) -> None:
        conv = kernels(calls, "MIOpenCDFGen")[-1]
        at = calls.index(conv)
        first = at
        while calls[first - 1]["call"] == "clSetKernelArg":
            first -= 1
        times = conv["profiling"]
        step = (times["start"] - times["queued"]) // 8
        own = calls[first : at + 1]
        for number in range(2):
            more = copy.deepcopy(own)
            enqueue = more[-1]
            enqueue["name"] = "batched_transpose_32x32_dword"
            begin = times["queued"] + (3 * number + 1) * step
            enqueue["profiling"] = {
                "queued": begin - 2, "submit": begin - 1, "start": begin, "end": begin + step
            }  # fmt: skip
            calls[first:first] = more
            first += len(more)
        times["queued"] = times["submit"] = times["start"] - 1

    comparison = compare([LOG, PROFILE], written(tmp_path / "b", edit))
    assert {name: cause for name, (_, cause) in changes(comparison).items() if cause} == {
        f"problem {CONV1}": "+2 transposes"
    }


@pytest.mark.parametrize("with_log", [True, False])
def test_kernels_that_are_renamed_in_files(tmp_path: Path, with_log: bool) -> None:
    """Inside of its problem a kernel's name is a remark, without a log it is the part that was renamed."""

    def edit(calls: Calls) -> None:
        for call in calls:
            if call.get("name") == "SoftmaxForward":
                call["name"] = "SoftmaxForwardV2"

    files = written(tmp_path / "b", edit)
    ((name, what),) = changes(compare(ALEXNET, files) if with_log else compare(PROFILE, files[1])).items()
    if with_log:
        assert name.startswith("problem Softmax fwd")
        assert what == ("~", "kernels SoftmaxForward -> SoftmaxForwardV2")
    else:
        assert (name, what) == ("kernel SoftmaxForward", ("~", "renamed: SoftmaxForwardV2"))


def test_a_layer_that_is_inserted_into_the_net() -> None:
    """It and its kernel are on one side only; what follows is matched as before. Everything is of an iteration,
    however many there are."""
    net = [Layer(name=f"conv{number}", forward=[Kernel(name=f"k{number}", ns=number * MS)]) for number in range(1, 5)]
    new = Layer(name="new", forward=[Kernel(name="k_new", ns=MS)])
    comparison = Comparison(made(net, 1).side, made([*net[:2], new, *net[2:]], 1, 5).side)
    assert changes(comparison) == {"kernel k_new": ("only in B", ""), "layer new forward": ("only in B", "")}
    assert {row.ratio for row in comparison.rows if row.b_ns and row.a_ns} == {1.0}


def test_searches_of_one_side_only(tmp_path: Path) -> None:
    """The kernels that MIOpen's Find launched are gone, and no problem has changed."""

    def edit(calls: Calls) -> None:
        keep = {id(call) for call in kernels(calls)}
        calls[:] = [call for call in calls if call["call"] != "clEnqueueNDRangeKernel" or id(call) in keep]

    files = written(tmp_path / "a", edit)
    comparison = Comparison(Side(name="a", runs=(recorded(*files),)), Side(name="b", runs=(recorded(),)))
    assert [(row.name, row.word) for row in comparison.once if row.word != "~"] == [("searches", "only in B")]
    assert changes(comparison) == {}


def test_another_batch_of_the_same_net() -> None:
    """Problems that differ in it alone are matched, and not judged; layers keep their place."""
    one = recorded()
    parts = tuple(
        msgspec.structs.replace(part, name=part.name.replace(" 1x", " 32x")) if part.kind == "problem" else part
        for part in one.parts
    )
    other = Side(name="32", runs=(msgspec.structs.replace(one, parts=parts),))
    comparison = Comparison(Side(name="1", runs=(one,)), other)
    assert {row.word for row in comparison.rows if row.kind == "problem"} == {"other size"}
    assert {row.word for row in comparison.rows if row.kind == "layer"} == {"~"}
