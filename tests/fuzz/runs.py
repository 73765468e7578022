"""Runs whose files belong together: a log of Caffe and MIOpen, and the profile of the same run, which can be joined."""

from __future__ import annotations

import datetime
import random

from tests.fuzz import structures
from tests.small_runs import SECOND, Program, as_json, as_text

Chance = random.Random
_PREFIX = "MIOpen(OpenCL): "
_KERNELS = (
    "MIOpenConvUni", "Cijk_Ailk_Bljk_SB_MT64x64x8_SE", "mlo_gemm", "Im2Col", "MIOpenPooling", "naive_conv_fwd_nchw",
    "transpose_NCHW2CNHW", "Xgemm", "im2col_float", "batched_transpose_16x16_dword", "conv1x1", "MIOpenNeuronFwd",
)  # fmt: skip
_SHAPES = (
    ("2, 6, 9, 8", "10, 3, 3, 3", "2, 10, 5, 6"),
    (
        "{2, 6, 9, 8}, {432, 72, 8, 1}, packed, ",
        "{10, 3, 3, 3}, {27, 9, 3, 1}, packed, ",
        "{2, 10, 5, 6}, {300, 30, 6, 1}, packed, ",
    ),
)
"""Tensors as MIOpen prints them until ROCm 5.4, and from 5.5 on."""
_LAYERS = ("conv1", "relu1", "pool1", "norm1", "ip1", "loss")


def files(chance: Chance) -> structures.Case:
    """The log and the profile, or the log with the profile's blocks in it."""
    run = _Run(chance)
    run.benchmark()
    enqueued = structures.enqueues(run.program.calls)
    if chance.random() < 0.25:
        return structures.Case("run", ["".join(run.interleaved()).encode()], enqueued)
    log = [line for _, line in run.log]
    found = [line.encode() for line in ("".join(log),)]
    found.append(as_json(run.program.calls, indent=None))
    chance.shuffle(found)
    return structures.Case("run", found, enqueued)


class _Run:
    """One program that calls, and prints, on one clock."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.program = Program()
        self.log: list[tuple[int, str]] = []
        """(how many calls were made before, line)."""
        self.zone = datetime.timedelta(hours=chance.choice((0, 1, 1, -5)))
        self.marks = chance.random() < 0.6
        self.miopen = chance.random() < 0.7
        self.shapes = chance.choice(_SHAPES)
        self.layers = chance.sample(_LAYERS, chance.choice((1, 1, 1, 2, 3)))
        self.buffers = {name: 0x7F0000000000 + 4096 * at for at, name in enumerate((*_LAYERS, "end", "w", "space"))}

    def say(self, text: str) -> None:
        at = SECOND + self.zone + datetime.timedelta(microseconds=self.program.us)
        self.log.append((len(self.program.calls), f"I{at:%m%d %H:%M:%S.%f}  2155 caffe.cpp:465] {text}\n"))
        self.program.us += 10

    def mark(self) -> None:
        if self.marks:
            self.program.mark()

    def benchmark(self) -> None:
        run, chance = self.program, self.chance
        run.program()
        for name, address in self.buffers.items():
            run.buffer(4096, hex(address))
            if name in self.layers:
                self.say(f"Setting up {name}")
                self.say("Top shape: 2 10 5 6 (600)")
        self.say("Performing Forward")
        self.passes("forward", 0)
        self.say("Initial loss: 0")
        self.say("Performing Backward")
        self.passes("backward", 0)
        self.say("*** Benchmark begins ***")
        iterations = chance.choice((1, 1, 1, 2))
        self.say(f"Testing for {iterations} iterations.")
        self.mark()
        for number in range(iterations):
            begin = run.us
            self.mark()
            self.passes("forward", number + 1)
            if chance.random() < 0.8:
                self.passes("backward", number + 1)
            self.mark()
            self.say(f"Iteration: {number + 1} forward-backward time: {(run.us - begin) / 1000:g} ms.")
        self.say("Average time per layer: ")
        for layer in self.layers:
            for direction in ("forward", "backward"):
                self.say(f"{layer:>10}\t{direction}: {chance.choice((0, 0.12, 0.3))} ms.")
        self.mark()
        self.say("Average Forward pass: 0.24 ms.")
        self.say("*** Benchmark ends ***")

    def passes(self, direction: str, iteration: int) -> None:
        layers = self.layers if direction == "forward" else self.layers[::-1]
        marks, self.marks = self.marks, self.marks and iteration > 0
        self.mark()
        for layer in layers:
            self.mark()
            self.layer(layer, direction)
            self.mark()
        self.mark()
        self.marks = marks

    def layer(self, layer: str, direction: str) -> None:
        order = [*self.layers, "end"]
        source, target = self.buffers[layer], self.buffers[order[order.index(layer) + 1]]
        forward = direction == "forward"
        if self.miopen and self.chance.random() < 0.9:
            self.entry(source, target, forward)
        kernel = f"0x7{_LAYERS.index(layer)}"
        # The same each time, so that it recurs; names differ from layer to layer.
        own = random.Random(f"{layer} {direction}")
        for _ in range(own.choice((1, 1, 2))):
            for at, address in enumerate((source, self.buffers["w"], target)):
                self.program.argument(kernel, at, address.to_bytes(8, "little").hex())
            self.program.enqueue(
                own.choice(_KERNELS), kernel, own.choice((20, 50, 300)), gws=[own.choice((64, 480)), 2, 1]
            )

    def entry(self, source: int, target: int, forward: bool) -> None:
        """What MIOpen prints of a convolution."""
        api = "ConvolutionForward" if forward else "ConvolutionBackwardData"
        names = ("x", "w", "y") if forward else ("dx", "w", "dy")
        shapes = self.shapes
        out = [f"{_PREFIX}miopenStatus_t miopen{api}(miopenHandle_t, const void *){{"]
        out.append(f"{_PREFIX}\thandle = stream: 0, device_id: 0")
        for name, shape, address in zip(names, shapes, (source, self.buffers["w"], target), strict=True):
            out += [f"{_PREFIX}\t{name}Desc = {shape}", f"{_PREFIX}\t{name} = {address:#x}"]
        out.append(
            f"{_PREFIX}\tconvDesc = conv2d, miopenConvolution, miopenPaddingDefault, {{1, 0}}, {{2, 1}}, {{1, 1}}, 2, "
        )
        out += [f"{_PREFIX}\talgo = 5", f"{_PREFIX}}}"]
        if self.chance.random() < 0.5:
            flag = 1 if forward else 2
            out.append(
                f"{_PREFIX}Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 2 -c 6 -H 9 -W 8 -k 10 -y 3 -x 3"
                f" -p 1 -q 0 -u 2 -v 1 -l 1 -j 1 -m conv -g 2 -F {flag} -t 1"
            )
        self.log.append((len(self.program.calls), "\n".join([*out, ""])))

    def interleaved(self) -> list[str]:
        """The log with the blocks of the calls where they were made."""
        out: list[str] = []
        done = 0
        for made, line in self.log:
            out += [as_text(self.program.calls[done:made]).decode(), line]
            done = made
        return [*out, as_text(self.program.calls[done:]).decode()]
