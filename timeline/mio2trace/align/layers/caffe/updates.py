"""What an iteration does behind its last layer: the update of weights, in no layer, but before the iteration's line."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict

from mio2trace.align.attribution import Attribution
from mio2trace.align.links import NONE


def place_updates(attribution: Attribution) -> None:
    """Kernels of calls between an iteration's last layer line and its own line, where they follow its kernels."""
    links = attribution.links
    lines: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in attribution.events:
        if event.kind == "iteration" and event.number is not None:
            lines[event.source].append((event.line, event.number))
    if not lines:
        return
    layers: dict[int, list[int]] = defaultdict(list)
    for log in attribution.logs:
        for layer in log.layers:
            layers[layer.source].append(layer.line)
    for printed in lines.values():
        printed.sort()
    for rows in layers.values():
        rows.sort()
    iteration_of: dict[int, int] = {}
    for operation in links.operations:
        own, layer_lines, line = lines[operation.source], layers[operation.source], operation.line
        place, following = bisect_left(own, (line, 0)), bisect_right(layer_lines, line)
        if operation.phase != "run" or place == len(own):
            continue
        end, iteration = own[place]
        if following == len(layer_lines) or layer_lines[following] > end:
            iteration_of[operation.index] = iteration
    before: dict[int, int | None] = {}
    for position, (activity, pass_) in enumerate(zip(attribution.profile.activities, links.pass_of, strict=True)):
        if pass_ != NONE:
            before[activity.queue] = links.passes[pass_].iteration
            continue
        iteration = iteration_of.get(links.operation_of[position], 0)
        if iteration and iteration == before.get(activity.queue):
            links.give_pass([position], links.pass_id("iteration", iteration))
