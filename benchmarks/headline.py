"""The first line of every answer, counted a second time without the program: a table over the real samples.

    python benchmarks/headline.py [--shared DIR] [--only PART]

A row per device of each profile: steps, kernel time and length of a step (means), idle share, copies of the process,
kernels before the recording. Each number is counted without the program and by the program. The last column names the
numbers that differ by more than 0.1 % of a time, or a point of a share. The exit code is 1 if any number differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from benchmarks.samples import SHARED, require  # noqa: E402
from tests.headlines import Device, Row, rows, samples  # noqa: E402

COLUMNS = "steps", "kernel ms", "step ms", "idle %", "copies", "before"


def mean(numbers: Iterable[float | None], unit: float) -> str:
    known = [number for number in numbers if number is not None]
    return f"{sum(known) / len(known) * unit:.3f}" if known else "-"


def cells(device: Device | None) -> list[str]:
    if device is None:
        return ["-"] * len(COLUMNS)
    return [
        str(device.steps),
        mean(device.kernel_ns, 1e-6),
        mean(device.lengths, 1e-6),
        mean((shares.get("idle") for shares in device.shares), 100),
        str(device.copies),
        str(device.before),
    ]


def line(row: Row) -> str:
    both = zip(cells(row.true), cells(row.said), strict=True)
    numbers = [one if one == other else f"{one} / {other}" for one, other in both]
    wrong = list(row.wrong)
    names = ", ".join(wrong[:3]) + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else "")
    return f"| {row.sample} | " + " | ".join(numbers) + f" | {names} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--only", default="", help="of the samples whose path holds this")
    options = parser.parse_args()
    require("--shared", options.shared / "samples")
    paths = [path for path in samples(options.shared) if options.only in str(path)]
    if not paths:
        print(f"no samples in {options.shared}: name their folder with --shared", file=sys.stderr)
        return 2
    print(f"| sample | {' | '.join(COLUMNS)} | differs |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    count = wrong = 0
    for path in paths:
        for row in rows(path, path.relative_to(options.shared / "samples").as_posix()):
            print(line(row), flush=True)
            count += 1
            wrong += bool(row.wrong)
    print(f"\n{count - wrong} of {count} devices agree")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
