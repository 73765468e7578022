"""Hostile input through the whole program: the law of tests/fuzz/law.py over all readers.

    python benchmarks/fuzz.py [--count 50000] [--seeds 1,2,3] [--workers 2] [--cli 200]

Files of every format, made by tests/fuzz/structures.py, and pieces of real ones, damaged or not; seeds are those of
tests/fuzz/seeds.txt unless told. Prints one JSON line: cases, traces, refusals, violations, the slowest case in seconds
of processor time, the peak memory of a worker. Exit 1 when the law was broken; the files of each such case are kept in
``failing/<seed>-<number>/``. ``--cli``: so many of the cases also go through the command line, in own processes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import msgspec
import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from mio2trace.conversion import HostCalls  # noqa: E402

from tests.fuzz import damage, law, structures  # noqa: E402

SEEDS = ROOT / "tests" / "fuzz" / "seeds.txt"


class Case(NamedTuple):
    kind: str
    files: list[bytes]
    enqueues: int
    host_calls: HostCalls


def seeds() -> list[int]:
    """The seeds of record."""
    return [int(line.split()[0]) for line in SEEDS.read_text().splitlines() if line and not line.startswith("#")]


def cases(seed: int, count: int, real: Sequence[bytes]) -> Iterator[Case]:
    """``count`` cases; the same seed, and the same real files, give the same ones."""
    for number in range(count):
        # Each case by itself: one can be run again without those before it.
        yield case(random.Random(f"{seed}/{number}"), real)


def case(chance: random.Random, real: Sequence[bytes]) -> Case:
    host_calls = chance.choice(law.HOST_CALLS)
    if real and chance.random() < 0.4:
        pieces = [damage.piece(chance.choice(real), chance) for _ in range(chance.choice((1, 1, 2)))]
        files = damage.damaged(pieces, chance)
        whole = damage.dressed(files, chance)
        return Case("real", whole, law.intact(files) if whole == files else 0, host_calls)
    made = chance.choice(structures.GENERATORS)(chance)
    if chance.random() < 0.3:
        return Case(made.kind, made.files, made.enqueues, host_calls)
    files = damage.damaged(made.files, chance)
    whole = damage.dressed(files, chance)
    return Case(made.kind, whole, law.intact(files) if whole == files else 0, host_calls)


class Result(msgspec.Struct):
    verdicts: dict[str, int]
    violations: list[str]
    slowest: tuple[float, str, int]
    """(seconds of processor time, seed and number, bytes)."""
    peak_bytes: int


def part(seed: int, first: int, count: int, shared: str, failing: str) -> Result:
    """`work` in a process of its own: one that dies is a violation, too."""
    job = f"{seed},{first},{count}"
    command = [sys.executable, __file__, "--part", job, "--shared", shared, "--failing", failing]
    try:
        done = subprocess.run(command, capture_output=True, timeout=3600)
    except subprocess.TimeoutExpired:
        return Result({"part: violation": 1}, [f"{job}: hangs"], (3600.0, job, 0), 0)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace")[-2000:]
        ended = f"{job}: the process ended with {done.returncode}: {said}"
        return Result({"part: violation": 1}, [ended], (0.0, job, 0), 0)
    return msgspec.json.decode(done.stdout, type=Result)


def work(seed: int, first: int, count: int, shared: str, failing: str) -> Result:
    """Some cases of one seed, in a process of its own with a limit on its memory."""
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))} if seed % 2 else {max(os.sched_getaffinity(0))})
    real = damage.real_files(Path(shared), ROOT)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + law.MEMORY, resource.RLIM_INFINITY))
    verdicts: Counter[str] = Counter()
    violations: list[str] = []
    slowest = (0.0, "", 0)
    for number in range(first, first + count):
        one = case(random.Random(f"{seed}/{number}"), real)
        began = time.process_time()
        try:
            verdict = law.judge(one.files, one.enqueues, one.host_calls)
            if one.kind in ("MIOpen log", "real") and number % 4 == 0:
                for data in one.files:
                    law.judge_operations(data)
            if number % 8 == 0:
                law.judge_command(one.files, law.COMMANDS[number // 8 % len(law.COMMANDS)])
        except (law.ViolationError, law.TooSlowError) as error:
            verdict = "violation"
            violations.append(f"{seed}/{number} {one.kind}: {error}")
            keep(Path(failing, f"{seed}-{number}"), one)
        slowest = max(slowest, (time.process_time() - began, f"{seed}/{number}", sum(map(len, one.files))))
        verdicts[f"{one.kind}: {verdict}"] += 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Result(dict(verdicts), violations, slowest, peak)


def keep(folder: Path, one: Case) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for position, data in enumerate(one.files):
        (folder / str(position)).write_bytes(data)


def through_the_command_line(seed: int, count: int, real: Sequence[bytes]) -> list[str]:
    """Exit code 0, 1 or 2, one line of error, no stack trace: what only a process of its own can show."""
    broken = []
    with tempfile.TemporaryDirectory() as folder:
        for number, one in enumerate(cases(seed, count, real)):
            paths = []
            for position, data in enumerate(one.files):
                paths.append(Path(folder, str(position)))
                paths[-1].write_bytes(data)
            command = [sys.executable, "-m", "mio2trace", *map(str, paths), "-o", f"{folder}/out.json", "--check"]
            try:
                done = subprocess.run(command, capture_output=True, cwd=ROOT, timeout=120, stdin=subprocess.DEVNULL)
            except subprocess.TimeoutExpired:
                broken.append(f"{seed}/{number}: hangs")
                continue
            said = done.stderr.decode("utf-8", "replace")
            wrong = done.returncode not in (0, 1, 2) or "Traceback" in said or "a fault of the program" in said
            if wrong or done.stdout or (done.returncode == 1 and said.count("\n") != 1):
                broken.append(f"{seed}/{number}: exit {done.returncode}: {said[:300]}")
            if done.returncode == 0:
                with contextlib.suppress(FileNotFoundError):
                    law.check_trace(Path(folder, "out.json").read_bytes())
            with contextlib.suppress(FileNotFoundError):
                Path(folder, "out.json").unlink()
    return broken


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The law over many hostile inputs.")
    parser.add_argument("--count", type=int, default=50_000, help="cases in all (default 50000)")
    parser.add_argument("--seeds", help="numbers with commas between (default: tests/fuzz/seeds.txt)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cli", type=int, default=0, metavar="N", help="so many cases through the command line, too")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--failing", default="failing", help="folder for the files of cases that break the law")
    parser.add_argument("--shared", default=os.environ.get("MIO2TRACE_SHARED") or str(ROOT.parent / "shared"))
    args = parser.parse_args(argv)
    if args.part:
        seed, first, count = map(int, args.part.split(","))
        print(msgspec.json.encode(work(seed, first, count, args.shared, args.failing)).decode())
        return 0
    chosen = [int(word) for word in args.seeds.split(",")] if args.seeds else seeds()
    began = time.monotonic()
    each, rest = divmod(args.count, len(chosen))
    step = 500
    jobs = []
    with ThreadPoolExecutor(args.workers) as pool:
        for position, seed in enumerate(chosen):
            count = each + (position < rest)
            for first in range(0, count, step):
                jobs.append(pool.submit(part, seed, first, min(step, count - first), args.shared, args.failing))
        results = []
        for job in as_completed(jobs):
            results.append(job.result())
            print(
                f"{len(results)} of {len(jobs)} parts", *results[-1].violations, sep="\n", file=sys.stderr, flush=True
            )
    verdicts: Counter[str] = Counter()
    for result in results:
        verdicts.update(result.verdicts)
    violations = [line for result in results for line in result.violations]
    if args.cli:
        broken = through_the_command_line(chosen[0], args.cli, damage.real_files(Path(args.shared), ROOT))
        print(*broken, sep="\n", end="", file=sys.stderr)
        violations += broken
    seconds, slowest, size = max(result.slowest for result in results)
    summary = {
        "cases": verdicts.total(),
        "through_the_command_line": args.cli,
        "seeds": chosen,
        "traces": sum(number for verdict, number in verdicts.items() if verdict.endswith("trace")),
        "refused": sum(number for verdict, number in verdicts.items() if verdict.endswith("refused")),
        "violations": len(violations),
        "by_kind": dict(sorted(verdicts.items())),
        "slowest_cpu_seconds": round(seconds, 2),
        "slowest_case": slowest,
        "slowest_bytes": size,
        "peak_memory_mb": max(result.peak_bytes for result in results) >> 20,
        "seconds": round(time.monotonic() - began),
    }
    print(orjson.dumps(summary).decode())
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
