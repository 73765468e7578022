"""Ranges of a profile to operations: MIOpen's own carry the whole call in their text (rocm-profiles.md 1.1, 11.3).

``s_api = miopenConvolutionForward | alpha = ... | xDesc = ... | `` is the log's entry on one line: it goes through the
log's own decoder.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mio2trace.model.miopen import Entry, LoggedCall, MiopenLog, cut_addresses
from mio2trace.model.profile import Profile, Range
from mio2trace.ops.log.assemble import operations
from mio2trace.ops.operation import Operation

_API = "s_api = "
_FIELD = " | "


def is_library_call(made: Range) -> bool:
    """Whether a range is one that MIOpen pushed itself; internal functions among them."""
    return made.text.startswith(_API)


def shown_text(made: Range) -> str:
    """What a range is called where it is drawn: a library call by its function; the operation has its parameters."""
    text = made.text.strip()
    return text.removeprefix(_API).partition(_FIELD)[0].strip() if is_library_call(made) else text


def operations_of_ranges(profile: Profile) -> tuple[tuple[Operation, ...], tuple[int, ...]]:
    """(operations, the place of each one's range in the profile's), in order of time; lines are 0: there is no log."""
    calls = [place for place, made in enumerate(profile.ranges) if is_library_call(made)]
    calls.sort(key=lambda place: (profile.ranges[place].start_ns, -profile.ranges[place].end_ns))
    if not calls:
        return (), ()
    records = _records(profile, calls)
    made = operations(MiopenLog(source=profile.source, records=records))
    places = tuple(calls[operation.line - 1] for operation in made)
    return tuple(msgspec.structs.replace(operation, line=0, end_line=0) for operation in made), places


def _records(profile: Profile, calls: Sequence[int]) -> tuple[Entry, ...]:
    """An entry of a log of one line each; equal calls share an object, as the log's do."""
    shared: dict[LoggedCall, LoggedCall] = {}
    records = []
    for line, place in enumerate(calls, 1):
        made = profile.ranges[place]
        api, *fields = made.text.removeprefix(_API).rstrip(" |").split(_FIELD)
        body = "".join(f"{field}\n" for field in fields).encode()
        template, addresses = cut_addresses(body)
        thread = profile.threads[made.thread].tid if made.thread < len(profile.threads) else made.thread
        call = LoggedCall(
            source=profile.source,
            api=api.strip().removesuffix("_impl"),
            template=template,
            thread=thread if len(profile.threads) > 1 else None,
            nested=not api.startswith("miopen") or template.startswith((b'"', b"name + ")),
        )
        records.append(Entry(line, shared.setdefault(call, call), addresses))
    return tuple(records)
