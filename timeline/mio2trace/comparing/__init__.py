"""Two runs compared: which part of an iteration became slower, whether the change is real, and why.

from mio2trace.comparing import compare
compare("rocm-6.4", ["new/run.log", "new/prof.json"]).table
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from mio2trace.analysis import AnalysisOptions
from mio2trace.comparing.comparison import Compared, Comparison, Failure, Side
from mio2trace.comparing.record import Part, RunRecord
from mio2trace.comparing.sides import OPTIONS, side
from mio2trace.comparing.statistics import Verdict
from mio2trace.notes import Notes

SideSource = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Side


def compare(a: SideSource, b: SideSource, options: AnalysisOptions = OPTIONS, notes: Notes | None = None) -> Comparison:
    """Compare ``b`` with ``a``. Each is a file, a folder, several files of one run, or a `Side`.

    Raises `mio2trace.InputError` for an unusable input, with a message of one line.
    """
    told = Notes() if notes is None else notes

    def read(source: SideSource) -> Side:
        if isinstance(source, Side):
            return source
        files = [source] if isinstance(source, (str, os.PathLike)) else source
        return side([os.fspath(file) for file in files], options, told)

    return Comparison(read(a), read(b))


__all__ = ["Compared", "Comparison", "Failure", "Part", "RunRecord", "Side", "Verdict", "compare", "side"]
