"""Profiles as files whose rows can be moved, removed and added: for changes whose effect is known beforehand.

A `Raw` has the rows that tell when something ran, with times in whole nanoseconds, and writes the file anew in its own
format. It shares nothing with the program. Rows of Python functions are left out: no number depends on them.
"""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.oracle.events import unpacked


@dataclass(eq=False)
class Row:
    """``kind``: kernel, copy, call, range, other. ``link``: the same of a command and of the call that launched it."""

    kind: str
    name: str
    start: int
    end: int
    link: tuple[Any, ...]
    source: Any
    size: Any = None
    stream: Any = None
    gone: bool = False


class Raw(ABC):
    """``rows`` hold what the file says; what is changed in them, `save` writes."""

    rows: list[Row]

    @abstractmethod
    def save(self, folder: Path) -> list[Path]:
        """Write the profile; the files that are it."""

    @abstractmethod
    def add_copy(self, launch: Row, call: tuple[int, int], copy: tuple[int, int]) -> bool:
        """Add a copy of few bytes and the blocking call that makes it, at ``launch``; False: there is none alike."""

    def add_range(self, like: Row, text: str, start: int, end: int) -> None:
        """Add a named range to the thread of ``like``, a range that there is."""
        raise NotImplementedError

    def call_of(self) -> dict[tuple[Any, ...], Row]:
        return {row.link: row for row in self.rows if row.kind == "call" and not row.gone}


def load(path: Path) -> Raw:
    name = path.name.removesuffix(".gz")
    if name.endswith("_results.json") or "rocprofv3_json" in name:
        return V3Json(path)
    kinds: dict[str, type[Kineto] | type[Rocpd] | type[Rpd] | type[V3Csv]] = {
        ".json": Kineto, ".db": Rocpd, ".rpd": Rpd, ".csv": V3Csv,
    }  # fmt: skip
    return kinds[Path(name).suffix](path)


# ---- PyTorch's


class Kineto(Raw):
    KINDS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "copy", "cuda_runtime": "call"}  # noqa: RUF012

    def __init__(self, path: Path) -> None:
        self.text = json.loads(unpacked(path), parse_float=Decimal)
        self.rows = []
        for event in self.text["traceEvents"]:
            cat = event.get("cat")
            if "ts" not in event or cat == "python_function":
                continue
            start = int(Decimal(event["ts"]) * 1000)
            end = start + int(Decimal(event.get("dur", 0)) * 1000)
            kind = "range" if cat == "user_annotation" else self.KINDS.get(cat, "other")
            args = event.get("args", {})
            link = (args["correlation"],) if "correlation" in args else (id(event),)
            size = (args["grid"], args["block"]) if "grid" in args and "block" in args else None
            stream = event.get("pid"), event.get("tid")
            self.rows.append(Row(kind, event.get("name", ""), start, end, link, event, size, stream))
        grids = {row.link: row.size for row in self.rows if row.kind == "call"}
        for row in self.rows:  # the size of a launch stands in one of its two rows
            if row.kind == "kernel" and row.size is None:
                row.size = grids.get(row.link)
        if self.rows:
            self.last = max(row.link[0] for row in self.rows if row.kind in ("kernel", "call", "copy"))

    def add_copy(self, launch: Row, call: tuple[int, int], copy: tuple[int, int]) -> bool:
        self.last += 1
        device = next(row.source for row in self.rows if row.kind == "kernel" and row.link == launch.link)
        made = {"ph": "X", "cat": "cuda_runtime", "name": "hipMemcpyWithStream", "args": {"correlation": self.last}}
        made |= {key: launch.source[key] for key in ("pid", "tid")}
        args = {"device": device["args"]["device"], "stream": device["args"]["stream"], "correlation": self.last}
        moved = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Host)", "args": {**args, "bytes": 4}}
        moved |= {key: device[key] for key in ("pid", "tid")}
        self.rows.append(Row("call", "hipMemcpyWithStream", *call, (self.last,), made))
        self.rows.append(Row("copy", "copy", *copy, (self.last,), moved))
        return True

    def add_range(self, like: Row, text: str, start: int, end: int) -> None:
        self.rows.append(Row("range", text, start, end, (), {**like.source, "name": text}))

    def save(self, folder: Path) -> list[Path]:
        events = [event for event in self.text["traceEvents"] if "ts" not in event]
        for row in self.rows:
            if not row.gone:
                row.source["ts"] = Decimal(row.start) / 1000
                if row.source.get("ph") == "X":
                    row.source["dur"] = Decimal(row.end - row.start) / 1000
                events.append(row.source)
        text = json.dumps({**self.text, "traceEvents": events}, default=lambda number: f"@@{number:f}@@")
        path = folder / "changed.pt.trace.json"
        path.write_text(text.replace('"@@', "").replace('@@"', ""))
        return [path]


# ---- databases


class Base(Raw):
    """A copy of the database in memory; ``source`` of a row is (table, id)."""

    suffix = ""

    def __init__(self, path: Path) -> None:
        self.base = sqlite3.connect(":memory:")
        data = bytearray(unpacked(path))
        data[18:20] = b"\x01\x01"  # a merged one is in WAL mode, which memory cannot be
        self.base.deserialize(bytes(data))
        self.rows = []
        self.read()

    @abstractmethod
    def read(self) -> None: ...

    def save(self, folder: Path) -> list[Path]:
        for row in self.rows:
            table, number = row.source
            if row.gone:
                self.base.execute(f'DELETE FROM "{table}" WHERE id = ?', (number,))
            else:
                times = row.start, row.end, number
                self.base.execute(f'UPDATE "{table}" SET start = ?, "end" = ? WHERE id = ?', times)
        self.base.commit()
        path = folder / f"changed{self.suffix}"
        path.write_bytes(self.base.serialize())
        return [path]

    def _again(self, table: str, number: int, **changed: Any) -> int:
        """A second row like one, with other values; its id."""
        cursor = self.base.execute(f'SELECT * FROM "{table}" WHERE id = ?', (number,))
        values = dict(zip([column[0] for column in cursor.description], cursor.fetchone(), strict=True))
        values |= changed
        del values["id"]
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        made = self.base.execute(f'INSERT INTO "{table}" ({names}) VALUES ({marks})', tuple(values.values()))
        assert made.lastrowid is not None
        return made.lastrowid


class Rocpd(Base):
    suffix = "_results.db"

    def read(self) -> None:
        tables = [name for (name,) in self.base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        self.tables = {name.removeprefix("rocpd_region"): name for name in tables if name.startswith("rocpd_region")}
        for tail, table in self.tables.items():
            strings = f'SELECT string FROM "rocpd_string{tail}" s WHERE s.id'
            for number, name, start, end, stack, category in self.base.execute(
                f'SELECT r.id, ({strings} = r.name_id), r.start, r."end", e.stack_id, ({strings} = e.category_id)'
                f' FROM "{table}" r JOIN "rocpd_event{tail}" e ON e.id = r.event_id'
            ):
                kind = "range" if category.startswith("MARKER") else "call"
                self.rows.append(Row(kind, name, start, end, (tail, stack), (table, number)))
            for kind, where, name in (
                ("kernel", f"rocpd_kernel_dispatch{tail}", "r.kernel_id"),
                ("copy", f"rocpd_memory_copy{tail}", "r.size"),
            ):
                size = "r.grid_size_x || ' ' || r.grid_size_y || ' ' || r.grid_size_z" if kind == "kernel" else "''"
                for number, named, start, end, stack, grid, stream in self.base.execute(
                    f'SELECT r.id, {name}, r.start, r."end", e.stack_id, {size}, r.stream_id FROM "{where}" r'
                    f' JOIN "rocpd_event{tail}" e ON e.id = r.event_id'
                ):
                    of = tail, stream
                    self.rows.append(Row(kind, str(named), start, end, (tail, stack), (where, number), grid, of))

    def add_copy(self, launch: Row, call: tuple[int, int], copy: tuple[int, int]) -> bool:
        tail = launch.link[0]
        calls = self.call_of()
        for row in self.rows:
            made_by = calls.get(row.link)
            if row.kind == "copy" and row.link[0] == tail and made_by is not None and made_by.name == "hipMemcpy":
                break
        else:
            return False
        stack = 1 + max(other.link[1] for other in self.rows if other.link[0] == tail)
        for of, span in ((made_by, call), (row, copy)):
            table, number = of.source
            (event,) = self.base.execute(f'SELECT event_id FROM "{table}" WHERE id = ?', (number,)).fetchone()
            event = self._again(f"rocpd_event{tail}", event, stack_id=stack, parent_stack_id=stack)
            (thread,) = self.base.execute(
                f'SELECT tid FROM "{launch.source[0]}" WHERE id = ?', launch.source[1:]
            ).fetchone()
            size = {"size": 4} if of is row else {}
            number = self._again(table, number, event_id=event, tid=thread, **size)
            self.rows.append(Row(of.kind, of.name, *span, (tail, stack), (table, number)))
        return True

    def add_range(self, like: Row, text: str, start: int, end: int) -> None:
        table, number = like.source
        (tail, _), message = like.link, json.dumps({"message": text})
        (event,) = self.base.execute(f'SELECT event_id FROM "{table}" WHERE id = ?', (number,)).fetchone()
        event = self._again(f"rocpd_event{tail}", event, extdata=message, stack_id=0, parent_stack_id=0)
        self.rows.append(Row("range", text, start, end, (), (table, self._again(table, number, event_id=event))))


class Rpd(Base):
    suffix = ".rpd"

    def read(self) -> None:
        for number, name, start, end in self.base.execute(
            'SELECT a.id, s.string, a.start, a."end" FROM rocpd_api a JOIN rocpd_string s ON s.id = a.apiName_id'
        ):
            kind = "range" if name == "UserMarker" else "call"
            self.rows.append(Row(kind, name, start, end, (number,), ("rocpd_api", number)))
        for number, name, of, start, end, api, *stream, grid in self.base.execute(
            'SELECT o.id, d.string, t.string, o.start, o."end", l.api_id, o.gpuId, o.queueId,'
            ' k.gridX || " " || k.gridY || " " || k.gridZ'
            " FROM rocpd_op o LEFT JOIN rocpd_string d ON d.id = o.description_id"
            " LEFT JOIN rocpd_string t ON t.id = o.opType_id LEFT JOIN rocpd_api_ops l ON l.op_id = o.id"
            " LEFT JOIN rocpd_kernelapi k ON k.api_ptr_id = l.api_id"
        ):
            kind = "kernel" if of in ("KernelExecution", "Task") else "copy"
            link = (api,) if api is not None else ("op", number)
            self.rows.append(Row(kind, name or "", start, end, link, ("rocpd_op", number), grid, tuple(stream)))

    def add_copy(self, launch: Row, call: tuple[int, int], copy: tuple[int, int]) -> bool:
        calls = self.call_of()
        for row in self.rows:
            made_by = calls.get(row.link)
            if row.kind == "copy" and made_by is not None and made_by.name in ("hipMemcpy", "hipMemcpyWithStream"):
                break
        else:
            return False
        (thread,) = self.base.execute("SELECT tid FROM rocpd_api WHERE id = ?", launch.source[1:]).fetchone()
        api = self._again("rocpd_api", made_by.source[1], tid=thread)
        op = self._again("rocpd_op", row.source[1])
        self.base.execute("INSERT INTO rocpd_api_ops (api_id, op_id) VALUES (?, ?)", (api, op))
        if self.base.execute("SELECT 1 FROM rocpd_copyapi WHERE api_ptr_id = ?", made_by.source[1:]).fetchone():
            cursor = self.base.execute("SELECT * FROM rocpd_copyapi WHERE api_ptr_id = ?", made_by.source[1:])
            names = [column[0] for column in cursor.description]
            values = dict(zip(names, cursor.fetchone(), strict=True)) | {"api_ptr_id": api, "size": 4}
            marks = ", ".join("?" * len(values))
            self.base.execute(f"INSERT INTO rocpd_copyapi VALUES ({marks})", tuple(values.values()))
        self.rows.append(Row("call", made_by.name, *call, (api,), ("rocpd_api", api)))
        self.rows.append(Row("copy", row.name, *copy, (api,), ("rocpd_op", op)))
        return True

    def add_range(self, like: Row, text: str, start: int, end: int) -> None:
        string = self.base.execute("INSERT INTO rocpd_string (string) VALUES (?)", (text,)).lastrowid
        number = self._again("rocpd_api", like.source[1], args_id=string)
        self.rows.append(Row("range", text, start, end, (number,), ("rocpd_api", number)))


# ---- rocprofv3's text


class V3Json(Raw):
    KINDS = {"kernel_dispatch": "kernel", "memory_copy": "copy", "hip_api": "call", "marker_api": "range"}  # noqa: RUF012

    def __init__(self, path: Path) -> None:
        self.text = json.loads(unpacked(path))
        self.rows = []
        for process, one in enumerate(self.text["rocprofiler-sdk-tool"]):
            operations = [kind["operations"] for kind in one["strings"]["buffer_records"]]
            for table, kind in self.KINDS.items():
                for row in one["buffer_records"].get(table, []):
                    info = row.get("dispatch_info", {})
                    name = operations[row["kind"]][row["operation"]] if kind == "call" else str(info.get("kernel_id"))
                    link = process, row["correlation_id"]["internal"]
                    times = row["start_timestamp"], row["end_timestamp"]
                    grid = tuple(info.get("grid_size", {}).values())
                    stream = process, row.get("stream_id", {}).get("handle")
                    self.rows.append(Row(kind, name, *times, link, row, grid, stream))

    def add_copy(self, launch: Row, call: tuple[int, int], copy: tuple[int, int]) -> bool:
        process = launch.link[0]
        calls = self.call_of()
        for row in self.rows:
            made_by = calls.get(row.link)
            if row.kind == "copy" and row.link[0] == process and made_by is not None and made_by.name == "hipMemcpy":
                break
        else:
            return False
        number = 1 + max(other.link[1] for other in self.rows if other.link[0] == process)
        for of, span in ((made_by, call), (row, copy)):
            source = {**of.source, "correlation_id": {**of.source["correlation_id"], "internal": number}}
            source["thread_id"] = launch.source["thread_id"]
            if of is row:
                source["bytes"] = 4
            self.rows.append(Row(of.kind, of.name, *span, (process, number), source))
        return True

    def add_range(self, like: Row, text: str, start: int, end: int) -> None:
        process = like.link[0]
        number = 10_000_000 + len(self.rows)
        self.text["rocprofiler-sdk-tool"][process]["strings"]["marker_api"].append({"key": number, "value": text})
        ids = {**like.source["correlation_id"], "internal": number}
        self.rows.append(Row("range", text, start, end, (process, number), {**like.source, "correlation_id": ids}))

    def save(self, folder: Path) -> list[Path]:
        for process, one in enumerate(self.text["rocprofiler-sdk-tool"]):
            for table, kind in self.KINDS.items():
                one["buffer_records"][table] = [
                    {**row.source, "start_timestamp": row.start, "end_timestamp": row.end}
                    for row in self.rows
                    if row.kind == kind and row.link[0] == process and not row.gone
                ]
        path = folder / "77_results.json"
        path.write_text(json.dumps(self.text))
        return [path]


class V3Csv(Raw):
    TABLES = {"kernel": "kernel", "memory_copy": "copy", "hip_api": "call"}  # noqa: RUF012

    def __init__(self, path: Path) -> None:
        self.stem = stem = path.name.removesuffix("kernel_trace.csv")
        self.heads: dict[str, list[str]] = {}
        self.rows = []
        for table, kind in self.TABLES.items():
            file = path.with_name(f"{stem}{table}_trace.csv")
            if file.exists():
                lines = csv.reader(io.StringIO(file.read_text()))
                head = self.heads[kind] = next(lines)
                for cells in lines:
                    row = dict(zip(head, cells, strict=False))
                    if "End_Timestamp" in row:
                        name = row.get("Kernel_Name") or row.get("Function") or row["Direction"]
                        times = int(row["Start_Timestamp"]), int(row["End_Timestamp"])
                        grid = tuple(row.get(f"Grid_Size_{axis}") for axis in "XYZ")
                        self.rows.append(
                            Row(kind, name, *times, (int(row["Correlation_Id"]),), row, grid, row.get("Stream_Id"))
                        )
        marks = path.with_name(f"{stem}marker_api_trace.csv")
        self.marks = marks.read_text().splitlines() if marks.exists() else []
        for line in self.marks[1:]:  # whose texts have quotes that are not escaped
            text, start, end = line.rsplit(",", 2)
            self.rows.append(Row("range", text, int(start.strip('"')), int(end.strip('"')), (text,), text))

    def add_copy(self, launch: Row, call: tuple[int, int], copy: tuple[int, int]) -> bool:
        """Its table of copies has no bytes."""
        return False

    def add_range(self, like: Row, text: str, start: int, end: int) -> None:
        _, *places = like.source.rsplit(",", 3)
        source = ",".join([f'"MARKER_CORE_RANGE_API","{text}"', *places])
        self.rows.append(Row("range", text, start, end, (), source))

    def save(self, folder: Path) -> list[Path]:
        paths = []
        for table, kind in self.TABLES.items():
            if kind in self.heads:
                path = folder / f"{self.stem}{table}_trace.csv"
                with path.open("w", newline="") as file:
                    writer = csv.DictWriter(file, self.heads[kind], quoting=csv.QUOTE_NONNUMERIC)
                    writer.writeheader()
                    for row in self.rows:
                        if row.kind == kind and not row.gone:
                            writer.writerow(row.source | {"Start_Timestamp": row.start, "End_Timestamp": row.end})
                paths.append(path)
        if self.marks:
            path = folder / f"{self.stem}marker_api_trace.csv"
            lines = [f"{row.source},{row.start},{row.end}" for row in self.rows if row.kind == "range" and not row.gone]
            path.write_text("\n".join([self.marks[0], *lines]) + "\n")
            paths.append(path)
        return paths
