"""Folders that a stranger has packed: links that lead out of them, pipes where files are expected."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mio2trace.dataset import FOLDERS
from tests.batch_work import made_up
from tests.commands import invoked, printed, stderr_of
from tests.test_ck import record, run

SECONDS = 60


def alone(*words: str | Path) -> tuple[int, str, str]:
    """Exit code, output, notes. In a process of its own: what waits for a pipe hears no signal."""
    command = [sys.executable, "-m", "mio2trace", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    return done.returncode, done.stdout, done.stderr


# ---- runs


@pytest.mark.parametrize("link", ["folder", "file", "folder in a folder"])
def test_a_link_out_of_a_folder_is_passed_over(link: str, tmp_path: Path) -> None:
    """And said; one within the folder is followed, and so is one to the folder itself."""
    made_up(tmp_path / "given" / "own")
    made_up(tmp_path / "private" / "run")
    target, place = {
        "folder": ("private/run", "given/linked"),
        "file": ("private/run/prof.json", "given/linked.json"),
        "folder in a folder": ("private", "given/own/linked"),
    }[link]
    (tmp_path / place).symlink_to(tmp_path / target)
    words = ["kernels", "--format", "json"]
    (tmp_path / "to-it").symlink_to("given")
    alone = invoked(*words, tmp_path / "given" / "own")
    for folder in ("given", "to-it"):
        found = invoked(*words, tmp_path / folder)
        assert (found.exit_code, found.stdout) == (alone.exit_code, alone.stdout) == (0, alone.stdout)
        assert ("link that leads out of the folder: skipped" in found.stderr) == (link != "folder in a folder")
    (tmp_path / place).unlink()
    shutil.move(tmp_path / "given" / "own", tmp_path / "given" / "moved")
    (tmp_path / "given" / "within").symlink_to("moved")
    assert ": skipped" not in invoked(*words, tmp_path / "given").stderr


def test_a_record_behind_a_link_is_none(tmp_path: Path) -> None:
    point = tmp_path / "private.json"
    point.write_text(json.dumps(record(run(1))))
    given = tmp_path / "given" / f"ckp-{'1' * 16}.0001.json"
    given.parent.mkdir()
    given.symlink_to(point)
    words = ["layers", str(given.parent)]
    assert "a folder without a profile, a log or ckp-" in stderr_of(invoked(*words), 1)
    given.unlink()
    shutil.copy(point, given)
    assert invoked(*words).exit_code == 0


def test_a_profile_far_below_a_folder_is_named(tmp_path: Path) -> None:
    """What to give, in one line; a link out of the folder, and folders too deep, are not looked into."""
    made_up(tmp_path / "other")
    given = tmp_path / "given"
    (given / "a" / "b").mkdir(parents=True)
    (given / "a" / "b" / "notes.md").write_text("# notes")
    (given / "a" / "b" / "link").symlink_to(tmp_path / "other")
    words = ["report", str(given)]
    assert "a folder without a profile, a log or ckp-" in invoked(*words).stderr
    shutil.copytree(tmp_path / "other", given / "a" / "b" / "run 1")
    found = invoked(*words)
    said = (
        "given: no profile and no log in it, nor in its folders; expected a folder that holds them: a/b/run 1 holds a"
    )
    assert (found.exit_code, found.stderr) == (1, f"mio2trace: {said} profile\n")
    (given / "1/2/3/4/5").mkdir(parents=True)
    shutil.move(given / "a", given / "1/2/3/4/5")
    assert "a folder without a profile, a log or ckp-" in invoked(*words).stderr


def test_an_unpacked_archive_holds_its_members_itself(tmp_path: Path) -> None:
    made_up(tmp_path / "run")
    assert invoked("bundle", tmp_path / "run", "-o", tmp_path / "b.zip").exit_code == 0
    shutil.unpack_archive(tmp_path / "b.zip", tmp_path / "unpacked")
    words = ["kernels", str(tmp_path / "unpacked")]
    assert invoked(*words).exit_code == 0
    profile = next((tmp_path / "unpacked").glob("profile*"))
    shutil.move(profile, tmp_path / profile.name)
    profile.symlink_to(tmp_path / profile.name)
    assert "is missing" in stderr_of(invoked(*words), 1)


def test_a_pipe_is_no_manifest(tmp_path: Path) -> None:
    made_up(tmp_path / "run")
    whole = alone("kernels", tmp_path / "run")
    os.mkfifo(tmp_path / "run" / "manifest.json")
    assert alone("kernels", tmp_path / "run")[:2] == whole[:2]


# ---- datasets


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("written")
    for name in ("a", "b"):
        made_up(top / "runs" / name)
    printed("batch", top / "runs", "-o", top / "ds", "-q")
    return top


def _pipe(place: Path) -> None:
    os.mkfifo(place)


def _endless(place: Path) -> None:
    place.symlink_to("/dev/zero")


def _elsewhere(place: Path) -> None:
    """A journal of another dataset."""
    other = place.parent.parent / "other.jsonl"
    entry = '{"run":"x","state":"failed","inputs":[],"version":"1","seconds":1,"ended":1,"error":"of another"}\n'
    other.write_text(entry)
    place.symlink_to(other)


def test_what_is_no_file_is_no_journal(written: Path, tmp_path: Path) -> None:
    """The answers are those of the dataset without them, and they come; a batch goes on beside them."""
    shutil.copytree(written / "ds", tmp_path / "ds")
    questions = (("query", tmp_path / "ds", "failures"), ("report", tmp_path / "ds", "--format", "text"))
    before = [invoked(*words).stdout for words in questions]
    for number, made in enumerate((_pipe, _endless, _elsewhere), 1):
        made(tmp_path / "ds" / f"_runs.{number}-of-3.jsonl")
    assert [alone(*words)[:2] for words in questions] == [(0, answer) for answer in before]
    code, _, said = alone("batch", written / "runs", "-o", tmp_path / "ds")
    assert (code, "nothing to do" in said) == (0, True)


@pytest.mark.parametrize("made", [_pipe, _endless, _elsewhere])
def test_a_journal_is_written_to_the_datasets_file(made: Callable[[Path], None], written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "ds", tmp_path / "ds")
    journal = tmp_path / "ds" / "_runs.jsonl"
    journal.unlink()
    made(journal)
    code, _, said = alone("batch", written / "runs", "-o", tmp_path / "ds")
    assert (code, said.count("\n")) == (1, 1)
    assert not (tmp_path / "other.jsonl").exists() or len((tmp_path / "other.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("table", ["runs", "kernels", "snapshot", ".runs.tmp"])
def test_tables_are_written_into_the_dataset_alone(warm: None, table: str, written: Path, tmp_path: Path) -> None:
    """Where a stranger put a link in place of a folder nothing is written, and nothing deleted."""
    assert table in (*FOLDERS, ".runs.tmp")
    shutil.copytree(written / "ds", tmp_path / "ds")
    shutil.rmtree(tmp_path / "ds" / table, ignore_errors=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "runs%2Fa.parquet").write_text("mine")
    (tmp_path / "ds" / table).symlink_to(elsewhere)
    done = invoked("batch", written / "runs", "-o", tmp_path / "ds")
    assert (done.exit_code, f"{table} is a link" in done.stderr, done.stderr.count("\n")) == (1, True, 1)
    assert [(path.name, path.read_text()) for path in elsewhere.iterdir()] == [("runs%2Fa.parquet", "mine")]


def test_a_folder_that_goes_while_it_is_looked_through_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "gone")

    monkeypatch.setattr(Path, "glob", gone)
    assert stderr_of(invoked("layers", tmp_path), 1) == "mio2trace: gone: No such file or directory\n"
