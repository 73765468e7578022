"""Whether any input of 200 kB takes about as long as any other: each within 20 times the median time per byte.

    python benchmarks/fuzz_time.py [--count 2000] [--seed 1] [--size 200000] [--kinds rocm,kineto]

Files of tests/fuzz/structures.py and tests/fuzz/runs.py, mutated now and then, then swollen to ``--size``: a line, or
some lines, again and again, or a piece of one. Each is converted in this process, and measured thrice where it takes
long. Prints one JSON line: cases, the median in microseconds a byte of those that were not refused, the slowest as
multiples of it; exit 1 when one is beyond. ``--case 1/77``: one case again, its files written to ``--failing``.
"""

from __future__ import annotations

import argparse
import io
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from mio2trace.machine import without_garbage_collection  # noqa: E402
from tests.fuzz import crossing, law, mutations  # noqa: E402
from tests.fuzz.cases import GENERATORS  # noqa: E402
from tests.fuzz.structures import KINDS  # noqa: E402

TIMES_THE_MEDIAN = 20
_SHOWN = 5


class Timed(msgspec.Struct, frozen=True, order=True):
    us_per_byte: float
    place: str
    kind: str
    size: int
    refused: bool


def case(seed: int, number: int, size: int, kinds: Sequence[str]) -> tuple[str, list[bytes]]:
    """(kind, files) by itself."""
    chance = random.Random(f"time {seed}/{number}")
    made = chance.choice(tuple(KINDS[kind] for kind in kinds) or GENERATORS)(chance)
    files = list(made.files) or [b"\n"]
    if chance.random() < 0.3:
        which = chance.randrange(len(files))
        files[which] = mutations.mutated(files[which], chance) if files[which] else files[which]
    return made.kind, crossing.swollen(files, size, chance)


def timed(place: str, kind: str, files: Sequence[bytes]) -> Timed:
    size = sum(map(len, files))
    refused = False
    law.CLOCK.seconds = 0.0
    try:
        with law.on_disk(files) as paths:
            refused = law.converted(paths, io.BytesIO(), by_order_alone=True, host_calls="all") is None
    except law.ViolationError as error:
        if "processor time" not in str(error):
            raise
    return Timed(law.CLOCK.seconds * 1e6 / size, place, kind, size, refused)


def measure(seed: int, count: int, size: int, kinds: Sequence[str]) -> list[Timed]:
    every: list[Timed] = []
    for number in range(count):
        kind, files = case(seed, number, size, kinds)
        every.append(timed(f"{seed}/{number}", kind, files))
    limit = TIMES_THE_MEDIAN * median(every)
    return [_again(one, size, kinds) if one.us_per_byte > limit / 2 else one for one in every]


def _again(one: Timed, size: int, kinds: Sequence[str]) -> Timed:
    """The least of three: the machine may have been busy."""
    seed, number = map(int, one.place.split("/"))
    kind, files = case(seed, number, size, kinds)
    return min([one, *(timed(one.place, kind, files) for _ in range(2))])


def median(every: Sequence[Timed]) -> float:
    return statistics.median([one.us_per_byte for one in every if not one.refused] or [0.0])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Time per byte of inputs that swell.")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=200_000)
    parser.add_argument("--kinds", default="", help=f"some of {', '.join(KINDS)} (default: all there are)")
    parser.add_argument("--case", metavar="SEED/NUMBER", help="this case alone")
    parser.add_argument("--failing", type=Path, default=Path("failing"), help="folder for the files of a case")
    args = parser.parse_args(argv)
    kinds = tuple(filter(None, args.kinds.split(",")))
    if args.case:
        seed, number = map(int, args.case.split("/"))
        kind, files = case(seed, number, args.size, kinds)
        args.failing.mkdir(parents=True, exist_ok=True)
        for place, data in enumerate(files):
            (args.failing / str(place)).write_bytes(data)
        print(orjson.dumps(msgspec.to_builtins(timed(args.case, kind, files))).decode())
        return 0
    with without_garbage_collection():
        every = measure(args.seed, args.count, args.size, kinds)
    middle = median(every)
    beyond = [one for one in every if one.us_per_byte > TIMES_THE_MEDIAN * middle]
    slowest = sorted(every, reverse=True)[: max(_SHOWN, len(beyond))]
    result = {
        "cases": len(every), "seed": args.seed, "refused": sum(one.refused for one in every),
        "median_us_per_byte": round(middle, 3), "beyond": len(beyond),
        "slowest": [
            {"place": one.place, "kind": one.kind, "times_the_median": round(one.us_per_byte / middle, 1)}
            for one in slowest if middle
        ],
    }  # fmt: skip
    print(orjson.dumps(result).decode())
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
