"""Normalisation: batch norm with and without a fused activation, layer norm and similar ones, local response
normalisation (miopen-log.md 4.7, 5.2, 7.3)."""

from __future__ import annotations

from typing import ClassVar

from mio2trace.ops import values
from mio2trace.ops.problem import (
    BEFORE_2_3,
    INTEGER,
    LAYOUTS,
    SCALING,
    SIZES,
    CommandError,
    Family,
    Form,
    Line,
    Op,
    Params,
    Problem,
    SameShapeProblem,
    Word,
    base_word,
    is_given,
    lengths,
    nchw,
    ops,
    options,
    tensor,
    way_flag,
)
from mio2trace.ops.values import DTYPE_BYTES, Shape, product

_TYPES = {
    "bnorm": "float", "bnormfp16": "half", "bnormbfp16": "bfloat16", "bnormfp16fp32": "half",
    "bnormbfp16fp32": "bfloat16",
}  # fmt: skip


class BnormProblem(SameShapeProblem, frozen=True, kw_only=True, gc=False):
    """``mode``: 0 per activation, 1 spatial. ``running``, ``saved``: are these statistics kept; None: unknown."""

    primitive: ClassVar[str] = "bnorm"
    told_by_commands: ClassVar[tuple[str, ...]] = ("scale_dtype", "activation", "inverse")
    told_where_cut_off: ClassVar[tuple[str, ...]] = ("running", "saved")

    scale: Shape = ()
    mode: int = 1
    training: bool = False
    running: bool | None = None
    saved: bool | None = None
    layout: str = ""
    scale_dtype: str | None = None
    activation: tuple[str, ...] = ()
    """Mode, alpha, beta, gamma of a fused activation."""
    inverse: bool = False
    """Whether inference takes the inverse of the variance."""

    @property
    def variant(self) -> str:
        kind = "spatial" if self.mode == 1 else "per-activation"
        return f"{kind} {'training' if self.training else 'inference'}" if self.direction == "forward" else kind

    @property
    def memory_layout(self) -> str | None:
        return self.layout or None

    @property
    def keeps_statistics(self) -> bool:
        return self.training

    @property
    def parameters(self) -> Shape:
        """Shape of scale, bias, mean and variance."""
        if self.scale:
            return self.scale
        if len(self.x) < 3:
            return ()
        return (1, self.x[1], *((1,) * (len(self.x) - 2) if self.mode == 1 else self.x[2:]))

    def check(self) -> str:
        if self.scale and len(self.x) >= 3 and self.scale[:2] != (1, self.x[1]):
            return "scale shape does not follow from the input"
        if self.saved is None and self.x and (self.training or self.direction == "backward-data"):
            return "whether statistics are saved is cut off the entry: the command assumes not"
        return ""

    def flop(self) -> int | None:
        """Per element: inference 2, training 6, gradient 10 (docs/operations.md)."""
        return self.per_element(6 if self.training else 2, 10)

    def bytes_min(self) -> int | None:
        """The parameters are float (4 bytes) in all calls except the V2 ones."""
        moved, size = self.elements_moved(), DTYPE_BYTES.get(self.dtype or "")
        if moved is None or size is None:
            return None
        vectors = 4 if self.direction == "forward" else 5
        if self.training and self.direction == "forward":
            vectors = 2 + 4 * bool(self.running) + 2 * bool(self.saved)
        return moved * size + vectors * product(self.parameters) * 4

    def command(self, form: Form = "newest") -> str:
        if not self.x:
            raise CommandError("the log does not show the shape")
        if self.direction is None:
            raise CommandError("the direction is unknown")
        if len(self.x) == 5:
            n, c, d, h, w = self.x
            text = f"-n {n} -c {c} -D {d} -H {h} -W {w}"
        else:
            text = nchw(self.x, "bnorm")
        backward = self.direction != "forward"
        # -s and -r changed places in 2025
        names = zip("rs" if form == "newest" else "sr", (self.running, self.saved), strict=True)
        kept = "".join(f" -{name} 1" for name, is_kept in names if is_kept)
        if form in BEFORE_2_3:
            if backward:
                return "bnorm"  # nothing else was printed (miopen-log.md 7.3)
            if not self.training:
                raise CommandError("inference printed nothing before 2.3")
            return f"bnorm {text} -m {self.mode}{kept}"
        word = base_word("bnorm", self.dtype, ("half", "bfloat16"))
        if self.scale_dtype in ("half", "bfloat16") and self.dtype != "float":
            word += "fp32"
        if self.activation:
            mode, alpha, beta, gamma = self.activation
            text += f" -f {mode} -x {alpha} -y {beta}"
            if form != "newest":
                text += f" -z {gamma}"  # MIOpen prints it, and no driver takes it
        if form == "newest" and self.inverse:
            text += " -I 1"
        text += f" -m {self.mode} --forw {0 if backward else 1 if self.training else 2} -b {int(backward)}{kept}"
        if form == "6.3" or (form == "newest" and (self.layout or len(self.x) == 4)):
            text += f" --layout {self.layout or ('NCHW' if len(self.x) == 4 else 'NCDHW')}"
        return f"{word} {text}"


def _bnorm_from_entry(params: Params, op: Op) -> Problem | None:
    x = tensor(params, "xDesc")
    mode = values.number(params.get("bn_mode"))
    if x is None:
        return None
    training = "Training" in op.api
    backward = op.direction != "forward"
    running = is_given(params, "resultRunningMean", "nextResultRunningMean") if training else None
    if not training and not backward:
        running = is_given(params, "estimatedMean")
    saved = is_given(params, "savedMean") if backward else is_given(params, "resultSaveMean") if training else None
    return BnormProblem(
        direction=op.direction,
        x=x.lengths,
        scale=lengths(params, "bnScaleBiasMeanVarDesc", "bnScaleBiasDiffDesc", "scaleDesc"),
        mode=1 if mode is None else mode,
        training=training,
        running=running,
        saved=saved,
        layout=next(iter(values.layouts(x)), ""),
        inverse="InvVariance" in op.api,
    )


def _bnorm_from_command(line: Line) -> BnormProblem | None:
    """The printing function gives the direction and whether it trains; ``--forw`` and ``-b`` override it.

    -s and -r changed places in 2025 (miopen-log.md 7.3): -r before -s is the new order. The gradient can only use saved
    statistics, inference only running ones, whatever the flags say. MIOpen prints --forw, and prints -s and -r only as
    1. So a person wrote a command with -F, -s 0 or -r 0, or without --forw and -b, and means the driver's own options
    and defaults.
    """
    typed = "F" in line.flags or "0" in (line.flags.get("s"), line.flags.get("r"))
    typed = typed or not (line.tag or "forw" in line.flags or "b" in line.flags)
    flags, direction, training = line.flags, line.by_tag, "Training" in line.tag
    dtype = _TYPES.get(line.word)
    if dtype is None:
        return None
    try:
        x = tuple(int(flags[name]) for name in ("n", "c", "D", "H", "W") if name != "D" or flags.get("D", "0") != "0")
        mode = int(flags.get("m", "0") if typed else flags["m"])
    except (KeyError, ValueError):
        return BnormProblem(direction=direction, dtype=None, x=(), training=training)
    names = list(flags)
    if "forw" in flags or "b" in flags or typed:
        forward = flags.get("forw", flags.get("F", "0"))
        backward = flags.get("b", "0") == "1"
        direction = "backward-data" if backward and forward == "0" else "forward" if forward in "012" else None
        training = forward == "1" or (typed and forward == "0" and not backward)
    if typed:
        running, saved = (flags.get(name, "0") == "1" for name in "rs")
    elif direction != "forward":
        running, saved = None, "r" in names or "s" in names
    elif not training:
        running, saved = "r" in names or "s" in names, None
    else:
        both = "r" in names and "s" in names
        new = names.index("r") < names.index("s") if both else "layout" in names
        running, saved = ("r" in names, "s" in names) if new else ("s" in names, "r" in names)
    return BnormProblem(
        direction=direction,
        dtype=dtype,
        x=x,
        mode=mode,
        training=training,
        running=running,
        saved=saved,
        layout=flags.get("layout", ""),
        scale_dtype=dtype if line.word.endswith("fp16fp32") else None,
        activation=(flags["f"], flags.get("x", "1"), flags.get("y", "1"), flags.get("z", "1")) if "f" in flags else (),
        inverse=flags.get("I") == "1",
    )


_MODES = ("within", "cross")


class LrnProblem(SameShapeProblem, frozen=True, kw_only=True, gc=False):
    """``window``: number of neighbours. ``mode``: 0 within channel, 1 cross channel. alpha, beta, k: as text."""

    primitive: ClassVar[str] = "lrn"

    mode: int = 1
    window: int = 0
    alpha: str = ""
    beta: str = ""
    k: str = ""

    @property
    def variant(self) -> str | None:
        if not self.window:
            return None
        return "cross channel" if self.mode == 1 else "within channel"

    def flop(self) -> int | None:
        """Per element: 2 per neighbour, plus 3; the gradient 4 per neighbour, plus 5 (docs/operations.md)."""
        if not self.window:
            return None
        neighbours = self.window if self.mode == 1 else self.window**2
        return self.per_element(2 * neighbours + 3, 4 * neighbours + 5)

    def elements_moved(self) -> int | None:
        """Forward x, y; backward x, y, dy, dx."""
        return self.per_element(2, 4)

    def command(self, form: Form = "newest") -> str:
        if self.direction is None or not self.x or not self.window:
            raise CommandError("the log does not show the descriptor")
        word, way = base_word("lrn", self.dtype), way_flag(self.direction)
        n, c, h, w = (*self.x, 1, 1, 1)[:4]
        if len(self.x) > 4:
            raise CommandError("the driver's lrn takes 4 lengths")
        # MIOpen prints the mode's number, and the driver takes only its name
        mode = _MODES[self.mode] if form == "newest" and 0 <= self.mode < len(_MODES) else self.mode
        return (
            f"{word} -A {self.alpha} -B {self.beta} -F {way} -H {h} -K {self.k} -N {self.window} -W {w} -c {c}"
            f" -m {mode} -n {n}"
        )

    def with_command(self, command: Problem) -> Problem:
        """Take all values from the command if the entry does not show the descriptor."""
        return command if type(command) is type(self) and not self.window else self


def _lrn_from_entry(params: Params, op: Op) -> Problem | None:
    x, stated = lengths(params, "xDesc", "yDesc", "dxDesc"), values.lrn_descriptor(params.get("lrnDesc", ""))
    return LrnProblem(direction=op.direction, x=x, **stated) if x else None


def _lrn_from_command(line: Line) -> LrnProblem | None:
    """``-N window -m mode -A alpha -B beta -K k -F 1|2``."""
    flags = line.flags
    return LrnProblem(
        direction=line.two_ways(),
        dtype=line.dtype,
        x=line.integers("n c H W"),
        mode=_MODES.index(flags["m"]) if flags["m"] in _MODES else int(flags["m"]),
        window=int(flags["N"]),
        alpha=flags["A"],
        beta=flags["B"],
        k=flags["K"],
    )


class NormProblem(SameShapeProblem, frozen=True, kw_only=True, gc=False):
    """Layer norm and similar ones."""

    primitive: str

    def flop(self) -> int | None:
        """6 per element, gradient 10, as batch norm in training. T5's root mean square needs no mean: 4 and 8."""
        more = {"t5layernorm": -2, "addlayernorm": 1}.get(self.primitive, 0)
        return self.per_element(6 + more, 10 + more)

    def elements_moved(self) -> int | None:
        return self.per_element(3 if self.primitive == "addlayernorm" else 2, 3)


def _norm_from_entry(params: Params, op: Op) -> Problem | None:
    x, w = lengths(params, "xDesc", "dyDesc"), lengths(params, "weightDesc")
    return NormProblem(direction=op.direction, primitive=op.primitive, x=x, w=w) if x else None


def _norm_from_command(line: Line) -> NormProblem:
    """Read the shape if the common flags state it."""
    return NormProblem(direction=line.stated_way, dtype=line.dtype, primitive=line.name, x=line.shape)


_BNORM_NAMES = {
    "in_d": "D", "L": "layout", "save": "s", "run": "r", "activ_mode": "f", "activ_alpha": "x", "activ_beta": "y",
    "inverse_variance": "I", "ping_pong_buffers": "Q",
}  # fmt: skip
FAMILY = Family(
    ops=(
        *ops(
            "BatchNormalizationForwardTraining BatchNormalizationForwardTraining_V2 "
            "BatchNormalizationForwardTraining_V3 BatchNormalizationForwardInference "
            "BatchNormalizationForwardInference_V2 BatchNormalizationForwardInferenceInvVariance "
            "BatchNormalizationBackward BatchNormalizationBackward_V2 "
            "BatchNormForwardInferenceActivation BatchNormForwardInferenceActivationInvVariance "
            "BatchNormForwardTrainingActivation BatchNormForwardTrainingActivation_V2 BatchNormBackwardActivation",
            "bnorm",
            _bnorm_from_entry,
        ),
        *ops("LRNForward LRNBackward", "lrn", _lrn_from_entry),
        *ops("LayerNormForward", "layernorm", _norm_from_entry),
        *ops("AddLayerNormForward", "addlayernorm", _norm_from_entry),
        *ops("T5LayerNormForward T5LayerNormBackward", "t5layernorm", _norm_from_entry),
        *ops("GroupNormForward", "groupnorm", _norm_from_entry),
    ),
    words={
        "bnorm": Word(
            _bnorm_from_command,
            "bnorm",
            SIZES | LAYOUTS | SCALING | options(integer="m b s r f I Q P tuning_policy", decimal="x y z e"),
            _BNORM_NAMES,
        ),
        "lrn": Word(
            _lrn_from_command,
            "lrn",
            SIZES | SCALING | options(integer="N b P", decimal="K") | {"m": f"{INTEGER}|within|cross"},
            {"lrnN": "N", "lrnK": "K"},
        ),
        **{word: Word(_norm_from_command, word) for word in ("layernorm", "addlayernorm", "t5layernorm")},
        "groupnorm": Word(_norm_from_command, "groupnorm", names={"in_d": "D"}),
    },
    names={"bnorm": "BatchNorm", "lrn": "LRN", "layernorm": "LayerNorm", "groupnorm": "GroupNorm"},
    invoked=tuple(
        (f"miopenBatchNorm{way}", "bnorm") for way in ("Forward", "Backward", "alizationForward", "alizationBackward")
    ),
    find_2=(("miopenTensorB", "bnorm"),),
)
