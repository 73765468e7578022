"""Helper kernels that their name tells. A row is a pattern for whole names; the first row that fits decides."""

from __future__ import annotations

import re

_ROWS: tuple[tuple[str, str], ...] = (
    # Caffe (GREENTEA) and its LibDNN
    (r"im2col(_nd)?_(float|double|half)", "im2col"),
    (r"col2im(_nd)?_(float|double|half)", "col2im"),
    (r"fill(buffer)?_(float|double|half|char|int|uint)|fill_memory", "fill"),
    # CLBlast (dvdt-ck.md 5): a padding copy is what the indirect GEMM puts before its kernel
    (r"Xim2col(Kernel(Normal|Flip)?)?|im2col", "im2col"),
    (r"Xcol2im(Kernel(Normal|Flip)?)?|col2im", "col2im"),
    (r"Transpose(Pad)?Matrix(Fast|Batched|StridedBatched)?", "transpose"),
    (r"CopyPadMatrix(Batched|StridedBatched)?", "pad"),
    (r"CopyMatrix(Fast|Batched|StridedBatched)?|(Symm|Herm|Tria)(Lower|Upper)ToSquared", "copy"),
    (r"Fill(Matrix|Vector)", "fill"),
    # MIOpenGEMM
    (r"(miog|tg)_betac", "scale"),
    (r"(miog|tg)_copy[ab]", "copy"),
    (r"(miog|tg)_nform[ab]", "reshape"),
    # ARM Compute Library
    (r"im2col\d?(x\d)?(_[a-z0-9_]+)?", "im2col"),
    (r"col2im(_[a-z0-9_]+)?", "col2im"),
    (r"gemm_(reshape_[lr]hs_matrix_|interleave4x4)\w*", "reshape"),
    (r"gemm_transpose1x\w+", "transpose"),
    (r"gemm_ma_\w+|gemm_accumulate_biases", "bias"),
    (r"fill_image_borders_\w+", "pad"),
    # MIOpen (miopen-log.md, kernel-name table)
    (r"Im2Col\w*|Im[23]d2Col\w*|aDNNConv_img2col", "im2col"),
    (r"Col2Im\w*", "col2im"),
    (r"(batched_)?transpose_\w+", "transpose"),
    (r"SubTensorOpWithScalar\w*|SetTensor", "fill"),
    (r"SubTensorOpWithCastTensor\w*|CastTensor", "cast"),
    (r"SubTensorOpWithSubTensor\w*|CopyTensor", "copy"),
    (r"MIOpenCvBwdWrW_rdc|wrw_reduction_hip", "reduce"),
    # The HIP runtime
    (r"__amd_rocclr_fillBuffer\w*", "fill"),
    (r"__amd_rocclr_copyBuffer\w*", "copy"),
)
_ROLES = tuple((re.compile(pattern), role) for pattern, role in _ROWS)


def role_of(name: str) -> str:
    """The helper that a kernel of this name is, ``""`` when the name does not tell."""
    for pattern, role in _ROLES:
        if pattern.fullmatch(name):
            return role
    return ""
