"""Compare the links of an analysis, and their confidences, with a run's truth.

A link to an operation is right if the operation's line is the entry of the true call, or another line of this call. If
the call left no line, a kernel is right without a link, and with a link that is not sure. If no call launched the
kernel, it is right only without a link.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.attribution_score import Place, layer_right, line_of, place_of, within
from benchmarks.damages.run import Run
from mio2trace.align import NONE, Alignment
from mio2trace.align.links import Links
from mio2trace.analysis import Analysis

SURE, SAID_TRUE = 0.995, 0.999
BELIEVED = 0.5
TENTHS = 10


@dataclass
class Tally:
    """Links of one kind. ``bins[i]``: (links, sum of what was said, true ones) of a tenth of confidence; the last is
    of those said with `SAID_TRUE` and more. ``believed``: links said with `BELIEVED` or more."""

    kernels: int = 0
    right: int = 0
    wrong_and_sure: int = 0
    links: int = 0
    said: float = 0.0
    believed: int = 0
    bins: list[list[float]] = field(default_factory=lambda: [[0, 0.0, 0] for _ in range(TENTHS + 1)])
    worst: list[str] = field(default_factory=list)

    def add(self, *, linked: bool, right: bool, true: bool, confidence: float, text: str) -> None:
        """``true`` of the link itself; ``right`` of the kernel."""
        self.kernels += 1
        self.right += right
        if not linked:
            return
        self.links += 1
        self.said += confidence
        self.believed += confidence >= BELIEVED
        if not true and confidence >= SURE:
            self.wrong_and_sure += 1
            self.worst.append(text)
        places = [min(TENTHS - 1, int(confidence * TENTHS))] + [TENTHS] * (confidence >= SAID_TRUE)
        for place in places:
            one = self.bins[place]
            one[0] += 1
            one[1] += confidence
            one[2] += true

    def take(self, other: Tally, weight: float = 1) -> None:
        """Add another's counts. Its links count ``weight`` times in the bins."""
        self.kernels += other.kernels
        self.right += other.right
        self.wrong_and_sure += other.wrong_and_sure
        self.links += other.links
        self.said += other.said
        self.believed += other.believed
        self.worst += other.worst
        for mine, its in zip(self.bins, other.bins, strict=True):
            mine[:] = [a + weight * b for a, b in zip(mine, its, strict=True)]

    @property
    def mean(self) -> float:
        """The mean confidence of the links."""
        return self.said / self.links if self.links else 1.0


def tallies(run: Run, analysis: Analysis) -> tuple[Tally, Tally]:
    """Of the operations and of the layers of all kernels that the truth has. A kernel that is not there is wrong."""
    operations, layers = Tally(), Tally()
    places = {name: place_of(name) for name in {layer["name"] for layer in run.truth["layers"]}}
    has_layers = run.has_layers
    has_operations = bool(run.truth["api_calls"])
    kernels = dict(_kernels(run, analysis))
    line_at = _lines(analysis)
    for enqueue in run.truth["enqueues"]:
        key = enqueue["log_line"] if run.interleaved else enqueue["prof_index"]
        found = kernels.get(key)
        text = f"{run.name}: {enqueue['name']} ({key})"
        if found is None:
            operations.kernels += has_operations
            layers.kernels += has_layers
            continue
        alignment, position = found
        if has_operations:
            _operation(operations, run, enqueue, alignment.links, position, line_at, text)
        if has_layers:
            layer = None if enqueue["layer"] is None else run.truth["layers"][enqueue["layer"]]
            place = Place("none") if layer is None else places[layer["name"]]
            gone = layer is not None and not layer.get("told", True)
            _layer(layers, place, alignment.links, position, f"{text} of {layer and layer['name']}", gone=gone)
    return operations, layers


def _kernels(run: Run, analysis: Analysis) -> Iterator[tuple[int, tuple[Alignment, int]]]:
    for one in analysis.runs:
        for alignment in one.alignments:
            for position, activity in enumerate(alignment.profile.activities):
                if activity.kind == "kernel" or not run.files:
                    yield activity.line if run.interleaved else activity.number, (alignment, position)


def _lines(analysis: Analysis) -> Mapping[int, Mapping[int, int]]:
    """Of each alignment's links (by id) the line of each operation."""
    return {
        id(alignment.links): {operation.index: operation.line for operation in alignment.links.operations}
        for one in analysis.runs
        for alignment in one.alignments
    }


def _operation(
    tally: Tally,
    run: Run,
    enqueue: Mapping[str, Any],
    links: Links,
    position: int,
    line_at: Mapping[int, Mapping[int, int]],
    text: str,
) -> None:
    call = None if enqueue["api_call"] is None else run.truth["api_calls"][enqueue["api_call"]]
    line = None if call is None else line_of(call)
    index = links.operation_of[position]
    if index == NONE:
        tally.add(linked=False, right=line is None, true=False, confidence=1.0, text=text)
        return
    said = line_at[id(links)][index]
    said = run.copies.get(said, said)
    true = call is not None and said not in run.foreign and (said == line or within(said, call))
    confidence = confidence_of(links, position, "operation")
    gone = call is not None and line is None
    right = true or (gone and confidence < SURE)
    tally.add(linked=True, right=right, true=true, confidence=confidence, text=f"{text} of line {line}: line {said}")


def _layer(tally: Tally, place: Place, links: Links, position: int, text: str, *, gone: bool) -> None:
    """``gone``: nothing in the log tells of the layer, so that it is right to name none."""
    run, pass_ = links.run_of[position], links.pass_of[position]
    args: dict[str, Any] = {}
    if pass_ != NONE:
        iteration = links.passes[pass_].iteration
        args["phase"] = "setup" if links.passes[pass_].phase == "setup" else None
        args["iteration"] = iteration if run != NONE else None
    if run != NONE:
        args |= {"layer": links.runs[run].layer, "direction": links.runs[run].direction}
    right = layer_right(args, place)
    said = " ".join(str(args.get(key)) for key in ("iteration", "direction", "layer"))
    tally.add(
        linked=run != NONE,
        right=right or (gone and run == NONE),
        true=right,
        confidence=confidence_of(links, position, "layer"),
        text=f"{text}: {said}",
    )


def confidence_of(links: Links, position: int, kind: str) -> float:
    """What was said of a link; where there are no probabilities, 1.0 of a sure one and 0.5 of another."""
    confidence: Mapping[int, float] | None = getattr(links, f"{kind}_confidence", None)
    if confidence is None:
        return 0.5 if position in getattr(links, f"{kind}_unsure") else 1.0
    return confidence.get(position, 1.0)
