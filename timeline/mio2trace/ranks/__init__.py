"""The ranks of a job at its collectives: who waits, who comes last, and what made it late.

The definitions are TraceLens's. The *transfer* of a collective is its shortest kernel on any rank. The *wait* of a rank
is the time that its own kernel takes longer. The *skew* is the distance between the starts. The *straggler* is the rank
that arrives last most often (of equals the rank that waits least). The work between two collectives shows the cause of
the delay, because the ranks run one program.
"""

from __future__ import annotations

from mio2trace.ranks.meetings import Meeting, meetings
from mio2trace.ranks.table import each_table, said, table
from mio2trace.ranks.totals import RankTotal, straggler, totals

__all__ = ["Meeting", "RankTotal", "each_table", "meetings", "said", "straggler", "table", "totals"]
