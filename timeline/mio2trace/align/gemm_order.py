"""Join calls in a BLAS library's log with GEMM kernels that have no operation, by order.

The log has no usable times or addresses. Calls and kernels fit if each kernel's transposes are its call's, and if equal
calls run equal kernels. If the log has more calls, all places that fit must give the same calls. No link is sure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from mio2trace.align.links import NONE, Links
from mio2trace.evidence import ORDER
from mio2trace.kernels.names import kernel_name
from mio2trace.model.choices import GemmTable
from mio2trace.notes import Notes
from mio2trace.ops.choices import operations_of

_TENSILE = re.compile(r"(?:Custom_)?Cijk_A(il|li)k_B(lj|jl)k_")
MOST_COMPARED = 5_000_000
"""Calls compared with kernels: about one second."""


def link_gemms(links: Links, tables: Sequence[GemmTable], notes: Notes) -> None:
    mains, parts = _kernels(links)
    if not mains or not any(table.order for table in tables):
        return
    names = [links.activities[position].name for position in mains]
    behind = max((operation.index for operation in links.operations), default=NONE) + 1
    for table in tables:
        for order in _orders(table):
            calls = _fitting(table, order, names)
            if calls is None:
                continue
            made = operations_of(table)
            links.extend([msgspec.structs.replace(made[of], index=behind + at) for at, of in enumerate(calls)])
            for at, position in enumerate(mains):
                links.give_operation([position, *parts.get(position, ())], behind + at, ORDER, sure=False)
            notes.add("GEMM kernel joined with a BLAS library's log by order alone", count=len(mains), problem=False)
            return
    notes.add(
        "GEMM kernel that no BLAS library's log is joined with: numbers, transposes or order of calls do not fit",
        count=len(mains), problem=False,
    )  # fmt: skip


def _kernels(links: Links) -> tuple[list[int], dict[int, list[int]]]:
    """Return Tensile's kernels without operation, and by these the kernels that finish the same GEMM."""
    mains: list[int] = []
    parts: dict[int, list[int]] = {}
    last: dict[int, int] = {}
    for position, (activity, index) in enumerate(zip(links.activities, links.operation_of, strict=True)):
        name = activity.name
        if index != NONE or activity.kind != "kernel" or "Cijk_" not in name or activity.is_replayed:
            continue
        helps = (meaning := kernel_name(name)) is not None and meaning.helps
        if _TENSILE.match(name) is not None and not helps:
            mains.append(position)
            last[activity.queue] = position
        elif activity.queue in last:
            parts.setdefault(last[activity.queue], []).append(position)
    return mains, parts


def _orders(table: GemmTable) -> Iterator[Sequence[int]]:
    """Yield the calls of all libraries, then of each: one may call the other, and both print the call."""
    yield table.order
    libraries = [gemm.library for gemm in table.gemms]
    for library in dict.fromkeys(libraries) if len(set(libraries)) > 1 else ():
        yield [of for of in table.order if libraries[of] == library]


def _fitting(table: GemmTable, order: Sequence[int], names: Sequence[str]) -> Sequence[int] | None:
    """Return the call of each kernel; None if nothing fits, or if several places with different calls do."""
    turned = {name: (found[1] == "li", found[2] == "jl") for name in set(names) if (found := _TENSILE.match(name))}
    wanted = [(gemm.trans_a, gemm.trans_b) for gemm in table.gemms]
    left = MOST_COMPARED
    fits: Sequence[int] | None = None
    for begin in range(len(order) - len(names) + 1):
        of_call: dict[int, str] = {}
        compared = 0
        for of, name in zip(order[begin : begin + len(names)], names, strict=True):
            compared += 1
            if turned[name] != wanted[of] or of_call.setdefault(of, name) != name:
                break
        else:
            calls = order[begin : begin + len(names)]
            if fits is not None and fits != calls:
                return None
            fits = calls
        left -= compared + len(names) // 8  # a slice is copied
        if left < 0:
            return None
    return fits
