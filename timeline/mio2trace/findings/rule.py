"""The rules of the table: a rule, its findings, and their severity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from mio2trace.findings.subject import Subject

Severity = Literal["high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")
"""Worst first."""
BANDS: tuple[tuple[Severity, float], ...] = (("high", 0.10), ("medium", 0.03), ("low", 0.005))
"""The least share of the time for each severity. There is no finding below the last one."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rule in a run.

    ``ns``: time at stake, per steady iteration unless the rule says otherwise; None if only a count is known.
    ``share``: its part of the rule's denominator. ``number``: a sentence with these numbers. ``scope``: the layers,
    operations or kernels concerned, most time first. ``drivers``: MIOpenDriver lines that run the problems again.
    ``severity``: replaces that of the share. ``names``: names in the sentence or the advice that may be shortened if
    there is little room.
    """

    number: str
    ns: int | None = None
    share: float | None = None
    count: int = 1
    scope: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    severity: Severity | None = None
    advice: str = ""
    """The advice for this case; it replaces the rule's advice."""
    names: tuple[str, ...] = ()


_Find = Callable[["Subject"], Iterator[Found]]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table. ``fires``: its threshold in words. docs/findings.md has it under the heading of its ``id``,
    and how its number is computed. ``advice``: empty if each `Found` has its own; docs/findings.md lists the cases.
    ``is_of_evidence``: whether it finds gaps in the recording, which cost the run no time."""

    id: str
    title: str
    fires: str
    find: _Find
    advice: str = ""
    is_of_evidence: bool = False


def add_rule(rules: list[Rule], **row: Any) -> Callable[[_Find], _Find]:
    """Return a decorator that adds the rule of a function to a table. ``row``: all fields of the rule but ``find``."""

    def added(find: _Find) -> _Find:
        rules.append(Rule(find=find, **row))
        return find

    return added


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that fired."""

    rule: Rule
    severity: Severity
    found: Found

    @property
    def advice(self) -> str:
        """The advice for this case if there is one, else the rule's advice."""
        return self.found.advice or self.rule.advice

    def record(self) -> dict[str, object]:
        """Return the finding as `report --format json` writes it."""
        found = self.found
        return {
            "id": self.rule.id,
            "severity": self.severity,
            "ns": found.ns,
            "share": None if found.share is None else round(found.share, 6),
            "count": found.count,
            "scope": list(found.scope),
            "rule": self.rule.fires,
            "try": self.advice,
            "number": found.number,
        }


def severity_of(share: float | None) -> Severity | None:
    """Return the severity of a share of the time; None if the share is too small for a finding."""
    return next((name for name, least in BANDS if share is not None and share >= least), None)


def at_most_medium(share: float) -> Severity | None:
    """Return the severity of a cost that is paid once, or of names that are not known: never `high`."""
    return "medium" if severity_of(share) == "high" else severity_of(share)


# -- Numbers in sentences: the same in findings, report and terminal ---------------------------------------------------

WHOLE, PART = "the iteration", "the recorded part of the iteration"
"""The denominator of a share: a mean steady iteration, or the recorded part of the only iteration."""
RECORDING = "the recording"
"""The denominator if no iterations are known: from the first to the last command of the device."""


def ms(ns: float) -> str:
    """Format a time with three significant digits: ``6,734 ms``, ``55.2 ms``, ``0.042 ms``, ``310 ns``."""
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
    """Return ``34.2 %``, or ``under 0.1 %`` for a share that would round to nothing."""
    if 0 < share < 0.0005:
        return "under 0.1 %"
    return f"{100 * share:,.1f} %"


def rate(gflops: float) -> str:
    """``812 GFLOP/s``, ``12.4 TFLOP/s``."""
    if gflops >= 10_000:
        return f"{gflops / 1000:,.1f} TFLOP/s"
    return f"{gflops:,.0f} GFLOP/s" if gflops >= 100 else f"{gflops:.3g} GFLOP/s"


def of_one(noun: str) -> str:
    """The words after a number: ``per iteration``, ``in the recorded part of the iteration``."""
    return "per iteration" if noun == WHOLE else f"in {noun}"
