"""Sources of a side: files of a run, a folder of runs, a CK record with repetitions, a base, or a written trace.

A trace that this program wrote has passes, layers, operations and kernels with the values that a comparison needs: its
steady iterations are summed again from their kernels. It lacks the types of layers (which are then matched by name
only), the name of the device, and the end of names of kernels with more than `CUT` characters. A trace is refused if
its iterations have no numbers, if it has several processes, or if it lacks kernels or arguments.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple

import msgspec

from mio2trace.analysis import AnalysisOptions, Run, analyse
from mio2trace.comparing.comparison import Side
from mio2trace.comparing.record import (
    BUILDS,
    CUT,
    KernelsInside,
    Part,
    RunRecord,
    collect,
    cut,
    kept,
    layer_part,
    longest_parts,
    outside_parts,
    problem_parts,
)
from mio2trace.measures.executions import LayerKey, in_net_order
from mio2trace.measures.ranking import kind_of
from mio2trace.measures.statistics import mean
from mio2trace.notes import InputError, Notes
from mio2trace.ops.operation import Operation, problem_name
from mio2trace.ops.values import Shape
from mio2trace.outgoing import shortened, visible
from mio2trace.privacy import Cleaner
from mio2trace.snapshot import is_dataset
from mio2trace.trace import Args
from mio2trace.writers import head_of, is_ours, slices

_SEVERAL = (b'"processes":[{', b"clock.processes[0]", b'"runs":[{', b"runs[0].name", b'"comparison":{', b"comparison.a")
"""These texts are in the metadata of traces with several processes or runs."""
_RANK = {"pass": 0, "layer": 1, "operation": 2, "kernel": 3}
_WARM_UP = "warm-up"
"""The names of the warm-up's passes; their iteration is 0."""
_SHAPES = ("input", "weights", "output", "pad", "stride", "dilation", "window")
_TEXTS = ("mode", "dtype", "layout", "algorithm", "solver", "command")
_OF_KERNELS = ("role", "layer", "layer_index", "direction", "operation")
"""The arguments of kernels that are used."""

_Operations = dict[tuple[int, int], Operation]
"""The operations by track and index."""


class _Kernel(NamedTuple):
    """A kernel with the slices around it on its track: iteration (None: none), layer, key of the operation."""

    name: str
    role: str
    start_ns: int
    ns: int
    iteration: int | None
    layer: LayerKey | None
    operation: tuple[int, int] | None


class _Row(NamedTuple):
    """A slice on the track of a device, with the arguments that are needed."""

    start_ns: int
    less_ns: int
    rank: int
    name: str
    args: Args

    @property
    def end_ns(self) -> int:
        return self.start_ns - self.less_ns


def of_trace(path: Path, notes: Notes, *, damaged: bool = False) -> RunRecord:
    """Return the run that one of our traces shows. Raises `InputError` if it lacks values that are needed, or is
    damaged."""
    try:
        head = head_of(path)
        if any(mark in head for mark in _SEVERAL):
            raise InputError(
                f"{path.name}: a trace of several processes or runs; expected the files that it was made of"
            )
        return kept(_read(path, notes, damaged=damaged))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        what = visible(shortened(str(error), 200))
        raise InputError(f"{path.name}: a trace of ours that was changed or is damaged: {what}") from None


def _read(path: Path, notes: Notes, *, damaged: bool) -> RunRecord:
    tracks, builds = _tracks(path, notes, damaged=damaged)
    operations = _operations(tracks)
    kernels = [kernel for track, rows in tracks.items() for kernel in _kernels(track, rows)]
    steady, others = _iterations(path, tracks)
    drawn = sum(kernel.ns for kernel in kernels if kernel.iteration is not None)
    told = sum(
        int(row.args.get("kernel_ns", 0)) for rows in tracks.values() for row in rows if _number(row) is not None
    )
    if drawn != told or any("cut" in row.args for rows in tracks.values() for row in rows):
        raise InputError(f"{path.name}: a trace of a part of a run; expected a whole one, or the files it was made of")
    return _record(kernels, operations, steady, others, builds)


def _tracks(path: Path, notes: Notes, *, damaged: bool) -> tuple[dict[int, list[_Row]], int]:
    """Return the slices on the tracks of devices, in order; and the time of program builds on the host."""
    tracks: dict[int, list[_Row]] = defaultdict(list)
    builds = 0
    for one in slices(path, notes=notes, damaged=damaged):
        rank = _RANK.get(one.category)
        if rank is not None:
            args = {**one.shared, **one.args}
            name = str(args.get("full_name") or one.name)  # a slice shows only the beginning of a long name
            if rank == _RANK["kernel"]:  # a trace may have a million of them
                args = {key: args[key] for key in _OF_KERNELS if key in args}
            tracks[one.track].append(_Row(one.start_ns, -one.dur_ns, rank, name, args))
        elif one.category == "api" and one.name.startswith(BUILDS):
            builds += one.dur_ns
    of_devices = {
        track: sorted(rows, key=lambda row: row[:3])
        for track, rows in tracks.items()
        if any(row.rank == _RANK["kernel"] for row in rows)
    }
    return of_devices, builds


def _number(row: _Row) -> int | None:
    return row.args.get("iteration") if row.rank == _RANK["pass"] else None


def _operations(tracks: Mapping[int, Sequence[_Row]]) -> _Operations:
    return {
        (track, int(row.args["operation"])): _operation(row.args)
        for track, rows in tracks.items()
        for row in rows
        if row.rank == _RANK["operation"] and "operation" in row.args
    }


def _operation(args: Args) -> Operation:
    """Return the operation as far as the arguments describe it."""
    facts = {
        "source": 0,
        "api": args.get("api", ""),
        "primitive": args.get("primitive", ""),
        "direction": args.get("direction"),
        "phase": args.get("phase", "run"),
        "groups": args.get("groups"),
        **{key: args.get(key) for key in _TEXTS},
        **{key: _shape(str(args.get(key, ""))) for key in _SHAPES},
    }
    return msgspec.convert({"index": args["operation"], "line": 0, "end_line": 0, "facts": facts}, Operation)


def _shape(text: str) -> Shape:
    return tuple(int(size) for size in text.split("x")) if text else ()


def _kernels(track: int, rows: Sequence[_Row]) -> Iterator[_Kernel]:
    """Yield the kernels of a track, each with the pass that contains it."""
    iteration, until = None, -1
    for row in rows:
        if row.rank == _RANK["pass"]:
            iteration, until = _number(row), row.end_ns
        elif row.rank == _RANK["kernel"]:
            args = row.args
            layer: LayerKey | None = None
            if "layer" in args:
                layer = int(args.get("layer_index", 0)), str(args["layer"]), args.get("direction")
            yield _Kernel(
                row.name,
                str(args.get("role", "")),
                row.start_ns,
                -row.less_ns,
                iteration if row.end_ns <= until else None,
                layer,
                (track, int(args["operation"])) if "operation" in args else None,
            )


def _iterations(path: Path, tracks: Mapping[int, Sequence[_Row]]) -> tuple[list[int], list[int]]:
    """Return the numbers of the iterations that count, and of the others. The warm-up counts if there is no other
    iteration."""
    passes = [row for rows in tracks.values() for row in rows if _number(row) is not None]
    warm = all(row.name.startswith(_WARM_UP) for row in passes)
    numbers = sorted({int(row.args["iteration"]) for row in passes if warm or not row.name.startswith(_WARM_UP)})
    if not numbers:
        raise InputError(f"{path.name}: a trace without known iterations; expected the files that it was made of")
    uncounted = {int(row.args["iteration"]) for row in passes if row.args.get("steady") is False}
    steady = [number for number in numbers if number not in uncounted]
    return steady or numbers, numbers


def _record(
    kernels: Sequence[_Kernel],
    operations: _Operations,
    steady: Sequence[int],
    numbers: Sequence[int],
    builds: int,
) -> RunRecord:
    searches = {key for key, operation in operations.items() if operation.phase == "find"}
    ran = [one for one in kernels if one.operation not in searches]
    counted = [one for one in ran if one.iteration in set(steady)]
    counted.sort(key=lambda one: one.start_ns)
    names: dict[tuple[int, int] | None, str] = {key: problem_name(one) for key, one in operations.items()}
    inside = _inside(counted, names, steady)
    samples = _per_iteration(counted, steady)
    record = RunRecord(
        name="trace",
        iterations=len(steady),
        samples_ns=samples,
        mean_ns=mean(samples),
        first_ns=sum(one.ns for one in ran if one.iteration == numbers[0]) if len(numbers) > 1 else None,
        find_ns=sum(one.ns for one in kernels if one.operation in searches),
        build_ns=builds,
        parts=(
            *_problems(counted, operations, names, problem_parts(inside, len(steady)), len(steady)),
            *outside_parts(inside, len(steady)),
            *_layers(counted, steady),
        ),
    )
    return cut(record) if any(len(one.name) == CUT for one in kernels) else record


def _per_iteration(kernels: Sequence[_Kernel], steady: Sequence[int]) -> tuple[int, ...]:
    sums: Counter[int | None] = Counter()
    for one in kernels:
        sums[one.iteration] += one.ns
    return tuple(sums[number] for number in steady)


def _inside(
    kernels: Sequence[_Kernel], names: Mapping[tuple[int, int] | None, str], steady: Sequence[int]
) -> dict[tuple[str, str], KernelsInside]:
    """Sum up by problem and kernel name. ``names``: the problem of each operation."""
    place = {number: at for at, number in enumerate(steady)}
    inside: dict[tuple[str, str], KernelsInside] = {}
    for one in kernels:
        key = names.get(one.operation, ""), one.name
        held = inside.get(key)
        if held is None:
            kind = kind_of(one.name, None)
            held = inside[key] = KernelsInside(
                role=one.role or kind.role, naive=kind.naive, count=0, per_iteration_ns=[0] * len(steady)
            )
        held.count += 1
        if one.iteration is not None:
            held.per_iteration_ns[place[one.iteration]] += one.ns
    return inside


def _problems(
    kernels: Sequence[_Kernel],
    operations: _Operations,
    names: Mapping[tuple[int, int] | None, str],
    parts: Iterable[Part],
    count: int,
) -> Iterator[Part]:
    """Add to each part the values from the operations and layers of its kernels."""
    by_problem: dict[str, list[_Kernel]] = {}
    for one in kernels:
        by_problem.setdefault(names.get(one.operation, ""), []).append(one)
    for part in parts:
        own = by_problem[part.name]
        keys = dict.fromkeys(one.operation for one in own if one.operation is not None)
        solvers = [operations[key].solver or operations[key].algorithm for key in keys]
        yield msgspec.structs.replace(
            part,
            calls=len({key[1] for key in keys}) / count,
            layers=tuple(dict.fromkeys(one.layer[1] for one in own if one.layer is not None)),
            solvers=tuple(dict.fromkeys(solver for solver in solvers if solver)),
            command=next((operations[key].command or "" for key in keys), ""),
            primitive=operations[next(iter(keys))].primitive,
        )


def _layers(kernels: Sequence[_Kernel], steady: Sequence[int]) -> Iterator[Part]:
    by_layer: dict[LayerKey, list[_Kernel]] = {}
    for one in kernels:
        if one.layer is not None:
            by_layer.setdefault(one.layer, []).append(one)
    for place, key in enumerate(sorted(by_layer, key=in_net_order)):
        yield layer_part(key, _per_iteration(by_layer[key], steady), 0, place)


# -- The sources of a side ---------------------------------------------------------------------------------------------

OPTIONS = AnalysisOptions(repetition="every", near=False)
_DEEPEST = 6
"""The depth of folders that are searched for runs."""


class Source(NamedTuple):
    """A side with the runs behind its records. A base and a written trace have no runs."""

    side: Side
    runs: tuple[Run, ...] = ()


def side(files: Sequence[str], options: AnalysisOptions, notes: Notes) -> Side:
    """Return the runs of one side, from its files or its folder.

    Raises `InputError` if there is no run, or no time to compare.
    """
    return source(files, options, notes, keep=False).side


def source(
    files: Sequence[str], options: AnalysisOptions, notes: Notes, *, keep: bool, damaged: bool = False
) -> Source:
    """Return the side; with ``keep`` also the analysed runs, which need much more memory. ``damaged``: also read a
    trace that was changed or cut.

    Raises as `side`.
    """
    cleaner = Cleaner(options.keep)
    name = cleaner.text(",".join(os.path.basename(os.path.normpath(file)) for file in files))
    if len(files) == 1 and os.path.isfile(files[0]) and is_base(Path(files[0])):
        kept = read_base(Path(files[0]))
        return Source(msgspec.structs.replace(kept, name=cleaner.text(kept.name)))
    if len(files) == 1 and os.path.isfile(files[0]) and is_ours(Path(files[0])):
        return Source(Side(name=name, runs=(of_trace(Path(files[0]), notes, damaged=damaged),)))
    records: list[RunRecord] = []
    runs: list[Run] = []
    for record, run in _runs(files, options, notes, _DEEPEST):
        records.append(record)
        if keep:
            runs.append(run)
        else:
            # The objects of a run refer to each other in cycles; nothing else frees them.
            for measures in run.measures:
                vars(measures).pop("steady", None)
    if not records:
        raise InputError(f"{name}: nothing to compare; expected kernels of a GPU profile, or printed layer times")
    return Source(Side(name=name, runs=tuple(records)), tuple(runs))


def _runs(
    files: Sequence[str], options: AnalysisOptions, notes: Notes, deepest: int
) -> Iterator[tuple[RunRecord, Run]]:
    is_folder = len(files) == 1 and os.path.isdir(files[0]) and not is_dataset(files[0])
    inside = _folders(files[0]) if is_folder else []
    try:
        analysis = analyse(files, options, notes)
    except InputError:
        if not inside or not deepest:
            raise
    else:
        chosen = analysis.complete or analysis.runs
        for run in analysis.runs:
            if run.profiles and run not in chosen:
                notes.add(f"{run.name}: left out, a profile without the log of its run beside others that have theirs")
        # A profile of TensorFlow's own, alone, is compared like any other.
        chosen = tuple(run if run.measures else msgspec.structs.replace(run, measures=run.drawn) for run in chosen)
        made = [(collect(run, notes), run) for run in chosen]
        found = [(record, run) for record, run in made if record is not None]
        yield from found
        if found:
            return
    for folder in inside:
        try:
            yield from _runs([folder], options, notes, deepest - 1)
        except InputError as error:
            notes.add("folder left out: it holds no run", str(error), problem=False)


def _folders(path: str) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(entry.path for entry in entries if os.path.isdir(entry.path) and not entry.name.startswith("."))


# -- A side in a file: the values that comparisons need, in JSON of at most 50 KB, cleaned (docs/privacy.md) -----------

VERSION = 1
LARGEST = 50_000
"""Bytes. If the file is larger, ranks are left out; then the smallest parts are summed to one number, ``others_ns``."""
_MARK = b'{"mio2trace_base":'


class _Base(msgspec.Struct, frozen=True, kw_only=True):
    mio2trace_base: int
    generator: str
    runs: tuple[RunRecord, ...]


def is_base(path: Path) -> bool:
    """Return whether a file is such a base, by its beginning. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return file.read(len(_MARK)) == _MARK


def base_text(side: Side, generator: str) -> bytes:
    """Return the bytes of the file; equal sides give equal bytes."""
    runs = _described_once(side.runs)
    data = _encoded(runs, generator)
    if len(data) > LARGEST:
        runs = tuple(msgspec.structs.replace(run, ranks=()) for run in runs)
        data = _encoded(runs, generator)
    whole, longest = runs, longest_parts(runs)
    names = sorted(longest, key=lambda name: -longest[name])
    while len(data) > LARGEST and len(names) > 1:
        del names[len(names) * 9 // 10 :]
        runs = tuple(_with_only(run, set(names)) for run in whole)
        data = _encoded(runs, generator)
    return data


def _described_once(runs: Iterable[RunRecord]) -> tuple[RunRecord, ...]:
    """Return the runs with the description of each part (kernels, layers, solvers, ...) in the first run that has it:
    others are not asked for it."""
    seen: set[tuple[str, str]] = set()
    described = []
    for run in runs:
        parts = tuple(
            Part(kind=part.kind, name=part.name, samples_ns=part.samples_ns, mean_ns=part.mean_ns)
            if (part.kind, part.name) in seen
            else part
            for part in run.parts
        )
        seen.update((part.kind, part.name) for part in parts)
        described.append(msgspec.structs.replace(run, parts=parts))
    return tuple(described)


def _encoded(runs: tuple[RunRecord, ...], generator: str) -> bytes:
    return msgspec.json.encode(_Base(mio2trace_base=VERSION, generator=generator, runs=runs)) + b"\n"


def _with_only(run: RunRecord, names: AbstractSet[tuple[str, str]]) -> RunRecord:
    """Return the run with the parts of these kinds and names; the same ones of each run of a side."""
    parts = tuple(part for part in run.parts if (part.kind, part.name) in names)
    # Layers contain the same kernel time as problems and kernels.
    left = sum(part.mean_ns for part in run.parts if part.kind != "layer" and (part.kind, part.name) not in names)
    return msgspec.structs.replace(run, parts=parts, others_ns=left)


def read_base(path: Path) -> Side:
    """Read a side from a file. Raises `InputError` if the file is damaged, or of a newer version."""
    try:
        base = msgspec.json.decode(path.read_bytes(), type=_Base)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path.name}: no base of mio2trace: {error}") from None
    if base.mio2trace_base != VERSION:
        raise InputError(f"{path.name}: base of version {base.mio2trace_base}; expected {VERSION}")
    if not base.runs or any(not run.samples_ns or not all(part.samples_ns for part in run.parts) for run in base.runs):
        raise InputError(f"{path.name}: a base without runs, or a run without times")
    return Side(name=path.name.removesuffix(".json"), runs=base.runs)
