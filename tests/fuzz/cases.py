"""A case: the files of a run, made up or real, mutated, crossed, swollen, damaged, dressed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.fuzz import crossing, damage, law, mutations, runs, structures

Chance = random.Random
Generator = Callable[[Chance], structures.Case]
GENERATORS: tuple[Generator, ...] = (*structures.GENERATORS, runs.files)
SWOLLEN = 0.004
"""Of all cases: they take a hundred times as long as others."""


class Case(NamedTuple):
    """``enqueues``: kernels and copies that must be drawn, counted or noted; 0 where nobody knows."""

    kind: str
    files: list[bytes]
    enqueues: int


def case(seed: int, number: int, real: Sequence[bytes], kinds: Sequence[str] = ()) -> Case:
    """By itself: it can be made again without those before it. ``kinds``: of `structures.KINDS`; all where empty."""
    chance = random.Random(f"{seed}/{number}")
    generators = tuple(structures.KINDS[kind] for kind in kinds) or GENERATORS
    if chance.random() < SWOLLEN:
        one = _begun(chance, real, generators)
        size = chance.choice((10_000, 40_000, 100_000, 100_000, 200_000))
        return Case(f"long {one.kind}", crossing.swollen(one.files, size, chance), 0)
    one = _begun(chance, real, generators)
    pick = chance.random()
    if pick < 0.15:
        other = _begun(chance, real, generators)
        files = crossing.crossed(one.files, other.files, chance)
        if chance.random() < 0.3:
            files = _mutated(files, chance)
        return Case("crossed", files, 0)
    if pick < 0.25:
        return one
    if pick < 0.75:
        return Case(one.kind, files := _mutated(one.files, chance), law.intact(files))
    files = damage.damaged(one.files, chance)
    if chance.random() < 0.3:
        files = _mutated(files, chance)
    whole = damage.dressed(files, chance)
    return Case(one.kind, whole, law.intact(files) if whole == files else 0)


def cases(seed: int, count: int, real: Sequence[bytes]) -> Iterator[Case]:
    """The first ``count`` of a seed; the same seed, and the same real files, give the same ones."""
    for number in range(count):
        yield case(seed, number, real)


def _begun(chance: Chance, real: Sequence[bytes], generators: Sequence[Generator]) -> Case:
    if real and chance.random() < 0.3:
        count = chance.choice((1, 1, 1, 2))
        pieces = [damage.piece(chance.choice(real), chance) for _ in range(count)]
        return Case("real", pieces, law.intact(pieces))
    made = chance.choice(generators)(chance)
    return Case(made.kind, made.files, made.enqueues)


def _mutated(files: Sequence[bytes], chance: Chance) -> list[bytes]:
    out = list(files)
    which = chance.randrange(len(out))
    if out[which]:
        out[which] = mutations.mutated(out[which], chance)
    return out
