"""Fusion plans (miopen-log.md 5.6, 7.3): a convolution or batch norm and the operators after it, in one or a few
kernels."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from mio2trace.model.choices import Gemm
from mio2trace.ops import values
from mio2trace.ops.families import conv
from mio2trace.ops.families.conv import ConvProblem
from mio2trace.ops.problem import (
    FORWARD,
    SCALING,
    CommandError,
    Family,
    Form,
    Geometry,
    Line,
    Op,
    Operators,
    Params,
    ShapedProblem,
    Word,
    base_word,
    nchw,
    ops,
    options,
    tensor,
    work,
)
from mio2trace.ops.values import Shape, Tensor, product

KINDS: dict[tuple[str, ...], int] = {
    ("conv", "bias", "bnorm", "activ"): 0,
    ("conv", "bnorm", "activ"): 1,
    ("bnorm", "activ"): 2,
    ("conv", "bnorm"): 3,
    ("conv", "bias", "activ"): 4,
    ("conv", "activ"): 5,
    ("conv", "bias"): 6,
}
"""The driver's fusion modes, by the operators of the plan."""
_BY_MODE = {mode: kinds for kinds, mode in KINDS.items()}


class FusionProblem(ShapedProblem, frozen=True, kw_only=True, gc=False):
    """``parts``: the plan's operators in order. ``conv``: the convolution among them; the others follow it.

    ``x_strides``, ``y_strides``: as logged, or ().
    """

    primitive: ClassVar[str] = "fusion"

    x_strides: Shape = ()
    y_strides: Shape = ()
    parts: tuple[str, ...] = ()
    conv: ConvProblem | None = None
    bn_mode: int | None = None
    activation: int | None = None
    kernel: str = ""
    """``kernel_name`` of the plan, if the version prints it."""

    @property
    def weights(self) -> Shape:
        return self.conv.w if self.conv else ()

    @property
    def output(self) -> Shape:
        return self.y or (self.conv.output if self.conv else self.x)

    @property
    def geometry(self) -> Geometry:
        return self.conv.geometry if self.conv else super().geometry

    @property
    def memory_layout(self) -> str | None:
        if self.conv is not None:
            return self.conv.memory_layout
        return next(iter(values.layouts(Tensor(self.x, self.x_strides))), None)

    @property
    def variant(self) -> str | None:
        return "+".join(self.parts) or None

    @property
    def plan_kernel(self) -> str | None:
        return None if self.parts else self.kernel

    def planned(self, operators: Operators) -> FusionProblem:
        w, descriptor = values.tensor(operators.conv[0]), values.conv_descriptor(operators.conv[1])
        first = None
        if w is not None and descriptor is not None and len(w.lengths) == len(self.x):
            y = Tensor(self.y, self.y_strides) if self.y else None
            tensors = Tensor(self.x, self.x_strides), w, y
            first = conv.from_tensors(FORWARD, tensors, descriptor, descriptor.groups or 1)
        return msgspec.structs.replace(
            self, parts=operators.parts, conv=first, bn_mode=operators.bn_mode, activation=operators.activation
        )

    def typed(self, dtype: str | None) -> FusionProblem:
        conv = None if self.conv is None else self.conv.typed(dtype)
        return msgspec.structs.replace(self, dtype=dtype, conv=conv)

    def check(self) -> str:
        if self.conv is not None:
            return self.conv.check()
        return "output shape differs from the input's" if self.y and self.x and self.y != self.x else ""

    def gemm(self) -> Gemm | None:
        return self.conv.gemm() if self.conv else None

    def flop(self) -> int | None:
        """Those of the convolution, and per element of the output: bias 1, batch norm 2, activation 1."""
        elements = work(self.output)
        if elements is None or not self.parts:
            return None
        total = 0
        if "conv" in self.parts:
            conv = self.conv.flop() if self.conv else None
            if conv is None:
                return None
            total = conv
        return total + elements * sum({"bias": 1, "bnorm": 2, "activ": 1}.get(part, 0) for part in self.parts)

    def elements_moved(self) -> int | None:
        if not self.x or not self.output or not self.parts or ("conv" in self.parts and self.conv is None):
            return None
        channels = self.output[1] if len(self.output) > 1 else 0
        vectors = ("bias" in self.parts) + 4 * ("bnorm" in self.parts)
        return product(self.x) + product(self.weights or (0,)) + product(self.output) + vectors * channels

    def command(self, form: Form = "newest") -> str:
        mode = KINDS.get(self.parts)
        if mode is None:
            raise CommandError(
                f"the driver has no fusion of {' + '.join(self.parts)}" if self.parts else "the plan is unknown"
            )
        word = base_word("CBAInfer", self.dtype, ("half", "bfloat16"))
        if self.conv is not None:
            if self.conv.transpose:
                raise CommandError("fusion of a transposed convolution")
            if form == "newest":
                self.conv.refuse()
            sizes = f"{self.conv.arguments(form)} -g {self.conv.groups}"
        elif self.bn_mode is None:
            raise CommandError("the plan's batch norm mode is unknown")
        elif self.memory_layout not in (None, "NCHW"):
            raise CommandError(f"the driver's fusion of a batch norm has no layout {self.memory_layout}")
        else:
            sizes = nchw(self.x, "CBAInfer")
        if form != "newest":
            return f"{word} -F {mode} {sizes}" + ("" if self.conv is not None else f" -m {self.bn_mode}")
        # -F was renamed to -J; -m is the mode of the activation, though the library prints batch norm's there
        modes = (("-m", "activ", self.activation), ("-M", "bnorm", self.bn_mode))
        stated = "".join(f" {flag} {own}" for flag, part, own in modes if part in self.parts and own is not None)
        return f"{word} --fusion_mode {mode} {sizes}{stated}"


def from_command(line: Line) -> FusionProblem | None:
    """Read mode and the flags of the convolution or batch norm. The type in the base word is unreliable (7.3)."""
    flags = line.flags
    mode = int(flags["F"])
    parts = _BY_MODE[mode]
    activation, bn_mode = (int(flags[name]) if name in flags else None for name in "mM")
    if mode == 2:
        if bn_mode is None:  # as the library prints it
            activation, bn_mode = None, int(flags["m"])
        x = line.integers("n c H W")
        return FusionProblem(direction="forward", parts=parts, x=x, bn_mode=bn_mode, activation=activation)
    first = conv.from_flags({key: value for key, value in flags.items() if key != "m"}, "forward", None)
    if first is None:
        return None
    return FusionProblem(
        direction="forward", parts=parts, x=first.x, conv=first, bn_mode=bn_mode, activation=activation
    )


def _executed(params: Params, op: Op) -> FusionProblem | None:
    """The operators come from the plan (`mio2trace.ops.log.plans`)."""
    text = params.get("fusePlanDesc", "")
    kernel = text.partition("kernel_name:")[2].strip() if "kernel_name:" in text else ""
    x, y = (tensor(params, name) or Tensor(()) for name in ("inputDesc", "outputDesc"))
    return FusionProblem(
        direction="forward", x=x.lengths, y=y.lengths, x_strides=x.strides, y_strides=y.strides, kernel=kernel
    )


def _in_one_call(params: Params, op: Op) -> FusionProblem | None:
    first = conv.from_entry(params, op)
    if first is None:
        return None
    activation = values.activ_descriptor(params.get("activationDesc", "")).get("mode")
    parts = ("conv", "bias", "activ")
    return FusionProblem(direction="forward", parts=parts, x=first.x, conv=first, activation=activation)


FAMILY = Family(
    ops=(
        *ops("ExecuteFusionPlan", "fusion", _executed, direction=FORWARD),
        *ops("ConvolutionBiasActivationForward", "fusion", _in_one_call, "xDesc wDesc ydesc conv_desc"),
    ),
    words={
        "CBAInfer": Word(
            from_command,
            "fusion",
            conv.OPTIONS | SCALING | options(integer="m M I", path="D"),
            {
                "J": "F",
                "fusion_mode": "F",
                "activMode": "m",
                "bnMode": "M",
                "f": "fil_layout",
                "O": "out_layout",
                "conv_stride_0": "u",
                "conv_stride_1": "v",
                "dot_graph": "D",
            },
        )
    },
    names={"fusion": "Fusion"},
    two_gradients=frozenset(("fusion",)),
)
