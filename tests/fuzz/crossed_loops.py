"""Inputs of any size that have many of one thing and many of another: a careless loop looks at each with each.

Beside those of `slow_inputs`, found by an attack on a later version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.fuzz.many_rows import ROWS
from tests.fuzz.slow_inputs import SLOW, Files, Slow
from tests.fuzz.slow_inputs import _argument as argument
from tests.fuzz.slow_inputs import _enqueue as enqueue
from tests.fuzz.slow_inputs import _json as as_json
from tests.fuzz.slow_inputs import _kernels as kernels
from tests.fuzz.slow_side_files import SIDE
from tests.tf_files import START_US, run_metadata


def alike_iterations(size: int) -> list[bytes]:
    """Iterations without a clock, of one kernel in rows: each may begin anywhere, and is like all others everywhere."""
    stamp = b"I1120 11:39:13.866638   742 caffe.cpp:388] "
    count = size // 600
    log = [stamp + b"Setting up l%d" % number for number in range(5)]
    log += [stamp + b"Testing for %d iterations." % count]
    log += [stamp + b"Iteration: %d forward-backward time: 0.25 ms." % number for number in range(1, count + 1)]
    log += [stamp + b"Average time per layer: "]
    log += [stamp + b" l%d\tforward: 0.05 ms." % number for number in range(5)]
    row = b'%d,"k.kd",0,0,742,742,256,64,%d,%d'
    head = b'"Index","KernelName","gpu-id","queue-id","pid","tid","grd","wgr","BeginNs","EndNs"'
    kernels = [row % (at, 10**9 + 50_000 * at, 10**9 + 50_000 * (at + 1)) for at in range(size // 80)]
    return [b"\n".join([*log, b""]), b"\n".join([head, *kernels, b""])]


def calls_that_cross(size: int) -> Files:
    """On one thread, each ends after all that began after it: no two nest."""
    head = '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    rows = (
        f'"HIP_RUNTIME_API_EXT","hipLaunchKernel",7,7,{at},{10**15 + at},{10**15 + 10**9 + at}\n'
        for at in range(size // 82)
    )
    return [(head + "".join(rows)).encode()]


def _glog(at: int, text: str, thread: int = 2155) -> bytes:
    second, us = divmod(at * 100, 10**6)
    return b"I1120 10:%02d:%02d.%06d %5d caffe.cpp:465] %s\n" % (*divmod(second, 60), us, thread, text.encode())


def benchmarks_with_layers(size: int) -> Files:
    """Every third line begins a benchmark, all else are layers: each is a run."""
    texts = ("*** Benchmark begins ***", "a\tbackward: 0.5 ms.", "b\tbackward: 0.5 ms.")
    return [b"".join(_glog(at, texts[at % 3]) for at in range(size // 70)), kernels(20)]


def calls_of_iterations(size: int) -> Files:
    """One kernel, one call and two lines in each; all but the first are drawn."""
    numbers = range(1, size // 400 + 10)
    command = b"MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 1 -c 3 -H 8 -W 8 -k 4 -y 3 -x 3\n"
    lines = [_glog(0, f"Testing for {len(numbers)} iterations."), _glog(0, "*** Benchmark begins ***")]
    for at in numbers:
        ends = _glog(10 * at + 8, f"Iteration: {at} forward-backward time: 0.8 ms.")
        lines += [command, b"MIOpen(HIP): Warning [Run] slow\n", ends]
    return [b"".join(lines), as_json([enqueue("MIOpenConvUni", ns=10**6 * at, us=1000 * at) for at in numbers])]


def row_with_another(size: int) -> Files:
    """All kernels are the same but for one in the middle: no stretch that repeats is longer than a half."""
    count = size // 330
    return [as_json([enqueue("b" if at == count // 2 else "a", ns=10**6 * at, us=100 * at) for at in range(1, count)])]


def lost_calls(size: int) -> Files:
    """Each may have set an argument of any of the kernels; every second kernel has a thousand of them."""
    arguments = [argument(hex(at), 1000 if at % 2 else 0, "00") for at in range(size // 220)]
    return [as_json(arguments)[:-1] + b"," + b"1," * (size // 4) + as_json([enqueue("k")])[1:]]


def devices_of_a_task(size: int) -> Files:
    """All of them are GPU 0: what has a name already gets another one."""
    devices = {f"/job:localhost{at}/replica:0/device:GPU:0": [("a", START_US, 5, "x = Relu(a)")]
               for at in range(size // 90)}  # fmt: skip
    return [run_metadata(devices)]


def _rocm(count: int, name: str, of: int) -> bytes:
    """Kernels in rocprofv3's table, of so many names in turn."""
    head = b'"Kind","Agent_Id","Thread_Id","Dispatch_Id","Kernel_Name","Correlation_Id",'
    head += b'"Start_Timestamp","End_Timestamp"\n'
    row = '"KERNEL_DISPATCH","Agent 2",7,%d,"%s%d",%d,%d,%d\n'
    return head + b"".join(
        (row % (at, name, at % of, at, 10**9 + 1000 * at, 10**9 + 1000 * at + 900)).encode() for at in range(count)
    )


_SEARCH = (
    b"miopenStatus_t miopenFindConvolutionForwardAlgorithm(miopenHandle_t){",
    b"\txDesc = 1, 3, 8, 8, ", b"\twDesc = 4, 3, 3, 3, ", b"\tconvDesc = conv2d, miopenConvolution, {1, 1}, ",
    b"\tyDesc = 1, 4, 8, 8, ", b"}",
)  # fmt: skip


def _launching(entry: Sequence[bytes], count: int, of: int) -> bytes:
    """A call, and lines of what it launched, of so many names in turn."""
    line = b"Info2 [run] kernel_name = k%d, global_work_dim = { 64, 1, 1 }, local_work_dim = { 64, 1, 1 }"
    return b"".join(b"MIOpen(HIP): %s\n" % text for text in (*entry, *(line % (at % of) for at in range(count))))


def kernels_of_any_call(size: int) -> Files:
    """Nothing tells which of the commands launched which kernel."""
    command = b"MIOpen(HIP): Command [x] ./bin/MIOpenDriver conv -n %d -c 3 -H 8 -W 8 -k 4 -y 3 -x 3\n"
    return [_rocm(size // 160, "MIOpenConvUni", 1), b"".join(command % (1 + at % 7) for at in range(size // 170))]


_CALLS = (
    ("activ -n 2 -c 20 -H 24 -W %d -m 3 --forw 1 -A 1 -B 1 -G 1", "Activ", "MIOpenActiveFwdLite"),
    ("pool -M 0 -n 2 -c 20 -H 24 -W %d -y 2 -x 2 -p 0 -q 0 -v 2 -u 2 -m max -F 1 -t 1", "Pooling", "mloPoolingG"),
    ("lrn -A 0.0001 -B 0.75 -F 1 -H 23 -K 1 -N 5 -W %d -c 16 -m 1 -n 1", "LRN", "MIOpenLRNAcrossChannels4"),
)
_V1 = b'"Index","KernelName","gpu-id","queue-id","pid","tid","grd","wgr","BeginNs","EndNs"\n'


def _dispatches(names: Sequence[str]) -> bytes:
    return _V1 + b"".join(
        b'%d,"%s.kd",0,0,7,7,256,64,%d,%d\n' % (at, name.encode(), 1000 * at + 5, 1000 * at + 500)
        for at, name in enumerate(names)
    )


def net_and_calls(size: int) -> Files:
    """Layers whose names tell nothing, and calls of which each may be of any."""
    calls = [_CALLS[at % 7 % 3] for at in range(size // 400)]
    lines = [_glog(at, f"Setting up x{at}") for at in range(size // 300)] + [_glog(size, "*** Benchmark begins ***")]
    for at, (command, name, _) in enumerate(calls):
        lines.append(f"MIOpen(HIP): Command [LogCmd{name}] ./bin/MIOpenDriver {command % (24 + at)}\n".encode())
    lines.append(_glog(size, "Iteration: 1 forward-backward time: 1.5 ms."))
    return [b"".join(lines), _dispatches([name for _, _, name in calls])]


def unlogged_iterations(size: int) -> Files:
    """A log that was cut behind its first iteration, and a profile that goes on."""
    calls = [_CALLS[at % 3] for at in range(30)]
    named = {"Activ": "relu", "Pooling": "pool", "LRN": "norm"}
    lines = [_glog(at, f"Setting up {named[name]}{at}") for at, (_, name, _) in enumerate(calls)]
    lines.append(_glog(size, "*** Benchmark begins ***"))
    for command, name, _ in calls:
        lines.append(f"MIOpen(HIP): Command [LogCmd{name}] ./bin/MIOpenDriver {command % 24}\n".encode())
    return [b"".join(lines), _dispatches([calls[at % 30][2] for at in range(size // 100)])]


CROSSED: Mapping[str, Slow] = {
    "net and calls": Slow(net_and_calls),
    "unlogged iterations": Slow(unlogged_iterations),
    "alike iterations": Slow(alike_iterations),
    "calls of many iterations": Slow(calls_of_iterations, "convert --iterations 2-1000000"),
    "calls that cross": Slow(calls_that_cross),
    "lost calls": Slow(lost_calls),
    "devices of one name": Slow(devices_of_a_task),
    "benchmarks with layers": Slow(benchmarks_with_layers),
    "processes of one log": Slow(
        lambda size: [b"".join(_glog(at, "a\tforward: 0.05 ms.", at + 1) for at in range(size // 68)), kernels(20)]
    ),
    "a row of one kernel with another in it": Slow(row_with_another),
    "launch lines of a search": Slow(lambda size: [_rocm(size // 160, "k", 9), _launching(_SEARCH, size // 220, 8)]),
    "launch lines of other names": Slow(
        lambda size: [_rocm(size // 160, f"q{size}_", size), _launching(_SEARCH, size // 220, size)]
    ),
    "kernels of any call": Slow(kernels_of_any_call),
}
ALL: Mapping[str, Slow] = {**SLOW, **CROSSED, **ROWS, **SIDE}
