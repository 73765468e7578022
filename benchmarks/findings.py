"""What `mio2trace report` finds in the real samples: the verdict and every finding of each set, one line each.

    python benchmarks/findings.py ../shared/samples [--gpu MI300X] [--only PART]

A set is a run: its log with its profile, in the first form that there is of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / part) for part in ("", "timeline")]

import mio2trace  # noqa: E402
from benchmarks.samples import require  # noqa: E402
from mio2trace.answer import report_of  # noqa: E402
from mio2trace.findings import Gpu, gpu_of  # noqa: E402
from mio2trace.notes import InputError  # noqa: E402

FORMS = ("rocpd", "rocprofv3-csv", "rocprofv3-json", "rpd", "rocprof-v1", "kineto")


def sets(samples: Path) -> Iterator[tuple[str, list[Path]]]:
    """Name and files of each run in the folder of samples."""
    for folder in sorted((samples / "miopen-opencl").glob("*/")):
        files = [folder / name for name in ("run.log", "prof.json") if (folder / name).exists()]
        yield f"miopen-opencl/{folder.name}", files
    for profile in sorted((samples / "dvdt").glob("*.prof.json*")):
        log = profile.with_name(profile.name.partition(".prof")[0] + ".run.log")
        yield f"dvdt/{profile.name}", [*([log] if log.exists() else []), profile]
    for log in sorted((samples / "dvdt").glob("*.interleaved*.log")):
        yield f"dvdt/{log.name}", [log]
    for folder in sorted((samples / "rocm-twins").glob("*/")):
        logs = sorted(folder.glob("run.hip.log")) or sorted(folder.glob("run.rank*.log"))
        for form in FORMS:
            profiles = sorted(path for path in (folder / form).glob("*") if path.suffix != ".pftrace")
            if form == "rocpd":
                profiles = [path for path in profiles if not path.name.startswith("merged")]
            elif form != "kineto":
                profiles = profiles[:1]
            if profiles:
                yield f"rocm-twins/{folder.name}/{form}", [*logs, *profiles]
    for path in sorted((samples / "rocm").glob("*")):
        if path.is_file() and path.name != "INDEX.md":
            yield f"rocm/{path.name}", [path]
    for path in sorted((samples / "tfprof").glob("*/profile.tfprof*")):
        yield f"tfprof/{path.parent.name}", [path]
    for path in sorted((samples / "miopen-logs").glob("*")):
        if path.name != "INDEX.md":
            yield f"miopen-logs/{path.name}", [path]


def lines(name: str, files: list[Path], gpu: Gpu | None) -> Iterator[str]:
    try:
        analysis = mio2trace.analyse(files)
        report = report_of(analysis, analysis.complete or analysis.runs, gpu)
    except InputError as error:
        yield f"{name}: refused: {str(error)[:120]}"
        return
    if not report.sections:
        yield f"{name}: nothing to report"
    for section in report.sections:
        yield f"{name}: {section.name}: {section.verdict}"
        for finding in section.findings:
            yield f"    {finding.severity:<6} {finding.rule.id}: {finding.found.number}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path)
    parser.add_argument("--gpu")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    require("SAMPLES", options.samples)
    gpu = gpu_of(options.gpu) if options.gpu else None
    for name, files in sets(options.samples):
        if options.only in name:
            for line in lines(name, files, gpu):
                sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
