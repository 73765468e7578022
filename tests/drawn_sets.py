"""Traces made of events, and every set of files, for the tests of the written forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mio2trace.trace import Event, Process, Slices, Trace, Track
from tests.conftest import shared_folder

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = shared_folder() / "samples"


def traced(*parts: Sequence[Event | Slices], **options: Any) -> Trace:
    """Two processes, three tracks; a part for each list of events."""

    def part(own: Sequence[Event | Slices]) -> Callable[[], Iterator[Event | Slices]]:
        return lambda: iter(own)

    return Trace(
        processes=(
            Process(id=1, name="Host", sort=0),
            Process(id=100, name="GPU 0 (Mali)", sort=-10, description="Times of the device's clock."),
        ),
        tracks=(
            Track(id=101, process=100, name="Layers > kernels", sort=101, description="What ran."),
            Track(id=102, process=100, name="Layers > kernels (2)", sort=102),
            Track(id=11, process=1, name="OpenCL API", sort=1),
        ),
        parts=tuple(map(part, parts)),
        **({"metadata": {"generator": "test"}} | options),
    )


# Our own traces. Goldens and truth lie beside the inputs of a set in `traces/`.
NO_INPUT = ("*.trace.json*", "*.truth.json", "*.md", "*.png", "*.summary.json")
COMMITTED = {
    folder.name: [path for path in sorted(folder.iterdir()) if not any(map(path.match, NO_INPUT))]
    for folder in sorted((ROOT / "traces").iterdir())
    if folder.is_dir()
}
assert all(COMMITTED.values())
PAIRS = (
    "alexnet-b1-fwd-nomarks",
    "alexnet-b1-train",
    "alexnet-b3-libdnn-train-iter2",
    "lenet-b2-fwd",
    "lenet-b2-viennacl-fwd",
    "squeezenet11-b1-fwd-tz",
    "squeezenet11-b1-libdnn-fwd",
)
INTERLEAVED = ("alexnet-b1-fwd-interleaved", "lenet-b2-debuginfo-interleaved")
CLBLAST = ("clblast-batched-small", "clblast-gemm-direct", "clblast-gemm-indirect-small", "clblast-lenet-seq-x3")

# Every way in which the real samples may come.
REAL: list[tuple[str, ...]] = [
    *((f"{name}.run.log", f"{name}.prof.json") for name in PAIRS),
    *((f"{name}.interleaved{marks}.log",) for name in INTERLEAVED for marks in ("", "-nomarks")),
    *((f"{name}.prof.json",) for name in CLBLAST),
    *((f"{name}.interleaved.log",) for name in ("clblast-gemm-direct", "clblast-lenet-seq-x3")),
    ("alexnet-b1-train.prof.json", "alexnet-b1-train.run.log", "alexnet-b1-train.tmp-ck-timer.json"),
    ("alexnet-b1-train.prof.json", "alexnet-b1-train.boundary.per_layer_info.json"),
    ("squeezenet11-b1-fwd-tz.prof.json", "squeezenet11-b1-fwd-tz.boundary.per_layer_info.json"),
    ("alexnet-b1-train.run.log", "alexnet-b1-train.stdout.log"),
    ("alexnet-b1-train.prof.json",),
    ("alexnet-b1-train.run.log",),
    ("alexnet-b1-train.stdout.log",),
    ("alexnet-b1-train.tmp-ck-timer.json",),
    ("acl-sample.json",),
    ("crash-local-arg.stdout.log",),
    ("offline-parser.prof.json",),
    ("offline-parser.stdout.log",),
    ("two-queues.prof.json",),
    ("two-queues.stdout.log",),
    ("wallclock-timeofday.prof.json",),
]
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("lenet-b2-fwd", {"host_calls": "all"}),
    ("lenet-b2-fwd", {"host_calls": "none"}),
    ("lenet-b2-fwd", {"without": ["timer marks"]}),
    ("alexnet-b1-train", {"without": ["timer marks"]}),
]


def sets() -> Iterator[tuple[str, list[Path], dict[str, Any]]]:
    """Name, files and options of every set there is."""
    for name, files in COMMITTED.items():
        yield name, files, {}
    for names in REAL:
        yield "dvdt " + " ".join(names), [SAMPLES / "dvdt" / name for name in names], {}
    for name, named in OPTIONS:
        yield f"dvdt {name} {named}", [SAMPLES / "dvdt" / f"{name}.{end}" for end in ("run.log", "prof.json")], named
    for folder in sorted((SAMPLES / "miopen-opencl").glob("*/")):
        files = [path for name in ("run.log", "prof.json") if (path := folder / name).exists()]
        yield f"miopen-opencl {folder.name}", files, {}
    for record in sorted((SAMPLES / "ck").rglob("ckp-*.0001.json")):
        yield f"ck {record.parent.name[:30]} {record.name}", [record], {}


SETS = {name: (files, named) for name, files, named in sets()}
assert len(SETS) >= len(COMMITTED) + len(REAL) + len(OPTIONS)

TRAIN = [ROOT / "traces" / "alexnet-b1-train" / name for name in ("run.log", "prof.json.gz")]
