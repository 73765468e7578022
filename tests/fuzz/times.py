"""Times as no program measures them: backwards, doubled, without length, at the edges of 64 bits, of other years."""

from __future__ import annotations

import random
from typing import Any

YEARS = ("0001", "1677", "1969", "2018", "2262", "2300", "9999")
SHIFTS = (-(10**9), -50_000, 10**12, 10**15, 2**53, 10**17)
LENGTHS = (1, 10**5, 10**12, 2**62)


def altered(calls: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """The calls of a profile with the times of some of its commands altered; the others are the same objects."""
    out = list(calls)
    commands = [place for place, call in enumerate(calls) if isinstance(call.get("profiling"), dict)]
    for place in chance.sample(commands, chance.randint(0, len(commands))):
        other = calls[chance.choice(commands)]
        out[place] = {**calls[place], **_altered(calls[place], other, chance)}
    if chance.random() < 0.1:
        year = chance.choice(YEARS)
        out = [_of_year(call, year) for call in out]
    return out


def _altered(call: dict[str, Any], other: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    times, others = call["profiling"], other["profiling"]
    pick = chance.randrange(9)
    if pick == 0:
        return {"profiling": dict.fromkeys(times, 0)}
    if pick == 1:
        return {"profiling": {**times, "end": times["start"]}}
    if pick == 2:
        return {"profiling": others}
    if pick == 3:  # no length, where another begins or ends
        return {"profiling": dict.fromkeys(times, others[chance.choice(("start", "end"))])}
    if pick == 4:
        by = chance.choice((*SHIFTS, -times["queued"], 2**63 - 1 - times["end"]))
        return {"profiling": {key: at + by for key, at in times.items()}}
    if pick == 5:
        return {"profiling": {**times, "end": times["end"] + chance.choice(LENGTHS)}}
    if pick == 6:
        return {"queue": chance.choice(("0x30", "0x31", "0x32"))}
    if pick == 7:
        return _of_year(call, chance.choice(YEARS))
    return {"timestamp": other["timestamp"]}


def _of_year(call: dict[str, Any], year: str) -> dict[str, Any]:
    stamps = {key: year + text[4:] for key, text in call["timestamp"].items()}
    return {**call, "timestamp": stamps}
