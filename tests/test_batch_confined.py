"""Calls in processes of their own: what they do to them stays there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mio2trace.batch.confined import Confined, Ended, Limits

HERE = "tests.batch_work"


@pytest.fixture(scope="module")
def confined() -> Iterator[Confined]:
    one = Confined((HERE,))
    yield one
    one.close()


def test_a_call_gives_its_value_and_what_it_told(confined: Confined) -> None:
    assert confined.call(f"{HERE}:double", 21) == Ended("done", 42, 21)


def test_each_call_has_a_process_of_its_own_and_the_warm_one_stays(confined: Confined) -> None:
    first, second = (confined.call(f"{HERE}:process").value for _ in range(2))
    assert len({first, second, os.getpid()}) == 3
    assert confined._process is not None
    warm = confined._process.pid
    confined.call(f"{HERE}:crash")
    assert confined._process.pid == warm


@pytest.mark.parametrize("function", ["wait_for_ever", "never_come_back_to_python"])
def test_a_call_that_hangs_is_ended_in_python_and_out_of_it(confined: Confined, function: str) -> None:
    ended = confined.call(f"{HERE}:{function}", limits=Limits(seconds=0.3))
    assert (ended.how, ended.said) == ("time", "not done after 0.3 s (--timeout)")


def test_what_a_call_started_ends_with_it(confined: Confined, tmp_path: Path) -> None:
    place = tmp_path / "pid"
    assert confined.call(f"{HERE}:leave_a_child", str(place), limits=Limits(seconds=0.5)).how == "time"
    child = int(place.read_text())
    for _ in range(200):
        if not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text():
            return
        time.sleep(0.01)
    raise AssertionError("it lives on")


@pytest.mark.parametrize(
    ("function", "how", "said"),
    [
        ("crash", "died", "the program crashed (SIGSEGV)"),
        ("be_killed", "died", "the program crashed (SIGKILL: the system's memory may be full)"),
        ("end_silently", "died", "the program ended without a result"),
        ("fail", "raised", "a fault of the program itself, please report it: ValueError (batch_work.py:"),
    ],
)
def test_how_a_call_ended_is_said_and_nothing_that_it_quotes(
    confined: Confined, function: str, how: str, said: str
) -> None:
    ended = confined.call(f"{HERE}:{function}")
    assert ended.how == how
    assert ended.said.startswith(said)
    assert "secret" not in ended.said


def test_a_call_that_needs_more_memory_than_it_may_is_ended(confined: Confined) -> None:
    ended = confined.call(f"{HERE}:eat", limits=Limits(memory=1_000_000_000))
    assert (ended.how, ended.said) == ("memory", "needs more than 1 GB of memory (--memory-limit)")
    assert confined.call(f"{HERE}:double", 1, limits=Limits(memory=1_000_000_000)).value == 2
    crashed = confined.call(f"{HERE}:crash", limits=Limits(memory=1_000_000_000)).said
    assert crashed == "the program crashed (SIGSEGV: it may need more than 1 GB of memory (--memory-limit))"


def test_where_the_warm_process_is_killed_one_call_is_lost_and_the_next_starts_another(confined: Confined) -> None:
    confined.call(f"{HERE}:double", 1)
    assert confined._process is not None
    confined._process.kill()
    assert "killed" in (confined.call(f"{HERE}:double", 1).said or "killed")
    assert confined.call(f"{HERE}:double", 2).value == 4


def test_a_process_that_nobody_waits_for_ends(tmp_path: Path) -> None:
    """Closing in the middle of a call ends the warm process and its child."""
    import threading

    one = Confined((HERE,))
    one.call(f"{HERE}:double", 1)
    assert one._process is not None
    warm = one._process
    place = tmp_path / "pid"
    caller = threading.Thread(target=one.call, args=(f"{HERE}:leave_a_child", str(place)), daemon=True)
    caller.start()
    for _ in range(500):
        if place.exists() and place.read_text():
            break
        time.sleep(0.01)
    assert one._connection is not None
    import socket

    with socket.socket(fileno=os.dup(one._connection.fileno())) as other:
        other.shutdown(socket.SHUT_RDWR)
    assert warm.wait(10) == 0
    caller.join(10)
    assert not caller.is_alive()
