"""Hostile input through the whole program: the law of tests/fuzz/law.py over all readers, commands and outputs.

    python benchmarks/fuzz.py [--count 50000] [--seeds 1,2,3] [--kinds rocm,kineto] [--jobs 2] [--nightly] [--cli 200]
                              [--engine 100]

Files of every format, made by tests/fuzz/structures.py, pieces of real ones and what once broke the law
(tests/fuzz/corpus): mutated in structure, crossed, swollen, damaged; each looked at in one way (tests/fuzz/looks.py).
Seeds are those of tests/fuzz/seeds.txt unless told; ``--nightly``: 100,000 cases of the seed of the day.
A case also breaks the law when it takes more than `FLOOR` and 20 times the median time per byte of all.

Prints one JSON line: cases, traces, refusals, violations, times; before it, on stderr, each fault once with how often
it was met and its smallest case, whose files are kept in ``failing/``. Exit 1 when the law was broken. ``--cli``: so
many cases also go through the command line, in own processes; ``--engine``: so many traces, in both forms, through
Perfetto's own engine and tests/perfetto_tools/trace_checks.sql. ``--case 1/77``: one case again, alone.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import random
import re
import resource
import statistics
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from unittest.mock import patch

import msgspec
import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from benchmarks import fuzz_outside  # noqa: E402
from benchmarks.samples import SHARED  # noqa: E402
from mio2trace.readers import READERS  # noqa: E402
from mio2trace.readers.base import Reader  # noqa: E402
from mio2trace.readers.rocm import database, pages  # noqa: E402
from mio2trace.source import HEAD  # noqa: E402
from tests.fuzz import damage, law, looks  # noqa: E402
from tests.fuzz.cases import Case, case  # noqa: E402
from tests.fuzz.structures import KINDS  # noqa: E402

SEEDS = ROOT / "tests" / "fuzz" / "seeds.txt"
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
PART = 10_000
"""Cases of one process."""
NIGHTLY = 100_000
GZIP = b"\x1f\x8b"
_MOST_HELD = 1 << 26
FLOOR = 0.15
"""Seconds of processor time: start-up, and what else the machine does."""
TIMES_THE_MEDIAN = 20
_ROOM_OF = {"kineto": "torch", "tensorflow": "tf"}
"""The folder of the readers of a kind, where that is not called as it."""
_LEAST_TIMED = 1000
"""Bytes: of smaller inputs the time per byte is that of the start-up."""


class Violation(msgspec.Struct, frozen=True):
    signature: str
    text: str
    place: str
    """Seed and number."""
    size: int


class Timed(msgspec.Struct, frozen=True, order=True):
    seconds: float
    size: int
    place: str
    kind: str


class Result(msgspec.Struct):
    verdicts: dict[str, int]
    violations: list[Violation]
    per_byte: list[float]
    """Seconds of processor time, of some of the cases that were not refused."""
    slow: list[Timed]
    seconds: float
    peak_bytes: int


def seeds() -> list[int]:
    """The seeds of record."""
    return [int(line.split()[0]) for line in SEEDS.read_text().splitlines() if line and not line.startswith("#")]


def real_files(shared: Path | None, kinds: Sequence[str] = ()) -> list[bytes]:
    """What cases begin with beside files that are made up: real ones, the corpus; of all kinds where none is told."""
    kept = [
        file.read_bytes()
        for folder in sorted(CORPUS.iterdir())
        if folder.is_dir()
        for file in folder.iterdir()
        if file.suffix != ".json"
    ]
    files = [*damage.real_files(shared, ROOT), *filter(None, sorted(kept))]
    rooms = {_ROOM_OF.get(kind, kind) for kind in kinds}
    readers = [reader for reader in READERS if _module(reader).split(".")[2] in rooms]
    return [data for data in files if any(reader.sniff(data[:HEAD]) for reader in readers)] if kinds else files


def _module(reader: Reader) -> str:
    return str(getattr(reader, "__name__", reader.read.__module__))


def judged(one: Case, place: str) -> tuple[str, float]:
    """The verdict of one look at a case, and the processor time that the program took. Raises `law.ViolationError`.

    Half of the cases have their databases read as large ones are, some rows at once.
    """
    chance = random.Random(f"look {place}")
    large = random.Random(f"large {place}").choice((0, database.LARGE))
    law.CLOCK.seconds = 0.0
    with patch.object(database, "LARGE", large), patch.object(pages, "AT_ONCE", 1), patch.object(pages, "ROWS", 8):
        verdict = looks.judge(one, chance)
    return verdict, law.CLOCK.seconds


def held(data: bytes) -> int:
    """Bytes of a file; of a packed one those that it holds, which are what is worked on."""
    if not data.startswith(GZIP):
        return len(data)
    try:
        return max(len(data), len(zlib.decompressobj(wbits=31).decompress(data, _MOST_HELD)))
    except zlib.error:
        return len(data)


def work(seed: int, first: int, count: int, real: Sequence[bytes], kinds: Sequence[str] = ()) -> Result:
    """Some cases of one seed."""
    began = time.process_time()
    found = Result({}, [], [], [], 0.0, 0)
    verdicts: Counter[str] = Counter()
    for number in range(first, first + count):
        place = f"{seed}/{number}"
        one = case(seed, number, real, kinds)
        size = sum(map(held, one.files))
        try:
            verdict, seconds = judged(one, place)
            for _ in range(2):
                if seconds > FLOOR:  # the machine may have been busy, or it paid for what other cases left
                    gc.collect()
                    seconds = min(seconds, judged(one, place)[1])
        except law.ViolationError as error:
            signature = law.signature(error)
            verdict = "open" if law.is_open(signature) else "violation"
            if verdict == "violation":
                found.violations.append(Violation(signature, str(error)[:600], place, size))
            seconds = 0.0
        if seconds > FLOOR:
            found.slow.append(Timed(seconds, size, place, one.kind))
        if verdict in ("trace", "shown") and size >= _LEAST_TIMED and number % 4 == 0:
            found.per_byte.append(seconds / size)
        verdicts[f"{one.kind}: {verdict}"] += 1
    found.verdicts = dict(verdicts)
    found.seconds = time.process_time() - began
    found.peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return found


def part(seed: int, first: int, count: int, shared: str, kinds: Sequence[str]) -> Result:
    """`work` in a process of its own, with a limit on its memory: one that dies is a violation, too."""
    job = f"{seed},{first},{count}"
    command = [sys.executable, __file__, "--part", job, "--shared", shared, "--kinds", ",".join(kinds)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=3600)
    except subprocess.TimeoutExpired:
        return Result({"part: violation": 1}, [Violation("a part hangs", job, job, 0)], [], [], 3600.0, 0)
    if done.returncode:
        said = f"{job}: the process ended with {done.returncode}: {done.stderr.decode('utf-8', 'replace')[-2000:]}"
        return Result({"part: violation": 1}, [Violation("a part dies", said, job, 0)], [], [], 0.0, 0)
    return msgspec.json.decode(done.stdout, type=Result)


def limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + law.MEMORY, resource.RLIM_INFINITY))


def too_slow(results: Sequence[Result]) -> Iterator[Violation]:
    """The cases that take longer than `TIMES_THE_MEDIAN` allows."""
    rate = median_rate(results)
    for one in (one for result in results for one in result.slow):
        allowed = FLOOR + TIMES_THE_MEDIAN * rate * one.size
        if one.seconds > allowed:
            text = f"{one.seconds:.2f} s for {one.size} bytes ({one.kind}), allowed {allowed:.2f}"
            yield Violation(f"too slow: {one.kind}", text, one.place, one.size)


def median_rate(results: Sequence[Result]) -> float:
    return statistics.median([rate for result in results for rate in result.per_byte] or [0.0])


def by_fault(violations: Sequence[Violation]) -> list[tuple[int, Violation]]:
    """Each fault once: how often, and its smallest case; most frequent first."""
    often = Counter(one.signature for one in violations)
    smallest: dict[str, Violation] = {}
    for one in sorted(violations, key=lambda one: -one.size):
        smallest[one.signature] = one
    return [(number, smallest[signature]) for signature, number in often.most_common()]


def keep(folder: Path, one: Violation, real: Sequence[bytes], kinds: Sequence[str]) -> Path | None:
    """Write the files of a violation's case, and what is wrong with it."""
    if not re.fullmatch(r"\d+/\d+", one.place):
        return None
    seed, number = map(int, one.place.split("/"))
    name = re.sub(r"\W+", "-", one.signature)[:80].strip("-")
    kept = folder / f"{name}-{seed}-{number}"
    kept.mkdir(parents=True, exist_ok=True)
    for position, data in enumerate(case(seed, number, real, kinds).files):
        (kept / str(position)).write_bytes(data)
    (kept / "what.txt").write_text(f"{one.place}\n{one.signature}\n{one.text}\n", "utf-8", "replace")
    return kept


def all_parts(args: argparse.Namespace, chosen: Sequence[int]) -> list[Result]:
    each, rest = divmod(args.count, len(chosen))
    results: list[Result] = []
    known: set[str] = set()
    with ThreadPoolExecutor(args.jobs) as pool:
        jobs = [
            pool.submit(part, seed, first, min(PART, count - first), args.shared, args.kinds)
            for position, seed in enumerate(chosen)
            for count in [each + (position < rest)]
            for first in range(0, count, PART)
        ]
        for job in as_completed(jobs):
            results.append(job.result())
            fresh = [one for one in results[-1].violations if one.signature not in known]
            known.update(one.signature for one in fresh)
            lines = [f"{one.place} {one.signature}: {one.text}" for _, one in by_fault(fresh)]
            print(f"{len(results)} of {len(jobs)} parts", *lines, sep="\n", file=sys.stderr, flush=True)
    return results


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The law over many hostile inputs.")
    parser.add_argument("--count", type=int, default=50_000, help="cases in all (default 50000)")
    parser.add_argument("--seed", "--seeds", dest="seeds", help="numbers with commas (default: tests/fuzz/seeds.txt)")
    parser.add_argument("--kinds", type=_kinds, default=(), help=f"some of {', '.join(KINDS)} (default: all there are)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default 2)")
    parser.add_argument("--nightly", action="store_true", help=f"{NIGHTLY} cases of a seed that is the date")
    parser.add_argument("--cli", type=int, default=0, metavar="N", help="cases that also go through the command line")
    parser.add_argument("--engine", type=int, default=0, metavar="N", help="traces through Perfetto's engine")
    parser.add_argument("--case", metavar="SEED/NUMBER", help="this case alone")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--failing", default="failing", help="folder for the files of cases that break the law")
    parser.add_argument("--shared", type=Path, default=SHARED, help="the folder of the real samples")
    args = parser.parse_args(argv)
    if args.part or args.case:
        real = real_files(args.shared, args.kinds)
        if args.case:
            return show(args.case, Path(args.failing), real, args.kinds)
        limit_memory()
        seed, first, count = map(int, args.part.split(","))
        print(msgspec.json.encode(work(seed, first, count, real, args.kinds)).decode())
        return 0
    chosen = [int(word) for word in args.seeds.split(",")] if args.seeds else seeds()
    if args.nightly:
        args.count = NIGHTLY
        chosen = chosen if args.seeds else [int(f"{datetime.date.today():%Y%m%d}")]
    began = time.monotonic()
    results = all_parts(args, chosen)
    violations = [*(one for result in results for one in result.violations), *too_slow(results)]
    if args.cli or args.engine:
        real = real_files(args.shared)
        violations += [Violation(*found) for found in fuzz_outside.command_line(chosen[0], args.cli, real)]
        violations += [Violation(*found) for found in fuzz_outside.engine(chosen[0], args.engine, real)]
    real = real_files(args.shared, args.kinds) if violations else []
    for number, one in by_fault(violations):
        kept = keep(Path(args.failing), one, real, args.kinds)
        print(f"{number} x {one.signature}: {one.place}, {one.size} bytes: {one.text} ({kept})", file=sys.stderr)
    print(orjson.dumps(report(args, chosen, results, violations, time.monotonic() - began)).decode())
    return 1 if violations else 0


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(filter(None, text.split(",")))
    if unknown := set(kinds) - set(KINDS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: none of {', '.join(KINDS)}")
    return kinds


def show(place: str, failing: Path, real: Sequence[bytes], kinds: Sequence[str]) -> int:
    """Judge one case and write its files."""
    seed, number = map(int, place.split("/"))
    one = case(seed, number, real, kinds)
    try:
        print(one.kind, *judged(one, place))
    except law.ViolationError as error:
        found = Violation(law.signature(error), str(error), place, sum(map(len, one.files)))
        print(one.kind, found.signature, found.text, keep(failing, found, real, kinds), sep="\n")
        return 1
    return 0


def report(
    args: argparse.Namespace,
    chosen: Sequence[int],
    results: Sequence[Result],
    violations: Sequence[Violation],
    seconds: float,
) -> dict[str, object]:
    verdicts: Counter[str] = Counter()
    for result in results:
        verdicts.update(result.verdicts)
    ends: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for name, number in verdicts.items():
        kind, _, end = name.partition(": ")
        ends[end] += number
        kinds["long" if kind.startswith("long") else kind] += number
    rate = median_rate(results)
    slow = [one for result in results for one in result.slow]
    worst = max(slow, key=lambda one: one.seconds / (FLOOR + rate * one.size), default=None)
    cpu = sum(result.seconds for result in results)
    found: dict[str, object] = {
        "cases": verdicts.total(),
        "seeds": list(chosen),
        "violations": len(violations),
        "faults": len({one.signature for one in violations}),
        "ends": dict(sorted(ends.items())),
        "kinds": dict(sorted(kinds.items())),
        "through_the_command_line": args.cli,
        "through_the_engine": args.engine,
        "median_us_per_byte": round(rate * 1e6, 3),
        "peak_memory_mb": max((result.peak_bytes for result in results), default=0) >> 20,
        "cases_per_cpu_second": round(verdicts.total() / cpu) if cpu else 0,
        "seconds": round(seconds),
    }
    if worst is not None:
        found["slowest"] = {
            **msgspec.to_builtins(worst),
            "times_the_median": round((worst.seconds - FLOOR) / (rate * worst.size), 1) if rate else 0,
        }
    return found


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
