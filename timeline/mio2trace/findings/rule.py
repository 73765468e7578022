"""What a rule of the table is, what it finds, and how severe that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from mio2trace.findings.subject import Subject

Severity = Literal["high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")
"""Worst first."""
BANDS: tuple[tuple[Severity, float], ...] = (("high", 0.10), ("medium", 0.03), ("low", 0.005))
"""From which share of the time on; below the last there is no finding."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule's formula gives for a run.

    ``ns``: time at stake, of a steady iteration unless the rule says otherwise, None where only a count is known;
    ``share``: its part of what the rule divides by. ``number``: the sentence that says them. ``scope``: what it is
    about, most time first. ``drivers``: MIOpenDriver lines that run it again. ``severity`` in place of that of
    the share.
    """

    ns: int | None
    share: float | None
    count: int
    number: str
    scope: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    severity: Severity | None = None
    advice: str = ""
    """What to do about this very case, in place of the rule's advice."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table. ``fires``: its threshold in words; ``formula``: what the number is; both are in
    docs/findings.md under the heading of its ``id``."""

    id: str
    title: str
    fires: str
    formula: str
    advice: str
    find: Callable[[Subject], Iterator[Found]]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that fired."""

    rule: Rule
    severity: Severity
    found: Found

    @property
    def advice(self) -> str:
        """What to do: about this case if that is known, else what the rule says."""
        return self.found.advice or self.rule.advice

    def record(self) -> dict[str, object]:
        """As `report --format json` writes it."""
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
    """The band that a share of the time is in; None below all of them."""
    return next((name for name, least in BANDS if share is not None and share >= least), None)
