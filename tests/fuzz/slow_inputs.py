"""Inputs of any size that make a careless program slow: what its expressions backtrack over, what its loops cross.

Each generator takes the number of bytes that its files have together, about, and returns the files of one run. Found by
an attack on an older version (`docs/hostile-input.md` says how long each took), and more of their kinds.
"""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.kineto_files import row, trace
from tests.small_runs import stamp

Files = list[bytes]
Generator = Callable[[int], Files]

GLOG = b"I1120 10:46:48.020552  2155 caffe.cpp:465] "
INFO = b"MIOpen(OpenCL): Info [x] "
ROCPROFV3 = (
    b'"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",'
    b'"Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",'
    b'"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"\n'
)
ROCPROFV3_ROW = b'"KERNEL_DISPATCH","Agent 1",1,1,7,%d,1,"k",1,%d,%d,0,0,8,0,128,64,1,1,64,1,1\n'
COMMAND = (
    b"MIOpen(OpenCL): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 1 -c 3 -H 8 -W 8 -k 4 -y 3 -x 3 -p 1 -q 1 "
    b"-u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1\n"
)


def _json(calls: list[dict[str, Any]]) -> bytes:
    return json.dumps(calls, separators=(",", ":")).encode()


def _enqueue(name: str, *, ns: int = 10**6, us: int = 100, dur: int = 1000, queued: int = 1000, **fields: Any) -> Any:
    """A kernel that the device starts at ``ns`` and the host asked for at ``us``."""
    return {
        "call": "clEnqueueNDRangeKernel",
        "name": name,
        "queue": "0x30",
        "kernel": "0x60",
        "gws": [64, 1, 1],
        "lws": [8, 1, 1],
        "profiling": {"queued": ns - queued, "submit": ns - queued, "start": ns, "end": ns + dur},
        "timestamp": {"start": stamp(us), "end": stamp(us + 1)},
        "errcode": 0,
        **fields,
    }


def _argument(kernel: str, index: int, value: str) -> dict[str, Any]:
    return {"call": "clSetKernelArg", "kernel": kernel, "arg_index": index, "arg_value": value, "errcode": 0,
            "timestamp": {"start": stamp(1), "end": stamp(1)}}  # fmt: skip


def _pointer(address: int) -> str:
    return struct.pack("<Q", address).hex()


def _entry(*lines: bytes, api: bytes = b"miopenConvolutionForward") -> bytes:
    """A logged call with these parameters."""
    prefix = b"MIOpen(OpenCL): "
    inner = b"".join(prefix + b"\t" + line + b"\n" for line in lines)
    return prefix + b"miopenStatus_t " + api + b"(miopenHandle_t, ...){\n" + inner + prefix + b"}\n"


def _forward(x: int = 0x7F0000000010, w: int = 0x7F0000000020, y: int = 0x7F0000000030) -> bytes:
    return _entry(
        b"xDesc = 1, 3, 8, 8,", b"x = 0x%x" % x, b"wDesc = 4, 3, 3, 3,", b"w = 0x%x" % w,
        b"convDesc = 1, 1, 1, 1, 1, 1,", b"algo = 1", b"yDesc = 1, 4, 8, 8,", b"y = 0x%x" % y,
    )  # fmt: skip


def _repeated(before: bytes, unit: bytes, after: bytes = b"\n") -> Generator:
    """One line."""
    return lambda size: [before + unit * (size // len(unit)) + after]


def _kernels(count: int, name: str = "k", **fields: Any) -> bytes:
    return _json([_enqueue(name, ns=10**6 * at, us=100 * at, **fields) for at in range(1, count + 1)])


# Long lines


def find_db_key(size: int) -> Files:
    return [b"MIOpen(OpenCL): Info [x] Looking for key: 1-" + b"A" * size + b"!\n"]


def stream_label(size: int) -> Files:
    label = b"@@" * (size // 2)
    return [
        b'dev_stats { device: "/job:localhost/replica:0/task:0/device:GPU:0/stream:1" node_stats { node_name: "a" '
        b"all_start_micros: 1795171473772142 op_end_rel_micros: 5 timeline_label: \"" + label + b'" } }'
    ]  # fmt: skip


# Loops


def clock_bounds(size: int) -> Files:
    """Host and device clocks that drift so that every call bounds the line between them."""
    count = size // 300
    far = (count // 2) ** 2
    calls = []
    for at in range(count):
        us, bend = at * 100_000, (at - count // 2) ** 2
        offset = us * 20 // 100
        took = 2 * far // 1000 + 10
        queued = us * 1000 - offset + bend + 10**9
        end = (us + took) * 1000 - offset - bend + 10**9
        call = _enqueue("k", us=us)
        call["profiling"] = {"queued": queued, "submit": queued, "start": end - 10, "end": end}
        call["timestamp"]["end"] = stamp(us + took)
        calls.append(call)
    return [_json(calls)]


def _libdnn_source(images: int) -> str:
    macros = {"M": 8, "N": 64, "K": images, "v_g": 1, "TSM": 8, "TSN": 64, "RTSM": 1, "RTSN": 1}
    text = "#define Dtype float\n" + "".join(f"#define {name} {value}\n" for name, value in macros.items())
    return text + "__kernel void conv_forward(int a) {}\n"


def programs(size: int) -> Files:
    """Programs without a handle to tell whose kernel is whose."""
    calls: list[Any] = [
        {"call": "clCreateProgramWithSource", "program": hex(at), "source": {"0": _libdnn_source(1 + at % 60)},
         "errcode": 0}
        for at in range(size // 2 // 330)
    ]  # fmt: skip
    count = size // 2 // 300
    calls += [_enqueue("conv_forward", kernel=hex(at), gws=[64, 8, 1], ns=10**6 * at, us=100 * at)
              for at in range(1, count)]  # fmt: skip
    return [_json(calls)]


def text_ops(size: int, overlapping: bool = False) -> Files:
    ops = [
        b'node_stats { node_name: "v/tower_0/cg/conv%d/x" all_start_micros: %d op_end_rel_micros: %d '
        b'timeline_label: "x = Relu(a)" }\n'
        % (at, 1795171473772142 + (at if overlapping else 0), 500_000_000 if overlapping else 5)
        for at in range(size // 130)
    ]
    return [b'dev_stats { device: "/job:localhost/replica:0/task:0/device:GPU:0"\n' + b"".join(ops) + b"}"]


def benchmarks(size: int) -> Files:
    line = b"I1120 10:00:01.020552  2155 caffe.cpp:465] "
    return [(line + b"*** Benchmark begins ***\n" + line + b"Performing Forward\n") * (size // 150), _kernels(20)]


def queues_and_operations(size: int) -> Files:
    count = size // 600
    calls = [_enqueue("MIOpenConvUni", ns=10**6 * at, us=100 * at, queue=hex(at + 16)) for at in range(1, count + 1)]
    return [COMMAND * (size // 2 // len(COMMAND)), _json(calls)]


def layer_ends(size: int) -> Files:
    """Each layer line at its own time, many queues."""
    count, layers = size // 600, size // 2 // 85
    log = b"".join(
        b"I1120 10:%02d:%02d.%06d  2155 caffe.cpp:465] l%d\tforward: 0.05 ms.\n"
        % (*divmod(at * 100 // 10**6, 60), at * 100 % 10**6, at)
        for at in range(1, layers)
    )
    calls = [
        _enqueue("k", ns=10**6 + at * 1000, dur=10, us=100 * at * layers // count, queue=hex(at + 16))
        for at in range(count)
    ]
    return [log, _json(calls)]


def idle_operations(size: int) -> Files:
    """One operation has all kernels, many like it have none."""
    entry = _forward()
    calls = [
        _argument("0x1", index, _pointer(address))
        for index, address in enumerate((0x7F0000000010, 0x7F0000000020, 0x7F0000000030))
    ]
    calls += [_enqueue("Cijk_x", kernel="0x1", ns=10**6 * at, us=100 * at) for at in range(1, size // 700)]
    return [entry * (size // 2 // len(entry)), _json(calls)]


def iterations(size: int) -> Files:
    lines = [GLOG + b"Iteration: %d forward-backward time: 1 ms.\n" % at for at in range(size // 2 // 90)]
    return [GLOG + b"*** Benchmark begins ***\n" + b"".join(lines), _kernels(size // 2 // 330)]


def learned_names(size: int) -> Files:
    users = b"".join(b"USER=u%d\n" % at for at in range(min(size // 2, 1 << 16) // 10))
    return [users + COMMAND + (INFO + b"u " * 20 + b"\n") * (size // 2 // 66)]


def names(size: int) -> Files:
    return [COMMAND, _json([_enqueue(f"k{at}", ns=10**6 * at, us=100 * at) for at in range(1, size // 330)])]


def nested_kernels(size: int) -> Files:
    """On one queue, each within the one before."""
    count = size // 330
    return [_json([_enqueue("k", ns=10**6 + at, dur=10**7 - 2 * at, us=100 * at) for at in range(count)])]


def arguments(size: int) -> Files:
    return [_json([_argument(hex(at), at % 1024, "00000000") for at in range(size // 150)] + [_enqueue("k")])]


def buffers(size: int) -> Files:
    made = [{"call": "clCreateBuffer", "size": 4096, "buffer": "0x50", "errcode": 0} for _ in range(size // 2 // 70)]
    calls = [_enqueue("k", ns=10**6 * at, us=100 * at) for at in range(1, size // 2 // 330)]
    return [_forward() + COMMAND, _json(made + calls)]


def entries_of_all_buffers(size: int) -> Files:
    count = size // 2 // len(_forward())
    entries = [_forward(0x7F0000000010 + at * 64, 0x7F0000000020, 0x7F0000000030 + at * 64) for at in range(count)]
    calls: list[Any] = []
    for at in range(size // 2 // 500):
        calls += [_argument("0x1", 0, _pointer(0x7F0000000010 + at * 64)),
                  _enqueue("Cijk_x", kernel="0x1", ns=10**6 * at + 10**6, us=100 * at)]  # fmt: skip
    return [b"".join(entries), _json(calls)]


def searches(size: int) -> Files:
    line = b"MIOpen(HIP): Info [FindConvFwdAlgorithm] requestAlgoCount = 1, workspace = 4\n"
    return [line * (size // len(line))]


def random_lines(size: int) -> Files:
    """Words of every format, in any order."""
    chance = random.Random(size)
    words = (b"MIOpen(HIP): ", b"Info [x] ", b"miopenStatus_t miopenConvolutionForward(", b"){", b"\n", b"}\n", b"\t",
             b"xDesc = ", b"[dv/dt] ", b"[dv/dt] <<", b"[dv/dt] >>", b"[]", GLOG, b"forward: ", b" ms", b"\r", b" ",
             b"{", b"1, ", b"kernel_name = ", b"local_work_dim = {", b"\x1b[0m")  # fmt: skip
    parts: list[bytes] = []
    length = 0
    while length < size:
        parts.append(chance.choice(words))
        length += len(parts[-1])
    return [b"".join(parts), COMMAND]


def archive_of_logs(size: int) -> Files:
    """A profile, and many logs of which nothing tells whose they are."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("prof.json", _kernels(10))
        for at in range(size // 200):
            archive.writestr(f"m{at}.log", INFO + b"a%d\n" % at)
    return [packed.getvalue()]


def archive_of_profiles(size: int) -> Files:
    """Profiles of which none tells which process it is of."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for at in range(size // 400):
            archive.writestr(
                f"p{at}/k_kernel_trace.csv",
                ROCPROFV3 + ROCPROFV3_ROW % (at, 10**15 + at * 1000, 10**15 + at * 1000 + 500),
            )
    return [packed.getvalue()]


def counters_of_many_tables(size: int) -> Files:
    """The header again before each row of counters, as if many tables were in one file."""
    header = b"Dispatch_Id,Process_Id,Kernel_Name,Counter_Name,Counter_Value,Start_Timestamp,End_Timestamp\n"
    rows = (header + b'%d,7,"k","SQ_WAVES",8,%d,%d\n' % (at, 100 * at, 100 * at + 50) for at in range(1, size // 130))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("k_counter_collection.csv", b"".join(rows))
    return [packed.getvalue()]


def kineto_processes(size: int) -> Files:
    """Each with a device of its own, and the same correlation id."""
    events = []
    for at in range(size // 250):
        ids = {"correlation": 1}
        events.append(row("cuda_runtime", "hipLaunchKernel", 10_000 + at, 1, at, 2, **ids))
        events.append(row("kernel", "k", at, 0, at + 5, 1, **ids))
    return [trace(events)]


class Slow(NamedTuple):
    """``command`` is what is asked for the files, with its options."""

    files: Generator
    command: str = "convert"


SLOW: Mapping[str, Slow] = {
    "bare command": Slow(_repeated(b"", b">", b" miopen\n"), "ops"),
    "date of a prefix": Slow(_repeated(b"", b"MIOpen (2020-"), "ops"),
    "launch of a debug build": Slow(_repeated(b"local_work_dim = {1}", b"kernel_name = ", b" miopen\n"), "ops"),
    "launch of a level line": Slow(
        _repeated(b"MIOpen(HIP): Info2 [run] kernel_name = a", b",global_work_dim = {"), "ops"
    ),
    "layer line of spaces": Slow(lambda size: [GLOG + b"x" + b" " * size + b"ward:\n"]),
    "token in a name": Slow(lambda size: [_json([_enqueue("-eyJ" * (size // 4))])]),
    "long token in a name": Slow(lambda size: [_json([_enqueue("eyJaaaaaaaa-" * (size // 12))])]),
    "command of spaces": Slow(
        lambda size: [b"MIOpen(OpenCL): Command [x] ./bin/MIOpenDriver conv -n 1" + b" " * size + b"x -c 3\n"], "ops"
    ),
    "GEMM fields": Slow(
        lambda size: [
            _entry(b"xDesc = 1, 3, 8, 8,") + b"MIOpen(OpenCL): Info2 [CallGemm] gemm_desc: {" + b"a" * size + b"}\n"
        ],
        "ops",
    ),
    "assigned values": Slow(
        _repeated(b"MIOpen(OpenCL): Info [FindConvFwdAlgorithm] requestAlgoCount = 1, ", b"a"), "ops"
    ),
    "chosen algorithm": Slow(_repeated(INFO, b"a", b".Chosen Algorithm: a\n"), "ops"),
    "message of sizes": Slow(_repeated(INFO + b"N=1 ", b"C=1 "), "ops"),
    "message of environment": Slow(_repeated(INFO, b"MIOPEN_"), "ops"),
    "message of algorithms": Slow(_repeated(INFO + b"miopen", b"Algo"), "ops"),
    "tensor lengths": Slow(lambda size: [_entry(b"xDesc = 1, 3" + b" " * size + b"x")], "ops"),
    "label of a stream": Slow(stream_label),
    "find-db key": Slow(find_db_key, "ops"),
    "tensors of a solution": Slow(
        lambda size: [_entry(b"tensors = " + b"a: {" * (size // 4), api=b"miopenRunSolution")], "ops"
    ),
    "pointers of a solution": Slow(
        lambda size: [_entry(b"tensors = " + b"a: " * (size // 3), api=b"miopenRunSolution")], "ops"
    ),
    "bare prefixes": Slow(lambda size: [b"MIOpen: Info [" * (size // 14) + b"\n"], "ops"),
    "mangled name": Slow(lambda size: [COMMAND, _json([_enqueue("_Z" + "1a" * (size // 2))])]),
    "comments of a text": Slow(lambda size: [b"# " * (size // 2) + b"\nx"]),
    "empty dv/dt arrays": Slow(lambda size: [GLOG + b"x\n" + b"[dv/dt] << [] [dv/dt] >>" * (size // 24) + b"\n"]),
    "hull of the clock's bounds": Slow(clock_bounds),
    "LibDNN's programs": Slow(programs),
    "ops of a TF text": Slow(text_ops),
    "overlapping ops of a TF text": Slow(lambda size: text_ops(size, overlapping=True)),
    "benchmarks": Slow(benchmarks),
    "queues and operations": Slow(queues_and_operations),
    "ends of layers": Slow(layer_ends),
    "idle operations": Slow(idle_operations),
    "layers set up": Slow(
        lambda size: [b"".join(GLOG + b"Setting up l%d\n" % at for at in range(size // 60)), _kernels(10)]
    ),
    "layers of one name": Slow(
        lambda size: [(GLOG + b"conv1\tforward: 0.05 ms.\n") * (size // 2 // 68), _kernels(size // 2 // 330)]
    ),
    "iterations": Slow(iterations),
    "threads": Slow(
        lambda size: [b"".join(b"%d MIOpen(HIP): miopenStatus_t miopenX(a){\n" % at for at in range(size // 48))]
    ),
    "headers without end": Slow(
        lambda size: [b"".join(b"MIOpen(HIP): miopenStatus_t miopenX%d(a\n" % at for at in range(size // 44))]
    ),
    "learned names": Slow(learned_names),
    "queues": Slow(
        lambda size: [_json([_enqueue("k", ns=10**6, us=100, queue=hex(at + 16)) for at in range(size // 330)])]
    ),
    "names of kernels": Slow(names),
    "nested kernels": Slow(nested_kernels),
    "equal kernels": Slow(lambda size: [_json([_enqueue("k", ns=10**6, us=100) for _ in range(size // 330)])]),
    "kernel objects": Slow(arguments),
    "buffers of one handle": Slow(buffers),
    "entries of other buffers": Slow(entries_of_all_buffers),
    "searches": Slow(searches, "ops"),
    "logs in an archive": Slow(archive_of_logs),
    "counters of many tables": Slow(counters_of_many_tables, "report"),
    "profiles in an archive": Slow(archive_of_profiles),
    "processes of a Kineto file": Slow(kineto_processes, "kernels"),
    "words of every format": Slow(random_lines),
}
