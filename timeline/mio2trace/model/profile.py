"""Records of a GPU profile: activities of devices, calls of the host and named ranges, on named clocks.

Nothing is derived here. Profilers that wait for each command (dv/dt) and others (ROCm's, Kineto) fill the same records.
Fields of OpenCL alone are in a side table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from mio2trace.model.columns import Column, Hidden, HiddenBytes, LayerName, Name, Place, Text, Word
from mio2trace.model.log import Direction

Size3 = tuple[int, int, int]
Sizes = tuple[int, ...]


class UnixTime(msgspec.Struct, frozen=True, gc=False):
    """The conversion of a clock's times to Unix time: ``offset_ns`` is added. It is exact to ``error_ns`` on the
    machine's own Unix clock, which is right to ``wrong_ns`` (None: unknown)."""

    offset_ns: int = 0
    error_ns: int = 0
    wrong_ns: int | None = None


class Clock(msgspec.Struct, frozen=True, gc=False):
    """A clock: a device's own counter, Unix time, time since boot, or a counter with an unknown zero.

    ``resolution_ns``: times are whole multiples of it, truncated. Two sides that share a clock need no relation.
    ``scope``: where the clock is; processes with the same one have one clock, ``""`` is not told. It is only compared:
    a hash of what names the machine, never that itself, and in no output. ``unix``: known if clocks were read beside
    the run (`mio2trace.model.anchors`).
    """

    kind: Literal["device", "unix", "boottime", "opaque"]
    resolution_ns: int = 1
    scope: Hidden = ""
    unix: UnixTime | None = None

    @property
    def as_unix(self) -> UnixTime | None:
        """The conversion of its times to Unix time; None if unknown."""
        return UnixTime() if self.unix is None and self.kind == "unix" else self.unix


DVDT_HOST = Clock("unix", 1000)


class Process(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A process of the job. ``rank`` is None where it is not told; ``label`` is a short name, never a command line, of
    one of several: ``rank 0``, ``pid 4711``.
    """

    index: int
    pid: int | None = None
    rank: int | None = None
    label: Text = ""


class Thread(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A thread of the host; ``tid`` as the system numbers it."""

    index: int
    process: int = 0
    tid: int | None = None
    name: Text = ""


class Device(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A device. ``clock`` is a place in the profile's clocks; 0 is the host's own. ``number`` is the profiler's."""

    index: int
    name: Text = ""
    clock: int = 1
    number: int | None = None


class Queue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A command queue or a stream. ``index`` counts from 0 in order of first appearance; ``number`` is the profiler's.

    ``name`` is what the profiler calls it, where that is no number. ``handle`` joins records and is never shown.
    """

    index: int
    device: int
    process: int = 0
    kind: Literal["queue", "stream"] = "queue"
    number: int | None = None
    handle: Hidden = ""
    name: Text = ""


class Call(msgspec.Struct, frozen=True, gc=False):
    """The host's side of anything: an API call. Times are None where the source has none.

    ``number`` is what a person sees (dv/dt: the position in the file). ``correlation`` is what the call shares with its
    activities within a process. ``prepared_ns`` is when the program began to prepare the launch: OpenCL sets a kernel's
    arguments before.
    """

    name: Name
    thread: int = 0
    start_ns: int | None = None
    end_ns: int | None = None
    line: int = 0
    number: int | None = None
    correlation: int | None = None
    prepared_ns: int | None = None


class OpenClLaunch(msgspec.Struct, frozen=True, gc=False):
    """Values of a kernel's enqueue that only OpenCL records. A reader makes equal ones one object.

    ``kernel`` is the kernel object's handle. ``arguments[i]`` is argument i in force as lower-case hex in memory order,
    ``""`` when unknown. ``program`` indexes the programs, None when the source does not link them. ``offset`` is the
    global work offset.
    """

    kernel: Hidden = ""
    arguments: tuple[Hidden, ...] = ()
    program: int | None = None
    offset: Size3 | None = None


NOT_OPENCL = OpenClLaunch()


_SLICE = frozenset[Place](("slice",))


class Resources(msgspec.Struct, frozen=True, gc=False):
    """Recorded values of a kernel, such as its registers and local memory. Each field is a column in the outputs that
    its annotation names."""

    vgprs: Annotated[int | None, Column("vgpr", "int", "vector registers", shown=_SLICE)] = None
    accum_vgprs: Annotated[int | None, Column("agpr", "int", "accumulation registers", shown=_SLICE)] = None
    sgprs: Annotated[int | None, Column("sgpr", "int", "scalar registers", shown=_SLICE)] = None
    lds_bytes: Annotated[int | None, Column("lds_bytes", "int", "LDS of a work-group", "bytes", shown=_SLICE)] = None
    scratch_bytes: Annotated[int | None, Column("scratch_bytes", "int", "of an item", "bytes", shown=_SLICE)] = None


class Counter(msgspec.Struct, frozen=True, gc=False):
    """A hardware counter that was collected; ``unit`` only if the source states it."""

    name: Name
    unit: Name = ""


NAMELESS = frozenset(("KernelExecution", "Task"))
"""HIP's words for any kernel: all that RPD has of those that a graph replays."""


class Activity(msgspec.Struct, frozen=True, gc=False):
    """One command that ran on a device.

    ``number`` is what a person sees and SQL carries (dv/dt: the call's position in the file; ROCm: the dispatch); the
    order of enqueuing is the position in the profile. Times are on the clock of the queue's device and None together
    where the source has none. ``call`` is the call that launched it, one object for all that a graph launch started;
    None is normal, ``correlation`` then says which call it was that is not recorded. ``range`` is the place of the
    innermost range that launched it, where the source itself states that. ``grid`` is in work-items, always; missing
    dimensions are 1; ``workgroup`` is None where the runtime chose. ``route`` is of copies: ``host to device``.
    ``graph_node``: the executable graph that replayed it and its node, the same in each replay, if the source has both.
    ``counters``: the values of the profile's counters, None for those that were not collected here; empty if none was.
    """

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
        """When the program began to prepare the launch, where that is told."""
        return None if self.call is None else self.call.prepared_ns

    @property
    def is_replayed(self) -> bool:
        """Whether a graph launched it: it was captured by other calls than the one that it is linked with."""
        return self.call is not None and "GraphLaunch" in self.call.name

    @property
    def thread(self) -> int:
        """The thread that launched it; 0 where none is known."""
        return 0 if self.call is None else self.call.thread


class Collective(msgspec.Struct, frozen=True, gc=False):
    """The data of a rank in a collective, in elements sent and received; the size and number of its group.

    ``name`` and ``dtype`` are words of the framework's.
    """

    name: Word
    dtype: Word = ""
    sent: int = 0
    received: int = 0
    ranks: int | None = None
    group: int | None = None


class Inputs(msgspec.Struct, frozen=True, gc=False):
    """The inputs of an operator: shapes, types, strides in elements, other values as text.

    ``kernel_file``: the base name of the file that its kernel was compiled from (Triton).
    """

    shapes: tuple[Sizes | tuple[Sizes, ...] | None, ...] = ()
    dtypes: tuple[Word, ...] = ()
    strides: tuple[Sizes | tuple[Sizes, ...] | None, ...] = ()
    values: tuple[Hidden, ...] = ()
    collective: Collective | None = None
    kernel_file: Name = ""


class Range(msgspec.Struct, frozen=True, gc=False):
    """A named stretch of a thread's time.

    ``range``: pushed and popped by the program or a library (ROCTx); ``operator``: a framework's op; ``annotation``:
    named by the user; ``mark``: an instant; ``frame``: a function or module of the program. ``id`` is the profiler's;
    ``sequence`` joins a backward op to its forward op.
    """

    kind: Literal["range", "operator", "annotation", "mark", "frame"]
    text: Text
    thread: int
    start_ns: int
    end_ns: int
    id: int | None = None
    inputs: Inputs | None = None
    sequence: int | None = None


class Captured(msgspec.Struct, frozen=True, gc=False):
    """The launch of a kernel into a graph: it ran nothing itself. ``capture`` counts the profile's captures from 0.

    ``name`` is the kernel's, ``range`` the place of the range that launched it, if the source states that.
    """

    name: Name
    capture: int
    thread: int
    start_ns: int
    range: int | None = None


class SourceLine(msgspec.Struct, frozen=True, gc=False):
    """A line of the program's text: the base name of its file, and the line that its function begins in."""

    file: Name
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Program(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A program object and the build it last got.

    ``source`` is the program text as the file has it: the JSON object of its strings, or the text of its block;
    ``b""`` when made from a binary. It is evidence only and never written to any output. ``kernels`` is the number that
    clCreateKernelsInProgram returned, None when that call was not made. ``number`` is that of the call that made it.
    """

    index: int
    number: int
    handle: Hidden
    source: HiddenBytes = b""
    options: Hidden = ""
    kernels: int | None = None


class BufferCreated(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A buffer of ``size_bytes`` came into being. Releases are not profiled; a handle may come again."""

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
    """An op of a framework's graph, which runs many times.

    ``layer`` is the part of the network that it is in, empty for none, with its ``direction``. ``inputs``: shapes by
    slot. ``output``: shape of its first output, empty when unknown. ``attributes`` hold strides and their like.
    ``flop`` is the framework's own estimate for one execution. ``place``: the file and line that made the node.
    """

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
    """An execution of a node, in a step of the framework's where that is told (step 0 is iteration 1).

    ``device`` is the device on which the op launches; None: the op runs on the host itself.
    """

    node: int
    step: int | None = None
    device: int | None = None
    memory: Memory | None = None


class Allocated(msgspec.Struct, frozen=True, gc=False):
    """How much of a device's memory a framework's allocator had handed out, at a time of the host."""

    device: int
    time_ns: int
    size_bytes: int


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """Records of a framework's own profiler: the ops that ranges and activities, by their places, execute.

    ``name`` is the framework's.
    """

    name: Word = ""
    nodes: tuple[Node, ...] = ()
    ranges: Mapping[int, Execution] = {}
    activities: Mapping[int, Execution] = {}
    allocated: tuple[Allocated, ...] = ()


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """All that a profiler states of one process; activities in the order in which they were enqueued. A reader of a
    file of several gives a profile for each.

    ``records`` is how many the source holds (dv/dt: calls). ``clocks[0]`` is the host's, on which calls and ranges are.
    ``calls_wait``: a call returns after its activity has ended (dv/dt); only then do ends of calls bound anything.
    ``numbers`` says what an activity's number is, by the key that outputs show it under.
    ``defects``: counts of defects that make a profile incomplete, by id (`mio2trace.measures.completeness`).
    ``counters`` are those that activities have values of. ``other_calls`` are those that launched none of the
    activities. ``interleaved``: ``line`` places activities and log lines in one order of execution. ``captured``: what
    was launched into graphs, in order. ``line_of``: by the number of an activity, places in ``lines``: of the innermost
    line that launched it outside of the framework, and of the innermost one outside of the libraries that build on it,
    -1 if there is none. ``functions``: Python functions outside of the framework in which a thread was for long while
    nothing ran on a device; all others are in no profile.
    """

    source: int
    records: int
    activities: tuple[Activity, ...] = ()
    other_calls: tuple[Call, ...] = ()
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

    def source_lines(self, activity: Activity) -> tuple[SourceLine | None, SourceLine | None]:
        line, own = self.line_of.get(activity.number, (-1, -1))
        return self.lines[line] if line >= 0 else None, self.lines[own] if own >= 0 else None

    def launched_by(self, activity: Activity) -> str:
        """The line of the program's own text that launched it, else of a library's: ``train.py:88``; empty if the
        source records none."""
        line, own = self.source_lines(activity) if self.line_of else (None, None)
        return str(own or line or "")

    @property
    def process(self) -> Process:
        return self.processes[0] if self.processes else Process(index=0)

    def clock_of(self, device: int) -> int:
        """The clock of a device, a place in ``clocks``; a device that is not listed has one of its own."""
        return self.devices[device].clock if device < len(self.devices) else 1


# ----------------------------------------------------------------------------------------------------------------------
# What types do not say of a profile that comes from a file of ours: places in its tuples that its records name


def misplaced(profile: Profile) -> str:
    """The first place in a tuple where nothing is, in words; empty without one."""
    places: list[tuple[str, Iterable[int | None], int]] = [
        ("queue", (one.queue for one in profile.activities), len(profile.queues)),
        ("thread", (one.thread for one in _calls(profile)), len(profile.threads)),
        ("thread", (one.thread for one in profile.ranges), len(profile.threads)),
        ("thread", (one.thread for one in profile.functions), len(profile.threads)),
        ("device", (one.device for one in profile.queues), len(profile.devices)),
        ("clock", (one.clock for one in profile.devices), len(profile.clocks)),
        ("program", (one.opencl.program for one in profile.activities), len(profile.opencl.programs)),
        ("range", (one.range for one in profile.activities), len(profile.ranges)),
        ("range", profile.framework.ranges, len(profile.ranges)),
        ("activity", profile.framework.activities, len(profile.activities)),
        ("node", (one.node for one in _executions(profile)), len(profile.framework.nodes)),
    ]
    for what, numbers, count in places:
        wrong = next((one for one in numbers if one is not None and not 0 <= one < max(count, 1)), None)
        if wrong is not None:
            return f"{what} {wrong} of {count}"
    return ""


def _calls(profile: Profile) -> Iterator[Call]:
    yield from profile.other_calls
    yield from (one.call for one in profile.activities if one.call is not None)


def _executions(profile: Profile) -> Iterator[Execution]:
    yield from profile.framework.ranges.values()
    yield from profile.framework.activities.values()
