"""Blocks of made-up networks without modules: each op in the block that called it, or in none; no guess is sure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.align import NONE, Alignment
from mio2trace.align.layers.by_sequence import Op, find_blocks
from tests.kineto_files import FIRST_US, Row, kineto_alignment, row

Called = tuple[str, str, float, tuple[tuple[int, ...], ...]]
"""(where it is called, op, host time before it, shapes). ``where``: ``0``, ``1`` are blocks, all else is outside."""
TOKENS, WIDTH = 8, 16
HIDDEN = (TOKENS, WIDTH)
BETWEEN, MODULE, WITHIN = 30.0, 12.0, 3.0


def linear(where: str, out: int, gap: float = MODULE, into: int = WIDTH) -> Called:
    return where, "aten::linear", gap, ((TOKENS, into), (out, into))


def norm(where: str, gap: float = MODULE) -> Called:
    return where, "aten::layer_norm", gap, (HIDDEN, (WIDTH,))


def add(where: str) -> Called:
    return where, "aten::add", WITHIN, (HIDDEN, HIDDEN)


def block(number: int, *, norm_first: bool = True, wide: int = 64, more: Sequence[str] = ()) -> Iterator[Called]:
    """A layer of a transformer; the host takes longest before its first op. Its views have gradients."""
    where = str(number)
    yield where, "aten::view", MODULE, (HIDDEN,)
    if norm_first:
        yield norm(where, BETWEEN)
    yield from (linear(where, WIDTH, MODULE if norm_first or at else BETWEEN) for at in range(3))
    yield where, "aten::transpose", WITHIN, (HIDDEN,)
    yield from ((where, name, WITHIN, (HIDDEN,)) for name in more)
    yield where, "aten::scaled_dot_product_attention", WITHIN, (HIDDEN, HIDDEN)
    yield linear(where, WIDTH)
    yield add(where)
    yield norm(where, WITHIN + 1)
    yield linear(where, wide)
    yield where, "aten::gelu", WITHIN, ((TOKENS, wide),)
    yield linear(where, WIDTH, into=wide)
    yield add(where)
    if not norm_first:
        yield norm(where, WITHIN + 1)


def network(blocks: Iterable[Iterable[Called]], *, norm_first: bool = True, head: int = 50) -> list[Called]:
    """Around the blocks an embedding and a linear layer, which may share their weights."""
    last = norm("head", MODULE)
    first = norm("embedding", WITHIN + 1)
    return [
        ("embedding", "aten::embedding", MODULE, ((head, WIDTH), (TOKENS,))),
        add("embedding"),
        *(() if norm_first else (first,)),
        *(called for one in blocks for called in one),
        *((last,) if norm_first else ()),
        linear("head", head, BETWEEN),
    ]


def rows_of(
    calls: Sequence[Called], first: float, key: int, *, thread: int = 7, stream: int = 0, mark: str = ""
) -> list[Row]:
    """Ops of one kernel each, the backward pass in reverse on a thread of its own."""
    at = first
    made: list[Row] = []
    for number, (_, name, gap, dims) in enumerate(calls, key):
        at += gap
        made += launched("cpu_op", name, thread, at, number, stream, Input_Dims=dims, Sequence_number=number)
        at += 8
    for number in range(key + len(calls) - 1, key - 1, -1):
        at += 9
        name = "autograd::engine::evaluate_function: XBackward0"
        made += launched("cpu_op", name, thread + 1, at, 100_000 + number, stream, Sequence_number=number)
        at += 8
    if mark:
        made.append(row("user_annotation", mark, 7, thread, first, at - first + 5))
    return made


def launched(cat: str, name: str, thread: int, at: float, number: int, stream: int, **more: object) -> list[Row]:
    return [
        row(cat, name, 7, thread, at, 8, External_id=number, **more),
        row("cuda_runtime", "hipLaunchKernel", 7, thread, at + 3, 2, External_id=number, correlation=number),
        row("kernel", "work", 2, stream, at + 6, 2, device=2, stream=stream, correlation=number),
    ]


def places(found: Alignment) -> dict[int | None, int]:
    """Correlation -> position."""
    return {one.correlation: place for place, one in enumerate(found.profile.activities)}


def blocks_of(found: Alignment, calls: Sequence[Called], key: int, *, backward: bool = False) -> list[str]:
    """Of each op the block that it is in, itself or by its layer; no kernel of a block itself is sure."""
    links, within = found.links, {layer.layer: layer.within for layer in found.net.layers}
    at = places(found)
    told = []
    for number in range(key, key + len(calls)):
        position = at[number + 100_000 * backward]
        run = links.run_of[position]
        layer = links.runs[run].layer if run != NONE else ""
        if layer.startswith("block "):
            assert position in links.layer_unsure
        told.append(layer if layer.startswith("block ") else within.get(layer, ""))
    return told


def expected(calls: Sequence[Called]) -> list[str]:
    return [f"block {int(where) + 1}" if where.isdecimal() else "" for where, *_ in calls]


def llama(number: int) -> Iterator[Called]:
    """A layer whose norms are ops of their own; the host takes longest behind these, where no block begins."""
    where = str(number)
    for out, into, anchors in ((WIDTH, WIDTH, 3), (64, WIDTH, 2)):
        yield from ((where, f"aten::{name}", WITHIN, (HIDDEN,)) for name in ("pow", "mean", "rsqrt", "mul"))
        yield from (linear(where, out, BETWEEN, into) for _ in range(anchors))
        yield where, "aten::mul", WITHIN, (HIDDEN, HIDDEN)
        yield linear(where, WIDTH, into=out)
        yield add(where)


@pytest.mark.parametrize("count", [3, 8])
def test_a_block_ends_with_a_residual_sum(count: int, tmp_path: Path) -> None:
    """Whatever the gaps are: where the norms are ops of their own, only the sum shows it."""
    calls = network(llama(number) for number in range(count))
    found = kineto_alignment(tmp_path, rows_of(calls, FIRST_US, 1000, mark="ProfilerStep#1"))
    assert blocks_of(found, calls, 1000) == expected(calls)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("count", [3, 5, 7, 12])
def test_each_op_is_in_its_block(count: int, norm_first: bool, tmp_path: Path) -> None:
    """In both passes of both steps. Where a norm is, first or last, is told by the host's time alone; the head has the
    weights of the embedding."""
    calls = network((block(n, norm_first=norm_first) for n in range(count)), norm_first=norm_first)
    events = rows_of(calls, FIRST_US, 1000, mark="ProfilerStep#1")
    events += rows_of(calls, FIRST_US + 20_000, 3000, mark="ProfilerStep#2")
    found = kineto_alignment(tmp_path, events)
    for key in (1000, 3000):
        for backward in (False, True):
            assert blocks_of(found, calls, key, backward=backward) == expected(calls)
    assert found.links.run_of[places(found)[1001]] == NONE  # the sum of embeddings


@pytest.mark.parametrize("odd", [0, 3, 6])
@pytest.mark.parametrize("more", [(), ("aten::embedding",), ("aten::mul", "aten::mul")])
def test_a_block_that_differs_is_doubted(odd: int, more: tuple[str, ...], tmp_path: Path) -> None:
    """By an op more or by its width; the other blocks are as they were, and what is in the odd one is its own."""
    calls = network(block(n, more=more if n == odd else (), wide=32 if n == odd and not more else 64) for n in range(7))
    found = kineto_alignment(tmp_path, rows_of(calls, FIRST_US, 1000, mark="ProfilerStep#1"))
    told, wanted = blocks_of(found, calls, 1000), expected(calls)
    of_odd = {name for name, (where, *_) in zip(told, calls, strict=True) if where == str(odd)}
    if more or odd == 3:
        assert told == wanted
    else:  # no other block shows where the first or last one would end
        assert of_odd == {""}
    links = found.links
    at = places(found)
    for number, (where, name, *_) in enumerate(calls, 1000):
        if where == str(odd) and links.run_of[at[number]] != NONE and name == "aten::add":
            assert links.layer_confidence[at[number]] <= 0.5


def test_two_threads_have_their_own_blocks(tmp_path: Path) -> None:
    """Two networks at the same time, each on a thread and a stream: no block has ops of both."""
    calls = network(block(n) for n in range(4))
    events = rows_of(calls, FIRST_US, 1000, thread=10)
    events += rows_of(calls, FIRST_US + 40.5, 3000, thread=20, stream=1)
    found = kineto_alignment(tmp_path, events)
    told = [blocks_of(found, calls, key) for key in (1000, 3000)]
    for names in told:
        assert [bool(name) for name in names] == [bool(name) for name in expected(calls)]
        assert len(dict.fromkeys(names)) == 5
    assert not {*told[0]} & {*told[1]} - {""}


def test_two_streams_of_one_thread_are_never_sure(tmp_path: Path) -> None:
    """Ops of two networks in turns repeat as one does: what is in a block of both is a guess, said so."""
    one, other = (network(block(n) for n in range(4)) for _ in range(2))
    calls = [called for pair in zip(one, other, strict=True) for called in pair]
    found = kineto_alignment(tmp_path, rows_of(calls, FIRST_US, 1000))
    blocks_of(found, calls, 1000)  # asserts it


@pytest.mark.parametrize(
    "calls",
    [
        network(block(n) for n in range(2)),
        network([[linear(str(n), WIDTH), add(str(n))] for n in range(9)]),
        network(block(n, wide=10 * n + 20) for n in range(6)),
    ],
    ids=["two", "one linear each", "each of another size"],
)
def test_what_repeats_less_is_no_block(calls: list[Called], tmp_path: Path) -> None:
    found = kineto_alignment(tmp_path, rows_of(calls, FIRST_US, 1000))
    assert not any(blocks_of(found, calls, 1000))


def test_a_part_that_the_user_named_stays_one(tmp_path: Path) -> None:
    """Ops without parameters stay in an annotation of less than half of the step, with any evidence of it."""
    calls = network(block(n) for n in range(4))
    events = rows_of(calls, FIRST_US, 1000)
    named = [one for one in events if one["name"] == "aten::scaled_dot_product_attention"][1]
    events.append(row("user_annotation", "my attention", 7, 7, named["ts"] - 1, 8 + 2))
    found = kineto_alignment(tmp_path, events)
    position = places(found)[named["args"]["External id"]]
    assert found.links.runs[found.links.run_of[position]].layer == "my attention"
    assert position not in found.links.layer_unsure


@pytest.mark.parametrize("segment", [(0, 4), (4, 16), (0, 30)])
def test_what_the_backward_pass_runs_again_is_in_its_layer(segment: tuple[int, int], tmp_path: Path) -> None:
    """Forward ops in a gradient (checkpoints) have sequence numbers; they are in no layer of that gradient's op."""
    calls = network((block(n) for n in range(4)), head=WIDTH)
    first, end = segment
    events = rows_of(calls, FIRST_US, 1000, mark="ProfilerStep#1")
    gradient = next(one for one in events if one["args"].get("External id") == 101_000 + end - 1)
    gradient["dur"] = 1000
    for one in events:
        one["ts"] += 1000 * (one["ts"] > gradient["ts"] + 7)
    for number, (_, name, _, dims) in enumerate(calls[first:end]):
        events += launched("cpu_op", name, 8, gradient["ts"] + 12 + 10 * number, 500_000 + number, 0,
                           Input_Dims=dims, Sequence_number=5 + number)  # fmt: skip
    found = kineto_alignment(tmp_path, [one for one in events if one["cat"] != "user_annotation"])
    at = places(found)
    links = found.links
    for number in range(first, end):
        runs = [links.run_of[at[key]] for key in (1000 + number, 500_000 + number - first)]
        if runs[1] == NONE:
            assert runs[0] == NONE
            continue
        if at[500_000 + number - first] not in links.layer_unsure:
            assert len({(links.runs[run].layer, links.runs[run].direction) for run in runs}) == 1
    sure = [number for number in range(first, end) if at[500_000 + number - first] not in links.layer_unsure]
    assert sure or segment == (4, 16)  # which is the first or the second block


def test_a_gradient_of_gradients_is_in_its_layer(tmp_path: Path) -> None:
    """With `create_graph` the ops of a gradient have sequence numbers, too; none of them has parameters."""
    calls = network(block(n) for n in range(4))
    events = rows_of(calls, FIRST_US, 1000)
    gradient = next(one for one in events if one["args"].get("External id") == 101_003)
    events += launched("cpu_op", "aten::mm", 8, gradient["ts"] + 6.5, 500_000, 0, Sequence_number=5)
    events[-3]["dur"] = events[-2]["dur"] = 0.5
    events[-2]["ts"] = events[-3]["ts"]
    found = kineto_alignment(tmp_path, events)
    run = found.links.runs[found.links.run_of[places(found)[500_000]]]
    assert (run.layer, run.direction) == ("norm 1", "backward")


@given(
    st.integers(3, 9),
    st.lists(st.sampled_from("abcd"), min_size=2, max_size=6),
    st.lists(st.sampled_from("xyz"), max_size=5),
    st.lists(st.sampled_from("xyz"), max_size=5),
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
)
def test_blocks_are_in_order_and_apart(
    count: int, anchors: list[str], before: list[str], behind: list[str], glue: list[int]
) -> None:
    """Whatever the ops: blocks do not overlap, are within the ops, and of a clear repetition there is one for each."""
    names = [(name, "") for name in before]
    for _ in range(count):
        for at, name in enumerate(anchors):
            names += [(name, name), *[("+", "")] * glue[at]]
    names += [(name, name) for name in behind]
    ops = [Op(name, name, anchor, 10 * at, 10 * at + 9) for at, (name, anchor) in enumerate(names)]
    found = find_blocks(ops)
    for one, other in pairwise(found):
        assert 0 <= one.first < one.end <= other.first < other.end <= len(ops)
    doubled = anchors + anchors
    is_primitive = all(doubled[shift:][: len(anchors)] != anchors for shift in range(1, len(anchors)))
    if is_primitive and len(set(anchors)) == len(anchors):
        assert len(found) in (count - 1, count)
