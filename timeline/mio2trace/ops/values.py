"""The values in MIOpen's entries (miopen-log.md 4): each form is recognised by its shape."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import msgspec

from mio2trace.patterns import late

Shape = tuple[int, ...]

DTYPE_BYTES = {
    "half": 2, "float": 4, "int32": 4, "int8": 1, "int8x4": 1, "bfloat16": 2, "double": 8, "float8": 1, "bfloat8": 1,
    "int64": 8,
}  # fmt: skip
"""In the order of MIOpen's numbers of types."""
DTYPES = tuple(DTYPE_BYTES)
KEY_DTYPES = {
    "FP32": "float", "FP16": "half", "BF16": "bfloat16", "BFP16": "bfloat16", "INT8": "int8", "INT8x4": "int8x4",
    "INT32": "int32", "FP64": "double", "FP8": "float8", "BF8": "bfloat8", "INT64": "int64",
}  # fmt: skip
ALGORITHMS = ("Gemm", "Direct", "FFT", "Winograd", "StaticCompiledGemm", "ImplicitGemm")
POOL_MODES = ("max", "average", "average-inclusive")
ACTIVATIONS = (
    "PASTHRU", "LOGISTIC", "TANH", "RELU", "SOFTRELU", "ABS", "POWER", "CLIPPEDRELU", "LEAKYRELU", "ELU", "CLAMP",
)  # fmt: skip
TENSOR_OPS = ("add", "mul", "min", "max")

_INTS = late(r"-?[0-9]+")  # ASCII's digits: the library prints no others
_ONLY_INTS = late(r"[-0-9,\s]*")
_MOST_LENGTHS = 16
"""The library has at most five dimensions; a list with many more is no tensor."""
_LONGEST_INT = 19
_BRACED = late(r"\{([^{}]*+)\}")
_CAST = late(r"cast_type: (?:miopen)?(\w+)")
_LENGTHS = late(r"\s*+[0-9]{1,18}(?>(?:\s*+,\s*+[0-9]{1,18})*)\s*+,?\s*+")
_NUMBER = late(r"-?[0-9]{1,18}")
_GROUPS = late(r"\{([^{}]*+)\}|([^,{}]++)")
# Windows pads to 16 digits, and no address there uses all of them (miopen-log.md 2.4)
_POINTER = late(r"0x[0-9a-fA-F]{1,16}|0[0-9A-F]{15}")


class Tensor(msgspec.Struct, frozen=True, gc=False):
    """Lengths in the order N, C, [D,] H, W; strides in elements, empty if the version does not print them."""

    lengths: Shape
    strides: Shape = ()
    cast: str = ""

    @property
    def elements(self) -> int:
        return product(self.lengths)


def product(values: Shape) -> int:
    """Return the product; 1 for no values."""
    return prod(values)


def integers(text: str) -> Shape:
    """Return every decimal integer of a text. Return none at all if one of them is too long, or begins with zeros:
    telephone numbers do, but nothing that the library prints."""
    found = _INTS.findall(text)
    if any(len(digits) > 1 and (digits[0] == "0" or len(digits) > _LONGEST_INT) for digits in found):
        return ()
    return tuple(map(int, found))


@lru_cache(maxsize=1 << 14)
def tensor(text: str) -> Tensor | None:
    """Read ``n, c, h, w`` or ``{n, c, h, w}, {strides}, packed,`` (miopen-log.md 4.3); None if empty or another
    text."""
    if "{" in text:
        groups = _BRACED.findall(text)
        # In a line that lost a brace, strides would be read as lengths.
        if not _BRACED.match(text.lstrip()) or not _ONLY_INTS.fullmatch(groups[0]):
            return None
        lengths = integers(groups[0])
        if not 0 < len(lengths) <= _MOST_LENGTHS:
            return None
        strides = integers(groups[1]) if len(groups) > 1 else ()
        cast = _CAST.search(text)
        if min(lengths, default=0) < 0:
            return None
        return Tensor(lengths, strides if len(strides) == len(lengths) else (), cast[1] if cast else "")
    if not _LENGTHS.fullmatch(text) or "," not in text:
        return None
    lengths = integers(text)
    return Tensor(lengths) if len(lengths) <= _MOST_LENGTHS else None


_NAMES = {4: ("NCHW", "NHWC", "CHWN"), 5: ("NCDHW", "NDHWC"), 3: ("NCW", "NWC")}


def packed_strides(lengths: Shape, layout: str) -> Shape:
    """Return the strides without gaps of lengths in N C [D] H W order."""
    names = {4: "NCHW", 5: "NCDHW", 3: "NCW"}[len(lengths)]
    strides = {}
    step = 1
    for name in reversed(layout):
        strides[name] = step
        step *= lengths[names.index(name)]
    return tuple(strides[name] for name in names)


@lru_cache(maxsize=1 << 14)
def layouts(shape: Tensor) -> tuple[str, ...]:
    """Return the layouts that the strides allow: several if a length is 1, none for gaps or unknown strides."""
    found = []
    for name in _NAMES.get(len(shape.lengths), ()):
        packed = packed_strides(shape.lengths, name)
        if shape.strides and all(
            mine == theirs for mine, theirs, n in zip(shape.strides, packed, shape.lengths, strict=True) if n > 1
        ):
            found.append(name)
    return tuple(found)


def common_layout(tensors: tuple[Tensor, ...]) -> tuple[str, ...]:
    """Return one layout for each tensor, ``""`` if unknown. If a tensor allows several, another tensor decides."""
    allowed = [layouts(shape) for shape in tensors]
    shared = [name for name in (allowed[0] if allowed else ()) if all(name in names for names in allowed if names)]
    decided = [names[0] for names in allowed if len(names) == 1]
    return tuple(next((name for name in (*shared[:1], *decided) if name in names), names[0]) if names else ""
                 for names in allowed)  # fmt: skip


class ConvDescriptor(msgspec.Struct, frozen=True, gc=False):
    """Pads, strides, dilations: height first (depth first in 3-D)."""

    pads: Shape
    strides: Shape
    dilations: Shape
    mode: str = "convolution"
    groups: int | None = None
    padding: str = "Default"
    output_pads: Shape = ()


@lru_cache(maxsize=1 << 12)
def conv_descriptor(text: str) -> ConvDescriptor | None:
    """Read the three forms of miopen-log.md 4.4."""
    parts = [found.groups() for found in _GROUPS.finditer(text)]
    words = [word.strip() for _, word in parts if word and word.strip()]
    braces = [braced for braced, _ in parts if braced is not None]
    if not all(map(_ONLY_INTS.fullmatch, braces)):
        return None
    lists = [integers(part) for part in braces]
    numbers = [int(word) for word in words if _NUMBER.fullmatch(word)]
    mode = "transpose" if any("ranspose" in word for word in words) else "convolution"
    if lists:
        if len(lists) < 3 or not len(lists[0]) == len(lists[1]) == len(lists[2]) or not lists[0]:
            return None
        padding = next((word.removeprefix("miopenPadding") for word in words if word.startswith("miopenPadding")), "")
        groups = numbers[0] if numbers else 1
        return ConvDescriptor(
            lists[0], lists[1], lists[2], mode, groups, padding or "Default", lists[3] if len(lists) > 3 else ()
        )
    if len(numbers) < 6:
        return None
    pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w = numbers[:6]
    grouped = numbers[6] if len(numbers) > 6 else None
    return ConvDescriptor((pad_h, pad_w), (stride_h, stride_w), (dilation_h, dilation_w), mode, grouped)


def is_cut(text: str) -> bool:
    """Return whether a descriptor ends within its braces because its line was cut off."""
    return text.count("{") > text.count("}")


def pool_descriptor(text: str) -> tuple[str, Shape, Shape, Shape] | None:
    """``mode, window, A, B`` with two or three numbers each (miopen-log.md 4.5). A and B: pads and strides, or strides
    and pads in 1.0-1.1; the output size shows the order."""
    name, _, rest = text.partition(",")
    name = name.strip()
    if name.startswith("Unknown: "):
        number = integers(name)
        mode = POOL_MODES[number[0]] if number and 0 <= number[0] < 3 else name
    else:
        mode = name.removeprefix("miopenPooling").lower()
        mode = {"averageinclusive": "average-inclusive"}.get(mode, mode)
    numbers = integers(rest) if _ONLY_INTS.fullmatch(rest) else ()
    if len(numbers) not in (6, 9):
        return None
    third = len(numbers) // 3
    return mode, numbers[:third], numbers[third : 2 * third], numbers[2 * third :]


def activ_descriptor(text: str) -> dict[str, Any]:
    """``miopenActivationRELU, alpha, beta, gamma,`` (miopen-log.md 4.6): the mode's number in `ACTIVATIONS`, and the
    three values as text; empty for another text."""
    parts = [part.strip() for part in text.split(",")]
    name = parts[0].removeprefix("miopenActivation").replace("PATHTRU", "PASTHRU")
    if name not in ACTIVATIONS or len(parts) < 4:
        return {}
    return {"mode": ACTIVATIONS.index(name), "alpha": parts[1], "beta": parts[2], "gamma": parts[3]}


def lrn_descriptor(text: str) -> dict[str, Any]:
    """``mode, N, alpha, beta, K,``: the mode is 0 within channel, 1 cross channel; the last three are text. Empty for
    another text."""
    parts = [part.strip() for part in text.split(",")]
    window = number(parts[1]) if len(parts) >= 5 else None
    if window is None or window < 0:
        return {}
    mode = 1 if "Cross" in parts[0] or parts[0] == "1" else 0
    return {"mode": mode, "window": window, "alpha": parts[2], "beta": parts[3], "k": parts[4]}


def pointer(text: str) -> int:
    """Return a buffer's address; 0 for null, for a number and for any other text (miopen-log.md 4.1)."""
    return int(text, 16) if _POINTER.fullmatch(text) else 0


def number(text: str | None) -> int | None:
    """Return a decimal integer of limited length."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


@lru_cache(maxsize=1 << 12)
def shape_text(shape: Shape) -> str:
    """``64x3x224x224``."""
    return "x".join(map(str, shape))
