"""A second opinion on the first line of every answer: plain Python over the raw files, nothing of the program's.

Written from the definitions of the numbers and the formats' own descriptions, never from the program: one module per
format reads commands, calls and ranges, ``rules`` counts steps, times and shares from them. It knows no layers,
operations or findings.
``python -m tests.oracle FILE...`` prints what it counts.
"""

from __future__ import annotations

from pathlib import Path

from tests.oracle import kineto, rocpd, rocprofv3, rpd
from tests.oracle.events import Recording

READERS = {".json": kineto.read, ".db": rocpd.read, ".rpd": rpd.read, ".csv": rocprofv3.read_csv}


def read(path: Path) -> Recording:
    """The recording in a file, by its name; of rocprofv3's CSV files any one of the process, the kernels' as a rule."""
    name = path.name.removesuffix(".gz")
    if name.endswith("_results.json") or "rocprofv3_json" in name:
        return rocprofv3.read_json(path)
    return READERS[Path(name).suffix](path)
