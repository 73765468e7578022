"""How often comparing cries wolf, and how often it finds a change: by rule and number of runs, one JSON line each.

    python -m benchmarks.compare_power [--seeds 200] [--change 1.15]

Runs are made of a real one (traces/alexnet-b1-miopen29) by the scatter that was measured on real GPUs: 2.5 % between
runs, 3 % within. ``alarms``: comparisons of unchanged sides in which any problem is said to have changed; ``found``:
those in which the largest problem, slower by ``--change``, is said to be; ``more``: those in which anything else is.
The rule of others, "any problem is 5 % slower" of one run each, stands beside it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random

import msgspec
import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "timeline")]

from mio2trace.analysis import analyse  # noqa: E402
from mio2trace.comparing import Comparison, RunRecord, Side  # noqa: E402
from mio2trace.comparing.collect import collect  # noqa: E402
from mio2trace.notes import Notes  # noqa: E402

BETWEEN, WITHIN, ITERATIONS = 0.025, 0.03, 9
EXAMPLE = ROOT / "traces" / "alexnet-b1-miopen29"


def scattered(record: RunRecord, runs: int, seed: int, slower: str = "", factor: float = 1.0) -> Side:
    """Runs as a GPU scatters them; one problem ``factor`` slower."""
    random = Random(seed)
    made = []
    for _ in range(runs):
        parts = []
        for part in record.parts:
            if part.kind != "problem":
                continue
            mean = part.mean_ns * (1 + random.gauss(0, BETWEEN)) * (factor if part.name == slower else 1)
            samples = tuple(sorted(mean * (1 + random.gauss(0, WITHIN)) for _ in range(ITERATIONS)))
            parts.append(msgspec.structs.replace(part, samples_ns=samples, mean_ns=sum(samples) / ITERATIONS))
        whole = tuple(sum(part.samples_ns[at] for part in parts) for at in range(ITERATIONS))
        made.append(
            msgspec.structs.replace(
                record, parts=tuple(parts), samples_ns=whole, mean_ns=sum(whole) / ITERATIONS, iterations=ITERATIONS
            )
        )
    return Side(name=str(seed), runs=tuple(made))


def changed(comparison: Comparison) -> set[str]:
    return {row.name for row in comparison.rows if row.word in ("slower", "faster")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--change", type=float, default=1.15)
    args = parser.parse_args()
    record = collect(analyse([EXAMPLE / "run.log.gz", EXAMPLE / "prof.json.gz"]).run, Notes())
    assert record is not None
    problems = [part for part in record.parts if part.kind == "problem"]
    largest = max(problems, key=lambda part: part.mean_ns).name
    for runs in (1, 2, 3, 5):
        alarms = found = more = others = gate = 0
        for seed in range(args.seeds):
            a = scattered(record, runs, 3 * seed)
            same = Comparison(a, scattered(record, runs, 3 * seed + 1))
            alarms += bool(changed(same))
            gate += bool(same.failures(0.05, None))
            others += any(row.ratio is not None and row.ratio > 1.05 for row in same.rows)
            slow = Comparison(a, scattered(record, runs, 3 * seed + 2, largest, args.change))
            found += largest in changed(slow)
            more += bool(changed(slow) - {largest})
        line = {
            "runs": runs, "comparisons": args.seeds, "problems": len(problems), "alarms": alarms,
            "gate_5_percent": gate, "any_5_percent_slower": others, "change": args.change, "found": found, "more": more,
        }  # fmt: skip
        print(orjson.dumps(line).decode(), flush=True)


if __name__ == "__main__":
    main()
