"""ARM Compute Library (dvdt-ck.md 5; ComputeLibrary CLGEMMMatrixMultiply*, ClGemmMatrixMultiply*).

2019 to mid 2021 the sizes are build options, later the last three arguments. The kernels of 2018 state K only; their
M and N could be had from the work size, but rounded up, and are left out.
"""

from __future__ import annotations

import functools

from mio2trace.kernels.facts import MAIN, KernelFact, size
from mio2trace.kernels.rows import Context, Place, row
from mio2trace.model.gemm import Gemm
from mio2trace.model.profile import Size3
from mio2trace.patterns import late

_OPTION = late(r"(?:^|\s)-D(\w+)=([0-9]{1,18})(?=\s|$)")


@functools.lru_cache(maxsize=1 << 12)
def _fact(name: str, arguments: tuple[str, ...], options: str, gws: Size3 | None) -> KernelFact:
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
    # Options may be cut (dvdt-ck.md 1.7), and the last arguments then be something else: those need the blocks.
    if not by_options and not all(option in stated for _, option, _ in blocks):
        return MAIN
    idle = "-DDUMMY_WORK_ITEMS" in options
    if not all(_agrees(*block, stated, idle, "_mmul" in name) for block in blocks):
        return MAIN
    # The third dimension of the work size runs over the batch.
    return KernelFact(role="main", gemm=Gemm(m, n, k, gws[2]), gemm_by="build options" if by_options else "arguments")


def _agrees(length: int, option: str, items: int, stated: dict[str, int], idle: bool, mmul: bool) -> bool:
    """Whether block size, what is left over for the last block, and work items bear out M or N."""
    block = stated.get(option, 0)
    if not block:
        return option not in stated
    for left_over in (f"PARTIAL_STORE_{option}", f"{option}_LEFTOVER"):
        if stated.get(left_over, length % block) != length % block:
            return False
    if mmul:  # 16 work items share their blocks: the work size says less
        return True
    blocks = -(-length // block)
    # Idle items fill up to a power of two.
    return items == blocks or (idle and items == 1 << (blocks - 1).bit_length())


def _find(context: Context, places: list[Place]) -> None:
    programs = context.profile.opencl.programs
    for line, index in places:
        activity = context.activities[line[index]]
        program = activity.opencl.program
        options = programs[program].options if program is not None and program < len(programs) else ""
        context.facts[line[index]] = _fact(activity.name, activity.opencl.arguments, options, activity.grid)


def _find_rounded(context: Context, places: list[Place]) -> None:
    for line, index in places:
        context.facts[line[index]] = MAIN


ROWS = (
    row("ARM CL", r"gemm_mm_(reshaped_lhs_n?t_rhs_n?t|reshaped_only_rhs_n?t(_mmul)?)(_texture)?(_fp16)?", _find),
    row("ARM CL", r"gemm_mm_native", _find),
    row("ARM CL", r"gemm_mm_(floating_point|interleaved_transposed)\w*", _find_rounded),
)
