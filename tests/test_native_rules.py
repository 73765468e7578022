"""What other readers of Chrome JSON want: chrome://tracing and Speedscope (perfetto-chrome-trace.md 2)."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import mio2trace
from mio2trace.cli import cli
from mio2trace.commands.convert import SMALLER, convert
from mio2trace.notes import InputError
from mio2trace.trace import Process, Slice, Trace, Track
from mio2trace.writers import WRITERS, write
from mio2trace.writers.ending import _HEAD, MANY_SLICES, Packed, Written
from tests.conftest import shared_folder
from tests.test_native import SETS, TRAIN

# The sets that stand for the others: every kind of input and of picture.
FEW = [name for name in SETS if not name.startswith("dvdt") or "train" in name or "two-queues" in name]
COLOURS = re.compile(r"thread_state_|rail_|cq_|good|bad|terrible|black|grey|white|yellow|olive|startup|heap_dump")


def broken_rules(text: str) -> list[str]:
    """The rules that a trace does not keep, each with the event that shows it."""
    found = []
    trace = json.loads(text, parse_constant=lambda word: found.append(f"a {word} is no JSON"))
    events = trace["traceEvents"]
    if not text.startswith('{"'):
        found.append("does not begin like an object")
    if "\\" in text:
        found.append("an escape")
    spans: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    flows: dict[Any, list[str]] = defaultdict(list)
    for event in events:
        kind = event.get("ph")
        at = event.get("ts")
        if not isinstance(kind, str) or kind not in "XCMsf":
            found.append(f"a ph that is none: {event}")
            continue
        if isinstance(at, bool) or not isinstance(at, (int, float)) or not 0 <= at < 2**53:
            found.append(f"no ts: {event}")
            continue
        numbers = [event.get("pid"), event.get("tid", 1)]
        if any(type(number) is not int or not 0 < number < 2**32 for number in numbers):
            found.append(f"pid and tid are small numbers: {event}")
        if kind in "XC" and not (isinstance(event.get("name"), str) and event["name"]):
            found.append(f"no name: {event}")
        if kind == "X":
            duration = event.get("dur")
            if isinstance(duration, bool) or not isinstance(duration, (int, float)) or duration < 0:
                found.append(f"no dur: {event}")
                continue
            if not isinstance(event.get("args"), dict):
                found.append(f"args is no object: {event}")
            spans[event["pid"], event["tid"]].append((at, -duration))
        elif kind == "C" and any(type(value) not in (int, float) for value in event["args"].values()):
            found.append(f"a counter of something else: {event}")
        elif kind in "sf":
            flows[event["id"], event["cat"], event["name"]].append(kind)
            if kind == "f" and event.get("bp") != "e":
                found.append(f"an arrow that ends at the next slice: {event}")
        if "cname" in event and not COLOURS.match(event["cname"]):
            found.append(f"a colour that is none: {event}")
        # chrome://tracing keeps integers as doubles.
        found += [f"{value} loses digits: {event}" for value in integers(event) if abs(value) > 2**53]
    for track, held in spans.items():
        open_: list[int] = []
        for start, negative in sorted(held):
            begin, end = round(start * 1000), round(start * 1000) + round(-negative * 1000)
            while open_ and open_[-1] <= begin:
                open_.pop()
            if open_ and open_[-1] < end:
                found.append(f"slices of {track} overlap at {start}")
            open_.append(end)
    found += [f"arrow {key}: {ends}" for key, ends in flows.items() if sorted(ends) != ["f", "s"]]
    return found


def integers(value: Any) -> list[int]:
    """All whole numbers in an event."""
    if isinstance(value, dict):
        return [found for item in value.values() for found in integers(item)]
    return [value] if isinstance(value, int) and not isinstance(value, bool) else []


@pytest.mark.parametrize("name", FEW)
def test_other_viewers_rules_are_kept(tmp_path: Path, name: str) -> None:
    """Every event has ph and ts, names and times are what they must be, nothing overlaps, arrows have both ends."""
    files, named = SETS[name]
    if not all(path.exists() for path in files):
        pytest.skip(f"no real samples in {shared_folder()}")
    try:
        mio2trace.convert(*files, output=tmp_path / "out.json", **named)
    except InputError as error:
        pytest.skip(f"no trace comes of it: {error}")
    text = (tmp_path / "out.json").read_text("utf-8")
    assert len(json.loads(text)["traceEvents"]) > 4
    assert broken_rules(text) == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('{"ph":"X","pid":1,"tid":2,"dur":1,"name":"a","args":{}}', "no ts"),
        ('{"ts":1,"pid":1,"tid":2,"dur":1,"name":"a","args":{}}', "a ph"),
        ('{"ph":"X","ts":"1","pid":1,"tid":2,"dur":1,"name":"a","args":{}}', "no ts"),
        ('{"ph":"X","ts":-1,"pid":1,"tid":2,"dur":1,"name":"a","args":{}}', "no ts"),
        ('{"ph":"X","ts":1,"pid":1,"tid":2,"dur":null,"name":"a","args":{}}', "no dur"),
        ('{"ph":"X","ts":1,"pid":1,"tid":2,"dur":1,"name":"","args":{}}', "no name"),
        ('{"ph":"X","ts":1,"pid":"GPU","tid":2,"dur":1,"name":"a","args":{}}', "pid and tid"),
        ('{"ph":"X","ts":1,"pid":1,"tid":0,"dur":1,"name":"a","args":{}}', "pid and tid"),
        ('{"ph":"X","ts":1,"pid":1,"tid":2,"dur":1,"name":"a","args":[]}', "args is no"),
        ('{"ph":"X","ts":1,"pid":1,"tid":2,"dur":1,"name":"a","args":{"b":9007199254740993}}', "loses digits"),
        ('{"ph":"X","ts":1,"pid":1,"tid":2,"dur":1,"name":"a","args":{"b":NaN}}', "NaN"),
        ('{"ph":"X","ts":1,"pid":1,"tid":2,"dur":1,"name":"a\\\\b","args":{}}', "an escape"),
        ('{"ph":"C","ts":1,"pid":1,"name":"a","args":{"b":"1"}}', "a counter"),
        ('{"ph":"s","ts":1,"pid":1,"tid":2,"name":"a","cat":"flow","id":1}', "arrow"),
        ('{"ph":"f","ts":1,"pid":1,"tid":2,"name":"a","cat":"flow","id":1}', "next slice"),
        (
            ",".join(f'{{"ph":"X","ts":{at},"pid":1,"tid":2,"dur":1.001,"name":"a","args":{{}}}}' for at in (1, 2)),
            "overlap",
        ),
    ],
)
def test_a_broken_rule_is_seen(text: str, rule: str) -> None:
    """The check can fail."""
    assert any(rule in found for found in broken_rules(f'{{"traceEvents":[{text}]}}'))


# ---- how large is too large


def of(slices: int) -> Trace:
    """A trace of equal kernels with a realistic number of arguments."""
    shared = {"layer": "conv1", "layer_index": 1, "direction": "forward", "layer_by": "timer marks", "gws": "64x368x1"}
    own = {"call_index": 937, "queued_ns": 4774996339, "submit_ns": 4774996580, "iteration": 1}
    return Trace(
        processes=(Process(id=100, name="GPU 0"),),
        tracks=(Track(id=101, process=100, name="Kernels"),),
        metadata={},
        parts=(lambda: (Slice(101, 1000 * n, 900, "XgemmDirectTN", "kernel", own, shared) for n in range(slices)),),
    )


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
        lines = CliRunner().invoke(cli, [*words, *more]).stderr.splitlines()
        (warning,) = [line for line in lines if "slices" in line]
        return warning, lines[-1]

    warning, last = warned()
    assert warning.startswith("problem: about 0.0 million slices")
    assert "--host-calls none" in warning
    there = {option for parameter in convert.params for option in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", warning)) == {word.split()[0] for word in SMALLER} & there
    found = re.search(r"\(0\.\d MB, (\d+) bytes per kernel\)", last)
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
    """Head, sum and size are right; nothing tells when or where it was written."""
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
