"""Traces of ours that were changed since they were written: read back equal, or said; never silently different."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mio2trace import writers
from mio2trace.commands.serve import slowest_layer
from mio2trace.comparing.sides import of_trace
from mio2trace.conversion import convert
from mio2trace.notes import InputError, Notes
from mio2trace.queries import answer_in_sqlite
from tests.fuzz import law, mutations
from tests.own_traces import resealed
from tests.small_runs import as_json, benchmark

Chance = random.Random
FORMS = ("json", "json.gz", "pftrace", "pftrace.gz")


class Read(NamedTuple):
    """What is read of a trace: its slices, and what is said of it."""

    slices: list[Any]
    said: str


@cache
def written() -> Mapping[str, bytes]:
    """One small run in each form."""
    calls, log = benchmark()
    found = {}
    with law.on_disk([log.encode(), as_json(calls)]) as paths:
        for form in FORMS:
            out = paths[0].with_name(f"out.{form}")
            convert(*paths, output=out)
            found[form] = out.read_bytes()
            out.unlink()
    return found


def read(data: bytes, form: str, *, damaged: bool = False) -> Read:
    """Through the program. Raises `law.ViolationError` for what is neither read nor refused in a line."""
    with law.on_disk([data]) as (path,):
        notes = Notes()
        try:
            with law.watched(form, len(data)):
                if not writers.is_ours(path):
                    return Read([], _refused(path))
                slices = [_whole(one) for one in writers.slices(path, notes=notes, damaged=damaged)]
        except InputError as error:
            return Read([], law.one_line(error))
    return Read(slices, "; ".join(map(str, notes)))


def _whole(one: Any) -> tuple[Any, ...]:
    return one.track, one.start_ns, one.dur_ns, one.name, one.category, {**one.shared, **one.args}


def _refused(path: Path) -> str:
    """What is no trace of ours is read like any input."""
    with contextlib.suppress(InputError):
        convert(path)
        raise law.ViolationError("a trace of ours is read as the profile of a run")
    return "no trace of ours, and no other input"


def judge(changed: bytes, form: str) -> str:
    """ "equal" to what was written, "refused" or "said" in a note. Raises `law.ViolationError`."""
    found = read(changed, form)
    if found.slices == whole(form):
        return "equal"
    if not found.said:
        raise law.ViolationError(f"{form}: silently different")
    return "said" if found.slices else "refused"


@cache
def whole(form: str) -> Sequence[Any]:
    """The slices of the trace as it was written."""
    found = read(written()[form], form)
    if found.said:
        raise law.ViolationError(f"{form}: said of a trace that nobody changed: {found.said}")
    return found.slices


def bytes_changed(data: bytes, chance: Chance) -> bytes:
    """One to three bytes, half of the time one bit."""
    out = bytearray(data)
    if chance.random() < 0.5:
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
        return bytes(out)
    for at in chance.sample(range(len(out)), chance.randint(1, 3)):
        out[at] = (out[at] + chance.randrange(1, 256)) % 256
    return bytes(out)


def cut(data: bytes, chance: Chance) -> bytes:
    return data[: chance.randrange(len(data))]


def joined(data: bytes, chance: Chance) -> bytes:
    """With something behind it, or a piece left out, doubled or moved."""
    one, other = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return chance.choice((
        data + data,
        data + chance.randbytes(chance.randint(1, 40)),
        data[:one] + data[other:],
        data[:other] + data[one:],
        data[:one] + data[other:] + data[one:other],
    ))  # fmt: skip


CHANGES: Sequence[Callable[[bytes, Chance], bytes]] = (bytes_changed, bytes_changed, cut, joined)


def changed(seed: str) -> tuple[str, bytes]:
    """A form and a changed trace in it."""
    chance = Chance(seed)
    form = chance.choice(FORMS)
    return form, chance.choice(CHANGES)(written()[form], chance)


def hostile(seed: str) -> tuple[str, bytes]:
    """A form and a trace that a stranger has made: other in structure or bytes, its checksum right."""
    chance = Chance(seed)
    form = chance.choice(FORMS)
    plain = form.removesuffix(".gz")
    change = chance.choice((mutations.mutated, bytes_changed, joined))
    data = resealed(change(written()[plain], chance))
    return form, gzip.compress(data, 1) if form.endswith(".gz") else data


def judge_hostile(data: bytes, form: str) -> str:
    """Read or refused, both ways; asked by each command that reads traces. Raises `law.ViolationError`."""
    strict = read(data, form)
    anyway = read(data, form, damaged=True)
    if strict.slices and strict.slices != anyway.slices:
        raise law.ViolationError(f"{form}: --damaged reads another trace")
    with law.on_disk([data]) as (path,):
        if writers.is_ours(path):
            for what, ask in _ASKED.items():
                try:
                    with law.watched(what, len(data)):
                        ask(path)
                except InputError as error:
                    law.one_line(error)
    if not strict.slices:
        return "refused"
    if form.startswith("json"):
        _check_sum(gzip.decompress(data) if form.endswith(".gz") else data, strict.slices)
    return "read"


_ASKED: Mapping[str, Callable[[Path], object]] = {
    "query": lambda path: answer_in_sqlite(writers.slices(path, damaged=True), "select sum(dur) from kernels"),
    "view": lambda path: slowest_layer(path, damaged=True),
    "compare": lambda path: of_trace(path, Notes(), damaged=True),
}


def _check_sum(text: bytes, slices: Sequence[Any]) -> None:
    """The time of all kernels against the raw text's, where all of that can be read."""
    try:
        events = json.loads(text.decode("utf-8", "replace"))["traceEvents"]
    except ValueError:  # in a line that is no slice
        return
    spans = [event["dur"] for event in events if _is_kernel(event)]
    if sum(round(span * 1000) for span in spans) != sum(one[2] for one in slices if one[4] == "kernel"):
        raise law.ViolationError("another sum of kernel time than the text has")


def _is_kernel(event: Any) -> bool:
    return isinstance(event, dict) and event.get("ph") == "X" and event.get("cat") == "kernel"
