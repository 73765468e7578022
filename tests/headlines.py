"""The program's first line beside the second opinion's: steps, times, shares, copies and kernels before the recording.

Of each process of a sample and each of its devices; `tests.oracle` counts without the program.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mio2trace.analysis import Analysis, analyse
from mio2trace.answer import report_of
from mio2trace.answer.content import records
from mio2trace.measures import Measures
from mio2trace.measures.device_time import DeviceTime
from mio2trace.measures.iterations import PARTS
from tests import oracle
from tests.oracle import rules

TIME = 0.001
"""Of kernel times and lengths: by how much of them the two may differ."""
POINT = 0.01
"""Of shares of a step."""

COUNTED = (
    "sampled",
    "before-recording",
    "kernel-without-launch",
    "launch-without-kernel",
    "graph-without-kernels",
    "start-before-launch",
    "late-end",
    "overlap-on-stream",
    "blocked",
    "graph-gap",
)
"""Classes of what a recording lacks that both count."""

PATTERNS = (
    "rocm/kineto_*.json*",
    "rocm/graphs/*.replay.json.gz",
    "rocm/graphs/*.capture.json.gz",
    "rocm/graphs/sglang_*.json.gz",
    "rocm/rocpd_*.db.gz",
    "rocm/rpd_*.rpd.gz",
    "rocm/rocprofv3_json_*.json.gz",
    "rocm/rocprofv3_*kernel_trace*.csv",
    "rocm-twins/*/kineto/*.json.gz",
    "rocm-twins/*/rocpd/*.db.gz",
    "rocm-twins/*/rpd/*.rpd.gz",
    "rocm-twins/*/rocprofv3-json/*.json.gz",
    "rocm-twins/*/rocprofv3-csv/*kernel_trace.csv",
)


def samples(shared: Path) -> list[Path]:
    """All profiles that the second opinion can read."""
    folder = shared / "samples"
    return [path for pattern in PATTERNS for path in sorted(folder.glob(pattern))]


@dataclass(frozen=True)
class Device:
    """What one of the two says of a device. By step: kernels, kernel ns, length in ns, shares of that."""

    process: int | None
    steps: int
    kernels: tuple[int, ...]
    kernel_ns: tuple[int, ...]
    lengths: tuple[int | None, ...]
    shares: tuple[dict[str, float], ...]
    before: int
    copies: int
    """Of the process."""
    missing: dict[str, int]
    """Of the process, by class; of those that both count."""


def second_opinion(path: Path) -> list[Device]:
    told = rules.answer(oracle.read(path))
    found = []
    for (process, _), device in told.devices.items():
        steps = [step for step in device.steps if step.commands]
        found.append(
            Device(
                process,
                len(device.steps),
                tuple(step.kernels for step in steps),
                tuple(step.kernel_ns for step in steps),
                tuple(step.length for step in steps),
                tuple({part: ns / step.length for part, ns in step.parts.items() if step.length} for step in steps),
                device.before,
                told.copies[process],
                told.missing[process],
            )
        )
    return found


def measured(*paths: Path) -> list[Measures]:
    """The program's measures of each process, by its number."""
    return of_processes(analyse(paths))


def of_processes(analysis: Analysis) -> list[Measures]:
    measures = [one for run in analysis.runs for one in run.measures]
    return sorted(measures, key=lambda one: one.alignment.profile.process.pid or 0)


def by_hand(analysis: Analysis) -> list[str]:
    """Return what a reader of the report finds wrong with a pocket calculator.

    The parts must add up to the step. The step must be the mean of the lengths, and there must be one length for each
    iteration. Each percentage must be the time beside it divided by the step.
    """
    wrong = []
    for run in json.loads(records(report_of(analysis, analysis.runs, depth="tables")))["runs"]:
        step, name = run["step"], run["name"]
        if step is None:
            continue
        if sum(step[f"{part}_ns"] for part in PARTS) != step["step_ns"]:
            wrong.append(f"{name}: parts")
        each = step["length_of_each_ns"]
        if len(each) != run["steady_iterations"] or abs(sum(each) / len(each) - step["step_ns"]) > len(PARTS):
            wrong.append(f"{name}: {len(each)} lengths, {run['steady_iterations']} iterations")
        whole = sum(step["step_of_each_device_ns"])
        for kind in ("layers", "operations", "problems", "kernels"):
            for row in run[kind]:
                percent = row["percent_of_step"]
                if percent is not None and abs(percent - 100 * row["ns"] / whole) > 0.001:
                    wrong.append(f"{name}: {kind}: {row['name']}: {percent} %")
    return wrong


def program(*paths: Path) -> list[Device]:
    """What the program says: of each process by its number, of each device by its own."""
    return [device for one in measured(*paths) for device in devices(one)]


def devices(measures: Measures) -> Iterator[Device]:
    profile, links, told = measures.alignment.profile, measures.alignment.links, measures.steady.told
    device_of = {queue.index: queue.device for queue in profile.queues}
    before: Counter[int] = Counter()
    for activity, pass_ in zip(profile.activities, links.pass_of, strict=True):
        if activity.kind == "kernel" and pass_ >= 0 and links.passes[pass_].phase == "before":
            before[device_of.get(activity.queue, 0)] += 1
    copies = sum(activity.kind != "kernel" for activity in profile.activities)
    # One pass over layers is what there is of a run without steps.
    none = told.told_by == "whole" or (not measures.alignment.steps and len(told.all) == 1)
    for device in sorted(told.devices, key=lambda one: _number(measures, one)):
        windows = () if none else device.windows
        yield Device(
            profile.process.pid,
            0 if none else max(len(told.all), len(measures.alignment.steps) if told.told_by == "named" else 0),
            tuple(one.kernels for one in windows),
            tuple(one.kernel_ns for one in windows),
            tuple(one.step_ns for one in windows),
            tuple(
                {}
                if one.busy is None or not one.busy.length_ns
                else {
                    part: ns / one.busy.length_ns
                    for part, ns in (
                        ("compute", one.busy.compute_ns),
                        ("communication", one.busy.communication_ns),
                        ("copies", one.busy.copy_ns),
                        ("not recorded", one.busy.unrecorded_ns),
                        ("idle", one.busy.idle_ns),
                    )
                }
                for one in windows
            ),
            before[device.device],
            copies,
            {of: count for of, count in measures.completeness.counts.items() if of in COUNTED},
        )


def _number(measures: Measures, device: DeviceTime) -> int:
    devices = measures.alignment.profile.devices
    number = devices[device.device].number if device.device < len(devices) else None
    return device.device if number is None else number


def differences(true: Device, said: Device) -> dict[str, str]:
    """By number in which they differ: what is true, and what is said."""
    found: dict[str, str] = {}

    def compare(name: str, one: object, other: object, *, same: bool | None = None) -> None:
        if not (one == other if same is None else same):
            found[name] = f"{one} {other}"

    if true.process and said.process is not None:
        compare("process", true.process, said.process)
    compare("steps", true.steps, said.steps)
    compare("before", true.before, said.before)
    compare("copies", true.copies, said.copies)
    for of in true.missing | said.missing:
        compare(of, true.missing.get(of, 0), said.missing.get(of, 0))
    if len(true.kernels) != len(said.kernels):
        compare("steps with commands", len(true.kernels), len(said.kernels))
        return found
    compare("kernels", true.kernels, said.kernels)
    for at, (one, other) in enumerate(zip(true.kernel_ns, said.kernel_ns, strict=True)):
        compare(f"kernel ns of step {at}", one, other, same=math.isclose(one, other, rel_tol=TIME))
    for at, (own, others) in enumerate(zip(true.lengths, said.lengths, strict=True)):
        near = own == others or (own is not None and others is not None and math.isclose(own, others, rel_tol=TIME))
        compare(f"length of step {at}", own, others, same=near)
    for at, (of_one, of_other) in enumerate(zip(true.shares, said.shares, strict=True)):
        for part in of_one.keys() & of_other.keys():
            share, said_share = of_one[part], of_other[part]
            near = abs(share - said_share) < POINT
            compare(f"{part} of step {at}", round(share, 4), round(said_share, 4), same=near)
    return found


@dataclass(frozen=True)
class Row:
    """Of one device of a sample. ``wrong``: what differs."""

    sample: str
    true: Device | None
    said: Device | None
    wrong: dict[str, str]


def rows(path: Path, name: str) -> list[Row]:
    true, said = second_opinion(path), program(*inputs(path))
    if len(true) != len(said):
        return [Row(name, None, None, {"devices": f"{len(true)} {len(said)}"})]
    return [Row(name, one, other, differences(one, other)) for one, other in zip(true, said, strict=True)]


def inputs(path: Path) -> list[Path]:
    """What the program needs of a sample: rocprofv3's CSV files are one profile together."""
    if path.suffix == ".csv" and "_doc_" not in path.name:
        return sorted(path.parent.glob(path.name.removesuffix("kernel_trace.csv") + "*_trace.csv"))
    return [path]
