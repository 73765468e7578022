"""Our own formats as a stranger has made or changed them, and what lies beside a file: each kind with its own law.

* trace: changed since it was written: read back equal, or said (`own_traces`). hostile trace: its checksum is right.
* base, snapshot, dataset, journal, bundle, tar: any command on it gives a result, or is refused in one line.
* beside: a database with a write-ahead log or a rollback journal of any bytes; folder: names that mean something else.
* XSpace, databases: formats that `structures` does not make.
* sums: the time of all kernels of a profile is that of an independent sum over its bytes, or a problem is noted.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import json
import os
import random
import shutil
import sqlite3
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec

from mio2trace.analysis import AnalysisOptions, analyse
from mio2trace.batch import work
from mio2trace.batch.confined import UNLIMITED, Ended, Limits
from mio2trace.batch.work import Entry
from mio2trace.bundles import make
from mio2trace.comparing import sides
from mio2trace.comparing.sides import OPTIONS, side
from mio2trace.dataset import write_run
from mio2trace.notes import Notes
from mio2trace.snapshot.database import connection, sql_text
from tests import rocm_made, xspace_made
from tests.fuzz import damage, hostile, kineto, law, looks, mutations, own_traces, rocm, side_files, structures
from tests.small_runs import as_json, benchmark

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Chance = random.Random
Judge = Callable[[Chance], str]
_READ_AS_RUN: Sequence[tuple[str, ...]] = (
    ("report", "--format", "text"),
    ("report", "--format", "json"),
    ("layers", "--format", "json"),
    ("kernels", "--format", "json"),
    ("kernels", "--by", "layer"),
    ("ops", "--group-by", "problem"),
    ("driver",),
    ("compare",),
    ("query",),
)
_QUERIES = ("slowest problems", "regressions", "failures", "outliers", "select * from kernels", "select * from runs")
_TABLES = ("runs", "kernels", "operations", "layers", "problems", "iterations", "findings")


# ---- asking


def as_run(place: Path, chance: Chance, size: int) -> str:
    """One command on what is an input in place of a run."""
    words = chance.choice(_READ_AS_RUN)
    more = [str(place)] if words[0] == "compare" else ["select count(*) from kernels"] if words[0] == "query" else []
    return _answered([*words, str(place), *more], size)


def _answered(words: Sequence[str], size: int) -> str:
    return "refused" if looks.asked(words, size).exit_code else "read"


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="mio2trace-own-", dir=law._memory()))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@cache
def _run_files() -> dict[str, bytes]:
    calls, log = benchmark()
    return {"run.log": log.encode(), "prof.json": as_json(calls)}


def _put(place: Path, files: Mapping[str, bytes]) -> list[Path]:
    for name, data in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return [place / name for name in files]


def _changed(data: bytes, chance: Chance) -> bytes:
    pick = chance.random()
    if pick < 0.5:
        return mutations.mutated(data, chance)
    if pick < 0.8:
        return own_traces.bytes_changed(data, chance)
    return damage.damaged([data], chance)[0]


# ---- traces, bases


def trace(chance: Chance) -> str:
    form, data = own_traces.changed(str(chance.random()))
    return own_traces.judge(data, form)


def hostile_trace(chance: Chance) -> str:
    form, data = own_traces.hostile(str(chance.random()))
    return own_traces.judge_hostile(data, form)


@cache
def _base() -> bytes:
    with folder() as place:
        paths = _put(place, _run_files())
        return sides.base_text(side([*map(str, paths)], OPTIONS, Notes()), "mio2trace")


def of_base(chance: Chance) -> str:
    with folder() as place:
        data = _changed(_base(), chance)
        changed, good = _put(place, {"a.json": data, "b.json": _base()})
        words = ["compare", *map(str, chance.choice(([changed, good], [good, changed], [changed, changed])))]
        words += chance.choice(([], ["--format", "json"], ["--fail-above", "5%"], ["-o", str(place / "x.html")]))
        return "refused" if looks.asked(words, len(data)).exit_code == 1 else "read"


# ---- datasets


@cache
def _dataset() -> dict[str, bytes]:
    """The files of a dataset of one run."""
    with folder() as place:
        analysis = analyse(_put(place, _run_files()))
        for name in ("a", "b"):
            write_run(analysis.run, place / "ds", name, analysis.notes, cleaner=analysis.cleaner)
        return {str(path.relative_to(place)): path.read_bytes() for path in sorted((place / "ds").rglob("*.parquet"))}


@cache
def _snapshot_rows() -> tuple[list[tuple[str, bytes]], dict[str, str]]:
    with folder() as place, contextlib.closing(connection()) as database:
        (path,) = _put(place, {"x.parquet": _dataset()["ds/snapshot/a.parquet"]})
        pairs = database.execute(f"SELECT key, value FROM parquet_kv_metadata({sql_text(path)})").fetchall()
        rows = database.execute(f"SELECT part, data FROM read_parquet({sql_text(path)})").fetchall()
    return rows, {key.decode(): value.decode() for key, value in pairs}


@cache
def _writer() -> DuckDBPyConnection:
    """The database by which cases are made: to open one takes as long as a case."""
    return connection()


def _resealed_snapshot(rows: Sequence[tuple[str, bytes]], path: Path) -> None:
    """As the program writes one, with the checksum of what is in it."""
    crc = 0
    for part, data in rows:
        crc = zlib.crc32(data, zlib.crc32(part.encode(), crc))
    said = ", ".join(
        f"{key}: {sql_text(value)}" for key, value in {**_snapshot_rows()[1], "crc32": f"{crc:08x}"}.items()
    )
    _writer().execute(
        "COPY (SELECT unnest($parts::VARCHAR[]) AS part, unnest($data::BLOB[]) AS data)"
        f" TO {sql_text(path)} (FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{said}}})",
        {"parts": [part for part, _ in rows], "data": [data for _, data in rows]},
    )


def _other_value(value: Any, chance: Chance) -> Any:
    """Somewhere in it a number, a text, a length or an order is another."""
    if isinstance(value, dict) and value:
        key = chance.choice(list(value))
        return value | {key: _other_value(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        return [*value[:at], _other_value(value[at], chance), *value[at + 1 :]]
    if isinstance(value, list):
        return chance.choice(([], value * 2, value[:-1], value[::-1], [value], [*value, 0]))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        near = value + chance.choice((1, -1, 2, 10, -value, 1 << 20, -(1 << 20)))
        return chance.choice((near, near, near, -1, 0, 1 << 31, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1))
    if isinstance(value, float):
        return chance.choice((0.0, -1.0, 1e300, float("nan"), float("inf"), 0.5))
    if isinstance(value, str):
        return hostile.text(chance).encode("utf-8", "replace").decode()
    return chance.choice((0, 1, "", None, [], True))


def snapshot(chance: Chance) -> str:
    with folder() as place:
        files = {name: data for name, data in _dataset().items() if name.endswith("/a.parquet")}
        size = sum(map(len, files.values()))
        name = "ds/snapshot/a.parquet"
        if chance.random() < 0.2:
            files[name] = _changed(files[name], chance)
            _put(place, files)
        else:
            _put(place, files)
            rows = list(_snapshot_rows()[0])
            for _ in range(chance.choice((1, 1, 2, 4))):
                at = chance.randrange(len(rows))
                part, data = rows[at]
                with contextlib.suppress(OverflowError, UnicodeEncodeError, msgspec.MsgspecError):
                    rows[at] = part, msgspec.msgpack.encode(_other_value(msgspec.msgpack.decode(data), chance))
            if chance.random() < 0.05:
                chance.shuffle(rows)
            _resealed_snapshot(rows, place / name)
        return as_run(place / "ds", chance, size)


_CELLS = (
    "NULL", "-1", "0", "9223372036854775807", "-9223372036854775808", "'NaN'::DOUBLE", "'Infinity'::DOUBLE", "1e300",
    "'x'", "''", "repeat('x', 5000)", "true", "[1, 2]", "{'a': 1}", "'\\xff\\x00'::BLOB", "now()", "chr(27) || '[31m'",
)  # fmt: skip


def dataset(chance: Chance) -> str:
    """Tables of other bytes, columns, types and values."""
    with folder() as place:
        files = dict(_dataset())
        size = sum(map(len, files.values()))
        name = chance.choice([name for name in files if "/snapshot/" not in name])
        if chance.random() < 0.4:
            files[name] = _changed(files[name], chance)
        _put(place, files)
        if files[name] == _dataset()[name]:
            _other_table(place / name, chance)
        if chance.random() < 0.3:
            form = chance.choice(("html", "text"))
            return _answered(["report", str(place / "ds"), "--format", form], size)
        return _answered(["query", str(place / "ds"), chance.choice(_QUERIES)], size)


def _other_table(path: Path, chance: Chance) -> None:
    of = f"read_parquet({sql_text(path)})"
    columns = [column[0] for column in _writer().execute(f"SELECT * FROM {of} LIMIT 0").description or ()]
    column, cell = f'"{chance.choice(columns)}"', chance.choice(_CELLS)  # one may be called as a word of SQL
    others = chance.choice((
        f"SELECT * REPLACE ({cell} AS {column}) FROM {of}",
        f"SELECT * EXCLUDE ({column}) FROM {of}",
        f"SELECT *, {cell} AS more FROM {of}",
        f"SELECT * FROM {of} LIMIT 0",
        f"SELECT t.* FROM {of} t, range(50)",
        f"SELECT {cell} AS {column}",
    ))  # fmt: skip
    _writer().execute(f"COPY ({others}) TO {sql_text(path.with_name('.new'))} (FORMAT parquet)")
    os.replace(path.with_name(".new"), path)


def journal(chance: Chance) -> str:
    """Lines of a batch's journal."""
    with folder() as place:
        entry = Entry(run="a", state="converted", inputs=("0" * 64,), version="0.2", seconds=1.5, ended=1e9)
        failed = msgspec.structs.replace(entry, run="b", state="failed", error="x.log: empty")
        lines = [msgspec.json.encode(one) for one in (entry, failed)]
        lines = [_changed(line, chance) if chance.random() < 0.7 else line for line in lines]
        data = b"\n".join(lines) + chance.choice((b"\n", b"", b"\n{"))
        _put(place, {**_dataset(), "ds/_runs.jsonl": data})
        words = chance.choice((["report", "--format", "text"], ["query", "failures"], ["batch"]))
        if words == ["batch"]:
            (run,) = _put(place / "in", {"r/run.log": _run_files()["run.log"]})
            words = ["batch", str(run.parent.parent), "-o", str(place / "ds"), "-q"]
        else:
            words = [words[0], str(place / "ds"), *words[1:]]
        with contextlib.nullcontext() if chance.random() < 0.02 else _not_confined():
            return _answered(words, 200_000)


class _Unconfined:
    """In place of `batch.confined`: a call in this process, which takes a twentieth of the time."""

    def call(self, function: str, *arguments: Any, limits: Limits = UNLIMITED) -> Ended:
        told: list[object] = []
        module, _, name = function.partition(":")
        value = getattr(importlib.import_module(module), name)(*arguments, tell=told.append)
        return Ended("done", value, told[-1] if told else None)

    def stop(self) -> None:
        """Nothing runs."""

    close = stop


def _not_confined() -> contextlib.AbstractContextManager[object]:
    return mock.patch.object(work, "of_this_thread", return_value=_Unconfined())


# ---- bundles


@cache
def _bundle() -> bytes:
    with folder() as place:
        paths = [*map(str, _put(place, _run_files()))]
        make(paths, str(place / "b.zip"), AnalysisOptions())
        return (place / "b.zip").read_bytes()


def bundle(chance: Chance) -> str:
    with folder() as place:
        data = _changed(_bundle(), chance) if chance.random() < 0.3 else _other_members(_bundle(), chance)
        (path,) = _put(place, {"b.zip": data})
        return as_run(path, chance, len(data))


def _other_members(data: bytes, chance: Chance) -> bytes:
    """The archive with a member of other content, or another name."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        names = old.namelist()
        which = chance.choice([name for name in names if not name.endswith((".pftrace.gz", ".md"))])
        for name in names:
            inside = old.read(name)
            if name == which and name.endswith(".gz"):
                inside = gzip.compress(_changed(gzip.decompress(inside), chance), 1)
            elif name == which:
                inside = _changed(inside, chance)
            if name == which and chance.random() < 0.1:
                name = chance.choice(("../x", "/x", "a/b", "", "x" * 300, ".", "manifest.json", "version=1"))
            with contextlib.suppress(ValueError, UserWarning):
                new.writestr(name or "_", inside)
    return out.getvalue()


def tar(chance: Chance) -> str:
    """A bundle as a tar archive: in each of its forms, with changed bytes, or headers of other values."""
    out = io.BytesIO()
    form = chance.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
    with zipfile.ZipFile(io.BytesIO(_bundle())) as old, tarfile.open(fileobj=out, mode="w", format=form) as new:
        for name in old.namelist():
            inside = old.read(name)
            info = tarfile.TarInfo(name)
            info.size = len(inside)
            if chance.random() < 0.1:
                _change_header(info, chance)
            with contextlib.suppress(ValueError, OSError):  # the form has no place for it
                new.addfile(info, io.BytesIO(inside))
    data = out.getvalue()
    if chance.random() < 0.6:
        data = _changed_blocks(data, chance) if chance.random() < 0.5 else _changed(data, chance)
    with folder() as place:
        (path,) = _put(place, {"b.tar": gzip.compress(data, 1) if chance.random() < 0.3 else data})
        return as_run(path, chance, len(data))


def _change_header(info: tarfile.TarInfo, chance: Chance) -> None:
    names = ("../x", "/x", "a/b", "./" * 300 + "x", "x" * 300, ".", "manifest.json", "d/" * 40 + "x", "a\\b", "\udc80")
    records = ({"path": "../x"}, {"size": "9" * 5000}, {"size": "-1"}, {"GNU.sparse.major": "1"}, {"comment": "\0=\n"})
    changes: tuple[Callable[[], None], ...] = (
        lambda: setattr(info, "name", chance.choice(names)),
        lambda: setattr(info, "type", chance.choice("01234567xgLKSV").encode()),
        lambda: setattr(info, "size", chance.choice((0, info.size + 512, 1 << 40, 1 << 70))),
        lambda: setattr(info, "pax_headers", dict(chance.choice(records))),
    )  # fmt: skip
    chance.choice(changes)()


def _changed_blocks(data: bytes, chance: Chance) -> bytes:
    """The archive with blocks that are repeated, exchanged or left out."""
    blocks = [data[at : at + 512] for at in range(0, len(data), 512)]
    for _ in range(chance.randint(1, 4)):
        at, other = chance.randrange(len(blocks)), chance.randrange(len(blocks))
        blocks[at : at + 1] = chance.choice(([], 2 * [blocks[at]], [blocks[other]]))
    return b"".join(blocks)


# ---- beside a file, names of folders


def beside(chance: Chance) -> str:
    """A database with a log or a journal beside it: the sum of its kernels, or a refusal."""
    with folder() as place:
        one = rocm_made.run("")
        form = chance.choice((rocm_made.rocpd, rocm_made.rpd))
        data = form(one)
        (path,) = _put(place, {"results.db": data})
        with_log = _with_log(path, chance)
        name, more = chance.choice((("results.db-wal", _wal), ("results.db-journal", _journal)))
        given = more(data, with_log, chance)
        (place / "made.db").unlink(missing_ok=True)
        for leftover in place.glob("made.db-*"):
            leftover.unlink()
        _put(place, {name: given})
        return as_run(path, chance, len(data) + len(given))


def _with_log(path: Path, chance: Chance) -> bytes:
    """The write-ahead log of a change of the database."""
    made = path.with_name("made.db")
    shutil.copy(path, made)
    keep = sqlite3.connect(made)
    try:
        keep.execute("PRAGMA journal_mode = wal")
        keep.execute("CREATE TABLE more (x)")
        keep.executemany("INSERT INTO more VALUES (?)", [("x" * 100,)] * chance.choice((1, 50)))
        keep.commit()
        wal = made.with_name("made.db-wal")
        return wal.read_bytes() if wal.exists() else b""
    finally:
        keep.close()


def _wal(data: bytes, log: bytes, chance: Chance) -> bytes:
    pick = chance.random()
    if pick < 0.2:
        return chance.randbytes(chance.choice((0, 1, 31, 32, 500, 5000)))
    return own_traces.bytes_changed(log, chance) if log and pick < 0.7 else log[: chance.randrange(len(log) + 1)]


def _journal(data: bytes, log: bytes, chance: Chance) -> bytes:
    """A rollback journal's head that claims any number of pages, of any size, and a few of them."""
    page = int.from_bytes(data[16:18], "big") or 1024
    number = chance.choice((0, 1, 2, 0xFFFFFFFF, 1 << 16))
    pages = chance.choice((0, 1, len(data) // page, 1 << 20, 1 << 28, 0xFFFFFFFF))
    sector, size = chance.choice((512, 512, 4096, 0, 7)), chance.choice((page, page, 512, 65536, 0))
    head = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + b"".join(
        field.to_bytes(4, "big") for field in (number, chance.randrange(1 << 32), pages, sector, size)
    )
    body = b"".join(
        chance.choice((1, 2, 1 << 20)).to_bytes(4, "big") + chance.randbytes(page) + bytes(4) for _ in range(2)
    )
    return head.ljust(512, b"\0") + chance.choice((b"", body))


FOLDERS = (
    "version=evil", "run=1", "a[b]", "a*", "a?", "[", "a'b", 'a"b', "a b", "-o", "--help", "é", "a%2Fb", "%", ".x",
    "\x1b[31m", "a\nb", "$(x)", "x" * 200, "**", "{a,b}", "a.parquet", "snapshot", "runs",
)  # fmt: skip


def folders(chance: Chance) -> str:
    """A dataset, or a run, in a folder of such a name: the same answer as in any other."""
    name = chance.choice(FOLDERS)
    inner = chance.choice(FOLDERS)
    with folder() as place:
        where = place / name / inner
        if chance.random() < 0.5:
            _put(where, _run_files())
            return _answered(["kernels", "--format", "json", "--", str(where)], 100_000)
        _put(where, _dataset())
        there = where / "ds"
        first, second = (_answer(one) for one in (there, _plain_dataset()))
        if first != second:
            raise law.ViolationError(f"in {name!r}/{inner!r}: another answer: {first[:200]!r} {second[:200]!r}")
        return as_run(there, chance, 100_000)


@cache
def _plain_dataset() -> Path:
    place = Path(tempfile.mkdtemp(prefix="mio2trace-plain-", dir=law._memory()))
    law.atexit_remove(str(place))
    _put(place, _dataset())
    return place / "ds"


def _answer(place: Path) -> str:
    words = ["query", str(place), "select run, version, kernels from runs order by run", "--format", "json"]
    done = looks.asked(words, 100_000)
    return done.stdout if done.exit_code == 0 else done.stderr


# ---- sums


def sums(chance: Chance) -> str:
    """Kernel time of a profile, against a sum over its bytes that shares no code with the program."""
    make_profile = chance.choice((_dvdt, _kineto, _rocpd))
    data, count = make_profile(chance)
    if chance.random() < 0.5:
        data = mutations.mutated(data, chance)
    expected = count(data)
    if expected is None:
        return "unknown"
    with law.on_disk([data]) as paths:
        result = law.converted(paths, io.BytesIO(), by_order_alone=True)
    if result is None:
        return "refused"
    found = sum(
        activity.end_ns - activity.start_ns
        for run in result.runs
        for profile in run.profiles
        for activity in profile.activities
        if activity.kind == "kernel" and activity.start_ns is not None and activity.end_ns is not None
    )
    if found != expected and not result.notes.problems:
        raise law.ViolationError(f"{found} ns of kernels, {expected} in the file, and no problem noted")
    return "equal" if found == expected else "noted"


def _dvdt(chance: Chance) -> tuple[bytes, Callable[[bytes], int | None]]:
    return structures.profile_json(structures.calls(chance), chance), _dvdt_sum


def _dvdt_sum(data: bytes) -> int | None:
    try:
        calls = json.loads(data, parse_constant=law._no_number)
        kernels = [one for one in calls if one.get("call") == "clEnqueueNDRangeKernel" and one.get("errcode") == 0]
        times = [one["profiling"] for one in kernels if "profiling" in one]
        if not all(type(at[key]) is int for at in times for key in ("start", "end")):
            return None
        return int(sum(at["end"] - at["start"] for at in times))
    except (ValueError, RecursionError, TypeError, AttributeError, KeyError):
        return None


def _kineto(chance: Chance) -> tuple[bytes, Callable[[bytes], int | None]]:
    (data,), _ = kineto.files(chance, ("a", "b"))
    return data, _kineto_sum


def _kineto_sum(data: bytes) -> int | None:
    try:
        events = json.loads(data, parse_constant=law._no_number)["traceEvents"]
        spans = [one["dur"] for one in events if one.get("cat") == "kernel" and one.get("ph") == "X"]
        if not all(type(span) in (int, float) for span in spans):
            return None
        return int(sum(round(span * 1000) for span in spans))
    except (ValueError, RecursionError, TypeError, AttributeError, KeyError, OverflowError):
        return None


def _rocpd(chance: Chance) -> tuple[bytes, Callable[[bytes], int | None]]:
    return rocm_made.rocpd(rocm.process(chance, ("a", "b"))), _rocpd_sum


def _rocpd_sum(data: bytes) -> int | None:
    try:
        with contextlib.closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(data)
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            (table,) = [name for name in tables if name.startswith("rocpd_kernel_dispatch")]
            rows = database.execute(f'SELECT start, "end" FROM "{table}"').fetchall()
    except (sqlite3.Error, ValueError, OverflowError):
        return None
    if not all(type(at) is int for row in rows for at in row):
        return None
    return int(sum(end - start for start, end in rows))


def xspace(chance: Chance) -> str:
    """XSpaces of JAX and TensorFlow: their time of kernels stays what it is, whatever else of a file is cut."""
    made = chance.choice((_jax, xspace_made.tf_run))()
    data = _changed(made, chance) if chance.random() < 0.9 else made
    if chance.random() < 0.3:
        with folder() as place:
            (path,) = _put(place, {"x.xplane.pb": data})
            return as_run(path, chance, len(data))
    return law.judge([data], 0)


@cache
def _jax() -> bytes:
    return xspace_made.jax_run()


_DATABASES = (
    b"96-5-48-83-3x3x3-96-3-48-83-1-0x0x0-1x1x1-1x1x1-0-NCDHW-FP32-F=GemmFwdRest:219.499,12421693440,miopenConvolution"
    b"FwdAlgoGEMM;ConvDirectNaiveConvFwd:3.5,0,miopenConvolutionFwdAlgoDirect\n"
    b"64-56-56-1x1-64-56-56-1-0x0-1x1-1x1-0-NCHW-FP32-F=ConvAsm1x1U:0.05,0,miopenConvolutionFwdAlgoDirect\n",
    b"64-56-56-1x1-64-56-56-1-0x0-1x1-1x1-0-NCHW-FP32-F=ConvAsm1x1U:1,8,2,64,2,2,1,8\n",
    b"Validator,GCN_ARCH_NAME,gfx1100\nGemmTunableOp_float_TN,tn_384_12_384,Gemm_Rocblas_1140853253,0.0118368\n"
    b"GemmTunableOp_BFloat16_NN,nn_8192_8192_8192_ld_8192_8192_8192,Gemm_Hipblaslt_617849,0.618229\n",
)


def databases(chance: Chance) -> str:
    """MIOpen's databases and TunableOp's results, alone and beside the log of a run."""
    with folder() as place:
        data = _changed(chance.choice((*_DATABASES, *side_files.perf_db(chance, structures.NAMES))), chance)
        table, *_ = _put(place, {"x.txt": data, **_run_files()})
        return as_run(chance.choice((table, place)), chance, len(data) + 100_000)


KINDS: Mapping[str, Judge] = {
    "trace": trace,
    "hostile trace": hostile_trace,
    "base": of_base,
    "snapshot": snapshot,
    "dataset": dataset,
    "journal": journal,
    "bundle": bundle,
    "tar": tar,
    "beside": beside,
    "folder": folders,
    "sums": sums,
    "XSpace": xspace,
    "databases": databases,
}


def judged(seed: int, number: int, kinds: Sequence[str] = ()) -> tuple[str, str]:
    """(kind, verdict) of one case by itself. Raises `law.ViolationError`."""
    chance = random.Random(f"own {seed}/{number}")
    kind = chance.choice(list(kinds or KINDS))
    return kind, KINDS[kind](chance)
