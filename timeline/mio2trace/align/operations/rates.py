"""How often things happen that the alignment weighs: probabilities, each with what it was measured on.

docs/alignment.md has the table; `benchmarks/rates.py` measures them over the runs with truth.
"""

from __future__ import annotations

from math import log
from typing import Final

MISSTATED: Final = 0.02
"""Part of the statements about a kernel or a call (sizes, algorithm, launch line, an entry's hole) that do not hold."""
NEVER: Final = 1e-5
"""What no run with truth has: another primitive's kernel, one that writes what the call reads, two where one does."""
BROKEN: Final = 0.003
"""Part of the kernels that probably read what the one before made for them and yet are of another call; and of those
of one call between which the program moved data from or to the host."""
CANDIDATES_APART: Final = 0.16
"""Part of a search's candidates that write another buffer than the one before."""
UNKNOWN_NAME: Final = 0.02
"""Part of MIOpen's kernels whose name is in no table."""
LOST: Final = 0.004
"""Part of the calls that the log lost, before the run itself tells."""
UNLOGGED: Final = 0.3
"""The same in a log of commands alone: calls of many kinds print none."""
LOST_BESIDE_TORN: Final = 0.3
"""The same beside a call of which lines are missing."""
SILENT: Final = 0.02
"""Part of the executing calls that launched nothing."""
SILENT_SEARCH: Final = 0.1
"""Part of the searches that launched nothing: their answer came from a database."""
SILENT_AGAIN: Final = 0.4
"""The same where the same problem was searched before: the first answer is kept."""
WHOLE: Final = 0.99
"""Part of the links to torn calls that are right: an entry may be the head of one and the tail of another."""
STRANGERS: Final = 0.05
"""From this part of executing calls without a kernel on, calls of another process are in the log."""
BESIDE_STRANGERS: Final = 0.9
"""Part of the links that are right then, where nothing but names, sizes and order tells."""
SHORT_CLOSES: Final = 0.2
"""After how many of the kernels of lost calls the log goes on: a call or two."""
LONG_GAP, LONG_CLOSES = 0.05, 0.01
"""Part of the losses that are long, and the same of these: a stretch of the log."""
CUT: Final = 0.05
"""Part of the logs, and of the profiles, that begin late or end early."""

NATS_MISSTATED, NATS_NEVER, NATS_BROKEN = log(MISSTATED), log(NEVER), log(BROKEN)
