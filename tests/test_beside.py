"""Calls on a thread beside the caller's own work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.source import Beside


@given(st.integers(0, 20), st.integers(0, 3))
def test_calls_are_worked_off_in_order(count: int, left: int) -> None:
    """All of them when it is closed, all but a few when so many may be left."""
    done: list[int] = []
    with closing(Beside()) as beside:
        for number in range(count):
            beside.give(lambda number=number: done.append(number))  # type: ignore[misc]
        beside.wait(left)
        assert len(done) >= count - left
    assert done == list(range(count))


def test_who_waits_gets_what_a_call_raised() -> None:
    """Once; the calls behind it are done all the same."""
    done: list[int] = []
    with closing(Beside()) as beside:
        beside.give(lambda: 1 // 0)
        beside.give(lambda: done.append(1))
        with pytest.raises(ZeroDivisionError):
            beside.wait()
        beside.wait()
    assert done == [1]


def test_nobody_waits_for_a_thread_that_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may find no memory where nothing can be caught any more: it ends, and its call never does."""
    ended = threading.Event()

    def work(_: object) -> None:
        ended.set()

    monkeypatch.setattr(Beside, "_work", work)
    monkeypatch.setattr("mio2trace.source.LOOK_S", 0.01)
    begun: Callable[[], object] = ended.wait
    with closing(Beside()) as beside:
        beside.give(begun)
        with pytest.raises(MemoryError):
            beside.wait()
        beside.wait()
