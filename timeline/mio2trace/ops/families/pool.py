"""Pooling: x <n, c, [D,] H, W> to y <n, c, [OD,] OH, OW> (miopen-log.md 4.5, 7.3)."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from mio2trace.ops import values
from mio2trace.ops.problem import (
    BEFORE_2_3,
    DATA,
    LAYOUTS,
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
    ops,
    options,
    tensor,
)
from mio2trace.ops.values import Shape, packed_strides, product, shape_text

MODE_FLAG = {"max": "max", "average": "avg", "average-inclusive": "avg_in"}
FLAG_MODE = {flag: mode for mode, flag in MODE_FLAG.items()}
_FLAGS = ("-Z", "-y", "-x"), ("-o", "-p", "-q"), ("-s", "-v", "-u")
"""Flags of window, pads and strides, each with the depth first."""


class PoolProblem(Problem, frozen=True, kw_only=True, gc=False):
    """``window``, ``pads``, ``strides``: per dimension, height before width. ``x_strides``: as logged, or ()."""

    primitive: ClassVar[str] = "pool"
    told_by_commands: ClassVar[tuple[str, ...]] = ("index_mode",)

    window: Shape
    pads: Shape
    strides: Shape
    dilations: Shape = ()
    """() without a dilation: MIOpen has none."""
    mode: str = "max"
    x_strides: Shape = ()
    index_bytes: int = 0
    """The size of the place of a maximum, which is a result of its own; 0: none is."""
    index_mode: int | None = None
    """Workspace index mode (``-M``): 0 mask, 1 image; the entry does not state it."""

    @property
    def output(self) -> Shape:
        return self.y or self.expected_output()

    @property
    def geometry(self) -> Geometry:
        return Geometry(pad=self.pads, stride=self.strides, dilation=self.dilations, window=self.window)

    @property
    def variant(self) -> str:
        return self.mode

    @property
    def memory_layout(self) -> str | None:
        return next(iter(values.layouts(values.Tensor(self.x, self.x_strides))), None)

    def expected_output(self, up: bool = False) -> Shape:
        """floor((H + 2p - win) / s) + 1; () if it is not positive. ``up``: rounded up, as in MIOpen 1.x."""
        if not (
            len(self.x) >= 3
            and len(self.window) == len(self.pads) == len(self.strides) == len(self.x) - 2
            and min((*self.x, *self.window, *self.strides)) > 0
        ):
            return ()
        wide = self.window
        if len(self.dilations) == len(wide):
            wide = tuple(step * (window - 1) + 1 for window, step in zip(wide, self.dilations, strict=True))
        sizes = [
            -(-(length + 2 * pad - window) // stride) + 1 if up else (length + 2 * pad - window) // stride + 1
            for length, window, pad, stride in zip(self.x[2:], wide, self.pads, self.strides, strict=True)
        ]
        return (*self.x[:2], *sizes) if min(sizes) > 0 else ()

    def rounded_up(self) -> Shape:
        """Return the sizes as PyTorch rounds them up: no window begins behind the input and its first pad."""
        down, up = self.expected_output(), self.expected_output(up=True)
        if not down:
            return up
        beyond = [
            (size - 1) * stride >= length + pad
            for size, stride, length, pad in zip(up[2:], self.strides, self.x[2:], self.pads, strict=True)
        ]
        return (*up[:2], *(low if out else high for low, high, out in zip(down[2:], up[2:], beyond, strict=True)))

    def check(self) -> str:
        if not self.expected_output():
            return "pooling with lengths that do not belong together"
        if self.y in ((), self.expected_output(), self.expected_output(up=True)):
            return ""
        return "output shape does not follow from input and descriptor"

    def flop(self) -> int | None:
        """Window size per output element (compare or add); the gradient of max pooling adds once per output element."""
        y = self.output
        if not y:
            return None
        if self.direction != "forward" and self.mode == "max":
            return product(y)
        return product(y) * product(self.window)

    def elements_moved(self) -> int | None:
        y = self.output
        return product(self.x) + product(y) if y else None

    def bytes_min(self) -> int | None:
        moved = super().bytes_min()
        return None if moved is None else moved + product(self.output) * self.index_bytes

    def command(self, form: Form = "newest") -> str:
        if self.direction is None and form not in BEFORE_2_3:
            raise CommandError("the direction is unknown")
        if self.mode not in MODE_FLAG:
            raise CommandError(f"pooling mode {self.mode}")
        if any(step != 1 for step in self.dilations):
            raise CommandError("the driver's pooling has no dilation")
        rank = len(self.x) - 2
        if rank not in (2, 3) or len(self.window) != rank or len(self.pads) != rank or len(self.strides) != rank:
            raise CommandError("the driver knows 2-D and 3-D pooling")
        forward = self.direction == "forward"
        mode = MODE_FLAG[self.mode]
        index = self.index_mode if self.index_mode is not None else int(rank == 3)
        sizes = zip(_FLAGS, (self.window, self.pads, self.strides), strict=True)
        pairs = (pair for flags, own in sizes for pair in zip(flags[3 - rank :], own, strict=True))
        geometry = "".join(f" {flag} {size}" for flag, size in pairs)
        if form in ("5.4", "6.3", "newest"):
            if form == "newest" and (self.check() or self.y not in ((), self.expected_output())):
                raise CommandError(
                    self.check() or "the output size is rounded up, which the driver of today does not do"
                )
            word = base_word("pool", self.dtype, ("half", "bfloat16") if form == "newest" else ("half",))
            strides = self.x_strides or packed_strides(self.x, "NCHW" if rank == 2 else "NCDHW")
            return (
                f"{word} -M {index} --input {shape_text(self.x)},{shape_text(strides)}{geometry} -m {mode}"
                f" -F {int(forward)} -t 1"
            )
        word = base_word("pool", self.dtype)
        if form == "2.3":
            three, deep = (" -d 3", f" -D {self.x[2]}") if rank == 3 else ("", "")
            return (
                f"{word}{three} -M {index} -n {self.x[0]} -c {self.x[1]}{deep} -H {self.x[-2]} -W {self.x[-1]}"
                f"{geometry} -m {mode} -F {1 if forward else 2} -t 1"
            )
        if rank != 2:
            raise CommandError("3-D pooling before MIOpen 2.3")
        (y, x), (p, q), (u, v) = self.window, self.pads, self.strides
        return (
            f"{word} -n {self.x[0]} -c {self.x[1]} -H {self.x[2]} -W {self.x[3]} -y {y} -x {x} -p {p} -q {q} -u {u}"
            f" -v {v} -m {mode} -t 1"
        )


def from_entry(params: Params, op: Op) -> PoolProblem | None:
    x, y = tensor(params, "xDesc", "dxDesc"), tensor(params, "yDesc", "dyDesc")
    descriptor = values.pool_descriptor(params.get("poolDesc", ""))
    if x is None or descriptor is None:
        return None
    mode, window, pads, strides = descriptor
    problem = PoolProblem(
        direction=op.direction, x=x.lengths, y=y.lengths if y is not None else (), window=window, pads=pads,
        strides=strides, mode=mode, x_strides=x.strides,
    )  # fmt: skip
    if problem.y not in ((), problem.expected_output(), problem.expected_output(up=True)):
        # MIOpen 1.0-1.1 prints strides before pads; the output size shows the order (miopen-log.md 4.5)
        other = msgspec.structs.replace(problem, pads=strides, strides=pads)
        if not other.check():
            return other
    return problem


def from_command(line: Line) -> PoolProblem | None:
    """Read three forms (miopen-log.md 7.3): before 2.3 -u is the stride of the height, since then that of the width."""
    if not line.ends:
        return None
    flags = line.flags
    mode = FLAG_MODE.get(flags.get("m", "max"))
    if mode is None:
        return None
    sizes = {name: int(flags[name]) for name in ("y", "x", "p", "q", "u", "v")}
    strides: Shape = ()
    if "input" in flags:
        lengths, _, rest = flags["input"].partition(",")
        x = tuple(int(part) for part in lengths.split("x"))
        if rest and rest[0].isdigit():
            strides = tuple(int(part) for part in rest.split("x"))
        elif rest:
            strides = packed_strides(x, rest)
        new = True
    else:
        x = tuple(int(flags[name]) for name in ("n", "c", "D", "H", "W") if name != "D" or flags.get("d") == "3")
        new = "M" in flags
    three = len(x) == 5
    height, width = (sizes["v"], sizes["u"]) if new else (sizes["u"], sizes["v"])
    problem = PoolProblem(
        # logs print 0 for the gradient, and so does a line that was copied from a log
        direction=DATA if flags.get("F") == "0" else line.two_ways(),
        dtype=line.dtype,
        x=x,
        window=(*((int(flags["Z"]),) if three else ()), sizes["y"], sizes["x"]),
        pads=(*((int(flags.get("o", "0")),) if three else ()), sizes["p"], sizes["q"]),
        strides=(*((int(flags.get("s", "1")),) if three else ()), height, width),
        mode=mode,
        x_strides=strides,
        index_mode=int(flags["M"]) if "M" in flags else None,
    )
    return problem if problem.expected_output() else None


_OPTIONS = (
    SIZES
    | LAYOUTS
    | options(integer="M d Z y x o p q s v u P", shape="input dinput output doutput", path="j k l", decimal="r")
    | {"m": "max|avg|avg_in", "z": "default|same|valid", "I": r"miopenIndexUint(?:8|16|32|64)"}
)
_NAMES = {
    "win_d": "Z", "win_h": "y", "win_w": "x", "pool_stride_d": "s", "pool_stride_h": "v", "pool_stride_w": "u",
    "pool_stride_0": "u", "pool_stride_1": "v", "pad_d": "o", "spatial_dim": "d", "in_d": "D", "index_position": "M",
    "index_type": "I", "in_data": "j", "out_data": "k", "dump_root": "l",
}  # fmt: skip
FAMILY = Family(
    ops=ops("PoolingForward PoolingBackward", "pool", from_entry),
    words={"pool": Word(from_command, "pool", _OPTIONS, _NAMES)},
    names={"pool": "Pool"},
    invoked=tuple((f"miopenPooling{way}", "pool") for way in ("2dForward", "NdForward", "2dBackward", "NdBackward")),
)
