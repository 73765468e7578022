"""The values in MIOpen's entries (miopen-log.md 4): each form is recognised by its shape. The solvers by their ids."""

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


# -- Solver ids, and the algorithm family of a solver (miopen-log.md 12) -----------------------------------------------
#
# An id never changes its meaning; some are gone.

SOLVERS: dict[int, str] = {
    1: "ConvAsm3x3U", 2: "ConvAsm1x1U", 3: "ConvAsm1x1UV2", 4: "ConvBiasActivAsm1x1U", 5: "ConvAsm5x10u2v2f1",
    6: "ConvAsm5x10u2v2b1", 7: "ConvAsm7x7c3h224w224k64u2v2p3q3f1", 8: "ConvOclDirectFwd11x11",
    9: "ConvOclDirectFwdGen", 10: "ConvOclDirectFwd3x3", 11: "ConvOclDirectFwd", 12: "ConvOclDirectFwdFused",
    13: "ConvOclDirectFwd1x1", 14: "ConvBinWinograd3x3U", 15: "ConvBinWinogradRxS", 16: "ConvAsmBwdWrW3x3",
    17: "ConvAsmBwdWrW1x1", 18: "ConvOclBwdWrW2<1>", 19: "ConvOclBwdWrW2<2>", 20: "ConvOclBwdWrW2<4>",
    21: "ConvOclBwdWrW2<8>", 22: "ConvOclBwdWrW2<16>", 23: "ConvOclBwdWrW2NonTunable", 24: "ConvOclBwdWrW53",
    25: "ConvOclBwdWrW1x1", 26: "ConvHipImplicitGemmV4R1Fwd", 31: "ConvHipImplicitGemmV4R1WrW", 34: "fft",
    35: "ConvWinograd3x3MultipassWrW<3-4>", 37: "ConvBinWinogradRxSf3x2", 38: "ConvWinograd3x3MultipassWrW<3-5>",
    39: "ConvWinograd3x3MultipassWrW<3-6>", 40: "ConvWinograd3x3MultipassWrW<3-2>",
    41: "ConvWinograd3x3MultipassWrW<3-3>", 42: "ConvWinograd3x3MultipassWrW<7-2>",
    43: "ConvWinograd3x3MultipassWrW<7-3>", 44: "ConvWinograd3x3MultipassWrW<7-2-1-1>",
    45: "ConvWinograd3x3MultipassWrW<7-3-1-1>", 46: "ConvWinograd3x3MultipassWrW<1-1-7-2>",
    47: "ConvWinograd3x3MultipassWrW<1-1-7-3>", 48: "ConvWinograd3x3MultipassWrW<5-3>",
    49: "ConvWinograd3x3MultipassWrW<5-4>", 53: "ConvBinWinogradRxSf2x3", 54: "ConvHipImplicitGemmV4R4Fwd",
    55: "ConvHipImplicitGemmBwdDataV1R1", 56: "ConvHipImplicitGemmBwdDataV4R1",
    57: "ConvHipImplicitGemmBwdDataV1R1Xdlops", 60: "ConvHipImplicitGemmBwdDataV4R1Xdlops",
    61: "ConvHipImplicitGemmV4R4WrW", 62: "ConvAsmImplicitGemmV4R1DynamicFwd",
    63: "ConvAsmImplicitGemmV4R1DynamicFwd_1x1", 64: "ConvHipImplicitGemmForwardV4R4Xdlops",
    65: "ConvAsmImplicitGemmV4R1DynamicBwd", 66: "ConvAsmImplicitGemmV4R1DynamicWrw",
    67: "ConvMPBidirectWinograd<2-3>", 68: "ConvMPBidirectWinograd<3-3>", 69: "ConvMPBidirectWinograd<4-3>",
    70: "ConvMPBidirectWinograd<5-3>", 71: "ConvMPBidirectWinograd<6-3>",
    72: "ConvAsmImplicitGemmGTCDynamicWrwXdlops", 73: "ConvHipImplicitGemmWrwV4R4Xdlops",
    74: "ConvAsmImplicitGemmGTCDynamicFwdXdlops", 75: "ConvMPBidirectWinograd_xdlops<2-3>",
    76: "ConvMPBidirectWinograd_xdlops<3-3>", 77: "ConvMPBidirectWinograd_xdlops<4-3>",
    78: "ConvMPBidirectWinograd_xdlops<5-3>", 79: "ConvMPBidirectWinograd_xdlops<6-3>",
    80: "ConvHipImplicitGemmForwardV4R5Xdlops", 81: "ConvHipImplicitGemmForwardV4R4Xdlops_Padded_Gemm",
    82: "ConvAsmImplicitGemmGTCDynamicBwdXdlops", 83: "ConvHipImplicitGemmWrwV4R4Xdlops_Padded_Gemm",
    84: "ConvBinWinogradRxSf2x3g1", 85: "ConvDirectNaiveConvFwd", 86: "ConvDirectNaiveConvBwd",
    87: "ConvDirectNaiveConvWrw", 88: "GemmFwd1x1_0_1", 89: "GemmFwd1x1_0_1_int8", 90: "GemmFwd1x1_0_2",
    91: "GemmFwdRest", 95: "GemmBwd1x1_stride2", 96: "GemmBwd1x1_stride1", 97: "GemmBwdRest", 98: "ConvMlirIgemmFwd",
    99: "ConvMlirIgemmBwd", 100: "ConvMlirIgemmWrW", 101: "GemmWrw1x1_stride1", 102: "GemmWrwUniversal",
    103: "ConvMlirIgemmFwdXdlops", 104: "ConvMlirIgemmBwdXdlops", 105: "ConvMlirIgemmWrWXdlops",
    106: "ActivFwdSolver0", 107: "ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC",
    108: "ConvAsmImplicitGemmGTCDynamicBwdXdlopsNHWC", 109: "ActivFwdSolver1",
    110: "ConvAsmImplicitGemmGTCDynamicWrwXdlopsNHWC", 111: "ActivBwdSolver0", 112: "ActivBwdSolver1",
    113: "BnFwdTrainingSpatialSingle", 114: "ConvCkIgemmFwdV6r1DlopsNchw", 115: "BnFwdTrainingSpatialMultiple",
    116: "BnFwdTrainingPerActivation", 117: "BnBwdTrainingSpatialSingle", 118: "BnBwdTrainingSpatialMultiple",
    119: "BnBwdTrainingPerActivation", 120: "BnFwdInference", 121: "PoolingForward2d", 122: "PoolingForwardNd",
    123: "TransposedPoolingFwd2d", 124: "TransposedPoolingFwdNd", 125: "PoolingBackward2d", 126: "PoolingBackwardNd",
    127: "ConvAsmImplicitGemmGTCDynamicFwdDlopsNCHWC", 128: "ConvHipImplicitGemmFwdXdlops",
    129: "ConvHipImplicitGemmBwdXdlops", 130: "ConvBinWinogradRxSFused", 131: "ConvBinWinogradRxSf2x3g1Fused",
    132: "BnFwdInferActivationFused", 133: "BnFwdTrgActivationFused", 134: "BnBwdTrgActivationFused",
    135: "ConvCKIgemmFwdBiasActivFused", 136: "PoolingForwardNaive", 137: "ConvHipImplicitGemmGroupFwdXdlops",
    138: "ConvHipImplicitGemm3DGroupFwdXdlops", 139: "ConvWinoFuryRxS<2-3>",
    140: "ConvHipImplicitGemm3DGroupWrwXdlops", 141: "ConvHipImplicitGemm3DGroupBwdXdlops", 142: "BnCKFwdInference",
    143: "BnCKBwdBackward", 144: "BnCKFwdTraining", 145: "Layernorm2DCKForward", 146: "Layernorm4DCKForward",
    147: "LayernormForward", 148: "SumForward", 149: "ConvHipImplicitGemmF16F8F16FwdXdlops",
    150: "ConvHipImplicitGemmF16F8F16BwdXdlops", 151: "ConvHipImplicitGemmF16F8F16WrwXdlops",
    152: "ConvCKIgemmFwdBiasResAddActivFused", 153: "ArgmaxForward", 154: "GroupNormForward",
    155: "ConvHipImplicitGemmGroupBwdXdlops", 156: "ConvHipImplicitGemmGroupWrwXdlops", 157: "Softmax",
    158: "AttnSoftmax", 159: "ArgminForward", 160: "MaxForward", 161: "MinForward", 162: "MhaForward",
    163: "MhaBackward", 164: "CatForward", 165: "Adam", 166: "GetitemBackward", 167: "TransformersAdamW",
    168: "ConvWinoFuryRxSFused<2-3>", 169: "RoPEForward", 170: "RoPEBackward", 171: "MultiWeightsBackward",
    172: "SingleWeightBackward", 173: "KthvalueFwd", 174: "GLUForward", 175: "GLUBackward",
    176: "SoftMarginLossForward", 177: "SoftMarginLossBackward", 178: "MultiMarginLossForward",
    179: "MhaCKFlashAttentionV2Forward",
}  # fmt: skip
"""Names by id."""

_PARTS = (
    ("Naive", "Naive"),
    ("Winograd", "Winograd"),
    ("Wino", "Winograd"),
    ("ImplicitGemm", "ImplicitGemm"),
    ("Igemm", "ImplicitGemm"),
    ("IGemm", "ImplicitGemm"),
    ("ConvHipConv", "ImplicitGemm"),
    ("Gemm", "Gemm"),
    ("gemm", "Gemm"),
    ("fft", "FFT"),
    ("ConvAsm", "Direct"),
    ("ConvOcl", "Direct"),
    ("ConvBiasActivAsm", "Direct"),
)
"""The first fitting part of a name gives its family."""


def solver_name(number: int) -> str | None:
    """Return the solver of an id; None for 0 and for unlisted ids."""
    return SOLVERS.get(number)


@lru_cache(maxsize=1 << 10)
def family(solver: str) -> str | None:
    """Return ``Direct``, ``Winograd``, ``ImplicitGemm``, ``Gemm``, ``FFT`` or ``Naive``; None for other primitives."""
    return next((name for part, name in _PARTS if part in solver), None)
