"""The law of fuzzing can be broken: each rule on a picture, each look at a case, the time, faults counted once."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.fuzz_logs import check, decoded, mutated
from benchmarks.log_speed import grown
from mio2trace.model.miopen import Command, MiopenLog
from mio2trace.notes import Notes
from mio2trace.readers import run_log
from mio2trace.readers.base import ReadOptions
from mio2trace.source import Source
from mio2trace.trace import Trace
from mio2trace.writers import encoder
from tests.fuzz import law, looks, rules
from tests.native_packets import Drawn, Picture, read_native
from tests.small_runs import as_json, benchmark
from tests.test_miopen_log import MIXED
from tests.test_ops import conv_entry, entry

CALLS, LOG = benchmark()
FILES = [LOG.encode(), as_json(CALLS)]
KERNEL = Drawn("GPU", "Queue", 10, 5, "k", "kernel", {"gws": "8x1x1"})
LAYER = Drawn("GPU", "Queue", 5, 20, "conv1", "layer", {})
CALL = Drawn("Host", "API", 0, 4, "clEnqueueNDRangeKernel", "api", {})
TRACKS = [("GPU", "Queue"), ("Host", "API")]
ARROW = (1, ("Host", "API", 0, CALL.name), ("GPU", "Queue", 10, "k"))
GOOD = Picture([CALL, LAYER, KERNEL], [ARROW], [("GPU", "busy %", 10, 50.0)], TRACKS)


def with_args(**args: Any) -> Picture:
    return GOOD._replace(slices=[CALL, LAYER, KERNEL._replace(args=args)])


def with_kernel(**fields: Any) -> Picture:
    return GOOD._replace(slices=[CALL, LAYER, KERNEL._replace(**fields)])


@pytest.mark.parametrize(
    ("picture", "rule"),
    [
        (Picture([], [], [], []), "no slices"),
        (GOOD._replace(slices=[KERNEL._replace(start=1 << 53)]), "time is exact"),
        (GOOD._replace(slices=[KERNEL._replace(start=1 << 42)]), "starts near zero"),
        (GOOD._replace(tracks=[*TRACKS, TRACKS[0]]), "names of their own"),
        (with_kernel(duration=50), "slices nest"),
        (with_kernel(duration=-1), "no negative time"),
        (with_kernel(name=""), "a name and a category"),
        (with_kernel(name="k" * 251), "names are short"),
        (with_kernel(name="a\x1b"), "no control characters"),
        (with_args(a=None), "arguments are plain"),
        (with_args(a=""), "no empty arguments"),
        (with_args(a="nan"), "no leftovers"),
        (with_args(a="x\\u0000"), "no control characters"),
        (with_args(input_shape="1x-2"), "shapes are well formed"),
        (with_args(a=float("inf")), "arguments are finite"),
        (with_args(a=1 << 63), "no overflowed numbers"),
        (with_args(gemm={"M": 1, "N": 0, "K": 1}), "GEMM sizes"),
        (with_args(layer="conv1"), "links name their evidence"),
        (with_args(layer="conv2", layer_by="order"), "kernels lie in their layer"),
        (GOOD._replace(slices=[KERNEL, KERNEL._replace(start=20, args={"gws": 8})]), "argument types are stable"),
        (GOOD._replace(samples=[("GPU", "", 10, 0.0)]), "counters are named"),
        (GOOD._replace(samples=[("GPU", "busy %", 10, float("nan"))]), "counters are finite"),
        (GOOD._replace(samples=[("GPU", "busy %", 99, 0.0)]), "counters end inside"),
        (GOOD._replace(arrows=[(1, ARROW[1], ARROW[1])]), "arrows join two slices"),
        (GOOD._replace(arrows=[(1, ARROW[2], ARROW[1])]), "arrows do not point back"),
        (GOOD._replace(arrows=[ARROW, (2, *ARROW[1:])]), "one launch for a kernel"),
        (GOOD._replace(slices=[LAYER._replace(start=at, duration=300 - at) for at in range(102)]), "depth is sane"),
    ],
)
def test_a_broken_rule_is_seen(picture: Picture, rule: str) -> None:
    assert list(rules.broken_rules(GOOD)) == []
    assert any(rule in broken for broken in rules.broken_rules(picture))


def test_a_native_trace_that_differs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert law.judge(FILES, 0) == "trace"
    write = encoder.write

    def cut(trace: Trace, out: io.BytesIO, *, to_pack: bool) -> int:
        size = write(trace, out, to_pack=to_pack)
        return out.truncate(size - 1)

    monkeypatch.setattr(encoder, "write", cut)
    with pytest.raises(law.ViolationError, match="its packets are wrong"):
        law.judge(FILES, 0)
    monkeypatch.undo()
    monkeypatch.setattr(law, "read_native", lambda data, groups: read_native(data, groups)._replace(picture=GOOD))
    with pytest.raises(law.ViolationError, match="differs from Chrome JSON"):
        law.judge(FILES, 0)


def test_an_order_that_matters_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks.judge_order(FILES, "enqueue") == "trace"
    outcomes = iter([b"one", b"other", "refused", b"one"])
    monkeypatch.setattr(looks, "_outcome", lambda *_: next(outcomes))
    with pytest.raises(law.ViolationError, match="another order of the files: other bytes"):
        looks.judge_order(FILES, "enqueue")
    with pytest.raises(law.ViolationError, match="a trace or none"):
        looks.judge_order(FILES, "enqueue")


@pytest.mark.parametrize(
    ("words", "out", "said", "wrong"),
    [
        (("inspect",), '{"a": 1}\nx\n', "", "no JSON"),
        (("ops", "--format", "json"), "[NaN]", "", "no JSON"),
        (("kernels", "--format", "csv"), "a,b\n1\n", "", "several lengths"),
        (("kernels", "--format", "table"), "a\x1b[31m\n", "", "steer a terminal"),
        (("kernels", "--format", "csv"), "a\n", "note: \u202e\n", "steer a terminal"),
        (("driver",), "./bin/MIOpenDriver conv -n 1; touch x # 1 call\n", "", "no driver line"),
    ],
)
def test_an_output_that_is_wrong_is_seen(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], out: str, said: str, wrong: str
) -> None:
    class Done:
        exception, exit_code, stdout, stderr = None, 0, out, said

    monkeypatch.setattr(CliRunner, "invoke", lambda *_: Done())
    with pytest.raises(law.ViolationError, match=wrong):
        looks.judge_command(FILES, words)


# -- Damaged logs: what `benchmarks/fuzz_logs.py` does with 20,000, here with a few.


LONG = (conv_entry() * 2 + entry("ConvolutionForwardBias", bDesc="1, 4, 1, 1", b="0x7f00", yDesc="1, 4, 8, 8")) * 9
OWN = [
    LONG.encode(),
    LONG.replace("MIOpen(HIP):", "MIOpen(HIP)   1.250:").encode(),
    LONG.replace("MIOpen(HIP):", "8 MIOpen(HIP) (2026-11-20T11:39:11.363Z):").replace("\n", "\r\n").encode(),
    MIXED,
    (conv_entry() * 3 + entry("CreateTensorDescriptor", tensorDesc="0x1234") * 2).encode(),
    (conv_entry(x="0") + conv_entry(x="0x0") + conv_entry(x="0x7f00aa01aa") * 2).encode(),
]


def test_own_logs_that_were_damaged() -> None:
    assert sum(check(data)[1] for data in mutated(OWN, 400, 7)) > 200


@pytest.mark.shared
def test_real_logs_that_were_damaged(shared: Path) -> None:
    texts = [path.read_bytes() for path in sorted((shared / "samples" / "miopen-logs").glob("*.txt"))]
    assert sum(check(data)[0] for data in mutated(texts, 400, 7)) > 400


@pytest.mark.shared
def test_a_grown_log_by_blocks_is_the_same_as_by_lines(shared: Path, tmp_path: Path) -> None:
    """With other addresses in each repetition, and read from a file in between other programs' lines."""
    samples = shared / "samples" / "miopen-opencl"
    logs = [samples / name / "run.log" for name in ("m290-alexnet-infer-level6-cmd", "m121-lenet-infer")]
    data = b"".join(grown(logs, 600_000)).replace(b"\nMIOpen(OpenCL): Info2 [GetInvoker]", b"\nhello [GetInvoker]")
    log = decoded(data)
    assert len({one.call for one in log.records if hasattr(one, "call")}) * 2 < len(log.records)
    path = tmp_path / "run.log"
    path.write_bytes(data)
    source = Source(str(path), 0, Notes())
    found = [one for one in run_log.read(source, ReadOptions(), Notes()) if isinstance(one, MiopenLog)]
    source.close()
    assert [(one.records, one.counts) for one in found] == [(log.records, log.counts)]


def test_records_that_a_return_parts_are_all_read_again() -> None:
    """The second time as the first: no line that holds several is known by the first of them alone."""
    command = b"MIOpen(HIP): Command [x] ./bin/MIOpenDriver conv -n 1 -c 3 -H 8 -W 8 -k 4 -y 3 -x 3\n"
    line = b"MIOpen(HIP): Info [KernDb] database not present\r" + command
    log = decoded(line * 3)
    assert [record.line for record in log.records if isinstance(record, Command)] == [1, 2, 3]
    assert dict(log.counts)["level database"] == 3
