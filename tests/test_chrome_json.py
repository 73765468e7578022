"""The Chrome JSON that is written: exact, without escapes, the same however it is made, as other readers want it."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import mio2trace
from mio2trace.commands.convert import SMALLER, convert
from mio2trace.trace import NO_ARGS, CounterValue, CounterValues, Event, Flow, Process, Slice, Trace
from mio2trace.writers import WRITERS, by_suffix, chrome_json, native, suffixes, write
from mio2trace.writers.ending import _HEAD, MANY_SLICES, Packed, Written
from tests.commands import invoked
from tests.conftest import shared_folder
from tests.drawn_sets import SETS, TRAIN, traced
from tests.fuzz.law import check_trace

SHARED = {"layer": "conv1", "layer_by": "order"}


def written(value: Trace, *, to_pack: bool = False) -> str:
    file = io.BytesIO()
    chrome_json.write(value, file, to_pack=to_pack)
    return file.getvalue().decode()


def events_of(value: Trace, *, to_pack: bool = False) -> list[dict[str, Any]]:
    events = json.loads(written(value, to_pack=to_pack))["traceEvents"]
    assert isinstance(events, list)
    return [event for event in events if event["ph"] != "M"]


def a_slice(name: str = "k", args: Mapping[str, Any] = NO_ARGS, shared: Mapping[str, Any] = NO_ARGS) -> Slice:
    return Slice(101, 1500, 2001, name, "kernel", args, shared)


@pytest.mark.parametrize("to_pack", [False, True])
def test_values_in_a_row_are_printed_as_one_by_one(to_pack: bool) -> None:
    row = CounterValues(100, 'a "rate"', "GFLOP/s", [1, 1_500, 3_000_501], [0.0, 2.5, 1e-07], 101)

    def beside_slices(*values: CounterValue | CounterValues) -> Trace:
        return replace(traced([a_slice("a"), a_slice("b")]), counters={0: lambda: iter(values)})

    one_by_one = written(beside_slices(*row.each()), to_pack=to_pack)
    assert one_by_one.count('"ph":"C"') == 3
    assert written(beside_slices(row), to_pack=to_pack) == one_by_one


def test_a_small_trace_is_written_exactly_so() -> None:
    """Numbers that change last, one event a line, headings with a time."""
    kernel = a_slice(args={"call_index": 3}, shared=SHARED)
    value = traced(
        [kernel],
        [Slice(11, 1000, 0, "clEnqueue", "api", {}), Flow(7, "enqueue", 11, 1000, 101, 1500)],
        [CounterValue(100, "GEMM", "GFLOP/s", 1500, 2.5), CounterValue(100, "GEMM", "GFLOP/s", 3501, 0)],
    )
    assert written(value) == (
        '{"displayTimeUnit":"ns","metadata":{"generator":"test"},"traceEvents":[\n'
        '{"ph":"M","pid":1,"ts":0,"name":"process_name","args":{"name":"Host"}},\n'
        '{"ph":"M","pid":1,"ts":0,"name":"process_sort_index","args":{"sort_index":0}},\n'
        '{"ph":"M","pid":100,"ts":0,"name":"process_name","args":{"name":"GPU 0 (Mali)"}},\n'
        '{"ph":"M","pid":100,"ts":0,"name":"process_sort_index","args":{"sort_index":-10}},\n'
        '{"ph":"M","pid":100,"tid":101,"ts":0,"name":"thread_name","args":{"name":"Layers > kernels"}},\n'
        '{"ph":"M","pid":100,"tid":101,"ts":0,"name":"thread_sort_index","args":{"sort_index":101}},\n'
        '{"ph":"M","pid":100,"tid":102,"ts":0,"name":"thread_name","args":{"name":"Layers > kernels (2)"}},\n'
        '{"ph":"M","pid":100,"tid":102,"ts":0,"name":"thread_sort_index","args":{"sort_index":102}},\n'
        '{"ph":"M","pid":1,"tid":11,"ts":0,"name":"thread_name","args":{"name":"OpenCL API"}},\n'
        '{"ph":"M","pid":1,"tid":11,"ts":0,"name":"thread_sort_index","args":{"sort_index":1}},\n'
        '{"ph":"X","pid":100,"tid":101,"name":"k","cat":"kernel",'
        '"args":{"layer":"conv1","layer_by":"order","call_index":3},"ts":1.500,"dur":2.001},\n'
        '{"ph":"X","pid":1,"tid":11,"name":"clEnqueue","cat":"api","args":{},"ts":1.000,"dur":0.000},\n'
        '{"ph":"s","pid":1,"tid":11,"ts":1.000,"name":"enqueue","cat":"flow","id":7},\n'
        '{"ph":"f","bp":"e","pid":100,"tid":101,"ts":1.500,"name":"enqueue","cat":"flow","id":7},\n'
        '{"ph":"C","pid":100,"name":"GEMM","cat":"counter","args":{"GFLOP/s":2.5},"ts":1.500},\n'
        '{"ph":"C","pid":100,"name":"GEMM","cat":"counter","args":{"GFLOP/s":0},"ts":3.501}\n'
        '],"mio2trace_end":{"slices":2,"crc32":"245778a1"}}\n'
    )


ANY_TEXT = st.text(st.characters(), max_size=20)
ESCAPES = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\\\ud800-\udfff]")


@given(
    ANY_TEXT,
    st.dictionaries(
        ANY_TEXT, ANY_TEXT | st.integers() | st.booleans() | st.dictionaries(ANY_TEXT, ANY_TEXT), max_size=4
    ),
)
@settings(deadline=None, max_examples=100)
def test_no_text_makes_an_escape(name: str, args: dict[str, Any]) -> None:
    """Importers differ in how they read them. Any text in any place is JSON without backslash or control character."""
    value = traced([a_slice(name, args, args), a_slice(name, {}, args)], [CounterValue(1, name, name, 0, 1)])
    text = written(Trace(processes=(Process(id=1, name=name),), tracks=value.tracks, metadata=args, parts=value.parts))
    assert ESCAPES.search(text) is None
    for event in json.loads(text)["traceEvents"]:
        assert event["name"] or event["ph"] != "X"


ANY_VALUE = st.sampled_from(["},{", '"', "\\", "\x7f", "µ", "x"]) | st.integers(-(1 << 70), 1 << 70) | st.floats(0, 9)
ANY_ARGS = st.dictionaries(
    st.sampled_from("abc"), ANY_VALUE | st.lists(st.dictionaries(st.just("d"), ANY_VALUE), max_size=2), max_size=3
)


@given(st.lists(ANY_ARGS, max_size=6))
def test_arguments_of_many_are_those_of_each(arguments: list[dict[str, Any]]) -> None:
    """Slices that are printed together have what each of them has when it is printed alone."""
    together = events_of(traced([a_slice(args=args, shared=SHARED) for args in arguments]))
    alone = [event for args in arguments for event in events_of(traced([a_slice(args=args, shared=SHARED)]))]
    assert together == alone
    assert len(together) == len(arguments)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ('a"b\\c', "a'b/c"),
        ("tab\there\x7f\x85.", "tab here  ."),
        ("half \ud83d", "half ?"),
        ("слой · 卷积 😀", "слой · 卷积 😀"),
        ("", "(no name)"),
        (" \n", "(no name)"),
        ("x" * 300, "x" * 199 + "…"),
    ],
)
def test_names_are_shown_as_they_can_be(name: str, shown: str) -> None:
    """Clean, never empty, never too long for a viewer; everything else as it is."""
    assert events_of(traced([a_slice(name)]))[0]["name"] == shown


def test_shared_arguments_of_many_are_not_mixed_up() -> None:
    """Their text is not that of objects that are equal or gone."""
    slices: list[Event] = [a_slice(args={"a": n}, shared={"n": n}) for n in range(2000)]
    assert [event["args"] for event in events_of(traced(slices))] == [{"n": n, "a": n} for n in range(2000)]
    assert events_of(traced()) == events_of(traced([], [], [])) == []


def test_integers_that_no_reader_holds_become_text() -> None:
    args = {"a": 1 << 63, "b": (1 << 63) - 1, "c": -(1 << 70), "d": True, "e": "\\"}
    assert events_of(traced([a_slice(args=args)]))[0]["args"] == {
        "a": "0x8000000000000000", "b": (1 << 63) - 1, "c": "-0x400000000000000000", "d": True, "e": "/",
    }  # fmt: skip


@st.composite
def nested(draw: st.DrawFn) -> list[Event]:
    """Slices of one track, often with one span, in the order of a trace; a counter or an arrow among them."""
    found: list[Event] = []
    same = [{"layer": name} for name in "ab"]

    def fill(start: int, end: int, depth: int) -> None:
        while start < end and draw(st.booleans()):
            begin = draw(st.integers(start, end - 1)) if depth == 0 else start
            until = end if depth and draw(st.booleans()) else draw(st.integers(begin + 1, end))
            name, shared = draw(st.sampled_from("kl")), draw(st.sampled_from(same))
            found.append(Slice(101, begin, until - begin, name, "kernel", {"n": len(found)}, shared))
            if draw(st.booleans()):
                found.append(CounterValue(100, "GEMM", "GFLOP/s", begin, len(found)))
            if depth < 4:
                fill(begin, until, depth + 1)
            start = until

    fill(0, 40, 0)
    return found


@given(nested(), st.integers(1, 12))
@settings(deadline=None, max_examples=100)
def test_lines_that_stand_together_to_be_packed_nest_as_before(events: list[Event], stretch: int) -> None:
    """Readers sort by (ts, -dur); of equal slices the first in the file is outside (perfetto-chrome-trace.md 2)."""

    def sorted_as_read(to_pack: bool) -> list[dict[str, Any]]:
        found = events_of(traced(events), to_pack=to_pack)
        return sorted(found, key=lambda one: (one["ts"], one["ph"], -one.get("dur", 0)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mio2trace.writers.events._STRETCH", stretch)
        assert sorted_as_read(True) == sorted_as_read(False)


def test_what_is_packed_has_like_lines_together() -> None:
    """A counter and an arrow beside the slice that they go with: they have a time in common."""
    events: list[Event] = []
    for n in range(3):
        at = 100 * n
        events += [
            Slice(101, at, 50, "conv1", "layer", {"n": n}, SHARED),
            Slice(101, at, 50, "k", "kernel", {"n": n}, SHARED),
            CounterValue(100, "GEMM", "GFLOP/s", at, n),
        ]
    found = events_of(traced(events), to_pack=True)
    assert [(one["name"], one["ts"]) for one in found] == [
        ("conv1", 0), ("conv1", 0.1), ("conv1", 0.2),
        ("k", 0), ("GEMM", 0), ("k", 0.1), ("GEMM", 0.1), ("k", 0.2), ("GEMM", 0.2),
    ]  # fmt: skip


def test_the_suffix_decides_the_form() -> None:
    assert suffixes() == [".json", ".json.gz", ".pftrace", ".pftrace.gz"]
    assert by_suffix("a/b.json") == (chrome_json, False)
    assert by_suffix("B.JSON.GZ") == (chrome_json, True)
    assert by_suffix("-") == (chrome_json, False)
    assert [by_suffix(name) for name in ("out.pftrace", "OUT.PFTRACE.GZ")] == [(native, False), (native, True)]
    assert [by_suffix(path) for path in ("a.txt", "json", "a.gz", "a.json.bz2", "", "-.x")] == [None] * 6


# -- What other readers want: chrome://tracing and Speedscope (perfetto-chrome-trace.md 2) -----------------------------

# The sets that stand for the others: every kind of input and of picture.
FEW = [name for name in SETS if not name.startswith("dvdt") or "train" in name or "two-queues" in name]


def integers(value: Any) -> list[int]:
    """All whole numbers in an event."""
    if isinstance(value, dict):
        return [found for item in value.values() for found in integers(item)]
    return [value] if isinstance(value, int) and not isinstance(value, bool) else []


@pytest.mark.parametrize("name", FEW)
def test_other_viewers_rules_are_kept(tmp_path: Path, name: str) -> None:
    """Besides the law of all traces: every event has ph and ts, arrows end at the slice around them, no number loses
    digits (chrome://tracing keeps integers as doubles). Perfetto's engine checks on the same files that slices nest and
    that arrows have both ends."""
    files, named = SETS[name]
    if not all(path.exists() for path in files):
        pytest.skip(f"no real samples in {shared_folder()}")
    mio2trace.convert(*files, output=tmp_path / "out.json", **named)
    text = (tmp_path / "out.json").read_bytes()
    check_trace(text)
    assert text.startswith(b'{"')
    events = json.loads(text)["traceEvents"]
    assert len(events) > 4
    for event in events:
        assert event["ph"] in {"X", "C", "M", "s", "f"}
        assert 0 <= event["ts"] < 2**53
        assert all(type(number) is int and 0 < number < 2**32 for number in (event["pid"], event.get("tid", 1)))
        assert event["ph"] != "X" or (event["dur"] >= 0 and isinstance(event["args"], dict))
        assert event["ph"] != "C" or all(type(value) in (int, float) for value in event["args"].values())
        assert event.get("bp", "e") == "e"
        assert event["ph"] != "f" or "bp" in event
        assert all(abs(value) <= 2**53 for value in integers(event)), event


# ---- how large is too large


def of(slices: int) -> Trace:
    """Equal kernels with a realistic number of arguments."""
    shared = {"layer": "conv1", "layer_index": 1, "direction": "forward", "layer_by": "timer marks", "gws": "64x368x1"}
    own = {"call_index": 937, "queued_ns": 4774996339, "submit_ns": 4774996580, "iteration": 1}
    return traced([Slice(101, 1000 * n, 900, "XgemmDirectTN", "kernel", own, shared) for n in range(slices)])


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.NAME)
def test_the_number_of_slices_is_estimated(tmp_path: Path, writer: Any) -> None:
    """From the bytes, to a factor of two: enough to warn."""
    with (tmp_path / "out").open("wb") as file:
        written = write(writer, of(20_000), file)
    assert written.raw_bytes == (tmp_path / "out").stat().st_size
    assert 10_000 < written.slices < 40_000
    assert not written.too_large
    assert Written(raw_bytes=0, slices=MANY_SLICES).too_large


def test_a_large_trace_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, with options that there are and that are not in use yet; then the bytes per kernel."""
    monkeypatch.setattr("mio2trace.writers.ending.MANY_SLICES", 10)
    words = [*map(str, TRAIN), "-o", str(tmp_path / "out.pftrace.gz")]

    def warned(*more: str) -> tuple[str, str]:
        lines = invoked(*words, *more).output.splitlines()
        (warning,) = [line for line in lines if "slices" in line]
        return warning, lines[-1]

    warning, last = warned()
    assert warning.startswith("problem: about 0.0 million slices")
    assert "--host-calls none" in warning
    there = {option for parameter in convert.params for option in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", warning)) == {word.split()[0] for word in SMALLER} <= there
    found = re.search(r"\(\d+ kB, (\d+) bytes per kernel\)", last)
    assert found
    assert int(found[1]) == round((tmp_path / "out.pftrace.gz").stat().st_size / 204)
    assert "--host-calls" not in warned("--host-calls", "none")[0]


# -- Compressed output: what `gzip` reads, the same bytes every time, nothing of the machine in it.


STRATEGIES = [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED]


def packed(blocks: list[bytes], strategy: int) -> bytes:
    file = io.BytesIO()
    with Packed(file, strategy) as target:
        assert [target.write(block) for block in blocks] == [len(block) for block in blocks]
    return file.getvalue()


@given(st.lists(st.binary(max_size=300), max_size=20), st.sampled_from(STRATEGIES))
def test_it_is_gzip(blocks: list[bytes], strategy: int) -> None:
    """Head, sum and size are right; no byte shows when or where it was written."""
    found = packed(blocks, strategy)
    assert gzip.decompress(found) == b"".join(blocks)
    assert found == packed(blocks, strategy)
    assert found[:10] == _HEAD == bytes([31, 139, 8, 0, 0, 0, 0, 0, 0, 255])


def test_what_failed_has_no_end() -> None:
    """A file that was not written to its end does not look whole."""
    file = io.BytesIO()
    with contextlib.suppress(RuntimeError), Packed(file) as target:
        target.write(b"x" * 1000)
        raise RuntimeError
    with pytest.raises(EOFError):
        gzip.decompress(file.getvalue())


@pytest.mark.parametrize("form", WRITERS, ids=lambda writer: writer.NAME)
def test_each_form_is_packed_as_it_packs_best(form: Any) -> None:
    """Its strategy is the better one on a real run."""
    file = io.BytesIO()
    form.write(mio2trace.convert(*TRAIN, host_calls="none").trace, file, to_pack=True)
    sizes = {strategy: len(packed([file.getvalue()], strategy)) for strategy in STRATEGIES}
    assert min(sizes, key=lambda strategy: sizes[strategy]) == form.GZIP_STRATEGY
