"""Every reader in the package, and what feeds it: `tests/test_fuzz.py` holds the table to the code.

A reader is a module that makes something of bytes which a file may hold: `reading` finds it by the calls in it. What it
is fed with is a kind of `structures.GENERATORS` (well formed, mutated, crossed, damaged: `benchmarks/fuzz.py`), or of
`own.KINDS` (`benchmarks/fuzz_own.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from mio2trace.readers import READERS as READERS_OF_RUNS

PACKAGE = Path(__file__).resolve().parents[2] / "timeline" / "mio2trace"
_CALLS = frozenset({
    "loads", "read_bytes", "read_text", "deserialize", "decompressobj", "decompress", "GzipFile", "ZipFile", "TarFile",
    "readline", "executemany", "connect", "fromhex", "literal_eval", "fromstring", "frombytes", "unpack_from",
    "iter_unpack", "open",
})  # fmt: skip
_WHOLE_CALLS = frozenset({
    "open", "file.read", "csv.reader", "csv.DictReader", "msgspec.convert", "msgspec.json.decode",
    "msgspec.json.Decoder", "msgspec.msgpack.decode", "msgspec.msgpack.Decoder", "struct.unpack",
    "marshal.load", "pickle.load",
})  # fmt: skip

_OF_SQL = "read_parquet(", "read_ndjson(", "parquet_kv_metadata("


class Fed(NamedTuple):
    """``by``: kinds of cases; ``no_file``: why nothing feeds it, where what it opens is no file of a stranger."""

    by: tuple[str, ...] = ()
    no_file: str = ""


def reading() -> Iterator[str]:
    """The modules of the package that read bytes, by their paths in it."""
    # a module, one that is loaded later, or one of several formats of a module
    known = {getattr(reader, "__name__", reader.read.__module__) for reader in READERS_OF_RUNS}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(("mio2trace", *path.relative_to(PACKAGE).with_suffix("").parts))
        if name in known or any(_reads(node) for node in ast.walk(ast.parse(path.read_text("utf-8")))):
            yield str(path.relative_to(PACKAGE))


def _reads(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and any(function in node.value for function in _OF_SQL)
    if not isinstance(node, ast.Call):
        return False
    if ast.unparse(node.func) in _WHOLE_CALLS:
        return True
    return isinstance(node.func, ast.Attribute) and node.func.attr in _CALLS


_LOGS = ("log with dv/dt text", "MIOpen log", "Caffe log")
_PROFILES = ("dv/dt JSON", "ROCm", "Kineto")
_OURS = "a file of the program's own"
_WRITES = "it writes only"
_HERE = "this machine's own files"

READERS: Mapping[str, Fed] = {
    "align/links.py": Fed(no_file="columns of its own"),
    "answer/html.py": Fed(no_file=_OURS),
    "batch/confined.py": Fed(no_file="pipes between its own processes"),
    "batch/work.py": Fed(("journal",)),
    "bundles.py": Fed(no_file=_WRITES),
    "cli.py": Fed(no_file="/dev/null"),
    "commands/doctor.py": Fed(no_file=_HERE),
    "commands/serve.py": Fed(no_file="the browser"),
    "comparing/sides.py": Fed(("base", "trace", "hostile trace")),
    "dataset/__init__.py": Fed(no_file="it reads back what it wrote itself"),
    "files.py": Fed(no_file=_WRITES),
    "findings/subject.py": Fed(no_file="a file that the person wrote for --gpu"),
    "kernels/facts.py": Fed(("dv/dt JSON", "log with dv/dt text")),
    "machine.py": Fed(no_file="what the system says of its memory"),
    "model/profile.py": Fed(("bundle",)),
    "model/tables.py": Fed(no_file="numbers that readers hand over"),
    "ops/log/statements.py": Fed(("MIOpen log",)),
    "privacy/__init__.py": Fed(_PROFILES),
    "queries/__init__.py": Fed(("trace", "hostile trace", "dataset", "journal", "folder")),
    "readers/gemms.py": Fed(("databases",)),
    "readers/bundled.py": Fed(("bundle",)),
    "readers/ck.py": Fed(("CK record",)),
    "readers/collected.py": Fed(_LOGS),
    "readers/__init__.py": Fed((*_LOGS, *_PROFILES)),
    "readers/miopen/databases.py": Fed(("databases",)),
    "readers/opencl/dvdt.py": Fed(("dv/dt JSON", "log and dv/dt JSON", "log with a dv/dt array", "sums")),
    "readers/rocm/assembly.py": Fed(("ROCm",)),
    "readers/rocm/database.py": Fed(("ROCm", "beside", "sums")),
    "readers/rocm/events.py": Fed(("ROCm",)),
    "readers/rocm/rocpd.py": Fed(("ROCm", "beside", "sums")),
    "readers/rocm/rpd.py": Fed(("ROCm", "beside")),
    "readers/rocm/v1.py": Fed(("ROCm",)),
    "readers/rocm/v3_csv.py": Fed(("ROCm",)),
    "readers/rocm/v3_json.py": Fed(("ROCm",)),
    "readers/run_log.py": Fed((*_LOGS, "log with a dv/dt array")),
    "readers/tf/profile_proto.py": Fed(("TensorFlow",)),
    "readers/tf/step_stats.py": Fed(("TensorFlow",)),
    "readers/tf/views.py": Fed(("TensorFlow",)),
    "readers/pieces.py": Fed(("Kineto", "sums")),
    "readers/kineto.py": Fed(("Kineto", "sums")),
    "readers/xla.py": Fed(("XSpace",)),
    "recording/session.py": Fed(no_file="outputs of the profiler that it has just run"),
    "recording/__init__.py": Fed(no_file=_HERE),
    "snapshot/database.py": Fed(("dataset", "snapshot")),
    "snapshot/files.py": Fed(("snapshot",)),
    "snapshot/objects.py": Fed(("snapshot",)),
    "snapshot/__init__.py": Fed(("dataset", "snapshot", "folder")),
    "source.py": Fed((*_LOGS, *_PROFILES, "bundle", "tar")),
    "writers/archive.py": Fed(no_file=_WRITES),
    "writers/events.py": Fed(("trace", "hostile trace")),
    "writers/packets.py": Fed(("trace", "hostile trace")),
}
