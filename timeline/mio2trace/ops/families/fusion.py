"""Fusion plans (miopen-log.md 5.6, 7.3): a convolution or batch norm with what follows it, in one kernel or few."""

from __future__ import annotations

from mio2trace.model.gemm import Gemm
from mio2trace.ops.families.conv import ConvProblem
from mio2trace.ops.families.conv import from_flags as conv_from_flags
from mio2trace.ops.problem import CommandError, Form, Problem, base_word, nchw, work
from mio2trace.ops.values import Shape, product

KINDS: dict[tuple[str, ...], int] = {
    ("conv", "bias", "bnorm", "activ"): 0,
    ("conv", "bnorm", "activ"): 1,
    ("bnorm", "activ"): 2,
    ("conv", "bnorm"): 3,
    ("conv", "bias", "activ"): 4,
    ("conv", "activ"): 5,
    ("conv", "bias"): 6,
}
"""The driver's fusion modes by the plan's operators."""
_BY_MODE = {mode: kinds for kinds, mode in KINDS.items()}


class FusionProblem(Problem, frozen=True, kw_only=True, gc=False):
    """``parts`` are the plan's operators in order; ``conv`` the convolution among them, the rest follows it."""

    parts: tuple[str, ...] = ()
    x: Shape = ()
    y: Shape = ()
    conv: ConvProblem | None = None
    bn_mode: int | None = None
    activation: int | None = None
    kernel: str = ""
    """``kernel_name`` of the plan, where the version prints it."""

    @property
    def primitive(self) -> str:
        return "fusion"

    @property
    def input(self) -> Shape:
        return self.x

    @property
    def weights(self) -> Shape:
        return self.conv.w if self.conv else ()

    @property
    def output(self) -> Shape:
        return self.y or (self.conv.output if self.conv else self.x)

    def check(self) -> str:
        if self.conv is not None:
            return self.conv.check()
        return "output shape differs from the input's" if self.y and self.x and self.y != self.x else ""

    def gemm(self) -> Gemm | None:
        return self.conv.gemm() if self.conv else None

    def flop(self) -> int | None:
        """The convolution's, and per element of the output 1 for bias, 2 for batch norm, 1 for activation."""
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
            return f"{word} -F {mode} {self.conv.arguments(form)} -g {self.conv.groups}"
        if self.bn_mode is None:
            raise CommandError("the plan's batch norm mode is unknown")
        return f"{word} -F {mode} {nchw(self.x, 'CBAInfer')} -m {self.bn_mode}"


def from_flags(flags: dict[str, str], dtype: str | None) -> FusionProblem | None:
    """``-F mode`` and the convolution's or batch norm's flags. The base word's type is unreliable (7.3)."""
    try:
        mode = int(flags["F"])
        parts = _BY_MODE[mode]
        if mode == 2:
            x = tuple(int(flags[name]) for name in ("n", "c", "H", "W"))
            return FusionProblem(direction="forward", dtype=dtype, parts=parts, x=x, bn_mode=int(flags["m"]))
    except (KeyError, ValueError):
        return None
    conv = conv_from_flags({key: value for key, value in flags.items() if key != "m"}, "forward", dtype)
    if conv is None:
        return None
    return FusionProblem(direction="forward", dtype=dtype, parts=parts, x=conv.x, conv=conv)
