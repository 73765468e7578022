"""The column that tells the processes of a job apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mio2trace.analysis import Run
    from mio2trace.model.profile import Profile
    from mio2trace.reports.tables import Row


def process_cells(profile: Profile) -> Row:
    """``rank``, else ``pid``; nothing where there is one process."""
    process = profile.process
    if not process.label:
        return {}
    for name, number in (("rank", process.rank), ("pid", process.pid)):
        if number is not None:
            return {name: number}
    return {"process": process.label}


def places(run: Run) -> range:
    """Of the profiles that a table shows: all of a job's, else the first."""
    return range(len(run.profiles) if run.is_job else 1)
