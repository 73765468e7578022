"""Work in a second process: its bytes, or the word that there are none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO

import pytest

from mio2trace import forked as beside
from tests.small_runs import as_json, small

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


@forks
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_while_a_process_is_made_leaves_none(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """Nor does it stay held back. A test's process may have other threads: the signal is this one's."""
    fork, made = os.fork, []

    def interrupted() -> int:
        if when == "before":
            signal.raise_signal(signal.SIGINT)
        process = fork()
        if process:
            made.append(process)
            if when == "after":
                signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(os, "fork", interrupted)
    held = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with pytest.raises(KeyboardInterrupt), beside.beside(lambda file: time.sleep(60)):
        pytest.fail("went on")
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == held
    with pytest.raises(ChildProcessError):
        os.waitpid(made[0], os.WNOHANG)


@forks
def test_an_interrupt_of_the_new_process_stays_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A terminal's goes to both, and only the one that began says so and clears up."""
    fork, owner = os.fork, os.getpid()

    def interrupted() -> int:
        process = fork()
        if not process:
            signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(os, "fork", interrupted)
    try:
        with beside.beside(_pid) as result:
            assert result() is None
    finally:
        if os.getpid() != owner:
            (tmp_path / "out").touch()
            os._exit(1)
    assert not (tmp_path / "out").exists()


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


_WITH = """
import io, os, resource, signal, sys
from mio2trace import forked
{before}
forked.processors = lambda: 2
forked.possible = lambda: hasattr(os, "fork")
from mio2trace.conversion import convert
convert(sys.argv[1], output=sys.argv[2])
"""


@pytest.mark.parametrize(
    "before",
    [
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "del os.fork",
        "del os.memfd_create",
        "fork = os.fork; os.fork = lambda: fork() or os.kill(os.getpid(), signal.SIGKILL)",
        "fork = os.fork; os.fork = lambda: fork() or resource.setrlimit(resource.RLIMIT_AS, (1, 1)) or 0",
        "def none(): raise BlockingIOError(11, 'no process')\nos.fork = none",
    ],
    ids=["nobody is told", "no fork", "no file in memory", "killed", "no memory", "no process"],
)
def test_same_bytes_whatever_becomes_of_the_second_process(before: str, tmp_path: Path) -> None:
    """The trace is the same whether the second process can be, is killed, has no memory, or ends unseen."""
    (tmp_path / "prof.json").write_bytes(as_json(small()))
    texts = []
    for number, line in enumerate(("", before)):
        command = [sys.executable, "-c", _WITH.format(before=line), "prof.json", f"{number}.json"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        texts.append((tmp_path / f"{number}.json").read_bytes())
    assert texts[0] == texts[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.json", "1.json", "prof.json"]


@forks
def test_a_child_does_not_outlive_what_went_wrong_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended and waited for."""
    children: list[int] = []
    real = os.fork

    def fork() -> int:
        children.append(real())
        return children[-1]

    monkeypatch.setattr(os, "fork", fork)

    def forever(_: BinaryIO) -> None:
        signal.pause()

    with pytest.raises(BrokenPipeError), beside.beside(forever):
        raise BrokenPipeError
    assert children
    with pytest.raises(ChildProcessError):
        os.waitpid(children[0], os.WNOHANG)


@forks
def test_an_interrupt_after_the_child_was_waited_for_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes between the system's answer and the line that notes it; there is no child left to end."""
    real = os.waitpid
    interrupts = [KeyboardInterrupt]

    def waitpid(process: int, options: int) -> tuple[int, int]:
        found = real(process, options)
        if interrupts:
            raise interrupts.pop()
        return found

    monkeypatch.setattr(os, "waitpid", waitpid)
    with pytest.raises(KeyboardInterrupt), beside.beside(lambda file: None) as result:
        result()
    assert not interrupts
