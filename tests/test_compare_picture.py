"""Two runs in one trace: iterations begin together, no time is altered, what is matched tells its ratio."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from mio2trace.align import align
from mio2trace.analysis import Run
from mio2trace.comparing import Comparison, Side
from mio2trace.comparing.picture import MOST_ITERATIONS, picture
from mio2trace.comparing.record import collect
from mio2trace.comparing.sides import OPTIONS, Source, source
from mio2trace.measures import Measures
from mio2trace.notes import InputError, Notes
from mio2trace.trace import Slice, Trace, checked
from mio2trace.writers import WRITERS, by_suffix, is_ours, write
from mio2trace.writers import slices as written_slices
from tests.commands import stderr_of
from tests.conftest import ROOT, Engine
from tests.made_up_runs import compare as run
from tests.often import present
from tests.synthetic_run import MS, US, Kernel, Layer, make_run

FILES = [str(ROOT / "traces" / "lenet-rocpd" / name) for name in ("run.log.gz", "results.db.gz")]
PRINTED = str(ROOT / "traces" / "alexnet-b1-train" / "run.log")


def net(conv2_ns: int = 2 * MS, *, extra: bool = False) -> list[Layer]:
    """Three layers; ``conv2`` as long as wanted; one more."""

    def layer(name: str, ns: int, *backward: Kernel) -> Layer:
        return Layer(name=name, forward=[Kernel(name=f"{name}_f", ns=ns)], backward=list(backward))

    back = Kernel(name="back", ns=MS)
    layers = [layer("conv1", MS, back), layer("conv2", conv2_ns, back), layer("pool", 90 * US)]
    return [*layers, layer("extra", 700 * US)] if extra else layers


def made(layers: list[Layer], seed: int, iterations: int = 4) -> Source:
    """A side of one made-up run."""
    raw = make_run(Random(seed), layers, iterations=iterations, backward=True, gap=(10 * US, 20 * US))
    alignment = align(raw.profile, [raw.log], Notes())
    run = Run(
        name=f"run {seed}",
        inputs=(),
        profiles=(raw.profile,),
        logs=(raw.log,),
        alignments=(alignment,),
        measures=(Measures(alignment),),
    )
    record = present(collect(run, Notes()))
    return Source(Side(name=f"side {seed}", runs=(record,)), (run,))


def drawn(a: Source, b: Source) -> Trace:
    return picture(Comparison(a.side, b.side), a, b, {"generator": "mio2trace 0"})


def of_process(trace: Trace, begins: str) -> list[Slice]:
    """The slices of the processes that are called so."""
    processes = {one.id for one in trace.processes if one.name.startswith(begins)}
    tracks = {track.id for track in trace.tracks if track.process in processes}
    return [event for event in trace.events() if isinstance(event, Slice) and event.track in tracks]


def begins(slices: list[Slice]) -> dict[int, int]:
    """When each iteration begins."""
    found: dict[int, int] = {}
    for one in slices:
        if one.category == "pass":
            found.setdefault(int(one.args["iteration"]), one.start_ns)
    return found


@pytest.fixture(scope="module")
def slower() -> Trace:
    return drawn(made(net(), 1), made(net(5 * MS, extra=True), 2, 6))


def test_iterations_begin_together(slower: Trace) -> None:
    """The n-th of both, each when the longer one before it has ended; the first at zero; what has no partner is out."""
    a, b = begins(of_process(slower, "A: ")), begins(of_process(slower, "B: "))
    assert a == b
    assert len(a) == 4
    assert min(a.values()) == 0
    longest = max(
        event.start_ns + event.dur_ns for event in of_process(slower, "B: ") if event.args.get("iteration") == 1
    )
    assert a[2] >= longest


def test_no_time_is_altered(slower: Trace) -> None:
    """The kernels of each drawn iteration are the run's own, as far from each other as they were; slices nest."""
    count = total = 0
    for letter, one in (("A: ", made(net(), 1)), ("B: ", made(net(5 * MS, extra=True), 2, 6))):
        measures = one.runs[0].measures[0]
        of_number: dict[int, list[tuple[str, int, int]]] = {}
        for position, activity in enumerate(measures.alignment.profile.activities):
            at = measures.steady.told.place_of[position]
            if at >= 0 and activity.start_ns is not None and activity.end_ns is not None:
                of = of_number.setdefault(measures.steady.told.all[at].number, [])
                of.append((activity.name, activity.start_ns, activity.end_ns - activity.start_ns))
        own: dict[int, list[Slice]] = {}
        for event in of_process(slower, letter):
            if event.category == "kernel":
                own.setdefault(int(event.args["iteration"]), []).append(event)
        assert len(own) == 4
        for number, kernels in own.items():
            shift = kernels[0].start_ns - of_number[number][0][1]
            assert [(k.name, k.start_ns - shift, k.dur_ns) for k in kernels] == of_number[number]
            assert all(k.start_ns >= k.args["submit_ns"] for k in kernels)
            count, total = count + len(kernels), total + sum(kernel.dur_ns for kernel in kernels)
    list(checked(slower, count, total))


def test_what_is_matched_tells_its_ratio(slower: Trace) -> None:
    """Layers of both sides, with the medians of both; what only one has says so."""
    for letter in ("A: ", "B: "):
        layers = [one for one in of_process(slower, letter) if one.category == "layer"]
        conv2 = [one.args for one in layers if one.name == "conv2" and one.shared["direction"] == "forward"]
        assert len(conv2) == 4
        assert {args["ratio"] for args in conv2} == {2.5}
        assert {(args["a_ns"], args["b_ns"]) for args in conv2} == {(2 * MS, 5 * MS)}
        assert {args["verdict"] for args in conv2} == {"maybe slower"}
        assert next(iter(conv2[0])) == "ratio"
    alone = [one.args for one in of_process(slower, "B: ") if one.category == "layer" and one.name == "extra"]
    assert {(args["verdict"], args["b_ns"], "a_ns" in args) for args in alone} == {("only in B", 700 * US, False)}


def test_the_largest_difference_is_first(slower: Trace) -> None:
    """A track each, at the layer's place in every iteration; the group stands before those of the runs."""
    (process,) = (one for one in slower.processes if "differences" in one.name)
    assert process.sort < min(one.sort for one in slower.processes if one is not process)
    names = [track.name for track in slower.tracks if track.process == process.id]
    assert names == ["1. conv2 forward: +3.000 ms", "2. extra forward: +0.700 ms"]
    rows = [one for one in slower.events() if isinstance(one, Slice) and one.category == "difference"]
    assert Counter(one.name for one in rows) == {"conv2 forward x 2.50, maybe slower": 4, "extra forward, only in B": 4}
    places = {
        (one.start_ns, one.dur_ns)
        for one in of_process(slower, "B: ")
        if one.category == "layer" and one.name in ("conv2", "extra") and one.shared["direction"] == "forward"
    }
    assert {(one.start_ns, one.dur_ns) for one in rows} == places
    assert slower.metadata["comparison"]["differences"] == names


def test_a_run_beside_itself_has_no_difference() -> None:
    one = made(net(), 1)
    trace = drawn(one, one)
    assert [process.name[:3] for process in trace.processes] == ["A: ", "B: "]
    assert {event.args["ratio"] for event in of_process(trace, "") if event.category == "layer"} == {1.0}
    with pytest.raises(InputError, match="--picture cannot use a base or a trace"):
        drawn(one, Source(one.side))


@pytest.mark.shared
def test_what_has_no_iterations_begins_at_zero(shared: Path) -> None:
    """Each run from its first kernel, hours after what the host did first."""
    file = shared / "samples" / "rocm" / "rocprofv3_doc_kernel_trace.csv"
    one = source([str(file)], OPTIONS, Notes(), keep=True)
    trace = drawn(one, one)
    for letter in ("A: ", "B: "):
        assert min(event.start_ns for event in of_process(trace, letter)) == 0


def test_many_iterations_are_a_few_of_the_run_in_the_middle() -> None:
    """The middle one by the time of an iteration is drawn."""
    several = [made(net(ns * MS), ns, 14) for ns in (9, 3, 5)]
    side = Side(name="several", runs=tuple(one.side.runs[0] for one in several))
    trace = drawn(Source(side, tuple(one.runs[0] for one in several)), made(net(), 2, 13))
    assert {event.dur_ns for event in of_process(trace, "A: ") if event.name == "conv2_f"} == {5 * MS}
    assert len(begins(of_process(trace, "A: "))) == len(begins(of_process(trace, "B: "))) == MOST_ITERATIONS


@pytest.mark.parametrize("files", [FILES, FILES[1:], [PRINTED]], ids=["with a log", "alone", "printed times"])
def test_real_runs_are_drawn_in_each_form(files: list[str]) -> None:
    """With layers, with kernels alone, with printed times alone; what is written is read again."""
    one = source(files, OPTIONS, Notes(), keep=True)
    trace = drawn(one, one)
    slices = [event for event in trace.events() if isinstance(event, Slice)]
    assert len({event.track for event in slices}) == len(trace.tracks) >= 2
    assert sum("ratio" in event.args for event in slices) > 10
    numbers = [*(one.id for one in trace.processes), *(track.id for track in trace.tracks)]
    assert len(set(numbers)) == len(numbers)
    kernels = [event.dur_ns for event in slices if event.category in ("kernel", "copy")]
    list(checked(trace, len(kernels), sum(kernels)))
    for writer in WRITERS:
        file = io.BytesIO()
        write(writer, trace, file)
        file.seek(0)
        assert len(list(writer.slices(file))) == len(slices)


# ---- the command


def test_the_picture_is_written_by_option_or_suffix(tmp_path: Path) -> None:
    """``--picture`` beside the table, ``-o`` by its suffix instead of it; ``-o out.json`` stays the table."""
    side = ",".join(FILES)
    for words, printed in ((("--picture", "a.json"), True), (("-o", "b.pftrace"), False), (("-o", "c.json.gz"), False)):
        path = tmp_path / words[1]
        done = run(side, side, words[0], path)
        assert done.exit_code == 0, done.stderr
        assert done.stdout.startswith("NO CHANGE SHOWN: +0.0 %")
        assert ("A  " in done.stdout) == printed
        assert done.stderr.splitlines()[-1] == f"wrote {path}"
        assert is_ours(path)
        assert any("ratio" in one.args for one in written_slices(path, "layer"))
    assert run(side, side, "-o", tmp_path / "d.json").exit_code == 0
    assert not is_ours(tmp_path / "d.json")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*[",".join(FILES)] * 3, "--picture", "x.pftrace"), "--picture needs two sides, not 3"),
        ((*[",".join(FILES)] * 2, "--picture", "x.txt"), "--picture x.txt: expected a name that ends in"),
        ((*[",".join(FILES)] * 2, "--picture", "-"), "--picture -: expected a name"),
    ],
)
def test_error_a_picture_of_what_is_none(words: tuple[str, ...], message: str) -> None:
    assert message in stderr_of(run(*words), 2)


@pytest.mark.engine
@pytest.mark.parametrize("suffix", ["json.gz", "pftrace"])
def test_the_engine_finds_nothing_wrong(tmp_path: Path, slower: Trace, suffix: str, engine: Engine) -> None:
    """All structural checks hold, and the arguments can be asked for."""
    path = tmp_path / f"picture.{suffix}"
    form = present(by_suffix(str(path)))
    with path.open("wb") as file:
        write(form[0], slower, file, compress=form[1])
    trace = engine(path)
    assert trace.failed_checks() == {}
    assert trace.errors() == []
