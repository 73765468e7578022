"""Names of kernels: primitive, directions, algorithm, role (miopen-log.md 11, dvdt-ck.md 5); short forms.

A tool that makes narrow tables cuts names off: such a name means what all names with this beginning share. Short names,
for lists and for the slices of a trace, differ wherever the full names differ. Build options say what a kernel is
whose name is in no table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, lru_cache
from itertools import product
from os.path import commonprefix
from typing import TypeVar

import msgspec

from mio2trace.model.miopen import OperationDirection
from mio2trace.outgoing import number_at, shortened
from mio2trace.patterns import late

# -- The beginnings of names that match a regular expression: its literal characters up to the first free part ---------

_GROUP, _AHEAD, _REPEATS = "(?:", "(?!", ("*", "+", "{")
_LITERAL = late(r"\w+(?![*+?{])|\w")
"""Characters that a quantifier, which is of the last one, does not follow; else one character."""
_OPENS = frozenset("([\\")
_MARK, _WHOLE = late(r"\\.|[|(\[)\]]"), late(r"[\w|(?:)\[\]]*")


def beginnings(pattern: str) -> tuple[str, ...]:
    """Return each beginning; the empty text if the expression matches names with any beginning.

    Groups ``(?:a|b)``, classes ``[ab]`` and ``?`` are choices. After any other operator (``\\w*``, ``$``) the text is
    free.
    """
    return tuple(dict.fromkeys(text for alternative in _split(pattern) for text in _expand(alternative)))


def _split(pattern: str) -> list[str]:
    if _OPENS.isdisjoint(pattern):
        return pattern.split("|")
    depth, first, alternatives = 0, 0, []
    for mark in _MARK.finditer(pattern):
        depth += (mark[0] in "([") - (mark[0] in ")]")
        if mark[0] == "|" and not depth:
            alternatives.append(pattern[first : mark.start()])
            first = mark.end()
    return [*alternatives, pattern[first:]]


def _expand(alternative: str) -> list[str]:
    """Return the literal texts of one alternative up to its first free part."""
    if alternative.isidentifier():
        return [alternative]
    texts, at = [""], 0
    while at < len(alternative):
        piece, end = _piece(alternative, at)
        behind = alternative[end : end + 1]
        if piece is None or behind in _REPEATS:
            break
        choices = [*piece, ""] if behind == "?" else piece
        texts = [head + tail for head, tail in product(texts, choices)]
        at = end + (behind == "?")
    return texts


def _piece(alternative: str, at: int) -> tuple[list[str] | None, int]:
    """Return the choices of the piece at a place (None if there are many) and its end."""
    character = alternative[at]
    if character == "\\":
        return (None if _LITERAL.match(alternative, at + 1) else [alternative[at + 1]]), at + 2
    if character == "[":
        end = alternative.index("]", at)
        inside = alternative[at + 1 : end]
        return (None if {*inside} & {*"^\\-"} else [*inside]), end + 1
    if character == "(":
        end = _closing(alternative, at)
        if alternative.startswith(_AHEAD, at):
            return [""], end + 1
        inside = alternative[at + len(_GROUP) : end]
        return (list(beginnings(inside)) if _WHOLE.fullmatch(inside) else None), end + 1
    literal = _LITERAL.match(alternative, at)
    return (None, at + 1) if literal is None else ([literal[0]], literal.end())


def _closing(text: str, at: int) -> int:
    """Return the place where the group that opens at a place closes."""
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] == "(") - (text[end] == ")")
        if not depth:
            return end
    return len(text)


# ----------------------------------------------------------------------------------------------------------------------

F: OperationDirection = "forward"
B: OperationDirection = "backward-data"
W: OperationDirection = "backward-weights"
FB, FW, FBW = (F, B), (F, W), (F, B, W)


class KernelName(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The meaning of a name. ``role``: ``main`` for a kernel that does the work, ``bias`` if it adds a bias,
    ``collective`` for a process's part of a collective, else the kind of auxiliary kernel.

    ``miopen``: MIOpen or a library that it calls has such a kernel. Then ``primitives`` use it (empty: any), and it
    serves ``directions`` (empty: any).
    """

    role: str
    miopen: bool = False
    primitives: tuple[str, ...] = ()
    directions: tuple[OperationDirection, ...] = ()
    algorithm: str | None = None

    @property
    def primitive(self) -> str | None:
        """Its primitive, if there is only one."""
        return self.primitives[0] if len(self.primitives) == 1 else None

    @property
    def direction(self) -> OperationDirection | None:
        """Its direction, if there is only one."""
        return self.directions[0] if len(self.directions) == 1 else None

    @property
    def helps(self) -> bool:
        """Whether it only prepares or finishes the work of another kernel."""
        return self.role not in WORK


WORK = ("main", "bias", "collective")
"""Roles of kernels that do work of their own."""
_CONV = ("conv",)
_GEMM_USERS = ("conv", "rnn", "mha", "gemm")
_TENSOR = ("optensor", "bias", "settensor", "scaletensor", "transformtensor")
_Row = tuple[str, tuple[str, ...], tuple[OperationDirection, ...], str | None, str]

# Regular expressions for the beginning of a normalised name. The first match counts, so more specific ones come first.
_MIOPEN: tuple[_Row, ...] = (
    # Winograd
    (r"(?:miopenGcnAsm|gcnAsm)Winograd(?:Xform)?(?:Xform)?Data|miopenGcnAsmWinogradXformData", _CONV, FBW, "Winograd",
     "transform"),
    (r"(?:miopenG|g)cnAsmWinogradXform(?:Filter|Out)", _CONV, FBW, "Winograd", "transform"),
    (r"miopenGcnAsmMPBidirectWinogradXform", _CONV, FB, "Winograd", "transform"),
    (r"(?:miopenS|s)p3AsmConv3x3F", _CONV, FB, "Winograd", "main"),
    (r"(?:miopenS|s)p3AsmConvRxS\w*_CBA", ("fusion",), (F,), "Winograd", "main"),
    (r"(?:miopenS|s)p3AsmConvRxS", _CONV, FBW, "Winograd", "main"),
    (r"miopenSp3AsmConv_v\d+", _CONV, FBW, "Winograd", "main"),
    (r"miopenSp3AsmConv(?:Fury|Rage)", _CONV, FB, "Winograd", "main"),
    # Direct
    (r"(?:miopenG|g)cnAsmConv(?:1x1|3x3)WrW", _CONV, (W,), "Direct", "main"),
    (r"(?:miopenG|g)cnAsmConv(?:1x1U|3x3U)", _CONV, FB, "Direct", "main"),
    (r"(?:miopenC|c)onv5x10u2v2b1", _CONV, (B,), "Direct", "main"),
    (r"(?:miopenC|c)onv5x10u2v2f1", _CONV, (F,), "Direct", "main"),
    (r"(?:miopenG|g)cnAsmConv7x7c3h224w224k64u2v2p3q3f1", _CONV, (F,), "Direct", "main"),
    (r"MIOpenConvUniBatchNormActiv", ("fusion",), (F,), "Direct", "main"),
    (r"MIOpen(?:Group)?ConvUni|MIOpenConv1x1", _CONV, FB, "Direct", "main"),
    (r"MIOpenCDFGen", _CONV, (F,), "Direct", "main"),
    (r"MIOpenCvFwd11x11|MIOpenCvD3x3_WSR0", _CONV, (F,), "Direct", "main"),
    (r"MIOpenCvBwd11x11", _CONV, (B,), "Direct", "main"),
    (r"M[IL]OpenCvBwdWrW\w*_rdc", _CONV, (W,), "Direct", "reduce"),
    (r"M[IL]OpenCvBwdWrW", _CONV, (W,), "Direct", "main"),
    (r"MIOpenConvBwdB", ("bias",), (W,), None, "main"),
    (r"naive_conv_(?:ab_)?(?:(?:non)?packed_)?fwd", _CONV, (F,), "Naive", "main"),
    (r"naive_conv_(?:ab_)?(?:(?:non)?packed_)?bwd", _CONV, (B,), "Naive", "main"),
    (r"naive_conv_(?:ab_)?(?:(?:non)?packed_)?wrw", _CONV, (W,), "Naive", "main"),
    (r"(?:SubSample|MIOpenSubsample)", _CONV, FW, "Direct", "subsample"),
    (r"UpSample", _CONV, (B,), "Direct", "upsample"),
    # Gemm
    (r"Im[23]?d?2?Col|Im2d2Col|Im3d2Col|aDNNConv_img2col", _CONV, FW, "Gemm", "im2col"),
    (r"Col2Im", _CONV, (B,), "Gemm", "col2im"),
    (r"transpose_(?:NCHW2CNHW|CNHW2NCHW)", _CONV, FBW, "Gemm", "transpose"),
    (r"transpose_packed_MN2NM|[tT]ranspose_?NCHW2Vec", _CONV, (F,), "Gemm", "transpose"),
    (r"miog_betac(?![a-z_])", _GEMM_USERS, (), "Gemm", "scale"),
    (r"\w*_betac$", _GEMM_USERS, (), "Gemm", "scale"),
    (r"Cijk_[A-Z]+(?:_G[AB])*$", _GEMM_USERS, (), "Gemm", "scale"),
    (r"Cijk_\w*(?:PostGSU|_Beta|SetZero)", _GEMM_USERS, (), "Gemm", "reduce"),
    (r"miog_copy[ab]", _GEMM_USERS, (), "Gemm", "copy"),
    (r"miog_nform[ab]", _GEMM_USERS, (), "Gemm", "reshape"),
    (r"Custom_Cijk_", _GEMM_USERS, (), "Gemm", "main"),
    (r"rocblas_gem[mv]_scal", _GEMM_USERS, (), "Gemm", "scale"),
    (r"rocblas_gemv\w*_reduce$", _GEMM_USERS, (), "Gemm", "reduce"),
    (r"Cijk_|miog_|tinygemm|miopengemm|rocblas_gem[mv]", _GEMM_USERS, (), "Gemm", "main"),
    # the ARM Compute Library has names with the same beginning
    (r"gemm_(?!ma_|accumulate_biases|reshape_|interleave4x4|transpose1x)", _GEMM_USERS, (), "Gemm", "main"),
    (r"rocblas_", _GEMM_USERS, (), "Gemm", "helper"),
    (r"cl_gemm|cl_fconv_", _CONV, (F,), "StaticCompiledGemm", "main"),
    # FFT
    (r"MIOpenConvFFT_cgemm", _CONV, FB, "FFT", "main"),
    (r"MIOpenConvFFT_transpose", _CONV, FB, "FFT", "transpose"),
    (r"MIOpenConvFFT_", _CONV, FB, "FFT", "transform"),
    # Implicit GEMM
    (r"gridwise_convolution_implicit_gemm_v4r1", _CONV, FW, "ImplicitGemm", "main"),
    (r"gridwise_convolution_(?:forward_)?implicit_gemm_v4r[45]", _CONV, (F,), "ImplicitGemm", "main"),
    (r"gridwise_convolution_backward_data_implicit_gemm", _CONV, (B,), "ImplicitGemm", "main"),
    (r"gridwise_convolution_backward_weights_implicit_gemm", _CONV, (W,), "ImplicitGemm", "main"),
    (r"igemm_v4r1_dynamic_wrw|igemm_wrw_gtc", _CONV, (W,), "ImplicitGemm", "main"),
    (r"igemm_v4r1_(?:1x1_)?dynamic|igemm_fwd_gtc", _CONV, (F,), "ImplicitGemm", "main"),
    (r"igemm_bwd_gtc", _CONV, (B,), "ImplicitGemm", "main"),
    (r"wrw_reduction_hip", _CONV, (W,), "ImplicitGemm", "reduce"),
    (r"convolution_forward_implicit_gemm_v6r1\w*_prepare", _CONV, (F,), "ImplicitGemm", "prepare"),
    (r"convolution_forward_implicit_gemm_v6r1", _CONV, (F,), "ImplicitGemm", "main"),
    (r"mlir_gen_igemm_conv\w*_fwd", _CONV, (F,), "ImplicitGemm", "main"),
    (r"mlir_gen_igemm_conv\w*_bwd", _CONV, (B,), "ImplicitGemm", "main"),
    (r"mlir_gen_igemm_conv\w*_wrw", _CONV, (W,), "ImplicitGemm", "main"),
    (r"kernel_grouped_conv_bwd_data", _CONV, (B,), "ImplicitGemm", "main"),
    (r"kernel_grouped_conv_bwd_weight|kernel_batched_gemm_xdlops_bwd_weight", _CONV, (W,), "ImplicitGemm", "main"),
    (r"kernel_grouped_conv_fwd|kernel_batched_gemm_multiple_d|kernel_conv\w*fwd", _CONV, (F,), "ImplicitGemm", "main"),
    (r"hipconv|family\[", _CONV, FBW, "ImplicitGemm", "main"),
    # Helpers of several
    # around solvers whose tensors have their channels last (miopen-log.md 11.3)
    (r"batched_transpose_|general_4d_reorder_", ("conv", "pool"), (), None, "transpose"),
    (r"UniversalTranspose", (), (), None, "transpose"),
    (r"SubTensorOpWithScalar", (), (), None, "fill"),
    (r"SubTensorOpWithCastTensor|CastTensor$", (), (), None, "cast"),
    (r"SubTensorOpWithSubTensor|SubTensorOpWithTransform", (), (), None, "copy"),
    (r"SetTensor$", (), (), None, "fill"),
    (r"ScaleTensor$", (), (), None, "scale"),
    (r"CopyTensor$", (), (), None, "copy"),
    (r"__amd_rocclr_fillBuffer", (), (), None, "fill"),
    (r"__amd_rocclr_copyBuffer", (), (), None, "copy"),
    (r"MIOpenCheckNumerics|check_numerics_", (), (), None, "check"),
    # Batch norm
    (r"(?:MIOpen)?BatchNormFwdTrain\w*(?:Mean|Variance)", ("bnorm",), (F,), None, "statistics"),
    (r"(?:MIOpen)?BatchNormFwd(?:Train|Infer)", ("bnorm",), (F,), None, "main"),
    (r"(?:MIOpen)?BatchNormBwd\w*(?:Mean|Variance|DScaleDBias)$", ("bnorm",), (B,), None, "statistics"),
    (r"(?:MIOpen)?BatchNormBwd", ("bnorm",), (B,), None, "main"),
    (r"MIOpenBatchNormActivBwd", ("fusion", "bnorm"), (B,), None, "main"),
    (r"MIOpenBatchNormActiv", ("fusion", "bnorm"), (F,), None, "main"),
    (r"(?:miopenG|g)cnAsmBNFwd", ("bnorm",), (F,), None, "main"),
    (r"(?:miopenG|g)cnAsmBNBwd", ("bnorm",), (B,), None, "main"),
    (r"kernel_\w*batchnorm\w*|kernel_welford|kernel_multiblock_", ("bnorm",), (), None, "main"),
    # Pooling
    (r"mloPooling(?:ND)?(?:Max|Ave)Bwd", ("pool",), (B,), None, "main"),
    (r"mloPooling", ("pool",), (F,), None, "main"),
    # LRN, activation, softmax
    (r"MIOpenLRN\w*Bwd", ("lrn",), (B,), None, "main"),
    (r"MIOpenLRN", ("lrn",), (F,), None, "main"),
    (r"MIOpenActiveFwd|MIOpenNeuronFwd", ("activ",), (F,), None, "main"),
    (r"MIOpenActiveBwd|MIOpenNeuronBwd", ("activ",), (B,), None, "main"),
    (r"SoftmaxForward|softmaxfwd", ("softmax",), (F,), None, "main"),
    (r"SoftmaxBackward|softmaxbwd", ("softmax",), (B,), None, "main"),
    (r"SoftMax(?:Warp|Block|Common)|ScaleReduce|fmha_fwd", ("mha",), (F,), None, "main"),
    (r"BwdAttention|fmha_bwd", ("mha",), (B,), None, "main"),
    (r"fmha_", ("mha",), (), None, "main"),
    # Tensor arithmetic, bias
    (r"OpTensorFwdBias", ("bias", "optensor"), (), None, "bias"),
    (r"Op[1-5]dTensor|OpTensor", _TENSOR, (), None, "main"),
    # RNN and the rest
    (r"LSTMFwdHidUpdate", ("rnn",), (F,), None, "main"),
    (r"LSTMBwdHidUpdate", ("rnn",), (B,), None, "main"),
    (r"CTCLossGPU", ("ctc",), (F,), None, "main"),
    (r"InitKernelState", ("dropoutstates",), (), None, "main"),
    (r"Dropout", ("dropout",), (), None, "main"),
    (r"gridwise_generic_reduc\w*_prepare", ("reduce",), (), None, "prepare"),
    (r"gridwise_generic_reduc", ("reduce",), (), None, "main"),
    (r"LayernormBwd|T5LayernormBwd\w*", ("layernorm", "t5layernorm"), (B,), None, "main"),
    (r"AddLayernorm", ("addlayernorm",), (F,), None, "main"),
    (r"T5Layernorm", ("t5layernorm",), (F,), None, "main"),
    (r"Layernorm", ("layernorm",), (F,), None, "main"),
    (r"GroupNorm", ("groupnorm",), (F,), None, "main"),
    (r"Argmax", ("argmax",), (F,), None, "main"),
    (r"Sum\w*FwdContiguous|Calculation\w*FwdContiguous|ReduceSum", ("sum", "reducecalculation"), (F,), None, "main"),
    (r"Extreme", ("reduceextreme",), (F,), None, "main"),
    (r"Cat\d+FwdPacked", ("cat",), (F,), None, "main"),
    (r"GetItemBuildIndices", ("getitem",), (B,), None, "prepare"),
    (r"Getitem", ("getitem",), (B,), None, "main"),
    (r"KthvalueFwd", ("kthvalue",), (F,), None, "main"),
    (r"GLU\w*Bwd", ("glu",), (B,), None, "main"),
    (r"GLU", ("glu",), (F,), None, "main"),
    (r"RoPE\w*Bwd", ("rope",), (B,), None, "main"),
    (r"RoPE", ("rope",), (F,), None, "main"),
    (r"PReLU", ("prelu",), (B,), None, "main"),
    (r"SoftMarginLoss\w*(?:Bwd|Backward)", ("softmarginloss",), (B,), None, "main"),
    (r"SoftMarginLoss", ("softmarginloss",), (F,), None, "main"),
    (r"MultiMarginLoss", ("multimarginloss",), (F,), None, "main"),
    (r"(?:Transformers)?(?:Amp)?Adam", ("adam",), (), None, "main"),
)  # fmt: skip
# Helpers that MIOpen does not have: regular expressions for whole names.
_OTHERS: tuple[tuple[str, str], ...] = (
    # Caffe (GREENTEA) and its LibDNN
    (r"im2col(?:_nd)?_(?:float|double|half)", "im2col"),
    (r"col2im(?:_nd)?_(?:float|double|half)", "col2im"),
    (r"fillbuffer_\w+|fill_(?:float|double|half|char|int|uint|memory)", "fill"),  # of a name that a tool cut off, too
    # CLBlast (dvdt-ck.md 5): a padding copy is what the indirect GEMM puts before its kernel
    (r"Xim2col(?:Kernel(?:Normal|Flip)?)?|im2col", "im2col"),
    (r"Xcol2im(?:Kernel(?:Normal|Flip)?)?|col2im", "col2im"),
    (r"Transpose(?:Pad)?Matrix(?:Fast|Batched|StridedBatched)?", "transpose"),
    (r"CopyPadMatrix(?:Batched|StridedBatched)?", "pad"),
    (r"CopyMatrix(?:Fast|Batched|StridedBatched)?|(?:Symm|Herm|Tria)(?:Lower|Upper)ToSquared", "copy"),
    (r"Fill(?:Matrix|Vector)", "fill"),
    # the first name of MIOpenGEMM
    (r"tg_copy[ab]", "copy"),
    (r"tg_nform[ab]", "reshape"),
    # ARM Compute Library
    (r"im2col\d?(?:x\d)?(?:_[a-z0-9_]+)?", "im2col"),
    (r"col2im(?:_[a-z0-9_]+)?", "col2im"),
    (r"gemm_(?:reshape_[lr]hs_matrix_|interleave4x4)\w*", "reshape"),
    (r"gemm_transpose1x\w+", "transpose"),
    (r"gemm_ma_\w+|gemm_accumulate_biases", "bias"),
    (r"fill_image_borders_\w+", "pad"),
    # RCCL, NCCL, and Microsoft's schedules in them: one process's part of a collective
    (r"(?:nccl|rccl|msccl)\w+", "collective"),
    # kernels of serving engines (vLLM, SGLang, AITER), MSCCL++
    (r"cross_device_reduce\w*|quickreduce\w*|all_?reduce\w*|reduce_?scatter\w*", "collective"),
    (r"all_?gather\w*|all_?to_?all\w*|allToAll\w*|A(?:ll[Rr]educe|ll[Gg]ather|llToAll)\w*", "collective"),
    (r"Reduce(?:Scatter|_scatter)\w*|invoke_barrier", "collective"),  # oneCCL, too
    # PyTorch's symmetric memory, FlashInfer, TensorRT-LLM
    (r"(?:multimem|one_?shot|two_?shot|lamport_style_one_shot)_(?:all|reduce)\w+", "collective"),
    (r"(?:one|two)[sS]hotAll[rR]educe\w*|moe(?:finalize|reduction|reduce)_allreduce_\w+", "collective"),
    (r"(?:barrier|put_signal|wait_signal)_kernel|moeA2A(?:Dispatch|Combine)\w*", "collective"),
    # Transformer Engine, NVSHMEM
    (r"k?userbuffers_\w+|nvshmem\w+", "collective"),
    # MORI
    (r"Ep(?:Dispatch|Combine)\w+|OneShotAll(?:2all|Gather|Reduce)\w+", "collective"),
    # cuDNN
    (r"nchwToNhwcKernel|nhwcToNchwKernel", "transpose"),
    # of any library
    (r"(?:batched_)?transpose_\w+", "transpose"),
)


def _of_miopen(row: _Row) -> KernelName:
    _, primitives, directions, algorithm, role = row
    return KernelName(role=role, miopen=True, primitives=primitives, directions=directions, algorithm=algorithm)


_Pattern = tuple[tuple[str, ...], re.Pattern[str], KernelName]
PATTERNS: tuple[_Pattern, ...] = (
    *((beginnings(row[0]), late(row[0]), _of_miopen(row)) for row in _MIOPEN),
    *((beginnings(pattern), late(f"(?:{pattern})$"), KernelName(role=role)) for pattern, role in _OTHERS),
)
"""The beginning of a name (a fast check before the expression), the expression, and its meaning."""

_EXCHANGE = late(
    r"(?:void )?(?:[A-Za-z_]\w*::)*"
    r"(?:(?:intranode|internode|internode_ll)::\w|hybrid_ep::(?:dispatch|combine|device_sync)_)"
)
"""DeepEP's exchange of tokens between ranks. Only the namespace distinguishes its ``dispatch`` and ``combine``."""
_SCOPE = late(r"^(?:[A-Za-z_]\w*+::|\(anonymous namespace\)::)+")
_LENGTH = late(r"[0-9]{1,4}")
_CONDITION = late(r"(?:typename )?(?:\w+::){0,9}enable_if<.*?>::type (?=[A-Za-z_])", re.DOTALL)
"""A return type that holds only under a condition; kernels return nothing else than void."""
_ARGUMENTS = late(r"[<(]")
_VERSION = late(r"_gfx[0-9a-f]{3,5}(?:_v?\d+)*$")


def normalise(name: str) -> str:
    """Return the name without clone suffix, return type, namespace and template arguments; of mangled names the last
    part."""
    name = name.removesuffix(" [clone .kd]").removesuffix(".kd").strip()
    if name.startswith("_Z"):
        last = ""
        at = len(name) - len(name[2:].lstrip("NKL"))
        while (found := _LENGTH.match(name, at)) is not None:
            at = found.end() + int(found[0])
            last = name[found.end() : at]
            at += name[at : at + 1] == "L"  # a name that only its own file knows
        return last or name
    name = name.removeprefix("void ")
    if "enable_if<" in name and (condition := _CONDITION.match(name)) is not None:
        name = name[condition.end() :]
    head = _ARGUMENTS.split(name.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
    return _SCOPE.sub("", head).strip() or name


@lru_cache(maxsize=1 << 12)
def kernel_name(name: str) -> KernelName | None:
    """Return the meaning of a kernel's name; None for a name without a row."""
    if ("node" in name or "hybrid_ep" in name) and _EXCHANGE.match(name) is not None:
        return KernelName(role="collective")
    return _meaning(normalise(stem(name)))


def _meaning(plain: str) -> KernelName | None:
    return next((means for begins, form, means in PATTERNS if plain.startswith(begins) and form.match(plain)), None)


@lru_cache(maxsize=1 << 12)
def stem(name: str) -> str:
    """Return the name without the device and version that a build appended. A name in small letters that has no row
    gets the spelling of the table."""
    name = _VERSION.sub("", name)
    if name == name.lower() and _meaning(normalise(name)) is None:
        spelt = (begin for begins, *_ in PATTERNS for begin in begins if name.startswith(begin.lower()))
        longest = max(spelt, key=len, default="")
        rest = name[len(longest) :]
        # `dropout_forward_float` is Caffe's own kernel, not MIOpen's `DropoutForward`.
        return name if rest.startswith("_") else longest + rest
    return name


# -- Names that a tool cut off -----------------------------------------------------------------------------------------

FEWEST = 3
"""Names were cut off at the length of the longest name if at least this many different names have that length."""
HELPER = "helper"
_ENDS = late(r"\$|\(\?!")
"""Characters in a row's expression that mark the end of a name."""
_T = TypeVar("_T")


def cut_at(names: AbstractSet[str]) -> int:
    """Return the length at which these names were cut off, 0 if they were not.

    Several names have the length of the longest one, and one of them is not a name of MIOpen but the beginning of one.
    """
    longest = max(map(len, names), default=0)
    ends = [name for name in names if len(name) == longest]
    if len(ends) < FEWEST:
        return 0
    begins = _beginnings()
    begun = [name for name in ends if normalise(name) in begins]
    return longest if any(kernel_name(name) is None and cut_name(name) for name in begun) else 0


def left_of(name: str, cut: int) -> str:
    """Return the part of a whole name that is left if names were cut off at that length; 0: all."""
    return name[:cut] if cut else name


@cache
def _beginnings() -> frozenset[str]:
    """Return every beginning of the literal beginnings in the table."""
    return frozenset(begin[:end] for begins, _, _ in PATTERNS for begin in begins for end in range(1, len(begin) + 1))


@lru_cache(maxsize=1 << 12)
def cut_name(name: str) -> KernelName | None:
    """Return the common meaning of all names of MIOpen that begin with ``name``; None if there is no such name.

    The role is empty if the kernel may be a main or an auxiliary one; so is the algorithm if there are several.
    """
    plain = normalise(name)
    meanings = [means for means in _meanings(plain) if means.miopen]
    if not meanings:
        return None
    roles = [means.role for means in meanings]
    algorithms = [means.algorithm for means in meanings]
    return KernelName(
        role=_role(roles),
        miopen=True,
        primitives=_all(means.primitives for means in meanings),
        directions=_all(means.directions for means in meanings),
        algorithm=algorithms[0] if len(set(algorithms)) == 1 else "",
    )


def in_full(name: str, among: Collection[str]) -> str | None:
    """Return the one of these names that begins with ``name``; ``name`` if there is none, None if there are several."""
    whole = [one for one in among if one.startswith(name)]
    return name if not whole else whole[0] if len(whole) == 1 else None


def _meanings(plain: str) -> list[KernelName]:
    """Return the rows to which a name with this beginning may belong; none after a row that matches the name as it is.

    A row whose beginning is followed by any text is also possible; by itself it shows nothing.
    """
    meanings, is_one = [], False
    for begins, form, means in PATTERNS:
        fits = plain.startswith(begins) and form.match(plain) is not None
        if fits or any(begin.startswith(plain) for begin in begins):
            meanings.append(means)
            is_one = True
        elif "\\w" in form.pattern and any(begin and plain.startswith(begin) for begin in begins):
            meanings.append(means)
        if fits and not _ENDS.search(form.pattern):
            break
    return meanings if is_one else []


def _role(roles: Sequence[str]) -> str:
    if len(set(roles)) == 1:
        return roles[0]
    works = {role in WORK for role in roles}
    return "" if len(works) > 1 else "main" if works.pop() else HELPER


def _all(choices: Iterable[tuple[_T, ...]]) -> tuple[_T, ...]:
    """Return the values of all choices; empty (any value) if one choice is empty."""
    rows = [*choices]
    return tuple(dict.fromkeys(one for row in rows for one in row)) if all(rows) else ()


# -- Short names -------------------------------------------------------------------------------------------------------

_TENSILE = late(r"Cijk_(?P<layout>[A-Z][a-z]{3}_[A-Z][a-z]{3})_(?P<rest>.*)", re.ASCII)
_TYPES = late(r"[A-Z0-9]{1,6}(?:_[BHS]+)*(?=_|$)", re.ASCII)
_TILE = late(r"MT\d+x\d+x\d+", re.ASCII)
_WORD = late(r"[A-Za-z_]\w*", re.ASCII)
_WRAPPERS = ("elementwise_kernel", "reduce_kernel", "multi_tensor_apply_kernel")
_FUNCTOR = late(
    r"\w{2,}Ops?|launch_\w+|\w+_kernel(?:_cuda|_impl)?|\w+_cuda(?:_kernel|_out)?|\w+KernelImpl|\w+_copy",
    re.ASCII,
)
_PASSED_ON = late(r"gpu_kernel_\w+|[AB]UnaryFunctor|BinaryFunctor|ReduceOp|func_wrapper_t", re.ASCII)
"""Kernels that apply a functor and are named after it."""
_NOISE = late(r"CUDAFunctor(?:OnSelf)?_|_kernel_cuda$|_cuda_kernel$|_kernel_impl$|_kernel$", re.ASCII)
_LENGTH_OF_WORD = late(r"(?<!\d)\d{1,2}(?=[A-Za-z_])", re.ASCII)
_ENTRIES = ("kentry", "Kernel", "Kernel2", "device_kernel")
"""The entry points of all kernels of ck_tile and of CUTLASS: the template argument names the kernel."""
_CLASS = late(r"(?:^|[<,] *)(?:[A-Za-z_]\w*::)*(?P<name>[A-Za-z_]\w*)(?=[<,> ]|$)", re.ASCII)
_VALUES = ("true", "false", "int", "void")
_LONGEST = 2000
_COMMON = 14
"""Characters that stay at the beginning if the middle of a name is left out."""
_LEAST_DIFFERENCE = 14
"""Characters from the place where names with equal short forms differ."""
_WORD_SHOWN = 12
"""Characters of a word that are shown before the difference."""
SLICE_NAME = 64
"""Characters of a kernel's name on its slice; the arguments have the whole name."""


def short_kernel(name: str) -> str:
    """Return the part of a name that distinguishes it inside its library: type and macro tile for Tensile, the functor
    for PyTorch."""
    plain = normalise(name)
    found = _TENSILE.match(plain)
    if found is not None:
        types, tile = _TYPES.match(found["rest"]), _TILE.search(found["rest"])
        parts = ["Cijk", found["layout"], types[0] if types else "", tile[0] if tile else ""]
        return " ".join(filter(None, parts))
    inner = ""
    if any(wrapper in plain for wrapper in _WRAPPERS):
        inner = _functor(name.partition("<")[2][:_LONGEST])
    elif plain in _ENTRIES:
        return _class(name[:_LONGEST], plain) or plain
    return f"{inner} ({plain})" if inner else plain


def _class(name: str, entry: str) -> str:
    """Return the class that an entry point runs; empty if the name does not contain it."""
    _, opened, arguments = name.partition(f"{entry}<")
    if opened:
        words: Iterator[str] = (found["name"] for found in _CLASS.finditer(arguments))
    else:
        words = (word for word in _mangled(name.partition(entry)[2]) if len(word) > len("tuple"))
    return next((word for word in words if word not in _VALUES and not word.startswith("gfx")), "")


def _functor(arguments: str) -> str:
    words = (word for word in _WORD.findall(arguments) if "unctor" in word or _FUNCTOR.fullmatch(word))
    functor = next((word for word in words if not _PASSED_ON.fullmatch(word)), "")
    return _NOISE.sub("", functor) or functor


def _mangled(text: str) -> Iterator[str]:
    """Return the names in a mangled name: each follows its length."""
    at = 0
    while (found := _LENGTH_OF_WORD.search(text, at)) is not None:
        at = found.end() + int(found[0])
        yield text[found.end() : at]


def slice_names(names: Collection[str]) -> dict[str, str]:
    """Return for each full name of a kernel the name of its slices: short and distinct."""
    full = sorted(names)
    short = [short_kernel(name) or "unnamed kernel" for name in full]
    return dict(zip(full, distinct(full, short, SLICE_NAME), strict=True))


def distinct(names: Sequence[str], shown: Sequence[str], width: int) -> list[str]:
    """Return ``shown``, short forms of ``names``, cut to ``width``; equal short forms show the part that differs."""
    cut = [shortened(text, width) for text in shown]
    for _ in range(2):  # names that differ in several places may still look equal
        for group in _equal(names, cut, width):
            at = len(commonprefix([names[one] for one in group]))  # noqa: RUF071 - characters are meant
            for one in group:
                if cut[one] != names[one]:
                    cut[one] = _middle_cut(names[one], shown[one], at, width)
    taken = set(cut)
    numbered: dict[str, dict[str, str]] = {}
    for one, text in enumerate(cut):
        texts = numbered.setdefault(text, {})
        if names[one] not in texts:
            texts[names[one]] = text if not texts else _numbered(text, len(texts) + 1, width, taken)
            taken.add(texts[names[one]])
        cut[one] = texts[names[one]]
    return cut


def _numbered(text: str, number: int, width: int, taken: Collection[str]) -> str:
    """Return the text with the first number from ``number`` on that makes it distinct from ``taken``."""
    while (made := f"{shortened(text, width - len(f' #{number}'))} #{number}") in taken:
        number += 1
    return made


def _equal(names: Sequence[str], cut: Sequence[str], width: int) -> Iterator[list[int]]:
    """Return positions that look equal although their names differ: also a name whose end is cut off, and a name with
    the same beginning."""
    ends = {text for text in cut if len(text) == width and text.endswith("...")}
    groups: dict[str, list[int]] = {}
    for at, text in enumerate(cut):
        end = f"{text[: width - 3]}..."
        groups.setdefault(end if end in ends else text, []).append(at)
    return (group for group in groups.values() if len({names[one] for one in group}) > 1)


def _middle_cut(name: str, shown: str, at: int, width: int) -> str:
    """Return the short form or the beginning, and the part from ``at`` on, where the name differs from others."""
    common, difference = (min(least, (width - 3) // 2) for least in (_COMMON, _LEAST_DIFFERENCE))
    if shown != name and not name.startswith(shown[:common]):
        head = shortened(shown, width - difference - 3)
        begin = max(name.rfind(mark, 0, at) for mark in "_ <,:(") + 1
        return f"{head} ..{shortened(name[begin if at - begin <= _WORD_SHOWN else at :], width - len(head) - 3)}"
    room = width - common - 3
    begin = max(name.rfind(mark, 0, at) for mark in "_ <,:(") + 1
    if begin <= common and at < width - 3:
        return shortened(name, width)
    if begin <= common or at - begin > room - 4:  # the word is too long to be shown up to the difference
        begin = number_at(name, max(at - room // 2, common))[0]
    return f"{name[: number_at(name, common)[0]]}...{shortened(name[begin:], room)}"


# The build options of a program, if the name of its kernel is in no table

_MACRO = late(r"-D\s*(\w+)=(\d{1,9})\b")
_LIBRARY = late(r"(?:\b|-D\s*)(?:MLO|MIOPEN|MIO)_")
_CHANNELS = ("MLO_N_OUTPUTS", "MLO_N_INPUTS")
_FILTER = ("MLO_FILTER_SIZE1", "MLO_FILTER_SIZE0")
_STATED: tuple[_Row, ...] = (
    (r"-D\s*MLO_POOL", ("pool",), (), "", ""),
    (r"-D\s*MIO_BN_", ("bnorm", "fusion"), (), "", ""),
    (r"-D\s*MLO_LRN_", ("lrn",), (), "", ""),
    (r"-D\s*MLO_CONVBWDB_", ("bias",), (W,), "", ""),
    (r"-D\s*(?:MIOPEN|MLO)_NRN_", ("activ", "fusion"), (), "", ""),
    (r"-D\s*NUM_IM_BLKS\b", ("conv",), FW, "Gemm", "im2col"),
    (r"-D\s*IS_2D_WG\b", ("conv",), FBW, "Gemm", "transpose"),
    (r"-D\s*MLO_(?:FILTER|FLTR)_", ("conv", "fusion"), (), "", ""),
    (r"-D\s*U_BATCH_SIZE\b", ("softmax",), (), "", ""),
    (r"-D\s*MIOPEN_TENSOR_OP\b", _TENSOR, (), "", ""),
    (r"-D\s*(?:SUBTENSOR_OP_|MIOPEN_ALPHA_TYPE)", (), (), None, "helper"),
)
_PROGRAMS = tuple((late(row[0]), _of_miopen(row)) for row in _STATED)
"""Macros of MIOpen's programs and the meaning of their kernels; the first match counts. 0 of 1930 kernels with truth
are of another primitive."""


class Stated(msgspec.Struct, frozen=True):
    """Facts from build options: numbers, direction, filter, channels, whether MIOpen's; the meaning of any kernel."""

    numbers: frozenset[int]
    forward: bool | None
    filters: tuple[int, ...]
    channels: tuple[int, ...]
    library: bool
    meaning: KernelName | None


@lru_cache(maxsize=1 << 12)
def read_options(options: str) -> Stated:
    macros = {name: int(value) for name, value in _MACRO.findall(options)}
    forward = macros.get("MLO_DIR_FORWARD")
    return Stated(
        numbers=frozenset(macros.values()),
        forward=None if forward is None else forward != 0,
        filters=tuple(macros[name] for name in _FILTER) if macros.keys() >= {*_FILTER} else (),
        channels=tuple(macros[name] for name in _CHANNELS) if macros.keys() >= {*_CHANNELS} else (),
        library=_LIBRARY.search(options) is not None,
        meaning=next((meaning for macro, meaning in _PROGRAMS if macro.search(options)), None),
    )


def directions_of(name: KernelName | None, stated: Stated) -> tuple[OperationDirection, ...]:
    """Return the directions that name and options allow."""
    directions = () if name is None else name.directions
    if stated.forward is None or len(directions) == 1 or name is None:
        return directions
    return tuple(one for one in directions or FBW if (one == "forward") == stated.forward) or directions
