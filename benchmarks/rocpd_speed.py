"""How fast rocpd databases are read and drawn, in ratios of one run on one machine: one JSON line.

    python benchmarks/rocpd_speed.py [--kernels 1000000] [--repeat 3] [--linear] [--folder DIR]

A database is made up in the tables of ``--schema`` (a real database, whose rows are not read). It has a process, two
threads and streams, kernels with their launches, a ROCTx range around each ten kernels, a step around each thousand.

* ``time_ratio``: ``mio2trace run.db -o out.pftrace`` from start to exit, over the time that fetching the same rows
  takes with ``sqlite3`` alone (limit 12).
* ``peak_bytes``: the program's peak resident memory (limit 1.5 GB at a million kernels).
* ``--linear``: also a quarter of them and five times as many; ``exponent`` is that of the time by their number.

Each is a process of its own, the best of all repetitions counts. ``cpu_ratio``: of processor time, all processes
together, which says more on a busy machine.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from benchmarks.samples import SHARED, require  # noqa: E402
from benchmarks.speed import run  # noqa: E402
from tests.rocm_files import plain  # noqa: E402

LIMITS = {"time_ratio": 12.0, "peak_bytes": 1_500_000_000.0, "exponent": 1.1}
_BOOT = 10**15
_OF_A_RANGE, _OF_A_STEP = 10, 1000
_NAMES = 60
_CALLS, _MARKS = 1, 2
_FETCH = """
import sqlite3, sys, time
sys.path.insert(0, "")
from benchmarks.rocpd_speed import queries
connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro&immutable=1", uri=True)
start, begun = time.perf_counter(), time.process_time()
for query in queries():
    for row in connection.execute(query):
        pass
sys.stdout.write(f"{time.perf_counter() - start} {time.process_time() - begun}")
"""


def queries() -> tuple[str, ...]:
    """The rows that the program reads of such a database."""
    return (
        "SELECT guid, id, string FROM rocpd_string",
        "SELECT guid, id, stack_id, parent_stack_id, category_id FROM rocpd_event",
        "SELECT guid, id, extdata FROM rocpd_event WHERE extdata <> '{}'",
        "SELECT guid, pid, tid, start, end, name_id, event_id FROM rocpd_region",
        "SELECT guid, pid, tid, agent_id, kernel_id, dispatch_id, queue_id, stream_id, start, end, workgroup_size_x,"
        " workgroup_size_y, workgroup_size_z, grid_size_x, grid_size_y, grid_size_z, group_segment_size,"
        " private_segment_size, event_id FROM rocpd_kernel_dispatch",
    )


def make(schema: Path, kernels: int, target: Path) -> None:
    """A database of so many kernels in the tables of ``schema``."""
    with contextlib.closing(sqlite3.connect(f"file:{schema}?immutable=1", uri=True)) as connection:
        made = connection.execute("SELECT name, type, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
        schema_rows = [row for row in made.fetchall() if not row[0].startswith("sqlite_")]
        (guid,) = connection.execute("SELECT guid FROM rocpd_info_process").fetchone()
    of = {name.removesuffix(f"_{guid.replace('-', '_')}"): name for name, kind, _ in schema_rows if kind == "table"}
    target.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(target)) as connection:
        connection.execute("PRAGMA synchronous = 0")
        connection.execute("PRAGMA journal_mode = OFF")
        for _, _, sql in schema_rows:
            connection.execute(sql)

        def insert(table: str, rows: Iterator[dict[str, Any]] | Sequence[dict[str, Any]]) -> None:
            rows = iter(rows)
            while some := list(islice(rows, 10_000)):
                keys = ", ".join(f'"{key}"' for key in some[0])
                marks = ", ".join("?" * len(some[0]))
                values = [tuple(row.values()) for row in some]
                connection.executemany(f'INSERT INTO "{of[table]}" ({keys}) VALUES ({marks})', values)

        insert("rocpd_info_node", [{"id": 1, "hash": 1, "machine_id": "made up"}])
        insert("rocpd_info_process", [{"id": 1, "nid": 1, "pid": 4711}])
        insert("rocpd_info_thread", [{"id": place, "nid": 1, "pid": 1, "tid": 4710 + place} for place in (1, 2)])
        gpu = {"id": 1, "nid": 1, "pid": 1, "type": "GPU", "product_name": "AMD Instinct MI300X", "name": "gfx942"}
        insert("rocpd_info_agent", [gpu])
        insert("rocpd_info_queue", [{"id": 1, "nid": 1, "pid": 1, "name": "Queue 1"}])
        insert("rocpd_info_stream", [{"id": place, "nid": 1, "pid": 1, "name": f"Stream {place}"} for place in (1, 2)])
        insert("rocpd_info_code_object", [{"id": 1, "nid": 1, "pid": 1, "agent_id": 1}])
        insert("rocpd_info_kernel_symbol", [_symbol(place) for place in range(1, _NAMES + 1)])
        words = ["HIP_RUNTIME_API_EXT", "MARKER_CORE_RANGE_API", "KERNEL_DISPATCH", "hipLaunchKernel", "roctxRangePush"]
        insert("rocpd_string", [{"id": place, "string": word} for place, word in enumerate(words, 1)])
        insert("rocpd_event", _events(kernels))
        insert("rocpd_region", _regions(kernels))
        insert("rocpd_kernel_dispatch", (_dispatch(place, kernels) for place in range(1, kernels + 1)))
        connection.commit()


def _symbol(place: int) -> dict[str, Any]:
    name = f"void k{place}<float, {place}>(float const*, float*)"
    counts = {"sgpr_count": 32, "arch_vgpr_count": 8 * (place % 12 + 1), "accum_vgpr_count": 0}
    head = {"id": place, "nid": 1, "pid": 1, "code_object_id": 1}
    return {**head, "kernel_name": f"_Z{place}.kd", "display_name": name, **counts}


def _event(place: int, category: int, stack: int, extra: str = "{}") -> dict[str, Any]:
    return {"id": place, "category_id": category, "stack_id": stack, "parent_stack_id": 0, "extdata": extra}


def _ranges(kernels: int) -> Iterator[tuple[int, int, str]]:
    """(first kernel, kernels, text) of each ROCTx range."""
    for first in range(0, kernels, _OF_A_RANGE):
        if first % _OF_A_STEP == 0:
            yield first, _OF_A_STEP, f"iteration {first // _OF_A_STEP + 1}"
        yield first, _OF_A_RANGE, f"conv{first % _OF_A_STEP // _OF_A_RANGE} forward"


def _events(kernels: int) -> Iterator[dict[str, Any]]:
    """Launches, kernels, ranges: numbered one after another."""
    for place in range(1, kernels + 1):
        yield _event(place, _CALLS, place)
        yield _event(kernels + place, 3, place)
    for place, (_, _, text) in enumerate(_ranges(kernels), 2 * kernels + 1):
        yield _event(place, _MARKS, place, orjson.dumps({"message": text}).decode())


def _regions(kernels: int) -> Iterator[dict[str, Any]]:
    for place in range(1, kernels + 1):
        start = _BOOT + 10_000 * place
        yield _region(place, start, start + 4_000, 4)
    for place, (first, count, _) in enumerate(_ranges(kernels), 2 * kernels + 1):
        start = _BOOT + 10_000 * (first + 1) - (2_000 if count == _OF_A_STEP else 1_000)
        yield _region(place, start, start + 10_000 * count - (1_000 if count == _OF_A_STEP else 4_000), 5)


def _region(place: int, start: int, end: int, name: int) -> dict[str, Any]:
    ids = {"id": place, "nid": 1, "pid": 1, "tid": 1}
    return {**ids, "start": start, "end": end, "name_id": name, "event_id": place}


def _dispatch(place: int, kernels: int) -> dict[str, Any]:
    stream = 1 + (place % 8 == 0)
    start = _BOOT + 10_000 * place + 6_000
    sizes = {"workgroup_size_x": 256, "workgroup_size_y": 1, "workgroup_size_z": 1}
    sizes |= {"grid_size_x": 256 * (place % _NAMES + 1), "grid_size_y": 1, "grid_size_z": 1}
    head = {"id": place, "nid": 1, "pid": 1, "tid": 1, "agent_id": 1, "kernel_id": place % _NAMES + 1}
    head |= {"dispatch_id": place, "queue_id": 1, "stream_id": stream, "start": start, "end": start + 7_000}
    return {**head, "private_segment_size": 0, "group_segment_size": 512, **sizes, "event_id": kernels + place}


def measure(database: Path, out: Path, repeat: int) -> dict[str, float]:
    fetches, ends = [], []
    for _ in range(repeat):
        fetches.append([float(word) for word in run([sys.executable, "-c", _FETCH, str(database)]).output.split()])
        ends.append(run([sys.executable, "-m", "mio2trace", str(database), "-o", str(out), "--quiet"]))
    best, cpu = min(end.seconds for end in ends), min(end.cpu_seconds for end in ends)
    fetch, fetch_cpu = (min(column) for column in zip(*fetches, strict=True))
    return {
        "database_bytes": database.stat().st_size,
        "sqlite_seconds": round(fetch, 3),
        "sqlite_cpu_seconds": round(fetch_cpu, 3),
        "seconds": round(best, 3),
        "cpu_seconds": round(cpu, 3),
        "peak_bytes": min(end.peak_bytes for end in ends),
        "output_bytes": out.stat().st_size,
        "time_ratio": round(best / fetch, 3),
        "cpu_ratio": round(cpu / fetch_cpu, 3),
    }


def main(argv: Sequence[str] | None = None) -> int:
    samples = SHARED / "samples" / "rocm"
    parser = argparse.ArgumentParser(description="Measure rocpd databases against sqlite3 alone.")
    parser.add_argument("--schema", type=Path, default=samples / "rocpd_ck_batched_gemm.db.gz")
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3, help="take the best of N runs (default 3)")
    parser.add_argument("--linear", action="store_true", help="a quarter and five times as many, too")
    parser.add_argument("--folder", type=Path, help="keep the databases here, and use them if they are there")
    parser.add_argument("--make", type=Path, metavar="FILE", help="write the database there and do no more")
    args = parser.parse_args(argv)
    require("--schema", args.schema)
    with tempfile.TemporaryDirectory() as temporary:
        if args.make is not None:
            make(plain(args.schema, Path(temporary)), args.kernels, args.make)
            return 0
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result: dict[str, Any] = {"load": round(os.getloadavg()[0], 2), "kernels": args.kernels}
        times: dict[int, float] = {}
        counts = [args.kernels, args.kernels // 4, args.kernels * 5] if args.linear else [args.kernels]
        for kernels in counts:
            database = folder / f"made-{kernels}.db"
            if not database.exists():
                # by a process of its own: a child's peak memory begins with its parent's
                job = ["--schema", str(args.schema), "--kernels", str(kernels), "--make", str(database)]
                run([sys.executable, __file__, *job])
            found = measure(database, folder / "out.pftrace", args.repeat if kernels == args.kernels else 1)
            times[kernels] = found["cpu_seconds"]
            result |= found if kernels == args.kernels else {f"{kernels}": found}
        if args.linear:
            (few, short), *_, (many, long) = sorted(times.items())
            result["exponent"] = round(math.log(long / short) / math.log(many / few), 3)
    result["over_limit"] = [name for name, limit in LIMITS.items() if float(result.get(name, 0)) > limit]
    print(orjson.dumps(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
