"""Bytes come in as they are, whatever they are wrapped in and however they are cut."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace import source as source_module
from mio2trace.notes import InputError, Notes
from mio2trace.source import HEAD, Source
from tests.small_runs import kinds

LINES = b"one\ntwo\r\nthree\rstill three\n\nlast"


def write(folder: Path, data: bytes, name: str = "in") -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def content(path: str, notes: Notes | None = None) -> bytes:
    source = Source(path, 0, Notes() if notes is None else notes)
    try:
        return source.read()
    finally:
        source.close()


def standard_input(data: bytes, notes: Notes | None = None) -> Source:
    return Source("-", 0, Notes() if notes is None else notes, stdin=io.BytesIO(data))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "BLOCK", 7)


@pytest.mark.parametrize(
    "wrapped",
    [
        LINES,
        gzip.compress(LINES),
        gzip.compress(LINES[:10]) + gzip.compress(LINES[10:]),
        gzip.compress(LINES[:1]) + gzip.compress(LINES[1:]),
        gzip.compress(b"") + gzip.compress(LINES),
        gzip.compress(gzip.compress(LINES)),
        gzip.compress(LINES) + bytes(512),
        b"\xef\xbb\xbf" + LINES,
        gzip.compress(b"\xef\xbb\xbf" + LINES),
        gzip.compress(b"\xef") + gzip.compress(b"\xbb\xbf") + gzip.compress(LINES),
        LINES.decode().encode("utf-16"),
        b"\xfe\xff" + LINES.decode().encode("utf-16-be"),
        gzip.compress(LINES.decode().encode("utf-16")),
    ],
    ids=[
        "plain", "gzip", "two members", "a short first member", "an empty first member", "gzip in gzip", "padded gzip",
        "mark of UTF-8", "mark of UTF-8 in gzip", "mark over members", "UTF-16", "UTF-16 big-endian", "UTF-16 in gzip",
    ],
)  # fmt: skip
@pytest.mark.parametrize("blocks", ["whole", "small"])
def test_content_is_the_same_in_any_wrapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrapped: bytes, blocks: str
) -> None:
    """Compression, marks and encodings are undone, with nothing to report, whatever the size of the blocks."""
    if blocks == "small":
        monkeypatch.setattr(source_module, "BLOCK", 7)
    notes = Notes()
    assert content(write(tmp_path, wrapped), notes) == LINES
    assert kinds(notes) == {}


def test_size_and_hash_are_those_of_the_file_on_disk(tmp_path: Path) -> None:
    """Also of a compressed one, and when a reader stops early."""
    packed = gzip.compress(os.urandom(300_000)) + gzip.compress(b"x")
    source = Source(write(tmp_path, packed), 0, Notes())
    assert len(source.head) == HEAD
    source.drain()
    source.close()
    assert (source.size, source.sha256) == (len(packed), hashlib.sha256(packed).hexdigest())


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"bc"]), max_size=40).map(b"".join), st.integers(1, 9))
def test_lines_do_not_depend_on_the_blocks(data: bytes, size: int) -> None:
    """Joined they give the content; each ends with its line feed, but perhaps the last; a lone return ends none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_module, "BLOCK", size)
        source = standard_input(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_module, "BLOCK", size)
        lines = list(source.lines())
    source.close()
    assert lines == [line + b"\n" for line in data.split(b"\n")[:-1]] + (
        [data.split(b"\n")[-1]] if data[-1:] not in (b"", b"\n") else []
    )


@given(st.binary(max_size=300), st.integers(0, 400))
def test_cut_gzip_gives_what_is_there(data: bytes, keep: int) -> None:
    """A prefix of the content and a note; or a refusal when that is nothing. A whole file has no note."""
    packed = gzip.compress(data, mtime=0)
    notes = Notes()
    if keep >= len(packed) or keep < 2:
        return
    got = refused = None
    try:
        source = standard_input(packed[:keep], notes)
        got = source.read()
        source.close()
    except InputError as error:
        refused = str(error)
    if refused is not None:
        assert "cut off" in refused
        return
    assert got
    assert data.startswith(got)
    assert kinds(notes) == {"file cut off: read up to there": 1}


def test_damaged_gzip_is_read_up_to_the_damage(tmp_path: Path) -> None:
    """Zlib gives a block or nothing; we give what came before, and say so."""
    data = b"".join(b"line %d\n" % number for number in range(20_000))
    packed = bytearray(gzip.compress(data))
    packed[-6] ^= 1  # the checksum: all of the content is there
    notes = Notes()
    assert content(write(tmp_path, bytes(packed)), notes) == data
    assert kinds(notes) == {"gzip data damaged: read up to there": 1}
    packed[len(packed) // 2] ^= 255
    half = content(write(tmp_path, bytes(packed)))
    assert half[:1000] == data[:1000]


@pytest.mark.usefixtures("small_blocks")
def test_bytes_after_gzip_are_said_to_be_ignored(tmp_path: Path) -> None:
    """As `gzip -d` does."""
    notes = Notes()
    assert content(write(tmp_path, gzip.compress(LINES) + b"trailing bytes"), notes) == LINES
    assert kinds(notes) == {"bytes after the end of the gzip data ignored": 1}


def test_gzip_that_is_packed_too_often_is_left_packed(tmp_path: Path) -> None:
    """Three layers are undone; what has more is no input of ours."""
    packed = LINES
    for _ in range(4):
        packed = gzip.compress(packed)
    assert content(write(tmp_path, packed)).startswith(b"\x1f\x8b")


def test_a_compressed_bomb_is_not_held_in_memory(tmp_path: Path) -> None:
    """Blocks stay small however much they hold."""
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join([packer.compress(bytes(1 << 20)) for _ in range(64)]) + packer.flush()
    source = Source(write(tmp_path, packed), 0, Notes())
    sizes = [len(block) for block in source.blocks()]
    source.close()
    assert max(sizes) <= source_module.BLOCK
    assert sum(sizes) == 64 << 20


def test_progress_is_told_bytes_and_total(tmp_path: Path) -> None:
    """Of the file on disk; standard input has no total."""
    told: list[tuple[str, int, int]] = []
    source = Source(write(tmp_path, LINES), 0, Notes(), progress=lambda *args: told.append(args))
    source.read()
    source.close()
    assert told == [("in", len(LINES), len(LINES))]


def test_standard_input_stays_open() -> None:
    """It is not ours to close."""
    stream = io.BytesIO(LINES)
    source = Source("-", 0, Notes(), stdin=stream)
    assert source.name == "standard input"
    assert source.read() == LINES
    source.close()
    assert not stream.closed


def test_error_empty_and_marked_gzip_files_are_told_apart(tmp_path: Path) -> None:
    """An empty file has no head; a packed file of which nothing can be read says why."""
    assert content(write(tmp_path, b"")) == b""
    assert content(write(tmp_path, b"\xef\xbb\xbf")) == b""
    assert content(write(tmp_path, gzip.compress(b""))) == b""
    with pytest.raises(InputError, match=r"^in: damaged gzip data, nothing can be read"):
        content(write(tmp_path, b"\x1f\x8bnonsense that is no gzip"))
    with pytest.raises(InputError, match=r"^in: file cut off after 5 bytes of gzip data"):
        content(write(tmp_path, gzip.compress(LINES)[:5]))


def test_error_paths_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with the path and the reason."""
    with pytest.raises(InputError, match=r"missing\.log: No such file or directory$"):
        Source(str(tmp_path / "missing.log"), 0, Notes())
    with pytest.raises(InputError, match="is a directory"):
        Source(str(tmp_path), 0, Notes())
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InputError, match="standard input: closed"):
        Source("-", 0, Notes())


def test_error_a_file_that_fails_while_it_is_read() -> None:
    """Says how far it came."""

    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell():
                raise OSError(5, "Input/output error")
            return super().read(10)

    with pytest.raises(InputError, match="standard input: Input/output error after 10 bytes"):
        Source("-", 0, Notes(), stdin=Failing(bytes(100)))


@pytest.mark.parametrize(
    "data",
    [b"", gzip.compress(LINES), b"\xef\xbb\xbf" + LINES, LINES.decode().encode("utf-16"), b"\x1f\x8b"],
    ids=["empty", "gzip", "byte order mark", "UTF-16", "gzip of nothing"],
)
def test_a_file_whose_bytes_are_not_its_content_has_no_plain_path(tmp_path: Path, data: bytes) -> None:
    """It must be decoded from the start."""
    try:
        source = Source(write(tmp_path, data), 0, Notes())
    except InputError:
        return  # a gzip mark and nothing more
    try:
        assert source.plain_path == ""
    finally:
        source.close()


def test_a_file_whose_bytes_are_its_content_has_a_plain_path(tmp_path: Path) -> None:
    """Standard input has none, nor has a file that is larger than the limit."""
    size = 1 << 20
    path = write(tmp_path, bytes(size))
    for limit, expected in ((None, path), (size, path), (size - 1, "")):
        source = Source(path, 0, Notes(), max_input=limit)
        assert source.plain_path == expected
        source.close()
    assert standard_input(LINES).plain_path == ""
