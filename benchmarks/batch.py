"""Many runs: two workers against one, workers that are killed, interruptions, inputs that must fail alone.

Makes ``--runs`` runs of 10 to ``--most`` kernels, of a made-up benchmark and of the recorded ones in traces/, and works
them off into datasets, which are compared byte for byte. Prints one JSON line.

    python -m benchmarks.batch
    python -m benchmarks.batch --runs 1000 --most 100000 --interruptions 20
"""

from __future__ import annotations

import argparse
import contextlib
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

from mio2trace.batch import engines
from mio2trace.batch.finding import FoundRun, find_runs
from mio2trace.batch.forking import Limits
from mio2trace.batch.journal import Entry, read_journals
from mio2trace.batch.running import BatchOptions, run_batch
from mio2trace.notes import Notes
from tests.batch_work import made_up, poison

TRACES = Path(__file__).resolve().parent.parent / "traces"
LEAST_KERNELS = 10
RECORDED = 5
"""One run of so many is a recorded one."""
TURN = 50
"""Runs that one and two workers do in turns."""


def make(folder: Path, runs: int, most: int) -> None:
    """Sizes are equally many in each power of ten; large runs have many iterations."""
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
        kernels = round(LEAST_KERNELS * (most / LEAST_KERNELS) ** chosen.random())
        iterations = max(1, min(100, kernels // 40))
        made_up(place, iterations=iterations, kernels=max(1, round(kernels / 2 / (iterations + 1))))


def files(dataset: Path) -> dict[str, bytes]:
    """Every table of every run; the same run gives the same bytes."""
    return {str(path.relative_to(dataset)): path.read_bytes() for path in dataset.glob("*/*.parquet")}


def timed(found: list[FoundRun], folder: Path) -> tuple[float, float]:
    """Seconds that one worker and two take, who stand ready; in turns, so that what else runs on the machine hinders
    both alike."""
    spent = [0.0, 0.0]
    with engines.local_cluster(1) as one, engines.local_cluster(2) as two:
        clusters = ((folder / "one", one), (folder / "two", two))
        for _, cluster in clusters:
            warm = BatchOptions(function="tests.batch_work:slowly")
            run_batch(found[:8], str(folder / "warm"), lambda of=cluster: contextlib.nullcontext(of), warm)  # type: ignore[misc]
            shutil.rmtree(folder / "warm")
        for at in range(0, len(found), TURN):
            for number, (dataset, cluster) in enumerate(clusters):
                begun = time.monotonic()
                made = run_batch(
                    found[at : at + TURN],
                    str(dataset),
                    lambda of=cluster: contextlib.nullcontext(of),  # type: ignore[misc]
                    BatchOptions(),
                )
                spent[number] += time.monotonic() - begun
                assert not made.failed, [entry.error for entry in made.failed[:3]]
    return spent[0], spent[1]


def with_kills(found: list[FoundRun], dataset: Path, every: int) -> int:
    """How many workers were killed."""
    kills = ends = 0
    with engines.local_cluster(2) as opened:
        client = opened.executor._client  # type: ignore[attr-defined]

        def told(entry: Entry) -> None:
            nonlocal kills, ends
            ends += 1
            if ends % every == 0:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(random.choice(list(client.run(os.getpid).values())), signal.SIGKILL)
                    kills += 1

        run_batch(found, str(dataset), lambda: contextlib.nullcontext(opened), BatchOptions(), told=told)
    return kills


def interrupted(runs: Path, dataset: Path, times: int, seconds: float) -> int:
    """Start the command, end it at a random moment, and so on; then let it finish. How often it was ended."""
    command = [sys.executable, "-m", "mio2trace", "batch", str(runs), "-o", str(dataset), "-q"]
    ended = 0
    for number in range(times):
        process = subprocess.Popen(command)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0 + random.uniform(0, 2 * seconds / max(times, 1)))
        if process.poll() is None:
            process.send_signal((signal.SIGINT, signal.SIGTERM, signal.SIGKILL)[number % 3])
            process.wait()
            ended += 1
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
    parser.add_argument("--every", type=int, default=50, help="runs between two kills of a worker")
    parser.add_argument("--interruptions", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="where to work, and leave what was made")
    asked = parser.parse_args()
    with place(asked.folder) as folder:
        runs = folder / "runs"
        if not runs.exists():
            make(runs, asked.runs, asked.most)
        found = find_runs([str(runs)], Notes())
        one, two = timed(found, folder)
        whole = files(folder / "one")
        entries = read_journals(folder / "one").values()
        kills = with_kills(found, folder / "killed", asked.every)
        lost = len(found) - sum(entry.state == "converted" for entry in read_journals(folder / "killed").values())
        ended = interrupted(runs, folder / "interrupted", asked.interruptions, one)
        shutil.copytree(runs, folder / "poisoned-runs")
        names = poison(folder / "poisoned-runs" / "poison")
        limits = Limits(seconds=30, memory=2_000_000_000)
        dangerous = BatchOptions(limits=limits, function="tests.batch_work:dangerous")
        found_too = find_runs([str(folder / "poisoned-runs")], Notes())
        made = run_batch(found_too, str(folder / "poisoned"), lambda: engines.local_cluster(2), dangerous)
        failed = {entry.run.rpartition("/")[2] for entry in made.failed}
        rest = {name.replace("poisoned-runs", "runs") for name in files(folder / "poisoned")}
        told = {
            "runs": len(found),
            "kernels": sum(entry.kernels for entry in entries),
            "input_mb": round(sum(run.size for run in found) / 1e6, 1),
            "dataset_mb": round(sum(map(len, whole.values())) / 1e6, 2),
            "seconds_one_worker": round(one, 1),
            "seconds_two_workers": round(two, 1),
            "ratio": round(one / two, 2),
            "two_equal_one": files(folder / "two") == whole,
            "killed": kills,
            "lost": lost,
            "killed_equal": files(folder / "killed") == whole,
            "interrupted": ended,
            "interrupted_equal": files(folder / "interrupted") == whole,
            "poisoned": len(names),
            "failed_alone": failed == set(names) and rest == set(whole),
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
