"""What only a process of its own can show of hostile input: exit codes, standard error, Perfetto's engine."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.fuzz import law
from tests.fuzz.cases import Case, cases
from tests.perfetto_tools.tp_query import TraceProcessor, TraceProcessorError

ROOT = Path(__file__).resolve().parent.parent
_OWN_WORDS = "no-python-or-float-leftovers"
"""A check that the names of an input may break: they may be any word."""

Found = tuple[str, str, str, int]
"""Signature, text, seed and number, bytes."""


def command_line(seed: int, count: int, real: Sequence[bytes]) -> Iterator[Found]:
    """Exit code 0, 1 or 2, one line of error, no stack trace."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        for number, one in enumerate(cases(seed, count, real)):
            place, size = f"{seed}/{number}", sum(map(len, one.files))
            words = [sys.executable, "-m", "mio2trace", *_written(one, folder), "-o", str(out), "--check"]
            try:
                done = subprocess.run(words, capture_output=True, cwd=ROOT, timeout=120, stdin=subprocess.DEVNULL)
            except subprocess.TimeoutExpired:
                yield "command line: hangs", "more than 120 s", place, size
                continue
            said = done.stderr.decode("utf-8", "replace")
            wrong = done.returncode not in (0, 1, 2) or "Traceback" in said or "a fault of the program" in said
            if wrong or done.stdout or (done.returncode == 1 and said.count("\n") != 1):
                yield "command line", f"exit {done.returncode}: {said[:300]}", place, size
            if done.returncode == 0 and out.exists():
                try:
                    law.check_trace(out.read_bytes())
                except law.ViolationError as error:
                    yield f"command line: {law.signature(error)}", str(error), place, size
            out.unlink(missing_ok=True)


def engine(seed: int, count: int, real: Sequence[bytes]) -> Iterator[Found]:
    """The first ``count`` cases that give a trace, in both forms, under trace_checks.sql."""
    traces = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, one in enumerate(cases(seed, 20 * count, real)):
            if traces == count:
                return
            place, size = f"{seed}/{number}", sum(map(len, one.files))
            paths = [Path(path) for path in _written(one, folder)]
            with contextlib.suppress(law.ViolationError):
                if law.converted(paths, io.BytesIO(), by_order_alone=True) is None:
                    continue
                traces += 1
                for form in ("out.json", "out.pftrace"):
                    out = Path(folder, form)
                    law.converted(paths, out, by_order_alone=True)
                    for failed in _failed(out):
                        yield f"engine: {form}: {failed.partition(':')[0]}", failed, place, size


def _failed(trace: Path) -> list[str]:
    try:
        with TraceProcessor(trace) as processor:
            failed = processor.failed_checks()
    except TraceProcessorError as error:
        return [f"not loaded: {error}"]
    return [f"{name}: {rows[:2]}" for name, rows in failed.items() if name != _OWN_WORDS]


def _written(one: Case, folder: str) -> list[str]:
    paths = []
    for position, data in enumerate(one.files):
        path = Path(folder, str(position))
        path.write_bytes(data)
        paths.append(str(path))
    return paths
