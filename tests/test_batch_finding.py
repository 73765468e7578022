"""Which runs lie in folders, by what begins the files and by their names."""

from __future__ import annotations

import gzip
import json
import os
import shutil
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


def test_a_folder_of_folders_holds_their_runs(tmp_path: Path) -> None:
    runs = found(
        tmp_path,
        {
            "runs/a/prof.json": PROFILE, "runs/a/run.log": LOG,
            "runs/b/deep/c/prof.json.gz": gzip.compress(PROFILE), "runs/b/notes.md": b"# Notes",
            "runs/b/deep/picture.png": b"\x89PNG",
            "runs/.hidden/prof.json": PROFILE,
        },
    )  # fmt: skip
    assert runs == {"runs/a": ["a/prof.json", "a/run.log"], "runs/b/deep/c": ["b/deep/c/prof.json.gz"]}


@pytest.mark.parametrize(
    ("files", "runs"),
    [
        pytest.param(
            {"a.prof.json": PROFILE, "a.run.log": LOG, "b.json": PROFILE, "b.log": LOG},
            {"runs/a": ["a.prof.json", "a.run.log"], "runs/b": ["b.json", "b.log"]},
            id="pairs",
        ),
        pytest.param(
            {"a_results.db": DATABASE, "a-run.log": LOG, "b_results.db": DATABASE, "c.log": LOG},
            {"runs/a": ["a-run.log", "a_results.db"], "runs/b": ["b_results.db"], "runs/c": ["c.log"]},
            id="a profile and a log without the other",
        ),
        pytest.param(
            {"41_results.db": DATABASE, "42_results.db": DATABASE, "run.log": LOG, "run.rank1.log": LOG},
            {"runs": ["41_results.db", "42_results.db", "run.log", "run.rank1.log"]},
            id="processes of a job",
        ),
        pytest.param(
            {"rank0/prof.json": PROFILE, "rank1/prof.json": PROFILE},
            {"runs": ["rank0/prof.json", "rank1/prof.json"]},
            id="ranks",
        ),
        pytest.param(
            {"run.log": LOG, "prof/node/41_results.db": DATABASE},
            {"runs": ["prof/node/41_results.db", "run.log"]},
            id="a log beside what the profiler wrote",
        ),
        pytest.param(
            {"run.log": LOG, "other/prof.json": PROFILE, "more/prof.json": PROFILE},
            {"runs/more": ["more/prof.json"], "runs/other": ["other/prof.json"]},
            id="a log beside runs",
        ),
        pytest.param(
            {"run.log": LOG, "prof.db": DATABASE[:60], "config.json": b'{"a": 1}'},
            {"runs": ["prof.db", "run.log"]},
            id="a database that is cut off is not left out",
        ),
        pytest.param(
            {
                "a.prof.json": PROFILE, "a.log": LOG, "b.prof.json": b"", "b.log": LOG, "c.prof.json": b"",
                "d_results.db": b"\0\1\2garbage", "a_trace.json": b"{}", "config.json": b"{}",
            },
            {
                "runs/a": ["a.log", "a.prof.json"], "runs/b": ["b.log", "b.prof.json"], "runs/c": ["c.prof.json"],
                "runs/d": ["d_results.db"],
            },
            id="of several runs those that fail are not left out",
        ),
        pytest.param(
            {"41_results.db": DATABASE, "42_results.db": b"", "run.log": LOG, "results.json": b"{}"},
            {"runs": ["41_results.db", "42_results.db", "run.log"]},
            id="a process that wrote nothing is not left out",
        ),
        pytest.param(
            {"rank0/prof.json": PROFILE, "rank1/prof.json": b""},
            {"runs": ["rank0/prof.json", "rank1/prof.json"]},
            id="a rank that wrote nothing is not left out",
        ),
        pytest.param(
            {"a/prof.json": PROFILE, "prof.json": b""},
            {"runs/a": ["a/prof.json"], "runs/prof": ["prof.json"]},
            id="beside folders of runs, either",
        ),
        pytest.param(
            {"a/run.log": LOG, "a/out/loss.csv": b"1,2", "a/out/prof.db": b"", "b/run.log": LOG},
            {"runs/a": ["a/run.log"], "runs/a/out/prof": ["a/out/prof.db"], "runs/b": ["b/run.log"]},
            id="a log beside the program's own files is a run",
        ),
        pytest.param({"prof.json": b"\0\1\2garbage"}, {"runs": ["prof.json"]}, id="garbage is a run, which fails"),
        pytest.param({"README.md": b"# Runs", "x.png": b"\x89PNG"}, {}, id="nothing"),
    ],
)  # fmt: skip
def test_what_lies_in_one_folder(tmp_path: Path, files: dict[str, bytes], runs: dict[str, list[str]]) -> None:
    assert found(tmp_path, {f"runs/{name}": content for name, content in files.items()}) == runs


def test_archives_are_runs_and_what_this_program_wrote_is_none(tmp_path: Path) -> None:
    made_up(tmp_path / "runs" / "x")
    with zipfile.ZipFile(tmp_path / "runs" / "bundle.zip", "w") as archive:
        archive.writestr("run.log", LOG)
    shutil.copy(ROOT / "traces" / "lenet-rocpd" / "lenet-rocpd.trace.json", tmp_path / "runs" / "x" / "out.json")
    (tmp_path / "runs" / "ds").mkdir()
    (tmp_path / "runs" / "ds" / "_runs.jsonl").touch()
    (tmp_path / "runs" / "ds" / "prof.json").write_bytes(PROFILE)
    assert found(tmp_path, {}) == {"runs/bundle": ["bundle.zip"], "runs/x": ["x/prof.json", "x/run.log"]}


def test_archives_in_folders_of_ranks_are_one_run(tmp_path: Path) -> None:
    for rank in range(2):
        folder = tmp_path / "runs" / f"rank{rank}"
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / "run.zip", "w") as archive:
            archive.writestr("run.log", LOG)
    assert found(tmp_path, {}) == {"runs": ["rank0/run.zip", "rank1/run.zip"]}


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


def test_a_link_to_itself_hides_no_run(tmp_path: Path) -> None:
    """It is no folder; those beside it are found."""
    made_up(tmp_path / "runs" / "a")
    (tmp_path / "runs" / "loop").symlink_to("loop")
    assert found(tmp_path, {}) == {"runs/a": ["a/prof.json", "a/run.log"]}


def test_a_database_of_another_program_alone_is_a_run_that_fails(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "some.db") as database:
        database.execute("create table t (x)")
    database.close()
    assert found(tmp_path, {}) == {"runs/a": ["a/some.db"]}


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
