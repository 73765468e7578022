"""Whether a log is of the run that was profiled, where no clock of the profile's has a date."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

import pytest

from benchmarks.damage import measured
from benchmarks.damages.processes import APART
from benchmarks.damages.sets import TWIN
from mio2trace.align import Alignment
from mio2trace.align.clocks.relate import Window, _told
from mio2trace.align.rates import CONTRARY
from mio2trace.align.same_run import UNLIKELY
from mio2trace.analysis import AnalysisOptions, analyse
from tests.conftest import shared_folder

TRACES = Path(__file__).parent.parent / "traces"
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
    """Of the links to operations."""
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
    """Its ids are those of the profile's threads: links are sure, and nothing is said."""
    alignment, said = joined(change, tmp_path)
    assert said == []
    assert sum(map(bool, alignment.links.operation_by)) > len(alignment.links.operation_unsure) + 20


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_stamps(otherwise), RHYTHM),
        (with_ids, THREADS),
        (lambda log: with_ids(with_stamps(otherwise)(log)), BOTH),
    ],
    ids=["another rhythm", "other ids", "both"],
)
def test_a_log_that_something_contradicts_is_not_believed(
    change: Callable[[bytes], bytes], reason: str, tmp_path: Path
) -> None:
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
    """What calls tell between which lines were printed at once, of this run or of another one of the program."""
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
