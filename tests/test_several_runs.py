"""Calls of several runs of a program in one log, where nothing but their order tells."""

from __future__ import annotations

from mio2trace.align.clocks.log_runs import begun_again
from mio2trace.ops.operation import Operation
from tests.records import made_operation


def calls(text: str) -> list[Operation]:
    """Capital letters search for the problem that the small ones execute."""
    return [
        made_operation(
            index=place,
            line=place + 1,
            end_line=place + 1,
            source=0,
            api="Find" if letter.isupper() else "Run",
            primitive="conv",
            phase="find" if letter.isupper() else "run",
            problem=letter.lower(),
        )
        for place, letter in enumerate(text)
    ]


def test_what_a_log_begins_with_twice_may_be_of_either_run() -> None:
    """Killed while it searched, or in its first iteration: the same calls of the next run are as likely."""
    assert begun_again(calls("ABCABCDabcdabcd")) == frozenset(range(6))
    assert begun_again(calls("ABCDabABCDabcdabcd")) == frozenset(range(12))


def test_iterations_and_layers_alike_are_no_second_run() -> None:
    """What comes again is executed, or is searched for in layers that are alike."""
    assert not begun_again(calls("ABCDabcdabcd"))
    assert not begun_again(calls("AAAAAAAaaaa"))
    assert not begun_again(calls("abcdabcd"))
    assert not begun_again([])
