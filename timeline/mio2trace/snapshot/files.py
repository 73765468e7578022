"""Snapshots in a dataset: ``folder/snapshot/<run>.parquet``, the tables of `mio2trace.snapshot.objects` one after the
other, each in as many rows as it has pieces."""

from __future__ import annotations

import contextlib
import itertools
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import msgspec
import numpy as np

from mio2trace.align import Alignment, DeviceClock, Links, LogClock, MarkedStep, Net, ProcessClock
from mio2trace.files import Input
from mio2trace.kernels import KernelFact
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import MiopenLog
from mio2trace.model.profile import Profile, misplaced
from mio2trace.model.tables import Numbers
from mio2trace.model.tf import TfProfile
from mio2trace.notes import InputError
from mio2trace.ops.operation import Operation
from mio2trace.runs import Share
from mio2trace.snapshot import FOLDER
from mio2trace.snapshot.database import Stream, asked, beside, connection, for_writing, literal, pieces, sql_text
from mio2trace.snapshot.objects import PIECE, Damaged, Table, from_tables, to_tables

VERSION = "7"
_INSTEAD = (
    "its tables can be asked (`mio2trace query`); for all else write the dataset again from the files of its runs"
)
_FREE, _EXPANSION = 16 << 20, 200
"""The most bytes of the tables in a file, and the most bytes per byte of the file."""
_MOST_TABLES = 1000
_TOGETHER = 2
"""How many rows of a whole piece DuckDB holds together: it holds them several times."""
_FAULTS = Damaged, ArithmeticError, LookupError, TypeError, ValueError, RecursionError, msgspec.MsgspecError


def write(snapshot: Snapshot, folder: Path, file: str) -> None:
    """Write a snapshot; the file gets its name when it is complete. Raises `InputError`."""
    try:
        tables = to_tables(snapshot)
    except OverflowError:
        raise InputError(f"{file}: a number of more than 64 bits, which no dataset keeps") from None
    summed, size = _sum(tables), sum(len(table.part) + sum(map(len, table.pieces)) for table in tables)
    together = _TOGETHER if any(len(table.pieces) > 1 for table in tables) else _MOST_TABLES
    kept = Stream(
        [
            {"part": pieces([table.part.encode()], "large_string"), "data": pieces([data], "large_binary")}
            for table in tables
            for data in table.pieces
        ],
        1,
    )
    tables.clear()
    with for_writing() as database, beside(folder / FOLDER / file) as temporary:
        database.register("kept", kept)
        for compression in ("zstd", "snappy"):  # the latter makes nothing so small that it is refused
            database.execute(
                f"COPY (SELECT part, data FROM kept) TO {sql_text(temporary)} (FORMAT parquet,"  # noqa: S608
                f" COMPRESSION {compression}, ROW_GROUP_SIZE {together}, KV_METADATA {{snapshot: '{VERSION}',"
                f" crc32: '{summed:08x}', generator: {sql_text(snapshot.generator)}}})"
            )
            if size <= _most(temporary):
                break
        database.unregister("kept")


def read(path: Path) -> Snapshot:
    """Raises `InputError` with one line if the file is no snapshot, is damaged, or is of another version."""
    most = _most(path)
    rows = f"read_parquet([{sql_text(literal(path))}], hive_partitioning=false)"
    with contextlib.closing(connection()) as database, asked(f"{path}: no snapshot of a run"):
        database.execute(f"SET memory_limit = '{(most >> 20) + 512}MiB'")
        pairs = dict(
            database.execute(f"SELECT key, value FROM parquet_kv_metadata({sql_text(literal(path))})").fetchall()  # noqa: S608
        )
        said = {key: pairs.get(key, b"").decode("utf-8", "replace") for key in (b"generator", b"snapshot", b"crc32")}
        if said[b"snapshot"] != VERSION:
            version = said[b"snapshot"] or "unknown"
            raise InputError(f"{path}: a snapshot of version {version}, this reads {VERSION}: {_INSTEAD}")
        count, size = database.execute(
            f"SELECT count(*), sum(octet_length(data::BLOB) + octet_length(part::VARCHAR::BLOB)) FROM {rows}"  # noqa: S608
        ).fetchall()[0]
        if not 0 < count <= _MOST_TABLES + most // PIECE or size > most:
            raise InputError(f"{path}: no snapshot of a run: {count} pieces of {size} bytes")
        found = database.execute(f"SELECT part::VARCHAR, data::BLOB FROM {rows}").fetchall()  # noqa: S608
    try:
        if not all(isinstance(part, str) and isinstance(data, bytes) for part, data in found):
            raise Damaged("a table without a name or without data")
        tables = [Table(part, [data for _, data in rows]) for part, rows in itertools.groupby(found, itemgetter(0))]
        found.clear()
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


def _most(path: Path) -> int:
    """Return how many bytes of tables a file may hold."""
    return _FREE + _EXPANSION * os.path.getsize(path)


def _sum(tables: list[Table]) -> int:
    crc = 0
    for table in tables:
        for piece in (table.part.encode(), *table.pieces):
            crc = zlib.crc32(piece, crc)
    return crc


# -- Checks that types cannot make: lengths that must agree, places in lists to which records refer --------------------

_NONE = -1


def wrong_in(snapshot: Snapshot) -> str:
    """Return in words the first error of a snapshot; empty if the program could have written it."""
    if not snapshot.runs:
        return "no run"
    return next((wrong for run in (*snapshot.runs, *snapshot.repetitions) for wrong in _of_run(run)), "")


def _of_run(run: KeptRun) -> Iterator[str]:
    alignments = [*run.alignments, *((run.framework,) if run.framework is not None else ())]
    reference = run.reference
    if reference is not None:
        alignments += reference.alignments
        if len(reference.of) != len(reference.alignments):
            yield f"{len(reference.of)} places of {len(reference.alignments)} runs without a log"
        yield from _places("run without a log of", reference.of, len(run.alignments))
    if len(run.operations_by_log) != len(run.libraries):
        yield f"operations of {len(run.operations_by_log)} of {len(run.libraries)} logs"
    if run.alignments and len(run.shares) not in (0, len(run.alignments)):
        yield f"logs of {len(run.shares)} of {len(run.alignments)} processes"
    if not run.inputs:
        yield "a run of no files"
    for profile in {id(one): one for one in (*run.profiles, *(one.profile for one in alignments))}.values():
        yield from _of_profile(profile)
    for alignment in {id(one): one for one in alignments}.values():
        yield from _of_links(alignment)


def _of_profile(profile: Profile) -> Iterator[str]:
    wrong = misplaced(profile)
    if wrong:
        yield wrong
    if profile.activities and not (profile.clocks and profile.devices and profile.queues):
        yield "activities of no queue, device or clock"
    commands = profile.commands
    backwards = commands.has_times & (commands.start_ns > commands.end_ns)
    if backwards.any():
        yield f"an activity from {commands.start_ns[backwards][0]} to {commands.end_ns[backwards][0]} ns"


def _of_links(alignment: KeptAlignment) -> Iterator[str]:
    links, count = alignment.links, len(alignment.profile.activities)
    columns = {name: np.asarray(getattr(links, name)) for name in ("run_of", "pass_of", "operation_of")}
    by = {name: getattr(links, name).column for name in ("layer_by", "operation_by")}
    lengths = sorted(map(len, (links.activities, *columns.values(), *by.values())))
    if {*lengths} != {count}:
        yield f"links of {lengths[0]} to {lengths[-1]} of {count} activities"
    indexes = {operation.index for operation in links.operations}
    if len(indexes) != len(links.operations):
        yield "two operations of one number"
    stray = {*np.unique(columns["operation_of"]).tolist()} - indexes - {_NONE}
    if stray:
        yield f"operation {min(stray)}, of which there is none"
    yield from _places("layer", columns["run_of"], len(links.runs), least=_NONE)
    yield from _places("pass", columns["pass_of"], len(links.passes), least=_NONE)
    yield from _places("pass", links.runs.column("pass_"), len(links.passes), least=_NONE)
    named = (
        *links.layer_confidence, *links.layer_unsure, *links.operation_confidence, *links.operation_unsure,
    )  # fmt: skip
    yield from _places("activity", named, count)
    if not all(0 <= one <= 1 for one in (*links.layer_confidence.values(), *links.operation_confidence.values())):
        yield "a confidence that is no probability"
    for what, evidence, to in ("a layer", "layer_by", "run_of"), ("an operation", "operation_by", "operation_of"):
        if ((by[evidence] == 0) & (columns[to] != _NONE)).any():
            yield f"{what} without its evidence"


def _places(what: str, numbers: Sequence[int] | Numbers, count: int, least: int = 0) -> Iterator[str]:
    given = np.asarray(numbers, np.int64)
    wrong = given[(given < least) | (given >= count)]
    if len(wrong):
        yield f"{what} {wrong[0]} of {count}"


# -- The records of a snapshot: a run and its alignments in their stored form, and back --------------------------------


class KeptAlignment(msgspec.Struct, frozen=True, kw_only=True):
    """`mio2trace.align.Alignment`, except how its links were found."""

    profile: Profile
    net: Net
    links: Links
    clocks: Mapping[int, DeviceClock]
    log_clock: LogClock | None
    facts: Mapping[int, KernelFact]
    logs: tuple[FrameworkLog, ...]
    process_clock: ProcessClock | None
    steps: tuple[MarkedStep, ...] = ()


class KeptReference(msgspec.Struct, frozen=True, kw_only=True):
    """`mio2trace.analysis.Reference`."""

    alignments: tuple[KeptAlignment, ...] = ()
    of: tuple[int, ...] = ()
    logs: tuple[FrameworkLog, ...] = ()


class KeptRun(msgspec.Struct, frozen=True, kw_only=True):
    """`mio2trace.Run`. ``inputs`` have their records, but no path."""

    name: str
    inputs: tuple[Input, ...]
    profiles: tuple[Profile, ...]
    logs: tuple[FrameworkLog, ...]
    libraries: tuple[MiopenLog, ...]
    tf_profiles: tuple[TfProfile, ...]
    operations_by_log: tuple[tuple[Operation, ...], ...]
    alignments: tuple[KeptAlignment, ...]
    framework: KeptAlignment | None
    shares: tuple[Share, ...]
    complete: bool
    reference: KeptReference | None = None


class KeptNote(msgspec.Struct, frozen=True, kw_only=True):
    """`mio2trace.notes.Note`."""

    kind: str
    count: int
    places: tuple[str, ...]
    problem: bool


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The stored analysis of one run. ``repetitions``: if a CK record has several, each is a run."""

    generator: str
    runs: tuple[KeptRun, ...]
    notes: tuple[KeptNote, ...] = ()
    repetitions: tuple[KeptRun, ...] = ()


def kept_alignment(alignment: Alignment) -> KeptAlignment:
    return KeptAlignment(**{name: getattr(alignment, name) for name in KeptAlignment.__struct_fields__})


def restored_alignment(kept: KeptAlignment) -> Alignment:
    return Alignment(**{name: getattr(kept, name) for name in KeptAlignment.__struct_fields__})
