"""Input without an end, and what is no file: never waited for without a limit, and told in one line."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mio2trace import source
from mio2trace.conversion import convert
from mio2trace.notes import InputError, Notes
from mio2trace.source import Source
from tests.commands import invoked, stderr_of
from tests.small_runs import as_json, benchmark, small

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MOST_UNKNOWN", 1 << 20)
    monkeypatch.setattr(source, "WRITER_S", 0.1)


@contextlib.contextmanager
def endless(path: Path, begins: Sequence[bytes], goes_on: bytes) -> Iterator[None]:
    """A pipe into which is written until nobody reads."""
    os.mkfifo(path)

    def write() -> None:
        try:
            with path.open("wb", buffering=0) as pipe:
                for part in begins:
                    pipe.write(part)
                while True:
                    pipe.write(goes_on)
        except BrokenPipeError:
            return

    thread = threading.Thread(target=write)
    thread.start()
    yield
    thread.join(timeout=60)
    assert not thread.is_alive()


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize("goes_on", [b"y\n" * 5000, b"\n" * 5000, b"x" * 5000, b'{"call": "y"},\n' * 500])
def test_nothing_known(goes_on: bytes, tmp_path: Path) -> None:
    """A pipe that gives line after line of which none is known is read up to a limit, and refused."""
    refused = pytest.raises(InputError, match=r"none of its first [0-9]+ lines is known")
    with endless(tmp_path / "pipe", [b"y\n"], goes_on), refused:
        convert(tmp_path / "pipe")


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize("goes_on", [b"y\n" * 5000, b'{"call": "y"},\n' * 500])
@pytest.mark.parametrize("form", ["log", "profile"])
def test_what_was_known_before(form: str, goes_on: bytes, tmp_path: Path) -> None:
    """A log or a profile after which a pipe never ends gives its trace, and a note."""
    calls, log = benchmark()
    begins = log.encode() if form == "log" else as_json(calls) + b"\n"
    (tmp_path / "file").write_bytes(begins)
    whole = convert(tmp_path / "file")
    with endless(tmp_path / "pipe", [begins], goes_on):
        found = convert(tmp_path / "pipe")
    assert list(found.trace.events()) == list(whole.trace.events())
    assert any("read up to there" in note.kind for note in found.notes)


@pytest.mark.usefixtures("_soon")
def test_pipe_without_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: is a named pipe that nobody writes to; expected a file"):
        convert(tmp_path / "pipe")


def test_pipe_whose_writer_comes_later(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    data = as_json(small())
    writer = threading.Timer(0.3, lambda: (tmp_path / "pipe").write_bytes(data))
    writer.start()
    with contextlib.closing(Source(str(tmp_path / "pipe"), 0, Notes())) as pipe:
        assert pipe.read() == data
    writer.join()


@pytest.mark.parametrize("where", ["point", "meta"])
def test_pipe_in_a_ck_directory(where: str, tmp_path: Path) -> None:
    entry = tmp_path / "entry"
    (entry / ".cm").mkdir(parents=True)
    if where == "point":
        os.mkfifo(entry / "ckp-a.0001.json")
        os.symlink("/dev/zero", entry / "ckp-b.0001.json")
    else:
        (entry / "ckp-a.0001.json").write_text("{}")
        os.mkfifo(entry / ".cm" / "meta.json")
    with pytest.raises(InputError, match="no regular file" if where == "point" else "none of 1 point has the tags"):
        convert(entry, tags=["a"])


def test_a_point_beside_a_pipe(tmp_path: Path) -> None:
    """A point that is no regular file is passed over for one that is, and counted."""
    os.mkfifo(tmp_path / "ckp-a.0001.json")
    (tmp_path / "ckp-b.0001.json").write_bytes(b'{"dvdt_prof": ' + as_json(small()) + b"}")
    notes = {note.kind: note.count for note in convert(tmp_path).notes}
    assert notes["point of a CK folder that is no regular file: skipped"] == 1


@pytest.mark.parametrize("option", ["-o", "--summary"])
def test_names_longer_than_the_file_system_takes(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An output whose name is too long is told of in one line, and nothing is left behind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prof.json").write_bytes(as_json(small()))
    outputs = {"-o": "out.json", "--summary": "summary.json"} | {option: "x" * 300 + ".json"}
    said = stderr_of(invoked("prof.json", *(word for pair in outputs.items() for word in pair)), 1)
    assert said.count("\n") == 1
    assert "File name too long" in said
    assert "fault" not in said
    assert not list(tmp_path.glob(".mio2trace-*"))
