"""The fifteen numbers of the alignment that are set by hand.

docs/alignment-internals.md says what each was measured on; `benchmarks/rates.py` and `benchmarks/damage.py` measure
them over the runs with truth. If two events are equally rare, the second name is set equal to the first: it is no
number of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from math import log
from typing import Final, Literal

MISSTATED: Final = 0.02
"""Share of the statements about a kernel or a call (sizes, algorithm, launch line, a gap in an entry) that are
wrong."""
UNKNOWN_NAME: Final = MISSTATED
"""Share of MIOpen's kernels whose name is in no table."""
SILENT: Final = MISSTATED
"""Share of the executing calls that launched nothing."""

NEVER: Final = 1e-5
"""Probability of events that no run with truth has: a kernel of another primitive, a kernel that writes what the call
reads, two kernels if the call launches one."""
CONTRADICTED: Final = NEVER
"""Probability that the line of a layer contradicts an activity or another line. Then a stamp or a time is wrong."""

BROKEN: Final = 0.003
"""Share of the kernels that probably read what the kernel before wrote, but belong to another call. Also the share of
neighbours in one call between which the program copied data from or to the host."""
LOST: Final = BROKEN
"""Share of the calls that the log lost, before the run itself shows it."""
HOLE: Final = BROKEN
"""Share of the profiles that have a hole although the run shows none. The hole may begin at any call and end at any
later call."""
STRAY: Final = BROKEN
"""Share of the activities of an iteration that lie between two layers in sequence."""

CANDIDATES_APART: Final = 0.2
"""Share of the candidates of a search that write another buffer than the candidate before."""
SHORT_CLOSES: Final = CANDIDATES_APART
"""Probability per kernel that a lost call ends with this kernel: a search launches six kernels, an execution launches
one."""

SILENT_AGAIN: Final = 0.4
"""Share of the repeated searches of a problem that launched nothing: MIOpen keeps the first answer."""

UNLOGGED: Final = 0.3
"""Share of the calls that a log of commands alone lacks: many kinds of calls print no command."""
LOST_BESIDE_TORN: Final = UNLOGGED
"""Share of the calls that the log lost beside a call with missing lines."""
LAST: Final = 1 - UNLOGGED
"""Probability that the last run in a log is the profile's run, if there is no evidence."""
ONE_THREAD: Final = 1 - UNLOGGED
"""Share of the kernels in a layer's time that belong to the layer, for queues that several threads may fill."""

FEW: Final = 0.1
"""A tenth: the common value of the following numbers."""
SILENT_SEARCH: Final = FEW
"""Share of the searches that launched nothing because a database had the answer."""
MAYBE_HOLES: Final = FEW
"""The same as `HOLE` before the run is examined: another process may have written into the log."""
MOST_STRAY: Final = FEW
"""Largest share of the bounds of a clock that may contradict the others. Above it the clock is not used."""
EXPLAINED: Final = FEW
"""Least share of the library's kernels that the calls of a log explain if the log is of this run."""
FIRST: Final = FEW
"""Least share of the kernels that are the first kernel of their call: a call launches nine kernels at most."""
UNEVEN: Final = 1 - FEW
"""Probability that a fit of printed times is right if iterations launched different numbers of kernels."""
AT_END: Final = 1 - FEW
"""Probability that an activity belongs to its iteration if coarse times may have moved it there from the next
iteration."""
LATE: Final = 1 - FEW
"""Probability that a call belongs to its iteration if lines of calls or of iterations came late."""
LIKE: Final = 1 - FEW
"""Probability that an activity belongs to the layer that it is similar to, if another layer is as similar."""
CLOSE: Final = 1 + FEW
"""A fit may be the true one if its misfit is at most that of the best fit times this factor, plus `DOUBT_NS`."""

CUT: Final = 0.05
"""Share of the logs, and of the profiles, that begin late or end early."""
LONG_GAP: Final = CUT
"""Share of the losses that are a whole section of the log."""
STRANGERS: Final = CUT
"""If this share of the executing calls has no kernel, the log has calls of another process."""
BESIDE_STRANGERS: Final = 1 - CUT
"""Share of the links that are right then, if only names, sizes and order are known."""
HARDLY_ANY: Final = CUT
"""A share that is treated as none, for example of kernels in layers that are on other queues."""
CONTRARY: Final = CUT
"""Probability that a log is of the profile's run although neither its stamps nor its thread ids fit."""
IN_PART: Final = 1 - CUT
"""Probability that a fit of printed times is right if some of the printed times are lost."""

WHOLE: Final = 0.99
"""Share of the links to torn calls that are right: an entry may be the head of one call and the tail of another. The
same for layers of iterations that are not in the log and repeat an iteration that is."""
LONG_CLOSES: Final = 1 - WHOLE
"""Probability per kernel that a lost section of the log ends with this kernel."""
OTHERWISE: Final = 1 - WHOLE
"""Relative difference of the time between two lines of the log in another run of the same program."""

LINE_NS: Final = 20_000
"""Most time for printing a line or for stopping a timer: a stamp comes up to 7 us after the end of a layer."""
TOLERANCE_NS: Final = 10 * LINE_NS
"""Tolerance for the bounds of an iteration and for a timer's own cost."""
DOUBT_NS: Final = 50_000
"""The part of this tolerance that does not depend on the misfit."""
FAR: Final = 4
"""Printed times that differ from the marks by more than a quarter of their sum are not those of the marks."""
MISFIT: Final = 30
"""The same for a fit, which has more free parameters: one part in 30."""
LANDMARK_EARLY_NS: Final = 5_000_000
"""Most time by which a landmark in the log may precede its twin in the profile if both are of one run."""
LANDMARK_LATE_NS: Final = 2_000_000_000
"""Most time by which it may follow it."""

NATS_MISSTATED, NATS_NEVER, NATS_BROKEN = log(MISSTATED), log(NEVER), log(BROKEN)

KNOTS: Final = (0.0, 0.2, 0.4, 0.6, 0.75, 0.8, WHOLE)
CALIBRATED: Final[Mapping[Literal["operation", "layer"], tuple[float, ...]]] = {
    "operation": (0.17, 0.57, 0.57, 0.75, 0.83, 0.83, WHOLE),
    "layer": (0.04, 0.38, 0.79, 0.79, 0.79, 0.95, WHOLE),
}
"""Measured share of right links, by kind, for each confidence in `KNOTS` that the model computes: by least squares over
the benchmark's links in doubt, without wrong runs (`benchmarks/calibration.py`). docs/alignment-internals.md has
more."""


def calibrated(kind: Literal["operation", "layer"], confidence: float) -> float:
    """Return the measured share of right links among links of this computed confidence. Sure links stay sure."""
    if confidence >= WHOLE:
        return confidence
    values = CALIBRATED[kind]
    place = bisect_right(KNOTS, confidence) - 1
    low, high = KNOTS[place], KNOTS[place + 1]
    return values[place] + (values[place + 1] - values[place]) * (confidence - low) / (high - low)
