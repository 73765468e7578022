"""The ranks of a job at its collectives: who waits, who comes last, and what made it late.

The definitions are TraceLens's: of one collective the *transfer* is the shortest kernel of it on any rank, the *wait*
of a rank what its own kernel takes longer, the *skew* how far the starts lie apart; the *straggler* is the rank that
arrives last most often (of equals the one that waits least). The work between two collectives tells what made it late:
the ranks run one program.
"""

from __future__ import annotations

from mio2trace.ranks.meetings import Meeting, meetings
from mio2trace.ranks.table import each_table, said, table
from mio2trace.ranks.totals import RankTotal, straggler, totals

__all__ = ["Meeting", "RankTotal", "each_table", "meetings", "said", "straggler", "table", "totals"]
