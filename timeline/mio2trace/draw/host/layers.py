"""Layers whose time on the host is known, inside their passes, on one track."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from mio2trace.align import LayerRun, Links
from mio2trace.trace import NO_ARGS, Slice

_Clip = Callable[[int, int], tuple[int, int, dict[str, Any]]]


def host_layers(
    links: Links,
    spans: Iterable[tuple[int, int, LayerRun]],
    passes: Mapping[int, tuple[int, int]],
    clipped: _Clip,
    track: int,
    origin: int,
) -> Iterator[Slice]:
    """The slices in order; times are on the axis, of layers (start, end, run), of passes by their number.

    What overlaps is clipped: containers may be. What takes no time takes its nanosecond of the track, so that nothing
    else begins there.
    """
    by_pass: dict[int, list[tuple[int, int, LayerRun]]] = {}
    for span in spans:
        by_pass.setdefault(span[2].pass_, []).append(span)
    shared: dict[tuple[int, str | None, int | None], dict[str, Any]] = {}
    done: int | None = None
    for number, layers in sorted(by_pass.items(), key=lambda item: passes[item[0]]):
        pass_ = links.passes[number]
        begin, until, cut = clipped(*passes[number])
        begin = begin if done is None else max(done, begin)
        done = begin
        iteration = {} if pass_.iteration is None else {"iteration": pass_.iteration}
        args = iteration if pass_.direction is None else {"direction": pass_.direction, **iteration}
        inside = []
        for first, last, run in sorted(layers, key=lambda layer: layer[:2]):
            start, end, layer_cut = clipped(first, last)
            start = max(start, done)
            end = max(start, end)
            own = {**iteration, **layer_cut} if layer_cut else iteration or NO_ARGS
            inside.append(Slice(track, start - origin, end - start, run.layer, "layer", own, _layer_args(run, shared)))
            done = max(end, start + 1)
            until = max(end, until)
        until = max(begin, until)
        yield Slice(track, begin - origin, until - begin, pass_.name, "pass", {**args, **cut})
        yield from inside
        done = max(until, done, begin + 1)


def _layer_args(run: LayerRun, shared: dict[tuple[int, str | None, int | None], dict[str, Any]]) -> dict[str, Any]:
    """What a layer's runs have in common."""
    key = (run.layer_index, run.direction, run.printed_ns)
    same = shared.get(key)
    if same is None:
        same = shared[key] = {"layer": run.layer, "layer_index": run.layer_index}
        if run.direction is not None:
            same["direction"] = run.direction
        if run.printed_ns is not None:
            same["printed_ns"] = run.printed_ns
    return same
