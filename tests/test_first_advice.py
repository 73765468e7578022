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


class Row(msgspec.Struct, frozen=True):
    """``files``: relative to the samples; ``first``: severity and id of the first finding, empty for none.

    ``also``: the same run in other forms, for which all of it holds as well.
    """

    files: tuple[str, ...]
    first: str
    says: str
    holds: Holds
    because: str
    also: tuple[str, ...] = ()


def opencl(run: str, *names: str) -> tuple[str, ...]:
    return tuple(f"miopen-opencl/{run}/{name}" for name in names or ("run.log", "prof.json"))


def twin(run: str, profile: str, log: str = "run.hip.log") -> tuple[str, str]:
    return f"rocm-twins/{run}/{log}", f"rocm-twins/{run}/{profile}"


def forms(run: int, *others: str) -> tuple[str, ...]:
    """Beside rocpd: rocprofv3's CSV and JSON, and others."""
    return (f"rocprofv3-csv/{run}_kernel_trace.csv", f"rocprofv3-json/{run}_results.json.gz", *others)


KINETO, V1, RPD = "kineto/rank0.pt.trace.json.gz", "rocprof-v1/results.json.gz", "rpd/trace.rpd.gz"


def replays_graphs(files: Sequence[Path]) -> bool:
    return any(map(replayed, oracle.read(files[-1]).commands))


ONE = "the log has one iteration, in which the program loads modules; idle for most of it"
ROWS = (
    Row(("rocm/kineto_mi210_gpu_only.json.gz",), "medium casts", "MIOpen's solver works in another type", solvers_cast,
        "each of the 50 casts follows a kernel of a MIOpen solver; the GPU is 11 % idle"),
    Row(("rocm/kineto_mi250_minitoy_train.json",), "medium idle", "Record several steps after a warm-up",
        one_step_loads_programs, "only `ProfilerStep#1` has kernels; its first launch takes 6.6 of 9.3 ms"),
    Row(("rocm/kineto_mi300_bert_small.json.gz",), "high idle", "The host launches too slowly", launches_limit,
        "`ProfilerStep#6`, no graph; 57 short gaps before late launches"),
    Row(("rocm/kineto_mi300_vit_nsfw.json.gz",), "high idle", "The host launches too slowly", launches_limit,
        "`ProfilerStep#6`, no graph; 124 short gaps before late launches"),
    Row(("rocm/kineto_mi300_resnet50_ddp4_rank0.json.gz",), "high idle", "The host launches too slowly", launches_limit,
        "short gaps before late launches, no graph, few waiting calls"),
    Row(("rocm/kineto_mi300_resnet50_ddp4_rank1.json.gz",), "high idle", "The host launches too slowly", launches_limit,
        "short gaps before late launches, no graph, few waiting calls"),
    Row(("rocm/kineto_mi300x_flux_graph_capture.json.gz",), "medium idle", "Record several steps after a warm-up",
        one_step_captures_graphs, "the graph is captured and instantiated in the only step"),
    Row(("rocm/kineto_mi300x_resnet_train_ddp.json.gz",), "high communication", "Record all ranks", collectives_wait,
        "17.6 MB in milliseconds is 3.5 GB/s; no other rank is recorded"),
    Row(("rocm/graphs/sglang_prefilldecode.json.gz",), "", "", lambda files: True, "50 % of the step was not recorded"),
    Row(("rocm/graphs/vllm_decode_full.replay.json.gz",), "medium graph", "Record the capture as well",
        graphs_without_capture, "over 90 % of the kernels are of graph launches, no capture is recorded"),
    Row(("rocm/rocpd_ck_batched_gemm.db.gz",), "medium first-iteration", "run a warm-up before you measure",
        first_launch_is_slow, "the first launch takes over 100 times the median; no MIOpen in the run"),
    Row(("rocm/xplane_jax08_mi300x_conv3d.xplane.pb.gz",), "high idle", "call block_until_ready once",
        program_waits_for_each_step, "the GPU idles while Python is in `block_until_ready`, in each step"),
    Row(("rocm/rocprofv3_csv_decode_kernel_trace.csv",), "low idle", "Record the run again, completely",
        launches_are_lost, "the rows of half of the kernels were cut out"),
    Row(("rocm/rocprofv3_csv_decode_fetch_counter_collection.csv",), "low counter-run", "from a run without --pmc",
        counters_were_collected, "the table has values of a counter"),
    Row(("rocm/rocprofv3_json_kernel_dispatch_a.json.gz",), "medium idle",
        "No steps are known, so this may be start-up", no_step_and_no_call,
        "82 % of the time without a command; no call and no range is recorded"),
    Row(("rocm/rpd_torch_matmul.rpd.gz",), "medium idle", "No steps are known, so this may be start-up",
        one_gap_before_the_first_kernel, "one gap of 2.7 s between the first copies and the first kernel; no range"),
    Row(("rocm/rocprofv1_hiptrace_mi300a.json",), "medium copies", "Copy only what the host needs, to pinned memory",
        copies_block, "97 % of the time is copies, most of it one copy to the host by `hipMemcpy`; not PyTorch"),
    Row(("dvdt/clblast-lenet-seq-x3.prof.json",), "medium first-iteration", "It built or loaded programs.",
        builds_in_the_first_iteration, "`clBuildProgram` runs within it; no MIOpen in the run"),
    Row(("dvdt/offline-parser.prof.json",), "medium first-iteration", "It built or loaded programs.",
        builds_in_the_first_iteration, "`clBuildProgram` runs within it; no MIOpen in the run"),
    Row(opencl("m121-alexnet-infer-interleaved", "run.log"), "info find-cost", "Find runs once per shape", find_ran,
        "the log has Find calls"),
    Row(opencl("m121-resnet-infer-2it"),
        "medium first-iteration", "Keep MIOpen's kernel cache", builds_in_the_first_iteration,
        "two iterations; `clBuildProgram` runs in the first one alone"),
    Row(opencl("m290-alexnet-infer-10it"),
        "medium first-iteration", "Keep MIOpen's kernel cache", builds_in_the_first_iteration,
        "`clBuildProgram` runs within it for 253 ms, called by MIOpen"),
    Row(opencl("m121-rnn-infer-first"),
        "info short-kernels", "or use larger batches.", only_one_iteration, "dv/dt waits for each command"),
    Row(twin("alexnet-10it-graph", "rpd/trace.rpd.gz"),
        "high nameless", "Record with rocprofv3", graphs_replay_without_names,
        "261 replayed kernels are called `Task`"),
    Row(twin("alexnet-10it-graph", KINETO),
        "high graph", "Record the capture as well", replays_graphs,
        "9 graph launches run all steady kernels, no op was recorded for them; PyTorch"),
    Row(twin("alexnet-10it-graph", "rocpd/46001_results.db.gz"),
        "high graph", "Profile one run without graph capture", replays_graphs,
        "9 graph launches run all steady kernels; not PyTorch", forms(46001)),
    Row(twin("alexnet-level6-none", "rocpd/45919_results.db.gz"),
        "medium idle", "Record several steps after a warm-up", loads_in_the_only_iteration, ONE,
        forms(45919, KINETO, V1, RPD)),
    Row(twin("lenet-train-own-layers", "rocpd/43457_results.db.gz"),
        "medium idle", "Record several steps after a warm-up", loads_in_the_only_iteration, ONE,
        forms(43457, KINETO, V1, RPD)),
    Row(twin("lenet-cmdonly-kernel-trace", "rocpd/41242_results.db.gz"),
        "medium idle", "Record several steps after a warm-up", loads_in_the_only_iteration, ONE, forms(41242)),
    Row(twin("resnet-train-miopen-2threads", "rocpd/45362_results.db.gz"),
        "medium idle", "Record several steps after a warm-up", loads_in_the_only_iteration, ONE,
        forms(45362, KINETO, V1, RPD)),
    Row(twin("resnet-immediate-2ranks", "rocpd/42730_results.db.gz", "run.rank0.log"),
        "medium idle", "Record several steps after a warm-up", loads_in_the_only_iteration, ONE,
        forms(42730, KINETO, "rocprof-v1/rank0/results.json.gz")),
    Row(twin("resnet-immediate-2ranks", "rocpd/42733_results.db.gz", "run.rank1.log"),
        "medium idle", "Record several steps after a warm-up", loads_in_the_only_iteration, ONE,
        forms(42733, "kineto/rank1.pt.trace.json.gz", "rocprof-v1/rank1/results.json.gz")),
    Row(twin("resnet-immediate-2ranks", "rocpd/merged.db.gz", "run.log"),
        "medium idle", "Record several steps after a warm-up", loads_in_the_only_iteration, ONE, (RPD,)),
)  # fmt: skip


CASES = [(row, row.files) for row in ROWS]
CASES += [
    (row, (row.files[0], f"{'/'.join(row.files[0].split('/')[:2])}/{other}")) for row in ROWS for other in row.also
]


def case_id(case: tuple[Row, tuple[str, ...]]) -> str:
    return case[1][-1].replace("/", "-")


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_the_first_advice_is_right_for_its_run(case: tuple[Row, tuple[str, ...]]) -> None:
    """The program says what the row says, and the raw file has what the row claims."""
    row, names = case
    files = [shared_folder() / "samples" / name for name in names]
    analysis = mio2trace.analyse(files)
    (section, *_) = report_of(analysis, analysis.complete or analysis.runs, None).sections
    first = section.findings[0] if section.findings else None
    assert (f"{first.severity} {first.rule.id}" if first else "") == row.first
    assert row.says in (first.advice if first else "")
    assert row.holds(files)


def test_the_document_has_the_table() -> None:
    """Run, finding, advice and reason of each row, in the same order."""
    text = (ROOT / "docs" / "findings.md").read_text("utf-8")
    at = 0
    for row in ROWS:
        name = row.files[-1].removeprefix("rocm/").removesuffix(".gz")
        if row.also:
            name += f", also {', '.join(other.split('/')[0] for other in row.also)}"
        cells = (name, row.first or "none", row.says.rstrip("."), row.because)
        at = text.index(f"| {' | '.join(cells)} |", at)
