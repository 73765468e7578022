"""The tables against pandas, which computes them from the profile's own JSON, and against a published notebook.

Nothing here goes through our readers but the command under test.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import math
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import mio2trace
from mio2trace.kernels import find_gemms
from mio2trace.model.profile import Activity, Profile, Queue
from mio2trace.reports import STATISTICS, describe
from mio2trace.reports.kernels import by_name, gemm_table
from tests.commands import invoked, printed
from tests.conftest import ROOT, missing, shared_folder
from tests.records import enqueued, opencl_profile

SETS = sorted(
    path
    for folder in (shared_folder() / "samples" / "dvdt", *(ROOT / "traces").glob("*"))
    for pattern in ("acl-sample.json", "*.prof.json", "prof.json.gz")
    for path in folder.glob(pattern)
)
of_sets = pytest.mark.parametrize("path", SETS, ids=lambda path: f"{path.parent.name}/{path.name}")
TWIN = ROOT / "traces" / "alexnet-b1-train" / "prof.json.gz"
"""The net, batch, phase and iterations of the published notebook with CLBlast, on another machine."""
THEIRS = dict(zip(STATISTICS, ("mean", "std", "min", "25%", "50%", "75%", "max"), strict=True))
QUANTITIES = ("t1_t0", "p3_p0", "p3_p2", "p2_p1", "p1_p0")


@cache
def load(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    calls: list[dict[str, Any]] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return calls


@cache
def expected_enqueues(pandas: Any, path: Path) -> Any:
    """The notebook's table: calls numbered, kernels kept, differences of times, all in whole ns."""
    rows = []
    for index, call in enumerate(load(path)):
        if call["call"] != "clEnqueueNDRangeKernel":
            continue
        row = {"call_index": index, "name": call["name"], "gws": tuple(call["gws"]), "lws": tuple(call["lws"])}
        row |= {f"p{at}": call["profiling"][key] for at, key in enumerate(("queued", "submit", "start", "end"))}
        stamps = call.get("timestamp", {})
        if "T" in stamps.get("start", "") and "T" in stamps.get("end", ""):
            row["t0"], row["t1"] = (pandas.Timestamp(stamps[k]).value for k in ("start", "end"))
        rows.append(row)
    frame = pandas.DataFrame(rows)
    for quantity in QUANTITIES:
        end, start = quantity.split("_")
        if end in frame:
            frame[quantity] = frame[end] - frame[start]
    return frame


def read_back(pandas: Any, path: Path, *args: str) -> Any:
    return pandas.read_csv(io.StringIO(printed("kernels", path, "--raw", *args)), keep_default_na=False, na_values=[""])


def test_there_are_sets() -> None:
    """In the repository itself, and many more beside it where the samples are."""
    assert {path.parent.name for path in SETS} >= {"alexnet-b1-train", "squeezenet11-b1-libdnn-fwd"}
    assert len(SETS) >= 15 or not (shared_folder() / "samples").is_dir()


@of_sets
def test_enqueue_table(pandas: Any, path: Path) -> None:
    expected, found = expected_enqueues(pandas, path), read_back(pandas, path)
    assert len(found) == len(expected) > 0
    for column in ("call_index", "name"):
        assert found[column].tolist() == expected[column].tolist()
    for column in ("gws", "lws"):
        shown = ["x".join(map(str, size)) if any(size) or column == "gws" else "" for size in expected[column]]
        assert found[column].fillna("").tolist() == shown
    for quantity in QUANTITIES:
        if quantity in expected:
            assert found[f"{quantity}_ns"].tolist() == expected[quantity].tolist()
        else:
            assert found[f"{quantity}_ns"].isna().all()
    if "t1_t0" in expected:
        assert found["overhead_ns"].tolist() == (expected["t1_t0"] - expected["p3_p0"]).tolist()


@pytest.mark.parametrize(("unit", "ns"), [("us", 1e3), ("ms", 1e6), ("s", 1e9)])
def test_units(pandas: Any, unit: str, ns: float) -> None:
    expected, found = expected_enqueues(pandas, TWIN), read_back(pandas, TWIN, "--unit", unit)
    for quantity in QUANTITIES:
        assert found[f"{quantity}_{unit}"].tolist() == pytest.approx((expected[quantity] / ns).tolist(), rel=1e-12)


@of_sets
def test_sums_by_name(pandas: Any, path: Path) -> None:
    frame, found = expected_enqueues(pandas, path), read_back(pandas, path, "--by", "name")
    known = [quantity for quantity in QUANTITIES if quantity in frame]
    expected = frame.groupby("name")[known].sum()
    assert found["p3_p2_sum_ns"].tolist() == sorted(found["p3_p2_sum_ns"], reverse=True)
    assert found["name"].is_unique
    found = found.set_index("name")
    assert found["count"].to_dict() == frame["name"].value_counts().to_dict()
    for quantity in known:
        assert found[f"{quantity}_sum_ns"].to_dict() == expected[quantity].to_dict()
    share = 100 * expected["p3_p2"] / frame["p3_p2"].sum()
    assert found["percent_of_kernel_time"].to_dict() == pytest.approx(share.to_dict(), rel=1e-12)


def compare_description(pandas: Any, groups: Any, found: Any, quantity: str) -> None:
    """pandas' ``describe`` of each kernel index: count, mean, std (n - 1), min, linear quartiles, max."""
    expected = groups[quantity].describe()
    assert found["count"].tolist() == expected["count"].tolist()
    for ours, theirs in THEIRS.items():
        mine, other = found[f"{quantity}_{ours}_ns"], expected[theirs]
        assert mine.isna().tolist() == other.isna().tolist()
        kept = ~other.isna().to_numpy()
        assert mine[kept].tolist() == pytest.approx(other[kept].tolist(), rel=1e-9, abs=1e-3)


@pytest.mark.parametrize("per", [1, 4, 37])
@of_sets
def test_statistics_by_repetition(pandas: Any, path: Path, per: int) -> None:
    found = read_back(pandas, path, "--by", "repetition", "--per", str(per))
    frame = expected_enqueues(pandas, path)
    groups = frame.groupby([position % per for position in range(len(frame))])
    assert found["kernel_index"].tolist() == list(groups.groups)
    assert found["name"].tolist() == ["; ".join(dict.fromkeys(names)) for _, names in groups["name"]]
    for quantity in QUANTITIES:
        if quantity in frame:
            compare_description(pandas, groups, found, quantity)


@pytest.mark.parametrize("name", ["clblast-lenet-seq-x3", "offline-parser"])
@pytest.mark.shared
def test_the_found_period_is_that_of_the_program(pandas: Any, shared: Path, name: str) -> None:
    """A program that runs its sequence three times: the period of 6 that the file's INDEX tells."""
    path = shared / "samples" / "dvdt" / f"{name}.prof.json"
    found = read_back(pandas, path, "--by", "repetition")
    assert found.equals(read_back(pandas, path, "--by", "repetition", "--per", "6"))
    assert found["count"].tolist() == [3] * 6


def real_sizes(calls: list[dict[str, Any]]) -> dict[int, tuple[int, int, int]]:
    """M, N, K of every XgemmDirect by its call: the last arguments 0, 1 and 2 set on its kernel before it."""
    arguments: dict[str, dict[int, str]] = {}
    found = {}
    for index, call in enumerate(calls):
        if call["call"] == "clCreateKernel":
            arguments[call["kernel"]] = {}
        elif call["call"] == "clSetKernelArg":
            arguments.setdefault(call["kernel"], {})[call["arg_index"]] = call["arg_value"]
        elif call["call"] == "clEnqueueNDRangeKernel" and call["name"].startswith("XgemmDirect"):
            values = arguments[call["kernel"]]
            m, n, k = (int.from_bytes(bytes.fromhex(values[at]), "little") for at in (0, 1, 2))
            found[index] = m, n, k
    return found


@of_sets
def test_gemms_and_their_buckets(pandas: Any, path: Path) -> None:
    frame, found = expected_enqueues(pandas, path).set_index("call_index"), read_back(pandas, path, "--gemm")
    if path.name != "offline-parser.prof.json" and len(found):  # its handles collide
        direct = found[found["name"].str.startswith("XgemmDirect")].set_index("call_index")
        sizes = real_sizes(load(path))
        assert list(direct[["M", "N", "K"]].itertuples(name=None)) == [(at, *of) for at, of in sizes.items()]
        batch = direct["batch"].fillna(1)
        assert (direct["flop"] == 2 * direct["M"] * direct["N"] * direct["K"] * batch).all()
        assert (direct["p3_p2_ns"] == frame.loc[direct.index, "p3_p2"]).all()
        assert direct["gflops"].tolist() == pytest.approx((direct["flop"] / direct["p3_p2_ns"]).tolist(), rel=1e-12)
    buckets = read_back(pandas, path, "--by", "bucket")
    assert buckets["count"].sum() == len(found)
    if not len(found):
        return
    # The nearest of all triples of powers of two in Euclidean distance; the powers are tried, not computed.
    powers = [1 << exponent for exponent in range(15)]
    nearest = {
        sizes: tuple(min(powers, key=lambda power: (abs(power - size), power)) for size in sizes)
        for sizes in found[["M", "N", "K"]].itertuples(index=False, name=None)
    }
    for sizes_of, bucket in list(nearest.items())[:3]:
        assert min((math.dist(sizes_of, abc), abc) for abc in itertools.product(powers, repeat=3))[1] == bucket
    found["bucket"] = [nearest[sizes] for sizes in found[["M", "N", "K"]].itertuples(index=False, name=None)]
    groups = found.groupby("bucket")
    buckets.index = list(buckets[["bucket_M", "bucket_N", "bucket_K"]].itertuples(index=False, name=None))
    assert buckets["count"].to_dict() == groups.size().to_dict()
    assert buckets["p3_p2_sum_ns"].to_dict() == groups["p3_p2_ns"].sum().to_dict()
    rate = groups["flop"].sum() / groups["p3_p2_ns"].sum()
    assert buckets["gflops"].to_dict() == pytest.approx(rate.to_dict(), rel=1e-12)
    share = 100 * groups["p3_p2_ns"].sum() / found["p3_p2_ns"].sum()
    assert buckets["percent_of_gemm_time"].to_dict() == pytest.approx(share.to_dict(), rel=1e-12)


@pytest.mark.parametrize(
    "values", [[5], [1, 2], [3, 3, 3], [10**18 + 7, 10**18 + 9, 10**18 + 1], [0, 10**12, 5, 7, 7], list(range(100))]
)
def test_describe(pandas: Any, values: list[int]) -> None:
    expected = pandas.Series(values).describe()
    found = describe(values)
    assert found.keys() == set(STATISTICS) - ({"std"} if len(values) == 1 else set())
    for ours in found:
        if ours == "std" and values[0] > 10**17:
            assert found["std"] == pytest.approx(4.163332)  # pandas loses it: 10^18 is beyond its floats
        else:
            assert found[ours] == pytest.approx(expected[THEIRS[ours]], rel=1e-12)


# -- the published notebook ------------------------------------------------------------------------------------------

SAME_AXPY = {"XaxpyFaster": "XaxpyFast", "XaxpyFastest": "XaxpyFast", "Xaxpy": "XaxpyFast"}
"""CLBlast 1.5 has three kernels where the version of the notebook had two."""
DIRECT = ("XgemmDirectNN", "XgemmDirectTN", "XgemmDirectTT")


@pytest.fixture(scope="module")
def notebook() -> dict[str, Any]:
    path = shared_folder() / "samples" / "ck" / "gtx1080-alexnet-notebook-outputs.json"
    if not path.is_file():
        missing("shared", f"no notebook outputs in {path.parent}")
    tables: dict[str, Any] = json.loads(path.read_bytes())
    return tables


def family(name: str) -> str:
    return SAME_AXPY.get(name, name)


def ms(row: dict[str, Any], column: str) -> int:
    """A printed time in ns: pandas printed six decimals of a ms, so nothing is lost."""
    return round(float(row[f"{column} (ms)"]) * 1_000_000)


def test_the_twin_has_the_notebooks_kernels(pandas: Any, notebook: dict[str, Any]) -> None:
    """Names and order of the 60 rows that the notebook shows of 176, and how often each name comes; work sizes and
    times are the device's own. M, N and K of all 37 GEMMs, in the order of the calls."""
    rows = notebook["kernel_enqueues_head30_gap_tail30"]
    names = [family(name) for name in read_back(pandas, TWIN)["name"]]
    assert names[:30] + names[-30:] == [family(row["name"]) for row in rows[:30] + rows[31:]]
    expected = [family(row["name"]) for row in notebook["sum_by_kernel_name"] for _ in range(row["count"])]
    assert Counter(names) == Counter(expected)
    assert len(names) == 176
    found = read_back(pandas, TWIN, "--gemm")
    for name, count in zip(DIRECT, (3, 26, 8), strict=True):
        calls = sorted(notebook[name], key=lambda row: row["call_index"])
        sizes = [(row["kSizeM"], row["kSizeN"], row["kSizeK"]) for row in calls]
        assert list(found[found["name"] == name][["M", "N", "K"]].itertuples(index=False, name=None)) == sizes
        assert len(sizes) == count


def test_the_twin_has_the_notebooks_repetitions(pandas: Any, notebook: dict[str, Any]) -> None:
    """Its period of 4 was left over from another program: 44 kernels in each of four rows of mixed names. We say so."""
    found = read_back(pandas, TWIN, "--by", "repetition", "--per", "4")
    counts = [row["p3 - p2 (ms)"] for row in notebook["describe_by_kernel_index_mod_4"] if row[""] == "count"]
    assert found["count"].tolist() == counts == [44] * 4
    done = invoked("kernels", TWIN, "--by", "repetition", "--per", "4")
    assert "the kernels do not repeat every 4: 4 rows with kernels of several names" in done.stderr


def as_enqueue(row: dict[str, Any], name: str) -> Activity:
    """A row of the notebook as the enqueue that it was made of, on a device clock that begins with it."""
    p1 = ms(row, "p1 - p0")
    p2 = p1 + ms(row, "p2 - p1")
    sizes = tuple(row[key].to_bytes(4, "little").hex() for key in ("kSizeM", "kSizeN", "kSizeK") if key in row)
    return enqueued(
        number=row["call_index"], kind="kernel", name=name, queued_ns=0, submit_ns=p1, start_ns=p2,
        end_ns=p2 + ms(row, "p3 - p2"), host_start_ns=0, host_end_ns=ms(row, "t1 - t0"), arguments=sizes,
        grid=(row["gws0"], row["gws1"], row["gws2"]), workgroup=(row["lws0"], row["lws1"], row["lws2"]),
    )  # fmt: skip


@pytest.fixture(scope="module")
def published(notebook: dict[str, Any]) -> Profile:
    """The rows that the notebook shows: 60 of its 176 enqueues, and all 37 GEMMs, some of them among the 60."""
    shown = [(row["name"], row) for row in notebook["kernel_enqueues_head30_gap_tail30"] if row]
    shown += [(name, row) for name in DIRECT for row in notebook[name]]
    rows = {row["call_index"]: as_enqueue(row, name) for name, row in shown}
    assert len(rows) > 60
    activities = [rows[index] for index in sorted(rows)]
    return opencl_profile(
        records=notebook["n_calls"], queues=[Queue(index=0, device=0, handle="0x1")], activities=activities
    )


def test_our_sums_are_the_notebooks(notebook: dict[str, Any], published: Profile) -> None:
    """Fed with the rows that it shows, every sum of a name that is shown whole is the one it printed, to the ns."""
    ours = {str(row["name"]): row for row in by_name(published).rows}
    shown = notebook["sum_by_kernel_name"]
    whole = [row for row in shown if row["name"] in ours and ours[row["name"]]["count"] == row["count"]]
    for expected in whole:  # some rows of the others are in the gap that pandas printed as dots
        for quantity in QUANTITIES:
            assert ours[expected["name"]][f"{quantity}_sum_ns"] == ms(expected, quantity.replace("_", " - ")), expected
    assert {*DIRECT} <= {row["name"] for row in whole}
    assert sum(ms(row, "p3 - p2") for row in whole) * 2 > sum(ms(row, "p3 - p2") for row in shown)


def test_our_rates_are_the_notebooks(notebook: dict[str, Any], published: Profile) -> None:
    """GFLOPS of all 37 GEMMs, to the digits that it printed."""
    ours = {row["call_index"]: row for row in gemm_table(published, find_gemms(published)).rows}
    theirs = [row for name in DIRECT for row in notebook[name]]
    assert len(theirs) == 37
    for row in theirs:
        found = ours[row["call_index"]]
        assert [found[key] for key in "MNK"] == [row[f"kSize{key}"] for key in "MNK"]
        assert found["gflops"] == pytest.approx(row["GFLOPS"], abs=5.1e-7)


# -- The notebook of CK's dashboards runs, on the real records and on what the repository has; it is committed empty.


NOTEBOOK = ROOT / "examples" / "ck_dashboards.ipynb"


def executed(monkeypatch: pytest.MonkeyPatch, **environment: str) -> list[Any]:
    """The cells with their outputs. Raises where one fails."""
    for name in ("MIO2TRACE_CK", "MIO2TRACE_RUN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**environment, "PYTHONPATH": str(ROOT / "timeline")}.items():
        monkeypatch.setenv(name, value)
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any, kind: str) -> str:
    return "".join(output.get("data", {}).get(kind, "") for output in cell.outputs)


def test_the_notebook_is_committed_without_outputs() -> None:
    """Nobody's records, no path, no time of a run are in it."""
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    for cell in notebook["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.shared
def test_the_dashboards_of_the_real_records(monkeypatch: pytest.MonkeyPatch, shared: Path) -> None:
    """Layers by library and batch of ten records; kernels of ten iterations; the report in the cell."""
    sample = shared / "samples" / "miopen-opencl" / "m290-alexnet-infer-10it"
    cells = executed(
        monkeypatch,
        MIO2TRACE_CK=str(shared / "samples" / "ck"),
        MIO2TRACE_RUN=f"{sample / 'run.log'}:{sample / 'prof.json'}",
    )
    assert shown(cells[0], "text/plain") == "10"
    by_library = shown(cells[2], "text/html")
    for entry, batch in (("bvlc-alexnet-opencl-clblast", 10), ("bvlc-googlenet-opencl-clblast", 2)):
        assert entry in by_library
        assert f">{batch}<" in by_library
    assert "conv1" in shown(cells[3], "text/html")
    assert "srcdoc" in shown(cells[4], "text/html")
    assert "MIOpenCDFGen" in shown(cells[5], "text/html"), "kernels by repetition"
    assert "Conv fwd" in shown(cells[6], "text/html")


def test_the_dashboards_of_what_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without any record, on the run in traces/: layers, kernels, GEMMs of known sizes."""
    cells = executed(monkeypatch, MIO2TRACE_CK=str(tmp_path))
    assert "relu2" in shown(cells[3], "text/html")
    assert "Xgemm" in shown(cells[5], "text/html")
    run = mio2trace.load(*(ROOT / "traces" / "alexnet-b1-train" / name for name in ("run.log", "prof.json.gz")))
    largest = max((row for row in run.kernels if row["M"]), key=lambda row: row["M"] * row["N"] * row["K"])
    assert f"<th>{largest['M']}</th>" in shown(cells[7], "text/html")
