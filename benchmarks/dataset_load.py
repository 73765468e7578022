"""Measure a dataset of twenty million kernels in a thousand files: its size, and the time of the stored queries.

    python benchmarks/dataset_load.py [--runs 1000] [--kernels 20000] [-o DIR] [--repeat 3] [--keep]

A dataset of many runs is made from a real run of MIOpen (a HIP run with its log, `../shared/samples/rocm-twins`). Its
kernels are repeated with random changes of times and waits, and half of the runs have a second version. Prints one JSON
line:

* ``bytes_a_kernel``: bytes of the table kernels (limit 16). ``whole_bytes_a_kernel``: bytes of all tables.
* ``write_us_a_kernel``: rows to Parquet; ``rows_us_a_kernel``: an analysed run to rows.
* ``scan_seconds``: a plain scan, the kernels' times summed by nothing but reading them.
* ``questions``: of each stored question the seconds (limit 2) and their ratio to the scan; the same of the whole page.

Nothing here is asserted in a test.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson

ROOT = Path(__file__).resolve().parent.parent

sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

import mio2trace  # noqa: E402
from benchmarks.samples import SHARED, require  # noqa: E402
from mio2trace.dataset import tables_of, write_tables  # noqa: E402
from mio2trace.dataset.rows import Data, of_pool  # noqa: E402
from mio2trace.fleet import gather  # noqa: E402
from mio2trace.model.tables import Pool  # noqa: E402
from mio2trace.queries import (  # noqa: E402
    DATASET,
    opened,
    shipped,
)
from mio2trace.schema import SQL_COLUMNS  # noqa: E402

LIMITS = {"bytes_a_kernel": 16.0, "seconds": 2.0}
SCAN = "select count(name), sum(kernel_ns) from kernels"
VARIANTS = 8
"""Kernels that are made anew; every run has those of one of them."""
SAMPLE = "alexnet-10it-graph"

Columns = Mapping[str, Data]


def repeated(columns: Columns, count: int, chance: random.Random) -> dict[str, Data]:
    """The rows again and again, up to ``count``; times go on, durations differ by some percent."""
    rows = len(columns["run"])
    times = -(-count // rows)

    def grown(data: Data) -> Data:
        present = None if data.present is None else np.tile(data.present, times)[:count]
        return Data(data.column, np.tile(data.values, times)[:count], present, data.words)

    made = {name: grown(data) for name, data in columns.items()}
    for name in ("kernel_ns", "host_ns", "queue_wait_ns", "submit_wait_ns"):
        values = made[name].values
        for at, value in enumerate(values):
            values[at] = int(value * chance.uniform(0.97, 1.03))
    starts, now = made["start_ns"].values, 10**15
    for at, ns in enumerate(made["kernel_ns"].values):
        now += chance.randrange(2_000, 30_000)
        starts[at] = now
        now += ns
    for at in range(count):
        made["call_index"].values[at] = 7 * at
        made["iteration"].values[at] = at // rows
    return made


def of_run(tables: Mapping[str, Columns], name: str, version: str, slower: float) -> dict[str, Columns]:
    """The same tables of another run."""
    made: dict[str, Columns] = {}
    for table, columns in tables.items():
        count = len(columns["run"])
        changed = {**columns, "run": of_pool(columns["run"].column, Pool.same(name, count))}
        if table == "runs":
            changed["version"] = of_pool(columns["version"].column, Pool.same(version, count))
        if table in ("runs", "problems"):
            data = columns["kernel_ns"]
            values = data.values.copy()
            for at, value in enumerate(values):
                values[at] = value * slower
            changed["kernel_ns"] = Data(data.column, values, data.present)
        made[table] = changed
    return made


def make(sample: Path, folder: Path, runs: int, kernels: int) -> dict[str, float]:
    """Write the dataset; what the writing took."""
    analysis = mio2trace.analyse([sample / "rocpd", sample / "run.hip.log"])
    tables = dict(tables_of(analysis.run))
    begun = time.process_time()
    tables_of(analysis.run)
    rows_seconds = time.process_time() - begun
    chance = random.Random(18)
    variants = [repeated(tables["kernels"], kernels, chance) for _ in range(VARIANTS)]
    begun = time.process_time()
    for number in range(runs):
        version = ("2.10.0", "2.20.0")[2 * number // runs]
        name = f"{version}/run{number}"
        slower = chance.uniform(0.98, 1.02) * (1.1 if version == "2.20.0" else 1) * (2 if number % 97 == 0 else 1)
        write_tables(of_run({**tables, "kernels": variants[number % VARIANTS]}, name, version, slower), folder, name)
    seconds = time.process_time() - begun
    (folder / "_runs.jsonl").write_text(
        "".join(
            orjson.dumps(
                {"run": f"run{number}", "state": "failed", "error": "cut off", "seconds": 1, "ended": 1}
            ).decode()
            + "\n"
            for number in range(10)
        )
    )
    return {
        "write_us_a_kernel": round(seconds / runs / kernels * 1e6, 2),
        "rows_us_a_kernel": round(rows_seconds / len(tables["kernels"]["run"]) * 1e6, 2),
    }


def least(repeat: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest of several times."""
    taken = []
    for _ in range(repeat):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def measure(folder: Path, kernels: int, repeat: int) -> dict[str, Any]:
    """Sizes, and seconds of each question: each time the dataset is opened anew, as a command does."""

    def ask(sql: str) -> object:
        with opened(str(folder), SQL_COLUMNS) as dataset:
            return dataset.ask(sql)

    def page() -> object:
        with opened(str(folder), SQL_COLUMNS) as dataset:
            return gather(dataset, "ds")

    scan = least(repeat, partial(ask, SCAN))
    seconds = {query.name: least(repeat, partial(ask, query.sql)) for query in shipped(DATASET).values()}
    seconds["(the whole page)"] = least(repeat, page)
    return {
        "kernels": kernels,
        "bytes_a_kernel": round(size(folder / "kernels") / kernels, 2),
        "whole_bytes_a_kernel": round(size(folder) / kernels, 2),
        "scan_seconds": round(scan, 3),
        "questions": {name: [round(taken, 3), round(taken / scan, 2)] for name, taken in seconds.items()},
        "limits": LIMITS,
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--kernels", type=int, default=20_000, help="of each run")
    parser.add_argument("-o", "--output", type=Path, help="where the dataset is made; kept with --keep")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--shared", type=Path, default=SHARED, help="the folder of the real samples")
    options = parser.parse_args(argv)
    sample = options.shared / "samples" / "rocm-twins" / SAMPLE
    require("--shared", sample)
    folder = options.output or Path(tempfile.mkdtemp(prefix="mio2trace-dataset-"))
    try:
        there = (folder / "made.json").is_file()
        written = (
            orjson.loads((folder / "made.json").read_bytes())
            if there
            else make(sample, folder, options.runs, options.kernels)
        )
        (folder / "made.json").write_bytes(orjson.dumps(written))
        print(orjson.dumps({**written, **measure(folder, options.runs * options.kernels, options.repeat)}).decode())
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
