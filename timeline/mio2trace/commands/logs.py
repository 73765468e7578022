"""The parts of an analysis that the commands on MIOpen logs need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mio2trace.notes import InputError

if TYPE_CHECKING:
    from mio2trace.analysis import Analysis
    from mio2trace.model.choices import SolverTable
    from mio2trace.model.miopen import MiopenLog
    from mio2trace.ops.operation import Operation


def stated_by_profile(analysis: Analysis) -> tuple[Operation, ...]:
    """Return the operations that the ranges of a profile state; () if its run has a MIOpen log, or no such ranges."""
    if not any(run.alignments for run in analysis.runs):
        return ()
    run = analysis.run
    joined = () if run.libraries else run.alignments if run.is_job else run.alignments[:1]
    return tuple(operation for alignment in joined for operation in alignment.links.operations)


def logged(analysis: Analysis, *, databases: bool = False) -> Iterator[tuple[str, MiopenLog, tuple[Operation, ...]]]:
    """Yield name, log and operations of each file in the given order; if there is a profile, only those of its run.

    ``databases``: also yield find-db and perf-db files, each as a log with a message for each solver of a problem.
    Raises `InputError` for a file without a line of MIOpen, unless this file is the profile.
    """
    from mio2trace.model.choices import GemmTable, SolverTable
    from mio2trace.model.miopen import MiopenLog
    from mio2trace.ops.choices import operations_of

    with_profile = any(run.profiles for run in analysis.runs)
    runs = [analysis.run] if with_profile else analysis.runs
    operations = {
        id(log): of_log for run in runs for log, of_log in zip(run.libraries, run.operations_by_log, strict=True)
    }
    tables = [record for run in runs for record in run.side_files]
    if with_profile and not operations and not tables:
        raise InputError(f"{analysis.names}: holds no line of MIOpen; expected its log")
    for file in sorted(analysis.inputs, key=lambda file: file.source):
        log = next((record for record in file.records if isinstance(record, MiopenLog)), None)
        table = next((record for record in file.records if isinstance(record, SolverTable)), None)
        if table is not None and databases:
            yield file.name, _as_log(table), ()
        elif log is not None and id(log) in operations:
            yield file.name, log, operations[id(log)]
        elif not databases and (gemms := [one for one in file.records if isinstance(one, GemmTable)]):
            if not with_profile:
                yield file.name, MiopenLog(source=file.source), operations_of(gemms[0])
        elif table is not None and not operations:
            raise InputError(f"{file.name}: a database without calls, which `mio2trace messages` shows; expected a log")
        elif table is None and not with_profile:
            raise InputError(f"{file.name}: holds no line of MIOpen; expected MIOpen's log")


def _as_log(table: SolverTable) -> MiopenLog:
    from mio2trace.model.miopen import Message, MiopenLog

    return MiopenLog(
        source=table.source,
        records=tuple(
            Message(table.source, record.line, "Database", table.kind, text, "find-db record")
            for record in table.records
            for text in record.items()
        ),
    )
