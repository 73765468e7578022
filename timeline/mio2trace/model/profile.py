"""Records of a GPU profile: activities of devices, calls of the host, and named ranges, on named clocks.

The records contain no conclusions. Profilers that wait for each command (dv/dt) and others (ROCm's, Kineto) fill the
same records. Fields that only OpenCL has are in a side table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, cast

import msgspec

from mio2trace.model import Column, Hidden, HiddenBytes, LayerName, Name, Place, Text, Word
from mio2trace.model.log import Direction
from mio2trace.patterns import late

if TYPE_CHECKING:
    from mio2trace.model.tables import Activities, Calls, Numbers


Size3 = tuple[int, int, int]
Sizes = tuple[int, ...]
Lengths = tuple[int | Sizes, ...]
"""The lengths of a tensor, or those of each tensor in a list."""


class UnixTime(msgspec.Struct, frozen=True, gc=False):
    """The conversion of a clock's times to Unix time: add ``offset_ns``. Its error against the machine's Unix clock is
    at most ``error_ns``; that clock itself is wrong by at most ``wrong_ns`` (None: unknown)."""

    offset_ns: int = 0
    error_ns: int = 0
    wrong_ns: int | None = None


class Clock(msgspec.Struct, frozen=True, gc=False):
    """A clock: a device's own counter, Unix time, time since boot, or a counter with an unknown zero.
    ``resolution_ns``: times are whole multiples of it, rounded down. Two sides that share a clock need no relation.
    ``scope``: the place of the clock. Processes with equal scopes share one clock; ``""`` is unknown. It is a hash of
    what names the machine, only for comparisons and in no output. ``unix``: known if clocks were read before and after
    the run (`mio2trace.model.profile`)."""

    kind: Literal["device", "unix", "boottime", "opaque"]
    resolution_ns: int = 1
    scope: Hidden = ""
    unix: UnixTime | None = None

    @property
    def is_of_a_file(self) -> bool:
        """Whether nothing is known of its place but the file, so that it is shared by the processes in that file."""
        return self.scope.startswith("file ")

    @property
    def as_unix(self) -> UnixTime | None:
        """The conversion of its times to Unix time; None if unknown."""
        return UnixTime() if self.unix is None and self.kind == "unix" else self.unix


DVDT_HOST = Clock("unix", 1000)


class Process(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A process of the job. ``label``: a short name if there are several (``rank 0``), never a command line. ``ranks``:
    how many the job has, None if not recorded."""

    index: int
    pid: int | None = None
    rank: int | None = None
    ranks: int | None = None
    label: Text = ""


class Thread(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A thread of the host. ``tid``: its number in the system."""

    index: int
    process: int = 0
    tid: int | None = None
    name: Text = ""


class Device(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A device. ``clock``: a place in the profile's clocks; 0 is the host's. ``number``: given by the profiler.
    ``unit``: which device of the machine it is, the same for all processes; None if that is not recorded."""

    index: int
    name: Text = ""
    clock: int = 1
    number: int | None = None
    unit: int | None = None


class Queue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A command queue or a stream. ``index``: from 0 in order of first appearance. ``number``: given by the profiler.
    ``name``: the profiler's name of the queue, if that is not a number. ``handle``: joins records and is never
    shown."""

    index: int
    device: int
    process: int = 0
    kind: Literal["queue", "stream"] = "queue"
    number: int | None = None
    handle: Hidden = ""
    name: Text = ""


class Call(msgspec.Struct, frozen=True, gc=False):
    """An API call on the host. Times are None if the source has none. ``number``: the number that a person sees (dv/dt:
    the position in the file). ``correlation``: the value that a call and its activities share within a process.
    ``prepared_ns``: when the program began to prepare the launch (OpenCL sets the arguments of a kernel before the
    launch)."""

    name: Name
    thread: int = 0
    start_ns: int | None = None
    end_ns: int | None = None
    line: int = 0
    number: int | None = None
    correlation: int | None = None
    prepared_ns: int | None = None


class OpenClLaunch(msgspec.Struct, frozen=True, gc=False):
    """Values of a kernel launch that only OpenCL records. A reader uses one object for equal values. ``kernel``: the
    handle of the kernel object. ``arguments[i]``: the current argument i as lower-case hex in memory order, ``""`` if
    unknown. ``program``: an index of the programs, None if the source does not link them. ``offset``: the global work
    offset."""

    kernel: Hidden = ""
    arguments: tuple[Hidden, ...] = ()
    program: int | None = None
    offset: Size3 | None = None


NOT_OPENCL = OpenClLaunch()


_SLICE = frozenset[Place](("slice",))


class Resources(msgspec.Struct, frozen=True, gc=False):
    """Recorded values of a kernel, such as registers. The annotation of a field names its column in outputs."""

    vgprs: Annotated[int | None, Column("vgpr", "int", "vector registers", shown=_SLICE)] = None
    accum_vgprs: Annotated[int | None, Column("agpr", "int", "accumulation registers", shown=_SLICE)] = None
    sgprs: Annotated[int | None, Column("sgpr", "int", "scalar registers", shown=_SLICE)] = None
    lds_bytes: Annotated[int | None, Column("lds_bytes", "int", "LDS of a work-group", "bytes", shown=_SLICE)] = None
    scratch_bytes: Annotated[int | None, Column("scratch_bytes", "int", "of an item", "bytes", shown=_SLICE)] = None
    registers: Annotated[int | None, Column("registers", "int", "of an item", shown=_SLICE)] = None
    shared_bytes: Annotated[int | None, Column("shared_bytes", "int", "of a block", "bytes", shown=_SLICE)] = None


class Counter(msgspec.Struct, frozen=True, gc=False):
    """A hardware counter that was collected. ``unit``: only if the source states it."""

    name: Name
    unit: Name = ""


NAMELESS = frozenset(("KernelExecution", "Task"))
"""HIP's name for any kernel. RPD has no other name for kernels that a graph replays."""


class Activity(msgspec.Struct, frozen=True, gc=False):
    """One command that ran on a device. ``number``: the number that a person sees and that SQL has (dv/dt: the call's
    position in the file; ROCm: the dispatch). The order of enqueuing is the position in the profile. Times are on the
    clock of the queue's device; both are None if the source has none. ``call``: the call that launched it; all
    activities of a graph launch share it. None is normal: then ``correlation`` has the id of the call that is not
    recorded. ``range``: the place of the innermost range that launched it, if the source states that. ``grid``: in
    work-items; missing dimensions are 1. ``workgroup``: None if the runtime chose it. ``route``: of copies, such as
    ``host to device``. ``graph_node``: the executable graph that replayed it and its node, equal in each replay, if the
    source has both. ``counters``: the values of the profile's counters, None for those that were not collected here;
    empty if no counter was collected."""

    number: int
    kind: Literal["kernel", "copy", "fill"]
    name: Name
    line: int = 0
    queue: int = 0
    queued_ns: int | None = None
    submit_ns: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    call: Call | None = None
    grid: Size3 | None = None
    workgroup: Size3 | None = None
    opencl: OpenClLaunch = NOT_OPENCL
    size_bytes: int = 0
    route: Word = ""
    correlation: int | None = None
    range: int | None = None
    resources: Resources | None = None
    graph_node: tuple[int, int] | None = None
    counters: tuple[float | None, ...] = ()

    @property
    def host_start_ns(self) -> int | None:
        """When the call that launched it began, on the host's clock."""
        return None if self.call is None else self.call.start_ns

    @property
    def host_end_ns(self) -> int | None:
        """When the call that launched it returned."""
        return None if self.call is None else self.call.end_ns

    @property
    def prepared_ns(self) -> int | None:
        """When the program began to prepare the launch, if that is recorded."""
        return None if self.call is None else self.call.prepared_ns

    @property
    def is_replayed(self) -> bool:
        """Whether a graph launched it. Then other calls captured it than the call that it is linked with."""
        return self.call is not None and "GraphLaunch" in self.call.name

    @property
    def thread(self) -> int:
        """The thread that launched it; 0 if unknown."""
        return 0 if self.call is None else self.call.thread


class Collective(msgspec.Struct, frozen=True, gc=False):
    """The data of a rank in a collective: elements sent and received, size and number of its group. ``name`` and
    ``dtype`` are words of the framework. ``members``: the ranks of the group, empty if not recorded. PyTorch
    records only the first and the last ranks of a large group."""

    name: Word
    dtype: Word = ""
    sent: int = 0
    received: int = 0
    ranks: int | None = None
    group: int | None = None
    members: tuple[int, ...] = ()


class Inputs(msgspec.Struct, frozen=True, gc=False):
    """The inputs of an operator: shapes, types, strides in elements, other values as text. ``kernel_file``: the base
    name of the file from which its kernel was compiled (Triton)."""

    shapes: tuple[Lengths | None, ...] = ()
    dtypes: tuple[Word, ...] = ()
    strides: tuple[Lengths | None, ...] = ()
    values: tuple[Hidden, ...] = ()
    collective: Collective | None = None
    kernel_file: Name = ""


class Range(msgspec.Struct, frozen=True, gc=False):
    """A named span of a thread's time. Kinds: ``range``: pushed and popped by the program or a library (ROCTx).
    ``operator``: an op of a framework. ``annotation``: named by the user. ``mark``: an instant. ``frame``: a function
    or module of the program. ``id``: given by the profiler. ``sequence``: joins a backward op to its forward op."""

    kind: Literal["range", "operator", "annotation", "mark", "frame"]
    text: Text
    thread: int
    start_ns: int
    end_ns: int
    id: int | None = None
    inputs: Inputs | None = None
    sequence: int | None = None


class Captured(msgspec.Struct, frozen=True, gc=False):
    """The launch of a kernel into a graph, which ran nothing itself. ``capture``: the number of the capture, from 0.
    ``name``: of the kernel. ``range``: the place of the range that launched it, if the source states that."""

    name: Name
    capture: int
    thread: int
    start_ns: int
    range: int | None = None


class SourceLine(msgspec.Struct, frozen=True, gc=False):
    """A line of the program's text: the base name of its file, and the line in which its function begins."""

    file: Name
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Program(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A program object and its last build. ``source``: the program text as in the file (the JSON object of its strings,
    or the text of its block); ``b""`` if it was made from a binary. It serves as evidence only and is never written to
    an output. ``kernels``: the number that clCreateKernelsInProgram returned, None without such a call. ``number``: of
    the call that made the program."""

    index: int
    number: int
    handle: Hidden
    source: HiddenBytes = b""
    options: Hidden = ""
    kernels: int | None = None


class BufferCreated(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The creation of a buffer of ``size_bytes``. Releases are not profiled, so a handle may occur again."""

    number: int
    line: int = 0
    handle: Hidden
    size_bytes: int
    end_ns: int | None = None


class TimerMark(msgspec.Struct, frozen=True, gc=False):
    """A Start or Stop of Caffe's OpenCL timer: an argument set on a kernel that never runs (dvdt-ck.md 2.3a)."""

    number: int
    line: int = 0
    host_ns: int | None = None


class OpenCl(msgspec.Struct, frozen=True, kw_only=True):
    """Records that only OpenCL's profiles have, each in call order."""

    programs: tuple[Program, ...] = ()
    buffers: tuple[BufferCreated, ...] = ()
    marks: Sequence[TimerMark] = ()


NumberKind = Literal["call_index", "dispatch_id", "event_index"]
"""trace-contract.md 4."""


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An op of a framework's graph, which runs many times. ``layer``: the part of the network that it is in, empty if
    none, with its ``direction``. ``inputs``: shapes by slot. ``output``: shape of its first output, empty if unknown.
    ``attributes``: strides and similar values. ``flop``: the framework's own estimate for one execution. ``place``: the
    file and line that made the node."""

    name: LayerName
    op: LayerName = ""
    layer: LayerName = ""
    direction: Direction | None = None
    inputs: Inputs = Inputs()
    output: Sizes = ()
    attributes: Mapping[str, Word] = {}
    flop: int | None = None
    place: Name = ""


class Memory(msgspec.Struct, frozen=True, gc=False):
    """Memory of the device that an execution used, in bytes."""

    requested_bytes: int
    peak_bytes: int
    output_bytes: int


class Execution(msgspec.Struct, frozen=True, gc=False):
    """An execution of a node, in a step of the framework if that is recorded (step 0 is iteration 1). ``device``: the
    device on which the op launches its kernels; None: the op runs on the host."""

    node: int
    step: int | None = None
    device: int | None = None
    memory: Memory | None = None


class Allocated(msgspec.Struct, frozen=True, gc=False):
    """The memory of a device that a framework's allocator had handed out, at a time of the host."""

    device: int
    time_ns: int
    size_bytes: int


XLA: Word = "XLA"
"""The name of the framework if XLA ran the kernels, for JAX or TensorFlow."""


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """Records of a framework's own profiler: the ops that ranges and activities execute, by their places. ``name``: of
    the framework."""

    name: Word = ""
    nodes: tuple[Node, ...] = ()
    ranges: Mapping[int, Execution] = {}
    activities: Mapping[int, Execution] = {}
    allocated: tuple[Allocated, ...] = ()


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """All that a profiler states of one process; activities in the order in which they were enqueued. A reader of a
    file of several processes gives a profile for each. ``records``: the number of records in the source (dv/dt: calls).
    ``clocks[0]``: the host's clock, which calls and ranges use. ``calls_wait``: a call returns after its activity has
    ended (dv/dt); only then the ends of calls bound anything. ``numbers``: the key under which outputs show the number
    of an activity. ``defects``: counts of defects that make a profile incomplete, by id
    (`mio2trace.measures.completeness`). ``counters``: those for which activities have values. ``other_calls``: calls
    that launched none of the activities. ``interleaved``: ``line`` places activities and log lines in one order of
    execution. ``captured``: launches into graphs, in order. ``line_of``: by the number of an activity, places in
    ``lines``: of the innermost line outside of the framework that launched it, and of the innermost line outside of the
    libraries that build on the framework; -1 if there is none. ``functions``: only those Python functions outside of
    the framework in which a thread stayed long while nothing ran on a device."""

    source: int
    records: int
    activities: Sequence[Activity] = ()
    other_calls: Sequence[Call] = ()
    ranges: tuple[Range, ...] = ()
    queues: tuple[Queue, ...] = ()
    devices: tuple[Device, ...] = ()
    threads: tuple[Thread, ...] = ()
    processes: tuple[Process, ...] = ()
    clocks: tuple[Clock, ...] = (DVDT_HOST, Clock("device"))
    calls_wait: bool = False
    numbers: NumberKind = "call_index"
    opencl: OpenCl = OpenCl()
    framework: Framework = Framework()
    interleaved: bool = False
    defects: Mapping[Word, int] = {}
    counters: tuple[Counter, ...] = ()
    captured: tuple[Captured, ...] = ()
    lines: tuple[SourceLine, ...] = ()
    line_of: Mapping[int, tuple[int, int]] = {}
    functions: tuple[Range, ...] = ()

    def __post_init__(self) -> None:
        from mio2trace.model.tables import Activities, Calls  # its columns are of this module's records

        if not isinstance(self.activities, Activities):
            msgspec.structs.force_setattr(self, "activities", Activities(self.activities))
        if not isinstance(self.other_calls, Calls):
            msgspec.structs.force_setattr(self, "other_calls", Calls(self.other_calls))

    @property
    def commands(self) -> Activities:
        """``activities`` as a table, for those who work on its columns."""
        return cast("Activities", self.activities)

    @property
    def has_stacks(self) -> bool:
        """Whether PyTorch recorded Python functions."""
        return bool(self.line_of or self.functions)

    @property
    def is_nvidia(self) -> bool:
        """Whether the GPUs are NVIDIA's, by their names or by the API that launched the first kernel."""
        commands = self.commands
        launched = commands.call[commands.call >= 0][:1].tolist()
        names = [commands.calls.name.values[commands.calls.name.codes[call]] for call in launched]
        return any("NVIDIA" in device.name for device in self.devices) or "".join(names).startswith("cu")

    @property
    def lone_calls(self) -> Calls:
        """``other_calls`` as a table."""
        return cast("Calls", self.other_calls)

    def source_lines(self, activity: Activity) -> tuple[SourceLine | None, SourceLine | None]:
        line, own = self.line_of.get(activity.number, (-1, -1))
        return self.lines[line] if line >= 0 else None, self.lines[own] if own >= 0 else None

    def launched_by(self, activity: Activity) -> str:
        """Return the line of the program that launched it, else of a library: ``train.py:88``; empty without."""
        line, own = self.source_lines(activity) if self.line_of else (None, None)
        return str(own or line or "")

    @property
    def process(self) -> Process:
        return self.processes[0] if self.processes else Process(index=0)

    @property
    def devices_of_commands(self) -> Numbers:
        """The device of each command, 0 for a queue that is not listed."""
        return self.commands.of_queue({queue.index: queue.device for queue in self.queues}, 0)

    def clock_of(self, device: int) -> int:
        """Return the clock of a device as a place in ``clocks``; a device that is not listed has a clock of its own."""
        return self.devices[device].clock if device < len(self.devices) else 1


# ---------------------------------------------------------------------------------------------------------------------
# A check that types cannot make for a profile in one of our files: the places to which its records refer.


def misplaced(profile: Profile) -> str:
    """Return in words the first place of a record that is outside of its tuple; empty if there is none."""
    commands = profile.commands
    places: list[tuple[str, Iterable[int | None], int]] = [
        ("queue", set(commands.queue.tolist()), len(profile.queues)),
        ("thread", {*commands.calls.thread.tolist(), *profile.lone_calls.thread.tolist()}, len(profile.threads)),
        ("thread", (one.thread for one in profile.ranges), len(profile.threads)),
        ("thread", (one.thread for one in profile.functions), len(profile.threads)),
        ("device", (one.device for one in profile.queues), len(profile.devices)),
        ("clock", (one.clock for one in profile.devices), len(profile.clocks)),
        ("program", (one.program for one in commands.opencl.values), len(profile.opencl.programs)),
        ("range", set(commands.range.tolist()) - {-1}, len(profile.ranges)),
        ("range", profile.framework.ranges, len(profile.ranges)),
        ("activity", profile.framework.activities, len(profile.activities)),
        ("node", (one.node for one in profile.framework.ranges.values()), len(profile.framework.nodes)),
        ("node", (one.node for one in profile.framework.activities.values()), len(profile.framework.nodes)),
    ]
    for what, numbers, count in places:
        wrong = next((one for one in numbers if one is not None and not 0 <= one < max(count, 1)), None)
        if wrong is not None:
            return f"{what} {wrong} of {count}"
    return ""


# -- The system's clocks, as `mio2trace record` reads them before and after a run --------------------------------------

_HASH = late(r"[0-9a-f]{8,64}")


_Ns = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class Reading(msgspec.Struct, frozen=True):
    """Clocks at one moment, in ns. ``width_ns``: the time between the first and the last reading. ``wrong_ns``: the
    possible error of the Unix clock, as the system states it; None if the system does not synchronise this clock."""

    unix_ns: _Ns = msgspec.field(name="realtime_ns")
    boottime_ns: _Ns
    monotonic_ns: _Ns
    width_ns: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
    """Clocks that were read more than a second apart are no more exact than a log."""
    wrong_ns: _Ns | None = msgspec.field(name="realtime_error_ns", default=None)


class Anchors(msgspec.Struct, frozen=True):
    """The readings of a run. ``boot``: a hash of the machine and its boot; empty if it is not recorded."""

    boot: Hidden
    start: Reading
    end: Reading


def anchors_of(told: Mapping[str, object]) -> Anchors | None:
    """Return the clocks of a manifest, which may come from a stranger; None if it has no clocks, or impossible ones."""
    clocks, boot = told.get("clocks"), told.get("boot")
    try:
        start, end = (msgspec.convert(clocks[name], Reading) for name in ("start", "end"))  # type: ignore[index]
    except (TypeError, KeyError, msgspec.ValidationError):
        return None
    if end.boottime_ns < start.boottime_ns or end.monotonic_ns < start.monotonic_ns:
        return None
    return Anchors(boot if isinstance(boot, str) and _HASH.fullmatch(boot) else "", start, end)
