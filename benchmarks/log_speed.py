"""How fast a MIOpen log is read, against Python's own loop over its lines in the same run: one JSON line.

    python benchmarks/log_speed.py [--size 1GB] [--repeat 3] [--mixed] [--log run.log ...]

The log is made of the MIOpen lines of real ones (``--mixed``: and Caffe's), repeated, with other addresses in each
repetition. Measured, each in a process of its own, the best of all repetitions:

* ``read_ratio``: reading it to records over ``for line in open(f, "rb"): pass``;
* ``operations_ratio``: reading it and making its operations over the same (limit 6);
* ``read_cpu_ratio``, ``operations_cpu_ratio``: the same in processor time of the main thread;
* ``read_peak_bytes``, ``operations_peak_bytes``: peak resident memory; ``operations_bytes`` are the objects that the
  operations consist of, ``beside_operations_bytes`` the rest of that peak (limit 300 MB).

Nothing here is asserted in a test.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from benchmarks.samples import SHARED, require  # noqa: E402

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
LIMITS = {"operations_ratio": 6.0, "beside_operations_bytes": 300e6}
SETS = ("m290-resnet-train-entries-cmd", "m121-resnet-train-entries-cmd", "m290-alexnet-infer-level6-cmd")
ADDRESS = re.compile(rb"(?<= )0x[0-9a-f]{9,12}(?=\n|,)")
NOT_MIOPEN = re.compile(rb"\[dv/dt\]|[IWEF](?:\d{4})?\d{4} ")
NOT_LOG = re.compile(rb"\[dv/dt\]")

LOOP = """
import sys, time
start, busy = time.perf_counter(), time.thread_time()
for line in open(sys.argv[1], "rb"):
    pass
print(time.perf_counter() - start, time.thread_time() - busy)
"""

READ = """
import gc, os, resource, sys, time
gc.disable()  # as the program does
from mio2trace.model.miopen import MiopenLog
from mio2trace.notes import Notes
from mio2trace.ops import operations
from mio2trace.readers import run_log
from mio2trace.readers.base import ReadOptions
from mio2trace.source import Source

start, busy = time.perf_counter(), time.thread_time()
source = Source(sys.argv[1], 0, Notes())
log = next(one for one in run_log.read(source, ReadOptions(), Notes()) if isinstance(one, MiopenLog))
source.close()
size = made = 0
if sys.argv[2:]:
    found = operations(log)
    made = len(found)
seconds, busy = time.perf_counter() - start, time.thread_time() - busy
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
if made:
    # What each operation holds for itself: its fields are shared with its equals, but for these.
    def held(thing):
        return (sys.getsizeof(thing) + 15) // 16 * 16  # as it is allocated

    size = held(found) + sum(
        held(one) + (4 if one.command_line else 3) * 32
        + (held(one.arguments) if one.arguments else 0) + sum(held(pair) + 32 for pair in one.arguments)
        + (held(one.launches) if one.launches else 0)
        + sum(held(x) + 32 + held(x.gws) + held(x.lws) for x in one.launches)
        + (held(one.gemms) if one.gemms else 0) + sum(held(x) + 32 for x in one.gemms)
        for one in found
    )
print(seconds, busy, peak, len(log.records), made, size)
sys.stdout.flush()
os._exit(0)
"""


def grown(logs: Sequence[Path], size: int, without: re.Pattern[bytes] = NOT_MIOPEN) -> Iterator[bytes]:
    """The logs one after another, each time with addresses moved by whole pages; the same input, the same bytes."""
    texts = [
        b"".join(line for line in path.read_bytes().splitlines(keepends=True) if not without.match(line))
        for path in logs
    ]
    pieces = [(re.split(ADDRESS, text), [int(found, 16) for found in ADDRESS.findall(text)]) for text in texts]
    moves = random.Random(1)
    done = 0
    while done < size:
        for between, addresses in pieces:
            move = moves.randrange(1 << 24) << 12
            moved = [b"0x%x" % (address + move) for address in addresses] + [b""]
            part = b"".join(piece for pair in zip(between, moved, strict=True) for piece in pair)
            done += len(part)
            yield part


def measured(script: str, *arguments: str) -> list[float]:
    """The numbers that a script prints."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return [float(word) for word in done.stdout.split()]


def measure(path: Path, repeat: int) -> dict[str, float]:
    """All numbers, the measurements taken in turn, so that a busy moment of the machine does not meet one only."""
    rounds = [
        (measured(LOOP, str(path)), measured(READ, str(path)), measured(READ, str(path), "operations"))
        for _ in range(repeat)
    ]
    loop, read, whole = (min(column) for column in zip(*rounds, strict=True))
    return {
        "bytes": path.stat().st_size,
        "records": int(read[3]),
        "operations": int(whole[4]),
        "loop_seconds": round(loop[0], 3),
        "read_seconds": round(read[0], 3),
        "operations_seconds": round(whole[0], 3),
        "read_ratio": round(read[0] / loop[0], 2),
        "operations_ratio": round(whole[0] / loop[0], 2),
        "read_cpu_ratio": round(read[1] / loop[1], 2),
        "operations_cpu_ratio": round(whole[1] / loop[1], 2),
        "read_peak_bytes": int(read[2]),
        "operations_peak_bytes": int(whole[2]),
        "operations_bytes": int(whole[5]),
        "beside_operations_bytes": int(whole[2] - whole[5]),
    }


def main(argv: Sequence[str] | None = None) -> int:
    samples = SHARED / "samples" / "miopen-opencl"
    parser = argparse.ArgumentParser(description="Measure the reading of a MIOpen log against a loop over its lines.")
    parser.add_argument("--log", type=Path, nargs="+", default=[samples / name / "run.log" for name in SETS])
    parser.add_argument("--size", default="1GB")
    parser.add_argument("--mixed", action="store_true", help="with Caffe's lines")
    parser.add_argument("--repeat", type=int, default=3, help="take the best of N runs (default 3)")
    args = parser.parse_args(argv)
    require("--log", *args.log)
    number, unit = re.fullmatch(r"(\d+)([KMG]?)B?", args.size.upper()).groups()  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        path = Path(folder) / "run.log"
        with path.open("wb") as file:
            file.writelines(grown(args.log, int(number) * UNITS[unit], NOT_LOG if args.mixed else NOT_MIOPEN))
        result: dict[str, object] = {**measure(path, args.repeat)}
    result["over_limit"] = [name for name, limit in LIMITS.items() if float(str(result[name])) > limit]
    print(orjson.dumps(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
