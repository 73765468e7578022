"""Tables of a profile's kernels: each kernel, sums by name, statistics by repetition, GEMMs, kernels of each layer. The
cells with the cost of a steady iteration, which are the same in every table, are made here.

``t1_t0`` is the host's time for the call (t0 to t1). ``p3_p0`` is the device's time from queued (p0), submitted (p1)
and started (p2) to ended (p3). The kernel's own time is ``p3_p2`` (dvdt-ck.md 1.4, 1.5, 4). Reads and writes of buffers
are not kernels. Sums and statistics cover the kernels with times; kernels without times are only counted.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE, Alignment
from mio2trace.align.layers.repetitions import Repetition, find_repetition
from mio2trace.kernels import KernelFact
from mio2trace.kernels.blas import find_parts
from mio2trace.kernels.names import kernel_name
from mio2trace.measures import Measures, duration, total
from mio2trace.measures.cost import MEASURED, Measured, measured, plain, together
from mio2trace.measures.device_time import launch_times, queued_ns
from mio2trace.measures.ranking import Key, Ranking, SteadyCost
from mio2trace.measures.statistics import deviation, part_of, percent, quantile
from mio2trace.model.choices import Gemm
from mio2trace.model.profile import Activity, Profile, Size3
from mio2trace.model.tables import NO, Activities, Numbers, Pool, by_code, distinct, numbers, summed, thin
from mio2trace.notes import InputError, Notes
from mio2trace.ops.operation import Operation, operation_name, problem_name
from mio2trace.outgoing import count
from mio2trace.reports import STATISTICS, Cell, ColumnRows, Row, Table, describe, in_ns, known, ns_cells
from mio2trace.schema import base_of, recorded, shown_in

_RAW = {
    "p3_p2": "kernel", "t1_t0": "host", "p3_p0": "command_time", "p2_p1": "submit_wait", "p1_p0": "queue_wait",
}  # fmt: skip
"""Times by the names of the original notebook, which ``--raw`` keeps."""
_RAW_TIMES = {"p0_ns": "queued_ns", "p1_ns": "submit_ns", "p2_ns": "start_ns", "p3_ns": "end_ns"}
_RAW_SPAN = re.compile(rf"({'|'.join(_RAW)})(?:_(sum|mean))?((?:_\w+)?)")

QUANTITIES = ("t1_t0", "p3_p0", "p3_p2", "p2_p1", "p1_p0")
_OTHER_SUMS = in_ns(*(f"{name}_sum" for name in QUANTITIES if name != "p3_p2"))
"""All sums except the kernel time, which comes first."""
_CLOCKS = tuple(_RAW_TIMES)
LARGEST_BUCKET = 1 << 14
_MEASURED = frozenset(f"measured_{name}" for name in MEASURED)


def spans(commands: Activities, names: Sequence[str] = QUANTITIES) -> dict[str, Numbers]:
    """Return `QUANTITIES` of all commands as columns: ns, `NO` where a time is unknown."""
    host = commands.host_start_ns, commands.host_end_ns
    p0, p1, p2, p3 = commands.queued_ns, commands.submit_ns, commands.start_ns, commands.end_ns
    ends = zip(QUANTITIES, (host, (p0, p3), (p2, p3), (p1, p2), (p0, p1)), strict=True)
    return {
        name: thin(np.where((start != NO) & (end != NO), end - start, NO))
        for name, (start, end) in ends
        if name in names
    }


def spoken(name: str) -> str:
    """Return the name that `mio2trace.schema` gives a column of these tables: ``p3_p2_sum_us`` is ``kernel_us``."""
    found = _RAW_SPAN.fullmatch(name)
    if found is not None:
        return _RAW[found[1]] + found[3]
    return _RAW_TIMES.get(name, name)


PLACE = ("layer", "direction", "iteration", "operation", "problem", "solver", "operation_index")
"""Columns that show where a kernel belongs, if the log of its run is given. ``operation`` is its name, as in the trace
and in `ops`."""


def enqueue_table(profile: Profile, alignment: Alignment | None = None) -> Table:
    """Return one row per kernel, in call order; with ``alignment`` also its layer and its operation (`PLACE`).

    ``overhead``: (t1 - t0) - (p3 - p0), the time of the host alone. p0 to p3 are in ns for any unit: they are too long
    for fractions.
    """
    shown = ("call_index", "name", "gws", "lws", "gwo", *in_ns(*QUANTITIES), "overhead_ns")
    of_reader = tuple(column.name for column in shown_in("table"))
    columns = (*shown, "in_queue_ns", "queue", "line", *_CLOCKS, *of_reader)
    commands = profile.commands.take(np.flatnonzero(profile.commands.is_kernel))
    counters = _counter_columns(profile, commands, (*columns, *PLACE))
    brief = (*shown, *(("queue",) if len(profile.queues) > 1 else ()), *counters)
    columns = (*columns, *counters)
    ns = spans(commands)
    host, command = ns["t1_t0"], ns["p3_p0"]
    ns["overhead"] = np.where((host != NO) & (command != NO), host - command, NO)
    on_one_clock = not profile.calls_wait and all(device.clock == 0 for device in profile.devices)
    ns["in_queue"] = queued_ns(commands, on_one_clock=on_one_clock)
    resources = [recorded(one, "table") for one in commands.resources.values]
    cells: dict[str, Numbers | Pool[Any]] = {
        **named_columns(commands),
        **{f"{name}_ns": column for name, column in ns.items()},
        "queue": commands.queue,
        "line": np.where(commands.line == 0, NO, commands.line),
        **{name: getattr(commands, field) for name, field in _RAW_TIMES.items()},
        **{name: Pool([one.get(name) for one in resources], commands.resources.codes) for name in of_reader},
        **counters,
    }
    if alignment is not None:
        places = place_columns(alignment, profile.commands.is_kernel)
        cells |= {name: places[name] for name in PLACE}
        columns = (*columns, *PLACE)
        times = in_ns("p3_p2", "overhead", "in_queue")
        brief = ("call_index", "name", "gws", "lws", *times, *PLACE[:4], "solver", *counters)
    fixed = (*_CLOCKS, *of_reader, *counters)
    return Table(columns=columns, rows=ColumnRows(cells, len(commands)), brief=brief, fixed=fixed)


def named_columns(commands: Activities) -> dict[str, Numbers | Pool[Any]]:
    """Return number, name and sizes as columns."""
    grid, workgroup, opencl = commands.grid, commands.workgroup, commands.opencl
    return {
        "call_index": commands.number,
        "name": commands.name,
        "gws": Pool([*map(_size, grid.values)], grid.codes),
        "lws": Pool([*map(_size, workgroup.values)], workgroup.codes),
        "gwo": Pool([_size(one.offset) for one in opencl.values], opencl.codes),
    }


def _counter_columns(profile: Profile, kernels: Activities, taken: Sequence[str]) -> dict[str, Pool[Any]]:
    """Return a column for each hardware counter (with its unit if the source states one), then columns with their
    meaning. None is called as one of ``taken`` in any unit of time, nor by its spoken name."""
    columns: dict[str, Pool[Any]] = {}
    bases = {base_of(of)[0] for name in taken for of in (name, spoken(name))}
    collected = kernels.counters
    for place, counter in enumerate(profile.counters):
        name = f"{counter.name} ({counter.unit})" if counter.unit else counter.name
        while base_of(name)[0] in bases or name in columns or name in _MEASURED:
            name += "'"
        found = [values[place] if values and place < len(values) else None for values in collected.values]
        columns[name] = Pool([None if value is None else plain(value) for value in found], collected.codes)
    if columns:
        shown = [measured(one, profile.counters).shown if one.counters else {} for one in kernels.records]
        rows = np.arange(len(shown), dtype=np.int32)
        for name in (name for name in MEASURED if any(name in of_one for of_one in shown)):
            columns[f"measured_{name}"] = Pool([of_one.get(name) for of_one in shown], rows)
    return columns


def place_columns(alignment: Alignment, rows: NDArray[Any] | slice) -> dict[str, Numbers | Pool[Any]]:
    """Return the columns of `PLACE` of some activities; also the position of the layer in the net, and the phase."""
    links = alignment.links
    run_of, pass_of, operation_of = (
        thin(np.asarray(column)[rows].astype(np.int32, copy=False))
        for column in (links.run_of, links.pass_of, links.operation_of)
    )
    first, places = distinct(operation_of)
    place_of = thin(places.astype(np.int32))
    operation_at = {operation.index: operation for operation in links.operations}
    used = [operation_at.get(index) for index in operation_of[first].tolist()]
    phases = [*(one.phase for one in links.passes), "find", None]
    searches = [operation.index for operation in links.operations if operation.phase == "find"]
    phase_of = np.where(np.isin(operation_of, searches), len(phases) - 2, pass_of) if searches else pass_of
    iterations = numbers([*(one.iteration for one in links.passes), None], len(links.passes) + 1)
    layers = links.runs.layers()
    layer_of = np.append(layers.codes, np.int32(NONE))[run_of]

    def of_operation(cell: Callable[[Operation], object]) -> Pool[Any]:
        return Pool([None if one is None else cell(one) for one in used], place_of)

    return {
        "iteration": thin(iterations[pass_of]),
        "layer": Pool([*(name for _, name, _ in layers.values), None], layer_of),
        "layer_index": Pool([*(index for index, _, _ in layers.values), None], layer_of),
        "phase": Pool(phases, phase_of),
        "direction": Pool([*(direction for _, _, direction in layers.values), None], layer_of),
        "operation": of_operation(operation_name),
        "problem": of_operation(problem_name),
        "solver": of_operation(lambda one: one.solver),
        "operation_index": thin(np.where(operation_of == NONE, NO, operation_of.astype(np.int64))),
    }


def _size(size: Size3 | None) -> str | None:
    return None if size is None else "x".join(map(str, size))


def by_name(profile: Profile) -> Table:
    """Return one row per kernel name, most kernel time first. ``percent_of_kernel_time``: of all kernels."""
    commands = profile.commands
    kernels, names = np.flatnonzero(commands.is_kernel), commands.name
    size = len(names.values)
    of_span: dict[str, tuple[list[int], list[int]]] = {}
    for quantity, column in spans(commands).items():
        timed = kernels[column[kernels] != NO]
        codes = names.codes[timed]
        of_span[quantity] = np.bincount(codes, minlength=size).tolist(), summed(codes, column[timed], size).tolist()
    counts: Counter[str] = Counter()
    sums: dict[str, Counter[str]] = {}
    for code, count_ in enumerate(np.bincount(names.codes[kernels], minlength=size).tolist()):
        if count_:
            name = names.values[code]
            counts[name] += count_
            found = {quantity: ns[code] for quantity, (timed, ns) in of_span.items() if timed[code]}
            sums.setdefault(name, Counter()).update(found)
    whole = sum(found["p3_p2"] for found in sums.values())
    rows = [
        {"name": name, "count": counts[name], **_sums(sums[name], whole)}
        for name in sorted(sums, key=lambda name: (-sums[name]["p3_p2"], name))
    ]
    return Table(columns=("name", "count", "p3_p2_sum_ns", "percent_of_kernel_time", *_OTHER_SUMS), rows=rows)


def _sums(found: Mapping[str, int], whole: int) -> dict[str, Cell]:
    share = percent(found["p3_p2"], whole) if "p3_p2" in found else None
    return ns_cells({f"{name}_sum": ns for name, ns in found.items()}) | known({"percent_of_kernel_time": share})


def by_repetition(kernels: Activities, repetitions: Sequence[range]) -> Table:
    """Return one row per position in the repetition (``kernel_index`` from 0), with `STATISTICS` of each quantity.
    ``repetitions``: the rows of each.

    The last repetition may be incomplete. ``name`` has several names if the repetitions differ.
    """
    rows: list[Row] = []
    times = spans(kernels)
    for index in range(max(map(len, repetitions), default=0)):
        found = [of_one[index] for of_one in repetitions if index < len(of_one)]
        names = tuple(dict.fromkeys(map(kernels.name.at, found)))
        cells: dict[str, Cell] = {"kernel_index": index, "name": names[0] if len(names) == 1 else names}
        for name, column in times.items():
            samples = column[found][column[found] != NO].tolist()
            cells |= ns_cells({f"{name}_{word}": value for word, value in describe(samples).items()})
        rows.append({**cells, "count": len(found)})
    first = ("kernel_index", "name", "count")
    shown = in_ns(*(f"p3_p2_{word}" for word in STATISTICS))
    others = in_ns(*(f"{name}_{word}" for name in QUANTITIES if name != "p3_p2" for word in STATISTICS))
    return Table(columns=(*first, *shown, *others), rows=rows, brief=(*first, *shown))


GEMM = ("M", "N", "K", "batch")
PADDED = ("padded_M", "padded_N", "padded_K")
BUCKET = ("bucket_M", "bucket_N", "bucket_K")
_NO_GEMM = "no kernel of the profile shows the sizes of a GEMM; `mio2trace ops` has those of operations, PyTorch's too"
_OBJECTS = {"gemm": GEMM, "padded": PADDED, "bucket": BUCKET}


class _Product(NamedTuple):
    """A GEMM, its kernels, and their time (None if the time of one of them is not known)."""

    activities: Sequence[Activity]
    fact: KernelFact
    gemm: Gemm
    ns: int | None

    @property
    def bucket(self) -> tuple[int, ...]:
        return tuple(map(nearest_power, (self.gemm.m, self.gemm.n, self.gemm.k)))


def _products(profile: Profile, facts: Mapping[int, KernelFact]) -> Iterator[_Product]:
    for position, parts in find_parts(profile, facts).items():
        fact = facts[position]
        assert fact.gemm is not None
        own = [profile.activities[part] for part in parts]
        times = [ns for ns in map(duration, own) if ns is not None]
        yield _Product(own, fact, fact.gemm, sum(times) if len(times) == len(own) else None)


def gemm_table(profile: Profile, facts: Mapping[int, KernelFact]) -> Table:
    """Return one row per GEMM of known size: real M, N, K, and GFLOP/s over all the kernels that compute it.

    ``p3_p2`` is the sum of ``kernels`` kernels, without auxiliary ones such as padding copies. ``padded_*``: the sizes
    as the kernel ran them, if they differ. ``bucket_*``: `nearest_power` of each size.
    """
    rows: list[Row] = []
    for product in _products(profile, facts):
        gemm, fact, ns = product.gemm, product.fact, product.ns
        first = product.activities[0]
        cells: dict[str, Cell | None] = {"call_index": first.number, "name": first.name, "gws": _size(first.grid)}
        cells |= {"lws": _size(first.workgroup), "gwo": _size(first.opencl.offset)}
        cells |= {"M": gemm.m, "N": gemm.n, "K": gemm.k, "kernels": len(product.activities), "flop": gemm.flop}
        cells |= zip(PADDED, fact.padded or (), strict=fact.padded is not None)
        cells |= zip(BUCKET, product.bucket, strict=True)
        cells |= {"batch": gemm.batch if gemm.batch > 1 else None, "gemm_by": fact.gemm_by}
        rows.append(known({**cells, "gflops": gemm.flop / ns if ns else None, "p3_p2_ns": ns}))
    shown = ("call_index", "name", *GEMM, "kernels", "p3_p2_ns", "gflops")
    return Table(
        columns=(*shown, "flop", "gemm_by", *PADDED, *BUCKET, "gws", "lws", "gwo"),
        rows=rows,
        objects=_OBJECTS,
        brief=(*shown, *BUCKET),
        empty=_NO_GEMM,
    )


def by_bucket(profile: Profile, facts: Mapping[int, KernelFact]) -> Table:
    """Return GEMMs by the nearest powers of two of M, N and K, most time first. ``percent_of_gemm_time``: of all GEMMs.

    ``gflops``: the FLOPs of the bucket's GEMMs divided by their time. GEMMs without times are only counted.
    """
    buckets: dict[tuple[int, ...], list[_Product]] = defaultdict(list)
    time: Counter[tuple[int, ...]] = Counter()
    for product in _products(profile, facts):
        buckets[product.bucket].append(product)
        time[product.bucket] += product.ns or 0
    whole = time.total()
    rows: list[Row] = []
    for bucket in sorted(buckets, key=lambda bucket: (-time[bucket], bucket)):
        cells: dict[str, Cell] = {**dict(zip(BUCKET, bucket, strict=True)), "count": len(buckets[bucket])}
        timed = [product.gemm.flop for product in buckets[bucket] if product.ns is not None]
        if timed:
            ns, flop = time[bucket], sum(timed)
            rates = {"percent_of_gemm_time": percent(ns, whole), "gflops": flop / ns if ns else None}
            cells |= known({"flop": flop, **rates, "p3_p2_sum_ns": ns})
        rows.append(cells)
    columns = (*BUCKET, "count", "p3_p2_sum_ns", "percent_of_gemm_time", "flop", "gflops")
    return Table(columns=columns, rows=rows, objects={"bucket": BUCKET}, empty=_NO_GEMM)


def nearest_power(size: int) -> int:
    """Return the power of two from 1 to 2^14 that is nearest to a size, the smaller one of two equally near.

    The nearest triple in Euclidean distance has the nearest power in each dimension.
    """
    below = min(1 << (size.bit_length() - 1), LARGEST_BUCKET) if size > 0 else 1
    above = min(2 * below, LARGEST_BUCKET)
    return below if abs(size - below) <= abs(above - size) else above


def by_layer(measures: Measures) -> Table:
    """Return one row per execution of a layer, in order of first kernels. Rows without a layer have the kernels outside
    of all layers.

    ``names``: the number of its kernels by name. ``layer_by``: their number by evidence. ``unsure``: the number of
    kernels whose link has low confidence. ``iteration`` 0 is the warm-up.
    """
    links, commands = measures.alignment.links, measures.alignment.profile.commands
    layers = links.runs.layers()
    kernels = np.flatnonzero(commands.is_kernel)
    pass_of = np.asarray(links.pass_of)[kernels].astype(np.int64)
    layer_of = np.append(layers.codes, NONE)[np.asarray(links.run_of)[kernels]]
    first, group_of = distinct((pass_of + 1) * (len(layers.values) + 1) + layer_of + 1)
    groups = zip(by_code(kernels, group_of), pass_of[first].tolist(), layer_of[first].tolist(), strict=True)
    times = spans(commands)
    rows: list[Row] = []
    for (_, positions), number, layer in groups:
        cells: dict[str, Cell | None] = {"count": len(positions)}
        if number != NONE:
            pass_ = links.passes[number]
            cells |= {"pass": pass_.name, "iteration": pass_.iteration, "direction": pass_.direction}
        if layer != NONE:
            index, name, direction = layers.values[layer]
            cells |= {"layer_index": index, "layer": name, "direction": direction or cells.get("direction")}
        known_ns = {name: column[positions][column[positions] != NO].tolist() for name, column in times.items()}
        cells |= _sums({name: sum(ns) for name, ns in known_ns.items() if ns}, measures.whole.timed_ns)
        first_call, last_call = commands.number[positions[[0, -1]]].tolist()
        cells |= {
            "first_call_index": first_call,
            "last_call_index": last_call,
            "names": dict(Counter(commands.name.take(positions).each())),
            "layer_by": dict(Counter(filter(None, links.layer_by.pool.take(positions).each()))) or None,
            "unsure": sum(position in links.layer_unsure for position in positions.tolist()) or None,
        }
        rows.append(known(cells))
    shown = ("pass", "layer_index", "layer", "count", "p3_p2_sum_ns", "percent_of_kernel_time", "names", "layer_by")
    columns = (
        "pass", "iteration", "direction", *shown[1:6], *_OTHER_SUMS, "first_call_index", "last_call_index",
        "names", "layer_by", "unsure",
    )  # fmt: skip
    return Table(columns=columns, rows=rows, brief=(*shown, "unsure"))


# -- The kernels of each repetition of a run; the length of a repetition is given or found ---------------------------


def repetitions(
    profile: Profile, per: int | None, skip: int, names: str, notes: Notes, said: list[str]
) -> tuple[Activities, list[range]]:
    """Return the kernels, and the rows of each repetition. Raises `InputError` if no length is given and none is
    found."""
    kernels = profile.commands.take(np.flatnonzero(profile.commands.is_kernel))
    if per is not None:
        groups = [range(start, min(start + per, len(kernels))) for start in range(skip, len(kernels), per)]
        names_of = [*kernels.name.take(slice(skip, None)).each()]
        odd = sum(len({*names_of[index::per]}) > 1 for index in range(per))
        if odd:
            notes.add(f"the kernels do not repeat every {per}: {count(odd, 'row')} with kernels of several names")
        if groups and len(groups[-1]) < per:
            notes.remark(f"the last repetition has {len(groups[-1])} of {count(per, 'kernel')}")
        return kernels, groups
    repetition = _repetition(kernels)
    if repetition is None or 2 * repetition.covered < len(kernels):
        # A program fills a buffer when it first uses it. Without these fills the rest repeats.
        kept = kernels.take(
            ~kernels.name.where(lambda name: (meaning := kernel_name(name)) is not None and meaning.role == "fill")
        )
        without = _repetition(kept) if len(kept) < len(kernels) else None
        if without is not None and 2 * without.covered >= len(kept):
            left = len(kernels) - len(kept)
            notes.remark("kernel that only fills a buffer left out: without them the others repeat", "", left)
            kernels, repetition = kept, without
    if repetition is None or 2 * repetition.covered < len(kernels):
        longest = "nothing comes twice in a row"
        if repetition is not None:
            longest = f"most repeats are {len(repetition.starts):,} times {count(repetition.period, 'kernel')}"
        raise InputError(
            f"{names}: no period in {count(len(kernels), 'kernel')}: {longest}; expected repeats of at least half of "
            "the kernels (--per N groups them anyway)"
        )
    starts = repetition.starts
    said.append(
        f"period: {count(repetition.period, 'kernel')}, {count(len(starts), 'time')}, "
        f"first at call {kernels.number[starts[0]]}; "
        f"{len(kernels) - repetition.covered:,} of {count(len(kernels), 'kernel')} in no repetition"
    )
    return kernels, [range(start, start + repetition.period) for start in starts]


def _repetition(kernels: Activities) -> Repetition | None:
    """Find what repeats: names and sizes, not the arguments."""
    return find_repetition([*zip(kernels.name.each(), kernels.grid.each(), kernels.workgroup.each(), strict=True)])


SCATTER = ("kernel_median_ns", "kernel_min_ns", "kernel_max_ns", "kernel_std_ns")
"""Times of steady iterations."""
COST_COLUMNS = (
    "kernel_ns", "percent_of_kernel_time", "cumulative_percent", *SCATTER, "calls", "kernels", "gflops",
    "find_ns", "find_kernels", "find_sure", "host_ns", "helpers_ns", "transposes_ns", "flop", "bytes_min",
    "iterations", "unsure",
)  # fmt: skip
"""The columns of `ranked_rows` in order, except those that name the row."""


def cost_cells(costs: Sequence[SteadyCost[Any]], iterations: int) -> dict[str, Cell]:
    """Return the kernel time of one row per steady iteration of one or several runs, and its other costs.

    ``iterations``: their number in all of the runs.
    """
    samples = [ns for cost in costs for ns in cost.ns]
    zeros = iterations - len(samples)
    whole = total(cost.cost for cost in costs)

    def part(number: int | None) -> float | None:
        return None if number is None or not iterations else part_of(number, iterations)

    cells: dict[str, Cell | None] = {
        "iterations": iterations,
        "calls": part(sum(cost.calls for cost in costs)),
        "kernels": part(whole.kernels),
        "copies": part(whole.copies),
        "flop": part(whole.flop),
        "bytes_min": part(whole.bytes),
        "unsure": whole.unsure or None,
        "host_ns": part(whole.host_ns),
    }
    if iterations and not whole.untimed:
        ordered = sorted([*[0] * zeros, *samples])
        std = deviation(samples, zeros)
        if std is not None:
            cells |= zip(SCATTER, (quantile(ordered, 0.5), ordered[0], ordered[-1], std), strict=True)
        cells |= {"kernel_ns": part_of(sum(samples), iterations), "gflops": whole.gflops}
        cells |= {"helpers_ns": part(whole.helpers_ns) or None, "transposes_ns": part(whole.transposes_ns) or None}
    searches = sum(cost.find_kernels for cost in costs)
    if searches:
        cells |= {"find_ns": sum(cost.find_ns for cost in costs), "find_kernels": searches}
        cells["find_sure"] = "false" if any(cost.is_find_unsure for cost in costs) else None
    return known(cells)


def ranked_rows(ranking: Ranking[Key], names: Mapping[Key, Row]) -> list[Row]:
    """Return a row for each entry of ``ranking``, with the cells ``names`` of its key."""
    iterations = ranking.total.iterations
    return [{**names[cost.key], **_shares(cost), **cost_cells([cost], iterations)} for cost in ranking]


def ends(ranking: Ranking[Key], name: str) -> list[Row]:
    """Return the last rows, named in the column ``name``: the time in no row, and the total."""
    rest, total = ranking.rest, ranking.total
    parts = {} if rest is None else {rest.key: [rest]}
    return last_rows(name, {**parts, "total": [total]}, total.iterations)


def last_rows(name: str, parts: Mapping[str, Sequence[SteadyCost[str]]], iterations: int) -> list[Row]:
    """Return a row for each of ``parts``, with the costs of all runs. The last one is the total."""
    rows: list[Row] = []
    for label, costs in parts.items():
        cells = cost_cells(costs, iterations)
        for absent in ("calls", "copies", "gflops", "host_ns"):
            cells.pop(absent, None)
        share = percent(sum(cost.total_ns for cost in costs), sum(cost.total_ns for cost in parts["total"])) or 0.0
        rows.append({name: label, "percent_of_kernel_time": share, **cells})
    return rows


def _shares(cost: SteadyCost[Key]) -> dict[str, Cell]:
    if not cost.cumulative_share:
        return {}
    return {"percent_of_kernel_time": 100 * cost.share, "cumulative_percent": 100 * cost.cumulative_share}


def launch_cells(cost: SteadyCost[Any], *, api_ns: int | None = None, queue_ns: int | None = None) -> dict[str, Cell]:
    """Time per steady iteration in the launch calls and in the queue, each summed over all kernels."""
    if not cost.iterations:
        return {}
    sums = (("api", api_ns), ("in_queue", queue_ns))
    return ns_cells({name: part_of(ns, cost.iterations) for name, ns in sums if ns is not None})


def kernel_table(measures: Measures) -> Table:
    """Return one row per kernel name, most time per steady iteration first. Searches, set-up and warm-up are in the
    columns ``find``."""
    ranking, counted = measures.steady.kernels, measures.steady.counted
    times = launch_times(measures.alignment, counted.positions, counted.name_of, len(counted.names))
    in_queue = dict(zip(counted.names, times.queue_ns, strict=True))
    of_counters = _measured(measures)
    names = {
        cost.key: {
            "name": cost.key,
            **launch_cells(cost, queue_ns=in_queue[cost.key]),
            **of_counters.get(cost.key, {}),
        }
        for cost in ranking
    }
    shown = [f"measured_{name}" for name in MEASURED if any(f"measured_{name}" in row for row in of_counters.values())]
    rows = ranked_rows(ranking, names)
    columns = ["name", *(name for name in COST_COLUMNS if name not in ("kernels", "bytes_min")), *shown]
    columns.insert(columns.index("host_ns") + 1, "in_queue_ns")
    brief = (
        "name", "kernel_ns", "percent_of_kernel_time", "cumulative_percent", "calls", *SCATTER, "gflops", "find_ns",
        "host_ns", "in_queue_ns", *shown,
    )  # fmt: skip
    return Table(columns=tuple(columns), rows=rows, brief=brief, ends=ends(ranking, "name") if rows else ())


def _measured(measures: Measures) -> dict[str, dict[str, Cell]]:
    """Return the values of hardware counters by kernel name: bytes and operations per steady iteration, and rates over
    the kernel time. A name is left out if one of its kernels has no values."""
    profile, counted = measures.alignment.profile, measures.steady.counted
    iterations = max(1, len(measures.steady.iterations))
    parts: dict[str, list[Measured]] = defaultdict(list)
    for position in counted.kernels.tolist() if profile.counters else ():
        activity = profile.activities[position]
        parts[activity.name].append(measured(activity, profile.counters))
    cells: dict[str, dict[str, Cell]] = {}
    for name, of_name in parts.items():
        of_all = together(of_name)
        sums = {"read_bytes": of_all.read_bytes, "write_bytes": of_all.write_bytes, "flop": of_all.flop}
        means = {key: part_of(value, iterations) for key, value in sums.items() if value is not None}
        cells[name] = {f"measured_{key}": value for key, value in {**of_all.shown, **means}.items()}
    return cells
