"""A program that analyses one run after another keeps nothing of those before: the collector is off meanwhile."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import mio2trace
from mio2trace.source import Source

TRACES = Path(__file__).resolve().parent.parent / "traces"


@pytest.mark.parametrize("run", sorted(place.name for place in TRACES.iterdir() if place.is_dir()))
def test_an_analysis_that_is_let_go_leaves_no_circles(run: str) -> None:
    """Neither sources nor what hangs on them; a few of Python's own, of modules that were imported."""
    files = [str(file) for file in (TRACES / run).iterdir() if "trace." not in file.name and "truth" not in file.name]
    mio2trace.analyse(files)
    gc.collect()
    gc.disable()
    try:
        mio2trace.analyse(files)
        assert not [left for left in gc.get_objects() if isinstance(left, Source)]
        assert gc.collect() < 20
    finally:
        gc.enable()
