"""``mio2trace layers``: printed times as the log has them, kernel and host times against truth, CK's repetitions."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from mio2trace.align import Alignment, LayerRun, Links, Net
from mio2trace.align.layers.net import NetLayerSpec
from mio2trace.kernels.facts import MAIN, KernelFact
from mio2trace.measures import Executions, LayerKey, Measures
from mio2trace.model.choices import Gemm
from mio2trace.model.tables import plain
from mio2trace.ops.operation import Operation
from mio2trace.ops.problem import Phase
from tests.commands import invoked, rows
from tests.conftest import ROOT, shared_folder
from tests.records import enqueued, made_operation, opencl_profile
from tests.small_runs import as_json, benchmark

SAMPLES = shared_folder() / "samples"
LOGS = sorted(
    path
    for folder in (SAMPLES / "dvdt", *(ROOT / "traces").glob("*"))
    for pattern in ("*.run.log", "run.log", "*.interleaved.log", "*.interleaved-nomarks.log")
    for path in folder.glob(pattern)
    if "clblast" not in path.name  # no layers there
)

IN_ORDER = ("--sort", "layer_index:up,direction:down")
"""As the net runs, forward before backward, and as `caffe time` prints."""
_LINE = re.compile(r"\]\s+(\S.*?)\t(forward|backward): (\S+) ms\.")


run = partial(invoked, "layers")


# -- printed times ---------------------------------------------------------------------------------------------------


def test_there_are_logs() -> None:
    assert {path.parent.name for path in LOGS} >= {"alexnet-b1-train", "squeezenet11-b1-libdnn-fwd"}
    assert not SAMPLES.is_dir() or len(LOGS) >= 12


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_printed_times_are_the_logs(path: Path) -> None:
    """Every layer of every set, in both directions, with or without the profile beside it, as an expression of this
    file's own reads them."""
    lines = _LINE.findall(path.read_text(errors="replace"))
    expected = [(name, direction, round(Decimal(ms) * 10**6)) for name, direction, ms in lines]
    assert len(expected) >= 16
    beside = (Path(str(path).replace(".run.log", ".prof.json")), path.parent / "prof.json.gz")
    profiles = [one for one in beside if one != path and one.is_file()]
    indexes = list(dict.fromkeys(name for name, _, _ in expected))
    for files in ([path], *([path, one] for one in profiles[:1])):
        in_order = rows(run(*files, *IN_ORDER))
        assert [(row["layer"], row["direction"], int(row["printed_ns"])) for row in in_order] == expected
        assert [int(row["layer_index"]) for row in in_order] == [indexes.index(name) for name, _, _ in expected]


DIGESTS = sorted((SAMPLES / "dvdt").glob("*.tmp-ck-timer.json"))


def log_of(digest: Path) -> str:
    return str(digest).replace("tmp-ck-timer.json", "run.log")


@pytest.mark.parametrize("path", DIGESTS, ids=lambda path: str(path.name))
def test_times_of_digest_and_log_are_the_same(path: Path) -> None:
    """`time_fw_ms` and its relatives are lines of the log, also where the digest lost the layers."""
    digest, log = (
        {row["measure"]: row["mean_ns"] for row in rows(run(one, "--times"))} for one in (path, log_of(path))
    )
    assert digest.keys() == {"time_fw", "time_bw", "time_fwbw", "time_total"}
    assert digest.items() <= log.items()
    raw = json.loads(path.read_bytes())
    assert digest == {name: str(round(raw[f"{name}_ms"] * 10**6)) for name in digest}


def work_of(alignment: Alignment) -> dict[str, tuple[int | None, str]]:
    """FLOP of each layer, which ran once, and what tells them."""
    return {key[1]: (ran.flop, ran.flop_by) for key, (ran,) in executions_of(Measures(alignment)).items()}


GEMM = KernelFact(role="main", gemm=Gemm(2, 3, 4), gemm_by="arguments")


# -- against truth ---------------------------------------------------------------------------------------------------


def moment(text: str) -> int:
    """Microseconds."""
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1_000_000)


MARKED = ("alexnet-b1-train", "alexnet-b3-libdnn-train-iter2", "lenet-b2-fwd", "lenet-b2-viennacl-fwd",
          "squeezenet11-b1-fwd-tz", "squeezenet11-b1-libdnn-fwd")  # fmt: skip


@pytest.mark.parametrize("name", MARKED)
def test_means_and_deviations_over_iterations(pandas: Any, shared: Path, name: str) -> None:
    """pandas, from the truth's labels and the profile's own JSON, for every layer of every iteration."""
    base = shared / "samples" / "dvdt" / name
    truth = json.loads(base.with_name(f"{name}.truth.json").read_bytes())
    calls = json.loads(base.with_name(f"{name}.prof.json").read_bytes())
    of_layer: dict[int, list[int]] = {}
    for enqueue in truth["enqueues"]:
        of_layer.setdefault(enqueue["l"], []).append(enqueue["call_index"])
    records = []
    for number, layer in enumerate(truth["layers"]):
        if layer["pass"] == "init" or (name == "alexnet-b3-libdnn-train-iter2" and layer["pass"] == "iter0"):
            continue  # the warm-up, and the first iteration of several, in which the host compiles
        ran = [calls[index] for index in of_layer.get(number, [])]
        kernels = [call for call in ran if call["call"] == "clEnqueueNDRangeKernel"]
        records.append(
            {
                "key": (layer["layer_index"], layer["layer"], layer["direction"]),
                "iteration": layer["pass"],
                "kernels": len(kernels),
                "copies": len(ran) - len(kernels),
                "kernel": sum(call["profiling"]["end"] - call["profiling"]["start"] for call in kernels),
                "copy": sum(c["profiling"]["end"] - c["profiling"]["start"] for c in ran if c not in kernels),
                "span": 1000 * (moment(layer["end_utc"]) - moment(layer["begin_utc"])),
            }
        )
    frame = pandas.DataFrame(records)
    groups = frame.groupby("key")
    found = {
        (int(row["layer_index"]), row["layer"], row["direction"]): row
        for row in rows(run(f"{base}.run.log", f"{base}.prof.json"))
    }
    assert set(groups.groups) == {key for key, row in found.items() if row["iterations"]}
    iterations = frame["iteration"].nunique()
    far = 0
    for key, expected in groups:
        row = found[key]
        assert int(row["iterations"]) == iterations == len(expected)
        for column in ("kernels", "copies"):
            assert float(row[column]) == expected[column].mean()
        for column in ("kernel", "copy"):
            assert float(row[f"{column}_ns"]) == pytest.approx(expected[column].mean(), rel=1e-12)
        # The marks lie within the truth's own stamps, which are whole microseconds, and around the kernels.
        host = float(row["host_ns"])
        assert (expected["kernel"] + expected["copy"]).mean() <= host + 1000
        assert host <= expected["span"].mean() + 1000
        far += host < expected["span"].mean() - 300_000
        assert float(row["launch_overhead_ns"]) == pytest.approx(
            host - (expected["kernel"] + expected["copy"]).mean(), abs=1e-3
        )
        if iterations > 1:
            assert float(row["kernel_std_ns"]) == pytest.approx(expected["kernel"].std(), rel=1e-9, abs=1e-3)
        else:
            assert row["kernel_std_ns"] == ""
    assert far <= len(found) // 20  # now and then the system let the program wait between a stamp and a mark


def test_flop_of_alexnets_convolutions() -> None:
    """2 M N K of the published sizes: 96 x 3025 x 363 and so on, and the bias GEMM of K = 1 (dvdt-ck.md 5)."""
    folder = ROOT / "traces" / "alexnet-b1-train"
    found = {(row["layer"], row["direction"]): row for row in rows(run(folder / "run.log", folder / "prof.json.gz"))}
    assert found["conv1", "forward"]["flop"] == str(2 * 96 * 3025 * (363 + 1))
    assert found["conv2", "forward"]["flop"] == str(2 * (2 * 128 * 729 * 1200) + 2 * 256 * 729)
    assert found["conv1", "forward"]["flop_by"] == "gemm"
    assert found["relu1", "forward"]["flop"] == found["relu1", "forward"]["gflops"] == ""
    conv1 = found["conv1", "forward"]
    assert float(conv1["gflops"]) == pytest.approx(float(conv1["flop"]) / float(conv1["kernel_ns"]))
    assert conv1["layer_by"] == "timer marks 3"
    assert (conv1["type"], conv1["output"]) == ("", "1x96x55x55") or conv1["type"] == "Convolution"


# -- small runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_run(tmp_path: Path) -> tuple[Path, Path]:
    calls, text = benchmark(iterations=3)
    log, profile = tmp_path / "run.log", tmp_path / "prof.json"
    log.write_text(text)
    profile.write_bytes(as_json(calls))
    return log, profile


def test_the_log_and_its_digest_count_once(small_run: tuple[Path, Path], tmp_path: Path) -> None:
    digest = tmp_path / "tmp-ck-timer.json"
    entries = [
        {"direction": direction, "index": index, "label": f"{index:02}: {name}", "time_ms": ms, "timestamp": ""}
        for index, name in enumerate(("conv1", "ip1")) for direction, ms in (("forward", 0.12), ("backward", 0))
    ]  # fmt: skip
    digest.write_text(json.dumps({"per_layer_info": entries, "time_fw_ms": 0.24}))
    both = rows(run(*small_run, digest))
    assert [row["printed_count"] for row in both] == ["1"] * 4
    assert [row["host_by"] for row in both if row["direction"] == "forward"] == ["bounds"] * 2
    alone = rows(run(digest, small_run[1], *IN_ORDER))
    assert [row["printed_ns"] for row in alone] == ["120000", "0", "120000", "0"]
    assert [row["kernels"] for row in alone if row["direction"] == "forward"] == ["2", "2"]


def test_a_log_of_two_runs_is_two_repetitions(small_run: tuple[Path, Path], tmp_path: Path) -> None:
    text = small_run[0].read_text()
    path = tmp_path / "twice.log"
    path.write_text(text + text.replace("forward: 0.12 ms", "forward: 0.14 ms"))
    done = run(path)
    first = rows(done)[0]
    assert (first["printed_ns"], first["printed_count"]) == ("130000", "2")
    assert (first["printed_min_ns"], first["printed_max_ns"]) == ("120000", "140000")
    assert float(first["printed_std_ns"]) == pytest.approx(14142.1, abs=0.1)
    assert (first["percent_of_printed_time"], first["kernels"], first["flop"]) == ("50.0", "", "")
    assert rows(run(path, "--unit", "ms"))[0]["printed_ms"] == "0.13"
    assert "2 repetitions" in done.stderr


def test_what_cannot_be_done_is_said(small_run: tuple[Path, Path], tmp_path: Path) -> None:
    log, profile = small_run
    for args, reason in (
        ((profile,), "names no layer; expected Caffe's `time` log, a CK record, or a profile whose"),
        ((log, "--each"), "holds no GPU profile; expected that of the run for --each"),
        ((profile, "--times"), "states no time of the whole run"),
        ((tmp_path / "none.log",), "No such file"),
    ):
        done = run(*args)
        assert (done.exit_code, done.stdout) == (1, ""), args
        assert reason in done.stderr
        assert len([line for line in done.stderr.splitlines() if line.startswith("mio2trace:")]) == 1
    assert run(log, "--each", "--times").exit_code == 2
    assert run(log, "--columns", "nothing").exit_code == 2


def joined(
    kernels: Sequence[tuple[str, str | None]],
    facts: dict[int, KernelFact] | None = None,
    operations: Sequence[Operation] = (),
) -> Alignment:
    """Kernels (name, layer) of one forward pass of the layers a, b, c; None is no layer."""
    enqueues = [
        enqueued(
            number=at, kind="kernel", name=name, queued_ns=at * 100, submit_ns=at * 100, start_ns=at * 100,
            end_ns=at * 100 + 10, host_start_ns=at * 1000, host_end_ns=at * 1000 + 500, prepared_ns=at * 1000 - 100,
        )
        for at, (name, _) in enumerate(kernels)
    ]  # fmt: skip
    profile = opencl_profile(source=0, records=len(enqueues), activities=tuple(enqueues))
    links = Links(profile.activities, operations)
    forward = links.pass_id("iteration", 1, "forward")
    for index, layer in enumerate("abc"):
        positions = [at for at, (_, of) in enumerate(kernels) if of == layer]
        if positions:
            run_ = links.runs.add(LayerRun(layer=layer, layer_index=index, direction="forward", pass_=forward))
            links.give_layer(positions, run_, "recurrence")
    links.give_pass(range(len(kernels)), forward)
    net = Net(layers=tuple(NetLayerSpec(index=index, layer=layer) for index, layer in enumerate("abc")))
    return Alignment(
        profile=profile, net=net, links=links, clocks={}, log_clock=None,
        facts=facts or {},
    )  # fmt: skip


class Ran(NamedTuple):
    """One execution of a layer."""

    iteration: int | None
    kernels: int
    kernel_ns: int | None
    copy_ns: int | None
    host_ns: int | None
    launch_overhead_ns: int | None
    host_by: str
    flop: int | None
    flop_by: str
    layer_by: Mapping[str, int]


def executions_of(measures: Measures) -> dict[LayerKey, list[Ran]]:
    """Each execution of each layer, in order."""
    made = measures.executions
    work = [*made.work.each()]
    columns = (
        *(plain(of) for of in (made.iteration, made.kernels, made.kernel_ns, made.copy_ns, made.host_ns)),
        plain(made.launch_overhead_ns), made.host_by.each(), (one.flop for one in work), (one.flop_by for one in work),
        made.layer_by.each(),
    )  # fmt: skip
    rows = [Ran(*cells) for cells in zip(*columns, strict=True)]
    return {key: [rows[at] for at in own.tolist()] for key, own in made.rows.items()}


def test_a_layer_has_no_kernels_only_where_every_kernel_has_a_layer() -> None:
    whole = executions_of(Measures(joined([("k", "a"), ("k", "c")])))
    assert {key[1]: found[0].kernels for key, found in whole.items()} == {"a": 1, "b": 0, "c": 1}
    loose = executions_of(Measures(joined([("k", "a"), ("k", None), ("k", "c")])))
    assert {key[1]: found[0].kernels for key, found in loose.items()} == {"a": 1, "c": 1}


def test_host_time_by_calls_and_launch_overhead() -> None:
    """From the first argument's setting to the end of the last call, less what ran on the device."""
    (found,) = executions_of(Measures(joined([("k", "a"), ("k", "a"), ("k", "b")])))[0, "a", "forward"]
    assert (found.host_ns, found.host_by) == (1500 + 100, "calls")
    assert (found.kernel_ns, found.copy_ns, found.launch_overhead_ns) == (20, 0, 1580)
    assert found.layer_by == {"recurrence": 2}


@pytest.mark.parametrize(("host_ns", "left"), [(30, 5), (25, 0), (24, None)])
def test_no_overhead_is_told_of_calls_that_did_not_wait(host_ns: int, left: int | None) -> None:
    """What is launched may run longer than the host is there."""
    ran = object.__new__(Executions)
    vars(ran).update(host_ns=np.array([host_ns]), kernel_ns=np.array([20]), copy_ns=np.array([5]))
    assert plain(ran.launch_overhead_ns) == [left]


def test_work_is_known_of_all_or_not_told() -> None:
    """A GEMM of several kernels counts once; one of unknown sizes leaves the layer without a number."""
    kernels = [("_prod_NN", "a")] * 2 + [("relu", "a"), ("XgemmDirectNN", "b"), ("Xgemm", "b"), ("fill", "c")]
    facts = {0: GEMM, 1: MAIN, 3: GEMM, 4: MAIN, 5: KernelFact(role="fill")}
    assert work_of(joined(kernels, facts)) == {"a": (48, "gemm"), "b": (None, "gemm"), "c": (None, "")}


def test_work_of_an_operation_counts_once() -> None:
    """An operation's kernels together do its work, whatever GEMM one of them is; a search does none."""
    kernels = [("im2col", "a"), ("gemm", "a"), ("Xgemm", "a"), ("conv", "b"), ("conv", "c")]
    phases: tuple[tuple[Phase, int], ...] = (("run", 1000), ("run", 500), ("find", 700))
    operations = [
        made_operation(index=at, primitive="conv", phase=phase, flop=flop) for at, (phase, flop) in enumerate(phases)
    ]
    alignment = joined(kernels, {1: GEMM, 2: GEMM, 4: GEMM}, operations)
    for index, positions in enumerate(((0, 1), (3,), (4,))):
        alignment.links.give_operation(positions, index, "buffers")
    assert work_of(alignment) == {"a": (1048, "operation, gemm"), "b": (500, "operation"), "c": (None, "")}
