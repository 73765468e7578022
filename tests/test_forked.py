"""How many processes there may be."""

from __future__ import annotations

import os

import pytest

from mio2trace.batch.confined import processors


def test_processors_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may allow fewer than the machine has."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert processors() == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert processors() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processors() == 1
