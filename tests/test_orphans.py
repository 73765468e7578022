"""A process that is killed clears up nothing: what it had started ends with it all the same."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mio2trace.batch.confined import Confined, end_with
from tests.conftest import ROOT
from tests.small_runs import as_json, small

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process cannot ask to end with its parent")
HERE = "tests.batch_work"
ENDLESS = "with recursive n(x) as (select 1 union all select x + 1 from n) select count(*) from n"


def family(pid: int) -> set[int]:
    """A process and all that it started, and what these started."""
    found = {pid}
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, file.read_text().split()):
                found |= family(child)
    return found


def group(pid: int) -> set[int]:
    """The processes of a group that run: one that has ended and that nobody has asked about yet does not."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of = file.read_text().rpartition(")")[2].split()[:3]
            if int(of) == pid and state not in "ZX":
                found.add(int(file.parent.name))
    return found


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def within(seconds: float, true: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not (now := true()) and time.monotonic() < until:
        time.sleep(0.05)
    return now


def test_a_run_of_a_batch_ends_with_the_warm_process_that_is_killed(tmp_path: Path) -> None:
    """Nothing of the group is left, and the next call has a new process."""
    one = Confined((HERE,))
    place = tmp_path / "pid"
    caller = threading.Thread(target=one.call, args=(f"{HERE}:stay", str(place)))
    caller.start()
    assert within(20, lambda: place.exists() and bool(group(int(place.read_text() or 0))))
    child = int(place.read_text())
    assert one._process is not None
    one._process.kill()
    caller.join(20)
    assert within(5, lambda: not group(child)), group(child)
    assert one.call(f"{HERE}:double", 2).value == 4
    one.close()


def test_a_thread_that_ends_ends_no_process_that_it_had_started() -> None:
    """Each of a batch's threads leads a warm process: another thread may go on with it."""
    one = Confined((HERE,))
    first = threading.Thread(target=one.call, args=(f"{HERE}:double", 1))
    first.start()
    first.join()
    assert one._process is not None
    warm = one._process.pid
    time.sleep(0.1)
    assert one.call(f"{HERE}:double", 2).value == 4
    assert one._process.pid == warm
    one.close()


_CALL = """
import anyio, sys
from mio2trace.serving import Limits, call
place, query = sys.argv[1:]
anyio.run(call, ["query", "prof.json", query], [place + "/prof.json"], [place], place, Limits(500, 1 << 30, 1000))
"""


def test_a_call_of_mcp_ends_with_the_program_if_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "prof.json").write_bytes(as_json(small()))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "timeline")}
    leader = subprocess.Popen([sys.executable, "-c", _CALL, str(tmp_path), ENDLESS], env=environment)
    try:
        assert within(20, lambda: len(family(leader.pid)) > 1)
        time.sleep(0.5)  # until it is past what it does first
        started = family(leader.pid) - {leader.pid}
        assert started
    finally:
        leader.kill()
        leader.wait()
    assert within(5, lambda: not any(map(runs, started))), started


def test_a_process_whose_parent_ended_before_it_could_say_so_ends_at_once() -> None:
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            end_with(1 << 30)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
