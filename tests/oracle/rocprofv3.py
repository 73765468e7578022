"""Text files of rocprofv3: commands and calls of one cause have one correlation id."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.oracle.events import Call, Command, Mark, Recording, unpacked

# ---- CSV: one file for each kind of row


def rows(path: Path) -> Iterator[dict[str, str]]:
    """By lower-case names of columns; none where the file is not there."""
    if path.exists():
        lines = unpacked(path).decode().splitlines()
        names = [name.lower() for name in next(csv.reader(lines[:1]))]
        for cells in csv.reader(lines[1:]):
            if len(cells) >= names.index("end_timestamp"):  # a file may be cut off
                yield dict(zip(names, cells, strict=False))


def ranges(path: Path) -> Iterator[list[str]]:
    """Rows of ranges: [text, process, thread, id, start, end]. Quotes in the text are not escaped: read from behind."""
    if path.exists():
        for line in unpacked(path).decode().splitlines()[1:]:
            text, *numbers = line.rsplit(",", 5)
            yield [text.split(",", 1)[1].strip('"'), *(number.strip('"') for number in numbers)]


def number(cell: str) -> int:
    """Of an agent or a stream: ``4`` or ``Agent 4``."""
    return int(cell.rsplit(" ", 1)[-1])


def read_csv(path: Path) -> Recording:
    stem = path.name.removesuffix("kernel_trace.csv")
    made = Recording()
    launches: dict[str, Call] = {}
    for row in rows(path.with_name(stem + "hip_api_trace.csv")):
        place = int(row["process_id"]), int(row["thread_id"])
        call = Call(*place, row["function"], int(row["start_timestamp"]), int(row["end_timestamp"]))
        made.calls.append(call)
        launches[row["correlation_id"]] = call
    for text, process, thread, _, start, end in ranges(path.with_name(stem + "marker_api_trace.csv")):
        made.marks.append(Mark(int(process), int(thread), text, int(start), int(end)))
    named = re.match(r"\d+(?=_)", stem)
    alone = int(named[0]) if named else next((call.process for call in made.calls), 0)
    for row in rows(path):
        made.commands.append(_command(row, alone, row["agent_id"], "kernel", row["kernel_name"], launches))
    for row in rows(path.with_name(stem + "memory_copy_trace.csv")):
        to_device = row["direction"].endswith("TO_DEVICE")
        agent = row["destination_agent_id" if to_device else "source_agent_id"]
        made.commands.append(_command(row, alone, agent, "copy", row["direction"], launches))
    return made


def _command(row: dict[str, str], process: int, agent: str, kind: str, name: str, launches: dict[str, Call]) -> Command:
    call = launches.get(row["correlation_id"])
    stream = number(row.get("stream_id") or row.get("queue_id") or "0")
    span = int(row["start_timestamp"]), int(row["end_timestamp"])
    of = call.process if call else process, number(agent), stream, kind, name
    return Command(*of, *span, call, launch=int(row["correlation_id"]), sized=kind != "copy")


# ---- JSON: everything of all processes in one file


def read_json(path: Path) -> Recording:
    made = Recording()
    for process in json.loads(unpacked(path))["rocprofiler-sdk-tool"]:
        _process(process, made)
    return made


def _process(text: dict[str, Any], made: Recording) -> None:
    records, strings, pid = text["buffer_records"], text["strings"], text["metadata"]["pid"]
    operations = {at: kind["operations"] for at, kind in enumerate(strings["buffer_records"])}
    launches: dict[int, Call] = {}
    for row in records.get("hip_api", []):
        name = operations[row["kind"]][row["operation"]]
        call = Call(pid, row["thread_id"], name, row["start_timestamp"], row["end_timestamp"])
        made.calls.append(call)
        launches[row["correlation_id"]["internal"]] = call
    texts = {row["key"]: row["value"] for row in strings.get("marker_api", [])}
    for row in records.get("marker_api", []):
        text_of = texts.get(row["correlation_id"]["internal"], "")
        made.marks.append(Mark(pid, row["thread_id"], text_of, row["start_timestamp"], row["end_timestamp"]))
    symbols = {row["kernel_id"]: row["formatted_kernel_name"] for row in text["kernel_symbols"]}
    devices = {row["id"]["handle"] for row in text["agents"] if row["type"] == 2}
    for kind in ("kernel_dispatch", "memory_copy"):
        for row in records.get(kind, []):
            info = row.get("dispatch_info")
            ends = [row[end]["handle"] for end in ("dst_agent_id", "src_agent_id") if end in row]
            agent = info["agent_id"]["handle"] if info else next((end for end in ends if end in devices), ends[0])
            made.commands.append(
                Command(
                    pid,
                    agent,
                    row.get("stream_id", {}).get("handle", 0),
                    "kernel" if info else "copy",
                    symbols[info["kernel_id"]] if info else "copy",
                    row["start_timestamp"],
                    row["end_timestamp"],
                    launches.get(row["correlation_id"]["internal"]),
                    launch=row["correlation_id"]["internal"],
                )
            )
