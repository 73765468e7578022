"""The record of a run for comparisons: an iteration and its parts, in a few kilobytes of numbers.

It is made from an analysed run, and all its numbers come from `mio2trace.measures`. Its texts are names of problems,
layers, kernels, solvers and devices, cleaned by the rules of docs/privacy.md. `mio2trace.comparing.sides` keeps it in a
file.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE
from mio2trace.analysis import Run
from mio2trace.answer.content import is_product, stated_values
from mio2trace.findings.rule import ms, percent
from mio2trace.measures import Measures
from mio2trace.measures.executions import LayerKey, in_net_order, printed_passes, printed_times
from mio2trace.measures.statistics import mean, quantile
from mio2trace.model.log import FrameworkLog
from mio2trace.model.profile import Call
from mio2trace.model.tables import Numbers, Pool, distinct, present, summed
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation

Kind = Literal["problem", "layer", "kernel"]
KINDS: tuple[Kind, ...] = ("problem", "kernel", "layer")
StepDoubt = Literal["cold", "stacks", "counters", "repetition", "searches"]
"""Why the length of a step may not be that of the program: it may be its first one, the profiler slows the host, or no
mark says where it ends."""
MOST_SAMPLES = 9
"""If there are more iterations, the quantiles at each eighth are kept: median, least and most stay exact."""


CUT = 100
"""The characters of a kernel's name in a trace."""


class Inside(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The kernels of one name within a part, per iteration: their number, their role and their time."""

    name: str
    role: str = ""
    count: float = 0
    ns: float = 0
    naive: bool = False


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of an iteration: the operations of one problem, the kernels of one name in no operation, or a layer.

    ``samples_ns``: kernel time in each steady iteration (printed times without a profile), or quantiles. ``calls``: per
    iteration, 0 if unknown. ``place``: its place among the parts of its kind, in order of first execution. ``like``:
    the properties that the part keeps if its name changes; for a problem everything except the batch, for a layer
    primitive, direction and output. ``layers``: the layers that compute a problem. ``primitive``: of a problem, or of
    the first operation of a layer.
    """

    kind: Kind
    name: str
    samples_ns: tuple[float, ...]
    mean_ns: float
    calls: float = 0
    place: int = 0
    like: str = ""
    layers: tuple[str, ...] = ()
    solvers: tuple[str, ...] = ()
    command: str = ""
    primitive: str = ""
    kernels: tuple[Inside, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The device and versions of a run. ``environment``: names and values in MIOpen's log (HIP's version,
    variables)."""

    device: str = ""
    miopen: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()
    """(format, SHA-256) of each."""


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a job: its name, and its kernel time in each steady iteration."""

    name: str
    samples_ns: tuple[float, ...]


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run. ``samples_ns``: kernel time of each steady iteration (if ``told_by`` is kernels), or the printed times.

    ``first_ns``: the first iteration, steady or not. ``find_ns``: kernels of searches (``is_find_unsure``: these may be
    others). ``build_ns``: program builds on the host. These three are times in the whole run. ``others_ns``: mean time
    of the parts that were too small to keep.
    ``ranks``: the processes of a job; all other numbers are means over them (`mio2trace.comparing.record`).
    ``names_cut``: the names of kernels come from a trace and have at most `CUT` characters.
    """

    name: str
    told_by: Literal["kernels", "printed"] = "kernels"
    iterations: int
    samples_ns: tuple[float, ...]
    mean_ns: float
    steps: tuple[tuple[str, tuple[float, ...]], ...] = ()
    """The length of each steady step and of each of its parts (`mio2trace.measures.iterations`), by name; empty if the
    source does not show them."""
    step_doubts: tuple[StepDoubt, ...] = ()
    first_ns: float | None = None
    find_ns: float = 0
    is_find_unsure: bool = False
    build_ns: float = 0
    others_ns: float = 0
    parts: tuple[Part, ...] = ()
    facts: Facts = Facts()
    ranks: tuple[Rank, ...] = ()
    names_cut: bool = False
    whole: bool = False
    """Whether no iterations are known, so that the whole run counts as one."""


def condensed(samples: Sequence[float]) -> tuple[float, ...]:
    """Return the samples in order, or their quantiles if there are many."""
    ordered = sorted(samples)
    if len(ordered) <= MOST_SAMPLES:
        return tuple(ordered)
    last = MOST_SAMPLES - 1
    return tuple(quantile(ordered, place / last) for place in range(MOST_SAMPLES))


def kept(record: RunRecord) -> RunRecord:
    return msgspec.structs.replace(
        record,
        samples_ns=condensed(record.samples_ns),
        parts=tuple(msgspec.structs.replace(part, samples_ns=condensed(part.samples_ns)) for part in record.parts),
        steps=tuple((name, condensed(samples)) for name, samples in record.steps),
        ranks=tuple(msgspec.structs.replace(rank, samples_ns=condensed(rank.samples_ns)) for rank in record.ranks),
    )


def same_parts(runs: Sequence[RunRecord]) -> dict[tuple[Kind, str], list[Part]]:
    """Return the parts of the runs by kind and name."""
    same: dict[tuple[Kind, str], list[Part]] = {}
    for part in (part for run in runs for part in run.parts):
        same.setdefault((part.kind, part.name), []).append(part)
    return same


def longest_parts(runs: Sequence[RunRecord]) -> dict[tuple[Kind, str], float]:
    """Return the longest mean time of each part in any of the runs, by kind and name."""
    return {key: max(0, *(part.mean_ns for part in own)) for key, own in same_parts(runs).items()}


def cut(record: RunRecord) -> RunRecord:
    """Cut the names of kernels as a trace does; kernels whose names are then equal become one."""
    if record.names_cut:
        return record
    parts: dict[tuple[Kind, str], Part] = {}
    for part in record.parts:
        name = part.name[:CUT] if part.kind == "kernel" else part.name
        inside = tuple(msgspec.structs.replace(one, name=one.name[:CUT]) for one in part.kernels)
        shown = msgspec.structs.replace(part, name=name, kernels=inside)
        before = parts.get((part.kind, name))
        if before is not None:
            samples = tuple(map(sum, zip(before.samples_ns, part.samples_ns, strict=False)))
            shown = msgspec.structs.replace(
                before, samples_ns=samples, mean_ns=before.mean_ns + part.mean_ns, calls=before.calls + part.calls
            )
        parts[part.kind, name] = shown
    return msgspec.structs.replace(record, parts=tuple(parts.values()), names_cut=True)


# -- The record of an analysed run -------------------------------------------------------------------------------------

_SHAPE = re.compile(r"(?<![\w.])\d+((?:x\d+)+)(?![\w.])")
BUILDS = ("clBuildProgram", "clCompileProgram", "clLinkProgram", "hipModuleLoad", "hiprtcCompileProgram")
MOST_INSIDE = 8
"""The most kernel names that are kept of a problem, longest time first. They show causes; sums do not depend on
them."""


def collect(run: Run, notes: Notes) -> RunRecord | None:
    """Return the record of a run; None if it has neither kernels nor printed layers."""
    measured = [
        one
        for one in run.measures
        if any(iteration.kernels for iteration in one.steady.told.all if one.steady.has(iteration.number))
    ]
    if not measured:
        return _of_printed(run, notes)
    names = [one.alignment.profile.process.label for one in measured]
    if len(measured) > 1 and not run.is_job:
        said = f"{len(measured)} profiles that are not ranks of one job: only the first is compared"
        notes.add(f"{run.name}: {said}", problem=False)
        del measured[1:]
    made_with = facts(run)
    records = [_of_kernels(run, one, made_with, notes) for one in measured]
    return kept(records[0] if len(records) == 1 else mean_of(names, records))


def _of_kernels(run: Run, measures: Measures, made_with: Facts, notes: Notes) -> RunRecord:
    steady = measures.steady
    inside = inside_iterations(measures)
    count = len(steady.iterations)
    if steady.told.part:
        notes.add(f"{run.name}: only a part of it is compared: {steady.rule}")
    parts = [
        *_problems(measures, inside, count),
        *outside_parts(inside.kernels, count),
        *_layers(run, measures, inside, count),
    ]
    whole = [part.samples_ns for part in parts if part.kind != "layer"]
    samples = tuple(int(sum(of_iteration)) for of_iteration in zip(*whole, strict=True))
    return RunRecord(
        name=run.name,
        iterations=count,
        samples_ns=samples,
        mean_ns=mean(samples),
        steps=tuple(steady.step_time.samples().items()) if steady.step_time is not None else (),
        step_doubts=tuple(_step_doubts(measures)) if steady.step_time is not None else (),
        first_ns=steady.first_ns if len(steady.told.all) > 1 else None,
        find_ns=inside.find_ns,
        is_find_unsure=measures.is_find_unsure and inside.find_ns > 0,
        build_ns=_build_ns(measures.alignment.profile.other_calls),
        parts=tuple(parts),
        facts=made_with,
        whole=steady.told.told_by == "whole",
    )


def _step_doubts(measures: Measures) -> Iterator[StepDoubt]:
    told, profile = measures.steady.told, measures.alignment.profile
    if told.may_be_cold or told.is_warm_up:
        yield "cold"
    if profile.has_stacks:
        yield "stacks"
    if profile.counters:
        yield "counters"
    if told.told_by == "repetition":
        yield "repetition"
    if told.doubt:
        yield "searches"


def _build_ns(calls: Sequence[Call]) -> int:
    names = {name for name in {call.name for call in calls} if name.startswith(BUILDS)}
    built = (call for call in calls if call.name in names) if names else ()
    return sum(call.end_ns - call.start_ns for call in built if call.start_ns is not None and call.end_ns is not None)


def _problems(measures: Measures, inside: InsideIterations, count: int) -> Iterator[Part]:
    first: dict[str, Operation] = {}
    solvers: dict[str, dict[str, None]] = {}
    layers: dict[str, dict[str, None]] = {}
    for index, operation in measures.operation_at.items():
        if name := inside.names[index]:
            first.setdefault(name, operation)
            if solver := operation.solver or operation.algorithm:
                solvers.setdefault(name, {})[solver] = None
    for index, numbers in measures.runs_of_operation.items():
        if name := inside.names[index]:
            layers.setdefault(name, {}).update((measures.alignment.links.runs[at].layer, None) for at in numbers)
    for part in problem_parts(inside.kernels, count):
        yield msgspec.structs.replace(
            part,
            calls=inside.calls[part.name] / count,
            layers=tuple(layers.get(part.name, ())),
            solvers=tuple(solvers.get(part.name, ())),
            command=first[part.name].command or "",
            primitive=first[part.name].primitive,
        )


def problem_parts(kernels: Mapping[tuple[str, str], KernelsInside], count: int) -> Iterator[Part]:
    """Return the problems with the kernels of ``count`` iterations, by (problem, name); only facts that kernels
    show."""
    by_problem: dict[str, list[tuple[str, KernelsInside]]] = {}
    for (problem, name), one in kernels.items():
        if problem:
            by_problem.setdefault(problem, []).append((name, one))
    for place, (problem, own) in enumerate(by_problem.items()):
        longest = sorted(own, key=lambda one: -one[1].total_ns)[:MOST_INSIDE]
        samples = tuple(map(sum, zip(*(one.per_iteration_ns for _, one in own), strict=True)))
        yield Part(
            kind="problem",
            name=problem,
            samples_ns=samples,
            mean_ns=mean(samples),
            place=place,
            like=but_batch(problem),
            kernels=tuple(
                Inside(name=name, role=one.role, count=one.count / count, ns=one.total_ns / count, naive=one.naive)
                for name, one in longest
            ),
        )


def outside_parts(kernels: Mapping[tuple[str, str], KernelsInside], count: int) -> Iterator[Part]:
    """Return the kernels in no operation by name. Without a log these are all kernels."""
    outside = [(name, one) for (problem, name), one in kernels.items() if not problem]
    for place, (name, one) in enumerate(outside):
        yield Part(
            kind="kernel",
            name=name,
            samples_ns=tuple(one.per_iteration_ns),
            mean_ns=mean(one.per_iteration_ns),
            calls=one.count / count,
            place=place,
            kernels=(Inside(name=name, role=one.role, count=one.count / count, naive=one.naive),),
        )


def _layers(run: Run, measures: Measures, inside: InsideIterations, count: int) -> Iterator[Part]:
    like = _structure(run.logs)
    links = measures.alignment.links
    primitives: dict[LayerKey, str] = {}
    for index, numbers in sorted(measures.runs_of_operation.items()):
        operation = measures.operation_at[index]
        ran = links.runs[numbers[0]]
        key = ran.layer_index, ran.layer, ran.direction
        if operation.phase == "run" and operation.primitive and key not in primitives:
            shape = "x".join(map(str, operation.output))
            like.setdefault(key, f"{operation.primitive} {but_batch(shape)}")
            primitives.setdefault(key, operation.primitive)
    for place, key in enumerate(sorted(inside.layers, key=in_net_order)):
        runs, samples = inside.layers[key]
        part = layer_part(key, samples, runs / count, place, like)
        yield msgspec.structs.replace(part, primitive=primitives.get(key, ""))


def layer_part(
    key: LayerKey, samples: Sequence[int], calls: float, place: int, like: Mapping[LayerKey, str] = MappingProxyType({})
) -> Part:
    """Return the part of a layer. ``like``: what layers keep if their names change, except the direction."""
    _, name, direction = key
    return Part(
        kind="layer",
        name=f"{name} {direction}" if direction else name,
        samples_ns=tuple(samples),
        mean_ns=mean(samples),
        calls=calls,
        place=place,
        like=f"{direction or ''} {like[key]}" if key in like else "",
    )


def _structure(logs: Sequence[FrameworkLog]) -> dict[LayerKey, str]:
    """Return type and output of each layer, if a log prints the net."""
    like: dict[LayerKey, str] = {}
    for log in logs:
        net = {layer.layer: f"{layer.type} {' '.join(layer.tops)}" for layer in log.net if layer.type or layer.tops}
        for layer in log.times.key.values:
            if layer.layer in net:
                like[layer] = but_batch(net[layer.layer])
    return like


def but_batch(text: str) -> str:
    """Replace the first number of each shape by a letter."""
    return _SHAPE.sub(r"N\1", text)


def _of_printed(run: Run, notes: Notes) -> RunRecord | None:
    printed = printed_times(run.logs)
    if not printed:
        return None
    like = _structure(run.logs)
    count = min(map(len, printed.values()))
    whole = [sum(values[at] for values in printed.values()) for at in range(count)]
    parts = [
        layer_part(key, printed[key], 1, place, like) for place, key in enumerate(sorted(printed, key=in_net_order))
    ]
    total = sum(part.mean_ns for part in parts)
    for passes in filter(None, (printed_passes(log, total) for log in run.logs)):
        said = f"{run.name}: {percent(total / passes)} of {ms(passes)}"
        notes.add("layers that hold less than the printed passes: the rest is not compared", said, problem=False)
    return kept(
        RunRecord(
            name=run.name,
            told_by="printed",
            iterations=count,
            samples_ns=tuple(whole),
            mean_ns=total,
            parts=tuple(parts),
            facts=facts(run),
        )
    )


def facts(run: Run) -> Facts:
    devices = [device.name for profile in run.profiles for device in profile.devices if is_product(device.name)]
    devices += [log.device_name for log in run.logs if log.device_name]
    values = [*stated_values(run.libraries)]
    return Facts(
        device=next(iter(devices), ""),
        miopen=next((value for name, value in values if name == "MIOpen"), ""),
        environment=tuple(sorted({one for one in values if one[0] != "MIOpen"})),
        inputs=tuple(sorted((file.format, file.sha256) for file in run.inputs)),
    )


# -- A job as one run: the mean over its ranks for each iteration, and the iteration of each rank ----------------------
# A mean stays the same if a job gets more ranks, and shows a slow rank by its share. The row of each rank shows which
# one is slow.


def mean_of(names: Sequence[str], records: Sequence[RunRecord]) -> RunRecord:
    """Return the mean of records with one sample per iteration; the number of iterations is the smallest of all
    records."""
    count = min(record.iterations for record in records)
    samples = _mean([record.samples_ns for record in records], count, len(records))
    firsts = [record.first_ns for record in records if record.first_ns is not None]
    return msgspec.structs.replace(
        records[0],
        iterations=count,
        samples_ns=samples,
        mean_ns=sum(samples) / count,
        steps=max((record.steps for record in records), key=lambda of: sum(of[0][1]) / len(of[0][1]) if of else 0),
        step_doubts=tuple(dict.fromkeys(doubt for record in records for doubt in record.step_doubts)),
        first_ns=sum(firsts) / len(firsts) if firsts else None,
        find_ns=sum(record.find_ns for record in records) / len(records),
        is_find_unsure=any(record.is_find_unsure for record in records),
        build_ns=sum(record.build_ns for record in records) / len(records),
        parts=tuple(_part(own, count, len(records)) for own in same_parts(records).values()),
        ranks=tuple(
            Rank(name=name, samples_ns=record.samples_ns[:count]) for name, record in zip(names, records, strict=True)
        ),
    )


def _part(own: Sequence[Part], count: int, ranks: int) -> Part:
    samples = _mean([part.samples_ns for part in own], count, ranks)
    return msgspec.structs.replace(
        own[0],
        samples_ns=samples,
        mean_ns=sum(samples) / count,
        calls=sum(part.calls for part in own) / ranks,
        solvers=tuple(dict.fromkeys(solver for part in own for solver in part.solvers)),
        kernels=tuple(_inside((one for part in own for one in part.kernels), ranks)),
    )


def _inside(kernels: Iterable[Inside], ranks: int) -> Iterable[Inside]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    first: dict[str, Inside] = {}
    for one in kernels:
        first.setdefault(one.name, one)
        sums[one.name][0] += one.count
        sums[one.name][1] += one.ns
    for name, (number, ns) in sums.items():
        yield msgspec.structs.replace(first[name], count=number / ranks, ns=ns / ranks)


def _mean(samples: Iterable[Sequence[float]], count: int, ranks: int) -> tuple[float, ...]:
    """Return the mean of each iteration. A rank without the part counts with no time."""
    return tuple(sum(of_iteration) / ranks for of_iteration in zip(*(own[:count] for own in samples), strict=True))


# -- The parts of steady iterations, from one pass over the kernels ----------------------------------------------------


class KernelsInside(msgspec.Struct, kw_only=True, gc=False):
    """The kernels of one name in one problem over all steady iterations; their time in each iteration, in ns."""

    role: str
    naive: bool
    count: int
    per_iteration_ns: list[int]

    @property
    def total_ns(self) -> int:
        return sum(self.per_iteration_ns)


class InsideIterations(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of steady iterations. ``kernels``: by (problem, kernel name), in the order of first execution; ``""``
    is the problem of kernels in no operation.

    ``layers``: the number of executions with kernels, and the time in each iteration, in ns. ``names``: the problem
    of each operation by index, ``""`` for searches. ``calls``: the number of operations of each problem that begin
    in a steady iteration. ``find_ns``: kernel time of searches in the whole run.
    """

    kernels: Mapping[tuple[str, str], KernelsInside]
    layers: Mapping[LayerKey, tuple[int, list[int]]]
    names: Sequence[str]
    calls: Counter[str]
    find_ns: int


def inside_iterations(measures: Measures) -> InsideIterations:
    """Return the parts of the steady iterations of a profile."""
    told, problem_of = measures.steady.told, measures.steady.problem_of
    count = len(told.steady)
    place_of = {number: at for at, number in enumerate(told.steady)}
    # The last one is for kernels in no iteration.
    counted = [*(place_of.get(one.number, NONE) for one in told.all), NONE]
    names = [""] * (len(measures.first_of) + 1)  # the last one is for no operation
    for index, operation in measures.operation_at.items():
        if operation.phase == "run":
            names[index] = problem_of[index]
    searches = [index for index, one in measures.operation_at.items() if one.phase == "find"]
    links, commands, forms = measures.alignment.links, measures.alignment.profile.commands, measures.forms
    places = np.array(counted)[told.place_of]
    operation_of, run_of = np.asarray(links.operation_of), np.asarray(links.run_of)
    is_searching = commands.is_kernel & (places == NONE) & np.isin(operation_of, searches)
    rows = np.flatnonzero(commands.is_kernel & (places != NONE))
    name_codes = Pool.of(names)
    problems = name_codes.codes[operation_of[rows]]
    inside: dict[tuple[str, str], KernelsInside] = {}
    keys = problems.astype(np.int64) * len(forms.names) + forms.name_of[rows]
    for first, of_key, samples in _sampled(keys, places[rows], commands.time_ns[rows], count):
        form = forms.forms[forms.form_of[rows[first]]]
        inside[name_codes.values[problems[first]], form.name] = KernelsInside(
            role=form.kind.role, naive=form.kind.naive, count=of_key, per_iteration_ns=samples
        )
    rows = rows[run_of[rows] != NONE]
    layer_keys = links.runs.layers()
    keys = layer_keys.codes[run_of[rows]]
    ran = Counter(layer_keys.codes[present(run_of[rows])].tolist())
    layers: dict[LayerKey, tuple[int, list[int]]] = {}
    for first, _, samples in _sampled(keys, places[rows], commands.time_ns[rows], count):
        layer = int(keys[first])
        layers[layer_keys.values[layer]] = ran[layer], samples
    find_ns = sum(commands.time_ns[is_searching].tolist())
    calls = Counter(
        names[index]
        for index, position in enumerate(measures.first_of)
        if position != NONE and names[index] and places[position] != NONE
    )
    return InsideIterations(kernels=inside, layers=layers, names=names, calls=calls, find_ns=find_ns)


def _sampled(keys: NDArray[Any], places: NDArray[Any], ns: Numbers, count: int) -> Iterator[tuple[int, int, list[int]]]:
    """Of each key its first row, how many it has, and its time in each of ``count`` iterations; in order."""
    first, key_of = distinct(keys)
    sums = summed(key_of * count + places, ns, len(first) * count).reshape(len(first), count).tolist()
    yield from zip(first.tolist(), np.bincount(key_of, minlength=len(first)).tolist(), sums, strict=True)
