"""One module per source format. A format is recognised by its content, never by its name.

A new format is one module with the three names of `base.Reader` and one row of `READERS`. A module that takes long to
load is a `Later` there. Other files are recognised to be refused: `KNOWN`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import cast

import msgspec

from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late
from mio2trace.readers import run_log
from mio2trace.readers.base import Reader, ReadOptions, Records
from mio2trace.readers.gemms import TUNABLE
from mio2trace.readers.miopen import databases
from mio2trace.readers.rocm import rocpd
from mio2trace.readers.rocm.database import MAGIC, tables
from mio2trace.readers.rocm.tables import header
from mio2trace.source import Source, is_tar


class Later:
    """A reader whose module is loaded when a file may be of its format: when ``may_be`` of the file's head is true.
    ``name``: the name of the format, if its module has several."""

    def __init__(self, module: str, may_be: Callable[[bytes], bool], name: str = "") -> None:
        self.__name__ = f"mio2trace.readers.{module}"
        self._may_be = may_be
        self._name = name

    @property
    def _reader(self) -> Reader:
        module = import_module(self.__name__)
        return cast(Reader, getattr(module, self._name) if self._name else module)

    @property
    def NAME(self) -> str:
        return self._reader.NAME

    def sniff(self, head: bytes) -> bool:
        return self._may_be(head) and self._reader.sniff(head)

    def read(self, source: Source, options: ReadOptions, notes: Notes) -> Records:
        return self._reader.read(source, options, notes)


def _is_json(head: bytes) -> bool:
    return head.lstrip()[:1] in (b"{", b"[")


def _is_sqlite(head: bytes) -> bool:
    return tables(head) != b""


def _is_protobuf(head: bytes) -> bool:
    return head[:1] == b"\x0a"


CK = Later("ck", _is_json)
_records = Later("bundled", lambda head: head.startswith(b'{"schema":'))
views = Later("tf.views", lambda head: b"_TFProfRoot (" in head)
OF_TENSORFLOW: tuple[Reader, ...] = (
    Later("tf.profile_proto", _is_protobuf),
    Later("tf.step_stats", _is_protobuf, "BYTES"),
    Later("tf.step_stats", lambda head: b"dev_stats" in head, "TEXT"),
    Later("tf.step_stats", _is_json, "TIMELINE"),
    views,
)
"""No reader recognises the op view of a console's text."""
READERS: tuple[Reader, ...] = (
    Later("opencl.dvdt", lambda head: head.lstrip()[:1] == b"["),
    CK,
    *OF_TENSORFLOW,
    rocpd,
    Later("rocm.rpd", lambda head: b"rocpd_" in head and _is_sqlite(head), "DATABASE"),
    Later("rocm.v3_csv", lambda head: "start_timestamp" in header(head)),
    Later("kineto", _is_json),
    Later("rocm.v3_json", _is_json),
    Later("rocm.rpd", _is_json, "JSON"),
    Later("rocm.v1", lambda head: not {"beginns", "start_timestamp"}.isdisjoint(header(head)), "TABLE"),
    Later("rocm.v1", _is_sqlite, "DATABASE"),
    Later("rocm.v1", _is_json, "JSON"),
    Later("xla", _is_protobuf),
    databases.TEXT,
    databases.SQLITE,
    TUNABLE,
    _records,
    run_log,
)
"""At most one of them recognises a file, except `run_log`, the last one, which accepts any text."""

PROFILES = tuple(reader for reader in READERS if reader not in (CK, *OF_TENSORFLOW, run_log))
"""Readers whose files a directory may represent."""
_KEYS = late(rb'"([^"\\]{1,40})"\s*:')


class GoesWithATrace(InputError):
    """A table that a profiler writes beside the trace, and that adds nothing to the trace."""


class Accepted(msgspec.Struct, frozen=True):
    """The accepted formats of a file. ``readers``: None is all. ``rest``: for text that none of them knows."""

    expected: str = "a log or a profile"
    readers: tuple[Reader, ...] | None = None
    rest: Reader | None = None
    """Readers of text of unknown format; `run_log` reads any text."""


ANY = Accepted()
_FAMILIES = (
    "a profile of PyTorch, ROCm (rocprofv3, rocpd, rocprof, RPD), OpenCL (dv/dt), TensorFlow or JAX, or a log of MIOpen"
    " or Caffe (all formats: docs/inputs.md)"
)
A_LOG = Accepted(expected="MIOpen's log", rest=run_log)
"""Lines of JSON are also a log (miopen-log.md 9.3), if no other reader knows them."""
A_TF_PROFILE = Accepted(
    expected="a TFProf profile, RunMetadata, StepStats, TensorFlow's timeline or a printed view",
    readers=(*OF_TENSORFLOW, _records),
    rest=views,
)


def detect(source: Source, accepted: Accepted = ANY) -> Reader:
    """Return the reader of ``source``'s format. Raises `InputError` if none of the accepted readers knows it."""
    head = source.head
    if not head.strip():
        raise InputError(f"{source.name}: empty; expected {accepted.expected}")
    for reader in READERS if accepted.readers is None else accepted.readers:
        if reader is not run_log and reader.sniff(head):
            return reader
    refused = refusal(head, source.name)
    if refused is not None:
        kind = GoesWithATrace if refused.endswith(_TRACE) else InputError
        raise kind(f"{source.name}: {refused}")
    if accepted.readers is None and run_log.sniff(head):
        return run_log
    if accepted.readers is not None:
        other = next((reader for reader in READERS if reader is not run_log and reader.sniff(head)), None)
        if other is not None:
            raise InputError(f"{source.name}: is a {other.NAME}; expected {accepted.expected}")
    if accepted.rest is not None and (accepted.rest is run_log or run_log.sniff(head)):
        return accepted.rest
    expected = f"expected {_FAMILIES if accepted is ANY else accepted.expected}"
    if head.lstrip()[:1] in (b"{", b"["):
        keys = list(dict.fromkeys(key.decode(errors="replace") for key in _KEYS.findall(head)))[:4]
        what = f"JSON with the keys {', '.join(keys)}" if keys else "JSON of no known form"
    else:
        what = f"binary data that begins {head[:8].hex(' ')}"
    raise InputError(f"{source.name}: {what}; {expected}")


# -- Files that are recognised but not read: what each is, and what to give instead ------------------------------------

_PROFILE = "a profile of a ROCm tool, of PyTorch, or dv/dt"
_ROCPD = "rocprofv3's database (--output-format rocpd), JSON or CSV of the same run"
_XPLANE = "the *.xplane.pb of the same run, which is beside it"
_BY_NAME = {
    (".nsys-rep", ".qdrep", ".ncu-rep"): ("a report of NVIDIA's Nsight", _PROFILE),
    (".otf2", ".def", ".evt"): ("a part of an OTF2 archive", _ROCPD),
    (".input_pipeline.pb", ".kernel_stats.pb", ".op_stats.pb", ".overview_page.pb", ".tensorflow_stats.pb"): (
        "a table that TensorBoard made of a profile", _XPLANE,
    ),
}  # fmt: skip
"""Endings of names, for binary files whose content does not show their format."""
_OWN_JSON = late(rb'\s*\{[^\[]{0,300}?"generator"\s*:\s*"mio2trace ')
_AUTOGRAD = late(rb'\s*\[\s*\{[^{]{0,500}?"pid"\s*:\s*"(?:CPU|CUDA|GPU) functions"')
_SCHEMA = late(rb'\s*\{\s*"\$schema"\s*:\s*"https?://json-schema\.org/')
_SPEEDSCOPE = late(rb'\s*\{[^\[]{0,300}?"https?://www\.speedscope\.app/')
_XLA_TRACE = late(
    rb'\s*\{\s*"displayTimeUnit"\s*:\s*"ns"[^\[]{0,100}"traceEvents"[^/]{0,300}?"name"\s*:\s*"/(?:host|device):'
)
_PPROF = late(rb"(?:\x0a\x04\x08.\x10.)+\x12", re.DOTALL)
_EXECUTION = late(rb'\s*\{\s*"schema"\s*:[^\[]{0,300}?"nodes"\s*:\s*\[')
_PACKET_FIELDS = frozenset({1, 3, 6, 8, 10, 11, 12, 13, 33, 35, 36, 41, 42, 43, 44, 50, 54, 58, 59, 60, 69, 79, 87})
"""Fields of TracePacket that the first packet of a trace has."""


_JOURNAL = bytes.fromhex("d9d505f920a163d7"), b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"
"""The beginnings of SQLite's rollback journal and of its write-ahead log."""
_WHOLE_HEAD = 60_000
"""A smaller file has fewer bytes than this check needs."""


class Known(msgspec.Struct, frozen=True):
    recognises: Callable[[bytes], bool]
    what: str
    instead: str


def _table(*needed: str, without: str = "\n") -> Callable[[bytes], bool]:
    return lambda head: set(needed) <= (columns := set(header(head))) and without not in columns


def _database(*words: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(MAGIC) and any(word in head for word in words)


def _is_perfetto(head: bytes) -> bool:
    """Return whether it is a packet (field 1) with fields of Perfetto, followed by another packet or the end."""
    if head[:1] != b"\x0a":
        return False
    from mio2trace.wire import WireError, varint

    try:
        size, at = varint(head, 1, len(head))
        end = at + size
        if not size or (end > len(head) and len(head) < _WHOLE_HEAD) or head[end : end + 1] not in (b"\x0a", b""):
            return False
        tag, _ = varint(head, at, min(end, len(head)))
    except WireError:
        return False
    return tag >> 3 in _PACKET_FIELDS and tag & 7 in (0, 2)


_TRACE = (
    "the trace of the same run: rocprofv3's database, JSON or *_kernel_trace.csv, rocprof's results.json or results.db"
)
_TIMES = "a run with --kernel-trace (rocprofv3) or --stats (rocprof), which records times"
_SOURCE = "the files that it was made from (`mio2trace view`, `query` and `compare` read the trace)"
KNOWN: tuple[Known, ...] = (
    Known(lambda head: _is_json(head) and _OWN_JSON.match(head) is not None, "a trace that mio2trace wrote", _SOURCE),
    Known(
        lambda head: b"generator" in head[:400] and b"mio2trace " in head[:400] and _is_perfetto(head),
        "a trace that mio2trace wrote", _SOURCE,
    ),
    # their driver lines would count as lines of a log, for example in the folder of the run
    Known(
        lambda head: b'<meta name="generator" content="mio2trace ' in head[:1000]
        or (head.startswith(b"## ") and b"\n<sub>mio2trace " in head),
        "a report that mio2trace wrote", "the files that it was made from",
    ),
    Known(lambda head: head.startswith(_JOURNAL), "a journal of an SQLite database", "the database beside it"),
    Known(
        is_tar, "a tar archive that is packed again, or comes from a pipe", "the archive itself, by its path",
    ),
    Known(
        lambda head: head.startswith((b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")),
        "a file packed by bzip2, xz or zstd", "what is in it: unpack it, or pack it with gzip",
    ),
    Known(lambda head: head.startswith(b"ARROW1\0\0"), "a table of Arrow (Feather)", _ROCPD),
    Known(_table("name", "calls", "totaldurationns"), "a summary of calls or kernels without their times", _TRACE),
    Known(_table("counter_name", "counter_value"), "a table of counters", _TRACE),
    Known(_table("kernelname", "grd", "wgr", without="beginns"), "a table of counters without times", _TIMES),
    Known(
        _table("dispatch_id", "gpu_id", "kernel_name", without="queue_id"),
        "a table of counters, merged from several runs", _TIMES,
    ),
    Known(_table("dispatch_id", "gpu_id", "kernel_name"), "a table of rocprofv2", _TRACE),
    Known(_table("domain", "operation", "start_timestamp", "stop_timestamp"), "a table of rocprofv2", _TRACE),
    Known(_table("domain", "function", "start_timestamp", without="thread_id"), "a table of rocprofv2", _TRACE),
    Known(_table("domain", "roctx_id", "message"), "a table of rocprofv2", _TRACE),
    Known(_table("operation", "allocation_size", "address"), "a table of memory allocations", _TRACE),
    Known(_table("operation", "alloc_flags"), "a table of scratch memory", _TRACE),
    Known(_table("sample_timestamp", "exec_mask", "instruction"), "a table of samples of the program counter", _TRACE),
    Known(_table("node_id", "logical_node_id", "agent_type"), "a table of a machine's processors", _TRACE),
    Known(
        lambda head: _is_json(head) and _AUTOGRAD.match(head) is not None,
        "a trace of torch.autograd.profiler (PyTorch before 1.8)",
        "one of torch.profiler, of PyTorch 1.8 or newer",
    ),
    Known(lambda head: _is_json(head) and b'"Ascend Hardware"' in head, "a trace of Ascend's profiler", _PROFILE),
    Known(
        lambda head: _is_json(head) and _EXECUTION.match(head) is not None,
        "an execution trace of PyTorch (a graph of its ops)",
        "the trace of torch.profiler",
    ),
    Known(
        lambda head: _is_json(head) and _XLA_TRACE.match(head) is not None,
        "a Chrome trace that JAX's or TensorFlow's profiler made of its profile", _XPLANE,
    ),
    Known(lambda head: _PPROF.match(head) is not None, "a pprof profile (of memory, or samples of the host)", _PROFILE),
    Known(
        lambda head: _is_json(head) and _SPEEDSCOPE.match(head) is not None,
        "a speedscope profile (samples of the host)", _PROFILE,
    ),
    Known(
        lambda head: _is_json(head) and _SCHEMA.match(head) is not None,
        "a JSON schema, which holds no data", _TRACE,
    ),
    Known(
        _database(b"CUPTI_ACTIVITY", b"TARGET_INFO_NIC", b"TARGET_INFO_GPU"),
        "a database of NVIDIA's Nsight Systems", _PROFILE,
    ),
    Known(
        _database(b"kern_db"), "MIOpen's database of compiled kernels, which has no times",
        "its find-db or perf-db, or a profile",
    ),
    Known(_database(b""), "an SQLite database of an unknown program", "one of rocprofv3, rocprof or RPD"),
    Known(
        lambda head: b"brain.Event:" in head[:64], "an events file of TensorBoard",
        "TensorFlow's RunMetadata or timeline of the run, or a profile of a ROCm tool",
    ),
    Known(
        lambda head: head.startswith(b"PK\x03\x04"), "a zip archive that is packed again, or comes from a pipe",
        "the archive itself, by its path",
    ),
    Known(
        _is_perfetto, "a Perfetto trace (.pftrace)",
        "the files of a profiler: rocprofv3's database, JSON or CSV (--output-format)",
    ),
)  # fmt: skip


def refusal(head: bytes, name: str) -> str | None:
    """Describe a file that begins with ``head``, and the file to give instead; None if it is unknown."""
    for one in KNOWN:
        if one.recognises(head):
            return f"is {one.what}; expected {one.instead}"
    if b"\0" in head:
        for endings, (what, instead) in _BY_NAME.items():
            if name.removesuffix(".gz").endswith(endings):
                return f"is {what}; expected {instead}"
    return None
