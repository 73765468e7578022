"""MIOpenGEMM (dvdt-ck.md 5; MIOpenGEMM alphagenerator.cpp, derivedparams.cpp): sizes are macros of the program.

A program is generated for one geometry. The main kernel's source states K, and how many macro tiles cover M and N;
helpers (miog_betac, miog_copya, ...) are roles by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from mio2trace.kernels.facts import MAIN, KernelFact
from mio2trace.kernels.rows import Context, Place, row
from mio2trace.kernels.sources import whole
from mio2trace.model.gemm import Gemm
from mio2trace.model.profile import Activity
from mio2trace.patterns import late

_GEOMETRY = late(r"/\*\s*tC\d_tA\d_tB\d_colMaj\d_m([0-9]{1,18})_n([0-9]{1,18})_k([0-9]{1,18})_lda")


def _sizes(context: Context, program: int, name: str) -> tuple[Gemm, int | None] | None:
    """The GEMM of a program, and the global work size that it asks for."""
    macros = context.sources.defines(program, name)
    m, n = _covered(macros, "A"), _covered(macros, "B")
    k = whole(macros, "KV__") or whole(macros, "__K__")
    if not (m and n and k):
        return None
    geometry = _GEOMETRY.search(context.sources.text(program))
    if geometry and tuple(map(int, geometry.groups())) != (m, n, k):
        return None
    return Gemm(m, n, k), whole(macros, "GLOBAL_WORK_SIZE")


def _covered(macros: Mapping[str, str], matrix: str) -> int | None:
    """What the macro tiles of A (or B) cover of M (or N): the last one only its ``PRESHIFT_FINAL_TILE``."""
    groups, tile = whole(macros, f"N_GROUPS_{matrix}"), whole(macros, f"MACRO_TILE_LENGTH_{matrix}")
    if not (groups and tile):
        return None
    last = f"PRESHIFT_FINAL_TILE_{matrix}"
    if last not in macros:
        return groups * tile
    final = whole(macros, last)
    return (groups - 1) * tile + final if final and final <= tile else None


def _find(context: Context, places: list[Place]) -> None:
    known: dict[tuple[int | None, str], tuple[Gemm, int | None] | None] = {}
    for line, index in places:
        activity = context.activities[line[index]]
        key = activity.opencl.program, activity.name
        if key not in known:
            program = context.sources.program_of(*key)
            known[key] = None if program is None else _sizes(context, program, activity.name)
        context.facts[line[index]] = _fact(activity, known[key])


def _fact(activity: Activity, sizes: tuple[Gemm, int | None] | None) -> KernelFact:
    if sizes is None:
        return MAIN
    gemm, work_items = sizes
    if work_items and activity.grid and activity.grid[0] != work_items:
        return MAIN  # another program's kernel
    return KernelFact(role="main", gemm=gemm, gemm_by="source")


ROWS = (row("MIOpenGEMM", "(miog|tg)_(betac_)?alphaab", _find),)
