"""A profile read in two halves is the profile read in one go, wherever it is divided and whatever is in it."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mio2trace import forked as beside
from mio2trace import source
from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.opencl import dvdt_json
from mio2trace.readers.opencl.calls import ProfileFolder
from mio2trace.readers.opencl.halves import FirstHalf, SecondHalf
from mio2trace.source import Source
from tests.small_runs import Call, Program, as_json, benchmark, kinds, read

HANDLES = st.sampled_from(["0x1", "0x2", "0x3"])
INDEXES = st.sampled_from([0, 0, 1, 2, 3, -1, 1023, 1024])
VALUES = st.sampled_from(["00000000", "01000000", "5000000000000000", ""])
SIZES = st.lists(st.integers(1, 3), min_size=3, max_size=3)


def _do(run: Program, step: tuple[Any, ...]) -> None:
    what, *rest = step
    if what == "program":
        run.program(source=f"void k{rest[1]}() {{}}", handle=rest[0], options=rest[1])
    elif what == "binary":
        run.event("clCreateProgramWithBinary", program=rest[0])
    elif what == "build":
        run.event("clBuildProgram", program=rest[0], options=rest[1])
    elif what == "kernels":
        run.event("clCreateKernelsInProgram", program=rest[0], num_kernels_ret=rest[1])
    elif what == "kernel":
        run.kernel("k", rest[0], rest[1])
    elif what == "argument":
        run.argument(*rest)
    elif what == "untimed":
        run.argument(*rest).pop("timestamp")
    elif what == "enqueue":
        handle, queue, size = rest
        run.enqueue("k", handle, queue=queue, gws=size, lws=[0, 0, 0] if size[0] == 1 else size)
    elif what == "queue":
        run.event("clCreateCommandQueue", device=rest[1], queue=rest[0])
    elif what == "copy":
        run.copy(rest[0], rest[1])["queue"] = rest[2]
    elif what == "buffer":
        run.buffer(rest[1], rest[0])
    else:
        run.mark()


CLEAN = st.one_of(
    st.tuples(st.just("program"), HANDLES, VALUES),
    st.tuples(st.just("binary"), HANDLES),
    st.tuples(st.just("build"), HANDLES, VALUES),
    st.tuples(st.just("kernels"), HANDLES, st.sampled_from([1, 4294967295])),
    st.tuples(st.just("kernel"), HANDLES, HANDLES),
    *[st.tuples(st.just("argument"), HANDLES, INDEXES, VALUES)] * 4,
    st.tuples(st.just("untimed"), HANDLES, INDEXES, VALUES),
    *[st.tuples(st.just("enqueue"), HANDLES, HANDLES, SIZES)] * 3,
    st.tuples(st.just("queue"), HANDLES, HANDLES),
    st.tuples(
        st.just("copy"), st.sampled_from(["clEnqueueReadBuffer", "clEnqueueWriteBuffer"]), st.integers(0, 9), HANDLES
    ),
    st.tuples(st.just("buffer"), HANDLES, st.integers(0, 1 << 40)),
    *[st.just(("mark",))] * 2,
)


def calls_of(steps: list[tuple[Any, ...]]) -> list[Call]:
    run = Program()
    for step in steps:
        _do(run, step)
    return run.calls


def fold(folder: ProfileFolder, calls: list[Call]) -> None:
    folder.add(dvdt_json._CALLS.decode(as_json(calls)))


def joined(first: list[Call], second: list[Call]) -> Profile | None:
    """None where the halves cannot be joined."""
    notes = Notes()
    folder, half = FirstHalf(0, notes, "prof"), SecondHalf(0, "prof")
    fold(folder, first)
    fold(half, second)
    if not folder.join(io.BytesIO(half.packed())):
        return None
    profile = folder.finish()
    assert kinds(notes) == {}
    return profile


def assert_equal_objects_are_one(profile: Profile) -> None:
    """Later rooms tell sizes and arguments apart by their identity."""
    for field in ("name", "opencl", "opencl.offset", "grid", "workgroup", "route", "call.name"):
        values = list(map(attrgetter(field), profile.activities))
        assert len({id(value) for value in values}) == len(set(values)), field


@settings(max_examples=100)
@given(st.lists(CLEAN, max_size=40), st.integers(0, 60))
def test_two_halves_make_the_whole(steps: list[tuple[Any, ...]], middle: int) -> None:
    """Handles of the first half used in the second, and made again; arguments, programs, queues and marks."""
    calls = calls_of(steps)
    middle = min(middle, len(calls))
    notes = Notes()
    whole = read(as_json(calls), notes)
    assert kinds(notes) == {}
    assert joined(calls[:middle], calls[middle:]) == whole
    assert_equal_objects_are_one(whole)
    both = joined(calls[:middle], calls[middle:])
    assert both is not None
    assert_equal_objects_are_one(both)


@pytest.mark.parametrize("middle", range(30))
def test_the_first_setting_of_an_enqueue_is_the_first_of_both_halves(middle: int) -> None:
    """Arguments set in part before the middle, and only some of them again after it."""
    run = Program()
    run.kernel("k", "0x60")
    for number in range(3):
        run.argument("0x60", number, "01000000")
    run.enqueue("k", "0x60")
    for numbers in ((2,), (2, 1), (3,), (3, 0), (1, 4), (0, 5)):
        for number in numbers:
            run.argument("0x60", number, "02000000")
        run.enqueue("k", "0x60")
    whole = read(as_json(run.calls))
    prepared = [enqueue.prepared_ns is not None for enqueue in whole.activities]
    assert prepared == [True, False, False, True, True, True, True]
    assert joined(run.calls[:middle], run.calls[middle:]) == whole


@pytest.mark.parametrize(
    "odd",
    [
        {"call": "clEnqueueNDRangeKernel", "name": "k", "queue": "0x30", "kernel": "0x60"},
        {"call": "clCreateBuffer", "size": 5, "errcode": -61, "buffer": "0"},
        {"call": "clCreateBuffer", "size": 5, "queue": "5d32", "errcode": 0},
        {"call": "clCreateBuffer", "size": 5, "buffer": "0x1", "timestamp": {"start": "?", "end": "?"}},
    ],
)
def test_what_there_is_something_to_say_about_is_not_joined(odd: Call) -> None:
    """Notes have an order, and the place of the call in the whole profile."""
    run = Program()
    run.enqueue("k", "0x60")
    assert joined(run.calls, run.calls) is not None
    assert joined(run.calls, [odd]) is None


def test_cut_pointers_are_followed_in_one_go() -> None:
    """A handle then stands for several kernels."""
    cut = {"call": "clCreateBuffer", "size": 5, "queue": "5d32", "errcode": 0}
    assert joined([cut], Program().calls) is None


# -- files ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _here(work: Callable[[BinaryIO], None]) -> Iterator[Callable[[], BinaryIO | None]]:
    """As `beside.beside`, without a process."""
    file = io.BytesIO()
    work(file)
    file.seek(0)
    yield lambda: file


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "beside", _here)


def both_ways(path: Path, block: int, size: int, joins: list[bool] | None = None) -> None:
    """Read in one go and in two, divided in a block of ``size`` bytes; profile, notes, size and hash are the same."""
    found = []
    for two in (False, True):
        notes = Notes()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(source, "BLOCK", size)
            opened = Source(str(path), 0, notes)
        try:
            middle = dvdt_json.middle_from(opened, block) if two else None
            if middle is not None:
                profile = dvdt_json.read_in_two(opened, middle, ReadOptions(), notes)
            else:
                profile = dvdt_json.read_array(opened.blocks(), 0, opened.name, ReadOptions(), notes)
            if joins is not None and two:
                joins.append(middle is not None)
            opened.drain()
        finally:
            opened.close()
        found.append((profile, [(str(note), note.problem) for note in notes], opened.size, opened.sha256))
    assert found[0] == found[1]


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("size", [700, 4096])
@pytest.mark.parametrize("indent", ["\t", None])
def test_a_file_may_be_divided_in_any_block(tmp_path: Path, size: int, indent: str | None) -> None:
    """Also in the very first, and in the last."""
    path = tmp_path / "prof.json"
    path.write_bytes(as_json(benchmark(iterations=3)[0], indent))
    divided: list[bool] = []
    for block in range(path.stat().st_size // size + 2):
        both_ways(path, block, size, divided)
    assert divided.count(True) > 2


@pytest.mark.usefixtures("in_this_process")
@given(data=st.data())
def test_damage_anywhere_is_reported_the_same(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bytes lost, changed or added: a half that is not clean is read again, in order."""
    text = bytearray(as_json(benchmark(iterations=2)[0]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        end = at + data.draw(st.sampled_from([0, 1, 1, 30, 3000]))
        text[at:end] = data.draw(st.sampled_from([b"", b'"', b"{", b"}, {", b"\xff", b"]", b"0"]))
    path = tmp_path_factory.mktemp("damaged") / "prof.json"
    path.write_bytes(text)
    both_ways(path, data.draw(st.integers(0, len(text) // 1500)), 1500)


@pytest.mark.shared
@pytest.mark.usefixtures("in_this_process")
def test_every_real_profile_is_the_same_in_halves(shared: Path) -> None:
    """Divided in four places each."""
    divided: list[bool] = []
    for path in sorted((shared / "samples" / "dvdt").glob("*.prof.json")):
        for part in range(1, 5):
            both_ways(path, part * path.stat().st_size // 5 // 20_000, 20_000, divided)
    assert divided.count(True) > 20


# -- processes --------------------------------------------------------------------------------------------------------


@pytest.fixture
def large_enough(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Small files are shared by two processes; the list gets the children."""
    monkeypatch.setattr(dvdt_json, "LEAST_FOR_TWO", 0)
    monkeypatch.setattr(source, "BLOCK", 4096)
    monkeypatch.setattr(beside, "processors", lambda: 2)
    children: list[int] = []
    real = os.fork

    def fork() -> int:
        children.append(real())
        return children[-1]

    monkeypatch.setattr(os, "fork", fork)
    return children


def read_file(path: Path, **options: Any) -> Profile:
    opened = Source(str(path), 0, Notes())
    try:
        (profile,) = dvdt_json.read(opened, ReadOptions(**options), Notes())
    finally:
        opened.close()
    assert isinstance(profile, Profile)
    return profile


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("way", ["two", "one processor", "all calls", "a BOM", "gzip", "the child fails"])
@pytest.mark.usefixtures("alone")
def test_a_large_file_is_shared_by_two_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large_enough: list[int], way: str
) -> None:
    """Where there are two processors and the file's bytes are its content; the profile is the same in any case."""
    data = as_json(benchmark(iterations=5)[0])
    path = tmp_path / "prof.json"
    path.write_bytes({"a BOM": b"\xef\xbb\xbf" + data, "gzip": gzip.compress(data)}.get(way, data))
    expected = read(data, host_calls=way == "all calls")
    here = os.getpid()
    real = SecondHalf.packed

    def packed(half: SecondHalf) -> bytes:
        assert os.getpid() != here
        if way == "the child fails":
            raise MemoryError
        return real(half)

    monkeypatch.setattr(SecondHalf, "packed", packed)
    if way == "one processor":
        monkeypatch.setattr(beside, "processors", lambda: 1)
    assert read_file(path, host_calls=way == "all calls") == expected
    assert bool(large_enough) == (way in ("two", "the child fails"))


def test_a_small_file_is_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process costs more than it saves."""
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    path = tmp_path / "prof.json"
    data = as_json(benchmark(iterations=2)[0])
    path.write_bytes(data)
    assert read_file(path) == read(data)
