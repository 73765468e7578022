"""Which runs lie in folders, by what begins the files and by their names."""

from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
import zipfile
from pathlib import Path

import pytest

from mio2trace.batch.finding import find_runs
from mio2trace.batch.work import Work, analysed
from mio2trace.notes import InputError, Notes
from tests.batch_work import made_up
from tests.canaries import CANARIES, leaks
from tests.conftest import ROOT
from tests.small_runs import as_json, benchmark

CALLS, _TEXT = benchmark()
PROFILE, LOG = as_json(CALLS, None), _TEXT.encode()
DATABASE = gzip.decompress((ROOT / "traces" / "lenet-rocpd" / "results.db.gz").read_bytes())
with sqlite3.connect(":memory:") as _database:
    _database.execute("create table t (x)")
    STRANGERS = _database.serialize()
_file = io.BytesIO()
with zipfile.ZipFile(_file, "w") as _archive:
    _archive.writestr("run.log", LOG)
ARCHIVE = _file.getvalue()
TRACE = (ROOT / "traces" / "lenet-rocpd" / "lenet-rocpd.trace.json").read_bytes()


def found(folder: Path, files: dict[str, bytes], *paths: str) -> dict[str, list[str]]:
    """Of each run the names of its files."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    given = [str(folder / path) for path in paths or ("runs",)]
    return {
        run.name: sorted(os.path.relpath(file, folder / "runs") for file in run.files)
        for run in find_runs(given, Notes())
    }


FOLDERS: dict[str, tuple[dict[str, bytes], dict[str, list[str]]]] = {
    "folders of folders": (
        {"a/prof.json": PROFILE, "a/run.log": LOG, "b/deep/c/prof.json.gz": gzip.compress(PROFILE),
         "b/notes.md": b"# Notes", "b/deep/picture.png": b"\x89PNG", ".hidden/prof.json": PROFILE},
        {"runs/a": ["a/prof.json", "a/run.log"], "runs/b/deep/c": ["b/deep/c/prof.json.gz"]},
    ),
    "pairs": (
        {"a.prof.json": PROFILE, "a.run.log": LOG, "b.json": PROFILE, "b.log": LOG},
        {"runs/a": ["a.prof.json", "a.run.log"], "runs/b": ["b.json", "b.log"]},
    ),
    "a profile and a log without the other": (
        {"a_results.db": DATABASE, "a-run.log": LOG, "b_results.db": DATABASE, "c.log": LOG},
        {"runs/a": ["a-run.log", "a_results.db"], "runs/b": ["b_results.db"], "runs/c": ["c.log"]},
    ),
    "processes of a job": (
        {"41_results.db": DATABASE, "42_results.db": DATABASE, "run.log": LOG, "run.rank1.log": LOG},
        {"runs": ["41_results.db", "42_results.db", "run.log", "run.rank1.log"]},
    ),
    "ranks": (
        {"rank0/prof.json": PROFILE, "rank1/prof.json": PROFILE},
        {"runs": ["rank0/prof.json", "rank1/prof.json"]},
    ),
    "short names of ranks begin with 0": (
        {"r0/prof.json": PROFILE, "r1/prof.json": PROFILE}, {"runs": ["r0/prof.json", "r1/prof.json"]},
    ),
    "runs with numbers are no ranks, and a damaged one is of no other": (
        {"r00000/prof.json": PROFILE, "r00017/prof.json": b"", "r00230/prof.json": PROFILE},
        {f"runs/r{number}": [f"r{number}/prof.json"] for number in ("00000", "00017", "00230")},
    ),
    "a log beside what the profiler wrote": (
        {"run.log": LOG, "prof/node/41_results.db": DATABASE},
        {"runs": ["prof/node/41_results.db", "run.log"]},
    ),
    "a log beside runs": (
        {"run.log": LOG, "other/prof.json": PROFILE, "more/prof.json": PROFILE},
        {"runs/more": ["more/prof.json"], "runs/other": ["other/prof.json"]},
    ),
    "a database that is cut off is not left out": (
        {"run.log": LOG, "prof.db": DATABASE[:60], "config.json": b'{"a": 1}'}, {"runs": ["prof.db", "run.log"]},
    ),
    "of several runs those that fail are not left out": (
        {"a.prof.json": PROFILE, "a.log": LOG, "b.prof.json": b"", "b.log": LOG, "c.prof.json": b"",
         "d_results.db": b"\0\1\2garbage", "a_trace.json": b"{}", "config.json": b"{}"},
        {"runs/a": ["a.log", "a.prof.json"], "runs/b": ["b.log", "b.prof.json"], "runs/c": ["c.prof.json"],
         "runs/d": ["d_results.db"]},
    ),
    "a process that wrote nothing is not left out": (
        {"41_results.db": DATABASE, "42_results.db": b"", "run.log": LOG, "results.json": b"{}"},
        {"runs": ["41_results.db", "42_results.db", "run.log"]},
    ),
    "a rank that wrote nothing is not left out": (
        {"rank0/prof.json": PROFILE, "rank1/prof.json": b""}, {"runs": ["rank0/prof.json", "rank1/prof.json"]},
    ),
    "beside folders of runs, either": (
        {"a/prof.json": PROFILE, "prof.json": b""}, {"runs/a": ["a/prof.json"], "runs/prof": ["prof.json"]},
    ),
    "a log beside the program's own files is a run": (
        {"a/run.log": LOG, "a/out/loss.csv": b"1,2", "a/out/prof.db": b"", "b/run.log": LOG},
        {"runs/a": ["a/run.log"], "runs/a/out/prof": ["a/out/prof.db"], "runs/b": ["b/run.log"]},
    ),
    "archives of ranks": (
        {"rank0/run.zip": ARCHIVE, "rank1/run.zip": ARCHIVE}, {"runs": ["rank0/run.zip", "rank1/run.zip"]},
    ),
    "an archive, and what this program wrote": (
        {"b/bundle.zip": ARCHIVE, "x/prof.json": PROFILE, "x/out.json": TRACE, "ds/_runs.jsonl": b"",
         "ds/prof.json": PROFILE},
        {"runs/b/bundle": ["b/bundle.zip"], "runs/x": ["x/prof.json"]},
    ),
    "garbage is a run, which fails": ({"prof.json": b"\0\1\2garbage"}, {"runs": ["prof.json"]}),
    "so is a database of another program": ({"a/some.db": STRANGERS}, {"runs/a": ["a/some.db"]}),
    "nothing": ({"README.md": b"# Runs", "x.png": b"\x89PNG"}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_what_lies_in_one_folder(tmp_path: Path, name: str) -> None:
    files, runs = FOLDERS[name]
    assert found(tmp_path, {f"runs/{path}": content for path, content in files.items()}) == runs


def test_files_that_are_given_are_paired_as_those_of_a_folder(tmp_path: Path) -> None:
    files = {"runs/a.json": PROFILE, "runs/a.log": LOG, "runs/b.json": PROFILE}
    assert found(tmp_path, files, *files) == {"a": ["a.json", "a.log"], "b": ["b.json"]}
    with pytest.raises(InputError, match="nothing-there: no such file or folder"):
        find_runs([str(tmp_path / "nothing-there")], Notes())


def test_names_hold_nothing_private_and_are_of_one_run_each(tmp_path: Path) -> None:
    """A person's folder is not named; two folders of one name are told apart, in any order."""
    home = tmp_path / "home" / "somebody"
    made_up(home / "a")
    assert [run.name for run in find_runs([str(home)], Notes())] == ["a"]
    made_up(tmp_path / "1" / "runs" / "a")
    made_up(tmp_path / "2" / "runs" / "a")
    paths = [str(tmp_path / "1" / "runs"), str(tmp_path / "2" / "runs")]
    names = [run.name for run in find_runs(paths, Notes())]
    assert len(set(names)) == 2
    assert all(name.startswith("runs/a~") for name in names)
    assert [run.name for run in find_runs(paths[::-1], Notes())] == names
    made_up(tmp_path / "3" / "me@build-7.example.com" / "x")
    (run,) = find_runs([str(tmp_path / "3")], Notes())
    assert "example" not in run.name


def test_folders_that_go_round_in_circles_and_pipes_are_not_followed(tmp_path: Path) -> None:
    made_up(tmp_path / "runs" / "a")
    (tmp_path / "runs" / "a" / "again").symlink_to(tmp_path / "runs")
    (tmp_path / "runs" / "loop").symlink_to("loop")
    (tmp_path / "runs" / "pipe").mkdir()
    os.mkfifo(tmp_path / "runs" / "pipe" / "prof.json")
    assert found(tmp_path, {}) == {"runs/a": ["a/prof.json", "a/run.log"], "runs/pipe": ["pipe/prof.json"]}


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    """Who wrote the folder could name any file of the one who reads it; links within it, and the folder itself, may be
    links.
    """
    made_up(tmp_path / "private" / "secret")
    made_up(tmp_path / "given" / "own")
    (tmp_path / "given" / "folder").symlink_to(tmp_path / "private" / "secret")
    (tmp_path / "given" / "file").mkdir()
    (tmp_path / "given" / "file" / "run.log").symlink_to(tmp_path / "private" / "secret" / "run.log")
    (tmp_path / "given" / "up").symlink_to("..")
    (tmp_path / "given" / "within").symlink_to("own")
    (tmp_path / "runs").symlink_to("given")
    notes = Notes()
    found = find_runs([str(tmp_path / "runs")], notes)
    assert [run.name for run in found] == ["runs/own"]
    assert not [file for run in found for file in run.files if "private" in os.path.realpath(file)]
    assert [(note.kind, note.count, note.problem) for note in notes] == [
        ("link that leads out of the folder: skipped; give its target as a path of its own", 3, True)
    ]


def test_no_canary_is_in_a_name_or_an_error(tmp_path: Path) -> None:
    """Folders, files and content that hold private text: names of runs and errors do not."""
    for number, (kind, text) in enumerate(CANARIES.items()):
        place = tmp_path / "runs" / str(number)
        if "/" not in text:
            place /= text
        place.mkdir(parents=True)
        (place / "prof.json").write_text(f'{{"{kind}": {json.dumps(text)}, "{text}": 1, "')
    made_up(tmp_path / "runs" / "home" / "canaryuser" / "x")
    runs = find_runs([str(tmp_path / "runs")], Notes())
    assert len(runs) == len(CANARIES) + 1
    assert len({run.name for run in runs}) == len(runs)
    assert not [run.name for run in runs if leaks(run.name)]
    errors = [analysed(Work(run, str(tmp_path), ""), str(tmp_path), tell=lambda value: None).error for run in runs]
    assert sum(error is not None for error in errors) >= len(CANARIES) - 5
    assert not [error for error in errors if error is not None and leaks(error)]
