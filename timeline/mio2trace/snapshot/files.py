"""Snapshots in a dataset: ``folder/snapshot/<run>.parquet``, a row a column of `mio2trace.snapshot.objects`."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from mio2trace.notes import InputError
from mio2trace.snapshot.database import asked, beside, connection, for_writing, sql_text
from mio2trace.snapshot.objects import Column, from_columns, to_columns
from mio2trace.snapshot.places import FOLDER
from mio2trace.snapshot.records import Snapshot
from mio2trace.snapshot.values import Damaged

VERSION = "2"


def write(snapshot: Snapshot, folder: Path, file: str) -> None:
    """Write one, beside and renamed. Raises `InputError`."""
    columns = [
        (column.part, column.name, column.count, msgspec.msgpack.encode(column.node)) for column in to_columns(snapshot)
    ]
    with for_writing() as database, beside(folder / FOLDER / file) as temporary:
        parts, names, counts, data = map(list, zip(*columns, strict=True))
        database.execute(  # all at once: a row after the other takes thirty times as long
            "COPY (SELECT unnest($parts::VARCHAR[]) AS part, unnest($names::VARCHAR[]) AS name,"
            " unnest($counts::BIGINT[]) AS count, unnest($data::BLOB[]) AS data)"
            f" TO {sql_text(temporary)} (FORMAT parquet, COMPRESSION zstd, KV_METADATA"
            f" {{snapshot: '{VERSION}', generator: {sql_text(snapshot.generator)}}})",
            {"parts": parts, "names": names, "counts": counts, "data": data},
        )


def read(path: Path) -> Snapshot:
    """Raises `InputError` with one line for what is none, is damaged, or of another version."""
    with contextlib.closing(connection()) as database, asked(f"{path}: no snapshot of a run"):
        pairs = database.execute(f"SELECT key, value FROM parquet_kv_metadata({sql_text(path)})").fetchall()  # noqa: S608
        by = dict(pairs).get(b"generator", b"another program").decode("utf-8", "replace")
        version = dict(pairs).get(b"snapshot", b"").decode("utf-8", "replace")
        if version != VERSION:
            raise InputError(f"{path}: a snapshot of version {version or 'unknown'}; expected {VERSION}")
        rows = database.execute(
            f"SELECT part, name, count, data FROM read_parquet({sql_text(path)})"  # noqa: S608
        ).fetchall()
    try:
        columns = [Column(part, name, count, msgspec.msgpack.decode(data)) for part, name, count, data in rows]
        snapshot = from_columns(Snapshot, columns)
    except (Damaged, ArithmeticError, LookupError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InputError(
            f"{path}: damaged, or unlike what this version keeps of a run; written by {by}: {error}"
        ) from None
    assert isinstance(snapshot, Snapshot)
    return snapshot
