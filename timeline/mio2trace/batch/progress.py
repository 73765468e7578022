"""How far a batch is, how fast, and how long it will go on: the largest runs are first, so that bytes tell it."""

from __future__ import annotations

from mio2trace.batch.journal import Entry

WORTH_OF_A_RUN = 100_000
"""Bytes that take as long as what a run of no size takes."""
SECOND, MINUTE, HOUR = 1, 60, 3600


class Pace:
    """Counts ends. ``sizes``: bytes by run."""

    def __init__(self, sizes: dict[str, int], begun: float) -> None:
        self._sizes = sizes
        self._begun = begun
        self._left = sum(sizes.values()) + WORTH_OF_A_RUN * len(sizes)
        self._worked_off = 0
        self.done = 0
        self.failed = 0

    def take(self, entry: Entry) -> None:
        worth = self._sizes.get(entry.run, 0) + WORTH_OF_A_RUN
        self._left -= worth
        self._worked_off += worth
        self.done += 1
        self.failed += entry.state == "failed"

    def line(self, now: float) -> str:
        """``120 of 1000 runs, 2 failed, 3.8 runs/s, 3 m 51 s left``."""
        passed = max(now - self._begun, 1e-9)
        parts = [f"{self.done} of {len(self._sizes)} runs"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        rate = self.done / passed
        parts.append(f"{rate:.3g} runs/s" if rate >= 0.1 else f"{rate * HOUR:.3g} runs/h")
        if self._worked_off and self._left > 0:
            parts.append(f"{duration(passed * self._left / self._worked_off)} left")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """``4 m 26 s``: the two largest units."""
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} m {whole % MINUTE} s"
    return f"{whole // HOUR} h {whole % HOUR // MINUTE} m"
