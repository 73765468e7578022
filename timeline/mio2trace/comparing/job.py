"""A job as one run: the mean over its ranks, iteration by iteration; each rank's own iteration beside it.

A mean stays the same when a job gets more ranks, and one slow rank shows in it by its share; which one it is says its
own row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from mio2trace.comparing.record import Inside, Kind, Part, Rank, RunRecord


def mean_of(names: Sequence[str], records: Sequence[RunRecord]) -> RunRecord:
    """Of records whose samples are of each iteration, in order: as many iterations as all of them have."""
    count = min(record.iterations for record in records)
    samples = _mean([record.samples_ns for record in records], count, len(records))
    parts: dict[tuple[Kind, str], list[Part]] = {}
    for record in records:
        for part in record.parts:
            parts.setdefault((part.kind, part.name), []).append(part)
    firsts = [record.first_ns for record in records if record.first_ns is not None]
    return msgspec.structs.replace(
        records[0],
        iterations=count,
        samples_ns=samples,
        mean_ns=sum(samples) / count,
        steps=max((record.steps for record in records), key=lambda of: sum(of[0][1]) / len(of[0][1]) if of else 0),
        first_ns=sum(firsts) / len(firsts) if firsts else None,
        find_ns=sum(record.find_ns for record in records) / len(records),
        build_ns=sum(record.build_ns for record in records) / len(records),
        parts=tuple(_part(own, count, len(records)) for own in parts.values()),
        ranks=tuple(
            Rank(name=name, samples_ns=record.samples_ns[:count]) for name, record in zip(names, records, strict=True)
        ),
    )


def _part(own: Sequence[Part], count: int, ranks: int) -> Part:
    samples = _mean([part.samples_ns for part in own], count, ranks)
    return msgspec.structs.replace(
        own[0],
        samples_ns=samples,
        mean_ns=sum(samples) / count,
        calls=sum(part.calls for part in own) / ranks,
        solvers=tuple(dict.fromkeys(solver for part in own for solver in part.solvers)),
        kernels=tuple(_inside((one for part in own for one in part.kernels), ranks)),
    )


def _inside(kernels: Iterable[Inside], ranks: int) -> Iterable[Inside]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    first: dict[str, Inside] = {}
    for one in kernels:
        first.setdefault(one.name, one)
        sums[one.name][0] += one.count
        sums[one.name][1] += one.ns
    for name, (number, ns) in sums.items():
        yield msgspec.structs.replace(first[name], count=number / ranks, ns=ns / ranks)


def _mean(samples: Iterable[Sequence[float]], count: int, ranks: int) -> tuple[float, ...]:
    """Of each iteration; a rank that lacks a part takes no time in it."""
    return tuple(sum(of_iteration) / ranks for of_iteration in zip(*(own[:count] for own in samples), strict=True))
