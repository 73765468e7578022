"""Convolution: x <n, c, [D,] H, W>, w <k, c/g, [fd,] y, x>, y <n, k, [OD,] OH, OW> (miopen-log.md 6, 7.2). Also the
fusion plans that begin with a convolution or with a batch norm.

In transpose mode (deconvolution) w is <c, k/g, [fd,] y, x>, and the kernels of the other direction run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from mio2trace.model.choices import Gemm
from mio2trace.model.miopen import OperationDirection
from mio2trace.ops import values
from mio2trace.ops.problem import (
    FORMS,
    FORWARD,
    INTEGER,
    LAYOUTS,
    SCALING,
    SIZES,
    CommandError,
    Family,
    Form,
    Geometry,
    Line,
    Op,
    Params,
    Problem,
    Word,
    base_word,
    nchw,
    ops,
    options,
    tensor,
    work,
)
from mio2trace.ops.values import ConvDescriptor, Shape, Tensor, product

_DIRECTION_FLAG = {"forward": 1, "backward-data": 2, "backward-weights": 4}
_KEY_LETTERS = {"forward": "F", "backward-data": "B", "backward-weights": "W"}
_KEY_TYPES = {word: name for name, word in reversed(values.KEY_DTYPES.items())} | {"bfloat16": "BF16"}
_TRANSPOSED = {"forward": "backward-data", "backward-data": "forward", "backward-weights": "backward-weights"}
DEFAULT_LAYOUT = {2: "NCHW", 3: "NCDHW"}
_FLAGS = {
    2: "-n -c -H -W -k -y -x -p -q -u -v -l -j",
    3: "-n -c --in_d -H -W -k --fil_d -y -x --pad_d -p -q --conv_stride_d -u -v --dilation_d -l -j --spatial_dim",
}
"""By the number of spatial dimensions."""


def output_length(length: int, pad: int, stride: int, dilation: int, window: int) -> int:
    """floor((H + 2p - l(y-1) - 1) / u) + 1 (miopen-log.md 6)."""
    return (length + 2 * pad - dilation * (window - 1) - 1) // stride + 1


def transposed_length(length: int, pad: int, stride: int, dilation: int, window: int, extra: int = 0) -> int:
    """u(H-1) + l(y-1) + 1 - 2p, plus the output pad (miopen-log.md 6)."""
    return stride * (length - 1) + dilation * (window - 1) + 1 - 2 * pad + extra


class ConvProblem(Problem, frozen=True, kw_only=True, gc=False):
    """``x``, ``w``, ``y``: lengths in logical order. Pads, strides and dilations are per spatial dimension.

    ``layouts``: those of x, w, y, empty if unknown.
    """

    primitive: ClassVar[str] = "conv"
    told_by_commands: ClassVar[tuple[str, ...]] = ("solver_number",)

    pads: Shape
    strides: Shape
    dilations: Shape
    groups: int = 1
    transpose: bool = False
    padding: str = "Default"
    output_pads: Shape = ()
    layouts: tuple[str, str, str] = ("", "", "")
    gaps: bool = False
    """Whether a tensor's strides leave gaps."""
    solver_number: int | None = None
    """``-S`` of the logged command; 0 means immediate mode."""
    may_be_input: bool = False
    """Whether the output channels may be the input's instead: see `from_flags`."""

    @property
    def spatial(self) -> int:
        return len(self.x) - 2

    @property
    def output(self) -> Shape:
        """The logged output shape, else the computed one."""
        return self.y or self.expected_output()

    @property
    def geometry(self) -> Geometry:
        return Geometry(self.pads, self.strides, self.dilations, self.groups)

    @property
    def variant(self) -> str:
        return "transpose" if self.transpose else "convolution"

    @property
    def memory_layout(self) -> str | None:
        return self.layouts[0] or None

    @property
    def runs_other_gradient(self) -> bool:
        return self.transpose

    def database_key(self) -> str | None:
        """The key that `ops.log.level_lines.find_db_key` reads. A transposed convolution is the other gradient of the
        plain one. For gradients the first sizes are those of dy."""
        dtype = _KEY_TYPES.get(self.dtype or "")
        x, y, rank = self.x, self.output, self.spatial
        if dtype is None or not y or not self.well_formed() or self.direction is None:
            return None
        direction = _TRANSPOSED[self.direction] if self.transpose else self.direction
        layouts = tuple(layout or DEFAULT_LAYOUT.get(rank, "") for layout in self.layouts)
        if self.transpose != (direction != "forward"):
            x, y, layouts = y, x, layouts[::-1]
        if set(layouts) == {DEFAULT_LAYOUT.get(rank)}:
            layouts = layouts[:1]
        sizes = ("x".join(map(str, one)) for one in (self.pads, self.strides, self.dilations))
        parts = (
            *x[1:], "x".join(map(str, self.w[2:])), *y[1:], x[0], *sizes, 0, *layouts, dtype, _KEY_LETTERS[direction],
        )  # fmt: skip
        return "-".join(map(str, parts)) + (f"_g{self.groups}" if self.groups > 1 else "")

    @property
    def out_channels(self) -> int:
        return self.w[1] * self.groups if self.transpose else self.w[0]

    def well_formed(self) -> bool:
        """Whether all lists have the lengths that a convolution needs, and no divisor is zero."""
        rank = len(self.x)
        return (
            rank in (3, 4, 5)
            and len(self.w) == rank
            and (not self.y or len(self.y) == rank)
            and len(self.pads) == len(self.strides) == len(self.dilations) == rank - 2
            and min((*self.x, *self.w, *self.y, *self.strides, *self.dilations, self.groups)) > 0
        )

    def expected_output(self) -> Shape:
        """The output shape that follows from the descriptor; () if it is not positive."""
        if not self.well_formed():
            return ()
        window = self.w[2:]
        if self.transpose:
            extra = self.output_pads or (0,) * self.spatial
            sizes = [*map(transposed_length, self.x[2:], self.pads, self.strides, self.dilations, window, extra)]
        else:
            sizes = [*map(output_length, self.x[2:], self.pads, self.strides, self.dilations, window)]
        return (self.x[0], self.out_channels, *sizes) if min(sizes) > 0 else ()

    def check(self) -> str:
        if not self.strides:
            return "the convolution's descriptor is cut off"
        if not self.well_formed():
            return "convolution with lengths that do not belong together"
        channels = self.w[0] if self.transpose else self.w[1] * self.groups
        if channels != self.x[1]:
            return f"input has {self.x[1]} channels, the weights take {channels}"
        if not self.y and not self.expected_output():
            return "the window does not fit into the input"
        if self.padding == "Default" and self.y and self.y != self.expected_output():
            return "output shape does not follow from input, weights and descriptor"
        if self.may_be_input:
            return "before ROCm 6.0 MIOpen printed the input channels as -k of a transposed convolution"
        return ""

    def gemm(self) -> Gemm | None:
        """The im2col form: one product per image and group; the weights' gradient sums over the images
        (docs/operations.md)."""
        y = self.output
        is_cut = not self.strides and len(self.x) == len(self.w) == len(y) > 2
        if not y or not self.groups or not (self.well_formed() or is_cut):
            return None
        window, g = product(self.w[2:]), self.groups
        # In transpose mode x and y change places: the forward pass is the gradient of the convolution that maps y to x.
        small, large, pixels = (
            (self.x[1] // g, self.w[1] * window, product(self.x[2:]))
            if self.transpose
            else (self.w[0] // g, self.w[1] * window, product(y[2:]))
        )
        if not small:  # more groups than channels: the log is damaged
            return None
        n = self.x[0]
        if self.direction == "backward-weights":
            return Gemm(m=small, n=large, k=n * pixels, batch=g)
        if (self.direction == "backward-data") != self.transpose:
            return Gemm(m=large, n=pixels, k=small, batch=n * g)
        return Gemm(m=small, n=pixels, k=large, batch=n * g)

    def flop(self) -> int | None:
        """2 n k OH OW (c/g) y x in all three directions (miopen-log.md 6)."""
        gemm = self.gemm()
        return gemm.flop if gemm else None

    def elements_moved(self) -> int | None:
        y = self.output
        return product(self.x) + product(self.w) + product(y) if y else None

    def arguments(self, form: Form) -> str:
        """Return the flags for the shapes, without mode, direction and solver."""
        if not self.well_formed():
            raise CommandError(self.check())
        if self.spatial not in (2, 3):
            raise CommandError("the driver knows 2-D and 3-D convolutions")
        k = self.out_channels
        if self.transpose and form != "newest":  # as MIOpen printed it
            k = self.w[0] if FORMS.index(form) < FORMS.index("5.4") else self.w[1]
        sizes = *self.x, k, *self.w[2:], *self.pads, *self.strides, *self.dilations
        text = " ".join(f"{flag} {size}" for flag, size in zip(_FLAGS[self.spatial].split(), (*sizes, 3), strict=False))
        default = DEFAULT_LAYOUT[self.spatial]
        for flag, layout in zip(("--in_layout", "--fil_layout", "--out_layout"), self.layouts, strict=True):
            if layout and layout != default:
                text += f" {flag} {layout}"
        if form == "newest":
            pads = zip(("--trans_output_pad_d", "-Y", "-X")[-self.spatial :], self.output_pads, strict=False)
            text += "".join(f" {flag} {pad}" for flag, pad in pads if pad)
        return text

    def command(self, form: Form = "newest") -> str:
        if form == "newest":
            self.refuse()
        word = base_word("conv", self.dtype, ("half", "bfloat16", "int8"))
        text = f"{word} {self.arguments(form)}"
        if form != "1.2":
            text += f" -m {'trans' if self.transpose else 'conv'} -g {self.groups}"
        if form == "2.0":
            text += " -F 1"
        elif form not in ("1.2", "1.7"):
            if self.direction is None:
                raise CommandError("the direction is unknown")
            text += f" -F {_DIRECTION_FLAG[self.direction]}"
        text += " -t 1"
        return text if self.solver_number is None or form in ("1.2", "1.7") else f"{text} -S {self.solver_number}"

    def refuse(self) -> None:
        """Raises `CommandError` for properties that the current driver has no option for."""
        reason = "" if self.may_be_input else self.check()
        if not reason and self.padding != "Default" and self.y and self.y != self.expected_output():
            reason = f"padding mode {self.padding} changes the pads at run time"
        if not reason and self.gaps:
            reason = "strides with gaps"
        if reason:
            raise CommandError(reason)

    def fits(self, entry: Problem) -> bool:
        """Also compare the windows if both are convolutions."""
        same = super().fits(entry)
        return same and (entry.primitive != "conv" or not entry.is_shaped or entry.weights[2:] == self.w[2:])

    def immediate(self) -> ConvProblem:
        """Return the problem with ``-S 0``."""
        return msgspec.structs.replace(self, solver_number=0)

    def searched(self, dtype: str | None) -> tuple[ConvProblem, ...]:
        typed = msgspec.structs.replace(self, dtype=dtype, solver_number=None)
        untyped = msgspec.structs.replace(typed, dtype=None)
        return typed, untyped, msgspec.structs.replace(untyped, layouts=("", "", ""))


def from_entry(params: Params, op: Op) -> ConvProblem | None:
    """Make the problem of an entry. ``names``: x, w, y and the descriptor. Values after the limit of sixteen parameters
    are computed. A descriptor that is cut off within its line gives neither pads nor strides."""
    x, w, y = (tensor(params, name) for name in op.names[:3])
    text = params.get(op.names[3], "")
    descriptor = values.conv_descriptor(text)
    if descriptor is None and y is not None and values.is_cut(text):
        descriptor = values.ConvDescriptor((), (), (), "transpose" if "ranspose" in text else "convolution")
    if x is None or w is None or descriptor is None or len(x.lengths) != len(w.lengths):
        return None
    groups = descriptor.groups
    if groups is None:
        # MIOpen 1.0-1.7 prints groups only in the group modes; a depthwise convolution may leave them out
        channels = w.lengths[0 if descriptor.mode == "transpose" else 1] if len(w.lengths) > 1 else 1
        grouped = "roup" in params[op.names[3]] or "epthwise" in params[op.names[3]]
        groups = x.lengths[1] // channels if grouped and channels and len(x.lengths) > 1 else 1
    return from_tensors(op.direction, (x, w, y), descriptor, groups)


def from_tensors(
    direction: OperationDirection | None,
    stated: tuple[Tensor, Tensor, Tensor | None],
    descriptor: ConvDescriptor,
    groups: int,
) -> ConvProblem:
    """Return the problem of x, w and y as a log states them; y may be missing."""
    x, w, y = stated
    tensors = (x, w) if y is None else (x, w, y)
    names = (*values.common_layout(tensors), "")[:3]
    return ConvProblem(
        direction=direction,
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
        gaps=any(tensor.strides and not values.layouts(tensor) for tensor in tensors),
    )


def from_command(line: Line) -> ConvProblem | None:
    """Make the problem of a command. ``-F`` was always 1 in 2.0, so an API name is a better source; without either, the
    line of a script means all directions."""
    if not line.ends:
        return None
    by_call = line.by_tag if line.tag.startswith("miopen") else None
    return from_flags(line.flags, by_call or line.three_ways(), line.dtype, is_logged=bool(line.tag))


def from_flags(
    flags: Mapping[str, str], direction: OperationDirection | None, dtype: str | None, *, is_logged: bool = False
) -> ConvProblem | None:
    """Return the problem of a command's flags (short names). Raises KeyError or ValueError if one is missing.

    In transpose mode MIOpen prints a length of w as -k: the first one, the input's channels, before ROCm 6.0; then the
    second one, without the groups. The driver, and so a person, means all output channels.
    """

    def get(name: str, default: str | None = None) -> int:
        return int(flags[name] if default is None else flags.get(name, default))

    three = get("spatial_dim", "2") == 3
    transpose = flags.get("m") == "trans"
    g, c, k = get("g", "1"), get("c"), get("k")
    depth: Sequence[str] = ("in_d", "fil_d", "pad_d", "conv_stride_d", "dilation_d") if three else ()
    d = [get(name, default) for name, default in zip(depth, (None, None, "0", "1", "1"), strict=False)]
    window = (*d[1:2], get("y"), get("x"))
    may_be_input = is_logged and transpose and k == c
    if is_logged and transpose and not may_be_input:
        k *= g
    if g <= 0 or c % g or k % g:
        return None
    x = (get("n"), c, *d[0:1], get("H"), get("W"))
    strides = (*d[3:4], get("u", "1"), get("v", "1"))
    dilations = (*d[4:5], get("l", "1"), get("j", "1"))
    pads: Shape = (*d[2:3], get("p", "0"), get("q", "0"))
    mode = flags.get("z", "default")
    if mode in ("same", "valid") and not transpose and ({*dilations} == {1} or {*window} == {1}):
        same = zip(x[2:], window, strides, strict=True)
        pads = tuple(max(size - (n % step or step), 0) // 2 if mode == "same" else 0 for n, size, step in same)
    extra = (get("trans_output_pad_d", "0"), get("Y", "0"), get("X", "0"))[0 if three else 1 :]
    solver = flags.get("S", "")
    problem = ConvProblem(
        direction=direction,
        dtype=dtype,
        x=x,
        w=(c, k // g, *window) if transpose else (k, c // g, *window),
        pads=pads,
        strides=strides,
        dilations=dilations,
        groups=g,
        transpose=transpose,
        output_pads=extra if transpose and any(extra) else (),
        layouts=(flags.get("in_layout", ""), flags.get("fil_layout", ""), flags.get("out_layout", "")),
        solver_number=int(solver) if solver.lstrip("-").isdecimal() else None,
        may_be_input=may_be_input,
    )
    return problem if problem.well_formed() else None


_OPTIONS = (
    SIZES
    | LAYOUTS
    | options(
        size="k y x g in_d fil_d spatial_dim",
        integer="p q u v l j Z L s P b o X Y G N M pad_d conv_stride_d dilation_d trans_output_pad_d tuning_policy",
        shape="input in weights filter",
        type="U R T",
        path="C d e a D",
        decimal="r",
    )
    | {"m": "conv|trans", "z": "default|same|valid|conv", "S": rf"{INTEGER}|[A-Za-z]\w{{0,127}}"}
)
_NAMES = {
    "I": "in_layout", "f": "fil_layout", "O": "out_layout", "trans_output_pad_h": "Y", "trans_output_pad_w": "X",
    "tensor_vect": "Z", "vector_length": "L", "in_data": "d", "in_bias": "a", "dout_data": "D", "bias": "b",
    "solution": "S", "gpualloc": "G", "in_cast_type": "U", "wei_cast_type": "R", "out_cast_type": "T",
    "init_output_nan": "N", "math_type": "M",
}  # fmt: skip


# -- Fusion plans (miopen-log.md 5.6, 7.3) -----------------------------------------------------------------------------
#
# A convolution or batch norm and the operators after it, in one or a few kernels.

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


class FusionProblem(Problem, frozen=True, kw_only=True, gc=False):
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

    def planned(
        self, parts: tuple[str, ...], conv: tuple[str, str], bn_mode: int | None, activation: int | None
    ) -> FusionProblem:
        w, descriptor = values.tensor(conv[0]), values.conv_descriptor(conv[1])
        first = None
        if w is not None and descriptor is not None and len(w.lengths) == len(self.x):
            y = Tensor(self.y, self.y_strides) if self.y else None
            tensors = Tensor(self.x, self.x_strides), w, y
            first = from_tensors(FORWARD, tensors, descriptor, descriptor.groups or 1)
        return msgspec.structs.replace(self, parts=parts, conv=first, bn_mode=bn_mode, activation=activation)

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


def _fusion_from_command(line: Line) -> FusionProblem | None:
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
    first = from_flags({key: value for key, value in flags.items() if key != "m"}, "forward", None)
    if first is None:
        return None
    return FusionProblem(
        direction="forward", parts=parts, x=first.x, conv=first, bn_mode=bn_mode, activation=activation
    )


def _executed(params: Params, op: Op) -> FusionProblem | None:
    """The operators come from the plan (`mio2trace.ops.log.state`)."""
    text = params.get("fusePlanDesc", "")
    kernel = text.partition("kernel_name:")[2].strip() if "kernel_name:" in text else ""
    x, y = (tensor(params, name) or Tensor(()) for name in ("inputDesc", "outputDesc"))
    return FusionProblem(
        direction="forward", x=x.lengths, y=y.lengths, x_strides=x.strides, y_strides=y.strides, kernel=kernel
    )


def _in_one_call(params: Params, op: Op) -> FusionProblem | None:
    first = from_entry(params, op)
    if first is None:
        return None
    activation = values.activ_descriptor(params.get("activationDesc", "")).get("mode")
    parts = ("conv", "bias", "activ")
    return FusionProblem(direction="forward", parts=parts, x=first.x, conv=first, activation=activation)


FAMILY = Family(
    ops=(
        *(
            row
            for way, names in (
                ("Forward", "xDesc wDesc yDesc convDesc"),
                ("BackwardData", "dxDesc wDesc dyDesc convDesc"),
                ("BackwardWeights", "xDesc dwDesc dyDesc convDesc"),
            )
            for row in ops(
                f"Convolution{way} Convolution{way}Immediate FindConvolution{way}Algorithm", "conv", from_entry, names
            )
        ),
        *ops("ExecuteFusionPlan", "fusion", _executed, direction=FORWARD),
        *ops("ConvolutionBiasActivationForward", "fusion", _in_one_call, "xDesc wDesc ydesc conv_desc"),
    ),
    words={
        "conv": Word(from_command, "conv", _OPTIONS, _NAMES),
        "CBAInfer": Word(
            _fusion_from_command, "fusion", _OPTIONS | SCALING | options(integer="m M I", path="D"),
            {"J": "F", "fusion_mode": "F", "activMode": "m", "bnMode": "M", "f": "fil_layout", "O": "out_layout",
             "conv_stride_0": "u", "conv_stride_1": "v", "dot_graph": "D"},
        ),
    },
    names={"conv": "Conv", "fusion": "Fusion"},
    two_gradients=frozenset(("conv", "fusion")),
    find_2=(("Conv", "conv"),),
)  # fmt: skip
