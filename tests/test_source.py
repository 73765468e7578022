"""Bytes come in as they are, whatever they are wrapped in and however they are cut."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import zipfile
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mio2trace
from mio2trace import source as source_module
from mio2trace.notes import InputError, Notes
from mio2trace.readers.kineto_frames import function_of
from mio2trace.source import HEAD, Source
from mio2trace.trace import Slice
from tests.commands import json_of, printed
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, Row, kineto_alignment, kineto_file, launched, row
from tests.small_runs import kinds

MARK = b"\xef\xbb\xbf"
LINES = b"one\ntwo\r\nthree\rstill three\n\nlast"


def of(data: bytes, notes: Notes | None = None, **options: Any) -> Source:
    return Source("-", 0, Notes() if notes is None else notes, stdin=io.BytesIO(data), **options)


def content(data: bytes) -> tuple[bytes, dict[str, int]]:
    """And what was noted."""
    with contextlib.closing(of(data, notes := Notes())) as source:
        return source.read(), kinds(notes)


UTF_16 = LINES.decode().encode("utf-16")
WRAPPED = {
    "plain": LINES,
    "gzip": gzip.compress(LINES),
    "two members": gzip.compress(LINES[:10]) + gzip.compress(LINES[10:]),
    "a short first member": gzip.compress(LINES[:1]) + gzip.compress(LINES[1:]),
    "an empty first member": gzip.compress(b"") + gzip.compress(LINES),
    "gzip in gzip": gzip.compress(gzip.compress(LINES)),
    "padded gzip": gzip.compress(LINES) + bytes(512),
    "mark of UTF-8": MARK + LINES,
    "mark of UTF-8 in gzip": gzip.compress(MARK + LINES),
    "mark over members": gzip.compress(MARK[:1]) + gzip.compress(MARK[1:]) + gzip.compress(LINES),
    "UTF-16": UTF_16,
    "UTF-16 big-endian": b"\xfe\xff" + LINES.decode().encode("utf-16-be"),
    "UTF-16 in gzip": gzip.compress(UTF_16),
}


@pytest.mark.parametrize("block", [source_module.BLOCK, 7])
@pytest.mark.parametrize("how", WRAPPED)
def test_content_stays_in_any_wrapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, block: int) -> None:
    """Compression, marks and encodings are undone, with nothing to report, whatever the size of the blocks. What must
    be decoded from the start has no plain path."""
    monkeypatch.setattr(source_module, "BLOCK", block)
    (tmp_path / "in").write_bytes(WRAPPED[how])
    with contextlib.closing(Source(str(tmp_path / "in"), 0, notes := Notes())) as source:
        assert (source.plain_path != "") == (how == "plain")
        assert source.read() == LINES
    assert kinds(notes) == {}


def test_size_and_hash_are_those_of_the_file_on_disk(tmp_path: Path) -> None:
    """Also of a compressed one, and when a reader stops early; progress is told in its bytes."""
    packed = gzip.compress(os.urandom(300_000)) + gzip.compress(b"x")
    (tmp_path / "in").write_bytes(packed)
    told: list[tuple[str, int, int]] = []
    source = Source(str(tmp_path / "in"), 0, Notes(), progress=lambda *args: told.append(args))
    assert len(source.head) == HEAD
    source.drain()
    source.close()
    assert (source.size, source.sha256) == (len(packed), hashlib.sha256(packed).hexdigest())
    assert told[-1] == ("in", len(packed), len(packed))


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"bc"]), max_size=40).map(b"".join), st.integers(1, 9))
def test_lines_do_not_depend_on_the_blocks(data: bytes, size: int) -> None:
    """Joined they give the content; each ends with its line feed, but perhaps the last; a lone return ends none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_module, "BLOCK", size)
        with contextlib.closing(of(data)) as source:
            lines = list(source.lines())
    *whole, last = data.split(b"\n")
    assert lines == [line + b"\n" for line in whole] + [last] * bool(last)


@given(st.binary(max_size=300), st.integers(0, 1000))
def test_cut_gzip_gives_what_is_there(data: bytes, share: int) -> None:
    """A prefix of the content and a note; or a refusal when that is nothing."""
    packed = gzip.compress(data, mtime=0)
    try:
        got, notes = content(packed[: 2 + share * (len(packed) - 3) // 1000])
    except InputError as error:
        refused = str(error)
    else:
        assert got
        assert data.startswith(got)
        assert notes == {"file cut off: read up to there": 1}
        return
    assert "cut off" in refused


def test_damaged_gzip_is_read_up_to_the_damage() -> None:
    """Zlib gives a block or nothing; we give what came before, and say so."""
    data = b"".join(b"line %d\n" % number for number in range(20_000))
    packed = bytearray(gzip.compress(data))
    packed[-6] ^= 1  # the checksum: all of the content is there
    assert content(bytes(packed)) == (data, {"gzip data damaged: read up to there": 1})
    packed[len(packed) // 2] ^= 255
    assert content(bytes(packed))[0][:1000] == data[:1000]


def test_bytes_after_gzip_are_said_to_be_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `gzip -d` does."""
    monkeypatch.setattr(source_module, "BLOCK", 7)
    trailing = gzip.compress(LINES) + b"trailing bytes"
    assert content(trailing) == (LINES, {"bytes after the end of the gzip data ignored": 1})


def test_a_compressed_bomb_is_not_held_in_memory() -> None:
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join([packer.compress(bytes(1 << 20)) for _ in range(64)]) + packer.flush()
    with contextlib.closing(of(packed)) as source:
        sizes = [len(block) for block in source.blocks()]
    assert max(sizes) <= source_module.BLOCK
    assert sum(sizes) == 64 << 20


def test_standard_input_stays_open() -> None:
    stream = io.BytesIO(LINES)
    with contextlib.closing(Source("-", 0, Notes(), stdin=stream)) as source:
        assert (source.name, source.read(), source.plain_path) == ("standard input", LINES, "")
    assert not stream.closed


def test_error_empty_and_marked_gzip_files_are_told_apart() -> None:
    for data in (b"", MARK, gzip.compress(b"")):
        assert content(data) == (b"", {})
    with pytest.raises(InputError, match=r"^standard input: damaged gzip data, nothing can be read"):
        content(b"\x1f\x8bnonsense that is no gzip")
    with pytest.raises(InputError, match=r"^standard input: file cut off after 5 bytes of gzip data"):
        content(gzip.compress(LINES)[:5])


def test_error_paths_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with the path and the reason. If reading fails in the middle, it also says how far it came."""

    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell():
                raise OSError(5, "Input/output error")
            return super().read(10)

    with pytest.raises(InputError, match=r"missing\.log: No such file or directory$"):
        Source(str(tmp_path / "missing.log"), 0, Notes())
    with pytest.raises(InputError, match="is a folder without"):
        Source(str(tmp_path), 0, Notes())
    with pytest.raises(InputError, match="standard input: Input/output error after 10 bytes"):
        Source("-", 0, Notes(), stdin=Failing(bytes(100)))
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InputError, match="standard input: closed"):
        Source("-", 0, Notes())


@pytest.mark.parametrize(("limit", "has_path"), [(None, True), (1 << 20, True), ((1 << 20) - 1, False)])
def test_a_file_larger_than_the_limit_has_no_plain_path(limit: int | None, has_path: bool, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(bytes(1 << 20))
    with contextlib.closing(Source(str(tmp_path / "in"), 0, Notes(), max_input=limit)) as source:
        assert source.plain_path == (str(tmp_path / "in") if has_path else "")


# -- The line of Python that made each launch, against a reading of the test's own; base name and line alone.


SAMPLES = (
    *(pytest.param(f"kineto_mi300x_{large}.json.gz", marks=pytest.mark.thorough)
      for large in ("flux_graph_capture", "resnet_train_ddp")),
    "kineto_mi300x_vit_infer.json.gz", "kineto_mi300_bert_small.json.gz", "graphs/sglang_prefilldecode.json.gz",
    "graphs/vllm_decode_full.capture.json.gz", "graphs/vllm_decode_full.replay.json.gz",
)  # fmt: skip
FRAMEWORK = ("torch/", "triton/", "importlib/")


def is_framework(name: str) -> bool:
    return (
        name.startswith(("<", "nn.Module: "))
        or any(name.startswith(one) or f"/{one}" in name for one in FRAMEWORK)
        or re.search(r"(^|/)torch_guard\.py\(", name) is not None
        or "torchinductor_" in name
    )


def independently(path: Path) -> dict[int, str | None]:
    """By correlation: ``file.py:line`` of the innermost frame outside of torch. Innermost by time on the thread, its
    ancestors by id; a row that ends behind its parent lacks its own end and holds nothing."""
    data = path.read_bytes()
    events = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)["traceEvents"]

    def span(event: dict[str, Any]) -> tuple[int, int]:
        start = round(event["ts"] * 1000)
        return start, start + round(event["dur"] * 1000)

    frames = {one["args"]["Python id"]: one for one in events if one.get("cat") == "python_function"}
    device = {
        one["args"].get("correlation") for one in events if one.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    }
    by_thread: dict[Any, list[Any]] = defaultdict(list)
    for one in frames.values():
        parent = frames.get(one["args"].get("Python parent id"))
        if parent is None or parent["tid"] != one["tid"] or span(one)[1] <= span(parent)[1] + 2:
            by_thread[one["pid"], one["tid"]].append((*span(one), one))
    for rows in by_thread.values():
        rows.sort(key=lambda made: (made[0], -made[1]))
    found: dict[int, str | None] = {}
    calls = [one for one in events if one.get("cat") in ("cuda_runtime", "cuda_driver") and "args" in one]
    for thread, rows in by_thread.items():
        own = sorted((span(one), one["args"]["correlation"]) for one in calls if (one["pid"], one["tid"]) == thread)
        is_open: list[Any] = []
        at = 0
        for (start, end), key in own:
            while at < len(rows) and rows[at][0] <= start:
                is_open = [made for made in is_open if made[1] > rows[at][0]]
                is_open.append(rows[at])
                at += 1
            held = [made for made in is_open if made[1] >= end]
            step = held[-1][2] if held else None
            while step is not None and is_framework(step["name"]):
                step = frames.get(step["args"].get("Python parent id"))
            if key in device:
                found[key] = None if step is None else re.sub(r".*?([^/]+)\((\d+)\).*", r"\1:\2", step["name"])
    return found


@pytest.mark.shared
@pytest.mark.parametrize("name", SAMPLES)
def test_the_line_of_every_launch_of_a_sample(name: str) -> None:
    path = shared_folder() / "samples" / "rocm" / name
    true = independently(path)
    alignment = mio2trace.analyse([path]).run.alignment
    assert alignment is not None
    profile = alignment.profile
    told = 0
    for activity in profile.activities:
        if activity.call is None or activity.is_replayed or activity.correlation is None:
            continue
        line, own = profile.source_lines(activity)
        assert (None if line is None else str(line)) == true.get(activity.correlation), activity.correlation
        assert own is None or line is not None
        told += line is not None
    assert told
    assert not any("/" in one.file for one in profile.lines)


def made(*frames: Row, thread: int = 7) -> list[Row]:
    return [
        *frames,
        row("cpu_op", "aten::mm", 7, thread, FIRST_US + 40, 9, External_id=5),
        *(
            one | ({"tid": thread, "dur": 2} if one["pid"] == 7 else {})
            for one in launched(71, 42, 8, pid=7, External_id=5)
        ),
    ]


def frame(name: str, begin: float, length: float, own: int, parent: int | None, thread: int = 7) -> Row:
    ids = {"Python_id": own, "Python_parent_id": parent}
    return row("python_function", name, 7, thread, FIRST_US + begin, length, **ids)


def lines_of(folder: Path, events: list[Row]) -> tuple[str | None, ...]:
    """Return the source lines of the only kernel."""
    profile = kineto_alignment(folder, events).profile
    return tuple(None if one is None else str(one) for one in profile.source_lines(profile.activities[0]))


MAIN = frame("/home/someone/run/train.py(12): step", 0, 900, 1, None)


@pytest.mark.parametrize(
    ("frames", "line", "own"),
    [
        ([MAIN], "train.py:12", "train.py:12"),
        # one that ends behind what is around it lacks its own end; ten that have ended before the launch
        ([MAIN, frame("model.py(3): f", 10, 100, 2, 1), frame("lost.py(9): next", 15, 5000, 3, 2),
          *(frame(f"short.py({n}): g", 16 + n, 0.9, 4 + n, 2) for n in range(10))], "model.py:3", "model.py:3"),
        ([MAIN, frame("torch/nn/modules/module.py(1500): _call_impl", 10, 100, 2, 1)], "train.py:12", "train.py:12"),
        ([MAIN, frame("aiter/jit/core.py(804): wrapper", 10, 100, 2, 1)], "core.py:804", "train.py:12"),
        ([MAIN, frame("model.py(3): f", 10, 100, 2, 1), frame("<built-in method mm>", 30, 50, 3, 2)], "model.py:3",
         "model.py:3"),
        ([MAIN, frame("model.py(3): f", 10, 20, 2, 1)], "train.py:12", "train.py:12"),
        ([frame("model.py(3): f", 41.999, 100, 2, None)], "model.py:3", "model.py:3"),
        ([frame("model.py(3): f", 42.001, 100, 2, None)], None, None),
        ([frame("vllm/worker.py(9): run", 0, 100, 2, 77)], "worker.py:9", None),
        ([frame("model.py(3): f", 0, 100, 2, 2)], "model.py:3", "model.py:3"),
        ([frame("torch/a.py(3): f", 0, 100, 2, 3), frame("torch/b.py(3): f", 0, 100, 3, 2)], None, None),
        ([frame("model.py: f", 0, 100, 2, None)], None, None),
        ([], None, None),
        # the backward pass begins in the call of backward: on a thread of its own by the ids of parents, not by time
        ([MAIN, frame("torch/autograd/function.py(300): apply", 20, 50, 2, 1, thread=8)], "train.py:12", "train.py:12"),
        # in any order, with ids that are not dense
        ([MAIN, frame("model.py(3): f", 10, 100, 1 << 40, 1)], "model.py:3", "model.py:3"),
        ([frame("model.py(3): f", 10, 100, 1 << 40, 1), MAIN], "model.py:3", "model.py:3"),
    ],
)  # fmt: skip
def test_chains(frames: list[Row], line: str | None, own: str | None, tmp_path: Path) -> None:
    """Of frameworks, libraries, functions that have ended, rows that are their own parent or whose parent is lost."""
    thread = max((one["tid"] for one in frames), default=7)
    assert lines_of(tmp_path, made(*frames, thread=thread)) == (line, own)


def test_it_is_in_the_trace_and_in_the_table(tmp_path: Path) -> None:
    """``source`` of the kernel's slice, and a column of operations: no path, no function."""
    path = kineto_file(tmp_path, made(MAIN, frame("aiter/jit/core.py(804): wrapper", 10, 100, 2, 1)))
    result = mio2trace.convert(path, output=tmp_path / "out.json")
    (kernel,) = [one for one in result.trace.events() if isinstance(one, Slice) and one.category == "kernel"]
    assert (kernel.args["source"], kernel.args["library_source"]) == ("train.py:12", "core.py:804")
    assert json_of("ops", path, "--group-by", "source", "-q")[0]["source"] == "train.py:12"
    assert b"someone" not in (tmp_path / "out.json").read_bytes()


def findings(path: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json_of("report", path)["runs"][0]["findings"]
    return found


def test_findings_name_the_line_of_a_launch(tmp_path: Path) -> None:
    """Of the host call that a gap is in the line of the launch behind it; of a problem the line that launches it."""
    rows: list[Row] = []
    for step in range(3):
        at, key = FIRST_US + 10_000 * step, 10 * step
        rows += [
            row("user_annotation", f"ProfilerStep#{step}", 1, 1, at, 9_990),
            row("python_function", "app/train.py(12): main", 1, 1, at + 1, 9_900, Python_id=key + 1),
            row("python_function", "app/train.py(88): sync", 1, 1, at + 100, 9_000, Python_id=key + 2,
                Python_parent_id=key + 1),
            row("cuda_runtime", "hipStreamSynchronize", 1, 1, at + 200, 6_700, correlation=key + 5),
            row("cpu_op", "aten::mm", 1, 1, at + 6_910, 50, External_id=key + 6, Input_Dims=[[64, 64], [64, 64]],
                Input_type=["float", "float"], Concrete_Inputs=["", ""]),
        ]  # fmt: skip
        for number, (launch, start) in enumerate(((at + 20, at + 40), (at + 6_920, at + 7_000))):
            correlation, external = key + 3 + number, {"External_id": key + 6} if number else {}
            rows.append(row("cuda_runtime", "hipLaunchKernel", 1, 1, launch, 5, correlation=correlation, **external))
            rows.append(row("kernel", f"k{number}", 0, 0, start, 300 + 2_000 * number, correlation=correlation,
                            device=0, stream=0))  # fmt: skip
    path = kineto_file(tmp_path, rows, deviceProperties=[{"id": 0, "name": "AMD Instinct MI300X"}])
    found = {one["id"]: one["number"] for one in findings(path)}
    assert "hipStreamSynchronize" in found["idle"]
    assert "in hipStreamSynchronize at train.py:88)" in found["idle"]
    assert "Gemm 64x64 (train.py:88) has 1 tile" in found["small-gemm"]


def idle(tmp_path: Path, *frames: Row) -> tuple[str, str]:
    """The finding and its advice of a step of 300 ms whose first launch is after 250 ms, and others 0.1 ms apart."""
    rows: list[Row] = [row("user_annotation", "ProfilerStep#6", 7, 7, FIRST_US, 300_000), *frames]
    for number in range(20):
        rows += launched(number + 1, 250_000 + 100 * number, 40, pid=7, wait=8)
    rows.append(row("cpu_op", "aten::mm", 7, 7, FIRST_US + 250_000, 7, External_id=1))
    rows += launched(99, 299_000, 980, pid=7)
    (found,) = (one for one in findings(kineto_file(tmp_path, rows, "trace.json")) if one["id"] == "idle")
    return found["number"], found["try"]


FRAMES = (
    frame("app/train.py(12): main", -900_000, 1_250_000, 1, None),
    frame("app/video.py(129): preprocess", 10, 240_000, 2, 1),
    frame("torch/utils/data.py(7): fetch", 10, 239_000, 3, 2),
    frame("app/resize.py(5): resize", 1_000, 200_000, 4, 3),
    frame("<built-in method zoom>", 2_000, 150_000, 5, 4),
)
MOST = frame("app/train.py(1): most", -1_000, 251_010, 9, 1)


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (FRAMES, "200.0 ms of it in one gap, in resize.py:5 resize"),
        (FRAMES[::-1], "200.0 ms of it in one gap, in resize.py:5 resize"),
        (FRAMES[:3], "240.0 ms of it in one gap, in video.py:129 preprocess"),
        # a framework's, and one that lasts for less than half of the gap
        ((MOST, FRAMES[2]), "250.0 ms of it in one gap, in train.py:1 most"),
        ((MOST, frame("app/a.py(1): f", 0, 124_000, 6, 1)), "250.0 ms of it in one gap, in train.py:1 most"),
    ],
)
def test_the_function_of_a_long_gap_is_named(tmp_path: Path, frames: tuple[Row, ...], said: str) -> None:
    """The innermost one outside of the framework during most of it."""
    number, advice = idle(tmp_path, *frames)
    name = said.partition(" in one gap, in ")[2]
    assert f"ms host-bound ({said}) in 22 gaps." in number
    assert advice == f"The longest gap takes 250.0 ms: look at why the host is in {name} for so long."


def test_a_function_in_more_than_the_longest_gap_is_not_in_one_gap(tmp_path: Path) -> None:
    """Together its parts are shorter than that gap."""
    number, _ = idle(tmp_path, *FRAMES[:4], frame("app/resize.py(5): resize", 255_000, 30_000, 6, 1))
    assert "in one gap" not in number
    assert "(230.0 ms of it in resize.py:5 resize) in 22 gaps, the longest 250.0 ms." in number


def test_stacks_are_asked_for_only_if_none_were_recorded(tmp_path: Path) -> None:
    number, advice = idle(tmp_path)
    assert "ms host-bound in 22 gaps, the longest 250.0 ms." in number
    assert advice.startswith("The longest gap takes 250.0 ms, in no recorded call: look at what the program does")
    assert advice.endswith("; with_stack=True records it.")
    number, advice = idle(tmp_path, FRAMES[0])
    assert "(298.2 ms of it in train.py:12 main) in 22 gaps, the longest 250.0 ms." in number
    number, advice = idle(tmp_path, frame("app/train.py(12): main", 250_000, 20_000, 1, None))
    assert "ms host-bound in 22 gaps, the longest 250.0 ms." in number
    assert advice.endswith("; --host-calls all draws its functions (a bundle has none).")


def test_only_functions_of_long_gaps_are_kept(tmp_path: Path) -> None:
    """Each that lasts for a tenth of a gap; no framework's, no built-in, no short one."""
    short = [frame(f"app/model.py({number}): f", 250_000 + 100 * number, 90, 10 + number, 1) for number in range(20)]
    idle(tmp_path, *FRAMES, *short)
    profile = mio2trace.analyse([tmp_path / "trace.json"]).runs[0].profiles[0]
    assert {one.text for one in profile.functions} == {
        "train.py:12 main", "video.py:129 preprocess", "resize.py:5 resize",
    }  # fmt: skip
    assert not [one for one in profile.ranges if one.kind == "frame"]


ODD = {
    "/srv/--password x/--password x train.py(12): run y": "train.py(12): run y",
    "//node/share/a.py(1): f": "a.py(1): f",
    "C:\\work\\b.py(1): f": "b.py(1): f",
    "git@host:me/my.git c.py(7): g": "c.py(7): g",
}


def test_of_an_odd_path_the_base_name_is_left() -> None:
    """The rules for paths cut others."""
    assert {name: function_of(name) for name in ODD} == ODD
    others = ["torch/nn/modules/module.py(1740): _call_impl", "/home/me/train.py(3): f", "nn.Module: Linear_0"]
    others += ["<built-in method item of Tensor object at 0x7f>", "<frozen runpy>(3): _run_module_as_main"]
    assert [function_of(name) for name in others] == others


def test_a_bundle_has_no_function(tmp_path: Path) -> None:
    """Neither in its records nor in its report. The lines of launches stay."""
    number, _ = idle(tmp_path, *FRAMES)
    assert "resize" in number
    out = tmp_path / "bug.zip"
    printed("bundle", tmp_path / "trace.json", "-o", out)
    with zipfile.ZipFile(out) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    texts = [gzip.decompress(data) if name.endswith(".gz") else data for name, data in members.items()]
    assert any(b"host-bound" in text for text in texts)
    assert not [text for text in texts if b"preprocess" in text or b"resize" in text]
