"""PyTorch's profiler traces with a canary in every text that one can hold, and in those beside the events."""

from __future__ import annotations

from typing import Any

from tests.kineto_files import BASE_NS, FIRST_US, Row, row, rows, trace


def events(canary: str) -> list[Row]:
    """A step whose every name and argument ends in the canary, and the rows that no reader takes."""
    made = [_planted(event, canary) for event in rows()]
    shapes = {"Input_Dims": [[4, 4], [4, 4]], "Input_type": ["float", canary], "Concrete_Inputs": [canary, canary]}
    made += [
        _compiled(row("cpu_op", "aten::mm", 542, 542, FIRST_US + 200, 9, External_id=80, Process_Group_Name=canary,
                      **shapes), canary),
        row("cpu_op", f"record_param_comms {canary}", 542, 542, FIRST_US + 220, 9, External_id=81),
        row("python_function", f"nn.Module: Linear_0 {canary}", 542, 542, FIRST_US + 195, 20),
        row("python_function", f"/srv/{canary}/{canary} train.py(12): run {canary}", 542, 542, FIRST_US + 305, 9,
            Python_id=70, Python_parent_id=None),
        row("cuda_runtime", "hipLaunchKernel", 542, 542, FIRST_US + 306, 1, correlation=210),
        row("kernel", "sourced", 2, 0, FIRST_US + 345, 1, device=2, correlation=210),
        row("cuda_runtime", "hipStreamBeginCapture", 542, 542, FIRST_US + 300, 1, correlation=200),
        row("cuda_runtime", "hipLaunchKernel", 542, 542, FIRST_US + 310, 1, correlation=201, External_id=80,
            kernel=f"captured {canary}"),
        row("cuda_runtime", "hipStreamEndCapture", 542, 542, FIRST_US + 320, 1, correlation=202),
        row("cuda_runtime", "hipGraphLaunch", 542, 542, FIRST_US + 330, 1, correlation=203),
        row("kernel", f"captured {canary}", 2, 0, FIRST_US + 340, 1, device=2, correlation=203),
        row("cpu_op", "record_param_comms", 542, 542, FIRST_US + 350, 9, External_id=90, Collective_name=canary,
            dtype=canary, Process_Group_Name=canary, In_msg_nelems=5, Group_size=2, Process_Group_Ranks=canary),
        row("cuda_runtime", "hipLaunchKernel", 542, 542, FIRST_US + 352, 1, correlation=220, External_id=90),
        row("kernel", "ncclDevKernel", 2, 0, FIRST_US + 360, 1, device=2, correlation=220),
        row("overhead", canary, 542, 542, FIRST_US, 1),
        row("kernel", f"damaged {canary}", 2, 0, canary, canary),
        row("cuda_runtime", f"hipFree {canary}", canary, canary, FIRST_US + 230, 1, correlation=canary),
        {"ph": "M", "name": "process_name", "pid": 542, "tid": 0, "ts": FIRST_US, "args": {"name": canary}},
        {"ph": "M", "name": "thread_name", "pid": 542, "tid": 542, "ts": FIRST_US, "args": {"name": canary}},
        {"ph": "i", "cat": "cpu_instant_event", "name": f"[memory] {canary}", "pid": 1, "tid": 1, "ts": FIRST_US},
    ]  # fmt: skip
    return made


def files(canary: str) -> list[bytes]:
    beside: dict[str, Any] = {
        "metadata": {"env": {"TOKEN": canary}, "command": [canary], "node": {"hostname": canary, "machine_id": canary}},
        "deviceProperties": [{"id": 2, "name": f"AMD Instinct MI300X {canary}", "uuid": canary}],
        "distributedInfo": {"backend": canary, "rank": 3, "hostname": canary, "pg_config": [{"pg_name": canary}]},
        "trace_id": canary,
        canary: canary,
    }
    return [trace(events(canary), base=BASE_NS, late=True, **beside)]


def _planted(event: Row, canary: str) -> Row:
    args = {key: f"{value} {canary}" if isinstance(value, str) else value for key, value in event["args"].items()}
    name = event["name"] if event["cat"] == "cpu_op" else f"{event['name']} {canary}"
    return event | {"name": name, "args": args | {"stream name": canary}}


def _compiled(made: Row, canary: str) -> Row:
    """With what Triton says of a kernel."""
    made["args"] |= {"kernel_file": f"/tmp/{canary}/k_{len(canary)}.py", "kernel_kwargs": canary, "kernel_hash": canary}
    return made


FORMATS = {"PyTorch profiler": files}
