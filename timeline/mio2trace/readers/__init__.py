"""One module per source format. A format is recognised by its content, never by its name.

A new format is one module with the three names of `base.Reader` and one row of `READERS`.
"""

from __future__ import annotations

import re

from mio2trace.notes import InputError
from mio2trace.readers import run_log
from mio2trace.readers.base import Reader
from mio2trace.readers.ck import record as ck
from mio2trace.readers.opencl import dvdt_json
from mio2trace.readers.tf import profile_proto, run_metadata, step_stats_text, timeline_json, views
from mio2trace.source import Source

READERS: tuple[Reader, ...] = (
    dvdt_json,
    ck,
    profile_proto,
    run_metadata,
    step_stats_text,
    timeline_json,
    views,
    run_log,
)
"""At most one of them recognises a file, but for `run_log`, the last: it takes any text that is no other's."""

_KEYS = re.compile(rb'"([^"\\]{1,40})"\s*:')


def detect(source: Source) -> Reader:
    """The reader of ``source``'s format. Raises `InputError` when there is none."""
    head = source.head
    if not head.strip():
        raise InputError(f"{source.name}: empty; expected a log or a profile")
    for reader in READERS:
        if reader.sniff(head):
            return reader
    expected = "expected " + ", ".join(reader.NAME for reader in READERS)
    if head.lstrip()[:1] in (b"{", b"["):
        keys = list(dict.fromkeys(key.decode(errors="replace") for key in _KEYS.findall(head)))[:4]
        found = f"JSON with the keys {', '.join(keys)}" if keys else "JSON of no known form"
    else:
        found = f"binary data that begins {head[:8].hex(' ')}"
    raise InputError(f"{source.name}: {found}; {expected}")
