"""The law of `benchmarks/fuzz.py`: whatever the bytes are, a valid trace or one clear line.

* Never an exception but `InputError`, whose text is one line.
* Every trace keeps the program's own invariants, is JSON without escapes, NaN or empty names, in every form that can be
  written.
* No more processor time than `SECONDS` and `SECONDS_PER_MB`; no more memory than `MEMORY` (set by the caller).
* No kernel or copy that stands in the input is missing unless a problem is noted for it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mio2trace.conversion import Conversion, HostCalls, convert
from mio2trace.notes import InputError
from mio2trace.trace import Trace
from mio2trace.writers import WRITERS

from benchmarks.fuzz_logs import check as check_log

SECONDS = 3.0
SECONDS_PER_MB = 10.0
"""Of processor time; damaged text is tried call by call and byte by byte."""
MEMORY = 512 << 20
"""Bytes of address space beyond those of the program itself with its libraries."""
HOST_CALLS: tuple[HostCalls, ...] = ("all", "enqueue", "none")
_ENQUEUES = ("clEnqueueNDRangeKernel", "clEnqueueReadBuffer", "clEnqueueWriteBuffer")
_UNPRINTED = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f\\]")


class ViolationError(AssertionError):
    """The law is broken."""


class TooSlowError(BaseException):
    """Not an Exception: nothing in between may swallow it."""


def judge(files: Sequence[bytes], enqueues: int, host_calls: HostCalls = "enqueue") -> str:
    """Convert ``files``; "trace" or "refused". Raises `ViolationError` with what is wrong.

    ``enqueues`` is the least number of kernels and copies that must be drawn, counted or noted as lost.
    """
    with tempfile.TemporaryDirectory(dir=_memory()) as folder, limited(sum(map(len, files))):
        paths = []
        for number, data in enumerate(files):
            paths.append(Path(folder, str(number)))
            paths[-1].write_bytes(data)
        out = io.BytesIO()
        try:
            result = convert(*paths, output=out, check=True, host_calls=host_calls, by_order_alone=True)
        except InputError as error:
            text = str(error)
            if "\n" in text or not text.strip() or len(text) > 2000:
                raise ViolationError(f"not one clear line: {text[:300]!r}") from None
            return "refused"
        except TooSlowError:
            raise ViolationError(f"more than {_seconds(sum(map(len, files))):.0f} s") from None
        except (Exception, MemoryError) as error:
            raise ViolationError(f"{type(error).__name__}: {error}") from error
        check_trace(out.getvalue())
        check_count(result, enqueues)
        check_writers(result.trace)
    return "trace"


def judge_operations(data: bytes) -> None:
    """The tables and driver lines of a log, by lines and by blocks."""
    with limited(len(data)):
        try:
            check_log(data)
        except TooSlowError:
            raise ViolationError(f"more than {_seconds(len(data)):.0f} s for the tables") from None
        except Exception as error:
            raise ViolationError(f"tables: {type(error).__name__}: {error}") from error


COMMANDS = (
    ("kernels", "--format", "json"),
    ("layers", "--format", "csv"),
    ("inspect",),
    ("tfprof", "--show", ".*"),
    ("tfprof", "--text"),
    ("ops", "--coverage"),
    ("ops", "--group-by", "problem"),
    ("driver", "--form", "log"),
)


def judge_command(files: Sequence[bytes], command: Sequence[str]) -> int:
    """A command beside `convert`: its exit code, 0, or 1 or 2 with its reason. In this process."""
    from click.testing import CliRunner
    from mio2trace.cli import cli

    with tempfile.TemporaryDirectory(dir=_memory()) as folder, limited(sum(map(len, files))):
        paths = []
        for number, data in enumerate(files):
            paths.append(Path(folder, str(number)))
            paths[-1].write_bytes(data)
        try:
            result = CliRunner().invoke(cli, [*command, *map(str, paths)])
        except TooSlowError:
            raise ViolationError(f"{command[0]}: more than {_seconds(sum(map(len, files))):.0f} s") from None
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        error = result.exception
        raise ViolationError(f"{' '.join(command)}: {type(error).__name__}: {error}") from error
    if result.exit_code not in (0, 1, 2) or (result.exit_code == 1 and result.stderr.count("\n") != 1):
        raise ViolationError(f"{' '.join(command)}: exit {result.exit_code}: {result.stderr[:300]!r}")
    return result.exit_code


def check_trace(text: bytes) -> None:
    """What every viewer needs."""
    if _UNPRINTED.search(text):
        raise ViolationError("an escape or a control character in the trace")
    try:
        trace = json.loads(text, parse_constant=_no_number)
    except ValueError as error:
        raise ViolationError(f"no JSON: {error}") from None
    for event in trace["traceEvents"]:
        if not event["name"]:
            raise ViolationError("an event without a name")
        if event.get("ts", 0) < 0 or event.get("dur", 0) < 0:
            raise ViolationError("a time below zero")
        values: dict[str, Any] = event.get("args", {})
        if None in values.values():
            raise ViolationError("an argument that is null")


def check_count(result: Conversion, enqueues: int) -> None:
    found = result.metadata["attribution"]
    kept = found["kernels"] + found["copies"]
    noted = sum(note.count for note in result.notes if note.problem)
    if kept + noted < enqueues:
        raise ViolationError(f"{enqueues} kernels and copies in the input, {kept} kept, {noted} noted")


def check_writers(trace: Trace) -> None:
    """Every form that can be written, the first one has been."""
    for writer in WRITERS[1:]:
        out = io.BytesIO()
        try:
            writer.write(trace, out)
        except Exception as error:
            raise ViolationError(f"{writer.NAME}: {type(error).__name__}: {error}") from error
        if not out.getvalue():
            raise ViolationError(f"{writer.NAME}: nothing written")


def _no_number(constant: str) -> None:
    raise ValueError(constant)


def intact(files: Sequence[bytes]) -> int:
    """The enqueues that can be found in JSON that a strict parser takes; 0 where it takes none.

    Of damaged bytes nobody knows how many there are: only what a second parser understands counts.
    """
    count = 0
    for data in files:
        if not data.lstrip().startswith(b"["):
            continue
        with contextlib.suppress(ValueError, RecursionError):
            calls = json.loads(data, parse_constant=_no_number)
            count = max(count, sum(isinstance(call, dict) and call.get("call") in _ENQUEUES for call in calls))
    return count


def _seconds(size: int) -> float:
    return SECONDS + SECONDS_PER_MB * size / 1e6


@contextlib.contextmanager
def limited(size: int) -> Iterator[None]:
    """Raise `TooSlowError` when the body takes too much processor time; main thread only."""

    def stop(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, _seconds(size))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _memory() -> str | None:
    """A folder that is no disk, where there is one: fifty thousand small files wear it out."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
