"""PyTorch's profiler (Kineto), Chrome JSON (rocm-profiles.md 8, 9, 11.10).

    {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X", ...}], "traceEvents": [
      {"ph": "X", "cat": "cpu_op", "name": "aten::miopen_convolution", "pid": 542, "tid": 542, "ts": 3743411223550.1,
       "dur": 30.2, "args": {"External id": 45, "Input Dims": [[10, 64, 56, 56], [64, 64, 3, 3]], ...}},
      {"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", ..., "args": {"External id": 45, "correlation": 7}},
      {"ph": "X", "cat": "kernel", "name": "igemm_fwd...", "pid": 2, "tid": 0, ..., "args": {"correlation": 7, ...}},
      ...], "baseTimeNanoseconds": 1767189312000000000}

Unix time is the base and ``ts`` microseconds; older files have no base and whole Unix microseconds. The reader keeps
ops, calls, kernels, copies, fills, annotations and modules. It keeps all Python functions only together with every API
call. The launching call shows whether sizes are blocks or work-items. Not read: GPU copies of annotations, memory
events, flows (except for a kernel without correlation), and keys beside the events: a harness may put its whole
environment there.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain, combinations, pairwise, repeat
from types import MappingProxyType
from typing import Any

import msgspec

from mio2trace.model.profile import Call, Clock, Collective, Inputs, Lengths, Process, Profile, Range, Resources, Size3
from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Records, kernel_name
from mio2trace.readers.kineto_frames import Frames, function_of
from mio2trace.readers.pieces import NOTHING, ROUNDED_BELOW, UNREADABLE, Args, Event, EventArray, nanoseconds
from mio2trace.readers.rocm.assembly import COUNTED, Assembly, sizes, whole, work_items
from mio2trace.source import Source

# -- The inputs of an op -----------------------------------------------------------------------------------------------

DTYPES = {
    "float": "float", "double": "double", "c10::Half": "half", "c10::BFloat16": "bfloat16", "long": "int64",
    "long int": "int64", "int": "int32", "short": "int16", "signed char": "int8", "unsigned char": "uint8",
    "bool": "bool", "c10::Float8_e4m3fn": "float8", "c10::Float8_e5m2": "bfloat8",
    "c10::Float8_e4m3fnuz": "float8_fnuz", "c10::Float8_e5m2fnuz": "bfloat8_fnuz",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
}  # fmt: skip
"""PyTorch's names of types in the words of the driver; BLAS libraries have other names for both forms of float8. Inputs
that are no tensors have no type."""


_COMM_DTYPES = {
    "Float": "float", "Half": "half", "BFloat16": "bfloat16", "Double": "double", "Int": "int32", "Long": "int64",
    "Byte": "uint8", "Char": "int8", "Bool": "bool", "Short": "int16", "Float8_e4m3fn": "float8",
    "Float8_e4m3fnuz": "float8", "Float8_e5m2": "bfloat8", "Float8_e5m2fnuz": "bfloat8",
}  # fmt: skip
_MOST = 1 << 48
_COLLECTIVE = late(rb'"(?=[a-z_]*?(?:all|reduce|gather|scatter|broadcast|send|recv|receive|barrier))([a-z_]{1,32})"')
"""``allreduce``, ``_allgather_base``: words of collectives without digits, so no key or token."""
_FILE = late(r"(?:^|/)((?:c[a-z2-7]{51}|[A-Za-z]{1,24}[0-9]{0,3}(?:_[A-Za-z]{0,24}[0-9]{0,3}){0,8})\.py)$")
"""TorchInductor's hash, or words: no key or token."""
_LONGEST_FILE = 240
_NAME = late(rb'"([A-Za-z0-9_]{1,40})"')
_RANKS, _RANK = late(rb'"\[[0-9., ]{0,500}\]"'), late(rb"[0-9]{1,9}")


def _word(text: msgspec.Raw, form: re.Pattern[bytes] = _NAME) -> str:
    found = form.fullmatch(bytes(text).strip())
    return found[1].decode() if found is not None else ""


def _members(text: msgspec.Raw) -> tuple[int, ...]:
    return tuple(map(int, _RANK.findall(bytes(text)))) if _RANKS.fullmatch(bytes(text).strip()) else ()


def _file(value: object) -> str:
    if not isinstance(value, str):
        return ""
    found = _FILE.search(value[-_LONGEST_FILE:])
    return "" if found is None else found[1]


_SHAPES = msgspec.json.Decoder(tuple[Lengths | None, ...])
_WORDS = msgspec.json.Decoder(tuple[str, ...])


class InputsCache:
    """Equal inputs are one object: a network repeats them in each step."""

    def __init__(self, notes: Notes, place: str) -> None:
        self._notes = notes
        self._place = place
        self._made: dict[bytes, Inputs | None] = {}

    def of(self, args: Args) -> Inputs | None:
        """Return the inputs; None if none were recorded."""
        if args.collective is not NOTHING:
            return self._of_collective(args)
        kernel_file = "" if args.kernel_file is None else _file(args.kernel_file)
        dims = args.dims if args.dims is not NOTHING else args.dims_before
        if dims is NOTHING and not kernel_file:
            return None
        key = b"|".join((dims, args.types, args.strides, args.values, kernel_file.encode()))
        try:
            return self._made[key]
        except KeyError:
            made = self._made[key] = self._inputs(args, dims, kernel_file)
            return made

    def _of_collective(self, args: Args) -> Inputs:
        """Return the message of a collective; its other inputs are only its tensors again."""
        given = args.sent, args.received, args.ranks
        numbers = tuple(one if type(one) is int and 0 <= one < _MOST else None for one in given)
        key = b"|".join((args.collective, args.dtype, args.group, args.members, repr(numbers).encode()))
        made = self._made.get(key)
        if made is None:
            name = _word(args.collective, _COLLECTIVE)
            dtype, group = _word(args.dtype), _word(args.group)
            sent, received, ranks = numbers
            made = self._made[key] = Inputs(
                collective=Collective(
                    name, _COMM_DTYPES.get(dtype, ""), sent or 0, received or 0, ranks,
                    int(group) if group.isdecimal() and len(group) < 10 else None, _members(args.members),
                )
            )  # fmt: skip
        return made

    def _inputs(self, args: Args, dims: msgspec.Raw, kernel_file: str) -> Inputs | None:
        try:
            return Inputs(
                _SHAPES.decode(bytes(dims) or b"[]"),
                tuple(DTYPES.get(word, "") for word in _WORDS.decode(bytes(args.types) or b"[]")),
                _SHAPES.decode(bytes(args.strides) or b"[]"),
                _WORDS.decode(bytes(args.values) or b"[]"),
                kernel_file=kernel_file,
            )
        except UNREADABLE:
            self._notes.add("inputs of an op that could not be read", self._place)
            return None


# -- The process of each row of a device -------------------------------------------------------------------------------
#
# A row belongs to the process that launched it. Each process counts its correlation ids from 1, so in a file of several
# processes one id may be two calls. Then these decide, in this order: the op that the row names; the kind of call; the
# process of the device's other rows; and the time, for all such rows of a device together. A row without a recorded
# launch belongs to the process of the device's other rows.

MOST_ALIKE = 64
"""The most processes that are checked for one correlation id, and the most devices that are considered together."""
Launch = tuple[Call, int | None]
"""A call, and the id of the op in which it was made."""
_NONE: Mapping[int, Any] = MappingProxyType({})
_CALLS = {"kernel": "launch", "copy": "memcpy", "fill": "memset"}
_Place = tuple[Any, Any, Any]
"""(pid, tid, ts): the values that a flow shares with the row on which it ends."""


class _Gpu(msgspec.Struct, gc=False):
    """A kernel, copy or fill, until all launches are known. ``row``: the row of a device that it is on. ``launches``:
    in a file of several processes, the launch with its correlation id by process."""

    kind: Any
    name: str
    row: Any
    device: int
    stream: Any
    times: tuple[int, int]
    place: _Place | None
    correlation: int | None
    external: int | None
    grid: Size3 | None
    block: Size3 | None
    size: int | None
    route: str
    node: tuple[int | None, int | None] | None = None
    resources: Resources | None = None
    launches: Mapping[int, Launch] = _NONE


def processes_of(rows: Sequence[_Gpu], notes: Notes, place: str) -> list[int]:
    """Return the process of each row."""
    found = [_by_itself(row) for row in rows]
    _without_later_launches(rows, found)
    _by_other_rows(rows, found, launched=True)
    unclear = [number for number, process in enumerate(found) if process is None and rows[number].launches]
    if unclear:
        what = "kernel or copy whose correlation id several processes have: given to one of them by time"
        notes.remark(what, place, len(unclear))
        _by_time(rows, unclear, found)
    _by_other_rows(rows, found, launched=False)
    nobodys = found.count(None)
    if nobodys:
        what = "kernel or copy of no known process of the file: assigned to the first process"
        notes.add(what, place, nobodys)
    return [process or 0 for process in found]


def _by_itself(row: _Gpu) -> int | None:
    """Return the only process that has such a launch."""
    left = list(row.launches)
    by_op = [one for one in left if row.external is not None and row.launches[one][1] == row.external]
    left = by_op or left
    by_kind = [one for one in left if _CALLS[row.kind] in row.launches[one][0].name.lower()]
    left = by_kind or left
    return left[0] if len(left) == 1 else None


_MOST_EARLY = 0.25
"""If a larger part of a device's rows begins before their launches, host and device have different clocks."""
_TOLERANCE_NS = 1_000


def _without_later_launches(rows: Sequence[_Gpu], found: list[int | None]) -> None:
    """Take launches from rows that begin before them: another process used the id, and the row's own is unknown."""
    launched: Counter[Hashable] = Counter()
    early: dict[Hashable, list[int]] = {}
    for number, (row, process) in enumerate(zip(rows, found, strict=True)):
        if process is not None:
            launched[row.row] += 1
            if row.times[0] + _TOLERANCE_NS < (row.launches[process][0].start_ns or 0):
                early.setdefault(row.row, []).append(number)
    for device, numbers in early.items():
        for number in numbers if len(numbers) <= _MOST_EARLY * launched[device] else ():
            found[number], rows[number].launches, rows[number].correlation = None, _NONE, None


def _by_other_rows(rows: Sequence[_Gpu], found: list[int | None], *, launched: bool) -> None:
    """Assign rows to the process of all other rows of their stream, else of their device."""
    owners: dict[Hashable, Counter[int]] = {}
    for row, process in zip(rows, found, strict=True):
        if process is not None:
            for key in ((row.row, row.stream), (row.row,)):
                owners.setdefault(key, Counter())[process] += 1
    for number, row in enumerate(rows):
        if found[number] is not None or bool(row.launches) is not launched:
            continue
        for key in ((row.row, row.stream), (row.row,)):
            own = [one for one in owners.get(key, ()) if not launched or one in row.launches]
            if len(own) == 1:
                found[number] = own[0]
                break


def _by_time(rows: Sequence[_Gpu], unclear: Sequence[int], found: list[int | None]) -> None:
    """Decide by time: all rows of a device together if one process used it, else row by row."""
    of_device: dict[Hashable, list[int]] = {}
    for number in unclear:
        of_device.setdefault(rows[number].row, []).append(number)
    whole = []
    for numbers in of_device.values():
        of_id: dict[int | None, list[int]] = {}
        for number in numbers:
            of_id.setdefault(rows[number].correlation, []).append(number)
        # The launch of a graph has many kernels.
        calls_of = ([call for call, _ in rows[same[0]].launches.values()] for same in of_id.values() if len(same) > 1)
        shared = any(not any("graph" in call.name.lower() for call in calls) for calls in calls_of)
        if shared or len(of_device) > MOST_ALIKE:
            for same in of_id.values():
                _in_order(rows, same, found)
        else:
            whole.append(numbers)
    for numbers, process in zip(whole, _assigned(rows, whole), strict=True):
        for number in numbers:
            launches = rows[number].launches
            found[number] = process if process in launches else min(launches)


def _in_order(rows: Sequence[_Gpu], same: Sequence[int], found: list[int | None]) -> None:
    """Assign rows with equal ids in order: as many to each call, else each row to the last call before it."""
    launches = rows[same[0]].launches
    calls = sorted(launches, key=lambda process: launches[process][0].start_ns or 0)
    in_order = sorted(same, key=lambda number: rows[number].times[0])
    for at, number in enumerate(in_order):
        begun = sum((launches[process][0].start_ns or 0) <= rows[number].times[0] for process in calls)
        alike = len(same) % len(calls) == 0
        found[number] = calls[at * len(calls) // len(same) if alike else max(begun, 1) - 1]


def _assigned(rows: Sequence[_Gpu], devices: Sequence[Sequence[int]]) -> list[int]:
    """Return the process of each device's rows. A call launches on one device, and no row begins before its launch. Of
    all possible assignments the one with the fewest contradictions is chosen, then the one with the shortest waits."""
    processes = sorted({process for numbers in devices for number in numbers for process in rows[number].launches})
    ids = [{rows[number].correlation for number in numbers} for numbers in devices]
    costs = [[_cost(rows, numbers, process) for process in processes] for numbers in devices]
    twice = {(one, other): len(ids[one] & ids[other]) for one, other in combinations(range(len(devices)), 2)}

    def cost(order: Sequence[int]) -> tuple[int, int, int]:
        chosen = [costs[device][process] for device, process in enumerate(order)]
        both = sum(count for (one, other), count in twice.items() if order[one] == order[other])
        return both, sum(early for early, _ in chosen), sum(waits for _, waits in chosen)

    best = [device % len(processes) for device in range(len(devices))]
    improved = True
    while improved:
        others = [
            [*best[:device], process, *best[device + 1 :]]
            for device in range(len(devices))
            for process in range(len(processes))
        ]
        for one, other in twice:
            swapped = list(best)
            swapped[one], swapped[other] = best[other], best[one]
            others.append(swapped)
        found = min(others, key=cost, default=best)
        improved = cost(found) < cost(best)
        best = found if improved else best
    return [processes[process] for process in best]


def _cost(rows: Sequence[_Gpu], numbers: Sequence[int], process: int) -> tuple[int, int]:
    """Return how many rows would begin before their launch or have none, and the total wait for their device."""
    early = waits = 0
    for number in numbers:
        launch = rows[number].launches.get(process)
        wait = -1 if launch is None else rows[number].times[0] - (launch[0].start_ns or 0)
        early += wait < 0
        waits += max(wait, 0)
    return early, waits


# -- The profile -------------------------------------------------------------------------------------------------------

NAME = "PyTorch profiler trace (Kineto)"
_ASCEND = b'"Ascend Hardware"'
"""A process in traces of Ascend's profiler, whose rows have other forms."""
_OF_ASCEND = "async_npu"
"""A category of such a trace."""
_ROWS = late(
    rb'"cat"\s*:\s*"(?:cpu_op|cuda_runtime|cuda_driver|python_function|user_annotation|gpu_memcpy|gpu_memset|ac2g'
    rb'|gpu_user_annotation|Operator|Runtime|async_gpu|kernel"[^}]{,4096}"correlation)"'
)
_BASE = late(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')
_UNIX_FROM_NS = 10**18
"""Microseconds, since 2001: a smaller time has lost its base."""
_MOST_NS = (1 << 63) - 1
_WHOLE = "X"
"""The ``ph`` of an event with a start and a duration."""
_MODULE = "nn.Module: "
_STEP = "ProfilerStep#"
LONG_GAP_NS, MOST_GAPS = 2_000_000, 64
"""The most gaps between commands for which the Python function is searched."""
_ROUTES = {
    "HtoD": "host to device", "DtoH": "device to host", "DtoD": "device to device", "HtoH": "host to host",
    "PtoP": "device to device", "H2D": "host to device", "D2H": "device to host", "D2D": "device to device",
}  # fmt: skip
_COPY = "Memcpy "
_MEMORY = "Pageable", "Pinned"
"""Kinds of the host's memory in the name of a copy, if CUDA runs it."""
_DERIVED = frozenset(("", "fwdbwd", "async_cpu_to_gpu", "Trace", "gpu_user_annotation", "cpu_instant_event"))
"""Rows that only repeat others, or have no duration."""
_OF_PROFILER = frozenset(("overhead",))
"""Rows of the profiler's own work."""
_KINDS = {
    "kernel": "kernel", "concurrent_kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "fill",
    "Kernel": "kernel", "Memcpy": "copy", "Memset": "fill",
}  # fmt: skip
"""The last ones are of versions before 1.13."""
_MERGED = late(r"\[(?:TP(\d{1,5})|[\w-]+)\] (\d{1,18})", re.ASCII)
"""The process in a file of all ranks that SGLang merged: ``[TP03] 4711``, ``[TP03-EP03] 4711``."""
_MAKERS = ("cuda", "hip", "xpu", "privateuse1")
_Launch = tuple[str, Size3 | None, Size3 | None]
"""Call, grid and block, as in the call."""
_ANY_OF_CUDA: _Launch = ("cudaLaunchKernel", None, None)
"""For a kernel of CUDA whose call is not recorded or launches a graph: all of CUDA's launches count blocks."""


class _Around(msgspec.Struct):
    """The content of the file beside the events."""

    base: Any = msgspec.field(name="baseTimeNanoseconds", default=0)
    devices: Any = msgspec.field(name="deviceProperties", default=None)
    distributed: Any = msgspec.field(name="distributedInfo", default=None)


def sniff(head: bytes) -> bool:
    """Return whether it has the header, or rows with its categories: files that other tools merged have no header. An
    array may hold the rows alone."""
    begin = head.lstrip()[:1]
    if begin == b"[":
        return _ROWS.search(head) is not None and _ASCEND not in head
    if begin != b"{":
        return False
    if b'"schemaVersion"' in head and b'"deviceProperties"' in head:
        return True
    return b'"traceEvents"' in head and _ROWS.search(head) is not None


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return a profile for each process. Raises `InputError` if there is no row of any."""
    return list(_Reading(source, options, notes).profiles())


class _Reading:
    """One reading of a file: events are collected in any order, then joined by process and correlation id."""

    def __init__(self, source: Source, options: ReadOptions, notes: Notes) -> None:
        self._source = source
        self._everything = options.host_calls
        self._with_functions = options.functions
        self._notes = notes
        self._of: dict[int, Assembly] = {}
        self._threads: dict[tuple[Any, Any], tuple[Assembly, int]] = {}
        self._numbers: dict[str, int] = {}
        """The processes of a merged file, and the rank of each, because `distributedInfo` is that of the first."""
        self._rank_of: dict[int, int | None] = {}
        self._fused: dict[int, Any] = {}
        """The rank of each process by its rows."""
        self._launches: dict[int, dict[int, _Launch]] = {}
        """By process and correlation."""
        self._gpu: deque[_Gpu] = deque()
        self._named: deque[Event] = deque()
        """Annotations, until all processes are known."""
        self._flows: dict[_Place, int] | None = {}
        """None as soon as a kernel has a correlation of its own: then all have one."""
        self._inputs = InputsCache(notes, source.name)
        self._one_id = False
        """Whether ``External id`` is the correlation id, and no op's id, as in some versions for ROCm."""
        self._frames = 0
        self._stacks = Frames()
        self._steps: list[int] = []
        """The starts of PyTorch's numbered steps, in ns from the base."""
        self._unknown: Counter[str] = Counter()
        self._left_out = 0
        """Rows of devices without possible times."""
        self._same: dict[Any, Any] = {}
        self._device_names: dict[int, str] = {}
        self._any_device = ""
        self._base = 0
        self._handlers = dict(_HANDLERS)

    def profiles(self) -> Sequence[Profile]:
        array = EventArray(self._source.blocks(), self._source.name, self._notes)
        early = _base_in(array.before)
        self._base = early or 0
        for events in array.pieces():
            self._take(events)
        self._annotations()
        around = self._around(array)
        base = around.base if type(around.base) is int and 0 <= around.base <= _MOST_NS else 0
        self._devices(around)
        if array.is_alone:
            what = "array of events alone: GPU names, the base of the times and the rank are not in it"
            self._notes.remark(what, self._source.name)
        if not self._of and not self._gpu:
            what = "no op, call or kernel in it; expected a trace of PyTorch's profiler"
            raise InputError(f"{self._source.name}: {what}")
        if not self._gpu and self._unknown[_OF_ASCEND]:  # whose sign is far behind the file's beginning
            what = "is a trace of Ascend's profiler; expected a profile of a ROCm tool, of PyTorch, or dv/dt"
            raise InputError(f"{self._source.name}: {what}")
        if not self._of:
            self._assembly(None)
        is_recorded = bool(self._gpu)
        lost_ops = self._lost_ops()
        self._activities()
        self._say(is_recorded)
        assemblies = [assembly for assembly in self._of.values() if not assembly.empty]
        if assemblies:
            assemblies[0].defects["times-out-of-order"] += self._left_out
            assemblies[0].defects["sampled"] += lost_ops
        for assembly in assemblies:
            if early is None and base:
                assembly.later(base)
            fused = {"rank": self._fused.get(assembly.process.pid or 0)}
            told = around.distributed if isinstance(around.distributed, dict) else fused
            rank, ranks = (
                value if type(value := told.get(key)) is int and 0 <= value < 1 << 31 else None
                for key in ("rank", "world_size")
            )
            rank = self._rank_of.get(assembly.process.pid or 0, rank)
            assembly.process = Process(index=0, pid=assembly.process.pid, rank=rank, ranks=ranks)
            if assembly.latest_ns < _UNIX_FROM_NS:
                assembly.clock = Clock("opaque", scope=f"file {self._source.index}")
        base = base if early is None else early
        made = ((assembly, _with_filtered(assembly.finish(self._everything))) for assembly in assemblies)
        return [self._with_python(assembly, profile, base) for assembly, profile in made]

    def _with_python(self, assembly: Assembly, profile: Profile, base: int) -> Profile:
        """Add the Python line of each launch, and the functions that ran in long gaps between commands."""
        profile = self._with_lines(assembly, profile, base) if self._stacks else profile
        if not self._stacks or not self._with_functions:
            return profile
        functions = []
        for key, text, start, end in self._stacks.during(_gaps(profile, self._stacks, self._steps, base)):
            of, thread = self._threads.get(key, (None, 0))
            if of is assembly:
                times = base + round(start * 1000), base + round(end * 1000)
                functions.append(Range("frame", self._once(text), thread, *times))
        return msgspec.structs.replace(profile, functions=tuple(functions))

    def _with_lines(self, assembly: Assembly, profile: Profile, base: int) -> Profile:
        thread_of = {index: key for key, (of, index) in self._threads.items() if of is assembly}
        calls: dict[int, Call] = {id(one.call): one.call for one in profile.activities if one.call is not None}
        of_thread: dict[Any, list[int]] = defaultdict(list)
        spans: dict[Any, list[tuple[float, float]]] = defaultdict(list)
        for key, call in calls.items():
            if call.thread in thread_of and "GraphLaunch" not in call.name:
                thread = thread_of[call.thread]
                of_thread[thread].append(key)
                spans[thread].append((((call.start_ns or 0) - base) / 1000, ((call.end_ns or 0) - base) / 1000))
        shown: dict[int, int] = {-1: -1}
        places: dict[int, tuple[int, int]] = {}
        for thread, found in self._stacks.lines(spans).items():
            for key, (first, own) in zip(of_thread[thread], found, strict=True):
                if first >= 0:
                    places[key] = shown.setdefault(first, len(shown) - 1), shown.setdefault(own, len(shown) - 1)
        named = [*self._stacks.named]
        line_of = {one.number: places[id(one.call)] for one in profile.activities if id(one.call) in places}
        return msgspec.structs.replace(profile, lines=tuple(named[one] for one in shown if one >= 0), line_of=line_of)

    def _take(self, events: Sequence[Event]) -> None:
        handlers = self._handlers
        functions = []
        modules = 0
        for event in events:
            category = event.cat
            if category == "python_function":
                functions.append(event)
                if not self._everything and not event.name.startswith(_MODULE):
                    continue
                modules += 1
            try:
                handler = handlers[category]
            except KeyError:
                self._unknown[category if len(category) < 40 else "?"] += 1
                continue
            if handler is not None:
                handler(self, event)
        if functions:
            self._frames += len(functions) - modules
            self._stacks.take(functions)

    # Rows of the host

    def _process(self, pid: object) -> int | None:
        """Return the number of a process. In a merged file keep its rank, and numbers of several machines apart."""
        found = _MERGED.fullmatch(pid) if isinstance(pid, str) else None
        if found is None:
            return _integer(pid)
        if found[0] not in self._numbers:
            number = int(found[2])
            while number in self._rank_of:
                number += 1 << 32
            self._numbers[found[0]] = number
            self._rank_of[number] = _integer(found[1])
        return self._numbers[found[0]]

    def _assembly(self, pid: int | None) -> Assembly:
        assembly = self._of.get(pid or 0)
        if assembly is None and not pid and self._of:
            return next(iter(self._of.values()))  # outer Python frames may have process 0
        if assembly is None:
            assembly = self._of[pid or 0] = Assembly(
                self._source.index, Clock("unix"), self._notes, self._source.name, pid or None, ids_apart=True,
                numbers="event_index",
            )  # fmt: skip
        return assembly

    def _where(self, event: Event) -> tuple[Assembly, int]:
        key = event.pid, event.tid
        where = self._threads.get(key)
        if where is None:
            number = self._process(event.pid)
            assembly = self._assembly(number)
            self._fused.setdefault(number or 0, event.args.rank)
            where = self._threads[key] = assembly, assembly.thread(_integer(event.tid))
        return where

    def _times(self, assembly: Assembly, event: Event, what: str) -> tuple[int, int] | None:
        start, length = event.ts, event.dur
        if (
            type(start) is float
            and type(length) is float
            and 0 <= start < ROUNDED_BELOW
            and 0 <= length < ROUNDED_BELOW
        ):
            # the same as `nanoseconds` without the calls, because half of all rows are ops
            start = self._base + round(start * 1000)
            return assembly.times(start, start + round(length * 1000), what)
        start, length = nanoseconds(start), nanoseconds(length)
        if start is None or length is None:
            return assembly.times(None, None, what)
        start += self._base
        return assembly.times(start, start + length, what)

    def _op(self, event: Event) -> None:
        assembly, thread = self._where(event)
        times = self._times(assembly, event, "op")
        if times is not None:
            args, name = event.args, event.name
            inputs = self._inputs.of(args)
            name = self._same.setdefault(name, name)
            assembly.range(Range("operator", name, thread, times[0], times[1], args.external, inputs, args.sequence))

    def _old_op(self, event: Event) -> None:
        if "#" in event.name:  # PyTorch 1.8 has steps, optimizers and data loaders among the ops
            self._defer(event)
        else:
            self._op(event)

    def _annotations(self) -> None:
        """Add annotations to their processes. An annotation of a process without other rows belongs to the launching
        process, if there is one: a process may have two numbers, inside and outside of a container."""
        launching = [assembly for assembly in self._of.values() if next(assembly.launches(), None) is not None]
        (owner,) = launching if len(launching) == 1 else (None,)
        while self._named:
            event = self._named.popleft()
            if owner is not None and self._process(event.pid) not in (0, None, *self._of):
                self._threads[event.pid, event.tid] = owner, owner.thread(_integer(event.tid))
            assembly, thread = self._where(event)
            times = self._times(assembly, event, "annotation")
            if times is not None:
                assembly.range(Range("annotation", self._once(event.name), thread, *times, event.args.external))
                if event.name.startswith(_STEP):
                    self._steps.append(times[0] - self._base)

    def _defer(self, event: Event) -> None:
        # The rest of other annotations would keep the file's blocks in memory.
        event.args = Args(external=event.args.external)
        self._named.append(event)

    def _frame(self, event: Event) -> None:
        assembly, thread = self._where(event)
        times = self._times(assembly, event, "Python function")
        if times is not None:
            assembly.range(Range("frame", self._once(function_of(event.name)), thread, *times))

    def _call(self, event: Event) -> None:
        assembly, thread = self._where(event)
        times = self._times(assembly, event, "API call")
        if times is None:
            return
        args = event.args
        correlation, parent = args.correlation, args.external
        if correlation is None and parent is not None:
            correlation, parent = parent, None
            self._one_id = True
        elif correlation is None and self._flows:
            correlation = self._flows.get((event.pid, event.tid, event.ts))
        if parent == correlation:  # PyTorch 2.0 writes it twice: then only the time tells the op
            parent = None
        name = _call_name(event.name)
        if correlation is not None and name in COUNTED:
            launch = name, _size(args.grid), _size(args.block)
            self._launches.setdefault(id(assembly), {})[correlation] = self._once(launch)
            if type(args.kernel) is str:
                assembly.launches_kernel(correlation, kernel_name(args.kernel))
        assembly.call(name, thread, times, correlation, parent=parent)

    # Rows of devices

    def _activity(self, event: Event) -> None:
        device = _integer(event.pid)
        if device is None:  # the form of tools that merge files
            device = _integer(event.args.device)
        start, length = nanoseconds(event.ts), nanoseconds(event.dur)
        what = _KINDS[event.cat]
        if event.ph != _WHOLE:
            self._notes.add(f"{what} that is not an event with a start and a duration: left out", self._source.name)
            self._left_out += 1
            return
        if start is None or length is None or not 0 <= start + self._base <= start + self._base + length <= _MOST_NS:
            self._notes.add(f"{what} whose times are no numbers in order: left out", self._source.name)
            self._left_out += 1
            return
        start += self._base
        args = event.args
        stream = _integer(event.tid)
        if stream is None:  # PyTorch 1.8: "stream 7"
            stream = _integer(args.stream)
        place = None
        if args.correlation is None:
            place = event.pid, event.tid, event.ts
        elif what == "kernel":
            self._flows = self._handlers["ac2g"] = None
        self._gpu.append(
            _Gpu(
                what, self._once(event.name), event.pid, device or 0, stream, (start, start + length),
                place, args.correlation, args.external, self._once(_size(args.grid)), self._once(_size(args.block)),
                _integer(args.size),
                _route(args.kind, event.name) if what == "copy" else "",
                None if args.node is None else (_integer(args.graph), _integer(args.node)),
                self._once(_resources(args)) if what == "kernel" else None,
            )
        )  # fmt: skip

    def _flow(self, event: Event) -> None:
        if self._flows is not None and type(event.id) is int and nanoseconds(event.ts) is not None:
            self._flows[event.pid, event.tid, event.ts] = event.id

    def _activities(self) -> None:
        assemblies = list(self._of.values())
        for row in self._gpu:
            row.correlation, row.external = self._correlation(row), self._op_of(row)
        placed = iter(self._processes(assemblies)) if len(assemblies) > 1 else repeat(0)
        work = lru_cache(maxsize=1 << 12)(_work)
        queue_of = cache(self._queue)
        while self._gpu:
            row = self._gpu.popleft()
            assembly = assemblies[next(placed)]
            launch = None if row.correlation is None else self._launches.get(id(assembly), _NONE).get(row.correlation)
            if launch is None and row.resources is not None:
                launch = _ANY_OF_CUDA
            grid, block = work(row.grid, row.block, launch) if row.kind == "kernel" else (None, None)
            name = kernel_name(row.name) if row.kind == "kernel" else _shown(row)
            queue = queue_of(assembly, row.device, row.stream)
            assembly.activity(
                row.kind, name, queue, row.times, correlation=row.correlation, grid=grid, workgroup=block,
                size_bytes=row.size, route=row.route, range_id=row.external, graph_node=row.node,
                resources=row.resources,
            )  # fmt: skip
        self._launches.clear()

    def _lost_ops(self) -> int:
        """Count the ops that kernels name, in a file without a row of the host."""
        if self._threads:
            return 0
        lost = len({self._op_of(row) for row in self._gpu} - {None})
        return lost if lost >= _LEAST_NUMBERS else 0

    def _correlation(self, row: _Gpu) -> int | None:
        if row.correlation is not None:
            return row.correlation
        if self._one_id and row.external is not None:
            return row.external
        return self._flows.get(row.place) if self._flows and row.place is not None else None

    def _op_of(self, row: _Gpu) -> int | None:
        """Return the id of the op that launched it, if its row has one (`_call`)."""
        return None if row.external == row.correlation or (self._one_id and row.correlation is None) else row.external

    def _processes(self, assemblies: Sequence[Assembly]) -> list[int]:
        launches: dict[int, dict[int, Launch]] = {}
        for number, assembly in enumerate(assemblies):
            for correlation, call, parent in assembly.launches():
                its = launches.setdefault(correlation, {})
                if len(its) < MOST_ALIKE:
                    its[number] = call, parent
        member_of = {number: _member(pid) for pid, number in self._numbers.items()}
        members = [member_of.get(assembly.process.pid or 0) for assembly in assemblies]
        for row in self._gpu:
            if row.correlation in launches:
                row.launches = launches[row.correlation]
            if member_of:
                own = _member(row.row)
                row.launches = {number: launch for number, launch in row.launches.items() if members[number] == own}
        return processes_of([*self._gpu], self._notes, self._source.name)

    def _queue(self, assembly: Assembly, device: int, stream: int | None) -> int:
        name = self._device_names.get(device, self._any_device)
        return assembly.queue(assembly.device(device, name, number=device), stream)

    # The content beside the events

    def _around(self, array: EventArray) -> _Around:
        for text in (array.around, array.before + b"]}"):
            try:
                return msgspec.json.decode(text, type=_Around)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
        return _Around(base=_base_in(array.around) or 0)

    def _devices(self, around: _Around) -> None:
        """Read the names of devices. ROCm counts the host's processors as devices in the rows, but not in this list:
        the number of a row may belong to another GPU in it, or be missing. If all names are equal, the name holds for
        any device."""
        for made in around.devices if isinstance(around.devices, list) else ():
            if isinstance(made, dict) and type(made.get("id")) is int and isinstance(made.get("name"), str):
                self._device_names[made["id"]] = made["name"]
        names = {*self._device_names.values()}
        self._any_device = names.pop() if len(names) == 1 else ""

    def _say(self, is_recorded: bool) -> None:
        """Add notes. ``is_recorded``: there are rows of devices; otherwise a row that was left out may be one."""
        place = self._source.name
        if self._frames:
            what = "Python function not drawn: --host-calls all draws all of them, modules are drawn anyway"
            self._notes.remark(what, place, self._frames)
        for category, count in self._unknown.most_common(5):
            say = self._notes.remark if is_recorded or category in _OF_PROFILER else self._notes.add
            say(f"row of category {category} not drawn", place, count)

    def _once(self, value: Any) -> Any:
        return self._same.setdefault(value, value)


_HANDLERS: Mapping[str, Callable[[_Reading, Event], None] | None] = {
    **dict.fromkeys(_DERIVED),
    **dict.fromkeys(_KINDS, _Reading._activity),
    **{f"{of}_{what}": _Reading._call for of in _MAKERS for what in ("runtime", "driver")},
    "user_annotation": _Reading._defer,
    "python_function": _Reading._frame,
    "cpu_op": _Reading._op,
    "ac2g": _Reading._flow,
    # of versions before 1.13
    "Operator": _Reading._old_op,
    "Runtime": _Reading._call,
    "async_gpu": _Reading._flow,
    "async": None,  # flows whose ends have correlation ids
}


def _route(kind: Any, name: str) -> str:
    """Return the direction of a copy: ROCm records it as an argument, CUDA in the name, ``Memcpy HtoD (Pageable ->
    Device)``, Intel, too: ``Memcpy H2D (HOST -> DEVICE)``."""
    way = kind if isinstance(kind, str) else name[len(_COPY) :][:4].strip() if name.startswith(_COPY) else ""
    return _ROUTES.get(way, "")


def _shown(row: _Gpu) -> str:
    """Return the name of a copy or a fill: ``copy host to device, pageable`` if the profiler names the memory."""
    memory = next((word for word in _MEMORY if row.kind == "copy" and word in row.name), "")
    return f"{row.kind} {row.route}".strip() + f", {memory.lower()}" * bool(memory)


def _gaps(profile: Profile, stacks: Frames, steps: Sequence[int], base: int) -> list[tuple[float, float]]:
    """Return the `MOST_GAPS` longest times without a command, in order, in us. ``steps`` (in ns) that begin within a
    gap divide it: the time before a step, such as set-up, is not part of its first gap."""
    timed = profile.commands.has_times
    commands = sorted(
        zip(*(of[timed].tolist() for of in (profile.commands.start_ns, profile.commands.end_ns)), strict=True)
    )
    if not commands:
        return []
    first, last = (base + round(at * 1000) for at in stacks.span)
    begun = sorted(base + at for at in steps)
    gaps: list[tuple[int, int]] = []
    until = min(first, commands[0][0])
    for start, end in chain(commands, [(last, last)]):
        if start - until >= LONG_GAP_NS:
            bounds = [until, *(at for at in begun if until < at < start), start]
            gaps += [gap for gap in pairwise(bounds) if gap[1] - gap[0] >= LONG_GAP_NS]
        until = max(until, end)
    gaps = sorted(sorted(gaps, key=lambda gap: gap[0] - gap[1])[:MOST_GAPS])
    return [((start - base) / 1000, (end - base) / 1000) for start, end in gaps]


# -- Files from which a tool filtered or sampled rows ------------------------------------------------------------------
#
# PyTorch's profiler gives each op and annotation the next number (``External id``), except for a few blocks of numbers
# that a thread did not fill. So in an original file nearly every number is followed by the next one: 99 % in all
# measured files, but 20 to 40 % in files of which a tool kept a part of the rows. A profile of the GPU alone has calls,
# and its kernels name no ops: kernels that do, in a file without a row of the host, were taken out of a larger file.

_FOLLOWED = 0.5
"""In a file with a smaller part of numbers followed by the next one, rows were filtered out."""
_LEAST_NUMBERS = 10
"""Fewer show nothing."""


def _with_filtered(profile: Profile) -> Profile:
    """Return the profile with the number of ops that were filtered out as the defect ``sampled``."""
    numbers = [one.id for one in profile.ranges if one.id is not None] if profile.activities else []
    if not numbers or len(numbers) > _FOLLOWED * (max(numbers) - min(numbers) + 1):
        return profile  # most are present: nothing needs to be sorted
    distinct = sorted({*numbers})
    followed = sum(other == one + 1 for one, other in pairwise(distinct))
    if len(distinct) < _LEAST_NUMBERS or followed >= _FOLLOWED * len(distinct):
        return profile
    filtered = distinct[-1] - distinct[0] + 1 - len(distinct)
    return msgspec.structs.replace(profile, defects={**profile.defects, "sampled": filtered})


# -- The content beside the events, and numbers ------------------------------------------------------------------------


def _base_in(text: bytes) -> int | None:
    """Return the base time if it comes before the events."""
    stated = _BASE.findall(text)
    return int(stated[-1]) if stated and int(stated[-1]) <= _MOST_NS else None


def _integer(value: object) -> int | None:
    if type(value) is int:
        return value if -(1 << 63) <= value < 1 << 63 else None
    if isinstance(value, str) and value.isdecimal() and value.isascii() and len(value) < 19:
        return int(value)
    return None


def _member(pid: object) -> str:
    """Return the rank in the text for a process or a device of a merged file: ``[TP03`` of ``[TP03] 0``."""
    return str(pid).partition("]")[0]


_VERSION = late(r"(cuda\w+)_v\d{4,5}", re.ASCII)
"""CUPTI's name of a call, with the version of CUDA that has it: ``cudaLaunchKernel_v7000``."""


@lru_cache(maxsize=1 << 10)
def _call_name(name: str) -> str:
    found = _VERSION.fullmatch(name)
    return name if found is None else found[1]


_SIZE = msgspec.json.Decoder(tuple[int, int, int])


def _size(size: Size3 | str | None) -> Size3 | None:
    if not isinstance(size, str):
        return size
    try:
        return _SIZE.decode(size)
    except UNREADABLE:
        return None


def _resources(args: Args) -> Resources | None:
    """Return what PyTorch's profiler records of a kernel of CUDA, and of no other."""
    registers, shared = whole(_integer(args.registers)), whole(_integer(args.shared))
    return None if registers is None else Resources(registers=registers, shared_bytes=shared)


def _work(grid: Size3 | None, block: Size3 | None, launch: _Launch | None) -> tuple[Size3 | None, Size3 | None]:
    """Return work-items and work-group of a kernel, which depend on the call that launched it (rocm-profiles.md 9)."""
    if launch is not None:
        grid, block = grid or launch[1], block or launch[2]
    group = None if block is None else sizes(*block)
    return (None if launch is None else work_items(launch[0], grid, block)), group
