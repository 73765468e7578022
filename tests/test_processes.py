"""Processes of one job: whose each log is, how their clocks relate, what the picture and the tables call them."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mio2trace.align import NONE
from mio2trace.align.processes import ProcessClock, relate_processes
from mio2trace.analysis import AnalysisOptions, analyse
from mio2trace.comparing.sides import OPTIONS, side
from mio2trace.conversion import Conversion, convert
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Clock, Device, Process, Profile, Range
from mio2trace.notes import InputError, Notes
from mio2trace.readers.rocm.assembly import rank_in, scope_of
from mio2trace.runs import Told, note_shared_devices, same_job, shares
from mio2trace.trace import Flow, Slice
from tests.commands import csv_of, invoked
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, kineto_file, rows
from tests.often import present
from tests.records import process_of_a_job

TWIN = "resnet-immediate-2ranks"
SECOND = 1_000_000_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
GENERIC = "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)"


def files_of(*patterns: str) -> list[Path]:
    folder = shared_folder() / "samples" / "rocm-twins" / TWIN
    return [path for pattern in patterns for path in sorted(folder.glob(pattern))]


def job(folder: Path, *patterns: str) -> Path:
    """A folder of the job as its tools left it."""
    for path in files_of(*patterns):
        shutil.copy(path, folder / path.name)
    return folder


TOGETHER = [
    ("rocpd/*_results.db.gz", "run.rank?.log"),
    ("rocpd/*_results.db.gz", "run.log"),
    ("rocpd/merged.db.gz", "run.rank?.log"),
    ("rocpd/merged.db.gz", "run.log"),
    ("rocpd/merged.db.gz", "run*.log"),
    ("rocprofv3-json/*", "run.rank?.log"),
]


@pytest.mark.shared
@pytest.mark.parametrize("patterns", TOGETHER)
def test_each_processs_kernels_are_in_calls_of_its_own(patterns: tuple[str, ...], tmp_path: Path) -> None:
    """A folder with one file a process or all in one, with a log a process or one of all: right, or not sure."""
    truth = json.loads(files_of("truth.json")[0].read_bytes())
    analysis = analyse([job(tmp_path, *patterns)])
    (run,) = analysis.runs
    assert [one.profile.process.rank for one in run.alignments] in ([0, 1], [None, None])
    by_key = {(kernel["rank"], kernel["start"], kernel["dispatch_id"]): kernel for kernel in truth["kernels"]}
    right = [0, 0]
    for rank, alignment in enumerate(run.alignments):
        links = alignment.links
        calls = {operation.index: operation for operation in links.operations}
        logs = {f"run.rank{rank}.log", "run.log"}
        for position, activity in enumerate(alignment.profile.activities):
            index = links.operation_of[position]
            if activity.kind != "kernel":
                continue
            true = by_key.pop((rank, activity.start_ns, activity.number))
            if index == NONE:
                continue
            (log,) = logs & {file.name for file in run.inputs if file.source == calls[index].source}
            if calls[index].line == (true["log_line"] or {}).get(log):
                right[rank] += 1
            else:
                assert position in links.operation_unsure
    assert not by_key
    assert min(right) >= 80
    assert not [note for note in analysis.notes if "not joined" in note.kind]


@pytest.mark.shared
def test_a_folder_of_a_job_is_one_picture(tmp_path: Path) -> None:
    """Each kernel once, in its process's device; the hosts by rank and number; clocks said, in picture and report."""
    truth = json.loads(files_of("truth.json")[0].read_bytes())
    out = io.BytesIO()
    result = convert(job(tmp_path, "rocpd/*_results.db.gz", "run.rank?.log"), output=out, check=True)
    names = {process.id: process.name for process in result.trace.processes}
    assert sorted(names.values()) == [
        "GPU 0 of rank 0 (AMD Instinct MI300X)", "GPU 0 of rank 1 (AMD Instinct MI300X)",
        "Host rank 0 (pid 42730)", "Host rank 1 (pid 42733)",
    ]  # fmt: skip
    place = {track.id: names[track.process] for track in result.trace.tracks}
    events = list(result.trace.events())
    origin = min(kernel["start"] for kernel in truth["kernels"]) - min(
        event.start_ns for event in events if isinstance(event, Slice) and event.category == "kernel"
    )
    drawn = sorted(
        (event.start_ns + origin, place[event.track][9:15])
        for event in events
        if isinstance(event, Slice) and event.category == "kernel"
    )
    assert drawn == sorted((kernel["start"], f"rank {kernel['rank']}") for kernel in truth["kernels"])
    arrows = [event.id for event in events if isinstance(event, Flow)]
    assert len(set(arrows)) == len(arrows) > 100
    assert result.metadata["clock"]["processes"] == [
        {"rank": 0, "pid": 42730, "offset_ns": 0, "error_ns": 0, "method": "its own clock"},
        {"rank": 1, "pid": 42733, "offset_ns": 0, "error_ns": 0, "method": "time since the boot of one machine"},
    ]
    (clocks,) = [line for line in result.report if line.startswith("clocks: ")]
    assert "rank 1 as rank 0, error 0 us (time since the boot of one machine)" in clocks
    assert [line[:8] for line in result.report if "operations: " in line] == ["rank 0: ", "rank 1: "]
    written = out.getvalue().decode() + json.dumps([result.metadata, result.report])
    machine = "ff941ea29e6bdaecff941ea29e6bdaec"
    scopes = scope_of(machine), scope_of(machine, "gpunode07")
    assert not [word for word in (*truth["must_not_leak"], machine, *scopes) if word in written]


@pytest.mark.shared
@pytest.mark.parametrize("command", ["ops", "kernels", "kernels --by name", "kernels --by layer", "layers"])
def test_tables_say_the_rank_where_there_are_several(command: str) -> None:
    def rows(*patterns: str) -> list[dict[str, str]]:
        return csv_of(*command.split(), *files_of(*patterns))

    several = rows("rocpd/merged.db.gz", "run.rank?.log")
    alone = [rows(f"rocpd/4273{rank * 3}_results.db.gz", f"run.rank{rank}.log") for rank in (0, 1)]
    assert not any("rank" in row for part in alone for row in part)
    assert several == [{"rank": str(rank), **row} for rank, part in enumerate(alone) for row in part]


@pytest.mark.shared
@pytest.mark.parametrize(
    "pattern",
    ["rocprofv3-csv/*_kernel_trace.csv", *(f"rocprof-v1/rank?/results.{form}" for form in ("db.gz", "json.gz", "csv"))],
)
def test_without_evidence_clocks_are_not_related(pattern: str) -> None:
    """The tables name no machine, rocprof v1 leaves a folder a rank: refused in one line; `--align start` draws each
    process from its own start."""
    paths = files_of(pattern)
    assert len(paths) == 2
    first, second = ("file rank0", "file rank1") if "rank?" in pattern else ("pid 42730", "pid 42733")
    with pytest.raises(InputError, match=rf"^[^\n]*nothing relates the clock of {second} to that of {first}[^\n]*$"):
        convert(*paths)
    result = convert(*paths, from_start=True)
    clock = result.metadata["clock"]["processes"][1]
    assert (clock["error_ns"], clock["method"]) == (None, "each from its own start: not related")
    assert all(any(label in name for name in names(result)) for label in (first, second))
    if pattern.startswith("rocprofv3"):
        assert clock["offset_ns"] < 0
        assert len({process.id for process in result.trace.processes}) == 4
        assert invoked("kernels", "--by", "name", *paths).exit_code == 0


@pytest.mark.shared
def test_explain_tells_of_each_process() -> None:
    """Each numbers its own kernels; the lines say whose they are."""
    report = convert(*files_of("rocpd/merged.db.gz"), from_start=True, explain=["kernel 1"]).report
    told = [line for line in report if "kernel 1: " in line]
    assert len(told) == 2
    assert len({line.partition(":")[0] for line in told}) == 2


@pytest.mark.shared
def test_a_process_in_two_forms_counts_once(tmp_path: Path) -> None:
    """All that profilers wrote of the job in one folder: its two processes, from the fullest files."""
    for path in files_of("rocpd", "rpd", "rocprofv3-csv"):
        shutil.copytree(path, tmp_path / path.name)
    (run,) = analyse([tmp_path]).runs
    assert [(one.profile.process.pid, one.profile.process.rank) for one in run.alignments] == [(42730, 0), (42733, 1)]
    assert [sum(a.kind == "kernel" for a in one.profile.activities) for one in run.alignments] == [94, 94]


@pytest.mark.shared
@pytest.mark.parametrize("twin", ["lenet-train-own-layers", "resnet-train-miopen-2threads", "alexnet-level6-none"])
def test_a_folder_with_two_logs_has_the_one_whose_thread_ids_are_the_profiles(twin: str) -> None:
    """The other one is of the run that the log's text was taken from; one process is there in several forms."""
    result = convert(shared_folder() / "samples" / "rocm-twins" / twin)
    notes = {note.kind: note.places for note in result.notes}
    assert notes["log that fits no profile here: not joined"] == ["run.log"]
    assert len([name for name in names(result) if name.startswith("Host")]) == 1
    assert result.metadata["attribution"]["operations"] > 0


MINUTE_US = 60_000_000


@pytest.mark.parametrize(("later_us", "runs"), [(MINUTE_US, 2), (0, 1)])
def test_two_recordings_of_one_process_are_two_runs(later_us: int, runs: int, tmp_path: Path) -> None:
    """PyTorch's schedule writes a file per cycle, and the kernels of both take equally long."""
    kineto_file(tmp_path, rows(), "worker0.1700000000001.pt.trace.json")
    again = rows(FIRST_US + later_us)
    again[-3]["name"] += " (again)"
    kineto_file(tmp_path, again, "worker0.1700000000002.pt.trace.json")
    analysis = analyse([tmp_path])
    assert len([run for run in analysis.runs if run.alignments]) == runs
    assert any("more complete" in note.kind for note in analysis.notes) == (runs == 1)
    assert len(side([str(tmp_path)], OPTIONS, Notes()).runs) == runs


@pytest.mark.parametrize(("slower_us", "runs"), [(0, 1), (100, 2)])
def test_without_a_common_clock_distances_of_kernels_tell_recordings(slower_us: int, runs: int, tmp_path: Path) -> None:
    """Times since an unknown zero: two cycles never keep the same distances, two files of one recording do."""
    kineto_file(tmp_path, rows(1_000_000), "a.json", base=None)
    later = rows(1_000_000 + MINUTE_US)
    for event in later:
        if event["name"].startswith(("igemm", "Memcpy", "Memset")):
            event["ts"] += slower_us
    kineto_file(tmp_path, later, "b.json", base=None)
    assert len([run for run in analyse([tmp_path]).runs if run.alignments]) == runs


def test_processes_one_after_another_are_not_of_one_job() -> None:
    """On one machine's clock the second began when the first had ended; in two folders of which nothing tells."""
    here = Clock("boottime", scope="a")
    first, beside = profile(1, GEMM, here), profile(2, GEMM)
    nameless = msgspec.structs.replace(first, processes=(Process(index=0),))
    for other, near, expected in (
        (profile(2, LATER, here), True, False), (profile(2, GEMM, here), False, True), (beside, True, True),
        (beside, False, False), (first, True, False), (nameless, True, False),
    ):  # fmt: skip
        assert same_job([first], [other], near=near, spans={}) == expected


def write_rank(path: Path, rank: int, begin_ms: int, number: int) -> None:
    """Write a PyTorch trace of 20 ms, which does not state the machine."""
    of_one: dict[str, Any] = {"ph": "X", "dur": 10_000, "args": {"correlation": 1}}
    call = {**of_one, "cat": "cuda_runtime", "name": "hipLaunchKernel", "pid": rank + 9, "tid": 1}
    kernel = {**of_one, "cat": "kernel", "name": ALL_REDUCE, "pid": 0, "tid": 7, "dur": 10_000 + number}
    events = [{**call, "ts": 1000 * begin_ms}, {**kernel, "ts": 1000 * begin_ms + 10_000}]
    trace = {"schemaVersion": 1, "baseTimeNanoseconds": 1_767_000_000 * SECOND, "traceEvents": events}
    path.write_text(json.dumps({**trace, "distributedInfo": {"rank": rank, "world_size": 4}}))


def test_jobs_that_ran_at_once_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    """Repetitions on several machines: a rank of the one is no rank of another."""
    for number in range(6):
        folder = tmp_path / f"run{number % 3}"
        folder.mkdir(exist_ok=True)
        write_rank(folder / f"{number}.json", number // 3, number % 3, number)
    for runs in (analyse([tmp_path]).runs, analyse([tmp_path], AnalysisOptions(near=False)).runs):
        found = [{os.path.basename(os.path.dirname(file.path)) for file in run.inputs} for run in runs]
        assert sorted(map(sorted, found)) == [["run0"], ["run1"], ["run2"]]


@pytest.mark.parametrize(
    ("begins_ms", "jobs"),
    [
        ([(0, 0), (1, 1)], [{0, 1}]),
        ([(0, 0), (1, 1), (2, 900), (3, 901)], [{0, 1, 2, 3}]),
        ([(0, 0), (1, 400), (2, 900)], [{0, 1, 2}]),
        ([(0, 0), (1, 1100)], [{0}, {1}]),
        ([(0, 0), (1, 500), (0, 501), (1, 1)], [{0, 1}, {0, 1}]),  # two cycles of a schedule
        ([(0, 0), (1, 100), (0, 200), (1, 300)], [{0}, {0}, {1}, {1}]),  # whose cycles cannot be told
    ],
)
def test_clocks_of_two_machines_may_differ_by_more_than_a_recording_took(
    begins_ms: list[tuple[int, int]], jobs: list[set[int]], tmp_path: Path
) -> None:
    """`ranks` says what it leaves out, and that the ranks may be those of two jobs."""
    for number, (rank, begin_ms) in enumerate(begins_ms):
        write_rank(tmp_path / f"{number}.json", rank, begin_ms, number)
    analysis = analyse([tmp_path])
    found = [{profile.process.rank for profile in run.profiles} for run in analysis.runs]
    assert sorted(found, key=sorted) == jobs
    is_doubted = any("one job only if these are wrong" in note.kind for note in analysis.notes)
    near = [{rank for rank, ns in begins_ms if ns // 10 == begin // 10} for _, begin in begins_ms]
    assert is_doubted == any(job not in near for job in jobs)
    if any(len(job) > 1 for job in jobs):
        said = invoked("ranks", tmp_path).stderr
        assert said.count("of another run, by its clock, folder or ranks: left out") == len(jobs) - 1


def test_scopes_tell_machines_apart() -> None:
    """One without an id is like no other; nodes of one image have one id and names of their own."""
    assert [scope_of(machine) for machine in (None, "", "00000000-0000", 7, "abc")] == [""] * 5
    assert scope_of("", "node1") == ""
    names: tuple[tuple[str, ...], ...] = (
        ("ff941ea29e6bdaec",), ("ff941ea29e6bdaed",), ("ff941ea29e6bdaec", "node1"), ("ff941ea29e6bdaec", "node2")
    )  # fmt: skip
    assert len({scope_of(*name) for name in names}) == len(names)
    assert scope_of(*names[2]) == scope_of("ff941ea29e6bdaec", "node1")


@pytest.mark.parametrize(
    ("told", "count"),
    [
        ([(1, 0), (2, 1)], 2),
        ([(1, 0), (1, 1)], 2),
        ([(1, None), (2, None)], 2),
        ([(1, 0), (1, None)], 1),
        ([(1, 0)] * 2, 1),
    ],
)
def test_ranks_with_equal_times_are_two_ranks(told: list[tuple[int, int | None]], count: int, tmp_path: Path) -> None:
    """As of made-up traces, and of simulated runs. The same process in two files counts once."""
    for number, (pid, rank) in enumerate(told):
        of_one: dict[str, Any] = {"ph": "X", "dur": 5, "args": {"correlation": 1}}
        call = {**of_one, "cat": "cuda_runtime", "name": "hipLaunchKernel", "pid": pid, "tid": 1, "ts": 1}
        kernel = {**of_one, "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 3}
        trace: dict[str, Any] = {"schemaVersion": 1, "number": number, "traceEvents": [call, kernel]}
        if rank is not None:
            trace["distributedInfo"] = {"rank": rank, "world_size": 2}
        (tmp_path / f"{number}.json").write_text(json.dumps(trace))
    assert [len(run.profiles) for run in analyse([tmp_path]).runs] == [count]


@pytest.mark.parametrize(
    ("scopes", "units", "starts", "said"),
    [
        ("aa", (2, 2), (0, 5), "rank 0, rank 1"),
        ("aa", (2, 3), (0, 5), ""),
        ("aa", (2, None), (0, 5), ""),
        ("ab", (2, 2), (0, 5), ""),
        ("aa", (2, 2), (0, 10), ""),
        ("aaaa", (2, 2, 3, 2), (0, 4, 4, 3), "rank 0, rank 1, rank 3"),
    ],
    ids=["one GPU", "two GPUs", "not recorded", "two machines", "one after another", "three of four"],
)
def test_a_shared_gpu_is_noted(scopes: str, units: tuple[int | None, ...], starts: tuple[int, ...], said: str) -> None:
    """Each process's only command takes 10 ns."""
    notes = Notes()
    note_shared_devices(
        [
            msgspec.structs.replace(
                profile(100 + rank, [("gemm", SECOND + start, SECOND + start + 10)], Clock("boottime", scope=scope)),
                devices=(Device(index=0, clock=0, unit=unit),),
                processes=(Process(index=0, pid=100 + rank, rank=rank, label=f"rank {rank}"),),
            )
            for rank, (scope, unit, start) in enumerate(zip(scopes, units, starts, strict=True))
        ],
        notes,
    )
    assert [note.places for note in notes] == ([[said]] if said else [])


# -- clocks of processes -----------------------------------------------------------------------------------------------


def profile(
    pid: int, kernels: list[tuple[str, int, int]], clock: Clock | None = None, *, called: str = "", ahead: int = 0
) -> Profile:
    """A process; its clock shows ``ahead`` ns more than the job's. ``called``: an annotation around each launch."""
    launches = [(name, start, end, start - 50, start - 40) for name, start, end in kernels]
    ranges = [Range("annotation", called, 0, start - 60, start - 30) for _, start, _ in kernels if called]
    process = Process(index=0, pid=pid)
    return process_of_a_job(launches, process, clock or Clock("opaque"), ranges=ranges, ahead=ahead)


def all_reduces(late: int = 0) -> list[tuple[str, int, int]]:
    """Ten, a millisecond each; this process comes ``late`` ns into each."""
    starts = range(SECOND, 2 * SECOND, SECOND // 10)
    return [(ALL_REDUCE, start + late * (number % 2), start + 1_000_000) for number, start in enumerate(starts)]


def second(first: Profile, other: Profile) -> ProcessClock | None:
    return relate_processes([first, other])[1]


def related(first: Profile, other: Profile) -> tuple[ProcessClock, int]:
    """The second one's clock, and its error, which is known."""
    clock = present(second(first, other))
    assert clock.error_ns is not None
    return clock, clock.error_ns


GEMM = [("gemm", SECOND, SECOND + 5)]
LATER = [("gemm", 9 * SECOND, 9 * SECOND + 5)]
UNIX, HERE, THERE, UNNAMED = Clock("unix"), *(Clock("boottime", scope=scope) for scope in ("a", "b", ""))
OVERLAP, ONE_MACHINE = "10 collectives overlap", "time since the boot of one machine"
GENERICS = [(GENERIC, start, end) for _, start, end in all_reduces()]
DRIFTING = [(name, start * (1 + at), end * (1 + at)) for at, (name, start, end) in enumerate(all_reduces())]


@pytest.mark.parametrize(
    ("first", "other", "shift", "errors", "method"),
    [
        # collectives must overlap: the true offset lies within the error
        *((profile(1, all_reduces()), profile(2, all_reduces(300_000), ahead=ahead), -ahead, (0, 1_000_000), OVERLAP)
          for ahead in (0, 123_456_789, -5 * SECOND)),
        # Unix time that agrees with them gets a bound, else it is moved; without them the error is not known
        (profile(1, all_reduces(), UNIX), profile(2, all_reduces(300_000), UNIX, ahead=400_000), 0,
         (400_000, 2_000_000), f"Unix time, {OVERLAP}"),
        (profile(1, all_reduces(), UNIX), profile(2, all_reduces(300_000), UNIX, ahead=30_000_000), -30_000_000,
         (0, 2_000_000), OVERLAP),
        (profile(1, all_reduces(), UNIX), profile(2, GEMM, UNIX), 0, None, "Unix time"),
        # the root of a broadcast may be done before another begins; kernels of one name are told apart by their launch
        *((profile(1, GENERICS, called=called), profile(2, GENERICS, called=called), 0, (0, 1_000_000), method)
          for called, method in (("nccl:broadcast", ""), ("nccl:all_reduce", OVERLAP), ("", ""))),
        # another number of them, or times that no offset lets overlap
        *((profile(1, all_reduces()), profile(2, others), 0, None, "") for others in (all_reduces()[:-1], DRIFTING)),
        # one machine is one clock, two are none
        (profile(1, GEMM, HERE), profile(2, GEMM, HERE), 0, (0, 0), ONE_MACHINE),
        (profile(1, GEMM, HERE), profile(2, GEMM, THERE), 0, None, ""),
        (profile(1, GEMM, UNNAMED), profile(2, GEMM, UNNAMED), 0, None, ""),
    ],
)  # fmt: skip
def test_how_the_clock_of_a_second_process_is_related(
    first: Profile, other: Profile, shift: int, errors: tuple[int, int] | None, method: str
) -> None:
    clock = second(first, other)
    assert ("" if clock is None else clock.method) == method
    if clock is not None and errors is not None:
        assert clock.error_ns is not None
        assert errors[0] <= clock.error_ns <= errors[1]
        assert abs(clock.shift_ns - shift) <= (clock.error_ns if method == OVERLAP else 0)
    elif clock is not None:
        assert (clock.shift_ns, clock.error_ns) == (0, None)


def test_what_one_file_tells_of_one_time_is_drawn_so_with_an_error_that_is_not_known() -> None:
    """Where it names no machine; not of processes that never ran at once: those may be of two."""
    first = profile(1, GEMM, Clock("boottime"))
    beside, later = (
        second(first, msgspec.structs.replace(profile(2, kernels, Clock("boottime")), source=first.source))
        for kernels in (GEMM, LATER)
    )
    assert beside is not None
    assert (beside.shift_ns, beside.error_ns) == (0, None)
    assert later is None


def test_a_clock_may_be_related_through_another_process() -> None:
    """Two on one machine, a third elsewhere that shares collectives with the second alone: errors add up."""
    here = Clock("boottime", scope="a")
    others = profile(2, all_reduces(), here), profile(3, all_reduces(), ahead=77)
    clock = present(relate_processes([profile(1, GEMM, here), *others])[2])
    assert clock.error_ns is not None
    assert abs(clock.shift_ns + 77) <= clock.error_ns


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ('{"PATH": "/bin", "RANK": "3", "SLURM_PROCID": "5"}', 3),
        ('{"SLURM_PROCID": "5"}', 5),
        ('{"RANK": 2}', 2),
        ('{"RANK": "", "OMPI_COMM_WORLD_RANK": "1"}', 1),
        ('{"RANK": "-1"}', None),
        ('{"RANK": "123456789012"}', None),
        ('{"RANK": "\u0663"}', None),
        ('{"RANK": ["1"]}', None),
        ('["RANK"]', None),
        ('{"RANK": "1"', None),
        ("\ud800", None),
        (None, None),
        (b"x", None),
    ],
)
def test_the_rank_is_all_that_is_read_of_an_environment(environment: object, rank: int | None) -> None:
    """The nearest launcher's; what is no number of a rank is none."""
    assert rank_in(environment) == rank


# -- whose a log is ----------------------------------------------------------------------------------------------------


def told(name: str, *threads: int) -> Told:
    return Told(name, (FrameworkLog(source=0, threads=threads),), (), ())


BY_NAME = "log assigned to a process by its file's name alone"
NOBODYS = "log that no evidence assigns to a process: not joined"


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (told("run.log", 4712), None),
        (told("run.rank0.log", 4712), None),
        (told("run.rank1.log"), BY_NAME),
        (told("4712.log"), BY_NAME),
        (told("run.rank7.log"), NOBODYS),
        (told("run.log"), NOBODYS),
        (told("run.log", 99), NOBODYS),
    ],
)
def test_a_log_is_a_processs_by_evidence_alone(file: Told, said: str | None) -> None:
    """Thread ids first, the file's name where they tell nothing; else it is nobody's."""
    ranks = [
        msgspec.structs.replace(profile(4711 + rank, GEMM), processes=(Process(index=0, pid=4711 + rank, rank=rank),))
        for rank in (0, 1)
    ]
    notes = Notes()
    shares(ranks, [file], frozenset(), notes)
    assert {note.kind for note in notes} & {NOBODYS, BY_NAME} == ({said} if said else set())


def names(result: Conversion) -> list[str]:
    return [process.name for process in result.trace.processes]


@pytest.mark.shared
def test_ranks_of_pytorch_are_one_job(tmp_path: Path) -> None:
    """Two of its traces: Unix time, whose error nothing bounds here; ranks are those that the files state."""
    result = convert(*files_of("kineto/*"))
    assert [name for name in names(result) if name.startswith("Host")] == [
        "Host rank 0 (pid 42730)", "Host rank 1 (pid 42733)",
    ]  # fmt: skip
    assert result.metadata["clock"]["processes"][1]["method"] == "Unix time"
    assert any("rank 1 as rank 0, error not known (Unix time)" in line for line in result.report)


@pytest.mark.shared
def test_queries_have_the_times_of_the_trace(tmp_path: Path) -> None:
    """Of files as of what was written of them: related clocks are not set to zero each, unrelated ones are."""
    for pattern, options in (("rocprofv3-json/*", {}), ("rocprofv3-csv/*_kernel_trace.csv", {"from_start": True})):
        paths = files_of(pattern)
        convert(*paths, output=tmp_path / "out.json", **options)  # type: ignore[arg-type]
        rows = [
            invoked("query", *asked, "select ts, process from kernels order by ts, process")
            for asked in (paths, [tmp_path / "out.json"])
        ]
        assert rows[0].exit_code == rows[1].exit_code == 0
        assert rows[0].stdout == rows[1].stdout


@pytest.mark.parametrize(("log", "believed"), [("run.rank0.log", 94), ("run.rank1.log", 0)])
def test_a_log_named_for_another_rank_is_not_believed(log: str, believed: int) -> None:
    """Ranks of one program launch the same: beside one rank's profile only the log's name tells, and that is said."""
    folder = shared_folder() / "samples" / "rocm-twins" / TWIN
    analysis = analyse([folder / log, folder / "rocpd" / "42730_results.db.gz"])
    links = analysis.runs[0].alignments[0].links
    linked = [position for position, word in enumerate(links.operation_by) if word]
    assert len(linked) == 94
    assert sum(links.operation_confidence.get(position, 1.0) >= 0.5 for position in linked) == believed
    assert any("another rank" in note.kind for note in analysis.notes) == (believed == 0)
