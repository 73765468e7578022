"""Work in a second process: its bytes, or the word that there are none."""

from __future__ import annotations

import os
import signal
import threading
from typing import BinaryIO

import pytest
from mio2trace import forked as beside

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch, alone: None) -> None:
    monkeypatch.setattr(beside, "processors", lambda: 2)


def _pid(file: BinaryIO) -> None:
    file.write(b"%d" % os.getpid())


@forks
def test_the_work_is_done_in_another_process() -> None:
    """Its output is read from the start."""
    with beside.beside(_pid) as result:
        file = result()
        assert file is not None
        assert int(file.read()) != os.getpid()


@pytest.mark.parametrize("why", ["one processor", "a thread runs", "no fork", "the fork fails", "no file"])
def test_there_is_no_result_where_no_process_can_be(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """The caller then works himself; the work is not begun."""
    stop = threading.Event()

    def refuse(*_: object) -> int:
        raise OSError(12, "Cannot allocate memory")

    if why == "one processor":
        monkeypatch.setattr(beside, "processors", lambda: 1)
    elif why == "a thread runs":
        threading.Thread(target=stop.wait, daemon=True).start()
    elif why == "no fork":
        monkeypatch.delattr(os, "fork", raising=False)
    elif why == "the fork fails":
        monkeypatch.setattr(os, "fork", refuse, raising=False)
    else:
        monkeypatch.setattr("tempfile.TemporaryFile", refuse)
        monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    try:
        with beside.beside(lambda _: pytest.fail("worked")) as result:
            assert result() is None
    finally:
        stop.set()


@forks
@pytest.mark.parametrize("way", ["raises", "is killed"])
def test_there_is_no_result_of_a_process_that_fails(way: str) -> None:
    """Whatever it wrote before."""

    def work(file: BinaryIO) -> None:
        file.write(b"half")
        file.flush()
        if way == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise MemoryError

    with beside.beside(work) as result:
        assert result() is None


def test_processors_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may allow fewer than the machine has."""
    monkeypatch.undo()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert beside.processors() == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert beside.processors() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert beside.processors() == 1
