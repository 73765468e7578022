"""The database of rocprofv3: commands, calls and ranges of one cause have one ``stack_id``."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from tests.oracle.events import Call, Command, Mark, Recording, opened


def read(path: Path) -> Recording:
    with opened(path) as base:
        return recorded(base)


def recorded(base: sqlite3.Connection) -> Recording:
    made = Recording()
    launches: dict[tuple[str, int], Call] = {}
    for row in base.execute("SELECT guid, category, name, pid, tid, start, end, stack_id, extdata FROM regions"):
        place = row["pid"], row["tid"]
        if row["category"].startswith("MARKER"):
            text = json.loads(row["extdata"] or "{}").get("message") or row["name"]
            made.marks.append(Mark(*place, text, row["start"], row["end"]))
        elif row["category"].startswith("HIP"):
            call = Call(*place, row["name"], row["start"], row["end"])
            made.calls.append(call)
            launches[row["guid"], row["stack_id"]] = call
    for row in base.execute(
        "SELECT guid, pid, agent_abs_index AS device, stream_id, name, start, end, stack_id FROM kernels"
    ):
        call_of = launches.get((row["guid"], row["stack_id"]))
        made.commands.append(
            Command(
                row["pid"], row["device"], row["stream_id"], "kernel", row["name"], row["start"], row["end"], call_of
            )
        )
    for row in base.execute(
        "SELECT guid, pid, stream_id, name, start, end, stack_id, src_agent_type, src_agent_abs_index AS source,"
        " dst_agent_abs_index AS target, dst_agent_type FROM memory_copies"
    ):
        device = row["target"] if row["dst_agent_type"] == "GPU" else row["source"]
        call_of = launches.get((row["guid"], row["stack_id"]))
        made.commands.append(
            Command(row["pid"], device, row["stream_id"], "copy", row["name"], row["start"], row["end"], call_of)
        )
    return made
