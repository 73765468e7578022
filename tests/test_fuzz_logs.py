"""Damaged logs: what `benchmarks/fuzz_logs.py` does with 20,000, here with a few."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fuzz_logs import check, decoded, mutated
from benchmarks.log_speed import grown
from mio2trace.model.miopen import Command, MiopenLog
from mio2trace.notes import Notes
from mio2trace.readers import run_log
from mio2trace.readers.base import ReadOptions
from mio2trace.source import Source
from tests.test_miopen_log import MIXED
from tests.test_ops import conv_entry, entry

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
