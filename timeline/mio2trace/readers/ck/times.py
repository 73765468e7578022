"""The whole-run times that CK states of each repetition: ``time_fw_ms`` and its relatives (dvdt-ck.md 2.2, 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mio2trace.notes import InputError, Notes
from mio2trace.readers.caffe.log import LONGEST_PRINTED_NS

MEASURES = ("time_fw", "time_bw", "time_fwbw", "time_total")
"""Forward pass, backward pass, both (means over the iterations), the whole benchmark; in the record with ``_ms``."""


class _Run(msgspec.Struct):
    per_layer_info: msgspec.Raw = msgspec.Raw(b"")
    dvdt_prof: msgspec.Raw = msgspec.Raw(b"")
    run_success: Any = None
    run_success_bool: Any = None
    time_fw_ms: Any = None
    time_bw_ms: Any = None
    time_fwbw_ms: Any = None
    time_total_ms: Any = None


class _Repetition(msgspec.Struct):
    run: _Run = msgspec.field(default_factory=_Run)


class _Record(msgspec.Struct):
    characteristics_list: list[_Repetition] | None = None


class RunTimes(msgspec.Struct, frozen=True, kw_only=True):
    """A repetition: its number from 0 (None in a file of a single run), and those of `MEASURES` that it states."""

    repetition: int | None
    succeeded: bool
    has_data: bool
    times_ns: dict[str, int]


def runs(text: bytes, place: str, notes: Notes) -> list[RunTimes]:
    """All repetitions of a record, the single run of a ``tmp-ck-timer.json``, or of a bare ``per_layer_info``.

    A time that cannot be one (negative, or of months: records hold differences that went below zero and were printed as
    unsigned numbers) is noted and left out. Raises `InputError` for damaged JSON.
    """
    if text.lstrip()[:1] == b"[":
        return [RunTimes(repetition=None, succeeded=True, has_data=True, times_ns={})]
    try:
        record = msgspec.json.decode(text, type=_Record)
        if record.characteristics_list is None:
            single = msgspec.json.decode(text, type=_Run)
            return [_times(single, None, place, "$", notes)]
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not a readable CK record: {error}") from None
    return [
        _times(repetition.run, number, place, f"$.characteristics_list[{number}].run", notes)
        for number, repetition in enumerate(record.characteristics_list)
    ]


def kept_runs(found: Sequence[RunTimes], place: str, notes: Notes) -> Sequence[RunTimes]:
    """Those with data that say that they succeeded; all with data where none does. Raises `InputError` for none."""
    with_data = [run for run in found if run.has_data or run.times_ns]
    if not with_data:
        raise InputError(f"{place}: {len(found)} repetitions, none with per_layer_info, dvdt_prof or times")
    succeeded = [run for run in with_data if run.succeeded]
    kept = succeeded or with_data
    if not succeeded and with_data[0].repetition is not None:
        notes.add("no repetition with data says that it succeeded: all with data taken", place)
    left = len(found) - len(kept)
    if left:
        notes.add("repetition without success or without data left out", place, left)
    return kept


def _times(run: _Run, number: int | None, place: str, path: str, notes: Notes) -> RunTimes:
    times = {}
    for measure in MEASURES:
        value = getattr(run, f"{measure}_ms")
        if value is None:
            continue
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not 0 <= value < LONGEST_PRINTED_NS / 1_000_000
        ):
            notes.add("time that cannot be one left out", f"{place}: {path}.{measure}_ms: {value!r}"[:120])
            continue
        times[measure] = round(value * 1_000_000)
    return RunTimes(
        repetition=number,
        succeeded=run.run_success == "yes" or run.run_success_bool is True,
        has_data=any(
            bytes(raw).strip() not in (b"", b"null", b"[]", b"{}") for raw in (run.per_layer_info, run.dvdt_prof)
        ),
        times_ns=times,
    )
