"""``mio2trace tfprof``: every form of input, rows, options, what is refused."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.cli import cli
from mio2trace.model.tf import TfNode, TfProfile, TfView
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import Reader, ReadOptions
from mio2trace.readers.tf import profile_proto as profile_reader
from mio2trace.readers.tf import step_stats, views
from mio2trace.reports import tfprof
from mio2trace.reports.tfprof import COLUMNS
from mio2trace.source import Source
from tests.tf_files import CPU, GPU, KERNELS, START_US, node, number, profile_proto, random_profile, run_metadata, sized

CONV = "v/tower_0/cg/conv0/conv2d/Conv2D"
RELU = "v/tower_0/cg/Relu_1"


def profile() -> bytes:
    """A convolution in two steps, a Relu in one, something else."""
    conv = node(CONV, (0, 1500, CPU), step=0, memory=2500)
    later = node(CONV, (9000, 500, CPU), step=2, memory=2500)
    nodes = (
        node(RELU, (20, 6, CPU), step=0, op="Relu"),
        TfNode(name=CONV, op="Conv2D", op_types=("Conv2D",), device=CPU, steps=(*conv.steps, *later.steps)),
        node("save/Const", (30, 1, CPU), step=0),
    )
    return profile_proto(TfProfile(source=0, steps=(0, 2), nodes=nodes))


def run(*args: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(cli, ["tfprof", *args], input=stdin, catch_exceptions=False)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "profile.tfprof"
    path.write_bytes(profile())
    return str(path)


ROWS = "Relu_1,Relu,0.0,0.0,3.0,100.0,0.0,0.0,3.0,100.0\nconv0,Conv2D,2.5,0.0,1000.0,50.0,0.0,0.0,1000.0,50.0\n"


def test_the_notebooks_table(file: str) -> None:
    """One header, the shown rows in the order of their names, means and variation over the steps."""
    done = run(file)
    assert done.exit_code == 0
    assert done.stdout == ",".join(COLUMNS) + "\n" + ROWS
    assert "3 nodes, 3 of them ran; 2 of 2 steps taken; 2 rows" in done.stderr
    assert "did not run in every step: it counts as 0 there (v/tower_0/cg/Relu_1: 1 of 2)" in done.stderr


@pytest.mark.parametrize("form", ["csv", "table", "json", "jsonl", "markdown"])
def test_every_form_has_its_header_once(file: str, form: str) -> None:
    """The names of the columns come once, or once an object; of a narrow terminal's those that have room."""
    text = run(file, "--format", form).stdout
    assert text.count("memory_mean_kb") == (2 if form.startswith("json") else 1)
    if form == "json":
        rows = json.loads(text)
        assert [list(row) for row in rows] == [list(COLUMNS), list(COLUMNS)]
        assert rows[1]["memory_mean_kb"] == 2.5
    if form in ("csv", "table"):
        assert run(file, "--format", form, "--no-header").stdout == text.split("\n", 1)[1]


def test_standard_input_and_gzip(file: str) -> None:
    """The same table."""
    expected = run(file).stdout
    assert run("-", stdin=profile()).stdout == expected
    assert run("-", stdin=gzip.compress(profile())).stdout == expected


def test_steps_are_chosen(file: str) -> None:
    """By number and range; what is not there is an error of use."""
    conv = run(file, "--steps", "2", "--no-header").stdout.splitlines()[1]
    assert conv.split(",")[2:6] == ["2.5", "0.0", "500.0", "0.0"]
    assert run(file, "--steps", "0-2").stdout == run(file).stdout
    for bad in ("1", "0-1", "3-5", "x", "2-1", "avg", ""):
        assert run(file, "--steps", bad).exit_code == 2, bad
    assert "no step 1; there are 0, 2" in run(file, "--steps", "1").stderr


def test_rows_are_chosen_by_whole_names(file: str) -> None:
    """Several expressions; none that matches is said."""
    names = [row["name"] for row in csv.DictReader(io.StringIO(run(file, "--show", ".*Const", "--show", RELU).stdout))]
    assert names == ["save", "Relu_1"]
    done = run(file, "--show", "Relu_1")
    assert done.stdout.count("\n") == 1
    assert "no row is shown" in done.stderr


def test_the_scope_view(file: str) -> None:
    """Average and single steps, with options of the profiler."""
    lines = run(file, "--text", "--show", ".*", "--select", "micros,occurrence", "--steps", "0").stdout.splitlines()
    assert lines[-9:] == [
        "  save (0us/1us, 0us/0us, 0us/1us, 0/1|1/2)",
        "    save/Const (1us/1us, 0us/0us, 1us/1us, 1/1|1/1)",
        "  v (0us/1.51ms, 0us/0us, 0us/1.51ms, 0/2|1/7)",
        "    v/tower_0 (0us/1.51ms, 0us/0us, 0us/1.51ms, 0/2|1/6)",
        "      v/tower_0/cg (0us/1.51ms, 0us/0us, 0us/1.51ms, 0/2|1/5)",
        "        v/tower_0/cg/Relu_1 (6us/6us, 0us/0us, 6us/6us, 1/1|1/1)",
        "        v/tower_0/cg/conv0 (0us/1.50ms, 0us/0us, 0us/1.50ms, 0/1|1/3)",
        "          v/tower_0/cg/conv0/conv2d (0us/1.50ms, 0us/0us, 0us/1.50ms, 0/1|1/2)",
        f"            {CONV} (1.50ms/1.50ms, 0us/0us, 1.50ms/1.50ms, 1/1|1/1)",
    ]
    average = run(file, "--text", "--min", "micros=100", "--order-by", "micros").stdout.splitlines()
    assert average[-1] == f"  {CONV} (2.50KB/2.50KB, 1.00ms/1.00ms, 0us/0us, 1.00ms/1.00ms)"
    assert run(file, "--text", "--steps", "0,2").stdout.count("_TFProfRoot (") == 2
    console = run(file, "--text", "--steps", "0,2", "--console").stdout
    assert [line.split()[1] for line in console.splitlines() if line.startswith("-step")] == ["0", "2"]


def test_a_printed_view_gives_the_table_again(file: str, tmp_path: Path) -> None:
    """Several views are steps; the files' names or their options tell which. An average has no variation."""
    done = run("-", stdin=run(file, "--text", "--steps", "0,2", "--console").stdout.encode())
    assert done.stdout.split("\n", 1)[1] == ROWS
    assert "scope view of 2 steps; 2 rows" in done.stderr
    paths = [str(tmp_path / f"step_{step}.txt") for step in (2, 0)]
    for path in paths:
        Path(path).write_text(run(file, "--text", "--steps", path[-5]).stdout)
    assert run(*paths, "--no-header").stdout == ROWS
    one = run(*paths, "--steps", "2", "--no-header").stdout
    assert one.splitlines()[1].split(",")[4] == "500.0"
    average = run("-", "--no-header", stdin=run(file, "--text", "--console").stdout.encode()).stdout
    assert average.splitlines()[1].split(",")[4:6] == ["1000.0", ""]


def test_one_step_of_a_timeline_has_no_memory(tmp_path: Path) -> None:
    """Values that a form does not have stay empty, with a note, also if the file is cut off."""
    op = {"name": "Conv2D", "ph": "X", "cat": "Op", "tid": 0, "ts": START_US, "dur": 7}
    events = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": f"{CPU.replace('cpu', 'CPU')} Compute"}},
        op | {"pid": 1, "args": {"name": CONV, "op": "Conv2D"}},
        op | {"pid": 9, "args": {"name": CONV}},
    ]
    text = json.dumps({"traceEvents": events}, indent=4)
    for part, said in (
        (text, ["has no memory", "names no node or no device: skipped"]),
        (text[: text.rindex("Conv2D")], ["file cut off: read up to there"]),
    ):
        (tmp_path / "trace").write_text(part)
        done = run(str(tmp_path / "trace"))
        assert done.stdout.splitlines()[1:] == ["conv0,Conv2D,,,7.0,0.0,0.0,0.0,7.0,0.0"]
        assert all(words in done.stderr for words in said)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--select", "micros"], "--select needs --text"),
        (["--min", "micros=3"], "--min needs --text"),
        (["--text", "--format", "csv"], "--text cannot be combined with --format"),
        (["--text", "--notebook-units"], "--text cannot be combined with --notebook-units"),
        (["--format", "json", "--no-header"], "--no-header cannot be combined with --format json"),
        (["--show", "("], "no regular expression"),
        (["--text", "--min", "micros"], "expected COLUMN=N"),
        (["--text", "--min", "size=3"], "expected COLUMN=N"),
        (["--text", "--order-by", "size"], "expected one of name"),
        (["--text", "--select", "size"], "no column 'size'"),
    ],
)
def test_options_that_are_none(file: str, args: list[str], said: str) -> None:
    """Exit 2 and what was expected."""
    done = run(file, *args)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty; expected a TFProf profile"),
        (b"hello\n", "no row of a TFProf view"),
        (b"\x00\x01\x02\x03" * 9, "binary data that begins 00 01 02 03"),
        (b'{"a": 1}', "JSON with the keys a; expected a TFProf profile"),
        (b'[{"call": "clBuildProgram", "timestamp": {}}]', "is a dv/dt profile"),
        (b"\x0a\x08\x08\x01\x12\x05\x0a\x01nbb", "expected"),
    ],
)
def test_what_is_no_profile_is_refused_in_one_line(tmp_path: Path, data: bytes, said: str, file: str) -> None:
    """Exit 1; the line names the file. One profile has all steps: several are refused."""
    path = tmp_path / "file"
    path.write_bytes(data)
    done = run(str(path))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("mio2trace: file: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    path.write_bytes(profile())
    several = run(file, str(path))
    assert (several.exit_code, "several profiles; expected one" in several.stderr) == (1, True)


# -- TensorFlow's files cut, scribbled over and made up of anything: records and notes, or one line, nothing else.


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
FILES: dict[str, tuple[Reader, bytes]] = {
    "profile": (profile_reader, profile_proto(random_profile(random.Random(5)))),
    "metadata": (step_stats.BYTES, run_metadata(RECORDS)),
    "text": (step_stats.TEXT, TEXT),
    "json": (step_stats.TIMELINE, JSON),
    "view": (views, VIEW),
}


def read_or_refused(reader: Reader, data: bytes) -> tuple[Sequence[object], Notes] | None:
    """Read the bytes and use the records. Return None if the reader refuses them, in one line."""
    notes = Notes()
    refusal = ""
    with contextlib.closing(Source("-", 0, notes, stdin=io.BytesIO(data))) as source:
        try:
            records = list(reader.read(source, ReadOptions(), notes))
        except InputError as error:
            refusal = str(error)
            records = []
    if not records:
        assert "\n" not in refusal
        assert refusal.startswith("standard input: ")
        return None
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
    return records, notes


@given(st.sampled_from(sorted(FILES)), st.data())
def test_damaged_files_are_read_or_refused(name: str, draw: st.DataObject) -> None:
    """Bytes changed, cut out, doubled, put in, or the end cut off."""
    reader, data = FILES[name]
    put_in = st.sampled_from([b"\xff" * 9 + b"\x01", b"\x0a", b"{", b"}", b"\0" * 4, b"\xff\xff\xff\x7f"])
    for _ in range(draw.draw(st.sampled_from([1, 2, 8]))):
        at = draw.draw(st.integers(0, len(data)))
        goes_on = draw.draw(st.sampled_from([at, at + 1, at + 3, at + 30, max(0, at - 9), max(0, at - 90), len(data)]))
        data = data[:at] + draw.draw(st.just(b"") | st.binary(min_size=1, max_size=1) | put_in) + data[goes_on:]
    read_or_refused(reader, data)


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_cut_is_read_as_far_as_it_goes_or_refused(name: str) -> None:
    """At each byte; what is left out is said: a note, or the refusal."""
    reader, data = FILES[name]
    whole = read_or_refused(reader, data)
    assert whole is not None
    assert list(whole[1]) == []
    cuts = range(0, len(data.rstrip()), max(1, len(data) // 300))
    found = {at: read_or_refused(reader, data[:at]) for at in cuts}
    assert {one is None for one in found.values()} == {True, False}
    for at, one in found.items():
        # A printed view has no end of its own, nor have the devices of a text between two of them.
        ends = name == "view" or (name == "text" and data[:at].count(b"{") == data[:at].count(b"}"))
        if one is not None and one[0] != whole[0] and not ends:
            assert list(one[1]), at


def test_times_beyond_what_a_trace_can_tell_are_counted() -> None:
    """Nanoseconds since 1970 are numbers of 63 bits until the year 2262."""
    late, latest = ("late", 18_467_495_820_649_032, 3, ""), ("latest", 9 * 10**15 - 1, 10**13 - 1, "")
    read = read_or_refused(step_stats.BYTES, run_metadata({CPU: [("op", START_US, 3, ""), late, latest]}))
    assert read is not None
    ([profile], notes) = read
    assert isinstance(profile, TfProfile)
    assert [one.name for one in profile.nodes] == ["latest", "op"]
    assert max(step.end_ns for one in profile.nodes for step in one.steps) < 1 << 63
    assert [note.count for note in notes if note.kind == "execution without a possible time: skipped"] == [1]


LONG = (node("long", (0, 10**9, GPU)), *(node(f"s/{at}", (at, 1, GPU)) for at in range(5000)))
BOMBS: dict[str, Callable[[], bytes]] = {
    "nested braces": lambda: b"dev_stats {" * 200_000,
    "nested names": lambda: sized(1, number(1, 1) + sized(2, sized(1, "/".join("a" * 100_000)))),
    "tiny nodes": lambda: sized(1, number(1, 1)) * 100_000,
    "one long op and many short": lambda: profile_proto(TfProfile(source=0, steps=(0,), nodes=LONG)),
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
        read_or_refused(reader, data)
    assert time.process_time() - start < 30


def test_nothing_of_tensorflow_is_loaded(file: str) -> None:
    """The program's own decoder needs none, and the command starts fast."""
    script = (
        "import sys\nfrom mio2trace.cli import cli\n"
        f"cli.main(['tfprof', {file!r}], standalone_mode=False)\n"
        "print([name for name in ('tensorflow', 'google', 'pandas') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith(ROWS)
    assert done.stderr.splitlines()[-1] == "[]"
