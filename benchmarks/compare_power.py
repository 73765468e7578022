"""Measure how often a comparison gives a false alarm by each rule, and how often it finds a change.

Prints one JSON line for each number of runs per side.

    python -m benchmarks.compare_power [--seeds 200] [--change 1.15] [--records DIR]

Runs are made from a real run (traces/alexnet-b1-miopen29) with the scatter that was measured on real GPUs: 2.5 %
between runs, 3 % within a run. ``false_alarms`` is the number of comparisons of unchanged sides in which a rule calls a
part, or the iteration, slower. Then the largest problem is made slower by ``--change``. ``found`` is the number of
comparisons that call it slower, ``more`` the number that call any other part slower. The rules are ours (``verdict``)
and its gates. Two common rules are beside them: any part of 1 % of the iteration that is slower by 5 or 10 %, and
Mann-Whitney's test at 0.05 over all iterations together.

``--records``: CK records of real GPUs with three repetitions each, and no change between these. With 1 run per side
every ordered pair is compared; with more runs ``--seeds`` pairs of sides are drawn from the three.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, permutations
from pathlib import Path
from random import Random

import msgspec
import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "timeline")]

from mio2trace.analysis import analyse  # noqa: E402
from mio2trace.comparing import Comparison, RunRecord, Side  # noqa: E402
from mio2trace.comparing.record import collect  # noqa: E402
from mio2trace.comparing.sides import OPTIONS  # noqa: E402
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


# -- rules -----------------------------------------------------------------------------------------------------------


def verdict(comparison: Comparison) -> bool:
    return bool(changed(comparison))


def gate_total(comparison: Comparison) -> bool:
    return bool(comparison.failures(0.05, None))


def gate_problem(comparison: Comparison) -> bool:
    try:
        return bool(comparison.failures(None, 0.10))
    except ValueError:
        return False  # it refuses to decide


def any_above(limit: float) -> Callable[[Comparison], bool]:
    def rule(comparison: Comparison) -> bool:
        """Of parts that are a hundredth of an iteration."""
        return any(row.ratio is not None and row.ratio > limit and row.share >= 0.01 for row in comparison.rows)

    return rule


def mann_whitney(comparison: Comparison) -> bool:
    """One-sided, of the iterations of all runs together, which are not independent."""
    pairs = (row.pair for row in comparison.rows if row.share >= 0.01)
    return any(
        _is_larger([*chain(*pair.a.samples)], [*chain(*pair.b.samples)])
        for pair in pairs
        if pair is not None and pair.a is not None and pair.b is not None
    )


def _is_larger(a: Sequence[float], b: Sequence[float]) -> bool:
    """By the normal approximation of the rank sum."""
    wins = sum(1.0 if of_b > of_a else 0.5 if of_b == of_a else 0.0 for of_a in a for of_b in b)
    spread = (len(a) * len(b) * (len(a) + len(b) + 1) / 12) ** 0.5
    return len(a) > 3 and wins - len(a) * len(b) / 2 > 1.645 * spread


RULES: dict[str, Callable[[Comparison], bool]] = {
    "verdict": verdict,
    "fail_above_5": gate_total,
    "fail_above_problem_10": gate_problem,
    "any_part_5": any_above(1.05),
    "any_part_10": any_above(1.10),
    "mann_whitney": mann_whitney,
}


def alarms(comparisons: Iterable[Comparison]) -> dict[str, int]:
    """In how many each rule says that something is slower; and how many there are."""
    counts = dict.fromkeys(("comparisons", *RULES), 0)
    for comparison in comparisons:
        counts["comparisons"] += 1
        for name, rule in RULES.items():
            counts[name] += rule(comparison)
    return counts


# -- sides -----------------------------------------------------------------------------------------------------------


def recorded(folder: Path) -> Iterator[list[RunRecord]]:
    """The repetitions of each record."""
    for path in sorted(folder.rglob("ckp-*.0001.json")):
        runs = [collect(run, Notes()) for run in analyse([path], OPTIONS).runs]
        found = [run for run in runs if run is not None]
        if len(found) == 3:
            yield found


def of_records(records: Sequence[Sequence[RunRecord]], runs: int, seeds: int) -> Iterator[Comparison]:
    for number, repetitions in enumerate(records):
        if runs == 1:
            for a, b in permutations(repetitions, 2):
                yield Comparison(Side(name="a", runs=(a,)), Side(name="b", runs=(b,)))
            continue
        random = Random(number)
        for _ in range(seeds):
            yield Comparison(*(Side(name=name, runs=tuple(random.choices(repetitions, k=runs))) for name in "ab"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--change", type=float, default=1.15)
    parser.add_argument("--records", type=Path, nargs="+", help="folders of CK records")
    args = parser.parse_args()
    if args.records:
        records = [one for folder in args.records for one in recorded(folder)]
        for runs in (1, 3, 5):
            line = {
                "records": len(records),
                "runs": runs,
                "false_alarms": alarms(of_records(records, runs, args.seeds)),
            }
            print(orjson.dumps(line).decode(), flush=True)
        return
    record = collect(analyse([EXAMPLE / "run.log.gz", EXAMPLE / "prof.json.gz"]).run, Notes())
    assert record is not None
    problems = [part for part in record.parts if part.kind == "problem"]
    largest = max(problems, key=lambda part: part.mean_ns).name
    for runs in (1, 2, 3, 5):
        sides = [scattered(record, runs, 3 * seed) for seed in range(args.seeds)]
        same = alarms(Comparison(a, scattered(record, runs, 3 * seed + 1)) for seed, a in enumerate(sides))
        found = more = 0
        for seed, a in enumerate(sides):
            slow = changed(Comparison(a, scattered(record, runs, 3 * seed + 2, largest, args.change)))
            found += largest in slow
            more += bool(slow - {largest})
        line = {
            "problems": len(problems), "runs": runs, "false_alarms": same, "change": args.change, "found": found,
            "more": more,
        }  # fmt: skip
        print(orjson.dumps(line).decode(), flush=True)


if __name__ == "__main__":
    main()
