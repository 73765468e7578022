"""What the commands on MIOpen logs ask of an analysis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mio2trace.notes import InputError

if TYPE_CHECKING:
    from mio2trace.analysis import Analysis
    from mio2trace.model.miopen import MiopenLog
    from mio2trace.ops.operation import Operation


def stated_by_profile(analysis: Analysis) -> tuple[Operation, ...]:
    """The operations that a profile's own ranges state, where its run has no MIOpen log; () where it has, or none."""
    if not any(run.alignments for run in analysis.runs):
        return ()
    run = analysis.run
    joined = () if run.libraries else run.alignments if run.is_job else run.alignments[:1]
    return tuple(operation for alignment in joined for operation in alignment.links.operations)


def logged(analysis: Analysis) -> Iterator[tuple[str, MiopenLog, tuple[Operation, ...]]]:
    """Name, log and operations of each file in the order given; with a profile among them, of its run alone.

    Raises `InputError` for a file without a line of MIOpen, where that is not the profile.
    """
    from mio2trace.analysis.joining import NOT_USED
    from mio2trace.model.miopen import MiopenLog

    with_profile = any(run.profiles for run in analysis.runs)
    runs = [analysis.run] if with_profile else analysis.runs
    operations = {
        id(log): of_log for run in runs for log, of_log in zip(run.libraries, run.operations_by_log, strict=True)
    }
    if with_profile and not operations and any(run.libraries for run in analysis.runs):
        raise InputError(f"{analysis.names}: {NOT_USED}; expected the log of the profile's run")
    if with_profile and not operations:
        raise InputError(f"{analysis.names}: holds no line of MIOpen; expected its log")
    for file in sorted(analysis.inputs, key=lambda file: file.source):
        log = next((record for record in file.records if isinstance(record, MiopenLog)), None)
        if log is not None and id(log) in operations:
            yield file.name, log, operations[id(log)]
        elif not with_profile:
            raise InputError(f"{file.name}: holds no line of MIOpen; expected MIOpen's log")
