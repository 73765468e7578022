"""A column of kernels that the program never had: a field and its reader, two files, and every output has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

EDITS = {
    "model/profile.py": (
        "    scratch_bytes:",
        '    waves: Annotated[int | None, Column("waves", "int", "waves that ran", "waves",'
        ' shown=frozenset(("slice", "table", "data")))] = None\n    scratch_bytes:',
    ),
    "readers/rocm/v1.py": ('"lds", "scr"\n', '"lds", "waves", "scr"\n'),
}
CHANGED = """
import json, sys
from importlib.machinery import SourceFileLoader

texts = json.load(open("changed.json"))
compiled = SourceFileLoader.get_code

def code(loader, name):
    text = texts.get(loader.path)
    return compiled(loader, name) if text is None else compile(text, loader.path, "exec")

SourceFileLoader.get_code = code
"""
"""Before anything is imported: some files of the package have another text. The others may be compiled already."""
LOOK = """
import csv, io, json
import duckdb
from click.testing import CliRunner
import mio2trace
from mio2trace.cli import cli
from mio2trace.schema import TABLES

def said(*words):
    return CliRunner().invoke(cli, [*words, "results.csv"]).stdout

run = mio2trace.load("results.csv")
run.write("out.json")
run.write("out.parquet")
events = json.load(open("out.json"))["traceEvents"]
records = list(map(json.loads, said("inspect").splitlines()))
column = next(column for column in TABLES["kernels"].columns if column.name == "waves")
print(json.dumps({
    "python": run.kernels.column("waves"),
    "Parquet": duckdb.sql("select waves from 'out.parquet/kernels/*.parquet' order by start_ns").fetchall(),
    "slices": [event["args"].get("waves") for event in events if event.get("cat") == "kernel"],
    "inspect": [one["resources"].get("waves") for one in records if one["record"] == "activity"],
    "CSV": [row["waves"] for row in csv.DictReader(io.StringIO(said("kernels", "--format", "csv")))],
    "schema": [column.kind, column.meaning, column.unit],
}))
"""


def test_a_field_of_a_kernel_is_a_column_everywhere(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    texts = {}
    for name, (before, after) in EDITS.items():
        path = ROOT / "timeline" / "mio2trace" / name
        text = path.read_text("utf-8")
        assert text.count(before) == 1, name
        texts[str(path)] = text.replace(before, after)
    (tmp_path / "changed.json").write_text(json.dumps(texts))
    head = "Index,KernelName,gpu-id,queue-id,pid,tid,grd,wgr,arch_vgpr,lds,scr,waves,BeginNs,EndNs"
    rows = ("0,f,0,0,1,1,64,64,16,0,0,7,100,200", "1,g,0,0,1,1,64,64,16,0,0,,300,400")
    (tmp_path / "results.csv").write_text("\n".join((head, *rows, "")))
    done = subprocess.run(
        [sys.executable, "-c", CHANGED + LOOK],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "timeline")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "python": [7, None],
        "Parquet": [[7], [None]],
        "slices": [7, None],
        "inspect": [7, None],
        "CSV": ["7", ""],
        "schema": ["int", "waves that ran", "waves"],
    }
