"""Real files of all profilers: rows equal those of an independent reader, and all forms of a run have its truth."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

import pytest

from mio2trace.align import NONE, Alignment, Links
from mio2trace.analysis import AnalysisOptions, analyse
from mio2trace.model.profile import Call
from mio2trace.notes import Notes
from mio2trace.readers.base import Reader
from mio2trace.readers.rocm import rocpd, rpd, v1, v3_csv, v3_json
from tests.conftest import shared_folder
from tests.headlines import PATTERNS
from tests.often import present
from tests.raw_profiles import Kineto, Row, load
from tests.rocm_files import activities, read, samples, truth

FILES = sorted(
    str(path.relative_to(samples()))
    for pattern in PATTERNS
    for path in samples().glob(pattern)
    if not path.match("rocm/graphs/*") and not path.match("*_trace_truncated.csv")  # large; its last line is none
)
LARGE = [pytest.mark.thorough]
LARGEST = {name for name in FILES if (samples() / name).stat().st_size > 700_000}
TWINS = (
    "alexnet-10it-graph", "alexnet-level6-none", "lenet-cmdonly-kernel-trace", "lenet-train-own-layers",
    "resnet-immediate-2ranks", "resnet-train-miopen-2threads",
)  # fmt: skip
SAME_IDS: dict[str, Reader] = {
    "rocpd/[0-9]*.db.gz": rocpd,
    "rocprofv3-csv/*_kernel_trace.csv": v3_csv,
    "rocprofv3-json/*.json.gz": v3_json,
}
OTHER_IDS: dict[str, tuple[Reader, str]] = {
    "rocprof-v1/**/results.csv": (v1.TABLE, "v1"),
    "rocprof-v1/**/results.json.gz": (v1.JSON, ""),
    "rocprof-v1/**/results.db.gz": (v1.DATABASE, ""),
    "rpd/*.rpd.gz": (rpd.DATABASE, "rpd"),
}
"""With the name that truth has for the number of a kernel."""


@pytest.mark.shared
@pytest.mark.parametrize("name", [pytest.param(name, marks=LARGE * (name in LARGEST)) for name in FILES])
def test_each_row_is_read_as_the_file_states_it(name: str) -> None:
    """Kernels and copies with the calls that made them, all calls, all ranges: once, exact to the nanosecond."""
    raw, notes = load(samples() / name), Notes()
    profiles = read(samples() / name, None, notes, every_call=True)
    zero = raw.text.get("baseTimeNanoseconds", 0) if isinstance(raw, Kineto) else 0
    calls = raw.call_of()

    def times(row: Row | None) -> tuple[int, int] | None:
        return None if row is None else (zero + row.start, zero + row.end)

    def of_call(call: Call | None) -> tuple[int | None, int | None] | None:
        return None if call is None or call.start_ns is None else (call.start_ns, call.end_ns)

    commands = [activity for profile in profiles for activity in profile.activities]
    assert Counter((a.kind == "kernel", (a.start_ns, a.end_ns), of_call(a.call)) for a in commands) == Counter(
        (row.kind == "kernel", times(row), times(calls.get(row.link)))
        for row in raw.rows
        if row.kind in ("kernel", "copy")
    )
    made = {id(call): call for profile in profiles for call in profile.other_calls}
    made |= {id(a.call): a.call for a in commands if a.call is not None and a.call.start_ns is not None}
    assert Counter((call.name, of_call(call)) for call in made.values()) == Counter(
        (row.name, times(row)) for row in raw.rows if row.kind == "call"
    )
    ranges = [one for profile in profiles for one in profile.ranges if one.kind in ("range", "annotation")]
    assert Counter((one.start_ns, one.end_ns) for one in ranges) == Counter(
        times(row)
        for row in raw.rows
        if row.kind == "range" and row.start < row.end  # the others are marks
    )
    if isinstance(raw, Kineto):
        lost = 757 if "resnet_train_ddp" in name else 0
        assert [note.count for note in notes if "launch was not recorded" in note.kind] == [lost] * bool(lost)
    assert not notes.problems or "rocprofv3_doc_" in name  # whose ranges are cut off


def kernels(twin: str, pattern: str, reader: Reader) -> list[Any]:
    """Return, for each kernel, all that a form may state; first its start and end."""
    return sorted(
        (
            a.start_ns, a.end_ns, a.correlation, a.number, a.name, a.grid, a.workgroup, profile.threads[a.thread].tid,
            a.call and (a.call.name, a.call.start_ns or 0, a.call.end_ns or 0), a.resources,
        )
        for path in sorted((samples() / "rocm-twins" / twin).glob(pattern))
        for profile in read(path, reader)
        for a in activities([profile])
    )  # fmt: skip


@pytest.mark.shared
def test_all_forms_have_the_texts_of_ranges() -> None:
    """MIOpen's own hold a whole call with quotes and commas; in JSON each kernel is in that of its launch."""
    folder = samples() / "rocm-twins" / "resnet-train-miopen-2threads"
    found = []
    for pattern, reader in {**SAME_IDS, "rpd/*.rpd.gz": rpd.DATABASE}.items():
        (profile,) = read(next(folder.glob(pattern)), reader)
        found.append(Counter((one.text, one.start_ns, one.end_ns) for one in profile.ranges))
        assert len({one.thread for one in profile.ranges}) == 2
        for activity in activities([profile]) if reader is v3_json else ():
            opened = profile.ranges[present(activity.range)]
            assert opened.thread == activity.thread
            assert opened.start_ns <= (present(activity.call).start_ns or 0) <= opened.end_ns
            assert opened.text.startswith("s_api = ")
    assert found[1:] == found[:-1]
    assert any('"convolution, 1x1" = convolution, 1x1' in text for text, _, _ in found[0])


@pytest.mark.shared
@pytest.mark.parametrize("twin", TWINS)
def test_all_forms_of_a_run_tell_its_truth(twin: str) -> None:
    """Those of rocprofv3 the same of each kernel; those of older tools its times, its call and their own number."""
    first, *others = (kernels(twin, pattern, reader) for pattern, reader in SAME_IDS.items())
    assert others == [first, first]
    rows = truth(twin)
    named = sorted(
        (row["start"], row["end"], row["correlation_id"], row["dispatch_id"], row["name"].removesuffix(".kd"))
        for row in rows
    )
    assert [row[:5] for row in first] == named
    calls = {row[:2]: row[8] for row in first}
    for pattern, (reader, number) in OTHER_IDS.items():
        found = kernels(twin, pattern, reader)
        assert found or not sorted((samples() / "rocm-twins" / twin).glob(pattern)), pattern
        if reader is v1.TABLE:
            assert {row[:2] for row in found} in (set(), set(calls))
        else:
            assert {row[:2]: row[8] for row in found}.items() <= calls.items(), pattern
        if number:
            numbers = {(row["start"], row["end"]): row[number] for row in rows if number in row}
            assert [row[3] for row in found] == [numbers[row[:2]] for row in found]


@pytest.mark.shared
@pytest.mark.parametrize(
    "path", sorted(samples().glob("rocm-twins/*/kineto/*.json.gz")), ids=lambda path: path.parts[-3]
)
def test_kernels_of_a_twin_have_their_true_times_on_the_unix_clock(path: Any) -> None:
    """Truth tells them in ns of another clock, and how far that one is from Unix time."""
    told = json.loads((path.parents[1] / "truth.json").read_bytes())
    rank = int(path.name[4])
    offset = told["clock"]["unix_minus_profile_ns"]
    expected = Counter(
        (kernel["start"] + offset, kernel["end"] + offset)
        for kernel in told["kernels"]
        if kernel.get("kineto") is not None and kernel["rank"] == rank
    )
    (profile,) = read(path)
    assert Counter((a.start_ns, a.end_ns) for a in activities([profile])) == expected
    assert expected
    assert [clock.kind for clock in profile.clocks] == ["unix"]
    assert [process.pid for process in profile.processes] == [told["processes"][rank]["pid"]]


# -- Runs played as ROCm's tools would have recorded them, with truth: links by what the profile itself states.


pytestmark = pytest.mark.shared


class Twin(NamedTuple):
    alignments: list[Alignment]
    truth: dict[str, Any]

    def kernels(self) -> list[tuple[Links, int, Any, dict[str, Any]]]:
        """(links, position, operation, truth) of each kernel; all are there."""
        by_key = {(kernel["start"], kernel["dispatch_id"]): kernel for kernel in self.truth["kernels"]}
        found = []
        for links in (alignment.links for alignment in self.alignments):
            calls: dict[int, Any] = {one.index: one for one in links.operations}
            found += [
                (links, position, calls.get(links.operation_of[position]), by_key[activity.start_ns, activity.number])
                for position, activity in enumerate(links.activities)
                if activity.kind == "kernel"
            ]
        assert found
        return found


def twin(name: str, *files: str) -> Twin:
    folder = shared_folder() / "samples" / "rocm-twins" / name
    paths = [path for pattern in files for path in sorted(folder.glob(pattern))]
    analysis = analyse(paths)
    alignments = [alignment for run in analysis.runs for alignment in run.alignments]
    return Twin(alignments, json.loads((folder / "truth.json").read_bytes()))


@pytest.mark.parametrize("log", ["", "run.log", "run.hip.log"])
@pytest.mark.parametrize("name", ["lenet-train-own-layers", "resnet-train-miopen-2threads", "alexnet-10it-graph"])
def test_with_the_librarys_ranges_every_kernel_is_in_its_true_call(name: str, log: str) -> None:
    """By `range`, and sure; the application's own kernels and those that a graph replays are in none."""
    found = twin(name, "rocpd/*_results.db.gz", *([log] if log else []))
    by = set()
    for links, position, operation, true in found.kernels():
        if true["op"] is None or true["graph"]:
            assert operation is None
            continue
        assert operation.api == found.truth["operations"][true["op"]]["name"]
        if log and operation.line:
            assert operation.line == (true["log_line"] or {})[log]
        assert position not in links.operation_unsure
        by.add(links.operation_by[position])
    assert by == {"range"}


def test_ranges_of_the_framework_are_layers() -> None:
    """Every kernel in its true layer, direction and iteration; none of them in two, set-up in none."""
    found = twin("lenet-train-own-layers", "rocpd/*.db.gz")
    for links, position, _, true in found.kernels():
        layer = None if true["layer"] is None else found.truth["layers"][true["layer"]]
        if layer is None or layer["phase"] == "setup":
            assert links.run_of[position] == NONE
            continue
        made = links.runs[links.run_of[position]]
        assert (made.layer, made.direction or "update") == (layer["layer"], layer["phase"])
        assert links.passes[made.pass_].iteration == layer["iteration"] + 1
        assert (links.layer_by[position], position in links.layer_unsure) == ("range", False)


SETS = {
    "resnet-train-miopen-2threads": ("run.hip.log",),
    "alexnet-level6-none": ("run.log", "run.hip.log"),
    "lenet-cmdonly-kernel-trace": ("run.log", "run.hip.log"),
    "lenet-train-own-layers": ("run.log", "run.hip.log"),
    "resnet-immediate-2ranks": ("run.log",),
}
FORMS = ("rocpd/*_results.db.gz", "rocprof-v1/results.csv", "rocprof-v1/results.db.gz")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "log"), [(name, log) for name, logs in SETS.items() for log in logs])
def test_without_ranges_kernels_are_in_their_true_calls_or_in_doubt(name: str, log: str, form: str) -> None:
    """By the log and the profile's order, names and sizes: at least 97 % right, one in a thousand wrong and sure."""
    folder = shared_folder() / "samples" / "rocm-twins" / name
    profiles = sorted(folder.glob(form))
    if not profiles:
        pytest.skip("the set has no such file")
    analysis = analyse([*profiles, folder / log], AnalysisOptions(without=frozenset(("range", "correlation"))))
    told = json.loads((folder / "truth.json").read_bytes())
    by_start = {kernel["start"]: kernel for kernel in told["kernels"]}
    kernels = right = wrong_and_sure = 0
    for links in (alignment.links for run in analysis.runs for alignment in run.alignments):
        calls: dict[int, Any] = {one.index: one for one in links.operations}
        for position, activity in enumerate(links.activities):
            if activity.kind != "kernel":
                continue
            true = by_start[activity.start_ns]
            call = told["operations"][true["op"]] if true["op"] is not None else {}
            lines = {(line or {}).get(log) for line in (true["log_line"], call.get("cmd_line"))} - {None}
            operation = calls.get(links.operation_of[position])
            kernels += 1
            if operation is None or operation.line in lines:
                right += operation is not None or not lines
            else:
                wrong_and_sure += position not in links.operation_unsure
    assert right >= 0.97 * kernels > 0
    assert wrong_and_sure <= 0.001 * kernels
