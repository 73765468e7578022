"""Replays whose kernels an RPD profile does not name: iterations where numbers leave no other reading."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from pathlib import Path

import orjson
import pytest

from mio2trace import analyse
from mio2trace.align import NONE, Alignment
from mio2trace.conversion import convert
from tests.rocm_files import plain, samples

pytestmark = pytest.mark.shared
FOLDER = samples() / "rocm-twins" / "alexnet-10it-graph"
ASKED = b"Testing for 10 iterations"


def joined(*files: Path) -> Alignment:
    (alignment,) = analyse(files).runs[0].alignments
    return alignment


def iterations(alignment: Alignment) -> Counter[int | None]:
    kernels = (at for at, one in enumerate(alignment.profile.activities) if one.kind == "kernel")
    return Counter(alignment.links.iteration_of(at) for at in kernels)


def changed(folder: Path, statement: str) -> Path:
    path = plain(FOLDER / "rpd" / "trace.rpd.gz", folder)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()
    return path


def test_launches_of_a_graph_are_the_iterations_that_the_log_asked_for() -> None:
    """29 kernels in each of ten, in their true layers, which are in doubt."""
    alignment = joined(FOLDER / "rpd" / "trace.rpd.gz", FOLDER / "run.log")
    assert {number: count for number, count in iterations(alignment).items() if number} == dict.fromkeys(
        range(1, 11), 29
    )
    truth = orjson.loads((FOLDER / "truth.json").read_bytes())
    name_of = {one["rpd"]: truth["layers"][one["layer"]]["name"] for one in truth["kernels"] if "rpd" in one}
    links = alignment.links
    placed = [at for at, word in enumerate(links.layer_by) if word == "order"]
    assert len(placed) == 9 * 29
    for at in placed:
        run = links.runs[links.run_of[at]]
        said = f"iter{links.passes[run.pass_].iteration - 1} {run.direction} {run.layer}"  # type: ignore[operator]
        assert said == name_of[alignment.profile.activities[at].number]
        assert links.layer_confidence[at] <= 0.5
    answer = convert(FOLDER / "rpd" / "trace.rpd.gz", FOLDER / "run.log").answer
    assert "21.12 ms of kernels (9 steady of 10" in " ".join(" ".join(answer[:4]).split())


@pytest.mark.parametrize("asked", [b"Testing for 11 iterations", b"Testing for 9 iterations", b"Testing some"])
def test_launches_that_are_not_as_many_are_no_iterations(tmp_path: Path, asked: bytes) -> None:
    """Some may be of something else, or hold several."""
    log = (FOLDER / "run.log").read_bytes()
    assert log.count(ASKED) == 1
    (tmp_path / "run.log").write_bytes(log.replace(ASKED, asked))
    assert max(filter(None, iterations(joined(FOLDER / "rpd" / "trace.rpd.gz", tmp_path / "run.log")))) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM rocpd_op WHERE id = (SELECT max(op_id) FROM rocpd_api_ops JOIN rocpd_op o ON o.id = op_id"
        " JOIN rocpd_string s ON s.id = o.opType_id WHERE s.string = 'Task')",
        "UPDATE rocpd_api_ops SET api_id = (SELECT max(api_id) FROM rocpd_api_ops) WHERE op_id = 122",
    ],
)
def test_launches_of_other_graphs_are_no_iterations(tmp_path: Path, statement: str) -> None:
    """One with a kernel less, one with a kernel more."""
    alignment = joined(changed(tmp_path, statement), FOLDER / "run.log")
    assert max(filter(None, iterations(alignment))) == 1
    tasks = [at for at, one in enumerate(alignment.profile.activities) if one.name == "Task"]
    assert tasks
    assert all(alignment.links.pass_of[at] == NONE for at in tasks)
