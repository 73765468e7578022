"""The line of Python that made each launch, against a reading of the test's own; base name and line alone."""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import mio2trace
from mio2trace.cli import cli
from mio2trace.model.profile import Profile
from mio2trace.readers.torch.frames import function_of
from mio2trace.trace import Slice
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, Row, row, trace

SAMPLES = (
    "kineto_mi300x_flux_graph_capture.json.gz", "kineto_mi300x_resnet_train_ddp.json.gz",
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
    """The innermost outside of torch, or none."""
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
        row("cuda_runtime", "hipLaunchKernel", 7, thread, FIRST_US + 42, 2, External_id=5, correlation=71),
        row("kernel", "gemm", 2, 0, FIRST_US + 60, 8, device=2, stream=0, correlation=71),
    ]


def frame(name: str, begin: float, length: float, own: int, parent: int | None, thread: int = 7) -> Row:
    return row(
        "python_function", name, 7, thread, FIRST_US + begin, length, Python_id=own, Python_parent_id=parent
    )  # fmt: skip


def read(folder: Path, events: list[Row]) -> Profile:
    path = folder / "made.json"
    path.write_bytes(trace(events))
    alignment = mio2trace.analyse([path]).run.alignment
    assert alignment is not None
    return alignment.profile


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
    ],
)  # fmt: skip
def test_chains(frames: list[Row], line: str | None, own: str | None, tmp_path: Path) -> None:
    """Of frameworks, libraries, functions that have ended, rows that are their own parent or whose parent is lost."""
    profile = read(tmp_path, made(*frames))
    told = profile.source_lines(profile.activities[0])
    assert tuple(None if one is None else str(one) for one in told) == (line, own)


def test_the_backward_pass_begins_in_the_call_of_backward(tmp_path: Path) -> None:
    """On a thread of its own: by the ids of parents, not by time."""
    frames = [MAIN, frame("torch/autograd/function.py(300): apply", 20, 50, 2, 1, thread=8)]
    profile = read(tmp_path, made(*frames, thread=8))
    assert str(profile.source_lines(profile.activities[0])[0]) == "train.py:12"


def test_order_in_the_file_does_not_matter(tmp_path: Path) -> None:
    """Nor whether ids are dense."""
    inner = frame("model.py(3): f", 10, 100, 1 << 40, 1)
    for frames in ([MAIN, inner], [inner, MAIN]):
        profile = read(tmp_path, made(*frames))
        assert str(profile.source_lines(profile.activities[0])[0]) == "model.py:3"


def test_it_is_in_the_trace_and_in_the_table(tmp_path: Path) -> None:
    """``source`` of the kernel's slice, and a column of operations: no path, no function."""
    path = tmp_path / "made.json"
    path.write_bytes(trace(made(MAIN, frame("aiter/jit/core.py(804): wrapper", 10, 100, 2, 1))))
    result = mio2trace.convert(path, output=tmp_path / "out.json")
    (kernel,) = [one for one in result.trace.events() if isinstance(one, Slice) and one.category == "kernel"]
    assert (kernel.args["source"], kernel.args["library_source"]) == ("train.py:12", "core.py:804")
    table = CliRunner().invoke(cli, ["ops", str(path), "--group-by", "source", "--format", "json", "-q"])
    assert json.loads(table.stdout)[0]["source"] == "train.py:12"
    assert b"someone" not in (tmp_path / "out.json").read_bytes()


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
    events = json.loads(trace(rows))
    events["deviceProperties"] = [{"id": 0, "name": "AMD Instinct MI300X"}]
    (tmp_path / "trace.json").write_text(json.dumps(events))
    result = CliRunner().invoke(cli, ["report", str(tmp_path / "trace.json"), "--format", "json"])
    found = {one["id"]: one["number"] for one in json.loads(result.stdout)["runs"][0]["findings"]}
    assert "hipStreamSynchronize" in found["idle"]
    assert "in hipStreamSynchronize at train.py:88)" in found["idle"]
    assert "Gemm 64x64 (train.py:88) has 1 tile" in found["small-gemm"]


def idle(tmp_path: Path, *frames: Row) -> tuple[str, str]:
    """The finding and its advice of a step of 300 ms whose first launch is after 250 ms, and others 0.1 ms apart."""
    rows: list[Row] = [row("user_annotation", "ProfilerStep#6", 7, 7, FIRST_US, 300_000), *frames]
    for number in range(20):
        at = FIRST_US + 250_000 + 100 * number
        rows.append(row("cuda_runtime", "hipLaunchKernel", 7, 7, at, 5, correlation=number + 1))
        rows.append(row("kernel", "k", 0, 0, at + 8, 40, correlation=number + 1, device=0, stream=0))
    rows += [
        row("cpu_op", "aten::mm", 7, 7, FIRST_US + 250_000, 7, External_id=1),
        row("cuda_runtime", "hipLaunchKernel", 7, 7, FIRST_US + 299_000, 5, correlation=99),
        row("kernel", "k", 0, 0, FIRST_US + 299_010, 980, correlation=99, device=0, stream=0),
    ]
    path = tmp_path / "trace.json"
    path.write_bytes(trace(rows))
    result = CliRunner().invoke(cli, ["report", str(path), "--format", "json"])
    (found,) = [one for one in json.loads(result.stdout)["runs"][0]["findings"] if one["id"] == "idle"]
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


def test_stacks_are_asked_for_only_if_none_were_recorded(tmp_path: Path) -> None:
    number, advice = idle(tmp_path)
    assert "ms host-bound in 22 gaps, the longest 250.0 ms." in number
    assert advice.startswith("The longest gap takes 250.0 ms, in no recorded call: look at what the program does")
    assert advice.endswith("; with_stack=True records it.")
    number, advice = idle(tmp_path, FRAMES[0])
    assert "(298.2 ms of it in train.py:12 main) in 22 gaps, the longest 250.0 ms." in number
    number, advice = idle(tmp_path, frame("app/train.py(12): main", 250_000, 20_000, 1, None))
    assert "ms host-bound in 22 gaps, the longest 250.0 ms." in number
    assert advice.endswith("; --host-calls draws its functions.")


def test_only_functions_of_long_gaps_are_kept(tmp_path: Path) -> None:
    """Each that lasts for a tenth of a gap; no framework's, no built-in, no short one."""
    short = [frame(f"app/model.py({number}): f", 250_000 + 100 * number, 90, 10 + number, 1) for number in range(20)]
    idle(tmp_path, *FRAMES, *short)
    profile = mio2trace.analyse([tmp_path / "trace.json"]).runs[0].profiles[0]
    assert {one.text for one in profile.functions} == {
        "train.py:12 main", "video.py:129 preprocess", "resize.py:5 resize",
    }  # fmt: skip
    assert not [one for one in profile.ranges if one.kind == "frame"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("torch/nn/modules/module.py(1740): _call_impl", None),
        ("/home/me/train.py(3): f", None),  # the rules for paths cut it
        ("<built-in method item of Tensor object at 0x7f>", None),
        ("<frozen runpy>(3): _run_module_as_main", None),
        ("nn.Module: Linear_0", None),
        ("/srv/--password x/--password x train.py(12): run y", "train.py(12): run y"),
        ("//node/share/a.py(1): f", "a.py(1): f"),
        ("C:\\work\\b.py(1): f", "b.py(1): f"),
        ("git@host:me/my.git c.py(7): g", "c.py(7): g"),
    ],
)
def test_of_an_odd_path_the_base_name_is_left(name: str, shown: str | None) -> None:
    assert function_of(name) == (name if shown is None else shown)


def test_a_bundle_has_no_function(tmp_path: Path) -> None:
    """Neither in its records nor in its report. The lines of launches stay."""
    number, _ = idle(tmp_path, *FRAMES)
    assert "resize" in number
    out = tmp_path / "bug.zip"
    result = CliRunner().invoke(cli, ["bundle", str(tmp_path / "trace.json"), "-o", str(out)])
    assert result.exit_code == 0, result.output
    with zipfile.ZipFile(out) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    texts = [gzip.decompress(data) if name.endswith(".gz") else data for name, data in members.items()]
    assert any(b"host-bound" in text for text in texts)
    assert not [text for text in texts if b"preprocess" in text or b"resize" in text]
