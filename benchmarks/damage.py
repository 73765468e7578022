"""What is left of the attribution when logs and profiles are damaged, and whether its confidence can be believed.

    python -m benchmarks.damage [--rows TEXT] [--sets TEXT] [--seeds N] [--jobs N] [--json] [--worst] [--require]
                                [--minutes N] [--kept FILE]

There is one row per damage and variant. The variants are ``handles`` (as recorded), ``hidden`` (the log's pointers
masked), ``nf`` (hidden, and no line of a framework in the log), ``twin`` and ``twin nf`` (the same with ROCm's
profiles). Of operations and of layers: kernels that are right, links that are wrong and sure, the mean confidence. Of
wrong runs: refused, and links said with 0.5 and more. Then, by tenth of the confidence and over all rows: links, what
was said of them, what is true; a row of several draws counts once, each draw as a part. ``--require`` exits with 1
where a row is below what the project promises. Cases come in turns, one of each row and variant after another, so that
``--minutes`` leaves a fair sample. ``--kept`` holds the measurements, one line per case; these cases are not measured
again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import sha256
from itertools import zip_longest
from math import inf
from multiprocessing import Pool
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import orjson

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / part) for part in ("", "timeline")]

from benchmarks.damage_score import SAID_TRUE, TENTHS, Tally, tallies  # noqa: E402
from benchmarks.damages.rows import ROWS, Row  # noqa: E402
from benchmarks.damages.run import CannotError, Run  # noqa: E402
from benchmarks.damages.sets import VARIANTS, every_set, variants  # noqa: E402
from benchmarks.samples import SHARED, require  # noqa: E402
from benchmarks.score import emit  # noqa: E402
from mio2trace import analyse  # noqa: E402
from mio2trace.notes import InputError  # noqa: E402

WRONG_AND_SURE = 0.001
APART = 0.05
"""How far what is true may lie from what was said, in each tenth."""
FEWEST = 100
"""Links that a tenth must have to be judged."""
WORST = 12


@dataclass
class Result:
    """One row in one variant, over sets and seeds."""

    row: str
    variant: str
    cases: int = 0
    operations: Tally = field(default_factory=Tally)
    layers: Tally = field(default_factory=Tally)
    refused: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)

    def take(self, other: Result) -> None:
        self.cases += other.cases
        self.operations.take(other.operations)
        self.layers.take(other.layers)
        self.refused += other.refused
        self.crashed += other.crashed


Case = tuple[str, str, str, int]
"""(row, set, variant, seed)"""


@cache
def loaded(shared: Path) -> dict[str, dict[str, Run]]:
    """Each variant's runs by set."""
    of: dict[str, dict[str, Run]] = {variant: {} for variant in VARIANTS}
    for run in every_set(shared):
        for variant, changed in variants(run):
            of[variant][run.name] = changed
    return of


def measured(shared: Path, case: Case) -> Result:
    """One case."""
    name, set_, variant, seed = case
    row = next(row for row in ROWS if row.name == name)
    runs = loaded(shared)[variant]
    result = Result(name, variant)
    try:
        run = row.change(runs[set_], Random(f"{name} {seed} {set_}"), list(runs.values()))
    except CannotError:
        return result
    result.cases = 1
    with tempfile.TemporaryDirectory() as folder:
        try:
            analysis = analyse(run.write(Path(folder)))
            result.operations, result.layers = tallies(run, analysis)
        except InputError as error:
            result.refused.append(f"{set_}: {error}".replace(folder, ""))
            result.operations.kernels += len(run.truth["enqueues"]) * bool(run.truth["api_calls"])
            result.layers.kernels += len(run.truth["enqueues"]) * run.has_layers
        except Exception:  # a crash is a result, too: the next case must still be measured
            result.crashed.append(f"{set_} {seed}: {traceback.format_exc(limit=-3)}")
    return result


def cases(rows: Sequence[Row], sets: str, seeds: int, shared: Path) -> list[Case]:
    """In turns: one of each row and variant, then another one of each. Which comes first, a hash decides."""
    runs = loaded(shared)
    of_each = [
        [
            (row.name, name, variant, seed)
            for seed in range(seeds if row.draws else 1)
            for name in sorted(runs[variant], key=lambda name: sha256(f"{row.name} {variant} {name}".encode()).digest())
            if sets in name
        ]
        for row in rows
        for variant in VARIANTS
    ]
    return [case for turn in zip_longest(*of_each) for case in turn if case is not None]


def measure(todo: Sequence[Case], shared: Path, jobs: int, minutes: float, kept: Path | None) -> list[Result]:
    """Results in the order of the rows; the number of processes changes nothing."""
    known = dict(_kept(kept, set(todo)))
    until = monotonic() + 60 * minutes
    with Pool(jobs) as pool, (kept or Path("/dev/null")).open("ab") as file:
        left = [case for case in todo if case not in known]
        for case, one in zip(left, pool.imap(_Measured(shared), left), strict=True):
            known[case] = one
            file.write(orjson.dumps([case, asdict(one)]) + b"\n")
            if monotonic() > until:
                pool.terminate()
                break
    results = {(row.name, variant): Result(row.name, variant) for row in ROWS for variant in VARIANTS}
    for (row, _, variant, _), one in known.items():
        results[row, variant].take(one)
    return [result for result in results.values() if result.cases]


def _kept(path: Path | None, wanted: set[Case]) -> Iterator[tuple[Case, Result]]:
    for line in path.read_bytes().splitlines() if path is not None and path.exists() else ():
        case, one = orjson.loads(line)
        if tuple(case) in wanted:
            operations, layers = Tally(**one.pop("operations")), Tally(**one.pop("layers"))
            yield tuple(case), Result(**one, operations=operations, layers=layers)


@dataclass(frozen=True)
class _Measured:
    shared: Path

    def __call__(self, case: Case) -> Result:
        return measured(self.shared, case)


def shortfalls(result: Result) -> Iterator[str]:
    """What of a row is below the promise."""
    row = next(row for row in ROWS if row.name == result.row)
    head = f"{result.row}, {result.variant}"
    yield from (f"{head}: crashed: {text.splitlines()[-1]}" for text in result.crashed)
    for what, tally in (("operations", result.operations), ("layers", result.layers)):
        if row.wrong:
            if tally.believed:
                yield f"{head}: {what}: {tally.believed} of {tally.links} links said with 0.5 and more"
            continue
        if tally.wrong_and_sure > WRONG_AND_SURE * tally.kernels:
            yield f"{head}: {what}: {tally.wrong_and_sure} of {tally.kernels} wrong and sure"
    if row.wrong:
        return
    yield from (f"{head}: refused: {text}" for text in result.refused[:1])
    least = row.least.get(result.variant)
    tally = result.operations
    if least is not None and tally.right < least * tally.kernels:
        yield f"{head}: {tally.right} of {tally.kernels} right ({_share(tally.right, tally.kernels)}), of {least:.1%}"


def reliability(results: Sequence[Result], seeds: int = 1) -> tuple[Tally, Tally]:
    """Over all rows. Each row counts once, however often it was drawn: a link of one of ``seeds`` draws is a part."""
    draws = {row.name for row in ROWS if row.draws}
    operations, layers = Tally(), Tally()
    for result in results:
        weight = 1 / seeds if result.row in draws else 1
        operations.take(result.operations, weight)
        layers.take(result.layers, weight)
    return operations, layers


def unreliable(what: str, tally: Tally) -> Iterator[str]:
    for place, (count, said, true) in enumerate(tally.bins):
        if count < FEWEST:
            continue
        if place == TENTHS:
            if true < SAID_TRUE * count:
                yield f"{what} said with {SAID_TRUE} and more: {true / count:.2%} true"
        elif abs(true - said) > APART * count:
            yield f"{what} said with 0.{place}: {said / count:.1%} said, {true / count:.1%} true"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.2%}" if whole else "-"


def table(results: Sequence[Result]) -> Iterator[str]:
    """For people."""
    heads = ("right", "ws", "mean", "right", "ws", "mean", "refused")
    yield f"{'damage':50}{'variant':9}{'kernels':>8}" + "".join(f"{head:>9}" for head in heads)
    for result in results:
        cells = []
        for tally in (result.operations, result.layers):
            cells += [_share(tally.right, tally.kernels), _share(tally.wrong_and_sure, tally.kernels)]
            cells.append(f"{tally.mean:.3f}" if tally.links else "-")
        kernels = max(result.operations.kernels, result.layers.kernels)
        refused = f"{len(result.refused)}/{result.cases}" if result.refused else ""
        line = f"{result.row:50}{result.variant:9}{kernels:8}" + "".join(f"{cell:>9}" for cell in cells)
        yield f"{line}{refused:>9}{' CRASHED' * bool(result.crashed)}"
    wrong = [result for result in results if any(row.wrong for row in ROWS if row.name == result.row)]
    for result in wrong:
        believed = (f"{tally.believed} of {tally.links}" for tally in (result.operations, result.layers))
        yield f"{result.row}, {result.variant}: links said with 0.5 and more: {', '.join(believed)}"


def reliability_table(operations: Tally, layers: Tally) -> Iterator[str]:
    yield ""
    yield f"{'confidence':12}" + f"{'links':>9}{'said':>9}{'true':>9}" * 2
    for place in range(TENTHS + 1):
        name = f">= {SAID_TRUE}" if place == TENTHS else f"{place / 10:.1f} to {(place + 1) / 10:.1f}"
        cells = ""
        for tally in (operations, layers):
            count, said, true = tally.bins[place]
            cells += f"{count:9.0f}{_share(said, count):>9}{_share(true, count):>9}"
        yield f"{name:12}{cells}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", action="append", default=[], metavar="TEXT", help="rows whose name contains TEXT")
    parser.add_argument("--sets", default="", metavar="TEXT", help="sets whose name contains TEXT")
    parser.add_argument("--variant", action="append", default=[], choices=VARIANTS)
    parser.add_argument("--seeds", type=int, default=1, help="draws of each damage (default 1)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--minutes", type=float, default=inf, help="how long it may take (default: as it takes)")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="file of finished measurements, to resume from")
    parser.add_argument("--shared", type=Path, default=SHARED, help="the folder of the real samples")
    parser.add_argument("--json", action="store_true", help="JSON lines")
    parser.add_argument("--worst", action="store_true", help="also links that are wrong and sure, and why refused")
    parser.add_argument("--require", action="store_true", help="exit 1 if a row is below what is promised")
    args = parser.parse_args(argv)
    require("--shared", args.shared / "samples")
    rows = [row for row in ROWS if not args.rows or any(text in row.name for text in args.rows)]
    todo = [
        case for case in cases(rows, args.sets, args.seeds, args.shared) if not args.variant or case[2] in args.variant
    ]
    if not todo:
        parser.error("no such row or set")
    results = measure(todo, args.shared, args.jobs, args.minutes, args.kept)
    operations, layers = reliability(results, args.seeds)
    if args.json:
        for result in results:
            emit(_plain(result))
        emit({"reliability": {"operations": operations.bins, "layers": layers.bins}})
    else:
        print("\n".join(table(results)))
        print("\n".join(reliability_table(operations, layers)))
    if args.worst:
        for result in results:
            for text in [
                *result.operations.worst[:WORST],
                *result.layers.worst[:WORST],
                *result.refused,
                *result.crashed,
            ]:
                print(f"{result.row}, {result.variant}: {text}", file=sys.stderr)
    short = [text for result in results for text in shortfalls(result)]
    short += [*unreliable("operations", operations), *unreliable("layers", layers)]
    for text in short:
        print(f"below: {text}", file=sys.stderr)
    return 1 if short and args.require else 0


def _plain(result: Result) -> dict[str, Any]:
    plain = asdict(result)
    for key in ("operations", "layers"):
        plain[key].pop("worst")
        plain[key]["mean"] = round(getattr(result, key).mean, 4)
    return plain


if __name__ == "__main__":
    sys.exit(main())
