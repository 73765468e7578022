"""Why a kernel belongs to an operation, or to none: the evidence, and what else was possible."""

from __future__ import annotations

from collections.abc import Iterator

from mio2trace.align import NONE, Alignment
from mio2trace.align.links import SURE
from mio2trace.align.operations.stream import Stream
from mio2trace.align.operations.windows import Windows
from mio2trace.model.profile import Activity
from mio2trace.ops.naming import operation_name
from mio2trace.ops.operation import Operation

ALTERNATIVES = 3
"""How many other operations are told."""


def explain(alignment: Alignment, what: str) -> Iterator[str]:
    """Lines on ``kernel N`` (call or dispatch), ``operation N`` or ``line N`` (of the log, in an operation's entry).

    Raises ValueError when there is no such thing.
    """
    kind, _, number = what.replace(":", " ").strip().partition(" ")
    if kind not in ("kernel", "operation", "line") or not number.strip().isdecimal():
        raise ValueError(f"{what}: expected kernel N (its call_index or dispatch_id), operation N or line N")
    value = int(number)
    if kind == "kernel":
        # Copies of a profile that numbers its dispatches have numbers of their own.
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
    streams = [stream for stream in alignment.streams if position in stream.positions]
    for stream in streams:
        yield from _link(alignment, stream, stream.positions.index(position), position)
    if not streams:
        yield from _stated(alignment, position)


def _stated(alignment: Alignment, position: int) -> Iterator[str]:
    """The operation that the profile itself tells: there was nothing to choose."""
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
    links, windows, path = alignment.links, stream.windows, stream.path
    index = links.operation_of[position]
    doubt = _doubt(links.operation_confidence.get(position, 1.0))
    places = {operation.index: place for place, operation in enumerate(stream.operations)}
    if index == NONE:
        yield f"  operation: none: {_points(stream.likeness.gap(number))} for a kernel outside any{doubt}"
    else:
        operation = stream.operations[places[index]]
        yield f"  {_named(operation)}, by {links.operation_by[position]}{doubt}"
        yield f"    {_reasons(stream, number, places[index])}"
    if path is not None and path.margin:
        yield f"  with this one elsewhere, the best way to attribute all is {path.margin[number]:.1f} points worse"
    yield f"  {_window(stream, windows, number)}"
    near = places.get(index, min(windows.last[number], len(stream.operations) - 1))
    around = [
        place
        for place in range(max(windows.first[number], near - 20), min(windows.last[number], near + 20) + 1)
        if place != places.get(index)
    ]
    around.sort(key=lambda place: (-stream.likeness.fit(number, place).points, abs(place - near)))
    for place in around[:ALTERNATIVES]:
        yield f"  else: {_named(stream.operations[place])}: {_reasons(stream, number, place)}"


def _reasons(stream: Stream, number: int, place: int) -> str:
    likeness = stream.likeness
    fit = likeness.fit(number, place)
    operation = stream.operations[place]
    parts = []
    shared = likeness.handles(number) & likeness.pointers[place]
    if shared:
        names = [name for name, address in operation.tensors if address in shared]
        parts.append(f"has its {', '.join(dict.fromkeys(names))}")
    others = likeness.handles(number) - likeness.pointers[place]
    if others:
        parts.append(f"{len(others)} of its buffers are other operations'")
    if fit.launched:
        parts.append("name and size are on a launch line")
    kind = likeness.kind(number)
    if kind.name is None:
        parts.append("its name is none that MIOpen is known to have")
    elif fit.named:
        of = "/".join(kind.name.primitives) or "any primitive"
        parts.append(f"named like a kernel of {of} ({'/'.join(kind.name.directions) or 'any direction'})")
    else:
        parts.append(f"named like a kernel of {'/'.join(kind.name.primitives) or 'any primitive'}, not of this")
    if kind.gemm is not None:
        parts.append(f"GEMM {kind.gemm.m}x{kind.gemm.n}x{kind.gemm.k}")
    return f"{'; '.join(parts)}: {_points(fit.points)}"


def _window(stream: Stream, windows: Windows, number: int) -> str:
    first, last = windows.first[number], windows.last[number]
    if not windows.by:
        return "nothing bounds when the log's operations ran: order and likeness alone decide"
    if last < first:
        return f"by {windows.by} it ran outside any operation"
    lines = f"lines {stream.operations[first].line} to {stream.operations[last].line}"
    return f"by {windows.by} it can belong to {last - first + 1} operations ({lines})"


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
            possible.sort(key=lambda number: (-stream.likeness.fit(number, place).points, number))
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
    """A probability in words: what is not quite sure is never said to be 100 %, what is possible never 0 %."""
    if probability < 0.01:
        return "less than 1 %"
    return f"{min(99, round(100 * probability))} %"


def _points(points: float) -> str:
    return f"{points:+.1f} points"
