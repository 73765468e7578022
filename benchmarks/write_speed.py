"""The cost of writing a large trace: time, memory and size of both forms.

    python benchmarks/write_speed.py --kernels 1000000

The trace of a real run, drawn with ``--host-calls none``, is repeated until it has this number of kernels and copies.
``repeated``: with shifted clocks, as `grow.py` makes a long run of a short one. ``varied``: every repetition is another
one, durations, gaps and queue times vary by ``--jitter`` (3 %) each for itself, rates follow from them. ``picture`` is
the whole: passes, layers, operations, kernels, counters. ``kernels`` has only the kernels and copies, with all their
arguments. ``program``: the run grown and converted, then both forms written as the program writes them, events made on
the way. Time is user and system time, and in ``repeated`` and ``varied`` of the encoding alone: the events are made
beforehand. Memory is what it grows by while a trace is written and compressed whose events are made on the way. One
line of JSON; nothing here is asserted in a test.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import itertools
import os
import random
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / part) for part in ("", "timeline")]

import mio2trace  # noqa: E402
from benchmarks.grow import grow, parse_size  # noqa: E402
from mio2trace.draw.base import three_digits  # noqa: E402
from mio2trace.trace import CounterValue, Event, Flows, Part, Slice, Slices, Trace  # noqa: E402
from mio2trace.writers import WRITERS, Writer, write  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = ("kernel", "copy")
LIMITS = {"json_gzip": 45, "pftrace_gzip": 25, "time_ratio": 2}


class Repeated:
    """A run's device slices, again and again, each time with other times."""

    def __init__(self, trace: Trace, kernels: int, jitter: float) -> None:
        processes = {track.id: track.process for track in trace.tracks}
        events = list(trace.events())
        slices = [event for event in events if isinstance(event, Slice)]
        whose = {processes[one.track] for one in slices if one.category in COMMANDS}
        # The iterations alone: set-up and warm-up are no part of a long run.
        drawn = [one for one in slices if processes[one.track] in whose]
        self._commands = [one for one in drawn if one.category in COMMANDS and one.args.get("iteration")]
        if not self._commands:
            raise SystemExit("write_speed: the run has no iterations")
        if len({one.track for one in self._commands}) > 1:
            raise SystemExit("write_speed: the iterations run on several tracks")
        spans = [(one, self._span(one)) for one in drawn if one.category not in COMMANDS]
        self._inside = {id(one): span for one, span in spans if span is not None}
        self._slices = [one for one in drawn if one.args.get("iteration") or id(one) in self._inside]
        self._grows = {key: self._each(key) for key in ("operation", "line", "call_index")}
        self._samples = [
            (one, *self._place(one)) for one in events if isinstance(one, CounterValue) and self._repeats(one)
        ]
        self.jitter = jitter
        self.each = len(self._commands)
        self.repetitions = -(-kernels // self.each)
        self.kernels = self.each * self.repetitions
        self.process = min(whose)
        self.tracks = tuple(track for track in trace.tracks if track.process in whose)
        self.processes = tuple(one for one in trace.processes if one.id in whose)

    def _each(self, key: str) -> int:
        """By how much a number of the log or the profile grows from iteration to iteration."""
        found = [one.args[key] for one in self._slices if key in one.args]
        return max(found) - min(found) + 1 if found else 0

    def _repeats(self, value: CounterValue) -> bool:
        """Whether a counter is set so in every iteration.

        A long run has the busy share once a pass, no more; its buffers come again, with the handles that they had.
        """
        first, last = self._commands[0], self._commands[-1]
        if not first.start_ns <= value.time_ns <= last.start_ns + last.dur_ns:
            return False
        passes = {one.start_ns for one in self._slices if one.category == "pass"}
        return value.name != "OpenCL buffers" and (value.name != "Device busy" or value.time_ns in passes)

    def _place(self, value: CounterValue) -> tuple[int, int]:
        """The command that is the last to have begun when a counter is set, and how long it has been running then."""
        at = max(at for at, one in enumerate(self._commands) if one.start_ns <= value.time_ns)
        return at, value.time_ns - self._commands[at].start_ns

    def _span(self, container: Slice) -> tuple[int, int] | None:
        """The first and the last command in a container, by their positions; None where there is none."""
        end = container.start_ns + container.dur_ns
        inside = [
            at
            for at, one in enumerate(self._commands)
            if one.track == container.track and container.start_ns <= one.start_ns and one.start_ns + one.dur_ns <= end
        ]
        return (inside[0], inside[-1]) if inside else None

    def _times(self) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Start and duration of every command, for each repetition in turn."""
        chance = random.Random(1)
        at = self._commands[0].start_ns
        for number in range(self.repetitions):
            found: list[tuple[int, int]] = []
            done = self._commands[0].start_ns
            for one in self._commands:
                at += round((one.start_ns - done) * chance.uniform(1 - self.jitter, 1 + self.jitter))
                duration = max(1, round(one.dur_ns * chance.uniform(1 - self.jitter, 1 + self.jitter)))
                found.append((at, duration))
                at += duration
                done = one.start_ns + one.dur_ns
            yield number, found
            at += 1000

    def events(self, whole: bool) -> Iterator[Event]:
        """With the containers and the counters, or the commands alone."""
        chance = random.Random(2)
        for number, times in self._times():
            found: list[tuple[int, Event]] = [(one.start_ns, one) for one in self._drawn(number, times, chance, whole)]
            if whole:
                found += [(one.time_ns + 1, one) for one in self._counters(times)]
                found.sort(key=lambda one: one[0])
            yield from (one for _, one in found)

    def _drawn(
        self, number: int, times: list[tuple[int, int]], chance: random.Random, containers: bool
    ) -> Iterator[Slice]:
        position = 0
        for one in self._slices:
            args: dict[str, Any] = {
                key: value + number * self._grows[key] if key in self._grows else value
                for key, value in one.args.items()
            }
            if "iteration" in args:
                args["iteration"] = number + 1
            if one.category not in COMMANDS:
                if not containers:
                    continue
                first, last = self._inside[id(one)]
                start = times[first][0]
                duration = times[last][0] + times[last][1] - start
                if "kernel_ns" in args:
                    args["kernel_ns"] = sum(length for _, length in times[first : last + 1])
                    if "gflops" in args:
                        args["gflops"] = three_digits(one.args["gflops"] * one.args["kernel_ns"] / args["kernel_ns"])
                yield Slice(one.track, start, duration, one.name, one.category, args, one.shared)
                continue
            start, duration = times[position]
            position += 1
            if "queued_ns" in args:
                before = one.start_ns - args["queued_ns"]
                queued = start - round(before * chance.uniform(1 - self.jitter, 1 + self.jitter))
                waited = args["submit_ns"] - args["queued_ns"]
                args["submit_ns"] = max(0, queued) + round(waited * chance.uniform(1 - self.jitter, 1 + self.jitter))
                args["queued_ns"] = max(0, queued)
            if "gflops" in args:
                args["gflops"] = three_digits(one.args["gflops"] * one.dur_ns / duration)
            yield Slice(one.track, start, duration, one.name, one.category, args, one.shared)

    def _counters(self, times: list[tuple[int, int]]) -> Iterator[CounterValue]:
        """As they are drawn, each at its command; rates follow from its time."""
        for one, at, since in self._samples:
            start, duration = times[at]
            before = self._commands[at].dur_ns
            time = start + (round(since * duration / before) if since < before else duration + since - before)
            time = min(time, times[at + 1][0] if at + 1 < len(times) else start + duration)
            rate = isinstance(one.value, float) and one.unit.endswith("/s")
            value = three_digits(one.value * before / duration) if rate else one.value
            yield CounterValue(one.process, one.name, one.unit, time, value, one.track)


def made(trace: Trace, repeated: Repeated, containers: bool) -> Trace:
    """The long trace; its events are made as they are written."""

    def events() -> Iterator[Event]:
        return repeated.events(containers)

    return Trace(
        processes=repeated.processes,
        tracks=repeated.tracks,
        metadata=trace.metadata,
        parts=(events, _nothing),
        arrows=(),
    )


def _nothing() -> Iterator[Event]:
    return iter(())


class Sink:
    """Counts what is written; nothing is kept."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: bytes) -> int:
        self.size += len(data)
        return len(data)


def cpu() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def written(trace: Trace, writer: Writer, compress: bool) -> tuple[float, int, int]:
    """Seconds of processor time, the size, and the size as the program compresses it (0: not)."""
    sink, packed = Sink(), Sink()
    start = cpu()
    if compress:
        sink.size = write(writer, trace, packed, compress=True).raw_bytes  # type: ignore[arg-type]
    else:
        writer.write(trace, sink)  # type: ignore[arg-type]
    return cpu() - start, sink.size, packed.size


def held(trace: Trace) -> Trace:
    """The same trace with its events made beforehand."""

    def part(events: list[Event | Slices | Flows]) -> Part:
        return lambda: iter(events)

    parts = tuple(part(list(one())) for one in trace.parts)
    return Trace(processes=trace.processes, tracks=trace.tracks, metadata=trace.metadata, parts=parts, arrows=())


def apart(work: Callable[[], object]) -> tuple[dict[str, float], int]:
    """Run ``work`` in a process of its own: what it returns, and the bytes by which its memory grew over the start."""
    with tempfile.TemporaryFile() as file:
        process = os.fork()
        if process == 0:
            try:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                result = work()
                grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
                file.write(orjson.dumps([result, grown * (1 if sys.platform == "darwin" else 1024)]))
                file.flush()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        if os.waitpid(process, 0)[1]:
            raise SystemExit("write_speed: a measurement failed")
        file.seek(0)
        result, grown = orjson.loads(file.read())
        return result, grown


def measure(trace: Trace, repeated: Repeated, containers: bool, speed_kernels: int) -> dict[str, object]:
    """Sizes and memory of the whole, streamed; time of the first ``speed_kernels``, with their events in memory."""
    found: dict[str, object] = {}
    long = made(trace, repeated, containers)
    for writer in WRITERS:
        name = writer.SUFFIXES[0].removeprefix(".")

        def sizes(writer: Writer = writer) -> dict[str, float]:
            taken, raw, packed = written(long, writer, compress=True)
            return {"raw": raw, "gzip": packed, "seconds": taken}

        both, grown = apart(sizes)
        found[f"{name}_bytes_per_kernel"] = round(both["raw"] / repeated.kernels, 1)
        found[f"{name}_gzip_per_kernel"] = round(both["gzip"] / repeated.kernels, 2)
        found[f"{name}_memory_mb"] = round(grown / 1e6, 1)
    short = Repeated(trace, speed_kernels, repeated.jitter)

    def seconds() -> dict[str, float]:
        gc.disable()
        ready = held(made(trace, short, containers))
        best: dict[str, float] = {}
        for _ in range(3):
            for writer in WRITERS:
                name = writer.SUFFIXES[0].removeprefix(".")
                taken, *_ = written(ready, writer, compress=False)
                best[name] = min(best.get(name, taken), taken)
        return best

    best, _ = apart(seconds)
    for name, taken in best.items():
        found[f"{name}_us_per_kernel"] = round(1e6 * taken / short.kernels, 2)
    found["encoding_ratio"] = round(best["pftrace"] / best["json"], 2)
    return found


def program(files: Sequence[Path], size: int) -> dict[str, object]:
    """Both forms of a grown run, as the program writes them."""
    with tempfile.TemporaryDirectory() as folder:
        contents = [gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data for data in map(Path.read_bytes, files)]
        profile, log = Path(folder) / "of-one.json", Path(folder) / "of-one.log"
        for data in contents:
            (profile if data.lstrip()[:1] == b"[" else log).write_bytes(data)
        grow(profile, log, size, Path(folder))
        trace = mio2trace.convert(Path(folder) / "run.log", Path(folder) / "prof.json", host_calls="none").trace

    def seconds() -> dict[str, float]:
        gc.disable()  # as the program has it
        best: dict[str, float] = {}
        for writer in [*WRITERS] * 3:
            name = writer.SUFFIXES[0].removeprefix(".")
            best[name] = min(best.get(name, 1e9), written(trace, writer, compress=False)[0])
        return best

    best, _ = apart(seconds)
    commands = sum(isinstance(event, Slice) and event.category in COMMANDS for event in trace.events())
    found: dict[str, object] = {
        f"{name}_us_per_kernel": round(1e6 * taken / commands, 2) for name, taken in best.items()
    }
    return found | {"kernels_and_copies": commands, "time_ratio": round(best["pftrace"] / best["json"], 2)}


def main(argv: Sequence[str] | None = None) -> int:
    traces = ROOT / "traces" / "alexnet-b1-train"
    parser = argparse.ArgumentParser(description="Time, memory and size of a large trace in both forms.")
    parser.add_argument("files", nargs="*", type=Path, help="a run with iterations (default: one that comes with us)")
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument(
        "--speed-kernels", type=int, default=200_000, help="so many are timed, with their events in memory"
    )
    parser.add_argument("--jitter", type=float, default=0.03)
    parser.add_argument(
        "--grown", type=parse_size, default=parse_size("200MB"), help="profile that the program converts"
    )
    parser.add_argument("--only", choices=["picture", "kernels"])
    args = parser.parse_args(argv)
    files = args.files or [traces / "run.log", traces / "prof.json.gz"]
    trace = mio2trace.convert(*files, host_calls="none").trace
    ways = {"repeated": Repeated(trace, args.kernels, 0), "varied": Repeated(trace, args.kernels, args.jitter)}
    first = ways["repeated"]
    result: dict[str, Any] = {"kernels_and_copies": first.kernels, "iterations": first.repetitions}
    for way, name in itertools.product(ways, ("kernels", "picture")):
        if args.only in (None, name):
            found = measure(trace, ways[way], name == "picture", min(args.speed_kernels, args.kernels))
            found["over_limit"] = [
                limit
                for limit, key in (
                    ("json_gzip", "json_gzip_per_kernel"),
                    ("pftrace_gzip", "pftrace_gzip_per_kernel"),
                )
                if float(str(found[key])) > LIMITS[limit]
            ]
            result[f"{way} {name}"] = found
    if args.only is None:
        result["program"] = found = program(files, args.grown)
        found["over_limit"] = ["time_ratio"] if float(str(found["time_ratio"])) > LIMITS["time_ratio"] else []
    print(orjson.dumps(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
