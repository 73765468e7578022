"""Fit the stated confidence of doubtful links to the share of them that is right.

    python -m benchmarks.calibration [--rows TEXT] [--sets TEXT] [--seed N] [--jobs N] [--kept FILE]
                                     [--shared DIR]

The result is `CALIBRATED` in `mio2trace.align.rates`. Measures the rows of `benchmarks.damage`, wrong runs
aside, and fits one rising map of knots per kind of link by least squares. Prints the knots, and by tenth of the
confidence what another seed's draws say with these knots and what is true of them. ``--kept`` holds the links, one
line per case; these cases are not measured again.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from multiprocessing import Pool
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import orjson

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / part) for part in ("", "timeline")]

from benchmarks.damage import Case, cases, measured, reliability_table, unreliable  # noqa: E402
from benchmarks.damage_score import Tally  # noqa: E402
from benchmarks.damages.rows import ROWS  # noqa: E402
from benchmarks.samples import SHARED, require  # noqa: E402
from mio2trace.align import links as of_layers  # noqa: E402
from mio2trace.align.operations import chances as of_operations  # noqa: E402
from mio2trace.align.rates import CALIBRATED, KNOTS, WHOLE, calibrated  # noqa: E402

Kind = Literal["operation", "layer"]
MOST_EACH = 10
"""So often each number counts of a case: its links are one witness."""
PRIOR = 20
"""The weight of the model's own number at each knot, in links."""


class Said(float):
    """A stated confidence: the model's (``raw``), calibrated, times a ``factor``."""

    kind: Kind
    raw: float
    factor: float

    @classmethod
    def of(cls, kind: Kind, raw: float, factor: float = 1.0) -> Said:
        said = cls(calibrated(kind, raw) * factor)
        said.kind, said.raw, said.factor = kind, raw, factor
        return said

    def __mul__(self, other: float) -> Said:
        return Said.of(self.kind, self.raw, self.factor * other)


@dataclass(frozen=True)
class Link:
    """``said`` is ``raw``, what the model had, calibrated, times a ``factor``; where ``raw`` is None it is a cap."""

    kind: Kind
    raw: float | None
    factor: float
    said: float
    is_true: bool


def links_of(shared: Path, case: Case) -> list[Link]:
    """All links of a case."""
    told: dict[int, list[tuple[float | None, float, float, bool]]] = {}
    add = Tally.add

    def add_and_keep(self: Tally, *, linked: bool, confidence: float, true: bool, **more: Any) -> None:
        add(self, linked=linked, confidence=confidence, true=true, **more)
        if linked:
            from_ = (confidence.raw, confidence.factor) if isinstance(confidence, Said) else (None, 1.0)
            told.setdefault(id(self), []).append((*from_, float(confidence), true))

    with ExitStack() as stack:
        stack.enter_context(patch.object(Tally, "add", add_and_keep))
        for module in (of_layers, of_operations):
            stack.enter_context(patch.object(module, "calibrated", _kept))
        result = measured(shared, case)
    calls, layers = told.get(id(result.operations), ()), told.get(id(result.layers), ())
    return [*(Link("operation", *one) for one in calls), *(Link("layer", *one) for one in layers)]


def _kept(kind: Kind, confidence: float) -> float:
    return Said.of(kind, float(confidence))


def fitted(links: Iterable[tuple[float, float, float]]) -> tuple[float, ...]:
    """The knots' values, by (raw, true, weight) of links."""
    knots = np.array(KNOTS)
    matrix, sums = PRIOR * np.identity(len(knots)), PRIOR * knots
    for raw, true, weight in links:
        place = min(int(np.searchsorted(knots, raw, side="right")) - 1, len(knots) - 2)
        share = (raw - knots[place]) / (knots[place + 1] - knots[place])
        hats = np.zeros(len(knots))
        hats[place], hats[place + 1] = 1 - share, share
        matrix += weight * np.outer(hats, hats)
        sums += weight * true * hats
    values = np.linalg.solve(matrix, sums)
    rising = _rising(values.tolist(), np.diag(matrix).tolist())
    return (*(round(min(WHOLE, max(0.0, value)), 2) for value in rising[:-1]), WHOLE)


def _rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The nearest values that never fall: neighbours that do are given their mean."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        block = value, weight, 1
        while blocks and blocks[-1][0] > block[0]:
            before, of, count = blocks.pop()
            together = of + block[1]
            block = (before * of + block[0] * block[1]) / together, together, count + block[2]
        blocks.append(block)
    return [value for value, _, count in blocks for _ in range(count)]


def weighed(of_cases: Iterable[Sequence[Link]], kind: Kind) -> Iterator[tuple[float, float, float]]:
    """(raw, true, weight) of the links of a kind that nothing else limits."""
    for links in of_cases:
        own = [
            link
            for link in links
            if link.kind == kind and link.raw is not None and link.raw < WHOLE and link.factor == 1
        ]
        each = Counter(link.raw for link in own)
        for link in own:
            assert link.raw is not None
            yield link.raw, link.is_true, min(1.0, MOST_EACH / each[link.raw])


def tally(of_cases: Iterable[Sequence[Link]], kind: Kind) -> Tally:
    """Count stated confidences, with the knots in `CALIBRATED`, and the links that are right."""
    result = Tally()
    for links in of_cases:
        for link in links:
            if link.kind == kind:
                said = link.said if link.raw is None else calibrated(kind, link.raw) * link.factor
                result.add(linked=True, right=link.is_true, true=link.is_true, confidence=said, text="")
    return result


def _measured(todo: Sequence[Case], shared: Path, jobs: int, kept: Path | None) -> dict[Case, list[Link]]:
    """The links of each case."""
    lines = kept.read_bytes().splitlines() if kept is not None and kept.exists() else []
    links = {tuple(case): [Link(*one) for one in told] for case, told in map(orjson.loads, lines)}
    left = [case for case in todo if case not in links]
    with Pool(jobs) as pool, (kept or Path("/dev/null")).open("ab") as file:
        for case, told in zip(left, pool.imap(_Links(shared), left), strict=True):
            links[case] = told
            file.write(orjson.dumps([case, [astuple(one) for one in told]]) + b"\n")
    return links


@dataclass(frozen=True)
class _Links:
    shared: Path

    def __call__(self, case: Case) -> list[Link]:
        return links_of(self.shared, case)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", action="append", default=[], metavar="TEXT", help="rows whose name contains TEXT")
    parser.add_argument("--sets", default="", metavar="TEXT", help="sets whose name contains TEXT")
    parser.add_argument("--seed", type=int, default=0, help="the draws to fit; those of the next are compared")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="file of measured links, to resume from")
    parser.add_argument("--shared", type=Path, default=SHARED, help="the folder of the real samples")
    args = parser.parse_args(argv)
    require("--shared", args.shared / "samples")
    rows = [row for row in ROWS if not row.wrong and (not args.rows or any(text in row.name for text in args.rows))]
    todo = cases(rows, args.sets, args.seed + 2, args.shared)
    if not todo:
        parser.error("no such row or set")
    draws = {row.name for row in rows if row.draws}
    todo = [case for case in todo if case[3] >= args.seed or case[0] not in draws]
    links = _measured(todo, args.shared, args.jobs, args.kept)
    own = [links[case] for case in todo if case[3] == args.seed * (case[0] in draws)]
    others = [links[case] for case in todo if case[3] == (args.seed + 1) * (case[0] in draws)]
    knots: dict[Kind, tuple[float, ...]] = {
        "operation": fitted(weighed(own, "operation")), "layer": fitted(weighed(own, "layer")),
    }  # fmt: skip
    for kind, values in knots.items():
        print(f'"{kind}": {values},')
    with patch.dict(CALIBRATED, knots):
        told = tally(others, "operation"), tally(others, "layer")
    print("\n".join([*reliability_table(*told), *unreliable("operations", told[0]), *unreliable("layers", told[1])]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
