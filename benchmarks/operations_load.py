"""One million kernels against half a million operations, and a tenth of that: time, memory, how they grow.

    python benchmarks/operations_load.py [--kernels 1000000] [--set NAME] [-o DIR] [--repeat 1] [--keep]

A real run of MIOpen with its log is made longer. Its last iteration is repeated, with later times on both clocks and in
the log's stamps. Buffers that the program does not write itself get new handles in each repetition, in profile and log.
Programs are built once. Prints one JSON line:

* ``seconds``, ``cpu_seconds`` and ``peak_bytes`` of the conversion of each size, with the log and without it.
* ``exponent`` of the CPU time over the kernels, from a tenth to all (limit 1.1).
* ``log_ratio``: CPU time with the log over that of the same conversion without it (limit 3).
* ``peak_bytes`` of the conversion of all (limit 3 GB).
* of a tenth also how many kernels are in their true call and layer (``truth.json`` grows with the run).
* ``unlike_ratio``, of a tenth: CPU time if the profile lost another kernel in each repetition, so that hardly two are
  equal, over the CPU time if all are equal (limit 3).
* ``summary_ratio``, of all: CPU time of the usual command over that with ``--quiet``, which is the cost of the printed
  lines. The larger ratio of with and without the log counts (limit 1.1).

Each conversion is a process of its own, its peak the kernel's count. Nothing here is asserted in a test.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import orjson

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / part) for part in ("", "timeline")]

from benchmarks.attribution_score import score  # noqa: E402
from benchmarks.damages.run import ENQUEUE, ITERATION, POINTER, SETTERS, Call, Run, pointer  # noqa: E402
from benchmarks.grow import EPOCH, LOG_STAMP, iso_formatter, log_stamp_us, microseconds  # noqa: E402
from benchmarks.samples import SHARED, require  # noqa: E402
from benchmarks.score import ROOT, load  # noqa: E402

LIMITS = {"exponent": 1.1, "log_ratio": 3.0, "unlike_ratio": 3.0, "summary_ratio": 1.1, "peak_bytes": 3e9}
BUILDS = ("clCreateProgramWithSource", "clBuildProgram")
VARIABLE = re.compile(
    rb'(?<=":")\d{4}-\d\d-\d\dT[^"]+(?=")|(?<="queued":)\d+|(?<="submit":)\d+|(?<="start":)\d+|(?<="end":)\d+'
    rb'|(?<="buffer":")0x[0-9a-f]+(?=")|(?<="arg_value":")[0-9a-f]{16}(?=")'
)
PAGE = 1 << 12
QUARTER_US = 15 * 60 * 1_000_000


class Stretch(NamedTuple):
    """The last iteration of a run: its number from 1; calls ``first`` to ``stop`` and lines ``top`` to ``bottom``, both
    from 0; what it holds."""

    number: int
    first: int
    stop: int
    top: int
    bottom: int
    kernels: int
    operations: int


def last_iteration(run: Run) -> Stretch:
    """Where the last iteration lies in profile and log."""
    truth = run.truth
    named = [int(match[1]) if (match := ITERATION.match(layer["name"])) else -1 for layer in truth["layers"]]
    last = max(named)
    if last < 0:
        raise SystemExit("operations_load: the run has no iteration")
    layers = [layer for layer, number in zip(truth["layers"], named, strict=True) if number == last]
    inside = [one for one in truth["enqueues"] if one["layer"] is not None and named[one["layer"]] == last]
    first = inside[0]["prof_index"]
    while run.profile[first - 1]["call"] in SETTERS:
        first -= 1
    bottom = layers[-1]["lines_after"]
    while bottom < len(run.log) and b"Iteration: " in run.log[bottom]:
        bottom += 1
    operations = len({one["api_call"] for one in inside} - {None})
    stop = inside[-1]["prof_index"] + 1
    return Stretch(last + 1, first, stop, layers[0]["lines_before"], bottom, len(inside), operations)


class Text:
    """Text with values that change from one repetition to the next; ``at(0, 0)`` gives it as it was."""

    def __init__(self, pattern: re.Pattern[bytes], text: bytes, kinds: Sequence[Any]) -> None:
        self.kinds = kinds
        parts: list[bytes] = []
        end = 0
        for match in pattern.finditer(text):
            parts.append(text[end : match.start()])
            end = match.end()
        parts.append(text[end:])
        self.form = b"%b".join(part.replace(b"%", b"%%") for part in parts)

    def at(self, shift_us: int, move: int) -> bytes:
        return self.form % tuple([kind(value, shift_us, move) for kind, value in self.kinds])


class Profile(Text):
    """Calls whose times and fresh buffers move on."""

    def __init__(self, calls: Sequence[Call], fresh: set[int]) -> None:
        text = b"".join(b",\n" + orjson.dumps(call) for call in calls)
        iso = iso_formatter()

        def stamp(us: int, shift_us: int, _: int) -> bytes:
            return iso(us + shift_us)

        def counter(ns: int, shift_us: int, _: int) -> bytes:
            return b"%d" % (ns + 1000 * shift_us)

        def buffer(handle: int, _: int, move: int) -> bytes:
            return b"%#x" % (handle + move)

        def argument(handle: int, _: int, move: int) -> bytes:
            return (handle + move).to_bytes(8, "little").hex().encode()

        def same(value: bytes, _: int, __: int) -> bytes:
            return value

        kinds: list[tuple[Any, Any]] = []
        for value in VARIABLE.findall(text):
            if b"T" in value:
                kinds.append((stamp, microseconds(value.decode())))
            elif value.startswith(b"0x"):
                number = int(value, 16)
                kinds.append((buffer, number) if number in fresh else (same, value))
            elif len(value) == 16 and (number := int.from_bytes(bytes.fromhex(value.decode()), "little")) in fresh:
                kinds.append((argument, number))
            elif len(value) == 16 and int.from_bytes(bytes.fromhex(value.decode()), "little") < 1 << 48:
                kinds.append((same, value))  # another handle, or a size
            else:
                kinds.append((counter, int(value)) if value.isdigit() and len(value) < 16 else (same, value))
        super().__init__(VARIABLE, text, kinds)


class Lines(Text):
    """Lines of the log whose stamps, numbers and fresh handles move on; stamps in the style of each line."""

    PATTERN = re.compile(rb"(?m)^" + LOG_STAMP.pattern.encode() + rb"|(?<=Iteration: )\d+|" + POINTER.pattern)

    def __init__(self, text: bytes, year: int, period_us: int, fresh: set[int]) -> None:
        def stamp(found: tuple[str, str, int], shift_us: int, _: int) -> bytes:
            level, form, us = found
            return (level + (EPOCH + timedelta(microseconds=us + shift_us)).strftime(form)).encode()

        def number(value: int, shift_us: int, _: int) -> bytes:
            return b"%d" % (value + shift_us // period_us)

        def pointer(handle: int, _: int, move: int) -> bytes:
            return b"%#x" % (handle + move)

        def same(value: bytes, _: int, __: int) -> bytes:
            return value

        kinds: list[tuple[Any, Any]] = []
        for match in self.PATTERN.finditer(text):
            value = match[0]
            if value.startswith(b"0x"):
                kinds.append((pointer, int(value, 16)) if int(value, 16) in fresh else (same, value))
            elif value.isdigit():
                kinds.append((number, int(value)))
            else:
                us = log_stamp_us(value.decode(), year)
                form = ("%Y" if match[2] else "") + "%m%d %H:%M:%S.%f"
                kinds.append((same, value) if us is None else (stamp, (value[:1].decode(), form, us)))
        super().__init__(self.PATTERN, text, kinds)


def grow(run: Run, kernels: int, folder: Path, *, unlike: bool) -> dict[str, int]:
    """Write ``run.log``, ``prof.json`` and ``truth.json`` of about so many kernels; what they hold. ``unlike``: the
    profile lost a kernel of each repetition, another one each time.
    """
    it = last_iteration(run)
    calls = run.profile
    year = int(calls[0]["timestamp"]["start"][:4])
    begin_us = microseconds(calls[it.first]["timestamp"]["start"])
    end_us = microseconds(calls[it.stop - 1]["timestamp"]["end"])
    lines = [line.decode("latin-1") for line in run.log[it.top : it.bottom]]
    stamps = [us for line in lines if (us := log_stamp_us(line, year)) is not None]
    zone_us = QUARTER_US * round((stamps[-1] - end_us) / QUARTER_US)
    period_us = max(end_us, stamps[-1] - zone_us) + 20 - begin_us

    created = {int(call["buffer"], 16): call for call in calls if call["call"] == "clCreateBuffer"}
    written = {int(call["buffer"], 16) for call in calls if call["call"] == "clEnqueueWriteBuffer"}
    fresh = set(created) - written
    move = (max(fresh) - min(fresh)) // PAGE * PAGE + 2 * PAGE
    used = {pointer(call) for call in calls[it.first : it.stop]}
    start = calls[it.first]["timestamp"]["start"]
    made = [
        {**call, "timestamp": {"start": start, "end": start}}
        for handle, call in created.items()
        if handle in fresh and handle in used
    ]
    stretch = [call for call in calls[it.first : it.stop] if call["call"] not in BUILDS]
    repeated = [*made, *(call for call in stretch if call["call"] != "clCreateBuffer")]
    again = Profile(repeated, fresh)
    printed = Lines(b"".join(run.log[it.top : it.bottom]), year, period_us, fresh)
    rest = Profile(calls[it.stop :], set())
    tail = Lines(b"".join(run.log[it.bottom :]), year, period_us, set())
    times = max(0, -(-(kernels - len(run.truth["enqueues"])) // it.kernels))
    places = [index for index, call in enumerate(repeated) if call["call"] == ENQUEUE]
    chance = Random(times)
    lost = [chance.choice(places) if unlike else None for _ in range(times)]

    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "prof.json", "wb", buffering=1 << 20) as out:
        out.write(b"[" + b",\n".join(orjson.dumps(call) for call in calls[: it.stop]))
        for repetition, place in enumerate(lost, 1):
            out.write(without(again.at(repetition * period_us, repetition * move), place))
        out.write(rest.at(times * period_us, 0) + b"]\n")
    with open(folder / "run.log", "wb", buffering=1 << 20) as out:
        for line in run.log[: it.bottom]:
            out.write(re.sub(rb"(?<=Testing for )\d+(?= iterations)", b"%d" % (it.number + times), line))
        for repetition in range(1, times + 1):
            out.write(printed.at(repetition * period_us, repetition * move))
        out.write(tail.at(times * period_us, 0))
    truth = grown_truth(run.truth, it, places, len(repeated), lost)
    (folder / "truth.json").write_bytes(orjson.dumps(truth))
    operations = len({one["api_call"] for one in run.truth["enqueues"]} - {None})
    return {
        "kernels": len(truth["enqueues"]),
        "operations": operations + times * it.operations,
        "iterations": it.number + times,
        "profile_bytes": (folder / "prof.json").stat().st_size,
        "log_bytes": (folder / "run.log").stat().st_size,
    }


def without(calls: bytes, place: int | None) -> bytes:
    """Calls as `Profile` writes them, but for the one at ``place``."""
    if place is None:
        return calls
    lines = calls.split(b",\n")  # an empty one, and each call
    return b",\n".join(lines[: place + 1] + lines[place + 2 :])


def grown_truth(truth: Any, it: Stretch, places: Sequence[int], calls: int, lost: Sequence[int | None]) -> Any:
    """The truth of the long run: the last iteration's, once more for each repetition, without the call lost there."""
    lines = it.bottom - it.top
    inside = [one for one in truth["enqueues"] if it.first <= one["prof_index"] < it.stop]
    api = [call for call in truth["api_calls"] if it.top <= call["lines_before"] < it.bottom]
    layers = [layer for layer in truth["layers"] if it.top <= layer["lines_before"] < it.bottom]
    first_call, first_layer = api[0]["index"], layers[0]["index"]
    out: Any = {name: list(truth[name]) for name in ("layers", "api_calls", "enqueues")}
    begin = it.stop
    for repetition, gone in enumerate(lost, 1):
        call_move, layer_move = len(out["api_calls"]) - first_call, len(out["layers"]) - first_layer
        for layer in layers:
            name = ITERATION.sub(lambda match, n=repetition: f"iter{int(match[1]) + n} ", layer["name"])  # type: ignore[misc]
            out["layers"].append({"name": name})
        for call in api:
            known = {key: call[key] for key in ("log_line", "cmd_line") if call.get(key) is not None}
            moved = {key: line + repetition * lines for key, line in known.items()}
            out["api_calls"].append({"name": call["name"], **moved})
        for one, place in zip(inside, places, strict=True):
            if place == gone:
                continue
            call, layer = one["api_call"], one["layer"]
            out["enqueues"].append(
                {
                    "name": one["name"],
                    "prof_index": begin + place - (gone is not None and gone < place),
                    "api_call": None if call is None else call + call_move,
                    "layer": None if layer is None else layer + layer_move,
                }
            )
        begin += calls - (gone is not None)
    return out


def convert(files: Sequence[Path], out: Path, *, summary: bool = False) -> dict[str, float]:
    """The program from start to exit; ``summary``: with the lines about the run, as a user runs it."""
    command = [sys.executable, "-m", "mio2trace", *map(str, files), "-o", str(out), *([] if summary else ["--quiet"])]
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"operations_load: {' '.join(command)}: exit {process.returncode}\n{said.decode()}")
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_bytes": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "trace_bytes": out.stat().st_size,
    }


def best(files: Sequence[Path], out: Path, repeat: int, *, summary: bool = False) -> dict[str, float]:
    measured = [convert(files, out, summary=summary) for _ in range(repeat)]
    return min(measured, key=lambda one: one["cpu_seconds"])


def make(sample: Path, kernels: int, folder: Path, unlike: bool) -> dict[str, Any]:
    start = time.perf_counter()
    made = grow(Run.load(sample), kernels, folder, unlike=unlike)
    return {**made, "made_in_seconds": round(time.perf_counter() - start, 1)}


def in_child(function: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    """Call it in a process of its own: this one must stay small, as a child's peak begins with its parent's size."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def scored(out: Path, truth: Path) -> dict[str, Any]:
    """How much of the trace is right."""
    result = score(load(out), load(truth))
    return {
        "operations_right": result["right"],
        "wrong_and_sure": result["wrong_and_sure"],
        "layers_right": result["layers"]["right"],
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure the conversion of a long run of MIOpen, and of a tenth.")
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--set", default="m121-lenet-train-ownkernels", metavar="NAME", help="the run to be made long")
    parser.add_argument("--shared", type=Path, default=SHARED, help="the folder of the real samples")
    parser.add_argument("-o", "--output", type=Path, help="folder for the files (default: a temporary one)")
    parser.add_argument("--repeat", type=int, default=1, help="take the best of N runs (default 1)")
    parser.add_argument("--keep", action="store_true", help="leave the files; take those that are there")
    args = parser.parse_args(argv)
    folder = args.output or Path(tempfile.mkdtemp(dir=os.environ.get("TMPDIR")))
    sample = args.shared / "samples" / "miopen-opencl" / args.set
    require("--shared", sample)
    wanted = 8000 * args.kernels  # profile, log and trace, all of them
    folder.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(folder).free) < wanted:
        parser.error(f"{folder} has {free / 1e9:.0f} GB free, {wanted / 1e9:.0f} GB may be needed")
    result: dict[str, Any] = {"set": args.set}
    sizes = {"tenth": args.kernels // 10, "unlike": args.kernels // 10, "all": args.kernels}
    try:
        for name, kernels in sizes.items():
            place = folder / f"{args.set}-{name}-{kernels}"
            holds = place / "holds.json"
            if not holds.exists():
                holds.write_bytes(orjson.dumps(in_child(make, sample, kernels, place, name == "unlike")))
            files = [place / "run.log", place / "prof.json"]
            out = place / "out.json"
            result[name] = {
                **orjson.loads(holds.read_bytes()),
                "with_log": best(files, out, args.repeat),
                **(in_child(scored, out, place / "truth.json") if name != "all" else {}),
                **({"without_log": best(files[1:], out, args.repeat)} if name != "unlike" else {}),
            }
            if name == "all":
                result[name]["with_summary"] = {
                    of: best(given, out, args.repeat, summary=True)
                    for of, given in (("with_log", files), ("without_log", files[1:]))
                }
            out.unlink()
    finally:
        if not args.keep:
            for name, kernels in sizes.items():
                shutil.rmtree(folder / f"{args.set}-{name}-{kernels}", ignore_errors=True)
            if args.output is None:
                folder.rmdir()
    few, many = result["tenth"], result["all"]
    grown = math.log(many["kernels"] / few["kernels"])
    for key, name in (("cpu_seconds", "exponent"), ("seconds", "wall_exponent")):
        result[name] = round(math.log(many["with_log"][key] / few["with_log"][key]) / grown, 3)
        result[f"{name}_without_log"] = round(math.log(many["without_log"][key] / few["without_log"][key]) / grown, 3)
    result["log_ratio"] = round(many["with_log"]["cpu_seconds"] / many["without_log"]["cpu_seconds"], 2)
    per_kernel = [result[name]["with_log"]["cpu_seconds"] / result[name]["kernels"] for name in ("unlike", "tenth")]
    result["unlike_ratio"] = round(per_kernel[0] / per_kernel[1], 2)
    with_summary = many["with_summary"]
    result["summary_ratio"] = round(
        max(one["cpu_seconds"] / many[of]["cpu_seconds"] for of, one in with_summary.items()), 2
    )
    result["peak_bytes"] = many["with_log"]["peak_bytes"]
    result["over_limit"] = [name for name, limit in LIMITS.items() if result[name] > limit]
    print(orjson.dumps(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
