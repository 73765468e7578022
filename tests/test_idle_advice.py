"""What is advised against idle time fits its largest cause in the run."""

from __future__ import annotations

import msgspec
import pytest

from mio2trace.findings import findings
from mio2trace.model.profile import Call
from tests.made_up_costs import MS, Ran, subject


def advice(*calls: Call, queued: bool = False, graph: bool = False) -> str:
    """Of two iterations of 110 ms, each with a gap of 40 ms in which the host is in one of ``calls``."""
    each = [Ran("a", 30 * MS), Ran("b", 40 * MS, after_ns=40 * MS, queued=queued, graph=graph)]
    (idle,) = [one for one in findings(subject({1: each, 2: each}, other_calls=calls)) if one.rule.id == "idle"]
    return idle.advice


def during(name: str) -> list[Call]:
    return [Call(name, 0, begin + 31 * MS, begin + 69 * MS) for begin in (1000 * MS, 2110 * MS)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hipStreamSynchronize", "remove this synchronisation"),
        ("hipMemcpyWithStream", "A blocking copy"),
        ("hipMalloc", "allocate once"),
        ("hiprtcCompileProgram", "Programs are built or loaded"),
        ("hipGetDevice", "launches too slowly"),
    ],
)
def test_the_call_that_the_host_is_in_decides(name: str, said: str) -> None:
    assert said in advice(*during(name))


def test_work_that_was_launched_in_time_is_not_the_hosts() -> None:
    assert "look for what it waits for" in advice(queued=True)


def test_graphs_are_not_advised_to_a_run_of_graphs() -> None:
    assert "launched by graphs already" in advice(graph=True)


def test_one_iteration_alone_asks_for_more() -> None:
    """It may be cold: nothing else can be advised."""
    ran = [Ran("a", 30 * MS), Ran("b", 30 * MS, after_ns=40 * MS)]
    (idle,) = [one for one in findings(subject({1: ran})) if one.rule.id == "idle"]
    assert idle.severity == "medium"
    assert idle.advice.startswith("Record several steps")
    assert msgspec.to_builtins(idle.record())["try"] == idle.advice
