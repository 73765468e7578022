"""What the alignment weighs and is set by hand: fifteen numbers, each with what it was measured on.

docs/alignment-internals.md has the table; `benchmarks/rates.py` and `benchmarks/damage.py` measure them over the runs
with truth.
What is as rare as something else has its number: it is set equal to it here, and is no number of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from math import log
from typing import Final, Literal

MISSTATED: Final = 0.02
"""Part of the statements about a kernel or a call (sizes, algorithm, launch line, an entry's hole) that do not hold."""
UNKNOWN_NAME: Final = MISSTATED
"""Part of MIOpen's kernels whose name is in no table."""
SILENT: Final = MISSTATED
"""Part of the executing calls that launched nothing."""

NEVER: Final = 1e-5
"""What no run with truth has: another primitive's kernel, one that writes what the call reads, two where one does."""
CONTRADICTED: Final = NEVER
"""How probable it is that a layer's line contradicts an activity or another line: a stamp or a time is wrong then."""

BROKEN: Final = 0.003
"""Part of the kernels that probably read what the one before made for them and yet are of another call; and of those
of one call between which the program moved data from or to the host."""
LOST: Final = BROKEN
"""Part of the calls that the log lost, before the run itself tells."""
HOLE: Final = BROKEN
"""Part of the profiles that have a hole where the run shows none: from any call to any later one, each as likely."""
STRAY: Final = BROKEN
"""Part of an iteration's activities that lie between two layers which follow each other."""

CANDIDATES_APART: Final = 0.2
"""Part of a search's candidates that write another buffer than the one before."""
SHORT_CLOSES: Final = CANDIDATES_APART
"""After how many of the kernels of lost calls the log goes on: a search launches six, an execution one."""

SILENT_AGAIN: Final = 0.4
"""Part of the searches, where the same problem was searched before, that launched nothing: the first answer is kept."""

UNLOGGED: Final = 0.3
"""Part of the calls that a log of commands alone does not have: those of many kinds print none."""
LOST_BESIDE_TORN: Final = UNLOGGED
"""Part of the calls that the log lost beside one of which lines are missing."""
LAST: Final = 1 - UNLOGGED
"""How probable it is, where nothing tells, that the last of a log's runs is the profile's."""
ONE_THREAD: Final = 1 - UNLOGGED
"""Part of the kernels in a layer's time, of queues that several threads may fill, that are the layer's."""

FEW: Final = 0.1
"""What is few: a tenth."""
SILENT_SEARCH: Final = FEW
"""Part of the searches that launched nothing: their answer came from a database."""
MAYBE_HOLES: Final = FEW
"""The same before the run is seen: another process may have written into the log."""
MOST_STRAY: Final = FEW
"""Part of the bounds of a clock that may contradict the others before nothing is believed."""
EXPLAINED: Final = FEW
"""Part of the library's kernels that a log's calls explain at least if it is the run's own."""
FIRST: Final = FEW
"""Part of the kernels that are the first of their call, at least: a call launches nine at most."""
UNEVEN: Final = 1 - FEW
"""How probable a fit of printed times is where iterations launched more or less than others."""
AT_END: Final = 1 - FEW
"""How probable it is that an activity is of its iteration, where coarse times may have put it there from the next."""
LATE: Final = 1 - FEW
"""How probable it is that a call is of its iteration where its lines, or the iterations', came late."""
LIKE: Final = 1 - FEW
"""How probable it is that an activity is of the layer that it is like, where another is as like."""
CLOSE: Final = 1 + FEW
"""An answer of a fit whose misfit is larger by no more than this factor, and `DOUBT_NS`, may be the true one."""

CUT: Final = 0.05
"""Part of the logs, and of the profiles, that begin late or end early."""
LONG_GAP: Final = CUT
"""Part of the losses that are a stretch of the log."""
STRANGERS: Final = CUT
"""From this part of executing calls without a kernel on, calls of another process are in the log."""
BESIDE_STRANGERS: Final = 1 - CUT
"""Part of the links that are right then, where nothing but names, sizes and order tells."""
HARDLY_ANY: Final = CUT
"""Part of the kernels in layers that the queue of the thread which printed them has more than."""
CONTRARY: Final = CUT
"""How probable it is that a log is the profile's run's, where neither its stamps nor its threads' ids are."""
IN_PART: Final = 1 - CUT
"""How probable a fit of printed times is where some of them are lost."""

WHOLE: Final = 0.99
"""Part of the links to torn calls that are right: an entry may be the head of one and the tail of another. The same of
layers of iterations that the log does not tell of, and that repeat one that it does."""
LONG_CLOSES: Final = 1 - WHOLE
"""After how many of the kernels of a lost stretch the log goes on."""
OTHERWISE: Final = 1 - WHOLE
"""What part more or less time another run of a program takes from one line of its log to another."""

LINE_NS: Final = 20_000
"""What printing a line, or a timer's stop, may take: a stamp comes up to 7 us after a layer's end."""
TOLERANCE_NS: Final = 10 * LINE_NS
"""What an iteration's bounds and a timer's own cost may be off."""
DOUBT_NS: Final = 50_000
"""The least by which an answer of a fit must be worse than the best to be out of the question."""
FAR: Final = 4
"""Printed times that are off by one part in so many of their sum are not those of the marks."""
MISFIT: Final = 30
"""The same of a fit, where more is fitted."""
LANDMARK_EARLY_NS: Final = 5_000_000
"""How far a landmark in the log may lie before its twin in the profile if both are of one run."""
LANDMARK_LATE_NS: Final = 2_000_000_000
"""How far it may lie after it."""

NATS_MISSTATED, NATS_NEVER, NATS_BROKEN = log(MISSTATED), log(NEVER), log(BROKEN)

KNOTS: Final = (0.0, 0.2, 0.4, 0.6, 0.75, 0.8, WHOLE)
CALIBRATED: Final[Mapping[Literal["operation", "layer"], tuple[float, ...]]] = {
    "operation": (0.17, 0.57, 0.57, 0.75, 0.83, 0.83, WHOLE),
    "layer": (0.04, 0.38, 0.79, 0.79, 0.79, 0.95, WHOLE),
}
"""What is true of links of each kind that the model believes as much as each knot: by least squares over the
benchmark's links in doubt, wrong runs left out (`benchmarks/calibration.py`). docs/alignment-internals.md has more."""


def calibrated(kind: Literal["operation", "layer"], confidence: float) -> float:
    """What is true of links of a kind that the model believes as much. What is sure stays so."""
    if confidence >= WHOLE:
        return confidence
    values = CALIBRATED[kind]
    place = bisect_right(KNOTS, confidence) - 1
    low, high = KNOTS[place], KNOTS[place + 1]
    return values[place] + (values[place + 1] - values[place]) * (confidence - low) / (high - low)
