"""How often what the alignment of operations weighs happens in the runs with truth: one JSON line of [times, of].

    python -m benchmarks.rates [--shared DIR]

docs/alignment-internals.md has them beside the rates that are set (`mio2trace.align.rates`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / part) for part in ("", "timeline")]

from benchmarks.attribution import names, samples  # noqa: E402
from benchmarks.attribution_score import key_of, line_of  # noqa: E402
from benchmarks.damages.run import Run  # noqa: E402
from benchmarks.samples import SHARED, require  # noqa: E402
from benchmarks.score import emit  # noqa: E402
from mio2trace import analyse  # noqa: E402
from mio2trace.align import NONE  # noqa: E402
from mio2trace.align.operations.chances import kinds_of  # noqa: E402
from mio2trace.align.operations.likelihood import items_fit  # noqa: E402
from mio2trace.align.operations.rows import KernelKind  # noqa: E402
from mio2trace.align.operations.stream import Stream  # noqa: E402
from mio2trace.analysis import AnalysisOptions  # noqa: E402
from mio2trace.kernels.names import kernel_name  # noqa: E402

Event = tuple[str, bool]
"""What may happen, and whether it did."""


def streams(run: Run) -> Iterator[Stream]:
    """A run's queues as the alignment sees them."""
    with tempfile.TemporaryDirectory() as scratch:
        analysis = analyse(run.write(Path(scratch)), AnalysisOptions(keep_reasons=True))
    for part in analysis.runs:
        for alignment in part.alignments:
            yield from alignment.streams


def truth_of(run: Run, stream: Stream) -> list[int]:
    """The place of each kernel's true call in the stream's list, `NONE` without one."""
    place_at = {operation.line: place for place, operation in enumerate(stream.operations)}
    calls = run.truth["api_calls"]
    true: dict[int, int] = {}
    for enqueue in run.truth["enqueues"]:
        line = None if enqueue["api_call"] is None else line_of(calls[enqueue["api_call"]])
        true[key_of(enqueue)] = place_at.get(line, NONE) if line is not None else NONE
    activities = [stream.profile.activities[position] for position in stream.positions]
    return [true.get(one.line or one.number, NONE) for one in activities]


def events(run: Run, stream: Stream) -> Iterator[Event]:
    """What happened in one queue."""
    true, kernels, operations = truth_of(run, stream), stream.likelihood.kernels, stream.operations
    for at in range(1, len(true)):
        before, place = true[at - 1], true[at]
        if place == NONE:
            continue
        if kernels.helped[at]:
            yield "BROKEN", before != place
        classes = stream.likelihood.class_of
        if kernels.in_row[at]:
            yield "MISSTATED, rows of GEMMs cut", before != place and classes[before] != classes[place]
        if kernels.after_helper[at]:
            yield "MISSTATED, calls that end in what helps the next kernel", before != place
        if before == place:
            yield "BROKEN, transfers between", bool(kernels.parted[at])
        searching = operations[place].phase == "find" and before == place
        if searching and kernels.kind(at).role == kernels.kind(at - 1).role == "main":
            yield "CANDIDATES_APART", kernels.apart[at] == 2
    for at, place in enumerate(true):
        if place == NONE:
            continue
        kind, operation = kernels.kind(at), operations[place]
        yield "UNKNOWN_NAME", kernel_name(kind.launch[0]) is None
        yield "NEVER", kind.name is not None and stream.likelihood.pair(kernels.of[at], place)[0] < -10
        name, grid = kind.launch
        fits = None if grid is None else items_fit(name, grid, kind.workgroup, operation)
        if fits is not None:
            yield "MISSTATED, work items", not fits
        if kind.filters and operation.primitive == "conv":
            yield "MISSTATED", kind.filters != operation.weights[2:]
    yield from _gemms(true, stream)
    launched = set(true)
    for place, kind_of_call in enumerate(kinds_of(operations, stream.likelihood.class_of)):
        yield f"SILENT, {kind_of_call}", place not in launched


def _gemms(true: Sequence[int], stream: Stream) -> Iterator[Event]:
    """Of a convolution's GEMMs whether they differ, of an execution's main kernels whether the algorithms do."""
    before: dict[int, KernelKind] = {}
    for place, number in zip(true, stream.likelihood.kernels.of, strict=True):
        kind = stream.likelihood.kernels.kinds[number]
        if place == NONE or kind.role != "main" or stream.operations[place].primitive != "conv":
            continue
        last = before.get(place)
        before[place] = kind
        if last is not None and last.is_gemm and kind.is_gemm:
            yield "MISSTATED, GEMMs of one call", last.launch != kind.launch
        if last is not None and stream.operations[place].phase == "run":
            yield "NEVER, two algorithms", last.is_gemm != kind.is_gemm


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shared", type=Path, default=SHARED, help="the folder of the real samples")
    args = parser.parse_args(argv)
    folder = samples(args.shared)
    require("--shared", folder)
    counts: dict[str, list[int]] = {}
    for name in names(folder):
        run = Run.load(folder / name)
        for stream in streams(run):
            for what, so in events(run, stream):
                count = counts.setdefault(what, [0, 0])
                count[0] += so
                count[1] += 1
    emit(dict(sorted(counts.items())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
