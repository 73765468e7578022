"""Whatever times a profile states: a valid picture, exact, and what cannot be in it is counted."""

from __future__ import annotations

import contextlib
import io
import itertools
import random
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.conversion import Conversion, convert
from mio2trace.draw.containers import packed
from mio2trace.draw.host import HostSide, HostSpan, HostSpans, _one_after_another
from mio2trace.kernels.facts import plain_text
from mio2trace.measures.device_time import Covered
from mio2trace.model.profile import Activity
from mio2trace.model.tables import Activities
from mio2trace.model.tf import TfProfile
from mio2trace.notes import InputError, Notes
from mio2trace.ops import values
from mio2trace.ops.command import parse
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.caffe import nanoseconds
from mio2trace.readers.tf import step_stats
from mio2trace.readers.tf.executions import layer_of
from mio2trace.reports.tfprof import short_name
from mio2trace.source import Source
from mio2trace.trace import Slice
from mio2trace.writers import WRITERS
from tests.commands import invoked, printed
from tests.conftest import REQUIRED
from tests.fuzz import cases, law, looks, numbers
from tests.fuzz.times import altered
from tests.often import saved
from tests.planted.tensorflow import view
from tests.small_runs import Program, as_json, benchmark, stamp
from tests.test_gemm import CLBLAS, gemms, kernel, miog_source, profile, program
from tests.test_ops import entry, ops_of
from tests.test_tfprof import FILES, read_or_refused


def converted(calls: list[dict[str, Any]], folder: Path, log: str = "", **options: Any) -> tuple[Conversion, bytes]:
    files = [saved(folder / "prof.json", as_json(calls))]
    if log:
        files.append(saved(folder / "run.log", log))
    out = io.BytesIO()
    found = convert(*files, output=out, check=True, by_order_alone=True, **options)
    WRITERS[1].write(found.trace, io.BytesIO())
    return found, out.getvalue()


def commands_at(*spans: tuple[int, int]) -> list[dict[str, Any]]:
    """Kernels of one queue that ran at these times."""
    run = Program()
    run.kernel("k", "0x60")
    for start, end in spans:
        run.enqueue("k", "0x60", profiling={"queued": start, "submit": start, "start": start, "end": end})
    return run.calls


def kernels(found: Conversion) -> list[tuple[int, int, int]]:
    return sorted(
        (event.track, event.start_ns, event.dur_ns)
        for event in found.trace.events()
        if isinstance(event, Slice) and event.category == "kernel"
    )


@pytest.mark.parametrize("seed", range(100 if "thorough" in REQUIRED else 40))
def test_altered_times(seed: int, tmp_path: Path) -> None:
    """A run whose times are altered gives a valid trace in both forms, or is refused."""
    chance = Random(seed)
    calls, log = benchmark(
        iterations=chance.randint(1, 3), marks=chance.random() < 0.5, kernels=chance.randint(1, 3)
    )  # fmt: skip
    options = chance.choice(({}, {}, {"host_calls": "all"}, {"tracks": ("kernels", "operations")}, {"begin": "1us"}))
    with contextlib.suppress(InputError):
        converted(altered(calls, chance), tmp_path, chance.choice(("", log)), **options)


def test_no_length_where_another_begins(tmp_path: Path) -> None:
    """A command without length at the start of another is on a track of its own, with its own time. A device whose
    counter stands still fills two tracks, however many commands it ran."""
    spans = (5000, 5000), (5000, 9000), (9000, 9000), (9000, 9500)
    found, _ = converted(commands_at(*spans), tmp_path, host_calls="none")
    tracks = {track.id: track.name for track in found.trace.tracks}
    drawn = [(tracks[track], start, length) for track, start, length in kernels(found)]
    bare = "Commands without length"
    assert drawn == [("Kernels", 0, 4000), ("Kernels", 4000, 500), (bare, 0, 0), (bare, 4000, 0)]
    still = kernels(converted(commands_at(*[(7, 7)] * 50), tmp_path)[0])
    assert (len({track for track, _, _ in still}), len(still)) == (2, 50)


def test_layers_of_one_microsecond(tmp_path: Path) -> None:
    """Layers that begin and end in one microsecond of the host's are drawn beside each other."""
    calls, log = benchmark(iterations=2)
    for call in calls[len(calls) // 2 :]:
        call["timestamp"] = dict.fromkeys(("start", "end"), stamp(2000))
    found, _ = converted(calls, tmp_path, log)
    assert found.metadata["attribution"]["kernels"] == sum("profiling" in call for call in calls)


@given(st.lists(st.tuples(st.integers(-3, 12), st.sampled_from([0, 0, 1, 3])), max_size=20))
def test_lanes_can_be_enclosed(made: list[tuple[int, int]]) -> None:
    """In a lane with room for layers no two commands begin at once, none before the last one ended; none is lost."""
    spans = [(start, start + length) for start, length in made]
    enqueues = [Activity(at, "kernel", "k", start_ns=start, end_ns=end) for at, (start, end) in enumerate(spans)]
    lanes = list(packed(Activities(enqueues), {0: np.arange(len(spans))}))
    assert sorted(position for lane in lanes for position in lane.positions) == list(range(len(spans)))
    for lane in lanes:
        for (begin, end), (start, until) in itertools.pairwise(spans[position] for position in lane.positions):
            assert start >= end
            assert (start == until) if lane.bare else (start > begin)


def test_times_far_from_all_others(tmp_path: Path) -> None:
    """A command whose time no trace can hold beside the others is counted; the others keep their times exactly."""
    start = 1 << 62
    calls = commands_at((start, start + 5), (start + 7, start + 9), (3, 4), (2**63 - 9, 2**63 - 1))
    found, text = converted(calls, tmp_path, host_calls="none")
    assert [(at, length) for _, at, length in kernels(found)] == [(0, 5), (7, 2)]
    assert found.metadata["notes"]["command far in time from all others: left out"] == 2
    assert b'"ts":0.007,"dur":0.002' in text


def test_profiles_of_far_clocks(tmp_path: Path) -> None:
    """Two profiles whose clocks are years apart are drawn from one zero."""
    for number, at in enumerate((10**9, 10**18)):
        (tmp_path / f"{number}.json").write_bytes(as_json(commands_at(*[(at + number, at + 5)] * (2 - number))))
    found = convert(tmp_path / "0.json", tmp_path / "1.json", output=io.BytesIO(), check=True, host_calls="none")
    assert {start for _, start, _ in kernels(found)} == {0}


def test_host_times_of_other_centuries(tmp_path: Path) -> None:
    """A host time before 1970 or far from all others is taken as unknown, and its command is drawn."""
    calls = commands_at((5000, 6000), (7000, 8000), (9000, 9500))
    for call, year in zip([call for call in calls if "profiling" in call], ("0001", "2026", "9999"), strict=True):
        call["timestamp"] = {edge: year + text[4:] for edge, text in call["timestamp"].items()}
    assert len(kernels(converted(calls, tmp_path)[0])) == 3


def test_log_of_another_century(tmp_path: Path) -> None:
    """An iteration that a log alone dates to another century is counted; the others are drawn."""
    lines = [f"I{year}1120 10:00:0{n}.000000  2155 caffe.cpp:465] Iteration: {n} forward-backward time: 1 ms.\n"
             for n, year in enumerate((2018, 2018, 2018, 9999), 1)]  # fmt: skip
    (tmp_path / "run.log").write_text("".join(lines))
    out = io.BytesIO()
    found = convert(tmp_path / "run.log", output=out, check=True)
    WRITERS[1].write(found.trace, io.BytesIO())
    assert found.metadata["notes"]["iteration far in time from all others: left out"] == 1
    assert out.getvalue().count(b'"cat":"log"') == 3


def test_without_length_in_its_layer(tmp_path: Path) -> None:
    """A command without length that shares its start lies in its layer in both forms."""
    calls, log = benchmark(kernels=3)
    commands = [call for call in calls if "profiling" in call]
    for call, other in zip(commands[1::3], commands[::3], strict=True):
        call["profiling"] = dict.fromkeys(call["profiling"], other["profiling"]["start"])
    found, text = converted(calls, tmp_path, log)
    picture = law.drawn(text)
    law.check_rules(picture, "JSON")
    law.check_native(found.trace, picture)
    layers = [event for event in found.trace.events() if isinstance(event, Slice) and event.category == "layer"]
    assert sum(layer.args["kernels"] for layer in layers if "kernels" in layer.args) == len(commands)


def test_spans_may_take_longer_than_any_clock_counts() -> None:
    """In a snapshot that somebody changed."""
    least, most = -(1 << 63), (1 << 63) - 1
    covered = Covered(np.array([least]), np.array([most]))
    assert covered.within(least, most) == most - least
    assert covered.within(0, 5) == 5


def test_no_call_of_the_host_ends_before_it_begins() -> None:
    """The clock may be set back during a call. The axis then puts the call's end before its begin."""
    side = object.__new__(HostSide)
    set_back = SimpleNamespace(all_hosts=lambda ns: np.where(ns < 500, ns, ns - 400))
    side._base = set_back  # type: ignore[assignment]
    side._middle = side._far = 0
    (row,) = side._rows(HostSpans.of([HostSpan(450, 600, "call", "call", {}, None)]))
    assert (row.starts.tolist(), row.ends.tolist()) == ([450], [450])


@given(st.lists(st.tuples(st.integers(-(1 << 62), (1 << 63) - 1), st.integers(0, 1 << 40)), max_size=9))
def test_calls_come_one_after_another_within_63_bits(spans: list[tuple[int, int]]) -> None:
    """Each call is a nanosecond long at least and begins after the earlier call has ended, whatever the clock says."""
    starts = np.array([start for start, _ in spans], np.int64)
    ends = np.array([min(start + length, (1 << 63) - 1) for start, length in spans], np.int64)
    begun, ended = _one_after_another(starts, ends)
    assert all(begin < end for begin, end in zip(begun.tolist(), ended.tolist(), strict=True))
    latest = (1 << 63) - 2
    assert all(after >= min(end, latest) for end, after in zip(ended.tolist(), begun.tolist()[1:], strict=False))


# -- Numbers of hundreds of digits, bytes of another encoding, wherever a text has a number or a word: the law holds.


PIECES = 16 if "thorough" in REQUIRED else 6
MADE = {
    f"{generator(random.Random(0)).kind} {place}": generator for place, generator in enumerate(cases.GENERATORS)
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_numbers_of_any_length_and_letters_of_any_encoding_keep_the_law(name: str) -> None:
    """In each file of a made-up run, at places of every kind; the trace, and a command."""
    chance = random.Random(f"numbers {name}")
    verdicts = set()
    files = MADE[name](chance).files
    for place, file in enumerate(files):
        for data in numbers.changed(file, chance, PIECES // len(files)):
            changed = [*files[:place], data, *files[place + 1 :]]
            verdicts.add(law.judge(changed, 0, chance.choice(law.HOST_CALLS)))
            looks.judge_command(changed, looks.command(chance))
    assert verdicts


@pytest.mark.parametrize("name", ["text", "json", "view"])
def test_tensorflows_texts_with_numbers_of_any_length(name: str) -> None:
    """All that is made of them, too."""
    reader, data = FILES[name]
    chance = random.Random(name)
    found = [read_or_refused(reader, changed) for changed in numbers.changed(data, chance, 100)]
    assert any(found)


@pytest.mark.parametrize("digits", [19, 20, 21, 400, 5000])
def test_a_number_of_more_than_64_bits_is_none_and_counted(digits: int) -> None:
    data = FILES["text"][1].replace(b"output {", b"memory { total_bytes: %s }\n output {" % (b"8" * digits))
    notes = Notes()
    source = Source("-", 0, notes, stdin=io.BytesIO(data))
    (profile,) = step_stats.TEXT.read(source, ReadOptions(), notes)
    assert isinstance(profile, TfProfile)
    held = {memory.requested_bytes for node in profile.nodes for step in node.steps for memory in step.memory}
    lost = sum(note.count for note in notes if note.kind == "number of more than 64 bits: skipped")
    assert (held == {0}, lost > 0) == ((digits > 19), (digits > 19))


@pytest.mark.parametrize(
    "source",
    [b'{"0":"// caf\xe9\\n#define A 1\\n__kernel void f()"}', b"// caf\xe9\\n#define A 1\\n__kernel void f()",
     b"// caf\xe9\n#define A 1\n__kernel void f()", b'{"' + b"[" * 100_000, b'{"0":' + b"[" * 100_000],
    ids=["object", "inside of a string", "plain", "cut", "deep"],
)  # fmt: skip
def test_a_programs_source_may_be_of_any_encoding(source: bytes) -> None:
    text = plain_text(source)
    assert msgspec.json.encode(text)
    assert "\n#define A 1\n" in text or b"#define" not in source


@pytest.mark.parametrize(("text", "expected"), [("999999999999999999", 10**18 - 1), (str(1 << 63), None)])
def test_a_number_that_a_trace_cannot_hold_as_one_is_none(text: str, expected: int | None) -> None:
    """A workspace of 2^63 bytes was text in the trace, where all others are numbers."""
    assert values.number(text) == expected


# -- Numbers of a file: ASCII's digits, and no more of them than a number has.


LONG = "9" * 4301
"""More digits than Python makes a number of."""


@pytest.mark.parametrize("digits", [LONG, "²", "٣", "9" * 19])
def test_build_options_and_sources_with_no_numbers_tell_no_gemm(digits: str) -> None:
    """A kernel is what it is without them."""
    options = f"-DM={digits} -DN=50 -DK=147 -DM0=4 -DN0=4 -DK0=4"
    main = kernel("gemm_mm_reshaped_lhs_nt_rhs_t", 1, 2, grid=(13, 13, 1), program=0)
    assert gemms(profile([main], [program(0, options=options)])) == {}
    main = kernel("miog_alphaab", grid=(4096, 1, 1), program=0)
    source = miog_source(512, 288, 512, "miog_alphaab")
    assert gemms(profile([main], [program(0, source)])) != {}
    assert gemms(profile([main], [program(0, source.replace("512", digits))])) == {}


@pytest.mark.parametrize("digits", ["0", "000", LONG, "٣"])
def test_a_tile_of_no_size_tells_no_gemm(digits: str) -> None:
    """Nothing is divided by the nought of a kernel's name."""
    arguments = (*CLBLAS[:5], 130, 100, *CLBLAS[7:])
    assert gemms(profile([kernel("sgemm_Col_NN_B0_MX064_NX064_KX08", *arguments)])) != {}
    assert gemms(profile([kernel(f"sgemm_Col_NN_B0_MX{digits}_NX064_KX08", *arguments)])) == {}
    assert gemms(profile([kernel(f"sgemm_Col_NN_B0_MX064_NX{digits}_KX08", *arguments)])) == {}


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("both", [0, 1])
def test_the_work_of_any_number_of_layers_is_a_product(skip: int, both: int) -> None:
    """As many layers as a number has room for take no time, and three are counted as before."""

    def flop(layers: int) -> int | None:
        problem = parse(f"rnn -n 4,4 -W 30 -H 256 -l {layers} -b 1 -m lstm -p {skip} -r {both} -q 0 -k 2 -F 1 -t 1")
        return problem.flop() if problem is not None else None

    each = [256 + (0 if skip else 30), *[256 + 256 * (1 + both)] * 2]
    assert flop(3) == sum(2 * 8 * 4 * 256 * one * (1 + both) for one in each)
    many = 10**18 - 1
    assert skip or both or flop(many) == 2 * 8 * 4 * 256 * (30 + (many - 1) * 256 + many * 256)
    assert flop(-3) is None


def test_a_tensor_of_thousands_of_dimensions_is_none() -> None:
    """Its elements would be a number that nobody can print."""
    for lengths in ("{" + ", ".join(["9" * 18] * 5000) + "}, ", ", ".join(["9" * 18] * 5000)):
        log = entry("ActivationForward", activDesc="miopenActivationRELU, 1, 1, 1,", xDesc=lengths)
        for command in ("ops", "driver"):
            assert invoked(command, "-", stdin=log).exit_code == 0
        assert [one.input for one in ops_of(log)] == [()]


@pytest.mark.parametrize(("tower", "prefix"), [("0", ""), ("00", ""), ("1", "tower_1/"), ("07", "tower_7/"),
                                               (LONG, f"tower_{LONG}/")])  # fmt: skip
def test_a_tower_of_any_number_is_named_by_it(tower: str, prefix: str) -> None:
    """The first one is left out."""
    assert layer_of(f"v/tower_{tower}/cg/conv0/conv2d/Conv2D") == (f"{prefix}conv0", "forward")
    assert short_name(f"v/tower_{tower}/cg/conv0/conv2d/Conv2D") == (f"{prefix}conv0", "Conv2D")


@pytest.mark.parametrize("text", ["٣", "1_0", "²", "１", LONG, "-1", "nan", "inf", ""])
def test_what_is_no_printed_time_is_none(text: str) -> None:
    assert (nanoseconds("1.5e+01"), nanoseconds(text)) == (15_000_000, None)


@pytest.mark.parametrize("digits", [LONG, "²", "٣"])
def test_a_view_with_a_step_that_is_none_is_read(digits: str, tmp_path: Path) -> None:
    path = tmp_path / "view.txt"
    path.write_bytes(f"-step {digits}\n".encode() + view("x"))
    assert "conv0" in printed("tfprof", path, "--show", ".*")


def test_a_note_that_counts_thousands_says_so() -> None:
    notes = Notes()
    notes.add("row that is cut", "a.log", count=12_345)
    assert [str(note) for note in notes] == ["12,345 x row that is cut (a.log)"]
