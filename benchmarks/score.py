"""How many kernels end up where the truth files say: one JSON line per trace.

    python benchmarks/score.py out.json X.truth.json [--name N]
    python benchmarks/score.py --all [--shared DIR] [--without EVIDENCE ...] [--require]

A Caffe truth file names the layer of each enqueue; a CLBlast one the sizes of each BLAS call. ``--all`` converts every
set of the real samples, prints a line for each, and a line of totals for each way to run them. ``--require`` exits
with 1 when a score is below what the project promises.
"""

from __future__ import annotations

import argparse
import gzip
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from benchmarks.samples import SHARED, require  # noqa: E402

GROUPS = ("iterations", "warmup", "outside", "gemm", "no_gemm")
COUNTS = ("missing", "extra", "unattributed", "wrong_and_sure", "warmup_by_stamps")
SUFFIXES = ("prof.json", "run.log", "interleaved.log", "interleaved-nomarks.log", "boundary.per_layer_info.json")

Score = dict[str, Any]
Event = dict[str, Any]


class Set(NamedTuple):
    """A run of the program: its inputs, and the truth about it."""

    name: str
    way: str
    files: tuple[Path, ...]
    truth: Path


def load(path: Path) -> Any:
    data = path.read_bytes()
    return orjson.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)


def kernels(trace: Any) -> dict[int, list[Event]]:
    """The kernels and copies of a trace by call index. More than one for a call is a fault, counted as extra."""
    out: dict[int, list[Event]] = {}
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and event.get("cat") in ("kernel", "copy"):
            out.setdefault(event.get("args", {}).get("call_index", -1), []).append(event.get("args", {}))
    return out


def score_layers(trace: Any, truth: Any) -> Score:
    """Layer, direction and iteration of every enqueue."""
    found = kernels(trace)
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    counts = dict.fromkeys(COUNTS, 0)
    evidence: Counter[str] = Counter()
    layers = truth["layers"]
    for enqueue in truth["enqueues"]:
        layer = None if enqueue["l"] is None else layers[enqueue["l"]]
        group = "outside" if layer is None else "warmup" if layer["pass"] == "init" else "iterations"
        total[group] += 1
        events = found.pop(enqueue["call_index"], [])
        if not events:
            counts["missing"] += 1
            continue
        counts["extra"] += len(events) - 1
        args = events[0]
        said = args.get("layer")
        if said is not None:
            evidence[args.get("layer_by", "none")] += 1
            if group == "warmup" and args.get("layer_by") == "boundary stamps":
                counts["warmup_by_stamps"] += 1
        if layer is None:
            good = said is None
        else:
            place = (said, args.get("layer_index"), args.get("direction"), args.get("iteration"))
            good = place == (layer["layer"], layer["layer_index"], layer["direction"], iteration(layer["pass"]))
            counts["unattributed"] += said is None
        right[group] += good
        counts["wrong_and_sure"] += not good and said is not None and args.get("sure", True)
    counts["extra"] += sum(map(len, found.values()))
    groups = {group: {"right": right[group], "total": total[group]} for group in GROUPS[:3]}
    return {**groups, **counts, "evidence": dict(sorted(evidence.items()))}


def iteration(name: str) -> int:
    """Truth files count benchmark iterations from 0, the log and the trace from 1; the warm-up is 0."""
    return 0 if name == "init" else int(name.removeprefix("iter")) + 1


def score_gemms(trace: Any, truth: Any) -> Score:
    """The sizes of every BLAS call, on exactly one of its kernels; none where there is no GEMM."""
    found = kernels(trace)
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    counts = dict.fromkeys(COUNTS, 0)
    evidence: Counter[str] = Counter()
    for call in truth:
        wanted = sizes(call)
        group = "gemm" if wanted else "no_gemm"
        total[group] += 1
        indices = [kernel["call_index"] for kernel in call["kernels"]]
        counts["missing"] += sum(index not in found for index in indices)
        carried = [args for index in indices for args in found.pop(index, []) if "gemm" in args]
        evidence.update(args.get("gemm_by", "none") for args in carried)
        right[group] += [{"batch": 1, **args["gemm"]} for args in carried] == ([wanted] if wanted else [])
    counts["extra"] += sum(map(len, found.values()))
    groups = {group: {"right": right[group], "total": total[group]} for group in GROUPS[3:]}
    return {
        **groups,
        "missing": counts["missing"],
        "extra": counts["extra"],
        "evidence": dict(sorted(evidence.items())),
    }


def sizes(call: Any) -> dict[str, int] | None:
    """The GEMM that a BLAS call amounts to."""
    match call["routine"]:
        case "Gemm" | "GemmBatched" | "GemmStridedBatched":
            m, n, k = call["M"], call["N"], call["K"]
        case "Gemv":  # the result has N elements when A is transposed
            m, n, k = (call["N"], 1, call["M"]) if call["trans_a"] else (call["M"], 1, call["N"])
        case "Syrk":
            m, n, k = call["N"], call["N"], call["K"]
        case "Convgemm":
            m, n, k = call["out_h"] * call["out_w"], call["num_kernels"], call["channels"] * call["kernel"] ** 2
        case _:
            return None
    return {"batch": call.get("batch", 1), "M": m, "N": n, "K": k}


def score(trace: Any, truth: Any) -> Score:
    return score_gemms(trace, truth) if isinstance(truth, list) else score_layers(trace, truth)


def add(total: Score, one: Score) -> None:
    """One set's counts onto the sums."""
    total["sets"] = total.get("sets", 0) + 1
    add_counts(total, one)


def add_counts(total: Score, one: Score) -> None:
    for key, value in one.items():
        if isinstance(value, dict):
            add_counts(total.setdefault(key, {}), value)
        elif isinstance(value, int):
            total[key] = total.get(key, 0) + value


def sets(samples: Path) -> Iterator[Set]:
    """Every set, in each way that the program promises to read it."""
    for truth in sorted(samples.glob("*.truth.json")):
        name = truth.name.removesuffix(".truth.json")
        file = {suffix: samples / f"{name}.{suffix}" for suffix in SUFFIXES}
        if file["run.log"].exists():
            yield Set(name, "log and profile", (file["run.log"], file["prof.json"]), truth)
        elif file["prof.json"].exists():
            yield Set(name, "profile", (file["prof.json"],), truth)
        for suffix in ("interleaved.log", "interleaved-nomarks.log"):
            if file[suffix].exists():
                yield Set(f"{name} ({suffix})", "interleaved", (file[suffix],), truth)
        if file["boundary.per_layer_info.json"].exists():
            yield Set(
                f"{name} (boundary)", "boundary", (file["boundary.per_layer_info.json"], file["prof.json"]), truth
            )


def convert(files: Sequence[Path], out: Path, options: Sequence[str]) -> str:
    """Run the program as a user would; its complaint, or nothing."""
    command = [sys.executable, "-m", "mio2trace", *map(str, files), "-o", str(out), "--quiet", *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    return "" if done.returncode == 0 else (done.stderr.strip() or f"exit {done.returncode}").splitlines()[-1]


def shortfalls(one: Score, way: str, without: Sequence[str]) -> Iterator[str]:
    """What of one set is below the promise."""
    if "error" in one:
        yield one["error"]
        return
    if one["missing"] or one["extra"]:
        yield f"{one['missing']} missing, {one['extra']} extra"
    if "gemm" in one:
        exact = ["gemm", "no_gemm"]
    elif way == "boundary":
        exact = ["iterations"] if set(without) <= {"timer marks"} else []
    elif way == "interleaved":
        exact = ["iterations", "outside"] if set(without) <= {"timer marks"} else []
    else:  # with evidence taken away only the totals are promised
        exact = [] if without else ["iterations", "outside"]
    for group in exact:
        if one[group]["right"] != one[group]["total"]:
            yield f"{group}: {one[group]['right']} of {one[group]['total']}"
    if way == "boundary" and one["warmup_by_stamps"]:
        yield f"{one['warmup_by_stamps']} kernels of the warm-up in a layer by stamps"


def share(total: Score, group: str) -> float:
    counts = total.get(group, {"right": 0, "total": 0})
    return counts["right"] / counts["total"] if counts["total"] else 1.0


def score_all(samples: Path, without: Sequence[str], only: str) -> list[str]:
    """Convert and score every set; what is below the promise."""
    options = [word for evidence in without for word in ("--without", evidence)]
    totals: dict[str, Score] = {}
    short: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for one in sets(samples):
            if not re.search(only, one.name):
                continue
            truth = load(one.truth)
            out = Path(folder) / "out.json"
            # The marks would hide what the stamps tell.
            marks = ["--without", "timer marks"] if one.way == "boundary" and "timer marks" not in without else []
            error = convert(one.files, out, options + marks)
            result = {"error": error} if error else score(load(out), truth)
            count = 0 if isinstance(truth, list) else len({layer["pass"] for layer in truth["layers"]} - {"init"})
            emit({"set": one.name, "way": one.way, "without": list(without), "iteration_count": count, **result})
            short += [f"{one.name}: {text}" for text in shortfalls(result, one.way, without)]
            if not error:
                add(totals.setdefault(one.way, {}), result)
                if count == 1 and one.way == "log and profile":
                    add(totals.setdefault("log and profile, one iteration", {}), result)
    for way, total in totals.items():
        emit({"total": way, "without": list(without), **total})
    main = totals.get("log and profile", {})
    if not without and share(main, "warmup") < 0.98:
        short.append(f"warm-up: {share(main, 'warmup'):.2%} over all sets, promised 98 %")
    single = share(totals.get("log and profile, one iteration", {}), "iterations")
    if list(without) == ["timer marks"] and single < 0.99:
        short.append(f"without timer marks: {single:.2%} of iteration 1 over all, promised 99 %")
    return short


def emit(line: Score) -> None:
    print(orjson.dumps(line).decode(), flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Score traces against the truth of their runs.")
    parser.add_argument("files", nargs="*", type=Path, metavar="TRACE TRUTH")
    parser.add_argument("--name", help="the set's name in the line (default: the truth file's)")
    parser.add_argument("--all", action="store_true", help="convert and score every set of the real samples")
    parser.add_argument("--only", default="", metavar="REGEX", help="of these sets, those whose name matches")
    parser.add_argument("--shared", type=Path, default=SHARED, help="the folder of the real samples")
    parser.add_argument("--without", action="append", default=[], metavar="EVIDENCE", help="as the program's option")
    parser.add_argument("--require", action="store_true", help="exit 1 if a score is below what is promised")
    args = parser.parse_args(argv)
    if args.all:
        samples = args.shared / "samples" / "dvdt"
        require("--shared", samples)
        short = score_all(samples, args.without, args.only)
        for text in short:
            print(f"below: {text}", file=sys.stderr)
        return 1 if short and args.require else 0
    if len(args.files) != 2:
        parser.error("a trace and its truth file, or --all")
    trace, truth = args.files
    emit({"set": args.name or truth.name.removesuffix(".truth.json"), **score(load(trace), load(truth))})
    return 0


if __name__ == "__main__":
    sys.exit(main())
