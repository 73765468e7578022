"""The backward pass: the forward op of each op, and which kernels compute a convolution's gradient of the data, which
that of the weights.

An op of an automatic backward pass carries the sequence number of its forward op (rocm-profiles.md 8).

PyTorch asks for both in one op, the data's first (rocm-profiles.md 11.10); names that say otherwise are believed. Each
gradient has one main kernel, or several of one way, and helpers around it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from mio2trace.align.links import NONE
from mio2trace.kernels.names import KernelName, kernel_name
from mio2trace.model.miopen import OperationDirection
from mio2trace.model.profile import Profile
from mio2trace.ops.family import DATA, WEIGHTS
from mio2trace.ops.operation import Operation
from mio2trace.ops.values import Shape, product
from mio2trace.patterns import late

_CHANNELS_LAST = late(r"nhwc|ndhwc|kernel_grouped_conv|kernel_batched_gemm", re.IGNORECASE)
_FINISHING = ("cast", "col2im", "reduce")
"""Helpers of these roles belong to the kernel before them."""
_UNKNOWN = KernelName(role="")


class Gradients(NamedTuple):
    """Places of the kernels of each; a bias's gradient is in none of them."""

    data: list[int]
    weights: list[int]


def split(names: Sequence[str], data: Operation) -> Gradients | None:
    """The kernels of one op, by name in order of launch, of which ``data`` is the operation of the data's gradient.

    None where nothing tells which are whose.
    """
    meanings = [kernel_name(name) or _UNKNOWN for name in names]
    own = [place for place, meaning in enumerate(meanings) if meaning.primitive != "bias"]
    mains = [place for place in own if meanings[place].role == "main"]
    for first, second, tensor in ((DATA, WEIGHTS, data.input), (WEIGHTS, DATA, data.weights)):
        last = _last_of(first, second, [names[place] for place in mains], [meanings[place] for place in mains])
        if last is not None:
            behind = names[mains[last] + 1]
            turns = "CNHW2NCHW" in behind or _turns_back(names[mains[last]], data.layout or "", tensor)
            end = _end(meanings[: mains[last + 1]], mains[last], first, turns)
            parts = [place for place in own if place < end], [place for place in own if place >= end]
            return Gradients(*parts) if first == DATA else Gradients(*reversed(parts))
    return None


def _may(meaning: KernelName, direction: OperationDirection) -> bool:
    return not meaning.directions or direction in meaning.directions


def _last_of(
    first: OperationDirection, second: OperationDirection, names: Sequence[str], meanings: Sequence[KernelName]
) -> int | None:
    """The last of the main kernels that is of the ``first`` gradient; None where that cannot be, or in several ways."""
    possible = [
        last
        for last in range(len(names) - 1)
        if all(_may(meaning, first) for meaning in meanings[: last + 1])
        and all(_may(meaning, second) for meaning in meanings[last + 1 :])
    ]
    if len(possible) > 1:  # one gradient may be several products: they are of one name
        possible = [last for last in possible if names[last] != names[last + 1]]
    return possible[0] if len(possible) == 1 else None


def _end(meanings: Sequence[KernelName], last: int, first: OperationDirection, turns: bool) -> int:
    """The first of the kernels behind ``last`` that prepares what follows them: it fills, or transposes once more."""
    at = last + 1
    while at < len(meanings):
        meaning = meanings[at]
        if not _may(meaning, first):
            break
        if meaning.role == "transpose" and turns:
            turns = False
        elif meaning.role not in _FINISHING:
            break
        at += 1
    return at


def _turns_back(main: str, layout: str, tensor: Shape) -> bool:
    """Whether the result is computed in another layout than it is wanted in, and the two differ for this tensor."""
    if not _CHANNELS_LAST.search(main) or layout.endswith("C") or len(tensor) < 3:
        return False
    return tensor[1] > 1 and product(tensor[2:]) > 1


_BACKWARD = late(r"autograd::engine::evaluate_function: |\w+Backward\d*$")


class ForwardOps:
    """``of[r]`` is the range of the forward op of range r, `NONE` for what is no op of a backward pass; ``unsure``
    holds ranges for which several threads counted up to that number, so that another op may be meant."""

    def __init__(self, profile: Profile) -> None:
        self.of = [NONE] * len(profile.ranges)
        self.unsure: set[int] = set()
        backward: list[int] = []
        forward: dict[int, list[tuple[int, int]]] = defaultdict(list)
        is_backward: dict[str, bool] = {}
        for place, made in enumerate(profile.ranges):
            if made.sequence is None or made.kind != "operator":
                continue
            text = made.text
            if text not in is_backward:
                is_backward[text] = _BACKWARD.match(text) is not None
            if is_backward[text]:
                backward.append(place)
            else:
                forward[made.sequence].append((made.start_ns, place))
        others_from: dict[int, int] = {}
        for number, candidates in forward.items():
            candidates.sort()
            first = profile.ranges[candidates[0][1]].thread
            for count, (_, place) in enumerate(candidates):
                if profile.ranges[place].thread != first:
                    others_from[number] = count
                    break
        for place in backward:
            made = profile.ranges[place]
            number = made.sequence or 0
            candidates = forward.get(number, [])
            before = bisect_left(candidates, (made.start_ns, NONE))
            if before:
                self.of[place] = candidates[before - 1][1]
                if before > others_from.get(number, before):
                    self.unsure.add(place)
