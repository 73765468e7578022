"""clBLAS (dvdt-ck.md 5; clBLAS src/library/blas/xgemm.cc): one GEMM is a tile, a row, a column and a corner kernel.

Each is enqueued only where the sizes leave something for it, and all of them carry the same M, N, K. Row-major callers
arrive here as column-major ones with A and B, M and N exchanged: the sizes are those of the kernels.
"""

from __future__ import annotations

import functools

from mio2trace.kernels.facts import MAIN, KernelFact, argument, size
from mio2trace.kernels.rows import Context, Place, row
from mio2trace.model.gemm import Gemm
from mio2trace.patterns import late

# Row, column and corner kernels have L (less than a tile) for X; hand-made ones have a suffix and a tile kernel beside
# them (GemmSpecialCases.cpp).
_NAME = late(
    r"[sdcz]gemm_(?:Col|Row)_[NTC]{2}_B[01]_M(?P<m>[XL])(?P<rows>0{0,3}[1-9][0-9]{0,8})"
    r"_N(?P<n>[XL])(?P<columns>0{0,3}[1-9][0-9]{0,8})_KX[0-9]+"
    r"(?P<beside>_ROW|_COLUMN|_SINGLE)?"
)
_MAY_BE_SPLIT = late(r"sgemm_Col_NT_B1_MX(128_NX128|096_NX096)_KX16")


@functools.lru_cache(maxsize=1 << 12)
def _fact(name: str, arguments: tuple[str, ...]) -> KernelFact:
    """The GEMM stands on the first of its kernels: the tile kernel when there is one."""
    match = _NAME.fullmatch(name)
    m, n, k = (size(argument(arguments, index)) for index in (5, 6, 7))
    if match is None or match["beside"] or not (m and n and k):
        return MAIN
    # Which of the four come first follows from the sizes: tile and column need a whole tile of rows, tile and row a
    # whole tile of columns.
    rows, columns = m // int(match["rows"]) > 0, n // int(match["columns"]) > 0
    if (match["m"] == "X", match["n"] == "X") != (rows, columns):
        return MAIN
    if _MAY_BE_SPLIT.fullmatch(name):
        lda, ldb = size(argument(arguments, 8)), size(argument(arguments, 9))
        if lda is None or (lda == ldb and lda in (6144, 7168, 8192)):
            return MAIN  # perhaps one of the 4 or 16 products into which clBLAS cuts such a GEMM
    return KernelFact(role="main", gemm=Gemm(m, n, k), gemm_by="arguments")


def _find(context: Context, places: list[Place]) -> None:
    for line, index in places:
        activity = context.activities[line[index]]
        context.facts[line[index]] = _fact(activity.name, activity.opencl.arguments)


ROWS = (row("clBLAS", _NAME.pattern, _find),)
