"""One run as a rocpd database of each schema, in minimal tables after the specification (rocpd-versions.md).

The tables carry the run's id in their names, the views have the plain names. Ids of rows differ from the system's
numbers, strings and events are shared by nothing, times of schema 4.0.0 are not in order of their ids.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

GUID = "0000abcd-1111-2222-3333-444455556666"
SUFFIX = "_" + GUID.replace("-", "_")
VERSIONS = ("3.0.0", "3.0.1", "3.0.2", "3.0.3", "3.0.4", "3.0.5", "4.0.0", "4.1.0")
PID, TID, ROW_OF_PID, ROW_OF_TID, AGENT = 4711, 4712, 3, 5, 2
GRAPH, NODES = 77, (11, 12, 13)
"""The graph of the run: its id and those of its nodes, in schemas that have them."""
AT = 10**15
FIELDS = ("pid", "tid", "agent_id", "queue_id", "stream_id")


class Counted(NamedTuple):
    """A counter of each kernel: ``values``, one per kernel and instance."""

    name: str
    values: tuple[tuple[float, ...], ...]
    unit: str = ""
    is_derived: int = 0
    expression: str = ""


class Kernel(NamedTuple):
    name: str
    start: int
    end: int
    stack: int
    node: int = 0


KERNELS = (
    Kernel("conv_fwd", AT + 300, AT + 900, 3),
    *(
        Kernel(f"node_{node}", AT + 1_000_000 * launch + 300 + 100 * node, AT + 1_000_000 * launch + 390 + 100 * node,
               20 + launch, node)
        for launch in (1, 2) for node in NODES
    ),
)  # fmt: skip
CALLS = (
    ("hipLaunchKernel", AT + 100, AT + 200, 3),
    ("hipGraphLaunch", AT + 1_000_100, AT + 1_000_200, 21),
    ("hipGraphLaunch", AT + 2_000_100, AT + 2_000_200, 22),
    ("hipMemcpy", AT + 3_000_000, AT + 3_002_000, 40),
)
RANGES = (("conv1 forward", AT, AT + 500, 1), ("s_api = miopenF | p = 1 | ", AT + 20, AT + 400, 2))
MARK = ("epoch 1", AT + 4_000_000)
COPY = ("HOST_TO_DEVICE", AT + 3_000_500, AT + 3_001_500, 40, 4096)


class Tables:
    """Tables as they fill: a row is a mapping of its columns, and a table has the columns of all its rows."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.number = tuple(map(int, version.split(".")))
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self._ids = 100
        self._tracks: dict[tuple[Any, ...], int] = {}

    def add(self, table: str, **row: Any) -> int:
        self._ids += 1
        number: int = row.setdefault("id", self._ids)
        self.rows.setdefault(table, []).append({"guid": GUID, **row})
        return number

    def string(self, text: str) -> int:
        return self.add("rocpd_string", string=text)

    def event(self, category: str, stack: int, parent: int = 0, extra: str = "{}") -> int:
        if self.number < (4,):
            kind = self.string(category)
            return self.add("rocpd_event", category_id=kind, stack_id=stack, parent_stack_id=parent, correlation_id=0,
                            call_stack="{}", line_info="{}", extdata=extra)  # fmt: skip
        kind = self.add("rocpd_info_category", name=category, extdata="{}")
        return self.add(
            "rocpd_event", category_id=kind, stack_id=stack, parent_stack_id=parent, correlation_id=0, extdata=extra
        )

    def placed(self, table: str, start: int, end: int | None, place: Mapping[str, Any], **row: Any) -> int:
        """A row of a thread or queue: with its own columns, or with a track; with times, or with ids of times."""
        if self.number >= (4,) or table == "rocpd_sample":
            columns = FIELDS if self.number >= (4,) else FIELDS[:2]
            values = tuple(place.get(name) for name in columns)
            if values not in self._tracks:
                self._tracks[values] = self.add("rocpd_track", nid=1, **dict(zip(columns, values, strict=True)))
            row["track_id"] = self._tracks[values]
        else:
            row |= {"nid": 1, **place}
        names = ("timestamp",) if end is None else ("start", "end")
        for name, value in zip(names, (start, end), strict=False):
            if self.number[:2] == (4, 0):
                row[f"{name}_id"] = self.add("rocpd_timestamp", id=1_000_000 - self._ids, value=value, track_id=None)
                self._ids += 1
            else:
                row[name] = value
        return self.add(table, **row)


def tables(version: str, counters: Iterable[Counted] = (), lost: int = 0, pid: int = PID, private: str = "") -> Tables:
    """``lost``: how many kernels of the second graph launch were not recorded."""
    made = Tables(version)
    number = made.number
    tags = {"schema_version": version, "uuid": SUFFIX, "guid": GUID}
    if number >= (3, 0, 1):
        tags |= dict(zip(("schema_version_major", "schema_version_minor", "schema_version_patch"), version.split("."),
                         strict=True))  # fmt: skip
    else:
        tags["schema_version"] = "3"
    for tag, value in tags.items():
        made.add("rocpd_metadata", tag=tag, value=value)
    made.add("rocpd_info_node", id=1, hash=1, machine_id="0123456789abcdef", hostname=private or "host")
    made.add(
        "rocpd_info_process",
        id=ROW_OF_PID,
        nid=1,
        pid=pid,
        environment=json.dumps({"RANK": "1", "X": private}),
        command=private or "x",
    )
    made.add("rocpd_info_thread", id=ROW_OF_TID, nid=1, pid=ROW_OF_PID, tid=TID, name=private or "main")
    made.add("rocpd_info_agent", id=AGENT, nid=1, type="GPU", absolute_index=1, name=private or "gfx942",
             product_name="AMD Instinct MI300X")  # fmt: skip
    made.add("rocpd_info_queue", id=1, name=private or "Queue 1")
    made.add("rocpd_info_stream", id=0, name="Stream 0")
    host = {"pid": ROW_OF_PID, "tid": ROW_OF_TID}
    device = {**host, "agent_id": AGENT, "queue_id": 1, "stream_id": 0}
    none = made.string("")
    for text, start, end, key in RANGES:
        event = made.event(
            "MARKER_CORE_RANGE_API", key, 0, json.dumps({"message": f"{text} {private}" if private else text})
        )
        made.placed("rocpd_region", start, end, host, name_id=made.string("roctxThreadRangeA"), event_id=event)
    for name, start, end, key in CALLS:
        event = made.event("HIP_RUNTIME_API_EXT", key, 1 if key == 3 else 0)
        made.placed("rocpd_region", start, end, host, name_id=made.string(f"{name} {private}".strip()), event_id=event)
    event = made.event("MARKER_CORE_API", 60, 0, json.dumps({"message": f"{MARK[0]} {private}".strip()}))
    more = {"name_id": none} if number >= (4,) else {}
    made.placed("rocpd_sample", MARK[1], None, host, event_id=event, **more)
    # Schema 4 has no graphs at all, 3.0.0 and 3.0.1 have not got them yet.
    has_graphs = (3, 0, 2) <= number < (4,)
    counted = tuple(counters)
    counter_ids = [
        made.add(
            "rocpd_info_pmc", nid=1, pid=ROW_OF_PID, agent_id=AGENT, target_arch="GPU", name=one.name, symbol=one.name,
            units=one.unit, value_type="ABS", expression=one.expression, is_constant=0, is_derived=one.is_derived,
        )
        for one in counted
    ]  # fmt: skip
    for place, kernel in enumerate(KERNELS[: len(KERNELS) - lost]):
        event = made.event("KERNEL_DISPATCH", kernel.stack, kernel.stack)
        shown = f"{kernel.name} {private}".strip()
        symbol = made.add(
            "rocpd_info_kernel_symbol", display_name=shown, kernel_name=f"{kernel.name}.kd", arch_vgpr_count=8,
            accum_vgpr_count=0, sgpr_count=16,
        )  # fmt: skip
        graph = {"graph_exec_id": GRAPH if kernel.node else 0, "graph_node_id": kernel.node} if has_graphs else {}
        made.placed(
            "rocpd_kernel_dispatch", kernel.start, kernel.end, device, kernel_id=symbol, dispatch_id=place + 1,
            private_segment_size=0, group_segment_size=512, workgroup_size_x=64, workgroup_size_y=1, workgroup_size_z=1,
            grid_size_x=128, grid_size_y=2, grid_size_z=1, **graph, region_name_id=none, event_id=event, extdata="{}",
        )  # fmt: skip
        for counter, counter_id in zip(counted, counter_ids, strict=True):
            for instance, amount in enumerate(counter.values[place]):
                where = {"sample_id": None, "xcc": instance, "shader_engine": 0, "instance": 0}
                made.add("rocpd_pmc_event", event_id=event, pmc_id=counter_id, value=amount,
                         **(where if (3, 0, 3) <= number < (4,) else {}))  # fmt: skip
    if has_graphs:
        for name, start, end, key in CALLS:
            if name == "hipGraphLaunch":
                event = made.event("HIP_GRAPH_LAUNCH", key, key)
                made.add(
                    "rocpd_graph_launch", nid=1, **host, agent_id=AGENT, queue_id=None, start=start, end=end,
                    graph_exec_id=GRAPH, kernel_dispatch_count=len(NODES), event_id=event, extdata="{}",
                )  # fmt: skip
    word, begin, until, key, size = COPY
    # a copy has two agents, and no column of its own for one before schema 4
    of_copy = device if number >= (4,) else {name: value for name, value in device.items() if name != "agent_id"}
    event = made.event("MEMORY_COPY", key, key)
    graph = {"graph_exec_id": 0, "graph_node_id": 0} if has_graphs else {}
    made.placed(
        "rocpd_memory_copy", begin, until, of_copy, name_id=made.string(f"MEMORY_COPY_{word}"), dst_agent_id=AGENT,
        src_agent_id=1, size=size, **graph, region_name_id=none, event_id=event,
    )  # fmt: skip
    return made


def database(made: Tables, *, views: bool = True, suffix: str = SUFFIX, guid: str = GUID, then: str = "") -> bytes:
    """The file; ``then`` is SQL that changes what was written."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA page_size = 1024")
        fill(connection, made, suffix, guid)
        if views:
            for table in made.rows:
                connection.execute(f'CREATE VIEW "{table}" AS SELECT * FROM "{table}{suffix}"')
        connection.commit()
        connection.executescript(f"{then}; VACUUM")  # a profiler writes the schema first
        return connection.serialize()


def fill(connection: sqlite3.Connection, made: Tables, suffix: str, guid: str) -> None:
    """The tables of one run."""
    for table, rows in made.rows.items():
        columns = list(dict.fromkeys(name for row in rows for name in row))
        if table == "rocpd_metadata":
            columns.remove("guid")
        listed = ", ".join(f'"{name}"' for name in columns)
        connection.execute(f'CREATE TABLE "{table}{suffix}" ({listed})')
        marks = ", ".join("?" * len(columns))
        connection.executemany(
            f'INSERT INTO "{table}{suffix}" VALUES ({marks})',
            [[guid if name == "guid" else row.get(name) for name in columns] for row in rows],
        )


def merged(runs: Iterable[tuple[Tables, str]]) -> bytes:
    """Several runs in a file, as ``rocpd merge`` makes one: views show the tables of one after those of the other."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA page_size = 1024")
        suffixes = []
        names: dict[str, None] = {}
        for made, guid in runs:
            suffixes.append("_" + guid.replace("-", "_"))
            fill(connection, made, suffixes[-1], guid)
            names |= dict.fromkeys(made.rows)
        for table in names:
            shown = " UNION ALL ".join(f'SELECT * FROM "{table}{suffix}"' for suffix in suffixes)
            connection.execute(f'CREATE VIEW "{table}" AS {shown}')
        connection.commit()
        connection.execute("VACUUM")
        return connection.serialize()
