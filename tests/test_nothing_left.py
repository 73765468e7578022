"""A program that analyses one run after another keeps nothing of those before: the collector is off meanwhile."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import mio2trace
from mio2trace.source import Source
from tests.kineto_files import kineto_file

TRACES = Path(__file__).resolve().parent.parent / "traces"


@contextlib.contextmanager
def frozen() -> Iterator[None]:
    """The collector is off and does not see what other tests left, which takes it a second to look through."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


OTHERS = sorted({place.name for place in TRACES.iterdir() if place.is_dir()} - {"lenet-rocpd"})


@pytest.mark.parametrize("run", ["lenet-rocpd", *(pytest.param(name, marks=pytest.mark.thorough) for name in OTHERS)])
def test_an_analysis_that_is_let_go_leaves_no_circles(run: str) -> None:
    """Neither sources nor what hangs on them; a few of Python's own, of modules that were imported."""
    files = [str(file) for file in (TRACES / run).iterdir() if "trace." not in file.name and "truth" not in file.name]
    mio2trace.analyse(files)
    with frozen():
        mio2trace.analyse(files)
        assert not [left for left in gc.get_objects() if isinstance(left, Source)]
        assert gc.collect() < 20


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_a_conversion_keeps_neither_reader_nor_writer(suffix: str, tmp_path: Path) -> None:
    """A reader has numbers of all rows of a file, of which most are not drawn; it is gone before the first is."""
    path = kineto_file(tmp_path, name="run.json")

    def there() -> Counter[str]:
        parts = ("mio2trace.readers.", "mio2trace.source", "mio2trace.writers.")
        kinds = map(type, gc.get_objects())
        # the module of a class made in C may be a descriptor
        return Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith(parts))

    mio2trace.convert(path, output=tmp_path / f"made{suffix}")
    with frozen():
        mio2trace.convert(path, output=tmp_path / f"made{suffix}")
        assert not there()
