"""A zip or tar archive is an input of every command, and what a stranger packed does no harm; a job as an archive."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

import mio2trace
from mio2trace import source
from mio2trace.commands import doctor
from mio2trace.notes import InputError, Notes
from mio2trace.trace import Group, Process, Trace
from mio2trace.writers import archive, native
from tests.commands import invoked, json_of, printed, stderr_of
from tests.conftest import ROOT, Engine
from tests.often import present, saved
from tests.recorders import rocprofv3
from tests.small_runs import as_json, benchmark

CALLS, LOG = benchmark()
PROFILE = as_json(CALLS)


Member = tuple[str, bytes | tarfile.TarInfo]


def packed(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    """A zip archive, unless the name says tar."""
    if path.suffix != ".zip":
        return tarred(path, [*members.items()])
    with zipfile.ZipFile(path, "w", method) as made:
        for name, data in members.items():
            made.writestr(zipfile.ZipInfo(name) if name in LEADS_OUT else name, data)
    return path


def tarred(path: Path, members: Sequence[Member], form: int = tarfile.PAX_FORMAT) -> Path:
    """Written by Python, gzipped if the name says so; a member may be a header without content."""
    with tarfile.open(path, "w:gz" if path.suffix in (".gz", ".tgz") else "w", format=form) as made:
        for name, content in members:
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.name = name
            if isinstance(content, bytes):
                info.size = len(content)
            made.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return path


def header(kind: bytes, **more: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo()
    info.type = kind
    for name, value in more.items():
        setattr(info, name, value)
    return info


in_each_form = pytest.mark.parametrize("end", ["zip", "tar", "tar.gz"])


@pytest.fixture
def run_zip(tmp_path: Path) -> Path:
    return packed(tmp_path / "run.zip", {"job/run.log": LOG.encode(), "job/prof.json": PROFILE})


@pytest.fixture
def plain(tmp_path: Path) -> list[str]:
    (tmp_path / "plain").mkdir()
    paths = tmp_path / "plain" / "prof.json", tmp_path / "plain" / "run.log"
    for path, data in zip(paths, (PROFILE, LOG.encode()), strict=True):
        path.write_bytes(data)
    return [str(path) for path in paths]


def refusal(path: Path, max_input: int | None = None) -> str:
    with pytest.raises(InputError) as raised, source.unpacked(str(path), max_input):
        pass
    return str(raised.value)


@pytest.mark.parametrize(
    "command",
    [
        ("report",), ("layers",), ("kernels",), ("ops",), ("driver",), ("messages",), ("inspect",),
        ("compare",), ("query", "slowest kernels"), ("convert", "-o", "-"),
    ],
)  # fmt: skip
def test_commands_take_an_archive_for_its_members(command: tuple[str, ...], run_zip: Path, plain: list[str]) -> None:
    """The same exit code and the same words on standard output, but for the name of the side of a comparison."""
    said = []
    for files, side in (([str(run_zip)], str(run_zip)), (plain, str(Path(plain[0]).parent))):
        given = [side, side] if command[0] == "compare" else files
        done = invoked(command[0], *given, *command[1:])
        said.append((done.exit_code, done.stdout.replace(given[0], "").replace("run.zip", "plain")))
    assert said[0] == said[1]


def test_a_folder_of_archives_is_a_folder_of_their_members(run_zip: Path, plain: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    run_zip.rename(folder / "0.zip")
    drawn = mio2trace.convert(folder)
    assert drawn.metadata["attribution"] == mio2trace.convert(*plain).metadata["attribution"]


def test_nothing_of_an_archive_stays_behind(run_zip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    analysis = mio2trace.analyse(run_zip)
    assert not list((tmp_path / "tmp").iterdir())
    assert sorted(file.path for file in analysis.inputs) == [f"{run_zip}/job/prof.json", f"{run_zip}/job/run.log"]
    with pytest.raises(InputError):
        mio2trace.analyse(packed(tmp_path / "bad.zip", {"run.log": LOG.encode(), "x/../../evil": b"x"}))
    assert not list((tmp_path / "tmp").iterdir())


def test_what_is_neither_profile_nor_log_is_passed_over_counted_and_named(tmp_path: Path) -> None:
    """An archive of nothing else is refused."""
    notes = Notes()
    photo = {"photo.jpg": b"\xff\xd8\0\0"}
    path = packed(tmp_path / "run.zip", {"run.log": LOG.encode(), "prof.json": PROFILE} | photo)
    mio2trace.analyse(path, notes=notes)
    assert "file of an archive that is neither profile nor log: skipped (run.zip/photo.jpg)" in map(str, notes)
    for nothing in ({}, photo):
        with pytest.raises(InputError, match=r"run.zip: archive without a log or a profile"):
            mio2trace.analyse(packed(path, nothing))


@in_each_form
def test_the_manifest_of_ours_says_which_members_are_inputs(end: str, tmp_path: Path) -> None:
    """A trace and a report in the archive are none, nor is a second log that is not named."""
    manifest = {"schema": source.ARCHIVE_SCHEMA, "inputs": ["run.log", "prof.json"]}
    members = {"manifest.json": orjson.dumps(manifest), "run.log": LOG.encode(), "prof.json": PROFILE}
    members |= {"other.log": LOG.replace("conv", "vnoc").encode()}
    analysis = mio2trace.analyse(packed(tmp_path / f"run.{end}", members))
    assert sorted(file.name for file in analysis.inputs) == ["prof.json", "run.log"]
    of_other = packed(tmp_path / f"other.{end}", {**members, "manifest.json": b'{"schema": "a museum"}'})
    assert len(mio2trace.analyse(of_other).inputs) == 3
    of_future = {**members, "manifest.json": b'{"schema": "mio2trace archive 9"}'}
    assert "expected 'mio2trace archive 1'" in refusal(packed(tmp_path / f"future.{end}", of_future))
    without = {name: data for name, data in members.items() if name != "prof.json"}
    assert "prof.json is missing" in refusal(packed(tmp_path / f"missing.{end}", without))


LEADS_OUT = ["../evil", "/etc/evil", "a/../../evil", "x\x07y", "a\nb", "..\\evil", "C:evil", "a//b", "a/./b", ""]
"""The first half also as members of a tar archive, which spells paths in several ways."""


@pytest.mark.parametrize("name", LEADS_OUT)
def test_a_name_that_leads_out_of_the_archive_is_refused(name: str, tmp_path: Path) -> None:
    assert "a name that leads out of the archive, or is none" in refusal(packed(tmp_path / "bad.zip", {name: b"x"}))


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("name", [*LEADS_OUT[:5], "a" * 200 + "/../../evil", "."])
def test_a_name_that_leads_out_of_a_tar_archive_is_refused(name: str, form: int, tmp_path: Path) -> None:
    path = tarred(tmp_path / "bad.tar", [("run.log", b"x"), (name, b"x")], form)
    assert "a name that leads out of the archive, or is none" in refusal(path)


@pytest.mark.parametrize("end", ["zip", "tar.gz"])
def test_a_bomb_stops_at_the_limit_with_little_memory(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members that overlap in the file count each time, and what the archive states of sizes counts for nothing.
    Folders that take longer to make than to name are refused, too: one in the other, or many side by side."""
    path = packed(tmp_path / f"bomb.{end}", {f"{number}.log": bytes(4 << 20) for number in range(12)})
    assert "more than 10 MB; --max-input" in refusal(path, 10_000_000)
    monkeypatch.setattr(source, "FREE_EXPANSION", 10_000_000)
    tracemalloc.start()
    try:
        assert "more than 10 MB; --max-input" in refusal(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    deep = packed(tmp_path / f"deep.{end}", {"a/" * 40 + "run.log": LOG.encode()})
    assert "40 folders, one in the other; expected at most 32" in refusal(deep)
    monkeypatch.setattr(source, "MOST_MEMBERS", 20)
    many = {f"{number}/" + "a/" * 9 + "run.log": LOG.encode() for number in range(3)}
    assert "folders in the archive; expected at most 20" in refusal(packed(tmp_path / f"many.{end}", many))


def test_a_tar_archive_has_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member twice, a header without end, too many files or headers."""
    twice = tarred(tmp_path / "twice.tar", [("run.log", b"a"), ("./run.log", b"b")])
    assert "run.log: twice" in refusal(twice)
    endless = tarred(tmp_path / "endless.tar", [("k" * 2_000_000, b"x")])
    assert "a header of more than 1 MiB" in refusal(endless)
    monkeypatch.setattr(source, "MOST_MEMBERS", 20)
    files = tarred(tmp_path / "files.tar", [(f"{number}", b"") for number in range(21)])
    assert "more than 20 files in the archive" in refusal(files)
    folders = tarred(tmp_path / "folders.tar", [(f"{number}", header(tarfile.DIRTYPE)) for number in range(101)])
    assert "more than 100 headers in the archive" in refusal(folders)


@pytest.mark.parametrize("end", ["zip", "tar"])
def test_an_archive_with_a_flipped_byte_is_read_or_refused(end: str, tmp_path: Path) -> None:
    path = packed(tmp_path / f"run.{end}", {"run.log": LOG.encode(), "x" * 120: b"x", "prof.json": PROFILE})
    data = path.read_bytes()
    last = range(len(data) - 200, len(data), 4) if end == "zip" else range(len(data) - 12_000, len(data), 97)
    for at in [*range(0, 40 if end == "zip" else 512, 3), *last]:
        for bit in (0x55,) if end == "zip" else (0x55, 0x80, 0xFF):
            path.write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
            with contextlib.suppress(InputError), source.unpacked(str(path)) as made:
                assert all(os.path.isfile(os.path.join(made.folder, member)) for member in made.members)


@in_each_form
def test_an_archive_from_a_pipe_is_refused_with_what_to_give(end: str, tmp_path: Path) -> None:
    said = stderr_of(
        invoked("report", "-", stdin=packed(tmp_path / f"run.{end}", {"run.log": LOG.encode()}).read_bytes()), 1
    )
    assert "expected the archive itself, by its path" in said


NO_FILES = {
    "link": header(tarfile.SYMTYPE, linkname="/etc/passwd"),
    "hard": header(tarfile.LNKTYPE, linkname="run.log"),
    "pipe": header(tarfile.FIFOTYPE),
    "device": header(tarfile.CHRTYPE),
    "holes": header(tarfile.GNUTYPE_SPARSE),
    "holes of today": header(tarfile.REGTYPE, pax_headers={"GNU.sparse.major": "1"}),
}


@pytest.mark.parametrize("told", [b'"x": ' + b"[" * 100_000, b'"x": "\xff"}'])
def test_a_manifest_that_cannot_be_read_is_nobodys(told: bytes, tmp_path: Path) -> None:
    """Nested as deeply as no parser goes, or no text: the archive is one of others, and its members are inputs."""
    manifest = b'{"schema": "mio2trace archive 1", ' + told
    members = {"manifest.json": manifest, "run.log": LOG.encode(), "prof.json": PROFILE}
    names = [file.name for file in mio2trace.analyse(packed(tmp_path / "run.zip", members)).inputs]
    assert {"run.log", "prof.json"} <= set(names)


def test_links_locks_doubles_archives_and_other_methods_are_refused_by_name(run_zip: Path, tmp_path: Path) -> None:
    path = packed(tmp_path / "nested.zip", {"run.log": LOG.encode(), "more/inner.dat": run_zip.read_bytes()})
    assert "nested.zip: more/inner.dat: an archive in an archive" in refusal(path)
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as made:
        made.writestr(link, "/etc/passwd")
    assert "link.zip: link: a link or a device" in refusal(tmp_path / "link.zip")
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("run.log", "a")
        with pytest.warns(UserWarning, match="Duplicate"):
            made.writestr("run.log", "b")
    assert "run.log: twice" in refusal(path)
    assert "run.log: packed by method 14" in refusal(packed(path, {"run.log": b"x"}, zipfile.ZIP_LZMA))
    data = bytearray(packed(path, {"run.log": b"x"}).read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    assert "run.log: locked with a password" in refusal(path)


def test_a_directory_without_end_is_not_read(tmp_path: Path) -> None:
    """Its size is what the archive states: a few bytes that ask for gigabytes."""
    path = packed(tmp_path / "big.zip", {"run.log": b"x"})
    many = packed(tmp_path / "many.zip", {f"{number}" * 9: b"" for number in range(10_001)})
    assert "10001 files in the archive" in refusal(many)
    data = bytearray(path.read_bytes() + bytes(6 << 20))
    end = data.rindex(b"PK\x05\x06")
    record = bytes(data[end : end + 22])
    data += record[:12] + (5 << 20).to_bytes(4, "little") + record[16:]
    path.write_bytes(data)
    assert "its directory is larger than 4 MiB" in refusal(path)


@pytest.mark.parametrize("cut", [10, 60, -30, -5])
def test_a_damaged_archive_is_one_line(cut: int, run_zip: Path) -> None:
    run_zip.write_bytes(run_zip.read_bytes()[:cut])
    assert refusal(run_zip).startswith("run.zip: ")
    assert stderr_of(invoked("report", run_zip), 1).count("\n") == 1


def test_an_archive_of_tensorflows_profile_is_for_tfprof(shared: Path, tmp_path: Path) -> None:
    profile = shared / "samples/tfprof/gpu_streams_resnet_v2/profile.tfprof"
    path = packed(tmp_path / "tf.zip", {profile.name: profile.read_bytes(), "run.log": LOG.encode()})
    done = [invoked("tfprof", file, "--format", "json") for file in (path, profile)]
    assert done[0].exit_code == done[1].exit_code == 0
    assert json.loads(done[0].stdout) == json.loads(done[1].stdout)


@pytest.mark.parametrize("command", ["convert", "report", "kernels", "layers", "ops", "driver", "inspect", "bundle"])
def test_an_archive_that_names_no_input_is_one_line(command: str, tmp_path: Path) -> None:
    """As of a recorded program that printed nothing and ran nothing on a GPU."""
    manifest = {"schema": source.ARCHIVE_SCHEMA, "inputs": []}
    path = packed(tmp_path / "run.zip", {"manifest.json": orjson.dumps(manifest), "run.log": b""})
    output = {"convert": ["-o", str(tmp_path / "out.json")], "bundle": ["-o", str(tmp_path / "out.zip")]}
    done = invoked(command, path, *output.get(command, []))
    assert done.exit_code == 1
    assert ": holds no input; expected " in done.output
    assert len(done.output.splitlines()) == 1


# -- Tar archives alone


@pytest.mark.parametrize("name", ["run.tar", "run.tar.gz", "run.tgz", "run.bin"])
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("begin", ["", "./", "a" * 90 + "/" + "b" * 60 + "/"])
def test_a_tar_is_read_for_its_members(name: str, form: int, begin: str, plain: list[str], tmp_path: Path) -> None:
    """Whatever its name and form, also with long names and folders in it."""
    members: list[Member] = [(begin or "job", header(tarfile.DIRTYPE))]
    members += [(f"{begin}{os.path.basename(path)}", Path(path).read_bytes()) for path in plain]
    path = tarred(tmp_path / name, members, form)
    analysis = mio2trace.analyse(path)
    assert [file.sha256 for file in analysis.inputs] == [file.sha256 for file in mio2trace.analyse(plain).inputs]
    shown = begin.removeprefix("./")
    assert sorted(file.path for file in analysis.inputs) == [f"{path}/{shown}prof.json", f"{path}/{shown}run.log"]
    drawn = [mio2trace.convert(*files).metadata["attribution"] for files in ([path], plain)]
    assert drawn[0] == drawn[1]


def test_the_tar_that_tar_makes_is_read(plain: list[str], tmp_path: Path) -> None:
    """With what GNU tar writes by itself: `./`, folders, blocks of zeros up to its blocking factor."""
    path = tmp_path / "run.tar.gz"
    subprocess.run(["tar", "-czf", path, "-C", str(Path(plain[0]).parent), "."], check=True)
    assert sorted(file.name for file in mio2trace.analyse(path).inputs) == ["prof.json", "run.log"]


@pytest.mark.parametrize("name", NO_FILES)
def test_a_tar_archive_with_what_is_no_plain_file_is_refused(name: str, tmp_path: Path) -> None:
    path = tarred(tmp_path / "bad.tar", [("run.log", LOG.encode()), (name, NO_FILES[name])])
    assert f"bad.tar: {name}: a link or a device" in refusal(path)


# Each takes long, or shows words of Python, if only the sum of the sizes is limited.
HOSTILE_HEADERS = {
    "a name of dots and slashes": ((b"L", b"./" * (1 << 19)), "a name that leads out"),
    "records of one letter": ((b"x", b"2 " * (1 << 19)), "an extended header without its lengths"),
    "a record without its line feed": ((b"x", b"12 path=a.jx"), "an extended header without its lengths"),
    "a size of thousands of digits": ((b"x", b"5012 size=" + b"9" * 5001 + b"\n"), "a size that is none"),
    "a size that is no number": ((b"x", b"11 size=-1\n"), "a size that is none"),
}


def extended(kind: bytes, text: bytes) -> bytes:
    """An extended header with the given content."""
    info = header(kind, name="header", size=len(text))
    return info.tobuf(tarfile.USTAR_FORMAT) + text + bytes(-len(text) % 512)


def with_headers(path: Path, headers: Sequence[bytes]) -> Path:
    """An archive of an empty file behind these headers."""
    path.write_bytes(b"".join([*headers, header(tarfile.REGTYPE, name="run.log").tobuf(), bytes(1024)]))
    return path


@pytest.mark.parametrize("name", HOSTILE_HEADERS)
def test_a_hostile_header_of_a_tar_archive_is_refused_at_once(name: str, tmp_path: Path) -> None:
    (kind, text), said = HOSTILE_HEADERS[name]
    path = with_headers(tmp_path / "bad.tar", [extended(kind, text)])
    begin = time.process_time()
    assert said in refusal(path)
    assert time.process_time() - begin < 1


@pytest.mark.parametrize("field", [b"\xff" * 12, b"-0000000001\0", b"1_000000000\0", b"0000000008x\0"])
def test_a_number_of_a_tar_header_has_octal_digits(field: bytes, tmp_path: Path) -> None:
    block = bytearray(header(tarfile.REGTYPE, name="run.log").tobuf(tarfile.USTAR_FORMAT))
    block[124:136], block[148:156] = field, b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    (tmp_path / "bad.tar").write_bytes(bytes(block) + bytes(1024))
    damaged = "bad.tar: damaged tar archive: a header with a number that is none; expected a whole tar archive"
    assert refusal(tmp_path / "bad.tar") == damaged


def test_the_extended_headers_of_a_tar_archive_have_a_limit_together(tmp_path: Path) -> None:
    """Gzip packs them to a thousandth."""
    text = b"1000000 comment=".ljust(999_999, b"x") + b"\n"
    with source.unpacked(str(with_headers(tmp_path / "run.tar", 16 * [extended(b"x", text)]))) as made:
        assert made.members == ("run.log",)
    path = with_headers(tmp_path / "bad.tar", 17 * [extended(b"x", text)])
    assert refusal(path) == "bad.tar: more than 16 MiB of headers in the archive; expected less"


@pytest.mark.parametrize("name", ["run.tar", "run.tar.gz"])
def test_a_cut_tar_archive_is_refused_as_cut_off(name: str, tmp_path: Path) -> None:
    """Anywhere, also between two members; whatever follows the end is refused, too."""
    path = tarred(tmp_path / name, [("run.log", LOG.encode()), ("prof.json", PROFILE)])
    data = path.read_bytes()
    end = len(data) if name.endswith("gz") else len(data.rstrip(b"\0"))
    second = 512 * (2 + len(LOG.encode()) // 512)
    for cut in (600, end // 2, end - 9, *((second,) if second < end else ())):
        path.write_bytes(data[:cut])
        assert refusal(path) == f"{name}: file cut off; expected a whole tar archive"
    done = invoked("report", str(path))
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    path.write_bytes(2 * data)
    assert "content behind the end of the archive" in refusal(path)


def test_a_bundle_of_an_archive_whose_members_are_far_below(plain: list[str], tmp_path: Path) -> None:
    members = {f"home/job/run 1/{os.path.basename(path)}": Path(path).read_bytes() for path in plain}
    for given in (packed(tmp_path / "run.zip", members), tarred(tmp_path / "run.tar", [*members.items()])):
        out = tmp_path / f"{given.suffix[1:]}-bundle.zip"
        done = invoked("bundle", str(given), "-o", str(out))
        assert done.exit_code == 0, done.output
        assert len(mio2trace.analyse(out).inputs) == 2


def test_an_archive_of_other_files_beside_a_profile_is_left_out(plain: list[str], tmp_path: Path) -> None:
    """A folder of a bug report may hold the program's sources, packed; without a profile beside them it is refused."""
    folder = Path(plain[0]).parent
    tarred(folder / "sources.tar.gz", [("photo.jpg", b"\xff\xd8\0\0")])
    packed(folder / "more.zip", {"photo.jpg": b"\xff\xd8\0\0"})
    notes = Notes()
    assert len(mio2trace.analyse(folder, notes=notes).inputs) == 2
    assert sum(note.count for note in notes if note.kind == "archive of a folder left out") == 2
    for path in plain:
        os.unlink(path)
    with pytest.raises(InputError, match=r"^(more\.zip|sources\.tar\.gz): archive without a log or a profile$"):
        mio2trace.analyse(folder)


# -- `mio2trace completion` and `mio2trace doctor`.


SHELLS = {
    "bash": """eval "$(mio2trace completion bash)"
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _mio2trace_completion mio2trace
echo ${COMPREPLY[@]}; }
""",
    "zsh": """compdef() { : }; compadd() { print -- $completions }
_describe() { print -- ${completions_with_descriptions%%:*} }
eval "$(mio2trace completion zsh)"
try() { words=("$@"); CURRENT=$#; _mio2trace_completion }
""",
    "fish": """mio2trace completion fish | source
function try; complete -C "$argv" | cut -f 1 | string join " "; end
""",
}
"""What a person puts into the shell's own start, and what the shell does at a tab."""


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_a_command_an_option_and_a_column(shell: str, tmp_path: Path) -> None:
    """With what the command prints, in a real shell where it is installed."""
    assert "_MIO2TRACE_COMPLETE" in invoked("completion", shell).stdout
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell}")
    saved(tmp_path / "mio2trace", f'#!/bin/sh\nexec "{sys.executable}" -m mio2trace "$@"\n').chmod(0o755)
    script = f"{SHELLS[shell]}try mio2trace bund; try mio2trace bundle --che; try mio2trace layers --sort kerne\n"
    given = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "timeline")}
    option = {"bash": "--norc", "zsh": "-f", "fish": "--no-config"}[shell]
    done = subprocess.run([path, option, "-c", script], env=given, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["bundle", "--check"], done
    assert "kernel" in lines[2].split()


def test_an_unknown_shell_is_refused_with_those_there_are() -> None:
    assert "'bash', 'zsh', 'fish'" in stderr_of(invoked("completion", "csh"), 2)


def rows(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    for name in list(os.environ):
        if name.startswith(("ROC", "PATH")):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return {row["part"]: row for row in json_of("doctor")}


def test_doctor_tells_what_is_there_and_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = rocprofv3(tmp_path / "rocm")
    found = rows({"PATH": there.environment["PATH"]}, monkeypatch)
    assert found["rocprofv3"]["found"] == "rocprofv3 1.1.0 (ROCm 7.2.3)"
    assert "missing" not in found["rocprofv3"]
    assert found["msgspec"]["found"]
    assert {"[view]", "[query]", "[batch]", "browser", "OpenCL", "GPUs", "temporary files"} <= set(found)
    bare = rows({"PATH": "/nowhere", "ROCPROFILER_REGISTER_LIBRARY": "x"}, monkeypatch)
    assert "rocprofiler-sdk" in bare["rocprofv3"]["missing"]
    assert bare["browser"]["missing"]
    assert bare["ROCPROFILER_REGISTER_LIBRARY"]["missing"].startswith("unset it")


def test_doctor_names_the_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: "" if name == "viztracer" else "1")
    monkeypatch.setattr(doctor, "_requirements", lambda: {"": ["click"], "view": ["viztracer"], "query": ["perfetto"]})
    found = rows({"PATH": "/usr/bin:/bin"}, monkeypatch)
    assert found["[view]"]["missing"] == "pip install 'mio2trace[view]'"
    assert "missing" not in found["[query]"]


def test_doctor_believes_a_checkout_and_not_what_pip_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output, which people paste into issues, has no name of a person or a machine."""
    monkeypatch.setattr("importlib.metadata.requires", lambda _: ["bokeh>=3; extra == 'batch'"])
    home = {"HOME": "/home/canaryuser", "USER": "canaryuser", "HOSTNAME": "canaryhost"}
    found = rows({"PATH": "/usr/bin:/bin", **home}, monkeypatch)
    assert "msgspec" in found
    for word in ("bokeh", "canary"):
        assert word not in json.dumps(found)


# -- A job as an archive: each rank's trace in it, all of them the one picture.


TWIN = ("resnet-immediate-2ranks/rocpd/merged.db.gz", "resnet-immediate-2ranks/run.log")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> tuple[Path, Path]:
    """Both forms of one job."""
    folder = tmp_path_factory.mktemp("job")
    files = [str(shared / "samples" / "rocm-twins" / name) for name in TWIN]
    made = (folder / "job.tar", folder / "job.pftrace.gz")
    for path in made:
        printed("merge", *files, "-o", path, "--check")
    return made


@pytest.mark.shared
def test_each_rank_is_a_trace_and_all_are_the_picture(both: tuple[Path, Path]) -> None:
    """The manifest is first and names them; no slice is lost, none is in two; the bytes are the same each time."""
    in_parts = []
    with tarfile.open(both[0]) as opened:
        names = opened.getnames()
        assert names == ["perfetto_manifest.json", "rank-0.pftrace.gz", "rank-1.pftrace.gz"]
        manifest = json.load(opened.extractfile(names[0]) or io.BytesIO())
        assert manifest == {"perfetto_manifest": {"version": 1, "files": [{"path": name} for name in names[1:]]}}
        assert {(member.mtime, member.uname, member.uid) for member in opened} == {(0, "", 0)}
        for name in names[1:]:
            member = present(opened.extractfile(name))
            in_parts.append(_slices(member.read()))
    whole = _slices(both[1].read_bytes())
    assert min(map(len, in_parts)) > 1000
    assert sorted([*in_parts[0], *in_parts[1]]) == whole


def _slices(data: bytes) -> list[str]:
    """But for their tracks, which each file numbers by itself."""
    slices = native.slices(io.BytesIO(gzip.decompress(data)))
    return sorted(str((one.start_ns, one.dur_ns, one.name, one.category, dict(one.args))) for one in slices)


@pytest.mark.shared
@pytest.mark.engine
def test_perfetto_reads_the_archive_as_the_one_picture(both: tuple[Path, Path], engine: Engine) -> None:
    answers = []
    for path in both:
        opened = engine(path)
        assert not opened.errors()
        sums = "select category, count(*) n, sum(dur) d, min(ts) t from slice group by 1 order by 1"
        counts = "select (select count(*) from flow) flows, (select count(*) from counter) counters"
        answers.append((list(opened.query(sums)), list(opened.query(counts))))
    assert answers[0] == answers[1]
    assert len(answers[0][0]) > 5


def test_ranks_of_one_name_are_told_apart() -> None:
    """And a name that no file can have becomes one."""
    groups = tuple(Group(name="rank 0/../x", processes=frozenset({number})) for number in (1, 2))
    processes = tuple(Process(id=number, name="a") for number in (1, 2))
    out = io.BytesIO()
    names = archive.write(Trace(processes=processes, tracks=(), metadata={}, parts=(), groups=groups), out)
    assert names == ["rank-0-..-x-0.pftrace.gz", "rank-0-..-x-1.pftrace.gz"]
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as opened:
        assert opened.getnames()[1:] == names
