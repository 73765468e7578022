"""Snapshots in a dataset: ``folder/snapshot/<run>.parquet``, a row a table of `mio2trace.snapshot.objects`."""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path

import msgspec

from mio2trace.notes import InputError
from mio2trace.snapshot.checks import wrong_in
from mio2trace.snapshot.database import asked, beside, connection, for_writing, sql_text
from mio2trace.snapshot.objects import Damaged, Table, from_tables, to_tables
from mio2trace.snapshot.places import FOLDER
from mio2trace.snapshot.records import Snapshot

VERSION = "3"
_INSTEAD = (
    "its tables can be asked (`mio2trace query`); for all else write the dataset again from the files of its runs"
)
_FREE, _EXPANSION = 16 << 20, 200
"""Bytes, and times the size of the file, that its tables may have."""
_MOST_TABLES = 1000
_FAULTS = Damaged, ArithmeticError, LookupError, TypeError, ValueError, RecursionError, msgspec.MsgspecError


def write(snapshot: Snapshot, folder: Path, file: str) -> None:
    """Write one, beside and renamed. Raises `InputError`."""
    try:
        tables = to_tables(snapshot)
    except OverflowError:
        raise InputError(f"{file}: a number of more than 64 bits, which no dataset keeps") from None
    with for_writing() as database, beside(folder / FOLDER / file) as temporary:
        database.execute(  # all at once: a row after the other takes thirty times as long
            "COPY (SELECT unnest($parts::VARCHAR[]) AS part, unnest($data::BLOB[]) AS data)"
            f" TO {sql_text(temporary)} (FORMAT parquet, COMPRESSION zstd, KV_METADATA {{snapshot: '{VERSION}',"
            f" crc32: '{_sum(tables):08x}', generator: {sql_text(snapshot.generator)}}})",
            {"parts": [table.part for table in tables], "data": [table.data for table in tables]},
        )


def read(path: Path) -> Snapshot:
    """Raises `InputError` with one line for what is none, is damaged, or of another version."""
    most = _FREE + _EXPANSION * os.path.getsize(path)
    rows = f"read_parquet([{sql_text(_literal(path))}], hive_partitioning=false)"
    with contextlib.closing(connection()) as database, asked(f"{path}: no snapshot of a run"):
        database.execute(f"SET memory_limit = '{(most >> 20) + 512}MiB'")
        pairs = dict(
            database.execute(f"SELECT key, value FROM parquet_kv_metadata({sql_text(_literal(path))})").fetchall()  # noqa: S608
        )
        said = {key: pairs.get(key, b"").decode("utf-8", "replace") for key in (b"generator", b"snapshot", b"crc32")}
        if said[b"snapshot"] != VERSION:
            version = said[b"snapshot"] or "unknown"
            raise InputError(f"{path}: a snapshot of version {version}, this reads {VERSION}: {_INSTEAD}")
        count, size = database.execute(
            f"SELECT count(*), sum(octet_length(data::BLOB) + octet_length(part::VARCHAR::BLOB)) FROM {rows}"  # noqa: S608
        ).fetchall()[0]
        if not 0 < count <= _MOST_TABLES or size > most:
            raise InputError(f"{path}: no snapshot of a run: {count} tables of {size} bytes")
        found = database.execute(f"SELECT part::VARCHAR, data::BLOB FROM {rows}").fetchall()  # noqa: S608
    try:
        tables = [msgspec.convert((part, data), Table, strict=True) for part, data in found]
        if f"{_sum(tables):08x}" != said[b"crc32"]:
            raise Damaged("its checksum differs")
        snapshot: Snapshot = from_tables(Snapshot, tables)
        wrong = wrong_in(snapshot)
        if wrong:
            raise Damaged(wrong)
    except _FAULTS as error:
        by = said[b"generator"] or "another program"
        raise InputError(
            f"{path}: damaged, or unlike what this version keeps of a run; written by {by}: {error}"
        ) from None
    return snapshot


def _sum(tables: list[Table]) -> int:
    crc = 0
    for table in tables:
        crc = zlib.crc32(table.data, zlib.crc32(table.part.encode(), crc))
    return crc


def _literal(path: Path) -> str:
    """A path that means itself, whatever wildcards are in it."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(path))
