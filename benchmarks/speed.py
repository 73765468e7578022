"""How fast, in ratios of one run on one machine: one JSON line.

    python benchmarks/speed.py [--size 500MB] [--repeat 3] [--linearity]

* ``time_ratio``: ``mio2trace run.log prof.json -o out.json`` from start to exit, over the time that ``orjson.loads``
  alone takes for the same profile (limit 0.6).
* ``memory_ratio``: the program's peak resident memory over the size of the profile (limit 1.5).
* ``help_ratio``: ``mio2trace --help`` over the ``--help`` of a script with one click command (limit 1.3).

Each measurement is a process of its own, and the best repetition counts. Both sides are measured in turn, so that a
busy moment of the machine does not slow only one of them. No test asserts these numbers. The program uses two
processors. ``cpu_seconds`` (user and system time of all its processes), ``processors`` and ``load`` (of the minute
before the start) show whether it had them.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from benchmarks.samples import SHARED, require  # noqa: E402

LIMITS = {"time_ratio": 0.6, "memory_ratio": 1.5, "help_ratio": 1.3}

# Reading the file is not counted, nor is freeing the objects: `orjson.loads` alone, as a script would call it. On a
# large profile most of that time is Python's garbage collector walking the new objects, so it is also measured with the
# collector off ("gc_off"), for comparison.
LOADS = """
import gc, sys, time, orjson
if sys.argv[2:] == ["gc off"]:
    gc.disable()
with open(sys.argv[1], "rb") as file:
    data = file.read()
start = time.perf_counter()
calls = orjson.loads(data)
sys.stdout.write(str(time.perf_counter() - start))
sys.stdout.flush()
__import__("os")._exit(0)
"""

ONE_COMMAND = """
import click

@click.command()
@click.argument("files", nargs=-1)
@click.option("-o", "--output", help="Where to write.")
def main(files, output):
    \"\"\"Do one thing.\"\"\"

main()
"""


class Run(NamedTuple):
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    output: str


def run(command: Sequence[str]) -> Run:
    """A process from start to exit. Its peak memory is the kernel's count; this process stays small, so that the
    child's count, which begins with its parent's size, is its own."""
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode()
    if process.returncode:
        raise SystemExit(f"speed: {' '.join(command)}: exit {process.returncode}")
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return Run(seconds, cpu_seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024), text)


def convert(folder: Path) -> Run:
    files = [str(folder / name) for name in ("run.log", "prof.json", "out.json")]
    return run([sys.executable, "-m", "mio2trace", *files[:2], "-o", files[2], "--quiet"])


def grown(profile: Path, log: Path, size: str, folder: Path) -> int:
    """Make the input, unless it is there; the number of its calls."""
    note = folder / "grown.json"
    if not note.exists():
        grow = [sys.executable, "benchmarks/grow.py", "--profile", str(profile), "--log", str(log)]
        text = run([*grow, "--size", size, "-o", str(folder)]).output
        note.write_text(text)
    return int(orjson.loads(note.read_bytes())["calls"])


def help_ratio(repeat: int) -> float:
    """The start of the program over the start of the smallest click program."""
    ours = shutil.which("mio2trace", path=str(Path(sys.executable).parent))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "one.py"
        script.write_text(ONE_COMMAND)
        commands = [
            [sys.executable, ours, "--help"] if ours else [sys.executable, "-m", "mio2trace", "--help"],
            [sys.executable, str(script), "--help"],
        ]
        # The first round fills the caches and is not counted.
        rounds = [[run(command).seconds for command in commands] for _ in range(repeat + 1)][1:]
    program, smallest = (min(column) for column in zip(*rounds, strict=True))
    return float(program / smallest)


def measure(folder: Path, calls: int, repeat: int) -> dict[str, float]:
    """The big ratios, on one grown run."""
    profile = folder / "prof.json"
    size = profile.stat().st_size
    loads: list[float] = []
    gc_off: list[float] = []
    ends: list[Run] = []
    for _ in range(repeat):
        script = [sys.executable, "-c", LOADS, str(profile)]
        loads.append(float(run(script).output))
        gc_off.append(float(run([*script, "gc off"]).output))
        ends.append(convert(folder))
    best = min(end.seconds for end in ends)
    peak = min(end.peak_bytes for end in ends)
    least = min(loads)
    return {
        "profile_bytes": size,
        "calls": calls,
        "orjson_seconds": round(least, 3),
        "orjson_gc_off_seconds": round(min(gc_off), 3),
        "seconds": round(best, 3),
        "cpu_seconds": round(min(end.cpu_seconds for end in ends), 3),
        "peak_bytes": peak,
        "calls_per_second": round(calls / best),
        "output_bytes": (folder / "out.json").stat().st_size,
        "time_ratio": round(best / least, 3),
        "time_ratio_gc_off": round(best / min(gc_off), 3),
        "memory_ratio": round(peak / size, 3),
    }


def linearity(profile: Path, log: Path, folder: Path, repeat: int) -> float:
    """The exponent of time over size between 50 MB and 200 MB: 1 is linear."""
    seconds = []
    for size in ("50MB", "200MB"):
        part = folder / size
        grown(profile, log, size, part)
        seconds.append(min(convert(part).seconds for _ in range(repeat)))
    return math.log(seconds[1] / seconds[0], 4)


def main(argv: Sequence[str] | None = None) -> int:
    shared = SHARED / "samples" / "dvdt"
    parser = argparse.ArgumentParser(description="Measure the program against orjson.loads and a bare click script.")
    parser.add_argument("--profile", type=Path, default=shared / "alexnet-b1-train.prof.json")
    parser.add_argument("--log", type=Path, default=shared / "alexnet-b1-train.run.log")
    parser.add_argument("--size", default="500MB")
    parser.add_argument("--repeat", type=int, default=3, help="take the best of N runs (default 3)")
    parser.add_argument("--folder", type=Path, help="keep the grown run here, and use it if it is there")
    parser.add_argument("--linearity", action="store_true", help="also the exponent of time over size")
    parser.add_argument("--only-help", action="store_true", help="the start of the program alone")
    args = parser.parse_args(argv)
    if not args.only_help:
        require("--profile", args.profile)
        require("--log", args.log)
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    result: dict[str, object] = {"processors": processors, "load": round(os.getloadavg()[0], 2)}
    with tempfile.TemporaryDirectory() as temporary:
        if not args.only_help:
            folder = (args.folder or Path(temporary)) / re.sub(r"\W", "", args.size)
            result |= measure(folder, grown(args.profile, args.log, args.size, folder), args.repeat)
        if args.linearity:
            folder = args.folder or Path(temporary)
            result["exponent"] = round(linearity(args.profile, args.log, folder, args.repeat), 3)
        result["help_ratio"] = round(help_ratio(max(10, args.repeat)), 3)
    result["over_limit"] = [name for name, limit in LIMITS.items() if float(str(result.get(name, 0))) > limit]
    print(orjson.dumps(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
