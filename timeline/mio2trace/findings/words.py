"""Numbers in sentences: the same in findings, report and terminal."""

from __future__ import annotations

WHOLE, PART = "the iteration", "the recorded part of the iteration"
"""What a share is of: a mean steady iteration, or what there is of the only one."""


def ms(ns: float) -> str:
    """A time with three digits that say something: ``6,734 ms``, ``55.2 ms``, ``0.042 ms``, ``310 ns``."""
    if abs(ns) < 1000:
        return f"{ns:.0f} ns"
    value = ns / 1e6
    if value >= 100_000:
        return f"{value / 1000:,.0f} s"
    for least, digits in ((1000, 0), (100, 1), (10, 2), (0.01, 3)):
        if value >= least:
            return f"{value:,.{digits}f} ms"
    return f"{value:.4f} ms"


def part_of(ns: float, whole_ns: float) -> str:
    """``234.0 of 279.3 ms``; ``310 ns of 2.000 ms``."""
    part, whole = ms(ns), ms(whole_ns)
    unit = whole.rpartition(" ")[2]
    return f"{part.removesuffix(f' {unit}') if part.endswith(f' {unit}') else part} of {whole}"


def percent(share: float) -> str:
    """``34.2 %``; ``under 0.1 %`` for what would look like nothing."""
    if 0 < share < 0.0005:
        return "under 0.1 %"
    return f"{100 * share:,.1f} %"


def count(number: int, noun: str) -> str:
    """``1 kernel``, ``2,351 kernels``, ``3 searches``."""
    if number == 1:
        return f"1 {noun}"
    ending = noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith("ch") else "s")
    return f"{number:,} {ending}"


def rate(gflops: float) -> str:
    """``812 GFLOP/s``, ``12.4 TFLOP/s``."""
    if gflops >= 10_000:
        return f"{gflops / 1000:,.1f} TFLOP/s"
    return f"{gflops:,.0f} GFLOP/s" if gflops >= 100 else f"{gflops:.3g} GFLOP/s"


def of_one(noun: str) -> str:
    """What follows a number: ``per iteration``, ``in the recorded part of the iteration``."""
    return "per iteration" if noun == WHOLE else f"in {noun}"
