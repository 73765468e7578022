"""What tests/perfetto_tools/trace_checks.sql asks of a trace, without the engine: on the picture that a form holds.

The checks that are about the importer itself, its statistics and its track types, need the engine.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from tests.native_packets import Drawn, Picture

_SHAPE = re.compile(r"(?:\d+x)*\d+|")
_UNPRINTED = re.compile(r"[\x00-\x1f\x7f\\]")
_LEFTOVERS = {"nan", "inf", "-inf", "none", "null", "undefined", "true", "false"}
_NAMES = ("kernel", "layer", "node", "op", "scope", "name", "device", "type", "api", "primitive", "operation_name")
"""Arguments that are a name of the input's own, which may be any word."""
_EXACT_NS = 1 << 53
_NEAR_ZERO_NS = 3_600_000_000_000


def broken_rules(picture: Picture) -> Iterator[str]:
    """Each rule that is broken, with what breaks it."""
    if not picture.slices:
        yield "no slices"
        return
    first = min(drawn.start for drawn in picture.slices)
    last = max(drawn.start + drawn.duration for drawn in picture.slices)
    if not 0 <= first <= _NEAR_ZERO_NS:
        yield f"starts near zero: {first}"
    if last >= _EXACT_NS:
        yield f"time is exact: {last}"
    for place, number in Counter(picture.tracks).items():
        if number > 1 or not all(place):
            yield f"tracks have names of their own: {place}"
    yield from _rows(picture.slices)
    yield from _labels(picture.slices)
    yield from _arguments(picture.slices)
    yield from _layers(picture.slices)
    yield from _arrows(picture)
    for process, name, at, value in picture.samples:
        if not process or not name:
            yield "counters are named"
        if not math.isfinite(value) or abs(value) > 1e300:
            yield f"counters are finite: {name} {value}"
        if not first <= at <= last:
            yield f"counters end inside the trace: {name} at {at} not in {first} to {last}"


def _rows(slices: list[Drawn]) -> Iterator[str]:
    """Slices of a track nest or are disjoint, not deeper than anyone looks."""
    tracks: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    for drawn in slices:
        if drawn.duration < 0 or drawn.start < 0:
            yield f"no negative time: {drawn.name} {drawn.start} {drawn.duration}"
        tracks[drawn.process, drawn.track].append((drawn.start, -drawn.duration, drawn.name))
    for place, row in tracks.items():
        open_: list[int] = []
        for start, negative, name in sorted(row):
            while open_ and open_[-1] <= start:
                open_.pop()
            if open_ and open_[-1] < start - negative:
                yield f"slices nest: {name} at {start} on {place}"
            open_.append(start - negative)
            if len(open_) > 100:
                yield f"depth is sane: {name} at {start} on {place}"


def _labels(slices: list[Drawn]) -> Iterator[str]:
    for drawn in slices:
        if not drawn.name or not drawn.category:
            yield f"slices have a name and a category: {drawn.name!r} {drawn.category!r}"
        if len(drawn.name) > 250:
            yield f"names are short: {len(drawn.name)}"
        if _UNPRINTED.search(drawn.name):
            yield f"no control characters: {drawn.name!r}"


def _flat(args: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in args.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _arguments(slices: list[Drawn]) -> Iterator[str]:
    types: dict[str, type] = {}
    for drawn in slices:
        for key, value in _flat(drawn.args):
            if value is None or isinstance(value, list):
                yield f"arguments are plain: {key} {value!r}"
            if types.setdefault(key, type(value)) is not type(value):
                yield f"argument types are stable: {key} {types[key].__name__} {type(value).__name__}"
            if isinstance(value, str):
                if not value:
                    yield f"no empty arguments: {key}"
                if value.lower() in _LEFTOVERS and key not in _NAMES:
                    yield f"no leftovers: {key} {value!r}"
                if _UNPRINTED.search(value):
                    yield f"no control characters: {key} {value!r}"
                if key.endswith("_shape") and not _SHAPE.fullmatch(value):
                    yield f"shapes are well formed: {key} {value!r}"
            elif isinstance(value, float) and not math.isfinite(value):
                yield f"arguments are finite: {key} {value}"
            elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
                yield f"no overflowed numbers: {key} {value}"
        gemm = drawn.args.get("gemm")
        if isinstance(gemm, dict):
            sizes = [gemm[name] for name in "MNK" if name in gemm]
            if len(sizes) != 3 or any(type(size) is not int or size <= 0 for size in sizes):
                yield f"GEMM sizes are three positive numbers: {gemm}"


def _layers(slices: list[Drawn]) -> Iterator[str]:
    """Kernels lie in their layer, and links name their evidence."""
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for drawn in slices:
        if drawn.category == "layer":
            # A long name is drawn cut, and stands whole beside.
            for name in {drawn.name, str(drawn.args.get("layer", drawn.name))}:
                spans[name].append((drawn.start, drawn.start + drawn.duration))
    for drawn in slices:
        if drawn.category not in ("kernel", "copy"):
            continue
        for link in ("layer", "operation"):
            if link in drawn.args and f"{link}_by" not in drawn.args:
                yield f"links name their evidence: {drawn.name} {link}"
        layer = drawn.args.get("layer")
        end = drawn.start + drawn.duration
        if layer is not None and not any(begin <= drawn.start and end <= until for begin, until in spans[layer]):
            yield f"kernels lie in their layer: {drawn.name} at {drawn.start} {layer!r}"


def _arrows(picture: Picture) -> Iterator[str]:
    for number, tail, head in picture.arrows:
        if tail == head:
            yield f"arrows join two slices: {number}"
        if tail[2] > head[2]:
            yield f"arrows do not point back: {number}"
    kernels = {(d.process, d.track, d.start, d.name) for d in picture.slices if d.category == "kernel"}
    for place, number in Counter(head for _, _, head in picture.arrows).items():
        if number > 1 and place in kernels:
            yield f"one launch for a kernel: {place}"
