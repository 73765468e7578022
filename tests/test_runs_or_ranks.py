"""Profiles in folders: runs, or ranks of one job? The table of docs/many-runs.md, on PyTorch traces made for this."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mio2trace.analysis import AnalysisOptions, analyse
from mio2trace.batch.finding import find_runs
from mio2trace.notes import Notes
from tests.kineto_files import BASE_NS, rows, trace

LATER_NS = 600_000_000_000


class Told(NamedTuple):
    """The number of runs that each command finds in a folder with two profiles."""

    report: int
    compare: int
    batch: int


def profile(number: int, *, later: bool, ranked: bool) -> bytes:
    """One of two processes: at the same time, or the second ten minutes later; with its rank, or without."""
    events = [one | {"pid": 542 + number} if one["pid"] == 542 else one for one in rows()]
    rank: dict[str, Any] = {"distributedInfo": {"rank": number} if ranked else {}}
    return trace(events, base=BASE_NS + number * (LATER_NS if later else 1000), **rank)


@pytest.mark.parametrize(
    ("names", "later", "ranked", "told"),
    [
        pytest.param(("run1.json", "run2.json"), False, False, Told(1, 2, 2), id="one folder"),
        pytest.param(("run1.json", "run2.json"), True, False, Told(2, 2, 2), id="one folder, later"),
        pytest.param(("run1.json", "run2.json"), False, True, Told(1, 1, 2), id="one folder, ranks stated"),
        pytest.param(("run1.json", "run2.json"), True, True, Told(2, 2, 2), id="one folder, ranks stated, later"),
        pytest.param(("rank0.json", "rank1.json"), False, False, Told(1, 2, 1), id="files of ranks"),
        pytest.param(("rank0/a.json", "rank1/a.json"), False, False, Told(1, 2, 1), id="folders of ranks"),
        pytest.param(("rank0/a.json", "rank1/a.json"), False, True, Told(1, 1, 1), id="folders of ranks, stated"),
        pytest.param(("one/a.json", "two/a.json"), False, False, Told(2, 2, 2), id="folders"),
        pytest.param(("one/a.json", "two/a.json"), True, False, Told(2, 2, 2), id="folders, later"),
        pytest.param(("one/a.json", "two/a.json"), False, True, Told(1, 1, 2), id="folders, ranks stated"),
        pytest.param(("0.zip", "1.zip"), False, False, Told(1, 2, 2), id="archives"),
        pytest.param(("rank0/run.zip", "rank1/run.zip"), False, False, Told(1, 2, 1), id="archives of ranks"),
        pytest.param(("one/run.zip", "two/run.zip"), False, False, Told(2, 2, 2), id="archives in folders"),
    ],
)
def test_profiles_are_runs_or_ranks_by_folder_clock_and_stated_rank(
    names: tuple[str, str], later: bool, ranked: bool, told: Told, tmp_path: Path
) -> None:
    job = tmp_path / "job"
    for number, name in enumerate(names):
        path, data = job / name, profile(number, later=later, ranked=ranked)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("trace.json", data)
        else:
            path.write_bytes(data)
    found = Told(
        len(analyse(job).runs),
        len(analyse(job, AnalysisOptions(near=False)).runs),
        len(find_runs([str(job)], Notes())),
    )
    assert found == told
