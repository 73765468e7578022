"""Profiles of ROCm's tools, in every form: times and ids that no profiler writes, names that nobody gives."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.rocm_made import FORMS, Run

Chance = random.Random
_BOOT = 10**15
_ODD: tuple[Any, ...] = (None, "", "soon", "12", -1, 1.5, 1 << 63, (1 << 63) - 1, 1 << 70, 0, True)
WORDS = ("HOST_TO_DEVICE", "DEVICE_TO_HOST", "DEVICE_TO_DEVICE", "", "Sideways")
CALLS = ("hipLaunchKernel", "hipExtModuleLaunchKernel", "hipGraphLaunch", "hipMemcpy", "hipMalloc", "hipFree")
RANGES = (
    "conv1 forward", "ProfilerStep#3", "s_api = miopenConvolutionForward | xDesc = 1, 3, 8, 8 | wDesc = 4, 3, 3, 3 | ",
    's_api = CallGemm | "a, b" = c | ', "s_api = | | = |", "",
)  # fmt: skip


def files(chance: Chance, names: Sequence[str]) -> tuple[str, list[bytes], int]:
    """(form, its files, the kernels and copies in them that must be drawn or noted)."""
    form = chance.choice(tuple(FORMS))
    one = process(chance, names)
    made = FORMS[form](one) or [b"\n"]  # of tables without rows there are no files
    kernels, copies = len(one.kernels), len(one.copies)
    count = {"ROCm v1 table": kernels, "ROCm v3 kernels": kernels, "ROCm v3 calls": 0}.get(form, kernels + copies)
    if form.startswith("ROCm v1"):  # what takes no time and has a kernel's name and call (or thread) is its barrier
        by = 4 if form == "ROCm v1 events" else 3
        timed = {(row[0], str(row[by])) for row in one.kernels if row[1] != row[2]}
        count -= sum(row[1] == row[2] and (row[0], str(row[by])) in timed for row in one.kernels)
    return form, made, count


def process(chance: Chance, names: Sequence[str]) -> Run:
    odd = chance.random() < 0.5
    at = chance.choice((_BOOT, _BOOT, 0, 1 << 62, 5_000))
    step = chance.choice((1, 1_000, 1_000_000, 10**12))

    def row(name: str) -> tuple[Any, ...]:
        start = at + step * chance.randint(0, 30)
        end = start + chance.choice((0, 1, step, 3 * step, 40 * step))
        key, tid = chance.randint(0, 12), chance.choice((7, 7, 8))
        values: list[Any] = [start, end, key, tid]
        if odd and chance.random() < 0.15:
            values[chance.randrange(4)] = chance.choice(_ODD)
        return (name, *values)

    def some(most: int, of: Sequence[str]) -> list[tuple[Any, ...]]:
        return [row(chance.choice(of)) for _ in range(chance.randint(0, most))]

    return Run(
        pid=chance.choice((7, 7, 7, *_ODD)) if odd else 7,
        device=chance.choice(("AMD Instinct MI300X", "Agent 2", "gfx90a", *names[:6])),
        private=chance.choice(("", "x", *names)),
        kernels=some(12, (*names, "igemm_fwd_gtcx3_nhwc_bf16_bx0", "Cijk_Ailk_Bljk_MT64x64x8.kd")),
        calls=some(12, (*CALLS, *CALLS, *names)),
        ranges=some(8, (*RANGES, *RANGES, *names)),
        copies=some(4, WORDS),
    )
