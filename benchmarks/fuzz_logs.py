"""Mutated MIOpen logs through the decoder, the operations and the tables: nothing may raise.

    python benchmarks/fuzz_logs.py [--count 20000] [--seed 1] [LOG ...]

Pieces of real logs (by default those in ../shared, a third of them also with elapsed times) are cut, glued, repeated
and changed in bytes. Each is decoded by lines and by blocks, and both must agree; so must operations with and without
the use of equal ones. Prints how many logs, and how many records and operations they gave. The first log that fails is
written to ``failing.log``.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from benchmarks.samples import SHARED, require  # noqa: E402
from mio2trace.model.miopen import MiopenLog  # noqa: E402
from mio2trace.notes import Notes  # noqa: E402
from mio2trace.ops import operations  # noqa: E402
from mio2trace.ops.log import Assembly  # noqa: E402
from mio2trace.readers.miopen import MiopenDecoder  # noqa: E402
from mio2trace.reports import FORMS, grouped, ops, print_table  # noqa: E402
from tests import miopen_blocks  # noqa: E402

TOKENS = (
    b"\r", b"\n", b"\0", b"}", b"{", b" = ", b"\t", b"0x0", b"nullptr", b"-1", b"99999999999999999999",
    b"MIOpen(HIP): ", b"MIOpen: ", b"12 MIOpen(HIP)   0.559: ", b"\x1b[31m", b"Command [", b", ", b"{}",
    b"miopenStatus_t miopenX(int){",
    b"\xff\xfe", b"0",
)  # fmt: skip


def mutated(texts: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Logs of some KB made of pieces of ``texts``; the same seed gives the same logs."""
    choose = random.Random(seed)
    for _ in range(count):
        parts = []
        for _ in range(choose.randint(1, 3)):
            text = choose.choice(texts)
            begin = choose.randrange(len(text))
            parts += [text[begin : begin + choose.choice((60, 600, 3000))]] * choose.choice((1, 1, 1, 2, 4))
        data = bytearray(b"".join(parts))
        for _ in range(choose.choice((0, 1, 2, 5, 12))):
            at = choose.randrange(len(data) + 1)
            kind = choose.randrange(4)
            if kind == 0:
                data[at : at + choose.randint(1, 40)] = b""
            elif kind == 1:
                data[at:at] = choose.choice(TOKENS)
            elif kind == 2:
                data[at : at + 1] = bytes((choose.randrange(256),))
            else:
                other = choose.randrange(len(data) + 1)
                data[at:at] = data[other : other + choose.randint(1, 200)]
        yield bytes(data)


def lines(data: bytes) -> list[bytes]:
    *whole, last = data.split(b"\n")
    return [*(line + b"\n" for line in whole), *([last] if last else [])]


def decoded(data: bytes) -> MiopenLog:
    """The log, by lines and by blocks. Raises what must not be raised, AssertionError when the two differ."""
    decoder = MiopenDecoder(0, Notes())
    for number, line in enumerate(lines(data), 1):
        decoder.feed(number, line)
    log = decoder.finish()
    blocks = miopen_blocks.decoded(data[at : at + 700] for at in range(0, len(data), 700))
    assert blocks == log, "by blocks another log than by lines"
    return log


def check(data: bytes) -> tuple[int, int]:
    """Records and operations of one log, printed in every form."""
    log = decoded(data)
    found = operations(log)
    assert found == Assembly(log, repeats=False).result(), "repeated calls are not what they would be alone"
    table = ops.table([("log", found)])
    for form in FORMS:
        for _ in print_table(table, form):
            pass
    grouped(table, ["problem"])
    for _ in print_table(ops.seed_table(found), "csv"):
        pass
    ops.driver_lines(found)
    ops.driver_lines(found, "2.3")
    ops.coverage_row("log", log, found, 0)
    return len(log.records), len(found)


def main(argv: Sequence[str] | None = None) -> int:
    samples = SHARED / "samples"
    parser = argparse.ArgumentParser(description="Mutated MIOpen logs: nothing may raise.")
    parser.add_argument("logs", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if not args.logs:
        require("LOGS", samples)
    paths = args.logs or [*samples.glob("miopen-logs/*.txt"), *samples.glob("miopen-opencl/*/run.log")]
    texts = [path.read_bytes() for path in sorted(paths)]
    texts += [re.sub(rb"(MIOpen\((?:HIP|OpenCL)\)): ", rb"\1   0.125: ", text) for text in texts[::3]]
    records = made = count = 0
    for data in mutated(texts, args.count, args.seed):
        try:
            more = check(data)
        except BaseException:
            Path("failing.log").write_bytes(data)
            raise
        records, made, count = records + more[0], made + more[1], count + 1
    print(orjson.dumps({"logs": count, "records": records, "operations": made, "failures": 0}).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
