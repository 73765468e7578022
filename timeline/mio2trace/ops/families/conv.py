"""Convolution: x <n, c, [D,] H, W>, w <k, c/g, [fd,] y, x>, y <n, k, [OD,] OH, OW> (miopen-log.md 6, 7.2).

Transpose mode (deconvolution): w is <c, k/g, [fd,] y, x>, and it runs the other direction's kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from mio2trace.model.gemm import Gemm
from mio2trace.model.miopen import OperationDirection
from mio2trace.ops.problem import CommandError, Form, Problem, base_word
from mio2trace.ops.values import Shape, product

DIRECTION_FLAG = {"forward": 1, "backward-data": 2, "backward-weights": 4}
DEFAULT_LAYOUT = {2: "NCHW", 3: "NCDHW"}


def output_length(length: int, pad: int, stride: int, dilation: int, window: int) -> int:
    """floor((H + 2p - l(y-1) - 1) / u) + 1 (miopen-log.md 6)."""
    return (length + 2 * pad - dilation * (window - 1) - 1) // stride + 1


def transposed_length(length: int, pad: int, stride: int, dilation: int, window: int, extra: int = 0) -> int:
    """u(H-1) + l(y-1) + 1 - 2p, and the output pad (miopen-log.md 6)."""
    return stride * (length - 1) + dilation * (window - 1) + 1 - 2 * pad + extra


class ConvProblem(Problem, frozen=True, kw_only=True, gc=False):
    """``x``, ``w``, ``y`` are lengths in logical order; pads, strides, dilations are per spatial dimension.

    ``layouts`` are those of x, w, y, empty where unknown.
    """

    x: Shape
    w: Shape
    y: Shape = ()
    pads: Shape
    strides: Shape
    dilations: Shape
    groups: int = 1
    transpose: bool = False
    padding: str = "Default"
    output_pads: Shape = ()
    layouts: tuple[str, str, str] = ("", "", "")
    gaps: bool = False
    """A tensor's strides leave gaps."""
    solver_id: int | None = None
    """``-S`` of the logged command; 0 stands for immediate mode."""

    @property
    def primitive(self) -> str:
        return "conv"

    @property
    def spatial(self) -> int:
        return len(self.x) - 2

    @property
    def input(self) -> Shape:
        return self.x

    @property
    def weights(self) -> Shape:
        return self.w

    @property
    def output(self) -> Shape:
        """As logged, else computed."""
        return self.y or self.expected_output()

    @property
    def out_channels(self) -> int:
        return self.w[1] * self.groups if self.transpose else self.w[0]

    def well_formed(self) -> bool:
        """All lists have the lengths that a convolution needs, and no divisor is zero."""
        rank = len(self.x)
        return (
            rank in (3, 4, 5)
            and len(self.w) == rank
            and (not self.y or len(self.y) == rank)
            and len(self.pads) == len(self.strides) == len(self.dilations) == rank - 2
            and min((*self.x, *self.w, *self.y, *self.strides, *self.dilations, self.groups)) > 0
        )

    def expected_output(self) -> Shape:
        """The output shape that follows from the descriptor, () when it is not positive."""
        if not self.well_formed():
            return ()
        window = self.w[2:]
        if self.transpose:
            extra = self.output_pads or (0,) * self.spatial
            sizes = [
                transposed_length(*one)
                for one in zip(self.x[2:], self.pads, self.strides, self.dilations, window, extra, strict=False)
            ]
        else:
            sizes = [
                output_length(*one)
                for one in zip(self.x[2:], self.pads, self.strides, self.dilations, window, strict=True)
            ]
        return (self.x[0], self.out_channels, *sizes) if min(sizes) > 0 else ()

    def check(self) -> str:
        if not self.well_formed():
            return "convolution with lengths that do not belong together"
        channels = self.w[0] if self.transpose else self.w[1] * self.groups
        if channels != self.x[1]:
            return f"input has {self.x[1]} channels, the weights take {channels}"
        if not self.y and not self.expected_output():
            return "the window does not fit into the input"
        if self.padding == "Default" and self.y and self.y != self.expected_output():
            return "output shape does not follow from input, weights and descriptor"
        return ""

    def gemm(self) -> Gemm | None:
        """im2col form, one product per image and group; the weights' gradient sums the images (docs/operations.md)."""
        y = self.output
        if not y or not self.well_formed():
            return None
        window, g = product(self.w[2:]), self.groups
        # In transpose mode x and y change places: its forward is the gradient of the convolution that maps y to x.
        small, large, pixels = (
            (self.x[1] // g, self.w[1] * window, product(self.x[2:]))
            if self.transpose
            else (self.w[0] // g, self.w[1] * window, product(y[2:]))
        )
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
        """The shape flags, without mode, direction and solver."""
        if not self.well_formed():
            raise CommandError(self.check())
        if self.spatial not in (2, 3):
            raise CommandError("the driver knows 2-D and 3-D convolutions")
        k = self.w[0] if self.transpose and form in ("1.2", "1.7", "2.0") else self.out_channels
        if self.spatial == 2:
            text = (
                f"-n {self.x[0]} -c {self.x[1]} -H {self.x[2]} -W {self.x[3]} -k {k} -y {self.w[2]} -x {self.w[3]}"
                f" -p {self.pads[0]} -q {self.pads[1]} -u {self.strides[0]} -v {self.strides[1]}"
                f" -l {self.dilations[0]} -j {self.dilations[1]}"
            )
        else:
            text = (
                f"-n {self.x[0]} -c {self.x[1]} --in_d {self.x[2]} -H {self.x[3]} -W {self.x[4]} -k {k}"
                f" --fil_d {self.w[2]} -y {self.w[3]} -x {self.w[4]} --pad_d {self.pads[0]} -p {self.pads[1]}"
                f" -q {self.pads[2]} --conv_stride_d {self.strides[0]} -u {self.strides[1]} -v {self.strides[2]}"
                f" --dilation_d {self.dilations[0]} -l {self.dilations[1]} -j {self.dilations[2]} --spatial_dim 3"
            )
        default = DEFAULT_LAYOUT[self.spatial]
        for flag, layout in zip(("--in_layout", "--fil_layout", "--out_layout"), self.layouts, strict=True):
            if layout and layout != default:
                text += f" {flag} {layout}"
        return text

    def command(self, form: Form = "newest") -> str:
        if form == "newest":
            self._refuse()
        word = base_word("conv", self.dtype, ("half", "bfloat16", "int8"))
        text = f"{word} {self.arguments(form)}"
        if form != "1.2":
            text += f" -m {'trans' if self.transpose else 'conv'} -g {self.groups}"
        if form == "2.0":
            text += " -F 1"
        elif form not in ("1.2", "1.7"):
            if self.direction is None:
                raise CommandError("the direction is unknown")
            text += f" -F {DIRECTION_FLAG[self.direction]}"
        text += " -t 1"
        return text if self.solver_id is None or form in ("1.2", "1.7") else f"{text} -S {self.solver_id}"

    def _refuse(self) -> None:
        """What the driver of today cannot be told."""
        reason = self.check()
        if not reason and self.padding != "Default" and self.y and self.y != self.expected_output():
            reason = f"padding mode {self.padding} changes the pads at run time"
        if not reason and any(self.output_pads):
            reason = "output padding of a transposed convolution"
        if not reason and self.gaps:
            reason = "strides with gaps"
        if reason:
            raise CommandError(reason)


def from_flags(flags: dict[str, str], direction: OperationDirection | None, dtype: str | None) -> ConvProblem | None:
    """The problem of a command's flags (short names); None when a needed one is missing."""

    def get(name: str, default: int | None = None) -> int:
        text = flags.get(name)
        if text is None:
            if default is None:
                raise KeyError(name)
            return default
        return int(text)

    try:
        three = get("spatial_dim", 2) == 3
        transpose = flags.get("m") == "trans"
        g, c, k = get("g", 1), get("c"), get("k")
        depth: Sequence[str] = ("in_d", "fil_d", "pad_d", "conv_stride_d", "dilation_d") if three else ()
        d = [get(name, default) for name, default in zip(depth, (None, None, 0, 1, 1), strict=False)]
        window = (*d[1:2], get("y"), get("x"))
        if g <= 0 or c % g or k % g:
            return None
        problem = ConvProblem(
            direction=direction,
            dtype=dtype,
            x=(get("n"), c, *d[0:1], get("H"), get("W")),
            w=(c, k // g, *window) if transpose else (k, c // g, *window),
            pads=(*d[2:3], get("p", 0), get("q", 0)),
            strides=(*d[3:4], get("u", 1), get("v", 1)),
            dilations=(*d[4:5], get("l", 1), get("j", 1)),
            groups=g,
            transpose=transpose,
            layouts=(flags.get("in_layout", ""), flags.get("fil_layout", ""), flags.get("out_layout", "")),
            solver_id=get("S") if "S" in flags else None,
        )
    except (KeyError, ValueError):
        return None
    return problem if problem.well_formed() else None
