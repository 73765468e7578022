"""One module per source format. A format is recognised by its content, never by its name.

A new format is one module with the three names of `base.Reader` and one row of `READERS`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mio2trace.notes import InputError
from mio2trace.readers import bundled, kineto, known, run_log, xla
from mio2trace.readers import ck as ck
from mio2trace.readers import tunable as tunable
from mio2trace.readers.base import Reader
from mio2trace.readers.miopen import find_db, perf_db
from mio2trace.readers.opencl import dvdt_json
from mio2trace.readers.rocm import rocpd, rpd, rpd_json, v1_csv, v1_db, v1_json, v3_csv, v3_json
from mio2trace.readers.tf import profile_proto, step_stats, step_stats_text, timeline_json, views
from mio2trace.source import Source

OF_TENSORFLOW: tuple[Reader, ...] = (profile_proto, step_stats, step_stats_text, timeline_json, views)
"""No reader recognises the op view of a console's text."""
READERS: tuple[Reader, ...] = (
    dvdt_json,
    ck,
    *OF_TENSORFLOW,
    rocpd,
    rpd,
    v3_csv,
    kineto,
    v3_json,
    rpd_json,
    v1_csv,
    v1_db,
    v1_json,
    xla,
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
