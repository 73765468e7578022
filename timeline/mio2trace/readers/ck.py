"""CK experiment records: raw repetitions, ``tmp-ck-timer.json``, ``per_layer_info`` (dvdt-ck.md 2.2, 3).

    {"characteristics_list": [{"run": {"per_layer_info": [...], "dvdt_prof": [...], "run_success": "yes"}}, ...]}
    {"per_layer_info": [{"direction": "forward", "index": 0, "label": "00: data", "time_ms": 0.02,
                         "timestamp": "1103 15:39:29.318205"}, ...], "time_fw_ms": 6.57}
    [{"direction": "forward", "index": 0, "label": "00: data", ...}, ...]

A directory is a CK repository or entry: `locate` finds its points. Each repetition also states times of its whole run:
``time_fw_ms`` and similar ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from mio2trace.model.log import Direction, FrameworkLog, LayerTime
from mio2trace.notes import LEADS_OUT, InputError, Notes
from mio2trace.outgoing import count
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Records, of_json
from mio2trace.readers.caffe import LONGEST_PRINTED_NS, local_time
from mio2trace.source import Source, leads_out

if TYPE_CHECKING:
    from pathlib import Path

NAME = "CK experiment record"

MEASURES = ("time_fw", "time_bw", "time_fwbw", "time_total")
"""Forward pass, backward pass, both (means over the iterations), the whole benchmark; in the record with ``_ms``."""
LAST_LAYER = 1_000_000
"""A higher index is damage."""

T = TypeVar("T")

_SNIFF_OBJECT = late(
    rb'\s*\{.*?"(?:characteristics_list|per_layer_info|dvdt_prof|execution_time_list_opencl|time_fw_ms)"\s*:', re.DOTALL
)
_SNIFF_ARRAY = late(rb'\s*\[\s*\{[^{}]*"(?:label|direction|time_ms)"\s*:')
_POINTS = ("ckp-*.0001.json", "*/ckp-*.0001.json", "*/*/ckp-*.0001.json")
"""Paths in an entry, in a module's folder, in a repository."""
_STAMP = late(r"(\d{4})?(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?$", re.ASCII)
_LARGEST_META = 16 << 20
_PLACEHOLDER = "0101 00:00:00.000000"
_EMPTY = late(rb"\s*+(?:null|\[\s*+\]|\{\s*+\}|\"\"|)\s*+")
_LABEL = late(r"\d+: (.+)", re.DOTALL)


class _LayerInfo(msgspec.Struct, gc=False):
    label: str
    direction: str
    index: int
    time_ms: int | float
    timestamp: str = ""


class _Run(msgspec.Struct):
    per_layer_info: msgspec.Raw = msgspec.Raw(b"")
    dvdt_prof: msgspec.Raw = msgspec.Raw(b"")
    run_success: Any = None
    run_success_bool: Any = None
    time_fw_ms: Any = None
    time_bw_ms: Any = None
    time_fwbw_ms: Any = None
    time_total_ms: Any = None
    execution_time_list_opencl: msgspec.Raw = msgspec.Raw(b"")
    iterations: Any = msgspec.field(default=None, name="REAL_ENV_CK_CAFFE_ITERATIONS")

    @property
    def succeeded(self) -> bool:
        return self.run_success == "yes" or self.run_success_bool is True

    @property
    def has_data(self) -> bool:
        return any(_EMPTY.fullmatch(raw) is None for raw in (self.per_layer_info, self.dvdt_prof))


class _Repetition(msgspec.Struct):
    run: _Run = msgspec.field(default_factory=_Run)


class _Record(msgspec.Struct):
    characteristics_list: list[_Repetition] | None = None
    features: msgspec.Raw = msgspec.Raw(b"")


def sniff(head: bytes) -> bool:
    begins = head.lstrip()[:1]
    return (begins == b"{" and _SNIFF_OBJECT.match(head) is not None) or (
        begins == b"[" and _SNIFF_ARRAY.match(head) is not None
    )


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return the first repetition with data and success. Raises `InputError` for damaged JSON, and without data."""
    ((records, _, _),) = repetitions(source, None, options, notes)
    return records


def repetitions(
    source: Source, wanted: int | Literal["every"] | None, options: ReadOptions, notes: Notes
) -> list[tuple[Records, int | None, dict[str, int]]]:
    """Return the wanted repetition, every one with data, or the first one with data and success.

    Of each: its records, its number (None for a file of a single run), and the `MEASURES` that it states. Raises
    `InputError` as `read`."""
    text, place = source.read(), source.name
    if text.lstrip()[:1] == b"[":
        layers = _layers(msgspec.Raw(text), source, "$", notes)
        if not layers:
            raise InputError(f"{place}: $: no layer entry can be read; expected those of per_layer_info")
        if isinstance(wanted, int) and wanted:
            raise InputError(_without(place, wanted, 1))
        return [([FrameworkLog(source=source.index, layers=layers)], None, {})]
    record = _decode(text, _Record, place)
    is_single = record.characteristics_list is None
    runs = [_decode(text, _Run, place)] if is_single else [one.run for one in record.characteristics_list or ()]
    paths = ["$" if is_single else f"$.characteristics_list[{number}].run" for number in range(len(runs))]
    times = [_times(*one, place, notes) if wanted is not None else {} for one in zip(runs, paths, strict=True)]
    found = []
    for number in [0] if is_single and wanted is None else _chosen(runs, times, wanted, is_single, place, notes):
        run = runs[number]
        if is_single and (run.run_success == "no" or run.run_success_bool is False):  # many records state neither
            notes.add("the run says that it failed", place)
        elif not is_single and wanted is not None and not run.succeeded:
            notes.add("the chosen repetition does not say that it succeeded", f"{place}: {number}")
        records = _records(run, paths[number], record.features, source, options, notes)
        found.append((records, None if is_single else number, times[number]))
    return found


def _records(
    run: _Run, path: str, features: msgspec.Raw, source: Source, options: ReadOptions, notes: Notes
) -> Records:
    records: Records = []
    if bytes(run.dvdt_prof)[:1] == b"[":
        place = f"{source.name}: {path}.dvdt_prof"
        from mio2trace.readers.opencl.dvdt import read_array

        profile = read_array([bytes(run.dvdt_prof)], source.index, place, options, notes)
        if profile.records:
            records.append(profile)
    if bytes(run.execution_time_list_opencl)[:1] == b"[" and not records:
        notes.add("kernel times without a time line (execution_time_list_opencl) not drawn", source.name)
    layers = _layers(run.per_layer_info, source, f"{path}.per_layer_info", notes)
    if layers or run.time_fw_ms is not None:
        forward, backward = _ms(run.time_fw_ms), _ms(run.time_bw_ms)
        records.append(
            FrameworkLog(
                source=source.index, layers=layers, iterations=_iterations(run.iterations), average_forward_ns=forward,
                average_backward_ns=backward, device_name=_device_name(features),
            )
        )  # fmt: skip
    if not records:
        raise InputError(f"{source.name}: {path}: neither per_layer_info nor dvdt_prof; expected one of them with data")
    return records


def is_directory(directory: str) -> bool:
    """Return whether there is any point below the directory."""
    from pathlib import Path

    return any(True for pattern in _POINTS for _ in Path(directory).glob(pattern))


def locate(directory: str, tags: tuple[str, ...], notes: Notes) -> str:
    """Return the raw repetitions of a point (``ckp-*.0001.json``) below a CK entry, module or repository directory.
    With ``tags``, only entries whose ``.cm/meta.json`` has all of them, as in `ck search --tags`. If there are several
    points, the first one by path is used, and a note says so. Raises `InputError` if there is none."""
    from pathlib import Path

    root = Path(directory)
    there = sorted(path for pattern in _POINTS for path in root.glob(pattern))
    found = [path for path in there if not leads_out(str(path), directory)]
    points = [path for path in found if path.is_file()]
    name = root.name or str(root)
    if found and not points:
        raise InputError(f"{name}: its {found[0].name} is no regular file; expected a CK entry or repository")
    if len(found) < len(there):
        notes.add(LEADS_OUT, name, len(there) - len(found))
    if len(points) < len(found):
        notes.add("point of a CK folder that is no regular file: skipped", name, len(found) - len(points))
    if not points:
        what = "a folder without a profile, a log or ckp-*.0001.json"
        raise InputError(f"{name}: {what}; expected the folder of a run or a CK entry")
    chosen = [path for path in points if set(tags) <= _tags(path.parent)]
    if not chosen:
        raise InputError(f"{name}: none of {count(len(points), 'point')} has the tags {','.join(tags)}")
    taken = f"{chosen[0].parent.name}/{chosen[0].name}"
    if len(chosen) > 1:
        notes.remark("several points fit: took the first (--tags chooses)", f"{taken} of {len(chosen)}")
    else:
        notes.remark("took the only point that fits", taken)
    return str(chosen[0])


def _tags(entry: Path) -> set[str]:
    path = entry / ".cm" / "meta.json"
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_META:
            return set()
        meta = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, ValueError, RecursionError):
        return set()
    tags = meta.get("tags")
    return {tag for tag in tags if isinstance(tag, str)} if isinstance(tags, list) else set()


def _without(place: str, wanted: int, count: int) -> str:
    return f"{place}: no repetition {wanted}; it has {count}, counted from 0"


def _chosen(
    runs: Sequence[_Run], times: Sequence[Mapping[str, int]], wanted: int | Literal["every"] | None, is_single: bool,
    place: str, notes: Notes,
) -> list[int]:  # fmt: skip
    if isinstance(wanted, int):
        if not 0 <= wanted < len(runs):
            raise InputError(_without(place, wanted, len(runs)))
        return [wanted]
    with_data = [number for number, run in enumerate(runs) if run.has_data or times[number]]
    succeeded = [number for number in with_data if runs[number].succeeded]
    kept, several = succeeded or with_data, count(len(runs), "repetition")
    if not kept and wanted is None:
        raise InputError(f"{place}: $.characteristics_list: {several}, none with per_layer_info or dvdt_prof")
    if not kept:
        raise InputError(f"{place}: {several}, none with per_layer_info, dvdt_prof or times")
    if wanted is None:
        where = f"{place}: {kept[0]} of {len(runs)}"
        if not succeeded:
            notes.add("no repetition with data says that it succeeded: took the first with data", where)
        elif len(runs) > 1:
            notes.remark("one of several repetitions taken, counted from 0 (--repetition chooses)", where)
        return kept[:1]
    if not succeeded and not is_single:
        notes.add("no repetition with data says that it succeeded: all with data taken", place)
    if left := len(runs) - len(kept):
        notes.add("repetition without success or without data left out", place, left)
    return kept


def _decode(text: bytes, kind: type[T], place: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not a readable CK record: {of_json(error)}") from None


def _layers(raw: msgspec.Raw, source: Source, path: str, notes: Notes) -> tuple[LayerTime, ...]:
    if bytes(raw) in (b"", b"null"):
        return ()
    try:
        items: list[msgspec.Raw] = msgspec.json.decode(raw, type=list[msgspec.Raw])
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source.name}: {path}: expected an array of layers: {of_json(error)}") from None
    layers = []
    for position, item in enumerate(items):
        try:
            info = msgspec.json.decode(item, type=_LayerInfo)
            direction: Direction = {"forward": "forward", "backward": "backward"}[info.direction]  # type: ignore[assignment]
            printed = _ms(info.time_ms)
            if printed is None or not 0 <= info.index <= LAST_LAYER:
                raise ValueError(f"time_ms {info.time_ms}, index {info.index}")
        except (KeyError, ValueError, RecursionError) as error:
            notes.add("layer entry that could not be read", f"{source.name}: {path}[{position}]: {error}")
            continue
        label, stamp = _LABEL.match(info.label), _STAMP.match(info.timestamp)
        name = (label[1] if label else info.label) or f"layer {info.index}"
        when = local_time(*stamp.groups()) if stamp and info.timestamp != _PLACEHOLDER else None
        layers.append(
            LayerTime(
                source=source.index, index=info.index, layer=name, direction=direction, printed_ns=printed, stamp=when
            )
        )
    return tuple(layers)


def _ms(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < LONGEST_PRINTED_NS / 1e6:
        return None
    return round(value * 1_000_000)


def _iterations(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number > 0 else None


def _device_name(features: msgspec.Raw) -> str:
    """Return ``features.platform.gpu.name``; names of CK's platforms may end in a NUL character."""
    try:
        value = msgspec.json.decode(bytes(features) or b"{}")
        for key in ("platform", "gpu", "name"):
            value = value[key]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return value.replace("\0", "").strip() if isinstance(value, str) else ""


def _times(run: _Run, path: str, place: str, notes: Notes) -> dict[str, int]:
    """Return the times of a whole run. An impossible one is noted and left out: a negative one, or one of months
    (records contain differences that went below zero and were printed as unsigned numbers)."""
    times = {}
    for measure in MEASURES:
        value = getattr(run, f"{measure}_ms")
        time_ns = _ms(value)
        if time_ns is not None:
            times[measure] = time_ns
        elif value is not None:
            notes.add("time that cannot be one left out", f"{place}: {path}.{measure}_ms: {value!r}"[:120])
    return times
