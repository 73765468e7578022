"""How fast PyTorch profiler traces are read and drawn, in ratios of one run on one machine: one JSON line.

    python benchmarks/kineto_speed.py [--trace FILE] [--size 500MB] [--repeat 3]

A trace is grown to ``--size``: its events again and again, times moved on by their span, ids counted on, the text
otherwise as it stands there. Then

* ``time_ratio``: ``mio2trace trace.json -o out.pftrace`` from start to exit, over ``orjson.loads`` of the same bytes
  (limit 1.3);
* ``memory_ratio``: the program's peak resident memory over the size of the trace (limit 1.2).

Each is a process of its own, the best of all repetitions counts; ``*_gc_off``: against orjson without Python's garbage
collector.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from benchmarks.grow import parse_size  # noqa: E402
from benchmarks.samples import SHARED, require  # noqa: E402
from benchmarks.speed import LOADS, run  # noqa: E402

LIMITS = {"time_ratio": 1.3, "memory_ratio": 1.2}
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_TIME = re.compile(rb'("ts"\s*:\s*)(\d+)')
_ID = re.compile(
    rb'("(?:External id|correlation|id|Ev Idx|Record function id|Python id|Python parent id)"\s*:\s*)(\d+)'
)


def grow(trace: bytes, size: int, target: Path) -> int:
    """Write ``trace`` repeated up to ``size`` bytes; how often it is in it."""
    opening = _ARRAY.search(trace)
    if opening is None:
        raise SystemExit("kineto_speed: no traceEvents")
    end = trace.rindex(b"]", 0, len(trace))
    # the array's end is the last bracket before the keys that follow it
    while b"}" not in trace[end - 40 : end]:
        end = trace.rindex(b"]", 0, end)
    before, events, after = trace[: opening.end()], trace[opening.end() : end], trace[end:]
    stamps = [int(stamp) for _, stamp in _TIME.findall(events)]
    span = max(stamps) - min(stamps) + 1000
    most = max((int(number) for _, number in _ID.findall(events)), default=0) + 1
    times = 0
    with open(target, "wb", buffering=1 << 20) as out:
        out.write(before)
        while out.tell() < size or not times:
            part = events if not times else _moved(events, times * span, times * most)
            out.write((b"," if times else b"") + part)
            times += 1
        out.write(after)
    return times


def _moved(events: bytes, later: int, counted_on: int) -> bytes:
    events = _TIME.sub(lambda found: b"%b%d" % (found[1], int(found[2]) + later), events)
    return _ID.sub(lambda found: b"%b%d" % (found[1], int(found[2]) + counted_on), events)


def measure(trace: Path, out: Path, repeat: int) -> dict[str, float]:
    size = trace.stat().st_size
    loads, gc_off, ends = [], [], []
    for _ in range(repeat):
        script = [sys.executable, "-c", LOADS, str(trace)]
        loads.append(float(run(script).output))
        gc_off.append(float(run([*script, "gc off"]).output))
        ends.append(run([sys.executable, "-m", "mio2trace", str(trace), "-o", str(out), "--quiet"]))
    best, peak = min(end.seconds for end in ends), min(end.peak_bytes for end in ends)
    return {
        "trace_bytes": size,
        "orjson_seconds": round(min(loads), 3),
        "orjson_gc_off_seconds": round(min(gc_off), 3),
        "seconds": round(best, 3),
        "cpu_seconds": round(min(end.cpu_seconds for end in ends), 3),
        "peak_bytes": peak,
        "output_bytes": out.stat().st_size,
        "time_ratio": round(best / min(loads), 3),
        "time_ratio_gc_off": round(best / min(gc_off), 3),
        "memory_ratio": round(peak / size, 3),
    }


def main(argv: Sequence[str] | None = None) -> int:
    samples = SHARED / "samples" / "rocm"
    parser = argparse.ArgumentParser(description="Measure Kineto traces against orjson.loads.")
    parser.add_argument("--trace", type=Path, default=samples / "kineto_mi300x_resnet_train_ddp.json.gz")
    parser.add_argument("--size", default="500MB")
    parser.add_argument("--repeat", type=int, default=3, help="take the best of N runs (default 3)")
    parser.add_argument("--folder", type=Path, help="keep the grown trace here, and use it if it is there")
    parser.add_argument("--grow", type=Path, metavar="FILE", help="write the grown trace there and do no more")
    args = parser.parse_args(argv)
    require("--trace", args.trace)
    if args.grow is not None:
        data = args.trace.read_bytes()
        grow(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, parse_size(args.size), args.grow)
        return 0
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    result: dict[str, object] = {"processors": processors, "load": round(os.getloadavg()[0], 2)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        name = args.trace.name.removesuffix(".gz").removesuffix(".json")
        trace = folder / f"{name}-{args.size}.json"
        if not trace.exists():
            # by a process of its own: a child's peak memory begins with its parent's
            run([sys.executable, __file__, "--trace", str(args.trace), "--size", args.size, "--grow", str(trace)])
        result |= {"trace": args.trace.name} | measure(trace, folder / "out.pftrace", args.repeat)
    result["over_limit"] = [name for name, limit in LIMITS.items() if float(str(result.get(name, 0))) > limit]
    print(orjson.dumps(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
