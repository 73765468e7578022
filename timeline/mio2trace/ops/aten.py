"""Turn PyTorch's ops into operations: one row per ``aten::`` name (rocm-profiles.md 8, docs/kineto.md).

The table has rows for the ops that launch kernels: ``aten::conv2d`` only calls ``aten::miopen_convolution``. If an op
of the table calls another op of the table, the inner op counts. An op without a row that launches something is an
operation under its own name (`plain`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import ClassVar

import msgspec

from mio2trace.model.choices import Gemm
from mio2trace.model.miopen import OperationDirection
from mio2trace.model.profile import Collective, Inputs, Lengths
from mio2trace.ops.command import facts_of, offered, offered_bench
from mio2trace.ops.families.collective import CollectiveProblem
from mio2trace.ops.families.collective import kind_of as collective_kind
from mio2trace.ops.families.conv import from_tensors
from mio2trace.ops.families.elementwise import ActivProblem, SoftmaxProblem
from mio2trace.ops.families.gemm import AttentionProblem, Blas, GemmProblem, View, flattened, view
from mio2trace.ops.families.normalisation import BnormProblem, NormProblem
from mio2trace.ops.families.pool import PoolProblem
from mio2trace.ops.families.rnn import MODES, RnnProblem
from mio2trace.ops.operation import Operation, OperationFacts, of_problem
from mio2trace.ops.problem import DATA, FORWARD, WEIGHTS, Problem
from mio2trace.ops.values import DTYPE_BYTES, ConvDescriptor, Shape, Tensor, integers, layouts, product

_NO_INPUTS = "the profiler did not record the inputs"
_FNUZ = "_fnuz"
_MOST = 1 << 40
"""A larger length cannot be that of a tensor."""


class Given(msgspec.Struct, frozen=True):
    """The inputs of one op, by place; a missing input is empty."""

    inputs: Inputs

    def shape(self, place: int) -> Shape:
        """Return the shape of an input. Raises `ValueError` if it is no tensor with a size."""
        shapes = self.inputs.shapes
        sizes = _tensor(shapes[place]) if place < len(shapes) else ()
        if not sizes:
            raise ValueError("no tensor")
        return sizes

    def tensor(self, place: int) -> Tensor:
        lengths = self.shape(place)
        strides = self.inputs.strides[place] if place < len(self.inputs.strides) else None
        steps = tuple(step for step in strides or () if isinstance(step, int))
        return Tensor(lengths, steps if len(steps) == len(lengths) else ())

    def elements(self, place: int) -> int:
        """Return the number of elements of an input in memory: what is expanded is there once. 0 if it is no tensor."""
        try:
            x = self.tensor(place)
        except ValueError:
            return int(self.dtype(place) is not None)
        return product(tuple(length for length, step in zip(x.lengths, x.strides or x.lengths, strict=True) if step))

    def dtype(self, place: int) -> str | None:
        return _type_of(self.inputs, place) or None

    def text(self, place: int) -> str:
        return self.inputs.values[place] if place < len(self.inputs.values) else ""

    def is_tensor(self, place: int) -> bool:
        """Return whether an input is a tensor: one without dimensions has only a type."""
        shapes = self.inputs.shapes
        return self.dtype(place) is not None or bool(place < len(shapes) and shapes[place])

    def is_true(self, place: int) -> bool:
        return self.text(place) == "True"

    def numbers(self, place: int, rank: int) -> Shape:
        """Return a list of ``rank`` numbers; a single number is repeated. Raises `ValueError`."""
        values = integers(self.text(place)) if len(self.text(place)) < 200 else ()
        if len(values) == 1:
            values *= rank
        if len(values) != rank or max(values) >= _MOST:
            raise ValueError("no such list")
        return values


def _type_of(inputs: Inputs, place: int) -> str:
    """Return the type of an input; "" if it is unknown. Both forms of float8 are one type, except for the bench."""
    return inputs.dtypes[place].removesuffix(_FNUZ) if place < len(inputs.dtypes) else ""


Made = tuple[Problem, ...]
_Direction = OperationDirection | None
_Maker = Callable[[Given, _Direction], Made]


class _Row(msgspec.Struct, frozen=True):
    """An op: what is known even if its inputs do not show the problem. ``miopen``: MIOpen computes it."""

    primitive: str
    direction: _Direction
    make: _Maker
    miopen: bool


# Convolutions


def _conv(first: int = 3, transpose: bool = False, order: str = "pad stride dilation") -> _Maker:
    """Inputs: x, w, bias, then lists from ``first`` on in this order, then the groups."""

    def make(given: Given, direction: _Direction) -> Made:
        x, w = given.tensor(0), given.tensor(1)
        lists = {name: given.numbers(first + at, len(x.lengths) - 2) for at, name in enumerate(order.split())}
        groups = integers(given.text(first + len(lists)))
        descriptor = ConvDescriptor(
            lists["pad"], lists["stride"], lists["dilation"], "transpose" if transpose else "convolution",
            output_pads=lists.get("out", ()),
        )  # fmt: skip
        return (from_tensors(FORWARD, (x, w, None), descriptor, groups[0]),)

    return make


def _any_conv(given: Given, direction: _Direction) -> Made:
    """Inputs: x, w, bias, stride, padding, dilation, transposed, output padding, groups. A gradient has dy before
    these and the wanted gradients behind them."""
    first = 0 if direction == "forward" else 1
    y = given.tensor(0) if first else None
    x, w = given.tensor(first), given.tensor(first + 1)
    rank, transposed = len(x.lengths) - 2, given.is_true(first + 6)
    strides, pads, dilations = (given.numbers(first + place, rank) for place in (3, 4, 5))
    descriptor = ConvDescriptor(
        pads, strides, dilations, "transpose" if transposed else "convolution",
        output_pads=given.numbers(first + 7, rank) if transposed else (),
    )  # fmt: skip
    groups = integers(given.text(first + 8))
    wanted = given.text(first + 9).strip("[] ").split(",")
    gradients = [way for way, mask in zip((DATA, WEIGHTS), wanted, strict=False) if mask.strip() == "True"]
    return tuple(from_tensors(way, (x, w, y), descriptor, groups[0]) for way in (gradients if first else (FORWARD,)))


# Normalisation, pooling, activations, softmax


def _bnorm(place: int, training: int | None) -> _Maker:
    """``place``: of x. ``training``: the place of the flag; None if the op always trains."""

    def make(given: Given, direction: _Direction) -> Made:
        x, forward = given.tensor(place), direction == "forward"
        train = training is None or given.is_true(training)
        return (
            BnormProblem(
                direction=direction, x=x.lengths, training=train and forward,
                running=len(given.inputs.shapes) > 3 and bool(given.inputs.shapes[3]) if forward else None,
                saved=train if train or not forward else None, layout=next(iter(layouts(x)), ""),
            ),
        )  # fmt: skip

    return make


def _norm(kind: str) -> _Maker:
    """Inputs: [dy,] x, ..., then the scale, after the normalised shape; a group norm has no such shape."""

    def make(given: Given, direction: _Direction) -> Made:
        x = given.tensor(0 if direction == "forward" else 1)
        place = {"layernorm": 2, "groupnorm": 1}[kind] if direction == "forward" else 5 if kind == "layernorm" else 4
        try:
            scale = given.shape(place)
        except ValueError:
            scale = ()
        return (NormProblem(direction=direction, primitive=kind, x=x.lengths, w=scale),)

    return make


def _pool(mode: str) -> _Maker:
    """Inputs: [dy,] x, window, stride, pad; then dilation for max pooling; whether sizes are rounded up; for average
    pooling whether padding counts."""

    def make(given: Given, direction: _Direction) -> Made:
        first = 0 if direction == "forward" else 1
        x = given.tensor(first)
        rank = len(x.lengths) - 2
        window = given.numbers(first + 1, rank)
        strides = window if given.text(first + 2).strip("[] ") == "" else given.numbers(first + 2, rank)
        pads = given.numbers(first + 3, rank)
        counted = mode == "average" and given.is_true(first + 5)
        up = given.is_true(first + (5 if mode == "max" else 4))
        dilations = given.numbers(first + 4, rank) if mode == "max" and given.text(first + 4) else ()
        problem = PoolProblem(
            direction=direction, x=x.lengths, y=given.shape(0) if first else (), window=window, pads=pads,
            strides=strides, dilations=dilations if any(step != 1 for step in dilations) else (),
            mode="average-inclusive" if counted else mode, x_strides=x.strides,
            index_bytes=_BYTES["int64"] if mode == "max" else 0,
        )  # fmt: skip
        return (msgspec.structs.replace(problem, y=problem.rounded_up()) if up and not first else problem,)

    return make


def _activ(number: int) -> _Maker:
    return lambda given, direction: (ActivProblem(direction=direction, x=given.shape(0), mode=number),)


def _relu(given: Given, direction: _Direction) -> Made:
    """``clamp_min`` at 0 is a ReLU; at another value it is not."""
    return () if given.text(1) not in ("0", "0.", "0.0") else _activ(3)(given, direction)


def _softmax(algorithm: int) -> _Maker:
    """Inputs: x, dimension, whether the result is float though x is not; or dy, y, dimension, x or its type."""

    def make(given: Given, direction: _Direction) -> Made:
        x, of_x = given.shape(0), given.dtype(0) or ""
        is_told = len(given.inputs.values) > 2 or of_x == "float"
        types: tuple[str, ...] = (of_x, "float" if given.is_true(2) else of_x if is_told else "")
        if direction != FORWARD:
            # only from float a result of another type is made
            is_told = len(given.inputs.shapes) > 3 and of_x == "float"
            result = given.dtype(3) or (_result_type(given, 3, of_x) if is_told else of_x)
            types = of_x, given.dtype(1) or "", result
        same = len({*types}) == 1
        return (SoftmaxProblem(direction=direction, x=x, algorithm=algorithm, types=() if same else types),)

    return make


def _nothing(given: Given, direction: _Direction) -> Made:
    return ()


def _rnn(given: Given, direction: _Direction) -> Made:
    """Inputs: x, weights, number of weights per layer, hx, cx, mode, hidden, layers, batch first, dropout, training,
    bidirectional."""
    steps, batch, width = given.shape(0)
    if given.is_true(8):
        steps, batch = batch, steps
    (mode,), (hidden,), (layers,) = (integers(given.text(place)) for place in (5, 6, 7))
    known = MODES[mode] if 0 <= mode < len(MODES) else None
    bias, bidirectional = integers(given.text(2)) == (4,), given.is_true(11)
    flags = {
        "n": batch, "W": width, "H": hidden, "l": layers, "b": int(bias), "m": known, "r": int(bidirectional),
        "k": steps, "F": 1,
    }  # fmt: skip
    return (
        RnnProblem(
            direction=direction, batches=(batch,), steps=steps, inputs=width, hidden=hidden, layers=layers, mode=known,
            bidirectional=bidirectional,
            flags=tuple((name, str(value)) for name, value in flags.items()) if known else (),
        ),
    )  # fmt: skip


# Matrix products


class _Places(msgspec.Struct, frozen=True):
    """Places of the inputs beta and alpha, the added tensor, the flag of an activation, the number of the result's
    type, the scales of both matrices, the vector that is added after them."""

    beta: int | None = None
    alpha: int | None = None
    added: int | None = None
    gelu: int | None = None
    result: int | None = None
    scales: int | None = None
    bias: int | None = None


_PLAIN = _Places()
_ADDED = _Places(beta=3, alpha=4, added=0)
_RESULTS = {
    "5": "half", "6": "float", "7": "double", "15": "bfloat16", "23": "bfloat8", "24": "float8",
    "25": "bfloat8_fnuz", "26": "float8_fnuz",
}  # fmt: skip
"""PyTorch's numbers of types."""


def _scaled(given: Given) -> _Places:
    """Inputs after the matrices: both scales, bias, scale of the result, its type. In older versions: bias, type of
    the result, both scales."""
    return _Places(scales=2, bias=4, result=6) if given.is_tensor(3) else _Places(bias=2, result=3, scales=4)


def _two(given: Given) -> _Places:
    """Inputs after the matrices: nothing, the result, or the type of the result."""
    return _Places(result=2) if given.text(2).isdecimal() else _PLAIN


def _sum(given: Given) -> _Places:
    """Inputs after the matrices: beta and alpha; the type of the result may stand before them."""
    return _Places(beta=4, alpha=5, added=0, result=3) if given.text(5) else _ADDED


def _gemm(a: int, b: int, places: _Places | Callable[[Given], _Places] = _PLAIN, transposed: bool = False) -> _Maker:
    """Inputs: ``a`` <..., m, k>, and ``b`` <..., k, n>, or <n, k> if ``transposed``."""

    def make(given: Given, direction: _Direction) -> Made:
        others = places if isinstance(places, _Places) else places(given)
        added = others.added is not None
        left, right = given.shape(a), given.shape(b)
        if len(right) < 2 or not left:
            return ()
        k, n = (right[-1], right[-2]) if transposed else right[-2:]
        if left[-1] != k:
            raise ValueError("sizes that do not belong together")
        if others.scales is not None and not {given.dtype(a), given.dtype(b)} <= {"float8", "bfloat8"}:
            raise ValueError("an element may hold several numbers, as of float4")
        x = given.tensor(a)
        batches: Shape = ()
        if len(right) == 2:  # one matrix for all rows
            size, x, y = Gemm(product(left[:-1]), n, k), flattened(x), (*left[:-1], n)
        else:
            batches = _broadcast(left[:-2], right[:-2])
            m = left[-2] if len(left) > 1 else 1
            size, y = Gemm(m, n, k, product(batches)), (*batches, m, n)
        blas = None
        if len(left) > 1 or len(right) == 2:
            views = view(x, batches), view(given.tensor(b), batches, turned=transposed)
            blas = _blas(given, (a, b), size, views, others)
        traffic = _traffic_of_product(given, (a, b), y, others)
        return (
            GemmProblem(
                dtype=given.dtype(a), x=left, w=right, y=y, product=size, added=added, blas=blas, traffic=traffic
            ),
        )

    return make


def _traffic_of_product(given: Given, matrices: tuple[int, int], y: Shape, places: _Places) -> int | None:
    """Return the traffic in bytes, each tensor by its own type; None if a type is unknown."""
    parts = [(given.elements(place), given.dtype(place)) for place in matrices]
    result = _result_type(given, places.result, given.dtype(matrices[0]) or "")
    parts.append((product(y), result.removesuffix(_FNUZ)))
    is_read = _number(given, places.beta, 1.0) != 0
    for place in (places.added if is_read else None, places.bias):
        if place is not None and given.elements(place):
            parts.append((given.elements(place), given.dtype(place)))
    return _bytes_of(parts)


def _bytes_of(parts: Sequence[tuple[int, str | None]]) -> int | None:
    """Return the bytes of tensors, of each its elements and its type; None if a type is unknown."""
    sizes = [(elements, _BYTES.get(dtype or "")) for elements, dtype in parts]
    known = [elements * size for elements, size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _blas(given: Given, matrices: tuple[int, int], size: Gemm, views: tuple[View, View], places: _Places) -> Blas:
    """Return the row-major X and Y as column-major B and A."""
    x, w = views
    dtypes = given.inputs.dtypes
    x_type, w_type = (dtypes[place] if place < len(dtypes) else "" for place in matrices)
    alpha = _number(given, places.alpha, 1.0)
    beta = _number(given, places.beta, 1.0) if places.added is not None else 0.0
    bias = places.bias is not None and given.is_tensor(places.bias)
    if places.added is not None:
        shapes = given.inputs.shapes
        bias = beta == 1 and places.added < len(shapes) and len(shapes[places.added] or ()) == 1
    activation = "" if places.gelu is None else "gelu" if given.is_true(places.gelu) else "relu"
    scales = (0, 0)
    if places.scales is not None:
        of_x, of_w = (given.elements(places.scales + at) for at in range(2))
        scales = _scale(of_w, size.n), _scale(of_x, size.m)
    return Blas(
        m=size.n, n=size.m, k=size.k, batch=size.batch, a=w.operand, b=x.operand, a_type=w_type, b_type=x_type,
        d_type=_result_type(given, places.result, x_type), alpha=alpha, beta=0.0 if bias else beta, bias=bias,
        activation=activation, scales=scales, copied=x.copied or w.copied,
    )  # fmt: skip


def _scale(elements: int, rows: int) -> int:
    """Return how the bench states this number of scales: 1 a single one, 2 one for each row, 3 one for each block."""
    return min(elements, 1) if elements < 2 else 2 if elements == rows else 3


def _result_type(given: Given, place: int | None, usual: str) -> str:
    """Return the type of the result, ``usual`` if the op names none; "" if that was not recorded."""
    if place is None:
        return usual
    if place >= len(given.inputs.values):
        return ""
    return _RESULTS.get(given.text(place), "") if given.text(place) else usual


def _number(given: Given, place: int | None, usual: float) -> float:
    try:
        value = usual if place is None else float(given.text(place)[:40])
    except ValueError:
        return usual
    return value if abs(value) < 1e30 else usual


def _broadcast(one: Shape, other: Shape) -> Shape:
    """Return the common batch dimensions of two shapes. Raises `ValueError` if they do not fit."""
    sizes = tuple(max(pair) for pair in zip_longest(one[::-1], other[::-1], fillvalue=1))[::-1]
    if product(sizes) % product(one) or product(sizes) % product(other):
        raise ValueError("sizes that do not belong together")
    return sizes


def _attention(
    causal: int,
    *,
    heads_first: bool = True,
    flash: bool = False,
    window: int | None = None,
    lengths: Shape = (),
    bias: int | None = None,
) -> _Maker:
    """Inputs: [dy,] q, k, v, as <n, heads, length, d> or <n, length, heads, d>. ``flash``: a causal mask belongs to the
    last key. ``window``: the place of its limit, of ``flash`` the first of two. ``lengths``: places of the lengths or
    limits of sequences that differ. ``bias``: the place of what is added to the scores, such as a mask."""

    def make(given: Given, direction: _Direction) -> Made:
        first = 0 if direction == "forward" else 1
        q, k, v = (given.shape(first + at) for at in range(3))
        if not len(q) == len(k) == len(v) == 4:
            return ()
        if not heads_first:
            q, k, v = ((one[0], one[2], one[1], one[3]) for one in (q, k, v))
        # a number is the type of a mask: 1 and 2 are causal, aligned to the first or to the last key
        mask = given.text(causal)
        if mask not in ("True", "False", "0", "1", "2"):
            raise ValueError("whether it is causal was not recorded")
        if window is not None and any(given.text(window + at) not in ("", "-1") for at in range(1 + flash)):
            raise ValueError("a window of keys")
        if any(given.is_tensor(place) for place in lengths):
            raise ValueError("sequences of several lengths in one")
        is_causal = mask in ("True", "1", "2")
        last = mask == "2" or (flash and is_causal)
        added: int | None = 0
        if bias is not None and given.is_tensor(bias):
            added = _bytes_of([(given.elements(bias), given.dtype(bias))])
        return (
            AttentionProblem(
                direction=direction, q=q, k=k, v=v, causal=is_causal, aligned_last=last, added_bytes=added
            ),
        )

    return make


_DEPTH, _RELU = "pad out stride dilation", "stride pad dilation"
_TABLE: tuple[tuple[str, _Maker, dict[_Direction, str]], ...] = (
    ("conv", _conv(), {FORWARD: "miopen_convolution miopen_depthwise_convolution"}),
    ("conv", _conv(3, True, _DEPTH), {FORWARD: "miopen_convolution_transpose"}),
    ("conv", _conv(3, order=_RELU), {FORWARD: "miopen_convolution_relu cudnn_convolution_relu"}),
    ("conv", _conv(5, order=_RELU), {FORWARD: "miopen_convolution_add_relu cudnn_convolution_add_relu"}),
    ("conv", _conv(2), {FORWARD: "cudnn_convolution"}),
    ("conv", _conv(2, True, _DEPTH), {FORWARD: "cudnn_convolution_transpose"}),
    ("conv", _any_conv, {FORWARD: "convolution _convolution", None: "convolution_backward"}),
    ("bnorm", _bnorm(0, 5), {FORWARD: "miopen_batch_norm cudnn_batch_norm native_batch_norm"}),
    ("bnorm", _bnorm(0, None), {DATA: "miopen_batch_norm_backward cudnn_batch_norm_backward"}),
    ("bnorm", _bnorm(1, 7), {DATA: "native_batch_norm_backward"}),
    ("rnn", _rnn, {FORWARD: "miopen_rnn"}),
    ("rnn", _nothing, {FORWARD: "_cudnn_rnn", None: "miopen_rnn_backward _cudnn_rnn_backward"}),
    ("layernorm", _norm("layernorm"), {FORWARD: "native_layer_norm", DATA: "native_layer_norm_backward"}),
    ("groupnorm", _norm("groupnorm"), {FORWARD: "native_group_norm", DATA: "native_group_norm_backward"}),
    ("pool", _pool("max"), {
        FORWARD: "max_pool2d_with_indices max_pool3d_with_indices",
        DATA: "max_pool2d_with_indices_backward max_pool3d_with_indices_backward",
    }),
    ("pool", _pool("average"), {FORWARD: "avg_pool2d avg_pool3d", DATA: "avg_pool2d_backward avg_pool3d_backward"}),
    ("activ", _activ(3), {FORWARD: "relu relu_", DATA: "threshold_backward"}),
    ("activ", _relu, {FORWARD: "clamp_min clamp_min_"}),
    ("activ", _activ(1), {FORWARD: "sigmoid sigmoid_", DATA: "sigmoid_backward"}),
    ("activ", _activ(2), {FORWARD: "tanh tanh_", DATA: "tanh_backward"}),
    ("activ", _activ(8), {FORWARD: "leaky_relu leaky_relu_", DATA: "leaky_relu_backward"}),
    ("activ", _activ(9), {FORWARD: "elu elu_", DATA: "elu_backward"}),
    ("activ", _activ(-1), {FORWARD: "gelu silu silu_", DATA: "gelu_backward silu_backward"}),
    ("softmax", _softmax(1), {FORWARD: "_softmax", DATA: "_softmax_backward_data"}),
    ("softmax", _softmax(2), {FORWARD: "_log_softmax", DATA: "_log_softmax_backward_data"}),
    ("gemm", _gemm(0, 1, _two), {None: "mm bmm matmul"}),
    ("gemm", _gemm(1, 2, _sum), {None: "addmm addmm_ baddbmm baddbmm_"}),
    ("gemm", _gemm(1, 2, msgspec.structs.replace(_ADDED, gelu=5)), {None: "_addmm_activation"}),
    ("gemm", _gemm(0, 1, _Places(bias=2), transposed=True), {None: "linear"}),
    ("gemm", _gemm(0, 1, _scaled), {None: "_scaled_mm"}),
    ("mha", _attention(5, bias=3), {FORWARD: "scaled_dot_product_attention"}),
    ("mha", _attention(4, flash=True), {FORWARD: "_scaled_dot_product_flash_attention"}),
    ("mha", _attention(6, bias=3), {
        FORWARD: "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention",
    }),
    ("mha", _attention(11, flash=True), {DATA: "_scaled_dot_product_flash_attention_backward"}),
    ("mha", _attention(11, bias=4), {DATA: "_scaled_dot_product_efficient_attention_backward"}),
    ("mha", _attention(14, bias=8), {DATA: "_scaled_dot_product_cudnn_attention_backward"}),
    ("mha", _attention(8, heads_first=False, flash=True, window=11, lengths=(3, 4, 13)), {
        FORWARD: "_flash_attention_forward",
    }),
    ("mha", _attention(9, heads_first=False, window=13, lengths=(4, 5, 12, 13), bias=3), {
        FORWARD: "_efficient_attention_forward",
    }),
    ("mha", _attention(11, heads_first=False, flash=True, window=15, lengths=(6, 7)), {
        DATA: "_flash_attention_backward",
    }),
    ("mha", _attention(14, heads_first=False, window=18, lengths=(6, 7), bias=4), {
        DATA: "_efficient_attention_backward",
    }),
)  # fmt: skip
"""Primitive, maker, and the names of ops by direction."""
ROWS: dict[str, _Row] = {
    f"aten::{name}": _Row(primitive, direction, make, name.startswith("miopen_") or name == "convolution_backward")
    for primitive, make, names in _TABLE
    for direction, of_direction in names.items()
    for name in of_direction.split()
}


@lru_cache(maxsize=1 << 13)
def operations_of(name: str, inputs: Inputs | None) -> tuple[Operation, ...]:
    """Return the operations of an op: none for an op without a row, two for a gradient of data and of weights.

    If the inputs were not recorded, or do not fit the op, the operation has no problem.
    """
    row = ROWS.get(name)
    if row is None:
        return ()
    doubt = _NO_INPUTS
    problems: Made = ()
    dtype = None
    if inputs is not None:
        given = Given(inputs)
        doubt = "the inputs do not show the problem"
        dtype = given.dtype(0) or given.dtype(1)
        try:
            problems = row.make(given, row.direction)
            if not problems and row.make is _relu:
                return ()
        except (ValueError, IndexError):
            pass
    if not problems:
        x, w = ((), ()) if inputs is None else _seen(row, inputs)
        facts = OperationFacts(
            api=name, primitive=row.primitive, direction=row.direction, input=x, weights=w, dtype=dtype,
            command_reason=doubt, doubts=(doubt,),
        )  # fmt: skip
        return (Operation(facts=facts),)
    return tuple(_operation(name, row, problem if problem.dtype else problem.typed(dtype)) for problem in problems)


def _seen(row: _Row, inputs: Inputs) -> tuple[Shape, Shape]:
    """Return x, and w of a convolution, of an op whose problem is unknown: ops that differ there are not the same.

    Before 2.1 PyTorch records no numbers, so that the stride of a convolution is in no trace.
    """
    tensors = [*map(_tensor, inputs.shapes), (), (), ()]
    if row.direction != FORWARD:  # the gradient of y comes first
        del tensors[0]
    return tensors[0], tensors[1] if row.primitive == "conv" else ()


@lru_cache(maxsize=1 << 13)
def plain(name: str, inputs: Inputs | None, around: str = "") -> Operation:
    """Return the operation of an op that launched something but has no row: its name, inputs, traffic if defined.

    ``around``: PyTorch's annotation of the collective, if there is one. Older versions record only this annotation.
    """
    if inputs is not None and inputs.collective is not None:
        return _collective(name, inputs.collective)
    if collective_kind(around):
        return _collective(name, Collective(name=around))
    facts = OperationFacts(api=name, primitive=name, command_reason=NOT_MIOPEN)
    if inputs is None:
        return Operation(facts=msgspec.structs.replace(facts, doubts=(_NO_INPUTS,)))
    facts = msgspec.structs.replace(facts, kernel_file=inputs.kernel_file or None)
    problem = framework_problem(name, inputs)
    return Operation(facts=facts if problem is None else of_problem(problem, facts))


def _collective(name: str, made: Collective) -> Operation:
    kind = collective_kind(made.name)
    facts = OperationFacts(api=name, primitive=kind or name, command_reason=NOT_MIOPEN)
    if not kind:
        return Operation(facts=facts)
    problem = CollectiveProblem(
        primitive=kind, sent=made.sent, received=made.received, ranks=made.ranks, group=made.group,
        dtype=made.dtype or None,
    )  # fmt: skip
    return Operation(facts=of_problem(problem, facts))


def _operation(name: str, row: _Row, problem: Problem) -> Operation:
    given: tuple[str | None, str] = None, f"{name} is PyTorch's own or a BLAS library's, not MIOpen's"
    if problem.blas is not None:
        given = offered_bench(problem.blas)
    elif row.miopen:
        given = offered(problem)
    return Operation(facts=facts_of(problem, given, api=name, primitive=row.primitive))


def placed(facts: OperationFacts, source: int, thread: int | None) -> OperationFacts:
    """Return the facts that all executions of an op in a file and on a thread share."""
    return msgspec.structs.replace(facts, source=source, thread=thread)


# -- Ops without a family of their own: their inputs, and the traffic of element-wise ops ------------------------------

_BYTES = DTYPE_BYTES | {"bool": 1, "uint8": 1, "int16": 2, "complex64": 8, "complex128": 16}
_FLOATS = frozenset(("half", "float", "bfloat16", "double", "float8", "bfloat8"))
_READ = (
    "fill zero uniform normal random bernoulli exponential",
    "neg abs exp log sqrt sin cos reciprocal logical_not isnan isinf isfinite bitwise_not rsqrt square erf exp2 expm1 "
    "log2 log10 log1p sign floor ceil round trunc clamp clamp_min clamp_max tan clone nan_to_num hardtanh mish "
    "softplus hardswish hardsigmoid sigmoid tanh relu silu gelu",
    "add sub rsub mul div eq ne lt le gt ge maximum minimum logical_and logical_or logical_xor copy pow atan2 fmod "
    "remainder bitwise_and bitwise_or bitwise_xor masked_fill",
    "addcmul addcdiv lerp where",
)
"""Element-wise ops, by the number of inputs that they read (the first ones); they write into a later tensor."""
_COMPARED = "eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite"
_SINGLE_OPERATIONS = "add sub rsub mul div eq ne lt le gt ge maximum minimum neg abs exp log sqrt sin cos reciprocal"
_ARITY = {word: number for number, words in enumerate(_READ) for word in words.split()}
_MADE_FLOATS = "exp log sqrt sin cos reciprocal rsqrt erf exp2 expm1 log2 log10 log1p tan sigmoid tanh atan2 div"
_TO_FLOAT = frozenset(_MADE_FLOATS.split())
"""The result is floats, even of integers. Its type is then PyTorch's default, which no trace states."""
_FLOAT, _COMPLEX = 3, 4
_COMPARES, _SINGLE = frozenset(_COMPARED.split()), frozenset(_SINGLE_OPERATIONS.split())


NOT_MIOPEN = "an op of the framework's own, not MIOpen's"


class FrameworkProblem(Problem, frozen=True, kw_only=True, gc=False):
    """``x`` and ``w`` are the first two tensors of the op, ``y`` its result if they determine it. For a list of
    ``tensors`` tensors, ``x`` is the number of their elements."""

    without_command: ClassVar[str] = NOT_MIOPEN

    primitive: str
    tensors: int = 1
    traffic: int | None = None
    work: int | None = None

    @property
    def variant(self) -> str | None:
        return f"{self.tensors} tensors" if self.tensors > 1 else None

    def flop(self) -> int | None:
        return self.work

    def bytes_min(self) -> int | None:
        return self.traffic


def framework_problem(name: str, inputs: Inputs) -> FrameworkProblem | None:
    """Return the inputs of an op; None if they are no tensors."""
    first = inputs.shapes[0] if inputs.shapes else None
    if first and isinstance(first[0], tuple):
        elements = sum(product(shape) for shape in first if isinstance(shape, tuple) and min(shape, default=0) >= 0)
        return FrameworkProblem(primitive=name, x=(elements,), tensors=len(first)) if 0 < elements < _MOST else None
    tensors = [_tensor(shape) for shape in inputs.shapes]
    given = [shape for shape in tensors if shape]
    if not given:
        return None
    types = [_type_of(inputs, place) for place in range(len(tensors))]
    dtype = next((dtype for dtype, shape in zip(types, tensors, strict=True) if dtype and shape), "")
    word = name.rpartition("::")[2].removesuffix("_")
    arity = _ARITY.get(word) if name.startswith("aten::") else None
    if arity is None:
        return FrameworkProblem(primitive=name, x=given[0], w=given[1] if len(given) > 1 else (), dtype=dtype or None)
    read = tensors[:arity] if arity else tensors[:1]
    y = given[0] if arity == 0 or word == "copy" else _together([shape for shape in read if shape])
    result = _result(name, word, inputs, arity)
    work = product(y) if y and word in _SINGLE and result in _FLOATS else None
    if word in ("copy", "clone") or not arity:
        work = 0
    return FrameworkProblem(
        primitive=name, x=given[0], w=read[1] if len(read) > 1 else (), y=y, dtype=dtype or None,
        traffic=_traffic(word, Given(inputs), read, y, arity, result), work=work,
    )  # fmt: skip


def _tensor(shape: Lengths | None) -> Shape:
    """Return the shape; () if it is no tensor with sizes."""
    lengths = tuple(one for one in shape or () if isinstance(one, int) and 0 < one < _MOST)
    return lengths if shape is not None and len(lengths) == len(shape) <= 8 else ()


def _together(shapes: list[Shape]) -> Shape:
    """Return the common shape after broadcasting; () if the shapes do not fit."""
    rank = max(map(len, shapes), default=0)
    filled = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    lengths = tuple(max(column) for column in zip(*filled, strict=True))
    fits = all(one in (1, length) for shape in filled for one, length in zip(shape, lengths, strict=True))
    return lengths if fits else ()


def _result(name: str, word: str, inputs: Inputs, arity: int) -> str:
    """Return the type of the result by PyTorch's rules of promotion; "" if the inputs do not determine it.

    A type of floats wins over a wider type of integers. An input without dimensions changes only the kind.
    """
    types_of = [_type_of(inputs, place) for place in range(len(inputs.dtypes))]
    given = list(zip_longest(inputs.shapes, types_of, inputs.values))
    if word in ("copy", "masked_fill") or not arity or (name.endswith("_") and word not in _COMPARES):
        return given[0][1] or ""
    operands = given[1:arity] if word == "where" else given[:arity]
    types = {dtype or "" for shape, dtype, _ in operands if shape}
    kinds = {_kind(dtype) for dtype in types}
    most = max(kinds, default=0)
    if not types or 0 in kinds or (most == _COMPLEX and (len(types) > 1 or word == "abs")):
        return ""
    if most < _FLOAT and word in _TO_FLOAT:
        return ""
    for shape, dtype, value in operands:
        kind = _kind(dtype) if dtype else _kind_of_number(value or "")
        if not shape and most < _FLOAT and not 0 < kind <= most:
            return ""
    widest = max(_BYTES[dtype] for dtype in types if _kind(dtype) == most)
    left = {dtype for dtype in types if _kind(dtype) == most and _BYTES[dtype] == widest}
    return left.pop() if len(left) == 1 else "float" if left == {"half", "bfloat16"} else ""


def _kind(dtype: str) -> int:
    if dtype in _FLOATS:
        return _FLOAT
    return 0 if dtype not in _BYTES else _COMPLEX if "complex" in dtype else 1 if dtype == "bool" else 2


def _kind_of_number(value: str) -> int:
    return 1 if value in ("True", "False") else 2 if integers(value) and value.lstrip("-").isdigit() else 0


def _traffic(word: str, given: Given, read: Sequence[Shape], y: Shape, arity: int, result: str) -> int | None:
    """Return the traffic in bytes; None if a type or a shape is unknown."""
    if not y or (word == "div" and result not in _FLOATS):
        return None
    is_read = [bool(shape) and (at == 1 or word != "copy") for at, shape in enumerate(read[:arity])]
    parts = [(given.elements(at), given.dtype(at)) for at, reads in enumerate(is_read) if reads]
    return _bytes_of([(product(y), "bool" if word in _COMPARES else result), *parts])
