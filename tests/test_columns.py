"""Slices in columns are written as each alone would be: by numpy, one by one, as JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mio2trace.draw.base import merged
from mio2trace.trace import (
    NO,
    NO_ARGS,
    Columns,
    CounterValue,
    Event,
    Flow,
    Pool,
    Process,
    Slice,
    Slices,
    Trace,
    Track,
    column,
    each,
    plain,
    whole,
)
from mio2trace.writers import chrome_json, native
from tests.native_packets import read_native

TRACKS = (11, 12)


def of(events: Sequence[Event | Slices], values: Sequence[CounterValue] = ()) -> Trace:
    return Trace(
        processes=(Process(id=1, name="GPU"),),
        tracks=tuple(Track(id=track, process=1, name=f"Kernels {track}") for track in TRACKS),
        metadata={},
        parts=(lambda: iter(events),),
        counters={0: lambda: iter(values)},
    )


def columns(
    likes: Sequence[Slice], starts: Sequence[int], durations: Sequence[int], args: Mapping[str, Sequence[Any]]
) -> Columns:
    of_args = {key: column(values) for key, values in args.items()}
    codes = np.arange(len(likes), dtype=np.int32)
    return Columns(Pool(likes, codes), np.array(starts, np.int64), np.array(durations, np.int64), of_args)


def printed(events: Sequence[Event | Slices]) -> str:
    file = io.BytesIO()
    chrome_json.write(of(events), file)
    return file.getvalue().decode()


def packed(trace: Trace) -> bytes:
    file = io.BytesIO()
    native.write(trace, file)
    return file.getvalue()


def test_rows_of_slices_are_written_as_they_come() -> None:
    """A whole trace does not wait in memory for the end."""
    like = Slice(11, 0, 0, "k", "kernel", NO_ARGS)
    rows = [Slices(11, [columns([like] * 1000, range(at, at + 1000), [1] * 1000, {})]) for at in range(0, 20000, 1000)]
    made = io.BytesIO()

    def coming() -> Iterator[Event | Slices]:
        for number, row in enumerate(rows):
            yield row
            assert made.tell() > number * 1000

    native.write(msgspec.structs.replace(of([]), parts=(coming,), arrows=()), made)


NAMES = st.sampled_from(["", "k<int, 3>", 'a "call"\n', "café"])
COLUMNS = {
    "call_index": st.integers(0, 1 << 55),
    "small": st.integers(0, 300),
    "wide": st.integers(1 - (1 << 63), (1 << 63) - 1),
    "gflops": st.floats(allow_nan=False, allow_infinity=False),
    "source": st.sampled_from(["train.py:88", "a, b: \\", "ü"]),
    "any": st.one_of(
        st.integers(-5, 1 << 70), st.booleans(), st.dictionaries(st.sampled_from("MN"), st.integers(0, 9))
    ),
}


@st.composite
def pictures(draw: st.DrawFn) -> tuple[list[Slices], list[CounterValue], list[Flow]]:
    """A few rows of columns on each track, with others around some of them, values and arrows between them."""
    shared: list[Any] = [NO_ARGS, {"layer": "conv1"}, {"lws": "1x1", "M": 4}]
    found: list[Slices] = []
    values: list[CounterValue] = []
    starts_on: dict[int, list[int]] = {}
    for track in TRACKS:
        likes = [
            Slice(track, 0, 0, draw(NAMES), draw(st.sampled_from(["kernel", "api", "layer"])), NO_ARGS, one)
            for one in shared
        ]
        at, starts_on[track] = draw(st.sampled_from([0, 7, 1 << 40])), []
        for _ in range(draw(st.integers(1, 3))):
            keys = draw(st.lists(st.sampled_from(sorted(COLUMNS)), unique=True))
            chosen: list[Slice] = []
            starts: list[int] = []
            durations: list[int] = []
            outer: list[Slice] = []
            places: list[int] = []
            until = at
            for number in range(draw(st.integers(0, 8))):
                at += draw(st.sampled_from([0, 1, 200, 1 << 30]))
                if at >= until and draw(st.booleans()):
                    until = at + draw(st.sampled_from([0, 3, 500]))
                    own: dict[str, Any] = draw(st.sampled_from([{}, {"kernels": 3}, {"gemm": {"M": 1}}]))
                    outer.append(Slice(track, at, until - at, "outer", "operation", own, shared[1]))
                    places.append(2 * number)
                dur = draw(st.sampled_from([0, 1, 90]))
                dur = min(dur, until - at) if at < until else dur
                chosen.append(draw(st.sampled_from(likes)))
                starts.append(at)
                durations.append(dur)
                starts_on[track].append(at)
                at += dur
                if draw(st.integers(0, 4)) == 0:
                    values.append(
                        CounterValue(1, "Busy", "%", at + draw(st.integers(-3, 3)) if at > 3 else at, 1.5, track)
                    )
            at = max(at, until)
            args = {
                key: [
                    draw(st.one_of(st.none(), COLUMNS[key])) if draw(st.booleans()) else draw(COLUMNS[key])
                    for _ in starts
                ]
                for key in keys
            }
            if starts or outer:
                inner = columns(chosen, starts, durations, args)
                if not outer and draw(st.booleans()):
                    found.append(Slices(track, [inner]))
                else:
                    order = merged(np.array(places, np.int64), np.arange(1, 2 * len(starts), 2))
                    found.append(Slices(track, [whole(outer), inner], order))
    flows = []
    if all(starts_on.values()):
        for number in range(draw(st.integers(0, 9))):
            ends = draw(st.sampled_from(starts_on[11])), draw(st.sampled_from(starts_on[12]))
            flows.append(Flow(number + 1, "enqueue", 11, ends[0], 12, ends[1]))
    values.sort(key=lambda value: value.time_ns)
    return found, values, flows


@pytest.mark.thorough
@settings(max_examples=100)
@given(pictures())
def test_columns_are_written_as_each_of_their_slices(
    drawn: tuple[list[Slices], list[CounterValue], list[Flow]],
) -> None:
    """Read back by Perfetto's own classes: slices, arguments, arrows, values, as of slices one by one."""
    found, values, flows = drawn
    alone: list[Event] = [*each(found), *flows]
    expected = read_native(packed(of(alone, values)))._replace(packets=0)
    written = packed(of([*found, *flows], values))
    assert read_native(written)._replace(packets=0) == expected  # texts may be told together
    assert len(list(native.slices(io.BytesIO(written)))) == sum(map(len, found))


@settings(max_examples=100)
@given(pictures())
def test_columns_are_printed_as_each_of_their_slices(
    drawn: tuple[list[Slices], list[CounterValue], list[Flow]],
) -> None:
    """Whatever is in the text that stays, whatever the numbers: also those that no 64 bits hold."""
    expected = printed(list(each(drawn[0])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chrome_json, "_FEWEST_IN_COLUMNS", 2)
        written = printed(drawn[0])
    # Of large numbers 1e16 and 1e+16 are the same; all that makes the file's end is that.
    assert written[: written.rindex("]")].replace("e+", "e") == expected[: expected.rindex("]")].replace("e+", "e")
    json.loads(written)


def test_a_packet_may_be_of_any_length() -> None:
    """Between short ones: a slice with many arguments, and one that many arrows leave."""
    short = Slice(11, 0, 0, "k", "kernel", NO_ARGS, {"layer": "conv1"})
    long = Slice(11, 0, 0, "long", "kernel", {"many": {f"key {number}": number for number in range(2000)}})
    row = columns([short, short, long, short], [0, 10, 20, 30], [5, 5, 5, 5], {"call_index": [1, None, 3, 4]})
    calls = whole([Slice(12, number, 1, "call", "api", NO_ARGS) for number in range(3000)])
    found = [Slices(11, (row,)), Slices(12, (calls,))]
    flows = [Flow(number + 1, "enqueue", 11, 10, 12, 10 + number) for number in range(2000)]
    expected = read_native(packed(of([*each(found), *flows])))._replace(packets=0)
    assert read_native(packed(of([*found, *flows])))._replace(packets=0) == expected
    assert len(list(native.slices(io.BytesIO(packed(of([*found, *flows])))))) == 3004


def test_a_column_may_give_the_colour() -> None:
    """Where the slices have none in common."""
    likes = [Slice(11, 0, 0, "k", "kernel", NO_ARGS, shared) for shared in (NO_ARGS, {"gws": "1x1"}, NO_ARGS)]
    row = Slices(11, (columns(likes, [0, 10, 20], [5, 5, 5], {"layer": ["conv1", "fc1", None]}),))
    expected = read_native(packed(of([*each([row])])))
    assert read_native(packed(of([row]))).correlations == expected.correlations
    assert sum(map(len, expected.correlations.values())) == 2


def test_columns_keep_what_python_has() -> None:
    """Values of every kind, None among them, are the same when they are read again."""
    every: list[list[Any]] = [[1, None, -1], [0.5, None, 0.0], ["a", None, "b"], [True, None, 1], [1 << 70, NO]]
    for values in (*every, [{"M": 1}, None, {"M": 1}]):
        assert plain(column(values)) == values
        assert list(map(type, plain(column(values)))) == list(map(type, values))
