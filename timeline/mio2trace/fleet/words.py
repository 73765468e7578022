"""A fleet in lines, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mio2trace.fleet import Fleet, Row
from mio2trace.outgoing import shortened

MOST = 3
"""Rows that a line names."""


def lines(fleet: Fleet) -> Iterator[str]:
    """The verdict, then what leads each table."""
    yield fleet.verdict
    yield from _line("problems", [f"{row['problem']} {row['kernel_ms']:g} ms" for row in fleet.problems])
    slower = [row for row in fleet.regressions if row["clear"]] or fleet.regressions
    yield from _line("slower", [f"{row['problem']} {row['ratio']:g} x since {row['version']}" for row in slower])
    yield from _line("outliers", [f"{_name(row)} {row['ratio']:g} x" for row in fleet.outliers])
    yield from _line("odd", [f"{row['id']} in {row['runs']} runs" for row in fleet.odd])
    yield from _line("failed", [f"{row['run']}: {row['error']}" for row in fleet.failures])


def _line(head: str, found: Sequence[str]) -> Iterator[str]:
    if found:
        more = f"; {len(found) - MOST} more" if len(found) > MOST else ""
        yield f"{head:<12}{'; '.join(shortened(text, 100) for text in found[:MOST])}{more}"


def _name(row: Row) -> str:
    return str(row["run"]) if row["rank"] is None else f"{row['run']}, rank {row['rank']}"
