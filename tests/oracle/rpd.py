"""RPD: a table ties what the device did to the call that launched it; ranges are calls named ``UserMarker``."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tests.oracle.events import Call, Command, Mark, Recording, opened


def read(path: Path) -> Recording:
    with opened(path) as base:
        return recorded(base)


def recorded(base: sqlite3.Connection) -> Recording:
    made = Recording()
    calls: dict[int, Call] = {}
    for row in base.execute(
        "SELECT a.id, a.pid, a.tid, a.start, a.end, n.string AS name, t.string AS text FROM rocpd_api a"
        " LEFT JOIN rocpd_string n ON n.id = a.apiName_id LEFT JOIN rocpd_string t ON t.id = a.args_id"
    ):
        if row["name"] == "UserMarker":
            made.marks.append(Mark(row["pid"], row["tid"], row["text"], row["start"], row["end"]))
        else:
            calls[row["id"]] = Call(row["pid"], row["tid"], row["name"], row["start"], row["end"])
    made.calls += calls.values()
    launches = {row["op_id"]: calls.get(row["api_id"]) for row in base.execute("SELECT * FROM rocpd_api_ops")}
    processes = {call.process for call in calls.values()}
    alone = next(iter(processes)) if len(processes) == 1 else -1
    for row in base.execute(
        "SELECT o.id, o.gpuId, o.queueId, o.start, o.end, d.string AS name, t.string AS type FROM rocpd_op o"
        " LEFT JOIN rocpd_string d ON d.id = o.description_id LEFT JOIN rocpd_string t ON t.id = o.opType_id"
    ):
        kind = "copy" if row["type"].startswith("Copy") else "fill" if row["type"].startswith("Fill") else "kernel"
        call = launches.get(row["id"])
        process = call.process if call is not None else alone
        name = row["name"] or row["type"]
        place = process, row["gpuId"], row["queueId"]
        made.commands.append(Command(*place, kind, name, row["start"], row["end"], call, on_queue=True))
    return made
