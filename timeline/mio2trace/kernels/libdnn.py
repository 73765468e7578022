"""Caffe's LibDNN (dvdt-ck.md 5; caffe src/caffe/greentea/libdnn_conv.cpp): sizes are macros of the layer's program.

A program has three sections (forward, backward, weights), each with macros and a kernel. The kernels come from
clCreateKernelsInProgram, which logs no handles. So a kernel's program is found by its work size, by the sizes of its
buffers, for backward kernels by the buffers that they share with a forward kernel, and by the order of first use.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from typing import NamedTuple

from mio2trace.kernels.facts import MAIN, Context, KernelFact, Place, Triple, argument, number, row
from mio2trace.kernels.sources import Sources, whole
from mio2trace.model.gemm import Gemm
from mio2trace.model.profile import Activity, BufferCreated, Size3

FORWARD, BACKWARD, WEIGHTS = "conv_forward", "conv_backward", "conv_weights"
_BYTES = {"half": 2, "float": 4, "double": 8}
_TENSORS = 4
"""The first arguments of a kernel that can be tensors: input, weights, bias, output."""
PAGE = 4096  # buffers in memory shared with the host may be rounded up


class Section(NamedTuple):
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


class _Use(NamedTuple):
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


ROWS = (row("LibDNN", f"{FORWARD}|{BACKWARD}|{WEIGHTS}", _find),)
