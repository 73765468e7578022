"""Findings of a run without iterations: shares of the recording, from the first to the last command; exposed copies."""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import mio2trace
from mio2trace.align import NONE
from mio2trace.answer.text import SENTENCE, _lines_of
from mio2trace.findings import Finding, Subject, findings
from mio2trace.findings.pauses import cause
from mio2trace.measures.device_time import exposed_copies
from mio2trace.measures.gaps import Cause
from mio2trace.model.profile import Call, Range
from tests import oracle
from tests.conftest import shared_folder
from tests.made_up_costs import MS, Ran, measures, operation, subject
from tests.often import present, saved
from tests.oracle.events import Recording
from tests.oracle.rules import Span, length, union, within, without
from tests.test_oracle import Trace

SUM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
TORCH = (Range("operator", "aten::copy_", 0, 0, 1),)


def recorded(*ran: Ran, **more: Any) -> Subject:
    """A run of which nothing names iterations, even if its kernels repeat."""
    made = measures({1: ran}, **more)
    made.alignment.links._pass_of[:] = array("i", [NONE]) * len(ran)
    return Subject(made)


def fired(of: Subject, rule: str) -> Finding:
    (found,) = [one for one in findings(of) if one.rule.id == rule]
    return found


def ids(of: Subject) -> set[str]:
    return {one.rule.id for one in findings(of)}


# -- idle time -------------------------------------------------------------------------------------------------------


def paused(gap_ns: int, busy_ns: int = 85 * MS, **more: Any) -> Subject:
    """Two kernels with a gap between them."""
    return recorded(Ran("a", busy_ns // 2), Ran("b", busy_ns - busy_ns // 2, after_ns=gap_ns), **more)


def test_idle_time_is_a_share_of_the_recording() -> None:
    """Over 15 % of it, from 1 ms on; the longest gap is named; start-up may be in it, so it is never high."""
    assert "idle" not in ids(paused(15 * MS))
    found = fired(paused(15 * MS + 1000), "idle")
    assert (found.found.ns, found.found.count, found.severity) == (15 * MS + 1000, 1, "medium")
    assert found.found.number == (
        "15.0 % of the recording (15.00 of 100.0 ms, first to last command): 15.00 ms host-bound in 1 gap."
    )
    gaps = fired(recorded(Ran("a", MS), *[Ran("b", MS, after_ns=gap * MS) for gap in (3, 4, 5)]), "idle")
    assert "12.00 ms host-bound in 3 gaps, the longest 5.000 ms." in gaps.found.number
    assert "idle" not in ids(paused(MS - 1, 10_000))
    assert "idle" in ids(paused(MS, 10_000))


def test_gaps_that_the_profiler_makes_are_no_idle_time() -> None:
    """It reads counters, or waits for each command; a capture of graphs idles by design."""
    assert "idle" not in ids(recorded(Ran("a", MS, counters=(1.0,)), Ran("b", MS, after_ns=50 * MS, counters=(1.0,))))
    assert "idle" not in ids(paused(50 * MS, calls_wait=True))
    assert "idle" not in ids(paused(50 * MS, captured=9))
    each = [Ran("a", 10 * MS, counters=(1.0,)), Ran("b", 10 * MS, after_ns=20 * MS, counters=(1.0,))]
    assert "idle" not in ids(subject({1: each, 2: each}))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, 'range such as "step 1" around each step (ROCTx, rocprofv3 --marker-trace).'),
        ({"ranges": TORCH}, "with torch.profiler (schedule, profiler.step())."),
        ({"calls": False}, "around each step (ROCTx, rocprofv3 --marker-trace) and the host's calls (--hip-trace)."),
        ({"calls": False, "numbers": "event_index"}, "around each step and the host's calls."),
        ({"numbers": "event_index"}, "around each step."),
    ],
)
def test_the_advice_is_to_record_steps_with_this_profiler(more: dict[str, Any], says: str) -> None:
    """Host calls only if the cause is not known."""
    advice = fired(paused(50 * MS, **more), "idle").advice
    assert advice.startswith("No steps are known, so this may be start-up: record")
    assert advice.endswith(says)


def test_the_device_is_named_if_there_are_several(tmp_path: Path) -> None:
    """That with most computation: the other one, number 3, is idle for less of its time."""
    trace = Trace()
    for at, (device, start, end) in enumerate(((7, 10, 1000), (3, 20, 30), (3, 40, 50), (7, 9000, 9900))):
        trace.run(f"kernel {at}", at + 1, start, end, device=device, stream=device)
    path = saved(tmp_path / "two.pt.trace.json", json.dumps({"traceEvents": trace.rows}))
    number = fired(first_of(path), "idle").found.number
    assert number.startswith("80.9 % of the recording of device 7 (8.000 of 9.890 ms, first to last command)")


# -- communication ---------------------------------------------------------------------------------------------------


def test_collectives_of_the_recording() -> None:
    """Over 10 % of it. Some that are far longer than the median wait."""
    assert "communication" not in ids(recorded(Ran("a", 90 * MS), Ran(SUM, 10 * MS)))
    found = fired(recorded(Ran("a", 90 * MS), *[Ran(SUM, MS)] * 3, Ran(SUM, 20 * MS)), "communication")
    assert (found.found.ns, found.severity) == (23 * MS, "medium")
    assert found.found.number.startswith("20.4 % of the recording (23.00 of 113.0 ms, first to last command) runs only")
    assert found.advice.startswith(
        "The longest of 4 collectives takes 20.00 ms, the median 1.000 ms: ranks may wait, as in start-up. Record all"
        " ranks after a warm-up; "
    )
    assert " ".join(line.strip() for line in _lines_of(found, SENTENCE)).endswith("Record all ranks after a warm-up.")


# -- copies ----------------------------------------------------------------------------------------------------------


def copying(route: str = "host to device", ns: int = 20 * MS, **of_copy: Any) -> Ran:
    """A copy by a call that blocks the host, unless ``of_copy`` says otherwise."""
    named = {"name": f"copy {route}".strip(), "called": "hipMemcpyWithStream"} | of_copy
    return Ran(ns=ns, copy=True, route=route, **named)


def stepping(*ran: Ran, **more: Any) -> Finding:
    """Two iterations of a kernel of 100 ms and these copies."""
    each = [Ran("a", 100 * MS), *ran]
    return fired(subject({1: each, 2: each}, **more), "copies")


def test_copies_count_only_where_nothing_runs_beside_them() -> None:
    """A kernel hides 15 of 20 ms of the first copy; of two copies at the same time the one to the device counts."""
    each = [
        Ran("a", 50 * MS),
        copying(ns=20 * MS, after_ns=-15 * MS, size_bytes=40 * MS),
        copying("device to host", 10 * MS, after_ns=-3 * MS),
        copying("device to device", 4 * MS),
        Ran("fill", MS, copy=True),
        Ran("__amd_rocclr_copyBuffer", 2 * MS),
        copying("", 3 * MS, name="copy"),
    ]
    run = subject({1: each, 2: each})
    found = fired(run, "copies")
    assert (found.found.ns, found.severity) == (22 * MS, "high")
    assert found.found.share == pytest.approx(22 / 72)
    assert found.found.number == (
        "30.6 % of the iteration (22.00 of 72.00 ms) runs only copies: 7.000 ms device to host (1 copy);"
        " 5.000 ms host to device (1 copy, 2 GB/s); 4.000 ms device to device (1 copy); 3.000 ms (1 copy);"
        " 2.000 ms in 1 copy kernel; 1.000 ms in 1 fill."
    )
    device = present(run.steady.device)
    exposed = exposed_copies(run.alignment, device.device, run.steady.spans)
    assert sum(one.ns for one in exposed) == 2 * 22 * MS


def test_copies_fire_from_a_twentieth_on() -> None:
    for ns, fires in ((5 * MS, False), (5 * MS + 100, True)):
        each = [Ran("a", 95 * MS), copying(ns=ns)]
        assert ("copies" in ids(subject({1: each, 2: each}))) is fires
        assert ("copies" in ids(recorded(*each))) is fires
    counted = [Ran("a", MS, counters=(1.0,)), copying(counters=(1.0,))]
    assert "copies" not in ids(subject({1: counted, 2: counted}))
    assert "copies" not in ids(subject({1: each, 2: each}, captured=9))


@pytest.mark.parametrize(
    ("ran", "more", "says"),
    [
        (copying(), {"ranges": TORCH}, "Load inputs while kernels run: DataLoader(pin_memory=True) and .to(device"),
        (copying(), {}, "Use pinned memory and hipMemcpyAsync on another stream"),
        (copying(), {"api": "cuda"}, "Use pinned memory and cudaMemcpyAsync on another stream"),
        (copying(), {"calls": False}, "Use pinned memory and hipMemcpyAsync on another stream"),
        (copying(called="hipMemcpyAsync"), {"ranges": TORCH}, "The copies do not block the host: issue them earlier"),
        (copying(called="cudaMemcpyAsync", name="copy host to device, pinned"), {}, "The copies do not block the host"),
        (copying(called="cudaMemcpyAsync", name="copy host to device, pageable"), {"ranges": TORCH}, "Load inputs"),
        (copying("device to host"), {"ranges": TORCH}, "Read results less often (.item(), .cpu(), print)"),
        (copying("device to host", size_bytes=(1 << 20) - 1), {"ranges": TORCH}, "Read results less often (.item()"),
        (copying("device to host", size_bytes=1 << 20), {"ranges": TORCH}, "Copy only what the host needs, to pinned"),
        (
            copying("device to host", called="hipMemcpyAsync", size_bytes=1 << 20), {"ranges": TORCH},
            "The copies do not block the host",
        ),
        (copying("device to host"), {}, "Copy only what the host needs, to pinned memory and with hipMemcpyAsync"),
        (copying("device to host", size_bytes=(1 << 20) - 1), {}, "Read results less often: each of these copies is s"),
        (copying("device to host", size_bytes=1 << 20), {}, "Copy only what the host needs, to pinned memory and with"),
        (copying("device to host", called="hipMemcpyAsync"), {}, "The copies do not block the host"),
        (copying("device to device"), {}, "Write data where it is needed: these copies only move it"),
        (copying("device to device"), {"ranges": TORCH}, "Write data where it is needed: these copies (clone(), cont"),
        (
            copying("device to device"),
            {"ranges": (Range("operator", "torch.distributed.ddp.reducer::copy_bucket_to_grad", 0, 0, 1), *TORCH)},
            "DDP copies gradients from its buckets: DistributedDataParallel(..., gradient_as_bucket_view=True).",
        ),
        (Ran("fill", 20 * MS, copy=True), {}, "Do not set memory to zero again and again"),
        (Ran("__amd_rocclr_fillBufferAligned", 20 * MS), {}, "Do not set memory to zero again and again"),
        (Ran("__amd_rocclr_copyBuffer", 20 * MS), {}, "Find the calls that copy"),
        (copying("", name="copy"), {}, "Find the calls that copy"),
    ],
)  # fmt: skip
def test_the_advice_fits_the_direction_and_the_call(ran: Ran, more: dict[str, Any], says: str) -> None:
    assert stepping(ran, **more).advice.startswith(says)


BUILDING = [Call("hipModuleLoadData", 0, 1045 * MS, 1090 * MS)]
LOST = [Call("hipLaunchKernel", 0, 1050 * MS, 1051 * MS)]


@pytest.mark.parametrize(
    ("of", "rule", "severity", "advice"),
    [
        # What the host did in the gap decides: builds are start-up, launches without kernels leave it open.
        (paused(50 * MS, other_calls=BUILDING), "idle", "medium",
         "Programs are built or loaded in this time: run a warm-up, and record after it."),
        (recorded(Ran("a", 40 * MS), Ran("b", 40 * MS, after_ns=50 * MS, queued=True)), "idle", "medium",
         "The host launched the work in time"),
        (paused(50 * MS, other_calls=LOST), "idle", "low", "Record the run again, completely"),
        # Equal collectives wait for nobody, nor do a few of many.
        (recorded(Ran("a", 90 * MS), *[Ran(SUM, 5 * MS)] * 3), "communication", "medium", "Overlap collectives with"),
        (recorded(Ran("a", 90 * MS), *[Ran(SUM, MS)] * 25, Ran(SUM, 20 * MS)), "communication", "medium",
         "Overlap collectives with computation"),
        # Without iterations copies to the device may be a one-time load.
        (recorded(Ran("a", 80 * MS), copying()), "copies", "medium", "If this is no one-time load, use"),
        (recorded(Ran("a", 80 * MS), copying("device to host")), "copies", "medium", "Copy only what"),
    ],
    ids=range(7),
)  # fmt: skip
def test_the_advice_for_a_recording_fits_the_cause(of: Subject, rule: str, severity: str, advice: str) -> None:
    found = fired(of, rule)
    assert found.advice.startswith(advice)
    assert found.severity == severity


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (stepping(copying(size_bytes=8)), "20.00 ms host to device (1 copy, under 0.01 GB/s)"),
        # Kinds of memory are named as far as the profiler names them: CUDA does.
        (stepping(copying(name="copy host to device, pageable")), "20.00 ms host to device (1 copy, pageable)."),
        # One of two copies has a size, as in RPD: its speed is not that of both.
        (fired(recorded(Ran("a", 50 * MS), copying(ns=15 * MS), copying(ns=5 * MS, size_bytes=10 * MS)), "copies"),
         "20.00 ms host to device (2 copies, 2 GB/s in 25.0 % of their time, sizes of the rest unknown)."),
    ],
)  # fmt: skip
def test_speed_and_memory_of_a_copy(found: Finding, says: str) -> None:
    assert says in found.found.number


def test_the_problem_of_a_collective_is_no_reason_to_fail() -> None:
    """A collective of unknown size in a recording, with an operation that has no message."""
    own = operation(0, primitive="allreduce", api="nccl", direction=None, command=None)
    run = recorded(Ran("a", 10 * MS), Ran(SUM, 20 * MS, 0), operations=[own])
    assert fired(run, "communication").found.ns == 20 * MS


# -- the same numbers from the raw files -----------------------------------------------------------------------------


def spent(made: Recording) -> tuple[int, dict[str, int]]:
    """Length of a recording of one device, and how much of it is communication, copies and idle time; in ns."""
    spans: dict[str, list[Span]] = defaultdict(list)
    for one in made.commands:
        spans[one.family].append((one.start, one.end))
    compute, communication, copies = (union(spans[name]) for name in ("compute", "communication", "copies"))
    busy = union([*compute, *communication, *copies])
    whole = busy[-1][1] - busy[0][0]
    parts = {
        "communication": length(without(communication, compute)),
        "copies": length(without(copies, union([*compute, *communication]))),
        "idle": whole - length(busy),
    }
    return whole, parts


def first_of(path: Path) -> Subject:
    return Subject(mio2trace.analyse([path]).run.measures[0])


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("rocprofv3_json_kernel_dispatch_a.json.gz", {"idle", "communication"}),
        ("rpd_torch_matmul.rpd.gz", {"idle", "copies"}),
    ],
)
def test_shares_of_the_recording_are_those_of_the_raw_file(name: str, rules: set[str]) -> None:
    path = shared_folder() / "samples" / "rocm" / name
    whole, parts = spent(oracle.read(path))
    run = first_of(path)
    assert ids(run) == rules
    for rule in rules:
        found = fired(run, rule)
        assert found.found.ns == parts[rule]
        assert found.found.share == pytest.approx(parts[rule] / whole)
        assert found.severity != "high"


@pytest.mark.shared
def test_copies_of_a_program_without_steps() -> None:
    """A vector sum: two copies of 4 GB to the device, one back, by calls that block."""
    path = shared_folder() / "samples" / "rocm" / "rocprofv1_hiptrace_mi300a.json"
    rows = [row for row in json.loads(path.read_text())["traceEvents"] if row.get("name", "").startswith("CopyHost")]
    back = [row for row in json.loads(path.read_text())["traceEvents"] if row.get("name") == "CopyDeviceToHost"]
    to, of = (sum(int(row["args"]["DurationNs"]) for row in some) for some in (rows, back))
    run = first_of(path)
    found = fired(run, "copies")
    assert (found.found.ns, found.found.scope) == (to + of, ("device to host", "host to device"))
    assert (
        f"{of / 1e6:.1f} ms device to host (1 copy, {4e9 / of:.3g} GB/s);"
        f" {to / 1e6:.1f} ms host to device (2 copies, {8e9 / to:.3g} GB/s)"
    ) in found.found.number


def kineto_copies(path: Path, spans: Sequence[Span]) -> dict[str, int]:
    """Exposed time by direction in some spans of a PyTorch file of one device, in ns; in the order of the rule."""
    names = {"HtoD": "host to device", "DtoH": "device to host", "DtoD": "device to device"}
    made = oracle.read(path)
    taken = union((one.start, one.end) for one in made.commands if one.family != "copies")
    found = {}
    for word, direction in names.items():
        own = union((one.start, one.end) for one in made.commands if one.kind == "copy" and word in one.name)
        found[direction] = sum(length(within(without(own, taken), span)) for span in spans)
        taken = union([*taken, *own])
    own = union((one.start, one.end) for one in made.commands if one.kind == "fill")
    found["fills"] = sum(length(within(without(own, taken), span)) for span in spans)
    return {direction: ns for direction, ns in found.items() if ns}


@pytest.mark.shared
@pytest.mark.parametrize("name", ["kineto_mi300_resnet50_ddp4_rank1", "kineto_mi300x_resnet_train_ddp"])
def test_exposed_copies_by_direction_are_those_of_the_raw_file(name: str) -> None:
    path = shared_folder() / "samples" / "rocm" / f"{name}.json.gz"
    run = first_of(path)
    device = present(run.steady.device)
    found = {one.direction: one.ns for one in exposed_copies(run.alignment, device.device, run.steady.spans)}
    begun = min(one.start_ns for one in run.alignment.profile.activities if one.start_ns is not None)
    zero = begun - min(one.start for one in oracle.read(path).commands)
    assert found == kineto_copies(path, [(begin - zero, end - zero) for begin, end in run.steady.spans])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "copy host to device, pageable"),
        ("Memcpy DtoH (Device -> Pinned)", "copy device to host, pinned"),
        ("Memcpy DtoD (Device -> Device)", "copy device to device"),
        ("Memcpy HtoD (Host -> Device)", "copy host to device"),
        ("Memcpy (Unknown -> Unknown)", "copy"),
    ],
)
def test_cuda_names_the_direction_and_the_memory(name: str, shown: str, tmp_path: Path) -> None:
    """In the name of a copy; HIP has the direction in an argument, which is missing here."""
    path = tmp_path / "one.pt.trace.json"
    trace = Trace().run("a", 1, 10, 100).run(name, 2, 100, 120, cat="gpu_memcpy")
    path.write_text(json.dumps({"traceEvents": trace.rows}))
    (copy,) = [one for one in first_of(path).alignment.profile.activities if one.kind == "copy"]
    assert copy.name == shown
    assert copy.route == shown.removeprefix("copy").partition(",")[0].strip()


def test_the_longest_gap_may_be_longer_than_the_mean_of_the_iterations() -> None:
    of = Cause(why="host", count=30, ns=80 * MS, longest_ns=42 * MS)
    assert cause(of, 3) == "26.67 ms host-bound in 10 gaps, the longest 42.00 ms in one iteration"
    assert cause(of, 1) == "80.00 ms host-bound in 30 gaps, the longest 42.00 ms"
