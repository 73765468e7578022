"""Layers where no module was recorded: the ops with parameters of the forward pass, named by kind and position.

``conv 3`` is the third convolution of a step. In a step whose ops differ from those of most steps, in kind, sizes or
number, the position is a guess. Steps are marked, else they are what the ops repeat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from mio2trace.align.layers.marked_steps import MarkedStep, step_at
from mio2trace.align.links import NONE
from mio2trace.model.profile import Profile, Range

_KINDS = {
    "conv": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution miopen_convolution",
    "norm": "batch_norm layer_norm group_norm instance_norm rms_norm native_batch_norm native_layer_norm "
    "native_group_norm miopen_batch_norm",
    "linear": "linear",
    "embedding": "embedding",
    "rnn": "lstm gru rnn_tanh rnn_relu miopen_rnn",
}
KIND_OF = {f"aten::{name}": kind for kind, names in _KINDS.items() for name in names.split()}
"""Ops with parameters. Of one within another the outer counts."""
_BACKWARD = "autograd::engine::evaluate_function: "
_MOST_PERIODS = 1 << 10


class Sequenced(NamedTuple):
    """``names``: of ranges that are a layer, by place. ``unsure``: places whose position is a guess."""

    names: dict[int, str]
    unsure: frozenset[int]


def layers_by_sequence(profile: Profile, parent_of: Sequence[int], steps: Sequence[MarkedStep]) -> Sequenced:
    """The layers of a profile without modules; none where it has any."""
    ranges = profile.ranges
    if any(made.kind == "frame" and made.text.startswith("nn.Module: ") for made in ranges):
        return Sequenced({}, frozenset())
    places = [place for place, made in enumerate(ranges) if made.kind == "operator" and made.text in KIND_OF]
    places = [place for place in places if not _is_inner(ranges, parent_of, place)]
    places.sort(key=lambda place: ranges[place].start_ns)
    signatures = [_signature(ranges[place]) for place in places]
    if steps:
        groups: dict[int | None, list[int]] = {}
        for at, place in enumerate(places):
            step = step_at(steps, ranges[place].start_ns)
            groups.setdefault(None if step is None else step.number, []).append(at)
        groups.pop(None, None)
        parts = list(groups.values())
    else:
        period = _period(signatures)
        parts = [[*range(at, min(at + period, len(places)))] for at in range(0, len(places), max(1, period))]
    if not parts:
        return Sequenced({}, frozenset())
    usual, _ = Counter(tuple(signatures[at] for at in part) for part in parts).most_common(1)[0]
    names: dict[int, str] = {}
    unsure: set[int] = set()
    for part in parts:
        counted: Counter[str] = Counter()
        is_usual = tuple(signatures[at] for at in part) == usual
        for at in part:
            kind = KIND_OF[ranges[places[at]].text]
            counted[kind] += 1
            names[places[at]] = f"{kind} {counted[kind]}"
            if not is_usual:
                unsure.add(places[at])
    return Sequenced(names, frozenset(unsure))


def _is_inner(ranges: Sequence[Range], parent_of: Sequence[int], place: int) -> bool:
    """Whether it is within another op with parameters, or within the backward pass."""
    parent = parent_of[place]
    while parent != NONE:
        text = ranges[parent].text
        if ranges[parent].kind == "operator" and (text in KIND_OF or text.startswith(_BACKWARD)):
            return True
        parent = parent_of[parent]
    return False


def _signature(made: Range) -> Hashable:
    return made.text, None if made.inputs is None else made.inputs.shapes[:2]


def _period(signatures: Sequence[Hashable]) -> int:
    """The least number of ops after which all repeat, as often as they are there; all of them where none do."""
    count = len(signatures)
    tried = 0
    for period in range(1, count // 2 + 1):
        if count % period or signatures[period] != signatures[0]:
            continue
        tried += 1
        if tried > _MOST_PERIODS:
            break
        if all(one == other for one, other in zip(signatures, signatures[period:], strict=False)):
            return period
    return count
