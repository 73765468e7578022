"""``mio2trace inspect``: every record of every reader as one JSON line."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from click.testing import Result

from mio2trace.model.log import FrameworkLog, LayerTime, LocalTime
from mio2trace.model.tables import Activities, Calls, LayerTimes, TimerMarks
from mio2trace.notes import Notes
from mio2trace.readers import READERS
from mio2trace.readers.base import ReadOptions
from mio2trace.reports.records import kind_of
from mio2trace.reports.records import lines as lines_of
from mio2trace.source import Source
from tests.commands import invoked
from tests.conftest import ROOT
from tests.small_runs import as_json, as_text, benchmark, read, small
from tests.test_ops import conv_entry

PARTS = ("activities", "other_calls", "queues", "devices", "threads", "processes", "clocks")
OPENCL = ("programs", "buffers", "marks")


run = partial(invoked, "inspect")


def lines(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_nothing_is_lost_and_programs_are_not_printed(tmp_path: Path) -> None:
    """Every field of every record is there, unless it is None; a program's text is its length."""
    profile = read(as_json(small()), host_calls=True)
    shown = [json.loads(line) for line in lines_of(profile)]
    records = [getattr(profile if hasattr(profile, name) else profile.opencl, name) for name in (*PARTS, *OPENCL)]
    assert len(shown) == 1 + sum(map(len, records))
    for record, row in zip([part for parts in records for part in parts], shown[1:], strict=True):
        fields = json.loads(msgspec.json.encode(record))
        source = fields.pop("source", None)
        if source is not None and row["record"] == "program":
            assert row.pop("source_bytes") == len(record.source) > 0
        elif source is not None:
            fields["source"] = source
        kind = row.pop("record")
        assert kind == kind_of(record)
        assert row == without_none(fields)
    assert "quoted" not in "".join(lines_of(profile))


def without_none(value: Any) -> Any:
    """As JSON lines are: what is None is left out, in records within records, too."""
    if isinstance(value, dict):
        return {name: without_none(part) for name, part in value.items() if part is not None}
    return value


def test_a_log_of_caffe_and_miopen(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(benchmark()[1] + conv_entry())
    found = lines(run(str(path)))
    counts = Counter(row["record"] for row in found)
    assert counts["layer_time"] == 4
    assert counts["entry"] == 1
    assert counts["log_event"] >= 6
    layer = next(row for row in found if row["record"] == "layer_time")
    assert (layer["layer"], layer["direction"], layer["printed_ns"]) == ("conv1", "forward", 120_000)
    assert layer["stamp"] == {"year": 0, "month": 11, "day": 20, "ns": layer["stamp"]["ns"]}
    entry = next(row for row in found if row["record"] == "entry")
    assert entry["api"] == "miopenConvolutionForward"
    assert dict(entry["params"])["y"].startswith("0x")
    assert entry["complete"] is True
    assert entry["end_line"] - entry["line"] + 1 == len(conv_entry().splitlines())


def test_dvdt_blocks_and_several_files(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(as_text(small()))
    (tmp_path / "b.json").write_bytes(as_json(small()))
    found = lines(run(str(tmp_path / "a.log"), str(tmp_path / "b.json")))
    inputs = [row for row in found if row["record"] == "input"]
    assert [(row["source"], row["file"]) for row in inputs] == [(0, "a.log"), (1, "b.json")]
    profiles = [row for row in found if row["record"] == "profile"]
    assert [row["source"] for row in profiles] == [0, 1]
    assert profiles[0]["records"] == profiles[1]["records"]
    assert len({row["line"] for row in found if row["record"] == "activity"}) == 5  # no lines in JSON


def test_what_json_refuses_is_still_a_line() -> None:
    at = LocalTime(0, 1, 2, 3)
    log = FrameworkLog(
        source=0,
        device_name="\udcff",
        layers=(LayerTime(source=0, index=1 << 70, layer="a", direction="forward", printed_ns=1, stamp=at),),
    )
    first, second = (json.loads(line) for line in lines_of(log))
    assert first["device_name"] == "?"
    assert first["layers"] == 1
    assert second["index"] == str(1 << 70)
    assert second["stamp"] == {"year": 0, "month": 1, "day": 2, "ns": 3}


def test_every_format(shared: Path, tmp_path: Path) -> None:
    """One file of each reader at least, and many of MIOpen's; of a bundle's records those of a bundle made here."""
    formats: Counter[str] = Counter()
    taken: Counter[tuple[str, str]] = Counter()
    for folder in ("dvdt", "miopen-logs", "miopen-opencl", "ck", "tfprof", "rocm", "miopen-side-files"):
        for path in sorted((shared / "samples" / folder).rglob("*")):
            kind = (folder, path.name if folder in ("tfprof", "rocm") else path.name.partition(".")[2])
            largest = 300_000 if folder == "rocm" else 3_000_000
            if path.is_file() and path.stat().st_size < largest and taken[kind] < (10 if "logs" in folder else 2):
                taken[kind] += 1
                formats[check(path)] += 1
    run = ROOT / "traces" / "lenet-rocpd"
    files = [str(run / "run.log.gz"), str(run / "results.db.gz")]
    assert invoked("bundle", *files, "-o", tmp_path / "bug.zip").exit_code == 0
    with zipfile.ZipFile(tmp_path / "bug.zip") as archive:
        formats[check(Path(archive.extract("profile.jsonl.gz", tmp_path)))] += 1
    assert {reader.NAME for reader in READERS} <= set(formats)


def check(path: Path) -> str:
    """`inspect` of a file against its reader's own answer; the format's name, empty when there is none."""
    source = Source(str(path), 0, Notes())
    reader = next((reader for reader in READERS if reader.sniff(source.head)), None)
    done = run(str(path))
    if reader is None or done.exit_code:
        source.close()
        assert (done.exit_code, done.stdout) == (1, "")
        assert len(done.stderr.splitlines()) == 1
        return ""
    records = reader.read(source, ReadOptions(host_calls=True), Notes())
    source.close()
    expected = Counter({"input": 1})
    for record in records:
        expected[kind_of(record)] += 1
        for owner in (record, getattr(record, "opencl", record)) if hasattr(record, "opencl") else (record,):
            for value in (getattr(owner, name) for name in owner.__struct_fields__):
                if (
                    isinstance(value, tuple | TimerMarks | Activities | Calls | LayerTimes)
                    and value
                    and isinstance(value[0], msgspec.Struct)
                ):
                    expected.update(kind_of(part) for part in value)
    found = lines(done)
    assert Counter(row["record"] for row in found) == expected
    assert found[0]["format"] == reader.NAME
    return reader.NAME
