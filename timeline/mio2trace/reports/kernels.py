"""Tables of a profile's kernels: each kernel, sums by name, statistics by repetition, GEMMs, kernels of each layer.

``t1_t0`` is the host's time for the call (t0 to t1). ``p3_p0`` is the device's time from queued (p0), submitted (p1)
and started (p2) to ended (p3). The kernel's own time is ``p3_p2`` (dvdt-ck.md 1.4, 1.5, 4). Reads and writes of buffers
are not kernels. Sums and statistics cover the kernels with times; kernels without times are only counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from mio2trace.align import NONE, Alignment
from mio2trace.align.layers.repetitions import find_repetition
from mio2trace.kernels import KernelFact
from mio2trace.kernels.names import kernel_name
from mio2trace.kernels.split import find_parts
from mio2trace.measures import Measures, duration
from mio2trace.measures.counters import MEASURED, measured, plain
from mio2trace.measures.device_time.launches import queue_ns
from mio2trace.measures.statistics import percent
from mio2trace.model.gemm import Gemm
from mio2trace.model.log import Direction
from mio2trace.model.profile import Activity, Profile, Size3
from mio2trace.notes import InputError, Notes
from mio2trace.ops.naming import operation_name, problem_name
from mio2trace.outgoing import count
from mio2trace.reports.tables import STATISTICS, Cell, MadeRows, Row, Table, Unit, describe
from mio2trace.schema import recorded, shown_in

_RAW = {
    "p3_p2": "kernel", "t1_t0": "host", "p3_p0": "command_time", "p2_p1": "submit_wait", "p1_p0": "queue_wait",
}  # fmt: skip
"""Times by the names of the original notebook, which ``--raw`` keeps."""
_RAW_TIMES = {"p0_ns": "queued_ns", "p1_ns": "submit_ns", "p2_ns": "start_ns", "p3_ns": "end_ns"}
_RAW_SPAN = re.compile(rf"({'|'.join(_RAW)})(?:_(sum|mean))?((?:_\w+)?)")

QUANTITIES = ("t1_t0", "p3_p0", "p3_p2", "p2_p1", "p1_p0")
LARGEST_BUCKET = 1 << 14
_MEASURED = frozenset(f"measured_{name}" for name in MEASURED)


def quantities(activity: Activity) -> dict[str, int]:
    """Return the known ones of `QUANTITIES`, in ns."""
    found = {}
    if activity.host_start_ns is not None and activity.host_end_ns is not None:
        found["t1_t0"] = activity.host_end_ns - activity.host_start_ns
    p0, p1, p2, p3 = activity.queued_ns, activity.submit_ns, activity.start_ns, activity.end_ns
    for name, end, start in (("p3_p0", p3, p0), ("p3_p2", p3, p2), ("p2_p1", p2, p1), ("p1_p0", p1, p0)):
        if end is not None and start is not None:
            found[name] = end - start
    return found


def spoken(name: str) -> str:
    """Return the name that `mio2trace.schema` gives a column of these tables: ``p3_p2_sum_us`` is ``kernel_us``."""
    found = _RAW_SPAN.fullmatch(name)
    if found is not None:
        return _RAW[found[1]] + found[3]
    return _RAW_TIMES.get(name, name)


def kernels_of(profile: Profile) -> list[Activity]:
    """The kernels in call order."""
    return [activity for activity in profile.activities if activity.kind == "kernel"]


# -- one row per kernel -----------------------------------------------------------------------------------------------


PLACE = ("layer", "direction", "iteration", "operation", "problem", "solver", "operation_index")
"""Columns that show where a kernel belongs, if the log of its run is given. ``operation`` is its name, as in the trace
and in `ops`."""


def enqueue_table(profile: Profile, unit: Unit) -> Table:
    """Return one row per kernel, in call order. ``overhead``: (t1 - t0) - (p3 - p0), the time of the host alone.

    p0 to p3 are in ns for any unit: they are too long for fractions.
    """
    times = [unit.column(name) for name in QUANTITIES]
    shown = ("call_index", "name", "gws", "lws", "gwo", *times, unit.column("overhead"))
    of_reader = (column.name for column in shown_in("table"))
    columns = (*shown, unit.column("in_queue"), "queue", "line", "p0_ns", "p1_ns", "p2_ns", "p3_ns", *of_reader)
    counted = counter_columns(profile, (*columns, *PLACE))
    brief = (*shown, *(("queue",) if len(profile.queues) > 1 else ()), *counted)
    of_one = _row_maker(profile, unit)
    kernels = kernels_of(profile)

    def row(at: int) -> Row:
        return of_one(kernels[at]) | counter_cells(kernels[at], profile, counted)

    return Table(columns=(*columns, *counted), rows=MadeRows(row, range(len(kernels))), brief=brief)


def counter_columns(profile: Profile, taken: Sequence[str]) -> tuple[str, ...]:
    """Return a column for each hardware counter (with its unit if the source states one), then columns with their
    meaning."""
    columns: list[str] = []
    for counter in profile.counters:
        name = f"{counter.name} ({counter.unit})" if counter.unit else counter.name
        while name in taken or name in columns or name in _MEASURED:
            name += "'"
        columns.append(name)
    kernels = kernels_of(profile) if columns else []
    of_some = {name for kernel in kernels for name in measured(kernel, profile.counters).shown}
    return (*columns, *(f"measured_{name}" for name in MEASURED if name in of_some))


def counter_cells(activity: Activity, profile: Profile, columns: Sequence[str]) -> dict[str, Cell]:
    if not activity.counters:
        return {}
    cells: dict[str, Cell] = {
        name: plain(value) for name, value in zip(columns, activity.counters, strict=False) if value is not None
    }
    return cells | {f"measured_{name}": value for name, value in measured(activity, profile.counters).shown.items()}


def joined_table(alignment: Alignment, unit: Unit) -> Table:
    """Return `enqueue_table` with the layer and the operation of each kernel (`PLACE`)."""
    profile, links = alignment.profile, alignment.links
    activities = profile.activities
    counted = counter_columns(profile, (*enqueue_table(profile, unit).columns, *PLACE)) if profile.counters else ()
    operations = {operation.index: operation for operation in links.operations}
    of_one = _row_maker(profile, unit)

    @lru_cache(maxsize=1 << 12)
    def of_operation(index: int) -> dict[str, Cell]:
        operation = operations[index]
        solver = {} if operation.solver is None else {"solver": operation.solver}
        return {"operation": operation_name(operation), "problem": problem_name(operation), **solver}

    def row(at: int) -> Row:
        position = positions[at]
        cells = {**of_one(activities[position]), **counter_cells(activities[position], profile, counted)}
        run, index, iteration = links.run_of[position], links.operation_of[position], links.iteration_of(position)
        if run != NONE:
            cells["layer"] = links.runs[run].layer
            direction = links.runs[run].direction
            cells |= {} if direction is None else {"direction": direction}
        if iteration is not None:
            cells["iteration"] = iteration
        return cells if index == NONE else {**cells, **of_operation(index), "operation_index": index}

    plain = enqueue_table(alignment.profile, unit)
    positions = [position for position, activity in enumerate(activities) if activity.kind == "kernel"]
    times = (unit.column("p3_p2"), unit.column("overhead"), unit.column("in_queue"))
    return Table(
        columns=(*plain.columns, *PLACE),
        rows=MadeRows(row, range(len(positions))),
        brief=("call_index", "name", "gws", "lws", *times, *PLACE[:4], "solver", *counted),
    )


def _row_maker(profile: Profile, unit: Unit) -> Callable[[Activity], dict[str, Cell]]:
    """Return `_row` with the time of the kernel in its queue."""
    on_one_clock = not profile.calls_wait and all(device.clock == 0 for device in profile.devices)

    def make(activity: Activity) -> dict[str, Cell]:
        ns = queue_ns(activity, on_one_clock=on_one_clock)
        return _row(activity, unit) | ({} if ns is None else {unit.column("in_queue"): unit.of(ns)})

    return make


def _row(activity: Activity, unit: Unit) -> dict[str, Cell]:
    cells: dict[str, Cell | None] = {
        "call_index": activity.number,
        "name": activity.name,
        "gws": _size(activity.grid),
        "lws": _size(activity.workgroup),
        "gwo": _size(activity.opencl.offset),
        "queue": activity.queue,
        "line": activity.line or None,
        "p0_ns": activity.queued_ns,
        "p1_ns": activity.submit_ns,
        "p2_ns": activity.start_ns,
        "p3_ns": activity.end_ns,
    }
    found = quantities(activity)
    if "t1_t0" in found and "p3_p0" in found:
        found["overhead"] = found["t1_t0"] - found["p3_p0"]
    cells |= {unit.column(name): unit.of(ns) for name, ns in found.items()}
    cells |= recorded(activity.resources, "table")
    return {name: cell for name, cell in cells.items() if cell is not None}


def _size(size: Size3 | None) -> str | None:
    return None if size is None else "x".join(map(str, size))


# -- sums by name ----------------------------------------------------------------------------------------------------


def by_name(profile: Profile, unit: Unit) -> Table:
    """Return one row per kernel name, most kernel time first. ``percent_of_kernel_time``: of all kernels."""
    counts: Counter[str] = Counter()
    sums: dict[str, Counter[str]] = {}
    for activity in kernels_of(profile):
        counts[activity.name] += 1
        sums.setdefault(activity.name, Counter()).update(quantities(activity))
    whole = sum(found["p3_p2"] for found in sums.values())
    rows = [
        {"name": name, "count": counts[name], **_sums(sums[name], whole, unit)}
        for name in sorted(sums, key=lambda name: (-sums[name]["p3_p2"], name))
    ]
    columns = ("name", "count", unit.column("p3_p2_sum"), "percent_of_kernel_time", *_sum_columns(unit))
    return Table(columns=columns, rows=rows)


def _sum_columns(unit: Unit) -> list[str]:
    """Return all columns except the kernel time, which comes first."""
    return [unit.column(f"{name}_sum") for name in QUANTITIES if name != "p3_p2"]


def _sums(found: Mapping[str, int], whole: int, unit: Unit) -> dict[str, Cell]:
    cells: dict[str, Cell] = {unit.column(f"{name}_sum"): unit.of(ns) for name, ns in found.items()}
    share = percent(found["p3_p2"], whole) if "p3_p2" in found else None
    return cells if share is None else {**cells, "percent_of_kernel_time": share}


# -- statistics by repetition ----------------------------------------------------------------------------------------


def by_repetition(repetitions: Sequence[Sequence[Activity]], unit: Unit) -> Table:
    """Return one row per position in the repetition (``kernel_index`` from 0), with `STATISTICS` of each quantity.

    The last repetition may be incomplete. ``name`` has several names if the repetitions differ.
    """
    length = max(map(len, repetitions), default=0)
    rows: list[Row] = []
    for index in range(length):
        found = [repetition[index] for repetition in repetitions if index < len(repetition)]
        names = tuple(dict.fromkeys(activity.name for activity in found))
        cells: dict[str, Cell] = {
            "kernel_index": index,
            "name": names[0] if len(names) == 1 else names,
            "count": len(found),
        }
        values: dict[str, list[int]] = {}
        for activity in found:
            for name, ns in quantities(activity).items():
                values.setdefault(name, []).append(ns)
        for name, samples in values.items():
            cells |= {unit.column(f"{name}_{word}"): unit.of(value) for word, value in describe(samples).items()}
        rows.append(cells)
    first = ("kernel_index", "name", "count")
    shown = tuple(unit.column(f"p3_p2_{word}") for word in STATISTICS)
    others = (unit.column(f"{name}_{word}") for name in QUANTITIES if name != "p3_p2" for word in STATISTICS)
    return Table(columns=(*first, *shown, *others), rows=rows, brief=(*first, *shown))


def signature(activity: Activity) -> tuple[str, Size3 | None, Size3 | None]:
    """Return what repeated kernels have in common: name and sizes, not the arguments."""
    return activity.name, activity.grid, activity.workgroup


# -- GEMMs -----------------------------------------------------------------------------------------------------------

GEMM = ("M", "N", "K", "batch")
PADDED = ("padded_M", "padded_N", "padded_K")
BUCKET = ("bucket_M", "bucket_N", "bucket_K")
_NO_GEMM = "of no kernel the sizes of a GEMM are known"
_OBJECTS = {"gemm": GEMM, "padded": PADDED, "bucket": BUCKET}


class _Product:
    """A GEMM, its kernels, and their time (None if the time of one of them is not known)."""

    def __init__(self, activities: Sequence[Activity], fact: KernelFact, gemm: Gemm) -> None:
        self.activities = activities
        self.fact = fact
        self.gemm = gemm
        times = [duration(activity) for activity in activities]
        known = [ns for ns in times if ns is not None]
        self.ns = sum(known) if len(known) == len(times) else None

    @property
    def bucket(self) -> tuple[int, int, int]:
        return nearest_power(self.gemm.m), nearest_power(self.gemm.n), nearest_power(self.gemm.k)


def _products(profile: Profile, facts: Mapping[int, KernelFact]) -> list[_Product]:
    activities = profile.activities
    found = []
    for position, parts in find_parts(profile, facts).items():
        fact = facts[position]
        assert fact.gemm is not None
        found.append(_Product([activities[part] for part in parts], fact, fact.gemm))
    return found


def gemm_table(profile: Profile, facts: Mapping[int, KernelFact], unit: Unit) -> Table:
    """Return one row per GEMM of known size: real M, N, K, and GFLOP/s over all the kernels that compute it.

    ``p3_p2`` is the sum of ``kernels`` kernels, without auxiliary ones such as padding copies. ``padded_*``: the sizes
    as the kernel ran them, if they differ. ``bucket_*``: `nearest_power` of each size.
    """
    rows: list[Row] = []
    for product in _products(profile, facts):
        gemm, fact = product.gemm, product.fact
        first = _row(product.activities[0], unit)
        cells: dict[str, Cell] = {
            key: first[key] for key in ("call_index", "name", "gws", "lws", "gwo") if key in first
        }
        cells |= {"M": gemm.m, "N": gemm.n, "K": gemm.k, "kernels": len(product.activities), "flop": gemm.flop}
        if gemm.batch > 1:
            cells["batch"] = gemm.batch
        if fact.padded is not None:
            cells |= dict(zip(PADDED, fact.padded, strict=True))
        cells |= dict(zip(BUCKET, product.bucket, strict=True))
        cells["gemm_by"] = fact.gemm_by
        if product.ns is not None:
            cells[unit.column("p3_p2")] = unit.of(product.ns)
            if product.ns:
                cells["gflops"] = gemm.flop / product.ns
        rows.append(cells)
    shown = ("call_index", "name", *GEMM, "kernels", unit.column("p3_p2"), "gflops")
    return Table(
        columns=(*shown, "flop", "gemm_by", *PADDED, *BUCKET, "gws", "lws", "gwo"),
        rows=rows,
        objects=_OBJECTS,
        brief=(*shown, *BUCKET),
        empty=_NO_GEMM,
    )


def by_bucket(profile: Profile, facts: Mapping[int, KernelFact], unit: Unit) -> Table:
    """Return GEMMs by the nearest powers of two of M, N and K, most time first. ``percent_of_gemm_time``: of all GEMMs.

    ``gflops``: the FLOPs of the bucket's GEMMs divided by their time. GEMMs without times are only counted.
    """
    counts: Counter[tuple[int, int, int]] = Counter()
    time: Counter[tuple[int, int, int]] = Counter()
    flop: Counter[tuple[int, int, int]] = Counter()
    timed: Counter[tuple[int, int, int]] = Counter()
    for product in _products(profile, facts):
        counts[product.bucket] += 1
        if product.ns is not None:
            timed[product.bucket] += 1
            time[product.bucket] += product.ns
            flop[product.bucket] += product.gemm.flop
    whole = time.total()
    rows: list[Row] = []
    for bucket in sorted(counts, key=lambda bucket: (-time[bucket], bucket)):
        cells: dict[str, Cell] = {**dict(zip(BUCKET, bucket, strict=True)), "count": counts[bucket]}
        if timed[bucket]:
            cells |= {unit.column("p3_p2_sum"): unit.of(time[bucket]), "flop": flop[bucket]}
            share = percent(time[bucket], whole)
            if share is not None:
                cells["percent_of_gemm_time"] = share
            if time[bucket]:
                cells["gflops"] = flop[bucket] / time[bucket]
        rows.append(cells)
    columns = (*BUCKET, "count", unit.column("p3_p2_sum"), "percent_of_gemm_time", "flop", "gflops")
    return Table(columns=columns, rows=rows, objects={"bucket": BUCKET}, empty=_NO_GEMM)


def nearest_power(size: int) -> int:
    """Return the power of two from 1 to 2^14 that is nearest to a size, the smaller one of two equally near.

    The nearest triple in Euclidean distance has the nearest power in each dimension.
    """
    below = min(1 << (size.bit_length() - 1), LARGEST_BUCKET) if size > 0 else 1
    above = min(2 * below, LARGEST_BUCKET)
    return below if abs(size - below) <= abs(above - size) else above


# -- by layer --------------------------------------------------------------------------------------------------------


def by_layer(measures: Measures, unit: Unit) -> Table:
    """Return one row per execution of a layer, in order of first kernels. Rows without a layer have the kernels outside
    of all layers.

    ``names``: the number of its kernels by name. ``layer_by``: their number by evidence. ``unsure``: the number of
    kernels whose link has low confidence. ``iteration`` 0 is the warm-up.
    """
    alignment = measures.alignment
    links = alignment.links
    groups: dict[tuple[int, tuple[int, str, Direction | None] | None], list[int]] = {}
    for position, activity in enumerate(alignment.profile.activities):
        if activity.kind == "kernel":
            number = links.run_of[position]
            run = None if number == NONE else links.runs[number]
            layer = None if run is None else (run.layer_index, run.layer, run.direction)
            groups.setdefault((links.pass_of[position], layer), []).append(position)
    whole = measures.whole.timed_ns
    rows: list[Row] = []
    for (number, layer), positions in groups.items():
        pass_ = None if number == NONE else links.passes[number]
        cells: dict[str, Cell] = {"count": len(positions)}
        if pass_ is not None:
            cells["pass"] = pass_.name
            if pass_.iteration is not None:
                cells["iteration"] = pass_.iteration
            if pass_.direction is not None:
                cells["direction"] = pass_.direction
        if layer is not None:
            cells["layer_index"], cells["layer"] = layer[:2]
            if layer[2] is not None:
                cells["direction"] = layer[2]
        rows.append({**cells, **_of_positions(measures, positions, whole, unit)})
    time = unit.column("p3_p2_sum")
    shown = ("pass", "layer_index", "layer", "count", time, "percent_of_kernel_time", "names", "layer_by")
    columns = (
        "pass", "iteration", "direction", *shown[1:6], *_sum_columns(unit), "first_call_index", "last_call_index",
        "names", "layer_by", "unsure",
    )  # fmt: skip
    return Table(columns=columns, rows=rows, brief=(*shown, "unsure"))


def _of_positions(measures: Measures, positions: Sequence[int], whole: int, unit: Unit) -> dict[str, Cell]:
    """Return the sums over the kernels at ``positions``."""
    alignment, links = measures.alignment, measures.alignment.links
    activities = [alignment.profile.activities[position] for position in positions]
    sums: Counter[str] = Counter()
    for activity in activities:
        sums.update(quantities(activity))
    cost = measures.of(positions)
    if cost.untimed < cost.kernels:
        sums["p3_p2"] = cost.timed_ns
    cells = _sums(sums, whole, unit)
    cells["first_call_index"] = activities[0].number
    cells["last_call_index"] = activities[-1].number
    cells["names"] = dict(Counter(activity.name for activity in activities))
    evidence: Counter[str] = Counter(word for position in positions if (word := links.layer_by[position]))
    if evidence:
        cells["layer_by"] = dict(evidence)
    unsure = sum(position in links.layer_unsure for position in positions)
    if unsure:
        cells["unsure"] = unsure
    return cells


# -- The kernels of each repetition of a run; the length of a repetition is given or found ---------------------------


def repetitions(
    profile: Profile, per: int | None, skip: int, names: str, notes: Notes, said: list[str]
) -> list[list[Activity]]:
    """Return the kernels of each repetition. Raises `InputError` if no length is given and none is found."""
    found = kernels_of(profile)
    if per is not None:
        groups = [found[start : start + per] for start in range(skip, len(found), per)]
        odd = sum(
            len({repetition[index].name for repetition in groups if index < len(repetition)}) > 1
            for index in range(per)
        )
        if odd:
            notes.add(f"the kernels do not repeat every {per}: {count(odd, 'row')} with kernels of several names")
        if groups and len(groups[-1]) < per:
            notes.remark(f"the last repetition has {len(groups[-1])} of {count(per, 'kernel')}")
        return groups
    repetition = find_repetition([signature(activity) for activity in found])
    if repetition is None or 2 * repetition.covered < len(found):
        # A program fills a buffer when it first uses it. Without these fills the rest repeats.
        meanings = {name: kernel_name(name) for name in {activity.name for activity in found}}
        fills = {name for name, meaning in meanings.items() if meaning is not None and meaning.role == "fill"}
        kept = [activity for activity in found if activity.name not in fills]
        without = find_repetition([signature(activity) for activity in kept]) if len(kept) < len(found) else None
        if without is not None and 2 * without.covered >= len(kept):
            notes.remark(
                "kernel that only fills a buffer left out: without them the others repeat", "", len(found) - len(kept)
            )
            found, repetition = kept, without
    if repetition is None or 2 * repetition.covered < len(found):
        longest = "nothing comes twice in a row"
        if repetition is not None:
            longest = f"the longest repetition takes {len(repetition.starts)} times {repetition.period}"
        raise InputError(
            f"{names}: no period in {count(len(found), 'kernel')}: {longest}, expected at least half of them "
            "(--per N groups them anyway)"
        )
    starts = repetition.starts
    said.append(
        f"period: {count(repetition.period, 'kernel')}, {count(len(starts), 'time')}, "
        f"first at call {found[starts[0]].number}; "
        f"{len(found) - repetition.covered:,} of {count(len(found), 'kernel')} in no repetition"
    )
    return [found[start : start + repetition.period] for start in starts]
