"""Calls in processes of their own: what they do to them stays there."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mio2trace.batch.confined import Confined, Ended, Limits
from tests.test_orphans import runs, within

HERE = "tests.batch_work"
MEMORY = Limits(memory=1_000_000_000)


@pytest.fixture(scope="module")
def confined() -> Iterator[Confined]:
    one = Confined((HERE,))
    yield one
    one.close()


def test_a_call_gives_its_value_and_what_it_told(confined: Confined) -> None:
    for limits in (Limits(), MEMORY):
        assert confined.call(f"{HERE}:double", 21, limits=limits) == Ended("done", 42, 21)


def test_each_call_has_a_process_of_its_own_and_the_warm_one_stays(confined: Confined) -> None:
    first, second = (confined.call(f"{HERE}:process").value for _ in range(2))
    assert len({first, second, os.getpid()}) == 3
    assert confined._process is not None
    warm = confined._process.pid
    confined.call(f"{HERE}:crash")
    assert confined._process.pid == warm


def test_what_a_call_started_ends_with_it(confined: Confined, tmp_path: Path) -> None:
    place = tmp_path / "pid"
    assert confined.call(f"{HERE}:leave_a_child", str(place), limits=Limits(seconds=0.5)).how == "time"
    child = int(place.read_text())
    assert within(2, lambda: not runs(child))


@pytest.mark.parametrize(
    ("function", "limits", "how", "said"),
    [
        ("crash", Limits(), "died", "the program crashed (SIGSEGV)"),
        (
            "crash",
            MEMORY,
            "died",
            "the program crashed (SIGSEGV: it may need more than 1 GB of memory (--memory-limit))",
        ),
        ("be_killed", Limits(), "died", "the program crashed (SIGKILL: the system's memory may be full)"),
        ("end_silently", Limits(), "died", "the program ended without a result"),
        ("fail", Limits(), "raised", "a fault of the program itself, please report it: ValueError (batch_work.py:"),
        ("eat", MEMORY, "memory", "needs more than 1 GB of memory (--memory-limit)"),
        ("wait_for_ever", Limits(seconds=0.3), "time", "not done after 0.3 s (--timeout)"),
        ("never_come_back_to_python", Limits(seconds=0.3), "time", "not done after 0.3 s (--timeout)"),
    ],
)
def test_how_a_call_ended_is_said_and_nothing_that_it_quotes(
    confined: Confined, function: str, limits: Limits, how: str, said: str
) -> None:
    ended = confined.call(f"{HERE}:{function}", limits=limits)
    assert ended.how == how
    assert ended.said.partition("py:")[0] == said.partition("py:")[0]
    assert "secret" not in ended.said


def test_a_process_that_nobody_waits_for_ends(tmp_path: Path) -> None:
    """Closing in the middle of a call ends the warm process and its child."""
    one = Confined((HERE,))
    one.call(f"{HERE}:double", 1)
    assert one._process is not None
    warm = one._process
    place = tmp_path / "pid"
    caller = threading.Thread(target=one.call, args=(f"{HERE}:leave_a_child", str(place)), daemon=True)
    caller.start()
    assert within(5, lambda: place.exists() and bool(place.read_text()))
    assert one._connection is not None
    with socket.socket(fileno=os.dup(one._connection.fileno())) as other:
        other.shutdown(socket.SHUT_RDWR)
    assert warm.wait(10) == 0
    caller.join(10)
    assert not caller.is_alive()
