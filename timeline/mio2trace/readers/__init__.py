"""One module per source format. A format is recognised by its content, never by its name.

A new format is one module with the three names of `base.Reader` and one row of `READERS`. A module that takes long to
load is a `Later` there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple, cast

from mio2trace.notes import InputError, Notes
from mio2trace.readers import bundled, known, run_log
from mio2trace.readers import ck as ck
from mio2trace.readers import tunable as tunable
from mio2trace.readers.base import Reader, ReadOptions, Records
from mio2trace.readers.miopen import find_db, perf_db
from mio2trace.readers.opencl import dvdt_json
from mio2trace.readers.rocm import rocpd, v1_csv, v3_csv
from mio2trace.readers.rocm.database import tables
from mio2trace.source import Source


class Later:
    """A reader whose module is loaded when a file may be of its format: when ``may_be`` of the file's head is true."""

    def __init__(self, module: str, may_be: Callable[[bytes], bool]) -> None:
        self.__name__ = f"mio2trace.readers.{module}"
        self._may_be = may_be

    @property
    def _module(self) -> Reader:
        return cast(Reader, import_module(self.__name__))

    @property
    def NAME(self) -> str:
        return self._module.NAME

    def sniff(self, head: bytes) -> bool:
        return self._may_be(head) and self._module.sniff(head)

    def read(self, source: Source, options: ReadOptions, notes: Notes) -> Records:
        return self._module.read(source, options, notes)


def _is_json(head: bytes) -> bool:
    return head.lstrip()[:1] in (b"{", b"[")


def _is_sqlite(head: bytes) -> bool:
    return tables(head) != b""


def _is_protobuf(head: bytes) -> bool:
    return head[:1] == b"\x0a"


views = Later("tf.views", lambda head: b"_TFProfRoot (" in head)
OF_TENSORFLOW: tuple[Reader, ...] = (
    Later("tf.profile_proto", _is_protobuf),
    Later("tf.step_stats", _is_protobuf),
    Later("tf.step_stats_text", lambda head: b"dev_stats" in head),
    Later("tf.timeline_json", _is_json),
    views,
)
"""No reader recognises the op view of a console's text."""
READERS: tuple[Reader, ...] = (
    dvdt_json,
    ck,
    *OF_TENSORFLOW,
    rocpd,
    Later("rocm.rpd", lambda head: b"rocpd_" in head and _is_sqlite(head)),
    v3_csv,
    Later("kineto", _is_json),
    Later("rocm.v3_json", _is_json),
    Later("rocm.rpd_json", _is_json),
    v1_csv,
    Later("rocm.v1_db", _is_sqlite),
    Later("rocm.v1_json", _is_json),
    Later("xla", _is_protobuf),
    find_db,
    perf_db,
    tunable,
    bundled,
    run_log,
)
"""At most one of them recognises a file, except `run_log`, the last one, which accepts any text."""

PROFILES = tuple(reader for reader in READERS if reader not in (ck, *OF_TENSORFLOW, run_log))
"""Readers whose files a directory may represent."""
_KEYS = re.compile(rb'"([^"\\]{1,40})"\s*:')


class GoesWithATrace(InputError):
    """A table that a profiler writes beside the trace, and that adds nothing to the trace."""


class Accepted(NamedTuple):
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
    readers=(*OF_TENSORFLOW, bundled),
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
    refused = known.refusal(head, source.name)
    if refused is not None:
        kind = GoesWithATrace if known.goes_with_a_trace(head) else InputError
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
