"""Numbers of processes and tracks, no two the same in a trace."""

from __future__ import annotations


class Ids:
    """Gives numbers out, each once.

    Viewers append them to names, so everything asks for the one that says what it is (hosts from 1, devices from 100,
    their tracks behind them); where many profiles are drawn and that one is taken, it gets the next behind all others.
    """

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._last = 0

    def take(self, wanted: int) -> int:
        """``wanted`` or, where that is taken, a number behind all that are."""
        number = self._last + 1 if wanted in self._taken else wanted
        self._taken.add(number)
        self._last = max(self._last, number)
        return number
