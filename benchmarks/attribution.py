"""How many kernels end up in the MIOpen call, and in the layer, that truly launched them: one JSON line a run.

    python benchmarks/attribution.py [--set NAME ...] [--without EVIDENCE ...] [--masked] [--require]
    python benchmarks/attribution.py --robust [--seeds 3]    damaged logs and profiles (benchmarks/damages/)
    python benchmarks/attribution.py --all                   as recorded, each evidence taken away, masked, damaged

A line of totals follows for each way to read the sets. ``--require`` exits with 1 if a score is below what the project
promises. With all evidence: every kernel in its call and its layer. With masked pointers: 99 %. With a log of commands
only: 95 % of the kernels whose call printed a command. Damaged: at most one link in a thousand that is wrong and sure.
No operation may have shapes or a GEMM that disagree.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / part) for part in ("", "timeline")]

import mio2trace  # noqa: E402
from benchmarks import damages  # noqa: E402
from benchmarks.attribution_score import Score, consistency, score  # noqa: E402
from benchmarks.damages.run import CannotError, Run, masked  # noqa: E402
from benchmarks.damages.threads import another_profile, two_threads  # noqa: E402
from benchmarks.samples import SHARED, require  # noqa: E402
from benchmarks.score import add, emit, load  # noqa: E402
from mio2trace.evidence import CORRELATION, EVIDENCE, RANGE, TIMER_MARKS  # noqa: E402
from mio2trace.notes import InputError, OptionError  # noqa: E402

KINDS = tuple(word for word in EVIDENCE if word not in (RANGE, CORRELATION, TIMER_MARKS))
"""The kinds of evidence that these runs can have."""

AS_RECORDED, MASKED = "as recorded", "masked"
COMMANDS_ONLY = 0.95
MASKED_RIGHT = 0.99
WRONG_AND_SURE = 0.001
HANDLES = {"same": b"0x7f0000000000", "removed": b""}


class Way(NamedTuple):
    """How a set is read. ``seed`` 0: nothing is drawn."""

    name: str
    without: tuple[str, ...] = ()
    seed: int = 0


def samples(shared: Path) -> Path:
    return shared / "samples" / "miopen-opencl"


def names(folder: Path) -> list[str]:
    """Every set with a truth file."""
    return sorted(path.parent.name for path in folder.glob("*/truth.json"))


def convert(run: Run, folder: Path, without: Sequence[str]) -> Score:
    """The run's score, or what went wrong."""
    files = run.write(folder)
    out = folder / "out.json"
    refused: Score = {}
    try:
        try:
            mio2trace.convert(*files, output=out, without=without)
        except InputError as error:
            if "not of one run" not in str(error):
                raise
            # They are: a fault, and what the program makes of them all the same.
            refused = {"refused": str(error)}
            mio2trace.convert(*files, output=out, without=without, by_order_alone=True)
    except (InputError, OptionError) as error:
        return {"error": str(error)}
    except Exception:  # a crash is a result, too: the next set must still be measured
        return {"error": traceback.format_exc(limit=-3)}
    trace = load(out)
    result = score(trace, run.truth)
    return {**refused, **result, "consistency": consistency(trace, run.truth, run.log)}


def runs(run: Run, way: Way, partners: Sequence[Run]) -> Run:
    """The run as it is read; raises `CannotError`."""
    random = Random(f"{way.name} {way.seed} {run.name}")
    if way.name == AS_RECORDED:
        return run
    if way.name.startswith(MASKED):
        return masked(run, HANDLES["removed" if way.name.endswith("removed") else "same"])
    if way.name.startswith(damages.THREADS):
        other = [run, *partners][way.seed % (1 + len(partners))]
        return two_threads(run, other, random, framework=way.name == damages.THREADS)
    if way.name == damages.ANOTHER:
        if not partners:
            raise CannotError("there is no other run like it")
        return another_profile(run, partners[way.seed % len(partners)])
    return damages.MUTATIONS[way.name](run, random)


def ways(without: tuple[str, ...], *, plain: bool, each: bool, mask: bool, robust: bool, seeds: int) -> Iterator[Way]:
    if plain:
        yield Way(AS_RECORDED, without)
    if each:
        yield from (Way(AS_RECORDED, (evidence,)) for evidence in KINDS)
    if mask:
        for name in (MASKED, f"{MASKED}, removed"):
            yield Way(name, tuple(dict.fromkeys((*without, "buffers"))))
    if robust:
        for name in damages.MUTATIONS:
            # What does not draw is the same with every seed.
            for seed in range(1, 2 if name in damages.SEEDLESS else seeds + 1):
                yield Way(name, without, seed)
        for seed in range(seeds):
            yield Way(damages.THREADS, without, seed)
            yield Way(f"{damages.THREADS}, no layer lines", without, seed)
            yield Way(damages.ANOTHER, without, seed)


def damaged(way: Way) -> bool:
    return way.name != AS_RECORDED and not way.name.startswith(MASKED)


def shortfalls(name: str, way: Way, result: Score) -> Iterator[str]:
    """What of one set is below the promise. Damaged sets are held to theirs together: `total_shortfalls`."""
    if "error" in result:
        yield str(result["error"]).splitlines()[-1]
        return
    if "refused" in result and way.name != damages.ANOTHER:
        yield f"refused: {result['refused']}"
    if result["missing"] or result["extra"] or result["fault_count"]:
        yield f"{result['missing']} missing, {result['extra']} extra, {result['fault_count']} faults of the trace"
    if damaged(way):
        return
    kernels, layers, find, printed = (result[key] for key in ("kernels", "layers", "find", "printed"))
    commands_only = printed["total"] < kernels and not result["entries"]
    if way.name.startswith(MASKED):
        least, of, right = MASKED_RIGHT, kernels, result["right"]
    else:
        least, of, right = 1.0, kernels, result["right"]
    if commands_only:
        least, of, right = COMMANDS_ONLY, printed["total"], printed["right"]
    recorded = way.name == AS_RECORDED
    if recorded and way.without:  # with evidence taken away only the masked sets have a promise
        return
    if right < least * of:
        yield f"operations: {right} of {of} right, promised {least:.0%}"
    if recorded:
        if layers["right"] != layers["total"]:
            yield f"layers: {layers['right']} of {layers['total']} right"
        if not commands_only and (find["right"] != find["total"] or find["run_as_find"]):
            yield f"find: {find['right']} of {find['total']} right, {find['run_as_find']} of the run in a search"
    if result["consistency"]["disagreements"]:
        yield f"{result['consistency']['disagreements']} disagreements: {result['consistency']['listed'][0]}"


def total_shortfalls(way: str, total: Score) -> Iterator[str]:
    """What of a damage over all sets and seeds is above the limit: links to operations and to layers each."""
    limit = WRONG_AND_SURE * total["kernels"]
    for what, count in (("operations", total["wrong_and_sure"]), ("layers", total["layers"]["wrong_and_sure"])):
        if count > limit:
            share = count / total["kernels"]
            yield f"{way}: {what}: {count} links wrong and sure ({share:.2%}), promised {WRONG_AND_SURE:.1%}"


def measure(folder: Path, chosen: Sequence[str], plan: Sequence[Way]) -> list[str]:
    """Read every set in every way, print a line for each and a line of totals a way; what is below the promise."""
    short: list[str] = []
    totals: dict[tuple[str, tuple[str, ...]], Score] = {}
    loaded = {name: Run.load(folder / name) for name in chosen}
    for way in plan:
        for name, run in loaded.items():
            head: Score = {"set": name, "way": way.name, "without": list(way.without)}
            if damaged(way):
                head["seed"] = way.seed
            try:
                it = runs(run, way, partners(loaded, run))
            except CannotError as reason:
                emit({**head, "skipped": str(reason)})
                continue
            with tempfile.TemporaryDirectory() as scratch:
                result = convert(it, Path(scratch), way.without)
            result["entries"] = sum(call.get("log_line") is not None for call in run.truth["api_calls"])
            emit({**head, **({"with": it.name} if it.name != name else {}), **result})
            short += [f"{name}, {way.name} ({way.seed}): {text}" for text in shortfalls(name, way, result)]
            # A foreign profile that was refused is as it should be; what comes of it by order alone is nobody's claim.
            if "error" not in result and not (way.name == damages.ANOTHER and "refused" in result):
                add(totals.setdefault((way.name, way.without), {}), result)
    for (way_name, without), total in totals.items():
        emit({"total": way_name, "without": list(without), **total})
        if damaged(Way(way_name)):
            short += total_shortfalls(way_name, total)
    return short


def partners(loaded: dict[str, Run], run: Run) -> list[Run]:
    """Runs that could be another thread of the same program: of the same MIOpen, with a profile of their own."""
    same = (other for name, other in loaded.items() if name != run.name and other.calls is not None)
    return [other for other in same if other.truth["miopen"] == run.truth["miopen"] and _kind(other) == _kind(run)]


def _kind(run: Run) -> tuple[bool, bool]:
    calls = run.truth["api_calls"]
    return any(call.get("log_line") for call in calls), any(call.get("cmd_line") for call in calls)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Score the attribution of kernels to MIOpen's calls and to layers.")
    parser.add_argument("--set", action="append", default=[], metavar="NAME", help="only this set (repeatable)")
    parser.add_argument("--shared", type=Path, default=SHARED, help="the folder of the real samples")
    parser.add_argument("--without", action="append", default=[], metavar="EVIDENCE", help="as the program's option")
    parser.add_argument("--masked", action="store_true", help="pointers of the log masked, and --without buffers")
    parser.add_argument("--robust", action="store_true", help="damaged logs and profiles")
    parser.add_argument("--only", default="", metavar="TEXT", help="of the damages, those whose name contains TEXT")
    parser.add_argument("--seeds", type=int, default=3, help="draws of each damage (default 3)")
    parser.add_argument("--all", action="store_true", help="everything, and each kind of evidence taken away")
    parser.add_argument("--require", action="store_true", help="exit 1 if a score is below what is promised")
    args = parser.parse_args(argv)
    folder = samples(args.shared)
    require("--shared", folder)
    known = names(folder)
    if unknown := set(args.set) - set(known):
        parser.error(f"no such set: {', '.join(sorted(unknown))}; expected {', '.join(known)}")
    plan = partial(ways, tuple(args.without), seeds=args.seeds)
    if args.all:
        chosen = plan(plain=True, each=True, mask=True, robust=True)
    else:
        chosen = plan(plain=not (args.masked or args.robust), each=False, mask=args.masked, robust=args.robust)
    short = measure(folder, args.set or known, [way for way in chosen if args.only in way.name])
    for text in short:
        print(f"below: {text}", file=sys.stderr)
    return 1 if short and args.require else 0


if __name__ == "__main__":
    sys.exit(main())
