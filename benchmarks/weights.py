"""Which line of `attribution.py` each point of the score decides: it is taken away, and the runs are joined again.

    python benchmarks/weights.py [--weight NAME ...] [--shared DIR]

A weight at 0 says nothing. The first line (a way to read a set) with fewer right links, more that are wrong and sure,
or more that are not sure, is printed; ``none`` where no line needs the weight by itself. docs/alignment.md lists them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks import damages
from benchmarks.attribution import AS_RECORDED, MASKED, Way, names, partners, runs, samples
from benchmarks.attribution_score import join_key, key_of, line_of, within
from benchmarks.damages.run import CannotError, Run
from benchmarks.score import ROOT, emit
from mio2trace import analyse
from mio2trace.align import NONE, Links, align
from mio2trace.align.operations import likeness, paths, sizes, stream
from mio2trace.analysis import AnalysisOptions
from mio2trace.evidence import BUFFERS
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation

HOMES: tuple[ModuleType, ...] = (likeness, paths, sizes, stream)
"""Where points are set; a later module may have taken a name from an earlier one."""
WAYS = (
    Way(AS_RECORDED),
    Way(MASKED, (BUFFERS,)),
    Way(f"{MASKED}, removed", (BUFFERS,)),
    *(Way(name, (), seed) for seed in (1, 2, 3) for name in damages.MUTATIONS),
    *(Way(f"{damages.THREADS}{lines}", (), seed) for seed in range(3) for lines in (", no layer lines", "")),
)


class Case(NamedTuple):
    """One line: a run as it is read, and its truth."""

    name: str
    way: Way
    truth: Any
    profile: Profile
    logs: tuple[FrameworkLog, ...]
    operations: tuple[Operation, ...]


class Counts(NamedTuple):
    """Links of one line; less of each is better."""

    not_right: int
    wrong_and_sure: int
    unsure: int


def weights() -> dict[str, float]:
    """The points by name, as they are: every real number that a module of `HOMES` sets."""
    return {
        name: value
        for module in HOMES
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, float)
    }


def cases(folder: Path) -> Iterator[Case]:
    loaded = {name: Run.load(folder / name) for name in names(folder)}
    for way in WAYS:
        for name, run in loaded.items():
            try:
                it = runs(run, way, partners(loaded, run))
            except CannotError:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                options = AnalysisOptions(join=False, without=frozenset(way.without), by_order_alone=False)
                parts = analyse(it.write(Path(scratch)), options).runs
            profile = next((profile for part in parts for profile in part.profiles), None)
            if profile is not None:
                logs = tuple(log for part in parts for log in part.logs)
                operations = max((part.operations for part in parts), key=len)
                yield Case(name, way, it.truth, profile, logs, operations)


def joined(case: Case) -> Links:
    without = frozenset(case.way.without)
    return align(case.profile, case.logs, Notes(), operations=case.operations, without=without).links


def counts(case: Case, links: Links) -> Counts:
    """As `attribution_score` counts, without a trace in between."""
    by_line = join_key(case.truth) == "line"
    position_of = {
        activity.line if by_line else activity.number: position
        for position, activity in enumerate(case.profile.activities)
    }
    line_at = {operation.index: operation.line for operation in case.operations}
    calls = case.truth["api_calls"]
    not_right = wrong_and_sure = unsure = 0
    for enqueue in case.truth["enqueues"]:
        position = position_of.get(key_of(enqueue))
        if position is None:
            continue
        index = links.operation_of[position]
        sure = position not in links.operation_unsure
        call = None if enqueue["api_call"] is None else calls[enqueue["api_call"]]
        line = None if call is None else line_of(call)
        if call is None:
            right = index == NONE
        elif line is None:
            right = index == NONE or not sure or within(line_at[index], call)
        else:
            right = index != NONE and line_at[index] == line
        not_right += not right
        wrong_and_sure += not right and index != NONE and sure
        unsure += not sure
    return Counts(not_right, wrong_and_sure, unsure)


def set_to(name: str, value: float) -> None:
    for module in HOMES:
        if hasattr(module, name):
            setattr(module, name, value)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What each point of the score of operations decides.")
    parser.add_argument("--weight", action="append", default=[], metavar="NAME", help="only this one (repeatable)")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared", help="the folder of the real samples")
    args = parser.parse_args(argv)
    folder = samples(args.shared)
    if not names(folder):
        parser.error(f"no samples in {folder}")
    every = list(cases(folder))
    before = {case[:2]: counts(case, joined(case)) for case in every}
    for name, value in weights().items():
        if args.weight and name not in args.weight:
            continue
        set_to(name, 0.0)
        found = next((case for case in every if _worse(counts(case, joined(case)), before[case[:2]])), None)
        line = "none"
        if found is not None:
            after, was = counts(found, joined(found)), before[found[:2]]
            line = f"{found.way.name} ({found.way.seed}): {found.name}: " + ", ".join(
                f"{what.replace('_', ' ')} {old} -> {new}"
                for what, old, new in zip(Counts._fields, was, after, strict=True)
                if old != new
            )
        set_to(name, value)
        emit({"weight": name, "value": value, "decides": line})
    return 0


def _worse(after: Counts, before: Counts) -> bool:
    return any(new > old for new, old in zip(after, before, strict=True))


if __name__ == "__main__":
    sys.exit(main())
