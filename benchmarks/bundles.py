"""A bundle of each sample set: gives it the links that the set itself gives, and how large is it?

    python benchmarks/bundles.py [--only TEXT]
    python benchmarks/bundles.py --canaries [--part 1/35] [--only TEXT]

Prints a line for each set: kernels and copies, sizes, whether layers, operations, evidence and confidence of all
of them are the same. Exit 1 when any differs. With --canaries: files of
every format with a canary of every kind in every field (tests/planted), and how many are in a member of their bundles.
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from benchmarks.canaries import cases  # noqa: E402
from benchmarks.samples import SHARED, require  # noqa: E402
from mio2trace.analysis import Analysis, AnalysisOptions, analyse  # noqa: E402
from mio2trace.bundles import make  # noqa: E402
from mio2trace.notes import InputError  # noqa: E402
from tests.canaries import CANARIES, leaks  # noqa: E402
from tests.planted import FORMATS  # noqa: E402


def sets(samples: Path) -> Iterator[tuple[str, list[Path]]]:
    """(name, files) of all sample sets."""
    for folder in sorted((samples / "miopen-opencl").iterdir()):
        if folder.is_dir():
            yield f"miopen-opencl/{folder.name}", [*folder.glob("run.log*"), *folder.glob("prof.json*")]
    dvdt = samples / "dvdt"
    for path in sorted(dvdt.glob("*.prof.json")):
        stem = path.name.removesuffix(".prof.json")
        logs = [dvdt / f"{stem}.{kind}.log" for kind in ("run", "stdout")]
        yield f"dvdt/{stem}", [path, *[log for log in logs if log.exists()][:1]]
    for path in sorted(dvdt.glob("*interleaved*.log")):
        yield f"dvdt/{path.name}", [path]
    for path in sorted(dvdt.glob("*.tmp-ck-timer.json")):
        yield f"dvdt/{path.name}", [path]
    for folder in sorted(path for path in (samples / "rocm-twins").iterdir() if path.is_dir()):
        logs = sorted(folder.glob("run.hip.log*")) or sorted(folder.glob("run*.log*"))
        for form in sorted(folder.iterdir()):
            if form.is_dir() and "pftrace" not in form.name:
                yield f"rocm-twins/{folder.name}/{form.name}", [*logs, form]
    for path in sorted((samples / "rocm").iterdir()):
        if path.is_file():
            yield f"rocm/{path.name}", [path]
    for path in sorted((samples / "miopen-logs").iterdir()):
        if path.suffix == ".txt":
            yield f"miopen-logs/{path.name}", [path]
    for name in ("tf215_resnet_v2", "tf18_bench_resnet50_v2", "gpu_streams_resnet_v2"):
        for path in sorted((samples / "tfprof" / name).iterdir()):
            if path.is_file() and not path.name.endswith((".csv", ".csv.gz")):
                yield f"tfprof/{name}/{path.name}", [path]
    for path in sorted((samples / "ck").rglob("ckp-*.0001.json")):
        yield f"ck/{path.parent.name}/{path.name}", [path]


NEAR = 1e-4


def links(analysis: Analysis) -> list[object]:
    """All that the links of each profile say; of runs without one the layers and operations."""
    told: list[object] = []
    for run in analysis.runs:
        for alignment in run.alignments:
            of = alignment.links
            told.append(
                (
                    [(one.name, one.start_ns, one.end_ns) for one in alignment.profile.activities],
                    [(one.direction, one.layer, one.begin_ns if hasattr(one, "begin_ns") else 0) for one in of.runs],
                    list(of.run_of),
                    list(of.layer_by),
                    Confidence(of.layer_confidence),
                    set(of.layer_unsure),
                    list(of.operation_of),
                    list(of.operation_by),
                    Confidence(of.operation_confidence),
                    set(of.operation_unsure),
                    [one.text if hasattr(one, "text") else one.api for one in of.operations],
                )
            )
        # logs are in the order of their hashes, which are others in a bundle
        told.append(sorted((one.layer, one.direction, one.printed_ns) for log in run.logs for one in log.layers))
        told.append(sorted(one.api for of_log in run.operations_by_log for one in of_log))
        told.append([len(one.nodes) for one in run.tf_profiles])
    return told


class Confidence(dict[int, float]):
    """Sums of probabilities differ in their last digits by the order of sets of addresses; what is not kept is 1."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return False
        return all(abs(self.get(place, 1.0) - other.get(place, 1.0)) < NEAR for place in self.keys() | other.keys())

    __hash__ = None


def analysed(files: Sequence[str]) -> Analysis:
    return analyse(files, AnalysisOptions(by_order_alone=True))


def canaries(part: int, of: int, wanted: str) -> int:
    """Print what leaked, and how much was looked at."""
    pairs = [(name, kind) for name, kind in cases() if wanted in f"{name} · {kind}"]
    pairs = pairs[(part - 1) * len(pairs) // of : part * len(pairs) // of]
    leaked = looked = 0
    for name, kind in pairs:
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, data in enumerate(FORMATS[name](CANARIES[kind])):
                paths.append(os.path.join(folder, f"in{number}"))
                Path(paths[-1]).write_bytes(data)
            out = os.path.join(folder, "bundle.zip")
            make(paths, out, AnalysisOptions(by_order_alone=True))
            with zipfile.ZipFile(out) as archive:
                for member in archive.namelist():
                    data = archive.read(member)
                    found = leaks(gzip.decompress(data) if member.endswith(".gz") else data)
                    looked += 1
                    leaked += len(found)
                    for text in found[:1]:
                        print(f"LEAK {name} · {kind} · {member}: {text!r}")
    print(f"{len(pairs)} bundles, {looked} members, {leaked} leaks")
    return bool(leaked)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--canaries", action="store_true")
    parser.add_argument("--part", default="1/1", metavar="N/OF")
    parser.add_argument("--shared", type=Path, default=SHARED, help="the folder of the real samples")
    options = parser.parse_args()
    if options.canaries:
        part, of = map(int, options.part.split("/"))
        return canaries(part, of, options.only)
    require("--shared", options.shared / "samples")
    wanted = options.only
    different = 0
    print("| set | kernels, copies | files, kB | bundle, kB | seconds | links |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name, paths in sets(options.shared / "samples"):
            if wanted not in name:
                continue
            files = [str(path) for path in paths]
            out = os.path.join(folder, "bundle.zip")
            try:
                own = analysed(files)
            except InputError as error:
                print(f"| {name} | | | | | refused: {str(error)[:60]} |")
                continue
            start = time.perf_counter()
            make(files, out, AnalysisOptions(by_order_alone=True))
            took = time.perf_counter() - start
            same = links(own) == links(analysed([out]))
            different += not same
            count = sum(len(one.profile.activities) for run in own.runs for one in run.alignments)
            before = sum(file.size for file in own.inputs) / 1000
            after = os.path.getsize(out) / 1000
            print(f"| {name} | {count} | {before:.0f} | {after:.0f} | {took:.1f} | {'same' if same else 'DIFFERENT'} |")
            sys.stdout.flush()
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
