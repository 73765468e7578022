"""Findings in the answer block: what does not fit is the middle of a name, never the end of the sentence."""

from __future__ import annotations

from typing import Any

import pytest

from mio2trace.answer.content import KernelRow, LayerRow, OperationRow, Section
from mio2trace.answer.text import MOST_LINES, WIDTH, _sentence, _whole_items, block
from mio2trace.findings import Finding, findings
from mio2trace.measures.completeness import Completeness
from mio2trace.model.profile import Call, Range
from tests.made_up_costs import MS, Ran, fired, twice
from tests.test_findings import CASES, Case

DATALOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def idle(name: str, *, range_: bool = False) -> Finding:
    """Of two iterations, each with a gap of 40 ms in which the host is in a call or a range."""
    each = [Ran("a", 30 * MS), Ran("b", 30 * MS, after_ns=40 * MS), Ran("b", 10 * MS, after_ns=5 * MS, queued=True)]
    spans = [(begin + 30 * MS, begin + 71 * MS) for begin in (1000 * MS, 2115 * MS)]
    calls = [] if range_ else [Call(name, 0, *span) for span in spans]
    ranges = [Range("annotation", name, 0, *span) for span in spans] if range_ else []
    return fired(twice(each, other_calls=calls, ranges=ranges), "idle")


def shown(*found: Finding, rows: int = 3) -> list[str]:
    """The block of a run with so many rows of each list."""
    layers = tuple(LayerRow(name=f"layer {at}", direction="", ns=1) for at in range(rows))
    operations = tuple(OperationRow(name=f"op {at}", layer="", calls=1, ns=1) for at in range(rows))
    kernels = tuple(KernelRow(name=f"kernel {at}", calls=1, ns=1) for at in range(rows))
    lists: dict[str, Any] = {"layers": layers, "operations": operations, "kernels": kernels}
    return block(Section(name="", verdict="100.0 ms per iteration.", kernel_ns=9, findings=found, **lists))


def sentence(lines: list[str], label: str) -> str:
    at = next(number for number, line in enumerate(lines) if line.startswith(label))
    end = next((n for n in range(at + 1, len(lines)) if not lines[n].startswith("        ")), len(lines))
    return " ".join(line[8:] for line in lines[at:end])


@pytest.mark.parametrize("length", range(1, 140, 3))
def test_the_end_of_the_sentence_is_there_whatever_the_length_of_the_name(length: int) -> None:
    """The JSON has the name as it is."""
    name = f"call{'Number' * 40}"[: max(4, length)]
    found = idle(name)
    lines = shown(found)
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH
    number, advice = sentence(lines, "HIGH"), sentence(lines, "     ->")
    assert number.endswith(" gap; 5.000 ms queued in 1 gap.")
    assert advice.endswith(" for so long.")
    assert name[:4] in number
    assert name in found.record()["number"]  # type: ignore[operator]
    assert name in found.record()["try"]  # type: ignore[operator]


def test_a_name_loses_its_middle() -> None:
    """As much as has to go, and no more."""
    number = sentence(shown(idle(DATALOADER * 3, range_=True)), "HIGH")
    assert "(40.00 ms of it in enumerate(DataLoader)#" in number
    assert "DataLoaderIter.__next__) in 1 gap; 5.000 ms queued in 1 gap." in number
    assert DATALOADER[:26] in sentence(shown(idle(DATALOADER[:26], range_=True)), "HIGH")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_findings_and_their_advice_fit(case: Case) -> None:
    """In three lines each, at the severity that shows the advice."""
    for one in findings(case.has):
        if one.severity != "info":
            lines = shown(one, rows=0)
            assert not lines[-1].endswith(" ..."), lines
            assert not sentence(lines, one.severity.upper()).endswith(" ..."), lines


def test_lists_give_way_to_the_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """With less room the rows of the lists go first, then the middle of the name."""
    found = idle(DATALOADER[:40])
    said = sentence(shown(found), "HIGH")
    for room, rows in ((16, 3), (15, 2), (11, 1)):
        monkeypatch.setattr("mio2trace.answer.text.MOST_LINES", room)
        lines = shown(found)
        assert len(lines) <= room
        assert sum("layer " in line for line in lines) == rows
        assert sentence(lines, "HIGH") == said
    assert said.endswith("queued in 1 gap.")


@pytest.mark.parametrize(
    "more",
    [
        "6 similar problems have 4.5 GFLOP/s on the median, in other layers.",
        "It is in no block of this run, and in no layer.",
    ],
)
def test_a_sentence_that_does_not_fit_is_left_out_as_a_whole(more: str) -> None:
    """No line ends with the first words of a sentence: `... block 2). The profile ...`."""
    text = (
        f"Problems are slower than similar ones: {'much ' * 16}to save in this run, which has only one of them; {more}"
    )
    lines = _sentence("LOW", text, (), 3)
    assert len(lines) <= 3
    assert " ".join(lines).endswith("which has only one of them.")
    assert _sentence("LOW", text, (), 2)[-1].endswith(" ...")


def test_a_remark_in_parentheses_is_there_as_a_whole_or_not_at_all() -> None:
    """Not `once (56.6 % of the iterations ...`."""
    text = f"First runs are slow: The first iteration {'took long and ' * 5}254.8 ms more, once"
    assert _sentence("LOW", f"{text} (56.6 % of the iterations recorded, or {'more ' * 9}).", (), 2)[-1].endswith(
        "254.8 ms more, once ..."
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Gemm 55.3 %, MHA 20.4 %, norm 6.5 %, other kernels 4.6 %, cache 2.0 %", "other kernels 4.6 % ..."),
        ("MoE 80.0 %, Gemm 11.3 %, MHA 3.3 %, norm 2.2 %, other kernels 1.5 %", "norm 2.2 % ..."),
        ("wait 34.78 ms (of 2, or 3); rank 1 arrives last 11 times: the host is late", "last 11 times ..."),
        ("wait 34.78 ms of 1,000 ms in 15 collectives (only 2 of 4, or more, are here)", "in 15 collectives ..."),
        ("Gemm 55.3 %, MHA 20.4 %", "MHA 20.4 %"),
    ],
)
def test_a_list_ends_with_a_whole_item(text: str, shown: str) -> None:
    """Neither with a comma, nor with a number without its unit."""
    (line,) = _whole_items("parts", text, 1)
    assert line.endswith(shown)
    assert len(line) <= WIDTH


def test_a_verdict_without_a_machine_begins_its_line() -> None:
    complete = Completeness(counts={})
    lines = block(Section(name="", verdict="1.0 ms per iteration.", kernel_ns=9, completeness=complete))
    assert lines[0] == "profile complete"
