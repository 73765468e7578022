"""One row per API call that computes or searches: what it is and how its entry states the problem (miopen-log.md 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from mio2trace.model.miopen import OperationDirection
from mio2trace.ops import values
from mio2trace.ops.families import rnn
from mio2trace.ops.families.conv import ConvProblem
from mio2trace.ops.families.elementwise import (
    ActivProblem,
    BiasProblem,
    GenericProblem,
    OpTensorProblem,
    ReduceProblem,
    SoftmaxProblem,
)
from mio2trace.ops.families.fusion import FusionProblem
from mio2trace.ops.families.norm import BnormProblem, LrnProblem, NormProblem
from mio2trace.ops.families.pool import PoolProblem
from mio2trace.ops.operation import Phase
from mio2trace.ops.problem import Problem
from mio2trace.ops.values import TENSOR_OPS, Shape, Tensor

Params = Mapping[str, str]


class Op(msgspec.Struct, frozen=True, kw_only=True):
    """An API call. ``build`` makes the problem of its parameters, None when they do not hold it."""

    api: str
    primitive: str
    direction: OperationDirection | None = None
    phase: Phase = "run"
    build: Callable[[Params, Op], Problem | None]
    names: tuple[str, ...] = ()
    """Parameter names in the order that ``build`` needs."""


def _tensor(params: Params, *names: str) -> Tensor | None:
    for name in names:
        found = values.tensor(params.get(name, ""))
        if found is not None:
            return found
    return None


def _lengths(params: Params, *names: str) -> Shape:
    found = _tensor(params, *names)
    return found.lengths if found is not None else ()


def _conv(params: Params, op: Op) -> Problem | None:
    """``names``: x, w, y and the descriptor. What the sixteen-parameter limit cut off is computed."""
    x, w, y = (_tensor(params, name) for name in op.names[:3])
    descriptor = values.conv_descriptor(params.get(op.names[3], ""))
    if x is None or w is None or descriptor is None or len(x.lengths) != len(w.lengths):
        return None
    groups = descriptor.groups
    if groups is None:
        # 1.0-1.7 print groups only in the group modes; a depthwise one may leave them out
        channels = w.lengths[0 if descriptor.mode == "transpose" else 1] if len(w.lengths) > 1 else 1
        grouped = "roup" in params[op.names[3]] or "epthwise" in params[op.names[3]]
        groups = x.lengths[1] // channels if grouped and channels and len(x.lengths) > 1 else 1
    tensors = (x, w) if y is None else (x, w, y)
    names = (*values.common_layout(tensors), "")[:3]
    return ConvProblem(
        direction=op.direction,
        x=x.lengths,
        w=w.lengths,
        y=y.lengths if y is not None else (),
        pads=descriptor.pads,
        strides=descriptor.strides,
        dilations=descriptor.dilations,
        groups=groups,
        transpose=descriptor.mode == "transpose",
        padding=descriptor.padding,
        output_pads=descriptor.output_pads,
        layouts=(names[0], names[1], names[2]),
        gaps=any(one.strides and not values.layouts(one) for one in tensors),
    )


def _pool(params: Params, op: Op) -> Problem | None:
    x, y = _tensor(params, "xDesc", "dxDesc"), _tensor(params, "yDesc", "dyDesc")
    descriptor = values.pool_descriptor(params.get("poolDesc", ""))
    if x is None or descriptor is None:
        return None
    problem = PoolProblem(
        direction=op.direction,
        x=x.lengths,
        y=y.lengths if y is not None else (),
        window=descriptor.window,
        pads=descriptor.first,
        strides=descriptor.second,
        mode=descriptor.mode,
        x_strides=x.strides,
    )
    if problem.y not in ((), problem.expected_output(), problem.expected_output(up=True)):
        # 1.0-1.1 print strides before pads; the output size tells (miopen-log.md 4.5)
        other = msgspec.structs.replace(problem, pads=descriptor.second, strides=descriptor.first)
        if not other.check():
            return other
    return problem


def _given(params: Params, *names: str) -> bool | None:
    """Whether the first of the parameters that is there is a buffer; None when none is (cut off)."""
    for name in names:
        text = params.get(name)
        if text is not None:
            return values.pointer(text) != 0
    return None


def _bnorm(params: Params, op: Op) -> Problem | None:
    x = _tensor(params, "xDesc")
    mode = values.number(params.get("bn_mode"))
    if x is None:
        return None
    training = "Training" in op.api
    backward = op.direction != "forward"
    running = _given(params, "resultRunningMean", "nextResultRunningMean") if training else None
    if not training and not backward:
        running = _given(params, "estimatedMean")
    saved = _given(params, "savedMean") if backward else _given(params, "resultSaveMean") if training else None
    names = values.layouts(x)
    return BnormProblem(
        direction=op.direction,
        x=x.lengths,
        scale=_lengths(params, "bnScaleBiasMeanVarDesc", "bnScaleBiasDiffDesc", "scaleDesc"),
        mode=1 if mode is None else mode,
        training=training,
        running=running,
        saved=saved,
        layout=names[0] if names else "",
    )


def _activ(params: Params, op: Op) -> Problem | None:
    x = _tensor(params, "xDesc", "yDesc", "dyDesc")
    if x is None:
        return None
    descriptor = values.activ_descriptor(params.get("activDesc", ""))
    if descriptor is None:
        return ActivProblem(direction=op.direction, x=x.lengths)
    return ActivProblem(
        direction=op.direction,
        x=x.lengths,
        mode=descriptor.mode,
        alpha=descriptor.alpha,
        beta=descriptor.beta,
        gamma=descriptor.gamma,
    )


def _softmax(params: Params, op: Op) -> Problem | None:
    x = _tensor(params, "xDesc", "yDesc", "dxDesc")
    if x is None:
        return None
    algorithm, mode = values.number(params.get("algorithm")), values.number(params.get("mode"))
    return SoftmaxProblem(
        direction=op.direction,
        x=x.lengths,
        algorithm=1 if algorithm is None else algorithm,
        mode=1 if mode is None else mode,
    )


def _lrn(params: Params, op: Op) -> Problem | None:
    x = _tensor(params, "xDesc", "yDesc", "dxDesc")
    if x is None:
        return None
    descriptor = values.lrn_descriptor(params.get("lrnDesc", ""))
    if descriptor is None:
        return LrnProblem(direction=op.direction, x=x.lengths)
    return LrnProblem(
        direction=op.direction,
        x=x.lengths,
        mode=descriptor.mode,
        window=descriptor.n,
        alpha=descriptor.alpha,
        beta=descriptor.beta,
        k=descriptor.k,
    )


def _op_tensor(params: Params, op: Op) -> Problem | None:
    a, b, c = (_lengths(params, name) for name in ("aDesc", "bDesc", "cDesc"))
    number = values.number(params.get("tensorOp"))
    if not a or number is None or not 0 <= number < len(TENSOR_OPS):
        return None
    return OpTensorProblem(op=TENSOR_OPS[number], a=a, b=b, c=c)


def _one_tensor(params: Params, op: Op) -> Problem | None:
    """``names``: the operation, then the input and the result."""
    a, c = _lengths(params, op.names[1]), _lengths(params, op.names[-1])
    return OpTensorProblem(op=op.names[0], a=a, c=c) if a else None


def _bias(params: Params, op: Op) -> Problem | None:
    y = _lengths(params, op.names[0])
    return BiasProblem(direction=op.direction, y=y, b=_lengths(params, op.names[1])) if y else None


def _reduce(params: Params, op: Op) -> Problem | None:
    a = _lengths(params, *op.names[:2])
    if not a:
        return None
    numbers = [value[0] for value in map(values.integers, params.get("reduceTensorDesc", "").split(" : ")[1:]) if value]
    numbers += [-1] * (4 - len(numbers))
    return ReduceProblem(
        kind=op.primitive,
        a=a,
        c=_lengths(params, *op.names[2:]),
        op=numbers[0] if numbers[0] >= 0 else None,
        comp=numbers[1] if numbers[1] >= 0 else None,
        nan=numbers[2] if numbers[2] >= 0 else None,
        indices=numbers[3] if numbers[3] >= 0 else None,
    )


def _norm(params: Params, op: Op) -> Problem | None:
    x = _lengths(params, "xDesc", "dyDesc")
    if not x:
        return None
    return NormProblem(
        direction=op.direction,
        kind=op.primitive,
        x=x,
        scale=_lengths(params, "weightDesc"),
        mode=values.number(params.get("mode")),
        normalized=values.number(params.get("normalized_dim")),
        groups=values.number(params.get("num_groups")),
    )


def _generic(params: Params, op: Op) -> Problem | None:
    """``names``: input and output."""
    return GenericProblem(
        direction=op.direction, kind=op.primitive, x=_lengths(params, op.names[0]), y=_lengths(params, *op.names[1:])
    )


def _rnn(params: Params, op: Op) -> Problem | None:
    steps = values.number(params.get("sequenceLen"))
    x = _lengths(params, "xDesc")
    problem = rnn.from_descriptor(params.get("rnnDesc", ""), op.direction, steps, _lengths(params, "wDesc", "dwDesc"))
    h = _lengths(params, "hxDesc", "hDesc", "dhyDesc")
    if len(x) == 3:  # a sequence tensor: batch, steps, input (6.0+)
        return msgspec.structs.replace(problem, batches=(x[0],), steps=x[1], inputs=x[2])
    return msgspec.structs.replace(problem, batches=(h[1],)) if len(h) == 3 else problem


def _fusion(params: Params, op: Op) -> Problem | None:
    """The operators come from the plan (`mio2trace.ops.log.plans`)."""
    text = params.get("fusePlanDesc", "")
    kernel = text.partition("kernel_name:")[2].strip() if "kernel_name:" in text else ""
    return FusionProblem(
        direction="forward", x=_lengths(params, "inputDesc"), y=_lengths(params, "outputDesc"), kernel=kernel
    )


def _conv_bias_activ(params: Params, op: Op) -> Problem | None:
    conv = _conv(params, op)
    if not isinstance(conv, ConvProblem):
        return None
    activation = values.activ_descriptor(params.get("activationDesc", ""))
    return FusionProblem(
        direction="forward",
        parts=("conv", "bias", "activ"),
        x=conv.x,
        conv=conv,
        activation=activation.mode if activation else None,
    )


_FORWARD, _DATA, _WEIGHTS = (
    ("xDesc", "wDesc", "yDesc", "convDesc"),
    ("dxDesc", "wDesc", "dyDesc", "convDesc"),
    ("xDesc", "dwDesc", "dyDesc", "convDesc"),
)
_F: OperationDirection = "forward"
_D: OperationDirection = "backward-data"
_W: OperationDirection = "backward-weights"
_Row = tuple[str, str, OperationDirection | None, Callable[[Params, Op], Problem | None], tuple[str, ...]]

_RUN: tuple[_Row, ...] = (
    ("ConvolutionForward", "conv", _F, _conv, _FORWARD),
    ("ConvolutionBackwardData", "conv", _D, _conv, _DATA),
    ("ConvolutionBackwardWeights", "conv", _W, _conv, _WEIGHTS),
    ("ConvolutionForwardImmediate", "conv", _F, _conv, _FORWARD),
    ("ConvolutionBackwardDataImmediate", "conv", _D, _conv, _DATA),
    ("ConvolutionBackwardWeightsImmediate", "conv", _W, _conv, _WEIGHTS),
    ("ConvolutionForwardBias", "bias", _F, _bias, ("yDesc", "bDesc")),
    ("ConvolutionBackwardBias", "bias", _W, _bias, ("dyDesc", "dbDesc")),
    ("ConvolutionBiasActivationForward", "fusion", _F, _conv_bias_activ, ("xDesc", "wDesc", "ydesc", "conv_desc")),
    ("PoolingForward", "pool", _F, _pool, ()),
    ("PoolingBackward", "pool", _D, _pool, ()),
    ("ActivationForward", "activ", _F, _activ, ()),
    ("ActivationBackward", "activ", _D, _activ, ()),
    ("SoftmaxForward", "softmax", _F, _softmax, ()),
    ("SoftmaxBackward", "softmax", _D, _softmax, ()),
    ("SoftmaxForward_V2", "softmax", _F, _softmax, ()),
    ("SoftmaxBackward_V2", "softmax", _D, _softmax, ()),
    ("LRNForward", "lrn", _F, _lrn, ()),
    ("LRNBackward", "lrn", _D, _lrn, ()),
    ("BatchNormalizationForwardTraining", "bnorm", _F, _bnorm, ()),
    ("BatchNormalizationForwardInference", "bnorm", _F, _bnorm, ()),
    ("BatchNormalizationForwardInferenceInvVariance", "bnorm", _F, _bnorm, ()),
    ("BatchNormalizationBackward", "bnorm", _D, _bnorm, ()),
    ("BatchNormalizationForwardTraining_V2", "bnorm", _F, _bnorm, ()),
    ("BatchNormalizationForwardTraining_V3", "bnorm", _F, _bnorm, ()),
    ("BatchNormalizationForwardInference_V2", "bnorm", _F, _bnorm, ()),
    ("BatchNormalizationBackward_V2", "bnorm", _D, _bnorm, ()),
    ("BatchNormForwardInferenceActivation", "bnorm", _F, _bnorm, ()),
    ("BatchNormForwardInferenceActivationInvVariance", "bnorm", _F, _bnorm, ()),
    ("BatchNormForwardTrainingActivation", "bnorm", _F, _bnorm, ()),
    ("BatchNormForwardTrainingActivation_V2", "bnorm", _F, _bnorm, ()),
    ("BatchNormBackwardActivation", "bnorm", _D, _bnorm, ()),
    ("LayerNormForward", "layernorm", _F, _norm, ()),
    ("AddLayerNormForward", "addlayernorm", _F, _norm, ()),
    ("T5LayerNormForward", "t5layernorm", _F, _norm, ()),
    ("T5LayerNormBackward", "t5layernorm", _D, _norm, ()),
    ("GroupNormForward", "groupnorm", _F, _norm, ()),
    ("OpTensor", "optensor", None, _op_tensor, ()),
    ("SetTensor", "settensor", None, _one_tensor, ("set", "yDesc")),
    ("ScaleTensor", "scaletensor", None, _one_tensor, ("scale", "yDesc")),
    ("TransformTensor", "transformtensor", None, _one_tensor, ("copy", "xDesc", "yDesc")),
    ("ReduceTensor", "reduce", None, _reduce, ("aDesc", "xDesc", "cDesc")),
    ("SumForward", "sum", _F, _reduce, ("xDesc", "xDesc", "yDesc")),
    ("ReduceCalculationForward", "reducecalculation", _F, _reduce, ("xDesc", "xDesc", "reduceDesc")),
    ("ArgmaxForward", "argmax", _F, _reduce, ("xDesc", "xDesc", "yDesc")),
    ("ReduceExtremeForward", "reduceextreme", _F, _reduce, ("xDesc", "xDesc", "yDesc", "indiceDesc")),
    ("DropoutForward", "dropout", _F, _generic, ("xDesc", "yDesc")),
    ("DropoutBackward", "dropout", _D, _generic, ("dxDesc", "dyDesc")),
    ("GLUForward", "glu", _F, _generic, ("inputDesc", "outputDesc")),
    ("GLUBackward", "glu", _D, _generic, ("inputDesc", "outputGradDesc")),
    ("PReLUBackward", "prelu", _D, _generic, ("inputDesc", "doutputDesc")),
    ("RoPEForward", "rope", _F, _generic, ("xDesc", "yDesc")),
    ("RoPEBackward", "rope", _D, _generic, ("dxDesc", "dyDesc")),
    ("CatForward", "cat", _F, _generic, ("xDescs", "yDesc")),
    ("GetitemBackward", "getitem", _D, _generic, ("dxDesc", "dyDesc")),
    ("KthvalueForward", "kthvalue", _F, _generic, ("inputDesc", "outputDesc")),
    ("MultiMarginLossForward", "multimarginloss", _F, _generic, ("inputDesc", "outputDesc")),
    ("SoftMarginLossForward", "softmarginloss", _F, _generic, ("inputDesc", "outputDesc")),
    ("SoftMarginLossBackward", "softmarginloss", _D, _generic, ("inputDesc", "doutputDesc")),
    ("CTCLoss", "ctc", _F, _generic, ("probsDesc", "gradientsDesc")),
    ("FusedAdam", "adam", None, _generic, ("paramDesc", "paramDesc")),
    ("FusedAdamWithOutput", "adam", None, _generic, ("paramInDesc", "paramDesc")),
    ("TransformersAdamW", "adam", None, _generic, ("paramDesc", "paramDesc")),
    ("TransformersAdamWWithOutput", "adam", None, _generic, ("paramInDesc", "paramDesc")),
    ("RNNForwardTraining", "rnn", _F, _rnn, ()),
    ("RNNForwardInference", "rnn", _F, _rnn, ()),
    ("RNNForward", "rnn", _F, _rnn, ()),
    ("RNNBackwardData", "rnn", _D, _rnn, ()),
    ("RNNBackwardSeqData", "rnn", _D, _rnn, ()),
    ("RNNBackwardWeights", "rnn", _W, _rnn, ()),
    ("RNNBackwardWeightsSeqTensor", "rnn", _W, _rnn, ()),
    ("ExecuteFusionPlan", "fusion", _F, _fusion, ()),
)
_FIND: tuple[_Row, ...] = (
    ("FindConvolutionForwardAlgorithm", "conv", _F, _conv, _FORWARD),
    ("FindConvolutionBackwardDataAlgorithm", "conv", _D, _conv, _DATA),
    ("FindConvolutionBackwardWeightsAlgorithm", "conv", _W, _conv, _WEIGHTS),
)

OPS: dict[str, Op] = {
    op.api: op
    for phase, rows in (("run", _RUN), ("find", _FIND))
    for op in (
        Op(
            api="miopen" + name,
            primitive=primitive,
            direction=direction,
            phase="find" if phase == "find" else "run",
            build=build,
            names=names,
        )
        for name, primitive, direction, build, names in rows
    )
}
"""By API name without ``_impl``. `miopenFindSolutions` and `miopenRunSolution` have no problem of their own."""

FIND_2 = frozenset(("miopenFindSolutions", "miopenRunSolution"))


def launches(api: str) -> bool:
    """Whether a call of this name computes or benchmarks: all others launch nothing (miopen-log.md 5.7)."""
    return api in OPS or api in FIND_2
