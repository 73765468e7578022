"""TensorFlow's files cut, scribbled over and made up of anything: records and notes, or one line, nothing else."""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mio2trace.conversion import convert
from mio2trace.model.tf import TfProfile, TfView
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import Reader, ReadOptions
from mio2trace.readers.tf import profile_proto as profile_reader
from mio2trace.readers.tf import run_metadata as metadata_reader
from mio2trace.readers.tf import step_stats_text, timeline_json, views
from mio2trace.readers.tf.wire import WireError, fields, numbers, varint
from mio2trace.reports import tfprof
from mio2trace.source import Source
from tests.tf_files import CPU, GPU, KERNELS, START_US, node, number, profile_proto, random_profile, run_metadata, sized

RECORDS = {
    CPU: [("a/x", START_US, 3, "a/x = Conv2D(b)"), ("b:c", START_US + 9, 0, "b = NoOp()")],
    f"{KERNELS}": [("a/x:Conv2D", START_US + 2, 7, "void k()@@a/x:Conv2D#")],
}
TEXT = b"".join(
    b'dev_stats {\n  device: "%s"\n%s}\n'
    % (
        device.encode(),
        b"".join(
            b'  node_stats {\n    node_name: "%s"\n    all_start_micros: %d\n    op_end_rel_micros: %d\n    output {\n'
            b'      tensor_description { shape { dim { size: 3 } } }\n    }\n    timeline_label: "%s"\n  }\n'
            % (name.encode(), start, end, label.encode())
            for name, start, end, label in records
        ),
    )
    for device, records in RECORDS.items()
)
JSON = json.dumps(
    {
        "traceEvents": [
            {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": f"{CPU} Compute"}},
            *(
                {"name": "Conv2D", "ph": "X", "cat": "Op", "pid": 1, "tid": 0, "ts": START_US + at, "dur": at % 3,
                 "args": {"name": f"a/x{at}", "op": "Conv2D"}}
                for at in range(5)
            ),
        ]
    },
    indent=4,
).encode()  # fmt: skip
VIEW = (
    b"\nDoc:\nscope: x\n\nProfile:\nnode name | requested bytes | total execution time\n"
    b"_TFProfRoot (--/1.50KB, --/3us)\n  a (1.50KB/1.50KB, 3us/3us)\n    a/x (--/0B, --/0us)\n"
)
PROFILE = profile_proto(random_profile(random.Random(5)))
FILES: dict[str, tuple[Reader, bytes]] = {
    "profile": (profile_reader, PROFILE),
    "metadata": (metadata_reader, run_metadata(RECORDS)),
    "text": (step_stats_text, TEXT),
    "json": (timeline_json, JSON),
    "view": (views, VIEW),
}


def read(reader: Reader, data: bytes) -> tuple[list[object], Notes] | None:
    """What a reader makes of the bytes; None when it refuses them, which is one line."""
    notes = Notes()
    source = Source("-", 0, notes, stdin=io.BytesIO(data))
    try:
        return list(reader.read(source, ReadOptions(), notes)), notes
    except InputError as error:
        refusal = str(error)
    finally:
        source.close()
    assert "\n" not in refusal
    assert refusal.startswith("standard input: ")
    return None


def use(records: list[object]) -> None:
    """All that is made of records: tables, views, a picture."""
    for record in records:
        if isinstance(record, TfProfile):
            series = tfprof.profile_series(record, record.steps, (".*",), "notebook")
            tfprof.table(tfprof.profile_series(record, record.steps, (".*",), "exact"))
            assert len(series) >= len({one.name for one in record.nodes}) or not record.steps
            options = tfprof.ScopeOptions(select=tfprof.SELECTABLE, show_name_regexes=(".*",))
            text = "".join(tfprof.text(tfprof.ScopeTree(record).rows(options), options))
            assert text.count("_TFProfRoot (") >= 1
        else:
            assert isinstance(record, TfView)
            tfprof.table(tfprof.view_series([record], (".*",), "exact"))


def scribble(data: bytes, rng: random.Random) -> bytes:
    """Bytes changed, cut out, doubled, put in, or the end cut off."""
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(data) + 1)
        how = rng.randrange(6)
        if how == 0:
            data = data[:at]
        elif how == 1:
            data = data[:at] + data[at + rng.choice([1, 3, 30]) :]
        elif how == 2:
            data = data[:at] + data[max(0, at - rng.choice([1, 9, 90])) :]
        elif how == 3:
            data = (
                data[:at]
                + rng.choice([b"\xff" * 9 + b"\x01", b"\x0a", b"{", b"}", b"\0" * 4, b"\xff\xff\xff\x7f"])
                + data[at:]
            )
        else:
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    return data


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1).map(random.Random), st.sampled_from(sorted(FILES)))
def test_damaged_files_are_read_or_refused(rng: random.Random, name: str) -> None:
    """Whatever was done to them; what was read of them can be used."""
    reader, data = FILES[name]
    found = read(reader, scribble(data, rng))
    if found is not None:
        use(found[0])


@given(st.binary(max_size=300), st.sampled_from(sorted(FILES)))
def test_any_bytes_are_read_or_refused(data: bytes, name: str) -> None:
    """Also behind a beginning that is right."""
    reader, whole = FILES[name]
    for given_ in (data, whole[:40] + data, whole + data):
        found = read(reader, given_)
        if found is not None:
            use(found[0])
        reader.sniff(given_)


@given(st.binary(max_size=200))
def test_the_wire_decoder_raises_nothing_else_and_stays_inside(data: bytes) -> None:
    """Fields lie one after another within the message."""
    for call in (fields, numbers, varint):
        found: object = None
        offset = 0
        try:
            found = call(data, 0, len(data))
        except WireError as error:
            offset = error.offset
        assert 0 <= offset <= len(data)
        if call is fields and isinstance(found, list):
            for tag, start, stop in found:
                assert tag >= 8
                if tag & 7 not in (0,):
                    assert 0 <= start <= stop <= len(data)


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_cut_is_read_as_far_as_it_goes_or_refused(name: str) -> None:
    """At each byte; what is left out is said: a note, or the refusal."""
    reader, data = FILES[name]
    whole = read(reader, data)
    assert whole is not None
    assert list(whole[1]) == []
    refused = partial = 0
    for at in range(0, len(data.rstrip()), max(1, len(data) // 300)):
        found = read(reader, data[:at])
        if found is None:
            refused += 1
            continue
        partial += 1
        # A printed view has no end of its own, nor have the devices of a text between two of them.
        ends = name == "view" or (name == "text" and data[:at].count(b"{") == data[:at].count(b"}"))
        if found[0] != whole[0] and not ends:
            assert list(found[1]), at
    assert refused
    assert partial


@pytest.mark.parametrize("name", ["profile", "metadata", "text", "json"])
def test_damaged_files_give_a_sound_picture_or_one_line(name: str, tmp_path: object) -> None:
    """The whole program, its invariants checked."""
    rng = random.Random(f"picture of {name}")
    _, data = FILES[name]
    drawn = 0
    refusals: list[str] = []
    path = f"{tmp_path}/file"
    for _ in range(60):
        with open(path, "wb") as file:
            file.write(scribble(data, rng))
        out = io.BytesIO()
        try:
            convert(path, output=out, check=True)
        except InputError as error:
            refusals.append(str(error))
            continue
        drawn += 1
        for event in json.loads(out.getvalue())["traceEvents"]:
            assert event["ts"] >= 0
            assert event["name"]
    assert drawn
    assert refusals
    assert not any("\n" in refusal for refusal in refusals)


def test_times_beyond_what_a_trace_can_tell_are_counted() -> None:
    """Nanoseconds since 1970 are numbers of 63 bits until the year 2262."""
    late, latest = ("late", 18_467_495_820_649_032, 3, ""), ("latest", 9 * 10**15 - 1, 10**13 - 1, "")
    data = run_metadata({CPU: [("op", START_US, 3, ""), late, latest]})
    notes = Notes()
    source = Source("-", 0, notes, stdin=io.BytesIO(data))
    (profile,) = metadata_reader.read(source, ReadOptions(), notes)
    assert isinstance(profile, TfProfile)
    assert [one.name for one in profile.nodes] == ["latest", "op"]
    assert max(step.end_ns for one in profile.nodes for step in one.steps) < 1 << 63
    assert [note.count for note in notes if note.kind == "execution without a possible time: skipped"] == [1]


BOMBS: dict[str, Callable[[], bytes]] = {
    "nested braces": lambda: b"dev_stats {" * 200_000,
    "nested names": lambda: sized(1, number(1, 1) + sized(2, sized(1, "/".join("a" * 100_000)))),
    "tiny nodes": lambda: sized(1, number(1, 1)) * 100_000,
    "one long op and many short": lambda: profile_proto(
        TfProfile(
            source=0,
            steps=(0,),
            nodes=(
                node("long", (0, 10**9, GPU)),
                *(node(f"s/{at}", (at, 1, GPU)) for at in range(5000)),
            ),
        )
    ),
    "quotes": lambda: b'dev_stats { device: "' + b"\\" * 1_000_000,
    "brackets": lambda: b'{"traceEvents": [' + b"[" * 1_000_000,
    "row": lambda: b"_TFProfRoot (--/1B)\n  a (" + b"1us/1us, " * 100_000,
    "row without an end": lambda: b"a (" * 200_000 + b"1us",
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_is_made_to_take_long_does_not(name: str) -> None:
    """Deep nesting, long lines, many parts: seconds at most, no recursion to its limit."""
    data = BOMBS[name]()
    start = time.process_time()
    for reader, _ in FILES.values():
        found = read(reader, data)
        if found is not None:
            use(found[0])
    assert time.process_time() - start < 30
