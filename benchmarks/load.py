"""Large inputs: time, memory against its bound, and whether time grows in proportion. JSON lines.

    python benchmarks/load.py [--what profile,log] [--sizes 50MB,200MB,500MB,2GB] [--big 4GB] [--folder DIR]

Two inputs are grown from a real run (`grow.py`) to each size:

* ``profile``: more iterations, so more is kept; the log of the same run beside it;
* ``log``: the same run, whose log is filled up with what other programs and MIOpen's own chatter print, so that more is
  read and no more is kept.

Each is converted by a process of its own. ``peak_mb`` is the sum over all processes of the program (a shared page
counts once), ``bound_mb`` is what it may be: `BASE` and `PER_KEPT` for each thing kept (kernels, copies, timer marks,
lines of the log that tell something). The last line of each input has the exponents of processor and wall time over
size, the slope of a straight line through the logarithms: 1 is linear, `LARGEST_EXPONENT` the limit. Exit 1 when a
bound or the limit is passed.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from benchmarks.grow import grow, parse_size  # noqa: E402
from benchmarks.samples import SHARED, require  # noqa: E402

BASE = 64 << 20
"""Bytes: Python, the libraries, the blocks on their way, for two processes."""
PER_KEPT = 2000
"""Bytes for each thing kept, the copy that a second process hands over included."""
LARGEST_EXPONENT = 1.1
FILLER = (
    b"MIOpen(HIP): Info2 [GetPerfDb] Unable to load perf db for conv 3-227-227-11x11-96-55-55-{n}-0x0-4x4-1x1-0-NCHW\n",
    b"MIOpen(HIP): Info2 [SearchForAllSolutions] ConvAsm3x3U: Not applicable\n",
    b"[ 12%] Building CXX object src/CMakeFiles/x.dir/file{n}.cpp.o\n",
    b"epoch {n}: loss 0.4512, accuracy 0.8134, 812.3 images per second, learning rate 0.01\n",
    b"W tensorflow/core/common_runtime/bfc_allocator.cc:243] Allocator ran out of memory trying to allocate {n} KiB\n",
)


def filled(log: Path, size: int, target: Path) -> None:
    """The lines of ``log``, and between them as many others as make it ``size`` bytes."""
    lines = log.read_bytes().splitlines(keepends=True)
    missing = max(0, size - sum(map(len, lines)))
    share = missing // max(1, len(lines))
    number = 0
    with open(target, "wb", buffering=1 << 20) as out:
        for line in lines:
            out.write(line)
            done = 0
            while done < share:
                batch = b"".join(
                    FILLER[(number + k) % len(FILLER)].replace(b"{n}", b"%d" % (number + k)) for k in range(64)
                )
                number += 64
                done += out.write(batch)


class Watch(threading.Thread):
    """The memory of a process and its children, sampled: the proportional share of each page."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self._process = process
        self._ended = threading.Event()
        self.peak = 0

    def run(self) -> None:
        while not self._ended.wait(0.05):
            self.peak = max(self.peak, sum(map(_share, _family(self._process))))

    def end(self) -> int:
        self._ended.set()
        self.join()
        return self.peak


def _family(process: int) -> list[int]:
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return [process]
    return [process, *(one for child in children for one in _family(int(child)))]


def _share(process: int) -> int:
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


def convert(files: Sequence[Path], folder: Path) -> dict[str, Any]:
    """Time and memory of one conversion, and how much it kept."""
    out, summary = folder / "out.json", folder / "summary.json"
    command = [sys.executable, "-m", "mio2trace", *map(str, files), "-o", str(out), "--summary", str(summary), "-q"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT)
    watch = Watch(process.pid)
    watch.start()
    code = process.wait()
    seconds = time.monotonic() - began
    peak = watch.end()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code:
        raise SystemExit(f"load: {' '.join(command)}: exit {code}")
    found = orjson.loads(summary.read_bytes())["attribution"]
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    output = out.stat().st_size
    out.unlink()
    kept = found["kernels"] + found["copies"]
    return {"seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2), "peak": peak, "kernels": kept, "output": output}


def kept_records(made: dict[str, int], kernels: int, log: Path) -> int:
    """What the records hold: kernels and copies, timer marks, and the lines of the log that tell something."""
    with open(log, "rb") as lines:
        events = sum(1 for _ in lines)
    return kernels + 8 * made["iterations"] + events


def measure(what: str, size: int, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One size of one input; the files are removed again."""
    place = folder / f"{what}-{size}"
    if what == "profile":
        made = grow(args.profile, args.log, size, place)
        log = place / "run.log"
    else:
        made = grow(args.profile, args.log, 20_000_000, place)
        filled(place / "run.log", size, place / "filled.log")
        log = place / "filled.log"
    measured = place / "prof.json" if what == "profile" else log
    size = measured.stat().st_size
    found = convert([log, place / "prof.json"], place)
    kept = kept_records(made, found["kernels"], place / "run.log")
    bound = BASE + PER_KEPT * kept
    for path in place.iterdir():
        path.unlink()
    place.rmdir()
    peak = found.pop("peak")
    return {
        "what": what,
        "bytes": size,
        **found,
        "kept": kept,
        "peak_mb": peak >> 20,
        "bound_mb": bound >> 20,
        "within_bound": peak <= bound,
    }


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of the line of least squares through the logarithms."""
    xs, ys = [math.log(size) for size in sizes], [math.log(value) for value in seconds]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread


def main(argv: Sequence[str] | None = None) -> int:
    shared = SHARED / "samples" / "dvdt"
    parser = argparse.ArgumentParser(description="Time, memory and proportion of large inputs.")
    parser.add_argument("--profile", type=Path, default=shared / "alexnet-b1-train.prof.json")
    parser.add_argument("--log", type=Path, default=shared / "alexnet-b1-train.run.log")
    parser.add_argument("--what", default="profile,log", help="which inputs")
    parser.add_argument("--sizes", default="50MB,200MB,500MB,2GB", help="for the exponent")
    parser.add_argument("--big", default="4GB", help="also measured, but not for the exponent; empty: none")
    parser.add_argument("--folder", type=Path, help="where the inputs are made (default: the system's folder)")
    args = parser.parse_args(argv)
    require("--profile", args.profile)
    require("--log", args.log)
    broken = False
    for what in args.what.split(","):
        found = []
        sizes = [parse_size(size) for size in args.sizes.split(",")]
        for size in [*sizes, *([parse_size(args.big)] if args.big else [])]:
            with tempfile.TemporaryDirectory(dir=args.folder) as folder:
                found.append(measure(what, size, args, Path(folder)))
            print(orjson.dumps(found[-1]).decode(), flush=True)
            broken |= not found[-1]["within_bound"]
        if len(sizes) > 1:
            lengths = [one["bytes"] for one in found[: len(sizes)]]
            slopes = {
                f"{clock}_exponent": round(exponent(lengths, [one[clock] for one in found[: len(sizes)]]), 3)
                for clock in ("cpu_seconds", "seconds")
            }
            print(orjson.dumps({"what": what, **slopes, "limit": LARGEST_EXPONENT}).decode(), flush=True)
            broken |= slopes["cpu_seconds_exponent"] > LARGEST_EXPONENT
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
