"""Damaged, odd and hostile input, case by case as docs/faults.md lists it: what is said, what is still converted."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from mio2trace import source as source_module
from mio2trace.cli import cli
from mio2trace.conversion import Conversion, convert
from mio2trace.notes import InputError
from mio2trace.trace import Slice
from tests.commands import invoked
from tests.conftest import missing
from tests.small_runs import Program, as_json, as_text, benchmark, small

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = [sys.executable, "-m", "mio2trace"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "timeline")}
CALLS, LOG = benchmark()
KERNELS = sum(call["call"] == "clEnqueueNDRangeKernel" for call in CALLS)


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., Conversion]:
    """Convert contents: each becomes a file; the trace is checked and must be JSON."""

    def run(*contents: bytes, **options: Any) -> Conversion:
        files = []
        for number, content in enumerate(contents):
            files.append(tmp_path / f"in{number}")
            files[-1].write_bytes(content)
        out = io.BytesIO()
        result = convert(*files, output=out, check=True, **options)
        json.loads(out.getvalue(), parse_constant=pytest.fail)
        return result

    return run


def kernels(conversion: Conversion) -> int:
    count: int = conversion.metadata["attribution"]["kernels"]
    return count


def said(conversion: Conversion) -> str:
    return "\n".join(conversion.report)


Converted = Callable[..., Conversion]


def test_the_table_in_the_docs_is_that_of_these_tests() -> None:
    """Every row names a test that there is, and every test here and in test_faults.py has a row."""
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "faults.md").read_text()))
    tests = {
        path.stem: set(re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE))
        for path in (ROOT / "tests").glob("test_*.py")
    }
    assert named <= set().union(*tests.values())
    own = tests["test_damage"] | tests["test_faults"]
    assert own - named == {"test_the_table_in_the_docs_is_that_of_these_tests"}


# ---- cut and broken JSON


def test_a_truncated_profile_is_read_up_to_the_last_whole_record(converted: Converted) -> None:
    """Wherever a killed run stopped writing: every whole call before the cut counts, one note says so."""
    whole = as_json(CALLS)
    ends = [match.end() for match in re.finditer(rb"\n\t\}(?=,)", whole)]
    names = [call["call"] for call in CALLS]
    for cut in range(len(whole) // 3, len(whole) - 3, 211):
        expected = names[: sum(end <= cut for end in ends)].count("clEnqueueNDRangeKernel")
        result = converted(whole[:cut])
        assert kernels(result) == expected, cut
        assert said(result).count("file cut off: read up to there") == 1, cut


def test_nan_and_infinity_lose_the_call_that_holds_them(converted: Converted) -> None:
    for word in ("NaN", "Infinity", "-Infinity"):
        calls = small()
        calls[-3]["profiling"] |= {"start": "@"}
        result = converted(as_json(calls).replace(b'"@"', word.encode()))
        assert result.metadata["attribution"]["kernels"] + result.metadata["attribution"]["copies"] == 3
        assert re.search(r"damaged JSON in the profile: a call is lost|could not be read", said(result))


@pytest.mark.parametrize("wrong", [..., None, True, "text", [], {}, [[1]], 1.5, -1, 1e300], ids=repr)
@pytest.mark.parametrize("key", ["call", "name", "queue", "kernel", "gws", "profiling", "timestamp", "errcode"])
def test_a_field_of_a_wrong_type_costs_one_call_at_most(converted: Converted, key: str, wrong: Any) -> None:
    """And what is lost is counted. ``...``: the key is missing."""
    calls = small()
    enqueue = next(call for call in calls if call["call"] == "clEnqueueNDRangeKernel")
    enqueue[key] = wrong
    if wrong is ...:
        del enqueue[key]
    result = converted(as_json(calls))
    found = result.metadata["attribution"]
    assert found["kernels"] + found["copies"] >= 3
    assert found["kernels"] + found["copies"] == 4 or [note for note in result.notes if note.problem]


@pytest.mark.parametrize("number", ["9" * 400, "1e400", "-1e400", "18446744073709551616", "9223372036854775808"])
def test_huge_numbers_lose_a_time_and_never_make_one_up(converted: Converted, number: str) -> None:
    calls = small()
    next(call for call in calls if call["call"] == "clEnqueueNDRangeKernel")["profiling"]["end"] = "@"
    result = converted(as_json(calls).replace(b'"@"', number.encode()))
    drawn = [e for e in result.trace.events() if isinstance(e, Slice) and e.category == "kernel"]
    assert len(drawn) == 1
    assert all(e.dur_ns < 10**9 for e in drawn)
    assert [note for note in result.notes if note.problem]


def test_negative_and_reversed_times_are_not_drawn_and_counted(converted: Converted) -> None:
    for times in ({"start": -5}, {"end": 1}, {"queued": 10**15}, {"submit": -1, "queued": -2}):
        calls = small()
        next(call for call in calls if call["call"] == "clEnqueueNDRangeKernel")["profiling"] |= times
        result = converted(as_json(calls))
        assert result.metadata["attribution"]["without_device_times"] == 1
        assert "enqueue whose device times are out of order" in said(result)


def test_host_times_that_run_backwards_never_make_a_slice_of_negative_length(converted: Converted) -> None:
    calls, log = benchmark()
    for call in calls:
        call["timestamp"]["start"], call["timestamp"]["end"] = call["timestamp"]["end"], call["timestamp"]["start"]
    assert kernels(converted(as_json(calls), log.encode(), by_order_alone=True, host_calls="all")) == KERNELS


def test_duplicate_keys_lose_no_kernel(converted: Converted) -> None:
    data = re.sub(rb'("name":\t"[^"]*",)', rb'\1 "name":\t"twice",', as_json(CALLS))
    assert kernels(converted(data)) == KERNELS


@pytest.mark.parametrize(
    "nest",
    [
        b"[" * 200_000,
        b'[{"call": "clEnqueueNDRangeKernel", "gws": ' + b"[" * 200_000,
        b'{"per_layer_info": ' + b"[" * 200_000,
        b'{"characteristics_list": ' + b'[{"run": ' * 100_000,
        b'[{"label": ' + b'{"a":' * 100_000,
        b"[dv/dt] <<\n" + b"[" * 200_000 + b"\n[dv/dt] >>\n",
        b"miopenStatus_t " + b"{" * 200_000,
    ],
    ids=["array", "call", "layers", "record", "label", "array in a log", "braces"],
)
def test_error_deep_nesting_is_one_line(converted: Converted, nest: bytes) -> None:
    with pytest.raises(InputError) as refused:
        converted(nest)
    assert len(str(refused.value)) < 1000
    # beside a good call it costs itself only
    good = as_json(CALLS)
    result = converted(good.replace(b"[\n", b'[\n\t{"call": "clX", "x": ' + b"[" * 90_000 + b"]" * 90_000 + b"},\n", 1))
    assert kernels(result) == KERNELS


# ---- text in other clothes


def test_invalid_utf8_is_replaced_and_noted(converted: Converted) -> None:
    data = as_json(CALLS).replace(b'"conv1_k0"', b'"conv1_\xff\xfe_k0"')
    result = converted(data, LOG.encode().replace(b"ip1", b"ip\xff"))
    assert kernels(result) == KERNELS
    assert "text in the profile that is not UTF-8" in said(result)


def dressed(how: str, text: str) -> bytes:
    if how == "CRLF":
        return text.replace("\n", "\r\n").encode()
    if how == "BOM":
        return b"\xef\xbb\xbf" + text.encode()
    if how == "gzip of gzip":
        return gzip.compress(gzip.compress(text.encode()))
    return text.encode(how)


@pytest.mark.parametrize("how", ["BOM", "utf-16", "CRLF", "gzip of gzip"])
def test_marks_utf16_crlf_and_gzip_of_gzip_change_nothing(converted: Converted, how: str) -> None:
    plain = converted(LOG.encode(), as_json(CALLS))
    other = converted(dressed(how, LOG), dressed(how, as_json(CALLS).decode()))
    text = converted(dressed(how, as_text(CALLS).decode()))
    assert list(other.trace.events()) == list(plain.trace.events())
    assert other.metadata["attribution"] == plain.metadata["attribution"]
    assert kernels(text) == KERNELS


def test_utf16_without_a_mark_is_refused_in_one_line(converted: Converted) -> None:
    with pytest.raises(InputError, match=r"in0: binary data that begins 49 00"):
        converted(LOG.encode("utf-16-le"))


# ---- files that are none


def refused(*args: str, code: int = 1) -> str:
    # click 8.1's runner has no standard error of its own
    with (
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
        pytest.raises(SystemExit) as ended,
    ):
        cli(args, prog_name="mio2trace")
    text = err.getvalue()
    assert (ended.value.code, out.getvalue()) == (code, ""), text
    if code == 1:
        assert text.count("\n") == 1
    assert "Traceback" not in text
    return text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "run.log").write_text(LOG)
    (tmp_path / "prof.json").write_bytes(as_json(CALLS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("content", [b"", b" \n\n", gzip.compress(b"", mtime=0), b"\xef\xbb\xbf", "".encode("utf-16")])
def test_error_an_empty_file_says_that_it_is(converted: Converted, content: bytes) -> None:
    with pytest.raises(InputError, match=r"^in0: empty; expected a log or a profile$"):
        converted(content)


@pytest.mark.usefixtures("folder")
def test_error_directories_devices_and_sockets_are_named() -> None:
    Path("empty").mkdir()
    assert "empty: a folder without a profile, a log or ckp-*.0001.json; expected the folder" in refused(
        "empty", "-o", "o.json"
    )
    assert "null: is a device; expected a file" in refused("/dev/null", "-o", "o.json")
    assert "zero: is a device; expected a file" in refused("/dev/zero", "-o", "o.json")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("a.sock")
        assert "a.sock: is a socket; expected a file" in refused("prof.json", "a.sock", "-o", "o.json")
    assert "empty: a folder without" in refused("ops", "empty")
    assert "is a device" in refused("driver", "/dev/zero")


@pytest.mark.usefixtures("folder")
def test_a_pipe_is_a_file() -> None:
    """That is how a shell hands over the output of a command: ``mio2trace <(zcat run.log.gz) ...``."""
    command = f"{sys.executable} -m mio2trace <(cat run.log) <(gzip -c prof.json) -o out.json -q --check"
    assert subprocess.run(["bash", "-c", command], env=ENVIRONMENT, timeout=60).returncode == 0
    assert json.loads(Path("out.json").read_bytes())["metadata"]["attribution"]["kernels"] == KERNELS


@pytest.mark.usefixtures("folder")
def test_error_an_unreadable_file_is_named() -> None:
    """Root may read everything: as somebody else, where that can be had."""
    Path("prof.json").chmod(0)
    program = [*PROGRAM, "run.log", "prof.json", "-o", "o.json"]
    if os.geteuid() == 0:
        drop = shutil.which("setpriv")
        if drop is None:
            missing("faults", "root may read everything, and there is no setpriv")
        program = [drop, "--bounding-set=-dac_override,-dac_read_search", *program]
    result = subprocess.run(program, capture_output=True, env=ENVIRONMENT, timeout=60)
    assert (result.returncode, result.stderr) == (1, b"mio2trace: prof.json: Permission denied\n")


@pytest.mark.usefixtures("folder")
def test_error_the_output_as_an_input_is_refused_under_any_name() -> None:
    """A link, a hard link, standard input, the summary, a point of a CK directory; the input stays as it was."""
    Path("link.json").symlink_to("prof.json")
    os.link("prof.json", "hard.json")
    Path("entry").mkdir()
    record = {"characteristics_list": [{"run": {"dvdt_prof": CALLS, "run_success": "yes"}}]}
    Path("entry/ckp-1.0001.json").write_text(json.dumps(record))
    before = {path: path.read_bytes() for path in Path().rglob("*.json")}
    for target in ("prof.json", "./prof.json", "link.json", "hard.json"):
        assert "is also an input" in refused("run.log", "prof.json", "-o", target, code=2)
        assert "is also an input" in refused("run.log", "link.json", "-o", target, code=2)
        assert "is also an input" in refused("prof.json", "-o", "o.json", "--summary", target, code=2)
    with open("prof.json", "rb") as stdin:
        result = subprocess.run([*PROGRAM, "-", "-o", "hard.json"], stdin=stdin, env=ENVIRONMENT, capture_output=True)
    assert result.returncode == 2
    assert "is also an input" in refused("entry", "-o", "entry/ckp-1.0001.json", code=2)
    assert {path: path.read_bytes() for path in Path().rglob("*.json")} == before


@pytest.mark.usefixtures("folder")
def test_symbolic_links_are_followed_and_kept() -> None:
    """As input and as output; a link to nowhere and a circle are named."""
    Path("in.json").symlink_to("prof.json")
    Path("store").mkdir()
    Path("store/real.json").write_text("old")
    Path("out.json").symlink_to("store/real.json")
    Path("new.json").symlink_to("store/new.json")
    for target in ("out.json", "new.json"):
        assert invoked("in.json", "-o", target, "-q").exit_code == 0
        assert Path(target).is_symlink()
    assert Path("store/real.json").read_bytes() == Path("store/new.json").read_bytes()
    Path("nowhere").symlink_to("not/there")
    Path("circle").symlink_to("circle")
    assert "nowhere: No such file or directory" in refused("nowhere", "-o", "o.json")
    assert "circle: Too many levels of symbolic links" in refused("circle", "-o", "o.json")
    assert "no valid path; expected that of a file" in _refused_name("a\0b")


def _refused_name(name: str) -> str:
    with pytest.raises(InputError) as error:
        convert(name)
    return str(error.value)


# ---- gzip


def test_error_gzip_packed_too_often_is_no_input_of_ours(converted: Converted) -> None:
    packed = as_json(CALLS)
    for _ in range(4):
        packed = gzip.compress(packed)
    with pytest.raises(InputError, match=r"in0: binary data that begins 1f 8b"):
        converted(packed)


def bomb(size: int, piece: bytes) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    pieces = [packer.compress(piece * (65536 // len(piece))) for _ in range(size // 65536)]
    return b"".join((packer.compress(LOG.encode()), *pieces, packer.flush()))


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("piece", [b"x", b"a line\n"], ids=["one line", "lines"])
def test_error_a_gzip_bomb_stops_at_the_limit(
    converted: Converted, monkeypatch: pytest.MonkeyPatch, piece: bytes, layers: int
) -> None:
    """Here with a lower limit; the line says how to set another."""
    monkeypatch.setattr(source_module, "FREE_EXPANSION", 2_000_000)
    packed = bomb(8_000_000, piece)
    for _ in range(layers - 1):
        packed = gzip.compress(packed)
    expected = r"^in0: once decompressed, more than \d+ MB and 200 times its size; --max-input sets another limit$"
    with pytest.raises(InputError, match=expected):
        converted(packed)
    assert converted(packed, max_input=10_000_000).metadata["inputs"]


def test_error_max_input_holds_for_every_input(converted: Converted) -> None:
    data = as_json(CALLS)
    for content in (data, gzip.compress(data)):
        with pytest.raises(InputError, match=r"more than 0 MB; --max-input sets another limit"):
            converted(content, max_input=len(data) - 1)
        assert kernels(converted(content, max_input=len(data))) == KERNELS


@pytest.mark.usefixtures("folder")
def test_max_input_takes_sizes_as_people_write_them() -> None:
    assert "prof.json: more than 0 MB" in refused("prof.json", "-o", "o.json", "--max-input", "1K")
    assert "is not a size such as" in refused("prof.json", "-o", "o.json", "--max-input", "much", code=2)
    for size in ("64G", "5MB", "1tb", "100000"):
        assert invoked("prof.json", "-o", "o.json", "--max-input", size, "-q").exit_code == 0


def test_a_line_and_a_call_without_an_end_do_not_fill_the_memory(converted: Converted) -> None:
    """A call longer than the limit ends the reading, a line longer than the limit is cut; the rest counts."""
    from mio2trace.readers import run_log
    from mio2trace.readers.opencl import dvdt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dvdt, "LONGEST_CALL", 1 << 20)
        patch.setattr(run_log, "LONGEST_LINE", 1 << 20)
        data = as_json(CALLS)[:-2] + b', {"call": "clX", "source": {"0": "' + b"x" * (4 << 20) + b'"}}]'
        result = converted(data)
        assert kernels(result) == KERNELS
        assert "call longer than" in said(result)
        result = converted(LOG.encode() + b"x" * (4 << 20) + b"\n" + as_text(CALLS))
        assert kernels(result) == KERNELS
        assert "line longer than" in said(result)


def test_many_small_errors_are_one_line_each_kind(converted: Converted) -> None:
    run = Program()
    run.program()
    run.kernel("k", "0x60")
    run.enqueue("k", "0x60")
    calls: list[Any] = [*run.calls, *([{"call": 3}, [], None, {"call": "clEnqueueNDRangeKernel", "gws": "x"}] * 5000)]
    result = converted(as_json(calls, indent=None))
    assert kernels(result) == 1
    assert len(result.report) < 20
    assert max(len(line) for line in result.report) < 600
