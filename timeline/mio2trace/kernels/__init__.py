"""The real M, N and K of the GEMM-like kernels in a profile, and their auxiliary kernels (dvdt-ck.md 5).

Sizes come from the arguments of the kernel, from the kernels around it, from program sources and from build options.
They are never guessed: an unknown size is left out. A library is a row of `ROWS`.
"""

from __future__ import annotations

from mio2trace.kernels import clblast, compiled, libdnn, split
from mio2trace.kernels.facts import Context, KernelFact, Place, Row
from mio2trace.kernels.names import WORK, kernel_name
from mio2trace.model.profile import Profile

__all__ = ["ROWS", "KernelFact", "find_gemms", "helps", "role"]

ROWS: tuple[Row, ...] = (
    *clblast.ROWS,
    *split.CLBLAS_ROWS,
    *split.VIENNACL_ROWS,
    *libdnn.ROWS,
    *compiled.MIOPENGEMM_ROWS,
    *compiled.ARMCL_ROWS,
)


def find_gemms(profile: Profile) -> dict[int, KernelFact]:
    """Return facts by position in ``profile.activities``, only for kernels about which something is known."""
    facts: dict[int, KernelFact] = {}
    queues: dict[int, list[int]] = {}
    found: dict[Row, list[Place]] = {}
    kinds: dict[str, tuple[KernelFact | None, list[Place] | None]] = {}
    for position, activity in enumerate(profile.activities):
        if activity.kind != "kernel":
            continue
        line = queues.get(activity.queue)
        if line is None:
            line = queues[activity.queue] = []
        line.append(position)
        name = activity.name
        kind = kinds.get(name)
        if kind is None:
            kind = kinds[name] = _kind(name, found)
        fact, places = kind
        if places is not None:
            places.append((line, len(line) - 1))
        elif fact is not None:
            facts[position] = fact
    context = Context(profile, facts)
    for row, places in found.items():
        row.find(context, places)
    return facts


def role(name: str, fact: KernelFact | None) -> str:
    """Return the role of a kernel from its arguments and neighbours, else from its name; empty if unknown."""
    if fact is not None and fact.role:
        return fact.role
    meaning = kernel_name(name)
    return meaning.role if meaning is not None else ""


def helps(kernel_role: str) -> bool:
    """Return whether a kernel of this role only prepares or finishes the work of another one."""
    return kernel_role not in ("", *WORK)


def _kind(name: str, found: dict[Row, list[Place]]) -> tuple[KernelFact | None, list[Place] | None]:
    """Use only the name: return an auxiliary kernel's fact, or the list of places of its row."""
    for row in ROWS:
        if row.kernels.fullmatch(name):
            return None, found.setdefault(row, [])
    meaning = kernel_name(name)
    if meaning is None or meaning.role == "main":
        return None, None
    return KernelFact(role=meaning.role), None
