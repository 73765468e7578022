"""Inputs of any size that have many of one thing and many of another: a careless loop looks at each with each.

Beside those of `slow_inputs`, found by an attack on a later version.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.fuzz.slow_inputs import SLOW, Files, Slow
from tests.fuzz.slow_inputs import _argument as argument
from tests.fuzz.slow_inputs import _enqueue as enqueue
from tests.fuzz.slow_inputs import _json as as_json
from tests.fuzz.slow_inputs import _kernels as kernels
from tests.tf_files import START_US, run_metadata


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


def processes_of_a_log(size: int) -> Files:
    return [b"".join(_glog(at, "a\tforward: 0.05 ms.", at + 1) for at in range(size // 68)), kernels(20)]


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


CROSSED: Mapping[str, Slow] = {
    "calls that cross": Slow(calls_that_cross),
    "lost calls": Slow(lost_calls),
    "devices of one name": Slow(devices_of_a_task),
    "benchmarks with layers": Slow(benchmarks_with_layers),
    "processes of one log": Slow(processes_of_a_log),
    "a row of one kernel with another in it": Slow(row_with_another),
}
ALL: Mapping[str, Slow] = {**SLOW, **CROSSED}
