"""Columns of the tables: what each is called, what it means, and which go first where a terminal is narrow.

A time's name ends in its unit: ``kernel`` is the column ``kernel_ns``, ``kernel_us``, ``kernel_ms`` or ``kernel_s``.
What is the same has the same name in every table, in the stored queries and in a trace (docs/reports.md lists them).
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Kind = Literal["text", "count", "time", "percent", "rate", "work", "bytes"]

_UNIT = re.compile(r"(.+)_(ns|us|ms|s)")


class Column(NamedTuple):
    """``rank``: 0 stays longest on a narrow terminal, 9 goes first; of equals the one further right goes first."""

    name: str
    kind: Kind
    rank: int
    meaning: str


_COLUMNS = (
    # what a row is of
    Column("layer_index", "count", 8, "position of the layer in the net, from 0"),
    Column("layer", "text", 0, "the layer's name"),
    Column("class", "text", 0, "the class of modules, or the kind of op, that layers are of"),
    Column("tree", "text", 0, "layer, operation or kernel, further right than what it is in"),
    Column("kind", "text", 4, "of a node of the tree: all, layer, operation, kernel"),
    Column("level", "count", 8, "its depth in the tree, from 0"),
    Column("node", "count", 8, "its place in the tree, from 0"),
    Column("parent", "count", 8, "the place of the node that it is in"),
    Column("layers", "count", 5, "layers of the class"),
    Column("direction", "text", 1, "forward or backward; of an operation also backward-data, backward-weights"),
    Column("layer_direction", "text", 5, "direction of the layer that an operation ran in"),
    Column("name", "text", 0, "the kernel's name; in `ops` the operation's"),
    Column("operation", "text", 0, "the operation's name; in `ops --each` its index"),
    Column("operation_index", "count", 7, "index of the operation in the log"),
    Column("problem", "text", 0, "the operation's problem: name, pad, mode, type and layout"),
    Column("call_index", "count", 2, "place of the call in the profile, from 0"),
    Column("iteration", "count", 2, "0 is the warm-up"),
    Column("pass", "text", 1, "set-up, warm-up or iteration, with its direction"),
    Column("repetition", "count", 2, "of a record of several runs, from 0"),
    Column("kernel_index", "count", 1, "place in what the kernels repeat, from 0"),
    Column("rank", "count", 0, "the process's rank"),
    Column("pid", "count", 0, "the process's id"),
    Column("process", "text", 0, "of a job its rank or process, of a picture of several runs the run"),
    Column("file", "text", 0, "the log"),
    Column("command", "text", 4, "the MIOpenDriver line that runs it again"),
    # cost
    Column("kernel", "time", 0, "kernel time: of a row that stands for several, the mean of a steady iteration"),
    Column("own", "time", 1, "kernel time of a node of the tree outside of the layers within it"),
    Column("total", "time", 0, "kernel time of a node of the tree with everything in it, in a steady iteration"),
    Column("kernel_median", "time", 5, "median over steady iterations"),
    Column("kernel_min", "time", 5, "least of a steady iteration"),
    Column("kernel_max", "time", 5, "most of a steady iteration"),
    Column("kernel_std", "time", 4, "standard deviation (n - 1) over steady iterations"),
    Column("kernel_q25", "time", 6, "first quartile"),
    Column("kernel_q75", "time", 6, "third quartile"),
    Column("percent_of_kernel_time", "percent", 1, "of the kernel time of everything that the table covers"),
    Column("percent_of_gemm_time", "percent", 1, "of the kernel time of all GEMMs in the table"),
    Column("percent_of_iteration", "percent", 1, "of the kernel time of the longer side's iteration"),
    Column("cumulative_percent", "percent", 3, "percent of the kernel time in this row and all that cost more"),
    Column("calls", "count", 2, "how often it ran: in a steady iteration, where there are any"),
    Column("count", "count", 2, "how many rows are one here"),
    Column("kernels", "count", 3, "kernels, in a steady iteration"),
    Column("iterations", "count", 6, "steady iterations"),
    Column("gflops", "rate", 2, "10^9 floating point operations a second of kernel time"),
    Column("flop", "work", 7, "floating point operations"),
    Column("bytes_min", "bytes", 7, "least memory traffic"),
    Column("helpers", "time", 6, "part of the kernel time in kernels that only prepare or finish the work"),
    Column("helpers_percent", "percent", 5, "the same in percent of the row's kernel time"),
    Column("transposes", "time", 7, "part of the helpers' time in layout transposes"),
    Column("transposes_percent", "percent", 6, "the same in percent of the row's kernel time"),
    Column("find", "time", 4, "kernel time of searches for it, in the whole run"),
    Column("find_kernels", "count", 6, "kernels of these searches"),
    Column("copies", "count", 7, "reads, writes and fills of buffers"),
    Column("copy", "time", 7, "their time"),
    # the host
    Column("host", "time", 3, "time on the host, from the first call to the end of the last"),
    Column("api", "time", 6, "time in the calls that launched its kernels; of a kernel that is `host`"),
    Column("in_queue", "time", 5, "from the return of these calls to the start of the kernels"),
    Column("host_std", "time", 7, "its standard deviation"),
    Column("launch_overhead", "time", 6, "host time less kernel and copy time: launching, compiling, waiting"),
    Column("launch_overhead_std", "time", 8, "its standard deviation"),
    Column("overhead", "time", 5, "host time of the call less the time from queued to ended"),
    Column("command_time", "time", 6, "from queued to ended (p3 - p0)"),
    Column("queue_wait", "time", 7, "from queued to submitted (p1 - p0)"),
    Column("submit_wait", "time", 7, "from submitted to started (p2 - p1)"),
    # printed
    Column("printed", "time", 2, "what the log prints for the layer"),
    Column("printed_std", "time", 7, "its deviation, where it is printed several times"),
    Column("percent_of_printed_time", "percent", 5, "of the sum of all printed times"),
    # the ranks of a job
    Column("collectives", "count", 4, "collectives that all ranks ran"),
    Column("collective_index", "count", 2, "place among them, from 0"),
    Column("collective", "time", 5, "the rank's kernel time in them; of a collective which it is"),
    Column("transfer", "time", 3, "the shortest kernel of a collective on any rank"),
    Column("wait", "time", 0, "what the rank's own kernels take longer"),
    Column("skew", "time", 3, "how far the starts on the ranks lie apart: the mean"),
    Column("times_arrived_last", "count", 0, "collectives to which it came last"),
    Column("straggler", "text", 4, "whether it came last most often"),
    Column("late", "time", 2, "how much later than the rank before it came there"),
    Column("made_late_by", "text", 1, "what took longer than on the other ranks: layer, operation, kernel, the host"),
    Column("made_late", "time", 3, "how much longer"),
    Column("last", "text", 0, "the rank that came last"),
    Column("lead", "time", 1, "how much later than the one before it came"),
    Column("arrival_by", "text", 5, "what tells who came last: clock, duration"),
    # a comparison
    Column("part", "text", 3, "what is compared: problem, layer, kernel, ..."),
    Column("runs", "text", 4, "runs of each side"),
    Column("a", "time", 1, "of the first side"),
    Column("b", "time", 1, "of the other side"),
    Column("ratio", "rate", 1, "of the other side to the first"),
    Column("low", "rate", 5, "least ratio that the runs allow"),
    Column("high", "rate", 5, "largest ratio that the runs allow"),
    Column("verdict", "text", 0, "whether it is slower, faster, or the same"),
    # how an operation ran
    Column("solver", "text", 3, "the solver, as the log says"),
    Column("algorithm", "text", 4, "the algorithm, as the log says"),
    Column("dtype", "text", 5, "data type"),
    Column("phase", "text", 4, "run, or find: a search"),
    Column("line", "count", 6, "line of the log, from 1"),
    Column("sure", "text", 6, "false if the link has low confidence"),
    Column("unsure", "count", 6, "kernels whose link has low confidence"),
    Column("layer_by", "text", 7, "evidence of the kernels' layer, with counts"),
    Column("doubts", "text", 7, "what is odd about it"),
    Column("names", "text", 4, "kernels by name, with counts"),
    Column("gws", "text", 5, "work sizes"),
    Column("lws", "text", 6, "sizes of a work-group"),
    Column("gwo", "text", 7, "offsets of the work"),
    Column("queue", "text", 6, "the device's queue"),
    Column("source", "text", 5, "the line of the program that launched it: the file, and where its function begins"),
    Column("message_bytes", "bytes", 4, "message of a collective"),
    Column("algorithm_gb_per_s", "rate", 5, "message of a collective over the time of its kernel, 10^9 bytes a second"),
    Column("bus_gb_per_s", "rate", 4, "that times what each rank's link carries of the message"),
    Column("measured_read_bytes", "bytes", 6, "read from memory, by hardware counters"),
    Column("measured_write_bytes", "bytes", 6, "written to memory, by hardware counters"),
    Column("measured_gb_per_s", "rate", 4, "both over the kernel time of the counter run, 10^9 bytes a second"),
    Column("measured_flop", "work", 6, "floating point operations, by hardware counters"),
    Column("measured_gflops", "rate", 4, "these over the kernel time of the counter run"),
    Column("measured_flop_per_byte", "rate", 5, "measured operations over measured bytes: the place on a roofline"),
    Column("M", "count", 1, "of the GEMM"),
    Column("N", "count", 1, "of the GEMM"),
    Column("K", "count", 1, "of the GEMM"),
    Column("batch", "count", 2, "of the GEMM"),
)  # fmt: skip
COLUMNS = {column.name: column for column in _COLUMNS}

RAW = {
    "p3_p2": "kernel", "t1_t0": "host", "p3_p0": "command_time", "p2_p1": "submit_wait", "p1_p0": "queue_wait",
}  # fmt: skip
"""Spans by the names of the seed notebook, which ``--raw`` keeps."""
_RAW_TIMES = {"p0_ns": "queued_ns", "p1_ns": "submit_ns", "p2_ns": "start_ns", "p3_ns": "end_ns"}
_RAW_SPAN = re.compile(rf"({'|'.join(RAW)})(?:_(sum|mean))?((?:_\w+)?)")
_UNKNOWN = 5
"""Rank of a column that is not listed."""


def base_of(name: str) -> tuple[str, str]:
    """A column's name without its unit of time, and that: ``kernel_ms`` is (``kernel``, ``ms``)."""
    found = _UNIT.fullmatch(name)
    return (found[1], found[2]) if found is not None else (name, "")


def rank_of(name: str) -> int:
    """How soon the column goes where a terminal is narrow: of the highest rank first."""
    column = COLUMNS.get(name) or COLUMNS.get(base_of(name)[0])
    return _UNKNOWN if column is None else column.rank


def spoken(name: str) -> str:
    """What the common vocabulary calls a column of `mio2trace.reports.kernels`: ``p3_p2_sum_us`` is ``kernel_us``."""
    found = _RAW_SPAN.fullmatch(name)
    if found is not None:
        return RAW[found[1]] + found[3]
    return _RAW_TIMES.get(name, name)
