"""dv/dt profiles, Caffe's log, MIOpen's log and CK records with a canary in every text field."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from typing import Any

from tests.canaries import PROMPT
from tests.fuzz import structures
from tests.small_runs import as_json, as_text, benchmark

DAMAGED = "damaged profile"
CALLS, LOG = benchmark()


def planted(value: Any, canary: str, skip: frozenset[str]) -> Any:
    """The same JSON with the canary at the end of every text; a field that is one word becomes the canary itself."""
    if isinstance(value, dict):
        out = {key: item if key in skip else planted(item, canary, skip) for key, item in value.items()}
        return out | {"environment": canary, "cwd": canary, "hostname": canary}
    if isinstance(value, list):
        return [planted(item, canary, skip) for item in value]
    return f"{value} {canary}" if isinstance(value, str) else value


_FORM = frozenset({"call", "timestamp", "profiling", "arg_value", "direction", "run_success"})


def profile_calls(canary: str) -> list[dict[str, Any]]:
    calls = planted(CALLS, canary, _FORM)
    for call in calls:  # not in a list of texts, which takes only numbers
        call.pop("device_list", None)
    return typing.cast("list[dict[str, Any]]", calls)


def caffe(canary: str) -> str:
    """Layer names, events, the device, lines of other programs."""
    stamp = LOG.splitlines()[0].split("]")[0]
    lines = [
        PROMPT,
        f"{stamp}] Setting up conv1 {canary}",
        f"{stamp}] Top shape: 1 96 55 55 (290400) {canary}",
        f"{stamp}] Use GPU with device ID 0 {canary}",
        f"{stamp}] GPU device name: Mali {canary}",
        f"{stamp}]     [Forward] Layer conv1 {canary}, top blob conv1 data: 0.1",
    ]
    for line in LOG.splitlines():
        for name in ("conv1", "ip1"):
            if f"{name}\t" in line:
                line = line.replace(f"{name}\t", f"{name} {canary}\t")
        lines.append(line)
        lines.append(f"{line.split(']')[0]}] {canary}")
    lines += [canary, f"Command line: caffe time -model {canary} --token=canary"]
    return "\n".join(lines) + "\n"


def miopen_log(canary: str) -> str:
    """Every parameter, command flag and level line."""
    prefix = "MIOpen(HIP): "
    out = [PROMPT.rstrip("\n"), f"{prefix}Info [get_device_name] Raw device name: gfx906 {canary}"]
    values = {"n": 2, "h": 8, "p": 0, "f": 1}
    for command in structures._COMMANDS:
        out.append(f"{prefix}Command [LogCmdConvolution] {canary} ./bin/MIOpenDriver {command.format(**values)}")
        out.append(f"{prefix}Command [LogCmd {canary}] ./bin/MIOpenDriver {command.format(**values)} -i {canary}")
    for level in structures._LEVELS:
        out.append(f"{prefix}{level.format(**values)} {canary}")
        out.append(f"{prefix}{level.format(**values)}".replace("miopen", canary, 1))
    for api in structures._APIS:
        out.append(f"{prefix}miopenStatus_t miopen{api}(miopenHandle_t {canary}){{")
        for name, choices in structures._PARAMETERS.items():
            out.append(f"{prefix}\t{name} = {choices[0].format(**values)}{canary}")
        out.append(f"{prefix}\tcanaryparameter = {canary}")
        out.append(prefix + "}")
    return "\n".join(out) + "\n"


def ck(canary: str) -> bytes:
    layers = [
        {"direction": way, "index": n, "label": f"{n:02}: l{n}", "time_ms": 0.1, "timestamp": "1120 11:00:00.002000"}
        for n in range(2)
        for way in ("forward", "backward")
    ]
    run = {"per_layer_info": planted(layers, canary, _FORM | {"timestamp"}), "dvdt_prof": profile_calls(canary)}
    features = planted({"platform": {"gpu": {"name": "Mali"}, "host": {"name": "x"}}}, canary, frozenset())
    record = {"characteristics_list": [{"run": run | {"run_success": "yes", "cmd": canary}}], "features": features}
    return json.dumps(record).encode()


FORMATS: dict[str, Callable[[str], list[bytes]]] = {
    "dv/dt JSON": lambda canary: [as_json(profile_calls(canary))],
    "dv/dt text": lambda canary: [PROMPT.encode() + as_text(profile_calls(canary))],
    "log and dv/dt JSON": lambda canary: [caffe(canary).encode(), as_json(profile_calls(canary))],
    "log with dv/dt text": lambda canary: [caffe(canary).encode() + as_text(profile_calls(canary))],
    "log of everything": lambda canary: [
        (caffe(canary) + miopen_log(canary)).encode()
        + b"[dv/dt] <<\n"
        + as_json(profile_calls(canary))
        + b"\n[dv/dt] >>\n"
    ],
    "Caffe log": lambda canary: [caffe(canary).encode()],
    "CK record": lambda canary: [ck(canary)],
    DAMAGED: lambda canary: [
        as_json(
            [*profile_calls(canary), {"call": f"cl {canary}"}, {"call": "clEnqueueNDRangeKernel", "name": [canary]}]
        )
        + canary.encode()
    ],
}
