"""What repeats the form of calls before it is folded as if it were decoded, whatever is in it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.opencl import dvdt_json, repeats
from mio2trace.readers.opencl.repeats import RepeatingFolder
from tests.small_runs import Call, Program, as_json, benchmark

BLOCK = 6000
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


def folded(text: bytes, *, forms: bool, size: int = BLOCK) -> tuple[Profile, list[tuple[str, bool]], int]:
    """The profile of ``text``, what there is to say about it, and how many bytes had a form."""
    notes = Notes()
    folder = RepeatingFolder(0, notes, "prof")
    if not forms:
        folder.planned = lambda text, decode: None  # type: ignore[method-assign]
    blocks = [text[at : at + size] for at in range(0, len(text), size)]
    profile = dvdt_json._folded(blocks, folder, "prof", ReadOptions(), notes)
    return profile, [(str(note), note.problem) for note in notes], folder._repeated


def both_ways(text: bytes, size: int = BLOCK) -> int:
    """Compare; the bytes that had a form."""
    *plain, _ = folded(text, forms=False, size=size)
    *again, repeated = folded(text, forms=True, size=size)
    assert again == plain
    return repeated


def iterations(steps: Sequence[tuple[Any, ...]], times: int) -> list[Call]:
    """The calls of the steps, again and again, at other times."""
    return calls_of([*steps] * times)


LAUNCH = [
    ("argument", "0x1", 0, "00000000"),
    ("argument", "0x1", 1, "5000000000000000"),
    ("enqueue", "0x1", "0x2", [2, 2, 2]),
]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(CLEAN, max_size=12), st.integers(2, 6), st.sampled_from([400, 1500, 6000]), st.sampled_from(["\t", None])
)
def test_a_repeated_run_is_folded_as_it_is_decoded(
    steps: list[tuple[Any, ...]], times: int, size: int, indent: str | None
) -> None:
    """Kernels made again, arguments set in part and out of order, copies, buffers, marks; blocks cut anywhere."""
    both_ways(as_json(iterations([*steps, *LAUNCH], times), indent), size)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_mutated_run_is_folded_as_it_is_decoded(data: st.DataObject) -> None:
    """Bytes lost, changed, added and moved in what repeats: digits for digits, quotes, numbers of another form."""
    steps = data.draw(st.lists(CLEAN, max_size=6))
    text = bytearray(as_json(iterations([*steps, *LAUNCH], 24)))
    places = [match.start() for match in re.finditer(rb"\d{4,}|[0-9a-f]{8}|\"", text)]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.one_of(st.integers(0, len(text) - 1), st.sampled_from(places)))
        end = at + data.draw(st.sampled_from([0, 1, 1, 2, 19, 400]))
        new = st.sampled_from(
            [b"", b"0", b"1", b'"', b"\\", b"-", b"1.5", b"}, {", b"\xff", b"\x00", b"]", bytes(text[at:end])]
        )
        text[at:end] = data.draw(new)
    both_ways(bytes(text))


@pytest.mark.parametrize("indent", ["\t", 1, None])
def test_most_of_a_benchmark_has_a_form(indent: str | int | None) -> None:
    """From the third iteration on, in each of the layouts that are met."""
    text = as_json(benchmark(iterations=40)[0], indent)
    assert both_ways(text, 4096) > 0.5 * len(text)


def test_values_that_change_are_fields() -> None:
    """A buffer made anew in each iteration, with another handle: the form is that of its size."""
    run = Program()
    run.kernel("k", "0x60")
    for number in range(60):
        run.buffer(4096, f"0x7f{number:06x}")
        run.argument("0x60", 0, f"{number:08x}00000000")
        run.argument("0x60", 1, "01000000")
        run.enqueue("k", "0x60")
    text = as_json(run.calls)
    assert both_ways(text, 4096) > 0.6 * len(text)
    profile, _, _ = folded(text, forms=True, size=4096)
    assert profile.activities[-1].opencl.arguments == ("0000003b00000000", "01000000")
    assert profile.opencl.buffers[-1].handle == "0x7f00003b"


def _changed(text: bytes, old: bytes, new: bytes) -> bytes:
    """The last occurrence replaced."""
    before, found, after = text.rpartition(old)
    assert found
    return before + new + after


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (rb'"queued":\t\d', b'"queued":\t0'),  # no number of JSON
        (rb'"submit":\t\d', b'"submit":\t9'),  # out of order
        (rb"2026-11-20T10:", b"2026-11-20T99:"),  # no time
        (rb"2026-11-20T10:", b'2026-11-20"10:'),  # ends a string
        (rb'"errcode":\t0', b'"errcode":\t5'),
        (rb'"arg_value":\t"0', b'"arg_value":\t"\\'),
        (rb'"arg_index":\t1', b'"arg_index":\t3'),
    ],
)
def test_a_form_holds_only_what_was_proven(old: bytes, new: bytes) -> None:
    """One byte in the last iteration is another: the call is read as it would be alone."""
    text = as_json(iterations(LAUNCH, 40))
    found = re.findall(old, text)[-1]
    assert both_ways(_changed(text, found, new), 4096) > 0.4 * len(text)


def test_digits_that_move_from_field_to_field_are_seen() -> None:
    """A stamp's point in the next stamp is damage, though the fields together hold the same characters."""
    text = as_json(iterations(LAUNCH, 40))
    stamps = list(re.finditer(rb"2026-11-20T10:00:00(\.)\d{6}\"", text))
    first, second = stamps[-4], stamps[-3]
    moved = bytearray(text)
    moved[first.start(1) : first.start(1) + 1] = b"0"
    moved[second.start() : second.start() + 1] = b"."
    both_ways(bytes(moved), 4096)


def test_a_run_without_repetition_is_hardly_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where little comes again most parts are decoded as a whole."""
    run = Program()
    run.kernel("k", "0x60")
    for number in range(800):
        run.argument("0x60", 0, json.dumps(number % 60) * (number % 90))
        run.enqueue("k", "0x60", gws=[number, 1, 1])
    text = as_json(run.calls)
    looked_through = []
    real = RepeatingFolder._looked_through

    def counted(folder: RepeatingFolder, text: bytes, decode: Any) -> Any:
        looked_through.append(text)
        return real(folder, text, decode)

    monkeypatch.setattr(repeats, "_LEARNED_AT_FIRST", 0)
    monkeypatch.setattr(RepeatingFolder, "_looked_through", counted)
    both_ways(text, 4096)
    assert len(looked_through) < len(text) // 4096 // 4
