"""Collectives of PyTorch's traces: message, type, group, bandwidths, against the raw rows and by hand."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import mio2trace
from mio2trace.cli import cli
from mio2trace.measures.cost import bandwidth
from mio2trace.model.profile import Collective, Inputs
from mio2trace.ops.aten import plain
from mio2trace.ops.operation import problem_name
from mio2trace.trace import Slice
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, Row, kineto_file, launched, row

BYTES = {"Float": 4, "BFloat16": 2, "Half": 2, "Long": 8, "Int": 4, "Byte": 1}
SAMPLES = (
    "kineto_mi300_resnet50_ddp4_rank0.json.gz", "kineto_mi300_resnet50_ddp4_rank1.json.gz",
    "kineto_mi300x_resnet_train_ddp.json.gz",
)  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("name", SAMPLES)
def test_each_collective_of_a_sample_has_its_message_and_bandwidth(name: str) -> None:
    """Kernel by kernel: bytes from the row's elements and type; all-reduce counts 2 (n - 1) / n, broadcast 1."""
    path = shared_folder() / "samples" / "rocm" / name
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    stated = {one["args"]["External id"]: one["args"] for one in events if one.get("name") == "record_param_comms"}
    launches = [one["args"] for one in events if one.get("cat") == "cuda_runtime"]
    of_call = {args.get("correlation"): stated.get(args.get("External id")) for args in launches}
    alignment = mio2trace.analyse([path]).run.alignment
    assert alignment is not None
    operations = {one.index: one for one in alignment.links.operations}
    checked: Counter[str] = Counter()
    for position, activity in enumerate(alignment.profile.activities):
        true = of_call.get(activity.correlation)
        if true is None or activity.kind != "kernel":
            continue
        operation = operations[alignment.links.operation_of[position]]
        kind, ranks = true["Collective name"], true["Group size"]
        assert operation.primitive == kind
        assert operation.mode == f"{ranks} ranks, group {true['Process Group Name']}"
        ns = (activity.end_ns or 0) - (activity.start_ns or 0)
        made = bandwidth(operation, 1, ns)
        assert made is not None
        assert made.message_bytes == true["In msg nelems"] * BYTES[true["dtype"]]
        factor = {"allreduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}[kind]
        assert made.bus == pytest.approx(made.message_bytes / ns * factor)
        checked[kind] += 1
    assert checked["allreduce"] >= 6


@pytest.mark.parametrize(
    ("made", "name", "message", "factor"),
    [
        (Collective("allreduce", "bfloat16", 100, 100, 8, 0), "AllReduce 100 8 ranks, group 0 bfloat16", 200, 1.75),
        (Collective("_allgather_base", "float", 100, 400, 4), "AllGather 100 -> 400 4 ranks", 1600, 0.75),
        (Collective("_reduce_scatter_base", "float", 400, 100, 4), "ReduceScatter 400 -> 100 4 ranks", 1600, 0.75),
        (Collective("all_to_allv", "half", 64, 64, 2), "AllToAll 64 2 ranks half", 128, 0.5),
        (Collective("broadcast", "float", 9, 9, 4), "Broadcast 9 4 ranks", 36, 1.0),
        (Collective("send", "float", 9, 0, 2), "Send 9 2 ranks", 36, 1.0),
        (Collective("allreduce_coalesced", "float", 9, 9, 1), "AllReduce 9 1 rank", 36, 0.0),
        (Collective("allreduce", "", 9, 9, 4), "AllReduce 9 4 ranks", None, 1.5),
        (Collective("barrier", "uint8", 0, 0, 4), "Barrier 4 ranks uint8", None, None),
        (Collective("allgather", "float", 9, 36), "AllGather 9 -> 36", 144, None),
    ],
)
def test_kinds(made: Collective, name: str, message: int | None, factor: float | None) -> None:
    """By their many names; what is not recorded is not told."""
    operation = plain("record_param_comms", Inputs(collective=made))
    assert problem_name(operation) == name
    assert operation.problem is not None
    assert (operation.problem.message_bytes(), operation.problem.bus_factor()) == (message, factor)
    assert operation.flop == 0


def test_another_name_is_a_plain_op() -> None:
    operation = plain("record_param_comms", Inputs(collective=Collective("wait", "float", 1, 1, 2)))
    assert operation.is_plain


def reducing() -> list[Row]:
    args: dict[str, Any] = {
        "Collective_name": "allreduce", "dtype": "BFloat16", "In_msg_nelems": 1000, "Out_msg_nelems": 1000,
        "Group_size": 4, "Process_Group_Name": "7", "Input_Dims": [[[1000]]],
    }  # fmt: skip
    return [
        row("cpu_op", "c10d::allreduce_", 7, 7, FIRST_US, 30, External_id=1),
        row("cpu_op", "record_param_comms", 7, 7, FIRST_US + 5, 20, External_id=2, **args),
        *launched(71, 8, 2, "ncclDevKernel_Generic", pid=7, stream=4, wait=32, External_id=2),
    ]


def test_trace_and_table_have_them(tmp_path: Path) -> None:
    """2000 bytes in 2 us are 1 GB/s, of four ranks 1.5 on the bus."""
    path = kineto_file(tmp_path, reducing())
    result = mio2trace.convert(path, output=tmp_path / "out.json")
    (made,) = [one for one in result.trace.events() if isinstance(one, Slice) and one.category == "operation"]
    args = dict(made.args) | dict(made.shared or {})
    assert (args["message_bytes"], args["algorithm_gb_per_s"], args["bus_gb_per_s"]) == (2000, 1, 1.5)
    table = CliRunner().invoke(cli, ["ops", str(path), "--group-by", "problem", "--format", "json", "-q"])
    (cells, *_) = json.loads(table.stdout)
    assert cells["problem"] == "AllReduce 1000 4 ranks, group 7 bfloat16"
    assert (cells["message_bytes"], cells["bus_gb_per_s"]) == (2000, 1.5)
