"""Layers whose time on the host is known, inside their passes, on one track."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from mio2trace.align import LayerRun, Links
from mio2trace.draw.base import ROW, merged, told, whole
from mio2trace.trace import NO_ARGS, Columns, Slice, Slices

_Clip = Callable[[int, int], tuple[int, int]]
_Key = tuple[int, str | None, int | None]
_SPAN = itemgetter(0, 1)


def host_layers(
    links: Links,
    spans: Iterable[tuple[int, int, LayerRun]],
    passes: Mapping[int, tuple[int, int]],
    clip: _Clip | None,
    track: int,
    origin: int,
) -> Iterator[Slices]:
    """The slices in order, passes among their layers.

    Times are on the axis, of layers (start, end, run), of passes by their number.
    What overlaps is clipped: containers may be. What takes no time takes its nanosecond of the track, so that nothing
    else begins there. ``clip``: what is drawn of a span, where that may be less than all.
    """
    by_pass: dict[int, list[tuple[int, int, LayerRun]]] = {}
    for span in spans:
        by_pass.setdefault(span[2].pass_, []).append(span)
    likes: dict[_Key, Slice] = {}
    row = _Layers(track)
    done: int | None = None
    for number, layers in sorted(by_pass.items(), key=lambda item: passes[item[0]]):
        pass_ = links.passes[number]
        begin, until = whole = passes[number]
        if clip is not None:
            begin, until = clip(*whole)
        cut = {} if whole == (begin, until) else {"cut": True}
        begin = begin if done is None else max(done, begin)
        done = begin
        before = len(row.likes)
        for first, last, run in sorted(layers, key=_SPAN):
            start, end = (first, last) if clip is None else clip(first, last)
            row.cut.append(True if start != first or end != last else None)
            if start < done:
                start = done
            if end < start:
                end = start
            row.starts.append(start - origin)
            row.durations.append(end - start)
            key = (run.layer_index, run.direction, run.printed_ns)
            like = likes.get(key)
            if like is None:
                like = likes[key] = _like(run, track)
            row.likes.append(like)
            done = end if end > start else start + 1
            if end > until:
                until = end
        until = max(begin, until)
        iteration = {} if pass_.iteration is None else {"iteration": pass_.iteration}
        args = iteration if pass_.direction is None else {"direction": pass_.direction, **iteration}
        row.iterations += [pass_.iteration] * (len(row.likes) - before)
        own = {**args, **cut}
        row.passes.append(Slice(track, begin - origin, until - begin, pass_.name, "pass", own))
        row.places.append(2 * before)
        done = max(until, done, begin + 1)
        if len(row.likes) >= ROW:
            yield row.drawn()
            row = _Layers(track)
    if row.passes:
        yield row.drawn()


class _Layers:
    """Layers in columns, and the passes among them, each before the layer at half its place."""

    def __init__(self, track: int) -> None:
        self._track = track
        self.likes: list[Slice] = []
        self.starts: list[int] = []
        self.durations: list[int] = []
        self.iterations: list[int | None] = []
        self.cut: list[bool | None] = []
        self.passes: list[Slice] = []
        self.places: list[int] = []

    def drawn(self) -> Slices:
        layers = Columns(self.likes, self.starts, self.durations, told({"iteration": self.iterations, "cut": self.cut}))
        order = merged(self.places, range(1, 2 * len(self.likes), 2))
        return Slices(self._track, (whole(self.passes), layers), order)


def _like(run: LayerRun, track: int) -> Slice:
    """What a layer's runs have in common."""
    shared: dict[str, Any] = {"layer": run.layer, "layer_index": run.layer_index}
    if run.direction is not None:
        shared["direction"] = run.direction
    if run.printed_ns is not None:
        shared["printed_ns"] = run.printed_ns
    return Slice(track, 0, 0, run.layer, "layer", NO_ARGS, shared)
