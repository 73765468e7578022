"""A log of another run: what it explains of the profile by chance is not believed."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

import mio2trace.analysis
from benchmarks.damage import loaded, measured
from benchmarks.damage_score import tallies
from benchmarks.damages import processes
from benchmarks.damages.processes import APART
from benchmarks.damages.sets import HIDDEN, NO_FRAMEWORK, TWIN
from mio2trace.align import Alignment, align
from mio2trace.align.clocks.relate import Window, _told
from mio2trace.align.links import Links
from mio2trace.align.rates import CONTRARY, EXPLAINED
from mio2trace.align.same_run import UNLIKELY, are_sizes_others, is_explained
from mio2trace.analysis import AnalysisOptions, analyse
from mio2trace.conversion import convert
from mio2trace.evidence import BUFFERS, NAME_AND_SIZES, Evidence
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Profile
from mio2trace.notes import NOT_JOINED, NOT_USED, InputError, Notes
from tests.commands import invoked
from tests.conftest import ROOT, shared_folder
from tests.kineto_files import kineto_file
from tests.records import enqueued, made_operation
from tests.small_runs import Program, as_json

COUNT = 100
TRACES = ROOT / "traces"


@pytest.fixture
def alignment(tmp_path: Path) -> Alignment:
    """A profile of kernels of MIOpen's, and as many that are nobody's."""
    program = Program()
    program.program()
    for number, name in enumerate(("MIOpenConvUni", "own")):
        program.kernel(name, f"0x{60 + number}")
        for _ in range(COUNT):
            program.enqueue(name, f"0x{60 + number}")
    (tmp_path / "prof.json").write_bytes(as_json(program.calls))
    return analyse([tmp_path / "prof.json"]).run.alignments[0]


@pytest.mark.parametrize(
    ("linked", "confidence", "by", "explained"),
    [
        (COUNT, 1.0, NAME_AND_SIZES, True),
        (EXPLAINED * COUNT, 1.0, NAME_AND_SIZES, True),
        (EXPLAINED * COUNT - 1, 1.0, NAME_AND_SIZES, False),
        (2 * EXPLAINED * COUNT - 1, 0.5, NAME_AND_SIZES, False),
        (1, 1.0, BUFFERS, True),
        (0, 1.0, NAME_AND_SIZES, True),
    ],
)
def test_a_log_that_explains_few_of_the_librarys_kernels_is_not_the_profiles(
    alignment: Alignment, linked: float, confidence: float, by: Evidence, explained: bool
) -> None:
    """By what its links are expected to be right; a program's own kernels do not count, buffers end the question."""
    links = Links(alignment.profile.activities)
    links.give_operation(range(round(linked)), 0, by, confidence=confidence)
    assert is_explained(alignment.profile, links) is explained


@pytest.mark.shared
def test_nothing_of_another_programs_log_is_believed(tmp_path: Path) -> None:
    """Only MIOpen wrote, and pointers are hidden: a network's profile, another network's log."""
    runs = loaded(shared_folder())[NO_FRAMEWORK]
    run = processes.another_log(runs["m121-resnet-train-entries-cmd"], runs["m290-alexnet-infer-10it"], Random(1))
    operations, _ = tallies(run, analyse(run.write(tmp_path)))
    assert operations.believed == 0


def kernel_trace(folder: Path) -> Path:
    path = folder / "1_kernel_trace.csv"
    path.write_text(
        '"Kind","Agent_Id","Queue_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
        '"KERNEL_DISPATCH",1,1,1,"own",1,1000,2000\n'
    )
    return path


def kineto_trace(folder: Path) -> Path:
    return kineto_file(folder, name="trace.json")


def rocpd(folder: Path) -> Path:
    path = folder / "results.db"
    path.write_bytes(gzip.decompress((TRACES / "lenet-rocpd/results.db.gz").read_bytes()))
    return path


OF_OTHERS = {
    "a net's log": TRACES / "alexnet-b1-train/run.log",
    "a net's log with MIOpen's calls": TRACES / "alexnet-b1-miopen29/run.log.gz",
}


@pytest.mark.parametrize("log", OF_OTHERS)
@pytest.mark.parametrize("made", [kernel_trace, kineto_trace, rocpd])
def test_a_log_of_which_nothing_fits_is_not_used(made: Callable[[Path], Path], log: str, tmp_path: Path) -> None:
    """Whatever format the profile has: the log is refused, or named as unused, and nothing of it is in the run."""
    profile, notes = made(tmp_path), Notes()
    refused = ""
    try:
        analysis = analyse([profile, OF_OTHERS[log]], notes=notes)
    except InputError as error:
        refused = str(error)
    if refused:
        assert "not of one run" in refused
        return
    assert [str(note) for note in notes.problems if note.kind == NOT_USED] == [f"{NOT_USED} ({OF_OTHERS[log].name})"]
    alone = analyse(profile)
    assert (analysis.run.logs, analysis.run.libraries, analysis.run.operations) == ((), (), ())
    assert analysis.run.alignments[0].net == alone.run.alignments[0].net
    assert list(analysis.run.alignments[0].links.layer_by) == list(alone.run.alignments[0].links.layer_by)
    assert [file.name for file in analysis.run.inputs] == [profile.name]
    assert [run.inputs[0].name for run in analysis.runs[1:]] == [OF_OTHERS[log].name]


@pytest.mark.parametrize(
    "words",
    ["convert -o OUT", "report", "layers", "ops", "driver", "kernels", "inspect", "bundle -o OUT", "ranks", "query"],
)
def test_every_command_that_joins_says_that_a_log_is_not_used(words: str, tmp_path: Path) -> None:
    """Whether it goes on without the log or refuses the files."""
    profile, log = rocpd(tmp_path), OF_OTHERS["a net's log with MIOpen's calls"]
    command, *options = words.replace("OUT", str(tmp_path / ("out.zip" if "bundle" in words else "out.json"))).split()
    options += ["slowest kernels"] if command == "query" else []
    done = invoked(command, log, profile, *options)
    assert done.exit_code in (0, 1)
    assert (f"{NOT_USED} (run.log.gz)" in done.stderr) is (command != "inspect")  # which joins nothing


def test_a_join_that_fails_leaves_both_files_side_by_side(
    faults_are_seen: Callable[[Exception], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A fault of the program: one line names the log and the fault, and the profile is as without the log."""
    monkeypatch.setattr(mio2trace.analysis, "_place", faults_are_seen)
    profile, log = rocpd(tmp_path), TRACES / "lenet-rocpd/run.log.gz"
    alone = convert(profile)

    def faulty(profile: Profile, logs: Sequence[FrameworkLog], *rest: Any, **options: Any) -> Alignment:
        if logs or options["operations"]:
            rest[0].add("found before the fault")
            raise IndexError("list index out of range")
        return align(profile, logs, *rest, **options)

    monkeypatch.setattr(mio2trace.analysis, "align", faulty)
    result = convert(profile, log)
    told = [str(note) for note in result.notes.problems if "not used" in note.kind or "before" in note.kind]
    assert len(told) == 1
    assert told[0].startswith(f"{NOT_JOINED} (run.log.gz: IndexError at tests/test_not_this_log.py:")
    assert result.metadata["attribution"] == alone.metadata["attribution"]


@pytest.mark.shared
def test_among_another_processs_calls_no_link_by_names_is_sure_though_stamps_bound_it() -> None:
    """Two training runs print into one file, nothing but stamps and sizes tells their calls apart."""
    case = ("another's lines between, without ids", "m290-resnet-train-entries-cmd", HIDDEN, 0)
    operations = measured(shared_folder(), case).operations
    assert operations.right > 0.85 * operations.kernels
    assert operations.wrong_and_sure == 0
    assert operations.bins[-1][0] < 0.25 * operations.links  # one call alone was at that time


@pytest.mark.parametrize(
    ("sizes", "grid", "others"),
    [
        ((1, 8, 6, 6), 72, False),
        ((1, 8, 6, 6), 256, False),  # a whole work-group
        ((4, 8, 6, 6), 288, False),
        ((4, 8, 6, 6), 512, False),
        ((8, 8, 6, 6), 288, True),
        ((4, 8, 6, 6), 576, False),  # rows of 6 elements that are not packed
        ((2, 8, 6, 6), 1024, True),
        ((1, 3, 5, 5), 75, False),
    ],
)
def test_activations_have_a_work_item_for_four_elements(sizes: tuple[int, ...], grid: int, others: bool) -> None:
    """Two or one of tensors that are no multiple of it; work-groups may be filled up."""
    activity = enqueued(0, "kernel", "MIOpenNeuronFwd", grid=(grid, 1, 1), workgroup=(256, 1, 1))
    own = made_operation(index=0, source=0, line=1, end_line=1, api="", primitive="activ", input=sizes)
    links = Links([activity], [own])
    links.give_operation([0], 0, NAME_AND_SIZES)
    assert are_sizes_others(links) is others


# -- Whether a log is of the run that was profiled, where no clock of the profile's has a date.


NOTHING_SHOWS = "nothing in these files shows that log and profile are of one run: the links are right only if they are"
RHYTHM = "log that is probably of another run, links have low confidence: its stamps do not keep time with the profile"
BOTH = f"{RHYTHM}, and its lines are of threads that the profile does not have"
THREADS = (
    "log that is probably of another run, links have low confidence:"
    " its lines are of threads that the profile does not have"
)
STAMP = re.compile(rb"(?m)^(I1121 )(\d\d):(\d\d):(\d\d\.\d{6})( 43457)")
ABOUT = re.compile(r"of another run|of one run")


def joined(change: Callable[[bytes], bytes], folder: Path) -> tuple[Alignment, list[str]]:
    """A training run under rocprofv3, whose clock knows no date, without MIOpen's ranges; its log changed."""
    made = TRACES / "lenet-rocpd"
    (folder / "results.db").write_bytes(gzip.decompress((made / "results.db.gz").read_bytes()))
    (folder / "run.log").write_bytes(change(gzip.decompress((made / "run.log.gz").read_bytes())))
    without = AnalysisOptions(without=frozenset(("range", "correlation")))
    analysis = analyse([folder / "run.log", folder / "results.db"], without)
    (alignment,) = (alignment for run in analysis.runs for alignment in run.alignments)
    return alignment, [note.kind for note in analysis.notes if ABOUT.search(note.kind)]


def with_stamps(change: Callable[[float, int], float]) -> Callable[[bytes], bytes]:
    """Each stamp, in seconds of its day, as ``change(seconds, number of the line)`` has it."""

    def changed(log: bytes) -> bytes:
        numbers = count()

        def stamp(match: re.Match[bytes]) -> bytes:
            seconds = change(int(match[2]) * 3600 + int(match[3]) * 60 + float(match[4]), next(numbers))
            text = f"{seconds // 3600:02.0f}:{seconds // 60 % 60:02.0f}:{seconds % 60:09.6f}"
            return match[1] + text.encode() + match[5]

        return STAMP.sub(stamp, log)

    return changed


def confidences(*files: Path) -> list[float]:
    """Return the confidence of each link to an operation."""
    (alignment,) = (one for run in analyse(files).runs for one in run.alignments)
    links = alignment.links
    return [links.operation_confidence.get(position, 1.0) for position, word in enumerate(links.operation_by) if word]


def with_ids(log: bytes) -> bytes:
    return STAMP.sub(rb"\g<1>\g<2>:\g<3>:\g<4> 43999", log)


def without_ids(log: bytes) -> bytes:
    return re.sub(rb"(?m)^[IW]\d{4} .*\n", b"", log)


def otherwise(seconds: float, number: int) -> float:
    """Every second line comes 3 ms later than it did: no offset, and no rate, undoes that."""
    return seconds + 0.003 * (number % 2)


@pytest.mark.parametrize(
    "change",
    [
        bytes,
        with_stamps(lambda seconds, number: seconds + 12_345.678),
        with_stamps(lambda seconds, number: seconds + 3600 * (number > 12)),
    ],
    ids=["as it is", "a clock that is hours off", "a clock that was set by an hour"],
)
def test_a_log_of_the_profiles_process_is_its_own(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """Its ids are those of the profile's threads, so links are sure and there is no note."""
    alignment, said = joined(change, tmp_path)
    assert said == []
    assert sum(map(bool, alignment.links.operation_by)) > len(alignment.links.operation_unsure) + 20


@pytest.mark.parametrize(
    ("change", "reason"),
    [(with_stamps(otherwise), RHYTHM), (with_ids, THREADS), (lambda log: with_ids(with_stamps(otherwise)(log)), BOTH)],
    ids=["another rhythm", "other ids", "both"],
)
def test_a_contradicted_log_is_not_believed(change: Callable[[bytes], bytes], reason: str, tmp_path: Path) -> None:
    """Another run of the same program has other times, other threads, or both.

    If one of the two differs, each link has a confidence below 0.5. If both differ, none has more than 0.05.
    """
    alignment, said = joined(change, tmp_path)
    links = alignment.links
    linked = [position for position, word in enumerate(links.operation_by) if word]
    in_layers = [position for position, word in enumerate(links.layer_by) if word]
    assert said == [reason]
    assert len(linked) > 20
    most = CONTRARY if reason == BOTH else UNLIKELY
    assert max(links.operation_confidence[position] for position in linked) <= most
    assert max((links.layer_confidence[position] for position in in_layers), default=0) <= most


def test_where_nothing_tells_that_is_said_once(tmp_path: Path) -> None:
    """Neither ids nor stamps: links hold if the files are of one run."""
    alignment, said = joined(without_ids, tmp_path)
    assert said == [NOTHING_SHOWS]
    assert len(alignment.links.operation_unsure) < sum(map(bool, alignment.links.operation_by))


def test_what_ranges_state_stands_beside_any_log(tmp_path: Path) -> None:
    """The profile's own ranges name the calls: another log's doubts do not reach them."""
    made = TRACES / "lenet-rocpd"
    (tmp_path / "run.log").write_bytes(with_ids(gzip.decompress((made / "run.log.gz").read_bytes())))
    analysis = analyse([tmp_path / "run.log", made / "results.db.gz"])
    (alignment,) = (alignment for run in analysis.runs for alignment in run.alignments)
    stated = [position for position, word in enumerate(alignment.links.operation_by) if word == "range"]
    assert len(stated) > 20
    assert alignment.links.operation_unsure.isdisjoint(stated)


def windows_of(rng: Random, *, another: bool) -> list[Window]:
    """Return the windows of calls whose lines were printed at once, in this run or in another run of the program."""
    told, at, ahead = [], 0, 0.0
    for _ in range(rng.randint(6, 12)):
        took, stretch = rng.uniform(2e7, 2e8), rng.uniform(*APART) if another else 1.0
        low, ahead = ahead - rng.uniform(0, 2e7), ahead + took * (stretch - 1)
        told.append(Window(at, low, ahead + rng.uniform(1e5, 1.8e5), took))
        at += int(took)
    return told


def test_lines_right_behind_their_calls_tell_the_run() -> None:
    """Of 300 short runs whose stamps alone bound next to nothing, and of 3000 others of their programs."""
    own = [_told(windows_of(Random(seed), another=False)) for seed in range(300)]
    assert False not in own
    assert own.count(True) >= 290
    assert not any(_told(windows_of(Random(seed), another=True)) for seed in range(3000))


@pytest.mark.shared
@pytest.mark.parametrize("row", ["MIOpen's lines in blocks", "framework's lines in blocks"])
@pytest.mark.parametrize("name", ["run.rank0-rocpd", "run-rocpd"])
def test_stamps_of_a_stream_that_came_in_blocks_say_nothing_of_the_run(row: str, name: str) -> None:
    """Its calls took longer than passed between the lines around them: in no run did they."""
    layers = measured(shared_folder(), (row, f"twin-resnet-immediate-2ranks-{name}", TWIN, 0)).layers
    assert layers.links == 0 or layers.said >= 0.9 * layers.links


@pytest.mark.shared
@pytest.mark.parametrize(("log", "believed"), [("run.rank0.log", True), ("run.rank1.log", False)])
def test_another_ranks_log_is_told_by_its_times(log: str, believed: bool, tmp_path: Path) -> None:
    """Two ranks launch the same; the log's name says nothing, and its ids are cut off."""
    folder = shared_folder() / "samples" / "rocm-twins" / "resnet-immediate-2ranks"
    text = (folder / log).read_bytes()
    (tmp_path / "run.log").write_bytes(re.sub(rb"(?m)^([IW]\d{4} [\d:.]+) +\d+", rb"\g<1> 0", text))
    sure = [said >= 0.5 for said in confidences(tmp_path / "run.log", folder / "rocpd" / "42730_results.db.gz")]
    assert len(sure) > 60
    assert all(sure) if believed else not any(sure)


@pytest.mark.shared
def test_the_log_of_another_net_is_not_believed(tmp_path: Path) -> None:
    """Two trainings of LeNet by two versions of the library."""
    twins = shared_folder() / "samples" / "rocm-twins"
    log = twins / "lenet-train-own-layers" / "run.hip.log"
    profile = twins / "lenet-cmdonly-kernel-trace" / "rocpd" / "41242_results.db.gz"
    assert max(confidences(log, profile)) < 0.5
