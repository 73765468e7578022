"""What comparing costs beside reading and joining two made-up rocpd databases of a million kernels: one JSON line.

    python -m benchmarks.compare_speed [--kernels 1000000] [--repeat 1] [--folder DIR]

``ratio``: processor time of ``mio2trace compare A B`` over the sum of those of both analyses, each a process of its own
(limit 1.2). ``peak_bytes`` is the comparison's, beside that of the larger analysis: one run is held at a time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from benchmarks.samples import SHARED, require  # noqa: E402
from benchmarks.speed import run  # noqa: E402

LIMIT = 1.2
_ANALYSE = "import sys; from mio2trace import analyse; analyse(sys.argv[1:])"


def main() -> int:
    samples = SHARED / "samples" / "rocm"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schema", type=Path, default=samples / "rocpd_ck_batched_gemm.db.gz")
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=1, help="take the best of N runs (default 1)")
    parser.add_argument("--folder", type=Path, help="keep the databases here, and use them if they are there")
    args = parser.parse_args()
    require("--schema", args.schema)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        sides = [folder / f"{name}-{args.kernels}.db" for name in "ab"]
        for side, kernels in zip(sides, (args.kernels, args.kernels - args.kernels // 100), strict=True):
            if not side.exists():
                words = ["--schema", str(args.schema), "--kernels", str(kernels), "--make", str(side)]
                run([sys.executable, "benchmarks/rocpd_speed.py", *words])
        alone = [[run([sys.executable, "-c", _ANALYSE, str(side)]) for _ in range(args.repeat)] for side in sides]
        compare = [sys.executable, "-m", "mio2trace", "compare", *map(str, sides), "-q"]
        both = [run(compare) for _ in range(args.repeat)]
    analyses = sum(min(one.cpu_seconds for one in own) for own in alone)
    comparison = min(one.cpu_seconds for one in both)
    line = {
        "load": round(os.getloadavg()[0], 2),
        "kernels": [args.kernels, args.kernels - args.kernels // 100],
        "analyses_seconds": round(analyses, 2),
        "compare_seconds": round(comparison, 2),
        "ratio": round(comparison / analyses, 3),
        "analysis_peak_bytes": max(min(one.peak_bytes for one in own) for own in alone),
        "peak_bytes": min(one.peak_bytes for one in both),
        "over_limit": comparison / analyses > LIMIT,
    }
    print(orjson.dumps(line).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
