"""Computations and choices of libraries: matrix products; solvers and kernels with measured times (MIOpen's databases,
GEMM libraries, TunableOp).

The text forms of a record are read here, because they occur in files and in logs (miopen-side-files.md 3).
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from mio2trace.model import Hidden, Name, Word
from mio2trace.patterns import late

_LONGEST_KEY, _MOST_ITEMS = 300, 256
_KEY = (
    r"[0-9][0-9x-]{10,200}-(?:[A-Z]{3}[A-Z0-9a-z]{0,12}-){1,3}(?:[A-Z]{2,4}[0-9]{1,2}(?:x[0-9])?){1,3}-[FBW]"
    r"(?:_[a-z]{1,2}[A-Z0-9a-z]{1,8}){0,4}"
)
_RECORD = late(rf"(?<![\w-])({_KEY})=(\S.*)", re.DOTALL)
SOLVER = late(r"[A-Za-z][\w<>-]{0,120}")
_ALGORITHM = late(r"miopen(?:Convolution(?:Fwd|BwdData|BwdWeights)Algo|TransposeBwdDataAlgo)\w{2,20}")
_MS = late(r"[0-9]{1,9}(?:\.[0-9]{0,12})?(?:e[-+]?[0-9]{1,2})?")
_BYTES = late(r"[0-9]{1,18}")


class Gemm(msgspec.Struct, frozen=True, gc=False):
    """C (m x n) = A (m x k) * B (k x n), ``batch`` times: the real sizes, without padding. GEMV is (m, 1, k). SYRK,
    HERK and SYR2K are (n, n, k). A convolution as one GEMM is (out_h * out_w, kernels, channels * kh * kw) for CLBlast,
    and (out channels, output pixels, in channels * kernel size) per group elsewhere."""

    m: int
    n: int
    k: int
    batch: int = 1

    @property
    def flop(self) -> int:
        """Floating point operations: one multiplication and one addition per (m, n, k) and batch."""
        return 2 * self.m * self.n * self.k * self.batch


class SolverTime(msgspec.Struct, frozen=True, gc=False):
    """A solver of a problem: its time in the Find step, on the machine that ran it, and the workspace that it needs.
    ``time_ms`` is None in a perf-db, which has ``parameters`` instead: text that only the solver understands."""

    solver: Name
    time_ms: float | None = None
    workspace_bytes: int = 0
    algorithm: Word = ""
    parameters: Hidden = ""

    @property
    def text(self) -> str:
        """The solver in the text form of files since 2021, without parameters, which may be any text."""
        if self.time_ms is None:
            return f"{self.solver}:..."
        return f"{self.solver}:{self.time_ms:.9g},{self.workspace_bytes},{self.algorithm}"


class SolverRecord(msgspec.Struct, frozen=True, gc=False):
    """A line of a database: the key of a problem, and the solvers that were tried, not ordered by time."""

    line: int
    key: Word
    solvers: tuple[SolverTime, ...] = ()

    def items(self) -> tuple[str, ...]:
        """Yield each solver as MIOpen's log prints it when it writes the record."""
        return tuple(f"{self.key}, content inserted: {solver.text}" for solver in self.solvers)


class SolverTable(msgspec.Struct, frozen=True, kw_only=True):
    """A find-db or perf-db of MIOpen. ``skipped``: the number of lines that are no records."""

    source: int
    kind: Literal["find-db", "perf-db"]
    records: tuple[SolverRecord, ...] = ()
    skipped: int = 0


class GemmChoice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A GEMM as a BLAS library is asked for it, column-major (m, n, k, batch), and the kernel that computed it.
    ``function``: the library's function, or TunableOp's name of the op. ``types``: of A, B, C, D, then of the
    computation, as the source spells them. ``leading``: leading dimensions of A, B, C, D. ``solution``: as the source
    names it; empty if it does not. ``time_ms``: measured when the kernel was chosen. ``count``: the number of calls
    that the source states."""

    line: int
    library: Word
    function: Name
    m: int
    n: int
    k: int
    batch: int = 1
    trans_a: bool = False
    trans_b: bool = False
    types: tuple[Name, ...] = ()
    leading: tuple[int, ...] = ()
    epilogue: Name = ""
    solution: Name = ""
    time_ms: float | None = None
    count: int = 1


class GemmTable(msgspec.Struct, frozen=True, kw_only=True):
    """GEMMs of a library's log (``log``) in order, or of a TunableOp file (``tuned``), each problem once. ``order``:
    the place of the GEMM of each call in the log; empty if the log does not state the order of calls. ``made_for``: the
    versions and devices for which a TunableOp file is valid, by name. ``skipped``: the number of lines that are no GEMM
    of a known form."""

    source: int
    kind: Literal["log", "tuned"]
    gemms: tuple[GemmChoice, ...] = ()
    made_for: tuple[tuple[Hidden, Hidden], ...] = ()
    skipped: int = 0
    order: tuple[int, ...] = ()


SideFile = SolverTable | GemmTable


def solver_record(text: str, line: int = 0) -> SolverRecord | None:
    """Return the record in a line, with any text before it; None if there is no record. The form is ``key=item;item``.
    An item is ``solver:time,workspace,algorithm``; in files up to 2020
    ``algorithm:solver,time,workspace,algorithm,kernel key``; in a perf-db ``solver:parameters``."""
    found = _RECORD.search(text)
    if found is None or len(found[1]) > _LONGEST_KEY:
        return None
    solvers: dict[str, SolverTime] = {}
    for item in found[2].strip().split(";", _MOST_ITEMS)[:_MOST_ITEMS]:
        made = _item(item)
        if made is not None:
            solvers.setdefault(made.solver, made)
    return SolverRecord(line, found[1], tuple(solvers.values())) if solvers else None


def _item(text: str) -> SolverTime | None:
    name, _, rest = text.strip().partition(":")
    if not rest or SOLVER.fullmatch(name) is None:
        return None
    values = rest.split(",")
    algorithm = ""
    if _ALGORITHM.fullmatch(name) is not None and len(values) > 3:  # the form up to 2020
        algorithm, name = name, values.pop(0)
        if SOLVER.fullmatch(name) is None:
            return None
    elif len(values) > 2 and _ALGORITHM.fullmatch(values[2]) is not None:
        algorithm = values[2]
    if not algorithm:
        return SolverTime(name, parameters=rest[:400])
    if _MS.fullmatch(values[0]) is None or _BYTES.fullmatch(values[1]) is None:
        return None
    return SolverTime(name, float(values[0]), int(values[1]), algorithm)
