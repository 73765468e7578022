"""The information about a run's operations in databases and logs of libraries: solvers by problem, GEMM kernels by
size.

A find-db is joined by the problem's key (`Problem.database_key`). A GEMM is joined by its sizes and type: BLAS
libraries are column-major, so PyTorch's row-major M, N, K is their n, m, k (miopen-side-files.md 8). If a library used
several solutions for one problem, no call gets a solution.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from mio2trace.model.choices import (
    Gemm,
    GemmChoice,
    GemmTable,
    SideFile,
    SolverRecord,
    SolverTable,
    SolverTime,
)
from mio2trace.model.miopen import Command, Message, MiopenLog
from mio2trace.ops.command import parse
from mio2trace.ops.families.gemm import GemmProblem
from mio2trace.ops.log.statements import database_record, performance
from mio2trace.ops.operation import Operation, OperationFacts, of_problem
from mio2trace.ops.values import DTYPE_BYTES

DATABASE_KINDS = frozenset(("find-db record", "find-db insert"))
"""Messages of a log that contain a record, or one item of a record."""
BLAS_TYPES: Mapping[str, str] = {
    "f32_r": "float", "f64_r": "double", "f16_r": "half", "bf16_r": "bfloat16", "i8_r": "int8", "i32_r": "int32",
    "f8_r": "float8", "bf8_r": "bfloat8", "f8_fnuz_r": "float8", "bf8_fnuz_r": "bfloat8",
    "f32_c": "complex64", "f64_c": "complex128",
    "float": "float", "double": "double", "Half": "half", "BFloat16": "bfloat16",
    "R_32F": "float", "R_64F": "double", "R_16F": "half", "R_16BF": "bfloat16", "R_8I": "int8", "R_32I": "int32",
    "R_8F_E4M3": "float8", "R_8F_E5M2": "bfloat8", "R_8F_E4M3_FNUZ": "float8", "R_8F_E5M2_FNUZ": "bfloat8",
}  # fmt: skip
"""Our name for a data type, by the name of the library, the bench tools or PyTorch."""
_SIZES = DTYPE_BYTES | {"complex64": 8, "complex128": 16}
_Gemm = tuple[int, int, int, int, str | None]


def _measured(message: Message, command: Command) -> Iterator[SolverRecord]:
    """Return the content of a record of MIOPEN_PERFORMANCE_LOGS. It belongs to the last driver command before it."""
    told = performance(message.text)
    problem = parse(command.text, command.tag)
    key = None if problem is None else problem.database_key()
    if told is not None and told.time_ms is not None and key is not None:
        time = SolverTime(told.solver, told.time_ms, told.workspace_bytes or 0)
        yield SolverRecord(message.line, key, (time,))


class Choices:
    """The side files of a run, and the records in its logs."""

    def __init__(self, files: Iterable[SideFile] = (), logs: Iterable[MiopenLog] = ()) -> None:
        self._files = tuple(files)
        self._logs = tuple(logs)

    @cached_property
    def solvers(self) -> Mapping[str, SolverRecord]:
        """Solvers by key. Later lines of a log, and the user's file, add to the system's file."""
        found: dict[str, dict[str, SolverTime]] = {}
        lines: dict[str, int] = {}
        for record in self._records():
            lines.setdefault(record.key, record.line)
            found.setdefault(record.key, {}).update(
                (solver.solver, solver) for solver in record.solvers if solver.time_ms is not None
            )
        return {
            key: SolverRecord(lines[key], key, tuple(solvers.values())) for key, solvers in found.items() if solvers
        }

    def _records(self) -> Iterable[SolverRecord]:
        for file in self._files:
            if isinstance(file, SolverTable):
                yield from file.records
        for log in self._logs:
            command: Command | None = None
            for one in log.records:
                if isinstance(one, Command):
                    command = one
                elif isinstance(one, Message) and one.kind in DATABASE_KINDS:
                    record = database_record(one.text, one.line)
                    if record is not None:
                        yield record
                elif isinstance(one, Message) and one.kind == "performance" and command is not None:
                    yield from _measured(one, command)

    def of(self, operation: Operation) -> SolverRecord | None:
        """Return the solvers that were measured for an operation's problem."""
        key = operation.problem.database_key() if operation.problem is not None and self.solvers else None
        return None if key is None else self.solvers.get(key)

    @cached_property
    def _gemms(self) -> Mapping[_Gemm, GemmChoice | None]:
        """Solutions by sizes and type; None if several were used."""
        found: dict[_Gemm, GemmChoice | None] = {}
        for file in self._files:
            if not isinstance(file, GemmTable):
                continue
            for gemm in file.gemms:
                if not gemm.solution:
                    continue
                dtype = BLAS_TYPES.get(gemm.types[0]) if gemm.types else None
                key = gemm.m, gemm.n, gemm.k, gemm.batch, dtype
                before = found.setdefault(key, gemm)
                if before is not None and (before.solution, before.library) != (gemm.solution, gemm.library):
                    found[key] = None
        return found

    def solved(self, operations: Sequence[Operation]) -> tuple[Operation, ...]:
        """Return the operations, with a solution for each GEMM that has none yet."""
        if not self._gemms:
            return tuple(operations)
        return tuple(self._solved(operation) for operation in operations)

    def _solved(self, operation: Operation) -> Operation:
        if operation.solver is not None or operation.primitive != "gemm" or operation.gemm is None:
            return operation
        size = operation.gemm
        choice = self._gemms.get((size.n, size.m, size.k, size.batch, operation.dtype))
        if choice is None:
            return operation
        facts = msgspec.structs.replace(operation.facts, solver=f"{choice.library} {choice.solution}")
        return msgspec.structs.replace(operation, facts=facts)


def operations_of(table: GemmTable, first: int = 0) -> tuple[Operation, ...]:
    """Return the GEMMs of a log or of TunableOp as operations, numbered from ``first``: each problem once, column-major
    as in the library."""
    return tuple(_operation(table.source, number, gemm) for number, gemm in enumerate(table.gemms, first))


def _operation(source: int, number: int, gemm: GemmChoice) -> Operation:
    lead = (gemm.batch,) if gemm.batch > 1 else ()
    m, n, k = gemm.m, gemm.n, gemm.k
    problem = GemmProblem(
        direction=None, x=(*lead, m, k), w=(*lead, k, n), y=(*lead, m, n), product=Gemm(m, n, k, gemm.batch),
        dtype=BLAS_TYPES.get(gemm.types[0]) if gemm.types else None, traffic=_traffic(gemm),
    )  # fmt: skip
    layout = "".join("T" if transposed else "N" for transposed in (gemm.trans_a, gemm.trans_b))
    facts = OperationFacts(
        source=source, api=gemm.function, primitive="gemm", mode=" ".join(filter(None, (layout, gemm.epilogue))),
        dtype_by="log" if problem.dtype else None,
        solver=f"{gemm.library} {gemm.solution}" if gemm.solution else None,
        command_reason="a BLAS library computes it, not MIOpen",
    )  # fmt: skip
    return Operation(index=number, line=gemm.line, end_line=gemm.line, facts=of_problem(problem, facts))


def _traffic(gemm: GemmChoice) -> int | None:
    """Return the bytes of A, B and D, which may differ in type; None if the source does not state each type."""
    sizes = [_SIZES.get(BLAS_TYPES.get(one, "")) for one in gemm.types]
    if len(sizes) < len("ABCD"):
        return None
    a, b, c, d = sizes[: len("ABCD")]
    of_result = d if gemm.types[3] else c
    if a is None or b is None or of_result is None:
        return None
    return gemm.batch * (gemm.m * gemm.k * a + gemm.k * gemm.n * b + gemm.m * gemm.n * of_result)


def best(record: SolverRecord) -> SolverTime:
    """Return the fastest solver of a record that has times."""
    return min((one for one in record.solvers if one.time_ms is not None), key=lambda one: one.time_ms or 0)
