"""Kernels meet operations: made-up runs whose truth is known, and the real ones in every damage."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mio2trace
from benchmarks import damages
from benchmarks.attribution import AS_RECORDED, MASKED, Way, convert, names, partners, runs, samples
from benchmarks.attribution_score import score
from benchmarks.damages.run import CannotError, Run
from mio2trace.align import align, rates
from mio2trace.align.attribution import Attribution
from mio2trace.align.clocks.axis import Timeline
from mio2trace.align.layers.repetitions import place_updates
from mio2trace.align.links import NONE, Links
from mio2trace.align.operations.chances import Chances, Posterior
from mio2trace.align.operations.lattice import LIKE_KERNELS, Repeats, Windows
from mio2trace.align.operations.likelihood import Likelihood, gemm_key, may_be_part, parts
from mio2trace.align.operations.stream import _doubt_changes, link_operations
from mio2trace.align.same_run import same_process
from mio2trace.evidence import POSITION
from mio2trace.model.choices import Gemm
from mio2trace.model.log import FrameworkLog, LayerTime, LogEvent
from mio2trace.model.miopen import OperationDirection
from mio2trace.model.profile import Activity, BufferCreated, OpenClLaunch, Profile, Queue
from mio2trace.notes import InputError, Notes
from mio2trace.ops.operation import Launch, Operation, Parameters
from mio2trace.summary import explain
from tests.conftest import shared_folder
from tests.records import changed, enqueued, made_operation, opencl_profile
from tests.synthetic_run import seeds

FOLDER = samples(shared_folder())
SETS = names(FOLDER)
FIRST = 0x5600_0000_0000


def hexed(address: int) -> str:
    return address.to_bytes(8, "little").hex()


@dataclass
class Maker:
    """Writes down calls and what they launch, in the order of one thread."""

    operations: list[Operation] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)
    truth: list[int] = field(default_factory=list)
    """Of each activity the true operation, or ``NONE``."""
    line: int = 1
    created: list[BufferCreated] = field(default_factory=list)

    def buffer(self) -> int:
        address = FIRST + 0x1000 * len(self.created)
        self.created.append(BufferCreated(number=0, handle=hex(address), size_bytes=4096))
        return address

    def buffers(self, count: int) -> list[int]:
        return [self.buffer() for _ in range(count)]

    def call(
        self,
        primitive: str,
        direction: OperationDirection | None = "forward",
        tensors: tuple[tuple[str, int], ...] = (),
        **more: Any,
    ) -> int:
        index = len(self.operations)
        fields = {"api": f"miopen{primitive}", "primitive": primitive, "direction": direction, "arguments": tensors}
        self.operations.append(
            made_operation(index=index, source=0, line=self.line, end_line=self.line + 8, **fields | more)
        )
        self.line += 10
        return index

    def kernel(self, name: str, *buffers: int, of: int = NONE, **more: Any) -> None:
        number = len(self.activities)
        self.truth.append(of)
        fields: dict[str, Any] = {"grid": (256, 1, 1), "start_ns": number * 1000, "end_ns": number * 1000 + 500}
        arguments = tuple(map(hexed, buffers))
        self.activities.append(enqueued(number * 3, "kernel", name, arguments=arguments, **fields | more))

    def profile(self) -> Profile:
        queues = sorted({enqueue.queue for enqueue in self.activities})
        return opencl_profile(
            source=1,
            records=3 * len(self.activities),
            queues=tuple(Queue(index=queue, device=0, handle=hex(queue + 16)) for queue in queues),
            activities=tuple(self.activities),
            buffers=tuple(self.created),
        )

    def links(self, without: Sequence[str] = (), axis: Timeline | None = None) -> Links:
        run = Attribution(self.profile(), Notes(), operations=self.operations, without=frozenset(without))
        run.shared_axis = axis
        link_operations(run)
        return run.links

    def right(self, without: Sequence[str] = ()) -> Links:
        """The links, all of which are right."""
        links = self.links(without)
        assert list(links.operation_of) == self.truth
        return links

    def wrong(self, links: Links) -> list[int]:
        """Positions of links that are wrong though they call themselves sure."""
        kept = {NONE, *(operation.index for operation in self.operations)}
        return [
            position
            for position, (of, got) in enumerate(zip(self.truth, links.operation_of, strict=True))
            if got not in (NONE, of if of in kept else NONE) and position not in links.operation_unsure
        ]


CONV: dict[str, Any] = {"input": (2, 16, 8, 8), "weights": (32, 16, 1, 1), "output": (2, 32, 8, 8)}
CONV_GEMM = Gemm(m=32, n=64, k=16, batch=2)


def conv(maker: Maker, x: int, w: int, y: int, **more: Any) -> int:
    return maker.call("conv", tensors=(("x", x), ("w", w), ("y", y)), gemm=CONV_GEMM, **CONV, **more)


def net(maker: Maker, rng: Random, layers: int, iterations: int) -> None:
    """Convolutions with bias and activation, pooling, the program's own kernels between; the same buffers each time."""
    made: list[tuple[str, tuple[int, ...]]] = []
    x = maker.buffer()
    for _ in range(layers):
        kind = rng.choice(("conv", "gemm", "pool", "activ", "own"))
        w, y, extra = maker.buffers(3)
        made.append((kind, (x, w, y, extra)))
        x = y
    made.append(("pool", (x, x, maker.buffer(), x)))  # what ends an iteration differs from what begins it
    for _ in range(iterations):
        for kind, (x, w, y, extra) in made:
            if kind == "conv":
                maker.kernel("MIOpenConvUni", x, w, y, of=conv(maker, x, w, y))
                maker.kernel("OpTensorFwdBias", y, extra, of=maker.call("bias", tensors=(("b", extra), ("y", y))))
            elif kind == "gemm":
                tensors = (("x", x), ("w", w), ("y", y), ("workSpace", extra))
                # another function, whose entries say less of the sizes
                of = maker.call("conv", tensors=tensors, input=(2, 8, 9, 9), api="miopenConvolution")
                for _ in range(2):
                    maker.kernel("Im2Col", x, extra, of=of)
                    maker.kernel("miog_alphaab", extra, w, y, of=of)
            elif kind == "pool":
                maker.kernel("mloPoolingG", x, y, of=maker.call("pool", tensors=(("x", x), ("y", y))))
            elif kind == "activ":
                maker.kernel("MIOpenActiveFwdLite", x, y, of=maker.call("activ", tensors=(("x", x), ("y", y))))
            else:
                maker.kernel("inner_product", x, w, y)


def netted(rng: Random, layers: int, iterations: int) -> Maker:
    maker = Maker()
    net(maker, rng, layers, iterations)
    return maker


@given(seeds, st.integers(1, 8), st.integers(1, 4))
def test_a_whole_log_and_a_whole_profile_agree(rng: Random, layers: int, iterations: int) -> None:
    """Every kernel in its call, the program's own in none; each link names its evidence."""
    maker = netted(rng, layers, iterations)
    links = maker.right()
    assert not links.operation_unsure
    assert list(links.operation_by) == ["" if of == NONE else "buffers" for of in maker.truth]


@given(seeds, st.integers(2, 8), st.integers(1, 3), st.floats(0, 0.3))
def test_lost_entries_give_nothing_away(rng: Random, layers: int, iterations: int, share: float) -> None:
    """What a lost call launched goes to no other one, unless the link says that it is not sure."""
    maker = netted(rng, layers, iterations)
    maker.operations = [operation for operation in maker.operations if rng.random() >= share]
    links = maker.links()
    assert maker.wrong(links) == []
    order = [index for index in links.operation_of if index != NONE]
    assert order == sorted(order)


@given(seeds, st.integers(1, 5), st.integers(2, 4))
def test_without_buffers_names_and_order_tell(rng: Random, layers: int, iterations: int) -> None:
    """A whole run is still right, but for what is in doubt (two calls of one kind, of which one may have launched
    nothing); nothing then says that buffers told it."""
    maker = netted(rng, layers, iterations)
    links = maker.links(without=["buffers"])
    assert maker.wrong(links) == []
    doubted = links.operation_confidence
    assert all(
        said == of or doubted.get(place, 1.0) < 0.6
        for place, (said, of) in enumerate(zip(links.operation_of, maker.truth, strict=True))
    )
    assert "buffers" not in links.operation_by


@given(seeds, st.integers(2, 6))
def test_two_queues_keep_their_calls_apart(rng: Random, layers: int) -> None:
    """Two threads with a net each, their entries and kernels mixed: buffers tell whose an entry is."""
    one, two = Maker(), Maker(created=[BufferCreated(number=0, handle="0x1", size_bytes=1)] * 500)
    net(one, rng, layers, 2)
    net(two, rng, layers, 2)
    mixed = Maker(created=[*one.created, *two.created[500:]])
    renumbered: dict[tuple[int, int], int] = {}
    turns = [0] * len(one.activities) + [1] * len(two.activities)
    rng.shuffle(turns)
    for at, queue in enumerate(turns):
        maker = (one, two)[queue]
        number = turns[:at].count(queue)
        of = maker.truth[number]
        if of != NONE:
            new = renumbered.setdefault((queue, of), len(mixed.operations))
            if new == len(mixed.operations):
                held = maker.operations[of]
                mixed.operations.append(msgspec.structs.replace(held, index=new, line=10 * new + 1))
            of = new
        mixed.truth.append(of)
        mixed.activities.append(changed(maker.activities[number], number=at * 3, queue=queue))
    mixed.right()


def test_a_search_owns_its_candidates_and_not_the_run() -> None:
    """Also when it failed: candidates carry its buffers, the run comes after."""
    maker = Maker()
    x, w, y, space, private = maker.buffers(5)
    tensors = (("x", x), ("w", w), ("y", y), ("workSpace", space))
    find = maker.call("conv", tensors=tensors, phase="find", gemm=CONV_GEMM, **CONV)
    maker.kernel("Im2Col", x, space, of=find, grid=(1024, 1, 1))
    maker.kernel("miog_betac", private, of=find)
    maker.kernel("miog_alphaab", space, w, private, of=find)
    maker.kernel("MIOpenConv1x1", x, w, private, of=find)
    maker.kernel("MIOpenConv1x1", x, w, y, of=conv(maker, x, w, y))
    assert not maker.right().operation_unsure


def test_an_address_given_again_is_no_contradiction() -> None:
    """A search's private buffer is freed, and the next layer's tensor gets its address (clCreateBuffer tells)."""
    maker = Maker()
    x, w, y, space, private = maker.buffers(5)
    find = maker.call("conv", tensors=(("x", x), ("w", w), ("y", y), ("workSpace", space)), phase="find")
    maker.kernel("Im2Col", x, space, of=find)
    maker.kernel("miog_betac", private, of=find)
    maker.kernel("miog_alphaab", space, w, private, of=find)
    maker.created.append(BufferCreated(number=5, handle=hex(private), size_bytes=4096))
    later = maker.call("activ", tensors=(("x", y), ("y", private)))
    maker.kernel("MIOpenActiveFwdLite", y, private, of=later)
    maker.right()


def test_a_kernel_that_writes_what_the_call_reads_is_not_the_calls() -> None:
    """The lost forward search shares every buffer with the backward one that follows: only what is written differs."""
    maker = Maker()
    x, w, y = maker.buffers(3)
    of = maker.call("conv", "backward-data", tensors=(("dy", y), ("w", w), ("dx", x)), phase="find")
    maker.kernel("miog_betac_alphaab", x, w, y)
    maker.kernel("miog_betac_alphaab", y, w, x, of=of)
    maker.right()


def test_a_helper_stays_with_what_it_helps() -> None:
    """The im2col of a call that the log lost reads the same tensor and fills the same workspace as the next call's."""
    maker = Maker()
    x, w, y, space, other = maker.buffers(5)
    of = maker.call("conv", "backward-weights", tensors=(("dy", y), ("x", x), ("dw", other), ("workSpace", space)))
    maker.kernel("Im2Col", x, space)
    maker.kernel("miog_alphaab", space, w, y)  # forward: writes y
    maker.kernel("Im2Col", x, space, of=of)
    maker.kernel("miog_alphaab", space, y, other, of=of)
    conv(maker, x, w, maker.buffer())  # names w, so that the first GEMM is known to have a buffer of another call
    maker.right()


@pytest.mark.parametrize("times", [1, 4, 5, 20])
def test_one_call_again_and_again_is_linked_each_time(times: int) -> None:
    """A program that measures one convolution: that all kernels write one tensor makes them no search of one call."""
    maker = Maker()
    x, w, y = maker.buffers(3)
    for _ in range(times):
        maker.kernel("MIOpenConv1x1", x, w, y, of=conv(maker, x, w, y))
    assert maker.right().operation_by == ["buffers"] * times


@pytest.mark.parametrize(("without", "is_torn", "copied"), [([], False, 40), ([], True, 60), (["buffers"], False, 60)])
def test_a_repetition_is_copied_while_kernels_fit_as_well(without: list[str], is_torn: bool, copied: int) -> None:
    """One of sixty equal calls names another buffer, or its entry is cut off, which makes no fit worse."""
    maker = Maker()
    x, w, y, other = maker.buffers(4)
    for number in range(60):
        is_torn_here = is_torn and number == 40
        named = other if number == 40 and not is_torn else w
        maker.kernel("MIOpenConv1x1", x, w, y, of=conv(maker, x, named, y, torn=is_torn_here))
    likelihood = Likelihood(maker.profile(), range(60), maker.operations, {}, frozenset(without))
    fits = [likelihood.fit(number, number) for number in range(60)]
    assert next((number for number in range(60) if fits[number] != fits[0]), 60) == copied
    posterior, known = Posterior.of_none(60), LIKE_KERNELS + 2
    posterior.operation[: known + 1] = range(known + 1)
    windows = Windows(first=range(60), last=range(60), by=POSITION)
    repeats = Repeats(likelihood, windows, cast("Chances", SimpleNamespace(begun=bytes(60), lost=bytes(60))))
    assert repeats.after(known, known - 1, 0, posterior) == (known, known - 1)
    assert repeats.after(known + 1, known, 0, posterior) == (copied, copied - 1)
    assert posterior.operation[:copied] == [*range(copied)]


@pytest.mark.parametrize(
    ("layer_lines", "ended", "is_update"),
    [([(0, 5)], 20, True), ([(1, 15), (0, 5)], 20, True), ([(0, 15), (0, 5)], 20, False), ([(0, 5)], 10, False)],
)
def test_a_call_behind_the_last_layer_line_is_its_iterations(
    layer_lines: list[tuple[int, int]], ended: int, is_update: bool
) -> None:
    """Calls at lines 1 and 11 of log 0. Layer lines, also those of another log, are (log, line) in any order."""
    maker = Maker()
    x, w, y = maker.buffers(3)
    for _ in range(2):
        maker.kernel("MIOpenConv1x1", x, w, y, of=conv(maker, x, w, y))
    logs = [
        FrameworkLog(
            source=source,
            layers=[
                LayerTime(source=of, line=line, index=0, layer="conv1", direction="forward", printed_ns=1)
                for of, line in layer_lines
                if of == source
            ],
            events=(LogEvent(source=0, line=ended, kind="iteration", number=1 << 70),) * (source == 0),
        )
        for source in range(2)
    ]
    run = Attribution(maker.profile(), Notes(), logs=logs, operations=maker.operations)
    iteration = run.links.pass_id("iteration", 1 << 70)
    run.links.give_pass([0], iteration)
    run.links.give_operations(np.arange(2), np.arange(2), "buffers")
    place_updates(run)
    assert list(run.links.pass_of) == [iteration, iteration if is_update else NONE]


def test_launch_lines_link_kernels_of_unknown_names() -> None:
    """Name and work size as printed; another size is another kernel."""
    maker = Maker()
    of = maker.call("conv", launches=(Launch(line=3, name="brand_new_solver", gws=(512, 1, 1)),))
    maker.kernel("brand_new_solver", of=of, grid=(512, 1, 1))
    maker.kernel("brand_new_solver", grid=(64, 1, 1))
    assert maker.right().operation_by == ["launch line", ""]
    assert list(maker.links(without=["launch line"]).operation_of) == [NONE, NONE]


def linked(links: Links) -> set[int]:
    return {position for position, index in enumerate(links.operation_of) if index != NONE}


def test_the_log_of_one_iteration_fits_each_of_two() -> None:
    """Nothing tells which of two equal iterations the log is of: no link may call itself sure."""
    maker = Maker()
    x, w, y = maker.buffers(3)
    of = conv(maker, x, w, y)
    for _ in range(2):
        maker.kernel("MIOpenConvUni", x, w, y, of=of)
    links = maker.links()
    assert linked(links) <= links.operation_unsure


def test_names_and_order_alone_are_believed_only_where_the_log_tells_of_nearly_all() -> None:
    """A log of two calls fits anywhere in a long profile; a whole one fits in one way."""
    maker = Maker()
    kinds = ("pool", "mloPoolingG"), ("activ", "MIOpenActiveFwdLite"), ("lrn", "MIOpenLRNWithinChannel_PS")
    for kind, name in kinds * 4:
        maker.kernel(name, of=maker.call(kind))
    assert not maker.right().operation_unsure
    maker.operations = maker.operations[:2]
    part = maker.links()
    assert linked(part) <= part.operation_unsure


@pytest.mark.parametrize("torn", [False, True])
def test_a_kernel_with_all_of_a_torn_calls_buffers_is_its(torn: bool) -> None:
    """A missing parameter is a rare event, no proof against; an entry may be glued of two, so none is sure that lost
    lines, however other doubts are worded."""
    maker = Maker()
    x, w, y = maker.buffers(3)
    of = conv(maker, x, w, y, torn=torn, doubts=() if torn else ("the entry was cut off",))
    maker.kernel("MIOpenConvUni", x, w, y, of=of)
    links = maker.right()
    assert links.operation_unsure == ({0} if torn else set())
    assert links.operation_confidence[0] >= rates.WHOLE - 1e-9


BIAS: dict[str, Any] = {
    "input": (1, 24, 1, 1), "weights": (1, 24, 1, 1), "output": (1, 24, 1, 1),
    "parameters": Parameters((), (), with_handle=True),
}  # fmt: skip


@pytest.mark.parametrize(
    ("primitive", "changes"),
    [
        *[
            ("optensor", changes)
            for changes in (
                {}, {"weights": (96, 24, 1, 1)}, {"weights": ()}, {"output": (20, 24, 1, 1)},
                {"launches": (Launch(line=5, name="Op4dTensorGeneric"), Launch(line=5, name="OpTensorFwdBias"))},
                {"launches": (Launch(line=5, name="MIOpenConv1x1"),)}, {"tensors": ()},
                {"parameters": Parameters((), ())},
            )
        ],
        *[("conv", changes) for changes in ({}, {"weights": (32, 8, 1, 1)}, {"twice": True}, {"command": True})],
    ],
)  # fmt: skip
def test_an_entry_that_may_be_two_is_never_sure(primitive: str, changes: dict[str, Any]) -> None:
    """The head of one entry and the tail of another may look like one. Signs are operands or a result that do not go
    together, a missing shape or parameter that all others have, and one that stands twice. Others are two kernels where
    one does the work, a kernel of another primitive, and a command whose entry is lost."""
    names, kernel, shapes = {"optensor": ("AC", "OpTensorFwdBias", BIAS), "conv": ("xwy", "MIOpenConvUni", CONV)}[
        primitive
    ]
    maker = Maker()
    for number in range(4):
        buffers = maker.buffers(len(names))
        call: dict[str, Any] = {"tensors": tuple(zip(names, buffers, strict=True)), **shapes}
        if number == 3:
            call |= {name: value for name, value in changes.items() if name not in ("twice", "command")}
            call |= {"tensors": (*call["tensors"], ("x", maker.buffer()))} if "twice" in changes else {}
            call |= {"command_line": maker.line} if "command" in changes else {}
        maker.kernel(kernel, *buffers, of=maker.call(primitive, **call))
    assert maker.right().operation_unsure == ({3} if changes else set())


def test_a_link_that_learning_moved_is_not_sure() -> None:
    """What was likely in another call before the last round is at most as sure as a torn call's."""
    before, after = Posterior.of_none(4), Posterior.of_none(4)
    before.operation[:], after.operation[:] = [0, 1, 1, NONE], [0, 2, 2, 2]
    before.confidence[:] = [0.6, 0.6, 0.4, 0.9]
    _doubt_changes(before, after)
    assert after.confidence == [1.0, rates.WHOLE, 1.0, rates.WHOLE]


def test_two_searches_count_as_far_as_their_evidence_goes() -> None:
    """Where they agree it stays, and where they do not each has the share of its evidence in both."""
    one, two = Posterior.of_none(3), Posterior.of_none(3)
    one.operation[:], two.operation[:] = [0, 1, 2], [0, 1, 4]
    one.confidence[:], one.others[1] = [1.0, 0.7, 1.0], ((3, 0.3),)
    one.gone[1], two.gone[2] = 0.1, 0.4
    one.evidence, two.evidence = log(3), 0.0
    for mixture in (one.mixed(two), two.mixed(one)):
        assert mixture.operation == [0, 1, 2]
        assert mixture.confidence == pytest.approx([1.0, 0.775, 0.75])
        assert [dict(others) for others in mixture.others] == [{}, {3: pytest.approx(0.225)}, {4: pytest.approx(0.25)}]
        assert mixture.gone == pytest.approx([0.0, 0.075, 0.1])
        assert mixture.evidence == one.evidence


def test_a_pointer_missing_from_an_entry_is_a_rare_event() -> None:
    """A line of an entry is lost: the kernel stays with the call that names its other buffers."""
    maker = Maker()
    for _ in range(3):
        x, w, y, z = maker.buffers(4)
        maker.kernel("MIOpenConvUni", x, w, y, of=conv(maker, x, w, y))
        maker.kernel("mloPoolingG", y, z, of=maker.call("pool", tensors=(("x", y), ("y", z))))
    maker.operations[2] = msgspec.structs.replace(maker.operations[2], arguments=maker.operations[2].arguments[:2])
    maker.right()


def test_position_in_a_shared_file_bounds_every_call() -> None:
    """A kernel between two entries is the first one's or nobody's, however much it looks like the second's."""
    maker = Maker()
    x, w, y = maker.buffers(3)
    first, second = conv(maker, x, w, y), conv(maker, x, w, y)
    maker.kernel("MIOpenConvUni", x, w, y, of=first, line=5)
    maker.kernel("fill_float", y, line=6)
    maker.kernel("MIOpenConvUni", x, w, y, of=second, line=15)
    lines = [enqueue.line for enqueue in maker.activities]
    axis = Timeline(
        by_line=True, evidence=POSITION, event=lambda _: None, layers=lambda layers: layers.line, begins=lines,
        ends=lines,
    )  # fmt: skip
    links = maker.links(axis=axis)
    assert list(links.operation_of) == maker.truth
    assert links.operation_by == ["position", "", "position"]


def test_a_lost_search_is_one_loss_however_many_kernels_it_launched() -> None:
    """They go to no neighbour: leaving out twenty kernels costs no more than leaving out one."""
    maker = Maker()
    for rows in range(32, 38):
        sizes: dict[str, Any] = {"input": (2, 16, 8, 8), "weights": (rows, 16, 1, 1)}
        of = maker.call("conv", phase="find", gemm=Gemm(m=rows, n=64, k=16, batch=2), **sizes)
        for _ in range(20):
            maker.kernel("miog_betac", of=of, grid=(-(-rows * 64 // 512) * 256, 1, 1))
        maker.kernel("mloPoolingG", of=maker.call("pool"))
    maker.operations.pop(6)
    assert maker.wrong(maker.links()) == []


def test_what_is_unknown_of_a_call_is_no_evidence_for_it() -> None:
    """A torn entry without a direction does not take the kernel of the whole one beside it."""
    maker = Maker()
    maker.call("conv", None, torn=True)
    maker.kernel("MIOpenCDFGen", of=maker.call("conv", "forward", gemm=CONV_GEMM, **CONV))
    for _ in range(4):
        maker.kernel("MIOpenCvBwdWrW", of=maker.call("conv", "backward-weights"))
    maker.right()


def test_beta_tells_the_gradient_of_the_weights() -> None:
    """Of a convolution's GEMMs only that of the weights' gradient adds to its result."""
    zero, one, offset = "00000000", "0000803f", "00000000"
    for beta, direction in ((one, "backward-weights"), (zero, "backward-data")):
        maker = Maker()
        calls = {kind: maker.call("conv", kind, **CONV) for kind in ("backward-data", "backward-weights")}
        maker.kernel("miog_betac_alphaab", of=calls[direction])
        launch = OpenClLaunch(arguments=(*[hexed(FIRST), offset] * 3, one, beta))
        maker.activities[0] = msgspec.structs.replace(maker.activities[0], opencl=launch)
        maker.right()


def test_what_a_gemm_adds_to_is_not_scaled_first() -> None:
    """A GEMM library's kernel that scales the result is not of the gradient of the weights, whatever surrounds it."""
    maker = Maker()
    gradient = maker.call("conv", "backward-weights", gemm=CONV_GEMM, **CONV)
    forward = maker.call("conv", "forward", gemm=CONV_GEMM, **CONV)
    maker.kernel("Cijk_Ailk_Bljk_SB_MT32x32x16", of=gradient)
    maker.kernel("Cijk_SB_GB", of=forward)
    maker.kernel("Cijk_Alik_Bljk_SB_MT64x64x32", of=forward)
    assert 1 not in maker.right().operation_unsure


def test_work_items_tell_calls_that_differ_in_size_alone() -> None:
    """A kernel's work items for each element are learned from the run: the lost call's neighbours keep theirs."""
    maker = Maker()
    rng = Random(5)
    for _ in range(40):
        size = rng.choice((16, 24, 48, 96, 112))
        of = maker.call("activ", input=(1, size, 8, 8), output=(1, size, 8, 8))
        maker.kernel("MIOpenActiveFwdLite", of=of, grid=(size * 16, 1, 1))
    maker.operations.pop(20)
    links = maker.links()
    right = sum(got == (of if of != 20 else NONE) for of, got in zip(maker.truth, links.operation_of, strict=True))
    assert right >= 39
    assert maker.wrong(links) == []


def test_a_confidence_is_the_share_of_equal_answers() -> None:
    """The log of one of two equal iterations: each place is as likely."""
    maker = Maker()
    of = maker.call("pool")
    for _ in range(2):
        maker.kernel("mloPoolingG", of=of)
    links = maker.links()
    assert all(0.4 < links.operation_confidence[at] < 0.65 for at in linked(links))
    maker.operations.append(msgspec.structs.replace(maker.operations[0], index=1, line=11))
    assert list(maker.links().operation_of) == [0, 1]


def test_two_runs_are_told_apart_by_their_buffers() -> None:
    """The same program run twice: no address in common. By order alone, and then nothing is sure."""
    one, two = Maker(), Maker(created=[BufferCreated(number=0, handle="0x1", size_bytes=1)] * 900)
    net(one, Random(3), 6, 1)
    net(two, Random(3), 6, 1)
    assert same_process(one.profile(), one.operations) is True
    assert same_process(two.profile(), one.operations) is False
    with pytest.raises(InputError, match="none of the log's buffers is among those"):
        align(two.profile(), [], Notes(), operations=one.operations)
    notes = Notes()
    links = align(two.profile(), [], notes, operations=one.operations, by_order_alone=True).links
    assert links.has_operations
    assert linked(links) <= links.operation_unsure
    assert "every link to an operation has low confidence" in str(next(iter(notes)))


@pytest.mark.parametrize(
    ("gemm", "direction", "fits"),
    [
        (Gemm(m=32, n=64, k=16), "forward", True),
        (Gemm(m=64, n=32, k=16), "forward", True),  # row-major: the transpose
        (Gemm(m=32, n=128, k=16), "forward", True),  # both images at once
        (Gemm(m=32, n=64, k=32), "forward", False),
        (Gemm(m=32, n=32, k=16), "forward", False),
        (Gemm(m=32, n=64, k=8), "backward-weights", True),  # one image of two
        (Gemm(m=32, n=128, k=16), "backward-weights", False),
    ],
)
def test_the_gemms_that_a_convolution_is_made_of(gemm: Gemm, direction: OperationDirection, *, fits: bool) -> None:
    """miopen-log.md 6: images lie in N, in backward weights in K."""
    maker = Maker()
    maker.call("conv", direction, gemm=CONV_GEMM, **CONV)
    possible = {gemm_key(*sizes) for sizes in parts(maker.operations[0])}
    assert (gemm_key(gemm.m, gemm.n, gemm.k) in possible) is fits


@pytest.mark.parametrize(
    ("name", "work_items", "fits"),
    [
        ("miog_betac", 1024, True),  # 32 x 64 elements, two each
        ("miog_betac", 2048, True),  # of both images
        ("miog_betac", 512, False),
        ("miog_betac_alphaab", 2048, None),
        ("miog_betac_alphaab", 4, False),
        ("miog_betac_alphaab", 1 << 20, False),
        ("miog_alphaab", 7, None),
    ],
)
def test_work_items_of_miopengemm(name: str, work_items: int, fits: bool | None) -> None:
    """Where the source is not at hand the work size still says what a kernel cannot be."""
    maker = Maker()
    maker.call("conv", gemm=CONV_GEMM, **CONV)
    assert may_be_part(name, work_items, maker.operations[0]) is fits


def test_the_reasoning_is_told() -> None:
    """For a kernel, a call with kernels and one without; what is not there is an error."""
    maker = Maker()
    x, w, y = maker.buffers(3)
    of = conv(maker, x, w, y)
    idle = maker.call("pool", tensors=(("x", y), ("y", w)))
    maker.kernel("MIOpenConvUni", x, w, y, of=of)
    maker.kernel("sgd", w)
    found = align(maker.profile(), [], Notes(), operations=maker.operations, keep_reasons=True)

    def told(what: str) -> str:
        return "\n".join(explain(found, what))

    assert "operation 0, line 1: Conv fwd 2x16x8x8 -> 2x32x8x8 k1x1, by buffers" in told("kernel 0")
    assert "has its x, w, y" in told("kernel 0")
    assert "times as likely as anywhere" in told("kernel 0")
    assert re.search(r"^  (100|99) %$", told("kernel 0"), re.MULTILINE)
    assert "operation: none" in told("kernel:3")
    assert "kernel 0: MIOpenConvUni, 0.001 ms, by buffers" in told(f"operation {of}")
    assert "no kernel" in told(f"operation {idle}")
    assert "Pool fwd" in told("line 12")
    for wrong in ("kernel 1", "operation 9", "kernel", "layer 1", "kernel x"):
        with pytest.raises(ValueError, match=wrong):
            told(wrong)


# The real runs


@pytest.mark.shared
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("way", [AS_RECORDED, MASKED], ids=["recorded", "masked"])
def test_every_kernel_of_the_real_runs_is_in_its_true_call(name: str, way: str, tmp_path: Path) -> None:
    """With all evidence, and with the log's pointers masked: all right, and in the true layers."""
    run = Run.load(FOLDER / name)
    chosen = Way(way, ("buffers",) if way == MASKED else (), 0)
    result = convert(runs(run, chosen, []), tmp_path, chosen.without)
    assert (result["right"], result["wrong_and_sure"]) == (result["kernels"], 0)
    assert result["layers"]["right"] == result["kernels"]
    assert result["find"]["right"] == result["find"]["total"]
    assert result["consistency"]["disagreements"] == 0
    assert result["missing"] == result["extra"] == result["fault_count"] == 0


@pytest.mark.shared
@pytest.mark.parametrize("name", ["m121-lenet-infer", "m290-resnet-train-entries-cmd", "m290-alexnet-infer-level6-cmd"])
def test_without_clocks_operations_carry_the_layers(name: str, tmp_path: Path) -> None:
    """By order alone, where layer lines stand between the entries: a kernel's layer is that of its operation."""
    folder = FOLDER / name
    out = tmp_path / "out.json"
    mio2trace.convert(folder / "run.log", folder / "prof.json", output=out, by_order_alone=True, check=True)
    found = score(json.loads(out.read_bytes()), json.loads((folder / "truth.json").read_bytes()))
    assert found["right"] == found["kernels"]
    assert found["layers"]["wrong"] == 0
    assert set(found["layers"]["evidence"]) <= {"buffers", "name and sizes"}


@pytest.mark.shared
@pytest.mark.parametrize("way", sorted(damages.MUTATIONS))
def test_damaged_runs_mislead_nobody(way: str, tmp_path: Path) -> None:
    """Entries lost, a log that starts late or ends early, iterations on one side only, handles recycled: at most one
    link in a thousand is wrong and calls itself sure (`benchmarks/attribution.py --robust` measures more of them)."""
    loaded = {name: Run.load(FOLDER / name) for name in SETS}
    kernels = wrong = layers = 0
    for name, run in loaded.items():
        try:
            damaged = runs(run, Way(way, (), 1), partners(loaded, run))
        except CannotError:
            continue
        (tmp_path / name).mkdir()
        result = convert(damaged, tmp_path / name, ())
        kernels += result["kernels"]
        wrong += result["wrong_and_sure"]
        layers += result["layers"]["wrong_and_sure"]
    assert kernels
    assert wrong <= 0.001 * kernels + 5
    assert layers <= 0.001 * kernels
