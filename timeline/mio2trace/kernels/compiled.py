"""GEMMs whose program was compiled for their sizes (dvdt-ck.md 5): ARM Compute Library, MIOpenGEMM, Caffe's LibDNN."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Mapping

import msgspec

from mio2trace.kernels.facts import (
    MAIN,
    Context,
    KernelFact,
    Place,
    Sources,
    Triple,
    argument,
    each_alone,
    number,
    row,
    size,
    whole,
)
from mio2trace.model.choices import Gemm
from mio2trace.model.profile import Activity, BufferCreated, Size3
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


FORWARD, BACKWARD, WEIGHTS = "conv_forward", "conv_backward", "conv_weights"


# -- Caffe's LibDNN (caffe src/caffe/greentea/libdnn_conv.cpp) ---------------------------------------------------------
#
# Sizes are macros of the layer's program. A program has three sections (forward, backward, weights), each with macros
# and a kernel. The kernels come from clCreateKernelsInProgram, which logs no handles. So a kernel's program is found
# by its work size, by the sizes of its buffers, for backward kernels by the buffers that they share with a forward
# kernel, and by the order of first use.

_BYTES = {"half": 2, "float": 4, "double": 8}
_TENSORS = 4
"""The first arguments of a kernel that can be tensors: input, weights, bias, output."""
PAGE = 4096  # buffers in memory shared with the host may be rounded up


class Section(msgspec.Struct, frozen=True):
    """One kernel of one program. ``sizes``: M, N, K per image and group."""

    program: int
    sizes: Triple
    groups: int
    work_items: tuple[int, int]
    bias: bool
    images: tuple[tuple[int, int], ...]  # (argument index, least bytes): tensors of one or more images
    weights: tuple[tuple[int, int], ...]  # (argument index, bytes): weights and bias


def _section(sources: Sources, program: int, kernel: str) -> Section | None:
    macros = sources.defines(program, kernel)
    m, n, k, groups = (whole(macros, name) for name in ("M", "N", "K", "v_g"))
    tile_m, tile_n, items_m, items_n = (whole(macros, name) for name in ("TSM", "TSN", "RTSM", "RTSN"))
    if not (m and n and k and groups and tile_m and tile_n and items_m and items_n):
        return None
    element = _BYTES.get(macros.get("Dtype", ""), 0)
    bias = "v_bmul" in macros
    # Arguments: input, weights (or the output's gradient), bias if any, output (or the weights' gradient). Weights are
    # A in forward and backward, C in weights; v_A_off and v_C_off forget that groups share none.
    last = 3 if bias else 2
    of_images, of_weights = {
        FORWARD: ({0: "v_B_off", last: "v_C_off"}, {1: m * k * groups * element}),
        BACKWARD: ({0: "v_B_off", last: "v_C_off"}, {1: m * k * groups * element}),
        WEIGHTS: ({0: "v_B_off", 1: "v_A_off"}, {last: m * n * groups * element}),
    }[kernel]
    if bias:
        of_weights[2] = (whole(macros, "v_fout") or 0) * element
    return Section(
        program=program,
        sizes=(m, n, k),
        groups=groups,
        work_items=(-(-n // tile_n) * items_n, -(-m // tile_m) * items_m),
        bias=bias,
        images=tuple((index, (whole(macros, name) or 0) * element) for index, name in of_images.items()),
        weights=tuple(of_weights.items()),
    )


class _Buffers:
    """Sizes of a kernel's buffers, by the handle in the argument. Handles are reused."""

    def __init__(self, buffers: tuple[BufferCreated, ...]) -> None:
        self._made: dict[int, tuple[list[int], list[int]]] = {}
        for buffer in buffers:
            try:
                handle = int(buffer.handle, 16)
            except ValueError:
                continue
            calls, sizes = self._made.setdefault(handle, ([], []))
            calls.append(buffer.number)
            sizes.append(buffer.size_bytes)

    def size(self, value: str, call_index: int) -> int | None:
        """Return the bytes of the buffer ``value`` at a call; None if its creation was not recorded."""
        handle = number(value)
        if handle is None or handle not in self._made:
            return None
        calls, sizes = self._made[handle]
        at = bisect_left(calls, call_index) - 1
        return sizes[at] if at >= 0 else None

    def sizes(self, activity: Activity) -> tuple[int | None, ...]:
        """Return the sizes of the buffers in a kernel's first arguments."""
        return tuple(self.size(value, activity.number) for value in activity.opencl.arguments[:_TENSORS])


class _Candidates:
    """The possible sections of equal kernels, in the order of their programs."""

    def __init__(self, found: list[Section]) -> None:
        self.sections = frozenset(found)
        self.only = _only(found)
        """One of the sections, if all have the same sizes."""
        self._by_program = {section.program: section for section in found}
        self._of_programs: dict[tuple[str, str], Section | None] = {}

    def of_programs(self, key: tuple[str, str], programs: set[int]) -> Section | None:
        """Return one of the sections in ``programs`` (whose key is ``key``), if they have the same sizes."""
        if key not in self._of_programs:
            shared = sorted(programs.intersection(self._by_program))
            self._of_programs[key] = _only([self._by_program[program] for program in shared])
        return self._of_programs[key]


def _only(sections: list[Section]) -> Section | None:
    return sections[0] if len({(section.sizes, section.groups) for section in sections}) == 1 else None


_Alike = tuple[str, Size3 | None, int]
"""Name, size, identity of the arguments."""


class _Use(msgspec.Struct, frozen=True):
    """The properties that distinguish one layer's kernel from another's. Handles alone do not: in damaged files kernels
    share them."""

    name: str
    kernel: str
    work_items: tuple[int, int]
    shared: str  # the buffer that it shares with the layer's forward kernel: weights, or conv_weights' input


def _use(activity: Activity) -> _Use | None:
    if activity.grid is None:
        return None
    shared = argument(activity.opencl.arguments, 0 if activity.name == WEIGHTS else 1)
    return _Use(activity.name, activity.opencl.kernel, activity.grid[:2], shared)


def _find(context: Context, places: list[Place]) -> None:
    # Equal arguments are mostly one object, so kernels with the same object are checked once.
    alike: dict[_Alike, Activity] = {}
    keys: list[tuple[int, _Alike]] = []
    for line, index in places:
        position = line[index]
        activity = context.activities[position]
        key = activity.name, activity.grid, id(activity.opencl)
        keys.append((position, key))
        alike.setdefault(key, activity)
    uses = {key: _use(activity) for key, activity in alike.items()}
    first: dict[_Use, Activity] = {}
    for key, use in uses.items():
        if use is not None:
            first.setdefault(use, alike[key])
    decided = _decide(context, first)
    facts: dict[_Alike, KernelFact] = {}
    for key, use in uses.items():
        section = decided.get(use) if use is not None else None
        facts[key] = _fact(section, alike[key]) if section else MAIN
    for position, key in keys:
        context.facts[position] = facts[key]


def _decide(context: Context, first: dict[_Use, Activity]) -> dict[_Use, Section]:
    """Return the section of each use, if all remaining sections have the same sizes, or only one is left."""
    sections = {
        name: [
            section
            for program in context.sources.defining(name)
            if (section := _section(context.sources, program, name)) is not None
        ]
        for name in {use.name for use in first}
    }
    buffers = _Buffers(context.profile.opencl.buffers)
    unseen = any(not program.source for program in context.profile.opencl.programs)
    by_items: dict[tuple[str, tuple[int, int]], list[Section]] = {}
    for name, each in sections.items():
        for section in each:
            by_items.setdefault((name, section.work_items), []).append(section)
    alike: dict[object, _Candidates] = {}
    candidates: dict[_Use, _Candidates] = {}
    for use, activity in first.items():
        key = use.name, activity.opencl.program, activity.grid, buffers.sizes(activity)
        if key not in alike:
            alike[key] = _Candidates(
                _candidates(by_items.get((use.name, use.work_items), []), activity, buffers, unseen)
            )
        candidates[use] = alike[key]
    decided: dict[_Use, Section] = {}
    inputs: dict[str, set[int]] = {}  # programs by the buffer that their forward kernel reads, and by its weights
    weights: dict[str, set[int]] = {}
    forward = [use for use in first if use.name == FORWARD]
    in_order = None if unseen else _in_order(sections.get(FORWARD, []), [candidates[use] for use in forward])
    for at, use in enumerate(forward):
        found = candidates[use]
        section = in_order[at] if in_order is not None else found.only
        if section is not None:
            decided[use] = section
            weights.setdefault(use.shared, set()).add(section.program)
            inputs.setdefault(argument(first[use].opencl.arguments, 0), set()).add(section.program)
    for use in first:
        if use.name == FORWARD:
            continue
        section = candidates[use].only
        if section is None and use.shared:
            programs = (weights if use.name == BACKWARD else inputs).get(use.shared, set())
            section = candidates[use].of_programs((use.name, use.shared), programs)
        if section is not None:
            decided[use] = section
    return decided


def _candidates(sections: list[Section], activity: Activity, buffers: _Buffers, unseen: bool) -> list[Section]:
    """Return the possible sections of a kernel. Buffers of weights have exactly their size; sections that fit so are
    preferred.

    ``unseen``: there are programs without a source, so a merely possible section is not enough.
    """
    possible: list[Section] = []
    exact: list[Section] = []
    for section in sections:
        if activity.opencl.program not in (None, section.program):
            continue
        if activity.grid is None or activity.grid[:2] != section.work_items or activity.grid[2] % section.groups:
            continue
        images = 1 if activity.name == WEIGHTS else activity.grid[2] // section.groups

        def spare(needs: tuple[tuple[int, int], ...], times: int) -> list[int]:
            """Return the unused bytes in the buffers of known size."""
            sizes = [
                (buffers.size(argument(activity.opencl.arguments, index), activity.number), need * times)
                for index, need in needs
                if need
            ]
            return [have - need for have, need in sizes if have is not None]

        left = spare(section.weights, 1)
        if any(bytes_ < 0 for bytes_ in spare(section.images, images)) or any(
            not 0 <= bytes_ < PAGE for bytes_ in left
        ):
            continue
        possible.append(section)
        if left and not any(left):
            exact.append(section)
    return exact if exact or unseen else possible


def _in_order(sections: list[Section], candidates: list[_Candidates]) -> list[Section] | None:
    """Match in order: the kernel that is used i-th belongs to the i-th program, if that fits for all of them."""
    if len(candidates) > len(sections):
        return None
    paired = list(zip(sections, candidates, strict=False))
    return [section for section, _ in paired] if all(section in found.sections for section, found in paired) else None


@functools.lru_cache(maxsize=1 << 12)
def _gemm(section: Section, name: str, items: int, images: str) -> KernelFact:
    """Return the GEMM. gws[2] = images * groups; conv_weights may loop over the images, whose number is its last
    argument."""
    batch: int | None = items
    if name == WEIGHTS:
        count = number(images)
        batch = count * section.groups if count and items in (section.groups, count * section.groups) else None
    if not batch or batch % section.groups:
        return MAIN
    return KernelFact(role="main", gemm=Gemm(*section.sizes, batch), gemm_by="source")


def _fact(section: Section, activity: Activity) -> KernelFact:
    images = argument(activity.opencl.arguments, 4 if section.bias else 3) if activity.name == WEIGHTS else ""
    return _gemm(section, activity.name, activity.grid[2] if activity.grid else 0, images)


ROWS = (
    row("LibDNN", f"{FORWARD}|{BACKWARD}|{WEIGHTS}", _find),
    row("MIOpenGEMM", "(miog|tg)_(betac_)?alphaab", _find_miopengemm),
    row(
        "ARM CL",
        r"gemm_mm_(reshaped_lhs_n?t_rhs_n?t|reshaped_only_rhs_n?t(_mmul)?)(_texture)?(_fp16)?|gemm_mm_native",
        each_alone(_armcl),
    ),
    row("ARM CL", r"gemm_mm_(floating_point|interleaved_transposed)\w*", each_alone(lambda context, kernel: MAIN)),
)
