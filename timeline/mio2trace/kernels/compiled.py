"""GEMMs whose program was compiled for their sizes (dvdt-ck.md 5): ARM Compute Library and MIOpenGEMM."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from mio2trace.kernels.facts import MAIN, Context, KernelFact, Place, each_alone, row, size
from mio2trace.kernels.sources import whole
from mio2trace.model.gemm import Gemm
from mio2trace.model.profile import Activity, Size3
from mio2trace.patterns import late

# -- ARM Compute Library -----------------------------------------------------------------------------------------------
#
# ComputeLibrary CLGEMMMatrixMultiply*, ClGemmMatrixMultiply*.
#
# 2019 to mid 2021 the sizes are build options, later the last three arguments. The kernels of 2018 state K only; their
# M and N could be had from the work size, but rounded up, and are left out.

_OPTION = late(r"(?:^|\s)-D(\w+)=([0-9]{1,18})(?=\s|$)")


@functools.lru_cache(maxsize=1 << 12)
def _armcl_fact(name: str, arguments: tuple[str, ...], options: str, gws: Size3 | None) -> KernelFact:
    if gws is None or gws[2] < 1:
        return MAIN
    stated = {key: int(value) for key, value in _OPTION.findall(options)}
    by_options = "M" in stated or "N" in stated or "K" in stated
    if by_options:
        m, n, k = stated.get("M"), stated.get("N"), stated.get("K")
    else:
        m, n, k = (size(value) for value in arguments[-3:]) if len(arguments) > 3 else (None, None, None)
    if not (m and n and k):
        return MAIN
    blocks = [(m, "M0", gws[1]), (n, "N0", gws[0])]
    # Options may be cut (dvdt-ck.md 1.7). Then the last arguments may be something else, so the block sizes are needed.
    if not by_options and not all(option in stated for _, option, _ in blocks):
        return MAIN
    idle = "-DDUMMY_WORK_ITEMS" in options
    if not all(_agrees(*block, stated, idle, "_mmul" in name) for block in blocks):
        return MAIN
    # The third dimension of the work size is the batch.
    return KernelFact(role="main", gemm=Gemm(m, n, k, gws[2]), gemm_by="build options" if by_options else "arguments")


def _agrees(length: int, option: str, items: int, stated: dict[str, int], idle: bool, mmul: bool) -> bool:
    """Return whether block size, remainder of the last block, and work items confirm M or N."""
    block = stated.get(option, 0)
    if not block:
        return option not in stated
    for left_over in (f"PARTIAL_STORE_{option}", f"{option}_LEFTOVER"):
        if stated.get(left_over, length % block) != length % block:
            return False
    if mmul:  # 16 work items share their blocks, so the work size is less specific
        return True
    blocks = -(-length // block)
    # Idle items fill up to a power of two.
    return items == blocks or (idle and items == 1 << (blocks - 1).bit_length())


def _armcl(context: Context, kernel: Activity) -> KernelFact:
    programs, program = context.profile.opencl.programs, kernel.opencl.program
    options = programs[program].options if program is not None and program < len(programs) else ""
    return _armcl_fact(kernel.name, kernel.opencl.arguments, options, kernel.grid)


# -- MIOpenGEMM --------------------------------------------------------------------------------------------------------
#
# MIOpenGEMM alphagenerator.cpp, derivedparams.cpp: sizes are macros of the program.
#
# A program is generated for one geometry. The main kernel's source states K, and how many macro tiles cover M and N;
# helpers (miog_betac, miog_copya, ...) are roles by name.

_GEOMETRY = late(r"/\*\s*tC\d_tA\d_tB\d_colMaj\d_m([0-9]{1,18})_n([0-9]{1,18})_k([0-9]{1,18})_lda")


def _sizes(context: Context, program: int, name: str) -> tuple[KernelFact, int | None]:
    """Return the GEMM of a program, and the global work size that it asks for."""
    macros = context.sources.defines(program, name)
    m, n = _covered(macros, "A"), _covered(macros, "B")
    k = whole(macros, "KV__") or whole(macros, "__K__")
    if not (m and n and k):
        return MAIN, None
    geometry = _GEOMETRY.search(context.sources.text(program))
    if geometry and tuple(map(int, geometry.groups())) != (m, n, k):
        return MAIN, None
    return KernelFact(role="main", gemm=Gemm(m, n, k), gemm_by="source"), whole(macros, "GLOBAL_WORK_SIZE")


def _covered(macros: Mapping[str, str], matrix: str) -> int | None:
    """Return how much of M (or N) the macro tiles of A (or B) cover: the last tile only its ``PRESHIFT_FINAL_TILE``."""
    groups, tile = whole(macros, f"N_GROUPS_{matrix}"), whole(macros, f"MACRO_TILE_LENGTH_{matrix}")
    if not (groups and tile):
        return None
    last = f"PRESHIFT_FINAL_TILE_{matrix}"
    if last not in macros:
        return groups * tile
    final = whole(macros, last)
    return (groups - 1) * tile + final if final and final <= tile else None


def _find_miopengemm(context: Context, places: list[Place]) -> None:
    known: dict[tuple[int | None, str], tuple[KernelFact, int | None]] = {}
    for line, index in places:
        activity = context.activities[line[index]]
        key = activity.opencl.program, activity.name
        if key not in known:
            program = context.sources.program_of(*key)
            known[key] = (MAIN, None) if program is None else _sizes(context, program, activity.name)
        fact, work_items = known[key]
        is_another = work_items and activity.grid and activity.grid[0] != work_items  # another program's kernel
        context.facts[line[index]] = MAIN if is_another else fact


MIOPENGEMM_ROWS = (row("MIOpenGEMM", "(miog|tg)_(betac_)?alphaab", _find_miopengemm),)
ARMCL_ROWS = (
    row(
        "ARM CL",
        r"gemm_mm_(reshaped_lhs_n?t_rhs_n?t|reshaped_only_rhs_n?t(_mmul)?)(_texture)?(_fp16)?|gemm_mm_native",
        each_alone(_armcl),
    ),
    row("ARM CL", r"gemm_mm_(floating_point|interleaved_transposed)\w*", each_alone(lambda context, kernel: MAIN)),
)
