"""``mio2trace report ds/``: a dataset of many runs as one page."""

from __future__ import annotations

import os
from pathlib import Path

import mio2trace
from mio2trace.fleet import gather
from mio2trace.notes import OptionError
from mio2trace.queries.dataset import opened
from mio2trace.schema import SQL_COLUMNS
from mio2trace.snapshot.places import RUNS, is_dataset, journals_of


def is_fleet(files: tuple[str, ...]) -> bool:
    """Whether this is one dataset of several runs, or one that a batch wrote."""
    if len(files) != 1 or not os.path.isdir(files[0]) or not is_dataset(files[0]):
        return False
    place = Path(files[0])
    return bool(journals_of(place)) or sum(1 for _ in (place / RUNS).glob("[!.]*.parquet")) > 1


def fleet_report(path: str, form: str) -> str:
    """The page or the lines of a dataset. Raises `OptionError` for a form that there is not."""
    if form not in ("html", "text"):
        raise OptionError(f"--format {form} is of one run; of a dataset there are html and text")
    name = os.path.basename(os.path.normpath(path)) or path
    with opened(path, SQL_COLUMNS) as dataset:
        fleet = gather(dataset, name)
    if form == "html":
        from mio2trace.fleet.page import page

        return page(fleet, f"mio2trace {mio2trace.__version__}")
    from mio2trace.fleet.words import lines

    return "".join(f"{line}\n" for line in lines(fleet))
