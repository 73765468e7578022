"""The first advice for each real run, as in the table of docs/findings.md, which says why it is right for that run."""

from __future__ import annotations

import msgspec
import pytest

import mio2trace
from mio2trace.answer import report_of
from tests.conftest import ROOT, shared_folder


class Row(msgspec.Struct, frozen=True):
    """``files``: relative to the samples; ``first``: severity and id of the first finding, empty for none.

    ``also``: the same run in other forms, for which all of it holds as well.
    """

    files: tuple[str, ...]
    first: str
    says: str
    also: tuple[str, ...] = ()


def opencl(run: str, *names: str) -> tuple[str, ...]:
    return tuple(f"miopen-opencl/{run}/{name}" for name in names or ("run.log", "prof.json"))


def twin(run: str, profile: str, log: str = "run.hip.log") -> tuple[str, str]:
    return f"rocm-twins/{run}/{log}", f"rocm-twins/{run}/{profile}"


def forms(run: int, *others: str) -> tuple[str, ...]:
    """Beside rocpd: rocprofv3's CSV and JSON, and others."""
    return (f"rocprofv3-csv/{run}_kernel_trace.csv", f"rocprofv3-json/{run}_results.json.gz", *others)


KINETO, V1, RPD = "kineto/rank0.pt.trace.json.gz", "rocprof-v1/results.json.gz", "rpd/trace.rpd.gz"


ROWS = (
    Row(("rocm/kineto_mi210_gpu_only.json.gz",), "medium casts", "MIOpen's solver works in another type"),
    Row(("rocm/kineto_mi250_minitoy_train.json",), "medium idle", "Record several steps after a warm-up"),
    Row(("rocm/kineto_mi300_bert_small.json.gz",), "high idle", "The host launches too slowly"),
    Row(("rocm/kineto_mi300_vit_nsfw.json.gz",), "high idle", "The host launches too slowly"),
    Row(("rocm/kineto_mi300_resnet50_ddp4_rank0.json.gz",), "high idle", "The host launches too slowly"),
    Row(("rocm/kineto_mi300_resnet50_ddp4_rank1.json.gz",), "high idle", "The host launches too slowly"),
    Row(("rocm/kineto_mi300x_flux_graph_capture.json.gz",), "medium idle", "Record several steps after a warm-up"),
    Row(("rocm/kineto_mi300x_resnet_train_ddp.json.gz",), "high communication", "Record all ranks"),
    Row(("rocm/graphs/sglang_prefilldecode.json.gz",), "", ""),
    Row(("rocm/graphs/vllm_decode_full.replay.json.gz",), "medium graph", "Record the capture as well"),
    Row(("rocm/rocpd_ck_batched_gemm.db.gz",), "medium first-iteration", "run a warm-up before you measure"),
    Row(("rocm/xplane_jax08_mi300x_conv3d.xplane.pb.gz",), "high idle", "call block_until_ready once"),
    Row(("rocm/rocprofv3_csv_decode_kernel_trace.csv",), "low idle", "Record the run again, completely"),
    Row(("rocm/rocprofv3_csv_decode_fetch_counter_collection.csv",), "low counter-run", "from a run without --pmc"),
    Row(
        ("rocm/rocprofv3_json_kernel_dispatch_a.json.gz",), "medium idle", "No steps are known, so this may be start-up"
    ),
    Row(("rocm/rpd_torch_matmul.rpd.gz",), "medium idle", "No steps are known, so this may be start-up"),
    Row(("rocm/rocprofv1_hiptrace_mi300a.json",), "medium copies", "Copy only what the host needs, to pinned memory"),
    Row(("dvdt/clblast-lenet-seq-x3.prof.json",), "medium first-iteration", "It built or loaded programs."),
    Row(("dvdt/offline-parser.prof.json",), "medium first-iteration", "It built or loaded programs."),
    Row(opencl("m121-alexnet-infer-interleaved", "run.log"), "info find-cost", "Find runs once per shape"),
    Row(opencl("m121-resnet-infer-2it"), "medium first-iteration", "Keep MIOpen's kernel cache"),
    Row(opencl("m290-alexnet-infer-10it"), "medium first-iteration", "Keep MIOpen's kernel cache"),
    Row(opencl("m121-rnn-infer-first"), "info short-kernels", "or use larger batches."),
    Row(twin("alexnet-10it-graph", "rpd/trace.rpd.gz"), "high nameless", "Record with rocprofv3"),
    Row(twin("alexnet-10it-graph", KINETO), "high graph", "Record the capture as well"),
    Row(
        twin("alexnet-10it-graph", "rocpd/46001_results.db.gz"),
        "high graph",
        "Profile one run without graph capture",
        forms(46001),
    ),
    Row(
        twin("alexnet-level6-none", "rocpd/45919_results.db.gz"),
        "medium idle",
        "Record several steps after a warm-up",
        forms(45919, KINETO, V1, RPD),
    ),
    Row(
        twin("lenet-train-own-layers", "rocpd/43457_results.db.gz"),
        "medium idle",
        "Record several steps after a warm-up",
        forms(43457, KINETO, V1, RPD),
    ),
    Row(
        twin("lenet-cmdonly-kernel-trace", "rocpd/41242_results.db.gz"),
        "medium idle",
        "Record several steps after a warm-up",
        forms(41242),
    ),
    Row(
        twin("resnet-train-miopen-2threads", "rocpd/45362_results.db.gz"),
        "medium idle",
        "Record several steps after a warm-up",
        forms(45362, KINETO, V1, RPD),
    ),
    Row(
        twin("resnet-immediate-2ranks", "rocpd/42730_results.db.gz", "run.rank0.log"),
        "medium idle",
        "Record several steps after a warm-up",
        forms(42730, KINETO, "rocprof-v1/rank0/results.json.gz"),
    ),
    Row(
        twin("resnet-immediate-2ranks", "rocpd/42733_results.db.gz", "run.rank1.log"),
        "medium idle",
        "Record several steps after a warm-up",
        forms(42733, "kineto/rank1.pt.trace.json.gz", "rocprof-v1/rank1/results.json.gz"),
    ),
    Row(
        twin("resnet-immediate-2ranks", "rocpd/merged.db.gz", "run.log"),
        "medium idle",
        "Record several steps after a warm-up",
        (RPD,),
    ),
)


CASES = [(row, row.files) for row in ROWS]
CASES += [
    (row, (row.files[0], f"{'/'.join(row.files[0].split('/')[:2])}/{other}")) for row in ROWS for other in row.also
]


def case_id(case: tuple[Row, tuple[str, ...]]) -> str:
    return case[1][-1].replace("/", "-")


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_the_first_advice_is_right_for_its_run(case: tuple[Row, tuple[str, ...]]) -> None:
    """The program says what the row says."""
    row, names = case
    files = [shared_folder() / "samples" / name for name in names]
    analysis = mio2trace.analyse(files)
    (section, *_) = report_of(analysis, analysis.complete or analysis.runs, None).sections
    first = section.findings[0] if section.findings else None
    assert (f"{first.severity} {first.rule.id}" if first else "") == row.first
    assert row.says in (first.advice if first else "")


def test_the_document_has_the_table() -> None:
    """Run, finding and advice of each row, in the same order."""
    text = (ROOT / "docs" / "findings.md").read_text("utf-8")
    at = 0
    for row in ROWS:
        name = row.files[-1].removeprefix("rocm/").removesuffix(".gz")
        if row.also:
            name += f", also {', '.join(other.split('/')[0] for other in row.also)}"
        cells = (name, row.first or "none", row.says.rstrip("."))
        at = text.index(f"| {' | '.join(cells)} |", at)
