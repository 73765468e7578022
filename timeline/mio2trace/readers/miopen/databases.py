"""MIOpen's find-db and perf-db: the solvers of a problem, with their times or tuned parameters (miopen-side-files.md 2
to 4). A file of text holds either, an SQLite database a perf-db.
"""

from __future__ import annotations

from typing import Any, Literal

from mio2trace.model.choices import SOLVER, SolverRecord, SolverTable, SolverTime, solver_record
from mio2trace.notes import InputError, Notes
from mio2trace.readers.base import Format, ReadOptions, Records
from mio2trace.readers.rocm.database import opened, tables
from mio2trace.source import Source

# -- Text --------------------------------------------------------------------------------------------------------------
#
#     96-5-482-834-3x3x3-96-3-480-832-1-0x0x0-1x1x1-1x1x1-0-NCDHW-FP32-F=GemmFwdRest:219.499,12421693440,miopen...;...
#
# Files are ``*.fdb.txt``, ``*.ufdb.txt``, ``*.cd.pdb.txt``. Both forms of a find-db are read: up to 2020, and since
# 2021. If a key occurs twice, the last line counts. Lines that are no records, and a cut last line, are counted.

_LONGEST_LINE = 1 << 16
_LOOKED_AT = 4


def _is_text(head: bytes) -> bool:
    """Return whether the first line and most of the next ones are records; otherwise it is a log."""
    lines = [line for line in head[:_LONGEST_LINE].split(b"\n")[:_LOOKED_AT] if line.strip()]
    return bool(lines) and _is_record(lines[0]) and 2 * sum(map(_is_record, lines)) >= len(lines)


def _is_record(line: bytes) -> bool:
    if not line[:1].isdigit() or b"=" not in line[:400]:
        return False
    text = line.decode(errors="replace")
    record = solver_record(text)
    return record is not None and text.startswith(record.key)


def _read_text(source: Source, options: ReadOptions, notes: Notes) -> Records:
    records: dict[str, SolverRecord] = {}
    skipped = 0
    for number, line in enumerate(source.lines(), 1):
        record = solver_record(line[:_LONGEST_LINE].decode(errors="replace"), number)
        if record is not None:
            records.pop(record.key, None)
            records[record.key] = record
        elif line.strip():
            skipped += 1
            notes.add("line of a MIOpen database that is no record: skipped", f"{source.name}:{number}")
    if not records:
        raise InputError(f"{source.name}: no record of a problem; expected MIOpen's find-db")
    has_times = any(solver.time_ms is not None for record in records.values() for solver in record.solvers)
    kind: Literal["find-db", "perf-db"] = "find-db" if has_times else "perf-db"
    return [SolverTable(source=source.index, kind=kind, records=tuple(records.values()), skipped=skipped)]


TEXT = Format("MIOpen find-db or perf-db (text)", _is_text, _read_text)


# -- A perf-db in SQLite -----------------------------------------------------------------------------------------------
#
#     config(id, layout, data_type, direction, spatial_dim, in_channels, in_h, in_w, in_d, fil_h, .., group_count)
#     perf_db(id, solver, config, params)
#
# A row of `config` has no output sizes. They follow from the others, except for a gradient with a stride: its sizes are
# those of dy, and several inputs have the same dy. Such problems are counted and left out. The layout is that of the
# input; it is also used for the weights and the output.

_SPACES = {2: "hw", 3: "dhw"}
_COLUMNS = (
    "id", "layout", "data_type", "direction", "spatial_dim", "in_channels", "out_channels", "batchsize", "bias",
    "group_count",
    *(f"{name}_{axis}" for name in ("in", "fil", "pad", "conv_stride", "dilation") for axis in "dhw"),
)  # fmt: skip
_LONGEST_PARAMETERS = 400


def _read_sqlite(source: Source, options: ReadOptions, notes: Notes) -> Records:
    with opened(source, ("config", "perf_db")) as database:
        if not {"config", "perf_db"} <= database.names:
            raise InputError(f"{source.name}: lacks the tables config and perf_db; expected MIOpen's perf-db")
        configs = {
            row[0]: dict(zip(_COLUMNS, row, strict=True))
            for row in database.rows(f"SELECT {', '.join(_COLUMNS)} FROM config")  # noqa: S608 - our own names
        }
        solvers: dict[Any, list[SolverTime]] = {}
        for config, solver, parameters in database.rows("SELECT config, solver, params FROM perf_db"):
            name = database.text_of(solver)
            if config in configs and SOLVER.fullmatch(name):
                text = database.text_of(parameters)[:_LONGEST_PARAMETERS]
                solvers.setdefault(config, []).append(SolverTime(name, parameters=text))
            else:
                notes.add("row of a MIOpen perf-db that names no problem or no solver: skipped", source.name)
    records = []
    for number, (config, tuned) in enumerate(solvers.items(), 1):
        try:
            key = _key(configs[config])
        except (ArithmeticError, TypeError, ValueError):
            notes.add("problem of a MIOpen perf-db with impossible sizes: skipped", source.name)
            continue
        if key is None:
            what = "gradient with a stride in a MIOpen perf-db left out: it does not record the size of the input"
            notes.add(what, source.name, problem=False)
        else:
            records.append(SolverRecord(number, key, tuple(tuned)))
    if not records:
        raise InputError(f"{source.name}: no problem with tuned parameters; expected MIOpen's perf-db")
    return [SolverTable(source=source.index, kind="perf-db", records=tuple(records))]


def _key(config: dict[str, Any]) -> str | None:
    """Return the key of the problem in a find-db; None if it does not follow from the row."""
    axes = _SPACES[2 if config["spatial_dim"] != 3 else 3]
    sizes = {
        name: [int(config[f"{name}_{axis}"]) for axis in axes]
        for name in ("in", "fil", "pad", "conv_stride", "dilation")
    }
    forward = config["direction"] == "F"
    if not forward and any(stride != 1 for stride in sizes["conv_stride"]):
        return None
    out = [
        (size + 2 * pad - dilation * (window - 1) - 1) // stride + 1
        if forward
        else size - 1 - 2 * pad + dilation * (window - 1) + 1
        for size, window, pad, stride, dilation in zip(*sizes.values(), strict=True)
    ]
    layouts = (config["layout"],) * (1 if config["layout"] in ("NCHW", "NCDHW") else 3)
    parts = (
        config["in_channels"], *sizes["in"], "x".join(map(str, sizes["fil"])), config["out_channels"], *out,
        config["batchsize"], *("x".join(map(str, sizes[name])) for name in ("pad", "conv_stride", "dilation")),
        config["bias"], *layouts, config["data_type"], config["direction"],
    )  # fmt: skip
    groups = int(config["group_count"])
    key = "-".join(map(str, parts)) + (f"_g{groups}" if groups > 1 else "")
    record = solver_record(f"{key}=x:1")  # unknown texts are no keys
    if min(out) < 1 or record is None or record.key != key:
        raise ValueError(key)
    return key


SQLITE = Format(
    "MIOpen perf-db (SQLite)",
    lambda head: all(word in tables(head) for word in (b"perf_db", b"conv_stride_h", b"fil_h")),
    _read_sqlite,
)
