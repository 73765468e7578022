"""``mio2trace layers`` on CK records: layers and whole-run times over their repetitions."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import shared_folder
from tests.small_runs import Program, as_json, benchmark
from tests.test_layers_report import rows, run

POINTS = sorted((shared_folder() / "samples").glob("ck/**/ckp-*.0001.json"))
LONGEST_MS = 10**10
"""More is a difference that went below zero and was printed unsigned."""


def test_there_are_points() -> None:
    assert len(POINTS) == 10 or not (shared_folder() / "samples").is_dir()


@pytest.mark.parametrize("path", POINTS, ids=lambda path: f"{path.parent.name[:30]}/{path.name[4:12]}")
def test_cks_repetitions(pandas: Any, path: Path) -> None:
    """Mean, deviation, extremes of each layer over the repetitions, by pandas from the record itself."""
    runs = [one["run"] for one in json.loads(path.read_bytes())["characteristics_list"]]
    succeeded = [one for one in runs if one["run_success"] == "yes"] or runs
    frame = pandas.DataFrame(
        {
            "key": (entry["index"], re.sub(r"^\d+: ", "", entry["label"]), entry["direction"]),
            "ns": round(entry["time_ms"] * 1_000_000),
        }
        for one in succeeded
        for entry in one["per_layer_info"]
        if entry["time_ms"] < LONGEST_MS
    )
    groups = frame.groupby("key")["ns"]
    done = run(path)
    found = {(int(row["layer_index"]), row["layer"], row["direction"]): row for row in rows(done)}
    assert set(found) == set(groups.groups)
    for key, expected in groups:
        row = found[key]
        assert int(row["printed_count"]) == len(expected)
        assert float(row["printed_ns"]) == pytest.approx(expected.mean(), rel=1e-12)
        if len(expected) > 1:
            assert float(row["printed_std_ns"]) == pytest.approx(expected.std(), rel=1e-9, abs=1e-3)
            assert (int(row["printed_min_ns"]), int(row["printed_max_ns"])) == (expected.min(), expected.max())
        else:
            assert row["printed_std_ns"] == ""
    assert ("repetitions" in done.stderr) == (len(succeeded) > 1)


@pytest.mark.parametrize("path", POINTS, ids=lambda path: f"{path.parent.name[:30]}/{path.name[4:12]}")
def test_cks_execution_times(pandas: Any, path: Path) -> None:
    runs = [one["run"] for one in json.loads(path.read_bytes())["characteristics_list"]]
    succeeded = [one for one in runs if one["run_success"] == "yes"] or runs
    done = run(path, "--times", "--unit", "ms", "--format", "json")
    found = {row["measure"]: row for row in json.loads(done.stdout)}
    expected = {}
    for measure in ("time_fw", "time_bw", "time_fwbw", "time_total"):
        values = [one[f"{measure}_ms"] for one in succeeded if one.get(f"{measure}_ms", LONGEST_MS) < LONGEST_MS]
        if values:
            expected[measure] = pandas.Series(values)
    assert set(found) == set(expected)
    for measure, series in expected.items():
        row = found[measure]
        assert row["values_ms"] == pytest.approx(series.tolist(), abs=1e-6)
        assert row["count"] == len(series)
        assert row["mean_ms"] == pytest.approx(series.mean(), abs=1e-6)
        if len(series) > 1:
            assert row["std_ms"] == pytest.approx(series.std(), rel=1e-6, abs=1e-6)
            assert row.get("std_percent", 0) == pytest.approx(
                100 * series.std() / series.mean() if series.mean() else 0, rel=1e-6
            )
    cut = sum(
        one.get(f"{m}_ms", 0) >= LONGEST_MS
        for one in succeeded
        for m in ("time_fw", "time_bw", "time_fwbw", "time_total")
    )
    assert ("time that cannot be one left out" in done.stderr) == bool(cut)


def record(tmp_path: Path, repetitions: int = 3) -> Path:
    """A record whose repetitions hold their profiles; the second says that it failed."""
    runs = []
    for number in range(repetitions):
        calls, _ = benchmark(iterations=2, kernels=number + 1)
        layers = [
            {"direction": "forward", "index": index, "label": f"{index:02}: {name}", "time_ms": 0.1 * (number + 1)}
            for index, name in enumerate(("conv1", "ip1"))
        ]
        runs.append({"run": {
            "per_layer_info": layers, "dvdt_prof": json.loads(as_json(calls)), "time_fw_ms": 1.5 * (number + 1),
            "run_success": "no" if number == 1 else "yes", "REAL_ENV_CK_CAFFE_ITERATIONS": 2,
        }})  # fmt: skip
    path = tmp_path / "ckp-0123456789abcdef.0001.json"
    path.write_text(json.dumps({"characteristics_list": runs}))
    return path


def test_a_record_with_profiles_joins_each_repetition_with_its_own(tmp_path: Path) -> None:
    path = record(tmp_path)
    done = run(path)
    found = rows(done)
    assert [(row["layer"], row["printed_ns"], row["iterations"], row["kernels"]) for row in found] == [
        ("conv1", "200000", "4", "2"), ("ip1", "200000", "4", "2"),  # 1 and 3 kernels, twice each
    ]  # fmt: skip
    assert found[0]["kernel_ns"] == "94000"
    assert "1 x" not in done.stderr
    assert "repetition without success or without data left out" in done.stderr
    each = rows(run(path, "--each"))
    assert {row["repetition"] for row in each} == {"0", "1"}
    times = rows(run(path, "--times"))
    assert [(row["measure"], row["count"], row["mean_ns"], row["values_ns"]) for row in times] == [
        ("time_fw", "2", "3000000", "1500000; 4500000")
    ]
    one = rows(run(path, "--repetition", "1"))
    assert (one[0]["printed_ns"], one[0]["kernels"]) == ("200000", "2")
    assert run(path, "--repetition", "3").exit_code == 1
    assert "no repetition 3; it has 3" in run(path, "--repetition", "3").stderr
    assert rows(run("-", stdin=gzip.compress(path.read_bytes()))) == found


@pytest.mark.parametrize(
    ("repetitions", "wanted", "said"),
    [
        ([], 0, "no repetition 0; it has 0"),
        ([], 3, "no repetition 3; it has 0"),
        (None, 1, "no repetition 1; it has 1"),
        (None, 0, ""),
    ],
)
def test_error_a_repetition_that_a_record_does_not_have(
    tmp_path: Path, repetitions: list[dict[str, Any]] | None, wanted: int, said: str
) -> None:
    """Of a record without any, and of one that is a single run; another one is never taken in its place."""
    single = {"per_layer_info": [{"label": "00: conv1", "index": 0, "direction": "forward", "time_ms": 1.5}]}
    path = tmp_path / "record.json"
    path.write_text(json.dumps(single if repetitions is None else {"characteristics_list": repetitions}))
    done = run(path, "--repetition", str(wanted))
    assert (done.exit_code, said in done.stderr) == (int(bool(said)), True)
    assert "a fault of the program" not in done.stderr


def test_a_ck_directory(shared: Path) -> None:
    folder = shared / "samples" / "ck" / "ck-caffe-firefly-rk3399"
    done = run(folder, "--tags", "deepscale-squeezenet-1.1")
    assert len(rows(done)) == 150 - 8  # eight times of months, in each repetition
    assert "24 x layer entry that could not be read" in done.stderr
    assert "took the only point that fits" in done.stderr


def test_a_record_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ckp-0.0001.json"
    for text in (
        '{"characteristics_list": []}',
        '{"characteristics_list": [{"run": {}}]}',
        '{"characteristics_list": 3}',
    ):
        path.write_text(text)
        done = run(path)
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith(f"mio2trace: {path.name}:")


def test_a_program_without_marks_and_log(tmp_path: Path) -> None:
    """Layers of a record beside a profile of another program: nothing is attributed by force, and the line says why."""
    program = Program()
    program.enqueue("k", "0x60")
    (tmp_path / "prof.json").write_bytes(as_json(program.calls))
    entry = [{"direction": "forward", "index": 0, "label": "00: conv1", "time_ms": 1.0, "timestamp": ""}]
    (tmp_path / "layers.json").write_text(json.dumps(entry))
    done = run(tmp_path / "layers.json", tmp_path / "prof.json")
    assert done.exit_code == 1
    assert "log not used: nothing in it fits this profile (layers.json)" in done.stderr
    (row,) = rows(run(tmp_path / "layers.json"))
    assert (row["printed_ns"], row["kernels"]) == ("1000000", "")
