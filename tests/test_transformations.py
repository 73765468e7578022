"""Changes of a recording whose effect on every number can be computed from the numbers before.

One run of three marked steps is written in each form, and again after each change. Nothing of the program takes part in
a change or in what is expected of it.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

from tests import kineto_files
from tests.commands import json_of
from tests.rocm_made import Run, rocpd, rpd, v1_database, v1_table, v3_object, v3_tables

Numbers = dict[str, Any]
START, STEP = 10**15, 600_000
KERNELS = (("conv_fwd", 60_000), ("relu", 8_000), ("conv_bwd", 120_000))
PAUSE = 50_000_000
LENGTHS = (400_000, 440_000, 420_000)


def three_steps() -> Run:
    """Host-bound steps of different lengths: a copy, then kernels with a gap before each; equal ones in each step."""
    run, key = Run(kernels=[], calls=[], ranges=[], copies=[]), 10

    def launch(rows: list[tuple[Any, ...]], call: str, name: str, at: int, took: int) -> None:
        nonlocal key
        key += 1
        run.calls.append((call, at, at + 4_000, key, 7))
        rows.append((name, at + 6_000, at + 6_000 + took, key, 7))

    for step, length in enumerate(LENGTHS):
        begin = START + step * STEP
        run.ranges.append((f"step {step + 1}", begin, begin + length, 1000 + step, 7))
        launch(run.copies, "hipMemcpyAsync", "HOST_TO_DEVICE", begin + 2_000, 10_000)
        at = begin + 30_000
        for name, took in KERNELS:
            launch(run.kernels, "hipLaunchKernel", name, at, took)
            at += took + 20_000
    return run


def kineto(one: Run) -> bytes:
    stream: dict[str, Any] = {"device": 2, "stream": 0}
    events = []
    for rows, cat, more in (
        (one.ranges, "user_annotation", {}),
        (one.calls, "cuda_runtime", {}),
        (one.kernels, "kernel", stream),
        (one.copies, "gpu_memcpy", stream | {"bytes": 4096}),
    ):
        for name, start, end, key, tid in rows:
            pid, thread = (2, 0) if more else (one.pid, tid)
            shown = name.replace("step ", "ProfilerStep#").replace("HOST_TO_DEVICE", "Memcpy HtoD (Host -> Device)")
            ids = more if rows is one.ranges else more | {"correlation": key}
            events.append(kineto_files.row(cat, shown, pid, thread, start / 1000, (end - start) / 1000, **ids))
    return kineto_files.trace(events, base=None)


TABLES = [f"7_{word}_trace.csv" for word in ("kernel", "hip_api", "marker_api", "memory_copy")]
FORMS: dict[str, Callable[[Run], dict[str, bytes]]] = {
    "Kineto": lambda one: {"a.pt.trace.json": kineto(one)},
    "rocpd": lambda one: {"7_results.db": rocpd(one)},
    "RPD": lambda one: {"trace.rpd": rpd(one)},
    "rocprofv3, tables": lambda one: dict(zip(TABLES, v3_tables(one), strict=True)),
    "rocprofv3, JSON": lambda one: {"7_results.json": v3_object(one)},
    "rocprof, database": lambda one: {"results.db": v1_database(one)},
    "rocprof, table": lambda one: {"results.csv": v1_table(one)},
}
KERNELS_ONLY = "rocprof, table"
ROWS = "ranges", "calls", "kernels", "copies"


def each_row(change: Callable[[Any, int, int, Any, int], tuple[Any, ...]]) -> Callable[[Run], Run]:
    return lambda run: msgspec.structs.replace(
        run, **{rows: [change(*row) for row in getattr(run, rows)] for rows in ROWS}
    )


def in_time(of: Callable[[int], int]) -> Callable[[Run], Run]:
    return each_row(lambda name, start, end, *ids: (name, of(start), of(end), *ids))


def shuffled(run: Run) -> Run:
    return msgspec.structs.replace(run, **{r: Random(1).sample(x := getattr(run, r), len(x)) for r in ROWS})


def halved(run: Run) -> Run:
    """Each kernel as two, back to back, of one launch."""
    kernels = [
        half
        for name, start, end, *ids in run.kernels
        for middle in [(start + end) // 2]
        for half in ((name, start, middle, *ids), (name, middle, end, *ids))
    ]
    return msgspec.structs.replace(run, kernels=kernels)


def renamed(run: Run) -> Run:
    return msgspec.structs.replace(run, kernels=[(f"unknown_{name}", *row) for name, *row in run.kernels])


def with_a_call(run: Run) -> Run:
    """A call that launches nothing, on a thread of its own."""
    return msgspec.structs.replace(run, calls=[*run.calls, ("hipGetDevice", START + 5_000, START + 6_000, 9999, 8)])


def without_the_middle(run: Run) -> Run:
    def stays(row: tuple[Any, ...]) -> bool:
        return not START + STEP <= row[1] < START + 2 * STEP

    return msgspec.structs.replace(run, **{rows: [*filter(stays, getattr(run, rows))] for rows in ROWS})


def twice(run: Run) -> Run:
    """The same steps again behind it, with numbers of their own."""
    later = 3 * STEP

    def again(name: str, start: int, end: int, key: int, tid: int) -> tuple[Any, ...]:
        word, _, number = name.partition(" ")
        return f"{word} {int(number) + 3}" if word == "step" else name, start + later, end + later, key + 5000, tid

    more = each_row(again)(run)
    return msgspec.structs.replace(run, **{rows: [*getattr(run, rows), *getattr(more, rows)] for rows in ROWS})


def numbers(path: Path) -> Numbers:
    """The numbers of the report, and the sum over the table of kernels."""
    (run,) = json_of("report", path)["runs"]
    kernels = json_of("kernels", path)
    step = run["step"] or {}
    return {
        "kernels": len(kernels), "total_ns": sum(one["kernel_ns"] for one in kernels),
        "starts_ns": sorted(one["start_ns"] for one in kernels),
        "names": {one["name"]: (one["ns"], one["calls"]) for one in run["kernels"]},
        "complete": run["completeness"]["counts"],
        "steps": run["steady_iterations"], "kernel_ns": run["kernel_ns"], "copy_ns": run["copy_ns"],
        "each_ns": step.get("length_of_each_ns"), "busy_ns": step.get("compute_ns"), "idle_ns": step.get("idle_ns"),
        "share": step.get("idle_percent_of_step"),
        "gaps": {one["why"]: (one["gaps"], one["ns"]) for one in run["idle"]},
    }  # fmt: skip


def scaled(value: Any, times: int) -> Any:
    """Every time in it; in pairs one of the two is a count."""
    if isinstance(value, list):
        return [scaled(one, times) for one in value]
    return None if value is None else value * times


class Change(NamedTuple):
    of: Callable[[Run], Run]
    expected: Callable[[Numbers], Numbers] = lambda before: {}
    """What differs from the numbers before."""
    of_kernels: bool = True
    """Whether a file of kernels alone, whose steps only repeat, changes in the same way."""


def moved(by: int) -> Change:
    return Change(in_time(lambda ns: ns + by), lambda before: {"starts_ns": [ns + by for ns in before["starts_ns"]]})


def of_stretched(before: Numbers) -> Numbers:
    times = {key: scaled(value, 3) for key, value in before.items() if key.endswith("_ns")}
    return times | {
        "starts_ns": [START + 3 * (ns - START) for ns in before["starts_ns"]],
        "names": {name: (3 * ns, calls) for name, (ns, calls) in before["names"].items()},
        "gaps": {why: (gaps, 3 * ns) for why, (gaps, ns) in before["gaps"].items()},
    }


def of_halved(before: Numbers) -> Numbers:
    halves = [took // 2 for _, took in KERNELS] * len(LENGTHS)
    pairs = zip(before["starts_ns"], halves, strict=True)
    return {
        "kernels": 2 * before["kernels"],
        "names": {name: (ns, 2 * calls) for name, (ns, calls) in before["names"].items()},
        "starts_ns": [at for start, half in pairs for at in (start, start + half)],
    }


def of_two_steps(before: Numbers) -> Numbers:
    each = [LENGTHS[0], LENGTHS[2]]
    idle = sum(each) // 2 - before["busy_ns"] - before["copy_ns"]
    queued, at = before["gaps"]["queued"][1] * 2 // 3, before["starts_ns"]
    return {
        "kernels": 6, "total_ns": before["total_ns"] * 2 // 3, "starts_ns": at[:3] + at[6:], "steps": 2,
        "each_ns": each, "idle_ns": idle, "share": round(200 * idle / sum(each), 3),
        "gaps": {why: (gaps * 2 // 3, queued if why == "queued" else 2 * idle - queued)
                 for why, (gaps, _) in before["gaps"].items()},
    }  # fmt: skip


def of_twice(before: Numbers) -> Numbers:
    doubled = {key: 2 * before[key] for key in ("kernels", "total_ns", "steps", "each_ns")}
    return doubled | {
        "starts_ns": before["starts_ns"] + [ns + 3 * STEP for ns in before["starts_ns"]],
        "gaps": {why: (2 * gaps, 2 * ns) for why, (gaps, ns) in before["gaps"].items()},
    }


def of_paused(before: Numbers) -> Numbers:
    at = before["starts_ns"]
    return {"starts_ns": at[:3] + [ns + PAUSE for ns in at[3:]]}


CHANGES = {
    "moved": moved(1_000),
    "moved beyond what a float holds": moved((1 << 53) // 1_000 * 1_000),
    "stretched": Change(in_time(lambda ns: START + 3 * (ns - START)), of_stretched),
    "in another order": Change(shuffled),
    "other ids": Change(
        each_row(lambda name, start, end, key, tid: (name, start, end, 7 * key + 3, tid)), of_kernels=False
    ),
    "another process": Change(lambda run: msgspec.structs.replace(run, pid=4_000_000)),
    "other names": Change(
        renamed, lambda before: {"names": {f"unknown_{name}": told for name, told in before["names"].items()}}
    ),
    "halved kernels": Change(halved, of_halved),
    "one more call": Change(with_a_call, of_kernels=False),
    "a pause between steps": Change(in_time(lambda ns: ns + PAUSE * (ns >= START + STEP)), of_paused, of_kernels=False),
    "without a step": Change(without_the_middle, of_two_steps, of_kernels=False),
    "twice": Change(twice, of_twice, of_kernels=False),
}


def written(files: dict[str, bytes], folder: Path) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_each_number_changes_as_the_run_did(form: str, tmp_path: Path) -> None:
    """The numbers before the change are those of the run. So each number is changed by at least one of the changes."""
    run = three_steps()
    files = FORMS[form](run)
    before = numbers(written(files, tmp_path / "before"))
    assert (before["total_ns"], before["complete"]) == (3 * sum(took for _, took in KERNELS), {})
    if form != KERNELS_ONLY:
        assert (before["each_ns"], before["steps"], before["copy_ns"]) == ([*LENGTHS], 3, 10_000)
    for name, change in CHANGES.items():
        if change.of_kernels or form != KERNELS_ONLY:
            changed = FORMS[form](change.of(run))
            assert changed != files, f"{name}: changes nothing"
            assert numbers(written(changed, tmp_path / name)) == before | change.expected(before), name


def turned(value: Any) -> Any:
    """The keys of each object in another order."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in sorted(value, reverse=True)}
    return [*map(turned, value)] if isinstance(value, list) else value


def as_table(data: bytes, *, step: int = 1, **form: Any) -> bytes:
    """The columns in the order of ``step``, and one column more."""
    lines = [*csv.reader(io.StringIO(data.decode()))]
    out = io.StringIO(newline="")
    csv.writer(out, **form).writerows([*line[::step], f"new {at}"] for at, line in enumerate(lines))
    return out.getvalue().encode()


def with_strangers(data: bytes) -> bytes:
    """A table more, and in each table a column more."""
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.deserialize(data)
        for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            base.execute(f'ALTER TABLE "{name}" ADD COLUMN brand_new DEFAULT 7')
        base.execute("CREATE TABLE brand_new (start, end)")
        base.commit()
        return base.serialize()


LAYOUTS: dict[str, list[Callable[[bytes], bytes]]] = {
    ".json": [
        lambda data: json.dumps(json.loads(data), separators=(",", ":")).encode(),
        lambda data: json.dumps(json.loads(data), indent=4).encode(),
        lambda data: json.dumps(turned(json.loads(data))).encode(),
        lambda data: data.replace(b">", rb"\u003e").replace(b"_", rb"\u005f"),
        lambda data: json.dumps({**json.loads(data), "brand_new": [{"ts": 1}]}).encode(),
    ],
    ".csv": [
        partial(as_table, step=-1), partial(as_table, lineterminator="\r\n"), partial(as_table, quoting=csv.QUOTE_ALL)
    ],
    ".db": [with_strangers],
    ".rpd": [with_strangers],
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_another_layout_changes_no_number(form: str, tmp_path: Path) -> None:
    files = FORMS[form](three_steps())
    before = numbers(written(files, tmp_path / "before"))
    for place, layout in enumerate(LAYOUTS[Path(next(iter(files))).suffix]):
        changed = {name: layout(content) for name, content in files.items()}
        assert changed != files
        assert numbers(written(changed, tmp_path / str(place))) == before, place
