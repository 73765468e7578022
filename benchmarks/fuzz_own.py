"""Fuzz our own formats, and files beside an input, by the laws of tests/fuzz/own.py. fuzz.py does the other inputs.

    python benchmarks/fuzz_own.py [--count 20000] [--seed 1] [--kinds "snapshot,base"] [--seconds 600]
    python benchmarks/fuzz_own.py --traces 10000 --cuts 1000
    python benchmarks/fuzz_own.py --case 1/77

The kinds of input:

* our own formats: traces with changed bytes, traces with a forged checksum, bases of comparisons, snapshots, tables and
  journals of datasets, bundles, tar archives.
* databases with logs and journals beside them, XSpaces, databases of MIOpen.
* folders whose names are patterns or options.
* kernel times, compared with an independent sum.

``--traces``: the number of traces in which one to three bytes are changed, in all forms. ``--cuts``: the number of
places at which traces are cut. The seed and the number of a case make the case again. A case may take `law.SECONDS` and
`law.SECONDS_PER_MB` of processor time. Each fault is printed once on stderr, then one JSON line on stdout. The exit
code is 1 if a law was broken.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from tests.fuzz import law, own, own_traces  # noqa: E402

Case = Callable[[], tuple[str, str]]


def cases(seed: int, count: int, kinds: Sequence[str]) -> Iterator[tuple[str, Case]]:
    for number in range(count):
        yield f"{seed}/{number}", lambda number=number: own.judged(seed, number, kinds)  # type: ignore[misc]


def changed_traces(seed: int, count: int, cuts: int) -> Iterator[tuple[str, Case]]:
    """``count`` with one to three bytes changed, ``cuts`` cut."""
    for number in range(count + cuts):
        yield f"trace {seed}/{number}", lambda number=number: _changed(seed, number, number >= count)  # type: ignore[misc]


def _changed(seed: int, number: int, is_cut: bool) -> tuple[str, str]:
    chance = random.Random(f"traces {seed}/{number}")
    form = chance.choice(own_traces.FORMS)
    change = own_traces.cut if is_cut else own_traces.bytes_changed
    return "cut" if is_cut else "bytes changed", own_traces.judge(change(own_traces.written()[form], chance), form)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The laws of own formats over many hostile inputs.")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="", help=f"some of {', '.join(own.KINDS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of processor time, after which it ends")
    parser.add_argument("--traces", type=int, default=0)
    parser.add_argument("--cuts", type=int, default=0)
    parser.add_argument("--case", metavar="SEED/NUMBER", help="this case alone")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    kinds = [kind.strip() for kind in args.kinds.split(",") if kind.strip()]
    if args.case:
        seed, number = map(int, args.case.split("/"))
        print(*own.judged(seed, number, kinds))
        return 0
    chosen = cases(args.seed, args.count, kinds)
    if args.traces or args.cuts:
        chosen = changed_traces(args.seed, args.traces, args.cuts)
    verdicts: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for place, one in chosen:
        try:
            kind, verdict = one()
            verdicts[f"{kind}: {verdict}"] += 1
        except law.ViolationError as error:
            found = law.signature(error)
            faults[found] += 1
            if faults[found] == 1:
                print(f"{place}: {found}: {str(error)[:600]}", file=sys.stderr, flush=True)
        if time.process_time() > args.seconds:
            break
    result = {
        "cases": verdicts.total() + faults.total(), "seed": args.seed, "violations": faults.total(),
        "verdicts": dict(sorted(verdicts.items())), "cpu_seconds": round(time.process_time()),
    }  # fmt: skip
    print(orjson.dumps(result).decode())
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
