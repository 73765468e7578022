"""Which files are of one run: the evidence, what fits none, the same content twice, several runs at once."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import mio2trace
from mio2trace import runs
from mio2trace.align.same_run import begun_again
from mio2trace.analysis import AnalysisOptions, analyse
from mio2trace.answer import report_of
from mio2trace.batch.finding import find_runs
from mio2trace.conversion import Conversion, convert
from mio2trace.files import short_names
from mio2trace.model.profile import Process, Profile
from mio2trace.notes import InputError, Notes
from mio2trace.ops.operation import Operation
from mio2trace.trace import CounterValue, Slice, Trace
from mio2trace.writers import native
from tests.commands import invoked
from tests.conftest import REQUIRED, ROOT
from tests.kineto_files import BASE_NS, Row, kineto_file, launched, rows, trace
from tests.native_packets import read_native
from tests.often import saved
from tests.records import made_operation
from tests.small_runs import as_json, benchmark, kinds, small
from tests.test_oracle import steps

TRACES = ROOT / "traces"
MIOPEN = TRACES / "alexnet-b1-miopen29"
ALEXNET = TRACES / "alexnet-b1-train"
SQUEEZENET = TRACES / "squeezenet11-b1-libdnn-fwd"
LEFT_ALONE = "log that fits no profile here: not joined"

FILES = ("run.log", "prof.json")
TEN_RUNS = (
    *(f"dvdt/{of}" for of in ("alexnet-b1-fwd-nomarks", "alexnet-b1-train", "lenet-b2-fwd", "squeezenet11-b1-fwd-tz")),
    *(f"miopen-opencl/m121-{of}" for of in ("lenet-infer", "lenet-train-ownkernels", "resnet-infer-2it")),
    *(f"miopen-opencl/m290-{of}" for of in ("alexnet-infer-level6-cmd", "lenet-train-cmdonly")),
    "miopen-opencl/m290-resnet-infer-immediate-fused",
)
"""Of them ``cmdonly`` names no buffer and ended 1.8 s after ``immediate-fused``."""

Copied = Callable[[Path, str], tuple[Path, Path]]


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    """A run's log and profile in a folder of their own, under the names that all runs give them."""

    def copy(run: Path, name: str) -> tuple[Path, Path]:
        folder = tmp_path / name
        folder.mkdir()
        log = next(file for file in (run / "run.log", run / "run.log.gz") if file.exists())
        text = log.read_bytes()
        (folder / "run.log").write_bytes(gzip.decompress(text) if log.suffix == ".gz" else text)
        shutil.copy(run / "prof.json.gz", folder / "prof.json")
        return folder / "run.log", folder / "prof.json"

    return copy


def events(result: Conversion) -> list[Any]:
    return list(result.trace.events())


def linked(result: Conversion) -> tuple[Any, ...]:
    facts = result.metadata["attribution"]
    return facts["layer_by"], facts.get("operation_by"), facts["unsure"]


@pytest.mark.parametrize(("run", "other"), [(MIOPEN, ALEXNET), (ALEXNET, SQUEEZENET), (SQUEEZENET, MIOPEN)])
def test_a_log_of_another_run_spoils_nothing(copied: Copied, run: Path, other: Path) -> None:
    log, profile = copied(run, "A")
    stranger, _ = copied(other, "B")
    alone = convert(log, profile)
    for order in itertools.permutations((log, profile, stranger)):
        beside = convert(*order)
        assert events(beside) == events(alone)
        assert linked(beside) == linked(alone)
        note = next(note for note in beside.notes.problems if note.kind == LEFT_ALONE)
        assert note.places == ["B/run.log"]


def test_what_a_copy_said_while_it_was_read_is_said_once(tmp_path: Path) -> None:
    """The notes of the one that is left out are left out, too."""
    _, log = benchmark()
    text = (log + "a line of another program\n" * 3).encode()
    (tmp_path / "run.log").write_bytes(text)
    (tmp_path / "run.log.gz").write_bytes(gzip.compress(text))
    once = kinds(convert(tmp_path / "run.log").notes)
    twice = kinds(convert(tmp_path / "run.log", tmp_path / "run.log.gz").notes)
    assert twice.pop("input given twice: used once") == 1
    assert twice == once


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([0, 1, 2, 3, 4, 5], "3 runs: A, B, C; expected those of one .*--several.*`mio2trace compare`"),
        ([0, 2, 4], "3 runs: A, B, C; expected those of one .*--several.*`mio2trace compare`"),
        ([0, 1, 3, 4, 5], "2 runs: A, C, and without a log of its own B; expected"),
    ],
    ids=["logs and profiles", "logs alone", "one has lost its log"],
)
def test_several_runs_are_not_silently_one(given: list[int], said: str, copied: Copied) -> None:
    """One line names them and what to do."""
    runs = (MIOPEN, "A"), (ALEXNET, "B"), (SQUEEZENET, "C")
    files = [file for run, name in runs for file in copied(run, name)]
    with pytest.raises(InputError, match=f"^files of {said}"):
        convert(*(files[at] for at in given))


def test_a_log_goes_with_the_profile_that_it_fits_not_with_the_fullest(copied: Copied) -> None:
    log, profile = copied(ALEXNET, "A")
    _, fuller = copied(SQUEEZENET, "B")
    alone, both = convert(log, profile), convert(log, profile, fuller)
    assert linked(both) == linked(alone)
    assert both.metadata["attribution"]["kernels"] > alone.metadata["attribution"]["kernels"]


def test_logs_that_fit_no_profile_are_refused(copied: Copied) -> None:
    """One or several; by order alone a single one is joined all the same."""
    _, profile = copied(MIOPEN, "A")
    logs = [copied(run, name)[0] for run, name in ((ALEXNET, "B"), (SQUEEZENET, "C"))]
    with pytest.raises(InputError, match=r"^the log and the profile are not of one run"):
        convert(logs[0], profile)
    with pytest.raises(InputError, match=r"^none of 2 logs: the log and the profile are not of one run"):
        convert(*logs, profile)
    assert convert(logs[0], profile, by_order_alone=True).metadata["attribution"]["kernels"]


def test_a_refusal_says_that_the_profile_is_cut_off(copied: Copied, tmp_path: Path) -> None:
    """A log of another time goes on long after its last call: that may be why they do not go together."""
    log, profile = copied(ALEXNET, "A")
    log.write_bytes(log.read_bytes().replace(b" 10:46:", b" 10:59:"))
    content = profile.read_bytes()
    whole = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    with pytest.raises(InputError, match=rf"not of one run: .*; file cut off: .*byte {len(whole) // 3}"):
        convert(log, saved(tmp_path / "cut.json", whole[: len(whole) // 3]))


def test_where_nothing_tells_which_log_is_the_profiles_it_is_asked_for(tmp_path: Path) -> None:
    """Neither has a stamp or a buffer, and both print layers."""
    for name, layers in (("a", ("conv1", "ip1")), ("b", ("conv1", "ip9"))):
        timer = [
            {"direction": "forward", "index": index, "label": f"{index:02}: {layer}", "time_ms": 0.1 + index}
            for index, layer in enumerate(layers)
        ]
        (tmp_path / name).write_text(json.dumps({"per_layer_info": timer, "time_fw_ms": 1}))
    (tmp_path / "prof").write_bytes(as_json(small()))
    with pytest.raises(
        InputError, match=r"^a and b are logs of two runs, and nothing shows which belongs to the profile"
    ):
        convert(tmp_path / "prof", tmp_path / "a", tmp_path / "b")


@pytest.mark.shared
def test_no_two_of_ten_real_runs_are_joined(shared: Path) -> None:
    """The log of one with the profile of another: each of 90 pairs is refused; a thorough run tries them all."""
    samples = shared / "samples"
    runs = [
        [samples / name / file if name.startswith("miopen") else samples / f"{name}.{file}" for file in FILES]
        for name in TEN_RUNS
    ]
    for log, profile in runs:
        assert convert(log, profile).metadata["attribution"]["unattributed"] >= 0
    pairs = [*itertools.permutations(runs, 2)]
    for (log, _), (_, profile) in pairs if "thorough" in REQUIRED else pairs[::7]:
        with pytest.raises(InputError, match="not of one run"):
            convert(log, profile)


@pytest.mark.shared
def test_a_wrong_log_beside_the_right_one_is_left_alone(shared: Path) -> None:
    """Of ten real runs each with the logs of all others: the links are those without them."""
    samples = shared / "samples" / "miopen-opencl"
    names = [name.rpartition("/")[2] for name in TEN_RUNS if name.startswith("miopen")]
    logs = [samples / name / "run.log" for name in names]
    for name, log in zip(names, logs, strict=True):
        alone, beside = (convert(*files, samples / name / "prof.json") for files in ([log], logs))
        assert linked(beside) == linked(alone), name
        assert kinds(beside.notes)[LEFT_ALONE] == len(logs) - 1


def test_names_are_as_short_as_tells_them_apart() -> None:
    """By the last parts of the path, and no more of it than is needed."""
    assert short_names(["/home/me/x/run.log"]) == ["run.log"]
    assert short_names(["/r/A/run.log", "/r/B/run.log", "/r/A/prof.json"]) == ["A/run.log", "B/run.log", "prof.json"]
    assert short_names(["/a/x/y/run.log", "/b/x/y/run.log"]) == ["a/x/y/run.log", "b/x/y/run.log"]
    for names in (["run.log", "B/run.log"], ["same", "same"], ["-", "run.log"]):
        assert short_names(names) == names


def test_a_run_from_standard_input_is_one_with_its_file(monkeypatch: pytest.MonkeyPatch, copied: Copied) -> None:
    """It has no folder: buffers and clocks tell."""
    log, profile = copied(MIOPEN, "A")
    stranger, _ = copied(ALEXNET, "B")
    alone = convert(log, profile)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(log.read_bytes())))
    assert linked(convert("-", profile, stranger)) == linked(alone)


def processes_of(result: Conversion) -> list[str]:
    return [process.name for process in result.trace.processes]


@pytest.mark.parametrize("profiles", [True, False])
def test_several_runs_are_drawn_side_by_side_where_that_is_wanted(copied: Copied, profiles: bool) -> None:
    """Each from zero, named for what tells it from the others, and as if it were alone."""
    pairs = {name: copied(run, name) for run, name in ((MIOPEN, "A"), (ALEXNET, "B"))}
    files = {name: pair if profiles else pair[:1] for name, pair in pairs.items()}
    given = [file for of_run in files.values() for file in of_run]
    traces = []
    for order in list(itertools.permutations(given))[:: 5 if profiles else 1]:
        out = io.BytesIO()
        result = convert(*order, several=True, check=profiles, output=out)
        traces.append(out.getvalue())
    assert len(set(traces)) == 1
    names = processes_of(result)
    process_of = {track.id: track.process for track in result.trace.tracks}
    for name, of_run in files.items():
        alone = convert(*of_run)
        assert sorted(of for of in names if of.endswith(f" of {name}")) == sorted(
            f"{of} of {name}" for of in processes_of(alone)
        )
        own = {process.id for process in result.trace.processes if process.name.endswith(f" of {name}")}
        drawn = [
            (event.start_ns, event.dur_ns, event.name)
            for event in events(result)
            if isinstance(event, Slice) and process_of[event.track] in own
        ]
        assert sorted(drawn) == sorted(
            (event.start_ns, event.dur_ns, event.name) for event in events(alone) if isinstance(event, Slice)
        )
    assert sorted(run["name"] for run in result.metadata["runs"]) == ["A", "B"]


def test_a_run_is_not_named_for_a_person(tmp_path: Path) -> None:
    files = []
    for name, run in (("joebloggs", ALEXNET), ("janedoe", SQUEEZENET)):
        folder = tmp_path / "home" / name
        folder.mkdir(parents=True)
        files.append(shutil.copy(run / "run.log", folder))
    names = processes_of(convert(*files, several=True))
    assert len(set(names)) == len(names) == 2
    assert not any(word in name for name in names for word in ("joe", "jane", "home"))


def test_of_many_profiles_no_two_tracks_share_a_number(tmp_path: Path) -> None:
    """Nor a process with a track; also with tracks of their own for names and folded parts."""
    files = []
    count = 200 if "thorough" in REQUIRED else 60
    for number in range(count):
        files.append(tmp_path / f"{number}.json")
        files[-1].write_bytes(as_json(small()).replace(b'"name":\t"k"', b'"name":\t"k%d"' % number))
    for options in ({}, {"tracks": ("kernels", "operations"), "host_calls": "all"}):
        trace = convert(*files, **options).trace  # type: ignore[arg-type]
        numbers = [process.id for process in trace.processes] + [track.id for track in trace.tracks]
        assert len(trace.processes) >= 2 * count
        assert len(set(numbers)) == len(numbers)
        assert {track.process for track in trace.tracks} == {process.id for process in trace.processes}


def test_a_run_s_name_breaks_no_line(tmp_path: Path) -> None:
    files = []
    for name, run in (("a\x1b[31m", ALEXNET), ("b\nc", SQUEEZENET)):
        (tmp_path / name).mkdir()
        files.append(Path(shutil.copy(run / "run.log", tmp_path / name)))
    assert all(name.isprintable() for name in processes_of(convert(*files, several=True)))
    with pytest.raises(InputError, match=r"^files of 2 runs: a\\x1b\[31m, b\\nc;"):
        convert(*files)


@pytest.mark.parametrize("path", ["\ud800", "a\0b", "", "\udcff.log"])
def test_what_is_no_path_is_refused_in_one_line(path: str, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("x")
    for files in ([path], [path, str(tmp_path / "run.log")]):
        with pytest.raises(InputError, match=r"^[^\n]*(no valid path|No such file or directory)"):
            convert(*files)


def test_a_person_sees_several_runs_in_the_order_given(copied: Copied) -> None:
    """The picture is the same in any order; what a person reads begins with what was named first."""
    pairs = {name: copied(run, name) for run, name in ((MIOPEN, "A"), (ALEXNET, "B"))}
    for first, second in (("A", "B"), ("B", "A")):
        result = convert(*pairs[first], *pairs[second], several=True)
        said = [line.partition(":")[0] for line in result.said()]
        assert [word for word in said if "/" in word] == [
            f"{name}/{file}" for name in (first, second) for file in FILES
        ]
        named = [line.split()[0].rstrip(":") for line in result.answer if line.split()[0].rstrip(":") in pairs]
        assert named == [first, second]
        with pytest.raises(InputError, match=f"files of 2 runs: {first}, {second}; expected"):
            convert(*pairs[first], *pairs[second])


# -- One process on two devices: the step is that of the slowest, and no list is more than both did.


def on_two_devices(folder: Path, until: int, **second: str) -> Path:
    """The second device works from 10 to ``until`` of each step."""
    trace = steps(4)
    for at in range(0, 400, 100):
        trace.run("a", at + 5, at + 10, at + 70)
        trace.run(
            second.get("name", "b"), at + 6, at + 10, at + until, device=1, stream=1, cat=second.get("cat", "kernel")
        )
    return saved(folder / "two.pt.trace.json", json.dumps({"traceEvents": trace.rows}))


def test_shares_are_of_all_devices_in_every_form(tmp_path: Path) -> None:
    path = on_two_devices(tmp_path, 90)
    analysis = analyse([path])
    (section,) = report_of(analysis, analysis.runs).sections
    assert section.steps_ns == (100_000, 100_000)
    assert section.of_whole == "of the steps of 2 devices"
    assert {row.name: section.share(row.ns) for row in section.kernels} == {"a": 0.3, "b": 0.4}
    lines = invoked(path).output.splitlines()
    assert any(line.endswith("% of the steps of 2 devices") for line in lines)
    assert "device      step of device 1, one of 2 (each takes 0.100 ms)" in lines
    (run,) = json.loads(invoked("report", path, "--format", "json").output)["runs"]
    assert {row["name"]: row["percent_of_step"] for row in run["kernels"]} == {"a": 30.0, "b": 40.0}
    assert run["step"]["step_ns"] == 100_000


def test_a_device_that_only_copies_is_not_counted(tmp_path: Path) -> None:
    """It feeds the other one: kernels ran on one GPU, and shares are of its step."""
    analysis = analyse([on_two_devices(tmp_path, 20, name="Memcpy DtoD (Device -> Device)", cat="gpu_memcpy")])
    (section,) = report_of(analysis, analysis.runs).sections
    assert (section.steps_ns, section.of_whole) == ((), "of the step")
    assert "GPUs" not in section.verdict


def test_idle_time_is_of_the_slowest_device(tmp_path: Path) -> None:
    page = invoked("report", on_two_devices(tmp_path, 70), "--format", "html").output
    (rows,) = re.findall(r'<h2 id="idle">.*?</table>', page, re.DOTALL)
    shares = [float(cells[-1]) for row in rows.split("<tr")[2:] if (cells := re.findall(r">(\d+\.\d)</td>", row))]
    assert round(sum(shares)) == 40


@pytest.mark.parametrize(("us", "number"), [(70, 0), (90, 1)])
def test_every_form_names_the_device_whose_step_it_shows(us: int, number: int, tmp_path: Path) -> None:
    path, said = on_two_devices(tmp_path, us), f"device {number}, one of 2 (each takes 0.100 ms)"
    (of_page,) = re.findall(r'<h2 id="where">.*?</h2>', invoked("report", path, "--format", "html").output, re.DOTALL)
    assert said in of_page
    assert f"Where the step goes: {said}" in invoked("report", path, "--format", "markdown").output
    assert f"step of {said}" in invoked(path).output


# -- Calls of several runs of a program in one log, where nothing but their order tells.


def calls(text: str) -> list[Operation]:
    """Capital letters search for the problem that the small ones execute."""
    return [
        made_operation(
            index=place, line=place + 1, end_line=place + 1, source=0, api="Find" if letter.isupper() else "Run",
            primitive="conv", phase="find" if letter.isupper() else "run", problem=letter.lower(),
        )
        for place, letter in enumerate(text)
    ]  # fmt: skip


def test_what_a_log_begins_with_twice_may_be_of_either_run() -> None:
    """Killed while it searched, or in its first iteration: the same calls of the next run are as likely."""
    assert begun_again(calls("ABCABCDabcdabcd")) == frozenset(range(6))
    assert begun_again(calls("ABCDabABCDabcdabcd")) == frozenset(range(12))


def test_iterations_and_layers_alike_are_no_second_run() -> None:
    assert not begun_again(calls("ABCDabcdabcd"))
    assert not begun_again(calls("AAAAAAAaaaa"))
    assert not begun_again(calls("abcdabcd"))
    assert not begun_again([])


# -- Profiles in folders: runs, or ranks of one job? The table of docs/many-runs.md, on PyTorch traces made for this.


LATER_NS = 600_000_000_000


class Told(NamedTuple):
    """The number of runs that each command finds in a folder with two profiles."""

    report: int
    compare: int
    batch: int


def profile(number: int, *, later: bool, ranked: bool) -> bytes:
    """One of two processes: at the same time, or the second ten minutes later; with its rank, or without."""
    events = [one | {"pid": 542 + number} if one["pid"] == 542 else one for one in rows()]
    rank: dict[str, Any] = {"distributedInfo": {"rank": number} if ranked else {}}
    return trace(events, base=BASE_NS + number * (LATER_NS if later else 1000), **rank)


RUNS, RANKS, NAMES = ("run1.json", "run2.json"), ("rank0/a.json", "rank1/a.json"), ("one/a.json", "two/a.json")


@pytest.mark.parametrize(
    ("names", "later", "ranked", "told"),
    [
        (RUNS, False, False, Told(1, 2, 2)),
        (RUNS, True, False, Told(2, 2, 2)),
        (RUNS, False, True, Told(1, 1, 2)),
        (RUNS, True, True, Told(2, 2, 2)),
        (("rank0.json", "rank1.json"), False, False, Told(1, 2, 1)),
        (RANKS, False, False, Told(1, 2, 1)),
        (RANKS, False, True, Told(1, 1, 1)),
        (NAMES, False, False, Told(2, 2, 2)),
        (NAMES, True, False, Told(2, 2, 2)),
        (NAMES, False, True, Told(1, 1, 2)),
        (("0.zip", "1.zip"), False, False, Told(1, 2, 2)),
        (("rank0/run.zip", "rank1/run.zip"), False, False, Told(1, 2, 1)),
        (("one/run.zip", "two/run.zip"), False, False, Told(2, 2, 2)),
    ],
)
def test_profiles_are_runs_or_ranks_by_folder_clock_and_stated_rank(
    names: tuple[str, str], later: bool, ranked: bool, told: Told, tmp_path: Path
) -> None:
    job = tmp_path / "job"
    for number, name in enumerate(names):
        path, data = job / name, profile(number, later=later, ranked=ranked)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("trace.json", data)
        else:
            path.write_bytes(data)
    alone = analyse(job, AnalysisOptions(near=False))
    assert Told(len(analyse(job).runs), len(alone.runs), len(find_runs([str(job)], Notes()))) == told


# -- Streams that take much of a device's time are in sight before any group is opened: the collectives' is one.


def traced(tmp_path: Path, collectives_us: int) -> Trace:
    """Nine kernels of 100 us on stream 7, a collective on stream 9."""
    made: list[Row] = []
    for number, (stream, name, us) in enumerate(
        [*[(7, "work", 100)] * 9, (9, "ncclDevKernel_AllReduce", collectives_us)]
    ):
        made += launched(number, 200 * number, us, name, stream=stream)
    return mio2trace.convert(kineto_file(tmp_path, made, deviceProperties=[{"id": 2, "name": "G"}])).trace


def test_a_row_of_a_rank_shows_its_stream_before_a_viewer_cuts_its_name(tmp_path: Path) -> None:
    """Viewers cut a long name in the middle. The description has the whole name; both forms have the same tracks."""
    made = [
        event
        for number, (stream, name) in enumerate([*[(7, "work")] * 4, (9, "ncclDevKernel_AllReduce")])
        for event in launched(number, 200 * number, 150, name, stream=stream)
    ]
    device = [{"id": 2, "name": "G. Model (X)"}]
    paths = [
        kineto_file(tmp_path, made, f"{rank}.json", deviceProperties=device, distributedInfo={"rank": rank})
        for rank in (0, 1)
    ]
    trace = mio2trace.convert(*paths).trace
    packed = io.BytesIO()
    native.write(trace, packed)
    found = read_native(packed.getvalue(), [process.name for process in trace.processes])
    roots = [one for one in found.descriptors.values() if not one.HasField("parent_uuid") and one.name.startswith("G")]
    assert {one.name for one in roots} == {
        f"GPU 2 of rank {rank} · Stream {number}" for rank in (0, 1) for number in (7, 9)
    }
    assert all(one.description.startswith(f"{one.name}: kernels (G. Model (X)). ") for one in roots)
    names = {process.id: process.name for process in trace.processes}
    assert set(found.picture.tracks) == {(names[track.process], track.name) for track in trace.tracks}


@pytest.mark.parametrize(("us", "names"), [(100, []), (101, ["GPU 2 · Stream 9: kernels (G)"])])
def test_a_stream_with_over_a_tenth_of_the_kernel_time_is_at_the_top(tmp_path: Path, us: int, names: list[str]) -> None:
    trace = traced(tmp_path, us)
    packed = io.BytesIO()
    native.write(trace, packed)
    found = read_native(packed.getvalue())
    roots = {one.uuid: one.name for one in found.descriptors.values() if not one.HasField("parent_uuid")}
    assert [name for name in roots.values() if name.startswith("GPU")] == ["GPU 2 · Stream 7: kernels (G)", *names]
    # a viewer puts a track at the top only if it has another one below it
    parents = {one.parent_uuid for one in found.descriptors.values() if one.HasField("parent_uuid")}
    assert {uuid for uuid, name in roots.items() if name.startswith("GPU")} <= parents
    busy = {one.name for one in trace.events() if isinstance(one, CounterValue)}
    assert ("Stream 9 busy" in busy) is bool(names)
    assert "Device busy" in busy


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (("ddp4_rank0.json.gz", "ddp4_rank1.json.gz"), ("file rank0", "file rank1")),
        (("rank_0.json", "rank_10.json"), ("file rank0", "file rank10")),
        (("job/Rank-0/trace.json", "job/Rank-1/trace.json"), ("file rank0", "file rank1")),
        (("worker0.1623143089861.json", "worker1.1623143566756.json"), ("file worker0", "file worker1")),
        (("m_tp0_pp1.json", "m_tp1_pp1.json"), ("file tp0", "file tp1")),
        (("m_tp0_dp0.json", "m_tp1_dp0.json", "m_tp0_dp1.json"), ("file tp0 dp0", "file tp1 dp0", "file tp0 dp1")),
        (("vllm-prefill.json", "vllm-decode.json"), ("file prefill", "file decode")),
        (("trace_0.json", "trace_1.json"), ("file 0", "file 1")),
        (("alice-node1.json", "bob-node2.json"), ("file node1", "file node2")),
        (("alice.json", "bob.json"), ()),
        (("alice_0.json", "bob_1.json"), ()),
        (("host_3194582.json", "host_3194583.json"), ()),
        (("prank0.json", "prank1x.json"), ()),
        (("rank0_a.json", "rank0_b.json"), ()),
        (("same.json", "same.json"), ()),
        (("", ""), ()),
    ],
)  # fmt: skip
def test_a_process_is_called_by_what_its_file_says_of_the_job(names: tuple[str, ...], labels: tuple[str, ...]) -> None:
    """Words of a fixed list and numbers; no other part of a name gets into a trace."""
    assert tuple(runs._labels_by_file(names)) == labels


def test_stated_ranks_and_process_ids_go_before_the_names_of_files() -> None:
    processes = Process(index=0, pid=7, rank=4), Process(index=0, pid=8, rank=5)
    profiles = [Profile(source=at, records=0, processes=(process,)) for at, process in enumerate(processes)]
    names = {0: "rank0.json", 1: "rank1.json"}

    def labels(of: Sequence[Profile], names: Mapping[int, str]) -> list[str]:
        return [one.process.label for one in runs.labelled(of, names)]

    assert labels(profiles, names) == ["rank 4", "rank 5"]
    unknown = [
        msgspec.structs.replace(one, processes=(msgspec.structs.replace(one.process, rank=None),)) for one in profiles
    ]
    assert labels(unknown, names) == ["file rank0", "file rank1"]
    assert labels(unknown, {0: "t_7.json", 1: "t_8.json"}) == ["pid 7", "pid 8"]
    assert labels(unknown, {}) == ["pid 7", "pid 8"]
