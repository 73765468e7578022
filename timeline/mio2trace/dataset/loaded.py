"""A run in a program or a notebook: its tables, its report, written as a trace or as tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from html import escape
from typing import Any

from mio2trace.analysis import Analysis, AnalysisOptions, Run, analyse
from mio2trace.answer import report_of
from mio2trace.answer.html import page
from mio2trace.conversion import TABLES_SUFFIX, convert
from mio2trace.dataset import replace
from mio2trace.dataset.rows import tables_of
from mio2trace.dataset.table import Table
from mio2trace.memory import without_garbage_collection
from mio2trace.schema import TABLES

HEIGHT = 640
"""Pixels of the report in a cell."""


def load(*files: str | os.PathLike[str], **options: Any) -> LoadedRun:
    """The run that ``files`` are of: logs, profiles, a folder of them, a dataset or one of its files.

    ``options`` are those of `mio2trace.AnalysisOptions`. Raises `mio2trace.InputError` with one line for an input that
    cannot be used, and where the files are of several runs.
    """
    return LoadedRun(files, analyse(files, AnalysisOptions(**options)))


class LoadedRun:
    """A run as tables, each made when it is first asked for. ``run`` and ``analysis`` have everything else.

    In a notebook it shows its report.
    """

    def __init__(self, files: Sequence[str | os.PathLike[str]], analysis: Analysis) -> None:
        self._files = files
        self.analysis = analysis
        self.run: Run = analysis.run

    @property
    def name(self) -> str:
        return self.run.name

    @cached_property
    def _tables(self) -> dict[str, Table]:
        with without_garbage_collection():
            tables = tables_of(self.run, notes=self.analysis.notes, cleaner=self.analysis.cleaner)
        return {name: Table(TABLES[name], columns) for name, columns in tables.items()}

    @property
    def runs(self) -> Table:
        """A row for the run; for each process where it is a job."""
        return self._tables["runs"]

    @property
    def iterations(self) -> Table:
        return self._tables["iterations"]

    @property
    def kernels(self) -> Table:
        return self._tables["kernels"]

    @property
    def copies(self) -> Table:
        return self._tables["copies"]

    @property
    def operations(self) -> Table:
        return self._tables["operations"]

    @property
    def layers(self) -> Table:
        """A row each time that a layer ran."""
        return self._tables["layers"]

    @property
    def findings(self) -> Table:
        return self._tables["findings"]

    @property
    def ranks(self) -> Table:
        """Of a job with collectives alone: who waited for whom."""
        return self._tables["ranks"]

    def problems(self) -> Table:
        """Most time in a steady iteration first."""
        return self._tables["problems"]

    def write(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the run: ``.json`` or ``.pftrace``, plain or ``.gz``, is a trace of its files, drawn with the
        ``options`` of `mio2trace.convert`; ``.parquet`` a folder of its tables.

        Raises `mio2trace.InputError` where that cannot be written.
        """
        place = os.fspath(path)
        if place.lower().endswith(TABLES_SUFFIX):
            replace(place, [self.run], self.analysis)
        else:
            convert(*self._files, output=place, **options)

    def __repr__(self) -> str:
        return repr(self.run).replace("<Run ", "<LoadedRun ", 1)

    def _repr_html_(self) -> str:
        """The report, in a frame of its own: its style stays there, and it has no script."""
        text = page(report_of(self.analysis, [self.run]))
        return (
            f'<iframe sandbox="" title="{escape(self.name)}" srcdoc="{escape(text)}" width="100%" height="{HEIGHT}"'
            ' style="border:0"></iframe>'
        )
