"""Explain why a kernel belongs to an operation, or to none: the evidence, and the alternatives."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp

from mio2trace.align import NONE, Alignment
from mio2trace.align.links import SURE, Links
from mio2trace.align.operations.posterior import Posterior
from mio2trace.align.operations.stream import Stream
from mio2trace.align.operations.windows import Windows
from mio2trace.model.profile import Activity
from mio2trace.ops.naming import operation_name
from mio2trace.ops.operation import Operation
from mio2trace.outgoing import count

ALTERNATIVES = 3
"""The most other operations that are listed."""
LEAST, CERTAIN = 0.005, 0.9995
"""Probabilities outside of these are printed as 0 and as 100 %."""
MOST_NATS = 40.0


def explain(alignment: Alignment, what: str) -> Iterator[str]:
    """Return lines on ``kernel N`` (call or dispatch), ``operation N`` or ``line N`` (of the log, in an operation's
    entry).

    Raises ValueError if it does not exist.
    """
    kind, _, number = what.replace(":", " ").strip().partition(" ")
    if kind not in ("kernel", "operation", "line") or not number.strip().isdecimal():
        raise ValueError(
            f"{what}: expected kernel N (its call_index, dispatch_id or event_index), operation N or line N"
        )
    value = int(number)
    if kind == "kernel":
        # Copies have numbers of their own in a profile that numbers its dispatches.
        numbered = [place for place, activity in enumerate(alignment.profile.activities) if activity.number == value]
        numbered.sort(key=lambda place: alignment.profile.activities[place].kind != "kernel")
        if numbered:
            yield from _kernel(alignment, numbered[0], alignment.profile.activities[numbered[0]])
            return
    else:
        for operation in alignment.links.operations:
            found = operation.index == value if kind == "operation" else operation.line <= value <= operation.end_line
            if found:
                yield from _operation(alignment, operation)
                return
    raise ValueError(f"{what}: none in these files")


def _kernel(alignment: Alignment, position: int, activity: Activity) -> Iterator[str]:
    links = alignment.links
    size = f", {'x'.join(map(str, activity.grid))} work items" if activity.grid else ""
    yield f"{activity.kind} {activity.number}: {activity.name}{size}{_time(activity)}"
    run = links.run_of[position]
    if run == NONE:
        pass_ = links.pass_of[position]
        where = f" ({links.passes[pass_].name})" if pass_ != NONE else ""
        yield f"  layer: none{where}"
    else:
        layer = links.runs[run]
        doubt = _doubt(links.layer_confidence.get(position, 1.0))
        yield f"  layer: {layer.layer}, {links.passes[layer.pass_].name}, by {links.layer_by[position]}{doubt}"
        if (odds := _layer_odds(links, position, layer.layer)) is not None:
            yield f"    {odds}"
    streams = [stream for stream in alignment.streams if position in stream.positions]
    for stream in streams:
        yield from _link(alignment, stream, stream.positions.index(position), position)
    if not streams:
        yield from _stated(alignment, position)


def _layer_odds(links: Links, position: int, layer: str) -> str | None:
    """Return ``91 %: the next best is conv2, 7 %``. If only the neighbours are known, they share all of the rest."""
    confidence = links.layer_confidence.get(position, 1.0)
    if confidence >= CERTAIN:
        return None
    name, probability = links.next_layer.get(position, ("", 0.0))
    if name and name != layer and probability >= LEAST:
        return f"{percent(confidence)}: the next best is {name}, {percent(probability)}"
    names = [_layer_beside(links, position, step, layer) for step in (-1, 1)]
    beside = " or ".join(dict.fromkeys(name for name in names if name))
    return f"{percent(confidence)}: else {f'{beside}, or none' if beside else 'none'}, {percent(1 - confidence)}"


def _layer_beside(links: Links, position: int, step: int, layer: str) -> str:
    """Return the nearest other layer among the activities before or after the position."""
    places = range(position, len(links.run_of)) if step > 0 else range(position, -1, -1)
    names = (links.runs[run].layer for place in places if (run := links.run_of[place]) != NONE)
    return next((name for name in names if name != layer), "")


def _stated(alignment: Alignment, position: int) -> Iterator[str]:
    """Return the operation that the profile itself states: there was no choice."""
    links = alignment.links
    index = links.operation_of[position]
    for operation in links.operations:
        if operation.index == index:
            doubt = _doubt(links.operation_confidence.get(position, 1.0))
            yield f"  {_named(operation)}, by {links.operation_by[position]}{doubt}"
            return
    if links.operations:
        yield "  operation: none"


def _link(alignment: Alignment, stream: Stream, number: int, position: int) -> Iterator[str]:
    links, posterior = alignment.links, stream.posterior
    index = links.operation_of[position]
    doubt = _doubt(links.operation_confidence.get(position, 1.0))
    places = {operation.index: place for place, operation in enumerate(stream.operations)}
    if index == NONE:
        yield "  operation: none"
    else:
        operation = stream.operations[places[index]]
        yield f"  {_named(operation)}, by {links.operation_by[position]}{doubt}"
        yield f"    {_reasons(stream, number, places[index])}"
    if posterior is not None:
        yield f"  {_odds(stream, posterior, number)}"
    yield f"  {_window(stream, stream.windows, number)}"
    if posterior is not None:
        for place, probability in posterior.others[number][:ALTERNATIVES]:
            if place != NONE:
                reasons = _reasons(stream, number, place)
                yield f"  else: {_named(stream.operations[place])}, {percent(probability)}: {reasons}"


def _odds(stream: Stream, posterior: Posterior, number: int) -> str:
    """Return ``91 %: the next best is operation 3, 7 %; the log lost this call, 2 %``."""
    place = posterior.operation[number]
    confidence = posterior.confidence[number]
    parts = [
        f"the next best is operation {stream.operations[other].index}, {percent(probability)}"
        for other, probability in posterior.others[number]
        if other != NONE
    ][:1]
    lost = posterior.gone[number]
    if place != NONE and lost >= LEAST:
        parts.append(f"the log lost this call, {percent(lost)}")
    what = "" if place != NONE else "the log lost its call: " if lost > confidence / 2 else "outside any call: "
    said = "100 %" if confidence >= CERTAIN else percent(confidence)
    return f"{what}{said}" + (f": {'; '.join(parts)}" if parts else "")


def _reasons(stream: Stream, number: int, place: int) -> str:
    likelihood = stream.likelihood
    fit = likelihood.fit(number, place)
    operation = stream.operations[place]
    parts = []
    handles, pointers = likelihood.kernels.named[number], likelihood.pointers[place]
    shared = handles.intersection(pointers)
    if shared:
        names = [name for name, address in operation.tensors if address in shared]
        parts.append(f"has its {', '.join(dict.fromkeys(names))}")
    others = handles.difference(pointers)
    if others:
        parts.append(f"{len(others)} of its buffers are other operations'")
    if fit.launched:
        parts.append("name and size are on a launch line")
    kind = likelihood.kernels.kind(number)
    if kind.name is None:
        parts.append("its name is none that MIOpen is known to have")
    else:
        of = "/".join(kind.name.primitives) or "any primitive"
        directions = "/".join(kind.directions) or "any direction"
        parts.append(
            f"named like a kernel of {of} ({directions})" if fit.named else f"named like a kernel of {of}, not of this"
        )
    if kind.gemm is not None:
        parts.append(f"GEMM {kind.gemm.m}x{kind.gemm.n}x{kind.gemm.k}")
    return f"{'; '.join(parts)}: {_times(fit.nats)}"


def _times(nats: float) -> str:
    """Describe a likelihood ratio in words."""
    if abs(nats) < 0.05:
        return "as likely as anywhere"
    factor = exp(min(abs(nats), MOST_NATS))
    return f"{factor:.3g} times as likely as anywhere" if nats > 0 else f"{factor:.3g} times less likely than anywhere"


def _window(stream: Stream, windows: Windows, number: int) -> str:
    first, last = windows.first[number], windows.last[number]
    if not windows.by:
        return "nothing bounds when the log's operations ran: only order and similarity decide"
    if last < first:
        return f"by {windows.by} it ran outside any operation"
    lines = f"lines {stream.operations[first].line} to {stream.operations[last].line}"
    return f"by {windows.by} it can belong to {count(last - first + 1, 'operation')} ({lines})"


def _operation(alignment: Alignment, operation: Operation) -> Iterator[str]:
    links, activities = alignment.links, alignment.profile.activities
    yield _named(operation)
    for doubt in operation.doubts:
        yield f"  {doubt}"
    owned = [position for position, index in enumerate(links.operation_of) if index == operation.index]
    for position in owned:
        activity = activities[position]
        doubt = _doubt(links.operation_confidence.get(position, 1.0))
        by = f"by {links.operation_by[position]}{doubt}"
        yield f"  {activity.kind} {activity.number}: {activity.name}{_time(activity)}, {by}"
    if owned:
        return
    yield "  no kernel"
    for stream in alignment.streams:
        places = [place for place, one in enumerate(stream.operations) if one.index == operation.index]
        for place in places:
            possible = [
                number
                for number in range(len(stream.positions))
                if stream.windows.first[number] <= place <= stream.windows.last[number]
            ]
            possible.sort(key=lambda number: (-stream.likelihood.fit(number, place).nats, number))
            for number in possible[:ALTERNATIVES]:
                activity = activities[stream.positions[number]]
                held = links.operation_of[stream.positions[number]]
                whose = "outside any operation" if held == NONE else f"of operation {held}"
                why = _reasons(stream, number, place)
                yield f"  nearest: kernel {activity.number} {activity.name}, {whose}: {why}"


def _named(operation: Operation) -> str:
    line = f", line {operation.line}" if operation.line else ""
    return f"operation {operation.index}{line}: {operation_name(operation)}"


def _time(activity: Activity) -> str:
    if activity.start_ns is None or activity.end_ns is None:
        return ""
    return f", {(activity.end_ns - activity.start_ns) / 1e6:.3f} ms"


def _doubt(confidence: float) -> str:
    return "" if confidence >= SURE else f", not sure: {percent(confidence)}"


def percent(probability: float) -> str:
    """Return a probability as text: 100 % only if it is certain, 0 % only if it is impossible."""
    if probability < 0.01:
        return "less than 1 %"
    return f"{min(99, round(100 * probability))} %"
