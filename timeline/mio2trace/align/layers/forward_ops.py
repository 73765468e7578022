"""The ops of the forward pass that modules call, in order.

The outermost op counts, except for regions and custom ops with several ops with parameters. With checkpoints, the
backward pass runs forward ops again (`ForwardOp.again_in`)."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from mio2trace.align.links import NONE
from mio2trace.align.open_ranges import OpenRanges
from mio2trace.model.profile import Profile
from mio2trace.patterns import late

_PARAMETERS = {
    "conv": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution miopen_convolution",
    "norm": "batch_norm layer_norm group_norm instance_norm rms_norm native_batch_norm native_layer_norm "
    "native_group_norm miopen_batch_norm",
    "linear": "linear",
    "embedding": "embedding",
    "rnn": "lstm gru rnn_tanh rnn_relu miopen_rnn",
}
_OTHERS = {
    "attention": "scaled_dot_product_attention",
    "pool": "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d "
    "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d",
    **{name: f"{name} {name}_" for name in ("relu", "relu6", "leaky_relu", "elu", "gelu", "silu", "mish", "hardswish")},
    "product": "mm addmm bmm baddbmm matmul einsum _scaled_mm",
}
_ATEN = {f"aten::{name}": kind for kinds in (_PARAMETERS, _OTHERS) for kind, of in kinds.items() for name in of.split()}
_CUSTOM = {
    "norm": late(r"(?:rms|layer|group|batch|instance)_?norm", re.IGNORECASE),
    "attention": late(r"attention|fmha|mha_|flash_attn", re.IGNORECASE),
    "embedding": late(r"embedding\w{0,40}lookup|embedding_bag", re.IGNORECASE),
    "linear": late(r"(?<!fb)gemm|scaled_mm", re.IGNORECASE),  # fbgemm is a library
}
WITH_PARAMETERS = frozenset(_PARAMETERS)
NAMED = frozenset((*_PARAMETERS, *_OTHERS)) - {"product"}
"""Kinds of ops that are layers: with parameters, or mostly modules of their own."""
ANCHORS = WITH_PARAMETERS | {"attention", "product"}
VIEW = "view"
_LAUNCHES_NOTHING = (
    "empty empty_like empty_strided view permute transpose t slice select split split_with_sizes chunk expand "
    "as_strided alias detach unsqueeze squeeze lift_fresh unbind narrow resolve_conj"
)
_VIEWS = frozenset(f"aten::{name}" for name in _LAUNCHES_NOTHING.split())
_BACKWARD = "autograd::engine::evaluate_function: "
_IS_BACKWARD = late(r"\w+Backward\d*$")
_REGIONS = ("Torch-Compiled Region", "CompiledFunction", "## Call CompiledFxGraph")
_OPTIMIZER = "Optimizer."


class ForwardOp(NamedTuple):
    """``place``: its range. ``kind``: may be empty; `VIEW` launches nothing, but its gradient may. ``shapes``: of two
    inputs. ``signature``: equal for equal names and shapes. ``again_in``: the range of the backward pass that ran it
    again, else `NONE`."""

    place: int
    text: str
    kind: str
    shapes: tuple[object, ...] | None
    signature: int
    start_ns: int
    end_ns: int
    thread: int
    again_in: int


def kind_of(text: str) -> str:
    """Return the kind of an op by its name, else an empty text."""
    kind = _ATEN.get(text)
    if kind is not None:
        return kind
    if text.startswith("aten::") or "::" not in text or text.startswith(_BACKWARD):
        return ""
    return next((kind for kind, pattern in _CUSTOM.items() if pattern.search(text) is not None), "")


def forward_ops(profile: Profile, opened: OpenRanges) -> list[ForwardOp]:
    """Return the forward ops by time, without optimisers."""
    ranges, parent_of, order = profile.ranges, opened.parent_of, opened.outermost_first
    texts = [*map(attrgetter("text"), ranges)]
    kinds = {text: kind_of(text) for text in set(texts)}
    held, runs_again = _held(profile, parent_of, texts, kinds)
    is_closed = bytearray(len(ranges) + 1)
    """By place: whether it is within an op. The last one is for `NONE`."""
    again_in: dict[int, int] = {}
    signatures: dict[Hashable, int] = {}
    found: list[ForwardOp] = []
    for place in order:
        parent = parent_of[place]
        if is_closed[parent]:  # most are
            is_closed[place] = 1
            continue
        made, text = ranges[place], texts[place]
        again = again_in.get(parent, NONE) if runs_again else NONE
        if made.kind != "operator":
            is_closed[place] = text.startswith(_OPTIMIZER)
            again_in[place] = again
            continue
        if text.startswith(_BACKWARD):
            if runs_again:
                again_in[place] = place
            else:
                is_closed[place] = 1
            continue
        if again != NONE and made.sequence is None:  # a gradient is computed by ops without numbers
            is_closed[place] = 1
            continue
        inner = held.get(place, "")
        is_region = inner is None or (inner and "::" not in text) or text.startswith(_REGIONS)
        if is_region or (again != NONE and _IS_BACKWARD.match(text) is not None):
            again_in[place] = again
            continue
        is_closed[place] = 1
        shapes = None if made.inputs is None else made.inputs.shapes[:2]
        kind = VIEW if text in _VIEWS else kinds[text] or inner or ""
        signature = signatures.setdefault((text, shapes), len(signatures))
        found.append(ForwardOp(place, text, kind, shapes, signature, made.start_ns, made.end_ns, made.thread, again))
    found.sort(key=attrgetter("start_ns"))
    return found


def _held(
    profile: Profile, parent_of: Sequence[int], texts: Sequence[str], kinds: Mapping[str, str]
) -> tuple[dict[int, str | None], bool]:
    """Return the kind of the only op with parameters within each range (None: several), and whether the backward pass
    has any. Of nested ops the outer one counts."""
    ranges = profile.ranges
    wanted = {text: kind for text, kind in kinds.items() if kind in WITH_PARAMETERS}
    held: dict[int, str | None] = {}
    is_inner: dict[int, bool] = {}
    runs_again = False
    for place in [place for place, text in enumerate(texts) if text in wanted]:
        if ranges[place].kind != "operator":
            continue
        path = []
        inner = False
        parent = parent_of[place]
        while parent != NONE:
            if parent in is_inner or (texts[parent] in wanted and ranges[parent].kind == "operator"):
                inner = is_inner.get(parent, True)
                break
            path.append(parent)
            runs_again = runs_again or texts[parent].startswith(_BACKWARD)
            parent = parent_of[parent]
        for around in path:
            is_inner[around] = inner
        if inner:
            continue
        parent = parent_of[place]
        while parent != NONE and held.get(parent, "") is not None:
            held[parent] = None if parent in held else wanted[texts[place]]
            parent = parent_of[parent]
    return held, runs_again
