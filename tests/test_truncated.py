"""A file that is cut off, as a download leaves it: every command says so, in the same words."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from mio2trace import analyse
from mio2trace.cli import cli
from mio2trace.commands import LATER
from mio2trace.notes import Note
from tests.conftest import ROOT
from tests.kineto_files import FIRST_US, rows, trace

TRACES = ROOT / "traces"
GZIP = "gzip data cut off: read up to there"
EVENTS = "trace cut off: read up to the last whole event"
CALLS = "profile cut off: read up to the last whole call"
PAGES = "database cut off: read up to there"


def kineto() -> bytes:
    """Many steps, so that a half of it still holds some."""
    return trace([event for step in range(40) for event in rows(FIRST_US + 2_000 * step)])


def database() -> bytes:
    return gzip.decompress((TRACES / "lenet-rocpd/results.db.gz").read_bytes())


def calls() -> bytes:
    return gzip.decompress((TRACES / "alexnet-b1-train/prof.json.gz").read_bytes())


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


CUT: dict[str, tuple[Callable[[], bytes], tuple[str, ...]]] = {
    "trace.json": (lambda: half(kineto()), (EVENTS,)),
    "trace.json.gz": (lambda: half(gzip.compress(kineto())), (GZIP, EVENTS)),
    "first.json": (lambda: kineto()[:120], (EVENTS,)),
    "first.json.gz": (lambda: gzip.compress(kineto())[:110], (GZIP,)),
    "prof.json": (lambda: half(calls()), (CALLS,)),
    "prof.json.gz": (lambda: half(gzip.compress(calls())), (GZIP, CALLS)),
    "results.db": (lambda: half(database()), (PAGES,)),
    "last.db": (lambda: database()[:-4096], (PAGES,)),
    "results.db.gz": (lambda: half(gzip.compress(database())), (GZIP, PAGES)),
    "run.log.gz": (lambda: half((TRACES / "lenet-rocpd/run.log.gz").read_bytes()), (GZIP,)),
}
COMMANDS: dict[str, list[str]] = {
    "convert": ["convert", "FILE", "-o", "OUT.pftrace"],
    "bundle": ["bundle", "FILE", "-o", "OUT.zip"],
    "report": ["report", "FILE"],
    "ops": ["ops", "FILE"],
    "driver": ["driver", "FILE"],
    "kernels": ["kernels", "FILE"],
    "layers": ["layers", "FILE"],
    "messages": ["messages", "FILE"],
    "compare": ["compare", "WHOLE", "FILE"],
    "inspect": ["inspect", "FILE"],
    "batch": ["batch", "FILE", "-o", "OUT"],
    "merge": ["merge", "FILE", "-o", "OUT.pftrace"],
    "ranks": ["ranks", "FILE"],
    "query": ["query", "FILE", "slowest kernels"],
}
NO_RUN = {"record", "doctor", "completion", "mcp"}
"""They read no file of a run, or only for those who ask them."""
OWN = {"tfprof", "view"}
"""They read files of their own kinds."""


def said(words: list[str], file: Path) -> str:
    whole = file.parent / "whole.json"
    whole.write_bytes(kineto())
    places = {"FILE": str(file), "WHOLE": str(whole)}
    out = str(file.parent / "out")
    done = CliRunner().invoke(cli, [places.get(word, word.replace("OUT", out)) for word in words])
    assert done.exit_code in (0, 1), done.output
    return " ".join(done.stderr.split())


def test_every_command_is_tried() -> None:
    """A new command joins the table above."""
    assert {command.name for command in LATER} == COMMANDS.keys() | NO_RUN | OWN


PAIRS = [(command, name) for at, command in enumerate(COMMANDS) for to, name in enumerate(CUT) if (at + to) % 5 == 0]
"""Each command with two files, each file with two commands or three: the words are the reader's, the telling is one."""


@pytest.mark.parametrize(("command", "name"), PAIRS)
def test_every_command_says_that_a_file_is_cut_off(command: str, name: str, tmp_path: Path) -> None:
    """Refused or not, quiet or not; once, and by the file's name."""
    make, words = CUT[name]
    file = tmp_path / name
    file.write_bytes(make())
    told = said(COMMANDS[command], file)
    for kind in words[:1] if command == "batch" else words:  # of a run that failed it shows the beginning of the line
        assert kind in told
        if command != "batch":  # which names the run
            assert f"{kind} ({name}" in told
        # A bundle says, too, why there is no trace in it.
        assert told.count(kind) <= (2 if command == "bundle" else 1)


@pytest.mark.parametrize("name", ["trace.json", "prof.json.gz", "last.db"])
def test_a_quiet_command_says_it_too(name: str, tmp_path: Path) -> None:
    make, words = CUT[name]
    file = tmp_path / name
    file.write_bytes(make())
    for command in ("convert", "report", "kernels"):
        assert words[0] in said([*COMMANDS[command], "-q"], file)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "prof.json"])
def test_a_profile_that_is_cut_off_is_incomplete(name: str, tmp_path: Path) -> None:
    """By its own record, which the verdict counts, and by a note for those who call `analyse`."""
    make, words = CUT[name]
    file = tmp_path / name
    file.write_bytes(make())
    analysis = analyse(file)
    assert {profile.defects["cut-off"] for profile in analysis.run.profiles} == {1}
    assert set(words) <= {note.kind for note in analysis.notes if note.is_cut}


def test_a_whole_file_is_not_said_to_be_cut_off(tmp_path: Path) -> None:
    """Of the same files without the cut."""
    for name, data in (("trace.json", kineto()), ("prof.json", calls()), ("results.db", database())):
        (tmp_path / name).write_bytes(data)
        analysis = analyse(tmp_path / name)
        assert not any(note.is_cut for note in analysis.notes)
        assert "cut-off" not in analysis.run.profiles[0].defects
        assert "cut off" not in said(COMMANDS["report"], tmp_path / name)


@pytest.mark.parametrize(
    ("kind", "is_cut"),
    [
        (GZIP, True), (EVENTS, True), (CALLS, True), (PAGES, True), ("gzip data damaged: read up to there", True),
        ("TFProf profile cut off or damaged: read up to there", True), ("MIOpen entry cut off", False),
        ("name of more than 16384 letters cut", False), ("more than 64 MiB of it: read up to there", False),
    ],
)  # fmt: skip
def test_which_notes_are_of_files_that_are_cut_off(kind: str, is_cut: bool) -> None:
    assert Note(kind).is_cut is is_cut
