"""How fast a TFProf profile is read, and its table made: one JSON line.

    python benchmarks/tfprof_speed.py [--repeat 3] [--profile profile.tfprof]

Measured, each in a process of its own, the best of all repetitions, wall and processor time of each:

* ``read_*``: a ProfileProto's bytes (decompressed before) to records; the limit is 1 s of processor
  time for 6 MB, what a machine without other work takes;
* ``table_*``: reading it and the notebook's table of all its steps, as ``mio2trace tfprof`` does;
* ``trace_*``: reading it and writing its timeline.

Nothing here is asserted in a test.
"""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from benchmarks.samples import SHARED, require  # noqa: E402

LIMIT_SECONDS_FOR_6_MB = 1.0

SCRIPT = """
import gc, sys, time
gc.disable()  # as the program does
from mio2trace.notes import Notes
from mio2trace.conversion import convert
from mio2trace.readers.tf import profile_proto
from mio2trace.readers.base import ReadOptions
from mio2trace.reports import tfprof
from mio2trace.source import Source
from mio2trace.reports import print_table

what, path = sys.argv[1:]
wall, own = time.perf_counter(), time.process_time()
nodes = executions = 0
if what == "trace":
    import os
    with open(os.devnull, "wb") as out:
        convert(path, output=out)
else:
    source = Source(path, 0, Notes())
    [profile] = profile_proto.read(source, ReadOptions(), Notes())
    source.close()
    if what == "table":
        series = tfprof.profile_series(profile, profile.steps, (), "exact")
        sum(map(len, print_table(tfprof.table(series), "csv")))
wall, own = time.perf_counter() - wall, time.process_time() - own
if what == "read":
    nodes = len(profile.nodes)
    executions = sum(len(step.executions) for node in profile.nodes for step in node.steps)
print(wall, own, nodes, executions)
"""


def measured(what: str, path: Path) -> list[float]:
    """Wall seconds, processor seconds, nodes, executions."""
    command = [sys.executable, "-c", SCRIPT, what, str(path)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return [float(word) for word in done.stdout.split()]


def measure(path: Path, repeat: int) -> dict[str, float]:
    """All numbers."""
    size = path.stat().st_size
    result: dict[str, float] = {"bytes": size}
    for what in ("read", "table", "trace"):
        rounds = [measured(what, path) for _ in range(repeat)]
        result[f"{what}_seconds"] = round(min(one[0] for one in rounds), 3)
        result[f"{what}_processor_seconds"] = round(min(one[1] for one in rounds), 3)
        if what == "read":
            result["nodes"], result["executions"] = int(rounds[0][2]), int(rounds[0][3])
    result["read_processor_seconds_for_6_MB"] = round(result["read_processor_seconds"] * 6e6 / size, 3)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    sample = SHARED / "samples" / "tfprof" / "tf18_bench_resnet50_v2" / "profile.tfprof.gz"
    parser = argparse.ArgumentParser(description="Measure the reading of a TFProf profile.")
    parser.add_argument("--profile", type=Path, default=sample)
    parser.add_argument("--repeat", type=int, default=3, help="take the best of N runs (default 3)")
    args = parser.parse_args(argv)
    require("--profile", args.profile)
    data = args.profile.read_bytes()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        path = Path(folder) / "profile.tfprof"
        path.write_bytes(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        result: dict[str, object] = {**measure(path, args.repeat)}
    limited = "read_processor_seconds_for_6_MB"
    result["over_limit"] = [limited] if float(str(result[limited])) > LIMIT_SECONDS_FOR_6_MB else []
    print(orjson.dumps(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
