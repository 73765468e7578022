"""Every column of every table, declared once: printed tables (docs/reports.md), and Parquet, SQL and Python
(docs/schema.md).

A value has the same name in every table, in the stored queries and in a trace. A time is a column ``kernel_ns`` in data
(whole nanoseconds, except means), and ``kernel_us``, ``kernel_ms`` or ``kernel_s`` in print. Unknown values are null.
Tables are made from cleaned records: `mio2trace.model` has the classes of text.

A value that a reader records for each kernel becomes a column by its field in `mio2trace.model.profile.Resources`.
"""

from __future__ import annotations

import re
from typing import Any, get_args, get_type_hints

import msgspec

from mio2trace.model import Column, Kind, Place
from mio2trace.model.profile import Resources

VERSION = 2
"""Version of the tables of a dataset; a file has it under ``schema``. A new column does not change the version. A
column that changes its meaning or is removed does."""

SQL_TYPES: dict[Kind, str] = {"text": "VARCHAR", "int": "BIGINT", "float": "DOUBLE", "flag": "BOOLEAN"}
_QUANTITIES: dict[str, tuple[Kind, str]] = {
    "text": ("text", ""), "count": ("int", ""), "time": ("int", "ns"), "percent": ("float", "%"), "rate": ("float", ""),
    "gflops": ("float", "10^9 / s"), "work": ("int", ""), "bytes": ("int", "bytes"),
}  # fmt: skip
_UNIT = re.compile(r"(.+)_(ns|us|ms|s)")


def _named(name: str, quantity: str, rank: int, meaning: str) -> Column:
    kind, unit = _QUANTITIES[quantity]
    return Column(name, kind, meaning, unit, rank)


_VOCABULARY = (
    # columns that name the row
    _named("layer_index", "count", 8, "position of the layer in the net, from 0"),
    _named("layer", "text", 0, "the layer's name"),
    _named("class", "text", 0, "class of modules, or kind of op, of the layers"),
    _named("tree", "text", 0, "layer, operation or kernel, indented below its parent"),
    _named("kind", "text", 4, "kind of a node of the tree: all, layer, operation, kernel"),
    _named("level", "count", 8, "depth in the tree, from 0"),
    _named("node", "count", 8, "place in the tree, from 0"),
    _named("parent", "count", 8, "place of its parent"),
    _named("layers", "count", 5, "layers of the class"),
    _named("direction", "text", 1, "forward or backward; operations also have backward-data and backward-weights"),
    _named("layer_direction", "text", 5, "direction of the layer that an operation ran in"),
    _named("name", "text", 0, "the kernel's name; in `ops` the operation's"),
    _named("operation", "text", 0, "the operation's name; in `ops --each` its index"),
    _named("operation_index", "count", 7, "index of the operation in the log"),
    _named("problem", "text", 0, "the operation's problem: name, pad, mode, type and layout"),
    _named("slowest_problem", "text", 1, "the problem with most kernel time; a share behind it is of this problem"),
    _named("call_index", "count", 2, "place of the call in the profile, from 0"),
    _named("iteration", "count", 2, "its number; 0 is the warm-up, if a log names the iterations"),
    _named("pass", "text", 1, "set-up, warm-up or iteration, with its direction"),
    _named("repetition", "count", 2, "number of the run in a record of several runs, from 0"),
    _named("kernel_index", "count", 1, "place in what the kernels repeat, from 0"),
    _named("rank", "count", 0, "the process's rank"),
    _named("pid", "count", 0, "the process's id"),
    _named("process", "text", 0, "rank or process of a job; the run, in a trace of several runs"),
    _named("file", "text", 0, "the log"),
    _named("command", "text", 4, "the MIOpenDriver line that runs it again"),
    # cost
    _named("kernel", "time", 0, "kernel time; if a row stands for several executions, the mean per steady iteration"),
    _named("own", "time", 1, "kernel time of a node of the tree outside of the layers within it"),
    _named("total", "time", 0, "kernel time of a node of the tree with everything in it, per steady iteration"),
    _named("kernel_median", "time", 5, "median over steady iterations"),
    _named("kernel_min", "time", 5, "smallest value of a steady iteration"),
    _named("kernel_max", "time", 5, "largest value of a steady iteration"),
    _named("kernel_std", "time", 4, "standard deviation (n - 1) over steady iterations"),
    _named("kernel_q25", "time", 6, "first quartile"),
    _named("kernel_q75", "time", 6, "third quartile"),
    _named("percent_of_kernel_time", "percent", 1, "share of the kernel time of everything that the table covers"),
    _named("percent_of_gemm_time", "percent", 1, "share of the kernel time of all GEMMs in the table"),
    _named("percent_of_iteration", "percent", 1, "share of the kernel time of the longer side's iteration"),
    _named("cumulative_percent", "percent", 3, "percent of the kernel time in this row and the rows above it"),
    _named("calls", "count", 2, "how often it ran; per steady iteration, if iterations are known"),
    _named("count", "count", 2, "number of rows that this row sums"),
    _named("kernels", "count", 3, "kernels, per steady iteration"),
    _named("iterations", "count", 6, "steady iterations"),
    _named("gflops", "gflops", 2, "10^9 floating point operations per second of kernel time"),
    _named("flop", "work", 7, "floating point operations"),
    _named("bytes_min", "bytes", 7, "least memory traffic"),
    _named("helpers", "time", 6, "part of the kernel time in kernels that only prepare or finish the work"),
    _named("helpers_percent", "percent", 5, "the same in percent of the row's kernel time"),
    _named("transposes", "time", 7, "part of the helpers' time in layout transposes"),
    _named("transposes_percent", "percent", 6, "the same in percent of the row's kernel time"),
    _named("find", "time", 4, "kernel time of searches for it, in the whole run"),
    _named("find_kernels", "count", 6, "kernels of these searches"),
    _named("find_sure", "text", 4, "false if kernels that may be a search's or not have more than 5 % of that time"),
    _named("copies", "count", 7, "reads, writes and fills of buffers"),
    _named("copy", "time", 7, "their time"),
    # the host
    _named("host", "time", 3, "time on the host, from the first call to the end of the last"),
    _named("api", "time", 6, "time in the calls that launched its kernels; for a kernel it equals `host`"),
    _named("in_queue", "time", 5, "from the return of these calls to the start of the kernels"),
    _named("host_std", "time", 7, "its standard deviation"),
    _named("launch_overhead", "time", 6, "host time less kernel and copy time: launching, compiling, waiting"),
    _named("launch_overhead_std", "time", 8, "its standard deviation"),
    _named("overhead", "time", 5, "host time of the call less the time from queued to ended"),
    _named("command_time", "time", 6, "from queued to ended (p3 - p0)"),
    _named("queue_wait", "time", 7, "from queued to submitted (p1 - p0)"),
    _named("submit_wait", "time", 7, "from submitted to started (p2 - p1)"),
    # printed
    _named("printed", "time", 2, "what the log prints for the layer"),
    _named("printed_std", "time", 7, "its deviation, if it is printed several times"),
    _named("percent_of_printed_time", "percent", 5, "share of the sum of all printed times"),
    # the ranks of a job
    _named("collectives", "count", 4, "collectives that all ranks ran"),
    _named("collective_index", "count", 2, "place among them, from 0"),
    _named("collective", "time", 5, "the rank's kernel time in collectives; in the row of a collective, its name"),
    _named("transfer", "time", 3, "the shortest kernel of a collective on any rank"),
    _named("wait", "time", 0, "time by which the rank's own kernels are longer"),
    _named("skew", "time", 3, "mean time between the first and the last start on the ranks"),
    _named("times_arrived_last", "count", 0, "collectives to which it came last"),
    _named("straggler", "text", 4, "whether it came last most often"),
    _named("late", "time", 2, "delay after the previous rank"),
    _named("made_late_by", "text", 1, "what took longer than on other ranks: layer, operation, kernel, all work, host"),
    _named("made_late", "time", 3, "how much longer that part took"),
    _named("uncounted_kernels", "count", 6, "communication kernels that are no collective of all ranks"),
    _named("uncounted", "time", 6, "their time"),
    _named("last", "text", 0, "the rank that came last"),
    _named("lead", "time", 1, "delay of the last rank after the previous one"),
    _named("arrival_by", "text", 5, "source of the order of the ranks: clock or duration"),
    # a comparison
    _named("part", "text", 3, "kind of the compared part: problem, layer, kernel, ..."),
    _named("runs", "text", 4, "runs of each side"),
    _named("a", "time", 1, "time of the first side"),
    _named("b", "time", 1, "time of the other side"),
    _named("ratio", "rate", 1, "ratio of the other side to the first"),
    _named("low", "rate", 5, "least ratio that the runs allow"),
    _named("high", "rate", 5, "largest ratio that the runs allow"),
    _named("verdict", "text", 0, "whether it is slower, faster, or the same"),
    # how an operation ran
    _named("solver", "text", 3, "the solver, as the log says"),
    _named("algorithm", "text", 4, "the algorithm, as the log says"),
    _named("dtype", "text", 5, "data type"),
    _named("phase", "text", 4, "whether the call executes (run) or searches (find)"),
    _named("line", "count", 6, "line of the log, from 1"),
    _named("sure", "text", 6, "false if the link has low confidence"),
    _named("unsure", "count", 6, "kernels whose link has low confidence"),
    _named("layer_by", "text", 7, "evidence of the kernels' layer, with counts"),
    _named("doubts", "text", 7, "doubts about the operation"),
    _named("names", "text", 4, "kernels by name, with counts"),
    _named("text", "text", 1, "the words of a message of the log"),
    _named("gws", "text", 5, "work sizes"),
    _named("lws", "text", 6, "sizes of a work-group"),
    _named("gwo", "text", 7, "offsets of the work"),
    _named("queue", "text", 6, "the device's queue"),
    _named("source", "text", 5, "the line of the program that launched it: the file, and where its function begins"),
    _named("message_bytes", "bytes", 4, "message of a collective"),
    _named("algorithm_gb_per_s", "rate", 5, "message of a collective per kernel time, 10^9 bytes per second"),
    _named("bus_gb_per_s", "rate", 4, "`algorithm_gb_per_s` times the part of the message on each rank's link"),
    _named("measured_read_bytes", "bytes", 6, "read from memory, by hardware counters"),
    _named("measured_write_bytes", "bytes", 6, "written to memory, by hardware counters"),
    _named("measured_gb_per_s", "rate", 4, "bytes read and written divided by the kernel time, 10^9 bytes per second"),
    _named("measured_flop", "work", 6, "floating point operations, by hardware counters"),
    _named("measured_gflops", "gflops", 4, "measured_flop divided by the kernel time of the counter run"),
    _named("measured_flop_per_byte", "rate", 5, "measured operations per measured byte: the place on a roofline"),
    _named("M", "count", 1, "M of the GEMM"),
    _named("N", "count", 1, "N of the GEMM"),
    _named("K", "count", 1, "K of the GEMM"),
    _named("batch", "count", 2, "batch of the GEMM"),
)  # fmt: skip
COLUMNS = {column.name: column for column in _VOCABULARY}
"""Columns that several tables have, without the unit of times, by name."""
RECORDED: dict[str, Column] = {
    field: next(part for part in hint.__metadata__ if isinstance(part, Column))
    for field, hint in get_type_hints(Resources, include_extras=True).items()
}
"""The values that a profiler records per kernel, by the field of `Resources`."""
_SHOWN_IN = {
    place: [(column.name, field) for field, column in RECORDED.items() if place in column.shown]
    for place in get_args(Place)
}


def base_of(name: str) -> tuple[str, str]:
    """Return a column's name without its unit of time, and the unit: ``kernel_ms`` is (``kernel``, ``ms``)."""
    found = _UNIT.fullmatch(name)
    return (found[1], found[2]) if found is not None else (name, "")


def rank_of(name: str) -> int:
    """The order in which columns are left out on a narrow terminal: the highest rank first."""
    column = COLUMNS.get(name) or COLUMNS.get(base_of(name)[0])
    return Column._field_defaults["rank"] if column is None else column.rank


def shown_in(place: Place) -> tuple[Column, ...]:
    """Return the columns of `RECORDED` that are shown in an output."""
    return tuple(column for column in RECORDED.values() if place in column.shown)


def recorded(resources: Resources | None, place: Place) -> dict[str, Any]:
    """Return the known values of `RECORDED` that are shown in an output."""
    shown = _SHOWN_IN[place]
    if resources is None or not shown:
        return {}
    return {name: value for name, field in shown if (value := getattr(resources, field)) is not None}


# -- the tables of a dataset -----------------------------------------------------------------------------------------


class TableSchema(msgspec.Struct, frozen=True):
    """A table. ``row``: what a row represents."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def _as(name: str, meaning: str = "", kind: Kind | None = None) -> Column:
    """Return a column of `COLUMNS`, with the ``meaning`` and ``kind`` that it has in this table."""
    column = COLUMNS.get(name) or COLUMNS[name.removesuffix("_ns")]
    return column._replace(name=name, meaning=meaning or column.meaning, kind=kind or column.kind)


def _common(names: str) -> tuple[Column, ...]:
    return tuple(map(_as, names.split()))


def _ns(name: str, meaning: str) -> Column:
    return Column(name, "int", meaning, "ns")


_OF = (
    Column("run", "text", "the run's name: its place in the dataset"),
    _as("rank", "the rank of a job's process if known, else its number"),
)
_PLACE = (
    _as("layer", "the layer it ran in"),
    *_common("layer_index"),
    _as("direction", "forward or backward"),
    *_common("iteration"),
    _as("phase", "phase of the run: find (a search), setup, warm-up or iteration"),
)
_DEVICE = (
    _as("queue", "the device's queue, from 0 in order of appearance", kind="int"),
    _as("line", "line of the profile, if that is text"),
    _ns("start_ns", "when it started, on the device's clock"),
    _as("queue_wait_ns", "from queued to submitted"),
    _as("submit_wait_ns", "from submitted to started"),
)
_GEMM = (
    *_common("M N K"),
    _as("batch", "batch of the GEMM, if it is more than one"),
)
_OPERATION = (
    _as("algorithm", "as the log says"),
    _as("solver", "as the log says"),
)
_SPENT = (
    _ns("step_ns", "length of the step on the slowest device: from its boundary to its end"),
    _ns("compute_ns", "part of the step in which kernels compute"),
    _ns("communication_ns", "part in which only communication runs (exposed)"),
    _as("copy_ns", "part in which only copies or fills run (exposed)"),
    _ns("unrecorded_ns", "part in which the device did work that was not recorded"),
    _ns("idle_ns", "part in which nothing runs"),
)
_WORK = (*_common("flop bytes_min"),)
RUNS = TableSchema(
    "runs",
    "a run, a failed run, or a process of a job",
    (
        *_OF,
        Column("state", "text", "converted or failed; a failed run has only this row"),
        Column("error", "text", "why it failed"),
        Column(
            "version",
            "text",
            "MIOpen's version, if its log states it; else the innermost folder around the run whose name has a digit",
        ),
        Column("device", "text", "the GPU's name"),
        Column("framework", "text", "the framework whose own profile it is"),
        Column("miopen", "text", "MIOpen's version"),
        _as("iterations", "all known iterations"),
        Column("steady_iterations", "int", "steady iterations: warm and complete"),
        Column(
            "told_by", "text", "the source of the iterations: named, repetition (of kernels), whole (the run is one)"
        ),
        _as("kernels", "kernels in the whole run"),
        _as("copies", "copies and fills in the whole run"),
        _as("kernel_ns", "kernel time per steady iteration: the mean", kind="float"),
        _as("kernel_median_ns", "its median", kind="float"),
        *_SPENT,
        Column("complete", "flag", "whether the profile holds all work"),
        Column("incomplete", "text", "missing parts: class and count of each, such as before-recording 757"),
        _ns("whole_ns", "kernel time of the whole run"),
        _as("find_ns", "kernel time of searches in the whole run"),
        _as("find_sure", kind="flag"),
        _as("printed_ns", "sum of the times that the log prints for the layers (means)", kind="float"),
        _as("layers", "layers and directions that ran, or are printed"),
        Column("operations", "int", "calls in MIOpen's log, searches included"),
        _as("unsure", "kernels and copies with a link of low confidence"),
        Column("clock_method", "text", "how the device's clock relates to the host's"),
        _ns("clock_error_ns", "possible error of that relation"),
        Column("problems", "text", "problems with the inputs"),
        Column("inputs", "text", "format and SHA-256 of each input"),
        Column("generator", "text", "the program that wrote the tables"),
    ),
)
ITERATIONS = TableSchema(
    "iterations",
    "an iteration, without searches",
    (
        *_OF,
        _as("iteration", "its number; 0 is the warm-up, if a log names the iterations"),
        Column("steady", "flag", "whether it counts: it is warm and whole"),
        _as("kind", "the kind of step, such as decode bs=32; empty if all are of one kind"),
        _as("kernels", "kernels that were launched in it"),
        _as("kernel_ns", "their time"),
        *_SPENT,
        _as("host_ns", "time of the host in it"),
        _as("find_kernels", "kernels of searches that ran in it"),
        _as("phase", "phase of a serving engine's step: prefill, decode, mixed, ...; no phase of the run"),
        _as("batch", "requests in it"),
        Column("tokens", "int", "tokens in it"),
    ),
)
KERNELS = TableSchema(
    "kernels",
    "a kernel that ran, in the order of enqueueing",
    (
        *_OF,
        _as("call_index", "the profiler's number of the call or dispatch"),
        _as("name", "the kernel's name"),
        *_common("gws lws gwo"),
        *_DEVICE,
        _as("kernel_ns", "how long it ran"),
        _as("host_ns", "duration of the call that launched it"),
        _as(
            "in_queue_ns",
            "from the return of that call to its start; from queued to started if the device records it;"
            " `queue_time_ns` in a trace",
        ),
        *_PLACE,
        _as("layer_by", "evidence of its layer"),
        _as("operation_index", "number of its operation: `operation` of the table operations"),
        _as("operation", "the operation's name; a name here, a number in the table operations"),
        _as("problem", "the operation's problem"),
        _as("solver", "as the log says"),
        Column("operation_by", "text", "evidence of its operation"),
        _as("sure", "false if one of its links has low confidence", kind="flag"),
        Column("role", "text", "main, bias, or a kind of helper: im2col, transpose, fill, ..."),
        *_GEMM,
        _as("flop", "work of its GEMM"),
        _as("measured_read_bytes", "read from memory, by hardware counters (FETCH_SIZE)"),
        _as("measured_write_bytes", "written to memory, by hardware counters (WRITE_SIZE)"),
        *_common("measured_flop"),
        *shown_in("data"),
    ),
)
COPIES = TableSchema(
    "copies",
    "a copy or fill of a buffer",
    (
        *_OF,
        _as("call_index", "the profiler's number"),
        _as("name", "as the profiler names it"),
        Column("copy_direction", "text", "host to device, ..."),
        Column("bytes", "int", "its size, empty if not known", "bytes"),
        *_DEVICE,
        _as("copy_ns", "how long it ran"),
        _as("host_ns", "duration of the call that launched it"),
        *_PLACE,
        _as("layer_by", "evidence of its layer"),
        _as("sure", "false if its link has low confidence", kind="flag"),
    ),
)
LOGGED = (
    _as("operation", "its number, from 0; `operation_index` of the table kernels", kind="int"),
    *_common("line"),
    Column("api", "text", "the function that was called"),
    Column("primitive", "text", "conv, pool, bnorm, ..."),
    _as("direction", "forward, backward-data, backward-weights"),
    *_common("phase"),
    _as("name", "its name, as in the trace"),
    _as("problem", "name, pad, mode, type and layout"),
    Column("input", "text", "shape, forward: N, C, [D,] H, W"),
    Column("weights", "text", "shape"),
    Column("output", "text", "shape"),
    Column("pad", "text", ""),
    Column("stride", "text", ""),
    Column("dilation", "text", ""),
    Column("groups", "int", "groups of a convolution"),
    Column("mode", "text", "mode of the primitive: transpose, max, training, ..."),
    Column("window", "text", "window of a pooling"),
    *_common("dtype"),
    Column("dtype_by", "text", "source of the data type"),
    Column("layout", "text", "layout of the tensors"),
    *_OPERATION,
    Column("workspace_bytes", "int", "workspace that was given", "bytes"),
    *_GEMM,
    *_WORK,
    *_common("command"),
    Column("command_reason", "text", "why there is none"),
    *_common("doubts"),
    Column("kernel_file", "text", "the file that its kernel was compiled from (Triton)"),
)
"""Columns of an operation, as a log or a profile states them."""
OPERATIONS = TableSchema(
    "operations",
    "a call in MIOpen's log or in the profile, in order",
    (
        *_OF,
        *LOGGED,
        _as("layer", "the layer it ran in; several if a link has low confidence"),
        _as("layer_direction", "that layer's direction"),
        *_common("iteration"),
        _as("source", "the line of the program that launched it: file, and where its function begins"),
        _as("kernels", "kernels that ran for it; null without a profile"),
        _as("kernel_ns", "their time"),
        _as("gflops", "work over kernel time"),
        _as("api_ns", "time in the calls that launched its kernels"),
        *_common("in_queue_ns"),
        _as("helpers_ns", "part of it in helpers"),
        _as("transposes_ns", "part of that in layout transposes"),
        _as("sure", "false if the link of one of its kernels has low confidence", kind="flag"),
    ),
)
LAYERS = TableSchema(
    "layers",
    "one time that a layer ran, the warm-up included; without a profile what is printed of it",
    (
        *_OF,
        _as("repetition", "number of the run in a log of several runs, from 0"),
        *_common("iteration layer_index"),
        _as("layer", "its name"),
        _as("direction", "forward or backward"),
        Column("type", "text", "as the log prints the net"),
        Column("output", "text", "shape of its first output"),
        _as("kernels", "kernels in it"),
        _as("copies", "copies and fills in it"),
        _as("kernel_ns", "kernel time"),
        _as("host_ns", "time on the host, from its first call to the end of its last"),
        _as("launch_overhead_ns", "host time less kernels and copies"),
        _as("copy_ns", "time of its copies"),
        _as("printed_ns", "what the log prints for the layer; the mean if it prints several times", kind="float"),
        *_common("flop"),
        _as("gflops", "work over kernel time"),
        Column("flop_by", "text", "source of the work: operation, gemm"),
        Column("host_by", "text", "source of the host time: bounds, calls"),
        *_common("layer_by unsure"),
    ),
)
PROBLEMS = TableSchema(
    "problems",
    "a problem of MIOpen's, over the steady iterations; most time first",
    (
        *_OF,
        _as("problem", "name, pad, mode, type and layout"),
        Column("primitive", "text", "conv, pool, bnorm, ..."),
        _as("direction", "forward, backward-data, backward-weights"),
        *_common("dtype"),
        _as("kernel_ns", "kernel time per steady iteration: the mean", kind="float"),
        _as("percent_of_kernel_time", "share of the kernel time of steady iterations"),
        _as("cumulative_percent", "share of this row and of all rows with more time"),
        _as("kernel_median_ns", kind="float"),
        *_common("kernel_min_ns kernel_max_ns"),
        _as("kernel_std_ns", "standard deviation (n - 1)", kind="float"),
        _as("calls", "in a steady iteration", kind="float"),
        _as("kernels", "in a steady iteration", kind="float"),
        _as("gflops", "work over kernel time"),
        *_common("find_ns find_kernels"),
        _as("find_sure", kind="flag"),
        _as("host_ns", "time on the host per steady iteration", kind="float"),
        _as("api_ns", "time in the calls that launched its kernels, per steady iteration", kind="float"),
        _as(
            "in_queue_ns",
            "from the return of these calls to the start of the kernels, per steady iteration",
            kind="float",
        ),
        _as("helpers_ns", "part of the kernel time in kernels that only help", kind="float"),
        _as("transposes_ns", "part of that in layout transposes", kind="float"),
        _as("flop", "work per steady iteration", kind="float"),
        _as("bytes_min", "least memory traffic per steady iteration", kind="float"),
        *_common("iterations unsure"),
        *_OPERATION,
        *_GEMM,
        *_common("command"),
    ),
)
FINDINGS = TableSchema(
    "findings",
    "a finding and its advice (docs/findings.md); most severe first",
    (
        *_OF,
        Column("id", "text", "the rule"),
        Column("severity", "text", "high, medium, low, info"),
        _ns("ns", "time at stake, per steady iteration unless the rule says otherwise"),
        Column("share", "float", "its part of the rule's denominator, 0 to 1"),
        _as("count", "how often"),
        Column("scope", "text", "its subjects, most time first"),
        Column("rule", "text", "when it fires"),
        Column("try", "text", "what to try"),
        Column("number", "text", "a sentence with these numbers"),
    ),
)
RANKS = TableSchema(
    "ranks",
    "a rank of a job, over the collectives that all ranks ran (docs/many-runs.md)",
    (
        *_OF,
        *_common("collectives"),
        _as("collective_ns", "its kernel time in them"),
        _as("transfer_ns", "the shortest kernel of each on any rank"),
        _as("wait_ns", "what its own kernels take longer"),
        _as("skew_ns", kind="float"),
        *_common("times_arrived_last"),
        _as("straggler", kind="flag"),
        *_common("late_ns"),
        _as("made_late_by", "layer, operation, kernel, or all work that took longer than on other ranks; or the host"),
        *_common("made_late_ns"),
        *_common("uncounted_kernels"),
        _as("uncounted_ns", "the time of these kernels"),
    ),
)
TABLES: dict[str, TableSchema] = {
    table.name: table
    for table in (RUNS, ITERATIONS, KERNELS, COPIES, OPERATIONS, LAYERS, PROBLEMS, FINDINGS, RANKS)
}  # fmt: skip
"""All tables by name."""
SQL_COLUMNS: dict[str, dict[str, str]] = {
    name: {column.name: SQL_TYPES[column.kind] for column in table.columns} for name, table in TABLES.items()
}
"""The column types of each table."""
