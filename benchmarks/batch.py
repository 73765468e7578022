"""Many runs: two workers against one, workers that are killed, interruptions, inputs that must fail alone.

Makes ``--runs`` runs of 10 to ``--most`` kernels, of a made-up benchmark and of the recorded ones in traces/, and works
them off into datasets, which are compared byte for byte. Prints one JSON line, and how far it is on standard error.

    python -m benchmarks.batch
    python -m benchmarks.batch --runs 1000 --most 100000 --small 3     # 4 million kernels

It prints the seconds of one and of two workers, the processor time of one run (``run_ms``), and that of the leading
process per run (``lead_ms``: threads, journal). From these it computes the ratio for two idle processors: 2 * run /
(run + lead).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / part) for part in ("", "timeline")]

import mio2trace  # noqa: E402
from mio2trace.batch import work  # noqa: E402
from mio2trace.batch.confined import Limits  # noqa: E402
from mio2trace.batch.finding import FoundRun, find_runs  # noqa: E402
from mio2trace.batch.work import BatchOptions, Entry, read_journals, run_batch  # noqa: E402
from mio2trace.dataset import file_name, write_run  # noqa: E402
from mio2trace.notes import Notes  # noqa: E402
from tests.batch_work import made_up, poison, worker_pids  # noqa: E402

TRACES = Path(__file__).resolve().parent.parent / "traces"
LEAST_KERNELS = 10
RECORDED = 5
"""One run of this number is a recorded one."""
TURN = 100
"""Runs that one and two workers do in turns."""


def make(folder: Path, runs: int, most: int, small: float) -> None:
    """With ``small`` of 1 sizes are equally many in each power of ten, with more small ones are more often; the last
    is the largest. Large runs have many iterations.
    """
    recorded = sorted(path for path in TRACES.iterdir() if path.is_dir())
    chosen = random.Random(1)
    for number in range(runs):
        place = folder / f"{number:05}"
        if number % RECORDED == 0:
            place.mkdir(parents=True)
            for file in recorded[number // RECORDED % len(recorded)].iterdir():
                if "trace" not in file.name and "truth" not in file.name:
                    shutil.copy(file, place / file.name)
            continue
        part = 1.0 if number == runs - 1 else chosen.random() ** small
        kernels = round(LEAST_KERNELS * (most / LEAST_KERNELS) ** part)
        iterations = max(1, min(100, kernels // 40))
        made_up(place, iterations=iterations, kernels=max(1, round(kernels / 2 / (iterations + 1))))


def files(dataset: Path) -> dict[str, bytes]:
    """The hash of every table of every run; the same run gives the same bytes."""
    return {
        str(path.relative_to(dataset)): hashlib.sha256(path.read_bytes()).digest()
        for path in dataset.glob("*/*.parquet")
    }


def unlike_the_single_command(found: list[FoundRun], dataset: Path, folder: Path) -> list[str]:
    """Runs of these whose tables are others when they are analysed alone; ``runs.problems`` and all else alike."""
    unlike = []
    for run in found:
        analysis = mio2trace.analyse(run.files)
        write_run(analysis.run, folder, run.name, analysis.notes, cleaner=analysis.cleaner)
        if any(data != digest_of(dataset / name) for name, data in files(folder).items()):
            unlike.append(run.name)
        shutil.rmtree(folder)
    return unlike


def digest_of(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def say(*words: object) -> None:
    print(time.strftime("%H:%M:%S"), *words, file=sys.stderr, flush=True)


class Timed(NamedTuple):
    """Seconds of one and two workers; processor time of all of one worker's runs, and of leading them."""

    one: float
    two: float
    runs: float
    lead: float


def timed(found: list[FoundRun], folder: Path) -> Timed:
    """Of workers who stand ready; in turns, so that what else runs on the machine hinders both alike."""
    spent = [0.0, 0.0]
    lead = 0.0
    with work.processes(1) as one, work.processes(2) as two:
        clusters = ((folder / "one", one), (folder / "two", two))
        of_one: set[int] = set()
        for _, cluster in clusters:
            warm = BatchOptions(function="tests.batch_work:slowly")
            run_batch(found[:8], str(folder / "warm"), lambda of=cluster: contextlib.nullcontext(of), warm)  # type: ignore[misc]
            shutil.rmtree(folder / "warm")
            of_one = of_one or worker_pids()
        for at in range(0, len(found), TURN):
            for number, (dataset, cluster) in enumerate(clusters):
                begun, used = time.monotonic(), time.process_time()
                made = run_batch(
                    found[at : at + TURN],
                    str(dataset),
                    lambda of=cluster: contextlib.nullcontext(of),  # type: ignore[misc]
                    BatchOptions(),
                )
                spent[number] += time.monotonic() - begun
                lead += (time.process_time() - used) / 2
                assert not made.failed, [entry.error for entry in made.failed[:3]]
            say(f"{min(at + TURN, len(found))} runs: {spent[0]:.1f} s, {spent[1]:.1f} s")
        used_by_runs = sum(map(of_worker, of_one))
    return Timed(spent[0], spent[1], used_by_runs, lead)


def of_worker(pid: int) -> float:
    """Processor seconds of a warm process and of the runs that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def with_kills(found: list[FoundRun], dataset: Path, every: int) -> int:
    """How many workers were killed."""
    kills = ends = 0

    def told(entry: Entry) -> None:
        nonlocal kills, ends
        ends += 1
        if ends % every == 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(sorted(worker_pids())), signal.SIGKILL)
                kills += 1

    run_batch(found, str(dataset), lambda: work.processes(2), BatchOptions(), told=told)
    return kills


def interrupted(runs: Path, dataset: Path, times: int, seconds: float) -> int:
    """Start the command, end it at a random moment, and so on; then let it finish. How often it was ended."""
    command = [sys.executable, "-m", "mio2trace", "batch", str(runs), "-o", str(dataset), "-q", "--workers=2"]
    ended = 0
    for number in range(times):
        process = subprocess.Popen(command)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.5 + random.uniform(0, 1 + 2 * seconds / max(times, 1)))
        if process.poll() is None:
            process.send_signal((signal.SIGINT, signal.SIGTERM, signal.SIGKILL)[number % 3])
            process.wait()
            ended += 1
            say(f"interrupted {ended} times")
    subprocess.run(command, check=True)
    return ended


@contextlib.contextmanager
def place(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--most", type=int, default=1000, help="kernels of the largest run")
    parser.add_argument("--small", type=float, default=1, help="1: equally many in each power of ten; 3: mostly small")
    parser.add_argument("--alone", type=int, default=20, help="runs of which the single command's tables are compared")
    parser.add_argument("--every", type=int, default=50, help="runs between two kills of a worker")
    parser.add_argument("--interruptions", type=int, default=20)
    parser.add_argument("--timeout", type=float, default=60, help="seconds of each run beside the poisoned ones")
    parser.add_argument("--folder", type=Path, help="where to work, and leave what was made")
    asked = parser.parse_args()
    with place(asked.folder) as folder:
        runs = folder / "runs"
        if not runs.exists():
            make(runs, asked.runs, asked.most, asked.small)
        found = find_runs([str(runs)], Notes())
        say(f"{len(found)} runs, {sum(run.size for run in found) / 1e6:.0f} MB")
        took = timed(found, folder)
        whole = files(folder / "one")
        chosen = random.Random(2).sample(found, min(asked.alone, len(found)))
        unlike = unlike_the_single_command(chosen, folder / "one", folder / "alone")
        entries = read_journals(folder / "one").values()
        kills = with_kills(found, folder / "killed", asked.every)
        say(f"killed {kills} workers")
        lost = len(found) - sum(entry.state == "converted" for entry in read_journals(folder / "killed").values())
        ended = interrupted(runs, folder / "interrupted", asked.interruptions, took.two)
        names = poison(runs / "poison")
        limits = Limits(seconds=asked.timeout, memory=2_000_000_000)
        dangerous = BatchOptions(limits=limits, function="tests.batch_work:dangerous")
        found_too = find_runs([str(runs)], Notes())
        made = run_batch(found_too, str(folder / "poisoned"), lambda: work.processes(2), dangerous)
        failed = {entry.run.rpartition("/")[2] for entry in made.failed}
        rows = {f"runs/{file_name(entry.run)}" for entry in made.failed}
        rest = {name: data for name, data in files(folder / "poisoned").items() if name not in rows}
        shutil.rmtree(runs / "poison")
        run_ms, lead_ms = 1e3 * took.runs / len(found), 1e3 * took.lead / len(found)
        told = {
            "runs": len(found),
            "kernels": sum(entry.kernels for entry in entries),
            "input_mb": round(sum(run.size for run in found) / 1e6, 1),
            "dataset_mb": round(sum(entry.bytes for entry in entries) / 1e6, 2),
            "seconds_one_worker": round(took.one, 1),
            "seconds_two_workers": round(took.two, 1),
            "ratio": round(took.one / took.two, 2),
            "run_ms": round(run_ms, 1),
            "lead_ms": round(lead_ms, 1),
            "ratio_alone_on_two": round(2 * run_ms / (run_ms + lead_ms), 2),
            "two_equal_one": files(folder / "two") == whole,
            "alone": len(chosen),
            "unlike_alone": unlike,
            "killed": kills,
            "lost": lost,
            "killed_equal": files(folder / "killed") == whole,
            "interrupted": ended,
            "interrupted_equal": files(folder / "interrupted") == whole,
            "poisoned": len(names),
            "failed": {entry.run.rpartition("/")[2]: entry.error for entry in made.failed},
            "failed_alone": failed == set(names) and rest == whole,
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
