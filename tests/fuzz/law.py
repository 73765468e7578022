"""The law of `benchmarks/fuzz.py`: whatever the bytes are, a valid trace or one clear line.

* Never an exception but `InputError` and `OptionError`, whose text is one line.
* Every trace keeps the program's own invariants and the rules of tests/fuzz/rules.py in each form that can be written;
  it is JSON without escapes, NaN or empty names; both forms hold the same picture.
* No more processor time than `SECONDS` and `SECONDS_PER_MB`; no more memory than `MEMORY` (set by the caller).
* No kernel or copy that stands in the input is missing unless a problem is noted for it.

`tests/fuzz/looks.py` has what else is looked at.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fuzz_logs import check as check_log
from mio2trace.conversion import Conversion, HostCalls, convert
from mio2trace.notes import NOT_JOINED, InputError, OptionError
from mio2trace.trace import Trace
from mio2trace.writers import WRITERS, chrome_json, native
from tests.fuzz.backtracking import TooLong, limit
from tests.fuzz.rules import broken_rules
from tests.native_packets import Picture, differences, order, read_json, read_native

SECONDS = 3.0
SECONDS_PER_MB = 30.0
"""Of processor time, where a case is ended; `benchmarks/fuzz.py` compares each with the others."""
MEMORY = 512 << 20
"""Bytes of address space beyond those of the program itself with its libraries."""
HOST_CALLS: tuple[HostCalls, ...] = ("all", "enqueue", "none")
_ENQUEUES = ("clEnqueueNDRangeKernel", "clEnqueueReadBuffer", "clEnqueueWriteBuffer")
_UNPRINTED = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f\\]")
_DIGITS = re.compile(r"-?\d+")


class ViolationError(AssertionError):
    """The law is broken."""


def signature(error: BaseException) -> str:
    """What two violations have in common that are the same fault: where it was raised, or the rule that is broken."""
    cause = error.__cause__
    if cause is None:
        return _DIGITS.sub("N", str(error).partition(": ")[0] + ": " + str(error).partition(": ")[2][:60])
    places = []
    trace = cause.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if f"{os.sep}mio2trace{os.sep}" in code.co_filename:
            places.append(f"{Path(code.co_filename).name}:{code.co_name}")
        trace = trace.tb_next
    rule = _DIGITS.sub("N", str(cause).rpartition(": ")[2])[:40] if isinstance(cause, AssertionError) else ""
    return f"{type(cause).__name__} {rule} in {' < '.join(reversed(places[-3:]))}"


OPEN: dict[str, str] = {}
"""Violations that are known and not mended yet: a regular expression for the signature, and what is to be done."""


def is_open(found: str) -> bool:
    """Whether a violation's signature is one of `OPEN`."""
    return any(re.search(pattern, found) for pattern in OPEN)


class Clock:
    """Seconds of processor time that the program took for the case at hand, without the checks."""

    seconds = 0.0


CLOCK = Clock()


def judge(
    files: Sequence[bytes], enqueues: int, host_calls: HostCalls = "enqueue", *, both: bool = True, **options: Any
) -> str:
    """Convert ``files``; "trace" or "refused". Raises `ViolationError` with what is wrong.

    ``enqueues`` is the least number of kernels and copies that must be drawn, counted or noted as lost. ``both``: the
    native form is also written and read.
    """
    with on_disk(files) as paths:
        out = io.BytesIO()
        options = {"by_order_alone": True, "check": True, "host_calls": host_calls, **options}
        result = converted(paths, out, **options)
        if result is None:
            return "refused"
        check_trace(out.getvalue())
        check_count(result, enqueues)
        picture = drawn(out.getvalue())
        if result.trace.left_out and not picture.slices:
            return "trace"  # nothing of what was wanted
        check_rules(picture, chrome_json.NAME)
        if both:
            check_native(result.trace, picture, sum(map(len, files)))
    return "trace"


def converted(paths: Sequence[Path], out: io.BytesIO | Path, **options: Any) -> Conversion | None:
    """The conversion; None when it was refused in one clear line."""
    try:
        with watched("convert", sum(path.stat().st_size for path in paths)):
            result = convert(*paths, output=out, **options)
    except (InputError, OptionError) as error:
        one_line(error)
        return None
    for note in result.notes:
        if note.kind == NOT_JOINED:
            raise ViolationError(str(note))
    return result


def judge_operations(data: bytes) -> None:
    """The tables and driver lines of a log, by lines and by blocks."""
    with watched("tables", len(data)):
        check_log(data)


def one_line(error: Exception) -> str:
    text = str(error)
    if "\n" in text or not text.strip() or len(text) > 2000:
        raise ViolationError(f"not one clear line: {text[:300]!r}")
    return text


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


def drawn(text: bytes) -> Picture:
    try:
        return read_json(text)
    except (AssertionError, KeyError) as error:
        raise ViolationError(f"{chrome_json.NAME}: an event's place or end is missing: {error!r}") from None


def check_rules(picture: Picture, form: str) -> None:
    for broken in broken_rules(picture):
        raise ViolationError(f"{form}: {broken}")


def check_native(trace: Trace, picture: Picture, size: int = 0) -> None:
    """The other form, read with the classes of the ``perfetto`` package, holds the picture that the JSON does."""
    out = io.BytesIO()
    with watched(native.NAME, size):
        native.write(trace, out)
    try:
        found = read_native(out.getvalue(), {group for group, _ in picture.tracks}).picture
    except Exception as error:  # protobuf has its own
        raise ViolationError(f"{native.NAME}: its packets are wrong: {type(error).__name__} {error}") from error
    check_rules(found, native.NAME)
    for difference in differences(in_order(found), in_order(picture)):
        raise ViolationError(f"{native.NAME}: differs from {chrome_json.NAME}: {difference[:300]}")


def in_order(picture: Picture) -> Picture:
    """Slices of one span, category and name have no order but that of their arguments by name."""
    return picture._replace(slices=sorted(picture.slices, key=lambda one: (*order(one), str(sorted(one.args.items())))))


assert (chrome_json, native) == WRITERS, "a form that is written and not checked"


def check_count(result: Conversion, enqueues: int) -> None:
    found = result.metadata["attribution"]
    kept = found["kernels"] + found["copies"]
    noted = sum(note.count for note in result.notes if note.problem)
    if kept + noted < enqueues:
        raise ViolationError(f"{enqueues} kernels and copies in the input, {kept} kept, {noted} noted")


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


_FOLDER: list[str] = []


@contextlib.contextmanager
def on_disk(files: Sequence[bytes]) -> Iterator[list[Path]]:
    """The paths of files with these contents, in a folder that is used again: a new one takes longer than a case."""
    if not _FOLDER:
        _FOLDER.append(tempfile.mkdtemp(prefix="mio2trace-law-", dir=_memory()))
        atexit_remove(_FOLDER[0])
    paths = []
    for number, data in enumerate(files):
        paths.append(Path(_FOLDER[0], str(number)))
        paths[-1].write_bytes(data)
    yield paths


def atexit_remove(folder: str) -> None:
    import atexit

    atexit.register(shutil.rmtree, folder, ignore_errors=True)


@contextlib.contextmanager
def watched(what: str, size: int) -> Iterator[None]:
    """The program's own work: counted by `CLOCK`, ended when it takes too long (main thread only). Refusals go on as
    they are, any other error is a `ViolationError`."""
    began = time.process_time()
    try:
        with limit(SECONDS + SECONDS_PER_MB * size / 1e6):
            yield
    except (InputError, OptionError, ViolationError):
        raise
    except TooLong:
        raise ViolationError(f"{what}: more processor time than any input may take") from None
    except Exception as error:
        raise ViolationError(f"{what}: {type(error).__name__}: {error}") from error
    finally:
        CLOCK.seconds += time.process_time() - began


def _memory() -> str | None:
    """A folder that is no disk, where there is one: a million small files wear it out."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
