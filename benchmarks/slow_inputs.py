"""How long the program takes for inputs made to be slow: seconds at two sizes, and their ratio.

    python -m benchmarks.slow_inputs                                   # this version
    python -m benchmarks.slow_inputs --version ../older --module timeline   # another one, as "before"

Each input is read by the program in a process of its own, which is given CPU time up to ``--limit``. The table is
docs/hostile-input.md's.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / part) for part in ("", "timeline")]

from tests.fuzz.crossed_loops import ALL  # noqa: E402

_USAGE = 2
_NEXT_TO_NOTHING = 600
"""Bytes; what the program takes for them is its start."""
TREE = Path(__file__).parent.parent / "timeline"


class Version(NamedTuple):
    """A tree of the program's source and the name that it is imported by."""

    tree: Path
    module: str

    def seconds(self, arguments: list[str], limit: int) -> float | None:
        """CPU seconds of one run, start included; None beyond ``limit``."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = {**os.environ, "PYTHONPATH": str(self.tree)}
        try:
            done = subprocess.run(
                [sys.executable, "-m", self.module, *arguments],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=limit * 3,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode == _USAGE:
            raise SystemExit(f"{self.module} {' '.join(arguments)}: not run")
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return took if done.returncode >= 0 else None  # the system ends it with a signal


def measured(version: Version, name: str, sizes: list[int], limit: int, repeats: int = 1) -> list[float | None]:
    """CPU seconds at each size without those of the start; after one that is too long the larger are not tried."""
    slow = ALL[name]
    start = 0.0
    out: list[float | None] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in (_NEXT_TO_NOTHING, *sizes):
            if out and out[-1] is None:
                out.append(None)
                continue
            paths = []
            for number, data in enumerate(slow.files(size)):
                paths.append(Path(folder) / f"{number}")
                paths[-1].write_bytes(data)
            arguments = [slow.command, *map(str, paths)]
            if slow.command == "convert":
                arguments += ["-o", str(Path(folder) / "trace.json")]
            runs = [version.seconds(arguments, limit) for _ in range(repeats)]
            done = [took for took in runs if took is not None]
            if size == _NEXT_TO_NOTHING:
                start = min(done, default=0.0)
            else:
                out.append(max(0.0, min(done) - start) if done else None)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="inputs (default: all)")
    parser.add_argument("--sizes", default="120,240", help="kB, with commas")
    parser.add_argument("--limit", type=int, default=20, help="CPU seconds")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--version", type=Path, default=TREE, help="the folder that holds the program's package")
    parser.add_argument("--module", default="mio2trace")
    options = parser.parse_args()
    sizes = [int(size) * 1000 for size in options.sizes.split(",")]
    version = Version(options.version, options.module)
    print("| input |", " | ".join(f"{size // 1000} kB" for size in sizes), "| ratio |")
    print("|---|" + "---|" * (len(sizes) + 1))
    for name in options.names or ALL:
        seconds = measured(version, name, sizes, options.limit, options.repeats)
        shown = [f"> {options.limit} s" if one is None else f"{one:.2f} s" for one in seconds]
        first, last = seconds[0], seconds[-1]
        ratio = f"{last / first:.1f}" if first and last and first > 0.05 else ""
        print("|", name, "|", " | ".join(shown), "|", ratio, "|", flush=True)


if __name__ == "__main__":
    main()
