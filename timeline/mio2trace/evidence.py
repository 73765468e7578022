"""Evidence of links: one word each, as in traces, tables and ``--without`` (trace-contract.md 3)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

Evidence = Literal[
    "range",
    "correlation",
    "graph node",
    "capture",
    "sequence",
    "timer marks",
    "position",
    "buffers",
    "launch line",
    "boundary stamps",
    "recurrence",
    "name and sizes",
    "durations",
    "order",
]

EVIDENCE: tuple[Evidence, ...] = get_args(Evidence)
"""All kinds of evidence, strongest first."""

RANGE: Final = "range"
CORRELATION: Final = "correlation"
GRAPH_NODE: Final = "graph node"
CAPTURE: Final = "capture"
SEQUENCE: Final = "sequence"
TIMER_MARKS: Final = "timer marks"
POSITION: Final = "position"
BUFFERS: Final = "buffers"
LAUNCH_LINE: Final = "launch line"
BOUNDARY_STAMPS: Final = "boundary stamps"
RECURRENCE: Final = "recurrence"
NAME_AND_SIZES: Final = "name and sizes"
DURATIONS: Final = "durations"
ORDER: Final = "order"

STRENGTH: Mapping[Evidence, int] = MappingProxyType({word: -place for place, word in enumerate(EVIDENCE)})
"""Strength: weaker evidence never overrides stronger evidence."""

EXACT: frozenset[Evidence] = frozenset(
    (RANGE, CORRELATION, GRAPH_NODE, CAPTURE, SEQUENCE, TIMER_MARKS, POSITION, BUFFERS, LAUNCH_LINE)
)
"""These kinds record a link, if no other link fits equally; the other kinds infer it."""
