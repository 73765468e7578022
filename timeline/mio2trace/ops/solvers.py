"""Solver ids, and the algorithm family of a solver (miopen-log.md 12). An id never changes its meaning; some
are gone."""

from __future__ import annotations

from functools import lru_cache

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
