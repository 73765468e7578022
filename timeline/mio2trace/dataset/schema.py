"""The tables of a run as data: one schema for Parquet, SQL and Python; docs/schema.md is this, in words.

A column is called as in the tables that people print (docs/reports.md). Times are whole nanoseconds and end in ``_ns``;
means are fractions of one. What is unknown is null.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

VERSION = 2
"""Of the schema; a file has it under ``schema``. A column that is added changes nothing, one that changes its meaning
or goes does."""

Kind = Literal["text", "int", "float", "flag"]
SQL_TYPES: dict[Kind, str] = {"text": "VARCHAR", "int": "BIGINT", "float": "DOUBLE", "flag": "BOOLEAN"}


class Column(NamedTuple):
    """``unit``: what the numbers count, empty for texts and plain counts."""

    name: str
    kind: Kind
    meaning: str
    unit: str = ""


class TableSchema(NamedTuple):
    """``row``: what a row is."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def _ns(name: str, meaning: str, kind: Kind = "int") -> Column:
    return Column(name, kind, meaning, "ns")


_OF = (
    Column("run", "text", "the run's name: its place in the dataset"),
    Column("rank", "int", "the rank of a job's process if known, else its number"),
)
_PLACE = (
    Column("layer", "text", "the layer it ran in"),
    Column("layer_index", "int", "position of the layer in the net, from 0"),
    Column("direction", "text", "forward or backward"),
    Column("iteration", "int", "0 is the warm-up"),
    Column("phase", "text", "find (a search), setup, warm-up or iteration"),
)
_DEVICE = (
    Column("queue", "int", "the device's queue, from 0 in order of appearance"),
    Column("line", "int", "line of the profile, where it is text"),
    _ns("start_ns", "when it started, on the device's clock"),
    _ns("queue_wait_ns", "from queued to submitted"),
    _ns("submit_wait_ns", "from submitted to started"),
)
_HOST = _ns("host_ns", "how long the call took that launched it")
_GEMM = (
    Column("M", "int", "of the GEMM"),
    Column("N", "int", "of the GEMM"),
    Column("K", "int", "of the GEMM"),
    Column("batch", "int", "of the GEMM, if it is more than one"),
)
_OPERATION = (
    Column("algorithm", "text", "as the log says"),
    Column("solver", "text", "as the log says"),
)
_SPENT = (
    _ns("step_ns", "length of the step on the slowest device: from its boundary to its end"),
    _ns("compute_ns", "part of the step in which kernels compute"),
    _ns("communication_ns", "part in which only communication runs (exposed)"),
    _ns("copy_ns", "part in which only copies or fills run (exposed)"),
    _ns("unrecorded_ns", "part in which the device did work that was not recorded"),
    _ns("idle_ns", "part in which nothing runs"),
)
_WORK = (
    Column("flop", "int", "floating point operations"),
    Column("bytes_min", "int", "least memory traffic", "bytes"),
)

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
            "MIOpen's version, if its log states it; else the folder of the run, if its name has a digit",
        ),
        Column("device", "text", "the GPU's name"),
        Column("framework", "text", "the framework whose own profile it is"),
        Column("miopen", "text", "MIOpen's version"),
        Column("iterations", "int", "all that are known of"),
        Column("steady_iterations", "int", "those that count: warm and whole"),
        Column(
            "told_by", "text", "the source of the iterations: named, repetition (of kernels), whole (the run is one)"
        ),
        Column("kernels", "int", "kernels in the whole run"),
        Column("copies", "int", "copies and fills in the whole run"),
        _ns("kernel_ns", "kernel time of a steady iteration: the mean", "float"),
        _ns("kernel_median_ns", "its median", "float"),
        *_SPENT,
        Column("complete", "flag", "whether the profile holds all work"),
        Column("incomplete", "text", "missing parts: class and count of each, such as before-recording 757"),
        _ns("whole_ns", "kernel time of the whole run"),
        _ns("find_ns", "kernel time of searches in the whole run"),
        _ns("printed_ns", "what the log prints of all layers together: means", "float"),
        Column("layers", "int", "layers and directions that ran, or are printed"),
        Column("operations", "int", "calls in MIOpen's log, searches included"),
        Column("unsure", "int", "kernels and copies with a link of low confidence"),
        Column("clock_method", "text", "how the device's clock relates to the host's"),
        _ns("clock_error_ns", "what that may be wrong by"),
        Column("problems", "text", "what was wrong with the inputs"),
        Column("inputs", "text", "format and SHA-256 of each input"),
        Column("generator", "text", "what wrote the tables"),
    ),
)
ITERATIONS = TableSchema(
    "iterations",
    "an iteration, without searches",
    (
        *_OF,
        Column("iteration", "int", "its number; 0 is the warm-up"),
        Column("steady", "flag", "whether it counts: it is warm and whole"),
        Column("kind", "text", "the kind of step, such as decode bs=32; empty if all are of one kind"),
        Column("kernels", "int", "kernels that were launched in it"),
        _ns("kernel_ns", "their time"),
        *_SPENT,
        _ns("host_ns", "how long the host was in it"),
        Column("find_kernels", "int", "kernels of searches that ran in it"),
        Column("phase", "text", "phase of a serving engine's step: prefill, decode, mixed, ..."),
        Column("batch", "int", "requests in it"),
        Column("tokens", "int", "tokens in it"),
    ),
)
KERNELS = TableSchema(
    "kernels",
    "a kernel that ran, in the order of enqueueing",
    (
        *_OF,
        Column("call_index", "int", "the profiler's number of the call or dispatch"),
        Column("name", "text", "the kernel's name"),
        Column("gws", "text", "work sizes"),
        Column("lws", "text", "sizes of a work-group"),
        Column("gwo", "text", "offsets of the work"),
        *_DEVICE,
        _ns("kernel_ns", "how long it ran"),
        _HOST,
        _ns(
            "in_queue_ns", "from the return of that call to its start; from queued to started if the device records it"
        ),
        *_PLACE,
        Column("layer_by", "text", "what puts it into the layer"),
        Column("operation_index", "int", "index of its operation: `operation` of the table operations"),
        Column("operation", "text", "the operation's name"),
        Column("problem", "text", "the operation's problem"),
        Column("solver", "text", "as the log says"),
        Column("operation_by", "text", "what gives it to the operation"),
        Column("sure", "flag", "false if one of its links has low confidence"),
        Column("role", "text", "main, bias, or how it only helps: im2col, transpose, fill, ..."),
        *_GEMM,
        Column("flop", "int", "work of its GEMM"),
        Column("measured_read_bytes", "int", "read from memory, by hardware counters (FETCH_SIZE)", "bytes"),
        Column("measured_write_bytes", "int", "written to memory, by hardware counters (WRITE_SIZE)", "bytes"),
        Column("measured_flop", "int", "floating point operations, by hardware counters"),
    ),
)
COPIES = TableSchema(
    "copies",
    "a copy or fill of a buffer",
    (
        *_OF,
        Column("call_index", "int", "the profiler's number"),
        Column("name", "text", "as the profiler names it"),
        Column("copy_direction", "text", "host to device, ..."),
        Column("bytes", "int", "its size", "bytes"),
        *_DEVICE,
        _ns("copy_ns", "how long it ran"),
        _HOST,
        *_PLACE,
        Column("layer_by", "text", "what puts it into the layer"),
        Column("sure", "flag", "false if its link has low confidence"),
    ),
)
OPERATIONS = TableSchema(
    "operations",
    "a call in MIOpen's log or in the profile, in order",
    (
        *_OF,
        Column("operation", "int", "its index, from 0"),
        Column("line", "int", "line of the log, from 1"),
        Column("api", "text", "the function that was called"),
        Column("primitive", "text", "conv, pool, bnorm, ..."),
        Column("direction", "text", "forward, backward-data, backward-weights"),
        Column("phase", "text", "run, or find: a search"),
        Column("name", "text", "its name, as in the trace"),
        Column("problem", "text", "name, pad, mode, type and layout"),
        *(Column(name, "text", meaning) for name, meaning in (
            ("input", "shape, forward: N, C, [D,] H, W"), ("weights", "shape"), ("output", "shape"), ("pad", ""),
            ("stride", ""), ("dilation", ""))),
        Column("groups", "int", "groups of a convolution"),
        Column("mode", "text", "mode of the primitive: transpose, max, training, ..."),
        Column("window", "text", "of a pooling"),
        Column("dtype", "text", "data type"),
        Column("dtype_by", "text", "what tells it"),
        Column("layout", "text", "of the tensors"),
        *_OPERATION,
        Column("workspace_bytes", "int", "workspace that was given", "bytes"),
        *_GEMM,
        *_WORK,
        Column("command", "text", "the MIOpenDriver line that runs it again"),
        Column("command_reason", "text", "why there is none"),
        Column("doubts", "text", "what is odd about it"),
        Column("kernel_file", "text", "the file that its kernel was compiled from (Triton)"),
        Column("layer", "text", "the layer it ran in; several if a link has low confidence"),
        Column("layer_direction", "text", "that layer's direction"),
        Column("iteration", "int", "0 is the warm-up"),
        Column("source", "text", "the line of the program that launched it: file, and where its function begins"),
        Column("kernels", "int", "kernels that ran for it; null without a profile"),
        _ns("kernel_ns", "their time"),
        Column("gflops", "float", "work over kernel time", "10^9 / s"),
        _ns("api_ns", "time in the calls that launched its kernels"),
        _ns("in_queue_ns", "from the return of these calls to the start of the kernels"),
        _ns("helpers_ns", "part of it in kernels that only help"),
        _ns("transposes_ns", "part of that in layout transposes"),
        Column("sure", "flag", "false if the link of one of its kernels has low confidence"),
    ),
)  # fmt: skip
LAYERS = TableSchema(
    "layers",
    "one time that a layer ran, the warm-up included; without a profile what is printed of it",
    (
        *_OF,
        Column("repetition", "int", "of a log of several runs, from 0"),
        Column("iteration", "int", "0 is the warm-up"),
        Column("layer_index", "int", "position of the layer in the net, from 0"),
        Column("layer", "text", "its name"),
        Column("direction", "text", "forward or backward"),
        Column("type", "text", "as the log prints the net"),
        Column("output", "text", "shape of its first output"),
        Column("kernels", "int", "kernels in it"),
        Column("copies", "int", "copies and fills in it"),
        _ns("kernel_ns", "kernel time"),
        _ns("host_ns", "time on the host, from its first call to the end of its last"),
        _ns("launch_overhead_ns", "host time less kernels and copies"),
        _ns("copy_ns", "time of its copies"),
        _ns("printed_ns", "what the log prints for the layer: the mean where it does several times", "float"),
        Column("flop", "int", "floating point operations"),
        Column("gflops", "float", "work over kernel time", "10^9 / s"),
        Column("flop_by", "text", "source of the work: operation, gemm"),
        Column("host_by", "text", "source of the host time: bounds, calls"),
        Column("layer_by", "text", "evidence of the kernels' layer, with counts"),
        Column("unsure", "int", "kernels whose link has low confidence"),
    ),
)
PROBLEMS = TableSchema(
    "problems",
    "a problem of MIOpen's, over the steady iterations; most time first",
    (
        *_OF,
        Column("problem", "text", "name, pad, mode, type and layout"),
        Column("primitive", "text", "conv, pool, bnorm, ..."),
        Column("direction", "text", "forward, backward-data, backward-weights"),
        Column("dtype", "text", "data type"),
        _ns("kernel_ns", "kernel time in a steady iteration: the mean", "float"),
        Column("percent_of_kernel_time", "float", "of the kernel time of steady iterations", "%"),
        Column("cumulative_percent", "float", "share of this row and all that cost more", "%"),
        _ns("kernel_median_ns", "median over steady iterations", "float"),
        _ns("kernel_min_ns", "least of a steady iteration"),
        _ns("kernel_max_ns", "most of a steady iteration"),
        _ns("kernel_std_ns", "standard deviation (n - 1)", "float"),
        Column("calls", "float", "in a steady iteration"),
        Column("kernels", "float", "in a steady iteration"),
        Column("gflops", "float", "work over kernel time", "10^9 / s"),
        _ns("find_ns", "kernel time of searches for it, in the whole run"),
        Column("find_kernels", "int", "kernels of these searches"),
        _ns("host_ns", "time on the host in a steady iteration", "float"),
        _ns("api_ns", "time in the calls that launched its kernels, in a steady iteration", "float"),
        _ns(
            "in_queue_ns", "from the return of these calls to the start of the kernels, in a steady iteration", "float"
        ),
        _ns("helpers_ns", "part of the kernel time in kernels that only help", "float"),
        _ns("transposes_ns", "part of that in layout transposes", "float"),
        Column("flop", "float", "work in a steady iteration"),
        Column("bytes_min", "float", "least memory traffic in a steady iteration", "bytes"),
        Column("iterations", "int", "steady iterations"),
        Column("unsure", "int", "kernels whose link has low confidence"),
        *_OPERATION,
        *_GEMM,
        Column("command", "text", "the MIOpenDriver line that runs it again"),
    ),
)
FINDINGS = TableSchema(
    "findings",
    "a finding and its advice (docs/findings.md); most severe first",
    (
        *_OF,
        Column("id", "text", "the rule"),
        Column("severity", "text", "high, medium, low, info"),
        _ns("ns", "time at stake, of a steady iteration unless the rule says otherwise"),
        Column("share", "float", "its part of what the rule divides by, 0 to 1"),
        Column("count", "int", "how often"),
        Column("scope", "text", "its subjects, most time first"),
        Column("rule", "text", "when it fires"),
        Column("try", "text", "what to try"),
        Column("number", "text", "the sentence that says them"),
    ),
)

RANKS = TableSchema(
    "ranks",
    "a rank of a job, over the collectives that all ranks ran (docs/many-runs.md)",
    (
        *_OF,
        Column("collectives", "int", "collectives that all ranks ran"),
        _ns("collective_ns", "its kernel time in them"),
        _ns("transfer_ns", "the shortest kernel of each on any rank"),
        _ns("wait_ns", "what its own kernels take longer"),
        _ns("skew_ns", "how far the starts on the ranks lie apart: the mean", "float"),
        Column("times_arrived_last", "int", "collectives to which it came last"),
        Column("straggler", "flag", "whether it came last most often"),
        _ns("late_ns", "how much later than the rank before it came there"),
        Column(
            "made_late_by", "text", "layer, operation, kernel that took longer than on the other ranks, or the host"
        ),
        _ns("made_late_ns", "how much longer"),
    ),
)

TABLES: dict[str, TableSchema] = {
    table.name: table
    for table in (RUNS, ITERATIONS, KERNELS, COPIES, OPERATIONS, LAYERS, PROBLEMS, FINDINGS, RANKS)
}  # fmt: skip
"""All of them, by name."""
SQL_COLUMNS: dict[str, dict[str, str]] = {
    name: {column.name: SQL_TYPES[column.kind] for column in table.columns} for name, table in TABLES.items()
}
"""Of each table the type of each column."""
