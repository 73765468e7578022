"""Compare the operations and layers of a trace with the truth (``truth.json`` of a MIOpen run).

Kernels are joined with the truth's enqueues by ``call_index`` (``prof_index`` there), in a log that holds the profile's
blocks by the block's ``line``. Operations are compared by the line of the log: the trace's operation slices name
theirs, a true call has ``log_line`` (its entry) or else ``cmd_line`` (its command). Nothing of the program is used but
its trace, so truth and program stay independent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

Args = Mapping[str, Any]
Score = dict[str, Any]

PLACE = re.compile(r"(?:iter(\d+)|warm-up) (forward|backward) (.+)", re.DOTALL)
UPDATE = re.compile(r"iter(\d+) update\b.*")
LISTED = 20
"""Disagreements shown of a set."""


class Found(NamedTuple):
    """A trace's kernels by call index or line, its operations by index, and what is wrong with it as a trace."""

    kernels: dict[int, list[Args]]
    operations: dict[int, Args]
    faults: list[str]


class Place(NamedTuple):
    """Where a kernel truly belongs; ``kind`` is ``pass``, ``setup``, ``update`` or ``none``."""

    kind: str
    layer: str | None = None
    direction: str | None = None
    iteration: int | None = None


def found(trace: Any, *, by: str) -> Found:
    """The kernels and operations of a trace; ``by`` is the key that joins kernels: ``call_index`` or ``line``."""
    kernels: dict[int, list[Args]] = {}
    operations: dict[int, Args] = {}
    faults: list[str] = []
    counts: Counter[int] = Counter()
    said: dict[int, list[int]] = {}
    for event in trace["traceEvents"]:
        if event.get("ph") != "X":
            continue
        args = event.get("args", {})
        match event.get("cat"):
            case "kernel":
                kernels.setdefault(args.get(by, -1), []).append({**args, "name": event.get("name", "")})
                if "operation" in args:
                    counts[args["operation"]] += 1
            case "operation":
                index = args.get("operation", -1)
                said.setdefault(index, []).append(args.get("kernels", 0))
                before = operations.setdefault(index, args)
                if before.get("line") != args.get("line"):
                    faults.append(f"operation {index} has the lines {before.get('line')} and {args.get('line')}")
    for index in sorted({*counts, *operations}):
        if index not in operations:
            faults.append(f"operation {index} of {counts[index]} kernels has no slice")
        # One in pieces, with another's kernels between: each tells of its own kernels, or of all.
        elif counts[index] not in (sum(said[index]), min(said[index])) or counts[index] < max(said[index]):
            faults.append(f"operation {index} says {said[index]} kernels and has {counts[index]}")
    return Found(kernels, operations, faults)


def line_of(call: Args) -> int | None:
    """The line by which an operation is known: that of the entry, or else of the command."""
    entry: int | None = call.get("log_line")
    command: int | None = call.get("cmd_line")
    return command if entry is None else entry


def within(line: int, call: Args) -> bool:
    """Whether a line was written while a call ran: its messages may stay where its entry is lost."""
    before: int = call.get("lines_before", 0)
    after: int = call.get("lines_after", 0)
    return before < line <= after


def key_of(enqueue: Args) -> int:
    """What joins an enqueue with a kernel of the trace."""
    index: int = enqueue["log_line"] if "log_line" in enqueue else enqueue["prof_index"]
    return index


def join_key(truth: Any) -> str:
    return "line" if any("log_line" in enqueue for enqueue in truth["enqueues"]) else "call_index"


def place_of(layer: str | None) -> Place:
    """Truth files count iterations from 0, the log and the trace from 1; there 0 is the warm-up."""
    if layer is None:
        return Place("none")
    if match := PLACE.fullmatch(layer):
        return Place("pass", match[3], match[2], int(match[1]) + 1 if match[1] else 0)
    if match := UPDATE.fullmatch(layer):
        return Place("update", iteration=int(match[1]) + 1)
    return Place("setup", layer.removeprefix("setup "))


def layer_right(args: Args, place: Place) -> bool:
    """Whether the trace puts a kernel where it belongs: set-up has the phase and no iteration, an update no layer."""
    layer, iteration = args.get("layer"), args.get("iteration")
    match place.kind:
        case "pass":
            return (layer, args.get("direction"), iteration) == place[1:]
        case "setup":
            return args.get("phase") == "setup" and iteration is None and layer in (None, place.layer)
        case "update":
            said = layer in (None, "update") and args.get("phase") != "setup"
            return said and iteration in (None, place.iteration)
    return layer is None


def score(trace: Any, truth: Any) -> Score:
    """Every kernel of the truth against the trace; the counts of one set."""
    it = found(trace, by=join_key(truth))
    calls, layers = truth["api_calls"], truth["layers"]
    kernels = dict(it.kernels)
    counts: Counter[str] = Counter()
    layer: Counter[str] = Counter()
    find: Counter[str] = Counter()
    printed: Counter[str] = Counter()
    evidence: Counter[str] = Counter()
    wrong_by: Counter[str] = Counter()
    layer_evidence: Counter[str] = Counter()
    wrong: list[str] = []
    wrong_sure: list[str] = []
    wrong_layers: list[str] = []
    for enqueue in truth["enqueues"]:
        counts["kernels"] += 1
        slices = kernels.pop(key_of(enqueue), [])
        if not slices:
            counts["missing"] += 1
            wrong.append(f"{enqueue['name']} (call {key_of(enqueue)}) is not in the trace")
            continue
        counts["extra"] += len(slices) - 1
        args = slices[0]
        call = None if enqueue["api_call"] is None else calls[enqueue["api_call"]]
        line = None if call is None else line_of(call)
        said = args.get("operation")
        sure = args.get("sure", True) is not False
        operation = it.operations.get(said, {}) if said is not None else {}
        if call is None:  # launched by no call of MIOpen's
            right = said is None
        elif line is None:  # launched by a call that the log does not show, unless by a message of its own
            right = said is None or not sure or within(operation.get("line", 0), call)
        else:
            right = said is not None and operation.get("line") == line
        counts["right" if right else "wrong"] += 1
        counts["unsure"] += not sure
        counts["wrong_and_sure"] += not right and said is not None and sure
        counts["unattributed"] += said is None
        counts["unattributed_with_true_operation"] += said is None and line is not None
        if said is not None:
            evidence[args.get("operation_by", "none")] += 1
        if not right:
            wrong_by[args.get("operation_by", "none") if said is not None else "unattributed"] += 1
            name = "no call" if call is None else f"{call['name']} at line {line}"
            at = "none" if said is None else f"operation {said} at line {operation.get('line')}"
            text = f"{enqueue['name']} (call {key_of(enqueue)}) of {name}: {at}{'' if sure else ', unsure'}"
            (wrong_sure if said is not None and sure else wrong).append(text)
        if line is not None:
            printed["total"] += 1
            printed["right"] += right
        searching = call is not None and call["name"].startswith("miopenFind")
        if searching and line is not None:
            find["total"] += 1
            find["right"] += right and operation.get("phase") == "find"
        elif not searching:
            find["run_as_find"] += operation.get("phase") == "find"
        place = place_of(_name(layers, enqueue["layer"]))
        if _add_layer(layer, layer_evidence, args, place, sure):
            at = " ".join(str(args[key]) for key in ("iteration", "direction", "layer", "layer_by") if key in args)
            wrong_layers.append(
                f"{enqueue['name']} (call {key_of(enqueue)}) of {_name(layers, enqueue['layer'])}: {at}"
            )
    counts["extra"] += sum(map(len, kernels.values()))
    keys = ("kernels", "right", "wrong", "wrong_and_sure", "unattributed", "unattributed_with_true_operation")
    return {
        **{key: counts[key] for key in (*keys, "unsure", "missing", "extra")},
        "evidence": dict(sorted(evidence.items())),
        "wrong_by": dict(sorted(wrong_by.items())),
        "printed": {key: printed[key] for key in ("right", "total")},
        "find": {key: find[key] for key in ("right", "total", "run_as_find")},
        "layers": {
            **{key: layer[key] for key in ("right", "wrong", "wrong_and_sure", "unattributed", "wrong_phase", "total")},
            "evidence": dict(sorted(layer_evidence.items())),
        },
        "operations": _operations(it, calls),
        "faults": it.faults[:LISTED],
        "fault_count": len(it.faults),
        "wrong_kernels": [*wrong_sure, *wrong][:LISTED],
        "wrong_layers": wrong_layers[:LISTED],
    }


def _name(layers: Sequence[Any], index: int | None) -> str | None:
    return None if index is None else layers[index]["name"]


def _add_layer(counts: Counter[str], evidence: Counter[str], args: Args, place: Place, sure: bool) -> bool:
    """Count a kernel's layer; whether it is wrong and sure."""
    said = args.get("layer") is not None
    right = layer_right(args, place)
    counts["total"] += 1
    counts["right" if right else "wrong"] += 1
    # A set-up kernel may name its layer, or not: the layer's name is what a link says.
    counts["wrong_and_sure"] += not right and said and sure
    counts["unattributed"] += place.kind == "pass" and not said
    counts["wrong_phase"] += (args.get("phase") == "setup") != (place.kind == "setup") and place.kind != "none"
    if said:
        evidence[args.get("layer_by", "none")] += 1
    return not right and said and sure


def _operations(it: Found, calls: Sequence[Args]) -> Score:
    """How many operations there are, without kernels, and at a line where no true call opens."""
    lines = {line_of(call) for call in calls} - {None}
    strange = [args for args in it.operations.values() if args.get("line") not in lines]
    return {
        "count": len(it.operations),
        "without_kernels": sum(not args.get("kernels") for args in it.operations.values()),
        "at_no_call": len(strange),
    }


def consistency(trace: Any, truth: Any, log: Sequence[bytes]) -> Score:
    """Shapes of each conv, pool and bnorm operation, and its GEMM against those known of its kernels and of the log.

    ``miog_betac`` tells M N by its work size. A kernel's GEMM that was taken from its operation says nothing and is
    only counted. MIOpen's own ``gemm_desc`` within the true call's lines is held against the operation at that line.
    """
    it = found(trace, by=join_key(truth))
    bad: list[str] = []
    counts: Counter[str] = Counter()
    for args in it.operations.values():
        if args.get("primitive") not in ("conv", "pool", "bnorm"):
            continue
        counts["shapes"] += 1
        bad += [f"line {args.get('line')}: {text}" for text in shape_faults(args)]
    for slices in it.kernels.values():
        for args in slices:
            operation = it.operations.get(args.get("operation", -1))
            if operation is None:
                continue
            if args["name"] == "miog_betac":
                counts["gemm_by_work"] += 1
                if not scales(operation.get("gemm"), args.get("gws", "")):
                    bad.append(f"line {operation.get('line')}: {operation.get('gemm')}, scaled by {args.get('gws')}")
            if "gemm" not in args:
                continue
            if args.get("gemm_by") == "operation":
                counts["gemm_of_operation"] += 1
                continue
            counts["gemm"] += 1
            if "gemm" not in operation:
                bad.append(f"line {operation.get('line')}: a GEMM kernel {args['gemm']} in an operation without GEMM")
            elif not same_gemm(operation["gemm"], args["gemm"]):
                bad.append(f"line {operation.get('line')}: {operation['gemm']}, its kernel {args['gemm']}")
    by_line = {args.get("line"): args for args in it.operations.values()}
    for call in truth["api_calls"]:
        operation = by_line.get(line_of(call))
        if operation is None or operation.get("primitive") != "conv":
            continue
        for gemm in logged_gemms(log[call["lines_before"] : call["lines_after"]]):
            counts["gemm_in_log"] += 1
            if "gemm" not in operation or not same_gemm(operation["gemm"], gemm):
                bad.append(f"line {operation.get('line')}: {operation.get('gemm')}, in the log {gemm}")
    keys = ("shapes", "gemm", "gemm_by_work", "gemm_of_operation", "gemm_in_log")
    return {**{key: counts[key] for key in keys}, "disagreements": len(bad), "listed": bad[:LISTED]}


_DESCRIPTION = re.compile(rb"gemm_desc: \{.*?\bm (\d+), n (\d+), k (\d+),.*?batch_count (\d+)")


def logged_gemms(lines: Sequence[bytes]) -> Iterator[dict[str, int]]:
    """MIOpen's own words on the GEMMs of a call, at level 6 (miopen-log.md 8.3)."""
    for line in lines:
        if match := _DESCRIPTION.search(line):
            m, n, k, batch = map(int, match.groups())
            yield {"M": m, "N": n, "K": k, "batch": batch}


def same_gemm(whole: Mapping[str, int], part: Mapping[str, int]) -> bool:
    """Whether a GEMM is one of those that a whole one amounts to.

    Row-major and column-major exchange M and N. A batch is done one by one, as one, or with its images beside each
    other in the larger side (or, for the gradient of the weights, one image at a time of the summed side).
    """
    batch = whole.get("batch", 1)
    m, n, k = whole["M"], whole["N"], whole["K"]
    if batch % part.get("batch", 1):
        return False
    a, b, c = part["M"], part["N"], part["K"]
    for one, other in ((a, b), (b, a)):
        if (one, c) == (m, k) and other % n == 0 and batch % (other // n) == 0:
            return True
        if (one, c) == (n, k) and other % m == 0 and batch % (other // m) == 0:
            return True
        if (one, other) == (m, n) and k % c == 0:
            return True
    return False


def scales(whole: Mapping[str, int] | None, gws: str) -> bool:
    """Whether MIOpenGEMM's ``miog_betac`` of this size goes over the result of a GEMM, of one image or several.

    Two elements a work item, groups of 256: so it is in every launch of the sample sets whose GEMM the log tells.
    """
    if whole is None:
        return False
    area = whole["M"] * whole["N"]
    sizes = (-(-area * images // 512) * 256 for images in range(1, whole.get("batch", 1) + 1))
    return numbers(gws)[:1] in ([size] for size in sizes)


def numbers(text: Any) -> list[int]:
    """``"64x3x7x7"`` as numbers."""
    return [int(word) for word in str(text).split("x")] if text else []


def shape_faults(args: Args) -> Iterator[str]:
    """What does not fit among an operation's own arguments."""
    source, made = numbers(args.get("input")), numbers(args.get("output"))
    if not source or not made:
        yield f"{args['primitive']} without {'input' if not source else 'output'}"
        return
    match args["primitive"]:
        case "conv":
            yield from _conv_faults(args, source, made, numbers(args.get("weights")))
        case "pool":
            window = numbers(args.get("window"))
            pad = numbers(args.get("pad")) or [0] * len(window)
            stride = numbers(args.get("stride")) or [1] * len(window)
            if source[:2] != made[:2] or len(window) != len(source) - 2:
                yield f"pool {source} -> {made}, window {window}"
            for size, out, w, p, s in zip(source[2:], made[2:], window, pad, stride, strict=False):
                if out not in ((size + 2 * p - w) // s + 1, -(-(size + 2 * p - w) // s) + 1):
                    yield f"pool {source} -> {made}, window {window} pad {pad} stride {stride}"
        case "bnorm":
            if source != made:
                yield f"bnorm {source} -> {made}"
            if weights := numbers(args.get("weights")):
                spatial = [1, source[1], *(1 for _ in source[2:])]
                if weights not in (spatial, [1, *source[1:]]):
                    yield f"bnorm {source}, parameters {weights}"


def _conv_faults(args: Args, source: list[int], made: list[int], weights: list[int]) -> Iterator[str]:
    said = f"conv {source} * {weights} -> {made}"
    if len(weights) != len(source) or len(made) != len(source):
        yield said
        return
    groups = int(args.get("groups", 1))
    transpose = str(args.get("mode", "")).startswith("trans")
    small, large = (source, made) if transpose else (made, source)  # a transposed one is the other way round
    sizes = len(source) - 2
    pad = numbers(args.get("pad")) or [0] * sizes
    stride = numbers(args.get("stride")) or [1] * sizes
    dilation = numbers(args.get("dilation")) or [1] * sizes
    if source[0] != made[0] or weights[0] != small[1] or weights[1] * groups != large[1]:
        yield said
    for big, little, w, p, s, d in zip(large[2:], small[2:], weights[2:], pad, stride, dilation, strict=True):
        exact = (big + 2 * p - d * (w - 1) - 1) // s + 1
        if little != exact:
            yield f"{said}, pad {pad} stride {stride} dilation {dilation}"
            break
    if transpose or "gemm" not in args:
        if "gemm" not in args:
            yield f"{said} without GEMM"
        return
    work = made[0] * prod(made[1:]) * prod(weights[1:])
    gemm = args["gemm"]
    if gemm["M"] * gemm["N"] * gemm["K"] * gemm.get("batch", 1) != work:
        yield f"{said}: {gemm} is not its work of {work} multiplications"
        return
    per_group, kernel, pixels = weights[0] // groups, prod(weights[1:]), prod(made[2:])
    expected = {"M": per_group, "N": pixels, "K": kernel, "batch": made[0] * groups}
    if args.get("direction") == "backward-data":
        expected = {"M": kernel, "N": pixels, "K": per_group, "batch": made[0] * groups}
    elif args.get("direction") == "backward-weights":
        expected = {"M": per_group, "N": kernel, "K": made[0] * pixels, "batch": groups}
    if {"batch": 1, **gemm} != expected:
        yield f"{said} {args.get('direction')}: {gemm}, expected {expected}"
