"""The first advice for each real run is right for that run: each row says why, and the raw file has to agree.

The evidence is read by ``tests.oracle``, plain Python over the raw files, or by the few lines here.
docs/findings.md has the same table for readers.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

import mio2trace
from mio2trace.answer import report_of
from tests import oracle
from tests.conftest import ROOT, shared_folder
from tests.oracle.events import Command, Recording, unpacked
from tests.xspace_read import kernels_by_hand, python_calls

Holds = Callable[[Sequence[Path]], bool]


class Facts(msgspec.Struct, frozen=True):
    """Of a recording from its first command to its last one, in ns: gaps, and which of them the host caused."""

    length: int
    idle: int
    host: int
    host_gaps: int
    during: Counter[str]
    """Of the host's part: in which call the host was for most of the gap."""


def facts(made: Recording) -> Facts:
    commands = sorted(made.commands, key=lambda one: one.start)
    end = commands[0].start
    idle = host = gaps = 0
    during: Counter[str] = Counter()
    calls = sorted(made.calls, key=lambda call: call.start)
    for one in commands:
        if one.start > end and one.start - end > 1000:
            idle += one.start - end
            returned = one.call.end if one.call is not None else 0
            if returned > end:
                part = min(returned, one.start) - end
                host, gaps = host + part, gaps + 1
                for call in calls:
                    if 2 * (min(call.end, one.start) - max(call.start, end)) > part:
                        during[call.name] += part
        end = max(end, one.end)
    return Facts(end - commands[0].start, idle, host, gaps, during)


def steps(made: Recording) -> list[int]:
    """Numbers of the profiler's steps in which something was launched."""
    launches = [one.call.start for one in made.commands if one.call is not None]
    marks = {mark.name: mark for mark in sorted(made.marks, key=lambda one: one.end - one.start)}
    return sorted(
        int(name.partition("#")[2])
        for name, mark in marks.items()
        if name.startswith("ProfilerStep#") and sum(mark.start <= at < mark.end for at in launches) > 5
    )


def replayed(one: Command) -> bool:
    return one.call is not None and "GraphLaunch" in one.call.name


def launches_limit(files: Sequence[Path]) -> bool:
    """Most idle time is in short gaps before late launches, in no waiting call; no graph; not the first step."""
    made = oracle.read(files[-1])
    of = facts(made)
    waits = sum(ns for name, ns in of.during.items() if re.search(r"Synchronize|Memcpy|Malloc|Free", name))
    return (
        2 * of.host > of.idle > 0.15 * of.length
        and of.host / of.host_gaps < 200_000
        and 3 * waits < of.host
        and not any(map(replayed, made.commands))
        and min(steps(made)) >= 2
    )


def one_step_loads_programs(files: Sequence[Path]) -> bool:
    """One step alone, the second; the first launch of kernels takes most of the idle time."""
    made = oracle.read(files[-1])
    of = facts(made)
    return len(steps(made)) == 1 and steps(made)[0] < 2 and 2 * of.during["hipLaunchKernel"] > of.idle


def one_step_captures_graphs(files: Sequence[Path]) -> bool:
    """The graphs are instantiated and first launched here."""
    names = Counter(call.name for call in oracle.read(files[-1]).calls)
    return (
        names["hipGraphInstantiateWithFlags"] == 1 == names["hipGraphLaunch"] and names["hipStreamGetCaptureInfo"] > 100
    )


def collectives_wait(files: Sequence[Path]) -> bool:
    """More than a tenth of the time is collectives alone; 8.8 M elements of two bytes take milliseconds."""
    rows = json.loads(unpacked(files[-1]))["traceEvents"]
    times = [
        (row["dur"], row["args"]["In msg nelems"])
        for row in rows
        if row.get("cat") == "kernel" and "nccl" in row["name"] and row["args"].get("In msg nelems", 0) > 8_000_000
    ]
    return bool(times) and all(2 * elements * 2 * 7 / 8 / (dur * 1000) < 10 for dur, elements in times)


def solvers_cast(files: Sequence[Path]) -> bool:
    """Each kernel that casts follows an implicit-GEMM kernel of MIOpen; the GPU is hardly idle."""
    made = oracle.read(files[-1])
    of = facts(made)
    names = [one.name for one in sorted(made.commands, key=lambda one: one.start)]
    before = [names[at - 1] for at, name in enumerate(names) if name.startswith("SubTensorOpWithCast")]
    return of.idle < 0.15 * of.length and len(before) == 50 and all(name.startswith("igemm_") for name in before)


def first_launch_is_slow(files: Sequence[Path]) -> bool:
    """The first launch of the kernel takes 100 times as long as the median; no program is built by a call."""
    calls = [call for call in oracle.read(files[-1]).calls if call.name == "hipLaunchKernel"]
    lengths = [call.end - call.start for call in sorted(calls, key=lambda call: call.start)]
    return lengths[0] > 100 * sorted(lengths)[len(lengths) // 2]


def launches_are_lost(files: Sequence[Path]) -> bool:
    """More launches than kernels of known launches: half of the kernels' rows were cut out."""
    made = oracle.read(files[-1])
    launches = sum("Launch" in call.name for call in made.calls)
    with_launch = len({id(one.call) for one in made.commands if one.call is not None})
    return launches - with_launch > 0.1 * launches


def counters_were_collected(files: Sequence[Path]) -> bool:
    return bool(next(csv.DictReader(files[-1].read_text().splitlines()))["Counter_Value"])


def no_step_and_no_call(files: Sequence[Path]) -> bool:
    """Neither calls nor ranges are recorded, so nothing names steps or causes; the GPU idles for most of the time."""
    made = oracle.read(files[-1])
    of = facts(made)
    return not made.calls and not made.marks and 2 * of.idle > of.length


def one_gap_before_the_first_kernel(files: Sequence[Path]) -> bool:
    """No range; most idle time is one gap, between the copies at the beginning and the first kernel."""
    made = oracle.read(files[-1])
    commands = sorted(made.commands, key=lambda one: one.start)
    at = next(at for at, one in enumerate(commands) if one.kind == "kernel")
    gap = commands[at].start - max(one.end for one in commands[:at])
    return not made.marks and at == 2 and gap > 0.9 * facts(made).idle


def copies_block(files: Sequence[Path]) -> bool:
    """Most of the time is copies, most of it to the host; each copy is by `hipMemcpy`, which returns after the copy."""
    rows = json.loads(files[-1].read_text())["traceEvents"]
    times = [(row["name"], int(row["ts"]), int(row["ts"]) + int(row["dur"])) for row in rows if "dur" in row]
    copies = [one for one in times if re.match("Copy(Host|Device)To", one[0])]
    calls = [one for one in times if one[0].startswith("hipMemcpy")]
    on_device = [one for one in times if not one[0].startswith("hip")]
    whole = max(end for _, _, end in on_device) - min(start for _, start, _ in on_device)
    back = sum(end - start for name, start, end in copies if name == "CopyDeviceToHost")
    return 2 * back > whole and len(calls) == len(copies) and {name for name, _, _ in calls} == {"hipMemcpy"}


def graphs_without_capture(files: Sequence[Path]) -> bool:
    """Nearly all kernels are of graph launches; no launch into a graph is recorded."""
    made = oracle.read(files[-1])
    kernels = [one for one in made.commands if one.kind == "kernel"]
    captures = sum("Capture" in call.name for call in made.calls)
    return sum(map(replayed, kernels)) > 0.9 * len(kernels) and not captures


def builds_in_the_first_iteration(files: Sequence[Path]) -> bool:
    """Programs are built, by their names in the profile."""
    return b"clBuildProgram" in unpacked(files[-1])


def find_ran(files: Sequence[Path]) -> bool:
    return b"FindConvolution" in unpacked(files[0])


def only_one_iteration(files: Sequence[Path]) -> bool:
    """The log names one iteration."""
    log = unpacked(files[0]).decode("utf-8", "replace")
    return len(set(re.findall(r"Iteration: (\d+) forward", log))) <= 1


def graphs_replay_without_names(files: Sequence[Path]) -> bool:
    """RPD calls each kernel of a graph ``Task``."""
    named = Counter(one.name for one in oracle.read(files[-1]).commands)
    return named["Task"] > 100


def loads_in_the_only_iteration(files: Sequence[Path]) -> bool:
    """At most one iteration; the program loads modules in the recording, the GPU idles for most of it."""
    if "rocprof-v1" in files[-1].parts:
        return only_one_iteration(files) and b'"hipModuleLoad' in unpacked(files[-1])
    made = oracle.read(files[-1])
    of = facts(made)
    loads = [call for call in made.calls if call.name.startswith("hipModuleLoad")]
    marked = steps(made)
    return only_one_iteration(files) and bool(loads or not made.calls) and 2 * of.idle > of.length and len(marked) < 2


def program_waits_for_each_step(files: Sequence[Path]) -> bool:
    """GPU 0 is idle for most of the time from its first step on, of which Python is mostly in a wait for results.

    Field 1 of a space is a plane: its events are read by the tests' own decoder.
    """
    data = unpacked(files[-1])
    ran = sorted((start, start + length) for plane, _, start, length, _ in kernels_by_hand(data) if plane[-2:] == ":0")
    idle = [(end, begin) for (_, end), (begin, _) in pairwise(ran) if begin - end > 10**9]
    waits = python_calls(data, "block_until_ready")
    waited = sum(max(0, min(end, until) - max(begin, at)) for begin, end in idle[1:] for at, until in waits)
    length = sum(end - begin for begin, end in idle[1:])
    return 2 * length > ran[-1][1] - ran[0][0] and 2 * waited > length


def loads_before_the_graphs(files: Sequence[Path]) -> bool:
    """All modules are loaded before the first graph is launched; graphs run the later iterations."""
    made = oracle.read(files[-1])
    loads = [call.start for call in made.calls if call.name.startswith("hipModuleLoad")]
    launches = [call.start for call in made.calls if "GraphLaunch" in call.name]
    return bool(loads) and max(loads) < min(launches) and any(map(replayed, made.commands))


def one_call_waits_and_then_the_gpu_is_busy(files: Sequence[Path]) -> bool:
    """A call takes nearly all of the time in which no command runs: it waits for work that is not recorded."""
    made = oracle.read(files[-1])
    of = facts(made)
    waited = max(call.end - call.start for call in made.calls)
    return waited > 400e6 and of.idle - waited < 0.003 * (of.length - of.idle)


HOLDS: dict[str, Holds] = {
    "kineto_mi210_gpu_only.json": solvers_cast,
    "kineto_mi250_minitoy_train.json": one_step_loads_programs,
    "kineto_mi300_bert_small.json": launches_limit,
    "kineto_mi300_vit_nsfw.json": launches_limit,
    "kineto_mi300_resnet50_ddp4_rank0.json": launches_limit,
    "kineto_mi300_resnet50_ddp4_rank1.json": launches_limit,
    "kineto_mi300x_flux_graph_capture.json": one_step_captures_graphs,
    "kineto_mi300x_resnet_train_ddp.json": collectives_wait,
    "graphs/sglang_prefilldecode.json": one_call_waits_and_then_the_gpu_is_busy,
    "graphs/vllm_decode_full.replay.json": graphs_without_capture,
    "rocpd_ck_batched_gemm.db": first_launch_is_slow,
    "xplane_jax08_mi300x_conv3d.xplane.pb": program_waits_for_each_step,
    "rocprofv3_csv_decode_kernel_trace.csv": launches_are_lost,
    "rocprofv3_csv_decode_fetch_counter_collection.csv": counters_were_collected,
    "rocprofv3_json_kernel_dispatch_a.json": no_step_and_no_call,
    "rpd_torch_matmul.rpd": one_gap_before_the_first_kernel,
    "rocprofv1_hiptrace_mi300a.json": copies_block,
    "dvdt/clblast-lenet-seq-x3.prof.json": builds_in_the_first_iteration,
    "dvdt/offline-parser.prof.json": builds_in_the_first_iteration,
    "miopen-opencl/m121-alexnet-infer-interleaved/run.log": find_ran,
    "miopen-opencl/m121-resnet-infer-2it/prof.json": builds_in_the_first_iteration,
    "miopen-opencl/m290-alexnet-infer-10it/prof.json": builds_in_the_first_iteration,
    "miopen-opencl/m121-rnn-infer-first/prof.json": only_one_iteration,
    "rocm-twins/alexnet-10it-graph/rpd/trace.rpd": graphs_replay_without_names,
    "rocm-twins/alexnet-10it-graph/kineto/rank0.pt.trace.json": loads_before_the_graphs,
    "rocm-twins/alexnet-10it-graph/rocpd/46001_results.db": loads_before_the_graphs,
    "rocm-twins/alexnet-level6-none/rocpd/45919_results.db": loads_in_the_only_iteration,
    "rocm-twins/lenet-train-own-layers/rocpd/43457_results.db": loads_in_the_only_iteration,
    "rocm-twins/lenet-cmdonly-kernel-trace/rocpd/41242_results.db": loads_in_the_only_iteration,
    "rocm-twins/resnet-train-miopen-2threads/rocpd/45362_results.db": loads_in_the_only_iteration,
    "rocm-twins/resnet-immediate-2ranks/rocpd/42730_results.db": loads_in_the_only_iteration,
    "rocm-twins/resnet-immediate-2ranks/rocpd/42733_results.db": loads_in_the_only_iteration,
    "rocm-twins/resnet-immediate-2ranks/rocpd/merged.db": loads_in_the_only_iteration,
}
"""What the raw files of a run have to show, by its name in the document's table."""
LOGS = {"42730": "run.rank0.log", "42733": "run.rank1.log", "merged": "run.log"}
"""Of twins whose log is not ``run.hip.log``."""
TABLE = (ROOT / "docs" / "findings.md").read_text("utf-8").partition("| run | first finding |")[2].split("\n\n")[0]
ROWS = [[cell.strip() for cell in row.strip("| ").split("|")] for row in TABLE.splitlines()[2:]]
CASES = [
    (run.partition(",")[0], form, first, says)
    for run, first, says, _ in ROWS
    for form in run.replace(", also ", ", ").split(", ")
]


def files_of(run: str, form: str) -> list[Path]:
    """The log, if there is one, and the profile: the run's own, or its other form."""
    samples = shared_folder() / "samples"
    own = samples / run if "/" in run and not run.startswith("graphs") else samples / "rocm" / run
    profile = own if own.exists() else own.with_name(own.name + ".gz")
    if run.startswith("miopen-opencl"):
        return [*dict.fromkeys((own.with_name("run.log"), own))]
    if not run.startswith("rocm-twins"):
        return [profile]
    number, folder = re.split("[_.]", own.name)[0], own.parent.parent
    if form != run:
        rank = f"rank{int(number == '42733')}"
        names = (f"{number}_kernel_trace.csv", f"{number}_results.json.gz", f"{rank}.pt.trace.json.gz",
                 "results.json.gz", f"{rank}/results.json.gz", "trace.rpd.gz")  # fmt: skip
        (profile,) = (folder / form / name for name in names if (folder / form / name).exists())
    return [folder / LOGS.get(number, "run.hip.log"), profile]


@pytest.mark.parametrize(("run", "form", "first", "says"), CASES, ids=[f"{run}-{form}" for run, form, _, _ in CASES])
def test_the_first_advice_is_right_for_its_run(run: str, form: str, first: str, says: str) -> None:
    """The program says what the document says, and the raw file has what it claims."""
    files = files_of(run, form)
    analysis = mio2trace.analyse(files)
    (section, *_) = report_of(analysis, analysis.complete or analysis.runs, None).sections
    found = section.findings[0] if section.findings else None
    assert (f"{found.severity} {found.rule.id}" if found else "none") == first
    assert says in (found.advice if found else "")
    assert HOLDS[run](files)


def test_each_run_of_the_document_is_looked_at() -> None:
    assert [run.partition(",")[0] for run, *_ in ROWS] == list(HOLDS)
