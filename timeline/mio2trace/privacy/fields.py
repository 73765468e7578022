"""Which text of a record an output may show: declared field by field, so that no new one slips through.

`tests/test_privacy.py` keeps the three tables complete: every field of every record that can hold text is in one.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from mio2trace.model.choices import GemmChoice, GemmTable, SolverRecord, SolverTime
from mio2trace.model.log import FrameworkLog, LayerTime, LogEvent, NetLayer
from mio2trace.model.miopen import Command, Entry, LoggedCall, Message, MiopenLog
from mio2trace.model.profile import (
    Activity,
    BufferCreated,
    Call,
    Captured,
    Clock,
    Collective,
    Counter,
    Device,
    Framework,
    Inputs,
    Node,
    OpenClLaunch,
    Process,
    Profile,
    Program,
    Queue,
    Range,
    SourceLine,
    Thread,
)
from mio2trace.model.tf import Execution, Printed, TfNode, ViewRow

Sort = Literal["layer", "name", "text"]
SHOWN: dict[type[msgspec.Struct], dict[str, Sort]] = {
    Activity: {"name": "name"},
    Call: {"name": "name"},
    Captured: {"name": "name"},
    SourceLine: {"file": "name"},
    Range: {"text": "text"},
    Device: {"name": "text"},
    Thread: {"name": "text"},
    Counter: {"name": "name", "unit": "name"},
    GemmChoice: {"function": "name", "solution": "name", "epilogue": "name", "types": "name"},
    Inputs: {"kernel_file": "name"},
    SolverTime: {"solver": "name"},
    Process: {"label": "text"},
    Queue: {"name": "text"},
    Node: {"name": "layer", "op": "layer", "layer": "layer", "place": "name"},
    FrameworkLog: {"device_name": "text"},
    LayerTime: {"layer": "layer"},
    LogEvent: {"text": "layer"},
    NetLayer: {"layer": "layer", "type": "name", "tops": "layer"},
    Command: {"tag": "name", "text": "text"},
    Message: {"function": "name", "text": "text"},
    TfNode: {"name": "layer", "op": "layer", "op_types": "layer", "device": "layer", "place": "name"},
    ViewRow: {"name": "layer"},
}
"""Text that an output may show. ``layer``: names that may hold slashes of their own (``/block1/conv1``), so that only
what begins in a folder of the system is a path. ``name``: few distinct ones. ``text``: anything."""
CUT_APART: dict[type[msgspec.Struct], tuple[str, ...]] = {TfNode: ("name", ":", "op", "op_types")}
"""Two fields that a reader cut out of one text, with what stood between, then fields that repeat the second: a form may
begin in one and end in the other, as a serial number does after its word."""
NEVER_SHOWN: dict[type[msgspec.Struct], frozenset[str]] = {
    Queue: frozenset({"handle"}),
    Clock: frozenset({"scope"}),
    Program: frozenset({"handle", "source", "options"}),
    OpenClLaunch: frozenset({"kernel", "arguments"}),
    Inputs: frozenset({"values"}),
    BufferCreated: frozenset({"handle"}),
    LoggedCall: frozenset({"template"}),
    Entry: frozenset({"addresses"}),
    Execution: frozenset({"device", "label"}),
    SolverTime: frozenset({"parameters"}),
    GemmTable: frozenset({"made_for"}),
}
A_WORD: dict[type[msgspec.Struct], frozenset[str]] = {
    LoggedCall: frozenset({"api"}),
    Activity: frozenset({"route"}),
    Inputs: frozenset({"dtypes"}),
    Collective: frozenset({"name", "dtype"}),
    Framework: frozenset({"name"}),
    Node: frozenset({"attributes"}),
    Message: frozenset({"level", "kind"}),
    MiopenLog: frozenset({"counts"}),
    TfNode: frozenset({"attributes"}),
    ViewRow: frozenset({"own", "total"}),
    Printed: frozenset({"unit"}),
    SolverTime: frozenset({"algorithm"}),
    SolverRecord: frozenset({"key"}),
    GemmChoice: frozenset({"library"}),
    Profile: frozenset({"defects"}),
}
"""Of a vocabulary that the reader knows, or letters and digits only."""
