"""The backward pass: the forward op of each op, and the kernels of both gradients of a convolution.

An op of a backward pass has the sequence number of its forward op (rocm-profiles.md 8). PyTorch computes both gradients
in one op, the data's first (11.10), unless kernel names show the opposite order."""

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
"""Helpers that belong to the kernel before them."""
_UNKNOWN = KernelName(role="")


class Gradients(NamedTuple):
    """Places of the kernels of each gradient; a bias's gradient is in neither."""

    data: list[int]
    weights: list[int]


def split(names: Sequence[str], data: Operation) -> Gradients | None:
    """Divide an op's kernels (names in launch order) into both gradients. ``data``: the data's operation.

    Returns None if nothing shows which kernels are whose."""
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
    """Return the last main kernel of the ``first`` gradient; None if impossible or ambiguous."""
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
    """Return the first kernel behind ``last`` that prepares the other gradient: it fills or transposes again."""
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
    """Return whether the result has another layout than the tensor, and the layouts differ for these sizes."""
    if not _CHANNELS_LAST.search(main) or layout.endswith("C") or len(tensor) < 3:
        return False
    return tensor[1] > 1 and product(tensor[2:]) > 1


_BACKWARD = late(r"autograd::engine::evaluate_function: |\w+Backward\d*$")


class ForwardOps:
    """``of[r]``: the range of the forward op of range r, else `NONE`. ``unsure``: ranges with an ambiguous number."""

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
