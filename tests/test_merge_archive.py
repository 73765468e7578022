"""A job as an archive: each rank's trace in it, all of them the one picture."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from mio2trace.cli import cli
from mio2trace.trace import Group, Process, Trace
from mio2trace.writers import archive, native
from tests.conftest import Engine

TWIN = ("resnet-immediate-2ranks/rocpd/merged.db.gz", "resnet-immediate-2ranks/run.log")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> tuple[Path, Path]:
    """Both forms of one job."""
    folder = tmp_path_factory.mktemp("job")
    files = [str(shared / "samples" / "rocm-twins" / name) for name in TWIN]
    made = (folder / "job.tar", folder / "job.pftrace.gz")
    for path in made:
        done = CliRunner().invoke(cli, ["merge", *files, "-o", str(path), "--check"])
        assert done.exit_code == 0, done.output
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
            member = opened.extractfile(name)
            assert member is not None
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
