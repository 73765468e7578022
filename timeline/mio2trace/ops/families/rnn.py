"""Recurrent networks: one GEMM with the input and one with h, per layer and direction (miopen-log.md 4.6, 5.5, 7.3)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Self

import msgspec

from mio2trace.model.miopen import OperationDirection
from mio2trace.ops import values
from mio2trace.ops.problem import (
    DIRECTIONS,
    SIZES,
    CommandError,
    Family,
    Form,
    Line,
    Op,
    Params,
    Problem,
    Word,
    base_word,
    lengths,
    ops,
    options,
)
from mio2trace.ops.values import Shape, integers

GATES = {"relu": 1, "tanh": 1, "lstm": 4, "gru": 3}
MODES = ("relu", "tanh", "lstm", "gru")


class RnnProblem(Problem, frozen=True, kw_only=True, gc=False):
    """``batches``: the batch size of each step (one number if all are equal). Unknown values are None or ().

    ``flags``: the other flags of a command, to print them again; they do not change the shapes.
    """

    primitive: ClassVar[str] = "rnn"

    word: str = "rnn"
    batches: Shape = ()
    steps: int | None = None
    rows: int | None = None
    """The sum of the batches of all steps, if sequences differ in length."""
    inputs: int | None = None
    hidden: int | None = None
    layers: int | None = None
    mode: str | None = None
    bidirectional: bool = False
    skip_input: bool = False
    flags: tuple[tuple[str, str], ...] = ()

    @property
    def input(self) -> Shape:
        """Steps, batch, input size."""
        if self.steps and self.batches and self.inputs:
            return (self.steps, self.batches[0], self.inputs)
        return ()

    @property
    def output(self) -> Shape:
        """Steps, batch, hidden size times directions."""
        if self.steps and self.batches and self.hidden:
            return (self.steps, self.batches[0], self.hidden * (2 if self.bidirectional else 1))
        return ()

    @property
    def variant(self) -> str | None:
        return self.mode

    def gemm_count(self, nulls: Collection[str]) -> int:
        """Per layer one GEMM with the whole input; per step and direction one with h, for a GRU two (MIOpen 1.2.1).

        The first step has no GEMM with h if there is no initial h.
        """
        if self.direction != "forward" or not (self.layers and self.steps and self.mode):
            return 1
        steps = self.steps - ("hx" in nulls)
        gemms = self.layers * (1 + steps * (2 if self.bidirectional else 1) * (2 if self.mode == "gru" else 1))
        return max(1, gemms - self.skip_input)

    def step_elements(self) -> Collection[int]:
        """Possible numbers of elements of one gate, or of several gates, for the batch of a step in one direction."""
        gates = range(1, 1 + GATES.get(self.mode or "", 0))
        return {batch * self.hidden * count for batch in self.batches for count in gates} if self.hidden else ()

    def flop(self) -> int | None:
        """2 rows gates hidden (input + hidden) per layer and direction; rows is the sum of the batches of all steps."""
        if not (self.batches and self.steps and self.inputs and self.hidden and self.layers and self.mode in GATES):
            return None
        if min(*self.batches, self.steps, self.inputs, self.hidden, self.layers) < 0:
            return None
        rows = sum(self.batches) if len(self.batches) == self.steps else self.batches[0] * self.steps
        if self.rows is not None:
            rows = self.rows
        ways = 2 if self.bidirectional else 1
        gates = GATES[self.mode]
        # of the first layer, and of each other one; not a loop, because a log may state any number of layers
        inputs = (0 if self.skip_input else self.inputs) + (self.layers - 1) * self.hidden * ways
        return 2 * rows * gates * self.hidden * (inputs + self.layers * self.hidden) * ways

    def command(self, form: Form = "newest") -> str:
        if not self.flags:
            raise CommandError("the entry does not hold the shapes of an RNN call")
        if self.word == "rnn_seq" and self.direction != "forward" and form == "newest":
            raise CommandError("the driver runs a gradient of rnn_seq only with the calls before it (-F 3, -F 7)")
        word = base_word(self.word, self.dtype)
        return f"{word} " + " ".join(f"{'-' if len(name) == 1 else '--'}{name} {value}" for name, value in self.flags)

    def of_way(self, direction: OperationDirection) -> Self:
        flags = {**dict(self.flags), "F": str(1 << DIRECTIONS.index(direction))}
        return msgspec.structs.replace(self, direction=direction, flags=tuple(flags.items()))

    def fits(self, entry: Problem) -> bool:
        """Fits any entry, because an entry does not contain the shapes."""
        return True

    def with_command(self, command: Problem) -> Problem:
        """Take everything except the weights from the command: an entry contains little else."""
        return msgspec.structs.replace(command, w=self.w) if type(command) is type(self) else self


def from_command(line: Line) -> RnnProblem | None:
    """``-n batch,... -W input -H hidden -l layers -m mode -r bidir -k steps -F 1|2|4``."""
    flags = line.flags
    lengths = integers(flags.get("K", ""))
    batches = tuple(int(part) for part in flags["n"].split(","))
    steps = int(flags["k"]) if "k" in flags else max(lengths)
    return RnnProblem(
        direction=line.three_ways(),
        dtype=line.dtype,
        word=line.name,
        batches=batches,
        steps=steps,
        rows=sum(lengths) if len(lengths) > 1 and batches == (len(lengths),) else None,
        inputs=int(flags["W"]),
        hidden=int(flags["H"]),
        layers=int(flags["l"]),
        mode=flags.get("m"),
        bidirectional=flags.get("r") == "1",
        skip_input=flags.get("p") == "1" if line.name == "rnn" else False,
        flags=tuple(flags.items()),
    )


def from_entry(params: Params, op: Op) -> Problem | None:
    """The descriptor: ``hidden size, layers, hidden tensors, workspace scale, mode, direction, algo, input mode, bias
    mode,``."""
    numbers = integers(params.get("rnnDesc", ""))
    cell: dict[str, Any] = {}
    if len(numbers) >= 9:
        hidden, layers, _, _, mode, direction, _, skip = numbers[:8]
        cell = {"hidden": hidden, "layers": layers, "mode": MODES[mode] if 0 <= mode < 4 else None}
        cell |= {"bidirectional": direction == 1, "skip_input": skip == 1}
    x, h = lengths(params, "xDesc"), lengths(params, "hxDesc", "hDesc", "dhyDesc")
    sizes: dict[str, Any] = {"steps": values.number(params.get("sequenceLen"))}
    if len(x) == 3:  # a sequence tensor: batch, steps, input (6.0+)
        sizes = {"batches": (x[0],), "steps": x[1], "inputs": x[2]}
    elif len(h) == 3:
        sizes["batches"] = (h[1],)
    return RnnProblem(direction=op.direction, w=lengths(params, "wDesc", "dwDesc"), **cell, **sizes)


_OPTIONS = (
    SIZES
    | options(integer="l b p r q k U L M a I o f u s", list="n K", decimal="P", path="C d e")
    | {"m": "relu|tanh|lstm|gru"}
)
_NAMES = {
    "in_h": "W", "in_vec": "W", "hid_h": "H", "batch_size": "n", "num_layer": "l", "seq_len": "k",
    "seq_len_array": "K", "bidirection": "r", "inputmode": "p", "rnnalgo": "a", "fwdtype": "c", "datatype": "f",
    "bias": "b", "use_padding": "q", "use_dropout": "U", "dropout": "P", "seed_low": "L", "seed_high": "M",
    "io_layout": "I", "in_data": "d", "weights": "e",
}  # fmt: skip
FAMILY = Family(
    ops=ops(
        "RNNForwardTraining RNNForwardInference RNNForward RNNBackwardData RNNBackwardSeqData RNNBackwardWeights "
        "RNNBackwardWeightsSeqTensor",
        "rnn",
        from_entry,
    ),
    words={word: Word(from_command, "rnn", _OPTIONS, _NAMES) for word in ("rnn", "rnn_seq")},
    names={"rnn": "RNN"},
    two_gradients=frozenset(("rnn",)),
)
